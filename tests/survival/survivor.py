# SPDX-License-Identifier: Apache-2.0
"""A client that outlives the front of its server, with the rules of the Codex client: every number of a process once, in
order and without a gap. After a lost connection it resumes its session, reads each process behind the last number that it
has published, and repeats the requests that were not answered."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'functional'))

import wire

RESUME = 25 * wire.SCALE  # seconds in which the server must be back
RETRY = 0.01


class Lost(AssertionError):
    """What the Codex client would give a process up for."""


class Cut(wire.WebSocket):
    """The stream may end anywhere: its server is killed."""

    def receive(self, end):
        try:
            return super().receive(end)
        except AssertionError as e:
            if isinstance(e, wire.Timeout) or 'stream ends inside' not in str(e):
                raise
            return None


class CutLines(wire.Lines):
    def receive(self, end):
        try:
            return super().receive(end)
        except AssertionError as e:
            if isinstance(e, wire.Timeout) or 'stream ends inside' not in str(e):
                raise
            return None


class Story:
    """What was published of one process."""

    def __init__(self, process_id, sink):
        self.id, self.sink = process_id, sink  # sink(stream, bytes)
        self.published = 0
        self.early = {}
        self.exit_code = None
        self.exited = self.closed = False

    def note(self, seq, event):
        if seq > self.published:
            self.early.setdefault(seq, event)
        while self.published + 1 in self.early:
            self.publish(self.early.pop(self.published + 1))

    def publish(self, event):
        self.published += 1
        if self.closed:
            raise Lost('%s: %r after its close' % (self.id, event))
        if event[0] == 'output':
            self.sink(event[1], event[2])
        elif event[0] == 'exited':
            if self.exited:
                raise Lost('%s: a second exit' % self.id)
            self.exited, self.exit_code = True, event[1]
        else:
            if not self.exited:
                raise Lost('%s: closed before its exit' % self.id)
            self.closed = True

    def page(self, page):
        """The reply to process/read behind `published`: every number up to nextSeq must be there."""
        covered = page['nextSeq'] - 1
        events = {c['seq']: ('output', c['stream'], wire.unb64(c['chunk'])) for c in page['chunks']}
        missing = [n for n in range(self.published + 1, covered + 1) if n not in events]
        if page['closed'] and missing and missing[-1] == covered and not self.closed:
            events[missing.pop()] = ('closed',)
        if page['exited'] and missing and not self.exited:
            events[missing.pop()] = ('exited', page['exitCode'])
        if missing:
            raise Lost('%s: %d of the numbers %d to %d are missing, the first is %d, of %d chunks from %s' % (
                self.id, len(missing), self.published + 1, covered, missing[0], len(page['chunks']),
                page['chunks'][0]['seq'] if page['chunks'] else None))
        for seq in sorted(events):
            self.note(seq, events[seq])


class Survivor:
    def __init__(self, address, lines=False):
        self.address, self.is_lines = address, lines
        self.session_id = None
        self.stories = {}
        self.ids = self.write_ids = self.lost = 0
        self.replies = {}
        self.transport = None
        self.reconnect()

    # -- the connection

    def attach(self):
        """Connects and resumes, once. Raises wire.Closed or OSError if the server is not there."""
        transport = CutLines.connect(self.address) if self.is_lines else Cut.connect(self.address)
        self.transport, self.replies = transport, {}
        params = {'clientName': 'survivor', 'resumeSessionId': self.session_id}
        result = self.answer(self.post('initialize', params))
        if 'error' in result:
            if result['error']['code'] == -32010:  # the old connection is not known to be lost yet
                raise wire.Closed('attached')
            raise Lost('resume: %r' % (result['error'],))
        if self.session_id not in (None, result['result']['sessionId']):
            raise Lost('another session')
        self.session_id = result['result']['sessionId']
        self.send({'method': 'initialized', 'params': {}})
        reads = {self.post('process/read', {'processId': s.id, 'afterSeq': s.published, 'maxBytes': None, 'waitMs': 0}): s
                 for s in self.stories.values() if not s.closed}
        for request, story in reads.items():
            reply = self.answer(request)
            if 'error' in reply:
                if story.published == 0 and 'unknown process' in reply['error']['message']:
                    continue  # its start was not answered, and has not reached the cell: it is repeated
                raise Lost('read of %s: %r' % (story.id, reply['error']))
            story.page(reply['result'])

    def reconnect(self):
        end = time.monotonic() + RESUME
        while True:
            try:
                self.attach()
                return
            except (wire.Closed, OSError, AssertionError) as e:
                if isinstance(e, (Lost, wire.Timeout)):
                    raise
                last = e  # AssertionError: cut off in the answer to the upgrade
            if self.transport is not None:
                self.transport.close()
                self.transport = None
            if time.monotonic() > end:
                raise Lost('the server does not come back: %r' % (last,))
            time.sleep(RETRY)

    def recover(self):
        self.lost += 1
        self.transport.close()
        self.reconnect()

    # -- messages; each raises wire.Closed when the connection is lost

    def send(self, message):
        self.transport.send(wire.json.dumps(message, separators=(',', ':')).encode())

    def post(self, method, params):
        self.ids += 1
        self.send({'id': self.ids, 'method': method, 'params': params})
        return self.ids

    def take(self, timeout=None):
        data = self.transport.receive(wire.deadline(timeout))
        if data is None:
            raise wire.Closed('the connection is lost')
        message = wire.json.loads(data)
        if 'method' not in message:
            self.replies[message['id']] = message
            return
        params, kind = message['params'], message['method'].split('/')[-1]
        story = self.stories.get(params.get('processId'))
        if story is None:
            return
        if kind == 'output':
            story.note(params['seq'], ('output', params['stream'], wire.unb64(params['chunk'])))
        elif kind == 'exited':
            story.note(params['seq'], ('exited', params['exitCode']))
        elif kind == 'closed':
            story.note(params['seq'], ('closed',))

    def answer(self, request):
        while request not in self.replies:
            self.take()
        return self.replies.pop(request)

    # -- what a program does; survives lost connections

    def call(self, method, params):
        """The reply. A request whose connection is lost is repeated."""
        while True:
            try:
                return self.answer(self.post(method, params))
            except (wire.Closed, OSError):
                self.recover()

    def start(self, process_id, argv, sink, **more):
        self.stories[process_id] = Story(process_id, sink)
        params = {'processId': process_id, 'argv': argv, 'cwd': 'file:///', 'tty': False,
                  'env': {'PATH': '/usr/local/bin:/usr/bin:/bin'}}
        params.update(more)
        before = self.lost
        reply = self.call('process/start', params)
        if 'error' in reply and not (self.lost > before and 'already exists' in reply['error']['message']):
            raise Lost('start of %s: %r' % (process_id, reply['error']))
        return self.stories[process_id]

    def write(self, process_id, data):
        self.write_ids += 1
        reply = self.call('process/write', {'processId': process_id, 'chunk': wire.b64(data), 'writeId': str(self.write_ids)})
        if reply.get('result') != {'status': 'accepted'}:
            raise Lost('write %d of %s: %r' % (self.write_ids, process_id, reply))

    def until(self, is_so, timeout=None):
        end = wire.deadline(timeout)
        while not is_so():
            try:
                self.take(end - time.monotonic())
            except (wire.Closed, OSError):
                self.recover()

    def closed(self, process_id):
        story = self.stories[process_id]
        self.until(lambda: story.closed)
        del self.stories[process_id]
        return story

    def drop(self):
        """Loses the connection on purpose: the session is detached."""
        self.transport.close()
