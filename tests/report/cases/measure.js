(() => {
  // Of a chart that is there for wide and for narrow pages, one is shown.
  const shown = chart => chart.checkVisibility() || chart.closest("details:not([open])");
  const charts = [...document.querySelectorAll("svg.chart")].filter(shown);
  const overlaps = [], small = [], outside = [];
  for (const chart of charts) {
    const boxes = [...chart.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([a, p], i) => {
      if (Math.min(p.width, p.height) < 8 && a.length > 1) small.push(a);
      if (p.left < 0 || p.right > innerWidth) outside.push(a);
      for (const [b, q] of boxes.slice(i + 1)) {
        const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        if (across > 1 && down > 3) overlaps.push([a, b]);
      }
    });
  }
  return {
    width: innerWidth, wider: Math.max(0, document.documentElement.scrollWidth - innerWidth), charts: charts.length,
    overlaps, small, outside, unnamed: charts.filter(c => !c.getAttribute("aria-label")).length,
  };
})()
