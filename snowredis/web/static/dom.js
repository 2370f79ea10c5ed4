// Elements from data, and numbers as text. Values become text nodes only, never markup.

export const $ = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// these do not touch the page if nothing changes
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

export function replaceIfChanged(node, children) {
  const before = node.childNodes;
  if (before.length === children.length && children.every((child, i) => child.isEqualNode(before[i]))) return;
  node.replaceChildren(...children);
}

// rows: [name, text or node, monospaced?]; rows without a value are left out
export function definitionRows(rows) {
  const nodes = [];
  for (const [name, value, mono] of rows) {
    if (value === null || value === undefined || value === "") continue;
    nodes.push(element("dt", {}, name), element("dd", mono ? { class: "mono" } : {}, value instanceof Node ? value : String(value)));
  }
  return nodes;
}

export const whole = (number) => Math.round(number).toLocaleString("en-US");
export const plural = (count, noun, several = `${noun}s`) => `${whole(count)} ${count === 1 ? noun : several}`;

export function compact(number) {
  if (number < 10000) return whole(number);
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= size) return (number / size).toFixed(number < 10 * size ? 2 : number < 100 * size ? 1 : 0) + " " + unit;
  }
  return String(number);
}
