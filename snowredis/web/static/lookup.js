// The form for one id: its fields, bits and text forms, and the process that made it.
import { $, dateAndTime, definitionList, duration, element } from "./dom.js";
import { urlOf } from "./feed.js";
import { now } from "./state.js";

const message = (text) => element("p", { class: "note said" }, text);
const note = (text) => element("p", { class: "note" }, text);

async function lookUp(path) {
  const text = $("id").value.trim();
  if (!text) return $("id").focus();
  try {
    const response = await fetch(urlOf(`${path}/${encodeURIComponent(text)}`));
    if (response.status === 401) return location.reload();
    const result = await response.json();
    $("answer").replaceChildren(...(response.ok ? resultNodes(result) : [message(result.detail ?? "The request failed.")]));
  } catch {
    $("answer").replaceChildren(message("The service does not respond."));
  }
}

function resultNodes(result) {
  const id = result.decoded ?? result, age = now() - id.timestamp_ms;
  const time = id.time ? `${id.time.replace("T", " ").replace("Z", " UTC")}, ${age >= 0 ? `${duration(age)} ago` : `in ${duration(-age)}`}` : "past the year 9999";
  return [
    ...(result.whois ? makerNodes(result.whois) : []),
    bitDiagram(id.fields),
    definitionList([
      ["id", id.id, true],
      ["read as", id.form === "decimal" ? null : id.form],
      ["time", time],
      ["base62", id.forms.base62, true],
      ["friendly", id.forms.friendly, true],
    ]),
  ];
}

function makerNodes(whois) {
  const certainty = ["certain", "probable", "unknown"].includes(whois.certainty) ? whois.certainty : "unknown";
  const badge = element("span", { class: `certain is-${certainty}` }, certainty), holder = whois.holder;
  const nodes = [element("p", { class: "said" }, badge, holder ? nameOf(holder) : "The process is not known")];
  if (holder) {
    const from = holder.from_ms ? `from ${dateAndTime(holder.from_ms)}` : "from an unknown time";
    const to = holder.held ? "until now" : holder.to_ms ? `to ${dateAndTime(holder.to_ms)}` : "to an unknown time";
    nodes.push(note(`worker ${holder.worker}, ${from} ${to}`));
  }
  return [...nodes, note(whois.reason), ...(whois.candidates ?? []).map((other) => note(`possibly ${nameOf(other)}`))];
}

const nameOf = (holder) => [holder.label, holder.host, holder.pid && `pid ${holder.pid}`].filter(Boolean).join(", ") || "a process without a name";

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

export function startLookup() {
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp("/decode");
  });
  $("do-whois").addEventListener("click", () => lookUp("/whois"));
}
