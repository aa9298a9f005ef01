# SPDX-License-Identifier: Apache-2.0
"""`sallyport exec` on servers that are broken or mean: it ends, and says so, and nothing reaches the terminal."""

import os
import signal
import sys
import time

import tap
import test_exec_verb
import wire
from server import ours_only
from wire import wait_until

EXECUTOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'executor.py')


@ours_only
class Hostile(test_exec_verb.Exec):
    def begin(self, story, **how):
        conf = os.path.join(self.base, story + '.toml')
        self.log = os.path.join(self.base, story + '.log')
        with open(conf, 'w') as f:
            f.write('[environments.mean]\nprogram = "%s"\nargs = ["%s", "%s", "%s"]\n'
                    % (sys.executable, EXECUTOR, story, self.log))
        os.chmod(conf, 0o600)
        self.env['SALLYPORT_CONFIG'] = conf
        return self.popen('--on', 'mean', '--no-stdin', '--', 'true', **how)

    def end(self, p):
        out, err = p.communicate(timeout=60 * wire.SCALE)
        return p.returncode, out, err

    def was_asked(self, method):
        return os.path.exists(self.log) and '"%s"' % method in open(self.log).read()

    def test_what_comes_behind_the_exit_does_not_stand_in_its_way(self):
        code, out, err = self.end(self.begin('exit_then_output'))
        self.assertEqual((code, len(out), err), (5, 10 * 65536, b''))

    def test_a_verdict_that_does_not_come_is_not_waited_for(self):
        self.assertEqual(self.end(self.begin('exit_and_silence')), (6, b'last words\n', b''))

    def test_lost_output_is_no_success(self):
        code, out, err = self.end(self.begin('lost_output'))
        self.assertEqual((code, out), (123, b'first\nlast\n'))
        self.assertEqual(err, b'sallyport: some output was lost here\n'
                              b'sallyport: the command ended with 0, but not all of its output came\n')

    def test_empty_output_without_end_has_an_end(self):
        code, out, err = self.end(self.begin('start_is_empty_output'))
        self.assertEqual((code, out), (125, b''))
        self.assertIn(b'no word of its start', err)

    def test_words_of_a_server_do_nothing_to_the_terminal(self):
        code, out, err = self.end(self.begin('start_paints'))
        self.assertEqual((code, out), (125, b''))
        self.assertEqual(err, b'sallyport: \\x1b]0;mine\\x07\\x1b[2Jno\\u202e such\n')

    def ends_with_the_second(self, p):
        p.send_signal(signal.SIGTERM)
        time.sleep(1.3 * wire.SCALE)
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGTERM)
        code, _, err = self.end(p)
        self.assertEqual(code, 128 + signal.SIGTERM)
        self.assertIn(b'no answer from where the command runs', err)

    def test_a_start_that_is_not_answered_can_be_left(self):
        p = self.begin('start_is_silent')
        wait_until(lambda: self.was_asked('process/start'), 'the start')
        self.ends_with_the_second(p)

    def test_a_signal_that_is_not_answered_can_be_left(self):
        p = self.begin('deaf')
        self.assertEqual(p.stdout.read(6), b'READY\n')
        self.ends_with_the_second(p)


if __name__ == '__main__':
    tap.main()
