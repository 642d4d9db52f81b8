// Objects in an image: their boxes, where each of them looked, and where the image was read from each of its places.

const DARK = "#1d1f23"; // around what is drawn, so that it is seen on any image
const STRONGEST = 0.45; // how much the color of the largest weight covers of the image
const LARGEST_DOT = 9; // radius in pixels
const NAMED = 12; // more objects than these have their names beside the image only
const BELOW = 40; // pixels for the bar of colors

/** The attentions around an image with objects: those of the objects, and those of the image to itself, whose regions may be others. */
function ofObjects() {
  const { attention } = state;
  const hasBoxes = (key) => Boolean(trace.axes[key].boxes);
  const pictured = (key) => trace.axes[key].image?.block ?? key; // the same image is one block
  const same = (first, second) => first === second || pictured(first) === pictured(second);
  const reading = trace.attentions.filter((each) => hasBoxes(each.target) && trace.axes[each.source].grid);
  const first = reading.find((each) => same(each.source, attention.source) || each.target === attention.target);
  if (!first) return null;
  const { source, target: objectsKey } = first;
  const deepest = (list) => list.reduce((best, each) => (best && (best.layer ?? -1) > (each.layer ?? -1) ? best : each), null);
  return {
    image: trace.axes[attention.source].grid ? trace.axes[attention.source] : trace.axes[source],
    objects: trace.axes[objectsKey],
    objectsKey,
    ofBoxes: deepest(reading.filter((each) => each.target === objectsKey)),
    ofPlaces: deepest(trace.attentions.filter((each) => each.source === each.target && trace.axes[each.source].grid && same(each.source, source))),
  };
}

class BoxesView {
  constructor(place) {
    Object.assign(this, ofObjects());
    this.hues = huesOf(this.objects.labels);
    this.mode = state.attention.target === this.objectsKey ? "objects" : "places";
    this.dots = null;
    this.caption = make("p", { class: "caption" });
    this.canvas = make("canvas", { class: "drawing", tabindex: "0", role: "application", "aria-label": say("boxesLabel", this.objects.labels.length) });
    this.stage = make("div", { class: "stage" }, this.canvas);
    this.chips = this.objects.labels.map((_, index) =>
      make("button", { type: "button", role: "option", onclick: () => this.take(index) }, swatch(this.hues[index]), textOf(this.objects, index)),
    );
    this.list = make("div", { class: "chips", role: "listbox", "aria-label": named(this.objects.title) }, ...this.chips);
    const way = (mode, turn) =>
      make("button", { type: "button", "aria-pressed": this.mode === mode, text: say(`${mode}Read`), onclick: () => this.mode !== mode && turn() });
    const ways = [way("objects", () => this.turn(this.ofBoxes)), way("places", () => this.look(...this.middle(), "focus"))];
    this.ways = this.ofPlaces && this.ofBoxes ? make("div", { class: "ways", role: "group" }, ...ways) : "";
    this.readout = make("p", { class: "readout" });
    place.append(make("div", { class: "boxed" }, this.ways, this.caption, this.stage, this.readout, this.list, make("p", { class: "about", text: say(`${this.mode}Hint`, Boolean(this.ofPlaces)) })));
    this.canvas.addEventListener("pointermove", (event) => this.at(event, "hover"));
    this.canvas.addEventListener("click", (event) => this.at(event, "click"));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.draw = framed(() => this.canvas.isConnected && this.paint());
    this.unpackPoints();
  }

  async unpackPoints() {
    const { points, heads } = state.attention;
    if (!points || state.head >= heads) return;
    this.dots = new Float32Array(await kept(points.block));
    this.draw();
  }

  /** Show another attention, and there this row. */
  async turn(attention, row = null, how = "click") {
    await choose(attention, headIn(attention, state.head));
    if (row !== null) view.pointTo(row, how);
  }

  /** Show what is read from a place, given as shares of the image. */
  look(across, down, how) {
    this.turn(this.ofPlaces, regionAt(trace.axes[this.ofPlaces.source].grid, across, down), how);
  }

  /** The middle of the chosen box, or of the image. */
  middle() {
    const [left, top, right, bottom] = this.objects.boxes[state.target ?? 0] ?? [0, 0, 1, 1];
    return [clamp((left + right) / 2, 0, 0.999), clamp((top + bottom) / 2, 0, 0.999)];
  }

  pointTo(row, how) {
    pointFrom("target", row, how);
  }

  take(index) {
    if (this.mode === "objects") this.pointTo(index, "click");
    else if (this.ofBoxes) this.turn(this.ofBoxes, index);
  }

  /** A place as shares of the image, and the smallest box around it. */
  find(x, y) {
    const { width, height } = this.measure();
    const [across, down] = [x / width, y / height];
    if (across < 0 || across >= 1 || down < 0 || down >= 1) return null;
    const size = ([left, top, right, bottom]) => (right - left) * (bottom - top);
    let box = null;
    this.objects.boxes.forEach((each, index) => {
      const [left, top, right, bottom] = each;
      const inside = across >= left && across < right && down >= top && down < bottom;
      if (inside && (box === null || size(each) < size(this.objects.boxes[box]))) box = index;
    });
    return { box, across, down };
  }

  at(event, how) {
    const found = this.find(event.offsetX, event.offsetY);
    if (!found) return;
    const { box, across, down } = found;
    if (this.mode === "places") this.pointTo(regionAt(this.image.grid, across, down), how);
    else if (box !== null) this.pointTo(box, how);
    else if (how === "click" && this.ofPlaces) this.look(across, down, how);
  }

  key(event) {
    const here = state.target ?? 0;
    const line = this.mode === "places" ? this.image.grid[1] : 1;
    const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, ArrowDown: here + line, ArrowUp: here - line, Home: 0, End: Infinity };
    if (event.key === "Enter" || event.key === " ") hold();
    else if (moves[event.key] === undefined) return;
    else {
      letGo();
      this.pointTo(clamp(moves[event.key], 0, matrix.rows - 1), "focus");
    }
    event.preventDefault();
  }

  measure() {
    const shape = this.image.image ? this.image.image.height / this.image.image.width : this.image.grid[0] / this.image.grid[1];
    const room = Math.max(160, this.stage.clientWidth - 4);
    const tall = Math.max(200, innerHeight - 400);
    const width = Math.round(Math.min(room, tall / shape));
    return { width, height: Math.round(width * shape) };
  }

  paint() {
    const { width, height } = this.measure();
    const context = sized(this.canvas, width, height + BELOW);
    context.imageSmoothingEnabled = true;
    const picture = pictureOf(this.image, this.draw);
    if (picture) context.drawImage(picture, 0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(0, 0, width, height);
    context.clip();
    const full = state.target === null ? 0 : this.paintRow(context, width, height, state.target);
    this.paintBoxes(context, width, height);
    context.restore();
    this.paintBar(context, width, height, full);
  }

  /** Draw what a row read; gives the weight that has the full color. */
  paintRow(context, width, height, row) {
    const heads = several.length ? several : [{ head: state.head, matrix, color: null }];
    const fulls = heads.map(({ head, matrix: one, color }) => {
      const stops = color ? toward(color) : STOPS;
      if (this.dots && head < state.attention.heads) return this.paintDots(context, width, height, pointsOf(this.dots, state.attention, head, row), stops, head);
      const full = fullOf(one.reads(row), one);
      if (state.attention.source === this.objectsKey) this.fillBoxes(context, width, height, one.reads(row), full, stops);
      else this.paintMap(context, width, height, one.reads(row), full, stops);
      return full;
    });
    return Math.max(...fulls);
  }

  paintMap(context, width, height, values, full, stops) {
    const [down, across] = this.image.grid;
    const pixels = new Uint8ClampedArray(4 * values.length);
    values.forEach((value, place) => {
      const part = strength(value, full);
      pixels.set([...mixed(stops, part), 255 * STRONGEST * part], 4 * place);
    });
    const small = canvasOf(new Uint32Array(pixels.buffer), across);
    // Half a region wider on each side with its own edge, so that it is linear between the middles and even beyond.
    const wide = document.createElement("canvas");
    [wide.width, wide.height] = [across + 2, down + 2];
    const edged = wide.getContext("2d");
    edged.imageSmoothingEnabled = false;
    for (const [x, y] of [[0, 0], [2, 0], [0, 2], [2, 2], [1, 0], [0, 1], [2, 1], [1, 2], [1, 1]]) {
      edged.clearRect(x, y, across, down);
      edged.drawImage(small, x, y);
    }
    context.drawImage(wide, -width / across, -height / down, (width * (across + 2)) / across, (height * (down + 2)) / down);
    const most = largest(values);
    if (!(most > 0) || most < state.threshold) return;
    const pieces = linesAt(most / 2, values, down, across);
    for (const [color, thick] of [[DARK, 3], ["#ffffff", 1.2]]) {
      [context.strokeStyle, context.lineWidth] = [color, thick];
      context.beginPath();
      for (const [[x, y], [v, w]] of pieces) {
        context.moveTo(x * width, y * height);
        context.lineTo(v * width, w * height);
      }
      context.stroke();
    }
  }

  paintDots(context, width, height, points, stops, head) {
    const full = state.scale === "row" ? largest(points.map(({ weight }) => weight)) : this.largestOf(head);
    const dot = LARGEST_DOT * enlarged();
    for (const { x, y, weight } of points.sort((a, b) => b.weight - a.weight)) {
      if (weight < state.threshold || !(weight > 0)) continue;
      context.beginPath();
      context.arc(x * width, y * height, Math.max(1, dot * Math.sqrt(weight / full)), 0, 2 * Math.PI);
      context.fillStyle = css(mixed(stops, strength(weight, full)));
      context.fill();
      [context.strokeStyle, context.lineWidth] = [DARK, 1];
      context.stroke();
    }
    return full;
  }

  /** The largest weight of a point of any row. */
  largestOf(head) {
    let most = 0;
    for (let row = 0; row < state.attention.rows; row++) {
      for (const { weight } of pointsOf(this.dots, state.attention, head, row)) most = Math.max(most, weight);
    }
    return most;
  }

  edges(index, width, height) {
    const [left, top, right, bottom] = this.objects.boxes[index];
    return [left * width, top * height, (right - left) * width, (bottom - top) * height];
  }

  fillBoxes(context, width, height, values, full, stops) {
    values.forEach((value, index) => {
      const part = strength(value, full);
      context.globalAlpha = STRONGEST * part;
      context.fillStyle = css(mixed(stops, part));
      context.fillRect(...this.edges(index, width, height));
    });
    context.globalAlpha = 1;
  }

  paintBoxes(context, width, height) {
    const chosen = this.mode === "objects" ? state.target : null;
    const order = this.objects.labels.map((_, index) => index).sort((a, b) => (a === chosen) - (b === chosen));
    const all = this.objects.labels.length <= NAMED && width >= 420;
    context.font = `600 ${12 * enlarged()}px ${style("--font")}`;
    for (const index of order) {
      const thick = index === chosen ? 3.5 : 1.5;
      for (const [more, color] of [[1.5, DARK], [0, this.hues[index]]]) {
        [context.lineWidth, context.strokeStyle] = [thick + more, color];
        context.strokeRect(...this.edges(index, width, height));
      }
    }
    for (const index of order) if (all || index === chosen) this.paintLabel(context, index, width, height);
    if (this.mode === "objects" || state.target === null) return;
    const [down, across] = this.image.grid;
    const place = [((state.target % across) * width) / across, (Math.floor(state.target / across) * height) / down, width / across, height / down];
    for (const [thick, color] of [[4, DARK], [2, "#ffffff"]]) {
      [context.lineWidth, context.strokeStyle] = [thick, color];
      context.strokeRect(...place);
    }
  }

  paintLabel(context, index, width, height) {
    const [left, top] = this.edges(index, width, height);
    const high = 17 * enlarged();
    const text = cut(context, textOf(this.objects, index), width - 8);
    const long = context.measureText(text).width + 8;
    const [x, y] = [clamp(left - 1, 0, Math.max(0, width - long)), top - high < 0 ? Math.max(0, top) : top - high];
    context.fillStyle = this.hues[index];
    context.fillRect(x, y, long, high);
    context.fillStyle = "#000000";
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, x + 4, y + high / 2);
  }

  /** The bar of colors with its numbers, and what else is meant. */
  paintBar(context, width, height, full) {
    const [y, high] = [height + 14, 12];
    context.font = `${12 * enlarged()}px ${style("--font")}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = style("--ink");
    const least = context.measureText("0").width + 6;
    context.fillText("0", 0, y + high / 2);
    const long = Math.min(140, width / 3);
    const stops = several.length ? toward(several[0].color) : STOPS;
    for (let k = 0; k < long; k++) {
      const part = (k + 0.5) / long;
      context.fillStyle = css(mixed(stops, state.root ? Math.sqrt(part) : part));
      context.fillRect(least + k, y, 1.5, high);
    }
    [context.strokeStyle, context.lineWidth] = [style("--line"), 1];
    context.strokeRect(least, y, long, high);
    context.fillStyle = style("--ink");
    const most = full > 0 ? number(full) : "–";
    context.fillText(most, least + long + 6, y + high / 2);
    context.fillStyle = style("--quiet");
    const begin = least + long + 18 + context.measureText(most).width;
    const drawnAs = this.dots ? "dotsNote" : state.attention.source === this.objectsKey ? null : "halfNote";
    if (drawnAs) context.fillText(cut(context, say(drawnAs), width - begin), begin, y + high / 2);
  }

  update() {
    const heads = state.together.length ? state.together.map((head) => headName(state.attention, head)).join(", ") : matrixName();
    this.caption.textContent = [named(state.attention.name), heads].filter((part) => part).join(" · ");
    this.point();
  }

  point() {
    const chosen = this.mode === "objects" ? state.target : null;
    this.chips.forEach((chip, index) => chip.setAttribute("aria-selected", index === chosen));
    this.readout.replaceChildren(...(state.target === null ? [] : this.about(chosen)));
    this.draw();
  }

  about(chosen) {
    const parts = [make("b", { text: nameOf("target", state.target) })];
    if (chosen === null) return parts;
    const [high, wide] = this.image.image?.whole ?? [1, 1];
    const [left, top, right, bottom] = this.objects.boxes[chosen];
    const text = (share, size) => (size > 1 ? String(Math.round(share * size)) : share.toFixed(2));
    return [...parts, ` · ${say("edges", text(left, wide), text(top, high), text(right, wide), text(bottom, high))}`];
  }

  resize() {
    this.draw();
  }

  print() {
    this.paint();
  }

  enter() {
    state.target ??= 0;
    if (joined()) state.source = state.target;
    else state.source = null;
  }
}
