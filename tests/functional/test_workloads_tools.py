#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Honest work is not harmed: languages, tools, and the edges where they meet the sandbox.

What is refused by design has to fail soon, with words, and without harm to what goes on.
"""

import os
import shutil
import socket
import subprocess
import time
import unittest

import tap
from workload import OPEN, PATH, HostServer, Workload, confined_only, has, needs


def rust_sysroot():
    """Where a toolchain lies: its front programs look for it in a home that is not there inside."""
    rustc = shutil.which('rustc')
    if not rustc:
        return None
    done = subprocess.run([rustc, '--print', 'sysroot'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    root = done.stdout.strip()
    return root if done.returncode == 0 and os.access(os.path.join(root, 'bin/cargo'), os.X_OK) else None


def host_name_resolves():
    try:
        return bool(socket.getaddrinfo(socket.gethostname(), None))
    except OSError:
        return False


RUST = rust_sysroot()


class Languages(Workload):
    @needs('cmake', 'gcc', 'make')
    def test_cmake(self):
        self.copy_in('c')
        self.works('cmake -S c -B build -DCMAKE_C_COMPILER=gcc > log && cmake --build build -j2 > log && '
                   'cd build && ctest')
        self.assertEqual(subprocess.check_output([self.path('build/program')]), b'55\n')

    @needs('g++')
    def test_c_plus_plus(self):
        self.put('x.cc', '#include <iostream>\n#include <thread>\n'
                         'int main() { std::thread t([] { std::cout << 42 << "\\n"; }); t.join();'
                         ' try { throw 7; } catch (int i) { std::cout << i << "\\n"; } }\n')
        self.assertEqual(self.works('g++ -pthread -o x x.cc && ./x'), '42\n7\n')

    @needs('gcc')
    def test_sanitizers(self):
        """They map tens of terabytes, read /proc/self/maps and start helpers."""
        self.put('x.c', '#include <stdlib.h>\n'
                        'int main(int argc, char **argv) { char *p = malloc(4); (void)argv; return p[argc * 4]; }\n')
        if self.run_in('gcc -fsanitize=address -g -o x x.c').exit_code != 0:
            self.skipTest('gcc has no address sanitizer here')
        self.fails('ASAN_OPTIONS=detect_leaks=0 ./x', 'heap-buffer-overflow', code=1)

    @needs('node')
    def test_node(self):
        self.copy_in('node')
        said = self.works(['node', 'test.js'], cwd=self.path('node'), env={} if OPEN else {'WORK_CONFINED': '1'})
        self.assertIn('done: watching', said)
        self.assertEqual(self.get('node/copied'), 'by node')

    @needs('node', 'npm')
    def test_npm_without_network(self):
        self.copy_in('node')
        said = self.works('npm --version && npm test --offline --no-update-notifier', cwd=self.path('node'))
        self.assertIn('done: web', said)

    @unittest.skipUnless(RUST, 'this machine has no Rust toolchain')
    def test_cargo_offline(self):
        self.copy_in('rust')
        env = {'PATH': os.path.join(RUST, 'bin') + ':' + PATH, 'CARGO_HOME': self.path('cargo')}
        said = self.works('cargo build -q --offline && ./target/debug/work', cwd=self.path('rust'), env=env)
        self.assertEqual(said, 'hello over loopback\n')
        home = {'PATH': env['PATH'], 'CARGO_HOME': self.home + '/.cargo'}  # cannot be written
        self.assertIn('1 passed', self.works('cargo test --offline', cwd=self.path('rust'), env=home))

    @needs('java', 'javac')
    def test_java(self):
        self.copy_in('java')
        said = self.works('javac Hello.java && java -cp . Hello', cwd=self.path('java'))
        self.assertEqual(said.splitlines()[:4], ['sum 499500', 'byte 65', 'child 5', 'file text'])
        if host_name_resolves():
            self.assertNotIn('no host', said)

    @needs('perl')
    def test_perl(self):
        said = self.works(['perl', '-MFile::Temp=tempfile', '-MIO::Socket::INET', '-e', '''
            my ($fh, $name) = tempfile(UNLINK => 1); print $fh "x" x 10; close $fh; print -s $name, "\n";
            my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die;
            my @peer = (PeerAddr => "127.0.0.1", PeerPort => $s->sockport);
            if (!fork) { print {IO::Socket::INET->new(@peer)} "hi\n"; exit }
            print $s->accept->getline; wait; print `echo child`;
            $SIG{USR1} = sub { print "signal\n" }; kill "USR1", $$;
        '''])
        self.assertEqual(said, '10\nhi\nchild\nsignal\n')

    @needs('tclsh')
    def test_tcl(self):
        self.put('x.tcl', 'set f [open out w]; puts $f [exec echo hi]; close $f; puts [expr {6 * 7}]\n'
                          'after 10 {set done 1}; vwait done; puts [file size out]\n')
        self.assertEqual(self.works(['tclsh', 'x.tcl']), '42\n3\n')

    @needs('python3')
    def test_python_modules(self):
        self.put('package/__init__.py', 'VALUE = 7\n')
        self.put('test_it.py', 'import unittest, package\n\nclass T(unittest.TestCase):\n    def test(self):\n'
                               '        self.assertEqual(package.VALUE, 7)\n')
        self.works('python3 -m unittest -q && python3 -m compileall -q package && python3 -m zipfile -c x.zip package',
                   env={'PYTHONDONTWRITEBYTECODE': ''})
        self.assertTrue(os.path.isdir(self.path('package/__pycache__')))

    @needs('python3')
    def test_python_venv(self):
        self.works('python3 -m venv --without-pip env && '
                   'env/bin/python -c "import sys; assert sys.prefix != sys.base_prefix"')


class Tools(Workload):
    def test_who_and_where(self):
        self.assertEqual(self.works('id -u').strip(), str(os.getuid()))
        self.assertEqual(self.works('pwd -P').strip(), os.path.realpath(self.w))
        self.works('date; uname -a; hostname; nproc; locale; tty || true; groups; env; umask; printenv HOME')
        if os.getuid() == 0:
            self.assertEqual(self.works('whoami'), 'root\n')

    @needs('hostname')
    def test_the_host_name_resolves(self):
        if not host_name_resolves():
            self.skipTest('nor does it outside')
        self.works('hostname -f')

    @needs('df', 'mount', 'free', 'uptime')
    def test_the_machine(self):
        said = self.works('df . && df -h > /dev/null; mount && free -m && uptime && cat /proc/loadavg')
        self.assertIn('Mem:', said)
        self.works('stat -f . && du -sh . && findmnt -T . > /dev/null || test ! -x /usr/bin/findmnt')

    @needs('ps', 'top')
    def test_processes_are_those_of_the_cell(self):
        said = self.works('sleep 5 & ps ax -o pid,comm; kill $!')
        if not OPEN:
            names = {line.split()[1] for line in said.splitlines()[1:]}
            self.assertLessEqual({n for n in names if not n.startswith('sallyport')}, {'bash', 'sleep', 'ps'}, said)
            self.assertEqual(said.splitlines()[1].split()[0], '1', said)
        self.assertIn('load average', self.works('top -b -n 1', env={'TERM': 'dumb'}))

    @needs('find')
    def test_find(self):
        said = self.works('find / -xdev -maxdepth 2 > list; tail -n +1 list; test -s list')
        self.assertIn('/usr/bin\n', said)

    @needs('getent')
    def test_names(self):
        self.assertIn('localhost', self.works('getent hosts localhost'))
        self.works('getent passwd root && getent group root && getent services http')

    @needs('node')
    def test_interfaces(self):
        """Development servers list them when they start."""
        said = self.works(['node', '-p', 'Object.keys(os.networkInterfaces()).join()'])
        self.assertEqual(said if not OPEN else 'lo\n', 'lo\n')

    @needs('apt')
    def test_apt_list(self):
        self.assertIn('bash/', self.works('apt list --installed bash 2> /dev/null'))

    @needs('less')
    def test_pager(self):
        self.put('text', 'some text\n')
        self.assertEqual(self.works('less text; less < text'), 'some text\n' * 2)

    @needs('script')
    def test_script(self):
        said = self.works('script -qec "tty; exit 3" log; echo $?; cat log')
        self.assertIn('/dev/pts/', said)
        self.assertIn('3\n', said)

    @needs('tar', 'gzip', 'xz', 'zip', 'unzip')
    def test_archives(self):
        self.put('d/a', 'x' * 10000)
        self.works('tar czf a.tgz d && tar cJf a.txz d && zip -qr a.zip d && mkdir 1 2 3 && tar xzf a.tgz -C 1 && '
                   'tar xJf a.txz -C 2 && unzip -q a.zip -d 3 && for i in 1 2 3; do cmp d/a $i/d/a || exit 1; done')

    @needs('python3', 'prlimit', 'taskset', 'ionice', 'chrt', 'stdbuf', 'nohup')
    def test_wrappers(self):
        self.works('prlimit --nofile=100 sh -c "test \\$(ulimit -n) = 100" && taskset -c 0 true; ionice -c 3 true && '
                   'chrt -b 0 true && stdbuf -oL true && nice true && nohup true > /dev/null && env -u HOME true')

    @needs('mv', 'cp')
    def test_moving_between_roots(self):
        self.put('d/f', 'text')
        self.works('mv d "$TMPDIR/d" && test ! -e d && mv "$TMPDIR/d" e && t=$(mktemp -d -p /tmp) && mv e "$t/" && '
                   'cp -a "$t/e" . && rm -r "$t" && cp -l e/f linked && test e/f -ef linked')
        self.assertEqual(self.get('e/f'), 'text')

    def test_times_of_commands(self):
        """A start costs milliseconds, also when the cell is there already."""
        self.works('true')
        began = time.monotonic()
        for _ in range(20):
            self.works(['true'])
        self.assertLess(time.monotonic() - began, 10)


@unittest.skipIf(OPEN, 'nothing is refused without a sandbox')
class Refusals(Workload):
    """What the sandbox does not allow fails cleanly."""

    def soon(self, seconds=15):
        case, began = self, time.monotonic()

        class Soon:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                case.assertLess(time.monotonic() - began, seconds, 'that took too long')
        return Soon()

    @needs('curl')
    def test_curl(self):
        with self.soon():
            self.refused('curl -sS -m 60 http://192.0.2.1/', 'connect')
        with self.soon():
            self.refused('curl -sS -m 60 http://example.invalid/', 'resolve')
        host = HostServer()
        self.addCleanup(host.close)
        with self.soon():
            self.fails('curl -sS -m 60 http://127.0.0.1:%d/' % host.port, 'connect', code=7)
        self.assertEqual(host.count, 0)

    @needs('curl', 'python3')
    def test_curl_to_a_server_inside(self):
        self.put('page', 'served inside\n')
        said = self.works('''python3 -u -m http.server --bind 127.0.0.1 0 > log 2>&1 & server=$!
            until port=$(sed -n 's/.* port \\([0-9]*\\) .*/\\1/p' log); test -n "$port"; do sleep 0.05; done
            curl -sS http://127.0.0.1:$port/page && curl -sS http://localhost:$port/page
            code=$?; kill $server; exit $code''')
        self.assertEqual(said, 'served inside\n' * 2)

    @needs('ping')
    def test_ping(self):
        with self.soon():
            self.fails('ping -c 1 -w 20 192.0.2.1')

    def test_other_users(self):
        for command in ('su -c id', 'sudo -n id', 'chroot / id', 'mount -t tmpfs none .', 'unshare -r true'):
            if has(command.split()[0]):
                with self.subTest(command), self.soon():
                    self.fails(command + ' < /dev/null')

    @needs('strace')
    def test_strace(self):
        with self.soon():
            self.refused('strace -f true', 'operation not permitted')

    @needs('gdb', 'gcc')
    def test_gdb(self):
        with self.soon(60):
            said = self.run_in(['gdb', '-batch', '-ex', 'run', '/bin/true'])
            self.assertIn(b'Operation not permitted', said.stderr + said.stdout)

    @needs('npm')
    def test_npm_install(self):
        self.put('package.json', '{"dependencies": {"not-there": "1.0.0"}}')
        with self.soon(60):
            self.refused('npm install --no-audit --fetch-retries=0 --no-update-notifier', 'npm error', 'npm err')

    @needs('pip3')
    def test_pip_install(self):
        with self.soon(60):
            self.refused('pip3 install --retries 0 --target=x not-there')

    def test_home(self):
        self.refused('echo x > ~/.profile', 'read-only file system')
        self.assertEqual(os.listdir(self.home), [])

    def test_protected_names(self):
        for name in ('.codex', '.agents', '.git'):
            self.fails('mkdir %s' % name, 'file exists')
            self.fails('echo x > %s/x' % name, 'read-only file system')
            self.fails('mv %s away' % name, 'busy')
        self.works('ls -A && mkdir -p sub/.codex && echo fine > sub/.codex/config')

    def test_core_dumps(self):
        self.works('ulimit -c unlimited 2> /dev/null; (kill -ABRT $BASHPID); ! ls core* 2> /dev/null')


if __name__ == '__main__':
    tap.main()
