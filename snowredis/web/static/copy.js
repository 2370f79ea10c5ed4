// Buttons that copy a text.
import { element } from "./dom.js";

const SHOWN_MS = 1500;

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // browsers have no clipboard for pages over plain HTTP from another host
    const area = element("textarea", { class: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// *what* is named for screen readers: "the id"
export function copyButton(text, what) {
  const button = element("button", { type: "button", class: "copy", "aria-label": `Copy ${what}` }, "copy");
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    await copy(text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, SHOWN_MS);
  });
  return button;
}

export function copyable(text, what) {
  return element("span", { class: "copyable" }, element("span", { class: "mono" }, text), copyButton(text, what));
}
