# SPDX-License-Identifier: Apache-2.0
"""`sallyport exec --approve`: second attempts with real confined commands and a program that is asked; rule files and
commands that were made to be misread. Each command would leave a mark if it ran free."""

import json
import os
import signal
import time

import tap
import wire
from server import PROGRAM
from test_sandbox_verb import Verb

RETRY = 'command failed; retry without sandbox?'
READ_ONLY = ('--sandbox', ':read-only')


class Exec(Verb):
    def setUp(self):
        super().setUp()
        self.env['SALLYPORT_HOME'] = self.home
        os.chmod(self.home, 0o700)
        self.asked = os.path.join(self.beside, 'asked')
        self.answers = os.path.join(self.beside, 'answers')
        self.approver = os.path.join(self.beside, 'approver')
        # the first line of the answers that is left, and no when there is none
        wire.write_program(self.approver, '#!/bin/sh\ncat >> %s\nhead -n 1 %s\nsed -i 1d %s\n' % (
            self.asked, self.answers, self.answers))

    def args(self, *words):
        return [PROGRAM, 'exec', '--no-stdin', *words]

    def write(self, name, text):
        path = os.path.join(self.base, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return path

    def judge(self, policy, *words, answers=(), flags=READ_ONLY, **how):
        """Runs it with these answers ready; all of them must be asked for."""
        self.write('beside/answers', ''.join(json.dumps({'decision': a}) + '\n' for a in answers))
        self.write('beside/asked', '')
        got = self.run_verb('--approve', policy, '--approver', 'program:' + self.approver, *flags, '--', *words, **how)
        with open(self.asked) as f:
            self.questions = [json.loads(line)['question'] for line in f]
        self.assertEqual(len(self.questions), len(answers))
        return got

    def has_run(self, name='made'):
        path = os.path.join(self.work, name)
        if not os.path.exists(path):
            return False
        os.unlink(path)
        return True

    def attempts(self):
        with open(os.path.join(self.home, 'audit.jsonl')) as f:
            return [e['attempts'] for e in map(json.loads, f)]


class Again(Exec):
    def test_denied_then_approved(self):
        code, out, _ = self.judge('on-failure', 'sh', '-c', 'echo tried; touch made && echo done', answers=['approved'])
        self.assertEqual(code, 0)
        self.assertTrue(out.endswith(b'tried\ndone\n'))
        self.assertTrue(self.has_run())
        self.assertEqual(self.questions[0]['reason'], RETRY)
        self.assertEqual(self.attempts(), [['confined'], ['free']])

    def test_denied_then_refused(self):
        code, _, _ = self.judge('on-failure', 'touch', 'made', answers=['denied'])
        self.assertNotEqual(code, 0)
        self.assertFalse(self.has_run())
        self.assertEqual(self.attempts(), [['confined'], []])

    def test_untrusted_is_asked_twice(self):
        self.assertEqual(self.judge('untrusted', 'touch', 'made', answers=['approved', 'approved'])[0], 0)
        self.assertTrue(self.has_run())
        self.assertEqual([q.get('reason') for q in self.questions], [None, RETRY])
        self.judge('untrusted', 'touch', 'made', answers=['approved', 'denied'])
        self.assertFalse(self.has_run())
        self.judge('untrusted', 'touch', 'made', answers=['denied'])
        self.assertFalse(self.has_run())

    def test_nobody_is_asked_under_on_request_and_never(self):
        for policy in ('on-request', 'never', '{"granular":{"sandbox_approval":false,"rules":true,"mcp_elicitations":false}}'):
            code, _, _ = self.judge(policy, 'touch', 'made')
            self.assertEqual(code, 1)
            self.assertFalse(self.has_run())

    def test_granular(self):
        policy = '{"granular":{"sandbox_approval":true,"rules":false,"mcp_elicitations":false}}'
        self.assertEqual(self.judge(policy, 'touch', 'made', answers=['approved'])[0], 0)
        self.assertTrue(self.has_run())

    def test_a_time_out_is_no_denial(self):
        began = time.monotonic()
        code, _, _ = self.judge('on-failure', 'sh', '-c', 'touch made; exec sleep 100',
                                flags=(*READ_ONLY, '--timeout', '1'))
        self.assertEqual(code, 124)
        self.assertLess(time.monotonic() - began, 60)
        self.assertFalse(self.has_run())

    def test_what_else_is_no_denial(self):
        for words, code in ((['no-such-program'], 127), (['sh', '-c', 'no-such-program'], 127), (['false'], 1),
                            (['sh', '-c', 'exit 1'], 1), (['sh', '-c', 'exit 126'], 126)):
            self.assertEqual(self.judge('on-failure', *words)[0], code, words)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            self.assertEqual(self.judge('on-failure', 'sh', '-c', 'kill -%d $$' % number)[0], 128 + number)

    def test_a_signal_is_no_denial_whatever_was_said(self):
        self.assertEqual(self.judge('on-failure', 'sh', '-c', 'touch made; kill -9 $$')[0], 137)
        self.assertFalse(self.has_run())

    def test_there_is_no_third(self):
        code, out, _ = self.judge('on-failure', 'sh', '-c', 'touch made; echo Permission denied; exit 1', answers=['approved'])
        self.assertEqual(code, 1)
        self.assertTrue(self.has_run())
        self.assertEqual(self.attempts(), [['confined'], ['free']])

    def test_a_session_ends_with_the_command(self):  # 110
        for _ in range(2):
            self.assertEqual(self.judge('untrusted', 'printf', 'x', answers=['approved_for_session'])[0], 0)

    def test_denied_reads_are_never_free(self):  # 9.4, 80, 123
        secret = self.write('home/secret', 'hidden\n')
        config = self.write('conf', '[permissions.tight.filesystem]\n"/" = "read"\n"%s" = "deny"\n' % secret)
        rules = self.write('free.rules', 'prefix_rule(["touch"])\n')
        how = {'env': {'SALLYPORT_CONFIG': config}}
        for policy in ('on-failure', 'on-request', 'never'):
            self.assertEqual(self.judge(policy, 'touch', 'made', flags=('--sandbox', 'tight'), **how)[0], 1)
            self.assertFalse(self.has_run())
        code, _, _ = self.judge('on-request', 'touch', 'made', flags=('--sandbox', 'tight', '--rules', rules), **how)
        self.assertEqual(code, 1)
        self.assertFalse(self.has_run())
        code, _, _ = self.judge('untrusted', 'touch', 'made', flags=('--sandbox', 'tight'), answers=['approved'], **how)
        self.assertEqual(code, 1)
        self.assertFalse(self.has_run())
        code, out, _ = self.judge('on-failure', 'sh', '-c', 'cat "%s"' % secret, flags=('--sandbox', 'tight'), **how)
        self.assertNotEqual(code, 0)
        self.assertNotIn(b'hidden', out)


class RuleFiles(Exec):
    FREE = 'prefix_rule(["touch"])\n'

    def test_the_ground(self):
        self.write('home/rules/a.rules', self.FREE)
        self.assertEqual(self.judge('never', 'touch', 'made')[0], 0)
        self.assertTrue(self.has_run())

    def test_a_broken_file_makes_nothing_free(self):
        """What it may have forbidden is not known."""
        self.write('home/rules/a.rules', self.FREE)
        for what, text in (('10 MB', b'# comment\n' * (1 << 20)), ('10 MB of rules', self.FREE.encode() * 440000),
                           ('nested', b'x = ' + b'[' * 10000 + b']' * 10000), ('calls', b'prefix_rule(' * 10000),
                           ('NUL', b'prefix_rule(["cat"])\n\0'), ('UTF-8', b'prefix_rule(["\xff"])\n'),
                           ('cut', b'prefix_rule(["touch"], "forbidden"'), ('quote', b'prefix_rule(["touch], "forbidden")')):
            with self.subTest(what):
                self.write('home/rules/b.rules', text)
                began = time.monotonic()
                code, _, err = self.judge('never', 'touch', 'made')
                self.assertLess(time.monotonic() - began, 20 * wire.SCALE)
                self.assertEqual(code, 1, err[-500:])
                self.assertRegex(err, rb'/rules/b\.rules:\d+:\d+: ')
                self.assertFalse(self.has_run())

    def test_no_link_is_followed(self):
        self.write('beside/free.rules', self.FREE)
        self.write('home/rules/a.rules', '')
        os.symlink(os.path.join(self.beside, 'free.rules'), os.path.join(self.home, 'rules', 'b.rules'))
        code, _, err = self.judge('never', 'touch', 'made')
        self.assertEqual(code, 1)
        self.assertIn(b'/rules/b.rules: a symbolic link, skipped', err)
        self.assertFalse(self.has_run())

    def test_no_link_of_the_work_tree_is_followed(self):
        self.write('beside/free.rules', self.FREE)
        os.makedirs(os.path.join(self.work, 'p', '.sallyport', 'rules'))
        os.mkdir(os.path.join(self.work, 'p', '.git'))
        cwd = os.path.join(self.work, 'p')
        os.symlink(os.path.join(self.beside, 'free.rules'), os.path.join(cwd, '.sallyport', 'rules', 'b.rules'))
        config = self.write('conf', 'trusted_projects = ["%s"]\n' % cwd)
        code, _, err = self.judge('never', 'touch', 'made', cwd=cwd, env={'SALLYPORT_CONFIG': config})
        self.assertEqual(code, 1)
        self.assertIn(b'/rules/b.rules: a symbolic link, skipped', err)
        self.assertFalse(self.has_run('p/made'))
        os.rename(os.path.join(self.beside, 'free.rules'), os.path.join(cwd, '.sallyport', 'rules', 'c.rules'))
        self.assertEqual(self.judge('never', 'touch', 'made', cwd=cwd, env={'SALLYPORT_CONFIG': config})[0], 0)
        self.assertTrue(self.has_run('p/made'))
        self.assertEqual(self.judge('never', 'touch', 'made', cwd=cwd)[0], 1)  # nobody trusts it

    def test_pipes_and_devices_are_not_waited_for(self):
        rules = os.path.join(self.home, 'rules')
        self.write('home/rules/a.rules', self.FREE)
        os.mkfifo(os.path.join(rules, 'b.rules'))
        began = time.monotonic()
        self.assertEqual(self.judge('never', 'touch', 'made')[0], 0)
        self.assertTrue(self.has_run())
        pipe = os.path.join(self.beside, 'pipe')
        os.mkfifo(pipe)
        for path in (pipe, '/dev/zero', '/dev/null', self.beside):
            code, out, err = self.judge('never', 'touch', 'made', flags=(*READ_ONLY, '--rules', path))
            self.assertEqual((code, out), (125, b''), err)
            self.assertIn(b'failed to read rules file %s' % path.encode(), err)
            self.assertFalse(self.has_run())
        self.assertLess(time.monotonic() - began, 30 * wire.SCALE)

    def test_a_folder_that_is_a_pipe(self):
        os.mkfifo(os.path.join(self.home, 'rules'))
        began = time.monotonic()
        self.assertNotEqual(self.judge('never', 'touch', 'made')[0], 0)
        self.assertLess(time.monotonic() - began, 20 * wire.SCALE)
        self.assertFalse(self.has_run())

    def test_what_may_not_be_read_stops_everything(self):
        if os.geteuid() == 0:
            self.skipTest('root reads everything')
        self.write('home/rules/a.rules', '')
        path = os.path.join(self.home, 'rules')
        for target, text in ((path + '/a.rules', b'failed to read rules file %s/a.rules: Permission denied'),
                             (path, b'failed to read rules files from %s: Permission denied')):
            os.chmod(target, 0)
            code, out, err = self.judge('never', 'touch', 'made')
            self.assertEqual((code, out), (125, b''))
            self.assertIn(text % path.encode(), err)
            os.chmod(target, 0o700)


class Commands(Exec):
    TRICKS = ('\x1b[2J', 'a\rb', 'c\nd', '\u202egnp.exe', '\u200b\u2066', '\x9b', '\x7f', os.fsdecode(b'\xff\xfe'))

    def shown(self, text):
        """Nothing of it reaches a terminal as it is."""
        for bad in (b'\x1b', b'\r', b'\xe2\x80\xae', b'\xe2\x80\x8b', b'\xe2\x81\xa6', b'\xc2\x9b', b'\x9b', b'\x7f', b'\xff'):
            self.assertNotIn(bad, text)

    def test_a_refusal_is_shown_escaped(self):
        rules = self.write('a.rules', 'prefix_rule(["touch"], "forbidden")\n')
        code, out, err = self.judge('never', 'touch', *self.TRICKS, flags=(*READ_ONLY, '--rules', rules))
        self.assertEqual((code, out), (122, b''))
        self.assertIn(b'rejected: policy forbids commands starting with `touch`', err)
        self.shown(err)

    def test_a_refusal_of_danger_is_shown_escaped(self):
        code, out, err = self.judge('never', 'rm', '-f', *self.TRICKS)
        self.assertEqual((code, out), (122, b''))
        self.assertIn(b'rm -f style commands are not permitted. Use a safer approach', err)
        self.shown(err)

    def test_an_approvers_refusal_is_shown_escaped(self):
        code, _, err = self.judge('untrusted', 'make', answers=[{'denied': {'rejection': 'no\x1b[2J\u202e\r\n\x9b'}}])
        self.assertEqual(code, 122)
        self.shown(err)

    def test_a_rules_own_words_are_shown_escaped(self):
        rules = self.write('a.rules', 'prefix_rule(["touch"], "forbidden", justification="\\x1b[2J\\u202e")\n')
        code, _, err = self.judge('never', 'touch', 'made', flags=(*READ_ONLY, '--rules', rules))
        self.assertEqual(code, 122)
        self.shown(err)

    def test_the_question_and_the_log_have_every_byte(self):
        words = ['printf', '%s', *self.TRICKS[:-1]]
        code, out, _ = self.judge('untrusted', *words, answers=['approved'])
        self.assertEqual((code, out), (0, ''.join(self.TRICKS[:-1]).encode()))
        self.assertEqual(self.questions[0]['command'], words)
        with open(os.path.join(self.home, 'audit.jsonl'), 'rb') as f:
            raw = f.read()
        self.assertEqual(raw.count(b'\n'), 1)
        self.assertEqual(json.loads(raw)['command'], words)

    def test_bytes_that_are_no_text(self):
        code, out, _ = self.judge('untrusted', 'printf', os.fsdecode(b'\xff\xfe'), answers=['approved'])
        self.assertEqual((code, out), (0, b'\xff\xfe'))

    def test_nothing_is_taken_for_what_it_looks_like(self):
        rules = self.write('a.rules', 'prefix_rule(["touch"])\n')
        for program in ('touch\u200b', '\u202etouch', 'touch\x1b[2J', 'Touch', 'to\u00adch', './touch', 'touch '):
            with self.subTest(repr(program)):
                code, out, err = self.judge('untrusted', program, 'made', flags=(*READ_ONLY, '--rules', rules), answers=['denied'])
                self.assertEqual((code, out), (122, b''))
                self.assertFalse(self.has_run())

    def test_words_of_128_kib(self):
        word = 'x' * ((128 << 10) - 1)
        code, out, _ = self.judge('untrusted', 'printf', '%s', word, answers=['approved'])
        self.assertEqual((code, len(out)), (0, len(word)))
        self.assertEqual(self.questions[0]['command'][2], word)
        code, _, err = self.judge('never', 'rm', word, '-f')
        self.assertEqual(code, 122)
        self.assertIn(b'rm -f style commands', err)
        self.assertLess(len(err), 8192)  # cut in the middle

    def test_many_words(self):
        words = ['x' * 1000] * 1500
        self.assertEqual(self.judge('never', 'rm', *words, '-f')[0], 122)
        self.assertEqual(self.judge('never', 'true', *words)[0], 0)

    def test_scripts_that_are_deep(self):
        """Read to the end, or not at all: a removal in there is seen, and what cannot be seen is refused."""
        self.write('work/kept', '')
        for open_, close in (('$(', ')'), ('( ', ')'), ('(', ')'), ('{ ', '; }'), ('echo $(', ')'), ('if true; then ', '; fi')):
            script = open_ * 5000 + 'rm -rf kept' + close * 5000
            code, out, _ = self.judge('never', 'sh', '-c', script, flags=('--sandbox', ':danger-full-access'))
            self.assertEqual((code, out), (122, b''), script[:10])
            self.assertTrue(os.path.exists(os.path.join(self.work, 'kept')))

    def test_quotes_without_an_end(self):
        rules = self.write('a.rules', 'prefix_rule(["touch"])\n')
        for script in ("touch 'made", 'touch "made', 'touch made\\', 'touch made && "', 'touch made; (', 'touch made\n$(', 'touch made`'):
            with self.subTest(script):
                code, _, _ = self.judge('untrusted', '/bin/sh', '-c', script, flags=(*READ_ONLY, '--rules', rules),
                                        answers=['denied'])
                self.assertEqual(code, 122)
                self.assertFalse(self.has_run())


if __name__ == '__main__':
    tap.main()
