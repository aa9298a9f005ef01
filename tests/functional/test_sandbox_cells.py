# SPDX-License-Identifier: Apache-2.0
"""Cells: one for each session and policy, made anew when the disk has changed, ended when nobody
needs them, and gone with all they made whatever happens."""

import os
import resource
import shutil
import signal
import time

import tap
import wire
from fs_ground import Calls
from sandbox_policy import (IS_ROOT, ROOT, SandboxCase, confined_cells, context, place, project_write,
                            read_only, restricted, workspace_write)
from server import Gate, descendants, is_alive, name_of, ours_only, stat_of
from wire import file_uri, wait_until

NAMESPACE = ['readlink', '/proc/self/ns/pid']
LEFT = 'setsid sleep 1000 >/dev/null 2>&1 </dev/null & '  # a process that a command leaves behind
MOST = 64


class Cells(SandboxCase):
    def serve(self, *args):
        """A server whose notes about placeholders are its own, and a session."""
        if not hasattr(self, 'runtime'):
            self.runtime = self.scratch()
            os.chmod(self.runtime, 0o700)
        return self.session(*args, env={'XDG_RUNTIME_DIR': self.runtime})

    def cell(self, client, policy, **how):
        """The name of the cell that a command of this kind runs in."""
        return self.said(client, NAMESPACE, policy, **how).strip()

    def confined(self):
        return confined_cells(self.srv)

    def put_names(self):
        """So that no placeholder is needed, with which a cell ends at once."""
        for name in ('.git', '.agents', '.codex'):
            os.mkdir(os.path.join(self.w, name))

    def names(self, path=None):
        return sorted(os.listdir(path or self.w))

    def resumed(self, client):
        """Another connection for the session of one that is closed."""
        again = self.srv.connect()
        wait_until(lambda: 'result' in again.reply(again.post('initialize', {
            'clientName': 'again', 'resumeSessionId': client.session_id})), 'resumption')
        again.send({'method': 'initialized', 'params': {}})
        return again


@ours_only
class Identity(Cells):
    def test_one_for_each_session_and_policy(self):
        self.put_names()
        c = self.serve()
        other = self.srv.session()
        policies = (read_only(self.w), project_write(self.w), project_write(self.w, network='enabled'))
        mine = [self.cell(c, p) for p in policies]
        self.assertEqual([self.cell(c, p) for p in policies], mine)
        theirs = [self.cell(other, p) for p in policies]
        self.assertEqual(len(set(mine + theirs + [os.readlink('/proc/self/ns/pid')])), 7)
        self.assertEqual(self.cell(c, policies[1], tty=True), mine[1])

    def test_what_a_policy_does_not_use_makes_no_difference(self):
        c = self.serve()
        policy = read_only(self.w)
        before = self.cell(c, policy)
        for more in ({'cwd': None}, {'cwd': file_uri(self.o)}, {'userHomeDir': file_uri(self.o)},
                     {'sandboxOverride': 'noOverride'}):
            self.assertEqual(self.cell(c, {k: v for k, v in dict(policy, **more).items() if v is not None}), before,
                             more)
        self.assertEqual(self.cell(c, policy, env={'TMPDIR': self.o}, cwd=file_uri(self.o)), before)

    def test_commands_of_a_cell_see_each_other(self):
        c, policy = self.serve(), read_only(self.w)
        self.start(c, 'p', 'echo $$; exec sleep 1000', policy)
        pid = c.wait_line('p')
        # The line comes before the execve, and during it the process has no arguments.
        wait_until(lambda: self.said(c, 'tr "\\0" " " < /proc/%s/cmdline' % pid, policy) == 'sleep 1000 ', 'the program')
        process = self.run_in(c, 'kill -9 ' + pid, policy)
        self.assertNotEqual(process.exit_code, 0, 'a command can end another one')
        self.assertFalse(c.read('p')['exited'])

    def test_a_resumed_session_keeps_its_cells(self):
        c, policy = self.serve(), project_write(self.w)
        self.start(c, 'p', 'readlink /proc/self/ns/pid; exec sleep 1000', policy)
        before = c.wait_line('p')
        c.close()
        again = self.resumed(c)
        self.assertEqual(self.cell(again, policy), before)
        self.assertFalse(again.read('p')['exited'])

    def test_many_at_once_in_a_new_cell(self):
        c, policy = self.serve(), project_write(self.w)
        posted = [c.post_start('p%d' % i, NAMESPACE, sandbox=policy, **self.how({})) for i in range(30)]
        for request in posted:
            self.assertEqual(c.result(request)['sandboxType'], 'linuxSeccomp')
        said = {c.wait_closed('p%d' % i).text for i in range(30)}
        self.assertEqual(len(said), 1)
        self.assertEqual({c.process('p%d' % i).exit_code for i in range(30)}, {0})

    def test_as_many_as_there_may_be(self):
        c = self.serve()
        policies = []
        for i in range(MOST + 1):
            os.mkdir('%s/%d' % (self.o, i))
            policies.append(context(restricted([ROOT, place('%s/%d' % (self.o, i), 'deny')]), self.w))
        posted = [c.post_start('p%d' % i, ['sleep', '1000'], sandbox=policies[i], **self.how({})) for i in range(MOST)]
        for request in posted:
            c.result(request)
        error = self.refusal(c, 'true', policies[MOST])
        self.assertError(error, -32603, 'at most 63 sandboxes with different policies may be busy at once beyond the '
                         'first of each session')
        others = [self.srv.session() for _ in range(3)]
        for n, other in enumerate(others):  # each session has one for itself
            self.start(other, 'q', 'echo ready; exec sleep 1000', policies[n])
            other.wait_output('q', 'ready')
            self.assertError(self.refusal(other, 'true', policies[MOST]), -32603)
        self.assertEqual(self.said(c, 'echo old', policies[0]), 'old\n')
        self.assertEqual(self.said(c, 'echo open', None), 'open\n')
        c.terminate('p7')
        c.wait_closed('p7')
        self.assertEqual(self.said(c, 'echo new', policies[MOST]), 'new\n')
        self.assertFalse(c.read('p8')['exited'])


@ours_only
class Shortage(Cells):
    def test_what_passes_is_not_said_of_the_host(self):
        """No descriptor is free while the server finds out what sandboxes can do here."""
        c = self.serve()
        c.sh('true')
        soft, hard = resource.prlimit(self.srv.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.srv.pid, resource.RLIMIT_NOFILE, (3, hard))
        error = c.start_error('p', ['/bin/true'], sandbox=read_only(self.w))
        self.assertEqual(error['code'], -32603, error)
        self.assertIn('Too many open files', error['message'])
        self.assertNotIn('cannot be enforced', error['message'])
        resource.prlimit(self.srv.pid, resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(self.said(c, ['echo', 'at once'], read_only(self.w)), 'at once\n')


class Disk(Cells):
    """What a policy looked at is looked at again before each start."""

    def test_a_protected_name_appears(self):
        c, policy = self.serve(), project_write(self.w)
        self.start(c, 'p', ['sleep', '1000'], policy)
        before = self.cell(c, policy)
        os.rmdir(self.w + '/.git')
        self.put('w/.git/HEAD', 'ref\n')
        self.assertNotEqual(self.cell(c, policy), before)
        self.assertEqual(self.said(c, 'cat .git/HEAD', policy), 'ref\n')
        self.assertDenied(c, 'echo x > .git/HEAD', policy, 'Read-only file system')

    def test_a_protected_name_is_replaced(self):
        self.put('w/.git/HEAD', 'old\n')
        c, policy = self.serve(), project_write(self.w)
        before = self.cell(c, policy)
        shutil.rmtree(self.w + '/.git')
        self.put('w/.git/HEAD', 'new\n')
        self.assertNotEqual(self.cell(c, policy), before)
        self.assertEqual(self.said(c, 'cat .git/HEAD', policy), 'new\n')
        self.assertDenied(c, 'echo x > .git/HEAD', policy, 'Read-only file system')

    def test_a_root_is_replaced(self):
        c, policy = self.serve(), project_write(self.w)
        before = self.cell(c, policy)
        os.rename(self.w, self.w + '.old')
        os.mkdir(self.w)
        self.assertNotEqual(self.cell(c, policy), before)
        self.assertEqual(self.said(c, 'echo x > x', policy), '')
        self.assertIn('x', self.names())
        self.assertNotIn('x', self.names(self.w + '.old'))

    def test_a_denied_file_appears(self):
        secret = self.w + '/secret'
        policy = project_write(self.w, more_entries=[place(secret, 'deny')])
        c = self.serve()
        self.start(c, 'p', ['sleep', '1000'], policy)
        before = self.cell(c, policy)
        os.rmdir(secret)
        self.put('w/secret', 'secret\n')
        self.assertNotEqual(self.cell(c, policy), before)
        self.assertNotEqual(self.run_in(c, 'cat secret', policy).exit_code, 0)

    def test_what_is_written_inside_changes_nothing(self):
        self.put_names()
        c, policy = self.serve(), project_write(self.w)
        before = self.cell(c, policy)
        self.said(c, 'mkdir -p a/b; echo x > a/b/c; mv a d; rm -r d; echo y > y', policy)
        self.put('w/host', 'from outside\n')
        self.assertEqual(self.cell(c, policy), before)

    def test_commands_of_the_old_cell_run_on(self):
        c, policy, gate = self.serve(), project_write(self.w), Gate(self.o)
        self.start(c, 'p', '%s; echo x > after; echo done' % gate.wait, policy)
        os.rmdir(self.w + '/.git')
        self.put('w/.git/HEAD', 'ref\n')
        self.assertEqual(self.said(c, 'echo new', policy), 'new\n')
        gate.open()
        self.assertEqual(c.wait_closed('p').text, 'done\n')


@ours_only
class End(Cells):
    def test_placeholders_are_gone_when_the_last_command_has_closed(self):
        c, policy = self.serve(), project_write(self.w)
        for tty in (False, True):
            self.start(c, 'long%d' % tty, 'echo ready; exec sleep 1000', policy, tty=tty)
            c.wait_output('long%d' % tty, 'ready')
            self.assertEqual(self.names(), ['.agents', '.codex', '.git'])
            self.said(c, 'true', policy)
            self.assertEqual(self.names(), ['.agents', '.codex', '.git'])
            c.terminate('long%d' % tty)
            c.wait_closed('long%d' % tty)
            self.assertEqual(self.names(), [])
        for how in ('true', 'false', 'sleep 0.05 & exit 3', 'kill -9 $$'):
            self.run_in(c, how, policy)
            wait_until(lambda: not self.names(), 'end of the placeholders')
        wait_until(lambda: not self.confined(), 'end of the idle cell', 20 * wire.SCALE)
        self.assertEqual(self.said(c, 'echo again', policy), 'again\n')

    def test_a_client_can_neither_see_nor_remove_a_placeholder(self):
        c, policy = self.serve(), project_write(self.w)
        gate = Gate(self.w)
        self.start(c, 'p', 'echo ready; %s; mkdir .git || echo refused' % gate.wait, policy)
        c.wait_output('p', 'ready')
        before = self.names()
        self.assertIn('.git', before)
        fs, git = Calls(c), self.w + '/.git'
        walk = {'maxDepth': 1, 'maxDirectories': 9, 'maxEntries': 9, 'followDirectorySymlinks': False}
        missing = (-32004, 'No such file or directory (os error 2)')
        for method, more in (('readDirectory', {}), ('canonicalize', {}), ('getMetadata', {}), ('walk', {'options': walk}),
                             ('remove', {'recursive': True, 'force': False})):
            self.assertEqual(fs.refused(method, git, **more), missing, method)
        self.assertEqual(fs.no_copy(git, self.w + '/copy', True), missing)
        fs.ask('remove', git, recursive=True, force=True)
        self.assertEqual(self.names(), before)
        gate.open()
        self.assertEqual(c.wait_closed('p').text[-8:], 'refused\n')

    def test_a_cell_is_used_again_in_a_row_of_quick_starts(self):
        c, policy = self.serve(), project_write(self.w)
        cells = [self.cell(c, policy) for _ in range(60)]
        self.assertLess(len(set(cells[-20:])), 20, 'a new cell for each')
        wait_until(lambda: not self.names(), 'end of the placeholders')

    def test_no_placeholder_in_temporary_directories(self):
        t = self.scratch()
        c, policy = self.serve(), workspace_write(self.w)
        before = {name for name in os.listdir('/tmp') if name.startswith('.')}
        self.start(c, 'p', 'echo ready; exec sleep 1000', policy, env={'TMPDIR': t, 'PATH': '/usr/bin:/bin'})
        c.wait_output('p', 'ready')
        self.assertEqual(self.names(t), [])
        made = {name for name in os.listdir('/tmp') if name.startswith('.')} - before
        self.assertEqual(made & {'.git', '.agents', '.codex', '.aws', '.sallyport'}, set())
        self.assertEqual(self.names(), ['.agents', '.codex', '.git'])

    def test_a_busy_cell_and_one_without_placeholders_stay(self):
        c = self.serve()
        self.start(c, 'p', ['sleep', '1000'], project_write(self.w))
        quiet = self.cell(c, read_only(self.w))
        time.sleep(3)
        self.assertEqual(len(self.confined()), 2)
        self.assertIn('.codex', self.names())
        self.assertEqual(self.cell(c, read_only(self.w)), quiet)

    def test_an_own_file_in_a_placeholders_place_is_kept(self):
        c, policy = self.serve(), project_write(self.w)
        self.start(c, 'p', ['sleep', '1000'], policy)
        os.chmod(self.w + '/.codex', 0o755)
        self.put('w/.codex/config', 'mine\n')
        self.srv.stop()
        self.assertEqual(self.names(), ['.codex'])
        self.assertEqual(self.names(self.w + '/.codex'), ['config'])

    def test_the_server_ends(self):
        c, policy = self.serve(), project_write(self.w)
        self.start(c, 'p', LEFT + 'exec sleep 1000', policy)
        self.srv.stop(signal.SIGTERM)
        self.assertEqual(self.names(), [])

    def test_everything_is_killed(self):
        c, policy = self.serve(), project_write(self.w)
        self.start(c, 'p', LEFT + 'exec sleep 1000', policy)
        self.assertIn('.codex', self.names())
        self.srv.stop(signal.SIGKILL, -signal.SIGKILL)  # looks that no process is left
        self.serve()  # cleans up after it, unless a server of another test has done so by now
        self.assertEqual(self.names(), [])

    def test_two_servers_share_a_place(self):
        c, policy = self.serve(), project_write(self.w)
        first = self.srv
        self.start(c, 'p', ['sleep', '1000'], policy)
        d = self.serve()
        self.assertEqual(self.said(d, 'echo x > x', policy), '')
        first.stop()
        self.assertNotEqual(self.run_in(d, 'mkdir .codex || echo x > .codex/x', policy).exit_code, 0)
        self.srv.stop()
        self.assertEqual(self.names(), ['x'])

    def test_what_a_command_left_lives_until_the_session_ends(self):
        c, policy = self.serve('--session-ttl', '1'), project_write(self.w)
        self.said(c, LEFT + 'echo left', policy)
        before = self.cell(c, policy)
        time.sleep(3)
        self.assertEqual(self.cell(c, policy), before)
        self.assertEqual(self.said(c, 'cat /proc/[0-9]*/comm | grep -c sleep', policy), '1\n')
        cells = self.confined()
        self.assertEqual(len(cells), 1)
        c.close()
        self.assertGone(*cells)
        wait_until(lambda: not self.names(), 'end of the placeholders')

    def test_a_cell_is_killed_from_outside(self):
        c, policy = self.serve(), project_write(self.w)
        other = self.cell(c, read_only(self.w))
        for process_id, tty in (('p', False), ('q', True)):
            self.start(c, process_id, 'echo ready; exec sleep 1000', policy, tty=tty)
            c.wait_output(process_id, 'ready')
        wait_until(lambda: len(self.sleepers()) == 2, 'both to be asleep')  # the shell says ready before its exec
        busy = {stat_of(pid)[1] for pid in self.sleepers()}
        self.assertEqual(len(busy), 1)
        os.kill(busy.pop(), signal.SIGKILL)
        for process_id in ('p', 'q'):
            process = c.wait_closed(process_id)
            self.assertEqual(process.exit_code, -1)
            self.assertIs(self.denied(c, process), False)
            self.assertIn('ready', process.text)
        self.assertEqual(self.said(c, 'echo next', policy), 'next\n')
        self.assertEqual(self.cell(c, read_only(self.w)), other)

    def sleepers(self):
        return [pid for pid in descendants(self.srv.pid) if name_of(pid) == 'sleep 1000' and is_alive(pid)]

    def test_the_session_ends(self):
        c, policy = self.serve('--session-ttl', '1'), project_write(self.w)
        other = self.srv.session()
        self.start(c, 'p', ['sleep', '1000'], policy)
        self.start(other, 'p', ['sleep', '1000'], policy)
        self.assertEqual(len(self.confined()), 2)
        c.close()
        wait_until(lambda: len(self.confined()) == 1, 'end of the cell of the ended session')
        self.assertFalse(other.read('p')['exited'])
        self.assertIn('.codex', self.names())


@ours_only
class Journal(Cells):
    def test_a_directory_that_somebody_else_can_write_is_not_used(self):
        if IS_ROOT:
            self.skipTest('root has a directory of its own')
        self.runtime = self.scratch()
        os.mkdir(self.runtime + '/sallyport')
        os.chmod(self.runtime + '/sallyport', 0o777)
        c = self.serve()
        self.assertEqual(self.said(c, 'echo works', project_write(self.w)), 'works\n')
        self.assertEqual(os.listdir(self.runtime + '/sallyport'), [])


if __name__ == '__main__':
    tap.main()
