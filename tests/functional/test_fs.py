# SPDX-License-Identifier: Apache-2.0
"""File methods without a sandbox: every option, limit, error and rule about links."""

import os
import stat

import tap
from fs_ground import BIG, DENIED, EXISTS, HAS_LINK, IS_DIR, LOOP, NO_FILE, NOT_DIR, WALK, Calls, FsCase
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
                self.assertEqual((code, text), (-32603, 'Filename too long (os error 36)'))
        self.assertEqual(self.fs.no_copy(self.make('a'), long_path), (-32603, 'Filename too long (os error 36)'))

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


if __name__ == '__main__':
    tap.main()
