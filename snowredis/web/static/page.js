// Entry point: polls, and draws the verdict, the figures, the deaths, the chart, the events and the pool.
import { $, capitalized, compact, copyable, definitionRows, durationText, element, parseJson, plural, replaceIfChanged, setAttribute, setHidden, setText, shape, startCopying, timeNode, timeText, whole } from "./dom.js";
import { drawDrawer, eventRow, startDrawer } from "./drawer.js";
import { showId, startLookup } from "./lookup.js";
import { countLiving, countUnseen, EVERY_MS, get, info, isStale, isUnknown, LETTERS, linkTo, now, open, ownerText, PAST_MS, read, route, state, stateOf } from "./state.js";
import { drawWorkers, filterText, startWorkers } from "./workers.js";

// from best to worst; with the sign that says it without its color
const SIGNS = { ok: "✓", notice: "i", unknown: "?", warning: "!", critical: "✕" };
const MAX_ENDED = 8;

// --- the verdict -------------------------------------------------------------------------------------

function verdict() {
  const { failure, repliedMs, report } = state;
  if (!failure) return report?.status ?? { level: "unknown", headline: "waiting for the service", conditions: [] };
  const since = repliedMs ? `. Everything below is as it was ${durationText(Date.now() - repliedMs)} ago, at ${timeText(repliedMs)}` : "";
  return { level: failure.level, headline: failure.title, conditions: [{ code: "no-report", level: failure.level, text: failure.text + since, advice: "" }] };
}

let announced = "";

function drawVerdict() {
  const { level, headline, conditions } = verdict(), title = capitalized(headline);
  const sentence = (text) => `${capitalized(text).replace(/\.$/, "").replace(/(\d\d)T(\d\d:\d\d:\d\d)[.\d]*Z/g, "$1 $2 UTC")}.`;
  setAttribute($("status"), "data-level", level);
  setAttribute($("status"), "data-codes", conditions.map(({ code }) => code).join(" "));
  setText($("status-sign"), SIGNS[level] ?? "?");
  setText($("status-headline"), title);
  setHidden($("status-list"), conditions.length === 0);
  replaceIfChanged($("status-list"), conditions.map((condition) => element("li", { "data-level": condition.level },
    element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[condition.level] ?? "?"),
    element("span", {}, `${sentence(condition.text)} `, element("span", { class: "note" }, condition.advice ? sentence(condition.advice) : "")))));
  document.title = `${level === "ok" ? "" : `${SIGNS[level]} `}${title} · ${state.pool} · snowredis`;
  setAttribute($("icon"), "href", `static/icon-${SIGNS[level] ? level : "unknown"}.svg`);
  // screen readers hear a change of the verdict, not each second of a countdown
  const codes = `${level} ${conditions.map(({ code }) => code).join()}`;
  if (codes !== announced) setText($("status-said"), level === "ok" ? "No problem" : title);
  announced = codes;
  setAttribute($("link"), "data-state", isStale() ? "problem" : state.report ? "live" : "waiting");
  setText($("link"), isStale() ? "out of date" : state.report ? "live" : "connecting");
}

// --- figures -----------------------------------------------------------------------------------------

function setFigure(name, text, note) {
  setText($(`f-${name}`), text ?? "unknown");
  $(`f-${name}`).classList.toggle("unknown", text === null);
  setText($(`f-${name}-note`), note);
}

function drawFigures() {
  const pool = info(), stale = isStale(), last = stale ? ", when it was last known" : "";
  if (!pool) return ["rate", "alive", "used", "end"].forEach((name) => setFigure(name, null, ""));
  const { states, services } = state.report;
  const living = countLiving(), unseen = countUnseen(), unknown = isUnknown(), rate = state.report.ids_per_second;
  setFigure("rate", unknown ? null : compact(rate), stale ? `${compact(rate)}${last}` : unseen ? `without ${plural(unseen, "silent or expired worker")}` : "by all workers");
  const others = Object.entries(states).filter(([name]) => name !== "alive").map(([name, count]) => `${whole(count)} ${name}`);
  const serving = services ? `and ${plural(services, "process", "processes")} of this service` : "";
  setFigure("alive", unknown ? null : whole(living), stale ? `${whole(living)}${last}` : [...(living || unknown ? others : ["none", ...others]), serving].filter(Boolean).join(", "));
  const share = pool.used / Math.max(1, pool.capacity);
  setFigure("used", stale ? null : `${(share * 100).toFixed(share && share < 0.1 ? 1 : 0)} %`, `${whole(pool.used)} of ${whole(pool.capacity)}, peak ${whole(pool.peak)}${last}`);
  $("meter").value = share;
  const left = pool.layout_end_at - now(), year = new Date(pool.layout_end_at).getUTCFullYear();
  setFigure("end", pool.layout_end_at ? String(year) : "past 9999", pool.layout_end_at ? (left > 0 ? `in ${durationText(left)}` : "over") : "");
}

// --- who ended without a release, in the last hour ----------------------------------------------------

function drawEnded() {
  const ended = state.rows.filter((row) => row.ended).sort((a, b) => b.ends_at - a.ends_at);
  // the service sends some of many
  const { states } = state.report ?? { states: {} }, rows = (health) => ended.filter((row) => row.state === health).length;
  const counts = [["died", states.died ?? 0], ["expired", states.expired ?? 0], ["silent", 0]].map(([health, all]) => [Math.max(rows(health), all), health]);
  const total = counts.reduce((sum, [count]) => sum + count, 0);
  setHidden($("ended"), ended.length === 0);
  setText($("ended-title"), `Ended without a release in the last hour: ${counts.filter(([count]) => count).map(([count, health]) => `${whole(count)} ${health}`).join(", ")}`);
  setText($("ended-more"), total > MAX_ENDED ? `and ${whole(total - MAX_ENDED)} more, in the table of workers` : "");
  replaceIfChanged($("ended-list"), ended.slice(0, MAX_ENDED).map((row) => {
    const how = row.state === "died" ? "it was killed or crashed" : row.ids_until > now() ? `if it lives, it has ids until ${timeText(row.ids_until)}` : "it has no ids any more";
    return element("li", {}, element("i", { class: `s-${stateOf(row)}`, "aria-hidden": "true" }, LETTERS[stateOf(row)]),
      element("span", {}, element("a", { href: linkTo("worker", row.worker) }, `worker ${row.worker}`), ` ${ownerText(row) || "no name"}: ${how}`), timeNode(row.ends_at));
  }));
}

// --- the chart: what this page has seen; gaps where nothing was read -----------------------------------

function drawChart() {
  const place = $("chart"), width = place.clientWidth, height = place.clientHeight, toMs = now();
  const known = state.points.filter((point) => point[1] !== null), most = Math.max(10, ...known.map((point) => point[1]));
  const step = 10 ** Math.floor(Math.log10(most)), top = step * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((each) => each * step >= most);
  const spanMs = Math.max(60000, Math.min(PAST_MS, toMs - (state.points[0]?.[0] ?? toMs))), left = 50, bottom = height - 22;
  const x = (ms) => width - 6 - ((toMs - ms) / spanMs) * (width - 56), y = (rate) => bottom - (rate / top) * (bottom - 12);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const part of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "rule", x1: left, x2: width - 6, y1: y(top * part), y2: y(top * part) }));
    svg.append(shape("text", { x: left - 8, y: y(top * part) + 4, "text-anchor": "end" }, compact(top * part)));
    svg.append(shape("text", { x: left + part * (width - 56), y: height - 4, "text-anchor": ["start", "middle", "end"][part * 2] }, part === 1 ? "now" : `${durationText(spanMs * (1 - part))} ago`));
  }
  const runs = state.points.reduce((all, point) => (point[1] === null ? [...all, []] : (all.at(-1).push(point), all)), [[]]).filter((run) => run.length);
  for (const run of runs) {
    const line = run.map(([ms, rate]) => `${x(ms).toFixed(1)} ${y(rate).toFixed(1)}`).join("L");
    svg.append(shape("path", { class: "area", d: `M${line}L${x(run.at(-1)[0]).toFixed(1)} ${bottom}L${x(run[0][0]).toFixed(1)} ${bottom}Z` }), shape("path", { class: "line", d: `M${line}h.1` }));
  }
  replaceIfChanged(place, [svg]);
  setText($("chart-note"), known.length ? `now ${isUnknown() ? "unknown" : whole(known.at(-1)[1])}, highest ${whole(Math.max(...known.map((point) => point[1])))}, since this page was opened` : "Nothing was read yet.");
  setAttribute(place, "aria-label", `Ids per second: ${$("chart-note").textContent}`);
}

// --- events and pool ---------------------------------------------------------------------------------

function drawEvents() {
  replaceIfChanged($("events"), state.events.map((event) => eventRow(event)));
  setText($("no-events"), state.events.length ? "" : "No events yet.");
}

function drawPool() {
  const pool = info();
  if (!pool) return;
  const answer = (question) => (isStale() ? "unknown" : state.report.answers?.find((each) => each.question === question)?.text);
  const counters = ["claims", "releases", "expired", "died", "returned", "adopted", "lost", "alarms"].filter((name) => pool[name] !== undefined);
  const versions = new Set(state.rows.filter((row) => !row.ended).map((row) => row.version));
  replaceIfChanged($("state"), definitionRows([
    ["name", copyable(pool.name, "the name of the pool")],
    ["layout", copyable(String(pool.layout), "the layout")],
    ["lease", durationText(Number(pool.settings?.ttl_ms))],
    ["new workers", pool.floor_at > now() ? `wait until ${timeText(pool.floor_at)}, so that no id is repeated` : "do not wait"],
    ["restart Redis now?", answer("restart")],
    ["deploy now?", answer("deploy")],
    ["versions", versions.size > 1 ? [...versions].join(", ") : ""],
    ["counters", counters.map((name) => `${whole(pool[name])} ${name}`).join(", ")],
    ["created", timeText(pool.created_at)],
    ["layout ends", timeText(pool.layout_end_at)],
  ]));
}

// --- the loop ----------------------------------------------------------------------------------------

function draw() {
  drawVerdict();
  if (document.hidden) return;
  for (const part of [drawFigures, drawEnded, drawWorkers, drawChart, drawEvents, drawPool, drawDrawer]) part();
}

let timer = 0;

// a hidden tab has its title and icon
async function poll() {
  clearTimeout(timer);
  await read(filterText());
  draw();
  clearTimeout(timer);
  timer = setTimeout(poll, document.hidden ? 5 * EVERY_MS : EVERY_MS);
}

function show() {
  const wanted = route(), pool = state.pools.includes(wanted.pool) ? wanted.pool : state.pools[0], unknown = wanted.pool !== "" && wanted.pool !== pool;
  setHidden($("problem"), !unknown);
  setText($("problem"), unknown ? `This service has no pool ${wanted.pool}. This is pool ${pool}.` : "");
  $("pool").value = pool;
  if (pool !== state.pool) {
    open(pool);
    poll();
  }
  if (wanted.id) showId(wanted.id);
  draw();
}

async function start() {
  try {
    state.pools = parseJson(await (await get("pools")).text()).pools;
  } catch (failure) {
    state.failure = failure;
    draw();
    setTimeout(start, EVERY_MS);
    return;
  }
  $("pool").replaceChildren(...state.pools.map((name) => element("option", { value: name }, name)));
  addEventListener("hashchange", show);
  show();
}

setHidden($("loading"), true);
// they are needed most when the service does not respond
for (const level of Object.keys(SIGNS)) fetch(`static/icon-${level}.svg`).catch(() => {});
$("pool").addEventListener("change", () => { location.hash = `#/pool/${encodeURIComponent($("pool").value)}`; });
document.addEventListener("visibilitychange", () => { if (state.pool) poll(); });
startCopying();
startWorkers(draw, poll);
startDrawer();
startLookup();
// ages grow between two replies, too
setInterval(() => { if (!document.hidden) { drawWorkers(); drawDrawer(); } }, 1000);
start();
