// Which workers are shown, in the grid and in the table alike: chips of states, a text, groups.
import { requestDraw } from "./draw.js";
import { $, element, setAttribute, setText, whole } from "./dom.js";
import { shownEnded } from "./graves.js";
import { healthOf, LETTERS, OWNER, state, STATES } from "./state.js";

// empty: all
const states = new Set();
const chips = new Map();

export const itemKey = (worker) => (worker.ended ? `d${worker.key}` : String(worker.worker));
export const grouping = () => $("group").value;

// workers and ended leases that match the text, by worker id; an ended lease comes after the worker that has its worker id now
function matchingItems() {
  const text = $("filter").value.trim().toLowerCase();
  const items = [...state.workers.values(), ...shownEnded()];
  const matches = (worker) => [...OWNER.map(([name]) => worker[name]), worker.worker].some((field) => String(field).toLowerCase().includes(text));
  const shown = text ? items.filter(matches) : items;
  return shown.sort((a, b) => a.worker - b.worker || Boolean(a.ended) - Boolean(b.ended));
}

// [worker, state] of those to be shown, by worker id
export function selectedItems() {
  const items = matchingItems().map((worker) => [worker, healthOf(worker)]);
  drawChips(items);
  return states.size ? items.filter(([, health]) => states.has(health)) : items;
}

export const isFiltered = () => states.size > 0 || $("filter").value.trim() !== "";

export function groupOf(worker) {
  return (grouping() === "host" ? worker.host : worker.label) || "no name";
}

function drawChips(items) {
  const counts = Object.fromEntries(STATES.map((health) => [health, 0]));
  for (const [, health] of items) counts[health] += 1;
  for (const [health, chip] of chips) {
    setText(chip.lastChild, whole(counts[health]));
    setAttribute(chip, "aria-pressed", states.has(health));
    chip.classList.toggle("none", counts[health] === 0 && !states.has(health));
  }
}

export function showOnly(...healths) {
  states.clear();
  for (const health of healths) states.add(health);
  requestDraw();
}

export function clearSelection() {
  $("filter").value = "";
  showOnly();
}

export function startSelection() {
  for (const health of STATES) {
    const letter = element("i", { class: `s-${health}`, "aria-hidden": "true" }, LETTERS[health]);
    const chip = element("button", { type: "button", class: "chip", "data-state": health, "aria-pressed": "false" }, letter, `${health} `, element("b", {}, "0"));
    chip.addEventListener("click", () => {
      if (!states.delete(health)) states.add(health);
      requestDraw();
    });
    chips.set(health, chip);
    $("chips").append(chip);
  }
  $("filter").addEventListener("input", requestDraw);
  $("group").addEventListener("change", requestDraw);
}
