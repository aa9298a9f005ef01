# SPDX-License-Identifier: Apache-2.0
"""Calls of the official SDKs that are longer than their clients would wait, but for progress."""

import sdk
import wire

import tap


class Long(sdk.Case):
    def test_reset_by_progress(self):
        """A call that takes longer than its client waits for silence. All kinds at once, for it takes its time."""
        begun = []
        for over in ('http', 'stdio'):
            for kind in sdk.KINDS:
                c = self.client(kind, over)
                order = c.call_later('exec_command', {'argv': ['sleep', '24'], 'yield_time_ms': 30000, 'until': {'exit': True}},
                                     progress=True, reset=True, timeout=22000)
                begun.append((c, order))
        for c, order in begun:
            r = sdk.Result(c.result(order, 60 * wire.SCALE))
            self.assertEqual(r['exit_code'], 0, r)
            seen = [c.progress(order)['progress'] for _ in range(2)]
            self.assertLess(seen[0], seen[1])


if __name__ == '__main__':
    tap.main()
