# SPDX-License-Identifier: Apache-2.0
"""Requests to MCP over HTTP as they are: each header, and each byte, is the test's."""

import http.client
import json
import socket

import mcp
import wire
from mcp import BOTH
from mcp_wire import call_modern, modern

TOKENS = ('the-first-token-of-this-test', 'the-second-token-of-this-test')
LIST = modern(1, 'tools/list')
CALL = call_modern(2, 'list_sessions')


class Web(mcp.Case):
    """Requests as they are: one by one, over a connection that stays."""

    def setUp(self):
        super().setUp()
        self.host, self.other = self.http(tokens=TOKENS)
        self.connection = None

    def heads(self, message=None, drop=(), **more):
        """What a good client sends with this message; then without these, or with others (_ is -)."""
        heads = self.host.heads(message) if message is not None else {
            'Content-Type': 'application/json', 'Accept': BOTH, 'Authorization': 'Bearer ' + TOKENS[0]}
        for name, value in more.items():
            heads = {k: v for k, v in heads.items() if k.lower() != name.replace('_', '-').lower()}
            heads[name.replace('_', '-')] = value
        return {k: v for k, v in heads.items() if k.lower() not in {d.lower() for d in drop}}

    def ask(self, body, heads, method='POST', path=None):
        """(status, headers, body) of one request; the connection is kept while the server does."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.host.where, timeout=wire.DEADLINE)
            self.addCleanup(self.hang_up)
        body = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        self.connection.request(method, path or self.host.path, body, heads)
        r = self.connection.getresponse()
        text = r.read()
        if r.will_close:
            self.hang_up()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, text

    def hang_up(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def post(self, message, drop=(), **more):
        return self.ask(message, self.heads(message, drop, **more))

    def check(self, message, status, code=None, drop=(), **more):
        """The status, and the code of the error in the body; its id is that of the message."""
        got, heads, text = self.post(message, drop, **more)
        self.assertEqual(got, status, (text, more, drop))
        if code is not None:
            self.assertEqual(heads['content-type'], 'application/json')
            self.assertEqual(json.loads(text)['error']['code'], code, text)
        return json.loads(text) if text else None

    def fine(self, message, drop=(), **more):
        return self.check(message, 200, drop=drop, **more)['result']

    # -- bare sockets

    def raw(self):
        s = socket.create_connection(self.host.where.split(':'), wire.DEADLINE)
        self.addCleanup(s.close)
        return s

    def status(self, s):
        """Of the answer on a bare socket; 0: it ended without one."""
        s.settimeout(wire.DEADLINE)
        data = b''
        try:
            while b'\r\n' not in data:
                part = s.recv(4096)
                if not part:
                    break
                data += part
        except ConnectionResetError:
            pass
        return int(data.split()[1]) if data.startswith(b'HTTP/1.1 ') else 0
