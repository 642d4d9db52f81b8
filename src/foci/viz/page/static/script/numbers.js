// Numbers: blocks of the page, unpacked when they are needed.

async function unpack(block) {
  const text = atob(byId(`block-${block}`).textContent);
  const packed = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) packed[k] = text.charCodeAt(k);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

class Matrix {
  constructor(buffer, sparse, rows, columns) {
    this.rows = rows;
    this.columns = columns;
    this.scales = new Float32Array(buffer, 0, rows); // weight = byte · scale of its row
    this.rest = new Float32Array(buffer, 4 * rows, rows);
    this.sparse = sparse;
    this.largest = 255 * largest(this.scales);
    if (!sparse) {
      this.bytes = new Uint8Array(buffer, 8 * rows);
      return;
    }
    const counts = new Uint32Array(buffer, 8 * rows, rows);
    this.starts = new Uint32Array(rows + 1);
    for (let row = 0; row < rows; row++) this.starts[row + 1] = this.starts[row] + counts[row];
    const size = this.starts[rows];
    const wide = columns > 65536;
    const steps = new (wide ? Uint32Array : Uint16Array)(buffer, 12 * rows, size);
    this.places = new Uint32Array(size);
    for (let row = 0; row < rows; row++) {
      let place = 0;
      for (let k = this.starts[row]; k < this.starts[row + 1]; k++) this.places[k] = place += steps[k];
    }
    this.bytes = new Uint8Array(buffer, 12 * rows + steps.byteLength, size);
    this.line = new Uint8Array(columns);
  }

  /** The bytes of one row; good until the next call. */
  row(row) {
    if (!this.sparse) return this.bytes.subarray(row * this.columns, (row + 1) * this.columns);
    this.line.fill(0);
    for (let k = this.starts[row]; k < this.starts[row + 1]; k++) this.line[this.places[k]] = this.bytes[k];
    return this.line;
  }

  byte(row, column) {
    if (!this.sparse) return this.bytes[row * this.columns + column];
    let [low, high] = [this.starts[row], this.starts[row + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.places[middle] < column) low = middle + 1;
      else high = middle;
    }
    return low < this.starts[row + 1] && this.places[low] === column ? this.bytes[low] : 0;
  }

  weight(row, column) {
    return this.byte(row, column) * this.scales[row];
  }

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

/** Rows of bytes that were put together here: one word in all layers, or the difference of two matrices. */
class MadeMatrix {
  constructor(lines, scales, columns) {
    Object.assign(this, { lines, scales, columns, rows: lines.length });
    this.rest = new Float32Array(lines.length);
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
  const { block, sparse } = attention.matrices[slotOf(attention, head)];
  const found = matrices.get(block) ?? new Matrix(await unpack(block), sparse, attention.rows, attention.columns);
  matrices.delete(block);
  matrices.set(block, found); // the last used stands last
  if (matrices.size > KEPT_MATRICES) matrices.delete(matrices.keys().next().value);
  return found;
}

const smallBlocks = new Map();

function kept(block) {
  if (!smallBlocks.has(block)) smallBlocks.set(block, unpack(block));
  return smallBlocks.get(block);
}

/** The entropy of each row, of the mean first where there are several heads. */
async function entropiesOf(attention) {
  const all = new Float32Array(await kept(attention.entropy));
  return attention.matrices.map((_, slot) => all.subarray(slot * attention.rows, (slot + 1) * attention.rows));
}
