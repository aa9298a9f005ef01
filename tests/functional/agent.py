# SPDX-License-Identifier: Apache-2.0
"""The other side of tests/helpers/agent.c: an agent without a model, and tests that run side by side.

AGENT       path of the driver (default: beside the tests in the build directory of SALLYPORT)
AGENT_PEER  path of the reference's program: the remote classes run against its exec-server
"""

import concurrent.futures
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import uuid

import server
import wire
from server import MARK, PASS_ON, PROGRAM, marked

PEER = os.environ.get('AGENT_PEER')
DRIVER = os.environ.get('AGENT') or os.path.join(os.path.dirname(PROGRAM), 'tests', 'functional', 'agent')
SCALE = wire.SCALE
PYTHON = os.path.realpath(sys.executable)
SIDE_BY_SIDE = int(os.environ.get('AGENT_THREADS', '12'))

ANSWER = re.compile(
    r'(?:Chunk ID: (?P<chunk>[0-9a-f]{6})\n)?'
    r'Wall time: (?P<wall>\d+\.\d{4}) seconds\n'
    r'(?:Process exited with code (?P<code>-?\d+)\n)?'
    r'(?:Process running with session ID (?P<session>\d+)\n)?'
    r'(?:Original token count: (?P<tokens>\d+)\n)?'
    r'Output:\n(?P<body>.*)', re.S)


class Answer:
    """What a call was answered, as text and taken apart."""

    def __init__(self, line):
        self.line, self.text, self.failed = line, line['text'], line['failed']
        self.structured, self.at = line['structured'], line['t_ns'] / 1e9
        self.wall = self.code = self.session = self.tokens = self.body = self.chunk = None
        found = ANSWER.fullmatch(self.text)
        if found and not self.failed:
            self.chunk, self.body = found['chunk'], found['body']
            self.wall = float(found['wall'])
            self.code, self.session, self.tokens = (
                None if found[k] is None else int(found[k]) for k in ('code', 'session', 'tokens'))

    def __repr__(self):
        return 'Answer(%r)' % self.text[-1500:]


class Pending:
    """A call, run or order that will be answered."""

    def __init__(self, agent, key):
        self.agent, self.key, self.sent = agent, key, time.monotonic()

    def is_answered(self):
        return self.key in self.agent.answers

    def wait(self, timeout=None):
        return self.agent.wait_for(lambda: self.agent.answers.get(self.key), 'an answer to %s' % self.key, timeout)


class Agent:
    """One driver process. `quit` is the judge of what it leaves behind."""

    def __init__(self, *flags, words=(), env=None, deterministic=True, cwd=None):
        self.base = tempfile.mkdtemp(prefix='sallyport-agent-')
        self.home, self.work, self.tmp = (os.path.join(self.base, n) for n in ('home', 'work', 'tmp'))
        for path in (self.home, self.work, self.tmp):
            os.mkdir(path)
        self.mark = uuid.uuid4().hex
        self.env = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': self.home, 'TMPDIR': self.tmp,
                    'SALLYPORT': PROGRAM, MARK: self.mark}
        self.env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})
        self.env.update(env or {})
        self.args = [DRIVER, '--cwd', cwd or self.work, *(['--deterministic'] if deterministic else []), *flags,
                     *(['--', *words] if words else [])]
        self.numbers = itertools.count(1)
        self.answers, self.events, self.questions, self.troubles = {}, [], [], []
        self.changed = threading.Condition()
        self.is_over = False
        self.err = open(os.path.join(self.base, 'stderr'), 'w+b')
        self.popen = subprocess.Popen(self.args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err,
                                      env=self.env, cwd=self.base)
        self.pid = self.popen.pid
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    # -- lines

    def _read(self):
        for raw in self.popen.stdout:
            if not raw.endswith(b'\n'):
                break  # it died in the middle of a word
            line = json.loads(raw)
            with self.changed:
                key = line.get('reply') or line.get('ran') or line.get('done')
                if key in self.answers:
                    self.troubles.append(line)  # answered twice
                if 'event' in line:
                    self.events.append((line['t_ns'] / 1e9, line['event']))
                elif 'reply' in line:
                    self.answers[key] = Answer(line)
                elif 'ran' in line:
                    self.answers[key] = Ran(line)
                elif 'done' in line:
                    self.answers[key] = line
                elif 'question' in line:
                    self.questions.append(line)
                else:
                    self.troubles.append(line)
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def send(self, **order):
        self.popen.stdin.write(json.dumps(order).encode() + b'\n')
        self.popen.stdin.flush()

    def wait_for(self, predicate, what, timeout=None):
        end = time.monotonic() + (wire.DEADLINE if timeout is None else timeout * SCALE)
        with self.changed:
            while True:
                value = predicate()
                if value:
                    return value
                if self.troubles:
                    raise AssertionError('%s: the driver says %r' % (what, self.troubles))
                left = end - time.monotonic()
                if left <= 0 or self.is_over:
                    raise AssertionError('%s: %s; answers %r; events %r; stderr %s' % (
                        what, 'the driver has ended' if self.is_over else 'not in time', self.answers,
                        [e['type'] for _t, e in self.events[-20:]], self.stderr()[-2000:]))
                self.changed.wait(left)

    def stderr(self):
        with open(self.err.name, 'rb') as f:
            return f.read().decode('utf-8', 'replace')

    def later(self, op, **order):
        key = '%s-%d' % (op, next(self.numbers))
        self.send(op=op, id=key, **order)
        return Pending(self, key)

    def ask(self, op, **order):
        return self.later(op, **order).wait()

    # -- tools

    def call_later(self, tool, arguments, call_id=None, turn='turn'):
        key = call_id or 'c%d' % next(self.numbers)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        self.send(op='call', id=key, tool=tool, arguments=text, turn=turn)
        return Pending(self, key)

    def call(self, tool, arguments, **how):
        return self.call_later(tool, arguments, **how).wait()

    def ec_later(self, cmd, call_id=None, **arguments):
        arguments.setdefault('login', False)
        return self.call_later('exec_command', {'cmd': cmd, **arguments}, call_id)

    def ec(self, cmd, **arguments):
        return self.ec_later(cmd, **arguments).wait()

    def ws_later(self, session_id, chars=None, **arguments):
        if chars is not None:
            arguments['chars'] = chars
        return self.call_later('write_stdin', {'session_id': session_id, **arguments})

    def ws(self, session_id, chars=None, **arguments):
        return self.ws_later(session_id, chars, **arguments).wait()

    def ue(self, **arguments):
        return self.call('unified_exec', arguments)

    def run_later(self, cmd=None, **ask):
        if cmd is not None:
            ask['cmd'] = cmd
        return self.later('run', **ask)

    def run(self, cmd=None, **ask):
        return self.run_later(cmd, **ask).wait()

    # -- events

    def events_of(self, call_id=None, kind=None):
        with self.changed:
            return [e for _t, e in self.events if (call_id is None or e['call_id'] == call_id)
                    and (kind is None or e['type'] == kind)]

    def kinds(self, call_id=None):
        return [e['type'] for e in self.events_of(call_id)]

    def wait_end(self, call_id, timeout=None):
        return self.wait_for(lambda: (self.events_of(call_id, 'exec_command_end') or [None])[0],
                             'the end event of %s' % call_id, timeout)

    def wait_begin(self, call_id, timeout=None):
        return self.wait_for(lambda: (self.events_of(call_id, 'exec_command_begin') or [None])[0],
                             'the begin event of %s' % call_id, timeout)

    def frames(self, call_id, stream=None):
        return [wire.unb64(e['chunk']) for e in self.events_of(call_id, 'exec_command_output_delta')
                if stream in (None, e['stream'])]

    def wait_frames(self, call_id, text):
        self.wait_for(lambda: text in b''.join(self.frames(call_id)), '%r of %s' % (text, call_id))

    def wait_question(self):
        return self.wait_for(lambda: self.questions and self.questions.pop(0), 'a question')

    def decide(self, question, decision):
        self.send(op='decide', question=question['question'], decision=decision)

    # -- the rest

    def list(self):
        return self.ask('list')['list']

    def stats(self):
        return self.ask('stats')

    def reserved(self):
        return self.stats()['reserved']

    def path(self, name):
        return os.path.join(self.work, name)

    def wait_file(self, name):
        """The text of a file, once it has a whole line."""
        def look():
            try:
                with open(self.path(name)) as f:
                    text = f.read()
            except OSError:
                return None
            return text if text.endswith('\n') else None
        return wire.wait_until(look, 'file %s' % name)

    def quit(self):
        """Ends the driver: everything is freed, and nothing runs on."""
        if self.popen is None:
            return
        trouble = []
        try:
            try:
                if not self.is_over:
                    self.send(op='quit')
            except OSError:
                pass
            try:
                code = self.popen.wait(wire.DEADLINE)
                if code != 0:
                    trouble.append('the driver ended with %r' % code)
            except subprocess.TimeoutExpired:
                trouble.append('the driver does not end')
                self.popen.kill()
                self.popen.wait()
            self.reader.join(10)
            try:
                wire.wait_until(lambda: not marked(self.mark.encode()), 'end of all processes', 15 * SCALE, 0.1)
            except AssertionError:
                trouble.append('processes left: %r' % [server.name_of(p) for p in marked(self.mark.encode())])
            err = self.stderr()
            if trouble or 'Sanitizer' in err or 'runtime error:' in err:
                trouble.append('stderr: ' + err[-4000:])
            for _t, e in self.events:
                if (e['type'] == 'exec_command_begin' and 'process_id' in e  # a run that is given up has no end
                        and not self.events_of(e['call_id'], 'exec_command_end')):
                    trouble.append('%s began and did not end' % e['call_id'])
        finally:
            self._forget()
        if trouble:
            raise AssertionError('; '.join(trouble))

    def abandon(self):
        """The hard way: the driver dies, and nobody frees anything."""
        self.popen.kill()
        self.popen.wait()
        self.reader.join(10)
        self._forget()

    def _forget(self):
        self.popen.stdin.close()
        self.popen.stdout.close()
        self.popen = None
        self.err.close()
        shutil.rmtree(self.base, ignore_errors=True)


class Ran:
    """What came of a one-shot run."""

    def __init__(self, line):
        self.line, self.kind, self.klass, self.code = line, line['kind'], line['class'], line['exit_code']
        self.out, self.err, self.aggregated = (wire.unb64(line[k]) for k in ('stdout', 'stderr', 'aggregated'))
        self.seconds, self.text, self.error = line['duration_ns'] / 1e9, line['text'], line['error']

    def __repr__(self):
        return 'Ran(%s, %s, %d, %r, %r)' % (self.kind, self.klass, self.code, self.out[:200], self.error)


# --------------------------------------------------------------------------------------- cases


class Case(unittest.TestCase):
    """Tests of one backend: `local`, or a server of the class: `ws`, `unix`, `stdio`."""

    maxDiff = 4000
    backend = 'local'
    server_args = ()

    @classmethod
    def setUpClass(cls):
        cls.server = None
        if cls.backend == 'ws':
            cls.server = peer_server() if PEER else server.Server(*cls.server_args)
        elif cls.backend == 'unix':
            cls.socket_dir = tempfile.mkdtemp(prefix='sallyport-agent-')
            cls.server = server.Server(*cls.server_args, listen='unix://%s/socket' % cls.socket_dir)

    @classmethod
    def tearDownClass(cls):
        if cls.server is not None:
            cls.server.stop()
        if cls.backend == 'unix':
            shutil.rmtree(cls.socket_dir, ignore_errors=True)

    def setUp(self):
        self.agents = []
        if PEER and self.is_remote and self._testMethodName in WITHOUT_PEER:
            self.skipTest(WITHOUT_PEER[self._testMethodName])

    @property
    def is_remote(self):
        return self.backend != 'local'

    def place(self):
        if self.backend == 'stdio':
            return [], [PROGRAM, 'serve', '--listen', 'stdio']
        if self.backend == 'local':
            return [], []
        return ['--remote', self.server.url], []

    def agent(self, *flags, **how):
        place, words = self.place()
        a = Agent(*place, *flags, words=how.pop('words', words), **how)
        self.agents.append(a)
        self.addCleanup(a.quit)
        return a

    def assertRunning(self, answer, session=None):
        self.assertFalse(answer.failed, answer)
        self.assertIsNone(answer.code, answer)
        self.assertIsNotNone(answer.session, answer)
        if session is not None:
            self.assertEqual(answer.session, session, answer)

    def assertExited(self, answer, code=0):
        self.assertFalse(answer.failed, answer)
        self.assertIsNone(answer.session, answer)
        self.assertEqual(answer.code, code, answer)

    def assertFailed(self, answer, text):
        self.assertTrue(answer.failed, answer)
        # A refused second attempt is told with what the first one printed.
        self.assertEqual(answer.text.split('\n\nThe attempt in the sandbox:\n')[0], text)

    def assertWithin(self, value, low, high):
        """From low, exactly; up to high, with the patience that a busy machine needs."""
        self.assertGreaterEqual(value, low)
        self.assertLess(value, high * SCALE)

    def gather(self, a, answer, text):
        """What the process said from this answer on, until it has said `text`."""
        body, session = answer.body, answer.session
        while text not in body and answer.session is not None:
            answer = a.ws(session)
            self.assertFalse(answer.failed, answer)
            body += answer.body
        self.assertIn(text, body)
        return body

    def assertTokens(self, answer):
        """The token count is that of all bytes that the answer covers."""
        covered = answer.line['to'] - answer.line['from']
        self.assertEqual(answer.tokens, math.ceil(covered / 4), answer.text[:200])

    def assertGone(self, pid):
        wire.wait_until(lambda: not server.is_alive(int(pid)), 'end of %s' % pid)

    def assertNothingLeft(self, agent):
        stats = agent.stats()
        self.assertEqual((stats['reserved'], stats['stored']), (0, 0))


# Cases that cannot hold against codex exec-server, each with its reason.
ONE_FOR_ALL = 'a terminal process that a signal ended has the code 1 there (D-65)'
WITHOUT_PEER = {
    'test_031_killed': ONE_FOR_ALL,
    'test_032_other_signals': ONE_FOR_ALL,
    'test_033_control_c_on_a_terminal': ONE_FOR_ALL,
    'test_136_cancelled_with_a_last_word': 'there is no TERM on its wire, so nothing has a last word',
    'test_signals_and_sizes_go_straight_to_the_process': 'its wire has neither sizes nor signals but one',
}


class peer_server:
    """codex exec-server, in place of ours."""

    def __init__(self):
        self.base = tempfile.mkdtemp(prefix='sallyport-agent-')
        env = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': self.base, 'CODEX_HOME': self.base}
        self.popen = subprocess.Popen([PEER, 'exec-server', '--listen', 'ws://127.0.0.1:0'], env=env, cwd=self.base,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.url = self.popen.stdout.readline().decode().strip()
        if not self.url.startswith('ws://'):
            raise AssertionError('the peer says %r' % self.url)

    def stop(self):
        self.popen.terminate()
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.popen.stdout.close()
        shutil.rmtree(self.base, ignore_errors=True)


# --------------------------------------------------------------------------------------- runner


class _Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.trouble, self.skip = [], None

    def addError(self, test, err):
        self.trouble.append(''.join(traceback.format_exception(*err)))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.trouble.append('in %s\n%s' % (subtest._subDescription(), ''.join(traceback.format_exception(*err))))

    def addSkip(self, test, reason):
        self.skip = reason


def _run(test):
    result, began = _Result(), time.monotonic()
    test.run(result)
    return result, time.monotonic() - began


def _tests():
    loaded = unittest.defaultTestLoader.loadTestsFromModule(sys.modules['__main__'])
    todo, found = [loaded], []
    while todo:
        item = todo.pop(0)
        if isinstance(item, unittest.TestSuite):
            todo[:0] = list(item)
        else:
            found.append(item)
    words = [w for w in sys.argv[1:] if not w.startswith('-')]
    return [t for t in found if not words or any(w in t.id() for w in words)]


def main():
    """Runs the tests of the calling file side by side, for they mostly wait; tells them in order, as TAP."""
    tests = _tests()
    classes = list(dict.fromkeys(type(t) for t in tests))
    out, failed = sys.stdout, 0
    out.write('TAP version 13\n1..%d\n' % (len(tests) + len(classes)))
    out.flush()
    for cls in classes:
        cls.setUpClass()
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        futures = [pool.submit(_run, t) for t in tests]
        for n, (test, future) in enumerate(zip(tests, futures), 1):
            result, spent = future.result()
            failed += _tell(out, n, test.id().split('.', 1)[1], result.trouble, result.skip, spent)
    for n, cls in enumerate(classes, len(tests) + 1):
        trouble = []
        try:
            cls.tearDownClass()
        except BaseException:  # noqa: what the server leaves behind is a failure of its class
            trouble = [traceback.format_exc()]
        failed += _tell(out, n, cls.__name__ + ' leaves nothing behind', trouble, None, 0)
    sys.exit(1 if failed else 0)


def _tell(out, number, name, trouble, skip, spent):
    out.write('%sok %d - %s%s\n' % ('not ' if trouble else '', number, name, ' # SKIP %s' % skip if skip else ''))
    for line in '\n'.join(trouble).splitlines():
        out.write('# %s\n' % line[:2000])
    if os.environ.get('SALLYPORT_TEST_TIMES'):
        out.write('# %.2f s\n' % spent)
    out.flush()
    return bool(trouble)
