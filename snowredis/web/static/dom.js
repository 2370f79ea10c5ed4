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

// does not touch the page if nothing changes
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// rows: [name, text, monospaced?]; rows without text are left out
export function definitionList(rows) {
  const node = element("dl");
  for (const [name, text, mono] of rows) {
    if (text === null || text === undefined || text === "") continue;
    node.append(element("dt", {}, name), element("dd", mono ? { class: "mono" } : {}, String(text)));
  }
  return node;
}

export const whole = (number) => Math.round(number).toLocaleString("en-US");

export function compact(number) {
  if (number < 10000) return whole(number);
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= size) return (number / size).toFixed(number < 10 * size ? 2 : number < 100 * size ? 1 : 0) + " " + unit;
  }
  return String(number);
}

export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return (s / 3600).toFixed(1) + " h";
  if (s < 63072000) return Math.round(s / 86400) + " days";
  return (s / 31557600).toFixed(1) + " years";
}

export const timeOfDay = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const dateAndTime = (ms) => new Date(ms).toLocaleString("en-GB");
