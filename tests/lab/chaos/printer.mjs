// A client for tests/lab/chaos/foreign.py: prints ids of a pool until SIGTERM, whatever happens to Redis and to the clock.
import { setTimeout as sleep } from "node:timers/promises";
import { Client, releaseAtExit } from "../../../examples/client/client.mjs";

const [url, pool] = process.argv.slice(2);
let client;
for (let code; code !== "CLOSED"; ) {
  try {
    if (!client) releaseAtExit((client = await Client.connect({ url, pool, maxWaitMs: 1_000 })));
    console.log(client.nextIds(100).join("\n"));
    await sleep(5);
  } catch (error) {
    if (!error.code) throw error;
    ({ code } = error);
    await sleep(10);
  }
}
