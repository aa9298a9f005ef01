# SPDX-License-Identifier: Apache-2.0
"""What a server remembers of processes that have ended: history/list, history/output, history/remove."""

import json
import os
import subprocess
import time

import tap
import wire
from sandbox_policy import read_only
from server import PROGRAM, Case, ours_only
from wire import unb64, wait_until


@ours_only
class History(Case):
    def setUp(self):
        super().setUp()
        self.srv = self.server('--closed-ttl', '0')
        self.c = self.srv.session()

    def entries(self, client=None, **params):
        return (client or self.c).request('history/list', params)['entries']

    def ended(self, process_id, client=None):
        """The entry of a process that has left process/list."""
        wait_until(lambda: any(e['processId'] == process_id for e in self.entries(client)), process_id + ' in the history')
        return next(e for e in self.entries(client) if e['processId'] == process_id)

    def output(self, entry):
        told = self.c.request('history/output', {'historyId': entry['historyId']})
        return {s: b''.join(unb64(k['chunk']) for k in told['chunks'] if k['stream'] == s) for s in ('stdout', 'stderr', 'pty')}, told

    def test_a_process_enters_when_it_leaves_the_list(self):
        srv = self.server('--closed-ttl', '3600')
        watcher = srv.session()
        with_session = srv.session()
        with_session.sh('echo kept', 'p')
        self.assertEqual(self.entries(watcher), [])
        self.assertEqual(len(watcher.request('process/list', {'all': True})['processes']), 1)
        self.assertEqual(with_session.request('session/end'), {})
        self.assertEqual(self.ended('p', watcher)['sessionId'], with_session.session_id)
        self.assertEqual(watcher.request('process/list', {'all': True})['processes'], [])

    def test_facts(self):
        work = self.scratch()
        self.c.sh('echo out; echo err >&2; exit 3', 'p1', cwd='file://' + work)
        e = self.ended('p1')
        self.assertEqual({k: e[k] for k in ('processId', 'sessionId', 'clientName', 'reason', 'exitCode', 'tty', 'recording', 'hasOutput',
                                            'outputBytes', 'cwd')},
                         {'processId': 'p1', 'sessionId': self.c.session_id, 'clientName': 'functional test', 'reason': 'exited', 'exitCode': 3,
                          'tty': False, 'recording': None, 'hasOutput': True, 'outputBytes': 8, 'cwd': 'file://' + work})
        self.assertEqual(e['argv'][-1], 'echo out; echo err >&2; exit 3')
        self.assertLessEqual(e['startedAtMs'], e['endedAtMs'])
        found, told = self.output(e)
        self.assertEqual((found['stdout'], found['stderr'], told['gap']), (b'out\n', b'err\n', None))
        for chunk in told['chunks']:
            self.assertTrue(e['startedAtMs'] <= chunk['atMs'] <= e['endedAtMs'] + 1000, (chunk, e))

    def test_a_name(self):
        self.c.sh('exit 0', 'p1', name='web')
        self.assertEqual(self.ended('p1')['name'], 'web')
        self.c.sh('exit 0', 'p2')
        self.assertNotIn('name', self.ended('p2'))

    def test_why_it_ended(self):
        self.c.start('signal', ['/bin/sh', '-c', 'kill -9 $$'])
        e = self.ended('signal')
        self.assertEqual((e['reason'], e['exitCode'], e['signal']), ('signaled', 137, 9))
        self.c.start('terminated', ['sleep', '300'])
        self.c.terminate('terminated')
        self.assertEqual(self.ended('terminated')['reason'], 'terminated')
        for limits, command in (({'wallMs': 100}, 'sleep 300'), ({'outputBytes': 1000}, 'exec cat /dev/zero')):
            with self.subTest(limits):
                name = list(limits)[0]
                self.c.start(name, ['/bin/sh', '-c', command], limits=limits)
                e = self.ended(name)
                self.assertEqual((e['reason'], e['exitCode'], e['signal']), ('signaled', 137, 9))
        other = self.srv.session()
        other.start('running', ['/bin/sh', '-c', 'echo so far; sleep 300'])
        other.wait_output('running', 'so far')
        other.request('session/end')
        e = self.ended('running')
        self.assertEqual((e['reason'], e['exitCode'], 'signal' in e), ('sessionEnded', None, False))
        self.assertEqual(self.output(e)[0]['stdout'], b'so far\n')

    def test_what_did_not_start_is_not_remembered(self):
        self.c.start_error('none', ['/no/such/program'])
        self.c.sh('true', 'one')
        self.ended('one')
        self.assertEqual([e['processId'] for e in self.entries()], ['one'])

    def test_the_end_of_long_output(self):
        self.c.sh('head -c 3000000 /dev/zero | tr "\\0" x; echo; echo end', 'long')
        e = self.ended('long')
        found, told = self.output(e)
        self.assertEqual((len(found['stdout']), found['stdout'][-5:]), (65536, b'\nend\n'))
        self.assertEqual(told['gap']['bytes'], 3000005 - 65536)
        self.assertEqual(e['outputBytes'], 3000005)

    def test_a_terminal(self):
        self.c.sh('printf "a\\033[1mb\\n"', 'tty', tty=True)
        e = self.ended('tty')
        self.assertEqual((e['tty'], self.output(e)[0]['pty']), (True, b'a\x1b[1mb\r\n'))

    def test_pages(self):
        for i in range(7):
            self.c.sh('exit 0', 'p%d' % i)
        wait_until(lambda: len(self.entries()) == 7, 'seven entries')
        told = [[e['historyId'] for e in self.entries(limit=3)], [e['historyId'] for e in self.entries(limit=3, before=5)],
                [e['historyId'] for e in self.entries(before=2)], self.entries(before=1), self.entries(before=0)]
        self.assertEqual(told, [[7, 6, 5], [4, 3, 2], [1], [], []])
        for bad in ({'limit': 0}, {'limit': 201}, {'limit': -1}, {'before': 'x'}, {'before': -1}, {'limit': 2 ** 70}):
            self.assertError(self.c.error('history/list', bad), -32602)

    def test_every_session_may_read_and_remove(self):
        self.c.sh('echo mine', 'p')
        e = self.ended('p')
        other = self.srv.session()
        self.assertEqual([x['processId'] for x in self.entries(other)], ['p'])
        self.assertEqual(other.request('history/remove', {'historyId': e['historyId']}), {})
        self.assertEqual(self.entries(), [])
        for method in ('history/output', 'history/remove'):
            for bad in (e['historyId'], 0, 99, 2 ** 64 - 1):
                self.assertError(self.c.error(method, {'historyId': bad}), -32600, 'unknown history id %d' % bad)
            for bad in ({}, {'historyId': '1'}, {'historyId': -1}, {'historyId': None}):
                self.assertError(self.c.error(method, bad), -32602)

    def test_before_the_handshake_nothing_is_told(self):
        c = self.srv.connect()
        for method, params in (('history/list', {}), ('history/output', {'historyId': 1}), ('history/remove', {'historyId': 1})):
            self.assertError(c.error(method, params), -32600, 'client must call initialize before using exec methods')

    def test_a_denial(self):
        self.c.sh('touch /denied', 'ro', sandbox=read_only(), env={'PATH': '/usr/bin:/bin'})
        e = self.ended('ro')
        self.assertEqual((e['sandbox']['denied'], e['sandbox']['network']), (True, 'none'))
        self.assertEqual([d['reason'] for d in e['sandbox']['denials']], ['read_only_file_system'])

    def test_few_are_kept(self):
        c = self.server('--closed-ttl', '0', '--history', '2').session()
        for i in range(4):
            c.sh('exit 0', 'p%d' % i)
            self.ended('p%d' % i, c)
        self.assertEqual([e['processId'] for e in self.entries(c)], ['p3', 'p2'])

    def test_none_are_kept(self):
        c = self.server('--closed-ttl', '0', '--history', '0').session()
        self.assertIs(c.info['capabilities']['history'], False)
        c.sh('exit 0', 'p')
        wait_until(lambda: not c.request('process/list')['processes'], 'the end')
        self.assertEqual(c.request('history/list'), {'entries': []})
        self.assertError(c.error('history/output', {'historyId': 1}), -32600)

    def test_hostile_texts(self):
        c = self.srv.connect()
        c.initialize(name='\x1b]0;x\x07' + 'é' * 100)
        c.send({'method': 'initialized'})
        c.run(['/bin/sh', '-c', 'exit 0', 'x' * 5000, '"\n\\'], 'q"\\\n' + 'i' * 400)
        wait_until(lambda: self.entries(), 'the entry')
        e, = self.entries()
        self.assertEqual((e['clientName'], e['processId']), ('\x1b]0;x\x07' + 'é' * 61, 'q"\\\n' + 'i' * 252))
        self.assertEqual(e['argv'][:3], ['/bin/sh', '-c', 'exit 0'])

    def test_no_process_id_hides_a_process(self):
        self.c.sh('echo here', 'a\0b')
        e = self.ended('a\0b')
        self.assertEqual(self.output(e)[0]['stdout'], b'here\n')
        self.assertEqual(self.c.request('history/remove', {'historyId': e['historyId']}), {})

    def test_a_listed_process_is_removed(self):
        c = self.server('--closed-ttl', '3600').session()
        c.sh('echo x', 'done')
        c.start('runs', ['sleep', '300'])
        self.assertError(c.error('history/remove', {'processId': 'runs'}), -32600, 'process runs has not ended')
        self.assertError(c.error('history/remove', {'processId': 'none'}), -32600, 'unknown process id none')
        self.assertEqual(c.request('history/remove', {'processId': 'done'}), {})
        self.assertEqual([p['processId'] for p in c.request('process/list')['processes']], ['runs'])
        self.assertEqual(self.entries(c), [])

    def test_since(self):
        self.c.start('p', ['/bin/sh', '-c', 'echo old; read x; echo new; read x'], pipeStdin=True)
        self.c.wait_output('p', 'old')
        began = time.monotonic()
        time.sleep(1.2)  # marks are a second apart
        self.c.write('p', b'x\n')
        self.c.wait_output('p', 'new')
        age = int((time.monotonic() - began) * 1000 * 2 / 3)
        watcher = self.srv.session()
        told = watcher.request('process/attach', {'sessionId': self.c.session_id, 'processId': 'p', 'afterSeq': 0, 'maxAgeMs': age})
        self.assertEqual(told['nextSeq'], 2)
        self.c.write('p', b'x\n')
        e = self.ended('p')
        told = self.c.request('history/output', {'historyId': e['historyId'], 'maxAgeMs': 3600000})
        self.assertEqual([unb64(k['chunk']) for k in told['chunks']], [b'old\n', b'new\n'])
        told = self.c.request('history/output', {'historyId': e['historyId'], 'maxAgeMs': age})
        self.assertEqual([unb64(k['chunk']) for k in told['chunks']], [b'new\n'])
        told = self.c.request('history/output', {'historyId': e['historyId'], 'maxAgeMs': 0})
        self.assertEqual(told, {'chunks': [], 'gap': None})


@ours_only
class Commands(Case):
    def setUp(self):
        super().setUp()
        runtime = os.path.realpath(self.scratch())  # other servers of this user are not seen
        self.env = dict({k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}, PATH='/usr/bin:/bin', LC_ALL='C',
                        HOME=self.scratch(), XDG_RUNTIME_DIR=runtime, SALLYPORT_CONFIG='/dev/null')
        self.srv = self.server('--closed-ttl', '0', env={'XDG_RUNTIME_DIR': runtime})
        self.c = self.srv.session()

    def sallyport(self, *words, status=0):
        verb, *rest = words
        run = subprocess.run([PROGRAM, verb, '--server', self.srv.url, *rest], capture_output=True, timeout=wire.DEADLINE,
                             env=self.env)
        self.assertEqual(run.returncode, status, run)
        return run.stdout.decode(), run.stderr.decode()

    def end(self, script, process_id, **more):
        self.c.sh(script, process_id, **more)
        wait_until(lambda: any(e['processId'] == process_id for e in self.c.request('history/list')['entries']), process_id)

    def test_logs_after_the_end(self):
        self.end('echo one; echo two; echo bad >&2; exit 4', 'p1', name='web')
        for word in ('p1', 'web', self.c.session_id + '/p1', self.c.session_id[:8] + '/p1'):
            self.assertEqual(self.sallyport('logs', word), ('one\ntwo\n', 'bad\n'))
        self.assertEqual(self.sallyport('logs', '--tail', '2', 'web'), ('two\n', 'bad\n'))
        self.assertEqual(self.sallyport('logs', '--since', '1h', 'web')[0], 'one\ntwo\n')
        self.assertEqual(self.sallyport('logs', '--follow', 'web')[0], 'one\ntwo\n')
        lines = [json.loads(t) for t in self.sallyport('logs', '--json', 'web')[0].splitlines()]
        self.assertEqual([t['type'] for t in lines], ['output', 'output', 'exited', 'closed'])
        self.assertEqual(lines[2]['exitCode'], 4)
        self.assertIn('no such process: other', self.sallyport('logs', 'other', status=1)[1])

    def test_the_last_of_one_name(self):
        self.end('echo first', 'p1', name='web')
        self.end('echo second', 'p2', name='web')
        self.assertEqual(self.sallyport('logs', 'web')[0], 'second\n')
        self.c.start('p3', ['/bin/sh', '-c', 'echo third; sleep 300'], name='web')
        self.c.wait_output('p3', 'third')
        self.assertEqual(self.sallyport('logs', 'web')[0], 'third\n')

    def test_a_gap(self):
        self.end('head -c 100000 /dev/zero | tr "\\0" x', 'p')
        out, err = self.sallyport('logs', 'p')
        self.assertEqual(len(out), 65536)
        self.assertRegex(err, r'^sallyport: .*\(34464 bytes\) of its output (is|are) not there any more\n$')

    def test_ps(self):
        self.end('exit 3', 'gone')
        self.c.start('runs', ['sleep', '300'])
        self.assertNotIn('gone', self.sallyport('ps')[0])
        table = self.sallyport('ps', '-a')[0].splitlines()
        self.assertEqual(len(table), 3)
        self.assertRegex(table[1], r' runs +\d+ +running ')
        self.assertRegex(table[2], r' gone +\d+ +exited \(3\) ')
        told = json.loads(self.sallyport('ps', '--all', '--json')[0])
        self.assertEqual(([p['processId'] for p in told['processes']], [p['processId'] for p in told['history']]), (['runs'], ['gone']))
        self.assertEqual(set(json.loads(self.sallyport('ps', '--json')[0])), {'server', 'servers', 'processes'})

    def test_many_pages(self):
        for i in range(205):
            self.c.post_start('p%d' % i, ['/bin/true'])
        wait_until(lambda: len(self.c.request('history/list')['entries']) == 200 and not self.c.request('process/list')['processes'], 'all')
        self.assertEqual(len(self.sallyport('ps', '-a')[0].splitlines()), 206)
        self.assertEqual(len(json.loads(self.sallyport('ps', '-a', '--json')[0])['history']), 205)

    def test_wait(self):
        self.end('exit 3', 'p1', name='web')
        self.sallyport('wait', 'web', status=3)
        other = self.srv.session()
        other.start('cut', ['sleep', '300'])
        other.request('session/end')
        wait_until(lambda: len(self.c.request('history/list')['entries']) == 2, 'the entry')
        self.sallyport('wait', 'cut', 'p1', status=123)
        self.sallyport('wait', 'p1', 'web', status=3)

    def test_rm(self):
        self.end('echo x', 'p1', name='web')
        self.c.start('p2', ['sleep', '300'])
        self.assertEqual(self.sallyport('rm', 'p2', status=1)[1], 'sallyport: p2 is still running; end it first: sallyport kill p2\n')
        out, err = self.sallyport('rm', 'none', 'web', status=1)
        self.assertEqual((out, err), ('', 'sallyport: no such process: none (see `sallyport ps`)\n'))
        self.assertEqual(self.c.request('history/list'), {'entries': []})
        self.assertIn('no such process', self.sallyport('logs', 'web', status=1)[1])

    def test_rm_of_a_name_forgets_all_that_had_it(self):
        self.end('echo first', 'p1', name='web')
        self.end('echo second', 'p2', name='web')
        self.end('echo other', 'p3', name='website')
        self.assertEqual(self.sallyport('rm', 'web'), ('', ''))
        self.assertEqual([e['processId'] for e in self.c.request('history/list')['entries']], ['p3'])
        self.assertIn('no such process: web;', self.sallyport('rm', 'website', 'web', status=1)[1])

    def test_rm_of_one_that_is_still_listed(self):
        self.srv = self.server('--closed-ttl', '3600')
        self.c = self.srv.session()
        self.c.sh('echo x', 'p1')
        self.assertEqual(self.sallyport('rm', 'p1'), ('', ''))
        self.assertEqual(self.c.request('process/list')['processes'], [])


if __name__ == '__main__':
    tap.main()
