# SPDX-License-Identifier: Apache-2.0
"""What is too much gets the protocol's answer, and nothing else is disturbed."""

import resource
import unittest

import tap
from server import SANITIZED, Case, ours_only
from wire import MIB, TEXT, Channel, Closed, RpcError, Timeout, frame, read_http, upgrade_headers, wait_until


@ours_only
class Processes(Case):
    def test_more_than_the_limit_are_refused_and_there_is_room_again(self):
        c = self.session('--max-processes', '50', '--closed-ttl', '1')
        posts = [c.post_start('p%d' % i, ['sleep', '1000']) for i in range(60)]
        replies = [c.reply(p) for p in posts]
        good = [r for r in replies if 'result' in r]
        self.assertEqual(len(good), 50)
        for reply in replies:
            if 'error' in reply:
                self.assertError(reply['error'], -32603)
        self.assertEqual(c.fence(), {'status': 'ready'})
        other = self.srv.session()
        self.assertError(other.start_error('x', ['true']), -32603)
        for i in range(50):
            c.terminate('p%d' % i)
        wait_until(lambda: 'result' in c.reply(c.post_start('again', ['true'])), 'room', step=0.1)
        self.assertEqual(c.wait_closed('again').exit_code, 0)

    def test_the_most_processes_that_may_be_asked_for(self):
        self.assertEqual(self.session('--max-processes', '1000000').run(['true']).exit_code, 0)

    def test_closed_ones_do_not_count(self):
        c = self.session('--max-processes', '10', '--closed-ttl', '600')
        for i in range(10):
            c.run(['true'], 'c%d' % i)
        for i in range(10):
            c.start('p%d' % i, ['sleep', '1000'])
        self.assertError(c.start_error('x', ['true']), -32603, 'at most 10 processes may run at once (--max-processes)')
        c.terminate('p3')
        c.wait_closed('p3')
        c.start('x', ['sleep', '1000'])
        self.assertError(c.start_error('y', ['true']), -32603)

    def test_one_session_at_its_limit_leaves_room_for_another(self):
        c = self.session('--max-processes', '10', '--max-session-processes', '4')
        for i in range(4):
            c.start('p%d' % i, ['sleep', '1000'])
        self.assertError(c.start_error('x', ['true']), -32603,
                         'at most 4 processes of one session may run at once (--max-session-processes)')
        other = self.srv.session()
        for i in range(4):
            other.start('p%d' % i, ['sleep', '1000'])
        c.terminate('p0')
        c.wait_closed('p0')
        self.assertEqual(c.run(['true'], 'x').exit_code, 0)

    def test_ten_thousand_at_once(self):
        c = self.session('--closed-ttl', '600')
        count = 10050
        posts = []
        for i in range(count):
            posts.append(c.post_start('p%d' % i, ['/bin/true']))
        replies = [c.reply(p, 120) for p in posts]
        good = [i for i, r in enumerate(replies) if 'result' in r]
        for reply in replies:
            if 'error' in reply:
                self.assertError(reply['error'], -32603)
        self.assertGreater(len(good), 500)  # those that have ended make room for others
        for i in good:
            self.assertEqual(c.wait_closed('p%d' % i, 120).exit_code, 0)
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertEqual(self.srv.session().fence(), {'status': 'ready'})

    def test_a_thousand_alive_at_once(self):
        c = self.session()
        posts = [c.post_start('p%d' % i, ['/bin/sh', '-c', 'read x; echo $x'], pipeStdin=True) for i in range(1000)]
        replies = [c.reply(p, 120) for p in posts]
        good = [i for i, r in enumerate(replies) if 'result' in r]
        self.assertGreater(len(good), 300)
        for i in good:
            c.post_write('p%d' % i, b'%d\n' % i)
        for i in good:
            self.assertEqual(c.wait_closed('p%d' % i, 120).stdout, b'%d\n' % i)


@ours_only
class Descriptors(Case):
    def limited(self, soft):
        def before():
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
        return self.server(before_exec=before)

    def test_exhausted_descriptors_are_an_error_of_the_start(self):
        self.srv = self.limited(96)
        c = self.srv.session()
        refused, started = 0, []
        for i in range(120):
            name = 'p%d' % i
            reply = c.reply(c.post_start(name, ['sleep', '1000'], pipeStdin=True, tty=bool(i % 2)))
            if 'error' in reply:
                self.assertError(reply['error'], -32603)
                refused += 1
            else:
                started.append(name)
        self.assertGreater(refused, 0)
        self.assertGreater(len(started), 3)
        self.assertEqual(c.fence(), {'status': 'ready'})
        for name in started:
            self.assertTrue(c.terminate(name))
        for name in started:
            c.wait_closed(name)
        self.assertEqual(c.sh('echo hi', 'after').stdout, b'hi\n')

    def test_exhausted_connections_leave_the_others_served(self):
        self.srv = self.limited(64)
        c = self.srv.session()
        hello = ('GET / HTTP/1.1\r\nHost: localhost\r\n' + ''.join(
            '%s: %s\r\n' % field for field in upgrade_headers().items()) + '\r\n').encode()
        more = []
        for _ in range(120):
            more.append(Channel.connect(self.srv.address))
            try:
                more[-1].write(hello)
            except Closed:
                pass
        for _ in range(20):
            self.assertEqual(c.fence(), {'status': 'ready'})
        for one in more:
            one.close()

        def again():
            try:
                return self.srv.session().fence()
            except (Closed, AssertionError, OSError):
                return None
        self.assertEqual(wait_until(again, 'room for a connection', step=0.1), {'status': 'ready'})
        self.assertEqual(c.sh('echo hi').stdout, b'hi\n')


@ours_only
class Connections(Case):
    def test_more_than_the_limit_are_turned_away_and_there_is_room_again(self):
        srv = self.server('--max-connections', '3')
        clients = [srv.session() for _ in range(3)]
        reply = srv.http('GET', '/', upgrade_headers())
        self.assertEqual(reply.status, 503)
        for c in clients:
            self.assertEqual(c.fence(), {'status': 'ready'})
        clients.pop().close()
        wait_until(lambda: srv.http('GET', '/', upgrade_headers()).status == 101, 'room')

    def crowd(self, srv, text, count=200):
        """So many connections, more than the limit and its spare, that say this and then nothing."""
        found = []
        self.addCleanup(lambda: [one.close() for one in found])
        for _ in range(count):
            found.append(Channel.connect(srv.address))
            if text:
                try:
                    found[-1].write(text)
                except Closed:
                    pass
        return found

    def test_silent_connections_lock_nobody_out(self):
        """Neither those without a request, nor with half of one, nor those that were refused and stay."""
        srv = self.server('--max-connections', '8')
        c = srv.session()
        for text in (b'', b'GET / HTTP/1.1\r\nHost: loc', b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'):
            with self.subTest(text):
                self.crowd(srv, text)
                other = srv.session()
                self.assertEqual(other.fence(), {'status': 'ready'})
                other.close()
                self.assertEqual(srv.http('GET', '/readyz').status, 200)
                self.assertEqual(c.fence(), {'status': 'ready'})

    def test_the_first_message_has_64_kib(self):
        srv = self.server()
        hello = b'{"id":1,"method":"initialize","params":{"clientName":"%s"}}'
        c = srv.connect()
        c.transport.send_frame(TEXT, hello % (b'x' * (64 * 1024 - len(hello) + 2)))
        self.assertIn('sessionId', c.result(1))
        c.send({'method': 'initialized'})
        c.transport.send_frame(TEXT, b'{"id":2,"method":"environment/status"}'.ljust(16 * MIB))  # and now any size
        self.assertEqual(c.result(2), {'status': 'ready'})
        for attempt in (lambda t: t.send_frame(TEXT, b'', length=64 * 1024 + 1),
                        lambda t: [t.send_frame(TEXT if i == 0 else 0, b' ' * 30000, fin=False) for i in range(3)],
                        lambda t: t.send_frame(TEXT, (hello % b'x')[:-1].ljust(64 * 1024) + b'}')):
            c = srv.connect()
            attempt(c.transport)
            c.wait_end()
            self.assertEqual(c.transport.close_frame[:2], (1009).to_bytes(2, 'big'))
            self.assertEqual(c.replies, {})

    def test_the_first_line_has_64_kib(self):
        srv = self.server(listen='unix://' + self.scratch() + '/socket')
        c = srv.lines()
        c.transport.channel.write(b' ' * (64 * 1024 + 2))
        c.wait_end()
        self.assertEqual(srv.lines().handshake().fence(), {'status': 'ready'})

    def test_unfinished_messages_have_a_bound_together(self):
        """The largest goes, also when another one is the last straw; the others finish."""
        srv = self.server()
        part = b' ' * (16 * MIB)

        def send(client, parts, first=False):
            for i in range(parts):
                client.transport.send_frame(TEXT if first and i == 0 else 0, part, fin=False)

        other, largest, crowd = srv.session(), srv.session(), [srv.session() for _ in range(13)]
        send(largest, 3, first=True)
        for c in crowd:
            send(c, 1, first=True)
        self.assertEqual(other.fence(), {'status': 'ready'})
        self.assertIn(b'sallyport_connections_active 15', srv.http('GET', '/metrics').body)  # 256 MiB, and frame heads
        send(crowd[0], 1)
        largest.wait_end()
        self.assertEqual(largest.transport.close_frame[:2], (1009).to_bytes(2, 'big'))
        for c in crowd[:2]:
            c.transport.send_frame(0, b'{"id":77,"method":"environment/status"}')
            self.assertEqual(c.result(77), {'status': 'ready'})
        self.assertEqual(other.fence(), {'status': 'ready'})

    def test_the_oldest_silent_connection_goes_first(self):
        srv = self.server('--max-connections', '8')
        crowd = self.crowd(srv, b'', 136)
        self.assertEqual(srv.session().fence(), {'status': 'ready'})
        crowd[0].end_of_stream()
        crowd[-1].write(b'GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n')
        self.assertEqual(read_http(crowd[-1]).status, 200)


@ours_only
@unittest.skipIf(SANITIZED, 'a sanitizer needs the address space')
class AddressSpace(Case):
    def test_exhausted_memory_is_an_error_of_the_start(self):
        def before():
            resource.setrlimit(resource.RLIMIT_AS, (192 * MIB, 192 * MIB))
        self.srv = self.server(before_exec=before)
        c = self.srv.session()
        started, refused = [], 0
        for i in range(200):
            reply = c.reply(c.post_start('p%d' % i, ['sleep', '1000'], tty=bool(i % 2)))
            if 'error' in reply:
                self.assertError(reply['error'], -32603)
                refused += 1
            else:
                started.append('p%d' % i)
        self.assertGreater(len(started), 5)
        self.assertGreater(refused, 0)
        self.assertEqual(c.fence(), {'status': 'ready'})
        for name in started:
            c.terminate(name)
            c.wait_closed(name)

    def test_a_message_there_is_no_memory_for_ends_at_most_its_connection(self):
        def before():
            resource.setrlimit(resource.RLIMIT_AS, (64 * MIB, 64 * MIB))
        self.srv = self.server(before_exec=before)
        other = self.srv.session()
        c = self.srv.session()
        try:
            for i in range(4):
                c.transport.send_frame(1 if i == 0 else 0, b' ' * (16 * MIB), fin=i == 3)
            c.wait_for(lambda: c.answered(-1), 'answer')
        except Closed:
            pass
        self.assertEqual(other.fence(), {'status': 'ready'})
        self.assertEqual(other.sh('echo hi').stdout, b'hi\n')


@ours_only
class Memory(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()
        self.c.fence()

    def grows_less_than(self, before, limit):
        limit *= 3 if SANITIZED else 1
        wait_until(lambda: self.srv.memory() - before < limit, 'memory given back (%d MiB more)' % (
            (self.srv.memory() - before) // MIB), 20)

    def test_too_many_values_cost_nothing_lasting(self):
        before = self.srv.memory()
        text = b'{"id":1,"method":"environment/status","x":[' + b','.join([b'0'] * 5000000) + b']}'
        for _ in range(3):
            self.c.malformed(text)
        self.grows_less_than(before, 48 * MIB)

    def test_a_message_too_large_costs_nothing_lasting(self):
        before = self.srv.memory()
        for _ in range(3):
            c = self.srv.session()
            try:
                for i in range(5):
                    c.transport.send_frame(1 if i == 0 else 0, b' ' * (16 * MIB), fin=i == 4)
            except Closed:
                pass
            c.wait_end()
        self.grows_less_than(before, 48 * MIB)

    def test_large_messages_are_given_back(self):
        before = self.srv.memory()
        for _ in range(4):
            self.c.send_raw(b'{"id":1,"method":"environment/status","x":"' + b'a' * (15 * MIB) + b'"}')
            self.assertEqual(self.c.reply(1)['result'], {'status': 'ready'})
        self.grows_less_than(before, 48 * MIB)

    def test_deep_nesting_is_refused(self):
        self.c.malformed(b'[' * (4 * MIB))
        self.c.malformed(b'{"a":' * MIB)
        self.assertEqual(self.c.fence(), {'status': 'ready'})

    def test_a_client_that_asks_and_never_reads_is_bounded(self):
        c = self.srv.session(rcvbuf=65536)
        c.sh('head -c 1000000 /dev/zero', 'big')
        before = self.srv.memory()
        ask = frame(1, b'{"id":1,"method":"process/read","params":{"processId":"big"}}')
        try:  # each answer has 1.3 MB
            for _ in range(3000):
                c.channel.write(ask * 200, timeout=2, pump=False)
            self.fail('the server reads and reads')
        except (Timeout, Closed):
            pass  # it stopped reading
        self.assertLess(self.srv.memory() - before, 128 * MIB)
        self.assertEqual(self.c.fence(), {'status': 'ready'})
        c.abort()
        self.grows_less_than(before, 48 * MIB)

    def test_many_rings_are_bounded_by_what_they_hold(self):
        before = self.srv.memory()
        posts = [self.c.post_start('p%d' % i, ['sh', '-c', 'echo x; exec sleep 1000']) for i in range(200)]
        for post in posts:
            self.c.result(post)
        for i in range(200):
            self.c.wait_output('p%d' % i, 'x')
        self.assertLess((self.srv.memory() - before) / 200, 256 * 1024)


class Input(Case):
    def test_a_hundred_pipelined_messages_in_one_frame_sequence(self):
        c = self.session()
        ids = [c.post('environment/status') for _ in range(100)]
        for one in ids:
            self.assertEqual(c.result(one), {'status': 'ready'})

    def test_many_idle_connections(self):
        srv = self.server()
        clients = [srv.session() for _ in range(200)]
        for c in clients:
            self.assertEqual(c.fence(), {'status': 'ready'})

    @ours_only
    def test_a_slow_sender_does_not_stop_the_others(self):
        srv = self.server()
        slow = srv.connect()
        slow.channel.write(frame(1, b'{"id":1,"method":"environment/status"}')[:7])
        fast = srv.session()
        for _ in range(50):
            fast.fence()
        self.assertEqual(fast.sh('echo hi').stdout, b'hi\n')

    def test_long_strings(self):
        c = self.session()
        big = 'x' * (3 * MIB)
        error = c.error('process/read', {'processId': big})
        self.assertEqual(error['code'], -32600)
        with self.assertRaises(RpcError):
            c.request('no/such/' + big)
        self.assertEqual(c.fence(), {'status': 'ready'})


if __name__ == '__main__':
    tap.main()
