// Draws the parts of the page: at most twice a second, and only those that can be seen. In a tab in the background, only
// those that matter there: the title and the icon.

const parts = [];
let drawnAt = 0, requested = false;

// draw() has to leave alone what did not change; without a node it is called always
export function addPart(node, draw) {
  const part = { draw, visible: true, always: !node };
  parts.push(part);
  if (!node) return;
  new IntersectionObserver((entries) => {
    part.visible = entries[entries.length - 1].isIntersecting;
    if (part.visible) draw();
  }, { rootMargin: "200px" }).observe(node);
}

export function drawAll() {
  drawnAt = Date.now();
  for (const part of parts) if (part.always || (part.visible && !document.hidden)) part.draw();
}

// with the browser's next frame: several messages at once are drawn once; a hidden tab has no frames
export function requestDraw() {
  if (document.hidden) return drawAll();
  if (requested) return;
  requested = true;
  requestAnimationFrame(() => {
    requested = false;
    drawAll();
  });
}

// ages grow also without a message
export function startDrawing() {
  setInterval(() => { if (Date.now() - drawnAt > 900) drawAll(); }, 1000);
  document.addEventListener("visibilitychange", () => {
    requested = false;
    drawAll();
  });
}
