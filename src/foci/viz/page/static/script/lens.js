// Other positions than those of the trace: pieces joined to words; special tokens and sinks left out. What is left of a
// row is scaled to its former sum, and the share of what is hidden stands beside the row. As Trace.hide and then
// Trace.join_words: sums over what is read, means over those that read.

const LENSES = {
  words: (axis) => axis.words !== null,
  special: (axis) => axis.special.length > 0,
  sinks: (axis) => axis.sinks.length > 0,
};
const WORDED = ["tokens", "document"];

/** What the trace has, kept while others stand in its place. */
const wholeAxes = { ...trace.axes };
for (const attention of trace.attentions) attention.whole = { rows: attention.rows, columns: attention.columns };

const lensMatters = (name) => Object.values(wholeAxes).some(LENSES[name]);
const isLensed = () => Object.values(state.lens).some((on) => on);

/** The new positions of an axis, each a list of old ones, and the old ones that are hidden. */
function positionsOf(axis) {
  const { words, special, sinks } = state.lens;
  const sizes = words && axis.words ? axis.words.map(([, pieces]) => pieces) : axis.labels.map(() => 1);
  const hidden = new Set([...(special ? axis.special : []), ...(sinks ? axis.sinks : [])]);
  let start = 0;
  const groups = sizes.map((size) => Array.from({ length: size }, () => start++));
  const left = groups.map((group) => group.filter((place) => !hidden.has(place) || !isWorded(axis, place))).filter((group) => group.length);
  return left.length ? { groups: left, hidden } : { groups, hidden: new Set() };
}

/** Whether a position is a word or a piece of one; others have their places in a picture and stay there. */
const isWorded = (axis, place) => WORDED.includes(partAt(axis, place).axis.kind);

function lensedAxis(axis, { groups }) {
  const nameOf = new Map();
  let start = 0;
  for (const [label, pieces] of state.lens.words && axis.words ? axis.words : []) {
    for (let k = 0; k < pieces; k++) nameOf.set(start++, label);
  }
  const label = (group) => nameOf.get(group[0]) ?? axis.labels[group[0]];
  const shown = {};
  groups.forEach((group, index) => {
    if (!nameOf.has(group[0]) && axis.shown[group[0]] !== undefined) shown[index] = axis.shown[group[0]];
  });
  let sentences = null;
  if (axis.sentences) {
    let end = 0;
    const ends = axis.sentences.map((size) => (end += size));
    sentences = ends.map((last, k) => groups.filter(([place]) => place < last && place >= (k ? ends[k - 1] : 0)).length);
  }
  return { ...axis, labels: groups.map(label), shown, sentences, parts: axis.parts ? lensedParts(axis.parts, groups, label, shown) : undefined };
}

/** The parts of a mixed axis, each with the positions that it has left. */
function lensedParts(parts, groups, label, shown) {
  let end = 0;
  return parts.map((part) => {
    const begin = end;
    while (end < groups.length && groups[end][0] < part.end) end += 1;
    const own = Array.from({ length: end - begin }, (_, index) => begin + index);
    const visible = own.filter((place) => shown[place] !== undefined).map((place) => [place - begin, shown[place]]);
    return { ...part, begin, end, labels: own.map((place) => label(groups[place])), shown: Object.fromEntries(visible) };
  }).filter((part) => part.end > part.begin);
}

const lenses = new Map(); // of each axis, its positions
const lensed = new Map(); // matrices by block

/** Let the page show the trace with these switches on; gives where old positions are now. */
function setLens(lens) {
  state.lens = lens;
  lenses.clear();
  lensed.clear();
  for (const [key, axis] of Object.entries(wholeAxes)) {
    lenses.set(key, positionsOf(axis));
    trace.axes[key] = isLensed() ? lensedAxis(axis, lenses.get(key)) : axis;
  }
  for (const attention of trace.attentions) {
    attention.rows = trace.axes[attention.target].labels.length;
    attention.columns = trace.axes[attention.source].labels.length;
  }
}

/** A position after the lens has changed: that of the same old one. */
function moved(key, index, before) {
  if (index === null) return null;
  const old = before.get(key).groups[index]?.[0];
  const found = lenses.get(key).groups.findIndex((group) => group.includes(old));
  return found < 0 ? null : found;
}

/** The matrix through the lens. Further maps, such as the rollout, are no shares: they are not scaled. */
function throughLens(attention, head, whole) {
  const { block } = attention.matrices[slotOf(attention, head)];
  if (!lensed.has(block)) {
    // Each head is scaled for itself, and the mean is that of the heads.
    const ofHeads = head < 0 && lenses.get(attention.source).hidden.size > 0;
    lensed.set(block, ofHeads ? meanOfHeads(attention) : regrouped(attention, whole, head < attention.heads));
  }
  return lensed.get(block);
}

async function meanOfHeads(attention) {
  const all = await Promise.all(Array.from({ length: attention.heads }, (_, head) => matrixOf(attention, head)));
  const over = (lines) => lines[0].map((_, place) => lines.reduce((sum, line) => sum + line[place], 0) / lines.length);
  const sums = Array.from(all[0].scales, (_, row) => over(all.map((one) => one.reads(row))));
  const made = madeOf(sums, attention.columns, over(all.map((one) => one.rest)));
  made.hidden = over(all.map((one) => one.hidden));
  return made;
}

/** Rows of weights as a matrix of bytes. */
function madeOf(sums, columns, rest) {
  const scales = Float32Array.from(sums, (row) => largest(row) / 255);
  return new MadeMatrix(sums.map((row, index) => Uint8Array.from(row, (value) => (scales[index] ? Math.round(value / scales[index]) : 0))), scales, columns, rest);
}

function regrouped(attention, whole, isShare) {
  const [rows, columns] = [lenses.get(attention.target), lenses.get(attention.source)];
  const home = new Int32Array(whole.columns).fill(-1);
  columns.groups.forEach((group, index) => group.forEach((place) => (home[place] = index)));
  for (const place of columns.hidden) home[place] = -1;
  const size = columns.groups.length;
  const lines = [];
  const [rest, hidden] = [0, 0].map(() => new Float32Array(rows.groups.length));
  rows.groups.forEach((group, index) => {
    const sums = new Float64Array(size);
    for (const row of group) {
      const values = whole.reads(row);
      const gone = isShare ? [...columns.hidden].reduce((sum, place) => sum + values[place], 0) : 0;
      const before = values.reduce((sum, value) => sum + value, 0) + whole.rest[row];
      const left = before - gone > 1e-6 * before;
      const factor = (gone ? (left ? before / (before - gone) : 0) : 1) / group.length;
      values.forEach((value, place) => {
        if (home[place] >= 0) sums[home[place]] += value * factor;
      });
      rest[index] += whole.rest[row] * factor;
      const already = whole.hidden?.[row] ?? 0;
      hidden[index] += (already + (1 - already) * (before > 0 ? gone / before : 0)) / group.length;
    }
    lines.push(sums);
  });
  const made = madeOf(lines, size, rest);
  made.hidden = isShare && (columns.hidden.size || whole.hidden) ? hidden : null;
  return made;
}

/** The entropy of each row of a matrix through the lens; unknown where weights were left out. */
function entropyOf(shown) {
  return Float32Array.from(shown.scales, (_, row) => {
    const values = shown.reads(row);
    const total = values.reduce((sum, value) => sum + value, 0);
    if (!(total > 0) || shown.rest[row] > 1e-6) return NaN;
    return -values.reduce((sum, value) => (value > 0 ? sum + (value / total) * Math.log(value / total) : sum), 0);
  });
}

/** Small pictures of all heads: {height, width, bytes}; a cell is the largest of those it stands for. */
async function thumbnailsOf(attention) {
  const { height, width, block } = attention.thumbnails;
  if (!isLensed()) return { height, width, bytes: new Uint8Array(await kept(block)) };
  const shown = await Promise.all(attention.matrices.map((_, slot) => matrixOf(attention, headOf(attention, slot))));
  const [down, across] = [Math.min(attention.rows, THUMBNAIL), Math.min(attention.columns, THUMBNAIL)];
  const bytes = new Uint8Array(shown.length * down * across);
  shown.forEach((one, slot) => {
    for (let row = 0; row < one.rows; row++) {
      const line = one.row(row);
      const top = slot * down * across + Math.floor((row * down) / one.rows) * across;
      for (let column = 0; column < one.columns; column++) {
        const k = top + Math.floor((column * across) / one.columns);
        bytes[k] = Math.max(bytes[k], Math.round((255 * line[column] * one.scales[row]) / Math.max(1e-30, one.largest)));
      }
    }
  });
  return { height: down, width: across, bytes };
}

/** The switches that would change something, each with what it leaves out. */
function wireLenses(changed) {
  for (const name of Object.keys(LENSES)) {
    byId(`lens-${name}-field`).hidden = !lensMatters(name);
    byId(`lens-${name}`).addEventListener("change", (event) => {
      const before = new Map(lenses);
      setLens({ ...state.lens, [name]: event.target.checked });
      changed((key, index) => moved(key, index, before));
    });
  }
}

function showLenses() {
  for (const name of Object.keys(LENSES)) {
    byId(`lens-${name}`).checked = state.lens[name];
    if (name === "words") continue;
    const places = (axis) => axis[name].map((place) => textOf(axis, place));
    byId(`lens-${name}-field`).title = [...new Set(Object.values(wholeAxes).flatMap(places))].join(", ");
  }
}

/** How much of the rows lies on what is hidden, in the mean; null where nothing is. */
const hiddenShare = () => (matrix.hidden ? mean([...matrix.hidden]) : null);
const percent = (share) => `${Math.round(100 * share)} %`;
