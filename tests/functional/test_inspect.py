# SPDX-License-Identifier: Apache-2.0
"""process/inspect: what a command is doing, who holds its output, where it listens; without a sandbox and in one."""

import os
import signal
import socket
import time

import tap
from sandbox_policy import SandboxCase, project_write
from server import PYTHON, Case, ours_only
from wire import deadline, wait_until

LISTEN = ('import socket, sys, time\ns = socket.socket()\ns.bind(("127.0.0.1", 0))\ns.listen()\n'
          'print(s.getsockname()[1], flush=True)\ntime.sleep(300)')


class Inspecting:
    """Needs self.c, a session, and self.go."""

    def inspect(self, process_id, **more):
        return self.c.request('process/inspect', dict({'processId': process_id}, **more))

    def await_state(self, process_id, state):
        wait_until(lambda: self.inspect(process_id)['state'] == state, '%s of %s' % (state, process_id))

    def check(self, script, state, **how):
        self.names = getattr(self, 'names', 0) + 1
        name = 'p%d' % self.names
        self.go(name, script, **how)
        try:
            self.await_state(name, state)
        finally:
            self.c.terminate(name)
        self.c.wait_closed(name)
        self.assertEqual(self.inspect(name), {'state': 'exited', 'holders': []})

    def check_all(self):
        for how, reads in (({'pipeStdin': True}, 'reading_stdin'), ({'tty': True}, 'reading_terminal')):
            self.check('exec cat', reads, **how)
            self.check('cat; echo end', reads, **how)
            self.check('cat | sort', reads, **how)
            self.check([PYTHON, '-c', 'input()'], reads, **how)
            self.check([PYTHON, '-c', 'import select; select.select([0], [], [])'], reads, **how)
            self.check('exec sleep 300', 'sleeping', **how)
            self.check('sleep 300; :', 'sleeping', **how)
            self.check('sleep 300 & wait', 'sleeping', **how)
            self.check('while :; do :; done', 'running', **how)
            self.check('kill -STOP $$; :', 'stopped', **how)
        self.check([PYTHON, '-i', '-q'], 'reading_terminal', tty=True)
        self.check('exec sleep 300', 'sleeping')
        self.check('exec cat <&0 | sleep 300', 'sleeping')

    def check_holders(self, kill):
        self.go('held', 'sleep 300 & echo $!')
        pid = int(self.c.wait_output('held', '\n'))
        self.c.wait_exited('held')
        wait_until(lambda: self.inspect('held')['holders'] == [{'pid': pid, 'name': 'sleep'}], 'the holder')
        self.assertEqual(self.inspect('held')['state'], 'exited')
        self.assertFalse(self.c.process('held').closed)
        kill(pid)
        self.c.wait_closed('held')
        self.assertEqual(self.inspect('held'), {'state': 'exited', 'holders': []})

    def check_ports(self):
        self.go('server', '%s -c \'%s\'; :' % (PYTHON, LISTEN))
        self.go('other', 'exec sleep 300')
        port = int(self.c.wait_output('server', '\n'))
        self.assertEqual(self.inspect('server', ports=[port])['listening'], port)
        self.assertEqual(self.inspect('server', ports=[9, port, 10])['listening'], port)
        self.assertNotIn('listening', self.inspect('server', ports=[9]))
        self.assertNotIn('listening', self.inspect('server', ports=[]))
        self.assertNotIn('listening', self.inspect('server', ports=None))
        self.assertNotIn('listening', self.inspect('other', ports=[port]))
        self.c.terminate('server')
        self.c.wait_closed('server')
        self.assertNotIn('listening', self.inspect('server', ports=[port]))


@ours_only
class Open(Inspecting, Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server()
        self.c = self.srv.session()

    def go(self, name, script, **how):
        return self.c.start(name, ['/bin/sh', '-c', script] if isinstance(script, str) else script, **how)

    def test_what_a_command_does(self):
        self.check_all()

    def test_who_holds_its_output(self):
        self.check_holders(lambda pid: os.kill(pid, signal.SIGKILL))

    def test_who_holds_its_output_on_a_terminal(self):
        self.go('held', "trap '' HUP; setsid sh -c 'echo $$; exec sleep 300' & sleep 0.3", tty=True)
        pid = int(self.c.wait_output('held', '\n'))
        self.c.wait_exited('held')
        wait_until(lambda: self.inspect('held')['holders'] == [{'pid': pid, 'name': 'sleep'}], 'the holder')
        os.kill(pid, signal.SIGKILL)
        self.c.wait_closed('held')

    def test_more_holders_than_are_listed(self):
        self.go('held', 'for i in 1 2 3 4 5 6 7 8 9 10; do sleep 300 & done; echo up')
        self.c.wait_exited('held')
        wait_until(lambda: self.inspect('held').get('holderCount') == 10, 'ten')
        self.assertEqual(len(self.inspect('held')['holders']), 8)
        self.c.signal('held', 'KILL')
        self.c.wait_closed('held')

    def test_a_port_is_found(self):
        self.check_ports()

    def test_a_port_of_somebody_else_is_not(self):
        with socket.create_server(('127.0.0.1', 0)) as s:
            self.go('p', 'exec sleep 300')
            self.assertNotIn('listening', self.inspect('p', ports=[s.getsockname()[1]]))

    def test_a_daemon_of_the_command_counts(self):
        """Its parent has gone, the command has not."""
        self.go('p', '(setsid %s -c \'%s\' &); exec sleep 300' % (PYTHON, LISTEN))
        port = int(self.c.wait_output('p', '\n'))
        self.assertEqual(self.inspect('p', ports=[port])['listening'], port)

    def test_what_was_left_by_the_command_counts(self):
        self.go('p', '%s -c \'%s\' & sleep 0.01' % (PYTHON, LISTEN))
        port = int(self.c.wait_output('p', '\n'))
        self.c.wait_exited('p')
        self.assertEqual(self.inspect('p', ports=[port])['listening'], port)
        self.c.signal('p', 'KILL')
        self.c.wait_closed('p')

    def test_bad_ports_are_refused(self):
        self.go('p', 'exec sleep 300')
        for bad in (0, -1, 65536, 1.5, '80', True, None, [], 2**64):
            self.assertError(self.c.error('process/inspect', {'processId': 'p', 'ports': [80, bad]}), -32602,
                             'ports must be numbers between 1 and 65535')
        for bad in (80, '80', {}, True):
            self.assertError(self.c.error('process/inspect', {'processId': 'p', 'ports': bad}), -32602)
        self.assertError(self.c.error('process/inspect', {'processId': 'p', 'ports': list(range(1, 10))}), -32602,
                         'at most 8 ports may be asked for at once')
        self.assertEqual(set(self.inspect('p', ports=list(range(1, 9)))), {'state', 'holders'})

    def test_whom_nobody_knows(self):
        self.assertError(self.c.error('process/inspect', {'processId': 'nobody'}), -32600, 'unknown process id nobody')
        self.assertError(self.c.error('process/inspect', {}), -32602)
        self.assertError(self.c.error('process/inspect', {'processId': 1}), -32602)
        self.assertError(self.c.error('process/inspect', {'processId': 'p', 'sessionId': 'none'}), -32600,
                         'unknown session id none')

    def test_of_another_session(self):
        self.go('p', 'exec cat', pipeStdin=True)
        other = self.srv.session()
        ask = {'processId': 'p', 'sessionId': self.c.session_id}
        wait_until(lambda: other.request('process/inspect', ask)['state'] == 'reading_stdin')
        self.assertError(other.error('process/inspect', {'processId': 'p'}), -32600, 'unknown process id p')

    def test_a_closed_stdin_is_not_read(self):
        self.go('p', 'cat; echo up; exec sleep 300', pipeStdin=True)
        self.await_state('p', 'reading_stdin')
        self.c.request('process/closeStdin', {'processId': 'p'})
        self.c.wait_output('p', 'up')
        self.await_state('p', 'sleeping')

    def test_what_may_not_be_looked_into_is_asleep(self):
        """A program that lets nobody look, where we are not root."""
        text = 'import ctypes; ctypes.CDLL(None).prctl(4, 0); print("up", flush=True); input()'
        self.go('p', [PYTHON, '-c', text], pipeStdin=True)
        self.c.wait_output('p', 'up')
        self.await_state('p', 'reading_stdin' if os.getuid() == 0 else 'sleeping')

    def test_names_are_harmless(self):
        text = ('import os, time\nif os.fork() == 0:\n  open("/proc/self/comm", "wb").write(b"a\\n\\x1b]0;\\xff\\"")\n'
                '  print("up", flush=True)\n  time.sleep(300)\ntime.sleep(0.2)')
        self.go('p', [PYTHON, '-c', text])
        self.c.wait_output('p', 'up')
        self.c.wait_exited('p')
        holders = self.inspect('p')['holders']
        self.assertEqual([h['name'] for h in holders], ['a??]0;?"'])
        os.kill(holders[0]['pid'], signal.SIGKILL)
        self.c.wait_closed('p')

    def test_very_many_do_not_hold_up_others(self):
        self.go('p', 'i=0; while [ $i -lt 1000 ]; do sleep 300 & i=$((i+1)); done; echo up; wait')
        self.c.wait_output('p', 'up')
        self.await_state('p', 'sleeping')
        begin = time.monotonic()
        self.inspect('p', ports=[9])
        self.assertLess(time.monotonic() - begin, 2)
        end = deadline()
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.assertLess(time.monotonic(), end)

    def test_those_who_come_and_go(self):
        self.go('p', 'while :; do (sleep 0.002 & sleep 0.001); done')
        for _ in range(100):
            self.assertIn(self.inspect('p', ports=[9])['state'], ('running', 'sleeping', 'waiting_for_child', 'unknown'))


@ours_only
class Confined(Inspecting, SandboxCase):
    def setUp(self):
        super().setUp()
        self.srv = self.server()
        self.c = self.srv.session()
        self.policy = project_write(self.w)

    def go(self, name, script, **how):
        return self.start(self.c, name, script, how.pop('sandbox', self.policy), **how)

    def test_what_a_command_does(self):
        self.check_all()

    def test_who_holds_its_output(self):
        """By the number that it has inside."""
        self.check_holders(lambda pid: self.c.signal('held', 'KILL'))

    def test_a_port_is_found(self):
        self.policy = project_write(self.w, network='enabled')
        self.check_ports()

    def test_a_port_of_the_sandbox_is_found(self):
        """In a network of its own, if it may listen there at all."""
        self.go('p', [PYTHON, '-c', LISTEN])
        self.c.wait_for(lambda: self.c.process('p').exited or self.c.process('p').text, 'a word or an end')
        if self.c.process('p').exited:
            self.assertIn('Operation not permitted', self.c.wait_closed('p').stderr.decode())
            return
        port = int(self.c.wait_output('p', '\n'))
        self.assertEqual(self.inspect('p', ports=[port])['listening'], port)


if __name__ == '__main__':
    tap.main()
