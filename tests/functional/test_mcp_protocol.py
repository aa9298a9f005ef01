# SPDX-License-Identifier: Apache-2.0
"""The protocol over lines: every method, error and rule of both eras, as whole messages."""

import itertools
import json
import signal

import tap
from mcp import LEGACY, META, MODERN, TASKS, meta
from mcp_wire import (ANY_TEXT, NOT_YET, SIGNED, TOOLS, VERSIONS, Wire, call, call_modern, complete, ended, error, initialize,
                      modern, plain, request, result, structured, text_of, welcome)
from wire import wait_until


class Modern(Wire):
    def test_discover(self):
        self.check(modern('d1', 'server/discover'), complete(
            'd1', supportedVersions=VERSIONS,
            capabilities={'tools': {}, 'logging': {}, 'extensions': {META + 'tasks': {}}}, instructions='WORDS', ttlMs=3600000,
            cacheScope='private'))

    def test_list(self):
        (first,) = self.said(modern(1, 'tools/list'))
        tools = first['result'].pop('tools')
        self.assertEqual(first, complete(1, ttlMs=3600000, cacheScope='private'))
        self.assertEqual([t['name'] for t in tools], TOOLS)
        for t in tools:
            schemas = ['inputSchema'] if t['name'] == 'resize_session' else ['inputSchema', 'outputSchema']
            loads = ['_meta'] if t['name'] in TOOLS[:2] else []
            self.assertEqual(sorted(t), sorted(['annotations', 'description', 'name', *schemas, *loads]))
            for schema in schemas:
                self.assertEqual(t[schema]['type'], 'object')
        self.assertEqual(self.said(modern(2, 'tools/list'))[0]['result']['tools'], tools)
        self.assertEqual(self.said(modern(3, 'tools/list', {'cursor': None}))[0]['result']['tools'], tools)

    def test_the_list_has_one_page(self):
        self.check(modern(1, 'tools/list', {'cursor': 'x'}),
                   error(1, -32602, 'unknown cursor: the list has one page'))

    def test_call(self):
        self.check(call_modern(1, 'exec_command', argv=['echo', 'hi']), complete(
            1, content=ended('hi\n'), structuredContent=structured('hi\n', 1), isError=False))
        self.check(call_modern(2, 'exec_command'), complete(
            2, content=text_of(
                'failed to parse function arguments: give `cmd` (a script for the shell) or `argv` (a program and its arguments, '
                'without a shell)'), isError=True))

    def test_cancelled(self):
        self.host.send(call_modern('c', 'exec_command', argv=['sleep', '600'], yield_time_ms=30000))
        wait_until(lambda: self.host.sessions(), 'the session')
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'c', 'reason': 'x'}})
        wait_until(lambda: [s['state'] for s in self.host.sessions().values()] == ['exited'], 'the end of its process')
        self.assertNotIn('"c"', self.host.answers)
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'c'}})
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 77}})
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': [{}]}})
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled'})

    def test_an_id_is_free_again_after_its_cancellation(self):
        for _ in range(3):
            self.host.send(call_modern('c', 'exec_command', argv=['sleep', '600'], yield_time_ms=30000))
            self.host.send({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'c'}})
        self.check(call_modern('c', 'exec_command', argv=['echo', 'hi']), complete(
            'c', content=ended('hi\n'), structuredContent=structured('hi\n', 1), isError=False))

    def test_listen(self):
        ack = {'jsonrpc': '2.0', 'method': 'notifications/subscriptions/acknowledged'}
        self.check(modern('s', 'subscriptions/listen', {'notifications': {'toolsListChanged': True, 'x': [1]}}),
                   {**ack, 'params': {'_meta': {META + 'subscriptionId': 's'}, 'notifications': {}}})
        self.check(modern(7, 'subscriptions/listen', {'notifications': {'taskIds': ['task-1', 'x', 3]}}, TASKS),
                   {**ack, 'params': {'_meta': {META + 'subscriptionId': 7}, 'notifications': {'taskIds': []}}})
        self.check(modern(8, 'subscriptions/listen', {'notifications': {'taskIds': []}}),
                   error(8, -32021, ANY_TEXT, data={'requiredCapabilities': TASKS}))
        for wrong in ({}, {'notifications': 1}, {'notifications': {'taskIds': 'x'}}):
            self.check_code(modern(9, 'subscriptions/listen', wrong, TASKS), -32602, 9)
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 's'}})
        del self.host.log[:]
        self.host.process.send_signal(signal.SIGTERM)
        self.host.until(lambda: self.host.ended, 'the end')
        self.assertEqual(plain(self.host.log), [
            result(7, resultType='complete', _meta={META + 'subscriptionId': 7, **SIGNED})])

    def test_tasks(self):
        for method in ('tasks/get', 'tasks/update', 'tasks/cancel'):
            for id in ('task-1', 'task-99', 'x', ''):
                self.check_code(modern(1, method, {'taskId': id, 'inputResponses': {}}, TASKS), -32602, 1)
            self.check_code(modern(1, method, {}, TASKS), -32602, 1)
            self.check(modern(1, method, {'taskId': 'x'}), error(1, -32021, ANY_TEXT, data={'requiredCapabilities': TASKS}))

    def test_methods_of_the_other_era_are_gone(self):
        for method in ('ping', 'initialize', 'logging/setLevel', 'resources/subscribe', 'resources/list', 'prompts/list',
                       'tasks/list', 'tasks/result', 'completion/complete', 'no/such', '', 'x' * 100, 'tools/call ',
                       'Tools/list', 'notifications/cancelled', 'elicitation/create'):
            self.check(modern(1, method, {'protocolVersion': LEGACY[0], 'capabilities': {}}),
                       error(1, -32601, 'unknown method: ' + method))
        (answer,) = self.said(modern(1, 'm' * 100000))
        self.assertLess(len(answer['error']['message']), 1000)

    def test_nothing_of_a_request_is_remembered(self):
        self.said(modern(1, 'tools/list'))
        self.check(request(2, 'tools/list', {}), error(2, -32602, NOT_YET))
        self.check(call(3, 'list_sessions'), error(3, -32602, NOT_YET))

    def test_tools_that_are_not_there(self):
        for name in ('no_such', '', 'exec_command ', 'EXEC_COMMAND', 'exec_command\u0000', 'ü' * 40):
            self.check_code(call_modern(1, name), -32602, 1)
        for params in ({}, {'name': 1}, {'name': None}, {'name': 'list_sessions', 'arguments': []},
                       {'name': 'list_sessions', 'arguments': 'x'}):
            self.check_code(modern(1, 'tools/call', params), -32602, 1)
        for more in ({'requestState': 1}, {'inputResponses': 'x'}):
            self.check_code(modern(1, 'tools/call', {'name': 'list_sessions', **more}), -32602, 1)

    def test_what_a_model_can_mend_is_a_result(self):
        for tool, arguments in (('exec_command', {'argv': []}), ('exec_command', {'cmd': 'x', 'argv': ['x']}),
                                ('exec_command', {'cmd': 7}), ('write_stdin', {'session_id': 4711}),
                                ('read_output', {'session_id': 4711}), ('signal_session', {'session_id': -1}),
                                ('apply_patch', {'input': 'x'}),
                                ('resize_session', {}), ('explain_denial', {}),
                                ('exec_command', {'argv': ['true'], 'workdir': '/no/such/directory'})):
            (answer,) = self.said(call_modern(1, tool, **arguments))
            self.assertTrue(answer['result']['isError'], (tool, arguments, answer))
            self.assertTrue(answer['result']['content'][0]['text'], answer)


class Meta(Wire):
    """What every modern request has to say."""

    def test_missing_keys(self):
        params = {'_meta': meta()}
        del params['_meta'][META + 'clientCapabilities']
        self.check(request(1, 'tools/list', params), error(
            1, -32602, 'params._meta: io.modelcontextprotocol/clientCapabilities is not there, or no object'))
        params = {'_meta': meta()}
        del params['_meta'][META + 'protocolVersion']
        for some in (params, {}, {'_meta': {}}, {'_meta': None}, {'_meta': 1}, None):
            self.check(request(1, 'tools/list', some), error(1, -32602, NOT_YET))

    def test_the_client_need_not_say_who_it_is(self):
        params = {'_meta': meta()}
        del params['_meta'][META + 'clientInfo']
        self.assertIn('result', self.said(request(1, 'tools/list', params))[0])
        params['_meta'][META + 'clientInfo'] = 7
        self.assertIn('result', self.said(request(1, 'tools/list', params))[0])

    def test_keys_of_the_wrong_kind(self):
        for key, value in itertools.product(('protocolVersion', 'clientCapabilities'), (None, 1, True, [], [1])):
            params = {'_meta': {**meta(), META + key: value}}
            self.check_code(request(1, 'tools/list', params), -32602, 1)
        self.check_code(request(1, 'tools/list', {'_meta': {**meta(), META + 'protocolVersion': {}}}), -32602, 1)

    def test_unknown_versions(self):
        for version in ('2026-07-29', '2099-01-01', '', 'x', LEGACY[0], MODERN + ' ', '2026-07-28\u0000'):
            self.check(modern(1, 'tools/list', version=version), error(
                1, -32022, 'unsupported protocol version', data={'supported': VERSIONS, 'requested': version}))
        (answer,) = self.said(modern(1, 'tools/list', version='v' * 100000))
        self.assertEqual(answer['error']['code'], -32022)
        self.assertLess(len(json.dumps(answer)), 1000)

    def test_the_version_comes_before_the_method(self):
        self.check_code(modern(1, 'no/such', version='2099-01-01'), -32022, 1)

    def test_what_else_may_be_there(self):
        more = {META + 'logLevel': 'debug', 'traceparent': '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
                'tracestate': 'a=b', 'baggage': 'c=d', 'com.example/x': {'y': [1]}}
        self.check(request(1, 'tools/call', {'name': 'exec_command', 'arguments': {'argv': ['echo', 'hi']},
                                             '_meta': {**meta(), **more}}),
                   complete(1, content=ended('hi\n'), structuredContent=structured('hi\n', 1), isError=False))

    def test_arrays(self):
        no = error(None, -32600, 'an array of messages: this version of the protocol has no batches')
        self.check([modern(1, 'tools/list')], no)
        self.check([modern(1, 'tools/list'), modern(2, 'tools/list')], no)
        self.check([1], no)
        self.check([], error(None, -32600, ANY_TEXT))


class Legacy(Wire):
    def test_every_version(self):
        for asked, given in [*zip(LEGACY, LEGACY), ('2099-01-01', LEGACY[0]), ('1999-01-01', LEGACY[0]), ('', LEGACY[0]),
                             (MODERN, LEGACY[0])]:
            self.check(initialize(1, asked), welcome(1, given))

    def test_initialize_needs_a_version(self):
        for params in (None, {}, {'protocolVersion': 1}, {'protocolVersion': None},
                       {'protocolVersion': LEGACY[0], 'capabilities': 1}):
            self.check_code(request(1, 'initialize', params), -32602, 1)
        self.check(request(2, 'tools/list'), error(2, -32602, NOT_YET))

    def test_what_each_version_knows_of(self):
        (newest,) = self.said(modern(1, 'tools/list'))
        for version in LEGACY:
            self.said(initialize(1, version))
            self.host.notify('notifications/initialized')
            tools = [dict(t) for t in newest['result']['tools']]
            for t in tools:
                if version < '2025-06-18':
                    t.pop('outputSchema', None)
                    t.pop('_meta', None)
                if version < '2025-03-26':
                    del t['annotations']
            self.check(request('l', 'tools/list'), result('l', tools=tools))
            more = {'structuredContent': structured('hi\n', 1)} if version >= '2025-06-18' else {}
            self.check(call('c', 'exec_command', argv=['echo', 'hi']),
                       result('c', content=ended('hi\n'), **more, isError=False))

    def test_ping_at_any_time(self):
        self.check(request(1, 'ping'), result(1))
        self.check(request(2, 'ping', {}), result(2))
        self.said(initialize(3, LEGACY[0]))
        self.check(request('p', 'ping', {'_meta': {'x': 1}}), result('p'))
        self.host.notify('notifications/initialized')
        self.check(request(4, 'ping'), result(4))

    def test_calls_before_initialized_are_answered(self):
        self.said(initialize(1, LEGACY[0]))
        self.check(call(2, 'list_sessions'), result(2, content=[{'type': 'text', 'text': ANY_TEXT}],
                                                    structuredContent={'sessions': []}, isError=False))

    def test_unknown_methods(self):
        self.said(initialize(1, LEGACY[0]))
        for method in ('no/such', 'server/discover', 'subscriptions/listen', 'tasks/get', 'tasks/list', 'resources/list',
                       'prompts/list', 'completion/complete', 'roots/list'):
            self.check(request(1, method, {}), error(1, -32601, 'unknown method: ' + method))

    def test_notifications_are_not_answered(self):
        for before in (True, False):
            for method in ('notifications/initialized', 'notifications/roots/list_changed', 'no/such', 'tools/list',
                           'initialize', 'ping', 'notifications/progress'):
                self.silent({'jsonrpc': '2.0', 'method': method, 'params': {'requestId': 1}})
            if before:
                self.said(initialize(1, LEGACY[0]))

    def test_responses_to_nothing_are_ignored(self):
        self.said(initialize(1, LEGACY[0], elicitation={}))
        for id in (1, 'elicit-1', 'x', None, -5):
            self.silent({'jsonrpc': '2.0', 'id': id, 'result': {'action': 'accept', 'content': {'decision': 'once'}}})
            self.silent({'jsonrpc': '2.0', 'id': id, 'error': {'code': 1, 'message': 'x'}})

    def test_cancelled(self):
        self.host.open()
        self.host.send(call('c', 'exec_command', argv=['sleep', '600'], yield_time_ms=30000))
        wait_until(lambda: self.host.sessions(), 'the session')
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'c'}})
        wait_until(lambda: [s['state'] for s in self.host.sessions().values()] == ['exited'], 'the end of its process')

    def test_initialize_again_is_a_new_beginning(self):
        self.said(initialize(1, '2025-03-26'))
        self.assertIsInstance(self.said([request(1, 'ping')])[0], list)
        self.check(initialize(2, '2025-06-18'), welcome(2, '2025-06-18'))
        self.check_code([request(1, 'ping')], -32600)


class Eras(Wire):
    def test_both_on_one_process(self):
        self.assertIn('supportedVersions', self.said(modern('d', 'server/discover'))[0]['result'])
        self.check(initialize('i', '2024-11-05'), welcome('i', '2024-11-05'))
        self.host.notify('notifications/initialized')
        self.check(call_modern('m', 'exec_command', argv=['echo', 'hi']), complete(
            'm', content=ended('hi\n'), structuredContent=structured('hi\n', 1), isError=False))
        self.check(call('l', 'exec_command', argv=['echo', 'hi']), result('l', content=ended('hi\n'), isError=False))
        self.check(modern('p', 'ping'), error('p', -32601, 'unknown method: ping'))
        self.check(request('p', 'ping'), result('p'))
        self.check_code(modern('v', 'tools/list', version='2024-11-05'), -32022, 'v')
        self.check(initialize('i', LEGACY[0]), welcome('i', LEGACY[0]))
        self.check(modern('n', 'initialize', {'protocolVersion': '2024-11-05'}),
                   error('n', -32601, 'unknown method: initialize'))
        self.assertIn('structuredContent', self.said(call('l', 'list_sessions'))[0]['result'])

    def test_a_session_of_one_is_known_to_the_other(self):
        session = self.host.call('exec_command', {'argv': ['cat'], 'tty': True, 'yield_time_ms': 250})['session_id']
        self.host.open()
        r = self.host.type(session, 'hello\n', until={'pattern': 'hello\\s+hello'})
        self.assertEqual(r['output'], 'hello\r\nhello\r\n')

    def test_open_calls_of_both(self):
        self.host.open()
        argv = {'argv': ['sh', '-c', 'read x'], 'tty': True, 'yield_time_ms': 30000}
        self.host.send(call('old', 'exec_command', **argv))
        self.host.send(call_modern('new', 'exec_command', **argv))
        wait_until(lambda: len(self.host.sessions()) == 2, 'both')
        for session in self.host.sessions():
            self.host.type(session, '\n')
        old, new = self.host.wait('old')['result'], self.host.wait('new')['result']
        self.assertNotIn('resultType', old)
        self.assertEqual(new['resultType'], 'complete')
        self.assertEqual(old['structuredContent']['exit_code'], new['structuredContent']['exit_code'])


class Batches(Wire):
    def setUp(self):
        super().setUp()
        self.said(initialize(0, '2025-03-26'))

    def test_answers_are_one_array(self):
        batch = [request(1, 'ping'), call(2, 'exec_command', argv=['echo', 'hi']), request('x', 'no/such'),
                 {'jsonrpc': '2.0', 'method': 'notifications/initialized'}, 7, {'jsonrpc': '2.0', 'id': 3}]
        (answers,) = self.said(batch)
        self.assertEqual(sorted(map(json.dumps, answers)), sorted(map(json.dumps, [
            result(1), result(2, content=ended('hi\n'), isError=False), error('x', -32601, 'unknown method: no/such'),
            error(None, -32600, 'the message is not an object'),
            error(3, -32600, 'the message has no method, no result and no error')])))

    def test_nothing_to_answer(self):
        self.silent([{'jsonrpc': '2.0', 'method': 'x'}, {'jsonrpc': '2.0', 'id': 1, 'result': {}}])
        self.check([], error(None, -32600, 'the batch is empty'))

    def test_what_has_no_place_in_one(self):
        for one in (initialize(1, LEGACY[0]), modern(1, 'tools/list')):
            (answers,) = self.said([one])
            self.assertEqual([a['error']['code'] for a in answers], [-32600])
        ((answer,),) = self.said([[request(1, 'ping')]])
        self.assertEqual((answer['id'], answer['error']['code']), (None, -32600))

    def test_too_many(self):
        (answers,) = self.said([request(n, 'ping') for n in range(256)])
        self.assertEqual(sorted(a['id'] for a in answers), list(range(256)))
        self.check_code([request(n, 'ping') for n in range(257)], -32600)

    def test_the_same_id_twice(self):
        self.host.sort_one = lambda m: None
        (answers,) = self.said([call(1, 'exec_command', argv=['sleep', '0.2']), call(1, 'list_sessions')])
        self.assertEqual([(a['id'], 'result' in a) for a in answers], [(1, False), (1, True)])

    def test_a_call_of_one_is_cancelled(self):
        self.host.send([call('a', 'exec_command', argv=['sleep', '600'], yield_time_ms=30000), request('b', 'ping')])
        wait_until(lambda: self.host.sessions(), 'the session')
        self.check({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'a'}}, [result('b')])
        self.host.send([call('a', 'exec_command', argv=['sleep', '600'], yield_time_ms=30000)])
        wait_until(lambda: len(self.host.sessions()) == 2, 'the session')
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'a'}})
        # ... and by itself
        (answers,) = self.said([call('a', 'exec_command', argv=['sleep', '600'], yield_time_ms=30000), request('b', 'ping'),
                                {'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'a'}}])
        self.assertEqual(answers, [result('b')])

    def test_progress_leaves_at_once(self):
        batch = [request(1, 'tools/call', {'name': 'exec_command', 'arguments': {'argv': ['true']},
                                           '_meta': {'progressToken': 't'}}), request(2, 'ping')]
        progress, answers = self.said(batch, 2)
        self.assertEqual((progress['method'], progress['params']['progressToken']), ('notifications/progress', 't'))
        self.assertEqual(sorted(a['id'] for a in answers), [1, 2])


class Progress(Wire):
    def call(self, token, **arguments):
        return request('c', 'tools/call', {'name': 'exec_command', 'arguments': arguments,
                                           '_meta': meta(progressToken=token)})

    def test_at_once_and_rising(self):
        for token in ('t', 7, '', 'ü', -(1 << 62), '"\\'):
            progress, answer = self.said(self.call(token, argv=['true']), 2)
            self.assertEqual(progress, {'jsonrpc': '2.0', 'method': 'notifications/progress',
                                        'params': {**progress['params'], 'progressToken': token, 'progress': 1}})
            self.assertEqual(answer['id'], 'c')

    def test_none_without_a_token_that_is_one(self):
        for token in (None, 1.5, True, [], {}, 't' * 1000):
            (answer,) = self.said(self.call(token, argv=['true']))
            self.assertEqual(answer['id'], 'c')

    def test_none_after_the_answer_nor_after_a_cancellation(self):
        self.host.send(self.call('t', argv=['sleep', '600'], yield_time_ms=30000))
        self.host.until(lambda: self.host.notifications, 'progress')
        wait_until(lambda: self.host.sessions(), 'the session')
        self.host.until(lambda: len(self.host.notifications) == 2, 'progress of its start')
        self.silent({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 'c'}})
        self.host.pump(0.5)
        self.assertEqual(len(self.host.notifications), 2)

    def test_other_methods_say_nothing(self):
        (answer,) = self.said(modern(1, 'tools/list', progressToken='t'))
        self.assertIn('result', answer)

if __name__ == '__main__':
    tap.main()
