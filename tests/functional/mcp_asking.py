# SPDX-License-Identifier: Apache-2.0
"""What the tests of questions share: a command that counts its runs, and the way through a question."""

import os
import shutil
import tempfile

import mcp
import wire
from mcp import FORM

M13 = ('approval required, but the client cannot answer questions; allow it by a rule, configure an approver, or change '
       'the approval policy')
ONCE, SESSION, RULE, DENY = ({'action': 'accept', 'content': {'decision': d}} for d in ('once', 'session', 'rule', 'deny'))
DECLINE, CANCEL = {'action': 'decline'}, {'action': 'cancel'}  # by themselves, at once, no person's answer
NO_PERSON = 'approval required, but no person answered: the host: '
READING = 0.6  # seconds after which a refusal is a person's


def note(*words):
    """A call that leaves a line in the file `ran` for each time that it was run."""
    return {'argv': ['./note', *words]}


class Asking(mcp.Case):
    def setUp(self):
        super().setUp()
        wire.write_program(os.path.join(self.work, 'note'), '#!/bin/sh\necho "$@" >> ran\n')
        self.beside = tempfile.mkdtemp(prefix='sallyport-mcp-', dir='/var/tmp')  # which no sandbox lets be written
        self.addCleanup(shutil.rmtree, self.beside, True)

    def runs(self):
        try:
            with open(os.path.join(self.work, 'ran')) as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def configure(self, text):
        with open(os.path.join(self.home, 'sallyport.conf'), 'w') as f:
            f.write(text)
            os.fchmod(f.fileno(), 0o600)

    def program(self, name, body):
        return wire.write_program(os.path.join(self.base, name), '#!/bin/sh\n' + body)

    def wary(self, *args, **more):
        return self.mcp('--approve', 'untrusted', *args, **more)

    # -- modern

    def asked(self, r):
        """The key, the form and the state of a result that asks."""
        self.assertEqual(r.kind, 'input_required', r)
        self.assertNotIn('content', r.result)
        (key, request), = r.result['inputRequests'].items()
        self.assertEqual(request['method'], 'elicitation/create')
        self.assertEqual(request['params']['mode'], 'form')
        return key, request['params'], r.result['requestState']

    def ask(self, host, arguments, tool='exec_command', **more):
        return self.asked(host.call(tool, arguments, capabilities=FORM, **more))

    def come_back(self, host, arguments, asked, answer, tool='exec_command', capabilities=FORM):
        key, _, state = asked
        return host.call(tool, arguments, capabilities=capabilities, state=state, responses={key: answer})

    def allow(self, host, arguments, answer=ONCE):
        return self.come_back(host, arguments, self.ask(host, arguments), answer)

    def assertRan(self, r, code=0):
        self.assertFalse(r.failed, r)
        self.assertEqual(r.get('exit_code'), code, r)

    def assertRefused(self, r, text):
        self.assertTrue(r.failed, r)
        self.assertIn(text, r.text)
        self.assertNotIn('inputRequests', r.result)


def choices(form):
    """[(const, title)], as either era writes them."""
    d = form['requestedSchema']['properties']['decision']
    return [(c['const'], c['title']) for c in d['oneOf']] if 'oneOf' in d else list(zip(d['enum'], d['enumNames']))
