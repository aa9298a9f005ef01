# SPDX-License-Identifier: Apache-2.0
"""A model that reads from a script: the Responses API over server-sent events, on loopback.

A script is a list of turns, one for each request of the client, and a turn is a list of output items.
Where a turn depends on earlier answers the script is a generator that takes the model and yields the
turns. What the client says was the outcome of a call is what the model was told: `told(call_id)`.
"""

import http.server
import json
import re
import threading
import traceback

import wire

OUTPUTS = ('function_call_output', 'custom_tool_call_output')


# ------------------------------------------------------------------------------------ output items


def call(call_id, name, **arguments):
    return {'type': 'function_call', 'call_id': call_id, 'name': name, 'arguments': json.dumps(arguments)}


def command(call_id, script, **how):
    """A shell command; it is given long enough to end, unless told otherwise."""
    how.setdefault('yield_time_ms', 30000)
    return call(call_id, 'exec_command', cmd=script, **how)


def custom(call_id, name, text):
    return {'type': 'custom_tool_call', 'call_id': call_id, 'name': name, 'input': text}


def patch(call_id, *lines):
    return custom(call_id, 'apply_patch', patch_text(*lines))


def patch_text(*lines):
    return '\n'.join(['*** Begin Patch', *lines, '*** End Patch', ''])


def say(text='done'):
    return {'type': 'message', 'role': 'assistant', 'id': 'msg', 'content': [{'type': 'output_text', 'text': text}]}


# ---------------------------------------------------------------------------------------- the model


class Model:
    def __init__(self, script):
        self.script = iter(script(self) if callable(script) else script)
        self.requests = []  # bodies, in order
        self.trouble = []   # what went wrong in here
        self.lock = threading.Lock()
        self.http = _Http(self)
        self.base_url = 'http://127.0.0.1:%d/v1' % self.http.server_port

    def answer(self, body):
        """The items that a request is answered with."""
        with self.lock:
            self.requests.append(body)
            number = len(self.requests)
            try:
                return number, next(self.script)
            except StopIteration:
                self.trouble.append('request %d comes after the end of the script' % number)
            except BaseException:
                self.trouble.append('turn %d: %s' % (number, traceback.format_exc()))
            return number, [say('the script has failed')]

    # -- what it was told

    def outputs(self):
        """{call id: what it gave}, as far as the last request goes."""
        found = {}
        for item in self.requests[-1]['input'] if self.requests else ():
            if item.get('type') in OUTPUTS:
                found[item['call_id']] = item['output']
        return found

    def raw(self, call_id):
        found = self.outputs()
        if call_id not in found:
            raise AssertionError('the model was told nothing about %s, only of %s' % (call_id, sorted(found)))
        return found[call_id]

    def told(self, call_id):
        """The outcome of a call as text."""
        output = self.raw(call_id)
        if isinstance(output, str):
            return output
        return '\n'.join(part.get('text', '') for part in output)

    def session(self, call_id):
        """The number by which a command that runs on is spoken of."""
        match = re.search(r'^Process running with session ID (\d+)$', self.told(call_id), re.M)
        if not match:
            raise AssertionError('%s does not run on: %r' % (call_id, self.told(call_id)))
        return int(match.group(1))

    def context(self):
        """Everything in the first request that is not an item of the script: instructions and documents."""
        return json.dumps([self.requests[0].get('instructions'), self.requests[0]['input']], ensure_ascii=False)

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.http.thread.join(wire.DEADLINE)


def type_into(model, name, of, chars='', until=None, **how):
    """Turns: types into the command that the call `of` started, and polls until it has said `until`, or
    has ended. `told_all` has the whole of it."""
    how.setdefault('yield_time_ms', 700)
    session, number = model.session(of), 0
    while True:
        call_id = '%s.%d' % (name, number)
        yield [call(call_id, 'write_stdin', session_id=session, chars=chars, **how)]
        code, output = outcome(model.told(call_id))
        if code is not None or until is None or until in told_all(model, name)[1]:
            return
        if number == 20:
            raise AssertionError('%r does not come: %r' % (until, told_all(model, name)))
        number, chars = number + 1, ''


def until_said(model, of, word):
    """Turns: polls the command that the call `of` started until it has said a word. `said` has the whole of it."""
    if word not in outcome(model.told(of))[1]:
        yield from type_into(model, of + '.more', of, until=word)


def said(model, of):
    """The output of a command up to what until_said() waited for."""
    return outcome(model.told(of))[1] + told_all(model, of + '.more')[1]


def told_all(model, name):
    """(exit code or None, output) of all calls of a type_into()."""
    code, whole = None, ''
    for call_id in model.outputs():  # they are in order
        if call_id.rpartition('.')[0] == name:
            code, output = outcome(model.told(call_id))
            whole += output
    return code, whole


def outcome(text):
    """(exit code or None, output) of what an exec_command or write_stdin told."""
    head, mark, output = text.partition('\nOutput:\n')
    if not mark:
        raise AssertionError('not the outcome of a command: %r' % text[:1000])
    code = re.search(r'^Process exited with code (-?\d+)$', head, re.M)
    return int(code.group(1)) if code else None, output


# ----------------------------------------------------------------------------------------- its wire


def events_of(number, items):
    name = 'resp_%d' % number
    yield {'type': 'response.created', 'response': {'id': name}}
    for item in items:
        yield {'type': 'response.output_item.done', 'item': item}
    usage = {'input_tokens': 1, 'output_tokens': 1, 'total_tokens': 2,
             'input_tokens_details': None, 'output_tokens_details': None}
    yield {'type': 'response.completed', 'response': {'id': name, 'usage': usage}}


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, model):
        super().__init__(('127.0.0.1', 0), _Handler)
        self.model = model
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_error(404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        if not self.path.endswith('/responses'):
            self.send_error(404)
            return
        number, items = self.server.model.answer(json.loads(body))
        data = b''.join(b'event: %s\ndata: %s\n\n' % (e['type'].encode(), json.dumps(e).encode())
                        for e in events_of(number, items))
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            pass  # the client has left
