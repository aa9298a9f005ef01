# SPDX-License-Identifier: Apache-2.0
"""The escapes of test_escape once more, on hosts that lack something: without Landlock the mount
view, the namespaces and the filter stop them alone, and without namespaces Landlock and the filter."""

import unittest

import server
import tap
from server import PEER
from test_degraded import REFUSE

try:
    import test_escape
    MISSING = None
except OSError as e:
    test_escape, MISSING = None, 'the programs of tests/escape are not built: %s' % e

# What Landlock alone stops: two commands of one session and policy have the same user, and share a
# pid namespace.
NEEDS_LANDLOCK = {
    'neighbour': {'see-neighbour', 'kill-neighbour', 'stop-neighbour', 'sigio-to-neighbour', 'memory-of-neighbour',
                  'environment-of-neighbour', 'root-of-neighbour', 'stdin-of-neighbour', 'stdout-of-neighbour'},
}

# What succeeds in the host's own view, where nothing can be hidden: to read, to look, and to reach
# nobody but oneself. The last three are no attempts to get out but facts to be checked.
THIN_SUCCEEDS = {'hosts-shm-object', 'dev-others', 'read-proc-keys', 'read-timer-list', 'runtime-directory',
                 'hosts-run',
                 'pidfd-open-host', 'signal-everybody', 'setuid-program', 'no-capabilities', 'only-three-descriptors'}


def kinds():
    """The classes of test_escape that make a run each."""
    return {name: kind for name, kind in sorted(vars(test_escape).items())
            if isinstance(kind, type) and issubclass(kind, test_escape.Kind) and kind.uid is not None}


class Escapes(unittest.TestCase):
    """One run a test: its rows are judged together."""

    words = ''

    def setUp(self):
        if PEER or MISSING:
            self.skipTest(MISSING or 'the reference differs')
        server.PREFIX[:] = [REFUSE, self.words, '--']
        self.addCleanup(server.PREFIX.clear)

    def made(self, kind):
        """The run, or a skip if this host has no namespaces at all."""
        run = test_escape.Run(kind, kind.uid)
        self.addCleanup(run.end)
        if run.trouble and test_escape.CANNOT in run.trouble and self.words.startswith('landlock'):
            if test_escape.run_as(kind.uid, [test_escape.ESCAPE, 'probe']).returncode != 0:
                self.skipTest('this host gives uid %d no namespaces' % kind.uid)
        return run

    def judge(self, run, may_succeed=frozenset()):
        """Every row but those holds, nothing outside has changed, nothing is left."""
        self.assertIsNotNone(run.lines, run.trouble)
        self.assertGreater(len(run.lines), 3)
        wrong = {line.name: str(line) for line in run.lines.values() if line.verdict == 'FAIL'}
        self.assertEqual({k: v for k, v in wrong.items() if k not in may_succeed}, {})
        self.assertEqual(may_succeed - set(run.lines), set(), 'rows that are not there any more')
        if not may_succeed:
            self.assertIsNone(run.trouble)
        self.assertEqual(test_escape.differences(run.before, run.after), [])
        self.assertEqual(run.end(), [])
        touched = {k for k, v in (run.touched or {}).items() if v != '0' and k != 'tcp'}
        self.assertEqual(touched, set())


class WithoutLandlock(Escapes):
    words = 'landlock=ENOSYS'


def add_tests():
    for name, kind in kinds().items():
        may_succeed = NEEDS_LANDLOCK.get(kind.suite, frozenset())
        setattr(WithoutLandlock, 'test_' + name, lambda self, k=kind, m=may_succeed: self.judge(self.made(k), m))


if test_escape is None:
    WithoutLandlock.test_programs = lambda self: None  # skipped, and why
else:
    add_tests()

    class ThinKind(test_escape.ReadOnlyKind):
        """126: nothing may be written, in the host's own view."""

        suite = 'thin'


class WithoutNamespaces(Escapes):
    words = 'userns=EPERM'

    def thin(self, user, suite):
        if user not in test_escape.USERS:
            self.skipTest('the test does not run as root')
        return self.made(type('Thin', (ThinKind,), {'uid': test_escape.USERS[user], 'suite': suite}))

    def nothing_succeeds(self, run):
        """The answers differ from those of a cell, but an attempt is an attempt."""
        self.assertIsNotNone(run.lines, run.trouble)
        attempts = [line for line in run.lines.values() if line.kind == 'attempt']
        self.assertGreater(len(attempts), 200)
        self.assertEqual([str(a) for a in attempts if a.answer == 'ok' and a.name not in THIN_SUCCEEDS], [])
        self.assertEqual(test_escape.differences(run.before, run.after), [])
        self.assertEqual(run.end(), [])
        self.assertEqual({k for k, v in run.touched.items() if v != '0'}, set())

    def test_126_as_an_ordinary_user(self):
        self.judge(self.thin('user', 'thin'))

    def test_126_as_root(self):
        self.judge(self.thin('root', 'thin'))

    def test_every_attempt_as_an_ordinary_user(self):
        self.nothing_succeeds(self.thin('user', 'workspace'))

    def test_every_attempt_as_root(self):
        self.nothing_succeeds(self.thin('root', 'workspace'))

    def test_the_cell_as_an_ordinary_user(self):
        self.judge(self.thin('user', 'cell'))

    def test_the_cell_as_root(self):
        self.judge(self.thin('root', 'cell'))


if __name__ == '__main__':
    tap.main()
