# SPDX-License-Identifier: Apache-2.0
"""`sallyport sandbox`: one command under a policy, here; its streams, terminal, signals and end."""

import hashlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
import threading
import time
import uuid

import tap
import terminal
import wire
from server import MARK, PASS_ON, PROGRAM, Case, marked, ours_only
from wire import wait_until

PATH = '/usr/local/bin:/usr/bin:/bin'
PROTECTED = {'.git', '.agents', '.codex', '.aws', '.sallyport'}


class Verb(Case):
    """A workspace and a place beside it, neither below /tmp nor TMPDIR, which modes make writable."""

    def setUp(self):
        super().setUp()
        self.base = tempfile.mkdtemp(prefix='sallyport-verb-', dir='/var/tmp')
        self.work, self.beside, self.home, self.tmp, self.runtime = (
            os.path.join(self.base, name) for name in ('work', 'beside', 'home', 'tmp', 'runtime'))
        for path in (self.work, self.beside, self.home, self.tmp):
            os.mkdir(path)
        os.mkdir(self.runtime, 0o700)
        self.mark = uuid.uuid4().hex
        self.env = {'PATH': PATH, 'HOME': self.home, 'TMPDIR': self.tmp, 'XDG_RUNTIME_DIR': self.runtime, MARK: self.mark}
        self.env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})
        self.addCleanup(shutil.rmtree, self.base, True)
        self.addCleanup(self.nothing_is_left)

    def nothing_is_left(self):
        wait_until(lambda: not marked(self.mark.encode()), 'end of all processes', 15 * wire.SCALE)
        for path in (self.work, self.beside, self.tmp):
            self.assertEqual(PROTECTED & set(os.listdir(path)), set(), 'placeholders are left')

    def args(self, *words):
        return [PROGRAM, 'sandbox', *words]

    def popen(self, *words, **how):
        how.setdefault('stdin', subprocess.DEVNULL)
        how.setdefault('stdout', subprocess.PIPE)
        how.setdefault('stderr', subprocess.PIPE)
        p = subprocess.Popen(self.args(*words), env=dict(self.env, **how.pop('env', {})), cwd=how.pop('cwd', self.work),
                             bufsize=0, **how)

        def end():
            if p.poll() is None:
                p.kill()
            p.wait()
            for f in (p.stdin, p.stdout, p.stderr):
                if f:
                    f.close()
        self.addCleanup(end)
        return p

    def run_verb(self, *words, input=b'', **how):
        p = self.popen(*words, stdin=subprocess.PIPE, **how)
        out, err = p.communicate(input, timeout=wire.DEADLINE)
        self.assertNotIn(b'Sanitizer', err or b'')
        self.assertNotIn(b'runtime error:', err or b'')
        return p.returncode, out, err

    def sh(self, script, *options, **how):
        return self.run_verb(*options, '--', 'sh', '-c', script, **how)

    def profile(self, text):
        path = os.path.join(self.base, 'profile.json')
        with open(path, 'wb') as f:
            f.write(text if isinstance(text, bytes) else json.dumps(text).encode())
        return path


# ---------------------------------------------------------------------------------- streams, end


@ours_only
class Run(Verb):
    def test_streams_are_apart_and_the_exit_code_is_the_commands(self):
        self.assertEqual(self.sh('echo out; echo err >&2; exit 7'), (7, b'out\n', b'err\n'))

    def test_death_by_signal_is_128_and_the_signal(self):
        self.assertEqual(self.sh('kill -9 $$')[0], 137)
        self.assertEqual(self.sh('kill -TERM $$')[0], 143)

    def test_missing_and_forbidden_programs(self):
        for mode in ('read-only', 'danger-full-access'):
            with self.subTest(mode):
                code, out, err = self.run_verb('--mode', mode, '--', 'no-such-program')
                self.assertEqual((code, out, err), (127, b'', b'sallyport: no-such-program: command not found\n'))
                code, out, err = self.run_verb('--mode', mode, '--', 'ls | wc')
                self.assertEqual((code, out, err), (
                    127, b'', b"sallyport: ls | wc: no such program; no shell is involved: sh -c 'ls | wc'\n"))
                code, out, err = self.run_verb('--mode', mode, '--', '/no/such')
                self.assertEqual((code, out, err), (127, b'', b'sallyport: /no/such: No such file or directory\n'))
                code, out, err = self.run_verb('--mode', mode, '--', '/etc/passwd')
                self.assertEqual((code, out, err), (126, b'', b'sallyport: /etc/passwd: Permission denied\n'))

    def test_arguments_environment_and_directory_are_passed_on(self):
        code, out, _ = self.run_verb('--', 'sh', '-c', 'pwd; echo "$FRUIT"; printf "%s|" "$@"', 'x', '--mode', 'a  b', '', '-v',
                                     env={'FRUIT': 'pear'})
        self.assertEqual((code, out), (0, b'%s\npear\n--mode|a  b||-v|' % self.work.encode()))

    def test_cwd_is_where_it_runs(self):
        self.assertEqual(self.sh('pwd', '--cwd', '../beside')[:2], (0, self.beside.encode() + b'\n'))

    def test_without_two_hyphens(self):
        self.assertEqual(self.run_verb('echo', '--mode'), (0, b'--mode\n', b''))

    def test_ten_megabytes_through_cat(self):
        data = os.urandom(10 << 20)
        code, out, err = self.run_verb('--', 'cat', input=data)
        self.assertEqual((code, err, len(out)), (0, b'', len(data)))
        self.assertEqual(hashlib.sha256(out).digest(), hashlib.sha256(data).digest())

    def test_a_file_as_stdin_and_as_stdout(self):
        data = os.urandom(3 << 20)
        source, target = os.path.join(self.base, 'source'), os.path.join(self.base, 'target')
        with open(source, 'wb') as f:
            f.write(data)
        with open(source, 'rb') as a, open(target, 'wb') as b:
            p = self.popen('--', 'cat', stdin=a, stdout=b)
            self.assertEqual(p.wait(wire.DEADLINE), 0)
        with open(target, 'rb') as f:
            self.assertEqual(f.read(), data)

    def test_stdout_in_append_mode_stays_so(self):
        target = os.path.join(self.base, 'target')
        with open(target, 'w') as f:
            f.write('before\n')
        with open(target, 'ab') as f:
            self.assertEqual(self.popen('--', 'echo', 'after', stdout=f).wait(wire.DEADLINE), 0)
        with open(target) as f:
            self.assertEqual(f.read(), 'before\nafter\n')

    def test_sockets_as_streams(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            p = self.popen('--', 'cat', stdin=theirs, stdout=theirs)
            theirs.close()
            data = os.urandom(1 << 20)
            sender = threading.Thread(target=lambda: (ours.sendall(data), ours.shutdown(socket.SHUT_WR)))
            sender.start()
            got = b''.join(iter(lambda: ours.recv(65536), b''))
            sender.join()
            self.assertEqual((p.wait(wire.DEADLINE), got == data), (0, True))

    def test_a_slow_reader_gets_everything_and_nobody_spins(self):
        p = self.popen('--', 'sh', '-c', 'head -c 3000000 /dev/zero; echo end', stderr=subprocess.DEVNULL)
        time.sleep(1)
        ticks = os.sysconf('SC_CLK_TCK')
        with open('/proc/%d/stat' % p.pid) as f:
            fields = f.read().rsplit(')', 1)[1].split()
        self.assertLess((int(fields[11]) + int(fields[12])) / ticks, 0.5 * wire.SCALE)
        total = 0
        while True:
            part = os.read(p.stdout.fileno(), 100000)
            if not part:
                break
            total += len(part)
            if total < 1000000:
                time.sleep(0.02)
        self.assertEqual((p.wait(wire.DEADLINE), total), (0, 3000004))

    def test_stdin_is_read_no_faster_than_the_command_reads(self):
        p = self.popen('--', 'sleep', '300', stdin=subprocess.PIPE)
        os.set_blocking(p.stdin.fileno(), False)
        sent, end = 0, time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                sent += os.write(p.stdin.fileno(), b'x' * 65536)
            except BlockingIOError:
                time.sleep(0.02)
        self.assertLess(sent, 1 << 20)
        p.terminate()
        self.assertEqual(p.wait(wire.DEADLINE), 143)

    def test_end_of_stdin_is_told(self):
        self.assertEqual(self.run_verb('--', 'wc', '-c', input=b'x' * 70001)[:2], (0, b'70001\n'))

    def test_who_writes_to_a_command_that_reads_no_more_is_told(self):
        script = 'yes | "$0" sandbox -- sh -c "exec <&-; sleep 0.2; echo done"; echo ${PIPESTATUS[*]}'
        out = subprocess.run(['bash', '-c', script, PROGRAM], capture_output=True, timeout=wire.DEADLINE, env=self.env,
                             cwd=self.work).stdout
        self.assertEqual(out, b'done\n141 0\n')

    def test_closed_stdout_ends_the_command(self):
        p = self.popen('--', 'sh', '-c', 'while :; do echo y; done; echo never >&2')
        self.assertEqual(os.read(p.stdout.fileno(), 2), b'y\n')
        p.stdout.close()
        self.assertEqual(p.wait(wire.DEADLINE), 141)
        self.assertEqual(p.stderr.read(), b'')

    def test_a_full_disk_is_said(self):
        with open('/dev/full', 'wb') as full:
            p = self.popen('--', 'echo', 'x', stdout=full)
            self.assertEqual(p.wait(wire.DEADLINE), 125)
            self.assertEqual(p.stderr.read(), b'sallyport: write stdout: No space left on device\n')

    def test_without_any_stream(self):
        out = os.path.join(self.beside, 'made')
        script = 'exec "$0" sandbox --writable "%s" -- sh -c "echo x > %s" <&- >&- 2>&-' % (self.beside, out)
        code = subprocess.run(['sh', '-c', script, PROGRAM], timeout=wire.DEADLINE, env=self.env, cwd=self.work).returncode
        with open(out) as f:
            self.assertEqual((code, f.read()), (0, 'x\n'))

    def test_the_end_of_the_command_is_the_end(self):
        began = time.monotonic()
        for mode in ('read-only', 'danger-full-access'):
            code, out, _ = self.sh('sleep 300 & setsid sleep 300 & echo bye', '--mode', mode)
            self.assertEqual((code, out), (0, b'bye\n'))
        self.assertLess(time.monotonic() - began, 30 * wire.SCALE)

    def test_last_words_of_what_it_leaves(self):
        code, out, _ = self.sh('(sleep 0.05; echo late) & echo early')
        self.assertEqual((code, out), (0, b'early\nlate\n'))

    def test_our_death_is_everybodys(self):
        p = self.popen('--', 'sh', '-c', 'echo up; sleep 300')
        self.assertEqual(p.stdout.read(3), b'up\n')
        p.kill()
        p.wait()
        wait_until(lambda: not marked(self.mark.encode()), 'end of all processes', 15 * wire.SCALE)


@ours_only
class Signals(Verb):
    def started(self, script, **how):
        p = self.popen('--', 'sh', '-c', script, **how)
        self.assertEqual(p.stdout.read(3), b'up\n')
        return p

    def test_signals_are_passed_on(self):
        for name in ('INT', 'TERM', 'HUP', 'QUIT', 'USR1', 'USR2'):
            with self.subTest(name):
                p = self.started('trap "echo got; exit 9" %s; echo up; while :; do sleep 0.05; done' % name)
                p.send_signal(getattr(signal, 'SIG' + name))
                self.assertEqual((p.wait(wire.DEADLINE), p.stdout.read()), (9, b'got\n'))

    def test_a_signal_that_is_not_handled_ends_it(self):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = self.popen('--', 'cat', stdin=subprocess.PIPE)  # a shell has ideas of its own about INT
            p.stdin.write(b'up\n')
            self.assertEqual(p.stdout.read(3), b'up\n')
            p.send_signal(sig)
            self.assertEqual((p.wait(wire.DEADLINE), p.stdout.read()), (128 + sig, b''))

    def test_what_was_ignored_stays_so(self):
        p = self.popen('--', 'sh', '-c', 'echo up; read x; echo $x', stdin=subprocess.PIPE,
                       preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertEqual(p.stdout.read(3), b'up\n')
        p.send_signal(signal.SIGHUP)
        p.stdin.write(b'alive\n')
        self.assertEqual((p.wait(wire.DEADLINE), p.stdout.read()), (0, b'alive\n'))

    def test_stop_and_continue(self):
        p = self.started('echo up; while :; do echo x; sleep 0.05; done')
        p.send_signal(signal.SIGTSTP)
        wait_until(lambda: self.state(p.pid) == 'T', 'stop')
        while select.select([p.stdout], [], [], 0.3)[0]:
            os.read(p.stdout.fileno(), 65536)
        p.send_signal(signal.SIGCONT)
        self.assertTrue(select.select([p.stdout], [], [], wire.DEADLINE)[0])
        p.terminate()
        self.assertEqual(p.wait(wire.DEADLINE), 143)

    def state(self, pid):
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rsplit(')', 1)[1].split()[0]


# --------------------------------------------------------------------------------------- terminal


class Screen(terminal.Screen):
    """Closed with its test case. What was shown is taken piece by piece."""

    def __init__(self, case, argv, rows=30, cols=100, cwd=None, env=None):
        super().__init__(argv, dict(case.env, TERM='dumb', PS1='$ ', ENV='', **(env or {})), rows, cols, cwd=cwd or case.work)
        self.p = self.popen
        case.addCleanup(self.close)

    def wait_for(self, pattern):
        """What was shown up to the end of the match; the rest is left for the next one."""
        end = wire.deadline()
        while True:
            m = re.search(pattern, self.seen)
            if m:
                shown, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return shown
            if time.monotonic() > end or not select.select([self.master], [], [], end - time.monotonic())[0]:
                raise wire.Timeout('%r was not shown: %r' % (pattern, self.seen[-2000:]))
            try:
                part = os.read(self.master, 65536)
            except OSError:
                part = b''
            if not part:
                raise AssertionError('%r was not shown: %r' % (pattern, self.seen[-2000:]))
            self.seen += part

    def wait(self):
        return self.p.wait(wire.DEADLINE)

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)


@ours_only
class Terminal(Verb):
    def screen(self, *words, **how):
        return Screen(self, self.args(*words), **how)

    def test_on_a_terminal_the_command_gets_one(self):
        s = self.screen('--', 'sh', '-c', 'test -t 0 && test -t 1 && test -t 2 && stty size && tty')
        self.assertRegex(s.wait_for(rb'pts/\d+\r\n'), rb'^30 100\r\n/dev/pts/')
        self.assertEqual((s.wait(), s.is_restored()), (0, True))

    def test_no_tty_gives_pipes(self):
        s = self.screen('--no-tty', '--', 'sh', '-c', 'test -t 0 || test -t 1 || test -t 2 || echo pipes')
        s.wait_for(rb'^pipes\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (0, True))

    def test_tty_without_a_terminal(self):
        code, out, err = self.run_verb('--tty', '--', 'sh', '-c', 'test -t 0 && test -t 2 && stty size; cat', input=b'a\n')
        self.assertEqual((code, out.replace(b'a\r\n', b''), err), (0, b'24 80\r\n', b''))

    def test_the_window_can_change(self):
        s = self.screen('--', 'sh', '-c', 'trap "stty size; exit 3" WINCH; echo up; while :; do sleep 0.05; done')
        s.wait_for(rb'up\r\n')
        s.resize(41, 111)
        s.wait_for(rb'41 111\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (3, True))

    def test_keys_are_the_commands(self):
        s = self.screen('--', 'sh', '-c', 'trap "echo interrupted; exit 5" INT; echo up; while :; do sleep 0.05; done')
        s.wait_for(rb'up\r\n')
        wait_until(s.is_raw, 'raw mode')
        s.type(b'\x03')
        s.wait_for(rb'interrupted\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (5, True))

    def test_a_line_is_echoed_once_and_ends(self):
        s = self.screen('--', 'cat')
        wait_until(s.is_raw, 'raw mode')
        s.type(b'hello\n')
        self.assertEqual(s.wait_for(rb'hello\r\nhello\r\n'), b'hello\r\nhello\r\n')
        s.type(b'\x04')
        self.assertEqual((s.wait(), s.is_restored()), (0, True))

    def test_job_control_inside(self):
        s = self.screen('--', 'bash', '--norc', '--noprofile', '-i')
        s.wait_for(rb'\$ ')
        s.type(b'sh -c "echo rea\'\'dy; exec cat"\n')
        s.wait_for(rb'ready\r\n')
        s.type(b'up\n')
        s.wait_for(rb'up\r\nup\r\n')
        s.type(b'\x1a')
        s.wait_for(rb'Stopped')
        s.wait_for(rb'\$ ')
        s.type(b'kill %1; fg; exit 4\n')
        s.wait_for(rb'exit 4\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (4, True))

    def test_the_terminal_is_restored_whatever_ends_it(self):
        for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            with self.subTest(sig):
                s = self.screen('--', 'cat')
                wait_until(s.is_raw, 'raw mode')
                s.type(b'up\n')
                s.wait_for(rb'up\r\nup\r\n')
                s.p.send_signal(sig)
                self.assertEqual((s.wait(), s.is_restored()), (128 + sig, True))

    def test_the_terminal_is_restored_when_nothing_starts(self):
        s = self.screen('--', 'no-such-program')
        s.wait_for(rb'command not found\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (127, True))

    def test_a_terminal_that_goes_away_ends_it(self):
        s = self.screen('--', 'sh', '-c', 'echo up; exec sleep 300')
        s.wait_for(rb'up\r\n')
        os.close(s.slave)
        os.close(s.master)
        s.slave = s.master = -1
        self.assertIn(s.wait(), (129, 141))

    def test_much_output_on_a_terminal(self):
        s = self.screen('--', 'sh', '-c', 'seq 1 20000; echo end')
        shown = s.wait_for(rb'end\r\n')
        self.assertEqual(shown, b''.join(b'%d\r\n' % i for i in range(1, 20001)) + b'end\r\n')
        self.assertEqual((s.wait(), s.is_restored()), (0, True))

    def test_in_the_background_of_a_shell(self):
        """A background job may neither be stopped by the terminal nor take its keys."""
        s = Screen(self, ['bash', '--norc', '--noprofile', '-i'])
        s.wait_for(rb'\$ ')
        s.type(b'"%s" sandbox -- sh -c "echo from behind" & wait; echo st"a"tus $?\n' % PROGRAM.encode())
        s.wait_for(rb'from behind\r\n')
        s.wait_for(rb'status 0\r\n')
        s.type(b'exit 0\n')
        self.assertEqual(s.wait(), 0)

    def test_stop_and_foreground_from_a_shell(self):
        s = Screen(self, ['bash', '--norc', '--noprofile', '-i'])
        s.wait_for(rb'\$ ')
        s.type(b'"%s" sandbox --no-tty -- sh -c "echo rea\'\'dy; exec cat"\n' % PROGRAM.encode())
        s.wait_for(rb'ready\r\n')
        s.type(b'up\n')
        s.wait_for(rb'up\r\nup\r\n')
        s.type(b'\x1a')
        s.wait_for(rb'Stopped')
        s.wait_for(rb'\$ ')
        s.type(b'fg\n')
        s.wait_for(rb'exec cat"\r\n')
        s.type(b'again\n')
        s.wait_for(rb'again\r\nagain\r\n')
        s.type(b'\x03')
        s.wait_for(rb'\$ ')
        s.type(b'echo st"a"tus $?; exit 0\n')
        s.wait_for(rb'status 130\r\n')
        self.assertEqual(s.wait(), 0)

    def test_one_line_about_a_denial(self):
        s = self.screen('--', 'touch', 'x')
        s.wait_for(rb"Read-only file system\r\nsallyport: the sandbox may have denied this \(guessed from its output\): "
                   rb"read only file system\r\n")
        self.assertEqual(s.wait(), 1)


# ---------------------------------------------------------------------------------------- policies


@ours_only
class Policy(Verb):
    def can_write(self, path, *options):
        code, _, err = self.run_verb(*options, '--', 'sh', '-c', 'echo x > "$0"/made', path)
        made = os.path.join(path, 'made')
        self.assertEqual(os.path.exists(made), code == 0, err)
        if code == 0:
            os.unlink(made)
        return code == 0

    def test_read_only_is_the_default(self):
        self.assertFalse(self.can_write(self.work))
        self.assertFalse(self.can_write(self.tmp))
        self.assertFalse(self.can_write(self.work, '--mode', 'read-only'))
        self.assertEqual(self.run_verb('--', 'cat', '/etc/passwd')[0], 0)

    def test_workspace_write(self):
        mode = ('--mode', 'workspace-write')
        self.assertTrue(self.can_write(self.work, *mode))
        self.assertTrue(self.can_write(self.tmp, *mode))
        self.assertFalse(self.can_write(self.beside, *mode))
        self.assertFalse(self.can_write(self.work, *mode, '--cwd', self.beside))
        self.assertTrue(self.can_write(self.beside, *mode, '--cwd', self.beside))

    def test_protected_names_are_kept_and_no_placeholder_is_left(self):
        os.mkdir(os.path.join(self.work, '.codex'))
        for name in sorted(PROTECTED):
            code, _, _ = self.sh('mkdir -p %s && echo x > %s/made' % (name, name), '--mode', 'workspace-write')
            if name in ('.git', '.agents', '.codex'):
                self.assertNotEqual(code, 0, name)
        renamed = [name for name in os.listdir(self.work) if '.made-in-sandbox-' in name]
        self.assertEqual(len(renamed), 2)
        for name in renamed:
            shutil.rmtree(os.path.join(self.work, name))
        self.assertEqual(os.listdir(self.work), ['.codex'])
        self.assertEqual(os.listdir(os.path.join(self.work, '.codex')), [])
        os.rmdir(os.path.join(self.work, '.codex'))

    def test_writable_adds_a_place(self):
        for mode in ('read-only', 'workspace-write'):
            self.assertTrue(self.can_write(self.beside, '--mode', mode, '--writable', self.beside))
            self.assertTrue(self.can_write(self.beside, '--mode', mode, '--writable', '../beside'))
        self.assertFalse(self.can_write(self.work, '--writable', self.beside))

    def test_a_profile_from_a_file(self):
        secret = os.path.join(self.work, 'secret')
        with open(secret, 'w') as f:
            f.write('hidden\n')
        entry = lambda path, access: {'path': {'type': 'path', 'path': path}, 'access': access}
        path = self.profile({'type': 'managed', 'network': 'restricted', 'file_system': {'type': 'restricted', 'entries': [
            {'path': {'type': 'special', 'value': {'kind': 'root'}}, 'access': 'read'},
            entry(self.beside, 'write'), entry(secret, 'deny')]}})
        self.assertTrue(self.can_write(self.beside, '--profile', path))
        self.assertFalse(self.can_write(self.work, '--profile', path))
        code, out, _ = self.run_verb('--profile', path, '--', 'cat', secret)
        self.assertNotEqual((code, out), (0, b'hidden\n'))
        self.assertEqual(self.run_verb('--', 'cat', secret)[:2], (0, b'hidden\n'))

    def test_an_old_mode_in_a_file(self):
        path = self.profile({'type': 'workspace-write', 'writable_roots': [self.beside]})
        self.assertTrue(self.can_write(self.beside, '--profile', path))
        self.assertTrue(self.can_write(self.work, '--profile', path))

    def test_bad_profiles_name_their_file(self):
        for text, says in ((b'{', b'EOF while parsing'), (b'[]', b'invalid type'), (b'{"type":"odd"}', b'unknown variant `odd`'),
                           (b'{"a":' + b' ' * (1 << 20) + b'1}', b'at most 1 MiB'), (b'', b'')):
            with self.subTest(text[:20]):
                path = self.profile(text)
                code, out, err = self.run_verb('--profile', path, '--', 'echo', 'ran')
                self.assertEqual((code, out), (125, b''))
                self.assertTrue(err.startswith(b'sallyport: %s: ' % path.encode()), err)
                self.assertIn(says, err)
        code, _, err = self.run_verb('--profile', self.base + '/none', '--', 'true')
        self.assertEqual((code, err), (125, b'sallyport: read %s/none: No such file or directory\n' % self.base.encode()))
        code, _, err = self.run_verb('--profile', self.base, '--', 'true')
        self.assertEqual((code, err), (125, b'sallyport: read %s: Is a directory\n' % self.base.encode()))

    def test_the_network_is_closed_unless_asked_for(self):
        with socket.socket() as listener:
            listener.bind(('127.0.0.1', 0))
            listener.listen()
            script = 'exec 3<>/dev/tcp/127.0.0.1/%d' % listener.getsockname()[1]
            self.assertNotEqual(self.run_verb('--', 'bash', '-c', script)[0], 0)
            self.assertEqual(self.run_verb('--network', '--', 'bash', '-c', script)[0], 0)
            self.assertEqual(self.run_verb('--mode', 'danger-full-access', '--', 'bash', '-c', script)[0], 0)

    def test_full_access(self):
        self.assertTrue(self.can_write(self.beside, '--mode', 'danger-full-access'))
        code, out, _ = self.run_verb('--mode', 'danger-full-access', '--', 'grep', 'NoNewPrivs', '/proc/self/status')
        self.assertEqual((code, out), (0, b'NoNewPrivs:\t1\n'))

    def test_external_sandbox(self):
        self.assertTrue(self.can_write(self.beside, '--mode', 'external-sandbox'))

    def test_what_the_kernel_refused_is_told(self):
        code, _, err = self.run_verb('-v', '--', 'unshare', '-r', 'true')
        self.assertNotEqual(code, 0)
        self.assertIn(b'sallyport: the sandbox denied the command something:\n', err)
        self.assertIn(b'  refused system calls (reported by the kernel): unshare\n', err)

    def test_what_words_say_is_told_as_such(self):
        path = os.path.join(self.work, 'x')
        code, _, err = self.run_verb('--verbose', '--', 'touch', path)
        self.assertEqual(code, 1)
        self.assertIn(b'  guessed from its output: read only file system, %s\n' % path.encode(), err)

    def test_stderr_that_is_no_terminal_is_the_commands_alone(self):
        self.assertEqual(self.sh('echo permission denied >&2; exit 1'), (1, b'', b'permission denied\n'))

    def test_success_is_no_denial(self):
        self.assertEqual(self.sh('echo permission denied >&2', '-v'), (0, b'', b'permission denied\n'))


# ------------------------------------------------------------------------------ plan, explain, usage


@ours_only
class Show(Verb):
    def plan(self, *options):
        code, out, err = self.run_verb(*options, '--print-plan')
        self.assertEqual((code, err), (0, b''))
        head, _, places = out.decode().partition('places:\n')
        return dict(line.split(': ', 1) for line in head.splitlines()), [tuple(p.split(None, 1)) for p in places.splitlines()]

    def explain(self, path, *options):
        code, out, err = self.run_verb(*options, '--explain', path)
        self.assertEqual((code, err), (0, b''))
        lines = out.decode().splitlines()
        self.assertEqual(lines[0], os.path.normpath(os.path.join(self.work, path)))
        return dict(line.strip().split(': ', 1) if ': ' in line else ('leads', line.strip()) for line in lines[1:])

    def test_the_plan_of_read_only(self):
        head, places = self.plan()
        self.assertEqual((head['confinement'], head['network']), ('full', 'none but a loopback of its own'))
        self.assertNotIn('write', [what for what, _ in places])

    def test_the_plan_of_a_workspace_makes_nothing(self):
        os.mkdir(os.path.join(self.work, '.codex'))
        head, places = self.plan('--mode', 'workspace-write', '--network')
        self.assertEqual(head['network'], "the host's")
        self.assertIn(('write', self.work), places)
        self.assertIn(('placeholder', self.work + '/.git'), places)
        self.assertIn(('read-only', self.work + '/.codex'), places)
        self.assertEqual(os.listdir(self.work), ['.codex'])
        os.rmdir(os.path.join(self.work, '.codex'))

    def test_the_plan_of_full_access(self):
        self.assertEqual(self.plan('--mode', 'danger-full-access')[0]['confinement'], 'none')

    def test_explain_names_the_entry(self):
        mode = ('--mode', 'workspace-write')
        got = self.explain('file', *mode)
        self.assertEqual(got['read'], 'yes, entry 1 (special project_roots: write)')
        self.assertEqual(got['write'], 'yes, entry 1 (special project_roots: write)')
        got = self.explain(self.beside, *mode)
        self.assertEqual(got['read'], 'yes, entry 0 (special root: read)')
        self.assertEqual(got['write'], 'no, entry 0 (special root: read)')
        got = self.explain(self.beside, *mode, '--writable', self.beside)
        self.assertRegex(got['write'], r'^yes, entry \d+ \(path %s: write\)$' % re.escape(self.beside))

    def test_explain_takes_no_option_behind_a_path(self):
        for words in (('a', '--mode', 'workspace-write'), ('a', '-v'), ('--', 'a', '-b')):
            code, out, err = self.run_verb('--explain', *words)
            self.assertEqual((code, out), (125, b''))
            self.assertIn(b'options come before the paths', err)
        self.assertEqual(self.run_verb('--explain', 'a', './-b')[0], 0)

    def test_explain_names_protected_names(self):
        got = self.explain('.git/config', '--mode', 'workspace-write')
        self.assertEqual(got['write'], 'no, .git is protected in this sandbox, below a writable root of entry 1 '
                                       '(special project_roots: write); write access to exactly %s/.git allows it' % self.work)
        self.assertIn('an empty directory stands at %s/.git' % self.work, got['note'])
        self.assertEqual(os.listdir(self.work), [])

    def test_explain_follows_symlinks(self):
        os.symlink(self.beside, os.path.join(self.work, 'link'))
        got = self.explain('link/x/y', '--mode', 'workspace-write')
        self.assertEqual(got['leads'], 'leads to %s/x/y' % self.beside)
        self.assertEqual(got['write'], 'no, entry 0 (special root: read)')

    def test_explain_names_patterns(self):
        for name in ('a.key', 'b'):
            with open(os.path.join(self.work, name), 'w'):
                pass
        path = self.profile({'type': 'managed', 'network': 'restricted', 'file_system': {'type': 'restricted', 'entries': [
            {'path': {'type': 'special', 'value': {'kind': 'root'}}, 'access': 'read'},
            {'path': {'type': 'glob_pattern', 'pattern': '*.key'}, 'access': 'deny'}]}})
        got = self.explain('a.key', '--profile', path)
        self.assertEqual(got['read'], 'no, pattern %s/*.key matches %s/a.key' % (self.work, self.work))
        self.assertTrue(self.explain('b', '--profile', path)['read'].startswith('yes'))
        got = self.explain('c.key', '--profile', path)
        self.assertTrue(got['read'].startswith('yes'))
        self.assertIn('nothing is there', got['note'])

    def test_explain_names_covers_and_what_is_made_anew(self):
        self.assertEqual(self.explain(self.runtime)['read'], 'no, %s is kept from every confined command' % self.runtime)
        self.assertEqual(self.explain('/proc/1')['read'], 'yes, commands get a /proc of their own')
        self.assertEqual(self.explain('/dev/null')['write'], 'yes, commands get a /dev of their own')
        if not os.path.islink('/run') and os.path.isdir('/run'):
            self.assertEqual(self.explain('/run/some.sock')['read'], 'no, /run is empty for confined commands')

    def test_explain_says_when_nothing_names_it(self):
        path = self.profile({'type': 'managed', 'network': 'restricted', 'file_system': {'type': 'restricted', 'entries': [
            {'path': {'type': 'path', 'path': self.work}, 'access': 'read'}]}})
        self.assertEqual(self.explain(self.beside, '--profile', path), {'read': 'no, no entry names it', 'write': 'no, no entry names it'})
        self.assertEqual(self.explain('/', '--mode', 'danger-full-access')['write'], 'yes, the policy restricts no files')

    def test_explain_as_json(self):
        os.symlink(self.beside, os.path.join(self.work, 'link'))
        code, out, err = self.run_verb('--mode', 'workspace-write', '--json', '--explain', 'link', '.git')
        self.assertEqual((code, err), (0, b''))
        link, git = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(link, {'path': self.work + '/link', 'real': self.beside, 'read': True, 'write': False,
                                'reason': 'entry 0 (special root: read)', 'notes': link['notes']})
        self.assertEqual((git['write'], len(git['notes'])), (False, 1))
        self.assertIn('an empty directory stands at', git['notes'][0])

    def test_no_command_reads_the_log_of_decisions(self):
        home = tempfile.mkdtemp(dir='/var/tmp')
        self.addCleanup(shutil.rmtree, home)
        log = os.path.join(home, '.sallyport', 'audit.jsonl')
        env = dict(os.environ, HOME=home)
        env.pop('SALLYPORT_HOME', None)
        self.assertEqual(subprocess.run([PROGRAM, 'exec', '--approve', 'never', '--', 'true'], env=env).returncode, 0)
        self.assertGreater(os.path.getsize(log), 0)
        for words in (('sandbox',), ('sandbox', '--sandbox', ':workspace'), ('exec', '--sandbox', ':read-only')):
            run = subprocess.run([PROGRAM, *words, '--', 'cat', log], env=env, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (1, ''))
            self.assertIn('Permission denied', run.stderr)

    def test_explain_takes_several_paths(self):
        code, out, _ = self.run_verb('--explain', '/a', 'b')
        self.assertEqual((code, [line for line in out.decode().splitlines() if line[0] == '/']), (0, ['/a', self.work + '/b']))

    def test_what_explain_says_is_so(self):
        mode = ('--mode', 'workspace-write')
        os.symlink(self.beside, os.path.join(self.work, 'link'))
        for path in ('.', 'link', self.beside, self.tmp, '/etc', self.runtime):
            said = self.explain(path, *mode)['write'].startswith('yes')
            done = self.run_verb(*mode, '--', 'sh', '-c', 'echo > "$0"/made && rm "$0"/made', path)[0] == 0
            self.assertEqual(said, done, path)

    def test_bad_usage_is_said_and_is_125(self):
        for words, says in (
                ((), 'sallyport: no command (see sallyport sandbox --help)'),
                (('--',), 'sallyport: no command (see sallyport sandbox --help)'),
                (('--', ''), "sallyport: the command's name is empty (see sallyport sandbox --help)"),
                (('--odd', '--', 'true'), "sallyport: unknown option `--odd` (see sallyport sandbox --help)"),
                (('--mode',), "sallyport: option `--mode` needs an argument: MODE (see sallyport sandbox --help)"),
                (('--mode', 'odd', '--', 'true'),
                 'sallyport: there is no sandbox `odd`; there are :read-only, :workspace, :danger-full-access, the modes read-only, '
                 'workspace-write, danger-full-access, external-sandbox, and each [permissions.NAME] of the configuration'),
                (('--mode', 'read-only', '--profile', 'x', '--', 'true'), 'sallyport: --sandbox and --profile: give one of them'),
                (('--tty', '--no-tty', '--', 'true'), 'sallyport: --tty and --no-tty: give one of them (see sallyport sandbox --help)'),
                (('--print-plan', 'true'), 'sallyport: --print-plan runs no command (see sallyport sandbox --help)'),
                (('--print-plan', '--explain', '/'), 'sallyport: --print-plan, --explain and --explain-host: give one of them (see sallyport sandbox --help)'),
                (('--explain',), 'sallyport: --explain needs a path (see sallyport sandbox --help)'),
                (('--cwd', '/no/such', '--', 'true'), 'sallyport: --cwd: /no/such: No such file or directory'),
                (('--cwd', '/etc/passwd', '--', 'true'), 'sallyport: --cwd: /etc/passwd: Not a directory'),
                (('--writable', '/no/such', '--', 'true'), 'sallyport: --writable: /no/such: No such file or directory'),
                (('--mode', 'danger-full-access', '--writable', '/tmp', '--', 'true'),
                 'sallyport: --writable: /tmp: everything may be written under this policy already')):
            with self.subTest(words):
                self.assertEqual(self.run_verb(*words), (125, b'', says.encode() + b'\n'))

    def test_help(self):
        code, out, err = self.run_verb('--help')
        self.assertEqual((code, err), (0, b''))
        self.assertTrue(out.startswith(b'Usage: sallyport sandbox '))


if __name__ == '__main__':
    tap.main()
