# SPDX-License-Identifier: Apache-2.0
"""Every acceptance case of approvals has its tests: approval_cases.json names them, and they are there and run."""

import ast
import functools
import json
import os
import re
import unittest

import tap

HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = os.path.join(HERE, '..', 'unit')
CASES = range(1, 169)
UNIT_TEST = re.compile(r'unit (test_\w+): (test_\w+)')
FUNCTIONAL_TEST = re.compile(r'functional (test_\w+): (\w+)\.(test_\w+)')


def read(*path):
    with open(os.path.join(*path)) as f:
        return f.read()


def once(pairs):
    """An object that says nothing twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise AssertionError('a case is there twice: %r' % [k for k, _ in pairs])
    return found


def table():
    """Case number: its tests."""
    found = json.loads(read(HERE, 'approval_cases.json'), object_pairs_hook=once)
    return {int(case): [tests] if isinstance(tests, str) else tests for case, tests in found.items()}


@functools.lru_cache(None)
def methods(name):
    """'Class.test' of a file: those of its own, and those that a class has from others of the file."""
    found = {}
    for node in ast.parse(read(HERE, name + '.py')).body:
        if isinstance(node, ast.ClassDef):
            own = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
            bases = [found.get(b.id, set()) for b in node.bases if isinstance(b, ast.Name)]
            found[node.name] = own.union(*bases)
    return {'%s.%s' % (cls, f) for cls, names in found.items() for f in names}


@functools.lru_cache(None)
def unit_source(name):
    return read(UNIT, name + '.c')


class Cases(unittest.TestCase):
    def test_all_cases_are_there_and_no_others(self):
        self.assertEqual(sorted(table()), list(CASES))

    def test_every_case_has_tests_and_names_none_twice(self):
        for case, tests in table().items():
            with self.subTest(case):
                self.assertTrue(tests)
                self.assertEqual(len(set(tests)), len(tests))
                for test in tests:
                    self.assertTrue(UNIT_TEST.fullmatch(test) or FUNCTIONAL_TEST.fullmatch(test), test)

    def test_unit_tests_are_there_and_in_their_tables(self):
        for case, tests in table().items():
            for program, name in (m.groups() for m in map(UNIT_TEST.fullmatch, tests) if m):
                with self.subTest(case, name=name):
                    text = unit_source(program)
                    self.assertTrue('static void %s(void **state)\n{' % name in text, name)
                    listed = text[text.rindex('const struct CMUnitTest tests[] = {'):]
                    self.assertTrue(re.search(r'\b\w*test\w*\(%s[,)]' % name, listed), '%s is not run' % name)

    def test_functional_tests_are_there(self):
        for case, tests in table().items():
            for program, cls, name in (m.groups() for m in map(FUNCTIONAL_TEST.fullmatch, tests) if m):
                with self.subTest(case, name=name):
                    self.assertIn('%s.%s' % (cls, name), methods(program))

    def test_their_files_are_run(self):
        for program in sorted({test.split(':')[0] for tests in table().values() for test in tests}):
            kind, name = program.split(' test_')
            with self.subTest(program):
                meson = read(UNIT if kind == 'unit' else HERE, 'meson.build')
                self.assertTrue(re.search(r"'%s'" % name, meson), '%s is in no list' % program)


if __name__ == '__main__':
    tap.main()
