# SPDX-License-Identifier: Apache-2.0
"""Following processes of other sessions: list, attach, detach, one typist, gaps; the local socket."""

import os
import signal
import stat

import tap
from sandbox_policy import ROOT, context, restricted, unrestricted
from server import Case, Gate, ours_only
from wire import MIB, Lines, b64, unb64, wait_until


class View:
    """What a connection is told of a process that it is attached to."""

    def __init__(self, client, owner, process_id, **how):
        self.client, self.session, self.id = client, owner.session_id, process_id
        self.result = client.request('process/attach', dict(how, sessionId=self.session, processId=process_id))

    def notes(self, method=None):
        return [m['params'] for m in self.client.notes
                if m['params'].get('sessionId') == self.session and m['params']['processId'] == self.id
                and method in (None, m['method'])]

    def output(self):
        return b''.join(unb64(n['chunk']) for n in self.notes('process/output'))

    def wait_output(self, text):
        self.client.wait_for(lambda: text in self.output(), '%r in the view' % text)
        return self.output()

    def wait(self, method):
        return self.client.wait_for(lambda: self.notes(method), method)[0]

    def write(self, data, write_id):
        return self.client.request('process/write', self.place(chunk=b64(data), writeId=write_id))

    def place(self, **more):
        return dict(more, sessionId=self.session, processId=self.id)


class Observed(Case):
    def setUp(self):
        super().setUp()
        self.owner = self.session('--session-ttl', '30')
        self.watcher = self.srv.session()

    def shell(self, script, process_id='p', **more):
        return self.owner.start(process_id, ['/bin/sh', '-c', script], **more)

    def view(self, process_id='p', client=None, **how):
        return View(client or self.watcher, self.owner, process_id, **how)

    def refusal(self, method, **params):
        params = dict({'sessionId': self.owner.session_id, 'processId': 'p'}, **params)
        return self.watcher.error(method, params)


@ours_only
class Listing(Observed):
    def test_it_is_advertised(self):
        self.assertIs(self.owner.info['capabilities']['observe'], True)

    def test_all_lists_every_session(self):
        self.shell('read x', 'one', pipeStdin=True)
        self.watcher.start('two', ['sleep', '600'])
        every = self.watcher.request('process/list', {'all': True})['processes']
        self.assertEqual([(p['sessionId'], p['processId']) for p in every],
                         [(self.owner.session_id, 'one'), (self.watcher.session_id, 'two')])
        self.assertEqual(every[0]['argv'], ['/bin/sh', '-c', 'read x'])
        for params in ({}, {'all': False}, None):
            own = self.watcher.request('process/list', params)['processes']
            self.assertEqual([p['processId'] for p in own], ['two'])
            self.assertNotIn('sessionId', own[0])

    def test_a_list_of_very_many_stays_a_message(self):
        many = ['sleep', '600'] + ['0'] * 1300
        for i in range(160):
            self.owner.post_start('p%d' % i, many)
        self.owner.fence()
        wait_until(lambda: all(p['state'] != 'starting' for p in self.owner.request('process/list')['processes']),
                   'all of them')
        told = self.watcher.request('process/list', {'all': True})
        self.assertEqual(len(told['processes']) + told['omitted'], 160)
        self.assertGreater(told['omitted'], 0)
        self.assertEqual(len(self.owner.request('process/list')['processes']), 160)

    def test_bad_params_are_refused(self):
        for bad in (1, 'yes', None):
            self.assertError(self.watcher.error('process/list', {'all': bad}), -32602)


@ours_only
class Attach(Observed):
    def test_a_view_tells_the_whole_story(self):
        gate = Gate(self.srv.work)
        self.shell('echo early; %s; echo late; exit 7' % gate.wait)
        self.owner.wait_output('p', 'early\n')
        view = self.view(afterSeq=0)
        self.assertEqual(view.result, {
            'sessionId': self.owner.session_id, 'processId': 'p', 'nextSeq': 1, 'input': False, 'tty': False,
            'exited': False, 'exitCode': None, 'closed': False})
        gate.open()
        view.wait('process/closed')
        self.owner.wait_closed('p')
        want = [m for m in self.owner.notes if m['params']['processId'] == 'p']
        got = [m for m in self.watcher.notes if m['params'].pop('sessionId') == self.owner.session_id]
        self.assertEqual(got, want)

    def test_without_a_number_it_begins_now(self):
        gate = Gate(self.srv.work)
        self.shell('echo early; %s; echo late' % gate.wait)
        self.owner.wait_output('p', 'early\n')
        view = self.view()
        self.assertEqual(view.result['nextSeq'], 2)
        gate.open()
        view.wait('process/closed')
        self.assertEqual(view.output(), b'late\n')

    def test_it_begins_after_the_number(self):
        self.shell('for i in 1 2 3; do echo $i; sleep 0.05; done; read x', pipeStdin=True)
        self.owner.wait_output('p', '3\n')
        page = self.owner.read('p')
        self.assertEqual([unb64(c['chunk']) for c in page['chunks']], [b'1\n', b'2\n', b'3\n'])
        view = self.view(afterSeq=2)
        self.assertEqual(view.wait_output(b'3\n'), b'3\n')
        beyond = View(self.srv.session(), self.owner, 'p', afterSeq=1000)
        self.assertEqual(beyond.result['nextSeq'], 4)

    def test_a_closed_process_is_told_to_its_end(self):
        self.shell('echo out; exit 3')
        self.owner.wait_closed('p')
        late = self.view()
        self.assertEqual((late.result['exited'], late.result['exitCode'], late.result['closed']), (True, 3, True))
        view = self.view(afterSeq=0)  # nothing would ever have come to the first: it is over
        view.wait('process/closed')
        self.assertEqual([n['seq'] for n in view.notes()], [1, 2, 3])

    def test_many_watch(self):
        gate = Gate(self.srv.work)
        self.shell('%s; echo said; exit 1' % gate.wait)
        views = [View(self.srv.session(), self.owner, 'p') for _ in range(20)]
        gate.open()
        for view in views:
            self.assertEqual(view.wait('process/exited')['exitCode'], 1)
            self.assertEqual(view.output(), b'said\n')

    def test_an_owner_that_is_gone_is_fine(self):
        gate = Gate(self.srv.work)
        self.shell('%s; echo said' % gate.wait)
        self.owner.close()
        view = self.view()
        gate.open()
        view.wait('process/closed')
        self.assertEqual(view.output(), b'said\n')

    def test_a_start_under_way_is_waited_for(self):
        for i in range(20):
            name = 'p%d' % i
            self.owner.post_start(name, ['/bin/echo', 'hello'])
            while True:  # the session may not have seen the start yet
                asked = self.watcher.post('process/attach', {'sessionId': self.owner.session_id, 'processId': name,
                                                             'afterSeq': 0})
                reply = self.watcher.reply(asked)
                if 'result' in reply:
                    break
                self.assertError(reply['error'], -32600, 'unknown process id ' + name)
            self.watcher.wait_for(lambda: [m for m in self.watcher.notes if m['method'] == 'process/closed'
                                           and m['params']['processId'] == name], 'closed')

    def test_after_detach_nothing_comes(self):
        self.shell('while read x; do echo $x; done', pipeStdin=True)
        view = self.view()
        self.owner.write('p', b'one\n')
        view.wait_output(b'one\n')
        self.assertEqual(self.watcher.request('process/detach', view.place()), {})
        self.owner.write('p', b'two\n')
        self.owner.wait_output('p', 'two\n')
        self.watcher.fence()
        self.assertEqual(view.output(), b'one\n')
        again = self.view(afterSeq=1)
        self.assertEqual(again.wait_output(b'two\n'), b'one\ntwo\n')

    def test_detach_of_what_is_not_attached(self):
        self.shell('read x', pipeStdin=True)
        for place in ({'sessionId': self.owner.session_id, 'processId': 'p'},
                      {'sessionId': self.owner.session_id, 'processId': 'nobody'},
                      {'sessionId': 'nowhere', 'processId': 'p'}):
            self.assertEqual(self.watcher.request('process/detach', place), {})

    def test_what_is_not_there(self):
        self.shell('read x', pipeStdin=True)
        self.assertError(self.refusal('process/attach', processId='nobody'), -32600, 'unknown process id nobody')
        self.assertError(self.refusal('process/attach', sessionId='nowhere'), -32600, 'unknown session id nowhere')
        self.assertError(self.refusal('process/attach', steal=True), -32602)
        for params in ({'processId': 'p'}, {'sessionId': self.owner.session_id}, {'sessionId': 1, 'processId': 'p'}):
            self.assertError(self.watcher.error('process/attach', params), -32602)
            self.assertError(self.watcher.error('process/detach', params), -32602)
        for name, bad in (('afterSeq', -1), ('afterSeq', 'x'), ('input', 1), ('steal', 'no'), ('input', None)):
            self.assertError(self.refusal('process/attach', **{name: bad}), -32602)

    def test_once_for_a_connection(self):
        self.shell('read x', pipeStdin=True)
        self.view()
        self.assertError(self.refusal('process/attach'), -32600, 'this connection is attached to process p already')

    def test_a_process_has_64_observers(self):
        self.shell('read x', pipeStdin=True)
        views = [View(self.srv.session(), self.owner, 'p') for _ in range(64)]
        self.assertError(self.refusal('process/attach'), -32603, 'at most 64 may be attached to one process')
        views[0].client.close()
        wait_until(lambda: 'result' in self.watcher.reply(self.watcher.post(
            'process/attach', {'sessionId': self.owner.session_id, 'processId': 'p'})), 'a free place')

    def test_a_connection_follows_256_processes(self):
        for i in range(257):
            self.owner.post_start('p%d' % i, ['sleep', '600'])
        self.owner.fence()
        wait_until(lambda: all(p['state'] == 'running' for p in self.owner.request('process/list')['processes']),
                   'all of them')
        for i in range(256):
            self.view('p%d' % i)
        self.assertError(self.refusal('process/attach', processId='p256'), -32603,
                         'one connection may be attached to at most 256 processes')


@ours_only
class Input(Observed):
    SCRIPT = 'while read x; do echo "got $x"; done; echo end'

    def setUp(self):
        super().setUp()
        self.shell(self.SCRIPT, pipeStdin=True)
        self.other = self.srv.session()

    def test_one_types(self):
        first = self.view(input=True)
        self.assertTrue(first.result['input'])
        error = self.other.error('process/attach', first.place(input=True))
        self.assertError(error, -32010)
        self.assertIn('another connection types into process p', error['message'])
        watching = self.view(client=self.other)
        self.assertFalse(watching.result['input'])
        self.assertError(self.other.error('process/write', first.place(chunk=b64(b'x\n'), writeId='w')), -32010)
        self.assertError(self.other.error('process/closeStdin', first.place()), -32010)
        self.assertEqual(first.write(b'typed\n', '1'), {'status': 'accepted'})
        self.assertEqual(watching.wait_output(b'got typed\n'), b'got typed\n')

    def test_the_owner_always_may(self):
        view = self.view(input=True)
        self.assertEqual(self.owner.write('p', b'mine\n'), 'accepted')
        view.wait_output(b'got mine\n')

    def test_steal_takes_over_and_tells(self):
        first = self.view(input=True)
        second = self.view(client=self.other, input=True, steal=True)
        self.assertEqual(first.wait('process/inputLost'), {'sessionId': self.owner.session_id, 'processId': 'p'})
        self.assertError(self.watcher.error('process/write', first.place(chunk=b64(b'x\n'), writeId='w')), -32010)
        second.write(b'typed\n', '1')
        self.assertEqual(first.wait_output(b'got typed\n'), b'got typed\n')
        self.assertEqual(second.notes('process/inputLost'), [])

    def test_steal_of_what_is_free(self):
        view = self.view(input=True, steal=True)
        view.write(b'typed\n', '1')
        view.wait_output(b'got typed\n')

    def test_a_typist_that_goes_leaves_its_place(self):
        for leave in (lambda v: v.client.request('process/detach', v.place()), lambda v: v.client.close(),
                      lambda v: v.client.abort()):
            first = View(self.srv.session(), self.owner, 'p', input=True)
            leave(first)
            asked = lambda: self.other.reply(self.other.post('process/attach', first.place(input=True)))
            wait_until(lambda: 'result' in asked(), 'a free place')
            self.other.request('process/detach', first.place())

    def test_while_nobody_types_anybody_may_write(self):
        self.assertEqual(self.watcher.request('process/write', {
            'sessionId': self.owner.session_id, 'processId': 'p', 'chunk': b64(b'now\n'), 'writeId': '1'}),
            {'status': 'accepted'})
        self.owner.wait_output('p', 'got now\n')

    def test_end_of_file(self):
        view = self.view(input=True)
        self.assertEqual(self.watcher.request('process/closeStdin', view.place()), {'status': 'accepted'})
        view.wait_output(b'end\n')


@ours_only
class Size(Observed):
    SCRIPT = 'trap "stty size" WINCH; stty size; while :; do sleep 0.05; done'

    def setUp(self):
        super().setUp()
        self.shell(self.SCRIPT, tty=True, rows=30, cols=90)
        self.owner.wait_output('p', '30 90')

    def resize(self, client, rows, cols, **more):
        return client.request('process/resize', dict(more, processId='p', rows=rows, cols=cols))

    def test_the_typists_size_holds_until_it_goes(self):
        view = self.view(input=True)
        self.assertTrue(view.result['tty'])
        self.assertEqual(self.resize(self.watcher, 41, 101, sessionId=self.owner.session_id), {})
        view.wait_output(b'41 101\r\n')
        self.assertEqual(self.resize(self.owner, 50, 150), {})  # remembered
        self.resize(self.watcher, 42, 102, sessionId=self.owner.session_id)
        view.wait_output(b'42 102\r\n')
        self.assertNotIn(b'50 150', view.output())
        self.watcher.close()
        self.owner.wait_output('p', '50 150')

    def test_the_owners_size_holds_without_a_typist(self):
        self.view()
        self.resize(self.owner, 50, 150)
        self.owner.wait_output('p', '50 150')

    def test_a_watcher_has_no_say(self):
        self.view(input=True)
        other = self.srv.session()
        self.assertError(other.error('process/resize', {
            'sessionId': self.owner.session_id, 'processId': 'p', 'rows': 5, 'cols': 5}), -32010)


@ours_only
class Elsewhere(Observed):
    def place(self, **more):
        return dict({'sessionId': self.owner.session_id, 'processId': 'p'}, **more)

    def test_read(self):
        gate = Gate(self.srv.work)
        self.shell('echo one; %s; echo two' % gate.wait)
        self.owner.wait_output('p', 'one\n')
        page = self.watcher.request('process/read', self.place())
        self.assertEqual([unb64(c['chunk']) for c in page['chunks']], [b'one\n'])
        asked = self.watcher.post('process/read', self.place(afterSeq=1, waitMs=60000))
        gate.open()
        self.assertEqual(unb64(self.watcher.result(asked)['chunks'][0]['chunk']), b'two\n')

    def test_signal_and_terminate(self):
        self.shell('trap "echo trapped; exit 4" TERM; echo ready; while :; do sleep 0.05; done')
        self.owner.wait_output('p', 'ready')
        self.assertEqual(self.watcher.request('process/signal', self.place(signal='TERM')), {})
        self.assertEqual(self.owner.wait_closed('p').exit_code, 4)
        self.owner.start('q', ['sleep', '600'])
        self.assertEqual(self.watcher.request('process/terminate', self.place(processId='q')), {'running': True})
        self.assertEqual(self.owner.wait_closed('q').exit_code, 137)

    def test_the_same_id_in_two_sessions(self):
        self.shell('echo mine; read x', pipeStdin=True)
        self.watcher.start('p', ['/bin/sh', '-c', 'echo yours; read x'], pipeStdin=True)
        self.watcher.wait_output('p', 'yours\n')
        self.owner.wait_output('p', 'mine\n')
        text = lambda page: b''.join(unb64(c['chunk']) for c in page['chunks'])
        self.assertEqual(text(self.watcher.read('p')), b'yours\n')
        self.assertEqual(text(self.watcher.request('process/read', self.place())), b'mine\n')

    def test_unknown_sessions_and_processes(self):
        calls = {'read': {}, 'write': {'chunk': '', 'writeId': 'w'}, 'resize': {'rows': 1, 'cols': 1},
                 'signal': {'signal': 'TERM'}, 'terminate': {}, 'closeStdin': {}}
        for name, more in calls.items():
            place = dict(more, sessionId='nowhere', processId='p')
            self.assertError(self.watcher.error('process/' + name, place), -32600, 'unknown session id nowhere')
            self.assertError(self.watcher.error('process/' + name, dict(place, sessionId=7)), -32602)
        self.assertError(self.watcher.error('process/read', self.place()), -32600, 'unknown process id p')
        self.assertEqual(self.watcher.request('process/write', self.place(chunk='', writeId='w')),
                         {'status': 'unknownProcess'})
        self.assertEqual(self.watcher.request('process/terminate', self.place()), {'running': False})

    def test_requests_end_with_the_session_they_are_about(self):
        owner = self.server('--session-ttl', '0')
        first, watcher = owner.session(), owner.session()
        first.start('p', ['/bin/sh', '-c', 'sleep 600'], pipeStdin=True)
        first.start('q', ['/bin/sh', '-c', 'sleep 600'], pipeStdin=True)
        place = lambda name, **more: dict(more, sessionId=first.session_id, processId=name)
        view = View(watcher, first, 'q', afterSeq=0)
        asked = [watcher.post('process/read', place('p', waitMs=600000)),
                 watcher.post('process/read', place('q', waitMs=600000))]
        watcher.fence()
        for i in range(200):  # until the pipe and the queue are full, and some more
            asked.append(watcher.post('process/write', place('p', chunk=b64(b'x' * 65536), writeId=str(i))))
        watcher.fence()
        first.close()
        blocked = 0
        for request in asked:
            reply = watcher.reply(request)
            if 'error' in reply:
                blocked += 1
                self.assertError(reply['error'], -32600)
                self.assertIn('is gone: its session has ended', reply['error']['message'])
        self.assertGreaterEqual(blocked, 3)
        self.assertEqual(view.wait('process/exited')['exitCode'], -1)
        self.assertEqual(view.wait('process/closed')['seq'], 2)
        self.assertError(watcher.error('process/read', place('p')), -32600)


@ours_only
class Pressure(Observed):
    def test_a_slow_observer_holds_nobody_back_and_is_told_a_gap(self):
        slow = self.srv.session(rcvbuf=4096)
        gate = Gate(self.srv.work)
        self.shell('%s; head -c 20000000 /dev/zero; echo done' % gate.wait)
        self.owner.keep_output = self.owner.process('p').keep = False
        view = View(slow, self.owner, 'p')
        gate.open()
        story = self.owner.wait_closed('p')  # the owner reads: the command is not held back
        self.assertEqual(story.sizes['stdout'], 20000005)
        metrics = self.srv.http(path='/metrics').body.decode()
        queued = int(next(l for l in metrics.splitlines() if l.startswith('sallyport_queue_bytes ')).split()[1])
        self.assertLess(queued, MIB)
        view.wait('process/closed')
        notes = view.notes()
        told, missed_records, missed_bytes, seq = 0, 0, 0, 0
        for note in notes:
            gap = note.get('gap', {'records': 0, 'bytes': 0})
            self.assertEqual(note['seq'], seq + 1 + gap['records'])
            seq = note['seq']
            told += len(unb64(note['chunk'])) if 'chunk' in note else 0
            missed_records += gap['records']
            missed_bytes += gap['bytes']
        self.assertGreater(missed_records, 0)
        self.assertEqual(told + missed_bytes, 20000005)
        self.assertEqual(notes[-1]['seq'], story.close_seq)

    def test_what_was_forgotten_before_the_attach_is_a_gap(self):
        self.shell('head -c 3000000 /dev/zero; read x', pipeStdin=True)
        self.owner.wait_for(lambda: self.owner.process('p').sizes['stdout'] == 3000000, 'all of it')
        view = self.view(afterSeq=0)
        self.watcher.wait_for(lambda: view.notes(), 'the first note')
        first = view.notes()[0]
        self.assertEqual(first['gap']['records'], first['seq'] - 1)
        self.assertGreater(first['gap']['bytes'], 3000000 - MIB - 65536)
        other = View(self.srv.session(), self.owner, 'p', afterSeq=1)
        other.client.wait_for(lambda: other.notes(), 'the first note')
        gap = other.notes()[0]['gap']
        self.assertEqual(gap, {'records': other.notes()[0]['seq'] - 2})  # how many bytes, nobody knows

    def test_an_observer_that_never_reads_is_told_the_end(self):
        srv = self.server('--closed-ttl', '1')
        owner, slow = srv.session(), srv.session(rcvbuf=4096)
        gate = Gate(srv.work)
        owner.start('p', ['/bin/sh', '-c', '%s; head -c 5000000 /dev/zero; exit 5' % gate.wait])
        view = View(slow, owner, 'p')
        gate.open()
        owner.wait_closed('p')
        wait_until(lambda: not owner.request('process/list')['processes'], 'the end of its time')
        view.wait('process/closed')
        self.assertEqual(view.notes('process/exited')[0]['exitCode'], 5)
        seq = 0
        for note in view.notes():
            self.assertEqual(note['seq'], seq + 1 + note.get('gap', {'records': 0})['records'])
            seq = note['seq']

    def test_observers_come_and_go_during_output(self):
        self.shell('i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; read x', pipeStdin=True)
        for i in range(60):
            c = self.srv.session()
            View(c, self.owner, 'p', afterSeq=0, input=True, steal=True)
            (c.abort if i % 2 else c.close)()
        self.owner.wait_output('p', 'line 2999\n')
        self.owner.write('p', b'\n')
        self.assertEqual(self.owner.wait_closed('p').exit_code, 0)


# -------------------------------------------------------------------------------- the local socket


def where(runtime, srv):
    return os.path.join(runtime, 'sallyport', '%d.sock' % srv.pid)


@ours_only
class LocalSocket(Case):
    def setUp(self):
        super().setUp()
        self.runtime = os.path.realpath(self.scratch())
        os.chmod(self.runtime, 0o700)
        self.env = {'XDG_RUNTIME_DIR': self.runtime}

    def local(self, srv):
        return srv.client(Lines.connect(where(self.runtime, srv))).handshake()

    def test_every_server_has_one_for_its_user_alone(self):
        for how in ({}, {'listen': 'unix://' + os.path.join(self.scratch(), 's')}):
            srv = self.server(env=self.env, **how)
            path = where(self.runtime, srv)
            self.assertEqual(stat.S_IMODE(os.lstat(path).st_mode), 0o600)
            self.assertEqual(stat.S_IMODE(os.lstat(os.path.dirname(path)).st_mode), 0o700)
            owner = srv.session()
            owner.start('p', ['sleep', '600'])
            found = self.local(srv).request('process/list', {'all': True})['processes']
            self.assertEqual([p['processId'] for p in found], ['p'])
            srv.stop()
            self.assertFalse(os.path.exists(path))

    def test_a_new_server_sweeps_what_a_killed_one_left(self):
        first = self.server(env=self.env)
        path = where(self.runtime, first)
        first.stop(signal.SIGKILL, -signal.SIGKILL)
        self.assertTrue(os.path.exists(path))
        live = self.server(env=self.env)
        self.assertFalse(os.path.exists(path))
        self.server(env=self.env)
        self.local(live)

    def test_no_token_is_needed_there(self):
        token = os.path.join(self.scratch(), 'token')
        with open(token, 'w') as f:
            f.write('secret-secret-secret')
        os.chmod(token, 0o600)
        srv = self.server('--token-file', token, env=self.env)
        self.assertEqual(self.local(srv).request('process/list', {'all': True}), {'processes': []})

    def test_stdio_has_none(self):
        srv = self.server(listen='stdio', env=self.env)
        srv.lines().handshake()
        self.assertFalse(os.path.exists(where(self.runtime, srv)))

    def test_it_can_be_left_out(self):
        srv = self.server('--no-local-socket', env=self.env)
        srv.session()
        self.assertFalse(os.path.exists(where(self.runtime, srv)))

    def test_a_folder_for_others_is_not_used(self):
        os.mkdir(os.path.join(self.runtime, 'sallyport'), 0o755)
        srv = self.server(env=self.env)
        self.assertIn('no local socket', srv.stderr())
        self.assertFalse(os.path.exists(where(self.runtime, srv)))
        self.assertEqual(srv.session().request('process/list', {'all': True}), {'processes': []})

    def test_a_path_that_is_too_long_is_a_warning(self):
        long = os.path.join(self.runtime, 'x' * 100)
        os.mkdir(long, 0o700)
        srv = self.server(env={'XDG_RUNTIME_DIR': long})
        self.assertIn('no local socket', srv.stderr())
        srv.session()

    def test_a_link_in_its_place_is_not_followed(self):
        elsewhere = os.path.join(self.runtime, 'elsewhere')
        os.mkdir(elsewhere, 0o700)
        os.symlink(elsewhere, os.path.join(self.runtime, 'sallyport'))
        srv = self.server(env=self.env)
        self.assertIn('no local socket', srv.stderr())
        self.assertEqual(os.listdir(elsewhere), [])

    def test_confined_commands_do_not_reach_it(self):
        srv = self.server(env=self.env)
        path = where(self.runtime, srv)
        c = srv.session()
        script = 'ls -A %s; test -e %s && echo there; exit 0' % (self.runtime, path)
        for policy in (context(restricted([ROOT])), context(unrestricted())):
            p = c.sh(script, sandbox=policy)
            self.assertEqual((p.exit_code, p.stdout), (0, b''), p.stderr)
        self.assertEqual(c.sh(script).stdout.split(), [b'sallyport', b'there'])


if __name__ == '__main__':
    tap.main()
