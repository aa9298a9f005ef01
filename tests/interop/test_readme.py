# SPDX-License-Identifier: Apache-2.0
"""README.md, "Use it with Codex": what it says is done, word for word but for ports and paths."""

import os
import re
import shlex

import codex
import server
from model import command, outcome, say

import tap


def read(name):
    with open(os.path.join(codex.ROOT, name), encoding='utf-8') as f:
        return f.read()


def section():
    return re.search(r'^## Use it with Codex\n(.*?)^## ', read('README.md'), re.M | re.S).group(1)


def blocks():
    """The indented parts, without their indent."""
    found = re.findall(r'(?:^    .*\n)+', section(), re.M)
    return [re.sub(r'^    ', '', block, flags=re.M) for block in found]


def said(pattern):
    """What the section says in a place where it says exactly one thing."""
    (text,) = re.findall(pattern, section())
    return text


@server.ours_only
class Readme(codex.Case):
    LOOK = [[command('c1', 'echo $ONLY_THERE; ls; echo no >made')], [say('A file.')]]

    def setUp(self):
        super().setUp()
        # A repository, as few files as make one: elsewhere the CLI does not start without a flag.
        for name in ('objects', 'refs'):
            os.makedirs(os.path.join(self.ws, '.git', name))
        self.put(file='text\n', _git__HEAD='ref: refs/heads/main\n')
        self.before = codex.tree(self.ws)
        self.line, self.toml = blocks()

    def judge(self, model):
        """It ran on the server, which has a variable of its own, and as confined as Codex has it by default."""
        code, output = outcome(model.told('c1'))
        self.assertNotEqual(code, 0)
        self.assertRegex(output.lower(), r'\Ayes\nfile\n.*read-only file system')
        self.assertTree(self.before)

    def play_line(self, line, **how):
        return self.play(*self.LOOK, line=line, sandbox='read-only', **how)

    def test_by_a_variable(self):
        words = shlex.split(re.search(r'sallyport serve (.*?) \|', read('Makefile')[read('Makefile').index('\nrun:'):]).group(1))
        self.assertEqual(words[:2], ['--listen', 'ws://127.0.0.1:$(PORT)'])
        srv = self.serve(*words[2:], env={'ONLY_THERE': 'yes'})
        self.assertIn('"$URL"', self.line)
        self.judge(self.play_line(self.line.removeprefix('$ ').replace('$URL', srv.url), environments=None, url=None))

    def named(self, toml):
        line = re.sub(r'^\$ \S+=\S+ ', '', self.line)
        self.assertTrue(line.startswith('codex exec '), line)
        return self.play_line(line, environments=toml)

    def test_by_a_program(self):
        program = os.path.join(self.base, 'program')
        with open(program, 'w') as f:
            f.write('#!/bin/sh\nONLY_THERE=yes exec %s "$@"\n' % shlex.quote(server.PROGRAM))
        os.chmod(program, 0o755)
        there = re.search(r'^program = "(/.*)"$', self.toml, re.M).group(1)
        self.judge(self.named(self.toml.replace(there, program)))

    def test_a_program_that_is_missing(self):
        """Nothing is run in its place."""
        there = re.search(r'^program = "(/.*)"$', self.toml, re.M).group(1)
        model = self.named(self.toml.replace(there, self.base + '/missing'))
        self.assertIn('No usable execution environment', model.told('c1'))

    def test_by_a_token(self):
        flags = shlex.split(said(r'`serve (--listen ws://0\.0\.0\.0:.*?)`'))
        self.assertEqual(flags[2:], ['--token-file', 'FILE'])
        url, token = said(r'`(url = "ws://HOST:\d+")`'), said(r'`(auth_bearer_token = "\.\.\.")`')
        secret = os.path.join(self.base, 'secret')
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write('a-token-of-this-test-0123456789')
        srv = self.serve('--token-file', secret, listen='ws://0.0.0.0:0', env={'ONLY_THERE': 'yes'})
        lines = [re.sub(r'HOST:\d+', '127.0.0.1:%d' % srv.address[1], url),
                 token.replace('...', 'a-token-of-this-test-0123456789')]
        toml = re.sub(r'^(program|args) = .*\n', '', self.toml, flags=re.M) + '\n'.join(lines) + '\n'
        self.judge(self.named(toml))


if __name__ == '__main__':
    tap.main()
