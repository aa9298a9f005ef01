# SPDX-License-Identifier: Apache-2.0
"""Runs inside: what programs do with files, in the working directory and in $TMPDIR.

OTHER_ROOTS: more writable directories, separated by colons.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import tempfile
import unittest

ROOTS = [tempfile.gettempdir()] + [r for r in os.environ.get('OTHER_ROOTS', '').split(':') if r]
libc = ctypes.CDLL(None, use_errno=True)


def put(path, text='content'):
    with open(path, 'w') as f:
        f.write(text)
    return path


def get(path):
    with open(path) as f:
        return f.read()


def in_child(work):
    """Runs work() in a child; whether it returned without an exception."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


class Files(unittest.TestCase):
    def setUp(self):
        self.home = os.getcwd()
        self.d = tempfile.mkdtemp(dir=self.home)
        os.chdir(self.d)
        self.addCleanup(shutil.rmtree, self.d)
        self.addCleanup(os.chdir, self.home)

    def test_hard_links(self):
        put('a')
        os.mkdir('sub')
        os.link('a', 'b')
        os.link('a', 'sub/c')
        self.assertEqual(os.stat('a').st_nlink, 3)
        put('sub/c', 'new')
        self.assertEqual(get('a'), 'new')

    def test_renames(self):
        os.makedirs('x/y')
        os.makedirs('z')
        put('x/f')
        os.rename('x/f', 'z/f')          # between directories
        os.rename('x/y', 'z/y')          # a directory
        os.rename('z', 'x/z')            # a tree
        put('g', 'old')
        os.replace('x/z/f', 'g')         # over a file
        self.assertEqual(get('g'), 'content')
        self.assertEqual(sorted(os.listdir('x/z')), ['y'])

    def test_exchange(self):
        put('a', '1'), put('b', '2')
        if libc.renameat2(-100, b'a', -100, b'b', 2) != 0:
            self.skipTest('renameat2: ' + os.strerror(ctypes.get_errno()))
        self.assertEqual((get('a'), get('b')), ('2', '1'))

    def test_moves_between_roots(self):
        for root in ROOTS:
            there = tempfile.mkdtemp(dir=root)
            try:
                put('f', root)
                try:
                    os.rename('f', there + '/g')
                    os.rename(there + '/g', 'f')
                except OSError as e:
                    self.assertEqual(e.errno, errno.EXDEV)
                shutil.move('f', there + '/f')
                self.assertEqual(get(there + '/f'), root)
                self.assertFalse(os.path.exists('f'))
                os.makedirs('tree/of/some')
                put('tree/of/file')
                shutil.move('tree', there)
                shutil.move(there + '/tree', 'back')
                self.assertEqual(get('back/of/file'), 'content')
                shutil.rmtree('back')
            finally:
                shutil.rmtree(there)

    def test_deep_directories(self):
        depth = 120
        path = '/'.join(['directory-number-%03d' % i for i in range(depth)])
        os.makedirs(path)
        put(path + '/f')
        self.assertEqual(len(list(os.walk('.'))), depth + 1)

    def test_many_files(self):
        count = 5000
        os.mkdir('many')
        for i in range(count):
            os.close(os.open('many/%d' % i, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self.assertEqual(len(os.listdir('many')), count)
        for i in range(0, count, 2):
            os.rename('many/%d' % i, 'many/renamed-%d' % i)
        for name in os.listdir('many'):
            os.unlink('many/' + name)
        os.rmdir('many')

    def test_locks(self):
        now = fcntl.LOCK_EX | fcntl.LOCK_NB

        def another(lock):
            with open('lock', 'w') as g:
                lock(g, now)
        with open('lock', 'w') as f:
            fcntl.flock(f, now)
            self.assertFalse(in_child(lambda: another(fcntl.flock)))
            fcntl.flock(f, fcntl.LOCK_UN)
            self.assertTrue(in_child(lambda: another(fcntl.flock)))
            fcntl.lockf(f, now)
            self.assertFalse(in_child(lambda: another(fcntl.lockf)))

    def test_shared_mapping(self):
        put('m', '\0' * 8192)
        with open('m', 'r+b') as f, mmap.mmap(f.fileno(), 8192) as m:
            def write():
                m[4096:4101] = b'child'
            self.assertTrue(in_child(write))
            self.assertEqual(m[4096:4101], b'child')
            m.flush()
        self.assertEqual(get('m')[4096:4101], 'child')

    def test_symbolic_links(self):
        put('target')
        os.symlink('target', 'link')
        os.symlink('/etc/passwd', 'outside')
        os.symlink('nowhere', 'dangling')
        self.assertEqual(get('link'), 'content')
        self.assertIn('root', get('outside'))
        self.assertEqual(os.readlink('dangling'), 'nowhere')
        self.assertRaises(FileNotFoundError, get, 'dangling')
        os.rename('link', 'renamed')
        self.assertTrue(os.path.islink('renamed'))

    def test_fifo(self):
        os.mkfifo('pipe')
        pid = os.fork()
        if pid == 0:
            with open('pipe', 'w') as f:
                f.write('through')
            os._exit(0)
        self.assertEqual(get('pipe'), 'through')
        os.waitpid(pid, 0)

    def test_sparse_and_sizes(self):
        with open('s', 'wb') as f:
            f.seek(64 << 20)
            f.write(b'end')
            f.truncate(128 << 20)
        st = os.stat('s')
        self.assertEqual(st.st_size, 128 << 20)
        self.assertLess(st.st_blocks * 512, 1 << 20)
        os.truncate('s', 3)
        with open('s', 'r+b') as f:
            os.posix_fallocate(f.fileno(), 0, 8192)
            os.fsync(f.fileno())
        self.assertEqual(os.stat('s').st_size, 8192)

    def test_copying_calls(self):
        put('a', 'x' * 100000)
        with open('a', 'rb') as a, open('b', 'wb') as b:
            self.assertEqual(os.sendfile(b.fileno(), a.fileno(), 0, 100000), 100000)
        try:
            with open('a', 'rb') as a, open('c', 'wb') as c:
                os.copy_file_range(a.fileno(), c.fileno(), 100000)
            self.assertEqual(get('c'), get('a'))
        except OSError as e:
            if e.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV):
                raise
        self.assertEqual(get('b'), get('a'))

    def test_unnamed_file(self):
        try:
            fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
        except OSError as e:
            self.skipTest('O_TMPFILE: %s' % e)
        os.write(fd, b'named')
        follow = 0x400
        self.assertEqual(libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'now', follow), 0, ctypes.get_errno())
        os.close(fd)
        self.assertEqual(get('now'), 'named')

    def test_attributes(self):
        put('a')
        try:
            os.setxattr('a', 'user.note', b'hello')
        except OSError as e:
            if e.errno != errno.ENOTSUP:
                raise
            self.skipTest('no extended attributes on this file system')
        self.assertEqual(os.getxattr('a', 'user.note'), b'hello')
        self.assertEqual(os.listxattr('a'), ['user.note'])
        os.removexattr('a', 'user.note')

    def test_owner_mode_times(self):
        put('a')
        for mode in (0o600, 0o755, 0o4755, 0o444, 0o000, 0o644):
            os.chmod('a', mode)
            self.assertEqual(stat.S_IMODE(os.stat('a').st_mode), mode)
        os.chown('a', os.getuid(), os.getgid())
        os.symlink('a', 'l')
        os.lchown('l', os.getuid(), os.getgid())
        os.utime('a', ns=(10**18, 2 * 10**18))
        os.utime('l', (5, 6), follow_symlinks=False)
        self.assertEqual(os.stat('a').st_mtime_ns, 2 * 10**18)
        self.assertEqual(os.lstat('l').st_mtime, 6)
        shutil.copy2('a', 'b')
        self.assertEqual(os.stat('b').st_mtime_ns, 2 * 10**18)
        old = os.umask(0o077)
        os.umask(old)
        self.assertIn(old, (0o022, 0o002, 0o077, 0o027))

    def test_watching(self):
        fd = libc.inotify_init1(os.O_NONBLOCK)
        self.assertGreaterEqual(fd, 0)
        self.assertGreaterEqual(libc.inotify_add_watch(fd, b'.', 0x100), 0)  # IN_CREATE
        put('seen')
        self.assertIn(b'seen', os.read(fd, 4096))
        os.close(fd)

    def test_names(self):
        for name in ('with space', 'ünïcode', 'x' * 255, '-dash', 'new\nline', os.fsdecode(b'\xff\xfe')):
            put(name)
            os.rename(name, 'plain')
            os.unlink('plain')
        self.assertRaises(OSError, put, 'x' * 256)

    def test_temporary_files(self):
        with tempfile.NamedTemporaryFile() as f, tempfile.TemporaryDirectory() as d, tempfile.TemporaryFile() as g:
            f.write(b'1'), g.write(b'2')
            put(d + '/x')
            self.assertEqual(os.path.dirname(f.name), os.environ['TMPDIR'])
        self.assertFalse(os.path.exists(d))

    def test_space(self):
        self.assertGreater(os.statvfs('.').f_bavail, 0)
        self.assertGreater(shutil.disk_usage('.').free, 0)


if __name__ == '__main__':
    unittest.main()
