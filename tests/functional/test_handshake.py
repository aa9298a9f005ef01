# SPDX-License-Identifier: Apache-2.0
"""initialize, initialized, the states between them, and what the server tells about itself."""

import os
import pwd
import re

import tap
from server import Case, ours_only
from wire import RpcError, file_uri

UUID4 = r'[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'
EXEC = {'process/start': {'processId': 'p', 'argv': ['true'], 'cwd': 'file:///', 'env': {}, 'tty': False},
        'process/read': {'processId': 'p'}, 'process/terminate': {'processId': 'p'},
        'process/write': {'processId': 'p', 'chunk': '', 'writeId': '1'},
        'process/signal': {'processId': 'p', 'signal': 'interrupt'}}
MORE = {'process/resize': {'processId': 'p', 'rows': 1, 'cols': 1}, 'process/list': {},
        'process/closeStdin': {'processId': 'p'}}


class Initialize(Case):
    def test_every_session_gets_a_random_uuid_of_its_own(self):
        srv = self.server()
        ids = {srv.session().session_id for _ in range(8)}
        self.assertEqual(len(ids), 8)
        for one in ids:
            self.assertRegex(one, '^' + UUID4 + '$')

    def test_client_name_may_be_empty_and_must_be_there(self):
        c = self.server().connect()
        self.assertError(c.error('initialize', {}), -32602)
        self.assertError(c.error('initialize'), -32602)
        self.assertError(c.error('initialize', {'clientName': None}), -32602)
        self.assertError(c.error('initialize', {'clientName': 5}), -32602)
        self.assertError(c.error('initialize', {'clientName': 'x', 'resumeSessionId': 5}), -32602)
        self.assertIn('sessionId', c.request('initialize', {'clientName': ''}))

    def test_unknown_members_of_params_are_ignored(self):
        c = self.server().connect()
        self.assertIn('sessionId', c.request('initialize', {'clientName': 'x', 'more': {'deep': [1]}}))

    def test_second_initialize_is_refused_and_changes_nothing(self):
        c = self.session()
        self.assertError(c.error('initialize', {'clientName': 'again'}), -32600,
                         'initialize may only be sent once per connection')
        self.assertError(c.error('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id}), -32600)
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_failed_initialize_may_be_tried_again(self):
        c = self.server().connect()
        self.assertError(c.error('initialize', {'clientName': 'x', 'resumeSessionId': 'gone'}), -32600,
                         'unknown session id gone')
        self.assertError(c.error('initialize', {'clientName': 'x', 'resumeSessionId': ''}), -32600)
        self.assertEqual(c.handshake().fence(), {'status': 'ready'})

    def test_initialized_twice_is_harmless_and_its_params_are_ignored(self):
        c = self.server().connect()
        c.initialize()
        for params in ({'x': 1}, None, [1, 2], 'text', 5):
            c.send({'method': 'initialized', 'params': params})
        c.send({'method': 'initialized'})
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_initialized_before_initialize_ends_the_connection(self):
        srv = self.server()
        c = srv.connect()
        c.send({'method': 'initialized'})
        c.wait_end()
        self.assertEqual(c.replies, {})
        self.assertEqual(srv.session().fence(), {'status': 'ready'})

    def test_requests_before_initialize_name_the_missing_step(self):
        c = self.server().connect()
        for method, params in EXEC.items():
            self.assertError(c.error(method, params), -32600,
                             'client must call initialize before using exec methods')
        self.assertError(c.error('environment/info'), -32600,
                         'client must call initialize before using environment info methods')
        self.assertError(c.error('environment/status'), -32600,
                         'client must call initialize before using environment status methods')
        c.initialize()
        for method, params in EXEC.items():
            self.assertError(c.error(method, params), -32600,
                             'client must send initialized before using exec methods')
        self.assertError(c.error('environment/info'), -32600,
                         'client must send initialized before using environment info methods')

    @ours_only
    def test_additions_obey_the_same_states(self):
        c = self.server().connect()
        for method, params in MORE.items():
            self.assertError(c.error(method, params), -32600,
                             'client must call initialize before using exec methods')
        c.initialize()
        for method, params in MORE.items():
            self.assertError(c.error(method, params), -32600,
                             'client must send initialized before using exec methods')

    def test_pipelined_handshake_and_first_request_work(self):
        c = self.server().connect()
        first = c.post('initialize', {'clientName': 'x'})
        c.send({'method': 'initialized'})
        second = c.post('environment/status')
        self.assertIn('sessionId', c.result(first))
        self.assertEqual(c.result(second), {'status': 'ready'})
        self.assertEqual(c.arrival, [first, second])


class Info(Case):
    def test_initialize_carries_environment_info(self):
        c = self.session()
        self.assertEqual(c.request('environment/info'), c.info)
        self.assertEqual(c.request('environment/info', {}), c.info)

    def test_info_describes_this_machine(self):
        srv = self.server()
        info = srv.session().info
        self.assertEqual(info['cwd'], file_uri(srv.work))
        self.assertEqual(info['userHomeDir'], file_uri(srv.home))
        self.assertEqual(info['platformOs'], 'linux')
        self.assertEqual(info['temporaryDirectories'], [file_uri(srv.tmp)])
        self.assertEqual(info['tempDir'], file_uri(srv.tmp))
        self.assertTrue(info['executorVersion'])
        shell = pwd.getpwuid(os.getuid()).pw_shell
        if os.path.basename(shell) in ('bash', 'zsh', 'sh') and os.path.exists(shell):
            self.assertEqual(info['shell'], {'name': os.path.basename(shell), 'path': shell})
        self.assertTrue(all(isinstance(v, bool) for v in info['capabilities'].values()))

    def test_shell_comes_from_passwd_and_not_from_the_environment(self):
        with_shell = self.server(env={'SHELL': '/no/such/shell'}).session().info['shell']
        without = self.server().session().info['shell']
        self.assertEqual(with_shell, without)
        self.assertIn(without['name'], ('bash', 'zsh', 'sh'))
        self.assertTrue(os.access(without['path'], os.X_OK))

    def test_temporary_directories_follow_tmpdir(self):
        info = self.server(env={'TMPDIR': ''}).session().info
        self.assertEqual(info['temporaryDirectories'], [])
        info = self.server(replace_env={'PATH': '/usr/bin:/bin', 'HOME': '/'}).session().info
        self.assertEqual((info['temporaryDirectories'], info['tempDir']), ([], 'file:///tmp'))
        srv = self.server(env={'TMPDIR': 'rel'})
        info = srv.session().info
        self.assertEqual(info['temporaryDirectories'], [file_uri(srv.work) + '/rel'])

    def test_paths_are_percent_encoded(self):
        odd = os.path.join(self.scratch(), "a b#c%d?e\u00e9'()[]{}~\\^|`\"<>&=+,;:@!$*")
        os.mkdir(odd)
        info = self.server(cwd=odd).session().info
        self.assertEqual(info['cwd'], file_uri(odd))

    def test_cwd_is_null_when_it_is_gone(self):
        gone = os.path.join(self.scratch(), 'gone')
        os.mkdir(gone)
        srv = self.server(cwd=gone)
        os.rmdir(gone)
        self.assertIsNone(srv.session().info['cwd'])

    def test_home_falls_back_to_passwd(self):
        srv = self.server(replace_env={'PATH': '/usr/bin:/bin'})
        self.assertEqual(srv.session().info['userHomeDir'], file_uri(pwd.getpwuid(os.getuid()).pw_dir))

    def test_provider_id_does_not_depend_on_where_the_server_runs(self):
        one = self.server().session().info.get('providerId')
        two = self.server(cwd='/').session().info.get('providerId')
        self.assertEqual(one, two)
        if one is not None:
            self.assertTrue(re.fullmatch('sha256:[0-9a-f]{64}', one))

    def test_status_takes_no_params(self):
        c = self.session()
        for params in (None, {}):
            self.assertEqual(c.request('environment/status', params), {'status': 'ready'})
        c.send({'id': 'null', 'method': 'environment/status', 'params': None})
        self.assertEqual(c.result('null'), {'status': 'ready'})
        for method in ('environment/status', 'environment/info'):
            for params in ({'x': 1}, [1], 'x', 5, True):
                with self.assertRaises(RpcError) as caught:
                    c.request(method, params)
                self.assertEqual(caught.exception.code, -32602)


if __name__ == '__main__':
    tap.main()
