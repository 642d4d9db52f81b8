// Numbers: blocks of the page, unpacked when they are needed.

async function unpack(block) {
  const text = atob(byId(`block-${block}`).textContent);
  const packed = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) packed[k] = text.charCodeAt(k);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** What a row and a column have in common for all matrices: weight = byte · scale of its row. */
class Rows {
  /** What one row read. */
  reads(row) {
    return Float32Array.from(this.row(row), (byte) => byte * this.scales[row]);
  }

  /** What each row read of one column. */
  readBy(column) {
    return Float32Array.from(this.scales, (_, row) => this.weight(row, column));
  }

  /** What all rows read of a column on average. */
  ofMeanColumn() {
    if (this.readInAll === undefined) {
      this.readInAll = sumOf(this.rest);
      for (let row = 0; row < this.rows; row++) this.readInAll += sumOf(this.row(row)) * this.scales[row];
    }
    return this.readInAll / this.columns;
  }

  isEmpty(row) {
    return this.scales[row] === 0 && !(this.rest[row] > 0);
  }
}

class Matrix extends Rows {
  constructor(buffer, sparse, rows, columns, apart) {
    super();
    this.rows = rows;
    this.columns = columns;
    this.scales = new Float32Array(buffer, 0, rows);
    this.rest = new Float32Array(buffer, 4 * rows, rows);
    this.sparse = sparse;
    const begin = (8 + 4 * apart.length) * rows;
    if (sparse) this.unpackSteps(buffer, begin, rows, columns);
    else this.bytes = new Uint8Array(buffer, begin);
    if (apart.length) this.mix(apart, new Float32Array(buffer, 8 * rows, apart.length * rows));
    this.largest = 255 * largest(this.scales);
  }

  unpackSteps(buffer, begin, rows, columns) {
    const counts = new Uint32Array(buffer, begin, rows);
    this.starts = new Uint32Array(rows + 1);
    for (let row = 0; row < rows; row++) this.starts[row + 1] = this.starts[row] + counts[row];
    const size = this.starts[rows];
    const wide = columns > 65536;
    const steps = new (wide ? Uint32Array : Uint16Array)(buffer, begin + 4 * rows, size);
    this.places = new Uint32Array(size);
    for (let row = 0; row < rows; row++) {
      let place = 0;
      for (let k = this.starts[row]; k < this.starts[row + 1]; k++) this.places[k] = place += steps[k];
    }
    this.bytes = new Uint8Array(buffer, begin + 4 * rows + steps.byteLength, size);
    this.line = new Uint8Array(columns);
  }

  /** Some columns came apart, as they are. Bytes are those of all columns together from here on; weights stay exact. */
  mix(apart, values) {
    const { rows, columns } = this;
    const fine = { bytes: this.bytes, scales: this.scales, values, slots: new Int16Array(columns).fill(-1) };
    apart.forEach((column, slot) => (fine.slots[column] = slot));
    this.scales = fine.scales.map((scale, row) => apart.reduce((most, _, slot) => Math.max(most, values[slot * rows + row] / 255), scale));
    this.bytes = new Uint8Array(fine.bytes.length);
    for (let row = 0; row < rows; row++) {
      const [from, to] = this.sparse ? [this.starts[row], this.starts[row + 1]] : [row * columns, (row + 1) * columns];
      const factor = 1 / Math.max(1e-30, this.scales[row]);
      for (let k = from; k < to; k++) {
        const slot = fine.slots[this.sparse ? this.places[k] : k - from];
        this.bytes[k] = Math.round((slot < 0 ? fine.bytes[k] * fine.scales[row] : values[slot * rows + row]) * factor);
      }
    }
    this.fine = fine;
  }

  /** The bytes of one row; good until the next call. */
  row(row) {
    if (!this.sparse) return this.bytes.subarray(row * this.columns, (row + 1) * this.columns);
    this.line.fill(0);
    for (let k = this.starts[row]; k < this.starts[row + 1]; k++) this.line[this.places[k]] = this.bytes[k];
    return this.line;
  }

  /** Where the byte of a cell is; −1 for a weight of 0 that has none. */
  place(row, column) {
    if (!this.sparse) return row * this.columns + column;
    let [low, high] = [this.starts[row], this.starts[row + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.places[middle] < column) low = middle + 1;
      else high = middle;
    }
    return low < this.starts[row + 1] && this.places[low] === column ? low : -1;
  }

  weight(row, column) {
    const { bytes, scales, slots, values } = this.fine ?? this;
    if (slots && slots[column] >= 0) return values[slots[column] * this.rows + row];
    const k = this.place(row, column);
    return k < 0 ? 0 : bytes[k] * scales[row];
  }

  reads(row) {
    if (!this.fine) return super.reads(row);
    const { bytes, scales, slots, values } = this.fine;
    const line = new Float32Array(this.columns);
    const [from, to] = this.sparse ? [this.starts[row], this.starts[row + 1]] : [row * this.columns, (row + 1) * this.columns];
    for (let k = from; k < to; k++) {
      const column = this.sparse ? this.places[k] : k - from;
      line[column] = slots[column] < 0 ? bytes[k] * scales[row] : values[slots[column] * this.rows + row];
    }
    return line;
  }
}

/** Rows of bytes that were put together here: one word in all layers, other positions, or the difference of two matrices. */
class MadeMatrix extends Rows {
  constructor(lines, scales, columns, rest = new Float32Array(lines.length)) {
    super();
    Object.assign(this, { lines, scales, columns, rest, rows: lines.length });
    this.largest = 255 * largest(scales);
  }

  row(row) {
    return this.lines[row];
  }

  weight(row, column) {
    return this.lines[row][column] * this.scales[row];
  }
}

/** Second − first; bytes have a sign. */
function difference(first, second) {
  const lines = [];
  const scales = new Float32Array(first.rows);
  for (let row = 0; row < first.rows; row++) {
    const [before, after] = [first.reads(row), second.reads(row)];
    const change = after.map((weight, column) => weight - before[column]);
    const most = largest(change.map(Math.abs));
    scales[row] = most / 255;
    lines.push(Int16Array.from(change, (value) => (most ? Math.round((255 * value) / most) : 0)));
  }
  return new MadeMatrix(lines, scales, first.columns);
}

const slotOf = (attention, head) => (attention.heads > 1 ? head + 1 : head);
const headOf = (attention, slot) => (attention.heads > 1 ? slot - 1 : slot);
const matrices = new Map();

async function matrixOf(attention, head) {
  const slot = slotOf(attention, head);
  const { block, sparse } = attention.matrices[slot];
  const { rows, columns } = attention.whole;
  const found = matrices.get(block) ?? new Matrix(await unpack(block), sparse, rows, columns, attention.apart);
  if (attention.hidden !== null && head < attention.heads) {
    found.hidden = new Float32Array(await kept(attention.hidden)).subarray(slot * rows, (slot + 1) * rows);
  }
  matrices.delete(block);
  matrices.set(block, found); // the last used stands last
  if (matrices.size > KEPT_MATRICES) matrices.delete(matrices.keys().next().value);
  return isLensed() ? throughLens(attention, head, found) : found;
}

const smallBlocks = new Map();

function kept(block) {
  if (!smallBlocks.has(block)) smallBlocks.set(block, unpack(block));
  return smallBlocks.get(block);
}

/** The entropy of each row, of the mean first where there are several heads. */
async function entropiesOf(attention) {
  if (isLensed()) return (await Promise.all(attention.matrices.map((_, slot) => matrixOf(attention, headOf(attention, slot))))).map(entropyOf);
  const all = new Float32Array(await kept(attention.entropy));
  return attention.matrices.map((_, slot) => all.subarray(slot * attention.rows, (slot + 1) * attention.rows));
}
