# SPDX-License-Identifier: Apache-2.0
"""libsallyport as it is installed: the three examples, built here and built against an installation.

EXAMPLES    directory of the examples that were built (default: beside the server)
BUILD_ROOT  the build directory, to install from
"""

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import tap
import wire
from server import PASS_ON, PROGRAM, SANITIZED, Case, ours_only

BUILD = os.environ.get('BUILD_ROOT') or os.path.dirname(PROGRAM)
EXAMPLES = os.environ.get('EXAMPLES') or os.path.join(BUILD, 'examples')
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')


def environment(**more):
    env = {'PATH': os.environ.get('PATH', '/usr/bin:/bin'), 'HOME': '/nonexistent', 'SALLYPORT_CONFIG': '/dev/null',
           'SALLYPORT_PROGRAM': PROGRAM}
    env.update({k: os.environ[k] for k in PASS_ON if k in os.environ})
    env.update(more)
    return env


def run(*words, cwd=None, **env):
    r = subprocess.run(words, capture_output=True, timeout=wire.DEADLINE * 3, env=environment(**env), cwd=cwd,
                       stdin=subprocess.DEVNULL)
    return r.returncode, r.stdout.decode(), r.stderr.decode()


def example(name, *words, **env):
    return run(os.path.join(EXAMPLES, 'example-' + name), *words, **env)


@ours_only
class Examples(Case):
    def test_run_behaves_like_the_command(self):
        self.assertEqual(example('run', 'sh', '-c', 'echo out; echo err >&2; exit 6'), (6, 'out\n', 'err\n'))
        self.assertEqual(example('run', 'true'), (0, '', ''))

    def test_run_has_a_time_out(self):
        code, out, err = example('run', '--timeout', '0.4', 'sh', '-c', 'echo begun; sleep 60')
        self.assertEqual((code, out), (124, 'begun\n'))
        self.assertIn('too long', err)

    def test_run_says_what_it_cannot_start(self):
        code, _, err = example('run', '/nonexistent/program')
        self.assertEqual(code, 127)
        self.assertIn('No such file or directory', err)
        self.assertEqual(example('run')[0], 2)

    def test_run_ends_when_the_command_is_refused(self):
        code, out, err = example('run', 'sh', '-c', 'rm -rf none; echo ran', SALLYPORT_DEFAULT_PERMISSIONS=':read-only')
        self.assertEqual((code, out), (126, ''))
        self.assertIn('rejected', err)

    def test_run_says_where_the_program_is_missing(self):
        code, _, err = example('run', 'true', SALLYPORT_PROGRAM='/nonexistent/sallyport')
        self.assertEqual(code, 125)
        self.assertIn('/nonexistent/sallyport', err)
        self.assertIn('SALLYPORT_PROGRAM', err)

    def test_chat_types_and_watches(self):
        code, out, err = example('chat', 'x=6', 'echo $((x * 7))', 'exit 3')
        self.assertEqual(code, 3, err)
        self.assertIn('42', out)
        events = [line for line in err.splitlines() if line.startswith('* ')]
        self.assertIn('started sh in ', events[0])
        self.assertIn('was typed into', err)
        self.assertRegex(events[-1], r'ended with code 3$')

    def test_chat_ends_what_does_not_end_itself(self):
        code, out, err = example('chat', 'echo here')
        self.assertEqual(code, 0, err)
        self.assertIn('here', out)

    def test_loop_carries_several_at_once(self):
        code, out, err = example('loop', 'sleep 0.3; echo slow', 'echo fast', 'exit 4')
        self.assertEqual(code, 4, err)
        lines = out.splitlines()
        self.assertIn('1: slow', lines)
        self.assertIn('2: fast', lines)
        self.assertLess(lines.index('2: fast'), lines.index('1: slow'))
        self.assertIn('3: code 4', out)
        self.assertGreaterEqual(int(re.search(r'ticked (\d+) times', err).group(1)), 2)

    def remotely(self, **how):
        srv = self.server(**how)
        code, out, err = example('loop', '--on', srv.url, 'pwd', 'echo $SALLYPORT_TEST_MARK', 'sleep 0.2; exit 5')
        self.assertEqual(code, 5, err)
        self.assertIn('1: %s\n' % os.path.realpath(srv.work), out)
        self.assertIn('2: %s\n' % srv.mark, out)
        self.assertIn('3: code 5', out)

    def test_loop_runs_on_a_server(self):
        self.remotely()

    def test_loop_runs_on_a_socket(self):
        self.remotely(listen='unix://' + os.path.join(self.scratch(), 's'))

    def test_loop_runs_on_a_server_that_the_configuration_starts(self):
        config = os.path.join(self.scratch(), 'sallyport.conf')
        with open(config, 'w') as f:
            f.write('default_environment = "box"\n[environments.box]\nprogram = "%s"\n'
                    'args = ["serve", "--listen", "stdio"]\ncwd = "/usr"\n' % PROGRAM)
        code, out, err = example('loop', 'pwd; exit 5', SALLYPORT_CONFIG=config)
        self.assertEqual(code, 5, err)
        self.assertIn('1: /usr\n', out)

    def test_loop_says_that_nobody_is_there(self):
        code, _, err = example('loop', '--on', 'unix:///nonexistent/socket', 'true')
        self.assertEqual(code, 125, err)
        self.assertIn('/nonexistent/socket', err)
        code, _, err = example('loop', '--on', 'nowhere', 'true')
        self.assertEqual(code, 125)
        self.assertIn('nowhere', err)


MESON = shutil.which('meson')
PKG_CONFIG = shutil.which('pkg-config') or shutil.which('pkgconf')
CC = shutil.which('cc') or shutil.which('gcc')
CXX = shutil.which('g++') or shutil.which('clang++')


class Installation:
    """Everything as `meson install` lays it out, in a directory that is not where it believes to be."""

    made = None

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix='sallyport-test-')
        atexit.register(shutil.rmtree, self.root, True)
        r = subprocess.run([MESON, 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', self.root],
                           capture_output=True, timeout=wire.DEADLINE * 3, text=True)
        if r.returncode != 0:
            raise AssertionError(r.stdout + r.stderr)
        self.files = [os.path.join(d, f) for d, _, names in os.walk(self.root) for f in names]
        self.program = self.find('bin/sallyport')
        self.pc = self.find('pkgconfig/sallyport.pc')
        self.lib = os.path.dirname(os.path.dirname(self.pc))

    def find(self, end):
        return next(f for f in self.files if f.endswith('/' + end))


@ours_only
@unittest.skipUnless(MESON and PKG_CONFIG and CC, 'meson, pkg-config and a compiler are needed')
@unittest.skipIf(SANITIZED, 'programs without the sanitizer cannot load what has it')
class Installed(Case):
    def setUp(self):
        super().setUp()
        Installation.made = Installation.made or Installation()
        self.at = Installation.made

    def test_make_install_compiles_what_it_installs(self):
        """And nothing else, such as the tests."""
        code, out, err = run('make', '-n', 'install', cwd=SOURCE)
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r'(?m)^ninja -C \S+ installed$')
        self.assertRegex(out, r'(?m)^meson install .*--no-rebuild')
        _, out, _ = run(MESON, 'introspect', '--installed', BUILD)
        built = {os.path.relpath(f, BUILD) for f in json.loads(out) if f.startswith(BUILD + '/') and 'meson-private' not in f}
        self.assertEqual(len(built), 3)
        _, out, _ = run('ninja', '-C', BUILD, '-t', 'query', 'installed')
        self.assertEqual(set(re.search(r'input: phony\n((?:    .*\n)+)', out).group(1).split()) - {'|'}, built)

    def test_make_uninstall_removes_what_was_installed(self):
        root = os.path.join(self.scratch(), 'root')
        self.assertEqual(run(MESON, 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', root)[0], 0)
        left = [f for _, _, names in os.walk(root) for f in names]
        self.assertIn('sallyport', left)
        code, out, err = run('make', 'uninstall', 'BUILD=' + os.path.relpath(BUILD, SOURCE), cwd=SOURCE)
        self.assertEqual(code, 0, out + err)
        self.assertEqual([f for _, _, names in os.walk(root) for f in names], [])

    def pkg_config(self, *words):
        code, out, err = run(PKG_CONFIG, *words, 'sallyport', PKG_CONFIG_PATH=os.path.dirname(self.at.pc),
                             PKG_CONFIG_SYSROOT_DIR=self.at.root)
        self.assertEqual(code, 0, err)
        return out.split()

    def build(self, *words):
        out = os.path.join(self.scratch(), 'program')
        code, _, err = run(words[0], '-Wall', '-Wextra', '-Werror', '-D_GNU_SOURCE', '-o', out, *words[1:])
        self.assertEqual(code, 0, err)
        return out

    def test_everything_is_there(self):
        for name in ('include/sallyport.h', 'bin/sallyport', 'man3/libsallyport.3', 'libsallyport.a',
                     'libsallyport.so', 'libsallyport.so.0'):
            with self.subTest(name):
                self.at.find(name)
        self.assertEqual(self.pkg_config('--modversion'), [run(self.at.program, '--version')[1].split()[1]])

    def test_each_example_builds_and_runs_with_the_shared_library(self):
        for name in ('run', 'chat', 'loop'):
            with self.subTest(name):
                program = self.build(CC, os.path.join(SOURCE, 'examples', name + '.c'), *self.pkg_config('--cflags', '--libs'))
                words = {'run': ('sh', '-c', 'exit 3'), 'chat': ('exit 3',), 'loop': ('exit 3',)}[name]
                code, _, err = run(program, *words, LD_LIBRARY_PATH=self.at.lib, SALLYPORT_PROGRAM=self.at.program)
                self.assertEqual(code, 3, err)

    def test_the_static_library_is_enough_by_itself(self):
        program = self.build(CC, os.path.join(SOURCE, 'examples', 'run.c'), *self.pkg_config('--cflags'),
                             os.path.join(self.at.lib, 'libsallyport.a'), '-pthread')
        self.assertEqual(run(program, 'sh', '-c', 'echo hello; exit 3', SALLYPORT_PROGRAM=self.at.program),
                         (3, 'hello\n', ''))

    def test_the_static_library_keeps_its_names_to_itself(self):
        code, out, _ = run('nm', '--defined-only', '--extern-only', os.path.join(self.at.lib, 'libsallyport.a'))
        self.assertEqual(code, 0)
        names = [line.split()[-1] for line in out.splitlines() if len(line.split()) == 3]
        self.assertTrue(names)
        self.assertEqual([n for n in names if not n.startswith('sp_engine_')], [])

    @unittest.skipUnless(CXX, 'no C++ compiler')
    def test_a_cpp_program_can_use_it(self):
        main = os.path.join(self.scratch(), 'main.cc')
        with open(main, 'w') as f:
            f.write('#include <cstdio>\nint run_true(int *);\n'
                    'int main() { int code = -2; return run_true(&code) < 0 ? 1 : code; }\n')
        program = self.build(CXX, main, os.path.join(SOURCE, 'tests', 'abi', 'header.cc'),
                             *self.pkg_config('--cflags', '--libs'))
        self.assertEqual(run(program, LD_LIBRARY_PATH=self.at.lib, SALLYPORT_PROGRAM=self.at.program)[0], 0)

    def test_a_program_of_another_version_is_refused(self):
        other = os.path.join(self.scratch(), 'sallyport')
        with open(other, 'w') as f:
            f.write('#!/bin/sh\necho sallyport 99.0\n')
        os.chmod(other, 0o755)
        code, _, err = example('run', 'true', SALLYPORT_PROGRAM=other)
        self.assertEqual(code, 125)
        self.assertIn('sallyport 99.0', err)


if __name__ == '__main__':
    tap.main()
