// Entry point of the dashboard: connects the feed with everything that draws.
import { Chart } from "./chart.js";
import { $, element, timeOfDay } from "./dom.js";
import { Feed, PAST_MS, poolNames, urlOf } from "./feed.js";
import { drawFigures } from "./figures.js";
import { startLookup } from "./lookup.js";
import { state } from "./state.js";
import { drawGrid, drawTable, resetWorkers, startWorkers } from "./workers.js";

// how long a worker that is gone stays on the page
const GONE_MS = 20000;
// kinds of events that are shown with their text
const WITH_TEXT = new Set(["lost", "floor", "alarm"]);

const chart = new Chart($("chart"), $("chart-note"), PAST_MS);
const feed = new Feed(chart, ({ events, complete }) => {
  if (events || complete) drawEvents();
  drawAll();
});

function drawAll() {
  for (const [number, worker] of state.workers) {
    if (worker.goneAt && Date.now() - worker.goneAt > GONE_MS) state.workers.delete(number);
  }
  drawFigures();
  drawGrid();
  drawTable();
  chart.draw();
}

function drawEvents() {
  const rows = [...state.events].reverse().map((event) => {
    const subject = event.worker >= 0 ? `worker ${event.worker}` : "the pool";
    const owner = [event.label, event.host && `${event.host} ${event.pid}`].filter(Boolean).join(", ");
    const text = WITH_TEXT.has(event.kind) && event.text ? `: ${event.text}` : "";
    return element("li", {},
      element("time", { datetime: new Date(event.at_ms).toISOString() }, timeOfDay(event.at_ms)),
      element("span", { class: `kind k-${/^[a-z-]+$/.test(event.kind) ? event.kind : ""}` }, event.kind),
      element("span", { class: "what" }, subject + (owner && `, ${owner}`) + text));
  });
  if (!rows.length) rows.push(element("li", {}, element("span", { class: "note" }, "none yet")));
  $("events").replaceChildren(...rows);
}

function openPool() {
  resetWorkers();
  feed.open();
}

async function start() {
  drawEvents();
  const names = await poolNames();
  const wanted = new URLSearchParams(location.search).get("pool");
  $("pool").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(wanted)) $("pool").value = wanted;
  openPool();
}

$("pool").addEventListener("change", () => {
  history.replaceState(null, "", urlOf("/"));
  openPool();
});
// ages grow also without a message
setInterval(() => {
  if (document.hidden) return;
  drawAll();
  feed.checkSilence();
}, 1000);
startWorkers();
startLookup();
start();
