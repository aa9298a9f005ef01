# SPDX-License-Identifier: Apache-2.0
"""Every recorded conversation of the reference about handshake, processes, environment, sandbox, files
and errors is held again with our server. What differs is in deviations.json, and nothing else may."""

import json
import os
import pwd
import re
import shutil
import tempfile

import tap
import web
from sandbox_policy import has_namespaces, outside_of_tmp
from server import HERE, MARK, PASS_ON, PEER, Case, Server, descendants, status_of
from wire import Closed, unb64, wait_until

TRANSCRIPTS = os.path.join(HERE, 'transcripts')
SHELLS = ('zsh', 'bash', 'sh', 'pwsh', 'powershell')

# The environment the recorder's server had where it matters.
ENV_35 = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': '/tmp/example/home', 'LANG': 'C.UTF-8',
          'USER': 'user', 'LOGNAME': 'user', 'SHELL': '/bin/bash', 'TMPDIR': '/tmp/example/tmp',
          'TERM': 'xterm', 'FOO': 'bar', 'MY_API_KEY': 'k', 'GITHUB_TOKEN': 't', 'DB_SECRET': 's',
          'MONKEY': 'm', 'NODE_REPL_AUTH_TOKEN': 'n', 'CODEX_HOME': '/tmp/example/home/.codex'}
ENV = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': '/tmp/example/home'}
ENV_33 = dict(ENV, TMPDIR='/tmp/example/tmp')

# Pauses in a recorded script decide where chunks end and what a short poll sees: a machine that
# stands still for longer than such a pause gets another try.
TRIES = {'05': 3, '13': 4, '14': 4, '17': 3, '48': 3}


# What was there when the recording began: below the working tree, or below the sandboxed workspace
# (names that begin with `srv/`). A text is a file, None a directory, `fifo` a FIFO, a tuple a link.
FIFO = object()
PIXEL = ('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC')
GROUND = {
    '21': {'a.txt': b'hello', 'link': ('a.txt',), 'dir': None, 'fifo': FIFO},
    '22': {'link': ('w.txt',), 'dir': None},
    '23': {'f': b''},
    '24': {'a.txt': b'hello', 'link': ('a.txt',), 'broken': ('nowhere',), 'fifo': FIFO},
    '25': {'dir name/sub': None, 'ln': ('dir name',)},
    '26': {'d/file': b'', 'd/fifo': FIFO, 'd/sub': None, 'd/lnk': ('sub',), 'd/broken': ('nowhere',)},
    '27': {'w/.hid/x': b'', 'w/a/b/g h': b'', 'w/a/f': b'', 'w/z.txt': b'', 'w/la': ('a',)},
    '28': {'d/e/f': b'', 'l': ('g',), 'g': b''},
    '29': {'a': b'x', 'd/e/f': b'', 'l': ('a',), 'fifo': FIFO},
    '30': {'a.bin': bytes(range(64))},
    '32': {'d/have': b''},
    '38': {'srv/a.txt': b'hello'},
    '40': {'cap/.codex-plugin/plugin.json': b'{"name": "demo", "mcpServers": "./mcp.json"}', 'cap/mcp.json': b'{}',
           'cap/skills/one/SKILL.md': b'---\nname: one\ndescription: d\n---\n', 'cap/skills/one/agents/openai.yaml': b'x: 1\n'},
    '50': {'srv/i.png': unb64(PIXEL)},
    '51': {'srv/i.png': unb64(PIXEL)},
}


# The port that the recorder's web server had.
RECORDED_WEB = {'42': 35209, '43': 38127}


class Mismatch(AssertionError):
    pass


def load(number):
    name = [n for n in sorted(os.listdir(TRANSCRIPTS)) if n.startswith(number + '-')][0]
    with open(os.path.join(TRANSCRIPTS, name)) as f:
        return [dict(json.loads(line), line=i + 1) for i, line in enumerate(f)]


def load_deviations():
    with open(os.path.join(HERE, 'deviations.json')) as f:
        return json.load(f)['deviations']


def process_of(message):
    return (message.get('params') or {}).get('processId') if 'method' in message else None


def settle_races(lines):
    """Output recorded between a request that ends or feeds a process and its reply was on its way
    before the request was sent. Wait for it first, so that the outcome is the recorded one."""
    out = list(lines)
    for line in lines:
        message = line.get('msg')
        if line['dir'] != 'send' or not message or message.get('method') not in (
                'process/write', 'process/terminate', 'process/read'):
            continue
        if message['method'] == 'process/read' and message['params'].get('waitMs'):
            continue
        process, moved, answered = process_of(message), [], False
        for later in out[out.index(line) + 1:]:
            other = later.get('msg') or {}
            if later['dir'] == 'recv' and other.get('id') == message['id']:
                answered = True
            if later['dir'] == 'recv' and process_of(other) == process:
                if other['method'] != 'process/output':
                    break
                moved.append(later)
            if answered and message['method'] != 'process/terminate':
                break
            if later['dir'] == 'send' and answered:
                break
        for later in moved:
            out.remove(later)
        at = out.index(line)
        out[at:at] = moved
    return out


def without(lines, methods):
    """The conversation without some of its methods, their answers and their notifications."""
    left_out, kept = set(), []
    for line in lines:
        message = line.get('msg') or {}
        if message.get('method', '').startswith(tuple(methods)):
            left_out.add((line['dir'], message.get('id')))
            continue
        asked = ('send' if line['dir'] == 'recv' else 'recv', message.get('id'))  # if it is an answer
        if 'method' in message or 'id' not in message or asked not in left_out:
            kept.append(line)
    return kept


class Replay:
    def __init__(self, case, number):
        self.case, self.number = case, number
        self.conns = {}
        self.sessions = {}   # recorded session id -> ours
        self.read_chunks = {}
        self.lines = settle_races(load(number))
        mine = [d for d in load_deviations() if d['transcript'] in (number, '*')]
        self.deviations = {d['line']: d for d in mine if 'line' in d and (not PEER or 'send' in d)}
        self.lines = without(self.lines, [method for d in mine for method in d.get('without', [])])
        self.info_deviations = {d['info']: d for d in mine if 'info' in d and not PEER}
        self.web = None
        if number in RECORDED_WEB:
            self.web = web.recorded()
            case.addCleanup(self.web.close)
        args = ['--concurrent-requests', '2'] if number == '48' else []
        env = {'35': ENV_35, '33': ENV_33}.get(number, ENV)
        self.server = self._server(args, env, 'stdio' if number == '49' else 'ws://127.0.0.1:0')
        self.recorded = {}   # process -> {'bytes': {stream: bytes}, 'chunks': n, 'env': bool}
        self.script = {}     # process -> argv
        self.expected = {}   # (conn, process, stream) -> bytes so far

    def _server(self, args, env, listen):
        case = self.case
        scratch = case.scratch()
        self.root = os.path.join(scratch, 'example')
        for name in ('home', 'tmp', 'home/.codex'):
            os.makedirs(os.path.join(self.root, name))
        self.srv = tempfile.mkdtemp(prefix='sallyport-test-', dir=outside_of_tmp())  # the sandboxed workspace is in it
        case.addCleanup(shutil.rmtree, self.srv, True)
        os.makedirs(os.path.join(self.srv, 'example', '.git'))
        self.make_ground()
        env = {k: self.there(v) for k, v in env.items()}
        if PEER:
            env.setdefault('CODEX_HOME', self.root + '/home/.codex')
        cwd = os.path.join(self.srv, 'example') if self.number in ('50', '51', '52') else self.root
        server = Server(*args, listen=listen, replace_env=env, cwd=cwd)
        case._servers.append(server)
        return server

    def make_ground(self):
        for name, what in GROUND.get(self.number, {}).items():
            base = os.path.join(self.srv, 'example') if name.startswith('srv/') else self.root
            path = os.path.join(base, name[4:] if name.startswith('srv/') else name)
            os.makedirs(path if what is None else os.path.dirname(path), exist_ok=True)
            if what is FIFO:
                os.mkfifo(path)
            elif isinstance(what, tuple):
                os.symlink(what[0], path)
            elif what is not None:
                with open(path, 'wb') as f:
                    f.write(what)

    # -- names

    def there(self, text):
        """From the recorder's machine to this one."""
        text = text.replace('/tmp/example', self.root).replace('/home/user/', '/srv/').replace('/srv/', self.srv + '/')
        for recorded, actual in self.sessions.items():
            text = text.replace(recorded, actual)
        if self.web:
            text = text.replace(':%d' % RECORDED_WEB[self.number], ':%d' % self.web.port)
        return text

    def message_there(self, message):
        return json.loads(self.there(json.dumps(message)))

    def env_lines(self, data):
        noise = (MARK.encode(),) + tuple(n.encode() for n in PASS_ON)
        lines = re.split(b'\r?\n', data)
        out = []
        for line in sorted(lines):
            if line.startswith(noise) or (PEER and line.startswith(b'CODEX_HOME')):
                continue
            if PEER and line.startswith(b'PATH='):
                line = b'PATH'
            if line.startswith(b'SHELL=') and self.number == '47':
                line = b'SHELL=' + pwd.getpwuid(os.getuid()).pw_shell.encode()
            out.append(line)
        return out

    # -- the conversation

    def conn(self, line):
        key = line.get('conn', 1)
        if key not in self.conns:
            self.conns[key] = self.server.lines() if self.number == '49' else self.server.connect()
        return key, self.conns[key]

    def run(self):
        for line in self.lines:
            key, client = self.conn(line)
            where = 'transcript %s line %d' % (self.number, line['line'])
            try:
                self.step(line, key, client)
            except (AssertionError, Closed) as e:
                raise Mismatch('%s: %s' % (where, e)) from e
        self.finish()

    def step(self, line, key, client):
        deviation = self.deviations.get(line['line'], {})
        if line['dir'] == 'send':
            self.send(line, client, deviation)
            return
        if line.get('closed'):
            client.wait_end()
            if client.replies:
                raise Mismatch('a reply before the end: %r' % client.replies)
            return
        if deviation.get('absent'):
            return
        message = line['msg']
        if message.get('method') == 'fs/missingChanged':
            self.missing_changed(message, client)
        elif message.get('method') == 'http/request/bodyDelta':
            self.body_delta(message, deviation, client)
        elif 'method' in message and 'instead' not in deviation:
            self.event(message, key, client, deviation)
        elif 'instead' in deviation:
            self.instead(message, deviation['instead'], key, client)
        else:
            self.reply(message, client)
        creates = re.match(r'client creates (.*)', line.get('note', ''))
        if creates:
            with open(self.there(creates.group(1)), 'x'):
                pass

    @staticmethod
    def missing_changed(message, client):
        client.wait_for(lambda: message in client.notes, 'fs/missingChanged')
        if client.notes.count(message) != 1:
            raise Mismatch('told more than once: %r' % (message,))

    def body_delta(self, message, deviation, client):
        """Bytes in order; where they are cut is the network's affair."""
        want = dict(message['params'], **deviation.get('params', {}))
        key = ('http', want['requestId'])
        so_far = self.expected.get(key, b'') + unb64(want['deltaBase64'])
        self.expected[key] = so_far

        def come():
            return [n['params'] for n in client.notes if n['method'] == message['method'] and
                    n['params']['requestId'] == want['requestId']]
        client.wait_for(lambda: len(b''.join(unb64(d['deltaBase64']) for d in come())) >= len(so_far) and
                        (not want['done'] or come()[-1]['done']), 'the body of %s' % want['requestId'])
        deltas = come()
        self.same([d['seq'] for d in deltas], list(range(1, len(deltas) + 1)), 'seq')
        self.same(sorted(deltas[0]), sorted(want), 'members')
        self.same(b''.join(unb64(d['deltaBase64']) for d in deltas)[:len(so_far)], so_far, 'body')
        if want['done']:
            self.same([d['done'] for d in deltas], [False] * (len(deltas) - 1) + [True], 'done')
            self.same((deltas[-1]['deltaBase64'], deltas[-1]['error']), ('', want['error']), 'the last delta')
            if 'params' in deviation and deltas[-1]['error'] == message['params']['error']:
                raise Mismatch('the deviation no longer occurs')

    def send(self, line, client, deviation):
        if line.get('closed'):
            if self.number == '49':
                self.close_stdin(client)
            else:
                client.close()
            return
        if 'raw' in line:
            if self.number == '49':
                client.channel.write(line['raw'].encode())
            else:
                client.send_raw(line['raw'])
            return
        message = self.message_there(deviation.get('send', line['msg']))
        if message.get('method') == 'process/start' and 'processId' in message['params']:
            client.asked.add(process_of(message))
            self.script[process_of(message)] = message['params'].get('argv')
        if message.get('method') == 'process/signal':
            self.wait_for_trap(process_of(message))
        client.send(message)

    def close_stdin(self, client):
        os.close(client.channel.wfd)
        client.channel.wfd = os.dup(client.channel.rfd)

    def wait_for_trap(self, process):
        """A script that sets a trap is given the time to set it."""
        argv = self.script.get(process) or []
        if not any('trap' in a for a in argv):
            return
        command = '\0'.join(argv).encode() + b'\0'

        def caught():
            for pid in descendants(self.server.pid):
                try:
                    with open('/proc/%d/cmdline' % pid, 'rb') as f:
                        if f.read() == command and int(status_of(pid)['SigCgt'], 16) & 2:
                            return True
                except (OSError, KeyError):
                    pass
            return not any(self.alive(client, process) for client in self.conns.values())
        wait_until(caught, 'trap of %s' % process)

    @staticmethod
    def alive(client, process):
        return process not in client.processes or not client.processes[process].exited

    # -- what must come

    def event(self, message, key, client, deviation):
        process, method, params = process_of(message), message['method'], message['params']
        state = client.process(process)
        loose = self.number == '15' or (self.number == '17' and key == 2)
        if method == 'process/output':
            if loose:
                return
            stream = params['stream']
            data = unb64(params['chunk'])
            data = deviation['output'].encode() if 'output' in deviation else data
            record = self.recorded.setdefault(process, {'chunks': 0})
            record['chunks'] += 1
            data = self.there(data.decode('utf-8')).encode()
            so_far = self.expected.get((key, process, stream), b'') + data
            self.expected[key, process, stream] = so_far
            if self.script.get(process) == ['/usr/bin/env']:
                return
            client.wait_for(lambda: len(state.streams[stream]) >= len(so_far) or state.closed,
                            '%r from %s' % (data, process))
            self.same(bytes(state.streams[stream][:len(so_far)]), so_far, 'output of ' + process)
            return
        if method == 'process/exited':
            client.wait_exited(process)
            self.same(state.exit_code, params['exitCode'], 'exit code of ' + process)
            note = [n for n in client.notes if n['method'] == method and process_of(n) == process][0]
            self.same(note['params']['sandboxDenied'], params['sandboxDenied'], 'sandboxDenied')
            if not PEER and not loose and self.number not in ('19',):
                before = sum(size for seq, _stream, size in state.chunks if seq < state.exit_seq)
                due = sum(len(v) for (k, p, _s), v in self.expected.items() if (k, p) == (key, process))
                if self.script.get(process) != ['/usr/bin/env']:
                    self.same(before, due, 'bytes before the exit of ' + process)
        else:
            client.wait_closed(process)
            last = max([state.exit_seq or 0] + [c[0] for c in state.chunks])
            self.same(state.close_seq, last + 1, 'closed comes last')
            for stream in state.streams:
                want = self.expected.get((key, process, stream), b'')
                if loose:
                    continue
                if self.script.get(process) == ['/usr/bin/env']:
                    self.same(self.env_lines(state.streams[stream]), self.env_lines(want), 'environment')
                else:
                    self.same(bytes(state.streams[stream]), want, '%s of %s' % (stream, process))
        record = self.recorded.get(process, {'chunks': 0})
        if not loose and record['chunks'] == len(state.chunks) and self.number != '19':
            actual = state.exit_seq if method == 'process/exited' else state.close_seq
            if not PEER:
                self.same(actual, params['seq'], 'seq of ' + method)

    def instead(self, recorded, instead, key, client):
        instead = self.message_there(instead)
        if 'method' in instead:
            process = process_of(instead)
            state = client.wait_exited(process)
            note = [n for n in client.notes if n['method'] == instead['method'] and process_of(n) == process][0]
            told = [(m['params']['exitCode'], m['params']['sandboxDenied']) for m in (note, recorded, instead)]
            if told[0] == told[1]:
                raise Mismatch('the deviation no longer occurs')
            self.same(told[0], told[2], 'exit code and sandboxDenied')
            return
        actual = client.reply(recorded['id'])
        try:
            self.compare_reply(actual, self.message_there(recorded))
        except AssertionError:
            self.compare_reply(actual, instead)
            return
        raise Mismatch('the deviation no longer occurs: %r' % (actual,))

    def reply(self, recorded, client):
        actual = client.reply(recorded['id'])
        if self.number == '48' and recorded['id'] == 104:
            early = [i for i in (101, 102, 103) if client.answered(i)]
            self.same(early, [], 'a long poll answered before the status')
        result = recorded.get('result')
        if isinstance(result, dict) and 'sessionId' in result and 'result' in actual:
            got = actual['result']
            known = self.sessions.get(result['sessionId'])
            if known:
                self.same(got['sessionId'], known, 'sessionId')
            elif not re.fullmatch(r'[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}',
                                  got['sessionId']):
                raise Mismatch('not a random UUID: %r' % got['sessionId'])
            self.sessions[result['sessionId']] = got['sessionId']
            self.same(sorted(got), sorted(result), 'members of the result')
            self.compare_info(got['environmentInfo'], result['environmentInfo'])
            return
        if isinstance(result, dict) and 'shell' in result:
            self.compare_info(actual['result'], result)
            return
        if isinstance(result, dict) and 'chunks' in result:
            self.compare_read(actual, recorded, client)
            return
        self.compare_reply(actual, self.message_there(recorded))

    def compare_reply(self, actual, want):
        self.same(sorted(actual), sorted(want), 'kind of reply (%r)' % (actual,))
        if 'result' in want:
            self.same(self.lasting(actual['result']), self.lasting(want['result']), 'result')
            return
        self.same(actual['error']['code'], want['error']['code'], 'code of %r' % (actual,))
        if want['error']['code'] == -32602:
            return  # decode errors: any clear text
        if want['id'] == -1:
            mark = re.match(r'(failed to parse .* from exec-server (?:stdio|websocket))( [0-9.:]+)?: ',
                            want['error']['message'])
            got = re.match(r'(failed to parse .* from exec-server (?:stdio|websocket))( [0-9.:]+)?: .',
                           actual['error']['message'])
            if not got:
                raise Mismatch('text of %r' % (actual,))
            self.same(got.group(1), mark.group(1), 'text')
            if got.group(2):
                self.same(got.group(2).strip(), self.conns[1].channel.local, 'the peer in the text')
            return
        self.same(actual['error']['message'], want['error']['message'], 'text')

    @staticmethod
    def lasting(result):
        """A result without what is this machine's: times, sizes of directories, the order of names."""
        if isinstance(result, dict) and 'modifiedAtMs' in result:
            times = [result['createdAtMs'], result['modifiedAtMs']]
            if any(not isinstance(t, int) or t < 0 for t in times):
                raise Mismatch('times %r' % times)
            result = dict(result, createdAtMs=0, modifiedAtMs=0, size=None if result['isDirectory'] else result['size'])
        if isinstance(result, dict) and 'hostname' in result:
            result = dict(result, hostname=type(result['hostname']).__name__)
        if isinstance(result, dict) and list(result) == ['entries']:
            result = {'entries': sorted(result['entries'], key=lambda e: e['fileName'])}
        return result

    def compare_info(self, got, want):
        for name in ('shell', 'cwd', 'capabilities'):
            if name not in got:
                raise Mismatch('environmentInfo has no ' + name)
        shell = pwd.getpwuid(os.getuid()).pw_shell
        if os.path.basename(shell) in SHELLS and os.path.exists(shell):
            self.same(got['shell'], {'name': os.path.basename(shell), 'path': shell}, 'shell')
        for name in ('cwd', 'userHomeDir', 'platformOs', 'temporaryDirectories', 'tempDir'):
            value = json.loads(self.there(json.dumps(want[name])))
            self.same(got.get(name), value, 'environmentInfo.' + name)
        if not isinstance(got.get('executorVersion'), str):
            raise Mismatch('executorVersion %r' % got.get('executorVersion'))
        if got.get('providerId') is not None and not re.fullmatch('sha256:[0-9a-f]{64}', got['providerId']):
            raise Mismatch('providerId %r' % got['providerId'])
        for uri in got.get('prependPathDirs') or []:
            if not uri.startswith('file:///'):
                raise Mismatch('prependPathDirs %r' % uri)
        flags = got['capabilities']
        if any(not isinstance(v, bool) for v in flags.values()):
            raise Mismatch('capabilities %r' % flags)
        deviation = self.info_deviations.get('capabilities')
        if deviation:
            self.same([n for n in deviation['true'] if flags.get(n) is not True], [], 'not advertised')
            self.same([n for n in deviation['not_true'] if flags.get(n)], [], 'advertised')
        else:
            self.same(flags, want['capabilities'], 'capabilities')

    def compare_read(self, actual, recorded, client):
        if 'result' not in actual:
            raise Mismatch('%r' % (actual,))
        got, want = actual['result'], recorded['result']
        self.same(sorted(got), sorted(want), 'members of process/read')
        process = 'p1'
        state = client.process(process)
        seqs = [c['seq'] for c in got['chunks']]
        self.same(seqs, list(range(seqs[0], seqs[0] + len(seqs))) if seqs else [], 'chunks in order')
        if self.number == '15':
            self.compare_retained(got, recorded['id'], state)
            return
        self.read_chunks.update({c['seq']: c for c in got['chunks']})
        for name in ('exited', 'exitCode', 'failure', 'sandboxDenied'):
            if self.number != '17':
                self.same(got[name], want[name], name)
        closed_since = got['closed'] and not want['closed'] and want['exited']
        if self.number == '17':
            return
        if not closed_since:
            self.same(got['closed'], want['closed'], 'closed')
        self.same(self.joined(got['chunks']), self.joined(want['chunks']), 'chunks')
        if len(got['chunks']) == len(want['chunks']):
            self.same(seqs, [c['seq'] for c in want['chunks']], 'seqs')
            allowed = [want['nextSeq'] + (1 if closed_since else 0)]
            if closed_since:
                allowed.append(want['nextSeq'])  # the page ends at its last chunk
            if got['nextSeq'] not in allowed:
                raise Mismatch('nextSeq %r, recorded %r' % (got['nextSeq'], want['nextSeq']))

    @staticmethod
    def joined(chunks):
        out = {}
        for c in chunks:
            out[c['stream']] = out.get(c['stream'], b'') + unb64(c['chunk'])
        return out

    def compare_retained(self, got, request, state):
        """Eviction by the rule of 5.4, on the chunks this server made."""
        sizes = {seq: size for seq, _stream, size in state.chunks}
        self.same(sum(sizes.values()), 3000000, 'bytes pushed')
        kept, total = [], 0
        for seq in sorted(sizes, reverse=True):
            if total + sizes[seq] > 1048576:
                break
            kept.insert(0, seq)
            total += sizes[seq]
        if kept[0] <= 2:
            raise Mismatch('nothing was evicted')
        if request == 3:
            page, total = [], 0
            for seq in kept:
                if page and total + sizes[seq] > 20000:
                    break
                page.append(seq)
                total += sizes[seq]
                if total >= 20000:
                    break
            self.same(got['nextSeq'], page[-1] + 1, 'nextSeq')
            kept = page
        else:
            self.same(got['nextSeq'], state.close_seq + 1, 'nextSeq')
        self.same([c['seq'] for c in got['chunks']], kept, 'retained')
        data = self.joined(got['chunks'])
        self.same(data, {'stdout': b'a' * sum(sizes[s] for s in kept)}, 'retained bytes')
        self.same((got['exited'], got['exitCode'], got['closed']), (True, 0, True), 'state')

    def finish(self):
        if self.number == '17':
            union = {seq: unb64(c['chunk']) for seq, c in self.read_chunks.items()}
            for client in self.conns.values():
                for note in client.notes:
                    if note['method'] == 'process/output':
                        data, seq = unb64(note['params']['chunk']), note['params']['seq']
                        self.same(union.setdefault(seq, data), data, 'push and pull of %d' % seq)
            self.same(sorted(union), list(range(1, len(union) + 1)), 'no number is missing')
            self.same(b''.join(union[k] for k in sorted(union)),
                      b''.join(b'tick%d\n' % i for i in range(6)), 'the whole output')
            self.same(self.conns[2].processes['p1'].exit_seq, len(union) + 1, 'seq of exited')
        for client in self.conns.values():
            self.same(client.replies, {}, 'replies nobody recorded')
        for line in self.lines:
            if self.deviations.get(line['line'], {}).get('absent'):
                process = process_of(line['msg'])
                for client in self.conns.values():
                    if any(process_of(n) == process if process else n == line['msg'] for n in client.notes):
                        raise Mismatch('line %d: the deviation no longer occurs' % line['line'])
        if self.number == '49':
            self.server.stop(how=None)
        else:
            self.server.stop()

    def same(self, actual, want, what):
        if actual != want:
            raise Mismatch('%s: %r, recorded %r' % (what, actual, want))


class Transcripts(Case):
    def replay(self, number):
        if number in ('36', '37', '38', '50', '52') and not has_namespaces():
            self.skipTest('this host gives uid %d no namespaces' % os.getuid())
        tries = TRIES.get(number, 1)
        for attempt in range(tries):
            replay = Replay(self, number)
            try:
                replay.run()
                return
            except Mismatch:
                replay.server.stop()
                if attempt + 1 == tries:
                    raise
            except BaseException:
                replay.server.kill()
                raise

    def test_every_deviation_names_a_recorded_line_and_a_reason(self):
        for d in load_deviations():
            self.assertTrue(d['reason'] and d['does'], d)
            if 'line' in d:
                line = load(d['transcript'])[d['line'] - 1]
                self.assertEqual(line['dir'], 'send' if 'send' in d else 'recv', d)


def _add(name):
    number = name[:2]

    def test(self):
        self.replay(number)
    setattr(Transcripts, 'test_%s_holds' % name[:-len('.jsonl')].replace('-', '_'), test)


for _name in sorted(os.listdir(TRANSCRIPTS)):
    if _name.endswith('.jsonl'):
        _add(_name)

if __name__ == '__main__':
    tap.main()
