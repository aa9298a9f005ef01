# SPDX-License-Identifier: Apache-2.0
"""`sallyport rules check` says what `codex execpolicy check` says, byte for byte.

Recorded: what the peer said once. Live, with PEER=/path/to/codex: the peer itself, on more cases.
"""

import json
import os
import re
import unittest

import rules_cases
import tap
from server import PROGRAM, Case, ours_only

PEER = os.environ.get('PEER') or os.environ.get('AGENT_PEER')
LIVE_SEED, LIVE_COUNT = 2, int(os.environ.get('PEER_CASES', '300'))

# What we say in our own words where the peer's parser speaks: the texts of these are compared.
EXACT = re.compile(r'^(invalid (pattern element|decision|example|rule): |Type of parameter |Missing parameter |Found )')


def peers_fault(stderr):
    """(place, message) of a call that the peer refuses; None: its parser did."""
    m = re.search(r'^ *error: (.*)\n *--> (\S+)$', stderr, re.M)
    if m is None or not EXACT.match(m.group(1)):
        return None
    return m.group(2), re.sub(r' \(repr: .*\)`$', '`', m.group(1))


def peers_example(stderr):
    """What it says of examples that do not hold, without the rules in its own notation."""
    m = re.search(r'expected every example to match at least one rule\. .*; (unmatched examples: \[.*\])$', stderr, re.M)
    if m:
        return m.group(1)
    m = re.search(r'expected example to not match rule `.*`: (.*)$', stderr, re.M)
    return m and m.group(1)


class Compare:
    def compare(self, case, theirs, folder):
        ours = rules_cases.ask([PROGRAM, 'rules'], case, folder)
        text = json.dumps(case, indent=1) + '\nours: ' + json.dumps(ours) + '\ntheirs: ' + json.dumps(theirs)
        self.assertEqual((ours['status'], ours['stdout']), (theirs['status'], theirs['stdout']), text)
        if theirs['status'] == 0:
            return self.assertEqual(ours['stderr'], '', text)
        self.assertEqual(ours['stderr'].split('\n')[0], theirs['stderr'].split('\n')[0], text)
        fault = peers_fault(theirs['stderr'])
        if fault:
            self.assertIn('%s: %s\n' % fault, ours['stderr'], text)
        example = peers_example(theirs['stderr'])
        if example:
            self.assertIn(example, ours['stderr'], text)

    def compare_all(self, cases, theirs):
        folder = self.scratch()
        matched = refused = 0
        for i, case in enumerate(cases):
            with self.subTest(case=i):
                said = theirs(case, folder)
                self.compare(case, said, folder)
                matched += 'prefixRuleMatch' in said['stdout']
                refused += said['status'] != 0
        # Neither is a corner that chance never reached.
        self.assertGreater(matched, len(cases) // 6)
        self.assertGreater(refused, len(cases) // 10)


@ours_only
class Recorded(Compare, Case):
    def test_every_answer_is_the_recorded_one(self):
        with open(rules_cases.RECORDED, encoding='utf-8') as f:
            cases = json.load(f)
        self.assertGreaterEqual(len(cases), 300)
        self.compare_all(cases, lambda case, _: case)


@ours_only
@unittest.skipUnless(PEER, 'PEER=/path/to/codex is not set')
class Live(Compare, Case):
    def test_every_answer_is_the_peers(self):
        cases = rules_cases.cases(LIVE_SEED, LIVE_COUNT)
        self.compare_all(cases, lambda case, folder: rules_cases.ask([PEER, 'execpolicy'], case, folder))

    def test_every_fault_that_is_known(self):
        cases = [{'files': [text], 'flags': [], 'command': ['a']} for text in rules_cases.FAULTS]
        folder = self.scratch()
        for case in cases:
            with self.subTest(case['files'][0]):
                theirs = rules_cases.ask([PEER, 'execpolicy'], case, folder)
                self.assertNotEqual(theirs['status'], 0)
                self.compare(case, theirs, folder)


if __name__ == '__main__':
    tap.main()
