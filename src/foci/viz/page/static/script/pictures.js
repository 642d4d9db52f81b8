// Images and recordings as canvases, and small pictures of regions.

const pictures = new Map();

/** The image of an axis as a canvas, or null until it is unpacked; then `redraw` is called. */
function pictureOf(axis, redraw) {
  if (!axis.image) return null;
  if (!pictures.has(axis)) pictures.set(axis, { canvas: null, waiting: [] });
  const entry = pictures.get(axis);
  if (entry.canvas) return entry.canvas;
  entry.waiting.push(redraw);
  if (entry.waiting.length === 1) {
    kept(axis.image.block).then((buffer) => {
      const [colors, { width, height }] = [new Uint8Array(buffer), axis.image];
      entry.canvas = canvasOf(Uint32Array.from({ length: width * height }, (_, k) => pixel(colors[3 * k], colors[3 * k + 1], colors[3 * k + 2])), width);
      for (const one of new Set(entry.waiting)) one();
    });
  }
  return null;
}

const hasThumbnails = (axis) => Boolean((axis.image && axis.grid) || axis.parts?.some(hasThumbnails));

/** Draw the region into a square of this size; gives whether there was anything to draw yet. */
function paintThumbnail(context, whole, place, x, y, size, redraw) {
  const { axis, index } = partAt(whole, place);
  const picture = hasThumbnails(axis) ? pictureOf(axis, redraw) : null;
  if (!picture) return false;
  const [down, across] = axis.grid;
  const [row, column] = [Math.floor(index / across), index % across];
  const [wide, high] = [picture.width / across, picture.height / down];
  const cut = [column * wide, row * high, Math.max(1, wide), Math.max(1, high)];
  context.drawImage(picture, ...cut, x, y, size, size);
  return true;
}

/** The same as an element, for lists. */
function thumbnail(side, place) {
  const { axis, index } = partAt(axisOf(side), place);
  if (!hasThumbnails(axis)) return null;
  const canvas = make("canvas", { class: "thumb", "aria-hidden": "true" });
  const paint = () => paintThumbnail(sized(canvas, 20, 20), axis, index, 0, 0, 20, paint);
  paint();
  return canvas;
}
