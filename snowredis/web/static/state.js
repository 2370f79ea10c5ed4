// What the service sent last, and what follows from it. The other modules read it; feed.js writes it.

export const state = {
  pool: null,
  workers: new Map(),
  // newest last
  events: [],
  // Redis clock minus the clock of this browser
  offsetMs: 0,
};

export const now = () => Date.now() + state.offsetMs;
export const ttlMs = () => Number(state.pool?.settings?.ttl_ms) || 30000;
export const heartbeatAge = (worker) => Math.max(0, now() - worker.renewed_ms);

// as state_of() in snapshot.py; "gone": it disappeared from the pool's workers
export function healthOf(worker) {
  if (worker.goneAt) return "gone";
  const age = heartbeatAge(worker) / ttlMs();
  return age < 1 / 3 ? "healthy" : age < 1 / 2 ? "late" : "suspect";
}
