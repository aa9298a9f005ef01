# SPDX-License-Identifier: Apache-2.0
"""Hosts of a managed network through `sallyport mcp`: lists, rules, questions, decisions, receipts.

The hosts are servers of this file on loopback, behind names of SALLYPORT_TEST_HOSTS. `silent.test` never resolves: a
command that is refused at once shows that nobody looked it up.
"""

import json
import os
import re
import signal
import socket
import threading
import time

import server
import tap
import wire
from managed import helpers_of
from mcp_asking import DENY, ONCE, READING, RULE, SESSION, Asking, choices
from wire import wait_until

server.PROGRAM = os.path.join(os.path.dirname(server.PROGRAM), 'tests', 'sallyport-test-hosts')

CAPABLE = {'elicitation': {}}
BODY = b'hello from the server\n'


class Web:
    """Counts what it gets and gives. `/hold` is answered when the test says so."""

    def __init__(self):
        self.sock = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self.sock.getsockname()[1]
        self.connections = self.received = self.sent = 0
        self.open, self.lock = [], threading.Lock()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(c,), daemon=True).start()

    def count(self, received=0, sent=0, connections=0):
        with self.lock:
            self.received += received
            self.sent += sent
            self.connections += connections

    def talk(self, c):
        self.count(connections=1)
        head = b''
        try:
            while b'\r\n\r\n' not in head:
                data = c.recv(65536)
                if not data:
                    return
                self.count(received=len(data))
                head += data
            if head.split()[1].endswith(b'/hold'):
                with self.lock:
                    self.open.append(c)
                while c.recv(65536):
                    pass
                return
            answer = b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' % (len(BODY), BODY)
            self.count(sent=len(answer))  # before the client can see it
            c.sendall(answer)
            c.shutdown(socket.SHUT_WR)
            while c.recv(65536):
                pass
        except OSError:
            pass
        finally:
            c.close()

    def close(self):
        self.sock.close()


class Network(Asking):
    domains = '"listed.test" = "allow", "denied.test" = "deny"'

    def setUp(self):
        super().setUp()
        self.web = Web()
        self.addCleanup(self.web.close)
        names = ('listed', 'denied', 'a', 'b', 'c')
        self.table = ','.join('%s.test=127.0.0.1:%d*,%s.test:80=127.0.0.1:%d*' % (n, self.web.port, n, self.web.port)
                              for n in names) + ',silent.test=?'
        self.config()
        os.mkfifo(os.path.join(self.work, 'go'))

    def config(self, more='', top=''):
        self.configure('%s\n[permissions.net]\nextends = ":workspace"\n[permissions.net.network]\nenabled = true\n'
                       'domains = {%s}\n%s' % (top, self.domains, more))

    def begin(self, *args, approve='on-request', capabilities=CAPABLE):
        host = self.mcp('--sandbox', 'net', '--approve', approve, *args, env={'SALLYPORT_TEST_HOSTS': self.table})
        host.open(capabilities=capabilities)
        return host

    def get(self, name, path='', options=''):
        return 'curl -sS --max-time 30 %s http://%s.test/%s' % (options, name, path)

    def run_later(self, host, cmd, **more):
        return host.call_later('exec_command', {'cmd': cmd, 'login': False, 'yield_time_ms': 30000, **more})

    def run_now(self, host, cmd, **more):
        return host.result(self.run_later(host, cmd, **more))

    def reaches(self, host, name, **more):
        r = self.run_now(host, self.get(name), **more)
        self.assertEqual(r.get('exit_code'), 0, r)
        self.assertIn(BODY.decode(), r.text)
        return r

    def asked_about(self, host, name, port=80, by='http'):
        q = host.question()
        self.assertIn('\nhost: %s.test, port %d, by %s\n' % (name, port, by), q['params']['message'])
        return q

    def go(self):
        """A command that waits in `read x < go` goes on."""
        def write():
            try:
                fd = os.open(os.path.join(self.work, 'go'), os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return False  # nobody reads yet
            os.write(fd, b'x\n')
            os.close(fd)
            return True
        wait_until(write, 'a reader')

    def is_answered(self, host, id):
        host.pump(0.05)
        return json.dumps(id) in host.answers

    def rules(self):
        try:
            with open(os.path.join(self.home, 'rules', 'default.rules')) as f:
                return f.read()
        except FileNotFoundError:
            return ''

    def audit(self):
        path = [os.path.join(d, f) for d, _, files in os.walk(self.home) for f in files if f.startswith('audit')]
        lines = []
        for p in path:
            with open(p) as f:
                lines += [json.loads(line) for line in f]
        return [(line['command'][1], line['decision'], line['decided_by']) for line in lines
                if line['command'][:1] == ['network-access']]


class Lists(Network):
    def test_listed_passes_and_denied_does_not(self):
        host = self.begin()
        r = self.reaches(host, 'listed')
        self.assertEqual(r['network']['denied'], [])
        r = self.run_now(host, self.get('denied', options='-o /dev/null -w %{http_code}'))
        self.assertIn('403', r.text)
        self.assertIn('Sandbox denied: connect denied.test:80: denied.test is denied', r.text)
        (denied,) = r['network']['denied']
        self.assertEqual((denied['host'], denied['port'], denied['reason'], denied['count']), ('denied.test', 80, 'denied', 1))
        self.assertNotIn('proposed_amendment', denied)
        self.assertEqual(host.questions, [])

    def test_never_refuses_and_looks_nothing_up(self):
        host = self.begin(approve='never')
        begin = time.monotonic()
        r = self.run_now(host, self.get('silent') + ' ; echo status $?; ' + self.get('silent', options='--noproxy "*"'))
        self.assertLess(time.monotonic() - begin, 4 * wire.SCALE)
        self.assertIn('is not in the allowed_domains', r.text)
        (denied,) = r['network']['denied']
        self.assertEqual((denied['reason'], denied['count']), ('not_allowed', 2))
        self.assertEqual(denied['proposed_amendment'],
                         {'network_rule': {'host': 'silent.test', 'protocol': 'http', 'decision': 'allow'}})
        (d,) = [d for d in r['denials'] if d['layer'] == 'network']
        self.assertEqual((d['access'], d['target'], d['evidence']), ('connect', 'silent.test:80', 'proxy'))
        self.assertEqual(host.questions, [])

    def test_a_denial_offers_no_run_without_sandbox(self):
        host = self.begin(approve='on-failure')
        id = self.run_later(host, self.get('denied', options='-f'))
        r = host.result(id)
        self.assertEqual(r.get('exit_code'), 22, r)
        self.assertEqual(host.questions, [])

    def test_nobody_to_ask_is_a_refusal_and_the_command_lives(self):
        host = self.begin(capabilities={})
        r = self.run_now(host, self.get('a', options='-o /dev/null -w %{http_code}') + '; echo lives')
        self.assertIn('403lives', r.text)

    def test_variables(self):
        host = self.begin()
        r = self.run_now(host, 'env', env={'HTTPS_PROXY': 'http://evil.example', 'CODEX_SANDBOX_NETWORK_DISABLED': '1'})
        self.assertIn('HTTPS_PROXY=http://127.0.0.1:808\n', r.text)
        self.assertIn('ALL_PROXY=socks5h://127.0.0.1:808\n', r.text)
        self.assertNotIn('CODEX_SANDBOX_NETWORK_DISABLED', r.text)


class Questions(Network):
    def test_once_is_for_the_command(self):
        host = self.begin()
        id = self.run_later(host, self.get('a') + ' && ' + self.get('a'))
        q = self.asked_about(host, 'a')
        self.assertEqual([c for c, _ in choices(q['params'])], ['once', 'session', 'rule', 'deny'])
        self.assertIn('reason: a.test is not in the allowed_domains', q['params']['message'])
        self.assertIn('curl', q['params']['message'])
        self.assertEqual(self.web.connections, 0)
        host.answer(q, ONCE)
        r = host.result(id)
        self.assertEqual(r.text.count(BODY.decode()), 2, r)
        self.assertEqual(host.questions, [])
        id = self.run_later(host, self.get('a'))
        host.answer(self.asked_about(host, 'a'), ONCE)
        self.assertEqual(host.result(id).get('exit_code'), 0)
        self.assertEqual([a for a in self.audit() if a[2] == 'user'], [('http://a.test:80', 'approved', 'user')] * 2)

    def test_session_and_rule(self):
        host = self.begin()
        for name, answer in (('a', SESSION), ('b', RULE)):
            id = self.run_later(host, self.get(name))
            host.answer(self.asked_about(host, name), answer)
            self.assertEqual(host.result(id).get('exit_code'), 0)
            self.reaches(host, name)
        self.assertEqual(host.questions, [])
        self.assertEqual(self.rules().count('network_rule('), 1)
        self.assertIn('network_rule(host="b.test", protocol="http", decision="allow"', self.rules())
        other = self.begin()
        self.reaches(other, 'b')
        id = self.run_later(other, self.get('a'))
        other.answer(self.asked_about(other, 'a'), ONCE)
        self.assertEqual(other.result(id).get('exit_code'), 0)

    def test_no_ends_the_command(self):
        host = self.begin()
        id = self.run_later(host, self.get('a') + '; echo after; sleep 60')
        q = self.asked_about(host, 'a')
        time.sleep(READING)
        host.answer(q, DENY)
        r = host.result(id)
        self.assertRefused(r, 'rejected by user')
        self.assertNotIn('after', r.text)
        self.assertEqual(self.web.connections, 0)

    def test_twelve_connections_are_one_question(self):
        host = self.begin()
        id = self.run_later(host, 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do %s & done; wait' % self.get('a'))
        host.answer(self.asked_about(host, 'a'), ONCE)
        r = host.result(id)
        self.assertEqual(r.text.count(BODY.decode()), 12, r)
        self.assertEqual(host.questions, [])
        (reached,) = r['network']['reached']
        self.assertEqual((reached['host'], reached['connections']), ('a.test', 12))

    def test_two_hosts_are_asked_about_one_after_the_other(self):
        host = self.begin()
        id = self.run_later(host, '%s & %s; wait' % (self.get('a'), self.get('b')))
        seen = set()
        for _ in range(2):
            q = host.question()
            seen.add(re.search(r'host: (\w)\.test', q['params']['message']).group(1))
            self.assertEqual(host.questions, [])
            host.answer(q, ONCE)
        self.assertEqual(seen, {'a', 'b'})
        self.assertEqual(host.result(id).text.count(BODY.decode()), 2)

    def test_a_client_that_hangs_up_leaves_its_question(self):
        host = self.begin()
        id = self.run_later(host, 'curl -sS --max-time 1 http://a.test/; echo gave up; read x < go; ' + self.get('a'))
        q = self.asked_about(host, 'a')
        time.sleep(20 if tap.IS_LONG else 2)
        self.assertFalse(self.is_answered(host, id))
        host.answer(q, ONCE)
        self.go()
        r = host.result(id)
        self.assertIn('gave up\n' + BODY.decode(), r.text)
        self.assertEqual(host.questions, [])

    def test_a_question_that_nobody_answers_in_time(self):
        self.config(top='approval_timeout_s = 1')
        host = self.begin()
        id = self.run_later(host, self.get('a', options='-o /dev/null -w %{http_code}') + '; echo lives')
        self.asked_about(host, 'a')
        r = host.result(id)
        self.assertIn('403lives', r.text)
        self.assertEqual(r.get('exit_code'), 0)

    def test_a_question_after_the_call_was_answered_waits_for_a_poll(self):
        host = self.begin()
        r = self.run_now(host, 'read x < go; ' + self.get('a'), yield_time_ms=250)
        session = r['session_id']
        self.go()
        id = host.call_later('write_stdin', {'session_id': session, 'yield_time_ms': 30000})
        host.answer(self.asked_about(host, 'a'), ONCE)
        self.assertIn(BODY.decode(), host.result(id).text)

    def test_the_proxy_dies_while_its_question_is_answered(self):
        """The front reads the answer first, and cannot send the verdict: the question is not ended twice."""
        for answer in (ONCE, SESSION):
            host = self.begin()
            id = self.run_later(host, self.get('listed') + ' && ' + self.get('a'))
            q = self.asked_about(host, 'a')
            (proxy,) = helpers_of(host.process.pid, 'proxy')
            os.kill(host.process.pid, signal.SIGSTOP)
            try:
                host.answer(q, answer)
                os.kill(proxy, signal.SIGKILL)
                wait_until(lambda: not server.is_alive(proxy), 'the end of the proxy')
            finally:
                os.kill(host.process.pid, signal.SIGCONT)
            self.assertNotEqual(host.result(id).get('exit_code'), 0)
            self.reaches(host, 'listed')

    def test_the_proxy_dies_during_a_question(self):
        """77: the question is withdrawn, the command sees a reset, and its next connection asks anew."""
        host = self.begin()
        id = self.run_later(host, self.get('a', options='-o /dev/null') + ' 2>/dev/null || ' + self.get('a'))
        old = self.asked_about(host, 'a')
        (proxy,) = helpers_of(host.process.pid, 'proxy')
        os.kill(proxy, signal.SIGKILL)
        q = self.asked_about(host, 'a')
        self.assertIn(old['id'], [n['params'].get('requestId') for n in host.notifications if n['method'] == 'notifications/cancelled'])
        host.answer(q, ONCE)
        r = host.result(id)
        self.assertEqual((r.get('exit_code'), r['output']), (0, BODY.decode()))

    def test_once_ends_with_the_command(self):
        """A process that it left behind, and that holds its output open, is not asked about again."""
        host = self.begin()
        left = 'while ! test -e more; do sleep 0.02; done; %s >part; mv part told' % self.get('a', options='-o /dev/null -w %{http_code}')
        id = self.run_later(host, "%s; (setsid sh -c '%s') & while ! test -e leave; do sleep 0.02; done" % (self.get('a'), left),
                            until={'pattern': 'from the server'})
        host.answer(self.asked_about(host, 'a'), ONCE)
        session = host.result(id)['session_id']
        open(os.path.join(self.work, 'leave'), 'w').close()
        wait_until(lambda: host.sessions()[session]['state'] == 'output_held', 'the exit')
        open(os.path.join(self.work, 'more'), 'w').close()
        told = os.path.join(self.work, 'told')
        wait_until(lambda: os.path.exists(told), 'the one left behind')
        with open(told) as f:
            self.assertEqual((f.read(), host.questions), ('403', []))

    def test_once_is_not_for_the_next_command(self):
        """Its connection is accepted in one turn with an earlier one, by a proxy that has not read yet that a command began."""
        host = self.begin()
        talk = """
import os, socket, sys, time
def touch(name):
    open(name, 'w').close()
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def begin():
    s = socket.create_connection(('127.0.0.1', 808))
    s.sendall(b'GET http://a.test/ HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
    return s
def end(s):
    print(s.makefile('rb').readline().split()[1].decode())
"""
        run = lambda code: host.call_later('exec_command', {'argv': ['python3', '-c', talk + code], 'yield_time_ms': 30000})
        here = lambda name: wait_until(lambda: os.path.exists(os.path.join(self.work, name)), name)
        one = run("end(begin()); touch('allowed'); wait('stopped'); s = begin(); touch('first'); end(s); wait('over')")
        host.answer(self.asked_about(host, 'a'), ONCE)
        here('allowed')
        (proxy,) = helpers_of(host.process.pid, 'proxy')
        os.kill(proxy, signal.SIGSTOP)
        try:
            open(os.path.join(self.work, 'stopped'), 'w').close()
            here('first')
            two = run("s = begin(); touch('second'); end(s)")
            here('second')
        finally:
            os.kill(proxy, signal.SIGCONT)
        host.answer(self.asked_about(host, 'a'), ONCE)
        self.assertEqual(host.result(two)['output'], '200\n')
        open(os.path.join(self.work, 'over'), 'w').close()
        self.assertEqual((host.result(one)['output'], host.questions), ('200\n200\n', []))

    def test_ssh_is_shown_as_ssh(self):
        self.table += ',a.test:22=127.0.0.1:%d*' % self.web.port
        host = self.begin()
        id = self.run_later(host, 'curl -sS --max-time 20 --noproxy "*" telnet://a.test:22 < /dev/null')
        q = self.asked_about(host, 'a', port=22, by='ssh')
        time.sleep(READING)
        host.answer(q, DENY)
        self.assertTrue(host.result(id).failed)

    def test_a_deny_rule_ends_open_tunnels(self):
        host = self.begin()
        id = self.run_later(host, self.get('listed', 'hold', options='--max-time 60'))
        wait_until(lambda: len(self.web.open) == 1, 'the connection')
        os.makedirs(os.path.join(self.home, 'rules'), exist_ok=True)
        with open(os.path.join(self.home, 'rules', 'default.rules'), 'w') as f:
            f.write('network_rule(host="listed.test", protocol="http", decision="deny")\n')
        r = host.result(id)
        self.assertNotEqual(r.get('exit_code'), 0, r)
        r = self.run_now(host, self.get('listed', options='-o /dev/null -w %{http_code}'))
        self.assertIn('403', r.text)

    def test_a_log_that_cannot_be_written_refuses(self):
        log = os.path.join(self.home, 'log.jsonl')
        self.config(top='audit_log = "%s"' % log)
        host = self.begin()
        self.run_now(host, 'sleep 600', yield_time_ms=250)  # beside another command no verdict is kept
        get = self.get('%s', options='-o /dev/null -w "%%{http_code} "')
        id = self.run_later(host, 'read x < go; ' + '; '.join(get % n for n in ('listed', 'listed', 'a')) + '; echo lives')
        wait_until(lambda: os.path.exists(log) and 'read x' in open(log).read(), 'the command in the log')
        os.rename(log, log + '.old')
        os.mkdir(log)
        self.go()
        host.answer(self.asked_about(host, 'a'), ONCE)
        r = host.result(id)
        self.assertIn('403 403 403 lives', r.text)
        self.assertEqual(self.web.connections, 0)


# Connects to the hosts of its words; `hide` is where the other command begins to have too many descriptors.
CONNECT = '''
import os, sys, time, urllib.error, urllib.request
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def touch(name):
    open(name, 'w').close()
touch('here')
wait('there')
since = None
for word in sys.argv[1:]:
    if word == 'hide':
        touch('open')
        wait('opened')
        continue
    try:
        print(urllib.request.urlopen('http://%s.test/' % word).status)
    except urllib.error.HTTPError as e:
        print(e.code)
    since = since or time.monotonic()
print('%.3f' % (time.monotonic() - since))
touch('end')
'''
HIDE = CONNECT.split('touch(\'here\')')[0] + '''
touch('there')
wait('open')
held = [os.open('/dev/null', os.O_RDONLY) for _ in range(900)]
touch('opened')
wait('end')
'''


class Whose(Network):
    domains = '"listed.test" = "allow", "denied.test" = "deny", "c.test" = "allow"'

    def two(self, host, *words):
        """What the command that connects says, its receipt, and that of the other command, which is looked at first."""
        for name in ('here', 'there', 'open', 'opened', 'end'):
            if os.path.exists(os.path.join(self.work, name)):
                os.unlink(os.path.join(self.work, name))
        run = lambda code, *args: host.call_later('exec_command', {'argv': ['python3', '-c', code, *args], 'yield_time_ms': 30000})
        one = run(CONNECT, *words)
        wait_until(lambda: os.path.exists(os.path.join(self.work, 'here')), 'the first command')
        other = host.result(run(HIDE))
        r = host.result(one)
        self.assertEqual((r.get('exit_code'), other.get('exit_code')), (0, 0), (r, other))
        *codes, seconds = r['output'].split()
        return codes, float(seconds), r.get('network', {}), other.get('network', {})

    def test_an_unknown_process(self):
        """It reaches listed hosts, counted in every receipt; it gets no question, and is denied what the others are."""
        os.makedirs(os.path.join(self.home, 'rules'), exist_ok=True)
        with open(os.path.join(self.home, 'rules', 'default.rules'), 'w') as f:
            f.write('network_rule(host="c.test", protocol="http", decision="deny")\n')
        host = self.begin()
        codes, _, *receipts = self.two(host, 'hide', 'listed', 'a', 'denied', 'c')
        self.assertEqual((codes, host.questions), (['200', '403', '403', '403'], []))
        for r in receipts:
            self.assertEqual([(x['host'], x['connections']) for x in r['reached']], [('listed.test', 1)])
            self.assertIs(r['attributed'], False)
            self.assertEqual(r['denied'], [])
        self.assertEqual(self.web.connections, 1)

    def test_an_answer_is_kept(self):
        """For 2 s, for hosts that the lists judge alone; each question is about the command that is found now."""
        host = self.begin()
        for _ in range(20):
            codes, seconds, mine, other = self.two(host, 'listed', 'hide', 'listed', 'a')
            self.assertEqual((codes, host.questions), (['200', '200', '403'], []))
            if seconds < 1.5:
                break
        else:
            self.fail('this machine is too slow')
        self.assertEqual([(x['host'], x['connections']) for x in mine['reached']], [('listed.test', 2)])
        self.assertNotIn('attributed', mine)
        self.assertEqual(other, {})

    def test_left_behind(self):
        """A process of a command that has ended is not taken for one of the only command that lives: it gets no question,
        and does not use the answers to that one's."""
        host = self.begin()
        left = 'for n in 1 2; do while ! test -e ask-$n; do sleep 0.02; done; %s >part; mv part told-$n; done' % \
               self.get('a', options='-o /dev/null -w %{http_code}')
        r = self.run_now(host, "setsid sh -c '%s' </dev/null >/dev/null 2>&1 &" % left)
        self.assertEqual(r.get('exit_code'), 0, r)
        told = []

        def ask():
            name = os.path.join(self.work, 'told-%d' % (len(told) + 1))
            open(name.replace('told', 'ask'), 'w').close()
            wait_until(lambda: os.path.exists(name), 'the one left behind')
            with open(name) as f:
                told.append(f.read())
        id = self.run_later(host, 'touch begun; read x < go; %s; read x < go; %s' % (self.get('a'), self.get('a')))
        wait_until(lambda: os.path.exists(os.path.join(self.work, 'begun')), 'the command')
        ask()
        self.assertFalse(self.web.connections)
        self.go()
        host.answer(self.asked_about(host, 'a'), ONCE)
        wait_until(lambda: self.web.connections == 1, 'the command')
        ask()
        self.go()
        r = host.result(id)
        self.assertEqual((told, host.questions, r.get('exit_code')), (['403', '403'], [], 0))
        self.assertEqual(r.text.count(BODY.decode()), 2)
        self.assertEqual([(x['host'], x['connections']) for x in r['network']['reached']], [('a.test', 2)])

    def test_the_only_one_with_many_descriptors(self):
        """Where an earlier command has left nothing behind, no descriptor has to be found."""
        host = self.begin()
        self.assertEqual(self.run_now(host, 'true').get('exit_code'), 0)
        many = 'import os, urllib.request; held = [os.open("/dev/null", os.O_RDONLY) for _ in range(900)]; ' \
               'print(urllib.request.urlopen("http://a.test/").status)'
        id = host.call_later('exec_command', {'argv': ['python3', '-c', many], 'yield_time_ms': 30000})
        host.answer(self.asked_about(host, 'a'), ONCE)
        self.assertEqual(host.result(id)['output'], '200\n')

    def test_two_commands_at_once(self):
        """Each has its question and its receipt, also for a process that is not its child any more."""
        host = self.begin()
        fork = 'python3 -c "import os,time\nif os.fork(): os._exit(0)\nif os.fork(): os._exit(0)\nos.setsid()\n' \
               'os.execvp(\'sh\', [\'sh\', \'-c\', \'%s > out-b; echo done >> out-b\'])"; ' \
               'while ! grep -q done out-b 2>/dev/null; do sleep 0.05; done; cat out-b'
        one = self.run_later(host, self.get('a') + '; cat go')
        host.answer(self.asked_about(host, 'a'), ONCE)
        wait_until(lambda: self.web.connections == 1, 'the first command')
        two = self.run_later(host, fork % self.get('b'))
        q = self.asked_about(host, 'b')
        self.assertIn('out-b', q['params']['message'])
        host.answer(q, ONCE)
        r = host.result(two)
        self.assertIn(BODY.decode(), r.text)
        self.assertEqual([x['host'] for x in r['network']['reached']], ['b.test'])
        self.go()
        r = host.result(one)
        self.assertEqual([x['host'] for x in r['network']['reached']], ['a.test'])
        self.assertNotIn('attributed', r['network'])

    def test_a_socket_of_ipv6(self):
        """The JVM, Node and others connect to IPv4 addresses with sockets of IPv6: their command is found as well."""
        host = self.begin()
        mapped = """
import os, socket, time
open('here', 'w').close()
while not os.path.exists('there'):
    time.sleep(0.01)
s = socket.socket(socket.AF_INET6)
s.connect(('::ffff:127.0.0.1', 808))
s.sendall(b'GET http://a.test/ HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n')
print(s.makefile('rb').readline().split()[1].decode())
"""
        id = host.call_later('exec_command', {'argv': ['python3', '-c', mapped], 'yield_time_ms': 30000})
        wait_until(lambda: os.path.exists(os.path.join(self.work, 'here')), 'the first command')
        other = self.run_later(host, 'touch there; read x < go')
        host.answer(self.asked_about(host, 'a'), ONCE)
        r = host.result(id)
        self.assertEqual((r['output'], [x['host'] for x in r['network']['reached']]), ('200\n', ['a.test']))
        self.go()
        self.assertIsNone(host.result(other).get('network'))

    def test_the_end_waits_for_the_last_connection(self):
        """The proxy has not been on a processor since the command closed its connection."""
        self.table += ',listed.test:22=127.0.0.1:%d*' % self.web.port
        host = self.begin()
        id = self.run_later(host, 'bash -c \'exec 3<>/dev/tcp/listed.test/22; printf "GET / HTTP/1.0\\r\\n\\r\\n" >&3; cat <&3; '
                                  'read x < go\'')
        held = []

        def read():
            try:
                held.append(os.open(os.path.join(self.work, 'go'), os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True
        wait_until(read, 'a reader')
        (proxy,) = helpers_of(host.process.pid, 'proxy')
        os.kill(proxy, signal.SIGSTOP)
        try:
            os.write(held[0], b'x\n')
            os.close(held[0])
            time.sleep(0.3)
        finally:
            os.kill(proxy, signal.SIGCONT)
        (reached,) = host.result(id)['network']['reached']
        self.assertEqual((reached['host'], reached['connections']), ('listed.test', 1))

    def test_receipts_equal_what_the_server_saw(self):
        """The bytes of a tunnel, and of HTTP messages their bodies: heads are written anew."""
        self.table += ',listed.test:22=127.0.0.1:%d*' % self.web.port
        host = self.begin()
        raw = ('bash -c \'exec 3<>/dev/tcp/listed.test/22; printf "GET / HTTP/1.0\\r\\nX: %s\\r\\n\\r\\n" >&3; cat <&3\''
               % ('x' * 500))
        r = self.run_now(host, '; '.join([raw] * 3))
        (reached,) = r['network']['reached']
        self.assertEqual((reached['host'], reached['port'], reached['connections']), ('listed.test', 22, 3))
        self.assertEqual(self.web.connections, 3)
        self.assertEqual((reached['sent'], reached['received']), (self.web.received, self.web.sent))
        self.assertFalse(r['network']['truncated'])
        r = self.run_now(host, '; '.join([self.get('listed', options='--noproxy "*" -d 12345')] * 3))
        (reached,) = r['network']['reached']
        self.assertEqual((reached['port'], reached['connections']), (80, 3))
        self.assertEqual((reached['sent'], reached['received']), (15, 3 * len(BODY)))


class Explaining(Network):
    def test_hosts(self):
        host = self.begin()
        for text, allowed, words in (('listed.test', True, 'listed.test is allowed by the domains of the profile: listed.test'),
                                     ('denied.test:22', False, 'denied.test is denied by the domains'),
                                     ('silent.test', False, 'silent.test is not in the allowed_domains'),
                                     ('127.0.0.1:80', False, '127.0.0.1 is not a public address')):
            r = host.call('explain_denial', {'host': text})
            self.assertFalse(r.failed, r)
            self.assertEqual(r['allowed'], allowed)
            self.assertIn(words, r.text)
            self.assertEqual('What to do: ' in r.text, not allowed)
        self.assertIn('a person is asked', host.call('explain_denial', {'host': 'silent.test'}).text)
        self.assertTrue(host.call('explain_denial', {'host': 'x.test:0'}).failed)

    def test_a_session(self):
        host = self.begin(approve='never')
        r = self.run_now(host, self.get('a') + '; sleep 100', yield_time_ms=2000)
        r = host.call('explain_denial', {'session_id': r['session_id']})
        self.assertIn('connect a.test:80: a.test is not in the allowed_domains', r.text)
        self.assertIn('default.rules', r.text)


if __name__ == '__main__':
    tap.main()
