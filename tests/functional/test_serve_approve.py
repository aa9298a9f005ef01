# SPDX-License-Identifier: Apache-2.0
"""serve --approve --approver client: the client is asked by approval/request on its own connection, and what
happens while it thinks."""

import os
import signal

import tap
import wire
from asked import BY_USER, NOBODY, READ_ONLY, Asked, Judged
from wire import Lines, WebSocket, wait_until, write_program


class Answers(Judged):
    def test_approved_it_runs_once(self):
        c = self.asked()
        for name in ('one', 'two'):
            request = c.post_start(name, ['printf', 'ran'])
            number, q = c.question()
            self.assertEqual((q['type'], q['call_id'], q['environmentId'], q['command'], q['cwd']),
                             ('exec_approval_request', name, 'local', ['printf', 'ran'], self.srv.work))
            self.assertEqual(q['proposed_execpolicy_amendment'], ['printf', 'ran'])
            self.assertEqual((q['available_decisions'][0], q['available_decisions'][-1]), ('approved', 'abort'))
            self.assertFalse(c.answered(request))
            c.decide(number, 'approved')
            self.assertStarted(c.reply(request), name)
            self.assertEqual(c.wait_closed(name).stdout, b'ran')
        self.assertEqual(self.decisions(), [(name, 'ask', 'approved', 'user', ['free']) for name in ('one', 'two')])
        self.verify(2)

    def test_approved_for_session_is_not_asked_again_for_the_same(self):
        c = self.asked()
        other = os.path.join(self.srv.work, 'other')
        os.mkdir(other)
        self.assertStarted(c.try_start('a', ['printf', 'ran'], 'approved_for_session'), 'a')
        c.run(['printf', 'ran'], 'b')
        self.assertEqual(c.questions, [])
        for name, more in (('cwd', {'cwd': wire.file_uri(other)}), ('tty', {'tty': True}), ('argv', {})):
            argv = ['printf', 'ran'] if more else ['printf', 'run']
            self.assertRefused(c.try_start(name, argv, 'denied', **more), BY_USER)
        c2 = self.dial().greet()
        self.assertRefused(c2.try_start('a', ['printf', 'ran'], 'denied'), BY_USER)
        self.assertEqual(self.decisions()[1], ('b', 'ask', 'approved', 'cache', ['free']))

    def test_approved_for_session_outlives_the_front(self):
        c = self.asked('--keeper')
        self.assertStarted(c.try_start('a', ['printf', 'ran'], 'approved_for_session'), 'a')
        self.assertStarted(c.try_start('once', ['printf', 'once'], 'approved'), 'once')
        for i in range(2):
            old = self.srv.front
            os.kill(old, signal.SIGKILL)
            wait_until(lambda: self.srv.front not in (None, old), 'another front')
            c.abort()
            c = self.dial().greet(c.session_id)
            c.run(['printf', 'ran'], 'again%d' % i)
            self.assertEqual(c.questions, [])
            self.assertRefused(c.try_start('x%d' % i, ['printf', 'once'], 'denied'), BY_USER)
        other = self.dial().greet()
        self.assertRefused(other.try_start('a', ['printf', 'ran'], 'denied'), BY_USER)

    def test_what_was_approved_in_one_sandbox_is_not_in_another(self):
        c = self.asked()
        self.assertStarted(c.try_start('a', ['printf', 'ran'], 'approved_for_session', sandbox=READ_ONLY), 'a',
                           'linuxSeccomp')
        c.run(['printf', 'ran'], 'b', sandbox=READ_ONLY)
        self.assertRefused(c.try_start('c', ['printf', 'ran'], 'denied'), BY_USER)
        self.assertEqual([a[4] for a in self.decisions()], [['confined'], ['confined'], []])

    def test_an_environment_that_makes_it_another_command(self):
        c = self.asked(rules='prefix_rule(pattern=["printf"], decision="allow")\n')
        evil = os.path.join(self.srv.work, 'evil')
        os.mkdir(evil)
        for name in ('ls', 'printf'):
            write_program(os.path.join(evil, name), '#!/bin/sh\necho evil\n')
        path = '/usr/bin:/bin'
        for i, env in enumerate(({'PATH': path}, {'PATH': path + ':' + evil}, {'PATH': '/site:' + path, 'PAGER': 'cat'})):
            c.run(['ls'], 'ls%d' % i, env=env)
            c.run(['/bin/sh', '-c', 'printf x | wc -c'], 'sh%d' % i, env=env)
        self.assertEqual(c.questions, [])
        for i, (argv, env, shown) in enumerate((
                (['ls'], {'PATH': evil}, ['PATH=' + evil]),
                (['ls'], {'PATH': 'evil:' + path}, ['PATH=evil:' + path]),
                (['printf', 'x'], {'PATH': evil + ':' + path}, ['PATH=%s:%s' % (evil, path)]),
                (['/bin/sh', '-c', 'pwd; ls'], {'PATH': evil}, ['PATH=' + evil]),
                (['ls'], {'PATH': path, 'LD_PRELOAD': '/site/x.so'}, ['LD_PRELOAD=/site/x.so']),
                (['/bin/bash', '-lc', 'ls'], {'PATH': path, 'HOME': evil}, ['HOME=' + evil]))):
            request = c.post_start('q%d' % i, argv, env=env)
            number, q = c.question()
            self.assertEqual((q['command'], q['env']), (argv, shown))
            self.assertNotIn('proposed_execpolicy_amendment', q)
            c.decide(number, 'denied')
            self.assertRefused(c.reply(request), BY_USER)

    def test_a_known_program_in_a_path_that_is_relative(self):
        c = self.asked(rules='prefix_rule(pattern=["printf"], decision="allow")\n')
        os.mkdir(os.path.join(self.srv.work, 'bin'))
        for name in ('ls', 'printf'):
            write_program(os.path.join(self.srv.work, 'bin', name), '#!/bin/sh\necho evil\n')
        for i, path in enumerate(('.:/bin', ':/bin', '/bin:', '/bin::/usr/bin', '/bin:bin', '')):
            for k, script in enumerate(('cd bin && ls', 'cd bin && printf x')):
                name, argv = 'q%d.%d' % (i, k), ['/bin/sh', '-c', script]
                request = c.post_start(name, argv, env={'PATH': path})
                number, q = c.question()
                self.assertEqual((q['command'], q['env']), (argv, ['PATH=' + path]))
                c.decide(number, 'denied')
                self.assertRefused(c.reply(request), BY_USER)
        c.run(['/bin/sh', '-c', 'cd bin && ls'], 'fine', env={'PATH': '/usr/bin:/bin'})
        self.assertEqual(c.questions, [])

    def test_a_known_program_that_would_write(self):
        c = self.asked()
        for name in ('in', 'out'):
            with open(os.path.join(self.srv.work, name), 'w') as f:
                f.write('a\na\n')
        for i, argv in enumerate((['uniq', 'in', 'out'], ['uniq', '-c', 'in', 'out'], ['uniq', '--', '-', 'out'])):
            self.assertRefused(c.try_start('q%d' % i, argv, 'denied'), BY_USER)
        self.assertEqual(c.run(['uniq', '-c', 'in'], 'fine').stdout.split(), [b'2', b'a'])
        self.assertEqual(c.questions, [])

    def test_variables_that_steer_programs(self):
        c = self.asked()
        for i, name in enumerate(('OPENSSL_CONF', 'MAKEFILES', 'GNUMAKEFLAGS', 'GOFLAGS', 'CARGO_HOME', 'RUSTC_WRAPPER',
                                  'npm_config_script_shell', 'NPM_CONFIG_PREFIX', 'KUBECONFIG', 'DOCKER_CONFIG',
                                  'CURL_HOME', 'LUA_INIT_5_4', 'PERLLIB', 'DOTNET_STARTUP_HOOKS', 'FPATH')):
            request = c.post_start('q%d' % i, ['ls'], env={'PATH': '/usr/bin:/bin', name: '/site/x'})
            number, q = c.question()
            self.assertEqual(q['env'], [name + '=/site/x'])
            c.decide(number, 'denied')
            self.assertRefused(c.reply(request), BY_USER)

    def test_a_path_stands_for_a_name_if_it_is_the_same_file(self):
        c = self.asked(rules='prefix_rule(pattern=["printf"], decision="allow")\n')
        write_program(os.path.join(self.srv.work, 'printf'), '#!/bin/sh\necho evil\n')
        for i, path in enumerate((os.path.join(self.srv.work, 'printf'), '/proc/self/cwd/printf', '/nowhere/printf')):
            self.assertRefused(c.try_start('q%d' % i, [path, 'x'], 'denied', env={'PATH': '/usr/bin:/bin'}), BY_USER)
        for i, path in enumerate(('printf', '/usr/bin/printf', '/bin/printf')):
            c.run([path, 'x'], 'r%d' % i, env={'PATH': '/usr/bin:/bin'})
        self.assertEqual(c.questions, [])

    def test_an_approval_is_for_the_environment_that_it_was_given_for(self):
        c = self.asked()
        argv = ['/bin/sh', '-c', 'printf ran > "$OUT"']
        env = {'PATH': '/usr/bin:/bin', 'OUT': '/dev/null'}
        self.assertStarted(c.try_start('a', argv, 'approved_for_session', env=env), 'a')
        c.run(argv, 'b', env=dict(env, COLUMNS='80'))
        self.assertEqual(c.questions, [])
        for i, more in enumerate(({'PATH': '/site/other'}, {'LD_PRELOAD': '/site/x.so'}, {'ENV': '/site/rc'})):
            self.assertRefused(c.try_start('c%d' % i, argv, 'denied', env=dict(env, **more)), BY_USER)

    def test_the_memory_outlives_a_connection_and_ends_with_the_session(self):
        c = self.asked('--session-ttl', '60')
        self.assertStarted(c.try_start('a', ['printf', 'ran'], 'approved_for_session'), 'a')
        c.close()
        again = self.resume(c.session_id)
        again.run(['printf', 'ran'], 'b')
        again.send({'id': 99, 'method': 'session/end'})
        again.wait_end()
        self.assertRefused(self.dial().greet().try_start('a', ['printf', 'ran'], 'denied'), BY_USER)

    def test_an_accepted_rule_is_kept(self):
        c = self.asked()
        self.assertStarted(c.try_start('a', ['printf', 'ran'], {'approved_execpolicy_amendment': {
            'proposed_execpolicy_amendment': ['printf', 'ran']}}), 'a')
        with open(os.path.join(self.home, 'rules', 'default.rules')) as f:
            self.assertEqual(f.read(), 'prefix_rule(pattern=["printf", "ran"], decision="allow")\n')
        c.run(['printf', 'ran', 'x'], 'b')
        self.assertEqual(c.questions, [])

    def test_refusals(self):
        c = self.asked()
        for i, (decision, text) in enumerate((
                ('denied', BY_USER), ({'denied': {'rejection': 'not on a Sunday'}}, 'not on a Sunday'),
                ({'denied': {'rejection': 'rejected by user'}}, BY_USER), ('abort', BY_USER), ('cancel', BY_USER),
                ('timed_out', 'approval request timed out'), ('maybe', BY_USER), ('', BY_USER), (None, BY_USER),
                (1, BY_USER), (True, BY_USER), (['approved'], BY_USER), ({}, BY_USER), ({'approved': {}}, BY_USER),
                ({'approved_execpolicy_amendment': {'proposed_execpolicy_amendment': ['rm']}}, BY_USER))):
            with self.subTest(str(decision)):
                self.assertRefused(c.try_start('p%d' % i, ['printf', 'ran'], decision), text)
                self.assertError(c.error('process/read', {'processId': 'p%d' % i}), -32600,
                                 'unknown process id p%d' % i)
        self.assertEqual({a[4] == [] for a in self.decisions()}, {True})
        self.verify(15)

    def test_a_long_refusal_is_told_whole(self):
        c = self.asked()
        text = 'no, ' + 'really ' * 300 + '\u00e9'
        self.assertRefused(c.try_start('p', ['printf', 'ran'], {'denied': {'rejection': text}}), text)

    def test_a_result_that_is_no_object_is_a_denial(self):
        c = self.asked()
        for i, result in enumerate((None, 'approved', 1, [], ['approved'], {}, {'x': 'approved'}, True)):
            request = c.post_start('p%d' % i, ['printf', 'ran'])
            number, _ = c.question()
            c.send({'id': number, 'result': result})
            self.assertRefused(c.reply(request), BY_USER)

    def test_an_error_is_as_good_as_nobody(self):
        c = self.asked()
        request = c.post_start('p', ['printf', 'ran'])
        number, _ = c.question()
        c.send({'id': number, 'error': {'code': -32601, 'message': 'what?'}})
        self.assertRefused(c.reply(request), NOBODY)
        self.assertStarted(c.try_start('p', ['printf', 'ran'], 'approved'), 'p')

    def test_a_client_that_cannot_answer_is_not_asked(self):
        self.judge()
        for i, capabilities in enumerate(({}, {'approvals': False}, None, {'other': True})):
            c = self.dial().greet(capabilities=capabilities)
            self.assertError(c.start_error('p', ['printf', 'ran']), -32600, NOBODY)
            self.assertEqual(c.run(['echo', 'safe'], 'q').stdout, b'safe\n')
            self.assertEqual(c.questions, [])
        plain = self.srv.session()
        self.assertError(plain.start_error('p', ['printf', 'ran']), -32600, NOBODY)
        for capabilities in ([], {'approvals': 1}, {'approvals': None}, 'approvals'):
            self.assertError(self.dial().error('initialize', {'clientName': 'x', 'capabilities': capabilities}), -32602)
        self.assertEqual(self.decisions()[0], ('p', 'forbidden', 'denied', 'config', []))
        # what a session's client can do is a matter of its connection
        c = self.dial().greet(capabilities={})
        c.close()
        again = self.resume(c.session_id)
        self.assertStarted(again.try_start('p', ['printf', 'ran'], 'approved'), 'p')

    def test_two_questions_answered_in_reverse_order(self):
        c = self.asked()
        first, second = c.post_start('one', ['printf', '1']), c.post_start('two', ['printf', '2'])
        (one, q1), (two, q2) = c.question(), c.question()
        self.assertEqual((one, two, q1['call_id'], q2['call_id']), (1, 2, 'one', 'two'))
        c.decide(two, {'denied': {'rejection': 'not two'}})
        self.assertRefused(c.reply(second), 'not two')
        self.assertFalse(c.answered(first))
        c.decide(one, 'approved')
        self.assertStarted(c.reply(first), 'one')
        self.assertEqual(c.wait_closed('one').stdout, b'1')

    def test_numbers_are_the_servers_own(self):
        c = self.asked()
        request = c.post('process/start', c.start_params('p', ['printf', 'ran']), request_id=1)
        number, _ = c.question()
        self.assertEqual(number, 1)
        c.decide(number, 'approved')
        self.assertStarted(c.reply(request), 'p')
        other = self.dial().greet()
        other.post_start('p', ['printf', 'ran'])
        self.assertEqual(other.question()[0], 1)

    def test_over_lines(self):
        path = os.path.join(self.scratch(), 'socket')
        self.judge(listen='unix://' + path)
        for transport in (Lines.connect(path), WebSocket.connect(path)):
            c = Asked(transport, self.srv).greet()
            self.assertRefused(c.try_start('a', ['printf', 'ran'], {'denied': {'rejection': 'no'}}), 'no')
            self.assertStarted(c.try_start('a', ['printf', 'ran'], 'approved'), 'a')
            self.assertEqual(c.wait_closed('a').stdout, b'ran')

    def test_over_stdio(self):
        self.judge(listen='stdio')
        c = Asked(Lines(self.srv.out), self.srv).greet()
        self.assertRefused(c.try_start('a', ['printf', 'ran'], 'abort'), BY_USER)
        self.assertStarted(c.try_start('a', ['printf', 'ran'], 'approved'), 'a')
        self.assertEqual(c.wait_closed('a').stdout, b'ran')
        c.post_start('open', ['printf', 'ran'])
        c.question()

    def test_the_sandbox_is_the_clients_choice(self):
        c = self.asked(rules='prefix_rule(pattern=["sh"], decision="allow")\nprefix_rule(pattern=["touch"], decision="allow")\n')
        done = c.run(['touch', 'x'], 'a', sandbox=READ_ONLY)
        self.assertNotEqual(done.exit_code, 0)
        self.assertFalse(os.path.exists(os.path.join(self.srv.work, 'x')))
        self.assertEqual(c.run(['touch', 'y'], 'b').exit_code, 0)
        self.assertEqual(c.questions, [])
        self.assertEqual(self.decisions(), [('a', 'skip', 'approved', 'rule', ['confined']),
                                            ('b', 'skip', 'approved', 'rule', ['free'])])
        self.assertNotIn('without a sandbox', self.srv.stderr())
        self.assertStarted(c.try_start('c', ['printf', 'x'], 'approved', sandbox=READ_ONLY), 'c', 'linuxSeccomp')

    def test_all_of_a_start_that_waited_arrives(self):
        c = self.asked()
        request = c.post_start('p', ['/bin/sh', '-c', 'echo "$0 $#" "$X" $(pwd); cat; exit 3', 'a', '', 'c d'],
                               env={'X': 'y z', 'PATH': '/usr/bin:/bin'}, pipeStdin=True, arg0='/other/sh')
        number, q = c.question()
        self.assertEqual(q['command'][3:], ['a', '', 'c d'])
        for i in range(100):  # what it says is not where it was any more
            c.error('process/read', {'processId': 'x' * 3000})
        c.decide(number, 'approved')
        self.assertStarted(c.reply(request), 'p')
        c.write('p', b'in\n')
        c.request('process/closeStdin', {'processId': 'p'})
        p = c.wait_closed('p')
        self.assertEqual((p.stdout, p.exit_code), (b'a 2 y z %s\nin\n' % self.srv.work.encode(), 3))

    def test_a_terminal_of_a_size(self):
        c = self.asked()
        self.assertStarted(c.try_start('p', ['stty', 'size'], 'approved', tty=True, rows=7, cols=77), 'p')
        self.assertEqual(c.wait_closed('p').pty, b'7 77\r\n')

    def test_another_name_for_the_program_is_refused(self):
        c = self.asked()
        for arg0 in ('rm', '', '/bin/rm', '--printf', 'printf/'):
            self.assertError(c.start_error('p', ['/usr/bin/printf', 'x'], arg0=arg0), -32602,
                             'this server judges commands: arg0 must be the name of the program')
        for arg0 in ('printf', '-printf', './printf'):
            self.assertStarted(c.try_start(arg0, ['/usr/bin/printf', 'x'], 'approved', arg0=arg0), arg0)

    def test_a_directory_that_is_not_utf_8(self):
        c = self.asked()
        folder = os.path.join(self.srv.work.encode(), b'\xff\x1b')
        os.mkdir(folder)
        request = c.post_start('p', ['pwd', '-W'], cwd=wire.file_uri(self.srv.work) + '/%FF%1B')
        self.assertEqual(c.wait_for(lambda: c.answered(request) or c.questions and 2), True)  # pwd is known to be safe
        request = c.post_start('q', ['printf', 'ran'], cwd=wire.file_uri(self.srv.work) + '/%FF%1B')
        number, q = c.question()
        self.assertEqual(q['cwd'], self.srv.work + '/\ufffd\x1b')
        c.decide(number, 'approved')
        self.assertStarted(c.reply(request), 'q')


class Waiting(Judged):
    def test_others_go_on(self):
        c = self.asked()
        request = c.post_start('p', ['printf', 'ran'])
        number, _ = c.question()
        self.assertEqual(c.run(['echo', 'meanwhile'], 'q').stdout, b'meanwhile\n')
        self.assertError(c.error('process/read', {'processId': 'p', 'waitMs': 60000}), -32600, 'process id p is starting')
        self.assertError(c.error('process/resize', {'processId': 'p', 'rows': 1, 'cols': 1}), -32600,
                         'process id p is starting')
        self.assertError(c.error('process/attach', {'sessionId': c.session_id, 'processId': 'p'}), -32600)
        self.assertEqual(c.write('p', b'x'), 'starting')
        self.assertEqual(c.request('process/closeStdin', {'processId': 'p'}), {'status': 'starting'})
        self.assertEqual(c.signal('p'), {})
        listed = c.request('process/list')
        self.assertEqual([p['processId'] for p in listed['processes']], ['q'])
        self.assertFalse(c.answered(request))
        c.decide(number, 'approved')
        self.assertStarted(c.reply(request), 'p')

    def test_a_second_start_of_that_name_neither_asks_nor_starts(self):
        c = self.asked()
        request = c.post_start('p', ['printf', 'ran'])
        number, _ = c.question()
        for argv in (['printf', 'ran'], ['echo', 'safe'], ['printf', 'other']):
            self.assertError(c.start_error('p', argv), -32600, 'process p already exists')
        c.decide(number, 'approved')
        self.assertStarted(c.reply(request), 'p')
        self.assertEqual(c.wait_closed('p').stdout, b'ran')
        self.assertEqual(c.questions, [])
        self.assertError(c.start_error('p', ['printf', 'ran']), -32600, 'process p already exists')

    def test_terminate_withdraws_the_question(self):
        c = self.asked()
        for who in (c, self.dial().greet()):
            request = c.post_start('p', ['printf', 'ran'])
            number, _ = c.question()
            self.assertEqual(who.request('process/terminate', {'processId': 'p', 'sessionId': c.session_id}),
                             {'running': True})
            self.assertRefused(c.reply(request), 'process p start was cancelled')
            c.decide(number, 'approved')  # too late, and no harm
            self.assertFalse(c.terminate('p'))
            self.assertError(c.error('process/read', {'processId': 'p'}), -32600, 'unknown process id p')
        self.assertEqual(self.decisions(), [('p', 'ask', 'abort', 'none', [])] * 2)
        self.assertStarted(c.try_start('p', ['printf', 'ran'], 'approved'), 'p')
        self.verify(3)

    def test_a_connection_that_closes_takes_its_questions_along(self):
        proof = os.path.join(self.scratch(), 'proof')
        for how in ('close', 'abort'):
            c = self.asked()
            c.post_start('p', ['touch', proof])
            c.question()
            c.post_start('q', ['printf', 'ran'])
            c.question()
            getattr(c, how)()
            wait_until(lambda: os.path.exists(self.audit) and len(self.lines()) == 2, 'the log')
            again = self.resume(c.session_id)
            self.assertError(again.error('process/read', {'processId': 'p'}), -32600, 'unknown process id p')
            self.assertEqual(again.request('process/list')['processes'], [])
            again.decide(1, 'approved')  # asked on another connection, never on this one
            again.wait_end()
            third = self.resume(c.session_id)
            self.assertEqual(third.questions, [])
            self.assertStarted(third.try_start('q', ['printf', 'ran'], 'approved'), 'q')
            self.assertEqual({a[:4] for a in self.decisions()[:2]}, {('p', 'ask', 'abort', 'none'), ('q', 'ask', 'abort', 'none')})
            self.verify(3)
        self.assertFalse(os.path.exists(proof))

    def test_the_end_of_the_session_too(self):
        c = self.asked()
        c.post_start('p', ['printf', 'ran'])
        c.question()
        self.assertEqual(c.request('session/end'), {})
        c.wait_end()
        wait_until(lambda: os.path.exists(self.audit) and len(self.lines()) == 1, 'the log')
        self.assertEqual(self.decisions(), [('p', 'ask', 'abort', 'none', [])])

    def test_the_end_of_the_server_too(self):
        c = self.asked()
        for i in range(10):
            c.post_start('p%d' % i, ['printf', 'ran'])
            c.question()
        self.srv.stop()
        self.assertEqual([a[2] for a in self.decisions()], ['abort'] * 10)
        self.verify(10)

    def test_a_deadline(self):
        c = self.asked(conf='approval_timeout_s = 1\n')
        request = c.post_start('p', ['printf', 'ran'])
        number, _ = c.question()
        self.assertRefused(c.reply(request), 'approval request timed out')
        c.decide(number, 'approved')  # ignored
        self.assertError(c.error('process/read', {'processId': 'p'}), -32600, 'unknown process id p')
        self.assertEqual(self.decisions(), [('p', 'ask', 'timed_out', 'config', [])])

    def test_at_most_64_are_open(self):
        c = self.asked()
        requests = [c.post_start('p%d' % i, ['printf', str(i)]) for i in range(64)]
        numbers = [c.question()[0] for _ in requests]
        error = c.start_error('more', ['printf', 'x'])
        self.assertError(error, -32603, 'approval required, but too many questions of this session are open; '
                                        'wait for some answers')
        self.assertEqual(self.decisions()[-1], ('more', 'ask', 'denied', 'config', []))  # nobody was asked
        self.assertEqual(c.run(['echo', 'safe'], 'safe').stdout, b'safe\n')
        other = self.dial().greet()
        self.assertStarted(other.try_start('p0', ['printf', 'x'], 'approved'), 'p0')
        self.assertEqual(c.questions, [])
        c.decide(numbers.pop(0), 'approved')
        self.assertStarted(c.reply(requests.pop(0)), 'p0')
        self.assertStarted(c.try_start('more', ['printf', 'x'], 'approved'), 'more')
        for number, request in reversed(list(zip(numbers, requests))):
            c.decide(number, 'denied')
            self.assertRefused(c.reply(request), BY_USER)
        self.verify(64 + 4)

    def test_hooks_do_not_work_on_more_than_64_either(self):
        hook = write_program(os.path.join(self.scratch(), 'hook'), '#!/bin/sh\nexec sleep 1000\n')
        c = self.asked(conf='permission_hook = "%s"\n' % hook)
        requests = [c.post_start('p%d' % i, ['printf', str(i)]) for i in range(80)]
        for request in requests[64:]:
            self.assertError(c.reply(request)['error'], -32603, 'approval required, but too many questions of this '
                                                                'session are open; wait for some answers')
        self.assertFalse(any(c.answered(request) for request in requests[:64]))
        self.assertEqual(self.decisions(), [('p%d' % i, 'ask', 'denied', 'config', []) for i in range(64, 80)])

    def test_what_waits_is_bounded_in_bytes(self):
        c = self.asked()
        for i in range(6):
            c.post_start('p%d' % i, ['printf', 'ran'], env={'X': 'x' * (10 << 20)})
            c.question()
        self.assertError(c.start_error('more', ['printf', 'ran'], env={'X': 'x' * (10 << 20)}), -32603,
                         'requests that wait on this connection hold too much memory; wait for some answers')
        self.assertStarted(c.try_start('small', ['printf', 'ran'], 'approved'), 'small')
        self.assertTrue(c.terminate('p0'))
        c.post_start('more', ['printf', 'ran'], env={'X': 'x' * (10 << 20)})
        c.question()

    def test_a_question_that_is_too_long_is_not_put(self):
        c = self.asked()
        self.assertError(c.start_error('p', ['printf', 'x' * (6 << 20)]), -32600,
                         'approval required, but no person answered: the question could not be sent to the client. Name one more '
                         'approver (--approver), allow it by a rule, or change the approval policy')
        self.assertEqual(c.questions, [])

    def test_a_client_that_does_not_read_is_no_trouble(self):
        self.judge()
        c = self.dial().greet()
        word = 'y' * 200000
        for i in range(8):
            c.send({'id': 1000 + i, 'method': 'process/start', 'params': c.start_params('p%d' % i, ['printf', word])}, False)
        other = self.dial().greet()
        self.assertStarted(other.try_start('p', ['printf', 'ran'], 'approved'), 'p')
        for _ in range(8):
            c.decide(c.question()[0], 'denied')
        for i in range(8):
            self.assertRefused(c.reply(1000 + i), BY_USER)


if __name__ == '__main__':
    tap.main()
