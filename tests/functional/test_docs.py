# SPDX-License-Identifier: Apache-2.0
"""What the documents say is so: examples run, flags, methods, limits, commands and links exist."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import tap
import web
import wire
from sandbox_policy import outside_of_tmp
from server import HERE, PROGRAM, PYTHON, Case, ours_only

ROOT = os.path.abspath(os.path.join(HERE, '..', '..'))
DOCUMENTS = ['README.md', 'docs/ARCHITECTURE.md', 'docs/LIMITS.md', 'docs/APPROVALS.md', 'docs/SECURITY.md', 'docs/PROTOCOL.md', 'CONTRIBUTING.md',
             'bench/README.md']
SANITIZERS = {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as f:
        return f.read()


def sources(*folders, ends):
    for folder in folders:
        for d, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if name.endswith(ends):
                    yield os.path.relpath(os.path.join(d, name), ROOT)


def fences(text):
    """(words after the fence, body) of every fenced block, in order."""
    return [(m.group(1).split(), m.group(2)) for m in re.finditer(r'^```([^\n]*)\n(.*?)^```$', text, re.M | re.S)]


def prose(text):
    """A document without its fenced blocks and code spans."""
    text = re.sub(r'^```.*?^```$', '', text, flags=re.M | re.S)
    return re.sub(r'(`+).+?\1', '', text, flags=re.S)


# ------------------------------------------------------------------------------- examples/run.py


@ours_only
class Readme(Case):
    def test_the_sandbox_says_what_is_shown(self):
        words, answer = re.search(r'\$ build/sallyport (sandbox .*)\n    (.*)\n', read('README.md')).groups()
        run = subprocess.run([PROGRAM, *words.split()], capture_output=True, timeout=wire.DEADLINE,
                             cwd=self.scratch(), env=dict(os.environ, LC_ALL='C'))
        self.assertEqual((run.returncode, run.stdout, run.stderr.decode()), (1, b'', answer + '\n'))

    def test_exec_says_what_is_shown(self):
        shown = re.findall(r'^    \$ (.*build/sallyport exec .*)\n((?:    [^$\n].*\n)+)', read('README.md'), re.M)
        self.assertEqual(len(shown), 3)
        for line, answer in shown:
            with self.subTest(line):
                work = self.scratch()
                run = subprocess.run(['sh', '-c', line.replace('build/sallyport', PROGRAM)], stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, timeout=wire.DEADLINE, cwd=work,
                                     env=dict(os.environ, LC_ALL='C', HOME=work, SALLYPORT_HOME=work))
                self.assertEqual(run.stdout.decode(), re.sub('^    ', '', answer, flags=re.M))


class Example(Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server()

    def run_py(self, *words, url=None, env=None):
        return subprocess.run([PYTHON, os.path.join(ROOT, 'examples', 'run.py'), url or self.srv.url, *words],
                              capture_output=True, timeout=wire.DEADLINE, env=dict(os.environ, **(env or {})))

    def test_streams_and_exit_code(self):
        run = self.run_py('--', 'sh', '-c', 'echo out; echo err >&2; exit 7')
        self.assertEqual((run.returncode, run.stdout, run.stderr), (7, b'out\n', b'err\n'))

    def test_a_terminal(self):
        run = self.run_py('--tty', '--', 'sh', '-c', 'test -t 0 && test -t 1 && stty size')
        self.assertEqual((run.returncode, run.stdout), (0, b'24 80\r\n'))

    def test_large_output_arrives_whole(self):
        run = self.run_py('--', 'head', '-c', '3000000', '/dev/zero')
        self.assertEqual((run.returncode, len(run.stdout)), (0, 3000000))

    def test_death_by_signal(self):
        self.assertEqual(self.run_py('--', 'sh', '-c', 'kill -9 $$').returncode, 137)

    def test_an_interrupt_ends_it_without_a_traceback(self):
        run = subprocess.Popen([PYTHON, os.path.join(ROOT, 'examples', 'run.py'), self.srv.url, '--', 'sh', '-c', 'echo up; sleep 600'],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(run.stdout.readline(), b'up\n')
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=wire.DEADLINE)
        self.assertEqual((run.returncode, err), (130, b''))

    def test_what_does_not_start_is_said(self):
        run = self.run_py('--', 'no-such-program')
        self.assertEqual(run.returncode, 127)
        self.assertIn(b'No such file or directory', run.stderr)

    def test_a_token(self):
        path = os.path.join(self.scratch(), 'token')
        with open(path, 'w') as f:
            f.write('secret-secret-secret\n')
        os.chmod(path, 0o600)
        srv = self.server('--token-file', path)
        self.assertNotEqual(self.run_py('--', 'true', url=srv.url).returncode, 0)
        self.assertNotEqual(self.run_py('--', 'true', url=self.srv.bare_url).returncode, 0)
        self.assertEqual(self.run_py('--', 'true', url=srv.url, env={'SALLYPORT_TOKEN': 'secret-secret-secret'}).returncode, 0)

    def test_it_stays_a_first_lesson(self):
        self.assertLessEqual(len(read('examples/run.py').splitlines()), 120)


# ----------------------------------------------------------------------------- PROTOCOL.md, live

# Members whose value is this machine's or this moment's: compared by type.
VOLATILE = {'sessionId', 'providerId', 'pid', 'startedAtMs', 'endedAtMs', 'atMs', 'userHomeDir', 'tempDir', 'executorVersion', 'createdAtMs', 'modifiedAtMs',
            'codexHomeDir', 'hostname'}
VOLATILE_PATHS = {'cwd', 'limits'}  # in environment info only: a process's are exact
VOLATILE_OBJECTS = {'shell', 'temporaryDirectories'}


def kind(value):
    return 'number' if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def differ(want, got, where='', in_info=False):
    """Why `got` is not what the document shows; None if it is."""
    name = where.rsplit('.', 1)[-1]
    if name in VOLATILE or (in_info and name in VOLATILE_PATHS):
        return None if kind(want) == kind(got) or got is None else '%s: %r' % (where, got)
    if kind(want) != kind(got):
        return '%s: %r instead of %r' % (where, got, want)
    if isinstance(want, dict):
        if set(want) != set(got):
            return '%s: members %s instead of %s' % (where, sorted(got), sorted(want))
        if name in VOLATILE_OBJECTS:
            return None
        info = in_info or 'providerId' in want
        return next((d for d in (differ(want[k], got[k], where + '.' + k, info) for k in want) if d), None)
    if isinstance(want, list):
        if name in VOLATILE_OBJECTS:
            return None
        if len(want) != len(got):
            return '%s: %d items instead of %d' % (where, len(got), len(want))
        return next((d for d in (differ(a, b, '%s[%d]' % (where, i), in_info)
                                 for i, (a, b) in enumerate(zip(want, got))) if d), None)
    if isinstance(want, str):
        want, got = (re.sub(r'127\.0\.0\.1:[0-9]+', 'PEER', s) for s in (want, got))
    return None if want == got else '%s: %r instead of %r' % (where, got, want)


@ours_only
class Protocol(Case):
    def test_every_json_example_is_answered_as_shown(self):
        srv = self.server()
        main, second, current, asked, count = None, None, None, None, 0
        told = {}  # events already compared, by connection and process
        shown_id = None  # what the document calls the session of the main connection
        work = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-test-', dir=outside_of_tmp()))
        self.addCleanup(shutil.rmtree, work, True)
        site = web.recorded()
        self.addCleanup(site.close)
        text = read('docs/PROTOCOL.md').replace('/site/work', work).replace('http://127.0.0.1:8088', site.url)
        for words, body in fences(text):
            if words[:1] != ['json']:
                continue
            what = words[1]
            with self.subTest(what + ' ' + body[:100]):
                if what == 'request':
                    self.assertIsNone(asked, 'a request without a response before this one')
                    if 'second' in words:
                        current = second = second or srv.connect()
                    else:
                        current = srv.connect() if 'fresh' in words or main is None else main
                        main = current if 'fresh' not in words else main
                    text = body.strip()
                    current.send_raw((text.replace(shown_id, main.session_id) if shown_id else text).encode())
                    late = wire.deadline()
                    asked = -1 if 'raw' in words else json.loads(body)['id']
                    if 'raw' not in words and json.loads(body)['method'] == 'process/start':
                        params = json.loads(body)['params']
                        current.asked.add(params['processId'])
                        if params.get('limits'):
                            current.process(params['processId']).limits = {}
                elif what == 'response':
                    want = json.loads(body)
                    self.assertEqual(want['id'], asked)
                    got, asked = current.reply(asked), None
                    while 'soon' in words and differ(want, got) and time.monotonic() < late:  # it takes a moment
                        current.send_raw(text.encode())
                        got = current.reply(want['id'])
                    self.assertIsNone(differ(want, got, 'reply'))
                    count += 1
                    if current is main and 'sessionId' in got.get('result', {}) and shown_id is None:
                        shown_id, main.session_id = want['result']['sessionId'], got['result']['sessionId']
                elif what == 'notify':
                    (second if 'second' in words else main).send_raw(body.strip().encode())
                elif what == 'event':
                    for line in body.strip().splitlines():
                        want = json.loads(line)
                        process = want['params'].get('processId', want['method'])
                        hears = second if 'second' in words else main
                        n = told.get((hears, process), 0)

                        def there(c=hears, p=process, at=n):
                            events = [m for m in c.notes if m['params'].get('processId', m['method']) == p]
                            return events[at] if len(events) > at else None
                        got = hears.wait_for(there, 'event %s' % line)
                        told[hears, process] = n + 1
                        self.assertIsNone(differ(want, got, 'event'))
                else:
                    self.fail('a json block that is %r' % words)
        self.assertGreater(count, 20)

    def test_every_http_example_is_answered_as_shown(self):
        token = os.path.join(self.scratch(), 'token')
        with open(token, 'w') as f:
            f.write('the-right-token-of-it')
        os.chmod(token, 0o600)
        servers = {'plain': self.server(), 'token': self.server('--token-file', token)}
        channel, count = None, 0
        for words, body in fences(read('docs/PROTOCOL.md').replace('TOKEN HTTP', servers['plain'].address.token + ' HTTP').replace(
                'Bearer TOKEN\n', 'Bearer %s\n' % servers['plain'].address.token)):
            if words[:2] == ['http', 'request']:
                channel = wire.Channel.connect(servers['token' if 'token' in words else 'plain'].address)
                channel.write(body.strip().replace('\n', '\r\n').encode() + b'\r\n\r\n')
            elif words[:2] == ['http', 'response']:
                with self.subTest(body):
                    got = channel.until(b'\r\n\r\n', wire.deadline()).decode()
                    want_head, _, want_body = body.partition('\n\n')
                    lines = got.replace('\r\n', '\n').strip().split('\n')
                    if 'begins' in words:
                        self.assertEqual(lines[:len(want_head.strip().split('\n'))], want_head.strip().split('\n'))
                    else:
                        self.assertEqual(lines, want_head.strip().split('\n'))
                        if want_body:
                            self.assertEqual(channel.exactly(len(want_body.strip()), wire.deadline()).decode(),
                                             want_body.strip())
                channel.close()
                count += 1
        self.assertGreaterEqual(count, 5)

    def test_every_method_has_a_section_and_an_example(self):
        text = read('docs/PROTOCOL.md')
        methods = [name for path in sorted(glob.glob(os.path.join(ROOT, 'src/server/rpc/m_*.c')))
                   for name in re.findall(r'^    \{"([^"]+)", .*\.fn = ', read(path), re.M)]
        self.assertGreater(len(methods), 5)
        shown = {json.loads(b)['method'] for w, b in fences(text) if w[:2] == ['json', 'request'] and 'raw' not in w}
        for name in methods:
            self.assertRegex(text, r'(?m)^### %s$' % re.escape(name))
            self.assertIn(name, shown)
        for name in ('process/output', 'process/exited', 'process/closed', 'initialized'):
            self.assertRegex(text, r'(?m)^### %s$' % name)

    def test_every_metric_is_named(self):
        srv = self.server()
        names = re.findall(r'^# TYPE sallyport_(\w+)', srv.http(path='/metrics').body.decode(), re.M)
        self.assertGreater(len(names), 10)
        text = read('docs/PROTOCOL.md')
        for name in names:
            self.assertIn('`' + name, text)

    def test_every_capability_is_described(self):
        text = read('docs/PROTOCOL.md')
        for name in self.server().session().info['capabilities']:
            self.assertIn('| `%s` |' % name, text)

    def test_every_must_names_its_test(self):
        for paragraph in re.split(r'\n\s*\n|\n(?=\||[0-9]+\. )', read('docs/PROTOCOL.md')):
            if re.search(r'\bmust\b', prose(paragraph)):
                self.assertRegex(paragraph, r'`test_', paragraph)

    def test_cited_tests_exist(self):
        known = set()
        for path in sources('tests', ends=('.py', '.c')):
            known.update(re.findall(r'\btest_\w+', os.path.basename(path) + '\n' + read(path)))
        for path in DOCUMENTS:
            for name in re.findall(r'\btest_\w+', read(path)):
                self.assertIn(name, known, path)


# -------------------------------------------------------------------------------------- man pages


@ours_only
class Man(Case):
    VERBS = ('serve', 'exec', 'mcp', 'sandbox', 'patch', 'rules', 'audit', 'config', 'doctor', 'connect', 'ps', 'logs', 'attach', 'kill', 'rm')

    def help(self, verb):
        """With the help of its subcommands."""
        def text(*words):
            return subprocess.run([PROGRAM, *words, '--help'], capture_output=True, timeout=wire.DEADLINE,
                                  env=dict(SANITIZERS, PATH='/usr/bin:/bin')).stdout.decode()
        whole = text(verb)
        if ' SUBCOMMAND ' not in whole:
            return whole
        return whole + ''.join(text(verb, sub) for sub in re.findall(r'^  ([a-z]+)  ', whole, re.M))

    def help_flags(self, verb='serve'):
        return set(re.findall(r'--[a-z][a-z0-9-]+', self.help(verb)))

    def help_options(self, verb):
        """{name: (short name, argument)}; the help is printed from the table that the options are parsed by."""
        found = re.findall(r'^  (?:-(\w), )?--([a-z0-9-]+)(?: (\S+))?(?:  .*)?$', self.help(verb), re.M)
        return {name: (short, argument) for short, name, argument in found}

    @staticmethod
    def argument(rest):
        """`Ar name Ns = Ns Ar value` as NAME=VALUE; what Op stands before is in brackets."""
        rest = re.sub(r'\bOp : Ns Ar (\w+)|\bOp Ar (\w+)', lambda m: '[:%s]' % m[1] if m[1] else '[%s]' % m[2], rest)
        rest = re.sub(r'\bOo Ar (\w+) : Oc Ns Ar (\w+)', r'[\1:]\2', rest)
        return ''.join(w for w in rest.split() if w not in ('Ar', 'Ns')).upper()

    def test_the_page_has_the_options_of_the_table(self):
        """With the same short names and names of arguments, each once."""
        for verb in self.VERBS:
            with self.subTest(verb):
                page = read('man/sallyport-%s.1' % verb).replace('\\-', '-')
                found = re.findall(r'^\.It Fl (?:(\w) , )?-([a-z0-9-]{2,})(.*)$', page, re.M)
                described = {name: (short, self.argument(rest)) for short, name, rest in found}
                self.assertEqual(len(found), len(described))
                self.assertEqual(described, self.help_options(verb))

    def test_the_page_has_every_flag_of_the_help_and_no_other(self):
        for verb in self.VERBS:
            with self.subTest(verb):
                page = read('man/sallyport-%s.1' % verb).replace('\\-', '-')
                flags = self.help_flags(verb)
                described = set(re.findall(r'^\.It Fl (?:[a-z] , )?-([a-z0-9-]{2,})', page, re.M))
                self.assertEqual({'--' + f for f in described}, flags)
                for flag in re.findall(r'\bFl -([a-z0-9-]{2,})', page):
                    self.assertIn('--' + flag, flags)

    def test_flags_named_in_the_documents_exist(self):
        known = {'--version', '--help'}.union(*(self.help_flags(verb) for verb in self.VERBS))
        for path in ('README.md', 'docs/ARCHITECTURE.md', 'docs/MCP.md', 'docs/PROTOCOL.md'):
            text = re.sub(r'^## Hosts\n.*?(?=^## )', '', read(path), flags=re.M | re.S)  # has flags of other programs
            for flag in re.findall(r'(?<![\w-])--[a-z][a-z0-9-]+', text):
                self.assertIn(flag, known | {'--tty', '--peer', '--remote', '--cflags', '--libs'}, path)

    def test_every_verb_is_in_the_page(self):
        run = subprocess.run([PROGRAM, '--help'], capture_output=True, timeout=wire.DEADLINE,
                             env=dict(SANITIZERS, PATH='/usr/bin:/bin'))
        page = read('man/sallyport.1')
        for verb in re.findall(r'^  (\w+) ', run.stdout.decode(), re.M):
            self.assertRegex(page, r'(?m)^\.It Cm %s\b' % verb)

    def pages(self):
        return sorted('man/' + name for name in os.listdir(os.path.join(ROOT, 'man')) if re.search(r'\.[1-8]$', name))

    @unittest.skipUnless(shutil.which('groff'), 'groff is not installed')
    def test_the_pages_are_laid_out_without_warnings(self):
        for page in self.pages():
            run = subprocess.run(['groff', '-Tutf8', '-mandoc', '-ww', os.path.join(ROOT, page)],
                                 capture_output=True, timeout=wire.DEADLINE)
            self.assertEqual((run.returncode, run.stderr), (0, b''), page)
            self.assertRegex(run.stdout.decode().rstrip().splitlines()[-1], r'^sallyport ', page)  # the footer

    @unittest.skipUnless(shutil.which('man') and shutil.which('groff'), 'man-db is not installed')
    def test_man_has_no_warnings(self):
        for page in self.pages():
            run = subprocess.run(['man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', os.path.join(ROOT, page)], capture_output=True,
                                 timeout=wire.DEADLINE, env=dict(os.environ, LC_ALL='C.UTF-8', MANROFFSEQ=''))
            self.assertEqual((run.returncode, run.stderr), (0, b''), page)

    @unittest.skipUnless(shutil.which('mandoc'), 'mandoc is not installed')
    def test_the_pages_pass_lint(self):
        run = subprocess.run(['mandoc', '-Tlint', '-Wwarning', *(os.path.join(ROOT, p) for p in self.pages())],
                             capture_output=True, timeout=wire.DEADLINE, text=True)
        self.assertEqual((run.returncode, run.stdout), (0, ''))


# ------------------------------------------------------------------------------------- the rest

UNITS = {'': 1, 'bytes': 1, 'KiB': 1 << 10, 'MiB': 1 << 20, 'us': 1, 'ms': 1, 's': 1000}


def evaluate(expression):
    """A constant of the sources: a number, or one shifted."""
    text = re.sub(r'/\*.*', '', expression.replace('\\\n', ' ')).strip()
    text = re.sub(r'(?<=[0-9])[UuLl]+', '', text)
    if not re.fullmatch(r'[0-9x() <*]+', text):
        raise AssertionError('not a number: %r' % expression)
    return eval(text, {'__builtins__': {}})


def constant(path, name):
    text = read(path)
    m = re.search(r'^#define %s\b((?:[^\n]*\\\n)*[^\n]*)' % name, text, re.M)
    if m:
        return evaluate(m.group(1))
    m = re.search(r'\.%s = ([0-9]+)[,}]' % name, text)
    if m:
        return int(m.group(1))
    raise AssertionError('%s is not in %s' % (name, path))


class Truth(Case):
    def rows(self):
        """The table of bounds: (what, value, constant, file, flag)."""
        text = read('docs/LIMITS.md')
        for line in text.splitlines():
            cells = [c.strip() for c in line.strip('|').split('|')]
            if line.startswith('|') and len(cells) == 5 and cells[2].startswith('`'):
                yield cells

    def test_every_bound_is_the_one_in_the_code(self):
        rows = list(self.rows())
        self.assertGreater(len(rows), 25)
        options = read('src/cli/cmd_serve.c')
        for what, value, where, flag, _ in rows:
            with self.subTest(what):
                m = re.fullmatch(r'`(\w+)`, `([\w./]+)`', where)
                self.assertIsNotNone(m, where)
                number, unit = re.fullmatch(r'([0-9,]+) ?(\w*)', value).groups()
                want = int(number.replace(',', '')) * UNITS[unit]
                if m.group(1).endswith('_s'):
                    want //= 1000
                self.assertEqual(constant('src/' + m.group(2), m.group(1)), want)
                if flag:
                    self.assertIn('"%s",' % flag.strip('`-'), options)

    def test_every_limit_of_the_headers_is_in_the_table(self):
        named = {re.match(r'`(\w+)`', row[2]).group(1) for row in self.rows()}
        for path, pattern in (('src/server/rpc/conn.h', r'SP_CONN_MAX_\w+'), ('src/server/net/link.h', r'SP_LINK_[A-Z_]+'),
                              ('src/core/input.h', r'SP_INPUT_[A-Z]+'), ('src/cell/ring.h', r'SP_RING_[A-Z_]+'),
                              ('src/base/json.h', r'SP_JSON_MAX_\w+'), ('src/proxy/proxy.h', r'SP_PROXY_\w+'), ('src/server/net/http.h', r'SP_HTTP_MAX_\w+')):
            for name in re.findall(r'^#define (%s) ' % pattern, read(path), re.M):
                if not name.endswith('_H'):
                    self.assertIn(name, named, path)

    def test_the_layers_are_those_that_are_checked(self):
        script = read('tools/check-layers')
        table = dict(re.findall(r"^    '(\w+)': \{(.*?)\},$", script.split('MAY_USE', 1)[1].split('\n}', 1)[0], re.M))
        text = read('docs/ARCHITECTURE.md')
        self.assertLessEqual(len(text.encode()), 20 * 1024, 'one sitting: move details to the headers')
        self.assertEqual(set(table), set(os.listdir(os.path.join(ROOT, 'src'))) - {'meson.build'})
        for layer, may in table.items():
            others = [name for name in re.findall(r"'(\w+)'", may) if name != layer]
            row = re.search(r'^\| `%s/` \|.*\| ([^|]*) \|$' % layer, text, re.M)
            self.assertIsNotNone(row, layer)
            self.assertEqual(re.findall(r'`(\w+)/`', row.group(1)), others, layer)

    def test_make_targets_exist(self):
        targets = set(re.findall(r'^([a-z-]+):', read('Makefile'), re.M))
        for path in DOCUMENTS:
            for name in re.findall(r'\bmake ([a-z][a-z-]*)\b', ' '.join(
                    [b for _, b in fences(read(path))] + re.findall(r'`([^`\n]+)`', read(path)))):
                self.assertIn(name, targets, path)
        for name in ('build', 'run', 'test', 'bench', 'bench-peer'):
            self.assertIn('make ' + name, read('README.md'))

    def test_files_named_in_the_documents_exist(self):
        for path in DOCUMENTS:
            for name in re.findall(r'`((?:src|tests|tools|docs|man|bench|examples)/[\w./-]+\w)`', read(path)):
                self.assertTrue(os.path.exists(os.path.join(ROOT, name)), '%s names %s' % (path, name))

    def test_links_resolve(self):
        for path in DOCUMENTS:
            text = read(path)
            for target in re.findall(r'\]\(([^)\s]+)\)', re.sub(r'^```.*?^```$', '', text, flags=re.M | re.S)):
                if re.match(r'[a-z]+:', target):
                    continue
                name, _, anchor = target.partition('#')
                full = os.path.normpath(os.path.join(ROOT, os.path.dirname(path), name)) if name else os.path.join(ROOT, path)
                self.assertTrue(os.path.exists(full), '%s: %s' % (path, target))
                if anchor:
                    with open(full, encoding='utf-8') as f:
                        heads = [re.sub(r'[^\w -]', '', h).strip().lower().replace(' ', '-')
                                 for h in re.findall(r'^#+ (.*)$', f.read(), re.M)]
                    self.assertIn(anchor, heads, path)

    def test_the_readme_stays_short(self):
        self.assertLessEqual(len(read('README.md').splitlines()), 170)

    def test_the_licence_is_whole(self):
        text = read('LICENSE')
        self.assertIn('Apache License', text)
        self.assertIn('END OF TERMS AND CONDITIONS', text)


if __name__ == '__main__':
    tap.main()
