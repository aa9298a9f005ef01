# SPDX-License-Identifier: Apache-2.0
"""The real Codex CLI with a scripted model before it and a server behind it.

CODEX           path of the CLI's native program (bench/install-peer puts it into build/peer)
CODEX_MISSING   why there is none, for the line that says what is skipped
SALLYPORT_PEER  the same program once more: run the scenarios against its own server instead

    CODEX=PATH/codex SALLYPORT=build/sallyport python3 tests/interop/test_commands.py
    CODEX=PATH/codex SALLYPORT_PEER=PATH/codex python3 tests/interop/test_commands.py

Between the CLI and the server stands a proxy that notes each message, so that a scenario can tell
that its commands went to the server and were not run by the CLI itself.
"""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'functional'))

import chaos
import server
import wire
from model import Model, outcome

INSTALLED = 'build*/peer/node_modules/@openai/*/vendor/*/bin/codex'
LIMIT = 60.0 * wire.SCALE  # seconds for a run of the CLI
PEER = server.PEER
PLAIN_MODEL = 'gpt-5.5'  # offers its tools one by one, apply_patch among them
CODE_MODEL = 'gpt-6.1-sol'  # writes programs that call them, as the release has it by default

# Nothing here reaches beyond loopback.
CONFIG = '''
model = "%(model)s"
model_provider = "script"
approval_policy = "never"
sandbox_mode = "%(sandbox)s"
check_for_update_on_startup = false
%(top)s
[analytics]
enabled = false
[feedback]
enabled = false
[otel]
exporter = "none"
[features]
plugins = false
remote_plugin = false
plugin_discovery_prefetch = false
apps = false
daemon_auto_start = false
[model_providers.script]
name = "script"
base_url = "%(base_url)s"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
%(tables)s
'''


def find_codex():
    """(path, None) or (None, why not)."""
    path = os.environ.get('CODEX')
    if path:
        return os.path.abspath(path), None
    if os.environ.get('CODEX_MISSING'):
        return None, os.environ['CODEX_MISSING']
    found = sorted(glob.glob(os.path.join(ROOT, INSTALLED)))
    if found:
        return found[0], None
    return None, 'no Codex CLI: run bench/install-peer build/peer, or set CODEX'


CODEX, MISSING = find_codex()


# ------------------------------------------------------------------------------- between the two


def payload(message):
    """The JSON of a WebSocket message, all its frames with their heads."""
    data, at = bytearray(), 0
    while at < len(message):
        length, head = message[at + 1] & 0x7F, at + 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length, head = int.from_bytes(message[head:head + size], 'big'), head + size
        mask = b''
        if message[at + 1] & 0x80:
            mask, head = message[head:head + 4], head + 4
        part = message[head:head + length]
        if mask:
            key = int.from_bytes((mask * (length // 4 + 1))[:length], 'big')
            part = (int.from_bytes(part, 'big') ^ key).to_bytes(length, 'big')
        data += part
        at = head + length
    return json.loads(data)


class Wire(chaos.Proxy):
    """Notes what was said. cut(direction, message) tells where a message cuts the connection, or None; it is asked
    until it has cut `times` times. After a cut nobody gets in for `pause` seconds."""

    def __init__(self, target, cut=None, times=1, pause=0.4, **how):
        self.cut, self.times, self.pause = cut, times, pause
        self.said = []  # (direction, message)
        super().__init__(target, **how)

    def judge(self, direction, message):
        super().judge(direction, b'')
        text = payload(message)
        with self.lock:
            self.said.append((direction, text))
            if self.cut is None or self.times == 0:
                return None
            where = self.cut(direction, text)
            if where is not None:
                self.times -= 1
                self.shut()
                self._later(self.pause, self.open)
            return where

    @staticmethod
    def _later(seconds, do):
        timer = threading.Timer(seconds, do)
        timer.daemon = True
        timer.start()

    def shut(self):
        self.refuse_from = self.connections

    def open(self):
        self.refuse_from = None

    def sent(self, method=None):
        """The client's messages, or those of one method."""
        with self.lock:
            return [m for d, m in self.said if d == chaos.UP and method in (None, m.get('method'))]

    def notes(self, method):
        with self.lock:
            return [m for d, m in self.said if d == chaos.DOWN and m.get('method') == method]

    def methods(self):
        return {m['method'] for m in self.sent() if 'method' in m}

    def answer(self, request):
        """What the server said to a request; for one connection at a time, as each counts its own ids."""
        with self.lock:
            after = [m for _, m in self.said]
        at = next(i for i, m in enumerate(after) if m is request)
        return next((m for m in after[at:] if 'method' not in m and m.get('id') == request['id']), None)


# -------------------------------------------------------------------------------------- one run


class Run:
    """The CLI at work. `wait` gives the model when it has ended, and judges what it left.

    url, environments  how it finds its server: by a variable, or by the text of environments.toml
    top, tables        more lines for config.toml, before its first table and after its last
    line               a line for a shell that starts the CLI itself, by its name and in the workspace
    """

    def __init__(self, case, script, url=None, environments=None, sandbox='danger-full-access', model=PLAIN_MODEL,
                 top='', tables='', args=(), env=None, cwd=None, line=None):
        self.base = tempfile.mkdtemp(prefix='sallyport-interop-', dir='/var/tmp')
        self.home = os.path.join(self.base, 'codex')
        for name in ('codex', 'tmp'):
            os.mkdir(os.path.join(self.base, name))
        self.mark = os.path.basename(self.base)
        self.model = Model(script)
        self.is_over = False
        self._write('config.toml', CONFIG % {'model': model, 'sandbox': sandbox, 'base_url': self.model.base_url,
                                             'top': top, 'tables': tables})
        if environments is not None:
            self._write('environments.toml', environments)
        words = [CODEX, 'exec', '--strict-config', '--skip-git-repo-check', '--json', '-C', cwd or case.ws, *args, 'go']
        if line:
            words = ['/bin/sh', '-c', line]
        self.out = open(os.path.join(self.base, 'out'), 'w+')
        self.err = open(os.path.join(self.base, 'err'), 'w+')
        self.popen = subprocess.Popen(words, env=self._surroundings(url, env), cwd=case.ws if line else self.base, stdin=subprocess.DEVNULL,
                                      stdout=self.out, stderr=self.err, start_new_session=True)

    def _write(self, name, text):
        with open(os.path.join(self.home, name), 'w') as f:
            f.write(text)

    def _surroundings(self, url, more):
        env = {'PATH': '%s:/usr/local/bin:/usr/bin:/bin' % os.path.dirname(CODEX), 'HOME': self.base, 'CODEX_HOME': self.home,
               'TMPDIR': os.path.join(self.base, 'tmp'), 'NO_PROXY': '*', 'no_proxy': '*', server.MARK: self.mark}
        env.update({k: os.environ[k] for k in server.PASS_ON if k in os.environ})
        if url:
            env['CODEX_EXEC_SERVER_URL'] = url
        env.update(more or {})
        return env

    def log(self):
        text = ''
        for f in (self.out, self.err):
            f.seek(0)
            text += f.read()[-3000:]
        return text

    def wait(self):
        """The end of the CLI; nothing of it is to be left."""
        trouble = []
        try:
            status = self.popen.wait(LIMIT)
            if status != 0:
                trouble.append('the CLI ended with status %d' % status)
        except subprocess.TimeoutExpired:
            trouble.append('the CLI does not end; the model had %d requests' % len(self.model.requests))
        self.stop()
        trouble += self.model.trouble + self._end_the_rest()
        if trouble:
            raise AssertionError('%s\n%s' % ('; '.join(trouble), self.log()))
        return self.model

    def _end_the_rest(self):
        """Processes that carry our mark when the CLI has ended are given a moment, then ended and told of."""
        def left():
            return server.marked(self.mark.encode())

        try:
            wire.wait_until(lambda: not left(), 'end', 15 * wire.SCALE)
            return []
        except AssertionError:
            names = ['%d %s' % (pid, server.name_of(pid)) for pid in left()]
        for pid in left():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        return ['left by the CLI: %s' % names]

    def stop(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        if not self.is_over:
            self.model.close()
        self.is_over = True

    def clean(self):
        self.stop()
        self.out.close()
        self.err.close()
        shutil.rmtree(self.base, ignore_errors=True)


# ------------------------------------------------------------------------------------- scenarios


def what_is(path):
    """The bytes of a file, None for a directory, text for a link."""
    if os.path.islink(path):
        return '-> ' + os.readlink(path)
    if os.path.isdir(path):
        return None
    with open(path, 'rb') as f:
        return f.read()


def tree(base):
    """{path: what is there}"""
    found = {}
    for where, dirs, files in os.walk(base):
        for name in dirs + files:
            path = os.path.join(where, name)
            key = os.path.relpath(path, base)
            try:
                found[key] = what_is(path)
            except FileNotFoundError:
                pass  # it was on its way out
    return found


_known = {}  # method: whether the server has it


def lacks(methods):
    """Those of the methods that the server does not know."""
    unasked = [m for m in methods if m not in _known]
    if unasked:
        srv = server.Server()
        try:
            client = srv.session()
            for method in unasked:
                _known[method] = client.reply(client.post(method, {}))['error']['code'] != -32601
        finally:
            srv.stop()
    return [m for m in methods if not _known[m]]


class Case(server.Case):
    """A scenario: a workspace, a server, a wire and runs of the CLI."""

    NEEDS = ()  # methods without which the CLI cannot do it

    def setUp(self):
        super().setUp()
        self.runs = []
        if CODEX is None:
            self.skipTest(MISSING)
        missing = [] if PEER else lacks(self.NEEDS)
        if missing:
            self.fail('the server has no %s' % ', '.join(missing))
        # Not below /tmp: that is writable in the sandbox, where a denial would prove nothing.
        self.base = tempfile.mkdtemp(prefix='sallyport-interop-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, self.base, True)
        self.ws = os.path.join(self.base, 'ws')
        os.mkdir(self.ws)

    def put(self, **files):
        """Files of the workspace; a double underscore stands for a slash, a single one for a dot."""
        for name, data in files.items():
            self.write(name.replace('__', '/').replace('_', '.'), data)

    def write(self, name, data):
        path = os.path.join(self.ws, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return path

    def serve(self, *args, **how):
        """A server whose home and scratch directories are this test's."""
        home = os.path.join(self.base, 'home')
        os.makedirs(home, exist_ok=True)
        env = how.pop('env', {})
        if PEER:
            env = dict(env, CODEX_HOME=os.path.join(self.base, 'codex-home'))
            os.makedirs(env['CODEX_HOME'], exist_ok=True)
        self.srv = self.server(*args, env=env, home=home, **how)
        return self.srv

    def wire_to(self, srv, **how):
        self.wire = Wire(srv.address, **how)
        self.addCleanup(self.wire.close)
        return self.wire

    def codex(self, script, **how):
        """Starts the CLI at what self.wire leads to, or as `url` says; makes both if they are not there."""
        if 'url' not in how and 'environments' not in how:
            if not hasattr(self, 'wire'):
                self.wire_to(self.serve())
            how['url'] = self.wire.url()
        run = Run(self, script, **how)
        self.runs.append(run)
        self.addCleanup(run.clean)
        return run

    def play(self, *turns, **how):
        """A whole run of some turns, or of one script; the model that was told it."""
        return self.codex(turns[0] if callable(turns[0]) else turns, **how).wait()

    def server_logs(self):
        text = super().server_logs()
        for run in self.runs:
            for call_id, output in run.model.outputs().items():
                text += '--- the model was told of %s: %s\n' % (call_id, str(output)[:700])
        return text

    # -- judgements

    def assertOutcome(self, model, call_id, code, output):
        """The whole of what a command gave."""
        self.assertEqual(outcome(model.told(call_id)), (code, output))

    def assertRanThere(self, count):
        """So many processes were started through the wire, and each one's story is whole."""
        starts = [m for m in self.wire.sent('process/start')]
        self.assertEqual(len(starts), count)
        for m in starts:
            answer = self.wire.answer(m)
            if answer is None or 'error' in answer:
                continue
            self.assertWhole(m['params']['processId'])

    def assertWhole(self, process_id):
        """Each number once, the end last, and `closed` at the end."""
        events = [(m['params']['seq'], kind) for kind in ('output', 'exited', 'closed')
                  for m in self.wire.notes('process/' + kind) if m['params']['processId'] == process_id]
        events = sorted(set(events))
        self.assertEqual([n for n, _ in events], list(range(1, len(events) + 1)))
        self.assertEqual([k for _, k in events if k != 'output'], ['exited', 'closed'])
        self.assertEqual(events[-1][1], 'closed')

    def assertTree(self, expected, base=None):
        """The workspace holds this and nothing else, as soon as no sandbox needs mount points in it."""
        expected = {k: v.encode() if isinstance(v, str) and not v.startswith('-> ') else v for k, v in expected.items()}
        base = base or self.ws
        try:
            wire.wait_until(lambda: tree(base) == expected, 'the tree', 10 * wire.SCALE, 0.1)
        except AssertionError:
            self.assertEqual(tree(base), expected)
