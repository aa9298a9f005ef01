# SPDX-License-Identifier: Apache-2.0
"""Receipts: how a command ended and what it consumed, on every door."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import mcp
import tap
from sandbox_policy import read_only
from server import PROGRAM, Case, ours_only
from wire import DEADLINE, wait_until

MIB = 1 << 20
NUMBERS = {'wallMs', 'userMs', 'systemMs', 'maxRssBytes', 'readBytes', 'writtenBytes', 'voluntarySwitches', 'involuntarySwitches',
           'majorFaults'}
MAYBE = {'peakMemoryBytes', 'peakProcesses'}

BURN = 'import time\nwhile time.process_time() < %s: pass'
HOLD = 'held = b"x" * (%d << 20)'
TWO_AT_ONCE = ('import os\n'
               'ready, go = os.pipe(), os.pipe()\n'
               'for _ in range(2):\n'
               '    if os.fork() == 0:\n'
               '        os.close(go[1])\n'
               '        held = b"x" * (40 << 20)\n'
               '        os.write(ready[1], b".")\n'
               '        os.read(go[0], 1)\n'
               '        os._exit(0)\n'
               'for _ in range(2): os.read(ready[0], 1)\n'
               'os.close(go[1])\n'
               'for _ in range(2): os.wait()\n')
WRITE = ('import os\n'
         'fd = os.open("written", os.O_CREAT | os.O_WRONLY)\n'
         'for _ in range(8): os.write(fd, os.urandom(1 << 20))\n'
         'os.fsync(fd)')


def python(script):
    return [sys.executable, '-I', '-S', '-c', script]


def is_on_disk(path):
    """Writes to memory are no writes to storage."""
    best = ('', '')
    with open('/proc/self/mounts') as f:
        for line in f:
            point, kind = line.split()[1:3]
            if (path + '/').startswith(point.rstrip('/') + '/') and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1] in ('ext2', 'ext3', 'ext4', 'xfs', 'btrfs', 'overlay')


def oom_kills():
    with open('/proc/vmstat') as f:
        return int(re.search(r'^oom_kill (\d+)$', f.read(), re.M).group(1))


class Receipts(Case):
    def asking(self, srv, **how):
        c = srv.connect(**how)
        c.takes_receipts = True
        return c.handshake()

    def listed(self, client, process_id, **params):
        return next(p for p in client.request('process/list', params)['processes'] if p['processId'] == process_id)


@ours_only
class OnTheWire(Receipts):
    def setUp(self):
        super().setUp()
        self.srv = self.server()
        self.c = self.asking(self.srv)

    def test_every_answer_about_an_end_has_it(self):
        p = self.c.sh('echo out; echo err >&2; exit 3', 'p')
        self.assertEqual((p.reason, p.receipt['reason']), ('exit', 'exit'))
        self.assertEqual(p.receipt['output'], {'stdout': 4, 'stderr': 4, 'dropped': 0})
        self.assertEqual(set(p.receipt) - MAYBE, NUMBERS | {'output', 'reason'})
        self.assertGreater(p.receipt['maxRssBytes'], 100 << 10)
        self.assertEqual(self.c.read('p')['receipt'], p.receipt)
        self.assertEqual(self.listed(self.c, 'p')['receipt'], p.receipt)
        self.assertEqual(self.listed(self.srv.session(), 'p', all=True).get('receipt'), None)
        self.c.start('live', ['sleep', '300'])
        self.assertNotIn('receipt', self.c.read('live'))
        self.assertNotIn('receipt', self.listed(self.c, 'live'))
        self.assertTrue(self.c.info['capabilities']['receipts'])

    def test_an_exit_with_open_output_has_it_in_the_list(self):
        self.c.start('held', ['/bin/sh', '-c', 'sleep 300 & echo up'])
        self.assertEqual(self.c.wait_exited('held').reason, 'exit')
        self.assertNotIn('receipt', self.c.read('held'))
        self.assertEqual(self.listed(self.c, 'held')['receipt']['reason'], 'exit')
        self.c.request('process/signal', {'processId': 'held', 'signal': 'KILL'})
        self.assertEqual(self.c.wait_closed('held').receipt['output'], {'stdout': 3, 'stderr': 0, 'dropped': 0})

    def test_a_terminal_has_one_stream(self):
        p = self.c.sh('printf abc', 'tty', tty=True)
        self.assertEqual(p.receipt['output'], {'pty': 3, 'dropped': 0})

    def test_what_it_took(self):
        """Each within a tenth of what the command did on purpose."""
        empty = self.c.run(python('pass')).receipt
        burnt = self.c.run(python(BURN % (0.2 + empty['userMs'] / 1000 + empty['systemMs'] / 1000))).receipt
        took = burnt['userMs'] + burnt['systemMs'] - empty['userMs'] - empty['systemMs']
        self.assertTrue(180 <= took <= 220 + 2 * empty['userMs'], (burnt, empty))
        self.assertGreaterEqual(burnt['wallMs'], 200)
        held = self.c.run(python(HOLD % 50)).receipt['maxRssBytes'] - empty['maxRssBytes']
        self.assertTrue(45 * MIB <= held <= 55 * MIB, held)
        self.assertGreater(burnt['voluntarySwitches'] + burnt['involuntarySwitches'], 0)

    def test_bytes_to_storage(self):
        with tempfile.TemporaryDirectory(dir='/var/tmp') as work:
            if not is_on_disk(os.path.realpath(work)):
                self.skipTest('/var/tmp is not on a disk')
            written = self.c.run(python(WRITE), cwd='file://' + work).receipt['writtenBytes']
        self.assertTrue(8 * MIB <= written <= 8.8 * MIB, written)

    def test_children_that_were_waited_for_count(self):
        two = self.c.run(python(TWO_AT_ONCE)).receipt
        self.assertTrue(40 * MIB <= two['maxRssBytes'] <= 60 * MIB, two)
        if 'peakMemoryBytes' in two:
            self.assertGreaterEqual(two['peakMemoryBytes'], 80 * MIB)

    def test_reasons(self):
        killed_before = oom_kills()
        p = self.c.sh('kill -TERM $$', 's')
        self.assertEqual((p.reason, p.receipt['reason'], p.exit_code), ('signal', 'signal', 143))
        self.c.start('t', ['sleep', '300'])
        self.c.terminate('t')
        p = self.c.wait_closed('t')
        self.assertEqual((p.reason, p.receipt['reason'], p.exit_code), ('terminated', 'terminated', 137))
        self.c.start('k', ['sleep', '300'])
        os.kill(self.listed(self.c, 'k')['pid'], signal.SIGKILL)
        p = self.c.wait_closed('k')
        self.assertEqual((p.reason, p.receipt['reason'], p.exit_code), ('signal', 'signal', 137))
        self.assertNotIn('limitsHit', p.told)
        self.assertNotIn('limitsHit', p.receipt)
        if oom_kills() == killed_before:  # other tests run beside this one
            self.assertNotIn('suspected', p.receipt)

    def test_the_end_of_a_session_seen_by_another(self):
        self.c.start('p', ['sleep', '300'])
        other = self.asking(self.srv)
        other.request('process/attach', {'sessionId': self.c.session_id, 'processId': 'p'})
        self.c.request('session/end')
        other.wait_for(lambda: [n for n in other.notes if n['method'] == 'process/closed'], 'closed')
        told = {n['method']: n['params'] for n in other.notes}
        self.assertEqual(told['process/exited']['reason'], 'session_end')
        receipt = told['process/closed']['receipt']
        self.assertEqual((receipt['reason'], 'userMs' in receipt, 'wallMs' in receipt), ('session_end', False, True))

    def test_a_lost_cell(self):
        self.c.start('p', ['sleep', '300'])
        self.c.sh('echo kept', 'q')
        for pid in self.srv.program_pids()[1:]:
            os.kill(pid, signal.SIGKILL)
        p = self.c.wait_closed('p')
        self.assertEqual((p.reason, p.exit_code, p.receipt['reason']), ('lost', -1, 'lost'))
        self.assertNotIn('userMs', p.receipt)
        self.assertEqual(self.listed(self.c, 'q')['receipt']['reason'], 'exit')

    def test_long_output_is_counted_whole(self):
        self.c.request('process/start', self.c.start_params('long', ['/bin/sh', '-c', 'head -c 3000000 /dev/zero; head -c 5 /dev/zero >&2']))
        receipt = self.c.wait_closed('long').receipt
        self.assertEqual((receipt['output']['stdout'], receipt['output']['stderr']), (3000000, 5))
        self.assertGreaterEqual(receipt['output']['dropped'], 3000000 - 2 * MIB)
        again = self.asking(self.srv)
        self.assertEqual(self.listed(again, 'long', all=True)['receipt'], receipt)

    def test_a_receipt_outlives_its_output(self):
        srv = self.server('--kept-memory', '1M', '--closed-ttl', '600')
        c = self.asking(srv)
        receipt = c.sh('echo old; exit 7', 'old').receipt
        for i in range(90):
            c.sh('head -c 14000 /dev/zero | tr "\\0" x', 'p%d' % i)
        wait_until(lambda: self.listed(c, 'old').get('outputEvicted'), 'eviction')
        self.assertEqual((receipt['output'], receipt['reason']), ({'stdout': 4, 'stderr': 0, 'dropped': 0}, 'exit'))
        self.assertEqual(self.listed(c, 'old')['receipt'], receipt)
        page = c.read('old')
        self.assertEqual((page['chunks'], page['receipt']), ([], receipt))
        run = subprocess.run([PROGRAM, 'ps', '--json', '--on', srv.url], capture_output=True, timeout=DEADLINE)
        shown = {p['processId']: p for p in json.loads(run.stdout)['processes']}
        self.assertEqual((shown['old']['receipt'], shown['old']['outputEvicted']), (receipt, True))

    def test_a_sandbox(self):
        p = self.c.sh('touch /denied; exit 1', 'p', sandbox=read_only())
        self.assertEqual(set(p.receipt['sandbox']), {'tier', 'denials'})
        self.assertEqual(p.receipt['sandbox']['denials'], self.listed(self.c, 'p')['sandbox']['denials'])
        self.assertEqual(p.receipt['reason'], 'exit')
        self.assertIn('userMs', p.receipt)

    def test_the_history_keeps_it(self):
        srv = self.server('--closed-ttl', '0')
        c = self.asking(srv)
        receipt = c.sh('head -c 200000 /dev/zero; exit 1', 'p').receipt
        entry = wait_until(lambda: c.request('history/list')['entries'], 'an entry')[0]
        self.assertEqual(entry['receipt'], receipt)
        self.assertNotIn('receipt', srv.session().request('history/list')['entries'][0])
        c.start('r', ['sleep', '300'])
        watcher = self.asking(srv)
        c.request('session/end')
        entry = wait_until(lambda: [e for e in watcher.request('history/list')['entries'] if e['processId'] == 'r'], 'r')[0]
        self.assertEqual(entry['receipt']['reason'], 'session_end')


class Verbs(Receipts):
    """`exec` and `ps`, here and with a server."""

    def run_verb(self, *words, code=0):
        run = subprocess.run([PROGRAM, *words], capture_output=True, encoding='utf-8', timeout=DEADLINE,
                             env=dict(os.environ, SALLYPORT_HOME=self.scratch(), LC_ALL='C'))
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def result(self, *words, code=0):
        return json.loads(self.run_verb('exec', '--json', '--no-local-socket', *words, code=code).stdout.splitlines()[-1])

    @staticmethod
    def snake(name):
        return re.sub('[A-Z]', lambda m: '_' + m[0].lower(), name)

    def test_exec(self):
        srv = self.server()
        names = {self.snake(n) for n in NUMBERS | {'output', 'reason'}}
        maybe = {self.snake(n) for n in MAYBE}
        for where in ((), ('--on', srv.url)):
            with self.subTest(where):
                r = self.result(*where, '--', 'sh', '-c', 'echo out; echo err >&2; exit 3', code=3)['receipt']
                self.assertEqual(set(r) - maybe, names)
                self.assertEqual((r['reason'], r['output']), ('exit', {'stdout': 4, 'stderr': 4, 'dropped': 0}))
                burnt = self.result(*where, '--', *python(BURN % 0.2))['receipt']
                self.assertTrue(180 <= burnt['user_ms'] + burnt['system_ms'] <= 300, burnt)
                self.assertEqual(self.result(*where, '--', 'sh', '-c', 'kill -9 $$', code=137)['receipt']['reason'], 'signal')
                r = self.result(*where, '--timeout', '0.2', '--', 'sleep', '60', code=124)['receipt']
                self.assertEqual(r['reason'], 'terminated')
                line = self.run_verb('exec', *where, '--receipt', '--no-local-socket', '--', 'true').stderr
                self.assertRegex(line, r'\Asallyport: receipt: exit, wall [0-9]+\.[0-9]{2} s, user [0-9]+\.[0-9]{2} s, system [0-9]+\.[0-9]{2} s, '
                                 r'memory [0-9]+\.[0-9] [KM]iB, read [0-9.]+ \w+, written [0-9.]+ \w+\n\Z')
        self.assertNotIn('receipt', self.result('--', 'no-such-program', code=127))
        self.assertIn('--receipt', self.run_verb('exec', '-d', '--receipt', '--', 'true', code=125).stderr)

    def test_exec_in_a_sandbox(self):
        r = self.result('--sandbox', ':workspace', '--', 'sh', '-c', 'touch /denied', code=1)
        self.assertEqual(r['receipt']['sandbox']['denials'], r['denials'])
        self.assertEqual(r['receipt']['reason'], 'exit')

    def test_a_lost_cell_here(self):
        p = subprocess.Popen([PROGRAM, 'exec', '--json', '--no-local-socket', '--', 'sh', '-c', 'read go; kill -9 $PPID; sleep 60'],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             env=dict(os.environ, SALLYPORT_HOME=self.scratch()))
        self.assertIn(b'exec_command_begin', p.stdout.readline())  # before, it would be a failed start
        last = json.loads(p.communicate(b'go\n', timeout=DEADLINE)[0].splitlines()[-1])
        self.assertEqual((last['kind'], last['receipt']['reason'], set(last['receipt'])), ('lost', 'lost', {'reason', 'wall_ms'}))

    @tap.long
    def test_a_lost_server(self):
        srv = self.server()
        p = subprocess.Popen([PROGRAM, 'exec', '--json', '--no-local-socket', '--on', srv.url, '--', 'sh', '-c', 'echo up; sleep 60'],
                             stdout=subprocess.PIPE, env=dict(os.environ, SALLYPORT_HOME=self.scratch()))
        while b'output_delta' not in p.stdout.readline():
            pass
        srv.kill()
        last = json.loads(p.communicate(timeout=DEADLINE)[0].splitlines()[-1])
        self.assertEqual((last['kind'], last['receipt']['reason'], set(last['receipt'])), ('lost', 'lost', {'reason', 'wall_ms'}))

    def test_ps(self):
        srv = self.server()
        c = self.asking(srv)
        receipt = c.sh('head -c 100000 /dev/zero', 'p').receipt
        c.start('live', ['sleep', '300'])
        long = c.sh('head -c 3000000 /dev/zero', 'long').receipt
        self.assertGreater(long['output']['dropped'], 0)  # the output is not kept, the receipt is
        shown = {p['processId']: p for p in json.loads(self.run_verb('ps', '--json', '--on', srv.url).stdout)['processes']}
        self.assertEqual((shown['p']['receipt'], shown['long']['receipt'], 'receipt' in shown['live']), (receipt, long, False))
        title, *rows = [line.split() for line in self.run_verb('ps', '--on', srv.url).stdout.splitlines()]
        cpu, peak = title.index('CPU'), title.index('PEAK')
        ended = re.split('  +', next(line for line in self.run_verb('ps', '--on', srv.url).stdout.splitlines() if 'head' in line))
        self.assertRegex(' '.join(ended[cpu:peak + 1]), r'^[0-9]+\.[0-9]{2}s [0-9]+\.[0-9] [KM]iB$')
        self.assertEqual([r[cpu:peak + 1] for r in rows if 'sleep' in r], [['-', '-']])


class Tools(mcp.Case):
    def test_results_about_an_end(self):
        host = self.mcp()
        host.open()
        r = host.exec('sh', '-c', 'echo hello; exit 3').structured
        self.assertEqual((r['end_reason'], r['receipt']['reason'], r['receipt']['output']),
                         ('exit', 'exit', {'stdout': 6, 'stderr': 0, 'dropped': 0}))
        self.assertIn('user_ms', r['receipt'])
        r = host.exec('sleep', '300', yield_time_ms=250)
        self.assertNotIn('receipt', r.structured)
        ended = host.call('signal_session', {'session_id': r.structured['session_id'], 'signal': 'HUP'}).structured
        self.assertEqual((ended['end_reason'], ended['receipt']['reason']), ('signal', 'signal'))
        r = host.exec('sleep', '300', timeout_ms=300)
        self.assertEqual((r.structured['end_reason'], r.structured['receipt']['reason']), ('timeout', 'terminated'))
        self.assertNotIn('receipt', r.text)


class Audited:
    """`audit_receipts`: a line for each command that was decided and has ended."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix='sallyport-test-')
        self.addCleanup(folder.cleanup)
        self.home, self.log = folder.name, os.path.join(folder.name, 'log')

    def words(self, receipts=True):
        return ['--set', 'audit_log="%s"' % self.log, '--set', 'audit_receipts=%s' % ('true' if receipts else 'false')]

    def lines(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log) as f:
            return [json.loads(line) for line in f]

    def verified(self):
        run = subprocess.run([PROGRAM, 'audit', 'verify', self.log], capture_output=True, encoding='utf-8', timeout=DEADLINE)
        self.assertEqual((run.returncode, run.stdout.split()[:2]), (0, [str(len(self.lines())), 'entries,']), run.stderr)


class AuditOfTools(Audited, mcp.Case):
    def test_mcp(self):
        host = self.mcp(*self.words())
        host.open()
        host.exec('sh', '-c', 'exit 4')
        r = host.exec('sleep', '300', yield_time_ms=250)
        host.call('signal_session', {'session_id': r.structured['session_id'], 'signal': 'HUP'})
        wait_until(lambda: len(self.lines()) == 4, 'four lines')
        decided = [e['call_id'] for e in self.lines() if 'receipt' not in e]
        self.assertEqual([(e['call_id'], e['receipt']['reason']) for e in self.lines() if 'receipt' in e],
                         [(decided[0], 'exit'), (decided[1], 'signal')])
        self.verified()


@ours_only
class AuditOfCommands(Audited, Case):
    def exec(self, *command, **how):
        return subprocess.run([PROGRAM, 'exec', '--no-local-socket', '--approve', 'on-request', *self.words(**how), '--', *command],
                              capture_output=True, timeout=DEADLINE, env=dict(os.environ, SALLYPORT_HOME=self.home)).returncode

    def test_exec(self):
        self.assertEqual(self.exec('sh', '-c', 'echo out; exit 3'), 3)
        decision, end = self.lines()
        self.assertEqual(list(end), ['seq', 'time', 'call_id', 'environment', 'receipt', 'prev'])
        self.assertEqual((end['call_id'], end['environment']), (decision['call_id'], decision['environment']))
        self.assertEqual((end['receipt']['reason'], end['receipt']['output']['stdout']), ('exit', 4))
        self.assertEqual(self.exec('true', receipts=False), 0)
        self.assertEqual(['receipt' in e for e in self.lines()], [False, True, False])
        self.verified()
        shown = subprocess.run([PROGRAM, 'audit', 'show', self.log], capture_output=True, encoding='utf-8', timeout=DEADLINE)
        self.assertRegex(shown.stdout.splitlines()[1], r'Z  ended by exit: exec-[0-9]+, [0-9]+\.[0-9]{2} s of processor time$')
        self.assertEqual(shown.stderr, '')
        with open(self.log) as f:
            text = f.read()
        with open(self.log, 'w') as f:
            f.write(text.replace('"reason":"exit"', '"reason":"lost"'))
        run = subprocess.run([PROGRAM, 'audit', 'verify', self.log], capture_output=True, encoding='utf-8', timeout=DEADLINE)
        self.assertIn(':3: does not chain', run.stdout + run.stderr)

    def test_serve(self):
        conf = os.path.join(self.home, 'sallyport.conf')
        with open(os.open(conf, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as f:
            f.write('audit_receipts = true\naudit_log = "%s"\n' % self.log)
        srv = self.server('--approve', 'on-request', env={'SALLYPORT_HOME': self.home, 'SALLYPORT_CONFIG': conf})
        c = srv.session()
        c.sh('exit 5', 'p')
        wait_until(lambda: len(self.lines()) == 2, 'two lines')
        self.assertEqual([(e['call_id'], 'receipt' in e) for e in self.lines()], [('p', False), ('p', True)])
        self.verified()


@ours_only
class NotAsked(Receipts):
    """The messages of a client that did not ask are those of old servers, byte for byte."""

    def test_the_bytes_are_the_old_ones(self):
        for capabilities in ('', ',"capabilities":null', ',"capabilities":{}', ',"capabilities":{"receipts":false}', ',"capabilities":{"receipts":1}',
                             ',"capabilities":[1]'):
            with self.subTest(capabilities):
                c = self.server().connect()
                raw = []
                receive = c.transport.receive

                def keep(end, receive=receive, raw=raw):
                    raw.append(receive(end))
                    return raw[-1]
                c.transport.receive = keep
                c.send_raw('{"id":1,"method":"initialize","params":{"clientName":"old"%s}}' % capabilities)
                c.asked.add('p')
                info = c.result(1)['environmentInfo']['capabilities']
                self.assertNotIn('receipts', info)
                c.send({'method': 'initialized', 'params': {}})
                c.sh('exit 3', 'p')
                c.read('p')
                self.assertIn(b'{"method":"process/exited","params":{"processId":"p","seq":1,"exitCode":3,"sandboxDenied":false}}', raw)
                self.assertIn(b'{"method":"process/closed","params":{"processId":"p","seq":2}}', raw)
                self.assertEqual(json.loads(raw[-1])['id'], c.ids)
                self.assertTrue(raw[-1].endswith(b'"result":{"chunks":[],"nextSeq":3,"exited":true,"exitCode":3,"closed":true,"failure":null,'
                                                 b'"sandboxDenied":false}}'), raw[-1])
                listed = c.request('process/list')['processes'][0]
                self.assertEqual(list(listed), ['processId', 'pid', 'state', 'tty', 'exitCode', 'nextSeq', 'startedAtMs', 'argv', 'cwd'])


if __name__ == '__main__':
    tap.main()
