// The deaths of the last hour. They stay until the viewer dismisses them, which this browser remembers.
import { requestDraw } from "./draw.js";
import { $, element, plural, replaceIfChanged, setHidden, setText, whole } from "./dom.js";
import { linkTo } from "./route.js";
import { now, ownerOf, state } from "./state.js";
import { recall, remember } from "./storage.js";
import { durationText, isoText, timeText } from "./times.js";

const KEPT_MS = 3600000;
const shownRows = () => (matchMedia("(max-width: 34rem)").matches ? 3 : 8);

// name of pool and key of a death -> when it was dismissed
let dismissed = new Map(Object.entries(recall("dismissed") ?? {}).filter(([, ms]) => Date.now() - ms < 2 * KEPT_MS));

const nameOf = (death) => `${state.pool?.name} ${death.key}`;

// *death* as the service sent it, with the fields that a worker has, too
export function deathRow(death) {
  return { ...death, death: true, lease_end_at: death.at, clock_offset_ms: null, namespace: null, clock_backs: null };
}

export function shownDeaths() {
  return state.deaths.filter((death) => now() - death.at < KEPT_MS && !dismissed.has(nameOf(death)));
}

function dismiss(deaths) {
  for (const death of deaths) dismissed.set(nameOf(death), Date.now());
  remember("dismissed", Object.fromEntries(dismissed));
  requestDraw();
}

export function drawGraves() {
  const deaths = shownDeaths(), hidden = state.deaths.length - deaths.length;
  setHidden($("graves"), deaths.length === 0 && hidden === 0);
  setHidden($("graves-list"), deaths.length === 0);
  setHidden($("dismiss-all"), deaths.length === 0);
  setHidden($("undismiss"), hidden === 0);
  setText($("graves-title"), deaths.length ? `${plural(deaths.length, "death")} in the last hour` : "Deaths of the last hour");
  setText($("undismiss"), `Show ${whole(hidden)} dismissed`);
  const more = deaths.length - shownRows();
  setHidden($("graves-more"), more <= 0);
  setText($("graves-more"), more > 0 ? `and ${whole(more)} more, in the table of workers` : "");
  replaceIfChanged($("graves-list"), deaths.slice(0, shownRows()).map(row));
}

// in steps, so that the list is not drawn anew each second
const agoText = (ms) => (ms < 10000 ? "just now" : `${durationText(Math.floor(ms / 10000) * 10000)} ago`);

function row(death) {
  const worker = element("a", { href: linkTo({ pool: state.pool.name, worker: death.worker }) }, `worker ${death.worker}`);
  const how = death.kind === "reclaimed" ? "killed; another process released the worker id" : "its lease ended without a release";
  const button = element("button", { type: "button", class: "quiet", "data-key": death.key, "aria-label": `Dismiss the death of worker ${death.worker}` }, "Dismiss");
  const place = [death.host, death.pid && `pid ${death.pid}`].filter(Boolean).join(", ");
  return element("li", {},
    element("i", { class: "s-dead", "aria-hidden": "true" }, "✕"),
    element("span", { class: "what" }, worker, ` ${ownerOf(death)}${death.label && place ? `, ${place}` : ""}: ${how}`),
    element("time", { datetime: isoText(death.at) }, `${timeText(death.at)}, ${agoText(now() - death.at)}`),
    button);
}

export function startGraves() {
  $("graves-list").addEventListener("click", (event) => {
    const key = event.target.closest("button")?.dataset.key;
    if (key !== undefined) dismiss(state.deaths.filter((death) => String(death.key) === key));
  });
  $("dismiss-all").addEventListener("click", () => dismiss(shownDeaths()));
  $("undismiss").addEventListener("click", () => {
    dismissed = new Map();
    remember("dismissed", {});
    requestDraw();
  });
}
