// What everything here uses: constants, the state, small helpers.

const RAMPS = {
  light: [[251, 250, 248], [206, 222, 240], [128, 174, 219], [47, 116, 186], [8, 48, 107]],
  dark: [[28, 31, 36], [30, 56, 92], [42, 106, 168], [110, 180, 234], [232, 246, 255]],
};
const SHADES = 1024;
const LISTED = 12; // words in a list beside the view
const MOST_LINKS = 4000; // lines drawn at a time
const ROW = 24; // height of a word in the links view
const LARGEST_CELL = 40; // of the heat map
const KEPT_MATRICES = 12;

const trace = JSON.parse(document.getElementById("trace").textContent);
const byId = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const state = {
  language: (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en",
  theme: dark.matches ? "dark" : "light",
  attention: trace.attentions[0] ?? null,
  head: -1, // -1: the mean
  view: "words",
  threshold: 0,
  scale: "matrix",
  root: false,
  target: 0, // the cell that reads, and the cell that is read; null where none is pointed at
  source: null,
  pinned: false,
  swapped: null,
};
let matrix = null;
let entropies = [];
let view = null;

const say = (key, ...values) => {
  const words = LANGUAGES[state.language][key];
  return typeof words === "function" ? words(...values) : words;
};

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** A label as it is shown: white space and nothing at all would not be seen. */
function shown(label) {
  if (label.trim() === "") return label === "" ? "∅" : label.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\s/g, "␣");
  return label.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥");
}

function cellsOf(side) {
  return trace.cells[state.attention[side]];
}

function titleOf(side) {
  const title = cellsOf(side).title || state.attention[side];
  return say("titles")[title] ?? title;
}

function labelOf(side, index) {
  const cells = cellsOf(side);
  if (cells.kind === "regions" && cells.grid) {
    return say("region", Math.floor(index / cells.grid[1]) + 1, (index % cells.grid[1]) + 1);
  }
  if (cells.kind === "frames" && cells.seconds) return say("seconds", (index * cells.seconds).toFixed(2));
  return shown(cells.labels[index]);
}

/** A label that says what it is also where it stands alone. */
function nameOf(side, index) {
  const { kind } = cellsOf(side);
  const label = labelOf(side, index);
  return /^\d+$/.test(label) && (kind === "slots" || kind === "steps") ? say(kind === "slots" ? "slot" : "step", label) : label;
}

/** Whether the columns are tags: their weights are probabilities, and nothing is read. */
const tagged = () => cellsOf("source").kind === "tags";
const among = () => state.attention.source === state.attention.target;

function number(weight) {
  if (weight === 0) return "0";
  if (weight >= 0.995) return weight.toFixed(2);
  return weight >= 0.001 ? String(Number(weight.toPrecision(2))) : weight.toExponential(0);
}

const count = (cells) => (cells < 9.95 ? cells.toFixed(1) : String(Math.round(cells)));

function largest(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

/** From a weight to how strongly it is coloured, 0 to 1. */
function strength(weight, full) {
  if (weight < state.threshold || full <= 0) return 0;
  const part = Math.min(1, weight / full);
  return state.root ? Math.sqrt(part) : part;
}

/** From which strength on a word on its colour is better read in the other ink. */
const inverted = () => (state.theme === "light" ? 0.8 : 0.58);

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function ramp() {
  const stops = RAMPS[state.theme];
  const colours = new Uint32Array(SHADES);
  for (let shade = 0; shade < SHADES; shade++) {
    const part = shade / (SHADES - 1);
    const place = (state.root ? Math.sqrt(part) : part) * (stops.length - 1);
    const below = Math.min(stops.length - 2, Math.floor(place));
    const mix = stops[below].map((from, k) => Math.round(from + (stops[below + 1][k] - from) * (place - below)));
    colours[shade] = (255 << 24) | (mix[2] << 16) | (mix[1] << 8) | mix[0];
  }
  return colours;
}

/** Give a canvas its size in the screen's own pixels, and a context that draws in CSS pixels. */
function sized(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  return context;
}

/** Call at most once a frame. */
function framed(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}
