# SPDX-License-Identifier: Apache-2.0
"""Processes behave in a sandbox as they do without: terminals, input, signals, ends. And a refusal
is told: by the words of a failing program, and by what the sandbox itself has seen."""

import os
import signal

import tap
from sandbox_policy import SandboxCase, context, project_write, read_only, unrestricted
from server import Gate, descendants, is_alive, ours_only, stat_of
from wire import file_uri, unb64, wait_until

WORDS = ('Operation not permitted', 'PERMISSION DENIED', 'read-only file system', 'Seccomp', 'SandBox', 'landlock',
         'failed to write file')


class Inside(SandboxCase):
    """A session and a policy."""

    def setUp(self):
        super().setUp()
        self.c = self.session()
        self.policy = project_write(self.w)

    def go(self, process_id, script, **more):
        return self.start(self.c, process_id, script, more.pop('sandbox', self.policy), **more)


@ours_only
class Terminal(Inside):
    def shell(self):
        """An interactive shell without line editing."""
        self.go('t', ['bash', '--norc', '--noprofile', '--noediting', '-i'], tty=True, env={'PS1': '', 'PS2': ''})
        self.say('stty -echo; echo re""ady')
        self.until('ready')

    def say(self, line):
        self.c.write('t', line if isinstance(line, bytes) else line.encode() + b'\n')

    def shell_is_in_front(self):
        """Whether the shell's own group has the terminal."""
        for pid in descendants(self.srv.pid):
            with open('/proc/%d/stat' % pid) as f:
                comm, fields = f.read().rsplit(')', 1)
            if comm.endswith('(bash'):
                group, front = fields.split()[2], fields.split()[5]
                return group == front
        raise AssertionError('no shell')

    def until(self, text):
        return self.c.wait_output('t', text)

    def test_job_control(self):
        self.shell()
        self.say('sleep 1000 & echo started=$!')
        self.until('started=')
        self.say('kill %1; wait %1; echo status=$?')
        self.until('status=143')
        self.say("sh -c 'echo in\"\"front; exec sleep 1000'")
        self.until('infront')
        self.say(b'\x1a')
        self.until('Stopped')
        self.say('jobs; echo stopped=$?')
        self.until('stopped=0')
        self.say('bg; echo running=$(jobs -r | grep -c Running)')
        self.until('running=1')
        self.say('fg')
        wait_until(lambda: not self.shell_is_in_front(), 'the job in front')
        self.say(b'\x03')
        self.say('echo interrupted=$?')
        self.until('interrupted=130')
        self.say('exit 7')
        process = self.c.wait_closed('t')
        self.assertEqual(process.exit_code, 7)
        self.assertNotIn(b'no job control', process.pty)
        self.assertNotIn(b'cannot set terminal', process.pty)

    def test_set_m_in_a_script(self):
        script = 'set -m; sh -c "kill -STOP \\$\\$; echo again" & wait; jobs; fg; echo end=$?'
        process = self.run_in(self.c, ['bash', '-c', script], self.policy, tty=True)
        self.assertIn('again\r\nend=0\r\n', process.text)

    def test_tty_names_the_terminal(self):
        said = self.said(self.c, 'tty; test -c "$(tty)" && echo there; : > /dev/tty && echo controlling',
                         self.policy, tty=True)
        name, there, controlling = said.split('\n')[:3]
        self.assertRegex(name, '^/dev/pts/[0-9]+$')
        self.assertEqual((there, controlling), ('there', 'controlling'))
        self.assertEqual(self.run_in(self.c, ['tty'], self.policy).text, 'not a tty\n')

    def test_terminals_of_two_commands(self):
        self.go('a', 'tty; exec sleep 1000', tty=True)
        self.go('b', 'tty; exec sleep 1000', tty=True)
        self.assertNotEqual(self.c.wait_line('a'), self.c.wait_line('b'))
        self.c.signal('a', 'KILL')
        self.c.wait_closed('a')
        self.assertFalse(self.c.read('b')['exited'])

    def test_size_and_resize(self):
        self.go('t', 'trap "stty size" WINCH; stty size; while :; do sleep 0.05; done', tty=True, rows=50, cols=132)
        self.until('50 132')
        self.assertEqual(self.c.request('process/resize', {'processId': 't', 'rows': 33, 'cols': 99}), {})
        self.until('33 99')

    def test_interrupt_by_the_terminal_and_by_a_signal(self):
        for n, end in enumerate((lambda p: self.c.write(p, b'\x03'), lambda p: self.c.signal(p))):
            self.go('p%d' % n, 'echo ready; exec sleep 1000', tty=True)
            self.c.wait_output('p%d' % n, 'ready')
            end('p%d' % n)
            self.assertEqual(self.c.wait_closed('p%d' % n).exit_code, 130)

    def test_a_hangup_ends_the_shell(self):
        self.shell()
        self.c.terminate('t')
        self.assertEqual(self.c.wait_closed('t').exit_code, 137)


@ours_only
class Life(Inside):
    def test_stdin(self):
        self.go('p', ['cat'], pipeStdin=True)
        self.assertEqual(self.c.write('p', b'words\n'), 'accepted')
        self.c.wait_output('p', 'words')
        self.assertEqual(self.c.request('process/closeStdin', {'processId': 'p'}), {'status': 'accepted'})
        self.assertEqual(self.c.wait_closed('p').exit_code, 0)
        self.assertEqual(self.said(self.c, ['cat'], self.policy), '', 'without a pipe it reads as ended')

    def test_signals(self):
        for name, number in (('interrupt', 2), ('TERM', 15), ('KILL', 9), ('usr1', 10), ('HUP', 1)):
            self.go(name, 'echo ready; exec sleep 1000')
            self.c.wait_output(name, 'ready')
            self.assertEqual(self.c.signal(name, name), {})
            process = self.c.wait_closed(name)
            self.assertEqual(process.exit_code, 128 + number, name)
            self.assertIs(self.denied(self.c, process), False)

    def test_the_group_is_signalled_and_can_trap(self):
        self.go('p', 'trap "echo caught; exit 5" TERM; echo ready; while :; do sleep 0.05; done')
        self.c.wait_output('p', 'ready')
        self.c.signal('p', 'TERM')
        process = self.c.wait_closed('p')
        self.assertEqual((process.stdout, process.exit_code), (b'ready\ncaught\n', 5))

    def test_stop_and_continue(self):
        gate = Gate(self.w)
        self.go('p', 'echo ready; %s; echo went on' % gate.wait)
        self.c.wait_output('p', 'ready')
        pid = self.pid_of('p')
        self.c.signal('p', 'STOP')
        wait_until(lambda: stat_of(pid)[0] == 'T', 'stop')
        self.c.signal('p', 'CONT')
        gate.open()
        self.assertEqual(self.c.wait_closed('p').stdout, b'ready\nwent on\n')

    def pid_of(self, process_id):
        """On the host: the command's direct child of the cell that has its argv."""
        for entry in self.c.request('process/list')['processes']:
            if entry['processId'] == process_id:
                want = '\0'.join(entry['argv']).encode() + b'\0'
        for pid in descendants(self.srv.pid):
            with open('/proc/%d/cmdline' % pid, 'rb') as f:
                if f.read() == want:
                    return pid
        raise AssertionError('no such process')

    def tree(self, process_id):
        """A shell with children, one in a session of its own and one that left its parent."""
        script = ('sleep 1000 & setsid sleep 1000 & (setsid sh -c "trap \'\' TERM HUP INT; sleep 1000; sleep 1000" &) ; '
                  'while [ "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " " | grep -o "sleep 1000" | wc -l)" -lt 4 ]; do :; done; '
                  'echo ready; wait')
        self.go(process_id, script)
        self.c.wait_output(process_id, 'ready')

    def sleepers(self):
        found = []
        for pid in descendants(self.srv.pid):
            try:
                with open('/proc/%d/cmdline' % pid, 'rb') as f:
                    if b'sleep' in f.read() and is_alive(pid):
                        found.append(pid)
            except OSError:
                pass
        return found

    def test_terminate_ends_the_whole_tree(self):
        self.tree('p')
        before = self.sleepers()
        self.assertGreaterEqual(len(before), 4)
        self.assertIs(self.c.terminate('p'), True)
        process = self.c.wait_closed('p')
        self.assertEqual(process.exit_code, 137)
        self.assertIs(self.denied(self.c, process), False)
        self.assertGone(*before)
        self.assertIs(self.c.terminate('p'), False)
        self.assertEqual(self.said(self.c, 'echo next', self.policy), 'next\n')

    def test_list_and_read(self):
        self.go('p', 'echo out; echo err >&2; exec sleep 1000')
        self.c.wait_output('p', 'err')
        self.c.wait_output('p', 'out')
        listed = self.c.request('process/list')['processes']
        self.assertEqual([(p['processId'], p['state'], p['cwd']) for p in listed], [('p', 'running', file_uri(self.w))])
        read = self.c.read('p')
        self.assertEqual({(k['stream'], unb64(k['chunk'])) for k in read['chunks']},
                         {('stdout', b'out\n'), ('stderr', b'err\n')})
        self.assertEqual((read['exited'], read['sandboxDenied']), (False, False))
        self.assertEqual(self.c.start_error('p', ['true'], sandbox=self.policy)['code'], -32600)

    def test_much_output(self):
        process = self.run_in(self.c, 'head -c 3000000 /dev/zero', self.policy)
        self.assertEqual((process.sizes['stdout'], process.exit_code), (3000000, 0))

    def test_exit_codes(self):
        for code in (0, 1, 2, 42, 126, 127, 255):
            self.assertEqual(self.run_in(self.c, 'exit %d' % code, self.policy).exit_code, code)

    def test_late_output_comes_after_the_exit(self):
        gate = Gate(self.w)
        self.go('p', '(%s; echo late) & echo early; exit 3' % gate.wait)
        self.c.wait_exited('p')
        self.assertFalse(self.c.read('p')['closed'])
        gate.open()
        process = self.c.wait_closed('p')
        self.assertEqual((process.stdout, process.exit_code), (b'early\nlate\n', 3))


@ours_only
class Words(Inside):
    """A failing program that says so."""

    def judged(self, script, **more):
        process = self.run_in(self.c, script, more.pop('sandbox', self.policy), **more)
        return self.denied(self.c, process)

    def test_each_of_the_words(self):
        for word in WORDS:
            for stream in (1, 2):
                self.assertIs(self.judged('echo "a %s b" >&%d; exit 1' % (word, stream)), True, word)

    def test_exit_codes(self):
        for code in (2, 126, 127, 255):
            self.assertIs(self.judged('echo permission denied; exit %d' % code), True, code)
            self.assertIs(self.judged('echo something else; exit %d' % code), False, code)
        self.assertIs(self.judged('echo permission denied'), False)
        self.assertIs(self.judged('exit 1'), False)

    def test_words_across_chunks_and_streams(self):
        self.assertIs(self.judged('printf perm; sleep 0.05; printf "ission denied"; exit 1'), True)
        self.assertIs(self.judged('printf "read-only " >&2; sleep 0.05; printf "file system"; exit 1'), True)
        self.assertIs(self.judged('printf perm; sleep 0.05; printf "xx" >&2; sleep 0.05; printf "ission denied"; exit 1'), True)
        self.assertIs(self.judged('printf "read-only file"; exit 1'), False)

    def test_a_terminal(self):
        self.assertIs(self.judged('echo Permission denied; exit 1', tty=True), True)
        self.assertIs(self.judged('exit 1', tty=True), False)

    def test_what_comes_after_the_exit_does_not_count(self):
        gate = Gate(self.w)
        self.go('p', '(%s; echo Permission denied) & exit 1' % gate.wait)
        self.c.wait_exited('p')
        self.assertIs(self.c.read('p')['sandboxDenied'], False)
        gate.open()
        self.assertIs(self.denied(self.c, self.c.wait_closed('p')), False)

    def test_bytes_that_are_no_text(self):
        self.assertIs(self.judged('printf "\\377\\000permission denied\\377"; exit 1'), True)

    def test_the_signal_of_filters(self):
        self.assertIs(self.judged('exit 159'), True)
        self.assertIs(self.judged('kill -SYS $$'), True)
        self.assertIs(self.judged('kill -TERM $$'), False)

    def test_no_sandbox_no_refusal(self):
        for sandbox in (None, {'permissions': {'type': 'disabled'}, 'windowsSandboxLevel': 'disabled'}):
            for script in ('echo permission denied; exit 1', 'exit 159'):
                self.assertIs(self.judged(script, sandbox=sandbox), False)

    def test_open_policies_count(self):
        self.assertIs(self.judged('echo permission denied; exit 1', sandbox=context(unrestricted(), self.w)), True)


CALL = 'import ctypes, os\nr = ctypes.CDLL(None, use_errno=True).syscall(%s)\nos._exit(%d)'
MOUNT = '165 if os.uname().machine == "x86_64" else 40, b"x", b"/", b"tmpfs", 0, 0'
PTRACE = '101 if os.uname().machine == "x86_64" else 117, 16, 1, 0, 0'
CONNECT = ('import os, socket\ns = socket.socket(socket.AF_INET, socket.%s)\n'
           'try: s.connect(("192.0.2.1", 9))\nexcept OSError: pass\nos._exit(%d)')
LOOKUPS = ('import grp, pwd, os, socket\npwd.getpwnam("root"); grp.getgrgid(0)\ntry: pwd.getpwnam("no such user")\n'
           'except KeyError: pass\nsocket.socketpair()\nos.getxattr\nos._exit(1)')


@ours_only
class Evidence(Inside):
    """A failing program that says nothing."""

    def judged(self, program, policy=None):
        process = self.run_in(self.c, ['python3', '-S', '-c', program], policy or self.policy)
        self.assertEqual((process.stdout, process.stderr), (b'', b''))
        return process.exit_code, self.denied(self.c, process)

    def test_refused_calls(self):
        for call in (MOUNT, PTRACE):
            self.assertEqual(self.judged(CALL % (call, 1)), (1, True), call)
            self.assertEqual(self.judged(CALL % (call, 0)), (0, False), call)

    def test_a_refused_call_of_a_child(self):
        child = 'import os\nif os.fork() == 0:\n  %s\nos.wait()\nos._exit(1)' % (CALL % (MOUNT, 0)).replace('\n',
            '\n  ')
        self.assertEqual(self.judged(child), (1, True))

    def test_the_evidence_belongs_to_its_command(self):
        gate = Gate(self.w)
        self.start(self.c, 'p', '%s; exit 1' % gate.wait, self.policy)
        self.assertEqual(self.judged(CALL % (MOUNT, 1)), (1, True))
        gate.open()
        self.assertIs(self.denied(self.c, self.c.wait_closed('p')), False)
        self.assertEqual(self.judged('import os; os._exit(1)'), (1, False))

    def test_a_way_out_of_the_network(self):
        for kind in ('SOCK_STREAM', 'SOCK_DGRAM'):
            self.assertEqual(self.judged(CONNECT % (kind, 1)), (1, True), kind)
            self.assertEqual(self.judged(CONNECT % (kind, 0)), (0, False), kind)

    def test_the_network_of_each_command(self):
        """Others run in the cell, and connect, too: to what is there."""
        gate = Gate(self.w)
        local = ('import os, socket, sys, time\n'
                 'server = socket.create_server(("127.0.0.1", 0))\n'
                 'while not os.path.exists("stop"):\n'
                 '  socket.create_connection(server.getsockname()).close(); server.accept()[0].close(); time.sleep(0.001)\n'
                 'os._exit(1)')
        self.start(self.c, 'silent', '%s; exit 1' % gate.wait, self.policy)
        self.start(self.c, 'local', ['python3', '-S', '-c', local], self.policy)
        for kind in ('SOCK_STREAM', 'SOCK_DGRAM'):
            self.assertEqual(self.judged(CONNECT % (kind, 1)), (1, True), kind)
            self.assertEqual(self.judged('import os; os._exit(1)'), (1, False))
        gate.open()
        self.put('w/stop')
        for name in ('silent', 'local'):
            process = self.c.wait_closed(name)
            self.assertEqual((process.exit_code, self.denied(self.c, process)), (1, False), name)

    def test_looking_around_is_no_evidence(self):
        self.assertEqual(self.judged(LOOKUPS), (1, False))
        process = self.run_in(self.c, 'getent passwd nosuchuser', self.policy)
        self.assertEqual((process.exit_code, self.denied(self.c, process)), (2, False))
        loopback = 'import os, socket\ntry: socket.create_connection(("127.0.0.1", 9))\nexcept OSError: os._exit(1)'
        self.assertEqual(self.judged(loopback), (1, False))

    def test_every_policy(self):
        for policy in (read_only(self.w), context(unrestricted(), self.w), project_write(self.w, network='enabled')):
            self.assertEqual(self.judged(CALL % (MOUNT, 1), policy), (1, True))
            self.assertEqual(self.judged('import os; os._exit(1)', policy), (1, False))

    def test_death_by_a_signal_is_none(self):
        process = self.run_in(self.c, 'kill -%d $$' % signal.SIGKILL, self.policy)
        self.assertEqual((process.exit_code, self.denied(self.c, process)), (137, False))
        self.assertEqual(os.listdir(self.o), ['f'])


if __name__ == '__main__':
    tap.main()
