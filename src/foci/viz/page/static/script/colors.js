// The colors of weights: one scale, light to dark, for figures, terminal and page alike (foci.viz.colors).

const parsed = (color) => [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));
const STOPS = trace.colors.stops.map(parsed);
const READ_BY = ["#ffffff", "#fbdcb8", "#f2b26e", "#d07a24", "#8f4a0a", "#4a2403"].map(parsed); // the other direction, and less
const HEAD_COLORS = ["#0072b2", "#d55e00", "#009e73", "#b3478f", "#c98a00", "#3aa0dc", "#6b4fbb", "#7a7a00"];

function mixed(stops, part) {
  const place = clamp(part, 0, 1) * (stops.length - 1);
  const below = Math.min(stops.length - 2, Math.floor(place));
  return stops[below].map((from, k) => Math.round(from + (stops[below + 1][k] - from) * (place - below)));
}

const toward = (color) => [[255, 255, 255], parsed(color)];
const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

/** Black or white, whichever is read better on the color. */
function inkOn(color) {
  const [red, green, blue] = color.map((value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

const pixel = (red, green, blue) => (255 << 24) | (blue << 16) | (green << 8) | red;

/** Pixels, row by row, as a canvas. */
function canvasOf(pixels, width, properties = {}) {
  const canvas = make("canvas", properties);
  [canvas.width, canvas.height] = [width, pixels.length / width];
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width), 0, 0);
  return canvas;
}

/** The scale as pixels, for strengths from 0 to SHADES − 1. */
function ramp(stops = STOPS) {
  const colors = new Uint32Array(SHADES);
  for (let shade = 0; shade < SHADES; shade++) {
    const part = shade / (SHADES - 1);
    const [red, green, blue] = mixed(stops, state.root ? Math.sqrt(part) : part);
    colors[shade] = pixel(red, green, blue);
  }
  return colors;
}

const LEVELS = 100; // of the shades of words: so few that most words keep theirs from one hover to the next
const written = new Map();

/** The style of a word by how much is read of it and how much it reads, both from 0 to LEVELS. */
function wordStyle(read, readBy, alone) {
  const key = (read * (LEVELS + 1) + readBy) * 2 + (alone ? 1 : 0);
  if (!written.has(key)) {
    const ground = alone ? readBy && mixed(READ_BY, readBy / LEVELS) : read && mixed(STOPS, read / LEVELS);
    const parts = [`--t: ${read / LEVELS}; --u: ${readBy / LEVELS}`];
    if (ground) parts.push(`background-color: ${css(ground)}; color: ${inkOn(ground)}`);
    if (readBy && !alone) parts.push(`border-bottom-color: ${css(mixed(READ_BY, 0.25 + (0.5 * readBy) / LEVELS))}`);
    written.set(key, read || readBy ? parts.join("; ") : "");
  }
  return written.get(key);
}

/** The style of a word that several heads read: a stripe for each. */
function stripes(levels) {
  if (!levels.some((level) => level)) return "";
  const wide = 100 / levels.length;
  const parts = levels.map((level, k) => {
    const color = css(mixed(toward(several[k].color), level / LEVELS));
    return `${color} ${(k * wide).toFixed(1)}% ${((k + 1) * wide).toFixed(1)}%`;
  });
  return `--heads: "${levels.join(" ")}"; background-image: linear-gradient(90deg, ${parts.join(", ")})`;
}
