# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases 95 to 111: ids, entries, interrupts, the end of processes."""

import agent
from agent import Case
from server import is_alive

PID = "printf '%s\\n' $$ > "


class Manager:
    def assertKilled(self, code):
        """137; an executor confirms the end before it tells the code, which may then come too late to be known."""
        self.assertIn(code, (137, -1) if self.is_remote else (137,))

    def test_095_ids(self):
        a = self.agent()
        self.assertRunning(a.ec('sleep 2', yield_time_ms=250), 1000)
        self.assertRunning(a.ec('sleep 2', yield_time_ms=250), 1001)
        for session in (1000, 1001):
            self.assertExited(a.ws(session, yield_time_ms=20000))
        self.assertNothingLeft(a)
        self.assertRunning(a.ec('sleep 2', yield_time_ms=250), 1000)
        free = self.agent(deterministic=False)
        calls = [free.ec_later('sleep 20', yield_time_ms=250) for _ in range(12)]
        ids = [call.wait().session for call in calls]
        self.assertTrue(all(1000 <= i <= 99999 for i in ids), ids)
        self.assertEqual(len(set(ids)), 12)

    def test_096_whatever_fails_gives_its_id_back(self):
        a = self.agent('--no-login', '--approval', 'on-request', '--sandbox', 'read-only')
        self.assertTrue(a.ec('true', workdir='/nonexistent').failed)
        self.assertEqual(a.reserved(), 0)
        self.assertTrue(a.ec('true', login=True).failed)
        self.assertEqual(a.reserved(), 0)
        for decision in ('denied', 'abort'):
            call = a.ec_later('true', sandbox_permissions='require_escalated', justification='May I?')
            question = a.wait_question()
            self.assertEqual((question['kind'], question['reason']), ('escalate', 'May I?'))
            a.decide(question, decision)
            answer = call.wait()
            self.assertTrue(answer.failed, answer)
            if decision == 'denied':
                self.assertIn('rejected by user', answer.text)
            self.assertEqual(a.reserved(), 0)
        call = a.ec_later('true', sandbox_permissions='require_escalated', justification='May I?')
        question = a.wait_question()
        a.send(op='interrupt')
        self.assertIn('aborted by user', call.wait().text)
        self.assertNothingLeft(a)
        a.decide(question, 'approved')  # too late: nothing happens
        self.assertNothingLeft(a)
        self.assertEqual(a.events_of(), [])

    def test_097_two_shells(self):
        a = self.agent()
        for session in (1000, 1001):
            self.assertRunning(a.ec('bash --norc --noprofile -i', tty=True, yield_time_ms=500), session)
        a.ws(1000, 'export V=in-$((40+2))\n', yield_time_ms=500)
        self.assertIn('in-42', self.typed(a, 1000, 'echo $V\n', 'in-42'))
        self.assertNotIn('in-42', self.typed(a, 1001, 'echo none$V\n', 'none\r\n'))
        answer = a.ec('echo "[$V]"')
        self.assertExited(answer)
        self.assertEqual(answer.body, '[]\n')

    def typed(self, a, session, chars, until):
        return self.gather(a, a.ws(session, chars, yield_time_ms=1000), until)

    def test_098_the_least_recently_used_gives_way(self):
        a = self.agent()
        calls = [a.ec_later('%s p%d; exec sleep 600' % (PID, i), yield_time_ms=250, call_id='n%d' % i) for i in range(64)]
        of = {call.wait().session: i for i, call in enumerate(calls)}
        self.assertEqual(sorted(of), list(range(1000, 1064)))
        pids = {session: int(a.wait_file('p%d' % i)) for session, i in of.items()}
        # Everybody is used once, one after the other: 1000 is the least recently used.
        for session in range(1000, 1064):
            self.assertTrue(a.ws(session, 'x').failed)
        self.assertRunning(a.ec('exec sleep 600', yield_time_ms=250, call_id='n64'), 1064)
        a.wait_end('n%d' % of[1000])
        self.assertGone(pids[1000])
        self.assertFailed(a.ws(1000), 'write_stdin failed: Unknown process id 1000')
        self.assertEqual(len(a.list()), 64)
        self.assertRunning(a.ec('exec sleep 600', yield_time_ms=250), 1065)
        a.wait_end('n%d' % of[1001])
        self.assertGone(pids[1001])
        self.assertEqual([e['process_id'] for e in a.list()], [str(i) for i in range(1002, 1066)])
        self.assertTrue(all(is_alive(pids[s]) for s in range(1002, 1064)))

    def test_101_an_interrupt_leaves_the_process(self):
        a = self.agent()
        call = a.ec_later(PID + 'f && exec sleep 3000', yield_time_ms=30000, call_id='first')
        pid = int(a.wait_file('f'))
        a.wait_begin('first')
        a.send(op='interrupt')
        answer = call.wait()
        self.assertRegex(answer.text, r'^Wall time: \d+\.\d seconds\naborted by user$')
        self.assertTrue(is_alive(pid))
        self.assertEqual([e['process_id'] for e in a.list()], ['1000'])
        self.assertRunning(a.ws(1000, yield_time_ms=5000), 1000)
        poll = a.ws_later(1000, yield_time_ms=60000)
        a.stats()
        a.send(op='interrupt')
        self.assertRegex(poll.wait().text, r'^aborted by user after \d+\.\ds$')
        a.send(op='terminate_all')
        self.assertGone(pid)
        a.wait_end('first')
        self.assertNothingLeft(a)

    def test_102_a_process_outlives_its_turn_but_not_its_agent(self):
        a = self.agent()
        self.assertRunning(a.ec(PID + 'f; exec sleep 3000', yield_time_ms=250), 1000)
        pid = int(a.wait_file('f'))
        a.send(op='interrupt')
        self.assertExited(a.ec('true'))
        self.assertTrue(is_alive(pid))
        a.quit()
        self.assertGone(pid)

    def test_103_terminate(self):
        a = self.agent()
        self.assertRunning(a.ec(PID + 'f; exec sleep 3000', yield_time_ms=250, call_id='first'), 1000)
        pid = int(a.wait_file('f'))
        self.assertTrue(a.ask('terminate', process=1000)['ok'])
        self.assertGone(pid)
        self.assertEqual(a.list(), [])
        self.assertFalse(a.ask('terminate', process=1000)['ok'])
        self.assertFalse(a.ask('terminate', process=4242)['ok'])
        self.assertKilled(a.wait_end('first')['exit_code'])
        self.assertNothingLeft(a)

    def test_104_terminate_during_the_initial_call(self):
        a = self.agent()
        call = a.ec_later(PID + 'f; echo out; exec sleep 3000', yield_time_ms=30000, call_id='first')
        pid = int(a.wait_file('f'))
        a.wait_frames('first', b'out\n')
        self.assertTrue(a.ask('terminate', process=1000)['ok'])
        answer = call.wait()
        self.assertExited(answer, answer.code)
        self.assertKilled(answer.code)
        self.assertEqual(answer.body, 'out\n')
        self.assertWithin(answer.wall, 0, 20)
        self.assertGone(pid)
        a.wait_end('first')
        self.assertNothingLeft(a)

    def test_105_terminate_during_a_poll(self):
        a = self.agent()
        self.assertRunning(a.ec('exec sleep 3000', yield_time_ms=250), 1000)
        poll = a.ws_later(1000, yield_time_ms=60000)
        a.stats()
        self.assertTrue(a.ask('terminate', process=1000)['ok'])
        answer = poll.wait()
        self.assertExited(answer, answer.code)
        self.assertKilled(answer.code)
        self.assertWithin(answer.wall, 0, 30)

    def test_107_the_list(self):
        a = self.agent()
        self.assertRunning(a.ec('bash --norc --noprofile -i', tty=True, yield_time_ms=250, call_id='call'), 1000)
        self.assertRunning(a.ec('sleep 2', yield_time_ms=250, call_id='short'), 1001)
        self.assertRunning(a.ec('exec sleep 30', yield_time_ms=250, call_id='long'), 1002)
        a.wait_end('short')
        listed = [{k: e[k] for k in ('item_id', 'process_id', 'command', 'cwd')} for e in a.list()]
        self.assertEqual(listed, [
            {'item_id': 'call', 'process_id': '1000', 'command': 'bash --norc --noprofile -i', 'cwd': a.work},
            {'item_id': 'long', 'process_id': '1002', 'command': 'exec sleep 30', 'cwd': a.work}])

    def test_108_different_processes_side_by_side(self):
        a = self.agent()
        for session in (1000, 1001):
            self.assertRunning(a.ec('bash --norc --noprofile', tty=True, yield_time_ms=300), session)
        one = a.ws_later(1000, 'echo x > here; until [ -e there ]; do sleep 0.05; done; echo met-$((1+1))\n',
                         yield_time_ms=15000)
        two = a.ws_later(1001, 'echo x > there; until [ -e here ]; do sleep 0.05; done; echo met-$((1+1))\n',
                         yield_time_ms=15000)
        self.assertIn('met-2', one.wait().body)
        self.assertIn('met-2', two.wait().body)

    def test_109_writes_on_one_process_take_turns(self):
        a = self.agent()
        self.assertRunning(a.ec('stty -echo; echo READY; cat', tty=True, yield_time_ms=300, call_id='first'), 1000)
        a.wait_frames('first', b'READY')
        one = a.ws_later(1000, 'first\n', yield_time_ms=1500)
        two = a.ws_later(1000, 'second\n', yield_time_ms=500)
        first, second = one.wait(), two.wait()
        self.assertEqual((first.body.replace('READY\r\n', ''), second.body), ('first\r\n', 'second\r\n'))
        self.assertGreaterEqual(second.at - first.at, 0.4)
        self.assertEqual([e['stdin'] for e in a.events_of(kind='terminal_interaction')], ['first\n', 'second\n'])

    def test_110_a_write_cuts_a_poll_short(self):
        a = self.agent()
        self.assertRunning(a.ec('echo READY; exec sleep 3000', yield_time_ms=250), 1000)
        poll = a.ws_later(1000, yield_time_ms=60000)
        a.stats()
        write = a.ws_later(1000, '\u0003', yield_time_ms=20000)
        answer = poll.wait()
        self.assertRunning(answer, 1000)
        self.assertWithin(answer.wall, 0, 30)
        self.assertExited(write.wait(), 130)

    def test_111_an_exit_that_nobody_saw(self):
        a = self.agent()
        first = a.ec('echo early; sleep 2; echo late; exit 5', yield_time_ms=250, call_id='first')
        self.assertRunning(first, 1000)
        a.wait_end('first')
        self.assertEqual(a.list(), [])
        stats = a.stats()
        self.assertEqual((stats['reserved'], stats['stored']), (1, 1))
        answer = a.ws(1000)
        self.assertExited(answer, 5)
        self.assertEqual(first.body + answer.body, 'early\nlate\n')
        self.assertFailed(a.ws(1000), 'write_stdin failed: Unknown process id 1000')
        self.assertNothingLeft(a)

    def test_exited_entries_age(self):
        a = self.agent('--exited-ttl', '300')
        self.assertRunning(a.ec('sleep 2', yield_time_ms=250, call_id='first'), 1000)
        a.wait_end('first')
        agent.wire.wait_until(lambda: a.reserved() == 0, 'the end of the entry', step=0.05)
        self.assertFailed(a.ws(1000), 'write_stdin failed: Unknown process id 1000')

    def test_a_notice_when_there_are_many(self):
        a = self.agent('--notify-at', '2')
        self.assertRunning(a.ec('exec sleep 30', yield_time_ms=250), 1000)
        self.assertEqual(a.events_of(kind='warning'), [])
        self.assertRunning(a.ec('exec sleep 30', yield_time_ms=250, call_id='second'), 1001)
        self.assertEqual(a.events_of(kind='warning'), [{
            'type': 'warning', 'call_id': 'second',
            'message': 'The maximum number of unified exec processes you can keep open is 2 and you currently have 2 '
                       'processes open. Reuse older processes or close them to prevent automatic pruning of old '
                       'processes'}])

    def test_one_call_can_be_cancelled(self):
        a = self.agent()
        one = a.ec_later('exec sleep 30', yield_time_ms=20000, call_id='one')
        two = a.ec_later('exec sleep 1', yield_time_ms=20000, call_id='two')
        a.wait_begin('one')
        self.assertTrue(a.ask('cancel', call='one')['ok'])
        self.assertIn('aborted by user', one.wait().text)
        self.assertExited(two.wait())
        self.assertFalse(a.ask('cancel', call='one')['ok'])

    def test_signals_and_sizes_go_straight_to_the_process(self):
        a = self.agent()
        self.assertRunning(a.ec('trap "stty size" WINCH; echo READY; while :; do sleep 0.1; done', tty=True,
                                yield_time_ms=250, call_id='first'), 1000)
        a.wait_frames('first', b'READY')
        self.assertTrue(a.ask('resize', process=1000, rows=30, cols=100)['ok'])
        a.wait_frames('first', b'30 100')
        self.assertTrue(a.ask('signal', process=1000, signal=15)['ok'])
        self.assertExited(a.ws(1000, yield_time_ms=20000), 143)
        self.assertFalse(a.ask('signal', process=1000, signal=15)['ok'])

    def test_no_descriptor_is_left_by_a_hundred_commands(self):
        a = self.agent()
        a.ec('true')
        before = a.stats()['fds']
        calls = [a.ec_later('echo %d' % i, yield_time_ms=30000, tty=i % 2 == 0) for i in range(100)]
        for i, call in enumerate(calls):
            answer = call.wait(100)
            self.assertExited(answer)
            self.assertEqual(answer.body.split(), [str(i)])
        self.assertNothingLeft(a)
        agent.wire.wait_until(lambda: a.stats()['fds'] <= before + 2, 'end of descriptors', step=0.1)


class LocalManager(Manager, Case):
    def test_nothing_outlives_a_driver_that_is_killed(self):
        a = self.agent()
        self.assertRunning(a.ec(PID + 'f; (exec setsid sleep 3000) & exec sleep 3000', yield_time_ms=250), 1000)
        pid = int(a.wait_file('f'))
        a.abandon()
        self.assertGone(pid)
        agent.wire.wait_until(lambda: not agent.marked(a.mark.encode()), 'end of all processes', step=0.1)


class RemoteManager(Manager, Case):
    backend = 'ws'


if __name__ == '__main__':
    agent.main()
