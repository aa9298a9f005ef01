# SPDX-License-Identifier: Apache-2.0
"""Calls of the official SDKs that take their time: progress, cancelling, time-outs, many at once, lost connections."""

import signal

import sdk
import wire

import tap

TALK = 'i=0; while :; do echo line $i; i=$((i+1)); sleep 0.2; done'


@sdk.each()
class Calls(sdk.Case):
    def busy(self, c, **more):
        """A call that is under way: its order, and the session that it started."""
        order = c.call_later('exec_command', {'argv': ['sh', '-c', TALK], 'yield_time_ms': 30000, **more}, progress=True)
        c.progress(order)

        def find():
            sessions = c.call('list_sessions')['sessions']
            return sessions and sessions[0]['session_id']

        wire.wait_until(find, 'a session')
        return order, find()

    def check_progress(self, kind, over):
        c = self.client(kind, over)
        order = c.call_later('exec_command', {'argv': ['sleep', '0.3']}, progress=True)
        first = c.progress(order)
        self.assertIsInstance(first['progress'], (int, float))
        self.assertEqual(sdk.Result(c.result(order))['exit_code'], 0)
        self.assertEqual(c.troubles(), [])

    def check_abort_of_a_start(self, kind, over):
        """The process ends with the call: its id was never told."""
        c = self.client(kind, over)
        order, session = self.busy(c)
        c.do('abort', of=order)
        with self.assertRaises(sdk.Failed):
            c.result(order)
        wire.wait_until(lambda: [s['state'] for s in c.call('list_sessions')['sessions']] == ['exited'], 'its end')

    def check_abort(self, kind, over):
        """Of a start with a key, or of a later call, the wait ends and the process does not: nothing of its output is
        lost, and it can be waited for again."""
        c = self.client(kind, over)
        order, session = self.busy(c, key='kept')
        c.do('abort', of=order)
        with self.assertRaises(sdk.Failed):
            c.result(order)
        for n in range(2):
            r = c.call('write_stdin', session_id=session, until={'pattern': 'line [0-9]+'}, yield_time_ms=20000)
            self.assertFalse(r.failed, r)
            self.assertEqual(r['session_id'], session)
            order = c.call_later('write_stdin', {'session_id': session, 'yield_time_ms': 30000}, progress=True)
            c.progress(order)
            c.do('abort', of=order)
            with self.assertRaises(sdk.Failed):
                c.result(order)
        r = c.call('read_output', session_id=session, from_byte=0, limit=14)
        self.assertEqual(r['output'], 'line 0\nline 1\n')
        self.assertEqual(c.call('signal_session', session_id=session)['state'], 'exited')

    def check_timeout(self, kind, over):
        """The client's own patience ends; a repeated start with the same key finds the same session."""
        c = self.client(kind, over)
        start = {'argv': ['sh', '-c', 'echo begun; exec sleep 60'], 'key': 'once', 'yield_time_ms': 30000}
        order = c.call_later('exec_command', start, timeout=700)
        with self.assertRaises(sdk.Failed) as e:
            c.result(order)
        self.assertRegex(str(e.exception), '(?i)timed? ?out')
        r = c.call('exec_command', **start, until={'pattern': 'begun'})
        self.assertEqual([s['session_id'] for s in c.call('list_sessions')['sessions']], [r['session_id']])
        r = c.call('read_output', session_id=r['session_id'], from_byte=0)
        self.assertEqual(r['output'], 'begun\n')

    def check_hundred_at_once(self, kind, over):
        c = self.client(kind, over)
        orders = []
        for n in range(50):
            orders.append((n, c.call_later('exec_command', {'argv': ['echo', str(n)], 'yield_time_ms': 30000})))
            orders.append((None, c.call_later('list_sessions') if n % 2 else
                           c.call_later('explain_denial', {'path': '/usr/denied'})))
        for n, order in orders:
            r = sdk.Result(c.result(order))
            self.assertFalse(r.failed, r)
            if n is not None:
                self.assertEqual((r['exit_code'], r['output']), (0, '%d\n' % n))
        self.assertEqual(c.troubles(), [])

    def check_leaving(self, kind, over):
        """With a call open. Over stdio everything ends; over HTTP the next client of the same caller finds what has a
        key."""
        c = self.client(kind, over)
        order, session = self.busy(c, key='kept')
        c.close()
        with self.assertRaises(sdk.Failed):
            c.result(order)
        if over == 'stdio':
            self.assertNothingLeft()
            return
        c = self.client(kind, over)
        r = c.call('write_stdin', session_id=session, until={'pattern': 'line [1-9]'}, yield_time_ms=20000)
        self.assertEqual(r['session_id'], session)
        r = c.call('read_output', session_id=session, from_byte=0, limit=14)
        self.assertEqual(r['output'], 'line 0\nline 1\n')


@sdk.each(sdk.ERAS, ('relay',))
class Relay(sdk.Case):
    def check_a_session_that_outlives_its_client(self, kind, over):
        c = self.client(kind, over)
        session = c.call('exec_command', argv=['cat'], tty=True, yield_time_ms=300)['session_id']
        c.close()
        c = self.client(kind, over)
        r = c.call('write_stdin', session_id=session, chars='again\n', yield_time_ms=20000,
                   until={'pattern': 'again\\s+again'})
        self.assertEqual(r['output'], 'again\r\nagain\r\n')

    def check_a_question(self, kind, over):
        c = self.client(kind, over, capabilities=sdk.FORM)
        order = c.call_later('exec_command', {'argv': ['echo', 'asked'], 'sandbox_permissions': 'require_escalated',
                                              'justification': 'May it?'})
        c.answer(c.question(), 'accept', decision='once')
        self.assertEqual(sdk.Result(c.result(order))['output'], 'asked\n')


@sdk.each([k for k in sdk.KINDS if k.era == 'modern'][:1], ('stdio', 'http', 'relay'))
class Listen(sdk.Case):
    def check_nothing_to_hear_of(self, kind, over):
        """The list of tools never changes: the subscription is acknowledged, honours nothing, and is in nobody's way."""
        c = self.client(kind, over)
        self.assertEqual(c.do('listen'), {})
        self.assertEqual(c.run('echo beside')['output'], 'beside\n')
        c.close()
        c.node.event('unsubscribed', client=c.id)

    def test_the_end_of_the_server(self):
        """It says that it leaves."""
        server = self.http(tokens=(sdk.TOKEN,))
        self.url = server.url
        c = self.client(sdk.KINDS[2], 'http')
        c.do('listen')
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(c.node.event('unsubscribed', client=c.id)['how'], 'graceful')


class Http(sdk.Case):
    def test_a_session_that_its_client_ends(self):
        """Its processes are the caller's, not the session's."""
        for kind in sdk.KINDS[:2]:
            with self.subTest(kind.name):
                c = self.client(kind, 'http')
                session = c.run('sleep 60', yield_time_ms=250)['session_id']
                c.do('terminate')
                with self.assertRaises(sdk.Failed):
                    c.call('list_sessions')
                c = self.client(kind, 'http')
                r = c.call('signal_session', session_id=session)
                self.assertEqual(r['state'], 'exited')

    def test_a_wrong_token(self):
        url = self.http(tokens=(sdk.TOKEN,)).url
        for kind in sdk.KINDS:
            with self.assertRaises(sdk.Failed, msg=kind.name):
                sdk.Client(kind, url=url, token='another-token-of-this-length')

    def test_callers_do_not_meet(self):
        """Two tokens, two kinds of clients: neither sees the other's session."""
        tokens = [sdk.TOKEN, 'another-token-of-this-length']
        url = self.http(tokens=tokens)[0].url
        clients = [sdk.Client(kind, url=url, token=token) for kind, token in zip(sdk.ERAS, tokens)]
        for c in clients:
            self.addCleanup(c.close)
        sessions = [c.run('sleep 60', yield_time_ms=250)['session_id'] for c in clients]
        for c, own, others in zip(clients, sessions, reversed(sessions)):
            self.assertEqual([s['session_id'] for s in c.call('list_sessions')['sessions']], [own])
            self.assertTrue(c.call('write_stdin', session_id=others).failed)
            self.assertFalse(c.call('signal_session', session_id=own, signal='KILL').failed)

    def test_both_eras_on_one_server(self):
        """A session begun by a client of one era is served on by one of the other, of the same caller."""
        old, new = self.client(sdk.ERAS[0], 'http'), self.client(sdk.ERAS[1], 'http')
        session = old.call('exec_command', argv=['cat'], tty=True, yield_time_ms=300)['session_id']
        r = new.call('write_stdin', session_id=session, chars='across\n', yield_time_ms=20000,
                     until={'pattern': 'across\\s+across'})
        self.assertEqual(r['output'], 'across\r\nacross\r\n')
        r = old.call('write_stdin', session_id=session, eof=True, until={'exit': True}, yield_time_ms=20000)
        self.assertEqual(r['exit_code'], 0)


if __name__ == '__main__':
    tap.main()
