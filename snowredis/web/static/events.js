// The events of the pool, the newest first, filtered by kind and worker.
import { requestDraw } from "./draw.js";
import { $, element, setHidden, setText } from "./dom.js";
import { linkTo } from "./route.js";
import { ownerText, state } from "./state.js";
import { isoText, parseJson, timeText } from "./times.js";

const KINDS = ["claimed", "released", "expired", "reclaimed", "returned", "adopted", "lost", "clock-back", "floor", "alarm"];
// their reason is shown, too
const WITH_TEXT = new Set(["lost", "floor", "alarm", "adopted"]);
const MAX_SHOWN = 200;
const SAID = { expired: "its lease ended without a release", reclaimed: "died: another process found it dead and released its worker id", returned: "renewed after all" };

// older events that match the filter, from the service; null: the filter is empty, or they are not here yet
let older = null, drawn = "";

// without the worker if all rows are of one
export function eventRow(event, withWorker = true) {
  const worker = !withWorker ? "" : event.worker !== null ? element("a", { href: linkTo({ pool: state.pool.name, worker: event.worker }) }, `worker ${event.worker}`) : "the pool";
  const owner = ownerText(event);
  const text = SAID[event.kind] ?? (WITH_TEXT.has(event.kind) ? reasonOf(event) : "");
  return element("li", {},
    element("time", { datetime: isoText(event.at) }, timeText(event.at)),
    element("span", { class: `kind k-${/^[a-z-]+$/.test(event.kind) ? event.kind : ""}` }, event.kind),
    element("span", { class: "what" }, worker, (owner && withWorker ? `, ${owner}` : owner) + (text && `: ${text}`)));
}

function reasonOf(event) {
  if (event.reason === "ids-may-repeat") return `ids may have been repeated between ${timeText(event.from)} and ${timeText(event.until)}`;
  const ends = event.kind === "floor" && event.from ? `; new ids begin at ${timeText(event.from)}` : "";
  return event.text + ends;
}

function filter() {
  const worker = $("event-worker").value.trim();
  return { kind: $("event-kind").value, worker: /^\d{1,7}$/.test(worker) ? Number(worker) : null };
}

const matches = (event, { kind, worker }) => (!kind || event.kind === kind) && (worker === null || event.worker === worker);

// the newest events that match, from the service; throws without it
export async function fetchEvents({ kind = "", worker = null }) {
  const query = new URLSearchParams({ pool: state.pool.name, ...(kind ? { kind } : {}), ...(worker === null ? {} : { worker }) });
  const response = await fetch(`events?${query}`);
  if (response.status === 401) location.reload();
  if (!response.ok) throw new Error((await response.json()).detail);
  return parseJson(await response.text()).events;
}

// *fetched* and what came in since, the newest first, each once
export function mergeEvents(fetched, wanted) {
  const merged = new Map();
  for (const event of [...(fetched ?? []), ...state.events.filter((event) => matches(event, wanted))]) merged.set(event.key, event);
  return [...merged.values()].sort((a, b) => b.at - a.at);
}

export function drawEvents() {
  const wanted = filter(), events = mergeEvents(older, wanted).slice(0, MAX_SHOWN);
  const order = `${timeText(0)} ${state.pool?.name} ${events.map((event) => event.key).join()}`;
  if (order === drawn) return;
  drawn = order;
  $("events").replaceChildren(...events.map((event) => eventRow(event)));
  setHidden($("events"), events.length === 0);
  setHidden($("no-events"), events.length > 0);
  setText($("no-events"), wanted.kind || wanted.worker !== null ? "No event matches." : "No events yet.");
}

export function resetEvents() {
  older = null;
  drawn = "";
}

async function onFilter() {
  const wanted = filter();
  resetEvents();
  requestDraw();
  if (!wanted.kind && wanted.worker === null) return;
  try {
    const found = await fetchEvents(wanted);
    if (JSON.stringify(filter()) === JSON.stringify(wanted)) older = found;
  } catch {
    // the events that the page has are shown
  }
  requestDraw();
}

export function startEvents() {
  $("event-kind").append(...KINDS.map((kind) => element("option", { value: kind }, kind)));
  $("event-kind").addEventListener("change", onFilter);
  $("event-worker").addEventListener("change", onFilter);
  drawEvents();
}
