# SPDX-License-Identifier: Apache-2.0
"""What a rule allows is a program's name; what runs without a sandbox is a file. Files that a confined command could have
written, and files that such a file leads to, never run free: by path, by PATH, by a shell's profile, as an interpreter.
Next to each attack, the use that has to go on working."""

import os
import shutil
import subprocess
import tempfile

import mcp
import tap
import wire
from mcp import FORM
from server import PASS_ON, PROGRAM, PYTHON, Case, ours_only

SYSTEM = '/usr/bin:/bin'


class Ground:
    """A workspace in which everything may be planted, and a place beside it that only a free run can write."""

    def lay(self):
        self.ground = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-programs-', dir='/var/tmp'))
        self.addCleanup(shutil.rmtree, self.ground, True)
        self.ws, self.out, self.bin, self.home_dir = (os.path.join(self.ground, n) for n in ('ws', 'out', 'bin', 'home'))
        for path in (self.ws, self.out, self.bin, self.home_dir, self.ws + '/bin'):
            os.mkdir(path)
        self.mark_file = os.path.join(self.out, 'escaped')

    def rules(self, *names):
        path = os.path.join(self.ground, 'my.rules')
        with open(path, 'w') as f:
            for name in names:
                f.write('prefix_rule(pattern=["%s"], decision="allow")\n' % name)
        return path

    def plant(self, path, interpreter='/bin/sh'):
        return wire.write_program(path, '#!%s\necho planted\n: > %s\n' % (interpreter, self.mark_file))

    def escaped(self):
        there = os.path.exists(self.mark_file)
        if there:
            os.unlink(self.mark_file)
        return there


@ours_only
class Exec(Case, Ground):
    """sallyport exec, in a directory that is not the workspace: --cwd says where the command runs."""

    def setUp(self):
        super().setUp()
        self.lay()

    def exec(self, *argv, path=SYSTEM, rules=('git', 'touch', 'tool', 'sh'), flags=(), **env):
        keep = {k: os.environ[k] for k in PASS_ON if k in os.environ}
        if '--approver' not in flags:
            flags = ('--approver', 'deny', *flags)
        r = subprocess.run([PROGRAM, 'exec', '--quiet', '--rules', self.rules(*rules), '--approve', 'never', '--sandbox', ':workspace',
                            '--cwd', self.ws, *flags, '--', *argv],
                           env={**keep, 'PATH': path, 'HOME': self.home_dir, 'SALLYPORT_HOME': self.home_dir, **env},
                           cwd=self.bin, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=wire.DEADLINE)
        return r.returncode, r.stdout.decode()

    def assertConfined(self, *argv, planted=True, **how):
        code, said = self.exec(*argv, **how)
        self.assertFalse(self.escaped(), argv)
        if planted:
            self.assertIn('planted', said, argv)
        else:
            self.assertNotEqual(code, 0, argv)

    def assertFree(self, *argv, **how):
        code, said = self.exec(*argv, **how)
        self.assertTrue(self.escaped(), (argv, said))
        self.assertEqual(code, 0, said)
        return said

    # -- by path

    def test_a_path_is_looked_at_where_the_command_runs(self):
        self.plant(self.ws + '/git')
        for path in ('/proc/self/cwd/git', '/proc/self/root%s/git' % self.ws, '/proc/thread-self/cwd/git',
                     '/dev/../proc/self/cwd/git', './git', self.ws + '/git', self.ws + '/bin/../git'):
            self.assertConfined(path, 'status', rules=('git', './git', self.ws + '/git', path))
        # the server's own directory has a harmless one under the same name
        wire.write_program(self.bin + '/git', '#!/bin/sh\n')
        self.assertConfined('/proc/self/cwd/git', 'status')

    def test_what_is_not_found_is_not_free(self):
        self.assertConfined('/nowhere/touch', self.mark_file, planted=False)
        self.assertConfined('touch', self.mark_file, planted=False, path='/nowhere')

    def test_a_link_in_a_safe_place_leads_into_the_workspace(self):
        self.plant(self.ws + '/real')
        os.symlink(self.ws + '/real', self.bin + '/git')
        self.assertConfined('git', 'status', path=self.bin + ':' + SYSTEM)
        self.assertConfined(self.bin + '/git', 'status')
        os.unlink(self.bin + '/git')
        os.symlink('/usr/bin/touch', self.ws + '/touch')  # and out of it
        self.assertConfined(self.ws + '/touch', self.mark_file, planted=False)
        os.symlink('%s/bin/../../bin' % self.ws, self.ground + '/turn')  # through it
        self.plant(self.bin + '/git')
        self.assertConfined(self.ground + '/turn/git')

    def test_an_interpreter_in_the_workspace(self):
        self.plant(self.ws + '/python')
        self.plant(self.bin + '/git', interpreter=self.ws + '/python')
        self.assertConfined('git', 'status', path=self.bin + ':' + SYSTEM)

    # -- by PATH

    def test_a_planted_program_in_a_venv(self):
        self.plant(self.ws + '/bin/git')
        path = self.ws + '/bin:' + SYSTEM
        self.assertConfined('git', 'status', path=path)
        self.assertConfined('/bin/sh', '-c', 'git status', path=path)
        self.assertConfined('/bin/bash', '-c', 'true && git status', path=path, rules=('git', 'true'))

    def test_a_directory_that_is_searched_before_it(self):
        for before in (self.ws + '/bin', self.ws + '/missing', '.', '', 'bin', '/proc/self/cwd'):
            self.assertConfined('touch', self.mark_file, planted=False, path=before + ':' + SYSTEM)
            self.assertConfined('/bin/sh', '-c', 'touch ' + self.mark_file, planted=False, path=before + ':' + SYSTEM)
        self.assertFree('touch', self.mark_file, path='/nowhere:%s:%s' % (self.bin, SYSTEM))

    def test_a_free_program_finds_no_helper_in_the_workspace(self):
        self.plant(self.ws + '/bin/helper')
        wire.write_program(self.bin + '/tool', '#!/bin/sh\necho "$PATH"\nhelper\n')
        code, said = self.exec('tool', path='%s:%s:%s/bin:.' % (self.bin, SYSTEM, self.ws))
        self.assertFalse(self.escaped())
        self.assertEqual((code, said.splitlines()[0]), (127, self.bin + ':' + SYSTEM))

    def test_a_path_of_which_nothing_is_left_is_not_the_working_directory(self):
        self.plant(self.ws + '/helper')
        wire.write_program(self.bin + '/tool', '#!/bin/sh\necho "PATH=$PATH"\nhelper\n')
        for path in (self.ws + '/bin', '.', ''):
            code, said = self.exec(self.bin + '/tool', path=path)
            self.assertFalse(self.escaped(), path)

    def test_no_program_is_known_to_be_safe_in_a_relative_path(self):
        self.plant(self.ws + '/bin/ls')
        wary = ('--approve', 'untrusted')
        for script in ('ls', 'cd bin && ls'):
            code, said = self.exec('/bin/sh', '-c', script, path='.:' + SYSTEM, rules=(), flags=wary)
            self.assertEqual(code, 122, said)
            code, said = self.exec('/bin/sh', '-c', script, rules=(), flags=wary)
            self.assertEqual((code, said), (0, 'bin\n' if script == 'ls' else 'ls\n'))

    # -- shells

    def test_a_profile_in_a_writable_home(self):
        for name in ('.bash_profile', '.profile', '.bashrc', '.zshenv'):
            with open(os.path.join(self.ws, name), 'w') as f:
                f.write(': > %s\n' % self.mark_file)
        for argv in (('/bin/bash', '-lc', 'git --version'), ('/bin/sh', '-lc', 'git --version')):
            code, said = self.exec(*argv, HOME=self.ws)
            self.assertEqual((code, self.escaped()), (0, False), said)
        for flag in ('-l', '-i'):  # another form, by a rule for the shell
            self.exec('/bin/bash', flag, '-c', 'true', rules=('bash',), HOME=self.ws)
            self.assertFalse(self.escaped(), flag)
        self.assertFree('/bin/bash', '-lc', 'touch ' + self.mark_file, HOME=self.ws)

    def test_a_free_run_has_the_path_it_was_judged_by(self):
        with open(os.path.join(self.home_dir, '.bash_profile'), 'w') as f:
            f.write('PATH=%s/bin:$PATH\n' % self.ws)
        self.plant(self.ws + '/bin/git')
        code, said = self.exec('/bin/bash', '-lc', 'git --version')
        self.assertEqual((code, self.escaped()), (0, False), said)

    def test_code_that_a_variable_of_ours_names(self):
        with open(os.path.join(self.ws, 'env'), 'w') as f:
            f.write(': > %s\n' % self.mark_file)
        self.exec('/bin/bash', '-c', 'git --version', BASH_ENV=self.ws + '/env')
        self.assertFalse(self.escaped())
        self.assertConfined('touch', self.mark_file, planted=False, LD_LIBRARY_PATH=self.ws)
        self.assertFree('touch', self.mark_file, LD_LIBRARY_PATH=self.bin)
        for value in ('/usr/lib:', ':/usr/lib', '/usr/lib;' + self.ws):  # an empty entry is the working directory
            self.assertConfined('touch', self.mark_file, planted=False, LD_LIBRARY_PATH=value)
        self.assertConfined('touch', self.mark_file, planted=False, LD_PRELOAD='/usr/lib/none.so ' + self.ws + '/x.so')

    def test_modules_that_a_variable_of_ours_names(self):
        """A tool of the system, in an environment made for the work on a project."""
        wire.write_program(self.bin + '/tool', '#!%s\nimport json\nprint("ran")\n' % PYTHON)
        with open(os.path.join(self.ws, 'json.py'), 'w') as f:
            f.write('open(%r, "w")\n' % self.mark_file)
        path = self.bin + ':' + SYSTEM
        for value in (self.ws, '/usr/lib:' + self.ws, '.', '/usr/lib:'):
            self.exec('tool', path=path, PYTHONPATH=value)
            self.assertFalse(self.escaped(), value)
        for name in ('PYTHONHOME', 'PERL5LIB', 'RUBYLIB', 'NODE_PATH', 'CLASSPATH', 'GIT_EXEC_PATH', 'GIT_CONFIG_GLOBAL'):
            self.assertConfined('touch', self.mark_file, planted=False, **{name: self.ws})
            self.assertFree('touch', self.mark_file, **{name: self.bin})

    def test_builtins_that_change_what_a_name_means(self):
        self.plant(self.ws + '/bin/git')
        for script in ('printf -v PATH %s ' + self.ws + '/bin; git status', 'hash -p %s/bin/git git; git status' % self.ws,
                       'eval git\\ status', '. bin/git', 'alias git=bin/git; git status', 'command git status'):
            self.exec('/bin/bash', '-c', script, rules=('git', 'printf', 'hash', 'eval', '.', 'alias', 'command'))
            self.assertFalse(self.escaped(), script)
        self.assertFree('/bin/bash', '-c', 'cd bin && pwd && echo x && touch ' + self.mark_file,
                        rules=('cd', 'pwd', 'echo', 'touch'))

    # -- programs that decide

    def test_who_decides_runs_nothing_from_the_workspace(self):
        """An approver, a hook and a reviewer run without a sandbox, in the environment of the server."""
        yes = 'print(\'{"decision":"approved"}\')\n'
        decider = wire.write_program(self.ground + '/decider', '#!/usr/bin/env python3\nimport json\n' + yes)
        os.symlink(PYTHON, self.bin + '/python3')
        path = '%s/bin:%s:.' % (self.ws, self.bin)
        doors = (('--approver', 'program:' + decider), ('--set', 'permission_hook="%s"' % decider),
                 ('--set', 'reviewer="program:%s"' % decider, '--set', 'strict_review=true'))
        for door in doors:
            flags = (*door, '--approve', 'untrusted')
            code, said = self.exec('printf', 'ran', path=path + ':' + SYSTEM, rules=(), flags=flags)
            self.assertEqual((code, said), (0, 'ran'), door)
            self.plant(self.ws + '/bin/python3')
            with open(os.path.join(self.ws, 'json.py'), 'w') as f:
                f.write('open(%r, "w")\n' % self.mark_file)
            for env in ({}, {'PYTHONPATH': self.ws}, {'PYTHONPATH': '/usr/lib:.'}):
                code, said = self.exec('printf', 'ran', path=path + ':' + SYSTEM, rules=(), flags=flags, **env)
                self.assertEqual((code, said, self.escaped()), (0, 'ran', False), (door, env))
            os.unlink(self.ws + '/bin/python3')
            os.unlink(self.ws + '/json.py')

    # -- what goes on working

    def test_programs_of_the_system_run_free(self):
        self.assertFree('touch', self.mark_file)
        self.assertFree('/usr/bin/touch', self.mark_file)
        self.assertFree('/bin/sh', '-c', 'touch ' + self.mark_file)
        self.assertConfined('touch', self.mark_file, planted=False, rules=())

    def test_a_program_of_many_names_knows_its_name(self):
        wire.write_program(self.bin + '/many', '#!/bin/sh\n: > %s\necho "${0##*/}"\n' % self.mark_file)
        os.mkdir(self.ground + '/alternatives')
        os.symlink('../bin/many', self.ground + '/alternatives/tool')
        os.symlink(self.ground + '/alternatives/tool', self.bin + '/tool')
        self.assertEqual(self.assertFree('tool', path=self.bin + ':' + SYSTEM), 'tool\n')
        self.assertEqual(self.assertFree('/bin/sh', '-c', 'tool', path=self.bin + ':' + SYSTEM), 'tool\n')
        os.symlink('/bin/bash', self.bin + '/sh')  # argv[0] is what was written: bash is sh by it
        said = self.assertFree('sh', '-c', 'shopt -qo posix && echo posix $0; touch ' + self.mark_file,
                               path=self.bin + ':' + SYSTEM, rules=('sh',))
        self.assertEqual(said, 'posix sh\n')


    def test_a_program_that_is_replaced_while_it_is_reviewed(self):
        self.plant(self.bin + '/tool')
        self.plant(self.bin + '/next')
        review = wire.write_program(self.ground + '/review', '#!/bin/sh\nmv -f %s/next %s/tool\n'
                                    'echo \'{"decision":"approved"}\'\n' % (self.bin, self.bin))
        how = {'path': self.bin + ':' + SYSTEM, 'flags': ('--set', 'reviewer="program:%s"' % review, '--set',
                                                          'strict_review=true', '--approve', 'untrusted')}
        code, said = self.exec('tool', **how)
        self.assertEqual((code, self.escaped()), (125, False), said)
        self.assertIn(self.bin + '/tool is not the file that was allowed to run: it was replaced', said)
        wire.write_program(review, '#!/bin/sh\necho \'{"decision":"approved"}\'\n')
        self.assertFree('tool', **how)


class Mcp(mcp.Case, Ground):
    """exec_command: workdir, env and the login shell are the caller's."""

    def setUp(self):
        super().setUp()
        self.lay()

    def host(self, *args, names=('git', 'touch', 'env'), approve='on-request', **more):
        return self.mcp('--cwd', self.ws, '--rules', self.rules(*names), '--approve', approve, *args, **more)

    def call(self, host, arguments):
        r = host.call('exec_command', arguments, capabilities=FORM)
        return r, self.escaped()

    def test_a_workdir_does_not_choose_the_program(self):
        host = self.host()
        os.mkdir(self.ws + '/sub')
        self.plant(self.ws + '/sub/git')
        self.plant(self.ws + '/bin/git')
        for arguments in ({'argv': ['/proc/self/cwd/git', 'status']}, {'cmd': '/proc/self/cwd/git status'},
                          {'argv': ['git', 'status'], 'env': {'PATH': '%s/bin:/bin' % self.ws}},
                          {'cmd': 'git status', 'env': {'PATH': '.:/bin'}}, {'cmd': './git status'}):
            r, escaped = self.call(host, {**arguments, 'workdir': self.ws + '/sub', 'login': False})
            self.assertFalse(escaped, arguments)
            self.assertIn('planted', r.text, arguments)

    def test_escalation_by_a_rule_needs_the_program(self):
        host = self.host()
        self.plant(self.ws + '/git')
        more = {'sandbox_permissions': 'require_escalated', 'justification': 'x'}
        r, escaped = self.call(host, {'argv': [self.ws + '/git', 'status'], **more})
        self.assertEqual((r.kind, escaped), ('input_required', False))
        r, escaped = self.call(host, {'argv': ['touch', self.mark_file], **more})
        self.assertEqual((r.get('exit_code'), escaped), (0, True))

    def test_an_approval_for_the_session_is_for_the_program_that_was_there(self):
        host = self.host(names=(), env={'PATH': '%s:%s/bin' % (SYSTEM, self.ws)})
        more = {'sandbox_permissions': 'require_escalated', 'justification': 'x', 'login': False}

        def ask(arguments):
            r = host.call('exec_command', {**arguments, **more}, capabilities=FORM)
            if r.kind != 'input_required':
                return r, False
            (key, _), = r.result['inputRequests'].items()
            return host.call('exec_command', {**arguments, **more}, capabilities=FORM, state=r.result['requestState'],
                             responses={key: {'action': 'accept', 'content': {'decision': 'session'}}}), True

        for arguments in ({'cmd': 'touch ' + self.mark_file}, {'argv': ['touch', self.mark_file]}):
            for is_asked in (True, False):
                r, asked = ask(arguments)
                self.assertEqual((r.get('exit_code'), self.escaped(), asked), (0, True, is_asked), arguments)
        self.plant(self.ws + '/bin/mine')
        for arguments in ({'cmd': 'mine'}, {'argv': ['mine']}, {'cmd': 'mine > /dev/null'}):
            for _ in range(2):
                self.assertEqual(ask(arguments)[1], True, arguments)

    def test_the_login_shell_of_a_free_run(self):
        with open(os.path.join(self.ws, '.bash_profile'), 'w') as f:
            f.write(': > %s 2>/dev/null\ngit() { : > %s; }\n' % (self.mark_file, self.mark_file))
        self.configure('[features]\nshell_snapshot = true\n')
        host = self.host(env={'HOME': self.ws})
        for shell in ('/bin/bash', '/bin/sh'):
            for cmd in ('git --version', 'touch %s/made' % self.out):
                r, escaped = self.call(host, {'cmd': cmd, 'shell': shell})
                self.assertEqual((r.get('exit_code'), escaped), (0, False), (r, cmd))
        self.assertTrue(os.path.exists(self.out + '/made'))
        # A person who allows the command has not allowed the profile.
        arguments = {'cmd': 'uname', 'shell': '/bin/bash', 'sandbox_permissions': 'require_escalated', 'justification': 'x'}
        r = host.call('exec_command', arguments, capabilities=FORM)
        (key, _), = r.result['inputRequests'].items()
        r = host.call('exec_command', arguments, capabilities=FORM, state=r.result['requestState'],
                      responses={key: {'action': 'accept', 'content': {'decision': 'once'}}})
        self.assertEqual((r.get('exit_code'), self.escaped()), (0, False), r)

    def test_a_retry_without_the_sandbox_does_not_source_the_snapshot(self):
        """The first attempt runs with a snapshot of a profile that any command could have written."""
        with open(os.path.join(self.ws, '.bash_profile'), 'w') as f:
            f.write('mkdir() { : > %s; command mkdir "$@"; }\n' % self.mark_file)
        self.configure('[features]\nshell_snapshot = true\n')
        host = self.host('--approve', 'on-failure', env={'HOME': self.ws})
        arguments = {'cmd': 'mkdir %s/made' % self.out, 'shell': '/bin/bash'}
        r = host.call('exec_command', arguments, capabilities=FORM)
        (key, _), = r.result['inputRequests'].items()
        r = host.call('exec_command', arguments, capabilities=FORM, state=r.result['requestState'],
                      responses={key: {'action': 'accept', 'content': {'decision': 'once'}}})
        self.assertEqual((r.get('exit_code'), self.escaped()), (0, False), r)
        self.assertTrue(os.path.isdir(self.out + '/made'))

    def configure(self, text):
        with open(os.path.join(self.home, 'sallyport.conf'), 'w') as f:
            f.write(text)
            os.fchmod(f.fileno(), 0o600)


if __name__ == '__main__':
    tap.main()
