# SPDX-License-Identifier: Apache-2.0
"""Hosts of commands that run on a server: the server asks, and our approver answers, as for a command here.

The server and the hosts are this file's, on loopback; names are in SALLYPORT_TEST_HOSTS of the server.
"""

import json
import os
import subprocess
import sys
import time

import server
import tap
from chaos import Proxy
from mcp_asking import DENY, ONCE, READING, RULE, SESSION, choices
from test_network_approvals import BODY, Network
from wire import DEADLINE, write_program

EXECUTOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'executor.py')


class Remote(Network):
    def setUp(self):
        super().setUp()
        self.there = server.Server(env={'SALLYPORT_TEST_HOSTS': self.table})
        self.addCleanup(self.there.stop)
        self.url = self.there.url

    def begin(self, *args, approve='on-request', **more):
        return super().begin('--on', self.url, '--cwd', self.work, *args, approve=approve, **more)

    def code(self, name, options=''):
        return self.get(name, options=options + ' -o /dev/null -w "%{http_code} "')


class Mcp(Remote):
    def test_once_is_for_the_command(self):
        host = self.begin()
        id = self.run_later(host, self.get('a') + ' && ' + self.get('a', options='--noproxy "*"'))
        q = self.asked_about(host, 'a')
        self.assertEqual([c for c, _ in choices(q['params'])], ['once', 'session', 'rule', 'deny'])
        self.assertIn('reason: a.test is not in the allowed_domains', q['params']['message'])
        self.assertEqual(self.web.connections, 0)
        host.answer(q, ONCE)
        r = host.result(id)
        self.assertEqual(r.text.count(BODY.decode()), 2, r)
        id = self.run_later(host, self.get('a'))
        host.answer(self.asked_about(host, 'a'), ONCE)
        self.assertEqual(host.result(id).get('exit_code'), 0)
        self.assertEqual(host.questions, [])
        self.assertEqual([a for a in self.audit() if a[2] == 'user'], [('http://a.test:80', 'approved', 'user')] * 2)

    def test_session_and_rule(self):
        host = self.begin()
        for name, answer in (('a', SESSION), ('b', RULE)):
            id = self.run_later(host, self.get(name))
            host.answer(self.asked_about(host, name), answer)
            self.assertEqual(host.result(id).get('exit_code'), 0)
            self.reaches(host, name)
        self.assertEqual(host.questions, [])
        self.assertEqual(self.rules().count('network_rule('), 1)
        self.reaches(self.begin(approve='never'), 'b')  # by the rule, although nobody is asked

    def test_no_ends_the_command(self):
        host = self.begin()
        id = self.run_later(host, self.get('a') + '; echo after; sleep 60')
        q = self.asked_about(host, 'a')
        time.sleep(READING)
        host.answer(q, DENY)
        r = host.result(id)
        self.assertRefused(r, 'rejected by user')
        self.assertNotIn('after', r.text)
        self.assertEqual(self.web.connections, 0)

    def test_without_an_approver_it_is_refused(self):
        host = self.begin(approve='never')
        r = self.run_now(host, '; '.join(self.code(n) for n in ('a', 'listed', 'denied')) + '; echo lives')
        self.assertIn('403 200 403 lives', r.text)
        self.assertEqual(host.questions, [])

    def test_too_late_is_a_refusal_and_the_command_lives(self):
        self.config(top='approval_timeout_s = 1')
        host = self.begin()
        id = self.run_later(host, self.code('a') + '; echo lives')
        self.asked_about(host, 'a')
        self.assertIn('403 lives', host.result(id).text)
        self.assertEqual(self.web.connections, 0)

    def test_many_connections_are_one_question(self):
        host = self.begin()
        id = self.run_later(host, 'for i in 1 2 3 4 5 6; do %s & done; wait' % self.get('a'))
        host.answer(self.asked_about(host, 'a'), ONCE)
        self.assertEqual(host.result(id).text.count(BODY.decode()), 6)
        self.assertEqual(host.questions, [])

    def test_a_lost_connection_denies(self):
        """The question of the old connection is withdrawn; the next connection of the command asks anew."""
        with Proxy(self.there.address) as proxy:
            self.url = proxy.url()
            host = self.begin()
            id = self.run_later(host, self.code('a') + '; read x < go; ' + self.code('a'))
            self.asked_about(host, 'a')
            proxy.cut_now()
            self.assertEqual(host.exec('echo', 'back')['output'], 'back\n')
            self.go()
            host.answer(self.asked_about(host, 'a'), ONCE)
            self.assertIn('403 200', host.result(id).text)


class Exec(Remote):
    """The same by `sallyport exec`, with a program as approver."""

    def exec(self, decision, script, *more, on=None):
        program = write_program(os.path.join(self.base, 'approver'), '#!/bin/sh\ncat >>%s/asked\necho \'%s\'\n' % (
            self.base, json.dumps(decision)))
        return subprocess.run([server.PROGRAM, 'exec', '--on', on or self.there.url, '--cwd', self.work, '--sandbox', 'net',
                               *more, '--approver', 'program:' + program, '--no-stdin', '--', 'sh', '-c', script],
                              env=self.environ(), capture_output=True, text=True, timeout=3 * DEADLINE, cwd=self.work)

    def asked(self):
        try:
            with open(self.base + '/asked') as f:
                return [json.loads(line)['question'] for line in f]
        except FileNotFoundError:
            return []

    def test_yes(self):
        done = self.exec({'decision': 'approved'}, self.code('a') + self.code('a'), '--approve', 'on-failure')
        self.assertEqual((done.returncode, done.stdout), (0, '200 200 '), done.stderr)
        self.assertEqual(len(self.asked()), 1)

    def test_no(self):
        done = self.exec({'decision': 'denied'}, self.code('a') + '; echo after; sleep 60', '--approve', 'on-failure')
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual((done.stdout.count('after'), self.web.connections, len(self.asked())), (0, 0, 1))

    def test_requests_of_a_hostile_server(self):
        """The lists judge again, what is not understood is denied, and open questions are bounded."""
        with open(os.path.join(self.home, 'sallyport.conf'), 'a') as f:
            f.write('[environments.mean]\nprogram = "%s"\nargs = ["%s", "asks_about_hosts", "%s/log"]\n' % (
                sys.executable, EXECUTOR, self.base))
        program = write_program(os.path.join(self.base, 'never'), '#!/bin/sh\nexec sleep 600\n')
        done = self.exec({}, 'true', '--approve', 'on-failure', '--approver', 'program:' + program, on='mean')
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = json.loads(done.stdout)
        what = {k: v.get('result', {}).get('decision') or v['error']['code'] for k, v in answers.items()}
        deny = {'type': 'deny', 'reason': 'not_allowed'}
        self.assertEqual([what.pop(str(i)) for i in range(1, 4)],
                         [{'type': 'allow'}, {'type': 'deny', 'reason': 'denied'}, {'type': 'deny', 'reason': 'not_allowed_local'}])
        self.assertEqual([what.pop(str(i)) for i in range(4, 15)], [deny] * 11)
        self.assertEqual((what.pop('"fifteen \\""'), what.pop('"%s"' % ('y' * 200)), what.pop('17')), ({'type': 'allow'}, -32601, -32601))
        self.assertEqual((set(map(json.dumps, what.values())), len(what)), ({json.dumps(deny)}, 44))


if __name__ == '__main__':
    tap.main()
