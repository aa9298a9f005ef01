# SPDX-License-Identifier: Apache-2.0
"""The front is killed: the next one takes over commands in sandboxes. Their cells take no more starts."""

import os
import signal

import server
import tap
import wire
from proxy_front import Server as Loopback
from proxy_front import web
from sandbox_policy import SandboxCase, confined_cells, workspace_write
from server import is_alive, ours_only

if not server.PEER:
    server.PROGRAM = os.path.join(os.path.dirname(server.PROGRAM), 'tests', 'sallyport-test-hosts')
LAUNCH = {'proxy': {'enabled': True, 'enableSocks5': True, 'enableSocks5Udp': True, 'allowUpstreamProxy': True,
                    'dangerouslyAllowAllUnixSockets': False, 'mode': 'full', 'domains': {'a.test': 'allow'},
                    'unixSockets': None, 'allowLocalBinding': False},
          'auditMetadata': {'conversationId': 'c'}, 'environmentId': 'remote', 'executionId': 'e'}
FETCH = 'curl -sS -m 30 -o /dev/null -w "%{http_code}\\n" http://a.test/'


class Sandboxes(SandboxCase):
    def take_over(self, client):
        """Ends the front, and resumes the session at the next one."""
        old = self.srv.front
        os.kill(old, signal.SIGKILL)
        wire.wait_until(lambda: self.srv.front not in (None, old), 'another front')
        client.abort()
        return self.srv.session(client.session_id)

    def ends(self, client, process_id):
        """What it has printed, and its exit code."""
        out, after = b'', 0
        while True:
            got = client.read(process_id, afterSeq=after, waitMs=1000)
            for chunk in got['chunks']:
                out += wire.unb64(chunk['chunk'])
                after = chunk['seq']
            if got['closed'] and not got['chunks']:
                return out.decode(), got['exitCode']

    def serve(self, *args, **how):
        self.srv = self.server('--keeper', *args, **how)
        return self.srv.session()

    def test_a_command_goes_on_in_its_sandbox(self):
        client = self.serve()
        policy = workspace_write(self.w)
        self.start(client, 'p', 'echo go; read x; echo $x > f; cat f; echo no > %s/f' % self.o, policy, pipeStdin=True)
        client.wait_output('p', 'go\n')
        placeholders = set(os.listdir(self.w))
        self.assertTrue(placeholders)
        cells = confined_cells(self.srv)
        self.assertEqual(len(cells), 1)
        again = self.take_over(client)
        again.process('p')
        self.assertEqual(confined_cells(self.srv), cells)
        self.assertEqual(set(os.listdir(self.w)), placeholders)
        again.write('p', b'word\n')
        out, code = self.ends(again, 'p')
        self.assertTrue(out.startswith('go\nword\n'), out)
        self.assertNotEqual(code, 0)
        self.assertTrue(again.read('p')['sandboxDenied'])
        # The cell ends with its last command, and its placeholders with the cell.
        wire.wait_until(lambda: not is_alive(cells[0]), 'the end of the cell')
        wire.wait_until(lambda: set(os.listdir(self.w)) == {'f'}, 'the end of the placeholders')
        self.assertEqual(self.said(again, 'echo more; cat f', policy), 'more\nword\n')

    def test_a_stale_cell_takes_no_more_starts(self):
        client = self.serve()
        policy = workspace_write(self.w)
        self.start(client, 'p', 'exec sleep 1000', policy)
        cells = confined_cells(self.srv)
        again = self.take_over(client)
        again.process('p')
        self.assertEqual(self.said(again, 'echo new', policy), 'new\n')
        self.assertEqual(again.request('process/terminate', {'processId': 'p'})['running'], True)
        wire.wait_until(lambda: not is_alive(cells[0]), 'the end of the cell')

    def test_the_end_of_the_server_leaves_nothing(self):
        client = self.serve()
        self.start(client, 'p', 'exec sleep 1000', workspace_write(self.w))
        cells = confined_cells(self.srv)
        self.take_over(client)
        self.srv.stop()
        self.assertFalse(is_alive(cells[0]))
        self.assertEqual(os.listdir(self.w), [])

    @ours_only
    def test_a_managed_network(self):
        site = Loopback(web([]))
        self.addCleanup(site.close)
        hosts = 'a.test=127.0.0.1*,a.test:80=127.0.0.1:%d*' % site.port
        client = self.serve(env={'SALLYPORT_TEST_HOSTS': hosts})
        self.start(client, 'p', '%s; read x; %s' % (FETCH, FETCH), workspace_write(self.w), pipeStdin=True,
                   networkProxy=LAUNCH)
        client.wait_output('p', '200\n')
        again = self.take_over(client)
        again.process('p')
        again.write('p', b'\n')
        self.assertEqual(self.ends(again, 'p'), ('200\n200\n', 0))


if __name__ == '__main__':
    tap.main()
