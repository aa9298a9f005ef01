# SPDX-License-Identifier: Apache-2.0
"""Eight agent hosts from npm with scripted models and `sallyport mcp`: what their models see, and what is left.

Run by `make test-hosts`. Each host is started as a program without a person, with the switch that turns its own shell
off. A host that cannot be installed is skipped with the reason.
"""

import os
import re
import shlex
import shutil
import signal
import stat
import unittest

import hosts
from model import Model, api_of, call

import tap
import wire



def session_in(text):
    match = re.search(r'session[_ ]?id\\?["\s:]+(\d+)', text, re.I)
    if not match:
        raise AssertionError('no session id in %r' % text[:1000])
    return int(match.group(1))


class Scenarios:
    kind = None

    def setUp(self):
        why = self.kind.missing()
        if why:
            self.skipTest(why)

    def play(self, script, mcp_args=(), end=True):
        self.model = Model(script, self.kind.deferred)
        self.addCleanup(self.model.close)
        self.run_ = hosts.Run(self.kind, self.model, mcp_args)
        self.addCleanup(shutil.rmtree, self.run_.base, ignore_errors=True)
        self.addCleanup(self.run_.stop)
        if end:
            try:
                self.run_.wait()
            finally:
                self.assertEqual(self.model.trouble, [], self.run_.log())
            self.assertTrue(self.model.sent, 'the host offered no tool of ours: %s' % self.run_.log())
        return self.model

    def left_of_ours(self):
        """Processes of the run that are `sallyport`, or run below it."""
        found = []
        for pid in self.run_.left():
            try:
                with open('/proc/%d/cmdline' % pid, 'rb') as f:
                    line = f.read().replace(b'\0', b' ').decode(errors='replace')
            except OSError:
                continue
            if 'sallyport' in line.split(' ')[0] or 'sleep 7' in line:
                found.append((pid, line))
        return found

    def assertNothingLeft(self):
        try:
            wire.wait_until(lambda: not self.left_of_ours(), 'end', 20 * wire.SCALE)
        except AssertionError:
            self.fail('left: %s' % self.left_of_ours())

    # -- scenarios

    def test_lists_the_tools_and_runs_a_short_command(self):
        def script(m):
            yield [call('a', 'exec_command', cmd='echo hello-$((40+2)); exit 3', login=False)]
            yield 'done'

        m = self.play(script)
        self.assertTrue(set(self.kind.offers) <= set(m.tools), m.tools)
        self.assertRegex(m.told('a'), r'hello-42')
        self.assertRegex(m.told('a'), r'exit(ed with code|_code\\?":) ?3')
        self.assertNothingLeft()

    def test_its_own_shell_is_off(self):
        def script(m):
            yield 'done'

        m = self.play_without_calls(script)
        # The first request with tools: one before it may ask for a title, one after it may be for a subagent.
        offered = next(filter(None, (api_of(path).tools(body) for path, body in m.requests)), [])
        self.assertTrue(offered)
        self.assertNotIn(self.kind.shell, offered)

    def play_without_calls(self, script):
        m = self.play(script, end=False)
        self.run_.wait()
        return m

    def test_types_into_a_session(self):
        def script(m):
            yield [call('a', 'exec_command', cmd='printf "name? "; read n; echo "hello $n"', tty=True, login=False, yield_time_ms=1000)]
            yield [call('b', 'write_stdin', session_id=session_in(m.told('a')), chars='world\n', yield_time_ms=5000)]
            yield 'done'

        m = self.play(script)
        self.assertIn('hello world', m.told('b'))
        self.assertRegex(m.told('b'), r'exit(ed with code|_code\\?":) ?0')

    def test_waits_for_a_long_command(self):
        def script(m):
            yield [call('a', 'exec_command', cmd='sleep 2; echo late', login=False, yield_time_ms=300)]
            session = session_in(m.told('a'))
            for n in range(20):
                yield [call('b%d' % n, 'write_stdin', session_id=session, chars='', yield_time_ms=30000)]
                if 'late' in m.told('b%d' % n):
                    break
            yield 'done'

        m = self.play(script)
        self.assertTrue(any('late' in text for text in m.results.values()), m.results)

    def test_large_output_fits_the_host(self):
        """The head and the end of the output, the exit code and the way to the rest reach the model."""
        def script(m):
            yield [call('a', 'exec_command', argv=['sh', '-c', 'seq -f "line %06g of many" 1 200000; echo the-end; exit 5'])]
            yield 'done'

        m = self.play(script)
        told = m.told('a')
        self.assertRegex(told, r'exit(ed with code|_code\\?":) ?5')
        self.assertIn('the-end', told)
        self.assertRegex(told, r'line 000001 of many')
        session_in(told)
        self.assertLess(len(told), 60000)

    def test_a_question_that_the_host_does_not_answer_goes_to_the_program(self):
        def script(m):
            yield [call('a', 'exec_command', argv=['touch', self.outside], sandbox_permissions='require_escalated',
                        justification='a test of questions')]
            yield 'done'

        self.outside = '/var/tmp/sallyport-hosts-outside-%d' % os.getpid()
        self.addCleanup(lambda: os.path.exists(self.outside) and os.unlink(self.outside))
        yes = self._approver('{"decision":"approved"}')
        self.play(script, ['--approver', 'program:' + yes])
        self.assertTrue(os.path.exists(self.outside), self.model.results)

    def test_a_question_without_a_person_says_so(self):
        def script(m):
            yield [call('a', 'exec_command', argv=['true'], sandbox_permissions='require_escalated', justification='a test')]
            yield 'done'

        m = self.play(script)
        self.assertRegex(m.told('a'), r'no person|cannot answer|approval required|not approved|rejected')

    def _approver(self, answer):
        directory = '/var/tmp/sallyport-hosts-approver-%d' % os.getpid()
        os.makedirs(directory, exist_ok=True)
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        path = directory + '/yes'
        with open(path, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\ncat >/dev/null\necho %s\n' % shlex.quote(answer))
        os.chmod(path, stat.S_IRWXU)
        return path

    def test_a_killed_host_leaves_no_process(self):
        def script(m):
            yield [call('a', 'exec_command', argv=['sleep', '777'], yield_time_ms=30000)]
            yield 'done'

        self.play(script, end=False)
        try:
            wire.wait_until(lambda: any('sleep 777' in line for _, line in self.left_of_ours()), 'the command', self.kind.limit)
        except AssertionError:
            self.fail('the command did not start: %s %s' % (self.model.trouble, self.run_.log()))
        os.kill(self.run_.popen.pid, signal.SIGKILL)
        self.run_.popen.wait()
        self.end_children_of_the_host()
        self.assertNothingLeft()

    def end_children_of_the_host(self):
        """Hosts that are a script start their program as a child; it is the one that holds our stdin."""
        ours = {pid for pid, _ in self.left_of_ours()}
        for pid in self.run_.left():
            if pid not in ours:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass


for _kind in hosts.HOSTS:
    globals()[_kind.__name__] = type(_kind.__name__, (Scenarios, unittest.TestCase), {'kind': _kind})

if __name__ == '__main__':
    tap.main()
