# SPDX-License-Identifier: Apache-2.0
"""Every form of policy starts a command, confines it as it says, and answers as specified; what
cannot be read is refused and changes nothing."""

import os
import socket

import tap
from sandbox_policy import (CANNOT, IS_ROOT, MINIMAL, PLACEHOLDERS, PROTECTED, ROOT, WORKSPACE, SandboxCase,
                            confined_cells, context, pattern, place, project_write, read_only, restricted, special,
                            unrestricted, workspace_write)
from server import PYTHON, ours_only
from wire import file_uri, wait_until

READ_ONLY = 'Read-only file system'
NO_ACCESS = 'Permission denied'
ABSENT = 'No such file or directory'


@ours_only
class Profiles(SandboxCase):
    def test_read_only(self):
        c, policy = self.session(), read_only(self.w)
        self.assertEqual(self.said(c, 'cat %s/f; echo ok' % self.o, policy), 'outside\nok\n')
        for target in ('x', self.scratch() + '/x', self.o + '/f', self.t + '/x'):
            self.assertDenied(c, 'echo x > ' + target, policy, READ_ONLY)
        self.assertDenied(c, 'rm %s/f' % self.o, policy, READ_ONLY)
        self.assertEqual(os.listdir(self.w), [])

    def test_workspace_write(self):
        self.put('w/.git/HEAD', 'ref\n')
        c, policy = self.session(), workspace_write(self.w)
        self.assertEqual(self.said(c, 'mkdir d && echo x > d/a && mv d e && cat e/a .git/HEAD', policy), 'x\nref\n')
        self.assertDenied(c, 'echo x > %s/f' % self.o, policy, READ_ONLY)
        self.assertDenied(c, 'echo x > .git/HEAD', policy, READ_ONLY)
        for name in PROTECTED[1:]:
            process = self.run_in(c, 'mkdir %s/x || exit 1; mkdir %s' % (name, name), policy)
            self.assertNotEqual(process.exit_code, 0, name)
            process = self.run_in(c, 'mkdir %s; rm -rf %s; echo x > %s' % (name, name, name), policy)
            if name in PLACEHOLDERS:
                self.assertNotEqual(process.exit_code, 0, name)
            # At once, unless the kernel still counts a process of the command (test_sandbox_cells.py has the rule).
            wait_until(lambda name=name: not os.path.lexists(os.path.join(self.w, name)), name + ' to go')
        self.assertEqual(self.said(c, 'echo x > "$TMPDIR/y" && cat "$TMPDIR/y"', policy), 'x\n')
        self.srv.stop()
        renamed = [name for name in os.listdir(self.w) if name.startswith('.aws.made-in-sandbox-')]
        self.assertIn(len(renamed), (1, 2))  # the directory, if it was seen before the command removed it; the file
        self.assertEqual(sorted(os.listdir(self.w)), sorted(['.git', *renamed, 'e']))

    def test_the_workspace_below_a_temporary_directory(self):
        w = self.scratch()
        os.mkdir(w + '/.git')
        c, policy = self.session(), workspace_write(w)
        self.assertEqual(self.said(c, 'echo x > a; cat a', policy, cwd=file_uri(w)), 'x\n')
        self.assertDenied(c, 'echo x > .git/a', policy, READ_ONLY, cwd=file_uri(w))

    def test_restricted_reads(self):
        c = self.session()
        policy = context(restricted([MINIMAL, special('project_roots', 'write')]), self.w)
        self.assertEqual(self.said(c, 'echo x > a; cat a; ls', policy), 'x\na\n')
        for target in (self.o, self.o + '/f', self.t, self.srv.home, '/var/log', '/home', '/root'):
            process = self.run_in(c, ['/bin/ls', '-d', target], policy)
            self.assertIn(ABSENT, process.stderr.decode(), target)
        self.assertNotEqual(self.run_in(c, 'echo x > /usr/x || echo x > /x', policy).exit_code, 0)
        self.assertEqual(self.said(c, 'ls / | grep -c -x usr; head -c 3 /dev/zero | wc -c', policy), '1\n3\n')

    def test_no_entries_at_all(self):
        c = self.session()
        process = self.run_in(c, ['/bin/true'], context(restricted([]), self.w), cwd='file:///')
        self.assertEqual(process.exit_code, 127)
        self.assertIn(b'/bin/true', process.stderr)

    def test_deny_entries(self):
        secret = self.put('w/secret', 'secret\n')
        private = os.path.dirname(self.put('o/private/f', 'secret\n'))
        c = self.session()
        for word in ('deny', 'none'):
            policy = project_write(self.w, more_entries=[place(secret, word), place(private, word)])
            self.assertDenied(c, ['cat', secret], policy, NO_ACCESS if not IS_ROOT else '')
            process = self.run_in(c, 'cat secret; cat %s/f; ls %s; true' % (private, private), policy)
            self.assertNotIn('secret\n', process.text)
            self.assertEqual(process.text, '')
            self.assertNotEqual(self.run_in(c, 'rm -f secret || mv secret x', policy).exit_code, 0)
        self.assertEqual(open(secret).read(), 'secret\n')

    def test_denied_places_that_do_not_exist_cannot_be_made(self):
        c, later = self.session(), os.path.join(self.w, 'later')
        policy = project_write(self.w, more_entries=[place(later, 'deny')])
        self.assertNotEqual(self.run_in(c, 'echo x > later', policy).exit_code, 0)
        self.assertNotEqual(self.run_in(c, 'mkdir -p later/x', policy).exit_code, 0)

    def test_patterns(self):
        for name in ('w/a.env', 'w/d/b.env', 'w/d/e/c.env'):
            self.put(name, 'secret\n')
        self.put('w/d/plain', 'plain\n')
        c = self.session()
        for text in (self.w + '/**/*.env', '**/*.env'):
            policy = project_write(self.w, more_entries=[pattern(text)])
            process = self.run_in(c, 'cat a.env d/b.env d/e/c.env d/plain', policy)
            self.assertEqual((process.text, process.exit_code), ('plain\n', 1), text)
        shallow = project_write(self.w, more_entries=[pattern('*.env')])
        self.assertEqual(self.run_in(c, 'cat a.env d/b.env', shallow).text, 'secret\n')
        permissions = restricted(WORKSPACE + [pattern('**/*.env')], glob_scan_max_depth=2)
        self.assertEqual(self.run_in(c, 'cat a.env d/b.env d/e/c.env', context(permissions, self.w)).text, 'secret\n')

    def test_patterns_below_the_home_directory(self):
        self.put('o/home/.secret', 'secret\n')
        c = self.session()
        policy = project_write(self.w, more_entries=[pattern('~/.sec*')], userHomeDir=file_uri(self.o + '/home'))
        self.assertNotEqual(self.run_in(c, ['cat', self.o + '/home/.secret'], policy).exit_code, 0)

    def test_written_denied_written_again(self):
        self.put('w/a/x', 'denied\n')
        self.put('w/a/b/x', 'open\n')
        c = self.session()
        policy = context(restricted([ROOT, place(self.w, 'write'), place(self.w + '/a', 'deny'),
                                     place(self.w + '/a/b', 'write')]), self.w)
        self.assertEqual(self.said(c, 'echo x > x; cat x a/b/x; echo more > a/b/y; cat a/b/y', policy),
                         'x\nopen\nmore\n')
        self.assertNotEqual(self.run_in(c, 'cat a/x', policy).exit_code, 0)
        self.assertNotEqual(self.run_in(c, 'echo x > a/y', policy).exit_code, 0)
        self.assertEqual(self.run_in(c, 'ls a', policy).text.replace('b\n', ''), '')

    def test_the_stricter_of_two_entries_for_one_place(self):
        c = self.session()
        both = context(restricted([ROOT, place(self.o, 'read'), place(self.o, 'write')]), self.w)
        self.assertEqual(self.said(c, 'echo x > %s/y' % self.o, both), '')
        denied = context(restricted([ROOT, place(self.o, 'write'), place(self.o, 'deny')]), self.w)
        self.assertNotEqual(self.run_in(c, 'cat %s/f' % self.o, denied).exit_code, 0)

    def test_entries_for_files(self):
        writable, fixed = self.put('o/writable'), self.put('w/fixed')
        c = self.session()
        policy = project_write(self.w, more_entries=[place(writable, 'write'), place(fixed, 'read')])
        self.assertEqual(self.said(c, 'echo new > %s; cat %s' % (writable, writable), policy), 'new\n')
        self.assertDenied(c, 'echo x > %s/other' % self.o, policy, READ_ONLY)
        self.assertDenied(c, 'echo x > fixed', policy, READ_ONLY)
        self.assertNotEqual(self.run_in(c, 'rm -f fixed || mv fixed x', policy).exit_code, 0)
        only = context(restricted([MINIMAL, special('project_roots', 'write'), place(self.o + '/f', 'read')]), self.w)
        self.assertEqual(self.said(c, 'cat %s/f; ls %s' % (self.o, self.o), only), 'outside\nf\n')

    def test_tmpdir_is_that_of_the_command(self):
        c, policy = self.session(), context(restricted([ROOT, special('tmpdir', 'write')]), self.w)
        self.assertEqual(self.said(c, 'echo x > "$TMPDIR/x"', policy), '')
        self.assertIn('x', os.listdir(self.t))
        self.assertEqual(self.said(c, 'echo x > %s/y' % self.o, policy, env={'TMPDIR': self.o}), '')
        self.assertDenied(c, 'echo x > %s/y' % self.t, policy, READ_ONLY, env={'TMPDIR': self.o})
        for other in (None, '', 'relative'):
            self.assertDenied(c, 'echo x > %s/y' % self.t, policy, READ_ONLY, env={'TMPDIR': other})

    def test_slash_tmp(self):
        target = os.path.join(self.scratch(), 'x')
        c, policy = self.session(), context(restricted([ROOT, special('slash_tmp', 'write')]), self.w)
        self.assertEqual(self.said(c, 'echo x > ' + target, policy), '')
        self.assertTrue(os.path.exists(target))
        self.assertDenied(c, 'echo x > x', policy, READ_ONLY)

    def test_project_roots_are_what_the_list_says(self):
        c, entries = self.session(), [ROOT, special('project_roots', 'write')]
        none = dict(context(restricted(entries), self.w), workspaceRoots=[])
        self.assertDenied(c, 'echo x > x', none, READ_ONLY)
        two = context(restricted(entries), self.w, self.o)
        self.assertEqual(self.said(c, 'echo x > x; echo x > %s/x' % self.o, two), '')
        old = context(restricted([ROOT, special('current_working_directory', 'write')]), self.w)
        self.assertEqual(self.said(c, 'echo x > y', old), '')
        sub = context(restricted([ROOT, special('project_roots', 'write', subpath='sub')]), self.w)
        os.mkdir(self.w + '/sub')
        self.assertEqual(self.said(c, 'echo x > sub/y', sub), '')
        self.assertDenied(c, 'echo x > z', sub, READ_ONLY)

    def test_unknown_places_are_ignored(self):
        c = self.session()
        policy = context(restricted([ROOT, special('unknown', 'write', path=':something', subpath='x'),
                                     special('unknown', 'deny', path=':other')]), self.w)
        self.assertEqual(self.said(c, 'cat %s/f' % self.o, policy), 'outside\n')
        self.assertDenied(c, 'echo x > x', policy, READ_ONLY)

    def test_an_entry_reopens_a_protected_name(self):
        self.put('w/.git/HEAD')
        c = self.session()
        policy = project_write(self.w, more_entries=[place(self.w + '/.git', 'write')])
        self.assertEqual(self.said(c, 'echo new > .git/HEAD; cat .git/HEAD', policy), 'new\n')
        self.assertNotEqual(self.run_in(c, 'mkdir .codex/x || mkdir .codex', policy).exit_code, 0)

    def test_policy_context_replaces_cwd_and_roots(self):
        c = self.session()
        policy = project_write(self.w, policyContext={'cwd': file_uri(self.o), 'workspaceRoots': [file_uri(self.o)]})
        self.assertEqual(self.said(c, 'echo x > %s/x' % self.o, policy), '')
        self.assertDenied(c, 'echo x > x', policy, READ_ONLY)
        self.put('o/a.env')
        relative = context(restricted([ROOT, pattern('*.env')]), self.w, policyContext={'cwd': file_uri(self.o)})
        self.assertNotEqual(self.run_in(c, 'cat %s/a.env' % self.o, relative).exit_code, 0)

    def test_members_without_an_effect(self):
        c = self.session()
        for more in ({'sandboxOverride': 'escalatedSandboxWithRestrictions'},
                     {'sandboxOverride': 'bypassSandboxFirstAttempt'},
                     {'temporaryDirectories': [file_uri(self.o)]}, {'windowsSandboxLevel': 'elevated'}, {'cwd': None},
                     {'windowsSandboxPrivateDesktop': True, 'something': 'else'}, {'useLegacyLandlock': True}):
            policy = dict(workspace_write(self.w, **more))
            self.assertEqual(self.said(c, 'echo x > x', policy), '', more)
            self.assertDenied(c, 'echo x > %s/x' % self.o, policy, READ_ONLY)

    def test_a_root_that_is_named_by_a_link(self):
        os.symlink('w', self.base + '/link')
        self.put('w/.git/HEAD')
        c, link = self.session(), self.base + '/link'
        policy = project_write(link)
        self.assertEqual(self.said(c, 'echo x > x; pwd', policy, cwd=file_uri(link)), self.w + '\n')
        self.assertDenied(c, 'echo x > .git/HEAD', policy, READ_ONLY, cwd=file_uri(link))


@ours_only
class Open(SandboxCase):
    """Policies that open the whole disk still confine."""

    def profiles(self, network):
        return {'external': {'type': 'external', 'network': network}, 'unrestricted': unrestricted(network),
                'root': restricted([special('root', 'write')], network)}

    def listener(self):
        s = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(s.close)
        return s, 'exec 3<>/dev/tcp/127.0.0.1/%d' % s.getsockname()[1]

    def test_without_the_network(self):
        c, (s, connect) = self.session(), self.listener()
        for name, permissions in self.profiles('restricted').items():
            policy = context(permissions, self.w)
            script = 'echo x > {0}/{1}; mkdir -p .git .codex; echo x > .git/{1}'.format(self.o, name)
            self.assertEqual(self.said(c, script, policy), '')
            self.assertTrue(os.path.exists(self.o + '/' + name), name)
            self.assertEqual(self.said(c, 'grep -E "NoNewPrivs|CapEff|Seccomp:" /proc/self/status', policy).split(),
                             'CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2'.split(), name)
            self.assertNotEqual(self.run_in(c, ['bash', '-c', connect], policy).exit_code, 0, name)
        s.setblocking(False)
        self.assertRaises(BlockingIOError, s.accept)

    def test_with_the_network(self):
        c, (s, connect) = self.session(), self.listener()
        for name, permissions in self.profiles('enabled').items():
            policy = context(permissions, self.w)
            self.assertEqual(self.said(c, ['bash', '-c', connect + '; echo x > %s/%s' % (self.o, name)], policy), '')
            s.accept()[0].close()
            self.assertNotEqual(self.run_in(c, 'unshare -Ur true', policy).exit_code, 0, name)

    def test_disabled(self):
        c, (s, connect) = self.session(), self.listener()
        policy = {'permissions': {'type': 'disabled'}, 'windowsSandboxLevel': 'disabled'}
        # The start checks that the answer says sandboxType none.
        script = connect + '; echo x > %s/x; grep NoNewPrivs /proc/self/status; readlink /proc/self/ns/mnt' % self.o
        said = self.said(c, ['bash', '-c', script], policy)
        self.assertEqual(said, 'NoNewPrivs:\t1\n%s\n' % os.readlink('/proc/self/ns/mnt'))
        s.accept()[0].close()
        process = self.run_in(c, 'echo Permission denied; exit 1', policy)
        self.assertIs(self.denied(c, process), False)
        self.assertEqual(self.said(c, 'grep NoNewPrivs /proc/self/status', None), 'NoNewPrivs:\t0\n')


@ours_only
class Network(SandboxCase):
    def test_enabled(self):
        c, s = self.session(), socket.create_server(('127.0.0.1', 0))
        self.addCleanup(s.close)
        script = 'exec 3<>/dev/tcp/127.0.0.1/%d && cat <&3' % s.getsockname()[1]
        self.start(c, 'p', ['bash', '-c', script], project_write(self.w, network='enabled'))
        peer = s.accept()[0]
        peer.sendall(b'hello\n')
        peer.close()
        self.assertEqual(c.wait_closed('p').text, 'hello\n')

    def test_a_server_that_anybody_may_ask(self):
        """With the network a command could ask it for a command without a sandbox."""
        for permissions in (restricted([ROOT], 'enabled'), unrestricted('enabled'),
                            {'type': 'external', 'network': 'enabled'}):
            error = self.refusal(self.session('--no-auth'), 'true', context(permissions, self.w))
            self.assertError(error, -32602)
            self.assertTrue(error['message'].startswith(CANNOT) and '--no-auth' in error['message'], error)
            self.srv.stop()
        self.assertEqual(self.said(self.session('--no-auth'), 'echo ok', read_only(self.w)), 'ok\n')

    def test_a_server_that_asks_for_a_token(self):
        with open(self.o + '/token', 'w') as f:
            f.write('t' * 64)
        os.chmod(self.o + '/token', 0o600)
        self.srv = self.server('--token-file', self.o + '/token')
        c = self.srv.session(headers={'Authorization': 'Bearer ' + 't' * 64})
        policy = context(restricted([ROOT], 'enabled'), self.w)
        self.assertEqual(self.said(c, 'echo ok', policy), 'ok\n')
        self.assertNotEqual(self.run_in(c, ['cat', self.o + '/token'], policy).exit_code, 0,
                            'a command can read the token')

    def test_localhost_is_found(self):
        """Also by those who ask for families that the host has an address of: 127.0.0.1 is none to glibc."""
        script = ('import socket as s\n'
                  'print(s.getaddrinfo("localhost", 80, s.AF_INET, s.SOCK_STREAM, 0, s.AI_ADDRCONFIG)[0][4][0])\n'
                  'a, b = s.create_server(("127.64.0.1", 0)), s.socket()\n'
                  'b.connect(a.getsockname())')
        self.assertEqual(self.said(self.session(), [PYTHON, '-c', script], project_write(self.w)), '127.0.0.1\n')

    def test_restricted_has_a_loopback_of_its_own(self):
        c, s = self.session(), socket.create_server(('127.0.0.1', 0))
        self.addCleanup(s.close)
        script = ('import socket\nl = socket.create_server(("127.0.0.1", %d))\nc = socket.create_connection(l.getsockname())\n'
                  'l.accept()[0].send(b"own")\nprint(c.recv(3))' % s.getsockname()[1])
        self.assertEqual(self.said(c, ['python3', '-S', '-c', script], project_write(self.w)), "b'own'\n")
        self.assertEqual(self.said(c, 'tail -n +3 /proc/net/dev | cut -d: -f1', read_only(self.w)).split(), ['lo'])

    def test_sockets_that_are_refused(self):
        script = ('import socket, errno\nfor f, t in ((socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW),'
                  '(socket.AF_UNIX, socket.SOCK_DGRAM), (40, socket.SOCK_STREAM)):\n'
                  '  try: socket.socket(f, t); print("open", f)\n  except OSError as e: print(errno.errorcode[e.errno])')
        said = self.said(self.session(), ['python3', '-S', '-c', script], read_only(self.w)).split()
        self.assertNotIn('open', said)


@ours_only
class Inside(SandboxCase):
    def test_the_environment_is_unchanged(self):
        c = self.session()
        env = {'PATH': '/usr/bin:/bin', 'TMPDIR': self.t, 'A': '1', 'LC_ALL': 'C'}
        said = self.said(c, ['env'], read_only(self.w), env=env)
        self.assertEqual(dict(line.split('=', 1) for line in said.splitlines()), env)

    def test_arg0_and_the_search_of_path(self):
        c = self.session()
        self.assertEqual(self.said(c, ['/bin/sh', '-c', 'echo "$0"'], read_only(self.w), arg0='other').strip(), 'other')
        tool = self.put('w/bin/tool', '#!/bin/sh\necho "tool $1"\n', 0o755)
        env = {'PATH': os.path.dirname(tool) + ':/usr/bin:/bin'}
        self.assertEqual(self.said(c, ['tool', 'works'], project_write(self.w), env=env), 'tool works\n')

    def test_devices(self):
        allowed = {'null', 'zero', 'full', 'random', 'urandom', 'tty', 'pts', 'ptmx', 'shm', 'mqueue', 'fd',
                   'stdin', 'stdout', 'stderr'}
        c = self.session()
        for policy in (read_only(self.w), context(restricted([MINIMAL]), self.w)):
            found = set(self.said(c, ['ls', '/dev'], policy, cwd='file:///').split())
            self.assertEqual(found - allowed, set())
            self.assertTrue({'null', 'urandom', 'shm', 'pts', 'fd'} <= found, found)
        self.assertEqual(self.said(c, 'echo x > /dev/null; echo y > /dev/shm/y; cat /dev/shm/y', read_only(self.w)),
                         'y\n')

    def test_who_and_where_we_are(self):
        said = self.said(self.session(), 'id -u; id -g; pwd; echo "$PPID"', read_only(self.w)).split()
        self.assertEqual(said, [str(os.getuid()), str(os.getgid()), self.w, '1'])

    def test_other_processes_are_not_seen(self):
        said = self.said(self.session(), 'cd /proc; for p in [0-9]*; do echo $p; done', read_only(self.w))
        self.assertLessEqual(len(said.split()), 2)

    def test_run_is_empty_and_xdg_is_not_there(self):
        runtime = self.scratch()
        open(os.path.join(runtime, 'secret'), 'w').close()
        c = self.session(env={'XDG_RUNTIME_DIR': runtime})
        self.assertEqual(self.said(c, 'ls -A /run; ls -A %s 2>/dev/null || true' % runtime, read_only(self.w)), '')


@ours_only
class Starts(SandboxCase):
    def test_a_missing_program(self):
        c = self.session()
        for policy in (read_only(self.w), project_write(self.w)):
            for name, why in (('/no/such/program', b'No such file'), ('no-such-program', b'command not found')):
                process = self.run_in(c, [name], policy)
                self.assertEqual(process.exit_code, 127)
                self.assertIn(name.encode(), process.stderr)
                self.assertIn(why, process.stderr)
                self.assertIs(self.denied(c, process), False)
        process = self.run_in(c, ['/no/such/program'], read_only(self.w), tty=True)
        self.assertEqual(process.exit_code, 127)
        self.assertIn(b'/no/such/program', process.pty)

    def test_a_file_that_is_no_program(self):
        text = self.put('w/text', 'text\n', 0o644)
        process = self.run_in(self.session(), [text], project_write(self.w))
        self.assertEqual(process.exit_code, 126)
        self.assertIn(text.encode(), process.stderr)

    def test_a_missing_cwd(self):
        c = self.session()
        for policy in (read_only(self.w), project_write(self.w)):
            for tty in (False, True):
                error = self.refusal(c, 'true', policy, cwd='file:///no/such/place', tty=tty)
                self.assertError(error, -32603, 'No such file or directory (os error 2)')
        self.assertEqual(self.said(c, 'echo ok', read_only(self.w), process_id='refused'), 'ok\n')

    def test_a_cwd_outside_of_the_view(self):
        """As the reference: the command starts in its $HOME, or in /."""
        c = self.session()
        policy = context(restricted([MINIMAL, special('project_roots', 'write')]), self.w)
        env = {'PATH': '/usr/bin:/bin'}
        for tty in (False, True):
            for home, cwd in ((None, '/'), (self.o, '/'), (self.w, self.w), ('w', '/')):
                more = {} if home is None else {'HOME': home}
                said = self.said(c, ['/bin/pwd'], policy, cwd=file_uri(self.o), env=dict(env, **more), tty=tty)
                self.assertEqual(said.strip(), cwd)
        self.assertEqual(self.said(c, ['/bin/pwd'], policy, cwd=file_uri(self.w)).strip(), self.w)

    def test_a_cwd_that_cannot_be_used(self):
        c = self.session()
        policy = context(restricted([MINIMAL, special('project_roots', 'write')]), self.w)
        denied = project_write(self.w, more_entries=[place(self.o, 'deny')])
        self.assertError(self.refusal(c, 'true', denied, cwd=file_uri(self.o)), -32603)
        self.assertError(self.refusal(c, 'true', policy, cwd=file_uri(self.put('w/file'))), -32603,
                         'Not a directory (os error 20)')

    def test_a_symlink_instead_of_a_protected_name(self):
        c = self.session()
        os.symlink(self.o, self.w + '/.git')
        error = self.refusal(c, 'true', project_write(self.w))
        text = 'cannot enforce sandbox read-only path {0} because it crosses writable symlink {0}'
        self.assertError(error, -32602, text.format(self.w + '/.git'))
        self.assertEqual(self.said(c, 'echo ok', read_only(self.w)), 'ok\n')

    def test_an_enforced_network_without_a_proxy_is_none(self):
        links = "sed -n 's/:.*//; 3,$p' /proc/net/dev | tr -d ' '"
        self.assertEqual(self.said(self.session(), links, read_only(self.w), enforceManagedNetwork=True), 'lo\n')


@ours_only
class Malformed(SandboxCase):
    """-32602, and nothing has happened."""

    def broken(self):
        good = project_write(self.w)
        entry = lambda e: context(restricted([ROOT, e]), self.w)
        path = lambda p: entry({'path': p, 'access': 'read'})
        for name in ('permissions', 'windowsSandboxLevel'):
            yield {k: v for k, v in good.items() if k != name}
            yield dict(good, **{name: None})
        for name, values in {
                'sandboxOverride': (None, 'other', 1), 'workspaceRoots': (None, {}, [1], ['/w'], 'file:///w',
                    ['https://x/']),
                'windowsSandboxLevel': ('other', 1, 'mxc'), 'useLegacyLandlock': (None, 1),
                'cwd': (1, '/w', 'http://x/'),
                'policyContext': (1, [], {'cwd': 1}, {'workspaceRoots': None}), 'userHomeDir': (1, 'relative'),
                'windowsSandboxProxySettingsMode': ('other', 1), 'temporaryDirectories': (1, [1]),
                'permissions': (1, [], {}, {'type': 'other'}, {'type': 1}, {'type': 'managed'}, {'type': 'external'},
                                {'type': 'managed', 'network': 'restricted'},
                                {'type': 'managed', 'network': 'some', 'file_system': {'type': 'unrestricted'}},
                                {'type': 'managed', 'network': 'enabled', 'file_system': {'type': 'restricted'}},
                                {'type': 'managed', 'network': 'enabled', 'file_system': {'type': 'other'}})}.items():
            for value in values:
                yield dict(good, **{name: value})
        for depth in (0, -1, 'x', 1.5):
            yield context(restricted([ROOT], glob_scan_max_depth=depth), self.w)
        for e in ({}, {'path': ROOT['path']}, {'access': 'read'}, dict(ROOT, access='other'), dict(ROOT, access=None),
                  dict(ROOT, missing_path_behavior='other'), pattern('/x/*', 'read'), pattern('/x/*', 'write'),
                  'root', 1):
            yield entry(e)
        for p in ({}, {'type': 'other'}, {'type': 'path'}, {'type': 'path', 'path': '/native'},
                  {'type': 'path', 'path': 1},
                  {'type': 'path', 'path': 'file://host/x'}, {'type': 'path', 'path': 'file:///C:/x'},
                  {'type': 'special'},
                  {'type': 'special', 'value': {}}, {'type': 'special', 'value': {'kind': 'other'}},
                  {'type': 'special', 'value': {'kind': 'project_roots', 'subpath': '../x'}},
                  {'type': 'special', 'value': {'kind': 'project_roots', 'subpath': '/x'}},
                  {'type': 'special', 'value': {'kind': 'unknown'}}, {'type': 'glob_pattern'}):
            yield path(p)
        yield from ([], 'read-only', 1, True)

    def test_what_is_malformed_is_refused(self):
        c = self.session()
        ran = 0
        for policy in self.broken():
            error = self.refusal(c, 'echo x > %s/x' % self.w, policy)
            self.assertError(error, -32602)
            ran += 1
        self.assertGreater(ran, 60)
        self.assertEqual(c.request('process/list'), {'processes': []})
        self.assertEqual(os.listdir(self.w), [])
        self.assertEqual(confined_cells(self.srv), [])
        self.assertEqual(self.said(c, 'echo ok', project_write(self.w), process_id='refused'), 'ok\n')

    def test_texts(self):
        c = self.session()
        for policy, text in (
                (read_only(self.w, windowsSandboxLevel='mxc'), 'native MXC is unavailable on this executor'),
                (context(restricted([ROOT, {'path': {'type': 'path', 'path': 'file:///C:/x'}, 'access': 'read'}]),
                         self.w),
                 "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'"),
                (context(restricted([ROOT, pattern('/x/*', 'read')]), self.w),
                 'glob file system permissions only support deny-read entries')):
            self.assertError(self.refusal(c, 'true', policy), -32602, text)


if __name__ == '__main__':
    tap.main()
