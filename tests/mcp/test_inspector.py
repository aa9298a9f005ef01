# SPDX-License-Identifier: Apache-2.0
"""The Inspector's command line: it lists the tools, calls them, judges their schemas and puts them under load."""

import json
import os
import subprocess

import sdk
import server
import wire

import tap

WAYS = (('stdio', 'legacy'), ('stdio', 'auto'), ('http', 'legacy'), ('http', 'modern'))
TOOL_ERROR = 5  # its exit status
LIMIT = 60 * wire.SCALE


class Inspector(sdk.Case):
    def inspect(self, over, era, *words, status=0):
        """What a run of it prints."""
        program = os.path.join(sdk.SDK, 'node_modules', '.bin', 'mcp-inspector')
        if over == 'stdio':
            target = [server.PROGRAM, 'mcp', '--cwd', self.work]
        else:
            if not hasattr(self, 'url'):
                self.url = self.http(tokens=(sdk.TOKEN,)).url
            target = ['--server-url', self.url, '--transport', 'http', '--header', 'Authorization: Bearer ' + sdk.TOKEN,
                      '--stored-auth-only']
        line = ['node', program, '--cli', *target, '--connect-timeout', '40000', '--protocol-era', era, *words]
        r = subprocess.run(line, env=self.environ(), cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=LIMIT)
        self.assertEqual(r.returncode, status, r.stdout + r.stderr)
        return json.loads(r.stdout)

    def call(self, over, era, tool, status=0, **arguments):
        return sdk.Result(self.inspect(over, era, '--method', 'tools/call', '--tool-name', tool, '--tool-args-json',
                                       json.dumps(arguments), status=status))

    def check(self, over, era):
        tools = self.inspect(over, era, '--method', 'tools/list', '--strict')['tools']
        self.assertEqual([t['name'] for t in tools], sdk.TOOLS)
        r = self.call(over, era, 'exec_command', cmd='echo hello; exit 3', login=False)
        self.assertEqual((r['exit_code'], r['output']), (3, 'hello\n'))

    def test_refusal(self):
        """A tool's own error is told as one."""
        r = self.call('stdio', 'auto', 'write_stdin', status=TOOL_ERROR, session_id=4711)
        self.assertTrue(r.failed)

    def test_a_session_over_http(self):
        """Its runs are clients of one caller, one after the other."""
        r = self.call('http', 'legacy', 'exec_command', argv=['cat'], tty=True, yield_time_ms=300)
        session = r['session_id']
        r = self.call('http', 'modern', 'write_stdin', session_id=session, chars='typed\n', yield_time_ms=20000,
                      until={'pattern': 'typed\\s+typed'})
        self.assertEqual(r['output'], 'typed\r\ntyped\r\n')
        self.assertEqual(self.call('http', 'legacy', 'signal_session', session_id=session)['state'], 'exited')

    def test_load(self):
        for over, era in (('stdio', 'legacy'), ('http', 'modern')):
            told = self.inspect(over, era, '--method', 'tools/call', '--tool-name', 'exec_command', '--tool-args-json',
                                '{"argv": ["true"]}', '--load', '--load-requests', '60', '--load-concurrency', '12')
            self.assertEqual((told['ok'], told['errors'], told['toolErrors']), (60, 0, 0), told)


def add(over, era):
    def test(self):
        self.check(over, era)
    setattr(Inspector, 'test_tools_%s_%s' % (over, era), test)


for way in WAYS:
    add(*way)


if __name__ == '__main__':
    tap.main()
