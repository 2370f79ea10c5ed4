// Ids in JavaScript, with no Python process: a client of a pool, written from docs/reference/protocol.md alone.
//
//   snowredis pool create orders --url redis://127.0.0.1:6379/0
//   (cd examples && npm install)                   Node 18 or later; node-redis 4 or later, for unix:// 6
//   node examples/client.mjs redis://127.0.0.1:6379/0 orders 5
//   … prints five ids and releases the worker id; `snowredis decode ID` shows their parts.
//
// Each process, and each Worker thread, calls Client.connect() for itself.
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createClient } from "redis";

const REPLY_LIMIT_MS = 2_000;
const REPEAT_MS = 500;
const REFUSED_MS = 1_000;
// a caller who waits for an id tries again after at most this time
const POLL_MS = 20;
const LUA_DIRECTORY = fileURLToPath(new URL("../snowredis", import.meta.url));
// what to do after a reply that leaves the client without a lease
const ADVICE = {
  settling: "Redis may have lost something, and new workers wait; the ms are",
  full: "all worker ids are leased; stop idle processes. The next lease ends after, in ms,",
  behind: "this host's clock is behind the pool; correct it. The ms are",
  signature: "the pool has other settings, or has ended; connect anew. It has",
  lost: "another worker id is being claimed; the reason is",
};

const randomName = () => randomBytes(16).toString("hex");
// why there is no id: a code, and after how many ms another attempt may succeed; undefined: never
const refusal = (code, message, waitMs) => Object.assign(new Error(`${code}: ${message}`), { code, waitMs });

function inTime(promise) {
  const error = refusal("NO_REPLY", `Redis did not reply within ${REPLY_LIMIT_MS} ms`);
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(reject, REPLY_LIMIT_MS, error)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export class Layout {
  constructor(text) {
    const [widths, ...options] = text.split(";");
    const named = Object.fromEntries(options.map((option) => option.split("=")));
    const bitsOf = (part) => part.split(",").reduce((bits, field) => bits + Number(field.split(":").at(-1)), 0);
    const [tick, datacenter, lane, worker, sequence] = widths.split("/").map(bitsOf);
    const low = named.worker_last === "1" ? { sequence, worker } : { worker, sequence };
    const widthOf = { tick, datacenter, lane, ...low, gene: Number(named.gene_bits ?? 0) };
    Object.assign(this, { tickMs: Number(named.tick_ms), epochMs: Number(named.epoch_ms), endTick: 2 ** tick });
    Object.assign(this, { capacity: 2 ** worker, laneCount: 2 ** lane, lastSequence: 2 ** sequence - 1 });
    let end = 0;
    const place = ([name, bits]) => ({ name, bits, shift: BigInt((end += bits) - bits) });
    this.parts = Object.entries(widthOf).reverse().map(place);
    this.sequenceStep = this.encode({ sequence: 1 });
  }

  tickAt(ms) { return Math.floor((ms - this.epochMs) / this.tickMs); }
  firstTickFrom(ms) { return Math.ceil((ms - this.epochMs) / this.tickMs); }
  startOf(tick) { return this.epochMs + tick * this.tickMs; }
  encode(fields) { return this.parts.reduce((id, { name, shift }) => id | (BigInt(fields[name] ?? 0) << shift), 0n); }
  decode(id) {
    const read = ({ name, bits, shift }) => [name, Number(BigInt.asUintN(bits, id >> shift))];
    return Object.fromEntries(this.parts.map(read));
  }
}

export class Settings {
  constructor(signature) {
    const parts = Object.fromEntries(signature.split(" ").map((part) => part.split(/=(.*)/s)));
    if (parts.format !== "5") throw refusal("SIGNATURE", `the pool has format ${parts.format}; get the client for it`);
    if (parts.registry) throw refusal("SIGNATURE", "this client cannot confirm the number of a pool with a registry");
    const times = ["ttl", "max_clock_lead", "redis_skew", "failover_slack", "outage_reserve"];
    const [ttlMs, lead, skew, slack, outage] = times.map((name) => Number(parts[`${name}_ms`] ?? 0));
    const [others, third, layout] = [lead + skew + slack, Math.floor(ttlMs / 3), new Layout(parts.layout)];
    Object.assign(this, { signature, layout, datacenter: Number(parts.datacenter), ttlMs, floorMs: ttlMs + others });
    this.heartbeatMs = ttlMs <= others + third ? Math.floor(third / 2) : third;
    this.repeatMs = Math.min(REPEAT_MS, this.heartbeatMs);
    this.waitMs = this.floorMs + others + layout.tickMs;
    this.constants = [ttlMs, lead, skew, slack, outage, 20_000, parts.durability ?? "detect"].join();
    // the outage lane, the last one, is left out
    this.usableLanes = layout.laneCount - (outage > 0 ? 1 : 0);
  }
}

// one worker id, and what may still be made of it
class Lease {
  constructor(settings, renewSoon, token, incarnation, [worker, until, begins, renewalId, outageEnd]) {
    Object.assign(this, { settings, renewSoon, token, incarnation, worker, renewalId, pendingId: "" });
    [this.until, this.outageEnd, this.begins] = [Number(until), Number(outageEnd), begins.split(",").map(Number)];
    // not tick 0, of which an id may be 0
    const firstTickOf = (beginMs) => Math.max(1, settings.layout.firstTickFrom(beginMs));
    const unused = { tick: -Infinity, sequence: 0, id: 0n };
    const laneOf = (beginMs, number) => ({ number, firstTick: firstTickOf(beginMs), ...unused });
    this.lanes = this.begins.slice(0, settings.usableLanes).map(laneOf);
    this.lane = this.lanes[0];
  }

  renewed(incarnation, [until, , outageBegin, outageEnd]) {
    [this.renewalId, this.pendingId, this.incarnation] = [this.pendingId, "", incarnation];
    this.until = Math.max(this.until, Number(until));
    this.begins.push(Math.max(this.begins.pop(), Number(outageBegin)));
    this.outageEnd = Math.max(this.outageEnd, Number(outageEnd));
  }

  get text() { return [this.worker, this.token, this.renewalId, this.pendingId, this.until, this.outageEnd].join(); }
  get opened() { return this.begins.map((_, number) => (this.lanes[number]?.tick >= 0 ? "1" : "0")).join(""); }

  nextId(spinMs) {
    const { layout } = this.settings;
    const tick = layout.tickAt(Date.now());
    let { lane } = this;
    const isOpen = tick === lane.tick && lane.sequence < layout.lastSequence && layout.startOf(tick) < this.until;
    if (!isOpen) lane = this.open(spinMs);
    lane.sequence += 1;
    return (lane.id += layout.sequenceStep);
  }

  // a lane that has another id in this tick, or in one that begins within spinMs
  open(spinMs) {
    const { layout } = this.settings;
    for (const deadlineMs = performance.now() + spinMs; ; ) {
      const isLate = performance.now() > deadlineMs;
      const nowMs = Date.now();
      const [tick, { lane }] = [layout.tickAt(nowMs), this];
      if (tick >= layout.endTick) throw refusal("LAYOUT", "the layout has no bits for this time; correct the clock");
      if (layout.startOf(tick) >= this.until) throw this.renewSoon();
      if (this.nextTick(lane) <= tick) return this.begin(lane, tick);
      const waitMs = layout.startOf(this.nextTick(lane)) - nowMs;
      if (waitMs <= spinMs && !isLate) continue;
      if (tick === lane.tick) throw refusal("TICK_FULL", `the next tick begins in ${waitMs} ms`, waitMs);
      this.lane = this.laneFor(tick) ?? lane;
      const code = lane.tick < 0 ? "NOT_BEGUN" : "CLOCK_BACK";
      if (this.lane === lane) throw refusal(code, `no lane may be used for ${waitMs} ms; is the clock right?`, waitMs);
    }
  }

  begin(lane, tick) {
    const [{ layout, datacenter }, { worker }] = [this.settings, this];
    const first = layout.encode({ tick, datacenter, lane: lane.number, worker });
    return lane.tick === tick ? lane : Object.assign(lane, { tick, sequence: -1, id: first - layout.sequenceStep });
  }

  // the first tick that the lane can still make an id of
  nextTick(lane) {
    return Math.max(lane.firstTick, lane.sequence < this.settings.layout.lastSequence ? lane.tick : lane.tick + 1);
  }

  // of the lanes that may use the tick, the one whose last tick, or beginning, is the latest
  laneFor(tick) {
    const latest = (lane) => Math.max(lane.tick, lane.firstTick);
    return this.lanes.filter((lane) => this.nextTick(lane) <= tick).sort((a, b) => latest(b) - latest(a))[0];
  }
}

export class Client {
  #problem = refusal("NO_LEASE", "no worker id has been leased yet", POLL_MS);
  #claimToken = "";
  #refused = "0";
  #fullMs = 10;
  // incarnation and version of the newest reply
  #seen = ["", "0"];
  #renewedAtMs = 0;
  #repliedAtMs = 0;
  #wake = () => {};

  // maxWaitMs: how long connect() and id() wait. spinMs: how long nextId() waits, which blocks the event loop.
  // minReplicas: how many replicas must have each write, if the fleet uses min_replicas
  static async connect({ url, pool, label = "", signature, ...options }) {
    const client = new this();
    const defaults = { maxWaitMs: 60_000, spinMs: 10, minReplicas: 0, luaDirectory: LUA_DIRECTORY };
    Object.assign(client, defaults, { url, pool }, options);
    client.owner = JSON.stringify({ host: hostname(), pid: process.pid, label, generator: randomName() });
    client.keys = ["", ":leases", ":events"].map((suffix) => `snowredis:{${pool}}${suffix}`);
    try {
      await client.#connect();
      signature ??= await inTime(client.connection.sendCommand(["HGET", client.keys[0], "signature"]));
      if (!signature) throw refusal("NO_POOL", `type: snowredis pool create ${pool}. Or give connect() the signature`);
      client.settings = new Settings(signature);
      client.scripts = Object.fromEntries(["claim", "renew", "release"].map((name) => [name, client.#script(name)]));
      client.kept = client.#keep();
      await client.#patiently(() => client.worker);
      return client;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  get worker() { return Number(this.#leased().worker); }
  decode(id) { return this.settings.layout.decode(id); }
  nextId() { return this.#leased().nextId(this.spinMs); }
  id() { return this.#patiently(() => this.nextId()); }
  close() { return (this.closing ??= this.#close()); }

  // all of them, strictly increasing, or an error
  nextIds(count) {
    const ids = Array.from({ length: count }, () => this.nextId());
    if (!ids.some((id, index) => id <= ids[index - 1])) return ids;
    throw refusal("CLOCK_BACK", "the clock went back between these ids; call again", 0);
  }

  // send a script and return its reply; override it to log both
  async run(name, args) {
    const [{ text, sha }, { connection, keys, minReplicas }] = [this.scripts[name], this];
    const send = (...words) => connection.sendCommand([...words, `${keys.length}`, ...keys, ...args]);
    const evalIfNew = (error) => (error.message.startsWith("NOSCRIPT") ? send("EVAL", text) : Promise.reject(error));
    const reply = await send("EVALSHA", sha).catch(evalIfNew);
    const replicas = minReplicas && (await connection.sendCommand(["WAIT", `${minReplicas}`, `${REPLY_LIMIT_MS / 2}`]));
    if (replicas < minReplicas) throw refusal("NO_REPLY", `only ${replicas} replicas have the write`);
    return reply.length === 1 ? reply[0].split("\n") : reply;
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

  async #claim() {
    const { layout, waitMs, heartbeatMs, repeatMs } = this.settings;
    const token = (this.#claimToken ||= randomName());
    const reply = await this.#call("claim", (nowMs) => {
      const usableFromMs = Math.max(0, layout.startOf(layout.tickAt(nowMs)));
      // it has no outage lane, and does not give up
      return [token, usableFromMs, waitMs, this.owner, 0, 0, layout.capacity, layout.laneCount, this.#refused];
    });
    if (!reply) return repeatMs;
    const { status, fields } = reply;
    this.#claimToken = "";
    this.#fullMs = status === "full" ? Math.min(this.#fullMs * 2, 2_000) : 10;
    if (status === "granted") this.lease = new Lease(this.settings, this.#renewSoon, token, this.#seen[0], fields);
    const settlingMs = Math.min(Number(fields[0]), heartbeatMs, REFUSED_MS);
    return { granted: repeatMs / 2, settling: settlingMs, full: this.#fullMs, behind: REPEAT_MS }[status] ?? REFUSED_MS;
  }

  async #renew() {
    const { lease, settings } = this;
    lease.pendingId ||= randomName();
    this.#renewedAtMs = performance.now();
    const args = [lease.text, lease.begins.join(), this.#stats, this.owner, lease.incarnation];
    const reply = await this.#call("renew", () => args);
    if (!reply) return settings.repeatMs;
    if (reply.status === "renewed") {
      lease.renewed(this.#seen[0], reply.fields);
      return settings.heartbeatMs * (1 - 0.15 * Math.random());
    }
    this.lease = undefined;
    return reply.status === "lost" ? 0 : REFUSED_MS;
  }

  #renewSoon = () => {
    if (performance.now() > this.#renewedAtMs + REPEAT_MS) this.#wake();
    return refusal("UNTIL", "the lease has reached its end; is Redis away, or the clock ahead?", POLL_MS);
  };

  // no id is made from here on, since #leased() refuses
  async #close() {
    this.#wake();
    await this.kept;
    // the claim had no reply: repeat it once, to release what it granted
    if (this.#claimToken) await this.#claim();
    if (this.lease) await this.#call("release", () => [this.lease.text, this.lease.opened, this.#stats, "0"]);
    this.#disconnect();
  }

  // return the reply, or undefined: Redis may have done it, and the same call is due again
  async #call(name, argsAt) {
    const { signature, constants, ttlMs } = this.settings;
    // the process was paused: the connection may lead to a former master
    if (performance.now() > this.#repliedAtMs + ttlMs / 2) this.#disconnect();
    try {
      await this.#connect();
      const [nonce, nowMs] = [randomName(), Date.now()];
      const args = [signature, nonce, constants, ...this.#seen, nowMs, ...argsAt(nowMs)].map(String);
      const [status, ...fields] = await inTime(this.run(name, args));
      const isUsable = fields.pop() === nonce && !["unidentified", "broken"].includes(status);
      if (!isUsable) throw refusal("NO_REPLY", `Redis replied ${status} ${fields}`);
      this.#repliedAtMs = performance.now();
      if (status !== "signature") this.#seen = fields.splice(0, 5).slice(1, 3);
      if (status === "signature" || name === "claim") this.#refused = status === "signature" ? "1" : "0";
      if (ADVICE[status]) this.#problem = refusal(status.toUpperCase(), `${ADVICE[status]} ${fields[0]}`, POLL_MS);
      return { status, fields };
    } catch (error) {
      this.#disconnect();
      this.#problem = refusal("NO_REPLY", error.message, POLL_MS);
    }
  }

  // for people: ids made, ids a second, this clock minus that of Redis, lane in use, how often the clock went back
  get #stats() { return [0, 0, 0, this.lease.lane.number, 0].join(); }

  #script(name) {
    const files = ["servers/lua/identity", "servers/lua/arguments", "snowflake/lua/pool", `snowflake/lua/${name}`];
    const text = files.map((file) => readFileSync(`${this.luaDirectory}/${file}.lua`, "utf8")).join("\n");
    return { text, sha: createHash("sha1").update(text).digest("hex") };
  }

  // a connection is used until its first error, so that node-redis neither repeats nor queues a call
  async #connect() {
    if (this.connection?.isReady) return;
    this.#disconnect();
    const socket = { reconnectStrategy: false };
    this.connection = createClient({ url: this.url, RESP: 2, disableOfflineQueue: true, socket });
    this.connection.on("error", () => {}); // the call that fails reports it
    await inTime(this.connection.connect());
    this.connection.unref();
    this.#repliedAtMs = performance.now();
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
  for (let left = Number(count); left > 0; left--) console.log(String(await client.id()));
  await client.close();
}
