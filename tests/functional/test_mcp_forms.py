#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What hosts get to read: the list of tools, the two forms of a result within one budget, and what a host that gives a
call up leaves behind."""

import json
import os
import socket

import mcp
import tap
import wire
from mcp import with_word
from mcp_wire import call_modern
from wire import wait_until

BUDGET = 4500 * 4
LINES = ['sh', '-c', 'seq 1 40000; exit 7']
LONG = {'yield_time_ms': 30000}
LIST_MAX = 12 * 1000


def size(value):
    return len(json.dumps(value, separators=(',', ':'), ensure_ascii=False).encode())


class Listed(mcp.Calls):
    def tools(self):
        return self.host.modern('tools/list')['result']['tools']

    def test_the_list_is_small(self):
        self.assertLess(size(self.tools()), LIST_MAX)

    def test_the_main_tools_are_always_loaded(self):
        self.assertEqual([t['name'] for t in self.tools() if t.get('_meta') == {'anthropic/alwaysLoad': True}],
                         ['exec_command', 'write_stdin'])

    def test_plain_words(self):
        text = json.dumps(self.tools())
        for word in ('unified exec', 'turn cwd', 'PTY', 'yielding', 'semantics', 'anyOf', 'oneOf'):
            self.assertNotIn(word, text)

    def test_until_is_an_object_of_conditions(self):
        until = self.tools()[0]['inputSchema']['properties']['until']
        self.assertEqual((until['type'], sorted(until['properties'])), ('object', ['exit', 'pattern', 'port', 'quiet_ms']))
        self.assertNotIn('array', json.dumps(until))
        for until in ({'pattern': 'two', 'port': 9, 'quiet_ms': 25000}, [{'port': 9}, {'pattern': 'two'}]):
            r = self.host.exec('sh', '-c', 'echo one; echo two; exec sleep 600', until=until, **LONG)
            self.expect(r, woken_by={'pattern': 'two'})

    def test_unknown_arguments_are_refused(self):
        self.refuse(self.host.exec('true', what='else'), 'unknown argument `what`; this tool takes cmd, ')


class Budget(mcp.Case):
    def host(self, name, *args):
        host = self.mcp(*args)
        host.open(name=name)
        return host

    def check(self, r, repeats):
        """Both forms tell the same facts, the output is in the text, and neither is over the budget."""
        self.assertTrue(r.text.startswith('Process exited with code 7\n'), r.text[:200])
        self.assertLess(len(r.text), 20000)
        self.assertLess(r.text.count('\n'), 2000)
        self.assertLess(size(r.structured), 24000)
        self.assertEqual(('output' in r.structured, r['exit_code'], r['state']), (repeats, 7, 'exited'))
        self.assertIn('\n40000\n', r.text)
        self.assertIn('tokens truncated', r.text)
        if repeats:
            self.assertEqual(list(r.structured)[-1], 'output')
            self.assertTrue(r.text.endswith('Output:\n' + r['output']))

    def test_by_the_name_of_the_host(self):
        for name, repeats in (('claude-code', True), ('codex-mcp-client', True), ('nobody-knows-it', True), ('', True),
                              ('gemini-cli-mcp-client', False), ('qwen-cli-mcp-client-sallyport', False),
                              ('opencode', False), ('continue-cli-client', False), ('@cline/core', False),
                              ('Cline', False), ('github-copilot-developer', False)):
            with self.subTest(name):
                host = self.host(name)
                self.check(host.exec(*LINES), repeats)
        host = self.mcp()
        for name, repeats in (('claude-code', True), ('opencode', False)):
            meta = {**mcp.meta(), mcp.META + 'clientInfo': {'name': name, 'version': '1'}}
            self.check(mcp.Result(host.ask('tools/call', {'name': 'exec_command', 'arguments': {'argv': LINES}, '_meta': meta})),
                       repeats)

    def test_by_a_setting(self):
        for args, repeats in ((('--structured-output', 'never'), False), (('--structured-output', 'always'), True),
                              (('--set', 'mcp_structured_output="never"'), False)):
            for name in ('claude-code', 'opencode'):
                self.check(self.host(name, *args).exec(*LINES), repeats)

    def test_other_tools_too(self):
        host = self.host('opencode')
        r = host.exec(*LINES)
        r = host.read(r['ended_session_id'], line=3, limit=4)
        self.assertEqual((r.get('output'), r['from_byte'], r.text.endswith('Output:\n3\n4\n')), (None, 4, True))

    def test_output_that_json_makes_longer(self):
        r = self.host('claude-code').exec('python3', '-c', r'print("\x1b" * 100000, end="")')
        self.assertLess(size(r.structured), 24000)
        self.assertLess(len(r.text), 20000)
        self.assertGreater(r['output'].count('\x1b'), 2000)
        self.assertEqual(r['omitted_bytes'], 100000 - r['output'].count('\x1b'))

    def test_what_was_left_out_can_be_read(self):
        host = self.host('claude-code')
        r = host.exec(*LINES)
        whole = ''.join('%d\n' % n for n in range(1, 40001))
        at, session = r['omitted_from_byte'], r['ended_session_id']
        self.assertNotIn('session_id', r.structured)
        head = r['output'].split('\n\n', 1)[1].split('\u2026')[0]
        self.assertEqual(head, whole[:at])
        self.assertEqual(host.read(session, from_byte=at, limit=len(whole))['output'], whole[at:])
        shown = len(head) + len(r['output'].rsplit('\u2026', 1)[1])
        self.assertEqual(r['omitted_bytes'], len(whole) - shown)
        self.assertIn('Output truncated: %d bytes left out; read_output with session_id %d and from_byte %d has them\n' % (
            r['omitted_bytes'], session, at), r.text)

    def test_what_is_no_text_moves_no_position_behind_the_gap(self):
        host = self.host('claude-code')
        r = host.exec('python3', '-c', 'import os\nfor n in range(50): os.write(1, bytes([255]) * 997 + b"%02d\\n" % n)')
        self.assertLessEqual(r['omitted_from_byte'], r['output'].split('\u2026')[0].count('\ufffd') + 60)
        self.assertEqual(host.read(r['ended_session_id'], from_byte=r['omitted_from_byte'])['next_byte'] > 0, True)

    def test_a_small_output_has_no_more_members(self):
        r = self.host('claude-code').exec('echo', 'hi')
        self.assertEqual((r['omitted_bytes'], r.text.split('\n')[0], r.text.split('\n')[2:]),
                         (0, 'Process exited with code 0', ['Output:', 'hi', '']))
        for name in ('omitted_from_byte', 'ended_session_id', 'session_id', 'early', 'note'):
            self.assertNotIn(name, r.structured)

    def test_more_can_be_asked_for_up_to_the_cap(self):
        host = self.host('claude-code')
        r = host.exec(*LINES, max_output_tokens=1000000)
        self.assertGreater(len(r.text), 40000)
        self.assertLess(len(r.text), 48001)
        self.assertLess(size(r.structured), 50000)


class Instructions(mcp.Case):
    """They promise a person only where one can be asked."""

    def told(self, *args, capabilities=None, legacy=True):
        host = self.mcp(*args)
        if legacy:
            return host.open(capabilities=capabilities)['instructions']
        return host.modern('server/discover', capabilities=capabilities)['result']['instructions']

    def test_by_what_the_host_can_do(self):
        program = os.path.join(self.home, 'approve')
        with open(os.open(program, os.O_WRONLY | os.O_CREAT, 0o700), 'w') as f:
            f.write('#!/bin/sh\n')
        for legacy in (True, False):
            able = self.told(capabilities=mcp.FORM, legacy=legacy)
            self.assertIn('a person is asked', able)
            alone = self.told(legacy=legacy)
            self.assertNotIn('person is asked', alone)
            self.assertNotIn('require_escalated', alone)
            self.assertIn('cannot ask a person', alone)
            self.assertIn('the configured approver is asked', self.told('--approver', 'program:' + program, legacy=legacy))
            self.assertNotIn('is asked', self.told('--approve', 'never', capabilities=mcp.FORM, legacy=legacy))

    def test_the_longest_wait(self):
        self.assertIn('no progress token waits 47 s at most', self.told())
        write = self.mcp().modern('tools/list')['result']['tools'][1]
        self.assertIn('no progress token gets its answer after 47000', write['inputSchema']['properties']['yield_time_ms']['description'])

    def test_cancelling(self):
        self.assertIn('cancelled before its answer ends its process', self.told())
        self.assertNotIn('cancelled', self.told('--keep-cancelled'))


class Ends(mcp.Calls):
    def test_how_it_ended_is_in_the_text(self):
        r = self.host.exec('sleep', '600', timeout_ms=200)
        self.assertEqual(r.text.split('\n')[1], 'Ended by: timeout (SIGKILL)')

    def test_a_wrong_argument_is_named(self):
        for tool, arguments, words in (
                ('write_stdin', {'session_id': 'abc'}, '`session_id`: invalid type: string "abc", expected a whole number'),
                ('read_output', {'session_id': 1 << 40}, '`session_id`: invalid value: integer `1099511627776`, expected a whole number'),
                ('exec_command', {'cmd': 'true', 'tty': 'yes'}, '`tty`: invalid type: string "yes", expected a boolean'),
                ('exec_command', {'argv': 'true'}, '`argv`: invalid type: string "true", expected an array'),
                ('write_stdin', {}, 'missing field `session_id`')):
            r = self.refuse(self.host.call(tool, arguments), words)
            self.assertNotIn('at line', r.text)

    def test_a_tampered_state_is_no_call(self):
        r = self.host.call('exec_command', {'argv': ['true']}, state='v1.AAAA.BBBB')
        self.assertEqual(r.error['code'], -32602)


class Cancelled(mcp.Case):
    """A call that its host gives up before it has named the process."""

    def begin(self, host, word, **arguments):
        id = host.call_later('exec_command', {'argv': ['sh', '-c', 'sleep 600 & wait', word], **LONG, **arguments})
        wait_until(lambda: with_word(word) and host.sessions(), 'the process')
        return id

    def cancel(self, host, id):
        host.notify('notifications/cancelled', {'requestId': id, 'reason': 'Esc'})

    def test_ends_its_process(self):
        for legacy in (False, True):
            host = self.mcp()
            if legacy:
                host.open(name='claude-code')
            self.cancel(host, self.begin(host, 'word-of-cancelled'))
            wait_until(lambda: not with_word('word-of-cancelled'), 'its end')
            wait_until(lambda: [s['state'] for s in host.sessions().values()] == ['exited'], 'its end to be known')

    def test_unless_a_setting_keeps_it(self):
        for args in (('--keep-cancelled',), ('--set', 'mcp_keep_cancelled=true')):
            host = self.mcp(*args)
            self.cancel(host, self.begin(host, 'word-of-kept'))
            (session,) = host.sessions().values()
            self.assertNotEqual(session['state'], 'exited')
            host.kill(session['session_id'], signal='KILL')

    def test_unless_a_key_names_it(self):
        host = self.mcp()
        self.cancel(host, self.begin(host, 'word-of-key', key='k'))
        r = host.exec('sh', '-c', 'sleep 600 & wait', 'word-of-key', key='k', yield_time_ms=250)
        self.assertIn('session_id', r.structured)
        self.assertTrue(with_word('word-of-key'))

    def test_a_process_that_was_named_stays(self):
        host = self.mcp()
        r = host.exec('sh', '-c', 'sleep 600 & wait', 'word-of-named', yield_time_ms=250)
        id = host.call_later('write_stdin', {'session_id': r['session_id'], 'yield_time_ms': 30000})
        self.cancel(host, id)
        self.assertNotEqual(host.sessions()[r['session_id']]['state'], 'exited')
        self.assertTrue(with_word('word-of-named'))

    def close_mid_call(self, host, message):
        s = socket.create_connection(host.where.split(':'), wire.DEADLINE)
        body = json.dumps(message)
        s.sendall(('POST /mcp HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s' % (
            host.where, ''.join('%s: %s\r\n' % i for i in host.heads(message).items()), len(body), body)).encode())
        wait_until(lambda: with_word('word-of-http'), 'the process')
        s.close()

    def test_a_closed_http_connection_is_one(self):
        host = self.http()
        self.close_mid_call(host, call_modern('c', 'exec_command', argv=['sh', '-c', 'sleep 600 & wait', 'word-of-http'], **LONG))
        wait_until(lambda: not with_word('word-of-http'), 'its end')

    def test_a_lost_connection_to_a_socket_is_none(self):
        path = os.path.join(self.base, 's')
        self.listening('unix://' + path)
        first = mcp.connect_unix(path)
        self.begin(first, 'word-of-socket')
        first.close()
        second = mcp.connect_unix(path)
        self.addCleanup(second.close)
        (session,) = second.sessions().values()
        self.assertNotEqual(session['state'], 'exited')
        second.kill(session['session_id'], signal='KILL')


if __name__ == '__main__':
    tap.main()
