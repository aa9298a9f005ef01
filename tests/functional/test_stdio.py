# SPDX-License-Identifier: Apache-2.0
"""JSON lines over stdin and stdout."""

import os
import signal

import tap
import wire
from server import Case, ours_only
from wire import MIB, b64, wait_until

STATUS = b'{"id":%d,"method":"environment/status"}'


class Stdio(Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server(listen='stdio')
        self.c = self.srv.lines()

    def close_stdin(self):
        os.close(self.c.channel.wfd)
        self.c.channel.wfd = os.dup(self.c.channel.rfd)

    def test_a_conversation(self):
        c = self.c.handshake()
        self.assertEqual(c.sh('echo out; echo err >&2; exit 3').exit_code, 3)
        p = c.start('cat', ['cat'], pipeStdin=True)
        self.assertEqual(c.write('cat', b'hello\n'), 'accepted')
        c.wait_output('cat', 'hello\n')
        self.assertTrue(c.terminate('cat'))
        self.assertEqual(c.wait_closed('cat').exit_code, 137)
        self.assertIs(p, c.process('cat'))

    def test_blank_lines_and_crlf(self):
        c = self.c.handshake()
        c.channel.write(b'\n\r\n  \t \n' + STATUS % 70 + b'\r\n  ' + STATUS % 71 + b'  \n')
        self.assertEqual(c.result(70), {'status': 'ready'})
        self.assertEqual(c.result(71), {'status': 'ready'})

    def test_malformed_lines_are_answered_and_the_rest_goes_on(self):
        c = self.c.handshake()
        for text in (b'garbage', b'[]', b'{"id":1,"id":2,"method":"x"}', b'{"id":null,"method":"x"}'):
            message = c.malformed(text)
            self.assertTrue(message.startswith('failed to parse JSON-RPC message from exec-server stdio: '), message)
        self.assertEqual(c.fence(), {'status': 'ready'})

    def test_a_line_may_come_in_pieces(self):
        c = self.c.handshake()
        for byte in STATUS % 9 + b'\n':
            c.channel.write(bytes([byte]))
        self.assertEqual(c.result(9), {'status': 'ready'})

    def test_end_of_file_ends_the_server_and_every_process(self):
        c = self.c.handshake()
        c.start('p', ['sh', '-c', 'trap "" TERM HUP INT; echo $$; while :; do sleep 1000; done'])
        pid = int(c.wait_line('p'))
        c.post_read('p', waitMs=600000, afterSeq=1)
        self.srv.track(pid)
        self.close_stdin()
        self.srv.stop(how=None)
        self.assertGone(pid)

    def test_end_of_file_before_anything(self):
        self.close_stdin()
        self.srv.stop(how=None)

    def test_half_a_line_and_then_the_end(self):
        self.c.handshake().fence()
        self.c.channel.write(STATUS[:20])
        self.close_stdin()
        self.srv.stop(how=None)

    @ours_only
    def test_sigterm_ends_it_cleanly(self):
        c = self.c.handshake()
        c.start('p', ['sleep', '1000'])
        self.srv.stop(signal.SIGTERM)

    @ours_only
    def test_sigint_ends_it_cleanly(self):
        c = self.c.handshake()
        c.start('p', ['sleep', '1000'])
        self.srv.stop(signal.SIGINT)

    def test_a_line_of_64_mib_passes(self):
        c = self.c.handshake()
        head, tail = b'{"id":5,"method":"environment/status","x":"', b'"}'
        c.channel.write(head + b'a' * (64 * MIB - len(head) - len(tail)) + tail + b'\n')
        self.assertEqual(c.result(5), {'status': 'ready'})

    def ends(self, data):
        """The connection ends without an answer, and the process with it; what comes later may find nobody."""
        c = self.c.handshake()
        c.fence()
        c.channel.write(data)
        try:
            c.channel.write(STATUS % 99 + b'\n')
        except wire.Closed:
            pass
        self.close_stdin()
        c.wait_end()
        self.assertEqual(c.replies, {})
        self.srv.stop(how=None)

    def test_a_longer_line_ends_the_connection(self):
        head = b'{"id":5,"method":"environment/status","x":"'
        self.ends(head + b'a' * (64 * MIB + 1 - len(head)) + b'\n')

    def test_invalid_utf8_ends_the_connection(self):
        self.ends(b'{"id":5,"method":"environment/status","x":"\xff"}\n')

    def test_a_fatal_message_ends_the_connection(self):
        self.ends(b'{"method":"no/such"}\n')

    @ours_only
    def test_a_long_poll_does_not_stall(self):
        c = self.c.handshake()
        c.start('p', ['sleep', '1000'])
        poll = c.post_read('p', waitMs=600000)
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertFalse(c.answered(poll))

    def test_a_flood_arrives_whole(self):
        c = self.c.handshake()
        c.keep_output = False
        p = c.run(['head', '-c', '30000000', '/dev/zero'])
        self.assertEqual((p.sizes['stdout'], p.exit_code), (30000000, 0))

    def test_resume_never_applies(self):
        c = self.c
        self.assertError(c.error('initialize', {'clientName': 'x', 'resumeSessionId': 'x'}), -32600)
        self.assertEqual(c.handshake().fence(), {'status': 'ready'})

    def test_the_server_lives_while_stdin_is_open(self):
        c = self.c.handshake()
        c.sh('exit 0')
        self.assertIsNone(self.srv.popen.poll())
        self.assertEqual(c.request('process/write', {'processId': 'no', 'chunk': b64(b'x'), 'writeId': '1'}),
                         {'status': 'unknownProcess'})

    @ours_only
    def test_closed_stdout_ends_the_server(self):
        c = self.c.handshake()
        c.start('p', ['sh', '-c', 'while :; do echo x; sleep 0.05; done'])
        c.wait_output('p', 'x')
        os.close(self.c.channel.rfd)
        self.c.channel.rfd = os.dup(self.c.channel.wfd)
        wait_until(lambda: self.srv.popen.poll() is not None, 'end of the server')
        self.srv.stop(how=None)


class Spelling(Case):
    def test_both_spellings(self):
        for listen in ('stdio', 'stdio://'):
            srv = self.server(listen=listen)
            self.assertEqual(srv.lines().handshake().fence(), {'status': 'ready'})


if __name__ == '__main__':
    tap.main()
