// What the service sent last, and what follows from it. The other modules read it; feed.js writes it.

export const state = {
  pool: null,
  // the verdict of the service
  status: null,
  // worker id -> row; those that have a lease, and those of whom Redis may have forgotten it
  workers: new Map(),
  // leases that ended without a release, the newest first; *silent*: the process may live
  ended: [],
  // {question, text} of what people ask before they restart something; none while that is unknown
  answers: [],
  // newest last
  events: [],
  // [ms, ids per second, living workers]; null where nothing could be read
  points: [],
  // Redis clock minus the clock of this browser
  offsetMs: 0,
  // since when Redis cannot be read, on its clock; null: it can
  staleSinceMs: null,
  // since when the service does not respond, on the clock of this browser; null: it does
  downSinceMs: null,
  // why the service refuses the stream; "": it does not
  refusal: "",
  // when a message came last, on the clock of this browser; 0: never
  receivedAtMs: 0,
};

// a service that is connected sends something every second
export const SILENT_MS = 8000;
// worst first; those that tiles, chips and rows show
export const STATES = ["dead", "no-ids", "silent", "unknown", "late", "healthy"];
// the letter that says the state without its color
export const LETTERS = { healthy: "", late: "L", silent: "S", "no-ids": "N", unknown: "?", dead: "✕" };

export const now = () => Date.now() + state.offsetMs;
export const ttlMs = () => Number(state.pool?.settings?.ttl_ms) || 30000;
export const heartbeatAge = (worker) => Math.max(0, now() - worker.heartbeat_at);
export const serviceIsDown = () => state.downSinceMs !== null || Date.now() - state.receivedAtMs > SILENT_MS;
export const isStale = () => state.staleSinceMs !== null || serviceIsDown();

// as state_of() in snapshot.py
export function healthOf(worker) {
  if (worker.ended) return worker.silent ? "silent" : "dead";
  if (worker.state === "unknown" || isStale()) return "unknown";
  const age = heartbeatAge(worker) / ttlMs();
  if (age >= 2 / 3) return "silent";
  return worker.state ?? (age < 1 / 2 ? "healthy" : "late");
}

// worker ids of one process are one process
export const processesIn = (leases) => new Set(leases.map((each) => `${each.host} ${each.pid}`)).size;
// what a process says of itself: name of the field, class of its column in the table
export const OWNER = [["host", "left wide"], ["pid", "wide"], ["label", "left"]];
export const ownerText = (of) => OWNER.map(([name]) => of[name] && (name === "pid" ? `pid ${of.pid}` : of[name])).filter(Boolean).join(", ");
export const ownerOf = (worker) => worker.label || [worker.host, worker.pid].filter(Boolean).join(" ") || "no name";
