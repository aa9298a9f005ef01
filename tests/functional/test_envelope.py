# SPDX-License-Identifier: Apache-2.0
"""The JSON-RPC dialect: shapes, ids, the strictness of the parser, the order of checks, and which
messages end a connection."""

import json

import tap
from server import Case, ours_only

STATUS = '"method":"environment/status"'


class Ids(Case):
    def test_ids_come_back_with_their_type(self):
        c = self.session()
        for one in (0, -1, 7, 2**63 - 1, -2**63, '', '7', 'x' * 2000, 'ünï \U0001f600', '\u0000\n"\\'):
            c.send({'id': one, 'method': 'environment/status'})
            reply = c.reply(one)
            self.assertEqual(reply, {'id': one, 'result': {'status': 'ready'}})
            self.assertIs(type(reply['id']), type(one))

    def test_ids_of_other_types_are_malformed(self):
        c = self.session()
        for one in ('1.0', '1e3', 'null', 'true', 'false', '[]', '{}', '9223372036854775808',
                    '-9223372036854775809', '1.5', '18446744073709551615'):
            with self.subTest(id=one):
                c.malformed('{"id":%s,%s}' % (one, STATUS))
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_a_used_id_may_be_used_again(self):
        c = self.session()
        for _ in range(3):
            c.send({'id': 5, 'method': 'environment/status'})
        for _ in range(3):
            self.assertEqual(c.reply(5)['result'], {'status': 'ready'})


class Shapes(Case):
    def test_jsonrpc_and_unknown_members_are_ignored(self):
        c = self.session()
        for text in ('"jsonrpc":"2.0"', '"jsonrpc":null', '"jsonrpc":[1]', '"extra":{"id":5}',
                     '"result":5', '"error":{"code":1,"message":"x"}'):
            c.send_raw('{"id":1,%s,%s}' % (STATUS, text))
            self.assertEqual(c.reply(1)['result'], {'status': 'ready'}, text)

    def test_trace_is_accepted_or_makes_the_message_malformed(self):
        c = self.session()
        good = ('{}', '{"traceparent":null}', '{"traceparent":"00-%s-%s-01","tracestate":"a=b"}' % ('a' * 32, 'b' * 16),
                '{"traceparent":"no trace"}', '{"tracestate":null,"more":1}', 'null')
        for text in good:
            c.send_raw('{"id":1,%s,"trace":%s}' % (STATUS, text))
            self.assertEqual(c.reply(1)['result'], {'status': 'ready'}, text)
        for text in ('"x"', '5', 'true', '{"traceparent":5}', '{"tracestate":[]}'):
            with self.subTest(trace=text):
                c.malformed('{"id":1,%s,"trace":%s}' % (STATUS, text))

    def test_what_is_no_message_is_answered_with_id_minus_one(self):
        c = self.session()
        for text in ('', ' ', 'nul', '[]', '[{"id":1,%s}]' % STATUS, '5', '"x"', 'null', 'true', '{}', '{"id":1}',
                     '{"id":1,"method":5}', '{"id":1,"method":null}', '{"method":5}', '{"error":5,"id":1}',
                     '{"error":{"code":"x","message":"y"},"id":1}', '{"error":{"code":1},"id":1}',
                     '{"error":{"code":1,"message":"x"}}', '{"result":1}', '{"id":null,"result":1}'):
            with self.subTest(text=text):
                message = c.malformed(text)
                self.assertTrue(message.startswith(
                    'failed to parse websocket JSON-RPC message from exec-server websocket %s: '
                    % c.channel.local), message)
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_malformed_input_before_initialize_is_answered_too(self):
        c = self.server().connect()
        c.malformed('nonsense')
        self.assertEqual(c.handshake().fence(), {'status': 'ready'})


class Parser(Case):
    def test_json_is_strict(self):
        c = self.session()
        cases = ['{"id":1,%s,}', "{'id':1,%s}", '{"id":01,%s}', '{"id":1,%s} x', '{"id":1,%s}{}',
                 '{"id":1,%s,"x":NaN}', '{"id":1,%s,"x":.5}', '{"id":1,%s,"x":5.}', '{"id":1,%s,"x":+5}',
                 '{"id":1,%s,"x":[1,]}', '{"id":1,%s,"x":"\t"}', '{"id":1,%s,"x":"\\x41"}',
                 '{"id":1,%s,"x":"\\u12"}', '{"id":1,%s,"x":"\\ud800"}', '{"id":1,%s,"x":"\\udc00"}',
                 '{"id":1,%s,"x":"\\ud800\\u0041"}', '{"id":1,%s,"x":"\x00"}', '{"id":1,%s,"x":tru}',
                 '{"id":1,%s,"x":1e}', '{"id":1,%s,"x":"', '{"id":1,%s /* */}', '{"id":1,%s,"x":-}',
                 '{"id":1,%s,"\\ud800":1}', '\ufeff{"id":1,%s}', '{"id":1,%s,"x":0x10}']
        for text in cases:
            with self.subTest(text=text):
                c.malformed(text % STATUS)
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_white_space_around_tokens_is_fine(self):
        c = self.session()
        c.send_raw(' \t\r\n{ "id" : 1 , "method"\n:\t"environment/status" , "params" : { } } \r\n ')
        self.assertEqual(c.reply(1)['result'], {'status': 'ready'})

    def test_escapes_in_names_and_values_are_understood(self):
        c = self.session()
        c.send_raw('{"\\u0069d":1,"m\\u0065thod":"environment\\/st\\u0061tus","x":"\\ud83d\\ude00\\b\\f\\n\\r\\t\\\\"}')
        self.assertEqual(c.reply(1)['result'], {'status': 'ready'})

    def test_duplicate_keys_at_any_depth_are_refused(self):
        c = self.session()
        for text in ('{"id":1,"id":1,%s}', '{"id":1,%s,"method":"x"}', '{"id":1,%s,"x":{"a":1,"a":1}}',
                     '{"id":1,%s,"x":[{"y":{"a":1,"b":2,"a":3}}]}', '{"id":1,%s,"x":{"a":1,"\\u0061":2}}',
                     '{"id":1,%s,"params":{"":1,"":2}}'):
            with self.subTest(text=text):
                c.malformed(text % STATUS)

    def test_equal_keys_in_different_objects_are_fine(self):
        c = self.session()
        c.send_raw('{"id":1,%s,"x":[{"a":1},{"a":{"a":{"id":1}}}]}' % STATUS)
        self.assertEqual(c.reply(1)['result'], {'status': 'ready'})

    def test_a_quarter_million_keys_are_compared_in_reasonable_time(self):
        c = self.session()
        body = ','.join('"k%d":0' % i for i in range(262000))
        c.send_raw('{"id":1,%s,"x":{%s}}' % (STATUS, body))
        self.assertEqual(c.reply(1)['result'], {'status': 'ready'})
        c.malformed('{"id":1,%s,"x":{%s,"k0":1}}' % (STATUS, body))

    def test_nesting_of_127_is_accepted_and_128_refused(self):
        c = self.session()
        for opening, closing in (('[', ']'), ('{"a":', '}')):
            inner = '1' if opening != '[' else ''
            deep = lambda n: '{"id":1,%s,"x":%s%s%s}' % (STATUS, opening * n, inner, closing * n)
            c.send_raw(deep(126))
            self.assertEqual(c.reply(1)['result'], {'status': 'ready'})
            c.malformed(deep(127))
        c.malformed('[' * 1000000)
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_262144_values_are_accepted_and_one_more_refused(self):
        c = self.session()
        # the message object, id, method and the array are four
        many = lambda n: '{"id":1,%s,"x":[%s]}' % (STATUS, ','.join('0' * n))
        c.send_raw(many(262144 - 4))
        self.assertEqual(c.reply(1)['result'], {'status': 'ready'})
        c.malformed(many(262144 - 3))
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_unsigned_fields_take_plain_integers_only(self):
        c = self.session()
        for value in ('-1', '1.5', '1e2', '"1"', 'true', '18446744073709551616', '[]', '-0.0'):
            with self.subTest(value=value):
                c.send_raw('{"id":1,"method":"process/read","params":{"processId":"x","afterSeq":%s}}' % value)
                self.assertError(c.reply(1)['error'], -32602)
        for value in ('0', 'null', '18446744073709551615', '1'):
            with self.subTest(value=value):
                c.send_raw('{"id":1,"method":"process/read","params":{"processId":"x","afterSeq":%s}}' % value)
                self.assertError(c.reply(1)['error'], -32600, 'unknown process id x')

    def test_output_is_compact_and_not_escaped(self):
        c = self.session()
        raw = []
        receive = c.transport.receive
        c.transport.receive = lambda end: raw.append(receive(end)) or raw[-1]
        c.send({'id': 'é\U0001f600', 'method': 'environment/status'})
        c.reply('é\U0001f600')
        self.assertEqual(json.loads(raw[0]), {'id': 'é\U0001f600', 'result': {'status': 'ready'}})
        self.assertIn('é\U0001f600'.encode(), raw[0])
        self.assertNotIn(b' ', raw[0])


class Order(Case):
    def test_method_then_params_then_state(self):
        c = self.server().connect()
        self.assertError(c.error('no/such', {'x': 1}), -32601, 'exec-server stub does not implement `no/such` yet')
        self.assertError(c.error('process/start', {'processId': 5}), -32602)
        self.assertError(c.error('environment/status', {'x': 1}), -32602)
        self.assertError(c.error('process/terminate', {}), -32602)
        self.assertError(c.error('environment/status'), -32600)

    def test_unknown_methods_are_named_as_sent(self):
        c = self.session()
        for name in ('', 'x', 'Process/start', 'process/start ', 'initialized', 'process/output', 'ü`"'):
            self.assertError(c.error(name), -32601, 'exec-server stub does not implement `%s` yet' % name)

    @ours_only
    def test_methods_of_later_versions_are_unknown_and_not_advertised(self):
        c = self.session()
        for name in ('fs/watch', 'environment/reset', 'network/policyRequest', 'process/kill'):
            self.assertError(c.error(name, {}), -32601)
        for flag in ('networkProxyReviewDomains', 'credentialMasking', 'shellSnapshotV2',
                     'windowsMxc'):
            self.assertFalse(c.info['capabilities'].get(flag, False), flag)

    def test_params_of_a_wrong_type_do_not_decode(self):
        c = self.session()
        for method in ('process/read', 'process/write', 'process/signal', 'process/terminate', 'process/start'):
            for params in ('text', 5, True):
                self.assertError(c.error(method, params), -32602)
            c.send({'id': 'n', 'method': method, 'params': None})
            self.assertError(c.reply('n')['error'], -32602)
            self.assertError(c.error(method), -32602)

    def test_required_members_may_not_be_null_or_of_another_type(self):
        c = self.session()
        good = {'process/read': {'processId': 'x'},
                'process/terminate': {'processId': 'x'},
                'process/signal': {'processId': 'x', 'signal': 'interrupt'},
                'process/write': {'processId': 'x', 'chunk': '', 'writeId': '1'},
                'process/start': {'processId': 'x', 'argv': ['true'], 'cwd': 'file:///', 'env': {}, 'tty': False}}
        for method, params in good.items():
            for name in params:
                bad = dict(params)
                del bad[name]
                self.assertError(c.error(method, bad), -32602)
                for value in (None, 5, [[]]):
                    self.assertError(c.error(method, dict(params, **{name: value})), -32602)

    def test_replies_of_ordinary_requests_keep_their_order(self):
        c = self.session()
        ids = [c.post('environment/status') for _ in range(500)]
        for one in ids:
            c.result(one)
        self.assertEqual([i for i in c.arrival if isinstance(i, int)][-500:], ids)


class Ending(Case):
    def ends(self, message, initialized=True):
        srv = self.server()
        c = srv.session() if initialized else srv.connect()
        if initialized:
            c.fence()
        c.send(message)
        c.wait_end()
        self.assertEqual(c.replies, {}, 'no reply before the end')
        self.assertEqual(srv.session().fence(), {'status': 'ready'}, 'others are served')

    def test_an_unknown_notification_ends_the_connection(self):
        self.ends({'method': 'no/such'})

    def test_a_request_without_id_ends_the_connection(self):
        self.ends({'method': 'process/terminate', 'params': {'processId': 'p'}})

    def test_a_notification_before_initialize_ends_the_connection(self):
        self.ends({'method': 'environment/status'}, initialized=False)

    def test_an_unexpected_response_ends_the_connection(self):
        self.ends({'id': 1, 'result': {}})

    def test_an_unexpected_error_ends_the_connection(self):
        self.ends({'id': 'x', 'error': {'code': -32601, 'message': 'x'}})

    def test_a_null_result_is_a_response_too(self):
        self.ends({'id': 1, 'result': None})

    def test_the_session_survives_a_connection_ended_for_a_bad_message(self):
        c = self.session()
        c.start('p', ['sleep', '1000'])
        c.send({'method': 'no/such'})
        c.wait_end()
        again = self.srv.session(resume=c.session_id)
        self.assertFalse(again.read('p')['exited'])
        self.assertTrue(again.terminate('p'))


class Waiting(Case):
    @ours_only
    def test_a_long_poll_never_stalls_other_requests(self):
        for args in ((), ('--concurrent-requests', '1'), ('--concurrent-requests', '4')):
            c = self.session(*args)
            c.start('p', ['sleep', '1000'])
            polls = [c.post_read('p', waitMs=600000) for _ in range(20)]
            self.assertEqual(c.fence(), {'status': 'ready'})
            self.assertEqual(c.sh('echo hi').stdout, b'hi\n')
            self.assertFalse(any(c.answered(p) for p in polls))
            self.assertTrue(c.terminate('p'))
            for poll in polls:
                self.assertTrue(c.result(poll)['exited'])

    def test_a_long_poll_of_one_connection_does_not_stall_another(self):
        c = self.session()
        c.start('p', ['sleep', '1000'])
        c.post_read('p', waitMs=600000)
        self.assertEqual(self.srv.session().sh('echo hi').stdout, b'hi\n')

    @ours_only
    def test_requests_for_a_process_being_started_wait_for_the_start(self):
        c = self.session()
        for i in range(50):
            name = 'p%d' % i
            start = c.post_start(name, ['cat'], pipeStdin=True)
            write = c.post_write(name, b'x')
            read = c.post_read(name, waitMs=0)
            end = c.post('process/terminate', {'processId': name})
            self.assertEqual(c.result(start)['processId'], name)
            self.assertEqual(c.result(write), {'status': 'accepted'})
            self.assertIn('chunks', c.result(read))
            self.assertEqual(c.result(end), {'running': True})
            c.wait_closed(name)

    def test_concurrent_mode_serves(self):
        c = self.session('--concurrent-requests', '8')
        ids = [c.post_start('p%d' % i, ['sh', '-c', 'echo %d' % i]) for i in range(30)]
        for one in ids:
            c.result(one)
        for i in range(30):
            self.assertEqual(c.wait_closed('p%d' % i).stdout, b'%d\n' % i)


if __name__ == '__main__':
    tap.main()
