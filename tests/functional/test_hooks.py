# SPDX-License-Identifier: Apache-2.0
"""Permission hooks and the automatic reviewer: real programs, real commands."""

import json
import os
import shutil
import tempfile
import time

import agent
import server
import wire
from agent import Case
from test_sandbox_verb import Verb

MISSING = 'exec_command failed: Failed to create unified exec process: '
LATE = ('The automatic permission approval review did not finish before its deadline. Do not assume the action is '
        'unsafe based on the timeout alone. You may retry once, or ask the user for guidance or explicit approval.')


def write_program(directory, name, body):
    return wire.write_program(os.path.join(directory, name), '#!/bin/sh\n' + body)


def say(decision):
    return "echo '%s'\n" % json.dumps({'decision': decision})


class Hooks(Case):
    """Through the engine."""
    backend = 'local'

    def setUp(self):
        super().setUp()
        self.dir = tempfile.mkdtemp(prefix='sallyport-hooks-')
        self.addCleanup(shutil.rmtree, self.dir, True)

    def begin(self, policy, *flags, hooks=(), reviewer=None):
        self.audit = os.path.join(self.dir, 'audit.jsonl')
        words = ['--sandbox', 'read-only', '--approval', policy, '--audit', self.audit]
        for n, body in enumerate(hooks):
            words += ['--hook', write_program(self.dir, 'hook%d' % n, body)]
        if reviewer is not None:
            words += ['--reviewer', 'program:' + write_program(self.dir, 'reviewer', reviewer)]
        return self.agent(*words, *flags)

    def last_logged(self):
        with open(self.audit) as f:
            line = json.loads(f.readlines()[-1])
        return line['requirement'], line['decision'], line['decided_by'], line['attempts']

    def lines(self, name):
        try:
            with open(os.path.join(self.dir, name)) as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    # -- hooks

    def test_a_hook_allows_and_nothing_is_remembered(self):
        a = self.begin('untrusted', hooks=['cat >> %s/told\n' % self.dir + say('approved')])
        for n in (1, 2):
            self.assertExited(a.ec('printf ran; true $(true)'))
            self.assertEqual(len(self.lines('told')), n)
        told = json.loads(self.lines('told')[0])
        self.assertEqual((told['version'], told['question']['type']), (1, 'exec_approval_request'))
        self.assertEqual(self.last_logged(), ('ask', 'approved', 'hook', ['confined']))
        self.assertEqual(a.questions, [])

    def test_a_hook_denies_with_its_text(self):
        a = self.begin('untrusted', hooks=[say({'denied': {'rejection': 'not on a Sunday'}})])
        self.assertFailed(a.ec('make'), MISSING + 'not on a Sunday')
        self.assertEqual(self.last_logged(), ('ask', 'denied', 'hook', []))

    def test_several_in_order_until_one_has_an_opinion(self):
        note = 'echo %d >> ' + self.dir + '/order\n'
        a = self.begin('untrusted', hooks=[note % 1 + 'echo {}\n', note % 2, note % 3 + say(None), note % 4])
        call = a.ec_later('make')
        a.decide(a.wait_question(), {'denied': {'rejection': 'by a person'}})
        self.assertFailed(call.wait(), MISSING + 'by a person')
        self.assertEqual(self.lines('order'), ['1', '2', '3', '4'])

    def test_a_failing_hook_is_a_denial_that_names_it(self):
        for body, why in (('exit 3', 'it ended with exit status 3'), ('echo yes', 'its answer is no decision'),
                          ('kill -9 $$', 'it was killed'), (say('approved') + 'exit 1', 'it ended with exit status 1'),
                          (say('perhaps'), 'its answer is no decision'),
                          ('head -c 70000 /dev/zero', 'its answer is longer than 65536 bytes')):
            a = self.begin('untrusted', hooks=[body])
            self.assertFailed(a.ec('make'), MISSING + 'permission hook 1 (%s/hook0) failed: %s; nothing is allowed until '
                              'it works or is not configured' % (self.dir, why))
            self.assertEqual(self.last_logged(), ('ask', 'denied', 'hook', []))

    def test_a_hook_that_hangs_is_killed(self):
        a = self.begin('untrusted', '--hook-timeout', '4000',
                       hooks=['echo $$ > %s/pid; sleep 1000 & sleep 1000' % self.dir])
        answer = a.ec('make')
        self.assertTrue(answer.failed)
        self.assertIn('failed: no answer before its deadline', answer.text)
        pid = int(self.lines('pid')[0])
        wire.wait_until(lambda: not os.path.exists('/proc/%d' % pid), 'its end')

    def test_a_hook_that_is_gone_is_a_denial(self):
        a = self.begin('untrusted', hooks=[say('approved')])
        a.stats()  # it has begun
        os.unlink(os.path.join(self.dir, 'hook0'))
        answer = a.ec('make')
        self.assertTrue(answer.failed)
        self.assertIn('No such file or directory', answer.text)

    def test_the_person_who_is_not_there_is_not_needed(self):
        a = self.begin('untrusted', '--nobody', hooks=[say('approved')])
        self.assertExited(a.ec('true $(true)'))

    def test_a_hook_may_answer_a_retry(self):
        a = self.begin('on-failure', hooks=[say('approved')])
        self.assertExited(a.ec('touch made'))
        self.assertTrue(os.path.exists(a.path('made')))
        self.assertEqual(self.last_logged(), ('ask', 'approved', 'hook', ['free']))

    # -- the reviewer

    def test_the_reviewer_in_the_person_s_place(self):
        a = self.begin('untrusted', reviewer=say('approved'))
        self.assertExited(a.ec('printf x; true $(true)'))
        self.assertEqual(self.last_logged(), ('ask', 'approved', 'reviewer', ['confined']))
        self.assertEqual(a.questions, [])

    def test_its_refusal(self):
        a = self.begin('untrusted', reviewer=say({'denied': {'rejection': 'it deletes things'}}))
        answer = a.ec('make')
        self.assertTrue(answer.failed)
        self.assertTrue(answer.text.startswith(
            MISSING + 'This action was rejected due to unacceptable risk.\nReason: it deletes things\n'), answer.text)

    def test_three_attempts(self):
        a = self.begin('untrusted', reviewer='echo x >> %s/tries\n'
                       '[ $(wc -l < %s/tries) -ge 3 ] || exit 1\n' % (self.dir, self.dir) + say('approved'))
        self.assertExited(a.ec('true $(true)'))
        self.assertEqual(len(self.lines('tries')), 3)

    def test_its_deadline(self):
        a = self.begin('untrusted', '--review-timeout', '300', reviewer='echo $$ >> %s/pids; sleep 1000' % self.dir)
        began = time.monotonic()
        self.assertFailed(a.ec('make'), MISSING + LATE)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)
        self.assertEqual(self.last_logged(), ('ask', 'timed_out', 'reviewer', []))
        pids = self.lines('pids')
        self.assertEqual(len(pids), 3)
        for pid in pids:
            wire.wait_until(lambda: not server.is_alive(int(pid)), 'its end')

    def test_three_refusals_interrupt_the_turn(self):
        a = self.begin('untrusted', reviewer=say('denied'))
        beside = a.ec_later('cat /dev/zero | head -c 1 > /dev/null', yield_time_ms=30000)
        beside.wait()
        beside = a.ec_later('tail -f /dev/null', yield_time_ms=30000, call_id='beside')
        a.wait_begin('beside')
        for n in (1, 2, 3):
            self.assertFailed(a.ec('make'), MISSING + 'automatic approval review denied the action')
        self.assertIn('aborted by user', beside.wait().text)

    def test_strict_review(self):
        a = self.begin('on-request', '--strict-review', reviewer='cat >> %s/told\n' % self.dir + say('approved'))
        self.assertExited(a.ec('ls'))
        self.assertEqual(self.last_logged(), ('skip', 'approved', 'reviewer', ['confined']))
        self.assertEqual(len(self.lines('told')), 1)
        self.assertFalse(json.loads(self.lines('told')[0])['question']['without_sandbox'])

    def test_strict_review_of_a_retry(self):
        a = self.begin('untrusted', '--strict-review', '--retry-reuses',
                       reviewer='grep -q "retry without sandbox" && printf %%s\\\\n \'%s\' || printf %%s\\\\n \'%s\''
                       % ('{"decision":"denied"}', '{"decision":"approved"}'))
        self.assertFailed(a.ec('touch made'), MISSING + 'automatic approval review denied the action')
        self.assertFalse(os.path.exists(a.path('made')))


class Exec(Verb):
    """Through `sallyport exec`, by the configuration."""

    def setUp(self):
        super().setUp()
        self.env['SALLYPORT_HOME'] = self.home
        os.chmod(self.home, 0o700)

    def args(self, *words):
        return [server.PROGRAM, 'exec', '--no-stdin', '--approve', 'untrusted', '--approver', 'deny', *words]

    def configure(self, text):
        with open(self.home + '/sallyport.conf', 'w') as f:
            f.write(text)

    def test_one_hook_or_several(self):
        yes = write_program(self.beside, 'yes', say('approved'))
        mute = write_program(self.beside, 'mute', '')
        no = write_program(self.beside, 'no', say({'denied': {'rejection': 'not here'}}))
        self.configure('permission_hook = "%s"\n' % yes)
        self.assertEqual(self.run_verb('--', 'printf', 'ran')[:2], (0, b'ran'))
        self.configure('permission_hook = ["%s", "%s"]\n' % (mute, no))
        self.assertEqual(self.run_verb('--', 'printf', 'ran'), (122, b'', b'sallyport: not here\n'))
        self.configure('permission_hook = ["%s"]\n' % mute)
        code, _, err = self.run_verb('--', 'printf', 'ran')
        self.assertEqual(code, 122)
        self.assertIn(b'the client cannot answer questions', err)
        self.configure('permission_hook = []\n')
        self.assertEqual(self.run_verb('--', 'printf', 'ran')[0], 122)

    def test_the_reviewer(self):
        yes = write_program(self.beside, 'yes', 'cat > %s/told\n' % self.beside + say('approved'))
        self.configure('reviewer = "program:%s"\nstrict_review = true\n' % yes)
        self.assertEqual(self.run_verb('--', 'echo', 'ran')[:2], (0, b'ran\n'))  # known to be safe, and still reviewed
        with open(self.beside + '/told') as f:
            self.assertEqual(json.load(f)['question']['command'], ['echo', 'ran'])

    def test_the_reviewer_says_no_on_lines_of_its_own(self):
        answer = json.dumps({'decision': {'denied': {'rejection': 'it is\nsallyport: \x1b[31mfine'}}})
        no = write_program(self.beside, 'no', "cat <<'E'\n%s\nE\n" % answer)
        self.configure('reviewer = "program:%s"\nstrict_review = true\n' % no)
        code, out, err = self.run_verb('--', 'echo', 'ran')
        self.assertEqual((code, out), (122, b''))
        lines = err.decode().splitlines()
        self.assertEqual(lines[0], 'sallyport: This action was rejected due to unacceptable risk.')
        self.assertEqual(lines[1:3], ['    Reason: it is', '    sallyport: \\x1b[31mfine'])  # no message of its own
        self.assertTrue(lines[3].startswith('    Do not try'), err)

    def test_what_cannot_be_configured(self):
        for text, words in (('permission_hook = "hook"\n', b'expected an absolute path'),
                            ('permission_hook = 7\n', b'a string or an array of strings'),
                            ('permission_hook = "/no/such/hook"\n', b'No such file'),
                            ('reviewer = "somebody"\n', b'`reviewer`: expected `program:/PATH`'),
                            ('reviewer = "program:/no/such/reviewer"\n', b'No such file'),
                            ('strict_review = true\n', b'there is no `reviewer`')):
            self.configure(text)
            code, out, err = self.run_verb('--', 'echo', 'ran')
            self.assertEqual((code, out), (125, b''), text)
            self.assertIn(words, err, text)


if __name__ == '__main__':
    agent.main()
