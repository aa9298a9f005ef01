# SPDX-License-Identifier: Apache-2.0
"""Questions of `sallyport mcp` (mcp-and-acp.md 2.7, section 4 rule 3; approvals.md 7): who is asked, what each answer
leads to, and that nothing runs that nobody allowed, nor twice what was allowed once."""

import json
import os
import shutil
import subprocess
import tempfile
import time

import mcp
import server
import tap
import wire
from mcp import FORM
from wire import wait_until

M13 = ('approval required, but the client cannot answer questions; allow it by a rule, configure an approver, or change '
       'the approval policy')
PENDING = 'approval is still pending; repeat the same call'
ONCE, SESSION, RULE, DENY = ({'action': 'accept', 'content': {'decision': d}} for d in ('once', 'session', 'rule', 'deny'))
DECLINE, CANCEL = {'action': 'decline'}, {'action': 'cancel'}
BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'


def note(*words):
    """A call that leaves a line in the file `ran` for each time that it was run."""
    return {'argv': ['./note', *words]}


class Asking(mcp.Case):
    def setUp(self):
        super().setUp()
        wire.write_program(os.path.join(self.work, 'note'), '#!/bin/sh\necho "$@" >> ran\n')
        self.beside = tempfile.mkdtemp(prefix='sallyport-mcp-', dir='/var/tmp')  # which no sandbox lets be written
        self.addCleanup(shutil.rmtree, self.beside, True)

    def runs(self):
        try:
            with open(os.path.join(self.work, 'ran')) as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def configure(self, text):
        with open(os.path.join(self.home, 'sallyport.conf'), 'w') as f:
            f.write(text)
            os.fchmod(f.fileno(), 0o600)

    def program(self, name, body):
        return wire.write_program(os.path.join(self.base, name), '#!/bin/sh\n' + body)

    def wary(self, *args, **more):
        return self.mcp('--approve', 'untrusted', *args, **more)

    # -- modern

    def asked(self, r):
        """The key, the form and the state of a result that asks."""
        self.assertEqual(r.kind, 'input_required', r)
        self.assertNotIn('content', r.result)
        (key, request), = r.result['inputRequests'].items()
        self.assertEqual(request['method'], 'elicitation/create')
        self.assertEqual(request['params']['mode'], 'form')
        return key, request['params'], r.result['requestState']

    def ask(self, host, arguments, tool='exec_command', **more):
        return self.asked(host.call(tool, arguments, capabilities=FORM, **more))

    def come_back(self, host, arguments, asked, answer, tool='exec_command', capabilities=FORM):
        key, _, state = asked
        return host.call(tool, arguments, capabilities=capabilities, state=state, responses={key: answer})

    def allow(self, host, arguments, answer=ONCE):
        return self.come_back(host, arguments, self.ask(host, arguments), answer)

    def assertRan(self, r, code=0):
        self.assertFalse(r.failed, r)
        self.assertEqual(r.get('exit_code'), code, r)

    def assertRefused(self, r, text):
        self.assertTrue(r.failed, r)
        self.assertIn(text, r.text)
        self.assertNotIn('inputRequests', r.result)


def choices(form):
    """[(const, title)], as either era writes them."""
    d = form['requestedSchema']['properties']['decision']
    return [(c['const'], c['title']) for c in d['oneOf']] if 'oneOf' in d else list(zip(d['enum'], d['enumNames']))


class Modern(Asking):
    def test_accepted_it_runs_once(self):
        host = self.wary()
        asked = key, form, state = self.ask(host, note('a'))
        self.assertEqual(self.runs(), [])
        self.assertIn('./note a', form['message'])
        self.assertIn(self.work, form['message'])
        self.assertEqual((form['requestedSchema']['type'], form['requestedSchema']['required']), ('object', ['decision']))
        self.assertEqual(choices(form), [('once', 'Allow once'), ('session', 'Allow for this session'),
                                         ('rule', 'Always allow: ./note a'), ('deny', 'Deny')])
        self.assertRegex(state, r'^v1\.[\w-]+\.[\w-]{43}$')
        self.assertRegex(key, r'^approve_[1-9]\d*$')
        r = self.come_back(host, note('a'), asked, ONCE)
        self.assertRan(r)
        self.assertEqual((r.kind, self.runs()), ('complete', ['a']))
        self.ask(host, note('a'))  # once was once
        self.assertEqual(self.runs(), ['a'])

    def test_refused_it_does_not_run(self):
        host = self.wary()
        for answer, text in ((DECLINE, 'exec command rejected by user'), (DENY, 'exec command rejected by user'),
                             (CANCEL, 'aborted by user')):
            self.assertRefused(self.allow(host, note('a'), answer), text)
        self.assertEqual(self.runs(), [])
        self.assertRan(host.call('exec_command', {'argv': ['ls']}))  # the caller goes on

    def test_an_approval_is_for_these_arguments_alone(self):
        host = self.wary()
        asked = self.ask(host, note('a'))
        for changed in (note('b'), note('a', 'b'), {**note('a'), 'tty': True}, {**note('a'), 'workdir': '.'},
                        {'cmd': './note a'}, {**note('a'), 'sandbox_permissions': 'require_escalated', 'justification': 'x'},
                        {**note('a'), 'env': {'PATH': '/site'}}, {}):
            self.assertRefused(self.come_back(host, changed, asked, ONCE), 'with other arguments')
        self.assertRefused(self.come_back(host, note('a'), asked, ONCE, tool='write_stdin'), 'another tool')
        self.assertEqual(self.runs(), [])
        self.assertRan(self.come_back(host, note('a'), asked, ONCE))  # whose it is was not asked for in vain
        self.assertEqual(self.runs(), ['a'])

    def test_the_same_arguments_may_be_spelled_another_way(self):
        host = self.wary()
        key, _, state = self.ask(host, {'argv': ['./note', 'a'], 'login': False, 'yield_time_ms': 5000})
        host.send_raw(json.dumps({
            'id': 'x', 'jsonrpc': '2.0', 'method': 'tools/call', 'params': {
                'requestState': state, 'inputResponses': {key: ONCE}, '_meta': mcp.meta(FORM), 'name': 'exec_command',
                'arguments': {'yield_time_ms': 5000, 'login': False, 'argv': ['HERE', 'a']}}}).replace(
                    '"HERE"', '  "\\u002e/n\\u006fte" ').encode() + b'\n')
        self.assertRan(host.result('x'))
        self.assertEqual(self.runs(), ['a'])

    def test_a_state_is_used_once(self):
        host = self.wary()
        asked = self.ask(host, note('a'))
        self.assertRan(self.come_back(host, note('a'), asked, ONCE))
        for answer in (ONCE, SESSION, DECLINE):
            self.assertRefused(self.come_back(host, note('a'), asked, answer), 'requestState was used before')
        declined = self.ask(host, note('b'))
        self.assertRefused(self.come_back(host, note('b'), declined, DECLINE), 'rejected by user')
        self.assertRefused(self.come_back(host, note('b'), declined, ONCE), 'requestState was used before')
        self.assertEqual(self.runs(), ['a'])

    def test_many_come_back_at_once_and_one_runs(self):
        host = self.wary()
        key, _, state = self.ask(host, note('a'))
        ids = [host.call_later('exec_command', note('a'), capabilities=FORM, state=state, responses={key: ONCE})
               for _ in range(20)]
        results = [host.result(id) for id in ids]
        self.assertEqual([r.failed for r in results], [False] + [True] * 19)
        self.assertEqual(self.runs(), ['a'])

    def test_another_callers_state(self):
        one, two = self.http('--approve', 'untrusted', tokens=('one-of-sixteen-characters', 'two-of-sixteen-characters'))
        asked = self.ask(one, note('a'))
        self.assertRefused(self.come_back(two, note('a'), asked, ONCE), 'it belongs to another caller')
        mine = self.ask(two, note('a'))
        self.assertRefused(two.call('exec_command', note('a'), capabilities=FORM, state=asked[2], responses={mine[0]: ONCE}),
                           'it belongs to another caller')
        self.assertEqual(self.runs(), [])
        self.assertRan(self.come_back(one, note('a'), asked, ONCE))
        self.assertEqual(self.runs(), ['a'])
        self.ask(two, note('a'))

    def test_a_state_of_a_former_server(self):
        asked = self.ask(self.wary(), note('a'))
        self.assertRefused(self.come_back(self.wary(), note('a'), asked, ONCE), 'it was not made by this server')
        self.assertEqual(self.runs(), [])

    def test_every_changed_bit_of_a_state_is_seen(self):
        host = self.wary()
        key, _, state = asked = self.ask(host, note('a'))
        broken = set()
        for at, c in enumerate(state):
            head, tail = state[:at], state[at + 1:]
            broken.update(head + chr(ord(c) ^ 1 << bit) + tail for bit in range(7))
            if c in BASE64URL:
                broken.update(head + BASE64URL[BASE64URL.index(c) ^ 1 << bit] + tail for bit in range(6))
            broken.update((head + tail, head + c + c + tail, head))
        broken -= {state}
        broken.update(('v1..', 'v1', '.', state + '=', state + '.', ' ' + state, state + '\0', state.replace('v1', 'v2'),
                       state.replace('-', '+').replace('_', '/') + '!', 'x' * 100000, '\ud83d\ude00'))
        ids = []
        for text in sorted(broken):
            ids.append(host.call_later('exec_command', note('a'), capabilities=FORM, state=text, responses={key: ONCE}))
            if len(ids) == 100:
                self.all_refused(host, ids)
        self.all_refused(host, ids)
        self.assertEqual(self.runs(), [])
        self.assertRan(self.come_back(host, note('a'), asked, ONCE))
        self.assertEqual(self.runs(), ['a'])

    def all_refused(self, host, ids):
        for id in ids:
            self.assertRefused(host.result(id), 'it was not made by this server, or was changed since')
        ids.clear()

    def test_what_is_no_state_at_all(self):
        host = self.wary()
        for name, value in (('requestState', 7), ('requestState', {}), ('inputResponses', []), ('inputResponses', 'x')):
            answer = host.modern('tools/call', {'name': 'exec_command', 'arguments': note('a'), name: value}, FORM)
            self.assertEqual(answer['error']['code'], -32602, answer)
        self.assertEqual(self.runs(), [])

    def test_an_answer_without_a_state_is_none(self):
        host = self.wary()
        key, _, _ = self.ask(host, note('a'))
        for guess in (key, 'approve_%d' % (int(key.split('_')[1]) + 1)):
            self.asked(host.call('exec_command', note('a'), capabilities=FORM, responses={guess: ONCE}))
        self.assertEqual(self.runs(), [])

    def test_what_is_no_answer_is_asked_again(self):
        host = self.wary()
        asked = self.ask(host, note('a'))
        seen = {asked[0]}
        for answers in (None, {}, {'approve_999': ONCE}, {'approve_0': ONCE}, {'': ONCE},
                        *({asked[0]: a} for a in (
                            None, 7, [], 'accept', {}, {'action': 'accept'}, {'action': 'ACCEPT', 'content': {'decision': 'once'}},
                            {'action': 'accept', 'content': None}, {'action': 'accept', 'content': 'once'},
                            {'action': 'accept', 'content': {}}, {'action': 'accept', 'content': {'decision': 'yes'}},
                            {'action': 'accept', 'content': {'decision': ['once']}},
                            {'action': 'accept', 'content': {'decision': 'approved'}}, {'action': 1}))):
            if answers and next(iter(answers)).startswith('approve_') and next(iter(answers)) in seen:
                answers = {asked[0]: next(iter(answers.values()))}
            old = asked
            asked = self.asked(host.call('exec_command', note('a'), capabilities=FORM, state=asked[2], responses=answers))
            self.assertNotIn(asked[0], seen)
            self.assertNotEqual(asked[2], old[2])
            seen.add(asked[0])
            self.assertRefused(self.come_back(host, note('a'), old, ONCE), 'requestState was used before')
        self.assertEqual(self.runs(), [])
        self.assertRan(self.come_back(host, note('a'), asked, ONCE))
        self.assertEqual(self.runs(), ['a'])

    def test_a_choice_that_was_not_offered_is_no_answer(self):
        rules = os.path.join(self.base, 'rules')
        with open(rules, 'w') as f:
            f.write('prefix_rule(pattern=["./note"], decision="prompt", justification="counted")\n')
        host = self.mcp('--rules', rules)
        asked = self.ask(host, note('a'))
        self.assertEqual([c for c, _ in choices(asked[1])], ['once', 'session', 'deny'])
        again = self.asked(self.come_back(host, note('a'), asked, RULE))
        self.assertEqual(self.runs(), [])
        self.assertRan(self.come_back(host, note('a'), again, ONCE))
        self.assertEqual(self.runs(), ['a'])

    def test_the_client_that_comes_back_need_not_be_able_to_ask(self):
        host = self.wary()
        self.assertRan(self.come_back(host, note('a'), self.ask(host, note('a')), ONCE, capabilities={}))
        self.assertEqual(self.runs(), ['a'])
        r = self.come_back(host, note('b'), self.ask(host, note('b')), {'action': 'perhaps'}, capabilities={})
        self.assertRefused(r, M13)
        self.assertEqual(self.runs(), ['a'])

    def test_a_client_that_never_comes_back(self):
        """Nothing is held open for it; of many questions the oldest is withdrawn."""
        host = self.wary()
        asked = [self.ask(host, note(str(n))) for n in range(66)]
        for n in (0, 1):
            self.assertRefused(self.come_back(host, note(str(n)), asked[n], ONCE), 'its question is gone')
        for n in (65, 2):
            self.assertRan(self.come_back(host, note(str(n)), asked[n], ONCE))
        self.assertEqual(self.runs(), ['65', '2'])

    def test_the_time_for_an_answer_is_over(self):
        host = self.wary('--set', 'approval_timeout_s=1')
        asked = self.ask(host, note('a'))
        time.sleep(2)
        self.assertRefused(self.come_back(host, note('a'), asked, ONCE), 'approval request timed out')
        self.assertEqual(self.runs(), [])

    def test_elicitation_without_forms(self):
        host = self.wary()
        self.asked(host.call('exec_command', note('a'), capabilities={'elicitation': {}}))
        self.asked(host.call('exec_command', note('a'), capabilities={'elicitation': {'form': {}, 'url': {}}}))
        self.assertRefused(host.call('exec_command', note('a'), capabilities={'elicitation': {'url': {}}}), M13)
        self.assertRefused(host.call('exec_command', note('a')), M13)  # nothing is remembered of other calls
        self.assertEqual(self.runs(), [])

    # -- the choices

    def test_for_the_session(self):
        one, two = self.http('--approve', 'untrusted', tokens=('one-of-sixteen-characters', 'two-of-sixteen-characters'))
        self.assertRan(self.allow(one, note('a'), SESSION))
        self.assertRan(one.call('exec_command', note('a'), capabilities=FORM))
        self.assertEqual(self.runs(), ['a'] * 2)
        self.assertRefused(one.call('exec_command', note('a')), M13)  # that is judged as if nothing may be asked
        self.ask(one, note('b'))
        self.ask(two, note('a'))
        self.assertFalse(os.path.exists(os.path.join(self.home, 'rules', 'default.rules')))

    def test_always(self):
        host = self.wary()
        self.assertRan(self.allow(host, note('a'), RULE))
        with open(os.path.join(self.home, 'rules', 'default.rules')) as f:
            self.assertIn('["./note", "a"]', f.read())
        self.assertRan(host.call('exec_command', note('a', 'and', 'more')))
        self.ask(host, note('b'))
        other = self.wary()
        self.assertRan(other.call('exec_command', note('a')))
        self.assertEqual(self.runs(), ['a', 'a and more', 'a'])

    # -- other questions

    def test_once_more_without_the_sandbox(self):
        host = self.mcp('--approve', 'on-failure')
        made = os.path.join(self.beside, 'made')
        arguments = {'argv': ['sh', '-c', 'echo try >> ran; touch ' + made]}
        first = self.ask(host, arguments)
        self.assertEqual(self.runs(), ['try'])
        self.assertIn('once more', first[1]['message'])
        again = self.asked(self.come_back(host, arguments, first, {'action': '?'}))
        self.assertEqual(self.runs(), ['try'])
        self.assertRan(self.come_back(host, arguments, again, ONCE))
        self.assertEqual(self.runs(), ['try', 'try'])
        self.assertTrue(os.path.exists(made))

    def test_the_retry_is_a_second_question_with_a_key_of_its_own(self):
        host = self.wary()
        made = os.path.join(self.beside, 'made')
        arguments = {'argv': ['sh', '-c', 'echo try >> ran; touch ' + made]}
        first = self.ask(host, arguments)
        self.assertEqual(self.runs(), [])
        second = self.asked(self.come_back(host, arguments, first, ONCE))
        self.assertNotEqual(first[0], second[0])
        self.assertEqual(self.runs(), ['try'])
        self.assertRefused(self.come_back(host, arguments, first, ONCE), 'requestState was used before')
        self.assertRefused(host.call('exec_command', arguments, capabilities=FORM, state=first[2],
                                     responses={second[0]: ONCE}), 'requestState was used before')
        self.assertRefused(self.come_back(host, arguments, second, DECLINE), 'rejected by user')
        self.assertEqual(self.runs(), ['try'])
        self.assertFalse(os.path.exists(made))

    def test_without_the_sandbox_from_the_beginning(self):
        host = self.mcp()
        made = os.path.join(self.beside, 'made')
        arguments = {'argv': ['touch', made], 'sandbox_permissions': 'require_escalated',
                     'justification': 'May I leave\u202e a \x1b[31mmark?'}
        _, form, _ = asked = self.ask(host, arguments)
        self.assertIn('without a sandbox', form['message'])
        self.assertIn('reason: May I leave\\u{202e} a \\x1b[31mmark?', form['message'])
        self.assertNotIn('\x1b', form['message'])
        self.assertRefused(self.come_back(host, arguments, asked, DECLINE), 'rejected by user')
        self.assertFalse(os.path.exists(made))
        self.assertRan(self.allow(host, arguments))
        self.assertTrue(os.path.exists(made))

    def test_a_patch_outside_of_the_workspace(self):
        host = self.mcp(env=mcp.PATCHES)
        made = os.path.join(self.beside, 'made')
        patch = {'input': '*** Begin Patch\n*** Add File: %s\n+hello\n*** End Patch\n' % made}
        _, form, _ = asked = self.ask(host, patch, tool='apply_patch')
        self.assertIn(made, form['message'])
        self.assertIn('hello', form['message'])
        self.assertRefused(self.come_back(host, patch, asked, DECLINE, tool='apply_patch'), 'patch rejected by user')
        self.assertFalse(os.path.exists(made))
        asked = self.ask(host, patch, tool='apply_patch')
        r = self.come_back(host, patch, asked, ONCE, tool='apply_patch')
        self.assertFalse(r.failed, r)
        with open(made) as f:
            self.assertEqual(f.read(), 'hello\n')

    def test_a_key_that_asks_is_one_start(self):
        host = self.wary()
        arguments = {**note('a'), 'key': 'k'}
        asked = self.ask(host, arguments)
        self.assertRefused(host.call('exec_command', arguments, capabilities=FORM), 'waits for an approval')
        self.assertRan(self.come_back(host, arguments, asked, ONCE))
        r = host.call('exec_command', arguments, capabilities=FORM)
        self.assertFalse(r.kind == 'input_required' or r.failed, r)
        self.assertEqual(self.runs(), ['a'])


class Others(Asking):
    """Hooks, rules, approvers, the log."""

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

    def test_the_host_is_asked_before_the_program(self):
        approver = self.program('approver', 'touch %s/told; echo \'{"decision":"approved"}\'\n' % self.base)
        host = self.wary('--approver', 'program:' + approver)
        self.assertRefused(self.allow(host, note('a'), DECLINE), 'rejected by user')
        self.assertFalse(os.path.exists(os.path.join(self.base, 'told')))
        self.assertEqual(self.runs(), [])

    def test_a_program_that_breaks_is_no_leave(self):
        for body, text in (('exit 3', 'did not answer'), ('echo yes', 'did not answer'), ('kill -9 $$', 'did not answer')):
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
        hook = self.program('hook', 'case $(cat) in\n*\'"./note","yes"\'*) echo \'{"decision":"approved"}\' ;;\n'
                            '*\'"./note","no"\'*) echo \'{"decision":{"denied":{"rejection":"the hook says no"}}}\' ;;\nesac\n')
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
        self.allow(host, note('no'), DECLINE)
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
        for expected in (('yes', 'approved', ('confined',)), ('no', 'denied', ()), ('session', 'approved_for_session', ('confined',))):
            self.assertIn(expected, told)
        words = [line['command'][-1] for line in lines]
        for word, count in (('yes', 1), ('no', 1), ('stop', 1), ('session', 2), ('rule', 1), ('nobody', 1)):
            self.assertEqual(words.count(word), count, (word, lines))
        self.assertNotIn('approved', [line['decision'] for line in lines if line['command'][-1] in ('stop', 'nobody')])
        p = subprocess.run([*server.PREFIX, server.PROGRAM, 'audit', 'verify', log], env=self.environ(), capture_output=True)
        self.assertEqual(p.returncode, 0, p.stderr)


class Legacy(Asking):
    def begin(self, *args, version='2025-11-25', capabilities=None):
        host = self.mcp(*(args or ('--approve', 'untrusted')))
        host.open(version, {'elicitation': {}} if capabilities is None else capabilities)
        return host

    def later(self, host, *words):
        id = host.call_later('exec_command', note(*words))
        return id, host.question()

    def test_a_question_and_each_answer(self):
        for version in ('2025-11-25', '2025-06-18'):
            host = self.begin(version=version)
            id, q = self.later(host, version)
            self.assertEqual((q['jsonrpc'], q['method']), ('2.0', 'elicitation/create'))
            form = q['params']
            self.assertEqual(form.get('mode'), 'form' if version == '2025-11-25' else None)
            self.assertIn('./note ' + version, form['message'])
            decision = form['requestedSchema']['properties']['decision']
            self.assertEqual('oneOf' in decision, version == '2025-11-25')
            self.assertEqual([c for c, _ in choices(form)], ['once', 'session', 'rule', 'deny'])
            before = self.runs()
            self.assertNotIn(version, before)
            host.answer(q, ONCE)
            r = host.result(id)
            self.assertRan(r)
            self.assertIsNone(r.kind)
            self.assertEqual(self.runs(), before + [version])
            for answer, text in ((DECLINE, 'exec command rejected by user'), (DENY, 'exec command rejected by user'),
                                 (CANCEL, 'aborted by user')):
                id, q = self.later(host, 'no')
                host.answer(q, answer)
                self.assertRefused(host.result(id), text)
            id, q = self.later(host, 'session')
            host.answer(q, SESSION)
            self.assertRan(host.result(id))
            self.assertRan(host.call('exec_command', note('session')))
            self.assertEqual(host.questions, [])
            self.assertNotIn('no', self.runs())

    def test_what_is_no_answer_is_no_leave(self):
        host = self.begin()
        answers = [{'result': a} for a in (
            {}, None, 7, 'accept', [], {'action': 'accept'}, {'action': 'accept', 'content': {'decision': 'yes'}},
            {'action': 'accept', 'content': {'decision': True}}, {'action': 'perhaps'})]
        answers += [{'error': {'code': -32601, 'message': 'no such method'}}, {'error': 7}, {'error': None}]
        for answer in answers:
            id, q = self.later(host, 'a')
            host.send({'jsonrpc': '2.0', 'id': q['id'], **answer})
            self.assertRefused(host.result(id), M13)
        self.assertEqual(self.runs(), [])

    def test_what_is_no_answer_goes_to_the_program(self):
        approver = self.program('approver', 'echo \'{"decision":"approved"}\'\n')
        host = self.begin('--approve', 'untrusted', '--approver', 'program:' + approver)
        id, q = self.later(host, 'a')
        host.send({'jsonrpc': '2.0', 'id': q['id'], 'error': {'code': -32601, 'message': 'no such method'}})
        self.assertRan(host.result(id))
        self.assertEqual(self.runs(), ['a'])

    def test_answers_to_other_questions(self):
        host = self.begin()
        one, q1 = self.later(host, 'one')
        two, q2 = self.later(host, 'two')
        self.assertNotEqual(q1['id'], q2['id'])
        for other in ('elicit-99', 99, None, q1['id'] + '0', [q1['id']]):
            host.send({'jsonrpc': '2.0', 'id': other, 'result': ONCE})
        host.answer(q2, ONCE)
        self.assertRan(host.result(two))
        self.assertEqual(self.runs(), ['two'])
        host.answer(q2, ONCE)  # twice
        host.answer(q1, DECLINE)
        self.assertRefused(host.result(one), 'rejected by user')
        host.answer(q1, ONCE)
        self.assertRan(host.call('exec_command', {'argv': ['ls']}))
        self.assertEqual(self.runs(), ['two'])

    def test_a_cancelled_call_asks_no_more(self):
        host = self.begin()
        id, q = self.later(host, 'a')
        host.notify('notifications/cancelled', {'requestId': id})
        host.answer(q, ONCE)
        self.assertEqual(host.ask('ping')['result'], {})
        self.assertRan(host.call('exec_command', {'argv': ['ls']}))
        self.assertEqual((self.runs(), host.answers), ([], {}))

    def test_the_client_goes(self):
        host = self.begin()
        self.later(host, 'a')
        host.close()
        self.assertEqual(host.process.wait(wire.DEADLINE), 0)
        self.assertEqual(self.runs(), [])

    def test_a_connection_goes_and_another_of_the_same_user_is_asked_anew(self):
        path = os.path.join(self.base, 'socket')
        self.listening('unix://' + path, args=('--approve', 'untrusted'))
        one = mcp.connect_unix(path)
        one.open(capabilities={'elicitation': {}})
        _, q = self.later(one, 'a')
        two = mcp.connect_unix(path)
        self.addCleanup(two.close)
        two.open(capabilities={'elicitation': {}})
        two.answer(q, ONCE)  # which was not asked of this one
        self.assertEqual(two.ask('ping')['result'], {})
        self.assertEqual(self.runs(), [])
        one.close()
        id, q = self.later(two, 'a')
        self.assertEqual(self.runs(), [])
        two.answer(q, ONCE)
        self.assertRan(two.result(id))
        self.assertEqual(self.runs(), ['a'])

    def test_the_time_for_an_answer_is_over(self):
        host = self.begin('--approve', 'untrusted', '--set', 'approval_timeout_s=1')
        id, q = self.later(host, 'a')
        self.assertRefused(host.result(id), 'approval request timed out')
        self.assertIn(('notifications/cancelled', q['id']),
                      [(n['method'], n['params'].get('requestId')) for n in host.notifications])
        host.answer(q, ONCE)
        self.assertEqual(host.ask('ping')['result'], {})
        self.assertEqual(self.runs(), [])

    def test_an_answer_in_another_session_of_the_same_token(self):
        one = self.http('--approve', 'untrusted')
        two = mcp.Http(one.url, one.token)
        for host in (one, two):
            host.open(capabilities={'elicitation': {}})
        self.assertNotEqual(one.session, two.session)
        id, q = self.later(one, 'a')
        two.answer(q, ONCE)
        self.assertEqual(two.ask('ping')['result'], {})
        self.assertEqual(self.runs(), [])
        one.answer(q, DECLINE)
        self.assertRefused(one.result(id), 'rejected by user')
        self.assertEqual(self.runs(), [])

    def test_before_the_handshake_is_over_nobody_is_asked(self):
        host = self.wary()
        host.ask('initialize', {'protocolVersion': '2025-11-25', 'capabilities': {'elicitation': {}},
                                'clientInfo': {'name': 'test', 'version': '1'}})
        host.version = '2025-11-25'
        self.assertRefused(host.call('exec_command', note('a')), M13)
        self.assertEqual(host.questions, [])

    def test_url_alone_is_no_form(self):
        host = self.begin(capabilities={'elicitation': {'url': {}}})
        self.assertRefused(host.call('exec_command', note('a')), M13)
        self.assertEqual((self.runs(), host.questions), ([], []))

    def test_both_eras_on_one_pipe(self):
        host = self.begin()
        id, q = self.later(host, 'legacy')
        asked = self.asked(mcp.Result(host.modern('tools/call', {'name': 'exec_command', 'arguments': note('modern')}, FORM)))
        answer = host.modern('tools/call', {'name': 'exec_command', 'arguments': note('modern'), 'requestState': asked[2],
                                            'inputResponses': {asked[0]: ONCE}}, FORM)
        self.assertRan(mcp.Result(answer))
        host.answer(q, ONCE)
        self.assertRan(host.result(id))
        self.assertEqual(self.runs(), ['modern', 'legacy'])

    def test_the_retry_is_asked_too(self):
        host = self.begin('--approve', 'on-failure')
        made = os.path.join(self.beside, 'made')
        id = host.call_later('exec_command', {'argv': ['sh', '-c', 'echo try >> ran; touch ' + made]})
        host.answer(host.question(), ONCE)
        self.assertRan(host.result(id))
        self.assertEqual(self.runs(), ['try', 'try'])
        self.assertTrue(os.path.exists(made))

    def test_over_http(self):
        host = self.http('--approve', 'untrusted')
        host.open(capabilities={'elicitation': {}})
        id, q = self.later(host, 'a')
        host.answer(q, ONCE)
        self.assertRan(host.result(id))
        id, q = self.later(host, 'b')
        host.answer(q, DECLINE)
        self.assertRefused(host.result(id), 'rejected by user')
        self.assertEqual(self.runs(), ['a'])


class Pending(Asking):
    """A question that nobody answers for 50 s. What takes so long is waited for at once."""

    def begin(self, name, *args):
        """A server whose commands leave their lines in a place of their own."""
        host = self.mcp('--approve', 'untrusted', *args)
        host.name, host.began = name, time.monotonic()
        return host

    def post(self, host, *words, **more):
        return host.call_later('exec_command', note(host.name, *words), **more)

    def pending(self, host, id):
        r = host.result(id, 70 * wire.SCALE)
        self.assertRefused(r, PENDING)
        self.assertEqual(r.text, PENDING)
        spent = time.monotonic() - host.began
        self.assertGreater(spent, 45)
        self.assertLess(spent, 60 * wire.SCALE)

    def lines(self, host):
        return [line for line in self.runs() if line.split()[0] == host.name]

    def test_the_call_ends_and_the_same_call_has_the_answer(self):
        gate = os.path.join(self.base, 'answer')
        slow = self.program('slow', 'while [ ! -e %s ]; do sleep 0.1; done; echo \'{"decision":"approved"}\'\n' % gate)
        legacy, other = self.begin('legacy'), self.begin('other')
        late, program = self.begin('late'), self.begin('program', '--approver', 'program:' + slow)
        heard = self.begin('heard')
        hook = self.program('hook', 'cat > %s/hooked\nsleep 27\n' % self.base)
        hooked = self.begin('hooked', '--set', 'permission_hook=["%s","%s"]' % (hook, hook))
        hooked.open(capabilities={'elicitation': {}})
        for host in (legacy, other, late, heard):
            host.open(capabilities={'elicitation': {}})
        calls = [(h, self.post(h)) for h in (legacy, other, late, program, hooked)]
        patient = self.post(heard, progress='p')
        questions = {h.name: h.question() for h in (legacy, other, late, heard)}
        for host, id in calls:
            self.pending(host, id)
        self.assertEqual(self.runs(), [])

        # A progress token keeps a call open.
        self.assertEqual(heard.answers, {})
        heard.answer(questions['heard'], ONCE)
        self.assertRan(heard.result(patient))
        numbers = [n['params']['progress'] for n in heard.notifications if n['method'] == 'notifications/progress']
        self.assertGreaterEqual(len(numbers), 3)
        self.assertEqual(numbers, sorted(set(numbers)))

        # An answer that comes meanwhile is held: nothing starts until somebody comes back.
        legacy.answer(questions['legacy'], ONCE)
        open(gate, 'w').close()
        other.answer(questions['other'], DECLINE)
        time.sleep(1.5)
        self.assertEqual([line for line in self.runs() if not line.startswith('heard')], [])

        # A call that is another does not get it, and is asked about by itself.
        id = self.post(legacy, 'more')
        q = legacy.question()
        legacy.answer(q, DECLINE)
        self.assertRefused(legacy.result(id), 'rejected by user')
        self.assertEqual(self.lines(legacy), [])

        for host in (legacy, program):
            self.assertRan(host.result(self.post(host)))
            self.assertEqual(self.lines(host), [host.name])
        self.assertRefused(other.result(self.post(other)), 'rejected by user')
        self.assertEqual(self.lines(other), [])
        self.assertEqual(legacy.questions + other.questions, [])

        # It was for one call: the next is asked about again.
        id = self.post(legacy)
        legacy.answer(legacy.question(), DECLINE)
        self.assertRefused(legacy.result(id), 'rejected by user')
        self.assertEqual(self.lines(legacy), ['legacy'])

        # The answer that comes after the same call did is for that one, and nobody is asked twice.
        id = self.post(late)
        late.pump(0.5)
        self.assertEqual((late.questions, late.answers), ([], {}))
        late.answer(questions['late'], ONCE)
        self.assertRan(late.result(id))
        self.assertEqual(self.lines(late), ['late'])

        # Whatever takes so long: hooks were asked here, and now it is somebody's turn.
        id = self.post(hooked)
        hooked.answer(hooked.question(), ONCE)
        self.assertRan(hooked.result(id))
        self.assertEqual(self.lines(hooked), ['hooked'])


if __name__ == '__main__':
    tap.main()
