// Drawing: scales, axes, tooltips; what every kind of chart shares. Charts are SVG and take their colours from the page's style.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 12;

function svg(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) if (attributes[key] !== null && attributes[key] !== undefined) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function element(name, attributes, parent, text) {
  const node = document.createElement(name);
  for (const key in attributes) if (attributes[key] !== null && attributes[key] !== undefined) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

// All ticks of an axis are in the unit of its largest.
function tickText(value, step, most) {
  if (value === 0) return "0";
  const [unit, sign] = most >= 1e9 ? [1e9, " G"] : most >= 1e6 ? [1e6, " M"] : most >= 1e4 ? [1e3, " k"] : [1, ""];
  if (most < 1e-3) return value.toExponential(0);
  const digits = step ? Math.max(0, Math.min(6, -Math.floor(Math.log10(step / unit) + 1e-9))) : 0;
  return (value / unit).toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + sign;
}

function niceStep(span, count) {
  const raw = span / Math.max(1, count), power = Math.pow(10, Math.floor(Math.log10(raw)));
  const share = raw / power;
  return (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10) * power;
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (typeof v === "number" && Number.isFinite(v)) { if (v < low) low = v; if (v > high) high = v; }
  return low <= high ? [low, high] : null;
}

// ----------------------------------------------------------------------------------------------------------- scales

function linear(domain, range, whole) {
  let [a, b] = domain;
  if (a === b) { const room = Math.abs(a) * 0.05 || 0.5; a -= room; b += room; }
  const at = (v) => range[0] + ((v - a) / (b - a)) * (range[1] - range[0]);
  at.invert = (p) => a + ((p - range[0]) / (range[1] - range[0])) * (b - a);
  at.domain = [a, b];
  at.ticks = (count) => {
    const step = Math.max(whole ? 1 : 0, niceStep(b - a, count)), ticks = [];
    for (let v = Math.ceil(a / step - 1e-9) * step; v <= b + step * 1e-6; v += step) ticks.push({ value: v, text: tickText(Math.abs(v) < step * 1e-6 ? 0 : v, step, Math.max(Math.abs(a), Math.abs(b))) });
    return ticks;
  };
  return at;
}

function logarithmic(domain, range) {
  const inner = linear([Math.log10(domain[0]), Math.log10(domain[1])], range);
  const at = (v) => inner(Math.log10(Math.max(v, 1e-300)));
  at.invert = (p) => Math.pow(10, inner.invert(p));
  at.domain = inner.domain.map((v) => Math.pow(10, v));
  at.ticks = (count) => {
    const [a, b] = inner.domain, ticks = [];
    const factors = b - a > 3 ? [1] : b - a > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
    for (let e = Math.floor(a); e <= Math.ceil(b); e++) for (const f of factors) {
      const v = f * Math.pow(10, e);
      if (v >= at.domain[0] * 0.999 && v <= at.domain[1] * 1.001) ticks.push({ value: v, text: v >= 1e-3 ? String(Number(v.toPrecision(2))) : v.toExponential(0) });
    }
    return ticks.length >= 2 ? ticks : linear(at.domain, range).ticks(count);
  };
  return at;
}

function padded([low, high], share, zero) {
  if (zero && low > 0) low = 0;
  const room = (high - low || Math.abs(high) || 1) * share;
  return [zero && low === 0 ? 0 : low - room, high + room];
}

// ------------------------------------------------------------------------------------------------------------- frame

function textWidth(text, size) { return String(text).length * (size || 11) * 0.56; }

function clipped(text, most) { text = String(text); return text.length > most ? text.slice(0, Math.max(1, most - 1)) + "…" : text; }

// An empty drawing with axes. `box` is the inner area.
function frame(holder, height, margin, label) {
  const width = Math.max(240, holder.clientWidth || 600);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", height, role: "img", "aria-label": label, class: "drawn" });
  const box = { left: margin.left, top: margin.top, right: width - margin.right, bottom: height - margin.bottom, width, height };
  return { root, box };
}

function xAxis(root, box, scale, title, grid) {
  const axis = svg("g", { class: "axis" }, root);
  const room = (box.right - box.left) / 75;
  for (const tick of scale.ticks(Math.max(2, Math.min(10, room)))) {
    const x = scale(tick.value);
    if (x < box.left - 1 || x > box.right + 1) continue;
    if (grid) svg("line", { x1: x, x2: x, y1: box.top, y2: box.bottom, class: "grid" }, axis);
    svg("text", { x, y: box.bottom + 16, "text-anchor": "middle" }, axis, tick.text);
  }
  if (title) svg("text", { x: box.right, y: box.bottom + 32, "text-anchor": "end", class: "axis-title" }, axis, title);
  return axis;
}

function yAxis(root, box, scale, title) {
  const axis = svg("g", { class: "axis" }, root);
  for (const tick of scale.ticks((box.bottom - box.top) / 45)) {
    const y = scale(tick.value);
    if (y < box.top - 1 || y > box.bottom + 1) continue;
    svg("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "grid" }, axis);
    svg("text", { x: box.left - 7, y: y + 3.5, "text-anchor": "end" }, axis, tick.text);
  }
  if (title) svg("text", { x: box.left - 40 < 2 ? 2 : box.left - 40, y: box.top - 14, class: "axis-title" }, axis, title);
  return axis;
}

// ----------------------------------------------------------------------------------------------------------- tooltip

const tip = {
  node: null,
  show(holder, x, y, title, lines) {
    if (!this.node) this.node = element("div", { class: "tip", role: "status" }, document.body);
    const node = this.node;
    node.textContent = "";
    if (title) element("strong", {}, node, title);
    for (const line of lines) {
      const row = element("div", { class: "tip-row" }, node);
      if (line.colour !== undefined) element("i", { class: `swatch c${line.colour % COLOURS}` }, row);
      element("span", {}, row, line.name);
      if (line.value !== undefined) element("b", {}, row, line.value);
    }
    node.hidden = false;
    const area = holder.getBoundingClientRect(), size = node.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    let left = area.left + x + 14;
    if (left + size.width > wide - 6) left = Math.max(6, area.left + x - size.width - 14);
    node.style.left = `${left + window.scrollX}px`;
    node.style.top = `${Math.max(6, area.top + y - size.height / 2) + window.scrollY}px`;
  },
  hide() { if (this.node) this.node.hidden = true; },
};
