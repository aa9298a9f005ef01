# SPDX-License-Identifier: Apache-2.0
"""The managed network on the wire: networkProxy of process/start, network/policyRequest and network/policyDecision.

Servers are the test's own, on loopback; names come from a table (SALLYPORT_TEST_HOSTS). Nothing leaves the machine.
"""

import json
import os
import re
import signal
import socket
import threading
import time

import server
import tap
import wire
from asked import Asked
from managed import helpers_of
from proxy_front import Server as Loopback
from proxy_front import echo, web
from sandbox_policy import (ROOT, SandboxCase, confined_cells, context, project_write, read_only, restricted, unrestricted)
from server import ours_only
from test_docs import fences, read
from wire import WebSocket, wait_until

PROGRAM = server.PROGRAM
if not server.PEER:
    server.PROGRAM = os.path.join(os.path.dirname(PROGRAM), 'tests', 'sallyport-test-hosts')
REFUSE = os.environ.get('REFUSE') or os.path.join(os.path.dirname(PROGRAM), 'tests', 'unit', 'refuse')
CANNOT = 'managed network cannot be enforced on this executor: '
CONFIG = 'invalid network proxy config: '
PROXY = {'enabled': True, 'enableSocks5': True, 'enableSocks5Udp': True, 'allowUpstreamProxy': True,
         'dangerouslyAllowAllUnixSockets': False, 'mode': 'full', 'domains': {'*.b.test': 'deny', 'a.test': 'allow'},
         'unixSockets': None, 'allowLocalBinding': False}
HTTP, SOCKS = 'http://127.0.0.1:808', 'socks5h://127.0.0.1:808'
LOOPBACK = 'localhost,127.0.0.1,::1,.localhost'
GET = 'curl -sS -m 30 -o /dev/null -w "%%{http_code}\\n" http://%s/'
# CONNECT to each target; prints the status and what follows the head.
CONNECT = '''
import os, socket, sys
h, p = os.environ['HTTP_PROXY'][7:].split(':')
for target in sys.argv[1:]:
    c = socket.create_connection((h, int(p)))
    c.sendall(('CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' % (target, target)).encode())
    data = b''
    while b'\\r\\n\\r\\n' not in data:
        data += c.recv(4096)
    head, rest = data.split(b'\\r\\n\\r\\n', 1)
    status = head.split(b'\\r\\n')[0].split()[1].decode()
    while status != '200':
        more = c.recv(4096)
        if not more:
            break
        rest += more
    print(status, rest.decode().replace('\\n', '|'), flush=True)
    c.close()
'''


class Wire(SandboxCase):
    """A server whose commands know some names; a.test and u.test are one web server, at port 80."""

    def setUp(self):
        super().setUp()
        self.seen = []
        self.web = Loopback(web(self.seen))
        self.addCleanup(self.web.close)
        self.echo = Loopback(echo)
        self.addCleanup(self.echo.close)
        hosts = []
        for name in ('a.test', 'u.test', 'x.b.test', 'a.example'):
            hosts += ['%s=127.0.0.1*' % name, '%s:80=127.0.0.1:%d*' % (name, self.web.port),
                      '%s:443=127.0.0.1:%d*' % (name, self.echo.port), '%s:22=127.0.0.1:%d*' % (name, self.echo.port)]
        hosts += ['priv.test=127.0.0.1', 'none.test=-']
        self.srv = self.server(*self.options(), env={'SALLYPORT_TEST_HOSTS': ','.join(hosts)})
        self.c = self.connect()

    def options(self):
        return ()

    def connect(self, resume=None):
        return Asked(WebSocket.connect(self.srv.address), self.srv).greet(resume)

    def launch(self, timeout=None, **members):
        launch = {'proxy': dict(PROXY, **members), 'auditMetadata': {'conversationId': 'c'}, 'environmentId': 'remote',
                  'executionId': 'e'}
        if timeout is not None:
            launch['policyDecisionTimeoutMs'] = timeout
        return launch

    def managed(self, argv, process_id=None, timeout=None, sandbox=None, proxy=None, **more):
        """A command in a managed network, to its end."""
        more.setdefault('networkProxy', self.launch(timeout, **(proxy or {})))
        how = dict(more, process_id=process_id) if process_id else more
        return self.run_in(self.c, argv, sandbox or project_write(self.w, network='enabled'), **how)

    def begin(self, process_id, argv, timeout=None, proxy=None, **more):
        self.start(self.c, process_id, argv, more.pop('sandbox', project_write(self.w, network='enabled')),
                   networkProxy=self.launch(timeout, **(proxy or {})), **more)

    def connects(self, *targets):
        return ['python3', '-S', '-c', CONNECT, *targets]

    def question(self, timeout=None):
        self.c.wait_for(lambda: self.c.questions, 'question', timeout)
        q = self.c.questions.pop(0)
        self.assertEqual((set(q), q['method'], set(q['params'])),
                         ({'id', 'method', 'params'}, 'network/policyRequest', {'processId', 'request'}))
        return q['id'], q['params']

    def answer(self, number, decision):
        self.c.send({'id': number, 'result': {'decision': decision}})

    def decisions(self, **members):
        notes = [n['params'] for n in self.c.notes if n['method'] == 'network/policyDecision']
        return [n for n in notes if all(n.get(k) == v for k, v in members.items())]

    def refused(self, message, code=-32602, **more):
        self.assertError(self.c.start_error('refused', ['true'], **self.how(more)), code, message)


@ours_only
class Start(Wire):
    """84, 85, 86: what the start of a client does."""

    def test_the_start_of_the_client(self):
        """84: as Codex sends it: `network` is `enabled`, and enforceManagedNetwork is true."""
        p = self.managed(GET % 'a.test' + '; ' + GET % 'x.b.test' + '; ' + GET % 'u.test', enforceManagedNetwork=True,
                         managedNetwork=None)
        self.assertEqual((p.exit_code, p.text), (0, '200\n403\n403\n'))
        self.assertEqual([line.split('\r\n')[0] for line in self.seen], ['GET / HTTP/1.1'])
        self.assertFalse(self.denied(self.c, p))

    def test_by_name_without_variables(self):
        p = self.managed('env -i PATH=$PATH sh -c \'%s; curl -sS http://x.b.test/\'' % (GET % 'a.test'))
        status, body = p.text.split('\n', 1)
        self.assertEqual(status, '200')
        body = json.loads(body)
        self.assertEqual((body['host'], body['reason'], body['source']), ('x.b.test', 'denied', 'baseline_policy'))

    def test_enabled_is_not_the_hosts_network(self):
        """85: neither its namespace nor its loopback, whatever enforceManagedNetwork says."""
        direct = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && echo reached' 2>/dev/null; true" % self.web.port
        for enforced in (True, False):
            for sandbox in (project_write(self.w, network='enabled'), context(unrestricted('enabled'), self.w),
                            context({'type': 'external', 'network': 'enabled'}, self.w)):
                p = self.managed('readlink /proc/self/ns/net; ' + direct, sandbox=sandbox, enforceManagedNetwork=enforced)
                self.assertRegex(p.text, r'^net:\[[0-9]+\]\n$')
                self.assertNotEqual(p.text.strip(), os.readlink('/proc/self/ns/net'))
        self.assertEqual(self.web.connections, [])

    def test_restricted_is_managed_too(self):
        p = self.managed(GET % 'a.test', sandbox=read_only(self.w))
        self.assertEqual(p.text, '200\n')

    def test_on_a_terminal(self):
        p = self.managed(GET % 'a.test', tty=True)
        self.assertEqual(p.text, '200\r\n')

    def test_without_a_sandbox(self):
        """86, second row."""
        needs = CANNOT + 'networkProxy needs a sandbox'
        for sandbox in (None, context({'type': 'disabled'}, self.w)):
            self.refused(needs, networkProxy=self.launch(), sandbox=sandbox)
            self.refused(needs, networkProxy=self.launch(), sandbox=sandbox, enforceManagedNetwork=True)

    def test_enforced_without_a_proxy(self):
        """86, third row: no network in a sandbox; ignored without one."""
        direct = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && echo reached' 2>/dev/null; true" % self.web.port
        confined = project_write(self.w, network='enabled')
        self.assertEqual(self.said(self.c, direct, confined), 'reached\n')
        for facts in (None, {}):
            self.assertEqual(self.said(self.c, direct, confined, enforceManagedNetwork=True, managedNetwork=facts), '')
            for sandbox in (None, context({'type': 'disabled'}, self.w)):
                self.assertEqual(self.said(self.c, direct, sandbox, enforceManagedNetwork=True, managedNetwork=facts), 'reached\n')

    def test_a_proxy_that_runs_already(self):
        """86, fourth row."""
        gate = CANNOT + 'its sandbox cannot open the way to one proxy only (managedNetwork)'
        for sandbox in (None, project_write(self.w, network='enabled')):
            for facts in ({'loopbackPorts': [8080]}, {'loopbackPorts': []}, {'allowLocalBinding': True}):
                self.refused(gate, managedNetwork=facts, sandbox=sandbox)
                self.refused(gate, managedNetwork=facts, sandbox=sandbox, enforceManagedNetwork=True)
                self.refused(gate, managedNetwork=facts, sandbox=sandbox, networkProxy=self.launch())

    def test_reviews_and_credentials(self):
        """86, fifth row; empty ones ask for nothing."""
        sandbox = project_write(self.w)
        self.refused(CANNOT + 'it does not review domains (reviewDomains), as its capabilities say', sandbox=sandbox,
                     networkProxy=self.launch(reviewDomains=['a.test']))
        for more in ({'credentialMasking': True}, {'credentialProviders': {'x': {}}}):
            self.refused(CANNOT + 'it does not hold credentials (credentialMasking, credentialProviders), as its '
                         'capabilities say', sandbox=sandbox, networkProxy=self.launch(**more))
        p = self.managed(GET % 'a.test', proxy={'reviewDomains': [], 'credentialMasking': False, 'credentialProviders': {}})
        self.assertEqual(p.text, '200\n')

    def test_unix_sockets_have_no_effect(self):
        """86, sixth row."""
        script = 'python3 -S -c "import socket; socket.socket(socket.AF_UNIX)" 2>/dev/null && echo made; ' + GET % 'a.test'
        p = self.managed(script, proxy={'unixSockets': {'/run/x': 'allow', '/run/y': 'deny'}, 'dangerouslyAllowAllUnixSockets': True})
        self.assertEqual(p.text, '200\n')

    def test_domains(self):
        """Patterns as in Codex: ports are dropped, of equal patterns the stricter word counts."""
        lists = {'A.test:8443': 'allow', 'u.test': 'none'}
        p = self.managed(GET % 'a.test' + '; ' + GET % 'u.test', proxy={'domains': lists})
        self.assertEqual(p.text, '200\n403\n')
        p = self.managed(GET % 'a.test', proxy={'domains': {'a.test': 'allow', 'a.test.': 'deny', '*': 'allow'}})
        self.assertEqual(p.text, '403\n')
        for nothing in (None, {}):
            self.assertEqual(self.managed(GET % 'a.test', proxy={'domains': nothing}).text, '403\n')
        sandbox = project_write(self.w)
        for pattern, words in (('', 'domain pattern is empty'), ('a[b].test', None), ('a' * 254, None), ('a b', None)):
            error = self.c.start_error('refused', ['true'], **self.how({
                'sandbox': sandbox, 'networkProxy': self.launch(domains={pattern: 'allow'})}))
            self.assertEqual(error['code'], -32602)
            self.assertTrue(error['message'].startswith(CONFIG + (words or '')), error)
        self.refused(CONFIG + 'unsupported global wildcard domain pattern "*"; use exact hosts or scoped wildcards like '
                     '*.example.com or **.example.com', sandbox=sandbox, networkProxy=self.launch(domains={'*': 'deny'}))
        many = {'h%d.test' % i: 'allow' for i in range(4097)}
        self.refused(CONFIG + 'a network policy has at most 4096 domains', sandbox=sandbox, networkProxy=self.launch(domains=many))
        many.popitem()
        self.assertEqual(self.managed('echo fits', proxy={'domains': many}).text, 'fits\n')

    def test_mode_limited(self):
        script = GET % 'a.test' + '; curl -sS -X POST -d x http://a.test/; echo; curl -sS -p http://a.test:22/ 2>&1'
        p = self.managed(script, proxy={'mode': 'limited'})
        status, post, tunnel = p.text.split('\n')[:3]
        self.assertEqual((status, json.loads(post)['reason']), ('200', 'method_not_allowed'))
        self.assertIn('403', tunnel)
        self.assertEqual([(d['scope'], d['source'], d['reason']) for d in self.decisions(decision='deny')],
                         [('non_domain', 'mode_guard', 'method_not_allowed'), ('non_domain', 'mode_guard', 'mitm_required')])

    def test_local_addresses(self):
        """A listed name with an address that is not public needs allowLocalBinding; the server's own port is never reached."""
        own = '127.0.0.1:%d' % self.srv.address[1]
        connect = self.connects('priv.test:%d' % self.web.port)
        lists = {'priv.test': 'allow', '127.0.0.1': 'allow'}
        p = self.managed(connect, proxy={'domains': lists})
        self.assertEqual(p.text[:4], '403 ', p.stderr)
        self.assertEqual([(d['decision'], d['reason']) for d in self.decisions()],
                         [('allow', 'allow'), ('deny', 'not_allowed_local')])
        p = self.managed(connect, proxy={'domains': lists, 'allowLocalBinding': True})
        self.assertEqual(p.text[:4], '200 ', p.stderr)
        for local in (False, True):
            p = self.managed(self.connects('127.0.0.1:%d' % self.web.port, own), proxy={'domains': lists, 'allowLocalBinding': local})
            self.assertEqual([line[:3] for line in p.text.splitlines()], ['200', '403'], p.text)
        p = self.managed(self.connects('priv.test:%d' % self.srv.address[1]), proxy={'domains': lists, 'allowLocalBinding': True})
        self.assertEqual(p.text[:4], '403 ', p.stderr)

    def test_socks(self):
        script = 'curl -sS -o /dev/null -w "%%{http_code}\\n" -x %s http://a.test/ 2>/dev/null || echo none' % SOCKS
        self.assertEqual(self.managed(script).text, '200\n')
        self.assertEqual(self.managed(script, proxy={'enableSocks5': False}).text, 'none\n'.rjust(9, '0').replace('0000', '000\n'))

    def test_an_upstream_proxy(self):
        """The server's own proxy is used, unless allowUpstreamProxy is false."""
        upstream = Loopback(web(seen := []))
        self.addCleanup(upstream.close)
        hosts = self.srv.env['SALLYPORT_TEST_HOSTS']
        srv = self.server(env={'SALLYPORT_TEST_HOSTS': hosts, 'HTTP_PROXY': 'http://u:p@127.0.0.1:%d' % upstream.port})
        self.c = Asked(WebSocket.connect(srv.address), srv).greet()
        self.assertEqual(self.managed(GET % 'a.test').text, '200\n')
        self.assertEqual(seen[0].split('\r\n')[0], 'GET http://a.test/ HTTP/1.1')
        self.assertIn('Proxy-Authorization: Basic dTpw', seen[0])
        self.assertEqual(self.managed(GET % 'a.test', proxy={'allowUpstreamProxy': False}).text, '200\n')
        self.assertEqual((len(seen), len(self.seen)), (1, 1))

    def test_the_capability(self):
        flags = self.c.request('environment/info')['capabilities']
        self.assertIs(flags['networkProxyLaunch'], True)
        for name in ('networkProxyReviewDomains', 'credentialMasking', 'credentialMaskingCustomProviders'):
            self.assertFalse(flags.get(name, False), name)


@ours_only
class Variables(Wire):
    """31: all of them, exactly, whatever the client or the server had."""

    def variables(self, **how):
        lines = self.managed('env', **how).text.splitlines()
        return dict(line.split('=', 1) for line in lines)

    def expected(self, every, none=LOOPBACK, local='0'):
        names = {}
        for name in ('HTTP_PROXY', 'HTTPS_PROXY', 'WS_PROXY', 'WSS_PROXY', 'NPM_CONFIG_PROXY', 'NPM_CONFIG_HTTP_PROXY',
                     'NPM_CONFIG_HTTPS_PROXY'):
            names[name] = names[name.lower()] = HTTP
        for name in ('YARN_HTTP_PROXY', 'YARN_HTTPS_PROXY', 'BUNDLE_HTTP_PROXY', 'BUNDLE_HTTPS_PROXY', 'PIP_PROXY',
                     'DOCKER_HTTP_PROXY', 'DOCKER_HTTPS_PROXY'):
            names[name] = HTTP
        for name in ('ALL_PROXY', 'FTP_PROXY'):
            names[name] = names[name.lower()] = every
        for name in ('NO_PROXY', 'NPM_CONFIG_NOPROXY'):
            names[name] = names[name.lower()] = none
        names['YARN_NO_PROXY'] = names['BUNDLE_NO_PROXY'] = none
        return dict(names, NODE_USE_ENV_PROXY='1', ELECTRON_GET_USE_PROXY='true', CODEX_NETWORK_PROXY_ACTIVE='1',
                    CODEX_NETWORK_ALLOW_LOCAL_BINDING=local)

    def test_they_are_set(self):
        plain = set(self.variables(networkProxy=None))
        got = self.variables()
        self.assertEqual({k: v for k, v in got.items() if k not in plain}, self.expected(SOCKS))

    def test_they_overwrite(self):
        mine = {name: 'mine' for name in [*self.expected(SOCKS), 'CODEX_SANDBOX_NETWORK_DISABLED', 'CODEX_NETWORK_PROXY_ATTRIBUTION']}
        policy = {'inherit': 'all', 'ignoreDefaultExcludes': True, 'exclude': [], 'set': dict(mine), 'includeOnly': ['PATH', 'HTTP_PROXY']}
        for how in ({'env': dict(mine)}, {'envPolicy': policy}):
            got = self.variables(**how)
            self.assertEqual({k: got.get(k) for k in mine}, {**dict.fromkeys(mine), **self.expected(SOCKS)})

    def test_settings_show(self):
        got = self.variables(proxy={'enableSocks5': False, 'allowLocalBinding': True, 'domains': {'localhost': 'allow', '127.0.0.1': 'deny'}})
        want = self.expected(HTTP, '127.0.0.1,::1', '1')
        self.assertEqual({k: got.get(k) for k in want}, want)


@ours_only
class Callback(Wire):
    """87: the client answers for hosts on no list."""

    def test_allow(self):
        """It holds for the process, its host, port and protocol; the next process asks again."""
        script = GET % 'u.test' + '; ' + GET % 'u.test' + '; env -i PATH=$PATH ' + GET % 'u.test'
        for process_id in ('p1', 'p"2'):
            self.begin(process_id, script, timeout=20000)
            number, params = self.question()
            self.assertEqual(params, {'processId': process_id, 'request': {'protocol': 'http', 'host': 'u.test', 'port': 80}})
            self.answer(number, {'type': 'allow'})
            p = self.c.wait_closed(process_id)
            self.assertEqual((p.text, self.c.questions), ('200\n200\n200\n', []))
        self.assertEqual(len(self.seen), 6)
        first = self.decisions(processId='p1')[0]
        self.assertEqual([first[k] for k in ('scope', 'decision', 'source', 'reason', 'policyOverride')],
                         ['domain', 'allow', 'decider', 'not_allowed', True])

    def test_it_ends_with_the_process(self):
        """A process that it left behind is unknown: it reaches listed hosts, and no others."""
        later = 'setsid sh -c "exec >/dev/null 2>&1 </dev/null; while test ! -e go; do sleep 0.05; done; (%s; %s) >done; mv done told" &' % (
            (GET % 'u.test').replace('"', '\\"'), (GET % 'a.test').replace('"', '\\"'))
        self.begin('p', GET % 'u.test' + '; ' + later, timeout=20000)
        self.answer(self.question()[0], {'type': 'allow'})
        self.assertEqual(self.c.wait_closed('p').text, '200\n')
        self.put('w/go')
        told = wait_until(lambda: os.path.exists(self.w + '/told') and open(self.w + '/told').read(), 'the one left behind')
        self.assertEqual((told, self.c.questions), ('403\n200\n', []))

    def test_another_port_is_another_question(self):
        self.begin('p', self.connects('u.test:443', 'u.test:22', 'u.test:443'), timeout=20000)
        asked = []
        for _ in range(2):
            number, params = self.question()
            asked.append((params['request']['protocol'], params['request']['port']))
            self.answer(number, {'type': 'allow', 'future': 1})
        self.assertEqual(self.c.wait_closed('p').text, '200 \n' * 3)
        self.assertEqual((asked, self.c.questions), ([('https_connect', 443), ('https_connect', 22)], []))

    def test_listed_hosts_are_no_question(self):
        p = self.managed(GET % 'a.test' + '; ' + GET % 'x.b.test' + '; ' + GET % '127.0.0.1:1', timeout=20000)
        self.assertEqual((p.text, self.c.questions), ('200\n403\n000\n', []))

    def test_deny_and_ask(self):
        """The reason reaches the command; a no does not hold, so that a second try asks again."""
        self.begin('p', self.connects('u.test:443', 'u.test:443', 'u.test:443'), timeout=20000)
        for decision in ({'type': 'deny', 'reason': 'blocked by reviewer'}, {'type': 'ask', 'reason': 'needs approval'},
                         {'type': 'deny', 'reason': 'denied'}):
            self.answer(self.question()[0], decision)
        lines = self.c.wait_closed('p').text.splitlines()
        self.assertIn('Network access to "u.test" was blocked: blocked by reviewer', lines[0])
        self.assertIn('Network access to "u.test" was blocked: needs approval', lines[1])
        self.assertIn('domain is explicitly denied', lines[2])
        self.assertEqual([line[:4] for line in lines], ['403 '] * 3)
        self.assertEqual([(d['decision'], d['source'], d['reason'], d['policyOverride']) for d in self.decisions()],
                         [('deny', 'decider', 'blocked by reviewer', False), ('ask', 'decider', 'needs approval', False),
                          ('deny', 'decider', 'denied', False)])
        self.assertEqual(self.echo.connections, [])

    def test_anything_else_denies(self):
        nonsense = [{}, None, [], 'allow', True, {'decision': 'allow'}, {'decision': None}, {'decision': {}},
                    {'decision': {'type': 'Allow'}}, {'decision': {'type': None}}, {'decision': {'type': 'deny'}},
                    {'decision': {'type': 'ask', 'reason': 1}}, {'type': 'allow'}, {'decision': [{'type': 'allow'}]},
                    {'decision': {'type': 'allow', 'pad': 'x' * (64 << 10)}}]
        answers = [{'result': n} for n in nonsense] + [{'error': {'code': -32601, 'message': 'what?'}},
                                                       {'error': {'code': 1, 'message': 'allow'}, 'x': {'decision': {'type': 'allow'}}}]
        self.begin('p', self.connects(*['u.test:443'] * len(answers)), timeout=20000)
        for answer in answers:
            self.c.send(dict(answer, id=self.question()[0]))
        p = self.c.wait_closed('p')
        self.assertEqual([line[:4] for line in p.text.splitlines()], ['403 '] * len(answers))
        self.assertEqual({(d['decision'], d['source'], d['reason']) for d in self.decisions()}, {('deny', 'decider', 'not_allowed')})
        self.assertEqual(len(self.decisions()), len(answers))

    def test_reasons_that_are_not_passed_on(self):
        reasons = {'x' * 1025: 'not_allowed', 'a\nb': 'not_allowed', 'a\x7fb': 'not_allowed', '': 'policy_denied',
                   'y' * 1024: 'y' * 1024, 'gr\u00fcn "x"': 'gr\u00fcn "x"'}
        self.begin('p', self.connects(*['u.test:443'] * len(reasons)), timeout=20000)
        for reason in reasons:
            self.answer(self.question()[0], {'type': 'deny', 'reason': reason})
        self.c.wait_closed('p')
        self.assertEqual([d['reason'] for d in self.decisions()], list(reasons.values()))

    def test_silence(self):
        """It waits for the client's time and 5 s more; an answer after that is ignored."""
        since = time.monotonic()
        self.begin('p', self.connects('u.test:443', 'u.test:443'), timeout=200)
        late, _ = self.question()
        self.c.wait_output('p', '403 ')
        self.assertGreaterEqual(time.monotonic() - since, 5.1)
        self.answer(late, {'type': 'allow'})
        number, _ = self.question()
        self.assertNotEqual(number, late)
        self.answer(late, {'type': 'allow'})
        self.answer(number, {'type': 'deny', 'reason': 'no'})
        p = self.c.wait_closed('p')
        self.assertEqual([line[:4] for line in p.text.splitlines()], ['403 ', '403 '])
        self.assertEqual(self.echo.connections, [])

    def test_the_longest_time(self):
        self.begin('p', self.connects('u.test:443'), timeout=2 ** 64 - 1)
        self.answer(self.question()[0], {'type': 'allow'})
        self.assertEqual(self.c.wait_closed('p').text, '200 \n')

    def test_many_connections_one_question(self):
        script = 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do %s & done; wait' % (GET % 'u.test')
        self.begin('p', script, timeout=20000)
        number, _ = self.question()
        self.answer(number, {'type': 'allow'})
        self.assertEqual((self.c.wait_closed('p').text, self.c.questions), ('200\n' * 12, []))

    def test_256_open(self):
        """One more is denied at once; the others are answered all the same."""
        script = CONNECT.split('for target')[0] + '''
socks = []
for i in range(int(sys.argv[1]), int(sys.argv[2])):
    c = socket.create_connection((h, int(p)))
    t = 'h%d.test:443' % i
    c.sendall(('CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' % (t, t)).encode())
    socks.append(c)
print('sent', flush=True)
codes = [c.recv(12).decode()[9:12] for c in socks]
print(' '.join('%s:%d' % (x, codes.count(x)) for x in sorted(set(codes))))
'''
        # One proxy has 256 connections judged at a time, so it takes two cells to ask more.
        self.begin('p', ['python3', '-S', '-c', script, '0', '200'], timeout=60000)
        self.c.wait_for(lambda: len(self.c.questions) == 200, '200 questions')
        self.begin('q', ['python3', '-S', '-c', script, '200', '257'], timeout=60000, proxy={'enableSocks5': False})
        self.c.wait_for(lambda: len(self.c.questions) == 256 and self.decisions(), '256 questions and a refusal')
        self.assertEqual([(d['decision'], d['reason']) for d in self.decisions()], [('deny', 'not_allowed')])
        for q in self.c.questions:
            self.answer(q['id'], {'type': 'deny', 'reason': 'no'})
        self.assertEqual([self.c.wait_closed(name).text.splitlines()[-1] for name in 'pq'], ['403:200', '403:57'])
        self.assertEqual(len({(q['params']['request']['host']) for q in self.c.questions}), 256)

    def test_the_process_ends(self):
        """Its question ends with it: the answer is ignored, the connection lives on."""
        self.begin('p', self.connects('u.test:443'), timeout=60000)
        number, _ = self.question()
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.answer(number, {'type': 'allow'})
        self.c.fence()
        self.assertEqual(self.decisions(), [])
        self.assertEqual(self.managed(GET % 'a.test').text, '200\n')

    def test_two_processes(self):
        """Each question names its own process, and a yes is not the other's."""
        for name in ('p1', 'p2'):
            self.begin(name, 'read x; ' + GET % 'u.test' + '; read x; ' + GET % 'u.test', timeout=20000, pipeStdin=True)
        for name, decision in (('p2', {'type': 'allow'}), ('p1', {'type': 'deny', 'reason': 'no'})):
            self.c.write(name, b'go\n')
            number, params = self.question()
            self.assertEqual(params['processId'], name)
            self.answer(number, decision)
            self.c.wait_output(name, '\n')
        self.c.write('p2', b'go\n')
        self.assertEqual(self.c.wait_closed('p2').text, '200\n200\n')
        self.c.write('p1', b'go\n')
        self.answer(self.question()[0], {'type': 'deny', 'reason': 'no'})
        self.assertEqual(self.c.wait_closed('p1').text, '403\n403\n')

    def test_a_long_name_without_a_callback(self):
        """Only a callback needs a name of 1 to 256 bytes."""
        p = self.managed(GET % 'u.test', process_id='x' * 300)
        self.assertEqual((p.text, self.c.questions), ('403\n', []))
        self.refused('callback-enabled process ID must be non-empty and at most 256 bytes', processId='x' * 257,
                     sandbox=project_write(self.w), networkProxy=self.launch(1))


@ours_only
class Detached(Wire):
    """83: nobody is there to answer, and what runs goes on."""

    SCRIPT = CONNECT.split('for target')[0] + '''
def connect(t):
    c = socket.create_connection((h, int(p)))
    c.sendall(('CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' % (t, t)).encode())
    return c, c.recv(4096).decode()[9:12]
tunnel, status = connect('a.test:443')
print(status, flush=True)
print(connect('u.test:443')[1], flush=True)
input()
print(connect('u.test:22')[1], flush=True)
tunnel.sendall(b'still')
print(tunnel.recv(5).decode(), flush=True)
'''

    def test_a_tunnel_lives_and_a_question_is_denied(self):
        self.begin('p', ['python3', '-S', '-u', '-c', self.SCRIPT], timeout=60000, pipeStdin=True)
        self.c.wait_output('p', '200\n')
        self.question()
        session = self.c.session_id
        self.c.abort()
        c = wait_until(lambda: self.resume(session), 'resume')
        out = lambda: ''.join(wire.unb64(k['chunk']).decode() for k in c.read('p', afterSeq=0)['chunks'])
        wait_until(lambda: out() == '200\n403\n', 'a refusal')
        c.write('p', b'go\n')
        self.c = c
        self.answer(self.question()[0], {'type': 'deny', 'reason': 'no'})
        wait_until(lambda: out() == '200\n403\n403\nstill\n', 'the tunnel')

    def resume(self, session):
        try:
            return self.connect(session)
        except wire.RpcError as e:
            self.assertEqual(e.code, -32010)
            return None


@ours_only
class Decisions(Wire):
    """88: what is told about each decision."""

    def test_members(self):
        self.managed('curl -sS http://a.test/ http://x.b.test/ >/dev/null; ' + GET % 'u.test', process_id='p')
        self.managed(self.connects('a.test:443'), process_id='q')
        # Closes its side and waits for the other one: a command that has ended is told nothing.
        by_name = '''import socket
for port in (22, 443):
    s = socket.create_connection(("a.test", port))
    s.sendall(b"x")
    s.shutdown(socket.SHUT_WR)
    try:
        while s.recv(99): pass
    except ConnectionResetError: pass'''
        self.managed(['env', '-i', 'python3', '-S', '-c', by_name], process_id='n')
        want = [('p', 'allow', 'allow', 'http', 'a.test', 80, 'GET'), ('p', 'deny', 'denied', 'http', 'x.b.test', 80, 'GET'),
                ('p', 'deny', 'not_allowed', 'http', 'u.test', 80, 'GET'), ('q', 'allow', 'allow', 'https_connect', 'a.test', 443, 'CONNECT'),
                ('n', 'allow', 'allow', 'socks5_tcp', 'a.test', 22, None), ('n', 'allow', 'allow', 'https_connect', 'a.test', 443, None)]
        got = self.decisions()
        self.assertEqual([tuple(d.get(k) for k in ('processId', 'decision', 'reason', 'protocol', 'host', 'port', 'method')) for d in got], want)
        for d in got:
            members = {'processId', 'timestamp', 'scope', 'decision', 'source', 'reason', 'protocol', 'host', 'port', 'method', 'client',
                       'policyOverride'}
            self.assertEqual(set(d), members - ({'method'} if d['processId'] == 'n' else set()))
            self.assertRegex(d['timestamp'], r'^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$')
            self.assertEqual((d['scope'], d['source'], d['policyOverride']), ('domain', 'baseline_policy', False))
            self.assertRegex(d['client'], r'^127\.[0-9.]+:[0-9]+$')

    def test_bounds(self):
        """Hosts of 253 bytes are told; longer ones, and those with blanks, are no hosts. Methods have at most 32 bytes."""
        longest = '.'.join(['x' * 63] * 3 + ['x' * 61])
        odd = ['curl -sS -o /dev/null -X %s http://a.test/' % ('M' * n) for n in (32, 33)]
        script = GET % longest + '; ' + GET % ('y' + longest) + '; curl -sS -x %s "http://a b.test/" ; ' % HTTP + '; '.join(odd) + '; true'
        self.managed(script, process_id='p')
        self.assertEqual([(len(d['host']), len(d['method'])) for d in self.decisions()], [(253, 3), (6, 32)])

    def test_none_when_the_queue_is_full(self):
        self.start(self.c, 'flood', 'exec yes', None)
        self.c.wait_output('flood', 'y')
        done = os.path.join(self.w, 'done')
        self.c.post_start('p', ['/bin/sh', '-c', '%s > %s.part; mv %s.part %s' % (GET % 'a.test', done, done, done)],
                          sandbox=project_write(self.w), networkProxy=self.launch(), **self.how({}))
        wait_until(lambda: os.path.exists(done), 'the command')  # nothing is read meanwhile
        self.c.terminate('flood')
        self.c.wait_closed('p')
        self.c.fence()
        with open(done) as f:
            self.assertEqual(f.read(), '200\n')
        self.assertEqual(self.decisions(), [])
        self.managed(GET % 'a.test', process_id='q')
        self.assertEqual(len(self.decisions(processId='q')), 1)


@ours_only
class Cells(Wire):
    """90: processes of a session with equal settings share a cell, its loopback and its proxy."""

    SERVE = 'exec python3 -S -m http.server --bind 0.0.0.0 3000'
    REACH = 'for i in 1 2 3 4 5 6 7 8 9 10; do curl -sS -o /dev/null -w "%{http_code}\\n" http://localhost:3000/ 2>/dev/null && exit; sleep 0.3; done'

    def test_equal_settings_share(self):
        self.begin('dev', self.SERVE, sandbox=read_only(self.w))
        launch = self.launch(5000, domains={'a.test': 'allow', '*.B.test': 'deny', 'z.test': 'none'}, enableSocks5Udp=False)
        launch.update(executionId='other', environmentId=None, auditMetadata={'model': 'x'})
        p = self.managed(self.REACH, networkProxy=launch, sandbox=read_only(self.w))
        self.assertIn('200', p.text.split())
        self.assertEqual(len(confined_cells(self.srv)), 1)
        self.c.terminate('dev')

    def test_different_settings_do_not(self):
        self.begin('dev', self.SERVE, sandbox=read_only(self.w))
        quick = self.REACH.replace('1 2 3 4 5 6 7 8 9 10', '1')
        for i, proxy in enumerate(({'domains': {'a.test': 'allow'}}, {'mode': 'limited'}, {'allowLocalBinding': True}, {'enableSocks5': False},
                                   {'allowUpstreamProxy': False})):
            self.assertNotIn('200', self.managed(quick, proxy=proxy, sandbox=read_only(self.w)).text.split())
            self.assertEqual(len(confined_cells(self.srv)), i + 2)
        self.assertNotIn('200', self.run_in(self.c, quick, read_only(self.w)).text.split())
        self.c.terminate('dev')


@ours_only
class Metrics(Wire):
    def metric(self, name, label=''):
        text = self.srv.http('GET', '/metrics').body.decode()
        return float(re.search(r'^sallyport_network_%s (\S+)$' % re.escape(name + label), text, re.M).group(1))

    def test_they_count(self):
        """48: for hosts on no list, and denied ones, nothing is looked up."""
        names = 'python3 -S -c "import socket; [socket.gethostbyname(n) for n in (\'u.test\', \'x.b.test\')]"'
        self.managed(names)
        self.assertEqual(self.managed(self.connects('u.test:443', 'x.b.test:443')).text.split('\n')[0][:3], '403')
        wait_until(lambda: self.metric('dns_total', '{answer="name"}') == 2, 'the counts of the proxy')
        self.assertEqual([self.metric('connections_total', '{verdict="%s"}' % v) for v in ('allowed', 'denied')], [0, 2])
        self.assertEqual((self.metric('resolve_seconds_count'), self.metric('decision_seconds_count')), (0, 2))
        self.assertEqual(self.managed(GET % 'a.test').text, '200\n')
        wait_until(lambda: self.metric('resolve_seconds_count') == 1, 'the lookup')
        self.assertEqual((self.metric('connections_total', '{verdict="allowed"}'), self.metric('questions_open')), (1, 0))
        self.assertEqual([self.metric('bytes_total', '{direction="%s"}' % d) for d in ('sent', 'received')],
                         [0, len('GET / HTTP/1.1|a.test|0')])
        self.begin('p', 'exec sleep 600')
        wait_until(lambda: len(helpers_of(self.srv.pid, 'proxy')) == 1, 'the end of the sandbox before')
        os.kill(helpers_of(self.srv.pid, 'proxy')[0], signal.SIGKILL)
        wait_until(lambda: self.metric('proxy_restarts_total') == 1, 'another proxy')
        self.c.terminate('p')


@ours_only
class Judged(Wire):
    """serve --approve: its rules come first, and the strictest word wins."""

    def options(self):
        rules = self.put('rules/host.rules', 'network_rule("a.test", "https", "deny")\nnetwork_rule("u.test", "http", "allow")\n')
        return '--approve', 'untrusted', '--approver', 'client', '--rules', rules

    def test_rules(self):
        """A deny wins over the client's list; an allow does not add to it."""
        self.begin('p', ['ls', '-d', '/'])
        self.assertEqual((self.c.wait_closed('p').text, self.c.questions), ('/\n', []))  # our variables steer nothing
        request = self.c.post_start('q', ['/usr/bin/env', 'sh', '-c', GET % 'a.test' + '; ' + GET % 'u.test'],
                                    **self.how({'sandbox': project_write(self.w), 'networkProxy': self.launch()}))
        self.c.wait_for(lambda: self.c.questions, 'question')
        asked = self.c.questions.pop(0)
        self.assertEqual(asked['method'], 'approval/request')
        self.c.decide(asked['id'], 'approved_for_session')
        self.c.result(request)
        self.assertEqual(self.c.wait_closed('q').text, '403\n403\n')
        self.assertEqual([(d['host'], d['reason']) for d in self.decisions()], [('a.test', 'denied'), ('u.test', 'not_allowed')])
        # Also for a process that was left behind, whose command is not known.
        later = 'setsid sh -c "exec >/dev/null 2>&1 </dev/null; while test ! -e go; do sleep 0.05; done; %s >done; mv done told" &' % (
            GET % 'a.test').replace('"', '\\"')
        request = self.c.post_start('left', ['/usr/bin/env', 'sh', '-c', later],
                                    **self.how({'sandbox': project_write(self.w), 'networkProxy': self.launch()}))
        self.c.wait_for(lambda: self.c.questions, 'question')
        self.c.decide(self.c.questions.pop(0)['id'], 'approved')
        self.c.result(request)
        self.c.wait_closed('left')
        self.put('w/go')
        told = wait_until(lambda: os.path.exists(self.w + '/told') and open(self.w + '/told').read(), 'the one left behind')
        self.assertEqual(told, '403\n')
        # Equal settings are approved; other lists are asked about.
        argv = ['/usr/bin/env', 'sh', '-c', GET % 'a.test' + '; ' + GET % 'u.test']
        how = {'sandbox': project_write(self.w)}
        self.c.result(self.c.post_start('r', argv, **self.how(dict(how, networkProxy=self.launch()))))
        self.c.wait_closed('r')
        request = self.c.post_start('s', argv, **self.how(dict(how, networkProxy=self.launch(5000, domains={'*': 'allow'}))))
        self.c.wait_for(lambda: self.c.questions, 'question')
        self.c.decide(self.c.questions.pop(0)['id'], 'approved')
        self.c.result(request)
        self.assertEqual((self.c.wait_closed('s').text, self.c.questions), ('403\n200\n', []))


@ours_only
class Document(Wire):
    """The example of docs/PROTOCOL.md."""

    def test_the_conversation(self):
        shown = {}
        for words, body in fences(read('docs/PROTOCOL.md')):
            if words[:1] == ['managed']:
                shown[words[1]] = [json.loads(line) for line in body.strip().splitlines()]
        self.assertEqual(sorted(shown), ['answer', 'event', 'question', 'request', 'response'])
        self.c.asked.add('fetch')
        self.c.send(shown['request'][0])
        self.assertEqual([self.c.reply(2)], shown['response'])
        self.c.wait_for(lambda: self.c.questions, 'question')
        self.assertEqual(self.c.questions, shown['question'])
        self.c.send(shown['answer'][0])
        self.c.wait_closed('fetch')
        plain = lambda notes: [dict(n, params=dict(n['params'], timestamp='', client='')) for n in notes]
        self.assertEqual(plain(self.c.notes), plain(shown['event']))


@ours_only
class Hosts(SandboxCase):
    """89: servers that cannot have managed networks, or must not."""

    def test_thin(self):
        for words in ('userns=EPERM', 'netns=EPERM'):
            c = self.session(prefix=[REFUSE, words, '--'])
            self.assertIs(c.info['capabilities']['networkProxyLaunch'], False, words)
            error = self.refusal(c, 'true', read_only(self.w), networkProxy={'proxy': PROXY})
            self.assertError(error, -32602, CANNOT + 'it needs a network namespace of its own')

    def test_a_server_that_strangers_reach(self):
        """Without a token, a server beyond loopback runs no command that could come back to it through a router."""
        launch = {'networkProxy': {'proxy': PROXY}}
        c = self.session('--no-auth')
        self.assertEqual(self.said(c, 'echo ran', read_only(self.w), **launch), 'ran\n')
        srv = self.server('--allow-anonymous', listen='ws://0.0.0.0:0')
        c = srv.client(WebSocket.connect(('127.0.0.1', srv.address[1]))).handshake()
        error = self.refusal(c, 'true', read_only(self.w), **launch)
        self.assertEqual(error['code'], -32602)
        self.assertIn('--expose-to-sandboxes', error['message'])
        srv = self.server('--allow-anonymous', '--expose-to-sandboxes', listen='ws://0.0.0.0:0')
        c = srv.client(WebSocket.connect(('127.0.0.1', srv.address[1]))).handshake()
        self.assertEqual(self.said(c, 'echo ran', read_only(self.w), **launch), 'ran\n')


if __name__ == '__main__':
    tap.main()
