// The stream of /live: keeps `state` up to date, and reconnects.
import { setAttribute, setText, $ } from "./dom.js";
import { deathRow } from "./graves.js";
import { now, SILENT_MS, state } from "./state.js";

const MAX_EVENTS = 200, RETRY_MS = 3000, MAX_RATES = 120;
// length of the live chart
export const PAST_MS = 600000;

// the names of the service's pools; waits until the service responds
export async function poolNames() {
  for (;;) {
    try {
      const response = await fetch("/pools");
      if (response.status === 401) location.reload();
      if (response.ok) return (await response.json()).pools;
    } catch {
      // the service is down
    }
    serviceFailed();
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function serviceFailed() {
  state.downSinceMs ??= state.receivedAtMs || Date.now();
}

// after a refused stream: such as too many dashboards
async function readRefusal(url) {
  const aborted = new AbortController();
  try {
    const response = await fetch(url, { signal: aborted.signal });
    state.refusal = response.ok ? "" : String((await response.json()).detail ?? response.status);
  } catch {
    state.refusal = "";
  }
  aborted.abort();
}

// a stream also ends after an hour, or when a process of the service is replaced
async function checkService() {
  try {
    const response = await fetch("/pools");
    if (response.status === 401) location.reload();
    if (!response.ok) serviceFailed();
  } catch {
    serviceFailed();
  }
}

export class Feed {
  // onChange() is called after each message, and when the stream fails
  constructor(onChange) {
    this.onChange = onChange;
    this.source = null;
  }

  open(pool) {
    this.source?.close();
    Object.assign(state, { pool: null, status: null, workers: new Map(), deaths: [], events: [], points: [], staleSinceMs: null, downSinceMs: null, receivedAtMs: 0, refusal: "" });
    this.connect(pool);
  }

  connect(pool) {
    this.pool = pool;
    this.source?.close();
    const url = `/live?pool=${encodeURIComponent(pool)}`, source = this.source = new EventSource(url);
    source.addEventListener("all", (event) => this.takeAll(JSON.parse(event.data)));
    source.addEventListener("change", (event) => this.take(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      checkService().then(this.onChange);
      // after a response with an error status, such as 401, the browser does not retry by itself
      if (source.readyState !== EventSource.CLOSED) return;
      readRefusal(url).then(this.onChange);
      setTimeout(() => poolNames().then(() => source === this.source && this.connect(pool)), RETRY_MS);
    });
  }

  takeAll(message) {
    const rates = new Map([...state.workers].map(([number, worker]) => [number, worker.rates]));
    state.workers = new Map();
    state.events = [];
    // a service that was restarted has no past: the page keeps its own, and the chart shows the gap
    const first = message.points?.[0]?.[0] ?? Infinity;
    state.points = state.points.filter((point) => point[0] < first);
    this.take(message);
    for (const [number, worker] of state.workers) {
      const earlier = (rates.get(number) ?? []).filter(([ms]) => ms < worker.renewed_ms && ms >= worker.claimed_ms);
      worker.rates = [...earlier, ...worker.rates].slice(-MAX_RATES);
    }
  }

  take(message) {
    Object.assign(state, { receivedAtMs: Date.now(), downSinceMs: null, status: message.status ?? state.status, staleSinceMs: message.stale_since_ms ?? null, refusal: "" });
    if (message.now_ms) state.offsetMs = message.now_ms - Date.now();
    if (message.pool) state.pool = message.pool;
    for (const worker of message.workers ?? []) takeWorker(worker);
    for (const number of message.gone ?? []) state.workers.delete(number);
    if (message.deaths) state.deaths = message.deaths.map(deathRow);
    state.events.push(...(message.events ?? []));
    state.events.splice(0, state.events.length - MAX_EVENTS);
    state.points.push(...(message.points ?? []));
    while (state.points.length && state.points[0][0] < now() - PAST_MS) state.points.shift();
    this.onChange();
  }
}

// its rate at each heartbeat is kept as long as the page is open: [ms, ids per second]
function takeWorker(worker) {
  const before = state.workers.get(worker.worker);
  worker.rates = before && before.claimed_ms === worker.claimed_ms ? before.rates : [];
  if (before?.renewed_ms !== worker.renewed_ms) worker.rates.push([worker.renewed_ms, worker.ids_per_second]);
  if (worker.rates.length > MAX_RATES) worker.rates.shift();
  state.workers.set(worker.worker, worker);
}

export function drawLink() {
  const silentMs = Date.now() - state.receivedAtMs;
  const kind = state.downSinceMs !== null ? "problem" : !state.receivedAtMs || silentMs > SILENT_MS ? "waiting" : state.staleSinceMs !== null ? "problem" : "live";
  const texts = { live: "live", waiting: state.receivedAtMs ? "no update for a while" : "connecting", problem: state.downSinceMs !== null ? "the service does not respond" : "out of date" };
  setAttribute($("link"), "data-state", kind);
  setText($("link"), texts[kind]);
}
