// workers.js WORKERS ROUNDS LIBRARY: compression, hashes and buffers handed between threads, all checked.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { createHash } = require('node:crypto');
const { readFileSync } = require('node:fs');
const zlib = require('node:zlib');

/** The bytes that belong to a worker's round; both sides compute them. */
function bytes(worker, round) {
  let state = (worker * 1000003 + round * 7919 + 1) >>> 0;
  const data = Buffer.alloc(1 + (state * 31) % 60000);
  for (let index = 0; index < data.length; index++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    data[index] = index % 3 ? state >>> 24 : 97;
  }
  return data;
}

const digest = (data) => createHash('sha256').update(data).digest('hex');

function check(condition, what) {
  if (!condition) throw new Error(`wrong: ${what}`);
}

/** Compresses, expands, and gives both the bytes and their digest to the main thread. */
async function work({ worker, rounds, counter }) {
  for (let round = 0; round < rounds; round++) {
    const data = bytes(worker, round);
    const packed = round % 2 ? zlib.brotliCompressSync(data, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 3 } })
      : zlib.deflateSync(data);
    const again = round % 2 ? zlib.brotliDecompressSync(packed) : zlib.inflateSync(packed);
    check(again.equals(data), 'bytes after compression');
    const streamed = await new Promise((resolve, reject) =>
      zlib.gzip(data, (error, result) => (error ? reject(error) : resolve(result))));
    check(zlib.gunzipSync(streamed).equals(data), 'bytes after gzip in the thread pool');
    const text = JSON.stringify({ worker, round, list: Array.from(data.subarray(0, 500)), text: data.toString('base64') });
    check(Buffer.from(JSON.parse(text).text, 'base64').equals(data), 'bytes after JSON');
    const own = new Uint8Array(data);
    parentPort.postMessage({ worker, round, own, digest: digest(data) }, [own.buffer]);
    check(own.byteLength === 0, 'a transferred buffer is gone here');
    Atomics.add(new Int32Array(counter), 0, 1);
  }
}

async function main() {
  const [workers, rounds] = process.argv.slice(2, 4).map(Number);
  const library = process.argv[4];
  check(readFileSync('/proc/self/maps', 'latin1').split('\n').some((line) => line.endsWith(library)),
    `${library} is not loaded`);
  const counter = new SharedArrayBuffer(4);
  let received = 0;
  // Two generations, so that threads end while others begin.
  const one = (worker) => new Promise((resolve, reject) => {
    const thread = new Worker(__filename, { workerData: { worker, rounds, counter } });
    thread.on('message', (message) => {
      const expected = bytes(message.worker, message.round);
      check(digest(message.own) === digest(expected), 'bytes after the transfer');
      check(message.digest === digest(expected), 'the digest that the worker saw');
      received++;
    });
    thread.on('error', reject);
    thread.on('exit', (code) => (code ? reject(new Error(`worker ended with ${code}`)) : resolve()));
  });
  const half = Math.ceil(workers / 2);
  const first = Array.from({ length: half }, (_, index) => one(index));
  await Promise.race(first);
  const second = Array.from({ length: workers - half }, (_, index) => one(half + index));
  await Promise.all([...first, ...second]);
  check(received === workers * rounds, `${received} messages`);
  check(new Int32Array(counter)[0] === workers * rounds, 'the shared counter');
  console.log(`${workers} workers, ${received} rounds, all checksums right`);
}

(isMainThread ? main() : work(workerData)).catch((error) => {
  console.error(error);
  process.exit(1);
});
