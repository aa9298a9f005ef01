# SPDX-License-Identifier: Apache-2.0
"""http/request: what is sent, what comes back, streams, redirects, limits, and servers that lie."""

import json
import os
import signal
import socket
import subprocess
import threading
import time

import tap
from server import PEER, PROGRAM, SANITIZED, Case, Server, descendants, is_alive, name_of, ours_only
from wire import MIB, TEXT, b64, unb64, wait_until
from web import OK, Web, response, self_signed

DELTA = 'http/request/bodyDelta'


def _is_built_in():
    """A build without libcurl says so, and has one test."""
    srv = Server()
    try:
        return srv.session().request('environment/info')['capabilities'].get('httpHeaderEnvVars') is True
    finally:
        srv.kill()


BUILT_IN = bool(PEER) or _is_built_in()


class HttpCase(Case):
    def setUp(self):
        super().setUp()
        if not BUILT_IN:
            self.skipTest('built without libcurl')

    def web(self, answers=None, **how):
        web = Web(answers, **how)
        self.addCleanup(web.close)
        return web

    @staticmethod
    def params(url, method='GET', request_id='r', **more):
        return dict({'method': method, 'url': url, 'requestId': request_id}, **more)

    def ask(self, client, url, method='GET', **more):
        return client.request('http/request', self.params(url, method, **more))

    def refused(self, client, url, method='GET', **more):
        error = client.error('http/request', self.params(url, method, **more))
        return error['code'], error['message']

    @staticmethod
    def deltas(client, request_id):
        return [n['params'] for n in client.notes if n['method'] == DELTA and n['params']['requestId'] == request_id]

    def stream(self, client, url, request_id='s', timeout=None, **more):
        """(reply, body, error) of a whole stream, whose deltas are as they must be."""
        reply = self.ask(client, url, request_id=request_id, streamResponse=True, **more)
        self.assertEqual(reply['bodyBase64'], '')
        client.wait_for(lambda: any(d['done'] for d in self.deltas(client, request_id)), 'the end', timeout)
        deltas = self.deltas(client, request_id)
        self.assertEqual([d['seq'] for d in deltas], list(range(1, len(deltas) + 1)))
        self.assertEqual([d['done'] for d in deltas], [False] * (len(deltas) - 1) + [True])
        self.assertEqual(deltas[-1]['deltaBase64'], '')
        self.assertTrue(all(d['error'] is None for d in deltas[:-1]))
        self.assertTrue(all(0 < len(unb64(d['deltaBase64'])) <= MIB for d in deltas[:-1]))
        return reply, b''.join(unb64(d['deltaBase64']) for d in deltas), deltas[-1]['error']

    @staticmethod
    def workers(srv):
        return [pid for pid in descendants(srv.pid) if name_of(pid).startswith('sallyport http')]


class Requests(HttpCase):
    def test_what_is_sent(self):
        web, c = self.web(), self.server().session()
        self.ask(c, web.url + '/a/../b?c=d e#f', headers=[{'name': 'X-A', 'value': '1'}, {'name': 'x-b', 'value': ''},
                                                          {'name': 'X-A', 'value': ' caf\u00e9 '}])
        r = web.requests[-1]
        self.assertEqual(r.line, b'GET /b?c=d%20e HTTP/1.1')
        self.assertEqual(sorted(k.lower() for k, _ in r.fields), [b'accept', b'host', b'x-a', b'x-a', b'x-b'])
        self.assertEqual(r.get(b'x-a'), [b'1', 'caf\u00e9'.encode()])
        self.assertEqual(r.get(b'x-b'), [b''])
        self.assertEqual((r.get(b'accept'), r.get(b'host')), ([b'*/*'], [b'127.0.0.1:%d' % web.port]))
        self.ask(c, web.url, headers=[{'name': n, 'value': v} for n, v in (
            ('Accept', 'text/plain'), ('Host', 'site.example'), ('User-Agent', 'me'))])
        r = web.requests[-1]
        self.assertEqual(r.line, b'GET / HTTP/1.1')
        self.assertEqual((r.get(b'accept'), r.get(b'host'), r.get(b'user-agent')), ([b'text/plain'], [b'site.example'], [b'me']))

    def test_methods_and_bodies(self):
        web, c = self.web(), self.server().session()
        for method in ('GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'get', 'FOO-BAR!'):
            for body in (None, '', b64(b'payload')):
                got = self.ask(c, web.url, method, bodyBase64=body)
                self.assertEqual((got['status'], unb64(got['bodyBase64'])), (200, b'ok'))
                r = web.requests[-1]
                self.assertEqual((r.method, r.body), (method, b'payload' if body else b''))
                self.assertEqual(r.get(b'content-length'), [b'7'] if body else [])
                self.assertEqual(r.get(b'content-type') + r.get(b'expect') + r.get(b'user-agent'), [])
        for body in (None, b64(b'payload')):
            got = self.ask(c, web.url, 'HEAD', bodyBase64=body)
            self.assertEqual((got['status'], got['bodyBase64']), (200, ''))
            self.assertIn({'name': 'content-length', 'value': '2'}, got['headers'])

    @ours_only
    def test_nobody_lies_about_the_length(self):
        """A wrong length would make the rest of a body the next request on that connection."""
        web, c = self.web(), self.server().session()
        for headers in ([('Content-Length', '3')], [('Transfer-Encoding', 'chunked')], [('content-length', '0')]):
            self.ask(c, web.url, 'POST', bodyBase64=b64(b'payload'),
                     headers=[{'name': n, 'value': v} for n, v in headers])
            r = web.requests[-1]
            self.assertEqual((r.body, r.get(b'content-length'), r.get(b'transfer-encoding')), (b'payload', [b'7'], []))
        self.assertEqual(self.refused(c, web.url, 'CONNECT')[0], -32602)

    def test_a_large_body_both_ways(self):
        def echo(peer, request):
            peer.send(response(request.body))
            return True
        web, c = self.web({'/': echo}), self.server().session()
        size = (4 if SANITIZED else 24) * MIB
        body = os.urandom(MIB) * (size // MIB)
        for stream in (False, True):
            message = {'id': 'big', 'method': 'http/request',
                       'params': self.params(web.url + '/', 'POST', bodyBase64=b64(body), streamResponse=stream)}
            data = json.dumps(message).encode()
            parts = [data[i:i + 8 * MIB] for i in range(0, len(data), 8 * MIB)]
            for i, part in enumerate(parts):
                c.transport.send_frame(TEXT if i == 0 else 0, part, fin=i == len(parts) - 1)
            got = unb64(c.result('big')['bodyBase64'])
            if stream:
                c.wait_for(lambda: any(d['done'] for d in self.deltas(c, 'r')), 'the end')
                got = b''.join(unb64(d['deltaBase64']) for d in self.deltas(c, 'r'))
            self.assertTrue(got == body)

    @ours_only  # the reference brings headers of one name together
    def test_what_comes_back(self):
        raw = b'HTTP/1.1 100 Continue\r\nx-early: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n' \
              b'HTTP/1.1 207 Multi\r\nX-Multi: a\r\nSet-Cookie: 1\r\nX-MULTI: b\r\nX-Latin: caf\xe9\r\nX-Tab: a\tb\r\n' \
              b'X-Empty: \r\nX-Space:   a  b  \r\nContent-Length: 3\r\n\r\n\0\xff\n'
        web, c = self.web({'/': raw}), self.server().session()
        got = self.ask(c, web.url + '/')
        self.assertEqual((got['status'], unb64(got['bodyBase64'])), (207, b'\0\xff\n'))
        self.assertEqual([(h['name'], h['value']) for h in got['headers']], [
            ('x-multi', 'a'), ('set-cookie', '1'), ('x-multi', 'b'), ('x-tab', 'a\tb'), ('x-empty', ''),
            ('x-space', 'a  b'), ('content-length', '3')])

    def test_shapes_of_bodies(self):
        def old(peer, _request):
            peer.send(b'HTTP/1.0 200 OK\r\n\r\nuntil the end')
            return False
        answers = {'/chunked': b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\nx-trailer: 1\r\n\r\n',
                   '/old': old, '/none': b'HTTP/1.1 204 No Content\r\n\r\n', '/304': b'HTTP/1.1 304 Not Modified\r\n\r\n',
                   '/gzip': response(b'\x1f\x8b', b'200 OK', b'content-encoding: gzip'), '/999': response(b'x', b'999 Odd')}
        web, c = self.web(answers), self.server().session()
        for path, status, body in (('/chunked', 200, b'abcde'), ('/old', 200, b'until the end'), ('/none', 204, b''),
                                   ('/304', 304, b''), ('/gzip', 200, b'\x1f\x8b'), ('/999', 999, b'x')):
            got = self.ask(c, web.url + path)
            self.assertEqual((path, got['status'], unb64(got['bodyBase64'])), (path, status, body))
            self.assertNotIn('x-trailer', [h['name'] for h in got['headers']])

    def test_connections_are_kept(self):
        web, c = self.web(), self.server().session()
        for _ in range(5):
            self.ask(c, web.url)
        self.assertEqual(web.connections, 1)

    @ours_only
    def test_what_may_have_been_acted_upon_is_not_sent_twice(self):
        seen = []

        def once(peer, request):
            seen.append(request.method)
            peer.reset()
            return False
        web, c = self.web({'/once': once}), self.server().session()
        for method, body in (('POST', b64(b'x')), ('POST', None), ('PATCH', b64(b'x'))):
            del seen[:]
            self.ask(c, web.url + '/')  # a connection to be used again
            self.assertEqual(self.refused(c, web.url + '/once', method, bodyBase64=body)[0], -32603)
            self.assertEqual(seen, [method])

    def test_users_in_addresses(self):
        web, c = self.web(), self.server().session()
        at = 'http://us%%65r:p%%40ss@127.0.0.1:%d/' % web.port
        self.ask(c, at)
        self.assertEqual(web.requests[-1].get(b'authorization'), [b'Basic ' + b64(b'user:p@ss').encode()])
        self.ask(c, at, headers=[{'name': 'Authorization', 'value': 'Bearer x'}])
        self.assertIn(b'Bearer x', web.requests[-1].get(b'authorization'))


class Refusals(HttpCase):
    def test_addresses(self):
        web, c = self.web(), self.server().session()
        for url, text in (
                ('ftp://x/', 'only supports http and https URLs, got ftp'),
                ('FILE:///etc/passwd', 'only supports http and https URLs, got file'),
                ('data:text/plain,x', 'only supports http and https URLs, got data'),
                ('nope', 'url is invalid: relative URL without a base'), ('', 'url is invalid: relative URL without a base'),
                ('//x/y', 'url is invalid: relative URL without a base'), ('http://', 'url is invalid: empty host'),
                ('http://:80/', 'url is invalid: empty host'), ('http://@/', 'url is invalid: empty host'),
                ('http://a b/', 'url is invalid: invalid international domain name'),
                ('http://x:99999/', 'url is invalid: invalid port number'), ('http://x:y/', 'url is invalid: invalid port number'),
                ('http://[::1', 'url is invalid: invalid IPv6 address'), ('http://[::g]/', 'url is invalid: invalid IPv6 address'),
                ('http://256.1.1.1/', 'url is invalid: invalid IPv4 address')):
            self.assertEqual(self.refused(c, url), (-32602, 'http/request ' + text), url)
        for url in (' HTTP://127.0.0.1:%d/x ', 'http:127.0.0.1:%d/x', 'http:\\\\127.0.0.1:%d\\x', 'http://127.0.0.1:%d/\nx',
                    'http://127.1:%d/x', 'http:////127.0.0.1:%d/x'):
            self.ask(c, url % web.port)
            self.assertEqual(web.requests[-1].path, '/x', url)

    def test_methods_and_headers(self):
        web, c = self.web(), self.server().session()
        for method in ('G T', '', 'GET\r\nX: y', 'G\u00cbT', 'GET /x HTTP/1.1\r\n'):
            self.assertEqual(self.refused(c, web.url, method), (-32602, 'http/request method is invalid: invalid HTTP method'))
        for name in ('', 'X Y', 'X:', 'X\r\nY', 'X\n', '\u00cb', 'X\0'):
            self.assertEqual(self.refused(c, web.url, headers=[{'name': name, 'value': 'x'}]),
                             (-32602, 'http/request header name is invalid: invalid HTTP header name'), name)
        for value in ('a\r\nEvil: 1', 'a\nb', 'a\rb', 'a\0b', 'a\x7fb', 'a\x1bb'):
            self.assertEqual(self.refused(c, web.url, headers=[{'name': 'X-A', 'value': value}]),
                             (-32602, 'http/request header value is invalid for X-A: failed to parse header value'))
        self.assertEqual(web.requests, [])

    @ours_only  # the reference lets NODE_REPL_AUTH_TOKEN through
    def test_variables(self):
        names = ('OPENAI_API_KEY', 'codex_api_key', 'CODEX_ACCESS_TOKEN', 'CODEX_CONNECTORS_TOKEN', 'AWS_ACCESS_KEY_ID',
                 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AZURE_CLIENT_SECRET', 'AZURE_FEDERATED_TOKEN_FILE',
                 'GOOGLE_APPLICATION_CREDENTIALS', 'CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN', 'NODE_REPL_AUTH_TOKEN',
                 'OPENAI_FEDERATION_RULE_ID', 'OPENAI_IDENTITY_TOKEN_FILE', 'OPENAI_WORKLOAD_IDENTITY_CONTEXT',
                 'Codex_Guardian_Decisions_API_Key')
        env = dict({n: 'secret' for n in names}, MY_TOKEN='t0', EMPTY='', BROKEN='a\nb', LATIN='caf\udce9')
        web, c = self.web(), self.server(env=env).session()

        def header(variable, value='Bearer '):
            return [{'name': 'Authorization', 'value': value, 'valueEnvVar': variable}]
        self.ask(c, web.url, headers=header('MY_TOKEN'))
        self.assertEqual(web.requests[-1].get(b'authorization'), [b'Bearer t0'])
        self.ask(c, web.url, headers=header(None, 'plain'))
        self.assertEqual(web.requests[-1].get(b'authorization'), [b'plain'])
        for name in names:
            self.assertEqual(self.refused(c, web.url, headers=header(name)), (
                -32602, 'http/request header Authorization cannot use executor environment variable ' + name))
        for name in ('NOPE', 'my_token', '', 'LATIN', 'MY_TOKEN=t'):
            self.assertEqual(self.refused(c, web.url, headers=header(name)), (
                -32602, 'http/request header Authorization requires executor environment variable ' + name))
        self.assertEqual(self.refused(c, web.url, headers=header('MY_TOKEN\0'))[0], -32602)
        self.assertEqual(self.refused(c, web.url, headers=header('EMPTY')), (
            -32602, 'http/request header Authorization requires a non-empty executor environment variable EMPTY'))
        self.assertEqual(self.refused(c, web.url, headers=header('BROKEN')), (
            -32602, 'http/request header value is invalid for Authorization: failed to parse header value'))

    def test_params_and_their_order(self):
        web, srv = self.web(), self.server()
        raw = srv.connect()
        self.assertEqual(self.refused(raw, web.url, bodyBase64='!!')[0], -32602)
        self.assertEqual(self.refused(raw, 'nope'), (-32600, 'client must call initialize before using http methods'))
        raw.initialize()
        self.assertEqual(self.refused(raw, 'nope'), (-32600, 'client must send initialized before using http methods'))
        c = srv.session()
        for more in ({'timeoutMs': -1}, {'timeoutMs': 'x'}, {'redirectPolicy': 'x'}, {'redirectPolicy': None}, {'headers': None},
                     {'headers': [1]}, {'headers': [{'name': 'a'}]}, {'headers': [{'value': 'a'}]}, {'bodyBase64': '!!'},
                     {'bodyBase64': 1}, {'streamResponse': None}, {'method': None}, {'url': 1}, {'requestId': None}):
            self.assertEqual(c.error('http/request', dict(self.params(web.url), **more))['code'], -32602, more)
        self.assertEqual(self.refused(c, 'nope', 'G T')[1], 'http/request method is invalid: invalid HTTP method')
        self.assertEqual(self.refused(c, 'ftp://x', headers=[{'name': '', 'value': ''}])[1],
                         'http/request only supports http and https URLs, got ftp')
        self.ask(c, web.url, unknown={'a': 1}, timeoutMs=2 ** 64 - 1)


class Redirects(HttpCase):
    @staticmethod
    def to(location, status=302, *headers):
        return response(b'gone', b'%d Moved' % status, b'location: ' + location, *headers)

    def test_methods_and_bodies(self):
        web = self.web({'/%d' % s: self.to(b'/there?x=1', s) for s in (300, 301, 302, 303, 307, 308)})
        c = self.server().session()
        for status, method, then in ((301, 'POST', 'GET'), (302, 'POST', 'GET'), (303, 'POST', 'GET'), (307, 'POST', 'POST'),
                                     (308, 'POST', 'POST'), (302, 'PUT', 'PUT'), (303, 'PUT', 'GET'), (301, 'GET', 'GET'),
                                     (303, 'HEAD', 'HEAD'), (302, 'DELETE', 'DELETE')):
            body = b64(b'payload') if method in ('POST', 'PUT') else None
            got = self.ask(c, '%s/%d' % (web.url, status), method, bodyBase64=body,
                           headers=[{'name': 'Content-Type', 'value': 'a/b'}, {'name': 'Authorization', 'value': 'x'}])
            r = web.requests[-1]
            self.assertEqual((got['status'], r.method, r.path), (200, then, '/there?x=1'))
            keeps = body is not None and then == method
            self.assertEqual(r.body, b'payload' if keeps else b'')
            self.assertEqual(r.get(b'content-type'), [] if then != method or status == 303 else [b'a/b'])
            self.assertEqual(r.get(b'authorization'), [b'x'])
            self.assertEqual(r.get(b'referer'), [b'%s/%d' % (web.url.encode(), status)])
        self.assertEqual(self.ask(c, web.url + '/300')['status'], 300)

    def test_stop(self):
        web = self.web({'/r': self.to(b'/there')})
        got = self.ask(self.server().session(), web.url + '/r', redirectPolicy='stop')
        self.assertEqual((got['status'], unb64(got['bodyBase64']), len(web.requests)), (302, b'gone', 1))

    def test_secrets_stay_with_their_host(self):
        other = self.web()
        web = self.web({'/r': self.to(other.url.encode() + b'/there', 307)})
        names = ('Authorization', 'Cookie', 'Proxy-Authorization', 'WWW-Authenticate', 'X-Key')
        self.ask(self.server().session(), web.url.replace('//', '//u:p@') + '/r', 'POST', bodyBase64=b64(b'payload'),
                 headers=[{'name': n, 'value': 'secret'} for n in names[1:]])
        r = other.requests[-1]
        self.assertEqual((r.body, r.get(b'x-key'), r.get(b'referer')), (b'payload', [b'secret'], [web.url.encode() + b'/']))
        for name in names[:-1]:
            self.assertEqual(r.get(name.encode()), [], name)

    @ours_only  # the reference sends both on
    def test_what_is_of_the_environment_stays_with_its_host(self):
        other = self.web()
        web = self.web({'/r': self.to(other.url.encode() + b'/there', 307), '/same': self.to(b'/there', 307)})
        other.answers['/back'] = self.to(web.url.encode() + b'/end')
        web.answers['/away'] = self.to(other.url.encode() + b'/back')
        c = self.server(env={'MY_TOKEN': 't0'}).session()
        headers = [{'name': 'X-Key', 'value': 'k-', 'valueEnvVar': 'MY_TOKEN'}, {'name': 'X-Key', 'value': 'plain'},
                   {'name': 'Host', 'value': 'site.example'}, {'name': 'X-Last', 'value': '', 'valueEnvVar': 'MY_TOKEN'}]

        def seen(web):
            return tuple(web.requests[-1].get(name) for name in (b'x-key', b'x-last', b'host'))
        self.ask(c, web.url + '/same', headers=headers)
        self.assertEqual(seen(web), ([b'k-t0', b'plain'], [b't0'], [b'site.example']))
        self.ask(c, web.url + '/r', headers=headers)
        self.assertEqual(seen(other), ([b'plain'], [], [b'127.0.0.1:%d' % other.port]))
        self.ask(c, web.url + '/away', headers=headers)  # there and back again: what is gone is gone
        self.assertEqual(web.requests[-1].path, '/end')
        self.assertEqual(seen(web), ([b'plain'], [], [b'127.0.0.1:%d' % web.port]))

    def test_chains_and_nonsense(self):
        answers = {'/l': self.to(b'/l'), '/ftp': self.to(b'ftp://x/y'), '/file': self.to(b'file:///etc/passwd'),
                   '/none': response(b'', b'302 Found'), '/bad': self.to(b'http://[::bad'), '/empty': self.to(b'')}
        answers.update({'/c%d' % i: self.to(b'/c%d' % (i - 1)) for i in range(1, 12)})
        web, c = self.web(answers), self.server().session()
        self.assertEqual(self.refused(c, web.url + '/l'), (-32603, 'http/request failed: too many redirects'))
        self.assertEqual(len(web.requests), 11)
        self.assertEqual(self.ask(c, web.url + '/c10')['status'], 200)
        self.assertEqual(self.refused(c, web.url + '/c11')[1], 'http/request failed: too many redirects')
        for scheme in ('ftp', 'file'):
            self.assertEqual(self.refused(c, web.url + '/' + scheme), (
                -32603, 'http/request failed: redirect target uses unsupported URL scheme: ' + scheme))
        for path in ('/none', '/bad'):
            self.assertEqual(self.ask(c, web.url + path)['status'], 302)

    @ours_only
    def test_the_body_of_a_redirect_is_not_waited_for(self):
        def endless(peer, _request):
            peer.send(b'HTTP/1.1 302 Found\r\nlocation: /there\r\ntransfer-encoding: chunked\r\n\r\n')
            return not peer.wait_gone()
        web = self.web({'/r': endless})
        self.assertEqual(self.ask(self.server().session(), web.url + '/r')['status'], 200)


class Streams(HttpCase):
    @staticmethod
    def drip(count, pause=0.05):
        def answer(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n')
            for i in range(count):
                peer.chunk(b'data: %d\n\n' % i)
                time.sleep(pause)
            peer.send(b'0\r\n\r\n')
            return True
        return answer

    def test_events_come_as_they_are_sent(self):
        web, c = self.web({'/sse': self.drip(5, 0.2)}), self.server().session()
        began = time.monotonic()
        self.ask(c, web.url + '/sse', request_id='s', streamResponse=True)
        c.wait_for(lambda: self.deltas(c, 's'), 'the first event')
        self.assertLess(time.monotonic() - began, 0.9)  # the last is sent after 0.8 s, the end after 1
        c.wait_for(lambda: self.deltas(c, 's')[-1]['done'], 'the end')
        self.assertEqual(b''.join(unb64(d['deltaBase64']) for d in self.deltas(c, 's')),
                         b''.join(b'data: %d\n\n' % i for i in range(5)))

    def test_names_of_streams(self):
        def held(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na')
            self.assertTrue(go.wait(20))
            peer.send(b'bc')
            return True
        go = threading.Event()
        web, srv = self.web({'/held': held}), self.server()
        c = srv.session()
        self.ask(c, web.url + '/held', request_id='x', streamResponse=True)
        text = 'http/request streamResponse requestId `x` is already active'
        self.assertEqual(self.refused(c, 'nope', 'G T', request_id='x', streamResponse=True), (-32602, text))
        self.assertEqual(self.ask(c, web.url, request_id='x')['status'], 200)   # not a stream
        self.assertEqual(self.stream(srv.session(), web.url, 'x')[1], b'ok')     # another connection
        self.assertEqual(self.stream(c, web.url, 'y \u00e9"\n')[1], b'ok')
        go.set()
        c.wait_for(lambda: any(d['done'] for d in self.deltas(c, 'x')), 'the end')
        c.take_notes()
        self.assertEqual(self.stream(c, web.url, 'x')[1], b'ok')                 # free again
        self.assertEqual(self.stream(c, web.url, '')[1], b'ok')
        self.assertEqual(self.refused(c, 'http://127.0.0.1:1/', request_id='x', streamResponse=True)[0], -32603)
        c.take_notes()
        self.assertEqual(self.stream(c, web.url, 'x', method='HEAD')[1:], (b'', None))

    def test_ends_that_are_no_good(self):
        def cut(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc')
            return False

        def reset(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n')
            time.sleep(0.2)
            peer.reset()
            return False

        def hang(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc')
            return not peer.wait_gone()
        web = self.web({'/cut': cut, '/reset': reset, '/hang': hang,
                        '/bad': b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n'})
        c = self.server().session()
        for path in ('/cut', '/reset', '/bad', '/hang'):
            more = {'timeoutMs': 1000} if path == '/hang' else {}
            _, body, error = self.stream(c, web.url + path, 's' + path, **more)
            self.assertEqual(body, b'abc')
            self.assertTrue(error.startswith('error decoding response body'), error)
            code, text = self.refused(c, web.url + path, **more)
            self.assertEqual(code, -32603)
            self.assertTrue(text.startswith('failed to read http/request response body: error decoding response body'), text)

    @ours_only
    def test_who_does_not_read_stalls_only_itself(self):
        sent = {}

        def flood(peer, request):
            peer.send(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')
            peer.sock.settimeout(1)
            sent[request.path] = 0
            try:
                while sent[request.path] < 256 * MIB:
                    peer.chunk(b'x' * 65536)
                    sent[request.path] += 65536
            except OSError:
                peer.sock.settimeout(None)
                return not peer.wait_gone()
            return False
        web, srv = self.web({'/%d' % i: flood for i in range(4)}), self.server()
        slow, fast = srv.session(rcvbuf=4096), srv.session()
        for i in range(4):
            slow.post('http/request', self.params('%s/%d' % (web.url, i), request_id=str(i), streamResponse=True))
        wait_until(lambda: len(sent) == 4, 'four floods')
        before = srv.memory()
        for _ in range(20):
            self.assertEqual(self.ask(fast, web.url)['status'], 200)
            time.sleep(0.1)
        self.assertLess(srv.memory() - before, (96 if SANITIZED else 32) * MIB)
        self.assertLess(max(sent.values()), 64 * MIB)
        slow.abort()
        self.assertEqual(self.ask(fast, web.url)['status'], 200)

    @ours_only
    def test_processes_have_their_say_beside_endless_streams(self):
        def flood(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')
            while True:
                peer.chunk(b'x' * 65536)
        web, c = self.web({'/': flood}), self.server().session()
        for i in range(3):
            self.ask(c, web.url + '/', request_id=str(i), streamResponse=True)
        self.assertEqual(c.sh('echo here').text, 'here\n')
        for i in range(3):
            c.wait_for(lambda i=i: len(self.deltas(c, str(i))) > 3, 'stream %d' % i)

    @ours_only
    def test_the_connection_ends_and_so_do_its_requests(self):
        gone = []

        def hang(head):
            def answer(peer, request):
                if head:
                    peer.send(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc')
                gone.append((request.path, peer.wait_gone()))
                return False
            return answer
        web, srv = self.web({'/head': hang(True), '/none': hang(False)}), self.server()
        c, other = srv.session(), srv.session()
        self.ask(c, web.url + '/head', request_id='a', streamResponse=True)
        c.post('http/request', self.params(web.url + '/none', request_id='b', streamResponse=True))
        c.post('http/request', self.params(web.url + '/none', request_id='c'))
        c.post('http/request', self.params(web.url + '/head', request_id='d'))
        web.wait_requests(4)
        c.abort()
        wait_until(lambda: len(gone) == 4, 'four closed connections')
        self.assertTrue(all(ok for _, ok in gone), gone)
        self.assertEqual(self.ask(other, web.url)['status'], 200)
        again = srv.session(resume=c.session_id)  # the session lives on, its streams do not
        again.fence()
        self.assertEqual(self.deltas(again, 'a'), [])


class Many(HttpCase):
    @ours_only
    def test_64_at_once_and_more_in_turn(self):
        barrier = threading.Barrier(65)

        def meet(peer, _request):
            barrier.wait(20)
            peer.send(OK)
            return True
        web, srv = self.web({'/meet': meet}), self.server()
        c = srv.session()
        ids = [c.post('http/request', self.params(web.url + '/meet')) for _ in range(64)]
        more = [c.post('http/request', self.params(web.url + '/?%d' % i)) for i in range(32)]
        web.wait_requests(64)
        self.assertEqual(len(web.requests), 64)
        self.assertEqual(self.ask(srv.session(), web.url)['status'], 200)  # somebody else's
        barrier.wait(20)
        for i in ids + more:
            self.assertEqual(c.result(i)['status'], 200)
        self.assertEqual(len(self.workers(srv)), 1)

    @ours_only
    def test_time_passes_for_those_that_wait(self):
        def hang(peer, _request):
            return not peer.wait_gone()
        web, c = self.web({'/hang': hang}), self.server().session()
        for _ in range(64):
            c.post('http/request', self.params(web.url + '/hang'))
        web.wait_requests(64)
        began = time.monotonic()
        self.assertEqual(self.refused(c, web.url, timeoutMs=300)[0], -32603)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(len(web.requests), 64)

    @ours_only
    def test_too_much_for_one_reply(self):
        def large(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')
            try:
                for _ in range(80):
                    peer.chunk(b'x' * MIB)
            except OSError:
                return False
            return False
        web, srv = self.web({'/': large}), self.server()
        c = srv.session()
        code, text = self.refused(c, web.url + '/')
        self.assertEqual((code, text), (-32603, 'failed to read http/request response body: it is larger than 49283072 '
                                                'bytes; ask with streamResponse'))
        self.assertEqual(self.ask(c, web.url + '/other')['status'], 200)


class Trouble(HttpCase):
    def test_nobody_there(self):
        c = self.server().session()
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            port = s.getsockname()[1]
            code, text = self.refused(c, 'http://127.0.0.1:%d/x' % port)
        self.assertEqual(code, -32603)
        self.assertTrue(text.startswith('http/request failed: error sending request for url (http://127.0.0.1:%d/x)' % port), text)
        code, text = self.refused(c, 'http://nobody.invalid/', timeoutMs=15000)
        self.assertEqual(code, -32603)
        self.assertTrue(text.startswith('http/request failed: error sending request for url (http://nobody.invalid/)'), text)

    @ours_only
    def test_errors_say_why_and_hide_passwords(self):
        web = self.web({'/hang': lambda peer, _request: not peer.wait_gone()})
        c = self.server().session()
        self.assertIn('Connection refused', self.refused(c, 'http://u:hidden@127.0.0.1:1/')[1])
        self.assertNotIn('hidden', self.refused(c, 'http://u:hidden@127.0.0.1:1/')[1])
        self.assertIn('timed out', self.refused(c, web.url + '/hang', timeoutMs=200)[1])
        text = self.refused(c, 'http://127.0.0.1:1/' + 'x' * 5000)[1]
        self.assertTrue(text.endswith('...): Connection refused'), text)

    def test_time_outs(self):
        def slow(peer, _request):
            for b in b'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n':
                peer.send(bytes([b]))
                time.sleep(0.2)
            return True

        def wander(peer, request):
            time.sleep(0.3)
            peer.send(response(b'', b'302 Found', b'location: /wander?' + request.path.encode()[-1:] + b'x'))
            return True
        web, c = self.web({'/slow': slow, '/wander': wander}), self.server().session()
        for path in ('/slow', '/wander'):
            began = time.monotonic()
            self.assertEqual(self.refused(c, web.url + path, timeoutMs=700)[0], -32603)
            self.assertTrue(0.6 < time.monotonic() - began < 2.5 + 10 * SANITIZED)
        self.assertEqual(self.refused(c, web.url, timeoutMs=0)[0], -32603)
        self.assertEqual(self.ask(c, web.url, timeoutMs=20000)['status'], 200)

    def test_servers_that_lie(self):
        def endless_head(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\n')
            while True:
                peer.send(b'x-%d: %s\r\n' % (time.monotonic_ns(), b'a' * 1000))

        def endless_line(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\nx: ')
            while True:
                peer.send(b'a' * 65536)

        def endless_early(peer, _request):
            while True:
                peer.send(b'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n' * 100)

        def half(peer, _request):
            peer.send(b'HTTP/1.1 200 O')
            peer.sock.shutdown(socket.SHUT_WR)
            return not peer.wait_gone()

        def silent(peer, _request):
            return False

        def reset(peer, _request):
            peer.reset()
            return False
        web = self.web({'/head': endless_head, '/line': endless_line, '/early': endless_early, '/half': half,
                        '/silent': silent, '/reset': reset, '/fold': b'HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n',
                        '/old': b'hello', '/junk': b'\0\xff' * 500 + b'\r\n\r\n', '/length': b'HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n',
                        '/lengths': b'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab'})
        srv = self.server()
        c = srv.session()
        for path in ('/head', '/line', '/early', '/silent', '/reset', '/half', '/fold', '/old', '/junk', '/length', '/lengths'):
            code, text = self.refused(c, web.url + path, timeoutMs=15000)
            self.assertEqual((path, code), (path, -32603))
            self.assertTrue(text.startswith('http/request failed: error sending request for url'), (path, text))
            self.assertNotIn('timed out', text, path)
        self.assertEqual(self.ask(c, web.url)['status'], 200)
        self.assertEqual(len(self.workers(srv)), 0 if PEER else 1)

    def test_upgrades_go_nowhere(self):
        def upgrade(peer, _request):
            peer.send(b'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello')
            return not peer.wait_gone()
        web = self.web({'/': upgrade})
        got = self.ask(self.server().session(), web.url + '/', timeoutMs=15000)
        self.assertEqual((got['status'], got['bodyBase64']), (101, ''))

    def test_certificates(self):
        tls = self_signed(self.scratch())
        if tls is None:
            print('# no openssl here')
            return
        web = self.web(tls=tls)
        code, text = self.refused(self.server().session(), web.url + '/')
        self.assertEqual(code, -32603)
        self.assertTrue(text.startswith('http/request failed: error sending request for url (%s/)' % web.url), text)
        if not PEER:
            self.assertIn('certificate', text)
        self.assertEqual(web.requests, [])
        if PEER:
            return
        known = self.server(env={'SSL_CERT_FILE': tls.cert}).session()
        self.assertEqual(self.stream(known, web.url + '/')[1], b'ok')

    def test_proxies_of_the_environment(self):
        proxy, web = self.web(), self.web()
        for env in ({'http_proxy': proxy.url}, {'HTTP_PROXY': proxy.url}, {'ALL_PROXY': proxy.url}):
            c = self.server(env=env).session()
            self.ask(c, 'http://site.invalid/x?y')
            r = proxy.requests[-1]
            self.assertEqual((r.line, r.get(b'host')), (b'GET http://site.invalid/x?y HTTP/1.1', [b'site.invalid']))
            self.assertEqual(sorted(k.lower() for k, _ in r.fields), [b'accept', b'host'])
        c = self.server(env={'http_proxy': proxy.url, 'NO_PROXY': '127.0.0.1'}).session()
        self.ask(c, web.url)
        self.assertEqual(len(web.requests), 1)


@ours_only
class Without(Case):
    def test_a_build_without_libcurl_says_so(self):
        if BUILT_IN:
            print('# built with libcurl')
            return
        c = self.server().session()
        error = c.error('http/request', HttpCase.params('http://127.0.0.1:1/'))
        self.assertEqual(error['code'], -32603)
        self.assertIn('libcurl4-openssl-dev', error['message'])
        self.assertEqual(c.fence(), {'status': 'ready'})


@ours_only
class Worker(HttpCase):
    def test_it_is_started_once_and_ends_with_the_server(self):
        web, srv = self.web(), self.server()
        c = srv.session()
        self.assertEqual(self.workers(srv), [])
        self.ask(c, web.url)
        self.ask(c, web.url)
        workers = self.workers(srv)
        self.assertEqual(len(workers), 1)
        srv.track(*workers)
        srv.stop()
        wait_until(lambda: not is_alive(workers[0]), 'the end of the worker')

    def test_it_ends_when_the_server_is_killed(self):
        web = self.web({'/hang': lambda peer, _request: not peer.wait_gone()})
        srv = self.server()
        c = srv.session()
        c.post('http/request', self.params(web.url + '/hang'))
        web.wait_requests(1)
        worker = self.workers(srv)[0]
        srv.kill()
        wait_until(lambda: not is_alive(worker), 'the end of the worker')

    def test_it_dies_and_the_next_request_starts_another(self):
        def held(peer, _request):
            peer.send(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc')
            return not peer.wait_gone()
        web, srv = self.web({'/held': held, '/hang': lambda peer, _request: not peer.wait_gone()}), self.server()
        c = srv.session()
        self.ask(c, web.url + '/held', request_id='s', streamResponse=True)
        waiting = c.post('http/request', self.params(web.url + '/hang'))
        web.wait_requests(2)
        first = self.workers(srv)[0]
        os.kill(first, signal.SIGKILL)
        error = c.reply(waiting)['error']
        self.assertEqual(error, {'code': -32603, 'message': 'http/request failed: the process that did this request has '
                                                           'ended; try it again'})
        c.wait_for(lambda: any(d['done'] for d in self.deltas(c, 's')), 'the end')
        self.assertIn('ended', self.deltas(c, 's')[-1]['error'])
        self.assertEqual(self.ask(c, web.url)['status'], 200)
        self.assertNotEqual(self.workers(srv), [first])
        for _ in range(5):
            worker = self.workers(srv)[0]
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda pid=worker: not os.path.exists('/proc/%d' % pid), 'the end of the worker')
            self.assertEqual(self.ask(c, web.url)['status'], 200)

    def test_it_has_none_of_the_secrets_of_the_server(self):
        web, srv = self.web(), self.server(env={'MY_SECRET': 'hush', 'no_proxy': '*'})
        self.ask(srv.session(), web.url)
        worker = self.workers(srv)[0]
        try:
            with open('/proc/%d/environ' % worker, 'rb') as f:
                env = f.read()
        except PermissionError:
            print('# nobody may look but root')
            return
        self.assertNotIn(b'hush', env)
        self.assertIn(b'no_proxy=*', env)

    def test_by_hand_it_says_what_it_is(self):
        r = subprocess.run([PROGRAM, 'http'], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual((r.returncode, r.stderr), (2, b'sallyport http is internal: `sallyport serve` starts it\n'))

    def test_descriptors_and_numbers(self):
        web, srv = self.web(), self.server()
        c = srv.session()
        self.ask(c, web.url)
        before = srv.fds()
        for i in range(30):
            self.stream(c, web.url, str(i))
            self.refused(c, 'http://127.0.0.1:1/')
        wait_until(lambda: sum(srv.fds().values()) <= sum(before.values()) + 1, 'no descriptors are left behind')
        text = srv.http('GET', '/metrics').body.decode()
        self.assertRegex(text, r'method="http/request"')

    def test_it_is_advertised(self):
        c = self.server().session()
        self.assertIs(c.request('environment/info')['capabilities']['httpHeaderEnvVars'], True)

    def test_a_server_that_judges_commands_lets_it_through(self):
        web = self.web()
        c = self.server('--approve', 'untrusted', '--approver', 'deny').session()
        self.assertEqual(self.ask(c, web.url)['status'], 200)

    def test_over_stdio(self):
        web = self.web({'/sse': Streams.drip(3)})
        srv = self.server(listen='stdio')
        c = srv.lines().handshake()
        self.assertEqual(self.stream(c, web.url + '/sse')[1], b'data: 0\n\ndata: 1\n\ndata: 2\n\n')


if __name__ == '__main__':
    tap.main()
