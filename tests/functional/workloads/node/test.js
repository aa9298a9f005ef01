// SPDX-License-Identifier: Apache-2.0
// Runs inside: what Node programs do. Says one line a deed.
'use strict';
const assert = require('assert');
const { execFileSync, fork, spawn } = require('child_process');
const { Worker, isMainThread, parentPort } = require('worker_threads');
const fs = require('fs');
const http = require('http');
const net = require('net');
const os = require('os');
const path = require('path');

const once = (thing, event) => new Promise((resolve, reject) => {
  thing.once(event, resolve);
  if (event !== 'error') thing.once('error', reject);
});

async function children() {
  assert.strictEqual(execFileSync('echo', ['sync']).toString(), 'sync\n');
  const cat = spawn('cat');
  cat.stdin.end('x'.repeat(1 << 20));
  let size = 0;
  for await (const part of cat.stdout) size += part.length;
  assert.strictEqual(size, 1 << 20);
  const child = fork(__filename, ['child']);
  child.send({ question: 21 });
  assert.deepStrictEqual(await once(child, 'message'), { answer: 42 });
  await once(child, 'exit');
}

async function workers() {
  const worker = new Worker(__filename);
  assert.strictEqual(await once(worker, 'message'), 'from a worker');
}

async function web() {
  const server = http.createServer((request, response) => response.end('hello ' + request.url));
  server.listen(0, 'localhost');
  await once(server, 'listening');
  const { port } = server.address();
  const answer = await fetch(`http://localhost:${port}/there`);
  assert.strictEqual(await answer.text(), 'hello /there');
  server.close();
  server.closeAllConnections();
}

async function watching() {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'watch-'));
  const watcher = fs.watch(place);
  const seen = once(watcher, 'change');
  fs.writeFileSync(path.join(place, 'new'), 'x');
  await seen;
  watcher.close();
  fs.rmSync(place, { recursive: true });
}

async function files() {
  await fs.promises.writeFile('written', 'by node');
  await fs.promises.rename('written', 'renamed');
  assert.strictEqual(fs.readFileSync('renamed', 'utf8'), 'by node');
  fs.copyFileSync('renamed', 'copied');
  fs.unlinkSync('renamed');
}

async function unixSocket() {
  const server = net.createServer();
  server.listen('./socket');
  const error = await once(server, 'error');
  assert.strictEqual(error.code, 'EPERM');
}

async function main() {
  const deeds = { children, workers, web, watching, files };
  if (process.env.WORK_CONFINED) deeds.unixSocket = unixSocket;
  for (const [name, deed] of Object.entries(deeds)) {
    await deed();
    console.log('done: ' + name);
  }
}

if (process.argv[2] === 'child') {
  process.on('message', ({ question }) => {
    process.send({ answer: question * 2 });
    process.disconnect();
  });
} else if (!isMainThread) {
  parentPort.postMessage('from a worker');
} else {
  main().catch((error) => {
    console.error(error);
    process.exit(1);
  });
}
