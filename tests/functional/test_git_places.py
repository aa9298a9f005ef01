# SPDX-License-Identifier: Apache-2.0
"""A person's `git status`, or one that a rule sets free, runs no program that a confined command left behind."""

import os
import shutil
import subprocess
import unittest

import tap
import wire
from server import ours_only
from test_own_places import Ground

GIT = ('git', '-c', 'protocol.file.allow=always', '-c', 'user.name=t', '-c', 'user.email=t@example.org', '-c',
       'init.defaultBranch=main')


@ours_only
@unittest.skipUnless(shutil.which('git'), 'there is no git')
class Git(Ground):
    def setUp(self):
        super().setUp()
        self.env.update(GIT_CONFIG_NOSYSTEM='1', GIT_CONFIG_GLOBAL='/dev/null')
        self.ran = os.path.join(self.far, 'ran')
        self.evil = '#!/bin/sh\ntouch %s\n' % self.ran

    def git(self, *words, cwd=None):
        return subprocess.run([*GIT, *words], cwd=cwd or self.work, env=self.env, check=True, capture_output=True,
                              timeout=wire.DEADLINE).stdout.decode()

    def sh(self, script, cwd=None):
        code, out, err = self.run_it('exec', '--sandbox', ':workspace', '--', 'sh', '-c', script + '; echo tried', cwd=cwd)
        self.assertIn('tried', out, err)
        return err

    def with_submodule(self, name):
        """A repository with a submodule, which has one itself, in the workspace."""
        for repo, sub in (('inner', None), ('middle', 'inner')):
            path = os.path.join(self.far, repo)
            self.git('init', '-q', path)
            self.git('commit', '-q', '--allow-empty', '-m', 'x', cwd=path)
            if sub:
                self.git('submodule', '-q', 'add', os.path.join(self.far, sub), 'deep', cwd=path)
                self.git('commit', '-q', '-m', 'y', cwd=path)
        self.git('init', '-q')
        self.git('submodule', '-q', 'add', os.path.join(self.far, 'middle'), name)
        self.git('submodule', '-q', 'update', '--init', '--recursive')
        self.git('commit', '-q', '-m', 'z')

    def test_the_git_file_of_a_submodule(self):
        self.with_submodule('libs/sub')
        plant = ('mkdir -p evil && git init -q --bare evil/r && printf %%b "%s" > evil/p && chmod 755 evil/p && '
                 'git -C evil/r config core.bare false && git -C evil/r config core.worktree "$PWD/libs/sub" && '
                 'git -C evil/r config core.fsmonitor "$PWD/evil/p"; ' % self.evil.replace('\n', '\\n'))
        for sub in ('libs/sub', 'libs/sub/deep'):
            before = open(os.path.join(self.work, sub, '.git')).read()
            self.sh(plant + 'echo "gitdir: $PWD/evil/r" > %s/.git; rm -f %s/.git; echo "gitdir: $PWD/evil/r" > n; mv -f n %s/.git; '
                    'mv %s old; mv libs old' % ((sub,) * 4))
            self.assertEqual(open(os.path.join(self.work, sub, '.git')).read(), before)
        self.sh('echo changed > libs/sub/f && mkdir libs/sub/d && rm -r libs/sub/d')  # the rest of it is the workspace
        self.git('status')
        self.assertFalse(os.path.exists(self.ran))

    def test_a_submodule_that_comes_later_is_protected_too(self):
        self.git('init', '-q')
        self.sh('true')
        self.with_submodule('sub')
        self.sh('echo x > sub/.git')
        self.assertIn('gitdir:', open(os.path.join(self.work, 'sub/.git')).read())

    def test_a_planted_bare_repository(self):
        self.sh('git init -q --bare bare && printf %%b "%s" > bare/p && chmod 755 bare/p && cd bare && '
                'git config core.bare false && git config core.worktree "$PWD" && git config core.fsmonitor "$PWD/p"'
                % self.evil.replace('\n', '\\n'))
        bare = os.path.join(self.work, 'bare')
        self.git('status', cwd=bare)
        self.assertTrue(os.path.exists(self.ran))  # a person's git, unless safe.bareRepository is set
        os.unlink(self.ran)
        rules = os.path.join(self.far, 'git.rules')
        with open(rules, 'w') as f:
            f.write('prefix_rule(pattern=["git"], decision="allow")\n')
        self.env['HOME'] = self.far  # no rule sets Git free that may read settings of a command's
        del self.env['GIT_CONFIG_GLOBAL']
        free = ('exec', '--sandbox', ':workspace', '--rules', rules, '--')
        code, _, err = self.run_it(*free, 'git', 'status', cwd=bare)
        self.assertFalse(os.path.exists(self.ran))
        self.assertNotEqual(code, 0)
        self.assertIn('bare', err)
        # What is set already stays, and a repository works as ever.
        self.git('init', '-q', os.path.join(self.work, 'repo'))
        count = {'GIT_CONFIG_COUNT': '1', 'GIT_CONFIG_KEY_0': 'user.name', 'GIT_CONFIG_VALUE_0': 'somebody'}
        code, out, err = self.run_it(*free, 'git', 'config', 'user.name', cwd=os.path.join(self.work, 'repo'), env=count)
        self.assertEqual((code, out), (0, 'somebody\n'), err)
        self.assertEqual(self.run_it(*free, 'git', 'status', cwd=os.path.join(self.work, 'repo'))[0], 0)


if __name__ == '__main__':
    tap.main()
