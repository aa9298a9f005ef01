# SPDX-License-Identifier: Apache-2.0
"""A server that judges what it is asked to start, and a client that is asked in turn."""

import json
import os
import subprocess

import wire
from sandbox_policy import read_only
from server import PROGRAM, Case, ours_only
from wire import Client, RpcError, WebSocket, wait_until

NOBODY = ('approval required, but the client cannot answer questions; allow it by a rule, configure an approver, '
          'or change the approval policy')
BY_USER = 'exec command rejected by user'
READ_ONLY = read_only()


class Peek:
    """A transport that takes one message back."""

    def __init__(self, inner):
        self.inner, self.channel, self.back = inner, inner.channel, None

    def send(self, *args):
        self.inner.send(*args)

    def receive(self, end):
        data, self.back = self.back, None
        return self.inner.receive(end) if data is None else data

    def close(self):
        self.inner.close()


class Asked(Client):
    """A client that is asked. What it was asked waits in `questions`."""

    def __init__(self, transport, server):
        super().__init__(Peek(transport), server)
        self.questions = []
        self.cwd = wire.file_uri(server.work)
        server.clients.append(self)

    def pump(self, timeout=None):
        data = self.transport.receive(wire.deadline(timeout))
        message = json.loads(data) if data is not None else {}
        if 'method' in message and 'id' in message:
            self.questions.append(message)
            return message
        if data is None:
            self.ended = True
            raise wire.Closed('the server ended the connection')
        self.transport.back = data
        return super().pump(timeout)

    def greet(self, resume=None, capabilities={'approvals': True}):
        params = {'clientName': 'asked', 'capabilities': capabilities}
        if resume is not None:
            params['resumeSessionId'] = resume
        self.session_id = self.request('initialize', params)['sessionId']
        self.send({'method': 'initialized'})
        return self

    def question(self):
        """The next one, with its number."""
        self.wait_for(lambda: self.questions, 'question')
        q = self.questions.pop(0)
        if q['method'] != 'approval/request':
            raise AssertionError(q)
        return q['id'], q['params']

    def decide(self, number, decision):
        self.send({'id': number, 'result': {'decision': decision}})

    def try_start(self, process_id, argv, decision, **more):
        """The whole reply to a start whose question is answered so."""
        request = self.post_start(process_id, argv, **more)
        number, _ = self.question()
        self.decide(number, decision)
        return self.reply(request)


@ours_only
class Judged(Case):
    POLICY, APPROVER = 'untrusted', 'client'

    def judge(self, *args, policy=None, approver=None, rules=None, conf='', listen='ws://127.0.0.1:0', **more):
        self.home = self.scratch()
        os.chmod(self.home, 0o700)
        self.audit = os.path.join(self.home, 'audit.jsonl')
        if conf:
            path = os.path.join(self.home, 'sallyport.conf')
            with open(path, 'w') as f:
                f.write(conf)
            os.chmod(path, 0o600)
        words = ['--approve', policy or self.POLICY, '--approver', approver or self.APPROVER]
        if rules is not None:
            path = os.path.join(self.home, 'more.rules')
            with open(path, 'w') as f:
                f.write(rules)
            words += ['--rules', path]
        self.srv = self.server(*words, *args, listen=listen, env={'SALLYPORT_HOME': self.home}, **more)
        return self.srv

    def dial(self, srv=None):
        return Asked(WebSocket.connect((srv or self.srv).address), srv or self.srv)

    def asked(self, *args, **more):
        self.judge(*args, **more)
        return self.dial().greet()

    def resume(self, session_id, **how):
        def attempt():
            c = self.dial()
            try:
                return c.greet(session_id, **how)
            except RpcError as e:
                c.close()
                if e.code != -32010:
                    raise
        return wait_until(attempt, 'resume', step=0.05)

    def lines(self):
        with open(self.audit) as f:
            return [json.loads(line) for line in f]

    def decisions(self):
        return [(a['call_id'], a['requirement'], a['decision'], a['decided_by'], a['attempts']) for a in self.lines()]

    def verify(self, entries):
        run = subprocess.run([PROGRAM, 'audit', 'verify', self.audit], capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual((run.returncode, run.stdout.split(b',')[0]), (0, b'%d entries' % entries), run.stderr)

    def assertRefused(self, reply, text, code=-32600):
        self.assertError(reply['error'], code, text)

    def assertStarted(self, reply, process_id, sandbox='none'):
        self.assertEqual(reply.get('result'), {'processId': process_id, 'sandboxType': sandbox}, reply)
