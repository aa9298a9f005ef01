# SPDX-License-Identifier: Apache-2.0
"""HTTP on the WebSocket listener: paths, methods, Origin, Host, tokens, metrics."""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import time

import tap
from server import PEER, PROGRAM, Case, Server, ours_only
from wire import Address, Channel, WebSocket, frame, query_of, read_http, upgrade_headers, wait_until


class Paths(Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server()

    def test_readyz_answers_get_and_head(self):
        for path in ('/readyz', '/readyz?x=1&y'):
            reply = self.srv.http('GET', path)
            self.assertEqual((reply.status, reply.body), (200, b''))
            self.assertEqual(self.srv.http('HEAD', path).status, 200)

    def test_other_methods_on_readyz_are_not_allowed(self):
        for method in ('POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'):
            reply = self.srv.http(method, '/readyz')
            self.assertEqual(reply.status, 405, method)
            self.assertEqual(sorted(reply.headers['allow'].replace(' ', '').split(',')), ['GET', 'HEAD'])

    def test_other_paths_are_not_found(self):
        for path in ('/x', '/readyz/', '/readyz/x', '//', '/ws', '/READYZ'):
            reply = self.srv.http('GET', path)
            self.assertEqual((reply.status, reply.body), (404, b''), path)
            reply = self.srv.http('GET', path, upgrade_headers())
            self.assertEqual(reply.status, 404, path)

    def test_any_request_with_an_origin_is_forbidden(self):
        for method, path in (('GET', '/'), ('GET', '/readyz'), ('GET', '/nowhere'), ('POST', '/'), ('GET', '/metrics')):
            for origin in ('http://evil.example', 'null', 'http://127.0.0.1', ''):
                reply = self.srv.http(method, path, {'Origin': origin})
                self.assertEqual((reply.status, reply.body), (403, b''), (method, path, origin))
        reply = self.srv.http('GET', '/', upgrade_headers(oRiGiN='http://localhost'))
        self.assertEqual(reply.status, 403)

    def test_the_root_says_what_is_missing_for_an_upgrade(self):
        reply = self.srv.http('GET', '/')
        self.assertEqual((reply.status, reply.body), (400, b"Connection header did not include 'upgrade'"))
        reply = self.srv.http('POST', '/')
        self.assertEqual((reply.status, reply.body), (405, b'Request method must be `GET`'))
        reply = self.srv.http('DELETE', '/', upgrade_headers())
        self.assertEqual(reply.status, 405)
        reply = self.srv.http('GET', '/', upgrade_headers(Sec_WebSocket_Version='12'))
        self.assertEqual((reply.status, reply.body), (400, b"`Sec-WebSocket-Version` header did not include '13'"))
        reply = self.srv.http('GET', '/', upgrade_headers(Sec_WebSocket_Version=None))
        self.assertEqual((reply.status, reply.body), (400, b"`Sec-WebSocket-Version` header did not include '13'"))
        reply = self.srv.http('GET', '/', upgrade_headers(Sec_WebSocket_Key=None))
        self.assertEqual((reply.status, reply.body), (400, b'`Sec-WebSocket-Key` header missing'))

    def test_upgrade_reads_headers_as_http_does(self):
        for headers in ({'connection': 'keep-alive, UpGrade', 'upgrade': 'WebSocket'},
                        {'CONNECTION': 'upgrade', 'UPGRADE': 'WEBSOCKET'}):
            fields = upgrade_headers(Connection=None, Upgrade=None)
            fields.update(headers)
            self.assertEqual(self.srv.http('GET', '/', fields).status, 101)
        self.assertEqual(self.srv.http('GET', '/?query=1', upgrade_headers()).status, 101)
        reply = self.srv.http('GET', '/', upgrade_headers(Sec_WebSocket_Protocol='a, b',
                                                          Sec_WebSocket_Extensions='permessage-deflate'))
        self.assertEqual(reply.status, 101)
        self.assertNotIn('sec-websocket-protocol', reply.headers)
        self.assertNotIn('sec-websocket-extensions', reply.headers)

    def test_a_connection_carries_several_requests_or_says_that_it_does_not(self):
        channel = Channel.connect(self.srv.address)
        for _ in range(3):
            channel.write(b'GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n')
            reply = read_http(channel)
            self.assertEqual(reply.status, 200)
            if reply.headers.get('connection', '').lower() == 'close':
                channel.end_of_stream()
                break
        channel.close()

    def test_frames_sent_with_the_upgrade_are_not_lost(self):
        channel = Channel.connect(self.srv.address)
        head = 'GET %s HTTP/1.1\r\nHost: localhost\r\n' % (query_of(self.srv.address) or '/') + ''.join(
            '%s: %s\r\n' % h for h in upgrade_headers().items()) + '\r\n'
        message = b'{"id":1,"method":"initialize","params":{"clientName":"eager"}}'
        channel.write(head.encode() + frame(1, message))
        self.assertEqual(read_http(channel).status, 101)
        c = self.srv.client(WebSocket(channel))
        self.assertIn('sessionId', c.result(1))

    def test_a_request_may_come_byte_by_byte(self):
        channel = Channel.connect(self.srv.address)
        for byte in b'GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n':
            channel.write(bytes([byte]))
        self.assertEqual(read_http(channel).status, 200)
        channel.close()

    def test_garbage_does_not_disturb_the_server(self):
        for text in (b'\x00' * 200, b'\x16\x03\x01\x02\x00', b'GET\r\n\r\n', b'GET / HTTP/9.9\r\n\r\n',
                     b'GET / HTTP/1.1\r\nno colon\r\n\r\n', b'GET ' + b'x' * 200000 + b' HTTP/1.1\r\n\r\n',
                     b'GET / HTTP/1.1\r\n' + b'a: b\r\n' * 20000 + b'\r\n', b'\r\n\r\n\r\n'):
            channel = Channel.connect(self.srv.address)
            try:
                channel.write(text)
            except Exception:
                pass
            channel.close()
        self.assertEqual(self.srv.session().fence(), {'status': 'ready'})

    @ours_only
    def test_an_endless_header_is_cut_off(self):
        channel = Channel.connect(self.srv.address)
        try:
            for _ in range(400):
                channel.write(b'GET /' + b'x' * 10000)
                if channel.eof:
                    break
            self.assertTrue(channel.eof or read_http(channel).status >= 400)
        except Exception as e:
            if isinstance(e, AssertionError):
                raise
        channel.close()
        self.assertEqual(self.srv.session().fence(), {'status': 'ready'})


@ours_only
class Host(Case):
    def test_host_must_be_an_address_or_localhost(self):
        srv = self.server()
        port = srv.address[1]
        for host in ('localhost', 'localhost:%d' % port, '127.0.0.1', '127.0.0.1:%d' % port, '[::1]', '[::1]:80',
                     'LOCALHOST', '10.1.2.3:5'):
            self.assertEqual(srv.http('GET', '/readyz', host=host).status, 200, host)
            self.assertEqual(srv.http('GET', '/', upgrade_headers(), host=host).status, 101, host)
        for host in ('evil.example', 'evil.example:%d' % port, 'localhost.evil.example', '127.0.0.1.evil.example',
                     'localhost:80:evil.example', 'a@localhost', '127.0.0.1x'):
            reply = srv.http('GET', '/', upgrade_headers(), host=host)
            self.assertIn(reply.status, (400, 403, 421), host)
            self.assertIn(srv.http('GET', '/metrics', host=host).status, (400, 403, 421), host)


    def test_a_configured_name_is_accepted(self):
        srv = self.server('--host-name', 'box.example', '--allow-host', 'other.example')  # the second is the old spelling
        for host in ('box.example', 'BOX.example:80', 'other.example', 'localhost'):
            self.assertEqual(srv.http('GET', '/', upgrade_headers(), host=host).status, 101, host)
        for host in ('evil.example', 'box.example.evil.example', 'xbox.example'):
            self.assertIn(srv.http('GET', '/', upgrade_headers(), host=host).status, (400, 403, 421), host)


@ours_only
class Metrics(Case):
    def test_metrics_are_served_on_loopback(self):
        srv = self.server()
        srv.session().sh('echo hi')
        reply = srv.http('GET', '/metrics')
        self.assertEqual(reply.status, 200)
        self.assertTrue(reply.headers['content-type'].startswith('text/plain'))
        self.assertIn(b'sallyport_', reply.body)


class Tokens(Case):
    def token_file(self, text):
        path = os.path.join(self.scratch(), 'token')
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, 0o600)
        return path

    def attempt(self, srv, authorization=None, path='/'):
        headers = upgrade_headers()
        if authorization is not None:
            headers['Authorization'] = authorization
        reply = srv.http('GET', path, headers, anonymous=True)
        return (101,) if reply.status == 101 else (reply.status, reply.body.decode())

    def judge(self, srv, token):
        self.assertEqual(self.attempt(srv), (401, 'missing websocket bearer token'))
        self.assertEqual(self.attempt(srv, 'Bearer wrong'), (401, 'invalid websocket bearer token'))
        self.assertEqual(self.attempt(srv, 'Bearer ' + token[:-1]), (401, 'invalid websocket bearer token'))
        self.assertEqual(self.attempt(srv, 'Bearer ' + token + 'x'), (401, 'invalid websocket bearer token'))
        self.assertEqual(self.attempt(srv, 'Basic ' + token), (401, 'invalid authorization header'))
        self.assertEqual(self.attempt(srv, token), (401, 'invalid authorization header'))
        for scheme in ('Bearer', 'bearer', 'BEARER'):
            self.assertEqual(self.attempt(srv, '%s %s' % (scheme, token)), (101,))
        self.assertEqual(srv.http('GET', '/readyz').status, 200, 'readyz needs no token')
        c = srv.session(headers={'Authorization': 'Bearer ' + token})
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertEqual(srv.http('GET', '/', upgrade_headers(
            Origin='http://x', Authorization='Bearer ' + token)).status, 403, 'Origin comes first')

    def test_capability_token_from_a_file(self):
        path = self.token_file('open-sesame-0123456789 \r\n\n')
        srv = self.server('--ws-auth', 'capability-token', '--ws-token-file', path)
        with open(path, 'w') as f:
            f.write('changed later')  # read once
        self.judge(srv, 'open-sesame-0123456789')

    def test_capability_token_by_its_digest(self):
        digest = hashlib.sha256(b'open-sesame-0123456789').hexdigest()
        self.judge(self.server('--ws-auth', 'capability-token', '--ws-token-sha256', digest), 'open-sesame-0123456789')

    @ours_only
    def test_token_file_is_enough(self):
        srv = self.server('--token-file', self.token_file('just-a-simple-token\n'))
        self.judge(srv, 'just-a-simple-token')
        self.assertEqual(srv.url, srv.bare_url, 'what is in a file is not printed')
        self.assertEqual(self.attempt(srv, path='/?token=just-a-simple-token'), (101,))
        self.assertEqual(self.attempt(srv, path='/?token=just%2da%2Dsimple%2Dtoken'), (101,))

    MISSING = (401, 'missing websocket bearer token; use the URL the server printed')
    INVALID = (401, 'invalid websocket bearer token; use the URL the server printed')

    @ours_only
    def test_the_printed_url_is_the_key(self):
        srv = self.server()
        self.assertRegex(srv.url, r'^ws://127\.0\.0\.1:\d+/\?token=[0-9a-f]{64}$')
        token = srv.address.token
        self.assertEqual(self.attempt(srv), self.MISSING)
        for query in ('token', 'x=1', 'Token=' + token, 'x=token=' + token, 'xtoken=' + token):
            self.assertEqual(self.attempt(srv, path='/?' + query), self.MISSING, query)
        for query in ('token=', 'token=' + token[:-1], 'token=%sx' % token, 'token=' + token.upper() + '0',
                      'token=%s&token=%s' % (token, token), 'token=%', 'token=%4', 'token=%zz', 'token=' + 'a' * 9000):
            self.assertEqual(self.attempt(srv, path='/?' + query), self.INVALID, query)
        for query in ('token=' + token, 'a=b&token=%s&c' % token, 'token=%%%02x%s' % (ord(token[0]), token[1:])):
            self.assertEqual(self.attempt(srv, path='/?' + query), (101,), query)
        self.assertEqual(self.attempt(srv, 'Bearer ' + token), (101,))
        self.assertEqual(self.attempt(srv, 'Bearer wrong', '/?token=' + token), self.INVALID, 'the header decides')
        self.assertEqual(srv.http('GET', '/?token=' + token, upgrade_headers(Origin='http://x')).status, 403)
        self.assertEqual(srv.http('GET', '/?token=' + token, upgrade_headers(), host='evil.example').status, 403)
        self.assertNotEqual(self.server().address.token, token)
        self.assertEqual(srv.session().fence(), {'status': 'ready'})

    @ours_only
    def test_metrics_need_the_token_and_readyz_does_not(self):
        srv = self.server()
        self.assertEqual(srv.http('GET', '/readyz', anonymous=True).status, 200)
        self.assertEqual(srv.http('GET', '/metrics', anonymous=True).status, 401)
        reply = srv.http('GET', '/metrics?token=' + srv.address.token, anonymous=True)
        self.assertEqual(reply.status, 200)
        self.assertNotIn(srv.address.token.encode(), reply.body)

    @ours_only
    def test_no_auth_is_for_loopback(self):
        srv = self.server('--no-auth')
        self.assertEqual(srv.url, srv.bare_url)
        self.assertEqual(self.attempt(srv), (101,))
        self.assertEqual(srv.http('GET', '/metrics').status, 200)
        code, text = self.refused('--no-auth', listen='ws://0.0.0.0:0')
        self.assertEqual(code, 1)
        self.assertIn('--allow-anonymous', text)
        for flag in ('--no-auth', '--allow-anonymous'):
            code, text = self.refused(flag, '--token-file', self.token_file('token'))
            self.assertEqual(code, 2)
            self.assertIn(flag + ' cannot be combined', text)

    SECRET = 'a shared secret of at least 32 bytes!'

    def jwt(self, claims, secret=None, header=None, cut=None):
        def part(data):
            return base64.urlsafe_b64encode(data).rstrip(b'=').decode()
        body = part(json.dumps(header or {'alg': 'HS256', 'typ': 'JWT'}).encode()) + '.' + part(json.dumps(claims).encode())
        return body + '.' + part(hmac.new((secret or self.SECRET).encode(), body.encode(), 'sha256').digest())[:cut]

    def test_signed_tokens(self):
        now = int(time.time())
        srv = self.server('--ws-auth', 'signed-bearer-token', '--ws-shared-secret-file', self.token_file(self.SECRET + '\n'),
                          '--ws-issuer', 'me', '--ws-audience', 'you')
        good = {'exp': now + 600, 'iss': 'me', 'aud': 'you'}
        self.assertEqual(self.attempt(srv), (401, 'missing websocket bearer token'))
        for claims in (good, dict(good, aud=['them', 'you']), dict(good, nbf=now - 5), dict(good, nbf=now + 10),
                       dict(good, exp=now - 10), dict(good, more=1)):
            self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt(claims)), (101,), claims)
        for claims in (dict(good, exp=now - 120), dict(good, nbf=now + 120), dict(good, iss='other'),
                       dict(good, aud='other'), dict(good, aud=[]), {'iss': 'me', 'aud': 'you'},
                       {'exp': now + 600, 'aud': 'you'}, {'exp': now + 600, 'iss': 'me'}, dict(good, exp='soon')):
            self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt(claims))[0], 401, claims)
        self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt(good, secret='x' * 40))[0], 401)
        self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt(good, cut=-1))[0], 401)
        self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt(good, header={'alg': 'none'}))[0], 401)
        self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt(good, header={'alg': 'HS512'}))[0], 401)
        self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt(good).rsplit('.', 1)[0] + '.')[0], 401)
        self.assertEqual(self.attempt(srv, 'Bearer a.b.c')[0], 401)

    def test_clock_skew_can_be_set(self):
        now = int(time.time())
        srv = self.server('--ws-auth', 'signed-bearer-token', '--ws-shared-secret-file', self.token_file(self.SECRET),
                          '--ws-max-clock-skew-seconds', '100')
        self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt({'exp': now - 60})), (101,))
        self.assertNotEqual(self.attempt(srv, 'Bearer ' + self.jwt({'exp': now - 160})), (101,))
        self.assertEqual(self.attempt(srv, 'Bearer ' + self.jwt({'exp': now + 60, 'iss': 'any', 'aud': 'any'})), (101,))

    def refused(self, *args, listen='ws://127.0.0.1:0'):
        run = subprocess.run([PROGRAM, 'exec-server' if PEER else 'serve', '--listen', listen, *args],
                             stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                             env={'PATH': '/usr/bin:/bin', 'HOME': self.scratch(),
                                  **{k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}})
        self.assertEqual(run.stdout, b'')
        return run.returncode, run.stderr.decode()

    def test_start_up_errors_name_the_flag(self):
        code, text = self.refused('--ws-auth', 'capability-token')
        self.assertEqual(code, 1)
        self.assertIn('`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set', text)
        token = self.token_file('token')
        code, text = self.refused('--ws-auth', 'capability-token', '--ws-token-file', token, '--ws-token-sha256', 'a' * 64)
        self.assertNotEqual(code, 0)
        self.assertIn('--ws-token-', text)
        code, text = self.refused('--ws-auth', 'signed-bearer-token')
        self.assertEqual(code, 1)
        self.assertIn('--ws-shared-secret-file', text)
        code, text = self.refused('--ws-auth', 'signed-bearer-token', '--ws-shared-secret-file', self.token_file('short'))
        self.assertEqual(code, 1)
        self.assertIn('32', text)
        code, text = self.refused('--ws-auth', 'capability-token', '--ws-token-sha256', 'abc')
        self.assertIn(code, (1, 2))
        code, text = self.refused('--ws-auth', 'capability-token', '--ws-token-file', '/no/such/file')
        self.assertEqual(code, 1)
        code, text = self.refused('--ws-auth', 'capability-token', '--ws-token-file', self.token_file(' \n'))
        self.assertEqual(code, 1)
        code, text = self.refused('--ws-auth', 'nonsense')
        self.assertEqual(code, 2)

    def test_flags_without_a_mode_never_leave_the_door_open(self):
        token = self.token_file('x' * 40)
        for args in (['--ws-token-file', token], ['--ws-shared-secret-file', token], ['--ws-token-sha256', 'a' * 64],
                     ['--ws-issuer', 'me'], ['--ws-audience', 'you']):
            try:
                srv = Server(*args)
            except AssertionError as e:
                self.assertIn('exit status 1', str(e), args)
                continue
            try:
                self.assertEqual(self.attempt(srv)[0], 401, args)
            finally:
                srv.stop()

    def test_auth_needs_a_websocket_listener(self):
        code, text = self.refused('--ws-auth', 'capability-token', '--ws-token-file', self.token_file('x' * 40), listen='stdio')
        self.assertEqual(code, 1)
        self.assertIn('WebSocket auth requires a WebSocket listener, not stdio', text)

    @ours_only
    def test_an_open_listener_needs_a_token(self):
        for listen in ('ws://0.0.0.0:0', 'ws://[::]:0'):
            srv = self.server(listen=listen)
            where = '127.0.0.1' if '0.0.0.0' in listen else '::1'
            srv.address = Address((where, srv.address[1]), srv.address.token)
            self.assertEqual(self.attempt(srv), self.MISSING)
            self.assertEqual(self.attempt(srv, path='/?token=' + srv.address.token), (101,))
        srv = self.server('--allow-anonymous', listen='ws://0.0.0.0:0')
        self.assertEqual(srv.url, srv.bare_url)
        srv.address = Address(('127.0.0.1', srv.address[1]))
        self.assertEqual(self.attempt(srv), (101,))


class Many(Case):
    def test_connections_do_not_disturb_one_another(self):
        srv = self.server()
        clients = [srv.session() for _ in range(50)]
        ids = [c.post_start('p', ['sh', '-c', 'echo %d' % i]) for i, c in enumerate(clients)]
        for i, c in enumerate(clients):
            c.result(ids[i])
            self.assertEqual(c.wait_closed('p').stdout, b'%d\n' % i)

    @ours_only
    def test_half_open_handshakes_do_not_stop_service_or_the_end(self):
        srv = self.server()
        idle = [Channel.connect(srv.address) for _ in range(50)]
        for channel in idle[:25]:
            channel.write(b'GET / HTTP/1.1\r\nHost: loc')
        self.assertEqual(srv.session().fence(), {'status': 'ready'})
        srv.stop()
        for channel in idle:
            wait_until(lambda c=channel: c.eof or not c.fill(time.monotonic() + 5), 'end of an idle connection')
            channel.close()


if __name__ == '__main__':
    tap.main()
