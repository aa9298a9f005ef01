# SPDX-License-Identifier: Apache-2.0
"""A managed network in process/start: decoded to the last member, and refused without a sandbox, never ignored."""

import os

import tap
from server import Case, ours_only
from wire import file_uri

PROXY = {'enabled': True, 'enableSocks5': True, 'enableSocks5Udp': False, 'allowUpstreamProxy': False,
         'dangerouslyAllowAllUnixSockets': False, 'mode': 'limited', 'allowLocalBinding': False}
CANNOT = 'managed network cannot be enforced on this executor: '
NEEDS = CANNOT + 'networkProxy needs a sandbox'
NO_GATE = CANNOT + 'its sandbox cannot open the way to one proxy only (managedNetwork)'
CONFIG = 'invalid network proxy config: '


class NetworkCase(Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server()
        self.c = self.srv.session()

    def params(self, **more):
        return {'processId': 'p', 'argv': ['/bin/sh', '-c', 'touch ran'], 'cwd': file_uri(self.srv.work),
                'env': {'PATH': '/usr/bin:/bin'}, 'tty': False, **more}

    def refused(self, message, **more):
        self.assertError(self.c.error('process/start', self.params(**more)), -32602, message)
        self.assertFalse(os.path.exists(self.srv.work + '/ran'))

    def runs(self, process_id, **more):
        self.c.start(process_id, ['true'], cwd=file_uri(self.srv.work), **more)
        self.assertEqual(self.c.wait_closed(process_id).exit_code, 0)

    def proxy(self, message, drop=(), launch=None, **members):
        proxy = {k: v for k, v in {**PROXY, **members}.items() if k not in drop}
        self.refused(message, networkProxy={'proxy': proxy, **(launch or {})})


class Decoding(NetworkCase):
    """What both refuse."""

    def test_what_a_proxy_needs(self):
        for name in PROXY:
            self.proxy('missing field `%s`' % name, drop=(name,))
            for value in (None, 1, [], {}):
                self.proxy(None, **{name: value})
        self.proxy('unknown variant `x`, expected `limited` or `full`', mode='x')
        self.refused('missing field `proxy`', networkProxy={})
        self.refused(None, networkProxy=1)
        self.refused(None, networkProxy='x')

    def test_what_a_proxy_may_have(self):
        for name in ('domains', 'unixSockets'):
            for value in (1, 'x', [], {'a': 1}, {'a': None}, {'a': 'maybe'}):
                self.proxy(None, **{name: value})
        self.proxy('unknown variant `none`, expected `allow` or `deny`', unixSockets={'/x': 'none'})
        self.proxy('unknown variant `ALLOW`, expected one of `none`, `allow`, `deny`', domains={'a': 'ALLOW'})
        for name in ('reviewDomains', 'credentialMasking', 'credentialProviders'):
            for value in (None, 1, 'x'):
                self.proxy(None, **{name: value})
        self.proxy(None, reviewDomains=[1])
        self.proxy(None, credentialProviders={'a': 1})

    def test_what_a_launch_may_have(self):
        for name, values in {'auditMetadata': (None, 1, 'x', {'model': 1}, {'slug': []}), 'environmentId': (1, [], {}), 'executionId': (1, []),
                             'policyDecisionTimeoutMs': (-1, 1.5, 2 ** 64, 'x', [])}.items():
            for value in values:
                self.proxy(None, launch={name: value})

    def test_facts(self):
        for value in (1, 'x', {'loopbackPorts': None}, {'loopbackPorts': 1}, {'loopbackPorts': [65536]}, {'loopbackPorts': [-1]},
                      {'loopbackPorts': ['1']}, {'loopbackPorts': [1.5]}, {'allowLocalBinding': None}, {'allowLocalBinding': 1},
                      {'allowUnixSockets': None}, {'allowUnixSockets': [1]}, {'dangerouslyAllowAllUnixSockets': None}):
            self.refused(None, managedNetwork=value)
        for value in (None, 1, 'true'):
            self.refused(None, enforceManagedNetwork=value)

    def test_judged_before_anything_else(self):
        no_time = {'policyDecisionTimeoutMs': 0}
        some_time = {'policyDecisionTimeoutMs': 5}
        off = dict(PROXY, enabled=False)
        late = 'network policy decision callback timeout must be nonzero'
        name = 'callback-enabled process ID must be non-empty and at most 256 bytes'
        disabled = CONFIG + 'executor-local network proxy launch requires an enabled proxy'
        self.refused(late, networkProxy={'proxy': off, **no_time}, argv=[], cwd='file://host/x', processId='')
        for process_id in ('', 'x' * 257):
            self.refused(name, networkProxy={'proxy': off, **some_time}, argv=[], processId=process_id)
        self.refused(disabled, networkProxy={'proxy': off, **some_time}, argv=[], cwd='file://host/x')
        self.refused(disabled, networkProxy={'proxy': off}, processId='')
        self.refused(CONFIG + 'domain pattern is empty', networkProxy={'proxy': dict(PROXY, domains={'': 'allow'})}, argv=[])
        self.refused(None, networkProxy={'proxy': dict(PROXY, unixSockets={'here': 'allow'})})

    def test_nothing_asked_for_is_nothing(self):
        self.runs('1', managedNetwork={}, enforceManagedNetwork=False, networkProxy=None)
        self.runs('2', managedNetwork=None)
        self.runs('3', managedNetwork={'future': 1})


@ours_only
class Refusing(NetworkCase):
    """Without a sandbox there is no managed network; with one it is in test_network_wire.py."""

    def test_a_proxy(self):
        for more in ({}, {'domains': {'a.example': 'allow', 'b': 'none', '*': 'allow'}}, {'unixSockets': {'/run/x': 'deny'}},
                     {'domains': None, 'unixSockets': None}):
            self.proxy(NEEDS, **more)
        self.proxy(NEEDS, launch={'auditMetadata': {'model': None, 'slug': 'x'}, 'environmentId': None, 'executionId': 'e', 'policyDecisionTimeoutMs': 1})
        self.proxy(NEEDS, launch={'policyDecisionTimeoutMs': 2 ** 64 - 1})

    def test_on_a_terminal_too(self):
        self.refused(NEEDS, networkProxy={'proxy': PROXY}, tty=True)
        self.refused(NO_GATE, managedNetwork={'loopbackPorts': [8080]}, tty=True)

    def test_the_name_is_free_afterwards(self):
        self.refused(NEEDS, networkProxy={'proxy': PROXY})
        self.runs('p')


class Snapshots(NetworkCase):
    """A shell's state is not kept: the command runs without, but a mistake is called by its name."""

    SHELL = {'name': 'bash', 'path': '/bin/sh'}

    def snapshot(self, scope='s', **shell):
        return {'scopeId': scope, 'shell': {**self.SHELL, **shell}}

    def test_mistakes(self):
        scope = 'shell snapshot scope must be non-empty and at most 256 bytes'
        self.refused(scope, shellSnapshot=self.snapshot(''))
        self.refused(scope, shellSnapshot=self.snapshot('x' * 257), argv=[])
        self.refused('shell snapshots are unsupported for shell `fish`', shellSnapshot=self.snapshot(name='fish'),
                     argv=['/bin/sh', '-lc', 'touch ran'])
        self.refused('missing field `scopeId`', shellSnapshot={})
        self.refused('missing field `name`', shellSnapshot={'scopeId': 's', 'shell': {}})
        self.refused(None, shellSnapshot={'scopeId': 1, 'shell': self.SHELL})
        self.refused(None, shellSnapshot=1)

    @ours_only
    def test_without(self):
        for i, more in enumerate((self.snapshot(), self.snapshot('x' * 256), self.snapshot(name='zsh'), None)):
            self.c.start(str(i), ['/bin/sh', '-lc', 'echo ran'], cwd=file_uri(self.srv.work), shellSnapshot=more)
            self.assertEqual(bytes(self.c.wait_closed(str(i)).streams['stdout']), b'ran\n')
        self.runs('other', shellSnapshot=self.snapshot(name='fish'))


if __name__ == '__main__':
    tap.main()
