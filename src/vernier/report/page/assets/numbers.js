// Numbers as the page shows them: the rules of numbers.py, and a test compares the two.
"use strict";

const NONE = "–", SMALLEST = 1e-4;

// A single value: four significant digits, thousands separated, very small ones as powers of ten.
function shown(value) {
  if (value === null || value === undefined || value === "") return NONE;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number" || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return separated(value, 0);
  if (size >= 1000) return separated(value, size < 10000 ? 1 : 0).replace(/\.0$/, "");
  if (size >= SMALLEST || size === 0) return String(Number(value.toPrecision(4)));
  const [factor, exponent] = value.toExponential(2).split("e-");
  return `${factor} × 10⁻${[...exponent].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;
}

function separated(value, places) { return value.toLocaleString("en-GB", { minimumFractionDigits: places, maximumFractionDigits: places }); }

// Digits after the point with which the largest of some values has three significant ones: one format for a whole chart.
function decimals(values) {
  const largest = Math.max(0, ...values.filter(Number.isFinite).map(Math.abs));
  return largest > 0 ? Math.max(0, 2 - Math.floor(Math.log10(largest))) : 0;
}

// Digits that an interval supports: one or two of its half width, and always two of the value.
function knownDecimals(value, half) { return Math.min(3, Math.max(-Math.floor(Math.log10(half / 2)), 1 - Math.floor(Math.log10(value)))); }

// The digits of a chart: those of its narrowest interval, and never more than three significant ones of the largest value.
function chartDecimals(rows, value, low, high) {
  const known = rows.filter((r) => typeof low(r) === "number" && high(r) > low(r) && value(r) > 0).map((r) => knownDecimals(value(r), (high(r) - low(r)) / 2));
  return Math.min(decimals(rows.map(value)), known.length ? Math.max(...known) : Infinity);
}

function withDigits(value, digits) {
  const unit = Math.pow(10, -digits), rounded = Math.round(value / unit) * unit, places = Math.max(0, digits);
  if (value > 0 && rounded === 0) return `< ${unit.toFixed(places)}`;
  return separated(rounded, places);
}
