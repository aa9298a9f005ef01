# SPDX-License-Identifier: Apache-2.0
"""The remote backend through connections that break: at every message of a scripted run, in either direction, before
it, inside it and after it; twice in a run; while the session is being resumed; for a while, and for good.

However it breaks, every process is started once, every byte is told once and in order, what is typed arrives once, exit
codes are those of the processes; or a call fails, and says that the connection was lost. An interrupt is not repeated
by the client, since a second one may mean something else: it is the only call that a cut may fail. A process that is
terminated counts as exited when the server says so; if its code is lost for a tenth of a second, it stays unknown."""

import concurrent.futures
import os
import random
import re
import signal
import time

import agent
import chaos
import server
import tap
import wire
from agent import Agent, Case
from chaos import AFTER, BEFORE, DOWN, INSIDE, UP, Cut, Proxy

AT_ONCE = int(os.environ.get('CHAOS_AT_ONCE', '20'))  # runs: they mostly wait
agent.PEER = None  # always our own server: the reference's never ends a start whose connection is cut
SEED = 20260714
LOST = r'connection|server ws://'
RESUME = ('--resume-ms', str(int(25000 * wire.SCALE)))
WAIT = int(20000 * max(1, wire.SCALE))  # ms that a call may take; what it waits for comes long before

# Each leaves a line in a file when it starts, so that a second start is seen.
LINES = ('''echo >>lines; for i in 1 2 3; do echo out-$i; echo err-$i >&2; sleep 0.1; done; '''
         '''printf 'no newline'; exit 7''')
TYPED = ('''echo >>typed; stty -echo; echo ready; while read -r x; do echo $x >>tokens; echo "<$x>"; '''
         '''[ $x = three ] && stty size; [ $x = bye ] && exit 9; done''')
SIGNALS = ('''echo >>signals; trap '' USR1; sleep 100 >/dev/null 2>&1 & trap 'echo usr1' USR1; '''
           '''trap 'kill $!; echo int; exit 5' INT; echo armed; while :; do wait $!; done''')
LASTING = 'echo >>lasting; echo up; exec sleep 100'
SHOT = 'echo >>shot; echo shot-out; sleep 0.05; echo shot-err >&2; exit 6'

TRANSCRIPTS = {
    'typed': 'ready\r\n<one>\r\n<two>\r\n<three>\r\n40 100\r\n<bye>\r\n',
    'lasting': 'up\n',
}


class Broken(AssertionError):
    """What a run got is not what it should have."""


def check(condition, *what):
    if not condition:
        raise Broken(': '.join(map(str, what)))


class Run:
    """The script, for one driver whose connection goes through a proxy."""

    def __init__(self, proxy, *flags):
        self.proxy = proxy
        self.agent = Agent('--remote', proxy.url(), *(flags or RESUME))
        self.said, self.codes = {}, {}  # by call id: the bodies of all answers, the exit code

    # -- steps

    def take(self, call_id, answer):
        check(not answer.failed, call_id, answer.text)
        self.said[call_id] = self.said.get(call_id, '') + answer.body
        return answer

    def start(self, call_id, cmd, **how):
        answer = self.take(call_id, self.agent.ec(cmd, call_id=call_id, yield_time_ms=250, **how))
        check(answer.session is not None, call_id, 'is over', answer)
        return answer.session

    def start_lines(self):
        """Normally it takes longer than its first call; a cut and a slow machine may take longer still."""
        answer = self.take('lines', self.agent.ec(LINES, call_id='lines', yield_time_ms=250))
        check(answer.code in (None, 7), 'lines', answer)
        return answer.session

    def until_exit(self, call_id, session, code):
        """Polls until it has ended."""
        if session is not None:
            answer = self.take(call_id, self.agent.ws(session, yield_time_ms=WAIT))
            check(answer.code == code, call_id, 'code %r' % answer.code, answer)

    def type(self, session, token):
        answer = self.take('typed', self.agent.ws(session, token + '\n'))
        check(answer.session == session, 'typed', answer)

    def play(self):
        """All of it."""
        lines = self.start_lines()
        typed = self.start('typed', TYPED, tty=True)
        self.agent.wait_frames('typed', b'ready')
        self.type(typed, 'one')
        self.until_exit('lines', lines, 7)
        self.type(typed, 'two')
        self.signals()
        check(self.agent.ask('resize', process=typed, rows=40, cols=100)['ok'], 'resize', 'false')
        self.type(typed, 'three')
        shot = self.agent.run_later(SHOT)
        lasting = self.start('lasting', LASTING)
        self.agent.wait_frames('lasting', b'up')
        self.end_of_typing(typed)
        check(self.agent.ask('terminate', process=lasting)['ok'], 'terminate', 'false')
        self.check_shot(shot.wait())
        self.check_all()

    def end_of_typing(self, session):
        answer = self.take('typed', self.agent.ws(session, 'bye\n', yield_time_ms=WAIT))
        check(answer.code == 9, 'typed', answer)

    def signals(self):
        """USR1 is counted; INT is the end. Either may be lost with its connection, and is told so."""
        session = self.start('signals', SIGNALS)
        self.agent.wait_frames('signals', b'armed')
        self.usr1 = self.agent.ask('signal', process=session, signal=signal.SIGUSR1)['ok']
        if self.usr1:
            self.agent.wait_frames('signals', b'usr1')
        answer = self.agent.ws(session, '\x03', yield_time_ms=WAIT)
        for _ in self.proxy.cuts:
            if answer.failed:
                check(re.search(LOST, answer.text), 'interrupt', answer)
                answer = self.agent.ws(session, '\x03', yield_time_ms=WAIT)
        self.take('signals', answer)
        check(answer.code == 5, 'signals', answer)

    # -- what came of it

    def check_shot(self, ran):
        check((ran.kind, ran.code) == ('exited', 6), 'shot', ran)
        check((ran.out, ran.err) == (b'shot-out\n', b'shot-err\n'), 'shot', ran.out, ran.err)

    def count(self, name):
        try:
            with open(self.agent.path(name)) as f:
                return f.read()
        except OSError:
            return None

    def check_process(self, call_id, *codes):
        """Events and answers tell the same, and the end its code. Returns what they tell."""
        end = self.agent.wait_end(call_id)
        text = end['aggregated_output']
        check(end['exit_code'] in codes, call_id, 'exit code', end)
        self.codes[call_id] = end['exit_code']
        deltas = b''.join(self.agent.frames(call_id)).decode()
        check(deltas == text, call_id, 'deltas', deltas, text)
        check(self.agent.kinds(call_id).count('exec_command_end') == 1, call_id, self.agent.kinds(call_id))
        check(self.count(call_id) == '\n', call_id, 'starts', self.count(call_id))
        if call_id != 'lasting':  # that one was terminated, and nobody asked again
            check(self.said[call_id] == text, call_id, 'answers', self.said[call_id], text)
        return text

    def check_lines(self, text):
        """Two streams; which of them is read first, when both have something, nobody knows."""
        check(text.count('no newline') == 1, 'lines', text)
        lines = text.replace('no newline', '').split('\n')
        for kind in ('out', 'err'):
            check([x for x in lines if x.startswith(kind)] == ['%s-%d' % (kind, i) for i in (1, 2, 3)], 'lines', text)
        check(len(lines) == 7 and lines[-1] == '', 'lines', text)
        check(text.index('out-3') < text.index('no newline'), 'lines', text)

    def check_all(self):
        self.check_lines(self.check_process('lines', 7))
        text = self.check_process('signals', 5)
        check(text == 'armed\nusr1\nint\n' or (not self.usr1 and text == 'armed\nint\n'), 'signals', text)
        check(self.check_process('typed', 9) == TRANSCRIPTS['typed'], 'typed', self.said['typed'])
        check(self.count('tokens') == 'one\ntwo\nthree\nbye\n', 'typed', self.count('tokens'))
        check(self.check_process('lasting', 137, -1) == TRANSCRIPTS['lasting'], 'lasting')
        check(self.count('shot') == '\n', 'shot', 'starts', self.count('shot'))
        stats = self.agent.stats()
        check((stats['reserved'], stats['stored']) == (0, 0), 'left', stats)


def play(address, messages, is_unix, cuts=(), kind=Proxy):
    """One whole run; the proxy afterwards. With a word on the cuts, if it is not as it should be."""
    proxy = kind(address, messages=messages, cuts=cuts, is_unix=is_unix)
    try:
        with proxy:
            run = proxy.run = Run(proxy)
            try:
                run.play()
            except BaseException:
                try:
                    run.agent.quit()
                except AssertionError:
                    pass
                raise
            run.agent.quit()
        return proxy
    except AssertionError as e:
        raise Broken('%s: %s' % (list(cuts), e)) from e


# ------------------------------------------------------------------------------------ every boundary

RUNS = concurrent.futures.ThreadPoolExecutor(AT_ONCE)


class EveryBoundary:
    """The script with a cut at each message of a run that had none."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.is_unix = cls.backend == 'unix'
        cls.messages = chaos.Lines if cls.is_unix else chaos.Frames
        cls.counts = play(cls.server.address, cls.messages, cls.is_unix).counts

    def play_all(self, cuts, kind=Proxy):
        """Each is a list of cuts. What is wrong with any of them; how many were not cut."""
        futures = [RUNS.submit(play, self.server.address, self.messages, self.is_unix, c, kind) for c in cuts]
        troubles = [str(f.exception()) for f in futures if f.exception()]
        if troubles:
            self.fail('%d of %d runs: %s' % (len(troubles), len(cuts), '\n\n'.join(t[-1500:] for t in troubles)))
        unknown = sum(f.result().run.codes['lasting'] == -1 for f in futures)
        self.assertLess(unknown, len(cuts))
        return sum(not f.result().has_cut.is_set() for f in futures)

    def cut_everywhere(self, direction, where):
        """Output that comes in other pieces than before may make a run a few messages shorter."""
        numbers = range(1, self.counts[direction] + 1)
        self.assertGreaterEqual(len(numbers), 15 if direction == UP else 30)
        cuts = [[Cut(direction, n, where)] for n in tap.thin(numbers, 4)]
        self.assertLess(self.play_all(cuts), len(cuts) // 3)

    def test_before_what_the_client_says(self):
        self.cut_everywhere(UP, BEFORE)

    def test_inside_what_the_client_says(self):
        self.cut_everywhere(UP, INSIDE)

    def test_after_what_the_client_says(self):
        self.cut_everywhere(UP, AFTER)

    def test_before_what_the_server_says(self):
        self.cut_everywhere(DOWN, BEFORE)

    def test_inside_what_the_server_says(self):
        self.cut_everywhere(DOWN, INSIDE)

    def test_after_what_the_server_says(self):
        self.cut_everywhere(DOWN, AFTER)


class WebSocket(EveryBoundary, Case):
    backend = 'ws'

    def test_two_cuts(self):
        rng = random.Random(SEED)
        total = {d: n + 6 for d, n in self.counts.items()}
        every = chaos.every_cut(total, (BEFORE, INSIDE, AFTER))
        self.play_all([rng.sample(every, 2) for _ in range(30 if tap.IS_LONG else 8)])

    def test_a_cut_while_it_is_resumed(self):
        """The messages after a cut are those of the resumption: initialize, initialized, a read."""
        rng = random.Random(SEED + 1)
        cuts = []
        for _ in range(12 if tap.IS_LONG else 6):
            first = rng.choice(chaos.every_cut(self.counts, (BEFORE, INSIDE)))
            later, where = first.number + rng.randint(1, 2), rng.choice((BEFORE, INSIDE, AFTER))
            cuts.append([first, Cut(first.direction, later, where)])
        self.play_all(cuts)

    def test_resets(self):
        every = chaos.every_cut(self.counts, (INSIDE, AFTER))
        self.play_all([[c] for c in random.Random(SEED + 3).sample(every, 24 if tap.IS_LONG else 8)], chaos.ResettingProxy)

    def test_cuts_all_the_time(self):
        """Each connection lives for a few messages more than it takes to resume."""
        self.play_all([[Cut(direction, n, where) for n in range(5, 300, step)] for where in (BEFORE, AFTER)
                       for direction, step in ((UP, 7), (DOWN, 6))])


class Lines(EveryBoundary, Case):
    backend = 'unix'


# -------------------------------------------------------------------------------------- longer than a cut


class Away(Case):
    """The server is away for some time, or for ever."""

    def through_proxy(self, *flags):
        srv = server.Server()
        self.addCleanup(srv.stop)
        proxy = Proxy(srv.address)
        self.addCleanup(proxy.close)
        run = Run(proxy, *flags)
        self.addCleanup(run.agent.quit)
        return srv, proxy, run

    def assertLost(self, answer, *words):
        self.assertTrue(answer.failed, answer)
        for word in words or (LOST,):
            self.assertRegex(answer.text, word)

    def assertNoCodeOfItsOwn(self, run, call_id, text):
        end = run.agent.wait_end(call_id)
        self.assertEqual((end['exit_code'], end['status'], end['stdout']), (-1, 'failed', text), end)
        self.assertRegex(end['stderr'], LOST)

    def test_refused_for_three_seconds(self):
        """One process ends meanwhile, one lives on, one is typed into."""
        _srv, proxy, run = self.through_proxy(*RESUME)
        gate = server.Gate(run.agent.work)
        brief = run.start('brief', 'echo >>brief; echo a; %s; echo b; exit 7' % gate.wait)
        lasting = run.start('lasting', LASTING)
        typed = run.start('typed', TYPED, tty=True)
        run.agent.wait_frames('typed', b'ready')
        proxy.refuse_from = proxy.connections
        proxy.cut_now()
        gate.open()
        answer = run.agent.ws_later(typed, 'bye\n', yield_time_ms=WAIT)
        time.sleep(3)
        self.assertFalse(answer.is_answered())
        proxy.refuse_from = None
        run.take('typed', answer.wait())
        run.until_exit('brief', brief, 7)
        self.assertTrue(run.agent.ask('terminate', process=lasting)['ok'])
        self.assertEqual(run.check_process('brief', 7), 'a\nb\n')
        self.assertEqual(run.check_process('typed', 9), 'ready\r\n<bye>\r\n')
        self.assertEqual(run.check_process('lasting', 137, -1), 'up\n')

    def test_the_server_is_gone_for_good(self):
        srv, proxy, run = self.through_proxy('--resume-ms', '2000')
        a = run.agent
        polled, typed = run.start('polled', LASTING), run.start('typed', TYPED, tty=True)
        unseen = run.start('unseen', 'echo here; exec sleep 100')
        a.wait_frames('typed', b'ready')
        poll, shot = a.ws_later(polled, yield_time_ms=WAIT), a.run_later('echo begun; exec sleep 100')
        srv.stop(how=signal.SIGKILL, status=-signal.SIGKILL)
        write = a.ws_later(typed, 'one\n', yield_time_ms=WAIT)
        self.assertLost(poll.wait(), 'lost', 'could not be resumed')
        self.assertLost(write.wait())
        ran = shot.wait()
        self.assertEqual(ran.kind, 'failed', ran)
        self.assertRegex(ran.error, LOST)
        self.assertNoCodeOfItsOwn(run, 'polled', 'up\n')
        self.assertNoCodeOfItsOwn(run, 'typed', 'ready\r\n')
        self.assertNoCodeOfItsOwn(run, 'unseen', 'here\n')
        self.assertLost(a.ws(unseen))
        self.assertLost(a.ec('echo never'))
        self.assertNothingLeft(a)

    def test_another_server_in_its_place(self):
        """The session is not known there: what it had is lost, and what comes next is fine."""
        srv, proxy, run = self.through_proxy(*RESUME)
        polled = run.start('polled', LASTING)
        poll = run.agent.ws_later(polled, yield_time_ms=WAIT)
        other = server.Server('--no-auth')  # any token will do there
        self.addCleanup(other.stop)
        proxy.target = other.address
        srv.stop(how=signal.SIGKILL, status=-signal.SIGKILL)
        self.assertLost(poll.wait(), LOST, 'session')
        self.assertNoCodeOfItsOwn(run, 'polled', 'up\n')
        answer = run.agent.ec('echo again; exit 3', yield_time_ms=WAIT)
        self.assertExited(answer, 3)
        self.assertEqual(answer.body, 'again\n')
        self.assertNothingLeft(run.agent)


# -------------------------------------------------------------------------------------- much output


class Flood(Case):
    """Much output, at once and for a while: less than a server keeps, so that nothing may be missing."""

    backend = 'ws'
    AT_ONCE = 'echo >>flood; seq 1 100000; exit 4'
    FOR_A_WHILE = 'echo >>flood; for i in {0..99}; do seq ${i}001 $((i + 1))000; sleep 0.01; done; exit 4'
    WHOLE = ''.join('%d\n' % i for i in range(1, 100001))

    def flood(self, command, cuts):
        with Proxy(self.server.address, cuts=cuts) as proxy:
            run = Run(proxy)
            try:
                answer = run.agent.ec(command, call_id='flood', yield_time_ms=30000)
                self.assertExited(answer, 4)
                self.check_text(cuts, run.agent.wait_end('flood')['aggregated_output'])
                self.check_text(cuts, b''.join(run.agent.frames('flood')).decode())
                self.assertEqual(run.count('flood'), '\n')
            finally:
                run.agent.quit()
            return proxy.counts[DOWN]

    def check_text(self, cuts, text):
        if text != self.WHOLE:
            at = len(os.path.commonprefix([text, self.WHOLE]))
            self.fail('%r: %d bytes, not %d; from %d on %r' % (cuts, len(text), len(self.WHOLE), at, text[at:at + 50]))

    def check(self, command, *plans):
        for f in [RUNS.submit(self.flood, command, cuts) for cuts in plans]:
            f.result()

    def test_cuts_in_a_flood(self):
        total = self.flood(self.AT_ONCE, [])
        every = chaos.every_cut({UP: 0, DOWN: total}, (BEFORE, INSIDE, AFTER))
        rng = random.Random(SEED + 2)
        self.check(self.AT_ONCE, *(rng.sample(every, many) for many in (1, 1, 1, 2, 3)))

    def test_cuts_in_a_stream(self):
        """It goes on while the session is resumed: the same output comes by itself and as an answer."""
        self.check(self.FOR_A_WHILE, *([Cut(DOWN, n, where) for n in range(first, 500, 30)]
                                       for first, where in ((3, BEFORE), (11, INSIDE), (17, AFTER), (29, BEFORE))))


if __name__ == '__main__':
    agent.main()
