# SPDX-License-Identifier: Apache-2.0
"""read_output: every address, over an omitted middle, of the living and of the dead."""

import time

import mcp
import server
import tap
from wire import wait_until

PYTHON = server.PYTHON
LONG = {'yield_time_ms': 30000}
HEAD = TAIL = 524288
LINE = 'line %07d\n'
LINES = 400000  # of 13 bytes: about 5 MiB
BIG = 'import sys\nsys.stdout.write("".join("line %%07d\\n" %% n for n in range(1, %d)))\nsys.stdout.flush()\n' % (LINES + 1)
TOTAL = LINES * len(LINE % 0)


def python(program):
    return PYTHON, '-uc', program


class Reading(mcp.Case):
    def setUp(self):
        super().setUp()
        self.host = self.mcp()

    def live(self, script, end, **more):
        """A session of a shell script that has printed so much, and stays."""
        r = self.host.exec('sh', '-c', script + '\nexec sleep 600', **{'yield_time_ms': 250, **more})
        wait_until(lambda: self.host.read(r['session_id'])['end_byte'] >= end, 'the output')
        return r['session_id']

    def ended(self, *argv, **more):
        r = self.host.exec(*argv, **LONG, **more)
        self.assertIn('exit_code', r.structured, r)
        (session,) = [i for i, s in self.host.sessions().items() if s['state'] == 'exited']
        return session

    def read(self, session, **how):
        r = self.host.read(session, **how)
        self.assertFalse(r.failed, r)
        return r

    def refuse(self, words, session, **how):
        r = self.host.read(session, **how)
        self.assertTrue(r.failed, r)
        self.assertEqual(r.structured, {})
        for w in words if isinstance(words, (list, tuple)) else [words]:
            self.assertIn(w, r.text)
        return r

    def expect(self, r, **members):
        self.assertEqual({k: r.get(k) for k in members}, members, r)
        return r


class Small(Reading):
    def test_all(self):
        s = self.live('seq 1 20', 51)
        r = self.expect(self.read(s), from_byte=0, next_byte=51, first_byte=0, end_byte=51, omitted_bytes=0, state='sleeping',
                        output='\n'.join(map(str, range(1, 21))) + '\n')
        self.assertNotIn('exit_code', r.structured)
        self.assertNotIn('matches', r.structured)
        self.assertEqual(r.text, 'Bytes: 0-51 of 51\nState: sleeping\nOutput:\n' + r['output'])

    def test_reading_answers_nothing(self):
        s = self.live('seq 1 20', 51)
        self.host.glance(s)
        self.host.exec('sh', '-c', 'sleep 1; echo x; sleep 600', yield_time_ms=250)
        (s,) = [i for i in self.host.sessions() if i != s]
        wait_until(lambda: self.read(s)['end_byte'] == 2, 'the output')
        self.expect(self.host.glance(s), from_byte=0, next_byte=2, output='x\n')
        self.expect(self.host.glance(s), from_byte=2, next_byte=2, output='')
        self.expect(self.read(s), from_byte=0, next_byte=2, output='x\n')

    def test_from_byte(self):
        s = self.live('seq 1 20', 51)
        self.expect(self.read(s, from_byte=48), output='20\n', from_byte=48, next_byte=51)
        self.expect(self.read(s, from_byte=4, limit=4), output='3\n4\n', from_byte=4, next_byte=8)
        self.expect(self.read(s, from_byte=51), output='', from_byte=51, next_byte=51)
        self.expect(self.read(s, from_byte=51.0), output='')
        self.refuse('from_byte 52 is behind the end: there are 51 bytes', s, from_byte=52)
        self.refuse('is behind the end', s, from_byte=(1 << 64) - 1)

    def test_line(self):
        s = self.live('seq 1 20', 51)
        self.expect(self.read(s, line=1, limit=2), output='1\n', from_byte=0)
        self.expect(self.read(s, line=20), output='20\n', from_byte=48, next_byte=51)
        self.refuse('the first is line 1', s, line=0)
        self.refuse(['line 21 is not there yet', '20'], s, line=21)

    def test_line_without_an_end(self):
        s = self.live('printf "a\\nb"', 3)
        self.expect(self.read(s, line=2), output='b')
        self.refuse('line 3 is not there yet', s, line=3)

    def test_lines_of_nothing(self):
        s = self.live(':', 0)
        self.expect(self.read(s), output='', end_byte=0)
        self.expect(self.read(s, line=1), output='')
        self.expect(self.read(s, grep='x'), output='', matches=0)
        self.refuse('line 2', s, line=2)

    def test_grep(self):
        s = self.live('seq 1 20', 51)
        self.expect(self.read(s, grep='^1?7$', context=1), matches=2, output='6-6\n7:7\n8-8\n--\n16-16\n17:17\n18-18\n')
        self.expect(self.read(s, grep='^7$'), output='5-5\n6-6\n7:7\n8-8\n9-9\n')
        self.expect(self.read(s, grep='^(1|20)$', context=0), output='1:1\n--\n20:20\n')
        self.expect(self.read(s, grep='^(3|5)$', context=1), output='2-2\n3:3\n4-4\n5:5\n6-6\n')
        self.expect(self.read(s, grep='21'), output='', matches=0)
        self.assertIn('\nMatches: 2\n', self.read(s, grep='^1?7$').text)
        self.expect(self.read(s, grep='', context=0), matches=20)

    def test_grep_goes_on(self):
        """Every match once, however small the answers are."""
        s = self.live('seq 1 400', 1492)
        found, at, rounds = '', 0, 0
        while rounds < 100:
            r = self.expect(self.read(s, grep='7$', context=0, from_byte=at, limit=50), matches=40)
            self.assertLessEqual(len(r['output']), 50)
            found += r['output']
            if r['next_byte'] == r['end_byte']:
                break
            self.assertGreater(r['next_byte'], at)
            at, rounds = r['next_byte'], rounds + 1
        got = [line for line in found.split('\n') if line not in ('', '--')]
        self.assertEqual(got, ['%d:%d' % (n, n) for n in range(7, 401, 10)])

    def test_grep_leaves_the_last_line_while_it_may_grow(self):
        s = self.live('printf "one\\nerr"; sleep 2; echo or', 7)
        r = self.read(s, grep='^error$')
        if r['end_byte'] == 7:
            self.expect(r, matches=0, next_byte=4)
        wait_until(lambda: self.read(s)['end_byte'] == 10, 'the rest')
        self.expect(self.read(s, grep='^error$', from_byte=4, context=0), matches=1, output='2:error\n', next_byte=10)

    def test_wrong_addresses(self):
        s = self.live('seq 1 20', 51)
        for how, words in (({'from_byte': 1, 'line': 1}, 'one of'),
                           ({'line': 1, 'grep': 'x'}, 'one of'),
                           ({'from_byte': -1}, 'failed to parse function arguments'),
                           ({'from_byte': 'x'}, 'failed to parse function arguments'),
                           ({'line': 1.5}, 'failed to parse function arguments'),
                           ({'grep': 5}, 'failed to parse function arguments'),
                           ({'grep': '('}, '`(` at byte'),
                           ({'grep': 'a' * 5000}, 'grep'),
                           ({'limit': 0}, '`limit` is a number from 1 to'),
                           ({'limit': 1 << 21}, '`limit` is a number from 1 to'),
                           ({'grep': 'x', 'context': 101}, '`context` is at most'),
                           ({'view': 'screen'}, '`view` is'),
                           ({'view': 5}, 'failed to parse function arguments')):
            with self.subTest(how):
                self.refuse(words, s, **how)

    def test_unknown_sessions(self):
        for session in (0, -1, 1, 2147483647):
            self.refuse('Unknown process id %d' % session, session)
        for session in ('1000', 1 << 40, 1.5, True):
            self.refuse('failed to parse function arguments', session)
        r = self.host.call('read_output', {})
        self.assertTrue(r.failed)
        self.assertIn('missing field `session_id`', r.text)

    def test_view_plain(self):
        script = r'''printf '\033[31mred\033[0m\r\n\033]0;title\007two\b\033[2K\n\033(B10%%\r100%%\n'; '''
        s = self.live(script, 40)
        raw, plain = self.read(s)['output'], self.read(s, view='plain')['output']
        self.assertIn('\033[31mred\033[0m\r\n', raw)
        self.assertNotIn('\033', plain)
        self.assertNotIn('title', plain)
        self.assertTrue(plain.startswith('red\n'), plain)
        self.assertIn('100%', plain)
        self.assertEqual(self.read(s, view='raw')['output'], raw)
        self.expect(self.read(s, view='plain', grep='^red$', context=0), matches=1, output='1:red\n')
        self.expect(self.read(s, view='raw', grep='^red$', context=0), matches=0)

    def test_view_plain_in_small_pieces(self):
        s = self.live(r'''for i in 1 2 3 4 5 6 7 8 9; do printf "\033[3${i}mcolour $i\033[0m\r\n"; done''', 9 * 19)
        whole = self.read(s, view='plain')['output']
        self.assertEqual(whole, ''.join('colour %d\n' % i for i in range(1, 10)))
        text, at = '', 0
        while True:
            r = self.read(s, view='plain', from_byte=at, limit=7)
            text += r['output']
            if r['next_byte'] == r['end_byte']:
                break
            self.assertGreater(r['next_byte'], at)
            at = r['next_byte']
        self.assertEqual(text, whole)

    def test_bytes_that_are_no_text(self):
        s = self.live(r"printf 'a\377\360\237\230\200\000b\303'", 9)
        r = self.expect(self.read(s), output='a\ufffd\U0001f600\0b', next_byte=8, end_byte=9)  # the last may become one
        self.assertEqual(self.read(s, from_byte=3)['output'][0], '\ufffd')
        text, at = '', 0
        while at < 8:
            r = self.read(s, from_byte=at, limit=1)
            self.assertGreater(r['next_byte'], at)
            text, at = text + r['output'], r['next_byte']
        self.assertEqual(text, 'a\ufffd\U0001f600\0b')
        self.host.kill(s, signal='KILL')
        self.expect(self.read(s), output='a\ufffd\U0001f600\0b\ufffd', next_byte=9)

    def test_after_the_end(self):
        s = self.ended('sh', '-c', 'seq 1 20; exit 7')
        r = self.expect(self.read(s, line=20), output='20\n', state='exited', exit_code=7)
        self.assertIn('\nProcess exited with code 7\nState: exited\n', r.text)
        self.expect(self.read(s, from_byte=48), output='20\n')
        self.expect(self.read(s, grep='^20$', context=0), output='20:20\n', next_byte=51)
        self.assertNotIn('yet', self.refuse('line 21 is not there', s, line=21).text)

    def test_writing_to_an_ended_one(self):
        s = self.ended('sh', '-c', 'echo x')
        for more in ({}, {'chars': 'x'}, {'keys': ['Enter']}, {'eof': True}, {'write_id': 'w', 'chars': 'x'}):
            r = self.host.call('write_stdin', {'session_id': s, **more})
            self.assertTrue(r.failed, r)
            self.assertEqual(r.text, 'write_stdin failed: Unknown process id %d; read_output still has its output' % s)
        r = self.host.type(1)
        self.assertTrue(r.text.startswith('write_stdin failed: Unknown process id 1'), r.text)
        self.assertNotIn('still has', r.text)

    def test_ids_are_not_given_away(self):
        s = self.ended('sh', '-c', 'echo x')
        for _ in range(30):
            self.host.exec('true')
        self.assertEqual(len(self.host.sessions()), 31)
        self.expect(self.read(s), output='x\n')


class Big(Reading):
    """Five MiB of which the first and the last half are kept."""

    def check(self, s):
        gap = TOTAL - HEAD - TAIL
        first_behind = HEAD + gap
        r = self.expect(self.read(s), from_byte=0, next_byte=16384, first_byte=0, end_byte=TOTAL, omitted_bytes=0)
        self.assertEqual(r['output'], ''.join(LINE % n for n in range(1, 1400))[:16384])
        r = self.expect(self.read(s, limit=1 << 20), from_byte=0, next_byte=HEAD, omitted_bytes=0)  # to the gap
        self.assertEqual(r['output'], ''.join(LINE % n for n in range(1, HEAD // 13 + 2))[:HEAD])
        for at in (HEAD, HEAD + 1, first_behind - 1):  # in the gap
            r = self.expect(self.read(s, from_byte=at, limit=1 << 20), from_byte=first_behind, next_byte=TOTAL, omitted_bytes=gap)
            self.assertIn('%d bytes omitted' % gap, r['output'])
            self.assertTrue(r['output'].endswith(LINE % LINES))
            self.assertIn('\nOmitted: %d bytes that are no longer kept\n' % gap, r.text)
        r = self.expect(self.read(s, from_byte=first_behind, limit=26), from_byte=first_behind, omitted_bytes=0)
        self.assertNotIn('omitted', r['output'])
        self.expect(self.read(s, from_byte=TOTAL - 13), output=LINE % LINES, next_byte=TOTAL)
        self.expect(self.read(s, line=1000, limit=13), output=LINE % 1000, from_byte=999 * 13)
        last_counted = HEAD // 13 + 1
        self.expect(self.read(s, line=last_counted), from_byte=(last_counted - 1) * 13, next_byte=HEAD)
        for line in (last_counted + 1, LINES, LINES + 1):
            self.refuse(['line %d cannot be told' % line, 'from_byte', str(first_behind)], s, line=line)
        self.expect(self.read(s, grep='^line 0000003$', context=0), matches=1, output='3:' + LINE % 3)
        r = self.expect(self.read(s, grep='^line 0(000003|%d)$' % (LINES - 1), context=0), matches=2, omitted_bytes=gap)
        before, marker, behind = r['output'].split('\n')[:3]
        self.assertEqual(before, '3:line 0000003')
        self.assertIn('%d bytes omitted' % gap, marker)
        self.assertRegex(behind, r'^\+\d+:line 0%d$' % (LINES - 1))
        self.expect(self.read(s, grep='^line 0200000$'), matches=0, output='')  # gone

    def test_of_a_live_one(self):
        r = self.host.exec(*python(BIG + 'import time\ntime.sleep(600)'), until={'pattern': 'line 0%d\n' % LINES}, max_output_tokens=100, **LONG)
        self.expect(r, from_byte=0, next_byte=TOTAL, omitted_bytes=TOTAL - 400, omitted_from_byte=200)
        self.check(r['session_id'])
        self.host.kill(r['session_id'], signal='KILL')
        self.check(r['session_id'])

    def test_of_an_ended_one(self):
        s = self.ended(*python(BIG), max_output_tokens=100)
        self.check(s)

    def test_of_several_answers(self):
        """What is kept is of the session, not of an answer."""
        program = 'import sys\nfor _ in sys.stdin:\n    ' + BIG.split('\n')[1] + '\n    sys.stdout.flush()\n'
        r = self.host.exec(*python('import sys, termios, tty\ntty.setcbreak(0)\na = termios.tcgetattr(1)\na[1] = 0\n'
                                   'termios.tcsetattr(1, 0, a)\nprint(end="> ")\n' + program), tty=True,
                           until={'pattern': '> $'}, **LONG)
        s, at = r['session_id'], r['next_byte']
        for _ in range(2):
            r = self.host.type(s, '\n', until={'pattern': 'line 0%d\n' % LINES}, max_output_tokens=10, **LONG)
            self.expect(r, from_byte=at, next_byte=at + TOTAL)
            at = r['next_byte']
        r = self.expect(self.read(s, from_byte=1 << 20), first_byte=0, end_byte=at, from_byte=at - TAIL, omitted_bytes=at - HEAD - TAIL)
        self.expect(self.read(s, from_byte=0, limit=15), output='> ' + LINE % 1)

    def test_a_slow_search_holds_nobody_up_for_long(self):
        s = self.ended(*python(BIG), max_output_tokens=100)
        began = time.monotonic()
        r = self.host.read(s, grep='((l|i|n|e| |[0-9])*x?){18}y')
        if r.failed:
            self.assertIn('grep: the search takes too long', r.text)
        self.assertEqual(self.host.exec('echo', 'hello')['output'], 'hello\n')
        self.assertLess(time.monotonic() - began, 20)


class Ends(mcp.Case):
    def test_exited_ttl(self):
        host = self.mcp('--set', 'exited_ttl_s=1')
        host.exec('echo', 'x')
        (s,) = host.sessions()
        self.assertEqual(host.read(s)['output'], 'x\n')
        wait_until(lambda: host.read(s).failed, 'it to be forgotten')
        r = host.read(s)
        self.assertIn('Unknown process id %d' % s, r.text)
        self.assertEqual(host.sessions(), {})
        r = host.type(s)
        self.assertTrue(r.text.startswith('write_stdin failed: Unknown process id %d' % s), r)
        self.assertNotIn('still has', r.text)

    def test_exited_ttl_of_what_nobody_has_asked_about(self):
        host = self.mcp('--set', 'exited_ttl_s=1')
        r = host.exec('sh', '-c', 'sleep 0.6; echo x', yield_time_ms=250)
        wait_until(lambda: r['session_id'] not in host.sessions(), 'it to be forgotten')

    def test_exited_ttl_of_zero_is_for_ever(self):
        host = self.mcp('--set', 'exited_ttl_s=0')
        host.exec('echo', 'x')
        (s,) = host.sessions()
        time.sleep(1.2)
        self.assertEqual(host.read(s)['output'], 'x\n')

    def test_no_more_than_so_many(self):
        """256 of them: the oldest go."""
        host = self.mcp()
        host.exec('echo', 'first')
        (first,) = host.sessions()
        for start in range(0, 280, 20):
            ids = [host.call_later('exec_command', {'argv': ['echo', str(n)]}) for n in range(start, start + 20)]
            for n, i in enumerate(ids):
                self.assertEqual(host.result(i)['output'], '%d\n' % (start + n))
        sessions = host.sessions()
        self.assertEqual(len(sessions), 256)
        self.assertNotIn(first, sessions)
        self.assertTrue(host.read(first).failed)
        for s in list(sessions)[::50]:
            self.assertFalse(host.read(s).failed)


if __name__ == '__main__':
    tap.main()
