# SPDX-License-Identifier: Apache-2.0
"""How a command is started: stdio, session, descriptors, signals, cwd, argv, PATH, limits, errors,
exit codes, terminals, and path URIs."""

import base64
import os
import pwd
import resource
import signal

import tap
from server import PEER, PYTHON, Case, descendants, is_alive, ours_only, stat_of
from wire import b64, file_uri, wait_until, write_program

ENOENT = 'No such file or directory (os error 2)'
EACCES = 'Permission denied (os error 13)'


class Pipes(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def test_stdout_and_stderr_are_two_pipes(self):
        p = self.c.sh('echo out; echo err >&2; readlink /proc/self/fd/1 >&2; exit 3')
        self.assertEqual(p.stdout, b'out\n')
        lines = p.stderr.decode().split('\n')
        self.assertEqual(lines[0], 'err')
        self.assertRegex(lines[1], 'pipe:')
        self.assertEqual(p.exit_code, 3)

    def test_stdin_is_dev_null_unless_asked_for(self):
        p = self.c.sh('readlink /proc/self/fd/0; cat; echo end')
        self.assertEqual(p.stdout, b'/dev/null\nend\n')
        self.c.start('p', ['/bin/sh', '-c', 'readlink /proc/self/fd/0; cat'], pipeStdin=True)
        self.assertRegex(self.c.wait_line('p'), '^pipe:')
        self.c.terminate('p')

    def test_a_command_leads_its_own_session_and_group(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        pid = int(self.c.wait_line('p'))
        _state, _parent, group, session, _born = stat_of(pid)
        self.assertEqual((group, session), (pid, pid))
        with open('/proc/%d/stat' % pid) as f:
            self.assertEqual(f.read().rsplit(')', 1)[1].split()[4], '0', 'no controlling terminal')
        self.c.terminate('p')

    def test_no_descriptor_is_inherited(self):
        script = ("import os\nprint(sorted(int(f) for f in os.listdir('/proc/self/fd') "
                  "if os.path.exists('/proc/self/fd/' + f)))")
        r, w = os.pipe()
        try:
            os.set_inheritable(r, True)
            srv = self.server(pass_fds=(r,))
            c = srv.session()
            c.start('other', ['sleep', '1000'], pipeStdin=True)
            for how in ({}, {'pipeStdin': True}, {'tty': True}):
                p = c.run([PYTHON, '-S', '-c', script], **how)
                self.assertEqual(p.text.strip(), '[0, 1, 2]', how)
        finally:
            os.close(r)
            os.close(w)

    def signals(self, how, before_exec=None):
        c = self.server(before_exec=before_exec).session()
        text = c.run(['cat', '/proc/self/status'], **how).text.replace('\r', '')
        fields = dict(line.split(':\t', 1) for line in text.split('\n') if ':\t' in line)
        return [int(fields[name], 16) for name in ('SigBlk', 'SigIgn', 'SigCgt', 'ShdPnd', 'SigPnd')]

    def test_signals_are_default_and_unblocked(self):
        self.assertEqual(self.signals({}), [0, 0, 0, 0, 0])
        self.assertEqual(self.signals({'tty': True}), [0, 0, 0, 0, 0])

    def test_signals_the_server_was_started_with_are_not_passed_on(self):
        def before():
            for one in (signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGCHLD):
                signal.signal(one, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM, signal.SIGWINCH})
        if PEER:
            self.skipTest('the reference waits for a blocked SIGTERM')
        self.assertEqual(self.signals({}, before), [0, 0, 0, 0, 0])
        self.assertEqual(self.signals({'tty': True}, before), [0, 0, 0, 0, 0])

    def test_umask_limits_and_nice_are_the_servers(self):
        def before():
            os.umask(0o027)
            os.nice(3)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (384, min(hard, 2000) if hard > 0 else 2000))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        c = self.server(before_exec=before).session()
        for how in ({}, {'tty': True}):
            text = c.run(['/bin/sh', '-c', 'umask; ulimit -Sn; ulimit -Hn; ulimit -c; nice'], **how).text.split()
            self.assertEqual(text[0], '0027')
            self.assertEqual(text[3:], ['0', str(min(os.nice(0) + 3, 19))])
            if not PEER:
                self.assertEqual(text[1:3], ['384', '2000'])

    def test_arg0_replaces_argv_0_only(self):
        for how in ({},) if PEER else ({}, {'tty': True}):
            p = self.c.run(['/bin/sh', '-c', 'echo $0; cat /proc/$$/cmdline | tr "\\0" "|"'], arg0='-my name', **how)
            self.assertEqual(p.text.replace('\r', ''), '-my name\n-my name|-c|echo $0; cat /proc/$$/cmdline | tr "\\0" "|"|')
        self.assertEqual(self.c.run(['/bin/sh', '-c', 'echo $0'], arg0='').text, '\n')
        self.assertEqual(self.c.run(['/bin/sh', '-c', 'echo $0'], arg0=None).text, '/bin/sh\n')

    def test_arguments_arrive_exactly(self):
        args = ['', ' ', 'a b', '"', "'", '\\', '\n', 'é😀', '*', '$HOME', '-n', 'x' * 100000]
        p = self.c.run([PYTHON, '-S', '-c', 'import sys; print(sys.argv[1:])', *args])
        self.assertEqual(p.text.strip(), repr(args))

    def test_too_long_arguments_are_an_error_of_the_spawn(self):
        error = self.c.start_error('p', ['true', 'x' * 200000])
        self.assertError(error, -32603, 'Argument list too long (os error 7)')
        self.assertEqual(self.c.run(['true'], 'p').exit_code, 0)

    def test_cwd_is_entered(self):
        path = os.path.join(self.srv.work, 'a b%41é#')
        os.mkdir(path)
        for how in ({}, {'tty': True}):
            p = self.c.run(['/bin/pwd'], cwd=file_uri(path), **how)
            self.assertEqual(p.text.strip(), path)

    def test_process_ids_may_be_any_string(self):
        for pid in ('', 'x' * 2000, 'é😀', '\n\u0000"', '0', ' '):
            self.assertEqual(self.c.run(['echo', 'hi'], pid).stdout, b'hi\n')
            self.assertEqual(self.c.read(pid)['exitCode'], 0)

    def test_a_taken_id_is_refused_and_the_first_lives_on(self):
        self.c.start('p', ['sleep', '1000'])
        self.assertError(self.c.start_error('p', ['true']), -32600, 'process p already exists')
        self.assertFalse(self.c.read('p')['exited'])
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.assertError(self.c.start_error('p', ['true']), -32600, 'process p already exists')

    def test_a_failed_start_leaves_the_id_free(self):
        self.assertError(self.c.start_error('p', ['/no/such']), -32603, ENOENT)
        self.assertError(self.c.error('process/read', {'processId': 'p'}), -32600, 'unknown process id p')
        self.assertEqual(self.c.run(['true'], 'p').exit_code, 0)

    def test_exit_codes(self):
        for code in (0, 1, 2, 127, 255):
            self.assertEqual(self.c.sh('exit %d' % code).exit_code, code)

    def test_death_by_signal_n_is_128_plus_n(self):
        for how in ({},) if PEER else ({}, {'tty': True}):
            for number in (1, 2, 6, 9, 11, 15, 31):
                p = self.c.sh('ulimit -c 0; kill -%d $$; sleep 1000' % number, **how)
                self.assertEqual(p.exit_code, 128 + number, how)

    def test_a_process_without_output_takes_two_numbers(self):
        p = self.c.run(['true'])
        self.assertEqual((p.exit_seq, p.close_seq), (1, 2))

    def test_tty_false_ignores_sizes_and_pipe_stdin_null_is_refused(self):
        self.assertError(self.c.start_error('p', ['true'], pipeStdin=None), -32602)
        self.assertError(self.c.start_error('p', ['true'], tty=None), -32602)
        self.assertError(self.c.start_error('p', ['true'], tty='yes'), -32602)

    def test_a_thousand_arguments_and_variables(self):
        env = {'V%d' % i: str(i) for i in range(1000)}
        p = self.c.run(['/bin/sh', '-c', 'echo $#; echo $V999'] + ['x'] * 1001, env=env)
        self.assertEqual(p.stdout, b'1000\n999\n')

    @ours_only
    def test_an_old_shell_snapshot_request_runs_without(self):
        p = self.c.run(['/bin/bash', '-lc', 'echo hi'], shellSnapshot={
            'scopeId': 's', 'shell': {'name': 'bash', 'path': '/bin/bash'}})
        self.assertEqual(p.stdout, b'hi\n')

    @ours_only
    def test_what_cannot_be_enforced_is_refused(self):
        proxy = {'proxy': {'enabled': True, 'enableSocks5': False, 'enableSocks5Udp': False, 'allowUpstreamProxy': False,
                           'dangerouslyAllowAllUnixSockets': False, 'allowLocalBinding': False, 'mode': 'full'}}
        marker = os.path.join(self.srv.work, 'ran')
        for how in ({'sandbox': {}}, {'networkProxy': proxy}, {'networkProxy': {}},
                    {'managedNetwork': {'loopbackPorts': [1]}}):
            error = self.c.start_error('p', ['touch', marker], **how)
            self.assertError(error, -32602)
        self.assertFalse(os.path.exists(marker))
        p = self.c.run(['true'], sandbox=None, networkProxy=None, managedNetwork=None, enforceManagedNetwork=False,
                       shellSnapshot=None, metadata=None, envPolicy=None)
        self.assertEqual(p.exit_code, 0)


class Lookup(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()
        self.dir = self.srv.work
        self.kinds = ({},) if PEER else ({}, {'tty': True})

    def tool(self, name, text, mode=0o755):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as f:
            f.write('#!/bin/sh\necho %s\n' % text)
        os.chmod(path, mode)
        return path

    def test_the_childs_path_is_searched(self):
        self.tool('bin/tool', 'mine')
        for how in self.kinds:
            p = self.c.run(['tool'], env={'PATH': '/nowhere:%s/bin:/usr/bin' % self.dir}, **how)
            self.assertEqual(p.text.strip(), 'mine')
            self.assertError(self.c.start_error('p', ['tool'], **how), -32603, ENOENT)
            self.assertError(self.c.start_error('p', ['sh'], env={'PATH': '/nowhere'}, **how), -32603, ENOENT)

    def test_without_path_the_default_is_searched(self):
        for how in self.kinds:
            self.assertEqual(self.c.run(['sh', '-c', 'echo hi'], env={}, **how).text.strip(), 'hi')
            self.assertError(self.c.start_error('p', ['no-such-program'], env={}, **how), -32603, ENOENT)

    def test_a_name_with_a_slash_is_relative_to_the_childs_cwd(self):
        self.tool('sub/tool', 'here')
        for how in self.kinds:
            self.assertEqual(self.c.run(['sub/tool'], **how).text.strip(), 'here')
            self.assertEqual(self.c.run(['./tool'], cwd=file_uri(self.dir + '/sub'), **how).text.strip(), 'here')
            self.assertError(self.c.start_error('p', ['./tool'], **how), -32603, ENOENT)

    def test_what_may_not_be_executed_is_passed_over(self):
        self.tool('a/tool', 'closed', 0o644)
        self.tool('b/tool', 'open')
        os.makedirs(self.dir + '/c/tool')
        for how in self.kinds:
            path = '%s/a:%s/c:%s/b' % (self.dir, self.dir, self.dir)
            self.assertEqual(self.c.run(['tool'], env={'PATH': path}, **how).text.strip(), 'open')
            self.assertError(self.c.start_error('p', ['tool'], env={'PATH': self.dir + '/a:/usr/bin'}, **how), -32603, EACCES)

    def test_an_empty_element_of_path_is_the_cwd(self):
        self.tool('tool', 'cwd')
        for how in self.kinds:
            self.assertEqual(self.c.run(['tool'], env={'PATH': '/nowhere:'}, **how).text.strip(), 'cwd')

    def test_spawn_errors(self):
        plain = self.tool('plain', 'x', 0o644)
        for how in self.kinds:
            start = lambda argv, **more: self.c.start_error('p', argv, **dict(how, **more))
            self.assertError(start(['/no/such/program']), -32603, ENOENT)
            self.assertError(start(['no-such-program']), -32603, ENOENT)
            self.assertError(start([plain]), -32603, EACCES)
            self.assertError(start([self.dir]), -32603, EACCES)
            self.assertError(start(['true'], cwd=file_uri(self.dir + '/missing')), -32603, ENOENT)
            self.assertError(start(['true'], cwd=file_uri(plain)), -32603, 'Not a directory (os error 20)')
            self.assertError(start(['']), -32603)
            self.assertError(start(['a\0b']), -32603)
            self.assertError(start(['echo', 'a\0b']), -32603, 'nul byte found in provided data')
            self.assertError(start([]), -32602, 'argv must not be empty')
            self.assertError(start(['true'], env={'A': 'b\0c', 'PATH': '/bin'}), -32603)
            self.assertError(start(['true'], env={'A\0': 'b', 'PATH': '/bin'}), -32603)
            self.assertError(start([plain + '/x']), -32603, 'Not a directory (os error 20)')
        self.assertError(self.c.start_error('p', ['']), -32603, 'missing program for pipe spawn')
        self.assertError(self.c.start_error('p', ['true'], env={'A': 'b\0c'}), -32603, 'data provided contains a nul byte')
        self.assertEqual(self.c.run(['true'], 'p').exit_code, 0)

    def test_a_script_with_a_missing_interpreter_is_not_found(self):
        path = write_program(os.path.join(self.dir, 'script'), '#!/no/such/interpreter\n')
        self.assertError(self.c.start_error('p', [path]), -32603, ENOENT)

    @ours_only
    def test_a_cwd_that_may_not_be_entered(self):
        if os.getuid() == 0:
            self.skipTest('root may enter everything')
        path = os.path.join(self.dir, 'locked')
        os.mkdir(path, 0)
        self.assertError(self.c.start_error('p', ['true'], cwd=file_uri(path)), -32603, EACCES)

    def test_failed_starts_leave_no_process(self):
        for i in range(50):
            self.c.start_error('p', ['/no/such'], tty=bool(i % 2))
        others = lambda: [p for p in descendants(self.srv.pid) if is_alive(p) and p not in self.srv.program_pids()]
        wait_until(lambda: not others(), 'end of what failed to start')


class Terminals(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def test_a_terminal_of_24_by_80(self):
        p = self.c.run(['stty', 'size'], tty=True)
        self.assertEqual(p.pty, b'24 80\r\n')
        self.assertEqual(p.stdout, b'')

    def test_kernel_default_modes(self):
        text = self.c.run(['stty', '-a'], tty=True).text
        words = text.replace(';', ' ').split()
        for word in ('icanon', 'echo', 'isig', 'icrnl', 'opost', 'onlcr', '-iutf8'):
            self.assertIn(word, words)

    def test_the_terminal_controls_the_session(self):
        script = ('import os; fd = os.open("/dev/tty", os.O_RDWR); me = os.getpid()\n'
                  'print(os.getsid(0) == me, os.getpgrp() == me, os.tcgetpgrp(0) == me, os.tcgetpgrp(fd) == me,'
                  ' len({os.fstat(n).st_rdev for n in (0, 1, 2)}), os.isatty(0))')
        p = self.c.run([PYTHON, '-S', '-c', script], tty=True)
        self.assertEqual(p.text.strip(), 'True True True True 1 True')

    def test_all_output_is_one_stream(self):
        p = self.c.sh('echo out; echo err >&2; echo tty > /dev/tty', tty=True)
        self.assertEqual(p.pty, b'out\r\nerr\r\ntty\r\n')

    def test_echo_and_line_discipline(self):
        self.c.start('p', ['/bin/sh', '-c', 'read a; echo "got:$a"'], tty=True)
        self.assertEqual(self.c.write('p', b'hello\n'), 'accepted')
        p = self.c.wait_closed('p')
        self.assertEqual(p.pty, b'hello\r\ngot:hello\r\n')

    def test_control_c_interrupts(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo ready; exec sleep 1000'], tty=True)
        self.c.wait_output('p', 'ready')
        self.c.write('p', b'\x03')
        self.assertEqual(self.c.wait_closed('p').exit_code, 1 if PEER else 130)

    def test_control_d_ends_input(self):
        self.c.start('p', ['cat'], tty=True)
        self.c.write('p', b'line\n')
        self.c.write('p', b'\x04')
        self.assertEqual(self.c.wait_closed('p').exit_code, 0)

    def test_shell_is_added_and_nothing_else(self):
        shell = pwd.getpwuid(os.getuid()).pw_shell
        p = self.c.run(['/usr/bin/env'], tty=True, env={})
        self.assertEqual(p.text.replace('\r', ''), 'SHELL=%s\n' % shell)
        p = self.c.run(['/usr/bin/env'], tty=True, env={'SHELL': '/mine'})
        self.assertEqual(p.text.replace('\r', ''), 'SHELL=/mine\n')
        self.assertEqual(self.c.run(['/usr/bin/env'], env={}).text, '')

    def test_pipe_stdin_has_no_effect_on_a_terminal(self):
        for value in (True, False):
            p = self.c.run(['tty'], tty=True, pipeStdin=value)
            self.assertRegex(p.text, '^/dev/pts/')

    @ours_only
    def test_output_comes_before_the_exit(self):
        for _ in range(30):
            p = self.c.run(['echo', 'short'], tty=True)
            self.assertEqual(p.pty, b'short\r\n')
            self.assertEqual([c[0] for c in p.chunks] + [p.exit_seq, p.close_seq], list(range(1, len(p.chunks) + 3)))

    @ours_only
    def test_a_long_output_arrives_whole(self):
        p = self.c.run(['/bin/sh', '-c', 'seq 1 20000'], tty=True)
        self.assertEqual(p.pty.decode().split(), [str(i) for i in range(1, 20001)])

    @ours_only
    def test_a_background_job_delays_closed_as_with_a_pipe(self):
        # It ignores the hang-up and holds the terminal.
        self.c.start('p', ['/bin/sh', '-c', 'trap "" HUP; sh -c "echo \\$\\$; exec sleep 1000" & sleep 0.2; exit 4'], tty=True)
        pid = int(self.c.wait_line('p'))
        self.srv.track(pid)
        self.assertEqual(self.c.wait_exited('p').exit_code, 4)
        self.c.fence()
        self.assertFalse(self.c.process('p').closed)
        os.kill(pid, signal.SIGKILL)
        self.c.wait_closed('p')

    @ours_only
    def test_a_job_that_is_hung_up_does_not_delay_closed(self):
        p = self.c.run(['/bin/sh', '-c', 'sleep 1000 & echo $!; exit 0'], tty=True)
        self.srv.track(int(p.text.split()[0]))
        self.assertEqual(p.exit_code, 0)


class PathUris(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def cwd(self, uri):
        message = self.c.reply(self.c.post_start('p-' + b64(uri.encode()), ['/bin/pwd'], cwd=uri))
        if 'error' in message:
            return message['error']
        return self.c.wait_closed('p-' + b64(uri.encode())).stdout.rstrip(b'\n').decode('utf-8', 'surrogateescape')

    def test_spellings_of_one_path(self):
        for uri in ('file:///usr', 'FILE:///usr', 'file:/usr', 'file:usr', 'file://localhost/usr', 'file://LOCALHOST/usr',
                    'file:///usr/', 'file:////usr//', 'file:///usr/./', 'file:///usr/bin/..', 'file:///../../usr',
                    'file:///usr/bin/%2e%2E', 'file:///%75sr', 'file:\\\\\\usr', 'file:///usr\\bin\\..', '  file:///usr \n',
                    'file:///u\tsr', 'file:///us\r\nr', 'file:///usr%2F', '\x01file:///usr'):
            self.assertEqual(self.cwd(uri), '/usr', uri)
        for uri in ('file://', 'file:///', 'file:', 'file:///..', 'file:///usr%2F..'):
            got = self.cwd(uri)
            self.assertEqual(got, '/', uri)

    def test_bytes_that_are_not_utf8(self):
        for name in (b'\xff\xfe', b'100%', b'a%zz', 'é'.encode(), b'a?b#c'):
            path = os.path.join(os.fsencode(self.srv.work), name)
            os.mkdir(path)
            self.assertEqual(os.fsencode(self.cwd(file_uri(path))), path)
        self.assertEqual(self.cwd(file_uri(self.srv.work) + '/100%'), self.srv.work + '/100%')
        self.assertEqual(self.cwd(file_uri(self.srv.work) + '/a%zz'), self.srv.work + '/a%zz')
        self.assertEqual(self.cwd(file_uri(self.srv.work) + '/é'), self.srv.work + '/é')

    def test_what_is_no_path_uri(self):
        cases = {'/usr': 'invalid URI: relative URL without a base', 'usr': None, '': None,
                 'http://x/': 'unsupported path URI scheme `http`', 'c:/x': None,
                 'file:///usr?x=1': 'query parameters are not allowed in path URIs',
                 'file:///usr#f': 'fragments are not allowed in path URIs', 'file:///usr?': None, 'file:///usr#': None,
                 'file:///usr%00x': "'file:///usr%00x' is invalid on 'linux'",
                 'file://user@host/x': None, 'file://host:80/x': None,
                 'file://host/tmp': "cwd URI `file://host/tmp` is not valid on this exec-server host: "
                                    "'file://host/tmp' is invalid on 'linux'",
                 'file:///C:/x': "cwd URI `file:///C:/x` is not valid on this exec-server host: "
                                 "'file:///C:/x' is invalid on 'linux'",
                 'file:///c:/x': None, 'file:///C:': None}
        for uri, _text in cases.items():
            error = self.cwd(uri)
            self.assertIsInstance(error, dict, uri)
            self.assertError(error, -32602)

    def test_paths_without_an_ordinary_spelling(self):
        odd = 'file:///%00/bad/path/'
        encode = lambda p: base64.urlsafe_b64encode(p).rstrip(b'=').decode()
        self.assertError(self.cwd(odd + encode(b'/C:/no/such')), -32603, ENOENT)
        self.assertError(self.cwd(odd + encode(b'/usr')), -32602)
        self.assertError(self.cwd(odd + '!!!'), -32602)
        self.assertError(self.cwd(odd), -32602)


if __name__ == '__main__':
    tap.main()
