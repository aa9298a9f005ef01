# SPDX-License-Identifier: Apache-2.0
"""What no client should send over HTTP: it is refused, costs little, and is in nobody's way."""

import http.client
import json
import os
import random
import socket
import struct
import threading
import time

import server
import tap
import wire
from mcp import FORM, LEGACY, TASKS, meta
from mcp_web import LIST, Web
from mcp_wire import call, initialize, modern, request
from wire import wait_until

SEED = int(os.environ.get('SALLYPORT_TEST_SEED', '20260728'))


class Hostile(Web):
    def head(self, message=None, *more, drop=(), first='POST /mcp HTTP/1.1'):
        lines = [first, 'Host: ' + self.host.where] + ['%s: %s' % i for i in self.heads(message, drop).items()] + list(more)
        return ('\r\n'.join(lines) + '\r\n\r\n').encode('latin-1')

    def body(self):
        return json.dumps(LIST).encode()

    def send(self, data):
        s = self.raw()
        s.sendall(data)
        return self.status(s)

    def fine_after(self):
        self.hang_up()
        self.fine(LIST)

    def test_two_lengths(self):
        body = self.body()
        n = 'Content-Length: %d' % len(body)
        chunked = 'Transfer-Encoding: chunked'
        for lines in ([n, chunked], [chunked, n], [n, n], [n, 'Content-Length: 1'], [chunked, chunked],
                      ['Transfer-Encoding: gzip, chunked'], ['Transfer-Encoding: identity'], ['Transfer-Encoding: chunked, identity'],
                      ['Transfer-Encoding: xchunked'], ['Transfer-Encoding:'], ['Content-Length: -1'], ['Content-Length: +5'],
                      ['Content-Length: 0x10'], ['Content-Length: 1 1'], ['Content-Length:'], ['Content-Length: 5, 5'],
                      ['Content-Length : 5'], ['Transfer-Encoding : chunked'], [' Content-Length: 5'],
                      ['Transfer-Encoding: chunked\r\n Content-Length: 5']):
            hidden = self.head(None, 'Content-Length: 0') * 2  # what a smuggler would hide behind it
            s = self.raw()
            s.sendall(self.head(LIST, *lines) + body + hidden)
            s.settimeout(wire.DEADLINE)
            data = b''
            try:
                for part in iter(lambda: s.recv(65536), b''):
                    data += part
            except ConnectionResetError:
                pass
            self.assertRegex(data, b'^HTTP/1.1 400 ', lines)
            self.assertEqual(data.count(b'HTTP/1.1 '), 1, (lines, data))
        self.fine_after()

    def test_too_much(self):
        self.assertEqual(self.send(self.head(LIST, 'Content-Length: %d' % (17 << 20))), 413)
        self.assertEqual(self.send(self.head(LIST, 'Content-Length: 99999999999999999999999')), 413)
        self.assertEqual(self.send(self.head(LIST, 'Transfer-Encoding: chunked') + b'2000000\r\n'), 413)
        self.assertEqual(self.send(self.head(LIST, 'X: ' + 'x' * 20000)), 431)
        self.assertEqual(self.send(self.head(LIST, *['X%d: y' % n for n in range(3000)])), 431)
        self.assertEqual(self.send(b'GET /' + b'x' * 100000), 431)
        self.fine_after()

    def test_large_bodies(self):
        message = modern(1, 'tools/list', {'x': 'x' * (15 << 20)})
        self.fine(message)
        self.fine(LIST)

    def test_chunks(self):
        body, head = self.body(), self.head(LIST, 'Transfer-Encoding: chunked')
        good = b''.join(b'%x\r\n%s\r\n' % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7)) + b'0\r\n\r\n'
        self.assertEqual(self.send(head + good), 200)
        self.assertEqual(self.send(head + good.replace(b'7\r\n', b'0007;a="b"\r\n', 1)), 200)
        self.assertEqual(self.send(head + good[:-2] + b'trailer: x\r\n\r\n'), 200)
        for bad in (b'x\r\n', b'\r\n', b'-1\r\n', b'7\n' + body[:7], b'3\r\nabcd\r\n', b' 3\r\nabc\r\n0\r\n\r\n', b'0x3\r\nabc\r\n',
                    b'3\r\nabc\n0\r\n\r\n', b'3\r\nabc\r\n0\r\nbad trailer\r\n\r\n', b'3;' + b'x' * 20000 + b'\r\nabc\r\n',
                    b'3\rabc', b'3\r\nabc\r\n0\r\n' + b'a: b\r\n' * 20000, b'3;\x00\r\n'):
            self.assertEqual(self.send(head + bad), 400, bad[:40])
        self.assertIn(self.send(head + b'f' * 100 + b'\r\n'), (400, 413))
        self.fine_after()

    def test_heads_that_are_none(self):
        for data in (b'\x16\x03\x01\x00\xa5\x01\x00\x00', b'GET\r\n\r\n', b'POST /mcp\r\n\r\n', b'POST /mcp HTTP/2.0\r\n\r\n',
                     b'POST  /mcp HTTP/1.1\r\n\r\n', b'POST /mcp HTTP/1.1\r\nno colon\r\n\r\n', b'POST /mcp HTTP/1.1\nHost: x\n\n',
                     b'POST /mcp HTTP/1.1\r\nA: b\r\n folded\r\n\r\n', b'POST /mcp HTTP/1.1\r\n: x\r\n\r\n',
                     b'POST /m\x00cp HTTP/1.1\r\n\r\n', b'POST /mcp HTTP/1.1\r\nA: \x00\r\n\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
                     b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n\r\n\r\n'):
            s = self.raw()
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            self.assertIn(self.status(s), (0, 400, 401, 403, 505), data)
        self.fine_after()

    def test_torn_everywhere(self):
        data = self.head(LIST, 'Content-Length: %d' % len(self.body())) + self.body()
        s = self.raw()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in data:
            s.sendall(bytes([byte]))
        self.assertEqual(self.status(s), 200)
        for cut in range(0, len(data), 23):
            s = self.raw()
            s.sendall(data[:cut])
            s.close()
        self.fine_after()

    def test_pipelining(self):
        data = self.head(LIST, 'Content-Length: %d' % len(self.body())) + self.body()
        wrong = self.head(LIST, 'Content-Length: 1', drop=['Mcp-Method']) + b'x'
        s = self.raw()
        count = 40
        sender = threading.Thread(target=s.sendall, args=((data + wrong) * count,))
        sender.start()
        file = s.makefile('rb')
        got = []
        for _ in range(2 * count):
            got.append(int(file.readline().split()[1]))
            length = 0
            for line in iter(file.readline, b'\r\n'):
                if line.lower().startswith(b'content-length:'):
                    length = int(line.split(b':')[1])
            file.read(length)
        sender.join()
        self.assertEqual(got, [200, 400] * count)

    def test_expect(self):
        s = self.raw()
        s.sendall(self.head(LIST, 'Expect: 100-continue', 'Content-Length: %d' % len(self.body())))
        self.assertEqual(self.status(s), 100)
        s.sendall(self.body())
        self.assertEqual(self.status(s), 200)
        self.assertEqual(self.send(self.head(LIST, 'Expect: wonders', 'Content-Length: 9')), 417)
        self.assertEqual(self.send(self.head(LIST, 'Expect: 100-continue', 'Content-Length: 9', drop=['Authorization'])), 401)

    def test_http_1_0(self):
        body = self.body()
        s = self.raw()
        s.sendall(self.head(LIST, 'Content-Length: %d' % len(body), first='POST /mcp HTTP/1.0') + body)
        data = b''.join(iter(lambda: s.recv(65536), b''))
        self.assertIn(b' 200 ', data.split(b'\r\n')[0])
        message = modern('c', 'tools/call', {'name': 'exec_command', 'arguments': {'argv': ['true']}}, progressToken='t')
        body = json.dumps(message).encode()
        s = self.raw()
        s.sendall(self.head(message, 'Content-Length: %d' % len(body), first='POST /mcp HTTP/1.0') + body)
        data = b''.join(iter(lambda: s.recv(65536), b''))
        self.assertNotIn(b'chunked', data)
        self.assertEqual(data.count(b'event: message\ndata: '), 2)

    def many(self, count, data=b''):
        """So many connections, each of which sends this when it is there."""
        all = []
        for _ in range(count):
            all.append(self.raw())
            all[-1].sendall(data)
        return all

    def test_many_that_say_nothing(self):
        """They are in nobody's way who has a token: the first of them go."""
        silent = self.many(300, b'POST /mcp')
        self.fine(LIST)
        silent[0].settimeout(wire.DEADLINE)
        self.assertEqual(self.status(silent[0]), 0)
        self.many(100)
        self.fine(LIST)

    def test_many_that_have_a_token(self):
        """Those above the bound are told so; with room again there is service again."""
        data = self.head(LIST, 'Content-Length: %d' % len(self.body())) + self.body()
        trusted = []
        for _ in range(256):
            trusted += self.many(1, data)
            self.assertEqual(self.status(trusted[-1]), 200)
        late = self.many(40)
        for s in late:
            s.sendall(data)
        self.assertEqual([self.status(s) for s in late], [503] * 40)
        for s in trusted[:5]:
            s.close()
        wait_until(lambda: self.send(data) == 200, 'room')

    def test_slow_ones_are_not_waited_for(self):
        """Somebody who sends a byte a second gets 408 in the end, and meanwhile is in nobody's way."""
        slow = [self.raw() for _ in range(20)]
        for s in slow:
            s.sendall(b'POST /mcp HTTP/1.1\r\nHost: x')
        began = time.monotonic()
        for _ in range(3):
            self.fine(LIST)
        self.assertLess(time.monotonic() - began, 8)
        idle = self.raw()
        end = time.monotonic() + 11
        while time.monotonic() < end:
            time.sleep(1)
            for s in slow:
                try:
                    s.send(b'x')
                except OSError:
                    pass
        for s in slow:
            self.assertIn(self.status(s), (408, 0))
        self.assertEqual(self.status(idle), 0)
        self.fine_after()

    def test_clients_that_come_and_go(self):
        """Of both eras, in the middle of everything."""
        chance = random.Random(SEED)
        heads, sessions = self.heads(), []
        for n in range(150):
            kind = chance.randrange(6)
            if kind == 0:
                _, got, _ = self.ask(initialize(0, chance.choice(LEGACY), elicitation={}), heads)
                sessions.append(got['mcp-session-id'])
                continue
            argv = chance.choice((['sleep', '0.05'], ['sleep', '600'], ['seq', '1', '9999'], ['true']))
            message = call(n, 'exec_command', argv=argv, yield_time_ms=chance.choice((250, 30000)))
            if chance.random() < 0.3:  # somebody is asked, or is not
                message['params']['arguments'].update(sandbox_permissions='require_escalated', justification='x')
            if chance.random() < 0.5:
                message['params']['_meta'] = {'progressToken': n}
            with_session = {**heads, 'Mcp-Session-Id': chance.choice(sessions)} if sessions else heads
            if kind == 1:
                message['params']['_meta'] = {**meta(chance.choice(({}, {**FORM, **TASKS}))), **message['params'].get('_meta', {})}
                with_session = self.heads(message)
            elif kind == 2:
                message = [message, request('b', 'ping')]
            elif kind == 3:
                message = {'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': chance.randrange(n + 1)}}
                if chance.random() < 0.5:
                    message = {'jsonrpc': '2.0', 'id': 'elicit-%d' % chance.randrange(1, 4),
                               'result': {'action': chance.choice(('accept', 'decline', 'cancel'))}}
            elif kind == 4 and sessions:
                gone = sessions.pop(chance.randrange(len(sessions)))
                self.ask(None, {**heads, 'Mcp-Session-Id': gone}, 'DELETE')
                continue
            body = json.dumps(message)
            c = http.client.HTTPConnection(self.host.where, timeout=wire.DEADLINE)
            c.request('POST', '/mcp', body, with_session)
            time.sleep(chance.choice((0, 0.005, 0.05)))
            if chance.random() < 0.3:
                c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))  # a reset
            c.close()
        self.fine(LIST)
        for session in self.host.sessions():
            self.assertEqual(self.host.kill(session)['state'], 'exited', SEED)

    def test_a_reader_that_does_not_read(self):
        """The next request is not looked at before its answer is with the kernel: nothing piles up."""
        s = self.raw()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        data = self.head(LIST, 'Content-Length: %d' % len(self.body())) + self.body()
        s.settimeout(1)
        sent = 0
        try:
            while sent < 20000:
                s.sendall(data * 10)
                sent += 10
        except socket.timeout:
            pass
        self.assertLess(sent, 20000)
        memory = int(server.status_of(self.host.process.pid)['VmRSS'].split()[0])
        self.assertLess(memory, 600 << 10 if server.SANITIZED else 60 << 10)
        self.fine_after()


if __name__ == '__main__':
    tap.main()
