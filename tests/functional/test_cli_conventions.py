# SPDX-License-Identifier: Apache-2.0
"""What all commands have in common: help, short options, times, and the word that was probably meant."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

import tap
import wire
from server import PROGRAM
from terminal import Screen

RUNTIME = tempfile.TemporaryDirectory(prefix='sallyport-conv-', dir='/var/tmp')  # other servers of this user are not seen
BARE = {**{k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}, 'PATH': '/usr/bin:/bin', 'XDG_RUNTIME_DIR': RUNTIME.name}


def run(*words, stdout=subprocess.PIPE, **env):
    return subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                          timeout=wire.DEADLINE, env={**BARE, 'HOME': '/nonexistent', **env})


def listed(*words):
    """The commands, or subcommands, that a help lists."""
    return re.findall(r'^  ([a-z][a-z-]*)  ', run(*words, '--help').stdout.decode(), re.M)


def commands():
    for name in listed():
        yield (name,)
        for sub in listed(name):
            yield (name, sub)


class Help(unittest.TestCase):
    def test_every_command_has_it_in_80_columns(self):
        all_commands = list(commands())
        self.assertIn(('rules', 'explain'), all_commands)
        for words in [(), *all_commands]:
            with self.subTest(words):
                text = run(*words, '--help').stdout.decode()
                self.assertIn('Usage: sallyport %s' % ' '.join(words), text)
                self.assertLessEqual(max(map(len, text.splitlines())), 80)
                self.assertNotIn('\n\n\n', text)
                for other in (run(*words, '-h'), run('help', *words)):
                    self.assertEqual((other.returncode, other.stdout.decode(), other.stderr), (0, text, b''))

    def test_a_full_disk_is_a_failure(self):
        for words in ((), *commands()):
            with self.subTest(words), open('/dev/full', 'wb') as full:
                failed = run(*words, '--help', stdout=full)
                self.assertEqual((failed.returncode, failed.stderr),
                                 (1, b'sallyport: write to stdout: No space left on device\n'))

    def test_version(self):
        for words in (('-V',), ('-v',), ('--version',), ('version',)):
            said = run(*words)
            self.assertRegex(said.stdout.decode(), r'^sallyport [0-9.]+\n$')
            self.assertEqual((said.returncode, said.stderr), (0, b''))


class Facts(unittest.TestCase):
    """Every command that prints facts prints them as JSON, too."""

    # These change, run or carry something, or print one word that scripts use as it is.
    OTHERS = {('serve',), ('mcp',), ('connect',), ('attach',), ('kill',), ('rm',), ('wait',), ('help',), ('version',),
              ('completion',), ('rules', 'add'), ('rules', 'remove'), ('config', 'init'),
              ('rules', 'check')}  # prints nothing else

    def test_json_is_an_option(self):
        for words in commands():
            if words not in self.OTHERS and words not in {('rules',), ('audit',), ('config',)}:
                with self.subTest(words):
                    self.assertRegex(run(*words, '--help').stdout.decode(), r'(?m)^  --json ')

    def test_it_is_what_it_says(self):
        home = tempfile.mkdtemp(prefix='sallyport-conv-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, home)
        rules, log, patch = (os.path.join(home, name) for name in ('r.rules', 'audit.jsonl', 'p.patch'))
        with open(rules, 'w') as f:
            f.write('prefix_rule(pattern=["ls"], decision="alow")\nprefix_rule(pattern=["make"], decision="allow")\n')
        with open(patch, 'w') as f:
            f.write('*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\n')
        self.assertEqual(run('exec', '--approve', 'never', '--set', 'audit_log="%s"' % log, '--', 'true').returncode, 0)

        def facts(status, *words):
            said = run(*words, '--json', HOME=home)
            self.assertEqual(said.returncode, status, (words, said.stderr))
            return json.loads(said.stdout)
        self.assertEqual(facts(1, 'config', 'path'), {'file': None, 'valid': True})
        self.assertEqual(facts(0, 'config', 'check'), {'file': None, 'valid': True})
        wrong = facts(1, 'config', 'check', rules)
        self.assertEqual((wrong['file'], wrong['valid']), (rules, False))
        self.assertIn('line 1', wrong['error'])
        tested = facts(1, 'rules', 'test', '-r', rules)
        self.assertEqual(tested['files'], [])
        self.assertIn('invalid decision: alow', tested['errors'][0])
        with open(rules, 'w') as f:
            f.write('prefix_rule(pattern=["make"], decision="allow")\n')
        self.assertEqual(facts(0, 'rules', 'test', '-r', rules), {'files': [{'file': rules, 'rules': 1}], 'errors': []})
        whole = facts(0, 'audit', 'verify', log)
        self.assertEqual((whole['file'], whole['intact'], whole['entries'], len(whole['last'])), (log, True, 1, 64))
        with open(log, 'a') as f:
            f.write('{}\n')
        broken = facts(1, 'audit', 'verify', log)
        self.assertEqual((broken['intact'], broken['line']), (False, 2))
        self.assertIn('not an entry', broken['fault'])
        for flag, written in (('--check', False), ('--cwd=' + home, True)):
            self.assertEqual(facts(0, 'patch', flag, '--cwd', home, patch),
                             {'written': written, 'added': ['a'], 'modified': [], 'deleted': [], 'replaced': []})
        host = facts(0, 'sandbox', '--allow-host', 'a.test', '--explain-host', 'b.test:80')
        self.assertEqual((host['host'], host['port'], host['allowed']), ('b.test', 80, False))
        self.assertTrue(host['reasons'][0].startswith('refused: on no list'))
        mac = facts(0, 'sandbox', '--print-plan', '--for', 'macos')
        self.assertEqual((mac['program'], mac['arguments'][0], mac['arguments'][-1]), ('/usr/bin/sandbox-exec', '-p', '--'))
        self.assertEqual(facts(0, 'sandbox', '--sandbox', ':danger-full-access', '--print-plan')['confinement'], 'none')

    def test_a_plan_is_the_one_that_people_see(self):
        said = run('sandbox', '--print-plan', '--sandbox', ':workspace', '--cwd', '/var/tmp')
        if said.returncode != 0:
            self.skipTest('no sandbox here')
        plan = json.loads(run('sandbox', '--print-plan', '--sandbox', ':workspace', '--cwd', '/var/tmp', '--json').stdout)
        lines = said.stdout.decode().splitlines()
        self.assertEqual(lines[:3], ['confinement: ' + plan['confinement'], 'files: ' + plan['files'], 'network: ' + plan['network']])
        places = lines[lines.index('places:') + 1:]
        self.assertEqual([line.split('  ', 1)[1].split(' (')[0].split(' -> ')[0].rstrip() for line in places],
                         [('%-12s %s' % (p['kind'], p['path'])).rstrip() for p in plan['places']])


class Meant(unittest.TestCase):
    def test_it_is_named(self):
        for words, says in (
                ('exce', 'no such command: exce; did you mean `exec`?'),
                ('run', 'no such command: run; did you mean `exec`?'),
                ('help exce', 'no such command: exce; did you mean `exec`?'),
                ('frobnicate', 'no such command: frobnicate (see sallyport help)'),
                ('rules chekc', 'no subcommand of rules is called `chekc`: there is list, add, remove, check, test or explain; '
                                'did you mean `check`? (see sallyport rules --help)'),
                ('--verison', 'no such command: --verison; did you mean `--version`?'),
                ('approvals alow 3', '`alow` is not show, allow or deny; did you mean `allow`? (see sallyport approvals --help)'),
                ('mcp extra', 'unexpected argument `extra` (see sallyport mcp --help)'),
                ('audit show --decision dneied', '--decision: `dneied` is not approved, denied, timed_out or abort; did you mean '
                                                 '`denied`? (see sallyport audit show --help)'),
                ('mcp --deny secrets',
                 'unknown option `--deny`; did you mean `--deny-host`? (see sallyport mcp --help)'),
                ('serve --token=s3cret', 'unknown option `--token`; did you mean `--token-file`? (see sallyport serve --help)'),
                ('kill -s', 'option `-s` needs an argument: SIGNAL (see sallyport kill --help)'),
                ('rules', 'which subcommand: list, add, remove, check, test or explain? (see sallyport rules --help)'),
                ('ps --jsno', 'unknown option `--jsno`; did you mean `--json`? (see sallyport ps --help)'),
                ('ps --js', 'unknown option `--js`; did you mean `--json`? (see sallyport ps --help)'),
                ('ps --onn=x', 'unknown option `--onn`; did you mean `--on`? (see sallyport ps --help)'),
                ('ps --frobnicate', 'unknown option `--frobnicate` (see sallyport ps --help)'),
                ('ps -Z', 'unknown option `-Z` (see sallyport ps --help)'),
                ('ps --config', 'option `--config` needs an argument: FILE (see sallyport ps --help)'),
                ('serve --log-level=inf', '--log-level: `inf` is not error, warn, info or debug; did you mean '
                                          '`info`? (see sallyport serve --help)')):
            with self.subTest(words):
                said = run(*words.split())
                self.assertEqual((said.returncode, said.stdout, said.stderr.decode()), (2, b'', 'sallyport: %s\n' % says))


class Times(unittest.TestCase):
    def test_units(self):
        for time in ('0.2', '200ms', '0.1s100ms', '0.001m', '0.0001h'):
            with self.subTest(time):
                self.assertEqual(run('exec', '--timeout', time, '--', 'sleep', '1000').returncode, 124)
        for time in ('1m', '1h30m', '30', '1d', '365d'):
            with self.subTest(time):
                self.assertEqual(run('exec', '--timeout=' + time, '--', 'true').returncode, 0)

    def test_what_is_no_time(self):
        for time in ('', '0', '5x', 'x', '-1', '1.2.3', 'inf', 'nan', '0x10', '1e3', 'm', '1h30', '366d', '1 m', '9' * 400):
            with self.subTest(time):
                said = run('exec', '--timeout=' + time, '--', 'true')
                self.assertEqual(said.returncode, 125)
                self.assertRegex(said.stderr.decode(), r'^sallyport: --timeout: `.*` is not a time such as 30 \(seconds\), '
                                                       r'5m or 1h, from 1ms to 365d \(see sallyport exec --help\)\n$')


class Exec(unittest.TestCase):
    def test_short_options(self):
        said = run('exec', '-e', 'A=1', '-eB=2', '-w', '/usr', '--', 'sh', '-c', 'echo $A$B $PWD')
        self.assertEqual((said.returncode, said.stdout), (0, b'12 /usr\n'))
        self.assertEqual(run('exec', '-t', '--', 'sh', '-c', 'test -t 1').returncode, 0)


class Signals(unittest.TestCase):
    def test_spellings(self):
        for words in ('-9', '-KILL', '-SIGKILL', '-s 9', '-sKILL', '--signal SIGKILL', '--signal=9'):
            with self.subTest(words):
                self.assertIn('no server', run('kill', *words.split(), 'p').stderr.decode())
        for words in ('-s 99', '-s FROB', '-99', '-FROB'):
            with self.subTest(words):
                said = run('kill', *words.split(), 'p')
                self.assertEqual(said.returncode, 2)
                self.assertRegex(said.stderr.decode(), r'^sallyport: --signal: `\w+` is not a signal such as TERM, SIGHUP or 9 ')


class Vocabulary(unittest.TestCase):
    """The same flag has the same name, the same values and the same meaning in every command."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='sallyport-conv-', dir='/var/tmp')  # /tmp is writable in :workspace
        self.addCleanup(shutil.rmtree, self.dir)

    def write_tries(self, *words):
        """Which of two directories can be written: the workspace, and one besides."""
        work, other = os.path.join(self.dir, 'work'), os.path.join(self.dir, 'other')
        for d in (work, other):
            os.makedirs(d, exist_ok=True)
        words = [other if w == 'OTHER' else w for w in words]
        said = run(*words, '--cwd', work, '--', 'sh', '-c', 'touch a && echo work; touch "$0"/a && echo other; exit 0', other,
                   TMPDIR='/nonexistent')
        return said.returncode, said.stdout.decode().split()

    def test_policies(self):
        profile = os.path.join(self.dir, 'p.json')
        with open(profile, 'w') as f:
            f.write('{"type":"workspace-write","networkAccess":false}')
        for command in ('exec', 'sandbox'):
            for words, can in ((('--sandbox', ':workspace'), ['work']),
                               (('--sandbox', 'workspace-write'), ['work']),
                               (('--mode', ':workspace'), ['work']),
                               (('--profile', profile), ['work']),
                               (('--sandbox', ':read-only'), []),
                               (('--sandbox', 'mine', '--set', 'permissions.mine={extends=":workspace"}'), ['work']),
                               (('--sandbox', ':read-only', '--writable', 'OTHER'), ['other']),
                               (('--sandbox', ':workspace', '--writable', 'OTHER'), ['work', 'other'])):
                with self.subTest((command, words)):
                    self.assertEqual(self.write_tries(command, *words), (0, can))
            for words, says in (('--sandbox :worksapce', 'there is no sandbox `:worksapce`; did you mean `:workspace`?'),
                                ('--sandbox :workspace --profile x', '--sandbox and --profile: give one of them')):
                said = run(command, *words.split(), '--', 'true')
                self.assertEqual((said.returncode, said.stderr.decode()), (125, 'sallyport: %s\n' % says))

    def test_the_policy_flags_are_those_of_every_command(self):
        def flags(command):
            return {line for line in run(command, '-h').stdout.decode().splitlines()
                    if re.match(r'  --(sandbox|profile|writable|network|allow-|deny-)', line) and 'origin' not in line
                    and 'remote' not in line}
        self.assertEqual(len(flags('exec')), 8)
        for command in ('mcp', 'sandbox'):
            self.assertEqual({f.split()[0] for f in flags(command)}, {f.split()[0] for f in flags('exec')})

    def test_a_configured_policy_judges_exec(self):
        for words, env in (((), {'SALLYPORT_APPROVAL_POLICY': 'never'}), (('--set', 'approval_policy="never"'), {})):
            with self.subTest(words):
                said = run('exec', *words, '--', 'rm', '-rf', '/nonexistent/x', **env)
                self.assertEqual((said.returncode, said.stdout), (122, b''))
                self.assertIn(b'rejected', said.stderr)
                self.assertEqual(run('exec', *words, '--', 'true', **env).returncode, 0)
        self.assertEqual(run('exec', '--', 'rm', '-rf', '/nonexistent/x').returncode, 0)

    def test_quiet_and_verbose(self):
        for words, says in ((('-q',), rb'^$'), ((), rb'sandbox may have denied'), (('-v',), rb'denied the command something:')):
            with self.subTest(words):
                said = run('exec', '--sandbox', ':read-only', *words, '--', 'sh', '-c', 'touch /usr/x 2>/dev/null; echo '
                           'Read-only file system >&1; exit 1', SECRET_TOKEN='x')
                self.assertEqual(said.returncode, 1)
                self.assertRegex(said.stderr, says)


class Rows(unittest.TestCase):
    """Messages that stood in the way of a new user."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='sallyport-conv-')
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name, text, mode=0o600):
        path = os.path.join(self.dir, name)
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def refused(self, status, says, *words, **env):
        said = run(*words, **env)
        self.assertEqual((said.returncode, said.stdout, said.stderr.decode()), (status, b'', 'sallyport: %s\n' % says))

    def test_a_program_that_is_not_there(self):
        self.refused(127, "ls | wc: no such program; no shell is involved: sh -c 'ls | wc'", 'exec', '--', 'ls | wc')
        self.refused(127, 'nosuch: command not found', 'exec', '--', 'nosuch')
        self.refused(127, 'nosuch: command not found', 'exec', '--sandbox', ':workspace', '--cwd', self.dir, '--', 'nosuch')
        self.refused(127, 'nosuch: command not found', 'sandbox', '--sandbox', ':danger-full-access', '--', 'nosuch')
        self.refused(127, '/no/such: No such file or directory', 'exec', '--', '/no/such')

    def test_the_directory_is_blamed_and_not_the_program(self):
        os.chmod(self.dir, 0o755)
        program = shutil.copy(PROGRAM, self.dir)
        closed = os.path.join(self.dir, 'closed')
        os.mkdir(closed, 0)
        user = {'user': 65534, 'group': 65534, 'extra_groups': []} if os.geteuid() == 0 else {}  # root may enter it
        for sandbox in ((), ('--sandbox', ':workspace')):
            said = subprocess.run([program, 'exec', *sandbox, '-w', closed, '--', 'true'], capture_output=True, timeout=wire.DEADLINE,
                                  cwd=self.dir, env={'PATH': '/usr/bin:/bin', 'HOME': self.dir}, **user)
            self.assertEqual((said.returncode, said.stderr.decode()), (125, 'sallyport: --cwd: %s: Permission denied\n' % closed))
        script = 'cd "$1" && rmdir "$1" && exec "$0" exec -- true'
        said = subprocess.run(['sh', '-c', script, program, tempfile.mkdtemp()], capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual((said.returncode, said.stderr.decode()),
                         (125, 'sallyport: the current directory (--cwd names another): No such file or directory\n'))

    def test_values_are_named(self):
        self.refused(125, '--env: `FOO` is not NAME=VALUE (see sallyport exec --help)', 'exec', '-e', 'FOO', '--', 'true')
        self.refused(2, 'no decision was logged yet: read %s/.sallyport/audit.jsonl: No such file or directory' % self.dir,
                     'audit', 'show', HOME=self.dir)
        self.refused(2, '--since: `x` is not a time such as 30 (seconds), 5m or 1h, from 1ms to 36500d (see sallyport audit show '
                     '--help)', 'audit', 'show', '--since', 'x')

    def test_texts_for_people_name_no_types(self):
        rules = self.path('p.rules', 'prefix_rule(pattern=["true"], decision="prompt")\n')
        said = run('exec', '--approve', 'never', '--rules', rules, '--', 'true', HOME=self.dir)
        self.assertEqual(said.returncode, 122)
        self.assertEqual(said.stderr.decode(), 'sallyport: it needs approval, and the approval policy is `never`\n')
        explained = run('rules', 'explain', '-r', rules, '--', 'true')
        self.assertIn(b'`rules` switched off', run('exec', '--approve', '{"granular":{"sandbox_approval":true,"rules":false,'
                      '"mcp_elicitations":true}}', '--rules', rules, '--', 'true', HOME=self.dir).stderr)
        self.assertEqual(explained.returncode, 0)
        self.assertNotIn(b'AskForApproval', explained.stdout)

    def test_decisions_that_are_not_logged(self):
        said = subprocess.run([PROGRAM, 'exec', '--approve', 'never', '--', 'true'], capture_output=True, env=BARE,
                              stdin=subprocess.DEVNULL, timeout=wire.DEADLINE)
        self.assertEqual((said.returncode, said.stderr.decode()), (
            0, 'sallyport: decisions are not logged: HOME is not set to a directory; set it, or `audit_log` in the configuration\n'))

    def test_a_token_that_others_can_read(self):
        token = self.path('token', 'a-token-of-this-test-0123456789', 0o644)
        self.refused(1, 'read `--token-file` /no/such: No such file or directory', 'serve', '--token-file', '/no/such')
        self.refused(1, '--token-file: read the token /no/such: No such file or directory', 'ps', '--on', 'ws://127.0.0.1:1',
                     '--token-file', '/no/such')
        self.refused(125, '--token-file: read the token /no/such: No such file or directory', 'exec', '--on', 'ws://127.0.0.1:1',
                     '--token-file', '/no/such', '--', 'true')
        self.refused(1, '--token-file: others may read or write %s (mode 0644); a token is for its owner alone: chmod 600 it' % token,
                     'serve', '--token-file', token)

    def test_where_to_listen(self):
        for listen in ('0', 'ws://localhost:0'):
            with self.subTest(listen), subprocess.Popen([PROGRAM, 'serve', '--no-local-socket', '--listen', listen],
                                                        stdout=subprocess.PIPE, env=BARE) as server:
                url = server.stdout.readline().decode()
                server.terminate()
                self.assertRegex(url, r'^ws://127\.0\.0\.1:[0-9]+/\?token=')
        with socket.create_server(('127.0.0.1', 0)) as other:
            port = other.getsockname()[1]
            self.refused(1, 'listen on ws://127.0.0.1:%d (give another port, or 0 for a free one; `ss -ltnp` shows who has it): '
                         'Address already in use' % port, 'serve', '--listen', str(port))

    def test_patches(self):
        patch = self.path('fix.patch', '*** Begin Patch\n*** Add File: new\n+text\n*** End Patch\n')
        diff = self.path('fix.diff', '--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n')
        said = run('patch', '--check', '--cwd', self.dir, patch)
        self.assertEqual((said.returncode, said.stdout), (0, b'Would update the following files:\nA new\n'))
        self.assertFalse(os.path.exists(os.path.join(self.dir, 'new')))
        said = run('patch', '--cwd', self.dir, patch)
        self.assertEqual((said.returncode, said.stdout), (0, b'Success. Updated the following files:\nA new\n'))
        self.refused(1, 'this is a unified diff, and the patches read here begin with `*** Begin Patch`: '
                        'apply it with `git apply` or `patch -p1`', 'patch', diff)
        self.refused(1, 'read nowhere.patch: No such file or directory', 'patch', 'nowhere.patch')

    def test_waiting_at_a_terminal_is_said(self):
        for words, says, key in ((('patch',), 'sallyport: reading a patch from the terminal; Ctrl-D ends it', b'\x04'),
                                 (('serve', '--listen', 'stdio'), 'sallyport: serving a client on this terminal', b'\x04'),
                                 (('mcp', '--cwd', self.dir), 'sallyport: waiting for an MCP host on this terminal', b'\x04'),
                                 (('serve', '--no-local-socket'), 'Ctrl-C ends the server', b'\x03')):
            with self.subTest(words):
                screen = Screen([PROGRAM, *words], dict(BARE, HOME=self.dir))
                self.addCleanup(screen.close)
                screen.wait(says)
                screen.type(key)
                screen.end()


if __name__ == '__main__':
    tap.main()
