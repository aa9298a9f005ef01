# SPDX-License-Identifier: Apache-2.0
"""Questions of `sallyport mcp` in the legacy era: requests to the client, its answers, and those that take too long."""

import json
import os
import time

import mcp
import tap
import wire
from mcp import FORM
from mcp_asking import CANCEL, DECLINE, DENY, M13, NO_PERSON, ONCE, SESSION, Asking, choices, note
from wire import wait_until

PENDING = 'approval is still pending; repeat the same call'


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
            for answer, text in ((DECLINE, NO_PERSON), (DENY, 'exec command rejected by user'),
                                 (CANCEL, NO_PERSON)):
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
            self.assertRefused(host.result(id), NO_PERSON)
        self.assertEqual(self.runs(), [])

    def test_a_question_stops_the_clock_of_other_calls(self):
        """Their time does not run out while the person thinks; what has ended is told."""
        host = self.begin()
        session = host.call('exec_command', {'argv': ['cat'], 'tty': True, 'yield_time_ms': 250})['session_id']
        id, q = self.later(host, 'a')
        other = host.call_later('write_stdin', {'session_id': session, 'chars': 'x', 'yield_time_ms': 250})
        ended = host.call_later('exec_command', {'argv': ['ls'], 'yield_time_ms': 250})
        self.assertRan(host.result(ended))
        time.sleep(0.6)
        host.ask('ping')
        self.assertNotIn(json.dumps(other), host.answers)
        host.answer(q, ONCE)
        self.assertEqual(host.result(other).get('session_id'), session)
        self.assertRan(host.result(id))

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
        host.answer(q1, DENY)
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
        one.answer(q, DENY)
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
        modern = {'name': 'exec_command', 'arguments': note('modern')}
        key, _, state = self.asked(mcp.Result(host.modern('tools/call', modern, FORM)))
        answer = host.modern('tools/call', {**modern, 'requestState': state, 'inputResponses': {key: ONCE}}, FORM)
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

    def test_as_many_questions_as_there_are_calls(self):
        host = self.begin()
        ids = [host.call_later('exec_command', note(str(n))) for n in range(150)]
        host.until(lambda: len(host.questions) == 150, 'all questions')
        for n, q in enumerate(reversed(host.questions)):
            host.answer(q, ONCE if n % 2 else DENY)
        self.assertEqual(sum(host.result(id).failed for id in ids), 75)
        self.assertEqual((len(self.runs()), len(set(self.runs()))), (75, 75))

    def test_a_stream_that_breaks_is_no_cancellation(self):
        host = self.http('--approve', 'untrusted')
        host.open(capabilities={'elicitation': {}})
        message = host.request('tools/call', {'name': 'exec_command', 'arguments': note('a')})
        c, r = host.exchange(json.dumps(message), host.heads(message))
        line = b''
        while b'elicitation/create' not in line:
            line = r.readline()
            self.assertTrue(line)
        r.close()
        c.close()
        self.assertEqual(self.runs(), [])
        host.answer(json.loads(line[len('data: '):]), ONCE)
        wait_until(lambda: self.runs() == ['a'], 'what was allowed')

    def test_a_session_that_is_ended_asks_no_more(self):
        host = self.http('--approve', 'untrusted')
        host.open(capabilities={'elicitation': {}})
        _, q = self.later(host, 'a')
        c, r = host.exchange(None, host.heads({}), method='DELETE')
        self.assertIn(r.status, (200, 204))
        c.close()
        host.answer(q, ONCE)
        self.assertEqual((host.status, self.runs()), (404, []))

    def test_over_http(self):
        host = self.http('--approve', 'untrusted')
        host.open(capabilities={'elicitation': {}})
        id, q = self.later(host, 'a')
        host.answer(q, ONCE)
        self.assertRan(host.result(id))
        id, q = self.later(host, 'b')
        host.answer(q, DENY)
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
        self.assertGreater(spent, 40)
        self.assertLess(spent, 60 * wire.SCALE)

    def lines(self, host):
        return [line for line in self.runs() if line.split()[0] == host.name]

    def test_the_call_ends_and_the_same_call_has_the_answer(self):
        gate = os.path.join(self.base, 'answer')
        slow = self.program('slow', 'while [ ! -e %s ]; do sleep 0.1; done; echo \'{"decision":"approved"}\'\n' % gate)
        legacy, other = self.begin('legacy'), self.begin('other')
        late, program = self.begin('late'), self.begin('program', '--approver', 'program:' + slow)
        heard = self.begin('heard')
        hook = self.program('hook', 'cat > %s/hooked\nsleep 18\n' % self.base)
        hooked = self.begin('hooked', '--set', 'permission_hook=["%s","%s","%s"]' % (hook, hook, hook))
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
        other.answer(questions['other'], DENY)
        time.sleep(1.5)
        self.assertEqual([line for line in self.runs() if not line.startswith('heard')], [])

        # A call that is another does not get it, and is asked about by itself.
        id = self.post(legacy, 'more')
        q = legacy.question()
        legacy.answer(q, DENY)
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
        legacy.answer(legacy.question(), DENY)
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
