# SPDX-License-Identifier: Apache-2.0
"""Every acceptance case of the engine has one test: here, by the number in its name, or a unit test that
acceptance.json names, with the beginning of its file's name. `none: REASON` is a case that no door can reach."""

import json
import os
import pathlib
import re
import unittest

import tap

HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = os.path.join(HERE, '..', 'unit')
CASES = range(1, 157)


def numbered():
    """Case number: the tests whose names begin with it."""
    found = {}
    for name in sorted(os.listdir(HERE)):
        if re.fullmatch(r'test_acceptance_\w+\.py', name):
            with open(os.path.join(HERE, name)) as f:
                for test, number in re.findall(r'def (test_(\d+)_\w+)\(', f.read()):
                    found.setdefault(int(number), []).append('%s: %s' % (name, test))
    return found


def table():
    with open(os.path.join(HERE, 'acceptance.json')) as f:
        return {int(number): where for number, where in json.load(f).items()}


class Acceptance(unittest.TestCase):
    def test_every_case_has_one_place(self):
        by_name, by_table = numbered(), table()
        for case in CASES:
            with self.subTest(case):
                places = by_name.get(case, []) + ([by_table[case]] if case in by_table else [])
                self.assertEqual(len(places), 1, places)
        self.assertEqual([n for n in (*by_name, *by_table) if n not in CASES], [])

    def test_what_the_table_names_is_there(self):
        for case, where in table().items():
            if re.fullmatch(r'none: \w.+', where):
                continue
            with self.subTest(case):
                program, names = re.fullmatch(r'unit (test_\w+): (\w+(?:, \w+)*)', where).groups()
                text = ''.join(path.read_text() for path in pathlib.Path(UNIT).glob(program + '*.c'))
                for name in names.split(', '):
                    self.assertTrue('static void %s(void **state)' % name in text, name)
                    self.assertTrue(re.search(r'\(%s[,)]' % name, text), '%s is not run' % name)


if __name__ == '__main__':
    tap.main()
