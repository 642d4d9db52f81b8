// What everything here uses: constants, the state, small helpers.

const SHADES = 1024;
const LISTED = 12; // words in a list beside the view
const MOST_LINKS = 4000; // lines drawn at a time
const LONG = 300; // from so many cells on, a text that reads itself is shown twice, side by side
const KEPT_MATRICES = 48;
const THUMBNAIL = 40; // the most cells that a head's small picture has along a side
const TOGETHER = 8; // the most heads that are shown at once

const trace = page;
const touch = matchMedia("(pointer: coarse)");
Object.assign(state, {
  attention: trace.attentions[0] ?? null,
  head: -1, // -1: the mean; from the number of heads on: what is computed from them, such as the rollout
  together: [], // heads that are shown at once, each in a color of its own
  view: "words",
  threshold: 0,
  scale: "matrix",
  root: false,
  lens: { words: false, special: false, sinks: false }, // whose positions are shown: see lens.js
  target: 0, // the cell that reads, and the cell that is read; null where none is pointed at
  source: null,
  pinned: false,
  swapped: null,
});
let matrix = null;
let several = []; // of `together`: {head, matrix, color}
let entropies = [];
let view = null;

/** The page's words for what depends on the attention: cells read, write to a memory, or have tags. */
const tell = (key, ...values) => phrase(say("verbs")[state.attention.verb][key], values);

/** How much larger drawings write on large screens. */
const enlarged = () => clamp(innerWidth / 1700, 1, 1.5);

const among = () => state.attention.source === state.attention.target;

/** Whether one panel shows who reads and what is read. */
const joined = () => among() && (axisOf("target").labels.length <= LONG || Boolean(axisOf("target").parts));

function axisOf(side, attention = state.attention) {
  return trace.axes[attention[side]];
}

/** A position of a mixed axis, as its part has it: {axis, index}; of any other axis as it is. */
function partAt(axis, index) {
  const part = axis.parts?.find((each) => index < each.end);
  return part ? { axis: part, index: index - part.begin } : { axis, index };
}

function titleOf(side, attention = state.attention) {
  const title = axisOf(side, attention).title || attention[side];
  return named(title);
}

/** A name that foci gave in the language of the page, any other as it is; "first · decoder.0.self" has several parts. */
function named(name) {
  const titles = say("titles");
  const one = (part) => {
    const numbers = part.match(/\d+/g) ?? [];
    return (titles[part] ?? titles[part.replace(/\d+/g, "#")]?.replace(/#/g, () => numbers.shift())) ?? null;
  };
  const dotted = (part) => (/^[\w.*]+$/.test(part) && part.split(".").some(one) ? part.split(".").map((each) => one(each) ?? each).join(" ") : part);
  return name.split(" · ").map((part) => one(part) ?? dotted(part)).join(" · ");
}

/** Metadata of foci whose values are foci's words, too; all others have values that are data. */
const OWN_VALUES = ["problem", "result", "relevance", "explained"];

function isOwn([name]) {
  return OWN_VALUES.includes(name.split(" · ").at(-1));
}

/** The text of the trace: data, such as a class, except where it names a problem of foci. */
function textOfTrace() {
  return trace.metadata.some(([name]) => name.split(" · ").at(-1) === "problem") ? named(trace.text) : trace.text;
}

/** Axes whose labels are names that foci gave, not data. */
const OWN_LABELS = ["maps", "hops", "share of the nats"];

/** The text of a cell; marks stand for what could not be seen. */
function textOf(axis, index) {
  const text = axis.shown[index] ?? axis.labels[index];
  return OWN_LABELS.includes(axis.title) ? named(text) : text;
}

function labelOf(side, place, attention = state.attention) {
  const { axis, index } = partAt(axisOf(side, attention), place);
  if (axis.kind === "regions" && axis.grid) return `${Math.floor(index / axis.grid[1]) + 1}, ${(index % axis.grid[1]) + 1}`;
  if (axis.kind === "frames" && axis.seconds) return say("seconds", (axis.start + index * axis.seconds).toFixed(2));
  return textOf(axis, index);
}

/** A label that says what it is also where it stands alone. */
function nameOf(side, place) {
  const { axis: { kind, grid }, index } = partAt(axisOf(side), place);
  const label = labelOf(side, place);
  if (kind === "regions" && grid) return say("region", Math.floor(index / grid[1]) + 1, (index % grid[1]) + 1);
  return /^\d+$/.test(label) && say("numbered")[kind] ? say("numbered")[kind](label) : label;
}

function headName(attention, head) {
  if (head < 0) return say("mean");
  if (head < attention.heads) return say("headNumber", attention.numbers[head]);
  const name = attention.extras[head - attention.heads];
  return say("extras")[name] ?? name;
}

function number(weight) {
  if (weight === 0) return "0";
  if (weight < 0) return `−${number(-weight)}`;
  if (weight >= 0.995) return weight.toFixed(2);
  return weight >= 0.001 ? String(Number(weight.toPrecision(2))) : weight.toExponential(0);
}

const count = (cells) => (cells < 9.95 ? cells.toFixed(1) : String(Math.round(cells)));

const sumOf = (values) => values.reduce((total, value) => total + value, 0);

function largest(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

/** The mean of those numbers that are known. */
function mean(values) {
  const known = values.filter(Number.isFinite);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** From a weight to how strongly it is colored, 0 to 1. */
function strength(weight, full) {
  if (weight < state.threshold || full <= 0) return 0;
  const part = Math.min(1, weight / full);
  return state.root ? Math.sqrt(part) : part;
}

/** The weight that has the full color, among the values of one row or of all. */
function fullOf(values, one = matrix) {
  return state.scale === "row" ? largest(values) : one.largest;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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

/** Say something to a screen reader. */
function announce(text) {
  byId("live").textContent = text;
}
