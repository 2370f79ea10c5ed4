// What the service said last, what follows from it, and what the URL says. page.js polls; all others read.
import { parseJson } from "./dom.js";

export const state = {
  // names of the pools, and the one that is shown
  pools: [], pool: "",
  // the last report; null: none yet
  report: null,
  // leases by worker id; *ended*: without a release
  rows: [],
  events: [],
  // [ms, ids per second], as long as this page is open; null where nothing could be read
  points: [],
  // worker id -> [ms, ids per second] at each heartbeat
  rates: new Map(),
  // Redis clock minus the clock of this browser; when the service replied last
  offsetMs: 0, repliedMs: 0,
  // {level, title, text}: why nothing could be read; null: it could
  failure: null,
};

export const EVERY_MS = 2000, PAST_MS = 600000, KEPT_RATES = 120;
// above the first, a page shows the second: people filter
const MANY = 1050, FIRST = 200;
// worst first; the letter says the state without its color
export const LETTERS = { died: "✕", expired: "E", "no-ids": "N", silent: "S", unknown: "?", alive: "" };
export const STATES = Object.keys(LETTERS);

export const now = () => Date.now() + state.offsetMs;
export const info = () => state.report?.pool;
export const isStale = () => state.failure !== null || Boolean(state.report?.status.stale_since);
export const stateOf = (row) => (isStale() && !row.ended ? "unknown" : row.state);
// those that cannot be seen are silent in a report that is out of date
export const countLiving = () => ["alive", "no-ids", ...(isStale() ? ["silent"] : [])].reduce((sum, health) => sum + (state.report.states[health] ?? 0), 0);
// those that renew no lease, and may make ids
export const countUnseen = () => state.rows.filter((row) => ["silent", "expired"].includes(row.state) && row.ids_until > now() && !isService(row)).length;
// nothing is known of what is made now
export const isUnknown = () => isStale() || (countUnseen() > 0 && countLiving() === 0);
// the service has a lease like all others, and is no worker of the fleet
export const isService = (row) => row.label === "snowredis serve";
export const ownerText = (of) => [of.label, of.host, of.pid && `pid ${of.pid}`].filter(Boolean).join(", ");
export const nameOf = (of) => of.label || [of.host, of.pid].filter(Boolean).join(" ") || "no name";

// the response; throws {level, title, text}
export async function get(path, query) {
  let response;
  try {
    // without the user and the password that may be in the address of the page
    response = await fetch(`${location.origin}${location.pathname}${path}?${new URLSearchParams(query)}`);
  } catch {
    throw { level: "unknown", title: "unknown: the service does not respond", text: "Check that the service runs; the page tries again every 2 s" };
  }
  // the browser asks for the token
  if (response.status === 401) location.reload();
  if (response.ok) return response;
  const { detail } = await response.json().catch(() => ({}));
  const away = response.status === 503;
  throw { level: away ? "critical" : "unknown", title: away ? "the pool cannot be read" : "the service refuses", text: String(detail ?? `/${path} has the HTTP status ${response.status}`) };
}

let tag = "", seen = "";

// reads the pool; the service sends nothing again that the browser has
export async function read(filter) {
  const pool = state.pool, many = (info()?.used ?? 0) > MANY;
  try {
    const response = await get("workers", { pool, limit: many ? FIRST : MANY, ...(many && filter ? { filter } : {}) });
    const text = await response.text();
    if (pool !== state.pool) return;
    state.failure = null;
    state.repliedMs = Date.now();
    if (response.headers.get("etag") !== tag || !state.report) take(parseJson(text));
    tag = response.headers.get("etag");
    state.points.push([now(), isUnknown() ? null : state.report.ids_per_second]);
    if (!isStale()) await readEvents();
  } catch (failure) {
    if (!failure.title) throw failure;
    state.failure = failure;
    state.points.push([now(), null]);
  }
  while (state.points[0]?.[0] < now() - PAST_MS) state.points.shift();
}

function take(report) {
  state.report = report;
  // without Redis, the report is as old as its time says
  if (report.pool && !isStale()) state.offsetMs = report.pool.at - Date.now();
  const ended = (row) => row.state === "died" || row.ends_at <= report.pool.at;
  state.rows = report.leases.map((row) => ({ ...row, ended: ended(row) })).sort((a, b) => a.worker - b.worker || a.ended - b.ended);
  for (const { worker, heartbeat_at, ids_per_second } of state.rows.filter((row) => !row.ended)) {
    const rates = state.rates.get(worker) ?? [];
    if (rates.at(-1)?.[0] !== heartbeat_at) rates.push([heartbeat_at, ids_per_second]);
    state.rates.set(worker, rates.slice(-KEPT_RATES));
  }
}

// only if a counter of the pool says that there are new ones
async function readEvents() {
  const counters = JSON.stringify(Object.entries(info() ?? {}).filter(([, value]) => Number.isInteger(value)).filter(([name]) => !/at$|_ms$|^(used|free|version)$/.test(name)));
  if (counters === seen) return;
  state.events = parseJson(await (await get("events", { pool: state.pool })).text()).events.reverse();
  seen = counters;
}

// --- the URL: #/pool/orders, #/pool/orders/worker/17, #/pool/orders/id/249734652741287936 ----------------

export function route() {
  const parts = location.hash.split("/").slice(1).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const of = (name) => (parts.includes(name) ? parts[parts.indexOf(name) + 1] ?? "" : "");
  return { pool: of("pool"), worker: /^\d{1,7}$/.test(of("worker")) ? Number(of("worker")) : null, id: of("id") };
}

export const linkTo = (kind = "", value = "") => `#/pool/${encodeURIComponent(state.pool)}${kind && `/${kind}/${encodeURIComponent(value)}`}`;

export function open(pool) {
  Object.assign(state, { pool, report: null, rows: [], events: [], points: [], rates: new Map(), failure: null, repliedMs: 0 });
  tag = seen = "";
}
