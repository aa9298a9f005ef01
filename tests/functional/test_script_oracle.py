# SPDX-License-Identifier: Apache-2.0
"""The readers of scripts and the shells themselves agree.

A script that is read as plain runs exactly the commands that were read, word for word, in every
shell that is here. And whatever a shell runs of a script of any kind, be it broken in the middle,
was found among the script's literal commands.
"""

import collections
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

import tap

HELPER = os.environ.get('SCRIPT_JSON', 'script-json')
STUB = os.environ.get('SAY_ARGV', 'say-argv')
SHELLS = [s for s in ('bash', 'dash', 'zsh', 'sh') if shutil.which(s)]
NAMES = ['c%d' % i for i in range(40)]
SEED = 20261115
PLAIN, WILD, COMPOUND = (1000, 2000, 400) if tap.IS_LONG else (250, 500, 100)
DEADLINE = 10

# ---- scripts ----

BARE = 'abcxyz0189_-+./:,%@=!'
INSIDE_SINGLE = BARE + ' \t\n"$`\\*?[]{}()<>&;|#~^é'
INSIDE_DOUBLE = BARE + " \t\n'*?[]{}()<>&;|#~^é"
JOINS = [' && ', '&&', ' || ', '||', ' | ', '|', '; ', ';', '\n', ' &&\n', ' |\n\n ', ';\n', '\n\n']
SPECIALS = ['$x', '$(c39)', '`c39`', '*', '\\', '#', '>', '<', '&', '(', ')', '{a,b}', '~', "'", '"', '!', '=', '^', '[', '\n', ';', '|',
            ' A=1 ', ' if ', ' then ', ' fi ', ' { ', ' } ', ' time ', '\\\n', '\r', '\v', '\x01', '\x7f', '\u00a0', '\u3000', '$', "''", '""']


def text(r, alphabet, least, most):
    return ''.join(r.choice(alphabet) for _ in range(r.randint(least, most)))


def part(r):
    kind = r.randrange(4)
    if kind == 0:
        return "'%s'" % text(r, INSIDE_SINGLE, 0, 6)
    if kind == 1:
        inside = text(r, INSIDE_DOUBLE, 0, 6)
        return '"%s"' % (inside.replace('x', '\\x') if r.random() < 0.3 else inside)
    return text(r, BARE.replace('=', ''), 1, 1) + text(r, BARE, 0, 5)


def word(r):
    return ''.join(part(r) for _ in range(1 if r.random() < 0.7 else r.randint(2, 3)))


def plain_script(r):
    names = r.sample(NAMES[:30], r.randint(1, 5))
    commands = [r.choice([' ', '  ', '\t']).join([n] + [word(r) for _ in range(r.randint(0, 4))]) for n in names]
    out = commands[0]
    for c in commands[1:]:
        out += r.choice(JOINS) + c
    return r.choice(['', ' ', '\n']) + out + r.choice(['', '', ';', '\n', ' ; \n'])


def broken(r, script):
    for _ in range(r.randint(1, 3)):
        at = r.randint(0, len(script))
        if r.random() < 0.4 and script:
            script = script[:at] + script[at + 1:]
        else:
            script = script[:at] + r.choice(SPECIALS) + script[at:]
    return script


class Compound:
    """Scripts of every kind of command; all that runs is one of the names."""

    def __init__(self, r):
        self.r, self.n, self.here = r, 0, ''

    def name(self):
        self.n += 1
        return NAMES[self.n % len(NAMES)]

    def simple(self, depth):
        words = [self.name()]
        for _ in range(self.r.randint(0, 2)):
            words.append(self.word(depth))
        if self.r.random() < 0.2:
            words.insert(0, 'A=%s' % self.word(depth))
        if self.r.random() < 0.2:
            words.insert(self.r.randint(0, len(words)), self.r.choice(['>/dev/null', '2>&1', '</dev/null', '>> /dev/null', '2> /dev/null']))
        return ' '.join(words)

    def word(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.5:
            return r.choice(['a', '-rf', "'b c'", '"d e"', '$x', '"$x"', '${y:-z}', '\\f', "g'h'i", '$((1 + 2))', '"it\'s"', '*.none', '#x'.replace('#', 'h#')])
        inner = self.list(depth - 1)
        inner = ' ' * inner.startswith('(') + inner  # $(( may be arithmetic
        return r.choice(['$(%s)', '"p $(%s) q"', '${u:-$(%s)}', '"${u:-$(%s)}"', '$((1 + $(%s)0))', 'k$(%s\n)', '$( (%s) )', '$( # comment\n%s)']) % inner

    def command(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.3:
            return self.simple(depth)
        d = depth - 1
        kind = r.randrange(12)
        if kind == 0:
            return 'if %s; then %s; else\n%s\nfi' % (self.list(d), self.list(d), self.list(d))
        if kind == 1:
            return 'for v in a "$x"; do %s; done' % self.list(d)
        if kind == 2:
            return 'while %s; do %s; break; done' % (self.list(d), self.list(d))
        if kind == 3:
            return 'until %s\ndo\n%s\nbreak\ndone' % (self.list(d), self.list(d))
        if kind == 4:
            return 'case %s in\n(none) %s;;\n*) %s\n;;\nesac' % (self.word(d), self.list(d), self.list(d))
        if kind == 5:
            return '{ %s; }' % self.list(d)
        if kind == 6:
            return '( %s )' % self.list(d)
        if kind == 7:
            return 'fn%d() { %s; }; fn%d' % (self.n, self.list(d), self.n)
        if kind == 8:
            return '! %s' % self.command(d)
        if kind == 9:
            return 'echo `%s` >/dev/null' % self.simple(0)
        if kind == 10:
            delimiter = 'E%d' % r.randrange(1000)
            return 'cat >/dev/null <<%s\nit\'s "$(%s)"\n%s\n' % (delimiter, self.list(d), delimiter) + self.command(d)
        return '%s # it\'s a "comment\n%s' % (self.simple(0), self.command(d))

    def list(self, depth):
        out = self.command(depth)
        for _ in range(self.r.randint(0, 1)):
            out += self.r.choice([' && ', ' || ', '; ', '\n', ' | ']) + self.command(depth)
        return out


# ---- the readers and the shells ----

def read_all(scripts):
    raw = [s.encode() for s in scripts]
    done = subprocess.run([HELPER], input=b''.join(b'%d\n%s' % (len(s), s) for s in raw), stdout=subprocess.PIPE, timeout=120, check=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(scripts)
    return [json.loads(line) for line in lines]


def parse(data):
    said, at = [], 0
    while at < len(data):
        count, at, words = data[at] - ord('0'), at + 1, []
        for _ in range(count):
            end = data.index(b'\0', at)
            words.append(data[at:end].decode('utf-8', 'surrogateescape'))
            at = end + 1
        said.append([os.path.basename(words[0])] + words[1:])
    return said


class Place:
    """A directory with programs of every name, to run scripts in."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix='script-oracle-')
        os.chmod(self.top, 0o755)
        self.bin, self.cwd = os.path.join(self.top, 'bin'), os.path.join(self.top, 'cwd')
        os.mkdir(self.bin)
        os.mkdir(self.cwd)
        for name in NAMES:
            os.symlink(os.path.realpath(shutil.which(STUB) or STUB), os.path.join(self.bin, name))
        self.runs = 0
        # For the shells, which inherit it: a loop that writes fills no disk.
        self.file_size = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, self.file_size[1]))

    def close(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.file_size)
        shutil.rmtree(self.top)

    def run(self, shell, script, status):
        """What was started, or None if it did not come to an end."""
        self.runs += 1
        out = os.path.join(self.top, 'out%d' % self.runs)
        with open(out, 'wb'):
            pass
        env = {'PATH': self.bin, 'SAY_ARGV_TO': out, 'SAY_ARGV_STATUS': str(status), 'LC_ALL': 'C.UTF-8', 'HOME': self.cwd}
        p = subprocess.Popen([shutil.which(shell), '-c', script], env=env, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            p.wait(DEADLINE * tap.wire.SCALE)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
        with open(out, 'rb') as f:
            data = f.read()
        os.unlink(out)
        return parse(data)


def is_subsequence(few, many):
    """Whether these words are among those in their order; braces and patterns, which are expanded, do not count."""
    rest = iter(many)
    return all(w in rest for w in few if not set('{*?[') & set(w))


class Oracle(unittest.TestCase):
    def setUp(self):
        self.place = Place()
        self.addCleanup(self.place.close)

    def runs(self, shell, script):
        """How often each command runs: once with all of them succeeding, and once, for ||, failing."""
        counts = collections.Counter()
        for status in (0, 1) if '||' in script else (0,):
            said = self.place.run(shell, script, status)
            self.assertIsNotNone(said, (shell, script))
            for words, n in collections.Counter(map(tuple, said)).items():
                counts[words] = max(counts[words], n)
        return counts

    def check_plain(self, scripts, least):
        checked = 0
        for i, (script, read) in enumerate(zip(scripts, read_all(scripts))):
            if read['plain'] is None:
                continue
            self.assertEqual(read['plain'], read['literals'], script)
            names = [s[0] for s in read['plain']]
            if len(set(names)) != len(names) or not set(names) <= set(NAMES):
                continue  # a program of that name is not here, or it cannot be told which one it was
            want = collections.Counter(map(tuple, read['plain']))
            shell = SHELLS[i % len(SHELLS)]
            self.assertEqual(self.runs(shell, script), want, (shell, script))
            checked += 1
        self.assertGreaterEqual(checked, least)

    def test_plain_scripts_run_what_was_read(self):
        r = random.Random(SEED)
        scripts = [plain_script(r) for _ in range(PLAIN)]
        self.check_plain(scripts, PLAIN * 9 // 10)

    def test_scripts_that_are_nearly_plain(self):
        r = random.Random(SEED + 1)
        self.check_plain([broken(r, plain_script(r)) for _ in range(WILD)], WILD // 10)

    def check_compound(self, scripts, least):
        checked = 0
        for i, (script, read) in enumerate(zip(scripts, read_all(scripts))):
            said = self.place.run('bash' if 'bash' in SHELLS else 'sh', script, i % 2) or []
            for words in said:
                if not re.search(r'(?:^|[\s;&|(]|[\s"]`)%s(?![^\s;&|()<>])' % words[0], script):
                    continue  # the name was put together by the shell
                is_vague = re.search(r'\$\(\((?!1 \+ )', script)  # then shells guess, too
                self.assertTrue(any(words[0] == s[0] and (is_vague or is_subsequence(s, words)) for s in read['literals']),
                                '%r runs %r' % (script, words))
                checked += 1
        self.assertGreaterEqual(checked, least)

    def test_whatever_runs_was_found(self):
        r = random.Random(SEED + 2)
        self.check_compound([Compound(r).list(3) for _ in range(COMPOUND)], COMPOUND)

    def test_whatever_runs_of_a_broken_script_was_found(self):
        r = random.Random(SEED + 3)
        self.check_compound([broken(r, Compound(r).list(2)) for _ in range(COMPOUND)], COMPOUND // 2)


if __name__ == '__main__':
    tap.main()
