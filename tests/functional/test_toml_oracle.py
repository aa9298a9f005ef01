# SPDX-License-Identifier: Apache-2.0
"""The TOML reader and Python's tomllib agree: on what is TOML, and on what it means.

Deliberate differences, each with a test of its own: integers beyond 64 bits, more than 127 levels,
more than 65,536 values and more than 1 MiB are refused.
"""

import datetime
import json
import math
import os
import random
import re
import subprocess
import tomllib
import unittest

import tap

HELPER = os.environ.get('TOML_JSON', 'toml-json')
SEED = 20261115

VALID = [
    '', '\n', '\r\n', '# only a comment', 'a=1', 'a = 1 # c\n', 'a=1\r\nb=2\r\n', '\t a\t=\t1\t', '"" = 1', "'' = 1",
    '"a b" = 1', "'a\\b' = 1", '"\\u00e9\\U0001F600" = 1', '1234 = 1', '-_- = 1', '3.14 = 1', 'a . b = 1', 'a."b.c".d = 1',
    'a.b=1\na.c=2', 'a.b.c=1\na.d=2\n[x]\ny=1', '[a]\n[a.b]\n[a.c]', '[a.b]\n[a]', '[a.b]\n[a]\nx=1', '[ a . "b" ]\nx=1',
    '[a]\nb.c=1\n[a.b.d]\ne=1', '[fruit]\napple.color=1\napple.taste.sweet=true\n[fruit.apple.texture]\nsmooth=true',
    '[[a]]\n[[a]]\nx=1\n[[a]]', '[[a]]\n[a.b]\n[[a]]\n[a.b]', '[[a]]\n[[a.b]]\n[[a.b]]\n[[a]]\n[[a.b]]', '[[a.b]]\n[a]\nx=1',
    '[a]\n[[a.b]]\nx=1\n[a.c]', '[[ a ]]#c', '[a.b.c]\nz=9\n[a]\nb.x=1',
    'a=[]', 'a=[1,2,]', 'a=[\n1 # c\n, # d\n2\n]', 'a=[[1],["x"],[]]', 'a=[{b=1},{}]', 'a=[ 1 , 1.0 , "1" , 1979-05-27 ]',
    'a={}', 'a={ }', 'a={b=1}', 'a={ b.c = 1 , b.d = 2 }', 'a={b={c={}}}', 'a={b=[\n1,\n2]}', 'a={b="""\nx\n"""}', 'a={"x y"=1}',
    'a=0', 'a=+0', 'a=-0', 'a=+99', 'a=1_000', 'a=0xDEAD_beef', 'a=0x00', 'a=0o7_55', 'a=0b1_0', 'a=9223372036854775807',
    'a=-9223372036854775808', 'a=1.0', 'a=-0.0', 'a=+1.5', 'a=1e3', 'a=1E+3', 'a=1e-03', 'a=6.626e-34', 'a=9_2.2_4e1_0', 'a=0e0',
    'a=inf', 'a=-inf', 'a=+inf', 'a=nan', 'a=+nan', 'a=-nan', 'a=1e400', 'a=5e-324', 'a=0.1', 'a=123456789012345678901234567890.0',
    'a=true', 'a=false', 'a=""', "a=''", 'a="\\b\\t\\n\\f\\r\\"\\\\\\u0000\\uFFFF"', "a='\\n'", 'a="\t"', "a='\t'", 'a="é😀"',
    'a="""\nx"""', 'a="""\r\nx\r\ny"""', 'a="""x\\\n   y"""', 'a="""x\\  \n\n\t y"""', 'a="""x\\\r\n  y"""', 'a="""""a"" ""b"""""',
    'a="""a""""', 'a="""a"""""', 'a=""""""', "a=''''''", "a='''\nx'y''z'''''", "a='''a\\'''", "a='''\r\n\r\n'''", 'a="""\\""" """',
    'a=1979-05-27T07:32:00Z', 'a=1979-05-27 07:32:00z', 'a=1979-05-27t00:32:00.999999-07:00', 'a=1979-05-27T07:32:00', 'a=1979-05-27',
    'a=1979-05-27 # c', 'a=07:32:00', 'a=00:32:00.999999', 'a=2000-02-29', 'a=2024-02-29T23:59:59.5+23:59', 'a=[1979-05-27 ]',
    'true=1\nfalse=2\ninf=3\nnan=4', '"a"=1\n"b"=2', 'a.b=1\n"c".d=2', '#\t\u00e9\nx=1', 'a=1#x\x80'.replace('\x80', '\u0080'),
]

INVALID = [
    b'a', b'a=', b'=1', b'a=1 b=2', b'a=1\nb', b'a 1', b'a=\n1', b'a = # x', b'a==1', b'.a=1', b'a.=1', b'a..b=1', b'a b=1', b'a.\nb=1',
    'é=1'.encode(), b'"a\nb"=1', b'"""a"""=1', b"'''a'''=1", b'a=1\ra=2', b'\r', b'\x00', b'a="\x00"', b'a="\x1f"', b"a='\x7f'", b'# \x00',
    b'# \x7f', b'# a\rb', b'a="\r"', b'a="""\r"""', b'\xef\xbb\xbfa=1', b'a="\xff"', b'a="\xc0\x80"', b'a="\xed\xa0\x80"', b'# \x80',
    b'a=1\na=2', b'a=1\n"a"=2', b'a.b=1\na.b=2', b'a=1\na.b=2', b'a.b=1\na=2', b'[a]\n[a]', b'[a]\nb=1\n[a.b]', b'a=1\n[a]', b'a=1\n[a.b]',
    b'[a]\nb.c=1\n[a.b]', b'a.b=1\n[a]', b'[a.b.c]\nz=9\n[a]\nb.c.t=1', b'[a.b.c.d]\nz=9\n[a]\nb.c.d.k.t=1', b'[a]\nb.c=1\n[a.x]\n[a]',
    b'[[a]]\n[a]', b'[a]\n[[a]]', b'[a.b]\n[[a]]', b'a=[]\n[[a]]', b'a=[{}]\n[a.b]', b'a=[{}]\n[[a]]', b'a={}\n[a.b]', b'a={}\n[a]', b'a={}\na.b=1',
    b'a={b={}}\na.b.c=1', b'a={b=1,b=2}', b'a={b.c=1,b=2}', b'a={b=1,b.c=2}', b'a={b={c=1},b.d=2}', b'a={b=[1],b.c=2}', b'[[a]]\n[[a.b]]\n[a.b]',
    b'[a]\n[[a.b]]\n[a.b]', b'[[a]]\nb.c=1\n[[a.b]]', b'a.b=1\n[[a]]', b'[x]\n[[x.a]]\n[y]\n[x.a]', b'[]', b'[ ]', b'[a', b'[a]]', b'[[a]', b'[[a] ]', b'[ [a]]', b'[a.]',
    b'[.a]', b'[a..b]', b'[a]b=1', b'[a] [b]', b'[a\n]', b'[a b]', b'[a=1]', b'a=[', b'a=[1', b'a=[1 2]', b'a=[,]', b'a=[1,,2]', b'a=[1,2,,]', b'a=]', b'a=[1,\n#x]',
    b'a={', b'a={b', b'a={b=1', b'a={b=1,}', b'a={,}', b'a={b=1 c=2}', b'a={b=1\n}', b'a={\nb=1}', b'a={b=1 #c\n}', b'a={b}', b'a={b=1}}',
    b'a=01', b'a=-01', b'a=+01', b'a=00', b'a=1_', b'a=_1', b'a=1__0', b'a=0x', b'a=0x_1', b'a=0x1_', b'a=+0x1', b'a=-0x1', b'a=0X1', b'a=0xg', b'a=0o8', b'a=0b2', b'a=0O7', b'a=0B1',
    b'a=1.', b'a=.1', b'a=1._0', b'a=1_.0', b'a=1.0_', b'a=1e', b'a=1e+', b'a=1e_1', b'a=1.e1', b'a=1e1.0', b'a=03.14', b'a=++1', b'a=+-1', b'a=--1', b'a=1e1_', b'a=0_1', b'a=1 000',
    b'a=Inf', b'a=NaN', b'a=infinity', b'a=nano', b'a=+', b'a=-', b'a=+true', b'a=True', b'a=TRUE', b'a=tru', b'a=truex', b'a=falsey', b'a=x', b'a=null', b'a=nil',
    b'a="', b'a="x', b"a='", b"a='x", b'a="x\n"', b"a='x\n'", b'a="\\x41"', b'a="\\e"', b'a="\\z"', b'a="\\"', b'a="\\u12"', b'a="\\u12G4"', b'a="\\U1234567"', b'a="\\uD800"', b'a="\\UFFFFFFFF"',
    b'a="\\U00110000"', b'a="\\ "', b'a="\\\n"', b'a="""', b'a="""x', b'a="""x""', b'a="""x\\ y"""', b'a="""\\q"""', b'a="""a""""""', b"a='''", b"a='''a''", b"a='''a''''''", b'a="a"b', b'a="a""b"', b"a='a''b'",
    b'a=1979-05-27T', b'a=1979-05-27T07', b'a=1979-05-27T07:32', b'a=1979-05-27T07:32Z', b'a=1979-5-27', b'a=1979-13-01', b'a=1979-00-01', b'a=1979-02-29', b'a=1900-02-29', b'a=1979-04-31', b'a=1979-05-00',
    b'a=1979-05-27T24:00:00', b'a=1979-05-27T00:60:00', b'a=1979-05-27T00:00:60', b'a=1979-05-27T00:00:00.', b'a=1979-05-27T00:00:00+1', b'a=1979-05-27T00:00:00+24:00', b'a=1979-05-27T00:00:00+00:60',
    b'a=07:32', b'a=7:32:00', b'a=07:32:00Z', b'a=24:00:00', b'a=07:32:00.', b'a=79-05-27', b'a=19790-05-27', b'a=1979-05-27x', b'a=1979-05-27  07:32:00', b'a=0000-01-01', b'a=1979/05/27',
]


class Reader:
    """The reader under test, kept running: one question, one answer."""

    def __init__(self):
        self.p = subprocess.Popen([HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, text):
        self.p.stdin.write(b'%d\n' % len(text) + text)
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise AssertionError('the reader ended (%s) at %r' % (self.p.wait(), text))
        return json.loads(line)

    def close(self):
        self.p.stdin.close()
        self.p.stdout.close()
        return self.p.wait()


def number(text):
    return ('float', 'nan') if math.isnan(float(text)) else ('float', float(text).hex())


def moment(text):
    """A date or time as Python keeps it: no more than microseconds."""
    text = re.sub(r'(\.[0-9]{1,6})[0-9]*', lambda m: m.group(1).ljust(7, '0'), text).upper()
    return text.replace(' ', 'T').replace('Z', '+00:00')


def ours(v):
    kind, value = v['type'], v['value']
    if kind == 'table':
        return {k: ours(x) for k, x in value.items()}
    if kind == 'array':
        return [ours(x) for x in value]
    if kind == 'float':
        return number(value)
    if kind == 'integer':
        return ('integer', int(value))
    if kind in ('offset-date-time', 'local-date-time'):
        return (kind, datetime.datetime.fromisoformat(moment(value)).isoformat())
    if kind == 'local-date':
        return (kind, value)
    if kind == 'local-time':
        return (kind, datetime.time.fromisoformat(moment(value)).isoformat())
    return (kind, value)


def theirs(v):
    if isinstance(v, dict):
        return {k: theirs(x) for k, x in v.items()}
    if isinstance(v, list):
        return [theirs(x) for x in v]
    if isinstance(v, bool):
        return ('boolean', v)
    if isinstance(v, int):
        return ('integer', v)
    if isinstance(v, float):
        return number(repr(v))
    if isinstance(v, datetime.datetime):
        return ('offset-date-time' if v.tzinfo else 'local-date-time', v.isoformat())
    if isinstance(v, datetime.date):
        return ('local-date', v.isoformat())
    if isinstance(v, datetime.time):
        return ('local-time', v.isoformat())
    return ('string', v)


def has_wide_integer(v):
    if isinstance(v, dict):
        return any(map(has_wide_integer, v.values()))
    if isinstance(v, list):
        return any(map(has_wide_integer, v))
    return isinstance(v, int) and not -2**63 <= v < 2**63


# ----------------------------------------------------------------------------------- random texts


class Writer:
    """Writes random documents that are TOML, in all the spellings it has."""

    def __init__(self, rng):
        self.rng = rng

    def pick(self, *choices):
        return self.rng.choice(choices)

    def blank(self):
        return self.rng.choice(['', '', ' ', '\t', '  '])

    def newline(self):
        return self.blank() + self.rng.choice(['', '', '', '# note', '#\té']) + self.rng.choice(['\n', '\n', '\r\n'])

    def characters(self, extra=''):
        return ''.join(self.rng.choice('abc \tXYZ09_-.,[]{}=#é😀' + extra) for _ in range(self.rng.randrange(8)))

    def escaped(self):
        return ''.join(self.rng.choice(['a', ' ', '\\n', '\\t', '\\"', '\\\\', '\\u00e9', '\\U0001F600', '\\r', '\\b', '\\f', "'", '\\u0000', 'ü'])
                       for _ in range(self.rng.randrange(8)))

    def string(self):
        return self.pick(
            lambda: '"' + self.escaped() + '"',
            lambda: "'" + self.characters('"\\') + "'",
            lambda: '"""' + self.pick('', '\n', '\r\n') + self.escaped() + self.pick('', '\n', ' \\\n  \n x', '"x', '""x') + self.pick('', '"', '""') + '"""',
            lambda: "'''" + self.pick('', '\n', '\r\n') + self.characters('"\\\n') + self.pick('', "'x", "''x") + self.pick('', "'", "''") + "'''")()

    def digits(self, alphabet='0123456789', first=None):
        text = self.rng.choice(first or alphabet)
        for _ in range(self.rng.randrange(6)):
            text += self.pick('', '', '_') + self.rng.choice(alphabet)
        return text

    def whole(self):
        return self.pick('0', self.digits(first='123456789'))

    def number(self):
        sign = self.pick('', '', '+', '-')
        return self.pick(
            lambda: sign + self.whole(),
            lambda: '0x' + self.digits('0123456789abcdefABCDEF'), lambda: '0o' + self.digits('01234567'), lambda: '0b' + self.digits('01'),
            lambda: sign + self.whole() + '.' + self.digits(),
            lambda: sign + self.whole() + self.pick('', '.' + self.digits()) + self.pick('e', 'E') + self.pick('', '+', '-') + self.digits()[:3].rstrip('_'),
            lambda: sign + self.pick('inf', 'nan'))()

    def date(self):
        day = '%04d-%02d-%02d' % (self.rng.randrange(1, 10000), self.rng.randrange(1, 13), self.rng.randrange(1, 29))
        clock = '%02d:%02d:%02d' % (self.rng.randrange(24), self.rng.randrange(60), self.rng.randrange(60))
        clock += self.pick('', '', '.%d' % self.rng.randrange(10**8))
        offset = self.pick('', 'Z', 'z', '+%02d:%02d' % (self.rng.randrange(24), self.rng.randrange(60)), '-00:30')
        return self.pick(day, clock, day + self.pick('T', 't', ' ') + clock + offset)

    def space(self):
        return ''.join(self.pick('', ' ', self.newline()) for _ in range(self.rng.randrange(3)))

    def array(self, depth):
        items = [self.space() + self.value(depth + 1) + self.space() for _ in range(self.rng.randrange(4))]
        return '[' + ','.join(items) + (self.pick('', ',') if items else '') + self.space() + ']'

    def inline(self, depth):
        names = self.rng.sample('abcdefgh', self.rng.randrange(4))
        pairs = ['%s%s%s=%s%s%s' % (self.blank(), self.spelled(n), self.blank(), self.blank(), self.value(depth + 1), self.blank()) for n in names]
        return '{' + ','.join(pairs) + '}' if pairs else '{' + self.blank() + '}'

    def value(self, depth=0):
        kinds = [self.string, self.number, self.number, self.date, lambda: self.pick('true', 'false')]
        if depth < 4:
            kinds += [lambda: self.array(depth), lambda: self.inline(depth)]
        return self.rng.choice(kinds)()

    def spelled(self, name):
        return self.pick(name, name, '"%s"' % name, "'%s'" % name)

    def key(self, few):
        parts = [self.spelled(self.rng.choice(few)) for _ in range(self.rng.choice([1, 1, 1, 2, 3]))]
        return (self.blank() + '.' + self.blank()).join(parts)

    def document(self, few='abcdefgh'):
        """With few names, many of them fall together: those are for the verdict."""
        text = ''
        for _ in range(self.rng.randrange(12)):
            kind = self.rng.randrange(10)
            if kind < 6:
                text += self.blank() + self.key(few) + self.blank() + '=' + self.blank() + self.value()
            elif kind < 8:
                text += '[' + self.blank() + self.key(few) + self.blank() + ']'
            elif kind < 9:
                text += '[[' + self.blank() + self.key(few) + self.blank() + ']]'
            text += self.newline()
        return text


ALPHABET = list('ab10_-+.,=[]{}"\'\\#\n\t eExo:TZu\r') + ['"""', "'''", '\r\n', '[[', ']]', 'é', '\x00', '\x7f', 'true', 'inf', '1979-05-27', ' = ', '\\u00e9']


def spoil(rng, text):
    """A document with some small thing wrong, perhaps."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        what = rng.randrange(4)
        if what == 0:
            text = text[:at] + text[at + 1:]
        elif what == 1:
            text = text[:at] + rng.choice(ALPHABET) + text[at:]
        elif what == 2:
            text = text[:at] + rng.choice(ALPHABET) + text[at + 1:]
        else:
            to = rng.randrange(len(text) + 1)
            text = text[:min(at, to)] + text[max(at, to):] if rng.randrange(4) == 0 else text
    return text


# -------------------------------------------------------------------------------------------- tests


class Oracle(unittest.TestCase):
    def setUp(self):
        self.reader = Reader()

    def tearDown(self):
        self.assertEqual(self.reader.close(), 0)

    def compare(self, text):
        """Asks both; returns whether it is TOML."""
        raw = text if isinstance(text, bytes) else text.encode()
        answer = self.reader.ask(raw)
        try:
            want = tomllib.loads(raw.decode())
        except (ValueError, UnicodeDecodeError) as e:
            self.assertIn('error', answer, '%r is TOML to us: %s' % (raw, e))
            self.assertRegex(answer['error'], r'^text: line \d+, column \d+: .', repr(raw))
            return False
        if has_wide_integer(want):
            self.assertIn('64 bits', answer.get('error', ''), repr(raw))
            return False
        self.assertIn('value', answer, '%r: %s' % (raw, answer.get('error')))
        self.assertEqual(ours(answer['value']), theirs(want), repr(raw))
        return True

    def test_what_is_valid_means_the_same(self):
        for text in VALID:
            with self.subTest(text):
                self.assertTrue(self.compare(text))

    def test_what_is_not_valid_is_refused_with_its_place(self):
        for text in INVALID:
            with self.subTest(text):
                self.assertFalse(self.compare(text))

    def test_random_documents_mean_the_same(self):
        rng = random.Random(SEED)
        valid = sum(self.compare(Writer(rng).document('abcdefghijklmnop')) for _ in range(3000))
        self.assertGreater(valid, 1500)

    def test_names_that_meet_are_judged_the_same(self):
        rng = random.Random(SEED + 1)
        valid = sum(self.compare(Writer(rng).document('abc')) for _ in range(3000))
        self.assertTrue(300 < valid < 2700, valid)

    def test_headers_and_dots_that_meet_are_judged_the_same(self):
        rng = random.Random(SEED + 2)
        valid = 0
        for _ in range(6000):
            lines = []
            for _ in range(rng.randrange(1, 6)):
                key = '.'.join(rng.choice('ab') for _ in range(rng.choice([1, 1, 2, 2, 3])))
                lines.append(rng.choice(['[%s]', '[[%s]]', '%s=1', '%s={}', '%s=[]', '%s={a.b=1}', '%s=[{a=1}]']) % key)
            valid += self.compare('\n'.join(lines))
        self.assertTrue(600 < valid < 5400, valid)

    def test_spoiled_documents_are_judged_the_same(self):
        rng = random.Random(SEED + 3)
        valid = sum(self.compare(spoil(rng, Writer(rng).document('abcdefghijklmnop'))) for _ in range(4000))
        self.assertTrue(200 < valid < 3800, valid)

    def test_soup_is_judged_the_same(self):
        rng = random.Random(SEED + 4)
        for _ in range(4000):
            self.compare('a=' + ''.join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 9))))
            self.compare(''.join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 9))))

    # ---- the bounds, which tomllib does not have

    def test_integers_have_64_bits(self):
        for text in ('a=9223372036854775808', 'a=-9223372036854775809', 'a=0x8000000000000000', 'a=0xFFFFFFFFFFFFFFFFF', 'a=1' + '0' * 400):
            self.assertIn('64 bits', self.reader.ask(text.encode())['error'])

    def test_containers_nest_127_deep(self):
        for good in ('a=' + '[' * 127 + ']' * 127, 'a=' + '{a=' * 126 + '[]' + '}' * 126, '.'.join(['a'] * 128) + '=1', '[' + '.'.join(['a'] * 127) + ']'):
            self.assertTrue(self.compare(good))
        for bad in ('a=' + '[' * 128 + ']' * 128, 'a=' + '[' * 100000, 'a=' + '{a=' * 128, '.'.join(['a'] * 129) + '=1', '[' + '.'.join(['a'] * 128) + ']'):
            self.assertIn('127', self.reader.ask(bad.encode())['error'])

    def test_a_document_has_65536_values(self):
        self.assertTrue(self.compare('a=[' + '1,' * 65535 + ']'))
        self.assertIn('65536', self.reader.ask(b'a=[' + b'1,' * 65536 + b']')['error'])
        self.assertTrue(self.compare(''.join('k%d=1\n' % i for i in range(65536))))
        self.assertIn('65536', self.reader.ask(''.join('k%d=1\n' % i for i in range(65537)).encode())['error'])

    def test_a_document_has_1_mebibyte(self):
        self.assertTrue(self.compare('#' * (1 << 20)))
        self.assertIn('1048576 bytes', self.reader.ask(b'#' * ((1 << 20) + 1))['error'])

    def test_a_place_is_a_line_and_a_character(self):
        for text, place in (('a=1\nb=x', 'line 2, column 3'), ('"é😀"=x', 'line 1, column 6'), ('a="""\r\n\r\n\\q"""', 'line 3, column 1'),
                            ('[a]\r\n[b]\r\n [a]', 'line 3, column 3'), ('a=1\n\n', None), ('x = "\n', 'line 1, column 6')):
            answer = self.reader.ask(text.encode())
            self.assertTrue(place is None or answer['error'].startswith('text: ' + place + ':'), answer)


if __name__ == '__main__':
    tap.main()
