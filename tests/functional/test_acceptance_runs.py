# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases 131 to 141: commands that run once, to their end."""

import time

import agent
from agent import Case, SCALE
from server import is_alive

MIB = 1048576


class Runs:
    def test_131_what_is_kept_of_much_output(self):
        a = self.agent()
        command = 'head -c 1179648 /dev/zero | tr "\\0" x'
        ran = a.run(command, timeout_ms=60000)
        self.assertEqual((ran.kind, ran.code, len(ran.out), ran.line['out_total']), ('exited', 0, MIB, 1179648))
        ran = a.run(command, full=True)
        self.assertEqual((ran.kind, ran.code, len(ran.out), len(ran.aggregated)), ('exited', 0, 1179648, 1179648))

    def test_132_two_streams(self):
        ran = self.agent().run('printf hello; printf oops >&2')
        self.assertEqual((ran.out, ran.err, ran.aggregated, ran.code, ran.klass), (b'hello', b'oops', b'hellooops', 0, 'ok'))

    def test_133_exit_codes_are_what_they_are(self):
        a = self.agent()
        codes = (1, 2, 64, 127, 128, 130, 137, 192, 255)
        runs = [a.run_later('exit %d' % code) for code in codes]
        for code, run in zip(codes, runs):
            ran = run.wait()
            self.assertEqual((ran.kind, ran.code, ran.line['signal'], ran.klass), ('exited', code, 0, 'ok'))

    def test_134_a_time_out_ends_the_whole_tree(self):
        ran = self.agent().run('sleep 60 & echo $!; sleep 60', timeout_ms=3000)
        self.assertEqual((ran.kind, ran.code, ran.klass), ('timed_out', 124, 'timeout'))
        self.assertGone(int(ran.out))

    def test_135_cancelled(self):
        a = self.agent()
        run = a.run_later('echo x; exec sleep 30', events=True)
        a.wait_frames(run.key, b'x')
        began = time.monotonic()
        a.send(op='run_cancel', run=run.key)
        ran = run.wait()
        self.assertLess(time.monotonic() - began, 10 * SCALE)
        self.assertEqual((ran.kind, ran.code, ran.klass, ran.out), ('cancelled', 1, 'ok', b'x\n'))

    def test_136_cancelled_with_a_last_word(self):
        a = self.agent()
        run = a.run_later("trap 'echo bye > last; exit 0' TERM; (trap '' TERM; echo $BASHPID; exec sleep 60) & wait",
                          events=True)
        a.wait_frames(run.key, b'\n')
        a.send(op='run_cancel', run=run.key)
        ran = run.wait()
        self.assertEqual((ran.kind, ran.code), ('cancelled', 1))
        self.assertEqual(a.wait_file('last'), 'bye\n')
        self.assertGone(int(ran.out))

    def test_137_a_full_buffer_has_no_time_out(self):
        ran = self.agent().run('sleep 0.05; printf hello', full=True, timeout_ms=1)
        self.assertEqual((ran.kind, ran.code, ran.out), ('exited', 0, b'hello'))

    def test_138_a_stream_that_stays_open(self):
        ran = self.agent().run('printf hello; sleep 30 &', timeout_ms=25000)
        self.assertEqual((ran.kind, ran.code, ran.out), ('exited', 0, b'hello'))
        self.assertWithin(ran.seconds, 1.9, 15)

    def test_139_killed_by_a_signal(self):
        ran = self.agent().run('printf x; ulimit -c 0; kill -SEGV $$')
        # The reference's wire has no word for a signal: 139 is what it says of both.
        self.assertEqual((ran.klass, ran.code, ran.out), ('ok' if self.is_remote and agent.PEER else 'signal', 139, b'x'))

    def test_141_the_text_of_a_time_out(self):
        ran = self.agent().run('echo before; exec sleep 30', timeout_ms=3000)
        self.assertRegex(ran.text, r'^Exit code: 124\nWall time: [0-9.]+ seconds\nOutput:\n'
                         r'command timed out after 3000 milliseconds\nbefore\n$')

    def test_events_of_a_run(self):
        a = self.agent()
        run = a.run_later('echo out; echo err >&2; exit 3', events=True, whole=True)
        self.assertEqual(run.wait().code, 3)
        end = a.wait_end(run.key)
        self.assertEqual((end['stdout'], end['stderr'], end['aggregated_output'], end['exit_code'], end['status']),
                         ('out\n', 'err\n', 'out\nerr\n', 3, 'failed'))
        self.assertEqual(end['source'], 'user_shell')
        self.assertNotIn('process_id', end)
        self.assertEqual((b''.join(a.frames(run.key, 'stdout')), b''.join(a.frames(run.key, 'stderr'))),
                         (b'out\n', b'err\n'))
        self.assertEqual((a.kinds()[0], a.kinds()[-1]), ('exec_command_begin', 'exec_command_end'))

    def test_a_run_that_cannot_start(self):
        ran = self.agent().run(argv=['/nonexistent/program'])
        self.assertEqual((ran.kind, ran.code, ran.klass), ('failed', -1, 'error'))
        self.assertIn('No such file or directory', ran.error)

    def test_nothing_is_left_by_a_run_that_nobody_waits_for(self):
        a = self.agent()
        run = a.run_later('echo $$; exec sleep 600', events=True, timeout_ms=-1)
        a.wait_frames(run.key, b'\n')
        pid = int(b''.join(a.frames(run.key)))
        self.assertTrue(is_alive(pid))
        a.quit()
        self.assertGone(pid)


class LocalRuns(Runs, Case):
    pass


class RemoteRuns(Runs, Case):
    backend = 'ws'


if __name__ == '__main__':
    agent.main()
