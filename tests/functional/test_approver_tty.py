# SPDX-License-Identifier: Apache-2.0
"""The approver at the terminal: what a person sees, which keys count, and what is left of it afterwards."""

import json
import os
import select
import signal
import subprocess
import termios
import time

import tap
import wire
from server import PROGRAM
from test_sandbox_verb import Screen, Verb

PROMPT = rb'q no and stop: '


class Terminal(Verb):
    def setUp(self):
        super().setUp()
        self.config = os.path.join(self.home, 'sallyport.conf')
        self.env['SALLYPORT_HOME'] = self.home
        os.chmod(self.home, 0o700)

    def screen(self, *words, policy='untrusted', flags=()):
        return Screen(self, [PROGRAM, 'exec', '--no-stdin', '--approve', policy, *flags, '--', *words])

    def log(self):
        with open(os.path.join(self.home, 'audit.jsonl')) as f:
            return [json.loads(line) for line in f]

    def is_as_before(self, screen):
        return termios.tcgetattr(screen.slave) == screen.before

    # -- keys

    def test_yes(self):
        s = self.screen('sh', '-c', 'echo it ran')
        shown = s.wait_for(PROMPT)
        self.assertIn(b'sallyport: may this run?', shown)
        self.assertIn(b"command:     sh -c 'echo it ran'", shown)
        self.assertIn(b'in:          ' + self.work.encode(), shown)
        self.assertIn(b'environment: local', shown)
        self.assertIn(b'allowed:     everything: no sandbox', shown)
        s.type(b'y')
        s.wait_for(rb'yes\r?\nit ran')
        self.assertEqual(s.wait(), 0)
        self.assertTrue(self.is_as_before(s))
        self.assertEqual([(e['decision'], e['decided_by']) for e in self.log()], [('approved', 'user')])

    def test_no_and_stop(self):
        for key, decision in ((b'n', 'denied'), (b'q', 'abort'), (b'\x03', 'abort')):
            s = self.screen('make', 'it')
            s.wait_for(PROMPT)
            s.type(key)
            s.wait_for(rb'rejected by user')
            self.assertEqual(s.wait(), 122)
            self.assertTrue(self.is_as_before(s))
            self.assertEqual(self.log()[-1]['decision'], decision)

    def test_a_key_and_enter_after_somebody_set_the_terminal_back(self):
        s = self.screen('printf', 'ran')
        s.wait_for(PROMPT)
        termios.tcsetattr(s.slave, termios.TCSANOW, s.before)  # as a shell does that stops its jobs
        s.type(b'yes\n')
        time.sleep(0.2)
        self.assertIsNone(s.p.poll())
        termios.tcsetattr(s.slave, termios.TCSANOW, s.before)
        s.type(b'y\n')
        s.wait_for(rb'yes\r?\nran')
        self.assertEqual(s.wait(), 0)
        self.assertTrue(self.is_as_before(s))

    def test_a_command_cannot_hide_the_question_about_it(self):
        s = Screen(self, ['env', 'TERM=xterm', PROGRAM, 'exec', '--no-stdin', '--approve', 'on-failure', '--sandbox',
                          ':read-only', '--', 'sh', '-c', r"printf '\033[8m'; touch made"])
        self.assertRegex(s.wait_for(PROMPT), rb'(?s)\x1b\[8m.*\x1b\[!p\x1b\(B\x1b\[0m\r?\nsallyport: ')
        s.type(b'n')
        self.assertEqual(s.wait(), 1)

    def test_no_confined_command_holds_the_log(self):
        hold = 'exec 9< "$SALLYPORT_HOME/audit.jsonl" && flock -x 9 && echo held'
        run = subprocess.run([PROGRAM, 'exec', '--approve', 'never', '--sandbox', ':workspace', '--', 'sh', '-c', hold],
                             capture_output=True, env=self.env, cwd=self.work, timeout=wire.DEADLINE)
        self.assertNotEqual(run.returncode, 0)
        self.assertNotIn(b'held', run.stdout)
        self.assertEqual(len(self.log()), 1)

    def test_other_keys_count_for_nothing(self):
        s = self.screen('printf', 'ran')
        s.wait_for(PROMPT)
        for keys in (b'x', b'\r', b'Y', b'\x04', b'\x1bOp', b'yes please\n', b'\x1by', b'p' * 30):
            s.type(keys)
            time.sleep(0.05)
        self.assertIsNone(s.p.poll())
        self.press(s, b'y')
        s.wait_for(rb'ran')
        self.assertEqual(s.wait(), 0)

    def press(self, screen, key):
        """Until it has come alone: what comes together with something else does not count."""
        end = wire.deadline()
        while screen.p.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            screen.type(key)
            if select.select([screen.master], [], [], 1)[0]:
                return

    def test_what_was_typed_before_is_no_answer(self):
        master_first = Screen(self, ['/bin/sh', '-c', 'stty -icanon; printf ready; sleep 0.5; exec "$@"', 'sh',
                                     PROGRAM, 'exec', '--no-stdin', '--approve', 'untrusted', '--', 'make'])
        master_first.wait_for(rb'ready')
        master_first.type(b'y')
        master_first.wait_for(PROMPT)
        self.assertIsNone(master_first.p.poll())
        master_first.type(b'n')
        self.assertEqual(master_first.wait(), 122)

    def test_the_rule_is_kept(self):
        s = self.screen('printf', 'ran')
        shown = s.wait_for(PROMPT)
        self.assertIn(b'rule:        printf ran', shown)
        self.assertIn(b'p yes and keep the rule', shown)
        s.type(b'p')
        s.wait_for(rb'ran')
        self.assertEqual(s.wait(), 0)
        with open(os.path.join(self.home, 'rules', 'default.rules')) as f:
            self.assertEqual(f.read(), 'prefix_rule(pattern=["printf", "ran"], decision="allow")\n')
        s = self.screen('printf', 'ran', 'again')
        s.wait_for(rb'ran')
        self.assertEqual(s.wait(), 0)
        self.assertEqual([e['decided_by'] for e in self.log()], ['user', 'rule'])

    def test_a_prefix_that_would_allow_anything_is_not_offered(self):
        s = self.screen('git')
        self.assertNotIn(b'rule:', s.wait_for(PROMPT))
        s.type(b'p')
        self.press(s, b'q')
        self.assertEqual(s.wait(), 122)

    # -- what is shown

    def test_nothing_plays_with_the_terminal(self):
        words = ('printf', '\x1b[2J', 'a\rb', 'c\nd', '\u202egnp.exe', '\u200b', b'\xff\xfe'.decode('utf-8', 'surrogateescape'), '\x9b')
        s = self.screen(*words)
        shown = s.wait_for(PROMPT)
        text = shown[shown.index(b'command:'):]
        for bad in (b'\x1b', b'\xe2\x80\xae', b'\xe2\x80\x8b', b'\xff', b'\xc2\x9b'):
            self.assertNotIn(bad, text)
        for good in (rb'\x1b[2J', rb'a\rb', rb'c\nd', rb'\u{202e}gnp.exe', rb'\u{200b}', rb'\xff\xfe', rb'\u{9b}'):
            self.assertIn(good, text)
        s.type(b'n')
        self.assertEqual(s.wait(), 122)

    def test_much_is_cut_in_the_middle(self):
        s = self.screen('printf', 'A' * 20000 + 'end')
        shown = s.wait_for(PROMPT)
        self.assertRegex(shown, rb'A{1000}')
        self.assertRegex(shown, rb'\[\.\.\. 159\d\d bytes left out \.\.\.\]')
        self.assertIn(b'Aend', shown)
        self.assertLess(len(shown), 6000)
        self.assertNotIn(b'rule:', shown)
        s.type(b'n')
        self.assertEqual(s.wait(), 122)

    # -- denials

    def test_once_more_without(self):
        s = self.screen('touch', 'made', policy='on-failure', flags=('--sandbox', ':read-only'))
        shown = s.wait_for(PROMPT)
        self.assertIn(b'Once more, without it?', shown)
        self.assertIn(b'reason:      command failed; retry without sandbox?', shown)
        s.type(b'y')
        self.assertEqual(s.wait(), 0)
        self.assertTrue(os.path.exists(os.path.join(self.work, 'made')))
        self.assertEqual([e['attempts'] for e in self.log()], [['confined'], ['free']])

    def test_a_refused_second_attempt_leaves_the_first(self):
        s = self.screen('sh', '-c', 'touch made || exit 9', policy='on-failure', flags=('--sandbox', ':read-only'))
        s.wait_for(PROMPT)
        s.type(b'n')
        self.assertEqual(s.wait(), 9)
        self.assertFalse(os.path.exists(os.path.join(self.work, 'made')))

    # -- time and signals

    def test_too_late(self):
        s = self.screen('make', flags=('--set', 'approval_timeout_s=1'))
        s.wait_for(PROMPT)
        s.wait_for(rb'approval request timed out')
        self.assertEqual(s.wait(), 122)
        self.assertTrue(self.is_as_before(s))

    def test_a_signal_ends_the_question(self):
        s = self.screen('make')
        s.wait_for(PROMPT)
        s.p.send_signal(signal.SIGTERM)
        self.assertEqual(s.wait(), 128 + signal.SIGTERM)
        self.assertTrue(self.is_as_before(s))
        self.assertEqual(self.log()[-1]['decision'], 'abort')

    def test_the_terminal_goes_away(self):
        s = self.screen('make')
        s.wait_for(PROMPT)
        os.close(s.slave)
        os.close(s.master)
        s.slave = s.master = -1
        self.assertNotEqual(s.wait(), 0)
        self.assertIn(self.log()[-1]['decision'], ('abort', 'denied'))

    def test_without_a_terminal_nobody_is_asked(self):
        r = subprocess.run([PROGRAM, 'exec', '--approve', 'untrusted', '--', 'make'], env=self.env, cwd=self.work,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                           timeout=wire.DEADLINE)
        self.assertEqual(r.returncode, 122)
        self.assertIn(b'the client cannot answer questions', r.stderr)


if __name__ == '__main__':
    tap.main()
