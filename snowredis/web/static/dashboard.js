// The dashboard: listens to /live, keeps what it was told, and draws it. Everything from a pool is text.
import { Chart, bitsOf, clockTime, compact, element, list, setText, span, whole } from "./draw.js";

const $ = (id) => document.getElementById(id);
const PAGE = 50, MAX_TILES = 4096, GHOST_MS = 20000, MAX_EVENTS = 100, PAST_MS = 600000;

let names = [], source = null, pool = null, offset = 0, heardAt = 0, troubled = false;
let workers = new Map(), events = [], picked = null, page = 0, order = { key: "worker", down: false };
const chart = new Chart($("chart"), $("chart-note"), PAST_MS);

const now = () => Date.now() + offset;
const chosen = () => $("pool").value;
const ttl = () => Number(pool?.settings?.ttl_ms) || 30000;
const ageOf = (row) => Math.max(0, now() - row.renewed_ms);
const where = (path, more = "") => `${path}?pool=${encodeURIComponent(chosen())}${more}`;

// --- what state a worker is in, by the age of its last heartbeat ---------------------------------------

function stateOf(row) {
  if (row.goneAt) return "gone";
  const age = ageOf(row) / ttl();
  return age < 1 / 3 ? "healthy" : age < 1 / 2 ? "late" : "suspect";
}

// --- the stream ------------------------------------------------------------------------------------

function listen() {
  source?.close();
  workers = new Map();
  events = [];
  chart.points = [];
  pool = picked = null;
  page = 0;
  $("grid").replaceChildren();
  link("waiting", "connecting");
  source = new EventSource(where("/live"));
  source.addEventListener("all", (event) => {
    workers = new Map();
    events = [];
    chart.points = [];
    take(JSON.parse(event.data));
  });
  source.addEventListener("change", (event) => take(JSON.parse(event.data)));
  source.addEventListener("trouble", (event) => showTrouble(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    link("trouble", "the service does not answer");
    // without a cookie that is still good the browser does not try again by itself
    if (source.readyState === EventSource.CLOSED) setTimeout(again, 3000);
  });
}

async function again() {
  try {
    const answer = await fetch("/pools");
    if (answer.status === 401) return location.reload();
    if (answer.ok) return listen();
  } catch {
    // the service is away
  }
  setTimeout(again, 3000);
}

function take(told) {
  heardAt = Date.now();
  if (told.pool?.now_ms) {
    pool = told.pool;
    offset = pool.now_ms - Date.now();
  }
  for (const row of told.workers ?? []) workers.set(row.worker, row);
  for (const number of told.gone ?? []) {
    const row = workers.get(number);
    if (row) row.goneAt = Date.now();
  }
  events.push(...(told.events ?? []));
  events.splice(0, events.length - MAX_EVENTS);
  chart.points.push(...(told.points ?? []));
  while (chart.points.length && chart.points[0][0] < now() - PAST_MS) chart.points.shift();
  showTrouble(told.pool?.trouble);
  if (told.events?.length || !told.gone) drawEvents();
  drawAll();
}

function showTrouble(trouble) {
  troubled = Boolean(trouble);
  $("trouble").hidden = !trouble;
  heardAt = Date.now();
  if (!trouble) return link("live", "live");
  setText($("trouble"), pool ? `${trouble.detail} What is shown is old.` : trouble.detail);
  link("trouble", "no news");
}

function link(state, text) {
  $("link").dataset.state = state;
  setText($("link"), text);
}

// --- drawing ---------------------------------------------------------------------------------------

function drawAll() {
  for (const [number, row] of workers) {
    if (row.goneAt && Date.now() - row.goneAt > GHOST_MS) workers.delete(number);
  }
  drawFigures();
  drawGrid();
  drawTable();
  chart.draw();
}

function drawFigures() {
  if (!pool) {
    $("empty").hidden = false;
    return setText($("empty"), "Nothing is known of this pool yet.");
  }
  const alive = [...workers.values()].filter((row) => !row.goneAt);
  // what a worker that is silent did last is no news of now
  const rate = alive.reduce((sum, row) => sum + (stateOf(row) === "healthy" ? row.ids_per_second : 0), 0);
  setText($("f-rate"), compact(rate));
  setText($("f-rate-note"), `${compact(alive.reduce((sum, row) => sum + row.ids_made, 0))} made by those alive`);
  setText($("f-alive"), whole(alive.length));
  const bad = { late: 0, suspect: 0 };
  for (const row of alive) bad[stateOf(row)] += 1;
  setText($("f-alive-note"), bad.late || bad.suspect ? `${bad.late} late, ${bad.suspect} suspect` : alive.length ? "all healthy" : "");
  const part = pool.capacity ? pool.used / pool.capacity : 0;
  setText($("f-used"), part && part < 0.1 ? `${(part * 100).toFixed(1)} %` : `${Math.round(part * 100)} %`);
  setText($("f-used-note"), `${whole(pool.used)} of ${whole(pool.capacity)}, peak ${whole(pool.peak)}`);
  const meter = $("meter");
  meter.classList.toggle("full", part > 0.9);
  meter.setAttribute("aria-valuemax", pool.capacity);
  meter.setAttribute("aria-valuenow", pool.used);
  $("meter-used").style.width = `${part * 100}%`;
  $("meter-used").hidden = !pool.used;
  $("meter-peak").hidden = !pool.peak;
  $("meter-peak").style.left = `min(calc(100% - 2px), ${(pool.peak / Math.max(1, pool.capacity)) * 100}%)`;
  const end = Number(pool.layout_end_ms);
  const year = new Date(end).getUTCFullYear();
  setText($("f-end"), year > 9999 || Number.isNaN(year) ? "past 9999" : String(year));
  setText($("f-end-note"), `${span(end - now())} from now`);
  const floor = pool.floor_ms - pool.now_ms;
  const stored = pool.settings ?? {};
  const rows = [
    ["layout", pool.layout, true],
    ["lease", `${span(Number(stored.ttl_ms))}, clocks may lead by ${span(Number(stored.max_clock_lead_ms))}`],
    ["new workers", floor > 0 ? `wait ${span(floor)} for the floor` : "do not wait"],
    ["counted", `${whole(pool.claims)} claims, ${whole(pool.releases)} releases, ${whole(pool.expired)} expired, ${whole(pool.adopted)} adopted, ${whole(pool.lost)} lost`],
    ["growth", pool.forecast?.used_up_ms ? `used up on ${new Date(pool.forecast.used_up_ms).toLocaleDateString("en-GB")} if it goes on so` : pool.forecast?.reason],
    ["alarms", pool.alarms ? `${whole(pool.alarms)}, the last: ${pool.alarm}` : "none"],
    ["made", pool.created_ms ? new Date(pool.created_ms).toLocaleString("en-GB") : null],
    ["incarnation", pool.incarnation, true],
    ["version", whole(pool.version)],
  ];
  const made = list(rows);
  if ($("state").textContent !== made.textContent) $("state").replaceChildren(...made.childNodes);
  $("empty").hidden = alive.length > 0 || workers.size > 0;
  setText($("empty"), "No worker is alive. The first id of a process in this pool makes one appear here.");
}

function drawGrid() {
  const grid = $("grid");
  const rows = [...workers.values()].sort((a, b) => a.worker - b.worker).slice(0, MAX_TILES);
  grid.className = `grid ${rows.length <= 12 ? "large" : rows.length <= 150 ? "medium" : "small"}`;
  grid.hidden = rows.length === 0;
  const tiles = new Map([...grid.children].map((tile) => [Number(tile.dataset.worker), tile]));
  let before = null;
  for (const row of rows) {
    let tile = tiles.get(row.worker);
    if (!tile) {
      tile = element("div", { class: "tile", role: "option", "data-worker": row.worker, tabindex: "-1", "aria-selected": "false" }, element("strong"), element("span"), element("span"));
    }
    tiles.delete(row.worker);
    const expected = before ? before.nextSibling : grid.firstChild;
    if (expected !== tile) grid.insertBefore(tile, expected);
    before = tile;
    drawTile(tile, row, rows.length);
  }
  for (const tile of tiles.values()) tile.remove();
  if (!grid.querySelector('[tabindex="0"]')) grid.firstElementChild?.setAttribute("tabindex", "0");
}

function drawTile(tile, row, count) {
  const state = stateOf(row), age = ageOf(row);
  if (tile.dataset.state !== state) {
    tile.dataset.state = state;
    tile.className = `tile s-${state}`;
  }
  // fades from one heartbeat to the next
  const fresh = state === "healthy" ? (1 - 0.45 * Math.min(1, age / (ttl() / 3))).toFixed(1) : "1";
  if (tile.dataset.fresh !== fresh) {
    tile.dataset.fresh = fresh;
    tile.style.setProperty("--fresh", fresh);
  }
  const said = `worker ${row.worker}, ${row.label || row.host || "no name"}, ${state}`;
  if (tile.getAttribute("aria-label") !== said) {
    tile.setAttribute("aria-label", said);
    tile.title = said;
  }
  const [number, name, news] = tile.children;
  setText(number, count > 150 ? "" : String(row.worker));
  setText(name, count > 12 ? "" : row.label || `${row.host} ${row.pid}`);
  setText(news, count > 12 ? "" : row.goneAt ? "gone" : `${compact(row.ids_per_second)}/s, ${span(age)} ago`);
  const isPicked = String(row.worker === picked);
  if (tile.getAttribute("aria-selected") !== isPicked) tile.setAttribute("aria-selected", isPicked);
}

const COLUMNS = [
  ["worker", "Worker", (row) => String(row.worker)],
  ["state", "State", null, "left", (row) => -ageOf(row) - (row.goneAt ? 1e12 : 0)],
  ["host", "Host", (row) => row.host, "left"],
  ["pid", "Pid", (row) => (row.pid ? String(row.pid) : "")],
  ["label", "Label", (row) => row.label, "left"],
  ["claimed_ms", "Since", (row) => span(now() - row.claimed_ms)],
  ["renewed_ms", "Heard", (row) => `${span(ageOf(row))} ago`],
  ["lease_end_ms", "Lease", (row) => (row.goneAt ? "ended" : span(row.lease_end_ms - now()))],
  ["ids_made", "Ids", (row) => compact(row.ids_made)],
  ["ids_per_second", "Ids/s", (row) => compact(row.ids_per_second)],
  ["clock_offset_ms", "Clock", (row) => `${row.clock_offset_ms > 0 ? "+" : ""}${row.clock_offset_ms} ms`],
  ["namespace", "Namespace", (row) => String(row.namespace)],
  ["clock_backs", "Clock back", (row) => String(row.clock_backs)],
];

function visible() {
  const wanted = $("filter").value.trim().toLowerCase();
  const rows = [...workers.values()].filter((row) =>
    !wanted || [row.host, row.label, String(row.pid), String(row.worker)].some((text) => text.toLowerCase().includes(wanted)));
  const by = COLUMNS.find((column) => column[0] === order.key)[4] ?? ((row) => row[order.key]);
  rows.sort((a, b) => {
    const one = by(a), two = by(b);
    const less = typeof one === "string" ? one.localeCompare(two) : one - two;
    return (order.down ? -less : less) || a.worker - b.worker;
  });
  return rows;
}

function drawTable() {
  const rows = visible(), pages = Math.max(1, Math.ceil(rows.length / PAGE)), body = $("rows");
  page = Math.min(page, pages - 1);
  const shown = rows.slice(page * PAGE, (page + 1) * PAGE);
  while (body.children.length > shown.length) body.lastElementChild.remove();
  while (body.children.length < shown.length) {
    const line = element("tr");
    for (const column of COLUMNS) {
      const cell = element("td", column[3] ? { class: column[3] } : {});
      if (column[0] === "state") cell.append(element("span", { class: "state" }));
      line.append(cell);
    }
    body.append(line);
  }
  shown.forEach((row, i) => drawLine(body.children[i], row));
  const range = rows.length > PAGE ? `${page * PAGE + 1}–${page * PAGE + shown.length} of ${whole(rows.length)}` : `${rows.length} shown`;
  setText($("shown"), range);
  $("before").disabled = page === 0;
  $("after").disabled = page >= pages - 1;
  document.querySelector(".scroll").hidden = workers.size === 0;
  document.querySelector(".tools").hidden = workers.size === 0;
}

function drawLine(line, row) {
  line.classList.toggle("picked", row.worker === picked);
  const lead = Number(pool?.settings?.max_clock_lead_ms) || 2500;
  COLUMNS.forEach(([key, , text], i) => {
    const cell = line.children[i];
    if (key === "state") {
      const state = stateOf(row);
      cell.firstChild.className = `state s-${state}`;
      return setText(cell.firstChild, state);
    }
    setText(cell, text(row));
    if (key === "host" || key === "label") cell.title = text(row);
    if (key === "clock_offset_ms") cell.classList.toggle("warn", Math.abs(row.clock_offset_ms) > lead);
    if (key === "clock_backs") cell.classList.toggle("warn", row.clock_backs > 0);
  });
}

function drawHeads() {
  $("heads").replaceChildren(...COLUMNS.map(([key, title, , side]) => {
    const button = element("button", { type: "button" }, title);
    button.addEventListener("click", () => {
      order = { key, down: order.key === key ? !order.down : key.startsWith("ids") };
      for (const other of $("heads").children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      page = 0;
      drawTable();
    });
    const head = element("th", { scope: "col", ...(side ? { class: side } : {}) }, button);
    if (key === order.key) head.setAttribute("aria-sort", "ascending");
    return head;
  }));
}

const REASON = new Set(["lost", "floor", "alarm"]);

function drawEvents() {
  const lines = [...events].reverse().map((event) => {
    const who = event.worker >= 0 ? `worker ${event.worker}` : "the pool";
    const by = event.host || event.label ? `, ${[event.label, event.host && `${event.host} ${event.pid}`].filter(Boolean).join(", ")}` : "";
    const why = REASON.has(event.kind) && event.text ? `: ${event.text}` : "";
    return element("li", {},
      element("time", { datetime: new Date(event.at_ms).toISOString() }, clockTime(event.at_ms)),
      element("span", { class: `kind k-${/^[a-z-]+$/.test(event.kind) ? event.kind : ""}` }, event.kind),
      element("span", { class: "what" }, who + by + why));
  });
  if (!lines.length) lines.push(element("li", {}, element("span", { class: "note" }, "none yet")));
  $("events").replaceChildren(...lines);
}

// --- ask -------------------------------------------------------------------------------------------

async function ask(path) {
  const text = $("id").value.trim();
  if (!text) return $("id").focus();
  try {
    const answer = await fetch(where(`${path}/${encodeURIComponent(text)}`));
    if (answer.status === 401) return location.reload();
    const told = await answer.json();
    $("answer").replaceChildren(...(answer.ok ? answered(told) : [element("p", { class: "note said" }, told.detail ?? "no answer")]));
  } catch {
    $("answer").replaceChildren(element("p", { class: "note said" }, "The service does not answer."));
  }
}

function answered(told) {
  const id = told.decoded ?? told, made = [];
  if (told.whois) made.push(...holders(told.whois));
  made.push(bitsOf(id.fields));
  const ago = now() - id.timestamp_ms;
  const when = id.time ? `${id.time.replace("T", " ").replace("Z", " UTC")}, ${ago >= 0 ? `${span(ago)} ago` : `in ${span(-ago)}`}` : "past the year 9999";
  made.push(list([["id", id.id, true], ["read as", id.form === "decimal" ? null : id.form], ["time", when], ["base62", id.forms.base62, true], ["friendly", id.forms.friendly, true]]));
  return made;
}

function holders(found) {
  const sure = ["certain", "probable", "unknown"].includes(found.certainty) ? found.certainty : "unknown";
  const badge = element("span", { class: `certain is-${sure}` }, sure);
  const made = [element("p", { class: "said" }, badge, found.holder ? nameOf(found.holder) : "Nobody can say")];
  if (found.holder) {
    const { from_ms: from, to_ms: to, held } = found.holder;
    made.push(element("p", { class: "note" }, `worker ${found.holder.worker}, ${from ? `from ${new Date(from).toLocaleString("en-GB")}` : "since nobody knows when"} ${held ? "until now" : to ? `to ${new Date(to).toLocaleString("en-GB")}` : "to an end that is not known"}`));
  }
  made.push(element("p", { class: "note" }, found.reason));
  for (const other of found.candidates ?? []) made.push(element("p", { class: "note" }, `perhaps ${nameOf(other)}`));
  return made;
}

const nameOf = (holder) => [holder.label, holder.host, holder.pid && `pid ${holder.pid}`].filter(Boolean).join(", ") || "a process without a name";

// --- hands and keys --------------------------------------------------------------------------------

function pick(number) {
  picked = number;
  const at = visible().findIndex((row) => row.worker === number);
  if (at >= 0) page = Math.floor(at / PAGE);
  drawGrid();
  drawTable();
}

function focusTile(tile) {
  if (!tile) return;
  $("grid").querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
  tile.setAttribute("tabindex", "0");
  tile.focus();
}

function tileBelow(tile, way) {
  const here = tile.getBoundingClientRect();
  let next = tile;
  while ((next = way > 0 ? next.nextElementSibling : next.previousElementSibling)) {
    const there = next.getBoundingClientRect();
    const other = way > 0 ? there.top > here.top && there.left >= here.left : there.top < here.top && there.left <= here.left;
    if (other) return next;
  }
  return way > 0 ? tile.parentElement.lastElementChild : tile.parentElement.firstElementChild;
}

$("grid").addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  focusTile(tile);
  pick(Number(tile.dataset.worker));
});
$("grid").addEventListener("keydown", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  const go = {
    ArrowRight: () => focusTile(tile.nextElementSibling), ArrowLeft: () => focusTile(tile.previousElementSibling),
    ArrowDown: () => focusTile(tileBelow(tile, 1)), ArrowUp: () => focusTile(tileBelow(tile, -1)),
    Home: () => focusTile($("grid").firstElementChild), End: () => focusTile($("grid").lastElementChild),
    Enter: () => pick(Number(tile.dataset.worker)), " ": () => pick(Number(tile.dataset.worker)),
  }[event.key];
  if (!go) return;
  event.preventDefault();
  go();
});
$("filter").addEventListener("input", () => { page = 0; drawTable(); });
$("before").addEventListener("click", () => { page -= 1; drawTable(); });
$("after").addEventListener("click", () => { page += 1; drawTable(); });
$("ask").addEventListener("submit", (event) => { event.preventDefault(); ask("/decode"); });
$("do-whois").addEventListener("click", () => ask("/whois"));
$("pool").addEventListener("change", () => {
  history.replaceState(null, "", where("/"));
  listen();
});
// ages grow whether or not there is news
setInterval(() => {
  if (document.hidden) return;
  drawAll();
  if (heardAt && !troubled && source?.readyState === EventSource.OPEN && Date.now() - heardAt > 8000) link("waiting", "no news for a while");
}, 1000);

async function begin() {
  drawHeads();
  drawEvents();
  try {
    const answer = await fetch("/pools");
    names = (await answer.json()).pools;
  } catch {
    link("trouble", "the service does not answer");
    return setTimeout(begin, 3000);
  }
  const wanted = new URLSearchParams(location.search).get("pool");
  $("pool").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(wanted)) $("pool").value = wanted;
  setText($("foot"), "snowredis. Ids by hand: /id, /ids?count=10. Programs start at /openapi.json.");
  listen();
}

begin();
