# SPDX-License-Identifier: Apache-2.0
"""Clients of other times: an older one leaves members out, a newer one says more than the server knows."""

import os

import codex  # noqa: F401, the path to the modules below
from sandbox_policy import WORKSPACE, context, restricted
from wire import b64, file_uri

import server
import tap

MAPS = ('env', 'set')  # objects whose members are names of their own
FUTURE = {'xFuture': {'deep': [1, {'a': None}], 'flag': True}, 'yFuture': 'text', 'zFuture': None}


def salted(value):
    """The same with unknown members in every object, first and last."""
    if isinstance(value, list):
        return [salted(v) for v in value]
    if not isinstance(value, dict):
        return value
    known = {k: v if k in MAPS else salted(v) for k, v in value.items()}
    return {'aFuture': [], **known, **FUTURE}


class Skewed(server.Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server()
        self.c = self.srv.connect()

    def start(self, process_id, script, **more):
        """With the members that no client leaves out."""
        return {'processId': process_id, 'argv': ['/bin/sh', '-c', script], 'cwd': file_uri(self.srv.work),
                'env': {'PATH': '/usr/bin:/bin'}, 'tty': False, **more}

    def said(self, process_id):
        process = self.c.wait_closed(process_id)
        return process.exit_code, bytes(b''.join(process.streams.values())).decode()

    def path(self, name, data=None):
        path = os.path.join(self.srv.work, name)
        if data is not None:
            with open(path, 'w') as f:
                f.write(data)
        return file_uri(path)


class Older(Skewed):
    def begin(self, **more):
        """As before there were sessions to resume, or an environment in the answer."""
        self.c.session_id = self.c.request('initialize', {'clientName': 'old', **more})['sessionId']
        self.c.send({'method': 'initialized'})

    def test_asks_for_the_environment(self):
        self.begin()
        for message in ({}, {'params': None}, {'params': {}}):
            self.c.send({'id': 70, 'method': 'environment/info', **message})
            self.assertIn('path', self.c.result(70)['shell'])
        self.assertEqual(self.c.request('environment/status'), {'status': 'ready'})

    def test_runs_a_command(self):
        self.begin()
        self.assertEqual(self.c.request('process/start', self.start('p', 'echo $0 $A; exit 3', env={'A': 'b'}))['processId'], 'p')
        self.assertEqual(self.said('p'), (3, '/bin/sh b\n'))
        page = self.c.request('process/read', {'processId': 'p'})
        self.assertEqual((b64(b'/bin/sh b\n'), 3, True), (page['chunks'][0]['chunk'], page['exitCode'], page['closed']))
        self.assertEqual(self.c.request('process/terminate', {'processId': 'p'}), {'running': False})

    def test_nulls_are_members_left_out(self):
        self.begin(resumeSessionId=None)
        self.c.request('process/start', self.start('p', 'echo fine', envPolicy=None, arg0=None, sandbox=None, managedNetwork=None,
                                                   metadata=None, networkProxy=None, shellSnapshot=None))
        self.assertEqual(self.said('p'), (0, 'fine\n'))
        page = self.c.request('process/read', {'processId': 'p', 'afterSeq': None, 'maxBytes': None, 'waitMs': None})
        self.assertEqual(len(page['chunks']), 1)

    def test_types_and_resumes(self):
        self.begin()
        self.c.request('process/start', self.start('p', 'stty -echo; echo ready; read x; echo got $x', tty=True))
        self.c.wait_output('p', 'ready')
        self.c.close()
        session, self.c = self.c.session_id, self.srv.connect()
        self.begin(resumeSessionId=session)
        self.c.request('process/write', {'processId': 'p', 'chunk': b64(b'word\n'), 'writeId': '1'})
        self.c.wait_output('p', 'got word')

    def test_sandbox_of_the_first_clients(self):
        """Without overrides, contexts and homes; with the old name of a special path and of an access."""
        self.begin()
        entries = [{'path': {'type': 'special', 'value': {'kind': 'root'}}, 'access': 'read'},
                   {'path': {'type': 'special', 'value': {'kind': 'current_working_directory'}}, 'access': 'write'},
                   {'path': {'type': 'path', 'path': self.path('closed', 'secret\n')}, 'access': 'none'}]
        sandbox = {'permissions': restricted(entries), 'workspaceRoots': [file_uri(self.srv.work)],
                   'windowsSandboxLevel': 'disabled', 'windowsSandboxPrivateDesktop': False}
        self.c.request('process/start', self.start('p', 'echo in >in && echo made; cat closed || echo kept', sandbox=sandbox))
        code, text = self.said('p')
        self.assertEqual(code, 0)
        self.assertIn('made\n', text)
        self.assertIn('kept\n', text)
        self.assertNotIn('secret', text)

    def test_files(self):
        self.begin()
        path = self.path('file')
        self.assertEqual(self.c.request('fs/writeFile', {'path': path, 'dataBase64': b64(b'text')}), {})
        self.assertEqual(self.c.request('fs/readFile', {'path': path}), {'dataBase64': b64(b'text')})
        self.assertEqual(self.c.request('fs/getMetadata', {'path': path})['size'], 4)
        self.assertEqual(self.c.request('fs/createDirectory', {'path': self.path('a/b')}), {})
        self.assertEqual(self.c.request('fs/remove', {'path': self.path('a')}), {})
        self.assertEqual(self.c.request('fs/open', {'handleId': 'h', 'path': path}), {'handleId': 'h'})
        block = self.c.request('fs/readBlock', {'handleId': 'h', 'offset': 0, 'len': 100})
        self.assertEqual(block, {'chunk': b64(b'text'), 'eof': True})

    def test_discovery_before_sandboxes(self):
        self.begin()
        self.path('SKILL.md', 'skill')
        root, = self.c.request('capabilityRoots/discoverV1', {'roots': [{'id': 'r', 'path': file_uri(self.srv.work)}]})['roots']
        self.assertEqual((root['error'], root['skills'][0]['instructions']['contents']), (None, 'skill'))
        self.assertEqual(self.c.request('capabilities/discoverV2', {'cwd': file_uri(self.srv.work)})['plugins'], [])
        config = self.c.request('environmentConfig/read', {'cwd': file_uri(self.srv.work), 'configPaths': [['a']], 'requirementsPaths': []})
        self.assertEqual(config['config'], {'layers': [], 'cloudInsertionIndex': 0})


class Newer(Skewed):
    """Unknown members at every depth, unknown methods, words of later versions."""

    def ask(self, method, params, **members):
        return self.c.request(method, salted(params), aFuture=[], jsonrpc='2.0', **{**FUTURE, **members})

    def begin(self, resume=None):
        capabilities = {'capabilities': {'processResize': True, 'xFuture': {'level': 3}}, 'protocolVersion': 99}
        answer = self.ask('initialize', {'clientName': 'new', 'resumeSessionId': resume, **capabilities})
        self.c.session_id = answer['sessionId']
        self.c.send({'method': 'initialized', 'params': salted({}), 'jsonrpc': '2.0', **FUTURE})
        return answer

    def test_unknown_members(self):
        self.assertIn('environmentInfo', self.begin())
        policy = {'inherit': 'none', 'ignoreDefaultExcludes': True, 'exclude': [], 'set': {'SET': 'yes'}, 'includeOnly': []}
        script = 'echo $SET $A $CODEX_TOOL_CALL_ID; read x; echo got $x; exit 2'
        self.ask('process/start', self.start('p', script, envPolicy=policy, env={'A': 'b'}, pipeStdin=True, arg0=None, sandbox=None,
                                             enforceManagedNetwork=False, managedNetwork=None, metadata={'toolCallId': 'call'}))
        self.c.wait_output('p', 'yes b call\n')
        typed = self.ask('process/write', {'processId': 'p', 'chunk': b64(b'w\n'), 'writeId': '1'})
        self.assertEqual(typed, {'status': 'accepted'})
        self.assertEqual(self.said('p'), (2, 'yes b call\ngot w\n'))
        page = self.ask('process/read', {'processId': 'p', 'afterSeq': 0, 'maxBytes': None, 'waitMs': 0})
        self.assertTrue(page['closed'])
        self.assertEqual(self.ask('process/signal', {'processId': 'p', 'signal': 'interrupt'}), {})
        self.assertEqual(self.ask('process/terminate', {'processId': 'p'}), {'running': False})

    def test_trace(self):
        self.begin()
        trace = {'traceparent': '00-%s-%s-01' % ('a' * 32, 'b' * 16), 'tracestate': None, **FUTURE}
        self.assertEqual(self.c.request('environment/status', None, trace=trace), {'status': 'ready'})

    def test_unknown_members_of_a_sandbox(self):
        """They change nothing: what is known is enforced."""
        self.begin()
        sandbox = context(restricted(WORKSPACE), self.srv.work, sandboxOverride='noOverride', temporaryDirectories=[],
                          userHomeDir=file_uri(self.srv.home),
                          policyContext={'cwd': None, 'workspaceRoots': [file_uri(self.srv.work)]})
        script = 'echo in >in && echo made; echo out >/var/tmp/out-%d || echo kept' % os.getpid()
        self.ask('process/start', self.start('p', script, sandbox=sandbox))
        code, text = self.said('p')
        self.assertEqual(code, 0)
        self.assertIn('made\n', text)
        self.assertIn('kept\n', text)

    def test_unknown_words_in_a_sandbox_are_refused(self):
        """A permission that is not understood is never taken for another one."""
        self.begin()
        root = {'path': {'type': 'special', 'value': {'kind': 'root'}}, 'access': 'read'}
        for bad in ({'type': 'quantum'}, restricted([dict(root, access='execute')]), restricted([root], network='local-only'),
                    restricted([{'path': {'type': 'regex', 'pattern': 'x'}, 'access': 'read'}]),
                    restricted([{'path': {'type': 'special', 'value': {'kind': 'downloads'}}, 'access': 'write'}]),
                    {'type': 'managed', 'network': 'restricted', 'file_system': {'type': 'overlay'}}):
            with self.subTest(bad):
                error = self.c.error('process/start', self.start('p', 'true', sandbox=context(bad, self.srv.work)))
                self.assertError(error, -32602)
        self.c.request('process/start', self.start('p', 'echo well'))
        self.assertEqual(self.said('p'), (0, 'well\n'))

    def test_a_special_path_marked_unknown_is_skipped(self):
        self.begin()
        downloads = {'kind': 'unknown', 'path': ':downloads', 'subpath': 'x'}
        unknown = {'path': {'type': 'special', 'value': downloads}, 'access': 'write'}
        sandbox = context(restricted(WORKSPACE + [unknown]), self.srv.work)
        self.c.request('process/start', self.start('p', 'echo well', sandbox=sandbox))
        self.assertEqual(self.said('p'), (0, 'well\n'))

    def test_discovery(self):
        self.begin()
        self.path('SKILL.md', 'skill')
        where = file_uri(self.srv.work)
        sandbox = context(restricted(WORKSPACE), self.srv.work)
        roots = self.ask('capabilityRoots/discoverV1', {'roots': [{'id': 'r', 'path': where}, {'id': 's', 'path': where, 'sandbox': sandbox}]})
        self.assertEqual([(root['id'], len(root['skills'])) for root in roots['roots']], [('r', 1), ('s', 1)])
        self.assertEqual(self.ask('capabilities/discoverV2', {'cwd': where, 'sandbox': sandbox})['warnings'], [])
        config = self.ask('environmentConfig/read', {'cwd': where, 'configPaths': [['a']], 'requirementsPaths': [['a']]})
        self.assertEqual(config['requirements'], {'layers': [], 'cloudInsertionIndex': 0})

    def test_a_managed_network_of_the_future(self):
        """Unknown facts beside none are none; a proxy is a proxy, whatever else is said about it."""
        self.begin()
        self.ask('process/start', self.start('p', 'echo well', managedNetwork={}, enforceManagedNetwork=False))
        self.assertEqual(self.said('p'), (0, 'well\n'))
        if not server.PEER:
            self.assertError(self.c.error('process/start', salted(self.start('q', 'true', managedNetwork={'loopbackPorts': [1]}))), -32602)

    def test_unknown_methods(self):
        self.begin()
        self.assertError(self.c.error('process/teleport', salted({'processId': 'p'})), -32601)
        self.assertError(self.c.error('quantum/entangle'), -32601)
        self.assertError(self.c.error('process/signal', {'processId': 'p', 'signal': 'hangup-politely'}), -32602)
        self.assertEqual(self.c.fence(), {'status': 'ready'})

    def test_an_unknown_notification_ends_the_connection_alone(self):
        """The session is there to be resumed, and its commands run on."""
        self.begin()
        self.c.request('process/start', self.start('p', 'echo one; read x; echo two', pipeStdin=True))
        self.c.wait_output('p', 'one\n')
        self.c.send({'method': 'client/mood', 'params': {'mood': 'sunny'}})
        self.c.wait_end()
        session, self.c = self.c.session_id, self.srv.connect()
        self.begin(resume=session)
        self.assertEqual(self.c.write('p', b'x\n'), 'accepted')
        self.c.wait_output('p', 'two\n')

    def test_files(self):
        self.begin()
        path = self.path('file')
        for sandbox in (None, context(restricted(WORKSPACE), self.srv.work)):
            self.assertEqual(self.ask('fs/writeFile', {'path': path, 'dataBase64': b64(b'text'), 'sandbox': sandbox}), {})
            self.assertEqual(self.ask('fs/readFile', {'path': path, 'sandbox': sandbox}), {'dataBase64': b64(b'text')})
            self.assertEqual(self.ask('fs/getMetadata', {'path': path, 'sandbox': sandbox})['size'], 4)
        options = {'maxDepth': 1, 'maxDirectories': 9, 'maxEntries': 9, 'followDirectorySymlinks': False,
                   'pruneHiddenDirectories': True}
        entries = self.ask('fs/walk', {'path': self.path('.'), 'options': options, 'sandbox': None})['entries']
        self.assertIn({'path': path, 'kind': 'file'}, entries)


if __name__ == '__main__':
    tap.main()
