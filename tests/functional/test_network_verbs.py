# SPDX-License-Identifier: Apache-2.0
"""The managed network on the command line: options, variables, explanations, refusals.

Names are those of SALLYPORT_TEST_HOSTS, servers are on loopback. REFUSE: as in test_doctor.py
"""

import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import unittest
import urllib.parse

import mcp
import tap
import wire
from server import PASS_ON, PROGRAM, Case, ours_only

BUILD = os.path.dirname(PROGRAM)
TEST_PROGRAM = os.path.join(BUILD, 'tests', 'sallyport-test-hosts')
REFUSE = os.environ.get('REFUSE') or os.path.join(BUILD, 'tests', 'unit', 'refuse')
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))
PROXY, SOCKS, DIRECT = 'http://127.0.0.1:808', 'socks5h://127.0.0.1:808', 'localhost,127.0.0.1,::1,.localhost'
HTTP_NAMES = ['HTTP_PROXY', 'HTTPS_PROXY', 'WS_PROXY', 'WSS_PROXY', 'NPM_CONFIG_PROXY', 'NPM_CONFIG_HTTP_PROXY', 'NPM_CONFIG_HTTPS_PROXY']
HTTP_NAMES += [n.lower() for n in HTTP_NAMES] + ['YARN_HTTP_PROXY', 'YARN_HTTPS_PROXY', 'BUNDLE_HTTP_PROXY', 'BUNDLE_HTTPS_PROXY',
                                                 'PIP_PROXY', 'DOCKER_HTTP_PROXY', 'DOCKER_HTTPS_PROXY']
SOCKS_NAMES = ['ALL_PROXY', 'FTP_PROXY', 'all_proxy', 'ftp_proxy']
DIRECT_NAMES = ['NO_PROXY', 'NPM_CONFIG_NOPROXY', 'no_proxy', 'npm_config_noproxy', 'YARN_NO_PROXY', 'BUNDLE_NO_PROXY']
OTHERS = {'NODE_USE_ENV_PROXY': '1', 'ELECTRON_GET_USE_PROXY': 'true', 'CODEX_NETWORK_PROXY_ACTIVE': '1',
          'CODEX_NETWORK_ALLOW_LOCAL_BINDING': '0'}
REMOVED = ['CODEX_SANDBOX_NETWORK_DISABLED', 'CODEX_NETWORK_PROXY_ATTRIBUTION']
needs_curl = unittest.skipUnless(shutil.which('curl'), 'curl is not installed')
needs_refuse = unittest.skipUnless(os.access(REFUSE, os.X_OK), 'no program %s' % REFUSE)


def variables(no_proxy=DIRECT):
    return {**dict.fromkeys(HTTP_NAMES, PROXY), **dict.fromkeys(SOCKS_NAMES, SOCKS), **dict.fromkeys(DIRECT_NAMES, no_proxy), **OTHERS}


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'page of %s\n' % self.headers['Host'].encode())

    def log_message(self, *words):
        pass


@ours_only
class Verbs(Case):
    def setUp(self):
        super().setUp()
        self.web = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Page)
        threading.Thread(target=self.web.serve_forever, args=(0.02,), daemon=True).start()
        self.addCleanup(self.web.server_close)
        self.addCleanup(self.web.shutdown)
        port = self.web.server_address[1]
        hosts = ','.join('%s%s=127.0.0.1:%d*' % (name, p, port) for name in ('a.test', 'b.test', 'c.test') for p in ('', ':80', ':25', ':8000'))
        self.home, self.work, runtime = self.scratch(), self.scratch(), self.scratch()
        os.chmod(runtime, 0o700)
        self.env = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': self.home, 'SALLYPORT_HOME': self.home, 'XDG_RUNTIME_DIR': runtime,
                    'SALLYPORT_TEST_HOSTS': hosts + ',private.test=10.255.255.1', 'LC_ALL': 'C'}
        self.env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})

    def run_it(self, *words, program=TEST_PROGRAM, prefix=(), env=None):
        run = subprocess.run([*prefix, program, *words], capture_output=True, timeout=wire.DEADLINE, stdin=subprocess.DEVNULL,
                             cwd=self.work, env=dict(self.env, **(env or {})))
        err = run.stderr.decode()
        self.assertNotIn('Sanitizer', err)
        return run.returncode, run.stdout.decode(), err

    def ok(self, *words, **how):
        code, out, err = self.run_it(*words, **how)
        self.assertEqual((code, err), (0, ''), (words, out))
        return out

    def refused(self, status, text, *words, **how):
        code, out, err = self.run_it(*words, **how)
        self.assertEqual((code, out), (status, ''), err)
        self.assertIn(text, err)

    def statuses(self, *options, urls, verb=('sandbox',), by_name=False, env=None):
        """What curl gets: {url: HTTP status}."""
        script = 'for url; do curl -s -m 20 -o /dev/null %s -w "%%{http_code}\\n" "$url"; done; exit 0' % ('--noproxy "*"' if by_name else '')
        out = self.ok(*verb, *options, '--', 'sh', '-c', script, 'sh', *urls, env=env)
        return out.split()

    def config(self, text):
        path = os.path.join(self.home, 'sallyport.conf')
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, 0o600)


class Options(Verbs):
    URLS = ['http://a.test/', 'http://b.test/', 'http://c.test/']

    @needs_curl
    def test_allowed_hosts_are_reached_both_ways(self):
        for by_name in (False, True):
            with self.subTest(by_name=by_name):
                self.assertEqual(self.statuses('--allow-host', 'a.test', '--allow-host', '?.test:80', '--deny-host', 'b.test',
                                               urls=self.URLS, by_name=by_name), ['200', '403', '200'])

    @needs_curl
    def test_exec_takes_the_same(self):
        for by_name in (False, True):
            self.assertEqual(self.statuses('--sandbox', ':read-only', '--allow-host', 'a.test', urls=self.URLS[:2], by_name=by_name,
                                           verb=('exec',)), ['200', '403'])

    @needs_curl
    def test_managed_without_hosts_reaches_none(self):
        self.assertEqual(self.statuses('--network', 'managed', urls=self.URLS), ['403'] * 3)
        self.assertEqual(self.statuses('--network=managed', urls=self.URLS), ['403'] * 3)

    @needs_curl
    def test_a_port_by_name(self):
        url = ['http://a.test:25/']
        self.assertEqual(self.statuses('--allow-host', 'a.test', urls=url, by_name=True), ['000'])
        self.assertEqual(self.statuses('--allow-host', 'a.test', '--allow-port', '25', urls=url, by_name=True), ['200'])
        self.assertEqual(self.statuses('--allow-host', 'a.test:25', urls=url, by_name=True), ['200'])
        self.assertEqual(self.statuses('--allow-host', 'a.test', urls=['http://a.test:8000/']), ['200'])

    @needs_curl
    def test_localhost_that_is_listed_is_reached(self):
        self.env['SALLYPORT_TEST_HOSTS'] += ',localhost=127.0.0.1'
        url = 'http://localhost:%d/' % self.web.server_address[1]
        self.assertEqual(self.statuses('--allow-host', 'localhost', urls=[url]), ['200'])

    @needs_curl
    def test_addresses_that_are_not_public(self):
        script = ['--', 'curl', '-s', '-m', '2', 'http://private.test/']
        self.assertIn('not_allowed_local', self.run_it('sandbox', '--allow-host', 'private.test', *script)[1])
        self.assertNotIn('not_allowed_local', self.run_it('sandbox', '--allow-host', 'private.test', '--allow-local', *script)[1])
        literal = 'http://127.0.0.1:%d/' % self.web.server_address[1]
        self.assertEqual(self.statuses('--allow-host', '127.0.0.1', urls=[literal]), ['200'])
        self.assertEqual(self.statuses('--allow-host', '*', urls=[literal]), ['000'])  # NO_PROXY: the sandbox's own loopback

    def test_a_network_of_its_own_or_the_hosts(self):
        own = os.readlink('/proc/self/ns/net')
        for words, is_host in (((), False), (('--network',), True), (('--network', 'enabled'), True), (('--network=enabled',), True),
                               (('--network', 'none'), False), (('--network', 'managed'), False), (('--network', '--no-tty'), True)):
            with self.subTest(words):
                self.assertEqual(self.ok('sandbox', *words, '--', 'readlink', '/proc/self/ns/net').strip() == own, is_host)

    def test_options_win_over_the_profile(self):
        path = os.path.join(self.work, 'profile.json')
        own = os.readlink('/proc/self/ns/net')
        for network in ('"enabled"', '{"managed":{"domains":{"a.test":"allow"}}}'):
            with open(path, 'w') as f:
                f.write('{"type":"managed","file_system":{"type":"unrestricted"},"network":%s}' % network)
            self.assertNotEqual(self.ok('sandbox', '--profile', path, '--network', 'none', '--', 'readlink', '/proc/self/ns/net').strip(), own)
            self.assertIn('managed', self.explain('--profile', path, '--allow-host', 'b.test', '--print-plan'))
            self.assertEqual(self.ok('sandbox', '--profile', path, '--network', '--', 'readlink', '/proc/self/ns/net').strip(), own)

    def explain(self, *words):
        out = self.ok('sandbox', *words)
        return out + ('managed' if 'through a proxy' in out else '')

    @needs_curl
    def test_a_profile_of_a_file(self):
        path = os.path.join(self.work, 'profile.json')
        with open(path, 'w') as f:
            json.dump({'type': 'managed', 'file_system': {'type': 'unrestricted'},
                       'network': {'managed': {'domains': {'*.test': 'allow', 'b.test': 'deny'}}}}, f)
        self.assertEqual(self.statuses('--profile', path, urls=self.URLS), ['200', '403', '200'])
        self.assertEqual(self.statuses('--profile', path, '--allow-host', 'b.test', urls=self.URLS), ['200', '403', '200'])
        self.assertEqual(self.statuses('--profile', path, '--deny-host', 'c.test', urls=self.URLS), ['200', '403', '403'])

    @needs_curl
    def test_a_profile_of_the_configuration(self):
        self.config('[permissions.base]\nextends = ":read-only"\n[permissions.base.network]\nenabled = true\n'
                    'domains = { "a.test" = "allow", "b.test" = "allow" }\n'
                    '[permissions.web]\nextends = "base"\nnetwork.domains = { "b.test" = "deny" }\n')
        verb = ('exec', '--sandbox', 'web')
        self.assertEqual(self.statuses(urls=self.URLS, verb=verb), ['200', '403', '403'])
        self.assertEqual(self.statuses('--allow-host', 'c.test', urls=self.URLS, verb=verb), ['200', '403', '200'])
        self.assertEqual(self.statuses('--network', 'none', urls=self.URLS, verb=verb), ['000'] * 3)

    def test_what_contradicts_is_refused(self):
        for text, *words in (
                ('--allow-host is for a managed network', '--network', 'none', '--allow-host', 'a.test'),
                ('--allow-host is for a managed network', '--network', '--allow-host', 'a.test'),
                ('--deny-host: the network of this policy is not managed', '--deny-host', 'a.test'),
                ('--allow-port: the network of this policy is not managed', '--allow-port', '25'),
                ('--allow-local: the network of this policy is not managed', '--allow-local'),
                ('--network: `manged` is not none, enabled or managed', '--network', 'manged'),
                ('--network: `` is not none', '--network='),
                ('--allow-host: domain pattern "a b"', '--allow-host', 'a b'),
                ('--deny-host: unsupported global wildcard domain pattern', '--network', 'managed', '--deny-host', '*'),
                ('--allow-port: `x` is not a port', '--network', 'managed', '--allow-port', 'x'),
                ('--allow-port: `65536` is not a port', '--network', 'managed', '--allow-port', '65536')):
            for verb in (('sandbox',), ('exec', '--sandbox', ':read-only')):
                with self.subTest(words=words, verb=verb):
                    self.refused(125, text, *verb, *words, '--', 'touch', 'ran')
        for verb in (('sandbox', '--mode', 'danger-full-access'), ('exec',)):
            for words in (('--allow-host', 'a.test'), ('--network', 'managed'), ('--network', 'none')):
                self.refused(125, 'this policy has no sandbox that could restrict the network', *verb, *words, '--', 'touch', 'ran')
        self.assertFalse(os.path.exists(self.work + '/ran'))

    def test_on_a_server_it_is_the_servers(self):
        srv = self.server()
        run = subprocess.run([TEST_PROGRAM, 'exec', '--on', srv.url, '--sandbox', ':read-only', '--allow-host', 'a.test', '--no-stdin',
                              '--', 'sh', '-c', 'cat /etc/resolv.conf; echo $HTTP_PROXY'], capture_output=True, timeout=wire.DEADLINE,
                             env=self.env, text=True)
        self.assertEqual((run.returncode, run.stdout.split('\n')[0], run.stdout.strip().split('\n')[-1]),
                         (0, 'nameserver 127.0.0.1', 'http://127.0.0.1:808'), run.stderr)

    def test_mcp_takes_the_same(self):
        hello = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'initialize', 'params': {
            'protocolVersion': '2025-06-18', 'capabilities': {}, 'clientInfo': {'name': 't', 'version': '1'}}}) + '\n'
        run = subprocess.run([TEST_PROGRAM, 'mcp', '--cwd', self.work, '--allow-host', 'a.test'], input=hello.encode(), capture_output=True,
                             timeout=wire.DEADLINE, env=self.env)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn(b'the network is managed: only hosts that are allowed can be reached', run.stdout)
        self.refused(1, '--deny-host: the network of this policy is not managed', 'mcp', '--cwd', self.work, '--deny-host', 'a')
        self.refused(1, 'no sandbox that could restrict', 'mcp', '--cwd', self.work, '--sandbox', 'danger-full-access', '--allow-host', 'a')

    @needs_refuse
    def test_without_namespaces_it_is_refused(self):
        text = 'managed network cannot be enforced on this executor: it needs a network namespace of its own'
        for feature in ('userns=EPERM', 'netns=EPERM'):
            for verb in (('sandbox',), ('exec', '--sandbox', ':read-only')):
                self.refused(125, text, *verb, '--allow-host', 'a.test', '--', 'touch', 'ran', prefix=(REFUSE, feature, '--'))


@ours_only
class OwnPort(mcp.Case):
    @needs_curl
    def test_commands_of_mcp_do_not_reach_its_port(self):
        host = self.http('--allow-host', '127.0.0.1')
        url = urllib.parse.urlsplit(host.url)
        r = host.call('exec_command', {'cmd': 'curl -s -m 10 -x http://127.0.0.1:808 http://127.0.0.1:%d%s' % (url.port, url.path)})
        self.assertIn('not_allowed_local', r.text)


class Variables(Verbs):
    def env_of(self, *words, verb=('sandbox',), env=None):
        out = self.ok(*verb, *words, '--', 'env', '-0', env=env)
        return dict(v.split('=', 1) for v in out.split('\0') if v)

    def test_they_are_exactly_these(self):
        before = {**dict.fromkeys([*variables(), *REMOVED], 'old'), 'KEPT': 'x'}
        for verb in (('sandbox',), ('exec', '--sandbox', ':read-only')):
            got = self.env_of('--allow-host', 'a.test', verb=verb, env=before)
            self.assertEqual({k: got.get(k) for k in [*variables(), *REMOVED]}, {**variables(), **dict.fromkeys(REMOVED)})
            self.assertEqual(got['KEPT'], 'x')
            new = set(got) - set(self.env_of(verb=verb, env={'KEPT': 'x'}))
            self.assertEqual(new, set(variables()))

    def test_localhost_that_is_listed_is_the_hosts(self):
        for listed, left in (('localhost', '127.0.0.1,::1'), ('127.0.0.1', 'localhost,::1,.localhost'),
                             ('::1', 'localhost,127.0.0.1,.localhost'), ('*', DIRECT)):
            self.assertEqual(self.env_of('--allow-host', listed)['NO_PROXY'], left)
        self.assertEqual(self.env_of('--allow-host', 'a', '--allow-local')['CODEX_NETWORK_ALLOW_LOCAL_BINDING'], '1')

    def test_settings_change_them(self):
        self.config('[permissions.a]\nextends = ":read-only"\n[permissions.a.network]\nmanaged = true\nenable_socks5 = false\n'
                    '[permissions.b]\nextends = "a"\nnetwork.proxy_env = false\n')
        got = self.env_of(verb=('exec', '--sandbox', 'a'))
        self.assertEqual({got[k] for k in SOCKS_NAMES}, {PROXY})
        got = self.env_of(verb=('exec', '--sandbox', 'b'), env={'HTTP_PROXY': 'old'})
        self.assertEqual([k for k in got if 'proxy' in k.lower()], ['CODEX_NETWORK_PROXY_ACTIVE'])

    def test_other_networks_have_none(self):
        for words in ((), ('--network',)):
            self.assertEqual(self.env_of(*words, env={'HTTP_PROXY': 'mine'})['HTTP_PROXY'], 'mine')


class Telling(Verbs):
    @needs_curl
    def test_verbose_lists_denials_after_a_failure(self):
        script = ['sh', '-c', 'curl -s http://b.test/ http://b.test/ https://c.test/ >/dev/null; exit 7']
        code, _, err = self.run_it('sandbox', '-v', '--allow-host', 'a.test', '--', *script)
        self.assertEqual(code, 7)
        self.assertEqual(re.findall(r'(?m)^sallyport: (connect .*)$', err), [
            'connect %s: %s is not in the allowed_domains; to allow it: --allow-host %s' % (at, host, host)
            for at, host in (('b.test:80', 'b.test'), ('c.test:443', 'c.test'))])
        self.assertNotIn('connect', self.run_it('sandbox', '--allow-host', 'a.test', '--', *script)[2])
        script[2] = script[2].replace('exit 7', 'exit 0')
        self.assertEqual(self.run_it('sandbox', '-v', '--allow-host', 'a.test', '--', *script), (0, '', ''))

    def test_explain_host(self):
        options = ['--allow-host', '**.example', '--allow-host', 'h.test:22', '--allow-host', '127.0.0.1', '--deny-host', 'b.example']
        for host, first, *verdict in (
                ('a.example', 'a.example:443', 'allowed: pattern `**.example` of --allow-host',
                 'refused all the same if one of its addresses is not public', 'reached by name, and by programs that use the proxy'),
                ('A.Example.:80', 'a.example:80', 'allowed: pattern `**.example` of --allow-host',
                 'refused all the same if one of its addresses is not public', 'reached by name, and by programs that use the proxy'),
                ('h.test:22', 'h.test:22', 'allowed: pattern `h.test:22` of --allow-host',
                 'refused all the same if one of its addresses is not public', 'reached by name, and by programs that use the proxy'),
                ('127.1:8080', '127.0.0.1:8080', 'allowed: pattern `127.0.0.1` of --allow-host',
                 'reached by programs that use the proxy, not by name'),
                ('b.example', 'b.example:443', 'refused: pattern `b.example` of --deny-host denies it'),
                ('h.test', 'h.test:443', 'refused: on no list; give --allow-host h.test',
                 'rules (network_rule) and approvers are not considered here'),
                ('10.1.2.3', '10.1.2.3:443', 'refused: not a public address; it has to be listed itself, patterns do not count'),
                ('[::ffff:127.0.0.2]:1', '127.0.0.2:1', 'refused: not a public address; it has to be listed itself, patterns do not count'),
                ('::1', '[::1]:443', 'refused: not a public address; it has to be listed itself, patterns do not count'),
                ('169.254.169.254', '169.254.169.254:443', 'refused: clouds give out credentials there; it has to be listed itself')):
            with self.subTest(host):
                out = self.ok('sandbox', *options, '--explain-host', host, program=PROGRAM)
                self.assertEqual(out, ''.join([first + '\n', *('  %s\n' % v for v in verdict)]))
        self.assertEqual(self.ok('sandbox', '--explain-host', 'x.test'),
                         'x.test:443\n  refused: there is no network; give --allow-host x.test\n')
        self.assertEqual(self.ok('sandbox', '--network', '--explain-host', 'x.test'),
                         'x.test:443\n  allowed: the network is the host\'s, and no list is read\n')
        path = os.path.join(self.work, 'p.json')
        with open(path, 'w') as f:
            f.write('{"network":{"managed":{"mode":"limited","ask":false,"domains":{"x.test":"allow"}}}}')
        self.assertIn('allowed: pattern `x.test` of %s\n' % path, self.ok('sandbox', '--profile', path, '--explain-host', 'x.test:80'))
        self.assertIn('refused: mode `limited` refuses HTTPS', self.ok('sandbox', '--profile', path, '--explain-host', 'x.test'))
        self.assertIn('refused: mode `limited` allows plain HTTP only', self.ok('sandbox', '--profile', path, '--explain-host', 'x.test:22'))
        for port in ('80', '8080'):  # by name it is the sandbox's own
            self.assertEqual(self.ok('sandbox', '--allow-host', 'localhost', '--explain-host', 'localhost:' + port),
                             'localhost:%s\n  allowed: pattern `localhost` of --allow-host\n'
                             '  reached by programs that use the proxy, not by name: that is the sandbox\'s own\n' % port)
        for host, why in (('', 'host ``: '), ('a b', 'host `a b`: '), ('a:x', '`x` is not a port'), ('a:0', '`0` is not a port'),
                          ('a:65536', '`65536` is not a port'), ('a:', '`` is not a port'),
                          ('https://a/b', 'without scheme or path'), ('http://a:80', 'without scheme or path')):
            self.refused(125, why, 'sandbox', '--explain-host', host)
        for pattern in ('https://a', 'https://*.a:443/', '**://a'):
            self.refused(125, 'without scheme or path', 'sandbox', '--allow-host', pattern, '--', 'true')
        self.refused(125, '--explain-host runs no command', 'sandbox', '--explain-host', 'a', '--', 'true')
        self.refused(125, 'give one of them', 'sandbox', '--explain-host', 'a', '--print-plan')

    def test_the_plan_shows_sockets_and_texts(self):
        out = self.ok('sandbox', '--allow-host', 'a.test', '--allow-host', 'b.test:587', '--allow-port', '25', '--print-plan')
        self.assertIn('network: hosts that are allowed, through a proxy\n', out)
        self.assertIn('sockets: 127.0.0.1:53 udp tcp (names), 127.0.0.1:808 (HTTP, SOCKS5), by name: 22 25 80 443 587\n', out)
        self.assertRegex(out, r'(?m)^  own text +/etc/resolv\.conf$')
        self.refused(125, 'a managed network is made on Linux only', 'sandbox', '--allow-host', 'a', '--print-plan', '--for', 'macos')

    def shown(self, path, prompt):
        """(words, answer) of the examples of a document that run offline."""
        with open(os.path.join(ROOT, path)) as f:
            text = f.read().replace('\\e\n', '').replace('\\', '')
        return re.findall(r'(?m)^( *)\$ %s (sandbox .*(?:--explain-host|example\.com).*)\n((?:\1(?!\$).+\n)+)' % prompt, text)

    @needs_curl
    def test_the_examples_of_the_documents(self):
        readme, page = self.shown('README.md', 'build/sallyport'), self.shown('man/sallyport-sandbox.1', 'sallyport')
        self.assertEqual((len(readme), len(page)), (2, 1))
        for indent, words, answer in readme + page:
            answer = re.sub('(?m)^' + indent, '', answer.split('.Ed')[0])
            run = subprocess.run(['sh', '-c', '"$0" ' + words, PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=wire.DEADLINE, env=self.env, cwd=self.work)
            self.assertEqual(run.stdout.decode(), answer)


if __name__ == '__main__':
    tap.main()
