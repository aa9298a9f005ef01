# SPDX-License-Identifier: Apache-2.0
"""File methods without a sandbox: every option, limit, error and rule about links."""

import os
import stat

import tap
from fs_ground import (BIG, DENIED, EXISTS, HAS_LINK, IS_DIR, LOOP, NO_FILE, NOT_DIR, WALK, Calls, FsCase)
from server import ours_only
from wire import b64, file_uri, unb64

IS_ROOT = os.getuid() == 0
PATH_METHODS = {'readFile': {}, 'writeFile': {'dataBase64': ''}, 'createDirectory': {}, 'getMetadata': {}, 'canonicalize': {},
                'readDirectory': {}, 'walk': {'options': WALK}, 'remove': {}, 'open': {'handleId': 'x'}}


class Params(FsCase):
    """What is the same in all methods."""

    def test_a_path_is_needed_and_is_a_uri(self):
        for method, more in PATH_METHODS.items():
            with self.subTest(method):
                self.assertEqual(self.client.error('fs/' + method, more)['code'], -32602)
                for bad in (None, 7, '', '/tmp', 'http://x/y', 'file:///a?b', 'file:///a#b', 'file:///a%00b', ['file:///a']):
                    self.assertEqual(self.client.error('fs/' + method, dict(more, path=bad))['code'], -32602, bad)

    def test_both_paths_of_a_copy_are_needed(self):
        good = {'sourcePath': file_uri(self.make('a')), 'destinationPath': file_uri(self.at('b')), 'recursive': False}
        for name in good:
            for bad in ({k: v for k, v in good.items() if k != name}, dict(good, **{name: None}), dict(good, **{name: 'x'})):
                self.assertEqual(self.client.error('fs/copy', bad)['code'], -32602, bad)
        self.assertFalse(os.path.exists(self.at('b')))

    def test_a_foreign_path_is_not_usable_here(self):
        for uri, name in (('file:///C:/x', 'file:///C:/x'), ('file:///c:/x', 'file:///C:/x'), ('file://server/share', None)):
            for method, more in PATH_METHODS.items():
                code, text = self.fs.refused(method, uri, **more)
                self.assertEqual(code, -32600, (method, uri))
                self.assertRegex(text, r"^'file://.*' is invalid on 'linux'$")
                if name:
                    self.assertEqual(text, "'%s' is invalid on 'linux'" % name)
        a = file_uri(self.make('a'))
        for source, target in (('file:///C:/x', a), (a, 'file:///C:/x')):
            self.assertEqual(self.fs.no_copy(source, target), (-32600, "'file:///C:/x' is invalid on 'linux'"))

    def test_options_are_booleans_or_null(self):
        a = self.make('a')
        for method, option in (('readFile', 'followSymlinks'), ('writeFile', 'followSymlinks'), ('getMetadata', 'followSymlinks'),
                               ('createDirectory', 'followSymlinks'), ('createDirectory', 'recursive'),
                               ('remove', 'recursive'), ('remove', 'force'), ('remove', 'followSymlinks')):
            for bad in (1, 'true', [], {}):
                code, _text = self.fs.refused(method, a, **dict(PATH_METHODS[method], **{option: bad}))
                self.assertEqual(code, -32602, (method, option, bad))
        self.assertEqual(self.content('a'), b'content')
        self.assertEqual(self.fs.read(a, followSymlinks=None), b'content')
        self.fs.ask('remove', a, recursive=None, force=None, followSymlinks=None)
        self.assertFalse(os.path.exists(a))

    def test_params_are_decoded_before_the_state_is_looked_at(self):
        early = self.srv.connect()
        a = file_uri(self.make('a'))
        self.assertEqual(early.error('fs/readFile', {})['code'], -32602)
        self.assertError(early.error('fs/readFile', {'path': a}), -32600,
                         'client must call initialize before using filesystem methods')
        early.initialize()
        self.assertError(early.error('fs/readFile', {'path': a}), -32600,
                         'client must send initialized before using filesystem methods')
        for method, params in (('fs/close', {'handleId': 'x'}), ('fs/readBlock', {'handleId': 'x', 'offset': 0, 'len': 1}),
                               ('fs/writeBlock', {'handleId': 'x', 'offset': 0, 'chunk': 'eA=='}),
                               ('fs/watchMissing', {'watchId': 1, 'missing': []})):
            self.assertError(early.error(method, params), -32600,
                             'client must send initialized before using filesystem methods')

    def test_unknown_members_do_not_matter(self):
        self.assertEqual(self.fs.read(self.make('a'), since={'a': [1]}, sandbox=None), b'content')

    def test_names_of_any_bytes(self):
        for name in (b'caf\xe9', b'\xff\xfe', 'caf\u00e9 \u2603'.encode(), b'a b%c?d#e"f\\g', b'line\nbreak\ttab', b'C:'):
            path = os.path.join(os.fsencode(self.d), name)
            uri = 'file://' + ''.join(chr(c) if chr(c).isalnum() and c < 128 or c == 0x2f else '%%%02X' % c for c in path)
            self.fs.write(uri, name)
            with open(path, 'rb') as f:
                self.assertEqual(f.read(), name)
            self.assertEqual(self.fs.read(uri), name)
            self.assertTrue(self.fs.stat(uri)['isFile'])
            self.assertEqual(unb64(self.fs.ask('readFile', self.fs.ask('canonicalize', uri)['path'])['dataBase64']), name)
            self.fs.ask('remove', uri, force=False)
            self.assertEqual(os.listdir(self.d), [])

    def test_slashes_and_dots_in_a_path(self):
        self.make('x/a')
        for spelling in ('/x//a', '//x/./a', '/x/y/../a', '/x/%2e/a', '/x%2Fa', '/./x/a', '/x/a/', '/x/a//'):
            self.assertEqual(self.fs.read(file_uri(self.d) + spelling), b'content', spelling)
        self.make('link', 'x')
        self.assertTrue(self.fs.stat(file_uri(self.d) + '/link/')['isSymlink'])
        self.fs.write(file_uri(self.d) + '/new/', b'1')
        self.fs.ask('remove', file_uri(self.d) + '/link/')
        self.assertEqual((self.content('new'), self.content('x/a'), os.path.lexists(self.at('link'))), (b'1', b'content', False))

    def test_a_path_that_is_too_long(self):
        long_name, long_path = self.at('n' * 256), '/' + 'd/' * 2500
        self.assertEqual(self.fs.refused('readFile', long_name), (-32603, 'Filename too long (os error 36)'))
        for method, more in PATH_METHODS.items():
            with self.subTest(method):
                code, text = self.fs.refused(method, long_path, **more)
                self.assertEqual((code, '(os error 36)' in text), (-32603, True), text)
        self.assertEqual(self.fs.no_copy(self.make('a'), long_path)[0], -32603)

    def test_a_directory_that_may_not_be_searched(self):
        if IS_ROOT:
            self.skipTest('root may')
        self.make('closed/a')
        os.chmod(self.at('closed'), 0)
        self.addCleanup(os.chmod, self.at('closed'), 0o700)
        for method, more in PATH_METHODS.items():
            if method != 'walk':
                self.assertEqual(self.fs.refused(method, self.at('closed/a'), **more), DENIED, method)

    @ours_only
    def test_over_every_transport(self):
        a = self.make('a')
        unix = self.server(listen='unix://' + self.at('socket'))
        stdio = self.server(listen='stdio')
        for client in (unix.lines().handshake(), stdio.lines().handshake()):
            fs = Calls(client)
            self.assertEqual(fs.read(a), b'content')
            fs.write(self.at('big'), b'0123456789' * 500000)
            self.assertEqual(fs.read(self.at('big')), b'0123456789' * 500000)
            self.assertEqual(fs.refused('readFile', self.at('nothing')), NO_FILE)
            fs.open('h', a)
            self.assertEqual(fs.block('h'), (b'content', True))
            self.assertTrue(fs.watch(1, self.at('new')))
            self.make('new')
            self.assertEqual(fs.wait_fired(1), [1])
            os.remove(self.at('new'))
            self.assertEqual([n for n, _k in fs.names(self.d) if n != 'socket'], ['a', 'big'])
            fs.ask('remove', self.at('big'))
        stdio.out.close()


class ReadFile(FsCase):
    def test_sizes_around_the_window(self):
        for size in (0, 1, 3, 4095, BIG - 1, BIG, BIG + 1, 3 * BIG + 7):
            data = os.urandom(4096) * (size // 4096 + 1)
            path = self.make('s', data[:size])
            self.assertEqual(self.fs.read(path), data[:size], size)
            self.assertEqual(self.fs.read(path, followSymlinks=False), data[:size], size)

    def test_files_of_proc_are_read_to_their_end(self):
        for path in ('/proc/version', '/proc/cpuinfo', '/proc/filesystems'):
            with open(path, 'rb') as f:
                self.assertEqual(self.fs.read(path), f.read())
        self.assertTrue(self.fs.read('/proc/self/mountinfo'))

    def test_what_is_not_a_file_is_refused(self):
        os.mkfifo(self.at('fifo'))
        self.make('dir', None)
        for path in (self.at('fifo'), self.at('dir'), '/dev/null', '/dev/zero', '/dev'):
            self.assertEqual(self.fs.refused('readFile', path), (-32600, 'path `%s` is not a file' % path))
            self.assertEqual(self.fs.refused('readFile', path, followSymlinks=False), (-32600, 'path is not a regular file'))

    def test_the_limit(self):
        path = self.at('sparse')
        with open(path, 'wb') as f:
            f.truncate((512 << 20) + 1)
        too_large = (-32600, 'file is too large to read: limit is 536870912 bytes')
        self.assertEqual(self.fs.refused('readFile', path), too_large)
        self.assertEqual(self.fs.refused('readFile', path, followSymlinks=False), too_large)

    def test_errors(self):
        self.make('a')
        self.make('broken', 'nowhere')
        self.make('loop', 'loop')
        self.assertEqual(self.fs.refused('readFile', self.at('nothing')), NO_FILE)
        self.assertEqual(self.fs.refused('readFile', self.at('broken')), NO_FILE)
        self.assertEqual(self.fs.refused('readFile', self.at('a/b')), NOT_DIR)
        self.assertEqual(self.fs.refused('readFile', self.at('loop')), LOOP)

    def test_one_that_may_not_be_read(self):
        if IS_ROOT:
            self.skipTest('root may')
        path = self.make('secret')
        os.chmod(path, 0)
        self.assertEqual(self.fs.refused('readFile', path), DENIED)

    def test_the_text_of_an_error_is_text(self):
        os.mkdir(os.path.join(os.fsencode(self.d), b'caf\xe9'))
        code, text = self.fs.refused('readFile', file_uri(self.d) + '/caf%E9')
        self.assertEqual((code, text), (-32600, 'path `%s/caf\ufffd` is not a file' % self.d))


class WriteFile(FsCase):
    def test_sizes_around_the_window(self):
        for size in (0, 1, 2, BIG - 1, BIG, BIG + 1, 5 * BIG + 1):
            data = (os.urandom(4096) * (size // 4096 + 1))[:size]
            self.fs.write(self.at('s'), data)
            self.assertEqual(self.content('s'), data, size)

    def test_a_new_file_has_the_mode_of_the_umask(self):
        mask = os.umask(0)
        os.umask(mask)
        self.fs.write(self.at('new'), b'x')
        self.assertEqual(stat.S_IMODE(os.stat(self.at('new')).st_mode), 0o666 & ~mask)

    def test_an_existing_one_keeps_inode_and_mode(self):
        path = self.make('old', b'a long content')
        os.chmod(path, 0o751)
        before = os.stat(path)
        self.fs.write(path, b'short')
        after = os.stat(path)
        self.assertEqual((self.content('old'), after.st_ino, after.st_mode), (b'short', before.st_ino, before.st_mode))

    def test_a_dangling_link_gets_its_target(self):
        self.make('link', 'target')
        self.fs.write(self.at('link'), b'x')
        self.assertTrue(os.path.islink(self.at('link')))
        self.assertEqual(self.content('target'), b'x')

    def test_bad_base64(self):
        path = self.make('a')
        for bad, why in (('!!!!', 'Invalid symbol 33, offset 0.'), ('A', 'Invalid input length: 1'), ('AA=A', None),
                         ('AAA', 'Invalid padding'), ('A===', None), ('AAAA=', None), ('AA A', None), ('\u00e9AAA', None)):
            code, text = self.fs.refused('writeFile', path, dataBase64=bad)
            self.assertEqual(code, -32600, bad)
            self.assertTrue(text.startswith('fs/writeFile requires valid base64 dataBase64: '), text)
            if why:
                self.assertEqual(text, 'fs/writeFile requires valid base64 dataBase64: ' + why)
        big = b64(b'x' * (BIG + 3))
        self.assertEqual(self.fs.refused('writeFile', path, dataBase64=big[:-1] + '!')[0], -32600)
        self.assertEqual(self.content('a'), b'content')
        for bad in ({}, {'dataBase64': None}, {'dataBase64': 5}):
            self.assertEqual(self.fs.refused('writeFile', path, **bad)[0], -32602)
        self.assertEqual(self.content('a'), b'content')

    def test_errors(self):
        self.make('a')
        self.make('dir', None)
        self.make('loop', 'loop')
        self.assertEqual(self.fs.no_write(self.at('no/x')), NO_FILE)
        self.assertFalse(os.path.exists(self.at('no')), 'parents are not made')
        self.assertEqual(self.fs.no_write(self.at('dir')), IS_DIR)
        self.assertEqual(self.fs.no_write(self.at('a/x')), NOT_DIR)
        self.assertEqual(self.fs.no_write(self.at('loop')), LOOP)

    @ours_only
    def test_a_full_disk_and_a_pipe_without_a_reader(self):
        self.assertEqual(self.fs.no_write('/dev/full', b'x'), (-32603, 'No space left on device (os error 28)'))
        os.mkfifo(self.at('fifo'))
        self.assertEqual(self.fs.no_write(self.at('fifo'), b'x'), (-32603, 'No such device or address (os error 6)'))


class CreateDirectory(FsCase):
    def test_recursive_is_the_default(self):
        self.assertEqual(self.fs.ask('createDirectory', self.at('x/y/z')), {})
        self.assertEqual(self.fs.ask('createDirectory', self.at('x/y/z')), {})
        self.assertEqual(self.fs.ask('createDirectory', self.at('x/y/w/'), recursive=True), {})
        self.assertEqual(self.fs.names(self.at('x/y')), [('w', 'd'), ('z', 'd')])

    def test_one_at_a_time(self):
        self.assertEqual(self.fs.ask('createDirectory', self.at('x'), recursive=False), {})
        self.assertEqual(self.fs.refused('createDirectory', self.at('x'), recursive=False), EXISTS)
        self.assertEqual(self.fs.refused('createDirectory', self.at('no/x'), recursive=False), NO_FILE)
        self.assertEqual(self.fs.refused('createDirectory', '/', recursive=False), EXISTS)

    def test_the_mode_is_that_of_the_umask(self):
        mask = os.umask(0)
        os.umask(mask)
        self.fs.ask('createDirectory', self.at('x/y'))
        for name in ('x', 'x/y'):
            self.assertEqual(stat.S_IMODE(os.stat(self.at(name)).st_mode), 0o777 & ~mask)

    def test_something_in_the_way(self):
        self.make('f')
        self.make('broken', 'nowhere')
        for follow in (True, False):
            self.assertEqual(self.fs.refused('createDirectory', self.at('f/g'), followSymlinks=follow), NOT_DIR)
            code, _text = self.fs.refused('createDirectory', self.at('f'), followSymlinks=follow)
            self.assertEqual(code, -32603)
        self.assertEqual(self.fs.refused('createDirectory', self.at('f')), EXISTS)
        self.assertEqual(self.fs.refused('createDirectory', self.at('broken')), EXISTS)

    def test_through_links(self):
        self.make('real', None)
        self.make('link', 'real')
        self.fs.ask('createDirectory', self.at('link/x/y'))
        self.assertTrue(os.path.isdir(self.at('real/x/y')))
        self.assertEqual(self.fs.ask('createDirectory', self.at('link')), {})


class GetMetadata(FsCase):
    def test_the_six_members(self):
        path = self.make('a', b'12345')
        got = self.fs.stat(path)
        self.assertEqual(list(got), ['isDirectory', 'isFile', 'isSymlink', 'size', 'createdAtMs', 'modifiedAtMs'])
        self.assertEqual((got['isDirectory'], got['isFile'], got['isSymlink'], got['size']), (False, True, False, 5))
        self.assertEqual(got['modifiedAtMs'], os.stat(path).st_mtime_ns // 1000000)

    def test_times_before_1970_and_far_away(self):
        path = self.make('a')
        for seconds in (0, -1000, 4000000000):
            os.utime(path, (seconds, seconds))
            self.assertIn(self.fs.stat(path)['modifiedAtMs'], (seconds * 1000, max(seconds, 0) * 1000))

    @ours_only
    def test_the_birth_is_told_either_way(self):
        path = self.make('a')
        following, strict = self.fs.stat(path), self.fs.stat(path, followSymlinks=False)
        self.assertEqual(following, strict)
        self.assertLessEqual(following['createdAtMs'], following['modifiedAtMs'])

    def test_kinds(self):
        os.mkfifo(self.at('fifo'))
        self.make('dir', None)
        self.make('a', b'12345')
        self.make('link', 'a')
        self.make('dirlink', 'dir')
        self.make('broken', 'nowhere')
        flags = lambda p: [k for k, v in self.fs.stat(p).items() if v is True]
        self.assertEqual(flags(self.at('dir')), ['isDirectory'])
        self.assertEqual(flags(self.at('dirlink')), ['isDirectory', 'isSymlink'])
        self.assertEqual(flags(self.at('link')), ['isFile', 'isSymlink'])
        self.assertEqual(self.fs.stat(self.at('link'))['size'], 5)
        self.assertEqual(flags(self.at('fifo')), [])
        self.assertEqual(flags('/dev/null'), [])
        self.assertEqual(flags('/'), ['isDirectory'])
        self.assertEqual(self.fs.refused('getMetadata', self.at('broken')), NO_FILE)
        self.assertEqual(self.fs.refused('getMetadata', self.at('nothing')), NO_FILE)
        self.assertEqual(self.fs.refused('getMetadata', self.at('a/b')), NOT_DIR)


class Canonicalize(FsCase):
    def test_links_and_encoding(self):
        self.make('dir name/sub', None)
        self.make('ln', 'dir name')
        self.make('abs', self.at('ln/sub'))
        want = {'path': file_uri(self.d) + '/dir%20name/sub'}
        for name in ('ln/sub', 'abs', 'ln//sub/', 'ln/sub/.'):
            self.assertEqual(self.fs.ask('canonicalize', self.at(name)), want, name)
        self.assertEqual(self.fs.ask('canonicalize', '/'), {'path': 'file:///'})

    def test_errors(self):
        self.make('a')
        self.make('loop', 'loop')
        self.make('broken', 'nowhere')
        for name, want in (('nothing', NO_FILE), ('no/thing', NO_FILE), ('broken', NO_FILE), ('a/b', NOT_DIR), ('loop', LOOP)):
            self.assertEqual(self.fs.refused('canonicalize', self.at(name)), want, name)

    @ours_only
    def test_a_name_like_a_drive(self):
        if not IS_ROOT:
            self.skipTest('only root can make one')
        os.mkdir('/Q:')
        self.addCleanup(os.rmdir, '/Q:')
        self.make('l', '/Q:')
        uri = self.fs.ask('canonicalize', self.at('l'))['path']
        self.assertEqual(uri, 'file:///%00/bad/path/' + b64(b'/Q:').rstrip('='))
        self.assertTrue(self.fs.stat(uri)['isDirectory'])
        self.assertEqual(self.fs.refused('getMetadata', 'file:///Q:'), (-32600, "'file:///Q:' is invalid on 'linux'"))


class ReadDirectory(FsCase):
    def test_kinds(self):
        for name, what in (('f', b''), ('sub', None), ('link', 'f'), ('dirlink', 'sub'), ('broken', 'nowhere'), ('.hid', b'')):
            self.make('d/' + name, what)
        os.mkfifo(self.at('d/fifo'))
        self.make('d/fifolink', 'fifo')
        self.assertEqual(self.fs.names(self.at('d')), [
            ('.hid', 'f'), ('dirlink', 'd'), ('f', 'f'), ('fifo', '-'), ('fifolink', '-'), ('link', 'f'), ('sub', 'd')])
        self.make('empty', None)
        self.assertEqual(self.fs.ask('readDirectory', self.at('empty')), {'entries': []})

    def test_in_the_order_of_the_directory(self):
        for i in range(300):
            self.make('d/%d' % i, b'')
        got = [e['fileName'] for e in self.fs.ask('readDirectory', self.at('d'))['entries']]
        self.assertEqual(got, os.listdir(self.at('d')))

    def test_names_that_are_not_text(self):
        os.mkdir(self.at('d'))
        for name in (b'caf\xe9', b'\xf0\x9f', b'tab\there', b'quote"back\\slash'):
            with open(os.path.join(os.fsencode(self.at('d')), name), 'wb'):
                pass
        names = [n for n, _k in self.fs.names(self.at('d'))]
        self.assertEqual(sorted(names), sorted(['caf\ufffd', '\ufffd', 'tab\there', 'quote"back\\slash']))

    def test_errors(self):
        self.make('a')
        self.assertEqual(self.fs.refused('readDirectory', self.at('a')), NOT_DIR)
        self.assertEqual(self.fs.refused('readDirectory', self.at('nothing')), NO_FILE)

    def test_the_limit(self):
        self.use_memory()
        os.mkdir(self.at('d'))
        where = os.open(self.at('d'), os.O_RDONLY)
        self.addCleanup(os.close, where)
        for i in range(50000):
            os.close(os.open('%d' % i, os.O_CREAT | os.O_WRONLY, dir_fd=where))
        self.assertEqual(len(self.fs.ask('readDirectory', self.at('d'))['entries']), 50000)
        os.close(os.open('more', os.O_CREAT | os.O_WRONLY, dir_fd=where))
        self.assertEqual(self.fs.refused('readDirectory', self.at('d')),
                         (-32603, 'fs/readDirectory returned 50001 entries; limit is 50000'))


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


class NoLinks(FsCase):
    """followSymlinks: false: no component may be one."""

    def setUp(self):
        super().setUp()
        self.make('real/sub/a', b'content')
        self.make('mid', 'real')
        self.make('real/end', 'sub/a')
        self.make('real/dir', 'sub')
        self.make('real/broken', 'nowhere')

    def strict(self, method, name, **more):
        return self.fs.refused(method, self.at(name), followSymlinks=False, **dict(PATH_METHODS[method], **more))

    def test_a_link_in_the_middle(self):
        for method in ('readFile', 'writeFile', 'createDirectory', 'getMetadata'):
            for name in ('mid/sub/a', 'mid/end', 'real/dir/a', 'mid/new'):
                self.assertEqual(self.strict(method, name), NOT_DIR, (method, name))
        self.assertEqual(self.strict('remove', 'mid/sub/a', recursive=False), NOT_DIR)
        self.assertEqual(sorted(os.listdir(self.at('real'))), ['broken', 'dir', 'end', 'sub'])
        self.assertEqual(self.content('real/sub/a'), b'content')

    def test_a_link_at_the_end(self):
        for name in ('real/end', 'real/broken'):
            self.assertEqual(self.strict('readFile', name), LOOP)
            self.assertEqual(self.strict('writeFile', name), LOOP)
            self.assertEqual(self.strict('getMetadata', name), HAS_LINK)
            self.assertEqual(self.strict('remove', name, recursive=False), HAS_LINK)
        self.assertFalse(os.path.lexists(self.at('real/nowhere')))
        self.assertEqual(self.strict('getMetadata', 'real/dir'), HAS_LINK)
        self.assertEqual(self.strict('createDirectory', 'real/dir')[0], -32603)
        self.assertEqual(self.strict('createDirectory', 'real/dir', recursive=False), EXISTS)

    def test_without_links_all_is_as_ever(self):
        path, new = self.at('real/sub/a'), self.at('real/sub/new')
        self.assertEqual(self.fs.read(path, followSymlinks=False), b'content')
        self.fs.write(path, b'other', followSymlinks=False)
        self.fs.write(new, b'new', followSymlinks=False)
        self.assertEqual((self.content('real/sub/a'), self.content('real/sub/new')), (b'other', b'new'))
        self.assertTrue(self.fs.stat(path, followSymlinks=False)['isFile'])
        self.fs.ask('createDirectory', self.at('real/x/y'), followSymlinks=False)
        self.fs.ask('createDirectory', self.at('real/x/y'), followSymlinks=False)
        self.fs.ask('createDirectory', self.at('real/x/z'), followSymlinks=False, recursive=False)
        self.assertEqual(self.fs.names(self.at('real/x')), [('y', 'd'), ('z', 'd')])
        self.assertEqual(self.strict('createDirectory', 'real/x/z', recursive=False), EXISTS)
        self.assertEqual(self.strict('createDirectory', 'real/no/z', recursive=False), NO_FILE)
        self.assertEqual(self.strict('readFile', 'real/nothing'), NO_FILE)
        self.assertEqual(self.strict('writeFile', 'no/x'), NO_FILE)
        self.assertEqual(self.strict('getMetadata', 'real/nothing'), NO_FILE)
        self.assertEqual(self.strict('writeFile', 'real/sub'), IS_DIR)


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
            with open(os.path.join(os.fsencode(self.at('n')), name), 'wb'):
                pass
        self.assertEqual([n for n, _k in self.tree('n')[0]], ['n/%2541', 'n/caf%E9', 'n/line%0Afeed', 'n/tab%09here'])

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
