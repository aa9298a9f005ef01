# SPDX-License-Identifier: Apache-2.0
"""Rules are read again when their files change, while an engine lives."""

import os
import shutil
import tempfile

import agent
import wire
from agent import Case

ALLOW = 'prefix_rule(pattern=["%s"], decision="allow")\n'
FORBID = 'prefix_rule(pattern=["%s"], decision="forbidden", justification="leave it")\n'
PROMPT = 'prefix_rule(pattern=["%s"], decision="prompt", justification="who knows")\n'


class Reload(Case):
    backend = 'local'

    def begin(self, policy='on-request', sandbox='read-only'):
        self.dir = tempfile.mkdtemp(prefix='sallyport-reload-')
        self.addCleanup(shutil.rmtree, self.dir, True)
        os.makedirs(self.at('home/rules'))
        return self.agent('--sandbox', sandbox, '--approval', policy, '--rules-in', self.dir)

    def at(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        """In place."""
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), 'w') as f:
            f.write(text)

    def save(self, name, text):
        """By a new file that takes its place."""
        self.write(name + '~', text)
        os.rename(self.at(name + '~'), self.at(name))

    def is_free(self, a):
        """Whether a read-only sandbox lets touch have its way."""
        answer = a.ec('touch made')
        if os.path.exists(a.path('made')):
            os.unlink(a.path('made'))
        return not answer.failed and answer.code == 0

    def becomes(self, look, what):
        wire.wait_until(look, what, 20 * agent.SCALE, 0.1)

    def becomes_free(self, a):
        self.becomes(lambda: self.is_free(a), 'a rule that allows touch')

    def becomes_confined(self, a):
        self.becomes(lambda: not self.is_free(a), 'no rule that allows touch')

    def try_one(self, a, cmd):
        """The call, and the question about it, if there is one."""
        call = a.ec_later(cmd)
        a.wait_for(lambda: call.is_answered() or a.questions, 'an answer or a question')
        return call, a.wait_question() if a.questions else None

    def said(self, a, cmd):
        """What becomes of it, if nobody has leave."""
        call, question = self.try_one(a, cmd)
        if question:
            a.decide(question, 'denied')
        return call.wait().text

    def becomes_forbidden(self, a, cmd):
        self.becomes(lambda: 'leave it' in self.said(a, cmd), 'a rule that forbids %s' % cmd)

    def warnings(self, a):
        with a.changed:
            return [e['message'] for _t, e in a.events if e['type'] == 'warning']

    # -- files

    def test_a_rule_comes_and_goes(self):
        a = self.begin()
        self.assertFalse(self.is_free(a))
        self.write('home/rules/a.rules', ALLOW % 'touch')
        self.becomes_free(a)
        self.save('home/rules/a.rules', FORBID % 'touch')
        self.becomes_forbidden(a, 'touch made')
        self.save('home/rules/a.rules', ALLOW % 'touch')
        self.becomes_free(a)
        os.unlink(self.at('home/rules/a.rules'))
        self.becomes_confined(a)
        self.assertEqual(self.warnings(a), [])

    def test_folders_appear(self):
        a = self.begin()
        self.write('etc/rules/a.rules', ALLOW % 'touch')
        self.becomes_free(a)
        shutil.rmtree(self.at('etc'))
        self.becomes_confined(a)
        os.makedirs(a.path('.codex/rules'))  # the project's
        with open(a.path('.codex/rules/x.rules'), 'w') as f:
            f.write(ALLOW % 'touch')
        self.becomes_free(a)
        os.rename(a.path('.codex'), a.path('.other'))
        self.becomes_confined(a)

    def test_a_broken_file(self):
        a = self.begin()
        self.write('home/rules/a.rules', ALLOW % 'touch' + FORBID % 'chmod')
        self.becomes_free(a)
        self.write('home/rules/b.rules', '\n\nprefix_rule(pattern=["x"]')
        self.becomes(lambda: self.warnings(a), 'a warning')
        self.assertRegex(self.warnings(a)[0], r'^%s:3:\d+: .' % self.at('home/rules/b.rules'))
        self.assertFalse(self.is_free(a))  # nothing is, until it is repaired ...
        self.assertIn('leave it', a.ec('chmod 0 .').text)  # ... but what is forbidden stays so
        self.write('home/rules/c.rules', FORBID % 'rmdir')
        self.becomes_forbidden(a, 'rmdir x')
        self.assertEqual(len(self.warnings(a)), 1)  # that is no news of the broken one
        self.save('home/rules/b.rules', ALLOW % 'x')
        self.becomes_free(a)
        self.assertEqual(len(self.warnings(a)), 1)

    def test_a_file_that_breaks_keeps_its_previous_version(self):
        a = self.begin()
        self.write('home/rules/a.rules', FORBID % 'chmod')
        self.becomes_forbidden(a, 'chmod 0 .')
        self.save('home/rules/a.rules', 'not rules')
        self.becomes(lambda: self.warnings(a), 'a warning')
        self.assertIn('leave it', a.ec('chmod 0 .').text)
        os.unlink(self.at('home/rules/a.rules'))
        self.becomes(lambda: 'leave it' not in a.ec('chmod 700 .').text, 'no rule about chmod')

    # -- what goes on meanwhile

    def test_who_waits_for_an_answer_keeps_what_it_began_with(self):
        a = self.begin(sandbox='workspace-write')
        self.write('home/rules/a.rules', PROMPT % 'touch')
        asked = []

        def is_asked():
            call, question = self.try_one(a, 'touch probe')
            if question:
                asked.append((call, question))
            return question
        self.becomes(is_asked, 'a rule that asks about touch')
        call, question = asked[0]
        if os.path.exists(a.path('probe')):
            os.unlink(a.path('probe'))
        self.save('home/rules/a.rules', FORBID % 'touch')
        self.becomes_forbidden(a, 'touch other')
        self.assertFalse(call.is_answered())
        a.decide(question, 'approved')  # it was asked under the old rules, and runs under them
        self.assertExited(call.wait())
        self.assertTrue(os.path.exists(a.path('probe')))

    def test_an_amendment(self):
        a = self.begin('untrusted')
        call = a.ec_later('touch made')
        a.decide(a.wait_question(), {'approved_execpolicy_amendment': {'proposed_execpolicy_amendment': ['touch', 'made']}})
        a.decide(a.wait_question(), 'denied')  # after the denial
        self.assertTrue(call.wait().failed)
        self.assertTrue(self.is_free(a))
        self.write('home/rules/z.rules', FORBID % 'chmod')
        self.becomes_forbidden(a, 'chmod 0 .')
        self.assertTrue(self.is_free(a))  # it is in a file, and was read again
        os.unlink(self.at('home/rules/default.rules'))
        self.becomes(lambda: 'rejected by user' in self.said(a, 'touch made'), 'a question again')

    def test_what_sandboxes_put_up_is_no_rule(self):
        a = self.begin(sandbox='workspace-write')
        self.write('home/rules/a.rules', FORBID % 'chmod')
        self.becomes_forbidden(a, 'chmod 700 .')
        for _ in range(5):
            self.assertExited(a.ec('ls -a'))
        self.assertIn('leave it', a.ec('chmod 0 .').text)
        self.assertEqual(self.warnings(a), [])


if __name__ == '__main__':
    agent.main()
