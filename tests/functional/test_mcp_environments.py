# SPDX-License-Identifier: Apache-2.0
"""Several environments of one MCP server: --on given again, and environment_id in the tools."""

import os
import shutil
import subprocess
import tempfile

import mcp
import server
import tap
from mcp import FORM

SESSION = {'action': 'accept', 'content': {'decision': 'session'}}


class Several(mcp.Case):
    def setUp(self):
        super().setUp()
        # Neither below /tmp nor TMPDIR, which the workspace mode makes writable.
        self.there = os.path.realpath(tempfile.mkdtemp(prefix='sallyport-environments-', dir='/var/tmp'))
        self.addCleanup(shutil.rmtree, self.there, True)
        self.servers = {}
        text = ''
        for name in ('blue', 'green'):
            os.mkdir(os.path.join(self.there, name))
            one = server.Server(listen='unix://' + os.path.join(self.base, name))
            self.addCleanup(one.stop)
            self.servers[name] = one
            text += '[environments.%s]\nurl = "%s"\ncwd = "%s/%s"\n' % (name, one.url, self.there, name)
        text += '[environments.gone]\nurl = "unix://%s/nothing"\ncwd = "/gone"\nconnect_timeout_s = 1\n' % self.base
        text += '[environments.vague]\nurl = "unix://%s/nothing"\n' % self.base
        self.configure(text)

    def configure(self, text):
        self.config = os.path.join(self.home, 'sallyport.conf')
        with open(self.config, 'w') as f:
            f.write(text)
        os.chmod(self.config, 0o600)

    def begin(self, *flags, names=('local', 'blue', 'green'), **more):
        return self.mcp(*[w for n in names for w in ('--on', n)], *flags, **more)

    def where(self, host, **more):
        return host.exec('pwd', **more)['output'].strip()

    def test_each_in_its_directory(self):
        host = self.begin()
        self.assertEqual(self.where(host), self.work)
        self.assertEqual(self.where(host, environment_id='local'), self.work)
        for name in ('blue', 'green'):
            self.assertEqual(self.where(host, environment_id=name), os.path.join(self.there, name))
        r = host.exec('pwd', environment_id='red')
        self.assertTrue(r.failed)
        self.assertIn('unknown turn environment id `red`', r.text)

    def test_it_is_published_only_if_there_are_several(self):
        def names(host):
            return {t['name'] for t in host.modern('tools/list')['result']['tools'] if 'environment_id' in t['inputSchema']['properties']}
        self.assertEqual(names(self.mcp()), set())
        host = self.begin()
        self.assertEqual(names(host), {'exec_command', 'apply_patch', 'explain_denial'})
        said = host.ask('initialize', {'protocolVersion': mcp.LEGACY[0], 'capabilities': {}, 'clientInfo': {
            'name': 't', 'version': '1'}})['result']['instructions']
        for words in ('blue (%s/blue)' % self.there, 'green (%s/green)' % self.there):
            self.assertIn(words, said)

    def test_each_is_confined_to_its_own_workspace(self):
        host = self.begin('--approve', 'never')
        for name, path in (('local', self.work), ('blue', self.there + '/blue'), ('green', self.there + '/green')):
            r = host.run('echo x > made && echo done', login=False, environment_id=name)
            self.assertEqual((r['exit_code'], r['output']), (0, 'done\n'), r)
            self.assertTrue(os.path.exists(os.path.join(path, 'made')))
        r = host.exec('touch', self.there + '/green/planted', environment_id='blue')
        self.assertNotEqual(r['exit_code'], 0)
        self.assertFalse(os.path.exists(self.there + '/green/planted'))

    def test_sessions_do_not_mix(self):
        host = self.begin()
        ids = {}
        for name in ('local', 'blue', 'green'):
            r = host.exec('sh', '-c', 'read x; echo "%s got $x"' % name, tty=True, environment_id=name, yield_time_ms=250)
            ids[name] = r['session_id']
        self.assertEqual(len(set(ids.values())), 3)
        listed = {s['session_id']: s['environment_id'] for s in host.call('list_sessions')['sessions']}
        self.assertEqual(listed, {v: k for k, v in ids.items()})
        for name, session in ids.items():
            self.assertIn('%s got it' % name, host.type(session, 'it\n', until={'exit': True})['output'])

    def test_patches(self):
        host = self.begin()
        add = '*** Begin Patch\n*** Add File: new\n+x\n*** End Patch\n'
        r = host.call('apply_patch', {'input': add, 'environment_id': 'blue'})
        self.assertFalse(r.failed, r)
        self.assertEqual(r['changes'], [{'path': self.there + '/blue/new', 'kind': 'add'}])
        self.assertTrue(os.path.exists(self.there + '/blue/new'))
        self.assertEqual((os.listdir(self.there + '/green'), os.listdir(self.work)), ([], []))
        r = host.call('apply_patch', {'input': add.replace('*** Add', '*** Environment ID: green\n*** Add'), 'environment_id': 'blue'})
        self.assertTrue(r.failed)
        self.assertIn('the patch is for environment `green`, and the command for `blue`', r.text)

    def test_an_approval_counts_for_one(self):
        host = self.begin('--approve', 'untrusted')
        arguments = {'argv': ['sh', '-c', 'echo x > approved']}

        def asked(name):
            full = {**arguments, 'environment_id': name}
            r = host.call('exec_command', full, capabilities=FORM)
            if r.kind != 'input_required':
                self.assertFalse(r.failed, r)
                return False
            (key, question), = r.result['inputRequests'].items()
            self.assertIn('environment: ' + name, question['params']['message'])
            r = host.call('exec_command', full, capabilities=FORM, state=r.result['requestState'], responses={key: SESSION})
            self.assertFalse(r.failed, r)
            return True
        self.assertEqual([asked('blue'), asked('blue'), asked('green'), asked('green'), asked('blue')], [True, False, True, False, False])

    def test_denials_are_explained_by_the_policy_of_each(self):
        host = self.begin('--approve', 'never')
        r = host.call('explain_denial', {'path': self.work + '/x'})
        self.assertIn('write: yes', r.text)
        r = host.call('explain_denial', {'path': self.there + '/blue/x', 'environment_id': 'blue'})
        self.assertTrue(r.failed)
        self.assertIn('on another host', r.text)
        self.assertTrue(host.call('explain_denial', {'path': '/x', 'environment_id': 'red'}).failed)

    def test_one_that_is_gone_does_not_stop_the_others(self):
        host = self.begin(names=('local', 'gone', 'blue'))
        late = host.call_later('exec_command', {'argv': ['pwd'], 'environment_id': 'gone'})
        self.assertEqual(self.where(host), self.work)
        self.assertEqual(self.where(host, environment_id='blue'), self.there + '/blue')
        self.assertTrue(host.result(late).failed)

    def test_a_server_first(self):
        host = self.begin(names=('blue', 'green'))
        self.assertEqual(self.where(host), self.there + '/blue')
        self.assertEqual(self.where(host, environment_id='green'), self.there + '/green')

    def test_what_cannot_be(self):
        for names, words in ((('local', 'local'), 'is given twice'), (('blue', 'local'), 'give `local` as the first'),
                             (('local', self.servers['blue'].url), 'told apart by name'), (('local', 'red'), '`red` is neither `local`'),
                             (('local', 'vague'), 'give its directory as `cwd` in [environments.vague]')):
            p = subprocess.run([server.PROGRAM, 'mcp', *[w for n in names for w in ('--on', n)]], cwd=self.work, env=self.environ(),
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            self.assertNotEqual(p.returncode, 0, names)
            self.assertIn(words, p.stderr.decode(), names)


if __name__ == '__main__':
    tap.main()
