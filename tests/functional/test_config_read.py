# SPDX-License-Identifier: Apache-2.0
"""environmentConfig/read: what of this machine's Codex configuration is told, and what is said when it cannot be."""

import os
import shutil
import subprocess
import time

import tap
from server import Case, ours_only
from wire import file_uri

CONFIG = '''model = "x"   # a comment
[mcp_servers.docs]
url = 'https://docs.example/mcp'
http_headers = { "X-Key" = "k", A = "b" }
[mcp_servers.local]
command = "serve"
args = ["--port", "1", 'a"b']
startup_timeout_sec = 1e1
[other]
k = 1_000
'''
SERVERS = '''[mcp_servers.docs]
url = "https://docs.example/mcp"

[mcp_servers.docs.http_headers]
X-Key = "k"
A = "b"

[mcp_servers.local]
command = "serve"
args = ["--port", "1", 'a"b']
startup_timeout_sec = 10.0
'''
LOAD = 'failed to load executor-local config: '
HOME = 'failed to find Codex home: '


class ConfigCase(Case):
    def setUp(self):
        super().setUp()
        self.home = os.path.join(self.scratch(), 'codex home')
        os.mkdir(self.home)
        self.file = os.path.join(self.home, 'config.toml')

    def begin(self, **how):
        how.setdefault('env', {'CODEX_HOME': self.home})
        self.srv = self.server(**how)
        self.c = self.srv.session()
        return self.c

    def put(self, text, path=None):
        with open(path or self.file, 'w' if isinstance(text, str) else 'wb') as f:
            f.write(text)

    def read(self, *config, requirements=(), cwd='file:///nowhere'):
        return self.c.request('environmentConfig/read', {'cwd': cwd, 'configPaths': list(config),
                                                         'requirementsPaths': list(requirements)})

    def layers(self, *config, **more):
        return [layer['toml'] for layer in self.read(*config, **more)['config']['layers']]

    def refused(self, code, message, **params):
        asked = {'cwd': 'file:///nowhere', 'configPaths': [['a']], 'requirementsPaths': [], **params}
        error = self.c.error('environmentConfig/read', {k: v for k, v in asked.items() if v is not ...})
        self.assertError(error, code, message)


class Answers(ConfigCase):
    def test_a_layer_has_what_was_asked_for(self):
        self.put(CONFIG)
        self.begin()
        answer = self.read(['mcp_servers'], requirements=[['mcp_servers']])
        self.assertEqual(answer, {
            'userHomeDir': file_uri(self.srv.home), 'codexHomeDir': file_uri(self.home), 'hostname': os.uname().nodename,
            'config': {'layers': [{'source': 'user (%s)' % self.file, 'baseDir': file_uri(self.home), 'toml': SERVERS}],
                       'cloudInsertionIndex': 0},
            'requirements': {'layers': [], 'cloudInsertionIndex': 0}})
        self.assertEqual(list(answer), ['userHomeDir', 'codexHomeDir', 'hostname', 'config', 'requirements'])

    def test_paths_choose(self):
        self.put(CONFIG)
        self.begin()
        self.assertEqual(self.layers(['model'], ['other', 'k']), ['model = "x"\n\n[other]\nk = 1000\n'])
        self.assertEqual(self.layers(['mcp_servers', 'docs', 'url']), ['[mcp_servers.docs]\nurl = "https://docs.example/mcp"\n'])
        self.assertEqual(self.layers(['model', 'below']), ['model = "x"\n'])
        self.assertEqual(self.layers(['mcp_servers', 'nobody']), ['[mcp_servers]\n'])
        self.assertEqual(self.layers(['nobody']), [])
        self.assertEqual(self.layers(requirements=[['mcp_servers']]), [])

    def test_changes_are_seen(self):
        self.begin()
        self.assertEqual(self.layers(['a']), [])
        for i in range(3):
            self.put('a = %d\n' % i)
            self.assertEqual(self.layers(['a']), ['a = %d\n' % i])
        os.remove(self.file)
        self.assertEqual(self.layers(['a']), [])

    def test_homes(self):
        os.symlink(self.home, self.home + '2')
        self.put('a = 1\n')
        self.begin(env={'CODEX_HOME': self.home + '2'})
        self.assertEqual(self.read(['a'])['codexHomeDir'], file_uri(self.home))
        self.begin(env={'CODEX_HOME': ''})  # as if it were not set: need not be there
        answer = self.read(['a'])
        self.assertEqual((answer['codexHomeDir'], answer['config']['layers']), (file_uri(self.srv.home + '/.codex'), []))
        os.makedirs(self.srv.home + '/.codex', exist_ok=True)
        self.put('a = 2\n', self.srv.home + '/.codex/config.toml')
        self.assertEqual(self.layers(['a']), ['a = 2\n'])
        self.begin(env={'CODEX_HOME': 'codex home'}, cwd=os.path.dirname(self.home))
        self.assertEqual(self.layers(['a']), ['a = 1\n'])

    def test_many_paths(self):
        self.put(''.join('k%d = %d\n' % (i, i) for i in range(5000)))
        self.begin()
        began = time.monotonic()
        answer = self.layers(*[['k%d' % i] for i in range(0, 100000, 2)])
        self.assertEqual(answer[0].count('\n'), 2500)
        self.assertLess(time.monotonic() - began, 20)

    @ours_only
    def test_a_byte_order_mark(self):
        self.put('\ufeffa = 1\n'.encode())
        self.begin()
        self.assertEqual(self.layers(['a']), ['a = 1\n'])


class Refusals(ConfigCase):
    def test_params(self):
        self.begin()
        self.refused(-32602, 'at least one config or requirements path is required', configPaths=[])
        self.refused(-32602, 'TOML paths must contain at least one key segment', configPaths=[['a'], []])
        self.refused(-32602, 'TOML paths must contain at least one key segment', requirementsPaths=[[]])
        self.refused(-32602, 'at least one config or requirements path is required', configPaths=[], cwd='file://host/x')
        self.refused(-32602, "'file://host/x' is invalid on 'linux'", cwd='file://host/x')
        self.refused(-32602, None, cwd='x')
        for name in ('cwd', 'configPaths', 'requirementsPaths'):
            self.refused(-32602, 'missing field `%s`' % name, **{name: ...})
            self.refused(-32602, None, **{name: None})
            self.refused(-32602, None, **{name: 1})
        self.refused(-32602, None, configPaths=['a'])
        self.refused(-32602, None, configPaths=[[1]])
        self.assertEqual(self.c.request('environment/status'), {'status': 'ready'})

    def test_files(self):
        self.begin()
        self.put('a = \n')
        self.refused(-32603, None)
        self.put(b'a = "\xff"\n')
        self.refused(-32603, None)
        os.remove(self.file)
        os.symlink('config.toml', self.file)
        self.refused(-32603, LOAD + 'Failed to read config file %s: Symbolic link loop (os error 40)' % self.file)
        os.remove(self.file)
        for make in (os.mkdir, os.mkfifo):
            make(self.file)
            self.refused(-32603, None)
            os.rmdir(self.file) if make is os.mkdir else os.remove(self.file)
        self.put('a = 1\n')
        self.assertEqual(self.layers(['a']), ['a = 1\n'])
        if os.getuid() != 0:
            os.chmod(self.file, 0)
            self.refused(-32603, LOAD + 'Failed to read config file %s: Permission denied (os error 13)' % self.file)

    def test_a_home_that_went(self):
        self.begin()
        os.rename(self.home, self.home + '2')
        self.refused(-32603, HOME + 'CODEX_HOME points to "%s", but that path does not exist' % self.home)
        self.put('', self.home)
        self.refused(-32603, HOME + 'CODEX_HOME points to "%s", but that path is not a directory' % self.home)
        os.remove(self.home)
        os.rename(self.home + '2', self.home)
        self.assertEqual(self.layers(['a']), [])

    @ours_only
    def test_bounds(self):
        self.begin()
        self.put('a = 1\n' + '#' * (1 << 20))
        self.refused(-32603, LOAD + 'Failed to read config file %s: it has more than 1048576 bytes' % self.file)
        self.put('a = 1\n' + '#' * ((1 << 20) - 6))
        self.assertEqual(self.layers(['a']), ['a = 1\n'])
        self.put('a.%s = {%s}\n' % ('n' * 100000, ', '.join('k%d = {}' % i for i in range(1000))))
        self.refused(-32603, 'failed to serialize executor-local config: what was asked for of %s has more than 4194304 bytes' % self.file)

    @ours_only
    def test_what_is_wrong_is_named(self):
        self.begin()
        self.put('a = 1\na = 2\n')
        self.refused(-32603, LOAD + '%s: line 2, column 1: `a` is defined already' % self.file)

    def test_a_client_that_goes_is_not_waited_for(self):
        self.put('a = 1\n')
        self.begin()
        for _ in range(20):
            c = self.srv.session()
            c.send({'id': 7, 'method': 'environmentConfig/read',
                    'params': {'cwd': 'file:///x', 'configPaths': [['a']], 'requirementsPaths': []}})
            c.close()
        self.assertEqual(self.layers(['a']), ['a = 1\n'])


@ours_only
class System(ConfigCase):
    """With an /etc of its own: a mount namespace, where one can be had."""

    def begin_with(self, **files):
        etc = os.path.join(self.scratch(), 'etc')
        shutil.copytree('/etc', etc, symlinks=True, ignore_dangling_symlinks=True,
                        ignore=lambda d, names: [n for n in names if not os.access(os.path.join(d, n), os.R_OK) or n == 'codex'])
        os.mkdir(etc + '/codex')
        for name, text in files.items():
            self.put(text, '%s/codex/%s.toml' % (etc, name))
        prefix = ['unshare', '-m'] if os.getuid() == 0 else ['unshare', '-r', '-m']
        prefix += ['sh', '-c', 'mount --bind "$0" /etc && exec "$@"', etc]
        if subprocess.run([*prefix, 'true'], stderr=subprocess.DEVNULL).returncode != 0:
            return False
        self.begin(prefix=prefix)
        return True

    def test_layers_from_lowest_to_highest(self):
        self.put('[mcp_servers.u]\n')
        if not self.begin_with(config='[mcp_servers.s]\n', managed_config='[mcp_servers.m]\nx = 1\n[y]\n',
                               requirements='[mcp_servers.s.identity]\nurl = "u"\n'):
            print('# no mount namespaces here')
            return
        answer = self.read(['mcp_servers'], requirements=[['mcp_servers']])
        self.assertEqual([(layer['source'], layer['baseDir'], layer['toml']) for layer in answer['config']['layers']], [
            ('system (/etc/codex/config.toml)', 'file:///etc/codex', '[mcp_servers.s]\n'),
            ('user (%s)' % self.file, file_uri(self.home), '[mcp_servers.u]\n'),
            ('legacy managed_config.toml (/etc/codex/managed_config.toml)', 'file:///etc/codex', '[mcp_servers.m]\nx = 1\n')])
        self.assertEqual(answer['config']['cloudInsertionIndex'], 1)
        self.assertEqual(answer['requirements'], {'layers': [
            {'source': '/etc/codex/requirements.toml', 'baseDir': 'file:///etc/codex', 'toml': '[mcp_servers.s.identity]\nurl = "u"\n'}],
            'cloudInsertionIndex': 1})
        answer = self.read(['y'])
        self.assertEqual((len(answer['config']['layers']), answer['config']['cloudInsertionIndex']), (1, 0))

    def test_requirements_that_cannot_be_read_are_not_none(self):
        if not self.begin_with(requirements='a = \n'):
            print('# no mount namespaces here')
            return
        self.refused(-32603, None, requirementsPaths=[['a']])
        self.assertEqual(self.layers(['a']), [])


if __name__ == '__main__':
    tap.main()
