# SPDX-License-Identifier: Apache-2.0
"""The proxy process of a managed cell: each protocol, refusals, limits, DNS. The test plays front and resolver; all
servers are on loopback."""

import hashlib
import json
import os
import random
import resource
import socket
import ssl
import struct
import subprocess
import threading
import time
import unittest

import tap
from proxy_front import (ASK, BY_NAME, COMMAND, COUNTS, DNS_TCP, DNS_UDP, ENVIRONMENT, FAILED, GONE, KEEP, KNOW, LIMITED,
                         LITERAL, LOCAL, DECIDED, PING, REASONS, SOCKS, Front, Server, echo, head, read_all,
                         read_exactly, read_head, read_response, web)
from server import SANITIZED

MIB = 1 << 20
LIMIT = 20


def may_bind_low_ports():
    try:
        socket.create_server(('127.77.0.1', 443)).close()
        return True
    except PermissionError:
        return False
    except OSError:
        return True


low_ports = unittest.skipUnless(may_bind_low_ports(), 'ports below 1024 are for root')


class Case(unittest.TestCase):
    def front(self, **settings):
        front = Front(**settings)
        self.addCleanup(self.end, front)
        return front

    def end(self, front):
        if front.process.poll() is None:
            self.assertEqual(front.stop(), 0)

    def server(self, serve, address='127.0.0.1', port=0):
        server = Server(serve, address, port)
        self.addCleanup(server.close)
        return server

    def connect(self, port, address='127.0.0.1'):
        sock = socket.create_connection((address, port), LIMIT)
        self.addCleanup(sock.close)
        return sock

    def until(self, condition):
        end = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def open_tunnel(self, door, host, port):
        sock = self.connect(door)
        sock.sendall(b'CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n' % (host.encode(), port, host.encode(), port))
        status, text, _, rest = read_response_head(sock)
        self.assertEqual(status, 200, text)
        return sock, rest

    def ask_dns(self, front, port, name, kind=1):
        query = question(name, kind)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(LIMIT)
        sock.sendto(query, ('127.0.0.1', port))
        data = sock.recv(2048)
        sock.close()
        return answer(data, query)


def read_response_head(sock):
    text, rest = read_head(sock)
    return int(text.split()[1]), text, b'', rest


def question(name, kind=1, number=0x1234):
    labels = b''.join(bytes([len(p)]) + p.encode() for p in name.split('.') if p)
    return struct.pack('>HHHHHH', number, 0x0100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>HH', kind, 1)


def answer(data, query):
    """(code, list of record data)"""
    number, flags, questions, answers, _, _ = struct.unpack_from('>HHHHHH', data)
    assert number == struct.unpack_from('>H', query)[0]
    assert flags & 0x8080 == 0x8080, hex(flags)
    at = 12
    if questions:
        assert data[12:len(query)] == query[12:], 'the question is not echoed'
        at = len(query)
    records = []
    for _ in range(answers):
        while data[at] and data[at] < 0xc0:
            at += 1 + data[at]
        at += 2 if data[at] >= 0xc0 else 1
        kind, _, ttl, size = struct.unpack_from('>HHIH', data, at)
        records.append(data[at + 10:at + 10 + size])
        at += 10 + size
    return flags & 15, records


class Messages(Case):
    def test_ping(self):
        self.front().ping()

    def test_a_broken_message_ends_it(self):
        front = self.front()
        front.send(head(ASK))
        front.process.wait(LIMIT)

    def test_a_message_before_hello_ends_it(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(COMMAND, stdin=theirs, env=ENVIRONMENT)
        theirs.close()
        ours.send(head(PING, number=1))
        process.wait(LIMIT)
        ours.close()

    def test_ends_with_the_front(self):
        front = self.front()
        door = front.front_door()
        sock, _ = self.open_tunnel(door, '127.0.0.1', self.server(echo).port)
        self.assertEqual(front.stop(), 0)
        self.assertEqual(read_all(sock)[0], b'')

    def test_counts(self):
        front = self.front(hosts={})
        port = front.listen(DNS_UDP, 53)
        for i in range(3):
            self.ask_dns(front, port, 'n%d.example' % i)
        front.wait(lambda: front.of(COUNTS, dns_name=3, names=3))


class Http(Case):
    def test_absolute_form_two_hosts_one_connection(self):
        seen = []
        one, two = self.server(web(seen)), self.server(web(seen))
        front = self.front(hosts={'a.example': ['127.0.0.1'], 'b.example': ['127.0.0.1']})
        sock = self.connect(front.front_door())
        for host, port in (('a.example', one.port), ('a.example', one.port), ('b.example', two.port),
                           ('a.example', one.port)):
            sock.sendall(b'GET http://%s:%d/x?y HTTP/1.1\r\nHost: %s:%d\r\nProxy-Connection: keep-alive\r\n'
                         b'Proxy-Authorization: Basic eA==\r\n\r\n' % (host.encode(), port, host.encode(), port))
            status, _, body, _ = read_response(sock)
            self.assertEqual(status, 200)
            self.assertTrue(body.startswith(b'GET /x?y HTTP/1.1|' + host.encode()), body)
        self.assertEqual((len(one.connections), len(two.connections)), (2, 1))
        self.assertNotIn('proxy-', '\n'.join(seen).lower())
        self.assertEqual(len(front.of(ASK)), 2)
        done = front.wait_done(4)
        self.assertEqual([d['outcome'] for d in done], ['reached'] * 4)
        self.assertEqual(done[0]['address'], '127.0.0.1')
        self.assertEqual([d['number'] for d in done], [1, 0, 2, 0])

    def test_pipelined_requests(self):
        server = self.server(web([]))
        front = self.front()
        sock = self.connect(front.front_door())
        one = b'GET http://127.0.0.1:%d/%%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n' % (server.port, server.port)
        sock.sendall(b''.join(one % i for i in range(20)))
        rest = b''
        for i in range(20):
            status, _, body, rest = read_response(sock, rest)
            self.assertEqual((status, body.split(b' ')[1]), (200, b'/%d' % i))

    def test_upload_by_length_and_chunked(self):
        got = {}

        def serve(conn):
            text, rest = read_head(conn)
            digest, n = hashlib.sha256(), 0
            if 'content-length' in text.lower():
                need = int(text.lower().split('content-length: ')[1].split('\r\n')[0])
                while True:
                    digest.update(rest)
                    n += len(rest)
                    if n >= need:
                        break
                    rest = conn.recv(65536)
            else:
                f = conn.makefile('rb')
                data = rest + b''
                buf = [data]

                def line():
                    while b'\n' not in buf[0]:
                        buf[0] += f.read1(65536)
                    out, buf[0] = buf[0].split(b'\n', 1)
                    return out

                def take(k):
                    while len(buf[0]) < k:
                        buf[0] += f.read1(65536)
                    out, buf[0] = buf[0][:k], buf[0][k:]
                    return out
                while True:
                    size = int(line(), 16)
                    if size == 0:
                        break
                    piece = take(size)
                    take(2)
                    digest.update(piece)
                    n += size
                line()
            got[text.split(' ')[1]] = (n, digest.hexdigest())
            conn.sendall(b'HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok')

        server = self.server(serve)
        front = self.front()
        data = os.urandom(1 << 16) * 48
        for way in ('/length', '/chunked'):
            sock = self.connect(front.front_door())
            framing = b'Content-Length: %d' % len(data) if way == '/length' else b'Transfer-Encoding: chunked'
            sock.sendall(b'POST http://127.0.0.1:%d%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n\r\n'
                         % (server.port, way.encode(), server.port, framing))
            if way == '/length':
                sock.sendall(data)
            else:
                for at in range(0, len(data), 10000):
                    piece = data[at:at + 10000]
                    sock.sendall(b'%x\r\n%s\r\n' % (len(piece), piece))
                sock.sendall(b'0\r\n\r\n')
            status, _, body, _ = read_response(sock)
            self.assertEqual((status, body), (201, b'ok'))
            self.assertEqual(got[way], (len(data), hashlib.sha256(data).hexdigest()))
        for done in front.wait_done(2):
            self.assertEqual((done['sent'], done['received']), (len(data), 2))

    def test_continue_passes(self):
        def serve(conn):
            read_head(conn)
            conn.sendall(b'HTTP/1.1 100 Continue\r\n\r\n')
            self.assertEqual(conn.recv(5), b'hello')
            conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
        server = self.server(serve)
        sock = self.connect(self.front().front_door())
        sock.sendall(b'POST http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 5\r\n'
                     b'Expect: 100-continue\r\n\r\n' % (server.port, server.port))
        text, rest = read_head(sock)
        self.assertIn(' 100 ', text)
        sock.sendall(b'hello')
        self.assertEqual(read_response(sock, rest)[0], 200)

    def test_response_until_close(self):
        def serve(conn):
            read_head(conn)
            conn.sendall(b'HTTP/1.0 200 OK\r\n\r\n' + b'x' * 100000)
            conn.close()
        server = self.server(serve)
        sock = self.connect(self.front().front_door())
        sock.sendall(b'GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n' % (server.port, server.port))
        data, was_reset = read_all(sock)
        self.assertFalse(was_reset)
        self.assertEqual(data.split(b'\r\n\r\n', 1)[1], b'x' * 100000)

    def test_early_response_to_an_upload(self):
        def serve(conn):
            read_head(conn)
            conn.sendall(b'HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n')
            time.sleep(0.2)
            conn.close()
        server = self.server(serve)
        front = self.front()
        sock = self.connect(front.front_door())
        sock.sendall(b'POST http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 50000000\r\n\r\n'
                     % (server.port, server.port) + b'x' * 1000)
        self.assertEqual(read_response(sock)[0], 413)
        front.wait_done(1, outcome='reached')

    def test_interim_responses_without_end(self):
        """A server that sends them for ever gets neither the proxy's time nor its memory; a few pass."""
        hints = b'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'

        def serve(conn):
            read_head(conn)
            while True:
                conn.sendall(hints * 1000)
        endless, server = self.server(serve), self.server(web([]))
        few = self.server(lambda conn: (read_head(conn), conn.sendall(hints * 20 + b'HTTP/1.1 204 Fine\r\n\r\n')))
        front = self.front()
        door = front.front_door()
        get = lambda port: b'GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n' % (port, port)
        flooded = []
        for _ in range(4):  # which read nothing
            flooded.append(self.connect(door))
            flooded[-1].sendall(get(endless.port))
        front.ping()
        sock = self.connect(door)
        sock.sendall(get(server.port))
        self.assertEqual(read_response(sock)[0], 200)
        sock = self.connect(door)
        sock.sendall(get(few.port))
        data, _ = read_all(sock)
        self.assertEqual((data.count(b'HTTP/1.1 103 '), data.count(b'HTTP/1.1 204 ')), (20, 1))
        for sock in flooded:
            data, was_reset = read_all(sock)
            self.assertIn(b'\r\n\r\nHTTP/1.1 502 ', data)
            self.assertLess(len(data), 128 << 10)
            self.assertFalse(was_reset)
        if not SANITIZED:
            self.assertLess(front.memory_kb(), 16 << 10)

    def test_upgrade_becomes_a_tunnel(self):
        def serve(conn):
            text, rest = read_head(conn)
            self.assertIn('pgrade: websocket', text)
            conn.sendall(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst')
            conn.sendall(rest)
            echo(conn)
        server = self.server(serve)
        request = (b'GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\n'
                   b'Upgrade: websocket\r\n\r\n' % (server.port, server.port))
        front = self.front()
        sock = self.connect(front.front_door())
        sock.sendall(request + b'early')
        status, text, _, rest = read_response_head(sock)
        self.assertEqual(status, 101)
        self.assertEqual(rest + read_exactly(sock, 10 - len(rest)), b'firstearly')
        sock.sendall(b'more')
        self.assertEqual(read_exactly(sock, 4), b'more')
        limited = self.front(flags=SOCKS | LIMITED)
        sock = self.connect(limited.front_door())
        sock.sendall(request)
        status, text, body, _ = read_response(sock)
        self.assertEqual((status, json.loads(body)['reason']), (403, 'method_not_allowed'))

    def test_refusal(self):
        front = self.front()
        front.verdicts['no.example'] = (0, REASONS.index('not_allowed'), KEEP, 'no.example is not in the allowed_domains')
        front.verdicts['person.example'] = (0, REASONS.index('denied'), DECIDED, '')
        door = front.front_door()
        sock = self.connect(door)
        sock.sendall(b'GET http://no.example/ HTTP/1.1\r\nHost: no.example\r\n\r\n')
        status, text, body, _ = read_response(sock)
        self.assertEqual(status, 403)
        self.assertIn('x-proxy-error: blocked-by-allowlist', text)
        self.assertIn('application/json', text)
        self.assertEqual(body.decode(), '{"status":"blocked","host":"no.example","reason":"not_allowed",'
                         '"decision":"deny","source":"baseline_policy","protocol":"http","port":80,'
                         '"message":"Domain not in allowlist.","detail":"no.example is not in the allowed_domains"}')
        self.assertEqual(read_all(sock), (b'', False))
        sock = self.connect(door)
        sock.sendall(b'POST http://person.example:8080/ HTTP/1.1\r\nHost: person.example:8080\r\n'
                     b'Content-Length: 40000\r\n\r\n' + b'x' * 40000)
        _, text, body, _ = read_response(sock)
        self.assertEqual(json.loads(body)['source'], 'decider')
        self.assertNotIn('detail', json.loads(body))
        self.assertEqual(front.looked_up, [])
        self.assertEqual([(d['outcome'], d['reason']) for d in front.wait_done(2)],
                         [('blocked', 'not_allowed'), ('blocked', 'denied')])

    def test_failures(self):
        closed = socket.create_server(('127.0.0.1', 0))
        port = closed.getsockname()[1]
        closed.close()
        front = self.front(hosts={'f.example': FAILED, 'closed.example': ['127.0.0.1', '127.0.0.2']})
        for host, text in (('none.example', b'name does not resolve'), ('f.example', b'name does not resolve'),
                           ('closed.example', b'connection refused')):
            sock = self.connect(front.front_door())
            sock.sendall(b'GET http://%s:%d/ HTTP/1.1\r\nHost: %s:%d\r\n\r\n' % (host.encode(), port, host.encode(), port))
            status, _, body, _ = read_response(sock)
            self.assertEqual((status, body.strip()), (502, text))

    def test_hostile_heads_reach_no_server(self):
        server = self.server(web([]))
        front = self.front()
        door = front.front_door()
        at = b'127.0.0.1:%d' % server.port
        for lines in (b'GET http://%s/ HTTP/1.1\nHost: %s\n\n' % (at, at) + b'\r\n\r\n',
                      b'GET http://%s/ HTTP/1.1\r\nHost: %s\r\n folded\r\n\r\n' % (at, at),
                      b'POST http://%s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n'
                      % (at, at),
                      b'POST http://%s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: x\r\n\r\n' % (at, at),
                      b'GET http://a b/ HTTP/1.1\r\nHost: a\r\n\r\n',
                      b'GET http://%s/ HTTP/9\r\nHost: %s\r\n\r\n' % (at, at),
                      b'GET http://\x01/ HTTP/1.1\r\nHost: \x01\r\n\r\n',
                      b'\x16\x03\x01\r\n\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'):
            sock = self.connect(door)
            sock.sendall(lines)
            status, _, _, _ = read_response(sock)
            self.assertIn(status, (400, 431, 501, 505), lines)
            self.assertEqual(read_all(sock), (b'', False))
        self.assertEqual(server.connections, [])
        sock = self.connect(door)
        sock.sendall(b'GET http://%s/ HTTP/1.1\r\nHost: %s\r\nX: ' % (at, at) + b'x' * 66000)
        self.assertEqual(read_response(sock)[0], 431)

    @tap.long
    def test_slow_heads(self):
        door = self.front().front_door()
        silent, slow, socks = self.connect(door), self.connect(door), self.connect(door)
        slow.sendall(b'GET http://a')
        socks.sendall(b'\5')
        for sock in (silent, slow, socks):
            sock.settimeout(40)
        self.assertEqual(read_response(slow)[0], 408)
        self.assertEqual((read_all(silent), read_all(socks)), ((b'', False), (b'', False)))

    def test_limited_asks_about_each_method(self):
        server = self.server(web([]))
        front = self.front(flags=SOCKS | LIMITED)
        front.default = lambda m: (1, 0, KEEP | LITERAL, '') if m['method'] == 'GET' else (0, 4, KEEP, '')
        for method in (b'GET', b'POST', b'GET', b'POST', b'GET'):
            sock = self.connect(front.front_door())
            sock.sendall(b'%s http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n'
                         % (method, server.port, server.port))
            self.assertEqual(read_response(sock)[0], 200 if method == b'GET' else 403)
        self.assertEqual([m['method'] for m in front.of(ASK)], ['GET', 'POST', 'POST'])


class Tunnels(Case):
    def test_connect(self):
        server = self.server(echo)
        front = self.front(hosts={'a.example': ['127.0.0.1']})
        sock, rest = self.open_tunnel(front.front_door(), 'A.Example', server.port)
        sock.sendall(b'hello')
        self.assertEqual(rest + read_exactly(sock, 5 - len(rest)), b'hello')
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(read_all(sock), (b'', False))
        done = front.wait_done()[0]
        self.assertEqual((done['host'], done['sent'], done['received'], done['outcome'], done['protocol']),
                         ('a.example', 5, 5, 'reached', 'https_connect'))
        self.assertEqual(front.of(ASK)[0]['method'], 'CONNECT')

    def test_connect_refused_and_failed(self):
        front = self.front(hosts={'local.example': ['192.0.2.1', '10.0.0.1']})
        front.verdicts['no.example'] = (0, REASONS.index('not_allowed'), KEEP, 'the detail')
        front.verdicts['local.example'] = (1, 0, KEEP, '')
        front.verdicts['169.254.169.254'] = (1, 0, KEEP | LOCAL, '')
        front.verdicts['127.0.0.1'] = (1, 0, KEEP, '')
        door = front.front_door()
        for host, status, text in (('no.example', 403, b'Domain not in allowlist.\nthe detail'),
                                   ('local.example', 403, b'Sandbox policy blocks local/private network addresses.'),
                                   ('169.254.169.254', 403, b'Sandbox policy blocks local/private network addresses.'),
                                   ('127.0.0.1', 403, b'Sandbox policy blocks local/private network addresses.'),
                                   ('none.example', 502, b'name does not resolve')):
            sock = self.connect(door)
            sock.sendall(b'CONNECT %s:9 HTTP/1.1\r\nHost: %s:9\r\n\r\n' % (host.encode(), host.encode()))
            got, text_head, body, _ = read_response(sock)
            self.assertEqual((got, body.strip()), (status, text), host)
        self.assertEqual([d['reason'] for d in front.wait_done(5)],
                         ['not_allowed', 'not_allowed_local', 'not_allowed_local', 'not_allowed_local', 'none'])

    def test_own_ports_are_never_reached(self):
        server = self.server(echo)
        front = self.front(own_ports=[server.port])
        for host in ('127.0.0.1', '127.9.9.9', '0.0.0.0'):
            sock = self.connect(front.front_door())
            sock.sendall(b'CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n' % (host.encode(), server.port, host.encode(),
                                                                        server.port))
            self.assertEqual(read_response(sock)[0], 403, host)
        self.assertEqual(server.connections, [])

    def test_half_close_each_way(self):
        def serve(conn):
            data, _ = read_all(conn)
            conn.sendall(hashlib.sha256(data).digest())
            conn.close()
        server = self.server(serve)
        front = self.front()
        sock, _ = self.open_tunnel(front.front_door(), '127.0.0.1', server.port)
        data = os.urandom(3 * MIB)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(read_all(sock), (hashlib.sha256(data).digest(), False))

        def serve_first(conn):
            conn.shutdown(socket.SHUT_WR)
            got.append(read_all(conn))
        got = []
        server = self.server(serve_first)
        sock, _ = self.open_tunnel(front.front_door(), '127.0.0.1', server.port)
        self.assertEqual(sock.recv(1), b'')
        sock.sendall(b'still')
        sock.close()
        front.wait_done(2)
        self.until(lambda: got)
        self.assertEqual(got, [(b'still', False)])

    def test_bulk_each_way(self):
        size = (1024 if tap.IS_LONG else 64) * MIB
        block = os.urandom(MIB)
        sums = {}

        def pour(conn):
            for _ in range(size // MIB):
                conn.sendall(block)
            conn.shutdown(socket.SHUT_WR)

        def drain(conn, key, begun=b''):
            digest, n = hashlib.sha256(begun), len(begun)
            while True:
                data = conn.recv(MIB)
                if not data:
                    break
                digest.update(data)
                n += len(data)
            sums[key] = (n, digest.hexdigest())

        def serve(conn):
            thread = threading.Thread(target=pour, args=[conn])
            thread.start()
            drain(conn, 'server')
            thread.join()
        server = self.server(serve)
        front = self.front()
        sock, rest = self.open_tunnel(front.front_door(), '127.0.0.1', server.port)
        thread = threading.Thread(target=pour, args=[sock])
        thread.start()
        drain(sock, 'client', rest)
        thread.join()
        done = front.wait_done()[0]
        digest = hashlib.sha256()
        for _ in range(size // MIB):
            digest.update(block)
        self.assertEqual(sums, {'server': (size, digest.hexdigest()), 'client': (size, digest.hexdigest())})
        self.assertEqual((done['sent'], done['received']), (size, size))

    def test_next_address(self):
        """A closed address is skipped at once, a silent one after 250 ms."""
        server = self.server(echo)
        silent = socket.socket()
        self.addCleanup(silent.close)
        silent.bind(('127.5.0.1', server.port))
        silent.listen(0)
        fillers = [socket.socket() for _ in range(4)]  # with its backlog full, the kernel drops what comes
        for sock in fillers:
            self.addCleanup(sock.close)
            sock.setblocking(False)
            sock.connect_ex(('127.5.0.1', server.port))
        front = self.front(hosts={'closed.example': ['::1', '127.5.0.2', '127.0.0.1'],
                                  'silent.example': ['127.5.0.1', '127.0.0.1']})
        door = front.front_door()
        for host, least in (('closed.example', 0), ('silent.example', 0.24)):
            began = time.monotonic()
            sock, _ = self.open_tunnel(door, host, server.port)
            self.assertGreaterEqual(time.monotonic() - began, least)
            sock.sendall(b'1')
            self.assertEqual(sock.recv(1), b'1')
            sock.close()
        self.assertEqual([d['address'] for d in front.wait_done(2)], ['127.0.0.1'] * 2)

    def test_forget_ends_tunnels(self):
        server = self.server(echo)
        front = self.front(hosts={'a.example': ['127.0.0.1'], 'b.example': ['127.0.0.1']})
        door = front.front_door()
        a, _ = self.open_tunnel(door, 'a.example', server.port)
        b, _ = self.open_tunnel(door, 'b.example', server.port)
        front.forget()
        a.sendall(b'1')
        self.assertEqual(a.recv(1), b'1')
        front.forget('a.example')
        self.assertEqual(read_all(a)[0], b'')
        b.sendall(b'1')
        self.assertEqual(b.recv(1), b'1')
        asked = len(front.of(ASK))
        self.open_tunnel(door, 'b.example', server.port)
        self.assertEqual(len(front.of(ASK)), asked + 1)

    def test_client_reset_is_carried(self):
        server = self.server(lambda conn: got.append(read_all(conn)))
        got = []
        front = self.front()
        sock, _ = self.open_tunnel(front.front_door(), '127.0.0.1', server.port)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        sock.close()
        front.wait_done()
        self.until(lambda: got)
        self.assertEqual(got, [(b'', True)])


class Socks(Case):
    def request(self, sock, address, port, command=1):
        sock.sendall(b'\5\1\0')
        self.assertEqual(read_exactly(sock, 2), b'\5\0')
        sock.sendall(b'\5' + bytes([command]) + b'\0' + address + struct.pack('>H', port))
        return read_exactly(sock, 10)[1]

    def test_socks(self):
        server = self.server(echo)
        front = self.front(hosts={'a.example': ['127.0.0.1']})
        front.verdicts['no.example'] = (0, REASONS.index('denied'), KEEP, '')
        door = front.front_door()
        for address in (b'\3\x09a.example', b'\1\x7f\0\0\1'):
            sock = self.connect(door)
            self.assertEqual(self.request(sock, address, server.port), 0)
            sock.sendall(b'hello')
            self.assertEqual(read_exactly(sock, 5), b'hello')
        self.assertEqual(self.request(self.connect(door), b'\3\x0ano.example', 22), 2)
        self.assertEqual(self.request(self.connect(door), b'\3\x0cnone.example', 22), 4)
        self.assertEqual(self.request(self.connect(door), b'\1\x7f\0\0\1', 1), 5)
        self.assertEqual(self.request(self.connect(door), b'\1\x7f\0\0\1', 1, command=2), 7)
        self.assertEqual(self.request(self.connect(door), b'\1\x7f\0\0\1', 1, command=3), 7)
        self.assertEqual(self.request(self.connect(door), b'\3\x05a\r\nb.', 80), 1)
        self.assertEqual(front.of(ASK)[0]['protocol'], 'socks5_tcp')

    def test_no_method_and_socks4(self):
        front = self.front()
        door = front.front_door()
        sock = self.connect(door)
        sock.sendall(b'\5\1\2')
        self.assertEqual(read_all(sock), (b'\5\xff', False))
        sock = self.connect(door)
        sock.sendall(b'\4\1\0\x50\x7f\0\0\1x\0')
        self.assertEqual(read_all(sock), (b'\0\x5b' + bytes(6), False))

    def test_address_of_a_name(self):
        server = self.server(echo)
        front = self.front(hosts={'a.example': ['127.0.0.1']})
        dns = front.listen(DNS_UDP, 53)
        code, records = self.ask_dns(front, dns, 'a.example')
        self.assertEqual(code, 0)
        sock = self.connect(front.front_door())
        self.assertEqual(self.request(sock, b'\1' + records[0], server.port), 0)
        self.assertEqual(front.of(ASK)[0]['host'], 'a.example')


class ByName(Case):
    """Listeners on high ports that the proxy takes for 22, 80, 443."""

    def name(self, front, name):
        if not hasattr(front, 'dns'):
            front.dns = front.listen(DNS_UDP, 53)
        code, records = self.ask_dns(front, front.dns, name)
        self.assertEqual((code, len(records)), (0, 1), name)
        return socket.inet_ntop(socket.AF_INET, records[0])

    def test_opaque(self):
        server = self.server(echo)
        front = self.front(hosts={'a.example': ['127.0.0.1']})
        port = front.listen(BY_NAME, server.port, ('0.0.0.0', 0))
        sock = self.connect(port, self.name(front, 'a.example'))
        sock.sendall(b'hello')
        self.assertEqual(read_exactly(sock, 5), b'hello')
        ask = front.of(ASK)[0]
        self.assertEqual((ask['host'], ask['via'], ask['client_port']), ('a.example', 1, sock.getsockname()[1]))

    def test_other_addresses_are_reset(self):
        front = self.front()
        port = front.listen(BY_NAME, 443, ('0.0.0.0', 0))
        for address in ('127.0.0.1', '127.64.1.77', '127.127.255.254'):
            with self.assertRaises(ConnectionResetError):
                self.connect(port, address).recv(1)
        self.assertEqual(front.of(ASK), [])

    def test_http_refused_and_foreign_host(self):
        front = self.front()
        front.verdicts['no.example'] = (0, REASONS.index('not_allowed'), KEEP, '')
        port = front.listen(BY_NAME, 80, ('0.0.0.0', 0))
        address = self.name(front, 'no.example')
        sock = self.connect(port, address)
        sock.sendall(b'GET / HTTP/1.1\r\nHost: no.example\r\n\r\n')
        status, _, body, _ = read_response(sock)
        self.assertEqual((status, json.loads(body)['host']), (403, 'no.example'))
        for request in (b'GET / HTTP/1.1\r\nHost: other.example\r\n\r\n', b'hello\r\n\r\n',
                        b'CONNECT no.example:80 HTTP/1.1\r\nHost: no.example:80\r\n\r\n'):
            sock = self.connect(port, address)
            sock.sendall(request)
            self.assertEqual(read_response(sock)[0], 400)

    def test_tls_refusal(self):
        front = self.front()
        front.verdicts['no.example'] = (0, REASONS.index('not_allowed'), KEEP, '')
        port = front.listen(BY_NAME, 443, ('0.0.0.0', 0))
        for name, alert in (('no.example', b'\x15\3\3\0\2\2\x31'), ('none.example', b'\x15\3\3\0\2\2\x70')):
            sock = self.connect(port, self.name(front, name))
            sock.sendall(client_hello(name))
            self.assertEqual(read_all(sock), (alert, False))
        sock = self.connect(port, self.name(front, 'no.example'))
        with self.assertRaises(ConnectionResetError):  # no byte within 2 s
            sock.recv(1)

    def test_ssh_refusal(self):
        front = self.front()
        front.verdicts['no.example'] = (0, REASONS.index('not_allowed'), KEEP, 'Network access to "no.example" was blocked: x')
        port = front.listen(BY_NAME, 22, ('0.0.0.0', 0))
        address = self.name(front, 'no.example')
        for first in (b'SSH-2.0-test\r\n', b''):
            sock = self.connect(port, address)
            sock.sendall(first)
            data, was_reset = read_all(sock)
            self.assertFalse(was_reset)
            version, packet = data.split(b'\r\n', 1)
            self.assertEqual(version, b'SSH-2.0-sallyport')
            length, padding = struct.unpack_from('>IB', packet)
            self.assertEqual((len(packet), len(packet) % 8), (4 + length, 0))
            kind, code, n = struct.unpack_from('>BII', packet, 5)
            self.assertEqual((kind, code), (1, 1))
            self.assertEqual(packet[14:14 + n], b'Network access to "no.example" was blocked: x')
            self.assertGreaterEqual(padding, 4)

    def test_hang_up_while_asked(self):
        front = self.front(linger_ms=2000)
        front.verdicts['slow.example'] = None
        port = front.listen(BY_NAME, 22, ('0.0.0.0', 0))
        address = self.name(front, 'slow.example')
        sock = self.connect(port, address)
        ask = front.wait(lambda: front.of(ASK))[0]
        sock.close()
        gone = front.wait(lambda: front.of(GONE))[0]
        self.assertEqual(gone['number'], ask['number'])
        self.assertGreater(gone['at'] - ask['at'], 1.9)
        # A verdict within the time is kept, and the next connection needs no question.
        sock = self.connect(port, address)
        ask = front.wait(lambda: front.of(ASK)[1:])[0]
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        sock.close()
        time.sleep(0.2)
        front.verdict(ask['number'], 0, REASONS.index('not_allowed'), KEEP, 'no')
        front.wait_done(1, outcome='abandoned', number=ask['number'])
        sock = self.connect(port, address)
        self.assertIn(b'SSH-2.0-sallyport', read_all(sock)[0])
        self.assertEqual((len(front.of(ASK)), len(front.of(GONE))), (2, 1))


def client_hello(name=None, pad=0):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


@low_ports
class ServerName(Case):
    """On port 443 of an address of the test's own."""
    ADDRESS = '127.77.%d.%d' % (os.getpid() >> 8 & 255, os.getpid() & 255)

    def setUp(self):
        self.got = []

        def serve(conn):
            conn.sendall(b'server first')
            while True:
                data = conn.recv(65536)
                if not data:
                    return
                self.got.append(data)
                conn.sendall(b'ack')
        self.host = self.server(serve, self.ADDRESS, 443)
        self.f = self.front(hosts={'a.example': [self.ADDRESS]})
        self.f.listed.add('b.example')
        self.door = self.f.front_door()

    def tunnel(self):
        sock, rest = self.open_tunnel(self.door, 'a.example', 443)
        self.assertEqual(rest + read_exactly(sock, 12 - len(rest)), b'server first')
        return sock

    def test_passes(self):
        for hello in (client_hello('a.example'), client_hello('A.EXAMPLE'), client_hello('b.example'), client_hello(),
                      b'SSH-2.0-x\r\n', b'x'):
            sock = self.tunnel()
            sock.sendall(hello)
            self.assertEqual(read_exactly(sock, 3), b'ack')
            self.assertEqual(b''.join(self.got), hello)
            self.got.clear()

    def test_in_pieces(self):
        hello = client_hello('a.example')
        sock = self.tunnel()
        for at in range(0, len(hello), 50):
            sock.sendall(hello[at:at + 50])
            time.sleep(0.01)
        self.assertEqual(read_exactly(sock, 3), b'ack')
        self.assertEqual(b''.join(self.got), hello)

    def test_mismatch(self):
        sock = self.tunnel()
        sock.sendall(client_hello('c.example'))
        self.assertEqual(read_all(sock), (b'\x15\3\3\0\2\2\x70', False))
        self.assertEqual(self.got, [])
        done = self.f.wait_done(1, outcome='blocked')[0]
        self.assertEqual((done['host'], done['reason']), ('a.example', 'sni_mismatch'))

    def test_too_long(self):
        sock = self.tunnel()
        sock.sendall(b'\x16\3\1\x40\0\1\0\xff\xff\3\3' + bytes(16384) + b'\x16\3\1\x40\0' + bytes(4000))
        read_all(sock)
        self.assertEqual(self.got, [])


@low_ports
class PortEighty(Case):
    ADDRESS = '127.78.%d.%d' % (os.getpid() >> 8 & 255, os.getpid() & 255)

    def test_origin_form_and_preface(self):
        def serve(conn):
            text, rest = read_head(conn)
            if text.startswith('PRI'):
                conn.sendall(b'h2:' + rest)
            else:
                conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine')
                echo(conn)
        self.server(serve, self.ADDRESS, 80)
        front = self.front(hosts={'a.example': [self.ADDRESS]})
        _, records = self.ask_dns(front, front.listen(DNS_UDP, 53), 'a.example')
        port = front.listen(BY_NAME, 80, ('0.0.0.0', 0))
        sock = self.connect(port, socket.inet_ntoa(records[0]))
        sock.sendall(b'GET /x HTTP/1.1\r\nHost: A.example\r\n\r\n')
        self.assertEqual(read_response(sock)[2], b'fine')
        sock = self.connect(port, socket.inet_ntoa(records[0]))
        sock.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
        self.assertEqual(read_exactly(sock, 9), b'h2:SM\r\n\r\n')


class Dns(Case):
    def test_table(self):
        front = self.front(hosts={'listed.example': ['192.0.2.1'], 'failed.example': FAILED})
        front.listed |= {'listed.example', 'gone.example', 'failed.example', 'printer.local'}
        front.hosts['printer.local'] = ['10.0.0.9']
        port = front.listen(DNS_UDP, 53)

        def ask(name, kind=1):
            return self.ask_dns(front, port, name, kind)
        loopback = socket.inet_aton('127.0.0.1')
        self.assertEqual(ask('localhost'), (0, [loopback]))
        self.assertEqual(ask('x.LocalHost'), (0, [loopback]))
        self.assertEqual(ask('localhost', 28), (0, [socket.inet_pton(socket.AF_INET6, '::1')]))
        self.assertEqual(ask('localhost', 16), (0, []))
        code, first = ask('listed.example')
        self.assertEqual((code, first[0][:2]), (0, b'\x7f\x40'))
        self.assertEqual(ask('LISTED.example'), (0, first))
        self.assertEqual(ask('listed.example', 28), (0, []))
        self.assertEqual(ask('gone.example'), (3, []))
        self.assertEqual(ask('gone.example', 28), (3, []))
        self.assertEqual(ask('failed.example'), (2, []))
        for name in ('printer', 'x.onion', 'x.internal', 'x.home.arpa', 'other.local'):
            self.assertEqual((ask(name), ask(name, 28)), ((3, []), (3, [])), name)
        self.assertEqual(ask('printer.local')[0], 0)
        code, records = ask('unlisted.example')
        self.assertEqual((code, len(records)), (0, 1))
        for kind in (28, 16, 15, 33, 65):
            self.assertEqual(ask('unlisted.example', kind), (0, []))
        reverse = '.'.join(str(b) for b in reversed(first[0])) + '.in-addr.arpa'
        self.assertEqual(ask(reverse, 12), (0, [b'\6listed\7example\0']))
        self.assertEqual(ask('1.0.0.127.in-addr.arpa', 12), (3, []))
        self.assertNotIn('unlisted.example', front.looked_up)
        self.assertEqual(len(front.of(KNOW, host='unlisted.example')), 1)

    def test_tcp(self):
        front = self.front()
        sock = self.connect(front.listen(DNS_TCP, 53))
        first, second = question('one.example', number=1), question('two.example', number=2)
        data = b''.join(struct.pack('>H', len(q)) + q for q in (first, second))
        for at in range(0, len(data), 7):
            sock.sendall(data[at:at + 7])
        got = {}
        for _ in range(2):
            n, = struct.unpack('>H', read_exactly(sock, 2))
            reply = read_exactly(sock, n)
            got[reply[1]] = reply
        self.assertEqual([len(answer(got[1], first)[1]), len(answer(got[2], second)[1])], [1, 1])

    def test_slow_resolver_delays_nobody_else(self):
        front = self.front(hosts={'slow.example': None, 'fast.example': ['192.0.2.1']})
        front.listed |= {'slow.example', 'fast.example'}
        port = front.listen(DNS_UDP, 53)
        began = time.monotonic()
        slow = threading.Thread(target=lambda: got.append(self.ask_dns(front, port, 'slow.example')))
        got = []
        slow.start()
        front.wait(lambda: 'slow.example' in front.looked_up)
        self.assertEqual(self.ask_dns(front, port, 'fast.example')[0], 0)
        self.assertLess(time.monotonic() - began, 1.5)
        slow.join()
        self.assertEqual(got, [(2, [])])
        self.assertGreater(time.monotonic() - began, 1.9)

    def test_flood_is_dropped(self):
        front = self.front()
        port = front.listen(DNS_UDP, 53)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for i in range(5000):
            sock.sendto(question('localhost'), ('127.0.0.1', port))
        sock.close()
        front.wait(lambda: front.of(COUNTS) and front.of(COUNTS)[-1]['dns_dropped'] > 0)

    def test_resolver_dies(self):
        server = self.server(echo)
        front = self.front(hosts={'a.example': None, 'b.example': ['127.0.0.1']})
        door = front.front_door()
        tunnel, _ = self.open_tunnel(door, '127.0.0.1', server.port)
        sock = self.connect(door)
        sock.sendall(b'CONNECT a.example:1 HTTP/1.1\r\nHost: a.example:1\r\n\r\n')
        front.wait(lambda: front.looked_up)
        give = front.new_resolver()
        self.assertEqual(read_response(sock)[0], 502)
        give()
        self.open_tunnel(door, 'b.example', server.port)
        tunnel.sendall(b'1')
        self.assertEqual(tunnel.recv(1), b'1')


class Upstream(Case):
    def proxy(self, status=200):
        seen = []

        def serve(conn):
            text, rest = read_head(conn)
            seen.append(text)
            if text.startswith('CONNECT') and status == 200:
                conn.sendall(b'HTTP/1.1 200 fine\r\n\r\nearly')
                conn.sendall(rest)
                echo(conn)
            elif text.startswith('CONNECT'):
                conn.sendall(b'HTTP/1.1 %d no\r\nContent-Length: 0\r\n\r\n' % status)
            else:
                conn.sendall(b'HTTP/1.1 %d OK\r\nContent-Length: 2\r\n\r\nup' % status)
        return self.server(serve), seen

    def test_upstream(self):
        server, seen = self.proxy()
        direct = self.server(echo)
        at = '127.0.0.1:%d' % server.port
        front = self.front(http=at, https=at + ' dTpw', no_proxy='x.example, .direct.example',
                           hosts={'d.direct.example': ['127.0.0.1'], 'a.example': FAILED})
        door = front.front_door()
        sock, rest = self.open_tunnel(door, 'a.example', 8443)
        self.assertEqual(rest + read_exactly(sock, 5 - len(rest)), b'early')
        sock.sendall(b'hello')
        self.assertEqual(read_exactly(sock, 5), b'hello')
        self.assertTrue(seen[0].startswith('CONNECT a.example:8443 HTTP/1.1'))
        self.assertIn('Proxy-Authorization: Basic dTpw', seen[0])
        sock = self.connect(door)
        sock.sendall(b'GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n')
        self.assertEqual(read_response(sock)[2], b'up')
        self.assertTrue(seen[1].startswith('GET http://a.example'), seen[1])
        sock, _ = self.open_tunnel(door, 'd.direct.example', direct.port)
        sock.sendall(b'straight')
        self.assertEqual(read_exactly(sock, 8), b'straight')
        self.assertEqual(len(seen), 2)

    def test_upgrade_is_tunnelled(self):
        """Behind a 101 bytes pass unread: an upstream proxy that stayed in HTTP would read requests in them."""
        def serve(conn):
            text, rest = read_head(conn)
            while text:
                seen.append(text)
                if 'Upgrade: thing' in text:
                    conn.sendall(b'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: thing\r\n\r\n')
                    echo(conn)
                    return
                conn.sendall(b'HTTP/1.1 200 OK\r\n%s\r\n' % (b'' if text.startswith('CONNECT') else b'Content-Length: 0\r\n'))
                text, rest = read_head(conn, rest)
        seen = []
        server = self.server(serve)
        front = self.front(http='127.0.0.1:%d' % server.port, hosts={'a.example': FAILED})
        sock = self.connect(front.front_door())
        sock.sendall(b'GET http://a.example/1 HTTP/1.1\r\nHost: a.example\r\n\r\n')
        self.assertEqual(read_response(sock)[0], 200)
        sock.sendall(b'GET http://a.example/2 HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: thing\r\n\r\n')
        self.assertTrue(read_head(sock)[0].startswith('HTTP/1.1 101'))
        sock.sendall(b'GET http://b.example/ HTTP/1.1\r\n\r\n')
        self.assertEqual(read_exactly(sock, 4), b'GET ')
        self.assertEqual([text.split('\r\n')[0] for text in seen],
                         ['GET http://a.example/1 HTTP/1.1', 'CONNECT a.example:80 HTTP/1.1', 'GET /2 HTTP/1.1'])

    def test_credentials_do_not_come_back(self):
        """An upstream proxy answers TRACE with the request, which has the credentials of the host."""
        server, seen = self.proxy()
        direct, found = self.proxy()
        front = self.front(http='127.0.0.1:%d dTpw' % server.port, no_proxy='.direct.example',
                           hosts={'d.direct.example': ['127.0.0.1'], 'a.example': FAILED})
        for method, host, status in (('TRACE', 'a.example', 501), ('trace', 'a.example', 501),
                                     ('TRACE', 'd.direct.example:%d' % direct.port, 200)):
            sock = self.connect(front.front_door())
            sock.sendall(b'%s http://%s/ HTTP/1.1\r\nHost: %s\r\nMax-Forwards: 0\r\n\r\n' % (
                method.encode(), host.encode(), host.encode()))
            self.assertEqual(read_response(sock)[0], status, method)
        self.assertEqual((seen, len(found)), ([], 1))

    def test_upstream_refuses(self):
        server, _ = self.proxy(407)
        at = '127.0.0.1:%d' % server.port
        front = self.front(http=at, https=at, hosts={'a.example': FAILED})
        sock = self.connect(front.front_door())
        sock.sendall(b'GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n')
        status, _, body, _ = read_response(sock)
        self.assertEqual((status, b'407' in body), (502, True))
        sock = self.connect(front.front_door())
        sock.sendall(b'CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n')
        status, _, body, _ = read_response(sock)
        self.assertEqual((status, b'407' in body), (502, True))
        front.wait_done(1, outcome='upstream')


class Hostile(Case):
    def test_random_bytes(self):
        """To every listener, with beginnings that lead far into each parser. Afterwards all is as before."""
        server = self.server(echo)
        front = self.front(hosts={'a.example': ['127.0.0.1'], 'listed.example': ['127.0.0.1']})
        front.default = (1, 0, LITERAL, '')
        front.listed.add('listed.example')
        door, udp, tcp = front.front_door(), front.listen(DNS_UDP, 53), front.listen(DNS_TCP, 53)
        code, records = self.ask_dns(front, udp, 'a.example')
        name = socket.inet_ntoa(records[0])
        doors = [('127.0.0.1', door), ('127.0.0.1', tcp)]
        doors += [(name, front.listen(BY_NAME, port, ('0.0.0.0', 0))) for port in (22, 80, 443, server.port)]
        at = b'127.0.0.1:%d' % server.port
        beginnings = [b'', b'\5\1\0\5\1\0', b'\5\1\0\5\1\0\3', b'GET http://%s/ HTTP/1.1\r\n' % at,
                      b'POST http://%s/ HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n' % (at, at),
                      b'CONNECT %s HTTP/1.1\r\n\r\n' % at, b'\x16\3\1', b'SSH-', b'\0\x20' + question('a.example')]
        rng = random.Random(1)
        end = time.monotonic() + (60 if tap.IS_LONG else 3)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(datagrams.close)
        while time.monotonic() < end:
            try:
                with socket.create_connection(rng.choice(doors), LIMIT) as sock:
                    for _ in range(rng.randrange(1, 4)):
                        sock.sendall(rng.choice(beginnings) + rng.randbytes(rng.choice((1, 30, 3000))))
                    if rng.random() < 0.3:
                        sock.settimeout(0.01)
                        sock.recv(1000)
            except (ConnectionError, TimeoutError):
                pass
            datagrams.sendto(question('x.example')[:rng.randrange(40)] + rng.randbytes(rng.randrange(60)),
                             ('127.0.0.1', udp))
        sock, _ = self.open_tunnel(door, '127.0.0.1', server.port)
        sock.sendall(b'1')
        self.assertEqual(sock.recv(1), b'1')
        self.assertEqual(self.ask_dns(front, udp, 'a.example'), (code, records))


class Load(Case):
    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 8192:
            self.skipTest('not enough descriptors')
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, hard))

    def test_full(self):
        """1,024 connections and one more: waits, then works. RSS and descriptors come back."""
        server = self.server(echo)
        hosts = {'h%d.example' % i: ['127.0.0.1'] for i in range(5)}
        front = self.front(hosts=hosts)
        door = front.front_door()
        front.ping()
        before = front.descriptors()
        socks = []
        for i in range(1024):
            sock = self.connect(door)
            host = b'h%d.example:%d' % (i % 5, server.port)
            sock.sendall(b'CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n' % (host, host))
            socks.append(sock)
        for sock in socks:
            self.assertEqual(read_response_head(sock)[0], 200)
        for _ in range(2):
            for sock in socks:
                sock.sendall(b'x')
            for sock in socks:
                self.assertEqual(sock.recv(1), b'x')
        print('# RSS with 1,024 tunnels: %d KiB' % front.memory_kb())
        if not SANITIZED:
            self.assertLess(front.memory_kb(), 40 << 10)
        more = self.connect(door)
        more.sendall(b'CONNECT h0.example:%d HTTP/1.1\r\nHost: h0.example:%d\r\n\r\n' % (server.port, server.port))
        more.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            more.recv(1)
        socks.pop().close()
        more.settimeout(LIMIT)
        self.assertEqual(read_response_head(more)[0], 200)
        for sock in socks + [more]:
            sock.close()
        front.wait_done(1025)
        self.until(lambda: front.descriptors() == before)
        print('# RSS afterwards: %d KiB' % front.memory_kb())

    def test_crowded_host(self):
        server = self.server(echo)
        front = self.front()
        door = front.front_door()
        for i in range(256):
            self.open_tunnel(door, '127.0.0.1', server.port)
        sock = self.connect(door)
        sock.sendall(b'CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n' % (server.port, server.port))
        status, _, body, _ = read_response(sock)
        self.assertEqual((status, body.strip()), (503, b'too many connections to this host'))

    def test_no_descriptors_left(self):
        """What cannot be accepted waits, also for DNS, and takes no processor time; later all of it is served."""
        server = self.server(echo)
        front = self.front()
        door, tcp = front.front_door(), front.listen(DNS_TCP, 53)
        front.ping()
        resource.prlimit(front.process.pid, resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        socks = [self.connect(door) for _ in range(60)]
        asking = self.connect(tcp)
        query = question('one.example')
        asking.sendall(struct.pack('>H', len(query)) + query)
        front.ping()
        cpu = front.cpu_s()
        asking.settimeout(0.5)
        with self.assertRaises(TimeoutError):
            asking.recv(2)
        self.assertLess(front.cpu_s() - cpu, 0.25)
        for sock in socks:
            sock.close()
        asking.settimeout(LIMIT)
        size, = struct.unpack('>H', read_exactly(asking, 2))
        self.assertEqual(answer(read_exactly(asking, size), query)[0], 0)
        self.open_tunnel(door, '127.0.0.1', server.port)

    def test_many_are_judged(self):
        """More than 256 open questions: the others wait, and are asked later."""
        front = self.front()
        front.default = None
        door = front.front_door()
        socks = []
        for i in range(300):
            sock = self.connect(door)
            sock.sendall(b'CONNECT q%d.example:443 HTTP/1.1\r\nHost: q%d.example:443\r\n\r\n' % (i, i))
            socks.append(sock)
        front.wait(lambda: len(front.of(ASK)) >= 256)
        time.sleep(0.2)
        self.assertEqual(len(front.of(ASK)), 256)
        front.default = (0, 2, 0, '')
        for ask in front.of(ASK)[:256]:
            front.verdict(ask['number'], 0, REASONS.index('not_allowed'), 0, '')
        for sock in socks:
            self.assertEqual(read_response(sock)[0], 403)


if __name__ == '__main__':
    tap.main()
