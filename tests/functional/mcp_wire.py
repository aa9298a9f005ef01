# SPDX-License-Identifier: Apache-2.0
"""Messages of MCP as they stand on the wire, and a case that compares them whole."""

import json
import re

import mcp
from mcp import LEGACY, META, MODERN, meta

VERSIONS = [MODERN, *LEGACY]
TOOLS = ['exec_command', 'write_stdin', 'read_output', 'list_sessions', 'signal_session', 'resize_session',
         'explain_denial', 'apply_patch']
INFO = {'name': 'sallyport', 'version': 'VERSION'}
SIGNED = {META + 'serverInfo': INFO}
NOT_YET = ('params._meta has no io.modelcontextprotocol/protocolVersion, and initialize has not been called')
NAMES = {'version': 'VERSION', 'instructions': 'WORDS', 'chunk_id': 'CHUNK', 'wall_time_seconds': 'SECONDS'}


def plain(value, name=None):
    """A message without what differs from run to run."""
    if name in NAMES and isinstance(value, (str, float)):
        return NAMES[name]
    if name == 'receipt' and isinstance(value, dict):
        return {k: value.get(k) for k in ('reason', 'output')}
    if isinstance(value, dict):
        return {k: plain(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if name == 'text' and isinstance(value, str):
        return re.sub(r'(?m)^Wall time: [0-9.]+', 'Wall time: N', value)
    return value


def request(id, method, params=None, **more):
    message = {'jsonrpc': '2.0', 'id': id, 'method': method}
    if params is not None:
        message['params'] = params
    return {**message, **more}


def modern(id, method, params=None, capabilities=None, **more):
    return request(id, method, {**(params or {}), '_meta': meta(capabilities, **more)})


def call(id, tool, **arguments):
    return request(id, 'tools/call', {'name': tool, 'arguments': arguments})


def call_modern(id, tool, **arguments):
    return modern(id, 'tools/call', {'name': tool, 'arguments': arguments})


def result(id, **members):
    return {'jsonrpc': '2.0', 'id': id, 'result': members}


def complete(id, **members):
    return result(id, resultType='complete', **members, _meta=SIGNED)


def error(id, code, text, **more):
    return {'jsonrpc': '2.0', 'id': id, 'error': {'code': code, 'message': text, **more}}


def text_of(*lines):
    return [{'type': 'text', 'text': '\n'.join(lines)}]


def ended(output):
    return text_of('Process exited with code 0', 'Wall time: N seconds', 'Output:', output)


def structured(output, tokens):
    return {'chunk_id': 'CHUNK', 'wall_time_seconds': 'SECONDS', 'exit_code': 0, 'original_token_count': tokens,
            'output': output, 'state': 'exited', 'from_byte': 0, 'next_byte': len(output), 'omitted_bytes': 0,
            'end_reason': 'exit', 'denials': [],
            'receipt': {'reason': 'exit', 'output': {'stdout': len(output), 'stderr': 0, 'dropped': 0}}}


def initialize(id, version, **capabilities):
    return request(id, 'initialize', {'protocolVersion': version, 'capabilities': capabilities,
                                      'clientInfo': {'name': 'test', 'version': '1'}})


def welcome(id, version):
    return result(id, protocolVersion=version, capabilities={'tools': {}, 'logging': {}}, serverInfo=INFO, instructions='WORDS')


class Any(str):
    def __eq__(self, other):
        return isinstance(other, str) and other != ''

    __hash__ = str.__hash__


ANY_TEXT = Any('*')


class Wire(mcp.Case):
    def setUp(self):
        super().setUp()
        self.host = self.mcp()

    def said(self, sent, count=1, host=None):
        """What the next messages are, after this one (or these bytes) was sent."""
        host = host or self.host
        del host.log[:]
        host.answers.clear()
        host.send_raw(sent if isinstance(sent, bytes) else json.dumps(sent).encode() + b'\n')
        host.until(lambda: len(host.log) >= count, 'the answer to %.300s' % (sent,))
        self.assertEqual(len(host.log), count, host.log)
        return plain(host.log[:])

    def check(self, sent, *expected, host=None):
        self.maxDiff = None
        self.assertEqual(self.said(sent, len(expected), host), list(expected))

    def check_code(self, sent, code, id=None):
        (answer,) = self.said(sent)
        self.assertEqual((answer['id'], answer['error']['code']), (id, code), sent)
        return answer['error']

    def silent(self, sent):
        """Nothing is said about it: the next thing that is said is about something else."""
        self.host.send_raw(sent if isinstance(sent, bytes) else json.dumps(sent).encode() + b'\n')
        self.check(request('fence', 'ping'), result('fence'))
