// Elements from data, and numbers and times as text. Values become text nodes only, never markup.

export const $ = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// in the namespace of SVG
export function shape(name, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

// these do not touch the page if nothing changes
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

// node by node, so that focus and selection stay where nothing changes
export function replaceIfChanged(node, children) {
  children.forEach((child, i) => {
    const before = node.childNodes[i];
    if (!before) node.append(child);
    else if (!before.isEqualNode(child)) before.replaceWith(child);
  });
  while (node.childNodes.length > children.length) node.lastChild.remove();
}

// rows: [name, text or node]; rows without a value are left out
export const definitionRows = (rows) => rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value instanceof Node ? value : String(value))]);

// *what* is named for screen readers: "the id"
export const copyable = (text, what) => element("span", {}, element("span", { class: "mono" }, text),
  element("button", { type: "button", class: "copy", "data-copy": text, "aria-label": `Copy ${what}` }, "copy"));

export function startCopying() {
  addEventListener("click", async ({ target }) => {
    if (target.dataset?.copy === undefined) return;
    // browsers have no clipboard for pages over plain HTTP from another host: there the text is selected
    await navigator.clipboard?.writeText(target.dataset.copy).catch(() => {});
    if (target.previousSibling) getSelection().selectAllChildren(target.previousSibling);
  });
}

export const whole = (number) => Math.round(number).toLocaleString("en-US");
export const plural = (count, noun, several = `${noun}s`) => `${whole(count)} ${count === 1 ? noun : several}`;
export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function compact(number) {
  const [size, unit] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([size]) => number >= size) ?? [1, ""];
  if (number < 10000) return whole(number);
  return `${(number / size).toFixed(number < 10 * size ? 2 : number < 100 * size ? 1 : 0)} ${unit}`;
}

const TIME = /(?:^|_)(?:at|from|until|since|time)$/;

// JSON of the service, with its times as ms since 1970
export const parseJson = (text) => JSON.parse(text, (name, value) => (typeof value === "string" && TIME.test(name) ? Date.parse(value) : value));

const isTime = (ms) => typeof ms === "number" && !Number.isNaN(new Date(ms).getTime());

// 2026-11-21 21:47:28 UTC
export const timeText = (ms) => (isTime(ms) ? `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : "an unknown time");

// the same as an element that says the time of this browser, too
export const timeNode = (ms, text = timeText(ms)) => element("time", isTime(ms) ? { datetime: new Date(ms).toISOString(), title: new Date(ms).toString() } : {}, text);

export function durationText(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return (s / 3600).toFixed(1) + " h";
  if (s < 63072000) return Math.round(s / 86400) + " days";
  return (s / 31557600).toFixed(1) + " years";
}
