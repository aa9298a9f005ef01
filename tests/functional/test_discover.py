# SPDX-License-Identifier: Apache-2.0
"""capabilityRoots/discoverV1: plugins and skills below the roots of a request."""

import os
import shutil
import tempfile

import tap
from sandbox_policy import (MINIMAL, ROOT, context, has_namespaces, outside_of_tmp, pattern, place, read_only,
                            restricted)
from server import Case, ours_only
from wire import file_uri

MIB = 1 << 20


class DiscoverCase(Case):
    def setUp(self):
        super().setUp()
        self.base = self.ground()
        self.srv = self.server()
        self.c = self.srv.session()

    def ground(self):
        return self.scratch()

    def put(self, path, data='x'):
        path = os.path.join(self.base, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as f:
            f.write(data if isinstance(data, bytes) else data.encode())

    def at(self, path):
        return file_uri(os.path.join(self.base, path))

    def file(self, path, contents):
        return {'path': self.at(path), 'contents': contents}

    def look(self, *roots):
        return self.c.request('capabilityRoots/discoverV1', {'roots': list(roots)})['roots']

    def root(self, name, **more):
        answer, = self.look(dict({'id': name, 'path': self.at(name)}, **more))
        self.assertEqual((answer['id'], answer['path']), (name, self.at(name)))
        self.assertEqual(list(answer), ['id', 'path', 'plugin', 'skills', 'namespaceManifests', 'warnings', 'error'])
        return answer

    def skills(self, answer):
        return [skill['instructions']['path'] for skill in answer['skills']]


class Plugins(DiscoverCase):
    def test_the_first_manifest_counts(self):
        names = ['.codex-plugin', '.claude-plugin', '.cursor-plugin']
        for i, name in enumerate(names):
            for other in names[i:]:
                self.put('p%d/%s/plugin.json' % (i, other), '{"n":"%s"}' % other)
            path = 'p%d/%s/plugin.json' % (i, name)
            answer = self.root('p%d' % i)
            self.assertEqual(answer['plugin'], {'manifest': self.file(path, '{"n":"%s"}' % name), 'mcpConfig': None, 'appsConfig': None})
            self.assertEqual(answer['namespaceManifests'], [answer['plugin']['manifest']])

    def config(self, servers, apps='null'):
        self.put('p/.codex-plugin/plugin.json', '{"mcpServers":%s,"apps":%s}' % (servers, apps))
        answer = self.root('p')
        found = [answer['plugin'][name] and answer['plugin'][name]['path'] for name in ('mcpConfig', 'appsConfig')]
        return found, answer['warnings']

    def test_what_a_manifest_names(self):
        self.put('p/.mcp.json', '{"usual":1}')
        self.put('p/sub/m.json', '{"named":1}')
        self.put('p/a b%?#', 'odd')
        usual, named = self.at('p/.mcp.json'), self.at('p/sub/m.json')
        manifest = self.at('p/.codex-plugin/plugin.json')
        self.assertEqual(self.config('null'), ([usual, None], []))
        self.assertEqual(self.config('{}', '"./sub/m.json"'), ([None, named], []))
        self.assertEqual(self.config('"./sub//./m.json"', '{}'), ([named, None], []))
        self.assertEqual(self.config('"./a b%?#"'), ([self.at('p/a b%?#'), None], []))
        self.assertEqual(self.config('"./gone.json"', '"./sub"'), ([None, None], []))
        for value in ('[]', '1', 'true'):
            self.assertEqual(self.config(value, value), ([usual, None], []))
        for value in ('"sub/m.json"', '"/etc/passwd"', '""', '"../p/sub/m.json"'):
            self.assertEqual(self.config(value, value), ([usual, None], [
                'ignoring %s in %s: path must start with `./`' % (name, manifest) for name in ('mcpServers', 'apps')]))
        for value in ('"./"', '"./../p/sub/m.json"', '"./sub/../sub/m.json"', '"./sub\\\\..\\\\m.json"', '".//etc/passwd"', '"./a\\u0000b"'):
            self.assertEqual(self.config(value), ([usual, None], [
                'ignoring mcpServers in %s: path must remain below the capability root' % manifest]), value)

    def test_a_manifest_that_is_no_json(self):
        self.put('p/.mcp.json', '{}')
        for text in ('', 'x', '{', '[]', '"./x"', '{"mcpServers":"./x"} y', '[' * 100000):
            self.put('p/.codex-plugin/plugin.json', text)
            answer = self.root('p')
            self.assertEqual(answer['plugin'], {'manifest': self.file('p/.codex-plugin/plugin.json', text),
                                                'mcpConfig': self.file('p/.mcp.json', '{}'), 'appsConfig': None})

    def test_manifests_of_others(self):
        self.put('p/.claude-plugin/plugin.json', '{"up":1}')
        for path in ('p/x/y/b/.codex-plugin', 'p/x/y/b/.cursor-plugin', 'p/x/y/a/.cursor-plugin', 'p/x/y/a/z/.claude-plugin', 'p/x/y/.codex'):
            self.put(path + '/plugin.json', '{}')
        answer = self.root('p/x/y')  # what is above names it, and is not its plugin
        self.assertIsNone(answer['plugin'])
        self.assertEqual([f['path'] for f in answer['namespaceManifests']], [self.at(p + '/plugin.json') for p in (
            'p/.claude-plugin', 'p/x/y/a/.cursor-plugin', 'p/x/y/a/z/.claude-plugin', 'p/x/y/b/.codex-plugin')])

    def test_what_is_no_file_is_not_there(self):
        os.makedirs(self.base + '/p/.codex-plugin/plugin.json')
        os.makedirs(self.base + '/p/.claude-plugin')
        os.mkfifo(self.base + '/p/.claude-plugin/plugin.json')
        self.put('p/.cursor-plugin/plugin.json', '{}')
        answer = self.root('p')
        self.assertEqual((answer['plugin']['manifest'], answer['warnings']), (self.file('p/.cursor-plugin/plugin.json', '{}'), []))


class Skills(DiscoverCase):
    def test_skills_in_order(self):
        self.put('r/b/SKILL.md', 'b "\\\u2028\t')
        self.put('r/b/agents/openai.yaml', 'y: 1\n')
        self.put('r/a c/SKILL.md', '')
        self.put('r/.h/SKILL.md', 'h')
        self.put('r/SKILL.md', 'r')
        self.put('r/Z/skill.md', 'no')
        self.put('r/Z/NOSKILL.md', 'no')
        answer = self.root('r')
        self.assertEqual(answer['skills'], [
            {'instructions': self.file('r/.h/SKILL.md', 'h'), 'metadata': None},
            {'instructions': self.file('r/SKILL.md', 'r'), 'metadata': None},
            {'instructions': self.file('r/a c/SKILL.md', ''), 'metadata': None},
            {'instructions': self.file('r/b/SKILL.md', 'b "\\\u2028\t'), 'metadata': self.file('r/b/agents/openai.yaml', 'y: 1\n')}])
        self.assertEqual((answer['warnings'], answer['error'], answer['plugin'], answer['namespaceManifests']), ([], None, None, []))

    def test_links_are_followed_and_not_for_ever(self):
        self.put('r/a/SKILL.md', 'a')
        os.symlink('a', self.base + '/r/b')
        os.symlink('.', self.base + '/r/loop')
        os.makedirs(self.base + '/r/dead')
        os.symlink('nowhere', self.base + '/r/dead/SKILL.md')
        answer = self.root('r')
        self.assertIsNone(answer['error'])
        self.assertIn(self.at('r/a/SKILL.md'), self.skills(answer))
        self.assertLess(len(answer['skills']), 20)

    def test_depth(self):
        self.put('r/1/2/3/4/5/SKILL.md', '5')
        self.put('r/1/2/3/4/5/6/SKILL.md', '6')
        self.put('r/1/2/3/4/5/6/7/SKILL.md', '7')
        self.assertEqual(self.skills(self.root('r')), [self.at('r/1/2/3/4/5/6/SKILL.md'), self.at('r/1/2/3/4/5/SKILL.md')])

    def test_too_many_directories(self):
        for i in range(2001):
            os.makedirs('%s/r/d%04d' % (self.base, i))
        self.assertEqual(self.root('r')['warnings'], ['capability scan reached its traversal limit (root: %s)' % self.at('r')])

    def test_bytes_that_are_no_text(self):
        whys = {b'abc\xff': 'invalid utf-8 sequence of 1 bytes from index 3', b'\xc3': 'incomplete utf-8 byte sequence from index 0',
                b'ab\xe2\x82': 'incomplete utf-8 byte sequence from index 2', b'\xe2\x82a': 'invalid utf-8 sequence of 2 bytes from index 0',
                b'\xed\xa0\x80': 'invalid utf-8 sequence of 1 bytes from index 0', b'a\xf0\x9f\x98x': 'invalid utf-8 sequence of 3 bytes from index 1',
                b'\x80': 'invalid utf-8 sequence of 1 bytes from index 0'}
        for i, data in enumerate(whys):
            self.put('r/%d/SKILL.md' % i, data)
        answer = self.root('r')
        self.assertEqual(answer['skills'], [])
        self.assertEqual(answer['warnings'], ['capability file %s is not UTF-8: %s' % (self.at('r/%d/SKILL.md' % i), why)
                                              for i, why in enumerate(whys.values())])

    def test_large_files(self):
        self.put('r/a/SKILL.md', 'a' * MIB)
        self.put('r/b/SKILL.md', 'b' * (MIB + 1))
        answer = self.root('r')
        self.assertEqual(self.skills(answer), [self.at('r/a/SKILL.md')])
        self.assertEqual(answer['warnings'], ['capability file %s exceeds the 1048576-byte limit' % self.at('r/b/SKILL.md')])

    def test_a_large_bundle(self):
        for i in range(18):
            self.put('r/%02d/SKILL.md' % i, 'x' * MIB)
        self.put('r/99/SKILL.md', '')
        answer = self.root('r')
        self.assertEqual(self.skills(answer), [self.at('r/%02d/SKILL.md' % i) for i in [*range(16), 99]])
        self.assertEqual(answer['warnings'], ['capability root bundle exceeds the 16777216-byte limit'] * 2)

    @ours_only
    def test_a_whole_answer_is_bounded(self):
        for root in range(4):
            for i in range(14):
                self.put('r%d/%02d/SKILL.md' % (root, i), 'x' * MIB)
        roots = self.look(*[{'id': str(i), 'path': self.at('r%d' % i)} for i in range(4)])
        files = [len(s['instructions']['contents']) for r in roots for s in r['skills']]
        left = [w for r in roots for w in r['warnings']]
        self.assertEqual(len(files) + len(left), 56)
        self.assertLessEqual(sum(files), 48 * MIB)
        self.assertGreater(sum(files), 40 * MIB)
        for text in left:
            self.assertRegex(text, r'^capability discovery exceeds the limit of one answer \(file: file:///.*SKILL.md\)$')
        self.assertEqual(self.root('r0')['warnings'], [])  # what was held is given back


class Roots(DiscoverCase):
    def test_what_is_wrong_is_of_one_root(self):
        self.put('good/SKILL.md', 's')
        self.put('file', '')
        roots = self.look({'id': 'm', 'path': self.at('missing')}, {'id': 'g', 'path': self.at('good'), 'sandbox': None},
                          {'id': 'f', 'path': self.at('file')}, {'id': 'u', 'path': 'file://host/x'}, {'id': 'g', 'path': self.at('good')})
        self.assertEqual([r['id'] for r in roots], ['m', 'g', 'f', 'u', 'g'])
        self.assertEqual([r['error'] for r in roots], [
            'failed to inspect capability root %s: No such file or directory (os error 2)' % self.at('missing'), None,
            'capability root %s is not a directory' % self.at('file'),
            "failed to inspect capability root file://host/x: 'file://host/x' is invalid on 'linux'", None])
        self.assertEqual(roots[1], roots[4])

    def test_slashes_at_the_end(self):
        self.put('r/SKILL.md', 's')
        for end in ('', '/', '/.'):
            answer, = self.look({'id': '', 'path': self.at('r') + end})
            self.assertEqual(self.skills(answer), [self.at('r/SKILL.md')])

    def test_many_roots(self):
        for i in range(128):
            self.put('r%d/SKILL.md' % i, str(i))
        roots = [{'id': str(i), 'path': self.at('r%d' % i)} for i in range(128)]
        answers = self.look(*roots)
        self.assertEqual([(r['id'], r['skills'][0]['instructions']['contents']) for r in answers], [(str(i), str(i)) for i in range(128)])
        error = self.c.error('capabilityRoots/discoverV1', {'roots': [*roots, roots[0]]})
        self.assertError(error, -32600, 'capability root discovery accepts at most 128 roots')
        self.assertEqual(self.look(), [])

    def test_params(self):
        good = {'id': 'x', 'path': self.at('r')}
        for params, text in (({}, 'missing field `roots`'), ({'roots': None}, None), ({'roots': [1]}, None), ({'roots': [{}]}, 'missing field `id`'),
                             ({'roots': [{'id': 'x'}]}, 'missing field `path`'), ({'roots': [dict(good, id=1)]}, None),
                             ({'roots': [dict(good, path='x')]}, None), ({'roots': [dict(good, sandbox=1)]}, None),
                             ({'roots': [dict(good, sandbox={})]}, None), ({'roots': [good, dict(good, sandbox=[])]}, None)):
            self.assertError(self.c.error('capabilityRoots/discoverV1', params), -32602, text)
        self.assertEqual(len(self.look(dict(good, future=[1]), good)), 2)

    @ours_only
    def test_other_requests_are_not_held_up(self):
        for i in range(500):
            self.put('r/%d/SKILL.md' % i, 'x' * 2000)
        self.c.send({'id': 900, 'method': 'capabilityRoots/discoverV1', 'params': {'roots': [{'id': 'x', 'path': self.at('r')}] * 8}})
        self.assertEqual(self.c.request('environment/status'), {'status': 'ready'})
        self.assertFalse(self.c.answered(900))
        self.assertEqual([len(r['skills']) for r in self.c.result(900)['roots']], [500] * 8)

    def test_a_client_that_goes_is_not_waited_for(self):
        for i in range(100):
            self.put('r/%d/SKILL.md' % i)
        for _ in range(10):
            c = self.srv.session()
            c.send({'id': 7, 'method': 'capabilityRoots/discoverV1', 'params': {'roots': [{'id': 'x', 'path': self.at('r')}] * 20}})
            c.close()
        self.assertEqual(len(self.root('r')['skills']), 100)


class Confined(DiscoverCase):
    def ground(self):
        path = tempfile.mkdtemp(prefix='sallyport-test-', dir=outside_of_tmp())
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def setUp(self):
        super().setUp()
        if not has_namespaces():
            self.skipTest('no namespaces here')
        self.put('a/.codex-plugin/plugin.json', '{}')
        self.put('a/open/SKILL.md', 's')
        self.put('a/secret/SKILL.md', 't')
        self.put('b/SKILL.md', 'b')

    def test_each_root_has_its_own(self):
        only_a = context(restricted([MINIMAL, place(self.base + '/a', 'read')]), self.base)
        a, b, free = self.look({'id': 'a', 'path': self.at('a'), 'sandbox': only_a}, {'id': 'b', 'path': self.at('b'), 'sandbox': only_a},
                               {'id': 'free', 'path': self.at('b')})
        self.assertEqual((len(a['skills']), a['error'], a['warnings']), (2, None, []))
        self.assertEqual(b['error'], 'failed to inspect capability root %s: No such file or directory (os error 2)' % self.at('b'))
        self.assertEqual(len(free['skills']), 1)

    def test_what_is_denied_is_a_warning(self):
        answer = self.root('a', sandbox=context(restricted([ROOT, place(self.base + '/a/secret', 'deny')]), self.base))
        self.assertEqual(self.skills(answer), [self.at('a/open/SKILL.md')])
        self.assertEqual(answer['warnings'], ['failed to scan capability path %s: Permission denied (os error 13)' % self.at('a/secret')])
        answer = self.root('a', sandbox=context(restricted([ROOT, pattern(self.base + '/**/SKILL.md')]), self.base))
        self.assertEqual(answer['skills'], [])
        self.assertEqual(answer['warnings'], ['failed to read capability file %s: Permission denied (os error 13)' % self.at(p)
                                              for p in ('a/open/SKILL.md', 'a/secret/SKILL.md')])
        self.assertEqual(len(self.root('a', sandbox=read_only(self.base))['skills']), 2)


@ours_only
class Executor(DiscoverCase):
    """capabilities/discoverV2: not advertised, and never wrong."""

    def test_nothing_is_told(self):
        nothing = {'plugins': [], 'skills': [], 'warnings': []}
        self.assertEqual(self.c.request('capabilities/discoverV2', {'cwd': file_uri(self.base)}), nothing)
        self.assertEqual(self.c.request('capabilities/discoverV2', {'cwd': 'file:///x', 'sandbox': None, 'future': 1}), nothing)
        self.assertError(self.c.error('capabilities/discoverV2', {}), -32602, 'missing field `cwd`')
        self.assertError(self.c.error('capabilities/discoverV2', {'cwd': 'file:///x', 'sandbox': 1}), -32602)
        flags = self.c.request('environment/info')['capabilities']
        self.assertEqual((flags.get('capabilityDiscoveryV2', False), flags['capabilityDiscoverySandbox'], flags['environmentConfigRead']),
                         (False, True, True))


if __name__ == '__main__':
    tap.main()
