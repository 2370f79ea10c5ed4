// Times as text, with date and zone, in UTC or in the zone of this browser.
import { $, setText } from "./dom.js";
import { recall, remember } from "./storage.js";

let local = recall("zone") === "local";
const pad = (number, width = 2) => String(number).padStart(width, "0");

// UTC+2, UTC-3:30; of that moment, since summer time changes it
function zoneOf(date) {
  const minutes = local ? -date.getTimezoneOffset() : 0;
  if (!minutes) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${Math.floor(size / 60)}${size % 60 ? ":" + pad(size % 60) : ""}`;
}

function partsOf(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return null;
  // its UTC fields are those of the zone
  const shifted = local ? new Date(ms - date.getTimezoneOffset() * 60000) : date;
  return {
    year: pad(shifted.getUTCFullYear(), 4), day: `${pad(shifted.getUTCMonth() + 1)}-${pad(shifted.getUTCDate())}`,
    minute: `${pad(shifted.getUTCHours())}:${pad(shifted.getUTCMinutes())}`, second: pad(shifted.getUTCSeconds()),
    zone: zoneOf(date),
  };
}

const TIME = /(?:^|_)(?:at|from|until|since|time)$/;

// JSON of the service, with its times as ms since 1970
export function parseJson(text) {
  return JSON.parse(text, (name, value) => (typeof value === "string" && TIME.test(name) ? Date.parse(value) : value));
}

// 2026-11-21 21:47:28 UTC
export function timeText(ms) {
  const parts = partsOf(ms);
  return parts ? `${parts.year}-${parts.day} ${parts.minute}:${parts.second} ${parts.zone}` : "an unknown time";
}

// 21:47 UTC
export function minuteText(ms) {
  const parts = partsOf(ms);
  return parts ? `${parts.minute} ${parts.zone}` : "";
}

export const isoText = (ms) => (Number.isNaN(new Date(ms).getTime()) ? "" : new Date(ms).toISOString());

export function durationText(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return (s / 3600).toFixed(1) + " h";
  if (s < 63072000) return Math.round(s / 86400) + " days";
  return (s / 31557600).toFixed(1) + " years";
}

// seconds without a fraction, for what counts down before the eyes
export const secondsText = (ms) => (ms < 120000 ? `${Math.max(0, Math.ceil(ms / 1000))} s` : durationText(ms));

// the button that switches the zone; onChange is called after it
export function startTimes(onChange) {
  const button = $("zone");
  const draw = () => {
    const name = zoneOf(new Date()), zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    setText(button, local ? `Times: ${name}` : "Times: UTC");
    button.title = local ? `Times are those of this browser, ${zone}. Click for UTC.` : `Times are UTC. Click for those of this browser, ${zone}.`;
    button.setAttribute("aria-pressed", String(local));
  };
  button.addEventListener("click", () => {
    local = !local;
    remember("zone", local ? "local" : "utc");
    draw();
    onChange();
  });
  draw();
}
