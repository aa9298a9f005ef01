# SPDX-License-Identifier: Apache-2.0
"""The program as somebody who runs it sees it: flags, exit codes, logs, metrics, the end."""

import json
import os
import re
import signal
import socket
import subprocess

import tap
from server import PEER, PROGRAM, Case, ours_only, status_of
from wire import wait_until

SUB = 'exec-server' if PEER else 'serve'


def sanitizers():
    return {k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')}


class CommandLine(Case):
    def program(self, *args, **env):
        return subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              env=dict({'PATH': '/usr/bin:/bin', 'HOME': self.scratch(), **sanitizers()}, **env))

    def test_help(self):
        run = self.program(SUB, '--help')
        self.assertEqual(run.returncode, 0)
        if not PEER:
            self.assertEqual(run.stderr, b'')
        text = run.stdout.decode()
        for flag in ('--listen', '--concurrent-requests', '--ws-auth', '--ws-token-file', '--ws-token-sha256'):
            self.assertIn(flag, text)
        if not PEER:
            for flag in ('--token-file', '--no-auth', '--allow-anonymous', '--session-ttl', '--closed-ttl', '--max-processes', '--log-format'):
                self.assertIn(flag, text)

    @ours_only
    def test_the_program_alone_says_what_it_offers(self):
        run = self.program('--help')
        self.assertEqual(run.returncode, 0)
        self.assertIn(b'serve', run.stdout)
        run = self.program('--version')
        self.assertEqual(run.returncode, 0)
        self.assertRegex(run.stdout.decode(), r'[0-9]+\.[0-9]+')
        self.assertEqual(self.program('no-such-command').returncode, 2)
        self.assertEqual(self.program().returncode, 2)

    @ours_only
    def test_every_command_reads_its_options_alike(self):
        for args, says in ((['serve', '--max-connections', 'x'], '--max-connections: `x` is not a number from 1 to 1000000'),
                           (['serve', '--log-format=xml'], '--log-format: `xml` is not human or json'),
                           (['serve'] + ['--host-name', 'a'] * 17, '--host-name: at most 16 times'),
                           (['serve'] + ['--host-name', 'a', '--allow-host', 'b'] * 9, '--host-name: at most 16 times'),
                           (['serve', '--max-', '1'], 'option `--max-` may be --max-connections, --max-processes, --max-session-processes'),
                           (['mcp', '--structured-output', 'no'], '--structured-output: `no` is not auto, always or never'),
                           (['attach', 'p', '--detach-key', 'x'], '--detach-key: `x` is not a key such as C-] or C-a'),
                           (['logs'], 'which process?'),
                           (['ps', 'p'], 'unexpected argument `p`'),
                           (['doctor', '--json=x'], 'option `--json` takes no argument')):
            run = self.program(*args)
            self.assertEqual((run.returncode, run.stdout, run.stderr.decode()), (2, b'', 'sallyport: %s (see sallyport %s --help)\n' % (says, args[0])), args)

    def test_bad_flags_exit_with_2(self):
        for args in (['--no-such-flag'], ['--concurrent-requests', '0'], ['--concurrent-requests', '-1'],
                     ['--concurrent-requests', 'x'], ['--concurrent-requests', ''], ['--concurrent-requests'],
                     ['--concurrent-requests', '1.5'], ['--listen'], ['stray-word'], ['--ws-auth', 'x'],
                     ['--ws-max-clock-skew-seconds', 'x']):
            run = self.program(SUB, *args)
            self.assertEqual(run.returncode, 2, args)
            self.assertEqual(run.stdout, b'')
            self.assertTrue(run.stderr)

    @ours_only
    def test_bad_values_of_our_own_flags_exit_with_2(self):
        for args in (['--session-ttl', 'x'], ['--session-ttl', '-1'], ['--closed-ttl', ''], ['--max-processes', '0'],
                     ['--max-processes', 'many'], ['--log-format', 'xml']):
            run = self.program(SUB, *args)
            self.assertEqual(run.returncode, 2, args)
            self.assertEqual(run.stdout, b'')

    def test_flags_take_values_both_ways(self):
        srv = self.server('--concurrent-requests=3')
        self.assertEqual(srv.session().fence(), {'status': 'ready'})

    def test_unsupported_listen_urls(self):
        for url in ('', 'WS://127.0.0.1:0', 'wss://127.0.0.1:0', 'http://127.0.0.1:0', '127.0.0.1', 'stdio:', 'tcp://x', 'STDIO'):
            run = self.program(SUB, '--listen', url)
            self.assertEqual(run.returncode, 1, url)
            self.assertIn('unsupported --listen URL `%s`; expected `ws://IP:PORT`, `unix:///PATH` or `stdio`' % url, run.stderr.decode())
            self.assertEqual(run.stdout, b'')

    def test_invalid_websocket_urls(self):
        for url in ('ws://', 'ws://localhost', 'ws://127.0.0.1', 'ws://127.0.0.1:0/', 'ws://127.0.0.1:0/x', 'ws://127.0.0.1:65536',
                    'ws://127.0.0.1:', 'ws://::1:0', 'ws://127.0.0.1:x', 'ws://[::1]', 'ws://1.2.3:0', 'ws:// 127.0.0.1:0', 'ws://0127.0.0.1:0'):
            run = self.program(SUB, '--listen', url)
            self.assertEqual(run.returncode, 1, url)
            self.assertIn('invalid websocket --listen URL `%s`; expected `ws://IP:PORT`' % url, run.stderr.decode())
            self.assertEqual(run.stdout, b'')

    def test_the_default_address_is_a_free_port_on_loopback(self):
        srv = self.server()
        self.assertEqual(srv.address[0], '127.0.0.1')
        self.assertGreater(srv.address[1], 0)

    def test_ipv6_loopback(self):
        try:
            s = socket.socket(socket.AF_INET6)
            s.bind(('::1', 0))
            s.close()
        except OSError:
            self.skipTest('no IPv6 here')
        srv = self.server(listen='ws://[::1]:0')
        self.assertRegex(srv.bare_url, r'^ws://\[::1\]:[0-9]+$')
        self.assertEqual(srv.session().fence(), {'status': 'ready'})

    def test_a_port_in_use_is_an_error(self):
        s = socket.socket()
        s.bind(('127.0.0.1', 0))
        s.listen()
        run = self.program(SUB, '--listen', 'ws://127.0.0.1:%d' % s.getsockname()[1])
        s.close()
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stdout, b'')
        self.assertTrue(run.stderr)

    def test_a_fixed_port_is_free_again_after_the_end(self):
        srv = self.server()
        srv.session().fence()
        port = srv.address[1]
        srv.stop()
        again = self.server(listen='ws://127.0.0.1:%d' % port)
        self.assertEqual(again.address[1], port)


class Logs(Case):
    @ours_only
    def test_json_logs_are_one_object_a_line(self):
        text = subprocess.run([PROGRAM, 'serve', '--help'], capture_output=True, timeout=60).stdout.decode()
        args = ['--log-format', 'json']
        if '--log-level' in text:
            args += ['--log-level', 'debug']
        srv = self.server(*args)
        c = srv.session()
        c.sh('exit 1')
        c.malformed('garbage\n"\x07')
        c.send({'method': 'no/such"\n\u2028'})
        c.wait_end()
        srv.stop()
        lines = srv.last_stderr.splitlines()
        if '--log-level' in text:
            self.assertTrue(lines)
        for line in lines:
            self.assertIsInstance(json.loads(line), dict, line)

    @ours_only
    def test_quiet_by_default_and_never_on_stdout(self):
        srv = self.server()
        c = srv.session()
        c.sh('echo hi; exit 1')
        c.start_error('p', ['/no/such'])
        c.malformed('garbage')
        c.close()
        srv.stop()  # its judge looks at stdout
        self.assertLess(len(srv.last_stderr.splitlines()), 20)

    @ours_only
    def test_secrets_are_not_logged(self):
        token = os.path.join(self.scratch(), 'token')
        with open(token, 'w') as f:
            f.write('very-secret-token-of-mine')
        os.chmod(token, 0o600)
        text = subprocess.run([PROGRAM, 'serve', '--help'], capture_output=True, timeout=60).stdout.decode()
        args = ['--log-level', 'debug'] if '--log-level' in text else []
        srv = self.server('--token-file', token, *args)
        c = srv.session(headers={'Authorization': 'Bearer very-secret-token-of-mine'})
        c.sh('exit 0', env={'PATH': '/bin', 'PASSWORD': 'hunter2-hunter2'})
        srv.stop()
        self.assertNotIn('very-secret-token', srv.last_stderr)
        self.assertNotIn('hunter2', srv.last_stderr)

    @ours_only
    def test_a_closed_stderr_disturbs_nobody(self):
        srv = self.server(before_exec=lambda: os.close(2))
        c = srv.session()
        self.assertEqual(c.sh('echo out; echo err >&2').stderr, b'err\n')


@ours_only
class Metrics(Case):
    SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (-?[0-9.e+-]+|[+-]Inf|NaN)( [0-9]+)?$')

    def metrics(self):
        body = self.srv.http('GET', '/metrics').body.decode()
        self.assertTrue(body.endswith('\n'))
        samples, types = {}, {}
        for line in body.splitlines():
            if line.startswith('# TYPE '):
                name, kind = line.split()[2:]
                self.assertNotIn(name, types)
                types[name] = kind
            elif line and not line.startswith('#'):
                match = self.SAMPLE.match(line)
                self.assertTrue(match, line)
                key = (match.group(1), match.group(3) or '')
                self.assertNotIn(key, samples, 'one sample a line')
                samples[key] = float(match.group(4))
                base = re.sub('_(bucket|sum|count)$', '', match.group(1))
                self.assertTrue(match.group(1) in types or base in types, line)
                self.assertTrue(match.group(1).startswith('sallyport_') or match.group(1).startswith('process_'), line)
        return samples, types

    def value(self, samples, name, *labels):
        found = [v for (n, l), v in samples.items() if n == name and all(x in l for x in labels)]
        self.assertTrue(found, '%s %r' % (name, labels))
        return sum(found)

    def test_they_tell_what_happened(self):
        c = self.session()
        before, _types = self.metrics()
        c.sh('head -c 100000 /dev/zero')
        c.sh('exit 1')
        c.start('p', ['sleep', '1000'])
        c.start('q', ['sleep', '1000'])
        c.terminate('q')
        c.wait_closed('q')
        c.error('no/such/method')
        c.error('process/read', {'processId': 'nobody'})
        after, types = self.metrics()
        gain = lambda name, *labels: self.value(after, name, *labels) - sum(
            v for (n, l), v in before.items() if n == name and all(x in l for x in labels))
        self.assertEqual(self.value(after, 'sallyport_connections_active'), 1)
        self.assertEqual(gain('sallyport_processes_started_total'), 4)
        self.assertEqual(self.value(after, 'sallyport_processes_live'), 1)
        self.assertEqual(gain('sallyport_processes_finished_total', 'result="success"'), 1)
        self.assertEqual(gain('sallyport_processes_finished_total', 'result="error"'), 1)
        self.assertEqual(gain('sallyport_processes_finished_total', 'result="terminated"'), 1)
        self.assertEqual(gain('sallyport_requests_total', 'method="process/start"', 'result="success"'), 4)
        self.assertEqual(gain('sallyport_requests_total', 'method="process/read"', 'result="error"'), 1)
        self.assertEqual(gain('sallyport_requests_total', 'method="unknown"', 'result="error"'), 1)
        self.assertGreaterEqual(gain('sallyport_output_bytes_total'), 100000)
        self.assertGreaterEqual(gain('sallyport_request_duration_seconds_count'), 6)
        for name in ('sallyport_output_dropped_bytes_total', 'sallyport_ring_bytes', 'sallyport_queue_bytes'):
            self.value(after, name)
        self.assertEqual(types['sallyport_requests_total'], 'counter')
        self.assertEqual(types['sallyport_connections_active'], 'gauge')
        self.assertEqual(types['sallyport_request_duration_seconds'], 'histogram')

    def test_histograms_are_cumulative(self):
        c = self.session()
        for _ in range(20):
            c.fence()
        samples, _types = self.metrics()
        series = {}
        for (name, labels), value in samples.items():
            if name == 'sallyport_request_duration_seconds_bucket':
                bound = re.search(r'le="([^"]*)"', labels).group(1)
                rest = re.sub(r',?le="[^"]*"', '', labels)
                series.setdefault(rest, []).append((float('inf') if bound == '+Inf' else float(bound), value))
        self.assertTrue(series)
        for rest, points in series.items():
            points.sort()
            values = [v for _b, v in points]
            self.assertEqual(values, sorted(values), rest)
            self.assertEqual(points[-1][0], float('inf'))
            count = [v for (n, l), v in samples.items()
                     if n == 'sallyport_request_duration_seconds_count' and l.strip(',') == rest.strip(',')]
            self.assertEqual(count, [values[-1]])

    def test_names_a_client_makes_up_do_not_become_labels(self):
        c = self.session()
        for i in range(100):
            c.error('made/up%d' % i)
        samples, _types = self.metrics()
        self.assertFalse([k for k in samples if 'made' in k[1]])
        self.assertLess(len(samples), 2000)

    def test_evicted_output_is_counted_as_dropped(self):
        c = self.session()
        c.keep_output = False
        c.start('p', ['/bin/sh', '-c', 'echo $$; read x; head -c 5000000 /dev/zero'], pipeStdin=True)
        c.wait_for(lambda: c.process('p').sizes['stdout'])
        c.write('p', b'\n')
        c.close()

        def dropped():
            samples, _types = self.metrics()
            return self.value(samples, 'sallyport_output_dropped_bytes_total') > 3000000
        wait_until(dropped, 'dropped bytes')

    def test_idle_connections_are_counted(self):
        c = self.session()
        more = [self.srv.session() for _ in range(4)]
        samples, _types = self.metrics()
        self.assertEqual(self.value(samples, 'sallyport_connections_active'), 5)
        for one in more:
            one.close()
        wait_until(lambda: self.value(self.metrics()[0], 'sallyport_connections_active') == 1, 'ended connections')
        self.assertEqual(c.fence(), {'status': 'ready'})


class TheEnd(Case):
    def load(self, c):
        c.keep_output = False
        c.start('flood', ['yes'])
        c.start('tty', ['/bin/sh', '-c', 'trap "" HUP TERM; while :; do date; sleep 0.01; done'], tty=True)
        c.start('deaf', ['/bin/sh', '-c', 'trap "" HUP TERM INT; while :; do sleep 1000; done'])
        c.start('in', ['sleep', '1000'], pipeStdin=True)
        c.start('quick', ['/bin/sh', '-c', 'while :; do /bin/true; done'])
        if not PEER:
            for _ in range(150):
                c.post_write('in', b'x' * 65536)
            c.post_read('deaf', waitMs=600000)

    def test_sigterm_under_load(self):
        srv = self.server()
        clients = [srv.session() for _ in range(4)]
        for c in clients:
            self.load(c)
        for i in range(60):
            clients[0].post_start('more%d' % i, ['sleep', '1000'])
        clients[1].abort()
        srv.stop(signal.SIGTERM)

    def test_sigterm_right_after_start(self):
        for _ in range(5):
            self.server().stop()

    def test_sigterm_while_a_session_is_detached(self):
        srv = self.server()
        c = srv.session()
        self.load(c)
        c.abort()
        srv.stop()

    @ours_only
    def test_a_second_signal_does_no_harm(self):
        srv = self.server()
        self.load(srv.session())
        srv.remember()
        for _ in range(3):
            srv.popen.send_signal(signal.SIGTERM)
        self.assertEqual(srv.popen.wait(60), 0)
        srv.stop(how=None)

    @ours_only
    def test_sighup_and_sigpipe_do_not_end_it_by_accident(self):
        srv = self.server()
        os.kill(srv.pid, signal.SIGPIPE)
        self.assertEqual(srv.session().fence(), {'status': 'ready'})

    def test_connections_end_with_the_server(self):
        srv = self.server()
        c = srv.session()
        c.fence()
        srv.remember()
        srv.popen.send_signal(signal.SIGTERM)
        c.wait_end()
        self.assertEqual(srv.popen.wait(60), 0)
        srv.stop(how=None)

    @ours_only
    def test_an_idle_server_does_not_spin(self):
        srv = self.server()
        c = srv.session()
        c.start('p', ['sleep', '1000'])
        c.start('t', ['sleep', '1000'], tty=True)
        c.post_read('p', waitMs=600000)
        c.fence()

        def ticks():
            total = 0
            for pid in srv.program_pids():
                with open('/proc/%d/stat' % pid) as f:
                    fields = f.read().rsplit(')', 1)[1].split()
                total += int(fields[11]) + int(fields[12])
            return total
        before = ticks()
        other = srv.session()
        other.start('q', ['sleep', '1000'])
        other.read('q', waitMs=1000)
        self.assertLess(ticks() - before, 30, 'a hundred ticks are a second')

    @ours_only
    def test_the_server_has_few_threads_and_no_core_secrets(self):
        srv = self.server()
        srv.session().sh('exit 0')
        for pid in srv.program_pids():
            self.assertLess(int(status_of(pid)['Threads']), 16)


if __name__ == '__main__':
    tap.main()
