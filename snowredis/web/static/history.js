// Which past the chart shows: ten minutes as they come in; an hour or a day as the service kept them, a point a minute.
import { Chart } from "./chart.js";
import { $, setAttribute } from "./dom.js";
import { PAST_MS } from "./feed.js";
import { now, state } from "./state.js";
import { parseJson } from "./times.js";

const RANGES = { "10m": PAST_MS, "1h": 3600000, "24h": 86400000 };
// readings come every 1 to 5 s; points of the history every minute
const LIVE_STEP_MS = 15000, HISTORY_STEP_MS = 150000, AGAIN_MS = 60000;
// a new page shows what it has, over at least two minutes
const MIN_RANGE_MS = 120000;

let range = "10m", points = [], fetchedAt = 0, chart;

async function fetchHistory() {
  const pool = state.pool?.name;
  if (!pool) return;
  fetchedAt = Date.now();
  try {
    const response = await fetch(`history?pool=${encodeURIComponent(pool)}`);
    if (response.ok && state.pool?.name === pool) points = parseJson(await response.text()).points.map((point) => [point.at, point.ids_per_second, point.living, point.deaths]);
  } catch {
    // the chart shows the gap
  }
  drawHistory();
}

export function drawHistory() {
  const toMs = now();
  if (range === "10m") {
    const first = state.points[0]?.[0] ?? toMs, past = Math.min(RANGES[range], Math.max(MIN_RANGE_MS, toMs - first));
    chart.show({ points: state.points, deaths: state.ended.filter((each) => !each.silent).map((each) => each.at), fromMs: toMs - past, toMs, maxStepMs: LIVE_STEP_MS });
    return;
  }
  if (Date.now() - fetchedAt > AGAIN_MS) fetchHistory();
  const deaths = points.filter(([, , , died]) => died).flatMap(([ms, , , died]) => Array(died).fill(ms));
  chart.show({ points, deaths, fromMs: toMs - RANGES[range], toMs, maxStepMs: HISTORY_STEP_MS });
}

export function resetHistory() {
  points = [];
  fetchedAt = 0;
}

export function startHistory() {
  chart = new Chart($("chart"), $("chart-note"));
  for (const button of document.querySelectorAll("#ranges button")) {
    button.addEventListener("click", () => {
      range = button.value;
      for (const other of document.querySelectorAll("#ranges button")) setAttribute(other, "aria-pressed", other === button);
      drawHistory();
    });
  }
}
