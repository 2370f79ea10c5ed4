// The form for one id: its fields, bits and text forms, and the process that made it.
import { $, copyable, definitionRows, durationText, element, parseJson, timeNode, timeText } from "./dom.js";
import { get, linkTo, now, ownerText, state } from "./state.js";

const note = (...children) => element("p", { class: "note" }, ...children);

// the path and the text that were asked for last
let asked = "";

async function lookUp(path) {
  const text = $("id").value.trim();
  asked = `${path} ${text}`;
  if (!text) return $("id").focus();
  try {
    const response = await get(`${path}/${encodeURIComponent(text)}`, { pool: state.pool });
    $("answer").replaceChildren(...resultNodes(parseJson(await response.text())));
  } catch (failure) {
    $("answer").replaceChildren(element("p", { class: "said" }, failure.text ?? String(failure)));
  }
}

function resultNodes(result) {
  const id = result.decoded ?? result, age = now() - id.time;
  const when = id.time ? timeNode(id.time, `${timeText(id.time)}, ${id.time % 1000} ms, ${age >= 0 ? `${durationText(age)} ago` : `in ${durationText(-age)}`}`) : "past the year 9999";
  const rows = [
    ["id", copyable(id.id, "the id")],
    ["read as", id.form === "decimal" ? "" : id.form],
    ["time", when],
    ["worker id", element("a", { href: linkTo("worker", id.worker) }, `worker ${id.worker}`)],
    ...["base62", "friendly"].map((form) => [form, id.forms?.[form] ? copyable(id.forms[form], `the ${form} form`) : ""]),
  ];
  return [...(result.whois ? makerNodes(result.whois) : []), bitDiagram(id.bits), element("dl", {}, ...definitionRows(rows))];
}

function makerNodes(whois) {
  const certainty = ["certain", "probable"].includes(whois.certainty) ? whois.certainty : "unknown", { maker: holder } = whois;
  const said = element("p", { class: "said" }, element("span", { class: `certain is-${certainty}` }, certainty), holder ? ownerText(holder) || "a process without a name" : "The process is not known");
  if (!holder) return [said, note(whois.reason)];
  const until = holder.ends_at > now() ? "now" : timeText(holder.ends_at);
  return [said, note(element("a", { href: linkTo("worker", holder.worker) }, `worker ${holder.worker}`), `, from ${timeText(holder.claimed_at)} to ${until}`), note(whois.reason)];
}

// digits: the binary digits of each field by its name, from the highest bit
function bitDiagram(digits) {
  const fields = Object.entries(digits).map(([name, bits]) => ({ name, bits, value: BigInt(`0b${bits}`) }));
  const total = fields.reduce((sum, field) => sum + field.bits.length, 0);
  const label = fields.map((field) => `${field.name} ${field.value}`).join(", ");
  return element("div", { class: "bits", role: "img", "aria-label": label }, ...[{ name: "sign", bits: "0".repeat(64 - total), value: "0" }, ...fields].map((field) => {
    const digits = [...field.bits].map((bit) => element("b", bit === "1" ? { class: "one" } : {}, bit));
    const name = field.name === "sign" ? "0" : `${field.name} ${field.value}`;
    return element("div", { class: `field c-${field.name}` }, element("div", { class: "digits" }, ...digits), element("div", { class: "name" }, name));
  }));
}

// from a link: the id's fields and the process that made it
export function showId(text) {
  if (asked === `whois ${text}`) return;
  $("id").value = text;
  lookUp("whois");
}

export function startLookup() {
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp("decode");
  });
  // the link of the answer can be copied from the browser
  $("do-whois").addEventListener("click", () => {
    const id = $("id").value.trim(), link = linkTo("id", id);
    if (!id || location.hash === link) lookUp("whois");
    else location.hash = link;
  });
}
