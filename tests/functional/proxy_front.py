# SPDX-License-Identifier: Apache-2.0
"""Plays the front and the resolver for one `sallyport proxy` process: hands it listeners, answers its
questions, and keeps what it says (src/proxy/proxy_message.h, src/proxy/resolver.h)."""

import array
import os
import selectors
import socket
import struct
import subprocess
import threading
import time

SALLYPORT = os.environ.get('SALLYPORT', 'build/sallyport')
COMMAND = os.environ.get('SALLYPORT_PROXY', SALLYPORT + ' proxy').split()
LIMIT = 20 * float(os.environ.get('SALLYPORT_TEST_SCALE', '1'))

HELLO, RESOLVER, LISTEN, VERDICT, FORGET, PING, RELAY, READY, UNABLE, ASK, KNOW, GONE, DONE, COUNTS, PONG, CLOSED = range(1, 17)
SOCKS, CHECK_SNI, LIMITED, UPSTREAM_STRICT = 1, 2, 4, 8
DNS_UDP, DNS_TCP, FRONT_DOOR, BY_NAME = range(1, 5)
KEEP, LOCAL, LITERAL, DECIDED = 1, 2, 4, 8
FOUND, NONE, FAILED = range(3)
REASONS = ['none', 'other', 'denied', 'not_allowed', 'not_allowed_local', 'method_not_allowed', 'mitm_required',
           'proxy_disabled', 'sni_mismatch']
OUTCOMES = ['reached', 'blocked', 'unresolved', 'refused', 'timed_out', 'unreachable', 'crowded', 'upstream',
            'abandoned']
PROTOCOLS = ['http', 'https_connect', 'socks5_tcp']
# A process that is not dumpable and has a filter cannot be searched for leaks.
ENVIRONMENT = {'ASAN_OPTIONS': 'detect_leaks=0'}
NAMES_BYTES = 1 << 20  # more than sp_names_bytes


def head(op, rest=b'', number=0):
    return struct.pack('<HHIQ', 1, op, len(rest), number) + rest


class Front:
    """allowed: what a host's questions are answered with: a tuple (is_allowed, reason, flags, text), or None to
    leave it open. listed: answers to KNOW. hosts: the resolver's table, name -> list of addresses, NONE or FAILED, or
    None for no answer."""

    def __init__(self, flags=SOCKS | CHECK_SNI, linger_ms=1000, own_ports=(), http='', https='', no_proxy='', hosts=None):
        self.verdicts, self.listed, self.hosts = {}, set(), dict(hosts or {})
        self.default = (1, 0, KEEP | LITERAL, '')
        self.said, self.looked_up, self.changed = [], [], threading.Condition()
        self.is_down = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        self.process = subprocess.Popen(COMMAND, stdin=theirs, env=ENVIRONMENT)
        theirs.close()
        self.names = os.memfd_create('names', os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(self.names, NAMES_BYTES)
        self.selector = selectors.DefaultSelector()
        self.selector.register(ours, selectors.EVENT_READ, self.take)
        wake, self.waker = os.pipe()
        self.selector.register(wake, selectors.EVENT_READ, lambda fd: os.read(fd, 1))
        self.resolver, resolver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.selector.register(self.resolver, selectors.EVENT_READ, self.look_up)
        texts = [t.encode() for t in (http, https, no_proxy)]
        ports = list(own_ports) + [0] * (64 - len(own_ports))
        body = struct.pack('<IIHHHH64H', flags, linger_ms, *[len(t) for t in texts], len(own_ports), *ports)
        self.send(head(HELLO, body + b''.join(texts)), [self.names, resolver.fileno()])
        resolver.close()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        self.wait(lambda: self.of(READY))

    # ---- messages ----

    def send(self, message, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else []
        self.socket.sendmsg([message], rights)

    def serve(self):
        while not self.is_down:
            for key, _ in self.selector.select():
                key.data(key.fileobj)

    def take(self, sock):
        try:
            data = sock.recv(65536)
        except ConnectionError:
            data = b''
        if not data:
            self.selector.unregister(sock)
            self.is_down = True
            with self.changed:
                self.changed.notify_all()
            return
        _, op, length, number = struct.unpack_from('<HHIQ', data)
        assert len(data) == 16 + length, (op, length, len(data))
        said = {'op': op, 'number': number, 'at': time.monotonic()}
        if op == ASK:
            protocol, via, host_len, method_len, port, client_port = struct.unpack_from('<BBBBHH', data, 16)
            said.update(protocol=PROTOCOLS[protocol], via=via, port=port, client_port=client_port,
                        host=data[40:40 + host_len].decode(),
                        method=data[40 + host_len:40 + host_len + method_len].decode())
        elif op == DONE:
            outcome, reason, protocol, via, port, host_len, family = struct.unpack_from('<BBBBHBB', data, 16)
            sent, received, ms = struct.unpack_from('<QQQ', data, 40)
            address = data[24:28] if family == 4 else data[24:40]
            said.update(outcome=OUTCOMES[outcome], reason=REASONS[reason], protocol=PROTOCOLS[protocol], via=via,
                        port=port, host=data[80:80 + host_len].decode(), sent=sent, received=received, ms=ms,
                        address=socket.inet_ntop({4: socket.AF_INET, 6: socket.AF_INET6}[family], address)
                        if family else None)
        elif op == KNOW:
            host, _, port = data[16:].decode().partition(':')
            said.update(host=host, port=int(port or 0))
        elif op == COUNTS:
            said.update(zip(('active', 'names', 'dns_name', 'dns_none', 'dns_failed', 'dns_dropped', 'resolves'),
                            struct.unpack_from('<IIQQQQQ', data, 16)))
        with self.changed:
            self.said.append(said)
            self.changed.notify_all()
        if op == ASK:
            answer = self.verdicts.get(said['host'], self.default)
            if callable(answer):
                answer = answer(said)
            if answer is not None:
                self.verdict(number, *answer)
        elif op == KNOW:
            self.verdict(number, said['host'] in self.listed, 0, KEEP, '')

    def verdict(self, number, is_allowed, reason, flags, text):
        self.send(head(VERDICT, struct.pack('<BBB5x', is_allowed, reason, flags) + text.encode(), number))

    def forget(self, host=''):
        self.send(head(FORGET, host.encode()))

    def look_up(self, sock):
        data = sock.recv(4096)
        if not data:
            self.selector.unregister(sock)
            return
        number, host, port = struct.unpack('<Q254sH', data)
        host = host.split(b'\0')[0].decode()
        with self.changed:
            self.looked_up.append(host)
            self.changed.notify_all()
        found = self.hosts.get(host, NONE)
        if found is None:
            return
        if isinstance(found, int):
            sock.send(struct.pack('<QBB6x', number, found, 0) + bytes(384))
            return
        packed = b''
        for text in found:
            family = socket.AF_INET6 if ':' in text else socket.AF_INET
            packed += struct.pack('<BBH16sI', 6 if ':' in text else 4, 0, 0, socket.inet_pton(family, text), 0)
        sock.send(struct.pack('<QBB6x', number, FOUND, len(found)) + packed.ljust(384, b'\0'))

    def new_resolver(self):
        """The resolver dies; returns a function that gives the proxy another one."""
        self.selector.unregister(self.resolver)
        self.resolver.close()

        def give():
            self.resolver, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.selector.register(self.resolver, selectors.EVENT_READ, self.look_up)
            os.write(self.waker, b'x')
            self.send(head(RESOLVER), [other.fileno()])
            other.close()
        return give

    # ---- listeners ----

    def listen(self, kind, port, address=('127.0.0.1', 0)):
        """Returns the port of the socket; `port` is the one that the proxy takes it for."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == DNS_UDP else socket.SOCK_STREAM)
        sock.bind(address)
        if kind != DNS_UDP:
            sock.listen(4096)
        self.send(head(LISTEN, struct.pack('<BBHI', kind, 0, port, 0)), [sock.fileno()])
        bound = sock.getsockname()[1]
        sock.close()
        return bound

    def front_door(self):
        return self.listen(FRONT_DOOR, 808)

    # ---- what was said ----

    def of(self, op, **members):
        return [m for m in self.said if m['op'] == op and all(m.get(k) == v for k, v in members.items())]

    def wait(self, condition, limit=LIMIT):
        end = time.monotonic() + limit
        with self.changed:
            while not condition():
                left = end - time.monotonic()
                if left <= 0 or (self.is_down and not condition()):
                    raise AssertionError('not said; the last of %d messages: %r' % (len(self.said), self.said[-6:]))
                self.changed.wait(min(left, 0.2))
        return condition()

    def wait_done(self, count=1, **members):
        return self.wait(lambda: len(self.of(DONE, **members)) >= count and self.of(DONE, **members))

    def ping(self):
        """Waits until the proxy has read everything that was sent so far."""
        number = len(self.said) + 1
        self.send(head(PING, number=number))
        self.wait(lambda: self.of(PONG, number=number))

    def memory_kb(self):
        with open('/proc/%d/status' % self.process.pid) as f:
            return int([line for line in f if line.startswith('VmRSS')][0].split()[1])

    def cpu_s(self):
        with open('/proc/%d/stat' % self.process.pid) as f:
            fields = f.read().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def descriptors(self):
        return len(os.listdir('/proc/%d/fd' % self.process.pid))

    def stop(self):
        """Ends the front's socket; the proxy has to end by itself, without complaint."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.is_down = True
        os.write(self.waker, b'x')
        status = self.process.wait(LIMIT)
        self.socket.close()
        self.resolver.close()
        os.close(self.names)
        return status


# ---- servers of the tests ----

class Server:
    """Accepts connections on loopback and gives each to `serve` in a thread."""

    def __init__(self, serve, address='127.0.0.1', port=0):
        self.socket = socket.create_server((address, port), backlog=2048)
        self.port, self.connections, self.serve = self.socket.getsockname()[1], [], serve
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                conn, _ = self.socket.accept()
            except OSError:
                return
            self.connections.append(conn)
            threading.Thread(target=self.guard, args=[conn], daemon=True).start()

    def guard(self, conn):
        try:
            self.serve(conn)
        except OSError:
            pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes accept, which would keep the port
        self.socket.close()
        for conn in self.connections:
            conn.close()


def echo(conn):
    while True:
        data = conn.recv(65536)
        if not data:
            break
        conn.sendall(data)
    conn.shutdown(socket.SHUT_WR)


def read_head(conn, data=b''):
    while b'\r\n\r\n' not in data:
        more = conn.recv(65536)
        if not more:
            return None, b''
        data += more
    text, rest = data.split(b'\r\n\r\n', 1)
    return text.decode('latin-1'), rest


def web(seen):
    """An HTTP server that answers each request with the first line and Host it got; `seen` collects heads."""
    def serve(conn):
        rest = b''
        while True:
            text, rest = read_head(conn, rest)
            if text is None:
                return
            seen.append(text)
            fields = {k.lower(): v for k, v in (line.split(': ', 1) for line in text.split('\r\n')[1:])}
            need = int(fields.get('content-length', 0))
            while len(rest) < need:
                rest += conn.recv(65536)
            body = ('%s|%s|%d' % (text.split('\r\n')[0], fields.get('host'), need)).encode()
            rest = rest[need:]
            conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))
    return serve


def read_response(conn, data=b''):
    """(status, head, body, rest) of a response with a length, or until the end."""
    text, rest = read_head(conn, data)
    if text is None:
        return None, '', b'', b''
    fields = {k.lower(): v for k, v in (line.split(': ', 1) for line in text.split('\r\n')[1:] if ': ' in line)}
    if 'content-length' in fields:
        need = int(fields['content-length'])
        while len(rest) < need:
            more = conn.recv(65536)
            if not more:
                break
            rest += more
        return int(text.split()[1]), text, rest[:need], rest[need:]
    return int(text.split()[1]), text, rest, b''


def read_all(conn):
    data = b''
    while True:
        try:
            more = conn.recv(65536)
        except ConnectionResetError:
            return data, True
        if not more:
            return data, False
        data += more


def read_exactly(conn, n):
    data = b''
    while len(data) < n:
        more = conn.recv(n - len(data))
        if not more:
            raise AssertionError('%d of %d bytes, then the end' % (len(data), n))
        data += more
    return data
