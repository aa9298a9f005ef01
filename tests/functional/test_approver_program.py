# SPDX-License-Identifier: Apache-2.0
"""A program as approver: what it is told, what it may say, and what becomes of it."""

import json
import os
import signal
import subprocess
import time

import tap
import wire
from server import PROGRAM
from test_sandbox_verb import Verb
from wire import wait_until, write_program


class Program(Verb):
    def setUp(self):
        super().setUp()
        self.env['SALLYPORT_HOME'] = self.home
        os.chmod(self.home, 0o700)

    def args(self, *words):
        return [PROGRAM, 'exec', '--no-stdin', *words]

    def approver(self, body):
        return 'program:' + write_program(os.path.join(self.beside, 'approver'), '#!/bin/sh\n' + body)

    def judge(self, body, *words, policy='untrusted', flags=()):
        return self.run_verb('--approve', policy, '--approver', self.approver(body), *flags, '--', *words)

    def test_it_is_told_all_and_its_answer_counts(self):
        code, out, _ = self.judge('cat > %s/told; echo \'{"decision":"approved"}\'' % self.beside, 'printf', 'ran')
        self.assertEqual((code, out), (0, b'ran'))
        with open(self.beside + '/told') as f:
            text = f.read()
        self.assertTrue(text.endswith('}\n') and text.count('\n') == 1)
        told = json.loads(text)
        q = told['question']
        self.assertEqual((told['version'], q['type'], q['command'], q['cwd'], q['environmentId']),
                         (1, 'exec_approval_request', ['printf', 'ran'], self.work, 'local'))
        self.assertEqual(q['proposed_execpolicy_amendment'], ['printf', 'ran'])

    def test_the_log_says_that_no_person_answered(self):
        for body, decision in (('echo \'{"decision":"approved"}\'', ('approved', 'program')),
                               ('echo \'{"decision":"denied"}\'', ('denied', 'program')),
                               ('exit 3', ('denied', 'config'))):
            self.judge(body, 'printf', 'ran')
            with open(os.path.join(self.home, 'audit.jsonl')) as f:
                last = json.loads(f.readlines()[-1])
            self.assertEqual((last['decision'], last['decided_by']), decision)

    def test_one_after_the_other_and_at_once(self):
        def program(name, body):
            return 'program:' + wire.write_program(os.path.join(self.beside, name), '#!/bin/sh\n' + body + '\n')
        broken, yes = program('broken', 'exit 3'), program('yes', 'echo \'{"decision":"approved"}\'')
        no, never = program('no', 'echo \'{"decision":"denied"}\''), program('never', 'sleep 1000')

        def run(*approvers, conf=''):
            flags = [w for a in approvers for w in ('--approver', a)]
            r = subprocess.run([PROGRAM, 'exec', '--no-stdin', '--approve', 'untrusted', *flags, *conf, '--', 'printf', 'ran'],
                               env=self.env, cwd=self.work, capture_output=True, timeout=wire.DEADLINE)
            return r.returncode, r.stdout, r.stderr.decode()
        self.assertEqual(run(broken, yes), (0, b'ran', ''))
        self.assertEqual(run(no, yes)[:2], (122, b''))  # which was an answer
        self.assertEqual(run(never + ',' + yes), (0, b'ran', ''))
        self.assertEqual(run(never + ',' + no)[:2], (122, b''))
        self.assertEqual(run(never, yes, conf=('--set', 'approval_timeout_s=1')), (0, b'ran', ''))
        self.assertEqual(run(conf=('--set', 'approver=["%s", "client", "%s"]' % (broken, yes))), (0, b'ran', ''))
        code, _, err = run(broken, broken)
        self.assertIn('no person answered: ' + broken[8:] + ': it ended with exit status 3; ', err)
        for bad, text in (((yes, 'deny'), '`deny` stands alone'), (('client',), '`client` is not deny, terminal, console or program:PATH'),
                          (('deny,me',), '`deny,me` is not'), (('',), 'is not'), ((yes,) * 9, 'more than 8')):
            code, _, err = run(*bad)
            self.assertNotIn(code, (0, 122), bad)
            self.assertIn(text, err)

    def test_its_refusal_is_told(self):
        code, out, err = self.judge('echo \'{"decision":{"denied":{"rejection":"not on a Sunday"}}}\'', 'make')
        self.assertEqual((code, out, err), (122, b'', b'sallyport: not on a Sunday\n'))

    def test_whatever_else_it_does_is_no(self):
        for body in ('', 'echo yes', 'echo \'{"decision":"maybe"}\'', 'echo \'{"decision":"approved"}\'; exit 1',
                     'echo \'{"decision":"approved"} {}\'', 'kill -9 $$',
                     'echo \'{"decision":"approved"}\'; head -c 70000 /dev/zero | tr "\\0" " "',
                     'echo \'"approved"\'', 'exec >&-'):
            code, out, err = self.judge(body, 'printf', 'ran')
            self.assertEqual((code, out), (122, b''), body)
            self.assertIn(b'approval required, but ', err, body) # nobody said no
            self.assertIn(b' no person answered: ', err, body)

    def test_a_rule_that_was_not_offered_is_no(self):
        answer = '{"decision":{"approved_execpolicy_amendment":{"proposed_execpolicy_amendment":["printf"]}}}'
        self.assertEqual(self.judge("echo '%s'" % answer, 'printf', 'ran')[0], 122)
        answer = answer.replace('["printf"]', '["printf","ran"]')
        self.assertEqual(self.judge("echo '%s'" % answer, 'printf', 'ran')[:2], (0, b'ran'))
        with open(self.home + '/rules/default.rules') as f:
            self.assertIn('["printf", "ran"]', f.read())

    def test_it_is_killed_at_the_deadline(self):
        began = time.monotonic()
        code, _, err = self.judge('echo $$ > %s/pid; sleep 1000 & sleep 1000' % self.beside, 'make',
                                  flags=('--set', 'approval_timeout_s=1'))
        self.assertEqual(code, 122)
        self.assertIn(b'approval request timed out', err)
        self.assertLess(time.monotonic() - began, 15)
        with open(self.beside + '/pid') as f:
            pid = int(f.read())
        wait_until(lambda: not os.path.exists('/proc/%d' % pid), 'its end')

    def test_it_is_killed_with_us(self):
        p = self.popen('--approve', 'untrusted', '--approver',
                       self.approver('echo $$ > %s/pid; exec sleep 1000' % self.beside), '--', 'make')
        path = self.beside + '/pid'
        wait_until(lambda: os.path.exists(path) and os.path.getsize(path) > 0, 'its number')
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(wire.DEADLINE), 128 + signal.SIGTERM)
        with open(path) as f:
            pid = int(f.read())
        wait_until(lambda: not os.path.exists('/proc/%d' % pid), 'its end')

    def test_what_it_leaves_behind_is_not_waited_for(self):
        began = time.monotonic()
        code, out, _ = self.judge('sleep 2 2>/dev/null & echo \'{"decision":"approved"}\'', 'printf', 'ran')
        self.assertEqual((code, out), (0, b'ran'))
        self.assertLess(time.monotonic() - began, 2 * wire.SCALE)

    def test_its_path_is_a_path(self):
        for name, words in (('program:sh', b'is no path'), ('program:/no/such/approver', b'No such file'),
                            ('somebody', b'is not deny, terminal, console or program:PATH')):
            code, _, err = self.run_verb('--approve', 'untrusted', '--approver', name, '--', 'make')
            self.assertEqual(code, 125, name)
            self.assertIn(words, err)
        code, _, err = self.run_verb('--approver', 'deny', '--', 'true')
        self.assertEqual(code, 125)

    def test_the_configuration_names_it(self):
        with open(self.home + '/sallyport.conf', 'w') as f:
            f.write('approver = "%s"\n' % self.approver('echo \'{"decision":"approved"}\''))
        self.assertEqual(self.run_verb('--approve', 'untrusted', '--', 'printf', 'ran')[:2], (0, b'ran'))

    def test_a_denial_is_tried_again(self):
        code, _, _ = self.judge('echo \'{"decision":"approved"}\'', 'touch', 'made', policy='on-failure',
                                flags=('--sandbox', ':read-only'))
        self.assertEqual(code, 0)
        self.assertTrue(os.path.exists(os.path.join(self.work, 'made')))

    def test_not_if_stdin_was_consumed(self):
        r = subprocess.run([PROGRAM, 'exec', '--approve', 'on-failure', '--sandbox', ':read-only', '--approver',
                            self.approver('echo \'{"decision":"approved"}\''), '--', 'sh', '-c', 'read x; touch made'],
                           input=b'line\n', env=self.env, cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=wire.DEADLINE)
        self.assertEqual(r.returncode, 1)
        self.assertFalse(os.path.exists(os.path.join(self.work, 'made')))

    def test_time_out_and_missing_programs_are_no_denials(self):
        body = 'echo asked >> %s/asked; echo \'{"decision":"approved"}\'' % self.beside
        code, _, _ = self.judge(body, 'sleep', '100', policy='on-failure', flags=('--sandbox', ':read-only', '--timeout', '0.5'))
        self.assertEqual(code, 124)
        code, _, _ = self.judge(body, 'no-such-program', policy='on-failure', flags=('--sandbox', ':read-only'))
        self.assertEqual(code, 127)
        self.assertFalse(os.path.exists(self.beside + '/asked'))

    def test_json_tells_a_refusal(self):
        code, out, _ = self.judge('', 'make', flags=('--json',))
        last = json.loads(out.splitlines()[-1])
        self.assertEqual((code, last['type'], last['kind'], last['exit_code']), (122, 'result', 'refused', 122))
        self.assertIn('approver: it said nothing', last['message'])

    def test_rules_alone_judge(self):
        path = os.path.join(self.beside, 'a.rules')
        with open(path, 'w') as f:
            f.write('prefix_rule(pattern=["printf"], decision="forbidden", justification="too loud")\n')
        code, _, err = self.run_verb('--rules', path, '--', 'printf', 'x')
        self.assertEqual((code, err), (122, b'sallyport: `printf x` rejected: too loud\n'))
        self.assertEqual(self.run_verb('--rules', path, '--', 'echo', 'x')[:2], (0, b'x\n'))

    def test_trusted_projects(self):
        project = os.path.join(self.work, 'project')
        os.makedirs(project + '/.git')
        os.makedirs(project + '/.sallyport/rules')
        with open(project + '/.sallyport/rules/p.rules', 'w') as f:
            f.write('prefix_rule(pattern=["echo"], decision="forbidden")\n')
        self.assertEqual(self.run_verb('--approve', 'on-request', '--', 'echo', 'x', cwd=project)[0], 0)
        with open(self.home + '/sallyport.conf', 'w') as f:
            f.write('trusted_projects = ["%s"]\n' % project)
        self.assertEqual(self.run_verb('--approve', 'on-request', '--', 'echo', 'x', cwd=project)[0], 122)
        with open(self.home + '/sallyport.conf', 'a') as f:
            f.write('ignore_user_and_project_rules = true\n')
        self.assertEqual(self.run_verb('--approve', 'on-request', '--', 'echo', 'x', cwd=project)[0], 0)

    def test_a_configured_log_is_a_condition(self):
        code, out, err = self.run_verb('--approve', 'on-request', '--set', 'audit_log="/proc/no/such/log"', '--', 'echo', 'x')
        self.assertEqual((code, out), (125, b''))
        self.assertIn(b'audit log: ', err)


if __name__ == '__main__':
    tap.main()
