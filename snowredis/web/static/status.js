// The verdict: on top of the page, in the title and in the icon of the tab. The service gives it; where the service does
// not respond, all is unknown.
import { $, element, replaceIfChanged, setAttribute, setHidden, setText } from "./dom.js";
import { now, serviceIsDown, state } from "./state.js";
import { secondsText, timeText } from "./times.js";

// from best to worst, as LEVELS in status.py; with the sign that says it without its color
const SIGNS = { ok: "✓", notice: "i", unknown: "?", warning: "!", critical: "✕" };
const LEVELS = Object.keys(SIGNS);

// {level, headline, conditions: [{code, level, text, advice}]}
export function currentStatus() {
  if (state.refusal) return { level: "unknown", headline: "Unknown: the service refuses live data", conditions: [{ code: "refused", level: "unknown", text: state.refusal, advice: "The page tries again every 3 s" }] };
  if (!state.receivedAtMs && state.downSinceMs === null) return { level: "unknown", headline: "Unknown: waiting for the service", conditions: [] };
  if (serviceIsDown()) return withoutService();
  if (!state.status) return { level: "unknown", headline: "Unknown: nothing was read yet", conditions: [] };
  const conditions = state.status.conditions.map((condition) => ({ ...condition, text: render(condition) }));
  return { level: state.status.level, headline: capitalized(state.status.headline), conditions };
}

function withoutService() {
  const since = state.downSinceMs ?? state.receivedAtMs;
  const text = `the service has not responded since ${timeText(since)}, ${secondsText(Date.now() - since)} ago. Everything below is as it was then`;
  return { level: "unknown", headline: "Unknown: the service does not respond", conditions: [{ code: "service-down", level: "unknown", text, advice: "Check that the service runs; the page tries again every 3 s" }] };
}

// what is the case; in place of {since} and {until} stand times
function render(condition) {
  const timeOr = (ms) => (ms === null ? "an unknown time" : timeText(ms));
  return condition.template.replace("{since}", timeOr(condition.since)).replace("{until}", timeOr(condition.until));
}

// texts of the service end with or without a full stop
const sentence = (text) => `${capitalized(text).replace(/\.$/, "")}.`;
const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// level -> its icon as a data: URL; they are needed most when the service does not respond
const icons = new Map();

export async function startStatus() {
  for (const level of LEVELS) {
    try {
      const response = await fetch(`static/icon-${level}.svg`);
      if (response.ok) icons.set(level, `data:image/svg+xml,${encodeURIComponent(await response.text())}`);
    } catch {
      // the icon stays as it is
    }
  }
}

let announced = "";

export function drawStatus() {
  const status = currentStatus(), banner = $("status");
  setAttribute(banner, "data-level", status.level);
  setAttribute(banner, "data-codes", status.conditions.map(({ code }) => code).join(" "));
  setText($("status-sign"), SIGNS[status.level] ?? "?");
  setText($("status-headline"), status.headline);
  replaceIfChanged($("status-list"), status.conditions.map(conditionRow));
  setHidden($("status-list"), status.conditions.length === 0);
  const pool = state.pool?.name;
  document.title = `${status.level === "ok" ? "" : `${SIGNS[status.level]} `}${status.headline}${pool ? ` · ${pool}` : ""} · snowredis`;
  const icon = icons.get(status.level);
  if (icon && $("icon").getAttribute("href") !== icon) $("icon").href = icon;
  // screen readers hear a change of the verdict, not each second of a countdown or each new worker
  const said = status.level === "ok" ? "No problem" : status.headline;
  const codes = `${status.level} ${status.conditions.map(({ code }) => code).join()}`;
  if (codes !== announced) setText($("status-said"), said);
  announced = codes;
}

function conditionRow({ level, text, advice }) {
  return element("li", { "data-level": level }, element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[level] ?? "?"),
    element("span", {}, `${sentence(text)} `, ...(advice ? [element("span", { class: "note" }, sentence(advice))] : [])));
}
