# SPDX-License-Identifier: Apache-2.0
"""Questions that the server puts to a person, through the elicitation handlers of the official SDKs: a request of the server
in the older era, an interim result that the client repeats its call for in the newer one. The handlers are the same."""

import os

import sdk
from sdk import FORM

import tap


@sdk.each()
class Questions(sdk.Case):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.base, 'ran')  # not in the workspace

    def begin(self, c, word='x'):
        return c.call_later('exec_command', {'argv': ['sh', '-c', 'echo %s >>%s' % (word, self.file)],
                                             'sandbox_permissions': 'require_escalated', 'justification': 'May it write?'})

    def ran(self):
        try:
            with open(self.file) as f:
                return f.read()
        except FileNotFoundError:
            return ''

    def ask(self, c, action, **content):
        """A call that needs leave, the question, and what came of the answer."""
        order = self.begin(c)
        question = c.question()
        self.assertIn('May it write?', question['params']['message'])
        self.assertEqual(self.ran(), '')
        c.answer(question, action, **content)
        return question['params'], sdk.Result(c.result(order))

    def check_accept(self, kind, over):
        c = self.client(kind, over, capabilities=FORM)
        params, r = self.ask(c, 'accept', decision='once')
        self.assertEqual(params['requestedSchema']['required'], ['decision'])
        self.assertFalse(r.failed, r)
        self.assertEqual((r['exit_code'], self.ran()), (0, 'x\n'))
        order = self.begin(c, 'y')  # once was once
        c.answer(c.question(), 'accept', decision='deny')
        self.assertTrue(sdk.Result(c.result(order)).failed)
        self.assertEqual(self.ran(), 'x\n')
        self.assertEqual(c.troubles(), [])

    def check_accept_for_the_session(self, kind, over):
        c = self.client(kind, over, capabilities=FORM)
        _, r = self.ask(c, 'accept', decision='session')
        self.assertFalse(r.failed, r)
        r = sdk.Result(c.result(self.begin(c)))  # nobody answers: nobody is asked
        self.assertFalse(r.failed, r)
        self.assertEqual(self.ran(), 'x\nx\n')

    def check_decline_and_cancel(self, kind, over):
        c = self.client(kind, over, capabilities=FORM)
        _, r = self.ask(c, 'decline')
        self.assertTrue(r.failed, r)
        _, r = self.ask(c, 'cancel')
        self.assertTrue(r.failed, r)
        self.assertIn('no person answered', r.text)
        self.assertEqual(self.ran(), '')

    def check_several_at_once(self, kind, over):
        """Each answer goes to its own question."""
        c = self.client(kind, over, capabilities=FORM)
        words = ['one', 'two', 'three', 'four']
        orders = {word: self.begin(c, word) for word in words}
        questions = [c.question() for _ in words]
        for q in reversed(questions):
            (word,) = [w for w in words if 'echo %s ' % w in q['params']['message']]
            c.answer(q, 'accept', decision='once' if word in ('one', 'three') else 'deny')
        failed = {word: sdk.Result(c.result(order)).failed for word, order in orders.items()}
        self.assertEqual(failed, {'one': False, 'two': True, 'three': False, 'four': True})
        self.assertEqual(sorted(self.ran().split()), ['one', 'three'])

    def check_abort(self, kind, over):
        """Given up before anybody has answered: the answer that comes then lets nothing run."""
        c = self.client(kind, over, capabilities=FORM)
        order = self.begin(c)
        question = c.question()
        c.do('abort', of=order)
        if kind.era == 'legacy':  # on its way before the answer; in the newer era the client keeps the answer to itself
            c.call('list_sessions')
        c.answer(question, 'accept', decision='once')
        with self.assertRaises(sdk.Failed):
            c.result(order)
        self.assertEqual(c.run('echo still here')['output'], 'still here\n')
        self.assertEqual(self.ran(), '')

    def check_nobody_to_ask(self, kind, over):
        """A client without elicitation is told no, and what would help."""
        c = self.client(kind, over)
        r = sdk.Result(c.result(self.begin(c)))
        self.assertTrue(r.failed, r)
        self.assertIn('approve', r.text)
        self.assertEqual(self.ran(), '')


if __name__ == '__main__':
    tap.main()
