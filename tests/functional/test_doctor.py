# SPDX-License-Identifier: Apache-2.0
"""`sallyport doctor`: what this host offers to a sandbox, and what it says where something is missing.

REFUSE  path of the program that makes system calls fail (default: beside the server)
"""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import time
import unittest

import tap
import wire
from server import PASS_ON, PROGRAM, Case, ours_only, stat_of
from terminal import Screen
from wire import wait_until

REFUSE = os.environ.get('REFUSE') or os.path.join(os.path.dirname(PROGRAM), 'tests', 'unit', 'refuse')
LAYERS = ['namespaces', 'id_maps', 'mounts', 'proc', 'network_namespace', 'managed_network', 'privileges', 'landlock', 'seccomp', 'notifications',
          'cgroups', 'limit_memory', 'limit_pids', 'limit_cpus', 'limit_cpu', 'openat2', 'mount_api']
MODES = ['read-only', 'workspace-write', 'external-sandbox', 'danger-full-access']
needs_refuse = unittest.skipUnless(os.access(REFUSE, os.X_OK), 'no program %s' % REFUSE)


@ours_only
class Doctor(Case):
    def run_doctor(self, *words, refuse=None, env=None):
        env = {**(env or {}), 'PATH': '/usr/bin:/bin', 'HOME': self.home, 'XDG_RUNTIME_DIR': self.home}
        env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})
        prefix = [REFUSE, refuse, '--'] if refuse else []
        run = subprocess.run([*prefix, PROGRAM, 'doctor', *words], capture_output=True, timeout=wire.DEADLINE, env=env,
                             stdin=subprocess.DEVNULL)
        return run.returncode, run.stdout.decode(), run.stderr.decode()

    def setUp(self):
        super().setUp()
        self.home = self.scratch()

    def find(self, refuse=None):
        """(exit status, the object, its layers by name, its policies by mode)"""
        code, out, err = self.run_doctor('--json', refuse=refuse)
        self.assertEqual(err, '')
        found = json.loads(out)
        return code, found, {x['name']: x for x in found['layers']}, {x['mode']: x for x in found['policies']}

    def test_the_object_has_the_members_that_are_documented(self):
        code, found, layers, policies = self.find()
        self.assertEqual(set(found), {'version', 'kernel', 'machine', 'uid', 'tier', 'layers', 'landlock', 'capacity', 'limits', 'upstream', 'policies'})
        self.assertEqual((found['kernel'], found['machine']), (os.uname().release, os.uname().machine))
        self.assertEqual(found['uid'], os.geteuid())
        self.assertIn(found['tier'], ('cell', 'thin', 'none'))
        self.assertEqual(code, 0 if found['tier'] == 'cell' else 1)
        self.assertEqual([x['name'] for x in found['layers']], LAYERS)
        self.assertEqual([x['mode'] for x in found['policies']], MODES)
        for x in found['layers']:
            self.assertEqual(set(x), {'name', 'state', 'errno', 'is', 'without', 'remedy'})
            self.assertIn(x['state'], ('ok', 'missing', 'untested'))
            self.assertEqual(x['remedy'] is None, x['state'] != 'missing', x)
        for x in found['policies']:
            self.assertEqual(set(x), {'mode', 'enforced', 'why_not'})
            self.assertEqual(x['why_not'] is None, x['enforced'], x)
        self.assertEqual(set(found['landlock']), {'level', 'newest', 'missing'})
        self.assertEqual([x['level'] for x in found['landlock']['missing']],
                         list(range(found['landlock']['level'] + 1, found['landlock']['newest'] + 1)))
        self.assertTrue(policies['danger-full-access']['enforced'])

    def test_the_page_names_every_member_and_layer(self):
        page = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'man', 'sallyport-doctor.1')).read()
        _, found, _, _ = self.find()
        names = set(found) | set(found['layers'][0]) | set(found['landlock']) | set(found['upstream']) | set(found['policies'][0]) | set(found['capacity'][0]) | set(LAYERS)
        for name in names:
            self.assertRegex(page, r'(?m)(^\.It Cm %s\b|\bCm %s\b)' % (name, name))

    def test_the_text_says_the_same(self):
        code, out, err = self.run_doctor()
        _, found, layers, policies = self.find()
        self.assertEqual(err, '')
        self.assertEqual(code, 0 if found['tier'] == 'cell' else 1)
        words = {'cell': 'full', 'thin': 'thin', 'none': 'no'}
        self.assertRegex(out, r'(?m)^%s confinement: ' % words[found['tier']])
        self.assertNotIn('tier', out)
        for name, x in layers.items():
            self.assertRegex(out, r'(?m)^  %s +%s ' % (x['state'], name))
        for mode, x in policies.items():
            self.assertRegex(out, r'(?m)^  %s +%s' % ('ok' if x['enforced'] else 'refused', mode))
        self.assertIn('landlock: level %d of ' % found['landlock']['level'], out)

    def test_how_many_commands_can_run(self):
        _, found, _, _ = self.find()
        _, text, _ = self.run_doctor()
        self.assertEqual([x['name'] for x in found['capacity']],
                         ['kernel.pty.max', 'kernel.pid_max', 'RLIMIT_NOFILE', 'fs.pipe-user-pages-soft'])
        pages = 2 * 65536 // resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        counts = {'kernel.pty.max': lambda n: n, 'kernel.pid_max': lambda n: n - 300, 'RLIMIT_NOFILE': lambda n: (n - 400) // 2,
                  'fs.pipe-user-pages-soft': lambda n: n // pages}
        for x in found['capacity']:
            self.assertEqual(set(x), {'name', 'of', 'value', 'allows'})
            real = hard if x['name'] == 'RLIMIT_NOFILE' else int(open('/proc/sys/' + x['name'].replace('.', '/')).read())
            self.assertEqual(x['value'], real)
            self.assertEqual(x['allows'], counts[x['name']](real))
            self.assertIn('  %-9d %s (%s = %d)\n' % (x['allows'], x['of'], x['name'], x['value']), text)

    def stop_child(self, parent):
        """A descriptor of a child that was stopped; -1: there is none now."""
        try:
            with open('/proc/%d/task/%d/children' % (parent, parent)) as f:
                pid = int(f.read().split()[0])
            fd = os.pidfd_open(pid)
        except (OSError, IndexError):
            return -1
        if (stat_of(pid) or ('', 0))[1] == parent:
            try:
                signal.pidfd_send_signal(fd, signal.SIGSTOP)
                wait_until(lambda: (stat_of(pid) or 'Z')[0] in 'TZX', 'a stopped child')
                if (stat_of(pid) or 'Z')[0] == 'T':
                    return fd
            except ProcessLookupError:
                pass
        os.close(fd)
        return -1

    def test_what_takes_long_is_said(self):
        """One of its attempts, a child, is stopped for a while."""
        env = {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}
        end = wire.deadline()
        says = False
        while not says:
            self.assertLess(time.monotonic(), end, 'no child was met')
            screen = Screen([PROGRAM, 'doctor'], dict(env, PATH='/usr/bin:/bin', TERM='xterm'))
            stopped = -1
            while screen.popen.poll() is None and stopped < 0:
                screen.take(0)
                stopped = self.stop_child(screen.popen.pid)
            try:
                if stopped >= 0:  # unless it is about to be killed, stopped as it is
                    screen.wait('sallyport: trying each layer of a sandbox, and a network ...\r\n')
                    says = screen.popen.poll() is None
            except AssertionError:
                self.assertIsNotNone(screen.popen.poll())
            finally:
                if stopped >= 0:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(stopped, signal.SIGCONT)
                    os.close(stopped)
            if not says:
                screen.close()
        self.addCleanup(screen.close)
        screen.end()
        self.assertIn(b'confinement: ', screen.seen)

    @needs_refuse
    def test_without_user_namespaces(self):
        code, found, layers, policies = self.find('userns=EPERM')
        self.assertEqual(code, 1)
        self.assertIn(found['tier'], ('thin', 'none'))
        self.assertEqual((layers['namespaces']['state'], layers['namespaces']['errno']), ('missing', 'EPERM'))
        self.assertIn('unprivileged_userns_clone', layers['namespaces']['remedy'])
        for name in ('id_maps', 'mounts', 'proc', 'network_namespace', 'managed_network'):
            self.assertEqual(layers[name]['state'], 'untested', name)
        self.assertFalse(policies['workspace-write']['enforced'])
        self.assertIn('namespaces', policies['workspace-write']['why_not'])
        code, out, _ = self.run_doctor(refuse='userns=EPERM')
        self.assertEqual(code, 1)
        self.assertRegex(out, r'(?m)^  missing +namespaces .*Operation not permitted$')
        self.assertRegex(out, r'(?m)^ +remedy: \S')
        notes = re.findall(r'(?m)^ {12}.*$', out)  # what a person reads most, wrapped
        self.assertLessEqual(max(map(len, notes)), 80, notes)
        self.assertRegex(out, r'(?m)^  refused +workspace-write: ')

    @needs_refuse
    def test_too_many_user_namespaces(self):
        _, _, layers, _ = self.find('userns=ENOSPC')
        self.assertEqual(layers['namespaces']['errno'], 'ENOSPC')
        self.assertIn('max_user_namespaces', layers['namespaces']['remedy'])

    @needs_refuse
    def test_without_a_network_namespace(self):
        code, found, layers, policies = self.find('netns=EPERM')
        if layers['namespaces']['state'] != 'ok':
            self.skipTest('no user namespaces here')
        self.assertEqual((code, found['tier']), (0, 'cell'))
        self.assertEqual((layers['network_namespace']['state'], layers['network_namespace']['errno']), ('missing', 'EPERM'))
        self.assertEqual(layers['managed_network']['state'], 'untested')
        self.assertTrue(policies['workspace-write']['enforced'])

    def test_a_managed_network_is_tried(self):
        _, found, layers, _ = self.find()
        if found['tier'] != 'cell' or layers['network_namespace']['state'] != 'ok':
            self.skipTest('no network namespaces here')
        self.assertEqual((layers['managed_network']['state'], layers['managed_network']['remedy']), ('ok', None))

    def test_upstream_proxies_are_shown_without_credentials(self):
        env = {'HTTPS_PROXY': 'http://user:secret@proxy.example:3128/', 'no_proxy': 'a.example\x1b', 'all_proxy': 'socks5://x'}
        code, out, err = self.run_doctor(env=env)
        self.assertEqual(err, '')
        self.assertRegex(out, r'(?m)^  https     proxy\.example:3128$')
        self.assertIn('  not for   a.example\\x1b\n', out)
        self.assertIn('  unused    ', out)
        self.assertNotIn('secret', out)
        _, out, _ = self.run_doctor('--json', env=env)
        self.assertEqual(json.loads(out)['upstream'],
                         {'http': None, 'https': 'proxy.example:3128', 'no_proxy': 'a.example\x1b', 'unusable': True})

    @needs_refuse
    def test_without_landlock(self):
        _, found, layers, _ = self.find('landlock=ENOSYS')
        self.assertEqual((layers['landlock']['state'], found['landlock']['level']), ('missing', 0))
        self.assertIn('lsm=', layers['landlock']['remedy'])
        self.assertEqual(found['landlock']['missing'][0]['level'], 1)

    @needs_refuse
    def test_without_notifications(self):
        _, _, layers, _ = self.find('notify=EBUSY')
        self.assertEqual((layers['seccomp']['state'], layers['notifications']['state']), ('ok', 'missing'))

    @needs_refuse
    def test_without_filters_nothing_is_enforced(self):
        code, found, layers, policies = self.find('seccomp=EINVAL')
        self.assertEqual((code, found['tier']), (1, 'none'))
        self.assertEqual((layers['seccomp']['state'], layers['seccomp']['errno']), ('missing', 'EINVAL'))
        self.assertEqual([m for m in MODES if policies[m]['enforced']], ['danger-full-access'])

    @needs_refuse
    def test_without_mounts(self):
        code, _, layers, _ = self.find('mount=EPERM')
        if layers['namespaces']['state'] != 'ok':
            self.skipTest('no user namespaces here')
        self.assertEqual((code, layers['mounts']['state'], layers['proc']['state']), (1, 'missing', 'untested'))

    @needs_refuse
    def test_without_newer_calls(self):
        _, _, layers, _ = self.find('openat2=ENOSYS')
        self.assertEqual((layers['openat2']['state'], layers['openat2']['errno']), ('missing', 'ENOSYS'))

    @needs_refuse
    def test_without_landlock_it_says_what_can_be_written(self):
        _, found, _, _ = self.find('landlock=ENOSYS')
        first, = [x for x in found['landlock']['missing'] if x['level'] == 1]
        self.assertIn('FIFOs anywhere are writable', first['means'])

    def test_the_sandbox_refuses_what_the_doctor_says(self):
        _, _, _, policies = self.find('userns=EPERM')
        for mode in MODES:
            run = subprocess.run([REFUSE, 'userns=EPERM', '--', PROGRAM, 'sandbox', '--mode', mode, '--cwd', self.home, '--', 'echo', 'ran'],
                                 capture_output=True, timeout=wire.DEADLINE, stdin=subprocess.DEVNULL,
                                 env=dict({k: os.environ[k] for k in PASS_ON if k in os.environ}, PATH='/usr/bin:/bin',
                                          HOME=self.home, XDG_RUNTIME_DIR=self.home))
            with self.subTest(mode):
                if policies[mode]['enforced']:
                    self.assertEqual((run.returncode, run.stdout), (0, b'ran\n'), run.stderr)
                else:
                    self.assertEqual((run.returncode, run.stdout), (125, b''), run.stderr)
                    self.assertTrue(run.stderr.startswith(b'sallyport: '), run.stderr)

    def test_nothing_is_left(self):
        self.run_doctor()
        self.assertEqual(os.listdir(self.home), [])

    def test_bad_usage(self):
        self.assertEqual(self.run_doctor('x'), (2, '', 'sallyport: unexpected argument `x` (see sallyport doctor --help)\n'))
        code, out, err = self.run_doctor('--odd')
        self.assertEqual((code, out), (2, ''))
        self.assertTrue(err.startswith('sallyport: unknown option `--odd`'), err)

    def test_help(self):
        code, out, err = self.run_doctor('--help')
        self.assertEqual((code, err), (0, ''))
        self.assertTrue(out.startswith('Usage: sallyport doctor'))


if __name__ == '__main__':
    tap.main()
