# SPDX-License-Identifier: Apache-2.0
"""Clients that do not read, leave in the middle, or ask for too much: nobody else is disturbed."""

import os
import re
import signal
import time

import tap
from server import PYTHON, Case, cgroup_of, cgroup_roots, descendants, is_alive, name_of, ours_only
from wire import BINARY, MIB, frame, wait_until


def metric(srv, name):
    text = srv.http('GET', '/metrics').body.decode()
    return int(re.search(r'^sallyport_%s (\d+)' % name, text, re.M).group(1))


@ours_only
class StoppedCell(Case):
    """The cell without a sandbox, which all sessions share, stands still; no other one takes its starts."""

    def setUp(self):
        super().setUp()
        self.c = self.session('--cells', '1')
        self.c.sh('true')
        self.cell = next(p for p in descendants(self.srv.pid) if name_of(p) == 'sallyport cell')
        self.other = self.srv.session()

    def stop(self):
        os.kill(self.cell, signal.SIGSTOP)
        self.addCleanup(lambda: is_alive(self.cell) and os.kill(self.cell, signal.SIGCONT))

    def test_a_call_that_cannot_wait_for_a_start_says_so(self):
        self.stop()
        start = self.c.post_start('p', ['true'])
        self.c.fence()
        # an escaped spelling, which is found only when the message has been parsed
        self.other.send_raw('{"id":900,"method":"process/read","params":{"session\\u0049d":"%s","processId":"p"}}'
                            % self.c.session_id)
        self.c.send_raw('{"id":900,"method":"process/read","params":{"process\\u0049d":"p"}}')
        for client in (self.other, self.c):
            self.assertEqual(client.reply(900)['error'], {'code': -32600, 'message': 'process p is starting; try again'})
        os.kill(self.cell, signal.SIGCONT)
        self.c.result(start)

    def test_who_fills_it_waits_and_the_others_go_on(self):
        sandbox = {'permissions': {'type': 'managed', 'network': 'restricted', 'file_system': {'type': 'unrestricted'}},
                   'cwd': 'file:///', 'workspaceRoots': [], 'windowsSandboxLevel': 'disabled',
                   'windowsSandboxProxySettingsMode': 'reconcile', 'useLegacyLandlock': False}
        self.other.sh('true', sandbox=sandbox)
        self.other.request('fs/getMetadata', {'path': 'file:///'})  # the process for it is there
        self.stop()
        env = {'PATH': '/bin', 'BIG': 'x' * 50000}
        began = time.monotonic()
        ids = [self.c.post_start('p%d' % i, ['true'], env=env) for i in range(60)]  # 3 MB
        self.assertEqual(self.other.sh('echo here', sandbox=sandbox).text, 'here\n')
        self.assertEqual(self.other.request('fs/getMetadata', {'path': 'file:///'})['isDirectory'], True)
        self.assertEqual(self.srv.session().fence(), {'status': 'ready'})
        self.assertLess(time.monotonic() - began, 5)
        # After five seconds its starts are refused, and the connection that waited is read again.
        for i in ids[-10:]:
            error = self.c.reply(i)['error']
            self.assertEqual(error['code'], -32603)
            self.assertIn('the cell (pid %d) does not answer' % self.cell, error['message'])
        self.assertIn('does not answer', self.other.start_error('q', ['true'])['message'])
        self.assertEqual(self.c.fence(), {'status': 'ready'})
        self.assertIn('does not answer; its starts are refused', self.srv.stderr())
        os.kill(self.cell, signal.SIGCONT)
        answers = [self.c.reply(i) for i in ids[:-10]]
        self.assertTrue(all('result' in a for a in answers[:5]))
        for i, answer in enumerate(answers):
            if 'result' in answer:
                self.assertEqual(self.c.wait_closed('p%d' % i).exit_code, 0)
        self.assertEqual(self.other.sh('echo again').text, 'again\n')

    def test_starts_of_one_session_do_not_keep_another_waiting(self):
        count, most = 600, 128  # SP_SESSION_STARTING
        self.stop()
        starts = [self.c.post_start('p%d' % i, ['true']) for i in range(count)]
        other = self.other.post_start('other', ['echo', 'here'])
        self.other.fence()

        looker = self.srv.session()

        def starting():
            listed = [p for p in looker.request('process/list', {'all': True})['processes'] if p['state'] == 'starting']
            return [sum(p['sessionId'] == c.session_id for p in listed) for c in (self.c, self.other)]
        wait_until(lambda: starting() == [most, 1], 'the starts that wait for the cell')
        os.kill(self.cell, signal.SIGCONT)
        self.other.result(other)
        self.assertEqual(self.other.wait_closed('other').stdout, b'here\n')
        for start in starts:
            self.c.result(start)
        for i in range(count):
            self.assertEqual(self.c.wait_closed('p%d' % i).exit_code, 0)

    def test_a_start_that_races_its_end_may_be_tried_again(self):
        self.stop()
        number = self.c.post_start('p', ['true'])
        self.c.fence()
        os.kill(self.cell, signal.SIGKILL)
        self.assertEqual(self.c.reply(number)['error'], {'code': -32603, 'message': 'the cell was lost; try again'})
        self.assertEqual(self.c.sh('echo again', 'p').text, 'again\n')


@ours_only
class Requests(Case):
    def test_answers_outlive_the_time_a_closed_process_is_kept(self):
        c = self.session('--closed-ttl', '1')
        c.start('p', ['/bin/true'], tty=True)
        c.wait_closed('p')
        size = {'processId': 'p', 'rows': 10, 'cols': 10}
        ids = []
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            ids += [c.post('process/resize', size) for _ in range(20)]
            c.fence()
        replies = [c.reply(i) for i in ids]
        self.assertEqual(replies[0]['result'], {})
        self.assertEqual(replies[-1]['error']['code'], -32600)  # forgotten by then, and said so

    def test_reads_of_a_client_that_does_not_read_wait_in_the_ring(self):
        c = self.session('--closed-ttl', '0')
        slow = self.srv.session(rcvbuf=4096)
        slow.start('p', [PYTHON, '-S', '-c', 'import os; os.read(0, 1); os.write(1, b"x" * 60000)'], pipeStdin=True)
        ids = [slow.post_read('p', waitMs=600000) for _ in range(200)]
        slow.fence()
        slow.post_write('p', b'g')
        wait_until(lambda: metric(self.srv, 'queue_bytes') > 100000, 'a full queue')
        self.assertLess(metric(self.srv, 'queue_bytes'), 4 * MIB)
        self.assertEqual(c.fence(), {'status': 'ready'})
        for i in ids:
            self.assertTrue(slow.reply(i)['result']['chunks'])

    def test_deadlines_of_reads_do_not_fill_the_queue(self):
        c = self.session()
        slow = self.srv.session(rcvbuf=4096)
        slow.start('p', ['/bin/sh', '-c', 'head -c 400000 /dev/zero; read x'], pipeStdin=True)
        slow.wait_for(lambda: len(slow.process('p').stdout) == 400000, 'its output')
        ids = [slow.post_read('p', afterSeq=0, waitMs=1) for _ in range(200)]
        wait_until(lambda: metric(self.srv, 'queue_bytes') > 200000, 'a full queue')
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertLess(metric(self.srv, 'queue_bytes'), 6 * MIB)
        for i in ids:
            slow.reply(i)

    def test_a_client_that_reads_is_heard_whatever_is_pushed(self):
        c = self.session()
        for k in range(4):
            c.start('y%d' % k, ['yes', 'x' * 80])
        c.wait_output('y0', 'x')
        reads = [c.post_read('y0', afterSeq=0) for _ in range(12)]
        last = c.post('environment/status')
        for i in reads:
            c.reply(i)
        self.assertEqual(c.reply(last)['result'], {'status': 'ready'})
        for k in range(4):
            self.assertTrue(c.terminate('y%d' % k))

    def test_bytes_that_are_no_text_are_answered_within_bounds(self):
        c = self.session()
        rude = self.srv.connect(rcvbuf=4096)
        rubbish = frame(BINARY, b'\xff') * 20000
        try:
            for _ in range(15):
                rude.transport.channel.write(rubbish, timeout=2, pump=False)
        except AssertionError:
            pass  # the server has stopped reading, as it should
        self.assertLess(metric(self.srv, 'queue_bytes'), 5 * MIB)
        self.assertEqual(c.fence(), {'status': 'ready'})
        rude.abort()


@ours_only
class Input(Case):
    def test_a_small_write_does_not_overtake_a_large_one(self):
        c = self.session()
        os.mkfifo(os.path.join(self.srv.work, 'gate'))
        c.start('p', ['/bin/sh', '-c', 'read x < gate; tr -d 0 | head -c 3; cat > /dev/null'], pipeStdin=True)
        ids = [c.post_write('p', data, str(n)) for n, data in enumerate((b'0' * 8 * MIB, b'1' * 6 * MIB, b'2'))]
        c.fence()
        self.assertFalse(c.answered(ids[1]))
        with open(os.path.join(self.srv.work, 'gate'), 'w', encoding='ascii') as gate:
            gate.write('\n')
        for i in ids:
            self.assertEqual(c.reply(i)['result'], {'status': 'accepted'})
        self.assertEqual(c.wait_output('p', '1'), '111')
        c.terminate('p')

    def test_an_end_of_input_that_never_came_to_its_turn_is_not_remembered(self):
        first = self.session()
        os.mkfifo(os.path.join(self.srv.work, 'gate'))
        first.start('p', ['/bin/sh', '-c', 'read x < gate; wc -c'], pipeStdin=True)
        self.assertEqual(first.write('p', b'0' * 8 * MIB, '0'), 'accepted')
        first.post_write('p', b'1' * MIB, '1')
        first.post('process/closeStdin', {'processId': 'p'})
        first.fence()
        first.abort()
        wait_until(lambda: metric(self.srv, 'connections_active') == 0, 'the end of the connection')
        c = self.srv.session(resume=first.session_id)
        again = c.post_write('p', b'1' * MIB, '1')
        c.fence()
        with open(os.path.join(self.srv.work, 'gate'), 'w', encoding='ascii') as gate:
            gate.write('\n')
        self.assertEqual(c.reply(again)['result'], {'status': 'accepted'})
        self.assertEqual(c.request('process/closeStdin', {'processId': 'p'}), {'status': 'accepted'})
        self.assertEqual(c.wait_output('p', '\n').strip(), str(9 * MIB))
        c.wait_closed('p')


@ours_only
class Ends(Case):
    def test_a_leaf_with_groups_of_its_own_is_not_used_again(self):
        c = self.session()
        c.start('p', ['/bin/sh', '-c', 'echo $$; read x'], pipeStdin=True)
        group = cgroup_of(int(c.wait_line('p')))
        if group is None or 'sallyport-' not in group:
            self.skipTest('this host lets us have no cgroups')
        leaf, = [root + group for root in cgroup_roots() if os.path.isdir(root + group)]
        os.mkdir(os.path.join(leaf, 'inner'))
        c.terminate('p')
        c.wait_closed('p')
        for n in range(3):
            self.assertEqual(c.run(['echo', 'hi'], 'q%d' % n).stdout, b'hi\n')
        wait_until(lambda: not os.path.exists(leaf), 'the end of the leaf')

    def test_a_job_that_was_orphaned_later_stays_its_sessions(self):
        a = self.session('--no-cgroups', '--session-ttl', '0')
        b = self.srv.session()
        a.sh('(sleep 0.4; (setsid sleep 1077 > /dev/null 2>&1 &); exit 0) > /dev/null 2>&1 & exit 0', 'a')

        def jobs():
            return [p for p in descendants(self.srv.pid) if name_of(p) == 'sleep 1077']
        wait_until(jobs, 'the job')
        pid, = jobs()
        wait_until(lambda: len(descendants(self.srv.pid)) == 2, 'the end of its parents')
        b.run(['/bin/true'], 'b')
        b.close()
        wait_until(lambda: metric(self.srv, 'sessions') == 1, 'the end of session b')
        self.assertEqual(jobs(), [pid])
        a.close()
        self.assertGone(pid)

    def test_signals_that_were_ignored_stay_so(self):
        for number in (signal.SIGHUP, signal.SIGINT):
            srv = self.server(before_exec=lambda n=number: signal.signal(n, signal.SIG_IGN))
            os.kill(srv.pid, number)
            self.assertEqual(srv.session().fence(), {'status': 'ready'})

    def test_a_long_id_is_refused_and_a_long_list_is_short(self):
        c = self.session()
        self.assertError(c.start_error('x' * 65537, ['true']), -32602)
        self.assertEqual(c.run(['true', 'y' * 100000], 'x' * 65536).exit_code, 0)
        listed, = c.request('process/list')['processes']
        self.assertEqual(listed['argv'], ['true', 'y' * 4096])


tap.main()
