// What the page shows, in the URL's fragment, so that it can be linked and the back button works:
// #/pool/orders, #/pool/orders/worker/17, #/pool/orders/id/249734652741287936, #/id/249734652741287936

export function parseRoute(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").map(decoded);
  const route = { pool: null, worker: null, id: null };
  if (parts[0] === "pool" && parts[1]) route.pool = parts.splice(0, 2)[1];
  if (parts[0] === "worker" && /^\d{1,7}$/.test(parts[1] ?? "")) route.worker = Number(parts[1]);
  if (parts[0] === "id" && parts[1]) route.id = parts.slice(1).join("/");
  return route;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function linkTo({ pool, worker = null, id = null }) {
  const base = `#/pool/${encodeURIComponent(pool)}`;
  if (worker !== null) return `${base}/worker/${worker}`;
  return id === null ? base : `${base}/id/${encodeURIComponent(id)}`;
}

export const currentRoute = () => parseRoute(location.hash);

// adds a step to the history of the browser; onRoute() is called
export function goTo(target) {
  const link = linkTo(target);
  if (location.hash !== link) location.hash = link;
}

export function onRoute(show) {
  addEventListener("hashchange", () => show(currentRoute()));
}
