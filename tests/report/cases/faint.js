(() => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = colours => {
    for (const c of colours) { pen.fillStyle = c; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const grounds = e => e ? [...grounds(e.parentElement), getComputedStyle(e).backgroundColor] : ["white"];
  const cells = text => {  // in order of drawing: the last is on top
    const at = text.getBoundingClientRect(), x = at.x + at.width / 2, y = at.y + at.height / 2;
    return [...text.closest("svg").querySelectorAll(".role-mark path[fill]")].filter(mark => {
      const box = mark.getBoundingClientRect();
      return mark.getAttribute("fill") !== "none" && box.left < x && x < box.right && box.top < y && y < box.bottom;
    }).map(mark => { const { fill, fillOpacity } = getComputedStyle(mark); return [fill, fillOpacity]; })
      .filter(([, opacity]) => opacity > 0.99).map(([fill]) => fill);
  };
  const faint = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest("script")) continue;
    const style = getComputedStyle(e);
    const under = e.closest(".role-mark") ? [...grounds(e), ...cells(e)] : grounds(e);
    const ink = e instanceof SVGElement ? style.fill : style.color;
    const [dim, bright] = [light(paint(under)), light(paint([...under, ink]))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (bright + 0.05) / (dim + 0.05);
    if (ratio < (large ? 3 : 4.5)) faint.add(`${e.outerHTML.slice(0, 99)} ${ratio.toFixed(2)}`);
  }
  return [...faint];
})()
