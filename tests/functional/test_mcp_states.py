# SPDX-License-Identifier: Apache-2.0
"""`state` and `until`: what a process is doing, and what ends a wait for it."""

import json
import shutil
import time

import mcp
import server
import tap
import wire
from wire import wait_until

PYTHON = server.PYTHON
LONG = {'yield_time_ms': 30000}
BRIEF = {'yield_time_ms': 250}
LISTEN = '''
import socket, sys, time
family, port = getattr(socket, sys.argv[1]), int(sys.argv[2])
time.sleep(float(sys.argv[3]))
s = socket.socket(family)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('::1' if family == socket.AF_INET6 else '127.0.0.1', port))
s.listen()
time.sleep(600)
'''


def python(program, *args):
    return (PYTHON, '-uc', program, *map(str, args))


def lines_of(text):
    """The header of an answer, without its output."""
    return text.split('\nOutput:\n')[0].split('\n')


class States(mcp.Case):
    """Each is asked for until it is the expected one: a loaded machine takes its time to get there."""

    def setUp(self):
        super().setUp()
        self.host = self.mcp()

    def expect(self, session, state):
        seen = []

        def is_there():
            r = self.host.glance(session)
            seen.append(r)
            return r.get('state') == state and 'State: ' + state in lines_of(r.text)
        wait_until(is_there, 'state %s; the last was %s' % (state, seen[-1:]), step=0.1)
        self.assertEqual(self.host.sessions()[session]['state'], state)
        r = self.host.read(session)
        self.assertEqual(r['state'], state)
        self.assertIn('\nState: %s\n' % state, r.text)
        return seen[-1]

    def check(self, state, *argv, **arguments):
        r = self.host.exec(*argv, **{**BRIEF, **arguments})
        self.assertFalse(r.failed, r)
        self.assertIn('session_id', r.structured, r)
        session = r['session_id']
        r = self.expect(session, state)
        self.assertEqual(r['session_id'], session)
        self.assertIn('Process running with session ID %d' % session, lines_of(r.text))
        self.assertNotIn('holders', r.structured)
        self.assertNotIn('end_reason', r.structured)
        return session

    def test_running(self):
        self.check('running', 'sh', '-c', 'while :; do :; done')

    def test_running_below_others_that_wait(self):
        self.check('running', 'sh', '-c', 'sh -c "while :; do :; done; :"; :')
        self.check('running', 'sh', '-c', 'sh -c "while :; do :; done" | cat')

    def test_sleeping(self):
        self.check('sleeping', 'sleep', '600')

    def test_sleeping_below_a_shell_that_waits(self):
        self.check('sleeping', 'sh', '-c', 'sleep 600; :')
        self.check('sleeping', 'sh', '-c', 'sleep 600; :', tty=True)

    def test_sleeping_on_a_socket_that_is_nobodys_terminal(self):
        self.check('sleeping', *python('import socket; a, b = socket.socketpair(); a.recv(1)'), tty=True)

    def test_a_thread_on_the_cpu(self):
        self.check('running', *python('import threading, time\n'
                                      'def f():\n    while True: pass\n'
                                      'threading.Thread(target=f).start(); input()'), tty=True)

    def test_reading_terminal(self):
        for argv in (['cat'],
                     ['sh', '-c', 'printf "name? "; read name'],
                     ['sh', '-c', 'cat | cat'],
                     ['sh', '-c', 'head -c 3; :'],
                     python('input("name? ")'),
                     python('import sys; sys.stdin.readline()'),
                     python('open("/dev/tty").readline()'),
                     python('import getpass; getpass.getpass()'),
                     python('import select; select.select([0], [], [])'),
                     python('import select; select.select([0], [], [], 600)'),
                     python('import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()'),
                     python('import select; p = select.epoll(); p.register(0, select.EPOLLIN); p.poll()'),
                     python('import threading, time\n'
                            'threading.Thread(target=time.sleep, args=(600,)).start(); input()')):
            with self.subTest(argv[-1]):
                session = self.check('reading_terminal', *argv, tty=True)
                self.assertEqual(self.host.kill(session, signal='KILL')['state'], 'exited')

    def test_not_reading_when_only_another_waits_for_more_than_input(self):
        self.check('sleeping', *python('import select; select.select([], [], [], 600)'), tty=True)
        self.check('sleeping', *python('import time; time.sleep(600)'), tty=True)

    def test_prompts_of_interpreters(self):
        """readline, libuv and the like: `until` sees the prompt, `state` that it waits for words."""
        known = {'bash': (['--norc', '-i'], r'[$#] $', 'echo $((6 * 7))\n'),
                 'node': ([], '> $', '6 * 7\n'),
                 PYTHON: (['-i'], '>>> $', '6 * 7\n')}
        for program, (args, prompt, typed) in known.items():
            if shutil.which(program) is None:
                continue
            with self.subTest(program):
                r = self.host.exec(program, *args, tty=True, env={'PS1': '$ ', 'NODE_REPL_HISTORY': ''}, until={'pattern': prompt}, **LONG)
                self.assertEqual(r['woken_by'], {'pattern': prompt}, r)
                self.expect(r['session_id'], 'reading_terminal')
                r = self.host.type(r['session_id'], typed, until={'pattern': r'(^|\W)42\s(.|\s)*' + prompt}, **LONG)
                self.assertIn('pattern', r['woken_by'], r)
                self.expect(r['session_id'], 'reading_terminal')

    def test_waiting_for_child(self):
        """One that is in the background: it does not say what the foreground does."""
        self.check('waiting_for_child', *python(
            'import os, subprocess; subprocess.Popen(["sleep", "600"], preexec_fn=os.setpgrp).wait()'), tty=True)

    def test_stopped_below_a_shell_that_waits(self):
        self.check('stopped', 'sh', '-c', 'sh -c "kill -STOP \\$\\$; :"; :')

    def test_stopped(self):
        for tty in (False, True):
            with self.subTest(tty=tty):
                session = self.check('stopped', 'sh', '-c', 'kill -STOP $$; exec sleep 600', tty=tty)
                self.host.kill(session, signal='CONT')
                self.expect(session, 'sleeping')
                self.assertEqual(self.host.kill(session, signal='STOP')['state'], 'stopped')
                self.expect(session, 'stopped')

    def test_a_stopped_one_ends_when_it_is_told_to(self):
        session = self.check('stopped', 'sh', '-c', 'kill -STOP $$; exec sleep 600')
        r = self.host.kill(session)
        self.assertEqual((r['state'], r['signal']), ('exited', 'SIGTERM'), r)  # it goes on, and hears it

    def test_output_held(self):
        r = self.host.exec('sh', '-c', 'sleep 600 & echo $!')
        self.assertEqual((r['state'], r['exit_code'], r['end_reason']), ('output_held', 0, 'exit'), r)
        self.assertEqual(r['holders'], [{'pid': int(r['output']), 'name': 'sleep'}])
        self.assertIn('State: output_held', lines_of(r.text))
        self.assertIn('Process exited with code 0', lines_of(r.text))
        self.assertNotIn('session_id', r.structured)

    def test_output_held_by_several_of_one_stream(self):
        r = self.host.exec('sh', '-c', 'sleep 600 2>/dev/null & sleep 601 >/dev/null & sleep 602 >/dev/null 2>&1 & exit 3')
        self.assertEqual((r['state'], r['exit_code']), ('output_held', 3), r)
        self.assertEqual([h['name'] for h in r['holders']], ['sleep', 'sleep'])

    def test_nobody_holds_what_is_elsewhere(self):
        r = self.host.exec('sh', '-c', 'sleep 600 >/dev/null 2>&1 &')
        self.assertEqual(r['state'], 'exited', r)
        self.assertNotIn('holders', r.structured)
        self.assertNotIn('\nState: ', r.text)

    def test_exited(self):
        for program, end in (('exit 0', {'exit_code': 0, 'end_reason': 'exit'}),
                             ('exit 9', {'exit_code': 9, 'end_reason': 'exit'}),
                             ('kill -9 $$', {'exit_code': 137, 'signal': 'SIGKILL', 'end_reason': 'signal'}),
                             ('kill -TERM $$', {'exit_code': 143, 'signal': 'SIGTERM', 'end_reason': 'signal'})):
            for tty in (False, True):
                with self.subTest(program, tty=tty):
                    r = self.host.exec('sh', '-c', program, tty=tty)
                    self.assertEqual(r['state'], 'exited', r)
                    self.assertEqual({k: v for k, v in r.structured.items() if k in ('exit_code', 'signal', 'end_reason')}, end)
                    self.assertIn('Process exited with code %d' % end['exit_code'], lines_of(r.text))
                    self.assertNotIn('State: ', '\n'.join(lines_of(r.text)))


class Until(mcp.Case):
    def setUp(self):
        super().setUp()
        self.host = self.mcp()

    def woken(self, r, by, text):
        self.assertFalse(r.failed, r)
        self.assertEqual(r.get('woken_by'), by, r)
        header = lines_of(r.text)
        self.assertIn('Woken by: ' + text, header)
        return r

    def test_none_is_not_told(self):
        r = self.host.exec('true')
        self.assertNotIn('woken_by', r.structured)
        self.assertNotIn('Woken by', r.text)

    def test_exit(self):
        self.woken(self.host.exec('sh', '-c', 'sleep 0.3; exit 5', until={'exit': True}, **LONG), {'exit': True}, 'exit')

    def test_exit_is_implied(self):
        r = self.host.exec('sh', '-c', 'echo no; exit 5', until={'pattern': 'yes'}, **LONG)
        self.assertEqual(self.woken(r, {'exit': True}, 'exit')['exit_code'], 5)

    def test_deadline(self):
        r = self.host.exec('sleep', '600', until={'exit': True}, yield_time_ms=300)
        self.woken(r, {'deadline': True}, 'deadline')
        r = self.host.type(r['session_id'], until={'pattern': 'x'}, yield_time_ms=5000)
        self.woken(r, {'deadline': True}, 'deadline')

    def test_pattern(self):
        r = self.host.exec('sh', '-c', 'echo one; sleep 0.3; echo port 80; exec sleep 600', until={'pattern': '^port [0-9]+$'}, **LONG)
        self.woken(r, {'pattern': '^port [0-9]+$'}, 'pattern "^port [0-9]+$"')
        self.assertEqual(r['output'], 'one\nport 80\n')

    def test_pattern_as_perl_has_it(self):
        pattern = r'(?i)\bready\b.+?\d+'
        r = self.host.exec('sh', '-c', 'echo already 1; echo Ready on port 80; exec sleep 600', until={'pattern': pattern}, **LONG)
        self.assertEqual(self.woken(r, {'pattern': pattern}, 'pattern ' + json.dumps(pattern))['output'], 'already 1\nReady on port 80\n')

    def test_pattern_across_chunks(self):
        script = 'for c in s e r v e r; do printf $c; sleep 0.1; done; echo; exec sleep 600'
        r = self.host.exec('sh', '-c', script, until={'pattern': 'server'}, **LONG)
        self.assertEqual(self.woken(r, {'pattern': 'server'}, 'pattern "server"')['output'].strip(), 'server')

    def test_pattern_at_the_border_of_kept_chunks(self):
        """A character is torn, and a lot is before it."""
        program = ('import os, time\nw = os.write\nw(1, b"x" * 3000000 + b"\\n")\nw(1, b"\\xc3")\ntime.sleep(.3)\n'
                   'w(1, b"\\xbc|\\n")\ntime.sleep(600)')
        r = self.host.exec(*python(program), until={'pattern': 'ü\\|'}, max_output_tokens=10, **LONG)
        self.woken(r, {'pattern': 'ü\\|'}, 'pattern "ü\\\\|"')
        self.assertEqual(r['next_byte'], 3000005)

    def test_pattern_of_a_prompt(self):
        r = self.host.exec('sh', '-c', 'printf "user@host:~$ "; read x', tty=True, until={'pattern': r'\$ $'}, **LONG)
        self.woken(r, {'pattern': r'\$ $'}, 'pattern "\\\\$ $"')
        self.assertEqual(r['output'], 'user@host:~$ ')

    def test_pattern_of_a_prompt_is_none_that_goes_on(self):
        """Only the end of what there is: `$ ` within a line is no prompt."""
        script = 'printf "cost: 5$ "; printf "each\\n"; sleep 0.5; printf "$ "; read x'
        r = self.host.exec('sh', '-c', script, tty=True, until={'pattern': r'\$ $'}, **LONG)
        self.woken(r, {'pattern': r'\$ $'}, 'pattern "\\\\$ $"')
        self.assertEqual(r['output'], 'cost: 5$ each\r\n$ ')

    def test_pattern_of_what_no_call_has_answered(self):
        r = self.host.exec('sh', '-c', 'echo ready; exec cat', tty=True, until={'pattern': 'ready'}, **LONG)
        session = self.woken(r, {'pattern': 'ready'}, 'pattern "ready"')['session_id']
        r = self.host.type(session, until={'pattern': 'ready'}, yield_time_ms=5000)
        self.woken(r, {'deadline': True}, 'deadline')
        self.host.type(session, 'rea')
        r = self.host.type(session, 'dy\n', until={'pattern': '^ready'}, yield_time_ms=30000)
        self.woken(r, {'pattern': '^ready'}, 'pattern "^ready"')

    def test_pattern_that_came_between_two_calls(self):
        script = 'sleep 1; echo ready; exec sleep 600'
        session = self.host.exec('sh', '-c', script, **BRIEF)['session_id']
        wait_until(lambda: self.host.read(session)['end_byte'] == 6, 'the word')
        r = self.host.type(session, until={'pattern': 'ready'}, yield_time_ms=300000)
        self.assertEqual(self.woken(r, {'pattern': 'ready'}, 'pattern "ready"')['output'], 'ready\n')

    def test_pattern_that_ends_with_the_process(self):
        r = self.host.exec('sh', '-c', 'printf done', until={'pattern': 'done$'}, **LONG)
        self.assertIn(r['woken_by'], ({'pattern': 'done$'}, {'exit': True}))
        self.assertEqual(r['exit_code'], 0)

    def test_quiet(self):
        began = time.monotonic()
        script = 'for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done; exec sleep 600'
        r = self.host.exec('sh', '-c', script, until={'quiet_ms': 2500}, **LONG)
        self.woken(r, {'quiet_ms': 2500}, 'quiet_ms 2500')
        self.assertEqual(r['output'], '1\n2\n3\n4\n5\n6\n')
        self.assertGreaterEqual(time.monotonic() - began, 3.5)
        r = self.host.type(r['session_id'], until={'quiet_ms': 300})  # sooner than a poll's least time
        self.woken(r, {'quiet_ms': 300}, 'quiet_ms 300')

    def test_quiet_never_comes(self):
        script = 'while :; do echo; sleep 0.05; done'
        r = self.host.exec('sh', '-c', script, until={'quiet_ms': 3000}, yield_time_ms=4000)
        self.woken(r, {'deadline': True}, 'deadline')

    def test_port(self):
        for n, family in enumerate(('AF_INET', 'AF_INET6')):
            with self.subTest(family):
                port = 18080 + n
                r = self.host.exec(*python(LISTEN, family, port, 0.5), until={'port': port}, **LONG)
                self.woken(r, {'port': port}, 'port %d' % port)
                self.assertIn(r['state'], ('sleeping', 'running'))
                r = self.host.type(r['session_id'], until=[{'pattern': 'x'}, {'port': port}], **LONG)
                self.woken(r, {'port': port}, 'port %d' % port)

    def test_port_of_a_grandchild(self):
        r = self.host.call('exec_command', {'argv': ['sh', '-c', '"$@" & wait', 'sh', *python(LISTEN, 'AF_INET', 18090, 0.5)],
                                            'until': {'port': 18090}, **LONG})
        self.woken(r, {'port': 18090}, 'port 18090')

    def test_port_of_somebody_else(self):
        self.host.exec(*python(LISTEN, 'AF_INET', 18091, 0), until={'port': 18091}, **LONG)
        r = self.host.exec('sleep', '600', until={'port': 18091}, yield_time_ms=1000)
        self.woken(r, {'deadline': True}, 'deadline')

    def test_two_at_once(self):
        both = [{'pattern': 'never'}, {'quiet_ms': 300}]
        r = self.host.exec('sh', '-c', 'echo a; exec sleep 600', until=both, **LONG)
        self.woken(r, {'quiet_ms': 300}, 'quiet_ms 300')
        r = self.host.exec('sh', '-c', 'echo a; exec sleep 600', until=[{'quiet_ms': 20000}, {'pattern': 'a'}], **LONG)
        self.woken(r, {'pattern': 'a'}, 'pattern "a"')
        r = self.host.exec('sh', '-c', 'echo b; exec sleep 600', until=[{'pattern': 'a'}, {'pattern': 'b'}], **LONG)
        self.woken(r, {'pattern': 'b'}, 'pattern "b"')
        r = self.host.exec('true', until=[{'port': 18092}, {'exit': True}], **LONG)
        self.woken(r, {'exit': True}, 'exit')
        r = self.host.exec(*python(LISTEN, 'AF_INET', 18093, 0), until=[{'port': 18094}, {'port': 18093}], **LONG)
        self.woken(r, {'port': 18093}, 'port 18093')
        r = self.host.exec('sleep', '600', until=[{'port': 18095}, {'pattern': 'x'}], yield_time_ms=500)
        self.woken(r, {'deadline': True}, 'deadline')

    def test_invalid(self):
        for until, words in (({}, 'has one or more of'),
                             ({'what': 1}, 'has one or more of'),
                             ({'exit': False}, '`exit` is true'),
                             ({'exit': 1}, '`exit` is true'),
                             ({'pattern': 5}, '`pattern` is a regular expression'),
                             ({'pattern': '('}, '`(` at byte'),
                             ({'pattern': 'a{2,1}'}, 'pattern'),
                             ({'pattern': '(a{1,200}){1,200}'}, 'pattern'),
                             ({'quiet_ms': 0}, '`quiet_ms` is a number from 1'),
                             ({'quiet_ms': -1}, '`quiet_ms` is a number from 1'),
                             ({'quiet_ms': 1.5}, '`quiet_ms` is a number from 1'),
                             ({'quiet_ms': '5'}, '`quiet_ms` is a number from 1'),
                             ({'quiet_ms': 1 << 40}, '`quiet_ms` is a number from 1'),
                             ({'port': 0}, '`port` is a number from 1 to 65535'),
                             ({'port': 65536}, '`port` is a number from 1 to 65535'),
                             ('exit', '`until` is an object'),
                             ([['x']], '`until` is an object'),
                             ([{'exit': True}, 5], '`until` is an object'),
                             ([{'port': n + 1} for n in range(9)], 'at most 8 conditions')):
            with self.subTest(until):
                r = self.host.exec('touch', 'started', until=until)
                self.assertTrue(r.failed, r)
                self.assertIn('failed to parse function arguments: ', r.text)
                self.assertIn(words, r.text)
        self.assertEqual(self.host.sessions(), {})

    def test_many(self):
        r = self.host.exec('sh', '-c', 'echo 7; exec sleep 600', until=[{'pattern': str(n)} for n in range(8)], **LONG)
        self.woken(r, {'pattern': '7'}, 'pattern "7"')

    def test_a_pattern_does_not_hold_up_others(self):
        """As slow as a pattern can be, over output that does not end."""
        slow = '((a|b|c|[d-z])*x?){20}$^'
        later = self.host.call_later('exec_command', {'argv': ['sh', '-c', 'yes abcdefgh | head -c 300000; exec sleep 600'],
                                                      'until': {'pattern': slow}, 'yield_time_ms': 5000, 'max_output_tokens': 10})
        began = time.monotonic()
        for _ in range(5):
            self.assertEqual(self.host.exec('echo', 'hello')['output'], 'hello\n')
        spent = time.monotonic() - began
        self.host.result(later)
        self.assertLess(spent, wire.DEADLINE)


if __name__ == '__main__':
    tap.main()
