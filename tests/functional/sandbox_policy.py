# SPDX-License-Identifier: Apache-2.0
"""Policies as clients send them, and a place to try them on: a workspace W and a directory O
outside of it, neither of them below a temporary directory."""

import functools
import os
import shutil
import subprocess
import tempfile

from server import PYTHON, Case, descendants, is_alive, stat_of, status_of
from wire import file_uri

CANNOT = 'sandbox intent cannot be enforced on this executor: '
PROTECTED = ('.git', '.agents', '.codex', '.aws')
PLACEHOLDERS = ('.git', '.agents', '.codex')  # the others are watched
IS_ROOT = os.getuid() == 0
NESTED = status_of(os.getpid())['NSpid'].split()  # we may be in a namespace ourselves

# ------------------------------------------------------------------------------------ entries


def special(kind, access, **more):
    skip = {'missing_path_behavior': more.pop('missing')} if 'missing' in more else {}
    return dict({'path': {'type': 'special', 'value': dict({'kind': kind}, **more)}, 'access': access}, **skip)


def place(path, access):
    return {'path': {'type': 'path', 'path': file_uri(path)}, 'access': access}


def pattern(text, access='deny'):
    return {'path': {'type': 'glob_pattern', 'pattern': text}, 'access': access}


ROOT = special('root', 'read')
MINIMAL = special('minimal', 'read')

# Workspace-write as the reference's client says it.
WORKSPACE = [ROOT, special('project_roots', 'write'), special('slash_tmp', 'write'), special('tmpdir', 'write')] + [
    special('project_roots', 'read', subpath=name, missing='skip') for name in PROTECTED]

# ---------------------------------------------------------------------------- context objects


def restricted(entries, network='restricted', **more):
    return {'type': 'managed', 'network': network,
            'file_system': dict({'type': 'restricted', 'entries': list(entries)}, **more)}


def unrestricted(network='restricted'):
    return {'type': 'managed', 'network': network, 'file_system': {'type': 'unrestricted'}}


def context(permissions, *roots, **more):
    """The object of process/start; members given as None are left out."""
    members = {'permissions': permissions, 'cwd': file_uri(roots[0]) if roots else None,
               'workspaceRoots': [file_uri(r) for r in roots], 'windowsSandboxLevel': 'disabled',
               'windowsSandboxProxySettingsMode': 'reconcile', 'useLegacyLandlock': False}
    members.update(more)
    return {k: v for k, v in members.items() if v is not None}


def read_only(*roots, **more):
    return context(restricted([ROOT]), *roots, **more)


def workspace_write(*roots, network='restricted', more_entries=(), **more):
    return context(restricted(WORKSPACE + list(more_entries), network), *roots, **more)


def project_write(*roots, network='restricted', more_entries=(), **more):
    """The same without /tmp, which all servers of a machine share: what others do there changes nothing."""
    entries = [entry for entry in WORKSPACE if entry != special('slash_tmp', 'write')]
    return context(restricted(entries + list(more_entries), network), *roots, **more)


# -------------------------------------------------------------------------------- the ground


def outside_of_tmp():
    """A directory that workspace-write does not open by itself."""
    temporary = {os.path.realpath(p) for p in ('/tmp', os.environ.get('TMPDIR') or '/tmp')}
    for where in ('/var/tmp', os.getcwd(), os.path.expanduser('~')):
        real = os.path.realpath(where)
        if os.access(real, os.W_OK) and not any((real + '/').startswith(t + '/') for t in temporary):
            return real
    raise AssertionError('no directory outside of /tmp can be written')


@functools.lru_cache
def has_namespaces():
    """Whether this host lets us have user namespaces, without which there are no cells."""
    script = 'import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(%d) != 0)' % 0x10020000
    return subprocess.run([PYTHON, '-S', '-c', script], check=False).returncode == 0


def confined_cells(server):
    """The pids of its confined cells: children that are the first in a pid namespace of their own."""
    found = []
    for pid in descendants(server.pid):
        try:
            if stat_of(pid)[1] == server.pid and is_alive(pid) and len(status_of(pid)['NSpid'].split()) > len(NESTED):
                found.append(pid)
        except (OSError, TypeError, KeyError):
            pass
    return found


class SandboxCase(Case):
    """W, O, and T for TMPDIR; commands run in W."""

    needs_cells = True

    def setUp(self):
        super().setUp()
        if self.needs_cells and not has_namespaces():
            self.skipTest('this host gives uid %d no namespaces' % os.getuid())
        self.base = tempfile.mkdtemp(prefix='sallyport-test-', dir=outside_of_tmp())
        self.addCleanup(shutil.rmtree, self.base, True)
        self.w, self.o, self.t = (os.path.join(self.base, name) for name in 'wot')
        for path in (self.w, self.o, self.t):
            os.mkdir(path)
        self.put('o/f', 'outside\n')

    def put(self, name, text='content\n', mode=0o644):
        path = os.path.join(self.base, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def how(self, more):
        """Where and with what a command runs, unless the test says otherwise."""
        env = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'TMPDIR': self.t, 'LC_ALL': 'C'}
        env.update(more.pop('env', {}))
        return dict({'cwd': file_uri(self.w), 'env': {k: v for k, v in env.items() if v is not None}}, **more)

    def start(self, client, process_id, argv, sandbox, **more):
        argv = ['/bin/sh', '-c', argv] if isinstance(argv, str) else argv
        return client.start(process_id, argv, sandbox=sandbox, **self.how(more))

    def run_in(self, client, argv, sandbox, **more):
        """A command under this policy, to its end."""
        client.ids += 1
        process_id = more.pop('process_id', 'in-%d' % client.ids)
        self.start(client, process_id, argv, sandbox, **more)
        return client.wait_closed(process_id)

    def said(self, client, argv, sandbox, **more):
        """What a command that must succeed prints."""
        process = self.run_in(client, argv, sandbox, **more)
        self.assertEqual((process.exit_code, process.stderr), (0, b''), (argv, process.text))
        return process.text.replace('\r', '')

    def refusal(self, client, argv, sandbox, **more):
        """The error that a start ends in."""
        argv = ['/bin/sh', '-c', argv] if isinstance(argv, str) else argv
        return client.start_error('refused', argv, sandbox=sandbox, **self.how(more))

    @staticmethod
    def denied(client, process):
        """What process/exited and process/read say about a refusal, which must be the same."""
        notes = [n['params']['sandboxDenied'] for n in client.notes
                 if n['method'] == 'process/exited' and n['params']['processId'] == process.id]
        told = client.read(process.id)['sandboxDenied']
        if notes != [told]:
            raise AssertionError('process/exited says %r, process/read %r' % (notes, told))
        return told

    def assertDenied(self, client, argv, sandbox, words, **more):
        """The command fails with these words, which count as a refusal of the sandbox."""
        process = self.run_in(client, argv, sandbox, **more)
        text = (process.stderr + process.pty + process.stdout).decode()
        self.assertNotEqual(process.exit_code, 0, (argv, text))
        self.assertIn(words, text)
        self.assertIs(self.denied(client, process), True)
        return process
