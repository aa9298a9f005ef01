# SPDX-License-Identifier: Apache-2.0
"""What decides about commands is not written by one: rules, configuration, tokens and approvers, by every door."""

import os
import shutil
import subprocess
import tempfile
import unittest

import mcp
import server
import tap
import wire
from sandbox_policy import SandboxCase, workspace_write
from server import PASS_ON, PROGRAM, ours_only
from test_library import EXAMPLES

ALLOW_TOUCH = 'prefix_rule(pattern=["touch"], decision="allow")\n'
PATH = '/usr/local/bin:/usr/bin:/bin'

# Every way to change a file or to put another one in its place; $1 is the file, $2 its directory, $3 the one above.
ATTACKS = {
    'write': 'echo BAD > "$1"',
    'append': 'echo BAD >> "$1"',
    'unlink': 'unlink "$1" && echo BAD > "$1"',
    'rename over it': 'echo BAD > new && mv -f new "$1"',
    'rename it': 'mv "$1" "$1.old" && echo BAD > "$1"',
    'another file beside it': 'echo BAD > "$2/zz.rules"',
    'rename the directory': 'mv "$2" "$2.old" && mkdir -p "$2" && echo BAD > "$1"',
    'rename the one above': 'mv "$3" "$3.old" && mkdir -p "$2" && echo BAD > "$1"',
    'remove all': 'rm -r "$3"; mkdir -p "$2" && echo BAD > "$1"',
    'a hard link': 'ln "$1" link && echo BAD > link',
    'a symlink instead': 'mkdir -p other && echo BAD > other/$(basename "$1") && rm -r "$2" && ln -s "$PWD/other" "$2"',
    'mount over it': 'mkdir -p m && mount --bind m "$2" && echo BAD > "$1"',
    'change its mode': 'chmod 666 "$1" "$2" && echo BAD > "$1"',
}


class Ground(unittest.TestCase):
    """A workspace, a home below /tmp (which :workspace may write) and a directory that nothing may write."""

    def setUp(self):
        self.base = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-own-', dir='/tmp'))
        self.far = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-own-', dir='/var/tmp'))
        for path in (self.base, self.far):
            self.addCleanup(shutil.rmtree, path, True)
        self.work, self.home, self.runtime = (os.path.join(self.base, n) for n in ('work', 'home', 'run'))
        for path in (self.work, self.home, self.runtime):
            os.mkdir(path, 0o700)
        self.env = {'PATH': PATH, 'HOME': self.home, 'XDG_RUNTIME_DIR': self.runtime, 'LC_ALL': 'C'}
        self.env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})

    def put(self, path, text, mode=0o600):
        path = os.path.join(self.base, path)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(path, 'w') as f:
            f.write(text)
            os.fchmod(f.fileno(), mode)
        return path

    def run_it(self, *words, env=None, cwd=None):
        r = subprocess.run([PROGRAM, *words], env={**self.env, **(env or {})}, cwd=cwd or self.work,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=wire.DEADLINE)
        return r.returncode, r.stdout.decode(), r.stderr.decode()

    def tree(self, path):
        """Every file below it, with its text, but the log, which is ours to write."""
        return {os.path.join(d, f): open(os.path.join(d, f)).read() for d, _, files in os.walk(path) for f in files
                if f != 'audit.jsonl'}

    def attack(self, run, path, ways=ATTACKS):
        """By `run(script)`; the file and its neighbours are as they were."""
        folder = os.path.dirname(path)
        watched = os.path.dirname(folder)
        before = self.tree(watched)
        for name, script in ways.items():
            run('set -- %s %s %s; %s; echo tried' % (path, folder, watched, script))
            self.assertEqual(self.tree(watched), before, name)

    def is_free(self, *words, env=None):
        """Whether `touch` leaves the sandbox."""
        probe = os.path.join(self.far, 'free')
        self.run_it('exec', '--sandbox', ':workspace', *words, '--', 'touch', probe, env=env)
        is_free = os.path.exists(probe)
        if is_free:
            os.unlink(probe)
        return is_free


@ours_only
class Exec(Ground):
    door = ('exec', '--sandbox', ':workspace')

    def sh(self, *more, env=None):
        def run(script):
            code, out, err = self.run_it(*self.door, *more, '--', 'sh', '-c', script, env=env)
            self.assertIn('tried', out, err)
        return run

    def test_rules_and_configuration_of_a_home_that_can_be_written(self):
        self.put('home/.sallyport/sallyport.conf', '')
        rules = self.put('home/.sallyport/rules/default.rules', 'prefix_rule(pattern=["nothing"], decision="allow")\n')
        self.attack(self.sh(), rules)
        config = os.path.join(self.home, '.sallyport/sallyport.conf')
        self.attack(self.sh(), config, {k: v for k, v in ATTACKS.items() if k != 'rename the one above'})

    def test_a_home_that_is_missing(self):
        script = 'mkdir -p "$HOME/.sallyport/rules"; echo BAD > "$HOME/.sallyport/rules/a.rules"; ' \
                 'echo BAD > "$HOME/.sallyport/sallyport.conf"; echo tried'
        self.sh()(script)
        self.assertEqual(self.tree(self.home), {})
        self.assertTrue(os.path.isdir(os.path.join(self.home, '.sallyport')))  # it is there for good
        self.assertEqual(os.stat(os.path.join(self.home, '.sallyport')).st_mode & 0o777, 0o700)

    def test_a_deep_home_that_is_missing(self):
        env = {'SALLYPORT_HOME': os.path.join(self.work, 'a/b/c/d/e/f/g/h/i/j')}
        self.sh(env=env)('mkdir -p "$SALLYPORT_HOME/rules" && echo BAD > "$SALLYPORT_HOME/rules/a.rules"; '
                         'mv a old; mv a/b a/old; echo tried')
        self.assertEqual(self.tree(self.work), {})
        self.assertTrue(os.path.isdir(env['SALLYPORT_HOME']))

    def test_sallyport_home_in_the_workspace(self):
        env = {'SALLYPORT_HOME': os.path.join(self.work, 'own')}
        rules = self.put('work/own/rules/a.rules', '')
        self.attack(self.sh(env=env), rules, {k: v for k, v in ATTACKS.items() if k != 'rename the one above'})
        self.run_it(*self.door, '--', 'sh', '-c', 'mv own old; mkdir -p own/rules; echo BAD > own/rules/a.rules', env=env)
        self.assertEqual(self.tree(env['SALLYPORT_HOME']), {rules: ''})

    def test_a_symlinked_sallyport_home(self):
        rules = self.put('home/real/rules/a.rules', '')
        os.symlink('real', os.path.join(self.home, 'link'))
        env = {'SALLYPORT_HOME': os.path.join(self.home, 'link')}
        code, _, err = self.run_it(*self.door, '--', 'true', env=env)  # the link could lead elsewhere the next time
        self.assertEqual(code, 125)
        self.assertIn('symlink %s' % env['SALLYPORT_HOME'], err)
        os.symlink(os.path.join(self.home, 'real'), os.path.join(self.far, 'link'))
        env = {'SALLYPORT_HOME': os.path.join(self.far, 'link')}
        self.attack(self.sh(env=env), rules)

    def test_what_else_is_there_can_be_written(self):
        self.put('home/.sallyport/sallyport.conf', '')
        code, _, err = self.run_it(*self.door, '--', 'sh', '-c', 'echo x > f && mkdir d && echo y > d/f && '
                                   'echo z > "$HOME/.profile" && cat "$HOME/.sallyport/sallyport.conf" && mv d e && rm -r e f')
        self.assertEqual((code, err), (0, ''))

    def test_a_planted_rule_lifts_no_sandbox(self):
        for path in ('home/.sallyport/rules/a.rules', 'work/my.rules'):
            self.put(path, ALLOW_TOUCH)
        mine = os.path.join(self.work, 'my.rules')
        self.assertFalse(self.is_free('--approve', 'on-request'))
        self.assertFalse(self.is_free('--rules', 'my.rules'))
        self.assertFalse(self.is_free('--rules', mine))
        os.symlink(mine, os.path.join(self.far, 'link.rules'))
        self.assertFalse(self.is_free('--rules', os.path.join(self.far, 'link.rules')))

    def test_a_rule_from_elsewhere_does(self):
        far = os.path.join(self.far, 'my.rules')
        with open(far, 'w') as f:
            f.write(ALLOW_TOUCH)
        self.assertTrue(self.is_free('--rules', far))
        self.put('work/my.rules', ALLOW_TOUCH)  # says the same
        self.assertTrue(self.is_free('--rules', far, '--rules', 'my.rules'))
        os.link(far, os.path.join(self.far, 'second'))  # which may be anywhere
        self.assertFalse(self.is_free('--rules', far))

    def test_what_a_planted_rule_forbids_is_forbidden(self):
        self.put('work/my.rules', 'prefix_rule(pattern=["touch"], decision="forbidden", justification="no")\n')
        code, _, err = self.run_it('exec', '--sandbox', ':workspace', '--rules', 'my.rules', '--', 'touch', 'f')
        self.assertEqual(code, 122)
        self.assertIn('no', err)

    def test_a_writable_root_by_another_name(self):
        os.symlink(self.work, os.path.join(self.far, 'workspace'))
        self.put('work/my.rules', ALLOW_TOUCH)
        config = self.put('conf', '[permissions.mine.filesystem]\n":root" = "read"\n"%s" = "write"\n'
                          % os.path.join(self.far, 'workspace'))
        probe = os.path.join(self.far, 'free')
        self.run_it('exec', '--config', config, '--sandbox', 'mine', '--rules', os.path.join(self.work, 'my.rules'), '--',
                    'touch', probe, cwd=self.far)
        self.assertFalse(os.path.exists(probe))

    def test_files_that_were_named(self):
        rules = self.put('work/my.rules', '')
        approver = self.put('work/approver', '#!/bin/sh\n', 0o755)
        hook = self.put('work/hook', '#!/bin/sh\n', 0o755)
        token = self.put('work/token', 'token-of-the-server\n')
        log = os.path.join(self.work, 'audit.jsonl')
        config = self.put('work/my.conf', 'permission_hook = "%s"\ntoken_file = "%s"\naudit_log = "%s"\n' % (hook, token, log))
        run = self.sh('--config', config, '--rules', 'my.rules', '--approver', 'program:' + approver, '--set',
                      'approval_policy="never"', '--approve', 'never')
        run('for f in my.rules my.conf approver hook token audit.jsonl; do echo BAD > $f; unlink $f; echo BAD > n; mv -f n $f; '
            'ln $f l; echo BAD > l; chmod 777 $f; done; cat token; echo tried')
        for path, text in ((rules, ''), (approver, '#!/bin/sh\n'), (hook, '#!/bin/sh\n'), (token, 'token-of-the-server\n')):
            self.assertEqual(open(path).read(), text)
        self.assertNotIn('BAD', open(config).read())
        self.assertTrue(all(line.startswith('{"seq":') for line in open(log)))
        self.assertFalse(self.run_it('exec', '--config', config, '--sandbox', ':workspace', '--', 'cat', 'token')[1])

    def test_the_program_itself(self):
        """It may be a part of the project, as below node_modules: the next one to run it is outside."""
        program = os.path.join(self.work, 'tools/bin/sallyport')
        os.makedirs(os.path.dirname(program))
        shutil.copy(PROGRAM, program)
        with open(program, 'rb') as f:
            before = f.read()
        example = os.path.join(os.environ.get('EXAMPLES') or os.path.join(os.path.dirname(PROGRAM), 'examples'), 'example-run')
        doors = ([program, *self.door, '--'], [example])
        for door in doors:
            for name, script in ATTACKS.items():
                if door == [example] and 'rm -' in script:
                    continue  # is asked about there
                r = subprocess.run([*door, 'sh', '-c', 'set -- tools/bin/sallyport tools/bin tools; %s; echo tried' % script],
                                   env={**self.env, 'SALLYPORT_PROGRAM': program, 'SALLYPORT_DEFAULT_PERMISSIONS': ':workspace'},
                                   cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=wire.DEADLINE)
                self.assertIn('tried', r.stdout, r.stderr)
                with open(program, 'rb') as f:
                    self.assertEqual(f.read(), before, (door, name))

    def test_projects(self):
        """A command in one directory, rules for the next one in another."""
        project = os.path.join(self.work, 'p')
        os.makedirs(os.path.join(project, 'sub'))
        config = os.path.join(self.far, 'conf')
        with open(config, 'w') as f:
            f.write('trusted_projects = ["%s"]\n' % project)
            os.fchmod(f.fileno(), 0o600)
        plant = 'mkdir -p %s/.sallyport/rules; echo \'' + ALLOW_TOUCH.strip() + '\' > %s/.sallyport/rules/a.rules'

        def probe():
            path = os.path.join(self.far, 'free')
            self.run_it('exec', '--config', config, '--approve', 'on-request', '--sandbox', ':workspace', '--', 'touch', path,
                        cwd=os.path.join(project, 'sub'))
            return os.path.exists(path)
        run = self.sh('--config', config)
        run((plant % ('p', 'p')) + '; echo tried')
        self.assertFalse(os.path.exists(os.path.join(project, '.sallyport/rules')))
        self.assertFalse(probe())
        run((plant % ('p/sub', 'p/sub')) + '; echo tried')  # not the root: that it is there does not matter
        self.assertTrue(os.path.exists(os.path.join(project, 'sub/.sallyport/rules/a.rules')))
        self.assertFalse(probe())
        shutil.rmtree(os.path.join(project, 'sub/.sallyport'))
        rules = self.put('work/p/.sallyport/rules/a.rules', 'prefix_rule(pattern=["nothing"])\n')
        self.attack(run, rules)
        self.put('work/p/.sallyport/rules/a.rules', ALLOW_TOUCH)
        self.assertFalse(os.path.exists(os.path.join(self.far, 'free')))
        self.assertFalse(probe())  # below /tmp, which :workspace may write


@ours_only
class Runtime(Ground):
    """Tokens, sockets and journals: a command must not make the directory that the next server keeps them in."""

    SCRIPT = 'mkdir -p "$1" && echo BAD > "$1/placeholders.x" && echo planted; ls "$1"; mv "$1" "$1.old"; mv "$2" "$2.old"; ' \
             'echo tried'

    def attack_dir(self, path, program=PROGRAM, env=None, **how):
        r = subprocess.run([program, 'exec', '--sandbox', ':workspace', '--', 'sh', '-c', self.SCRIPT, 'sh', path,
                            os.path.dirname(path)], env={**self.env, **(env or {})}, cwd=self.work, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=wire.DEADLINE, **how)
        self.assertEqual(r.stdout, 'tried\n', r.stderr)

    def test_the_one_that_a_variable_names(self):
        run = os.path.join(self.base, 'no/such/run')
        self.attack_dir(run + '/sallyport', env={'XDG_RUNTIME_DIR': run})
        # It is hidden as a whole; `exec` itself may have made the directory of its socket there.
        self.assertLessEqual(set(os.listdir(run)), {'sallyport'})
        self.assertFalse(os.path.exists(os.path.join(run, 'sallyport', 'placeholders.x')))
        self.assertEqual(os.stat(run).st_mode & 0o777, 0o700)

    def test_the_system_one_is_for_all_users(self):
        """Root makes /etc/sallyport when a command of its may write /etc; a user's rules are read there, too."""
        if os.geteuid() != 0:
            self.skipTest('only root makes it')
        etc = os.path.join(self.far, 'etc')
        os.mkdir(etc)
        for name in ('passwd', 'group', 'nsswitch.conf', 'ld.so.cache', 'hosts'):
            if os.path.exists('/etc/' + name):
                shutil.copy('/etc/' + name, etc)
        config = self.put('config', '[permissions.all.filesystem]\n"/" = "write"\n')
        script = 'umask 077; mount --bind "$1" /etc && shift && "$@" && stat -c %a /etc/sallyport /etc/sallyport/rules'
        r = subprocess.run(['unshare', '-m', 'sh', '-c', script, 'sh', etc, PROGRAM, 'exec', '--config', config, '--sandbox', 'all',
                            '--', 'true'], env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=wire.DEADLINE)
        self.assertEqual((r.returncode, r.stdout), (0, '755\n755\n'), r.stderr)

    def test_the_one_below_tmp(self):
        if os.geteuid() != 0:
            self.skipTest('needs a user of its own')
        uid = 61000 + os.getpid() % 4000
        path = '/tmp/sallyport-%d' % uid
        self.addCleanup(shutil.rmtree, path, True)
        program = shutil.copy(PROGRAM, os.path.join(self.far, 'sallyport'))
        os.chmod(self.far, 0o755)
        for each in (self.base, self.work, self.home, self.runtime):
            os.chown(each, uid, uid)
        for variable in (self.runtime, ''):
            self.attack_dir(path, program, {'XDG_RUNTIME_DIR': variable}, user=uid, group=uid, extra_groups=[])
            self.assertEqual((os.stat(path).st_uid, os.stat(path).st_mode & 0o777), (uid, 0o700))


@ours_only
class Sandbox(Exec):
    """The same by `sallyport sandbox`, as far as it reads files."""

    door = ('sandbox', '--mode', 'workspace-write')

    test_files_that_were_named = test_projects = test_a_planted_rule_lifts_no_sandbox = None
    test_a_rule_from_elsewhere_does = test_what_a_planted_rule_forbids_is_forbidden = None
    test_a_writable_root_by_another_name = None

    def test_it_is_told(self):
        self.put('home/.sallyport/sallyport.conf', '')
        code, out, _ = self.run_it(*self.door, '--explain', os.path.join(self.home, '.sallyport/rules/x'))
        self.assertIn('write: no', out)
        self.assertIn('decides about commands', out)


@ours_only
class Library(Exec):
    """By a program that uses the C library."""

    test_files_that_were_named = test_projects = test_a_planted_rule_lifts_no_sandbox = None
    test_a_rule_from_elsewhere_does = test_what_a_planted_rule_forbids_is_forbidden = None
    test_a_writable_root_by_another_name = test_what_else_is_there_can_be_written = None
    test_a_symlinked_sallyport_home = None

    def run_it(self, *words, env=None, cwd=None):
        config = os.path.join(self.far, 'conf')
        with open(config, 'w') as f:
            f.write('default_permissions = ":workspace"\n')
            os.fchmod(f.fileno(), 0o600)
        r = subprocess.run([os.path.join(EXAMPLES, 'example-run'), *words[words.index('--') + 1:]], capture_output=True,
                           env={**self.env, 'SALLYPORT_PROGRAM': PROGRAM, 'SALLYPORT_CONFIG': config, **(env or {})},
                           cwd=cwd or self.work, stdin=subprocess.DEVNULL, timeout=wire.DEADLINE)
        return r.returncode, r.stdout.decode(), r.stderr.decode()


@ours_only
class Wire(SandboxCase):
    def test_a_client_of_a_server(self):
        home = self.put('w/home/.sallyport/rules/a.rules', '')
        s = self.server(env={'HOME': os.path.join(self.w, 'home'), 'SALLYPORT_HOME': os.path.join(self.w, 'own')})
        c = s.session()
        script = 'echo BAD > home/.sallyport/rules/a.rules; mv home/.sallyport old; mv home old; mkdir -p own/rules; ' \
                 'echo BAD > own/rules/a.rules; mv own old; echo ok > f'
        r = self.run_in(c, script, workspace_write(self.w))
        self.assertEqual(open(home).read(), '')
        self.assertEqual(open(os.path.join(self.w, 'f')).read(), 'ok\n', r)
        self.assertEqual(os.listdir(os.path.join(self.w, 'own/rules')), [])


@ours_only
class Mcp(mcp.Case):
    def setUp(self):
        super().setUp()
        self.far = tempfile.mkdtemp(prefix='sallyport-own-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, self.far, True)

    def touches(self, host):
        probe = os.path.join(self.far, 'free')
        host.exec('touch', probe)
        is_free = os.path.exists(probe)
        if is_free:
            os.unlink(probe)
        return is_free

    def plant(self, host):
        return host.run('mkdir -p %s/rules && echo \'%s\' > %s/rules/a.rules' % (self.home, ALLOW_TOUCH.strip(), self.home))

    def test_a_running_server_believes_no_planted_rule(self):
        host = self.mcp()
        self.assertFalse(self.touches(host))
        self.assertNotEqual(self.plant(host)['exit_code'], 0)
        self.assertEqual(os.listdir(os.path.join(self.home, 'rules')) if os.path.exists(self.home + '/rules') else [], [])
        os.makedirs(os.path.join(self.home, 'rules'), exist_ok=True)
        with open(os.path.join(self.home, 'rules/a.rules'), 'w') as f:
            f.write(ALLOW_TOUCH + 'prefix_rule(pattern=["false"], decision="forbidden")\n')
        wire.wait_until(lambda: host.exec('false').failed, 'the rules to be read')
        self.assertFalse(self.touches(host))

    def test_a_rule_from_where_nothing_is_written(self):
        os.makedirs(os.path.join(self.far, 'rules'))
        host = self.mcp(env={'SALLYPORT_HOME': self.far})
        self.assertFalse(self.touches(host))
        with open(os.path.join(self.far, 'rules/a.rules'), 'w') as f:
            f.write(ALLOW_TOUCH)
        wire.wait_until(lambda: self.touches(host), 'the rules to be read')


if __name__ == '__main__':
    tap.main()
