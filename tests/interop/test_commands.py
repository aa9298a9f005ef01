# SPDX-License-Identifier: Apache-2.0
"""Commands that the Codex CLI runs on a server: what its model was told of each."""

import json
import os

import codex
import server
import wire
from model import call, command, custom, outcome, said, say, told_all, type_into, until_said

import tap


class Simple(codex.Case):
    def test_a_command_and_its_output(self):
        m = self.play([command('c1', 'echo hello $((6*7)); pwd')], [command('c2', 'echo again')], [say()])
        self.assertOutcome(m, 'c1', 0, 'hello 42\n%s\n' % self.ws)
        self.assertOutcome(m, 'c2', 0, 'again\n')
        self.assertRanThere(2)
        self.assertTree({})

    def test_failing_commands(self):
        m = self.play([command('c1', 'echo out; sleep 0.2; echo err >&2; exit 7')], [command('c2', 'no-such-program-here')],
                      [command('c3', 'echo going; kill -9 $$')], [command('c4', 'true')], [say()])
        self.assertOutcome(m, 'c1', 7, 'out\nerr\n')
        code, output = outcome(m.told('c2'))
        self.assertEqual(code, 127)
        self.assertIn('no-such-program-here', output)
        self.assertIn('not found', output)
        self.assertOutcome(m, 'c3', 137, 'going\n')
        self.assertOutcome(m, 'c4', 0, '')
        self.assertRanThere(4)

    def test_bytes_that_are_no_text(self):
        m = self.play([command('c1', r"printf 'a\377\376b\n'; printf '\303'; sleep 0.3; printf '\274\n'")], [say()])
        self.assertOutcome(m, 'c1', 0, 'a\ufffd\ufffdb\nü\n')

    def test_a_command_that_cannot_start(self):
        m = self.play([command('c1', 'true', workdir=self.ws + '/missing')], [command('c2', 'echo well')], [say()])
        self.assertIn('exec_command failed', m.told('c1'))
        self.assertIn('No such file or directory (os error 2)', m.told('c1'))
        self.assertOutcome(m, 'c2', 0, 'well\n')
        self.assertRanThere(2)


class Long(codex.Case):
    def test_polled_until_it_ends(self):
        def script(m):
            yield [command('c1', 'for i in 1 2 3 4 5 6 7 8; do echo tick$i; sleep 0.3; done; exit 3', yield_time_ms=250)]
            while outcome(m.told('c1'))[0] is None and told_all(m, 'poll')[0] is None:
                yield from type_into(m, 'poll', 'c1')
            yield [say()]

        m = self.play(script)
        code, rest = told_all(m, 'poll')
        self.assertEqual(code, 3)
        self.assertEqual(outcome(m.told('c1'))[1] + rest, ''.join('tick%d\n' % i for i in range(1, 9)))
        self.assertRanThere(1)
        self.assertNotIn('process/read', self.wire.methods())

    def test_interrupted(self):
        def script(m):
            yield [command('c1', "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done", yield_time_ms=500)]
            yield from until_said(m, 'c1', 'ready\n')
            yield from type_into(m, 'int', 'c1', '\x03')
            while told_all(m, 'int')[0] is None:
                yield from type_into(m, 'int_again', 'c1')
            yield [say()]

        m = self.play(script)
        code, output = told_all(m, 'int')
        self.assertEqual((code, output.endswith('caught\n')), (9, True))
        self.assertEqual([s['params']['signal'] for s in self.wire.sent('process/signal')], ['interrupt'])
        self.assertRanThere(1)

    def test_nothing_can_be_typed_without_a_terminal(self):
        def script(m):
            yield [command('c1', 'echo ready; sleep 600', yield_time_ms=500)]
            yield [call('c2', 'write_stdin', session_id=m.session('c1'), chars='x\n')]
            yield [say()]

        m = self.play(script)
        self.assertIn('stdin is closed for this session', m.told('c2'))

    def test_what_still_runs_when_the_client_leaves_is_ended(self):
        def script(m):
            yield [command('c1', 'echo $$; exec sleep 600', yield_time_ms=500)]
            yield from until_said(m, 'c1', '\n')
            yield [say()]

        m = self.play(script)
        self.assertIsNone(outcome(m.told('c1'))[0])
        self.assertGone(int(said(m, 'c1')))

    def test_a_child_in_the_background(self):
        m = self.play([command('c1', '(sleep 1; echo late) & echo now')], [say()])
        self.assertOutcome(m, 'c1', 0, 'now\nlate\n')
        self.assertRanThere(1)


class Much(codex.Case):
    def test_large_output(self):
        size = 8 * wire.MIB
        m = self.play([command('c1', 'yes 0123456789abcde | head -c %d; echo; echo THE END' % size)], [say()])
        text = m.told('c1')
        self.assertIn('Original token count: %d\n' % -(-(size + 9) // 4), text)
        code, output = outcome(text)
        self.assertEqual(code, 0)
        self.assertRegex(output, r'\A(?:(?:Warning|Total|\.\.\.).*\n)*\n(0123456789abcde\n)+')
        self.assertTrue(output.endswith('0123456789abcde\n\nTHE END\n'), output[-200:])
        self.assertRegex(output, r'tokens truncated')
        self.assertRanThere(1)
        self.assertEqual(sum(len(wire.unb64(n['params']['chunk'])) for n in self.wire.notes('process/output')), size + 9)

    def test_in_parallel(self):
        """Each waits for all others, so it is told only if they run at the same time."""
        wait = 'touch %d; until [ -e 1 -a -e 2 -a -e 3 -a -e 4 ]; do sleep 0.05; done; echo met %d'
        m = self.play([command('c%d' % i, wait % (i, i)) for i in range(1, 5)], [say()])
        for i in range(1, 5):
            self.assertOutcome(m, 'c%d' % i, 0, 'met %d\n' % i)
        self.assertRanThere(4)
        self.assertTree({str(i): b'' for i in range(1, 5)})

    def test_two_clients_of_one_server(self):
        def script(word, other):
            wait = 'touch %s; until [ -e %s ]; do sleep 0.05; done; echo %s' % (word, other, word)
            return [[command('c1', wait)], [say()]]

        self.wire_to(self.serve())
        first, second = self.codex(script('one', 'two')), self.codex(script('two', 'one'))
        self.assertOutcome(first.wait(), 'c1', 0, 'one\n')
        self.assertOutcome(second.wait(), 'c1', 0, 'two\n')
        self.assertEqual(self.wire.connections, 2)
        self.assertRanThere(2)


class Surroundings(codex.Case):
    def test_directory(self):
        name = os.path.join(self.ws, 'sub dir', 'ün%41#?')
        os.makedirs(name)
        m = self.play([command('c1', 'pwd; cat', workdir='sub dir')], [command('c2', 'pwd', workdir=name)], [say()])
        self.assertOutcome(m, 'c1', 0, self.ws + '/sub dir\n')
        self.assertOutcome(m, 'c2', 0, name + '\n')

    def test_variables(self):
        show = ('echo $FOO $MY_SECRET $ADDED $CODEX_CI $TERM $LC_ALL $NO_COLOR $PAGER; '
                '[ -n "$CODEX_THREAD_ID" ] && echo $CODEX_TOOL_CALL_ID')
        self.wire_to(self.serve(env={'FOO': 'of-the-server', 'MY_SECRET': 'hidden'}))
        m = self.play([command('c1', show, login=False)], [say()],
                      tables='[shell_environment_policy]\nset = { ADDED = "by-config" }')
        self.assertOutcome(m, 'c1', 0, 'of-the-server hidden by-config 1 dumb C.UTF-8 1 cat\nc1\n')
        m = self.play([command('c1', show, login=False)], [say()],
                      tables='[shell_environment_policy]\nignore_default_excludes = false\nexclude = ["FO*"]')
        self.assertOutcome(m, 'c1', 0, '1 dumb C.UTF-8 1 cat\nc1\n')
        m = self.play([command('c1', 'echo $FOO-$HOME', login=False)], [say()],
                      tables='[shell_environment_policy]\ninherit = "core"')
        self.assertOutcome(m, 'c1', 0, '-%s\n' % self.srv.home)

    def test_shells(self):
        """The server's word about its shell is what the client goes by."""
        m = self.play([command('c1', 'echo $0')], [command('c2', 'echo $0', login=False)], [say()])
        shell = self.wire.answer(self.wire.sent('initialize')[0])['result']['environmentInfo']['shell']
        for call_id in ('c1', 'c2'):
            self.assertOutcome(m, call_id, 0, shell['path'] + '\n')
        words = [s['params']['argv'][:-1] for s in self.wire.sent('process/start')]
        self.assertEqual(words, [[shell['path'], '-lc'], [shell['path'], '-c']])
        self.assertIn('<shell>%s</shell>' % shell['name'], m.context())
        other = '/bin/sh' if shell['name'] != 'sh' else '/bin/bash'
        m = self.play([command('c1', 'true', shell=other)], [say()])
        self.assertEqual(m.told('c1'), 'environment `remote` only supports `%s`' % shell['name'])


class Terminal(codex.Case):
    def test_a_shell_typed_into(self):
        def script(m):
            yield [command('c1', 'PS1="$ " exec bash --norc --noprofile -i', tty=True, yield_time_ms=500)]
            yield from until_said(m, 'c1', '$ ')
            yield from type_into(m, 'size', 'c1', 'stty size; tty -s && echo is-a-tt"y"\n', until='is-a-tty')
            yield from type_into(m, 'sum', 'c1', 'echo sum=$((40+2))\n', until='sum=42')
            yield from type_into(m, 'sleep', 'c1', 'echo asleep; sleep 600\n', until='asleep\r\n')
            yield from type_into(m, 'break', 'c1', '\x03', until='$ ')
            yield from type_into(m, 'end', 'c1', 'echo code=$?; exit 5\n', until='never')
            yield [say()]

        m = self.play(script)
        self.assertIn('24 80', told_all(m, 'size')[1])
        self.assertIn('\nsum=42', told_all(m, 'sum')[1].replace('\r', ''))
        self.assertIn('^C', told_all(m, 'break')[1])
        code, output = told_all(m, 'end')
        self.assertIn('code=130', output)
        self.assertEqual(code, 5)
        self.assertRanThere(1)
        self.assertEqual([w['params']['writeId'] for w in self.wire.sent('process/write')], ['1', '2', '3', '4', '5'])
        self.assertTrue(all(n['params']['stream'] == 'pty' for n in self.wire.notes('process/output')))

    def test_an_interpreter_typed_into(self):
        def script(m):
            yield [command('c1', 'exec %s -q -E' % server.PYTHON, tty=True, yield_time_ms=500)]
            yield from until_said(m, 'c1', '>>> ')
            yield from type_into(m, 'sum', 'c1', 'print("sum", 6*7)\n', until='sum 42')
            yield from type_into(m, 'end', 'c1', '\x04', until='never')
            yield [say()]

        m = self.play(script)
        self.assertEqual(told_all(m, 'end')[0], 0)
        self.assertRanThere(1)


class Programs(codex.Case):
    def test_commands_of_a_program(self):
        """The model writes JavaScript, which the CLI runs; its commands go to the server."""
        program = '''
            const wait = n => `touch ${n}; until [ -e 1 -a -e 2 ]; do sleep 0.05; done; echo met ${n}; exit ${n}`;
            const both = await Promise.all([1, 2].map(n => tools.exec_command({cmd: wait(n), yield_time_ms: 30000})));
            text(JSON.stringify(both.map(r => [r.exit_code, r.output])));
            const cmd = "stty -echo; echo ready; read x; echo got $x";
            const shell = await tools.exec_command({cmd, tty: true, yield_time_ms: 500});
            const said = await tools.write_stdin({session_id: shell.session_id, chars: "word\\n", yield_time_ms: 30000});
            text(JSON.stringify([said.exit_code, (shell.output + said.output)]));
        '''
        m = self.play([custom('c1', 'exec', program)], [say()], model=codex.CODE_MODEL)
        told = [part['text'] for part in m.raw('c1')]
        self.assertIn('Script completed', told[0])
        self.assertEqual(json.loads(told[1]), [[1, 'met 1\n'], [2, 'met 2\n']])
        code, output = json.loads(told[2])
        self.assertEqual(code, 0)
        self.assertRegex(output, r'(?s)ready.*got word')
        self.assertRanThere(3)
        self.assertTree({'1': b'', '2': b''})


class Flags(codex.Case):
    """Features that are off by default and change what is said to the server."""

    def test_shell_snapshots(self):
        m = self.play([command('c1', 'echo one; exit 2')], [command('c2', 'echo two')], [say()],
                      args=['--enable', 'shell_snapshot_v2'])
        self.assertOutcome(m, 'c1', 2, 'one\n')
        self.assertOutcome(m, 'c2', 0, 'two\n')
        self.assertRanThere(2)

    def test_discovery(self):
        m = self.play([command('c1', 'echo one; exit 2')], [say()], args=['--enable', 'executor_capability_discovery_v2'])
        self.assertOutcome(m, 'c1', 2, 'one\n')
        self.assertRanThere(1)


if __name__ == '__main__':
    tap.main()
