// Charts of distributions and relations: box with strip, scatter, heat map; and the one function that draws any figure.
"use strict";

function quantile(sorted, share) {
  const at = (sorted.length - 1) * share, low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

// One row per group: Tukey's box, every value as a dot, flagged ones named.
function drawBoxes(holder, figure) {
  const { chart } = figure, [fc, fv, ff, fn] = [chart.category, chart.value, chart.flag, chart.name].map((n) => getter(figure, n));
  const groups = new Map();
  for (const row of figure.rows) { const g = String(fc(row)); if (!groups.has(g)) groups.set(g, []); groups.get(g).push(row); }
  const area = element("div", { class: "area" }, holder), names = [...groups.keys()], step = names.length > 30 ? 15 : 24;
  const room = Math.min(textLimit(area), Math.max(...names.map((g) => textWidth(g))) + 14);
  const { root, box } = frame(area, names.length * step + 48, { left: room, right: 16, top: 8, bottom: 38 }, figure.title);
  const x = linear(padded(extent(figure.rows.map(fv)) || [0, 1], 0.04), [box.left, box.right]), spots = [];
  xAxis(root, box, x, chart.x_title || chart.value, true);
  if (chart.line !== undefined) svg("line", { x1: x(chart.line), x2: x(chart.line), y1: box.top, y2: box.bottom, class: "reference" }, root);
  names.forEach((name, g) => {
    const middle = box.top + g * step + step / 2, rows = groups.get(name), values = rows.map(fv).sort((a, b) => a - b);
    svg("text", { x: box.left - 8, y: middle + 3.5, "text-anchor": "end", class: "label" }, root, clipped(name, room / 6.1));
    if (values.length >= 4) {
      const [q1, q2, q3] = [0.25, 0.5, 0.75].map((q) => quantile(values, q)), fence = 1.5 * (q3 - q1);
      const inside = values.filter((v) => v >= q1 - fence && v <= q3 + fence), half = Math.min(8, step / 2 - 2);
      svg("path", { d: `M${x(inside[0])},${middle}H${x(q1)}M${x(q3)},${middle}H${x(inside[inside.length - 1])}`, class: "whisker ink" }, root);
      svg("rect", { x: x(q1), y: middle - half, width: Math.max(1, x(q3) - x(q1)), height: 2 * half, rx: 2, class: "box" }, root);
      svg("line", { x1: x(q2), x2: x(q2), y1: middle - half, y2: middle + half, class: "median" }, root);
    }
    rows.forEach((row, i) => {
      const flag = ff(row), jitter = rows.length > 1 ? (((i * 7) % 5) - 2) * Math.min(1.8, step / 14) : 0;
      const dot = svg("circle", { cx: x(fv(row)), cy: middle + jitter, r: flag ? 4 : rows.length > 60 ? 1.8 : 2.6, class: flag ? `dot ${flagColour(flag)}` : "dot plain" }, root);
      spots.push({ node: dot, x: x(fv(row)), y: middle, row });
    });
    const flagged = rows.filter((r) => ff(r) && fn(r) && String(fn(r)) !== name);
    if (flagged.length && flagged.length <= 2 && step > 20) for (const row of flagged) {
      const right = x(fv(row)) < (box.left + box.right) / 2;
      svg("text", { x: x(fv(row)) + (right ? 7 : -7), y: middle + 3.5, "text-anchor": right ? "start" : "end", class: "named" }, root, clipped(fn(row), 24));
    }
  });
  area.appendChild(root);
  spotTips(area, root, box, figure, spots);
}

function flagColour(flag) { return String(flag).includes("fast") ? "f2" : "f1"; }

function drawScatter(holder, figure) {
  const { chart } = figure, [fx, fy, ff, fn, fl, fh] = [chart.x, chart.y, chart.flag, chart.name, chart.low, chart.high].map((n) => getter(figure, n));
  const fd = getter(figure, chart.disturbed), calm = remembered(figure.id).calm;
  const rows = figure.rows.filter((r) => typeof fx(r) === "number" && typeof fy(r) === "number" && !(calm && fd(r)));
  const area = element("div", { class: "area" }, holder);
  const { root, box } = frame(area, 280, { left: 56, right: 14, top: 30, bottom: 38 }, figure.title);
  const xs = extent(rows.map(fx)), ys = extent(rows.flatMap((r) => [fy(r), fl(r), fh(r)]));
  if (!xs) { empty(area); return; }
  const x = linear(padded(xs, 0.04), [box.left, box.right]), y = linear(padded(ys, 0.06, chart.zero), [box.bottom, box.top]), spots = [];
  yAxis(root, box, y, chart.y_title || chart.y);
  xAxis(root, box, x, chart.x_title || chart.x);
  if (chart.line !== undefined) svg("line", { y1: y(chart.line), y2: y(chart.line), x1: box.left, x2: box.right, class: "reference" }, root);
  const order = [...rows].sort((a, b) => Boolean(ff(a)) - Boolean(ff(b)) || (ff(a) ? fx(a) - fx(b) : 0));
  const placed = [];
  for (const row of order) {
    const flag = ff(row), [px, py] = [x(fx(row)), y(fy(row))];
    if (typeof fl(row) === "number" && typeof fh(row) === "number") svg("path", { d: `M${px},${y(fl(row))}V${y(fh(row))}`, class: `whisker ${rows.length > 100 ? "thin" : flag ? "ink" : "soft"}` }, root);
    const dot = svg("circle", { cx: px, cy: py, r: flag ? 4 : rows.length > 300 ? 2 : 3, class: flag ? `dot ${flagColour(flag)}` : "dot plain" }, root);
    const free = placed.every(([a, b]) => Math.abs(a - px) > 150 || Math.abs(b - py) > 13);
    if (flag && fn(row) && placed.length < 8 && free) {
      const right = px < (box.left + box.right) / 2;
      placed.push([px, py]);
      svg("text", { x: px + (right ? 8 : -8), y: py + 3.5, "text-anchor": right ? "start" : "end", class: "named" }, root, clipped(fn(row), 26));
    }
    spots.push({ node: dot, x: px, y: py, row });
  }
  area.appendChild(root);
  spotTips(area, root, box, figure, spots);
}

function drawHeat(holder, figure) {
  const { chart } = figure, [fr, fc, fv] = [chart.row, chart.column, chart.value].map((n) => getter(figure, n));
  const down = [...new Set(figure.rows.map((r) => String(fr(r))))], across = [...new Set(figure.rows.map((r) => String(fc(r))))];
  const area = element("div", { class: "area" }, holder), wide = Math.max(240, area.clientWidth || 600);
  const room = Math.min(wide * 0.34, Math.max(...down.map((d) => textWidth(d))) + 14);
  const longest = Math.max(...across.map((a) => textWidth(clipped(a, 18)))), fit = (overhang) => Math.max(22, Math.min(chart.cell || 64, (wide - room - 10 - overhang) / across.length));
  const slanted = longest > fit(0) - 6, cell = fit(slanted ? 0.5 * longest : 0), tall = Math.min(34, Math.max(22, cell)), head = slanted ? Math.min(110, longest * 0.72 + 16) : 24;
  const { root, box } = frame(area, head + down.length * tall + 26, { left: room, right: 4, top: head, bottom: 22 }, figure.title), spots = [];
  const most = Math.max(...figure.rows.map((r) => Math.abs(fv(r) ?? 0)), 1e-12);
  across.forEach((name, c) => {
    const at = [box.left + c * cell + cell / 2, head - 7];
    svg("text", slanted ? { transform: `translate(${at[0]},${at[1]}) rotate(-45)`, class: "label" } : { x: at[0], y: at[1], "text-anchor": "middle", class: "label" }, root, clipped(name, 18));
  });
  down.forEach((name, d) => svg("text", { x: box.left - 8, y: head + d * tall + tall / 2 + 4, "text-anchor": "end", class: "label" }, root, clipped(name, room / 6.1)));
  for (const row of figure.rows) {
    const value = fv(row), c = across.indexOf(String(fc(row))), d = down.indexOf(String(fr(row)));
    const px = box.left + c * cell, py = head + d * tall, strength = value === null ? 0 : Math.min(1, Math.abs(value) / (chart.most || most));
    const kind = value === null ? "none" : chart.diverging && value < 0 ? "minus" : chart.good && String(fr(row)) === String(fc(row)) ? "good" : "plus";
    const square = svg("rect", { x: px + 1, y: py + 1, width: cell - 2, height: tall - 2, rx: 3, class: `heat ${kind}`, style: `--strength:${(0.06 + 0.86 * strength).toFixed(3)}` }, root);
    if (cell > 24 && value !== null && value !== 0) svg("text", { x: px + cell / 2, y: py + tall / 2 + 4, "text-anchor": "middle", class: strength > 0.55 ? "on-heat" : "value" }, root, chart.diverging ? value.toFixed(2) : shown(value));
    spots.push({ node: square, x: px + cell / 2, y: py + tall / 2, row });
  }
  if (chart.x_title) svg("text", { x: box.left, y: head + down.length * tall + 17, class: "axis-title" }, root, chart.x_title);
  area.appendChild(root);
  spotTips(area, root, box, figure, spots);
}

// ------------------------------------------------------------------------------------------------------------- figures

const KINDS = { lines: drawLines, bars: drawBars, stack: drawStack, boxes: drawBoxes, scatter: drawScatter, heat: drawHeat, runs: drawRuns };
const settings = { smooth: 0 };

function drawFigure(holder, figure) {
  if (figure.chart.type === "runs" && Number(holder.dataset.width)) return; // a new width changes nothing in a table
  const focused = holder.contains(document.activeElement);
  holder.textContent = "";
  KINDS[figure.chart.type](holder, figure, settings);
  holder.dataset.width = holder.clientWidth;
  if (focused) holder.querySelector("[tabindex]")?.focus({ preventScroll: true });
}
