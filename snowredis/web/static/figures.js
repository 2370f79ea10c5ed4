// The large figures on top, and the list of the pool's settings and counters.
import { $, compact, dateAndTime, definitionList, duration, setText, whole } from "./dom.js";
import { healthOf, now, state } from "./state.js";

export function drawFigures() {
  const pool = state.pool;
  if (!pool) {
    $("empty").hidden = false;
    return setText($("empty"), "No data of this pool yet.");
  }
  const alive = [...state.workers.values()].filter((worker) => !worker.goneAt);
  drawWorkers(alive);
  drawUse(pool);
  const end = Number(pool.layout_end_ms), year = new Date(end).getUTCFullYear();
  setText($("f-end"), year > 9999 || Number.isNaN(year) ? "past 9999" : String(year));
  setText($("f-end-note"), `${duration(end - now())} from now`);
  drawPool(pool);
  $("empty").hidden = alive.length > 0 || state.workers.size > 0;
  setText($("empty"), "No worker is alive. A process appears here when it makes its first id in this pool.");
}

function drawWorkers(alive) {
  // the last rate of a silent worker is out of date
  const rate = alive.reduce((sum, worker) => sum + (healthOf(worker) === "healthy" ? worker.ids_per_second : 0), 0);
  setText($("f-rate"), compact(rate));
  setText($("f-rate-note"), `${compact(alive.reduce((sum, worker) => sum + worker.ids_made, 0))} made by living workers`);
  setText($("f-alive"), whole(alive.length));
  const count = (health) => alive.filter((worker) => healthOf(worker) === health).length;
  const late = count("late"), suspect = count("suspect");
  setText($("f-alive-note"), late || suspect ? `${late} late, ${suspect} suspect` : alive.length ? "all healthy" : "");
}

function drawUse(pool) {
  const share = pool.capacity ? pool.used / pool.capacity : 0;
  setText($("f-used"), share && share < 0.1 ? `${(share * 100).toFixed(1)} %` : `${Math.round(share * 100)} %`);
  setText($("f-used-note"), `${whole(pool.used)} of ${whole(pool.capacity)}, peak ${whole(pool.peak)}`);
  const meter = $("meter");
  meter.classList.toggle("full", share > 0.9);
  meter.setAttribute("aria-valuemax", pool.capacity);
  meter.setAttribute("aria-valuenow", pool.used);
  $("meter-used").style.width = `${share * 100}%`;
  $("meter-used").hidden = !pool.used;
  $("meter-peak").hidden = !pool.peak;
  $("meter-peak").style.left = `min(calc(100% - 2px), ${(pool.peak / Math.max(1, pool.capacity)) * 100}%)`;
}

function drawPool(pool) {
  const floorMs = pool.floor_ms - pool.now_ms, settings = pool.settings ?? {}, forecast = pool.forecast;
  const node = definitionList([
    ["layout", pool.layout, true],
    ["lease", `${duration(Number(settings.ttl_ms))}, clocks may run ahead by ${duration(Number(settings.max_clock_lead_ms))}`],
    ["new workers", floorMs > 0 ? `wait ${duration(floorMs)} for the floor` : "do not wait"],
    ["counters", `${whole(pool.claims)} claims, ${whole(pool.releases)} releases, ${whole(pool.expired)} expired, ${whole(pool.adopted)} adopted, ${whole(pool.lost)} lost`],
    ["growth", forecast?.used_up_ms ? `full on ${new Date(forecast.used_up_ms).toLocaleDateString("en-GB")} if it continues like this` : forecast?.reason],
    ["alarms", pool.alarms ? `${whole(pool.alarms)}, the last: ${pool.alarm}` : "none"],
    ["created", pool.created_ms ? dateAndTime(pool.created_ms) : null],
    ["incarnation", pool.incarnation, true],
    ["version", whole(pool.version)],
  ]);
  if ($("state").textContent !== node.textContent) $("state").replaceChildren(...node.childNodes);
}
