# SPDX-License-Identifier: Apache-2.0
"""A command that swaps a directory and a link as fast as it can, while the client works on paths through
them: nothing outside is ever read or changed."""

import os
import shutil
import subprocess
import time

import tap
import wire
from fs_ground import WALK, FsSandboxCase
from sandbox_policy import ROOT, context, place, restricted
from server import PYTHON, ours_only
from wire import b64, file_uri, unb64

# Exchanges w/x, a directory, and w/y, a link to O, for as long as it is let.
SWAP = r'''
import ctypes, os, sys
libc, w = ctypes.CDLL(None, use_errno=True), sys.argv[1].encode()
x, y = w + b"/x", w + b"/y"
n = 0
print("go", flush=True)
while True:
    if libc.syscall(316 if os.uname().machine == "x86_64" else 276, -100, x, -100, y, 2) != 0:
        if ctypes.get_errno() != 2:
            sys.exit("no exchange: %d" % ctypes.get_errno())
        for path, make in ((x, os.mkdir), (y, lambda p: os.symlink(sys.argv[2], p))):
            try:
                make(path)
            except OSError:
                pass
    n += 1
'''

# Text that tells where it stands, of one length after another.
RESIZE = r'''
import os, random, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
top = int(sys.argv[2])
text = b"".join(i.to_bytes(4, "big") for i in range(top // 4))
print("go", flush=True)
while True:
    os.ftruncate(f, 0)  # to a page's middle, the kernel would let readers see the zeros behind it
    at, end = 0, random.randrange(top)
    while at < end:
        at += os.pwrite(f, text[at:min(end, at + 65536)], at)
'''

ROUNDS = 1000
SECRET = b'outside\n'


@ours_only
class Swapped(FsSandboxCase):
    def setUp(self):
        super().setUp()
        self.put('w/x/f', 'inside\n')
        self.put('o/sub/g', 'outside\n')
        os.symlink(self.o, os.path.join(self.w, 'y'))
        # The command may do in W what it likes; O is nobody's.
        self.policy = context(restricted([ROOT, place(self.w, 'write'), place(self.o, 'deny')]), self.w)
        self.writes = context(restricted([ROOT, place(self.w, 'write')]), self.w)
        self.swapper = self.srv.session()
        self.start(self.swapper, 'swap', [PYTHON, '-c', SWAP, self.w, self.o], self.policy)
        self.swapper.wait_output('swap', 'go')
        self.before = self.outside()

    def outside(self):
        found = {}
        for d, _ds, fs in os.walk(self.o):
            for name in fs:
                with open(os.path.join(d, name), 'rb') as f:
                    found[os.path.join(d, name)] = (f.read(), os.lstat(os.path.join(d, name)).st_mode)
        return found

    def rounds(self, post, judge=lambda reply: None):
        """So many requests, a few at a time; how many of them succeeded."""
        done = 0
        for _ in range(ROUNDS // 20):
            for request in [post(i) for i in range(20)]:
                reply = self.client.reply(request)
                judge(reply)
                done += 'result' in reply
        self.assertEqual(self.outside(), self.before)
        self.assertFalse(self.swapper.process('swap').exited, self.swapper.process('swap').text)
        return done

    def test_reading(self):
        path = os.path.join(self.w, 'x/f')

        def judge(reply):
            if 'result' in reply:
                self.assertEqual(unb64(reply['result']['dataBase64']), b'inside\n')
        self.rounds(lambda i: self.fs.post('readFile', path, sandbox=self.policy, followSymlinks=bool(i % 2)), judge)

    def test_reading_without_links_and_without_a_sandbox(self):
        path = os.path.join(self.w, 'x/f')

        def judge(reply):
            if 'result' in reply:
                self.assertEqual(unb64(reply['result']['dataBase64']), b'inside\n')
        self.assertGreater(self.rounds(lambda i: self.fs.post('readFile', path, followSymlinks=False), judge), 0)

    def test_writing(self):
        for policy in (self.policy, self.writes):
            self.rounds(lambda i, p=policy: self.fs.post('writeFile', os.path.join(self.w, 'x/f' if i % 2 else 'x/sub/g'),
                                                         dataBase64=b64(b'inside\n'), sandbox=p))

    def test_writing_without_links_and_without_a_sandbox(self):
        self.rounds(lambda i: self.fs.post('writeFile', os.path.join(self.w, 'x/n%d' % i), dataBase64='eA==', followSymlinks=False))
        self.assertEqual(sorted(os.listdir(self.o)), ['f', 'sub'])

    def test_making_directories(self):
        self.rounds(lambda i: self.fs.post('createDirectory', os.path.join(self.w, 'x/a/b%d' % i), sandbox=self.writes))
        self.rounds(lambda i: self.fs.post('createDirectory', os.path.join(self.w, 'x/c/d%d' % i), followSymlinks=False))
        self.assertEqual(sorted(os.listdir(self.o)), ['f', 'sub'])

    def test_removing(self):
        names = ('x/sub', 'x/f', 'x')
        self.rounds(lambda i: self.fs.post('remove', os.path.join(self.w, names[i % 3]), sandbox=self.writes))

    def test_removing_a_tree_without_a_sandbox(self):
        """The link is in the tree, and becomes a directory and a link again while it goes."""
        for _ in range(ROUNDS // 10):
            self.client.reply(self.fs.post('remove', os.path.join(self.w, 'x')))
            self.client.reply(self.fs.post('createDirectory', os.path.join(self.w, 'x/deep/er'), followSymlinks=False))
            self.client.reply(self.fs.post('remove', self.w))
            self.client.reply(self.fs.post('createDirectory', self.w))
            self.assertEqual(self.outside(), self.before)

    def test_copying(self):
        def post(i):
            if i % 2:
                return self.fs.post('copy', sourcePath=file_uri(os.path.join(self.w, 'x')), recursive=True,
                                    destinationPath=file_uri(os.path.join(self.w, 'copy%d' % (i % 5))), sandbox=self.policy)
            return self.fs.post('copy', sourcePath=file_uri('/etc/passwd'), destinationPath=file_uri(os.path.join(self.w, 'x/f')),
                                recursive=False, sandbox=self.writes)
        self.rounds(post)
        self.swapper.terminate('swap')
        self.swapper.wait_exited('swap')
        for d, _ds, fs in os.walk(self.w):
            for name in fs:
                try:
                    with open(os.path.join(d, name), 'rb') as f:
                        content = f.read()
                except OSError:
                    continue
                if not os.path.realpath(os.path.join(d, name)).startswith(self.o):
                    self.assertNotEqual(content, SECRET, os.path.join(d, name))

    def test_looking(self):
        def judge(reply):
            self.assertNotIn('/sub', str(reply.get('result')))
        self.rounds(lambda i: self.fs.post('walk', os.path.join(self.w, 'x'), options=WALK, sandbox=self.policy), judge)
        self.rounds(lambda i: self.fs.post('readDirectory', os.path.join(self.w, 'x'), sandbox=self.policy),
                    lambda reply: self.assertNotIn('sub', str(reply.get('result'))))

    def test_walking_without_links_and_without_a_sandbox(self):
        def judge(reply):
            self.assertNotIn('/sub/g', str(reply.get('result')))
        self.rounds(lambda i: self.fs.post('walk', self.w, options=WALK), judge)

    def test_handles(self):
        def post(i):
            mode = 'replace' if i % 2 else 'read'
            return self.fs.post('open', os.path.join(self.w, 'x/f'), handleId='h%d' % i, mode=mode,
                                sandbox=self.writes if i % 2 else self.policy)
        for _ in range(ROUNDS // 20):
            opened = [post(i) for i in range(20)]
            for i, request in enumerate(opened):
                if 'result' in self.client.reply(request):
                    if i % 2:
                        self.client.reply(self.fs.post('writeBlock', handleId='h%d' % i, offset=0, chunk=b64(b'inside\n')))
                    else:
                        reply = self.client.reply(self.fs.post('readBlock', handleId='h%d' % i, offset=0, len=100))
                        self.assertNotEqual(unb64(reply['result']['chunk']), SECRET)
                self.fs.ask('close', handleId='h%d' % i)
        self.assertEqual(self.outside(), self.before)

    def tearDown(self):
        self.swapper.terminate('swap')
        self.swapper.wait_closed('swap')
        shutil.rmtree(self.w, ignore_errors=True)
        super().tearDown()


@ours_only
class Resized(FsSandboxCase):
    """A file that grows and shrinks while it is read, in pieces up to 2 MiB: what comes is a beginning of its text."""

    TEXT = b''.join(i.to_bytes(4, 'big') for i in range(5 << 17))  # 2.5 MiB

    def test_sizes_around_the_pieces(self):
        path = os.path.join(self.w, 'f')
        piece = 128 << 10
        for size in [n * piece + more for n in (1, 2, 3, 8, 15, 16) for more in (-1, 0, 1)]:
            with open(path, 'wb') as f:
                f.write(self.TEXT[:size])
            self.assertEqual(self.fs.read(path), self.TEXT[:size], size)

    def test_while_it_changes(self):
        path = os.path.join(self.w, 'f')
        writer = subprocess.Popen([PYTHON, '-c', RESIZE, path, str(len(self.TEXT))], stdout=subprocess.PIPE)
        self.addCleanup(lambda: (writer.kill(), writer.wait(), writer.stdout.close()))
        writer.stdout.readline()
        lengths = set()
        reads = 0
        deadline = time.monotonic() + wire.DEADLINE
        # A busy machine may not run the writer for many reads.
        while reads < (2000 if tap.IS_LONG else 150) or (len(lengths) <= 5 and time.monotonic() < deadline):
            text = self.fs.read(path)
            lengths.add(len(text))
            self.assertEqual(text, self.TEXT[:len(text)])
            reads += 1
        self.assertGreater(len(lengths), 5, 'the file has changed')


if __name__ == '__main__':
    tap.main()
