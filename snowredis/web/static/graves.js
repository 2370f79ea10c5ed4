// The deaths of the last hour. They stay until somebody acknowledges them, which the service stores for all viewers.
import { requestDraw } from "./draw.js";
import { $, element, plural, replaceIfChanged, setHidden, setText, whole } from "./dom.js";
import { linkTo } from "./route.js";
import { now, ownerOf, state } from "./state.js";
import { durationText, isoText, timeText } from "./times.js";

const KEPT_MS = 3600000;
const shownRows = () => (matchMedia("(max-width: 34rem)").matches ? 3 : 8);

// whether this viewer looks at those that were acknowledged, too; why the last acknowledgement failed
let all = false, failure = "";

// *death* as the service sent it, with the fields that a worker has, too
export function deathRow(death) {
  return { ...death, death: true, lease_end_at: death.at, clock_offset_ms: null, namespace: null, clock_backs: null };
}

const recent = () => state.deaths.filter((death) => now() - death.at < KEPT_MS);
export const shownDeaths = () => recent().filter((death) => all || !death.acknowledged);

async function acknowledge() {
  const until = Math.max(...shownDeaths().map((death) => death.at));
  const query = new URLSearchParams({ pool: state.pool.name, until: new Date(until).toISOString() });
  try {
    const response = await fetch(`acknowledge?${query}`, { method: "POST" });
    if (response.status === 401) location.reload();
    failure = response.ok ? "" : String((await response.json()).detail);
  } catch {
    failure = "the service does not respond";
  }
  requestDraw();
}

export function drawGraves() {
  const deaths = shownDeaths(), seen = recent().filter((death) => death.acknowledged).length, unseen = recent().length - seen;
  setHidden($("graves"), deaths.length === 0 && seen === 0);
  setHidden($("graves-list"), deaths.length === 0);
  setHidden($("acknowledge"), unseen === 0);
  setHidden($("show-seen"), seen === 0);
  setText($("graves-title"), deaths.length ? `${plural(deaths.length, "death")} in the last hour` : "Deaths of the last hour");
  setText($("show-seen"), all ? "Hide acknowledged" : `Show ${whole(seen)} acknowledged`);
  const more = deaths.length - shownRows();
  const notes = [more > 0 ? `and ${whole(more)} more, in the table of workers` : "", failure && `They were not acknowledged: ${failure}`];
  setText($("graves-more"), notes.filter(Boolean).join(". "));
  setHidden($("graves-more"), !notes.some(Boolean));
  replaceIfChanged($("graves-list"), deaths.slice(0, shownRows()).map(row));
}

// in steps, so that the list is not drawn anew each second
const agoText = (ms) => (ms < 10000 ? "just now" : `${durationText(Math.floor(ms / 10000) * 10000)} ago`);

function row(death) {
  const worker = element("a", { href: linkTo({ pool: state.pool.name, worker: death.worker }) }, `worker ${death.worker}`);
  const how = death.kind === "reclaimed" ? "killed; another process released the worker id" : "its lease ended without a release";
  const place = [death.host, death.pid && `pid ${death.pid}`].filter(Boolean).join(", ");
  return element("li", {},
    element("i", { class: "s-dead", "aria-hidden": "true" }, "✕"),
    element("span", { class: "what" }, worker, ` ${ownerOf(death)}${death.label && place ? `, ${place}` : ""}: ${how}`),
    element("time", { datetime: isoText(death.at) }, `${timeText(death.at)}, ${agoText(now() - death.at)}${death.acknowledged ? ", acknowledged" : ""}`));
}

export function startGraves() {
  $("acknowledge").addEventListener("click", acknowledge);
  $("show-seen").addEventListener("click", () => {
    all = !all;
    requestDraw();
  });
}
