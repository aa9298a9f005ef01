# SPDX-License-Identifier: Apache-2.0
"""The front is killed at each stop of a script: at the entry and at the exit of each of its system calls."""

import hashlib
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'functional'))

import tap
import wire
from kills import FLOOD, Checked, pattern
from server import PROGRAM, PYTHON, Case, ours_only
from survivor import Survivor

KILLAT = os.environ.get('KILLAT') or os.path.join(os.path.dirname(PROGRAM), 'tests', 'survival', 'killat')
STEP = int(os.environ.get('SWEEP_STEP') or 11)  # of the short form


class Tracer:
    """killat, at work on a process."""

    def __init__(self, pid, k, is_next=False):
        self.killat = subprocess.Popen([KILLAT, *(['--next'] if is_next else []), str(pid), str(k)], stdout=subprocess.PIPE)
        if self.killat.stdout.readline() != b'ready\n':
            code = self.killat.wait()
            self.killat.stdout.close()
            if code == 77:
                raise unittest.SkipTest('tracing is not permitted here')
            raise AssertionError('killat: exit status %d' % code)

    def stop(self):
        """Its last line."""
        if self.killat.poll() is None:
            self.killat.send_signal(signal.SIGTERM)
        with self.killat.stdout:
            line = self.killat.stdout.read().decode().strip()
        self.killat.wait()
        return line


class Text:
    """A sink that keeps what comes."""

    def __init__(self):
        self.data = bytearray()

    def __call__(self, stream, data):
        self.data += data


@ours_only
class Sweeps(Case):
    def one(self, k, script, prepare=None, is_next=False):
        """False: the script has ended before the k-th stop."""
        srv = self.server('--keeper')
        client = Survivor(srv.address)
        state = prepare(client) if prepare is not None else None
        tracer = Tracer(srv.pid if is_next else srv.front, k, is_next)
        if is_next:
            os.kill(srv.front, signal.SIGKILL)
        told = 'killat was not stopped'
        try:
            script(client, state)
        except BaseException as e:
            raise AssertionError('at stop %d (%s): %r' % (k, tracer.stop(), e)) from e
        told = tracer.stop()
        client.transport.close()
        srv.stop()
        self._servers.remove(srv)
        return told.startswith('killed')

    def sweep(self, script, prepare=None, is_next=False):
        k = int(os.environ.get('SWEEP_FROM') or 1)
        while self.one(k, script, prepare, is_next):
            k += 1 if tap.IS_LONG else STEP
        sys.stdout.write('# the script ends before stop %d\n' % k)
        self.assertGreater(k, 1)

    # -- scripts

    def closed(self, client, name, text, code):
        story = client.stories[name]
        sink = story.sink
        client.closed(name)
        self.assertEqual((bytes(sink.data), story.exit_code), (text, code))

    def test_01_connect(self):
        def script(client, _):
            other = Survivor(client.address)
            other.drop()
        self.sweep(script)

    def test_02_a_start_on_pipes(self):
        def script(client, _):
            client.start('p', ['sh', '-c', 'echo out; exit 3'], Text())
            self.closed(client, 'p', b'out\n', 3)
        self.sweep(script)

    def test_03_a_start_on_a_terminal(self):
        def script(client, _):
            client.start('p', ['sh', '-c', 'stty raw; echo out; exit 3'], Text(), tty=True)
            self.closed(client, 'p', b'out\n', 3)
        self.sweep(script)

    def writes(self, *sizes):
        def script(client, sink):
            at = 0
            for n in sizes:
                client.write('in', pattern(at, n))
                at += n
            client.until(lambda: sink.at == at)
        return script

    def test_04_writes_to_a_pipe(self):
        def prepare(client):
            sink = Checked('pipe')
            client.start('in', ['cat'], sink, pipeStdin=True)
            return sink
        self.sweep(self.writes(1, 5000, 300000), prepare)

    def test_05_writes_to_a_raw_terminal(self):
        def prepare(client):
            sink, ready = Checked('terminal'), Text()
            story = client.start('in', ['sh', '-c', 'stty raw -echo; printf r; exec cat'], ready, tty=True)
            client.until(lambda: ready.data)
            story.sink = sink
            return sink
        self.sweep(self.writes(1, 300, 4000), prepare)

    @tap.long
    def test_07_the_end_of_stdin(self):
        def prepare(client):
            sink = Checked('pipe')
            client.start('in', ['cat'], sink, pipeStdin=True)
            return sink

        def script(client, sink):
            client.write('in', pattern(0, 200000))
            client.call('process/closeStdin', {'processId': 'in'})
            story = client.closed('in')
            self.assertEqual((sink.at, story.exit_code), (200000, 0))
        self.sweep(script, prepare)

    @tap.long
    def test_08_terminate_in_a_flood(self):
        def prepare(client):
            sink = Checked('flood')
            client.start('p', [PYTHON, '-S', '-c', FLOOD, '1000000000'], sink)
            client.until(lambda: sink.at > 0)

        def script(client, _):
            client.call('process/terminate', {'processId': 'p'})
            self.assertEqual(client.closed('p').exit_code, 137)
        self.sweep(script, prepare)

    def three(self, client):
        client.start('echo', ['sh', '-c', 'echo a; read x; echo b$x; exit 4'], Text(), pipeStdin=True)
        client.start('quiet', ['sleep', '1000'], Text())
        client.start('flood', [PYTHON, '-S', '-c', FLOOD, '3000000'], Checked('flood'))

    def three_end(self, client, _):
        client.write('echo', b'x\n')
        self.closed(client, 'echo', b'a\nbx\n', 4)
        story = client.closed('flood')
        self.assertEqual((story.sink.at, story.exit_code), (3000000, 7))
        client.call('process/terminate', {'processId': 'quiet'})
        self.closed(client, 'quiet', b'', 137)

    def test_10_a_resume_with_three_live(self):
        def script(client, state):
            client.drop()
            client.reconnect()
            self.three_end(client, state)
        self.sweep(script, self.three)

    def test_17_the_takeover_itself(self):
        self.sweep(self.three_end, self.three, is_next=True)


if __name__ == '__main__':
    tap.main()
