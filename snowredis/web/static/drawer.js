// One worker id and its life: who has it, how it does, and what happened to it.
import { $, compact, copyable, definitionRows, durationText, element, parseJson, replaceIfChanged, setAttribute, setHidden, setText, shape, timeNode, timeText, whole } from "./dom.js";
import { get, info, LETTERS, linkTo, now, ownerText, route, state, stateOf } from "./state.js";

const MEANINGS = { alive: "alive", silent: "silent: it hangs, was killed, or cannot reach Redis", "no-ids": "it gets no ids", unknown: "unknown: its heartbeats cannot be seen now", expired: "expired: its lease ended without a release", died: "died: another process found it dead" };

export function eventRow(event, withWorker = true) {
  // what happened to the pool has no worker id
  const worker = withWorker && event.worker !== null ? [element("a", { href: linkTo("worker", event.worker) }, `worker ${event.worker}`), " "] : [];
  return element("li", {}, timeNode(event.at), element("span", { class: `kind k-${/^[a-z-]+$/.test(event.kind) ? event.kind : ""}` }, event.kind),
    element("span", { class: "what" }, ...worker, [ownerText(event), event.text].filter(Boolean).join(": ")));
}

// worker id that is shown; its events, and those of the pool at that time; where the focus goes when it closes
let shown = null, events = null, newest = "", opener = null;

async function readEvents() {
  const worker = shown;
  try {
    const found = parseJson(await (await get("events", { pool: state.pool, worker })).text()).events.reverse();
    if (worker === shown) events = found;
  } catch (failure) {
    setText($("drawer-note"), `Its events cannot be read: ${failure.text}`);
  }
}

function turnTo(worker) {
  if (shown === null) opener = document.activeElement;
  [shown, events, newest] = [worker, null, ""];
  setHidden($("drawer"), worker === null);
  if (worker === null) return opener?.isConnected && opener.focus({ preventScroll: true });
  setText($("drawer-title"), `Worker ${worker}`);
  $("drawer-title").focus();
}

export function drawDrawer() {
  const { worker } = route();
  if (worker !== shown) turnTo(worker);
  if (shown === null || !info()) return;
  const row = state.rows.find((each) => each.worker === shown), health = row ? stateOf(row) : "free";
  setAttribute($("drawer-state"), "class", `state s-${health}`);
  replaceIfChanged($("drawer-state"), [element("i", { "aria-hidden": "true" }, LETTERS[health] ?? ""), element("span", {}, row ? MEANINGS[health] : "no process has this worker id now")]);
  replaceIfChanged($("drawer-facts"), row ? facts(row, health) : []);
  drawRates(row?.ended ? [] : state.rates.get(shown) ?? []);
  const last = state.events.find((event) => event.worker === shown)?.id ?? "none";
  if (last !== newest) readEvents();
  newest = last;
  replaceIfChanged($("drawer-events"), (events ?? []).map((event) => eventRow(event, false)));
  setText($("drawer-note"), events === null ? "Reading its events …" : events.length ? "" : "The pool has no event of this worker id any more.");
}

function facts(row, health) {
  const known = health === "unknown" ? ", when it was last known" : "", number = (name, text) => (row[name] === undefined || row[name] === null ? "" : text(row[name]));
  const from = row.claimed_at && `${timeText(row.claimed_at)}, for ${durationText((row.ended ? row.ends_at : now()) - row.claimed_at)}`;
  return definitionRows([
    ...["label", "host", "pid"].map((name) => [name, row[name] ? copyable(String(row[name]), `the ${name}`) : ""]),
    ["leased", from],
    ["heartbeat", row.heartbeat_at && `${timeText(row.heartbeat_at)}, ${durationText(now() - row.heartbeat_at)} ago`],
    ["lease ends", row.ended ? `it ended at ${timeText(row.ends_at)}` : `in ${durationText(row.ends_at - now())} without a heartbeat`],
    ["without Redis", row.ids_until > now() ? `it has ids until ${timeText(row.ids_until)}` : "it has no ids any more"],
    ["ids", number("ids_made", (made) => `${row.ended ? "at least " : ""}${whole(made)}${health === "alive" ? `, ${compact(row.ids_per_second)} a second` : known}`)],
    ["clock", number("clock_offset_ms", (ms) => `${ms > 0 ? "+" : ""}${ms} ms to Redis, went back ${whole(row.clock_backs ?? 0)} times`)],
    ["namespace", number("namespace", String)],
    ["refused", row.refused],
    ["version", row.version],
  ]);
}

// ids per second at each heartbeat since the page was opened
function drawRates(rates) {
  setHidden($("drawer-rates-part"), rates.length < 2);
  if (rates.length < 2) return;
  const first = rates[0][0], last = rates.at(-1)[0], most = Math.max(1, ...rates.map(([, rate]) => rate));
  const path = rates.map(([ms, rate]) => `${((298 * (ms - first)) / Math.max(1, last - first) + 1).toFixed(1)} ${(43 - (40 * rate) / most).toFixed(1)}`).join("L");
  replaceIfChanged($("drawer-rates"), [shape("path", { class: "line", d: `M${path}` })]);
  setText($("drawer-rates-note"), `over ${durationText(last - first)}, highest ${whole(most)}`);
}

export function startDrawer() {
  const close = () => { location.hash = linkTo(); };
  $("drawer-close").addEventListener("click", close);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown !== null && !event.defaultPrevented) close();
  });
}
