# SPDX-License-Identifier: Apache-2.0
"""serve --approve: hostile answers, policies, rules, hooks, programs, the command line and the document; and that
nothing is judged without the flag."""

import json
import os
import subprocess

import tap
import wire
from asked import BY_USER, NOBODY, READ_ONLY, Asked, Judged
from sandbox_policy import workspace_write
from server import PROGRAM, Case, Gate, is_alive, ours_only
from test_docs import fences, read
from wire import WebSocket, wait_until, write_program


class Hostile(Judged):
    def test_answers_to_nothing_end_the_connection(self):
        self.judge()
        for answer in ({'id': 1, 'result': {}}, {'id': 0, 'result': {}}, {'id': -1, 'result': {}},
                       {'id': '1', 'result': {'decision': 'approved'}}, {'id': 2, 'result': {'decision': 'approved'}},
                       {'id': 9223372036854775807, 'error': {'code': 1, 'message': ''}}):
            c = self.dial().greet()
            if answer['id'] != 1:
                c.post_start('p', ['printf', 'ran'])
                c.question()
            c.send(answer)
            c.wait_end()
        self.assertEqual({a[2] for a in self.decisions()}, {'abort'})

    def test_a_second_answer_is_ignored(self):
        c = self.asked()
        request = c.post_start('p', ['printf', 'ran'])
        number, _ = c.question()
        c.decide(number, 'denied')
        c.decide(number, 'approved')
        c.send({'id': number, 'error': {'code': -1, 'message': 'x'}})
        self.assertRefused(c.reply(request), BY_USER)
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertError(c.error('process/read', {'processId': 'p'}), -32600, 'unknown process id p')

    def test_malformed_answers_leave_the_question_open(self):
        c = self.asked()
        request = c.post_start('p', ['printf', 'ran'])
        number, _ = c.question()
        for data in (b'{"id":1,"result":{"decision":"approved","decision":"denied"}}', b'{"id":1}',
                     b'{"id":1,"error":"no"}', b'{"id":1,"error":{}}', b'{"id":1.0,"result":{"decision":"approved"}}',
                     b'{"result":{"decision":"approved"}}', b'{"id":1,"result":', b'{"id":null,"result":{}}'):
            c.malformed(data)
        self.assertFalse(c.answered(request))
        c.decide(number, 'approved')
        self.assertStarted(c.reply(request), 'p')

    def test_huge_answers_are_denials(self):
        c = self.asked()
        for i, decision in enumerate(('x' * (10 << 20), {'denied': {'rejection': 'y' * (10 << 20)}},
                                      ['approved'] * 200000, 'approved' + ' ' * 70000)):
            self.assertRefused(c.try_start('p%d' % i, ['printf', 'ran'], decision), BY_USER)
        request = c.post_start('q', ['printf', 'ran'])
        number, _ = c.question()
        c.send_raw(b'{"id":%d,"result":{"decision":"approved","x":"%s"}}' % (number, b'z' * (10 << 20)))
        self.assertRefused(c.reply(request), BY_USER)
        self.assertStarted(c.try_start('q', ['printf', 'ran'], 'approved'), 'q')

    def test_escapes_in_an_answer(self):
        c = self.asked()
        request = c.post_start('p', ['printf', 'ran'])
        number, _ = c.question()
        c.send_raw(b'{"result":{"\\u0064ecision":"\\u0061pproved"},"id":%d}' % number)
        self.assertStarted(c.reply(request), 'p')

    def test_before_initialized_nothing_is_asked(self):
        self.judge()
        c = self.dial()
        c.request('initialize', {'clientName': 'x', 'capabilities': {'approvals': True}})
        self.assertError(c.start_error('p', ['printf', 'ran']), -32600,
                         'client must send initialized before using exec methods')
        self.assertEqual(c.questions, [])

    def test_bad_params_are_not_judged(self):
        c = self.asked()
        self.assertError(c.start_error('p', []), -32602, 'argv must not be empty')
        self.assertError(c.start_error('p', ['printf'], cwd='/x'), -32602)
        self.assertError(c.start_error('p', ['printf'], sandbox={}), -32602)
        self.assertFalse(os.path.exists(self.audit))


class Policies(Judged):
    def test_files_are_not_changed_past_it(self):
        c = self.asked(policy='on-request')
        path = os.path.join(self.home, 'more.rules')
        with open(path, 'w') as f:
            f.write('# mine\n')
        uri = wire.file_uri(path)
        for sandbox in (None, workspace_write(self.home)):
            for method, params in (('writeFile', {'dataBase64': ''}), ('createDirectory', {}), ('remove', {}),
                                   ('open', {'handleId': 'h', 'mode': 'replace'})):
                self.assertError(c.error('fs/' + method, dict(params, path=uri, sandbox=sandbox)), -32600,
                                 'this server judges what is done (--approve): fs/%s is not offered, let a command do it' % method)
            self.assertError(c.error('fs/copy', {'sourcePath': 'file:///etc/passwd', 'destinationPath': uri, 'recursive': False,
                                                 'sandbox': sandbox}), -32600)
        self.assertEqual(wire.unb64(c.request('fs/readFile', {'path': uri})['dataBase64']), b'# mine\n')

    def test_rules(self):
        c = self.asked(policy='on-request', rules='''
prefix_rule(pattern=["printf"], decision="forbidden", justification="no printing")
prefix_rule(pattern=["cat"], decision="prompt", justification="cats bite")
''')
        self.assertError(c.start_error('a', ['printf', 'x']), -32600, '`printf x` rejected: no printing')
        self.assertError(c.start_error('b', ['/bin/sh', '-c', 'true; printf x']), -32600,
                         "`/bin/sh -c 'true; printf x'` rejected: no printing")
        request = c.post_start('c', ['cat', '/dev/null'])
        number, q = c.question()
        self.assertEqual(q['reason'], '`cat /dev/null` requires approval: cats bite')
        c.decide(number, 'approved')
        self.assertStarted(c.reply(request), 'c')
        self.assertEqual(c.run(['true'], 'd').exit_code, 0)
        self.assertEqual(c.questions, [])
        self.assertEqual(self.decisions()[0], ('a', 'forbidden', 'denied', 'rule', []))

    def test_the_rules_of_the_user_and_not_those_of_a_project(self):
        def write(folder, text):
            os.makedirs(folder)
            with open(os.path.join(folder, 'x.rules'), 'w') as f:
                f.write(text)
        project = self.scratch()
        write(os.path.join(project, '.sallyport', 'rules'), 'prefix_rule(pattern=["true"], decision="forbidden")\n')
        os.mkdir(os.path.join(project, '.git'))
        c = self.asked(policy='on-request', conf='trusted_projects = ["%s"]\n' % project, cwd=project)
        self.assertEqual(c.run(['true'], 'a', cwd=wire.file_uri(project)).exit_code, 0)
        self.srv.stop()
        write(os.path.join(self.home, 'rules'), 'prefix_rule(pattern=["true"], decision="forbidden")\n')
        self.srv = self.server('--approve', 'never', env={'SALLYPORT_HOME': self.home})
        self.assertError(self.srv.session().start_error('a', ['true']), -32600,
                         '`true` rejected: policy forbids commands starting with `true`')

    def test_never(self):
        c = self.asked(policy='never', rules='prefix_rule(pattern=["cat"], decision="prompt")\n')
        self.assertEqual(c.run(['printf', 'ran'], 'a').stdout, b'ran')
        self.assertError(c.start_error('b', ['cat']), -32600,
                         'approval required by policy, but AskForApproval is set to Never')
        self.assertError(c.start_error('c', ['rm', '-rf', '/site/x']), -32600,
                         '`rm -rf /site/x` rejected: rm -f style commands are not permitted. Use a safer approach')
        self.assertEqual(c.questions, [])

    def test_granular(self):
        c = self.asked(policy='{"granular":{"sandbox_approval":true,"rules":false,"mcp_elicitations":false}}',
                       rules='prefix_rule(pattern=["cat"], decision="prompt")\n')
        self.assertError(c.start_error('b', ['cat']), -32600,
                         'approval required by policy rule, but AskForApproval::Granular.rules is false')
        self.assertRefused(c.try_start('c', ['rm', '-rf', '/site/x'], 'denied'), BY_USER)

    def test_the_advertised_shell_is_trusted(self):
        c = self.asked(policy='untrusted', rules='prefix_rule(pattern=["printf"], decision="allow")\n')
        self.assertEqual(c.run(['/bin/sh', '-c', 'printf ran'], 'a').stdout, b'ran')
        mine = os.path.join(self.srv.work, 'sh')
        os.symlink('/bin/sh', mine)
        self.assertRefused(c.try_start('b', [mine, '-c', 'printf ran'], 'denied'), BY_USER)

    def test_deny_asks_nobody(self):
        for words in ((), ('--approver', 'deny')):
            self.judge_plain(*words)
            c = self.dial().greet()
            self.assertError(c.start_error('p', ['printf', 'ran']), -32600, NOBODY)
            self.assertEqual(c.questions, [])

    def judge_plain(self, *words):
        self.srv = self.server('--approve', 'untrusted', *words, env={'SALLYPORT_HOME': self.scratch()})

    def program(self, body):
        return 'program:' + write_program(os.path.join(self.scratch(), 'approver'), '#!/bin/sh\n' + body)

    def test_a_program(self):
        told = os.path.join(self.scratch(), 'told')
        c = self.asked(approver=self.program('cat > %s; echo \'{"decision":"approved_for_session"}\'' % told))
        for name in ('a', 'b'):
            self.assertEqual(c.run(['printf', 'ran'], name).stdout, b'ran')
        with open(told) as f:
            self.assertEqual(json.load(f)['question']['call_id'], 'a')
        self.assertEqual(c.questions, [])

    def test_a_program_says_no(self):
        c = self.asked(approver=self.program('echo \'{"decision":{"denied":{"rejection":"not now"}}}\''))
        self.assertError(c.start_error('p', ['printf', 'ran']), -32600, 'not now')

    def test_a_program_that_works_on_it_ends_with_the_connection(self):
        gate = Gate(self.scratch())
        pid = os.path.join(self.scratch(), 'pid')
        c = self.asked(approver=self.program('echo $$ > %s.new; mv %s.new %s; %s; echo \'{"decision":"approved"}\'' % (
            pid, pid, pid, gate.wait)))
        request = c.post_start('p', ['printf', 'ran'])
        wait_until(lambda: os.path.exists(pid), 'the approver')
        self.assertEqual(c.run(['echo', 'safe'], 'q').stdout, b'safe\n')
        self.assertFalse(c.answered(request))
        with open(pid) as f:
            number = int(f.read())
        c.close()
        wait_until(lambda: not is_alive(number), 'the end of the approver')
        wait_until(lambda: len(self.lines()) == 2, 'the log')
        self.assertEqual(self.decisions()[-1], ('p', 'ask', 'abort', 'none', []))

    def test_hooks_come_before_the_client(self):
        hook = self.program('grep -q yes && echo \'{"decision":"approved"}\'; true')[len('program:'):]
        c = self.asked(conf='permission_hook = "%s"\n' % hook)
        self.assertEqual(c.run(['printf', 'yes'], 'a').stdout, b'yes')
        self.assertEqual(c.questions, [])
        self.assertRefused(c.try_start('b', ['printf', 'perhaps'], 'denied'), BY_USER)
        plain = self.srv.session()  # which has nobody to ask, but the hook
        self.assertEqual(plain.run(['printf', 'yes'], 'a').stdout, b'yes')
        self.assertEqual(plain.start_error('b', ['printf', 'perhaps'])['code'], -32600)
        self.assertEqual([a[3] for a in self.decisions()][:2], ['hook', 'user'])

    def test_a_start_at_its_hook_can_be_withdrawn(self):
        gate = Gate(self.scratch())
        hook = self.program(gate.wait)[len('program:'):]
        c = self.asked(conf='permission_hook = "%s"\n' % hook)
        request = c.post_start('p', ['printf', 'x'])
        self.assertError(c.error('process/read', {'processId': 'p'}), -32600, 'process id p is starting')
        self.assertTrue(c.terminate('p'))
        self.assertRefused(c.reply(request), 'process p start was cancelled')
        c.post_start('p', ['printf', 'x'])
        c.close()
        wait_until(lambda: len(self.lines()) == 2, 'the log')

    def test_rules_that_change_hold_for_sessions_old_and_new(self):
        c = self.asked(policy='on-request', rules='')
        c.run(['true'], 'a')
        path = os.path.join(self.home, 'more.rules')
        with open(path + '.new', 'w') as f:
            f.write('prefix_rule(pattern=["true"], decision="forbidden", justification="no truth")\n')
        os.rename(path + '.new', path)

        def refused(c=c):
            reply = c.reply(c.post_start('x%d' % c.ids, ['true']))
            return reply.get('error')
        error = wait_until(refused, 'the new rules', step=0.05)
        self.assertError(error, -32600, '`true` rejected: no truth')
        self.assertError(self.dial().greet().start_error('a', ['true']), -32600, '`true` rejected: no truth')

    def test_an_audit_log_that_cannot_be_written_stops_everything(self):
        path = os.path.join(self.scratch(), 'file')
        with open(path, 'w'):
            pass
        c = self.asked(conf='audit_log = "%s/audit.jsonl"\n' % path)
        error = c.start_error('p', ['echo', 'safe'])
        self.assertEqual(error['code'], -32603)
        self.assertIn('audit log: ', error['message'])
        request = c.post_start('q', ['printf', 'ran'])
        c.decide(c.question()[0], 'approved')
        self.assertIn('audit log: ', c.reply(request)['error']['message'])
        os.unlink(path)
        os.mkdir(path)
        self.assertStarted(c.try_start('r', ['printf', 'ran'], 'approved'), 'r')
        logged = [line for line in self.srv.stderr().splitlines() if 'audit log: ' in line]
        self.assertEqual([line.split()[-1] for line in logged], ['written', 'start'], logged)

    def test_no_confined_command_reaches_the_log(self):
        c = self.asked(policy='never')
        for name in ('a', 'b'):
            done = c.run(['flock', '-n', self.audit, 'cat', self.audit], name, sandbox=READ_ONLY)
            self.assertNotEqual(done.exit_code, 0)
            self.assertEqual(done.stdout, b'')
        self.assertEqual(len(self.lines()), 2)

    def test_the_configuration_names_the_approver(self):
        self.judge_configured = self.scratch()
        with open(os.path.join(self.judge_configured, 'sallyport.conf'), 'w') as f:
            f.write('approver = "client"\n')
        os.chmod(os.path.join(self.judge_configured, 'sallyport.conf'), 0o600)
        self.srv = self.server('--approve', 'untrusted', env={'SALLYPORT_HOME': self.judge_configured})
        self.assertStarted(self.dial().greet().try_start('p', ['printf', 'ran'], 'approved'), 'p')


class Documented(Judged):
    def test_every_judged_example_is_as_shown(self):
        self.judge()
        c, asked, count = self.dial(), None, 0
        for words, body in fences(read('docs/PROTOCOL.md')):
            if words[:1] != ['judged']:
                continue
            text = json.loads(body)
            count += 1
            if words[1] == 'question':
                want = {'id': text['id'], 'params': dict(text['params'])}
                number, q = c.question()
                want['params']['started_at_ms'] = q['started_at_ms']
                q.pop('without_sandbox', None)
                self.assertEqual({'id': number, 'params': q}, want)
            elif words[1] == 'response':
                self.assertEqual(c.reply(asked), text)
            else:
                self.assertIn(words[1], ('request', 'answer'))
                c.send_raw(body.strip().encode())
                if text.get('method') == 'initialize':
                    c.result(text['id'])
                    c.send({'method': 'initialized'})
                asked = text['id'] if words[1] == 'request' else asked
        self.assertEqual(count, 5)


@ours_only
class CommandLine(Case):
    def serve(self, *words, env=None):
        run = subprocess.run([PROGRAM, 'serve', *words], capture_output=True, timeout=wire.DEADLINE,
                             env=dict({k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')},
                                      PATH='/usr/bin:/bin', SALLYPORT_HOME=self.scratch(), **(env or {})))
        self.assertEqual(run.stdout, b'')
        return run.returncode, run.stderr.decode()

    def test_bad_values(self):
        rules = os.path.join(self.scratch(), 'bad.rules')
        for words, status, part in (
                (['--approve', 'sometimes'], 1, 'sometimes'),
                (['--approve', 'never', '--approver', 'terminal'], 1, 'a server asks nobody at a terminal'),
                (['--approve', 'never', '--approver', 'me'], 1, '--approver: `me` is not deny, program:PATH, client or console'),
                (['--approve', 'never', '--approver', 'program:none'], 1, 'program:none'),
                (['--approve', 'never', '--approver', 'program:/site/x'], 1, '/site/x'),
                (['--approve', 'never', '--rules', rules], 1, rules),
                (['--rules', rules], 2, '--rules and --approver judge nothing without --approve'),
                (['--approver', 'deny'], 2, '--rules and --approver judge nothing without --approve')):
            code, err = self.serve(*words)
            self.assertEqual(code, status, err)
            self.assertIn(part, err)

    def test_a_terminal_in_the_configuration_is_refused_too(self):
        code, err = self.serve('--approve', 'never', env={'SALLYPORT_APPROVER': 'terminal'})
        self.assertEqual(code, 1)
        self.assertIn('a server asks nobody at a terminal', err)


@ours_only
class Unjudged(Case):
    """Without --approve nothing is different, whatever the configuration says."""

    def test_everything_starts(self):
        home = self.scratch()
        os.mkdir(os.path.join(home, 'rules'))
        with open(os.path.join(home, 'rules', 'x.rules'), 'w') as f:
            f.write('prefix_rule(pattern=["printf"], decision="forbidden")\n')
        self.srv = self.server(env={'SALLYPORT_HOME': home, 'SALLYPORT_APPROVAL_POLICY': 'never'})
        for capabilities in ({'approvals': True}, [], 'any', {'approvals': 1}):
            c = Asked(WebSocket.connect(self.srv.address), self.srv).greet(capabilities=capabilities)
            self.assertEqual(c.run(['printf', 'ran'], 'p', arg0='other').stdout, b'ran')
            self.assertEqual(c.questions, [])
            c.send({'id': 1, 'result': {'decision': 'approved'}})
            c.wait_end()
        self.assertEqual(os.listdir(home), ['rules'])


if __name__ == '__main__':
    tap.main()
