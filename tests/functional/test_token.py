# SPDX-License-Identifier: Apache-2.0
"""The token in a server's URL: every client passes it on, and none of them shows it to others."""

import json
import os
import pty
import re
import subprocess
import tempfile

import tap
import wire
from sandbox_policy import ROOT, context, restricted
from server import PROGRAM, Case, is_alive, ours_only
from wire import wait_until

URLS = ('CODEX_EXEC_SERVER_URL', 'SALLYPORT_SERVER', 'SALLYPORT_DEFAULT_ENVIRONMENT', 'SALLYPORT_TOKEN')
SANITIZERS = {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}


class TokenCase(Case):
    def setUp(self):
        super().setUp()
        self.home = self.scratch()
        os.chmod(self.home, 0o700)
        self.env = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': self.home, 'SALLYPORT_HOME': self.home, **SANITIZERS}

    def run_program(self, *words, env=None, **how):
        return subprocess.run([PROGRAM, *words], capture_output=True, timeout=wire.DEADLINE, cwd=self.home,
                              stdin=subprocess.DEVNULL, env=dict(self.env, **(env or {})), **how)

    def configure(self, text):
        path = os.path.join(self.home, 'sallyport.conf')
        with open(path, 'w') as f:
            f.write(text)
        os.chmod(path, 0o600)


@ours_only
class Clients(TokenCase):
    """Through each door to a server that was told nothing but where to listen."""

    def setUp(self):
        super().setUp()
        self.srv = self.server('--no-local-socket')
        self.token = self.srv.address.token

    def passes(self, *words, want=b'hello\n', **how):
        run = self.run_program(*words, **how)
        self.assertEqual((run.returncode, run.stdout), (0, want), run.stderr)
        self.assertNotIn(self.token.encode(), run.stderr)

    def test_by_a_url(self):
        self.passes('exec', '--on', self.srv.url, '--', 'echo', 'hello')
        self.passes('exec', '--on', self.srv.url.replace('127.0.0.1', 'localhost'), '--', 'echo', 'hello')
        self.passes('exec', '--on', self.srv.url.replace('/?', '?'), '--', 'echo', 'hello')
        listed = self.run_program('ps', '--json', '--server', self.srv.url)
        self.assertEqual(json.loads(listed.stdout)['server'], self.srv.bare_url + '/?...')

    def test_the_list_of_processes_shows_no_token_of_others(self):
        self.srv.session().start('p', ['sleep', '600', 'ws://h:1/?token=secret', 'http://h/?a=b'])
        text = self.run_program('ps', '--server', self.srv.url).stdout
        self.assertIn(b"'ws://h:1/?************' 'http://h/?a=b'", text)
        self.assertNotIn(b'secret', text)

    def test_by_the_configuration(self):
        self.configure('[environments.box]\nurl = "%s"\n' % self.srv.url)
        self.passes('exec', '--on', 'box', '--', 'echo', 'hello')
        self.passes('exec', '--set', 'default_environment="box"', '--', 'echo', 'hello')
        path = os.path.join(self.home, 'token')
        with open(path, 'w') as f:
            f.write(self.token + '\n')
        os.chmod(path, 0o600)
        self.configure('[environments.box]\nurl = "%s"\ntoken_file = "%s"\n' % (self.srv.bare_url, path))
        self.passes('exec', '--on', 'box', '--', 'echo', 'hello')

    def test_what_is_wrong_is_said_without_the_token(self):
        wrong = self.srv.bare_url + '/?token=' + self.token[::-1]
        for words in (['exec', '--on', wrong, '--', 'true'], ['ps', '--server', wrong], ['logs', '--server', wrong, 'p'],
                      ['exec', '--json', '--on', wrong, '--', 'true'], ['mcp', '--on', wrong, '--cwd', '/']):
            run = self.run_program(*words)
            text = (run.stdout + run.stderr).decode()
            self.assertNotEqual(run.returncode, 0, words)
            self.assertIn('use the URL the server printed', text, words)
            self.assertNotIn(self.token[::-1], text, words)
        for url in ('wss://127.0.0.1:1/?token=secret', 'ws://a b/?token=secret', 'ws://u@h/?token=secret', 'http://x/?token=secret',
                    'ws://127.0.0.1:1/?token=secret', 'ws://127.0.0.1:1/?token=secret#', 'ws://h:99999/?token=secret'):
            for words in (['exec', '--on', url, '--', 'true'], ['ps', '--server', url], ['mcp', '--on', url, '--cwd', '/'],
                          ['ps', '--set', 'server="%s"' % url], ['exec', '--set', 'environments.x.url="%s"' % url, '--on', 'x', '--', 'true']):
                run = self.run_program(*words)
                self.assertNotEqual(run.returncode, 0, words)
                self.assertNotIn(b'secret', run.stdout + run.stderr, words)


@ours_only
class Arguments(TokenCase):
    """Other users can read /proc/PID/cmdline."""

    def cmdline(self, popen):
        with open('/proc/%d/cmdline' % popen.pid, 'rb') as f:
            return f.read()

    def active(self, srv):
        return int(re.search(rb'connections_active (\d+)', srv.http('GET', '/metrics').body).group(1))

    def test_they_lose_the_token(self):
        srv = self.server()
        token = srv.address.token.encode()
        c = srv.session()
        c.start('p', ['sleep', '600'])
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        for words in (['exec', '--on', srv.url, '--', 'sleep', '600'], ['exec', '--on=' + srv.url, '--', 'sleep', '600'],
                      ['logs', '--follow', '--server', srv.url, 'p'], ['attach', '--server', srv.url, 'p'],
                      ['logs', '--follow', '--set', 'server="%s"' % srv.url, 'p'],
                      ['mcp', '--on', srv.url, '--cwd', srv.work]):
            with self.subTest(words):
                wait_until(lambda: self.active(srv) == 1, 'the end of the one before')
                popen = subprocess.Popen([PROGRAM, *words], stdin=slave if words[0] == 'attach' else subprocess.PIPE, stdout=slave,
                                         stderr=slave, cwd=self.home, env=self.env)
                try:
                    wait_until(lambda: b'?' + b'*' * 20 in self.cmdline(popen), 'asterisks')
                    self.assertNotIn(token, self.cmdline(popen))
                    self.assertIn(srv.bare_url.encode(), self.cmdline(popen), 'where it goes may be seen')
                    wait_until(lambda: self.active(srv) == 2, 'a connection')
                    self.assertTrue(is_alive(popen.pid), 'it was let in')
                finally:
                    popen.kill()
                    popen.wait()
                    if popen.stdin:
                        popen.stdin.close()

    def test_a_commands_own_arguments_stay(self):
        run = self.run_program('exec', '--', 'echo', 'ws://h/?token=mine', 'http://h/?a=b')
        self.assertEqual(run.stdout, b'ws://h/?token=mine http://h/?a=b\n')


@ours_only
class Commands(TokenCase):
    """What a command is given, and where it could look."""

    def test_no_variable_leads_to_a_server(self):
        env = {name: 'ws://127.0.0.1:1/?token=secret' for name in URLS if name != 'SALLYPORT_DEFAULT_ENVIRONMENT'}
        for words in (['exec', '--', 'env'], ['exec', '--sandbox', ':read-only', '--', 'env'], ['sandbox', '--', 'env']):
            run = self.run_program(*words, env=env)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(b'PATH=', run.stdout)
            self.assertNotIn(b'secret', run.stdout, words)
        c = self.server(env=env).session()
        self.assertNotIn(b'secret', c.sh('env', envPolicy={'inherit': 'all', 'ignoreDefaultExcludes': True, 'exclude': [],
                                                           'set': {}, 'includeOnly': []}).stdout)

    def test_network_is_no_way_round_the_token(self):
        """The policy that Codex sends with network access runs by default, and opens nothing."""
        srv = self.server()
        w = tempfile.mkdtemp(dir=srv.work)
        script = ('exec 3<>/dev/tcp/127.0.0.1/%d; printf "GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n" >&3; head -n 1 <&3'
                  % srv.address[1])
        r = srv.session().run(['bash', '-c', script], sandbox=context(restricted([ROOT], 'enabled'), w))
        self.assertEqual(r.stdout, b'HTTP/1.1 401 Unauthorized\r\n')


@ours_only
class Output(TokenCase):
    def serve_to(self, out, *words):
        """The first line that a server writes there, and its stderr up to its end."""
        popen = subprocess.Popen([PROGRAM, 'serve', *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                                 cwd=self.home, env=dict(self.env, TMPDIR=self.home))
        wait_until(lambda: os.path.getsize(self.path) or popen.poll() is not None, 'a line')
        popen.terminate()
        err = popen.communicate(timeout=wire.DEADLINE)[1].decode()
        with open(self.path) as f:
            return f.read(), err

    def test_a_file_that_gets_the_token_is_warned_of(self):
        self.path = os.path.join(self.home, 'out')
        for words, warns in (([], True), (['--no-auth'], False), (['--listen', 'unix://%s/socket' % self.home], False)):
            with open(self.path, 'w') as f:
                line, err = self.serve_to(f, *words)
            self.assertEqual('token=' in line, warns)
            self.assertEqual('sallyport: the URL with the token goes to a file' in err, warns, err)
            self.assertNotRegex(err, r'token=[0-9a-f]')

    def test_the_log_does_not_have_it(self):
        srv = self.server('--log-level', 'debug')
        srv.session().sh('echo hi')
        srv.http('GET', '/?token=' + srv.address.token[::-1], wire.upgrade_headers(), anonymous=True)
        srv.stop()
        self.assertNotIn(srv.address.token, srv.last_stderr)
        self.assertNotIn(srv.address.token[::-1], srv.last_stderr)


if __name__ == '__main__':
    tap.main()
