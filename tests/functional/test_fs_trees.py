# SPDX-License-Identifier: Apache-2.0
"""fs/remove, fs/copy and fs/walk without a sandbox: whole trees."""

import os
import stat

import tap
from fs_ground import EXISTS, HAS_LINK, IS_DIR, NO_FILE, NOT_DIR, WALK, FsCase
from server import ours_only
from wire import file_uri

IS_ROOT = os.getuid() == 0


class Remove(FsCase):
    def test_a_tree_is_the_default(self):
        self.make('d/e/f/g')
        self.make('d/h', 'e')
        self.assertEqual(self.fs.ask('remove', self.at('d')), {})
        self.assertEqual(os.listdir(self.d), [])

    def test_a_link_is_removed_itself(self):
        self.make('target/a')
        self.make('link', 'target')
        self.make('d/in', '../target')
        self.fs.ask('remove', self.at('link'))
        self.fs.ask('remove', self.at('d'))
        self.assertEqual(self.content('target/a'), b'content')
        self.assertEqual(os.listdir(self.d), ['target'])

    def test_force_hides_what_is_missing_and_no_more(self):
        self.make('f')
        self.assertEqual(self.fs.ask('remove', self.at('nothing')), {})
        self.assertEqual(self.fs.ask('remove', self.at('no/thing')), {})
        self.assertEqual(self.fs.refused('remove', self.at('nothing'), force=False), NO_FILE)
        self.assertEqual(self.fs.refused('remove', self.at('f/x')), NOT_DIR)

    def test_not_recursive(self):
        self.make('d/a')
        self.make('e', None)
        self.assertEqual(self.fs.refused('remove', self.at('d'), recursive=False), (-32603, 'Directory not empty (os error 39)'))
        self.assertEqual(self.fs.ask('remove', self.at('e'), recursive=False), {})
        self.assertEqual(self.fs.ask('remove', self.at('d/a'), recursive=False), {})
        self.assertEqual(self.fs.ask('remove', self.at('d'), recursive=False), {})

    def test_following_no_link(self):
        self.make('d/a')
        self.make('e', None)
        self.make('link', 'd')
        unsupported = (-32603, 'recursive no-follow removal is unsupported')
        for name in ('d', 'd/a', 'nothing', 'link'):
            self.assertEqual(self.fs.refused('remove', self.at(name), followSymlinks=False), unsupported)
        strict = {'followSymlinks': False, 'recursive': False}
        self.assertEqual(self.fs.refused('remove', self.at('link'), **strict), HAS_LINK)
        self.assertEqual(self.fs.refused('remove', self.at('link/a'), **strict), NOT_DIR)
        self.assertEqual(self.content('d/a'), b'content')
        self.assertEqual(self.fs.ask('remove', self.at('d/a'), **strict), {})
        self.assertEqual(self.fs.ask('remove', self.at('e'), **strict), {})
        self.assertEqual(self.fs.ask('remove', self.at('nothing'), **strict), {})
        self.assertEqual(self.fs.refused('remove', self.at('nothing'), force=False, **strict), NO_FILE)

    def test_deep_and_wide(self):
        self.use_memory()
        deep = self.d
        for _ in range(900):
            deep = os.path.join(deep, 'dd')
        os.makedirs(deep)
        for i in range(3000):
            self.make('wide/%d' % i, b'')
        self.fs.ask('remove', self.at('dd'))
        self.fs.ask('remove', self.at('wide'))
        self.assertEqual(os.listdir(self.d), [])

    @ours_only
    def test_the_root_is_not_removed(self):
        for options in ({}, {'recursive': False}, {'recursive': False, 'followSymlinks': False}):
            self.assertEqual(self.fs.refused('remove', '/', **options), (-32603, 'Resource busy (os error 16)'))


class Copy(FsCase):
    def test_a_file_keeps_its_mode_and_overwrites(self):
        path = self.make('a', b'12345')
        os.chmod(path, 0o750)
        self.make('b', b'something longer')
        self.fs.copy(path, self.at('b'))
        self.fs.copy(path, self.at('c'), recursive=True)
        for name in 'bc':
            self.assertEqual((self.content(name), stat.S_IMODE(os.stat(self.at(name)).st_mode)), (b'12345', 0o750))

    def test_large_sparse_and_endless_files(self):
        data = os.urandom(3 << 20)
        self.fs.copy(self.make('big', data), self.at('big2'))
        self.assertEqual(self.content('big2'), data)
        with open('/proc/filesystems', 'rb') as f:
            self.fs.copy('/proc/filesystems', self.at('p'))
            self.assertEqual(self.content('p'), f.read())

    @ours_only
    def test_a_file_onto_itself_stays(self):
        path = self.make('a', b'precious')
        os.link(path, self.at('hard'))
        self.make('link', 'a')
        for target in ('a', 'hard', 'link', './a'):
            self.assertEqual(self.fs.no_copy(path, self.at(target)), (-32600, 'fs/copy cannot copy a file to itself'))
            self.assertEqual(self.content('a'), b'precious')

    def test_a_tree_is_merged_into_what_is_there(self):
        self.make('d/e/f', b'1')
        self.make('d/l', 'e')
        self.make('d/x', b'new')
        os.mkfifo(self.at('d/fifo'))
        self.make('t/x', b'old')
        self.make('t/y', b'stays')
        self.fs.copy(self.at('d'), self.at('t'), recursive=True)
        self.assertEqual(self.fs.names(self.at('t')), [('e', 'd'), ('l', 'd'), ('x', 'f'), ('y', 'f')])
        self.assertEqual((self.content('t/e/f'), self.content('t/x'), self.content('t/y')), (b'1', b'new', b'stays'))
        self.assertEqual(os.readlink(self.at('t/l')), 'e')

    def test_a_directory(self):
        self.make('d/e/f', b'1')
        needs = (-32600, 'fs/copy requires recursive: true when sourcePath is a directory')
        inside = (-32600, 'fs/copy cannot copy a directory to itself or one of its descendants')
        self.make('into', 'd/e')
        self.assertEqual(self.fs.no_copy(self.at('d'), self.at('t')), needs)
        for target in ('d', 'd/e', 'd/e/new', 'd/new/newer', 'd/../d/x', 'into/x'):
            self.assertEqual(self.fs.no_copy(self.at('d'), self.at(target), recursive=True), inside, target)
        self.make('file')
        self.assertEqual(self.fs.no_copy(self.at('d'), self.at('file'), recursive=True)[0], -32603)
        self.assertEqual(sorted(os.listdir(self.at('d'))), ['e'])
        self.fs.copy(self.at('d'), self.at('new/er/x'), recursive=True)
        self.assertEqual(self.content('new/er/x/e/f'), b'1', 'what is above is made')

    def test_links(self):
        self.make('a')
        self.make('l', 'a')
        self.make('broken', 'nowhere')
        self.fs.copy(self.at('l'), self.at('l2'))
        self.fs.copy(self.at('broken'), self.at('b2'))
        self.assertEqual((os.readlink(self.at('l2')), os.readlink(self.at('b2'))), ('a', 'nowhere'))
        self.assertEqual(self.fs.no_copy(self.at('l'), self.at('a')), EXISTS)

    def test_other_kinds_and_errors(self):
        os.mkfifo(self.at('fifo'))
        self.make('a')
        self.make('dir', None)
        kinds = (-32600, 'fs/copy only supports regular files, directories, and symlinks')
        self.assertEqual(self.fs.no_copy(self.at('fifo'), self.at('x')), kinds)
        self.assertEqual(self.fs.no_copy('/dev/null', self.at('x')), kinds)
        self.assertEqual(self.fs.no_copy(self.at('nothing'), self.at('x')), NO_FILE)
        self.assertEqual(self.fs.no_copy(self.at('a'), self.at('no/x')), NO_FILE)
        self.assertEqual(self.fs.no_copy(self.at('a'), self.at('dir')), IS_DIR)
        self.assertEqual(self.fs.no_copy(self.at('a/x'), self.at('x')), NOT_DIR)
        self.assertFalse(os.path.exists(self.at('x')))


class Walk(FsCase):
    def tree(self, *args, **options):
        result = self.fs.walk(self.at(*args), **options)
        self.assertEqual(list(result), ['entries', 'errors', 'truncated'])
        base = file_uri(self.d) + '/'
        names = [(e['path'][len(base):], e['kind'][0]) for e in result['entries']]
        self.assertTrue(all(e['path'].startswith(base) for e in result['entries'] + result['errors']))
        return names, [(e['path'][len(base):], e['message']) for e in result['errors']], result['truncated']

    def setUp(self):
        super().setUp()
        for name, what in (('w/.hid/x', b''), ('w/a/b/g h', b''), ('w/a/f', b''), ('w/z', b''), ('w/Z', b''), ('w/la', 'a'),
                           ('w/lz', 'z'), ('w/broken', 'nowhere')):
            self.make(name, what)
        os.mkfifo(self.at('w/fifo'))

    def test_breadth_first_and_sorted(self):
        self.assertEqual(self.tree('w'), ([
            ('w/.hid', 'd'), ('w/Z', 'f'), ('w/a', 'd'), ('w/z', 'f'), ('w/.hid/x', 'f'), ('w/a/b', 'd'), ('w/a/f', 'f'),
            ('w/a/b/g%20h', 'f')], [], False))

    def test_directories_behind_links(self):
        names, errors, cut = self.tree('w', followDirectorySymlinks=True)
        self.assertEqual((errors, cut), ([], False))
        self.assertIn(('w/la', 'd'), names)
        self.assertNotIn(('w/la/f', 'f'), names, 'it was seen as w/a')
        self.make('w/a/up', '..')
        again, _errors, _cut = self.tree('w', followDirectorySymlinks=True)
        self.assertEqual(sorted(again), sorted(names + [('w/a/up', 'd')]), 'a circle ends')

    def test_hidden_directories(self):
        names, _errors, _cut = self.tree('w', pruneHiddenDirectories=True)
        self.assertIn(('w/.hid', 'd'), names)
        self.assertNotIn(('w/.hid/x', 'f'), names)

    def test_depth(self):
        self.assertEqual([n for n, _k in self.tree('w', maxDepth=0)[0]], ['w/.hid', 'w/Z', 'w/a', 'w/z'])
        self.assertNotIn(('w/a/b/g%20h', 'f'), self.tree('w', maxDepth=1)[0])
        self.assertIn(('w/a/b/g%20h', 'f'), self.tree('w', maxDepth=2)[0])

    def test_every_name_counts(self):
        # .hid Z a fifo la lz z: the broken link does not, the FIFO and the links do
        for n, want in ((1, ['w/.hid']), (2, ['w/.hid', 'w/Z']), (6, ['w/.hid', 'w/Z', 'w/a']), (7, ['w/.hid', 'w/Z', 'w/a', 'w/z'])):
            names, _errors, cut = self.tree('w', maxEntries=n, maxDepth=0)
            self.assertEqual(([name for name, _k in names], cut), (want, n < 7), n)

    def test_directories_are_counted_with_the_root(self):
        names, _errors, cut = self.tree('w', maxDirectories=1)
        self.assertEqual((len(names), cut), (4, True))
        names, _errors, cut = self.tree('w', maxDirectories=2)
        self.assertEqual((('w/.hid/x', 'f') in names, ('w/a/f', 'f') in names, cut), (True, False, True))
        self.assertFalse(self.tree('w', maxDirectories=4)[2])

    def test_limits(self):
        zero = (-32600, 'filesystem walk limits must be greater than zero')
        high = (-32600, 'filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000')
        for name in ('maxDirectories', 'maxEntries'):
            self.assertEqual(self.fs.refused('walk', self.at('w'), options=dict(WALK, **{name: 0})), zero)
        for name, most in (('maxDepth', 64), ('maxDirectories', 10000), ('maxEntries', 50000)):
            self.assertEqual(self.fs.refused('walk', self.at('w'), options=dict(WALK, **{name: most + 1})), high)
            self.assertEqual(self.fs.refused('walk', self.at('w'), options=dict(WALK, **{name: 1 << 40})), high)
        self.assertEqual(self.fs.refused('walk', self.at('nothing'), options=dict(WALK, maxEntries=0)), zero)

    def test_options_are_needed(self):
        for name in WALK:
            bad = {k: v for k, v in WALK.items() if k != name}
            self.assertEqual(self.fs.refused('walk', self.at('w'), options=bad)[0], -32602)
            for value in (-1, 1.5, 'x', None):
                self.assertEqual(self.fs.refused('walk', self.at('w'), options=dict(WALK, **{name: value}))[0], -32602)
        self.assertEqual(self.fs.refused('walk', self.at('w'))[0], -32602)
        self.assertEqual(self.fs.refused('walk', self.at('w'), options=None)[0], -32602)
        self.assertEqual(self.fs.refused('walk', self.at('w'), options=dict(WALK, pruneHiddenDirectories=None))[0], -32602)

    def test_roots(self):
        nothing = ([], [], False)
        self.assertEqual(self.fs.refused('walk', self.at('nothing'), options=WALK), NO_FILE)
        self.assertEqual(self.tree('w/z'), nothing)
        self.assertEqual(self.tree('w/la'), nothing)
        self.assertEqual(self.tree('w/fifo'), nothing)
        names, _errors, _cut = self.tree('w/la', followDirectorySymlinks=True)
        self.assertEqual(names, [('w/la/b', 'd'), ('w/la/f', 'f'), ('w/la/b/g%20h', 'f')])
        for end in ('/', '/.'):
            result = self.fs.walk(file_uri(self.at('w')) + end, maxDepth=0)
            self.assertEqual([e['path'] for e in result['entries']], [file_uri(self.at('w')) + '/' + n for n in ('.hid', 'Z', 'a', 'z')])

    def test_a_directory_that_cannot_be_read(self):
        if IS_ROOT:
            self.skipTest('root may')
        os.chmod(self.at('w/a'), 0)
        self.addCleanup(os.chmod, self.at('w/a'), 0o700)
        _names, errors, cut = self.tree('w')
        self.assertEqual((errors, cut), ([('w/a', 'Permission denied (os error 13)')], False))

    @ours_only
    def test_names_of_any_bytes(self):
        os.mkdir(self.at('n'))
        for name in (b'caf\xe9', b'tab\there', b'line\nfeed', b'%41'):
            with open(os.path.join(os.fsencode(self.at('n')), name), 'wb') as f:
                f.write(name)
        names, errors, cut = self.tree('n')
        self.assertEqual([n for n, _k in names], ['n/%2541', 'n/caf%E9', 'n/line%0Afeed', 'n/tab%09here'])
        self.assertEqual((errors, cut), ([], False))
        self.assertEqual([self.fs.read(e['path']) for e in self.fs.walk(self.at('n'))['entries']],
                         [b'%41', b'caf\xe9', b'line\nfeed', b'tab\there'])  # each URI leads to its own file

    def test_the_size_of_the_answer(self):
        self.use_memory()
        os.mkdir(self.at('many'))
        where = os.open(self.at('many'), os.O_RDONLY)
        self.addCleanup(os.close, where)
        name = lambda i: '%05d' % i + 'n' * 200
        for i in range(20000):
            os.close(os.open(name(i), os.O_CREAT | os.O_WRONLY, dir_fd=where))
        result = self.fs.walk(self.at('many'))
        cost = len(file_uri(self.at('many'))) + 1 + 205 + 64
        self.assertEqual((len(result['entries']), result['truncated']), ((4 << 20) // cost, True))
        names, _errors, cut = self.tree('many', maxEntries=100)
        self.assertEqual((len(names), cut), (100, True))


if __name__ == '__main__':
    tap.main()
