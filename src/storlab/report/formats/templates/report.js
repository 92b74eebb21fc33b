// What a report offers beyond what it shows without scripts: sorted and filtered tables, values of charts, levels that
// are switched off, the other scale, a mark at the section that is read. Nothing is fetched and nothing is kept.
"use strict";
const make = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

// ---- Numbers with units, as the report prints them
const PREFIXES = { n: 1e-9, µ: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
const SECONDS = { d: 86400, h: 3600, min: 60, s: 1 };
const valueOf = text => {
  const [, sign, shown] = /^(?:[▲▼≈?]\s)?([−-]?)(.*)$/s.exec(text.trim());
  const time = /^(?:\d[\d.]*\s(?:d|h|min|s)(?![\w/])\s?)+/.exec(shown);  // "1 h 3 min": all of its parts
  const found = /^(\d[\d.]*(?:e[+−-]\d+)?)(?:\s±[\d.]+)?\s?(Ki|Mi|Gi|Ti|[nµmkMGT](?!in))?/.exec(shown);
  if (!found) return null;
  const parts = time ? [...time[0].matchAll(/([\d.]+)\s([a-z]+)/g)].map(([, number, unit]) => number * SECONDS[unit])
    : [parseFloat(found[1].replace("−", "-")) * (PREFIXES[found[2]] ?? 1)];
  return (sign ? -1 : 1) * parts.reduce((sum, part) => sum + part, 0);
};

// ---- The row of switches above a drawing of a chart
const barOf = chart => {
  if (chart.previousElementSibling?.matches(".levels")) return chart.previousElementSibling;
  const bar = make("div", { className: "levels" });
  chart.before(bar);
  return bar;
};
{
  const compare = (a, b) => {
    const x = valueOf(a), y = valueOf(b);
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x === null ? 1 : -1;
    return a.localeCompare(b);
  };

  // ---- Sorting by a column: up, down, and back to the study's order
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0], original = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const name = heading.textContent || "rows";
      const button = make("button", { type: "button", className: "sort", textContent: heading.textContent });
      button.setAttribute("aria-label", `${name}, sort`);
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: "" }[heading.ariaSort ?? ""] ?? "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        const text = row => row.cells[column].textContent;
        const rows = next ? [...original].sort((a, b) => compare(text(a), text(b))) : original;
        if (next) heading.setAttribute("aria-sort", next);
        body.append(...(next === "descending" ? [...rows].reverse() : rows));
      });
    });
    if (original.length > 8) {
      const input = make("input", { type: "search", className: "filter", placeholder: "Filter rows" });
      input.setAttribute("aria-label", "Filter rows");
      input.addEventListener("input", () => {
        const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        for (const row of original) row.hidden = !wanted.every(word => row.textContent.toLowerCase().includes(word));
      });
      table.closest(".scroll").before(input);
    }
  }

  // ---- Charts: values under the pointer, and levels that are switched off by their legend
  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  addEventListener("pointermove", event => {
    const mark = event.target instanceof Element ? event.target.closest("[role=graphics-symbol][aria-label]") : null;
    tip.hidden = !mark;
    if (!mark) return;
    const parts = mark.getAttribute("aria-label").split("; ").filter(part => !/^(lane|_row)\b/.test(part));
    tip.textContent = parts.join("\n").replace(/-?\d+\.\d{3,}/g, number => +(+number).toPrecision(4));
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.max(8, event.clientY - tip.offsetHeight - 10)}px`;
  });
  const colourOf = element => [element.getAttribute("stroke"), element.getAttribute("fill")].filter(c => c && c !== "none" && c !== "transparent");
  for (const chart of document.querySelectorAll("svg.chart")) {
    const names = [...chart.querySelectorAll(".role-legend-label text")];
    const symbols = [...chart.querySelectorAll(".role-legend-symbol path")];
    if (names.length < 2 || names.length !== symbols.length) continue;
    const marks = [...chart.querySelectorAll(".role-mark path, .role-mark line, .role-mark rect")];
    const bar = barOf(chart);
    names.forEach((name, index) => {
      const own = colourOf(symbols[index])[0];
      const box = make("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        for (const mark of marks) if (colourOf(mark).includes(own)) mark.classList.toggle("off", !box.checked);
      });
      bar.append(make("label", {}, box, ` ${name.textContent}`));
    });
  }

  // ---- Both scales are drawn: a switch shows one
  for (const figure of document.querySelectorAll("figure.scales")) {
    const button = make("button", { type: "button", className: "scale" });
    const shown = () => figure.querySelector(".drawn.log").hidden ? "Log scale" : "Linear scale";
    button.textContent = shown();
    button.addEventListener("click", () => {
      for (const drawn of figure.querySelectorAll(".drawn")) drawn.hidden = !drawn.hidden;
      button.textContent = shown();
    });
    figure.querySelector("figcaption").append(" ", button);
  }

  // ---- Everything open or closed at once; and the section that is read
  const folds = [...document.querySelectorAll("main details")];
  const nav = document.querySelector("nav ul");
  if (folds.length) {
    const button = make("button", { type: "button", className: "folds", textContent: "Open all" });
    button.addEventListener("click", () => {
      const open = button.textContent === "Open all";
      for (const fold of folds) fold.open = open;
      button.textContent = open ? "Close all" : "Open all";
    });
    nav.append(make("li", {}, button));
  }
  addEventListener("hashchange", () => document.querySelector(location.hash || "body")?.closest("details")?.setAttribute("open", ""));
  const links = new Map([...nav.querySelectorAll("a")].map(link => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver(entries => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-15% 0px -80% 0px" });
  for (const section of document.querySelectorAll("main > section[id]")) watch.observe(section);
}
