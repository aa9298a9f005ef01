# SPDX-License-Identifier: Apache-2.0
"""The sandbox modes of the Codex CLI, enforced by a server: what its model was told, and what became of the files."""

import os
import socket
import threading
import uuid

import codex
import server
from model import command, outcome, say, told_all, type_into, until_said

import chaos
import tap

DENIED = 'read-only file system'
CONFINED = dict(sandbox='workspace-write')


class Listener:
    """Somebody on loopback who says a word to whoever connects."""

    def __init__(self):
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                guest, _ = self.socket.accept()
            except OSError:
                return
            with guest:
                guest.sendall(b'reached\n')

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()


class Sandboxed(codex.Case):
    def setUp(self):
        super().setUp()
        self.temporary = '/tmp/sallyport-interop-' + uuid.uuid4().hex
        self.addCleanup(lambda: os.path.exists(self.temporary) and os.unlink(self.temporary))

    def listener(self):
        listener = Listener()
        self.addCleanup(listener.close)
        return "bash -c 'cat </dev/tcp/127.0.0.1/%d'" % listener.port

    def assertDenied(self, m, call_id):
        code, output = outcome(m.told(call_id))
        self.assertNotEqual(code, 0, output)
        self.assertIn(DENIED, output.lower())

    def outside(self):
        """What was made beside the workspace."""
        return sorted(set(os.listdir(self.base)) - {'ws', 'home', 'codex-home', 'more'})


class WorkspaceWrite(Sandboxed):
    def test_allowed(self):
        m = self.play([command('c1', 'mkdir d; echo in >d/in; cat d/in; mv d e; echo tmp >%s; cat %s' % (2 * (self.temporary,)))],
                      [command('c2', 'head -c 4 /etc/passwd; echo; echo $CODEX_SANDBOX_NETWORK_DISABLED')], [say()], **CONFINED)
        self.assertOutcome(m, 'c1', 0, 'in\ntmp\n')
        code, output = outcome(m.told('c2'))
        self.assertEqual((code, output.splitlines()[1:]), (0, ['1']))
        self.assertTree({'e': None, 'e/in': 'in\n'})
        self.assertRanThere(2)
        self.assertFalse(any(n['params']['sandboxDenied'] for n in self.wire.notes('process/exited')))
        self.assertTrue(all(s['params']['sandbox'] for s in self.wire.sent('process/start')))

    def test_denied(self):
        self.put(_git__config='[core]\n')
        m = self.play([command('c1', 'echo out >../out')], [command('c2', 'echo x >>.git/config')],
                      [command('c3', 'echo x >~/x')], [command('c4', self.listener())],
                      [command('c5', 'echo still >well')], [say()], **CONFINED)
        for call_id in ('c1', 'c2', 'c3'):
            self.assertDenied(m, call_id)
        code, output = outcome(m.told('c4'))
        self.assertNotEqual(code, 0)
        self.assertNotIn('reached', output)
        self.assertOutcome(m, 'c5', 0, '')
        self.assertTree({'.git': None, '.git/config': '[core]\n', 'well': 'still\n'})
        self.assertEqual(self.outside(), [])
        self.assertEqual(os.listdir(self.srv.home), [])
        self.assertRanThere(5)
        self.assertEqual([n['params']['sandboxDenied'] for n in self.wire.notes('process/exited')][:3], [True] * 3)

    @server.ours_only
    def test_network_access_with_the_printed_url(self):
        """The server as it comes, reached by nothing but the URL that it prints."""
        srv = self.serve()
        ask = ("bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; printf \"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n\" >&3; "
               "head -n 1 <&3'" % srv.address[1])
        env = 'env | grep -c %s; env | grep -c CODEX_EXEC_SERVER_URL; true' % srv.address.token
        reach = self.listener()
        for mode, table in (('workspace-write', '[sandbox_workspace_write]\nnetwork_access = true'), ('danger-full-access', '')):
            with self.subTest(mode):
                m = self.play([command('c1', reach)], [command('c2', ask)], [command('c3', env)], [say()],
                              sandbox=mode, tables=table, url=srv.url)
                self.assertOutcome(m, 'c1', 0, 'reached\n')
                self.assertOutcome(m, 'c2', 0, 'HTTP/1.1 401 Unauthorized\r\n')
                self.assertOutcome(m, 'c3', 0, '0\n0\n')
        m = self.play([command('c1', 'echo never')], [say()], url=srv.bare_url)
        self.assertIn('No usable execution environment', m.told('c1'))

    def test_a_link_out_of_the_workspace(self):
        os.symlink('..', os.path.join(self.ws, 'link'))
        m = self.play([command('c1', 'echo out >link/out')], [say()], **CONFINED)
        self.assertDenied(m, 'c1')
        self.assertEqual(self.outside(), [])

    def test_options(self):
        more = os.path.join(self.base, 'more')
        os.makedirs(more + '/.git')
        table = '[sandbox_workspace_write]\nnetwork_access = true\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true'
        m = self.play([command('c1', self.listener())], [command('c2', 'echo tmp >%s' % self.temporary)],
                      [command('c3', 'echo more >%s/file' % more)], [command('c4', 'echo more >%s/.git/file' % more)], [say()],
                      tables=table, args=['--add-dir', more], **CONFINED)
        self.assertOutcome(m, 'c1', 0, 'reached\n')
        self.assertDenied(m, 'c2')
        self.assertOutcome(m, 'c3', 0, '')
        self.assertDenied(m, 'c4')
        self.assertTree({'.git': None, 'file': 'more\n'}, more)
        self.assertRanThere(4)

    def test_a_terminal(self):
        def script(m):
            loop = 'stty -echo; echo ready; while read x; do eval "$x"; done; exit 3'
            yield [command('c1', loop, tty=True, yield_time_ms=500)]
            yield from until_said(m, 'c1', 'ready')
            yield from type_into(m, 'in', 'c1', 'echo in >in && echo is $((1+1))\n', until='is 2')
            yield from type_into(m, 'out', 'c1', 'echo out >../out || echo was $((2+2))\n', until='was 4')
            yield from type_into(m, 'end', 'c1', '\x04', until='never')
            yield [say()]

        m = self.play(script, **CONFINED)
        self.assertIn(DENIED, told_all(m, 'out')[1].lower())
        self.assertEqual(told_all(m, 'end')[0], 3)
        self.assertTree({'in': 'in\n'})
        self.assertEqual(self.outside(), [])
        self.assertRanThere(1)

    def test_in_parallel(self):
        wait = 'touch %d; until [ -e 1 -a -e 2 -a -e 3 ]; do sleep 0.05; done; echo met %d; echo x >../out%d'
        m = self.play([command('c%d' % i, wait % (i, i, i)) for i in (1, 2, 3)], [say()], **CONFINED)
        for i in (1, 2, 3):
            self.assertDenied(m, 'c%d' % i)
            self.assertIn('met %d\n' % i, m.told('c%d' % i))
        self.assertEqual(self.outside(), [])
        self.assertRanThere(3)

    def test_resumed(self):
        """The sandbox outlives the connection by which it was asked for."""
        def cut(direction, message):
            return chaos.AFTER if direction == chaos.DOWN and message.get('method') == 'process/output' else None

        self.wire_to(self.serve(), cut=cut)
        m = self.play([command('c1', 'echo one; sleep 1; echo out >../out')], [say()], **CONFINED)
        self.assertDenied(m, 'c1')
        self.assertIn('one\n', m.told('c1'))
        self.assertEqual(self.outside(), [])
        self.assertEqual(len(self.wire.sent('initialize')), 2)


class ReadOnly(Sandboxed):
    def test_read_only(self):
        self.put(file='text\n')
        m = self.play([command('c1', 'cat file')], [command('c2', 'echo x >file')], [command('c3', 'echo x >new')],
                      [command('c4', 'echo x >%s' % self.temporary)], [command('c5', self.listener())],
                      [command('c6', 'echo x >/dev/null; echo fine')], [say()], sandbox='read-only')
        self.assertOutcome(m, 'c1', 0, 'text\n')
        for call_id in ('c2', 'c3', 'c4'):
            self.assertDenied(m, call_id)
        self.assertNotIn('reached', m.told('c5'))
        self.assertOutcome(m, 'c6', 0, 'fine\n')
        self.assertTree({'file': 'text\n'})
        self.assertFalse(os.path.exists(self.temporary))
        self.assertRanThere(6)


class Unconfined(Sandboxed):
    def test_full_access(self):
        """What the sandboxes deny works without one."""
        m = self.play([command('c1', 'echo out >../out; cat ../out')], [command('c2', self.listener())], [say()])
        self.assertOutcome(m, 'c1', 0, 'out\n')
        self.assertOutcome(m, 'c2', 0, 'reached\n')
        self.assertEqual(self.outside(), ['out'])
        self.assertEqual([s['params']['sandbox'] for s in self.wire.sent('process/start')], [None, None])


if __name__ == '__main__':
    tap.main()
