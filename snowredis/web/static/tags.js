// The tags of the service's other kinds: state, consumption and when the range ends. /kinds is asked every few seconds; the
// section is there only if the service has kinds.
import { copyable } from "./copy.js";
import { $, compact, element, setAttribute, setHidden, setText } from "./dom.js";
import { serviceIsDown } from "./state.js";
import { SIGNS } from "./status.js";
import { durationText } from "./times.js";

const EVERY_MS = 1500, IDLE_EVERY_MS = 60000, YEARS_MS = 100 * 31557600000;
const FIGURES = [
  ["Next number", ({ tag_state: tag }) => digits(tag.next_number)],
  ["Numbers a second", ({ tag_state: tag }) => (tag.rate === null ? null : rateText(tag.rate))],
  ["Remaining", ({ tag_state: tag }) => amount(tag.remaining)],
  ["Used up in", ({ tag_state: tag }) => endText(tag)],
  ["Step", ({ status }) => (status ? amount(status.step) : "not used yet")],
  ["At hand", ({ status }) => (status ? amount(status.left) : "0")],
  ["Prefetch hits", ({ status }) => amount(status?.counts.prefetch_hits ?? 0)],
  ["Waits", ({ status }) => (status ? `${amount(status.counts.waits)}${status.counts.waits ? `, longest ${waitText(status.counts.longest_wait_s)}` : ""}` : "0")],
];

let kinds = [], askedAt = 0, asking = false, failed = false, announced = "";
// name -> its node with its parts
const rows = new Map();

// ints that a browser cannot hold come as strings
const digits = (value) => (/^\d{1,20}$/.test(String(value)) ? BigInt(value).toLocaleString("en-US") : null);
const amount = (value) => (value === null || value === undefined ? null : Number(value) >= 1e15 ? "no end in practice" : compact(Number(value)));
const rateText = (rate) => (rate >= 10 || rate === 0 ? compact(rate) : rate >= 0.01 ? rate.toFixed(2) : "below 0.01");

const waitText = (s) => (s < 1 ? `${Math.ceil(s * 1000)} ms` : durationText(s * 1000));

function endText(tag) {
  if (tag.state === "used up") return "now";
  if (tag.remaining === null) return null;
  if (tag.used_up_in_s === null) return tag.rate === 0 ? "never, at this rate" : null;
  const ms = tag.used_up_in_s * 1000;
  return ms > YEARS_MS ? "over 100 years" : durationText(ms);
}

async function ask() {
  asking = true;
  askedAt = Date.now();
  try {
    const response = await fetch("kinds");
    failed = !response.ok;
    if (response.ok) kinds = (await response.json()).kinds;
  } catch {
    failed = true;
  }
  asking = false;
  draw();
}

export function drawTags() {
  if (document.hidden) return;
  if (!asking && Date.now() - askedAt > (kinds.length || failed ? EVERY_MS : IDLE_EVERY_MS)) ask();
  draw();
}

function draw() {
  setHidden($("tags"), kinds.length === 0);
  if (!kinds.length) return;
  const tagged = kinds.filter((kind) => kind.tag_state), stale = failed || serviceIsDown();
  for (const [name, row] of rows) {
    if (tagged.some((kind) => nameOf(kind) === name)) continue;
    row.node.remove();
    rows.delete(name);
  }
  for (const kind of tagged) drawRow(kind, stale);
  const others = kinds.filter((kind) => !kind.tag_state).map((kind) => nameOf(kind));
  setText($("tags-others"), others.length ? `Also served: ${others.join(", ")}.` : "");
  announce(tagged, stale);
}

const nameOf = ({ kind, tag }) => (tag ? `${kind}:${tag}` : kind);

function drawRow(kind, stale) {
  const row = rows.get(nameOf(kind)) ?? newRow(kind), { tag_state: tag } = kind;
  const level = stale ? "unknown" : tag.level;
  setAttribute(row.state, "data-level", level);
  setText(row.sign, SIGNS[level] ?? "?");
  setText(row.name, stale ? "unknown" : tag.state);
  setText(row.text, stale ? `the service does not respond; it was ${tag.state} when it was last known.` : tag.text);
  // stale: a command is of use when the state is known
  const commands = stale ? [] : tag.commands, key = commands.join("\n");
  if (row.key !== key) {
    row.key = key;
    row.commands.replaceChildren(...commands.map((command) => element("li", {}, copyable(command, `the command ${command}`))));
  }
  setHidden(row.commands, !commands.length);
  FIGURES.forEach(([, text], i) => {
    const value = stale ? null : text(kind);
    setText(row.figures[i], value ?? "unknown");
    row.figures[i].classList.toggle("unknown", value === null);
  });
}

function newRow(kind) {
  const sign = element("span", { class: "sign", "aria-hidden": "true" }), name = element("strong"), text = element("span", { class: "note" });
  const state = element("p", { class: "tag-state" }, sign, element("span", {}, name, ": ", text));
  const figures = FIGURES.map(() => element("dd"));
  const list = element("dl", {}, ...FIGURES.map(([title], i) => element("div", {}, element("dt", {}, title), figures[i])));
  const commands = element("ul", { class: "commands" });
  const head = element("h3", {}, kind.tag || "default", ...(kind.kind === "segment" ? [] : [` (${kind.kind})`]));
  const node = element("li", { "data-tag": kind.tag }, head, state, commands, list);
  const row = { node, state, sign, name, text, commands, figures, key: "" };
  rows.set(nameOf(kind), row);
  $("tags-list").append(node);
  return row;
}

// screen readers hear which tags do not hand out numbers, when that changes
function announce(tagged, stale) {
  const said = stale ? "" : tagged.filter(({ tag_state: { level } }) => level !== "ok").map((kind) => `${nameOf(kind)} is ${kind.tag_state.state}`).join("; ");
  if (said !== announced && !stale) setText($("tags-said"), said || "All tags are open");
  if (!stale) announced = said;
}
