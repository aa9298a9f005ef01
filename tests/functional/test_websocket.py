# SPDX-License-Identifier: Apache-2.0
"""Frames: limits, masks, fragments, control frames, UTF-8, and how connections end."""

import struct

import tap
from server import Case, ours_only
from wire import BINARY, CLOSE, MIB, PING, PONG, TEXT, Closed, deadline, frame

STATUS = b'{"id":1,"method":"environment/status"}'


def padded(size):
    """A status request of exactly `size` bytes."""
    head, tail = b'{"id":1,"method":"environment/status","x":"', b'"}'
    return head + b'a' * (size - len(head) - len(tail)) + tail


class Frames(Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server()
        self.c = self.srv.session()
        self.c.fence()

    def ready(self):
        self.assertEqual(self.c.reply(1), {'id': 1, 'result': {'status': 'ready'}})

    def dropped(self, data, c=None):
        """The connection ends without a reply, and nobody else notices."""
        c = c or self.c
        try:
            c.channel.write(data)
        except Closed:
            pass
        c.wait_end()
        self.assertEqual(c.replies, {})
        self.assertEqual(self.srv.session().fence(), {'status': 'ready'})

    def test_text_and_binary_are_alike_and_replies_are_text(self):
        self.c.transport.send_frame(BINARY, STATUS)
        self.ready()
        self.c.transport.send_frame(TEXT, STATUS)
        self.ready()

    def test_fragments_are_put_together(self):
        for opcode in (TEXT, BINARY):
            for cut in (1, 7, len(STATUS) - 1):
                self.c.transport.send_frame(opcode, STATUS[:cut], fin=False)
                self.c.transport.send_frame(0, STATUS[cut:])
                self.ready()
        for i, byte in enumerate(STATUS):
            self.c.transport.send_frame(TEXT if i == 0 else 0, bytes([byte]), fin=False)
        self.c.transport.send_frame(0, b'')
        self.ready()

    def test_a_character_may_be_split_between_fragments(self):
        text = '{"id":1,"method":"environment/status","x":"é😀"}'.encode()
        at = text.index('😀'.encode())
        self.c.transport.send_frame(TEXT, text[:at + 2], fin=False)
        self.c.transport.send_frame(0, text[at + 2:])
        self.ready()

    def test_frames_may_come_byte_by_byte(self):
        for byte in frame(TEXT, STATUS):
            self.c.channel.write(bytes([byte]))
        self.ready()

    @ours_only
    def test_many_frames_in_one_write(self):
        self.c.channel.write(b''.join(frame(TEXT, STATUS) for _ in range(1000)))
        for _ in range(1000):
            self.ready()

    def test_ping_is_answered_with_its_payload(self):
        for payload in (b'', b'x', b'\xff' * 125):
            self.c.transport.send_frame(PING, payload)
            self.c.fence()
            self.assertEqual(self.c.transport.pongs[-1], payload)

    def test_control_frames_come_between_fragments(self):
        self.c.transport.send_frame(TEXT, STATUS[:5], fin=False)
        self.c.transport.send_frame(PING, b'mid')
        self.c.transport.send_frame(PONG, b'unasked')
        self.c.transport.send_frame(0, STATUS[5:])
        self.ready()
        self.assertEqual(self.c.transport.pongs, [b'mid'])

    def test_a_pong_comes_before_the_message_is_complete(self):
        self.c.transport.send_frame(TEXT, STATUS[:5], fin=False)
        self.c.transport.send_frame(PING, b'now')
        got = self.c.transport.receive_frame(deadline())
        self.assertEqual(got, (True, PONG, b'now'))

    def test_unsolicited_pongs_are_ignored(self):
        self.c.transport.send_frame(PONG, b'hello')
        self.assertEqual(self.c.fence(), {'status': 'ready'})

    def test_an_empty_message_is_malformed_json(self):
        self.c.malformed(b'')
        self.assertEqual(self.c.fence(), {'status': 'ready'})

    def test_binary_that_is_not_utf8_is_malformed_only(self):
        self.c.transport.send_frame(BINARY, b'\xff\xfe')
        self.assertEqual(self.c.reply(-1)['error']['code'], -32600)
        self.c.transport.send_frame(BINARY, b'{"id":1,"method":"environment/status","x":"\xc3"}')
        self.assertEqual(self.c.reply(-1)['error']['code'], -32600)
        self.assertEqual(self.c.fence(), {'status': 'ready'})

    def test_text_that_is_not_utf8_drops(self):
        for bad in (b'\xff', b'\xc3', b'\xed\xa0\x80', b'\xc0\x80', b'\xf5\x80\x80\x80', b'\xf4\x90\x80\x80', b'\xe0\x80\xaf'):
            c = self.srv.session()
            c.fence()
            self.dropped(frame(TEXT, b'{"id":1,"method":"environment/status","x":"' + bad + b'"}'), c)

    def test_an_unmasked_frame_drops(self):
        self.dropped(frame(TEXT, STATUS, mask=False))

    def test_an_unmasked_ping_drops(self):
        self.dropped(frame(PING, b'', mask=False))

    def test_reserved_opcodes_drop(self):
        for opcode in (3, 7, 11, 15):
            c = self.srv.session()
            c.fence()
            self.dropped(frame(opcode, STATUS), c)

    def test_reserved_bits_drop(self):
        for rsv in (1, 2, 4):
            c = self.srv.session()
            c.fence()
            self.dropped(frame(TEXT, STATUS, rsv=rsv), c)

    def test_broken_fragmentation_drops(self):
        self.dropped(frame(0, STATUS))  # a continuation of nothing
        c = self.srv.session()
        c.fence()
        self.dropped(frame(TEXT, STATUS[:3], fin=False) + frame(TEXT, STATUS), c)  # a start inside

    def test_bad_control_frames_drop(self):
        self.dropped(frame(PING, b'x' * 126))
        c = self.srv.session()
        c.fence()
        self.dropped(frame(PING, b'x', fin=False), c)

    def test_a_length_with_the_top_bit_drops(self):
        self.dropped(b'\x81\xff' + struct.pack('>Q', 1 << 63) + b'abcd')

    def test_a_huge_announced_length_drops_before_any_payload(self):
        self.dropped(frame(TEXT, b'', length=1 << 40))

    def test_a_frame_of_16_mib_passes_and_one_byte_more_drops(self):
        self.c.transport.send_frame(TEXT, padded(16 * MIB))
        self.ready()
        self.dropped(frame(TEXT, padded(16 * MIB + 1)))

    def test_a_message_of_64_mib_passes_and_one_byte_more_drops(self):
        def parts(data):
            for at in range(0, len(data), 16 * MIB):
                yield at, data[at:at + 16 * MIB]
        data = padded(64 * MIB)
        for at, part in parts(data):
            self.c.transport.send_frame(TEXT if at == 0 else 0, part, fin=at + len(part) == len(data))
        self.ready()
        data = padded(64 * MIB + 1)
        try:
            for at, part in parts(data):
                self.c.transport.send_frame(TEXT if at == 0 else 0, part, fin=at + len(part) == len(data))
        except Closed:
            pass
        self.c.wait_end()
        self.assertEqual(self.c.replies, {})
        self.assertEqual(self.srv.session().fence(), {'status': 'ready'})

    @ours_only
    def test_large_replies_come_in_fragments_of_at_most_1_mib(self):
        self.c.sh('head -c 1048576 /dev/zero', 'big')
        page = self.c.read('big')
        self.assertGreaterEqual(sum(len(x['chunk']) for x in page['chunks']), 1300000)
        self.assertLessEqual(self.c.transport.largest_frame, MIB)
        self.assertGreaterEqual(self.c.transport.fragments, 2)

    def test_a_close_frame_ends_the_connection(self):
        for payload in (b'', b'\x03\xe8', b'\x03\xe8bye'):
            c = self.srv.session()
            c.fence()
            c.transport.send_frame(CLOSE, payload)
            c.wait_end()

    @ours_only
    def test_a_close_frame_is_answered_with_one(self):
        self.c.transport.send_frame(CLOSE, b'\x03\xe8')
        self.c.wait_end()
        self.assertEqual(self.c.transport.close_frame[:2], b'\x03\xe8')

    @ours_only
    def test_the_server_says_goodbye_with_a_close_frame(self):
        self.c.send({'method': 'no/such'})
        self.c.wait_end()
        self.assertIsNotNone(self.c.transport.close_frame)

    def test_half_a_frame_and_then_the_end_disturbs_nobody(self):
        whole = frame(TEXT, STATUS)
        for cut in range(0, len(whole), 5):
            c = self.srv.session()
            c.channel.write(whole[:cut])
            c.abort() if cut % 2 else c.close()
        self.assertEqual(self.c.fence(), {'status': 'ready'})

    def test_half_a_message_and_then_the_end_disturbs_nobody(self):
        for _ in range(10):
            c = self.srv.session()
            c.transport.send_frame(TEXT, b'{"id":1,' + b' ' * 100000, fin=False)
            c.abort()
        self.assertEqual(self.c.fence(), {'status': 'ready'})


if __name__ == '__main__':
    tap.main()
