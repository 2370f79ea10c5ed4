// Texts of the page whose contrast is below WCAG AA, and fills of tiles below 3:1: [what, ratio].
(() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  // the browser turns every notation of a color into bytes
  function bytes(color) {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }
  const over = ([r, g, b, a], below) => [r, g, b].map((part, i) => part * a + below[i] * (1 - a));
  function backgroundOf(node) {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      layers.push(bytes(getComputedStyle(at).backgroundColor));
      if (layers[layers.length - 1][3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  }
  function luminance(color) {
    const [r, g, b] = color.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function ratio(a, b) {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  }
  const found = [];
  let checked = 0;
  for (const node of document.querySelectorAll("body *")) {
    if (!node.checkVisibility({ opacityProperty: true }) || node.closest(".hidden, .skip, noscript, :disabled")) continue;
    const style = getComputedStyle(node), back = backgroundOf(node);
    if ([...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim())) {
      const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      const color = node instanceof SVGElement ? style.fill : style.color;
      const value = ratio(over(bytes(color), back), back);
      checked += 1;
      if (value < (isLarge ? 3 : 4.5)) found.push([`${node.tagName} ${node.getAttribute("class")} ${node.textContent.slice(0, 40)}`, value]);
    }
    if (node.matches(".tile, .chip i")) {
      const value = ratio(bytes(getComputedStyle(node).backgroundColor).slice(0, 3), backgroundOf(node.parentElement));
      const edge = ratio(bytes(style.borderLeftColor).slice(0, 3), backgroundOf(node.parentElement));
      if (Math.max(value, edge) < 3) found.push([`fill of ${node.className}`, value]);
    }
  }
  return { checked, found };
})()
