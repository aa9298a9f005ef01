# SPDX-License-Identifier: Apache-2.0
"""A unittest runner that speaks TAP: one line per test method."""

import os
import signal
import sys
import time
import unittest

import wire

IS_LONG = bool(os.environ.get('SALLYPORT_LONG'))  # `make test-all`
TEST_LIMIT = int((450 if IS_LONG else 150) * wire.SCALE)  # seconds after which a test counts as hung
# A parent may ignore signals (nohup, a shell's `&`): what tests start must not inherit that.
RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN,
         signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2)

long = unittest.skipUnless(IS_LONG, 'long form: make test-all')


def thin(items, step):
    """Every item in the long form, every `step`-th otherwise, with the first and the last."""
    items = list(items)
    return items if IS_LONG else sorted(set(items[::step]) | set(items[-1:]), key=items.index)


class Hung(BaseException):
    pass


def _alarm(_signum, _frame):
    raise Hung('the test did not end within %d s' % TEST_LIMIT)


class Result(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out, self.count, self.failed, self.trouble, self.began = out, 0, 0, [], 0

    def startTest(self, test):
        super().startTest(test)
        self.trouble, self.skip = [], None
        self.began = time.monotonic()
        signal.alarm(TEST_LIMIT)

    def _add(self, test, err):
        text = self._exc_info_to_string(err, test)
        log = getattr(test, 'server_logs', None)
        if log:
            text += log()
        self.trouble.append(text)

    def addError(self, test, err):
        self._add(test, err)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.trouble.append('in %s\n' % subtest._subDescription())
            self._add(test, err)

    def addSkip(self, test, reason):
        self.skip = reason

    def addExpectedFailure(self, test, err):
        self.skip = 'expected failure'

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        self.count += 1
        name = test.id().split('.', 1)[1]
        spent = time.monotonic() - self.began
        if self.trouble:
            self.failed += 1
            self.out.write('not ok %d - %s\n' % (self.count, name))
            for line in '\n'.join(self.trouble).splitlines():
                self.out.write('# %s\n' % line[:2000])
        elif self.skip is not None:
            self.out.write('ok %d - %s # SKIP %s\n' % (self.count, name, self.skip))
        else:
            self.out.write('ok %d - %s\n' % (self.count, name))
        if os.environ.get('SALLYPORT_TEST_TIMES'):
            self.out.write('# %.2f s\n' % spent)
        self.out.flush()


def _flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flatten(item)
        else:
            yield item


def main():
    """Runs the tests of the calling file; words on the command line choose by part of the name."""
    for number in RESET:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGALRM, _alarm)
    module = sys.modules['__main__']
    tests = list(_flatten(unittest.defaultTestLoader.loadTestsFromModule(module)))
    words = sys.argv[1:]
    if words:
        tests = [t for t in tests if any(w in t.id() for w in words)]
    out = sys.stdout
    out.write('TAP version 13\n1..%d\n' % len(tests))
    out.flush()
    result = Result(out)
    for test in tests:
        try:
            test.run(result)
        except Hung as e:  # hung in a place unittest does not guard
            result.trouble.append(str(e))
            result.stopTest(test)
    sys.exit(1 if result.failed else 0)
