# SPDX-License-Identifier: Apache-2.0
"""The EXAMPLES of the manual pages, run as they are printed but for ports, addresses and names of other machines."""

import json
import os
import re
import shutil
import signal
import subprocess

import tap
import wire
from server import HERE, PASS_ON, PROGRAM, Case, is_alive, ours_only
from wire import wait_until

ROOT = os.path.abspath(os.path.join(HERE, '..', '..'))

# How an example is run. A number: to its end, with this exit status. `serve`: until its first line, or until it reads stdin,
# then SIGTERM. A string: why it is not run. An example that is not here fails.
WAYS = {
    'sallyport approvals allow 102 --session': 1,  # there is no such question
    'sallyport attach --read-only 4b1d/shell': 1,  # there is no such process
    'sallyport audit show --since 1h --decision denied': 0,
    'sallyport audit tail -f': 'follow',
    'sallyport audit verify': 0,
    'mv audit.jsonl audit-1.jsonl && sallyport audit verify audit-1.jsonl >> /site/audit.sums': 0,
    'sallyport config show approval_policy': 0,
    'sallyport config check': 0,
    'sallyport doctor': None,  # by what this host has
    'sallyport doctor > /dev/null || echo "no sandboxes here" >&2': 0,
    'sallyport exec --on builder --timeout 600 -- make test': 0,
    'tar c src | sallyport exec --on unix:///run/build.sock --cwd /site -- tar x': 0,
    "sallyport exec --on 'ws://127.0.0.1:8765/?token=...' --tty -- bash": 0,
    'sallyport exec --json --sandbox :read-only -- ls /root | jq -c .': 0,
    'sallyport exec -d --name web -- npm run dev': 0,
    'ssh host sallyport connect --spawn': 'serve',
    'sallyport kill --signal INT build': 0,
    'sallyport logs --follow --tail 20 build': 'follow',
    'sallyport mcp --cwd ~/project': 'serve',
    'sallyport mcp --listen http://127.0.0.1:8770/mcp --token-file ~/.sallyport/mcp.token': 'serve',
    'sallyport patch --check < fix.patch': 0,
    'sallyport patch --cwd ~/src/project < fix.patch': 0,
    'sallyport ps': 0,
    'sallyport rm build': 1,  # it runs
    'sallyport wait --timeout 60 build': 'follow',
    'sallyport rules list': 0,
    'sallyport rules add --decision prompt -- git push': 0,
    'sallyport rules add --host registry.example --decision deny': 0,
    'sallyport rules remove -- git push': 0,
    'sallyport rules check -r examples/default.rules -- git push --force': 0,
    'sallyport rules test -r examples/default.rules': 0,
    "sallyport rules explain -- bash -lc 'git status && rm -rf build'": 0,
    'sallyport sandbox --sandbox :workspace -- make test': 0,
    'sallyport sandbox --profile profile.json --explain ~/.ssh .git/config /etc': 0,
    'sallyport sandbox --profile profile.json --print-plan': 0,
    'sallyport sandbox --sandbox :workspace --allow-host pypi.org --allow-host files.pythonhosted.org -- pip download six':
        'needs a host of the internet',
    "sallyport sandbox --allow-host '**.example.org' --explain-host www.example.org": 0,
    'sallyport sandbox -- bash': 0,
    'sallyport serve --listen ws://127.0.0.1:8765 --log-level info': 'serve',
    'sallyport serve --listen ws://127.0.0.1:8765': 'serve',
    'sallyport serve --listen unix:///run/user/1000/sallyport.sock': 'serve',
    'sallyport serve --approve untrusted --approver client': 'serve',
    'ssh host sallyport serve --listen stdio': 'serve',
    'head -c 32 /dev/urandom | base64 > token && chmod 600 token': 0,
    'sallyport serve --listen ws://0.0.0.0:8765 --token-file token --host-name build.example.org': 'serve',
    'curl -i http://127.0.0.1:8765/readyz': 0,
    "python3 examples/run.py 'ws://127.0.0.1:8765/?token=...' -- uname -a": 0,
}


def examples():
    """(page, command) in the order of the pages; lines of output are left out."""
    for name in sorted(os.listdir(os.path.join(ROOT, 'man'))):
        if not name.endswith('.1'):
            continue
        with open(os.path.join(ROOT, 'man', name), encoding='utf-8') as f:
            section = re.search(r'^\.Sh EXAMPLES\n(.*?)(?=^\.Sh )', f.read(), re.M | re.S)
        text = section.group(1).replace('\\&', '').replace('\\e\n', '\n') if section else ''
        for block in re.findall(r'^\.Bd [^\n]*\n(.*?)^\.Ed', text, re.M | re.S):
            text = text.replace(block, '')
            for command in re.findall(r'^\$ (.*(?:\n {6}.*)*)', block, re.M):
                yield name, ' '.join(command.split())
        for command in re.findall(r'^\.Dl (.*)', text, re.M):
            yield name, command


@ours_only
class Examples(Case):
    def setUp(self):
        super().setUp()
        self.dir = os.path.realpath(self.scratch())
        self.home, self.work, self.site, run = (os.path.join(self.dir, n) for n in ('home', 'work', 'site', 'run'))
        for path in (self.home, self.work, self.site, run, os.path.join(self.home, '.sallyport'), os.path.join(self.dir, 'bin'),
                     os.path.join(self.home, 'project'), os.path.join(self.home, 'src', 'project'), os.path.join(self.work, 'src')):
            os.makedirs(path, 0o700, exist_ok=True)
        self.env = {k: os.environ[k] for k in PASS_ON if k in os.environ}
        self.env.update(HOME=self.home, XDG_RUNTIME_DIR=run, LC_ALL='C', PYTHONDONTWRITEBYTECODE='1',
                        PATH=os.path.join(self.dir, 'bin') + ':/usr/local/bin:/usr/bin:/bin')
        os.symlink(PROGRAM, os.path.join(self.dir, 'bin', 'sallyport'))
        shutil.copytree(os.path.join(ROOT, 'examples'), os.path.join(self.work, 'examples'))
        self.put('bin/ssh', '#!/bin/sh\nshift\nexec "$@"\n', 0o755)  # to this machine
        self.put('bin/npm', '#!/bin/sh\nexec sleep 60\n', 0o755)
        self.put('bin/jq', '#!/bin/sh\nexec python3 -c "import json, sys; [json.loads(l) for l in sys.stdin]"\n', 0o755)
        self.put('work/Makefile', 'test:\n\t@echo tested\n')
        self.put('work/src/file', 'text\n')
        self.put('work/profile.json', '{"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": '
                 '[{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}]}}')
        for place in ('work', 'home/src/project'):
            self.put(place + '/greeting', 'hello\n')
        self.put('work/fix.patch', '*** Begin Patch\n*** Update File: greeting\n@@\n-hello\n+bye\n*** End Patch\n')
        self.put('home/.sallyport/mcp.token', 'T' * 43 + '\n', 0o600)
        self.socket = os.path.join(self.dir, 'build.sock')
        self.put('home/.sallyport/sallyport.conf',
                 '[environments.builder]\nurl = "unix://%s"\ncwd = "%s"\n' % (self.socket, self.work))
        self.addCleanup(self.end_user_server)
        self.tcp = self.start('sallyport serve --listen ws://127.0.0.1:0')
        self.url = self.tcp.stdout.readline().decode().strip()
        self.start('sallyport serve --no-local-socket --listen unix://' + self.socket).stdout.readline()
        for n in range(2):  # a decision for the log
            self.run_it('sallyport exec --approve never -- %s' % ('true', 'rm -rf x')[n])

    def end_user_server(self):
        """`exec -d` has started it; it is nobody's child."""
        listed = json.loads(self.run_it('sallyport ps -a --json').stdout)
        servers = {p['serverPid'] for p in listed['processes'] if p['serverKind'] == 'user'}
        self.assertEqual(len(servers), 1, listed)
        for pid in servers:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda pid=pid: not is_alive(pid), 'end of the user server')

    def put(self, name, text, mode=0o644):
        with open(os.path.join(self.dir, name), 'w', encoding='utf-8') as f:
            f.write(text)
            os.fchmod(f.fileno(), mode)

    def start(self, command, cwd=None):
        p = subprocess.Popen(['sh', '-c', 'exec ' + command if '|' not in command else command], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, cwd=cwd or self.work)
        self.addCleanup(self.stop, p)
        return p

    def stop(self, p, number=signal.SIGTERM):
        if p.poll() is None:
            p.send_signal(number)
        try:
            p.wait(wire.DEADLINE)
        except subprocess.TimeoutExpired:
            p.kill()
            raise
        finally:
            for f in (p.stdin, p.stdout, p.stderr):
                f.close()
        return p.returncode

    def run_it(self, command, cwd=None):
        return subprocess.run(['sh', '-c', command], input='exit\n' if 'bash' in command else '', capture_output=True, text=True, env=self.env,
                              cwd=cwd or self.work, timeout=wire.DEADLINE)

    def here(self, command):
        """With our addresses in place of those that are printed."""
        port = re.search(r':(\d+)/', self.url).group(1)
        for what, ours in (('ws://127.0.0.1:8765/?token=...', self.url), ('http://127.0.0.1:8765', 'http://127.0.0.1:' + port),
                           ('ws://127.0.0.1:8765', 'ws://127.0.0.1:0'), ('ws://0.0.0.0:8765', 'ws://127.0.0.1:0'),
                           ('http://127.0.0.1:8770/mcp', 'http://127.0.0.1:0/mcp'), ('unix:///run/build.sock', 'unix://' + self.socket),
                           ('unix:///run/user/1000/', 'unix://%s/' % self.dir), ('/site', self.site), ('ls /root', 'ls /usr')):
            command = command.replace(what, ours)
        return command

    def test_each(self):
        found = list(examples())
        self.assertGreater(len(found), 40)
        self.assertEqual({c for _, c in found} ^ set(WAYS), set())
        for page, command in found:
            way, real = WAYS[command], self.here(command)
            cwd = os.path.join(self.home, '.sallyport') if command.startswith('mv audit') else self.work
            with self.subTest(page=page, command=command):
                if re.search(r' build$', command):
                    r = self.run_it('sallyport exec -d --name build -- sh -c "echo begun; exec sleep 60"')
                    self.assertTrue(r.returncode == 0 or 'build is running' in r.stderr, r.stderr)
                if isinstance(way, str) and way not in ('serve', 'follow'):
                    continue
                if way in ('serve', 'follow'):
                    p = self.start(real, cwd)
                    if re.search('stdio|connect|mcp --cwd', command):
                        p.stdin.close()
                        self.assertEqual(p.wait(wire.DEADLINE), 0, p.stderr.read())
                        continue
                    if 'wait' not in command:
                        self.assertTrue(p.stdout.readline(), command)
                    self.assertIn(self.stop(p), (0, -signal.SIGTERM, 143), command)
                    continue
                r = self.run_it(real, cwd)
                if way is not None:
                    self.assertEqual(r.returncode, way, r.stdout + r.stderr)
        wait_until(lambda: os.path.exists(os.path.join(self.site, 'src', 'file')), 'the tree that was copied')


if __name__ == '__main__':
    tap.main()
