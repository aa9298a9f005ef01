# SPDX-License-Identifier: Apache-2.0
"""A small MCP server, for the tests: `mini_mcp.py` on stdin and stdout, or `mini_mcp.py http` on loopback, where
its first line is the URL and each request is answered as JSON, or as events when the tool is `slow`.

Its tools: `echo` gives its text back, with what is around it; `size` the length of its text; `slow` says it late;
`headers` the request's headers whose names begin with the text.
"""

import http.server
import json
import os
import sys
import time

TEXT = {'type': 'object', 'properties': {'text': {'type': 'string'}}, 'required': ['text']}
TOOLS = [{'name': name, 'description': name, 'inputSchema': TEXT} for name in ('echo', 'size', 'slow', 'headers')]


def use(name, text, headers):
    if name == 'headers':
        return ' '.join('%s=%s' % (k, v) for k, v in sorted(headers) if k.lower().startswith(text))
    if name == 'echo':
        around = (os.getcwd(), os.environ.get('MINI', 'nothing'), os.environ.get('FOO', 'nothing'), os.getpid())
        return 'mini heard %s in %s with %s and %s, pid %d' % (text, *around)
    if name == 'size':
        return 'size %d' % len(text)
    time.sleep(0.5)
    return 'slowly ' + text


def answer(message, headers=()):
    """The reply to a request, or None for a notification."""
    method, params = message.get('method'), message.get('params') or {}
    if 'id' not in message:
        return None
    if method == 'initialize':
        result = {'protocolVersion': params['protocolVersion'], 'capabilities': {'tools': {}},
                  'serverInfo': {'name': 'mini', 'version': '1'}}
    elif method == 'tools/list':
        result = {'tools': TOOLS}
    elif method == 'tools/call':
        text = use(params['name'], params['arguments']['text'], headers)
        result = {'content': [{'type': 'text', 'text': text}], 'isError': False}
    elif method == 'ping':
        result = {}
    else:
        return {'jsonrpc': '2.0', 'id': message['id'], 'error': {'code': -32601, 'message': 'no ' + method}}
    return {'jsonrpc': '2.0', 'id': message['id'], 'result': result}


def on_stdio():
    for line in sys.stdin:
        reply = answer(json.loads(line))
        if reply is not None:
            sys.stdout.write(json.dumps(reply) + '\n')
            sys.stdout.flush()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def _send(self, status, body=b'', kind='application/json'):
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.send_header('Mcp-Session-Id', 'one')
        self.end_headers()
        self.wfile.write(body)

    def _events(self, message):
        """A body that comes in pieces and has no length."""
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Connection', 'close')
        self.end_headers()
        self.wfile.write(b': wait\n\n')
        self.wfile.write(b'event: message\ndata: %s\n\n' % json.dumps(answer(message)).encode())
        self.close_connection = True

    def do_GET(self):
        self._send(405)

    def do_DELETE(self):
        self._send(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        if message.get('method') == 'tools/call' and message['params']['name'] == 'slow':
            self._events(message)
            return
        reply = answer(message, self.headers.items())
        self._send(202) if reply is None else self._send(200, json.dumps(reply).encode())


def on_http():
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as httpd:
        print('http://127.0.0.1:%d/mcp' % httpd.server_port, flush=True)
        httpd.serve_forever()


if __name__ == '__main__':
    on_http() if sys.argv[1:] == ['http'] else on_stdio()
