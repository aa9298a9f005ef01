# SPDX-License-Identifier: Apache-2.0
"""Everything at once, in an order that nobody chose: every call is answered once, every begin has its end, every id
and descriptor comes back."""

import hashlib
import os
import random
import time

import agent
import tap
from agent import Case
from wire import wait_until

COMMANDS = [
    'true', 'echo x; exit 3', 'sleep 0.3; echo late', 'exec sleep 100', 'cat', 'yes | head -c 400000', 'yes',
    '(sleep 0.5; echo LATE) & echo now', 'kill -9 $$', 'exec 1>&- 2>&-; sleep 0.5', 'head -c 300000 /dev/urandom',
    "trap '' INT TERM; echo deaf; sleep 1; sleep 1", 'setsid sleep 100 & exit 0', 'stty -echo; cat',
]
SEEDS = [int(s) for s in os.environ.get('AGENT_SEEDS', '1,2' if tap.IS_LONG else '1').split(',')]


class Chaos:
    def chaos(self, a, seed, steps=150):
        r = random.Random(seed)
        calls, sessions, runs, pauses = [], [1000], [], 0
        for _ in range(steps):
            what = r.random()
            if what < 0.35:
                calls.append(a.ec_later(r.choice(COMMANDS), tty=r.random() < 0.4, yield_time_ms=r.choice([1, 300, 1500]),
                                        **({'workdir': '/nonexistent'} if r.random() < 0.05 else {})))
            elif what < 0.60:
                chars = r.choice([None, None, 'x\n', '\u0003', '\u0004', 'y' * 5000 + '\n'])
                calls.append(a.ws_later(r.choice(sessions), chars, yield_time_ms=r.choice([1, 300, 6000])))
            elif what < 0.68:
                calls.append(a.later('terminate', process=r.choice(sessions)))
            elif what < 0.73:
                calls.append(a.later('signal', process=r.choice(sessions), signal=r.choice([2, 15])))
            elif what < 0.76:
                calls.append(a.later('fail', process=r.choice(sessions), message='broke a rule'))
            elif what < 0.80:
                calls.append(a.later('cancel', call=r.choice(calls).key if calls else 'none'))
            elif what < 0.82:
                a.send(op='interrupt')
            elif what < 0.84:
                a.send(op='terminate_all')
            elif what < 0.88:
                a.send(op='pause')
                pauses += 1
            elif what < 0.93:
                runs.append(a.run_later(r.choice(COMMANDS), timeout_ms=r.choice([50, 500, 3000]), events=True, whole=True))
            elif runs:
                a.send(op='run_cancel', run=r.choice(runs).key)
            if pauses and r.random() < 0.3:
                a.send(op='unpause')
                pauses -= 1
            time.sleep(r.random() * 0.04)
            for _t, e in list(a.events[-20:]):
                if 'process_id' in e and int(e['process_id']) not in sessions:
                    sessions.append(int(e['process_id']))
            del sessions[:-12]
        for _ in range(pauses):
            a.send(op='unpause')
        return calls + runs

    def settle(self, a, pending):
        a.send(op='terminate_all')
        a.send(op='interrupt')
        for p in pending:
            p.wait()
        a.send(op='terminate_all')
        wait_until(lambda: a.reserved() == 0, 'all ids free', step=0.1)
        self.assertNothingLeft(a)
        began = {e['call_id'] for e in a.events_of(kind='exec_command_begin')}
        a.wait_for(lambda: {e['call_id'] for e in a.events_of(kind='exec_command_end')} == began, 'every end')
        for call_id in began:
            kinds = a.kinds(call_id)
            self.assertEqual((kinds[0], kinds[-1]), ('exec_command_begin', 'exec_command_end'), call_id)
            self.assertEqual((kinds.count('exec_command_begin'), kinds.count('exec_command_end')), (1, 1), call_id)

    def test_nothing_is_lost_or_hung_in_any_order(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                a = self.agent()
                a.ec('true')
                before = a.stats()['fds']
                self.settle(a, self.chaos(a, seed))
                wait_until(lambda: a.stats()['fds'] <= before + 2, 'descriptors back', step=0.1)
                self.assertEqual(a.ec('echo still here').body, 'still here\n')
                self.assertEqual(a.list(), [])
                a.quit()

    def test_the_end_may_come_at_any_moment(self):
        for seed in SEEDS:
            a = self.agent()
            self.chaos(a, seed + 1000, 30)
            a.quit()

    def test_the_driver_may_die_at_any_moment(self):
        a = self.agent()
        self.chaos(a, 77, 40)
        a.abandon()
        if not self.is_remote:
            wait_until(lambda: not agent.marked(a.mark.encode()), 'end of all processes', step=0.1)

    def test_every_byte_of_much_output(self):
        a = self.agent()
        calls = [a.ec_later('yes %d | head -c 20000000' % i, yield_time_ms=30000, tty=i == 2, call_id='n%d' % i)
                 for i in range(3)]
        for i, call in enumerate(calls):
            answer = call.wait(80)
            total = answer.line['to'] - answer.line['from']
            while answer.session is not None:
                answer = a.ws(answer.session, yield_time_ms=30000)
                total += answer.line['to'] - answer.line['from']
            self.assertExited(answer)
            self.assertEqual(total, 30000000 if i == 2 else 20000000)  # a terminal says CR LF
            self.assertEqual(len(a.frames('n%d' % i)) <= 10000, True)

    def test_a_terminal_that_nobody_reads_is_full_in_the_end(self):
        a = self.agent()
        self.assertRunning(a.ec('stty raw -echo; echo READY; exec sleep 100', tty=True, yield_time_ms=250, call_id='first'))
        a.wait_frames('first', b'READY')
        answer = a.ws(1000, 'x' * 700000, yield_time_ms=250)
        self.assertRunning(answer)
        for _ in range(30):  # how much it takes is the executor's business
            answer = a.ws(1000, 'x' * 700000, yield_time_ms=250)
            if answer.failed:
                break
        if answer.failed:
            self.assertEqual(answer.text, 'write_stdin failed: failed to write to stdin')
        else:
            self.assertTrue(self.is_remote, 'a megabyte is queued here, and no more')
        self.assertTrue(a.ask('terminate', process=1000)['ok'])

    def test_much_is_typed_in_order(self):
        a = self.agent()
        self.assertRunning(a.ec('stty raw -echo; echo READY; head -c 900000 | md5sum', tty=True, yield_time_ms=250,
                                call_id='first'))
        a.wait_frames('first', b'READY')
        text = ''.join('%07d\n' % i for i in range(112500))
        pending = [a.ws_later(1000, text[i:i + 90000], yield_time_ms=250) for i in range(0, len(text), 90000)]
        answers = [p.wait() for p in pending]
        self.assertFalse(any(x.failed for x in answers), answers)
        end = a.wait_end('first')
        self.assertIn(hashlib.md5(text.encode()).hexdigest(), end['stdout'])


class LocalChaos(Chaos, Case):
    pass


class RemoteChaos(Chaos, Case):
    backend = 'ws'


if __name__ == '__main__':
    agent.main()
