// Figures as pictures of their own, for slides: with title, names of the lines, and in small print what ran.
"use strict";

const PICTURE = { width: 960, scale: 2, margin: 24 };
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "font-size", "font-family", "font-weight", "opacity", "fill-opacity", "visibility", "paint-order"];

function takeStyles(from, to) {
  const style = getComputedStyle(from);
  to.setAttribute("style", STYLES.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  [...from.children].forEach((child, i) => takeStyles(child, to.children[i]));
}

// The drawing as a file of its own: with the styles that the page gives it.
function standalone(node) {
  const copy = node.cloneNode(true);
  takeStyles(node, copy);
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", node.viewBox.baseVal.width);
  copy.style.background = colourOf("--surface");
  return new XMLSerializer().serializeToString(copy);
}

function colourOf(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function wrapped(text, width, size) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines[lines.length - 1] ? `${lines[lines.length - 1]} ${word}` : word;
    if (textWidth(longer, size) > width && lines[lines.length - 1]) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

// The names of lines or bars: what the legends of the page say, in rows.
function legendRows(root, keys, top) {
  let x = PICTURE.margin, y = top;
  for (const [name, mark] of keys) {
    const width = 30 + textWidth(name, 13);
    if (x > PICTURE.margin && x + width > PICTURE.width - PICTURE.margin) { x = PICTURE.margin; y += 20; }
    const group = svg("g", { transform: `translate(${x},${y})` }, root);
    mark(group);
    svg("text", { x: 28, y: 4, style: `font-size:13px;fill:${colourOf("--ink")}` }, group, name);
    x += width + 14;
  }
  return keys.length ? y + 16 : top;
}

function keysOf(holder, figure) {
  const keys = [];
  const line = (from) => (group) => { const node = svg("line", { x1: 0, x2: 22, y1: 0, y2: 0, class: from.getAttribute("class") }, group); takeStyles(from, node); };
  const square = (from) => (group) => svg("rect", { x: 4, y: -6, width: 12, height: 12, rx: 3, fill: getComputedStyle(from).backgroundColor }, group);
  const drawn = figure.chart.by ? new Set(figure.rows.map((r) => String(r[figure.columns.indexOf(figure.chart.by)]))) : new Set();
  const shared = figure.chart.colours ? [...document.querySelectorAll(".runs-legend .key[aria-pressed=true]")] : [];
  for (const key of [...new Map(shared.map((k) => [k.dataset.run, k])).values()]) if (drawn.has(key.dataset.run)) keys.push([key.dataset.run, line(key.querySelector("line"))]);
  for (const key of holder.querySelectorAll(".legend .key:not([aria-pressed=false])")) {
    const mark = key.querySelector("line"), swatch = key.querySelector(".swatch");
    keys.push([key.textContent, mark ? line(mark) : square(swatch)]);
  }
  return keys;
}

// The whole picture as an SVG text: drawn again at the width of a slide, out of sight.
function pictureOf(figure) {
  const holder = element("div", { class: "plot off-screen", style: `width:${PICTURE.width - 2 * PICTURE.margin}px` }, document.body);
  try {
    KINDS[figure.chart.type](holder, figure, settings);
    const drawing = holder.querySelector("svg.drawn"), root = svg("svg", { xmlns: SVG }, holder), family = getComputedStyle(document.body).fontFamily;
    const background = svg("rect", { x: 0, y: 0, width: PICTURE.width, fill: colourOf("--surface") }, root);
    const text = (y, size, weight, colour, content) => svg("text", { x: PICTURE.margin, y, style: `font:${weight} ${size}px ${family};fill:${colourOf(colour)}` }, root, content);
    text(38, 20, 650, "--ink", figure.title);
    const top = legendRows(root, keysOf(holder, figure), 64), copy = drawing.cloneNode(true);
    takeStyles(drawing, copy);
    const { width, height } = drawing.viewBox.baseVal;
    for (const [name, value] of Object.entries({ x: PICTURE.margin, y: top, width, height })) copy.setAttribute(name, value);
    copy.removeAttribute("class");
    root.appendChild(copy);
    let y = top + height + 20;
    for (const line of wrapped(smallPrint(), PICTURE.width - 2 * PICTURE.margin, 11)) { text(y, 11, 400, "--soft", line); y += 15; }
    background.setAttribute("height", y + 8);
    for (const [name, value] of Object.entries({ width: PICTURE.width, height: y + 8, viewBox: `0 0 ${PICTURE.width} ${y + 8}`, style: `font-family:${family}` })) root.setAttribute(name, value);
    return { text: new XMLSerializer().serializeToString(root), height: y + 8 };
  } finally { holder.remove(); }
}

function smallPrint() {
  const text = document.body.dataset.ran;
  return text.includes("Vernier") ? text : `${text} · made with Vernier`;
}

async function pngOf(figure) {
  const { text, height } = pictureOf(figure), image = new Image(), canvas = element("canvas", { width: PICTURE.width * PICTURE.scale, height: Math.round(height * PICTURE.scale) });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`; // the page's policy allows data, and nothing else
  await image.decode();
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

// What the button says for a moment after it worked or did not.
function tell(button, text) {
  const before = button.dataset.text ?? button.textContent;
  button.dataset.text = before;
  button.textContent = text;
  setTimeout(() => { button.textContent = before; }, 2500);
}

async function savePng(button) { download(`${button.dataset.figure}.png`, await pngOf(figures[button.dataset.figure]), "image/png"); }

async function copyPng(button) {
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": pngOf(figures[button.dataset.figure]) })]);
    tell(button, "copied");
  } catch {
    tell(button, "not allowed here: use PNG");
  }
}
