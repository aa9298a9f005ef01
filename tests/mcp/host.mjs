// SPDX-License-Identifier: Apache-2.0
//
// An MCP host made of the official packages, told what to do by lines of JSON on stdin (sdk.py writes them):
// {"id": 1, "do": "call", ...} is answered by {"id": 1, "result": ...} or {"id": 1, "error": {...}}, in any order;
// {"event": ...} tells of progress, questions and ends. Each client has a number, which its order chooses.
import { createInterface } from 'node:readline';
import * as one from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as Stdio1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as Http1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { AjvJsonSchemaValidator as Ajv1 } from '@modelcontextprotocol/sdk/validation/ajv';
import * as two from '@modelcontextprotocol/client';
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio';
import { AjvJsonSchemaValidator as Ajv2 } from '@modelcontextprotocol/client/validators/ajv';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';

const INFO = { name: 'interop', version: '1' };
const clients = new Map(); // number: {client, transport, checked, tasks}
const calls = new Map(); // number of a call: its AbortController
const questions = new Map(); // number of a question: what takes its answer
const executions = new Map(); // number of an order: what runs as a task
let nextQuestion = 1;

const say = message => process.stdout.write(JSON.stringify(message) + '\n');

function ask(number, params) {
    const question = nextQuestion++;
    say({ event: 'question', client: number, question, params });
    return new Promise(resolve => questions.set(question, resolve));
}

// The package's own validator, which also counts.
function counting(Ajv, entry) {
    const ajv = new Ajv();
    return {
        getValidator(schema) {
            const check = ajv.getValidator(schema);
            return value => {
                entry.checked++;
                return check(value);
            };
        },
    };
}

function make(order, entry) {
    const capabilities = order.capabilities ?? {};
    if (order.sdk === 1) {
        const client = new one.Client(INFO, { capabilities, jsonSchemaValidator: counting(Ajv1, entry) });
        if (capabilities.elicitation)
            client.setRequestHandler(ElicitRequestSchema, request => ask(order.client, request.params));
        return client;
    }
    const client = new two.Client(INFO, {
        capabilities, jsonSchemaValidator: counting(Ajv2, entry), versionNegotiation: { mode: order.mode },
    });
    if (capabilities.elicitation)
        client.setRequestHandler('elicitation/create', request => ask(order.client, request.params));
    return client;
}

function transportOf(order) {
    if (order.url) {
        const requestInit = { headers: { Authorization: 'Bearer ' + order.token } };
        return new (order.sdk === 1 ? Http1 : two.StreamableHTTPClientTransport)(new URL(order.url), { requestInit });
    }
    return new (order.sdk === 1 ? Stdio1 : Stdio2)({ ...order.stdio, stderr: 'ignore' });
}

async function connect(order) {
    const entry = { checked: 0, order };
    entry.client = make(order, entry);
    entry.transport = transportOf(order);
    clients.set(order.client, entry);
    entry.client.onclose = () => say({ event: 'closed', client: order.client });
    entry.client.onerror = error => say({ event: 'trouble', client: order.client, message: String(error) });
    await entry.client.connect(entry.transport);
    entry.transport._process?.once('exit', code => say({ event: 'exit', client: order.client, code }));
    return {
        version: entry.client.getNegotiatedProtocolVersion?.(),
        era: entry.client.getProtocolEra?.() ?? 'legacy', server: entry.client.getServerVersion(),
        capabilities: entry.client.getServerCapabilities(), instructions: entry.client.getInstructions(),
        pid: entry.transport.pid,
    };
}

function optionsOf(order) {
    const abort = new AbortController();
    calls.set(order.id, abort);
    const options = { signal: abort.signal, timeout: order.timeout ?? 120000 };
    if (order.progress) {
        options.onprogress = progress => say({ event: 'progress', of: order.id, progress });
        options.resetTimeoutOnProgress = order.reset ?? false;
    }
    return options;
}

async function call(order) {
    const { client, order: { sdk } } = clients.get(order.client);
    const params = { name: order.tool, arguments: order.arguments ?? {} };
    try {
        return sdk === 1 ? await client.callTool(params, undefined, optionsOf(order))
            : await client.callTool(params, optionsOf(order));
    } finally {
        calls.delete(order.id);
    }
}

// Tasks of the newer era have no place in the client itself: messages of ours go by its transport, beside its own.
function rawDispatch({ transport }) {
    const waiting = new Map();
    const inner = transport.onmessage;
    transport.onmessage = (message, extra) => {
        const take = message.method === undefined && waiting.get(message.id);
        if (!take)
            return inner.call(transport, message, extra);
        waiting.delete(message.id);
        take(message);
    };
    let next = 1;
    return async request => {
        const id = 'task-' + next++;
        const answer = new Promise(resolve => waiting.set(id, resolve));
        await transport.send({ ...request, jsonrpc: '2.0', id });
        const message = await answer;
        return message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result };
    };
}

function tasksOf(order) {
    const entry = clients.get(order.client);
    entry.tasks ??= createTaskSessionFromClient(entry.client, {
        endpointId: 'sallyport',
        rawDispatch: rawDispatch(entry),
        v2RequestFraming: {
            protocolVersion: entry.client.getNegotiatedProtocolVersion(), clientInfo: INFO,
            clientCapabilities: entry.order.capabilities ?? {},
        },
        onInputRequest: async request => ask(order.client, request),
        onError: error => say({ event: 'trouble', client: order.client, message: String(error) }),
    });
    return entry.tasks;
}

async function task(order) {
    const execution = await tasksOf(order).callTool(order.tool, order.arguments ?? {});
    executions.set(order.id, execution);
    say({ event: 'task', of: order.id, kind: execution.kind });
    const { outcome } = await execution.settle();
    return { status: outcome.status, result: outcome.result, error: outcome.error && String(outcome.error) };
}

async function listen(order) {
    const subscription = await clients.get(order.client).client.listen({ toolsListChanged: true });
    void subscription.closed.then(how => say({ event: 'unsubscribed', client: order.client, how }));
    return subscription.honoredFilter;
}

const deeds = {
    connect, call, task, listen,
    list: async order => (await clients.get(order.client).client.listTools()).tools,
    ping: async order => await clients.get(order.client).client.ping(),
    checked: async order => clients.get(order.client).checked,
    abort: async order => void calls.get(order.of).abort('the user has left'),
    cancel: async order => await executions.get(order.of).cancel(),
    answer: async order => void questions.get(order.question)(order.answer),
    // The end of an HTTP session by the client's wish; over stdio there is none.
    terminate: async order => await clients.get(order.client).transport.terminateSession(),
    close: async order => {
        const entry = clients.get(order.client);
        await entry.tasks?.close();
        await entry.client.close();
        clients.delete(order.client);
    },
};

async function obey(order) {
    try {
        say({ id: order.id, result: (await deeds[order.do](order)) ?? null });
    } catch (error) {
        say({ id: order.id, error: { name: error.name, code: error.code, message: String(error.message ?? error) } });
    }
}

const orders = createInterface({ input: process.stdin });
orders.on('line', line => void obey(JSON.parse(line)));
orders.on('close', () => process.exit(0));
