# SPDX-License-Identifier: Apache-2.0
"""Permission to run commands: real commands in real sandboxes, with rules, questions and a log."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile

import agent
from agent import Case
from server import PROGRAM

RETRY = 'command failed; retry without sandbox?'


class Approvals(Case):
    backend = 'local'

    def begin(self, policy, *flags, sandbox='read-only'):
        # the program that applies a patch in a sandbox cannot look for leaks there
        env = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', 'abort_on_error=1') + ':detect_leaks=0'}
        return self.agent('--sandbox', sandbox, '--approval', policy, *flags, env=env)

    def rules(self, text):
        path = os.path.join(self.scratch(), 'test.rules')
        with open(path, 'w') as f:
            f.write(text)
        return path

    def scratch(self):
        path = tempfile.mkdtemp(prefix='sallyport-rules-')
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def log(self, path):
        """The lines, each chained to the one before."""
        before, lines = '0' * 64, []
        with open(path, 'rb') as f:
            for number, raw in enumerate(f, 1):
                line = json.loads(raw)
                self.assertEqual((line['seq'], line['prev']), (number, before))
                before = hashlib.sha256(raw.rstrip(b'\n')).hexdigest()
                lines.append(line)
        shown = subprocess.run([PROGRAM, 'audit', 'verify', path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((shown.returncode, shown.stdout.decode().strip()),
                         (0, '%d entries, last %s' % (len(lines), before)))
        return lines

    # -- denied, then asked

    def test_denied_then_approved(self):
        a = self.begin('on-failure')
        call = a.ec_later('touch made && echo done')
        q = a.wait_question()
        self.assertEqual((q['kind'], q['reason'], q['free'], q['cwd']), ('retry', RETRY, True, a.work))
        self.assertFalse(os.path.exists(a.path('made')))
        a.decide(q, 'approved')
        answer = call.wait()
        self.assertExited(answer)
        self.assertEqual(answer.body, 'done\n')
        self.assertTrue(os.path.exists(a.path('made')))

    def test_denied_then_refused(self):
        a = self.begin('on-failure')
        call = a.ec_later('touch made')
        a.decide(a.wait_question(), {'denied': {'rejection': 'not here'}})
        self.assertFailed(call.wait(), 'exec_command failed: Failed to create unified exec process: not here')
        self.assertFalse(os.path.exists(a.path('made')))
        self.assertEqual(a.reserved(), 0)

    def test_untrusted_is_asked_twice(self):
        a = self.begin('untrusted')
        call = a.ec_later('touch made')
        q = a.wait_question()
        self.assertEqual((q['kind'], q['free'], q['amendment']), ('run', False, ['touch', 'made']))
        a.decide(q, 'approved')
        q = a.wait_question()
        self.assertEqual(q['kind'], 'retry')
        a.decide(q, 'approved')
        self.assertExited(call.wait())
        self.assertTrue(os.path.exists(a.path('made')))

    def test_retry_reuses(self):
        a = self.begin('untrusted', '--retry-reuses')
        call = a.ec_later('touch made')
        a.decide(a.wait_question(), 'approved')
        self.assertExited(call.wait())
        self.assertEqual(a.questions, [])

    def test_what_is_no_denial_is_not_tried_again(self):
        a = self.begin('on-failure')
        self.assertExited(a.ec('no-such-command-at-all'), 127)
        self.assertExited(a.ec('exit 3'), 3)
        self.assertExited(a.ec('kill -9 $$'), 137)
        self.assertEqual(a.questions, [])

    def test_on_request_and_never_get_the_denial(self):
        for policy in ('on-request', 'never'):
            a = self.begin(policy)
            answer = a.ec('touch made')
            self.assertExited(answer, 1)
            self.assertTrue(answer.line['denied'])
            self.assertEqual(a.questions, [])

    def test_no_answer_in_time(self):
        a = self.begin('untrusted', '--approval-timeout', '300')
        self.assertFailed(a.ec('make all'),
                          'exec_command failed: Failed to create unified exec process: approval request timed out')
        self.assertEqual(a.reserved(), 0)

    def test_nobody_answers(self):
        a = self.begin('untrusted', '--nobody')
        answer = a.ec('make all')
        self.assertTrue(answer.failed)
        self.assertIn('the client cannot answer questions', answer.text)
        self.assertExited(a.ec('ls'))

    # -- what is remembered

    def test_approved_for_the_session(self):
        a = self.begin('untrusted')
        call = a.ec_later('printf  x')
        a.decide(a.wait_question(), 'approved_for_session')
        self.assertEqual(call.wait().body, 'x')
        self.assertEqual(a.ec('printf x').body, 'x')
        self.assertEqual(a.questions, [])
        os.mkdir(a.path('sub'))
        call = a.ec_later('printf x', workdir=a.path('sub'))
        a.decide(a.wait_question(), 'abort')
        self.assertFailed(call.wait(), 'exec_command failed: Failed to create unified exec process: '
                                       'exec command rejected by user')

    def test_a_retry_for_the_session(self):
        a = self.begin('on-failure')
        call = a.ec_later('touch made')
        a.decide(a.wait_question(), 'acceptForSession')
        self.assertExited(call.wait())
        os.unlink(a.path('made'))
        self.assertExited(a.ec('touch made'))
        self.assertTrue(os.path.exists(a.path('made')))
        self.assertEqual(a.questions, [])

    def test_an_amendment_is_kept(self):
        home = self.scratch()
        a = self.begin('untrusted', '--user-dir', home)
        call = a.ec_later('touch made')
        q = a.wait_question()
        a.decide(q, {'approved_execpolicy_amendment': {'proposed_execpolicy_amendment': ['touch', 'made']}})
        a.decide(a.wait_question(), 'denied')  # after the denial
        self.assertTrue(call.wait().failed)
        with open(os.path.join(home, 'rules', 'default.rules')) as f:
            self.assertEqual(f.read(), 'prefix_rule(pattern=["touch", "made"], decision="allow")\n')
        self.assertExited(a.ec('touch made'))  # free now
        self.assertTrue(os.path.exists(a.path('made')))
        self.assertEqual(a.questions, [])

    # -- rules

    def test_rules(self):
        path = self.rules('prefix_rule(pattern=["touch"], decision="allow")\n'
                          'prefix_rule(pattern=["chmod"], decision="forbidden", justification="leave it")\n'
                          'prefix_rule(pattern=["echo", "ask"], decision="prompt", justification="who knows")\n')
        a = self.begin('on-request', '--rules', path)
        self.assertExited(a.ec('touch made'))
        self.assertTrue(os.path.exists(a.path('made')))
        answer = a.ec('chmod 0 made')
        self.assertTrue(answer.failed)
        self.assertRegex(answer.text, "rejected: leave it$")
        call = a.ec_later('echo ask')
        q = a.wait_question()
        self.assertRegex(q['reason'], 'requires approval: who knows$')
        self.assertEqual(q['amendment'], [])
        a.decide(q, 'approved')
        self.assertEqual(call.wait().body, 'ask\n')
        self.assertExited(a.ec('touch other && mkdir dir'), 1)  # not every part is allowed

    def test_dangerous(self):
        a = self.begin('never', sandbox='danger-full-access')
        answer = a.ec('rm -rf made')
        self.assertTrue(answer.failed)
        self.assertIn('rm -f style commands are not permitted. Use a safer approach', answer.text)

    # -- patches

    def patch(self, *lines, cd=''):
        return '\n'.join((cd + "apply_patch <<'EOF'", '*** Begin Patch', *lines, '*** End Patch', 'EOF'))

    def test_a_patch_inside(self):
        a = self.begin('on-request', sandbox='workspace-write')
        os.mkdir(a.path('sub'))
        with open(a.path('sub/old'), 'w') as f:
            f.write('one\ntwo\n')
        answer = a.ec(self.patch('*** Add File: new', '+text', '*** Update File: old', '@@', ' one', '-two', '+three',
                                 cd='cd sub && '))
        self.assertEqual((answer.failed, answer.text),
                         (False, 'Wall time: 0.0000 seconds\nOutput:\n'
                                 'Success. Updated the following files:\nA new\nM old\n'))
        with open(a.path('sub/new')) as new, open(a.path('sub/old')) as old:
            self.assertEqual((new.read(), old.read()), ('text\n', 'one\nthree\n'))
        self.assertEqual((a.questions, a.reserved(), a.events_of()), ([], 0, []))

    def test_a_patch_outside(self):
        outside = tempfile.mkdtemp(prefix='sallyport-outside-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, outside, True)
        words = self.patch('*** Add File: %s/new' % outside, '+text')
        a = self.begin('never', sandbox='workspace-write')
        self.assertIn('patch rejected: writing outside of the project; rejected by user approval settings',
                      a.ec(words).text)
        a = self.begin('on-request', sandbox='workspace-write')
        call = a.ec_later(words)
        q = a.wait_question()
        self.assertEqual((q['kind'], q['json']['type'], q['json']['changes']),
                         ('patch', 'apply_patch_approval_request',
                          {outside + '/new': {'type': 'add', 'content': 'text\n'}}))
        a.decide(q, 'denied')
        self.assertFailed(call.wait(), 'exec_command failed: Failed to create unified exec process: patch rejected by user')
        call = a.ec_later(words)
        a.decide(a.wait_question(), 'approved_for_session')
        self.assertIn('Success.', call.wait().text)
        with open(outside + '/new') as f:
            self.assertEqual(f.read(), 'text\n')
        self.assertIn('Success.', a.ec(self.patch('*** Delete File: %s/new' % outside)).text)  # the same file: not asked
        self.assertFalse(os.path.exists(outside + '/new'))
        call = a.ec_later(self.patch('*** Add File: %s/other' % outside, '+text'))
        a.decide(a.wait_question(), 'abort')
        self.assertTrue(call.wait().failed)

    def test_a_patch_in_a_read_only_sandbox(self):
        words = self.patch('*** Add File: new', '+text')
        a = self.begin('never')
        self.assertIn('patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings',
                      a.ec(words).text)
        a = self.begin('on-failure')  # applied, denied, asked
        call = a.ec_later(words)
        q = a.wait_question()
        self.assertEqual((q['kind'], q['reason'], q['free']), ('patch', RETRY, True))
        a.decide(q, 'approved')
        self.assertIn('A new', call.wait().text)
        self.assertTrue(os.path.exists(a.path('new')))

    def test_patches_that_are_none(self):
        a = self.begin('on-request', sandbox='workspace-write')
        for words, text in ((self.patch(), 'patch rejected: empty patch'),
                            (self.patch('*** Update File: missing', '@@', '-a', '+b'),
                             'apply_patch verification failed: Failed to read file to update '),
                            ('*** Begin Patch\n*** Add File: x\n+y\n*** End Patch',
                             'apply_patch verification failed: patch detected without explicit call to apply_patch')):
            answer = a.ec(words)
            self.assertTrue(answer.failed)
            self.assertRegex(answer.text, text)
        self.assertEqual(a.reserved(), 0)
        self.assertExited(a.ec(self.patch('*** Add File: x', '+y') + '\necho done'))  # an ordinary command
        self.assertFalse(os.path.exists(a.path('x')))

    # -- the question and the log

    def test_the_question_has_all_there_is(self):
        a = self.begin('on-request')
        call = a.ec_later('cargo install x', sandbox_permissions='require_escalated', justification='May I?',
                          prefix_rule=['cargo', 'install'])
        question = a.wait_question()
        q = question['json']
        self.assertEqual((q['type'], q['reason'], q['cwd'], q['command'][-1], q['proposed_execpolicy_amendment']),
                         ('exec_approval_request', 'May I?', a.work, 'cargo install x', ['cargo', 'install']))
        self.assertEqual(q['available_decisions'],
                         ['approved', {'approved_execpolicy_amendment': {'proposed_execpolicy_amendment': ['cargo', 'install']}},
                          'abort'])
        self.assertEqual(q['parsed_cmd'], [{'type': 'unknown', 'cmd': 'cargo install x'}])
        a.decide(question, 'no-such-decision')
        self.assertTrue(call.wait().failed)

    def test_the_log(self):
        path = os.path.join(self.scratch(), 'audit.jsonl')
        a = self.begin('on-failure', '--audit', path)
        call = a.ec_later('touch made', call_id='c1')
        q = a.wait_question()
        self.assertEqual([(e['decision'], e['attempts']) for e in self.log(path)], [('approved', ['confined'])])
        a.decide(q, 'approved')
        self.assertExited(call.wait())
        lines = self.log(path)
        self.assertEqual([(e['call_id'], e['requirement'], e['decision'], e['decided_by'], e['attempts']) for e in lines],
                         [('c1', 'skip', 'approved', 'config', ['confined']), ('c1', 'ask', 'approved', 'user', ['free'])])
        self.assertEqual(lines[0]['segments'], [['touch', 'made']])
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_no_log_no_command(self):
        a = self.begin('never', '--audit', '/proc/no/such/place')
        answer = a.ec('echo x')
        self.assertTrue(answer.failed)
        self.assertIn('Failed to create unified exec process: audit log: ', answer.text)


if __name__ == '__main__':
    agent.main()
