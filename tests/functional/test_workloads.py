#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Honest work is not harmed: a core of programs under four policies, and git in all its habits."""

import hashlib
import os
import re
import shutil
import subprocess
import unittest

import tap
from sandbox_policy import WORKSPACE, place
from workload import (NOBODY, NOBODY_REACHES, OPEN, PROGRAMS, RESTRICTED_READS, HostServer, Workload,
                      confined_only, has, needs)


class Core:
    """What has to work wherever something is writable."""

    def inside(self, name, at_least, **env):
        """Runs a program of tests that speaks unittest's language."""
        self.copy_in(name)
        confined = {} if OPEN else {'WORK_CONFINED': '1'}
        done = self.run_in(['python3', name], env=dict(confined, **env))
        said = done.stderr.decode('utf-8', 'replace')
        self.assertEqual(done.exit_code, 0, self.story(name, done))
        count = re.search(r'Ran (\d+) tests', said)
        self.assertGreaterEqual(int(count.group(1)), at_least, said)
        skipped = re.search(r'skipped=(\d+)', said)
        self.assertLessEqual(int(skipped.group(1)) if skipped else 0, 4, said)

    @needs('python3')
    def test_files(self):
        more = '/tmp' if self.reads_all else ''
        self.inside('files.py', 19, OTHER_ROOTS=more)

    @needs('python3')
    def test_processes_and_loopback(self):
        self.inside('machine.py', 28)

    @needs('bash', 'flock', 'timeout', 'awk')
    def test_shell(self):
        self.copy_in('shell.sh')
        with open(os.path.join(PROGRAMS, 'shell.expected')) as f:
            expected = f.read()
        self.assertEqual(self.works(['bash', 'shell.sh']), expected)
        self.assertEqual(self.get('sorted'), 'a\nb\n')

    @needs('make', 'gcc')
    def test_c_project(self):
        self.copy_in('c')
        self.works('make -s -j4 all CC=gcc && make -s -j2 check CC=gcc', cwd=self.path('c'))
        self.assertEqual(self.get('c/result'), '55\n')
        self.assertTrue(os.access(self.path('c/libpart.so'), os.X_OK))
        self.works('make -s clean; gcc -save-temps=cwd -o $TMPDIR/program *.c && $TMPDIR/program', cwd=self.path('c'))
        self.assertTrue([n for n in os.listdir(self.path('c')) if n.endswith('main.i')])

    @needs('git')
    def test_git_in_a_subdirectory(self):
        self.make_repository('source')
        self.works('git clone -q source clone')
        said = self.works('''set -e
            git checkout -q -b topic; echo topic > new; git add new; git commit -q -m topic
            git checkout -q main; echo main >> file; git commit -q -a -m more
            git checkout -q topic; git rebase -q main
            echo dirty >> file; git stash -q; git stash pop -q; git checkout -q file
            git worktree add -q ../tree -b other; git tag v1; git gc -q; git fsck --no-dangling
            git push -q origin topic; git log --format=%s''', cwd=self.path('clone'))
        self.assertEqual(said.split(), ['topic', 'more', 'first'])
        self.assertTrue(os.path.isfile(self.path('tree/.git')))
        self.assertEqual(self.host_git('source', 'log', '--format=%s', 'topic').split(), ['topic', 'more', 'first'])
        self.works('echo t >> new && git commit -q -a -m tree && git status', cwd=self.path('tree'))
        self.works('git init -q fresh && cd fresh && touch x && git add x && git commit -q -m x')

    def test_large_output(self):
        size = 30 << 20
        done = self.run_in('yes 0123456789abcde | head -c %d' % size)
        self.assertEqual(done.exit_code, 0)
        line = b'0123456789abcde\n'
        self.assertEqual(done.sizes['stdout'], size)
        self.assertEqual(done.hashes['stdout'].digest(), hashlib.sha256(line * (size // len(line))).digest())

    def test_failing_is_no_denial(self):
        for command, code in (('grep -q nothing /etc/passwd', 1), ('ls -l missing', 2), ('exit 42', 42),
                              ('no-such-program', 127), ('kill -9 $$', 137), ('id >/dev/null; false', 1),
                              ('cd /nowhere', 1), ('kill -SEGV $$', 139)):
            self.fails(command, code=code, denied=False)

    @confined_only
    def test_writing_outside_is_refused(self):
        where = self.o + '/f'
        if self.reads_all:
            self.refused('echo x > ' + where, 'read-only file system')
        else:
            self.fails('echo x > ' + where, 'no such file', 'read-only file system', code=1)
        self.assertEqual(os.listdir(self.o), [])

    # -- helpers for git

    def host_git(self, name, *words):
        """git on the host, as the owner of the directory."""
        def become():
            if self.uid is not None:
                os.setgroups([])
                os.setgid(self.uid)
                os.setuid(self.uid)
        return subprocess.run(['git', *words], cwd=self.path(name), env=self.environment(), check=True,
                              preexec_fn=become, stdout=subprocess.PIPE, text=True).stdout

    def make_repository(self, name):
        os.makedirs(self.path(name), exist_ok=True)
        self.own(self.path(name))
        self.host_git(name, 'init', '-q', '-b', 'main')
        self.put(os.path.join(name, 'file'), 'first\n')
        self.host_git(name, 'add', 'file')
        self.host_git(name, 'commit', '-q', '-m', 'first')


class WorkspaceWrite(Core, Workload):
    """The policy of the Codex client, as whoever runs the tests."""


class RestrictedReads(Core, Workload):
    """Only programs and the workspace can be seen."""

    reads_all = False

    def entries(self):
        return RESTRICTED_READS

    @confined_only
    def test_nothing_else_is_there(self):
        for path in (self.o, self.home, '/root', '/home', '/srv', '/tmp'):
            self.fails(['ls', path], 'no such file')
        self.works('ls /usr/bin /etc /proc /dev > /dev/null')


class NetworkEnabled(Core, Workload):
    """The host's network may be used."""

    network = 'enabled'

    def test_a_server_of_the_host(self):
        server = HostServer()
        self.addCleanup(server.close)
        said = self.works('exec 3<>/dev/tcp/127.0.0.1/%d && cat <&3' % server.port)
        self.assertEqual(said, 'hello from the host\n')
        self.assertEqual(server.count, 1)

    @needs('getent')
    def test_names(self):
        self.assertIn('localhost', self.works('getent hosts localhost'))
        self.assertIn('127.0.0.1', self.works('getent ahostsv4 localhost'))

    @needs('node')
    def test_interfaces(self):
        self.assertIn('lo', self.works(['node', '-p', 'Object.keys(os.networkInterfaces()).join()']))


@unittest.skipUnless(NOBODY_REACHES, 'needs root, and a program that every user can execute')
class OrdinaryUser(Core, Workload):
    """A server without privileges."""

    uid = NOBODY

    def test_who_it_is(self):
        self.assertEqual(self.works('id -u; id -g').split(), [str(NOBODY)] * 2)
        self.works('touch mine && test -O mine')
        self.assertEqual(os.stat(self.path('mine')).st_uid, NOBODY)

    @needs('node')
    def test_node(self):
        self.copy_in('node')
        self.works(['node', 'test.js'], cwd=self.path('node'))


# ------------------------------------------------------------------------------- git in the root


@unittest.skipUnless(has('git'), 'this machine has no git')
class GitRoot(Core, Workload):
    """The workspace root is a repository: its .git is protected."""

    def setUp(self):
        super().setUp()
        self.make_repository('.')
        self.put('file', 'first\nsecond\n')

    def is_ours(self, root, name):
        return root == self.w and name == '.git'

    # The core has been run; here only git counts.
    test_files = test_processes_and_loopback = test_shell = test_c_project = None
    test_large_output = test_failing_is_no_denial = test_writing_outside_is_refused = None

    def picture(self):
        found = {}
        for directory, _names, files in os.walk(self.path('.git')):
            for name in files:
                path = os.path.join(directory, name)
                with open(path, 'rb') as f:
                    found[path] = f.read()
        return found

    def test_looking(self):
        self.assertIn('modified:   file', self.works('git status'))
        self.assertEqual(self.works('git log --format=%s'), 'first\n')
        self.assertIn('+second', self.works('git diff'))
        self.assertEqual(self.works('git ls-files; git rev-parse --abbrev-ref HEAD'), 'file\nmain\n')
        self.assertIn('first', self.works('git show; git blame file; git grep first; git cat-file -p HEAD:file'))
        self.assertEqual(self.works('git rev-parse --show-toplevel').strip(), os.path.realpath(self.w))
        self.works('git fsck && git describe --always && git archive HEAD | tar tf -')

    @confined_only
    def test_changing_is_refused(self):
        before = self.picture()
        for command in ('git commit -a -m no', 'git add file', 'git checkout -b no', 'git tag no', 'git gc',
                        'git config user.name no', 'git reset --hard', 'git fetch .', 'git worktree add ../o/tree',
                        'git rm --cached file', 'git update-ref refs/heads/no HEAD'):
            with self.subTest(command):
                said = self.refused(command, 'read-only file system')
                self.assertIn('.git', said)
        self.fails('git stash')  # git itself says nothing about why
        self.assertEqual(self.picture(), before)
        self.assertEqual(self.get('file'), 'first\nsecond\n')

    @confined_only
    def test_hooks_cannot_be_planted(self):
        for command in ('echo x > .git/hooks/pre-commit', 'mv .git gone', 'rm -rf .git', 'ln -s x .git/x',
                        'git init --template=/dev/null .', 'chmod 777 .git/config'):
            with self.subTest(command):
                self.fails(command, 'read-only file system', 'device or resource busy')
        self.assertIn('first', self.host_git('.', 'log'))

    def test_granted(self):
        entries = WORKSPACE + [place(self.path('.git'), 'write')]
        self.works('git commit -q -a -m second && git checkout -q -b topic && git gc -q', entries=entries)
        self.assertEqual(self.host_git('.', 'log', '--format=%s').split(), ['second', 'first'])

    def test_working_tree_is_writable(self):
        self.works('git apply -R <(git diff) && test "$(cat file)" = first && git diff --quiet')
        self.works('git show HEAD:file > restored && git clone -q . sub && cd sub && git commit -q --allow-empty -m x')

    def test_worktree_outside_the_repository(self):
        """The workspace is a worktree: its .git is a file that points to somewhere else."""
        main = os.path.join(self.base, 'main')
        shutil.move(self.path('.git'), main + '.git')
        subprocess.run(['git', '--git-dir', main + '.git', 'config', 'core.bare', 'true'], check=True)
        os.unlink(self.path('file'))
        os.rmdir(self.w)
        subprocess.run(['git', '--git-dir', main + '.git', 'worktree', 'add', '-q', '-b', 'tree', self.w],
                       check=True, env=self.environment())
        self.own(self.w)
        self.own(main + '.git')
        self.assertIn('nothing to commit', self.works('git status'))
        self.assertEqual(self.works('git log --format=%s'), 'first\n')
        self.works('echo x >> file && ! git diff --quiet')
        self.refused('git commit -a -m no', 'read-only file system')
        self.refused('echo x > .git', 'read-only file system')
        entries = WORKSPACE + [place(main + '.git', 'write'), place(self.path('.git'), 'write')]
        self.works('git commit -q -a -m yes', entries=entries)
        self.assertEqual(self.host_git('.', 'log', '--format=%s').split(), ['yes', 'first'])

    def test_git_file_into_the_workspace(self):
        """.git is a file naming a directory of the workspace: that is protected as well."""
        os.rename(self.path('.git'), self.path('data'))
        self.put('.git', 'gitdir: data\n')
        self.assertEqual(self.works('git log --format=%s'), 'first\n')
        self.refused('git commit -a -m no', 'read-only file system')
        self.refused('echo x > data/hooks/pre-commit', 'read-only file system')
        self.works('echo fine > other')


@unittest.skipUnless(has('git'), 'this machine has no git')
class GitMissing(Workload):
    """A workspace that is no repository."""

    def test_it_stays_none(self):
        self.fails('git status', 'not a git repository', denied=False)
        self.fails('git rev-parse --show-toplevel', 'not a git repository', denied=False)
        self.refused('git init .', 'read-only file system')
        if not OPEN:  # a name that is busy does not read as a denial
            self.fails('git init --separate-git-dir=data .', 'device or resource busy', code=128)

    def test_global_configuration(self):
        self.refused('git config --global user.name no', 'read-only file system')
        self.works('git config --list', env={'GIT_CONFIG_GLOBAL': '/dev/null'})


if __name__ == '__main__':
    tap.main()
