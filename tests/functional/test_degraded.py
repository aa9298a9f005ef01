# SPDX-License-Identifier: Apache-2.0
"""Hosts that lack something: what can still be enforced runs, anything else is refused in words that
name what is missing and what helps. Nothing ever runs with less than its policy asks for.

REFUSE  path of the program that makes system calls fail (default: beside the server)
"""

import os
import re
import socket

import tap
from sandbox_policy import (CANNOT, MINIMAL, ROOT, SandboxCase, context, pattern, place, project_write,
                            read_only,
                            restricted, special, unrestricted, workspace_write)
from server import PROGRAM, ours_only
from wire import Address, WebSocket, file_uri

REFUSE = os.environ.get('REFUSE') or os.path.join(os.path.dirname(PROGRAM), 'tests', 'unit', 'refuse')
CELL_ONLY = 'namespaces cannot be used, which this policy needs; '
NOTHING = 'neither namespaces nor Landlock (level 3) can be used; '
FIELDS = 'grep -E "NoNewPrivs|CapEff|Seccomp:" /proc/self/status'
CONFINED = 'CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2'.split()
# Which errno a call that must fail ends in; printed, so that nothing counts as said by the program.
ERRNO = ('import errno, os, socket, sys\ndef t(f, *a):\n  try: f(*a); print("ok")\n'
         '  except OSError as e: print(errno.errorcode[e.errno])\n')
SOCKETS = ('t(socket.socket, socket.AF_INET)\nt(socket.socket, socket.AF_INET6)\n'
           't(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)\n')


class Degraded(SandboxCase):
    """A server on a host that refuses something."""

    def lacking(self, words, **how):
        return self.session('--log-level', 'info', prefix=[REFUSE, words, '--'], **how)

    def policies(self):
        """Everything that needs a view of its own."""
        return {
            'workspace-write': workspace_write(self.w),
            'project-write': project_write(self.w),
            'deny': context(restricted([ROOT, place(self.o, 'deny')]), self.w),
            'pattern': context(restricted([ROOT, pattern(self.o + '/*')]), self.w),
            'restricted reads': context(restricted([MINIMAL, special('project_roots', 'read')]), self.w),
            'nothing': context(restricted([]), self.w),
            'root with a carve-out': context(restricted([special('root', 'write'), place(self.o, 'read')]), self.w),
        }

    def assertAllRefused(self, client, policies, start, *words):
        for name, policy in policies.items():
            error = self.refusal(client, 'echo x > %s/ran' % self.w, policy)
            self.assertError(error, -32602)
            self.assertTrue(error['message'].startswith(CANNOT + start), (name, error))
            for word in words:
                self.assertIn(word, error['message'], name)
        self.assertNotIn('ran', os.listdir(self.w))
        self.assertNotIn('refused', [p['processId'] for p in client.request('process/list')['processes']])

    @staticmethod
    def tiers(client):
        """Of all confined commands so far."""
        return {p['sandbox']['tier'] for p in client.request('process/list')['processes'] if p.get('sandbox')}

    def errnos(self, client, policy, calls, **more):
        return self.said(client, ['python3', '-S', '-c', ERRNO + calls] + more.pop('argv', []), policy, **more).split()

    def assertReadOnly(self, client, policy, answers):
        """Nothing on the disk can be written or changed."""
        target = self.put('o/target', 'as it was\n')
        calls = ('d, f = sys.argv[1:]\nt(open, f, "w")\nt(open, d + "/x", "w")\nt(os.unlink, f)\nt(os.mkdir, d + "/x")\n'
                 't(os.rename, f, d + "/x")\nt(os.truncate, f, 0)\nt(os.link, f, d + "/x")\nt(os.symlink, f, d + "/x")\n'
                 't(os.mkfifo, d + "/x")')
        said = self.errnos(client, policy, calls, argv=[self.o, target])
        self.assertEqual(set(said) - answers, set(), said)
        changes = 'f = sys.argv[1]\nt(os.chmod, f, 0o777)\nt(os.chown, f, -1, -1)\nt(os.utime, f)\nt(os.setxattr, f, "user.x", b"1")'
        self.assertEqual(set(self.errnos(client, policy, changes, argv=[target])) - answers - {'EPERM'}, set())
        self.assertEqual((sorted(os.listdir(self.o)), open(target).read()), (['f', 'target'], 'as it was\n'))


@ours_only
class NoNamespaces(Degraded):
    needs_cells = False

    def test_read_only_runs_thin(self):
        c, policy = self.lacking('userns=EPERM'), read_only(self.w)
        self.assertEqual(self.said(c, 'cat %s/f' % self.o, policy), 'outside\n')
        self.assertEqual(self.said(c, 'readlink /proc/self/ns/mnt', policy).strip(), os.readlink('/proc/self/ns/mnt'))
        self.assertEqual(self.said(c, FIELDS, policy).split(), CONFINED)
        self.assertReadOnly(c, policy, {'EACCES', 'EROFS', 'EPERM', 'EXDEV'})
        self.assertDenied(c, 'echo x > x', policy, 'Permission denied')
        self.assertDenied(c, 'chmod 777 %s/f' % self.o, policy, 'Operation not permitted')
        self.assertEqual(self.said(c, 'echo x > /dev/null; cat /dev/null', policy), '')
        self.assertIn('sandboxes are limited here', self.srv.stderr())
        self.assertEqual(self.tiers(c), {'thin'})

    def test_the_network_of_a_thin_sandbox(self):
        c = self.lacking('userns=EPERM')
        s = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(s.close)
        calls = SOCKETS + 't(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)'
        self.assertEqual(self.errnos(c, read_only(self.w), calls), ['EPERM'] * 4)
        enabled = context(restricted([ROOT], 'enabled'), self.w)
        connect = 'exec 3<>/dev/tcp/127.0.0.1/%d' % s.getsockname()[1]
        self.assertEqual(self.said(c, ['bash', '-c', connect], enabled), '')
        self.assertDenied(c, 'echo x > x', enabled, 'Permission denied')

    def test_open_policies_run(self):
        c = self.lacking('userns=EPERM')
        for permissions in (unrestricted(), {'type': 'external', 'network': 'restricted'}):
            policy = context(permissions, self.w)
            self.assertEqual(self.said(c, 'echo x > %s/x && rm %s/x' % (self.o, self.o), policy), '')
            self.assertEqual(self.errnos(c, policy, 't(socket.socket, socket.AF_INET)'), ['EPERM'])
            self.assertEqual(self.said(c, FIELDS, policy).split(), CONFINED)
        # One that restricts files, though it lets all be written, keeps rules and configuration read-only: by mounts.
        error = c.start_error('p', ['true'], sandbox=context(restricted([special('root', 'write')]), self.w))
        self.assertEqual(error['code'], -32602)
        self.assertIn('namespaces cannot be used', error['message'])

    def test_the_rest_is_refused(self):
        for error, remedy in (('EPERM', 'unprivileged_userns_clone'), ('ENOSPC', 'user.max_user_namespaces'),
                              ('ENOSYS', 'use a kernel with')):
            c = self.lacking('userns=' + error)
            self.assertAllRefused(c, self.policies(), CELL_ONLY, remedy)
            self.assertEqual(self.said(c, 'echo open', None), 'open\n')
            self.srv.stop()

    def test_processes_in_a_thin_sandbox(self):
        c, policy = self.lacking('userns=EPERM'), read_only(self.w)
        error = self.refusal(c, 'true', policy, tty=True)  # it could open the user's other terminals
        self.assertError(error, -32602)
        self.assertIn('terminal', error['message'])
        self.start(c, 'p', 'setsid sleep 1000 & echo ready; exec sleep 1000', policy)
        c.wait_output('p', 'ready')
        c.terminate('p')
        self.assertEqual(c.wait_closed('p').exit_code, 137)
        process = self.run_in(c,
                              ['python3', '-S', '-c',
                               'import ctypes, os\nctypes.CDLL(None).ptrace(16, 1, 0, 0)\nos._exit(1)'], policy)
        self.assertIs(self.denied(c, process), True)
        self.assertEqual(self.run_in(c, ['/no/such/program'], policy).exit_code, 127)
        self.assertError(self.refusal(c, 'true', policy, cwd='file:///no/such/place'), -32603)

    def test_mounts_are_refused(self):
        c = self.lacking('mount=EPERM')
        self.assertAllRefused(c, self.policies(), CELL_ONLY, 'AppArmor')
        self.assertDenied(c, 'echo x > x', read_only(self.w), 'Permission denied')


@ours_only
class NoLandlock(Degraded):
    def test_cells_do_without(self):
        for error in ('ENOSYS', 'EOPNOTSUPP'):
            c = self.lacking('landlock=' + error)
            self.assertReadOnly(c, read_only(self.w), {'EROFS'})
            self.assertEqual(self.said(c, 'echo x > x; mkdir d; mv x d/; cat d/x; rm -r d', project_write(self.w)),
                             'x\n')
            self.assertDenied(c, 'echo x > %s/f' % self.o, project_write(self.w), 'Read-only file system')
            for name, policy in self.policies().items():
                cwd = self.w if name != 'nothing' else '/'
                process = self.run_in(c, 'cat %s/f && echo x > %s/y' % (self.o, self.o), policy, cwd=file_uri(cwd))
                self.assertNotEqual(process.exit_code, 0, name)
            self.assertEqual(sorted(os.listdir(self.o)), ['f', 'target'])
            self.assertEqual(self.tiers(c), {'cell'})
            self.srv.stop()

    def test_nothing_is_left_to_confine_with(self):
        c = self.lacking('landlock=ENOSYS,userns=EPERM')
        self.assertAllRefused(c, {'read-only': read_only(self.w)}, NOTHING, 'unprivileged_userns_clone')
        self.assertAllRefused(c, self.policies(), CELL_ONLY, 'unprivileged_userns_clone')
        self.assertEqual(self.errnos(c, context(unrestricted(), self.w), 't(socket.socket, socket.AF_INET)'), ['EPERM'])


@ours_only
class NoSeccomp(Degraded):
    needs_cells = False

    def test_everything_is_refused(self):
        for error in ('EINVAL', 'EPERM', 'ENOSYS'):
            c = self.lacking('seccomp=' + error)
            policies = dict(self.policies(), read_only=read_only(self.w), unrestricted=context(unrestricted(), self.w),
                            external=context({'type': 'external', 'network': 'enabled'}, self.w))
            self.assertAllRefused(c, policies, 'seccomp filters are missing; ', 'seccomp(2)')
            disabled = {'permissions': {'type': 'disabled'}, 'windowsSandboxLevel': 'disabled'}
            for policy in (None, disabled):
                self.assertEqual(self.said(c, 'echo open', policy), 'open\n')
            self.srv.stop()


@ours_only
class NoNetworkNamespace(Degraded):
    def test_cells_without_a_loopback(self):
        c = self.lacking('netns=EPERM')
        for policy in (read_only(self.w), project_write(self.w), context(unrestricted(), self.w)):
            self.assertEqual(self.errnos(c, policy, SOCKETS), ['EPERM'] * 3)
        self.assertEqual(self.said(c, 'echo x > x', project_write(self.w)), '')
        self.assertDenied(c, 'echo x > %s/f' % self.o, project_write(self.w), 'Read-only file system')
        process = self.run_in(c,
                              ['python3', '-S', '-c',
                               'import os, socket\ntry: socket.socket()\nexcept OSError: os._exit(1)'],
                              read_only(self.w))
        self.assertEqual((process.exit_code, self.denied(c, process)), (1, True))

    def test_the_network_can_be_given(self):
        c, s = self.lacking('netns=EPERM'), socket.create_server(('127.0.0.1', 0))
        self.addCleanup(s.close)
        script = 'exec 3<>/dev/tcp/127.0.0.1/%d' % s.getsockname()[1]
        self.assertEqual(self.said(c, ['bash', '-c', script], project_write(self.w, network='enabled')), '')


@ours_only
class NoNotifications(Degraded):
    def test_words_alone_tell_a_refusal(self):
        for error in ('EINVAL', 'EBUSY', 'EPERM'):
            c = self.lacking('notify=' + error)
            quiet = ['python3', '-S', '-c',
                     'import ctypes, os\nprint(ctypes.CDLL(None).ptrace(16, 1, 0, 0), flush=True)\nos._exit(1)']
            for policy in (read_only(self.w), project_write(self.w)):
                process = self.run_in(c, quiet, policy)
                self.assertEqual((process.text, self.denied(c, process)), ('-1\n', False))
                self.assertDenied(c, 'echo x > %s/f' % self.o, policy, 'Read-only file system')
            self.srv.stop()


@ours_only
class OldKernels(Degraded):
    """Calls that older kernels do not have: either there is another way, or it is said."""

    def test_without_them_nothing_runs_with_less(self):
        for word in ('openat2', 'fsopen', 'pidns', 'pivot', 'capset'):
            c = self.lacking(word + '=ENOSYS')
            for policy in (read_only(self.w), project_write(self.w)):
                answer = c.reply(c.post_start(word, ['/bin/sh', '-c', 'echo x > %s/f' % self.o], sandbox=policy,
                                              **self.how({})))
                if 'error' in answer:
                    self.assertIn(answer['error']['code'], (-32602, -32603))
                else:
                    self.assertNotEqual(c.wait_closed(word).exit_code, 0, word)
                word += '-again'
            self.assertEqual(open(self.o + '/f').read(), 'outside\n')
            self.srv.stop()


@ours_only
class Nested(Degraded):
    """A server inside of a confined command: what it starts has at most what the command has."""

    def inner(self, outer, policy):
        """A session with a server that runs in a sandbox of another."""
        argv = [PROGRAM, 'serve', '--listen', 'ws://127.0.0.1:0', '--log-level', 'info']
        self.start(outer, 'inner', argv, policy, env={'HOME': self.w,
                                                      **{k: v for k, v in self.srv.env.items() if 'SAN' in k}})
        host, port, token = re.fullmatch(r'ws://(.*):(\d+)/\?token=(\w+)',
                                         outer.wait_output('inner', '\n', 'stdout').strip()).groups()
        return self.srv.client(WebSocket.connect(Address((host, int(port)), token))).handshake()

    def judged(self, client, policy):
        """How a start that tries to write outside ends: 'refused', or 'confined'."""
        answer = client.reply(client.post_start('p', ['/bin/sh', '-c', FIELDS + '; echo x > %s/f' % self.o],
                                                sandbox=policy, **self.how({})))
        if 'error' in answer:
            self.assertError(answer['error'], -32602)
            self.assertTrue(answer['error']['message'].startswith(CANNOT), answer)
            return 'refused'
        process = client.wait_closed('p')
        self.assertEqual(process.text.split(), CONFINED)
        self.assertNotEqual(process.exit_code, 0)
        return 'confined'

    def test_inside_of_a_sandbox_that_writes(self):
        c = self.inner(self.session(), project_write(self.w, network='enabled'))
        self.assertEqual(self.judged(c, read_only(self.w)), 'confined')
        self.assertDenied(c, 'echo x > %s/x' % self.w, read_only(self.w), 'Permission denied')
        self.assertAllRefused(c, self.policies(), CELL_ONLY)
        self.assertEqual(self.said(c, 'echo x > x; cat x', None), 'x\n')
        self.assertNotEqual(self.run_in(c, 'echo x > %s/f' % self.o, None).exit_code, 0)
        self.assertEqual(open(self.o + '/f').read(), 'outside\n')

    def test_inside_of_read_only(self):
        c = self.inner(self.session(), context(restricted([ROOT], 'enabled'), self.w))
        self.assertEqual(self.judged(c, read_only(self.w)), 'confined')
        self.assertEqual(self.errnos(c, read_only(self.w), 't(socket.socket, socket.AF_INET)'), ['EPERM'])

    def test_inside_of_a_thin_sandbox(self):
        c = self.inner(self.lacking('userns=EPERM'), context(restricted([ROOT], 'enabled'), self.w))
        self.assertEqual(self.judged(c, read_only(self.w)), 'confined')


if __name__ == '__main__':
    tap.main()
