# SPDX-License-Identifier: Apache-2.0
"""docs/APPROVALS.md, run: every session, rule file, program, question, answer and log line in it is so.

Each section (## ...) has a directory and a home of its own, shown as /site/work and /site/home, and its blocks run
in order; /site/examples is ours. What a fence says:

  console            commands behind `$ `, each with what it prints; `...` stands for anything, here and below
  console keys=KEYS  one command at a terminal, with one of the keys at each question; a word is typed with Enter
  ... file=PATH      a file that is put there, executable if it begins with #!
  json question      what the approver of the session before was told: question.json
  json audit         the last line of the log
  json answers=WHAT  answers of an approver, one a line: the command `runs` or is `refused`
  console chat       a server on its standard streams: what it is sent behind `> `, what it says behind `< `
  text               a picture
"""

import json
import os
import re
import select
import shutil
import subprocess

import tap
import wire
from managed import probe
from server import PROGRAM, SANITIZED, Case, ours_only
from test_docs import ROOT, fences, read, sources
from test_sandbox_verb import PATH, Screen, Verb

DOCUMENT = 'docs/APPROVALS.md'
PROMPT = rb'\n  answer: '
KINDS = {'console', 'text', 'json', 'rules', 'toml', 'python', 'sh', 'diff'}


def pattern(text):
    """A shown text as a regular expression."""
    lines = [r'(?:.*\n)*?' if line == '...' else re.escape(line).replace(r'\.\.\.', r'.*') + r'\n'
             for line in text.splitlines()]
    return re.compile(''.join(lines))


def commands(body):
    """(command, what it prints) of a session; a command goes on behind a backslash and in a here-document."""
    found = []
    for line in body.splitlines(True):
        if line.startswith('$ '):
            found.append([line[2:], ''])
        elif line.startswith('> '):
            found[-1][0] += line[2:]
        else:
            found[-1][1] += line
    return found


def sections():
    """(title, its fences) of each section that has any."""
    for part in re.split(r'^## ', read(DOCUMENT), flags=re.M)[1:]:
        title, _, text = part.partition('\n')
        if fences(text):
            yield title, fences(text)


def same(want, got):
    """Whether a value is the one shown: `...` in a text is anything, `started_at_ms` is a time."""
    if want == '...':
        return True
    if isinstance(want, dict):
        return isinstance(got, dict) and list(want) == list(got) and all(
            isinstance(got[k], int) if k == 'started_at_ms' else same(want[k], got[k]) for k in want)
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, str) and '...' in want:
        return isinstance(got, str) and pattern(want).fullmatch(got + '\n') is not None
    return type(want) is type(got) and want == got


@ours_only
class Document(Verb):
    def setUp(self):
        super().setUp()
        self.status = 0
        tools = os.path.join(self.base, 'tools')
        os.mkdir(tools)
        os.symlink(PROGRAM, os.path.join(tools, 'sallyport'))
        self.env.update(PATH=tools + ':' + PATH, SALLYPORT_HOME=os.path.join(self.home, '.sallyport'), LC_ALL='C')
        if SANITIZED:  # what applies a patch in a sandbox cannot look for leaks there
            self.env['ASAN_OPTIONS'] = self.env.get('ASAN_OPTIONS', '') + ':detect_leaks=0'

    # -- paths of this machine and those that are shown

    def shown(self, text):
        return text.replace(self.work, '/site/work').replace(self.home, '/site/home')

    def real(self, text):
        return (text.replace('/site/work', self.work).replace('/site/home', self.home)
                .replace('/site/examples', os.path.join(ROOT, 'examples')))

    # -- blocks

    def put_file(self, name, body):
        path = os.path.join(self.work, name.replace('~', self.home, 1) if name.startswith('~') else name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, 'w') as f:
            f.write(self.real(body))
        if body.startswith('#!'):
            os.chmod(path, 0o755)

    def run_console(self, body):
        for line, want in commands(body):
            run = subprocess.run(['sh', '-c', '(exit %d)\n%s' % (self.status, self.real(line))], cwd=self.work, env=self.env,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 start_new_session=True, timeout=wire.DEADLINE)
            got = self.shown(run.stdout.decode())
            self.status = run.returncode
            self.assertIsNotNone(pattern(want).fullmatch(got), '$ %s\n%s\ninstead of\n%s' % (line, got, want))

    def run_terminal(self, keys, body):
        (line, want), = commands(body)
        screen = Screen(self, ['sh', '-c', self.real(line)], cols=200)
        got = b''
        for key in [keys + '\r'] if len(keys) > 1 else keys:
            got += screen.wait_for(PROMPT)
            screen.type(key.encode())
        self.status = screen.wait()
        got += screen.seen
        while select.select([screen.master], [], [], 0)[0]:  # all of it is there: its writer has ended
            got += os.read(screen.master, 65536)
        got = self.shown(got.decode().replace('\r\n', '\n'))
        self.assertIsNotNone(pattern(want).fullmatch(got), '$ %s\n%s\ninstead of\n%s' % (line, got, want))

    def run_chat(self, body):
        command, *lines = body.splitlines()
        p = subprocess.Popen(['sh', '-c', 'exec ' + self.real(command[2:])], cwd=self.work, env=self.env,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        with p.stdin, p.stdout:
            peer = wire.Lines(wire.Channel(os.dup(p.stdout.fileno()), os.dup(p.stdin.fileno())))
            self.addCleanup(peer.channel.close)
            for line in lines:
                self.assertIn(line[:2], ('> ', '< '))
                if line[0] == '>':
                    peer.send(self.real(line[2:]).encode(), False)
                    continue
                want, got = json.loads(line[2:]), json.loads(self.shown(peer.receive(wire.deadline()).decode()))
                self.assertTrue(same(want, got), '%s\ninstead of\n%s' % (json.dumps(got), json.dumps(want)))
            peer.channel.close()
        self.assertEqual(p.wait(wire.DEADLINE), 0)

    def check_json(self, what, body):
        if what.startswith('answers='):
            self.check_answers(what.partition('=')[2], body)
            return
        path = {'question': os.path.join(self.work, 'question.json'),
                'audit': os.path.join(self.home, '.sallyport', 'audit.jsonl')}[what]
        with open(path) as f:
            got = json.loads(self.shown(f.read().splitlines()[-1]))
        want = json.loads(body)
        self.assertTrue(same(want, got), '%s\ninstead of\n%s' % (json.dumps(got), json.dumps(want)))

    def check_answers(self, outcome, body):
        approver = os.path.join(self.beside, 'answer')
        for line in body.splitlines():
            json.loads(line)
            self.put_file(approver, "#!/bin/sh\ncat <<'END'\n%s\nEND\n" % line)
            run = subprocess.run(['sallyport', 'exec', '--approve', 'untrusted', '--approver', 'program:' + approver,
                                  '--', 'mkdir', '-p', 'x'],
                                 cwd=self.work, env=dict(self.env, SALLYPORT_HOME=os.path.join(self.beside, 'another')),
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=wire.DEADLINE)
            self.assertEqual(run.returncode, {'runs': 0, 'refused': 122}[outcome], line)
            shutil.rmtree(os.path.join(self.beside, 'another'), True)

    # -- a section

    def run_section(self, blocks):
        for words, body in blocks:
            self.assertTrue(words and words[0] in KINDS, 'a block that is %r' % words)
            options = dict(word.split('=', 1) for word in words[1:] if '=' in word)
            with self.subTest(' '.join(words) + ': ' + body[:60]):
                if 'file' in options:
                    self.put_file(options['file'], body)
                elif words[0] == 'console':
                    if 'chat' in words:
                        self.run_chat(body)
                    elif 'keys' in options:
                        self.run_terminal(options['keys'], body)
                    else:
                        self.run_console(body)
                elif words[0] == 'json':
                    self.check_json(words[1], body)
                else:
                    self.assertEqual(words, ['text'])


def add_sections():
    """A test for each section, so that each has a line of its own."""
    for title, blocks in sections():
        name = 'test_' + re.sub(r'\W+', '_', title.lower()).strip('_')
        assert not hasattr(Document, name), name

        def run(self, title=title, blocks=blocks):
            if title == 'The network' and probe():
                self.skipTest(probe())
            self.run_section(blocks)
        setattr(Document, name, run)


add_sections()


class Messages(Case):
    """What the table of refusals quotes is what the program says."""

    def texts(self):
        table = read(DOCUMENT).split('\n## When something is refused\n', 1)[1].split('\nWithout a message:', 1)[0]
        for line in table.splitlines():
            cell = line.split(' | ')[0]
            if cell.startswith('| `'):
                for _, text in re.findall(r'(`+) ?(.+?) ?\1(?!`)', cell[2:]):
                    yield text

    def said(self):
        """All strings of the sources, those that stand side by side as one."""
        text = ' '.join(read(path) for path in sources('src', ends=('.c', '.h')))
        text = re.sub(r'"\s*(?:\\\n)?\s*"', '', text)
        return text.replace(r'\xe2\x80\x94', '\u2014').replace(r'\"', '"')

    def test_every_message_is_one(self):
        said, count = self.said(), 0
        for text in self.texts():
            for part in re.split(r'\.\.\.|`|FILE:LINE:COLUMN:|: ', text):
                if len(part.strip()) > 10:
                    self.assertTrue(part.strip() in said, '%r of %r' % (part, text))
                    count += 1
        self.assertGreater(count, 25)


if __name__ == '__main__':
    tap.main()
