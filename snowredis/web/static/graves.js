// Who died or is gone since the last hour, and who is silent. They stay until somebody acknowledges them, for all viewers.
import { requestDraw } from "./draw.js";
import { $, element, plural, replaceIfChanged, setHidden, setText, whole } from "./dom.js";
import { linkTo } from "./route.js";
import { healthOf, LETTERS, now, ownerText, processesIn, state } from "./state.js";
import { durationText, isoText, timeText } from "./times.js";

const KEPT_MS = 3600000;
const shownRows = () => (matchMedia("(max-width: 34rem)").matches ? 3 : 8);

// whether this viewer looks at those that were acknowledged, too; why the last acknowledgement failed
let all = false, failure = "";

// *lease* as the service sent it, with the fields that a worker has, too
export function endedRow(lease) {
  return { ...lease, ended: true, lease_end_at: lease.at, clock_offset_ms: null, namespace: null, clock_backs: null };
}

const recent = () => state.ended.filter((each) => each.silent || now() - each.at < KEPT_MS);
export const shownEnded = () => recent().filter((each) => all || !each.acknowledged);
export const livesText = (silent) => (silent.lasts_until > now() ? `if it lives, it has ids until ${timeText(silent.lasts_until)}` : "it has no ids any more");

async function acknowledge() {
  const until = Math.max(...shownEnded().map((each) => each.at));
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
  const shown = shownEnded(), count = (chosen) => processesIn(shown.filter(chosen));
  const silent = count((each) => each.silent), died = count((each) => each.kind === "reclaimed"), gone = count((each) => !each.silent && each.kind !== "reclaimed");
  const seen = recent().filter((each) => each.acknowledged).length, unseen = recent().length - seen;
  setHidden($("graves"), shown.length === 0 && seen === 0);
  setHidden($("graves-list"), shown.length === 0);
  setHidden($("acknowledge"), unseen === 0);
  setHidden($("show-seen"), seen === 0);
  const counts = [died && `${plural(died, "process", "processes")} died in the last hour`, gone && `${whole(gone)} gone without a release`, silent && `${plural(silent, "silent worker")} without a lease`];
  setText($("graves-title"), counts.filter(Boolean).join(", ") || "Ended without a release in the last hour");
  setText($("show-seen"), all ? "Hide acknowledged" : `Show ${whole(seen)} acknowledged`);
  const more = shown.length - shownRows();
  const notes = [more > 0 ? `and ${whole(more)} more, in the table of workers` : "", failure && `They were not acknowledged: ${failure}`];
  setText($("graves-more"), notes.filter(Boolean).join(". "));
  setHidden($("graves-more"), !notes.some(Boolean));
  replaceIfChanged($("graves-list"), shown.slice(0, shownRows()).map(row));
}

// in steps, so that the list is not drawn anew each second
const agoText = (ms) => (ms < 10000 ? "just now" : `${durationText(Math.floor(ms / 10000) * 10000)} ago`);

function row(lease) {
  const worker = element("a", { href: linkTo({ pool: state.pool.name, worker: lease.worker }) }, `worker ${lease.worker}`);
  const how = lease.kind === "reclaimed" ? "killed or crashed; another process found it dead" : lease.silent ? `no heartbeat any more; ${livesText(lease)}` : "no heartbeat until its reservations had ended; nobody saw its end, and it has no ids";
  const health = healthOf(lease);
  return element("li", {},
    element("i", { class: `s-${health}`, "aria-hidden": "true" }, LETTERS[health]),
    element("span", { class: "what" }, worker, ` ${ownerText(lease) || "no name"}: ${how}`),
    element("time", { datetime: isoText(lease.at) }, `${timeText(lease.at)}, ${agoText(now() - lease.at)}${lease.acknowledged ? ", acknowledged" : ""}`));
}

export function startGraves() {
  $("acknowledge").addEventListener("click", acknowledge);
  $("show-seen").addEventListener("click", () => {
    all = !all;
    requestDraw();
  });
}
