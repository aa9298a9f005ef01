# SPDX-License-Identifier: Apache-2.0
"""The official MCP packages as hosts of the server (host.mjs), ordered about from here.

MCP_SDK          the directory that has them (tests/mcp/install puts them into build/mcp-sdk)
MCP_SDK_MISSING  why there is none, for the line that says what is skipped

    MCP_SDK=DIR SALLYPORT=build/sallyport python3 tests/mcp/test_sdk_tools.py

`each` makes a test of a method for each kind of client, over stdio and over HTTP. One process of node serves
all tests of a program.
"""

import atexit
import collections
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'functional'))

import mcp
import server
import wire
from mcp import MODERN, LEGACY

FORM = {'elicitation': {'form': {}}}
TOOLS = ['exec_command', 'write_stdin', 'read_output', 'list_sessions', 'signal_session', 'resize_session',
         'explain_denial', 'apply_patch']
TOKEN = 'token-of-sixteen-characters'

Kind = collections.namedtuple('Kind', 'name sdk mode era')
KINDS = [Kind('sdk1', 1, None, 'legacy'), Kind('sdk2_legacy', 2, 'legacy', 'legacy'), Kind('sdk2_auto', 2, 'auto', 'modern'),
         Kind('sdk2_pinned', 2, {'pin': MODERN}, 'modern')]
ERAS = [KINDS[0], KINDS[2]]


def find_sdk():
    """(directory, None) or (None, why not)."""
    path = os.environ.get('MCP_SDK')
    if path:
        return os.path.abspath(path), None
    if os.environ.get('MCP_SDK_MISSING'):
        return None, os.environ['MCP_SDK_MISSING']
    path = os.path.join(ROOT, 'build', 'mcp-sdk')
    if os.path.exists(os.path.join(path, 'installed')):
        return path, None
    return None, 'no MCP SDK: run tests/mcp/install build/mcp-sdk, or set MCP_SDK'


SDK, MISSING = find_sdk()


class Failed(Exception):
    """What an order came to: the name, code and message of a package's error."""

    def __init__(self, error):
        super().__init__('%s %s: %s' % (error.get('name'), error.get('code'), error.get('message')))
        self.code = error.get('code')


class Node:
    """The process of host.mjs: orders go in, answers and events come out."""

    def __init__(self):
        # Packages are looked for beside the program, so that is put beside them.
        self.base = tempfile.mkdtemp(prefix='sallyport-sdk-')
        shutil.copy(os.path.join(HERE, 'host.mjs'), self.base)
        os.symlink(os.path.join(SDK, 'node_modules'), os.path.join(self.base, 'node_modules'))
        self.err = open(os.path.join(self.base, 'stderr'), 'w+')
        env = {k: v for k, v in os.environ.items() if k in ('PATH', 'LANG')}
        self.popen = subprocess.Popen(['node', os.path.join(self.base, 'host.mjs')], stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.PIPE, stderr=self.err, cwd=self.base, env=dict(env, HOME=self.base))
        self.lock, self.answers, self.events, self.ended = threading.Condition(), {}, [], False
        self.next = 1
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.popen.stdout:
            message = json.loads(line)
            with self.lock:
                if 'id' in message:
                    self.answers[message['id']] = message
                else:
                    self.events.append(message)
                self.lock.notify_all()
        with self.lock:
            self.ended = True
            self.lock.notify_all()

    def number(self):
        self.next += 1
        return self.next

    def post(self, do, **order):
        order = dict(order, id=self.number(), do=do)
        self.popen.stdin.write(json.dumps(order) + '\n')
        self.popen.stdin.flush()
        return order['id']

    def until(self, predicate, what, timeout=None):
        """What the predicate gives, as soon as that is something; it is called with the lock held."""
        end = wire.deadline(timeout)
        with self.lock:
            while True:
                found = predicate()
                if found:
                    return found
                left = end - time.monotonic()
                if self.ended or left <= 0:
                    raise wire.Timeout('%s: not %s\n%s\n%s' % (what, 'before the end' if self.ended else 'in time',
                                                               self.said(), self.events[-10:]))
                self.lock.wait(left)

    def said(self):
        with open(self.err.name) as f:
            return f.read()[-3000:]

    def result(self, id, timeout=None):
        answer = self.until(lambda: self.answers.pop(id, None), 'the answer to order %d' % id, timeout)
        if 'error' in answer:
            raise Failed(answer['error'])
        return answer['result']

    def event(self, name, timeout=None, **members):
        """The next event with these members; it is taken out."""
        def find():
            for e in self.events:
                if e['event'] == name and all(e.get(k) == v for k, v in members.items()):
                    self.events.remove(e)
                    return e
        return self.until(find, 'the event %s %s' % (name, members), timeout)

    def all_events(self, name, **members):
        with self.lock:
            return [e for e in self.events if e['event'] == name and all(e.get(k) == v for k, v in members.items())]

    def close(self):
        self.popen.stdin.close()
        try:
            self.popen.wait(wire.DEADLINE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.reader.join(wire.DEADLINE)
        self.popen.stdout.close()
        self.err.close()
        shutil.rmtree(self.base, ignore_errors=True)


_node = None


def node():
    global _node
    if _node is None or _node.ended:
        _node = Node()
        atexit.register(_node.close)
    return _node


class Result(mcp.Result):
    """Of a tool, as a package gave it."""

    def __init__(self, result):
        super().__init__({'result': result})


class Client:
    """A client of one of the packages."""

    def __init__(self, kind, **how):
        self.node, self.kind = node(), kind
        self.id = self.node.number()
        self.is_open, self.is_stdio = True, 'stdio' in how
        self.about = self.result(self.post('connect', sdk=kind.sdk, mode=kind.mode, **how))

    def post(self, do, **order):
        return self.node.post(do, client=self.id, **order)

    def result(self, id, timeout=None):
        return self.node.result(id, timeout)

    def do(self, do, **order):
        return self.result(self.post(do, **order))

    def tools(self):
        return self.do('list')

    def call_later(self, tool, arguments=None, **how):
        return self.post('call', tool=tool, arguments=arguments or {}, **how)

    def call(self, tool, timeout=None, **arguments):
        return Result(self.result(self.call_later(tool, arguments), timeout))

    def run(self, cmd, **arguments):
        return self.call('exec_command', cmd=cmd, login=False, **arguments)

    def question(self, timeout=None):
        return self.node.event('question', timeout, client=self.id)

    def answer(self, question, action, **content):
        answer = {'action': action}
        if content:
            answer['content'] = content
        self.do('answer', question=question['question'], answer=answer)

    def progress(self, of):
        return self.node.event('progress', of=of)['progress']

    def troubles(self):
        return [e['message'] for e in self.node.all_events('trouble', client=self.id)]

    def close(self):
        """A server over stdio ends then; after two seconds of its clearing up the packages lose patience and end it."""
        if not self.is_open:
            return
        self.is_open = False
        self.do('close')
        if self.is_stdio:
            end = self.node.event('exit', client=self.id)
            assert end['code'] in (0, None), end


class Case(mcp.Case):
    def setUp(self):
        if SDK is None:
            self.skipTest(MISSING)
        super().setUp()
        self.addCleanup(self.assertNothingLeft)

    def client(self, kind, over, *args, capabilities=None, env=None):
        """A server with these arguments, and a client of it that has seen its tools: over stdio, http, or a relay between stdio
        and a unix socket."""
        if over == 'http' and not hasattr(self, 'url'):
            self.url = self.http(*args, tokens=(TOKEN,), env=env).url
        if over == 'relay' and not hasattr(self, 'url'):
            _, (self.url,) = self.listening('unix://' + os.path.join(self.base, 'socket'), args=args, env=env)
        if over == 'http':
            how = {'url': self.url, 'token': TOKEN}
        else:
            words = ['--connect', self.url] if over == 'relay' else args
            how = {'stdio': {'command': server.PROGRAM, 'args': ['mcp', *words], 'cwd': self.work,
                             'env': self.environ(**(env or {}))}}
        c = Client(kind, capabilities=capabilities or {}, **how)
        self.addCleanup(c.close)
        self.assertEqual(c.about['era'], kind.era)
        c.tools()
        return c

    def assertNothingLeft(self):
        wire.wait_until(lambda: not server.marked(self.mark.encode()), 'nothing to be left behind')


def each(kinds=KINDS, overs=('stdio', 'http')):
    """A method `check_x(self, kind, over)` becomes the tests `test_x_KIND_OVER` of a class that is decorated by this."""
    def decorate(cls):
        for name in [n for n in dir(cls) if n.startswith('check_')]:
            for kind in kinds:
                for over in overs:
                    def test(self, check=getattr(cls, name), kind=kind, over=over):
                        check(self, kind, over)
                    setattr(cls, 'test_%s_%s_%s' % (name[6:], kind.name, over), test)
        return cls
    return decorate
