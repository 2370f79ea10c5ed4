// A chart of ids per second, as SVG, with gaps where nothing was read, and a mark for each death.
import { compact, plural, replaceIfChanged, setText, whole } from "./dom.js";
import { durationText, minuteText, timeText } from "./times.js";

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

// points: [ms, ids per second, workers], null where nothing was read; runs of points without a gap
export function runsOf(points, maxStepMs) {
  const runs = [];
  let run = null;
  for (const point of points) {
    if (point[1] === null) run = null;
    else if (run && point[0] - run[run.length - 1][0] <= maxStepMs) run.push(point);
    else runs.push(run = [point]);
  }
  return runs;
}

// a path for each run; a single point becomes a dot of its own
function lines(runs, x, y) {
  return runs.map((run) => run.map((point, i) => `${i ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("") + (run.length === 1 ? "h1" : "")).join("");
}

export class Chart {
  constructor(place, note) {
    this.place = place;
    this.note = note;
    this.data = { points: [], deaths: [], fromMs: 0, toMs: 0, maxStepMs: 0 };
    // position of the pointer in pixels
    this.pointerX = null;
    place.tabIndex = 0;
    place.setAttribute("role", "img");
    const move = (x) => { this.pointerX = x; this.draw(); };
    place.addEventListener("pointermove", (event) => move(event.clientX - place.getBoundingClientRect().left));
    place.addEventListener("pointerleave", () => move(null));
    place.addEventListener("blur", () => move(null));
    place.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -10, ArrowRight: 10 }[event.key];
      if (!by) return;
      event.preventDefault();
      move(Math.min(place.clientWidth, Math.max(0, (this.pointerX ?? place.clientWidth) + by)));
    });
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // deaths: times in ms; a step between two points above maxStepMs is a gap
  show(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const { points, deaths, fromMs, toMs, maxStepMs } = this.data;
    const width = this.place.clientWidth, height = this.place.clientHeight;
    if (!width || !height || toMs <= fromMs) return;
    const left = 50, right = width - 6, top = 12, bottom = height - 22;
    const visible = points.filter((point) => point[0] >= fromMs && point[0] <= toMs + 5000), known = visible.filter((point) => point[1] !== null);
    const most = roundUp(Math.max(0, ...known.map((point) => point[1])));
    const x = (ms) => Math.min(right, right - ((toMs - ms) / (toMs - fromMs)) * (right - left));
    const y = (rate) => bottom - (rate / most) * (bottom - top);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const part of [0, 0.5, 1]) {
      const lineY = y(most * part);
      svg.append(shape("line", { class: "rule", x1: left, x2: right, y1: lineY, y2: lineY }));
      svg.append(shape("text", { x: left - 8, y: lineY + 4, "text-anchor": "end" }, compact(most * part)));
    }
    for (const part of width > 520 ? [0, 1 / 3, 2 / 3, 1] : [0, 1]) {
      const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
      svg.append(shape("text", { x: left + part * (right - left), y: height - 4, "text-anchor": anchor }, minuteText(fromMs + part * (toMs - fromMs))));
    }
    const runs = runsOf(visible, maxStepMs);
    for (const run of runs) svg.append(shape("path", { class: "area", d: `${lines([run], x, y)}L${x(run[run.length - 1][0]).toFixed(1)} ${bottom}L${x(run[0][0]).toFixed(1)} ${bottom}Z` }));
    svg.append(shape("path", { class: "line", d: lines(runs, x, y) }));
    const shownDeaths = deaths.filter((ms) => ms >= fromMs && ms <= toMs);
    for (const place of new Set(shownDeaths.map((ms) => Math.round(x(ms) / 6) * 6))) svg.append(shape("path", { class: "death", d: `M${place - 3} ${top - 7}l6 6m0 -6l-6 6` }));
    setText(this.note, this.describe(svg, { visible, known, x, y, top, bottom, deaths: shownDeaths.length }));
    this.place.setAttribute("aria-label", `Ids per second over ${durationText(toMs - fromMs)}: ${this.note.textContent}`);
    replaceIfChanged(this.place, [svg]);
  }

  // the line of text below; adds the cross at the pointer
  describe(svg, { visible, known, x, y, top, bottom, deaths }) {
    if (!visible.length) return "Nothing was read in this time.";
    const last = visible[visible.length - 1], current = last[1] === null || this.data.toMs - last[0] > this.data.maxStepMs ? "unknown" : whole(last[1]);
    const died = deaths ? `, ${plural(deaths, "death")} (✕)` : "";
    if (this.pointerX === null) return `now ${current}, highest ${known.length ? whole(Math.max(...known.map((point) => point[1]))) : "unknown"}${died}`;
    const nearest = visible.reduce((best, point) => (Math.abs(x(point[0]) - this.pointerX) < Math.abs(x(best[0]) - this.pointerX) ? point : best));
    svg.append(shape("line", { class: "cross", x1: x(nearest[0]), x2: x(nearest[0]), y1: top, y2: bottom }));
    if (nearest[1] === null) return `${timeText(nearest[0])}: unknown, nothing could be read`;
    svg.append(shape("circle", { class: "dot", cx: x(nearest[0]), cy: y(nearest[1]), r: 4 }));
    return `${timeText(nearest[0])}: ${whole(nearest[1])} ids per second, ${plural(nearest[2] ?? 0, "worker")}`;
  }
}
