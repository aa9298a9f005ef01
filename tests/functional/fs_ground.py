# SPDX-License-Identifier: Apache-2.0
"""A directory to try file methods on, and short ways to call them."""

import os
import shutil
import tempfile

from sandbox_policy import SandboxCase
from server import Case, descendants, is_alive
from wire import b64, file_uri, unb64, wait_until

NO_FILE = (-32004, 'No such file or directory (os error 2)')
DENIED = (-32600, 'Permission denied (os error 13)')
EXISTS = (-32603, 'File exists (os error 17)')
NOT_DIR = (-32603, 'Not a directory (os error 20)')
IS_DIR = (-32603, 'Is a directory (os error 21)')
READ_ONLY = (-32603, 'Read-only file system (os error 30)')
LOOP = (-32603, 'Symbolic link loop (os error 40)')
HAS_LINK = (-32600, 'path contains a symbolic link')
WALK = {'maxDepth': 64, 'maxDirectories': 10000, 'maxEntries': 50000, 'followDirectorySymlinks': False}
BIG = 2 << 20  # what fits the window that is shared with the process that does the work


class Calls:
    """The file methods of one connection."""

    def __init__(self, client):
        self.client = client

    @staticmethod
    def path(path):
        return path if isinstance(path, str) and path.startswith('file:') else file_uri(path)

    def post(self, method, path=None, **params):
        if path is not None:
            params['path'] = self.path(path)
        return self.client.post('fs/' + method, params)

    def ask(self, method, path=None, **params):
        return self.client.result(self.post(method, path, **params))

    def refused(self, method, path=None, **params):
        """(code, message) of the error that it must end in."""
        reply = self.client.reply(self.post(method, path, **params))
        if 'error' not in reply:
            raise AssertionError('%s %r %r: no error but %r' % (method, path, params, str(reply)[:200]))
        return (reply['error']['code'], reply['error']['message'])

    def read(self, path, **params):
        return unb64(self.ask('readFile', path, **params)['dataBase64'])

    def write(self, path, data=b'', **params):
        return self.ask('writeFile', path, dataBase64=b64(data), **params)

    def no_write(self, path, data=b'', **params):
        return self.refused('writeFile', path, dataBase64=b64(data), **params)

    def stat(self, path, **params):
        return self.ask('getMetadata', path, **params)

    def names(self, path, **params):
        entries = self.ask('readDirectory', path, **params)['entries']
        return sorted((e['fileName'], 'd' if e['isDirectory'] else 'f' if e['isFile'] else '-') for e in entries)

    def walk(self, path, sandbox=None, **options):
        more = {} if sandbox is None else {'sandbox': sandbox}
        return self.ask('walk', path, options=dict(WALK, **options), **more)

    def copy(self, source, target, recursive=False, **params):
        return self.ask('copy', sourcePath=self.path(source), destinationPath=self.path(target), recursive=recursive, **params)

    def no_copy(self, source, target, recursive=False, **params):
        return self.refused('copy', sourcePath=self.path(source), destinationPath=self.path(target), recursive=recursive,
                            **params)

    def open(self, handle, path, **params):
        result = self.ask('open', path, handleId=handle, **params)
        if result != {'handleId': handle}:
            raise AssertionError('fs/open: %r' % (result,))

    def block(self, handle, offset=0, length=1 << 20):
        result = self.ask('readBlock', handleId=handle, offset=offset, len=length)
        return unb64(result['chunk']), result['eof']

    def put(self, handle, offset, data):
        return self.ask('writeBlock', handleId=handle, offset=offset, chunk=b64(data))

    def watch(self, watch_id, *missing, present=None):
        params = {'watchId': watch_id, 'missing': [self.path(p) for p in missing]}
        if present is not None:
            params['present'] = self.path(present)
        result = self.client.request('fs/watchMissing', params)
        if list(result) != ['watching']:
            raise AssertionError('fs/watchMissing: %r' % (result,))
        return result['watching']

    # -- what was told of watches

    def fired(self):
        return [n['params']['watchId'] for n in self.client.notes if n['method'] == 'fs/missingChanged']

    def wait_fired(self, *ids):
        self.client.wait_for(lambda: all(i in self.fired() for i in ids), 'fs/missingChanged of %r' % (ids,))
        return self.fired()


class Ground:
    """Mixed into a Case: a directory d with a connection to a server of its own."""

    def begin(self, *args, **how):
        self.srv = self.server(*args, **how)
        self.client = self.srv.session()
        self.fs = Calls(self.client)
        self.d = os.path.realpath(self.scratch())

    def look_into(self, pid):
        """Not everybody may see what a process has open: a server that keeps secrets hides it."""
        try:
            os.listdir('/proc/%d/fd' % pid)
        except PermissionError:
            self.skipTest('uid %d may not look into the server' % os.getuid())

    def use_memory(self):
        """Another d, for very many files, where that goes quickly."""
        if os.access('/dev/shm', os.W_OK):
            self.d = tempfile.mkdtemp(prefix='sallyport-test-', dir='/dev/shm')
            self.addCleanup(shutil.rmtree, self.d, True)

    def at(self, *names):
        return os.path.join(self.d, *names)

    def make(self, name, content=b'content'):
        """A file (bytes), a directory (None) or a link (text) below d."""
        path = self.at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if content is None:
            os.makedirs(path, exist_ok=True)
        elif isinstance(content, str):
            os.symlink(content, path)
        else:
            with open(path, 'wb') as f:
                f.write(content)
        return path

    def content(self, name):
        with open(self.at(name), 'rb') as f:
            return f.read()


class FsCase(Ground, Case):
    def setUp(self):
        super().setUp()
        self.begin()


class FsSandboxCase(Ground, SandboxCase):
    """The same with W, O and T of sandbox_policy; d is what they are in."""

    args = ()

    def setUp(self):
        super().setUp()
        self.srv = self.server(*self.args, env={'TMPDIR': self.t})
        self.client = self.srv.session()
        self.fs = Calls(self.client)
        self.d = self.base


def workers(server):
    """The pids of the processes that do file operations."""
    found = []
    for pid in descendants(server.pid):
        try:
            with open('/proc/%d/comm' % pid) as f:
                if f.read() == 'sallyport-files\n' and is_alive(pid):
                    found.append(pid)
        except OSError:
            pass
    return found


def wait_workers(server, count):
    wait_until(lambda: len(workers(server)) == count, '%d processes for files' % count)
    return workers(server)


