// The workers as a table with sorting and pages.
import { requestDraw } from "./draw.js";
import { $, compact, element, setHidden, setText, whole } from "./dom.js";
import { currentRoute, linkTo } from "./route.js";
import { groupOf, grouping, isFiltered } from "./selection.js";
import { heartbeatAge, LETTERS, now, OWNER, state, STATES } from "./state.js";
import { durationText } from "./times.js";

const ROWS_PER_PAGE = 20;

const ago = (ms) => `${durationText(now() - ms)} ago`;
const leaseText = (worker, health) => (health === "dead" ? "ended" : worker.lease_end_at > now() ? durationText(worker.lease_end_at - now()) : health);
// what is not known of a dead worker is shown empty
const numberText = (number, show = String) => (number === null || number === undefined ? "" : show(number));
// what it was when it was last known is not shown as what it is
const knownText = (health, text) => (health === "unknown" ? "unknown" : text);

// key, title, text of a cell, class, value to sort by (default: the worker's field)
const COLUMNS = [
  ["worker", "Worker", (worker) => String(worker.worker), ""],
  ["state", "State", (worker, health) => health, "left state", (worker, health) => STATES.indexOf(health) * 1e9 - (worker.heartbeat_at ? heartbeatAge(worker) : 0) / 1000],
  ...OWNER.map(([name, side]) => [name, name[0].toUpperCase() + name.slice(1), (worker) => String(worker[name] || ""), side]),
  ["claimed_at", "Leased for", (worker, health) => (worker.claimed_at ? knownText(health, durationText((health === "dead" ? worker.at : now()) - worker.claimed_at)) : ""), "wide"],
  ["heartbeat_at", "Heartbeat", (worker, health) => (health === "unknown" ? "unknown" : worker.heartbeat_at ? ago(worker.heartbeat_at) : ""), ""],
  ["lease_end_at", "Lease left", leaseText, "wide"],
  ["ids_made", "Ids", (worker, health) => numberText(worker.ids_made, (made) => `${compact(made)}${health === "unknown" ? " or more" : ""}`), "wide"],
  ["ids_per_second", "Ids/s", (worker, health) => (health === "dead" ? "" : health === "unknown" || health === "silent" ? "unknown" : compact(worker.ids_per_second)), ""],
  ["clock_offset_ms", "Clock", (worker, health) => knownText(health, numberText(worker.clock_offset_ms, (ms) => `${ms > 0 ? "+" : ""}${ms} ms`)), "wide"],
  ["namespace", "Namespace", (worker, health) => knownText(health, numberText(worker.namespace)), "wide"],
  ["clock_backs", "Clock back", (worker, health) => knownText(health, numberText(worker.clock_backs)), "wide"],
];

let page = 0, order = { key: "worker", descending: false };

export function resetTable() {
  page = 0;
}

function sorted(items) {
  const value = COLUMNS.find((column) => column[0] === order.key)[4] ?? ((worker) => worker[order.key] ?? -1);
  const values = new Map(items.map((item) => [item, value(...item)]));
  return [...items].sort((a, b) => {
    const x = values.get(a), y = values.get(b);
    const byGroup = grouping() ? groupOf(a[0]).localeCompare(groupOf(b[0]), "en", { numeric: true }) : 0;
    const difference = typeof x === "string" ? x.localeCompare(y) : x - y;
    return byGroup || (order.descending ? -difference : difference) || a[0].worker - b[0].worker;
  });
}

// items: [worker, state]
export function drawTable(items) {
  const body = $("rows"), pages = Math.max(1, Math.ceil(items.length / ROWS_PER_PAGE));
  page = Math.min(page, pages - 1);
  const first = page * ROWS_PER_PAGE, shown = sorted(items).slice(first, first + ROWS_PER_PAGE);
  while (body.children.length > shown.length) body.lastElementChild.remove();
  while (body.children.length < shown.length) body.append(newRow());
  shown.forEach(([worker, health], i) => drawRow(body.children[i], worker, health));
  const total = isFiltered() ? `${whole(items.length)} found` : whole(items.length);
  setText($("shown"), items.length > ROWS_PER_PAGE ? `${first + 1}–${first + shown.length} of ${total}` : `${total} shown`);
  $("before").disabled = page === 0;
  $("after").disabled = page >= pages - 1;
  setHidden($("pager"), pages === 1);
  setHidden($("table"), items.length === 0);
}

function newRow() {
  const cells = COLUMNS.map(([key, , , side]) => element("td", side ? { class: side } : {}, ...(key === "worker" ? [element("a")] : key === "state" ? [element("i", { "aria-hidden": "true" }), element("span")] : [])));
  return element("tr", {}, ...cells);
}

function drawRow(row, worker, health) {
  const maxLeadMs = Number(state.pool?.settings?.max_clock_lead_ms) || 2500;
  row.classList.toggle("picked", worker.worker === currentRoute().worker);
  COLUMNS.forEach(([key, , text], i) => {
    const cell = row.children[i], value = text(worker, health);
    if (key === "worker") {
      setText(cell.firstChild, value);
      const link = linkTo({ pool: state.pool.name, worker: worker.worker });
      if (cell.firstChild.getAttribute("href") !== link) cell.firstChild.href = link;
    } else if (key === "state") {
      if (row.dataset.state !== health) {
        row.dataset.state = health;
        cell.firstChild.className = `s-${health}`;
        setText(cell.firstChild, LETTERS[health]);
        setText(cell.lastChild, health);
      }
    } else if (cell.drawn !== value) {
      cell.drawn = value;
      cell.textContent = value;
      if (key === "host" || key === "label") cell.title = value;
      if (key === "clock_offset_ms") cell.classList.toggle("warn", Math.abs(worker.clock_offset_ms) > maxLeadMs);
      if (key === "clock_backs") cell.classList.toggle("warn", worker.clock_backs > 0);
    }
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
  requestDraw();
}

export function startTable() {
  drawHeads();
  $("before").addEventListener("click", () => turnTo(page - 1));
  $("after").addEventListener("click", () => turnTo(page + 1));
}
