// A matrix as colored cells.

const SMALLEST_FULL = 40; // a cell that fits may be as large as this, on large screens larger
const STRETCHED = 200; // the longest side of a cell that fills what room there is

/** A side of a map: how it is called, and its labels. */
function mapSide(side, attention = state.attention) {
  const axis = axisOf(side, attention);
  return { title: titleOf(side, attention), axis, label: (index) => labelOf(side, index, attention), mirrored: axis.rightToLeft };
}

/** Where a map begins that points at no cell yet: at the strongest of a row. */
function enterCell() {
  state.target ??= 0;
  state.source ??= strongest(matrix.reads(state.target), 1).places[0] ?? 0;
}

/** What the heat map shows of the attention that was chosen. */
function chosenSubject() {
  return {
    matrix,
    layers: several.length ? several.map((one) => ({ matrix: one.matrix, stops: toward(one.color) })) : [{ matrix, stops: STOPS }],
    target: mapSide("target"),
    source: mapSide("source"),
    swapped: state.swapped ?? axisOf("target").kind === "steps",
    caption: (down, across, swapped) => tell("axes", down, across, swapped),
    current: () => [state.target, state.source],
  };
}

class HeatView extends ScrolledView {
  enter = enterCell;

  constructor(place, label = say("heatLabel", titleOf("target"), titleOf("source"))) {
    super(place, label);
    this.zoom = 1; // 1: as large as fits
    const button = (text, label, onclick) => make("button", { type: "button", text, "aria-label": label, title: label, onclick });
    this.legend = make("span", { class: "legend" });
    this.strip.append(
      this.legend,
      button("⇄", say("swap"), () => {
        state.swapped = !this.subject.swapped;
        this.update();
      }),
      button("−", say("zoomOut"), () => this.scale(1 / 1.5)),
      button("+", say("zoomIn"), () => this.scale(1.5)),
      button(say("fit"), say("fit"), () => {
        this.zoom = 1;
        this.update();
      }),
    );
    this.scroller.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = this.base.getBoundingClientRect();
      this.scale(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
  }

  choose() {
    return chosenSubject();
  }

  get down() {
    return this.subject.swapped ? this.subject.source : this.subject.target;
  }

  get across() {
    return this.subject.swapped ? this.subject.target : this.subject.source;
  }

  measure() {
    const { matrix: shown, swapped } = this.subject;
    [this.rows, this.columns] = swapped ? [shown.columns, shown.rows] : [shown.rows, shown.columns];
    const { width, height } = this.room;
    const context = this.base.getContext("2d");
    context.save();
    context.font = this.font;
    const widest = (axis, count) => {
      let most = hasThumbnails(axis.axis) ? 48 : 0;
      const step = Math.ceil(count / 400); // a look at some of very many
      for (let k = 0; k < count; k += step) most = Math.max(most, context.measureText(axis.label(k)).width);
      return most;
    };
    this.left = Math.ceil(clamp(widest(this.down, this.rows) + 20, 36, Math.min(240, 0.34 * width)));
    this.slant = clamp(widest(this.across, this.columns), 14, 130);
    context.restore();
    this.pictured = hasThumbnails(this.across.axis) && this.across.axis.parts ? 16 : 0; // words stand above the small pictures
    this.top = Math.ceil(this.slant * 0.71 + 22 + this.pictured);
    this.right = Math.ceil(this.slant * 0.71 + 10);
    const fits = [(width - this.left - this.right) / Math.max(1, this.columns), (height - this.top - 10) / Math.max(1, this.rows)];
    const full = Math.max(SMALLEST_FULL, Math.min(width, height) / 12);
    // Where one side is squeezed, cells need not be square: the other side takes the room there is.
    const most = Math.min(...fits) < full ? STRETCHED : full;
    this.fitting = fits.map((size) => clamp(size, 0.02, most));
    [this.wide, this.high] = this.fitting.map((size) => clamp(size * this.zoom, size, Math.max(size, full)));
    this.mirrored = this.across.mirrored;
    this.stretch(
      Math.max(width, this.left + this.columns * this.wide + this.right), Math.max(height, this.top + this.rows * this.high + 10),
    );
  }

  get font() {
    return `${12 * enlarged()}px ${style("--font")}`;
  }

  scale(factor, x = this.room.width / 2, y = this.room.height / 2) {
    const { scroller } = this;
    const place = [(scroller.scrollLeft + x - this.left) / this.wide, (scroller.scrollTop + y - this.top) / this.high];
    this.zoom = clamp(this.zoom * factor, 1, Math.max(1, SMALLEST_FULL / Math.min(...this.fitting)));
    this.measure();
    scroller.scrollLeft = place[0] * this.wide + this.left - x;
    scroller.scrollTop = place[1] * this.high + this.top - y;
    this.draw();
  }

  /** Where a column stands: from the right where the text runs from there. */
  column(place) {
    return this.mirrored ? this.columns - 1 - place : place;
  }

  find(x, y) {
    const { scroller } = this;
    const row = Math.floor((y + scroller.scrollTop - this.top) / this.high);
    const column = Math.floor((x + scroller.scrollLeft - this.left) / this.wide);
    const onRow = y >= this.top && row >= 0 && row < this.rows;
    const onColumn = x >= this.left && column >= 0 && column < this.columns;
    if (!onRow || !onColumn) return null;
    const pair = [row, this.column(column)];
    return this.subject.swapped ? pair.reverse() : pair;
  }

  /** The cell that is pointed at, as [row, column] of the drawing; null where there is none. */
  get current() {
    const pair = this.subject.current();
    return this.subject.swapped ? pair.reverse() : pair;
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-20, 0], PageDown: [20, 0] };
    const move = moves[event.key];
    if (event.key === "Enter" || event.key === " ") hold();
    else if (event.key === "+" || event.key === "=") this.scale(1.5);
    else if (event.key === "-") this.scale(1 / 1.5);
    else if (move && this.rows && this.columns) {
      letGo();
      const [down, across] = this.current;
      const row = clamp((down ?? 0) + move[0], 0, this.rows - 1);
      const column = clamp((across ?? 0) + (this.mirrored ? -move[1] : move[1]), 0, this.columns - 1);
      this.pick(...(this.subject.swapped ? [column, row] : [row, column]), "focus");
      const [left, top] = [this.left + this.column(column) * this.wide, this.top + row * this.high];
      this.reveal(left, top, this.wide, this.high, this.left, this.top);
    } else return;
    event.preventDefault();
  }

  update() {
    this.subject = this.choose();
    this.colors = this.subject.layers.map(({ stops }) => ramp(stops));
    this.negative = ramp(READ_BY);
    this.caption.textContent = this.subject.caption(this.down.title, this.across.title, this.subject.swapped);
    this.paintLegend();
    this.tell();
    this.measure(); // the texts around it are there, and take their room
    if (this.mirrored && !this.turned) this.scroller.scrollLeft = this.extent.offsetWidth;
    this.turned = true;
    this.draw();
  }

  point() {
    this.tell();
    this.drawOver();
  }

  get largest() {
    return Math.max(...this.subject.layers.map((layer) => layer.matrix.largest));
  }

  paintLegend() {
    const most = state.scale === "row" ? say("byRow") : number(this.largest);
    const along = (colors) => Uint32Array.from({ length: 128 }, (_, k) => colors[Math.floor((k / 127) * (SHADES - 1))]);
    const bar = (colors) => canvasOf(along(colors), 128, { "aria-hidden": "true" });
    const bars = this.colors.map(bar);
    // Of a difference the scale runs from less over 0 to more.
    const less = this.subject.signed ? [make("span", { text: `−${most}` }), bar(Uint32Array.from(this.negative).reverse())] : [];
    this.legend.classList.toggle("many", bars.length > 1);
    this.legend.replaceChildren(...less, make("span", { text: "0" }), ...bars, make("span", { text: most }));
  }

  /** The visible cells as a picture of one pixel a cell, or, of cells smaller than a pixel, the largest in each. */
  picture(firstRow, lastRow, firstColumn, lastColumn) {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [shrinkX, shrinkY] = [this.wide, this.high].map((size) => Math.max(1, Math.floor(1 / (size * ratio))));
    const wide = Math.ceil((lastColumn - firstColumn) / shrinkX);
    const high = Math.ceil((lastRow - firstRow) / shrinkY);
    const strengths = new Int16Array(wide * high);
    const strongestLayer = new Uint8Array(wide * high);
    const { swapped, layers } = this.subject;
    const [fromTarget, toTarget, alongShrink] = swapped ? [firstColumn, lastColumn, shrinkX] : [firstRow, lastRow, shrinkY];
    const [fromSource, toSource, otherShrink] = swapped ? [firstRow, lastRow, shrinkY] : [firstColumn, lastColumn, shrinkX];
    const mirrored = this.mirrored && !swapped;
    layers.forEach(({ matrix: shown }, layer) => {
      for (let shownTarget = fromTarget; shownTarget < toTarget; shownTarget++) {
        const target = swapped ? this.column(shownTarget) : shownTarget;
        const scale = shown.scales[target];
        const factor = state.scale === "row" ? (SHADES - 1) / 255 : (scale / Math.max(1e-30, this.largest)) * (SHADES - 1);
        const least = Math.max(1, Math.ceil(state.threshold / Math.max(scale, 1e-30)));
        const line = shown.row(target);
        const along = Math.floor((shownTarget - fromTarget) / alongShrink);
        for (let shownSource = fromSource; shownSource < toSource; shownSource++) {
          const byte = line[mirrored ? this.columns - 1 - shownSource : shownSource];
          const size = byte < 0 ? -byte : byte;
          if (size < least) continue;
          const other = Math.floor((shownSource - fromSource) / otherShrink);
          const k = swapped ? other * wide + along : along * wide + other;
          const part = size * factor;
          if (part > Math.abs(strengths[k])) {
            strengths[k] = byte < 0 ? -part : part;
            strongestLayer[k] = layer;
          }
        }
      }
    });
    const pixels = new Uint32Array(wide * high);
    for (let k = 0; k < pixels.length; k++) pixels[k] = strengths[k] < 0 ? this.negative[-strengths[k]] : this.colors[strongestLayer[k]][strengths[k]];
    return { canvas: canvasOf(pixels, wide), width: wide * shrinkX * this.wide, height: high * shrinkY * this.high };
  }

  x(column) {
    return this.left + column * this.wide - this.offset.scrollLeft;
  }

  y(row) {
    return this.top + row * this.high - this.offset.scrollTop;
  }

  paint(context) {
    const { width, height } = this.room;
    if (!this.rows || !this.columns) return;
    const { scrollLeft, scrollTop } = this.offset;
    const { left, top } = this;
    const firstRow = clamp(Math.floor(scrollTop / this.high), 0, this.rows - 1);
    const lastRow = clamp(Math.ceil((scrollTop + height - top) / this.high), firstRow + 1, this.rows);
    const firstColumn = clamp(Math.floor(scrollLeft / this.wide), 0, this.columns - 1);
    const lastColumn = clamp(Math.ceil((scrollLeft + width - left) / this.wide), firstColumn + 1, this.columns);
    context.save();
    context.beginPath();
    context.rect(left - 1, top - 1, width - left + 1, height - top + 1);
    context.clip();
    const image = this.picture(firstRow, lastRow, firstColumn, lastColumn);
    context.drawImage(image.canvas, this.x(firstColumn), this.y(firstRow), image.width, image.height);
    context.strokeStyle = style("--line");
    context.lineWidth = 1;
    context.strokeRect(this.x(0) - 0.5, this.y(0) - 0.5, this.columns * this.wide + 1, this.rows * this.high + 1);
    if (this.wide >= 30 && this.high >= 18) this.paintNumbers(context, firstRow, lastRow, firstColumn, lastColumn);
    context.restore();
    this.paintLabels(context, firstRow, lastRow, firstColumn, lastColumn);
  }

  paintNumbers(context, firstRow, lastRow, firstColumn, lastColumn) {
    const { swapped, layers } = this.subject;
    context.font = `${10.5 * enlarged()}px ${style("--font")}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = firstRow; row < lastRow; row++) {
      for (let column = firstColumn; column < lastColumn; column++) {
        const [target, source] = swapped ? [this.column(column), row] : [row, this.column(column)];
        const sizes = layers.map((layer) => Math.abs(layer.matrix.weight(target, source)));
        const { matrix: shown, stops } = layers[sizes.indexOf(Math.max(...sizes))];
        const weight = shown.weight(target, source);
        if (Math.abs(weight) < Math.max(state.threshold, 0.005)) continue;
        const full = state.scale === "row" ? 255 * shown.scales[target] : this.largest;
        context.fillStyle = inkOn(mixed(weight < 0 ? READ_BY : stops, strength(Math.abs(weight), full)));
        context.fillText(weight.toFixed(2).replace(/^(-?)0/, "$1"), this.x(column) + this.wide / 2, this.y(row) + this.high / 2);
      }
    }
  }

  paintLabels(context, firstRow, lastRow, firstColumn, lastColumn) {
    const { width, height } = this.room;
    const { left, top } = this;
    context.font = this.font;
    context.textBaseline = "middle";
    const ink = style("--ink");
    context.save();
    context.beginPath();
    const above = this.offset.scrollTop > 0 ? 0 : 8; // half a letter, where no row was scrolled away
    context.rect(0, top - above, left, height - top + above);
    context.clip();
    context.textAlign = "right";
    context.fillStyle = ink;
    const downwards = Math.max(1, Math.ceil((15 * enlarged()) / this.high));
    for (let row = Math.ceil(firstRow / downwards) * downwards; row < lastRow; row += downwards) {
      const y = this.y(row) + this.high / 2;
      const size = clamp(this.high * downwards - 2, 12, 28);
      const drawn = paintThumbnail(context, this.down.axis, row, left - 8 - size, y - size / 2, size, this.draw);
      const end = left - 8 - (drawn ? size + 4 : 0);
      context.fillText(cut(context, this.down.label(row), end - 10), end, y);
    }
    context.restore();
    context.save();
    context.beginPath();
    context.rect(left - 14, 0, width - left + 14, top);
    context.clip();
    context.textAlign = "left";
    context.fillStyle = ink;
    const sideways = Math.max(1, Math.ceil((15 * enlarged()) / this.wide));
    for (let column = Math.ceil(firstColumn / sideways) * sideways; column < lastColumn; column += sideways) {
      const index = this.column(column);
      const x = this.x(column) + this.wide / 2;
      const size = clamp(this.wide * sideways - 2, 12, 28);
      if (paintThumbnail(context, this.across.axis, index, x - size / 2, top - 5 - size, size, this.draw)) continue;
      context.save();
      context.translate(x + 2, top - 7 - this.pictured);
      context.rotate(-Math.PI / 4);
      context.fillText(cut(context, this.across.label(index), this.slant), 0, 0);
      context.restore();
    }
    context.restore();
  }

  paintOver(context) {
    const { width, height } = this.room;
    if (!this.rows || !this.columns) return;
    const [row, column] = this.current;
    const { left, top } = this;
    context.save();
    context.strokeStyle = style("--mark");
    context.beginPath();
    context.rect(left - 1, top - 1, width - left + 1, height - top + 1);
    context.clip();
    const [wide, high] = [Math.max(this.wide, 3), Math.max(this.high, 3)];
    context.lineWidth = 1;
    const edgeX = Math.min(width, this.x(this.columns));
    const edgeY = Math.min(height, this.y(this.rows));
    context.globalAlpha = 0.55;
    if (row !== null) context.strokeRect(left - 0.5, this.y(row) - 0.5, edgeX - left + 1, high + 1);
    if (column !== null) context.strokeRect(this.x(this.column(column)) - 0.5, top - 0.5, wide + 1, edgeY - top + 1);
    if (row !== null && column !== null) {
      context.globalAlpha = 1;
      context.lineWidth = state.pinned ? 3 : 2;
      context.strokeStyle = "#e0302a"; // seen on white and on navy alike
      context.strokeRect(this.x(this.column(column)), this.y(row), wide, high);
    }
    context.restore();
  }

  print(paper) {
    this.zoom = 1;
    super.print(paper);
  }
}
