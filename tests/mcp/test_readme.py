# SPDX-License-Identifier: Apache-2.0
"""README.md, "Tools for any agent": every snippet is read as its host would read it, and the server that it starts is there."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'functional'))

import mcp
import server
import wire

import tap

TOOLS = ['exec_command', 'write_stdin', 'read_output', 'list_sessions', 'signal_session', 'resize_session',
         'explain_denial', 'apply_patch']
INSTALLED = '/usr/local/bin/sallyport'


def section():
    with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
        return re.search(r'^## Tools for any agent\n(.*?)^## ', f.read(), re.M | re.S).group(1)


def blocks():
    """The indented parts, without their indent."""
    found = re.findall(r'(?:^    .*\n)+', section(), re.M)
    return [re.sub(r'^    ', '', block, flags=re.M) for block in found]


def block_with(word):
    (found,) = {b for b in blocks() if word in b}
    return found


def said(pattern):
    """What the section says in a place where it says exactly one thing."""
    (text,) = re.findall(pattern, section())
    return ' '.join(text.split())


class Readme(mcp.Case):
    def assertServes(self, words):
        """The words are a command line as they would be typed, and what it starts lists its tools."""
        self.assertEqual(words[:2], [INSTALLED, 'mcp'])
        host = self.mcp(*[w.replace('${workspaceFolder}', self.work) for w in words[2:]])
        host.open()
        listed = host.ask('tools/list')
        self.assertEqual([t['name'] for t in listed['result']['tools']], TOOLS)
        self.assertEqual(host.call('exec_command', {'argv': ['pwd']})['output'], self.work + '\n')

    def test_every_snippet_is_known_here(self):
        firsts = [re.sub(r'[({"\s].*', '', b.replace('{"', '', 1), flags=re.S) for b in blocks()]
        self.assertEqual(firsts, ['$', '[mcp_servers.sallyport]', '$', 'mcpServers', 'mcpServers', 'servers'])

    def test_selftest(self):
        line = block_with('--selftest')
        words = shlex.split(line.removeprefix('$ '))
        self.assertEqual(words, ['build/sallyport', 'mcp', '--selftest'])
        r = subprocess.run([server.PROGRAM, *words[1:]], cwd=self.work, env=self.environ(), stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=60 * wire.SCALE)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        wire.wait_until(lambda: not server.marked(self.mark.encode()), 'nothing to be left behind')

    def test_codex(self):
        table = tomllib.loads(block_with('[mcp_servers'))
        self.assertEqual(list(table), ['mcp_servers'])
        self.assertEqual(set(table['mcp_servers']['sallyport']), {'command', 'args'})
        entry = table['mcp_servers']['sallyport']
        self.assertServes([entry['command'], *entry['args']])

    def test_claude_code(self):
        words = shlex.split(block_with('claude').removeprefix('$ '))
        self.assertEqual(words[:5], ['claude', 'mcp', 'add', 'sallyport', '--'])
        self.assertServes(words[5:])

    def test_mcp_json_and_gemini(self):
        entry = json.loads(block_with('mcpServers'))['mcpServers']['sallyport']
        self.assertEqual(set(entry), {'command', 'args'})
        self.assertServes([entry['command'], *entry['args']])

    def test_vs_code(self):
        entry = json.loads(block_with('workspaceFolder'))['servers']['sallyport']
        self.assertEqual((set(entry), entry['type']), ({'type', 'command', 'args'}, 'stdio'))
        self.assertIn('${workspaceFolder}', entry['args'])
        self.assertServes([entry['command'], *entry['args']])

    def test_any_that_starts_programs(self):
        self.assertServes(shlex.split(said(r'the command `(.*?)`')))

    def test_any_that_connects(self):
        words = shlex.split(said(r'`(sallyport mcp --listen[^`]*)`'))
        url = words[3]
        self.assertEqual((words[:3], words[4:]), (['sallyport', 'mcp', '--listen'], ['--token-file', 'FILE']))
        self.assertEqual(said(r'`(Authorization: Bearer [^`]*)`'), 'Authorization: Bearer TOKEN')
        path = os.path.join(self.base, 'file')
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write('TOKEN-of-sixteen-characters\n')
        _, (real,) = self.listening(re.sub(r':\d+/', ':0/', url), args=('--token-file', path))
        host = mcp.Http(real, 'TOKEN-of-sixteen-characters')
        self.addCleanup(host.close)
        host.open()
        self.assertEqual([t['name'] for t in host.ask('tools/list')['result']['tools']], TOOLS)

    def test_elsewhere(self):
        """Commands on a server of the other protocol."""
        words = shlex.split(said(r'`(sallyport mcp --on[^`]*)`'))
        self.assertEqual(words[:3] + words[4:], ['sallyport', 'mcp', '--on', '--cwd', '/there'])
        self.assertRegex(words[3], r'^ws://HOST:\d+$')
        there = server.Server(env={'ONLY_THERE': 'yes'})
        self.addCleanup(there.stop)
        host = self.mcp('--on', there.url, '--cwd', self.work)
        r = host.call('exec_command', {'argv': ['sh', '-c', 'echo $ONLY_THERE; pwd']})
        self.assertEqual(r.get('output'), 'yes\n%s\n' % self.work, r)

    def test_pages_that_it_names(self):
        for path in re.findall(r'\]\(([^)#]+)\)', section()):
            self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)


if __name__ == '__main__':
    tap.main()
