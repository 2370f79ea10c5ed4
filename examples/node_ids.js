// Ids of a program that is not Python: `snowredis run` leases the worker id, this file makes the ids.
//
//   snowredis pool create orders --url redis://localhost:6379
//   snowredis run --url redis://localhost:6379 --pool orders -- node examples/node_ids.js 10
//   … prints ten ids of the default layout; `snowredis decode ID` shows their worker id.
// Processes of a cluster inherit one worker id, and would repeat each other's ids.
const workerId = process.env.SNOWREDIS_WORKER_ID;
if (workerId === undefined || process.env.NODE_APP_INSTANCE > 0 || require("cluster").isWorker)
  throw new Error("each process needs its own worker id: start each with snowredis run, not as a cluster");
const [timestampBits, datacenterBits, backupBits, workerBits, sequenceBits] =
  process.env.SNOWREDIS_LAYOUT.split(";")[0].split("/").map(Number);
const options = new URLSearchParams(process.env.SNOWREDIS_LAYOUT.split(";").slice(1).join("&"));
const [epoch, tickMs] = [Number(options.get("epoch_ms")), Number(options.get("tick_ms"))];
if (options.get("worker_last") === "1") throw new Error("this example has the worker above the sequence");
// the backup bits stay 0: other namespaces are for clocks that go back, and for outages
const fixed =
  (BigInt(process.env.SNOWREDIS_DATACENTER) << BigInt(backupBits + workerBits + sequenceBits)) |
  (BigInt(workerId) << BigInt(sequenceBits));
const shift = BigInt(datacenterBits + backupBits + workerBits + sequenceBits);
let last = Math.floor((Number(process.env.SNOWREDIS_FROM) - epoch) / tickMs);
let sequence = 2 ** sequenceBits - 1; // the tick of FROM is not used

function nextId() {
  let tick = Math.floor((Date.now() - epoch) / tickMs);
  // a clock that went back, or a tick that is used up: wait
  while (tick < last || (tick === last && sequence === 2 ** sequenceBits - 1))
    tick = Math.floor((Date.now() - epoch) / tickMs);
  sequence = tick === last ? sequence + 1 : 0;
  last = tick;
  return (BigInt(tick) << shift) | fixed | BigInt(sequence);
}

let lines = [];
for (let left = Number(process.argv[2] ?? 10); left > 0; left--) lines.push(nextId());
process.stdout.write(lines.join("\n") + "\n");
