# SPDX-License-Identifier: Apache-2.0
"""`sallyport rules`: list, add, remove, check, test and explain; where rules come from; what is said of what is wrong."""

import json
import os
import subprocess
import unittest

import tap
import wire
from server import HERE, PROGRAM, Case, ours_only

EXAMPLE = os.path.abspath(os.path.join(HERE, '..', '..', 'examples', 'default.rules'))


class Rules(Case):
    def setUp(self):
        super().setUp()
        self.dir = self.scratch()
        self.home = os.path.join(self.dir, 'home')
        self.config = os.path.join(self.dir, 'config')
        self.write('config', '')
        os.makedirs(self.home)
        self.env = dict(os.environ, LC_ALL='C', SALLYPORT_HOME=self.home, SALLYPORT_CONFIG=self.config, HOME=self.home)

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(path, 0o644)
        return path

    def rules(self, *words, cwd=None):
        run = subprocess.run([PROGRAM, 'rules', *words], capture_output=True, timeout=wire.DEADLINE, env=self.env,
                             cwd=cwd or self.dir)
        return run.returncode, run.stdout.decode(), run.stderr.decode()

    def explain(self, *words, cwd=None):
        status, out, err = self.rules('explain', '--json', *words, cwd=cwd)
        self.assertEqual((status, err), (0, ''))
        return json.loads(out)


@ours_only
class Trust(Rules):
    """Rules that others may write, and files of --rules that do not parse: no command, no server."""

    def doors(self, *flags):
        for words in (('exec', '--approve', 'never', *flags, '--', 'true'),
                      ('serve', '--listen', 'stdio', '--approve', 'never', *flags), ('mcp', '--cwd', self.dir, *flags)):
            run = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=wire.DEADLINE, env=self.env,
                                 cwd=self.dir, stdin=subprocess.DEVNULL)
            yield words[0], run.returncode, run.stderr

    def refused(self, text, *flags):
        for verb, status, err in self.doors(*flags):
            self.assertNotEqual(status, 0, verb)
            self.assertIn(text, err, verb)

    def test_what_others_may_write_is_refused(self):
        path = self.write('home/rules/a.rules', 'prefix_rule(pattern=["touch"], decision="allow")\n')
        named = self.write('named.rules', '')
        for changed, mode in ((path, 0o666), (os.path.dirname(path), 0o777), (self.home, 0o775), (named, 0o620)):
            before = os.stat(changed).st_mode & 0o7777
            os.chmod(changed, mode)
            self.refused('%s: others may write it (mode %04o), so it is not trusted; chmod go-w it' % (changed, mode),
                         '--rules', named)
            os.chmod(changed, before)
        if os.geteuid() == 0:
            os.chown(path, 65534, -1)
            self.refused('%s: belongs to user 65534, so it is not trusted' % path)
            self.assertIn('belongs to user 65534', self.rules('list')[2])
            os.chown(path, 0, -1)
        for verb, status, err in self.doors('--rules', named):
            self.assertEqual((verb, status), (verb, 0), err)

    def test_a_named_file_that_does_not_parse_starts_nothing(self):
        named = self.write('named.rules', 'prefix_rule(pattern=["true"], decision="forbidden")\nprefix_rule(pattern=[\n')
        self.refused(named + ':3:1: unexpected end of the file', '--rules', named)


@ours_only
class Manage(Rules):
    """`rules list`, `add` and `remove`."""

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.home, 'rules', 'default.rules')

    def text(self, path=None):
        with open(path or self.file) as f:
            return f.read()

    def test_the_life_of_a_rule(self):
        self.assertEqual(self.rules('add', '--', 'git', 'status'), (0, self.file + ':1: allow git status\n', ''))
        self.assertEqual(self.rules('add', '--decision', 'forbidden', '--justification', 'never "by hand"', '--', 'npm', 'publish'),
                         (0, self.file + ':2: forbidden npm publish: never "by hand"\n', ''))
        self.assertEqual(self.rules('add', '--decision=deny', '--host', 'Evil.test'),
                         (0, self.file + ':3: deny https://evil.test: Deny https_connect access to evil.test\n', ''))
        self.assertEqual(os.stat(self.file).st_mode & 0o7777, 0o600)
        status, out, err = self.rules('list')
        self.assertEqual((status, out.splitlines()[0], len(out.splitlines()), err), (0, self.file + ':1: allow git status', 3, ''))
        self.assertEqual(self.explain('--', 'npm', 'publish')['requirements']['on-request']['requirement'], 'forbidden')
        self.assertEqual(self.rules('add', '--', 'git', 'status'),
                         (0, self.file + ':1: allow git status\n', 'sallyport: the rule was there already\n'))
        self.assertEqual(self.rules('remove', '--', 'npm', 'publish'),
                         (0, 'removed %s:2: forbidden npm publish: never "by hand"\n' % self.file, ''))
        self.assertEqual(self.rules('remove', '--host', 'evil.test')[0], 0)
        self.assertEqual(self.rules('remove', self.file + ':1')[0], 0)
        self.assertEqual(self.text(), '')
        self.assertEqual(os.listdir(os.path.dirname(self.file)), ['default.rules'])
        self.assertIn('there are no rules', self.rules('list')[2])

    def test_a_rule_for_a_host_that_a_later_one_reverses_is_added_again(self):
        for n, decision in enumerate(('deny', 'allow', 'deny', 'deny')):
            status, out, err = self.rules('add', '--host', 'pkg.example', '--decision', decision)
            self.assertEqual((status, out.startswith('%s:%d: %s https://pkg.example' % (self.file, min(n + 1, 3), decision)), err),
                             (0, True, 'sallyport: the rule was there already\n' if n == 3 else ''))

    def test_json_of_every_kind(self):
        self.write('home/rules/a.rules', '# one\nprefix_rule(["git", ["status", "log"]], justification="reads")\n'
                                         'network_rule("a.test", "https", "prompt")\n\n'
                                         'host_executable("git", ["/usr/bin/git"])\n')
        f = os.path.join(self.home, 'rules', 'a.rules')
        status, out, err = self.rules('list', '--json')
        self.assertEqual((status, err), (0, ''))
        mine = [r for r in json.loads(out)['rules'] if r.pop('file') == f]
        self.assertEqual(mine, [
            {'line': 2, 'kind': 'prefix_rule', 'decision': 'allow', 'pattern': ['git', ['status', 'log']],
             'justification': 'reads', 'managed': False},
            {'line': 3, 'kind': 'network_rule', 'decision': 'prompt', 'host': 'a.test', 'protocol': 'https', 'managed': False},
            {'line': 5, 'kind': 'host_executable', 'name': 'git', 'paths': ['/usr/bin/git'], 'managed': False}])
        self.assertIn(f + ':2: allow git (status|log): reads\n' + f + ':3: prompt https://a.test\n' +
                      f + ':5: host_executable git is /usr/bin/git\n', self.rules('list')[1])

    def test_what_a_file_says_cannot_draw_on_the_terminal(self):
        self.write('home/rules/a.rules', 'prefix_rule(["x\\x1b[2J"], justification="\\x1b]0;t\\x07")\n')
        self.assertNotIn('\x1b', self.rules('list')[1])

    def test_wide_rules_need_force(self):
        for words in (('git',), ('bash',), ('/bin/bash', '-c'), ('/usr/local/bin/python3',), ('sudo',), ('xargs',), ('env',)):
            status, out, err = self.rules('add', '--', *words)
            self.assertEqual((status, out), (1, ''), words)
            self.assertIn('`%s` alone would allow nearly everything without a sandbox' % ' '.join(words), err)
            self.assertIn('--force', err)
        self.assertFalse(os.path.exists(self.file))
        self.assertEqual(self.rules('add', '--decision', 'prompt', '--', 'git')[0], 0)
        self.assertEqual(self.rules('add', '--force', '--', 'git')[0], 0)

    def test_removal_keeps_every_other_byte(self):
        before = b'# caf\xc3\xa9\r\nx = ["a",\n  "b"]\nprefix_rule(["git", "push"],  # why\n  decision="prompt")  # gone too\n' \
                 b'\t# tail \nprefix_rule(x)'
        f = self.write('own.rules', before)
        os.chmod(f, 0o640)
        status, out, err = self.rules('remove', f + ':5')
        self.assertEqual((status, out, err), (0, 'removed %s:4: prompt git push\n' % f, ''))
        with open(f, 'rb') as x:
            self.assertEqual(x.read(), b'# caf\xc3\xa9\r\nx = ["a",\n  "b"]\n\t# tail \nprefix_rule(x)')
        self.assertEqual(os.stat(f).st_mode & 0o7777, 0o640)
        self.assertEqual(self.rules('add', '--file', 'own.rules', '--', 'z')[1], 'own.rules:6: allow z\n')
        self.assertTrue(self.text(f).endswith('\nprefix_rule(x)\nprefix_rule(pattern=["z"], decision="allow")\n'))
        for place in (':1', ':2', ':99'):
            status, out, err = self.rules('remove', f + place)
            self.assertEqual((status, out, err), (1, '', 'sallyport: %s has no rule there\n' % f))

    def test_one_or_the_candidates(self):
        self.write('home/rules/a.rules', 'prefix_rule(["git", "push"])\n')
        self.write('home/rules/b.rules', 'prefix_rule(["git", "push"], "prompt")\nprefix_rule(["git", ["a", "b"]])\n')
        status, out, err = self.rules('remove', '--', 'git', 'push')
        self.assertEqual((status, out), (1, ''))
        self.assertEqual(err, 'sallyport: several rules are like this; name one by FILE:LINE:\n'
                              '{0}/rules/a.rules:1: allow git push\n{0}/rules/b.rules:1: prompt git push\n'.format(self.home))
        status, out, err = self.rules('remove', '--', 'git', 'a')
        self.assertEqual((status, out, len(err.splitlines())), (1, '', 4))
        self.assertTrue(err.startswith('sallyport: no rule is exactly like this; name one of these by FILE:LINE:\n'))
        self.assertEqual(self.rules('remove', '--', 'nothing'),
                         (1, '', 'sallyport: no rule is exactly like this (see sallyport rules list)\n'))
        status, out, err = self.rules('remove', 'nowhere/a.rules:1')
        self.assertEqual((status, out), (1, ''))
        self.assertIn('nowhere/a.rules: there is no such file', err)

    def test_files_that_are_not_touched(self):
        broken = self.write('broken.rules', 'nonsense\n')
        status, out, err = self.rules('add', '--file', broken, '--', 'x')
        self.assertEqual((status, out, self.text(broken)), (1, '', 'nonsense\n'))
        self.assertRegex(err, r'broken.rules:1:1: unsupported expression')
        real = self.write('real.rules', 'prefix_rule(["x"])\n')
        os.symlink(real, os.path.join(self.dir, 'link.rules'))
        for words in (('add', '--file', 'link.rules', '--', 'y'), ('remove', 'link.rules:1')):
            status, out, err = self.rules(*words)
            self.assertEqual((status, out, self.text(real)), (1, '', 'prefix_rule(["x"])\n'))
            self.assertIn('name the file itself', err)
        os.makedirs(self.home + '/rules')
        os.symlink(real, self.file)
        self.assertEqual(self.rules('add', '--', 'y')[0], 1)
        self.assertEqual(self.text(real), 'prefix_rule(["x"])\n')
        # the rest would not parse: an example needs the host_executable of the same file
        needed = self.write('needed.rules', 'host_executable("x", ["/opt/x"])\nprefix_rule(["x"], not_match=["/usr/bin/x"])\n')
        status, out, err = self.rules('remove', needed + ':1')
        self.assertEqual((status, out), (1, ''))
        self.assertIn('without the rule the file is not valid', err)

    @unittest.skipUnless(os.geteuid() == 0, 'only root has files of others at hand')
    def test_files_of_another_user(self):
        f = self.write('theirs.rules', 'prefix_rule(["x"])\n')
        os.chown(f, 12345, -1)
        for words in (('add', '--file', f, '--', 'y'), ('remove', f + ':1')):
            status, out, err = self.rules(*words)
            self.assertEqual((status, out, self.text(f)), (1, '', 'prefix_rule(["x"])\n'))
            self.assertEqual(err, 'sallyport: %s belongs to another user (uid 12345)\n' % f)

    def test_many_at_once_lose_nothing(self):
        runs = [subprocess.Popen([PROGRAM, 'rules', 'add', '--', 'tool', 'n%d' % i], env=self.env, cwd=self.dir,
                                 stdout=subprocess.DEVNULL) for i in range(8)]
        self.assertEqual([r.wait(wire.DEADLINE) for r in runs], [0] * 8)
        runs = [subprocess.Popen([PROGRAM, 'rules', verb, '--', 'tool', '%s%d' % (name, i)], env=self.env, cwd=self.dir,
                                 stdout=subprocess.DEVNULL) for i in range(4) for verb, name in (('add', 'm'), ('remove', 'n'))]
        self.assertEqual([r.wait(wire.DEADLINE) for r in runs], [0] * 8)
        words = sorted(r['pattern'][1] for r in json.loads(self.rules('list', '--json')[1])['rules'] if r['file'] == self.file)
        self.assertEqual(words, ['m0', 'm1', 'm2', 'm3', 'n4', 'n5', 'n6', 'n7'])

    def test_wrong_command_lines_of_edits(self):
        for words in (('add',), ('remove',), ('add', '--host', 'a', '--', 'x'), ('add', '--protocol', 'http', '--', 'x'),
                      ('add', '--decision', 'deny', '--', 'x'), ('add', '--decision', 'prompt', '--host', 'x'),
                      ('add', '--decision', 'alow', '--', 'x'), ('add', '--', b'\xff'), ('add', '--', ''), ('list', 'x')):
            status, out, err = self.rules(*words)
            self.assertEqual((status, out), (2, ''), words)
        self.assertIn('host', self.rules('add', '--host', 'a b')[2])


@ours_only
class Meant(Rules):
    def test_words_that_are_nearly_right(self):
        self.write('a.rules', 'prefix_rule(pattern=["a"], decision="alow")\nprefixrule(pattern=["a"])\n')
        status, out, err = self.rules('test', '-r', 'a.rules')
        self.assertEqual((status, err), (1, ''))
        self.assertEqual(out.splitlines()[:3], [
            'a.rules:1:1: invalid decision: alow', '    it can be allow, prompt or forbidden; did you mean `allow`?',
            'a.rules:2:1: there is no `prefixrule`; did you mean `prefix_rule`?'])
        self.write('b.rules', 'network_rule("a.test", "https", "frobnicate")\nfrobnicate()\n')
        self.assertEqual(self.rules('test', '-r', 'b.rules')[1].splitlines()[1:3], [
            '    it can be allow, prompt or deny', 'b.rules:2:1: there is no `frobnicate`: a rule is prefix_rule, network_rule or '
            'host_executable'])


class Check(Rules):
    def test_matches_and_the_strictest_decision(self):
        f = self.write('a.rules', 'prefix_rule(["git", "status"])\nprefix_rule(["git"], "prompt")\n')
        self.assertEqual(self.rules('check', '-r', f, '--', 'git', 'status'), (
            0, '{"matchedRules":[{"prefixRuleMatch":{"matchedPrefix":["git","status"],"decision":"allow"}},'
               '{"prefixRuleMatch":{"matchedPrefix":["git"],"decision":"prompt"}}],"decision":"prompt"}\n', ''))
        self.assertEqual(self.rules('check', '--rules', f, 'ls'), (0, '{"matchedRules":[]}\n', ''))

    def test_files_add_up(self):
        a = self.write('a.rules', 'prefix_rule(["x"])\n')
        b = self.write('b.rules', 'prefix_rule(["x"], "forbidden")\n')
        out = json.loads(self.rules('check', '-r', a, '-r', b, '--', 'x')[1])
        self.assertEqual(out['decision'], 'forbidden')
        self.assertEqual([m['prefixRuleMatch']['decision'] for m in out['matchedRules']], ['allow', 'forbidden'])

    def test_paths_stand_for_names_only_if_asked(self):
        f = self.write('a.rules', 'prefix_rule(["git"])\n')
        self.assertEqual(self.rules('check', '-r', f, '--', '/usr/bin/git')[1], '{"matchedRules":[]}\n')
        self.assertIn('"resolvedProgram":"/usr/bin/git"',
                      self.rules('check', '-r', f, '--resolve-host-executables', '--', '/usr/bin/git')[1])

    def test_no_shell_is_read(self):
        f = self.write('a.rules', 'prefix_rule(["git"])\n')
        self.assertEqual(self.rules('check', '-r', f, '--', 'bash', '-c', 'git')[1], '{"matchedRules":[]}\n')

    def test_what_cannot_be_read_or_parsed(self):
        status, out, err = self.rules('check', '-r', 'nowhere', '--', 'x')
        self.assertEqual((status, out), (1, ''))
        self.assertEqual(err, 'Error: failed to read policy at nowhere\n\nCaused by:\n    No such file or directory\n')
        self.write('b.rules', 'x = 1\nprefix_rule(pattern=[])\n')
        status, out, err = self.rules('check', '-r', 'b.rules', '--', 'x')
        self.assertEqual((status, out), (1, ''))
        self.assertEqual(err, 'Error: failed to parse policy at b.rules\n\nCaused by:\n'
                              '    b.rules:2:1: invalid pattern element: pattern cannot be empty\n')

    def test_texts_that_are_too_much(self):
        for text in (b'#' * (10 << 20), b'x = ' + b'[' * 500000, b'x = "' + b'a' * (1 << 20), b'\0', b'"\xff"',
                     b"x = ['a']\n" + b'x = x + x\n' * 1000, b'x = (' * 20000):
            self.write('big.rules', text)
            status, out, err = self.rules('check', '-r', 'big.rules', '--', 'x')
            self.assertEqual((status, out), (1, ''))
            self.assertRegex(err, r'^Error: failed to parse policy at big.rules\n\nCaused by:\n    big.rules:\d+:\d+: .*\n$')

    def test_wrong_command_lines(self):
        f = self.write('a.rules', '')
        for words in ((), ('nonsense',), ('check',), ('check', '--', 'x'), ('check', '-r', f), ('check', '-r'),
                      ('check', '-r', f, '--json', 'x'), ('test', 'x'), ('test', '--pretty'), ('explain',),
                      ('explain', '--pretty', 'x'), ('check', '-r', f, '--', b'\xff'), ('check', '--nonsense', 'x')):
            status, out, err = self.rules(*words)
            self.assertEqual((status, out), (2, ''), words)
            self.assertRegex(err, r'^sallyport: .* \(see sallyport rules .*--help\)\n$', words)

    def test_help(self):
        for words in (('--help',), ('check', '--help'), ('test', '--help'), ('explain', '--help')):
            self.assertRegex(self.rules(*words)[1], '^Usage: sallyport rules %s' % (words[0] if len(words) > 1 else 'SUBCOMMAND'))


@ours_only
class Test(Rules):
    @unittest.skipIf(os.path.exists('/etc/sallyport'), 'this host has rules of its own')
    def test_no_files_are_told(self):
        self.assertEqual(self.rules('test'), (
            0, '', 'sallyport: there are no rules in /etc/sallyport/rules or %s/rules\n' % self.home))
        self.write('home/rules/a.rules', '')
        self.assertEqual(self.rules('test'), (0, '%s/rules/a.rules: 0 rules\n' % self.home, ''))
        self.write('home/rules/a.rules', 'x')
        status, out, err = self.rules('test')
        self.assertEqual((status, err), (1, ''))

    def test_the_example_holds(self):
        status, out, err = self.rules('test', '-r', EXAMPLE)
        self.assertEqual((status, err), (0, ''))
        self.assertRegex(out, r'^%s: \d\d rules\n$' % EXAMPLE)

    def test_the_example_asks_about_what_destroys(self):
        for line in ('dd if=/dev/zero of=/dev/sda', 'mkfs.ext4 /dev/sda1', 'shred x', 'chmod -R 0 /', 'chown -R x /',
                     'git push --force', 'git reset --hard', 'git clean -f', 'docker system prune', 'kubectl delete x',
                     'terraform destroy', 'psql -c x'):
            self.assertIn('"decision":"prompt"}\n', self.rules('check', '-r', EXAMPLE, '--', *line.split())[1], line)
        for line in ('git push', 'git status', 'ls', 'docker ps', 'chmod 644 x'):
            self.assertEqual(self.rules('check', '-r', EXAMPLE, '--', *line.split())[1], '{"matchedRules":[]}\n', line)

    def test_every_fault_of_every_file_is_told(self):
        self.write('a.rules', 'prefix_rule(["a"])\n')
        self.write('b.rules', 'prefix_rule([])\nprefix_rule(["a"], match=["b"], not_match=["a"])\nprefix_rule(["a"], "x")\n')
        self.write('c.rules', 'prefix_rule(["a"], match=["b"], not_match=["a", "a x"])\nprefix_rule(["b"], match=["c"])\n')
        status, out, err = self.rules('test', '-r', 'a.rules', '-r', 'b.rules', '-r', 'nowhere', '-r', 'c.rules')
        self.assertEqual((status, err), (1, ''))
        lines = out.split('\n')
        self.assertEqual(lines[0], 'a.rules: 1 rule')
        self.assertIn('b.rules:1:1: invalid pattern element: pattern cannot be empty', lines)
        self.assertIn('b.rules:3:1: invalid decision: x', lines)
        self.assertIn('failed to read rules file nowhere: No such file or directory', lines)
        self.assertEqual(len([s for s in lines if s.startswith('c.rules:1:1: expected')]), 3)
        self.assertEqual(len([s for s in lines if s.startswith('c.rules:2:1: expected')]), 1)

    def test_the_configured_folders(self):
        self.assertEqual(self.rules('test')[0], 0)
        self.write('home/rules/b.rules', 'prefix_rule(["b"])\nnetwork_rule("x", "http", "deny")\n')
        self.write('home/rules/a.rules', 'prefix_rule([["a", "c"]])\n')
        os.symlink('a.rules', os.path.join(self.home, 'rules', 'l.rules'))
        status, out, _ = self.rules('test')
        self.assertEqual(status, 0)
        self.assertIn('%s/rules/l.rules: a symbolic link, skipped\n' % self.home, out)
        self.assertIn('%s/rules/a.rules: 2 rules\n%s/rules/b.rules: 2 rules\n' % (self.home, self.home), out)
        self.write('home/rules/b.rules', 'prefix_rule(["b"]')
        status, out, _ = self.rules('test')
        self.assertEqual(status, 1)
        self.assertIn('%s/rules/b.rules:1:18: ' % self.home, out)

    def test_control_characters_do_not_reach_the_terminal(self):
        self.write('a.rules', 'prefix_rule(["a"], "\x1b[2J\u202e")\n')
        self.assertNotIn('\x1b', self.rules('test', '-r', 'a.rules')[1])


@ours_only
class Explain(Rules):
    def test_segments_matches_and_requirements(self):
        f = self.write('a.rules', 'prefix_rule(["git"], justification="fine")\n')
        got = self.explain('-r', f, '--', '/bin/bash', '-lc', 'git status && ls')
        self.assertEqual(got['segments'], [['git', 'status'], ['ls']])
        self.assertEqual(got['matches'], [{'prefixRuleMatch': {'matchedPrefix': ['git'], 'decision': 'allow',
                                                               'justification': 'fine'}}])
        self.assertEqual((got['complete'], got['opaque'], got['sandbox']), (True, False, ':workspace'))
        self.assertEqual(list(got['requirements']), ['untrusted', 'on-failure', 'on-request', 'granular', 'never'])
        self.assertEqual({k: v['requirement'] for k, v in got['requirements'].items()}, dict.fromkeys(got['requirements'], 'skip'))

    def test_danger(self):
        for mode in (':read-only', ':danger-full-access', ':workspace'):
            got = self.explain('--sandbox', mode, '--', 'rm', '-rf', 'x')['requirements']
            self.assertEqual({k: v['requirement'] for k, v in got.items()},
                             {'untrusted': 'ask', 'on-failure': 'ask', 'on-request': 'ask', 'granular': 'ask', 'never': 'forbidden'})
            self.assertEqual(got['untrusted']['amendment'], ['rm', '-rf', 'x'])
            self.assertEqual(got['never']['reason'],
                             '`rm -rf x` rejected: rm -f style commands are not permitted. Use a safer approach')

    def test_a_rule_makes_it_free_and_another_forbids_it(self):
        f = self.write('a.rules', 'prefix_rule([["touch", "a"]])\nprefix_rule(["b"], "forbidden", justification="no")\n')
        for v in self.explain('--sandbox', ':read-only', '-r', f, '--', 'touch', 'x')['requirements'].values():
            self.assertEqual(v, {'requirement': 'skip', 'free': True})
        for v in self.explain('-r', f, '--', 'a', 'x')['requirements'].values():  # which is not installed
            self.assertEqual(v, {'requirement': 'skip', 'free': False})
        for v in self.explain('-r', f, '--', 'b', 'x')['requirements'].values():
            self.assertEqual(v, {'requirement': 'forbidden', 'reason': '`b x` rejected: no'})

    def test_a_file_that_commands_may_write_makes_nothing_free(self):
        f = self.write('a.rules', 'prefix_rule(["a"])\n')
        for v in self.explain('-r', f, '--', 'a', 'x')['requirements'].values():
            self.assertEqual(v, {'requirement': 'skip', 'free': False})
        out = self.rules('explain', '-r', f, '--', 'a', 'x')[1]
        self.assertIn('  allow      a\n             in the sandbox, since commands may write %s\n' % f, out)

    def test_an_incomplete_policy_makes_nothing_free(self):
        self.write('home/rules/a.rules', 'prefix_rule(["touch"])\n')
        self.assertTrue(self.explain('--sandbox', ':read-only', '--', 'touch')['requirements']['never']['free'])
        self.write('home/rules/b.rules', 'prefix_rule(')
        status, out, err = self.rules('explain', '--json', '--', 'touch')
        self.assertEqual(status, 0)
        self.assertIn('/rules/b.rules:1:13: ', err)
        self.assertFalse(json.loads(out)['complete'])
        self.assertFalse(json.loads(out)['requirements']['never']['free'])

    def test_project_rules_need_trust(self):
        self.write('p/.git/HEAD', '')
        self.write('p/.sallyport/rules/p.rules', 'prefix_rule(["ls"], "forbidden")\n')
        os.makedirs(os.path.join(self.dir, 'p', 'sub'))
        cwd = os.path.join(self.dir, 'p', 'sub')
        self.assertEqual(self.explain('--', 'ls', cwd=cwd)['matches'], [])
        self.write('config', 'trusted_projects = ["%s/p"]\n' % self.dir)
        self.assertEqual(self.explain('--', 'ls', cwd=cwd)['requirements']['never']['requirement'], 'forbidden')
        self.write('config', 'trusted_projects = ["%s/p/sub"]\n' % self.dir)
        self.assertEqual(self.explain('--', 'ls', cwd=cwd)['matches'], [])
        self.write('config', 'trusted_projects = ["%s/p"]\nignore_user_and_project_rules = true\n' % self.dir)
        self.assertEqual(self.explain('--', 'ls', cwd=cwd)['matches'], [])

    def test_for_people(self):
        f = self.write('a.rules', 'prefix_rule(["git"], "prompt", justification="why\x1b")\n')
        status, out, err = self.rules('explain', '-r', f, '--', '/usr/bin/git', 'push')
        self.assertEqual((status, err), (0, ''))
        self.assertIn('Segments:\n  /usr/bin/git push\n', out)
        self.assertIn('  prompt     git (/usr/bin/git): why\\x1b\n', out)
        self.assertRegex(out, r'\n  on-request  asks: ')
        self.assertRegex(out, r'\n  never       refuses: ')

    def test_without_a_sandbox_nothing_is_said_of_one(self):
        out = self.rules('explain', '--sandbox', ':danger-full-access', '--', 'ls')[1]
        self.assertEqual(out.count('  runs it without a sandbox\n'), 5, out)
        out = self.rules('explain', '--sandbox', ':read-only', '--', 'ls')[1]
        self.assertEqual(out.count('  runs it in the sandbox\n'), 5, out)

    def test_why_a_shell_is_judged(self):
        note = '(a shell that is not in /bin or /usr/bin by its path: it is judged, too)'
        self.assertIn('Segments:\n  ./bash  %s\n  ls\n' % note, self.rules('explain', '--', './bash', '-c', 'ls')[1])
        for words in (('/bin/bash', '-c', 'ls'), ('./bash', '-c', 'ls > x'), ('./bash', 'ls')):
            self.assertNotIn(note, self.rules('explain', '--', *words)[1], words)

    def test_an_unknown_sandbox(self):
        status, out, err = self.rules('explain', '--sandbox', 'nonsense', '--', 'x')
        self.assertEqual((status, out), (1, ''))
        self.assertIn('nonsense', err)


if __name__ == '__main__':
    tap.main()
