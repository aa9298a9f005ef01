#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one command on an exec-server and behaves like it: its output, its exit code.

    python3 examples/run.py 'ws://127.0.0.1:8765/?token=...' [--tty] -- sh -c 'echo hello'

A first lesson in the protocol (docs/PROTOCOL.md), in the order in which things happen:
connect, upgrade to WebSocket, initialize, initialized, process/start, then notifications
until process/closed. Standard library only.
"""
import base64
import json
import os
import socket
import struct
import sys
import urllib.parse


class WebSocket:
    """Text messages over one TCP connection: as much of RFC 6455 as a client needs."""

    def __init__(self, url):
        where = urllib.parse.urlsplit(url)
        if where.scheme != 'ws' or where.hostname is None:
            sys.exit('expected ws://HOST:PORT/?token=..., as the server printed it')
        self.socket = socket.create_connection((where.hostname, where.port or 80))
        self.stream = self.socket.makefile('rb')
        target = (where.path or '/') + ('?' + where.query if where.query else '')  # the query has the token
        headers = ['GET %s HTTP/1.1' % target, 'Host: ' + where.netloc.rpartition('@')[2], 'Connection: Upgrade',
                   'Upgrade: websocket', 'Sec-WebSocket-Version: 13',
                   'Sec-WebSocket-Key: ' + base64.b64encode(os.urandom(16)).decode()]
        if os.environ.get('SALLYPORT_TOKEN'):  # a server with --token-file wants it here
            headers.append('Authorization: Bearer ' + os.environ['SALLYPORT_TOKEN'])
        self.socket.sendall('\r\n'.join(headers + ['', '']).encode())
        status = self.stream.readline().decode('latin-1').strip()
        while self.stream.readline() not in (b'\r\n', b''):
            pass
        if ' 101 ' not in status:
            sys.exit('the server refused the connection: ' + status)

    def send(self, message, opcode=1):
        payload = message if isinstance(message, bytes) else json.dumps(message).encode()
        size = len(payload)
        head = bytes([0x80 | opcode])  # the final (and only) frame of its message
        if size < 126:
            head += bytes([0x80 | size])
        else:
            head += struct.pack('>BH', 0x80 | 126, size) if size < 65536 else struct.pack('>BQ', 0x80 | 127, size)
        mask = os.urandom(4)  # whatever a client sends is masked
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        self.socket.sendall(head + mask + body)

    def receive(self):
        """The next message. Large ones come in fragments, pings come in between."""
        parts = b''
        while True:
            head = self.take(2)
            size = head[1] & 127
            if size > 125:
                size = int.from_bytes(self.take(2 if size == 126 else 8), 'big')
            payload, opcode = self.take(size), head[0] & 15
            if opcode == 9:  # ping: answered by a pong with the same payload
                self.send(payload, 10)
            elif opcode == 8:  # close
                sys.exit('the server ended the connection')
            elif opcode < 3:
                parts += payload
                if head[0] & 0x80:
                    return json.loads(parts)

    def take(self, n):
        data = self.stream.read(n)
        if len(data) < n:
            sys.exit('the connection was lost')
        return data


def run(url, argv, tty):
    ws = WebSocket(url)
    ws.send({'id': 1, 'method': 'initialize', 'params': {'clientName': 'examples/run.py'}})
    info = ws.receive()['result']['environmentInfo']
    ws.send({'method': 'initialized'})

    start = {'processId': 'run', 'argv': argv, 'cwd': info['cwd'] or 'file:///', 'env': {}, 'tty': tty,
             'envPolicy': {'inherit': 'all', 'ignoreDefaultExcludes': True, 'exclude': [], 'set': {},
                           'includeOnly': []}}
    ws.send({'id': 2, 'method': 'process/start', 'params': start})
    code = None
    while True:  # output may come before the reply to the start
        message = ws.receive()
        if 'error' in message:
            print('run.py: ' + message['error']['message'], file=sys.stderr)
            return 127
        params = message.get('params', {})
        if message.get('method') == 'process/output':
            to = sys.stderr if params['stream'] == 'stderr' else sys.stdout  # else stdout or pty
            to.buffer.write(base64.b64decode(params['chunk']))
            to.buffer.flush()
        elif message.get('method') == 'process/exited':
            code = params['exitCode']
        elif message.get('method') == 'process/closed':  # the last word about a process
            return code & 255


def main(args):
    tty = args[1:2] == ['--tty']
    rest = args[2:] if tty else args[1:]
    if len(rest) < 2 or rest[0] != '--':
        sys.exit('usage: run.py URL [--tty] -- COMMAND...')
    try:
        return run(args[0], rest[1:], tty)
    except KeyboardInterrupt:  # the server ends the command when the session has expired
        return 130
    except OSError as e:
        sys.exit('run.py: %s: %s' % (args[0].partition('?')[0], e))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
