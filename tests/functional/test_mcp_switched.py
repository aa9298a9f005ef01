# SPDX-License-Identifier: Apache-2.0
"""Tools of the MCP server that the configuration switches on: request_permissions and unified_exec."""

import json
import os
import shutil
import tempfile

import mcp
import tap
from mcp import FORM

SESSION = {'action': 'accept', 'content': {'decision': 'session'}}
DECLINE = {'action': 'decline'}


class Switched(mcp.Case):
    def begin(self, *features, flags=(), **more):
        path = os.path.join(self.home, 'sallyport.conf')
        with open(path, 'w') as f:
            f.write('[features]\n' + ''.join('%s = true\n' % name for name in features))
        os.chmod(path, 0o600)
        return self.mcp(*flags, **more)

    def tools(self, host):
        return {t['name']: t for t in host.modern('tools/list')['result']['tools']}

    def test_they_are_there_only_if_they_are_on(self):
        plain = self.tools(self.begin())
        for name in ('request_permissions', 'unified_exec'):
            self.assertNotIn(name, plain)
        host = self.begin('unified_exec')
        self.assertEqual(set(self.tools(host)) - set(plain), {'unified_exec'})
        self.assertEqual(host.call('request_permissions', {'permissions': {'network': {'enabled': True}}}).error['code'], -32602)
        host = self.begin('exec_permission_approvals')
        tools = self.tools(host)
        self.assertEqual(set(tools) - set(plain), {'request_permissions'})
        self.assertEqual(tools['request_permissions']['inputSchema']['required'], ['permissions'])
        self.assertEqual(sorted(tools['request_permissions']['inputSchema']['properties']), ['permissions', 'reason'])
        self.assertEqual(host.call('unified_exec', {'input': ['true']}).error['code'], -32602)


class Permissions(Switched):
    def setUp(self):
        super().setUp()
        self.outside = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-permitted-', dir='/var/tmp'))
        self.addCleanup(shutil.rmtree, self.outside, True)
        self.wanted = {'permissions': {'file_system': {'write': [self.outside]}}, 'reason': 'a cache for the build'}

    def touch(self, host, name):
        path = os.path.join(self.outside, name)
        host.exec('touch', path)
        return os.path.exists(path)

    def ask(self, host, arguments):
        r = host.call('request_permissions', arguments, capabilities=FORM)
        self.assertEqual(r.kind, 'input_required', r)
        (key, asked), = r.result['inputRequests'].items()
        return asked['params'], lambda answer: host.call('request_permissions', arguments, capabilities=FORM,
                                                         state=r.result['requestState'], responses={key: answer})

    def test_granted_for_the_session(self):
        host = self.begin('exec_permission_approvals')
        self.assertFalse(self.touch(host, 'before'))
        form, answer = self.ask(host, self.wanted)
        for words in ('a cache for the build', self.outside):
            self.assertIn(words, form['message'])
        choices = json.dumps(form['requestedSchema'])
        self.assertIn('"session"', choices)
        self.assertNotIn('"once"', choices)  # there is no turn it could be for
        r = answer(SESSION)
        self.assertFalse(r.failed, r)
        self.assertEqual((r['scope'], r['permissions']), ('session', self.wanted['permissions']))
        self.assertEqual(json.loads(r.text), r.structured)
        self.assertTrue(self.touch(host, 'after'))

    def test_refused(self):
        host = self.begin('exec_permission_approvals')
        _form, answer = self.ask(host, self.wanted)
        r = answer(DECLINE)
        self.assertTrue(r.failed, r)
        self.assertIn('request_permissions failed: ', r.text)
        self.assertFalse(self.touch(host, 'after'))

    def test_nobody_to_ask(self):
        host = self.begin('exec_permission_approvals')
        self.assertTrue(host.call('request_permissions', self.wanted).failed)
        self.assertFalse(self.touch(host, 'after'))
        host = self.begin('exec_permission_approvals', flags=('--approve', 'never'))
        r = host.call('request_permissions', self.wanted, capabilities=FORM)
        self.assertIn('you cannot request permissions if the approval policy is never', r.text.lower().replace('askforapproval::', ''))
        self.assertFalse(self.touch(host, 'after'))

    def test_by_an_approver_program(self):
        program = os.path.join(self.home, 'approver')
        with open(program, 'w') as f:
            f.write('#!/bin/sh\necho \'{"decision":"approved_for_session"}\'\n')
        os.chmod(program, 0o700)
        host = self.begin('exec_permission_approvals', flags=('--approver', 'program:' + program))
        r = host.call('request_permissions', self.wanted)
        self.assertFalse(r.failed, r)
        self.assertTrue(self.touch(host, 'after'))

    def test_bad_arguments(self):
        host = self.begin('exec_permission_approvals')
        for arguments, words in (({}, 'missing field `permissions`'), ({'permissions': {}}, 'at least one requested permission'),
                                 ({'permissions': 7}, 'failed to parse function arguments')):
            r = host.call('request_permissions', arguments, capabilities=FORM)
            self.assertTrue(r.failed, r)
            self.assertIn(words, r.text)


class UnifiedExec(Switched):
    def test_a_session(self):
        host = self.begin('unified_exec')
        r = host.call('unified_exec', {'input': ['sh', '-c', 'printf "name? "; read n; echo "hello $n"'], 'timeout_ms': 500})
        self.assertFalse(r.failed, r)
        self.assertEqual(r['output'], 'name? ')
        self.assertEqual(json.loads(r.text), r.structured)
        session = r['session_id']
        self.assertRegex(session, r'^\d+$')
        self.assertIn(int(session), host.sessions())
        r = host.call('unified_exec', {'input': ['wor', 'ld\n'], 'session_id': session, 'timeout_ms': 20000})
        self.assertIn('hello wor ld', r['output'])
        self.assertIsNone(r['session_id'])
        r = host.call('unified_exec', {'input': [''], 'session_id': session})
        self.assertTrue(r.failed)
        self.assertEqual(r.text, 'unified exec failed: Unknown session id ' + session)

    def test_it_is_confined(self):
        host = self.begin('unified_exec')
        r = host.call('unified_exec', {'input': ['touch', '/usr/sallyport-test-denied'], 'timeout_ms': 20000})
        self.assertTrue(r.failed, r)
        self.assertIn('unified exec failed: Command denied by sandbox: ', r.text)
        self.assertFalse(os.path.exists('/usr/sallyport-test-denied'))

    def test_bad_arguments(self):
        host = self.begin('unified_exec')
        for arguments, words in (({}, 'missing field `input`'), ({'input': []}, 'missing command line'),
                                 ({'input': ['x'], 'session_id': 'x'}, 'invalid session_id: x due to error invalid digit')):
            r = host.call('unified_exec', arguments)
            self.assertTrue(r.failed, r)
            self.assertIn(words, r.text)


if __name__ == '__main__':
    tap.main()
