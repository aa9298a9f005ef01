# SPDX-License-Identifier: Apache-2.0
"""Calls of `sallyport mcp` that become tasks: made, asked after, answered, cancelled, heard of."""

import os
import re
import shutil
import tempfile
import time

import mcp
import server
import tap
from mcp import FORM, META, TASKS
from wire import wait_until

ASKING = {**TASKS, **FORM}
TO_THE_END = {'until': {'exit': True}}
ONCE = {'action': 'accept', 'content': {'decision': 'once'}}
NEEDS_CAPABILITY, INVALID = -32021, -32602
TIME = re.compile(r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
OVER = ('completed', 'failed', 'cancelled')


def sh(script):
    return {'argv': ['sh', '-c', script], **TO_THE_END}


class Case(mcp.Case):
    def create(self, host, arguments, capabilities=TASKS, **more):
        r = host.call('exec_command', arguments, capabilities=capabilities, **more)
        self.assertEqual(r.kind, 'task', r)
        task = r.result
        self.assertEqual((task['status'], 'result' in task, 'content' in task), ('working', False, False))
        for name in ('createdAt', 'lastUpdatedAt'):
            self.assertRegex(task[name], TIME)
        self.assertGreater(task['ttlMs'], 0)
        self.assertGreater(task['pollIntervalMs'], 0)
        return task['taskId']

    def task(self, host, method, id, capabilities=TASKS, **more):
        return host.modern('tasks/' + method, {'taskId': id, **more}, capabilities)

    def get(self, host, id, **more):
        answer = self.task(host, 'get', id, **more)
        self.assertEqual(answer['result']['resultType'], 'complete', answer)
        self.assertEqual(answer['result']['taskId'], id)
        return answer['result']

    def becomes(self, host, id, *states):
        found = []

        def look():
            found[:] = [self.get(host, id)]
            return found[0]['status'] in states
        wait_until(look, 'the task to be ' + ' or '.join(states), step=0.05)
        return found[0]

    def completed(self, host, id):
        task = self.becomes(host, id, *OVER)
        self.assertEqual(task['status'], 'completed', task)
        return mcp.Result({'result': task['result']})

    def at(self, name):
        return os.path.join(self.work, name)

    def gate(self):
        """sh code that waits until the test makes a file."""
        return 'while [ ! -e go ]; do sleep 0.05; done'

    def open_gate(self):
        open(self.at('go'), 'w').close()


class Tasks(Case):
    # -- a life

    def test_created_and_found_and_completed(self):
        host = self.mcp()
        id = self.create(host, sh(self.gate() + '; echo over; exit 3'))
        task = self.get(host, id)
        self.assertEqual((task['status'], 'result' in task, 'error' in task), ('working', False, False))
        self.open_gate()
        r = self.completed(host, id)
        self.assertEqual((r.failed, r['exit_code'], r['output'], r['state']), (False, 3, 'over\n', 'exited'))
        self.assertIn('Process exited with code 3', r.text)
        self.assertEqual(self.get(host, id), self.get(host, id))  # for as long as it is kept

    def test_found_right_after_it_was_created(self):
        host = self.mcp()
        for _ in range(20):
            id = self.create(host, sh('true'))
            self.assertIn(self.get(host, id)['status'], ('working', 'completed'))
            self.assertEqual(self.completed(host, id)['exit_code'], 0)

    def test_what_fails_in_the_tool_is_completed_too(self):
        host = self.mcp()
        r = host.call('exec_command', {'argv': ['/site/no/such/program'], **TO_THE_END}, capabilities=TASKS)
        if r.kind == 'task':
            r = self.completed(host, r.result['taskId'])
        self.assertTrue(r.failed or r.get('exit_code') not in (0, None), r)

    def test_output_that_is_held_open(self):
        """It is over when its process is; who still has its output is named."""
        host = self.mcp()
        r = self.completed(host, self.create(host, sh('(%s) & echo first' % self.gate())))
        self.assertEqual((r['exit_code'], r['output'], r['state']), (0, 'first\n', 'output_held'))
        self.assertTrue(r['holders'], r)
        self.open_gate()

    def test_it_can_be_typed_to_meanwhile(self):
        host = self.mcp()
        id = self.create(host, {'argv': ['sh', '-c', 'read x; echo "got $x"'], 'tty': True, **TO_THE_END})
        session = int(self.get(host, id)['statusMessage'].split()[-1])
        self.assertIn(session, [s['session_id'] for s in host.call('list_sessions')['sessions']])
        host.type(session, 'word\n')
        self.completed(host, id)

    # -- who gets one

    def test_who_did_not_say_so_gets_none(self):
        host = self.mcp()
        for capabilities in (None, FORM, {'extensions': {}}, {'extensions': {'other': {}}},
                             {'extensions': {META + 'tasks': None}}, {'tasks': {}}):
            r = host.call('exec_command', sh('echo plain'), capabilities=capabilities)
            self.assertEqual((r.kind, r.get('output')), ('complete', 'plain\n'), (capabilities, r))
        self.create(host, sh('true'))
        self.assertEqual(host.call('exec_command', sh('true')).kind, 'complete')  # that one said nothing
        host.open('2025-11-25')
        self.assertNotIn('taskId', host.call('exec_command', sh('true')).result)

    def test_calls_that_are_none(self):
        host = self.mcp()
        plain = {'argv': ['true']}
        for arguments in (plain, {**plain, 'until': [{'exit': True}, {'quiet_ms': 100}]},
                          {**plain, 'until': {'quiet_ms': 100}}, {**plain, **TO_THE_END, 'yield_time_ms': 1000}):
            r = host.call('exec_command', arguments, capabilities=TASKS)
            self.assertEqual(r.kind, 'complete', (arguments, r))
        self.assertEqual(host.call('list_sessions', capabilities=TASKS).kind, 'complete')

    def test_methods_need_the_capability(self):
        host = self.mcp()
        id = self.create(host, sh(self.gate()))
        for method, more in (('get', {}), ('update', {'inputResponses': {}}), ('cancel', {})):
            answer = self.task(host, method, id, capabilities={}, **more)
            self.assertEqual(answer['error']['code'], NEEDS_CAPABILITY, answer)
            self.assertIn(META + 'tasks', answer['error']['data']['requiredCapabilities']['extensions'])
        self.assertEqual(self.get(host, id)['status'], 'working')
        answer = host.modern('subscriptions/listen', {'notifications': {'taskIds': [id]}}, {})
        self.assertEqual(answer['error']['code'], NEEDS_CAPABILITY, answer)

    def test_ids_that_are_none(self):
        host = self.mcp()
        id = self.create(host, sh(self.gate()))
        for wrong in ('', 'task-', 'task-0', 'task-999', id + '0', ' ' + id, id + '\0', id.upper(), 'task-0' + id[5:],
                      'task-+1', 'task-18446744073709551617', 'x' * 5000, 'tåsk-1'):
            for method, more in (('get', {}), ('update', {'inputResponses': {}}), ('cancel', {})):
                answer = self.task(host, method, wrong, **more)
                self.assertEqual(answer['error']['code'], INVALID, (wrong, answer))
        for wrong in (7, None, [id], {}):
            self.assertEqual(self.task(host, 'get', wrong)['error']['code'], INVALID, wrong)
        self.assertEqual(host.modern('tasks/get', {}, TASKS)['error']['code'], INVALID)
        for wrong in (None, [], 'x'):
            self.assertEqual(self.task(host, 'update', id, inputResponses=wrong)['error']['code'], INVALID, wrong)
        self.assertEqual(self.get(host, id)['status'], 'working')

    def test_another_callers_task(self):
        one, two = self.http(tokens=('one-of-sixteen-characters', 'two-of-sixteen-characters'))
        id = self.create(one, sh(self.gate() + '; echo mine'))
        for method, more in (('get', {}), ('update', {'inputResponses': {'approve_1': ONCE}}), ('cancel', {})):
            self.assertEqual(self.task(two, method, id, **more)['error']['code'], INVALID)
        self.assertEqual(self.get(one, id)['status'], 'working')
        listening = self.listen(two, id)
        self.assertEqual(two.notifications[0]['params']['notifications'], {'taskIds': []})
        self.open_gate()
        self.assertEqual(self.completed(one, id)['output'], 'mine\n')
        self.assertEqual(len(two.notifications), 1)
        one.process.terminate()
        self.assertEqual(two.wait(listening)['result']['resultType'], 'complete')

    # -- cancelling

    def test_cancelled(self):
        host = self.mcp()
        id = self.create(host, sh('echo $$ > pid; exec sleep 1000'))
        wait_until(lambda: os.path.exists(self.at('pid')) and os.path.getsize(self.at('pid')), 'its start')
        session = int(self.get(host, id)['statusMessage'].split()[-1])
        answer = self.task(host, 'cancel', id)
        self.assertEqual({k for k in answer['result'] if k != '_meta'}, {'resultType'}, answer)
        task = self.becomes(host, id, *OVER)
        self.assertEqual((task['status'], 'result' in task), ('cancelled', False))
        wait_until(lambda: [s['state'] for s in host.call('list_sessions')['sessions'] if s['session_id'] == session]
                   in ([], ['exited']), 'the end of its process', step=0.1)
        self.assertIn('result', self.task(host, 'cancel', id))  # twice
        self.assertEqual(self.get(host, id)['status'], 'cancelled')

    def test_cancelling_races_with_its_end(self):
        """Whichever comes first: it stays what it became, and nothing is answered twice."""
        host = self.mcp()
        seen = set()
        for n in range(40):
            id = self.create(host, sh('sleep %.3f' % (0.15 + 0.005 * (n % 10))))
            time.sleep(0.005 * (n % 7))
            asked = [host.post(host.request('tasks/' + m, {'taskId': id, '_meta': mcp.meta(TASKS)}))
                     for m in ('get', 'cancel', 'get', 'cancel')]
            answers = [host.wait(a)['result'] for a in asked]
            after = answers[2]['status']
            self.assertIn(after, ('completed', 'cancelled'))
            if answers[0]['status'] == 'completed':
                self.assertEqual(after, 'completed')
            self.assertEqual(self.get(host, id)['status'], after)
            seen.add(after)
        id = self.create(host, sh('exec sleep 1000'))
        self.task(host, 'cancel', id)
        self.assertEqual((self.get(host, id)['status'], len(seen) > 0), ('cancelled', True))

    def test_cancelled_is_for_calls_alone(self):
        """notifications/cancelled of the call that made a task is too late for it."""
        host = self.mcp()
        call = host.call_later('exec_command', sh(self.gate() + '; echo over'), capabilities=TASKS)
        r = host.result(call)
        host.notify('notifications/cancelled', {'requestId': call})
        self.open_gate()
        self.assertEqual(self.completed(host, r.result['taskId'])['output'], 'over\n')

    # -- time

    def test_it_goes_when_its_time_is_over(self):
        host = self.mcp('--set', 'exited_ttl_s=4')
        id = self.create(host, sh('true'))
        self.completed(host, id)
        wait_until(lambda: 'error' in self.task(host, 'get', id), 'the end of its time', step=0.1)
        self.assertEqual(self.task(host, 'get', id)['error']['code'], INVALID)
        other = self.create(host, sh('exec sleep 1000'))
        time.sleep(5)
        self.assertEqual(self.get(host, other)['status'], 'working')  # while it lives, it stays
        self.assertNotEqual(id, other)

    def test_there_are_only_so_many(self):
        """The oldest that ended go first; ids are not used again."""
        host = self.mcp()
        ids = [self.create(host, sh('true')) for _ in range(3)]
        for id in ids:
            self.completed(host, id)
        for n in range(0, 255, 5):
            calls = [host.call_later('exec_command', sh('true'), capabilities=TASKS) for _ in range(5)]
            more = [host.result(c).result['taskId'] for c in calls]
            self.assertFalse(set(ids) & set(more))
            ids += more
            self.completed(host, more[-1])
        self.assertIn('error', self.task(host, 'get', ids[0]))
        self.assertEqual(self.get(host, ids[-1])['taskId'], ids[-1])

    # -- questions

    def begin_asking(self):
        self.beside = tempfile.mkdtemp(prefix='sallyport-mcp-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, self.beside, True)
        return self.mcp('--approve', 'on-failure')

    def denied(self):
        return sh('echo try >> ran; echo said; touch %s/made' % self.beside)

    def runs(self):
        with open(self.at('ran')) as f:
            return f.read().count('try')

    def ask(self, host, arguments, capabilities=ASKING):
        """The key and the state of a question that comes before there is a task."""
        r = host.call('exec_command', arguments, capabilities=capabilities)
        self.assertEqual(r.kind, 'input_required', r)
        self.assertNotIn('taskId', r.result)
        (key,) = r.result['inputRequests']
        return key, r.result['requestState']

    def test_a_start_that_was_denied_is_asked_about_by_the_call(self):
        host = self.begin_asking()
        key, state = self.ask(host, self.denied())
        self.assertEqual(self.runs(), 1)
        id = self.create(host, self.denied(), ASKING, state=state, responses={key: ONCE})
        self.assertEqual((self.completed(host, id)['exit_code'], self.runs()), (0, 2))
        self.assertTrue(os.path.exists(self.beside + '/made'))

    def test_what_is_refused_is_no_task(self):
        host = self.begin_asking()
        for answer, text in (({'action': 'accept', 'content': {'decision': 'deny'}}, 'rejected by user'), ({'action': 'cancel'}, 'no person answered')):
            key, state = self.ask(host, self.denied())
            r = host.call('exec_command', self.denied(), capabilities=ASKING, state=state, responses={key: answer})
            self.assertEqual((r.kind, r.failed), ('complete', True), r)
            self.assertIn(text, r.text)
        self.assertEqual(self.runs(), 2)
        self.assertFalse(os.path.exists(self.beside + '/made'))

    def test_answers_that_nobody_asked_for(self):
        host = self.mcp()
        id = self.create(host, sh(self.gate() + '; echo over'), ASKING)
        for responses in ({}, {'approve_0': ONCE, 'approve_1': ONCE}, {'x': 7}, {'approve_1': {'action': 'cancel'}}):
            answer = self.task(host, 'update', id, inputResponses=responses)
            self.assertEqual({k for k in answer['result'] if k != '_meta'}, {'resultType'}, answer)
            self.assertEqual(self.get(host, id)['status'], 'working')
        self.open_gate()
        self.assertEqual(self.completed(host, id)['output'], 'over\n')
        self.assertIn('result', self.task(host, 'update', id, inputResponses={'approve_1': ONCE}))

    def test_nobody_can_be_asked(self):
        host = self.begin_asking()
        r = self.completed(host, self.create(host, self.denied()))
        self.assertEqual((r['exit_code'], self.runs()), (1, 1))
        self.assertIn('said', r['output'])

    def test_asked_before_it_starts(self):
        """That is asked by the call; what comes back becomes the task."""
        host = self.mcp('--approve', 'untrusted')
        arguments = sh('echo try >> ran')
        key, state = self.ask(host, arguments)
        self.assertFalse(os.path.exists(self.at('ran')))
        id = self.create(host, arguments, ASKING, state=state, responses={key: ONCE})
        self.assertEqual(self.completed(host, id)['exit_code'], 0)
        self.assertEqual(self.runs(), 1)

    def test_who_comes_back_and_knows_no_tasks_gets_none(self):
        host = self.mcp('--approve', 'untrusted')
        arguments = sh('echo try >> ran')
        for asks, returns in ((ASKING, FORM), (FORM, ASKING)):
            key, state = self.ask(host, arguments, asks)
            r = host.call('exec_command', arguments, capabilities=returns, state=state, responses={key: ONCE})
            if returns == FORM:
                self.assertEqual((r.kind, r.get('exit_code')), ('complete', 0), r)
            elif r.kind == 'task':
                self.completed(host, r.result['taskId'])
        self.assertEqual(self.runs(), 2)

    # -- hearing of them

    def listen(self, host, *ids):
        id = host.post(host.request('subscriptions/listen', {'notifications': {'taskIds': list(ids)},
                                                             '_meta': mcp.meta(ASKING)}))
        host.until(lambda: self.notes(host, 'notifications/subscriptions/acknowledged', id), 'the acknowledgement')
        return id

    def notes(self, host, method, id):
        return [n['params'] for n in host.notifications
                if n['method'] == method and n['params']['_meta'][META + 'subscriptionId'] == id]

    def heard(self, host, id):
        return self.notes(host, 'notifications/tasks', id)

    def test_heard_of(self):
        host = self.mcp()
        task = self.create(host, sh(self.gate() + '; echo over'))
        deaf = self.create(host, sh('true'))
        stopped = self.create(host, sh('exec sleep 1000'))
        id = self.listen(host, task, 'task-999', task, stopped)
        self.assertEqual(self.notes(host, 'notifications/subscriptions/acknowledged', id)[0]['notifications'],
                         {'taskIds': [task, stopped]})
        self.completed(host, deaf)
        self.assertEqual(self.heard(host, id), [])
        self.open_gate()
        host.until(lambda: self.heard(host, id), 'its end')
        self.task(host, 'cancel', stopped)
        host.until(lambda: len(self.heard(host, id)) == 2, 'the end of the other')
        over, other = self.heard(host, id)
        self.assertEqual((over['taskId'], over['status'], over['result']['structuredContent']['output']),
                         (task, 'completed', 'over\n'))
        self.assertEqual((other['taskId'], other['status']), (stopped, 'cancelled'))
        self.assertEqual({k: v for k, v in over.items() if k != '_meta'},
                         {k: v for k, v in self.get(host, task).items() if k not in ('_meta', 'resultType')})
        host.notify('notifications/cancelled', {'requestId': id})
        self.assertIn('result', host.modern('server/discover'))
        self.assertNotIn(str(id), host.answers)

    def test_what_was_over_before_is_told(self):
        host = self.mcp()
        task = self.create(host, sh('echo over'))
        self.completed(host, task)
        id = self.listen(host, task)
        host.until(lambda: self.heard(host, id), 'what is over')
        self.assertEqual(self.heard(host, id)[0]['status'], 'completed')

    def test_over_http(self):
        host = self.http()
        task = self.create(host, sh(self.gate() + '; echo over'))
        self.assertEqual(self.get(host, task)['status'], 'working')
        id = self.listen(host, task)
        self.open_gate()
        host.until(lambda: self.heard(host, id), 'its end')
        self.assertEqual(self.heard(host, id)[-1]['result']['structuredContent']['output'], 'over\n')
        host.process.terminate()
        self.assertEqual(host.wait(id)['result']['resultType'], 'complete')


class Elsewhere(Case, server.Case):
    def setUp(self):
        server.Case.setUp(self)
        Case.setUp(self)

    def test_on_a_server(self):
        remote = self.server()
        host = self.mcp('--on', remote.url, '--cwd', remote.work)
        id = self.create(host, sh('echo one; sleep 0.5; echo two'))
        self.assertEqual(self.completed(host, id)['output'], 'one\ntwo\n')
        id = self.create(host, sh('exec sleep 1000'))
        self.task(host, 'cancel', id)
        self.assertEqual(self.get(host, id)['status'], 'cancelled')
        wait_until(lambda: {s['state'] for s in host.call('list_sessions')['sessions']} <= {'exited'}, 'its end', step=0.1)


if __name__ == '__main__':
    tap.main()
