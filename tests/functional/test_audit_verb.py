# SPDX-License-Identifier: Apache-2.0
"""`sallyport audit verify`: a log that holds, and every way in which one does not."""

import hashlib
import json
import os
import subprocess

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


@ours_only
class Audit(Case):
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
            self.assertRegex(run.stderr, b'^sallyport audit')


if __name__ == '__main__':
    tap.main()
