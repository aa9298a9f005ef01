# SPDX-License-Identifier: Apache-2.0
"""The tools by the official SDKs: listed, called one by one, and what they give held against their schemas by the client."""

import os

import sdk
from sdk import TOOLS

import mcp
import tap

PATCH = '*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch\n'


@sdk.each()
class Tools(sdk.Case):
    def check_list(self, kind, over):
        c = self.client(kind, over)
        tools = c.tools()
        self.assertEqual([t['name'] for t in tools], TOOLS)
        for t in tools:
            self.assertEqual(t['inputSchema']['type'], 'object', t['name'])
            if t['name'] != 'resize_session':  # which has nothing to tell
                self.assertEqual(t['outputSchema']['type'], 'object', t['name'])
            self.assertTrue(t['description'] and t['annotations'], t['name'])
        if kind.sdk != 1:  # which does not tell
            self.assertEqual(c.about['version'], sdk.MODERN if kind.era == 'modern' else sdk.LEGACY[0])
        self.assertEqual(c.about['server']['name'], 'sallyport')
        self.assertIn('Commands run in %s.' % self.work, c.about['instructions'])
        self.assertEqual(c.troubles(), [])

    def check_each_tool(self, kind, over):
        """Eight tools, each of whose results the client's validator has seen and found good."""
        c = self.client(kind, over, env=mcp.PATCHES)
        made = 0

        def call(tool, **arguments):
            nonlocal made
            r = c.call(tool, **arguments)
            made += tool != 'resize_session'
            self.assertFalse(r.failed, r)
            self.assertEqual(c.do('checked'), made, r)
            return r

        r = call('exec_command', argv=['sh', '-c', 'echo out; exit 3'])
        self.assertEqual((r['exit_code'], r['output'], r['state']), (3, 'out\n', 'exited'))
        self.assertIn('Process exited with code 3', r.text)
        r = call('exec_command', argv=['sh', '-c', 'stty size; cat'], tty=True, rows=30, cols=90, until={'pattern': '30 90'},
                 yield_time_ms=30000)
        session = r['session_id']
        r = call('write_stdin', session_id=session, chars='typed\n', until={'pattern': 'typed\\s+typed'}, yield_time_ms=20000)
        self.assertEqual(r['woken_by'], {'pattern': 'typed\\s+typed'})
        call('resize_session', session_id=session, rows=40, cols=100)
        r = call('read_output', session_id=session, line=1)
        self.assertTrue(r['output'].startswith('30 90\r\n'), r)
        r = call('list_sessions')
        self.assertIn(session, [s['session_id'] for s in r['sessions']])
        r = call('signal_session', session_id=session)
        self.assertEqual(r['state'], 'exited')
        r = call('exec_command', argv=['touch', '/usr/denied'])
        self.assertEqual([d['target'] for d in r['denials']], ['/usr/denied'])
        r = call('explain_denial', path='/usr/denied')
        self.assertEqual([d['target'] for d in r['denials']], ['/usr/denied'])
        r = call('apply_patch', input=PATCH)
        self.assertEqual([x['kind'] for x in r['changes']], ['add'])
        with open(os.path.join(self.work, 'new.txt')) as f:
            self.assertEqual(f.read(), 'text\n')

    def check_errors(self, kind, over):
        """What a model can mend is a result; an unknown tool is an error of the protocol."""
        c = self.client(kind, over)
        r = c.call('write_stdin', session_id=4711)
        self.assertTrue(r.failed)
        self.assertIn('4711', r.text)
        r = c.call('exec_command')
        self.assertTrue(r.failed, r)
        r = c.call('exec_command', cmd=7)
        self.assertTrue(r.failed, r)
        with self.assertRaises(sdk.Failed) as e:
            c.call('no_such_tool')
        self.assertEqual(e.exception.code, -32602)
        self.assertEqual(c.run('echo still here')['output'], 'still here\n')

    def check_big_output(self, kind, over):
        """More than any of the buffers between, whole by reading on, and not ASCII."""
        c = self.client(kind, over)
        r = c.run('i=0; while [ $i -lt 20000 ]; do echo "$i äöü€"; i=$((i+1)); done', until={'exit': True},
                  yield_time_ms=30000)
        self.assertEqual(r['exit_code'], 0)
        whole = ''.join('%d äöü€\n' % i for i in range(20000))
        self.assertEqual(r['next_byte'], len(whole.encode()))
        (session,) = [s['session_id'] for s in c.call('list_sessions')['sessions']]
        at, read = 0, ''
        while at < len(whole.encode()):
            r = c.call('read_output', session_id=session, from_byte=at, limit=65536)
            read, at = read + r['output'], r['next_byte']
        self.assertEqual(read, whole)


if __name__ == '__main__':
    tap.main()
