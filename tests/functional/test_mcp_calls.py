# SPDX-License-Identifier: Apache-2.0
"""The tools: starts, typing, signals, lists, denials and patches."""

import os
import time
import uuid

import mcp
import server
import tap
from wire import wait_until

PYTHON = server.PYTHON
LONG = {'yield_time_ms': 30000}
BRIEF = {'yield_time_ms': 250}
KEYS = {'Enter': '\r', 'Tab': '\t', 'Escape': '\033', 'Backspace': '\177', 'Delete': '\033[3~', 'Up': '\033[A', 'Down': '\033[B',
        'Right': '\033[C', 'Left': '\033[D', 'Home': '\033[H', 'End': '\033[F', 'PageUp': '\033[5~', 'PageDown': '\033[6~',
        'F1': '\033OP', 'F2': '\033OQ', 'F3': '\033OR', 'F4': '\033OS', 'F5': '\033[15~', 'F6': '\033[17~', 'F7': '\033[18~',
        'F8': '\033[19~', 'F9': '\033[20~', 'F10': '\033[21~', 'F11': '\033[23~', 'F12': '\033[24~',
        **{'C-' + chr(96 + n): chr(n) for n in range(1, 27)}}
RAW = '''
import os, tty
tty.setraw(0)
print('ready', end='\\r\\n', flush=True)
while True:
    data = os.read(0, 1000)
    print(data.hex(), end=' ', flush=True)
'''
STUBBORN = 'trap "" TERM INT HUP; echo ready; while :; do sleep 1; done'


def python(program, *args):
    return (PYTHON, '-uc', program, *map(str, args))


class Starting(mcp.Calls):
    def test_what_is_no_command(self):
        for arguments, words in (({}, 'give `cmd`'),
                                 ({'cmd': 'true', 'argv': ['true']}, 'not both'),
                                 ({'argv': []}, 'at least one element'),
                                 ({'argv': ['']}, 'exec_command failed'),
                                 ({'argv': [5]}, 'failed to parse function arguments'),
                                 ({'argv': 'true'}, 'failed to parse function arguments'),
                                 ({'argv': ['a\0b']}, 'exec_command failed'),
                                 ({'cmd': 5}, 'failed to parse function arguments'),
                                 ({'argv': ['true'], 'env': {'A=': 'x'}}, '`env`'),
                                 ({'argv': ['true'], 'env': {'': 'x'}}, '`env`'),
                                 ({'argv': ['true'], 'env': {'A': 5}}, '`env`'),
                                 ({'argv': ['true'], 'env': {'A': 'x\0'}}, '`env`'),
                                 ({'argv': ['true'], 'env': ['A=x']}, '`env`'),
                                 ({'argv': ['true'], 'rows': 0}, 'expected 1 to 65535'),
                                 ({'argv': ['true'], 'cols': 65536}, 'expected 1 to 65535'),
                                 ({'argv': ['true'], 'timeout_ms': -1}, '`timeout_ms`: invalid value: integer `-1`, expected a whole number'),
                                 ({'cmd': 'echo x', 'shell': 'fish'}, '`shell`: there is no `fish` here'),
                                 ({'cmd': 'echo x', 'shell': '/usr/bin/env'}, '`shell`: there is no `/usr/bin/env` here'),
                                 ({'cmd': 'echo x', 'shell': '/nowhere/sh'}, '`shell`: there is no `/nowhere/sh` here'),
                                 ({'cmd': 'pwd', 'cwd': '/'}, 'unknown argument `cwd`; this tool takes cmd, workdir, tty, '),
                                 ({'cmd': 'true', 'timeout': 1, 'timeout_ms': 1}, 'unknown argument `timeout`; this tool'),
                                 ({'argv': ['true'], 'workdir': '/site/nowhere'}, 'exec_command failed'),
                                 ({'argv': ['true'], 'key': ''}, '`key` has 1 to 256 bytes'),
                                 ({'argv': ['true'], 'key': 'k' * 257}, '`key` has 1 to 256 bytes')):
            with self.subTest(arguments):
                self.refuse(self.host.call('exec_command', arguments), words)
        self.assertEqual(self.host.sessions(), {})

    def test_an_empty_script(self):
        self.expect(self.host.run(''), exit_code=0, output='')

    def test_argv_has_no_shell(self):
        self.expect(self.host.exec('echo', '$HOME', '*', 'a b', "'"), output="$HOME * a b '\n")

    def test_nobody_is_at_that_path(self):
        r = self.host.exec('/site/no/such')
        self.assertTrue(r.failed or r.get('exit_code') == 127, r)

    def test_env(self):
        r = self.host.exec('sh', '-c', 'echo "$A|$B|$PATH"', env={'A': 'one two', 'B': '', 'PATH': '/bin:/usr/bin'})
        self.expect(r, output='one two||/bin:/usr/bin\n')
        self.expect(self.host.exec('sh', '-c', 'echo "$A"'), output='\n')

    def test_workdir(self):
        os.mkdir(os.path.join(self.work, 'sub'))
        self.expect(self.host.exec('pwd', workdir='sub'), output=os.path.join(self.work, 'sub') + '\n')
        self.assertIn('`workdir`', self.host.exec('pwd', workdir='nowhere').content[1]['text'])

    def test_rows_and_cols(self):
        self.expect(self.host.exec('stty', 'size', tty=True), output='24 80\r\n')
        self.expect(self.host.exec('stty', 'size', tty=True, rows=7, cols=300), output='7 300\r\n')

    def test_timeout_ends_the_tree(self):
        word = '600.%d' % int(uuid.uuid4().int % 1000000)
        began = time.monotonic()
        r = self.host.exec('sh', '-c', STUBBORN + ' & sleep %s & wait' % word, timeout_ms=700, **LONG)
        self.expect(r, state='exited', end_reason='timeout')
        self.assertGreaterEqual(time.monotonic() - began, 0.7)
        wait_until(lambda: not mcp.with_word(word), 'the tree to end')

    def test_timeout_between_two_calls(self):
        r = self.host.exec('sleep', '600', timeout_ms=600, **BRIEF)
        r = self.host.type(r['session_id'], yield_time_ms=30000)
        self.expect(r, state='exited', end_reason='timeout')
        self.assertNotIn('session_id', r.structured)

    def test_timeout_that_is_not_needed(self):
        self.expect(self.host.exec('sh', '-c', 'echo x; exit 4', timeout_ms=30000), exit_code=4, end_reason='exit', output='x\n')

    def test_max_output_tokens(self):
        r = self.expect(self.host.exec('seq', '1', '2000', max_output_tokens=50), exit_code=0, from_byte=0, next_byte=8893,
                        original_token_count=2224, omitted_bytes=8693, omitted_from_byte=100)
        self.assertIn('tokens truncated', r.text)
        self.assertLess(len(r.text), 700)
        self.assertLess(len(r['output']), 700)
        r = self.expect(self.host.exec('seq', '1', '2000', max_output_tokens=0), next_byte=8893)
        self.assertNotIn('\n1000\n', r.text)
        r = self.expect(self.host.exec('seq', '1', '2000', max_output_tokens=1000000), next_byte=8893)
        self.assertIn('\n1000\n', r.text)

    def test_the_configured_limit(self):
        host = self.mcp('--set', 'tool_output_token_limit=100')
        self.assertLess(len(host.exec('seq', '1', '2000').text), 700)


class Typing(mcp.Calls):
    def test_keys(self):
        r = self.host.exec(*python(RAW), tty=True, until={'pattern': 'ready'}, **LONG)
        session = r['session_id']
        self.host.glance(session)
        for name, sends in KEYS.items():
            hexes = sends.encode().hex()
            r = self.host.call('write_stdin', {'session_id': session, 'keys': [name], 'until': {'pattern': hexes + ' '}, **LONG})
            self.expect(r, woken_by={'pattern': hexes + ' '})
        r = self.host.type(session, 'ü', keys=['Up', 'C-c', 'F12'], until={'pattern': '7e '}, **LONG)
        self.assertEqual(r['output'].replace(' ', ''), 'ü\033[A\003\033[24~'.encode().hex())
        r = self.host.type(session, 'x', keys=[], eof=True, until={'pattern': '04 '}, **LONG)
        self.assertEqual(r['output'].replace(' ', ''), '7804')

    def test_keys_that_there_are_not(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        for keys in (['enter'], ['F13'], ['C-A'], ['C-1'], [''], [5], {'Enter': 1}, 5, ['Enter', 'x']):
            with self.subTest(keys):
                self.refuse(self.host.type(session, keys=keys), 'failed to parse function arguments', 'key')
        self.expect(self.host.glance(session), output='')

    def test_eof(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        r = self.host.type(session, 'abc\n', eof=True, until={'exit': True}, **LONG)
        self.expect(r, exit_code=0, end_reason='exit')
        self.assertEqual(r['output'].replace('\r', ''), 'abc\nabc\n')

    def test_a_process_without_a_terminal(self):
        session = self.host.exec('sleep', '600', **BRIEF)['session_id']
        self.refuse(self.host.type(session, keys=['Enter']), 'write_stdin failed', 'tty=true')
        self.refuse(self.host.type(session, eof=True), 'write_stdin failed', 'tty=true')
        self.refuse(self.host.type(session, 'x'), 'write_stdin failed: stdin is closed for this session; rerun exec_command '
                                                  'with tty=true to keep stdin open')
        self.expect(self.host.type(session, '\x03', until={'exit': True}, **LONG), signal='SIGINT', end_reason='signal', exit_code=130)

    def test_interrupt(self):
        session = self.host.exec('sh', '-c', 'trap "echo caught; exit 5" INT; echo ready; while :; do sleep 0.1; done', tty=True,
                                 until={'pattern': 'ready'}, **LONG)['session_id']
        r = self.host.type(session, keys=['C-c'], until={'exit': True}, **LONG)
        self.expect(r, exit_code=5)
        self.assertIn('caught', r['output'])

    def test_resize(self):
        session = self.host.exec('bash', '--norc', '-c', 'trap "stty size" WINCH; echo ready; while :; do sleep 0.1; done', tty=True,
                                 until={'pattern': 'ready'}, **LONG)['session_id']
        r = self.host.call('resize_session', {'session_id': session, 'rows': 50, 'cols': 132})
        self.assertFalse(r.failed, r)
        self.assertIn('50 rows and 132 columns', r.text)
        self.expect(self.host.type(session, until={'pattern': '50 132'}, **LONG), woken_by={'pattern': '50 132'})

    def test_resize_of_what_has_no_size(self):
        piped = self.host.exec('sleep', '600', **BRIEF)['session_id']
        ended = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        self.host.kill(ended, signal='KILL')
        for session, rows, words in ((piped, 5, 'no terminal'), (ended, 5, 'has ended'), (1, 5, 'Unknown process id 1'),
                                     (piped, 0, 'expected 1 to 65535'), (piped, 65536, 'expected 1 to 65535')):
            self.refuse(self.host.call('resize_session', {'session_id': session, 'rows': rows, 'cols': 80}), words)
        self.refuse(self.host.call('resize_session', {'session_id': piped, 'rows': 5}), 'missing field `cols`')


class Signals(mcp.Calls):
    def live(self, script):
        r = self.host.exec('sh', '-c', script, until={'pattern': 'ready'}, **LONG)
        return r['session_id']

    def test_the_default_ends_it(self):
        session = self.live('echo ready; exec sleep 600')
        r = self.expect(self.host.kill(session), state='exited', end_reason='signal', signal='SIGTERM', exit_code=143)
        self.assertIn('State: exited\n', r.text)
        self.expect(self.host.kill(session), state='exited', end_reason='signal', signal='SIGTERM')  # again: the same
        self.expect(self.host.kill(session, signal='USR1'), state='exited')

    def test_the_default_lets_it_say_good_bye(self):
        session = self.live('trap "echo bye; exit 7" TERM; echo ready; while :; do sleep 0.1; done')
        self.expect(self.host.kill(session), state='exited', exit_code=7)
        self.assertTrue(self.host.read(session)['output'].endswith('bye\n'))

    def test_the_default_ends_one_that_ignores_it(self):
        word = '600.%d' % int(uuid.uuid4().int % 1000000)
        session = self.live('sleep %s & %s' % (word, STUBBORN))
        began = time.monotonic()
        self.expect(self.host.kill(session), state='exited', end_reason='terminated', signal='SIGKILL', exit_code=137)
        self.assertGreaterEqual(time.monotonic() - began, 1.9)
        wait_until(lambda: not mcp.with_word(word), 'the tree to end')

    def test_names(self):
        session = self.live('trap "echo one" USR1; trap "echo two" USR2; echo ready; while :; do sleep 0.1; done')
        for name, word in (('USR1', 'one'), ('SIGUSR2', 'two'), ('usr1', 'one'), ('SigUsr2', 'two')):
            self.expect(self.host.kill(session, signal=name), exit_code=None)
            self.expect(self.host.type(session, until={'pattern': word}, **LONG), woken_by={'pattern': word})
        for name in ('', 'SIG', 'NOTHING', '9', 'SIGSIGTERM', 'TERM ', 'RTMIN'):
            self.refuse(self.host.kill(session, signal=name), 'there is no signal')
        self.refuse(self.host.kill(session, signal=9), 'failed to parse function arguments')
        self.expect(self.host.kill(session, signal='TERM'), signal='SIGTERM')
        # The last sleep may hold the output for a moment.
        wait_until(lambda: [s['state'] for s in self.host.sessions().values()] == ['exited'], 'the end of its sleep')

    def test_term_by_name_kills_nobody(self):
        session = self.live(STUBBORN)
        self.assertNotEqual(self.host.kill(session, signal='TERM')['state'], 'exited')
        time.sleep(2.5)
        self.assertNotEqual(self.host.sessions()[session]['state'], 'exited')
        self.expect(self.host.kill(session, signal='KILL'), state='exited', signal='SIGKILL')

    def test_a_call_that_waits_hears_of_the_end(self):
        session = self.live('echo ready; exec sleep 600')
        waits = self.host.call_later('write_stdin', {'session_id': session, 'yield_time_ms': 300000})
        r = self.host.kill(session)
        self.expect(r, state='exited')
        self.expect(self.host.result(waits), state='exited', end_reason='signal', signal='SIGTERM')

    def test_of_nobody(self):
        self.refuse(self.host.kill(1), 'signal_session failed: Unknown process id 1')
        self.refuse(self.host.call('signal_session', {}), 'missing field `session_id`')


class Lists(mcp.Calls):
    def test_none(self):
        r = self.expect(self.host.call('list_sessions'), sessions=[])
        self.assertIn('There are no sessions', r.text)

    def test_some(self):
        before = time.time() * 1000
        one = self.host.exec('sleep', '600', **BRIEF)['session_id']
        two = self.host.run('cat', tty=True, login=False, **BRIEF)['session_id']
        self.host.exec('sh', '-c', 'exit 3')
        sessions = self.host.sessions()
        (three,) = set(sessions) - {one, two}
        self.assertEqual(len(sessions), 3)
        for s, expected in ((one, {'command': 'sleep 600', 'tty': False, 'state': 'sleeping', 'cwd': self.work}),
                            (two, {'command': 'cat', 'tty': True, 'state': 'reading_terminal', 'cwd': self.work}),
                            (three, {'command': "sh -c 'exit 3'", 'tty': False, 'state': 'exited', 'exit_code': 3, 'cwd': self.work})):
            started = sessions[s].pop('started_at_ms')
            self.assertTrue(before - 2000 <= started <= time.time() * 1000 + 2000, started)
            if sessions[s]['state'] != 'running':  # it may not have got there yet
                self.assertEqual(sessions[s], {'session_id': s, **expected})

    def test_a_command_in_a_list_is_one_line(self):
        self.host.exec('printf', '\033[2J\nfake line\n', '\u202e')
        text = self.host.call('list_sessions').text
        self.assertEqual(text.count('\n'), 1, text)
        self.assertNotIn('\033', text)
        self.assertNotIn('\u202e', text)


class Denials(mcp.Calls):
    OUTSIDE = '/usr/sallyport-test-denied'

    def test_a_write_outside(self):
        r = self.host.exec('touch', self.OUTSIDE)
        (denial,) = self.expect(r, exit_code=1)['denials']
        self.assertEqual((denial['access'], denial['target']), ('write', self.OUTSIDE))
        self.assertTrue(denial['rule'])
        self.assertIn('\nSandbox denied: write %s: %s\nOutput:\n' % (self.OUTSIDE, denial['rule']), r.text)
        self.assertFalse(os.path.exists(self.OUTSIDE))
        (session,) = self.host.sessions()
        r = self.host.call('explain_denial', {'session_id': session})
        self.assertEqual([d['target'] for d in r['denials']], [self.OUTSIDE])
        self.assertIn('Sandbox denied: write %s' % self.OUTSIDE, r.text)
        self.assertIn('What to do', r.text)

    def test_a_write_to_what_is_protected_inside(self):
        os.mkdir(os.path.join(self.work, '.git'))
        r = self.host.exec('sh', '-c', 'echo x > ./.git/config')
        self.assertNotEqual(r['exit_code'], 0)
        self.assertFalse(os.path.exists(os.path.join(self.work, '.git/config')))
        (denial,) = r['denials']
        self.assertEqual(denial['target'], os.path.join(self.work, '.git/config'))
        self.assertIn('.git', denial['rule'])
        self.assertIn('Sandbox denied: write %s' % denial['target'], r.text)

    def test_the_network(self):
        r = self.host.exec(*python('import socket; socket.create_connection(("192.0.2.1", 80), 5)'))
        self.assertNotEqual(r['exit_code'], 0)
        self.assertIn('no network', r['denials'][0]['rule'])
        self.assertEqual(r['denials'][0]['layer'], 'network')
        self.assertIn('Sandbox denied: connect', r.text)

    def test_what_fails_by_itself(self):
        r = self.expect(self.host.exec('cat', 'nothing'), exit_code=1, denials=[])
        self.assertNotIn('Sandbox denied', r.text)
        (session,) = self.host.sessions()
        r = self.expect(self.host.call('explain_denial', {'session_id': session}), denials=[])
        self.assertIn('Nothing points to the sandbox', r.text)

    def test_a_path(self):
        r = self.host.call('explain_denial', {'path': self.OUTSIDE})
        self.assertEqual([(d['access'], d['target']) for d in r['denials']], [('write', self.OUTSIDE)])
        self.assertEqual(r['denials'][0]['proposed_amendment'], {'file_system': {'write': ['/usr']}})
        self.assertIn('read: yes, write: no', r.text)
        self.expect(r, allowed=False, read=True, write=False, target=self.OUTSIDE, rule=r['denials'][0]['rule'])
        self.assertIn('work inside the workspace (%s' % self.work, r['what_to_do'])
        self.assertIn('this host cannot ask a person', r['what_to_do'])
        able = self.host.call('explain_denial', {'path': self.OUTSIDE}, capabilities=mcp.FORM)
        self.assertIn('or ask: repeat the command with sandbox_permissions "require_escalated"', able['what_to_do'])
        r = self.expect(self.host.call('explain_denial', {'path': 'inside'}), denials=[], allowed=True, read=True, write=True,
                        target=os.path.join(self.work, 'inside'))
        self.assertIn('entry', r['rule'])
        self.assertNotIn('what_to_do', r.structured)
        self.assertIn(os.path.join(self.work, 'inside'), r.text)
        self.assertIn('read: yes, write: yes', r.text)

    def test_a_host(self):
        r = self.host.call('explain_denial', {'host': 'example.org'})
        self.assertEqual([(d['access'], d['target'], d['layer']) for d in r['denials']], [('connect', 'example.org', 'network')])
        self.expect(r, allowed=False, target='example.org', rule='the policy gives commands no network')
        self.assertIn('do without the network', r['what_to_do'])
        for host in ('', 'a b', '*'):
            self.refuse(self.host.call('explain_denial', {'host': host}))
        self.assertIn('no URL', self.host.call('explain_denial', {'host': 'https://example.org/'}).text)

    def test_a_path_of_the_home_directory(self):
        for path in ('~', '~/.ssh'):
            r = self.host.call('explain_denial', {'path': path})
            self.refuse(r)
            self.assertIn('give an absolute path', r.text)
        self.expect(self.host.call('explain_denial', {'path': './~'}), allowed=True, target=os.path.join(self.work, '~'))
        open_host = self.mcp('--sandbox', ':danger-full-access')
        self.expect(open_host.call('explain_denial', {'host': 'example.org'}), denials=[], allowed=True,
                    rule='commands may use the network')
        self.expect(open_host.call('explain_denial', {'path': self.OUTSIDE}), denials=[], allowed=True, write=True,
                    rule='commands run without a sandbox')

    def test_what_is_no_question(self):
        self.refuse(self.host.call('explain_denial', {}), 'give one of')
        self.refuse(self.host.call('explain_denial', {'path': 'x', 'host': 'y'}), 'give one of')
        self.refuse(self.host.call('explain_denial', {'path': ''}), '`path` is no path')
        self.refuse(self.host.call('explain_denial', {'path': 'a\0b'}), '`path` is no path')
        self.refuse(self.host.call('explain_denial', {'session_id': 1}), 'Unknown process id 1')


class Patches(mcp.Calls):
    env = mcp.PATCHES

    def patch(self, *lines, **more):
        return self.host.call('apply_patch', {'input': '\n'.join(('*** Begin Patch', *lines, '*** End Patch', '')), **more})

    def test_all_kinds(self):
        r = self.patch('*** Add File: a/b.txt', '+one', '+two')
        self.expect(r, changes=[{'path': os.path.join(self.work, 'a/b.txt'), 'kind': 'add'}],
                    output='Success. Updated the following files:\nA a/b.txt\n')
        self.assertEqual(r.text, r['output'])
        self.assertEqual(self.file('a/b.txt'), 'one\ntwo\n')
        r = self.patch('*** Update File: b.txt', '*** Move to: c.txt', '@@', ' one', '-two', '+three', workdir='a')
        self.expect(r, changes=[{'path': os.path.join(self.work, 'a/b.txt'), 'kind': 'update', 'move_to': os.path.join(self.work, 'a/c.txt')}])
        self.assertEqual(self.file('a/c.txt'), 'one\nthree\n')
        r = self.patch('*** Delete File: a/c.txt', '*** Add File: d', '+x')
        self.assertEqual([c['kind'] for c in r['changes']], ['delete', 'add'])
        self.assertEqual(os.listdir(os.path.join(self.work, 'a')), [])
        self.assertEqual(self.host.sessions(), {})

    def test_bad_ones(self):
        with open(os.path.join(self.work, 'a'), 'w') as f:
            f.write('one\n')
        for lines, words in ((['*** Update File: a', '@@', '-two', '+three'], 'Failed to find expected lines'),
                             (['*** Update File: none', '@@', '-two', '+three'], 'none'),
                             (['*** Delete File: none'], 'none'),
                             (['*** Frobnicate: a'], 'invalid')):
            with self.subTest(lines):
                self.refuse(self.patch(*lines), 'apply_patch verification failed', words)
        self.refuse(self.host.call('apply_patch', {'input': 'rubbish'}), 'apply_patch verification failed')
        self.refuse(self.host.call('apply_patch', {'input': ''}), 'apply_patch verification failed')
        self.refuse(self.host.call('apply_patch', {'input': 5}), 'failed to parse function arguments')
        self.refuse(self.host.call('apply_patch', {}), 'missing field `input`')
        self.refuse(self.patch('*** Add File: x', '+x', workdir='nowhere'))
        self.assertEqual(self.file('a'), 'one\n')

    def test_one_that_is_half_good_changes_nothing(self):
        self.refuse(self.patch('*** Add File: good', '+x', '*** Update File: none', '@@', '-two', '+three'))
        self.assertFalse(os.path.exists(os.path.join(self.work, 'good')))

    def test_outside(self):
        self.refuse(self.patch('*** Add File: /usr/sallyport-test-denied', '+x'), 'apply_patch')
        self.assertFalse(os.path.exists('/usr/sallyport-test-denied'))
        os.mkdir(os.path.join(self.work, '.git'))
        self.refuse(self.patch('*** Add File: .git/config', '+x'), 'apply_patch')
        self.assertFalse(os.path.exists(os.path.join(self.work, '.git/config')))

    def test_through_a_link(self):
        os.symlink('/usr', os.path.join(self.work, 'link'))
        self.refuse(self.patch('*** Add File: link/sallyport-test-denied', '+x'))
        self.assertFalse(os.path.exists('/usr/sallyport-test-denied'))


if __name__ == '__main__':
    tap.main()
