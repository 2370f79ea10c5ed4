// The stream of /live: keeps `state` and the chart's points up to date, and reconnects.
import { $, setText } from "./dom.js";
import { now, state } from "./state.js";

const MAX_EVENTS = 100, RETRY_MS = 3000;
export const PAST_MS = 600000, SILENT_MS = 8000;

export const selectedPool = () => $("pool").value;
export const urlOf = (path) => `${path}?pool=${encodeURIComponent(selectedPool())}`;

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
    showStatus("problem", "the service does not respond");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

export class Feed {
  // onChange({ events, complete }) is called after each message
  constructor(chart, onChange) {
    this.chart = chart;
    this.onChange = onChange;
    this.source = null;
    this.receivedAt = 0;
    this.hasProblem = false;
  }

  open() {
    this.source?.close();
    this.clear();
    state.pool = null;
    showStatus("waiting", "connecting");
    this.source = new EventSource(urlOf("/live"));
    this.source.addEventListener("all", (event) => {
      this.clear();
      this.take(JSON.parse(event.data));
    });
    this.source.addEventListener("change", (event) => this.take(JSON.parse(event.data)));
    this.source.addEventListener("problem", (event) => this.showProblem(JSON.parse(event.data)));
    this.source.addEventListener("error", () => {
      showStatus("problem", "the service does not respond");
      // after a response with an error status, such as 401, the browser does not retry by itself
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => poolNames().then(() => this.open()), RETRY_MS);
    });
  }

  clear() {
    state.workers = new Map();
    state.events = [];
    this.chart.points = [];
  }

  take(message) {
    if (message.pool?.now_ms) {
      state.pool = message.pool;
      state.offsetMs = state.pool.now_ms - Date.now();
    }
    for (const worker of message.workers ?? []) state.workers.set(worker.worker, worker);
    for (const number of message.gone ?? []) {
      const worker = state.workers.get(number);
      if (worker) worker.goneAt = Date.now();
    }
    state.events.push(...(message.events ?? []));
    state.events.splice(0, state.events.length - MAX_EVENTS);
    const points = this.chart.points;
    points.push(...(message.points ?? []));
    while (points.length && points[0][0] < now() - PAST_MS) points.shift();
    this.showProblem(message.pool?.problem);
    this.onChange({ events: Boolean(message.events?.length), complete: !message.gone });
  }

  showProblem(problem) {
    this.hasProblem = Boolean(problem);
    this.receivedAt = Date.now();
    $("problem").hidden = !problem;
    if (!problem) return showStatus("live", "live");
    setText($("problem"), state.pool ? `${problem.detail} The data below is out of date.` : problem.detail);
    showStatus("problem", "out of date");
  }

  // to be called now and then
  checkSilence() {
    const open = this.source?.readyState === EventSource.OPEN;
    if (this.receivedAt && !this.hasProblem && open && Date.now() - this.receivedAt > SILENT_MS) {
      showStatus("waiting", "no update for a while");
    }
  }
}

export function showStatus(kind, text) {
  $("link").dataset.state = kind;
  setText($("link"), text);
}
