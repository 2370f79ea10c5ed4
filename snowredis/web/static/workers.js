// The workers as tiles or as a table; chips of states and a text say which.
import { $, compact, durationText, element, plural, replaceIfChanged, setAttribute, setHidden, setText, whole } from "./dom.js";
import { info, isService, isStale, LETTERS, linkTo, nameOf, now, route, state, stateOf, STATES } from "./state.js";

// tiles with a name, with a number, and without either; rows of the table
const LARGE = 40, MEDIUM = 250, MAX_ROWS = 100;
const ago = (ms) => (ms ? `${durationText(now() - ms)} ago` : "");

// key, title, text of a cell, class, value to sort by (default: the row's field)
const COLUMNS = [
  ["worker", "Worker", (row) => String(row.worker), ""],
  ["state", "State", (row, health) => health, "left", (row) => STATES.indexOf(stateOf(row))],
  ["label", "Label", (row) => String(row.label || ""), "left name"],
  ["host", "Host", (row) => String(row.host || ""), "left wide name"],
  ["pid", "Pid", (row) => String(row.pid || ""), "wide"],
  ["heartbeat_at", "Heartbeat", (row) => ago(row.heartbeat_at), ""],
  ["ends_at", "Lease left", (row) => (row.ended ? "ended" : durationText(row.ends_at - now())), "wide"],
  ["ids_made", "Ids", (row) => (row.ids_made === undefined ? "" : compact(row.ids_made)), "wide"],
  ["ids_per_second", "Ids/s", (row, health) => (health === "alive" ? compact(row.ids_per_second) : ""), ""],
  ["clock_offset_ms", "Clock", (row) => (row.clock_offset_ms === undefined ? "" : `${row.clock_offset_ms > 0 ? "+" : ""}${row.clock_offset_ms} ms`), "wide"],
];

// no state: all; the table or the tiles; how the table is sorted
const states = new Set();
let asTable = false, order = { key: "worker", sign: 1 }, redraw = () => {};

export const filterText = () => $("filter").value.trim().toLowerCase();

// [row, state] of those whose name contains the text
function matching() {
  const text = filterText(), name = (row) => `${row.worker} ${row.label ?? ""} ${row.host ?? ""} ${row.pid ?? ""}`.toLowerCase();
  return state.rows.filter((row) => !text || name(row).includes(text)).map((row) => [row, stateOf(row)]);
}

export function drawWorkers() {
  if (!info()) return;
  const all = matching(), items = all.filter(([, health]) => !states.size || states.has(health));
  const { found, leases } = state.report, notHere = Object.values(found).reduce((sum, count) => sum + count, 0) - leases.length;
  for (const chip of $("chips").children) {
    const health = chip.dataset.state, count = notHere > 0 && !isStale() ? found[health] ?? 0 : all.filter(([, other]) => other === health).length;
    setText(chip.lastChild, whole(count));
    setAttribute(chip, "aria-pressed", states.has(health));
    setHidden(chip, count === 0 && !states.has(health));
  }
  setAttribute($("as-tiles"), "aria-pressed", !asTable);
  setAttribute($("as-table"), "aria-pressed", asTable);
  setHidden($("grid"), asTable || !items.length);
  setHidden($("table"), !asTable || !items.length);
  setHidden($("empty"), items.length > 0);
  setText($("empty"), state.rows.length ? "No worker matches." : "No worker is alive. A process appears here when it makes its first id in this pool.");
  if (asTable) drawTable(items);
  else drawTiles(items);
  const notes = [asTable && items.length > MAX_ROWS && `The first ${MAX_ROWS} of ${whole(items.length)}.`, notHere > 0 && `${plural(notHere, "worker")} more: filter by label, host, pid or worker id.`];
  setText($("shown"), notes.filter(Boolean).join(" "));
}

// --- tiles -------------------------------------------------------------------------------------------

function drawTiles(items) {
  const size = items.length <= LARGE ? "large" : items.length <= MEDIUM ? "medium" : "small", grid = $("grid");
  setAttribute(grid, "data-size", size);
  while (grid.children.length > items.length) grid.lastChild.remove();
  items.forEach(([row, health], i) => {
    const tile = grid.children[i] ?? grid.appendChild(element("a", { class: "tile" }, element("strong"), element("span"), element("b")));
    drawTile(tile, row, health, size);
  });
}

function drawTile(tile, row, health, size) {
  const [title, text, letter] = tile.children, large = size === "large";
  // contains what is seen, as users of voice control say it
  const name = large ? nameOf(row) : `worker ${row.worker}`;
  setAttribute(tile, "class", `tile s-${health}${isService(row) ? " service" : ""}`);
  setAttribute(tile, "href", linkTo("worker", row.worker));
  setAttribute(tile, "aria-current", row.worker === route().worker);
  setText(letter, LETTERS[health]);
  setText(title, large ? name : size === "medium" ? String(row.worker) : "");
  setText(text, large ? `worker ${row.worker} · ${activityOf(row, health)}` : "");
  setAttribute(tile, "title", `${name}, worker ${row.worker}, ${nameOf(row)}, ${health}`);
  if (large) tile.removeAttribute("aria-label");
  else setAttribute(tile, "aria-label", tile.title);
}

function activityOf(row, health) {
  if (isService(row)) return "this service";
  if (row.ended) return `${health === "silent" ? "its lease ended" : health} ${ago(row.ends_at)}`;
  if (health === "silent") return `silent for ${durationText(now() - row.heartbeat_at)}`;
  return health === "alive" ? `${compact(row.ids_per_second)}/s, ${ago(row.heartbeat_at)}` : health;
}

// --- the table -----------------------------------------------------------------------------------------

function drawTable(items) {
  const value = COLUMNS.find(([key]) => key === order.key)[4] ?? ((row) => row[order.key] ?? -1);
  const compare = (a, b) => (typeof a === "string" && typeof b === "string" ? a.localeCompare(b) : a - b);
  const sorted = [...items].sort(([a], [b]) => order.sign * compare(value(a), value(b)) || a.worker - b.worker).slice(0, MAX_ROWS);
  replaceIfChanged($("rows"), sorted.map(([row, health]) => element("tr", row.worker === route().worker ? { class: "picked" } : {},
    ...COLUMNS.map(([key, , text, side]) => {
      const shown = key === "worker" ? [element("a", { href: linkTo("worker", row.worker) }, text(row))]
        : key === "state" ? [element("i", { class: `s-${health}`, "aria-hidden": "true" }, LETTERS[health]), health] : [text(row, health)];
      return element("td", side ? { class: side } : {}, ...shown);
    }))));
  for (const head of $("heads").children) setAttribute(head, "aria-sort", head.dataset.key !== order.key ? "none" : order.sign > 0 ? "ascending" : "descending");
}

export function startWorkers(draw, poll) {
  redraw = draw;
  $("chips").append(...STATES.map((health) => element("button", { type: "button", class: "chip", "data-state": health, "aria-pressed": "false" },
    element("i", { class: `s-${health}`, "aria-hidden": "true" }, LETTERS[health]), `${health} `, element("b", {}, "0"))));
  $("chips").addEventListener("click", ({ target }) => {
    const health = target.closest("button")?.dataset.state;
    if (health && !states.delete(health)) states.add(health);
    redraw();
  });
  $("heads").append(...COLUMNS.map(([key, title, , side]) => element("th", { scope: "col", "data-key": key, class: side }, element("button", { type: "button" }, title))));
  $("heads").addEventListener("click", ({ target }) => {
    const { key } = target.closest("th").dataset;
    order = { key, sign: order.key === key ? -order.sign : key.startsWith("ids") ? -1 : 1 };
    redraw();
  });
  for (const [name, table] of [["as-tiles", false], ["as-table", true]]) $(name).addEventListener("click", () => { asTable = table; redraw(); });
  // the service filters where it has more than it sent
  $("filter").addEventListener("input", () => (state.report?.leases.length < info()?.used ? poll() : redraw()));
}
