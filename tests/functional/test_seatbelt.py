# SPDX-License-Identifier: Apache-2.0
"""`sallyport sandbox --print-plan --for macos`: the profile and arguments of sandbox-exec, made on this host.

Nothing here can run them. They are read by a small evaluator of the profile language (rules in order, the last one that
matches decides) and held against what `--explain` says of the same policy, and against the parts that are fixed."""

import os
import re

import tap
from server import ours_only
from test_sandbox_verb import Verb


def parse(text):
    """The profile as nested lists; #"..." is ('regex', ...)."""
    tokens = re.findall(r'\(|\)|#?"(?:\\.|[^"\\])*"|[^\s()]+', text)
    stack = [[]]
    for t in tokens:
        if t == '(':
            stack.append([])
        elif t == ')':
            done = stack.pop()
            stack[-1].append(done)
        elif t.startswith('#"'):
            stack[-1].append(t[2:-1])
        else:
            stack[-1].append(t.strip('"'))
    assert len(stack) == 1, 'unbalanced'
    return stack[0]


class Profile:
    def __init__(self, out):
        head, _, self.text = out.partition('policy:\n')
        self.lines = head.splitlines()
        self.params = dict(line.strip()[2:].split('=', 1) for line in self.lines if line.startswith('  -D'))
        self.rules = parse(self.text)

    def value(self, x):
        return self.params[x[1]] if isinstance(x, list) else x

    def holds(self, f, path, is_dir):
        what = f[0]
        if what == 'require-all':
            return all(self.holds(x, path, is_dir) for x in f[1:])
        if what == 'require-not':
            return not self.holds(f[1], path, is_dir)
        if what == 'subpath':
            root = self.value(f[1]).rstrip('/')
            return path == root or path.startswith(root + '/')
        if what in ('literal', 'path'):
            return path == self.value(f[1])
        if what == 'regex':
            return re.search(f[1], path) is not None
        if what == 'vnode-type':
            return f[1] == 'DIRECTORY' and is_dir
        if what == 'extension':
            return False
        raise AssertionError('filter ' + what)

    def may(self, operation, path, is_dir=False):
        allowed = False
        for rule in self.rules[1:]:
            ops = [x for x in rule[1:] if isinstance(x, str)]
            filters = [x for x in rule[1:] if isinstance(x, list)]
            if rule == ['deny', 'default'] or not any(
                    o == operation or o.endswith('*') and operation.startswith(o[:-1]) for o in ops):
                continue
            if not filters or any(self.holds(f, path, is_dir) for f in filters):
                allowed = rule[0] == 'allow'
        return allowed


def mac(path):
    return '/private' + path if path.split('/')[1] in ('tmp', 'var', 'etc') else path


def entry(path, access, kind='path'):
    what = {'path': {'type': 'path', 'path': path}, 'glob': {'type': 'glob_pattern', 'pattern': path},
            'special': {'type': 'special', 'value': {'kind': path}}}[kind]
    return {'path': what, 'access': access}


@ours_only
class Seatbelt(Verb):
    def make(self, *options):
        code, out, err = self.run_verb(*options, '--print-plan', '--for', 'macos')
        self.assertEqual((code, err), (0, b''))
        self.assertEqual(os.listdir(self.work), self.before)
        return Profile(out.decode())

    def setUp(self):
        super().setUp()
        self.before = []

    def make_profile(self, *entries, network='restricted'):
        return '--profile', self.profile({'type': 'managed', 'network': network,
                                          'file_system': {'type': 'restricted', 'entries': list(entries)}})

    def as_explained(self, options, *paths):
        """What the profile allows is what --explain says of the policy."""
        p = self.make(*options)
        code, out, _ = self.run_verb(*options, '--explain', *paths)
        self.assertEqual(code, 0)
        said = re.findall(r'^(/\S*)\n(?:  leads.*\n)?  read: (yes|no).*\n  write: (yes|no)', out.decode(), re.M)
        self.assertEqual([s[0] for s in said], list(paths))
        for path, read, write in said:
            self.assertEqual((p.may('file-read-data', mac(path)), p.may('file-write-create', mac(path))),
                             (read == 'yes', write == 'yes'), path)
        return p

    def test_read_only(self):
        p = self.as_explained(('--mode', 'read-only'), self.work + '/a', self.beside, '/opt/x')
        self.assertEqual(p.lines[:2], ['program: /usr/bin/sandbox-exec',
                                       'environment: CODEX_SANDBOX=seatbelt CODEX_SANDBOX_NETWORK_DISABLED=1'])
        self.assertEqual(p.lines[2:], ['arguments:', '  -p POLICY', '  -- COMMAND ...'])
        self.assertIn(['allow', 'file-read*'], p.rules)
        self.assertNotIn('network', p.text)
        self.assertEqual(p.rules[:2], [['version', '1'], ['deny', 'default']])
        self.assertIn(['allow', 'user-preference-read'], p.rules)  # only with full read
        self.assertFalse(p.may('file-write-create', '/dev/ttys001'))  # not without the extension of a terminal

    def test_what_is_the_same_for_every_policy(self):
        rules = self.make().rules
        names = {x[1] for rule in rules if rule[1] == 'sysctl-read' for x in rule[2:]}
        self.assertLessEqual({'kern.' + n for n in (
            'argmax hostname maxfilesperproc maxproc osproductversion osrelease ostype osvariant_status osversion secure_kernel '
            'sysv.semmns usrstack64 version proc.pgrp. proc.pid.').split()}, names)
        self.assertLessEqual({'hw.optional.arm.', 'hw.optional.armv8_', 'hw.perflevel', 'net.routetable.', 'vm.loadavg',
                              'machdep.cpu.brand_string', 'sysctl.proc_cputype', 'hw.memsize', 'hw.ncpu'}, names)
        for rule in (['allow', 'process-exec'], ['allow', 'process-fork'], ['allow', 'signal', ['target', 'same-sandbox']],
                     ['allow', 'process-info*', ['target', 'same-sandbox']], ['allow', 'ipc-posix-sem'], ['allow', 'pseudo-tty'],
                     ['allow', 'file-write-data', ['require-all', ['path', '/dev/null'], ['vnode-type', 'CHARACTER-DEVICE']]],
                     ['allow', 'sysctl-write', ['sysctl-name', 'kern.grade_cputype']],
                     ['allow', 'iokit-open', ['iokit-registry-entry-class', 'RootDomainUserClient']],
                     ['allow', 'mach-lookup', ['global-name', 'com.apple.system.opendirectoryd.libinfo'],
                      ['global-name', 'com.apple.PowerManagement.control']],
                     ['allow', 'ipc-posix-shm-read-data', 'ipc-posix-shm-write-create', 'ipc-posix-shm-write-unlink',
                      ['ipc-posix-name-regex', '^/__KMP_REGISTERED_LIB_[0-9]+$']],
                     ['allow', 'file-read*', 'file-write*', 'file-ioctl', ['literal', '/dev/ptmx']],
                     ['allow', 'file-ioctl', ['regex', '^/dev/ttys[0-9]+']]):
            self.assertIn(rule, rules)

    def test_workspace_write(self):
        w = self.work
        p = self.as_explained(('--mode', 'workspace-write'), w, w + '/a', w + '/.git', w + '/.git/config', w + '/.gitignore',
                              w + '/sub/.git/config', w + '/.codex/x', self.beside, self.tmp + '/t', self.tmp + '/.git', '/opt/x')
        self.assertEqual(p.params['WRITABLE_ROOT_0'], mac(w))
        self.assertFalse(p.may('file-write-unlink', mac(w), True))  # the root itself is not renamed
        self.assertTrue(p.may('file-write-unlink', mac(w) + '/a'))
        self.assertNotIn('network', p.text)

    def test_network(self):
        p = self.make('--mode', 'workspace-write', '--network')
        self.assertEqual(p.lines[1], 'environment: CODEX_SANDBOX=seatbelt')
        for rule in (['allow', 'network-outbound'], ['allow', 'network-inbound'],
                     ['allow', 'system-socket', ['require-all', ['socket-domain', 'AF_SYSTEM'], ['socket-protocol', '2']]]):
            self.assertIn(rule, p.rules)

    def test_full_access_has_no_sandbox(self):
        code, out, _ = self.run_verb('--mode', 'danger-full-access', '--print-plan', '--for', 'macos')
        self.assertEqual(code, 0)
        self.assertTrue(out.startswith(b'confinement: none\n'), out)

    def test_carve_outs(self):
        w = self.work
        options = self.make_profile(entry('root', 'read', 'special'), entry(w, 'write'), entry(w + '/a/b/ro', 'read'),
                                    entry(w + '/a/b/ro/rw', 'write'), entry(self.beside, 'deny'),
                                    entry(self.beside + '/open', 'read'), entry(w + '/.git', 'write'))
        for d in ('/a/b/ro/rw', '/.git'):
            os.makedirs(w + d)
        os.makedirs(self.beside + '/open')
        self.before = os.listdir(w)
        p = self.as_explained(options, w + '/x', w + '/a', w + '/a/b/ro', w + '/a/b/ro/x', w + '/a/b/ro/rw/x', w + '/.git/config',
                              w + '/.codex/x', self.beside + '/x', self.beside + '/open/x', '/opt/x')
        for way in ('/a', '/a/b', '/a/b/ro'):
            self.assertFalse(p.may('file-write-unlink', mac(w) + way, True), way)  # else ro could be moved away
        self.assertTrue(p.may('file-write-unlink', mac(w) + '/c', True))
        os.rmdir(w + '/.git')

    def test_restricted_reads(self):
        options = self.make_profile(entry('minimal', 'read', 'special'), entry(self.work, 'read'), entry('/usr/share/x', 'deny'),
                                    entry('/usr/share/x/y', 'read'))
        p = self.make(*options)
        for path, read in ((mac(self.work) + '/a', True), ('/opt/beside', False), ('/usr/lib/libSystem.B.dylib', True),
                           ('/usr/share/x/z', False), ('/usr/share/x/y/z', True), ('/Users/me/.ssh/id', False)):
            self.assertEqual(p.may('file-read-data', path), read, path)
            self.assertFalse(p.may('file-write-create', path), path)
        self.assertNotIn('user-preference-read', p.text)
        self.assertNotIn('/usr/lib64', p.text)  # what Linux needs

    def test_patterns(self):
        w = mac(self.work)
        p = self.make(*self.make_profile(entry('root', 'read', 'special'), entry(self.work, 'write'), entry('**/*.key', 'deny', 'glob'),
                                         entry('a?[!x]/{b,c.d}', 'deny', 'glob'), entry('plain', 'deny', 'glob')))
        for path, is_open in (('/x.key', False), ('/s/t/x.key', False), ('/x.keys', True), ('/d.key/below', False), ('/aby/b', False),
                              ('/abx/b', True), ('/ab/b', True), ('/aby/c.d', False), ('/aby/cxd', True), ('/plain', False),
                              ('/plain/x', False), ('/plainer', True)):
            self.assertEqual((p.may('file-read-data', w + path), p.may('file-write-create', w + path)), (is_open, is_open), path)
        self.assertFalse(p.may('file-write-unlink', w + '/aby', True))  # its match would lose its name

    def test_a_symlink_in_a_writable_root_is_refused(self):
        os.symlink(self.beside, self.work + '/link')
        self.before = ['link']
        os.mkdir(self.beside + '/in')
        code, out, err = self.run_verb(*self.make_profile(entry(self.work + '/link/in', 'write')), '--print-plan', '--for', 'macos')
        self.assertEqual((code, out), (125, b''))
        self.assertIn(b'writable root %s/link/in contains symlink component %s/link; symlinked writable roots are not supported'
                      % (self.work.encode(), self.work.encode()), err)

    def test_names_with_quotes_stay_names(self):
        odd = self.work + '/a") (allow default'
        os.mkdir(odd)
        self.before = os.listdir(self.work)
        p = self.make(*self.make_profile(entry('root', 'read', 'special'), entry(odd, 'write')))
        self.assertNotIn(['allow', 'default'], p.rules)
        self.assertEqual((p.may('file-write-create', mac(odd) + '/x'), p.may('file-write-create', mac(odd) + '/.git')), (True, False))

    def test_usage(self):
        for words, says in ((('--for', 'macos', '--', 'true'), b'--for is for --print-plan'),
                            (('--print-plan', '--for', 'plan9'), b'is not linux or macos')):
            code, out, err = self.run_verb(*words)
            self.assertEqual((code, out), (125, b''))
            self.assertIn(says, err)
        self.assertEqual(self.run_verb('--print-plan', '--for', 'linux')[0], 0)


if __name__ == '__main__':
    tap.main()
