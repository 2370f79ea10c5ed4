// The form for one id: its fields, bits and text forms, and the process that made it.
import { copyable } from "./copy.js";
import { $, definitionRows, element } from "./dom.js";
import { goTo, linkTo } from "./route.js";
import { now, ownerText } from "./state.js";
import { durationText, isoText, parseJson, timeText } from "./times.js";

const message = (text) => element("p", { class: "note said" }, text);
const note = (...children) => element("p", { class: "note" }, ...children);

// what is shown: pool, path and result, so that it can be drawn again in another zone
let current = null;

async function lookUp(pool, path) {
  const text = $("id").value.trim();
  if (!text) return $("id").focus();
  try {
    const response = await fetch(`${path}/${encodeURIComponent(text)}?pool=${encodeURIComponent(pool)}`);
    if (response.status === 401) return location.reload();
    current = { pool, ok: response.ok, result: parseJson(await response.text()) };
  } catch {
    current = { pool, ok: false, result: { detail: "The service does not respond." } };
  }
  drawAnswer();
}

export function drawAnswer() {
  if (!current) return;
  const { ok, result, pool } = current;
  $("answer").replaceChildren(...(ok ? resultNodes(result, pool) : [message(result.detail ?? "The request failed.")]));
}

function resultNodes(result, pool) {
  const id = result.decoded ?? result, age = now() - id.time;
  const time = id.time ? element("time", { datetime: isoText(id.time) }, `${timeText(id.time)}, ${id.time % 1000} ms, ${age >= 0 ? `${durationText(age)} ago` : `in ${durationText(-age)}`}`) : "past the year 9999";
  const worker = element("a", { href: linkTo({ pool, worker: id.worker }) }, `worker ${id.worker}`);
  return [
    ...(result.whois ? makerNodes(result.whois, pool) : []),
    bitDiagram(id.fields),
    element("dl", {}, ...definitionRows([
      ["id", copyable(id.id, "the id")],
      ["read as", id.form === "decimal" ? null : id.form],
      ["time", time],
      ["worker id", worker],
      ["base62", copyable(id.forms.base62, "the base62 form")],
      ["friendly", id.forms.friendly && copyable(id.forms.friendly, "the friendly form")],
    ])),
  ];
}

function makerNodes(whois, pool) {
  const certainty = ["certain", "probable", "unknown"].includes(whois.certainty) ? whois.certainty : "unknown";
  const badge = element("span", { class: `certain is-${certainty}` }, certainty), holder = whois.holder;
  const nodes = [element("p", { class: "said" }, badge, holder ? nameOf(holder) : "The process is not known")];
  if (holder) {
    const from = holder.claimed_at ? `from ${timeText(holder.claimed_at)}` : "from an unknown time";
    const to = holder.held ? "until now" : holder.ended_at ? `to ${timeText(holder.ended_at)}` : "to an unknown time";
    nodes.push(note(element("a", { href: linkTo({ pool, worker: holder.worker }) }, `worker ${holder.worker}`), `, ${from} ${to}`));
  }
  return [...nodes, note(whois.reason), ...(whois.candidates ?? []).map((other) => note(`possibly ${nameOf(other)}`))];
}

const nameOf = (holder) => ownerText(holder) || "a process without a name";

// fields: {name, bits, value} from the highest bit
function bitDiagram(fields) {
  const diagram = element("div", { class: "bits", role: "img", "aria-label": fields.map((f) => `${f.name} ${f.value}`).join(", ") });
  const total = fields.reduce((sum, field) => sum + field.bits.length, 0);
  for (const field of [{ name: "sign", bits: "0".repeat(64 - total), value: "0" }, ...fields]) {
    const digits = element("div", { class: "digits" }, ...[...field.bits].map((bit) => element("b", bit === "1" ? { class: "one" } : {}, bit)));
    const name = element("div", { class: "name" }, field.name === "sign" ? "0" : `${field.name} ${field.value}`);
    diagram.append(element("div", { class: `field c-${field.name}` }, digits, name));
  }
  return diagram;
}

// from a link: the id's fields and the process that made it
export function showId(pool, text) {
  $("id").value = text;
  lookUp(pool, "whois");
}

// *poolName* returns the name of the pool that the page shows
export function startLookup(poolName) {
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp(poolName(), "decode");
  });
  // the link of the answer can be copied from the browser
  $("do-whois").addEventListener("click", () => {
    const target = { pool: poolName(), id: $("id").value.trim() };
    if (!target.id || location.hash === linkTo(target)) lookUp(target.pool, "whois");
    else goTo(target);
  });
}
