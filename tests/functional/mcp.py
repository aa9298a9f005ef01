# SPDX-License-Identifier: Apache-2.0
"""A small synchronous MCP host: both eras, over stdio, a unix socket and streamable HTTP.

A Host sends requests and sorts what comes back: answers by id, notifications and questions of the server in lists, in
the order of their arrival. Nothing is lenient, every wait has a deadline. `Case.mcp()` starts a server over stdio that
is ended, and looked after, at the end of the test.
"""

import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import uuid

import server
import wire
from wire import Timeout, deadline, wait_until

MODERN = '2026-07-28'
LEGACY = ('2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05')
META = 'io.modelcontextprotocol/'
FORM = {'elicitation': {'form': {}}}
TASKS = {'extensions': {META + 'tasks': {}}}
BOTH = 'application/json, text/event-stream'
# For servers that change files: a leak detector cannot look at what is confined.
PATCHES = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', 'abort_on_error=1') + ':detect_leaks=0'}


def meta(capabilities=None, version=MODERN, **more):
    return {META + 'protocolVersion': version, META + 'clientCapabilities': capabilities or {},
            META + 'clientInfo': {'name': 'test', 'version': '1'}, **more}


class Result:
    """Of tools/call."""

    def __init__(self, message):
        self.message = message
        self.error = message.get('error')
        self.result = message.get('result') or {}
        self.kind = self.result.get('resultType')
        self.content = self.result.get('content', [])
        self.text = self.content[0]['text'] if self.content else None
        self.failed = self.result.get('isError', False)
        self.structured = self.result.get('structuredContent', {})

    def __getitem__(self, name):
        return self.structured[name]

    def get(self, name, default=None):
        return self.structured.get(name, default)

    def __repr__(self):
        return json.dumps(self.message)[:3000]


class Host:
    """What both kinds of transport have in common."""

    def __init__(self):
        self.next_id = 1
        self.version = None  # of a legacy conversation
        self.answers, self.notifications, self.questions = {}, [], []
        self.log = []  # everything, as it came

    def sort(self, message):
        self.log.append(message)
        for one in message if isinstance(message, list) else [message]:
            self.sort_one(one)

    def sort_one(self, message):
        assert message.get('jsonrpc') == '2.0', message
        if 'method' not in message:
            assert ('result' in message) != ('error' in message), message
            key = json.dumps(message['id'])
            assert key not in self.answers or key == 'null', 'answered twice: %s' % message
            self.answers[key] = message
        elif 'id' in message:
            self.questions.append(message)
        else:
            self.notifications.append(message)

    def new_id(self):
        self.next_id += 1
        return self.next_id - 1

    def request(self, method, params=None, id=None):
        id = self.new_id() if id is None else id
        message = {'jsonrpc': '2.0', 'id': id, 'method': method}
        if params is not None:
            message['params'] = params
        return message

    # -- asking; `post` begins, `wait` ends, both together are `ask`

    def wait(self, id, timeout=None):
        key = json.dumps(id)
        self.until(lambda: key in self.answers, 'the answer to %s' % key, timeout)
        return self.answers.pop(key)

    def ask(self, method, params=None, timeout=None):
        return self.wait(self.post(self.request(method, params)), timeout)

    def modern(self, method, params=None, capabilities=None, timeout=None, **more):
        return self.ask(method, {**(params or {}), '_meta': meta(capabilities, **more)}, timeout)

    def open(self, version=LEGACY[0], capabilities=None, name='test'):
        """The handshake of the legacy era; what `call` does from now on is legacy too."""
        answer = self.ask('initialize', {'protocolVersion': version, 'capabilities': capabilities or {},
                                         'clientInfo': {'name': name, 'version': '1'}})
        self.version = answer['result']['protocolVersion']
        self.notify('notifications/initialized')
        return answer['result']

    def notify(self, method, params=None):
        message = {'jsonrpc': '2.0', 'method': method}
        if params is not None:
            message['params'] = params
        self.send(message)

    def answer(self, question, result):
        """Of elicitation/create, in the legacy era."""
        self.send({'jsonrpc': '2.0', 'id': question['id'], 'result': result})

    def question(self, timeout=None):
        self.until(lambda: self.questions, 'a question', timeout)
        return self.questions.pop(0)

    # -- tools

    def call_later(self, tool, arguments=None, capabilities=None, progress=None, state=None, responses=None):
        params = {'name': tool, 'arguments': arguments or {}}
        if self.version is None:
            params['_meta'] = meta(capabilities)
        if progress is not None:
            params.setdefault('_meta', {})['progressToken'] = progress
        if state is not None:
            params['requestState'] = state
        if responses is not None:
            params['inputResponses'] = responses
        return self.post(self.request('tools/call', params))

    def result(self, id, timeout=None):
        return Result(self.wait(id, timeout))

    def call(self, tool, arguments=None, timeout=None, **more):
        return self.result(self.call_later(tool, arguments, **more), timeout)

    def run(self, cmd, **arguments):
        return self.call('exec_command', {'cmd': cmd, **arguments})

    def exec(self, *argv, **arguments):
        return self.call('exec_command', {'argv': argv, **arguments})

    def read(self, session, **arguments):
        return self.call('read_output', {'session_id': session, **arguments})

    def kill(self, session, **arguments):
        return self.call('signal_session', {'session_id': session, **arguments})

    def glance(self, session):
        """A poll that does not wait."""
        return self.type(session, until={'quiet_ms': 1})

    def sessions(self):
        return {s['session_id']: s for s in self.call('list_sessions')['sessions']}

    def type(self, session, chars='', **arguments):
        return self.call('write_stdin', {'session_id': session, 'chars': chars, **arguments})


class Lines(Host):
    """One message a line, over two descriptors."""

    def __init__(self, reads, writes):
        super().__init__()
        self.reads, self.writes, self.buffer, self.ended = reads, writes, b'', False

    def send(self, message):
        self.send_raw(json.dumps(message).encode() + b'\n')

    def send_raw(self, data):
        while data:
            data = data[os.write(self.writes, data):]

    def post(self, message):
        self.send(message)
        return message['id']

    def until(self, predicate, what, timeout=None):
        end = deadline(timeout)
        while not predicate():
            left = end - time.monotonic()
            if left <= 0:
                raise Timeout('%s: not in time; got %s %s' % (what, self.answers, self.notifications))
            if self.ended:
                raise EOFError('%s: the server has ended' % what)
            self.pump(left)

    def pump(self, seconds):
        """Sorts what comes within so much time; returns early once something came."""
        if not select.select([self.reads], [], [], seconds)[0]:
            return
        data = os.read(self.reads, 1 << 20)
        self.ended = not data
        *lines, self.buffer = (self.buffer + data).split(b'\n')
        for line in lines:
            self.sort(json.loads(line))

    def close(self):
        for fd in {self.reads, self.writes}:
            try:
                os.close(fd)
            except OSError:
                pass


def connect_unix(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(path)
    fd = s.detach()
    return Lines(fd, fd)


class Http(Host):
    """Streamable HTTP: a connection for each request. `status` is that of the last answer."""

    def __init__(self, url, token):
        super().__init__()
        rest = url.split('//', 1)[1]
        self.where, self.path = rest.split('/', 1)[0], '/' + rest.split('/', 1)[1]
        self.token, self.session = token, None
        self.status, self.headers = None, {}
        self.lock, self.streams = threading.Condition(), []

    def heads(self, message):
        heads = {'Content-Type': 'application/json', 'Accept': BOTH, 'Authorization': 'Bearer ' + self.token}
        params = message.get('params') or {}
        version = (params.get('_meta') or {}).get(META + 'protocolVersion')
        if version is not None:
            heads['MCP-Protocol-Version'] = version
            heads['Mcp-Method'] = message['method']
            name = params.get('name', params.get('taskId'))
            if name is not None:
                heads['Mcp-Name'] = name
        elif self.version is not None:
            heads['MCP-Protocol-Version'] = self.version
        if self.session is not None and version is None:
            heads['Mcp-Session-Id'] = self.session
        return heads

    def exchange(self, body, heads, method='POST', path=None):
        """One request on a connection of its own: the connection, and the response to read."""
        c = http.client.HTTPConnection(self.where, timeout=wire.DEADLINE)
        c.request(method, path or self.path, body, heads)
        return c, c.getresponse()

    def send(self, message, **heads):
        self.finish(*self.exchange(json.dumps(message), {**self.heads(message), **heads}))

    def finish(self, c, r):
        """Reads a response to its end and sorts what is in it."""
        with self.lock:
            self.status, self.headers = r.status, dict((k.lower(), v) for k, v in r.getheaders())
            self.session = r.getheader('Mcp-Session-Id') or self.session
        try:
            if (r.getheader('Content-Type') or '').startswith('text/event-stream'):
                self.read_events(r)
            else:
                body = r.read()
                if body and (r.getheader('Content-Type') or '').startswith('application/json'):
                    self.take(json.loads(body))
        finally:
            c.close()

    def take(self, message):
        with self.lock:
            self.sort(message)
            self.lock.notify_all()

    def read_events(self, r):
        data = b''
        for line in r:
            line = line.rstrip(b'\r\n')
            if line.startswith(b'data: '):
                data += line[6:]
            elif not line and data:
                self.take(json.loads(data))
                data = b''

    def post(self, message, **heads):
        """In a thread: the response may be a long stream."""
        def work():
            try:
                self.send(message, **heads)
            except (OSError, http.client.HTTPException) as e:
                with self.lock:
                    self.lock.notify_all()
                self.trouble = e
        t = threading.Thread(target=work, daemon=True)
        t.start()
        self.streams.append(t)
        return message['id']

    def until(self, predicate, what, timeout=None):
        end = deadline(timeout)
        with self.lock:
            while not predicate():
                left = end - time.monotonic()
                if left <= 0:
                    raise Timeout('%s: not in time (status %s)' % (what, self.status))
                self.lock.wait(min(left, 0.5))

    def close(self):
        for t in self.streams:
            t.join(wire.DEADLINE)


class Case(unittest.TestCase):
    """Servers of this test, each in a workspace and with a home of its own."""

    def setUp(self):
        self.base = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-mcp-'))
        self.addCleanup(shutil.rmtree, self.base, True)
        self.work, self.home, self.runtime = (os.path.join(self.base, n) for n in ('work', 'home', 'run'))
        for path in (self.work, self.home, self.runtime):
            os.mkdir(path, 0o700)
        self.mark = 'mcp-' + uuid.uuid4().hex
        self.addCleanup(self.nothing_is_left)

    def environ(self, **env):
        keep = {k: v for k, v in os.environ.items() if k in server.PASS_ON + ('PATH', 'LANG')}
        return {**keep, 'HOME': self.home, 'SALLYPORT_HOME': self.home, 'XDG_RUNTIME_DIR': self.runtime,
                server.MARK: self.mark, **env}

    def start(self, *args, env=None, cwd=None, **more):
        p = subprocess.Popen([*server.PREFIX, server.PROGRAM, 'mcp', *args], cwd=cwd or self.work,
                             env=self.environ(**(env or {})), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=open(os.path.join(self.base, 'stderr'), 'ab'), **more)
        self.addCleanup(self.end, p)
        return p

    def end(self, p):
        """Its input ends, then it does."""
        for f in (p.stdin, p.stdout):
            if f is not None and not f.closed:
                f.close()
        if p.poll() is None and getattr(p, 'listens', False):
            p.send_signal(signal.SIGTERM)
        try:
            p.wait(wire.DEADLINE)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            raise AssertionError('the server did not end')
        self.assertEqual(p.returncode, 0, self.stderr())
        self.assertNotRegex(self.stderr(), 'Sanitizer|runtime error:')

    def nothing_is_left(self):
        """After the last of the servers."""
        wait_until(lambda: not server.marked(self.mark.encode()), 'nothing to be left behind')

    def stderr(self):
        with open(os.path.join(self.base, 'stderr')) as f:
            return f.read()

    def mcp(self, *args, **more):
        """A server over stdio, and the host at its other end."""
        p = self.start(*args, **more)
        host = Lines(os.dup(p.stdout.fileno()), os.dup(p.stdin.fileno()))
        p.stdin.close()
        p.stdout.close()
        host.process = p
        self.addCleanup(host.close)
        return host

    def listening(self, *urls, args=(), **more):
        """A server that listens: the process, and the URLs that it printed."""
        p = self.start(*[w for u in urls for w in ('--listen', u)], *args, **more)
        p.listens = True
        return p, [p.stdout.readline().decode().strip() for _ in urls]

    def http(self, *args, tokens=('token-of-sixteen-characters',), **more):
        """A server over HTTP with these tokens: a host for each."""
        path = os.path.join(self.base, 'tokens')
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'w') as f:
            f.write('\n'.join(tokens) + '\n')
        p, (url,) = self.listening('http://127.0.0.1:0/mcp', args=('--token-file', path, *args), **more)
        hosts = [Http(url, t) for t in tokens]
        for h in hosts:
            h.process, h.url = p, url
            self.addCleanup(h.close)
        return hosts if len(hosts) > 1 else hosts[0]


class Calls(Case):
    """A server over stdio for each test, as `host`."""

    env = None

    def setUp(self):
        super().setUp()
        self.host = self.mcp(env=self.env)

    def refuse(self, r, *words):
        self.assertTrue(r.failed, r)
        self.assertIsNone(r.error)
        for w in words:
            self.assertIn(w, r.text)
        return r

    def expect(self, r, **members):
        self.assertFalse(r.failed, r)
        self.assertEqual({k: r.get(k) for k in members}, members, r)
        return r

    def file(self, name):
        with open(os.path.join(self.work, name)) as f:
            return f.read()


def with_word(word):
    """Processes that have this word on their command line; others' names for themselves do not matter."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/cmdline' % pid, 'rb') as f:
                if int(pid) != os.getpid() and word.encode() in f.read().split(b'\0'):
                    found.append(int(pid))
        except OSError:
            pass
    return found
