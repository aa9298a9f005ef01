# SPDX-License-Identifier: Apache-2.0
"""Patches that a model asks for: they are held against the files under its profile, and what is
applied is what was shown."""

import json
import os
import shutil
import tempfile
import time

import agent
from agent import Case
from sandbox_policy import special

FAILED = 'apply_patch verification failed: '
SECRET = 'hunter2-is-the-word'
RETRY = 'command failed; retry without sandbox?'
WORKSPACE = [special('root', 'read'), special('project_roots', 'write')]
OUTSIDE = 'patch rejected: writing outside of the project; rejected by user approval settings'
READ_ONLY = 'patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings'


def native(path, access):
    return {'path': {'type': 'path', 'path': path}, 'access': access}


def patch(*lines, cd=''):
    return '\n'.join((cd + "apply_patch <<'EOF'", '*** Begin Patch', *lines, '*** End Patch', 'EOF'))


def update(path, old, new='changed'):
    return patch('*** Update File: ' + path, '@@', '-' + old, '+' + new)


class Patches(Case):
    backend = 'local'

    def scratch(self, where=None):
        path = tempfile.mkdtemp(prefix='sallyport-patch-', dir=where)
        self.addCleanup(shutil.rmtree, path, True)
        return os.path.realpath(path)

    def begin(self, policy, *entries, sandbox=None, flags=(), **how):
        """An agent under a mode, or under a profile of these entries."""
        # the program that works on a patch in a sandbox cannot look for leaks there
        env = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', 'abort_on_error=1') + ':detect_leaks=0'}
        where = ['--sandbox', sandbox]
        if sandbox is None:
            file = os.path.join(self.scratch(), 'profile.json')
            with open(file, 'w') as f:
                json.dump({'type': 'managed', 'network': 'restricted',
                           'file_system': {'type': 'restricted', 'entries': list(entries)}}, f)
            where = ['--profile', file]
        return self.agent(*where, '--approval', policy, *flags, env=env, **how)

    def put(self, path, text):
        with open(path, 'w', newline='') as f:
            f.write(text)
        return path

    def get(self, path):
        with open(path, newline='') as f:
            return f.read()

    def refused(self, a, words, text):
        answer = a.ec(words)
        self.assertTrue(answer.failed, answer)
        self.assertIn(text, answer.text)
        self.assertEqual(a.questions, [])
        return answer

    def ask(self, a, words, **arguments):
        call = a.ec_later(words, **arguments)
        return call, a.wait_question()

    def tell_nothing(self, a, *answers):
        """The secret is in nothing that came out."""
        told = json.dumps([[x.line for x in answers], a.questions, a.events])
        self.assertNotIn('hunter2', told)


# --------------------------------------------------------------------------------- what may be read


class Denied(Patches):
    def setUp(self):
        super().setUp()
        self.outside = self.scratch('/var/tmp')
        self.secret = self.put(os.path.join(self.outside, 'secret'), SECRET + '\n')

    def deny(self, policy, **how):
        return self.begin(policy, *WORKSPACE, native(self.outside, 'deny'), **how)

    def same_answers(self, a, name):
        """Whether a patch fits says nothing: the answers differ in nothing."""
        fits, fails = a.ec(update(name, SECRET)), a.ec(update(name, 'something else'))
        self.assertTrue(fits.failed, fits)
        self.assertEqual(fits.text, fails.text)
        self.assertIn(FAILED + 'Failed to read file to update ', fits.text)
        self.assertEqual(a.questions, [])
        for context in (SECRET, 'something else'):
            answer = a.ec(patch('*** Update File: ' + name, '@@ ' + context, '+more'))
            self.assertEqual(answer.text, fits.text)
        self.tell_nothing(a, fits, fails)
        self.assertEqual(self.get(self.secret), SECRET + '\n')

    def test_a_denied_directory(self):
        for policy in ('never', 'on-request', 'on-failure', 'untrusted'):
            self.same_answers(self.deny(policy), self.secret)

    def test_a_denied_file_in_the_workspace(self):
        base = self.scratch('/var/tmp')
        self.secret = self.put(os.path.join(base, 'blocked.txt'), SECRET + '\n')
        a = self.begin('on-request', *WORKSPACE, native(self.secret, 'deny'), cwd=base)
        self.same_answers(a, 'blocked.txt')

    def test_a_pattern(self):
        base = self.scratch('/var/tmp')
        self.secret = self.put(os.path.join(base, 'x.env'), SECRET + '\n')
        a = self.begin('on-request', *WORKSPACE, {'path': {'type': 'glob_pattern', 'pattern': base + '/**/*.env'},
                                                  'access': 'deny'}, cwd=base)
        self.same_answers(a, 'x.env')

    def test_what_is_not_opened(self):
        a = self.begin('on-request', special('minimal', 'read'), special('project_roots', 'write'))
        self.same_answers(a, self.secret)
        self.assertIn('Success.', a.ec(patch('*** Add File: new', '+text')).text)

    def test_links_and_other_names(self):
        a = self.deny('on-request')
        os.symlink(self.secret, a.path('link'))
        os.symlink(self.outside, a.path('way'))
        self.same_answers(a, 'link')
        self.same_answers(a, 'way/secret')
        self.same_answers(a, '/proc/self/root' + self.secret)

    def test_moves_and_more_files(self):
        a = self.deny('on-request')
        self.put(a.path('mine'), 'one\n')
        texts = set()
        for old in (SECRET, 'something else'):
            answer = self.refused(a, patch('*** Update File: mine', '@@', '-one', '+two', '*** Update File: ' + self.secret,
                                           '*** Move to: stolen', '@@', '-' + old, '+x'), FAILED)
            texts.add(answer.text)
            self.tell_nothing(a, answer)
        self.assertEqual(len(texts), 1, texts)
        self.assertEqual(self.get(a.path('mine')), 'one\n')
        self.assertFalse(os.path.exists(a.path('stolen')))

    def test_a_deletion_shows_nothing(self):
        base = self.scratch('/var/tmp')
        secret = self.put(os.path.join(base, 'blocked.txt'), SECRET + '\n')
        a = self.begin('untrusted', *WORKSPACE, native(secret, 'deny'), cwd=base)
        call, q = self.ask(a, patch('*** Delete File: blocked.txt'))
        self.assertEqual(q['json']['changes'], {secret: {'type': 'delete', 'content': ''}})
        a.decide(q, 'approved')
        answer = call.wait()
        self.tell_nothing(a, answer)
        self.assertNotIn('Success', answer.text)
        self.assertEqual(self.get(secret), SECRET + '\n')

    def test_escalation_opens_nothing(self):
        a = self.deny('on-request', flags=('--additional',))
        grant = {'file_system': {'read': [self.outside], 'write': [self.outside]}}
        texts = set()
        for old in (SECRET, 'something else'):
            for how in ({'sandbox_permissions': 'require_escalated', 'justification': 'why'},
                        {'sandbox_permissions': 'with_additional_permissions', 'additional_permissions': grant,
                         'justification': 'why'}):
                answer = a.ec(update(self.secret, old), **how)
                texts.add(answer.text)
                self.tell_nothing(a, answer)
        self.assertEqual((len(texts), a.questions), (1, []), texts)
        self.assertIn(FAILED, texts.pop())

    def test_the_rest_is_as_always(self):
        """With denied reads, too, a patch is one, and is asked about with its diff."""
        a = self.deny('untrusted')
        self.put(a.path('mine'), 'one\ntwo\n')
        call, q = self.ask(a, update('mine', 'two', 'three'))
        self.assertEqual(q['json']['changes'], {
            a.path('mine'): {'type': 'update', 'unified_diff': '@@ -1,2 +1,2 @@\n one\n-two\n+three\n', 'move_path': None}})
        a.decide(q, 'approved')
        self.assertIn('Success. Updated the following files:\nM mine\n', call.wait().text)
        self.assertEqual(self.get(a.path('mine')), 'one\nthree\n')

    def test_a_hard_link(self):
        """A second name in the workspace is a file there; the first one keeps its text."""
        a = self.deny('on-request')
        other = self.put(os.path.join(self.scratch(os.path.dirname(a.work)), 'other'), 'one\n')
        os.link(other, a.path('name'))
        self.assertIn('Success.', a.ec(update('name', 'one')).text)
        self.assertEqual((self.get(a.path('name')), self.get(other)), ('changed\n', 'one\n'))


# --------------------------------------------------------------------------------- what is no file


class Strange(Patches):
    """Whatever the files are, the answer comes, and others do not wait for it."""

    def test_what_is_no_regular_file(self):
        a = self.begin('on-request', sandbox='workspace-write')
        os.mkfifo(a.path('fifo'))
        os.symlink('/dev/zero', a.path('zero'))
        os.symlink('/dev/tty', a.path('tty'))
        os.mkdir(a.path('dir'))
        os.symlink('loop', a.path('loop'))
        for name, why in (('fifo', 'it is not a regular file'), ('zero', 'it is not a regular file'),
                          ('tty', 'it is not a regular file'), ('dir', 'Is a directory'), ('loop', 'Too many levels')):
            began = time.monotonic()
            self.refused(a, update(name, 'a'), 'Failed to read file to update %s: ' % a.path(name))
            self.assertIn(why, a.ec(update(name, 'a')).text)
            self.assertLess(time.monotonic() - began, 20 * agent.SCALE)
        self.assertFalse(os.path.exists(a.path('stolen')))
        self.assertNothingLeft(a)

    def test_files_of_the_kernel(self):
        a = self.begin('on-request', sandbox='workspace-write')
        for name in ('/proc/kmsg', '/proc/self/pagemap', '/proc/self/mem', '/proc/kcore', '/sys/kernel/tracing/trace_pipe'):
            self.refused(a, update(name, 'a line that is not there'), FAILED)

    def test_a_large_file(self):
        a = self.begin('on-request', sandbox='workspace-write')
        with open(a.path('sparse'), 'wb') as f:
            f.truncate(1 << 30)
        self.refused(a, update('sparse', 'a'), 'it is larger than 64 MiB, or all files of the patch are larger than 256 MiB')
        call = a.ec_later(patch('*** Delete File: sparse'))
        self.assertIn('Success.', call.wait().text)

    def test_no_utf8(self):
        a = self.begin('on-request', sandbox='workspace-write')
        with open(a.path('bytes'), 'wb') as f:
            f.write(b'a\n\xff\n')
        self.refused(a, update('bytes', 'a'), 'it is not valid UTF-8')

    def test_nul_in_a_text(self):
        a = self.begin('untrusted', sandbox='workspace-write')
        self.put(a.path('nul'), 'a\x00b\ntwo\n')
        call, q = self.ask(a, update('nul', 'two'))
        self.assertEqual(q['json']['changes'][a.path('nul')]['unified_diff'], '@@ -1,2 +1,2 @@\n a\x00b\n-two\n+changed\n')
        a.decide(q, 'approved')
        self.assertIn('Success.', call.wait().text)
        self.assertEqual(self.get(a.path('nul')), 'a\x00b\nchanged\n')

    def test_a_large_text_with_a_small_change(self):
        a = self.begin('untrusted', sandbox='workspace-write')
        self.put(a.path('large'), 'a line of some length\n' * 1000000 + 'last\n')
        call, q = self.ask(a, update('large', 'last'))
        self.assertLess(len(q['json']['changes'][a.path('large')]['unified_diff']), 200)
        a.decide(q, 'approved')
        self.assertIn('Success.', call.wait().text)

    def test_too_much_to_show(self):
        a = self.begin('on-request', sandbox='workspace-write')
        line = 'x' * 999
        self.put(a.path('wide'), (line + '\n') * 20000 + 'last\n')
        many = []
        for _i in range(600):  # more changes than a diff is looked for: all of the middle is shown
            many += ['@@', '-' + line, '+y']
        self.refused(a, patch('*** Update File: wide', *many, '@@', '-last', '+end'),
                     'what it changes, as a diff, is larger than 16 MiB')

    def test_without_the_program(self):
        """Nothing else reads the files then, and nothing is written."""
        for program in ('/nonexistent/sallyport', '/bin/true'):
            for sandbox in ('workspace-write', 'danger-full-access'):
                a = self.agent('--sandbox', sandbox, '--approval', 'never', env={'SALLYPORT': program})
                self.put(a.path('file'), 'one\n')
                answer = a.ec(update('file', 'one'))
                self.assertTrue(answer.failed, answer)
                self.assertRegex(answer.text, 'sandbox intent cannot be enforced|(start|greet) the cell|'
                                              'the sallyport program, which reads the files, could not be run')
                self.assertEqual(self.get(a.path('file')), 'one\n')

    def test_others_do_not_wait(self):
        """A patch that takes long to verify is another process's work."""
        a = self.begin('on-request', sandbox='workspace-write')
        self.put(a.path('large'), 'another line\n' * 4000000)
        chunks = []
        for i in range(150):
            chunks += ['@@ not there %d' % i, '+x']
        call = a.ec_later(patch('*** Update File: large', *chunks))
        self.assertIn('beside', a.ec('echo beside').text)
        self.assertTrue(call.wait().failed)

    def test_cancelled_while_verifying(self):
        a = self.begin('on-request', sandbox='workspace-write')
        self.put(a.path('large'), 'another line\n' * 4000000)
        chunks = []
        for i in range(40):
            chunks += ['@@ another line', ' another line', '+x %d' % i]
        call = a.ec_later(patch('*** Update File: large', *chunks))
        self.assertTrue(a.ask('cancel', call=call.key)['ok'])
        self.assertTrue(call.wait().failed)
        self.assertEqual(a.questions, [])
        self.assertNothingLeft(a)
        a.ec_later(patch('*** Update File: large', *chunks))  # and this one when everything is freed


# --------------------------------------------------------------------------------- what was shown


class Shown(Patches):
    def begin_outside(self, policy='untrusted', **how):
        a = self.begin(policy, sandbox='workspace-write', **how)
        self.put(a.path('file'), 'one\ntwo\nthree\n')
        return a

    def changed(self, a, words, change):
        call, q = self.ask(a, words)
        change()
        a.decide(q, 'approved')
        answer = call.wait()
        self.assertIn('has changed since the patch was verified: nothing was written', answer.text)
        self.assertEqual(a.questions, [])

    def test_a_file_that_changes_while_it_is_asked(self):
        a = self.begin_outside()
        # the chunk still fits, elsewhere in the file something is new
        self.changed(a, update('file', 'two'), lambda: self.put(a.path('file'), 'one\ntwo\nthree\nfour\n'))
        self.assertEqual(self.get(a.path('file')), 'one\ntwo\nthree\nfour\n')

    def test_a_file_that_is_to_go(self):
        a = self.begin_outside()
        self.changed(a, patch('*** Delete File: file'), lambda: self.put(a.path('file'), 'precious\n'))
        self.assertEqual(self.get(a.path('file')), 'precious\n')

    def test_the_second_of_two(self):
        a = self.begin_outside()
        self.put(a.path('other'), 'a\n')
        self.changed(a, patch('*** Add File: new', '+n', '*** Update File: other', '@@', '-a', '+b'),
                     lambda: self.put(a.path('other'), 'a\nmore\n'))
        self.assertFalse(os.path.exists(a.path('new')))

    def test_what_no_longer_fits(self):
        a = self.begin_outside()
        call, q = self.ask(a, update('file', 'two'))
        self.put(a.path('file'), 'nothing of it\n')
        a.decide(q, 'approved')
        self.assertIn('Failed to find expected lines', call.wait().text)
        self.assertEqual(self.get(a.path('file')), 'nothing of it\n')

    def test_a_link_put_in_its_place(self):
        """With the same text behind it, the file that is written is still one that may be."""
        a = self.begin_outside()
        outside = self.put(os.path.join(self.scratch('/var/tmp'), 'target'), 'one\ntwo\nthree\n')
        call, q = self.ask(a, update('file', 'two'))
        os.unlink(a.path('file'))
        os.symlink(outside, a.path('file'))
        a.decide(q, 'approved')
        q = a.wait_question()  # denied; who is asked again says no
        self.assertEqual(q['reason'], RETRY)
        a.decide(q, 'denied')
        self.assertNotIn('Success', call.wait().text)
        self.assertEqual(self.get(outside), 'one\ntwo\nthree\n')

    def test_without_a_sandbox(self):
        a = self.begin('untrusted', sandbox='danger-full-access')
        self.put(a.path('file'), 'one\ntwo\n')
        self.changed(a, update('file', 'two'), lambda: self.put(a.path('file'), 'zero\none\ntwo\n'))
        os.symlink('file', a.path('link'))
        call, q = self.ask(a, update('link', 'two'))
        a.decide(q, 'approved')
        self.assertIn('a symbolic link is in the way', call.wait().text)
        self.assertEqual(self.get(a.path('file')), 'zero\none\ntwo\n')

    def test_a_directory_with_two_names(self):
        """`..` goes by names for who reads the question, and by directories for the kernel: neither is done."""
        base = self.scratch('/var/tmp')
        os.makedirs(os.path.join(base, 'real', 'deep'))
        os.symlink('real/deep', os.path.join(base, 'short'))
        for sandbox in ('workspace-write', 'danger-full-access'):
            a = self.begin('on-request', sandbox=sandbox, cwd=base)
            self.refused(a, patch('*** Add File: ../x', '+x', cd='cd short && '), 'a symbolic link is in the way')
            self.assertIn('Success.', a.ec(patch('*** Add File: y', '+y', cd='cd short && ')).text)
            self.assertEqual(self.get(os.path.join(base, 'real', 'deep', 'y')), 'y\n')
            self.assertFalse(os.path.lexists(base + '/x') or os.path.lexists(base + '/real/x'))


# --------------------------------------------------------------------------------- the cases, end to end


class Cases(Patches):
    def outside(self):
        return self.scratch('/var/tmp')

    def test_140_inside(self):
        for policy in ('on-request', 'never', 'on-failure', 'granular'):
            a = self.begin(policy, sandbox='workspace-write')
            self.assertIn('A new', a.ec(patch('*** Add File: new', '+text')).text)
            self.assertEqual((self.get(a.path('new')), a.questions), ('text\n', []))

    def test_140_the_permissions_of_the_request_do_not_count(self):
        """Nobody was asked, so nothing more than the sandbox's is allowed."""
        out = self.outside()
        log = os.path.join(self.scratch(), 'log')
        a = self.begin('on-request', sandbox='workspace-write', flags=('--additional', '--audit', log))
        for how in ({'sandbox_permissions': 'require_escalated', 'justification': 'why'},
                    {'sandbox_permissions': 'with_additional_permissions', 'justification': 'why',
                     'additional_permissions': {'file_system': {'write': [out]}}}):
            call, q = self.ask(a, patch('*** Add File: %s/x' % out, '+x'), **how)
            self.assertEqual((q['kind'], q['free']), ('patch', False))
            a.decide(q, 'denied')
            self.assertTrue(call.wait().failed)
            self.assertIn('Success.', a.ec(patch('*** Add File: x', '+x'), **how).text)
        self.assertEqual(os.listdir(out), [])
        with open(log) as f:
            attempts = [json.loads(line)['attempts'] for line in f]
        self.assertEqual(attempts, [[], ['confined']] * 2)

    def test_141_146_147_outside(self):
        out = self.outside()
        for policy, text in (('never', OUTSIDE), ('granular-closed', OUTSIDE), ('on-request', None), ('granular', None)):
            a = self.begin(policy, sandbox='workspace-write')
            self.put(a.path('file'), 'one\n')
            # the base of this driver's directories is a temporary one, which is writable: `..` goes further
            up = '../' * (a.work.count('/') + 2)
            for words in (patch('*** Add File: %s/x' % out, '+x'),
                          patch('*** Add File: a/%s%s/x' % (up, out[1:]), '+x'),
                          patch('*** Update File: file', '*** Move to: %s/x' % out, '@@', '-one', '+two')):
                if text is not None:
                    self.refused(a, words, text)
                    continue
                call, q = self.ask(a, words)
                changes = q['json']['changes']
                self.assertTrue(out + '/x' in changes or changes[a.path('file')]['move_path'] == out + '/x', changes)
                a.decide(q, 'denied')
                self.assertIn('patch rejected by user', call.wait().text)
        self.assertEqual(os.listdir(out), [])

    def test_142_143_read_only(self):
        self.refused(self.begin('never', sandbox='read-only'), patch('*** Add File: x', '+x'), READ_ONLY)
        a = self.begin('on-request', sandbox='read-only')
        call, q = self.ask(a, patch('*** Add File: x', '+x'))
        a.decide(q, 'approved')
        self.assertIn('A x', call.wait().text)
        self.assertEqual(self.get(a.path('x')), 'x\n')

    def test_144_empty(self):
        for policy in ('never', 'on-request', 'untrusted'):
            self.refused(self.begin(policy, sandbox='workspace-write'), patch(), 'patch rejected: empty patch')

    def test_145_protected(self):
        for name in ('.codex/config.toml', '.git/hooks/x'):
            base = self.scratch('/var/tmp')
            self.refused(self.begin('never', sandbox='workspace-write', cwd=base), patch('*** Add File: ' + name, '+x'), OUTSIDE)
            a = self.begin('on-request', sandbox='workspace-write', cwd=base)
            call, q = self.ask(a, patch('*** Add File: ' + name, '+x'))
            a.decide(q, 'denied')
            self.assertTrue(call.wait().failed)
            self.assertEqual(os.listdir(base), [])

    def test_148_untrusted(self):
        for sandbox in ('workspace-write', 'danger-full-access', 'read-only'):
            a = self.begin('untrusted', sandbox=sandbox)
            call, q = self.ask(a, patch('*** Add File: x', '+x'))
            a.decide(q, 'denied')
            self.assertTrue(call.wait().failed)

    def test_149_full_access(self):
        out = self.outside()
        a = self.begin('never', sandbox='danger-full-access')
        self.assertIn('Success.', a.ec(patch('*** Add File: %s/x' % out, '+x')).text)
        self.assertEqual(self.get(out + '/x'), 'x\n')

    def test_150_denied(self):
        base = self.scratch('/var/tmp')
        blocked = self.put(os.path.join(base, 'blocked.txt'), 'old\n')
        a = self.begin('on-request', *WORKSPACE, native(blocked, 'deny'), cwd=base)
        call, q = self.ask(a, patch('*** Add File: blocked.txt', '+x'))
        self.assertFalse(q['free'])
        a.decide(q, 'approved')
        self.assertNotIn('Success', call.wait().text)  # whoever approves: what is denied stays so (9.4)
        self.assertEqual((self.get(blocked), a.questions), ('old\n', []))

    def test_151_on_failure(self):
        out = self.outside()
        a = self.begin('on-failure', sandbox='workspace-write')
        call, q = self.ask(a, patch('*** Add File: %s/x' % out, '+x'))
        self.assertEqual((q['kind'], q['reason'], q['free']), ('patch', RETRY, True))
        self.assertEqual(os.listdir(out), [])
        a.decide(q, 'approved')
        self.assertIn('A %s/x' % out, call.wait().text)
        self.assertEqual(self.get(out + '/x'), 'x\n')

    def test_155_156_157_what_does_not_fit(self):
        a = self.begin('on-request', sandbox='workspace-write')
        self.put(a.path('f'), 'one\n')
        for words, text in (
                (patch('*** Delete File: f', '*** Add File: ./f', '+x'), 'multiple operations target ' + a.path('f')),
                (update('missing', 'a'), 'Failed to read file to update %s: No such file' % a.path('missing')),
                (update('f', 'two'), 'Failed to find expected lines in %s:\ntwo' % a.path('f')),
                (patch('*** Update File: f', '@@ where', '+x'), "Failed to find context 'where' in " + a.path('f')),
                (patch('*** Delete File: .'), 'Failed to delete file %s: path is a directory' % a.work),
                (patch('*** Nothing: f'), 'is not a valid hunk header')):
            self.refused(a, words, FAILED)
            self.refused(a, words, text)
        self.assertEqual(self.get(a.path('f')), 'one\n')
        self.assertNothingLeft(a)

    def test_163_line_endings(self):
        for flags, text in (((), 'one\r\nTWO\nthree\r\n'), (('--keep-endings',), 'one\r\nTWO\r\nthree\r\n')):
            for sandbox in ('workspace-write', 'danger-full-access'):
                a = self.begin('on-request', sandbox=sandbox, flags=flags)
                self.put(a.path('f'), 'one\r\ntwo\r\nthree\r\n')
                self.assertIn('Success.', a.ec(update('f', 'two', 'TWO')).text)
                self.assertEqual(self.get(a.path('f')), text)

    def test_168_the_parents_alone(self):
        """An approved patch may write to the directory of its target, and nowhere else."""
        out = self.outside()
        os.mkdir(out + '/sub')
        os.mkdir(out + '/other')
        a = self.begin('on-request', sandbox='workspace-write')
        call, q = self.ask(a, patch('*** Add File: %s/sub/x' % out, '+x'))
        a.decide(q, 'approved')
        self.assertIn('Success.', call.wait().text)
        # a link to what nobody was shown leads to what is still closed
        self.put(out + '/other/file', 'one\n')
        os.symlink(out + '/other/file', out + '/sub/link')
        call, q = self.ask(a, update(out + '/sub/link', 'one'))
        a.decide(q, 'approved')
        q = a.wait_question()
        self.assertEqual(q['reason'], RETRY)
        a.decide(q, 'denied')
        self.assertTrue(call.wait().failed)
        self.assertEqual(self.get(out + '/other/file'), 'one\n')

    def test_an_environment_in_the_patch(self):
        a = self.begin('on-request', sandbox='workspace-write')
        words = ("apply_patch <<'EOF'\n*** Begin Patch\n*** Environment ID: %s\n*** Add File: x\n+x\n"
                 '*** End Patch\nEOF')
        self.refused(a, words % 'elsewhere', 'the patch is for environment `elsewhere`, and the command for `main`')
        for name in ('main', 'local'):
            self.assertIn('Success.', a.ec(words % name).text)


# --------------------------------------------------------------------------------- not here


class Remote(Patches):
    backend = 'ws'

    def test_a_remote_environment(self):
        a = self.agent('--approval', 'on-request')
        self.refused(a, '*** Begin Patch\n*** Add File: x\n+x\n*** End Patch', FAILED + 'patch detected without explicit call')
        self.assertFalse(os.path.exists(a.path('x')))
        self.assertIn('Success. Updated the following files:\nA x\n', a.ec(patch('*** Add File: x', '+x')).text)
        self.assertEqual(self.get(a.path('x')), 'x\n')
        self.assertExited(a.ec(patch('*** Add File: x', '+x') + '\necho done'))  # an ordinary command, for its shell


if __name__ == '__main__':
    agent.main()
