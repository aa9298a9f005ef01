# SPDX-License-Identifier: Apache-2.0
"""What sallyport adds to the protocol: terminal sizes, closeStdin, list, named signals."""

import os
import signal
import time

import tap
from server import PYTHON, Case, is_alive, name_of, ours_only, stat_of
from wire import file_uri, unb64, wait_until


@ours_only
class Capabilities(Case):
    def test_additions_are_advertised(self):
        flags = self.session().info['capabilities']
        for name in ('processResize', 'processCloseStdin', 'processList', 'processInspect', 'processSignals', 'ptySize', 'processNames', 'observe', 'history', 'sessionEnd'):
            self.assertIs(flags.get(name), True, name)


@ours_only
class SessionEnd(Case):
    def test_a_session_that_is_ended_leaves_nothing(self):
        c = self.session()
        c.start('left', ['/bin/sh', '-c', 'setsid sleep 300 >/dev/null 2>&1 & echo $!'])
        left = int(c.wait_output('left', '\n').strip())
        c.start('live', ['/bin/sh', '-c', 'echo $$; exec sleep 300'])
        live = int(c.wait_output('live', '\n').strip())
        self.assertEqual(c.request('session/end'), {})
        self.assertTrue(wait_until(lambda: not is_alive(left) and not is_alive(live)))


@ours_only
class Size(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def size(self, **how):
        return self.c.run(['stty', 'size'], tty=True, **how).text.strip()

    def test_size_at_start(self):
        self.assertEqual(self.size(rows=50, cols=132), '50 132')
        self.assertEqual(self.size(rows=50), '50 80')
        self.assertEqual(self.size(cols=132), '24 132')
        self.assertEqual(self.size(rows=1, cols=65535), '1 65535')
        self.assertEqual(self.size(rows=None, cols=None), '24 80')

    def test_bad_sizes_are_refused(self):
        for bad in (0, -1, 65536, 1.5, '24', True, [], 2**64):
            for name in ('rows', 'cols'):
                self.assertError(self.c.start_error('p', ['true'], tty=True, **{name: bad}), -32602)
                params = {'processId': 'p', 'rows': 1, 'cols': 1, name: bad}
                self.assertError(self.c.error('process/resize', params), -32602)
        for params in ({'processId': 'p', 'rows': 1}, {'processId': 'p', 'cols': 1}, {'rows': 1, 'cols': 1},
                       {'processId': 'p', 'rows': None, 'cols': 1}):
            self.assertError(self.c.error('process/resize', params), -32602)

    def test_a_pipe_ignores_the_size(self):
        self.assertEqual(self.c.run(['true'], rows=10, cols=10).exit_code, 0)

    def test_resize(self):
        script = 'trap "stty size" WINCH; echo ready; while :; do sleep 0.05; done'
        self.c.start('p', ['/bin/sh', '-c', script], tty=True)
        self.c.wait_output('p', 'ready')
        self.assertEqual(self.c.request('process/resize', {'processId': 'p', 'rows': 33, 'cols': 99}), {})
        self.c.wait_output('p', '33 99')
        self.assertEqual(self.c.request('process/resize', {'processId': 'p', 'rows': 65535, 'cols': 1}), {})
        self.c.wait_output('p', '65535 1')

    def test_resize_of_what_has_no_terminal(self):
        self.assertError(self.c.error('process/resize', {'processId': 'nobody', 'rows': 1, 'cols': 1}), -32600,
                         'unknown process id nobody')
        self.c.start('p', ['sleep', '1000'])
        self.assertError(self.c.error('process/resize', {'processId': 'p', 'rows': 1, 'cols': 1}), -32600,
                         'process p has no terminal')

    def test_resize_after_the_end_disturbs_nothing(self):
        self.c.run(['true'], 'p', tty=True)
        self.c.reply(self.c.post('process/resize', {'processId': 'p', 'rows': 1, 'cols': 1}))
        self.assertEqual(self.c.fence(), {'status': 'ready'})


@ours_only
class CloseStdin(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def close(self, name):
        result = self.c.request('process/closeStdin', {'processId': name})
        self.assertEqual(set(result), {'status'})
        return result['status']

    def test_end_of_file_comes_after_what_is_queued(self):
        self.c.start('p', ['cat'], pipeStdin=True)
        self.assertEqual(self.c.write('p', b'last words\n'), 'accepted')
        self.assertEqual(self.close('p'), 'accepted')
        p = self.c.wait_closed('p')
        self.assertEqual((p.stdout, p.exit_code), (b'last words\n', 0))

    def test_a_full_queue_is_written_before_the_end(self):
        script = ('import sys, os\nwhile not os.path.exists(sys.argv[1]): os.sched_yield()\n'
                  'print(len(sys.stdin.buffer.read()))')
        flag = os.path.join(self.srv.work, 'flag')
        self.c.start('p', [PYTHON, '-S', '-c', script, flag], pipeStdin=True)
        for _ in range(100):
            self.assertEqual(self.c.write('p', b'x' * 65536), 'accepted')
        self.assertEqual(self.close('p'), 'accepted')
        open(flag, 'w').close()
        self.assertEqual(self.c.wait_closed('p').text.strip(), str(100 * 65536))

    def test_writes_that_wait_come_before_the_end(self):
        flag = os.path.join(self.srv.work, 'flag')
        script = ('import sys, os\nwhile not os.path.exists(sys.argv[1]): os.sched_yield()\n'
                  'print(len(sys.stdin.buffer.read()))')
        self.c.start('p', [PYTHON, '-S', '-c', script, flag], pipeStdin=True)
        writes = [self.c.post_write('p', b'x' * 65536) for _ in range(200)]
        end = self.c.post('process/closeStdin', {'processId': 'p'})
        late = self.c.post_write('p', b'late')
        open(flag, 'w').close()
        for write in writes:
            self.assertEqual(self.c.result(write), {'status': 'accepted'})
        self.assertEqual(self.c.result(end), {'status': 'accepted'})
        self.assertEqual(self.c.result(late), {'status': 'stdinClosed'})
        self.assertEqual(self.c.wait_closed('p').text.strip(), str(200 * 65536))

    def test_writes_after_the_end_are_refused(self):
        self.c.start('p', ['/bin/sh', '-c', 'cat; exec sleep 1000'], pipeStdin=True)
        self.c.write('p', b'one\n', 'w')
        self.assertEqual(self.close('p'), 'accepted')
        self.assertEqual(self.c.write('p', b'two\n'), 'stdinClosed')
        self.assertEqual(self.c.write('p', b'one\n', 'w'), 'accepted', 'a repeat of an accepted write')
        self.c.wait_output('p', 'one\n')
        self.c.fence()
        self.assertEqual(self.c.process('p').stdout, b'one\n')

    def test_closing_twice(self):
        self.c.start('p', ['sleep', '1000'], pipeStdin=True)
        self.assertEqual(self.close('p'), 'accepted')
        self.assertIn(self.close('p'), ('accepted', 'stdinClosed'))

    def test_outcomes_that_are_no_errors(self):
        self.assertEqual(self.close('nobody'), 'unknownProcess')
        self.c.start('p', ['sleep', '1000'])
        self.assertEqual(self.close('p'), 'stdinClosed')
        self.assertError(self.c.error('process/closeStdin', {}), -32602)
        self.assertError(self.c.error('process/closeStdin', {'processId': 5}), -32602)

    def test_a_terminal(self):
        self.c.start('p', ['cat'], tty=True)
        self.c.write('p', b'line\n')
        self.assertEqual(self.close('p'), 'accepted')
        self.assertEqual(self.c.write('p', b'more\n'), 'stdinClosed')
        p = self.c.wait_closed('p')
        self.assertIn(b'line\r\nline\r\n', p.pty)
        self.assertEqual(p.exit_code, 0)


@ours_only
class List(Case):
    KEYS = {'processId', 'pid', 'state', 'tty', 'exitCode', 'nextSeq', 'argv', 'cwd', 'startedAtMs'}

    def list(self, c, params=None):
        result = c.request('process/list', params)
        self.assertEqual(set(result), {'processes'})
        return {p['processId']: p for p in result['processes']}

    def test_a_new_session_has_none(self):
        c = self.session()
        self.assertEqual(self.list(c), {})
        self.assertEqual(self.list(c, {}), {})

    def test_every_state_is_told(self):
        c = self.session()
        before = int(time.time() * 1000) - 1000
        c.start('running', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'], tty=True)
        pid = int(c.wait_line('running'))
        c.start('exited', ['/bin/sh', '-c', 'sleep 1000 & exit 3'])
        c.wait_exited('exited')
        c.run(['/bin/sh', '-c', 'exit 4'], 'closed')
        found = self.list(c)
        self.assertEqual(set(found), {'running', 'exited', 'closed'})
        for one in found.values():
            self.assertEqual(set(one), self.KEYS)
            self.assertEqual(one['cwd'], file_uri(self.srv.work))
            self.assertGreaterEqual(one['startedAtMs'], before)
            self.assertLessEqual(one['startedAtMs'], int(time.time() * 1000) + 1000)
        running = found['running']
        self.assertEqual((running['state'], running['pid'], running['tty'], running['exitCode'], running['nextSeq']),
                         ('running', pid, True, None, 2))
        self.assertEqual(running['argv'], ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        self.assertEqual((found['exited']['state'], found['exited']['exitCode'], found['exited']['nextSeq'],
                          found['exited']['tty']), ('exited', 3, 2, False))
        self.assertEqual((found['closed']['state'], found['closed']['exitCode'], found['closed']['nextSeq']), ('closed', 4, 3))

    def test_sessions_do_not_see_one_another(self):
        one = self.session()
        two = self.srv.session()
        one.start('p', ['sleep', '1000'])
        self.assertEqual(self.list(two), {})
        self.assertEqual(set(self.list(one)), {'p'})

    def test_a_resumed_session_finds_its_processes(self):
        c = self.session()
        c.start('p', ['sleep', '1000'])
        c.close()
        again = self.srv.connect()
        while 'error' in again.reply(again.post('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id})):
            pass
        again.send({'method': 'initialized'})
        self.assertEqual(set(self.list(again)), {'p'})

    def test_forgotten_processes_are_not_listed(self):
        c = self.session('--closed-ttl', '1')
        c.run(['true'], 'p')
        self.assertEqual(set(self.list(c)), {'p'})
        wait_until(lambda: not self.list(c), 'empty list', step=0.05)


@ours_only
class Names(Case):
    """`name` in process/start."""

    def named(self, c, process_id, name, argv=('sleep', '1000')):
        return c.reply(c.post('process/start', {'processId': process_id, 'name': name, 'argv': list(argv),
                                                'cwd': file_uri(self.srv.work), 'env': {'PATH': '/usr/bin:/bin'},
                                                'tty': False}))

    def test_a_name_is_told(self):
        c = self.session()
        self.assertIn('result', self.named(c, 'p', 'web.1_a-B'))
        self.assertEqual([p['name'] for p in c.request('process/list')['processes']], ['web.1_a-B'])
        self.assertEqual(c.request('process/inspect', {'processId': 'p'})['name'], 'web.1_a-B')
        self.assertIn('result', self.named(c, 'q', None))

    def test_bad_names_are_refused(self):
        c = self.session()
        for name in ('', 'a b', 'a/b', 'x' * 65, '\x1b[2J', 'ü', 'a\0'):
            self.assertError(self.named(c, 'p', name)['error'], -32602, 'name must be 1 to 64 letters, digits, `.`, `_` or `-`')
        self.assertError(self.named(c, 'p', 5)['error'], -32602)
        self.assertIn('result', self.named(c, 'p', 'x' * 64))

    def test_the_name_of_a_command_whose_output_is_held_open_is_taken(self):
        c = self.session()
        self.assertIn('result', self.named(c, 'p', 'web', ('/bin/sh', '-c', 'sleep 1000 & echo $!')))
        pid = int(c.wait_line('p'))
        c.wait_exited('p')
        wait_until(lambda: name_of(pid) == 'sleep 1000', 'the execve of sleep')
        self.assertError(self.named(c, 'q', 'web')['error'], -32600,
                         'web has exited, and sleep (pid %d) holds its output open; choose another name or end that process' % pid)
        os.kill(pid, signal.SIGKILL)
        c.wait_closed('p')
        self.assertIn('result', self.named(c, 'q', 'web'))

    def test_the_name_of_a_start_under_way_is_taken(self):
        c = self.session('--cells', '1')
        cell = int(c.sh('echo $PPID').stdout)
        params = c.start_params('p', ['sleep', '1000'], name='web')
        os.kill(cell, signal.SIGSTOP)
        try:
            first = c.post('process/start', params)
            self.assertError(self.named(c, 'q', 'web')['error'], -32600, 'web is starting; choose another name')
        finally:
            os.kill(cell, signal.SIGCONT)
        c.result(first)

    def test_a_name_is_taken_until_its_process_has_closed(self):
        c = self.session()
        other = self.srv.session()
        self.assertIn('result', self.named(c, 'p', 'web'))
        pid = c.request('process/list')['processes'][0]['pid']
        self.assertError(self.named(other, 'q', 'web')['error'], -32600,
                         'web is running (pid %d); choose another name or: sallyport kill web' % pid)
        self.assertIn('result', self.named(other, 'q', 'web2'))
        c.terminate('p')
        c.wait_closed('p')
        self.assertIn('result', self.named(other, 'r', 'web'))

    def test_a_named_process_keeps_its_session(self):
        srv = self.server('--session-ttl', '0', '--closed-ttl', '0')
        self.srv = srv
        c, look = srv.session(), srv.session()
        self.assertIn('result', self.named(c, 'p', 'web', ['sh', '-c', 'echo $$; exec sleep 1000']))
        pid = int(c.wait_line('p'))
        c.start('q', ['sh', '-c', 'echo $$; exec sleep 1000'])
        c.close()
        gone = srv.session()  # its session expires after that of c
        gone.start('r', ['sleep', '1000'])
        gone.close()

        def listed():
            return {p['processId'] for p in look.request('process/list', {'all': True})['processes']}
        wait_until(lambda: 'r' not in listed(), 'the end of a session without names', step=0.02)
        self.assertEqual(listed(), {'p', 'q'})
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not listed(), 'the end of the session', step=0.02)

    def test_a_session_with_names_can_be_resumed_and_ended(self):
        srv = self.server('--session-ttl', '0', '--closed-ttl', '0')
        self.srv = srv
        c = srv.session()
        self.assertIn('result', self.named(c, 'p', 'web'))
        c.close()
        again = srv.connect()
        while 'error' in again.reply(again.post('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id})):
            pass
        again.send({'method': 'initialized'})
        again.request('session/end')
        look = srv.session()
        wait_until(lambda: not look.request('process/list', {'all': True})['processes'], 'the end of the session', step=0.02)


@ours_only
class Signals(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def test_any_signal_by_name(self):
        for n, name in enumerate(('SIGTERM', 'TERM', 'term', 'sigterm', 'SigTerm', 'KILL', 'SIGKILL', 'HUP', 'QUIT', 'usr1', 'SIGUSR2', 'ALRM')):
            pid = 'p%d' % n
            self.c.start(pid, ['/bin/sh', '-c', 'ulimit -c 0; echo ready; exec sleep 1000'])
            self.c.wait_output(pid, 'ready')
            self.assertEqual(self.c.signal(pid, name), {})
            number = getattr(signal, 'SIG' + name.upper().removeprefix('SIG'))
            self.assertEqual(self.c.wait_closed(pid).exit_code, 128 + number, name)

    def test_the_group_is_reached(self):
        self.c.start('p', ['/bin/sh', '-c', 'trap "echo caught" TERM; sh -c "echo ready; exec sleep 1000" & wait; wait; echo end'])
        self.c.wait_output('p', 'ready')
        self.c.signal('p', 'TERM')
        p = self.c.wait_closed('p')  # both the shell and its child got it
        self.assertEqual((p.stdout, p.exit_code), (b'ready\ncaught\nend\n', 0))

    def test_stop_and_continue(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        pid = int(self.c.wait_line('p'))
        self.c.signal('p', 'STOP')
        wait_until(lambda: stat_of(pid)[0] == 'T', 'stop')
        self.assertFalse(self.c.read('p')['exited'])
        self.c.signal('p', 'SIGCONT')
        wait_until(lambda: stat_of(pid)[0] == 'S', 'continuation')
        self.c.signal('p', 'INT')
        self.assertEqual(self.c.wait_closed('p').exit_code, 130)

    def test_unknown_names_are_refused(self):
        self.c.start('p', ['sleep', '1000'])
        for name in ('', 'SIG', 'NOPE', 'SIGNOPE', '15', 'SIGSIGTERM', 'TERM ', 'interrupt '):
            self.assertError(self.c.error('process/signal', {'processId': 'p', 'signal': name}), -32602)
        self.assertFalse(self.c.read('p')['exited'])

    def test_signals_to_what_is_not_there(self):
        self.assertEqual(self.c.signal('nobody', 'KILL'), {})
        self.c.run(['true'], 'p')
        self.assertEqual(self.c.signal('p', 'KILL'), {})

    def test_the_exit_by_signal_keeps_the_output(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo before; exec sleep 1000'])
        self.c.wait_output('p', 'before')
        self.c.signal('p', 'KILL')
        self.c.wait_closed('p')
        self.assertEqual(unb64(self.c.read('p')['chunks'][0]['chunk']), b'before\n')


if __name__ == '__main__':
    tap.main()
