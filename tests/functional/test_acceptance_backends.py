# SPDX-License-Identifier: Apache-2.0
"""Acceptance cases 106 and 112 to 129: executors that are slow, lost, forgetful or
refuse; sandboxes that deny."""

import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time

import agent
import server
import wire
from agent import PYTHON, Agent, Case
from wire import wait_until

HERE = os.path.dirname(os.path.abspath(__file__))


class Story(Case):
    """An executor of the tests' own (executor.py), which tells what no real one can be made to."""

    def story(self, name, *flags):
        log = os.path.join(self.scratch(), 'log')
        a = Agent(*flags, words=[PYTHON, os.path.join(HERE, 'executor.py'), name, log])
        self.addCleanup(a.quit)

        def asked(method=None):
            with open(log) as f:
                lines = [json.loads(line) for line in f]
            return [m.get('params') for m in lines if m.get('method') == method]
        return a, asked

    def scratch(self):
        path = tempfile.mkdtemp(prefix='sallyport-agent-')
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def test_106_terminate_is_refused(self):
        a, _asked = self.story('terminate_refused')
        self.assertRunning(a.ec('x', yield_time_ms=250), 1000)
        self.assertFalse(a.ask('terminate', process=1000)['ok'])
        self.assertEqual([e['process_id'] for e in a.list()], ['1000'])
        self.assertRunning(a.ws(1000))

    def test_112_numbers_out_of_order(self):
        a, _asked = self.story('out_of_order')
        answer = a.ec('x', call_id='first', yield_time_ms=20000)
        self.assertExited(answer)
        self.assertEqual(answer.body, 'one\ntwo\nthree\n')
        self.assertEqual(a.wait_end('first')['stdout'], 'one\ntwo\nthree\n')
        self.assertEqual(b''.join(a.frames('first')), b'one\ntwo\nthree\n')

    def test_113_the_first_one_is_missing(self):
        a, asked = self.story('first_one_missing')
        answer = a.ec('x', call_id='first', yield_time_ms=20000)
        self.assertExited(answer)
        self.assertEqual(answer.structured['output'], ''.join('line %d\n' % i for i in range(1, 1025)))
        self.assertEqual([p.get('afterSeq') or 0 for p in asked('process/read')][0], 0)
        self.assertTrue(all('maxBytes' not in p or p['maxBytes'] is None for p in asked('process/read')))

    def test_116_output_after_the_exit(self):
        a, _asked = self.story('late_chunk')
        answer = a.ec('x', call_id='first', yield_time_ms=15000)
        self.assertExited(answer)
        self.assertIn('early\n', answer.body)
        self.assertLess(answer.wall, 12)
        self.assertEqual(a.wait_end('first', 12)['stdout'], 'early\nlate\n')

    def test_117_an_exit_without_a_verdict(self):
        a, asked = self.story('no_verdict', '--sandbox', 'read-only')
        answer = a.ec('x', call_id='first')
        self.assertExited(answer, 1)
        self.assertTrue(answer.line['denied'], answer)
        self.assertGreaterEqual(len(asked('process/read')), 1)

    def test_120_writes_that_are_not_accepted(self):
        for name in ('write_unknown', 'write_closed'):
            with self.subTest(name):
                a, _asked = self.story(name)
                self.assertRunning(a.ec('x', tty=True, yield_time_ms=250), 1000)
                answer = a.ws(1000, 'x', yield_time_ms=1000)
                self.assertExited(answer, -1)
        a, _asked = self.story('write_starting')
        self.assertRunning(a.ec('x', tty=True, yield_time_ms=250), 1000)
        self.assertFailed(a.ws(1000, 'x'), 'write_stdin failed: failed to write to stdin')
        self.assertEqual([e['process_id'] for e in a.list()], ['1000'])

    def test_142_an_error_in_mid_run_ends_the_process(self):
        a, asked = self.story('read_error')
        ran = a.run('x', timeout_ms=20000)
        self.assertEqual(ran.kind, 'failed')
        wait_until(lambda: asked('process/terminate'), 'process/terminate')

    def test_output_that_the_executor_dropped_is_told(self):
        a, _asked = self.story('dropped')
        answer = a.ec('x', call_id='first', yield_time_ms=20000)
        self.assertExited(answer)
        self.assertEqual(answer.body, 'first\n\n... output lost ...\nfifth\n')

    def test_an_exit_without_a_code(self):
        a, _asked = self.story('no_exit_code')
        answer = a.ec('x', call_id='first', yield_time_ms=20000)
        self.assertExited(answer, -1)
        self.assertEqual(a.wait_end('first')['exit_code'], -1)


    def test_executors_that_are_broken_or_mean(self):
        for name, code in (('garbage', None), ('wrong_types', None), ('no_base64', None), ('no_stream', None),
                           ('seq_zero', None), ('seq_huge', None), ('too_early', None), ('closed_alone', -1),
                           ('exited_twice', 3), ('after_the_close', 0), ('of_a_stranger', 0), ('dies', None),
                           ('start_refused', None), ('start_is_null', None)):
            with self.subTest(name):
                a, _asked = self.story(name, '--resume-ms', '500')
                answer = a.ec('x', call_id='first', yield_time_ms=3000)
                if answer.session is not None:
                    answer = a.ws(answer.session, yield_time_ms=5000)
                if code is not None:
                    self.assertExited(answer, code)
                self.assertTrue(answer.text)
                a.send(op='terminate_all')
                wait_until(lambda: a.reserved() == 0, 'the id back', step=0.1)
                a.quit()

    def test_a_start_that_is_never_answered(self):
        a, _asked = self.story('start_is_silent')
        call = a.ec_later('x', call_id='first', yield_time_ms=500)
        run = a.run_later('x', timeout_ms=500)
        self.assertEqual(run.wait().kind, 'timed_out')
        a.send(op='interrupt')
        self.assertIn('aborted by user', call.wait().text)
        self.assertNothingLeft(a)


# ------------------------------------------------------------------------------- lost connections


class Proxy:
    """Between the driver and a server: connections can be cut, and answers swallowed."""

    def __init__(self, address):
        self.address, self.is_deaf, self.pairs, self.is_over = address, False, [], False
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.url = 'ws://127.0.0.1:%d%s' % (self.listener.getsockname()[1], wire.query_of(address))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _peer = self.listener.accept()
                far = socket.create_connection(self.address)
            except OSError:
                return
            self.pairs.append((near, far))
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source, sink, is_back):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if not (is_back and self.is_deaf):
                    sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        pairs, self.pairs = self.pairs, []
        self.is_deaf = False
        for pair in pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                s.close()

    def stop(self):
        self.listener.close()
        self.cut()


class Lost(Case):
    backend = 'none'

    def start(self, *flags):
        srv = server.Server()
        proxy = Proxy(srv.address)
        a = Agent('--remote', proxy.url, *flags)
        self.addCleanup(srv.stop)
        self.addCleanup(proxy.stop)
        self.addCleanup(a.quit)
        return srv, proxy, a

    def test_118_lost_for_good(self):
        srv, proxy, a = self.start('--resume-ms', '1000')
        self.assertRunning(a.ec('echo permission denied; exec sleep 3000', yield_time_ms=1000, call_id='first'), 1000)
        a.wait_frames('first', b'denied\n')
        poll = a.ws_later(1000, yield_time_ms=60000)
        a.stats()
        srv.remember()
        os.kill(srv.pid, signal.SIGKILL)
        proxy.stop()
        answer = poll.wait()
        self.assertTrue(answer.failed, answer)
        self.assertTrue(answer.text.startswith('write_stdin failed: Unified exec process failed: '), answer)
        why = answer.text.split('failed: ', 2)[2]
        end = a.wait_end('first')
        self.assertEqual((end['exit_code'], end['status'], end['stderr']), (-1, 'failed', why))
        self.assertEqual(end['aggregated_output'], 'permission denied\n\n' + why)
        self.assertNothingLeft(a)
        srv.stop(how=None, status=-signal.SIGKILL)

    def test_119_lost_and_found(self):
        _srv, proxy, a = self.start()
        self.assertRunning(a.ec('stty -echo; echo READY; while read -r l; do echo "$l" >> got; echo "got $l"; done',
                                tty=True, yield_time_ms=1000, call_id='first'), 1000)
        a.wait_frames('first', b'READY')
        proxy.is_deaf = True  # the write arrives, its answer does not
        write = a.ws_later(1000, 'hello\n', yield_time_ms=8000)
        a.wait_file('got')
        proxy.cut()
        answer = write.wait()
        self.assertRunning(answer, 1000)
        self.assertEqual(answer.body.replace('READY\r\n', ''), 'got hello\r\n')
        for i in range(3):
            proxy.cut()
            self.assertEqual(a.ws(1000, 'again %d\n' % i, yield_time_ms=3000).body, 'got again %d\r\n' % i)
        self.assertEqual(a.wait_file('got'), 'hello\nagain 0\nagain 1\nagain 2\n')
        text = b''.join(a.frames('first')).decode().replace('READY\r\n', '')
        self.assertEqual(text, 'got hello\r\n' + ''.join('got again %d\r\n' % i for i in range(3)))

    def test_output_is_complete_over_many_cuts(self):
        _srv, proxy, a = self.start()
        call = a.ec_later('i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.02; '
                          'done', yield_time_ms=30000, call_id='first')
        a.wait_frames('first', b'line 0')
        for _ in range(6):
            time.sleep(0.3)
            proxy.cut()
        answer = call.wait()
        while answer.session is not None:
            answer = a.ws(1000, yield_time_ms=20000)
        end = a.wait_end('first')
        self.assertEqual(end['stdout'], ''.join('line %d\n' % i for i in range(2000)))
        self.assertEqual(b''.join(a.frames('first')).decode(), end['stdout'])


class LocalLost(Case):
    def test_a_cell_that_died(self):
        a = self.agent()
        self.assertRunning(a.ec('exec sleep 3000', yield_time_ms=250, call_id='first'), 1000)
        poll = a.ws_later(1000, yield_time_ms=60000)
        a.stats()
        cells = [p for p in server.descendants(a.pid) if b'cell' in _cmdline(p)]
        self.assertEqual(len(cells), 1)
        os.kill(cells[0], signal.SIGKILL)
        self.assertFailed(poll.wait(), 'write_stdin failed: Unified exec process failed: process cell ended')
        end = a.wait_end('first')
        self.assertEqual((end['exit_code'], end['aggregated_output']), (-1, 'process cell ended'))
        self.assertNothingLeft(a)
        self.assertExited(a.ec('true'))  # another cell is made


def _cmdline(pid):
    try:
        with open('/proc/%d/cmdline' % pid, 'rb') as f:
            return f.read()
    except OSError:
        return b''


# ---------------------------------------------------------------------------------- both kinds


class Backends:
    def test_121_the_first_failure_stays(self):
        a = self.agent()
        self.assertRunning(a.ec('exec sleep 3000', yield_time_ms=250, call_id='first'), 1000)
        poll = a.ws_later(1000, yield_time_ms=60000)
        a.stats()
        a.send(op='fail', id='one', process=1000, message='network denied')
        a.send(op='fail', id='two', process=1000, message='second')
        self.assertFailed(poll.wait(), 'write_stdin failed: Unified exec process failed: network denied')
        end = a.wait_end('first')
        self.assertEqual((end['stderr'], end['exit_code'], end['status']), ('network denied', -1, 'failed'))
        self.assertNothingLeft(a)

    def denied(self, a, command):
        """A call whose denial leads to a question. It does within 150 ms, which a busy machine may not keep."""
        for _ in range(20):
            call = a.ec_later(command)
            a.wait_for(lambda: a.questions or call.is_answered(), 'a question')
            if a.questions:
                return call, a.wait_question()
            self.assertExited(call.wait(), 1)
        raise AssertionError('nobody asked')

    def test_122_a_retry_without_a_sandbox(self):
        a = self.agent('--sandbox', 'read-only', '--approval', 'on-failure')
        call, question = self.denied(a, 'touch made')
        self.assertEqual((question['kind'], question['reason'], question['command']),
                         ('retry', 'command failed; retry without sandbox?', 'touch made'))
        self.assertFalse(os.path.exists(a.path('made')))
        a.decide(question, 'approved')
        self.assertExited(call.wait())
        self.assertTrue(os.path.exists(a.path('made')))
        call, question = self.denied(a, 'touch more')
        a.decide(question, 'denied')
        answer = call.wait()
        self.assertTrue(answer.failed)
        self.assertIn('exec command rejected by user', answer.text)
        self.assertFalse(os.path.exists(a.path('more')))
        self.assertNothingLeft(a)

    def test_124_an_exit_code(self):
        self.assertExited(self.agent().ec('exit 17'), 17)

    def test_129_a_denial_is_a_result(self):
        a = self.agent('--sandbox', 'read-only', '--approval', 'never')
        for _ in range(10):  # where a busy machine hears of the start and the end at once, no time has passed
            answer = a.ec('touch x')
            if answer.wall > 0:
                break
        self.assertExited(answer, 1)
        self.assertRegex(answer.body, 'Read-only file system|Permission denied|Operation not permitted')
        self.assertNotIn('retry', answer.body)
        self.assertNotIn('sandbox', answer.body.lower())
        self.assertGreater(answer.wall, 0)
        self.assertTrue(answer.line['denied'])
        self.assertEqual(a.questions, [])

    def test_marks_follow_the_attempt(self):
        a = self.agent('--sandbox', 'read-only', '--approval', 'on-request')
        look = 'echo "[${CODEX_SANDBOX_NETWORK_DISABLED-none}]"'
        self.assertEqual(a.ec(look).body, '[1]\n')
        call = a.ec_later(look + '; touch made', sandbox_permissions='require_escalated', justification='May I?')
        question = a.wait_question()
        self.assertEqual((question['kind'], question['reason'], question['cwd']), ('escalate', 'May I?', a.work))
        a.decide(question, 'approved')
        answer = call.wait()
        self.assertExited(answer)
        self.assertEqual(answer.body, '[none]\n')
        self.assertTrue(os.path.exists(a.path('made')))

    def test_additional_permissions_are_given_and_no_more(self):
        a = self.agent('--sandbox', 'read-only', '--approval', 'on-request', '--additional')
        for name in ('granted', 'other'):
            os.mkdir(a.path(name))
        call = a.ec_later('touch granted/x; touch other/x', sandbox_permissions='with_additional_permissions',
                          justification='May I?', additional_permissions={'file_system': {'write': [a.path('granted')]}})
        a.decide(a.wait_question(), 'approved')
        self.assertExited(call.wait(), 1)
        self.assertTrue(os.path.exists(a.path('granted/x')))
        self.assertFalse(os.path.exists(a.path('other/x')))

    def test_a_failure_without_a_message_has_the_default_one(self):
        a = self.agent()
        self.assertRunning(a.ec('exec sleep 3000', yield_time_ms=250), 1000)
        self.assertTrue(a.ask('fail', process=1000)['ok'])
        self.assertFailed(a.ws(1000), 'write_stdin failed: Unified exec process failed: Network access was denied by '
                          'the sandbox network proxy.')
        self.assertFalse(a.ask('fail', process=1000)['ok'])


class LocalBackends(Backends, Case):
    pass


class RemoteBackends(Backends, Case):
    backend = 'ws'

    def test_the_shell_is_the_executors(self):
        a = self.agent()
        answer = a.ec('echo x', shell='pwsh')
        self.assertTrue(answer.failed)
        self.assertRegex(answer.text, '^environment `main` only supports `[a-z]+`$')
        self.assertNothingLeft(a)


class Few:
    """A handful of everything, for the other ways to reach a server."""

    def test_commands_sessions_and_signals(self):
        a = self.agent()
        answer = a.ec('echo hello; exit 3')
        self.assertExited(answer, 3)
        self.assertEqual(answer.body, 'hello\n')
        self.assertRunning(a.ec('stty -echo; echo READY; cat', tty=True, yield_time_ms=300, call_id='first'), 1000)
        a.wait_frames('first', b'READY')
        self.assertIn('typed\r\n', a.ws(1000, 'typed\n', yield_time_ms=500).body)
        self.assertExited(a.ws(1000, '\u0004', yield_time_ms=20000))
        self.assertRunning(a.ec('exec sleep 3000', yield_time_ms=250), 1000)
        self.assertExited(a.ws(1000, '\u0003', yield_time_ms=20000), 130)
        self.assertNothingLeft(a)

    def test_much_output(self):
        answer = self.agent().ec('yes | head -c 3000000', yield_time_ms=30000)
        self.assertExited(answer)
        self.assertEqual(answer.tokens, 750000)

    def test_a_run(self):
        ran = self.agent().run('printf hello; printf oops >&2')
        self.assertEqual((ran.out, ran.err, ran.code), (b'hello', b'oops', 0))

    def test_nothing_runs_on(self):
        a = self.agent()
        self.assertRunning(a.ec('echo $$ > pid; exec sleep 3000', yield_time_ms=250), 1000)
        pid = int(a.wait_file('pid'))
        a.quit()
        self.assertGone(pid)


class UnixFew(Few, Case):
    backend = 'unix'


class ProgramFew(Few, Case):
    backend = 'stdio'


if __name__ == '__main__':
    agent.main()
