// One worker id and its life: who has it, how it does, and what happened to it.
import { copyButton, copyable } from "./copy.js";
import { requestDraw } from "./draw.js";
import { $, compact, definitionRows, element, replaceIfChanged, setAttribute, setHidden, setText, whole } from "./dom.js";
import { eventRow, fetchEvents, mergeEvents } from "./events.js";
import { runsOf } from "./chart.js";
import { livesText } from "./graves.js";
import { currentRoute, goTo } from "./route.js";
import { healthOf, heartbeatAge, LETTERS, now, OWNER, ownerOf, state, ttlMs } from "./state.js";
import { durationText, timeText } from "./times.js";

const MAX_EVENTS = 50, SVG = "http://www.w3.org/2000/svg";

// worker id that is shown; its events from the service; where the focus goes when it closes
let shown = null, fetched = null, opener = null, newestSeen = "", failure = "";

export function showWorker(worker) {
  if (worker === shown) return;
  if (shown === null) opener = document.activeElement;
  [shown, fetched, newestSeen, failure] = [worker, null, "", ""];
  setHidden($("drawer"), worker === null);
  document.body.classList.toggle("with-drawer", worker !== null);
  if (worker === null) {
    if (opener?.isConnected) opener.focus({ preventScroll: true });
    requestDraw();
    return;
  }
  setText($("drawer-title"), `Worker ${worker}`);
  replaceIfChanged($("drawer-copy"), [copyButton(location.href, "the link to this worker")]);
  $("drawer-events").replaceChildren();
  drawDrawer();
  $("drawer-title").focus();
}

// its events are read when it opens, and when the feed brings one of it
async function readEvents() {
  const worker = shown;
  try {
    const events = await fetchEvents({ worker });
    if (worker === shown) [fetched, failure] = [events, ""];
  } catch (error) {
    if (worker === shown) [fetched, failure] = [[], `The events cannot be read: ${error.message}`];
  }
  requestDraw();
}

export function drawDrawer() {
  if (shown === null || !state.pool) return;
  const worker = state.workers.get(shown), health = worker && healthOf(worker);
  const ended = state.ended.filter((each) => each.worker === shown), end = ended.length ? healthOf(ended[0]) : "";
  const newest = state.events.findLast((event) => event.worker === shown)?.key ?? "none";
  if (newest !== newestSeen) {
    newestSeen = newest;
    readEvents();
  }
  setAttribute($("drawer-state"), "class", `state s-${worker ? health : end || "free"}`);
  replaceIfChanged($("drawer-state"), [element("i", { "aria-hidden": "true" }, LETTERS[worker ? health : end] ?? ""), element("span", {}, stateText(worker, health, ended))]);
  replaceIfChanged($("drawer-facts"), worker ? facts(worker, health) : ended.length ? lastFacts(ended[0]) : []);
  drawRates(worker);
  drawEvents();
}

function stateText(worker, health, ended) {
  if (worker) return { healthy: "healthy", late: "late: a heartbeat is missing", silent: "silent: it hangs, was killed, or cannot reach Redis", "no-ids": `it gets no ids${worker.refused ? `: ${worker.refused}` : ""}`, unknown: "unknown: its heartbeats cannot be seen now" }[health];
  if (!ended.length) return "no process has this worker id now";
  const [{ silent, kind, at }] = ended;
  return silent ? `silent; ${livesText(ended[0])}` : kind === "reclaimed" ? `died, found at ${timeText(at)}` : `gone since ${timeText(at)}; nobody saw its end`;
}

const ownerRows = (of) => OWNER.map(([name]) => [name, of[name] && copyable(String(of[name]), `the ${name}`)]);

function facts(worker, health) {
  const leftMs = worker.lease_end_at - now(), unknown = health === "unknown";
  return definitionRows([
    ...ownerRows(worker),
    ["leased", `${timeText(worker.claimed_at)}, for ${durationText(now() - worker.claimed_at)}`],
    ["heartbeat", `${timeText(worker.heartbeat_at)}, ${durationText(heartbeatAge(worker))} ago${unknown ? "; newer ones are unknown" : ""}`],
    ["lease ends", leftMs > 0 ? `in ${durationText(leftMs)} without a heartbeat` : "it ended"],
    ["without Redis", `it has ids until ${timeText(worker.lasts_until)}`],
    ["ids", `${whole(worker.ids_made)}${unknown ? " when it was last known" : ""}${health === "healthy" || health === "late" ? `, ${compact(worker.ids_per_second)} a second` : ", rate unknown"}`],
    ["clock", unknown ? "" : `${worker.clock_offset_ms > 0 ? "+" : ""}${worker.clock_offset_ms} ms to Redis, went back ${whole(worker.clock_backs)} times`],
    ["namespace", String(worker.namespace)],
    ["version", worker.version],
  ]);
}

function lastFacts(death) {
  return definitionRows([
    ...ownerRows(death),
    ["leased", death.claimed_at && `${timeText(death.claimed_at)}, for ${durationText(death.at - death.claimed_at)}`],
    ["last heartbeat", death.heartbeat_at && timeText(death.heartbeat_at)],
    ["ids", death.ids_made ? `at least ${whole(death.ids_made)}` : ""],
  ]);
}

// ids per second at each heartbeat since the page was opened
function drawRates(worker) {
  const rates = worker?.rates ?? [], node = $("drawer-rates");
  setHidden($("drawer-rates-part"), rates.length < 2);
  const key = rates.length < 2 ? "" : `${shown} ${rates[rates.length - 1][0]}`;
  if (!key || node.drawn === key) return;
  node.drawn = key;
  const first = rates[0][0], last = rates[rates.length - 1][0], most = Math.max(1, ...rates.map(([, rate]) => rate));
  const x = (ms) => (298 * (ms - first)) / Math.max(1, last - first) + 1, y = (rate) => 43 - (40 * rate) / most;
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("class", "line");
  path.setAttribute("d", runsOf(rates, ttlMs() / 2).map((run) => run.map(([ms, rate], i) => `${i ? "L" : "M"}${x(ms).toFixed(1)} ${y(rate).toFixed(1)}`).join("")).join(""));
  node.replaceChildren(path);
  node.setAttribute("aria-label", `Ids per second at each heartbeat over ${durationText(last - first)}: now ${whole(rates[rates.length - 1][1])}, highest ${whole(most)}`);
  setText($("drawer-rates-note"), `over ${durationText(last - first)}, highest ${whole(most)}`);
}

function drawEvents() {
  const events = mergeEvents(fetched, { kind: "", worker: shown }), rows = events.slice(0, MAX_EVENTS).map((event) => eventRow(event, false));
  replaceIfChanged($("drawer-events"), rows);
  const more = events.length > MAX_EVENTS ? `The newest ${MAX_EVENTS} of ${events.length} events.` : "";
  setText($("drawer-note"), failure || (fetched === null ? "Reading its events …" : rows.length ? more : "The pool has no event of this worker id any more."));
}

export function startDrawer() {
  const close = () => goTo({ pool: currentRoute().pool ?? state.pool?.name ?? "" });
  $("drawer-close").addEventListener("click", close);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown !== null && !event.defaultPrevented) close();
  });
}
