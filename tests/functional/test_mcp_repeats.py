# SPDX-License-Identifier: Apache-2.0
"""Calls that come twice, many at once, that last for long, and whose host is no more."""

import json
import os
import signal
import subprocess
import time
import uuid

import mcp
import server
import tap
import wire
from wire import wait_until

LONG = {'yield_time_ms': 30000}
BRIEF = {'yield_time_ms': 250}
STUBBORN = 'trap "" TERM INT HUP; echo ready; while :; do sleep 1; done'


def python(program, *args):
    return (server.PYTHON, '-uc', program, *map(str, args))


class Repeats(mcp.Calls):
    COUNT = ['sh', '-c', 'echo started >> count; echo out; exec sleep 600']

    def starts(self, name='count'):
        try:
            return self.file(name).count('\n')
        except FileNotFoundError:
            return 0

    def test_key(self):
        session = self.host.exec(*self.COUNT, key='k', until={'pattern': 'out'}, **LONG)['session_id']
        soon = {'until': {'quiet_ms': 1}}
        self.expect(self.host.exec(*self.COUNT, key='k', **soon), session_id=session, output='')
        self.refuse(self.host.exec('echo', 'another', key='k', **soon), 'the key `k` belongs to an earlier call with another command')
        self.refuse(self.host.exec(*self.COUNT, key='k', workdir='/', **soon), 'the key `k` belongs to an earlier call')
        self.assertEqual(self.starts(), 1)
        other = self.host.exec(*self.COUNT, key='K', **BRIEF)['session_id']
        self.assertNotEqual(other, session)
        wait_until(lambda: self.starts() == 2, 'the second start')

    def test_key_of_what_has_ended(self):
        argv = ['sh', '-c', 'echo started >> count; echo out; exit 3']
        first = self.expect(self.host.exec(*argv, key='k'), exit_code=3, output='out\n')
        for _ in range(3):
            r = self.expect(self.host.exec(*argv, key='k'), exit_code=3, output='out\n', state='exited', end_reason='exit')
            self.assertEqual(r['next_byte'], first['next_byte'])
        self.assertEqual(self.starts(), 1)

    def test_key_of_what_could_not_start(self):
        """Nothing was started: the next call may."""
        self.refuse(self.host.exec('true', workdir='later', key='k'), 'exec_command failed')
        os.mkdir(os.path.join(self.work, 'later'))
        self.expect(self.host.exec('echo', 'x', workdir='later', key='k'), exit_code=0, output='x\n')

    def test_key_of_what_is_no_longer_kept(self):
        host = self.mcp('--set', 'exited_ttl_s=1')
        host.exec('sh', '-c', 'echo started >> count', key='k')
        wait_until(lambda: not host.sessions(), 'it to be forgotten')
        self.refuse(host.exec('sh', '-c', 'echo started >> count', key='k'), 'no longer kept')
        self.assertEqual(self.starts(), 1)

    def test_key_at_once(self):
        ids = [self.host.call_later('exec_command', {'argv': self.COUNT, 'key': 'k', 'until': {'quiet_ms': 500}, **LONG}) for _ in range(8)]
        results = [self.host.result(i) for i in ids]
        self.assertEqual(len({r['session_id'] for r in results}), 1)
        self.assertEqual(''.join(r['output'] for r in results), 'out\n')  # each byte in one answer
        self.assertEqual(self.starts(), 1)

    def test_key_at_once_of_what_ends(self):
        argv = ['sh', '-c', 'echo started >> count; sleep 0.5; echo out; exit 3']
        ids = [self.host.call_later('exec_command', {'argv': argv, 'key': 'k'}) for _ in range(20)]
        results = [self.expect(self.host.result(i), exit_code=3, end_reason='exit') for i in ids]
        self.assertIn('out\n', [r['output'] for r in results])
        self.assertLessEqual({r['output'] for r in results}, {'', 'out\n'})  # another may have had it
        self.assertEqual(self.starts(), 1)

    def test_key_of_a_cancelled_call(self):
        i = self.host.call_later('exec_command', {'argv': self.COUNT, 'key': 'k', **LONG})
        wait_until(lambda: self.starts() == 1 and self.host.sessions(), 'the start')
        self.host.notify('notifications/cancelled', {'requestId': i})
        r = self.host.exec(*self.COUNT, key='k', until={'pattern': 'out'}, yield_time_ms=5000)
        self.assertIn(r['session_id'], self.host.sessions())
        self.assertEqual(self.starts(), 1)
        self.assertNotIn(json.dumps(i), self.host.answers)

    def test_key_of_a_call_that_is_cancelled_at_once(self):
        """However far it had come: one start at most, and the next call has it."""
        later = {}
        for n in range(10):
            arguments = {'argv': ['sh', '-c', 'echo started >> count%d; exec sleep 600' % n], 'key': 'k%d' % n, 'until': {'quiet_ms': 500}, **LONG}
            i = self.host.call_later('exec_command', arguments)
            later[n] = [self.host.call_later('exec_command', arguments) for _ in range(2)]
            if n % 2:
                self.host.pump(0.05 * n)
            self.host.notify('notifications/cancelled', {'requestId': i})
        for n, ids in later.items():
            sessions = {self.host.result(i)['session_id'] for i in ids}
            self.assertEqual(len(sessions), 1)
            wait_until(lambda: self.starts('count%d' % n) >= 1, 'the start')
            live = [s['session_id'] for s in self.host.sessions().values() if 'count%d;' % n in s['command'] and s['state'] != 'exited']
            self.assertEqual(live, list(sessions))

    def test_write_id(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        self.host.call('write_stdin', {'session_id': session, 'chars': 'once\n', 'write_id': 'w', 'until': {'pattern': 'once\\s+once'}, **LONG})
        r = self.host.type(session, 'once\n', write_id='w', until={'quiet_ms': 500})
        self.expect(r, output='', state='reading_terminal')
        r = self.host.type(session, 'other\n', write_id='w', until={'quiet_ms': 500})
        self.expect(r, output='')
        r = self.host.type(session, 'more\n', write_id='v', until={'pattern': 'more\\s+more'}, **LONG)
        self.assertIn('pattern', r['woken_by'])
        another = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        r = self.host.type(another, 'once\n', write_id='w', until={'pattern': 'once\\s+once'}, **LONG)
        self.assertIn('pattern', r['woken_by'])
        for wrong in ('', 'w' * 257):
            self.refuse(self.host.type(session, 'x', write_id=wrong), '`write_id` has 1 to 256 bytes')

    def test_write_id_at_once(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        ids = [self.host.call_later('write_stdin', {'session_id': session, 'chars': 'x%d\n' % (n % 5), 'write_id': 'w%d' % (n % 5),
                                                    'until': {'quiet_ms': 300}, 'yield_time_ms': 20000}) for n in range(25)]
        for i in ids:
            self.assertFalse(self.host.result(i).failed)
        output = self.host.read(session)['output'].replace('\r', '')
        self.assertEqual(sorted(output.split()), sorted(['x%d' % n for n in range(5)] * 2))  # as typed, and as cat says it

    def test_write_id_of_what_was_not_typed(self):
        session = self.host.exec('sleep', '600', **BRIEF)['session_id']
        for _ in range(2):
            self.refuse(self.host.type(session, 'x', write_id='w'), 'stdin is closed')


class Many(mcp.Calls):
    env = mcp.PATCHES

    def test_a_hundred_calls(self):
        for script in ('echo %d', 'sleep 1; echo %d; exit 3', 'seq %d 20000 | tail -1; echo %d >&2'):
            with self.subTest(script):
                word = {n: script.replace('%d', str(n)) for n in range(100)}
                ids = {n: self.host.call_later('exec_command', {'argv': ['sh', '-c', word[n]], **LONG}) for n in word}
                for n, i in reversed(ids.items()):
                    r = self.host.result(i, timeout=3 * wire.DEADLINE)
                    self.assertFalse(r.failed, r)
                    self.assertIn('exit_code', r.structured, r)
                    self.assertEqual(r['output'].split()[-1] if '20000' not in script else str(n), str(n), r)
                    self.assertEqual(r['exit_code'], 3 if 'exit 3' in script else 0)

    def test_a_hundred_of_all_kinds(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        asked = {}
        for n in range(100):
            tool, arguments = (('exec_command', {'argv': ['echo', str(n)]}),
                               ('read_output', {'session_id': session}),
                               ('list_sessions', {}),
                               ('explain_denial', {'path': '/usr/%d' % n}),
                               ('apply_patch', {'input': '*** Begin Patch\n*** Add File: f%d\n+%d\n*** End Patch\n' % (n, n)}),
                               ('resize_session', {'session_id': session, 'rows': n + 1, 'cols': 80}),
                               ('write_stdin', {'session_id': session, 'chars': '%d\n' % n}),
                               ('signal_session', {'session_id': session, 'signal': 'WINCH'}))[n % 8]
            asked[self.host.call_later(tool, arguments)] = (n, tool)
        for i, (n, tool) in asked.items():
            r = self.host.result(i, timeout=3 * wire.DEADLINE)
            self.assertFalse(r.failed, (n, tool, r))
            if tool == 'exec_command':
                self.expect(r, exit_code=0, output='%d\n' % n)
            elif tool == 'explain_denial':
                self.assertEqual(r['denials'][0]['target'], '/usr/%d' % n)
            elif tool == 'apply_patch':
                self.assertEqual(self.file('f%d' % n), '%d\n' % n)
        self.assertEqual(self.host.answers, {})
        typed = [str(n) for n in range(100) if n % 8 == 6]
        wait_until(lambda: sorted(self.host.read(session)['output'].split()) == sorted(typed * 2), 'everything typed, and echoed')

    def test_sixty_four_sessions(self):
        """The one that nobody has used for longest goes; a call that waits keeps its own."""
        first = self.host.exec('sh', '-c', 'echo first; exec sleep 600', until={'pattern': 'first'}, **LONG)['session_id']
        second = self.host.exec('sleep', '600', **BRIEF)['session_id']
        ids = []
        for _ in range(62):
            ids.append(self.host.exec('sleep', '600', until={'quiet_ms': 1}, **BRIEF)['session_id'])
        self.host.glance(first)
        self.assertEqual(sum(s['state'] != 'exited' for s in self.host.sessions().values()), 64)
        last = self.host.exec('sleep', '600', until={'quiet_ms': 1}, **BRIEF)['session_id']
        wait_until(lambda: sum(s['state'] != 'exited' for s in self.host.sessions().values()) == 64, 'one to go')
        sessions = self.host.sessions()
        self.assertNotEqual(sessions[first]['state'], 'exited')
        self.assertNotEqual(sessions[last]['state'], 'exited')
        self.assertTrue(second not in sessions or sessions[second]['state'] == 'exited', sessions.get(second))
        self.refuse(self.host.type(second), 'Unknown process id %d' % second)

    def test_notify_at(self):
        host = self.mcp('--set', 'notify_at=2')
        self.assertEqual(len(host.exec('sleep', '600', **BRIEF).content), 1)
        r = host.exec('sleep', '600', **BRIEF)
        self.assertEqual(len(r.content), 2, r)
        self.assertEqual(r.content[1]['text'], 'The maximum number of unified exec processes you can keep open is 2 and you currently have 2 '
                         'processes open. Reuse older processes or close them to prevent automatic pruning of old processes')

    def test_idle_ttl(self):
        host = self.mcp('--set', 'idle_ttl_s=1')
        used = host.exec('sleep', '600', **BRIEF)['session_id']
        idle = host.exec('sleep', '600', **BRIEF)['session_id']
        began = time.monotonic()
        waits = host.call_later('write_stdin', {'session_id': used, 'yield_time_ms': 5000})  # in use all the time
        wait_until(lambda: host.sessions()[idle]['state'] == 'exited', 'the idle one to end')
        self.assertFalse(time.monotonic() - began < 0.7)
        self.assertIn('session_id', host.result(waits).structured)
        r = host.type(idle)
        self.expect(r, state='exited', end_reason='idle_ttl')


class Time(mcp.Calls):
    """A host cuts a call after a minute; most send no progress token. All of it at once, to take a minute once."""

    def begin(self):
        """Calls without a token, each with its host, its id, when it began and its session."""
        held = {}
        legacy = self.mcp()
        legacy.open()
        for host, name in ((self.host, 'modern'), (legacy, 'legacy')):
            session = host.exec('sh', '-c', 'echo ready; exec sleep 120', until={'pattern': 'ready'}, **LONG)['session_id']
            for n in range(2):  # the second waits for the first
                later = host.call_later('write_stdin', {'session_id': session, 'yield_time_ms': 300000})
                held[name, n] = (host, later, time.monotonic(), session)
        for n in range(3):
            later = self.host.call_later('exec_command', {'argv': ['sleep', '120'], 'key': 'k', **LONG})
            held['key', n] = (self.host, later, time.monotonic(), None)
        return held

    def test_a_minute(self):
        held = self.begin()
        told = self.host.exec('sh', '-c', 'echo ready; sleep 54; echo over', until={'pattern': 'ready'}, **LONG)['session_id']
        token = self.host.call_later('write_stdin', {'session_id': told, 'yield_time_ms': 300000}, progress='t')
        hosts = {h for h, _, _, _ in held.values()}
        began, spent, heard = time.monotonic(), {}, []
        while time.monotonic() - began < 75 * wire.SCALE and (len(spent) < len(held) or json.dumps(token) not in self.host.answers):
            for host in hosts:
                host.pump(0.05)
            for name, (host, i, since, _) in held.items():
                if name not in spent and json.dumps(i) in host.answers:
                    spent[name] = time.monotonic() - since
            while self.host.notifications:
                m = self.host.notifications.pop(0)
                self.assertEqual(m['method'], 'notifications/progress')
                heard.append((time.monotonic() - began, m['params']))
        self.assertEqual(sorted(spent), sorted(held))
        for name, (host, i, _, session) in held.items():
            self.assertLess(spent[name], 50 + 5 * (wire.SCALE > 1), spent)
            r = host.result(i)
            self.assertFalse(r.failed, r)
            self.assertEqual(r['session_id'], session or r['session_id'])
            self.assertEqual(r['state'], 'sleeping')
            self.assertEqual('\nAnswered early: ' in r.text, 'early' in r.structured, r)
            if name[0] != 'key':  # 300 s were asked for
                self.assertIn('no progress token', r['early'])
        self.assertGreater(spent['modern', 0], 40)  # it does wait
        self.expect(self.host.result(token), exit_code=0, output='over\n')
        self.check_progress(heard)

    def check_progress(self, heard):
        self.assertEqual({p['progressToken'] for _, p in heard}, {'t'})
        self.assertLess(heard[0][0], 10 * wire.SCALE)  # at once
        self.assertTrue(4 <= len(heard) <= 6, heard)  # then every 15 s
        numbers = [p['progress'] for _, p in heard]
        self.assertEqual(numbers, sorted(set(numbers)), heard)
        for _, p in heard:
            self.assertIsInstance(p['message'], str)
        self.assertTrue(all(b[0] - a[0] > 10 for a, b in zip(heard, heard[1:])), heard)


class Hosts(mcp.Case):
    """A host that is no more."""

    def fill(self, host):
        """Sessions that do not end by themselves, and the word by which they are known."""
        word = '600.%d' % int(uuid.uuid4().int % 1000000)
        host.exec('sleep', word, **BRIEF)
        host.exec('sh', '-c', STUBBORN + ' & sleep ' + word, **BRIEF)
        host.exec('sh', '-c', 'trap "" HUP TERM; sleep %s; :' % word, tty=True, **BRIEF)
        host.exec('sh', '-c', 'setsid env -i sleep %s >/dev/null 2>&1 &' % word)
        host.exec(*python('import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n'
                          '        os.execvp("sleep", ["sleep", sys.argv[1]])\n    os._exit(0)\nos.wait()\n', word))
        wait_until(lambda: len(mcp.with_word(word)) >= 5, 'all of them to be there')
        return word

    def test_its_end_closed(self):
        host = self.mcp()
        word = self.fill(host)
        host.call_later('exec_command', {'argv': ['sleep', word], **LONG})
        host.close()
        self.assertEqual(host.process.wait(wire.DEADLINE), 0)
        wait_until(lambda: not mcp.with_word(word), 'nothing to be left')

    def test_its_process_killed(self):
        """Nobody says good bye: the kernel closes the host's ends of the pipes."""
        program = ('import subprocess, sys, time\np = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n'
                   'p.stdin.write(sys.argv[1].encode() + b"\\n")\np.stdin.flush()\nprint(p.stdout.readline().decode(), flush=True)\n'
                   'time.sleep(600)')
        word = '600.%d' % int(uuid.uuid4().int % 1000000)
        call = {'jsonrpc': '2.0', 'id': 1, 'method': 'tools/call', 'params': {
            'name': 'exec_command', '_meta': mcp.meta(),
            'arguments': {'argv': ['sh', '-c', 'trap "" HUP TERM PIPE; sleep %s; :' % word], **BRIEF}}}
        host = subprocess.Popen([*python(program), json.dumps(call), *server.PREFIX, server.PROGRAM, 'mcp'], cwd=self.work,
                                env=self.environ(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            self.assertIn('session_id', mcp.Result(json.loads(host.stdout.readline())).structured)
            wait_until(lambda: mcp.with_word(word), 'it to be there')
            host.kill()
            host.wait()
            wait_until(lambda: not mcp.with_word(word), 'nothing to be left')
            wait_until(lambda: not server.marked(self.mark.encode()), 'nothing to be left behind')
        finally:
            host.kill()
            host.wait()
            host.stdout.close()

    def test_the_server_killed(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                p = subprocess.Popen([*server.PREFIX, server.PROGRAM, 'mcp'], cwd=self.work, env=self.environ(),
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                host = mcp.Lines(os.dup(p.stdout.fileno()), os.dup(p.stdin.fileno()))
                try:
                    word = self.fill(host)
                    p.send_signal(number)
                    p.wait(wire.DEADLINE)
                    wait_until(lambda: not mcp.with_word(word), 'nothing to be left')
                    wait_until(lambda: not server.marked(self.mark.encode()), 'nothing to be left behind')
                finally:
                    p.kill()
                    p.wait()
                    host.close()
                    p.stdin.close()
                    p.stdout.close()

    def test_a_host_that_does_not_read(self):
        """More answers than a pipe holds, then the end: it leaves all the same."""
        host = self.mcp()
        for n in range(100):
            host.call_later('exec_command', {'argv': ['seq', '1', '3000']})
        time.sleep(1)
        host.close()
        self.assertEqual(host.process.wait(wire.DEADLINE), 0)


if __name__ == '__main__':
    tap.main()
