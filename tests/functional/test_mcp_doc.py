# SPDX-License-Identifier: Apache-2.0
"""docs/MCP.md: every example is run, and has the result that it shows."""

import json
import os
import re

import mcp
import tap

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'MCP.md')


def blocks():
    """(line number, calls) of each example; a call is (tool, arguments, result)."""
    with open(PAGE) as f:
        text = f.read()
    for m in re.finditer(r'^```mcp\n(.*?)^```', text, re.M | re.S):
        lines = m.group(1).splitlines()
        calls = []
        for call, result in zip(lines[::2], lines[1::2]):
            tool, arguments = call.split(' ', 1)
            assert result.startswith('=> '), result
            calls.append((tool, arguments, result[3:]))
        assert len(lines) % 2 == 0, lines
        yield text[:m.start()].count('\n') + 2, calls


class Examples(mcp.Case):
    def same(self, shown, real, at):
        """What is shown is there; an object may have more than that."""
        if shown == '*':
            return
        if isinstance(shown, dict):
            for name, value in shown.items():
                self.assertIn(name, real, at)
                self.same(value, real[name], at + '.' + name)
        elif isinstance(shown, list):
            self.assertEqual(len(shown), len(real), at)
            for n, (a, b) in enumerate(zip(shown, real)):
                self.same(a, b, '%s[%d]' % (at, n))
        else:
            self.assertEqual(real, shown, at)

    def play(self, calls):
        patches = any(tool == 'apply_patch' for tool, _, _ in calls)
        host, session = self.mcp(env=mcp.PATCHES if patches else None), None
        for tool, arguments, shown in calls:
            result = host.call(tool, json.loads(arguments.replace('SESSION', str(session))))
            session = result.get('session_id', session)
            self.assertFalse(result.failed, '%s %s: %s' % (tool, arguments, result))
            self.same(json.loads(shown.replace('SESSION', str(session))), result.structured,
                      '%s %s: %s\n' % (tool, arguments, result))


def add(line, calls):
    def test(self):
        self.play(calls)
    setattr(Examples, 'test_line_%03d_%s' % (line, calls[0][0]), test)


for found in blocks():
    add(*found)

if __name__ == '__main__':
    tap.main()
