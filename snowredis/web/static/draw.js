// Draws: elements from data, the chart, the bits of an id. Text goes in as text only, never as markup.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const whole = (number) => Math.round(number).toLocaleString("en-US");

export function compact(number) {
  if (number < 10000) return whole(number);
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= size) return (number / size).toFixed(number < 10 * size ? 2 : number < 100 * size ? 1 : 0) + " " + unit;
  }
  return String(number);
}

export function span(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return (s / 3600).toFixed(1) + " h";
  if (s < 63072000) return Math.round(s / 86400) + " days";
  return (s / 31557600).toFixed(1) + " years";
}

export const clockTime = (ms) => new Date(ms).toLocaleTimeString("en-GB");

function niceTop(most) {
  if (most <= 10) return 10;
  const power = 10 ** Math.floor(Math.log10(most));
  for (const step of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (step * power >= most) return step * power;
  return 10 * power;
}

// points: [ms, ids a second, workers used]
export class Chart {
  constructor(place, note, pastMs) {
    this.place = place;
    this.note = note;
    this.pastMs = pastMs;
    this.points = [];
    this.at = null;
    this.place.tabIndex = 0;
    this.place.setAttribute("role", "img");
    place.addEventListener("pointermove", (event) => {
      this.at = event.clientX - place.getBoundingClientRect().left;
      this.draw();
    });
    place.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    place.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -10, ArrowRight: 10 }[event.key];
      if (!by) return;
      event.preventDefault();
      this.at = Math.min(place.clientWidth, Math.max(0, (this.at ?? place.clientWidth) + by));
      this.draw();
    });
    place.addEventListener("blur", () => { this.at = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(place);
  }

  draw() {
    const width = this.place.clientWidth, height = this.place.clientHeight;
    if (!width || !height) return;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const left = 50, right = width - 6, top = 8, bottom = height - 22;
    const last = this.points.length ? this.points[this.points.length - 1][0] : 0;
    // a page that was just opened shows what there is, over two minutes at least
    const first = this.points.length ? this.points[0][0] : 0;
    const range = Math.min(this.pastMs, Math.max(120000, last - first));
    const most = niceTop(Math.max(0, ...this.points.map((point) => point[1])));
    const x = (ms) => right - ((last - ms) / range) * (right - left);
    const y = (rate) => bottom - (rate / most) * (bottom - top);
    for (const part of [0, 0.5, 1]) {
      const at = y(most * part);
      svg.append(shape("line", { class: "rule", x1: left, x2: right, y1: at, y2: at }));
      svg.append(shape("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, compact(most * part)));
    }
    svg.append(shape("text", { x: right, y: height - 4, "text-anchor": "end" }, "now"));
    svg.append(shape("text", { x: left, y: height - 4 }, span(range) + " ago"));
    if (this.points.length) {
      const seen = this.points.filter((point) => last - point[0] <= range);
      const path = seen.map((point, i) => `${i ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
      svg.append(shape("path", { class: "area", d: `${path}L${right} ${bottom}L${x(seen[0][0]).toFixed(1)} ${bottom}Z` }));
      svg.append(shape("path", { class: "line", d: path }));
      const newest = seen[seen.length - 1];
      svg.append(shape("circle", { class: "dot", cx: x(newest[0]), cy: y(newest[1]), r: 4 }));
      const highest = Math.max(...seen.map((point) => point[1]));
      let told = `now ${whole(newest[1])}, highest ${whole(highest)}`;
      if (this.at !== null) {
        const near = seen.reduce((best, point) => Math.abs(x(point[0]) - this.at) < Math.abs(x(best[0]) - this.at) ? point : best);
        svg.append(shape("line", { class: "cross", x1: x(near[0]), x2: x(near[0]), y1: top, y2: bottom }));
        svg.append(shape("circle", { class: "dot", cx: x(near[0]), cy: y(near[1]), r: 4 }));
        told = `${clockTime(near[0])}: ${whole(near[1])} ids a second, ${whole(near[2])} workers`;
      }
      setText(this.note, told);
      this.place.setAttribute("aria-label", `Ids a second over ${span(range)}: ${told}`);
    }
    this.place.replaceChildren(svg);
  }
}

// fields: {name, bits, value} from the highest bit
export function bitsOf(fields) {
  const made = element("div", { class: "bits", role: "img", "aria-label": fields.map((f) => `${f.name} ${f.value}`).join(", ") });
  const total = fields.reduce((sum, field) => sum + field.bits.length, 0);
  for (const field of [{ name: "sign", bits: "0".repeat(64 - total), value: "0" }, ...fields]) {
    const boxes = element("div", { class: "boxes" });
    for (const bit of field.bits) boxes.append(element("b", bit === "1" ? { class: "one" } : {}, bit));
    const name = element("div", { class: "name" }, field.name === "sign" ? "0" : `${field.name} ${field.value}`);
    made.append(element("div", { class: `field c-${field.name}` }, boxes, name));
  }
  return made;
}

// rows: [name, text, monospaced?]
export function list(rows) {
  const made = element("dl");
  for (const [name, text, mono] of rows) {
    if (text === null || text === undefined || text === "") continue;
    made.append(element("dt", {}, name), element("dd", mono ? { class: "mono" } : {}, String(text)));
  }
  return made;
}
