# SPDX-License-Identifier: Apache-2.0
"""The server of a user: `serve --listen user`, `connect`, `exec --detach`; and where a server listens."""

import datetime
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time

import tap
import wire
from server import PROGRAM, Case, fd_names, is_alive, ours_only, stat_of
from terminal import Screen
from test_observe_verbs import SANITIZERS, Proxy
from wire import wait_until

HEADER = b'\nsallyport-connect 1 '
HELLO = (b'{"id":1,"method":"initialize","params":{"clientName":"test"}}\n{"method":"initialized"}\n'
         b'{"id":2,"method":"environment/status"}\n')


class Users(Case):
    """A runtime directory of its own; each server that appears in it is ended with the test."""

    def setUp(self):
        super().setUp()
        self.runtime = os.path.realpath(self.scratch())
        self.directory = os.path.join(self.runtime, 'sallyport')
        self.work = os.path.realpath(self.scratch())
        self.env = dict(SANITIZERS, PATH='/usr/bin:/bin', HOME=self.scratch(), XDG_RUNTIME_DIR=self.runtime,
                        SALLYPORT_CONFIG='/dev/null', TERM='xterm')
        self.addCleanup(self.end_servers)

    def pids(self):
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        return [int(n[:-5]) for n in names if n.endswith('.sock') and n[:-5].isdigit() and is_alive(int(n[:-5]))]

    def end_servers(self):
        for pid in self.pids():
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda p=pid: not is_alive(p), 'the end of server %d' % pid)

    def run_verb(self, *words, env=None, **how):
        how.setdefault('stdin', subprocess.DEVNULL) if 'input' not in how else None
        return subprocess.run([PROGRAM, *words], capture_output=True, env=dict(self.env, **(env or {})), cwd=self.work,
                              timeout=wire.DEADLINE, **how)

    def ok(self, *words, **how):
        run = self.run_verb(*words, **how)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def refused(self, status, *words, **how):
        run = self.run_verb(*words, **how)
        self.assertEqual(run.returncode, status, (run.stdout, run.stderr))
        return run.stderr.decode()

    def serve(self, *words, lines=1, **how):
        """(process, its URL lines)."""
        popen = subprocess.Popen([PROGRAM, 'serve', *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=self.env,
                                 cwd=self.work, **how)

        def end():
            popen.terminate()
            popen.wait()
            popen.stdout.close()
        self.addCleanup(end)
        return popen, [popen.stdout.readline().decode().rstrip('\n') for _ in range(lines)]


@ours_only
class Connect(Users):
    def test_without_a_server(self):
        self.assertIn('sallyport connect --spawn', self.refused(123, 'connect'))
        self.assertIn('start one: sallyport connect --spawn --name other, or sallyport serve --listen user:other\n',
                      self.refused(123, 'connect', '--name', 'other'))
        for name in ('', '12', 'a/b', '../x', 'a.b', 'x' * 65):
            self.assertIn('cannot name a server', self.refused(1, 'connect', '--name', name))
        self.refused(2, 'connect', 'x')

    def test_a_started_server_is_nobodys_child(self):
        secret = dict(SSH_AUTH_SOCK='/x', SSH_TTY='/y', OPENAI_API_KEY='k', MY_TOKEN='t', KEPT='1', GIT_AUTHOR_NAME='a')
        out = self.ok('connect', '--spawn', input=HELLO, env=secret)
        self.assertTrue(out.startswith(HEADER), out)
        first, header, *replies = out.splitlines()
        self.assertEqual([json.loads(r)['id'] for r in replies], [1, 2])
        pid = self.pids()[0]
        state, parent, group, session, _ = stat_of(pid)
        self.assertNotEqual(parent, os.getpid())
        self.assertNotEqual(session, os.getsid(0))
        self.assertNotEqual(session, pid)  # not its leader: it gets no terminal
        self.assertEqual(os.readlink('/proc/%d/cwd' % pid), '/')
        with open('/proc/%d/environ' % pid, 'rb') as f:
            names = {v.split(b'=')[0].decode() for v in f.read().split(b'\0') if v}
        self.assertEqual(names & {*secret, 'TERM'}, {'KEPT', 'GIT_AUTHOR_NAME'})
        self.assertEqual([n for n in fd_names(pid) if n.startswith('/') and self.runtime in n],
                         [os.path.join(self.directory, 'default.log')])
        for name in ('default.log', 'default.lock', 'default.sock'):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.directory, name)).st_mode), 0o600, name)
        self.assertEqual(self.ok('connect', input=HELLO).splitlines()[3], replies[1])

    def test_many_at_once_start_one(self):
        runs = [subprocess.Popen([PROGRAM, 'connect', '--spawn', '--name', 'many'], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, env=self.env) for _ in range(20)]
        for run in runs:
            out, _ = run.communicate(HELLO, timeout=wire.DEADLINE)
            self.assertEqual((run.returncode, len(out.splitlines())), (0, 4))
        self.assertEqual(len(self.pids()), 1)

    def test_a_killed_server_stops_nobody(self):
        self.ok('connect', '--spawn', input=HELLO)
        old = self.pids()[0]
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: not is_alive(old), 'its end')
        self.refused(123, 'connect')
        self.assertEqual(len(self.ok('connect', '--spawn', input=HELLO).splitlines()), 4)
        self.assertNotIn(old, self.pids())

    def test_a_server_that_does_not_start_is_explained(self):
        os.makedirs(self.directory, 0o700)
        os.mkdir(os.path.join(self.directory, 'default.sock'))
        self.assertIn('the server did not start', text := self.refused(1, 'connect', '--spawn'))
        self.assertIn('is not a socket', text)
        os.chmod(self.directory, 0o755)
        self.assertIn('not for us alone', self.refused(1, 'connect', '--spawn'))


@ours_only
class Bytes(Users):
    """`connect` and a server of ours that is none."""

    def setUp(self):
        super().setUp()
        os.makedirs(self.directory, 0o700)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.directory, 'fake.sock'))
        self.listener.listen()
        self.addCleanup(self.listener.close)
        self.popen = subprocess.Popen([PROGRAM, 'connect', '--name', 'fake'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      env=self.env)
        self.addCleanup(self.popen.wait)
        self.addCleanup(self.popen.stdout.close)
        self.addCleanup(self.popen.kill)
        self.peer = self.listener.accept()[0]
        self.addCleanup(self.peer.close)
        self.peer.settimeout(wire.DEADLINE)
        self.assertEqual(self.popen.stdout.readline() + self.popen.stdout.readline()[:len(HEADER) - 1], HEADER)

    def take(self, count):
        got = b''
        while len(got) < count:
            part = self.peer.recv(1 << 20)
            self.assertTrue(part)
            got += part
        return got

    def test_bytes_pass_as_they_are_and_half_closes(self):
        everything = bytes(range(256)) * 3
        self.popen.stdin.write(everything)
        self.popen.stdin.close()
        self.assertEqual(self.take(len(everything)), everything)
        self.assertEqual(self.peer.recv(1), b'')  # half of the socket
        self.peer.sendall(everything)
        self.peer.close()
        self.assertEqual(self.popen.stdout.read(), everything)
        self.assertEqual(self.popen.wait(wire.DEADLINE), 0)

    def test_one_direction_does_not_hold_up_the_other(self):
        size = 4 << 20
        self.peer.settimeout(None)
        sender = threading.Thread(target=self.peer.sendall, args=(b'd' * size,), daemon=True)
        sender.start()  # nobody reads our stdout, so this one is stuck
        up = os.urandom(size)
        writer = threading.Thread(target=lambda: (self.popen.stdin.write(up), self.popen.stdin.close()), daemon=True)
        writer.start()
        self.assertEqual(self.take(size), up)
        self.assertEqual(self.popen.stdout.read(size), b'd' * size)
        for thread in (sender, writer):
            thread.join(wire.DEADLINE)

    def test_the_end_of_the_server_ends_it(self):
        self.peer.sendall(b'last')
        self.peer.close()  # our stdin is open
        self.assertEqual(self.popen.stdout.read(), b'last')
        self.assertEqual(self.popen.wait(wire.DEADLINE), 0)
        self.popen.stdin.close()

    def test_the_end_of_the_reader_ends_it(self):
        self.popen.stdout.close()
        try:
            while True:
                self.peer.sendall(b'x' * 4096)
        except OSError:
            pass
        self.assertEqual(self.popen.wait(wire.DEADLINE), 0)
        self.popen.stdin.close()


@ours_only
class Listening(Users):
    def test_all_that_are_named_are_served(self):
        path = os.path.join(self.work, 's')
        popen, urls = self.serve('--listen', 'user', '--listen', 'user:b', '--listen', 'unix://' + path, '--listen', '0', lines=4)
        self.assertEqual(urls[:3], ['unix://%s/default.sock' % self.directory, 'unix://%s/b.sock' % self.directory,
                                    'unix://' + path])
        self.assertRegex(urls[3], r'^ws://127\.0\.0\.1:\d+/\?token=\w+$')
        for url in urls:
            self.assertEqual(self.ok('exec', '--on', url, '--', 'echo', 'here'), b'here\n')
        self.assertIn('401', self.refused(123, 'exec', '--on', urls[3].split('?')[0], '--', 'true'))

    def test_too_many_or_with_stdio(self):
        self.refused(2, 'serve', *['--listen', '0'] * 5)
        for words in (('stdio', '0'), ('0', 'stdio')):
            self.assertIn('stdio can be given only alone', self.refused(1, 'serve', '--listen', words[0], '--listen', words[1]))

    def test_short_forms(self):
        for form in ('0', ':0', 'localhost:0', 'ws://localhost:0', '127.0.0.1:0'):
            popen, urls = self.serve('--listen', form)
            self.assertRegex(urls[0], r'^ws://127\.0\.0\.1:\d+/\?token=', form)
            popen.terminate()
        self.assertIn('unix://%s/rel' % self.work, self.refused(1, 'serve', '--listen', 'unix://rel'))
        self.assertIn('user[:NAME]', self.refused(1, 'serve', '--listen', 'tcp:8'))
        self.assertIn('cannot name a server', self.refused(1, 'serve', '--listen', 'user:1'))

    def test_a_port_in_use_has_a_remedy(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            text = self.refused(1, 'serve', '--listen', str(taken.getsockname()[1]))
        self.assertIn('0 for a free one', text)
        self.assertIn('Address already in use', text)

    def test_refused_connections_are_logged(self):
        with open(os.path.join(self.work, 'log'), 'w+') as log:
            _, urls = self.serve('--listen', '0', '--log-level', 'info', '--max-connections', '1', stderr=log)
            address = urls[0][len('ws://'):].split('/')[0]
            text = self.refused(123, 'exec', '--on', 'ws://' + address, '--', 'true')
            self.assertIn('(a token is wanted, as in URL/?token=TOKEN)', text)
            with socket.create_connection(tuple(address.split(':')), wire.DEADLINE) as s:
                s.sendall(b'GET / HTTP/1.1\r\nHost: %s\r\nOrigin: http://x\r\n\r\n' % address.encode())
                self.assertIn(b' 403 ', s.recv(4096))
            host, port = address.split(':')
            client = wire.Client(wire.WebSocket.connect((host, int(port)), urls[0][len('ws://' + address):])).handshake()
            self.assertIn('503', self.refused(123, 'exec', '--on', urls[0], '--', 'true'))
            client.close()
            self.ok('ps', '--on', urls[0])  # says 1001 when it closes
            wait_until(lambda: open(log.name).read().count(' closed: ') >= 2, 'the line of its end')
            log.seek(0)
            lines = log.read()
        self.assertNotIn('shut down', lines)
        for why in ('missing websocket bearer token', 'a web page asked', '1 are open'):
            self.assertRegex(lines, r'info  connection 127\.0\.0\.1:\d+ refused: ' + why)

    def test_a_place_without_its_scheme(self):
        for given, meant in (('127.0.0.1:1', 'ws://127.0.0.1:1'), ('[::1]:1', 'ws://[::1]:1'), ('/a/b', 'unix:///a/b')):
            self.assertIn('did you mean `%s`?' % meant, self.refused(125, 'exec', '--on', given, '--', 'true'))

    def test_a_token_on_a_unix_socket(self):
        token, path = os.path.join(self.work, 'token'), os.path.join(self.work, 's')
        with open(token, 'w') as f:
            f.write('secret-secret-secret\n')
        os.chmod(token, 0o600)
        self.serve('--listen', 'unix://' + path, '--token-file', token)
        self.assertIn('wants a token on this socket, too', self.refused(123, 'exec', '--on', 'unix://' + path, '--', 'true'))
        self.ok('exec', '--on', 'unix://' + path, '--token-file', token, '--', 'true')

    def test_what_cannot_be_a_token_is_refused(self):
        path = os.path.join(self.work, 'token')
        with open(path, 'w') as f:
            f.write('# mine\nsecret\n')
        os.chmod(path, 0o600)
        self.assertIn('more than one line', self.refused(1, 'serve', '--token-file', path))
        with open(path, 'w') as f:
            f.write('fifteen-letters\n')
        for flag in ('--token-file', '--ws-token-file'):
            text = self.refused(1, 'serve', '--listen', '0', flag, path, *(() if flag[2] == 't' else ('--ws-auth', 'capability-token')))
            self.assertIn('`%s` %s: a token has at least 16 characters' % (flag, path), text)
        self.assertIn('is a directory, not', self.refused(1, 'serve', '--token-file', self.work))
        text = self.refused(1, 'serve', '--token-file', '/dev/null')
        self.assertIn('is a device, not', text)
        self.assertNotIn('chmod', text)

    def test_a_token_that_others_can_read_is_refused(self):
        path = os.path.join(self.work, 'token')
        with open(path, 'w') as f:
            f.write('secret-secret-secret\n')
        for mode in (0o644, 0o620):
            os.chmod(path, mode)
            text = self.refused(1, 'serve', '--token-file', path)
            self.assertIn('--token-file: others may read or write %s (mode %04o)' % (path, mode), text)
        os.chmod(path, 0o400)
        self.serve('--listen', '0', '--token-file', path)

    def test_an_idle_server_ends(self):
        popen, _ = self.serve('--listen', 'user', '--idle-exit', '0.2', '--closed-ttl', '0', '--session-ttl', '0')
        self.assertEqual(popen.wait(wire.DEADLINE), 0)
        popen, urls = self.serve('--listen', 'user', '--idle-exit', '0.2', '--closed-ttl', '0', '--session-ttl', '0',
                                 '--history', '0')
        mark = os.path.join(self.work, 'end')
        client = wire.Client(wire.Lines.connect(urls[0][len('unix://'):])).handshake()  # it stays until the process is there
        self.ok('exec', '--detach', '--', 'sh', '-c', 'sleep 0.8; echo > %s' % mark)
        client.close()
        self.assertEqual(popen.wait(wire.DEADLINE), 0)  # not before the end of the process
        self.assertTrue(os.path.exists(mark))
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_short_connection_counts(self):
        with open(os.path.join(self.work, 'log'), 'w+') as log:
            popen, urls = self.serve('--listen', 'user', '--idle-exit', '3', '--log-level', 'info', stderr=log)
            time.sleep(1)
            wire.Client(wire.Lines.connect(urls[0][len('unix://'):])).handshake().close()
            self.assertEqual(popen.wait(wire.DEADLINE), 0)
            log.seek(0)
            times = {line.split('  ', 1)[1].split(':')[0]: line.split()[0] for line in log}
        closed, ended = (datetime.datetime.fromisoformat(times[what][:-1]) for what in ('connection unix closed', 'idle'))
        self.assertGreaterEqual((ended - closed).total_seconds(), 2.99)  # of the server's clocks, rounded down

    def test_a_remembered_named_run_keeps_the_server(self):
        popen, urls = self.serve('--listen', 'user', '--idle-exit', '0.2', '--closed-ttl', '0', '--session-ttl', '0')
        client = wire.Client(wire.Lines.connect(urls[0][len('unix://'):])).handshake()  # it stays until the run is remembered
        self.ok('exec', '--detach', '--', 'true')
        wait_until(lambda: client.request('history/list')['entries'], 'the end of the run in the history')
        client.close()
        time.sleep(0.8)  # three times as long as an idle server lives
        self.assertIsNone(popen.poll())
        client = wire.Client(wire.Lines.connect(urls[0][len('unix://'):])).handshake()
        past = client.request('history/list')['entries']
        self.assertEqual(len(past), 1)
        client.request('history/remove', {'historyId': past[0]['historyId']})
        client.close()
        self.assertEqual(popen.wait(wire.DEADLINE), 0)


@ours_only
class Named(Users):
    """--on with the pid or the name of a server, as ps and its relations take it: by its local socket, without a token."""

    def test_exec(self):
        popen, _ = self.serve('--listen', '0', '--listen', 'user:b', lines=2)
        for on in (str(popen.pid), 'b', 'user:b', 'user/%d' % popen.pid):
            with self.subTest(on):
                self.assertEqual(self.ok('exec', '--on', on, '--', 'echo', 'here'), b'here\n')
                self.assertEqual(json.loads(self.ok('ps', '--on', on, '--json'))['processes'], [])
                self.assertEqual(self.ok('approvals', '--on', on), b'')
        self.assertIn('`99999999` is neither', self.refused(125, 'exec', '--on', '99999999', '--', 'true'))
        self.assertIn('did you mean `local`?', self.refused(125, 'exec', '--on', 'locl', '--', 'true'))

    def test_nothing_is_started_at_an_exec(self):
        with subprocess.Popen([PROGRAM, 'exec', '--', 'sh', '-c', 'echo up; read x'], env=self.env, cwd=self.work,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            self.assertEqual(other.stdout.readline(), b'up\n')
            wait_until(lambda: self.run_verb('ps', '--on', str(other.pid)).returncode == 0, 'its socket')  # after 10 ms
            text = self.refused(125, 'exec', '--on', str(other.pid), '--', 'true')
            other.stdin.close()
        self.assertIn('process/start', text)


@ours_only
class Detached(Users):
    def start(self, *words, **how):
        """Its id, all that is printed, so that id=$(sallyport exec -d …) is a word for logs and kill."""
        line = self.ok('exec', '-d', *words, **how).decode()
        self.assertRegex(line, '^[a-z][a-z0-9]{7}\n$')
        return line[:-1]

    def test_a_terminal_there_has_our_term(self):
        self.ok('connect', '--spawn', input=HELLO)

        def seen(*words):
            screen = Screen([PROGRAM, 'exec', '--on', 'default', *words, '--', 'sh', '-c', 'echo "<$TERM>"'],
                            dict(self.env, TERM='vt220'))
            self.addCleanup(screen.close)
            self.assertEqual(screen.end(), 0, screen.seen)
            return screen.seen
        self.assertIn(b'<vt220>', seen('-t'))
        self.assertIn(b'<ansi>', seen('-t', '-e', 'TERM=ansi'))
        self.assertIn(b'<ansi>', seen('-t', '--set', 'shell_environment_policy.set={TERM="ansi"}'))
        self.assertNotIn(b'vt220', seen())

    def test_it_runs_on_with_the_directory_and_the_variables_of_its_caller(self):
        self.serve('--listen', 'user', '--session-ttl', '0')
        web = self.start('--name', 'web', '--', 'sh', '-c', 'echo $FOO $MY_TOKEN $TERM; pwd; exec sleep 600',
                           env={'FOO': 'bar', 'MY_TOKEN': 'key'})
        wait_until(lambda: self.ok('logs', web) == b'bar key xterm\n%s\n' % self.work.encode(), 'its output')
        listed = json.loads(self.ok('ps', '--json'))['processes']
        self.assertEqual([(p['name'], p['processId'], p['state']) for p in listed], [('web', web, 'running')])
        self.assertIn('did you mean `web`?', self.refused(1, 'logs', str(listed[0]['pid'])))
        text = self.refused(125, 'exec', '-d', '--name', 'web', '--', 'true')
        self.assertIn('web is running (pid %d); choose another name or: sallyport kill web' % listed[0]['pid'], text)
        self.ok('kill', 'web')
        self.start('--name', 'web', '--', 'sleep', '600')
        self.ok('kill', 'web', self.start('--', 'sleep', '600'))

    def test_the_server_is_started_once_and_a_failed_start_is_told(self):
        self.assertEqual(self.refused(127, 'exec', '-d', '--', 'no-such-program'),
                         'sallyport: no-such-program: command not found\n')
        self.assertEqual(self.refused(126, 'exec', '-d', '--', '/etc/passwd'),
                         'sallyport: /etc/passwd: Permission denied\n')
        self.start('--', 'true')
        self.assertEqual(len(self.pids()), 1)

    def test_a_confined_one_gets_no_secrets_and_does_not_reach_the_server(self):
        self.serve('--listen', 'user')
        script = 'echo "[$MY_TOKEN]$FOO"; ls -d %s/default.sock; touch /etc/x; echo over' % self.directory
        run = self.run_verb('exec', '-d', '--sandbox', ':workspace', '--name', 'c', '--', 'sh', '-c', script,
                            env={'FOO': 'bar', 'MY_TOKEN': 'key'})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn(b'MY_TOKEN', run.stderr)  # told, without its value
        self.assertNotIn(b'key', run.stderr)
        wait_until(lambda: b'over' in self.ok('logs', 'c'), 'its output')
        self.assertEqual(self.ok('logs', 'c'), b'[]bar\nover\n')

    def test_a_confined_one_changes_no_file_that_decides(self):
        config, log, rules = (os.path.join(self.work, n) for n in ('own.conf', 'audit.jsonl', '.sallyport/rules'))
        with open(config, 'w') as f:
            f.write('trusted_projects = ["%s"]\naudit_log = "%s"\n' % (self.work, log))
        own = {'SALLYPORT_CONFIG': config}
        script = ('for f in %s %s; do echo x >> $f && echo written $f; done; mkdir -p %s && echo made; touch free; echo over'
                  % (config, log, rules))
        self.start('--sandbox', ':workspace', '--name', 'c', '--', 'sh', '-c', script, env=own)
        self.ok('wait', 'c')
        out = self.ok('logs', 'c').decode()
        self.assertIn('over', out)
        for word in ('written', 'made'):
            self.assertNotIn(word, out)
        self.assertTrue(os.path.exists(os.path.join(self.work, 'free')))
        self.assertEqual(os.path.getsize(log), 0)

    def test_a_wrong_configuration_starts_no_server_without_its_protection(self):
        config = os.path.join(self.work, 'own.conf')
        with open(config, 'w') as f:
            f.write('audit_log = 7\n')
        self.assertIn('audit_log', self.refused(1, 'connect', '--spawn', env={'SALLYPORT_CONFIG': config}))
        self.assertEqual(self.pids(), [])

    def test_it_is_judged_by_its_client(self):
        self.serve('--listen', 'user')
        rules = os.path.join(self.work, 'r.rules')
        with open(rules, 'w') as f:
            f.write('prefix_rule(pattern=["touch"], decision="forbidden")\n')
        mark = os.path.join(self.work, 'mark')
        self.refused(122, 'exec', '-d', '--rules', rules, '--', 'touch', mark)
        self.assertFalse(os.path.exists(mark))
        self.assertEqual(json.loads(self.ok('ps', '--json'))['processes'], [])

    def test_its_terminal_and_its_stdin_wait_for_an_attach(self):
        self.serve('--listen', 'user')
        self.start('-i', '--name', 'pipe', '--', 'cat')
        self.start('-t', '--name', 'tty', '--', 'sh', '-c', 'tty >/dev/null && while read x; do echo "got $x"; done')
        self.start('--name', 'none', '--', 'cat')
        wait_until(lambda: [p['state'] for p in json.loads(self.ok('ps', '--json'))['processes']] ==
                   ['running', 'running', 'closed'], 'the end of the one without stdin')
        for name in ('pipe', 'tty'):
            screen = Screen([PROGRAM, 'attach', name], self.env)
            self.addCleanup(screen.close)
            screen.wait('attached to %s; Ctrl-] detaches' % name)
            if name == 'tty':
                screen.wait_raw()
            screen.type('hello\n')
            screen.wait('got hello' if name == 'tty' else 'hello\r\nhello')
        self.ok('kill', 'pipe', 'tty')

    def test_on_another_server_and_as_json(self):
        popen, urls = self.serve('--listen', '0', '--no-local-socket')
        result = json.loads(self.ok('exec', '-d', '--json', '--name', 'far', '--on', urls[0], '--', 'sleep', '600'))
        self.assertEqual((result['kind'], result['exit_code'], result['name']), ('detached', 0, 'far'))
        self.assertEqual(self.ok('kill', '--server', urls[0], result['id']), b'')
        self.assertFalse(os.path.exists(os.path.join(self.directory, 'default.sock')))

    def test_an_id_that_cannot_be_written_is_told(self):
        self.serve('--listen', 'user')
        with open('/dev/full', 'wb') as full:
            run = subprocess.run([PROGRAM, 'exec', '-d', '--', 'sleep', '600'], stdin=subprocess.DEVNULL, stdout=full,
                                 stderr=subprocess.PIPE, env=self.env, timeout=wire.DEADLINE)
        self.assertEqual(run.returncode, 125)
        said = re.fullmatch(r'sallyport: the command was started as ([a-z0-9]{8}); write stdout: No space left on device\n',
                            run.stderr.decode())
        self.assertTrue(said, run.stderr)
        self.ok('kill', said[1])

    def test_a_remembered_one_has_ended_and_its_limit_is_listed(self):
        self.serve('--listen', 'user', '--closed-ttl', '0')
        self.start('--name', 'short', '--limit', 'wall=100ms', '--', 'sleep', '600')
        wait_until(lambda: 'short' in self.ok('ps', '-a').decode() and 'short' not in self.ok('ps').decode(), 'its history')
        self.assertRegex(self.ok('ps', '-a').decode(), r'short +[a-z0-9]{8} +\d+ +wall limit \(137\) ')
        for words in (('kill',), ('kill', '-s', 'INT')):
            self.assertEqual(self.refused(1, *words, 'short'), 'sallyport: short: it has ended already\n')

    def test_wrong_words(self):
        self.assertIn('--detach', self.refused(125, 'exec', '--name', 'x', '--', 'true'))
        self.assertIn('or give --network, with', self.refused(125, 'exec', '-d', '--publish', '8000', '--', 'true'))
        self.assertIn('--limit wall=TIME', self.refused(125, 'exec', '-d', '--timeout', '5', '--', 'true'))
        for name in ('', '--', '-x', 'x' * 65):
            self.assertIn('--name: `', self.refused(125, 'exec', '-d', '--name', name, '--', 'true'))
        self.assertIn('--name: `a b` is not 1 to 64 letters', self.refused(125, 'exec', '-d', '--name', 'a b', '--', 'true'))

    def test_an_environment_that_is_a_program_ends_with_its_connection(self):
        box = 'environments.box={program="%s", args=["serve", "--listen", "stdio"]}' % PROGRAM
        text = self.refused(125, 'exec', '-d', '--set', box, '--on', 'box', '--', 'true')
        self.assertIn('--detach: box is a program that ends with this connection', text)
        self.assertEqual(self.ok('exec', '--set', box, '--on', 'box', '--', 'echo', 'ran'), b'ran\n')

    def test_a_configured_port_that_is_not_published_is_told(self):
        left_out = b'`publish` of the configuration is left out'
        for flags, is_told in ((('--sandbox', ':read-only'), True), (('-q', '--sandbox', ':read-only'), False),
                               (('--sandbox', ':read-only', '--network'), False), ((), False)):
            run = self.run_verb('exec', '-d', '--set', 'publish=["18095:8000"]', *flags, '--', 'true')
            self.assertEqual((run.returncode, left_out in run.stderr), (0, is_told), run.stderr)

    def test_variables_that_are_no_text_are_left_out(self):
        self.serve('--listen', 'user')
        run = subprocess.run([PROGRAM.encode(), b'exec', b'-d', b'--name', b'v', b'--', b'sh', b'-c', b'echo "[$BAD]$FOO"'],
                             env=dict({k.encode(): v.encode() for k, v in self.env.items()}, BAD=b'\xff', FOO=b'bar'),
                             capture_output=True, cwd=self.work, timeout=wire.DEADLINE)
        self.assertEqual((run.returncode, run.stderr), (0, b'sallyport: BAD is not UTF-8; the command does not get it\n'))
        wait_until(lambda: self.ok('logs', 'v') == b'[]bar\n', 'its output')


@ours_only
class Notice(Users):
    """What a client hears at once: the end of its server, and a connection that is lost."""

    def test_the_end_of_a_server_is_told(self):
        popen, urls = self.serve('--listen', 'user', '--listen', '0', lines=2)
        raw = socket.socket(socket.AF_UNIX)
        self.addCleanup(raw.close)
        raw.settimeout(wire.DEADLINE)
        raw.connect(urls[0][len('unix://'):])
        raw.sendall(HELLO)
        lines = raw.makefile('rb')
        self.addCleanup(lines.close)
        self.assertEqual([json.loads(lines.readline())['id'] for _ in range(2)], [1, 2])
        runs = [subprocess.Popen([PROGRAM, 'exec', '--on', url, '--', 'sh', '-c', 'echo up; exec sleep 600'], env=self.env,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for url in urls]
        for run in runs:
            self.assertEqual(run.stdout.readline(), b'up\n')
        began = time.monotonic()
        popen.terminate()
        self.assertEqual(lines.readlines(), [b'{"method":"server/ending","params":{}}\n'])
        for run in runs:
            out, err = run.communicate(timeout=wire.DEADLINE)
            self.assertEqual(run.returncode, 123)
            self.assertIn(b'the server has shut down', err)
        self.assertLess(time.monotonic() - began, 20)  # a connection that is only lost is tried again for 25 s

    def through_a_proxy(self):
        popen, urls = self.serve('--listen', '0')
        host = urls[0].split('/')[2].split(':')
        proxy = Proxy((host[0], int(host[1])))
        proxy.url = 'ws://127.0.0.1:%d/?%s' % (proxy.listener.getsockname()[1], urls[0].split('?')[1])
        self.addCleanup(proxy.close)
        return proxy

    def test_a_lost_connection_is_told_and_ctrl_c_gives_up(self):
        proxy = self.through_a_proxy()
        run = subprocess.Popen([PROGRAM, 'exec', '--on', proxy.url, '--', 'sh', '-c', 'echo up; read x; echo "got $x"; read x'],
                               env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(run.stdout.readline(), b'up\n')
        proxy.cut()
        self.assertIn(b'the connection to the server is lost', run.stderr.readline())
        self.assertEqual(run.stderr.readline(), b'sallyport: connected again\n')
        run.stdin.write(b'on\n')
        run.stdin.flush()
        self.assertEqual(run.stdout.readline(), b'got on\n')
        proxy.is_up = False
        proxy.cut()  # this loss is not told: not twice in 5 s
        deadline = wire.deadline()
        while run.poll() is None and time.monotonic() < deadline:
            os.kill(run.pid, signal.SIGINT)
            time.sleep(0.1)
        self.assertEqual(run.returncode, 130)
        self.assertIn(b'the command may still be running there', run.stderr.read())
        for stream in (run.stdin, run.stdout, run.stderr):
            stream.close()

    def test_ctrl_c_at_a_terminal(self):
        proxy = self.through_a_proxy()
        screen = Screen([PROGRAM, 'exec', '--on', proxy.url, '-t', '--', 'sh', '-c', 'echo up; exec cat'], self.env)
        self.addCleanup(screen.close)
        screen.wait('up')
        screen.wait_raw()
        proxy.is_up = False
        proxy.cut()
        screen.wait('Ctrl-C gives up')
        screen.type(b'\x03')
        screen.wait('given up')
        self.assertEqual(screen.end(), 130)


if __name__ == '__main__':
    tap.main()
