// The large figures, and the list of the pool's settings and counters. What is not known is called unknown.
import { $, compact, definitionRows, plural, replaceIfChanged, setAttribute, setHidden, setText, whole } from "./dom.js";
import { copyable } from "./copy.js";
import { healthOf, isStale, now, state, STATES } from "./state.js";
import { durationText, timeText } from "./times.js";

function setFigure(name, text, note) {
  const node = $(`f-${name}`);
  setText(node, text ?? "unknown");
  node.classList.toggle("unknown", text === null);
  setText($(`f-${name}-note`), note);
}

export function drawFigures() {
  const pool = state.pool;
  if (!pool) {
    for (const name of ["rate", "alive", "used", "end"]) setFigure(name, null, "");
    $("meter-used").hidden = $("meter-peak").hidden = true;
    return;
  }
  const workers = [...state.workers.values()].map((worker) => [worker, healthOf(worker)]);
  drawWorkers(workers);
  drawUse(pool);
  const end = pool.layout_end_at ?? NaN, year = new Date(end).getUTCFullYear(), left = end - now();
  setFigure("end", year > 9999 || Number.isNaN(year) ? "past 9999" : String(year), Number.isNaN(left) ? "" : left > 0 ? `in ${durationText(left)}` : "over");
}

function drawWorkers(workers) {
  const stale = isStale(), reporting = workers.filter(([, health]) => health === "healthy" || health === "late");
  const silent = workers.length - reporting.length;
  const rate = reporting.reduce((sum, [worker]) => sum + worker.ids_per_second, 0);
  const made = workers.reduce((sum, [worker]) => sum + worker.ids_made, 0);
  // the last rate of a silent worker is out of date
  const isKnown = !stale && reporting.length >= silent;
  setFigure("rate", isKnown ? compact(rate) : null, silent && !stale ? `${isKnown ? "" : `${compact(rate)} a second `}without ${plural(silent, "silent worker")}` : `${compact(made)} made by these workers${stale ? ", when it was last known" : ""}`);
  const count = (health) => workers.filter(([, other]) => other === health).length;
  const others = STATES.filter((health) => health !== "healthy" && count(health)).map((health) => `${whole(count(health))} ${health}`);
  const living = workers.filter(([worker]) => worker.state !== "unknown").length;
  // without a reply, the state of each of them is unknown
  if (stale) setFigure("alive", null, `${whole(state.pool.used)} when it was last known`);
  else setFigure("alive", whole(living), others.length ? others.join(", ") : living ? "all healthy" : "none");
}

function drawUse(pool) {
  const share = pool.capacity ? pool.used / pool.capacity : 0, meter = $("meter"), stale = isStale();
  const text = share && share < 0.1 ? `${(share * 100).toFixed(1)} %` : `${Math.round(share * 100)} %`;
  setFigure("used", stale ? null : text, `${whole(pool.used)} of ${whole(pool.capacity)}, peak ${whole(pool.peak)}${stale ? ", when it was last known" : ""}`);
  meter.classList.toggle("full", share > 0.9);
  setAttribute(meter, "aria-valuemax", pool.capacity);
  setAttribute(meter, "aria-valuenow", pool.used);
  setHidden($("meter-used"), !pool.used || stale);
  setHidden($("meter-peak"), !pool.peak);
  const width = `${share * 100}%`, left = `min(calc(100% - 2px), ${(pool.peak / Math.max(1, pool.capacity)) * 100}%)`;
  if (meter.drawn !== width + left) {
    meter.drawn = width + left;
    $("meter-used").style.width = width;
    $("meter-peak").style.left = left;
  }
}

export function drawPool() {
  const pool = state.pool;
  if (!pool) return;
  const settings = pool.settings ?? {}, floorMs = pool.floor_at - now();
  const counters = [["claims", "claims"], ["releases", "releases"], ["expired", "expired"], ["reclaimed", "reclaimed of dead processes"], ["returned", "returned"], ["adopted", "adopted"], ["lost", "lost"]];
  replaceIfChanged($("state"), definitionRows([
    ["name", copyable(pool.name, "the name of the pool")],
    ["layout", copyable(String(pool.layout), "the layout")],
    ["lease", `${durationText(Number(settings.ttl_ms))}; clocks may run ahead by ${durationText(Number(settings.max_clock_lead_ms))}`],
    ["new workers", isStale() ? "unknown" : floorMs > 0 ? `wait ${Math.ceil(floorMs / 1000)} s for the floor, until ${timeText(pool.floor_at)}` : "do not wait"],
    ["restart Redis now?", answerTo("restart")],
    ["deploy now?", answerTo("deploy")],
    ["versions", versionsText()],
    ["counters", counters.filter(([name]) => pool[name] !== undefined).map(([name, text]) => `${whole(pool[name])} ${text}`).join(", ")],
    ["alarms", alarmText(pool)],
    ["created", pool.created_at ? timeText(pool.created_at) : null],
    ["layout ends", timeText(pool.layout_end_at ?? NaN)],
    ["incarnation", pool.incarnation, true],
    ["version", whole(pool.version)],
  ]));
}

const answerTo = (question) => (isStale() ? "unknown" : state.answers.find((each) => each.question === question)?.text ?? "unknown");

// only if they differ
function versionsText() {
  const counts = new Map();
  for (const { version } of state.workers.values()) counts.set(version || "unknown", (counts.get(version || "unknown") ?? 0) + 1);
  return counts.size < 2 ? null : [...counts].sort().map(([version, number]) => `${version}: ${plural(number, "worker")}`).join(", ");
}

function alarmText(pool) {
  if (!pool.alarms) return "none";
  const last = pool.alarm_from ? `ids may have been repeated between ${timeText(pool.alarm_from)} and ${timeText(pool.alarm_until)}` : pool.alarm;
  return `${whole(pool.alarms)}, the last: ${last}`;
}
