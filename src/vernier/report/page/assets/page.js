// The page: draws its figures, sorts tables, saves CSV, remembers the reader's choices.
"use strict";

let figures = {};

function readFigures(text) {
  figures = JSON.parse(text);
  for (const [id, figure] of Object.entries(figures)) {
    figure.id = id;
    for (const [name, texts] of Object.entries(figure.texts)) {
      const index = figure.columns.indexOf(name);
      for (const row of figure.rows) row[index] = texts[row[index]];
    }
  }
}

function drawAll(root) {
  for (const holder of root.querySelectorAll(".plot[data-figure]")) if (figures[holder.dataset.figure]) drawFigure(holder, figures[holder.dataset.figure]);
}

// --------------------------------------------------------------------------------------------------------------- CSV

function csvCell(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (typeof value === "string" && /^[=+\-@\t]/.test(text) && !Number.isFinite(Number(text))) text = "'" + text; // spreadsheets take it for a formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvOf(columns, rows) { return [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\n") + "\n"; }

function download(name, content, type) {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) }, document.body);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function tableContent(table) {
  const text = (cell) => cell.dataset.v ?? cell.textContent.trim();
  const columns = [...table.tHead.rows[0].cells].map((c) => c.dataset.v ?? c.textContent.trim());
  const body = [...table.tBodies].flatMap((b) => [...b.rows]);
  return { columns, rows: body.map((row) => [...row.cells].map((c) => (c.dataset.v !== undefined && c.dataset.v !== "" && Number.isFinite(Number(c.dataset.v)) ? Number(c.dataset.v) : text(c)))) };
}

// ------------------------------------------------------------------------------------------------------------- tables

const collate = new Intl.Collator("en", { numeric: true });

function sortTable(header) {
  const table = header.closest("table"), index = header.cellIndex;
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = (row) => row.cells[index].dataset.v ?? row.cells[index].textContent.trim();
  const number = (text) => (text === "" || text === "–" ? NaN : Number(text));
  for (const body of table.tBodies) {
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)], [m, n] = [number(x), number(y)];
      const numbers = Number.isFinite(m) && Number.isFinite(n);
      if (!numbers && Number.isFinite(m) !== Number.isFinite(n)) return Number.isFinite(m) ? -1 : 1; // what is not a number comes last
      return (numbers ? m - n : collate.compare(x, y)) * (up ? 1 : -1);
    });
    body.append(...rows);
  }
}

// Say where a table is wider or longer than its box: on many systems the bar is hidden until one scrolls.
function markCut(root) {
  for (const box of root.querySelectorAll(".scroll")) {
    const right = box.scrollWidth - box.clientWidth > 2, below = box.scrollHeight - box.clientHeight > 2;
    const ended = { right: box.scrollLeft + box.clientWidth >= box.scrollWidth - 2, below: box.scrollTop + box.clientHeight >= box.scrollHeight - 2 };
    box.classList.toggle("cut-right", right && !ended.right);
    box.classList.toggle("cut-below", below && !ended.below);
    const note = box.parentElement.querySelector(".more");
    if (note) note.textContent = [right && "scroll sideways for more columns →", below && "scroll down for more rows ↓"].filter(Boolean).join("; ");
  }
}

// The data of a figure as a table, made when somebody opens it.
function fillData(details) {
  const place = details.querySelector(".data-table"), figure = figures[details.dataset.figure];
  if (!figure || place.dataset.done === String(figure.rows.length)) return;
  place.textContent = "";
  place.dataset.done = figure.rows.length;
  const table = element("table", { class: "sortable" }, place), head = element("tr", {}, element("thead", {}, table));
  for (const name of figure.columns) element("button", { type: "button" }, element("th", { scope: "col" }, head), name);
  const body = element("tbody", {}, table);
  for (const row of figure.rows.slice(0, 3000)) {
    const line = element("tr", {}, body);
    for (const value of row) element("td", typeof value === "number" ? { "data-v": value, class: "number" } : {}, line, shown(value));
  }
  if (figure.rows.length > 3000) element("p", { class: "note" }, place, `the first 3,000 of ${figure.rows.length.toLocaleString("en-GB")} rows; the CSV has all`);
}

// ------------------------------------------------------------------------------------------------------------ choices

function stored(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(`vernier-${name}`);
    localStorage.setItem(`vernier-${name}`, value);
  } catch { /* a page opened from a file may have no storage */ }
  return null;
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[name];
  button.dataset.now = name;
}

const MOST_LABELS = 8; // more of them hide the image and each other

function showExamples(least) {
  for (const box of document.querySelectorAll(".example [data-score]")) box.toggleAttribute("hidden", Number(box.dataset.score) < least);
  for (const example of document.querySelectorAll(".example")) example.classList.toggle("crowded", example.querySelectorAll(".tag:not([hidden])").length > MOST_LABELS);
  for (const out of document.querySelectorAll(".least-score")) out.textContent = least.toFixed(2);
}

const actions = {
  csv(button) {
    const figure = figures[button.dataset.figure];
    const data = figure || tableContent(document.getElementById(button.dataset.table));
    download(`${button.dataset.figure || button.dataset.table}.csv`, csvOf(data.columns, data.rows), "text/csv");
  },
  log(button) {
    const state = remembered(button.dataset.figure);
    state.log = !state.log;
    button.setAttribute("aria-pressed", String(state.log));
    drawFigure(document.querySelector(`.plot[data-figure="${button.dataset.figure}"]`), figures[button.dataset.figure]);
  },
  axis(button) {
    view.x = button.dataset.axis === "epoch" ? "" : button.dataset.axis;
    for (const state of memory.values()) state.zoom = null;
    writeAddress();
    showChoices();
    redrawCharts((chart) => chart.x_ranges);
  },
  run(button) {
    hiddenRuns.has(button.dataset.run) ? hiddenRuns.delete(button.dataset.run) : hiddenRuns.add(button.dataset.run);
    showChoices();
    redrawCharts((chart) => chart.colours);
  },
  runsCsv() {
    const { columns } = figures.runs, rows = document.querySelector(".plot[data-figure=runs]").shownRows, kept = columns.map((c, i) => i).filter((i) => columns[i] !== "colour");
    download("runs.csv", csvOf(kept.map((i) => columns[i]), rows.map((row) => kept.map((i) => row[i]))), "text/csv");
  },
  png: savePng,
  copy: copyPng,
  svg(button) { download(`${button.dataset.figure}.svg`, standalone(document.querySelector(`.plot[data-figure="${button.dataset.figure}"] svg.drawn`)), "image/svg+xml"); },
  disturbed(button) {
    const state = remembered(button.dataset.figure);
    state.calm = !state.calm;
    button.setAttribute("aria-pressed", String(state.calm));
    drawFigure(document.querySelector(`.plot[data-figure="${button.dataset.figure}"]`), figures[button.dataset.figure]);
  },
  theme(button) {
    const next = { auto: "light", light: "dark", dark: "auto" }[button.dataset.now || "auto"];
    stored("theme", next);
    setTheme(next);
  },
};

// ------------------------------------------------------------------------------------------------------------ address

// `#training&x=step&q=lr%3D0.1`: a section, and what the reader chose.
function readAddress() {
  const [section, ...rest] = location.hash.slice(1).split("&"), words = section.includes("=") ? [section, ...rest] : rest;
  for (const word of words) {
    const [name, value] = word.split("=").map(decodeURIComponent);
    if (["x", "q", "sort", "group"].includes(name)) view[name] = value;
  }
  return section.includes("=") ? "" : section;
}

function writeAddress(section) {
  const now = section ?? location.hash.slice(1).split("&").find((word) => word && !word.includes("=")) ?? "";
  const words = Object.entries(view).filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  try { history.replaceState(null, "", `#${[now, ...words].filter(Boolean).join("&")}`); } catch { /* not in a frame without an address */ }
}

function showChoices() {
  for (const button of document.querySelectorAll("[data-do=axis]")) button.setAttribute("aria-pressed", String(button.dataset.axis === (view.x || "epoch")));
  for (const button of document.querySelectorAll("[data-do=run]")) button.setAttribute("aria-pressed", String(!hiddenRuns.has(button.dataset.run)));
}

function redrawCharts(which) {
  for (const holder of document.querySelectorAll(".plot[data-figure]")) if (figures[holder.dataset.figure] && which(figures[holder.dataset.figure].chart)) drawFigure(holder, figures[holder.dataset.figure]);
}

function listen() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.closest("th") && button.closest("table.sortable")) sortTable(button.closest("th"));
    else if (actions[button.dataset.do]) actions[button.dataset.do](button);
  });
  document.addEventListener("toggle", (event) => { if (event.target.matches?.("details.data[open]")) fillData(event.target); }, true);
  document.addEventListener("input", (event) => {
    const input = event.target;
    if (input.id === "smooth") {
      settings.smooth = Number(input.value);
      document.getElementById("smooth-value").textContent = input.value;
      redrawCharts((chart) => chart.smooth);
    } else if (input.id === "least-score") showExamples(Number(input.value));
    else if (input.matches(".only-different")) { input.closest("section").classList.toggle("different-only", input.checked); markCut(document); }
  });
  addEventListener("hashchange", () => { if (!location.hash.includes("=")) writeAddress(location.hash.slice(1)); });
  let waiting = 0;
  const resized = () => { for (const holder of document.querySelectorAll(".plot[data-figure]")) if (Number(holder.dataset.width) !== holder.clientWidth && figures[holder.dataset.figure]) drawFigure(holder, figures[holder.dataset.figure]); };
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => { resized(); markCut(document); }, 120); });
  document.addEventListener("scroll", (event) => { if (event.target.matches?.(".scroll")) markCut(event.target.parentElement); }, true);
}

readFigures(document.getElementById("figures").textContent);
setTheme(stored("theme") || "auto");
const asked = readAddress();
listen();
drawAll(document);
showChoices();
markCut(document);
if (asked && location.hash.includes("&")) document.getElementById(asked)?.scrollIntoView();
if (document.getElementById("least-score")) showExamples(Number(document.getElementById("least-score").value));
document.documentElement.dataset.ready = "yes";
