// Objects in an image: their hues, the points that they read, and lines around what they read.

const regionAt = ([rows, columns], across, down) => Math.floor(down * rows) * columns + Math.floor(across * columns);

/** A hue for each class: the label of an object without its probability. */
function huesOf(labels) {
  const classes = labels.map((label) => label.replace(/(.) (\d+\.?\d*|\.\d+)$/, "$1"));
  const known = [...new Set(classes)];
  return classes.map((each) => trace.colors.hues[known.indexOf(each) % trace.colors.hues.length]);
}

/** The points that a row read, with the weights of the head, or of all, which are then divided by their number. */
function pointsOf(all, { heads, rows, points }, head, row) {
  const found = [];
  for (let each = 0; each < heads; each++) {
    if (head >= 0 && each !== head) continue;
    for (let k = 0; k < points.count; k++) {
      const place = 3 * ((each * rows + row) * points.count + k);
      found.push({ x: all[place], y: all[place + 1], weight: all[place + 2] / (head < 0 ? heads : 1) });
    }
  }
  return found;
}

/** The lines on which a map, linear between the middles of its regions, has a value: pieces in shares of the image. */
function linesAt(level, values, down, across) {
  const at = (row, column) => values[clamp(row, 0, down - 1) * across + clamp(column, 0, across - 1)];
  const steps = 4;
  const value = (y, x) => {
    const [row, column] = [Math.floor(y), Math.floor(x)];
    const [below, beside] = [y - row, x - column];
    const line = (k) => at(k, column) * (1 - beside) + at(k, column + 1) * beside;
    return line(row) * (1 - below) + line(row + 1) * below;
  };
  const pieces = [];
  const [high, wide] = [down * steps, across * steps];
  const grid = Array.from({ length: high + 1 }, (_, k) => Float64Array.from({ length: wide + 1 }, (_, j) => value(k / steps - 0.5, j / steps - 0.5)));
  for (let k = 0; k < high; k++) {
    for (let j = 0; j < wide; j++) {
      const corners = [[k, j], [k, j + 1], [k + 1, j + 1], [k + 1, j]];
      const ends = [];
      corners.forEach(([y, x], side) => {
        const [v, w] = corners[(side + 1) % 4];
        const [from, to] = [grid[y][x], grid[v][w]];
        if (from >= level === to >= level) return;
        const part = (level - from) / (to - from);
        ends.push([(x + (w - x) * part) / wide, (y + (v - y) * part) / high]);
      });
      for (let end = 0; end + 1 < ends.length; end += 2) pieces.push([ends[end], ends[end + 1]]);
    }
  }
  return pieces;
}
