# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases of approvals about answers, what is remembered, and second attempts: real commands in real
sandboxes, with an agent that answers. What test_approvals.py does not say already."""

import json
import os
import shutil
import tempfile
import time

import agent
from agent import Case

FAILED = 'exec_command failed: Failed to create unified exec process: '
BY_USER = FAILED + 'exec command rejected by user'
RETRY = 'command failed; retry without sandbox?'
SANDBOXLESS = json.dumps({'granular': {'sandbox_approval': False, 'rules': True, 'mcp_elicitations': False}})
SILENT_RULES = json.dumps({'granular': {'sandbox_approval': True, 'rules': False, 'mcp_elicitations': False}})
# Denied, and then some: what only the second attempt says is not mixed with what the first one did.
TWICE = 'echo tried; touch made && echo done'


class Cases(Case):
    backend = 'local'

    def begin(self, policy, *flags, sandbox='read-only'):
        # the program that applies a patch in a sandbox cannot look for leaks there
        env = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', 'abort_on_error=1') + ':detect_leaks=0'}
        return self.agent('--sandbox', sandbox, '--approval', policy, *flags, env=env)

    def scratch(self):
        path = tempfile.mkdtemp(prefix='sallyport-case-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def asked(self, a, decision, cmd, kind='run', **how):
        """The answer to a command that is asked about once, and answered so."""
        call = a.ec_later(cmd, **how)
        q = a.wait_question()
        self.assertEqual(q['kind'], kind, q)
        a.decide(q, decision)
        return call.wait()

    def unasked(self, a, cmd, **how):
        call = a.ec_later(cmd, **how)
        a.wait_for(lambda: call.is_answered() or a.questions, 'an answer')
        self.assertEqual(a.questions, [])
        return call.wait()

    def attempts(self, path):
        with open(path) as f:
            return [(e['decision'], e['decided_by'], e['attempts']) for e in map(json.loads, f)]

    def patch(self, *lines, cd=''):
        return '\n'.join((cd + "apply_patch <<'EOF'", '*** Begin Patch', *lines, '*** End Patch', 'EOF'))


class Remembered(Cases):
    """102 to 110"""

    def test_another_shell_is_asked_about(self):  # 102, 103
        a = self.begin('untrusted')
        self.assertExited(self.asked(a, 'approved_for_session', 'printf  x', shell='/bin/bash'))
        self.assertExited(self.unasked(a, 'printf x', shell='/bin/bash'))
        self.assertFailed(self.asked(a, 'denied', 'printf x', shell='/bin/sh'), BY_USER)

    def test_another_directory_terminal_or_wish_is_asked_about(self):  # 104
        a = self.begin('untrusted')
        os.mkdir(a.path('sub'))
        self.assertExited(self.asked(a, 'approved_for_session', 'printf x'))
        self.assertFailed(self.asked(a, 'denied', 'printf x', workdir=a.path('sub')), BY_USER)
        self.assertFailed(self.asked(a, 'denied', 'printf x', tty=True), BY_USER)
        self.assertFailed(self.asked(a, 'denied', 'printf x', kind='escalate', sandbox_permissions='require_escalated',
                                     justification='May I?'), BY_USER)
        self.assertExited(self.unasked(a, 'printf x'))  # none of that took it back

    def test_a_terminal_is_remembered_as_one(self):  # 104
        a = self.begin('untrusted')
        self.assertExited(self.asked(a, 'approved_for_session', 'printf x', tty=True))
        self.assertExited(self.unasked(a, 'printf x', tty=True))
        self.assertFailed(self.asked(a, 'denied', 'printf x'), BY_USER)

    def test_once_is_once_and_no_is_no(self):  # 105, 106
        a = self.begin('untrusted')
        self.assertExited(self.asked(a, 'approved', 'printf x'))
        self.assertFailed(self.asked(a, 'denied', 'printf x'), BY_USER)
        self.assertExited(self.asked(a, 'approved', 'printf x'))

    def test_an_opaque_script_is_every_blank_of_it(self):  # 107
        a = self.begin('untrusted')
        self.assertExited(self.asked(a, 'approved_for_session', 'printf x > /dev/null'))
        self.assertExited(self.unasked(a, 'printf x > /dev/null'))
        self.assertFailed(self.asked(a, 'denied', 'printf x  > /dev/null'), BY_USER)

    def test_patches_are_remembered_by_their_files(self):  # 109
        there = self.scratch()
        a = self.begin('on-request', sandbox='workspace-write')

        def words(*names):
            return self.patch(*(line for n in names for line in ('*** Add File: %s/%s' % (there, n), '+text')))
        self.assertIn('Success.', self.asked(a, 'approved_for_session', words('a', 'b'), kind='patch').text)
        self.assertIn('Success.', self.unasked(a, words('a')).text)
        self.assertIn('Success.', self.unasked(a, words('b', 'a')).text)
        self.assertFailed(self.asked(a, 'denied', words('a', 'c'), kind='patch'), FAILED + 'patch rejected by user')
        a.quit()
        self.assertEqual(sorted(os.listdir(there)), ['a', 'b'])

    def test_another_session_is_asked(self):  # 110
        for _ in range(2):
            self.assertExited(self.asked(self.begin('untrusted'), 'approved_for_session', 'printf x'))


class Answered(Cases):
    """111, 112, 115 and 116"""

    def test_an_abort_ends_the_turn(self):  # 111
        a = self.begin('untrusted')
        first = a.ec_later('printf begun; sleep 60', yield_time_ms=30000, call_id='first')
        a.decide(a.wait_question(), 'approved')
        a.wait_frames('first', b'begun')
        began = time.monotonic()
        self.assertFailed(self.asked(a, 'abort', 'make'), BY_USER)
        first.wait()  # as soon as that: nothing of the turn goes on
        self.assertLess(time.monotonic() - began, 25)

    def test_a_refusal_does_not_end_the_turn(self):  # 112
        a = self.begin('untrusted')
        first = a.ec_later('printf begun; read x', yield_time_ms=30000, call_id='first', tty=True)
        a.decide(a.wait_question(), 'approved')
        a.wait_frames('first', b'begun')
        self.assertFailed(self.asked(a, {'denied': {'rejection': 'no'}}, 'make'), FAILED + 'no')
        self.assertFailed(self.asked(a, 'denied', 'make'), BY_USER)
        self.assertFailed(self.asked(a, {'denied': {'rejection': 'rejected by user'}}, 'make'), BY_USER)
        self.assertFalse(first.is_answered())
        a.ws(1000, 'x\n')  # the first process has the first number
        self.assertFalse(first.wait().failed)

    def test_an_answer_that_nobody_knows_is_no(self):  # 115
        a = self.begin('untrusted')
        for answer in ('no-such-decision', 'APPROVED', 'approved ', '', None, 1, True, [], {}, {'approved': {}}, ['approved'],
                       {'denied': 1}, {'approved_execpolicy_amendment': {}}, {'network_policy_amendment': {}}):
            self.assertFailed(self.asked(a, answer, 'make'), BY_USER)
        self.assertEqual(a.reserved(), 0)

    def test_an_amendment_that_cannot_be_written(self):  # 116
        a = self.begin('untrusted', '--user-dir', '/dev/null/nowhere')
        amendment = {'approved_execpolicy_amendment': {'proposed_execpolicy_amendment': ['printf', 'x']}}
        self.assertEqual(self.asked(a, amendment, 'printf x').body, 'x')
        warnings = [e['message'] for _t, e in a.events if e['type'] == 'warning']
        self.assertEqual(len(warnings), 1, a.events)
        self.assertRegex(warnings[0], '^Failed to apply execpolicy amendment: ')
        self.assertFailed(self.asked(a, 'denied', 'printf x'), BY_USER)  # it was for once

    def test_an_amendment_that_was_not_offered(self):  # 101
        home = self.scratch()
        a = self.begin('untrusted', '--user-dir', home)
        for words in (['printf'], ['printf', 'y'], [], ['printf', 'x', 'y']):
            amendment = {'approved_execpolicy_amendment': {'proposed_execpolicy_amendment': words}}
            self.assertFailed(self.asked(a, amendment, 'printf x'), BY_USER)
        self.assertEqual(os.listdir(home), [])


class Again(Cases):
    """118 to 126 and 129"""

    def test_untrusted_yes_and_yes(self):  # 118
        a = self.begin('untrusted')
        call = a.ec_later(TWICE)
        a.decide(a.wait_question(), 'approved')
        q = a.wait_question()
        self.assertEqual((q['kind'], q['reason'], q['free']), ('retry', RETRY, True))
        self.assertFalse(os.path.exists(a.path('made')))
        a.decide(q, 'approved')
        answer = call.wait()
        self.assertExited(answer)
        self.assertEqual(answer.body, 'tried\ndone\n')  # of the second attempt alone

    def test_untrusted_yes_and_no(self):  # 118
        a = self.begin('untrusted')
        call = a.ec_later(TWICE)
        a.decide(a.wait_question(), 'approved')
        a.decide(a.wait_question(), 'denied')
        self.assertFailed(call.wait(), BY_USER)
        self.assertFalse(os.path.exists(a.path('made')))
        self.assertEqual(a.reserved(), 0)

    def test_reused_consent(self):  # 118
        log = os.path.join(self.scratch(), 'log')
        a = self.begin('untrusted', '--retry-reuses', '--audit', log)
        answer = self.asked(a, 'approved', TWICE)
        self.assertExited(answer)
        self.assertEqual((answer.body, a.questions), ('tried\ndone\n', []))
        self.assertEqual([n for _d, _b, n in self.attempts(log)], [['confined'], ['free']])

    def test_granular(self):  # 122
        a = self.begin('granular')
        answer = self.asked(a, 'approved', TWICE, kind='retry')
        self.assertExited(answer)
        a = self.begin(SILENT_RULES)
        self.assertExited(self.asked(a, 'approved', TWICE, kind='retry'))
        a = self.begin(SANDBOXLESS)
        answer = self.unasked(a, 'touch made')
        self.assertExited(answer, 1)
        self.assertTrue(answer.line['denied'])
        self.assertFalse(os.path.exists(a.path('made')))

    def test_the_denial_is_the_result(self):  # 120, 121
        for policy in ('on-request', 'never'):
            log = os.path.join(self.scratch(), 'log')
            a = self.begin(policy, '--audit', log)
            answer = self.unasked(a, 'echo tried; touch made')
            self.assertExited(answer, 1)
            self.assertTrue(answer.line['denied'])
            self.assertRegex(answer.body, '^tried\n')
            self.assertFalse(os.path.exists(a.path('made')))
            self.assertEqual(self.attempts(log), [('approved', 'config', ['confined'])])

    def test_what_is_no_denial(self):  # 124
        log = os.path.join(self.scratch(), 'log')
        a = self.begin('on-failure', '--audit', log)
        commands = (('exit 1', 1), ('false', 1), ('no-such-command-at-all', 127), ('./no-such-file', 127), ('exit 126', 126),
                    ('kill -9 $$', 137), ('kill -15 $$', 143), ('kill -11 $$', 139), ('kill -6 $$', 134),
                    ('touch made; kill -9 $$', 137))
        for cmd, code in commands:
            with self.subTest(cmd):
                self.assertExited(self.unasked(a, cmd), code)
        self.assertFalse(os.path.exists(a.path('made')))
        self.assertEqual(self.attempts(log), [('approved', 'config', ['confined'])] * len(commands))

    def test_there_is_no_third(self):  # 125
        log = os.path.join(self.scratch(), 'log')
        a = self.begin('on-failure', '--audit', log)
        answer = self.asked(a, 'approved', 'touch made; echo again: Permission denied; exit 1', kind='retry')
        self.assertExited(answer, 1)
        self.assertEqual(answer.body, 'again: Permission denied\n')
        self.assertTrue(os.path.exists(a.path('made')))  # the second was free
        self.assertExited(self.asked(a, 'approved', 'touch other || exit 1; exit 7', kind='retry'), 7)
        self.assertEqual(a.questions, [])
        self.assertEqual([n for _d, _b, n in self.attempts(log)], [['confined'], ['free']] * 2)

    def test_an_escalated_command_is_not_tried_again(self):  # 126
        log = os.path.join(self.scratch(), 'log')
        a = self.begin('on-failure', '--audit', log)
        call = a.ec_later('touch made; echo Permission denied; exit 1', sandbox_permissions='require_escalated',
                          justification='May I?')
        q = a.wait_question()
        self.assertEqual((q['free'], q['reason']), (True, 'May I?'))
        self.assertFalse(os.path.exists(a.path('made')))
        a.decide(q, 'approved')
        answer = call.wait()
        self.assertExited(answer, 1)
        self.assertEqual((answer.body, a.questions), ('Permission denied\n', []))
        self.assertTrue(os.path.exists(a.path('made')))
        self.assertEqual(self.attempts(log), [('approved', 'user', ['free'])])

    def test_an_escalated_command_that_is_refused(self):  # 126
        a = self.begin('on-request')
        self.assertFailed(self.asked(a, 'denied', 'touch made', kind='escalate', sandbox_permissions='require_escalated',
                                     justification='May I?'), BY_USER)
        self.assertFalse(os.path.exists(a.path('made')))

    def test_a_second_attempt_for_the_session(self):  # 129
        log = os.path.join(self.scratch(), 'log')
        a = self.begin('on-failure', '--audit', log)
        self.assertExited(self.asked(a, 'approved_for_session', 'touch made', kind='retry'))
        os.unlink(a.path('made'))
        self.assertExited(self.unasked(a, 'touch  made'))
        self.assertTrue(os.path.exists(a.path('made')))
        self.assertEqual(self.attempts(log), [('approved', 'config', ['confined']), ('approved_for_session', 'user', ['free']),
                                              ('approved', 'config', ['confined']), ('approved', 'cache', ['free'])])
        os.mkdir(a.path('sub'))
        for how in ({'workdir': a.path('sub')}, {'tty': True}):  # exactly what was shown, and nothing else
            with self.subTest(how):
                self.assertFailed(self.asked(a, 'denied', 'touch made', kind='retry', **how), BY_USER)

    def test_consent_to_the_first_for_the_session_is_none_to_the_second(self):  # 129
        a = self.begin('untrusted')
        call = a.ec_later('touch made')
        a.decide(a.wait_question(), 'approved_for_session')
        a.decide(a.wait_question(), 'denied')
        self.assertFailed(call.wait(), BY_USER)
        self.assertFailed(self.asked(a, 'denied', 'touch made', kind='retry'), BY_USER)
        self.assertFalse(os.path.exists(a.path('made')))


class Large(Cases):
    """Scripts that are larger than any that can be run"""

    SCRIPT = 'true; ' * 350000 + 'touch made'

    def test_nobody_to_ask(self):
        a = self.begin('never', sandbox='danger-full-access')
        answer = self.unasked(a, self.SCRIPT)
        self.assertTrue(answer.failed)
        self.assertRegex(answer.text, 'rejected: blocked by policy$')
        self.assertLess(len(answer.text), 8192)
        self.assertEqual(self.unasked(a, 'printf x').body, 'x')
        self.assertFalse(os.path.exists(a.path('made')))

    def test_somebody_to_ask(self):
        a = self.begin('on-request', sandbox='danger-full-access')
        for decision in ('denied', 'approved'):
            answer = self.asked(a, decision, self.SCRIPT)
            self.assertTrue(answer.failed)  # refused, or more than the system takes
            self.assertLess(len(answer.text), 8192)
        self.assertEqual(self.unasked(a, 'printf x').body, 'x')
        self.assertFalse(os.path.exists(a.path('made')))
        self.assertEqual(a.reserved(), 0)


class Validation(Cases):
    """130 and 131"""

    def refused(self, a, text, **how):
        self.assertFailed(self.unasked(a, 'echo x', **how), text)
        self.assertNothingLeft(a)

    def test_texts(self):
        more = {'sandbox_permissions': 'with_additional_permissions'}
        path = {'file_system': {'write': ['/site/x']}}
        a = self.begin('on-request')
        self.refused(a, '`justification` requires an explicit `sandbox_permissions`; use `sandbox_permissions: '
                     '"require_escalated"` for unsandboxed execution, or omit `justification`.', justification='why')
        self.refused(a, 'additional permissions are disabled; enable `features.exec_permission_approvals` before using '
                     '`with_additional_permissions`', additional_permissions=path, **more)
        self.refused(self.begin('untrusted', '--additional'),
                     'approval policy is UnlessTrusted; reject command — you cannot request additional permissions unless '
                     'the approval policy is OnRequest', additional_permissions=path, **more)
        a = self.begin('on-request', '--additional')
        self.refused(a, 'missing `additional_permissions`; provide at least one of `network` or `file_system` when using '
                     '`with_additional_permissions`', **more)
        self.refused(a, '`additional_permissions` must include at least one requested permission in `network` or '
                     '`file_system`', additional_permissions={}, **more)
        for how in ({}, {'sandbox_permissions': 'use_default'}):
            self.refused(a, '`additional_permissions` requires `sandbox_permissions` set to `with_additional_permissions`',
                         additional_permissions=path, **how)
        for access in ('read', 'write'):
            entry = {'path': {'type': 'glob_pattern', 'pattern': '/site/*.txt'}, 'access': access}
            answer = self.unasked(a, 'echo x', additional_permissions={'file_system': {'entries': [entry]}}, **more)
            self.assertTrue(answer.failed)
            self.assertIn('glob file system permissions only support deny-read entries', answer.text)
        self.assertNothingLeft(a)


class Patches(Cases):
    """144 and 153 to 157, as a caller sees them"""

    def test_what_is_no_patch_is_said(self):
        a = self.begin('on-request', sandbox='workspace-write')
        os.mkdir(a.path('d'))
        with open(a.path('x'), 'w') as f:
            f.write('a\n')
        verification = 'apply_patch verification failed: '
        bare = '*** Begin Patch\n*** Add File: y\n+y\n*** End Patch'
        for words, text in (
                (self.patch(), FAILED + 'patch rejected: empty patch'),
                (bare, verification + 'patch detected without explicit call to apply_patch. Rerun as '
                 '["apply_patch", "<patch>"]'),
                (self.patch('*** Add File: n', '+n', '*** Delete File: ./n'),
                 verification + 'invalid patch: multiple operations target %s' % a.path('n')),
                (self.patch('*** Update File: missing', '@@', '-a', '+b'),
                 verification + 'Failed to read file to update %s: No such file or directory' % a.path('missing')),
                (self.patch('*** Update File: x', '@@', '-q', '+b'),
                 verification + 'Failed to find expected lines in %s:\nq' % a.path('x')),
                (self.patch('*** Update File: x'),
                 verification + "invalid hunk at line 2, Update file hunk for path 'x' is empty"),
                (self.patch('*** Add File: one', '+1', '*** Add File: two', '+2', '*** Update File: x', '@@', '-q',
                            '*** Add File: four', '+4'),
                 verification + 'Failed to find expected lines in %s:\nq' % a.path('x')),
                (self.patch('*** Add File: one', '+1', '*** Delete File: d'),
                 verification + 'Failed to delete file %s: path is a directory' % a.path('d'))):
            with self.subTest(text):
                self.assertFailed(self.unasked(a, words), text)
        self.assertEqual(sorted(os.listdir(a.work)), ['d', 'x'])
        self.assertEqual(a.reserved(), 0)

    def test_what_fits_nearly(self):  # 158, 159, 160, 162, 164, 166
        a = self.begin('on-request', sandbox='workspace-write')
        for name, text in (('blanks', 'a  \nb\n'), ('indented', '    a\nb\n'), ('quotes', 'say \u201chi\u201d\n'),
                           ('end', 'a\nb\na\nb\n'), ('there', 'old\n'), ('unended', 'a\nb'), ('gone', '')):
            with open(a.path(name), 'w') as f:
                f.write(text)
        answer = self.unasked(a, self.patch(
            '*** Delete File: gone', '*** Update File: blanks', '@@', '-a', '+A', '*** Update File: indented', '@@', '-a', '+A',
            '*** Update File: quotes', '@@', '-say "hi"', '+said', '*** Add File: there', '+new',
            '*** Update File: end', '@@', ' a', '-b', '+c', '*** End of File', '*** Update File: unended', '@@', '-a', '+A'))
        self.assertEqual((answer.failed, answer.body), (
            False, 'Success. Updated the following files:\nA there\nM blanks\nM indented\nM quotes\nM end\nM unended\nD gone\n'))
        for name, text in (('blanks', 'A\nb\n'), ('indented', 'A\nb\n'), ('quotes', 'said\n'), ('end', 'a\nb\na\nc\n'),
                           ('there', 'new\n'), ('unended', 'A\nb\n')):
            with open(a.path(name)) as f:
                self.assertEqual(f.read(), text, name)
        self.assertFalse(os.path.exists(a.path('gone')))
        wrapped = "apply_patch <<'OUTER'\n<<'EOF'\n*** Begin Patch\n*** Add File: w\n+w\n*** End Patch\nEOF\nOUTER"
        self.assertIn('\nA w\n', self.unasked(a, wrapped).text)

    def test_what_is_an_ordinary_command(self):  # 153
        a = self.begin('on-request', sandbox='workspace-write')
        os.mkdir(a.path('sub'))
        add = self.patch('*** Add File: x', '+y')
        self.assertIn('Success.', self.unasked(a, self.patch('*** Add File: x', '+y', cd='cd sub && ')).text)
        self.assertTrue(os.path.exists(a.path('sub/x')))
        for words in ('echo x; ' + add, 'cd sub; ' + add, 'cd sub b && ' + add, add.replace("<<'EOF'", "<<'EOF' && echo done")):
            with self.subTest(words):
                answer = self.unasked(a, words)
                self.assertFalse(answer.failed, answer)
                self.assertNotIn('Success.', answer.text)
        self.assertFalse(os.path.exists(a.path('x')))


if __name__ == '__main__':
    agent.main()
