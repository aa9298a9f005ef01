# SPDX-License-Identifier: Apache-2.0
"""request_permissions: asked, answered, and what commands can do afterwards."""

import json
import os
import shutil
import tempfile

import agent
import wire
from agent import Case

REFUSED = 'request_permissions failed: '


class Permissions(Case):
    backend = 'local'

    def setUp(self):
        super().setUp()
        self.outside = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-permitted-', dir='/var/tmp'))
        self.addCleanup(shutil.rmtree, self.outside, True)

    def begin(self, policy='on-request', *flags):
        return self.agent('--sandbox', 'read-only', '--approval', policy, '--additional', *flags)

    def wanted(self, *names, **more):
        return {'permissions': {'file_system': {'write': [os.path.join(self.outside, n) if n else self.outside
                                                          for n in names or ('',)]}}, **more}

    def request(self, a, arguments, turn='turn'):
        call = a.call_later('request_permissions', arguments, turn=turn)
        return call, a.wait_question()

    def touch(self, a, name, turn='turn'):
        """Whether a command may make the file."""
        path = os.path.join(self.outside, name)
        a.call('exec_command', {'cmd': 'touch ' + path, 'login': False}, turn=turn)
        return os.path.exists(path)

    def test_it_is_advertised_only_if_it_is_on(self):
        names = [t['name'] for t in self.begin().ask('schemas')['schemas']]
        self.assertEqual(names, ['exec_command', 'write_stdin', 'request_permissions'])
        plain = self.agent()
        self.assertEqual([t['name'] for t in plain.ask('schemas')['schemas']], ['exec_command', 'write_stdin'])
        tool = [t for t in self.begin().ask('schemas')['schemas'] if t['name'] == 'request_permissions'][0]
        self.assertEqual(tool['parameters']['required'], ['permissions'])
        self.assertEqual(sorted(tool['parameters']['properties']), ['permissions', 'reason'])
        self.assertIs(tool['parameters']['additionalProperties'], False)

    def test_granted_for_the_turn(self):
        a = self.begin()
        self.assertFalse(self.touch(a, 'before'))
        call, q = self.request(a, self.wanted(reason='a cache'))
        self.assertEqual(q['kind'], 'permissions')
        asked = q['json']
        self.assertEqual(list(asked), ['type', 'call_id', 'turn_id', 'environmentId', 'started_at_ms', 'reason',
                                       'permissions', 'cwd'])
        self.assertEqual((asked['type'], asked['reason'], asked['permissions'], asked['cwd']),
                         ('request_permissions', 'a cache', self.wanted()['permissions'], a.work))
        a.decide(q, {'permissions': asked['permissions'], 'scope': 'turn'})
        answer = call.wait()
        self.assertFalse(answer.failed, answer)
        granted = {'permissions': asked['permissions'], 'scope': 'turn', 'strict_auto_review': False}
        self.assertEqual(json.loads(answer.text), granted)
        self.assertEqual(answer.line['structured'], granted)
        self.assertTrue(self.touch(a, 'now'))
        self.assertFalse(self.touch(a, 'later', turn='another'))
        self.assertEqual(a.questions, [])

    def test_granted_for_the_session(self):
        a = self.begin()
        call, q = self.request(a, self.wanted())
        a.decide(q, 'approved_for_session')
        self.assertEqual(json.loads(call.wait().text)['scope'], 'session')
        self.assertTrue(self.touch(a, 'now'))
        self.assertTrue(self.touch(a, 'later', turn='another'))

    def test_a_part_of_it_and_nothing_besides(self):
        a = self.begin()
        for name in ('a', 'b', 'c'):
            os.mkdir(os.path.join(self.outside, name))
        call, q = self.request(a, self.wanted('a', 'b'))
        a.decide(q, {'permissions': {'network': {'enabled': True}, **self.wanted('a', 'c')['permissions']}})
        self.assertEqual(json.loads(call.wait().text)['permissions'], self.wanted('a')['permissions'])
        self.assertTrue(self.touch(a, 'a/x'))
        self.assertFalse(self.touch(a, 'b/x'))
        self.assertFalse(self.touch(a, 'c/x'))

    def test_a_command_that_asks_for_what_was_granted_is_not_asked_about(self):
        a = self.begin()
        call, q = self.request(a, self.wanted())
        a.decide(q, 'approved')
        call.wait()
        more = dict(sandbox_permissions='with_additional_permissions')
        self.assertExited(a.ec('touch %s/x' % self.outside, additional_permissions=self.wanted()['permissions'], **more))
        self.assertEqual(a.questions, [])
        wider = {'file_system': {'write': [self.outside, '/site/more']}}
        call = a.ec_later('true', additional_permissions=wider, **more)
        a.decide(a.wait_question(), 'denied')
        self.assertTrue(call.wait().failed)

    def test_a_rule_in_a_granted_directory_frees_nothing(self):
        rules = os.path.join(self.outside, 'free.rules')
        with open(rules, 'w') as f:
            f.write('prefix_rule(["touch"])\n')
        a = self.begin('on-request', '--rules', rules)

        def is_free(name, turn='turn', **how):
            path = os.path.join(a.work, name)
            call = a.call_later('exec_command', {'cmd': 'touch ' + path, 'login': False, **how}, turn=turn)
            if how:
                a.decide(a.wait_question(), 'approved')
            call.wait()
            return os.path.exists(path)

        self.assertTrue(is_free('before'))
        # for this command alone, which could write the rule that frees it
        self.assertFalse(is_free('additional', sandbox_permissions='with_additional_permissions',
                                 additional_permissions=self.wanted()['permissions']))
        call, q = self.request(a, self.wanted())
        a.decide(q, 'approved')
        call.wait()
        self.assertFalse(is_free('granted'))
        self.assertFalse(is_free('later', turn='another'))  # it may have been written in that turn
        self.assertEqual(a.questions, [])

    def test_refused(self):
        a = self.begin()
        call, q = self.request(a, self.wanted())
        a.decide(q, 'denied')
        self.assertFailed(call.wait(), REFUSED + 'permission request rejected by user')
        call, q = self.request(a, self.wanted())
        a.decide(q, {'denied': {'rejection': 'ask me tomorrow'}})
        self.assertFailed(call.wait(), REFUSED + 'ask me tomorrow')
        self.assertFalse(self.touch(a, 'x'))

    def test_policies(self):
        for policy, name in (('never', 'Never'), ('granular', 'Granular(')):
            answer = self.begin(policy).call('request_permissions', self.wanted())
            self.assertTrue(answer.failed)
            self.assertTrue(answer.text.startswith(REFUSED + 'approval policy is ' + name), answer.text)
        for policy in ('untrusted', 'on-failure', json.dumps({'granular': {
                'sandbox_approval': False, 'rules': False, 'mcp_elicitations': False, 'request_permissions': True}})):
            a = self.begin(policy)
            call, q = self.request(a, self.wanted())
            a.decide(q, 'approved')
            self.assertFalse(call.wait().failed)

    def test_too_late(self):
        a = self.begin('on-request', '--approval-timeout', '300')
        self.assertFailed(a.call('request_permissions', self.wanted()), REFUSED + 'approval request timed out')

    def test_arguments(self):
        a = self.begin()
        self.assertFailed(a.call('request_permissions', {}),
                          'failed to parse function arguments: missing field `permissions` at line 1 column 2')
        self.assertFailed(a.call('request_permissions', {'permissions': {}}),
                          '`permissions` must include at least one requested permission in `network` or `file_system`')
        self.assertEqual(a.questions, [])

    def test_a_program_answers(self):
        path = os.path.join(self.outside, 'hook')
        wire.write_program(path, '#!/bin/sh\ncat > %s/told\necho \'%s\'\n' % (self.outside, json.dumps(
            {'permissions': self.wanted('a')['permissions'], 'scope': 'session', 'strict_auto_review': False})))
        os.mkdir(os.path.join(self.outside, 'a'))
        a = self.begin('on-request', '--hook', path)
        answer = a.call('request_permissions', self.wanted())
        self.assertEqual(json.loads(answer.text), {'permissions': self.wanted('a')['permissions'], 'scope': 'turn',
                                                   'strict_auto_review': False})
        with open(self.outside + '/told') as f:
            self.assertEqual(json.load(f)['question']['type'], 'request_permissions')
        self.assertTrue(self.touch(a, 'a/x'))


if __name__ == '__main__':
    agent.main()
