#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a host and its model hear of sessions that no call waits for: log messages, notes, marks in the list, progress."""

import mcp
import tap
from mcp import FORM, META
from wire import wait_until

GATED = ['sh', '-c', 'while [ ! -e over ]; do sleep 0.02; done; exit 3']


class Case(mcp.Case):
    def begin(self, host, *argv, **arguments):
        return host.exec(*(argv or GATED), yield_time_ms=250, **arguments)['session_id']

    def end(self, *args):
        if args:
            return super().end(*args)
        open(self.work + '/over', 'w').close()

    def logged(self, host):
        return [m['params'] for m in host.notifications if m['method'] == 'notifications/message']


class Logged(Case):
    def level(self, host, level):
        return host.ask('logging/setLevel', {'level': level})

    def test_the_end_of_a_background_session(self):
        host = self.mcp()
        host.open()
        self.assertEqual(self.level(host, 'info')['result'], {})
        session = self.begin(host)
        self.end()
        host.until(lambda: self.logged(host), 'the message')
        (message,) = self.logged(host)
        self.assertEqual((message['level'], message['logger']), ('info', 'sallyport'))
        data = message['data']
        self.assertEqual((data['event'], data['session_id'], data['exit_code']), ('session_ended', session, 3))
        self.assertIn('exit 3', data['command'])

    def test_levels(self):
        host = self.mcp()
        host.open()
        self.level(host, 'debug')
        host.exec('true')
        host.until(lambda: len(self.logged(host)) == 2, 'both messages')
        self.assertEqual([(m['level'], m['data']['event']) for m in self.logged(host)],
                         [('debug', 'session_started'), ('info', 'session_ended')])
        self.level(host, 'warning')
        host.exec('true')
        host.ask('ping')
        self.assertEqual(len(self.logged(host)), 2)
        for level in ('loud', 7, None):
            self.assertEqual(self.level(host, level)['error']['code'], -32602)

    def test_nothing_is_said_to_a_host_that_did_not_ask(self):
        host = self.mcp()
        host.open()
        host.exec('true')
        self.assertEqual(host.exec('true')['exit_code'], 0)
        self.assertEqual(self.logged(host), [])

    def test_while_a_modern_request_wants_it(self):
        host = self.mcp()
        session = self.begin(host)
        params = {'name': 'exec_command', 'arguments': {'argv': ['sh', '-c', 'touch begun; sleep 600'], 'yield_time_ms': 30000},
                  '_meta': mcp.meta(**{META + 'logLevel': 'info'})}
        id = host.post(host.request('tools/call', params))
        wait_until(lambda: len(host.sessions()) == 2, 'the second')
        self.end()
        host.until(lambda: self.logged(host), 'the message')
        self.assertEqual(self.logged(host)[0]['data']['session_id'], session)
        host.notify('notifications/cancelled', {'requestId': id})
        wait_until(lambda: all(s['state'] == 'exited' for s in host.sessions().values()), 'the end of both')
        self.assertEqual(len(self.logged(host)), 1)  # of the other nobody wanted to hear any more

    def test_with_an_open_request_over_http(self):
        host = self.http()
        host.open()
        self.level(host, 'info')
        session = self.begin(host)
        later = host.call_later('exec_command', {'argv': ['sleep', '600'], 'yield_time_ms': 1500})
        wait_until(lambda: len(host.sessions()) == 2, 'the second')
        self.end()
        host.until(lambda: self.logged(host), 'the message')
        self.assertEqual(self.logged(host)[0]['data']['session_id'], session)
        host.result(later)

    def test_another_caller_hears_nothing(self):
        one, other = self.http(tokens=('token-of-sixteen-characters', 'another-token-of-this-length'))
        for host in (one, other):
            host.open()
            self.level(host, 'debug')
        one.exec('true')
        other.ask('ping')
        self.assertEqual(self.logged(other), [])


class Noted(Case):
    def test_a_model_is_told_once(self):
        host = self.mcp()
        host.open(name='claude-code')
        session = self.begin(host)
        self.end()
        said = []
        wait_until(lambda: said.append(host.exec('true')) or 'note' in said[-1].structured, 'the note')
        self.assertRegex(said[-1]['note'], r'^Session %d has ended with code 3: sh -c ' % session)
        self.assertEqual(said[-1].content[1]['text'], said[-1]['note'])
        self.assertNotIn('note', host.exec('true').structured)

    def test_what_was_ended_to_make_room(self):
        """The limit of sessions is enforced by ending the one that was not used for longest."""
        host = self.mcp()
        first = self.begin(host, 'sleep', '600')
        for _ in range(0, 63, 21):
            later = [host.call_later('exec_command', {'argv': ['sleep', '600'], 'yield_time_ms': 250}) for _ in range(21)]
            for id in later:
                self.assertNotIn('note', host.result(id).structured)
        said = [host.exec('sleep', '601', yield_time_ms=250)]
        wait_until(lambda: 'note' in said[-1].structured or said.append(host.exec('true')), 'the note')
        self.assertRegex(said[-1]['note'], r'^Session %d has ended with code \d+: sleep 600$' % first)
        ended = host.sessions()[first]
        self.assertEqual((ended['state'], ended.get('ended_since_last_list')), ('exited', True), ended)

    def test_not_of_what_a_call_told(self):
        host = self.mcp()
        host.exec('true')
        session = self.begin(host)
        self.end()
        self.assertEqual(host.type(session, until={'exit': True}, yield_time_ms=5000)['exit_code'], 3)
        ended = self.begin(host, 'sleep', '600')
        host.kill(ended)
        ended = self.begin(host, 'sleep', '600')
        host.kill(ended, signal='KILL')
        self.assertNotIn('note', host.exec('true').structured)


class Listed(Case):
    def test_what_ended_since_the_last_list_is_marked(self):
        host = self.mcp()
        first = self.begin(host, 'sleep', '600')
        second = self.begin(host)
        third = self.begin(host, 'sleep', '601')
        host.exec('true')
        marked = [s for s in host.sessions().values() if s.get('ended_since_last_list')]
        self.assertEqual(marked, [])
        self.end()
        wait_until(lambda: host.read(second)['state'] == 'exited', 'its end')
        r = host.call('list_sessions')
        self.assertEqual([s['session_id'] for s in r['sessions']][:3], [first, second, third])
        self.assertEqual([s['session_id'] for s in r['sessions'] if s.get('ended_since_last_list')], [second])
        self.assertEqual([line for line in r.text.split('\n') if line.endswith('[ended since the last list]')],
                         [r.text.split('\n')[1]])
        self.assertNotIn('since', host.call('list_sessions').text)
        times = [s['started_at_ms'] for s in r['sessions']]
        self.assertEqual(times, sorted(times))


class Progress(Case):
    def test_a_start_is_told_at_once(self):
        host = self.mcp()
        id = host.call_later('exec_command', {'argv': ['sh', '-c', 'echo building; exec sleep 600'], 'yield_time_ms': 2000}, progress='t')
        host.until(lambda: len(host.notifications) >= 2, 'progress')
        said = [m['params'] for m in host.notifications]
        self.assertEqual([p['progress'] for p in said], [1, 2])
        self.assertEqual(said[0]['message'], 'starting')
        self.assertNotEqual(said[1]['message'], 'starting')
        host.kill(host.result(id)['session_id'])

    def test_a_question_is_told_at_once(self):
        host = self.mcp('--approve', 'untrusted')
        host.open(capabilities=FORM)
        host.call_later('exec_command', {'argv': ['touch', 'x']}, progress='t')
        host.question()
        host.until(lambda: any(m['params'].get('message') == 'waiting for approval' for m in host.notifications), 'progress')


if __name__ == '__main__':
    tap.main()
