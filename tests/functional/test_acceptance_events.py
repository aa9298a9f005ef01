# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases 82 to 94: what subscribers are told, and when."""

import time

import agent
from agent import Case

INTERACTION = 'terminal_interaction'


class Events:
    def test_082_frames_end_between_characters(self):
        a = self.agent()
        first = a.ec(r"stty -echo; echo READY; read s; printf 'HELLO-UEXEC\303'; read f; printf '\251\303'",
                     tty=True, yield_time_ms=500, call_id='first')
        self.assertRunning(first, 1000)
        a.wait_frames('first', b'READY\r\n')
        self.assertRunning(a.ws(1000, 'a\n', yield_time_ms=500))
        self.assertExited(a.ws(1000, 'b\n', yield_time_ms=20000))
        end = a.wait_end('first')
        frames = a.frames('first')
        self.assertEqual(b''.join(frames), 'READY\r\nHELLO-UEXECé'.encode() + b'\xc3')
        for frame in frames[:-1]:
            frame.decode()
        self.assertEqual(end['stdout'], 'READY\r\nHELLO-UEXECé\ufffd')
        self.assertEqual(end['aggregated_output'], end['stdout'])

    def test_084_a_burst_in_frames(self):
        a = self.agent()
        answer = a.ec('head -c 100000 /dev/zero | tr "\\0" x', call_id='first', yield_time_ms=20000)
        self.assertExited(answer)
        end = a.wait_end('first')
        frames = a.frames('first')
        self.assertLessEqual(max(map(len, frames)), 8192)
        self.assertEqual(b''.join(frames), b'x' * 100000)
        self.assertEqual(end['stdout'], 'x' * 100000)

    def test_085_what_was_printed_early_is_not_missing(self):
        a = self.agent()
        answer = a.ec('echo EARLY; sleep 1; echo LATE', yield_time_ms=20000, call_id='first')
        self.assertExited(answer)
        self.assertEqual(answer.body, 'EARLY\nLATE\n')
        self.assertEqual(a.wait_end('first')['stdout'], 'EARLY\nLATE\n')
        self.assertEqual(b''.join(a.frames('first')), b'EARLY\nLATE\n')

    def test_086_one_beginning_one_end(self):
        a = self.agent()
        answer = a.ec('sleep 2', yield_time_ms=10, call_id='first')
        self.assertRunning(answer, 1000)
        self.assertExited(a.ws(1000, yield_time_ms=20000))
        a.wait_end('first')
        self.assertEqual(a.kinds(), ['exec_command_begin', 'exec_command_end'])
        begin, end = a.events_of('first')
        self.assertEqual(begin['source'], 'unified_exec_startup')
        self.assertNotIn('interaction_input', begin)
        self.assertEqual((begin['process_id'], end['process_id']), ('1000', '1000'))
        self.assertEqual((begin['turn_id'], end['turn_id']), ('turn', 'turn'))
        self.assertEqual((end['exit_code'], end['status'], end['stderr']), (0, 'completed', ''))
        self.assertLessEqual(begin['started_at_ms'], end['completed_at_ms'])
        self.assertGreaterEqual(end['duration']['secs'] * 1000 + end['duration']['nanos'] // 1000000, 500)

    def test_087_every_write_is_an_interaction(self):
        a = self.agent()
        first = a.ec('sleep 3 && echo MARKER1 && sleep 3 && echo MARKER2', tty=True, yield_time_ms=250, call_id='first')
        self.assertRunning(first, 1000)
        for _ in range(3):
            self.assertRunning(a.ws(1000, 'x', yield_time_ms=250))
        end = a.wait_end('first')
        written = a.events_of(kind=INTERACTION)
        self.assertEqual(written, [{'type': INTERACTION, 'call_id': 'first', 'process_id': '1000', 'stdin': 'x'}] * 3)
        self.assertIn('MARKER1', end['stdout'])
        self.assertIn('MARKER2', end['stdout'])

    def test_088_the_write_that_ends_it_comes_before_the_end(self):
        a = self.agent()
        self.assertRunning(a.ec('cat', tty=True, yield_time_ms=300, call_id='first'), 1000)
        self.assertExited(a.ws(1000, '\u0004', yield_time_ms=20000))
        a.wait_end('first')
        kinds = a.kinds('first')
        self.assertEqual(kinds[-1], 'exec_command_end')
        self.assertEqual(kinds.count(INTERACTION), 1)
        self.assertLess(kinds.index(INTERACTION), kinds.index('exec_command_end'))

    def test_090_the_end_comes_without_a_poll(self):
        a = self.agent()
        self.assertRunning(a.ec('sleep 2; echo bye', yield_time_ms=250, call_id='first'), 1000)
        a.send(op='interrupt')
        end = a.wait_end('first')
        self.assertEqual((end['process_id'], end['stdout'], end['exit_code']), ('1000', 'bye\n', 0))

    def test_a_denial_while_it_runs(self):
        a = self.agent()
        call = a.ec_later('printf PRE; exec sleep 30', call_id='first', yield_time_ms=20000)
        a.wait_frames('first', b'PRE')
        self.assertTrue(a.ask('fail', process=1000, message='Network access denied')['ok'])
        answer = call.wait()
        self.assertFailed(answer, 'exec_command failed: Unified exec process failed: Network access denied')
        end = a.wait_end('first')
        self.assertEqual((end['aggregated_output'], end['stderr'], end['exit_code'], end['status']),
                         ('PRE\nNetwork access denied', 'Network access denied', -1, 'failed'))
        self.assertNothingLeft(a)

    def denied_start(self, *flags):
        """What is told of a command that the sandbox denied within the 150 ms of a start."""
        a = self.agent('--sandbox', 'read-only', '--approval', 'never', *flags)
        for i in range(20):
            answer = a.ec('touch denied-file', call_id='try%d' % i)
            self.assertExited(answer, 1)
            self.assertNothingLeft(a)
            if answer.wall < 0.15:
                time.sleep(0.3)
                return a.events_of('try%d' % i)
        raise AssertionError('this machine is too busy')

    def test_093_a_start_that_the_sandbox_denied(self):
        events = self.denied_start()
        self.assertEqual((events[0]['type'], events[-1]['type']), ('exec_command_begin', 'exec_command_end'))
        self.assertEqual((events[-1]['status'], events[-1]['exit_code']), ('failed', 1))
        self.assertEqual(self.denied_start('--hide-denied'), [])

    def test_094_a_command_without_a_process(self):
        a = self.agent()
        answer = a.ec("apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: added\n+new\n*** End Patch\nEOF")
        self.assertEqual(answer.text, 'Wall time: 0.0000 seconds\nOutput:\n'
                                      'Success. Updated the following files:\nA added\n')
        self.assertFalse(answer.failed)
        self.assertEqual(a.events_of(), [])
        self.assertNothingLeft(a)


class LocalEvents(Events, Case):
    pass


class RemoteEvents(Events, Case):
    backend = 'ws'


if __name__ == '__main__':
    agent.main()
