# SPDX-License-Identifier: Apache-2.0
"""Nothing stays: no descriptor, process or file, after much work, after abrupt ends, after SIGTERM."""

import random
import signal

import tap
from server import SANITIZED, Case, descendants, fd_names, is_alive, ours_only
from wire import MIB, Channel, Closed, frame, wait_until


@ours_only
class Leaks(Case):
    def start_server(self, *args):
        # One cell: others end a minute later (test_cells.py).
        self.srv = self.server('--session-ttl', '1', '--closed-ttl', '1', '--cells', '1', *args)
        warm = self.srv.session()  # whatever is made on first use and kept
        warm.keep_output = False
        self.mixed(warm, 150, 'warm')
        warm.close()
        self.quiet()
        return self.srv.fds()

    def commands(self):
        own = set(self.srv.program_pids())
        return [p for p in descendants(self.srv.pid) if p not in own and is_alive(p)]

    def sessions(self):
        for line in self.srv.http('GET', '/metrics').body.decode().splitlines():
            if line.startswith('sallyport_processes_live'):
                return float(line.split()[-1])
        return 0

    def quiet(self):
        wait_until(lambda: not self.commands(), 'end of all commands')
        wait_until(lambda: self.sessions() == 0, 'end of all processes')

    def settled(self, before):
        """Descriptors come back to what they were."""
        self.quiet()

        def same():
            # the memory of output is kept for a minute after the last command in it
            now = {p: n - sum('memfd:sallyport-rings' in name for name in fd_names(p)) for p, n in self.srv.fds().items()}
            return set(now) == set(before) and all(now[p] <= before[p] for p in before)
        try:
            wait_until(same, 'descriptors', step=0.1)
        except AssertionError:
            kinds = {}
            for pid in self.srv.fds():
                for name in fd_names(pid):
                    name = ''.join('N' if ch.isdigit() else ch for ch in name)
                    kinds[pid, name] = kinds.get((pid, name), 0) + 1
            raise AssertionError('before %r, now %r: %r' % (before, self.srv.fds(), kinds)) from None
        wait_until(lambda: self.srv.cgroup_fds() <= 64, 'a small pool of empty cgroups', step=0.1)

    def mixed(self, c, count, tag):
        rng = random.Random(7)
        waiting = []
        for i in range(count):
            name = '%s%d' % (tag, i)
            kind = rng.randrange(9)
            if kind == 0:
                c.post_start(name, ['/no/such/program'], tty=bool(i % 2))
                continue
            if kind == 1:
                c.post_start(name, ['sleep', '1000'], pipeStdin=bool(i % 2))
                c.post('process/terminate', {'processId': name})
            elif kind == 2:
                c.post_start(name, ['sh', '-c', 'echo out; echo err >&2; exit 3'], tty=True)
            elif kind == 3:
                c.post_start(name, ['cat'], pipeStdin=True)
                c.post_write(name, b'hello\n')
                c.post_read(name, waitMs=5)
                c.post('process/closeStdin', {'processId': name})
            elif kind == 4:
                c.post_start(name, ['sh', '-c', 'setsid sleep 1000 >/dev/null 2>&1 & exit 0'])
            elif kind == 5:
                c.post_start(name, ['head', '-c', '100000', '/dev/zero'])
            elif kind == 6:
                c.post_start(name, ['sleep', '1000'], tty=True)
                c.post_write(name, b'x\n')
                c.post('process/signal', {'processId': name, 'signal': 'KILL'})
            elif kind == 7:
                c.post_start(name, ['true'], cwd='file:///no/such/directory')
                continue
            else:
                c.post_start(name, ['true'])
            waiting.append(name)
            if len(waiting) >= 40:
                for one in waiting:
                    c.wait_closed(one)
                waiting = []
        for one in waiting:
            c.wait_closed(one)

    def test_nothing_is_left_after_a_thousand_mixed_commands(self):
        before = self.start_server()
        memory = self.srv.memory()
        c = self.srv.session()
        c.keep_output = False
        self.mixed(c, 1000, 'p')
        c.fence()
        c.close()
        self.settled(before)
        if not SANITIZED:
            self.assertLess(self.srv.memory() - memory, 32 * MIB)

    def test_nothing_is_left_after_abrupt_disconnects(self):
        before = self.start_server()
        for i in range(60):
            c = self.srv.session()
            c.keep_output = False
            c.post_start('flood', ['yes'])
            c.post_start('tty', ['sh', '-c', 'trap "" HUP; while :; do echo x; sleep 0.01; done'], tty=True)
            c.post_start('in', ['sleep', '1000'], pipeStdin=True)
            for _ in range(5):
                c.post_write('in', b'x' * 65536)
            c.post_read('in', waitMs=600000)
            stage = i % 6
            if stage == 1:
                c.fence()
            elif stage == 2:
                c.wait_for(lambda c=c: c.process('flood').sizes['stdout'] > 100000)
            elif stage == 3:
                c.channel.write(frame(1, b'{"id":1,"meth')[:9])
            elif stage == 4:
                c.transport.send_frame(1, b'{"id":', fin=False)
            elif stage == 5:
                c.send({'method': 'no/such'})
            if i % 2:
                c.abort()
            else:
                c.close()
        self.settled(before)

    def test_nothing_is_left_after_broken_handshakes(self):
        before = self.start_server()
        for i in range(200):
            channel = Channel.connect(self.srv.address)
            try:
                if i % 4 == 1:
                    channel.write(b'GET / HT')
                elif i % 4 == 2:
                    channel.write(b'GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: x\r\n\r\n')
                elif i % 4 == 3:
                    channel.write(b'\x00\xff' * 100)
            except Closed:
                pass
            channel.abort() if i % 2 else channel.close()
        for _ in range(50):
            self.srv.connect().close()
        self.settled(before)

    def test_nothing_is_left_after_sigterm_under_load(self):
        self.start_server()
        clients = [self.srv.session() for _ in range(5)]
        script = 'trap "" TERM HUP INT; setsid sleep 1000 & while :; do echo x; done'
        for c in clients:
            c.keep_output = False
            posts = [c.post_start('p%d' % i, ['sh', '-c', script], tty=bool(i % 2)) for i in range(20)]
            for post in posts:
                c.result(post)
        for c in clients:  # and some that are on their way
            for i in range(10):
                c.post_start('q%d' % i, ['sh', '-c', script], tty=bool(i % 2))
        self.srv.stop(signal.SIGTERM)  # the judge looks at processes, files and cgroups

    def test_a_resumed_session_leaks_nothing(self):
        before = self.start_server()
        c = self.srv.session()
        session = c.session_id
        c.start('p', ['cat'], pipeStdin=True)
        for i in range(100):
            c.post_read('p', waitMs=600000, afterSeq=1000)
            c.abort()

            def resume():
                again = self.srv.connect()
                reply = again.reply(again.post('initialize', {'clientName': 'x', 'resumeSessionId': session}))
                if 'result' in reply:
                    again.send({'method': 'initialized'})
                    return again
                again.close()
                return None
            c = wait_until(resume, 'resume')
        self.assertEqual(c.write('p', b'still there\n'), 'accepted')
        c.wait_output('p', 'still there')
        c.terminate('p')
        c.close()
        self.settled(before)


if __name__ == '__main__':
    tap.main()
