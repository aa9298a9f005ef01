# SPDX-License-Identifier: Apache-2.0
"""The server pings, and lets go of a peer that gives no sign of life. This takes a minute."""

import time

import tap
from server import PEER, Case, ours_only
from wire import Channel, Timeout


class KeepAlive(Case):
    def test_pings_every_thirty_seconds_and_drops_who_is_silent_for_sixty(self):
        srv = self.server()
        began = time.monotonic()
        alive, silent = srv.session(), srv.session()
        silent.transport.auto_pong = False
        silent.fence()
        alive.fence()
        first = second = dropped = None
        while time.monotonic() - began < 120 and not (second and (dropped or PEER)):
            for c in (alive, silent):
                if c is silent and dropped:
                    continue
                try:
                    c.pump(0.25)
                except Timeout:
                    pass
                except Exception:
                    self.assertIs(c, silent, 'who answers is not dropped')
                    dropped = time.monotonic() - began
            if alive.transport.pings and not first:
                first = time.monotonic() - began
            if len(alive.transport.pings) > 1 and not second:
                second = time.monotonic() - began
        self.assertEqual(alive.transport.pings[:2], [b'', b''])
        self.assertGreaterEqual(first, 29)
        self.assertGreaterEqual(second, first + 29)
        self.assertEqual(alive.fence(), {'status': 'ready'})
        if PEER:
            self.assertIsNone(dropped)
        else:
            self.assertGreaterEqual(dropped, 55)
            self.assertEqual(srv.session(resume=silent.session_id).fence(), {'status': 'ready'})

    @ours_only
    def test_a_handshake_that_never_ends_is_given_up(self):
        srv = self.server()
        channel = Channel.connect(srv.address)
        channel.write(b'GET / HTTP/1.1\r\nHost: localhost\r\n')
        channel.end_of_stream(60)
        channel.close()


if __name__ == '__main__':
    tap.main()
