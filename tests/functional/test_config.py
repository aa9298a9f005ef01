# SPDX-License-Identifier: Apache-2.0
"""sallyport.conf(5) and the table of keys say the same, and its example is one."""

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest

import tap
import wire

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))
PAGE = os.path.join(ROOT, 'man', 'sallyport.conf.5')
HELPER = os.environ.get('TOML_JSON', 'toml-json')


def page():
    with open(PAGE, encoding='utf-8') as f:
        return f.read()


def keys():
    """From the table: {name: default}."""
    run = subprocess.run([HELPER, '--keys'], capture_output=True, check=True, timeout=wire.DEADLINE)
    return dict(line.split('\t') for line in run.stdout.decode().splitlines())


def described():
    """From the page: {name: the default in parentheses at the end of its text, or ''}."""
    found = {}
    for m in re.finditer(r'^\.It Ic (\S+)\n(.*?)(?=^\.(?:It|Bl|El|Sh|Ss)\b)', page(), re.M | re.S):
        default = re.findall(r'^\.Pq (.*)$', m.group(2), re.M)
        last = m.group(2).rstrip('\n').split('\n')[-1]
        found[m.group(1)] = default[-1] if last.startswith('.Pq ') else ''
    return found


class Page(unittest.TestCase):
    def test_it_has_every_key_of_the_table_and_no_other(self):
        self.assertGreater(len(keys()), 40)
        self.assertEqual(sorted(described()), sorted(keys()))

    def test_it_has_the_default_of_every_key(self):
        self.assertEqual(described(), keys())

    def example(self):
        return re.search(r'^\.Bd -literal.*?\n(.*?)^\.Ed', page(), re.M | re.S).group(1)

    def test_its_example_is_a_configuration(self):
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as f:
            f.write(self.example())
            f.flush()
            run = subprocess.run([HELPER, '--config', f.name], capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual((run.returncode, run.stderr), (0, b''))
        self.assertIn('permissions', tomllib.loads(self.example()))

    @unittest.skipUnless(shutil.which('groff'), 'groff is not installed')
    def test_it_is_laid_out_without_warnings(self):
        run = subprocess.run(['groff', '-Tutf8', '-mandoc', '-ww', PAGE], capture_output=True, timeout=wire.DEADLINE)
        self.assertEqual((run.returncode, run.stderr), (0, b''))


if __name__ == '__main__':
    tap.main()
