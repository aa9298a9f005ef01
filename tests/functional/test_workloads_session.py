#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Honest work is not harmed: terminals, several commands at once, and unusual places to work in."""

import hashlib
import os
import shutil
import tempfile
import threading
import unittest

import tap
from workload import NOBODY, NOBODY_REACHES, UserServer, Workload, confined_only, has, needs

GET_PAGE = 'exec 3<>/dev/tcp/127.0.0.1/%s; printf "GET /page HTTP/1.0\\r\\n\\r\\n" >&3; tail -1 <&3'


class Terminal(Workload):
    """Job control and full-screen programs on a terminal of the cell."""

    def open(self, argv):
        self.c.start('terminal', argv, tty=True, **self.how(env={'PS1': 'ready> ', 'INPUTRC': '/dev/null'}))
        self.seen = 0

    def say(self, text, *answers):
        """Types; waits for each answer after what was seen before."""
        self.c.write('terminal', text.encode())
        for answer in answers:
            self.expect(answer)

    def expect(self, answer):
        process = self.c.process('terminal')
        self.c.wait_for(lambda: answer.encode() in process.pty[self.seen:] or process.closed, repr(answer))
        at = process.pty.find(answer.encode(), self.seen)
        self.assertGreaterEqual(at, 0, process.text[-2000:])
        self.seen = at + len(answer)

    def test_job_control(self):
        self.open(['bash', '--norc', '--noprofile', '--noediting', '-i'])
        self.expect('ready> ')
        self.say('stty -echo; tty\n', '/dev/pts/', 'ready> ')
        self.say('cat; echo "status $?"\n')
        self.say('hello\n', 'hello\r\n')
        self.say('\x1a', 'Stopped', 'ready> ')
        self.say('jobs\n', 'Stopped', 'cat', 'ready> ')
        self.say('fg\n', 'cat')
        self.say('again\n', 'again\r\n')
        self.say('\x03', 'ready> ')
        self.say('sleep 300 & echo "started $!"\n', 'started ', 'ready> ')
        self.say('kill %1; wait; echo "jobs: $(jobs | wc -l)"\n', 'jobs: 0', 'ready> ')
        self.say('set -m; sleep 0.05 & fg; echo "end $?"\n', 'end 0', 'ready> ')
        self.say('stty size\n', '24 80', 'ready> ')
        self.say('(trap "echo caught; exit" INT; echo waiting; while :; do sleep 0.05; done)\n', 'waiting')
        self.say('\x03', 'caught', 'ready> ')
        self.say('exit 5\n')
        self.assertEqual(self.c.wait_closed('terminal').exit_code, 5)
        self.assertNotIn('no job control', self.c.process('terminal').text)
        self.assertNotIn('cannot set terminal process group', self.c.process('terminal').text)

    @needs('less')
    def test_less(self):
        self.put('long', '\n'.join('line %d' % i for i in range(500)))
        self.open(['less', 'long'])
        self.expect('line 22')
        self.say('G', 'line 499')
        self.say('q')
        self.assertEqual(self.c.wait_closed('terminal').exit_code, 0)

    @needs('top')
    def test_top(self):
        self.open(['top', '-d', '60'])
        self.expect('load average')
        self.expect('PID')
        self.say('q')
        self.assertEqual(self.c.wait_closed('terminal').exit_code, 0)

    @needs('python3')
    def test_prompts(self):
        self.open(['python3', '-c', 'import getpass, os; print(os.ttyname(0)); '
                                    'print(len(getpass.getpass("secret: ")))'])
        self.expect('/dev/pts/')
        self.expect('secret: ')
        self.say('abcdef\n', '6')
        self.assertEqual(self.c.wait_closed('terminal').exit_code, 0)
        self.assertNotIn('abcdef', self.c.process('terminal').text)


class Together(Workload):
    """Several commands of one session at once, in one cell."""

    def start(self, name, script):
        self.c.start(name, ['bash', '-c', script], **self.how())

    def test_a_server_and_its_clients(self):
        """A development server in one command, reached from others."""
        self.put('page', 'from the other command\n')
        self.start('server', 'exec python3 -u -m http.server --bind 127.0.0.1 0')
        line = self.c.wait_line('server')
        port = line.split(' port ')[1].split()[0]
        if has('curl'):
            self.assertEqual(self.works('curl -sS http://127.0.0.1:%s/page' % port), 'from the other command\n')
        self.assertEqual(self.works(GET_PAGE % port), 'from the other command\n')
        self.c.terminate('server')
        self.c.wait_closed('server')

    def test_one_is_ended_the_others_live(self):
        for name in ('a', 'b', 'c'):
            self.start(name, 'trap "" HUP; sleep 300 & echo up; wait')
            self.c.wait_line(name)
        self.c.terminate('b')
        self.c.wait_closed('b')
        self.assertFalse(self.c.process('a').exited or self.c.process('c').exited)
        self.assertEqual(self.works('echo still here'), 'still here\n')
        for name in ('a', 'c'):
            self.c.terminate(name)
            self.c.wait_closed(name)

    def test_files_are_seen_at_once(self):
        self.start('watcher', 'until test -e signal; do sleep 0.02; done; cat signal; echo seen > answer')
        self.works('echo now > signal.new && mv signal.new signal')
        self.assertEqual(self.c.wait_closed('watcher').text, 'now\n')
        self.assertEqual(self.get('answer'), 'seen\n')

    def test_the_host_sees_and_changes_files(self):
        """An editor of the user saves by renaming; the next command sees the new file."""
        self.works('echo one > shared')
        self.assertEqual(self.get('shared'), 'one\n')
        self.put('shared.tmp', 'two\n')
        os.rename(self.path('shared.tmp'), self.path('shared'))
        self.assertEqual(self.works('cat shared'), 'two\n')
        os.makedirs(self.path('new/directory'))
        self.own(self.path('new'))
        self.works('echo three > new/directory/f')
        self.assertEqual(self.get('new/directory/f'), 'three\n')

    @confined_only
    def test_one_failing_outside_is_not_another_s_denial(self):
        """Evidence of one command is not held against its neighbour."""
        self.start('quiet', 'echo up; until test -e go; do sleep 0.02; done; exit 3')
        self.c.wait_line('quiet')
        self.fails('exec 3<>/dev/tcp/192.0.2.1/80', 'unreachable')
        if has('strace'):
            self.refused('strace true')
        self.works('touch go')
        self.assertEqual(self.c.wait_closed('quiet').exit_code, 3)
        self.assertFalse(self.was_denied('quiet'))
        self.fails('exit 3', code=3, denied=False)

    def test_what_a_command_leaves_running(self):
        """A server put into the background by a command that has ended serves the next ones."""
        self.put('page', 'still served\n')
        self.works('setsid python3 -u -m http.server --bind 127.0.0.1 0 > log 2>&1 < /dev/null & echo $! > pid')
        self.works("for i in $(seq 400); do grep -q ' port ' log && exit; sleep 0.05; done; exit 1")
        port = self.get('log').split(' port ')[1].split()[0]
        self.assertEqual(self.works(GET_PAGE % port), 'still served\n')

    def test_many_at_once(self):
        for i in range(20):
            self.start('many-%d' % i, 'sleep 0.2; echo %d > f%d; cat f%d' % (i, i, i))
        for i in range(20):
            done = self.c.wait_closed('many-%d' % i)
            self.assertEqual((done.exit_code, done.text), (0, '%d\n' % i))

    def test_input(self):
        data = os.urandom(1 << 16) * 80
        self.c.start('sum', ['bash', '-c', 'head -c %d | sha256sum' % len(data)], **self.how(pipeStdin=True))
        for at in range(0, len(data), 1 << 18):
            self.assertEqual(self.c.write('sum', data[at:at + (1 << 18)]), 'accepted')
        self.assertEqual(self.c.wait_closed('sum').text.split()[0], hashlib.sha256(data).hexdigest())

    @confined_only
    def test_what_the_host_makes_meanwhile_survives(self):
        """A user makes .codex while the sandbox keeps that name busy: it is his, and stays."""
        self.c.start('lives', ['sleep', '600'], **self.how())
        place = self.path('.codex')
        os.chmod(place, 0o755)
        with open(os.path.join(place, 'config'), 'w') as f:
            f.write('mine')
        self.fails('cat .codex/config', 'no such file')
        self.srv.stop()
        with open(os.path.join(place, 'config')) as f:
            self.assertEqual(f.read(), 'mine')
        shutil.rmtree(place)


class Places(Workload):
    """Workspaces and temporary directories where nobody expects them."""

    SCRIPT = ('set -e; echo text > f; mkdir -p d; mv f d/; ln d/f g; cat g; rm -r d g; '
              't=$(mktemp); echo x > "$t"; rm "$t"; t=$(mktemp -p /tmp); rm "$t"')

    def try_at(self, *roots, script=SCRIPT, expected='text\n', **how):
        for root in roots:
            os.makedirs(root, exist_ok=True)
        self.assertEqual(self.works(script, roots=list(roots), **how), expected)
        if not how.get('cwd'):
            self.assertEqual(self.works('pwd -P', roots=list(roots), **how), os.path.realpath(roots[0]) + '\n')

    def below(self, parent):
        if not os.path.isdir(parent) or not os.access(parent, os.W_OK):
            self.skipTest('%s cannot be written' % parent)
        path = tempfile.mkdtemp(prefix='sallyport-work-', dir=parent)
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def test_below_tmp(self):
        path = self.below('/tmp')
        self.try_at(path)
        self.try_at(path + '/some/what/deeper')

    def test_below_shared_memory(self):
        self.try_at(self.below('/dev/shm'))

    def test_below_run(self):
        self.try_at(self.below('/run'))

    def test_odd_names(self):
        for name in ('with space', 'wörk', '[x]{y,z}*?', 'back\\slash', 'new\nline', 'quote"\'', '%41', '-rf'):
            with self.subTest(name):
                self.try_at(os.path.join(self.base, name))

    def test_through_a_link(self):
        link = os.path.join(self.base, 'link')
        os.symlink(self.w, link)
        self.try_at(link)
        self.try_at(self.w, cwd=link)

    def test_directories_of_commands(self):
        self.put('deep/er/file', 'x')
        self.try_at(self.w, cwd=self.path('deep/er'))
        self.try_at(self.w, script='test $PWD = /usr && ls > /dev/null', expected='', cwd='/usr')

    def test_several_roots(self):
        self.try_at(self.w, self.o, script='echo text > f && mv f %s/ && cat %s/f' % (self.o, self.o))
        self.try_at(self.w, self.path('inner'))
        self.try_at(self.path('inner'), self.w)

    def test_a_root_that_is_not_there(self):
        self.assertEqual(self.works('echo text > f; cat f', roots=[self.w, self.path('../nowhere')]), 'text\n')

    def test_temporary_directories(self):
        inner = self.path('tmp')
        os.mkdir(inner)
        for path in ('/tmp', inner, self.w):
            with self.subTest(path):
                self.try_at(self.w, env={'TMPDIR': path})
        self.works('touch f && test ! -e "$TMPDIR"', env={'TMPDIR': self.path('../missing')})
        self.works('mkdir "$TMPDIR" && mktemp', env={'TMPDIR': self.path('made')})
        self.works('t=$(mktemp) && rm "$t"', env={'TMPDIR': ''})

    def test_home_is_the_workspace(self):
        self.try_at(self.home)
        self.works('echo x > ~/.profile', roots=[self.home])


class Neighbours(Workload):
    """Servers that come and go on one machine share /tmp, and the names that are protected there."""

    def come_and_go(self, uid, trouble):
        w = tempfile.mkdtemp(dir=self.base)
        if uid is not None:
            os.chown(w, uid, uid)
        for _ in range(15):
            try:
                server = UserServer(uid)
                try:
                    client = server.session()
                    for _ in range(2):
                        done = client.sh('touch f', **self.how(roots=[w]))
                        if done.exit_code != 0:
                            trouble.append(done.stderr)
                finally:
                    server.stop()
            except Exception as e:  # a thread's failure would be nobody's
                trouble.append(repr(e))

    def at_once(self, *uids):
        trouble = []
        threads = [threading.Thread(target=self.come_and_go, args=(uid, trouble)) for uid in uids]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(trouble, [])

    def test_of_one_user(self):
        self.at_once(None, None)

    @unittest.skipUnless(NOBODY_REACHES, 'needs root, and a program that every user can execute')
    def test_of_two_users(self):
        self.at_once(None, NOBODY)


if __name__ == '__main__':
    tap.main()
