# SPDX-License-Identifier: Apache-2.0
"""Questions of `sallyport mcp` by `input_required`: what each answer leads to, and
that nothing runs that nobody allowed, nor twice what was allowed once."""

import json
import os
import time

import mcp
import tap
from mcp import FORM
from mcp_asking import CANCEL, DECLINE, DENY, M13, NO_PERSON, ONCE, RULE, SESSION, Asking, choices, note

BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'


class Modern(Asking):
    def test_accepted_it_runs_once(self):
        host = self.wary()
        asked = key, form, state = self.ask(host, note('a'))
        self.assertEqual(self.runs(), [])
        self.assertIn('./note a', form['message'])
        self.assertIn(self.work, form['message'])
        self.assertEqual((form['requestedSchema']['type'], form['requestedSchema']['required']), ('object', ['decision']))
        self.assertEqual(choices(form), [('once', 'Allow once'), ('session', 'Allow for this session'),
                                         ('rule', 'Always, unasked, WITHOUT A SANDBOX: ./note a'), ('deny', 'Deny')])
        self.assertRegex(state, r'^v1\.[\w-]+\.[\w-]{43}$')
        self.assertRegex(key, r'^approve_[1-9]\d*$')
        r = self.come_back(host, note('a'), asked, ONCE)
        self.assertRan(r)
        self.assertEqual((r.kind, self.runs()), ('complete', ['a']))
        self.ask(host, note('a'))  # once was once
        self.assertEqual(self.runs(), ['a'])

    def test_refused_it_does_not_run(self):
        host = self.wary()
        for answer, text in ((DECLINE, NO_PERSON), (DENY, 'exec command rejected by user'),
                             (CANCEL, NO_PERSON)):
            self.assertRefused(self.allow(host, note('a'), answer), text)
        self.assertEqual(self.runs(), [])
        self.assertRan(host.call('exec_command', {'argv': ['ls']}))  # the caller goes on

    def test_three_short_lines_have_what_matters(self):
        """Hosts show as little as that; and labels are cut, so the warning comes first."""
        host = self.wary()
        free = {**note('a'), 'sandbox_permissions': 'require_escalated', 'justification': 'May I?'}
        for arguments, first in ((free, 'Run this WITHOUT A SANDBOX?'), (note('a'), 'Run this in the sandbox :workspace?')):
            _, form, _ = self.ask(host, arguments)
            lines = form['message'].splitlines()
            self.assertEqual(lines[:2], [first, 'command: ./note a'])
            self.assertEqual(lines[2], 'reason: May I?') if arguments is free else None
            titles = dict(choices(form))
            self.assertEqual('WITHOUT A SANDBOX' in titles['once'], arguments is free)
            self.assertTrue(titles['rule'].startswith('Always, unasked, WITHOUT A SANDBOX: '))

    def test_what_was_not_shown_is_not_allowed_for_longer(self):
        host = self.wary()
        hidden = {'argv': ['./note', 'a' * 3000 + '; rm -r x' + 'a' * 3000]}
        asked = self.ask(host, hidden)
        self.assertRegex(asked[1]['message'], r'a\nNOT SHOWN: \d+ bytes\na')
        self.assertNotIn('rm -r x', asked[1]['message'])
        self.assertEqual([c for c, _ in choices(asked[1])], ['once', 'deny'])
        asked = self.asked(self.come_back(host, hidden, asked, SESSION))  # which is no answer, so it is asked again
        self.assertRan(self.come_back(host, hidden, asked, ONCE))
        free = {**hidden, 'sandbox_permissions': 'require_escalated', 'justification': 'May I?'}
        asked = self.ask(host, free)
        self.assertEqual([c for c, _ in choices(asked[1])], ['deny'])
        self.asked(self.come_back(host, free, asked, ONCE))
        self.assertEqual(len(self.runs()), 1)

    def test_an_approval_without_a_login_shell_is_none_for_one(self):
        """A login shell reads files of the home directory before the command."""
        host = self.wary()
        once, login = ({'cmd': './note a', 'login': login} for login in (False, True))
        self.assertRan(self.allow(host, once, SESSION))
        self.assertRan(host.call('exec_command', once, capabilities=FORM))
        self.ask(host, login)
        self.assertEqual(self.runs(), ['a', 'a'])

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
        for answer in (ONCE, SESSION, DENY):
            self.assertRefused(self.come_back(host, note('a'), asked, answer), 'requestState was used before')
        declined = self.ask(host, note('b'))
        self.assertRefused(self.come_back(host, note('b'), declined, DENY), 'rejected by user')
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
        r = self.come_back(self.wary(), note('a'), asked, ONCE)
        self.assertEqual(r.error['code'], -32602)
        self.assertIn('it was not made by this server', r.error['message'])
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
            r = host.result(id)
            self.assertEqual(r.error['code'], -32602)
            self.assertIn('it was not made by this server, or was changed since', r.error['message'])
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
        to_nobody = (None, {}, {'approve_999': ONCE}, {'approve_0': ONCE}, {'': ONCE})
        no_answers = (None, 7, [], 'accept', {}, {'action': 1}, {'action': 'accept'},
                      {'action': 'ACCEPT', 'content': {'decision': 'once'}}, *(
                          {'action': 'accept', 'content': c} for c in (
                              None, 'once', {}, {'decision': 'yes'}, {'decision': ['once']}, {'decision': 'approved'})))
        for key, answer in [(None, a) for a in to_nobody] + [('its own', a) for a in no_answers]:
            old, responses = asked, answer if key is None else {asked[0]: answer}
            asked = self.asked(host.call('exec_command', note('a'), capabilities=FORM, state=old[2], responses=responses))
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

    def test_rules_of_strange_words(self):
        """What is shown is harmless, what is kept is what was shown, and what is too long to be shown is not offered."""
        host = self.wary()
        strange = (['a"b\\'], ['-x', '$(touch evil)'], ['a\nb'], ['\u202e\x1b[2J'], ['\u00e9' * 300], ['x' * 5000])
        for words in strange:
            asked = self.ask(host, note(*words))
            message, offered = asked[1]['message'], dict(choices(asked[1]))
            self.assertTrue(all(c == '\n' or (c >= ' ' and c != '\u202e') for c in message + offered.get('rule', '')), words)
            self.assertLess(len(message.encode()), 8192)
            self.assertEqual('rule' in offered, words != strange[-1])
            self.assertRan(self.come_back(host, note(*words), asked, RULE if 'rule' in offered else ONCE))
        other = self.wary()
        for words in strange[:-1]:
            self.assertRan(other.call('exec_command', note(*words)))
        self.assertRefused(other.call('exec_command', note(*strange[-1])), M13)
        self.assertFalse(os.path.exists(os.path.join(self.work, 'evil')))

    # -- other questions

    def test_once_more_without_the_sandbox(self):
        host = self.mcp('--approve', 'on-failure')
        made = os.path.join(self.beside, 'made')
        arguments = {'argv': ['sh', '-c', 'echo try >> ran; touch ' + made]}
        first = self.ask(host, arguments)
        self.assertEqual(self.runs(), ['try'])
        self.assertIn('Run it again WITHOUT A SANDBOX?', first[1]['message'])
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
        self.assertRefused(self.come_back(host, arguments, second, DENY), 'rejected by user')
        self.assertEqual(self.runs(), ['try'])
        self.assertFalse(os.path.exists(made))

    def test_a_denial_after_a_while_is_asked_about_too(self):
        """Not only what fails at once: a build that was denied something at its end."""
        host = self.mcp('--approve', 'on-failure')
        made = os.path.join(self.beside, 'made')
        arguments = {'argv': ['sh', '-c', 'echo try >> ran; sleep 0.7; echo said; touch ' + made], 'yield_time_ms': 30000}
        asked = self.ask(host, arguments)
        self.assertIn('Run it again WITHOUT A SANDBOX?', asked[1]['message'])
        self.assertEqual(self.runs(), ['try'])
        refused = self.come_back(host, arguments, asked, DENY)
        self.assertRefused(refused, 'rejected by user')  # and what the first attempt printed is not lost
        self.assertRegex(refused.text, r'(?s)The attempt in the sandbox:\n.*Process exited with code 1\n.*said\ntouch: ')
        self.assertFalse(os.path.exists(made))
        r = self.come_back(host, arguments, self.ask(host, arguments), ONCE)
        self.assertRan(r)
        self.assertEqual((r['output'], self.runs()), ('said\n', ['try'] * 3))
        self.assertTrue(os.path.exists(made))

    def test_a_signal_of_a_command_without_a_sandbox_is_no_denial(self):
        """SIGSYS is what the filter of a sandbox sends; anybody else may send it, too."""
        host = self.mcp('--approve', 'on-request')
        arguments = {'argv': ['sh', '-c', 'kill -SYS $$'], 'sandbox_permissions': 'require_escalated',
                     'justification': 'to see it end'}
        r = self.come_back(host, arguments, self.ask(host, arguments), ONCE)
        self.assertEqual((r['signal'], r['denials']), ('SIGSYS', []), r)
        self.assertNotIn('Sandbox denied', r.text)
        (session,) = host.sessions()
        r = host.call('explain_denial', {'session_id': session}, capabilities=FORM)
        self.assertEqual(r['denials'], [], r)

    def test_a_denial_after_the_call_was_answered_is_told(self):
        host = self.mcp('--approve', 'on-failure')
        made = os.path.join(self.beside, 'made')
        r = host.call('exec_command', {'argv': ['sh', '-c', 'read x; touch ' + made], 'yield_time_ms': 300, 'tty': True},
                      capabilities=FORM)
        r = host.call('write_stdin', {'session_id': r['session_id'], 'chars': '\n', 'yield_time_ms': 5000,
                                      'until': {'exit': True}}, capabilities=FORM)
        self.assertEqual((r.kind, r.get('exit_code')), ('complete', 1), r)
        self.assertIn('Sandbox denied:', r.text)
        self.assertIn('require_escalated', host.call('explain_denial', {'path': made}, capabilities=FORM).text)

    def test_output_alone_asks_nothing_without_the_heuristic(self):
        """retry_on_heuristic = false: words in the output are a guess, whoever found them."""
        self.configure('retry_on_heuristic = false\n')
        host = self.mcp('--approve', 'on-failure')
        r = host.call('exec_command', {'argv': ['sh', '-c', 'echo try >> ran; echo Permission denied; exit 1']},
                      capabilities=FORM)
        self.assertEqual((r.kind, r.get('exit_code'), self.runs()), ('complete', 1, ['try']), r)
        self.assertIn('Sandbox denied:', r.text)

    def test_a_second_attempt_is_logged(self):
        host = self.mcp('--approve', 'on-failure')
        host.open('2025-11-25', FORM)
        host.ask('logging/setLevel', {'level': 'info'})
        id = host.call_later('exec_command', {'argv': ['touch', os.path.join(self.beside, 'made')]})
        host.answer(host.question(), ONCE)
        self.assertRan(host.result(id))
        self.assertEqual([m['params']['data']['message'] for m in host.notifications
                          if m['method'] == 'notifications/message' and m['params']['data']['event'] == 'notice'],
                         ['Execution failed: the sandbox denied it something (exit code 1)',
                          'retrying command without sandbox'])

    def test_without_the_sandbox_from_the_beginning(self):
        host = self.mcp()
        made = os.path.join(self.beside, 'made')
        arguments = {'argv': ['touch', made], 'sandbox_permissions': 'require_escalated',
                     'justification': 'May I leave\u202e a \x1b[31mmark?'}
        _, form, _ = asked = self.ask(host, arguments)
        self.assertTrue(form['message'].startswith('Run this WITHOUT A SANDBOX?'))
        self.assertIn('reason: May I leave\\u{202e} a \\x1b[31mmark?', form['message'])
        self.assertNotIn('\x1b', form['message'])
        self.assertRefused(self.come_back(host, arguments, asked, DENY), 'rejected by user')
        self.assertFalse(os.path.exists(made))
        self.assertRan(self.allow(host, arguments))
        self.assertTrue(os.path.exists(made))

    def test_what_a_denial_proposes_can_be_asked_for(self):
        host = self.mcp('--set', 'features.exec_permission_approvals=true')
        made = os.path.join(self.beside, 'made')
        (denial,) = host.call('exec_command', {'argv': ['touch', made]})['denials']
        arguments = {'argv': ['sh', '-c', 'touch {0}/made && ! touch {0}-more'.format(self.beside)],
                     'sandbox_permissions': 'with_additional_permissions', 'justification': 'May I leave a mark?',
                     'additional_permissions': denial['proposed_amendment']}
        asked = self.ask(host, arguments)
        self.assertIn('also allowed to write: ' + self.beside, asked[1]['message'])
        self.assertIn('May I leave a mark?', asked[1]['message'])
        r = self.come_back(host, arguments, asked, ONCE)
        self.assertFalse(r.failed, r)
        self.assertEqual((r.get('exit_code'), os.path.exists(made)), (0, True), r)
        self.assertEqual(host.call('exec_command', {'argv': ['touch', made]})['exit_code'], 1)  # once was once

    def test_a_patch_outside_of_the_workspace(self):
        host = self.mcp(env=mcp.PATCHES)
        made = os.path.join(self.beside, 'made')
        patch = {'input': '*** Begin Patch\n*** Add File: %s\n+hello\n*** End Patch\n' % made}
        _, form, _ = asked = self.ask(host, patch, tool='apply_patch')
        self.assertIn(made, form['message'])
        self.assertIn('hello', form['message'])
        self.assertRefused(self.come_back(host, patch, asked, DENY, tool='apply_patch'), 'patch rejected by user')
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


if __name__ == '__main__':
    tap.main()
