# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases 1 to 24 and 71 to 77: what a model sends and reads."""

import json

import agent
from agent import Case

PARSE = 'failed to parse function arguments: '
NUMBERED = 'i=1; while [ $i -le %d ]; do echo $i; i=$((i+1)); done'


class Texts:
    def cat(self, a):
        answer = a.ec('/bin/cat', tty=True, yield_time_ms=300)
        self.assertRunning(answer, 1000)
        return answer

    def test_001_output_and_exit_code(self):
        answer = self.agent().ec('echo hello; exit 3')
        self.assertRegex(answer.text, r'^Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\n'
                         r'Process exited with code 3\nOriginal token count: 2\nOutput:\nhello\n$')
        self.assertFalse(answer.failed)

    def test_002_no_output(self):
        answer = self.agent().ec('true')
        self.assertExited(answer)
        self.assertTrue(answer.text.endswith('Output:\n'))
        self.assertEqual((answer.body, answer.tokens), ('', 0))

    def test_003_an_empty_script(self):
        answer = self.agent().ec('')
        self.assertExited(answer)
        self.assertEqual(answer.body, '')

    def test_004_an_exit_ends_the_wait(self):
        answer = self.agent().ec('sleep 0.05', yield_time_ms=31415)
        self.assertExited(answer)
        self.assertWithin(answer.wall, 0.01, 10)

    def test_005_a_process_that_runs_has_a_session(self):
        answer = self.cat(self.agent())
        self.assertIn('Process running with session ID 1000\n', answer.text)
        self.assertEqual(answer.body, '')
        self.assertWithin(answer.wall, 0.3, 3)

    def test_006_what_is_typed_comes_back(self):
        a = self.agent()
        self.cat(a)
        answer = a.ws(1000, 'hello unified exec\n', yield_time_ms=500)
        self.assertRunning(answer, 1000)
        twice = 'hello unified exec\r\nhello unified exec\r\n'  # the echo, and what cat says
        self.assertEqual(self.gather(a, answer, twice), twice)

    def test_007_end_of_file_ends_it(self):
        a = self.agent()
        self.cat(a)
        self.assertRunning(a.ws(1000, 'x\n', yield_time_ms=300))
        answer = a.ws(1000, '\u0004', yield_time_ms=20000)
        self.assertExited(answer)
        self.assertWithin(answer.wall, 0, 15)

    def test_008_an_id_is_gone_once_the_exit_was_told(self):
        a = self.agent()
        self.cat(a)
        self.assertExited(a.ws(1000, '\u0004', yield_time_ms=20000))
        self.assertFailed(a.ws(1000), 'write_stdin failed: Unknown process id 1000')

    def test_009_an_id_that_never_was(self):
        self.assertFailed(self.agent().ws(424242, 'x'), 'write_stdin failed: Unknown process id 424242')

    def test_010_a_command_is_needed(self):
        a = self.agent()
        self.assertFailed(a.call('exec_command', '{}'), PARSE + 'missing field `cmd` at line 1 column 2')
        self.assertNothingLeft(a)
        self.assertEqual(a.events_of(), [])

    def test_011_numbers_that_are_none(self):
        a = self.agent()
        answer = a.call('exec_command', '{"cmd": "true", "yield_time_ms": -5}')
        self.assertFailed(answer, PARSE + 'invalid value: integer `-5`, expected u64 at line 1 column 35')
        answer = a.call('exec_command', {'cmd': 'true', 'yield_time_ms': '1000'})
        self.assertTrue(answer.failed)
        self.assertTrue(answer.text.startswith(PARSE + 'invalid type: string "1000", expected u64'), answer)
        self.assertNothingLeft(a)

    def test_012_whole_floats_and_nulls(self):
        a = self.agent()
        self.assertExited(a.call('exec_command', '{"cmd":"true","yield_time_ms":1000.0}'))
        self.assertExited(a.call('exec_command', '{"cmd":"true","tty":null}'))

    def test_013_members_nobody_knows(self):
        self.assertExited(self.agent().ec('true', bogus=1))

    def test_014_an_id_is_a_number(self):
        self.assertFailed(self.agent().call('write_stdin', '{"session_id": "1000"}'),
                          PARSE + 'invalid type: string "1000", expected i32 at line 1 column 21')

    def test_015_a_justification_needs_its_mode(self):
        a = self.agent()
        self.assertFailed(a.ec('echo hi', justification='why'),
                          '`justification` requires an explicit `sandbox_permissions`; use `sandbox_permissions: '
                          '"require_escalated"` for unsandboxed execution, or omit `justification`.')
        self.assertNothingLeft(a)
        self.assertEqual(a.events_of(), [])

    def test_016_escalation_where_nobody_may_ask(self):
        a = self.agent('--approval', 'never')
        self.assertFailed(a.ec('echo hi', sandbox_permissions='require_escalated'),
                          'approval policy is Never; reject command — you cannot ask for escalated permissions if '
                          'the approval policy is Never')
        self.assertNothingLeft(a)

    def test_017_permissions_that_do_not_exist(self):
        answer = self.agent().call('exec_command', '{"cmd": "echo hi", "sandbox_permissions": "bogus"}')
        self.assertFailed(answer, PARSE + 'unknown variant `bogus`, expected one of `use_default`, '
                          '`require_escalated`, `with_additional_permissions` at line 1 column 49')

    def test_018_an_environment_that_is_not_attached(self):
        a = self.agent()
        self.assertFailed(a.ec('x', environment_id='nope'), 'unknown turn environment id `nope`')
        self.assertNothingLeft(a)

    def test_019_login_shells_may_be_off(self):
        a = self.agent('--no-login')
        self.assertFailed(a.ec('echo x', login=True),
                          'login shell is disabled by config; omit `login` or set it to false.')
        self.assertNothingLeft(a)
        tools = {t['name']: t for t in a.ask('schemas')['schemas']}
        self.assertNotIn('login', tools['exec_command']['parameters']['properties'])
        self.assertExited(a.ec('true'))

    def test_020_the_published_schemas(self):
        tools = {t['name']: t for t in self.agent().ask('schemas')['schemas']}
        self.assertEqual(sorted(tools), ['exec_command', 'write_stdin'])
        for name, required in (('exec_command', ['cmd']), ('write_stdin', ['session_id'])):
            parameters = tools[name]['parameters']
            self.assertEqual((parameters['required'], parameters['additionalProperties']), (required, False))
            self.assertIs(tools[name]['strict'], False)
        self.assertEqual(tools['exec_command']['description'],
                         'Runs a command in a PTY, returning output or a session ID for ongoing interaction.')
        self.assertEqual(sorted(tools['write_stdin']['parameters']['properties']),
                         ['chars', 'max_output_tokens', 'session_id', 'yield_time_ms'])

    def test_021_a_directory_that_is_not_there(self):
        a = self.agent()
        answer = a.ec('pwd', workdir='/nonexistent/dir')
        self.assertTrue(answer.failed)
        self.assertTrue(answer.text.startswith('exec_command failed'), answer)
        self.assertIn('Failed to create unified exec process', answer.text)
        self.assertIn('No such file or directory (os error 2)', answer.text)
        self.assertEqual(a.events_of(), [])
        self.assertNothingLeft(a)
        self.assertRunning(a.ec('sleep 30', yield_time_ms=250), 1000)

    def test_022_the_structured_form(self):
        a = self.agent()
        exited = a.ec('echo hello; exit 3').structured
        self.assertRegex(exited.pop('chunk_id'), '^[0-9a-f]{6}$')
        self.assertGreater(exited.pop('wall_time_seconds'), 0)
        self.assertEqual(exited, {'exit_code': 3, 'original_token_count': 2, 'output': 'hello\n'})
        running = self.cat(a).structured
        self.assertEqual(running['session_id'], 1000)
        self.assertNotIn('exit_code', running)

    def test_023_the_structured_form_is_whole_unless_it_is_asked_to_be_short(self):
        a = self.agent()
        command = 'head -c 100000 /dev/zero | tr "\\0" x'
        self.assertEqual(a.ec(command).structured['output'], 'x' * 100000)
        short = a.ec(command, max_output_tokens=6).structured['output']
        self.assertEqual(short, 'Warning: truncated output (original token count: 25000)\nTotal output lines: 1\n\n'
                         'xxxxxxxxxxxx…24994 tokens truncated…xxxxxxxxxxxx')

    def test_024_waiting_without_a_deadline(self):
        a = self.agent('--no-timeout')
        self.assertRunning(a.ec('sleep 7; echo end', yield_time_ms=250), 1000)
        self.assertFailed(a.ws(1000, 'x', no_timeout=True), '`no_timeout=true` requires empty `chars`.')
        self.assertFailed(a.ws(1000, no_timeout=True, yield_time_ms=1000),
                          '`no_timeout=true` requires `yield_time_ms` to be omitted.')
        answer = a.ws(1000, no_timeout=True)
        self.assertExited(answer)
        self.assertEqual(answer.body, 'end\n')
        self.assertGreater(answer.wall, 5.0)  # the shortest poll would have ended before


class Checks(Case):
    """What is refused before anything starts (3.4, C1 to C12)."""

    def refused(self, a, text, **arguments):
        self.assertFailed(a.ec('echo x', **arguments), text)
        self.assertNothingLeft(a)
        self.assertEqual(a.events_of(), [])

    def test_there_is_no_place_to_run_it(self):
        self.refused(self.agent('--nowhere'), 'unified exec is unavailable in this session')

    def test_additional_permissions_are_off(self):
        self.refused(self.agent('--approval', 'on-request'),
                     'additional permissions are disabled; enable `features.exec_permission_approvals` before using '
                     '`with_additional_permissions`', sandbox_permissions='with_additional_permissions',
                     additional_permissions={'network': {'enabled': True}})

    def test_additional_permissions_need_somebody_to_ask(self):
        self.refused(self.agent('--additional', '--approval', 'on-failure'),
                     'approval policy is OnFailure; reject command — you cannot request additional permissions unless '
                     'the approval policy is OnRequest', sandbox_permissions='with_additional_permissions',
                     additional_permissions={'network': {'enabled': True}})

    def test_additional_permissions_must_be_named(self):
        a = self.agent('--additional', '--approval', 'on-request')
        self.refused(a, 'missing `additional_permissions`; provide at least one of `network` or `file_system` when '
                     'using `with_additional_permissions`', sandbox_permissions='with_additional_permissions')
        for nothing in ({}, {'network': {}}, {'network': {'enabled': False}}, {'file_system': {'read': []}}):
            self.refused(a, '`additional_permissions` must include at least one requested permission in `network` or '
                         '`file_system`', sandbox_permissions='with_additional_permissions',
                         additional_permissions=nothing)
        self.refused(a, '`additional_permissions` requires `sandbox_permissions` set to `with_additional_permissions`',
                     additional_permissions={'network': {'enabled': True}})

    def test_the_first_that_fails_is_told(self):
        a = self.agent('--no-login', '--approval', 'never')
        self.refused(a, 'unknown turn environment id `nope`', environment_id='nope', justification='why', login=True)
        self.refused(a, 'login shell is disabled by config; omit `login` or set it to false.', login=True,
                     sandbox_permissions='require_escalated')

    def test_two_places(self):
        srv = agent.server.Server()
        self.addCleanup(srv.stop)
        a = self.agent('--also', 'far=' + srv.url)
        near = a.ec('echo $PPID')
        far = a.ec('echo $PPID', environment_id='far')
        self.assertEqual(a.ec('echo $PPID', environment_id='main').body, near.body)
        self.assertNotEqual(near.body, far.body)
        self.assertIn('environment_id', a.ask('schemas')['schemas'][0]['parameters']['properties'])


class Truncation:
    def test_071_six_tokens(self):
        answer = self.agent().ec("printf 'token one token two token three token four token five token six token seven'",
                                 max_output_tokens=6)
        self.assertEqual(answer.tokens, 19)
        self.assertEqual(answer.body, 'Warning: truncated output (original token count: 19)\nTotal output lines: 1\n\n'
                         'token one to…13 tokens truncated… token seven')

    def test_072_no_token_at_all(self):
        answer = self.agent().ec("printf 'abcdef'", max_output_tokens=0)
        self.assertTrue(answer.body.endswith('…2 tokens truncated…'), answer)

    def test_073_one_token(self):
        answer = self.agent().ec("printf 'a\\nb\\nc'", max_output_tokens=1)
        self.assertTrue(answer.body.endswith('Total output lines: 3\n\na\n…1 tokens truncated…\nc'), answer)

    def test_074_the_whole_answer_keeps_to_its_policy(self):
        for policy, unit in (('bytes:200', 'chars'), ('tokens:50', 'tokens')):
            with self.subTest(policy):
                answer = self.agent('--policy', policy).ec(NUMBERED % 150)
                self.assertLessEqual(len(answer.text.encode()), 240)
                self.assertEqual(answer.text.count(unit + ' truncated'), 1)
                self.assertIn('Total output lines: 150', answer.text)
                self.assertTrue(answer.text.split('\n\n', 1)[1].startswith('1\n2\n3\n'), answer)
                self.assertTrue(answer.text.endswith('149\n150\n'), answer)

    def test_075_a_request_cannot_raise_the_policy(self):
        line = 'x' * 35
        answer = self.agent('--policy', 'tokens:50').ec(
            'i=0; while [ $i -lt 999 ]; do echo %s; i=$((i+1)); done' % line, max_output_tokens=70000)
        self.assertEqual(answer.tokens, 8991)
        self.assertIn('Total output lines: 999', answer.body)
        self.assertEqual(answer.body.count('tokens truncated'), 1)
        self.assertLessEqual(len(answer.text.encode()), 240)

    def test_076_what_the_buffer_left_out_is_told(self):
        answer = self.agent().ec('echo HEAD; yes "token token " | head -n 100000; echo TAIL', max_output_tokens=100,
                                 yield_time_ms=30000)
        self.assertEqual(answer.tokens, 325003)
        self.assertTrue(answer.body.startswith('Warning: truncated output (original token count: 325003)\n'
                                               '... 251434 bytes omitted ...\n\nHEAD\n'), answer.body[:200])
        self.assertIn('…262052 tokens truncated…', answer.body)
        self.assertTrue(answer.body.endswith('TAIL\n'))

    def test_077_three_million_bytes(self):
        answer = self.agent().ec('yes | head -c 3000000', yield_time_ms=30000)
        self.assertExited(answer)
        self.assertEqual(answer.tokens, 750000)
        self.assertIn('... 1951424 bytes omitted ...', answer.body)
        self.assertEqual(len(json.dumps(answer.structured['output'])) > 1048576, True)


class LocalTexts(Texts, Case):
    pass


class RemoteTexts(Texts, Case):
    backend = 'ws'


class LocalTruncation(Truncation, Case):
    pass


class RemoteTruncation(Truncation, Case):
    backend = 'ws'


if __name__ == '__main__':
    agent.main()
