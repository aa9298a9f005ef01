# SPDX-License-Identifier: Apache-2.0
"""Agent hosts from npm, each started without a person, with a scripted model and `sallyport mcp` as its MCP server.

A host is described by what it needs: its program, its configuration files, its command line and its variables.
"own_shell" is the tested switch that turns the host's own shell off; docs/MCP.md shows the same.
HOSTS names the directory that tests/hosts/install filled.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'functional'))

import server
import wire

LIMIT = 90.0 * wire.SCALE  # seconds for a run of a host


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text if isinstance(text, str) else json.dumps(text, indent=1))


class Host:
    """One run: home is its HOME, ws its working directory, url the model's address, mcp the words of the MCP server."""

    name = package = version = program = ''
    deferred = None      # how it names our tools if it offers them through a search
    shell = None         # the name of the host's own shell tool, absent where `own_shell` works
    offers = ('exec_command', 'write_stdin', 'read_output', 'list_sessions', 'signal_session', 'apply_patch', 'explain_denial')
    limit = LIMIT

    def __init__(self, home, ws, url, mcp):
        self.home, self.ws, self.url, self.mcp = home, ws, url, mcp
        self.env = {}

    @classmethod
    def path(cls):
        return os.path.join(os.environ.get('HOSTS', ''), cls.name, 'node_modules', cls.program)

    @classmethod
    def missing(cls):
        """Why it cannot run, or None."""
        if not os.environ.get('HOSTS'):
            return 'HOSTS is not set: run tests/hosts/install DIR and set HOSTS=DIR'
        try:
            with open(os.path.join(os.environ['HOSTS'], cls.name, 'missing'), encoding='utf-8') as f:
                return f.read().strip()
        except FileNotFoundError:
            return None if os.path.exists(cls.path()) else '%s is not in HOSTS' % cls.path()

    def words(self):
        raise NotImplementedError

    def server(self):
        return {'command': self.mcp[0], 'args': self.mcp[1:]}


class Claude(Host):
    name, package, version = 'claude', '@anthropic-ai/claude-code', '2.1.325'
    program = '@anthropic-ai/claude-code-linux-x64/claude'
    shell = 'Bash'
    offers = ('exec_command', 'write_stdin')  # those marked to be loaded always; the others are found by its search

    def words(self):
        write(self.home + '/mcp.json', {'mcpServers': {'sallyport': self.server()}})
        self.env = {'ANTHROPIC_BASE_URL': self.url, 'ANTHROPIC_API_KEY': 'script', 'DISABLE_TELEMETRY': '1', 'IS_SANDBOX': '1',
                    'DISABLE_AUTOUPDATER': '1', 'CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC': '1', 'DISABLE_ERROR_REPORTING': '1'}
        return [self.path(), '-p', 'go', '--model', 'claude-sonnet-4-5', '--mcp-config', self.home + '/mcp.json', '--strict-mcp-config',
                '--disallowedTools', 'Bash', '--allowedTools', 'mcp__sallyport']


class Codex(Host):
    name, package, version = 'codex', '@openai/codex', '0.166.0'
    program = '@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex'
    shell = 'shell_command'
    deferred = 'mcp__sallyport/%s'

    def words(self):
        write(self.home + '/codex/config.toml', '\n'.join([
            'model = "gpt-5.5"', 'model_provider = "script"', 'approval_policy = "never"', 'sandbox_mode = "danger-full-access"',
            'check_for_update_on_startup = false', '[analytics]', 'enabled = false', '[feedback]', 'enabled = false',
            '[otel]', 'exporter = "none"', '[features]', 'plugins = false', 'remote_plugin = false', 'apps = false',
            'plugin_discovery_prefetch = false', 'daemon_auto_start = false', 'shell_tool = false',
            '[model_providers.script]', 'name = "script"', 'base_url = "%s/v1"' % self.url, 'wire_api = "responses"',
            'request_max_retries = 0', 'stream_max_retries = 0', '[mcp_servers.sallyport]',
            'command = %s' % json.dumps(self.mcp[0]), 'args = %s' % json.dumps(self.mcp[1:]), 'startup_timeout_sec = 30', '']))
        self.env = {'CODEX_HOME': self.home + '/codex'}
        return [self.path(), 'exec', '--skip-git-repo-check', '-C', self.ws, 'go']


class Copilot(Host):
    name, package, version = 'copilot', '@github/copilot', '1.0.102'
    program = '.bin/copilot'
    shell = 'bash'

    def words(self):
        write(self.home + '/mcp.json', {'mcpServers': {'sallyport': dict(self.server(), type='local', tools=['*'])}})
        self.env = {'COPILOT_OFFLINE': 'true', 'COPILOT_PROVIDER_BASE_URL': self.url + '/v1', 'COPILOT_MODEL': 'gpt-4.1',
                    'COPILOT_AUTO_UPDATE': 'false', 'COPILOT_HOME': self.home + '/copilot'}
        return [self.path(), '-p', 'go', '--allow-tool', 'sallyport', '--additional-mcp-config', '@' + self.home + '/mcp.json',
                '--disable-builtin-mcps', '--no-color', '--excluded-tools', 'bash']


class Gemini(Host):
    name, package, version = 'gemini', '@google/gemini-cli', '0.61.0'
    program = '.bin/gemini'
    shell = 'run_shell_command'

    def words(self):
        write(self.home + '/.gemini/settings.json', {
            'mcpServers': {'sallyport': dict(self.server(), trust=True)}, 'security': {'auth': {'selectedType': 'gemini-api-key'}},
            'tools': {'exclude': ['run_shell_command']}, 'privacy': {'usageStatisticsEnabled': False},
            'telemetry': {'enabled': False}, 'general': {'disableAutoUpdate': True, 'disableUpdateNag': True}})
        self.env = {'GEMINI_API_KEY': 'script', 'GOOGLE_GEMINI_BASE_URL': self.url, 'GEMINI_CLI_TRUST_WORKSPACE': 'true'}
        return [self.path(), '-p', 'go', '-m', 'gemini-2.5-pro', '--yolo', '--skip-trust']


class Qwen(Host):
    name, package, version = 'qwen', '@qwen-code/qwen-code', '0.24.4'
    program = '.bin/qwen'
    shell = 'run_shell_command'
    deferred = 'mcp__sallyport__%s'

    def words(self):
        write(self.home + '/.qwen/settings.json', {
            'mcpServers': {'sallyport': dict(self.server(), trust=True)}, 'security': {'auth': {'selectedType': 'openai'}},
            'tools': {'exclude': ['run_shell_command']}, 'privacy': {'usageStatisticsEnabled': False},
            'telemetry': {'enabled': False}, 'general': {'disableAutoUpdate': True}})
        self.env = {'OPENAI_API_KEY': 'script', 'OPENAI_BASE_URL': self.url + '/v1', 'OPENAI_MODEL': 'script'}
        return [self.path(), 'go', '--yolo', '--auth-type', 'openai', '--mcp-config', self.home + '/.qwen/settings.json']


class Opencode(Host):
    name, package, version = 'opencode', 'opencode-ai', '1.18.33'
    program = 'opencode-linux-x64/bin/opencode'
    shell = 'bash'

    def words(self):
        write(self.home + '/opencode.json', {
            '$schema': 'https://opencode.ai/config.json', 'autoupdate': False, 'share': 'disabled', 'model': 'script/script',
            'provider': {'script': {'npm': '@ai-sdk/openai-compatible', 'name': 'script',
                                    'options': {'baseURL': self.url + '/v1', 'apiKey': 'script'}, 'models': {'script': {'name': 'script'}}}},
            'tools': {'bash': False},
            'mcp': {'sallyport': {'type': 'local', 'command': self.mcp, 'enabled': True}}})
        self.env = {'OPENCODE_CONFIG': self.home + '/opencode.json', 'OPENCODE_DISABLE_AUTOUPDATE': '1',
                    'OPENCODE_DISABLE_MODELS_FETCH': '1', 'OPENCODE_DISABLE_LSP_DOWNLOAD': '1', 'OPENCODE_DISABLE_DEFAULT_PLUGINS': '1'}
        return [self.path(), 'run', 'go', '--model', 'script/script', '--print-logs']


class Continue(Host):
    name, package, version = 'continue', '@continuedev/cli', '1.5.47'
    program = '.bin/cn'
    shell = 'Bash'

    def words(self):
        write(self.home + '/config.yaml', '\n'.join([
            'name: script', 'version: 1.0.0', 'schema: v1', 'models:', '  - name: script', '    provider: openai', '    model: gpt-4o',
            '    apiKey: script', '    apiBase: %s/v1' % self.url, '    useResponsesApi: false', '    roles: [chat]', 'mcpServers:', '  - name: sallyport',
            '    command: %s' % json.dumps(self.mcp[0]), '    args: %s' % json.dumps(self.mcp[1:]), '']))
        self.env = {'CONTINUE_GLOBAL_DIR': self.home + '/continue', 'CONTINUE_TELEMETRY_ENABLED': '0',
                    'CONTINUE_METRICS_ENABLED': '0'}
        return [self.path(), '-p', 'go', '--exclude', 'Bash', '--allow', '*', '--config', self.home + '/config.yaml']


class Cline(Host):
    name, package, version = 'cline', 'cline', '3.0.65'
    program = '.bin/cline'
    shell = 'run_commands'

    def words(self):
        data = self.home + '/.cline/data/settings'
        write(data + '/providers.json', {
            'version': 1, 'lastUsedProvider': 'openai-compatible', 'modes': {}, 'providers': {'openai-compatible': {
                'settings': {'provider': 'openai-compatible', 'apiKey': 'script', 'model': 'script', 'baseUrl': self.url + '/v1'},
                'updatedAt': '2026-01-01T00:00:00.000Z', 'tokenSource': 'manual'}}})
        write(data + '/global-settings.json', {'disabledTools': ['run_commands'], 'telemetryOptOut': True})
        write(data + '/cline_mcp_settings.json', {'mcpServers': {'sallyport': dict(self.server(), timeout=3600, disabled=False)}})
        self.env = {'CLINE_TELEMETRY_DISABLED': '1', 'CLINE_NO_AUTO_UPDATE': '1'}
        return [self.path(), '--auto-approve', 'true', '-P', 'openai-compatible', '-m', 'script', '-c', self.ws, 'go on']


HOSTS = [Claude, Codex, Copilot, Gemini, Qwen, Opencode, Continue, Cline]


class Run:
    """A host at work in a fresh home and workspace; `wait` gives its exit status."""

    def __init__(self, kind, model, mcp_args=(), mcp_env=None):
        self.base = tempfile.mkdtemp(prefix='sallyport-hosts-', dir='/var/tmp')
        self.mark = os.path.basename(self.base)
        home, self.ws = self.base + '/home', self.base + '/ws'
        for d in (home, self.ws, self.base + '/tmp'):
            os.mkdir(d)
        host = kind(home, self.ws, model.url, [server.PROGRAM, 'mcp', '--cwd', self.ws, *mcp_args])
        words = host.words()
        env = {'PATH': os.environ['PATH'], 'HOME': home, 'TMPDIR': self.base + '/tmp', 'NO_PROXY': '*', 'no_proxy': '*',
               'LANG': 'C.UTF-8', 'TERM': 'dumb', 'NO_COLOR': '1', 'CI': '1', server.MARK: self.mark, **host.env, **(mcp_env or {})}
        env.update({k: os.environ[k] for k in server.PASS_ON if k in os.environ})
        self.log_path = self.base + '/log'
        with open(self.log_path, 'wb') as log:
            self.popen = subprocess.Popen(words, env=env, cwd=self.ws, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          start_new_session=True)

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as f:
            return f.read()[-4000:]

    def wait(self, limit=LIMIT):
        return self.popen.wait(limit)

    def left(self):
        return server.marked(self.mark.encode())

    def stop(self):
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()


if __name__ == '__main__':  # what tests/hosts/install installs
    for h in HOSTS:
        print(h.name, '%s@%s' % (h.package, h.version))
