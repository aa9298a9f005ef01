# SPDX-License-Identifier: Apache-2.0
"""Random and broken input of every kind: the server answers or ends the connection, and lives."""

import json
import random

import tap
from server import Case, ours_only
from wire import Channel, Closed, Lines, frame, upgrade_headers

SEEDS = [
    {'id': 1, 'method': 'initialize', 'params': {'clientName': 'x', 'resumeSessionId': None}},
    {'id': 2, 'method': 'environment/info', 'params': {}},
    {'id': 3, 'method': 'process/start', 'params': {
        'processId': 'p', 'argv': ['true', 'x'], 'cwd': 'file:///tmp', 'env': {'A': 'b'}, 'tty': False, 'arg0': None,
        'pipeStdin': True, 'metadata': {'threadId': None, 'toolCallId': 'c'}, 'rows': 5, 'cols': 6,
        'envPolicy': {'inherit': 'core', 'ignoreDefaultExcludes': False, 'exclude': ['*X*'], 'set': {}, 'includeOnly': []}}},
    {'id': 4, 'method': 'process/read', 'params': {'processId': 'p', 'afterSeq': 0, 'maxBytes': 10, 'waitMs': 0}},
    {'id': 5, 'method': 'process/write', 'params': {'processId': 'p', 'chunk': 'YWJj', 'writeId': 'w'}},
    {'id': 6, 'method': 'process/signal', 'params': {'processId': 'p', 'signal': 'interrupt'}},
    {'id': 7, 'method': 'process/terminate', 'params': {'processId': 'p'}},
    {'id': 8, 'method': 'process/resize', 'params': {'processId': 'p', 'rows': 1, 'cols': 1}},
    {'id': 9, 'method': 'process/list', 'params': {}},
    {'id': 10, 'method': 'process/closeStdin', 'params': {'processId': 'p'}},
]
VALUES = [None, True, 0, -1, 1.5, 2**63, 2**64, '', 'x' * 300, '\u0000', '\U0001f600', [], {}, [[]], {'': None}, 'file:///',
          ['a', None], {'a': 1}, 1e300]


def change(rng, value, depth=0):
    """One random change somewhere in a JSON value."""
    if depth and rng.random() < 0.3:
        return rng.choice(VALUES)
    if isinstance(value, dict) and value:
        out = dict(value)
        key = rng.choice(sorted(out))
        action = rng.random()
        if action < 0.15:
            del out[key]
        elif action < 0.3:
            out[key + rng.choice(['', 'x', '\n'])] = rng.choice(VALUES)
        else:
            out[key] = change(rng, out[key], depth + 1)
        return out
    if isinstance(value, list) and value:
        out = list(value)
        at = rng.randrange(len(out))
        out[at] = change(rng, out[at], depth + 1)
        return out
    return rng.choice(VALUES) if depth else value


def damage(rng, data):
    """Random changes of bytes."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        action = rng.randrange(4)
        at = rng.randrange(len(data)) if data else 0
        if action == 0 and data:
            data[at] = rng.randrange(256)
        elif action == 1 and data:
            del data[at:at + rng.randrange(1, 9)]
        elif action == 2:
            data[at:at] = bytes(rng.choice(b'{}[]",:\\0123456789eE+-. \t\n\x00\xff\xc3\xa9') for _ in range(rng.randrange(1, 6)))
        elif data:
            data[at:at] = data[at:at + rng.randrange(1, 30)]
    return bytes(data)


@ours_only
class Hostile(Case):
    def bombard(self, connect, texts):
        """Sends everything; a new connection whenever the server ends one. Returns how many ended."""
        c, ended = connect(), 0
        for text in texts:
            try:
                c.send_raw(text)
                while c.channel.readable():
                    c.pump(1)
            except Closed:
                ended += 1
                c.close()
                c = connect()
        try:
            c.send_raw(b'{"id":"last","method":"environment/status"}')
            c.wait_for(lambda: c.answered('last'), 'last answer')
        except Closed:
            ended += 1
        c.close()
        return ended

    def test_changed_messages(self):
        srv = self.server('--session-ttl', '1', '--closed-ttl', '1')
        rng = random.Random(1)

        def texts():
            for _ in range(3000):
                message = rng.choice(SEEDS)
                for _ in range(rng.randrange(1, 4)):
                    message = change(rng, message)
                yield json.dumps(message, ensure_ascii=rng.random() < 0.5).encode('utf-8', 'surrogatepass')
        self.bombard(srv.session, texts())
        self.assertEqual(srv.session().sh('echo hi').stdout, b'hi\n')

    def test_damaged_text(self):
        srv = self.server('--session-ttl', '1', '--closed-ttl', '1')
        rng = random.Random(2)

        def connect():
            c = srv.session()
            c.send_raw = lambda data: c.transport.send_frame(2, data if isinstance(data, bytes) else data.encode())
            return c
        self.bombard(connect, (damage(rng, json.dumps(rng.choice(SEEDS)).encode()) for _ in range(3000)))
        self.assertEqual(srv.session().sh('echo hi').stdout, b'hi\n')

    def test_damaged_frames(self):
        srv = self.server('--session-ttl', '1', '--closed-ttl', '1')
        rng = random.Random(3)
        for _ in range(250):
            c = srv.session()
            data = b''.join(frame(rng.choice([0, 1, 1, 1, 2, 8, 9, 10, rng.randrange(16)]),
                                  json.dumps(rng.choice(SEEDS)).encode()[:rng.choice([0, 5, 120, 10000])],
                                  fin=rng.random() < 0.7, mask=rng.random() < 0.95) for _ in range(rng.randrange(1, 6)))
            try:
                c.channel.write(damage(rng, data) if rng.random() < 0.7 else data)
            except Closed:
                pass
            c.abort() if rng.random() < 0.5 else c.close()
        self.assertEqual(srv.session().sh('echo hi').stdout, b'hi\n')

    def test_damaged_lines(self):
        path = self.scratch() + '/socket'
        srv = self.server('--session-ttl', '1', '--closed-ttl', '1', listen='unix://' + path)
        rng = random.Random(4)
        self.bombard(lambda: srv.client(Lines.connect(path)).handshake(),
                     (damage(rng, json.dumps(rng.choice(SEEDS)).encode()) for _ in range(2000)))
        self.assertEqual(srv.client(Lines.connect(path)).handshake().sh('echo hi').stdout, b'hi\n')

    def test_damaged_requests_for_an_upgrade(self):
        srv = self.server()
        rng = random.Random(5)
        head = 'GET / HTTP/1.1\r\nHost: localhost\r\n' + ''.join('%s: %s\r\n' % h for h in upgrade_headers().items()) + '\r\n'
        for _ in range(400):
            channel = Channel.connect(srv.address)
            try:
                channel.write(damage(rng, head.encode()))
            except Closed:
                pass
            channel.close()
        self.assertEqual(srv.session().sh('echo hi').stdout, b'hi\n')


if __name__ == '__main__':
    tap.main()
