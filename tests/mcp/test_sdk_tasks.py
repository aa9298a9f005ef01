# SPDX-License-Identifier: Apache-2.0
"""The tasks extension by the official ext-tasks package, over the transports of the SDK."""

import os

import sdk
from sdk import FORM

import tap

MODERN = [k for k in sdk.KINDS if k.era == 'modern']


@sdk.each(MODERN[:1])
class Tasks(sdk.Case):
    def begin(self, c, script, **arguments):
        """A call that may become a task: it asks to run to its end, and for no time."""
        return c.post('task', tool='exec_command', arguments=dict(argv=['sh', '-c', script], until={'exit': True}, **arguments))

    def outcome(self, c, order):
        done = c.result(order)
        self.assertIsNone(done.get('error'), done)
        return done['status'], sdk.Result(done.get('result') or {})

    def check_to_the_end(self, kind, over):
        c = self.client(kind, over)
        order = self.begin(c, 'echo one; sleep 1; echo two; exit 3')
        self.assertEqual(c.node.event('task', of=order)['kind'], 'task')
        self.assertEqual(c.run('echo beside')['output'], 'beside\n')
        status, r = self.outcome(c, order)
        self.assertEqual((status, r['exit_code'], r['output']), ('completed', 3, 'one\ntwo\n'))
        self.assertEqual(c.troubles(), [])

    def check_calls_that_are_none(self, kind, over):
        """Other calls are answered as ever, by way of the same package."""
        c = self.client(kind, over)
        order = c.post('task', tool='exec_command', arguments={'argv': ['echo', 'now'], 'yield_time_ms': 20000})
        self.assertEqual(c.node.event('task', of=order)['kind'], 'immediate')
        status, r = self.outcome(c, order)
        self.assertEqual((status, r['output']), ('completed', 'now\n'))
        order = c.post('task', tool='list_sessions')
        status, r = self.outcome(c, order)
        self.assertEqual((status, r['sessions'][0]['state']), ('completed', 'exited'))

    def check_cancel(self, kind, over):
        c = self.client(kind, over)
        order = self.begin(c, 'echo begun; exec sleep 60')
        self.assertEqual(c.node.event('task', of=order)['kind'], 'task')
        c.do('cancel', of=order)
        self.assertEqual(self.outcome(c, order)[0], 'cancelled')

    def check_a_question(self, kind, over):
        """Before it starts: answered, it runs; declined, it has failed as a tool does."""
        c = self.client(kind, over, capabilities=FORM)
        path = os.path.join(self.base, 'ran')
        for action, content, failed in (('decline', {}, True), ('accept', {'decision': 'once'}, False)):
            order = self.begin(c, 'echo x >>' + path, sandbox_permissions='require_escalated', justification='May it?')
            c.answer(c.question(), action, **content)
            status, r = self.outcome(c, order)
            self.assertEqual((status, r.failed, os.path.exists(path)), ('completed', failed, not failed))


if __name__ == '__main__':
    tap.main()
