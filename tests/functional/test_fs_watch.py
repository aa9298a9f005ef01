# SPDX-License-Identifier: Apache-2.0
"""fs/watchMissing: who waits for paths that are not there is told once when that may have changed."""

import os

import tap
from fs_ground import Calls, FsCase, FsSandboxCase
from sandbox_policy import workspace_write
from server import fd_names, ours_only
from wire import wait_until


class Watching(FsCase):
    """What is answered."""

    def test_not_watched(self):
        self.make('have', b'')
        self.make('broken', 'nowhere')
        missing = [self.at('m%d' % i) for i in range(65)]
        self.assertFalse(self.fs.watch(1), 'nothing to wait for')
        self.assertFalse(self.fs.watch(1, *missing), 'more than 64')
        self.assertFalse(self.fs.watch(1, self.at('have')), 'one is there')
        self.assertFalse(self.fs.watch(1, self.at('a'), self.at('have'), self.at('b')), 'one of them is there')
        self.assertFalse(self.fs.watch(1, self.at('broken')), 'a link to nothing is there')
        self.assertFalse(self.fs.watch(1, self.at('a'), present=self.at('nothing')), 'what should be there is not')
        self.assertFalse(self.fs.watch(1, 'file:///C:/x'), 'foreign')
        self.assertFalse(self.fs.watch(1, self.at('a'), 'file://server/x'), 'foreign')
        self.assertFalse(self.fs.watch(1, self.at('a'), present='file:///C:/x'), 'foreign')
        self.assertFalse(self.fs.watch(1, '/'), 'the root is there')
        self.assertTrue(self.fs.watch(1, *missing[:64]), 'none of those has used the id up')
        self.make('m5')
        self.assertEqual(self.fs.wait_fired(1), [1])

    def test_an_id_is_free_again_when_it_has_been_told(self):
        self.assertTrue(self.fs.watch(7, self.at('x')))
        self.assertFalse(self.fs.watch(7, self.at('y')), 'in use')
        self.make('x')
        self.fs.wait_fired(7)
        self.assertTrue(self.fs.watch(7, self.at('y')))
        other = Calls(self.srv.session())
        self.assertTrue(other.watch(7, self.at('y')), 'an id belongs to its connection')
        self.make('y')
        self.assertEqual(other.wait_fired(7), [7])
        self.client.wait_for(lambda: len(self.fs.fired()) == 2)

    def test_params(self):
        good = {'watchId': 1, 'missing': ['file:///x/y']}
        for bad in ({}, {'watchId': 1}, {'missing': []}, dict(good, watchId=-1), dict(good, watchId='1'), dict(good, watchId=1.5),
                    dict(good, watchId=1 << 64), dict(good, missing='file:///x'), dict(good, missing=['/x']),
                    dict(good, missing=[5]), dict(good, missing=None), dict(good, present='/x'), dict(good, present=5)):
            self.assertEqual(self.client.error('fs/watchMissing', bad)['code'], -32602, bad)
        self.assertEqual(self.client.request('fs/watchMissing', dict(good, watchId=(1 << 64) - 1, present=None)), {'watching': True})

    def test_very_many(self):
        for i in range(300):
            self.assertTrue(self.fs.watch(i, self.at('d%d/x' % i), self.at('e%d' % i)))
        os.mkdir(self.at('d7'))
        self.assertEqual(self.fs.wait_fired(7), [7])
        for i in range(300):
            if i != 7:
                self.make('e%d' % i, b'')
        self.client.wait_for(lambda: len(self.fs.fired()) == 300, 'all of them')
        self.assertEqual(sorted(self.fs.fired()), list(range(300)))

    @ours_only
    def test_more_than_can_be_had(self):
        for i in range(1024):
            self.fs.post('watchMissing', watchId=i, missing=[Calls.path(self.at('x'))])
        self.client.wait_for(lambda: len(self.client.replies) == 1024)
        self.assertTrue(all(q[0]['result'] == {'watching': True} for q in self.client.replies.values()))
        self.client.replies.clear()
        self.assertFalse(self.fs.watch(5000, self.at('x')))
        self.assertTrue(Calls(self.srv.session()).watch(1, self.at('x')))
        self.make('x')
        self.client.wait_for(lambda: len(self.fs.fired()) == 1024)

    @ours_only
    def test_watches_end_with_their_connection(self):
        self.look_into(self.srv.pid)
        watched = lambda: sum(self.kernel_watches())
        self.assertTrue(self.fs.watch(1, self.at('stays/x')))
        before = watched()
        other = self.srv.session()
        for i in range(20):
            os.mkdir(self.at('o%d' % i))
            self.assertTrue(Calls(other).watch(i, self.at('o%d/x' % i)))
        self.assertGreaterEqual(watched(), 20)
        other.abort()
        wait_until(lambda: watched() <= before, 'end of the watches of the kernel')
        self.make('o3/x')
        self.make('stays', None)
        self.assertEqual(self.fs.wait_fired(1), [1])
        wait_until(lambda: watched() == 0, 'end of the watches of the kernel')

    @ours_only
    def test_none_is_left_of_a_watch_that_is_not_made(self):
        self.look_into(self.srv.pid)
        self.assertTrue(self.fs.watch(1, self.at('x')))
        before = self.kernel_watches()
        self.make('d/have')
        for i in range(20):
            self.assertFalse(self.fs.watch(2, self.at('d/n%d' % i), self.at('d/have')))
            self.assertFalse(self.fs.watch(2, self.at('d/n%d' % i), present=self.at('d/nothing')))
        wait_until(lambda: self.kernel_watches() == before, 'end of the watches of the kernel')

    def kernel_watches(self):
        """Of each inotify descriptor of the server: how much it watches."""
        found = []
        for fd in os.listdir('/proc/%d/fd' % self.srv.pid):
            try:
                if os.readlink('/proc/%d/fd/%s' % (self.srv.pid, fd)) == 'anon_inode:inotify':
                    with open('/proc/%d/fdinfo/%s' % (self.srv.pid, fd)) as f:
                        found.append(f.read().count('inotify wd:'))
            except OSError:
                pass
        return found

    @ours_only
    def test_one_descriptor_for_all(self):
        self.look_into(self.srv.pid)
        for i in range(5):
            self.assertTrue(Calls(self.srv.session()).watch(i, self.at('x')))
        self.assertEqual(fd_names(self.srv.pid).count('anon_inode:inotify'), 1)


class Firing(FsCase):
    """What is told, and what not."""

    def quiet(self, *ids):
        """None of these has been told, although everything that was done has been seen."""
        self.assertTrue(self.fs.watch(99999, self.at('a-fence')))
        self.make('a-fence', b'')
        self.fs.wait_fired(99999)
        os.remove(self.at('a-fence'))
        told = [i for i in self.fs.fired() if i in ids]
        self.assertEqual(told, [])
        self.client.notes.clear()

    def expect(self, watch_id):
        self.fs.wait_fired(watch_id)
        self.client.fence()
        self.assertEqual(self.fs.fired().count(watch_id), 1)
        self.client.notes.clear()

    def test_each_way_to_come(self):
        self.make('elsewhere', b'')
        self.make('elsedir/x', b'')
        ways = {'a file': lambda p: open(p, 'w').close(), 'a directory': os.mkdir, 'a link': lambda p: os.symlink('a', p),
                'a link to nothing': lambda p: os.symlink('nowhere', p), 'a FIFO': os.mkfifo,
                'another name': lambda p: os.link(self.at('elsewhere'), p),
                'a file renamed': lambda p: os.rename(self.at('elsewhere'), p),
                'a directory renamed': lambda p: os.rename(self.at('elsedir'), p)}
        for i, (what, way) in enumerate(ways.items()):
            with self.subTest(what):
                self.assertTrue(self.fs.watch(i, self.at('way%d' % i)))
                way(self.at('way%d' % i))
                self.expect(i)

    def test_an_ancestor_that_comes(self):
        self.assertTrue(self.fs.watch(1, self.at('a/b/c/d')))
        self.quiet(1)
        os.mkdir(self.at('a'))
        self.expect(1)
        self.assertTrue(self.fs.watch(2, self.at('a/b/c/d')))
        os.makedirs(self.at('tree/b/c'))
        os.rename(self.at('tree/b'), self.at('a/b'))
        self.expect(2)
        self.assertTrue(self.fs.watch(3, self.at('a/b/x/d')))
        self.make('a/b/x', b'no directory')
        self.expect(3)

    def test_siblings_are_nobody(self):
        self.assertTrue(self.fs.watch(1, self.at('a/b'), self.at('name')))
        for name in ('x', 'named', 'nam', 'b', 'aa'):
            self.make(name, b'')
            os.remove(self.at(name))
        self.make('other/name', b'')
        self.quiet(1)
        self.make('name', b'')
        self.expect(1)

    def test_it_is_told_once(self):
        self.assertTrue(self.fs.watch(1, self.at('a'), self.at('b')))
        self.make('a', b'')
        self.make('b', b'')
        os.remove(self.at('a'))
        self.make('a', b'')
        self.expect(1)
        self.quiet(1)

    def test_what_is_there_and_changes(self):
        changes = {
            'removed': os.remove,
            'renamed': lambda p: os.rename(p, p + '.old'),
            'replaced': lambda p: os.rename(self.make('spare', b'2'), p),
            'written': lambda p: open(p, 'w').close(),
            'mode': lambda p: os.chmod(p, 0o600),
        }
        for i, (what, change) in enumerate(changes.items()):
            with self.subTest(what):
                path = self.make('p%d/present' % i, b'1')
                self.assertTrue(self.fs.watch(i, self.at('p%d/nothing' % i), present=path))
                self.quiet(i)
                change(path)
                self.expect(i)

    def test_a_directory_that_is_there(self):
        os.mkdir(self.at('git'))
        self.assertTrue(self.fs.watch(1, self.at('nothing'), present=self.at('git')))
        os.rmdir(self.at('git'))
        self.expect(1)
        os.mkdir(self.at('git'))
        self.assertTrue(self.fs.watch(2, self.at('nothing'), present=self.at('git') + '/'))
        os.rename(self.at('git'), self.at('tig'))
        self.expect(2)

    def test_a_link_that_is_there(self):
        self.make('target', b'')
        self.make('link', 'target')
        self.assertTrue(self.fs.watch(1, self.at('nothing'), present=self.at('link')))
        os.remove(self.at('link'))
        self.expect(1)

    @ours_only
    def test_the_directory_itself_goes(self):
        for i, goes in enumerate((lambda p: os.rename(p, p + '.old'), os.rmdir)):
            os.mkdir(self.at('d%d' % i))
            self.assertTrue(self.fs.watch(i, self.at('d%d/x' % i)))
            goes(self.at('d%d' % i))
            self.expect(i)

    @ours_only
    def test_an_ancestor_that_is_renamed(self):
        os.makedirs(self.at('a/b/c'))
        self.make('new/b/c/x', b'')
        self.assertTrue(self.fs.watch(1, self.at('a/b/c/x')))
        os.rename(self.at('a'), self.at('old'))
        os.rename(self.at('new'), self.at('a'))
        self.expect(1)
        self.assertFalse(self.fs.watch(1, self.at('a/b/c/x')))
        self.make('p/q/here', b'')
        self.assertTrue(self.fs.watch(2, self.at('nothing'), present=self.at('p/q/here')))
        os.rename(self.at('p'), self.at('pp'))
        self.expect(2)

    @ours_only
    def test_a_link_on_the_way(self):
        self.make('one', None)
        self.make('two/x', b'')
        self.make('link', 'one')
        self.assertTrue(self.fs.watch(1, self.at('link/x')))
        self.quiet(1)
        self.make('one/x', b'')
        self.expect(1)
        os.remove(self.at('one/x'))
        self.assertTrue(self.fs.watch(2, self.at('link/x')))
        os.symlink('two', self.at('new'))
        os.rename(self.at('new'), self.at('link'))
        self.expect(2)
        self.make('dangling', 'nowhere')
        self.assertFalse(self.fs.watch(3, self.at('dangling/x')), 'it could appear anywhere')

    def test_a_file_on_the_way(self):
        self.make('f', b'')
        self.assertTrue(self.fs.watch(1, self.at('f/x')))
        os.remove(self.at('f'))
        os.mkdir(self.at('f'))
        self.expect(1)

    def test_while_it_is_being_watched(self):
        """Something that comes in the middle is told, or was there: never neither."""
        for i in range(200):
            path = self.at('n%d' % i)
            request = self.fs.post('watchMissing', watchId=i, missing=[Calls.path(path)])
            open(path, 'w').close()
            if self.client.result(request)['watching']:
                self.fs.wait_fired(i)
            os.remove(path)


@ours_only
class Placeholders(FsSandboxCase):
    """What stands in for protected names while confined commands run is nobody's business."""

    def test_they_are_not_there(self):
        quiet = [os.path.join(self.w, n) for n in ('.git', '.agents/skills', '.codex')]
        self.assertTrue(self.fs.watch(1, *quiet))
        policy = workspace_write(self.w)
        self.start(self.client, 'p', 'echo go; read x', policy, pipeStdin=True)
        self.client.wait_output('p', 'go')
        self.assertTrue(os.path.isdir(os.path.join(self.w, '.git')), 'it stands in')
        self.assertEqual(self.fs.names(self.w), [])
        self.assertEqual(self.fs.walk(self.w)['entries'], [])
        for name in ('.git', '.agents', '.codex', '.aws'):
            for follow in (True, False):
                self.assertEqual(self.fs.refused('getMetadata', os.path.join(self.w, name), followSymlinks=follow)[0], -32004)
        self.assertFalse(self.fs.watch(2, os.path.join(self.w, '.git')), 'it could become real without a sign')
        self.fs.copy(self.w, self.at('copy'), recursive=True)
        self.assertEqual(os.listdir(self.at('copy')), [])
        self.client.write('p', b'\n')
        self.client.wait_closed('p')
        self.client.fence()
        self.assertEqual(self.fs.fired(), [])

    def test_without_a_sandbox_they_can_become_real(self):
        policy = workspace_write(self.w)
        self.start(self.client, 'p', 'echo go; read x', policy, pipeStdin=True)
        self.client.wait_output('p', 'go')
        git, agents, codex = (os.path.join(self.w, n) for n in ('.git', '.agents', '.codex'))
        self.assertEqual(self.fs.no_write(os.path.join(codex, 'x'), b'')[0], -32004)
        self.fs.ask('createDirectory', git, recursive=False)
        self.fs.ask('createDirectory', os.path.join(agents, 'skills/demo'))
        self.fs.ask('createDirectory', codex, followSymlinks=False)
        self.fs.write(os.path.join(codex, 'x'), b'1')
        self.assertEqual(self.fs.names(self.w), [('.agents', 'd'), ('.codex', 'd'), ('.git', 'd')])
        self.client.write('p', b'\n')
        self.client.wait_closed('p')
        self.srv.stop()
        self.assertEqual(sorted(os.listdir(self.w)), ['.agents', '.codex', '.git'], 'what was made stays')
        self.assertEqual(os.listdir(agents), ['skills'])
        self.assertTrue(os.stat(git).st_mode & 0o200)


if __name__ == '__main__':
    tap.main()
