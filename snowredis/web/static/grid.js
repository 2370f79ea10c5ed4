// The workers as a grid of tiles, each a link to the worker.
import { $, compact, element, plural, setAttribute, setHidden, setText } from "./dom.js";
import { currentRoute, linkTo } from "./route.js";
import { groupOf, grouping, itemKey } from "./selection.js";
import { heartbeatAge, LETTERS, now, ownerOf, STATES, state } from "./state.js";
import { durationText } from "./times.js";

const MAX_TILES = 4096;
// up to this many tiles are large, and medium
const LARGE = 12, MEDIUM = 150;

let tiles = new Map();
// what is on the page: keys of tiles and names of groups in order
let drawnOrder = "";

export function resetGrid() {
  tiles = new Map();
  drawnOrder = "";
  $("grid").replaceChildren();
}

// items: [worker, state]
export function drawGrid(items) {
  const shown = items.slice(0, MAX_TILES), grid = $("grid");
  const size = shown.length <= LARGE ? "large" : shown.length <= MEDIUM ? "medium" : "small";
  if (grid.dataset.size !== size) grid.dataset.size = size;
  setHidden(grid, shown.length === 0);
  const groups = groupsOf(shown);
  const order = groups.map(([name, members]) => `${name}:${members.map(([worker]) => itemKey(worker)).join()}`).join("\n");
  if (order !== drawnOrder) {
    drawnOrder = order;
    place(groups);
  }
  for (const [worker, health] of shown) drawTile(tiles.get(itemKey(worker)), worker, health, size);
  if (grouping()) groups.forEach(([name, members], i) => drawHead(grid.children[i].firstChild, name, members));
  const selected = currentRoute().worker;
  for (const tile of grid.querySelectorAll('[aria-current="true"]')) if (Number(tile.dataset.worker) !== selected) tile.removeAttribute("aria-current");
}

// [name, items]; one without a name if nothing is grouped
function groupsOf(items) {
  if (!grouping()) return [["", items]];
  const groups = new Map();
  for (const item of items) {
    const name = groupOf(item[0]);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return [...groups].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

function place(groups) {
  const focused = document.activeElement?.closest?.(".tile");
  const before = tiles;
  tiles = new Map();
  const nodes = groups.map(([name, members]) => {
    const children = members.map(([worker]) => {
      const key = itemKey(worker), tile = before.get(key) ?? newTile(worker);
      tiles.set(key, tile);
      return tile;
    });
    const body = element("div", { class: "tiles" }, ...children);
    return name ? element("div", { role: "group", "aria-label": name, class: "group" }, element("h3"), body) : body;
  });
  $("grid").replaceChildren(...nodes);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
  if (!$("grid").querySelector('[tabindex="0"]')) $("grid").querySelector(".tile")?.setAttribute("tabindex", "0");
}

function newTile(worker) {
  const attributes = { class: "tile", "data-worker": worker.worker, tabindex: "-1" };
  return element("a", attributes, element("strong"), " ", element("span"), " ", element("span"), " ", element("b"));
}

function drawHead(head, name, members) {
  const counts = STATES.filter((health) => health !== "healthy")
    .map((health) => [health, members.filter(([, other]) => other === health).length]).filter(([, count]) => count);
  setText(head, [name, plural(members.length, "worker"), ...counts.map(([health, count]) => `${count} ${health}`)].join(", "));
}

function drawTile(tile, worker, health, size) {
  const [number, owner, activity, letter] = tile.children;
  if (tile.dataset.state !== health) {
    tile.dataset.state = health;
    tile.className = `tile s-${health}`;
    setText(letter, LETTERS[health]);
  }
  const texts = [String(worker.worker), ownerOf(worker), ...(size === "large" ? [activityOf(worker, health)] : [])];
  // contains what is seen, in the same order, as users of voice control say it; the letter is that of the state
  const name = `worker ${texts.join(" ")}, ${health}`;
  if (tile.drawnName !== name) {
    tile.drawnName = name;
    tile.setAttribute("aria-label", name);
    tile.title = name;
    tile.href = linkTo({ pool: state.pool.name, worker: worker.worker });
  }
  if (Number(tile.dataset.worker) === currentRoute().worker) setAttribute(tile, "aria-current", "true");
  if (size === "small") return;
  setText(number, texts[0]);
  if (size === "medium") return;
  setText(owner, texts[1]);
  setText(activity, texts[2]);
  // fades from one heartbeat to the next
  const fresh = health === "healthy" ? (1 - 0.6 * Math.min(1, heartbeatAge(worker) / state.pool.heartbeat_ms)).toFixed(1) : "1";
  if (tile.dataset.fresh !== fresh) {
    tile.dataset.fresh = fresh;
    tile.style.setProperty("--fresh", fresh);
  }
}

function activityOf(worker, health) {
  if (health === "dead") return `died ${durationText(now() - worker.at)} ago`;
  if (health === "unknown") return "unknown";
  return `${compact(worker.ids_per_second)}/s, ${durationText(heartbeatAge(worker))} ago`;
}

// --- keyboard --------------------------------------------------------------------------------------

function focusTile(tile) {
  if (!tile) return;
  $("grid").querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
  tile.setAttribute("tabindex", "0");
  tile.focus();
}

// the tile below (step 1) or above (step -1); the last or first one at the edge
function tileInNextRow(all, tile, step) {
  const here = tile.getBoundingClientRect();
  for (let i = all.indexOf(tile) + step; i >= 0 && i < all.length; i += step) {
    const there = all[i].getBoundingClientRect();
    if (step > 0 ? there.top > here.top && there.left >= here.left : there.top < here.top && there.left <= here.left) return all[i];
  }
  return step > 0 ? all[all.length - 1] : all[0];
}

export function startGrid() {
  $("grid").addEventListener("keydown", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...$("grid").querySelectorAll(".tile")], at = all.indexOf(tile);
    const next = {
      ArrowRight: () => all[at + 1], ArrowLeft: () => all[at - 1],
      ArrowDown: () => tileInNextRow(all, tile, 1), ArrowUp: () => tileInNextRow(all, tile, -1),
      Home: () => all[0], End: () => all[all.length - 1],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    focusTile(next());
  });
  $("grid").addEventListener("focusin", (event) => {
    const tile = event.target.closest(".tile");
    if (tile?.tabIndex === -1) focusTile(tile);
  });
}
