# SPDX-License-Identifier: Apache-2.0
"""The tools: starts, typing, signals, denials, patches, bounds, repeats, time, and the end of the host."""

import json
import os
import signal
import subprocess
import time
import unittest
import uuid

import mcp
import server
import tap
import wire
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


def with_word(word):
    """Processes that have this word on their command line; others' names for themselves do not matter."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/cmdline' % pid, 'rb') as f:
                if int(pid) != os.getpid() and word.encode() in f.read().split(b'\0'):
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Calls(mcp.Case):
    options = ()

    def setUp(self):
        super().setUp()
        self.host = self.mcp(*self.options)

    def refuse(self, r, *words):
        self.assertTrue(r.failed, r)
        self.assertIsNone(r.error)
        for w in words:
            self.assertIn(w, r.text)
        return r

    def expect(self, r, **members):
        self.assertFalse(r.failed, r)
        self.assertEqual({k: r.get(k) for k in members}, members, r)
        return r

    def file(self, name):
        with open(os.path.join(self.work, name)) as f:
            return f.read()


class Starting(Calls):
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
                                 ({'argv': ['true'], 'timeout_ms': -1}, 'expected u64'),
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

    def test_rows_and_cols(self):
        self.expect(self.host.exec('stty', 'size', tty=True), output='24 80\r\n')
        self.expect(self.host.exec('stty', 'size', tty=True, rows=7, cols=300), output='7 300\r\n')

    def test_timeout_ends_the_tree(self):
        word = '600.%d' % int(uuid.uuid4().int % 1000000)
        began = time.monotonic()
        r = self.host.exec('sh', '-c', STUBBORN + ' & sleep %s & wait' % word, timeout_ms=700, **LONG)
        self.expect(r, state='exited', end_reason='timeout')
        self.assertGreaterEqual(time.monotonic() - began, 0.7)
        wait_until(lambda: not with_word(word), 'the tree to end')

    def test_timeout_between_two_calls(self):
        r = self.host.exec('sleep', '600', timeout_ms=600, **BRIEF)
        r = self.host.type(r['session_id'], yield_time_ms=30000)
        self.expect(r, state='exited', end_reason='timeout')
        self.assertNotIn('session_id', r.structured)

    def test_timeout_that_is_not_needed(self):
        self.expect(self.host.exec('sh', '-c', 'echo x; exit 4', timeout_ms=30000), exit_code=4, end_reason='exit', output='x\n')

    def test_max_output_tokens(self):
        r = self.expect(self.host.exec('seq', '1', '2000', max_output_tokens=50), exit_code=0, from_byte=0, next_byte=8893,
                        original_token_count=2224, omitted_bytes=0)
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


class Typing(Calls):
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


class Signals(Calls):
    def live(self, script):
        r = self.host.exec('sh', '-c', script, until={'pattern': 'ready'}, **LONG)
        return r['session_id']

    def test_the_default_ends_it(self):
        session = self.live('echo ready; exec sleep 600')
        r = self.expect(self.host.kill(session), state='exited', end_reason='terminated')
        self.assertIn('exit_code', r.structured)
        self.assertIn('State: exited\n', r.text)
        self.expect(self.host.kill(session), state='exited', end_reason='terminated')  # again: the same
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
        wait_until(lambda: not with_word(word), 'the tree to end')

    def test_names(self):
        session = self.live('trap "echo one" USR1; trap "echo two" USR2; echo ready; while :; do sleep 0.1; done')
        for name, word in (('USR1', 'one'), ('SIGUSR2', 'two'), ('usr1', 'one'), ('SigUsr2', 'two')):
            self.expect(self.host.kill(session, signal=name), exit_code=None)
            self.expect(self.host.type(session, until={'pattern': word}, **LONG), woken_by={'pattern': word})
        for name in ('', 'SIG', 'NOTHING', '9', 'SIGSIGTERM', 'TERM ', 'RTMIN'):
            self.refuse(self.host.kill(session, signal=name), 'there is no signal')
        self.refuse(self.host.kill(session, signal=9), 'failed to parse function arguments')
        self.expect(self.host.kill(session, signal='TERM'), state='exited', signal='SIGTERM')

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
        self.expect(self.host.result(waits), state='exited', end_reason='terminated')

    def test_of_nobody(self):
        self.refuse(self.host.kill(1), 'signal_session failed: Unknown process id 1')
        self.refuse(self.host.call('signal_session', {}), 'missing field `session_id`')


class Lists(Calls):
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


class Denials(Calls):
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
        self.assertEqual(r['denials'][0]['proposed_amendment'], {'file_system': {'write': [self.OUTSIDE]}})
        self.assertIn('read: yes, write: no', r.text)
        r = self.expect(self.host.call('explain_denial', {'path': 'inside'}), denials=[])
        self.assertIn(os.path.join(self.work, 'inside'), r.text)
        self.assertIn('read: yes, write: yes', r.text)

    def test_a_host(self):
        r = self.host.call('explain_denial', {'host': 'example.org'})
        self.assertEqual([(d['access'], d['target'], d['layer']) for d in r['denials']], [('connect', 'example.org', 'network')])
        for host in ('', 'a b', '*'):
            self.refuse(self.host.call('explain_denial', {'host': host}))
        open_host = self.mcp('--sandbox', ':danger-full-access')
        self.expect(open_host.call('explain_denial', {'host': 'example.org'}), denials=[])
        self.expect(open_host.call('explain_denial', {'path': self.OUTSIDE}), denials=[])

    def test_what_is_no_question(self):
        self.refuse(self.host.call('explain_denial', {}), 'give one of')
        self.refuse(self.host.call('explain_denial', {'path': 'x', 'host': 'y'}), 'give one of')
        self.refuse(self.host.call('explain_denial', {'path': ''}), '`path` is no path')
        self.refuse(self.host.call('explain_denial', {'path': 'a\0b'}), '`path` is no path')
        self.refuse(self.host.call('explain_denial', {'session_id': 1}), 'Unknown process id 1')


class Patches(Calls):
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


class Repeats(Calls):
    COUNT = ['sh', '-c', 'echo started >> count; echo out; exec sleep 600']

    def starts(self, name='count'):
        try:
            return self.file(name).count('\n')
        except FileNotFoundError:
            return 0

    def test_key(self):
        session = self.host.exec(*self.COUNT, key='k', until={'pattern': 'out'}, **LONG)['session_id']
        self.expect(self.host.exec(*self.COUNT, key='k', **BRIEF), session_id=session, output='')
        self.expect(self.host.exec('echo', 'another', key='k', **BRIEF), session_id=session)  # the key decides
        self.assertEqual(self.starts(), 1)
        other = self.host.exec(*self.COUNT, key='K', **BRIEF)['session_id']
        self.assertNotEqual(other, session)
        wait_until(lambda: self.starts() == 2, 'the second start')

    def test_key_of_what_has_ended(self):
        argv = ['sh', '-c', 'echo started >> count; echo out; exit 3']
        first = self.expect(self.host.exec(*argv, key='k'), exit_code=3, output='out\n')
        for _ in range(3):
            r = self.expect(self.host.exec(*argv, key='k'), exit_code=3, output='out\n', state='exited', end_reason='exit')
            self.assertEqual(r['next_byte'], first['next_byte'])
        self.assertEqual(self.starts(), 1)

    def test_key_of_what_could_not_start(self):
        """Nothing was started: the next call may."""
        self.refuse(self.host.exec('true', workdir='later', key='k'), 'exec_command failed')
        os.mkdir(os.path.join(self.work, 'later'))
        self.expect(self.host.exec('echo', 'x', workdir='later', key='k'), exit_code=0, output='x\n')

    def test_key_of_what_is_no_longer_kept(self):
        host = self.mcp('--set', 'exited_ttl_s=1')
        host.exec('sh', '-c', 'echo started >> count', key='k')
        wait_until(lambda: not host.sessions(), 'it to be forgotten')
        self.refuse(host.exec('sh', '-c', 'echo started >> count', key='k'), 'no longer kept')
        self.assertEqual(self.starts(), 1)

    def test_key_at_once(self):
        ids = [self.host.call_later('exec_command', {'argv': self.COUNT, 'key': 'k', 'until': {'pattern': 'out'}, **BRIEF}) for _ in range(4)]
        results = [self.host.result(i) for i in ids]
        self.assertEqual(len({r['session_id'] for r in results}), 1)
        self.assertEqual(''.join(r['output'] for r in results), 'out\n')  # each byte in one answer
        self.assertEqual(self.starts(), 1)

    def test_key_at_once_of_what_ends(self):
        argv = ['sh', '-c', 'echo started >> count; sleep 0.5; echo out; exit 3']
        ids = [self.host.call_later('exec_command', {'argv': argv, 'key': 'k'}) for _ in range(20)]
        results = [self.expect(self.host.result(i), exit_code=3, end_reason='exit') for i in ids]
        self.assertIn('out\n', [r['output'] for r in results])
        self.assertLessEqual({r['output'] for r in results}, {'', 'out\n'})  # another may have had it
        self.assertEqual(self.starts(), 1)

    def test_key_of_a_cancelled_call(self):
        i = self.host.call_later('exec_command', {'argv': self.COUNT, 'key': 'k', **LONG})
        wait_until(lambda: self.starts() == 1 and self.host.sessions(), 'the start')
        self.host.notify('notifications/cancelled', {'requestId': i})
        r = self.host.exec(*self.COUNT, key='k', until={'pattern': 'out'}, yield_time_ms=5000)
        self.assertIn(r['session_id'], self.host.sessions())
        self.assertEqual(self.starts(), 1)
        self.assertNotIn(json.dumps(i), self.host.answers)

    def test_key_of_a_call_that_is_cancelled_at_once(self):
        """However far it had come: one start at most, and the next call has it."""
        for n in range(10):
            argv = ['sh', '-c', 'echo started >> count%d; exec sleep 600' % n]
            i = self.host.call_later('exec_command', {'argv': argv, 'key': 'k%d' % n, **LONG})
            later = [self.host.call_later('exec_command', {'argv': argv, 'key': 'k%d' % n, **BRIEF}) for _ in range(2)]
            self.host.notify('notifications/cancelled', {'requestId': i})
            sessions = {self.host.result(x)['session_id'] for x in later}
            self.assertEqual(len(sessions), 1)
            wait_until(lambda: self.starts('count%d' % n) >= 1, 'the start')
            live = [s for s in self.host.sessions().values() if s['command'].endswith("count%d; exec sleep 600'" % n) and s['state'] != 'exited']
            self.assertEqual([s['session_id'] for s in live], list(sessions))
            self.host.kill(sessions.pop(), signal='KILL')

    def test_write_id(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        self.host.call('write_stdin', {'session_id': session, 'chars': 'once\n', 'write_id': 'w', 'until': {'pattern': 'once\\s+once'}, **LONG})
        r = self.host.type(session, 'once\n', write_id='w', until={'quiet_ms': 500})
        self.expect(r, output='', state='reading_terminal')
        r = self.host.type(session, 'other\n', write_id='w', until={'quiet_ms': 500})
        self.expect(r, output='')
        r = self.host.type(session, 'more\n', write_id='v', until={'pattern': 'more\\s+more'}, **LONG)
        self.assertIn('pattern', r['woken_by'])
        another = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        r = self.host.type(another, 'once\n', write_id='w', until={'pattern': 'once\\s+once'}, **LONG)
        self.assertIn('pattern', r['woken_by'])
        for wrong in ('', 'w' * 257):
            self.refuse(self.host.type(session, 'x', write_id=wrong), '`write_id` has 1 to 256 bytes')

    def test_write_id_at_once(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        ids = [self.host.call_later('write_stdin', {'session_id': session, 'chars': 'x%d\n' % (n % 5), 'write_id': 'w%d' % (n % 5),
                                                    'until': {'quiet_ms': 300}, 'yield_time_ms': 20000}) for n in range(25)]
        for i in ids:
            self.assertFalse(self.host.result(i).failed)
        output = self.host.read(session)['output'].replace('\r', '')
        self.assertEqual(sorted(output.split()), sorted(['x%d' % n for n in range(5)] * 2))  # as typed, and as cat says it

    def test_write_id_of_what_was_not_typed(self):
        session = self.host.exec('sleep', '600', **BRIEF)['session_id']
        for _ in range(2):
            self.refuse(self.host.type(session, 'x', write_id='w'), 'stdin is closed')


class Many(Calls):
    def test_a_hundred_calls(self):
        for script in ('echo %d', 'sleep 1; echo %d; exit 3', 'seq %d 20000 | tail -1; echo %d >&2'):
            with self.subTest(script):
                word = {n: script.replace('%d', str(n)) for n in range(100)}
                ids = {n: self.host.call_later('exec_command', {'argv': ['sh', '-c', word[n]], **LONG}) for n in word}
                for n, i in reversed(ids.items()):
                    r = self.host.result(i, timeout=3 * wire.DEADLINE)
                    self.assertFalse(r.failed, r)
                    self.assertIn('exit_code', r.structured, r)
                    self.assertEqual(r['output'].split()[-1] if '20000' not in script else str(n), str(n), r)
                    self.assertEqual(r['exit_code'], 3 if 'exit 3' in script else 0)

    def test_a_hundred_of_all_kinds(self):
        session = self.host.exec('cat', tty=True, **BRIEF)['session_id']
        asked = {}
        for n in range(100):
            tool, arguments = (('exec_command', {'argv': ['echo', str(n)]}),
                               ('read_output', {'session_id': session}),
                               ('list_sessions', {}),
                               ('explain_denial', {'path': '/usr/%d' % n}),
                               ('apply_patch', {'input': '*** Begin Patch\n*** Add File: f%d\n+%d\n*** End Patch\n' % (n, n)}),
                               ('resize_session', {'session_id': session, 'rows': n + 1, 'cols': 80}),
                               ('write_stdin', {'session_id': session, 'chars': '%d\n' % n}),
                               ('signal_session', {'session_id': session, 'signal': 'WINCH'}))[n % 8]
            asked[self.host.call_later(tool, arguments)] = (n, tool)
        for i, (n, tool) in asked.items():
            r = self.host.result(i, timeout=3 * wire.DEADLINE)
            self.assertFalse(r.failed, (n, tool, r))
            if tool == 'exec_command':
                self.expect(r, exit_code=0, output='%d\n' % n)
            elif tool == 'explain_denial':
                self.assertEqual(r['denials'][0]['target'], '/usr/%d' % n)
            elif tool == 'apply_patch':
                self.assertEqual(self.file('f%d' % n), '%d\n' % n)
        self.assertEqual(self.host.answers, {})
        typed = [str(n) for n in range(100) if n % 8 == 6]
        wait_until(lambda: sorted(self.host.read(session)['output'].split()) == sorted(typed * 2), 'everything typed, and echoed')

    def test_sixty_four_sessions(self):
        """The one that nobody has used for longest goes; a call that waits keeps its own."""
        first = self.host.exec('sh', '-c', 'echo first; exec sleep 600', until={'pattern': 'first'}, **LONG)['session_id']
        second = self.host.exec('sleep', '600', **BRIEF)['session_id']
        ids = []
        for _ in range(62):
            ids.append(self.host.exec('sleep', '600', until={'quiet_ms': 1}, **BRIEF)['session_id'])
        self.host.glance(first)
        self.assertEqual(sum(s['state'] != 'exited' for s in self.host.sessions().values()), 64)
        last = self.host.exec('sleep', '600', until={'quiet_ms': 1}, **BRIEF)['session_id']
        wait_until(lambda: sum(s['state'] != 'exited' for s in self.host.sessions().values()) == 64, 'one to go')
        sessions = self.host.sessions()
        self.assertNotEqual(sessions[first]['state'], 'exited')
        self.assertNotEqual(sessions[last]['state'], 'exited')
        self.assertTrue(second not in sessions or sessions[second]['state'] == 'exited', sessions.get(second))
        self.refuse(self.host.type(second), 'Unknown process id %d' % second)

    def test_notify_at(self):
        host = self.mcp('--set', 'notify_at=2')
        self.assertEqual(len(host.exec('sleep', '600', **BRIEF).content), 1)
        r = host.exec('sleep', '600', **BRIEF)
        self.assertEqual(len(r.content), 2, r)
        self.assertEqual(r.content[1]['text'], 'The maximum number of unified exec processes you can keep open is 2 and you currently have 2 '
                         'processes open. Reuse older processes or close them to prevent automatic pruning of old processes')

    def test_idle_ttl(self):
        host = self.mcp('--set', 'idle_ttl_s=1')
        used = host.exec('sleep', '600', **BRIEF)['session_id']
        idle = host.exec('sleep', '600', **BRIEF)['session_id']
        began = time.monotonic()
        waits = host.call_later('write_stdin', {'session_id': used, 'yield_time_ms': 5000})  # in use all the time
        wait_until(lambda: host.sessions()[idle]['state'] == 'exited', 'the idle one to end')
        self.assertFalse(time.monotonic() - began < 0.7)
        self.assertIn('session_id', host.result(waits).structured)
        r = host.type(idle)
        self.expect(r, state='exited', end_reason='idle_ttl')


class Time(Calls):
    """A host cuts a call after a minute; most send no progress token. All of it at once, to take a minute once."""

    def begin(self):
        """Calls without a token, each with its host, its id, when it began and its session."""
        held = {}
        legacy = self.mcp()
        legacy.open()
        for host, name in ((self.host, 'modern'), (legacy, 'legacy')):
            session = host.exec('sh', '-c', 'echo ready; exec sleep 120', until={'pattern': 'ready'}, **LONG)['session_id']
            for n in range(2):  # the second waits for the first
                later = host.call_later('write_stdin', {'session_id': session, 'yield_time_ms': 300000})
                held[name, n] = (host, later, time.monotonic(), session)
        for n in range(3):
            later = self.host.call_later('exec_command', {'argv': ['sleep', '120'], 'key': 'k', **LONG})
            held['key', n] = (self.host, later, time.monotonic(), None)
        return held

    def test_a_minute(self):
        held = self.begin()
        told = self.host.exec('sh', '-c', 'echo ready; sleep 54; echo over', until={'pattern': 'ready'}, **LONG)['session_id']
        token = self.host.call_later('write_stdin', {'session_id': told, 'yield_time_ms': 300000}, progress='t')
        hosts = {h for h, _, _, _ in held.values()}
        began, spent, heard = time.monotonic(), {}, []
        while time.monotonic() - began < 75 * wire.SCALE and (len(spent) < len(held) or json.dumps(token) not in self.host.answers):
            for host in hosts:
                host.pump(0.05)
            for name, (host, i, since, _) in held.items():
                if name not in spent and json.dumps(i) in host.answers:
                    spent[name] = time.monotonic() - since
            while self.host.notifications:
                m = self.host.notifications.pop(0)
                self.assertEqual(m['method'], 'notifications/progress')
                heard.append((time.monotonic() - began, m['params']))
        self.assertEqual(sorted(spent), sorted(held))
        for name, (host, i, _, session) in held.items():
            self.assertLess(spent[name], 50 + 5 * (wire.SCALE > 1), spent)
            r = host.result(i)
            self.assertFalse(r.failed, r)
            self.assertEqual(r['session_id'], session or r['session_id'])
            self.assertEqual(r['state'], 'sleeping')
        self.assertGreater(spent['modern', 0], 40)  # it does wait
        self.expect(self.host.result(token), exit_code=0, output='over\n')
        self.check_progress(heard)

    def check_progress(self, heard):
        self.assertEqual({p['progressToken'] for _, p in heard}, {'t'})
        self.assertLess(heard[0][0], 10 * wire.SCALE)  # at once
        self.assertTrue(4 <= len(heard) <= 6, heard)  # then every 15 s
        numbers = [p['progress'] for _, p in heard]
        self.assertEqual(numbers, sorted(set(numbers)), heard)
        for _, p in heard:
            self.assertIsInstance(p['message'], str)
        self.assertTrue(all(b[0] - a[0] > 10 for a, b in zip(heard, heard[1:])), heard)


class Hosts(mcp.Case):
    """A host that is no more."""

    def fill(self, host):
        """Sessions that do not end by themselves, and the word by which they are known."""
        word = '600.%d' % int(uuid.uuid4().int % 1000000)
        host.exec('sleep', word, **BRIEF)
        host.exec('sh', '-c', STUBBORN + ' & sleep ' + word, **BRIEF)
        host.exec('sh', '-c', 'trap "" HUP TERM; sleep %s; :' % word, tty=True, **BRIEF)
        host.exec('sh', '-c', 'setsid env -i sleep %s >/dev/null 2>&1 &' % word)
        host.exec(*python('import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n'
                          '        os.execvp("sleep", ["sleep", sys.argv[1]])\n    os._exit(0)\nos.wait()\n', word))
        wait_until(lambda: len(with_word(word)) >= 5, 'all of them to be there')
        return word

    def test_its_end_closed(self):
        host = self.mcp()
        word = self.fill(host)
        host.call_later('exec_command', {'argv': ['sleep', word], **LONG})
        host.close()
        self.assertEqual(host.process.wait(wire.DEADLINE), 0)
        wait_until(lambda: not with_word(word), 'nothing to be left')

    def test_its_process_killed(self):
        """The host of the server is killed: nobody says good bye."""
        host = self.mcp()
        word = self.fill(host)
        host.close()  # as the kernel does for a host that is killed
        wait_until(lambda: not with_word(word), 'nothing to be left')
        self.assertEqual(host.process.wait(wire.DEADLINE), 0)

    def test_the_server_killed(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                p = subprocess.Popen([*server.PREFIX, server.PROGRAM, 'mcp'], cwd=self.work, env=self.environ(),
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                host = mcp.Lines(os.dup(p.stdout.fileno()), os.dup(p.stdin.fileno()))
                try:
                    word = self.fill(host)
                    p.send_signal(number)
                    p.wait(wire.DEADLINE)
                    wait_until(lambda: not with_word(word), 'nothing to be left')
                    wait_until(lambda: not server.marked(self.mark.encode()), 'nothing to be left behind')
                finally:
                    p.kill()
                    p.wait()
                    host.close()
                    p.stdin.close()
                    p.stdout.close()

    def test_a_host_that_does_not_read(self):
        """More answers than a pipe holds, then the end: it leaves all the same."""
        host = self.mcp()
        for n in range(100):
            host.call_later('exec_command', {'argv': ['seq', '1', '3000']})
        time.sleep(1)
        host.close()
        self.assertEqual(host.process.wait(wire.DEADLINE), 0)


if __name__ == '__main__':
    tap.main()
