// The table of runs: search, sort, group by a setting, tick runs for a page of their own. What a reader chose is in the address.
"use strict";

const ROWS_AT_ONCE = 100;
const table = { picked: new Set(), open: new Set(), rows: ROWS_AT_ONCE };

// Words that all occur in a run's texts; `lr=0.1`, `top-1>75` and the like compare a column.
function matcher(figure, text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, name, sign, value] = word.match(/^([^<>=]+)(<=|>=|=|<|>)(.+)$/) || [];
    const index = name === undefined ? -1 : figure.columns.findIndex((c) => [c.toLowerCase(), c.toLowerCase().replace(/ .*$/, "")].includes(name));
    if (index < 0) return (row) => row.some((v, i) => `${figure.columns[i]} ${v}`.toLowerCase().includes(word));
    const wanted = Number(value), compare = { "=": (a) => a === wanted, "<": (a) => a < wanted, ">": (a) => a > wanted, "<=": (a) => a <= wanted, ">=": (a) => a >= wanted }[sign];
    return (row) => (Number.isFinite(wanted) && typeof row[index] === "number" ? compare(row[index]) : sign === "=" && String(row[index]).toLowerCase() === value);
  });
  return (row) => tests.every((test) => test(row));
}

function compareCells(a, b, up) {
  const [m, n] = [a === null || a === "", b === null || b === ""];
  if (m || n) return m - n; // what is empty comes last
  const numbers = typeof a === "number" && typeof b === "number"; // texts with numbers are in their order too
  return (numbers ? a - b : collate.compare(String(a), String(b))) * (up ? 1 : -1);
}

function sortedRows(figure, rows) {
  const [column, up] = view.sort?.startsWith("-") ? [view.sort.slice(1), false] : [view.sort, true], index = figure.columns.indexOf(column);
  return index < 0 ? rows : [...rows].sort((a, b) => compareCells(a[index], b[index], up));
}

function cellText(figure, name, value, row) {
  if (typeof value !== "number") return value === null ? NONE : String(value);
  if (name === "img/s") {
    const [low, high] = ["img/s low", "img/s high"].map((c) => row?.[figure.columns.indexOf(c)]);
    return withDigits(value, high > low ? knownDecimals(value, (high - low) / 2) : 2 - Math.floor(Math.log10(value)));
  }
  return figure.chart.digits[name] === undefined ? typed(value) : withDigits(value, figure.chart.digits[name]);
}

// A setting as it is typed, and as the names of runs have it: 0.05, 1e-05.
function typed(value) {
  return typeof value === "number" && value !== 0 && Math.abs(value) < SMALLEST ? value.toExponential().replace(/e-(\d)$/, "e-0$1") : String(value ?? NONE);
}

function drawRuns(holder, figure) {
  const tools = element("div", { class: "table-tools runs-tools" }, holder);
  const few = figure.rows.length < 8, search = element("input", { type: "search", id: "runs-search", placeholder: "search, e.g. lr=0.1 finished", "aria-label": "search runs", value: view.q || "", hidden: few ? "" : null }, tools);
  search.addEventListener("input", () => { view.q = search.value; table.rows = ROWS_AT_ONCE; writeAddress(); fill(); });
  if (figure.chart.groups.length) {
    const label = element("label", {}, tools, "group by "), select = element("select", { id: "runs-group" }, label);
    for (const name of ["", ...figure.chart.groups]) element("option", { value: name, selected: (view.group || "") === name ? "" : null }, select, name || "nothing");
    select.addEventListener("change", () => { view.group = select.value; table.open.clear(); writeAddress(); fill(); });
  }
  const count = element("span", { class: "note", role: "status" }, tools);
  element("span", { class: "more note", "aria-hidden": "true" }, tools);
  element("button", { type: "button", "data-do": "runsCsv", title: "save the runs that are shown" }, tools, "CSV");
  const command = element("p", { class: "command", hidden: "" }, holder);
  const box = element("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "all runs" }, holder), grid = element("table", { id: "runs-grid" }, box);
  const names = figure.columns.filter((c) => !figure.chart.hidden.includes(c));
  const head = element("tr", {}, element("thead", {}, grid)), body = element("tbody", {}, grid);
  const more = element("button", { type: "button", class: "key" }, holder, "");
  more.addEventListener("click", () => { table.rows += 5 * ROWS_AT_ONCE; fill(); });
  const numeric = new Set(names.filter((name) => name === "best epoch" || figure.rows.some((r) => typeof r[figure.columns.indexOf(name)] === "number")));
  for (const name of names) {
    const isNumber = numeric.has(name);
    const th = element("th", { scope: "col", class: isNumber ? "number" : null, "data-v": name }, head);
    element("button", { type: "button" }, th, name).addEventListener("click", () => { view.sort = view.sort === `-${name}` ? name : view.sort === name || !isNumber ? (view.sort === name ? `-${name}` : name) : `-${name}`; writeAddress(); fill(); });
  }

  function line(row, level) {
    const tr = element("tr", { class: level ? "inside" : null }, body);
    for (const name of names) {
      const value = row[figure.columns.indexOf(name)], td = element("td", { class: numeric.has(name) ? "number" : name === "run" || name === "note" ? "wrap" : null }, tr);
      if (name !== "run") { td.textContent = cellText(figure, name, value, row); continue; }
      const [colour, path] = ["colour", "path"].map((c) => row[figure.columns.indexOf(c)]), label = element(figure.chart.briefly ? "label" : "span", { class: "key", title: `${value}\n${path}` }, td);
      if (figure.chart.briefly) {
        const tick = element("input", { type: "checkbox" }, label);
        tick.checked = table.picked.has(path);
        tick.addEventListener("change", () => { tick.checked ? table.picked.add(path) : table.picked.delete(path); showCommand(); });
      }
      if (colour !== null) element("i", { class: `swatch c${colour % COLOURS}` }, label);
      element("span", {}, label, value);
    }
  }

  // One line per value: how many runs, and mean and standard deviation of their figures.
  function groupLine(name, value, rows) {
    const key = String(value), open = table.open.has(key), tr = element("tr", { class: "group" }, body);
    for (const column of names) {
      const index = figure.columns.indexOf(column), values = rows.map((r) => r[index]).filter((v) => v !== null), td = element("td", {}, tr);
      if (column === "run") {
        const button = element("button", { type: "button", class: "key", "aria-expanded": String(open) }, td, `${open ? "▾" : "▸"} ${name} ${typed(value)} (${rows.length.toLocaleString("en-GB")})`);
        button.addEventListener("click", () => { open ? table.open.delete(key) : table.open.add(key); fill(); });
      } else if (values.length && values.every((v) => v === values[0])) { td.textContent = cellText(figure, column, values[0]); td.className = numeric.has(column) ? "number" : ""; }
      else if (values.length && values.every((v) => typeof v === "number") && (figure.chart.digits[column] !== undefined || column === "img/s")) { td.textContent = meanText(values); td.className = "number"; }
    }
  }

  function fill() {
    const matching = sortedRows(figure, figure.rows.filter(matcher(figure, view.q || "")));
    body.textContent = "";
    const by = figure.columns.indexOf(view.group), groups = new Map();
    if (by >= 0) for (const row of matching) { if (!groups.has(row[by])) groups.set(row[by], []); groups.get(row[by]).push(row); }
    let left = table.rows;
    if (by < 0) for (const row of matching.slice(0, left)) line(row);
    else for (const value of [...groups.keys()].sort((a, b) => compareCells(a, b, true))) {
      groupLine(view.group, value, groups.get(value));
      if (table.open.has(String(value))) for (const row of groups.get(value).slice(0, left)) { line(row, 1); left--; }
    }
    const cut = by < 0 ? matching.length - table.rows : 0;
    more.hidden = cut <= 0;
    more.textContent = `show ${Math.min(cut, 5 * ROWS_AT_ONCE)} more of ${cut.toLocaleString("en-GB")}`;
    count.textContent = matching.length === figure.rows.length ? `${matching.length.toLocaleString("en-GB")} runs` : `${matching.length.toLocaleString("en-GB")} of ${figure.rows.length.toLocaleString("en-GB")} runs`;
    for (const th of head.cells) th.setAttribute("aria-sort", view.sort === th.dataset.v ? "ascending" : view.sort === `-${th.dataset.v}` ? "descending" : "none");
    holder.shownRows = matching;
    markCut(holder.parentElement);
  }

  function showCommand() {
    command.hidden = !table.picked.size;
    command.textContent = "";
    if (!table.picked.size) return;
    const text = `vernier report ${[...table.picked].map((p) => (/^[\w./+:@%-]+$/.test(p) ? p : `'${p.replaceAll("'", "'\\''")}'`)).join(" ")} -o picked.html`;
    element("code", {}, command, text);
    const copy = element("button", { type: "button" }, command, "copy");
    copy.addEventListener("click", () => navigator.clipboard?.writeText(text).then(() => { copy.textContent = "copied"; }));
  }

  fill();
  showCommand();
}

// Mean and standard deviation, in the digits that the deviation supports.
function meanText(values) {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  if (values.length < 2) return withDigits(mean, decimals([mean]));
  const sd = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1)), digits = sd > 0 ? Math.min(3, Math.max(0, 1 - Math.floor(Math.log10(sd)))) : decimals([mean]);
  return `${withDigits(mean, digits)} ± ${withDigits(sd, digits)}`;
}
