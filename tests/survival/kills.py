# SPDX-License-Identifier: Apache-2.0
"""The front of a server is killed again and again under load: every byte, exit code and accepted write must be there once."""

import hashlib
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'functional'))

import tap
import wire
from server import PYTHON, Case, ours_only
from survivor import Survivor

# Bytes that follow from their offset: a block whose length is prime, again and again.
PERIOD = 1000003
BLOCK = """
import hashlib
block = b''.join(hashlib.sha256(b'%d' % i).digest() for i in range(31251))[:1000003]
"""
FLOOD = BLOCK + """
import os, sys
twice = memoryview(block + block)
at, size = 0, int(sys.argv[1])
while at < size:
    n = min(65536, size - at)
    at += os.write(1, twice[at % 1000003:at % 1000003 + n])
sys.exit(7)
"""
exec(BLOCK)
TWICE = block + block  # noqa: F821


def pattern(at, n):
    return TWICE[at % PERIOD:at % PERIOD + n] if n <= PERIOD else b''.join(
        pattern(at + i, min(PERIOD, n - i)) for i in range(0, n, PERIOD))


class Checked:
    """A sink that knows what has to come."""

    def __init__(self, name):
        self.name, self.at = name, 0

    def __call__(self, stream, data):
        due = pattern(self.at, len(data))
        if data != due:
            wrong = next(i for i in range(len(data)) if data[i] != due[i])
            raise AssertionError('%s: byte %d is wrong' % (self.name, self.at + wrong))
        self.at += len(data)


class Load(threading.Thread):
    """One client at work until it is told to stop. Its first failure is kept."""

    def __init__(self, test, seed):
        super().__init__(name=type(self).__name__)
        self.test, self.random = test, random.Random(seed)
        self.failure = None
        self.count = self.bytes = 0
        self.client = test.survivor()
        self.start()

    def run(self):
        try:
            while not self.test.is_over.is_set():
                self.work()
            self.finish()
        except BaseException as e:  # pylint: disable=broad-except
            self.failure = e
            self.test.is_over.set()

    def finish(self):
        pass


class Flood(Load):
    SIZE = 40000000

    def work(self):
        self.count += 1
        name = 'flood%d' % self.count
        sink = Checked(name)
        self.client.start(name, [PYTHON, '-S', '-c', FLOOD, str(self.SIZE)], sink)
        story = self.client.closed(name)
        self.bytes += sink.at
        if (sink.at, story.exit_code) != (self.SIZE, 7):
            raise AssertionError('%s: %d bytes, exit code %r' % (name, sink.at, story.exit_code))


class Pipe(Load):
    ARGV = ['cat']
    SIZES = (1, 100, 5000, 70000, 300000)
    more = {'pipeStdin': True}
    sink = None

    def begin(self):
        self.sink = Checked(self.name)
        self.client.start('in', self.ARGV, self.sink, **self.more)
        self.written = 0

    def work(self):
        if self.sink is None:
            self.begin()
        n = self.random.randint(1, self.random.choice(self.SIZES))
        self.client.write('in', pattern(self.written, n))
        self.written += n
        self.count += 1
        if self.random.random() < 0.3 or self.written - self.sink.at > 500000:
            self.client.until(lambda: self.sink.at >= self.written)

    def finish(self):
        if self.sink is None:
            return
        self.client.until(lambda: self.sink.at >= self.written)
        self.bytes = self.written
        self.client.call('process/closeStdin', {'processId': 'in'})
        story = self.client.closed('in')
        if (self.sink.at, story.exit_code) != (self.written, 0):
            raise AssertionError('%s: %d of %d bytes, exit code %r' % (self.name, self.sink.at, self.written, story.exit_code))


class Terminal(Pipe):
    ARGV = ['sh', '-c', 'stty raw -echo; echo ready >&2; exec cat']
    SIZES = (1, 10, 300, 4000)
    more = {'tty': True}

    def begin(self):
        ready = bytearray()
        self.sink = Checked(self.name)
        checked = self.sink

        def sink(stream, data):
            if len(ready) < 6:  # "ready", and the end of its line
                n = 6 - len(ready)
                ready.extend(data[:n])
                data = data[n:]
                if not data:
                    return
            checked(stream, data)
        self.client.start('in', self.ARGV, sink, **self.more)
        self.written = 0
        self.client.until(lambda: len(ready) >= 6)

    def finish(self):
        if self.sink is None:
            return
        self.client.until(lambda: self.sink.at >= self.written)
        self.bytes = self.written
        self.client.call('process/terminate', {'processId': 'in'})
        story = self.client.closed('in')
        if (self.sink.at, story.exit_code) != (self.written, 137):
            raise AssertionError('%s: %d of %d bytes, exit code %r' % (self.name, self.sink.at, self.written, story.exit_code))


class Short(Load):
    def work(self):
        self.count += 1
        name, code, heard = 'short%d' % self.count, self.count % 100, []
        text = hashlib.sha256(name.encode()).hexdigest()
        self.client.start(name, ['sh', '-c', 'echo $0; exit %d' % code, text], lambda stream, data: heard.append(data))
        story = self.client.closed(name)
        if (b''.join(heard).decode(), story.exit_code) != (text + '\n', code):
            raise AssertionError('%s: %r, exit code %r' % (name, heard, story.exit_code))
        self.client.call('process/terminate', {'processId': name})


class Detached(Load):
    """Commands that run while their session has no connection; less output than is retained."""

    SIZE = 600000

    def work(self):
        self.count += 1
        name = 'detached%d' % self.count
        sink = Checked(name)
        self.client.start(name, [PYTHON, '-S', '-c', FLOOD, str(self.SIZE)], sink)
        self.client.drop()
        time.sleep(self.random.uniform(0, 0.2))
        self.client.reconnect()
        story = self.client.closed(name)
        if (sink.at, story.exit_code) != (self.SIZE, 7):
            raise AssertionError('%s: %d bytes, exit code %r' % (name, sink.at, story.exit_code))
        self.bytes += sink.at


@ours_only
class Kills(Case):
    def kill(self):
        front = self.srv.front
        try:
            os.kill(front or 0, signal.SIGKILL if front else 0)
        except ProcessLookupError:
            return 0
        return front is not None

    def run_round(self, chance, count, most, *args, listen='ws://127.0.0.1:0', lines=False):
        """The keeper waits longer after each short life of a front: a new server after `count` of them."""
        self.is_over = threading.Event()
        self.srv = self.server('--keeper', *args, listen=listen)
        self.survivor = lambda: Survivor(self.srv.address, lines)
        loads = [kind(self, chance.random()) for kind in (Flood, Pipe, Terminal, Short, Detached)
                 if kind.__name__ in os.environ.get('LOADS', kind.__name__)]
        kills = 0
        while kills < count and not self.is_over.wait(chance.uniform(0, most)):
            kills += self.kill()
        self.is_over.set()
        for load in loads:
            load.join(tap.TEST_LIMIT)
        sys.stdout.write('# %d kills, %s\n' % (kills, ', '.join(
            '%s: %d, %.1f MB, %d connections lost' % (x.name, x.count, x.bytes / 1e6, x.client.lost) for x in loads)))
        sys.stdout.flush()
        for load in loads:
            if load.failure is not None:
                raise load.failure
            self.assertFalse(load.is_alive())
            load.client.transport.close()
        self.srv.stop()

    def run_kills(self, rounds, count, most, *args, **how):
        seed = int(os.environ.get('SEED') or random.randrange(1 << 32))
        chance = random.Random(seed)
        sys.stdout.write('# seed %d\n' % seed)
        for _ in range(rounds):
            self.run_round(chance, count, most, *args, **how)

    def test_a_hundred(self):
        self.run_kills(14, 7, 0.1)

    @tap.long
    def test_a_thousand_1(self):
        self.run_kills(42, 8, 0.6)

    @tap.long
    def test_a_thousand_2(self):
        self.run_kills(42, 8, 0.6)

    @tap.long
    def test_a_thousand_3(self):
        self.run_kills(42, 8, 0.6)

    @tap.long
    def test_lines_over_a_unix_socket(self):
        self.run_kills(12, 8, 0.3, listen='unix://' + os.path.join(self.scratch(), 'socket'), lines=True)

    @tap.long
    def test_without_cgroups(self):
        self.run_kills(12, 8, 0.3, '--no-cgroups')

    @tap.long
    def test_every_two_milliseconds(self):
        self.run_kills(20, 9, 0.004)


if __name__ == '__main__':
    tap.main()
