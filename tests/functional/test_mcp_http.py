# SPDX-License-Identifier: Apache-2.0
"""MCP over streamable HTTP: headers, callers, legacy sessions, and what no client should send."""

import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading

import mcp
import server
import tap
import wire
from mcp import BOTH, LEGACY, META, MODERN, TASKS, meta
from mcp_web import CALL, LIST, TOKENS, Web
from mcp_wire import SIGNED, VERSIONS, call, call_modern, initialize, modern, plain, request, result
from wire import wait_until


class Headers(Web):
    def test_as_they_should_be(self):
        self.assertEqual(self.fine(LIST)['resultType'], 'complete')
        status, heads, text = self.post(CALL)
        self.assertEqual((status, heads['content-type'], heads['cache-control']), (200, 'application/json', 'no-store'))
        self.assertEqual(json.loads(text)['id'], 2)
        self.assertNotIn('mcp-session-id', heads)

    def test_each_one_missing(self):
        self.check(LIST, 400, -32020, drop=['MCP-Protocol-Version'])
        self.check(LIST, 400, -32020, drop=['Mcp-Method'])
        self.check(CALL, 400, -32020, drop=['Mcp-Name'])
        self.check(CALL, 400, -32020, drop=['Mcp-Name', 'Mcp-Method', 'MCP-Protocol-Version'])
        self.check(CALL, 400, -32020, MCP_Protocol_Version='')
        self.check(CALL, 400, -32020, Mcp_Method='')
        self.check(CALL, 400, -32020, Mcp_Name='')

    def test_each_one_unlike_the_body(self):
        for version in (LEGACY[0], '2099-01-01', 'x', MODERN + 'x'):
            self.check(LIST, 400, -32020, MCP_Protocol_Version=version)
        for method in ('tools/call', 'TOOLS/LIST', 'tools/list2', 'tools'):
            self.check(LIST, 400, -32020, Mcp_Method=method)
        for name in ('exec_command', 'LIST_SESSIONS', 'list_sessions,list_sessions', 'list_session'):
            self.check(CALL, 400, -32020, Mcp_Name=name)
        self.check(modern(1, 'tasks/get', {'taskId': 'a', 'name': 'b'}, TASKS), 400, -32020, Mcp_Name='b')
        self.check(modern(1, 'tasks/get', {'taskId': 'a', 'name': 'b'}, TASKS), 200, -32602, Mcp_Name='a')

    def test_names_are_in_any_case_and_values_may_have_space_around(self):
        heads = {k.upper(): '  %s\t' % v for k, v in self.heads(CALL).items()}
        self.assertEqual(self.ask(CALL, heads)[0], 200)
        heads = {k.lower(): v for k, v in self.heads(CALL).items()}
        self.assertEqual(self.ask(CALL, heads)[0], 200)

    def test_a_name_in_base64(self):
        def code(text):
            return '=?base64?%s?=' % base64.b64encode(text.encode()).decode()
        self.fine(CALL, Mcp_Name=code('list_sessions'))
        for name in (code('exec_command'), '=?base64?????=', '=?base64?bGlzdF9zZXNzaW9ucw?=', '=?base64??=',
                     code('list_sessions') + 'x', '=?BASE64?bGlzdF9zZXNzaW9ucw==?='):
            self.check(CALL, 400, -32020, Mcp_Name=name)
        strange = call_modern(1, 'wörk')
        self.check(strange, 200, -32602, Mcp_Name=code('wörk'))
        self.check(call_modern(1, code('x')), 200, -32602, Mcp_Name=code(code('x')))

    def test_twice(self):
        for name in ('mcp-protocol-version', 'mcp-method', 'mcp-name'):
            heads = self.heads(CALL)
            c = self.raw()
            lines = ['%s: %s' % i for i in heads.items()] + ['%s: %s' % i for i in heads.items() if i[0].lower() == name]
            body = json.dumps(CALL)
            c.sendall(('POST /mcp HTTP/1.1\r\nhost: x\r\n'.replace('x', self.host.where) + '\r\n'.join(lines)
                       + '\r\ncontent-length: %d\r\n\r\n%s' % (len(body), body)).encode())
            self.assertEqual(self.status(c), 400)

    def test_a_name_for_a_method_without_one_is_not_looked_at(self):
        self.fine(LIST, Mcp_Name='whatever')

    def test_unsupported_versions(self):
        answer = self.check(modern(1, 'tools/list', version='2099-01-01'), 400, -32022)
        self.assertEqual(answer['error']['data'], {'supported': VERSIONS, 'requested': '2099-01-01'})
        self.assertEqual(answer['id'], 1)

    def test_unknown_methods(self):
        for method in ('no/such', 'ping', 'initialize', 'logging/setLevel'):
            answer = self.check(modern(3, method), 404, -32601)
            self.assertEqual(answer['id'], 3)

    def test_missing_meta(self):
        for key in ('protocolVersion', 'clientCapabilities'):
            message = modern(1, 'tools/list')
            heads = self.heads(message)
            del message['params']['_meta'][META + key]
            status, _, text = self.ask(message, heads)
            self.assertEqual((status, json.loads(text)['error']['code']), (400, -32602))

    def test_missing_capability(self):
        answer = self.check(modern(1, 'tasks/get', {'taskId': 'x'}), 400, -32021)
        self.assertEqual(answer['error']['data'], {'requiredCapabilities': TASKS})

    def test_broken_bodies(self):
        for body, code in (('', -32700), ('x', -32700), ('{', -32700), (b'\xff', -32700), ('[]', -32600), ('1', -32600),
                           ('[' + json.dumps(LIST) + ']', -32600), ('{}', -32600), ('{"jsonrpc":"2.0"}', -32600)):
            status, _, text = self.ask(body, self.heads(LIST))
            self.assertEqual((status, json.loads(text)['error']['code']), (400, code), body)
            self.assertIsNone(json.loads(text)['id'])
        self.fine(LIST)

    def test_notifications_and_responses(self):
        for message in ({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 1, '_meta': meta()}},
                        {'jsonrpc': '2.0', 'method': 'no/such', 'params': {'_meta': meta()}}):
            status, heads, text = self.post(message)
            self.assertEqual((status, text), (202, b''))

    def test_accept(self):
        for accept in (BOTH, '*/*', 'application/*, text/*', 'text/event-stream,application/json', 'APPLICATION/JSON, */*',
                       'application/json;q=0.9, text/event-stream;q=0.1', 'text/html, */*;q=0.1',
                       'Text/Event-Stream ;q=0.05\t,  application/json ; q=1'):
            self.fine(LIST, Accept=accept)
        for accept in ('application/json', 'text/event-stream', 'text/html', '', 'application/json;q=0, text/event-stream',
                       'application/jsonx, text/event-stream', 'json'):
            self.assertEqual(self.post(LIST, Accept=accept)[0], 406, accept)
        self.assertEqual(self.post(LIST, drop=['Accept'])[0], 406)

    def test_content_type(self):
        for kind in ('application/json', 'Application/JSON; charset=utf-8', 'application/json ; charset=UTF-8'):
            self.fine(LIST, Content_Type=kind)
        for kind in ('text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data', '', 'application/jsonx'):
            self.assertEqual(self.post(LIST, Content_Type=kind)[0], 415, kind)
        self.assertEqual(self.post(LIST, drop=['Content-Type'])[0], 415)
        self.assertEqual(self.post(LIST, Content_Encoding='gzip')[0], 415)

    def test_other_verbs(self):
        for verb in ('GET', 'PUT', 'PATCH', 'OPTIONS', 'TRACE', 'BREW', 'post'):
            status, heads, _ = self.ask(None, self.heads(), verb)
            self.assertEqual((status, heads['allow']), (405, 'POST, DELETE'), verb)
        status, heads, text = self.ask(None, self.heads(), 'HEAD')
        self.assertEqual((status, text), (405, b''))
        self.assertEqual(self.ask(None, self.heads(), 'DELETE')[0], 400)

    def test_other_paths(self):
        self.assertEqual(self.ask(LIST, self.heads(LIST), path='/mcp?x=1')[0], 200)
        for path in ('/', '/mcp/', '/MCP', '/mcp2', '//mcp', '/./mcp', '/%6dcp'):
            self.assertEqual(self.ask(LIST, self.heads(LIST), path=path)[0], 404, path)

    def test_a_subscription_is_a_stream_until_the_end(self):
        message = modern('s', 'subscriptions/listen', {'notifications': {}})
        c, r = self.host.exchange(json.dumps(message), self.heads(message))
        self.addCleanup(c.close)
        self.assertEqual(r.getheader('Content-Type'), 'text/event-stream')
        self.assertIn(b'acknowledged', r.readline() + r.readline())
        self.host.process.send_signal(signal.SIGTERM)
        answer = plain(json.loads(r.read().split(b'data: ', 1)[1]))
        self.assertEqual(answer, result('s', resultType='complete', _meta={META + 'subscriptionId': 's', **SIGNED}))

    def test_stream(self):
        """A call that speaks before its answer is a stream of events, and ends with its answer."""
        message = modern('c', 'tools/call', {'name': 'exec_command', 'arguments': {'argv': ['echo', 'hi']}},
                         progressToken='t')
        status, heads, text = self.post(message)
        self.assertEqual((status, heads['content-type'], heads['x-accel-buffering']), (200, 'text/event-stream', 'no'))
        events = re.findall(r'event: message\ndata: (.*)\n\n', text.decode())
        self.assertEqual(text.decode(), ''.join('event: message\ndata: %s\n\n' % e for e in events))
        progress, answer = map(json.loads, events)
        self.assertEqual(progress['params']['progressToken'], 't')
        self.assertEqual(answer['result']['structuredContent']['output'], 'hi\n')
        self.fine(LIST)  # on the same connection


class Doors(Web):
    def test_no_token_and_wrong_tokens(self):
        for value in (None, '', 'Bearer', 'Bearer ', 'Bearer x', 'Basic ' + TOKENS[0], TOKENS[0], 'Bearer ' + TOKENS[0] + 'x',
                      'Bearer ' + TOKENS[0][:-1], 'Bearer ' + TOKENS[0].upper(), 'Bearer %s %s' % TOKENS,
                      'Bearer "%s"' % TOKENS[0]):
            heads = self.heads(LIST, drop=['Authorization'])
            if value is not None:
                heads['Authorization'] = value
            for path in ('/mcp', '/', '/nowhere'):
                status, got, text = self.ask(LIST, heads, path=path)
                self.assertEqual((status, got['www-authenticate'], text), (401, 'Bearer', b''), value)
        self.fine(LIST, Authorization='bearer  ' + TOKENS[0])
        for verb in ('GET', 'DELETE', 'OPTIONS', 'HEAD'):
            self.assertEqual(self.ask(None, {}, verb)[0], 401)

    def test_origin(self):
        for origin in ('http://evil.example', 'null', '', 'http://127.0.0.1', 'http://localhost:1', 'https://x'):
            self.assertEqual(self.post(LIST, Origin=origin)[0], 403, origin)

    def test_host(self):
        port = self.host.where.split(':')[1]
        for name in ('127.0.0.1:' + port, 'localhost:' + port, '127.0.0.1', 'LOCALHOST', '[::1]:' + port, '10.0.0.1'):
            self.assertEqual(self.post(LIST, Host=name)[0], 200, name)
        for name in ('evil.example', 'evil.example:' + port, '127.0.0.1.evil.example', 'localhost.evil.example', '',
                     '127.0.0.1@evil.example'):
            self.assertEqual(self.post(LIST, Host=name)[0], 403, name)

    def test_no_id_of_another_caller_is_found(self):
        session = self.host.exec('sleep', '600', yield_time_ms=250)['session_id']
        self.assertIn(session, range(1000, 100000))
        sock = socket.create_connection(self.host.where.split(':'), wire.DEADLINE)
        self.addCleanup(sock.close)
        file = sock.makefile('rb')
        heads = ''.join('%s: %s\r\n' % i for i in {
            **self.host.heads(call_modern(0, 'read_output')), 'Host': self.host.where,
            'Authorization': 'Bearer ' + TOKENS[1]}.items() if i[0] != 'Mcp-Name')
        unknown, step = set(), 500
        template = json.dumps(call_modern(4711, 'read_output', session_id=4711))

        def send(first):
            data = []
            for id in range(first, min(first + step, 100000)):
                body = template.replace('4711', str(id))
                data.append('POST /mcp HTTP/1.1\r\n%sMcp-Name: read_output\r\nContent-Length: %d\r\n\r\n%s'
                            % (heads, len(body), body))
            sock.sendall(''.join(data).encode())

        def read():
            status, length = file.readline(), 0
            self.assertIn(b' 200 ', status)
            for line in iter(file.readline, b'\r\n'):
                if line.lower().startswith(b'content-length:'):
                    length = int(line.split(b':')[1])
            text = file.read(length)
            unknown.add(text.replace(re.match(rb'{"jsonrpc":"2.0","id":(\d+),', text)[1], b'N'))
        sparse = range(1000, 100000, step * (4 if server.SANITIZED else 1))
        for first in (*sparse, session - session % step):
            if first == session - session % step:
                first = max(1000, session - step // 2)
            sender = threading.Thread(target=send, args=(first,))
            sender.start()
            for _ in range(min(step, 100000 - first)):
                read()
            sender.join()
        (answer,) = map(json.loads, (u.replace(b'"id":N', b'"id":1') for u in unknown))  # the same for all, taken or not
        self.assertTrue(answer['result']['isError'])
        self.assertEqual(self.other.sessions(), {})
        self.assertTrue(self.other.kill(session).failed)
        self.assertTrue(self.other.type(session, 'x').failed)
        self.assertTrue(self.other.call('explain_denial', {'session_id': session}).failed)
        self.assertEqual(list(self.host.sessions()), [session])


class Origins(mcp.Case):
    def test_allowed(self):
        host = self.http('--allow-origin', 'http://page.example', '--allow-origin', 'https://other.example:8443')
        message = modern(1, 'tools/list')
        for origin, status in (('http://page.example', 200), ('https://other.example:8443', 200), ('https://page.example', 403),
                               ('http://page.example:80', 403), ('http://page.example.evil.example', 403), ('null', 403),
                               ('https://other.example', 403)):
            c, r = host.exchange(json.dumps(message), {**host.heads(message), 'Origin': origin})
            self.assertEqual(r.status, status, origin)
            self.assertEqual(r.getheader('Access-Control-Allow-Origin'), origin if status == 200 else None)
            c.close()
        asks = {'Origin': 'http://page.example', 'Access-Control-Request-Method': 'POST',
                'Access-Control-Request-Headers': 'authorization'}
        c, r = host.exchange(None, asks, 'OPTIONS')
        self.assertEqual((r.status, r.getheader('Access-Control-Allow-Origin')), (204, 'http://page.example'))
        self.assertIn('authorization', r.getheader('Access-Control-Allow-Headers'))
        c.close()
        for heads, path in (({**asks, 'Origin': 'http://evil.example'}, None), (asks, '/x'), ({'Origin': asks['Origin']}, None),
                            ({**asks, 'Host': 'evil.example'}, None)):
            c, r = host.exchange(None, heads, 'OPTIONS', path)
            self.assertEqual(r.status, 401)
            c.close()


class Sessions(Web):
    """Of the legacy era."""

    def begin(self, version=LEGACY[0], token=TOKENS[0]):
        status, heads, text = self.ask(initialize('i', version), self.heads(Authorization='Bearer ' + token))
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text)['result']['protocolVersion'], version)
        self.assertRegex(heads['mcp-session-id'], '^[0-9a-f]{32}$')
        return heads['mcp-session-id']

    def of(self, session, message, **more):
        status, heads, text = self.ask(message, self.heads(Mcp_Session_Id=session, **more))
        return status, json.loads(text) if text else None

    def test_life(self):
        session = self.begin()
        self.assertEqual(self.of(session, {'jsonrpc': '2.0', 'method': 'notifications/initialized'}), (202, None))
        self.assertEqual(self.of(session, request(1, 'ping')), (200, result(1)))
        status, answer = self.of(session, call(2, 'exec_command', argv=['echo', 'hi']), MCP_Protocol_Version=LEGACY[0])
        self.assertEqual((status, answer['result']['structuredContent']['output']), (200, 'hi\n'))
        self.assertNotIn('resultType', answer['result'])
        self.assertEqual(self.of(session, request(3, 'no/such'))[1]['error']['code'], -32601)
        self.assertEqual(self.ask(None, self.heads(Mcp_Session_Id=session), 'DELETE')[0], 204)
        self.assertEqual(self.of(session, request(1, 'ping'))[0], 404)
        self.assertEqual(self.ask(None, self.heads(Mcp_Session_Id=session), 'DELETE')[0], 404)

    def test_every_version(self):
        for version in LEGACY:
            session = self.begin(version)
            answer = self.of(session, call(2, 'list_sessions'))[1]['result']
            self.assertEqual('structuredContent' in answer, version >= '2025-06-18')
            status, answer = self.of(session, [request(1, 'ping'), request(2, 'ping')])
            self.assertEqual(status, 200 if version == '2025-03-26' else 400)
            if status == 200:
                self.assertEqual(answer, [result(1), result(2)])

    def test_the_version_header(self):
        session = self.begin('2025-06-18')
        for version, status in ((LEGACY[0], 200), ('2025-06-18', 200), ('2099-01-01', 400), ('x', 400)):
            self.assertEqual(self.of(session, request(1, 'ping'), MCP_Protocol_Version=version)[0], status, version)

    def test_none_and_unknown_ones(self):
        for message in (request(1, 'tools/list'), call(1, 'list_sessions')):
            self.assertEqual(self.ask(message, self.heads())[0], 400)
            self.assertEqual(self.of('0' * 32, message)[0], 404)
            self.assertEqual(self.of('', message)[0], 404)
            self.assertEqual(self.of('x' * 5000, message)[0], 404)

    def test_of_another_token(self):
        session = self.begin()
        theirs = 'Bearer ' + TOKENS[1]
        self.assertEqual(self.of(session, request(1, 'ping'), Authorization=theirs)[0], 404)
        self.assertEqual(self.ask(None, self.heads(Mcp_Session_Id=session, Authorization=theirs), 'DELETE')[0], 404)
        self.assertEqual(self.of(session, request(1, 'ping'))[0], 200)

    def test_a_failed_initialize_makes_none(self):
        status, heads, _ = self.ask(request(1, 'initialize', {}), self.heads())
        self.assertEqual(status, 400)
        self.assertNotIn('mcp-session-id', heads)

    def test_the_one_unused_for_longest_goes(self):
        first = self.begin()
        used = self.begin()
        for _ in range(256):
            self.begin()
            self.assertEqual(self.of(used, request(1, 'ping'))[0], 200)
        self.assertEqual(self.of(first, request(1, 'ping'))[0], 404)

    def test_modern_messages_beside_it(self):
        session = self.begin('2024-11-05')
        status, answer = self.of(session, modern(1, 'tools/list'), MCP_Protocol_Version=MODERN, Mcp_Method='tools/list')
        self.assertEqual((status, answer['result']['resultType']), (200, 'complete'))
        self.assertEqual(self.of(session, request(1, 'ping'))[0], 200)

    def test_deleted_while_a_call_waits(self):
        session = self.begin()
        c = http.client.HTTPConnection(self.host.where, timeout=wire.DEADLINE)
        self.addCleanup(c.close)
        c.request('POST', '/mcp', json.dumps(call(1, 'exec_command', argv=['sleep', '600'], yield_time_ms=30000)),
                  self.heads(Mcp_Session_Id=session))
        wait_until(lambda: self.host.sessions(), 'the call to begin')
        self.assertEqual(self.ask(None, self.heads(Mcp_Session_Id=session), 'DELETE')[0], 204)
        self.assertEqual(c.getresponse().status, 404)
        self.assertEqual(len(self.host.sessions()), 1)  # it goes on

    def test_cancelled_from_another_connection(self):
        session = self.begin()
        c = http.client.HTTPConnection(self.host.where, timeout=wire.DEADLINE)
        self.addCleanup(c.close)
        c.request('POST', '/mcp', json.dumps(call('c', 'exec_command', argv=['sleep', '600'], yield_time_ms=30000)),
                  self.heads(Mcp_Session_Id=session))
        wait_until(lambda: self.host.sessions(), 'the call to begin')
        self.assertEqual(self.of(session, {'jsonrpc': '2.0', 'method': 'notifications/cancelled',
                                           'params': {'requestId': 'c'}})[0], 202)
        r = c.getresponse()
        self.assertEqual((r.status, r.read()), (200, b''))


class Tokens(mcp.Case):
    def refused(self, *args, text=None):
        p = subprocess.run([server.PROGRAM, 'mcp', *args], cwd=self.work, env=self.environ(), stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual((p.returncode, p.stdout), (1, b''), p)
        self.assertIn(text, p.stderr.decode())

    def file(self, text, mode=0o600):
        path = os.path.join(self.base, 'tokens')
        with open(path, 'wb') as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def test_files_that_will_not_do(self):
        listen = ('--listen', 'http://127.0.0.1:0/mcp')
        good = TOKENS[0].encode() + b'\n'
        for mode in (0o640, 0o604, 0o666, 0o601):
            self.refused(*listen, '--token-file', self.file(good, mode), text='chmod 600')
        for content, why in ((b'', 'no token'), (b'\n\n', 'no token'), (b'short\n', 'line 1'), (good + b'two words are no token\n', 'line 2'),
                             (good + b'\x00\n', 'lines of text'), (b'x' * 70000, '65536 bytes'), ('ü'.encode() * 20, 'line 1')):
            self.refused(*listen, '--token-file', self.file(content), text=why)
        self.refused(*listen, '--token-file', os.path.join(self.base, 'none'), text='No such file')
        self.refused(*listen, '--token-file', self.base, text='chmod 600')

    def test_several_lines(self):
        path = self.file(b'\n%s\r\n\n%s' % (TOKENS[0].encode(), TOKENS[1].encode()))
        p, (url,) = self.listening('http://127.0.0.1:0/x/y', args=('--token-file', path))
        for token in TOKENS:
            h = mcp.Http(url, token)
            self.addCleanup(h.close)
            self.assertEqual(h.exec('echo', 'hi')['output'], 'hi\n')
            self.assertEqual(len(h.sessions()), 1)

    def test_one_is_made(self):
        p, (url,) = self.listening('http://127.0.0.1:0/mcp')
        path = re.search('the bearer token is in (.*)\n', self.stderr()).group(1)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path) as f:
            token = f.read().strip()
        self.assertGreaterEqual(len(token), 32)
        h = mcp.Http(url, token)
        self.addCleanup(h.close)
        r = h.exec('cat', path)
        self.assertNotEqual(r['exit_code'], 0)
        self.assertNotIn(token, r.text)
        p.send_signal(signal.SIGTERM)
        p.wait(wire.DEADLINE)
        self.assertFalse(os.path.exists(path))

    def test_addresses(self):
        path = self.file(TOKENS[0].encode())
        for url in ('http://0.0.0.0:0/mcp', 'http://[::]:0/mcp'):
            self.refused('--listen', url, '--token-file', path, text='--allow-remote')
        for url in ('http://', 'http://x', 'http://127.0.0.1', 'http://127.0.0.1:99999/', 'http://127.0.0.1:0/a b', 'http://127.0.0.1:0/x?y'):
            self.refused('--listen', url, '--token-file', path, text='listen')
        for url in ('https://127.0.0.1:0/', 'ws://127.0.0.1:0', 'unix:x', 'x', ''):
            self.refused('--listen', url, text='listen')
        p, (url,) = self.listening('http://0.0.0.0:0/mcp', args=('--token-file', path, '--allow-remote'))
        h = mcp.Http(url.replace('0.0.0.0', '127.0.0.1'), TOKENS[0])
        self.addCleanup(h.close)
        self.assertEqual(h.exec('echo', 'hi')['output'], 'hi\n')

    def test_a_port_that_is_taken(self):
        s = socket.socket()
        self.addCleanup(s.close)
        s.bind(('127.0.0.1', 0))
        s.listen()
        self.refused('--listen', 'http://127.0.0.1:%d/mcp' % s.getsockname()[1], '--token-file', self.file(TOKENS[0].encode()),
                     text='in use')


if __name__ == '__main__':
    tap.main()
