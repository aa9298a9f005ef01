# SPDX-License-Identifier: Apache-2.0
"""Terminate, interrupt, and the tree below a command."""

import os
import signal

import tap
from server import PEER, PYTHON, Case, is_alive, ours_only, stat_of
from wire import wait_until

# Starts the kinds of descendants that try to get away; each says its pid.
ESCAPE = r'''
import os, signal, sys, time
def say(word):
    with open(sys.argv[1], 'a') as f:
        f.write('%s %d\n' % (word, os.getpid()))
def child(word, detach, ignore):
    if os.fork():
        return
    if detach:
        os.setsid()
        if os.fork():
            os._exit(0)
    if ignore:
        for n in (1, 2, 3, 13, 15): signal.signal(n, signal.SIG_IGN)
    say(word)
    time.sleep(1000)
    os._exit(0)
child('plain', False, False)
child('deaf', False, True)
child('daemon', True, False)
child('deaf-daemon', True, True)
if os.fork() == 0:
    os.setpgid(0, 0)
    child('nested', True, True)
    say('group')
    time.sleep(1000)
    os._exit(0)
for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
say('leader')
time.sleep(1000)
'''
WORDS = {'plain', 'deaf', 'daemon', 'deaf-daemon', 'nested', 'group', 'leader'}


class Terminate(Case):
    ARGS = ()

    def setUp(self):
        super().setUp()
        self.c = self.session(*self.ARGS)

    def pids(self, name, words):
        def complete():
            try:
                with open(name) as f:
                    lines = [line.split() for line in f.read().splitlines()]
            except OSError:
                return None
            found = {line[0]: int(line[1]) for line in lines if len(line) == 2}
            return found if set(found) >= words else None
        found = wait_until(complete, 'all descendants')
        self.srv.track(*found.values())
        return found

    def test_terminate_kills_at_once_and_says_so(self):
        self.c.start('p', ['/bin/sh', '-c', 'trap "" TERM INT HUP; echo $$; while :; do sleep 1000; done'])
        pid = int(self.c.wait_line('p'))
        self.assertTrue(self.c.terminate('p'))
        p = self.c.wait_closed('p')
        self.assertEqual(p.exit_code, 137)
        self.assertGone(pid)
        self.assertFalse(self.c.terminate('p'))
        self.assertFalse(self.c.terminate('nobody'))
        page = self.c.read('p')
        self.assertEqual((page['exited'], page['exitCode'], page['closed']), (True, 137, True))

    def test_the_whole_group_dies(self):
        self.c.start('p', ['/bin/sh', '-c', 'sleep 1000 & echo $!; wait'])
        child = int(self.c.wait_line('p'))
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.assertGone(child)

    @ours_only
    def test_no_descendant_gets_away(self):
        for how in ({}, {'tty': True}):
            name = os.path.join(self.srv.work, 'pids%d' % len(how))
            pid = 'p%d' % len(how)
            self.c.start(pid, [PYTHON, '-S', '-c', ESCAPE, name], **how)
            found = self.pids(name, WORDS)
            self.assertNotEqual(stat_of(found['daemon'])[3], found['leader'], 'it is in another session')
            self.assertTrue(self.c.terminate(pid))
            p = self.c.wait_closed(pid)
            self.assertEqual(p.exit_code, 137)
            self.assertGone(*found.values())

    @ours_only
    def test_a_fork_bomb_of_daemons_ends(self):
        script = ('import os, time\n'
                  'while True:\n'
                  '    if os.fork() == 0:\n'
                  '        os.setsid()\n'
                  '        if os.fork() == 0:\n'
                  '            for i in range(3):\n'
                  '                if os.fork() == 0: time.sleep(1000)\n'
                  '            time.sleep(1000)\n'
                  '        os._exit(0)\n'
                  '    os.wait()\n'
                  '    time.sleep(0.02)\n')
        self.c.start('p', [PYTHON, '-S', '-c', script], envPolicy={
            'inherit': 'all', 'ignoreDefaultExcludes': True, 'exclude': [], 'set': {'BOMB': self.srv.mark}, 'includeOnly': []})

        def count():
            mark = b'BOMB=' + self.srv.mark.encode()
            found = []
            for pid in filter(str.isdigit, os.listdir('/proc')):
                try:
                    with open('/proc/%s/environ' % pid, 'rb') as f:
                        if mark in f.read() and is_alive(int(pid)):
                            found.append(int(pid))
                except OSError:
                    pass
            return found
        wait_until(lambda: len(count()) > 30, 'a crowd')
        self.assertTrue(self.c.terminate('p'))
        self.c.wait_closed('p')
        wait_until(lambda: not count(), 'end of the crowd')

    def test_terminate_leaves_other_commands_alone(self):
        self.c.start('p', ['sleep', '1000'])
        self.c.start('q', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        pid = int(self.c.wait_line('q'))
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.assertTrue(is_alive(pid))
        self.assertFalse(self.c.read('q')['exited'])

    def test_closed_follows_even_if_a_stranger_holds_the_stream(self):
        for how in ({}, {'tty': True}):
            name = 'p%d' % len(how)
            self.c.start(name, ['/bin/sh', '-c', 'setsid sh -c \'trap "" HUP; echo $$; exec sleep 1000\' & wait'], **how)
            self.srv.track(int(self.c.wait_line(name)))
            holder = int(self.c.wait_line(name))
            self.c.terminate(name)
            self.c.wait_closed(name)
            if PEER:
                os.kill(holder, signal.SIGKILL)
            self.assertGone(holder)

    @ours_only
    def test_output_written_before_terminate_is_not_lost(self):
        flag = os.path.join(self.srv.work, 'flag')
        self.c.start('p', ['/bin/sh', '-c', 'head -c 60000 /dev/zero; : > %s; exec sleep 1000' % flag])
        wait_until(lambda: os.path.exists(flag), 'the writer')
        self.c.terminate('p')
        p = self.c.wait_closed('p')
        self.assertEqual((len(p.stdout), p.exit_code), (60000, 137))

    def test_a_terminated_id_stays_taken(self):
        self.c.start('p', ['sleep', '1000'])
        self.c.terminate('p')
        self.c.wait_closed('p')
        self.assertError(self.c.start_error('p', ['true']), -32600, 'process p already exists')

    def test_two_terminates_at_once(self):
        self.c.start('p', ['sleep', '1000'])
        posts = [self.c.post('process/terminate', {'processId': 'p'}) for _ in range(5)]
        answers = [self.c.result(p)['running'] for p in posts]
        self.assertTrue(answers[0])
        self.assertEqual(self.c.wait_closed('p').exit_code, 137)

    @ours_only
    def test_terminate_right_behind_start(self):
        for i in range(30):
            name = 'p%d' % i
            start = self.c.post_start(name, ['sleep', '1000'], tty=bool(i % 2))
            end = self.c.post('process/terminate', {'processId': name})
            self.assertEqual(self.c.result(start)['processId'], name)
            self.assertEqual(self.c.result(end), {'running': True})
            self.assertEqual(self.c.wait_closed(name).exit_code, 137)

    def test_a_stopped_process_is_terminated_too(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo $$; kill -STOP $$; exec sleep 1000'])
        pid = int(self.c.wait_line('p'))
        wait_until(lambda: stat_of(pid)[0] == 'T', 'stop')
        self.assertTrue(self.c.terminate('p'))
        self.assertEqual(self.c.wait_closed('p').exit_code, 137)


@ours_only
class TerminateByParentage(Terminate):
    """The same where there is no cgroup to be had."""

    ARGS = ('--no-cgroups',)


class Exited(Case):
    """Terminating what has exited changes nothing."""

    ARGS = ()

    SCRIPTS = {'in the group': 'sleep 1000 >/dev/null 2>&1 </dev/null & echo $!',
               'in its own session': 'setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!'}

    def stray(self, c, name, script):
        p = c.sh(script, name)
        pid = int(p.text)
        self.srv.track(pid)
        return pid

    def test_a_stray_of_an_exited_command_lives_on(self):
        c = self.session(*self.ARGS)
        for n, script in enumerate(self.SCRIPTS.values()):
            pid = self.stray(c, 'p%d' % n, script)
            self.assertFalse(c.terminate('p%d' % n))
            c.sh('exit 0')
            self.assertTrue(is_alive(pid))
            if PEER:
                os.kill(pid, signal.SIGKILL)

    def test_terminate_of_an_exited_but_open_process_changes_nothing(self):
        c = self.session(*self.ARGS)
        c.start('p', ['/bin/sh', '-c', 'sh -c "echo \\$\\$; exec sleep 1000" & exit 0'])
        pid = int(c.wait_line('p'))
        self.srv.track(pid)
        c.wait_exited('p')
        self.assertFalse(c.terminate('p'))
        c.sh('exit 0')
        self.assertTrue(is_alive(pid))
        self.assertFalse(c.process('p').closed)
        os.kill(pid, signal.SIGKILL)
        c.wait_closed('p')

    @ours_only
    def test_the_end_of_the_session_ends_its_strays(self):
        c = self.session(*self.ARGS, '--session-ttl', '1')
        strays = [self.stray(c, 'p%d' % n, s) for n, s in enumerate(self.SCRIPTS.values())]
        c.close()
        self.assertGone(*strays)

    @ours_only
    def test_the_end_of_one_session_leaves_the_strays_of_another(self):
        one = self.session(*self.ARGS, '--session-ttl', '1')
        two = self.srv.session()
        gone = [self.stray(one, 'p%d' % n, s) for n, s in enumerate(self.SCRIPTS.values())]
        kept = [self.stray(two, 'p%d' % n, s) for n, s in enumerate(self.SCRIPTS.values())]
        one.close()
        self.assertGone(*gone)
        two.sh('exit 0')
        for pid in kept:
            self.assertTrue(is_alive(pid))

    @ours_only
    def test_the_end_of_the_server_ends_strays(self):
        c = self.session(*self.ARGS)
        strays = [self.stray(c, 'p%d' % n, s) for n, s in enumerate(self.SCRIPTS.values())]
        self.srv.stop()
        self.assertGone(*strays)

    @ours_only
    def test_strays_outlive_the_memory_of_their_command(self):
        c = self.session(*self.ARGS, '--closed-ttl', '1')
        pid = self.stray(c, 'p', self.SCRIPTS['in its own session'])
        wait_until(lambda: 'error' in c.reply(c.post_read('p')), 'forgotten process', step=0.1)
        self.assertTrue(is_alive(pid))


@ours_only
class ExitedByParentage(Exited):
    ARGS = ('--no-cgroups',)


class Interrupt(Case):
    def setUp(self):
        super().setUp()
        self.c = self.session()

    def test_interrupt_reaches_the_group(self):
        self.c.start('p', ['/bin/sh', '-c', 'trap "echo INT; exit 5" INT; echo ready; while :; do sleep 0.05; done'])
        self.c.wait_output('p', 'ready')
        self.assertEqual(self.c.signal('p'), {})
        p = self.c.wait_closed('p')
        self.assertEqual((p.stdout, p.exit_code), (b'ready\nINT\n', 5))

    def test_interrupt_kills_by_default(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo ready; exec sleep 1000'])
        self.c.wait_output('p', 'ready')
        self.c.signal('p')
        self.assertEqual(self.c.wait_closed('p').exit_code, 130)

    def test_interrupt_of_what_is_not_there(self):
        self.assertEqual(self.c.signal('nobody'), {})
        self.c.run(['true'], 'p')
        self.assertEqual(self.c.signal('p'), {})

    def test_interrupt_on_a_terminal(self):
        self.c.start('p', ['/bin/sh', '-c', 'trap "echo INT; exit 5" INT; echo ready; while :; do sleep 0.05; done'], tty=True)
        self.c.wait_output('p', 'ready')
        self.c.signal('p')
        self.assertEqual(self.c.wait_closed('p').exit_code, 5)

    def test_signal_needs_a_name(self):
        for value in (5, None, '', 'no-such-signal', ['interrupt']):
            self.assertError(self.c.error('process/signal', {'processId': 'nobody', 'signal': value}), -32602)


class ServerEnd(Case):
    @ours_only
    def test_commands_do_not_outlive_a_killed_server(self):
        c = self.session()
        c.start('p', ['/bin/sh', '-c', 'trap "" TERM HUP INT; echo $$; while :; do sleep 1000; done'])
        c.start('t', ['/bin/sh', '-c', 'trap "" TERM HUP INT; echo $$; while :; do sleep 1000; done'], tty=True)
        pids = [int(c.wait_line('p')), int(c.wait_line('t'))]
        self.srv.track(*pids)
        self.srv.stop(signal.SIGKILL, status=-signal.SIGKILL)
        self.assertGone(*pids)

    def test_sigint_ends_the_server_too(self):
        c = self.session()
        c.start('p', ['/bin/sh', '-c', 'trap "" TERM HUP INT; echo $$; while :; do sleep 1000; done'])
        pid = int(c.wait_line('p'))
        self.srv.stop(signal.SIGINT)
        self.assertGone(pid)

    @ours_only
    def test_a_command_that_kills_its_parent_disturbs_only_this_server(self):
        # The cell is the commands' parent: its end is the end of what it holds.
        c = self.session()
        c.start('victim', ['/bin/sh', '-c', 'echo $$; exec sleep 1000'])
        victim = int(c.wait_line('victim'))
        self.srv.track(victim)
        parent = stat_of(victim)[1]
        if parent in (self.srv.pid, 1):
            self.skipTest('commands are children of the front')
        os.kill(parent, signal.SIGKILL)
        p = c.wait_closed('victim')
        self.assertEqual(p.exit_code, -1)
        self.assertGone(victim)
        self.assertEqual(c.fence(), {'status': 'ready'})
        self.assertEqual(c.sh('echo again').stdout, b'again\n')


if __name__ == '__main__':
    tap.main()
