# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases 25 to 52: terminals, pipes, signals; how long a call
waits and what it collects. 42 and 43 are computed: see acceptance.json."""

import time

import agent
from agent import PYTHON, Case, SCALE

CLOSED = 'write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true to keep stdin open'
STAT = 'read -r pid comm state ppid pgrp sid tty tpgid rest < /proc/self/stat; echo $pid $pgrp $sid $tty $tpgid'


class Terminals:
    def test_025_is_it_a_terminal(self):
        a = self.agent()
        look = PYTHON + " -c 'import sys; print(sys.stdin.isatty())'"
        self.assertEqual(a.ec(look).body, 'False\n')
        self.assertEqual(a.ec(look, tty=True).body, 'True\r\n')

    def test_026_stdin_of_pipes_is_empty(self):
        answer = self.agent().ec('cat; echo rc=$?', yield_time_ms=30000)
        self.assertExited(answer)
        self.assertEqual(answer.body, 'rc=0\n')

    def sleeper(self, a, command='echo READY; sleep 30'):
        answer = a.ec(command, yield_time_ms=300, call_id='first')
        self.assertRunning(answer, 1000)
        a.wait_frames('first', b'READY\n')

    def test_027_nobody_types_into_pipes(self):
        a = self.agent()
        self.sleeper(a)
        self.assertFailed(a.ws(1000, 'abc'), CLOSED)
        self.assertEqual([e['process_id'] for e in a.list()], ['1000'])

    def test_028_control_c_interrupts_pipes(self):
        a = self.agent()
        self.sleeper(a, 'echo READY; exec sleep 30')
        answer = a.ws(1000, '\u0003', yield_time_ms=20000)
        self.assertExited(answer, 130)
        self.assertWithin(answer.wall, 0, 10)

    def test_029_an_interrupt_that_is_caught(self):
        a = self.agent()
        self.sleeper(a, "trap 'echo INT-TRAP; exit 42' INT; echo READY; while true; do sleep 30; done")
        answer = a.ws(1000, '\u0003', yield_time_ms=20000)
        self.assertExited(answer, 42)
        self.assertIn('INT-TRAP', answer.body)

    def test_030_an_interrupt_that_is_ignored(self):
        a = self.agent()
        self.sleeper(a, "trap '' INT; echo READY; sleep 4; echo DONE")
        self.assertRunning(a.ws(1000, '\u0003', yield_time_ms=300))
        self.assertFailed(a.ws(1000, '\u0003x'), CLOSED)
        answer = a.ws(1000, yield_time_ms=20000)
        self.assertExited(answer)
        self.assertEqual(answer.body, 'DONE\n')

    def test_031_killed(self):
        a = self.agent()
        self.assertExited(a.ec('kill -9 $$'), 137)
        self.assertExited(a.ec('kill -9 $$', tty=True), 137)

    def test_032_other_signals(self):
        a = self.agent()
        self.assertExited(a.ec('kill -TERM $$', tty=True), 143)
        self.assertExited(a.ec('sleep 1; ulimit -c 0; kill -SEGV $$', yield_time_ms=20000), 139)

    def test_033_control_c_on_a_terminal(self):
        a = self.agent()
        self.assertRunning(a.ec('exec cat', tty=True, yield_time_ms=500), 1000)
        answer = a.ws(1000, '\u0003', yield_time_ms=20000)
        self.assertExited(answer, 130)
        self.assertIn('^C', answer.body)

    def test_034_the_size_of_a_terminal(self):
        self.assertEqual(self.agent().ec('stty size', tty=True).body, '24 80\r\n')

    def test_035_groups_and_sessions(self):
        a = self.agent()
        pid, group, session, tty, _foreground = a.ec(STAT).body.split()
        self.assertEqual((group, session, tty), (pid, pid, '0'))
        pid, group, session, tty, foreground = a.ec(STAT, tty=True).body.split()
        self.assertEqual((group, session, foreground), (pid, pid, pid))
        self.assertNotEqual(tty, '0')

    def test_036_no_descriptor_but_three(self):
        a = self.agent()
        for tty in (False, True):
            self.assertEqual(a.ec('ls /proc/self/fd', tty=tty).body.split(), ['0', '1', '2', '3'])

    def test_037_a_line_longer_than_a_terminal_keeps(self):
        a = self.agent()
        first = a.ec('stty -echo; echo READY; cat | wc -c', tty=True, yield_time_ms=300, call_id='first')
        self.assertRunning(first, 1000)
        a.wait_frames('first', b'READY')
        self.assertRunning(a.ws(1000, 'x' * 6000 + '\n', yield_time_ms=500))
        answer = a.ws(1000, '\u0004', yield_time_ms=20000)
        self.assertExited(answer)
        self.assertEqual(answer.body.split(), ['4096'])

    def test_038_both_streams(self):
        answer = self.agent().ec('for i in 1 2 3; do echo o$i; echo e$i >&2; done')
        self.assertEqual(sorted(answer.body.split()), ['e1', 'e2', 'e3', 'o1', 'o2', 'o3'])

    def test_039_closed_output_is_no_exit(self):
        answer = self.agent().ec('exec 1>&- 2>&-; sleep 1', yield_time_ms=20000)
        self.assertExited(answer)
        self.assertWithin(answer.wall, 0.5, 15)


class Waiting:
    def test_040_the_shortest_wait(self):
        answer = self.agent().ec('sleep 20', yield_time_ms=1)
        self.assertRunning(answer, 1000)
        self.assertWithin(answer.wall, 0.25, 5)

    def test_041_the_shortest_poll(self):
        a = self.agent()
        self.assertRunning(a.ec('sleep 25', yield_time_ms=1), 1000)
        answer = a.ws(1000, yield_time_ms=1)
        self.assertRunning(answer)
        self.assertWithin(answer.wall, 5.0, 12)

    def test_044_a_write_does_not_wait_for_what_it_started(self):
        a = self.agent()
        answer = a.ec('bash --norc --noprofile -i', tty=True, yield_time_ms=1000)
        self.assertRunning(answer, 1000)
        self.assertRunning(a.ws(1000, 'export V=value-$((40+2))\n', yield_time_ms=1000))
        began = time.monotonic()
        answer = a.ws(1000, 'sleep 5 && echo $V\n', yield_time_ms=10)
        self.assertRunning(answer)
        self.assertNotIn('value-42', answer.body)
        self.assertGreaterEqual(answer.wall, 0.25)
        self.assertLess(time.monotonic() - began, 4.5 * SCALE)
        self.gather(a, answer, 'value-42')

    def test_045_a_poll_ends_with_the_process(self):
        a = self.agent()
        answer = a.ec('sleep 2; echo ready', yield_time_ms=10)
        self.assertRunning(answer, 1000)
        self.assertEqual(answer.body, '')
        answer = a.ws(1000, yield_time_ms=25000)
        self.assertExited(answer)
        self.assertEqual(answer.body, 'ready\n')
        self.assertWithin(answer.wall, 0, 15)

    def test_046_grandchild_holds_stream(self):
        for tty in (False, True):
            with self.subTest(tty=tty):
                answer = self.agent().ec("(trap '' HUP; sleep 12; echo LATE) & echo now", yield_time_ms=25000, tty=tty)
                self.assertExited(answer)
                self.assertEqual(answer.body.split(), ['now'])
                self.assertWithin(answer.wall, 0, 10)

    def test_047_a_producer_that_never_stops(self):
        a = self.agent()
        before = a.stats()['rss_kb']
        answer = a.ec('yes', yield_time_ms=1000)
        self.assertRunning(answer, 1000)
        self.assertWithin(answer.wall, 1.0, 8)
        self.assertTokens(answer)
        self.assertGreater(answer.tokens, 250000)
        bound = 64 if not agent.server.SANITIZED else 512
        self.assertLess(a.stats()['rss_kb'] - before, bound * 1024)
        self.assertTrue(a.ask('terminate', process=1000)['ok'])

    def test_048_no_line_is_lost_between_two_answers(self):
        a = self.agent()
        first = a.ec('i=0; while [ $i -lt 200 ]; do echo line$i; i=$((i+1)); sleep 0.01; done', yield_time_ms=250)
        self.assertRunning(first, 1000)
        bodies, answer = first.body, first
        while answer.session is not None:
            answer = a.ws(1000, yield_time_ms=20000)
            bodies += answer.body
        self.assertEqual(bodies, ''.join('line%d\n' % i for i in range(200)))

    def test_049_time_stands_still_during_a_pause(self):
        a = self.agent()
        a.send(op='pause')
        began = time.monotonic()
        call = a.ec_later('sleep 1 && echo unified-exec-done', yield_time_ms=250)
        time.sleep(2)
        self.assertFalse(call.is_answered())
        a.send(op='unpause')
        answer = call.wait()
        self.assertGreaterEqual(time.monotonic() - began, 2)
        self.assertExited(answer)
        self.assertEqual(answer.body, 'unified-exec-done\n')

    def test_050_a_pause_in_the_middle_of_a_poll(self):
        a = self.agent()
        self.assertRunning(a.ec('sleep 40', yield_time_ms=250), 1000)
        began = time.monotonic()
        poll = a.ws_later(1000, yield_time_ms=5000)
        time.sleep(0.1)
        a.send(op='pause')
        a.stats()  # an order that has been answered: the pause has begun
        paused = time.monotonic()
        time.sleep(2)
        pause = time.monotonic() - paused
        a.send(op='unpause')
        answer = poll.wait()
        self.assertRunning(answer)
        self.assertGreaterEqual(time.monotonic() - began, 5 + pause)

    def test_051_a_character_in_two_pieces(self):
        answer = self.agent().ec(r"printf '\303'; sleep 0.4; printf '\251\377 x'")
        self.assertExited(answer)
        self.assertEqual(answer.body, 'é\ufffd x')

    def test_052_nul_bytes(self):
        self.assertEqual(self.agent().ec(r"printf 'a\0b'").body, 'a\0b')


class LocalTerminals(Terminals, Case):
    pass


class RemoteTerminals(Terminals, Case):
    backend = 'ws'


class LocalWaiting(Waiting, Case):
    pass


class RemoteWaiting(Waiting, Case):
    backend = 'ws'


if __name__ == '__main__':
    agent.main()
