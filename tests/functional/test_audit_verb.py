# SPDX-License-Identifier: Apache-2.0
"""`sallyport audit`: a log that holds, and every way in which one does not; its entries, shown and followed."""

import hashlib
import json
import os
import select
import subprocess
import time

import tap
import wire
from server import PROGRAM, Case, ours_only

ZEROS = '0' * 64


def entry(seq, prev):
    return {'seq': seq, 'time': '2026-11-15T13:30:00.%03dZ' % seq, 'call_id': 'c%d' % seq, 'environment': 'local',
            'cwd': '/repo', 'command': ['git', 'é'], 'segments': [['git', 'é']], 'matches': [], 'policy': 'on-request',
            'requirement': 'ask', 'decision': 'approved', 'decided_by': 'user', 'attempts': ['confined'], 'prev': prev}


def line(value):
    return json.dumps(value, ensure_ascii=False, separators=(',', ':')).encode()


def digest(text):
    return hashlib.sha256(text).hexdigest()


def chain(count):
    lines, prev = [], ZEROS
    for seq in range(1, count + 1):
        lines.append(line(entry(seq, prev)))
        prev = digest(lines[-1])
    return lines


class Log(Case):
    def setUp(self):
        super().setUp()
        self.dir = self.scratch()
        self.log = os.path.join(self.dir, 'audit.jsonl')
        config = os.path.join(self.dir, 'config')
        with open(config, 'w', encoding='utf-8'):
            os.chmod(config, 0o600)
        self.env = dict(os.environ, LC_ALL='C', SALLYPORT_HOME=self.dir, SALLYPORT_CONFIG=config)

    def write(self, lines):
        with open(self.log, 'wb') as f:
            f.write(b''.join(s + b'\n' for s in lines))


@ours_only
class Audit(Log):
    def verify(self, *words):
        run = subprocess.run([PROGRAM, 'audit', 'verify', *words], capture_output=True, timeout=wire.DEADLINE, env=self.env)
        return run.returncode, run.stdout.decode(), run.stderr.decode()

    def fault(self, number, text):
        status, out, err = self.verify(self.log)
        self.assertEqual((status, err), (1, ''))
        self.assertRegex(out, r'^%s:%d: %s' % (self.log, number, text))

    def test_a_log_that_holds(self):
        for count in (0, 1, 2, 300):
            lines = chain(count)
            self.write(lines)
            last = digest(lines[-1]) if lines else ZEROS
            self.assertEqual(self.verify(self.log), (0, '%d entries, last %s\n' % (count, last), ''))

    def test_without_a_name_it_is_the_configured_one(self):
        self.write(chain(2))
        self.assertEqual(self.verify()[:1], (0,))
        os.rename(self.log, os.path.join(self.dir, 'other'))
        self.assertEqual(self.verify()[0], 2)
        self.env['SALLYPORT_AUDIT_LOG'] = os.path.join(self.dir, 'other')
        self.assertEqual(self.verify()[0], 0)
        self.env['SALLYPORT_AUDIT_LOG'] = ''
        self.assertEqual(self.verify()[0], 2)

    def test_each_member_is_in_the_chain(self):
        other = {'seq': 7, 'command': ['rm'], 'segments': [], 'matches': [{}], 'policy': {'granular': {}}, 'attempts': []}
        for key in entry(1, ZEROS):
            with self.subTest(key):
                lines = chain(3)
                changed = entry(2, digest(lines[0]))
                changed[key] = other.get(key, 'x')
                lines[1] = line(changed)
                self.write(lines)
                status, out, _ = self.verify(self.log)
                self.assertEqual(status, 1)
                self.assertRegex(out, r':[23]: (does not chain|out of sequence)')

    def test_each_member_must_be_there_and_in_its_place(self):
        for key in entry(1, ZEROS):
            with self.subTest(key):
                value = entry(1, ZEROS)
                del value[key]
                self.write([line(value)])
                self.fault(1, 'not an entry: ')
                value = entry(1, ZEROS)
                value[key] = None
                self.write([line(value)])
                self.fault(1, 'not an entry: `%s` is of another type' % key)
                value = entry(1, ZEROS)
                value[key] = value.pop(key)
                self.write([line(value)])
                if key != 'prev':
                    self.fault(1, 'not an entry: ')

    def test_lines_that_were_taken_swapped_or_put_in(self):
        lines = chain(4)
        self.write(lines[1:])
        self.fault(1, 'out of sequence: `seq` is 2, not 1')
        self.write(lines[:1] + lines[2:])
        self.fault(2, 'out of sequence: `seq` is 3, not 2')
        self.write([lines[0], lines[2], lines[1], lines[3]])
        self.fault(2, 'out of sequence')
        self.write(lines[:2] + lines[1:])
        self.fault(3, 'out of sequence')
        self.write(lines[:2] + [line(entry(3, ZEROS))] + lines[3:])
        self.fault(3, 'does not chain')
        self.write(lines[:3])  # a cut-off end holds, and has another hash
        self.assertEqual(self.verify(self.log), (0, '3 entries, last %s\n' % digest(lines[2]), ''))

    def test_what_is_no_line(self):
        lines = chain(2)
        for text in (b'', b' ', b'x', b'{}', b'[]', b'1', b'{"seq":1', lines[1] + b' x', b'\xff', b'\0', b'[' * 100000):
            with self.subTest(text[:20]):
                self.write([lines[0], text])
                self.fault(2, 'not (JSON|an entry)')
        with open(self.log, 'wb') as f:
            f.write(lines[0] + b'\n' + lines[1])
        self.fault(2, 'cut off')
        self.write([lines[0] + b'\r', lines[1]])
        self.fault(2, 'does not chain')

    def test_a_line_without_end(self):
        with open(self.log, 'wb') as f:
            f.write(b'{' + b' ' * (20 << 20))
        self.fault(1, 'a line of more than')

    def test_what_cannot_be_read(self):
        for path in (os.path.join(self.dir, 'nowhere'), self.dir, '/dev/null'):
            status, out, err = self.verify(path)
            self.assertEqual((status, out), (2, ''))
            self.assertIn(path, err)

    def test_wrong_command_lines(self):
        for words in ((), ('nonsense',), ('verify', 'a', 'b'), ('verify', '--nonsense')):
            run = subprocess.run([PROGRAM, 'audit', *words], capture_output=True, timeout=wire.DEADLINE, env=self.env)
            self.assertEqual((run.returncode, run.stdout), (2, b''), words)
            self.assertRegex(run.stderr, b'^sallyport: .*sallyport audit')


@ours_only
class Show(Log):
    ROW = '2026-11-15T13:30:00Z  approved by user, in its sandbox: git \'é\'\n'

    def show(self, *words):
        run = subprocess.run([PROGRAM, 'audit', *words], capture_output=True, timeout=wire.DEADLINE, env=self.env)
        return run.returncode, run.stdout.decode(), run.stderr.decode()

    def put(self, **members):
        with open(self.log, 'ab') as f:
            f.write(line(dict(entry(1, ZEROS), **members)) + b'\n')

    def test_a_line_for_each_decision(self):
        self.write(chain(3))
        self.assertEqual(self.show('show'), (0, self.ROW * 3, ''))
        self.assertEqual(self.show('show', self.log), (0, self.ROW * 3, ''))
        self.assertEqual(self.show('show', '-n', '2'), (0, self.ROW * 2, ''))
        self.put(decision='denied', decided_by='rule', attempts=[])
        self.put(attempts=['free'], command=['sh', '-c', 'a b'])
        self.assertEqual(self.show('tail', '-n2')[1], '2026-11-15T13:30:00Z  denied by rule, did not run: git \'é\'\n'
                         "2026-11-15T13:30:00Z  approved by user, without a sandbox: sh -c 'a b'\n")

    def test_a_connection_runs_nothing(self):
        self.put(attempts=[], decided_by='rule', command=['network-access', 'http://a.test:80'])
        self.assertEqual(self.show('show')[1], '2026-11-15T13:30:00Z  approved by rule: network-access http://a.test:80\n')

    def test_tail_shows_ten(self):
        self.write(chain(30))
        self.assertEqual(self.show('tail')[1], self.ROW * 10)

    def test_json_prints_the_lines_as_they_are(self):
        lines = chain(3)
        self.write(lines)
        self.assertEqual(self.show('show', '--json')[1].encode(), b''.join(s + b'\n' for s in lines))

    def test_filters(self):
        now = time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime())
        self.put(command=['/usr/bin/make'], decision='denied')
        self.put(command=['bash', '-c', 'make'], segments=[['make']], time=now)
        self.put(command=['ls', 'make'])
        self.assertEqual(len(self.show('show', '--program', 'make')[1].splitlines()), 2)
        self.assertEqual(len(self.show('show', '--since', '10m')[1].splitlines()), 1)
        self.assertEqual(len(self.show('show', '--decision', 'denied')[1].splitlines()), 1)
        self.assertEqual(self.show('show', '--decision', 'denied', '--since', '1h'), (0, '', ''))

    def test_hostile_text_stays_harmless(self):
        self.put(command=['\x1b[2J', '\u202e', 'two\nlines'], decided_by='\x07')
        _, out, _ = self.show('show')
        self.assertEqual(len(out.splitlines()), 1)
        self.assertNotRegex(out, '[\x00-\x09\x0b-\x1f\u202e]')

    def test_what_is_no_entry_is_counted(self):
        self.write([b'no json', *chain(1), b'"text"', b'\xff'])
        status, out, err = self.show('show')
        self.assertEqual((status, out), (0, self.ROW))
        self.assertIn('3 lines are no entries', err)

    def test_a_log_that_is_missing_or_no_file(self):
        self.assertEqual(self.show('show')[0], 2)
        os.mkfifo(self.log)
        self.assertEqual(self.show('tail')[0], 2)

    def test_a_full_disk_is_that_of_the_output(self):
        self.write(chain(1))
        with open('/dev/full', 'wb') as full:
            run = subprocess.run([PROGRAM, 'audit', 'show'], stdout=full, stderr=subprocess.PIPE, timeout=wire.DEADLINE, env=self.env)
        self.assertEqual((run.returncode, run.stderr), (2, b'sallyport: write to stdout: No space left on device\n'))

    def test_follow_also_over_a_rename(self):
        self.write(chain(1))
        with subprocess.Popen([PROGRAM, 'audit', 'tail', '-f'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env) as p:
            try:
                def read():
                    self.assertTrue(select.select([p.stdout], [], [], wire.DEADLINE)[0])
                    return os.read(p.stdout.fileno(), 65536).decode()
                self.assertEqual(read(), self.ROW)
                self.put(decision='denied')
                self.assertIn('denied', read())
                with open(self.log, 'ab') as f:  # an entry that comes in two pieces
                    text = line(dict(entry(1, ZEROS), decision='abort')) + b'\n'
                    f.write(text[:40])
                    f.flush()
                    f.write(text[40:])
                self.assertIn('abort', read())
                os.rename(self.log, self.log + '.1')
                self.put(decision='approved_for_session')
                self.assertIn('approved_for_session', read())
                p.stdout.close()  # nobody reads any more
                self.put()
                self.assertIsNotNone(p.wait(wire.DEADLINE))
            finally:
                if p.poll() is None:
                    p.kill()


if __name__ == '__main__':
    tap.main()
