// The kinds of charts. Each takes { columns, rows, chart } where `chart` says which column is what, and draws into a holder.
"use strict";

const view = {}; // what a reader chose for the whole page, and what its address keeps: x axis, and search, order and groups of the runs
const memory = new Map(); // what a reader did to a chart: hidden series, zoom, log; survives a redraw

function remembered(id) {
  if (!memory.has(id)) memory.set(id, { hidden: new Set(), zoom: null, log: false, calm: false, at: null });
  return memory.get(id);
}

function getter(figure, name) {
  const index = figure.columns.indexOf(name);
  return index < 0 ? () => null : (row) => row[index];
}

const hiddenRuns = new Set(); // names that a reader switched off in a section's legend

// The x axis of a chart: what the reader chose, where the chart has it. Times are in the unit that suits the longest.
function axisOf(chart) {
  const name = chart.x_ranges?.[view.x] ? view.x : chart.x, range = chart.x_ranges?.[name];
  if (name !== "time s") return { name, title: chart.x_title || name, unit: 1, range };
  const longest = range?.[1] ?? 0, [unit, sign] = longest > 3 * 3600 ? [3600, "h"] : longest > 300 ? [60, "min"] : [1, "s"];
  return { name, title: `time, ${sign}`, unit, range: range?.map((v) => v / unit) };
}

// Series in the order in which they appear: colour by `by`, dashes by `dash`.
function seriesOf(figure, axis) {
  const { y, by, dash } = figure.chart, [fx, fy, fb, fd] = [axis.name, y, by, dash].map((n) => getter(figure, n));
  const colours = [...(figure.chart.colours || [])], dashes = [], series = new Map();
  for (const row of figure.rows) {
    const group = by ? String(fb(row)) : y, kind = dash ? String(fd(row)) : "";
    if (!colours.includes(group)) colours.push(group);
    if (!dashes.includes(kind)) dashes.push(kind);
    const key = group + "\u0000" + kind;
    if (!series.has(key)) series.set(key, { key, group, kind, colour: colours.indexOf(group), dash: dashes.indexOf(kind), points: [] });
    if (typeof fx(row) === "number" && typeof fy(row) === "number") series.get(key).points.push({ x: fx(row) / axis.unit, y: fy(row), row });
  }
  const every = [...series.values()];
  for (const s of every) {
    s.name = [by && (colours.length > 1 || !s.kind) && s.group !== s.kind ? s.group : "", s.kind].filter(Boolean).join(" · ") || s.group;
    s.points.sort((a, b) => a.x - b.x);
  }
  return every;
}

function smoothed(points, weight) {
  let mean = 0, norm = 0;
  return points.map((p) => { mean = mean * weight + (1 - weight) * p.y; norm = norm * weight + (1 - weight); return { x: p.x, y: mean / norm, row: p.row }; });
}

// With several groups and several kinds, such as runs and training or validation, each has a key of its own. The runs of
// a section are named once, above its charts.
function legend(holder, series, state, redraw, chart) {
  const groups = [...new Set(series.map((s) => s.group))], kinds = [...new Set(series.map((s) => s.kind))];
  if (!chart.colours && series.length < 2) return;
  const bar = element("div", { class: chart.best ? "legend aligned" : "legend" }, holder); // side by side, so that their axes are
  if (chart.colours) {
    if (kinds.length > 1) for (const kind of kinds) key(bar, kind, series.filter((s) => s.kind === kind), chart.colours.length > 1 ? { colour: "k" } : {}, state, redraw);
  } else if (groups.length > 1 && kinds.length > 1 && chart.by !== chart.dash) {
    for (const group of groups) key(bar, group, series.filter((s) => s.group === group), { dash: 0 }, state, redraw);
    for (const kind of kinds) key(bar, kind, series.filter((s) => s.kind === kind), { colour: "k" }, state, redraw);
  } else for (const s of series) key(bar, s.name, [s], {}, state, redraw);
}

function key(bar, name, series, look, state, redraw) {
  const shown = series.some((s) => !state.hidden.has(s.key)), { colour, dash } = { ...series[0], ...look };
  const button = element("button", { type: "button", class: "key", "aria-pressed": String(shown), title: `${name}: show or hide` }, bar);
  const mark = svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, button);
  svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, class: `line ${colour === "k" ? "plain" : `s${colour % COLOURS}`} d${dash % 4}` }, mark);
  element("span", {}, button, name);
  button.addEventListener("click", () => { for (const s of series) shown ? state.hidden.add(s.key) : state.hidden.delete(s.key); redraw(); });
}

// -------------------------------------------------------------------------------------------------------------- lines

function drawLines(holder, figure, options) {
  const { chart } = figure, state = remembered(figure.id), redraw = () => drawFigure(holder, figure), axis = axisOf(chart);
  const all = seriesOf(figure, axis);
  legend(holder, all, state, redraw, chart);
  const area = element("div", { class: "area" }, holder);
  const weight = chart.smooth ? options.smooth : 0;
  const series = all.filter((s) => !state.hidden.has(s.key) && !(chart.colours && hiddenRuns.has(s.group)) && s.points.length)
    .map((s) => ({ ...s, drawn: weight ? smoothed(s.points, weight) : s.points }));
  const { root, box } = frame(area, 270, { left: 54, right: 16, top: chart.y_title === "" ? 12 : 30, bottom: 38 }, figure.title);
  const xs = extent(series.flatMap((s) => s.points.map((p) => p.x)));
  if (!xs) { empty(area, all.length && !all.some((s) => s.points.length) ? `these runs have no ${axis.title}` : "nothing is shown"); return; }
  const domain = state.zoom || axis.range || xs;
  const inside = (p) => p.x >= domain[0] && p.x <= domain[1];
  const low = getter(figure, chart.low), high = getter(figure, chart.high);
  const ys = extent(series.flatMap((s) => [...s.points.filter(inside).flatMap((p) => [p.y, low(p.row), high(p.row)])])) || [0, 1];
  const log = state.log && ys[0] > 0;
  const whole = !axis.range && series.every((s) => s.points.every((p) => Number.isInteger(p.x)));
  const x = (chart.log_x ? logarithmic : linear)(domain, [box.left, box.right], whole);
  const sizes = [...new Set(series.flatMap((s) => s.points.map((p) => p.x)))].sort((a, b) => a - b);
  if (chart.log_x && sizes.length <= 10 && !state.zoom) x.ticks = () => sizes.map((value) => ({ value, text: shown(value) }));
  const y = log ? logarithmic([ys[0] * 0.95, ys[1] * 1.05], [box.bottom, box.top]) : linear(padded(ys, 0.06, chart.zero), [box.bottom, box.top]);
  yAxis(root, box, y, chart.y_title ?? chart.y);
  xAxis(root, box, x, axis.title);
  const clip = `clip-${figure.id}`;
  svg("rect", { x: box.left - 5, y: box.top - 5, width: box.right - box.left + 10, height: box.bottom - box.top + 10 }, svg("clipPath", { id: clip }, svg("defs", {}, root)));
  const plot = svg("g", { "clip-path": `url(#${clip})` }, root);
  const path = (points) => points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)},${y(p.y).toFixed(1)}`).join("");
  for (const s of series) {
    if (chart.low) band(plot, s, x, y, low, high);
    if (weight) svg("path", { d: path(s.points), class: `line faint s${s.colour % COLOURS}` }, plot);
    svg("path", { d: path(s.drawn), class: `line s${s.colour % COLOURS} d${s.dash % 4}` }, plot);
    if (chart.marks || s.points.length < 2) for (const p of s.drawn) svg("circle", { cx: x(p.x), cy: y(p.y), r: 3.2, class: `dot f${s.colour % COLOURS}` }, plot);
  }
  if (chart.best) bestMarks(root, figure, series, x, y, box);
  area.appendChild(root);
  lineCursor(area, root, box, figure, axis, series, x, y, state, redraw);
}

// A ring around the best evaluation of each run, and for a few of them in words, below the curves.
function bestMarks(root, figure, series, x, y, box) {
  const flag = getter(figure, figure.chart.best), marked = series.flatMap((s) => s.points.filter((p) => flag(p.row) && p.x >= x.domain[0] && p.x <= x.domain[1]).map((p) => ({ ...p, s })));
  const digits = decimals(marked.map((p) => p.y)), epoch = getter(figure, "epoch"), several = new Set(series.map((s) => s.group)).size > 1;
  marked.forEach((p, i) => {
    svg("circle", { cx: x(p.x), cy: y(p.y), r: 6.5, class: `ring s${p.s.colour % COLOURS}` }, root);
    if (marked.length > 4 || !figure.chart.marks) return;
    const text = `${several ? `${clipped(p.s.group, 24)}: ` : ""}best ${withDigits(p.y, digits)}${figure.chart.unit || ""}, epoch ${shown(epoch(p.row))}`;
    svg("text", { x: box.right - 2, y: box.bottom - 8 - 15 * (marked.length - 1 - i), "text-anchor": "end", class: "named", style: `fill:var(--c${p.s.colour % COLOURS})` }, root, text);
  });
}

function band(plot, s, x, y, low, high) {
  for (const p of s.points) if (typeof low(p.row) === "number" && typeof high(p.row) === "number")
    svg("path", { d: `M${x(p.x)},${y(low(p.row))}V${y(high(p.row))}M${x(p.x) - 4},${y(low(p.row))}h8M${x(p.x) - 4},${y(high(p.row))}h8`, class: `whisker s${s.colour % COLOURS}` }, plot);
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; points[middle].x < x ? (low = middle) : (high = middle); }
  return Math.abs(points[low].x - x) <= Math.abs(points[high].x - x) ? points[low] : points[high];
}

// The line that follows the pointer or the arrow keys, and zooming by drawing a range.
function lineCursor(area, root, box, figure, axis, series, x, y, state, redraw) {
  if (!series.length) return;
  const cursor = svg("line", { y1: box.top, y2: box.bottom, class: "cursor", visibility: "hidden" }, root);
  const dots = series.map((s) => svg("circle", { r: 4, class: `dot f${s.colour % COLOURS}`, visibility: "hidden" }, root));
  const range = svg("rect", { y: box.top, height: box.bottom - box.top, class: "range", visibility: "hidden" }, root);
  let from = null;
  const point = (event) => { const r = root.getBoundingClientRect(); return ((event.clientX - r.left) / r.width) * box.width; };
  const move = (value) => {
    const closest = series.map((s) => nearest(s.drawn, value));
    const at = closest.reduce((a, b) => (Math.abs(b.x - value) < Math.abs(a.x - value) ? b : a)).x;
    const px = x(at), scale = root.getBoundingClientRect().width / box.width;
    cursor.setAttribute("x1", px); cursor.setAttribute("x2", px); cursor.setAttribute("visibility", "visible");
    dots.forEach((dot, i) => { dot.setAttribute("cx", x(closest[i].x)); dot.setAttribute("cy", y(closest[i].y)); dot.setAttribute("visibility", "visible"); });
    const lines = series.map((s, i) => ({ name: s.name, colour: s.colour, value: shown(closest[i].y) + (figure.chart.unit || ""), y: closest[i].y }));
    tip.show(area, px * scale, (box.top + box.bottom) / 2 * scale, `${axis.title} ${shown(at)}`, lines.sort((a, b) => b.y - a.y).slice(0, 12));
    state.at = at;
  };
  const leave = () => { cursor.setAttribute("visibility", "hidden"); range.setAttribute("visibility", "hidden"); dots.forEach((d) => d.setAttribute("visibility", "hidden")); tip.hide(); from = null; };
  root.addEventListener("pointermove", (event) => {
    const px = Math.min(box.right, Math.max(box.left, point(event)));
    move(x.invert(px));
    if (from !== null) { range.setAttribute("x", Math.min(from, px)); range.setAttribute("width", Math.abs(px - from)); range.setAttribute("visibility", "visible"); }
  });
  root.addEventListener("pointerleave", leave);
  root.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse" && event.button === 0) { from = point(event); event.preventDefault(); } });
  root.addEventListener("pointerup", (event) => {
    const to = point(event);
    if (from !== null && Math.abs(to - from) > 8) { state.zoom = [x.invert(Math.min(from, to)), x.invert(Math.max(from, to))]; leave(); redraw(); }
    from = null;
  });
  root.addEventListener("dblclick", () => { state.zoom = null; leave(); redraw(); });
  holderKeys(area, (step) => {
    const points = series.reduce((a, b) => (a.drawn.length >= b.drawn.length ? a : b)).drawn;
    const now = state.at === null ? (step > 0 ? -1 : points.length) : points.indexOf(nearest(points, state.at));
    move(points[Math.min(points.length - 1, Math.max(0, now + step))].x);
  }, leave);
  if (state.zoom) {
    const back = element("button", { type: "button", class: "unzoom" }, area, "whole range");
    back.addEventListener("click", () => { state.zoom = null; redraw(); });
  }
}

function holderKeys(area, step, leave) {
  area.tabIndex = 0;
  area.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (by) { step(by); event.preventDefault(); } else if (event.key === "Escape") leave();
  });
  area.addEventListener("blur", leave);
}

function empty(area, text) { element("p", { class: "nothing" }, area, text || "nothing recorded yet"); }

// --------------------------------------------------------------------------------------------------------------- bars

// Horizontal bars: one group per category, one bar per series, the value and its interval at the end.
function drawBars(holder, figure) {
  const { chart } = figure, [fc, fv, fb, fl, fh] = [chart.category, chart.value, chart.by, chart.low, chart.high].map((n) => getter(figure, n));
  const groups = [...new Set(figure.rows.map((r) => String(fc(r))))], by = [...new Set(figure.rows.map((r) => (chart.by ? String(fb(r)) : "")))];
  if (chart.by && by.length > 1) legendStatic(holder, by);
  const area = element("div", { class: "area" }, holder), thick = by.length > 1 ? 15 : 17, gap = 9;
  const height = groups.length * (by.length * thick + gap) + 44;
  const room = Math.min(textLimit(area), Math.max(...groups.map((g) => textWidth(g))) + 14);
  const { root, box } = frame(area, height, { left: room, right: 66, top: 8, bottom: 34 }, figure.title);
  const most = extent(figure.rows.flatMap((r) => [fv(r), fh(r)])) || [0, 1], digits = chartDecimals(figure.rows, fv, fl, fh);
  const x = linear([Math.min(0, most[0]), chart.max || most[1] || 1], [box.left, box.right]);
  xAxis(root, box, x, chart.x_title || chart.value, true);
  const spots = [];
  groups.forEach((group, g) => {
    const top = box.top + g * (by.length * thick + gap) + gap / 2;
    svg("text", { x: box.left - 8, y: top + (by.length * thick) / 2 + 4, "text-anchor": "end", class: "label" }, root, clipped(group, room / 6.1));
    by.forEach((kind, b) => {
      const row = figure.rows.find((r) => String(fc(r)) === group && (!chart.by || String(fb(r)) === kind));
      if (!row || typeof fv(row) !== "number") return;
      const y = top + b * thick, end = x(fv(row));
      const bar = svg("rect", { x: Math.min(x(0), end), y: y + 1, width: Math.max(1, Math.abs(end - x(0))), height: thick - 2, rx: 2, class: `bar f${b % COLOURS}` }, root);
      const whisker = typeof fl(row) === "number" && typeof fh(row) === "number";
      if (whisker) svg("path", { d: `M${x(fl(row))},${y + thick / 2}H${x(fh(row))}M${x(fl(row))},${y + 4}v${thick - 8}M${x(fh(row))},${y + 4}v${thick - 8}`, class: "whisker ink" }, root);
      svg("text", { x: Math.min(whisker ? Math.max(end, x(fh(row))) : end, box.right) + 6, y: y + thick / 2 + 4, class: "value" }, root, withDigits(fv(row), digits) + (chart.unit || ""));
      spots.push({ node: bar, x: end, y: y + thick / 2, row });
    });
  });
  area.appendChild(root);
  spotTips(area, root, box, figure, spots);
}

function textLimit(area) { return Math.max(70, Math.min(260, (area.clientWidth || 600) * 0.38)); }

function legendStatic(holder, names, colourOf) {
  const bar = element("div", { class: "legend" }, holder);
  names.forEach((name, i) => { const key = element("span", { class: "key" }, bar); element("i", { class: `swatch c${(colourOf ? colourOf(name) : i) % COLOURS}` }, key); element("span", {}, key, name); });
}

// One stacked bar per category, all of the same length: where the time went.
function drawStack(holder, figure) {
  const { chart } = figure, [fc, fp, fv] = [chart.category, chart.part, chart.value].map((n) => getter(figure, n));
  const groups = [...new Set(figure.rows.map((r) => String(fc(r))))], parts = [...new Set(figure.rows.map((r) => String(fp(r))))];
  const colourOf = (part) => chart.part_colours?.[part] ?? parts.indexOf(part);
  legendStatic(holder, parts, colourOf);
  const area = element("div", { class: "area" }, holder), step = 46;
  const { root, box } = frame(area, groups.length * step + 6, { left: 1, right: 1, top: 2, bottom: 2 }, figure.title), spots = [];
  groups.forEach((group, g) => {
    const mine = figure.rows.filter((r) => String(fc(r)) === group && fv(r) > 0), total = mine.reduce((sum, r) => sum + fv(r), 0);
    svg("text", { x: box.left, y: g * step + 14, class: "label" }, root, clipped(group, box.width / 7) + (chart.total === false ? "" : ` · ${withDigits(total, decimals([total]))} ${chart.unit || ""}`));
    let at = box.left;
    for (const row of mine) {
      const width = (fv(row) / total) * (box.right - box.left), share = Math.round((100 * fv(row)) / total);
      const colour = colourOf(String(fp(row))) % COLOURS;
      const bar = svg("rect", { x: at, y: g * step + 20, width: Math.max(0.5, width - 1), height: 20, rx: 2, class: `bar f${colour}` }, root);
      if (width > 38) svg("text", { x: at + width / 2, y: g * step + 34, "text-anchor": "middle", class: `on-bar o${colour}` }, root, `${share} %`);
      spots.push({ node: bar, x: at + width / 2, y: g * step + 30, row, extra: { name: "share", value: `${shown((100 * fv(row)) / total)} %` } });
      at += width;
    }
  });
  area.appendChild(root);
  spotTips(area, root, box, figure, spots);
}

// Tooltips of bars, dots and cells: all columns of their row; arrow keys move to the next one.
function spotTips(area, root, box, figure, spots) {
  let now = -1;
  const leave = () => { tip.hide(); spots.forEach((s) => s.node.classList.remove("hot")); };
  const show = (spot) => {
    leave();
    spot.node.classList.add("hot");
    const scale = root.getBoundingClientRect().width / box.width;
    const lines = figure.columns.map((name, i) => ({ name, value: shown(spot.row[i]) })).filter((l) => l.value !== "–");
    tip.show(area, spot.x * scale, spot.y * scale, "", spot.extra ? [...lines, spot.extra] : lines);
  };
  spots.forEach((spot, i) => { spot.node.addEventListener("pointerenter", () => { now = i; show(spot); }); spot.node.addEventListener("pointerleave", leave); });
  if (spots.length) holderKeys(area, (step) => { now = Math.min(spots.length - 1, Math.max(0, now + step)); show(spots[now]); }, leave);
}
