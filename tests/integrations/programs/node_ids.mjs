// A process of test_node_client.py: one JSON command a line on stdin, one JSON reply a line on stdout.
import { createInterface } from "node:readline";
import { Client, Layout, Lease, Settings, releaseAtExit } from "../../../examples/client/client.mjs";

const now = Date.now;
let behindMs = 0;
Date.now = () => now() - behindMs;

class LoggedClient extends Client {
  calls = [];

  async run(name, args) {
    const call = { name, args };
    this.calls.push(call);
    call.reply = await super.run(name, args);
    return call.reply;
  }
}

function decode({ parts }, id) {
  const fields = {};
  for (const [name, bits] of [...parts].reverse()) {
    fields[name] = Number(BigInt.asUintN(bits, id));
    id >>= BigInt(bits);
  }
  return fields;
}

// what a client makes at the clock of a case, after the ids of the case, and what its release would send before that
function decision(signature, { lease: terms, made, clock_ms }) {
  const settings = new Settings(signature);
  const lease = new Lease(settings, () => Object.assign(new Error(), { code: "UNTIL" }), "", terms);
  const { layout, datacenter } = settings;
  for (const [lane, tick, sequence] of made) {
    const id = layout.encode({ tick, datacenter, lane, worker: lease.worker, sequence });
    Object.assign(lease.lanes[lane], { tick, sequence, id });
  }
  const { opened } = lease;
  Date.now = () => clock_ms;
  try {
    return { opened, made: decode(layout, lease.nextId({ ids: 0 })) };
  } catch {
    return { opened, made: null };
  }
}

const texts = (ids) => ids.map(String);
let client;
const commands = {
  settings: (signature) => ({ ...new Settings(signature), layout: undefined }),
  ticks: (layout, ms) => [new Layout(layout).tickAt(ms), new Layout(layout).firstTickFrom(ms)],
  encode: (layout, fields) => String(new Layout(layout).encode(fields)),
  decision,
  decode: (layout, id) => decode(new Layout(layout), BigInt(id)),
  connect: async (options) => {
    client = await LoggedClient.connect(options);
    releaseAtExit(client);
    return [process.pid, client.worker];
  },
  signature: () => client.settings.signature,
  worker: () => client.worker,
  ids: (count) => texts(client.nextIds(count)),
  id: async () => String(await client.id()),
  lane: () => decode(client.settings.layout, client.nextId()).lane,
  calls: () => client.calls,
  back: (ms) => (behindMs = ms),
  close: () => client.close(),
};
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line);
  const answer = async () => commands[name](...args);
  const reply = await answer().then((value) => ({ value }), (error) => ({ code: error.code ?? String(error) }));
  console.log(JSON.stringify(reply));
}
