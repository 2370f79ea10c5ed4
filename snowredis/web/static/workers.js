// The workers as a grid of tiles and as a table with sorting, a filter and pages.
import { $, compact, duration, element, setText, whole } from "./dom.js";
import { healthOf, heartbeatAge, now, state, ttlMs } from "./state.js";

const ROWS_PER_PAGE = 50, MAX_TILES = 4096;

// key, title, text of a cell, class, value to sort by (default: the worker's field)
const COLUMNS = [
  ["worker", "Worker", (worker) => String(worker.worker)],
  ["state", "State", healthOf, "left state", (worker) => -heartbeatAge(worker) - (worker.goneAt ? 1e12 : 0)],
  ["host", "Host", (worker) => worker.host, "left"],
  ["pid", "Pid", (worker) => (worker.pid ? String(worker.pid) : "")],
  ["label", "Label", (worker) => worker.label, "left"],
  ["claimed_ms", "Leased for", (worker) => duration(now() - worker.claimed_ms)],
  ["renewed_ms", "Heartbeat", (worker) => `${duration(heartbeatAge(worker))} ago`],
  ["lease_end_ms", "Lease left", (worker) => (worker.goneAt ? "ended" : duration(worker.lease_end_ms - now()))],
  ["ids_made", "Ids", (worker) => compact(worker.ids_made)],
  ["ids_per_second", "Ids/s", (worker) => compact(worker.ids_per_second)],
  ["clock_offset_ms", "Clock", (worker) => `${worker.clock_offset_ms > 0 ? "+" : ""}${worker.clock_offset_ms} ms`],
  ["namespace", "Namespace", (worker) => String(worker.namespace)],
  ["clock_backs", "Clock back", (worker) => String(worker.clock_backs)],
];

let selected = null, page = 0, order = { key: "worker", descending: false };

export function resetWorkers() {
  selected = null;
  page = 0;
  $("grid").replaceChildren();
}

// --- the grid --------------------------------------------------------------------------------------

export function drawGrid() {
  const grid = $("grid");
  const workers = [...state.workers.values()].sort((a, b) => a.worker - b.worker).slice(0, MAX_TILES);
  grid.className = `grid ${workers.length <= 12 ? "large" : workers.length <= 150 ? "medium" : "small"}`;
  grid.hidden = workers.length === 0;
  const unused = new Map([...grid.children].map((tile) => [Number(tile.dataset.worker), tile]));
  let previous = null;
  for (const worker of workers) {
    const tile = unused.get(worker.worker) ?? newTile(worker.worker);
    unused.delete(worker.worker);
    const expected = previous ? previous.nextSibling : grid.firstChild;
    if (expected !== tile) grid.insertBefore(tile, expected);
    previous = tile;
    drawTile(tile, worker, workers.length);
  }
  for (const tile of unused.values()) tile.remove();
  if (!grid.querySelector('[tabindex="0"]')) grid.firstElementChild?.setAttribute("tabindex", "0");
}

function newTile(number) {
  const attributes = { class: "tile", role: "option", "data-worker": number, tabindex: "-1", "aria-selected": "false" };
  return element("div", attributes, element("strong"), element("span"), element("span"));
}

function drawTile(tile, worker, count) {
  const health = healthOf(worker), age = heartbeatAge(worker);
  if (tile.dataset.state !== health) {
    tile.dataset.state = health;
    tile.className = `tile s-${health}`;
  }
  // fades from one heartbeat to the next
  const fresh = health === "healthy" ? (1 - 0.45 * Math.min(1, age / (ttlMs() / 3))).toFixed(1) : "1";
  if (tile.dataset.fresh !== fresh) {
    tile.dataset.fresh = fresh;
    tile.style.setProperty("--fresh", fresh);
  }
  const name = `worker ${worker.worker}, ${worker.label || worker.host || "no name"}, ${health}`;
  if (tile.getAttribute("aria-label") !== name) {
    tile.setAttribute("aria-label", name);
    tile.title = name;
  }
  const [number, owner, activity] = tile.children;
  setText(number, count > 150 ? "" : String(worker.worker));
  setText(owner, count > 12 ? "" : worker.label || `${worker.host} ${worker.pid}`);
  setText(activity, count > 12 ? "" : worker.goneAt ? "gone" : `${compact(worker.ids_per_second)}/s, ${duration(age)} ago`);
  const isSelected = String(worker.worker === selected);
  if (tile.getAttribute("aria-selected") !== isSelected) tile.setAttribute("aria-selected", isSelected);
}

function select(number) {
  selected = number;
  const index = filteredWorkers().findIndex((worker) => worker.worker === number);
  if (index >= 0) page = Math.floor(index / ROWS_PER_PAGE);
  drawGrid();
  drawTable();
}

function focusTile(tile) {
  if (!tile) return;
  $("grid").querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
  tile.setAttribute("tabindex", "0");
  tile.focus();
}

// the tile below (step 1) or above (step -1); the last or first one at the edge
function tileInNextRow(tile, step) {
  const here = tile.getBoundingClientRect();
  let next = tile;
  while ((next = step > 0 ? next.nextElementSibling : next.previousElementSibling)) {
    const there = next.getBoundingClientRect();
    if (step > 0 ? there.top > here.top && there.left >= here.left : there.top < here.top && there.left <= here.left) return next;
  }
  return step > 0 ? tile.parentElement.lastElementChild : tile.parentElement.firstElementChild;
}

function onGridKey(event) {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  const action = {
    ArrowRight: () => focusTile(tile.nextElementSibling), ArrowLeft: () => focusTile(tile.previousElementSibling),
    ArrowDown: () => focusTile(tileInNextRow(tile, 1)), ArrowUp: () => focusTile(tileInNextRow(tile, -1)),
    Home: () => focusTile($("grid").firstElementChild), End: () => focusTile($("grid").lastElementChild),
    Enter: () => select(Number(tile.dataset.worker)), " ": () => select(Number(tile.dataset.worker)),
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

// --- the table -------------------------------------------------------------------------------------

function filteredWorkers() {
  const filter = $("filter").value.trim().toLowerCase();
  const matches = (worker) => [worker.host, worker.label, String(worker.pid), String(worker.worker)].some((text) => text.toLowerCase().includes(filter));
  const workers = [...state.workers.values()].filter((worker) => !filter || matches(worker));
  const sortValue = COLUMNS.find((column) => column[0] === order.key)[4] ?? ((worker) => worker[order.key]);
  return workers.sort((a, b) => {
    const x = sortValue(a), y = sortValue(b);
    const difference = typeof x === "string" ? x.localeCompare(y) : x - y;
    return (order.descending ? -difference : difference) || a.worker - b.worker;
  });
}

export function drawTable() {
  const workers = filteredWorkers(), pages = Math.max(1, Math.ceil(workers.length / ROWS_PER_PAGE)), body = $("rows");
  page = Math.min(page, pages - 1);
  const shown = workers.slice(page * ROWS_PER_PAGE, (page + 1) * ROWS_PER_PAGE);
  while (body.children.length > shown.length) body.lastElementChild.remove();
  while (body.children.length < shown.length) body.append(newRow());
  shown.forEach((worker, i) => drawRow(body.children[i], worker));
  const first = page * ROWS_PER_PAGE;
  setText($("shown"), workers.length > ROWS_PER_PAGE ? `${first + 1}–${first + shown.length} of ${whole(workers.length)}` : `${workers.length} shown`);
  $("before").disabled = page === 0;
  $("after").disabled = page >= pages - 1;
  document.querySelector(".scroll").hidden = state.workers.size === 0;
  document.querySelector(".tools").hidden = state.workers.size === 0;
}

function newRow() {
  return element("tr", {}, ...COLUMNS.map(([, , , side]) => element("td", side ? { class: side } : {})));
}

function drawRow(row, worker) {
  row.classList.toggle("picked", worker.worker === selected);
  const maxLeadMs = Number(state.pool?.settings?.max_clock_lead_ms) || 2500;
  COLUMNS.forEach(([key, , text], i) => {
    const cell = row.children[i];
    setText(cell, text(worker));
    if (key === "state") cell.className = `left state s-${healthOf(worker)}`;
    if (key === "host" || key === "label") cell.title = text(worker);
    if (key === "clock_offset_ms") cell.classList.toggle("warn", Math.abs(worker.clock_offset_ms) > maxLeadMs);
    if (key === "clock_backs") cell.classList.toggle("warn", worker.clock_backs > 0);
  });
}

function drawHeads() {
  $("heads").replaceChildren(...COLUMNS.map(([key, title, , side]) => {
    const button = element("button", { type: "button" }, title);
    const head = element("th", { scope: "col", ...(side ? { class: side } : {}) }, button);
    if (key === order.key) head.setAttribute("aria-sort", "ascending");
    button.addEventListener("click", () => {
      order = { key, descending: order.key === key ? !order.descending : key.startsWith("ids") };
      for (const other of $("heads").children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      turnTo(0);
    });
    return head;
  }));
}

function turnTo(number) {
  page = number;
  drawTable();
}

export function startWorkers() {
  drawHeads();
  $("grid").addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    focusTile(tile);
    select(Number(tile.dataset.worker));
  });
  $("grid").addEventListener("keydown", onGridKey);
  $("filter").addEventListener("input", () => turnTo(0));
  $("before").addEventListener("click", () => turnTo(page - 1));
  $("after").addEventListener("click", () => turnTo(page + 1));
}
