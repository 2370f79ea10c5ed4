// One Node process of a chaos run: makes batches of ids with examples/client/client.mjs and records them, as worker.py does.
//
// A command on stdin, as worker.py has them, starts a thread instead of a fork: a Worker with a lease of its own. When
// stdin ends, so does the process.

import fs from "node:fs";
import path from "node:path";
import { inspect } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker, isMainThread, parentPort, threadId, workerData } from "node:worker_threads";

import { Client } from "../../../examples/client/client.mjs";

const [url, pool, , , , , , directory, slot, beganNs, , restS] = isMainThread ? process.argv.slice(2) : workerData;
// as tests/lab/chaos/runs.py has them
const PAGE = 4096;
const [WORKER, THREAD] = [0, 6];
const [RETRY_MS, MAX_WAIT_MS] = [10, 1_000];
const nowMs = () => Number((process.hrtime.bigint() - BigInt(beganNs)) / 1_000_000n);

class Recorder {
  constructor(kind) {
    const name = `${slot.padStart(2, "0")}-${process.pid}-${process.hrtime.bigint()}${threadId}.runs`;
    const file = path.join(directory, name);
    fs.writeFileSync(file, Buffer.alloc(PAGE), { flag: "wx", mode: 0o600 });
    [this.runs, this.state] = [fs.openSync(file, "a"), fs.openSync(file, "r+")];
    this.page = Buffer.alloc(128);
    this.words = new BigInt64Array(this.page.buffer, this.page.byteOffset, 8);
    this.words.set([0n, BigInt(slot), BigInt(kind), BigInt(process.pid), BigInt(nowMs()), 0n, 0n, 0n]);
    this.words[0] = Buffer.from("SNOWRUNS").readBigInt64LE();
    this.show();
  }

  show() {
    fs.writeSync(this.state, this.page, 0, this.page.length, 0);
  }

  /** Write a batch as runs of consecutive ids; when this returns, its ids count. */
  record(batch) {
    const at = BigInt(nowMs());
    const runs = [];
    let first = batch[0];
    let last = first;
    for (const id of batch.slice(1)) {
      if (id <= last) throw new Error(`${id} after ${last}: not strictly increasing`);
      if (id !== last + 1n) {
        runs.push(first, last - first + 1n, at);
        first = id;
      }
      last = id;
    }
    runs.push(first, last - first + 1n, at);
    const data = Buffer.from(BigInt64Array.from(runs).buffer);
    if (fs.writeSync(this.runs, data) !== data.length) throw new Error("a run was written in part: is the disk full?");
    this.words[5] += BigInt(batch.length);
    this.words[6] = at;
    this.show();
  }

  note(error) {
    this.page.fill(0, 64).write(error.code ?? error.name, 64, 64);
    this.words[7] += 1n;
    this.show();
  }
}

class Maker {
  constructor(kind) {
    this.recorder = new Recorder(kind);
    this.ended = this.released = false;
  }

  /** Make ids until this is told to end; then release, and go on until the client refuses after that. */
  async work() {
    while (!this.ended || this.client) {
      try {
        if (this.ended) this.client.close().then(() => (this.released = true));
        this.client ??= await Client.connect({ url, pool, label: slot, maxWaitMs: MAX_WAIT_MS });
        const sizes = [1, 2, 100, 20_000, 20_000, 20_000, 20_000];
        this.recorder.record(this.client.nextIds(sizes[Math.floor(Math.random() * sizes.length)]));
        await sleep(Number(restS) * 1000);
      } catch (error) {
        // defects of this program and of the client end it
        if (typeof error.code !== "string") throw error;
        if (error.code !== "CLOSED") this.recorder.note(error);
        else if (this.released) return;
        await sleep(RETRY_MS);
      }
    }
  }
}

/** Start a thread that ends after *seconds*: it releases its worker id, or leaves or dies without a word. */
function startThread(ending, seconds) {
  const thread = new Worker(new URL(import.meta.url), { workerData: process.argv.slice(2) });
  thread.on("error", crash);
  thread.unref();
  setTimeout(() => (ending === "close" ? thread.postMessage("end") : thread.terminate()), seconds * 1000).unref();
}

function crash(error, origin) {
  const text = `${inspect(origin)} ${inspect(error)}`;
  fs.writeFileSync(path.join(directory, `${slot.padStart(2, "0")}-${process.pid}.crash`), text);
  process.exit(70);
}

process.on("unhandledRejection", crash);
process.on("uncaughtException", crash);
const maker = new Maker(isMainThread ? WORKER : THREAD);
const end = () => {
  maker.ended = true;
};
if (isMainThread) {
  process.on("SIGTERM", end);
  process.stdin.on("end", end).on("data", (data) => {
    for (const line of data.toString().split("\n").filter(Boolean)) {
      const [, ending, seconds] = line.split(" ");
      startThread(ending, Number(seconds));
    }
  });
} else parentPort.on("message", end);
await maker.work();
process.exit(0);
