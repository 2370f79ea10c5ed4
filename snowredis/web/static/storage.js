// What this browser keeps: the zone of times. Browsers can forbid it.

export function recall(name) {
  try {
    return JSON.parse(localStorage.getItem(`snowredis.${name}`));
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`snowredis.${name}`, JSON.stringify(value));
  } catch {
    // it lasts until the page is closed
  }
}
