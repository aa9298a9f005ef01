# SPDX-License-Identifier: Apache-2.0
"""Completion in real shells: each on a terminal, with a line that is typed and a Tab."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

import tap
import wire
from server import PROGRAM
from terminal import Screen

SANITIZERS = {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}
SHELLS = {'bash': ['bash', '--norc', '--noprofile', '-i'],
          'zsh': ['zsh', '-f', '-i'],
          'fish': ['fish', '--no-config', '-i']}
READY = {'bash': 'source <(sallyport completion bash)',
         'zsh': 'autoload -U compinit; compinit -D -u; source <(sallyport completion zsh)',
         'fish': 'sallyport completion fish | source'}
# What is typed before the Tab, and what the line is then.
LINES = (('sallyport san', 'sallyport sandbox '),
         ('sallyport rules ex', 'sallyport rules explain '),
         ('sallyport exec --sandb', 'sallyport exec --sandbox '),
         ('sallyport exec --sandbox :wo', 'sallyport exec --sandbox :workspace '),
         ('sallyport exec --sandbox=:wo', 'sallyport exec --sandbox=:workspace '),
         ('sallyport serve --log-level in', 'sallyport serve --log-level info '),
         ('sallyport exec -w di', 'sallyport exec -w directory/'),
         ('sallyport exec -- cat fi', 'sallyport exec -- cat file '),
         ('sallyport help pat', 'sallyport help patch '))


class Candidates(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='sallyport-completion-')
        self.addCleanup(shutil.rmtree, self.dir)
        self.runtime = tempfile.mkdtemp(prefix='sallyport-completion-')  # other servers of this user are not seen
        self.addCleanup(shutil.rmtree, self.runtime)
        self.env = dict(SANITIZERS, PATH='/usr/bin:/bin', HOME=self.dir, XDG_RUNTIME_DIR=self.runtime)

    def complete(self, line, **env):
        run = subprocess.run([PROGRAM, 'complete', 'bash', '--', *line.split(' ')[1:]], capture_output=True, cwd=self.dir,
                             timeout=wire.DEADLINE, env=dict(self.env, **env))
        self.assertEqual((run.returncode, run.stderr), (0, b''))
        rows = [row.split('\t') for row in run.stdout.decode().splitlines()]
        self.assertTrue(all(len(row) == 2 for row in rows), rows)
        return dict(rows)

    def help_of(self, *words):
        return subprocess.run([PROGRAM, *words, '--help'], capture_output=True, env=self.env, timeout=wire.DEADLINE).stdout.decode()

    def test_every_command_and_every_option_is_offered(self):
        verbs = set(re.findall(r'^  ([a-z]+)  ', self.help_of(), re.M))
        self.assertEqual(set(self.complete('sallyport ')), verbs | {'--help', '--version'})
        for verb in verbs:
            subs = re.findall(r'^  ([a-z]+)  ', self.help_of(verb), re.M)
            has_subs = 'sallyport %s SUBCOMMAND' % verb in self.help_of(verb)
            if has_subs:
                self.assertEqual(set(self.complete('sallyport %s ' % verb)), set(subs))
            for words in ([verb, sub] for sub in subs) if has_subs else ([verb],):
                with self.subTest(words):
                    flags = set(re.findall(r'^  (?:-\w, )?(--[a-z0-9-]+)', self.help_of(*words), re.M))
                    self.assertEqual(set(self.complete('sallyport %s --' % ' '.join(words))), flags)

    def test_a_description_that_is_cut_says_so(self):
        about = self.complete('sallyport ')['connect']
        self.assertRegex(about, r'^carry bytes .* \.\.\.$')
        self.assertEqual(self.complete('sallyport ')['version'], 'print the version')

    def test_values(self):
        with open(os.path.join(self.dir, 'c.toml'), 'w') as f:
            f.write('[permissions.mine]\nextends = ":workspace"\n[environments.there]\nurl = "unix:///x"\n')
        os.mkdir(os.path.join(self.dir, 'sub'))
        env = {'SALLYPORT_CONFIG': os.path.join(self.dir, 'c.toml')}
        for line, offered in (('exec --sandbox mi', ['mine']),
                              ('exec --sandbox=mi', ['--sandbox=mine']),
                              ('exec --on th', ['there']),
                              ('exec --network ma', ['managed']),
                              ('exec --cwd s', ['sub/']), ('exec -w s', ['sub/']), ('exec --cwd c', []),
                              ('exec --config c', ['c.toml']),
                              ('exec --config ~/c', ['~/c.toml']),
                              ('exec --approve on-r', ['on-request']),
                              ('exec -e HOM', ['HOME=']),
                              ('exec -te HOM', ['HOME=']),
                              ('exec --json --timeout 5 -- c', None),
                              ('exec cat c', ['c.toml']),
                              ('exec cat --on', []),
                              ('mcp --structured-output al', ['always']),
                              ('exec --approver cons', ['console']),
                              ('exec --limit wa', ['wall=']),
                              ('completion f', ['fish']),
                              ('exec --timeout ', []),
                              ('nonsense ', []), ('nonsense --x', []), ('cell ', []), ('rules nonsense ', [])):
            with self.subTest(line):
                got = self.complete('sallyport ' + line, **env)
                if offered is None:
                    self.assertIn('cat', got)
                else:
                    self.assertEqual(list(got), offered)

    def test_processes_and_servers_of_this_user(self):
        with subprocess.Popen([PROGRAM, 'exec', '--', 'sh', '-c', 'echo ready; exec sleep 1000'], stdout=subprocess.PIPE,
                              env=self.env) as run:
            try:
                run.stdout.readline()
                wire.wait_until(lambda: self.complete('sallyport kill '), 'the process')
                (process, command), = self.complete('sallyport kill ').items()
                self.assertIn('echo ready', command)
                self.assertEqual(list(self.complete('sallyport logs ' + process[:-1])), [process])
                for verb in ('ps', 'exec'):
                    self.assertIn(str(run.pid), self.complete('sallyport %s --on ' % verb))
                ids = subprocess.run([PROGRAM, 'ps', '-q'], capture_output=True, env=self.env, timeout=wire.DEADLINE)
                self.assertEqual(ids.stdout.decode().split(), [process])
                killed = subprocess.run([PROGRAM, 'kill', '-9', process], capture_output=True, env=self.env, timeout=wire.DEADLINE)
                self.assertEqual((killed.returncode, killed.stderr), (0, b''))
                self.assertEqual(run.wait(wire.DEADLINE), 137)
            finally:
                run.kill()

    def test_a_server_that_does_not_answer_is_not_waited_for(self):
        os.mkdir(os.path.join(self.runtime, 'sallyport'), 0o700)
        with socket.socket(socket.AF_UNIX) as silent, \
                subprocess.Popen([PROGRAM, 'exec', '--', 'sh', '-c', 'echo ready; exec sleep 1000'], stdout=subprocess.PIPE,
                                 env=self.env) as run:
            silent.bind(os.path.join(self.runtime, 'sallyport', '0%d.sock' % os.getpid()))
            silent.listen(8)
            try:
                run.stdout.readline()
                wire.wait_until(lambda: self.complete('sallyport kill '), 'the process of the one that answers')
                began = time.monotonic()
                self.complete('sallyport kill ')
                self.assertLess(time.monotonic() - began, 0.2 + 1.8 * wire.SCALE)  # 200 ms, on a busy machine
                silent.setblocking(False)
                silent.accept()[0].close()  # it was asked
            finally:
                run.kill()

    def test_there_are_at_most_200_and_no_control_characters(self):
        for i in range(300):
            os.mkdir(os.path.join(self.dir, 'd%d' % i))
        os.mkdir(os.path.join(self.dir, 'evil\x1b[2J\n\tx'))
        self.assertEqual(len(self.complete('sallyport exec --cwd d')), 200)
        self.assertEqual(self.complete('sallyport exec --cwd e'), {})

    def test_what_is_no_call_of_a_script(self):
        for words in ((), ('bash',), ('bash', '--'), ('bash', 'x', 'y')):
            self.assertEqual(subprocess.run([PROGRAM, 'complete', *words], capture_output=True, env=self.env, timeout=wire.DEADLINE).returncode, 2)
        run = subprocess.run([PROGRAM, 'completion', 'csh'], capture_output=True, env=self.env, timeout=wire.DEADLINE)
        self.assertEqual((run.returncode, run.stderr), (
            2, b'sallyport: the shells are bash, zsh and fish (see sallyport completion --help)\n'))


class Shells(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='sallyport-completion-')
        self.addCleanup(shutil.rmtree, self.dir)
        os.symlink(os.path.realpath(PROGRAM), os.path.join(self.dir, 'sallyport'))
        os.mkdir(os.path.join(self.dir, 'directory'))
        os.mkdir(os.path.join(self.dir, '.runtime'))
        open(os.path.join(self.dir, 'file'), 'w').close()

    def lines_of(self, shell):
        """Types each line and Tab, and waits until the whole line is there."""
        env = dict(SANITIZERS, PATH='%s:/usr/bin:/bin' % self.dir, HOME=self.dir, TERM='dumb', PS1='$ ', LANG='C.UTF-8',
                   XDG_RUNTIME_DIR=os.path.join(self.dir, '.runtime'))
        screen = Screen(SHELLS[shell], env, cols=200)
        self.addCleanup(screen.close)
        screen.type('cd %s; %s; echo rea""dy\r' % (self.dir, READY[shell]))
        screen.wait('ready')
        for typed, whole in LINES:
            with self.subTest((shell, typed)):
                before = len(screen.seen)
                screen.type(typed + '\t')
                end = wire.deadline()
                while whole.rstrip() not in plain(screen.seen[before:]):
                    self.assertLess(time.monotonic(), end, screen.seen[before:])
                    screen.take(0.1)
                screen.type('\x15')
        screen.type('exit\r')
        while screen.popen.poll() is None:
            screen.take(0.1)


def plain(seen):
    """Without escape sequences and bells, and with backspaces done."""
    text = re.sub(r'\x1b(\[[0-9;?<>=]*[a-zA-Z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])|\x07', '', seen.decode(errors='replace'))
    while '\b' in text:
        text = re.sub(r'[^\b]\b|^\b', '', text, count=1)
    return text


for name in SHELLS:
    def test(self, name=name):
        self.lines_of(name)
    setattr(Shells, 'test_' + name, unittest.skipUnless(shutil.which(name), '%s is not installed' % name)(test))


if __name__ == '__main__':
    tap.main()
