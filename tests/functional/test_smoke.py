# SPDX-License-Identifier: Apache-2.0
"""Each door once: the command line, the wire over its three carriers, MCP, the C library. For `make check`."""

import os
import subprocess
import unittest

import mcp
import tap
from sandbox_policy import read_only
from server import Case

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
SALLYPORT = os.environ.get('SALLYPORT', os.path.join(ROOT, 'build', 'sallyport'))
BUILD = os.environ.get('BUILD_ROOT', os.path.join(ROOT, 'build'))


def run(*argv, **how):
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, **how)
    return p.returncode, p.stdout, p.stderr


class CommandLine(unittest.TestCase):
    def test_version_and_help(self):
        self.assertEqual(run(SALLYPORT, '--version')[0], 0)
        self.assertIn('Usage: sallyport', run(SALLYPORT, '--help')[1])

    def test_exec(self):
        self.assertEqual(run(SALLYPORT, 'exec', '--', 'sh', '-c', 'echo out; echo err >&2; exit 3'), (3, 'out\n', 'err\n'))

    def test_exec_under_a_sandbox(self):
        code, out, _ = run(SALLYPORT, 'exec', '--sandbox', ':read-only', '--', 'sh', '-c', 'echo seen; touch /etc/made')
        self.assertEqual(out, 'seen\n')
        self.assertNotEqual(code, 0)
        self.assertFalse(os.path.exists('/etc/made'))

    def test_rules_check(self):
        code, out, err = run(SALLYPORT, 'rules', 'check', '--rules', os.path.join(ROOT, 'examples', 'default.rules'), '--', 'ls')
        self.assertEqual(code, 0, err)
        self.assertTrue(out)


class Wire(Case):
    def use(self, c):
        self.assertEqual(c.sh('echo $((6 * 7))').text, '42\n')
        p = c.sh('echo confined; touch /etc/made', sandbox=read_only(self.srv.work))
        self.assertIn('confined', p.text)
        self.assertNotEqual(p.exit_code, 0)

    def test_websocket(self):
        self.use(self.session())

    def test_unix_socket(self):
        self.use(self.session(listen='unix://' + os.path.join(self.scratch(), 'socket')))

    def test_stdio(self):
        self.srv = self.server(listen='stdio')
        self.use(self.srv.lines().handshake())


class Mcp(mcp.Case):
    def test_exec_command_and_write_stdin(self):
        host = self.mcp()
        self.assertEqual(host.exec('echo', 'hello')['output'], 'hello\n')
        r = host.exec('cat', yield_time_ms=250, tty=True)
        self.assertIn('typed', host.type(r['session_id'], 'typed\n')['output'])


class Library(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(os.path.join(BUILD, 'examples', 'example-run')), 'the examples are not built')
    @unittest.skipIf('asan' in BUILD, 'programs without the sanitizer cannot load what has it')
    def test_an_example(self):
        env = dict(os.environ, SALLYPORT_PROGRAM=SALLYPORT)
        code, out, err = run(os.path.join(BUILD, 'examples', 'example-run'), 'echo', 'from the library', env=env)
        self.assertEqual(code, 0, err)
        self.assertIn('from the library', out)


if __name__ == '__main__':
    tap.main()
