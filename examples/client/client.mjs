// Ids in JavaScript, with no Python process: a client of a pool, written from docs/reference/protocol.md alone.
//
//   snowredis pool create orders --url redis://127.0.0.1:6379/0
//   (cd examples/client && npm install)            Node 18 or later; node-redis 4 or later, for unix:// 6
//   node examples/client/client.mjs redis://127.0.0.1:6379/0 orders 5
//   … prints five ids and releases the worker id; `snowredis decode ID` shows their parts.
//
// To take it: copy this folder, and add it with `npm install ./client`; client.d.ts has its types, scripts.mjs the Lua.
// Each process, and each Worker thread, calls Client.connect() for itself. A fleet that uses min_replicas needs a WAIT
// after each script, which is left out here.
import { createHash, randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createClient } from "redis";
import * as scripts from "./scripts.mjs";

const REPLY_LIMIT_MS = 2_000;
const REPEAT_MS = 500;
const REFUSED_MS = 1_000;
// a caller who waits for an id tries again after at most this time; nextId() waits as long, and blocks the event loop
const POLL_MS = 20;

const shaOf = (text) => createHash("sha1").update(text).digest("hex");
const SHA = Object.fromEntries(Object.entries(scripts).map(([name, text]) => [name, shaOf(text)]));
const randomName = () => randomBytes(16).toString("hex");
// why there is no id: a code, and after how many ms another attempt may succeed; undefined: never
const refusal = (code, message, waitMs) => Object.assign(new Error(`${code}: ${message}`), { code, waitMs });
const noReply = (reason) => refusal("NO_REPLY", `${reason}; is Redis running, and is the URL right?`, POLL_MS);

// a promise of Redis that is kept within the limit, or rejected with a code
function inTime(promise) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(reject, REPLY_LIMIT_MS, new Error("it took too long"))));
  const failed = (error) => Promise.reject(noReply(error.message || error.code));
  return Promise.race([promise, late]).catch(failed).finally(() => clearTimeout(timer));
}

export class Layout {
  constructor(text) {
    const [widths, ...options] = text.split(";");
    const named = Object.fromEntries(options.map((option) => option.split("=")));
    const bitsOf = (part) => part.split(",").reduce((bits, field) => bits + Number(field.split(":").at(-1)), 0);
    const [tick, datacenter, lane, worker, sequence] = widths.split("/").map(bitsOf);
    const low = named.worker_last === "1" ? { sequence, worker } : { worker, sequence };
    this.parts = Object.entries({ tick, datacenter, lane, ...low, gene: Number(named.gene_bits ?? 0) });
    Object.assign(this, { tickMs: Number(named.tick_ms), epochMs: Number(named.epoch_ms), endTick: 2 ** tick });
    Object.assign(this, { capacity: 2 ** worker, laneCount: 2 ** lane, lastSequence: 2 ** sequence - 1 });
    this.sequenceStep = this.encode({ sequence: 1 });
  }

  tickAt(ms) { return Math.floor((ms - this.epochMs) / this.tickMs); }
  firstTickFrom(ms) { return Math.ceil((ms - this.epochMs) / this.tickMs); }
  startOf(tick) { return this.epochMs + tick * this.tickMs; }
  encode(of) { return this.parts.reduce((id, [name, bits]) => (id << BigInt(bits)) + BigInt(of[name] ?? 0), 0n); }
}

export class Settings {
  constructor(signature) {
    const parts = Object.fromEntries(signature.split(" ").map((part) => part.split(/=(.*)/s)));
    if (parts.format !== "1") throw refusal("SIGNATURE", `not format 1: ${signature}`);
    const times = ["ttl", "max_clock_lead", "failover_slack", "outage_reserve"];
    const [ttlMs, lead, slack, outage] = times.map((name) => Number(parts[`${name}_ms`]));
    const [others, third, layout] = [lead + slack, Math.floor(ttlMs / 3), new Layout(parts.layout)];
    Object.assign(this, { signature, layout, datacenter: Number(parts.datacenter), ttlMs });
    this.heartbeatMs = ttlMs <= others + third ? Math.floor(third / 2) : third;
    this.repeatMs = Math.min(REPEAT_MS, this.heartbeatMs);
    // the outage lane, the last one, is left out
    this.usableLanes = layout.laneCount - (outage > 0 ? 1 : 0);
  }
}

// one worker id, and what may still be made of it
export class Lease {
  constructor(settings, renewSoon, token, terms) {
    Object.assign(this, { settings, renewSoon, token });
    this.renewed(terms);
    // not tick 0, of which an id may be 0
    const firstTickOf = (beginMs) => Math.max(1, settings.layout.firstTickFrom(beginMs));
    const laneOf = (beginMs, number) => ({ number, firstTick: firstTickOf(Number(beginMs)), tick: -Infinity, id: 0n });
    this.lanes = terms.split(",").slice(5).map(laneOf);
    [this.lane] = this.usable = this.lanes.slice(0, settings.usableLanes);
  }

  // the terms are sent as they are; they begin with worker id and until
  renewed(terms) {
    [this.terms, this.pendingId] = [terms, ""];
    [this.worker, this.until] = terms.split(",", 2).map(Number);
  }

  get opened() { return this.lanes.map((lane) => (lane.tick >= 0 ? "1" : "0")).join(""); }

  nextId(made) {
    const { settings: { layout, datacenter }, worker } = this;
    for (let beganMs, spentMs = 0; ; spentMs = performance.now() - beganMs) {
      const nowMs = Date.now();
      const [tick, { lane }] = [layout.tickAt(nowMs), this];
      if (tick >= layout.endTick) throw refusal("LAYOUT", "the layout has no bits for this time; correct the clock");
      if (!(layout.startOf(tick) < this.until)) throw this.renewSoon();
      const waitMs = layout.startOf(this.nextTick(lane)) - nowMs;
      if (waitMs <= 0) {
        const first = () => layout.encode({ tick, datacenter, lane: lane.number, worker }) - layout.sequenceStep;
        if (tick !== lane.tick) Object.assign(lane, { tick, sequence: -1, id: first() });
        lane.sequence += 1;
        made.ids += 1;
        return (lane.id += layout.sequenceStep);
      }
      beganMs ??= performance.now();
      if (waitMs <= POLL_MS && spentMs < POLL_MS) continue;
      // not because this tick is full: these ids would not increase
      this.lane = (tick !== lane.tick && this.laneFor(tick)) || lane;
      if (this.lane === lane) throw refusal("NOT_YET", `no id for ${waitMs} ms; is the clock right?`, waitMs);
    }
  }

  // the first tick that the lane can still make an id of
  nextTick(lane) {
    return Math.max(lane.firstTick, lane.sequence === this.settings.layout.lastSequence ? lane.tick + 1 : lane.tick);
  }

  // of the lanes that may use the tick, the one whose last tick, or beginning, is the latest
  laneFor(tick) {
    return this.usable.filter((a) => this.nextTick(a) <= tick).sort((a, b) => this.nextTick(b) - this.nextTick(a))[0];
  }
}

export class Client {
  #problem = refusal("NO_LEASE", "no worker id has been leased yet", POLL_MS);
  #made = { ids: 0, before: 0, beforeMs: 0 };
  #claimToken = "";
  #refused = "";
  #fullMs = 10;
  // the state of the pool in the newest reply
  #seen = "";
  #repliedAtMs = 0;
  #wake = () => {};

  // maxWaitMs: how long connect() and id() wait for an id, also while Redis does not reply
  static async connect({ url, pool, label = "", maxWaitMs = 60_000 }) {
    const client = Object.assign(new this(), { url, pool, maxWaitMs });
    client.owner = JSON.stringify({ host: hostname(), pid: process.pid, label, generator: randomName() });
    client.keys = ["", ":leases", ":events"].map((suffix) => `snowredis:{${pool}}${suffix}`);
    try {
      client.kept = client.#keep();
      await client.#patiently(() => client.worker);
      return client;
    } catch (error) {
      // a call that is under way ends by itself, and what it got is released then
      client.close();
      throw error;
    }
  }

  get worker() { return this.#leased().worker; }
  nextId() { return this.#leased().nextId(this.#made); }
  id() { return this.#patiently(() => this.nextId()); }
  close() { return (this.closing ??= this.#close()); }

  // strictly increasing, even if the clock goes back between two of them
  nextIds(count) { return Array.from({ length: count }, () => this.nextId()).sort((a, b) => (a < b ? -1 : 1)); }

  // send a script and return its reply; override it to log both
  async run(name, args) {
    const [text, { connection, keys }] = [scripts[name], this];
    const send = (...words) => connection.sendCommand([...words, `${keys.length}`, ...keys, ...args]);
    const evalIfNew = (error) => (error.message.startsWith("NOSCRIPT") ? send("EVAL", text) : Promise.reject(error));
    const reply = await send("EVALSHA", SHA[name]).catch(evalIfNew);
    return reply[0].split("\n");
  }

  #leased() {
    if (this.lease && !this.closing) return this.lease;
    throw this.closing ? refusal("CLOSED", "the client was closed; connect anew") : this.#problem;
  }

  async #patiently(attempt) {
    for (const deadlineMs = performance.now() + this.maxWaitMs; ; ) {
      try {
        return attempt();
      } catch (error) {
        if (!(performance.now() + error.waitMs <= deadlineMs)) throw error;
        await sleep(Math.min(error.waitMs, POLL_MS));
      }
    }
  }

  // one call at a time; each says after how many ms the next one is due
  async #keep() {
    while (!this.closing) {
      const pauseMs = await (this.lease ? this.#renew() : this.#claim());
      const woken = new Promise((resolve) => (this.#wake = resolve));
      if (!this.closing) await Promise.race([sleep(pauseMs, undefined, { ref: false }), woken]);
    }
  }

  // the settings are those of now: a person may have ended the pool, and created another one of its name
  async #readSettings() {
    try {
      await this.#connect();
      const [signature, over] = await inTime(this.connection.sendCommand(["HMGET", this.keys[0], "signature", "over"]));
      if (!signature || over) throw refusal("NO_POOL", `type: snowredis pool create ${this.pool}`);
      this.settings = new Settings(signature);
      return true;
    } catch (error) {
      this.#problem = error;
      return false;
    }
  }

  async #claim() {
    if ((!this.settings || this.#refused) && !(await this.#readSettings())) return this.#refused ? REFUSED_MS : REPEAT_MS;
    const { heartbeatMs, repeatMs } = this.settings;
    const token = (this.#claimToken ||= randomName());
    // it has no outage lane and wants none, and does not give up
    const { status, fields } = await this.#call("claim", token, this.owner, 0, this.#refused);
    if (!status) return repeatMs;
    this.#claimToken = "";
    this.#fullMs = status === "full" ? Math.min(this.#fullMs * 2, 2_000) : 10;
    if (status === "granted") this.lease = new Lease(this.settings, this.#renewSoon, token, fields[0]);
    const settlingMs = Math.min(Number(fields[0]), heartbeatMs, REFUSED_MS);
    return { granted: repeatMs / 2, settling: settlingMs, full: this.#fullMs, behind: REPEAT_MS }[status] ?? REFUSED_MS;
  }

  async #renew() {
    const { lease, settings } = this;
    lease.pendingId ||= randomName();
    const args = [lease.token, this.owner, lease.terms, lease.pendingId, this.#stats()];
    const { status, fields } = await this.#call("renew", ...args);
    if (!status) return settings.repeatMs;
    if (status === "renewed") {
      lease.renewed(fields[0]);
      return settings.heartbeatMs * (1 - 0.15 * Math.random());
    }
    this.lease = undefined;
    return status === "lost" ? 0 : REFUSED_MS;
  }

  #renewSoon = () => {
    if (performance.now() > this.#made.beforeMs + REPEAT_MS) this.#wake();
    return refusal("UNTIL", "the lease has reached its end; is Redis away, or the clock ahead?", POLL_MS);
  };

  // no id is made from here on, since #leased() refuses
  async #close() {
    this.#wake();
    await this.kept;
    // the claim had no reply: repeat it once, to release what it granted
    if (this.#claimToken) await this.#claim();
    const { token, terms, pendingId, opened } = this.lease ?? {};
    if (token) await this.#call("release", token, terms, pendingId, opened, this.#stats());
    this.#disconnect();
  }

  // return the reply; without a status, Redis may have done it, and the same call is due again
  async #call(name, ...own) {
    const { signature, ttlMs } = this.settings;
    // the process or the machine was paused: the connection may lead to a former master
    if (Math.abs(Date.now() - this.#repliedAtMs) > ttlMs / 2) this.#disconnect();
    try {
      await this.#connect();
      const [nonce, nowMs] = [randomName(), Date.now()];
      const args = [signature, nonce, this.#seen, nowMs, ...own].map(String);
      const [status, ...fields] = await inTime(this.run(name, args));
      if (fields.pop() !== nonce || /^(unidentified|broken)$/.test(status)) throw noReply(`${status} ${fields}`);
      this.#repliedAtMs = Date.now();
      if (status !== "signature") this.#seen = fields.splice(0, 4)[1];
      if (status === "signature" || name === "claim") this.#refused = status === "signature" ? "r" : "";
      this.#problem = refusal(status.toUpperCase(), `${fields[0]}; see docs/reference/protocol.md`, POLL_MS);
      return { status, fields };
    } catch (error) {
      this.#disconnect();
      this.#problem = error;
      return {};
    }
  }

  // for people: ids made, ids a second, this clock minus that of Redis, lane in use, how often the clock went back
  #stats() {
    const [{ ids, before, beforeMs }, nowMs] = [this.#made, performance.now()];
    this.#made = { ids, before: ids, beforeMs: nowMs };
    return [ids, Math.round(((ids - before) * 1_000) / (nowMs - beforeMs)), 0, this.lease.lane.number, 0].join();
  }

  // a connection is used until its first error, so that node-redis neither repeats nor queues a call
  async #connect() {
    if (this.connection?.isReady) return;
    this.#disconnect();
    // given up before the limit, since node-redis cannot destroy a socket that is not there yet
    const socket = { reconnectStrategy: false, connectTimeout: REPLY_LIMIT_MS / 2 };
    this.connection = createClient({ url: this.url, RESP: 2, disableOfflineQueue: true, socket });
    this.connection.on("error", () => {}); // the call that fails reports it
    await inTime(this.connection.connect());
    this.connection.unref();
    this.#repliedAtMs = Date.now();
  }

  #disconnect() {
    if (this.connection?.isOpen) this.connection.disconnect();
    this.connection = undefined;
  }
}

// release when the program ends, or a signal asks it to; then the signal has its usual effect
export function releaseAtExit(client) {
  process.once("beforeExit", () => client.close());
  for (const signal of ["SIGTERM", "SIGINT"])
    process.once(signal, () => client.close().finally(() => process.kill(process.pid, signal)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [url, pool, count = "10"] = process.argv.slice(2);
  const client = await Client.connect({ url, pool, label: "client.mjs" });
  releaseAtExit(client);
  try {
    for (let left = Number(count); left > 0; left--) console.log(String(await client.id()));
  } catch (error) {
    // a signal asked it to end: it ends when the worker id is released
    if (error.code !== "CLOSED") throw error;
  }
}
