# SPDX-License-Identifier: Apache-2.0
"""MCP servers of the Codex CLI that live where the executor is: over stdio by processes, over HTTP by http/request."""

import os
import re
import socket
import subprocess

import codex
import server
from model import call, command, say

import tap

MINI = os.path.join(codex.HERE, 'mini_mcp.py')
BIG = 'x' * 70000


def tool(call_id, name, text):
    return dict(call(call_id, name, text=text), namespace='mcp__mini')


class Stdio(codex.Case):
    def test_tools(self):
        table = '''
[mcp_servers.mini]
command = "%s"
args = ["%s"]
cwd = "%s"
environment_id = "remote"
env = { MINI = "its own" }
env_vars = [{ name = "FOO", source = "remote" }]
''' % (server.PYTHON, MINI, self.ws)
        self.wire_to(self.serve(env={'FOO': 'what the server has'}))
        m = self.play([tool('c1', 'echo', 'one')], [tool('c2', 'size', BIG)], [tool('c3', 'slow', 'three')],
                      [command('c4', 'echo beside')], [say()], tables=table)
        self.assertIn('mini heard one in %s with its own and what the server has' % self.ws, m.told('c1'))
        self.assertIn('size 70000', m.told('c2'))
        self.assertIn('slowly three', m.told('c3'))
        self.assertOutcome(m, 'c4', 0, 'beside\n')
        self.assertEqual([s['params']['pipeStdin'] for s in self.wire.sent('process/start')], [True, False])
        self.assertGone(re.search(r'pid (\d+)', m.told('c1')).group(1))


class Http(codex.Case):
    NEEDS = ('http/request',)

    def mini(self):
        """The URL of a server on loopback."""
        mini = subprocess.Popen([server.PYTHON, MINI, 'http'], stdout=subprocess.PIPE, cwd=self.ws, env={'MINI': 'http'},
                                text=True)
        self.addCleanup(mini.stdout.close)
        self.addCleanup(mini.wait)
        self.addCleanup(mini.kill)
        return mini.stdout.readline().strip()

    def test_tools(self):
        url = self.mini()
        table = '[mcp_servers.mini]\nurl = "%s"\nenvironment_id = "remote"\n' % url
        m = self.play([tool('c1', 'echo', 'one')], [tool('c2', 'size', BIG)], [tool('c3', 'slow', 'three')], [say()],
                      tables=table)
        self.assertIn('mini heard one in %s with http' % self.ws, m.told('c1'))
        self.assertIn('size 70000', m.told('c2'))
        self.assertIn('slowly three', m.told('c3'))
        self.assertTrue(all(r['params']['url'] == url for r in self.wire.sent('http/request')))
        self.assertTrue(self.wire.notes('http/request/bodyDelta'))

    def test_headers(self):
        """Given ones, and ones from a variable, which is the client's own."""
        table = '''
[mcp_servers.mini]
url = "%s"
environment_id = "remote"
http_headers = { X-Mine-Given = "as told" }
env_http_headers = { X-Mine-Known = "HEADER_VALUE" }
''' % self.mini()
        self.wire_to(self.serve(env={'HEADER_VALUE': 'of the server'}))
        m = self.play([tool('c1', 'headers', 'x-mine')], [say()], tables=table, env={'HEADER_VALUE': 'of the client'})
        self.assertIn('x-mine-given=as told x-mine-known=of the client', m.told('c1').lower())

    def test_nobody_there(self):
        """The server of the tools is missing; commands are not."""
        with socket.create_server(('127.0.0.1', 0)) as s:
            port = s.getsockname()[1]
        table = '[mcp_servers.mini]\nurl = "http://127.0.0.1:%d/mcp"\nenvironment_id = "remote"\n' % port
        m = self.play([tool('c1', 'echo', 'one')], [command('c2', 'echo beside')], [say()], tables=table)
        self.assertIn('unsupported call', m.told('c1'))
        self.assertOutcome(m, 'c2', 0, 'beside\n')
        self.assertTrue(self.wire.sent('http/request'))


if __name__ == '__main__':
    tap.main()
