# SPDX-License-Identifier: Apache-2.0
"""An exec-server that does not run anything: it tells a story about each process, as awkwardly as real ones do.

    executor.py STORY LOG

speaks JSON lines on stdin and stdout. Every request is written to LOG, a line each. A story is a function below;
it is called for process/start, and may name handlers of its own for other methods.
"""

import base64
import json
import sys
import threading
import time


SILENCE = object()  # a request that is never answered


def b64(text):
    return base64.b64encode(text.encode()).decode()


class Executor:
    def __init__(self, story, log):
        self.story, self.log = story, open(log, 'a')
        self.chunks = []  # (seq, text): what process/read answers
        self.exit_code, self.is_closed, self.next_seq = None, False, 1
        self.handlers = {}  # method: function of the params, which returns a result or (code, message)
        self.answers = {}  # of the client, by the id of the request
        self.lock = threading.Lock()

    def send(self, message):
        with self.lock:
            sys.stdout.write(json.dumps(message) + '\n')
            sys.stdout.flush()

    def note(self, method, **params):
        self.send({'method': method, 'params': {'processId': self.process, **params}})

    def output(self, seq, text, stream='stdout', is_sent=True):
        self.chunks.append((seq, text))
        self.next_seq = max(self.next_seq, seq + 1)
        if is_sent:
            self.note('process/output', seq=seq, stream=stream, chunk=b64(text))

    def exited(self, seq, code, **more):
        self.exit_code, self.next_seq = code, max(self.next_seq, seq + 1)
        self.note('process/exited', seq=seq, exitCode=code, **more)

    def closed(self, seq):
        self.is_closed, self.next_seq = True, max(self.next_seq, seq + 1)
        self.note('process/closed', seq=seq)

    def later(self, seconds, fn, *args, **how):
        timer = threading.Timer(seconds, fn, args, how)
        timer.daemon = True
        timer.start()

    # -- methods

    def read(self, params):
        after = params.get('afterSeq') or 0
        kept = sorted(self.chunks)  # one moment's: a story may be adding to them
        next_seq = max([self.next_seq] + [s + 1 for s, _ in kept[-1:]])
        return {'chunks': [{'seq': s, 'stream': 'stdout', 'chunk': b64(t)} for s, t in kept if s > after],
                'nextSeq': next_seq, 'exited': self.exit_code is not None, 'exitCode': self.exit_code,
                'closed': self.is_closed, 'failure': None, 'sandboxDenied': getattr(self, 'denied', False)}

    def start(self, params):
        self.process = params['processId']
        if hasattr(self.story, 'flood'):
            self.story.flood(self, self.process)
            return SILENCE
        if hasattr(self.story, 'start'):
            return self.story.start
        self.later(0.01, self.story, self)
        return {'processId': self.process, 'sandboxType': getattr(self.story, 'sandbox', 'none')}

    def answer(self, method, params):
        if method in self.handlers:
            return self.handlers[method](params)
        if method == 'initialize':
            return {'sessionId': 'story', 'environmentInfo': {
                'shell': {'name': 'bash', 'path': '/bin/bash'}, 'cwd': 'file:///tmp',
                'capabilities': getattr(self.story, 'capabilities', {})}}
        if method == 'process/start':
            return self.start(params)
        if method == 'process/read':
            return self.read(params)
        if method == 'process/write':
            return {'status': 'accepted'}
        if method == 'process/terminate':
            self.later(0, self.end_by_terminate)
            return {'running': self.exit_code is None}
        return {}

    def end_by_terminate(self):
        if self.exit_code is None:
            seq = self.next_seq
            self.exited(seq, 137)
            self.closed(seq + 1)

    def run(self):
        for line in sys.stdin:
            message = json.loads(line)
            self.log.write(line if line.endswith('\n') else line + '\n')
            self.log.flush()
            if 'id' in message and 'method' not in message:
                self.answers[json.dumps(message['id'])] = message
            if 'id' not in message or 'method' not in message:
                continue
            result = self.answer(message['method'], message.get('params') or {})
            if result is SILENCE:
                continue
            if isinstance(result, tuple):
                self.send({'id': message['id'], 'error': {'code': result[0], 'message': result[1]}})
            else:
                self.send({'id': message['id'], 'result': result})


# -- stories


def out_of_order(x):
    lines = {1: 'one\n', 2: 'two\n', 3: 'three\n'}
    for seq, text in lines.items():
        x.output(seq, text, is_sent=False)
    for seq in (1, 3, 2, 2, 3):
        x.note('process/output', seq=seq, stream='stdout', chunk=b64(lines[seq]))
    x.exited(4, 0, sandboxDenied=False)
    x.closed(5)


def first_one_missing(x):
    x.output(1, 'line 1\n', is_sent=False)
    for seq in range(2, 1025):
        x.output(seq, 'line %d\n' % seq, is_sent=seq < 200)
    x.exited(1025, 0, sandboxDenied=False)
    x.closed(1026)


def dropped(x):
    x.output(1, 'first\n')
    time.sleep(0.3)
    x.output(5, 'fifth\n')  # 2 to 4 are not retained either
    x.exited(6, 0, sandboxDenied=False)
    x.closed(7)


def late_chunk(x):
    time.sleep(0.4)
    x.output(1, 'early\n')
    x.exited(2, 0, sandboxDenied=False)
    x.output(3, 'late\n')  # at once: it counts for 100 ms
    time.sleep(20)
    x.closed(4)


def no_verdict(x):
    x.denied = True
    x.output(1, 'cannot touch this\n')
    x.exited(2, 1)
    x.closed(3)


no_verdict.sandbox = 'linuxSeccomp'


def asks_about_hosts(x):
    """Says what the client answers to each request, in their order."""
    def ask(number, host='a.test', port=443, protocol='https_connect', process=x.process, method='network/policyRequest'):
        x.send({'id': number, 'method': method, 'params': {
            'processId': process, 'request': {'protocol': protocol, 'host': host, 'port': port}}})
    ask(1, host='listed.test')
    ask(2, host='denied.test')
    ask(3, host='169.254.169.254')
    ask(4, process='another')
    ask(5, port=0)
    ask(6, port=65536)
    ask(7, port='443')
    ask(8, protocol='socks5_udp')
    ask(9, host='a b.test')
    ask(10, host='')
    ask(11, host='x' * 300)
    x.send({'id': 12, 'method': 'network/policyRequest'})
    x.send({'id': 13, 'method': 'network/policyRequest', 'params': [1]})
    x.send({'id': 14, 'method': 'network/policyRequest', 'params': {'processId': x.process, 'request': 'allow'}})
    ask('fifteen "', host='listed.test')
    ask('y' * 200, host='listed.test')
    ask(17, method='network/other')
    waits = lambda count: [time.sleep(0.02) for _ in range(1500) if len(x.answers) < count]
    waits(17)
    for i in range(300):  # nobody answers the first 256
        ask(1000 + i, host='a.test', port=1 + i // 100)
    waits(17 + 44)
    time.sleep(0.2)
    x.output(1, json.dumps(x.answers))
    x.exited(2, 0, sandboxDenied=False)
    x.closed(3)


asks_about_hosts.capabilities = {'networkProxyLaunch': True}

def silence(x):
    x.output(1, 'READY permission denied\n')


def terminate_refused(x):
    x.handlers['process/terminate'] = lambda params: (-32603, 'not today')
    x.output(1, 'READY\n')


def write_unknown(x):
    x.handlers['process/write'] = lambda params: {'status': 'unknownProcess'}
    x.output(1, 'READY\n')


def write_closed(x):
    x.handlers['process/write'] = lambda params: {'status': 'stdinClosed'}
    x.output(1, 'READY\n')


def write_starting(x):
    x.handlers['process/write'] = lambda params: {'status': 'starting'}
    x.output(1, 'READY\n')


def read_error(x):
    x.handlers['process/read'] = lambda params: (-32603, 'the disk is on fire')
    x.output(1, 'READY\n')
    time.sleep(0.2)
    x.output(5, 'after a gap\n')


def lost_output(x):
    x.output(1, 'first\n')
    x.output(5, 'last\n')
    x.exited(6, 0)
    x.closed(7)


def no_exit_code(x):
    time.sleep(0.4)
    x.output(1, 'gone\n')
    x.note('process/exited', seq=2, exitCode=None, sandboxDenied=False)
    x.exit_code = -1
    x.closed(3)


# -- stories of executors that are broken or mean; each ends in an answer all the same


def garbage(x):
    sys.stdout.write('this is no JSON\n')
    sys.stdout.flush()


def wrong_types(x):
    x.note('process/output', seq='1', stream='stdout', chunk=b64('x'))


def no_base64(x):
    x.note('process/output', seq=1, stream='stdout', chunk='!!!')


def no_stream(x):
    x.note('process/output', seq=1, stream='stdwhat', chunk=b64('x'))


def seq_zero(x):
    x.output(0, 'zero\n')
    x.exited(1, 0, sandboxDenied=False)
    x.closed(2)


def seq_huge(x):
    x.note('process/output', seq=(1 << 64) - 1, stream='stdout', chunk=b64('x'))


def too_early(x):
    for seq in range(1000, 1400):
        x.note('process/output', seq=seq, stream='stdout', chunk=b64('x'))


def closed_alone(x):
    x.closed(1)


def exited_twice(x):
    x.output(1, 'x\n')
    x.exited(2, 3, sandboxDenied=False)
    x.exited(3, 4, sandboxDenied=False)
    x.closed(4)


def after_the_close(x):
    x.exited(1, 0, sandboxDenied=False)
    x.closed(2)
    x.output(3, 'ghost\n')


def of_a_stranger(x):
    x.send({'method': 'process/output', 'params': {'processId': 'stranger', 'seq': 1, 'stream': 'stdout', 'chunk': ''}})
    x.send({'method': 'process/exited', 'params': {}})
    x.send({'method': 'no/such', 'params': [1, 2]})
    x.send({'id': 4711, 'result': {}})
    x.send({'id': 'x', 'method': 'ask/me', 'params': {}})
    x.exited(1, 0, sandboxDenied=False)
    x.closed(2)


def dies(x):
    import os
    os._exit(1)


def start_refused(x):
    pass


def start_is_null(x):
    x.exited(1, 0, sandboxDenied=False)
    x.closed(2)


def start_is_silent(x):
    pass


def start_is_empty_output(x):  # ... without end, and no word of the start
    pass


def start_paints(x):
    pass


def exit_then_output(x):
    """The verdict must be asked for, and others write more than anybody would hold back meanwhile."""
    with x.lock:  # the answer to the read comes behind all of it
        for seq in range(2, 12):
            x.chunks.append((seq, 'x' * 65535 + '\n'))
        x.exit_code, x.next_seq, x.is_closed = 5, 13, True
        notes = [('process/exited', {'seq': 1, 'exitCode': 5})]
        notes += [('process/output', {'seq': s, 'stream': 'stdout', 'chunk': b64(t)}) for s, t in x.chunks]
        for method, params in notes + [('process/closed', {'seq': 12})]:
            sys.stdout.write(json.dumps({'method': method, 'params': {'processId': x.process, **params}}) + '\n')
        sys.stdout.flush()


def exit_and_silence(x):
    x.handlers['process/read'] = lambda params: SILENCE
    x.output(1, 'last words\n')
    x.exited(2, 6)
    x.closed(3)


def deaf(x):
    for method in ('process/signal', 'process/terminate', 'process/write'):
        x.handlers[method] = lambda params: SILENCE
    x.output(1, 'READY\n')


start_refused.start = (-32603, 'no such thing here')
start_is_null.start = None
start_is_silent.start = SILENCE
start_paints.start = (-32603, '\x1b]0;mine\x07\x1b[2Jno\u202e such')


def flood(x, process):
    with x.lock:
        for seq in range(1, 500001):
            sys.stdout.write('{"method":"process/output","params":{"processId":"%s","seq":%d,"stream":"stdout","chunk":""}}\n'
                             % (process, seq))


start_is_empty_output.flood = flood


if __name__ == '__main__':
    Executor(globals()[sys.argv[1]], sys.argv[2]).run()
