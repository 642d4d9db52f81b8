// The matrix as coloured cells.

class HeatView extends ScrolledView {
  constructor(place) {
    super(place, say("heatLabel", titleOf("target"), titleOf("source")));
    this.zoom = null; // pixels a cell; null: as large as fits
    const button = (text, label, onclick) => make("button", { type: "button", text, "aria-label": label, title: label, onclick });
    this.legend = make("span", { class: "legend" });
    this.strip.append(
      this.legend,
      button("⇄", say("swap"), () => {
        state.swapped = !this.swapped;
        this.update();
      }),
      button("−", say("zoomOut"), () => this.scale(1 / 1.5)),
      button("+", say("zoomIn"), () => this.scale(1.5)),
      button(say("fit"), say("fit"), () => {
        this.zoom = null;
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

  /** Which side runs downwards: who reads, or, for steps in time, what is read. */
  get swapped() {
    return state.swapped ?? cellsOf("target").kind === "steps";
  }

  get down() {
    return this.swapped ? "source" : "target";
  }

  get across() {
    return this.swapped ? "target" : "source";
  }

  measure() {
    const rows = cellsOf(this.down).labels.length;
    const columns = cellsOf(this.across).labels.length;
    const context = this.base.getContext("2d");
    context.save();
    context.font = this.font;
    const widest = (side, count) => {
      let most = 0;
      const step = Math.ceil(count / 400); // a look at some of very many
      for (let k = 0; k < count; k += step) most = Math.max(most, context.measureText(labelOf(side, k)).width);
      return most;
    };
    const { width, height } = this.room;
    this.left = Math.ceil(clamp(widest(this.down, rows) + 20, 36, Math.min(190, 0.34 * width)));
    this.slant = clamp(widest(this.across, columns), 14, 130);
    context.restore();
    this.top = Math.ceil(this.slant * 0.71 + 22);
    this.right = Math.ceil(this.slant * 0.71 + 10);
    const fits = Math.min((width - this.left - this.right) / Math.max(1, columns), (height - this.top - 10) / Math.max(1, rows));
    this.fitting = clamp(fits, 0.02, LARGEST_CELL);
    // A small matrix that does not fit is better scrolled than squeezed.
    const readable = rows <= 120 && columns <= 120 ? 15 : 0;
    this.cell = this.zoom ?? Math.max(this.fitting, readable);
    this.mirrored = cellsOf(this.across).rightToLeft;
    this.rows = rows;
    this.columns = columns;
    this.stretch(
      Math.max(width, this.left + columns * this.cell + this.right), Math.max(height, this.top + rows * this.cell + 10),
    );
  }

  get font() {
    return `12px ${style("--font")}`;
  }

  scale(factor, x = this.room.width / 2, y = this.room.height / 2) {
    const { scroller } = this;
    const place = [(scroller.scrollLeft + x - this.left) / this.cell, (scroller.scrollTop + y - this.top) / this.cell];
    this.zoom = clamp(this.cell * factor, Math.min(this.fitting, 15), LARGEST_CELL);
    this.measure();
    scroller.scrollLeft = place[0] * this.cell + this.left - x;
    scroller.scrollTop = place[1] * this.cell + this.top - y;
    this.draw();
  }

  /** Where a column stands: from the right where the text runs from there. */
  column(place) {
    return this.mirrored ? this.columns - 1 - place : place;
  }

  find(x, y) {
    const { scroller } = this;
    if (x < this.left && y < this.top) return null;
    const row = Math.floor((y + scroller.scrollTop - this.top) / this.cell);
    const column = Math.floor((x + scroller.scrollLeft - this.left) / this.cell);
    const onRow = y >= this.top && row >= 0 && row < this.rows;
    const onColumn = x >= this.left && column >= 0 && column < this.columns;
    if (!onRow || !onColumn) return null;
    const pair = [row, this.column(column)];
    return this.swapped ? pair.reverse() : pair;
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-20, 0], PageDown: [20, 0] };
    const move = moves[event.key];
    if (event.key === "Enter" || event.key === " ") hold();
    else if (event.key === "+" || event.key === "=") this.scale(1.5);
    else if (event.key === "-") this.scale(1 / 1.5);
    else if (move && this.rows && this.columns) {
      letGo();
      const [down, across] = [state[this.down] ?? 0, state[this.across] ?? 0];
      const row = clamp(down + move[0], 0, this.rows - 1);
      const column = clamp(across + (this.mirrored ? -move[1] : move[1]), 0, this.columns - 1);
      const pair = this.swapped ? [column, row] : [row, column];
      point(pair[0], pair[1], "focus");
      const [left, top] = [this.left + this.column(column) * this.cell, this.top + row * this.cell];
      this.reveal(left, top, this.cell, this.cell, this.left, this.top);
    } else return;
    event.preventDefault();
  }

  update() {
    this.measure();
    if (this.mirrored && !this.turned) this.scroller.scrollLeft = this.extent.offsetWidth;
    this.turned = true;
    this.colours = ramp();
    this.caption.textContent = say(tagged() ? "plainAxes" : "axes", titleOf(this.down), titleOf(this.across), this.swapped);
    this.paintLegend();
    this.tell();
    this.draw();
  }

  resize() {
    this.measure();
    this.draw();
  }

  point() {
    this.tell();
    this.drawOver();
  }

  paintLegend() {
    const canvas = make("canvas", { "aria-hidden": "true" });
    [canvas.width, canvas.height] = [128, 1];
    const pixels = new ImageData(128, 1);
    const words = new Uint32Array(pixels.data.buffer);
    for (let k = 0; k < 128; k++) words[k] = this.colours[Math.floor((k / 127) * (SHADES - 1))];
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    const most = state.scale === "row" ? say("byRow") : number(matrix.largest);
    this.legend.replaceChildren(make("span", { text: "0" }), canvas, make("span", { text: most }));
  }

  /** The visible cells as a picture of one pixel a cell, or, of cells smaller than a pixel, the largest in each. */
  picture(firstRow, lastRow, firstColumn, lastColumn) {
    const shrink = Math.max(1, Math.floor(1 / (this.cell * Math.min(devicePixelRatio || 1, 2))));
    const wide = Math.ceil((lastColumn - firstColumn) / shrink);
    const high = Math.ceil((lastRow - firstRow) / shrink);
    const strengths = new Uint16Array(wide * high);
    const { swapped } = this;
    const [fromTarget, toTarget] = swapped ? [firstColumn, lastColumn] : [firstRow, lastRow];
    const [fromSource, toSource] = swapped ? [firstRow, lastRow] : [firstColumn, lastColumn];
    for (let shownTarget = fromTarget; shownTarget < toTarget; shownTarget++) {
      const target = swapped ? this.column(shownTarget) : shownTarget;
      const scale = matrix.scales[target];
      const factor = state.scale === "row" ? (SHADES - 1) / 255 : (scale / Math.max(1e-30, matrix.largest)) * (SHADES - 1);
      const least = Math.max(1, Math.ceil(state.threshold / Math.max(scale, 1e-30)));
      const line = matrix.row(target);
      const mirrored = this.mirrored && !swapped;
      const along = Math.floor((shownTarget - fromTarget) / shrink);
      for (let shownSource = fromSource; shownSource < toSource; shownSource++) {
        const byte = line[mirrored ? this.columns - 1 - shownSource : shownSource];
        if (byte < least) continue;
        const other = Math.floor((shownSource - fromSource) / shrink);
        const k = swapped ? other * wide + along : along * wide + other;
        const part = byte * factor;
        if (part > strengths[k]) strengths[k] = part;
      }
    }
    const pixels = new ImageData(wide, high);
    const words = new Uint32Array(pixels.data.buffer);
    for (let k = 0; k < words.length; k++) words[k] = this.colours[strengths[k]];
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [wide, high];
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return { canvas, width: wide * shrink * this.cell, height: high * shrink * this.cell };
  }

  paint() {
    const context = this.contexts();
    const { width, height } = this.room;
    if (!this.rows || !this.columns) return;
    const { scrollLeft, scrollTop } = this.scroller;
    const { cell, left, top } = this;
    const firstRow = clamp(Math.floor(scrollTop / cell), 0, this.rows - 1);
    const lastRow = clamp(Math.ceil((scrollTop + height - top) / cell), firstRow + 1, this.rows);
    const firstColumn = clamp(Math.floor(scrollLeft / cell), 0, this.columns - 1);
    const lastColumn = clamp(Math.ceil((scrollLeft + width - left) / cell), firstColumn + 1, this.columns);
    const x = (column) => left + column * cell - scrollLeft;
    const y = (row) => top + row * cell - scrollTop;
    this.x = x;
    this.y = y;
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, height - top);
    context.clip();
    const image = this.picture(firstRow, lastRow, firstColumn, lastColumn);
    context.drawImage(image.canvas, x(firstColumn), y(firstRow), image.width, image.height);
    context.strokeStyle = style("--line");
    context.lineWidth = 1;
    context.strokeRect(x(0) - 0.5, y(0) - 0.5, this.columns * cell + 1, this.rows * cell + 1);
    if (cell >= 30) this.paintNumbers(context, firstRow, lastRow, firstColumn, lastColumn);
    context.restore();
    this.paintLabels(context, firstRow, lastRow, firstColumn, lastColumn);
  }

  paintNumbers(context, firstRow, lastRow, firstColumn, lastColumn) {
    context.font = `10.5px ${style("--font")}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = firstRow; row < lastRow; row++) {
      for (let column = firstColumn; column < lastColumn; column++) {
        const [target, source] = this.swapped ? [this.column(column), row] : [row, this.column(column)];
        const weight = matrix.weight(target, source);
        if (weight < Math.max(state.threshold, 0.005)) continue;
        const full = state.scale === "row" ? 255 * matrix.scales[target] : matrix.largest;
        const [weak, strong] = state.theme === "light" ? ["#23262b", "#ffffff"] : ["#e9e7e3", "#0c1117"];
        context.fillStyle = strength(weight, full) > 0.62 ? strong : weak;
        context.fillText(weight.toFixed(2).replace(/^0/, ""), this.x(column) + this.cell / 2, this.y(row) + this.cell / 2);
      }
    }
  }

  paintLabels(context, firstRow, lastRow, firstColumn, lastColumn) {
    const { width, height } = this.room;
    const { cell, left, top } = this;
    const step = Math.max(1, Math.ceil(15 / cell));
    context.font = this.font;
    context.textBaseline = "middle";
    const ink = style("--ink");
    context.save();
    context.beginPath();
    const above = this.scroller.scrollTop > 0 ? 0 : 8; // half a letter, where no row was scrolled away
    context.rect(0, top - above, left, height - top + above);
    context.clip();
    context.textAlign = "right";
    context.fillStyle = ink;
    for (let row = Math.ceil(firstRow / step) * step; row < lastRow; row += step) {
      context.fillText(cut(context, labelOf(this.down, row), left - 18), left - 8, this.y(row) + cell / 2);
    }
    context.restore();
    context.save();
    context.beginPath();
    context.rect(left - 14, 0, width - left + 14, top);
    context.clip();
    context.textAlign = "left";
    context.fillStyle = ink;
    for (let column = Math.ceil(firstColumn / step) * step; column < lastColumn; column += step) {
      context.save();
      context.translate(this.x(column) + cell / 2 + 2, top - 7);
      context.rotate(-Math.PI / 4);
      context.fillText(cut(context, labelOf(this.across, this.column(column)), this.slant), 0, 0);
      context.restore();
    }
    context.restore();
  }

  paintOver() {
    const { width, height } = this.room;
    const context = sized(this.over, width, height);
    if (!this.x || !this.rows || !this.columns) return;
    const [row, column] = [state[this.down], state[this.across]];
    const { cell, left, top } = this;
    context.strokeStyle = style("--mark");
    context.fillStyle = style("--mark");
    context.beginPath();
    context.rect(left - 1, top - 1, width - left + 1, height - top + 1);
    context.clip();
    const size = Math.max(cell, 3);
    context.lineWidth = 1;
    const edgeX = Math.min(width, this.x(this.columns));
    const edgeY = Math.min(height, this.y(this.rows));
    if (row !== null) {
      context.globalAlpha = 0.55;
      context.strokeRect(left - 0.5, this.y(row) - 0.5, edgeX - left + 1, size + 1);
    }
    if (column !== null) {
      context.globalAlpha = 0.55;
      context.strokeRect(this.x(this.column(column)) - 0.5, top - 0.5, size + 1, edgeY - top + 1);
    }
    if (row !== null && column !== null) {
      context.globalAlpha = 1;
      context.lineWidth = state.pinned ? 3 : 2;
      context.strokeRect(this.x(this.column(column)), this.y(row), size, size);
    }
  }

  enter() {
    state.target ??= 0;
    if (state.source === null) state.source = strongest(matrix.reads(state.target), 1).places[0] ?? 0;
  }
}
