// The chart of ids per second, as SVG.
import { compact, duration, setText, timeOfDay, whole } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// the top of the scale: a round number, *most* or above
function roundUp(most) {
  if (most <= 10) return 10;
  const power = 10 ** Math.floor(Math.log10(most));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= most);
}

// points: [ms, ids per second, leased worker ids]
export class Chart {
  constructor(place, note, pastMs) {
    this.place = place;
    this.note = note;
    this.pastMs = pastMs;
    this.points = [];
    // position of the pointer in pixels
    this.pointerX = null;
    this.place.tabIndex = 0;
    this.place.setAttribute("role", "img");
    place.addEventListener("pointermove", (event) => {
      this.pointerX = event.clientX - place.getBoundingClientRect().left;
      this.draw();
    });
    place.addEventListener("pointerleave", () => { this.pointerX = null; this.draw(); });
    place.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -10, ArrowRight: 10 }[event.key];
      if (!by) return;
      event.preventDefault();
      this.pointerX = Math.min(place.clientWidth, Math.max(0, (this.pointerX ?? place.clientWidth) + by));
      this.draw();
    });
    place.addEventListener("blur", () => { this.pointerX = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(place);
  }

  draw() {
    const width = this.place.clientWidth, height = this.place.clientHeight;
    if (!width || !height) return;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const left = 50, right = width - 6, top = 8, bottom = height - 22;
    const last = this.points.length ? this.points[this.points.length - 1][0] : 0;
    // a new page shows what it has, over at least two minutes
    const first = this.points.length ? this.points[0][0] : 0;
    const range = Math.min(this.pastMs, Math.max(120000, last - first));
    const most = roundUp(Math.max(0, ...this.points.map((point) => point[1])));
    const x = (ms) => right - ((last - ms) / range) * (right - left);
    const y = (rate) => bottom - (rate / most) * (bottom - top);
    for (const part of [0, 0.5, 1]) {
      const lineY = y(most * part);
      svg.append(shape("line", { class: "rule", x1: left, x2: right, y1: lineY, y2: lineY }));
      svg.append(shape("text", { x: left - 8, y: lineY + 4, "text-anchor": "end" }, compact(most * part)));
    }
    svg.append(shape("text", { x: right, y: height - 4, "text-anchor": "end" }, "now"));
    svg.append(shape("text", { x: left, y: height - 4 }, duration(range) + " ago"));
    if (this.points.length) {
      const visible = this.points.filter((point) => last - point[0] <= range);
      const path = visible.map((point, i) => `${i ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
      svg.append(shape("path", { class: "area", d: `${path}L${right} ${bottom}L${x(visible[0][0]).toFixed(1)} ${bottom}Z` }));
      svg.append(shape("path", { class: "line", d: path }));
      const newest = visible[visible.length - 1];
      svg.append(shape("circle", { class: "dot", cx: x(newest[0]), cy: y(newest[1]), r: 4 }));
      const highest = Math.max(...visible.map((point) => point[1]));
      let text = `now ${whole(newest[1])}, highest ${whole(highest)}`;
      if (this.pointerX !== null) {
        const nearest = visible.reduce((best, point) => Math.abs(x(point[0]) - this.pointerX) < Math.abs(x(best[0]) - this.pointerX) ? point : best);
        svg.append(shape("line", { class: "cross", x1: x(nearest[0]), x2: x(nearest[0]), y1: top, y2: bottom }));
        svg.append(shape("circle", { class: "dot", cx: x(nearest[0]), cy: y(nearest[1]), r: 4 }));
        text = `${timeOfDay(nearest[0])}: ${whole(nearest[1])} ids per second, ${whole(nearest[2])} workers`;
      }
      setText(this.note, text);
      this.place.setAttribute("aria-label", `Ids per second over ${duration(range)}: ${text}`);
    }
    this.place.replaceChildren(svg);
  }
}
