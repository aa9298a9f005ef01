# SPDX-License-Identifier: Apache-2.0
"""README.md from top to bottom, as printed, by an ordinary user with sudo on a fresh Debian 12.

The system is made with mmdebstrap and entered through namespaces of its own: `chroot` is not enough,
the kernel refuses user namespaces, and so sandboxes, in a process whose root is not that of its mounts.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import tap
import wire
from server import HERE

ROOT = os.path.abspath(os.path.join(HERE, '..', '..'))
STEP_LIMIT = 1500 * wire.SCALE  # seconds; the longest builds everything twice
tap.TEST_LIMIT = int(3600 * wire.SCALE)

# How a block of the README is run, by its first line: a method of Readme, or the reason why it is not run. A block that
# is not here fails.
WAYS = {
    'make run ': 'make_run_and_test',
    '$ CODEX_EXEC_SERVER_URL="$URL" codex exec': 'needs the Codex CLI: tests/interop/test_readme.py',
    'default = "box"': 'start_what_it_names',
    '$ build/sallyport mcp --selftest': 'selftest_and_install',
    '[mcp_servers.sallyport]': 'start_what_it_names',
    '$ claude mcp add sallyport': 'start_what_it_names',
    '{"mcpServers"': 'start_what_it_names',
    '{"servers"': 'start_what_it_names',
    '$ build/sallyport exec --timeout 5': 'as_printed',
    '$ sallyport exec -d --name web': 'detached',
    '$ build/sallyport exec --approve never': 'as_printed',
    '$ build/sallyport sandbox --sandbox :workspace --allow-host pypi.org':
        'needs a host of the internet: test_network_verbs.py has hosts of its own',
    '$ build/sallyport sandbox --allow-host pypi.org': 'as_printed',
    'struct sp_run_options run': 'compile_an_example',
    "$ URL='ws://127.0.0.1:8765/?token=...'": 'talk_to_it',
}
INITIALIZE = {'mcp': {'jsonrpc': '2.0', 'id': 1, 'method': 'initialize', 'params': {
                  'protocolVersion': '2025-06-18', 'capabilities': {}, 'clientInfo': {'name': 'test', 'version': '1'}}},
              'serve': {'id': 1, 'method': 'initialize', 'params': {'clientName': 'test'}}}


def blocks():
    """The indented parts of the README, in order."""
    with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
        text = f.read()
    return [re.sub('^    ', '', m, flags=re.M) for m in re.findall(r'(?:^    .*\n)+', text, re.M)]


def commands(block):
    """(command, what is printed after it) of each `$` line."""
    return re.findall(r'^\$ ((?:.*\\\n)*.*)\n((?:[^$\n].*\n)*)', block, re.M)


class System:
    """A fresh Debian with make and sudo, the sources, and an ordinary user `new`."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix='sallyport-fresh-', dir='/var/tmp')
        self.root = os.path.join(self.dir, 'root')
        self.init = None

    def make(self):
        """None, or why there is none."""
        made = subprocess.run(['mmdebstrap', '--quiet', '--variant=minbase', '--include=make,sudo,ca-certificates', 'bookworm', self.root],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STEP_LIMIT)
        if made.returncode != 0:
            return 'mmdebstrap: ' + ' '.join(made.stderr.split())[-300:]
        shutil.copy('/etc/resolv.conf', os.path.join(self.root, 'etc'))
        with open(os.path.join(self.root, 'etc/sudoers.d/new'), 'w') as f:
            f.write('new ALL=(ALL) NOPASSWD: ALL\n')
        with open(os.path.join(self.root, 'etc/hosts'), 'w') as f:
            f.write('127.0.0.1 localhost %s\n' % os.uname().nodename)
        enter = ('mount --bind "$0" "$0" && cd "$0" && mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && '
                 'mount -t tmpfs -o mode=1777 tmp tmp && mkdir old && pivot_root . old && umount -l old && rmdir old && '
                 'echo ready && while :; do sleep 1000 & wait; done')
        self.init = subprocess.Popen(['unshare', '--mount', '--pid', '--fork', '--kill-child', '--propagation', 'private',
                                      'sh', '-c', enter, self.root], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True)
        said = self.init.stdout.readline()
        if said != 'ready\n':
            return 'no namespaces: ' + said
        with open('/proc/%d/task/%d/children' % (self.init.pid, self.init.pid)) as f:
            self.pid = int(f.read().split()[0])
        self.run('useradd -m -s /bin/bash new', user='root')
        self.copy_sources()
        return None

    def copy_sources(self):
        files = subprocess.run(['git', '-C', ROOT, 'ls-files', '-z'], capture_output=True)
        names = files.stdout.decode().split('\0')[:-1] if files.returncode == 0 else [
            n for n in os.listdir(ROOT) if not n.startswith('build')]
        tar = subprocess.run(['tar', 'c', '-C', ROOT, *names], capture_output=True, check=True)
        target = os.path.join(self.root, 'home/new/sallyport')
        os.mkdir(target)
        subprocess.run(['tar', 'x', '-C', target, '--no-same-owner'], input=tar.stdout, check=True)
        self.run('chown -R new: /home/new', user='root')

    def words(self, script, user):
        return ['nsenter', '--target', str(self.pid), '--mount', '--pid', '--wd=/', '--', 'su', '-', user, '-c', script]

    def popen(self, script, user='new', **how):
        return subprocess.Popen(self.words(script, user), text=True, env={'PATH': os.environ['PATH'], 'LC_ALL': 'C', 'TERM': 'xterm'},
                                **how)

    def run(self, script, user='new', typed=''):
        p = self.popen(script, user, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            out, _ = p.communicate(typed, timeout=STEP_LIMIT)
        except subprocess.TimeoutExpired:
            p.kill()
            raise
        return p.returncode, out

    def close(self):
        if self.init is not None:
            with self.init:
                self.init.kill()  # and, by --kill-child, all in it
        shutil.rmtree(self.dir, ignore_errors=True)


class Readme(unittest.TestCase):
    def setUp(self):
        if not tap.IS_LONG:
            self.skipTest('long form: make test-all')
        for tool in ('mmdebstrap', 'unshare', 'nsenter', 'pivot_root', 'tar'):
            if shutil.which(tool) is None:
                self.skipTest('no %s' % tool)
        if os.geteuid() != 0:
            self.skipTest('not root')
        self.system = System()
        self.addCleanup(self.system.close)
        why = self.system.make()
        if why is not None:
            self.skipTest(why)

    def here(self, command):
        return 'cd sallyport && ' + command

    def do(self, command, **how):
        status, out = self.system.run(self.here(command), **how)
        self.assertEqual(status, 0, '%s\n%s' % (command, out[-3000:]))
        return out

    def test_top_to_bottom(self):
        for block in blocks():
            ways = [way for first, way in WAYS.items() if block.startswith(first)]
            self.assertTrue(ways, 'a block without a way to run it:\n' + block)
            begun = time.monotonic()
            if hasattr(self, ways[-1]):
                getattr(self, ways[-1])(block)
            print('# %.0f s: %s%s' % (time.monotonic() - begun, block.split('\n')[0],
                                      '' if hasattr(self, ways[-1]) else ': ' + ways[-1]), flush=True)

    def make_run_and_test(self, block):
        self.assertEqual([line.split('#')[0].strip() for line in block.splitlines()], ['make run', 'make test'])
        with socket.create_server(('127.0.0.1', 0)) as free:
            port = free.getsockname()[1]
        server = self.system.popen(self.here('exec make run PORT=%d' % port), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(server.stdout.close)
        seen = []
        while not seen or 'codex exec' not in seen[-1]:
            line = server.stdout.readline()
            self.assertTrue(line, ''.join(seen)[-3000:])
            seen.append(line)
        shown = ''.join(seen).partition("\n  URL=")[2]
        shown = [line.strip() for line in ('URL=' + shown).splitlines() if 'Try, from' not in line]
        self.url = re.fullmatch("URL='(.*)'", shown[0]).group(1)
        self.assertEqual(len(shown), 4)  # no line with curl, which is not installed yet; the last is for the Codex CLI
        for line in shown[1:-1]:
            self.do('URL=%s; %s' % (shlex.quote(self.url), line))
        self.server = server
        # All tests are run by what runs this one.
        self.assertRegex(self.do('make test T=functional-smoke'), r'(?m)^[1-9]\d* passed, 0 failed, \d+ skipped$')
        status, out = self.system.run(self.here('build/sallyport doctor'))
        if status != 0:
            self.skipTest('this host makes no sandboxes for ordinary users: ' + out)

    def selftest_and_install(self, block):
        ((command, _),) = commands(block)
        self.assertNotIn('not ok', self.do(command))
        self.do('sudo make install')
        self.assertIn('installed', self.do('man -w sallyport >/dev/null 2>&1; sallyport --version >/dev/null && echo installed'))

    def start_what_it_names(self, block):
        """The program of a host's configuration answers a client's first message."""
        if block.startswith('{'):
            ((server,),) = [list(v.values()) for v in json.loads(block).values()]
            words = [server['command'], *server['args']]
        elif block.startswith('$'):
            ((command, _),) = commands(block)
            words = shlex.split(command.split(' -- ')[1])
        else:
            words = [re.search(r'^(?:program|command) = "(.*)"', block, re.M).group(1),
                     *json.loads(re.search(r'^args = (.*)', block, re.M).group(1))]
        command = shlex.join(words).replace("'${workspaceFolder}'", '"$PWD"')
        if words[0] == '/usr/local/bin/sallyport' and not os.path.exists(os.path.join(self.system.root, words[0][1:])):
            command = 'build/' + command[len('/usr/local/bin/'):]  # a block above `make install`
        answer = self.do(command, typed=json.dumps(INITIALIZE[words[1]]) + '\n')
        self.assertIn('result', json.loads(answer.splitlines()[-1]))

    def as_printed(self, block):
        for command, output in commands(block):
            self.assertEqual(self.system.run(self.here(command))[1], output, command)

    def detached(self, block):
        (start, _), (logs, _), (kill, _) = commands(block)
        self.system.run("printf '#!/bin/sh\\necho up\\nexec sleep 600\\n' >/usr/local/bin/npm; chmod +x /usr/local/bin/npm", user='root')
        self.assertRegex(self.do(start), r'^[a-z][a-z0-9]{7}\n$')
        follow = self.system.popen(self.here(logs), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertEqual(follow.stdout.readline(), 'up\n')
        self.assertEqual(self.do(kill), '')
        self.assertEqual(follow.communicate(timeout=wire.DEADLINE)[0], '')

    def compile_an_example(self, _):
        self.assertEqual(self.do('cc examples/run.c $(pkg-config --cflags --libs sallyport) -o /tmp/run && /tmp/run echo hello'), 'hello\n')

    def talk_to_it(self, block):
        (_, nothing), (command, output) = commands(block)
        self.assertEqual(nothing, '')
        self.assertEqual(self.system.run(self.here('URL=%s; %s' % (shlex.quote(self.url), command))), (3, output))
        self.do('sudo make uninstall && test ! -e /usr/local/bin/sallyport && ! ls /usr/local/lib/*/libsallyport*')
        os.killpg(self.server.pid, signal.SIGINT)  # Ctrl-C
        self.server.wait(wire.DEADLINE)


if __name__ == '__main__':
    tap.main()
