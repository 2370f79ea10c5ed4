// The stream of /live: keeps `state` up to date, and reconnects.
import { setAttribute, setText, $ } from "./dom.js";
import { endedRow } from "./graves.js";
import { now, SILENT_MS, state } from "./state.js";
import { parseJson } from "./times.js";

const MAX_EVENTS = 200, RETRY_MS = 3000, MAX_RATES = 120;
// length of the live chart
export const PAST_MS = 600000;

// the names of the service's pools; waits until the service responds
export async function poolNames() {
  for (;;) {
    try {
      const response = await fetch("pools");
      if (response.status === 401) location.reload();
      if (response.ok) return (await response.json()).pools;
      state.refusal = await refusalOf(response);
    } catch {
      state.refusal = "";
    }
    serviceFailed();
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

// why a response is none of the data; a proxy's has no detail
async function refusalOf(response) {
  const { detail } = await response.json().catch(() => ({}));
  return String(detail ?? `${new URL(response.url).pathname} has the HTTP status ${response.status}`);
}

function serviceFailed() {
  state.downSinceMs ??= state.receivedAtMs || Date.now();
}

// after a refused stream: such as too many dashboards
async function readRefusal(url) {
  const aborted = new AbortController();
  try {
    const response = await fetch(url, { signal: aborted.signal });
    state.refusal = response.ok ? "" : await refusalOf(response);
  } catch {
    state.refusal = "";
  }
  aborted.abort();
}

// a stream also ends after an hour, or when a process of the service is replaced
async function checkService() {
  try {
    const response = await fetch("pools");
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
    Object.assign(state, { pool: null, status: null, workers: new Map(), ended: [], answers: [], events: [], points: [], staleSinceMs: null, downSinceMs: null, receivedAtMs: 0, refusal: "" });
    this.connect(pool);
  }

  connect(pool) {
    this.pool = pool;
    this.source?.close();
    const url = `live?pool=${encodeURIComponent(pool)}`, source = this.source = new EventSource(url);
    source.addEventListener("all", (event) => this.takeAll(parseJson(event.data)));
    source.addEventListener("change", (event) => this.take(parseJson(event.data)));
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
      const earlier = (rates.get(number) ?? []).filter(([ms]) => ms < worker.heartbeat_at && ms >= worker.claimed_at);
      worker.rates = [...earlier, ...worker.rates].slice(-MAX_RATES);
    }
  }

  take(message) {
    Object.assign(state, { receivedAtMs: Date.now(), downSinceMs: null, status: message.status ?? state.status, staleSinceMs: message.stale_since_ms ?? null, refusal: "" });
    if (message.now_ms) state.offsetMs = message.now_ms - Date.now();
    if (message.pool) state.pool = message.pool;
    for (const worker of message.workers ?? []) takeWorker(worker);
    for (const number of message.gone ?? []) state.workers.delete(number);
    if (message.ended) state.ended = message.ended.map(endedRow);
    if (message.answers) state.answers = message.answers;
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
  worker.rates = before && before.claimed_at === worker.claimed_at ? before.rates : [];
  if (before?.heartbeat_at !== worker.heartbeat_at) worker.rates.push([worker.heartbeat_at, worker.ids_per_second]);
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
