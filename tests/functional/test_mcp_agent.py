# SPDX-License-Identifier: Apache-2.0
"""An agent by script: what a model does with the tools of `sallyport mcp` and nothing else, from an empty directory to a
program that passes its tests; here, and on a server."""

import os
import shutil
import socket
import tempfile

import mcp
import server
import tap
from mcp import FORM

ONCE = {'action': 'accept', 'content': {'decision': 'once'}}

FILES = {
    'Makefile': '''CC = cc
all: greet
greet: main.o sum.o
\t$(CC) -o $@ main.o sum.o
check: all
\t./check.sh
.PHONY: all check
''',
    'sum.h': 'int sum(int a, int b);\n',
    'sum.c': '#include "sum.h"\n\nint sum(int a, int b)\n{\n    return a - b;\n}\n',
    'main.c': '''#include <stdio.h>

#include "sum.h"

int main(void)
{
    char name[32];

    printf("name? ");
    fflush(stdout);
    if (scanf("%31s", name) != 1)
        return 1;
    printf("hello %s, %d\\n", name, sum(2, 3));
    return 0;
}
''',
    'check.sh': '#!/bin/sh\nif echo x | ./greet | grep -q "hello x, 5"; then echo PASS; else echo FAIL: 2 + 3; exit 1; fi\n',
}
FETCH = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:%d/sum.h\").read().decode(), end=\"\")'"
FIX = '''*** Begin Patch
*** Update File: sum.c
@@
 int sum(int a, int b)
 {
-    return a - b;
+    return a + b;
 }
*** End Patch
'''


def add_files(files):
    return '*** Begin Patch\n' + ''.join(
        '*** Add File: %s\n' % name + ''.join('+%s\n' % line for line in text.splitlines())
        for name, text in files.items()) + '*** End Patch\n'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Agent(mcp.Case):
    """With whatever comes of a call looked at as a model would: is it an error, is it over, what does it wait for?"""

    def setUp(self):
        super().setUp()
        self.beside = tempfile.mkdtemp(prefix='sallyport-mcp-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, self.beside, True)

    def patch(self, host, text):
        r = host.call('apply_patch', {'input': text})
        self.assertFalse(r.failed, r)
        return r

    def finish(self, host, r):
        """Polls until it is over."""
        output = r['output']
        while r.get('session_id') is not None:
            r = host.type(r['session_id'], until={'exit': True}, yield_time_ms=20000)
            output += r['output']
        return r['exit_code'], output

    def sh(self, host, cmd, **arguments):
        r = host.run(cmd, login=False, **arguments)
        self.assertFalse(r.failed, r)
        return self.finish(host, r)

    def build_and_fix(self, host, write, fix):
        write()
        code, output = self.sh(host, 'chmod +x check.sh && make 2>&1')
        self.assertEqual(code, 0, output)
        code, output = self.sh(host, 'make check 2>&1')
        self.assertEqual(code, 2, output)
        self.assertIn('FAIL: 2 + 3', output)
        fix()
        code, output = self.sh(host, 'make check 2>&1')
        self.assertEqual(code, 0, output)
        self.assertIn('PASS', output)

    def answer_the_prompt(self, host):
        r = host.run('./greet', login=False, tty=True, until=[{'pattern': r'name\? $'}, {'exit': True}], yield_time_ms=20000)
        self.assertEqual((r['woken_by'], r['output']), ({'pattern': r'name\? $'}, 'name? '), r)
        self.assertIn(r['state'], ('reading_terminal', 'unknown'))
        r = host.type(r['session_id'], 'world\n', until={'exit': True}, yield_time_ms=20000)
        code, output = self.finish(host, r)
        self.assertEqual((code, output), (0, 'world\r\nhello world, 5\r\n'))

    def wait_for_the_port(self, host):
        for _ in range(5):  # somebody else may take a free port
            port = free_port()
            r = host.run('exec python3 -u -m http.server %d --bind 127.0.0.1' % port, login=False,
                         until=[{'port': port}, {'exit': True}], yield_time_ms=30000)
            if r.get('session_id') is not None:
                break
        self.assertEqual(r['woken_by'], {'port': port}, r)
        code, output = self.sh(host, FETCH % port)
        self.assertEqual((code, output), (0, FILES['sum.h']))
        ended = host.call('signal_session', {'session_id': r['session_id']})
        self.assertEqual((ended.failed, ended['state']), (False, 'exited'), ended)

    def be_refused(self, host):
        made = os.path.join(self.beside, 'made')
        r = host.run('touch ' + made, login=False)
        self.assertEqual((r.failed, r['exit_code']), (False, 1), r)
        self.assertIn('Sandbox denied: ', r.text)
        (denial,) = r['denials']
        self.assertIn(denial['access'], ('write', 'access'))  # elsewhere it is not known which
        self.assertEqual(denial['target'], made)
        self.assertIn(denial['rule'], r.text)
        self.assertFalse(os.path.exists(made))
        last = max(host.call('list_sessions')['sessions'], key=lambda s: s['started_at_ms'])
        r = host.call('explain_denial', {'session_id': last['session_id']})
        self.assertEqual((r.failed, r['denials']), (False, [denial]), r)
        self.assertIn(made, r.text)
        return made

    def test_here(self):
        for version in (None, '2025-11-25', '2025-06-18'):
            with self.subTest(version=version):
                shutil.rmtree(self.work)
                os.mkdir(self.work)
                host = self.mcp(env=mcp.PATCHES)
                if version is not None:
                    host.open(version, {'elicitation': {}})
                self.work_through(host)

    def test_over_http(self):
        host = self.http(env=mcp.PATCHES)
        self.work_through(host)

    def work_through(self, host):
        self.build_and_fix(host, lambda: self.patch(host, add_files(FILES)), lambda: self.patch(host, FIX))
        self.answer_the_prompt(host)
        self.wait_for_the_port(host)
        self.assertTrue(os.path.exists(os.path.join(self.work, 'greet')))
        made = self.be_refused(host)
        self.be_asked(host, {'cmd': 'touch ' + made, 'login': False, 'sandbox_permissions': 'require_escalated',
                             'justification': 'May I leave a mark beside the workspace?'})
        self.assertTrue(os.path.exists(made))
        os.unlink(made)
        self.assertEqual([s['state'] for s in host.call('list_sessions')['sessions'] if s['state'] != 'exited'], [])

    def be_asked(self, host, arguments):
        """Either era's way."""
        if host.version is None:
            r = host.call('exec_command', arguments, capabilities=FORM)
            self.assertEqual(r.kind, 'input_required', r)
            (key, request), = r.result['inputRequests'].items()
            message = request['params']['message']
            r = host.call('exec_command', arguments, capabilities=FORM, state=r.result['requestState'],
                          responses={key: ONCE})
        else:
            id = host.call_later('exec_command', arguments)
            question = host.question()
            message = question['params']['message']
            host.answer(question, ONCE)
            r = host.result(id)
        self.assertIn(arguments['justification'], message)
        self.assertIn(arguments['cmd'], message)
        self.assertEqual((r.failed, r.get('exit_code')), (False, 0), r)


class Elsewhere(Agent, server.Case):
    """The same by way of `sallyport serve`."""

    def setUp(self):
        server.Case.setUp(self)
        Agent.setUp(self)
        self.remote = self.server()

    def begin(self):
        return self.mcp('--on', self.remote.url, '--cwd', self.remote.work)

    def test_there(self):
        host = self.begin()

        def write():
            self.patch(host, add_files(FILES))

        def fix():
            self.assertEqual(self.sh(host, "sed -i 's/a - b/a + b/' sum.c")[0], 0)
        self.build_and_fix(host, write, fix)
        self.answer_the_prompt(host)
        self.wait_for_the_port(host)
        made = self.be_refused(host)
        self.be_asked(host, {'cmd': 'touch ' + made, 'login': False, 'sandbox_permissions': 'require_escalated',
                             'justification': 'May I leave a mark beside the workspace?'})
        self.assertTrue(os.path.exists(made))

    test_here = test_over_http = None


if __name__ == '__main__':
    tap.main()
