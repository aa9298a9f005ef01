# SPDX-License-Identifier: Apache-2.0
"""Web servers for tests: bytes as they are, of every kind that a server may say."""

import os
import shutil
import socket
import ssl
import subprocess
import threading
import time

from wire import wait_until

OK = b'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'


def response(body=b'', status=b'200 OK', *headers):
    return b'HTTP/1.1 ' + status + b'\r\n' + b''.join(h + b'\r\n' for h in headers) + \
        b'content-length: %d\r\n\r\n' % len(body) + body


class Peer:
    """One connection of a web server, for answers that are more than bytes."""

    def __init__(self, web, sock):
        self.web, self.sock = web, sock

    def send(self, data):
        self.sock.sendall(data)

    def chunk(self, data):
        self.send(b'%x\r\n' % len(data) + data + b'\r\n')

    def wait_gone(self, timeout=20):
        """Whether the other side closes, without a byte more."""
        self.sock.settimeout(timeout)
        try:
            return self.sock.recv(65536) == b''
        except socket.timeout:
            return False
        except OSError:
            return True

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
        self.sock.close()


class Web:
    """answers: path -> bytes, or a function of (peer, request). Keeps what it was asked."""

    def __init__(self, answers=None, tls=None):
        self.answers, self.tls = answers or {}, tls
        self.requests = []
        self.connections = 0
        self.lock = threading.Lock()
        self.socks = set()
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.url = '%s://127.0.0.1:%d' % ('https' if tls else 'http', self.port)
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.socks.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            peer = Peer(self, sock)
            while self._one(peer):
                pass
        except OSError:
            pass
        finally:
            with self.lock:
                self.socks.discard(sock)
            sock.close()

    def _one(self, peer):
        data = b''
        while b'\r\n\r\n' not in data:
            more = peer.sock.recv(65536)
            if not more:
                return False
            data += more
        head, body = data.split(b'\r\n\r\n', 1)
        lines = head.split(b'\r\n')
        fields = [tuple(part.strip() for part in line.split(b':', 1)) for line in lines[1:]]
        size = int(dict((k.lower(), v) for k, v in fields).get(b'content-length', b'0'))
        while len(body) < size:
            more = peer.sock.recv(1 << 20)
            if not more:
                return False
            body += more
        request = Request(lines[0], fields, body)
        with self.lock:
            self.requests.append(request)
        answer = self.answers.get(request.path.split('?')[0], OK)
        if callable(answer):
            return answer(peer, request)
        peer.send(answer)
        return True

    def wait_requests(self, n):
        wait_until(lambda: len(self.requests) >= n, '%d requests' % n)

    def close(self):
        self.listener.close()
        with self.lock:
            for sock in self.socks:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Request:
    def __init__(self, line, fields, body):
        self.line, self.fields, self.body = line, fields, body
        self.method, self.path = (word.decode('latin-1') for word in line.split(b' ')[:2])

    def get(self, name):
        return [v for k, v in self.fields if k.lower() == name.lower()]


def self_signed(directory):
    """A server's TLS context with a certificate that nobody knows; None: no openssl here."""
    if not shutil.which('openssl'):
        return None
    key, cert = os.path.join(directory, 'key.pem'), os.path.join(directory, 'cert.pem')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=127.0.0.1',
                    '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.cert = cert
    return context


# -- the server that the recorded conversations were held with

EXAMPLE = (b'server: example', b'date: Thu, 01 Jan 2026 00:00:00 GMT')


def _recorded_ok(peer, request):
    body = request.method.encode() + b' ' + (request.body or b'-')
    lines = EXAMPLE + (b'content-length: %d' % len(body), b'x-multi: a', b'x-multi: b')
    peer.send(b'HTTP/1.1 200 OK\r\n' + b''.join(line + b'\r\n' for line in lines) + b'\r\n' + body)
    return True


def _recorded_slow(peer, _request):
    peer.send(b'HTTP/1.1 200 OK\r\n' + b'\r\n'.join(EXAMPLE) + b'\r\ntransfer-encoding: chunked\r\n\r\n')
    for i in range(2):
        peer.chunk(b'hell%d' % i)
        time.sleep(0.2)
    peer.send(b'0\r\n\r\n')
    return True


def _recorded_cut(peer, _request):
    peer.send(b'HTTP/1.1 200 OK\r\n' + b'\r\n'.join(EXAMPLE) + b'\r\ncontent-length: 100\r\n\r\nabc')
    return False


def recorded():
    return Web({'/ok': _recorded_ok, '/slow': _recorded_slow, '/trunc': _recorded_cut,
                '/redir': b'HTTP/1.1 302 Found\r\n' + b'\r\n'.join(EXAMPLE) +
                          b'\r\nlocation: /ok\r\ncontent-length: 0\r\n\r\n'})
