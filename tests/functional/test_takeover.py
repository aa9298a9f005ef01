# SPDX-License-Identifier: Apache-2.0
"""The front is killed: another one takes over its sessions and processes. `serve --keeper`."""

import hashlib
import os
import signal
import time

import tap
import wire
from server import Case, descendants

PATTERN = ('i=0; while [ $i -lt %d ]; do printf "%%07d\\n" $i; i=$((i+1)); done')


class TakeoverCase(Case):
    def keeper(self, *args, **how):
        return self.server('--keeper', *args, **how)

    def kill_front(self, server):
        """Ends the front, and waits for the next one."""
        old = server.front
        os.kill(old, signal.SIGKILL)
        wire.wait_until(lambda: server.front not in (None, old), 'another front')

    def everything(self, client, process_id, after=0):
        """All chunks of a process that has closed, by process/read."""
        data = {}
        while True:
            got = client.read(process_id, afterSeq=after, waitMs=1000)
            for chunk in got['chunks']:
                self.assertGreater(chunk['seq'], after)
                after = chunk['seq']
                data.setdefault(chunk['stream'], bytearray()).extend(wire.unb64(chunk['chunk']))
            if got['closed'] and not got['chunks']:
                return got, {k: bytes(v) for k, v in data.items()}


class Processes(TakeoverCase):
    def test_a_running_command_goes_on(self):
        server = self.keeper()
        client = server.session()
        client.start('cat', ['cat'], pipeStdin=True)
        client.write('cat', b'before\n')
        client.wait_output('cat', 'before\n')
        self.kill_front(server)
        client.abort()
        again = server.session(client.session_id)
        again.process('cat')
        self.assertEqual(again.write('cat', b'after\n', 'one'), 'accepted')
        self.assertEqual(again.write('cat', b'after\n', 'one'), 'accepted')
        again.request('process/closeStdin', {'processId': 'cat'})
        got, data = self.everything(again, 'cat')
        self.assertEqual(data, {'stdout': b'before\nafter\n'})
        self.assertEqual(got['exitCode'], 0)

    def test_what_ends_meanwhile_is_told(self):
        server = self.keeper()
        client = server.session()
        client.start('p', ['sh', '-c', 'read line; echo $line; exit 7'], pipeStdin=True)
        client.start('done', ['sh', '-c', 'echo done; exit 3'])
        client.wait_closed('done')
        client.write('p', b'x\n')
        self.kill_front(server)
        client.abort()
        again = server.session(client.session_id)
        for name, text, code in (('p', b'x\n', 7), ('done', b'done\n', 3)):
            got, data = self.everything(again, name)
            self.assertEqual((data['stdout'], got['exitCode']), (text, code))

    def test_ended_processes_and_the_history(self):
        """Ended processes keep their numbers and output through three fronts, and the history goes on."""
        server = self.keeper()
        client = server.session()
        for i in range(5):
            client.start('p%d' % i, ['sh', '-c', 'echo out%d; echo err%d >&2; exit %d' % (i, i, i)])
            client.wait_closed('p%d' % i)
        other = server.session()
        other.start('gone', ['sh', '-c', 'echo gone'])
        other.wait_closed('gone')
        other.request('session/end', {})
        before = [client.read('p%d' % i) for i in range(5)]
        for _ in range(3):
            self.kill_front(server)
            client.abort()
            client = server.session(client.session_id)
            self.assertEqual([client.read('p%d' % i) for i in range(5)], before)
            self.assertEqual([e['processId'] for e in client.request('history/list', {})['entries']], ['gone'])
            self.assertIn('p3', client.start_error('p3', ['true'])['message'])

    def test_input_is_written_once(self):
        """Fronts die with writes under way; the client repeats those that were not answered."""
        server = self.keeper()
        client = server.session()
        client.start('sum', ['sh', '-c', 'sleep 0.3; exec sha256sum'], pipeStdin=True)
        pieces = [bytes([i]) * (50 + i * i * 3) for i in range(120)]
        posts = {}
        done = 0
        while done < len(pieces):
            for i in range(done, min(done + 30, len(pieces))):
                posts[i] = client.post_write('sum', pieces[i], 'w%d' % i)
            stop = min(done + 20, len(pieces))
            while done < stop:
                self.assertEqual(client.result(posts[done]), {'status': 'accepted'})
                done += 1
            self.kill_front(server)
            client.abort()
            client = server.session(client.session_id)
        client.request('process/closeStdin', {'processId': 'sum'})
        self.kill_front(server)
        client.abort()
        client = server.session(client.session_id)
        got, data = self.everything(client, 'sum')
        self.assertEqual(data['stdout'].split()[0].decode(), hashlib.sha256(b''.join(pieces)).hexdigest())
        self.assertEqual(got['exitCode'], 0)

    def test_a_terminal(self):
        server = self.keeper()
        client = server.session()
        client.start('t', ['sh', '-c', 'stty raw -echo; echo ready; dd bs=1 count=6 2>/dev/null; stty size'], tty=True,
                     size={'rows': 30, 'cols': 90})
        client.wait_output('t', 'ready')
        client.write('t', b'abc')
        client.wait_output('t', 'abc')
        self.kill_front(server)
        client.abort()
        again = server.session(client.session_id)
        again.request('process/resize', {'processId': 't', 'rows': 40, 'cols': 100})
        again.write('t', b'def', 'other')
        got, data = self.everything(again, 't')
        self.assertIn(b'abcdef', data['pty'])
        self.assertIn(b'40 100', data['pty'])
        self.assertEqual(got['exitCode'], 0)

    def test_three_times_in_a_row(self):
        server = self.keeper()
        client = server.session()
        client.start('p', ['sh', '-c', 'read a; read b; read c; echo $a $b $c'], pipeStdin=True)
        for i, word in enumerate((b'one\n', b'two\n', b'three\n')):
            client.process('p')
            client.write('p', word, 'w%d' % i)
            session = client.session_id
            self.kill_front(server)
            client.abort()
            client = server.session(session)
        got, data = self.everything(client, 'p')
        self.assertEqual(data['stdout'], b'one two three\n')

    def test_terminate_and_names(self):
        server = self.keeper()
        client = server.session()
        client.start('p', ['sleep', '1000'])
        self.kill_front(server)
        client.abort()
        again = server.session(client.session_id)
        again.process('p')
        self.assertIn('already exists', again.error('process/start', again.start_params('p', ['true']))['message'])
        self.assertTrue(again.terminate('p'))
        got, _ = self.everything(again, 'p')
        self.assertTrue(got['exited'])

    def test_a_detached_session_ends_in_time(self):
        server = self.keeper('--session-ttl', '1')
        client = server.session()
        client.start('p', ['sleep', '1000'])
        session = client.session_id
        client.abort()
        self.kill_front(server)
        began = time.monotonic()
        late = server.session()
        wire.wait_until(lambda: b'sleep\0001000' not in b''.join(self.commands(server)), 'the end of the session')
        # A front that was killed before it saw the end of the connection leaves an attached session, which has a whole
        # second; a detached one has five.
        self.assertGreater(time.monotonic() - began, 0.9)
        self.assertIn('unknown session', server.connect().error('initialize', {
            'clientName': 'x', 'resumeSessionId': session})['message'])
        late.close()

    def commands(self, server):
        for pid in descendants(server.pid):
            try:
                with open('/proc/%d/cmdline' % pid, 'rb') as f:
                    yield f.read()
            except OSError:
                pass


class Output(TakeoverCase):
    @tap.long
    def test_long_output(self):
        self.flood(200000)

    def test_output_goes_on_without_a_gap(self):
        self.flood(20000)

    def flood(self, lines):
        server = self.keeper()
        client = server.session()
        client.start('p', ['sh', '-c', PATTERN % lines])
        client.wait_output('p', '0000100\n')
        self.kill_front(server)
        # What the client had before its connection ended.
        try:
            while True:
                client.pump(0.2)
        except (wire.Closed, wire.Timeout, OSError):
            pass
        known = bytes(client.process('p').streams['stdout'])
        after = client.process('p').chunks[-1][0]
        client.abort()
        again = server.session(client.session_id)
        again.process('p').keep = False
        got, data = self.everything(again, 'p', after)
        self.assertEqual(known + data['stdout'], b''.join(b'%07d\n' % i for i in range(lines)))


if __name__ == '__main__':
    tap.main()
