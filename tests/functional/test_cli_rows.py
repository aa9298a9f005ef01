# SPDX-License-Identifier: Apache-2.0
"""What people ran into at the command line, one test for each."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import slow_disk
import tap
import wire
from sandbox_policy import project_write
from server import HERE, PROGRAM, Case, ours_only
from terminal import DETACH, Screen
from test_observe_verbs import SANITIZERS

NOBODY = 65534
ROOT = os.path.abspath(os.path.join(HERE, '..', '..'))


@ours_only
class Local(Case):
    """Commands on this machine, in a sandbox."""

    def setUp(self):
        super().setUp()
        self.dir = tempfile.mkdtemp(prefix='sallyport-rows-', dir='/var/tmp')  # /tmp is writable in :workspace
        self.addCleanup(shutil.rmtree, self.dir, True)

    def exec(self, *words, cwd=None, **how):
        env = dict(SANITIZERS, PATH='/usr/bin:/bin', HOME='/nonexistent', GIT_CONFIG_GLOBAL='/dev/null',
                   GIT_AUTHOR_NAME='a', GIT_AUTHOR_EMAIL='a@b', GIT_COMMITTER_NAME='a', GIT_COMMITTER_EMAIL='a@b')
        run = subprocess.run([PROGRAM, 'exec', '--sandbox', ':workspace', *words], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, cwd=cwd or self.dir, env=env, timeout=wire.DEADLINE, **how)
        return run.returncode, run.stdout, run.stderr

    @unittest.skipUnless(shutil.which('git'), 'no git')
    def test_git_commit_tells_that_git_is_protected(self):
        self.assertEqual(subprocess.run(['git', 'init', '-q', self.dir]).returncode, 0)
        commit = ('--', 'git', 'commit', '-q', '--allow-empty', '-m', 'x')
        status, out, err = self.exec(*commit)
        self.assertEqual((status, out), (128, ''))
        says = 'sallyport: .git is protected in this sandbox: %s/.git/index.lock; to allow it: --writable %s/.git\n'
        self.assertTrue(err.endswith(says % (self.dir, self.dir)), err)
        # what it says is so
        self.assertEqual(self.exec('--writable', self.dir + '/.git', *commit), (0, '', ''))

    @unittest.skipUnless(shutil.which('git'), 'no git')
    def test_the_remedy_works_in_a_worktree_and_in_a_submodule(self):
        main, other, tree = (os.path.join(self.dir, name) for name in ('main', 'other', 'tree'))
        identity = ('git', '-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'protocol.file.allow=always')
        for repo in (main, other):
            subprocess.run(['git', 'init', '-q', repo], check=True)
            subprocess.run([*identity, '-C', repo, 'commit', '-q', '--allow-empty', '-m', 'x'], check=True)
        subprocess.run([*identity, '-C', main, 'worktree', 'add', '-q', tree], check=True, stderr=subprocess.DEVNULL)
        subprocess.run([*identity, '-C', main, 'submodule', '-q', 'add', other, 'sub'], check=True)
        commit = ('--', 'git', 'commit', '-q', '--allow-empty', '-m', 'y')
        for cwd, words in ((tree, ['--writable', main + '/.git', '--writable', main + '/.git/worktrees/tree']),
                           (os.path.join(main, 'sub'), ['--writable', main + '/.git/modules/sub'])):
            status, _, err = self.exec(*commit, cwd=cwd)
            self.assertEqual(status, 128)
            self.assertTrue(err.endswith('; to allow it: %s\n' % ' '.join(words)), err)
            self.assertEqual(self.exec(*words, *commit, cwd=cwd), (0, '', ''))

    @unittest.skipUnless(shutil.which('git'), 'no git')
    def test_git_init_tells_what_to_make(self):
        status, out, err = self.exec('--', 'git', 'init', '-q')
        self.assertEqual((status, out), (128, ''))
        says = '; to allow it, make the directory and give --writable %s/.git\n' % self.dir
        self.assertIn('sallyport: .git is protected in this sandbox: ', err)
        self.assertTrue(err.endswith(says), err)
        os.mkdir(self.dir + '/.git')
        self.assertEqual(self.exec('--writable', self.dir + '/.git', '--', 'git', 'init', '-q')[0], 0)

    def read_only(self):
        """A directory of mode 0555 that belongs to who runs the command, and what runs it as that user."""
        work = os.path.join(self.dir, 'work')
        os.mkdir(work)
        user = {}
        if os.geteuid() == 0:  # root may write it in any mode
            os.chown(work, NOBODY, NOBODY)
            os.chmod(self.dir, 0o755)
            user = {'user': NOBODY, 'group': NOBODY, 'extra_groups': []}
            if subprocess.run([PROGRAM, '-V'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              preexec_fn=lambda: os.setuid(NOBODY)).returncode != 0:
                self.skipTest('another user cannot run the program')
        os.chmod(work, 0o555)
        return work, user

    def test_an_own_directory_without_write_permission(self):
        work, user = self.read_only()
        status, out, err = self.exec('--', 'sh', '-c', 'echo runs; touch x', cwd=work, **user)
        self.assertEqual((status, out), (1, 'runs\n'))
        self.assertIn('Permission denied', err)
        self.assertEqual(os.listdir(work), [])

    def test_a_name_that_a_command_plants_there_is_renamed(self):
        work, user = self.read_only()
        status, out, err = self.exec('--', 'sh', '-c', 'chmod 755 . && mkdir .git && echo bad >.git/config && chmod 555 .',
                                     cwd=work, **user)
        self.assertEqual((status, out), (0, ''), err)
        names = os.listdir(work)
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r'^\.git\.made-in-sandbox-[0-9a-f]{8}$')
        self.assertEqual(os.stat(work).st_mode & 0o777, 0o555)


    CONNECTS = ('import errno, socket; s = socket.socket(); s.settimeout(20)\n'
                'try: s.connect(("192.0.2.1", 80))\n'
                'except OSError as e: print(errno.errorcode[e.errno])\n')
    NO_NETWORK = 'sallyport: the command tries to connect, and its sandbox has no network; to allow it: --allow-host NAME'

    def test_a_connection_out_of_the_sandbox_is_told_while_the_command_runs(self):
        for verb in ('exec', 'sandbox'):
            with self.subTest(verb):
                screen = Screen([PROGRAM, verb, '--sandbox', ':workspace', '--', 'sh', '-c',
                                 'python3 -c "$0"; python3 -c "$0" >/dev/null; read x; exit 3', self.CONNECTS],
                                dict(SANITIZERS, PATH='/usr/bin:/bin', HOME='/nonexistent', TERM='xterm'), cwd=self.dir)
                self.addCleanup(screen.close)
                screen.wait(self.NO_NETWORK)  # it waits for a line
                screen.type('go on\r')
                self.assertEqual(screen.end(), 3)
                self.assertEqual((screen.seen.count(b'sallyport:'), screen.seen.count(b'denied')), (1, 0), screen.seen)
                self.assertIn(b'ENETUNREACH\r\n', screen.seen)

    def test_a_host_that_is_not_allowed_is_told_while_the_command_runs(self):
        screen = Screen([PROGRAM, 'exec', '--sandbox', ':workspace', '--allow-host', 'a.test', '--', 'sh', '-c',
                         'printf "no newline"; python3 -c "$0" 2>/dev/null; read x; exit 3',
                         'import urllib.request as u; u.urlopen("http://b.test/")'],
                        dict(SANITIZERS, PATH='/usr/bin:/bin', HOME='/nonexistent', TERM='xterm'), cwd=self.dir)
        self.addCleanup(screen.close)
        screen.wait('no newline\r\nsallyport: connect b.test:80: b.test is not in the allowed_domains; to allow it: --allow-host b.test\r\n')
        screen.type('go on\r')
        self.assertEqual(screen.end(), 3)
        self.assertEqual(screen.seen.count(b'connect b.test'), 1, screen.seen)

    def test_a_program_that_draws_hears_of_it_at_the_end(self):
        screen = Screen([PROGRAM, 'sandbox', '--sandbox', ':workspace', '--', 'sh', '-c',
                         'printf "\\033[?1049h"; python3 -c "$0"; printf "\\033[?1049l"; exit 3', self.CONNECTS],
                        dict(SANITIZERS, PATH='/usr/bin:/bin', HOME='/nonexistent', TERM='xterm'), cwd=self.dir)
        self.addCleanup(screen.close)
        self.assertEqual(screen.end(), 3)
        before, after = screen.seen.split(b'\x1b[?1049l')
        self.assertNotIn(b'sallyport', before)
        self.assertIn(b'a connection out of its network', after)

    def test_a_log_has_one_line_at_the_end(self):
        status, out, err = self.exec('--', 'python3', '-c', self.CONNECTS + 'raise SystemExit(3)')
        self.assertEqual((status, out), (3, 'ENETUNREACH\n'))
        self.assertEqual(err, 'sallyport: the sandbox denied (reported by the kernel): a connection out of its network\n')
        self.assertEqual(self.exec('--', 'python3', '-c', self.CONNECTS), (0, 'ENETUNREACH\n', ''))


@ours_only
class Remote(Case):
    """Commands of a server."""

    def setUp(self):
        super().setUp()
        self.dir = self.scratch()
        self.env = dict(os.environ, LC_ALL='C', TERM='xterm', HOME=self.dir, SALLYPORT_HOME=self.dir)

    def url(self, *args):
        self.srv = self.server(*args, env={'SALLYPORT_HOME': self.dir})
        return 'ws://%s:%d%s' % (*self.srv.address, wire.query_of(self.srv.address))

    def test_a_refusal_by_the_server_is_122(self):
        url = self.url('--approve', 'never')

        def on(*words):
            return subprocess.run([PROGRAM, 'exec', '--on', url, '--', *words], capture_output=True, text=True, env=self.env,
                                  stdin=subprocess.DEVNULL, timeout=wire.DEADLINE)
        said = on('rm', '-rf', '/nonexistent/x')
        self.assertEqual((said.returncode, said.stdout), (122, ''))
        self.assertIn('rejected', said.stderr)
        for words in ([], ['-d']):
            said = subprocess.run([PROGRAM, 'exec', '--json', *words, '--on', url, '--', 'rm', '-rf', '/nonexistent/x'], env=self.env,
                                  capture_output=True, stdin=subprocess.DEVNULL, timeout=wire.DEADLINE)
            last = json.loads(said.stdout.splitlines()[-1])
            self.assertEqual((last['type'], last['kind'], last['exit_code']), ('result', 'refused', 122))
        self.assertEqual(on('sh', '-c', 'exit 3').returncode, 3)
        self.assertEqual(on('/nonexistent/x').returncode, 127)
        client = self.srv.session()
        error = client.error('process/start', client.start_params('p', ['rm', '-rf', '/nonexistent/x']))
        self.assertEqual((error['code'], error['data']), (-32600, {'rejected': True}))

    def test_rules_added_while_it_runs(self):
        url = self.url('--approve', 'on-request')
        script = ('--on', url, '--', '/bin/echo', 'runs')
        rules = [PROGRAM, 'rules', 'add', '--decision', 'forbidden', '--justification', 'not here', '--', '/bin/echo']
        self.assertEqual(subprocess.run([PROGRAM, 'exec', *script], env=self.env, stdout=subprocess.DEVNULL).returncode, 0)
        self.assertEqual(subprocess.run(rules, env=self.env, stdout=subprocess.DEVNULL).returncode, 0)

        def status():
            return subprocess.run([PROGRAM, 'exec', *script], env=self.env, capture_output=True).returncode
        wire.wait_until(lambda: status() == 122, 'the new rule counts', step=0.1)
        rules = [PROGRAM, 'rules', 'remove', '--', '/bin/echo']
        self.assertEqual(subprocess.run(rules, env=self.env, stdout=subprocess.DEVNULL).returncode, 0)
        wire.wait_until(lambda: status() == 0, 'the rule is gone', step=0.1)

    CONNECTS = Local.CONNECTS

    def test_a_denial_is_told_at_once(self):
        client = self.url() and self.srv.connect()
        client.takes_denials = True
        client.handshake()
        self.assertTrue(client.info['capabilities']['denials'])
        script = 'python3 -c "$0"; python3 -c "$0"; read x; exit 3'
        for asks, connection in ((True, client), (False, self.srv.session())):
            with self.subTest(asks):
                connection.start('p', ['sh', '-c', script, self.CONNECTS], sandbox=project_write(self.dir), pipeStdin=True)
                connection.wait_output('p', 'ENETUNREACH\nENETUNREACH')
                self.assertEqual([n['params'] for n in connection.notes if n['method'] == 'process/denied'],
                                 [{'processId': 'p'}] if asks else [])
                connection.write('p', b'\n')
                self.assertEqual(connection.wait_exited('p').exit_code, 3)

    def test_a_command_there_tells_its_denials_here(self):
        url = self.url()
        for words, says in (((), Local.NO_NETWORK),
                            (('--allow-host', 'a.test'), 'sallyport: connect b.test:80: b.test is not in the allowed_domains; '
                                                         'to allow it: --allow-host b.test')):
            with self.subTest(words):
                screen = Screen([PROGRAM, 'exec', '--on', url, '--sandbox', ':workspace', *words, '--', 'sh', '-c',
                                 'python3 -c "$0" 2>/dev/null; read x; exit 3',
                                 'import urllib.request as u; u.urlopen("http://b.test/")' if words else self.CONNECTS], self.env)
                self.addCleanup(screen.close)
                screen.wait(says)  # it waits for a line
                screen.type('go on\r')
                self.assertEqual(screen.end(), 3)
                self.assertEqual(screen.seen.count(says.encode()), 1)

    def attach(self, url):
        screen = Screen([PROGRAM, 'attach', '--on', url, 'p'], self.env)
        self.addCleanup(screen.close)
        return screen

    def test_detach_from_a_process_on_pipes(self):
        url = self.url()
        client = self.srv.session()
        client.start('p', ['sh', '-c', 'echo ready; while read x; do echo got $x; done'], pipeStdin=True)
        screen = self.attach(url)
        screen.type('one\r')
        screen.wait('got one')
        screen.type('half')
        screen.type(DETACH)
        self.assertEqual(screen.end(), 0)
        self.assertIn(b'detached', screen.seen)
        self.assertFalse(client.process('p').exited)

    FULL_SCREEN = r'''printf '\033[?1049h\033[?25l\033[?2004h\033[?1'; printf '000;1006h\033='; echo drawn
                      while read x; do echo "got $x"; [ "$x" = end ] && break; done
                      printf '\033[?1000;1006l\033[?2004l\033[?25h\033>\033[?1049l'; read x'''

    def test_detach_gives_the_screen_back(self):
        url = self.url()
        client = self.srv.session()
        client.start('p', ['sh', '-c', self.FULL_SCREEN], tty=True)
        client.wait_output('p', 'drawn')
        screen = self.attach(url)  # after the program entered the other screen
        screen.wait('\x1b[?1049h\x1b[2J\x1b[H')
        screen.wait('\x1b[?25l')
        screen.wait_raw()
        screen.type('x\r')
        screen.wait('got x')
        screen.type(DETACH)
        self.assertEqual(screen.end(), 0)
        before, after = screen.seen.split(b'\x1b[?1049l')
        for off in (b'\x1b[?25h', b'\x1b[?1000l', b'\x1b[?1006l', b'\x1b[?2004l', b'\x1b>'):
            self.assertIn(off, before)
        self.assertIn(b'detached', after)
        # when the program has left it, there is nothing to switch
        client.write('p', b'end\r')
        client.wait_output('p', '1049l')
        screen = self.attach(url)
        screen.wait_raw()
        screen.type(DETACH)
        self.assertEqual(screen.end(), 0)
        self.assertNotIn(b'\x1b[?', screen.seen)

    def test_a_browser_sees_what_this_is(self):
        self.url()
        page = wire.http(self.srv.address, headers={'Accept': 'application/xhtml+xml, text/html;q=0.9'})
        self.assertEqual((page.status, page.headers['content-type']), (400, 'text/html; charset=utf-8'))
        self.assertIn(b'<h1>sallyport</h1>', page.body)
        self.assertIn("default-src 'none'", page.headers['content-security-policy'])
        for fact in (str(self.srv.address[1]), getattr(self.srv.address, 'token', None) or 'token', self.dir, str(self.srv.pid)):
            self.assertNotIn(fact.encode(), page.body)
        plain = wire.http(self.srv.address, headers={'Accept': '*/*'})
        self.assertEqual((plain.status, plain.body), (400, b"Connection header did not include 'upgrade'"))
        foreign = wire.http(self.srv.address, headers={'Accept': 'text/html', 'Origin': 'http://a.test'})
        self.assertEqual((foreign.status, foreign.body), (403, b''))

    @unittest.skipUnless(slow_disk.is_possible(), 'no /dev/fuse, or not root')
    def test_a_patch_on_a_slow_disk_says_what_takes_so_long(self):
        disk = slow_disk.SlowDisk()
        self.addCleanup(disk.close)
        disk.hold(slow_disk.OPEN)
        words = [PROGRAM, 'patch', '--sandbox', ':danger-full-access', '--check', '--cwd', disk.path,
                 '*** Begin Patch\n*** Update File: f\n@@\n-content\n+other\n*** End Patch\n']
        screen = Screen(words, self.env)
        self.addCleanup(screen.close)
        self.addCleanup(disk.release)  # first: a process that waits for the disk cannot be killed
        screen.wait('sallyport: reading the files of the patch ...\r\n')
        disk.release()
        self.assertEqual(screen.end(), 0)
        self.assertEqual(screen.seen.count(b'reading the files'), 1)
        # in a log there is no such line, and a short wait needs none
        said = subprocess.run(words, capture_output=True, env=self.env, timeout=wire.DEADLINE)
        self.assertEqual((said.returncode, said.stderr), (0, b''))


@ours_only
class Several(Case):
    """Commands of two terminals, and what other commands say of them at 80 columns."""

    def setUp(self):
        super().setUp()
        self.dir = self.scratch()
        self.env = dict(SANITIZERS, PATH='/usr/bin:/bin', HOME=self.dir, XDG_RUNTIME_DIR=self.dir, NO_COLOR='1', TERM='xterm')
        self.running = []
        for _ in range(2):
            run = subprocess.Popen([PROGRAM, 'exec', '--', 'sh', '-c', 'echo ready; exec sleep 1000'], stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.env)
            self.addCleanup(run.stdout.close)
            self.addCleanup(run.wait)
            self.addCleanup(run.kill)
            self.running.append(run)
            run.stdout.readline()
        wire.wait_until(lambda: len(self.ids()) == 2, 'the local sockets, which are made a moment after the start', step=0.02)

    def shown(self, *words, cols=80):
        screen = Screen([PROGRAM, *words], self.env, cols=cols)
        self.addCleanup(screen.close)
        return screen.end(), screen.seen.decode().splitlines()

    def ids(self):
        said = subprocess.run([PROGRAM, 'ps', '-q'], capture_output=True, text=True, env=self.env, timeout=wire.DEADLINE)
        return said.stdout.split()

    def test_two_processes_that_begin_alike(self):
        ids = self.ids()
        self.assertEqual(len(set(ids)), 2)
        self.assertLessEqual(max(map(len, ids)), 16)
        status, lines = self.shown('kill', 'exec')
        self.assertEqual((status, lines[0]), (1, 'sallyport: exec means 2 processes; say which:'))
        self.assertEqual(sorted(lines[1:]), sorted("  %s  sh -c 'echo ready; exec sleep 1000'" % i for i in ids))
        self.assertEqual(self.shown('kill', ids[0]), (0, []))

    def test_the_table_shows_ids_and_commands(self):
        status, lines = self.shown('ps')
        self.assertEqual((status, len(lines)), (0, 3))
        self.assertLessEqual(max(map(len, lines)), 80)
        for i in self.ids():
            (row,) = [line for line in lines if ' %s ' % i in line]
            self.assertIn("sh -c 'echo", row)
        for i in self.ids():  # whole also where little else has room
            self.assertEqual(sum(i in line for line in self.shown('ps', cols=44)[1]), 1)

    def test_without_a_question_the_terminal_is_told(self):
        self.assertEqual(self.shown('approvals'), (0, ['sallyport: no question is open']))
        screen = Screen([PROGRAM, 'approvals', '-f'], self.env)
        self.addCleanup(screen.close)
        screen.wait('sallyport: waiting for questions; Ctrl-C ends\r\n')
        screen.type(b'\x03')
        self.assertEqual(screen.end(), -2)
        said = subprocess.run([PROGRAM, 'approvals'], capture_output=True, env=self.env, timeout=wire.DEADLINE)
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, b'', b''))

    def test_servers_are_a_table(self):
        status, lines = self.shown('ps', '--on', 'nosuch')
        self.assertEqual((status, lines[0]), (1, 'sallyport: no such server: nosuch is neither a URL, an environment of the '
                                                 'configuration, nor the pid or the name of a running server:'))
        self.assertEqual(lines[1].split(), ['PID', 'KIND', 'AGE', 'DIRECTORY', 'URL'])
        self.assertEqual(sorted(int(line.split()[0]) for line in lines[2:]), sorted(run.pid for run in self.running))
        for line in lines[2:]:
            self.assertRegex(line, r'^\d+ +exec +\d+s +\S+ +unix:///\S+\.sock$')

    def test_the_reader_is_told_who_ended_it(self):
        screen = Screen([PROGRAM, 'exec', '--', 'sh', '-c', 'printf half; exec sleep 1000'], self.env)
        self.addCleanup(screen.close)
        screen.wait('half')
        wire.wait_until(lambda: len(self.ids()) == 3, 'its local socket', step=0.02)
        (process,) = set(self.ids()) - {'exec-%d.1' % run.pid for run in self.running}
        self.assertEqual(self.shown('kill', process), (0, []))
        self.assertEqual(screen.end(), 137)
        self.assertRegex(screen.seen, rb'^half\r\nsallyport: killed by process \d+ of user \d+ \(sallyport kill\)\r\n$')


@ours_only
class Judged(Case):
    """What the client of a server that judges says meanwhile."""

    def test_exec_waits_for_the_console_of_a_server(self):
        runtime = os.path.realpath(self.scratch())
        env = dict(SANITIZERS, PATH='/usr/bin:/bin', HOME=runtime, XDG_RUNTIME_DIR=runtime, TERM='xterm')
        srv = self.server('--approve', 'untrusted', '--approver', 'console', env=env)
        screen = Screen([PROGRAM, 'exec', '--on', srv.url, '--', 'sh', '-c', 'echo ran'], env)
        self.addCleanup(screen.close)
        screen.wait('sallyport: the server asks whether this may run; waiting for the answer')
        run = subprocess.run([PROGRAM, 'approvals', '--json'], capture_output=True, env=env, timeout=wire.DEADLINE)
        question = json.loads(run.stdout)
        name = '%d-%s' % (question['number'], question['digest'][:8])
        self.assertEqual(subprocess.run([PROGRAM, 'approvals', 'allow', name], env=env, timeout=wire.DEADLINE).returncode, 0)
        self.assertEqual(screen.end(), 0)
        self.assertTrue(screen.seen.endswith(b'ran\r\n'), screen.seen)
        screen = Screen([PROGRAM, 'exec', '--on', srv.url, '--', 'sh', '-c', 'echo ran'], env)
        self.addCleanup(screen.close)
        screen.wait('waiting for the answer')
        screen.type(b'\x03')
        self.assertEqual(screen.end(), 130)
        wire.wait_until(lambda: not subprocess.run([PROGRAM, 'approvals', '--json'], capture_output=True, env=env,
                                                   timeout=wire.DEADLINE).stdout, 'the question is withdrawn')

    def test_the_selftest_in_a_home_directory(self):
        home = self.scratch()
        run = subprocess.run([PROGRAM, 'mcp', '--selftest'], capture_output=True, cwd=home, timeout=wire.DEADLINE,
                             env=dict(SANITIZERS, PATH='/usr/bin:/bin', HOME=home, XDG_RUNTIME_DIR=home))
        self.assertEqual((run.returncode, run.stdout.count(b'not ok')), (0, 0), run.stdout + run.stderr)


class Readme(unittest.TestCase):
    def test_it_opens_with_what_it_is_for(self):
        with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
            text = f.read()
        title, purpose, picture, table = text.split('\n\n')[:4]
        self.assertEqual(title, '# sallyport')
        self.assertEqual(len(re.findall(r'[.](?=\s|$)', purpose)), 3)
        self.assertRegex(picture, r'^!\[.*\]\(docs/terminal\.svg\)$')
        self.assertIn('codex exec-server', table.splitlines()[0])
        self.assertIn('`make bench-peer` measures these rows', text)
        self.assertEqual(re.findall(r'(?m)^## (.*)$', text)[:4],
                         ['Run it, test it', 'Use it with Codex', 'Tools for any agent', 'From a shell'])
        self.assertLess(text.index('## From a shell'), text.index('## From C'))
        self.assertIn('meson setup build && ninja -C build', text)  # where dpkg is not


class Tools(Case):
    """What the scripts say while people wait. The programs they call stand in here."""

    def setUp(self):
        super().setUp()
        self.dir = self.scratch()
        self.path = self.dir + ':/usr/bin:/bin'

    def program(self, name, script):
        path = os.path.join(self.dir, name)
        wire.write_program(path, '#!/bin/sh\n' + script)

    def run_tool(self, name, *words, **env):
        said = subprocess.run([os.path.join(ROOT, 'tools', name), *words], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=wire.DEADLINE, env=dict(os.environ, PATH=self.path, **env))
        return said.returncode, said.stdout, said.stderr

    def test_install_packages_says_each_step(self):
        self.program('dpkg-query', 'case "$*" in *meson*|*ninja*) exit 1;; esac; echo "install ok installed"\n')
        self.program('sudo', 'exec "$@"\n')
        self.program('apt-get', 'echo "$@" >>%s/calls; echo noise\n' % self.dir)
        status, out, err = self.run_tool('install-packages', 'build')
        self.assertEqual((status, out), (0, ''))
        self.assertRegex(err, r'^install-packages: step 1 of 2: updating the package lists\n'
                              r'install-packages: step 2 of 2: installing meson ninja-build\n'
                              r'install-packages: done in \d+ s\n$')
        with open(self.dir + '/calls') as f:
            self.assertEqual(f.read(), 'update -qq\ninstall -y -qq --no-install-recommends meson ninja-build\n')
        self.program('dpkg-query', 'echo "install ok installed"\n')
        self.assertEqual(self.run_tool('install-packages', 'build'), (0, '', ''))
        self.program('dpkg-query', 'exit 1\n')
        self.program('apt-get', 'echo "no such host" >&2; exit 100\n')
        status, out, err = self.run_tool('install-packages', 'build')
        self.assertEqual(status, 100)
        self.assertTrue(err.endswith('no such host\n'), err)

    def test_install_packages_at_a_terminal_shows_apt(self):
        self.program('dpkg-query', 'case "$*" in *meson*) exit 1;; esac; echo "install ok installed"\n')
        self.program('sudo', 'exec "$@"\n')
        self.program('apt-get', 'echo apt "$@"\n')
        screen = Screen([os.path.join(ROOT, 'tools', 'install-packages'), 'build'], dict(os.environ, PATH=self.path))
        self.addCleanup(screen.close)
        screen.wait('done in ')
        self.assertEqual(screen.end(), 0)
        self.assertIn(b'apt install -y -q --no-install-recommends meson', screen.seen)

    def test_run_tests_says_how_far_it_is(self):
        self.program('meson', '[ "$1" != introspect ] || echo "[]"\n')
        self.program('ninja', 'exit 0\n')
        status, out, err = self.run_tool('run-tests', 'test', 'no-such-name', CODEX='x', MCP_SDK='x', SSHD='x')
        self.assertEqual((status, err), (0, ''))
        self.assertEqual([line for line in out.splitlines() if line.startswith('run-tests: ')],
                         ['run-tests: step %d of 7: %s' % (i + 1, what) for i, what in enumerate((
                             'building build', 'building build-asan', 'fetching the Codex CLI', 'fetching the MCP SDK',
                             'fetching sshd', 'testing build', 'testing build-asan'))])
        self.assertTrue(out.endswith('\n0 passed, 0 failed, 0 skipped\n'), out)


if __name__ == '__main__':
    tap.main()
