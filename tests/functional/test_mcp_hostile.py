# SPDX-License-Identifier: Apache-2.0
"""What no host should send or do over lines: the server says what is wrong, stays bounded, and lives on."""

import json
import os
import random
import select
import time

import mcp
import server
import tap
from mcp import FORM, META, TASKS, meta
from mcp_wire import TOOLS, Wire, call, call_modern, error, initialize, modern, request, result
from wire import wait_until

SEED = int(os.environ.get('SALLYPORT_TEST_SEED', '20260728'))


class Ids(Wire):
    def test_all_kinds(self):
        for id in (0, 1, -1, (1 << 53) + 1, -(1 << 63), (1 << 64) - 1, '', 'x', 'ü\U0001f600', '"\\\n\u0000\u2028', '1',
                   'x' * 254):
            self.check(request(id, 'ping'), result(id))

    def test_none_that_are_none(self):
        for id in (None, 1.5, True, False, [], {}, [1], 1e30, 1 << 64, 'x' * 255, 'x' * 100000):
            self.check_code(request(id, 'ping'), -32600)

    def test_as_they_were_written(self):
        self.host.send_raw(b'{"jsonrpc":"2.0","id":"\\u0061\\/","method":"ping"}\n')
        self.host.until(lambda: self.host.log, 'the answer')
        self.assertEqual(self.host.log[-1]['id'], 'a/')

    def test_one_that_is_open(self):
        self.host.open()
        self.host.send(call_modern(1, 'exec_command', argv=['sleep', '600'], yield_time_ms=30000))
        wait_until(lambda: self.host.sessions(), 'the session')
        self.check(request(1, 'ping'), error(1, -32600, 'a request with this id is open'))
        self.check(call_modern(1, 'list_sessions'), error(1, -32600, 'a request with this id is open'))
        self.check(request('1', 'ping'), result('1'))
        self.host.answers.clear()
        self.host.kill(*self.host.sessions())
        self.assertEqual(self.host.wait(1)['result']['structuredContent']['state'], 'exited')
        self.check(request(1, 'ping'), result(1))

    def test_many_open(self):
        for n in range(300):
            self.host.send(modern('s%d' % n, 'subscriptions/listen', {'notifications': {}}))
        self.host.until(lambda: len(self.host.log) == 300, 'all')
        refused = [m for m in self.host.log if 'error' in m]
        self.assertEqual((len(self.host.notifications), len(refused)), (256, 44))
        self.assertEqual({m['error']['code'] for m in refused}, {-32603})
        for n in range(256):
            self.host.notify('notifications/cancelled', {'requestId': 's%d' % n})
        self.check(modern('again', 'subscriptions/listen', {'notifications': {}}), {
            'jsonrpc': '2.0', 'method': 'notifications/subscriptions/acknowledged',
            'params': {'_meta': {META + 'subscriptionId': 'again'}, 'notifications': {}}})


class Malformed(Wire):
    def test_not_json(self):
        for line in (b'x', b'{', b'{"jsonrpc":"2.0"', b'nul', b'"', b'{"a":1,}', b'[1,]', b'{} {}', b'\x00', b'\xff\xfe',
                     b'{"jsonrpc":"2.0","id":1,"method":"\xc3\x28"}', b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
                     b"{'jsonrpc':'2.0'}", b'\xef\xbb\xbf{}', b'[' * 100000, b'{"a":' * 100000, b'01', b'1e',
                     b'{"jsonrpc":"2.0","id":1,"method":"pi\tng"}', b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}'):
            self.check_code(line + b'\n', -32700)

    def test_not_a_message(self):
        for value in (1, 'x', None, True, 1.5, {}, {'jsonrpc': '2.0'}, {'id': 1, 'method': 'ping'},
                      {'jsonrpc': '1.0', 'method': 'ping'}, {'jsonrpc': 2.0, 'method': 'ping'},
                      {'jsonrpc': '2.0', 'method': 1}, {'jsonrpc': '2.0', 'method': None},
                      {'jsonrpc': '2.0', 'method': 'ping', 'params': 1}, {'jsonrpc': '2.0', 'method': 'ping', 'params': []}):
            (answer,) = self.said(value)
            self.assertEqual(answer['error']['code'], -32600, value)
        self.check_code(request(5, 'ping', [1]), -32600, 5)
        self.check_code({'jsonrpc': '2.0', 'id': 5, 'method': 7}, -32600, 5)

    def test_white_space_is_no_message(self):
        self.silent(b'\n\r\n  \n\t\n')
        self.check(b'  ' + json.dumps(request(1, 'ping')).encode() + b' \r\n', result(1))

    def test_torn_anywhere(self):
        for byte in json.dumps(request(1, 'ping')).encode():
            self.host.send_raw(bytes([byte]))
        self.check(b'\n', result(1))
        line = json.dumps(request(1, 'ping')).encode() + b'\n'
        self.host.sort_one = lambda m: None
        (*answers,) = self.said(line * 500, 500)
        self.assertEqual(answers, [result(1)] * 500)

    def test_members_twice(self):
        """Whoever reads it before us may go by the other one."""
        for line in (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}',
                     b'{"jsonrpc":"2.0","jsonrpc":"2.0","method":"x"}', b'{"jsonrpc":"2.0","method":"x","\\u006dethod":"y"}'):
            self.check_code(line + b'\n', -32700)

    def test_large_messages(self):
        big = 'x' * (12 << 20)
        self.check(request(1, 'ping', {'x': big}), result(1))
        self.check_code(call_modern(2, 'x' * (1 << 20)), -32602, 2)
        (answer,) = self.said(call_modern(3, 'exec_command', argv=['true', big]))
        self.assertIn('Argument list too long', answer['result']['content'][0]['text'])
        deep = json.loads('[' * 200 + ']' * 200)
        self.assertEqual(len(self.said(modern(4, 'tools/list', {'x': deep}))), 1)

    def test_too_large_a_message_is_skipped(self):
        """It is thrown away as it comes, said to be too large, and whatever runs goes on."""
        session = self.host.exec('sleep', '600', yield_time_ms=250)['session_id']
        too_large = 'the line is not UTF-8, or longer than 16 MiB'
        for size in ((16 << 20) + 1, 40 << 20):
            for end in (b'\n', b'\r\n', b'\n' + json.dumps({'jsonrpc': '2.0', 'method': 'x'}).encode() + b'\n'):
                self.check(b'x' * size + end, error(None, -32700, too_large))
        line = json.dumps(request(1, 'ping', {'x': ''})).encode()
        full = line.replace(b'""', b'"%s"' % (b'x' * ((16 << 20) - len(line))))
        self.assertEqual(len(full), 16 << 20)
        self.check(full + b'\n', result(1))
        self.check(full + b' \n', error(None, -32700, too_large))
        self.check(b'x' * (17 << 20) + b'\n' + line + b'\n', error(None, -32700, too_large), result(1))
        self.assertLess(memory_of(self.host.process.pid), (900 if server.SANITIZED else 120) << 20)
        self.assertIn(session, self.host.sessions())


class Mutations(Wire):
    """Valid messages with something wrong, thousands of them: whatever is said, it is said in order and lives on."""
    COUNT = 3000

    def seeds(self):
        return [json.dumps(m).encode() for m in (
            modern('d', 'server/discover'), modern(1, 'tools/list', {'cursor': None}), request(1, 'ping'),
            call_modern(1, 'list_sessions'), call_modern(2, 'read_output', session_id=1000, grep='a+(b|c)', context=1),
            call_modern(3, 'write_stdin', session_id=1000, chars='x', until=[{'pattern': 'a|b'}, {'quiet_ms': 1}]),
            call_modern(4, 'signal_session', session_id=1000, signal='TERM'),
            call_modern(5, 'explain_denial', path='/usr/x'), call_modern(6, 'resize_session', session_id=1, rows=2, cols=3),
            modern(7, 'tasks/get', {'taskId': 'task-1'}, TASKS), initialize(8, '2025-03-26', elicitation={}),
            modern(9, 'tasks/update', {'taskId': 'task-1', 'inputResponses': {'approve_1': {'action': 'accept'}}}, TASKS),
            [request(1, 'ping'), request(2, 'tools/list')], call(10, 'list_sessions'),
            {'jsonrpc': '2.0', 'id': 'elicit-1', 'result': {'action': 'accept', 'content': {'decision': 'once'}}},
            modern(11, 'tools/call', {'name': 'list_sessions', 'requestState': 'v1.AAAA.AAAA', 'inputResponses': {}}),
            {'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 1, 'reason': 'x'}})]

    def mutate(self, chance, line):
        line = bytearray(line)
        for _ in range(chance.choice((1, 1, 1, 2, 4, 9))):
            at = chance.randrange(len(line) + 1)
            kind = chance.randrange(7)
            if kind == 0:
                line[at:at + 1] = bytes([chance.randrange(256)])
            elif kind == 1:
                del line[at:at + chance.randrange(1, 20)]
            elif kind == 2:
                line[at:at] = line[chance.randrange(len(line) + 1):][:chance.randrange(1, 40)]
            elif kind == 3:
                line[at:at] = chance.choice((b'"', b'{', b'}', b'[', b']', b',', b':', b'\\', b'\\u0000', b'\\ud800', b'\xff',
                                             b'null', b'-1', b'1e999', b'\x00', b'99999999999999999999', b'\r', b'"id":1,'))
            elif kind == 4:
                line = line[:at]
            elif kind == 5:
                line = bytearray(line.replace(chance.choice((b'1', b'"', b'io.', b'{}', b'tools')),
                                              chance.choice((b'2', b'', b'[]', b'null', b'"x"')), 1))
            else:
                line = line[:at] + line[at:].swapcase()
        return bytes(line).replace(b'\n', b' ')

    def test_of_all_kinds(self):
        chance = random.Random(SEED)
        seeds = self.seeds()
        self.host.sort_one = lambda m: None  # ids come up again and again
        for round in range(self.COUNT // 100):
            for _ in range(100):
                self.host.send_raw(self.mutate(chance, chance.choice(seeds)) + b'\n')
                self.host.pump(0)
            fence = 'fence-%d' % round
            self.host.send(request(fence, 'ping'))
            self.host.until(lambda: any(m['id'] == fence for m in self.host.log if 'id' in m), fence)
            self.assertIsNone(self.host.process.poll())
            for m in self.host.log:
                if isinstance(m, dict) and 'error' in m:
                    self.assertIn(m['error']['code'], (-32700, -32600, -32601, -32602, -32603, -32021, -32022), m)
            del self.host.log[:]
        del self.host.sort_one
        self.host.next_id = 1 << 40  # which nobody has
        self.assertEqual(self.host.exec('echo', 'hi')['output'], 'hi\n', SEED)

    def test_of_arguments(self):
        chance = random.Random(SEED + 1)
        values = [None, 0, 1, -1, 1 << 31, 1 << 40, 1.5, '', 'x', '\u0000', [], {}, [None], ['x'], {'x': 1}, True, 'ü' * 99]
        names = {t['name']: list(t['inputSchema']['properties']) for t in self.host.modern('tools/list')['result']['tools']}
        sent = []
        for n in range(600):
            tool = chance.choice(TOOLS[1:])  # one that starts nothing
            arguments = {name: chance.choice(values) for name in names[tool] if chance.random() < 0.6}
            sent.append(self.host.call_later(tool, arguments))
            self.host.pump(0)
        for id in sent:
            r = self.host.result(id)
            self.assertTrue(r.content, r)
        self.assertEqual(self.host.exec('echo', 'hi')['output'], 'hi\n', SEED)


class Leaving(mcp.Case):
    """Clients that go away in the middle of everything, again and again; what they began is found, and ends."""
    ROUNDS = 25

    def message(self, chance, n, sessions):
        session = chance.choice(sessions or [1000])
        long = {'yield_time_ms': chance.choice((250, 30000))}
        tool, arguments = chance.choice((
            ('exec_command', {'argv': ['sleep', str(chance.choice((0, 0.1, 600)))], **long}),
            ('exec_command', {'argv': ['sh', '-c', 'seq 1 20000; sleep 600'], **long}),
            ('exec_command', {'argv': ['cat'], 'tty': True, 'until': {'pattern': 'x'}, **long}),
            ('exec_command', {'argv': ['sleep', '600'], 'key': 'k%d' % chance.randrange(3), **long}),
            ('exec_command', {'argv': ['sleep', '600'], 'until': {'exit': True}}),
            ('exec_command', {'cmd': 'true', 'sandbox_permissions': 'require_escalated', 'justification': 'x', 'login': False}),
            ('write_stdin', {'session_id': session, 'chars': 'x\n', 'write_id': 'w%d' % chance.randrange(3), **long}),
            ('write_stdin', {'session_id': session, 'chars': '', 'until': {'quiet_ms': 50}, **long}),
            ('read_output', {'session_id': session, 'grep': '1+2'}), ('list_sessions', {}),
            ('signal_session', {'session_id': session}), ('explain_denial', {'session_id': session}),
            ('apply_patch', {'input': '*** Begin Patch\n*** Add File: f%d\n+x\n*** End Patch\n' % n})))
        params = {'name': tool, 'arguments': arguments}
        if chance.random() < 0.5:
            params['_meta'] = meta({**FORM, **TASKS} if chance.random() < 0.5 else {})
        if chance.random() < 0.3:
            params.setdefault('_meta', {})['progressToken'] = n
        return request(n, 'tools/call', params)

    def goes_away(self, chance, host, sessions):
        host.send(initialize(0, chance.choice(('2025-03-26', '2025-11-25')), elicitation={}))
        host.notify('notifications/initialized')
        for n in range(1, chance.randrange(2, 12)):
            m = self.message(chance, n, sessions)
            host.send([m, request('b%d' % n, 'ping')] if chance.random() < 0.2 else m)
            if chance.random() < 0.2:
                host.notify('notifications/cancelled', {'requestId': chance.randrange(1, n + 1)})
            if chance.random() < 0.1:
                host.send({'jsonrpc': '2.0', 'id': 'elicit-1', 'result': {'action': 'decline'}})
            if chance.random() < 0.1:
                host.send(modern('s%d' % n, 'subscriptions/listen', {'notifications': {'taskIds': ['task-1']}}, TASKS))
            end = time.monotonic() + chance.choice((0, 0, 0.02, 0.1))
            while time.monotonic() < end:
                host.pump(0.01)
        host.close()

    def test_at_any_time(self):
        chance = random.Random(SEED + 2)
        path = os.path.join(self.base, 's')
        self.listening('unix://' + path, args=('--approve', 'on-request'))
        sessions = []
        for _ in range(self.ROUNDS):
            host = mcp.connect_unix(path)
            host.sort_one = lambda m: None
            try:
                self.goes_away(chance, host, sessions)
            except BrokenPipeError:
                self.fail('the server went away, not the client; SALLYPORT_TEST_SEED=%d' % SEED)
            with_eyes = mcp.connect_unix(path)
            sessions = list(with_eyes.sessions())
            with_eyes.close()
        last = mcp.connect_unix(path)
        self.addCleanup(last.close)
        for session, about in last.sessions().items():
            if about['state'] != 'exited':
                self.assertEqual(last.kill(session)['state'], 'exited', SEED)
        self.assertEqual(last.exec('echo', 'hi')['output'], 'hi\n')


def memory_of(pid):
    return int(server.status_of(pid)['VmRSS'].split()[0]) << 10


class Deaf(Wire):
    def test_a_host_that_does_not_read(self):
        """It is not heard any more: what it sends stays in the pipe, and what it is owed is bounded."""
        os.set_blocking(self.host.writes, False)
        line = json.dumps(modern('l', 'tools/list')).encode() + b'\n'
        sent, rest = 0, b''
        end = time.monotonic() + 3
        while time.monotonic() < end and sent < 200000:
            try:
                rest = rest or line * 100
                n = os.write(self.host.writes, rest)
                rest, sent = rest[n:], sent + n // len(line)
            except BlockingIOError:
                if not select.select([], [self.host.writes], [], 1)[1]:
                    break
        self.assertLess(sent, 100000)
        self.assertLess(memory_of(self.host.process.pid), (900 if server.SANITIZED else 100) << 20)
        # ... and heard again once it reads.
        owed = sent
        os.set_blocking(self.host.writes, True)
        self.host.sort_one = lambda m: None
        got = [0]

        def enough():
            got[0] += len(self.host.log)
            del self.host.log[:]
            return got[0] >= owed
        self.host.until(enough, 'all answers')
        self.host.send_raw(rest + json.dumps(request('fence', 'ping')).encode() + b'\n')
        self.host.until(lambda: any(m['id'] == 'fence' for m in self.host.log), 'the last answer')

    def test_progress_for_one_that_does_not_read_is_left_out(self):
        for n in range(200):
            self.host.send(request(n, 'tools/call', {'name': 'exec_command', '_meta': meta(progressToken=n),
                                                     'arguments': {'argv': ['true'], 'key': 'same'}}))
        self.host.until(lambda: len(self.host.answers) == 200, 'all answers')


if __name__ == '__main__':
    tap.main()
