# SPDX-License-Identifier: Apache-2.0
"""Sessions outlive connections: detach, resume, expiry, isolation; and how long closed processes
are remembered."""

import os
import time

import tap
from server import Case, Gate, is_alive, ours_only
from wire import RpcError, read_all, unb64, wait_until


def resume_when_free(srv, session_id):
    """Resumes as soon as the server lets go of the old connection."""
    def attempt():
        c = srv.connect()
        try:
            c.initialize(session_id)
        except RpcError as e:
            c.close()
            if e.code != -32010:
                raise
            return None
        c.send({'method': 'initialized'})
        return c
    return wait_until(attempt, 'resume', step=0.05)


class Resume(Case):
    def test_processes_and_output_survive_a_lost_connection(self):
        for how in ('close', 'abort'):
            c = self.session()
            gate = Gate(self.srv.work, 'gate-' + how)
            c.start('p', ['/bin/sh', '-c', 'echo one; %s; echo two; read x; echo three; exit 4' % gate.wait], pipeStdin=True)
            c.wait_output('p', 'one\n')
            getattr(c, how)()
            gate.open()
            again = resume_when_free(self.srv, c.session_id)
            self.assertEqual(again.session_id, c.session_id)
            text = b''
            while text != b'one\ntwo\n':
                page = again.read('p', afterSeq=len(text) // 4, waitMs=60000)
                text += b''.join(unb64(x['chunk']) for x in page['chunks'])
            again.write('p', b'\n')
            p = again.wait_closed('p')
            self.assertTrue(p.stdout.endswith(b'three\n'))
            self.assertEqual((p.exit_code, p.exit_seq, p.close_seq), (4, 4, 5))
            chunks, _last = read_all(again, 'p')
            self.assertEqual([x['seq'] for x in chunks], [1, 2, 3])

    def test_notifications_missed_while_detached_are_not_replayed(self):
        c = self.session()
        gate = Gate(self.srv.work)
        c.start('p', ['/bin/sh', '-c', 'echo $$; %s; echo missed' % gate.wait])
        pid = int(c.wait_line('p'))
        c.close()
        gate.open()
        wait_until(lambda: not os.path.exists('/proc/%d' % pid), 'the command to be reaped')
        self.srv.session().sh('true')  # the server has read all earlier events when it reports this one
        again = resume_when_free(self.srv, c.session_id)
        page = again.read('p', waitMs=60000, afterSeq=3)
        self.assertEqual((page['exited'], page['closed']), (True, True))
        self.assertEqual(again.take_notes(), [])
        self.assertEqual(len(again.read('p')['chunks']), 2)

    def test_a_resumed_connection_gets_environment_info(self):
        c = self.session()
        c.close()
        self.assertEqual(resume_when_free(self.srv, c.session_id).info, c.info)

    def test_a_long_poll_left_behind_does_not_delay_a_resume(self):
        c = self.session()
        c.start('p', ['sleep', '1000'])
        c.post_read('p', waitMs=600000)
        c.post_read('p', waitMs=600000)
        c.abort()
        again = resume_when_free(self.srv, c.session_id)
        self.assertFalse(again.read('p')['exited'])

    def test_a_session_can_be_resumed_many_times(self):
        c = self.session()
        c.start('p', ['cat'], pipeStdin=True)
        for i in range(10):
            c.write('p', b'%d\n' % i, str(i))
            c.wait_output('p', '%d\n' % i)
            c.close()
            c = resume_when_free(self.srv, c.session_id)
        chunks = c.read('p')['chunks']
        self.assertEqual(b''.join(unb64(x['chunk']) for x in chunks), b''.join(b'%d\n' % i for i in range(10)))

    def test_an_attached_session_cannot_be_taken(self):
        c = self.session()
        other = self.srv.connect()
        error = other.error('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id})
        self.assertError(error, -32010, 'session %s is already attached to another connection' % c.session_id)
        other.handshake()
        self.assertNotEqual(other.session_id, c.session_id)
        self.assertEqual((c.fence(), other.fence()), ({'status': 'ready'},) * 2)

    def test_before_initialized_a_resumed_session_is_guarded(self):
        c = self.session()
        c.start('p', ['sleep', '1000'])
        c.close()

        def attempt():
            again = self.srv.connect()
            reply = again.reply(again.post('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id}))
            return again if 'result' in reply else again.close()
        again = wait_until(attempt, 'resume')
        self.assertError(again.error('process/read', {'processId': 'p'}), -32600,
                         'client must send initialized before using exec methods')
        again.send({'method': 'initialized'})
        self.assertFalse(again.read('p')['exited'])

    def test_sessions_are_isolated(self):
        one = self.session()
        two = self.srv.session()
        one.start('p', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        pid = int(one.wait_line('p'))
        self.assertError(two.error('process/read', {'processId': 'p'}), -32600, 'unknown process id p')
        self.assertEqual(two.write('p', b'x'), 'unknownProcess')
        self.assertFalse(two.terminate('p'))
        self.assertEqual(two.signal('p'), {})
        two.run(['echo', 'mine'], 'p')
        self.assertTrue(is_alive(pid))
        self.assertEqual(two.process('p').stdout, b'mine\n')
        self.assertEqual(one.read('p')['nextSeq'], 2)


@ours_only
class HalfOpen(Case):
    def test_a_silent_connection_is_dropped_when_somebody_wants_its_session(self):
        c = self.session()
        c.start('p', ['/bin/sh', '-c', 'echo alive; exec sleep 1000'])
        c.wait_output('p', 'alive')
        # from here on the old connection reads nothing and answers no ping
        began = time.monotonic()
        other = self.srv.connect()
        self.assertError(other.error('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id}), -32010)
        again = resume_when_free(self.srv, c.session_id)
        self.assertLess(time.monotonic() - began, 25, 'a client recovers for 25 s only')
        self.assertFalse(again.read('p')['exited'])
        c.transport.auto_pong = False
        c.wait_end()

    def test_a_connection_that_answers_keeps_its_session(self):
        c = self.session()
        other = self.srv.connect()
        self.assertError(other.error('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id}), -32010)
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            try:
                c.pump(max(0.01, min(0.2, end - time.monotonic())))
            except AssertionError:
                pass
        self.assertTrue(c.transport.pings, 'the old connection was asked')
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertError(other.error('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id}), -32010)


@ours_only
class Expiry(Case):
    def test_a_detached_session_expires_with_its_processes(self):
        c = self.session('--session-ttl', '1')
        c.start('p', ['/bin/sh', '-c', 'trap "" TERM HUP INT; echo $$; setsid sleep 1000 & echo $!; while :; do sleep 1000; done'])
        c.start('t', ['/bin/sh', '-c', 'trap "" HUP; echo $$; exec sleep 1000'], tty=True)
        c.wait_output('p', '\n')
        c.wait_for(lambda: c.process('p').stdout.count(b'\n') == 2)
        pids = [int(x) for x in c.process('p').stdout.split()] + [int(c.wait_line('t'))]
        self.srv.track(*pids)
        began = time.monotonic()
        c.close()
        self.assertGone(*pids)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)
        other = self.srv.connect()
        wait_until(lambda: 'unknown session id' in other.error(
            'initialize', {'clientName': 'x', 'resumeSessionId': c.session_id})['message'], 'end of the session')
        self.assertError(other.error('initialize', {'clientName': 'x', 'resumeSessionId': c.session_id}), -32600,
                         'unknown session id ' + c.session_id)

    def test_resuming_in_time_stops_the_clock(self):
        c = self.session('--session-ttl', '2')
        c.start('p', ['sleep', '1000'])
        c.close()
        c = resume_when_free(self.srv, c.session_id)
        began = time.monotonic()
        page = c.read('p', waitMs=3000)
        self.assertGreaterEqual(time.monotonic() - began, 2.9)
        self.assertFalse(page['exited'])

    def test_an_attached_session_never_expires(self):
        c = self.session('--session-ttl', '1')
        c.start('p', ['sleep', '1000'])
        self.assertFalse(c.read('p', waitMs=2500)['exited'])

    def test_a_closed_process_is_forgotten_after_its_time(self):
        c = self.session('--closed-ttl', '1')
        c.run(['echo', 'x'], 'p')
        began = time.monotonic()
        self.assertEqual(c.read('p')['nextSeq'], 4)
        self.assertError(c.start_error('p', ['true']), -32600, 'process p already exists')
        wait_until(lambda: 'error' in c.reply(c.post_read('p')), 'forgotten process', step=0.02)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)
        self.assertError(c.error('process/read', {'processId': 'p'}), -32600, 'unknown process id p')
        self.assertEqual(c.write('p', b'x'), 'unknownProcess')
        self.assertEqual(c.run(['echo', 'again'], 'p').stdout, b'again\n')

    def test_an_open_process_is_never_forgotten(self):
        c = self.session('--closed-ttl', '1')
        c.start('p', ['/bin/sh', '-c', 'sleep 1000 & exit 0'])
        c.wait_exited('p')
        page = c.read('p', afterSeq=1, waitMs=2500)
        self.assertEqual((page['exited'], page['closed']), (True, False))
        self.assertEqual(c.read('p')['nextSeq'], 2)

    def test_closed_processes_are_forgotten_while_detached_too(self):
        c = self.session('--closed-ttl', '1', '--session-ttl', '20')
        c.run(['true'], 'p')
        c.close()
        c = resume_when_free(self.srv, c.session_id)
        wait_until(lambda: 'error' in c.reply(c.post_read('p')), 'forgotten process', step=0.05)

    def test_a_poll_that_waits_when_its_process_is_forgotten_was_answered_before(self):
        c = self.session('--closed-ttl', '1')
        c.start('p', ['true'])
        page = c.read('p', afterSeq=100, waitMs=600000)
        self.assertTrue(page['closed'])


class Default(Case):
    def test_a_moment_later_everything_is_still_there(self):
        srv = self.server()
        c = srv.session()
        c.run(['true'], 'p')
        c.close()
        c = resume_when_free(srv, c.session_id)
        self.assertEqual(c.read('p')['nextSeq'], 3)


if __name__ == '__main__':
    tap.main()
