# SPDX-License-Identifier: Apache-2.0
"""The approver at the terminal: what a person sees, which keys count, and what is left of it afterwards."""

import json
import os
import re
import select
import signal
import subprocess
import termios
import threading
import time

import mcp
import tap
import wire
from server import PROGRAM
from test_sandbox_verb import Screen, Verb

PROMPT = rb'\r\n  answer: '
CONFINED = ('--sandbox', ':read-only')


class Answering(threading.Thread):
    """A terminal that answers queries as xterm does: `pace` makes chunks of its replies, each with the time before it."""

    def __init__(self, screen, pace):
        super().__init__(daemon=True)
        self.screen, self.pace, self.shown, self.replies = screen, pace, b'', 0
        self.stopped = False
        self.start()

    def run(self):
        owed, at = b'', 0
        while not self.stopped:
            try:
                if select.select([self.screen.master], [], [], 0.02)[0]:
                    self.shown += os.read(self.screen.master, 65536)
                for m in re.finditer(rb'\x1b\[(?:\?(\d+)\$p|c)', self.shown[at:]):
                    owed += b'\x1b[?%s;2$y' % m[1] if m[1] else b'\x1b[?62;22c'
                    end = m.end()
                    self.replies += 1
                at += 0 if not owed else end if self.replies else 0
                if owed:
                    for wait, part in self.pace(owed):
                        time.sleep(wait)
                        os.write(self.screen.master, part)
                    owed = b''
            except OSError:
                return

    def wait_for(self, pattern):
        return wire.wait_until(lambda: re.search(pattern, self.shown), 'pattern')


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
        self.assertRegex(shown, rb'\r\n  yes and Enter      yes, this once, WITHOUT A SANDBOX\r\n')
        self.assertEqual(shown.count(b'it ran'), 1, shown)
        s.type(b'yes\r')
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

    def test_one_key_is_enough_for_what_runs_in_a_sandbox(self):
        s = self.screen('printf', 'it %s', 'ran', flags=CONFINED)
        shown = s.wait_for(PROMPT)
        self.assertIn(b'\r\n  y                  yes, this once, in its sandbox\r\n', shown)
        self.assertNotIn(b'session', shown)  # it ends with the command
        s.type(b'y')
        s.wait_for(rb'yes\r?\nit ran')
        self.assertEqual(s.wait(), 0)

    def test_what_the_answers_mean(self):
        s = self.screen('printf', 'it %s', 'ran', flags=CONFINED)
        self.assertIn(b'\r\n  ?                  explain these answers\r\n', s.wait_for(PROMPT))
        s.type(b'?')
        shown = s.wait_for(PROMPT)
        for part in (b'The command runs in its sandbox.', b'sallyport rules remove', b'Ctrl-C does the same'):
            self.assertIn(part, shown)
        self.assertIsNone(s.p.poll())
        s.type(b'x')
        self.assertTrue(s.wait_for(PROMPT).endswith(
            b'x\r\n  no answer. Keys: y n q ?; words, with Enter: always\r\n  answer: '))
        self.assertIsNone(s.p.poll())
        s.type(b'n')
        self.assertEqual(s.wait(), 122)

    def test_bold_is_for_terminals_that_know_it(self):
        for env, bold in ((['TERM=xterm'], True), (['TERM=xterm', 'NO_COLOR=1'], False), (['TERM=dumb'], False)):
            with self.subTest(env):
                s = Screen(self, ['env', *env, PROGRAM, 'exec', '--no-stdin', '--approve', 'untrusted', '--', 'make', '\x1b[1mx'])
                shown = s.wait_for(PROMPT)
                self.assertEqual(b'\x1b[1mmay this run?\x1b[22m' in shown, bold)
                self.assertEqual(shown.count(b'\x1b[1m'), shown.count(b'\x1b[22m'))
                self.assertEqual(b'\x1b[1mWITHOUT A SANDBOX\x1b[22m' in shown, bold)
                self.press(s, b'n')
                self.assertEqual(s.wait(), 122)

    def test_a_key_and_enter_after_somebody_set_the_terminal_back(self):
        s = self.screen('printf', 'ran', flags=CONFINED)
        s.wait_for(PROMPT)
        termios.tcsetattr(s.slave, termios.TCSANOW, s.before)  # as a shell does that stops its jobs
        s.type(b'yes please\n')
        time.sleep(0.3)
        self.assertIsNone(s.p.poll())
        termios.tcsetattr(s.slave, termios.TCSANOW, s.before)
        s.type(b'y\n')
        s.wait_for(rb'yes\r?\nran')
        self.assertEqual(s.wait(), 0)
        self.assertTrue(self.is_as_before(s))

    def test_a_command_cannot_hide_the_question_about_it(self):
        s = Screen(self, ['env', 'TERM=xterm', PROGRAM, 'exec', '--no-stdin', '--approve', 'on-failure', '--sandbox',
                          ':read-only', '--', 'sh', '-c', r"printf '\033[8m'; touch made"])
        self.assertRegex(s.wait_for(PROMPT), rb'(?s)\x1b\[8m.*\x1b\[!p\x1b\(B\x1b\[0m\x1b\[\?[\d;]+l\r?\nsallyport: ')
        s.type(b'n')
        self.assertEqual(s.wait(), 1)

    # Queries whose replies all end in `y`. The first: 257 bytes, of which a reader of 256 has the last one alone. The second:
    # some come after a query for the terminal's identity, so that its reply is not the last.
    ODD = r"printf '\033[?25$p'; for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q r s t u v; do printf '\033[?7$p'; done; touch made"
    MIXED = r"for i in 1 2 3 4 5 6 7 8; do printf '\033[?25$p\033[?7$p'; done; printf '\033[c\033[?25$p\033[?7$p'; touch made"

    def attack(self, queries, pace):
        s = Screen(self, ['env', 'TERM=xterm', PROGRAM, 'exec', '--no-stdin', '--approve', 'on-failure', *CONFINED,
                          '--', 'sh', '-c', queries])
        terminal = Answering(s, pace)
        terminal.wait_for(PROMPT)
        self.assertGreater(terminal.replies, 18)
        time.sleep(0.3)
        self.assertIsNone(s.p.poll(), terminal.shown)
        self.press_at(s, terminal, b'n')
        self.assertEqual(s.wait(), 1)
        terminal.stopped = True
        terminal.join()
        self.assertFalse(os.path.exists(os.path.join(self.work, 'made')))

    def press_at(self, s, terminal, key):
        end = wire.deadline()
        while s.p.poll() is None and time.monotonic() < end:
            s.type(key)
            time.sleep(0.4)

    def test_a_command_cannot_answer_by_replies_that_come_late(self):
        for late in (0.05, 0.15, 0.4):
            with self.subTest(late=late):
                self.attack(self.ODD, lambda owed: [(late, owed)])
        self.attack(self.MIXED, lambda owed: [(0.4, owed)])

    def test_a_command_cannot_answer_by_replies_in_bursts(self):
        self.attack(self.MIXED, lambda owed: [(0.16, owed[i:i + 61]) for i in range(0, len(owed), 61)])
        self.attack(self.ODD, lambda owed: [(0.16, owed[i:i + 64]) for i in range(0, len(owed), 64)])

    def test_a_command_cannot_answer_by_replies_byte_by_byte(self):
        self.attack(self.MIXED, lambda owed: [(0.16 if i % 9 == 0 else 0.01, owed[i:i + 1]) for i in range(len(owed))])

    def test_the_terminal_says_what_it_is(self):
        """One that does needs no waiting."""
        s = Screen(self, ['env', 'TERM=xterm', PROGRAM, 'exec', '--no-stdin', '--approve', 'untrusted', *CONFINED, '--', 'printf', 'x'])
        terminal = Answering(s, lambda owed: [(0, owed)])
        terminal.wait_for(PROMPT)
        self.press_at(s, terminal, b'y')
        self.assertEqual(s.wait(), 0)
        terminal.stopped = True
        terminal.join()

    def test_no_confined_command_holds_the_log(self):
        hold = 'exec 9< "$SALLYPORT_HOME/audit.jsonl" && flock -x 9 && echo held'
        run = subprocess.run([PROGRAM, 'exec', '--approve', 'never', '--sandbox', ':workspace', '--', 'sh', '-c', hold],
                             capture_output=True, env=self.env, cwd=self.work, timeout=wire.DEADLINE)
        self.assertNotEqual(run.returncode, 0)
        self.assertNotIn(b'held', run.stdout)
        self.assertEqual(len(self.log()), 1)

    def test_other_keys_count_for_nothing(self):
        s = self.screen('printf', 'ran', flags=CONFINED)
        s.wait_for(PROMPT)
        for keys in (b'x', b'\r', b'Y', b'\x04', b'\x1bOp', b'yes please\n', b'\x1by', b'p' * 30):
            s.type(keys)
            time.sleep(0.05)
        for keys in (b'Y', b'\x1by', b'\x1bOy', b'yy', b'\x1b[My y'):
            time.sleep(0.2)
            s.type(keys)
        time.sleep(0.2)
        self.assertIsNone(s.p.poll())
        self.press(s, b'y')
        s.wait_for(rb'ran')
        self.assertEqual(s.wait(), 0)

    def press(self, screen, key):
        """Until it has come alone: what comes together with something else does not count. What was shown for earlier
        keys is read first, so that it is not taken for an answer to this one."""
        end = wire.deadline()
        while screen.p.poll() is None and time.monotonic() < end:
            while select.select([screen.master], [], [], 0.3)[0]:
                screen.seen += os.read(screen.master, 65536)
            screen.type(key)
            if select.select([screen.master], [], [], 1)[0]:
                return

    def test_what_was_typed_before_is_no_answer(self):
        master_first = Screen(self, ['/bin/sh', '-c', 'printf ready; sleep 0.5; exec "$@"', 'sh',
                                     PROGRAM, 'exec', '--no-stdin', '--approve', 'untrusted', *CONFINED, '--', 'make'])
        master_first.wait_for(rb'ready')
        master_first.type(b'y\n')
        master_first.wait_for(PROMPT)
        self.assertIsNone(master_first.p.poll())
        master_first.type(b'n')
        self.assertEqual(master_first.wait(), 122)

    def test_a_terminal_that_another_program_reads_is_not_used(self):
        s = Screen(self, ['/bin/sh', '-c', 'stty -icanon -echo; "$@"; echo ended $?; cat', 'sh', PROGRAM, 'exec',
                          '--no-stdin', '--approve', 'untrusted', '--approver', 'terminal', '--', 'make'])
        shown = s.wait_for(rb'ended \d+')
        self.assertIn(b'another program uses the terminal', shown)
        self.assertTrue(shown.endswith(b'ended 122'), shown)
        self.assertNotIn(b'may this run', shown)

    def test_the_rule_is_kept(self):
        s = self.screen('printf', 'ran')
        shown = s.wait_for(PROMPT)
        self.assertIn(b'command:     printf ran\r\n', shown)
        self.assertIn(b'rule:        the command above\r\n', shown)
        self.assertIn(b'if kept:     what begins with it runs unasked and WITHOUT A SANDBOX\r\n', shown)
        self.assertIn(b'\r\n  always and Enter   yes, and keep the rule\r\n', shown)
        s.type(b'always\r')
        self.assertIn(b'sallyport: the rule is kept in ~/rules/default.rules\r\n', s.wait_for(rb'\nran'))
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
        s.type(b'always\r')
        s.wait_for(PROMPT)
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

    def test_nothing_that_was_not_shown_is_allowed_for_longer(self):
        socket = os.path.join(self.home, 'mcp')
        s = Screen(self, [PROGRAM, 'mcp', '--listen', 'unix://' + socket, '--approve', 'untrusted', '--approver', 'terminal'])
        s.wait_for(rb'unix://\S+\r\n')
        host = mcp.connect_unix(socket)
        self.addCleanup(host.close)
        long = {'argv': ['env', 'true', 'A' * 9000 + '; rm -r x' + 'A' * 9000 + 'end']}
        call = host.call_later('exec_command', long)
        shown = s.wait_for(PROMPT)
        self.assertRegex(shown, rb'A{1000}\r\nNOT SHOWN: 139\d\d bytes\r\nA{1000}')
        self.assertIn(b'Aend', shown)
        self.assertLess(len(shown), 6000)
        self.assertNotIn(b'rule:', shown)
        self.assertNotIn(b'session', shown)
        s.type(b'a')
        s.wait_for(PROMPT)
        seen = b''
        while b'session' not in shown:
            self.press(s, b'm')
            shown = s.wait_for(PROMPT)
            seen += shown
        self.assertIn(b'; rm -r x', seen.replace(b'\r\n', b''))
        self.assertNotIn(b'for this session', s.seen)
        self.press(s, b'a')
        s.wait_for(rb'for this session')
        self.assertEqual(host.result(call)['exit_code'], 0)
        self.assertEqual(host.call('exec_command', long)['exit_code'], 0)
        self.assertEqual([e['decided_by'] for e in self.log()], ['user', 'cache'])
        s.p.send_signal(signal.SIGTERM)
        s.wait()

    def test_nothing_that_was_not_shown_runs_free(self):
        s = self.screen('env', 'true', 'A' * 8000)
        self.assertIn(b'yes can be said after that', s.wait_for(PROMPT))
        s.type(b'yes\r')
        self.assertNotIn(b'yes\r\nA', s.wait_for(PROMPT))
        self.assertIsNone(s.p.poll())
        for _ in range(2):
            self.press(s, b'm')
            shown = s.wait_for(PROMPT)
        self.assertIn(b'\r\n  yes and Enter      yes, this once, WITHOUT A SANDBOX\r\n', shown)
        s.type(b'yes\r')
        self.assertEqual(s.wait(), 0)

    # -- denials

    def test_once_more_without(self):
        s = self.screen('touch', 'made', policy='on-failure', flags=('--sandbox', ':read-only'))
        shown = s.wait_for(PROMPT)
        self.assertIn(b'Once more, without it?', shown)
        self.assertIn(b'reason:      command failed; retry without sandbox?', shown)
        s.type(b'y')
        time.sleep(0.3)
        self.assertIsNone(s.p.poll())
        s.type(b'es\r')
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
