# SPDX-License-Identifier: Apache-2.0
"""A profile with a managed network of the Codex CLI: its commands reach the hosts that the profile lists, and the
model sees what became of the others. Servers are the test's own, on loopback, behind names of a table."""

import json
import os

import codex
import server
from model import command, outcome, say

import tap
from proxy_front import Server as Loopback
from proxy_front import web

REFUSE = os.path.join(os.path.dirname(server.PROGRAM), 'tests', 'unit', 'refuse')
if not server.PEER:  # the program that has names of a table
    server.PROGRAM = os.path.join(os.path.dirname(server.PROGRAM), 'tests', 'sallyport-test-hosts')

PROFILE = '''
[permissions.net.filesystem]
":root" = "read"
":tmpdir" = "write"
[permissions.net.filesystem.":workspace_roots"]
"." = "write"
[permissions.net.network]
enabled = true
mode = "full"
[permissions.net.network.domains]
"a.example" = "allow"
"*.b.example" = "deny"
'''
MANAGED = {'top': 'default_permissions = "net"', 'tables': PROFILE, 'args': ('--enable', 'network_proxy')}
GET = 'curl -sS -m 30 '


class Network(codex.Case):
    def setUp(self):
        super().setUp()
        self.seen = []
        self.web = Loopback(web(self.seen))
        self.addCleanup(self.web.close)
        hosts = []
        for name in ('a.example', 'x.b.example', 'c.example'):
            hosts += ['%s=127.0.0.1*' % name, '%s:80=127.0.0.1:%d*' % (name, self.web.port)]
        self.hosts = {'SALLYPORT_TEST_HOSTS': ','.join(hosts)}

    def decisions(self):
        told = ('decision', 'source', 'reason', 'protocol', 'host', 'port', 'method')
        return [tuple(n['params'][k] for k in told) for n in self.wire.notes('network/policyDecision')]

    @server.ours_only
    def test_a_host_that_is_listed(self):
        """By the proxy, and by name without variables; the host's own loopback is out of reach."""
        self.wire_to(self.serve(env=self.hosts))
        direct = "bash -c 'cat </dev/tcp/127.0.0.1/%d' 2>/dev/null || echo none" % self.web.port
        m = self.play([command('c1', GET + 'http://a.example/')], [command('c2', 'env -i ' + GET + 'http://a.example/x')],
                      [command('c3', direct)], [say()], **MANAGED)
        self.assertOutcome(m, 'c1', 0, 'GET / HTTP/1.1|a.example|0')
        self.assertOutcome(m, 'c2', 0, 'GET /x HTTP/1.1|a.example|0')
        self.assertOutcome(m, 'c3', 0, 'none\n')
        self.assertRanThere(3)
        self.assertEqual({d[:5] for d in self.decisions()}, {('allow', 'baseline_policy', 'allow', 'http', 'a.example')})
        for start in self.wire.sent('process/start'):
            p = start['params']
            self.assertEqual((p['sandbox']['permissions']['network'], p['enforceManagedNetwork'], p['managedNetwork']),
                             ('enabled', True, None))
            self.assertEqual(p['networkProxy']['proxy']['domains'], {'*.b.example': 'deny', 'a.example': 'allow'})

    def test_hosts_that_are_not(self):
        """The bodies are the reference's, and ours say more in `detail`."""
        self.wire_to(self.serve(env={} if server.PEER else self.hosts))
        m = self.play([command('c1', GET + 'http://x.b.example/')], [command('c2', GET + 'http://c.example/')], [say()], **MANAGED)
        for call, host, reason, message in (('c1', 'x.b.example', 'denied', 'Domain denied by the sandbox policy.'),
                                            ('c2', 'c.example', 'not_allowed', 'Domain not in allowlist.')):
            code, output = outcome(m.told(call))
            body = json.loads(output)
            self.assertEqual(code, 0)
            self.assertIs('detail' in body, not server.PEER)
            body.pop('detail', None)
            self.assertEqual(list(body.items()), [('status', 'blocked'), ('host', host), ('reason', reason), ('decision', 'deny'),
                                                  ('source', 'baseline_policy'), ('protocol', 'http'), ('port', 80), ('message', message)])
        self.assertEqual(self.decisions(), [('deny', 'baseline_policy', reason, 'http', host, 80, 'GET') for host, reason in
                                            (('x.b.example', 'denied'), ('c.example', 'not_allowed'))])
        self.assertFalse(any(n['params']['sandboxDenied'] for n in self.wire.notes('process/exited')))
        self.assertEqual(self.seen, [])

    @server.ours_only
    def test_a_host_without_namespaces(self):
        """The capability is false: the CLI refuses the command itself, and nothing is started."""
        self.wire_to(self.serve(env=self.hosts, prefix=[REFUSE, 'userns=EPERM', '--']))
        m = self.play([command('c1', GET + 'http://a.example/')], [say()], **MANAGED)
        self.assertIn('selected exec-server does not support executor-local network proxy launches', m.told('c1'))
        self.assertEqual((self.wire.sent('process/start'), self.seen), ([], []))


if __name__ == '__main__':
    tap.main()
