# SPDX-License-Identifier: Apache-2.0
"""Who else answers what `sallyport mcp` has to ask: hooks, rules, a program; nobody; and the log of it all."""

import json
import os
import subprocess
import time

import server
import tap
from mcp import FORM
from mcp_asking import CANCEL, DECLINE, DENY, M13, NO_PERSON, ONCE, READING, RULE, SESSION, Asking, choices, note
from wire import wait_until


class Approvers(Asking):
    def test_nobody_can_be_asked(self):
        host = self.wary()
        r = host.call('exec_command', note('a'))
        self.assertRefused(r, M13)
        self.assertNotIn('requestState', r.result)
        r = host.call('exec_command', {**note('a'), 'sandbox_permissions': 'require_escalated', 'justification': 'May I?'})
        self.assertRefused(r, M13)
        host.open('2025-03-26')  # which has no such thing, whatever it says
        self.assertRefused(host.call('exec_command', note('a')), M13)
        self.assertEqual((self.runs(), host.questions), ([], []))

    def test_the_denied_attempt_is_told_when_nobody_can_be_asked_for_another(self):
        host = self.mcp('--approve', 'on-failure')
        r = host.call('exec_command', {'argv': ['sh', '-c', 'echo try >> ran; echo said; touch %s/made' % self.beside]})
        self.assertEqual((r.get('exit_code'), self.runs()), (1, ['try']))
        self.assertIn('said', r['output'])
        self.assertIn('Sandbox denied:', r.text)

    def test_a_program_answers_for_those_who_cannot(self):
        for decision, text in (('"approved"', None), ('{"denied":{"rejection":"not on a Sunday"}}', 'not on a Sunday'),
                               ('"abort"', 'aborted by user'), ('"denied"', 'rejected')):
            approver = self.program('approver', "cat >> %s/told; echo '{\"decision\":%s}'\n" % (self.base, decision))
            host = self.wary('--approver', 'program:' + approver)
            r = host.call('exec_command', note('a'))
            if text is None:
                self.assertRan(r)
            else:
                self.assertRefused(r, text)
            host.open('2025-06-18')
            self.assertEqual(host.call('exec_command', note('a')).failed, text is not None)
            self.assertEqual(host.questions, [])
        self.assertEqual(self.runs(), ['a', 'a'])
        with open(os.path.join(self.base, 'told')) as f:
            told = [json.loads(line) for line in f]
        self.assertEqual([t['question']['command'] for t in told], [['./note', 'a']] * 8)
        with open(os.path.join(self.home, 'audit.jsonl')) as f:
            self.assertEqual({json.loads(line)['decided_by'] for line in f}, {'program'})

    def test_the_host_is_asked_before_the_program(self):
        approver = self.program('approver', 'touch %s/told; echo \'{"decision":"approved"}\'\n' % self.base)
        host = self.wary('--approver', 'program:' + approver)
        self.assertRefused(self.allow(host, note('a'), DENY), 'rejected by user')
        asked = self.ask(host, note('a'))
        time.sleep(READING)
        self.assertRefused(self.come_back(host, note('a'), asked, DECLINE), 'rejected by user')
        self.assertFalse(os.path.exists(os.path.join(self.base, 'told')))
        self.assertEqual(self.runs(), [])

    def test_a_host_without_a_person_leaves_it_to_the_next(self):
        """As hosts do that run unattended: they cancel, or decline at once."""
        for kind in ('modern', '2025-11-25'):
            for answer in (CANCEL, DECLINE):
                for word, text in (('"approved"', None), ('{"denied":{"rejection":"not today"}}', 'not today')):
                    approver = self.program('approver', 'echo \'{"decision":%s}\'\n' % word)
                    host = self.wary('--approver', 'program:' + approver)
                    if kind == 'modern':
                        r = self.allow(host, note('a'), answer)
                    else:
                        host.open(kind, FORM)
                        id = host.call_later('exec_command', note('a'))
                        host.answer(host.question(), answer)
                        r = host.result(id)
                    self.assertRan(r) if text is None else self.assertRefused(r, text)
        self.assertEqual(self.runs(), ['a'] * 4)
        self.assertRefused(self.allow(self.wary(), note('b'), CANCEL), NO_PERSON + 'it cancelled the question')

    def test_one_after_the_other(self):
        broken = self.program('broken', 'exit 3\n')
        silent = self.program('silent', 'echo {}\n')
        good = self.program('good', 'echo \'{"decision":"approved"}\'\n')
        flags = [w for p in (broken, silent, good) for w in ('--approver', 'program:' + p)]
        self.assertRan(self.wary(*flags).call('exec_command', note('a')))
        self.assertRefused(self.wary(*flags[:4]).call('exec_command', note('a')),
                           'no person answered: %s: it ended with exit status 3; %s: it said nothing' % (broken, silent))
        self.configure('approver = ["program:%s", "terminal", "program:%s"]\n' % (broken, good))
        self.assertRan(self.wary().call('exec_command', note('a')))
        self.assertEqual(self.runs(), ['a', 'a'])

    def test_the_host_and_a_program_at_once(self):
        slow = self.program('slow', 'exec sleep 1000\n')
        fast = self.program('fast', 'echo \'{"decision":{"denied":{"rejection":"I was faster"}}}\'\n')
        self.assertRan(self.allow(self.wary('--approver', 'client,program:' + slow), note('a')))
        wait_until(lambda: not any('sleep 1000' == server.name_of(pid) for pid in server.marked(self.mark.encode())),
                   'the end of the other one')
        host = self.wary('--approver', 'program:%s,client' % fast)
        host.open('2025-11-25', FORM)
        id = host.call_later('exec_command', note('a'))
        self.assertRefused(host.result(id), 'I was faster')
        self.assertEqual(self.runs(), ['a'])

    def test_the_terminal_is_the_hosts(self):
        for flags in (['--approver', 'terminal'], ['--approver', 'program:/bin/true', '--approver', 'client,terminal']):
            p = subprocess.run([*server.PREFIX, server.PROGRAM, 'mcp', *flags], env=self.environ(), cwd=self.work,
                               capture_output=True, stdin=subprocess.DEVNULL)
            self.assertEqual(p.returncode, 1)
            self.assertIn(b"our stdin is the host's MCP channel", p.stderr)
            self.assertIn(b'--approver program:PATH', p.stderr)

    def test_a_program_that_breaks_is_no_leave(self):
        for body, text in (('exit 3', 'it ended with exit status 3'), ('echo yes', 'no person answered'), ('kill -9 $$', 'it was killed')):
            host = self.wary('--approver', 'program:' + self.program('approver', body + '\n'))
            self.assertRefused(host.call('exec_command', note('a')), text)
        self.assertEqual(self.runs(), [])

    def test_a_program_ends_with_the_call(self):
        approver = self.program('approver', 'echo x >> %s/asked; exec sleep 1000\n' % self.base)
        asked = os.path.join(self.base, 'asked')

        def is_asked():
            return any('sleep 1000' == server.name_of(pid) for pid in server.marked(self.mark.encode()))
        for version in (None, '2025-11-25'):
            host = self.wary('--approver', 'program:' + approver)
            if version is not None:
                host.open(version)
            id = host.call_later('exec_command', note('a'))
            wait_until(lambda: os.path.exists(asked) and is_asked(), 'the program')
            host.notify('notifications/cancelled', {'requestId': id})
            wait_until(lambda: not is_asked(), 'the end of the program')
            self.assertRan(host.call('exec_command', {'argv': ['ls']}))
        self.assertEqual(self.runs(), [])

    def test_a_hook_comes_before_the_question(self):
        hook = self.program('hook', '''case $(cat) in
*'"./note","yes"'*) echo '{"decision":"approved"}' ;;
*'"./note","no"'*) echo '{"decision":{"denied":{"rejection":"the hook says no"}}}' ;;
esac
''')
        self.configure('permission_hook = "%s"\n' % hook)
        host = self.wary()
        self.assertRan(host.call('exec_command', note('yes'), capabilities=FORM))
        self.assertRan(host.call('exec_command', note('yes')))  # nobody else would have to be asked
        self.assertRefused(host.call('exec_command', note('no'), capabilities=FORM), 'the hook says no')
        self.assertRefused(host.call('exec_command', note('no')), 'the hook says no')
        self.assertRan(self.allow(host, note('perhaps')))
        self.assertRefused(host.call('exec_command', note('perhaps')), M13)
        self.assertEqual(self.runs(), ['yes', 'yes', 'perhaps'])

    def test_rules_that_change_while_it_runs(self):
        host = self.mcp()
        path = os.path.join(self.home, 'rules', 'default.rules')
        os.makedirs(os.path.dirname(path), exist_ok=True)
        rule = 'prefix_rule(pattern=["./note"], decision="%s", justification="counted")\n'
        self.assertRan(host.call('exec_command', note('free')))

        def becomes(decision, look, what):
            with open(path + '~', 'w') as f:
                f.write(rule % decision)
            os.rename(path + '~', path)
            wait_until(lambda: look(host.call('exec_command', note(decision), capabilities=FORM)), what, step=0.1)
        becomes('forbidden', lambda r: r.failed and 'counted' in r.text, 'a rule that forbids it')
        self.assertNotIn('prompt', self.runs())
        becomes('prompt', lambda r: r.kind == 'input_required', 'a rule that asks')
        asked = self.ask(host, note('x'))
        self.assertIn('counted', asked[1]['message'])
        self.assertNotIn('rule', dict(choices(asked[1])))
        becomes('allow', lambda r: not r.failed and r.get('exit_code') == 0, 'a rule that allows it')
        self.assertRan(self.come_back(host, note('x'), asked, ONCE))
        self.assertEqual(self.runs().count('x'), 1)

    def test_a_rule_that_forbids_overtakes_a_question(self):
        """Whoever says yes to what is forbidden by now has said it too late, or in time: it is one of the two, once."""
        host = self.wary()
        asked = self.ask(host, note('a'))
        os.makedirs(os.path.join(self.home, 'rules'), exist_ok=True)
        with open(os.path.join(self.home, 'rules', 'default.rules'), 'w') as f:
            f.write('prefix_rule(pattern=["./note"], decision="forbidden", justification="too late")\n')
        wait_until(lambda: 'too late' in (host.call('exec_command', note('b'), capabilities=FORM).text or ''),
                   'the rule', step=0.1)
        self.come_back(host, note('a'), asked, ONCE)
        self.assertIn(self.runs(), ([], ['a']))

    def test_every_decision_is_in_the_log(self):
        host = self.wary()
        self.assertRan(self.allow(host, note('yes')))
        self.allow(host, note('no'), DENY)
        self.allow(host, note('stop'), CANCEL)
        self.allow(host, note('session'), SESSION)
        self.assertRan(host.call('exec_command', note('session'), capabilities=FORM))
        self.allow(host, note('rule'), RULE)
        host.call('exec_command', note('nobody'))
        self.ask(host, note('never'))
        log = os.path.join(self.home, 'audit.jsonl')
        with open(log) as f:
            lines = [json.loads(line) for line in f]
        told = {(line['command'][-1], line['decision'], tuple(line['attempts'])) for line in lines}
        for expected in (('yes', 'approved', ('confined',)), ('no', 'denied', ()),
                         ('session', 'approved_for_session', ('confined',))):
            self.assertIn(expected, told)
        deciders = [(line['command'][-1], line['decided_by']) for line in lines]
        self.assertEqual(deciders, [('yes', 'user'), ('no', 'user'), ('stop', 'config'), ('session', 'user'), ('session', 'cache'),
                                    ('rule', 'user'), ('nobody', 'config')])
        words = [line['command'][-1] for line in lines]
        for word, count in (('yes', 1), ('no', 1), ('stop', 1), ('session', 2), ('rule', 1), ('nobody', 1)):
            self.assertEqual(words.count(word), count, (word, lines))
        self.assertNotIn('approved', [line['decision'] for line in lines if line['command'][-1] in ('stop', 'nobody')])
        p = subprocess.run([*server.PREFIX, server.PROGRAM, 'audit', 'verify', log], env=self.environ(), capture_output=True)
        self.assertEqual(p.returncode, 0, p.stderr)


if __name__ == '__main__':
    tap.main()
