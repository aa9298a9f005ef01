# SPDX-License-Identifier: Apache-2.0
"""File methods with a `sandbox`: every one is confined as a command would be, by the same cell."""

import os
import time

import tap
from fs_ground import DENIED, NO_FILE, READ_ONLY, WALK, Calls, FsSandboxCase, workers
from sandbox_policy import (MINIMAL, PLACEHOLDERS, ROOT, confined_cells, context, place, project_write, read_only, restricted,
                            special, unrestricted, workspace_write)
from server import ours_only, status_of
from wire import RpcError, b64, file_uri, unb64, wait_until

DYNAMIC = 'file system sandbox context with dynamic permissions requires cwd'


class EveryMethod(FsSandboxCase):
    """One method after the other, under one policy after the other."""

    def setUp(self):
        super().setUp()
        self.put('w/a', 'inside\n')
        self.put('w/sub/b', 'below\n')
        os.symlink('../o/f', os.path.join(self.w, 'out'))
        os.symlink('../o', os.path.join(self.w, 'outdir'))

    def readings(self, where, sandbox):
        """What each method that only looks says about W or O: 'ok' or the error."""
        a = os.path.join(where, 'a' if where == self.w else 'f')
        calls = {
            'readFile': lambda: self.fs.read(a, sandbox=sandbox), 'getMetadata': lambda: self.fs.stat(a, sandbox=sandbox),
            'readFile strictly': lambda: self.fs.read(a, sandbox=sandbox, followSymlinks=False),
            'getMetadata strictly': lambda: self.fs.stat(a, sandbox=sandbox, followSymlinks=False),
            'canonicalize': lambda: self.fs.ask('canonicalize', a, sandbox=sandbox),
            'readDirectory': lambda: self.fs.names(where, sandbox=sandbox),
            'walk': lambda: self.fs.walk(where, sandbox=sandbox), 'open': lambda: self.fs.open('r', a, sandbox=sandbox)}
        return self.outcomes(calls)

    def writings(self, where, sandbox):
        calls = {
            'writeFile new': lambda: self.fs.write(os.path.join(where, 'new'), b'1', sandbox=sandbox),
            'writeFile strictly': lambda: self.fs.write(os.path.join(where, 'new3'), b'1', sandbox=sandbox, followSymlinks=False),
            'createDirectory': lambda: self.fs.ask('createDirectory', os.path.join(where, 'newdir'), sandbox=sandbox),
            'createDirectory deep': lambda: self.fs.ask('createDirectory', os.path.join(where, 'x/y/z'), sandbox=sandbox),
            'copy': lambda: self.fs.copy('/etc/passwd', os.path.join(where, 'new2'), sandbox=sandbox),
            'copy tree': lambda: self.fs.copy(self.t, os.path.join(where, 'tree'), recursive=True, sandbox=sandbox),
            'open': lambda: self.fs.open('w', os.path.join(where, 'new4'), mode='replace', sandbox=sandbox),
            'remove': lambda: self.fs.ask('remove', os.path.join(where, 'f' if where == self.o else 'a'), sandbox=sandbox),
            'remove tree': lambda: self.fs.ask('remove', os.path.join(where, 'sub'), sandbox=sandbox)}
        return self.outcomes(calls)

    def outcomes(self, calls):
        out = {}
        for name, call in calls.items():
            try:
                call()
                out[name] = 'ok'
            except RpcError as e:
                out[name] = (e.code, e.message)
        for handle in 'rw':
            self.fs.ask('close', handleId=handle)
        return out

    def all_same(self, outcomes, *want):
        self.assertEqual({k: v for k, v in outcomes.items() if v not in want}, {})

    def snapshot(self, where):
        return sorted((d, sorted(ds), sorted(fs)) for d, ds, fs in os.walk(where))

    def test_read_only(self):
        before = self.snapshot(self.base)
        policy = read_only(self.w)
        self.all_same(self.readings(self.w, policy), 'ok')
        self.all_same(self.readings(self.o, policy), 'ok')
        for where in (self.w, self.o):
            os.makedirs(os.path.join(where, 'sub/deep'), exist_ok=True)
            self.all_same(self.writings(where, policy), READ_ONLY)
            if where == self.o:
                os.removedirs(os.path.join(where, 'sub/deep'))
            else:
                os.rmdir(os.path.join(where, 'sub/deep'))
        self.assertEqual(self.snapshot(self.base), before)

    def test_workspace_write(self):
        before = self.snapshot(self.o)
        policy = workspace_write(self.w)
        self.all_same(self.readings(self.w, policy), 'ok')
        self.all_same(self.readings(self.o, policy), 'ok')
        outside = self.writings(self.o, policy)
        self.assertEqual(outside.pop('remove tree'), 'ok', 'there is none')
        self.all_same(outside, READ_ONLY)
        self.assertEqual(self.snapshot(self.o), before)
        self.all_same(self.writings(self.w, policy), 'ok')
        self.assertEqual([n for n, _k in self.fs.names(self.w)], ['new', 'new2', 'new3', 'new4', 'newdir', 'out', 'outdir', 'tree', 'x'])
        self.fs.write(os.path.join(self.t, 'in-tmpdir'), b'1', sandbox=policy)

    def test_deny(self):
        policy = context(restricted([ROOT, place(self.w, 'write'), place(self.o, 'deny'),
                                     place(os.path.join(self.w, 'sub'), 'deny')]), self.w)
        self.assertEqual(set(self.readings(self.o, policy).values()) - {'ok'}, {DENIED})
        self.assertEqual(self.fs.refused('readFile', os.path.join(self.o, 'f'), sandbox=policy), DENIED)
        self.assertEqual(self.fs.refused('readFile', os.path.join(self.w, 'sub/b'), sandbox=policy), DENIED)
        self.assertEqual(self.fs.refused('readFile', os.path.join(self.w, 'out'), sandbox=policy), DENIED)
        self.assertIn(self.fs.no_write(os.path.join(self.o, 'f'), b'x', sandbox=policy), (DENIED, READ_ONLY))
        self.assertEqual(self.fs.no_copy(os.path.join(self.o, 'f'), os.path.join(self.w, 'stolen'), sandbox=policy), DENIED)
        self.assertEqual(self.fs.refused('open', os.path.join(self.o, 'f'), handleId='h', sandbox=policy), DENIED)
        walked = self.fs.walk(self.w, sandbox=policy)
        self.assertNotIn(file_uri(self.w) + '/sub/b', [e['path'] for e in walked['entries']])
        self.assertEqual([e['path'] for e in walked['errors']], [file_uri(self.w) + '/sub'])
        self.assertEqual(self.content('o/f'), b'outside\n')
        self.assertFalse(os.path.exists(os.path.join(self.w, 'stolen')))

    def test_what_is_not_granted_is_not_there(self):
        policy = context(restricted([MINIMAL, place(self.w, 'read')]), self.w)
        self.all_same(self.readings(self.w, policy), 'ok')
        self.all_same(self.readings(self.o, policy), NO_FILE, DENIED)
        self.assertEqual(self.fs.refused('readFile', os.path.join(self.w, 'out'), sandbox=policy), NO_FILE)
        nothing = context(restricted([]), self.w)
        for path in (self.w, self.o, '/etc/passwd'):
            self.assertIn(self.fs.refused('getMetadata', path, sandbox=nothing), (NO_FILE, DENIED))

    def test_links_do_not_lead_out(self):
        policy = workspace_write(self.w)
        self.assertEqual(self.fs.no_write(os.path.join(self.w, 'out'), b'x', sandbox=policy), READ_ONLY)
        self.assertEqual(self.fs.no_write(os.path.join(self.w, 'outdir/new'), b'x', sandbox=policy), READ_ONLY)
        self.assertEqual(self.fs.refused('remove', os.path.join(self.w, 'outdir/f'), sandbox=policy), READ_ONLY)
        self.assertEqual(self.fs.refused('open', os.path.join(self.w, 'out'), handleId='h', mode='replace', sandbox=policy), READ_ONLY)
        self.assertEqual(self.fs.no_copy('/etc/passwd', os.path.join(self.w, 'out'), sandbox=policy), READ_ONLY)
        self.assertEqual(self.content('o/f'), b'outside\n')
        self.assertEqual(os.listdir(self.o), ['f'])
        self.fs.ask('remove', os.path.join(self.w, 'outdir'), sandbox=policy)
        self.assertEqual(os.listdir(self.o), ['f'])

    def test_protected_names(self):
        os.mkdir(os.path.join(self.w, '.git'))
        policy = workspace_write(self.w)
        for name in PLACEHOLDERS:
            path = os.path.join(self.w, name)
            self.assertEqual(self.fs.no_write(path + '/x', b'', sandbox=policy), READ_ONLY, name)
            self.assertIn(self.fs.refused('createDirectory', path + '/x', sandbox=policy), (READ_ONLY,), name)
            self.assertNotEqual(self.fs.refused('remove', path, sandbox=policy)[0], 0)
            self.assertNotIn(name + '.moved', os.listdir(self.w))
        self.fs.ask('createDirectory', os.path.join(self.w, '.aws'), sandbox=policy)
        wait_until(lambda: not os.path.lexists(os.path.join(self.w, '.aws')), 'end of what was planted')
        self.assertEqual(os.listdir(os.path.join(self.w, '.git')), [])
        below = context(restricted([ROOT, special('project_roots', 'write'), place(os.path.join(self.w, '.git'), 'write')]), self.w)
        self.fs.write(os.path.join(self.w, '.git/x'), b'1', sandbox=below)
        self.assertEqual(self.content('w/.git/x'), b'1')

    def test_handles_keep_what_they_were_opened_for(self):
        policy = workspace_write(self.w)
        self.fs.open('w', os.path.join(self.w, 'new'), mode='replace', sandbox=policy)
        self.fs.put('w', 0, b'123')
        self.fs.open('r', os.path.join(self.o, 'f'), sandbox=read_only(self.w))
        self.assertEqual(self.fs.block('r'), (b'outside\n', True))
        self.assertEqual(self.content('w/new'), b'123')
        for method in ('readBlock', 'writeBlock', 'close'):
            params = {'handleId': 'r', 'offset': 0, 'len': 1, 'chunk': 'eA==', 'sandbox': {'nonsense': 1}}
            self.client.reply(self.fs.post(method, **params))


class Contexts(FsSandboxCase):
    """Which objects are taken, and which restrict nothing."""

    def setUp(self):
        super().setUp()
        self.put('w/a', 'inside\n')

    def test_those_that_restrict_nothing(self):
        everything = context(restricted([special('root', 'write')]), self.w)
        for policy in ({'permissions': {'type': 'disabled'}, 'windowsSandboxLevel': 'disabled'},
                       {'permissions': {'type': 'external', 'network': 'restricted'}, 'windowsSandboxLevel': 'disabled'},
                       context(unrestricted(), self.w), context(unrestricted('enabled'), self.w), everything, None):
            path = os.path.join(self.o, 'new')
            self.fs.write(path, b'1', sandbox=policy)
            self.fs.ask('remove', path, force=False, sandbox=policy)

    @ours_only
    def test_no_cell_is_made_for_those(self):
        self.fs.write(os.path.join(self.w, 'x'), b'1', sandbox=context(unrestricted(), self.w))
        self.fs.write(os.path.join(self.w, 'x'), b'1', sandbox={'permissions': {'type': 'disabled'}, 'windowsSandboxLevel': 'disabled'})
        self.assertEqual(confined_cells(self.srv), [])
        self.fs.read(os.path.join(self.w, 'x'), sandbox=read_only(self.w))
        self.assertEqual(len(confined_cells(self.srv)), 1)

    def test_dynamic_permissions_need_a_cwd(self):
        without = workspace_write(self.w, cwd=None, workspaceRoots=None)
        for method, more in (('readFile', {}), ('writeFile', {'dataBase64': ''}), ('getMetadata', {}), ('createDirectory', {}),
                             ('canonicalize', {}), ('readDirectory', {}), ('walk', {'options': WALK}), ('remove', {}),
                             ('open', {'handleId': 'h'})):
            code, text = self.fs.refused(method, os.path.join(self.w, 'a'), sandbox=without, **more)
            self.assertEqual((code, text), (-32602, DYNAMIC), method)
        self.assertEqual(self.fs.no_copy(os.path.join(self.w, 'a'), os.path.join(self.w, 'b'), sandbox=without), (-32602, DYNAMIC))
        self.assertTrue(os.path.exists(os.path.join(self.w, 'a')))
        elsewhere = dict(without, policyContext={'cwd': file_uri(self.w), 'workspaceRoots': [file_uri(self.w)]})
        self.fs.write(os.path.join(self.w, 'b'), b'1', sandbox=elsewhere)
        fixed = context(restricted([ROOT, place(self.w, 'write')]))
        self.fs.write(os.path.join(self.w, 'c'), b'1', sandbox=fixed)

    def test_foreign_paths_in_entries(self):
        entry = {'path': {'type': 'path', 'path': 'file:///C:/x'}, 'access': 'write'}
        code, text = self.fs.refused('readFile', os.path.join(self.w, 'a'), sandbox=context(restricted([ROOT, entry]), self.w))
        self.assertIn(code, (-32600, -32602))
        self.assertIn('file:///C:/x', text)

    def test_objects_that_are_none(self):
        good = read_only(self.w)
        for bad in (5, 'x', [], {}, dict(good, permissions=None), dict(good, permissions={'type': 'new'}),
                    dict(good, windowsSandboxLevel='new'), dict(good, cwd=5), dict(good, workspaceRoots=None),
                    dict(good, permissions=restricted([{'path': {'type': 'path'}, 'access': 'read'}]))):
            self.assertEqual(self.fs.refused('readFile', os.path.join(self.w, 'a'), sandbox=bad)[0], -32602, bad)

    def test_a_network_that_is_enabled_changes_nothing(self):
        policy = project_write(self.w, network='enabled')
        self.fs.write(os.path.join(self.w, 'b'), b'1', sandbox=policy)
        self.assertEqual(self.fs.no_write(os.path.join(self.o, 'b'), b'1', sandbox=policy), READ_ONLY)

    @ours_only
    def test_bad_data_is_not_mistaken_for_a_bad_policy(self):
        deny = context(restricted([ROOT, {'path': {'type': 'glob_pattern', 'pattern': '/**/x'}, 'access': 'deny'}]), self.w)
        code, text = self.fs.refused('writeFile', os.path.join(self.w, 'b'), dataBase64='eA==', sandbox=deny)
        self.assertNotIn('base64', text)
        self.assertEqual(self.fs.refused('writeFile', os.path.join(self.w, 'b'), dataBase64='!', sandbox=read_only(self.w))[0], -32600)
        self.assertFalse(os.path.exists(os.path.join(self.w, 'b')), code)


@ours_only
class SameCell(FsSandboxCase):
    """A file operation happens where a command with that policy happens."""

    def setUp(self):
        super().setUp()
        self.put('w/a', 'inside\n')

    def test_beside_the_command(self):
        self.look_into(self.srv.pid)
        policy = workspace_write(self.w)
        self.start(self.client, 'p', 'echo $$; echo made > %s/made; read x' % self.w, policy, pipeStdin=True)
        self.client.wait_line('p')
        cells = confined_cells(self.srv)
        self.assertEqual(self.fs.read(os.path.join(self.w, 'made'), sandbox=policy), b'made\n')
        self.fs.write(os.path.join(self.w, 'b'), b'1', sandbox=policy)
        self.assertEqual(confined_cells(self.srv), cells)
        worker, = workers(self.srv)
        self.assertEqual(os.readlink('/proc/%d/ns/mnt' % worker), os.readlink('/proc/%d/ns/mnt' % cells[0]))
        self.assertEqual(os.readlink('/proc/%d/ns/net' % worker), os.readlink('/proc/%d/ns/net' % cells[0]))
        status = status_of(worker)
        self.assertEqual((status['NoNewPrivs'].strip(), status['Seccomp'].strip()), ('1', '2'))
        self.client.write('p', b'\n')
        self.assertEqual(self.client.wait_closed('p').exit_code, 0)

    def test_its_own_proc_and_dev(self):
        policy = read_only(self.w)
        self.assertEqual(sorted(n for n, _k in self.fs.names('/dev', sandbox=policy) if n in ('sda', 'mem', 'kmsg', 'null')), ['null'])
        pids = [n for n, _k in self.fs.names('/proc', sandbox=policy) if n.isdigit()]
        self.assertNotIn(str(self.srv.pid), pids[50:])
        self.assertLess(len(pids), 10)

    def test_no_process_is_kept_for_long(self):
        self.fs.read(os.path.join(self.w, 'a'), sandbox=read_only(self.w))
        self.assertEqual((len(confined_cells(self.srv)), len(workers(self.srv))), (1, 1))
        wait_until(lambda: workers(self.srv) == [], 'the end of an idle process')
        self.assertEqual(self.fs.read(os.path.join(self.w, 'a'), sandbox=read_only(self.w)), b'inside\n')

    def test_a_cell_that_is_used_again_and_again_stays(self):
        """Longer than the 2 s after which a cell that nothing was started in ends."""
        policy, seen, until = read_only(self.w), set(), time.monotonic() + 2.8
        while time.monotonic() < until:
            self.fs.read(os.path.join(self.w, 'a'), sandbox=policy)
            seen.update(confined_cells(self.srv))
            time.sleep(0.05)
        self.assertEqual(len(seen), 1)

    def test_two_policies_at_once(self):
        tight, wide = read_only(self.w), workspace_write(self.w)
        for i in range(20):
            refused = self.fs.post('writeFile', os.path.join(self.w, 'x'), dataBase64=b64(b'1'), sandbox=tight)
            written = self.fs.post('writeFile', os.path.join(self.w, 'y'), dataBase64=b64(b'%d' % i), sandbox=wide)
            free = self.fs.post('writeFile', os.path.join(self.o, 'z'), dataBase64=b64(b'1'))
            self.assertEqual(self.client.reply(refused)['error']['message'], READ_ONLY[1])
            self.client.result(written)
            self.client.result(free)
        self.assertEqual(self.content('w/y'), b'19')
        self.assertFalse(os.path.exists(os.path.join(self.w, 'x')))

    def test_sessions_do_not_share_cells(self):
        policy = read_only(self.w)
        others = [Calls(self.srv.session()) for _ in range(3)]
        for fs in [self.fs] + others:
            self.assertEqual(fs.read(os.path.join(self.w, 'a'), sandbox=policy), b'inside\n')
        self.assertGreaterEqual(len(confined_cells(self.srv)), 1)

    def test_many_policies(self):
        """More policies than processes for files may be kept: the idle ones make room."""
        for i in range(70):
            os.mkdir(os.path.join(self.w, 'd%d' % i))
        for i in range(70):
            policy = context(restricted([ROOT, place(os.path.join(self.w, 'd%d' % i), 'write')]), self.w)
            self.fs.write(os.path.join(self.w, 'd%d/f' % i), b'%d' % i, sandbox=policy)
            self.assertEqual(self.content('w/d%d/f' % i), b'%d' % i)

    def test_large_files_go_through(self):
        policy = workspace_write(self.w)
        data = os.urandom(5 << 20)
        self.fs.write(os.path.join(self.w, 'big'), data, sandbox=policy)
        self.assertEqual(self.fs.read(os.path.join(self.w, 'big'), sandbox=policy), data)
        self.assertEqual(self.fs.read(os.path.join(self.w, 'big'), sandbox=read_only(self.w)), data)

    def test_files_that_are_read_alone_come_beside_others(self):
        size = (64 << 20) + 1  # SP_FILES_SMALL_READ, and a byte
        for name in 'ab':
            with open(os.path.join(self.w, name), 'wb') as f:
                f.truncate(size)
                f.seek(size - 1)
                f.write(name.encode())
        with open(os.path.join(self.w, 'small'), 'wb') as f:
            f.write(b'small')
        asked = [(n, self.fs.post('readFile', os.path.join(self.w, n), **({'sandbox': workspace_write(self.w)} if confined else {})))
                 for n, confined in (('a', True), ('small', False), ('b', False), ('small', True))]
        for name, number in asked:
            data = unb64(self.client.result(number)['dataBase64'])
            self.assertEqual((len(data), data[-5:]), (5, b'small') if name == 'small' else (size, bytes(4) + name.encode()))


if __name__ == '__main__':
    tap.main()
