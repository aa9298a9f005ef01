# SPDX-License-Identifier: Apache-2.0
"""A small synchronous client of the exec-server protocol.

Channels carry bytes (socket or pipe pair), transports carry messages (WebSocket frames or lines),
a Client matches replies to requests and keeps the story of every process. Every wait has a
deadline. Nothing here is lenient: a frame, a message or an event that breaks the protocol raises.
"""

import base64
import collections
import errno
import fcntl
import hashlib
import json
import os
import select
import socket
import struct
import time

SCALE = float(os.environ.get('SALLYPORT_TEST_SCALE', '1'))
DEADLINE = 40.0 * SCALE  # how long an event that must come may take
GUID = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
MIB = 1 << 20

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Timeout(AssertionError):
    """An event that must come did not."""


class Closed(Exception):
    """The connection has ended."""


class RpcError(Exception):
    def __init__(self, error):
        super().__init__('%d %s' % (error['code'], error['message']))
        self.code = error['code']
        self.message = error['message']


def deadline(timeout=None):
    return time.monotonic() + (DEADLINE if timeout is None else timeout)


def write_program(path, text):
    """A program that can be run at once: none of the other threads' children has it open any more, as each does between
    its fork and its exec (ETXTBSY). A lease for reading is granted when nobody can write."""
    with open(path, 'w') as f:
        f.write(text)
    os.chmod(path, 0o755)
    with open(path) as f:
        def is_free():
            try:
                fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                return True
            except BlockingIOError:
                return False
        wait_until(is_free, 'nobody to have %s open for writing' % path)
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return path


def wait_until(predicate, what='condition', timeout=None, step=0.01):
    """Wait for something that has no event of its own, such as the end of a stranger."""
    end = deadline(timeout)
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise Timeout('%s: not within %.0f s' % (what, DEADLINE if timeout is None else timeout))
        time.sleep(step)


def b64(data):
    return base64.b64encode(data).decode()


def unb64(text):
    return base64.b64decode(text, validate=True)


def file_uri(path):
    keep = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/!$&'()*+,-.:;=@[]^_|~"
    return 'file://' + ''.join(chr(c) if c in keep else '%%%02X' % c for c in os.fsencode(path))


# ---------------------------------------------------------------------------------------- bytes


class Channel:
    """Bytes in both directions, with deadlines. `reads` and `writes` are descriptors."""

    def __init__(self, reads, writes, owner=None):
        self.rfd, self.wfd, self.owner = reads, writes, owner
        self.buffer = bytearray()
        self.eof = False
        self.reset = False
        self.received = 0
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)

    @classmethod
    def connect(cls, address, rcvbuf=None):
        """address: (ip, port) or the path of a unix socket."""
        family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        if isinstance(address, tuple) and ':' in address[0]:
            family = socket.AF_INET6
        s = socket.socket(family, socket.SOCK_STREAM)
        try:
            s.settimeout(DEADLINE)
            if rcvbuf:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            s.connect(address)
            if family != socket.AF_UNIX:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            s.close()
            raise
        return cls(s.fileno(), s.fileno(), s)

    def _take(self):
        try:
            data = os.read(self.rfd, 1 << 18)
        except BlockingIOError:
            return
        except OSError as e:
            if e.errno not in (errno.ECONNRESET, errno.EPIPE, errno.EIO):
                raise
            self.reset = True
            data = b''
        self.received += len(data)
        if data:
            self.buffer += data
        else:
            self.eof = True

    def write(self, data, timeout=None, pump=True):
        """Sends all; takes what comes in meanwhile, so that two full directions never lock."""
        end = deadline(timeout)
        view = memoryview(data)
        poll = select.poll()
        poll.register(self.wfd, select.POLLOUT)
        if pump and self.rfd != self.wfd and not self.eof:
            poll.register(self.rfd, select.POLLIN)
        while view:
            if pump and self.rfd == self.wfd:
                poll.modify(self.wfd, select.POLLOUT | (0 if self.eof else select.POLLIN))
            ready = dict(poll.poll(max(0, end - time.monotonic()) * 1000))
            if not ready:
                raise Timeout('the server does not read (%d bytes left)' % len(view))
            if pump and ready.get(self.rfd, 0) & (select.POLLIN | select.POLLHUP) and not self.eof:
                self._take()
                if self.eof and self.rfd != self.wfd:
                    poll.unregister(self.rfd)
            if ready.get(self.wfd, 0) & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                end = deadline(timeout)  # a reader that is slow but reads is no failure
                try:
                    view = view[os.write(self.wfd, view[:1 << 20]):]
                except BlockingIOError:
                    pass
                except OSError as e:
                    if e.errno in (errno.EPIPE, errno.ECONNRESET):
                        raise Closed('write: ' + e.strerror) from None
                    raise

    def fill(self, end):
        """More bytes into the buffer; False at the end of the stream."""
        if self.eof:
            return False
        poll = select.poll()
        poll.register(self.rfd, select.POLLIN)
        while True:
            if not poll.poll(max(0, end - time.monotonic()) * 1000):
                raise Timeout('nothing came')
            before = self.received
            self._take()
            if self.eof:
                return False
            if self.received != before:
                return True

    def readable(self):
        """Whether bytes or the end wait right now."""
        poll = select.poll()
        poll.register(self.rfd, select.POLLIN)
        return bool(self.buffer) or bool(poll.poll(0))

    def exactly(self, n, end):
        while len(self.buffer) < n:
            if not self.fill(end):
                return None
        data = bytes(self.buffer[:n])
        del self.buffer[:n]
        return data

    def until(self, mark, end, limit=None):
        start = 0
        while True:
            at = self.buffer.find(mark, start)
            if at >= 0:
                data = bytes(self.buffer[:at + len(mark)])
                del self.buffer[:at + len(mark)]
                return data
            start = max(0, len(self.buffer) - len(mark) + 1)
            if limit and start > limit:
                raise AssertionError('no %r in %d bytes' % (mark, start))
            if not self.fill(end):
                return None

    def end_of_stream(self, timeout=None):
        """Reads to the end and returns what was left."""
        end = deadline(timeout)
        while self.fill(end):
            pass
        return bytes(self.buffer)

    def abort(self):
        """Ends a TCP connection with a reset."""
        if self.owner is not None and self.owner.family != socket.AF_UNIX:
            self.owner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.close()

    def close(self):
        if self.owner is not None:
            self.owner.close()
        else:
            for fd in {self.rfd, self.wfd}:
                try:
                    os.close(fd)
                except OSError:
                    pass
            self.rfd = self.wfd = -1

    @property
    def local(self):
        return '%s:%d' % self.owner.getsockname()[:2]


# --------------------------------------------------------------------------------------- HTTP

HttpReply = collections.namedtuple('HttpReply', 'status headers body')


def read_http(channel, method='GET', timeout=None):
    end = deadline(timeout)
    head = channel.until(b'\r\n\r\n', end, 1 << 16)
    if head is None:
        raise Closed('end of stream instead of an HTTP reply')
    lines = head.decode('latin-1').split('\r\n')
    version, status = lines[0].split(' ')[:2]
    if version != 'HTTP/1.1':
        raise AssertionError('not HTTP/1.1: %r' % lines[0])
    headers = {}
    for line in lines[1:]:
        if line:
            name, value = line.split(':', 1)
            headers[name.strip().lower()] = value.strip()
    status = int(status)
    body = b''
    if status != 101 and method != 'HEAD':
        if 'content-length' in headers:
            body = channel.exactly(int(headers['content-length']), end)
        elif headers.get('transfer-encoding', '').lower() == 'chunked':
            while True:
                size = int(channel.until(b'\r\n', end).split(b';')[0], 16)
                body += channel.exactly(size + 2, end)[:size]
                if size == 0:
                    break
        else:
            body = channel.end_of_stream(end - time.monotonic())
    return HttpReply(status, headers, body)


class Address(tuple):
    """(host, port) of a server, with the token that its URL has; '': none."""

    token = ''

    def __new__(cls, pair, token=''):
        self = super().__new__(cls, pair)
        self.token = token
        return self


def query_of(address):
    """What follows the address in a URL: '', or '/?token=...'."""
    token = getattr(address, 'token', '')
    return '/?token=' + token if token else ''


def _shows_a_token(headers):
    return any(name.lower() == 'authorization' for name in headers or {})


def http(address, method='GET', path='/', headers=None, host='localhost', version='HTTP/1.1', anonymous=False):
    """One request on a connection of its own, with the token of the address unless it is anonymous."""
    channel = Channel.connect(address)
    headers = dict(headers or {})
    if query_of(address) and not anonymous and not _shows_a_token(headers):
        headers['Authorization'] = 'Bearer ' + address.token
    try:
        lines = ['%s %s %s' % (method, path, version)]
        if host is not None:
            lines.append('Host: ' + host)
        lines += ['%s: %s' % item for item in headers.items()]
        channel.write(('\r\n'.join(lines) + '\r\n\r\n').encode('latin-1'))
        return read_http(channel, method)
    finally:
        channel.close()


def upgrade_headers(**more):
    headers = {'Connection': 'Upgrade', 'Upgrade': 'websocket', 'Sec-WebSocket-Version': '13',
               'Sec-WebSocket-Key': b64(os.urandom(16))}
    headers.update({k.replace('_', '-'): v for k, v in more.items()})
    return {k: v for k, v in headers.items() if v is not None}


# ---------------------------------------------------------------------------------- transports


def frame(opcode, payload=b'', fin=True, mask=True, rsv=0, length=None):
    """One client frame. `length` lies about the payload's size."""
    size = len(payload) if length is None else length
    head = bytearray([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0x80 if mask else 0
    if size < 126:
        head.append(bit | size)
    elif size < 65536:
        head += struct.pack('>BH', bit | 126, size)
    else:
        head += struct.pack('>BQ', bit | 127, size)
    if not mask:
        return bytes(head) + payload
    key = os.urandom(4)
    head += key
    if payload:
        n = len(payload)
        pad = (key * (n // 4 + 1))[:n]
        payload = (int.from_bytes(payload, 'big') ^ int.from_bytes(pad, 'big')).to_bytes(n, 'big')
    return bytes(head) + payload


class WebSocket:
    """Messages as WebSocket frames."""

    def __init__(self, channel):
        self.channel = channel
        self.auto_pong = True
        self.largest_frame = 0
        self.fragments = 0        # frames of the last message
        self.pings = []
        self.pongs = []
        self.close_frame = None   # payload of the server's close frame

    @classmethod
    def connect(cls, address, path=None, headers=None, host='localhost', rcvbuf=None):
        if path is None:  # as the URL of the server has it
            path = '/' if _shows_a_token(headers) else query_of(address) or '/'
        channel = Channel.connect(address, rcvbuf)
        try:
            fields = upgrade_headers()
            fields.update(headers or {})
            text = 'GET %s HTTP/1.1\r\nHost: %s\r\n' % (path, host)
            text += ''.join('%s: %s\r\n' % item for item in fields.items()) + '\r\n'
            channel.write(text.encode('latin-1'))
            reply = read_http(channel)
            if reply.status != 101:
                raise AssertionError('upgrade refused: %d %r' % (reply.status, reply.body))
            accept = b64(hashlib.sha1(fields['Sec-WebSocket-Key'].encode() + GUID).digest())
            if reply.headers.get('sec-websocket-accept') != accept:
                raise AssertionError('wrong Sec-WebSocket-Accept')
            for name in ('sec-websocket-protocol', 'sec-websocket-extensions'):
                if name in reply.headers:
                    raise AssertionError('%s was negotiated' % name)
        except BaseException:
            channel.close()
            raise
        return cls(channel)

    def send_frame(self, opcode, payload=b'', pump=True, **how):
        self.channel.write(frame(opcode, payload, **how), pump=pump)

    def send(self, data, pump=True):
        self.send_frame(TEXT, data, pump)

    def receive_frame(self, end):
        """(fin, opcode, payload) or None at the end of the stream."""
        head = self.channel.exactly(2, end)
        if head is None:
            if self.channel.buffer and not self.channel.reset:
                raise AssertionError('the stream ends inside a frame')
            return None
        if head[0] & 0x70:
            raise AssertionError('reserved bits set by the server')
        if head[1] & 0x80:
            raise AssertionError('the server masks')
        size, opcode, fin = head[1] & 0x7F, head[0] & 15, bool(head[0] & 0x80)
        if size == 126:
            more = self.channel.exactly(2, end)
            size = None if more is None else struct.unpack('>H', more)[0]
            if size is not None and size < 126:
                raise AssertionError('length not minimal')
        elif size == 127:
            more = self.channel.exactly(8, end)
            size = None if more is None else struct.unpack('>Q', more)[0]
            if size is not None and size < 65536:
                raise AssertionError('length not minimal')
        payload = None if size is None else self.channel.exactly(size, end)
        if payload is None:
            return None  # cut off: the connection was dropped
        if opcode >= 8 and (not fin or size > 125):
            raise AssertionError('bad control frame')
        if opcode not in (0, TEXT, CLOSE, PING, PONG):
            raise AssertionError('opcode %d from the server' % opcode)
        self.largest_frame = max(self.largest_frame, size)
        return fin, opcode, payload

    def receive(self, end):
        """The bytes of one message, or None at the end."""
        parts = None
        while True:
            got = self.receive_frame(end)
            if got is None:
                return None
            fin, opcode, payload = got
            if opcode == PING:
                self.pings.append(payload)
                if self.auto_pong:
                    try:
                        self.send_frame(PONG, payload)
                    except Closed:
                        pass
            elif opcode == PONG:
                self.pongs.append(payload)
            elif opcode == CLOSE:
                self.close_frame = payload
            else:
                if (opcode == 0) != (parts is not None):
                    raise AssertionError('fragments out of order')
                if self.close_frame is not None:
                    raise AssertionError('data after a close frame')
                parts = (parts or []) + [payload]
                if fin:
                    self.fragments = len(parts)
                    return b''.join(parts)

    def close(self):
        self.channel.close()


class Lines:
    """One message a line."""

    def __init__(self, channel):
        self.channel = channel

    @classmethod
    def connect(cls, path):
        return cls(Channel.connect(path))

    def send(self, data, pump=True):
        self.channel.write(data + b'\n', pump=pump)

    def receive(self, end):
        line = self.channel.until(b'\n', end)
        if line is None:
            if self.channel.buffer and not self.channel.reset:
                raise AssertionError('the stream ends inside a line: %r' % bytes(self.channel.buffer[:80]))
            return None
        return line[:-1]

    def close(self):
        self.channel.close()


# -------------------------------------------------------------------------------------- client


class Process:
    """What a connection was told about one process."""

    def __init__(self, process_id, from_start):
        self.id = process_id
        self.from_start = from_start
        self.next_seq = 1 if from_start else None
        self.streams = {'stdout': bytearray(), 'stderr': bytearray(), 'pty': bytearray()}
        self.sizes = {'stdout': 0, 'stderr': 0, 'pty': 0}
        self.hashes = {name: hashlib.sha256() for name in self.streams}
        self.chunks = []          # (seq, stream, size)
        self.exit_code = None
        self.exit_seq = None
        self.close_seq = None
        self.keep = True
        self.limits = None        # what process/start said about its limits, if it was asked for some
        self.told = {}            # the members of process/exited
        self.early = {}
        self.receipt = None       # of a client that asked for receipts
        self.reason = None

    @property
    def exited(self):
        return self.exit_seq is not None

    @property
    def closed(self):
        return self.close_seq is not None

    stdout = property(lambda self: bytes(self.streams['stdout']))
    stderr = property(lambda self: bytes(self.streams['stderr']))
    pty = property(lambda self: bytes(self.streams['pty']))

    @property
    def text(self):
        return bytes(self.streams['stdout'] or self.streams['pty']).decode('utf-8', 'replace')

    def note(self, method, params, strict, has_receipts=False):
        seq = params['seq']
        if self.closed:
            raise AssertionError('%s after closed: %r' % (method, params))
        if strict:
            if self.next_seq is not None and seq != self.next_seq:
                raise AssertionError('%s: seq %r where %r was due' % (self.id, seq, self.next_seq))
            self.next_seq = seq + 1
        if method == 'process/output':
            keys = {'processId', 'seq', 'stream', 'chunk'}
            data = unb64(params['chunk'])
            if not data:
                raise AssertionError('an empty chunk')
            if strict and len(data) > 65536:
                raise AssertionError('a chunk of %d bytes' % len(data))
            self.chunks.append((seq, params['stream'], len(data)))
            self.sizes[params['stream']] += len(data)
            self.hashes[params['stream']].update(data)
            if self.keep:
                self.streams[params['stream']] += data
        elif method == 'process/exited':
            keys = {'processId', 'seq', 'exitCode', 'sandboxDenied'}
            self.told = params
            if self.limits is not None:
                keys |= set(params) & {'reason', 'limitsHit', 'suspected'}
            if self.exited:
                raise AssertionError('a second exited')
            if not isinstance(params['exitCode'], int):
                raise AssertionError('exitCode %r' % (params['exitCode'],))
            self.exit_seq, self.exit_code = seq, params['exitCode']
            if has_receipts:
                keys |= {'reason'} | set(params) & {'limitsHit', 'suspected'}
                self.reason = params.get('reason')
        else:
            keys = {'processId', 'seq'}
            if strict and not self.exited and self.from_start:
                raise AssertionError('closed before exited')
            self.close_seq = seq
            if has_receipts:
                keys.add('receipt')
                self.receipt = params.get('receipt')
        if set(params) != keys:
            raise AssertionError('members of %s: %r' % (method, sorted(params)))


class Client:
    """Requests, replies and notifications over one transport."""

    strict = True  # the server emits events in order
    takes_receipts = False
    takes_denials = False

    def __init__(self, transport, server=None):
        self.transport = transport
        self.server = server
        self.channel = transport.channel
        self.ids = 0
        self.replies = {}
        self.arrival = []            # ids and methods in the order they came
        self.notes = []
        self.processes = {}
        self.asked = set()           # process ids started on this connection
        self.write_ids = 0
        self.keep_output = True
        self.ended = False
        self.session_id = None
        self.info = None
        self.cwd = None

    # -- messages

    def send(self, message, pump=True):
        self.send_raw(json.dumps(message, separators=(',', ':'), ensure_ascii=False).encode(), pump)

    def send_raw(self, data, pump=True):
        self.transport.send(data if isinstance(data, bytes) else data.encode(), pump)

    def pump(self, timeout=None):
        """Takes one message; raises Closed at the end of the connection."""
        data = self.transport.receive(deadline(timeout))
        if data is None:
            self.ended = True
            raise Closed('the server ended the connection')
        message = json.loads(data.decode('utf-8'), object_pairs_hook=_no_duplicates)
        if not isinstance(message, dict) or 'jsonrpc' in message:
            raise AssertionError('not a message of this dialect: %r' % (data[:200],))
        if 'method' in message:
            if set(message) != {'method', 'params'}:
                raise AssertionError('notification with members %r' % sorted(message))
            self.arrival.append(message['method'])
            self.notes.append(message)
            # With a session id it is about a process that this connection is attached to.
            if message['method'].startswith('process/') and 'sessionId' not in message['params']:
                self._event(message['method'], message['params'])
        else:
            if set(message) not in ({'id', 'result'}, {'id', 'error'}):
                raise AssertionError('reply with members %r' % sorted(message))
            if 'error' in message and (set(message['error']) - {'data'} != {'code', 'message'} or
                                       message['error'].get('data', {'rejected': True}) != {'rejected': True}):
                raise AssertionError('error with members %r' % sorted(message['error']))
            key = _key(message['id'])
            self.arrival.append(message['id'])
            self.replies.setdefault(key, collections.deque()).append(message)
        return message

    def _event(self, method, params):
        pid = params['processId']
        if method == 'process/denied' and self.takes_denials:
            return  # in self.notes
        process = self.processes.get(pid)
        if process is None or (process.closed and params['seq'] == 1):
            process = self.processes[pid] = Process(pid, pid in self.asked)
            process.keep = self.keep_output
        if self.strict or not process.from_start:
            process.note(method, params, self.strict, self.takes_receipts)
            return
        # The reference queues events out of order: sort them, as its own client does.
        process.early[params['seq']] = (method, params)
        while process.next_seq in process.early:
            process.note(*process.early.pop(process.next_seq), False)
            process.next_seq += 1

    def wait_for(self, predicate, what='event', timeout=None):
        end = deadline(timeout)
        while True:
            value = predicate()
            if value:
                return value
            left = end - time.monotonic()
            if left <= 0:
                raise Timeout('no %s' % what)
            try:
                self.pump(left)
            except Timeout:
                raise Timeout('no %s' % what) from None

    def post(self, method, params=None, request_id=None, **members):
        """Sends a request and does not wait."""
        if request_id is None:
            self.ids += 1
            request_id = self.ids
        message = {'id': request_id, 'method': method}
        if params is not None:
            message['params'] = params
        message.update(members)
        if method == 'process/start' and isinstance(params, dict) and isinstance(params.get('processId'), str):
            self.asked.add(params['processId'])
            if params['processId'] in self.processes and self.processes[params['processId']].closed:
                del self.processes[params['processId']]  # the id is used again: a new story
        self.send(message)
        return request_id

    def reply(self, request_id, timeout=None):
        """The whole reply message to a request."""
        key = _key(request_id)
        self.wait_for(lambda: self.replies.get(key), 'reply to %r' % (request_id,), timeout)
        queue = self.replies[key]
        message = queue.popleft()
        if not queue:
            del self.replies[key]
        return message

    def answered(self, request_id):
        return bool(self.replies.get(_key(request_id)))

    def result(self, request_id, timeout=None):
        message = self.reply(request_id, timeout)
        if 'error' in message:
            raise RpcError(message['error'])
        return message['result']

    def request(self, method, params=None, timeout=None, **members):
        return self.result(self.post(method, params, **members), timeout)

    def error(self, method, params=None, timeout=None, **members):
        """The error a request must end in."""
        message = self.reply(self.post(method, params, **members), timeout)
        if 'error' not in message:
            raise AssertionError('%s: no error but %r' % (method, message))
        return message['error']

    def malformed(self, data, timeout=None):
        """The text of the answer that malformed input must get."""
        self.send_raw(data)
        error = self.reply(-1, timeout)['error']
        if error['code'] != -32600:
            raise AssertionError('malformed input answered %r' % (error,))
        return error['message']

    def fence(self):
        """Everything sent before has been looked at when this returns."""
        return self.request('environment/status')

    def take_notes(self):
        notes, self.notes = self.notes, []
        return notes

    def wait_end(self, timeout=None):
        """The server must end this connection. Messages before the end are dispatched."""
        end = deadline(timeout)
        try:
            while True:
                self.pump(end - time.monotonic())
        except Closed:
            return

    # -- session

    def initialize(self, resume=None, name='functional test'):
        params = {'clientName': name}
        if resume is not None:
            params['resumeSessionId'] = resume
        capabilities = {key: True for key in ('receipts', 'denials') if getattr(self, 'takes_' + key)}
        if capabilities:
            params['capabilities'] = capabilities
        result = self.request('initialize', params)
        self.session_id = result['sessionId']
        self.info = result.get('environmentInfo')
        return result

    def handshake(self, resume=None):
        self.initialize(resume)
        self.send({'method': 'initialized', 'params': {}})
        return self

    # -- processes

    def start_params(self, process_id, argv, **more):
        params = {'processId': process_id, 'argv': argv, 'cwd': self.cwd or 'file:///',
                  'env': {'PATH': '/usr/local/bin:/usr/bin:/bin'}, 'tty': False}
        params.update(more)
        return {k: v for k, v in params.items() if v is not Ellipsis}

    def start(self, process_id, argv, **more):
        result = self.request('process/start', self.start_params(process_id, argv, **more))
        sandbox = more.get('sandbox')
        is_open = not isinstance(sandbox, dict) or sandbox['permissions'].get('type') == 'disabled'
        limits = result.pop('limits', None)
        if result != {'processId': process_id, 'sandboxType': 'none' if is_open else 'linuxSeccomp'} or (
                (limits is None) != (more.get('limits') is None)):
            raise AssertionError('start: %r' % (result,))
        self.process(process_id).limits = limits
        return self.process(process_id)

    def post_start(self, process_id, argv, **more):
        return self.post('process/start', self.start_params(process_id, argv, **more))

    def start_error(self, process_id, argv, **more):
        return self.error('process/start', self.start_params(process_id, argv, **more))

    def process(self, process_id):
        if process_id not in self.processes:
            self.processes[process_id] = Process(process_id, process_id in self.asked)
            self.processes[process_id].keep = self.keep_output
        return self.processes[process_id]

    def run(self, argv, process_id=None, **more):
        if process_id is None:
            self.ids += 1
            process_id = 'run-%d' % self.ids
        self.start(process_id, argv, **more)
        return self.wait_closed(process_id)

    def sh(self, script, process_id=None, **more):
        return self.run(['/bin/sh', '-c', script], process_id, **more)

    def wait_closed(self, process_id, timeout=None):
        self.wait_for(lambda: self.process(process_id).closed, 'closed of ' + process_id, timeout)
        return self.processes[process_id]

    def wait_exited(self, process_id, timeout=None):
        self.wait_for(lambda: self.process(process_id).exited, 'exited of ' + process_id, timeout)
        return self.processes[process_id]

    def wait_output(self, process_id, text, stream=None, timeout=None):
        """Waits until the output of a process contains text; returns it as one string."""
        needle = text if isinstance(text, bytes) else text.encode()

        def there():
            process = self.process(process_id)
            for name, data in process.streams.items():
                if stream in (None, name) and needle in data:
                    return bytes(data)
            if process.closed:
                raise AssertionError('closed without %r: %r' % (text, process.streams))
            return None
        return self.wait_for(there, '%r from %s' % (text, process_id), timeout).decode('utf-8', 'replace')

    def wait_line(self, process_id, timeout=None):
        """The first line of a process's output."""
        return self.wait_output(process_id, '\n', timeout=timeout).split('\n')[0].strip()

    def read(self, process_id, timeout=None, **params):
        return self.request('process/read', dict(params, processId=process_id), timeout)

    def post_read(self, process_id, **params):
        return self.post('process/read', dict(params, processId=process_id))

    def post_write(self, process_id, data, write_id=None):
        if write_id is None:
            self.write_ids += 1
            write_id = 'w%d' % self.write_ids
        return self.post('process/write', {'processId': process_id, 'chunk': b64(data), 'writeId': write_id})

    def write(self, process_id, data, write_id=None):
        return self.result(self.post_write(process_id, data, write_id))['status']

    def terminate(self, process_id):
        return self.request('process/terminate', {'processId': process_id})['running']

    def signal(self, process_id, name='interrupt'):
        return self.request('process/signal', {'processId': process_id, 'signal': name})

    # -- end

    def close(self):
        self.transport.close()

    def abort(self):
        self.channel.abort()


def _key(request_id):
    return (type(request_id).__name__, request_id)


def _no_duplicates(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise AssertionError('duplicate keys from the server: %r' % (pairs,))
    return out


def read_all(client, process_id, after=0, max_bytes=None):
    """Pages through everything retained, as a client should; returns the chunks and the last reply."""
    chunks = []
    while True:
        params = {'afterSeq': after, 'waitMs': 60000}
        if max_bytes is not None:
            params['maxBytes'] = max_bytes
        page = client.read(process_id, **params)
        chunks += page['chunks']
        after = page['nextSeq'] - 1
        if page['closed'] and not page['chunks']:
            return chunks, page
