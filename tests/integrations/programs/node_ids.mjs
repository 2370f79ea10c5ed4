// A process of test_node_client.py: one JSON command a line on stdin, one JSON reply a line on stdout.
import { createInterface } from "node:readline";
import { Client, Layout, Settings, releaseAtExit } from "../../../examples/client.mjs";

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

const texts = (ids) => ids.map(String);
let client;
const commands = {
  settings: (signature) => ({ ...new Settings(signature), layout: undefined }),
  ticks: (layout, ms) => [new Layout(layout).tickAt(ms), new Layout(layout).firstTickFrom(ms)],
  encode: (layout, fields) => String(new Layout(layout).encode(fields)),
  decode: (layout, id) => decode(new Layout(layout), BigInt(id)),
  connect: async (options) => {
    client = await LoggedClient.connect(options);
    releaseAtExit(client);
    return [process.pid, client.worker];
  },
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
