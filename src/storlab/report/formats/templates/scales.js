// Charts from a linear scale to a logarithmic one and back. A chart is a plain picture, so this reads its scale off the
// ticks of the axis of its values, and moves what is drawn along that axis. `make`, `valueOf` and `barOf` are report.js's.
{
  const NUMBER = /-?[\d.]+(?:e[-+]?\d+)?/g;
  const translation = element => (element.getAttribute("transform")?.match(/translate\(([^)]*)\)/)?.[1].match(NUMBER) ?? [0, 0]).map(Number);
  const moved = (element, axis, to) => {
    const at = translation(element);
    at[axis] = to;
    return element.getAttribute("transform").replace(/translate\([^)]*\)/, `translate(${at.map(n => +n.toFixed(1))})`);
  };

  // ---- A chart's axis of values: its labels, and the value at each pixel between the ends of the range
  const NOT_VALUES = /^(round|trial|time|seconds|number|quantile|percentile)\b/;
  const axisOf = chart => {
    const size = chart.querySelector(".role-frame path.background")?.getAttribute("d").match(/h([\d.]+)v([\d.]+)/);
    const scopes = [...chart.querySelectorAll(".role-mark")].flatMap(marks => {
      const above = [];
      for (let g = marks.closest(".role-scope"); g; g = g.parentElement.closest(".role-scope")) above.push(g.firstElementChild);
      return above;
    });
    if (!size || scopes.some(g => translation(g).some(Boolean))) return null;  // several charts in one
    const axes = [...chart.querySelectorAll(".role-axis")].map(group => {
      const labels = [...group.querySelectorAll(".role-axis-label text")];
      const places = labels.map(translation);
      const axis = places.length > 1 && places.every(place => place[0] === places[0][0]) ? 1 : 0;
      const ticks = labels.map((label, i) => ({ label, at: places[i][axis] - (axis ? 4 : 0), value: valueOf(label.textContent) }));
      const title = group.querySelector(".role-axis-title")?.textContent ?? "";
      return { axis, ticks, title, span: Number(size[axis + 1]) };
    }).filter(({ ticks, title }) => ticks.length > 1 && ticks.every(tick => tick.value !== null && tick.value >= 0) && !NOT_VALUES.test(title));
    const chosen = axes.filter(each => each.axis === 1).length ? axes.filter(each => each.axis === 1) : axes;
    return chosen.length === 1 ? fitted(chosen[0]) : null;
  };
  const fitted = found => {
    const [first, last] = [found.ticks[0], found.ticks.at(-1)];
    const along = (f, g) => {
      const slope = (f(last.value) - f(first.value)) / (last.at - first.at);
      const valueAt = at => g(f(first.value) + (at - first.at) * slope);
      return slope && Number.isFinite(slope) && found.ticks.every(t => Math.abs((f(t.value) - f(first.value)) / slope - (t.at - first.at)) < 2) ? valueAt : null;
    };
    const linear = along(v => v, v => v), log = along(Math.log, Math.exp);
    const far = found.ticks.length === 2 && log && Math.max(first.value, last.value) >= 100 * Math.min(first.value, last.value);
    const isLog = log && (far || !linear);
    return linear || log ? { ...found, isLog, valueAt: isLog ? log : linear } : null;
  };

  // ---- What is drawn, along the axis
  const COMMANDS = /([MLCHVZhv])([^A-Za-z]*)/g;
  const isPlain = d => /^[MLCHVZhv\d.,\s-]*$/.test(d.replace(/e[-+]?\d+/g, ""));
  const bent = (d, to) => {
    let x = 0, y = 0;
    return [...d.matchAll(COMMANDS)].map(([, command, rest]) => {
      const n = (rest.match(NUMBER) ?? []).map(Number);
      if (command === "Z") return "Z";
      if (command === "h") n.splice(0, 1, x + n[0], y);
      else if (command === "v") n.splice(0, 1, x, y + n[0]);
      else if (command === "H") n.push(y);
      else if (command === "V") n.unshift(x);
      [x, y] = n.slice(-2);
      return (command === "M" || command === "C" ? command : "L") + n.map((v, i) => +to(v, i % 2).toFixed(1)).join(",");
    }).join("");
  };
  const marksOf = chart => [...chart.querySelectorAll(".role-mark path, .role-mark line, .role-mark text")];
  const clipped = (at, { span }) => Math.min(Math.max(at, 0), span);
  const drawnOn = (chart, found) => marksOf(chart).flatMap(mark => mark.hasAttribute("transform") ? [translation(mark)[found.axis]]
    : [...(mark.getAttribute("d") ?? "").matchAll(/[MLC]([^A-Za-z]*)/g)].map(([, n]) => Number(n.match(NUMBER)?.[found.axis])))
    .map(at => found.valueAt(clipped(at, found)));
  const changes = (chart, found, drawn) => {
    const { axis, ticks, span, isLog, valueAt } = found, marks = marksOf(chart);
    // Grid lines lie across the axis, and ticks stick out of it: neither has an extent along it.
    const lines = [...chart.querySelectorAll(".role-axis-grid line, .role-axis-tick line")].filter(
      line => !Number(line.getAttribute(axis ? "y2" : "x2")));
    const [low, high] = valueAt(0) < valueAt(span) ? [0, span] : [span, 0];
    const above = Math.max(valueAt(high), Number.MIN_VALUE);
    const positive = [...drawn, ...ticks.map(t => t.value)].filter(v => v > above / 1e6);
    const least = isLog ? 0 : Math.max(valueAt(low), Math.min(...positive));
    const share = v => isLog ? v / above : Math.log(Math.max(v, least) / least) / Math.log(above / least);
    const placed = v => low + share(v) * (high - low);
    const to = at => placed(valueAt(clipped(at, found)));
    if (!(above > least * 1.5) || !lines.length) return null;  // without lines it is one of steps, as of a heat map

    const set = [];
    for (const mark of marks) {
      if (mark.hasAttribute("transform")) {
        const from = translation(mark)[axis], end = axis ? "y2" : "x2";
        set.push([mark, "transform", moved(mark, axis, to(from))]);
        if (mark.hasAttribute(end)) set.push([mark, end, to(from + Number(mark.getAttribute(end))) - to(from)]);
      } else if (mark.hasAttribute("d")) {
        if (!isPlain(mark.getAttribute("d"))) return null;
        set.push([mark, "d", bent(mark.getAttribute("d"), (v, i) => i === axis ? to(v) : v)]);
      }
    }
    const room = axis ? 14 : 40, taken = [];
    const kept = at => taken.every(other => Math.abs(other - at) >= room) && taken.push(at);
    for (const tick of [...ticks].sort((a, b) => b.value - a.value)) {
      const at = placed(Math.max(tick.value, least));
      set.push([tick.label, "transform", moved(tick.label, axis, at + (axis ? 4 : 0))]);
      if ((tick.value < least && !isLog) || !kept(at)) set.push([tick.label, "visibility", "hidden"]);
    }
    for (const line of lines) set.push([line, "transform", moved(line, axis, to(translation(line)[axis]))]);
    const more = [];
    if (!isLog && ticks.every(t => /^[\d.]+$/.test(t.label.textContent))) {
      for (let e = Math.floor(Math.log10(least)); 10 ** e < above; e++) for (const step of [1, 5, 2]) {
        const v = step * 10 ** e;
        if (v >= least && v <= above && kept(placed(v))) more.push({ model: ticks[0].label, at: placed(v) + (axis ? 4 : 0), text: `${+v.toPrecision(1)}` });
      }
    }
    return { set, more, axis };
  };

  // ---- Charts that stand side by side on one scale change together
  const groups = new Map();
  for (const chart of document.querySelectorAll("svg.chart")) {
    const found = axisOf(chart);
    if (!found) continue;
    const scale = found.ticks.map(tick => tick.label.textContent).join(" ");
    const beside = chart.closest(".panels") ?? chart, key = [...groups.keys()].find(k => k.beside === beside && k.scale === scale) ?? { beside, scale };
    groups.set(key, [...(groups.get(key) ?? []), { chart, found }]);
  }
  for (const group of groups.values()) {
    const drawn = group.flatMap(({ chart, found }) => drawnOn(chart, found));
    const switches = group.flatMap(({ chart, found }) => switchOf(chart, found, changes(chart, found, drawn)) ?? []);
    for (const { button } of switches) button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      for (const each of switches) each.turn(on);
    });
  }

  function switchOf(chart, found, change) {
    if (!change) return null;
    const button = make("button", { type: "button", className: "scale", textContent: found.isLog ? "Linear scale" : "Log scale" });
    button.setAttribute("aria-pressed", "false");
    const before = change.set.map(([element, name]) => [element, name, element.getAttribute(name)]);
    const added = change.more.map(({ model, at, text }) => {
      const label = model.cloneNode();
      label.textContent = text;
      label.setAttribute("transform", moved(model, change.axis, at));
      return [model.parentElement, label];
    });
    const assign = ([element, name, value]) => value === null ? element.removeAttribute(name) : element.setAttribute(name, value);
    barOf(chart).append(button);
    return { button, turn: on => {
      button.setAttribute("aria-pressed", on);
      (on ? change.set : before).forEach(assign);
      for (const [parent, label] of added) if (on) parent.append(label); else label.remove();
    } };
  }
}
