# SPDX-License-Identifier: Apache-2.0
"""A scripted model that speaks the four APIs which agent hosts use, over HTTP on loopback.

Anthropic messages, OpenAI responses, OpenAI chat completions and Gemini generateContent. A script is a generator
that takes the model and yields turns; a turn is a text, or a list of calls made with `call()`. The model resumes the
generator when a request arrives that offers our tools. Requests without them (titles, summaries, token counts) get a
short text and leave the script alone.
"""

import http.server
import json
import threading
import traceback

MAIN_TOOL = 'exec_command'
SEARCH = 'tool_search'  # the tool, or the type of tool, by which a host offers others


def call(call_id, tool, **arguments):
    return {'id': call_id, 'tool': tool, 'arguments': arguments}


class Model:
    def __init__(self, script, deferred=None):
        self.script = script(self)
        self.deferred = deferred  # how the host names tools that it offers through a search, as 'mcp__sallyport__%s'
        self.lock = threading.Lock()
        self.tools = {}      # our tool's name: the name the host gave it
        self.results = {}    # call id: what the host sent to the model, as text
        self.sent = []       # calls in order
        self.trouble = []
        self.requests = []   # (path, body)
        self.is_done = threading.Event()
        self.http = _Http(self)
        self.url = 'http://127.0.0.1:%d' % self.http.server_port

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.http.thread.join(30)

    def answer(self, path, body):
        """The next turn for a request: a text or a list of calls."""
        api = api_of(path)
        with self.lock:
            self.requests.append((path, body))
            names = api.tools(body)
            ours = self._ours(names)
            if MAIN_TOOL not in ours and self.deferred and any(SEARCH in (n, t.get('type')) for n, t in zip(names, body['tools'])):
                ours = {tool: self.deferred % tool for tool in TOOLS}
            if MAIN_TOOL not in ours:
                return 'ok'
            self.tools = ours
            self.results.update(api.results(body, self.sent))
            try:
                turn = next(self.script)
            except StopIteration:
                self.is_done.set()
                return 'the script has ended'
            except BaseException:
                self.trouble.append(traceback.format_exc())
                self.is_done.set()
                return 'the script has failed'
            if isinstance(turn, list):
                for c in turn:
                    c['name'] = ours.get(c['tool'], c['tool'])
                    c['id'] = 'call_%s_%d' % (c['id'], len(self.sent)) if api is Chat else c['id']
                    self.sent.append(c)
            return turn

    @staticmethod
    def _ours(names):
        """{our name: the host's name}: hosts put the server's name before a tool's, in different ways."""
        ours = {}
        for name in names:
            for tool in TOOLS:
                if name == tool or name.endswith(tool) and not name[-len(tool) - 1].isalnum() and 'sallyport' in name:
                    ours.setdefault(tool, name)
        return ours

    def told(self, call_id):
        """What the host told the model about a call."""
        for key, text in self.results.items():
            if key == call_id or key.startswith('call_%s_' % call_id):
                return text
        raise AssertionError('the model was told nothing about %s, only of %s' % (call_id, sorted(self.results)))


TOOLS = ('exec_command', 'write_stdin', 'read_output', 'list_sessions', 'signal_session', 'apply_patch',
         'explain_denial', 'request_permissions')


def text_of(content):
    """All text of a tool's result, in whatever shape a host puts it."""
    if content is None:
        return ''
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return '\n'.join(text_of(part) for part in content)
    if isinstance(content, dict):
        for key in ('text', 'output', 'content', 'result', 'error'):
            if key in content:
                return text_of(content[key])
        return json.dumps(content)
    return str(content)


# ------------------------------------------------------------------------------------------ the APIs


class Messages:
    """Anthropic: POST /v1/messages."""

    @staticmethod
    def tools(body):
        return [t.get('name', '') for t in body.get('tools') or ()]

    @staticmethod
    def results(body, _):
        found = {}
        for message in body.get('messages', ()):
            if isinstance(message.get('content'), list):
                for part in message['content']:
                    if part.get('type') == 'tool_result':
                        found[part['tool_use_id']] = text_of(part.get('content'))
        return found

    @staticmethod
    def events(turn, number):
        yield 'message_start', {'type': 'message_start', 'message': {
            'id': 'msg_%d' % number, 'type': 'message', 'role': 'assistant', 'model': 'script', 'content': [],
            'stop_reason': None, 'stop_sequence': None, 'usage': {'input_tokens': 1, 'output_tokens': 1}}}
        blocks = [{'type': 'text', 'text': turn}] if isinstance(turn, str) else [
            {'type': 'tool_use', 'id': c['id'], 'name': c['name'], 'input': c['arguments']} for c in turn]
        for i, block in enumerate(blocks):
            is_text = block['type'] == 'text'
            empty = dict(block, text='') if is_text else dict(block, input={})
            delta = {'type': 'text_delta', 'text': block['text']} if is_text else {
                'type': 'input_json_delta', 'partial_json': json.dumps(block['input'])}
            yield 'content_block_start', {'type': 'content_block_start', 'index': i, 'content_block': empty}
            yield 'content_block_delta', {'type': 'content_block_delta', 'index': i, 'delta': delta}
            yield 'content_block_stop', {'type': 'content_block_stop', 'index': i}
        reason = 'end_turn' if isinstance(turn, str) else 'tool_use'
        yield 'message_delta', {'type': 'message_delta', 'delta': {'stop_reason': reason, 'stop_sequence': None},
                                'usage': {'output_tokens': 1}}
        yield 'message_stop', {'type': 'message_stop'}

    @staticmethod
    def whole(turn, number):
        blocks = [{'type': 'text', 'text': turn}] if isinstance(turn, str) else [
            {'type': 'tool_use', 'id': c['id'], 'name': c['name'], 'input': c['arguments']} for c in turn]
        return {'id': 'msg_%d' % number, 'type': 'message', 'role': 'assistant', 'model': 'script', 'content': blocks,
                'stop_reason': 'end_turn' if isinstance(turn, str) else 'tool_use', 'stop_sequence': None,
                'usage': {'input_tokens': 1, 'output_tokens': 1}}


class Responses:
    """OpenAI: POST /v1/responses."""

    @staticmethod
    def tools(body):
        names = []
        for tool in body.get('tools') or ():
            if tool.get('type') == 'namespace':
                names += ['%s/%s' % (tool['name'], t.get('name', '')) for t in tool.get('tools', ())]
            else:
                names.append(tool.get('name', ''))
        return names

    @staticmethod
    def results(body, _):
        return {item['call_id']: text_of(item.get('output')) for item in body.get('input', ())
                if isinstance(item, dict) and item.get('type') in ('function_call_output', 'custom_tool_call_output')}

    @staticmethod
    def events(turn, number):
        name = 'resp_%d' % number
        yield 'response.created', {'type': 'response.created', 'response': {'id': name, 'object': 'response', 'output': []}}
        items = Responses._items(turn)
        for i, item in enumerate(items):
            yield 'response.output_item.added', {'type': 'response.output_item.added', 'output_index': i, 'item': item}
            yield 'response.output_item.done', {'type': 'response.output_item.done', 'output_index': i, 'item': item}
        yield 'response.completed', {'type': 'response.completed', 'response': Responses.whole(turn, number)}

    @staticmethod
    def _items(turn):
        if isinstance(turn, str):
            return [{'type': 'message', 'role': 'assistant', 'id': 'msg', 'status': 'completed',
                     'content': [{'type': 'output_text', 'text': turn, 'annotations': []}]}]
        items = []
        for c in turn:
            item = {'type': 'function_call', 'id': 'fc_' + c['id'], 'call_id': c['id'], 'name': c['name'], 'status': 'completed',
                    'arguments': json.dumps(c['arguments'])}
            space, slash, name = c['name'].rpartition('/')
            if slash:
                item.update(namespace=space, name=name)
            items.append(item)
        return items

    @staticmethod
    def whole(turn, number):
        return {'id': 'resp_%d' % number, 'object': 'response', 'status': 'completed', 'model': 'script',
                'output': Responses._items(turn),
                'usage': {'input_tokens': 1, 'output_tokens': 1, 'total_tokens': 2, 'input_tokens_details': {'cached_tokens': 0},
                          'output_tokens_details': {'reasoning_tokens': 0}}}


class Chat:
    """OpenAI: POST /v1/chat/completions."""

    @staticmethod
    def tools(body):
        return [(t.get('function') or {}).get('name', '') for t in body.get('tools') or ()]

    @staticmethod
    def results(body, _):
        return {m['tool_call_id']: text_of(m.get('content')) for m in body.get('messages', ()) if m.get('role') == 'tool'}

    @staticmethod
    def _message(turn):
        if isinstance(turn, str):
            return {'role': 'assistant', 'content': turn}
        return {'role': 'assistant', 'content': None, 'tool_calls': [
            {'index': i, 'id': c['id'], 'type': 'function',
             'function': {'name': c['name'], 'arguments': json.dumps(c['arguments'])}} for i, c in enumerate(turn)]}

    @staticmethod
    def events(turn, number):
        head = {'id': 'chat_%d' % number, 'object': 'chat.completion.chunk', 'created': 1, 'model': 'script'}
        yield None, dict(head, choices=[{'index': 0, 'delta': Chat._message(turn), 'finish_reason': None}])
        reason = 'stop' if isinstance(turn, str) else 'tool_calls'
        yield None, dict(head, choices=[{'index': 0, 'delta': {}, 'finish_reason': reason}],
                         usage={'prompt_tokens': 1, 'completion_tokens': 1, 'total_tokens': 2})
        yield None, '[DONE]'

    @staticmethod
    def whole(turn, number):
        return {'id': 'chat_%d' % number, 'object': 'chat.completion', 'created': 1, 'model': 'script',
                'choices': [{'index': 0, 'message': Chat._message(turn),
                             'finish_reason': 'stop' if isinstance(turn, str) else 'tool_calls'}],
                'usage': {'prompt_tokens': 1, 'completion_tokens': 1, 'total_tokens': 2}}


class Gemini:
    """Google: POST /v1beta/models/NAME:generateContent and :streamGenerateContent."""

    @staticmethod
    def tools(body):
        return [f.get('name', '') for t in body.get('tools') or () for f in t.get('functionDeclarations', ())]

    @staticmethod
    def results(body, sent):
        """Responses come in the order of the calls; the API has no ids of ours."""
        parts = [p['functionResponse'] for c in body.get('contents', ()) for p in c.get('parts', ()) if 'functionResponse' in p]
        return {c['id']: text_of(p.get('response')) for c, p in zip(sent, parts)}

    @staticmethod
    def whole(turn, _):
        parts = [{'text': turn}] if isinstance(turn, str) else [
            {'functionCall': {'name': c['name'], 'args': c['arguments']}} for c in turn]
        return {'candidates': [{'content': {'role': 'model', 'parts': parts}, 'finishReason': 'STOP', 'index': 0}],
                'usageMetadata': {'promptTokenCount': 1, 'candidatesTokenCount': 1, 'totalTokenCount': 2}}

    @staticmethod
    def events(turn, number):
        yield None, Gemini.whole(turn, number)


def api_of(path):
    path = path.partition('?')[0]
    if path.endswith('/messages'):
        return Messages
    if path.endswith('/responses'):
        return Responses
    if path.endswith('/chat/completions'):
        return Chat
    if path.endswith('enerateContent'):
        return Gemini
    return None


# -------------------------------------------------------------------------------------------- HTTP


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
        model = {'id': 'script', 'object': 'model', 'name': 'script', 'owned_by': 'script', 'created': 1, 'type': 'model',
                 'display_name': 'script'}
        self._send('application/json', json.dumps({'object': 'list', 'data': [model], 'models': []}).encode())

    def do_HEAD(self):
        self._send('application/json', b'')

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        try:
            body = json.loads(body or b'{}')
        except ValueError:
            body = {}
        api = api_of(self.path)
        if api is None:
            reply = {'input_tokens': 1} if 'count_tokens' in self.path else {'totalTokens': 1} if 'countTokens' in self.path else {}
            self._send('application/json', json.dumps(reply).encode())
            return
        turn = self.server.model.answer(self.path, body)
        number = len(self.server.model.requests)
        if body.get('stream') or 'streamGenerateContent' in self.path:
            data = b''.join((b'event: %s\n' % name.encode() if name else b'') +
                            b'data: %s\n\n' % (e if isinstance(e, str) else json.dumps(e)).encode()
                            for name, e in api.events(turn, number))
            self._send('text/event-stream', data)
        else:
            self._send('application/json', json.dumps(api.whole(turn, number)).encode())

    def _send(self, kind, data):
        try:
            self.send_response(200)
            self.send_header('Content-Type', kind)
            self.send_header('Content-Length', str(len(data)))
            self.end_headers()
            if self.command != 'HEAD':
                self.wfile.write(data)
        except OSError:
            pass  # the host hung up
