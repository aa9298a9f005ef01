# SPDX-License-Identifier: Apache-2.0
"""Rule files and commands by chance, within the language that both read.

Run with PEER=/path/to/codex it writes rules_recorded.json anew: what the peer says to each case.
"""

import json
import os
import random
import re
import subprocess
import tempfile

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'rules_recorded.json')
COUNT = 400
TELLING = re.compile('^Error|error: |-->|expected e')  # what is kept of the peer's complaints
DEADLINE = 60

PROGRAMS = ['git'] * 6 + ['ls'] * 4 + ['/usr/bin/git', '/opt/bin/git', '/bin/ls', 'npm', 'a b', 'é', '']
WORDS = ['status'] * 4 + ['log'] * 3 + [
    '-f', '--all', 'run', 'a b', "it's", 'q"q', 'tab\there', 'two\nlines', 'back\\slash', 'é😀', '$HOME',
    '#x', '', '-', '\x01', '\x7f', 'push']
TEXTS = ['read only', 'wörter', 'quote " and \' and \\', 'two\nlines', 'x', ' blank around ', '\x07bell', 'line\u2028break']
HOSTS = ['api.example.com', 'Api.X.com.:443', '[::1]:80', '::1', ' x ', 'a:80', 'EXAMPLE.', '10.0.0.1']
FAULTS = [
    'prefix_rule(pattern=[])', 'prefix_rule(pattern=["a", []])', 'prefix_rule(pattern=[1])',
    'prefix_rule(pattern=[None])', 'prefix_rule(pattern=[["a", True]])', 'prefix_rule(pattern=[["a", ["b"]]])',
    'prefix_rule(pattern=["a"], decision="deny")', 'prefix_rule(pattern=["a"], decision="Allow")',
    'prefix_rule(pattern=["a"], decision="")', 'prefix_rule(pattern=["a"], justification="  ")',
    'prefix_rule(pattern=["a"], justification="\\u00a0\\u3000")', 'prefix_rule(pattern=["a"], match=["a \'"])',
    'prefix_rule(pattern=["a"], match=[""])', 'prefix_rule(pattern=["a"], match=["# c"])',
    'prefix_rule(pattern=["a"], match=[[]])', 'prefix_rule(pattern=["a"], match=[[1]])',
    'prefix_rule(pattern=["a"], match=[1])', 'prefix_rule(pattern=["a"], not_match=["a\\\\"])',
    'prefix_rule(pattern=["a"], match=["b c", "a", "d \'e f\'"])', 'prefix_rule(pattern=["a"], not_match=["b", "a c"])',
    'prefix_rule(pattern="a")', 'prefix_rule(pattern=["a"], match="a")', 'prefix_rule(pattern=["a"], decision=1)',
    'prefix_rule()', 'prefix_rule(["a"], "allow", [], [], "j", 1)', 'prefix_rule(["a"], pattern=["b"])',
    'prefix_rule(["a"], nonsense=1)', 'prefix_rule(pattern=["a"], match=None)',
    'network_rule("*.x", "https", "allow")', 'network_rule("https://x", "https", "allow")',
    'network_rule("x y", "https", "allow")', 'network_rule("", "https", "allow")',
    'network_rule("x", "ftp", "allow")', 'network_rule("x", "https", "ask")', 'network_rule("[::1", "http", "deny")',
    'network_rule("[::1]x", "http", "deny")', 'network_rule("x", "http", "allow", " ")', 'network_rule("x", "http")',
    'network_rule("", "ftp", "nonsense", "")', 'network_rule(1, "http", "allow")', 'network_rule(".", "http", "allow")',
    'host_executable("", [])', 'host_executable("a/b", [])', 'host_executable("git", ["git"])',
    'host_executable("git", ["/usr/bin/gitx"])', 'host_executable("git", [1])', 'host_executable("..", [])',
    'host_executable("git", ["/"])', 'host_executable("git", ["~/git"])', 'host_executable("git")',
    'host_executable("git", "/usr/bin/git")', 'x = y', 'x = "a" + 1', 'x = ["a"] + "b"', 'x = ["a" "b"]', 'x = [,]',
    'prefix_rule(,)', 'prefix_rule(["a"]', 'prefix_rule(["a"])]', '"unfinished', "x = 'unfinished", 'x = """unfinished"',
    'x = "\\x4"', 'x = "\\uD800"', 'x = "\\U00110000"', ' prefix_rule(["a"])', 'prefix_rule(pattern=["a"], "allow")',
    'x = 007', 'x = 1a', 'x = y = 1', 'prefix_rule(["a"]) x', 'prefix_rule(["a"])\rx', '\ufeffx = 1', 'é = 1', 'nobody()',
]


class Chance(random.Random):
    def some(self, of, low, high):
        return [self.choice(of) for _ in range(self.randint(low, high))]

    def quoted(self, text):
        """A literal for the text, in one of the ways there are."""
        how = self.randrange(6)
        if how == 0 and not set(text) & set('"\\\n\r'):
            return 'r"%s"' % text
        if how == 1 and '"""' not in text and not text.endswith('"') and not set(text) & set('\\\r'):
            return '"""%s"""' % text
        if how == 2 and not set(text) & set("'\\\n\r"):
            return "'%s'" % text
        if how == 3 and text.isascii():
            return '"%s"' % ''.join('\\x%02x' % ord(c) for c in text)
        if how == 4:
            return '"%s"' % ''.join('\\U%08X' % ord(c) if ord(c) > 126 else c for c in json.dumps(text)[1:-1]) \
                if text.isascii() else json.dumps(text, ensure_ascii=False)
        return json.dumps(text, ensure_ascii=False)

    def literal(self, text):
        if len(text) > 1 and self.random() < 0.1:
            return '%s + %s' % (self.quoted(text[:1]), self.quoted(text[1:]))
        if self.random() < 0.05:
            return '(%s)' % self.quoted(text)
        return self.quoted(text)

    def list_of(self, items):
        gap = self.choice(['', ' ', '\n', ' # why\n  '])
        comma = ',' if items and self.random() < 0.2 else ''
        return '[' + gap + (',' + gap).join(items) + comma + ']'

    def pattern(self):
        """Its text, and words that match it."""
        texts, words = [], []
        for i in range(self.choice([1, 1, 2, 2, 3])):
            choices = PROGRAMS if i == 0 else WORDS
            if self.random() < 0.3:
                some = self.some(choices, 1, 3)
                texts.append(self.list_of([self.literal(s) for s in some]))
                words.append(self.choice(some))
            else:
                word = self.choice(choices)
                texts.append(self.literal(word))
                words.append(word)
        return texts, words

    def example(self, words):
        if self.random() < 0.5:
            return self.list_of([self.literal(w) for w in words])
        return self.literal(' '.join("'%s'" % w.replace("'", "'\\''") for w in words))

    def prefix_rule(self):
        texts, words = self.pattern()
        pattern = self.list_of(texts)
        if self.random() < 0.1:
            pattern = '%s + %s' % (self.list_of(texts[:1]), self.list_of(texts[1:]))
        args = [('pattern', pattern)]
        if self.random() < 0.6:
            args.append(('decision', self.literal(self.choice(['allow', 'prompt', 'forbidden']))))
        if self.random() < 0.3:
            args.append(('match', self.list_of([self.example(words + self.some(WORDS, 0, 1))])))
        if self.random() < 0.2:
            args.append(('not_match', self.list_of([self.example(['other'] + words)])))
        if self.random() < 0.4:
            args.append(('justification', self.literal(self.choice(TEXTS))))
        rest = args[1:]
        self.shuffle(rest)
        return self.call('prefix_rule', args[:1] + rest, words)

    def call(self, name, args, words=None):
        texts = [value if i == 0 and self.random() < 0.3 else '%s=%s' % (key, value) for i, (key, value) in enumerate(args)]
        return '%s(%s%s)' % (name, ', '.join(texts), self.choice(['', ',', '\n'])), words

    def network_rule(self):
        return self.call('network_rule', [
            ('host', self.literal(self.choice(HOSTS))),
            ('protocol', self.literal(self.choice(['http', 'https', 'https_connect', 'http-connect', 'socks5_tcp']))),
            ('decision', self.literal(self.choice(['allow', 'prompt', 'deny', 'forbidden'])))])

    def host_executable(self):
        name = self.choice(['git', 'ls'])
        paths = ['%s/%s' % (d, name) for d in self.some(['/usr/bin', '/opt/bin', '/bin', '/usr//bin/.', '/a/../bin'], 0, 2)]
        return self.call('host_executable', [('name', self.literal(name)),
                                             ('paths', self.list_of([self.literal(p) for p in paths]))])

    def statement(self):
        return self.choice([self.prefix_rule] * 6 + [self.network_rule, self.host_executable])()

    def file(self):
        """A text, and commands that its rules are about."""
        lines, commands = [], []
        for _ in range(self.randint(1, 8)):
            text, words = self.statement()
            if words:
                commands.append(words)
            if self.random() < 0.15:
                lines.append(self.choice(['# a comment', '', '   ', '\t# more', 'unused = [1, None, True, 0x1F, ("a")]']))
            if self.random() < 0.1 and text.startswith('prefix_rule(pattern=[') and '\n' not in text:
                text = 'v = "status"\n' + text
            lines.append(text + self.choice(['', '', ' # behind', '  ']))
        if self.random() < 0.25:
            lines.insert(self.randint(0, len(lines)), self.choice(FAULTS))
        end = self.choice(['\n', '\n', '', '\r\n'])
        return ('\r\n' if end == '\r\n' else '\n').join(lines) + end, commands

    def command(self, commands):
        if commands and self.random() < 0.8:
            words = list(self.choice(commands)) + self.some(WORDS, 0, 2)
            if self.random() < 0.5 and words[0] in ('git', 'ls'):
                words[0] = self.choice(['/usr/bin/', '/opt/bin/', '/usr//bin/./', '/bin/']) + words[0]
            if self.random() < 0.15:
                words = words[:-1] or words
        else:
            words = [self.choice(PROGRAMS)] + self.some(WORDS, 0, 3)
        return words

    def case(self):
        texts, commands = [], []
        for _ in range(self.choice([1, 1, 1, 2])):
            text, about = self.file()
            texts.append(text)
            commands += about
        flags = [f for f in ('--pretty', '--resolve-host-executables') if self.random() < 0.5]
        return {'files': texts, 'flags': flags, 'command': self.command(commands)}


def cases(seed, count):
    chance = Chance(seed)
    return [chance.case() for _ in range(count)]


def ask(program, case, folder):
    """What a program makes of a case: exit status, stdout and stderr, with the folder's name taken out."""
    paths = []
    for i, text in enumerate(case['files']):
        paths.append(os.path.join(folder, '%d.rules' % i))
        with open(paths[-1], 'w', encoding='utf-8', newline='') as f:
            f.write(text)
    words = [w for p in paths for w in ('--rules', p)]
    run = subprocess.run([*program, 'check', *words, *case['flags'], '--', *case['command']], capture_output=True,
                         timeout=DEADLINE, env=dict(os.environ, RUST_BACKTRACE='0', LC_ALL='C'))
    err = run.stderr.decode().replace(folder + '/', '')
    return {'status': run.returncode, 'stdout': run.stdout.decode(), 'stderr': err}


def record(peer):
    with tempfile.TemporaryDirectory() as folder:
        all_cases = cases(1, COUNT)
        for case in all_cases:
            said = ask([peer, 'execpolicy'], case, folder)
            case.update(said, stderr='\n'.join(filter(TELLING.search, said['stderr'].split('\n'))))
    with open(RECORDED, 'w', encoding='utf-8') as f:
        f.write('[\n' + ',\n'.join(json.dumps(c) for c in all_cases) + '\n]\n')


if __name__ == '__main__':
    record(os.environ['PEER'])
