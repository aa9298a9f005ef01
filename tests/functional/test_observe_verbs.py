# SPDX-License-Identifier: Apache-2.0
"""The verbs that look at a server: ps, logs, attach (on a real terminal), kill."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

import tap
import wire
from sandbox_policy import project_write, read_only
from server import PROGRAM, Case, Gate, is_alive, ours_only
from terminal import DETACH, Screen
from wire import unb64, wait_until

SANITIZERS = {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}


class Proxy(threading.Thread):
    """Between a verb and its server: the connection can be cut, as networks do."""

    def __init__(self, to):
        super().__init__(daemon=True)
        self.to, self.pairs, self.is_up = to, [], True
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.url = 'ws://127.0.0.1:%d%s' % (self.listener.getsockname()[1], wire.query_of(to))
        self.start()

    def run(self):
        while True:
            try:
                here = self.listener.accept()[0]
            except OSError:
                return
            if not self.is_up:
                here.close()
                continue
            there = socket.create_connection(self.to)
            self.pairs.append((here, there))
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    @staticmethod
    def carry(a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                b.sendall(data)
        except OSError:
            pass

    def cut(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                s.close()

    def close(self):
        self.cut()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Liar(threading.Thread):
    """A server of one connection after the other that answers what it was told to answer."""

    def __init__(self, path, answers, notes=()):
        super().__init__(daemon=True)
        self.answers, self.notes = answers, notes
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(5)
        self.url = 'unix://' + path
        self.start()

    def run(self):
        while True:
            try:
                c = self.listener.accept()[0]
            except OSError:
                return
            try:
                self.serve(c.makefile('rw', encoding='utf-8', newline='\n'))
            except (OSError, ValueError):
                pass
            c.close()

    def serve(self, stream):
        for line in stream:
            asked = json.loads(line)
            if 'id' not in asked:
                continue
            told = self.answers.get(asked['method'], {'result': {}})
            if asked['method'] == 'initialize' and 'initialize' not in self.answers:
                told = {'result': {'sessionId': 'liar', 'environmentInfo': {'capabilities': {'observe': True}}}}
            stream.write(json.dumps(dict(told, id=asked['id'])) + '\n')
            if asked['method'] == 'process/attach':
                for note in self.notes:
                    stream.write(json.dumps(note) + '\n')
            stream.flush()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Verbs(Case):
    server_args = ()

    def setUp(self):
        super().setUp()
        self.runtime = os.path.realpath(self.scratch())
        self.env = dict(SANITIZERS, PATH='/usr/bin:/bin', HOME=self.scratch(), XDG_RUNTIME_DIR=self.runtime,
                        SALLYPORT_CONFIG='/dev/null', TERM='xterm')
        self.srv = self.server(*self.server_args, env={'XDG_RUNTIME_DIR': self.runtime})
        self.c = self.srv.session()

    def run_verb(self, *words, env=None, stdin=None):
        return subprocess.run([PROGRAM, *words], capture_output=True, env=dict(self.env, **(env or {})),
                              timeout=wire.DEADLINE, stdin=stdin or subprocess.DEVNULL)

    def ok(self, *words, **how):
        run = self.run_verb(*words, **how)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def refused(self, status, *words, **how):
        run = self.run_verb(*words, **how)
        self.assertEqual(run.returncode, status, (run.stdout, run.stderr))
        return run.stderr.decode()

    def shell(self, script, process_id='p', **more):
        return self.c.start(process_id, ['/bin/sh', '-c', script], **more)

    def screen(self, *words, **how):
        screen = Screen([PROGRAM, *words], self.env, **how)
        self.addCleanup(screen.close)
        return screen


@ours_only
class Ps(Verbs):
    def test_the_table(self):
        self.shell('echo up; read x', 'one', pipeStdin=True)
        self.c.start('two', ['/bin/sh', '-c', 'exit 3'], tty=True)
        self.c.wait_closed('two')
        lines = self.ok('ps').decode().splitlines()
        self.assertEqual(lines[0].split(), ['SERVER', 'SESSION', 'PROCESS', 'PID', 'STATE', 'AGE', 'CPU', 'PEAK', 'TTY', 'NET', 'CWD', 'COMMAND'])
        rows = [re.split('  +', line, maxsplit=11)[1:] for line in lines[1:]]
        self.assertEqual([line.split()[0] for line in lines[1:]], ['serve/%d' % self.srv.pid] * 2)
        pid = str(self.c.request('process/list')['processes'][0]['pid'])
        self.assertEqual(rows[0][5:7], ['-', '-'])
        self.assertRegex(' '.join(rows[1][5:7]), r'^[0-9]+\.[0-9]{2}s [0-9]+\.[0-9] [KM]iB$')
        self.assertEqual([r[:4] + r[7:] for r in rows], [
            [self.c.session_id[:8], 'one', pid, 'running', 'no', 'host', self.srv.work, "/bin/sh -c 'echo up; read x'"],
            [self.c.session_id[:8], 'two', rows[1][2], 'exited (3)', 'yes', 'host', self.srv.work, "/bin/sh -c 'exit 3'"]])
        self.assertRegex(rows[0][4], r'^[0-9]+s$')

    def test_the_network(self):
        for name, more in (('a', {}), ('b', {'sandbox': read_only(self.srv.work)}),
                           ('c', {'sandbox': project_write(self.srv.work, network='enabled')})):
            self.c.start(name, ['true'], **more)
            self.c.wait_closed(name)
        self.assertEqual([re.split('  +', line)[9] for line in self.ok('ps').decode().splitlines()], ['NET', 'host', 'none', 'host'])

    def test_an_empty_server(self):
        self.assertEqual(len(self.ok('ps').splitlines()), 1)

    def test_json(self):
        self.shell('read x', pipeStdin=True)
        told = json.loads(self.ok('ps', '--json'))
        self.assertEqual(told['server'], 'unix://%s/sallyport/%d.sock' % (self.runtime, self.srv.pid))
        for p in told['processes']:
            self.assertEqual((p.pop('serverPid'), p.pop('serverKind')), (self.srv.pid, 'serve'))
        self.assertEqual(told['processes'], self.srv.session().request('process/list', {'all': True})['processes'])

    def test_nothing_of_others_reaches_the_terminal(self):
        evil = 'a\x1b]0;title\x07\nb\x9b31m\u202e\u2066x\u00e9\x7f'
        self.c.start('id\x1b[2J', ['/bin/sh', '-c', 'read x', evil], pipeStdin=True)
        out = self.ok('ps')
        self.assertFalse(re.search(rb'[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]', out), out)
        self.assertIn(r"'a\x1b]0;title\x07\nb\x9b31m\u202e\u2066xé\x7f'".encode(), out)
        self.assertIn(rb'id\x1b[2J', out)

    def test_a_warning_of_the_configuration_does_nothing_to_the_terminal(self):
        run = self.run_verb('ps', '--set', 'permissions={"\\u001b[2J"={}}')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, rb'^sallyport: .*`\\x1b\[2J` has no file-system entries')

    def test_colours_are_for_terminals(self):
        self.shell('exit 3', 'failed')
        self.c.wait_closed('failed')
        self.shell('read x', 'runs', pipeStdin=True)

        def seen(**env):
            self.env.update(env)
            screen = self.screen('ps', cols=200)
            self.assertEqual(screen.end(), 0)
            return screen.seen
        self.assertIn(b'\x1b[31mexited (3)\x1b[0m', seen())
        self.assertIn(b'\x1b[32mrunning\x1b[0m', seen())
        self.assertNotIn(b'\x1b', self.ok('ps'))
        self.assertNotIn(b'\x1b', seen(TERM='dumb'))
        self.assertNotIn(b'\x1b', seen(TERM='xterm', NO_COLOR='1'))

    def test_a_terminal_is_not_overrun(self):
        self.env['NO_COLOR'] = '1'
        self.shell('read x; : ' + 'long ' * 100, pipeStdin=True)
        screen = self.screen('ps', cols=60)
        self.assertEqual(screen.end(), 0)
        self.assertTrue(all(len(line) <= 60 for line in screen.seen.decode().split('\r\n')[1:]), screen.seen)

    def test_wide_characters_take_two_columns(self):
        self.env['NO_COLOR'] = '1'
        self.shell('read x; : ' + '\u6f22\u5b57' * 40 + 'e\u0301', pipeStdin=True)
        screen = self.screen('ps', cols=60)
        self.assertEqual(screen.end(), 0)
        row = screen.seen.decode().split('\r\n')[1]
        self.assertIn(len(row) + sum(c in '\u6f22\u5b57' for c in row), (59, 60), row)

    def test_a_narrow_terminal_still_shows_the_command(self):
        self.env['NO_COLOR'] = '1'
        self.shell('read x; : the-command', pipeStdin=True)
        screen = self.screen('ps', cols=80)
        self.assertEqual(screen.end(), 0)
        title, row = screen.seen.decode().split('\r\n')[:2]
        self.assertIn("/bin/sh -c 'read x; ", row)
        self.assertEqual(title.split()[:1] + title.split()[-1:], ['SERVER', 'COMMAND'])
        self.assertNotIn('CWD', title)
        self.assertEqual(row.index('/bin/sh'), title.index('COMMAND'))
        wide = self.screen('ps', cols=300)
        self.assertEqual(wide.end(), 0)
        self.assertIn(self.srv.work, wide.seen.decode())

    def test_a_narrow_terminal_cuts_no_exit_code(self):
        self.env['NO_COLOR'] = '1'
        self.shell('exit 137', 'e137')
        self.c.wait_closed('e137')
        for cols in (44, 40, 36):
            screen = self.screen('ps', cols=cols)
            self.assertEqual(screen.end(), 0)
            self.assertIn(' exited (137) ', screen.seen.decode())
        screen = self.screen('ps', cols=16)
        self.assertEqual(screen.end(), 0)
        self.assertNotIn('exited', screen.seen.decode())

    def test_wrong_flags(self):
        for words in (['--no-such'], ['--json=x'], ['p'], ['--server']):
            self.assertTrue(self.refused(2, 'ps', *words))


@ours_only
class Finding(Verbs):
    def test_several_servers_are_one_list(self):
        other = self.server(env={'XDG_RUNTIME_DIR': self.runtime})
        self.shell('echo one; read x', 'first', pipeStdin=True)
        c = other.session()
        c.start('second', ['/bin/sh', '-c', 'echo two; read x'], pipeStdin=True)
        c.wait_output('second', 'two')
        lines = self.ok('ps').decode()
        for srv, name in ((self.srv, 'first'), (other, 'second')):
            url = 'unix://%s/sallyport/%d.sock' % (self.runtime, srv.pid)
            self.assertRegex(lines, r'(?m)^serve/%d +\w+ +%s ' % (srv.pid, name))
            for on in (url, str(srv.pid)):
                told = json.loads(self.ok('ps', '--json', '--on', on))
                self.assertEqual((told['server'], [p['processId'] for p in told['processes']]), (url, [name]))
        self.assertEqual(self.ok('logs', 'second'), b'two\n')
        # A name that is none: the servers, one a line, with what tells them apart.
        text = self.refused(1, 'ps', '--on', 'nosuch')
        self.assertRegex(text, r'(?m)^PID +KIND +AGE +DIRECTORY +URL$')
        for srv in (self.srv, other):
            self.assertRegex(text, r'(?m)^%d +serve +\w+ +(?:/|[.]{3})\S* +unix://\S+/%d\.sock$' % (srv.pid, srv.pid))

    def test_what_a_dead_server_left_is_swept(self):
        other = self.server(env={'XDG_RUNTIME_DIR': self.runtime})
        path = '%s/sallyport/%d.sock' % (self.runtime, other.pid)
        other.stop(signal.SIGKILL, -signal.SIGKILL)
        self.assertTrue(os.path.exists(path))
        self.ok('ps')
        self.assertFalse(os.path.exists(path))

    def test_what_is_not_a_dead_servers_is_left_alone(self):
        folder = os.path.join(self.runtime, 'sallyport')
        for name in ('x.sock', '0.sock', '12', '%d.sock' % os.getpid()):
            s = socket.socket(socket.AF_UNIX)
            s.bind(os.path.join(folder, name))
            s.close()
        before = sorted(os.listdir(folder))
        self.ok('ps')
        self.assertEqual(sorted(os.listdir(folder)), before)

    def test_a_url(self):
        shown = self.srv.bare_url + '/?...'
        self.assertEqual(json.loads(self.ok('ps', '--json', '--server', self.srv.url))['server'], shown)
        self.assertEqual(json.loads(self.ok('ps', '--json', '--set', 'server="%s"' % self.srv.url))['server'], shown)
        self.assertEqual(json.loads(self.ok('ps', '--json', env={'SALLYPORT_SERVER': self.srv.url}))['server'], shown)

    def test_a_name_of_the_configuration(self):
        path = os.path.join(self.scratch(), 'conf')
        with open(path, 'w') as f:
            f.write('[environments.box]\nurl = "%s"\n[environments.prog]\nprogram = "true"\n' % self.srv.url)
        os.chmod(path, 0o600)
        self.assertEqual(json.loads(self.ok('ps', '--json', '--config', path, '--server', 'box'))['server'],
                         self.srv.bare_url + '/?...')
        self.assertIn('a program', self.refused(1, 'ps', '--config', path, '--server', 'prog'))
        self.assertIn('no such server', self.refused(1, 'ps', '--config', path, '--server', 'nobody'))

    def test_a_token(self):
        token = os.path.join(self.scratch(), 'token')
        with open(token, 'w') as f:
            f.write('secret-secret-secret\n')
        os.chmod(token, 0o600)
        srv = self.server('--token-file', token, '--no-local-socket')
        self.refused(123, 'ps', '--server', srv.url)
        self.ok('ps', '--server', srv.url, '--token-file', token)
        self.ok('ps', '--set', 'server="%s"' % srv.url, '--set', 'token_file="%s"' % token)
        # A configured token is not shown to whoever is named.
        self.refused(123, 'ps', '--server', srv.url, '--set', 'token_file="%s"' % token)

    def test_nobody_there(self):
        s = socket.socket()
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
        for verb in (['ps'], ['logs', 'p'], ['attach', 'p'], ['kill', 'p']):
            text = self.refused(123, *verb, '--server', 'ws://127.0.0.1:%d' % port)
            self.assertIn('127.0.0.1:%d' % port, text)
        s.close()

    def test_a_folder_that_others_can_write_is_not_believed(self):
        os.chmod(os.path.join(self.runtime, 'sallyport'), 0o777)
        text = self.refused(123, 'ps')
        self.assertEqual(text, 'sallyport: no server is running; start one: sallyport exec -d -- COMMAND, or sallyport serve\n')
        self.refused(123, 'ps', '--set', 'token_file="/nowhere/token"')
        os.chmod(os.path.join(self.runtime, 'sallyport'), 0o700)


@ours_only
class Naming(Verbs):
    def test_a_process_is_meant_by_its_beginning(self):
        self.shell('echo one; read x', 'build-1', pipeStdin=True)
        self.shell('echo two; read x', 'build-2', pipeStdin=True)
        self.shell('echo three; read x', 'b', pipeStdin=True)
        for p in ('build-1', 'build-2', 'b'):
            self.c.wait_output(p, '\n')
        self.assertEqual(self.ok('logs', 'build-1'), b'one\n')
        self.assertEqual(self.ok('logs', 'b'), b'three\n')  # the whole name comes first
        self.assertEqual(self.ok('logs', self.c.session_id + '/build-2'), b'two\n')
        self.assertEqual(self.ok('logs', self.c.session_id[:6] + '/build-2'), b'two\n')
        text = self.refused(1, 'logs', 'build')
        self.assertIn('2 processes', text)
        self.assertIn('\n  build-1  ', text)
        self.assertIn('no such process', self.refused(1, 'logs', 'x'))
        self.assertIn('no such process', self.refused(1, 'logs', ''))
        self.assertIn('no such process', self.refused(1, 'logs', 'ffffffff-/b' if self.c.session_id[0] != 'f' else '0/b'))

    def test_a_name_means_the_live_process_or_else_the_last(self):
        for n, text in enumerate(('first', 'second', 'third')):
            reply = self.c.reply(self.c.post('process/start', {
                'processId': 'p%d' % n, 'name': 'web', 'argv': ['sh', '-c', 'echo %s; read x' % text], 'pipeStdin': True,
                'cwd': wire.file_uri(self.srv.work), 'env': {'PATH': '/usr/bin:/bin'}, 'tty': False}))
            self.assertIn('result', reply)
            self.c.wait_output('p%d' % n, text)
            self.assertEqual(self.ok('logs', 'web'), text.encode() + b'\n')
            self.assertEqual(self.ok('kill', 'web'), b'')
            self.c.wait_closed('p%d' % n)
            self.assertEqual(self.ok('logs', 'web'), text.encode() + b'\n')
        self.assertIn('no such process: we; did you mean `web`? ', self.refused(1, 'kill', 'we'))
        self.assertIn('no such process: weeb; did you mean `web`? ', self.refused(1, 'logs', 'weeb'))
        self.assertIn('no such process: other (see', self.refused(1, 'logs', 'other'))

    def test_a_few_letters_end_no_process_that_has_a_name(self):
        def start(process, **more):
            params = self.c.start_params(process, ['/bin/sh', '-c', 'echo up; read x'], pipeStdin=True)
            self.assertIn('result', self.c.reply(self.c.post('process/start', dict(params, **more))))
            self.c.wait_output(process, 'up')

        start('yu5dju3v', name='beta')
        start('we7epfa6')
        start('x1', name='web')
        for verb in ('logs', 'kill', 'wait', 'rm', 'attach'):
            self.assertIn('no such process: yu5 (see', self.refused(1, verb, 'yu5'))
            self.assertIn('no such process: we; did you mean `web`?', self.refused(1, verb, 'we'))
            self.assertIn('no such process: ' + self.c.session_id[:4] + '/', self.refused(1, verb, self.c.session_id[:4] + '/'))
        self.assertEqual(self.ok('logs', 'yu5d'), b'up\n')
        self.assertEqual(self.ok('logs', 'we7'), b'up\n')

    def test_the_same_id_in_two_sessions(self):
        other = self.srv.session()
        for c, text in ((self.c, 'mine'), (other, 'yours')):
            c.start('p', ['/bin/sh', '-c', 'echo %s; read x' % text], pipeStdin=True)
            c.wait_output('p', text)
        self.refused(1, 'logs', 'p')
        self.assertEqual(self.ok('logs', other.session_id[:12] + '/p'), b'yours\n')

    def test_an_id_with_a_slash(self):
        self.shell('echo said; read x', 'a/b', pipeStdin=True)
        self.c.wait_output('a/b', 'said\n')
        self.assertEqual(self.ok('logs', 'a/b'), b'said\n')
        self.assertEqual(self.ok('logs', self.c.session_id + '/a/b'), b'said\n')


@ours_only
class Logs(Verbs):
    HOSTILE = (r"printf 'tab\there\r\n\033]0;title\007\033[6n\rover\n\302'; sleep 0.2; printf '\251 \342\200\256x \303 \377\n'; "
               r"printf '\033[31mred\n' >&2; printf 'end\303'")

    def test_a_terminal_is_not_steered(self):
        self.shell(self.HOSTILE)
        said = self.c.wait_closed('p')
        for words in (['logs', 'p'], ['logs', '--follow', 'p']):
            s = self.screen(*words)
            self.assertEqual(s.end(), 0)
            self.assertIn(b'tab\there\r\n', s.seen)
            self.assertIn(b'\\x1b]0;title\\x07\\x1b[6n\\rover\r\n', s.seen)
            self.assertIn('\u00a9 \\u202ex \\xc3 \\xff\r\n'.encode(), s.seen)
            self.assertIn(b'\\x1b[31mred\r\n', s.seen)
            self.assertTrue(s.seen.endswith(b'\\xc3'), s.seen)
            self.assertNotIn(b'\x1b', s.seen)
        s = self.screen('logs', '--raw', 'p')
        self.assertEqual(s.end(), 0)
        self.assertIn(b'\x1b]0;title\x07\x1b[6n\rover\r\n', s.seen)
        self.assertEqual(self.ok('logs', 'p'), said.stdout)  # a pipe gets every byte

    def test_both_streams(self):
        self.shell('echo out; echo err >&2; exit 2')
        self.c.wait_closed('p')
        run = self.run_verb('logs', 'p')
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b'out\n', b'err\n'))

    def test_tail(self):
        self.shell('printf "1\\n2\\n3\\n4\\nrest"; read x', pipeStdin=True)
        self.c.wait_output('p', 'rest')
        for lines, want in ((0, b''), (1, b'rest'), (2, b'4\nrest'), (5, b'1\n2\n3\n4\nrest'), (99, b'1\n2\n3\n4\nrest')):
            self.assertEqual(self.ok('logs', '--tail', str(lines), 'p'), want)
        self.shell('printf "1\\n2\\n3\\n"; read x', 'q', pipeStdin=True)
        self.c.wait_output('q', '3\n')
        self.assertEqual(self.ok('logs', '--tail', '2', 'q'), b'2\n3\n')
        for bad in ('-1', 'x', '1.5'):
            self.refused(2, 'logs', '--tail', bad, 'p')

    def test_follow_ends_with_the_process(self):
        gate = Gate(self.srv.work)
        self.shell('echo early; %s; echo late; exit 5' % gate.wait)
        self.c.wait_output('p', 'early\n')
        with subprocess.Popen([PROGRAM, 'logs', '--follow', 'p'], stdout=subprocess.PIPE, env=self.env) as run:
            self.assertEqual(run.stdout.readline(), b'early\n')
            gate.open()
            self.assertEqual(run.stdout.read(), b'late\n')
            self.assertEqual(run.wait(wire.DEADLINE), 0)

    def test_follow_of_what_says_nothing(self):
        gate = Gate(self.srv.work)
        self.shell('%s' % gate.wait)
        with subprocess.Popen([PROGRAM, 'logs', '--follow', '--tail', '3', 'p'], stdout=subprocess.PIPE, env=self.env) as run:
            self.assertEqual(self.ok('logs', 'p'), b'')
            gate.open()
            self.assertEqual((run.stdout.read(), run.wait(wire.DEADLINE)), (b'', 0))

    def test_json(self):
        self.shell('echo out; exit 2')
        self.c.wait_closed('p')
        told = [json.loads(line) for line in self.ok('logs', '--json', 'p').splitlines()]
        self.assertEqual(told, [{'type': 'output', 'seq': 1, 'stream': 'stdout', 'chunk': 'b3V0Cg=='},
                                {'type': 'exited', 'seq': 2, 'exitCode': 2}, {'type': 'closed', 'seq': 3}])

    def test_a_gap_is_told(self):
        self.shell('head -c 3000000 /dev/zero | tr "\\0" x; read x', pipeStdin=True)
        self.c.wait_for(lambda: self.c.process('p').sizes['stdout'] == 3000000, 'all of it')
        run = self.run_verb('logs', 'p')
        self.assertEqual(run.returncode, 0)
        m = re.fullmatch(r'sallyport: [0-9]+ records \(([0-9]+) bytes\) of its output are not there any more\n',
                         run.stderr.decode())
        self.assertEqual(len(run.stdout) + int(m.group(1)), 3000000)
        first = json.loads(self.ok('logs', '--json', 'p').split(b'\n', 1)[0])
        self.assertEqual((first['type'], first['bytes']), ('gap', int(m.group(1))))
        self.assertEqual(self.run_verb('logs', '--tail', '0', 'p').stderr, b'')

    def test_a_pager_may_take_its_time_or_go(self):
        self.shell('head -c 900000 /dev/zero | tr "\\0" x; exit 1')
        self.c.wait_closed('p')
        with subprocess.Popen([PROGRAM, 'logs', 'p'], stdout=subprocess.PIPE, env=self.env) as run:
            run.stdout.read(10)
            run.stdout.close()
            self.assertIn(run.wait(wire.DEADLINE), (-signal.SIGPIPE, 1))

    def test_a_full_disk_is_said(self):
        self.shell('echo out; echo err >&2; echo more; read x', pipeStdin=True)
        self.c.wait_output('p', 'more')
        for words in (('p',), ('-f', 'p')):
            with self.subTest(words), open('/dev/full', 'wb') as full:
                run = subprocess.run([PROGRAM, 'logs', *words], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                                     env=self.env, timeout=wire.DEADLINE)
                self.assertEqual(run.returncode, 1)
                self.assertTrue(run.stderr.endswith(b'sallyport: write the output: No space left on device\n'), run.stderr)

    def test_a_reader_that_goes_ends_it(self):
        self.shell('echo ready; read x', pipeStdin=True)
        with subprocess.Popen([PROGRAM, 'logs', '-f', 'p'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=self.env) as run:
            self.assertEqual(run.stdout.readline(), b'ready\n')
            run.stdout.close()
            self.assertEqual(run.wait(wire.DEADLINE), 128 + signal.SIGPIPE)

    def test_the_end_of_the_server_is_told(self):
        self.shell('read x', pipeStdin=True)
        with subprocess.Popen([PROGRAM, 'logs', '--follow', 'p'], stderr=subprocess.PIPE, env=self.env) as run:
            wait_until(lambda: b'"running"' in self.ok('ps', '--json'), 'the process')
            time.sleep(0.3)
            self.srv.stop()
            self.assertEqual(run.wait(wire.DEADLINE), 123)
            self.assertTrue(run.stderr.read().startswith(b'sallyport: '))


@ours_only
class Cut(Verbs):
    """A connection that is lost and made again."""

    def setUp(self):
        super().setUp()
        self.proxy = Proxy(self.srv.address)
        self.addCleanup(self.proxy.close)

    def test_logs_go_on_where_they_were(self):
        self.shell('while read x; do echo "got $x"; done; exit 3', pipeStdin=True)
        with subprocess.Popen([PROGRAM, 'logs', '--follow', '--server', self.proxy.url, 'p'], stdout=subprocess.PIPE,
                              env=self.env) as run:
            for i in range(5):
                self.c.write('p', b'before %d\n' % i)
                self.assertEqual(run.stdout.readline(), b'got before %d\n' % i)
                self.proxy.is_up = False
                self.proxy.cut()
                self.c.write('p', b'meanwhile %d\n' % i)
                self.c.wait_output('p', 'got meanwhile %d\n' % i)
                self.proxy.is_up = True
                self.assertEqual(run.stdout.readline(), b'got meanwhile %d\n' % i)
            self.c.request('process/closeStdin', {'processId': 'p'})
            self.assertEqual((run.stdout.read(), run.wait(wire.DEADLINE)), (b'', 0))

    def test_attach_goes_on_where_it_was(self):
        self.shell(ECHO, tty=True)
        self.c.wait_output('p', 'ready')
        s = self.screen('attach', '--server', self.proxy.url, 'p')
        s.wait_raw()
        s.type('one\r')
        s.wait('got one\r\n')
        self.proxy.is_up = False
        self.proxy.cut()
        s.wait('the connection is lost; trying again')
        s.type('two\r')  # typed once, when it is back
        self.c.write('p', b'mine\r')
        self.c.wait_output('p', 'got mine')
        self.proxy.is_up = True
        s.wait('got two\r\n')
        s.wait('got mine\r\n')
        s.type('quit\r')
        self.assertEqual(s.end(), 6)
        self.assertEqual(self.c.wait_closed('p').text.count('got two'), 1)
        self.assertEqual(s.seen.count(b'got mine'), 1)

    def test_attach_gives_up_in_the_end(self):
        self.shell(ECHO, tty=True)
        self.c.wait_output('p', 'ready')
        s = self.screen('attach', '--server', self.proxy.url, 'p')
        s.wait_raw()
        s.type('one\r')
        s.wait('got one')
        self.proxy.is_up = False
        self.proxy.cut()
        self.assertEqual(s.end(), 123)
        self.assertIn(b'sallyport: ', s.seen)


@ours_only
class Lies(Verbs):
    """A server that says anything: the verb says what is wrong, and does nothing to the terminal."""

    ENTRY = {'sessionId': 's', 'processId': 'p', 'pid': 1, 'state': 'running', 'tty': False, 'exitCode': None,
             'nextSeq': 2, 'startedAtMs': 0, 'argv': ['x'], 'cwd': 'file:///'}

    def liar(self, answers, notes=()):
        liar = Liar(os.path.join(self.scratch(), 's'), answers, notes)
        self.addCleanup(liar.close)
        return liar.url

    def listing(self, **changes):
        entry = {k: v for k, v in dict(self.ENTRY, **changes).items() if v is not Ellipsis}
        return {'process/list': {'result': {'processes': [entry]}}}

    def test_lists(self):
        for change in ({'pid': 'x'}, {'pid': Ellipsis}, {'argv': 'x'}, {'argv': [1]}, {'processId': None},
                       {'sessionId': 7}, {'nextSeq': -1}, {'tty': 0}, {'cwd': 1}, {'state': []},
                       {'sandbox': 1}, {'sandbox': {'network': 1}}):
            text = self.refused(1, 'ps', '--server', self.liar(self.listing(**change)))
            self.assertIn('cannot be read', text)
        older = self.liar(self.listing(sandbox={'tier': 'cell'}))
        self.assertEqual(self.ok('ps', '--server', older).decode().splitlines()[1].split()[8], '?')
        for result in ([], 7, {}, {'processes': {}}, {'processes': [7]}):
            self.refused(1, 'ps', '--server', self.liar({'process/list': {'result': result}}))
        out = self.ok('ps', '--server', self.liar(self.listing(pid=-5, startedAtMs=2**62, cwd='\x1b', nextSeq=0,
                                                               state='\x1b[0m', argv=[])))
        self.assertNotIn(b'\x1b', out)

    def test_refusals_are_shown_and_do_nothing(self):
        text = self.refused(1, 'ps', '--server', self.liar({'process/list': {'error': {'code': 1, 'message': '\x1b[2J\n'}}}))
        self.assertEqual(text, 'sallyport: \\x1b[2J\\n\n')

    def test_a_server_that_cannot_be_observed(self):
        for info in ({}, {'environmentInfo': None}, {'environmentInfo': {'capabilities': []}},
                     {'environmentInfo': {'capabilities': {'observe': 1}}}):
            url = self.liar({'initialize': {'result': dict(info, sessionId='s')}})
            self.assertIn('observed', self.refused(1, 'ps', '--server', url))

    def test_notifications(self):
        place = {'sessionId': 's', 'processId': 'p'}
        for note in ({'seq': 'x'}, {'seq': 1, 'stream': 'stdout', 'chunk': '!'}, {'seq': 1, 'stream': 7, 'chunk': ''},
                     {'seq': 1, 'stream': 'stdout', 'chunk': '', 'gap': 7}, {'seq': 1}):
            url = self.liar(self.listing(), [{'method': 'process/output', 'params': dict(place, **note)}])
            self.assertIn('cannot be read', self.refused(1, 'logs', '--server', url, 'p'))
            self.assertIn('cannot be read', self.refused(1, 'attach', '--server', url, 'p'))
        others = [{'method': 'process/output', 'params': {'processId': 'p', 'seq': 9, 'stream': 'stdout', 'chunk': 'eA=='}},
                  {'method': 'process/output', 'params': dict(place, processId='q', seq=9, stream='stdout', chunk='eA==')},
                  {'method': 'process/strange', 'params': place},
                  {'method': 'process/output', 'params': dict(place, seq=1, stream='stdout', chunk='b2s=')},
                  {'method': 'process/exited', 'params': dict(place, seq=2, exitCode=4)},
                  {'method': 'process/closed', 'params': dict(place, seq=3)}]
        url = self.liar(self.listing(), others)
        self.assertEqual(self.ok('logs', '--follow', '--server', url, 'p'), b'ok')
        run = self.run_verb('attach', '--server', url, 'p')
        self.assertEqual((run.returncode, run.stdout), (4, b'ok'))


@ours_only
class Kill(Verbs):
    def test_the_tree_is_ended_and_that_is_waited_for(self):
        self.shell('setsid sleep 600 & echo $! $$; wait')
        pids = self.c.wait_line('p').split()
        self.srv.track(*pids)
        self.assertEqual(self.ok('kill', 'p'), b'')
        self.assertFalse(is_alive(int(pids[1])))
        self.assertGone(*pids)
        self.assertEqual(self.c.wait_closed('p').exit_code, 137)

    def test_a_signal(self):
        self.shell('trap "echo trapped; exit 4" USR1; echo ready; while :; do sleep 0.05; done')
        self.c.wait_output('p', 'ready')
        self.ok('kill', '--signal', 'usr1', 'p')
        self.assertEqual(self.c.wait_closed('p').exit_code, 4)

    def test_several_of_which_some_are_not_there(self):
        for name in ('a', 'b'):
            self.c.start(name, ['sleep', '600'])
        text = self.refused(1, 'kill', 'a', 'nobody', 'b')
        self.assertIn('no such process: nobody', text)
        for name in ('a', 'b'):
            self.assertEqual(self.c.wait_closed(name).exit_code, 137)

    def test_what_has_ended_cannot_be_killed(self):
        self.shell('exit 0')
        self.c.wait_closed('p')
        self.assertIn('p: it has ended already', self.refused(1, 'kill', 'p'))
        self.assertIn('p: it has ended already', self.refused(1, 'kill', '--signal', 'TERM', 'p'))

    def test_what_an_exited_command_has_left_is_told(self):
        self.shell('sleep 600 & exit 0')
        self.c.wait_exited('p')
        for words in ((), ('--signal', 'KILL')):
            self.assertIn('p: it has exited; processes that it has left hold its output open', self.refused(1, 'kill', *words, 'p'))

    def test_wrong_words(self):
        self.c.start('p', ['sleep', '600'])
        self.refused(2, 'kill')
        self.refused(2, 'kill', '--signal')
        self.assertIn('SIGNIFICANT', self.refused(2, 'kill', '--signal', 'SIGNIFICANT', 'p'))
        self.refused(2, 'kill', '--signal', 'x' * 500, 'p')
        self.assertEqual(self.c.request('process/list')['processes'][0]['state'], 'running')


ECHO = 'echo ready; while read x; do case $x in quit) exit 6;; size) stty size;; *) echo "got $x";; esac; done'


@ours_only
class Attach(Verbs):
    def attached(self, *words, **how):
        screen = self.screen('attach', *words, 'p', **how)
        screen.wait_raw()
        self.settle(screen)
        return screen

    def settle(self, screen):
        """It is attached once the server says that one more is, by its size or by a list of observers."""
        wait_until(lambda: screen.popen.poll() is not None or screen.is_raw(), 'attached')

    def interactive(self):
        self.shell(ECHO, tty=True)
        self.c.wait_output('p', 'ready')

    def test_typing_and_the_exit_code(self):
        self.interactive()
        s = self.attached()
        s.type('hello\r')
        s.wait('got hello\r\n')
        s.type('quit\r')
        self.assertEqual(s.end(), 6)
        self.assertEqual(self.c.wait_closed('p').exit_code, 6)

    def test_detach_and_attach_again(self):
        self.interactive()
        for _ in range(3):
            s = self.attached()
            s.type('one\r')
            s.wait('got one\r\n')
            s.type(DETACH)
            self.assertEqual(s.end(), 0)
            self.assertIn(b'detached', s.seen)
        self.assertFalse(self.c.process('p').exited)

    def test_another_key(self):
        self.interactive()
        s = self.attached('--detach-key', 'C-a')
        s.type('x\x1d\x7f\r')
        s.wait('got x\r\n')
        s.type('\x01')
        self.assertEqual(s.end(), 0)
        for bad in ('C-', 'x', 'C-1', 'C-ab', ''):
            self.refused(2, 'attach', '--detach-key', bad, 'p')

    def test_two_watch_and_one_types(self):
        self.interactive()
        first = self.attached()
        first.type('one\r')
        first.wait('got one')
        second = self.attached()
        second.wait('somebody else types; watching')
        second.type('ignored\r')
        first.type('two\r')
        for s in (first, second):
            s.wait('got two\r\n')
        self.assertNotIn(b'ignored', first.seen)
        second.type(DETACH)
        self.assertEqual(second.end(), 0)
        first.type('quit\r')
        self.assertEqual(first.end(), 6)

    def test_the_next_one_types(self):
        self.interactive()
        first = self.attached()
        first.type('one\r')
        first.wait('got one')
        second = self.attached()
        second.wait('somebody else types; watching')
        first.type(DETACH)
        self.assertEqual(first.end(), 0)

        def takes_over():
            second.type('x')
            second.take(0.3)
            return b'nobody else types any more' in second.seen
        wait_until(takes_over, 'the keyboard')
        second.type('\rtwo\r')
        second.wait('got two')
        second.type('quit\r')
        self.assertEqual(second.end(), 6)

    def test_the_end_of_a_pipe(self):
        self.c.start('p', ['sort'], pipeStdin=True)
        run = subprocess.run([PROGRAM, 'attach', '--end-input', 'p'], input=b'b\na\n', stdout=subprocess.PIPE, env=self.env,
                             timeout=wire.DEADLINE)
        self.assertEqual((run.returncode, run.stdout), (0, b'a\nb\n'))

    def test_steal(self):
        self.interactive()
        first = self.attached()
        first.type('one\r')
        first.wait('got one')
        second = self.attached('--steal')
        first.wait('somebody else types now; watching')
        second.type('two\r')
        for s in (first, second):
            s.wait('got two\r\n')
        first.type('lost\r')
        second.type('quit\r')
        self.assertEqual(second.end(), 6)
        self.assertEqual(first.end(), 6)
        self.assertNotIn(b'lost', second.seen)

    def test_the_owner_types_too(self):
        self.interactive()
        s = self.attached()
        s.type('one\r')
        s.wait('got one')
        self.c.write('p', b'mine\r')
        s.wait('got mine\r\n')

    def test_read_only(self):
        self.interactive()
        s = self.attached('--read-only')
        s.type('ignored\r')
        self.c.write('p', b'mine\r')
        s.wait('got mine\r\n')
        self.assertNotIn(b'ignored', s.seen)
        s.type(b'\x03')  # who cannot type wants to leave
        self.assertEqual(s.end(), 0)
        self.refused(2, 'attach', '--read-only', '--steal', 'p')

    def test_the_typists_size_holds(self):
        self.shell(ECHO, tty=True, rows=30, cols=90)
        self.c.wait_output('p', 'ready')
        s = self.attached(rows=41, cols=101)

        def has(size):  # asked again: it is another for a moment, so that programs draw
            s.type('size\r')
            s.take(0.2)
            return size in s.seen
        wait_until(lambda: has(b'41 101\r\n'), 'the size')
        s.resize(42, 102)
        s.popen.send_signal(signal.SIGWINCH)
        wait_until(lambda: has(b'42 102\r\n'), 'the new size')
        s.type(DETACH)
        self.assertEqual(s.end(), 0)

        def restored():
            self.c.write('p', b'size\r')
            self.c.pump(5)
            return '30 90\r\n' in self.c.process('p').text
        wait_until(restored, 'the size of the owner')

    def test_a_full_screen_program_draws_again(self):
        self.shell('trap "echo drawn" WINCH; echo ready; while :; do sleep 0.05; done', tty=True)
        self.c.wait_output('p', 'ready')
        s = self.attached()  # of the same size
        s.wait('drawn')
        s.type(DETACH)
        self.assertEqual(s.end(), 0)

    def test_signals_leave_the_terminal_as_it_was(self):
        self.interactive()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            s = self.attached()
            s.popen.send_signal(number)
            self.assertEqual(s.end(), 128 + number)
        self.assertFalse(self.c.process('p').exited)

    def test_stop_and_go_on(self):
        self.interactive()
        s = self.attached()
        s.popen.send_signal(signal.SIGTSTP)
        wait_until(lambda: not s.is_raw(), 'the terminal as it was')
        s.popen.send_signal(signal.SIGCONT)
        s.wait_raw()
        s.type('one\r')
        s.wait('got one')

    def test_the_end_of_the_server(self):
        self.interactive()
        s = self.attached()
        s.type('one\r')
        s.wait('got one')
        self.srv.stop()
        self.assertEqual(s.end(), 123)
        self.assertIn(b'sallyport: ', s.seen)

    def test_the_end_of_another_server(self):
        other = self.server(env={'XDG_RUNTIME_DIR': self.runtime})
        gate = Gate(self.srv.work)
        self.interactive()
        with subprocess.Popen([PROGRAM, 'exec', '--', 'sh', '-c', 'echo up; ' + gate.wait], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, env=self.env) as run:
            self.assertEqual(run.stdout.readline(), b'up\n')
            s = self.attached()
            s.type('one\r')
            s.wait('got one')
            gate.open()
            self.assertEqual(run.wait(wire.DEADLINE), 0)
        other.stop(signal.SIGKILL, -signal.SIGKILL)
        until = time.monotonic() + 1  # twice as long as the connection to a server here is tried again
        while time.monotonic() < until:
            s.take(0.1)
        s.type('two\r')
        s.wait('got two')
        self.assertNotIn(b'the connection is lost', s.seen)
        s.type('quit\r')
        self.assertEqual(s.end(), 6)

    def test_a_killed_server_leaves_no_full_screen(self):
        self.shell(r"printf '\033[?1049h\033[?25l\033[?1000;1006h'; echo drawn; read x; echo \"got $x\"; read x", tty=True)
        self.c.wait_output('p', 'drawn')
        s = self.attached()
        s.type('one\r')
        s.wait('got one')
        self.srv.stop(signal.SIGKILL, -signal.SIGKILL)
        self.assertEqual(s.end(), 123)
        before, after = s.seen.split(b'\x1b[?1049l')
        for off in (b'\x1b[?25h', b'\x1b[?1000l', b'\x1b[?1006l'):
            self.assertIn(off, before)
        self.assertIn(b'sallyport: ', after)

    def test_the_end_of_the_session(self):
        srv = self.server('--session-ttl', '0', '--no-local-socket')
        owner = srv.session()
        owner.start('p', ['/bin/sh', '-c', ECHO], tty=True)
        owner.wait_output('p', 'ready')
        s = self.screen('attach', '--server', srv.url, 'p')
        s.wait_raw()
        s.type('one\r')
        s.wait('got one')
        owner.close()
        self.assertEqual(s.end(), 123)
        self.assertIn(b'nobody knows how it ended', s.seen)

    def test_a_process_that_has_ended(self):
        self.shell('exit 9')
        self.c.wait_closed('p')
        s = self.screen('attach', 'p')
        self.assertEqual(s.end(), 9)
        self.assertIn(b'it has ended', s.seen)

    def test_death_by_signal(self):
        self.interactive()
        s = self.attached()
        self.c.terminate('p')
        self.assertEqual(s.end(), 137)

    def test_who_holds_the_streams_does_not_hold_us(self):
        self.shell('sleep 600 & read x; exit 3', pipeStdin=True)
        s = self.screen('attach', 'p')
        wait_until(lambda: b'"running"' in self.ok('ps', '--json'), 'the process')
        time.sleep(0.2)
        self.c.write('p', b'\n')
        self.assertEqual(s.end(), 3)

    def test_a_process_on_pipes(self):
        self.shell('while read x; do echo "got $x"; done; echo end >&2; exit 2', pipeStdin=True)
        s = self.screen('attach', 'p')

        def heard():
            s.type('line\n')
            s.take(0.3)
            return b'got line\r\n' in s.seen
        wait_until(heard, 'an answer')
        self.assertFalse(s.is_raw())
        s.type(b'\x04')
        self.assertEqual(s.end(), 2)
        self.assertIn(b'end\r\n', s.seen)

    def test_input_from_a_pipe(self):
        self.shell('read x; echo "got $x"; read x; exit 8', pipeStdin=True)
        r, w = os.pipe()
        os.write(w, b'piped\n')
        os.close(w)
        with subprocess.Popen([PROGRAM, 'attach', 'p'], stdin=r, stdout=subprocess.PIPE, env=self.env) as run:
            os.close(r)
            self.assertEqual(run.stdout.readline(), b'got piped\n')  # the end of the pipe is not the process's
            self.c.write('p', b'\n')
            self.assertEqual(run.wait(wire.DEADLINE), 8)

    def test_a_process_that_does_not_read_can_be_left(self):
        self.shell('stty raw -echo; echo ready; sleep 600', tty=True)
        self.c.wait_output('p', 'ready')
        s = self.attached()
        for _ in range(300):
            s.type(b'x' * 1000)
            s.take(0)
        s.type(DETACH)
        self.assertEqual(s.end(), 0)

    def test_much_output_arrives_whole(self):
        gate = Gate(self.srv.work)
        self.shell('%s; i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done; exit 4' % gate.wait, tty=True)
        s = self.attached()
        gate.open()
        self.assertEqual(s.end(), 4)
        while select.select([s.master], [], [], 0.2)[0]:
            s.take(0)
        if b'not there any more' not in s.seen:  # a machine that is slow enough overtakes us
            self.assertEqual(s.seen.count(b'line '), 20000)
        self.assertIn(b'line 19999\r\n', s.seen)

    def test_output_to_nobody(self):
        self.shell('while :; do echo more; sleep 0.05; done')
        with subprocess.Popen([PROGRAM, 'attach', 'p'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              env=self.env) as run:
            run.stdout.readline()
            run.stdout.close()
            self.assertEqual(run.wait(wire.DEADLINE), 128 + signal.SIGPIPE)

    def test_no_such_process(self):
        self.assertIn('no such process', self.refused(1, 'attach', 'nobody'))
        self.refused(2, 'attach')
        self.refused(2, 'attach', 'a', 'b')


if __name__ == '__main__':
    tap.main()
