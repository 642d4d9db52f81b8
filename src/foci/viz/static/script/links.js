// Both sides as columns of words, and lines between them.

class LinksView extends ScrolledView {
  constructor(place) {
    super(place, say("linksLabel", titleOf("target"), titleOf("source")));
    this.note = make("span", {});
    this.strip.append(this.note);
  }

  measure() {
    const { width } = this.room;
    this.rows = matrix.rows;
    this.columns = matrix.columns;
    this.tall = Math.max(this.rows, this.columns) * ROW;
    this.margin = 34;
    this.stretch(width, this.tall + this.margin + 12);
    const side = clamp(0.3 * width, 90, 240);
    this.width = Math.min(width, 900);
    this.start = (width - this.width) / 2;
    this.leftEdge = this.start + side;
    this.rightEdge = this.start + this.width - side;
  }

  /** The shorter side is spread over the height of the longer. */
  y(side, index) {
    const count = side === "target" ? this.rows : this.columns;
    return this.margin + ((index + 0.5) / count) * this.tall - this.scroller.scrollTop;
  }

  find(x, y) {
    const middle = (this.leftEdge + this.rightEdge) / 2;
    if (x < this.start || x > this.start + this.width) return null;
    const side = x < middle ? "target" : "source";
    const count = side === "target" ? this.rows : this.columns;
    const place = Math.floor(((y + this.scroller.scrollTop - this.margin) / this.tall) * count);
    if (place < 0 || place >= count) return null;
    return side === "target" ? [place, null] : [null, place];
  }

  key(event) {
    if (!this.rows || !this.columns) return;
    const side = state.target !== null ? "target" : "source";
    const other = side === "target" ? "source" : "target";
    const go = (which, index) => {
      letGo();
      const count = which === "target" ? this.rows : this.columns;
      const to = clamp(index, 0, count - 1);
      if (which === "target") point(to, null, "focus");
      else point(null, to, "focus");
      this.reveal(0, this.y(which, to) + this.scroller.scrollTop - ROW, 1, 2 * ROW, 0, this.margin);
    };
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    const sideward = { ArrowLeft: "target", ArrowRight: "source" }[event.key];
    if (event.key === "Enter" || event.key === " ") hold();
    else if (event.key in moves) go(side, (state[side] ?? 0) + moves[event.key]);
    else if (sideward === other) {
      const values = side === "target" ? matrix.reads(state.target) : matrix.readBy(state.source);
      go(other, strongest(values, 1).places[0] ?? 0);
    } else if (!sideward) return;
    event.preventDefault();
  }

  update() {
    this.measure();
    this.links = null;
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

  /** The strongest links that touch a word that is seen. */
  visible() {
    const { height } = this.room;
    const { scrollTop } = this.scroller;
    const seen = (count) => [
      clamp(Math.floor(((scrollTop - this.margin) / this.tall) * count), 0, count),
      clamp(Math.ceil(((scrollTop - this.margin + height) / this.tall) * count), 0, count),
    ];
    const [firstRow, lastRow] = seen(this.rows);
    const links = [];
    for (let row = firstRow; row < lastRow; row++) {
      const scale = matrix.scales[row];
      const full = state.scale === "row" ? 255 * scale : matrix.largest;
      const least = Math.max(state.threshold, full * 0.02);
      matrix.row(row).forEach((byte, column) => {
        const weight = byte * scale;
        if (weight >= least && weight > 0) links.push([row, column, strength(weight, full)]);
      });
    }
    if (links.length > MOST_LINKS) {
      links.sort((a, b) => b[2] - a[2]);
      links.length = MOST_LINKS;
      this.note.textContent = say("few");
    } else this.note.textContent = "";
    return links;
  }

  link(context, row, column) {
    const [from, to] = [this.y("target", row), this.y("source", column)];
    const bend = (this.rightEdge - this.leftEdge) * 0.42;
    context.beginPath();
    context.moveTo(this.leftEdge, from);
    context.bezierCurveTo(this.leftEdge + bend, from, this.rightEdge - bend, to, this.rightEdge, to);
    context.stroke();
  }

  paint() {
    const context = this.contexts();
    if (!this.rows || !this.columns) return;
    context.strokeStyle = style("--read");
    context.lineWidth = 1.4;
    for (const [row, column, part] of this.visible()) {
      context.globalAlpha = 0.55 * part;
      this.link(context, row, column);
    }
  }

  paintOver() {
    const { width, height } = this.room;
    const context = sized(this.over, width, height);
    if (!this.rows || !this.columns) return;
    const { target, source } = state;
    const chosen = target !== null || source !== null;
    this.base.style.opacity = chosen ? "0.28" : "1";
    const reads = target === null ? null : matrix.reads(target);
    const readBy = source === null ? null : matrix.readBy(source);
    const full = (values) => (state.scale === "row" ? largest(values) : matrix.largest);
    const lines = (values, tone, draw) => {
      const most = full(values);
      context.strokeStyle = style(tone);
      values.forEach((weight, place) => {
        const part = strength(weight, most);
        if (part < 0.02) return;
        context.globalAlpha = 0.15 + 0.85 * part;
        context.lineWidth = 1 + 3 * part;
        draw(place);
      });
      context.globalAlpha = 1;
    };
    if (reads) lines(reads, "--read", (place) => this.link(context, target, place));
    if (readBy) lines(readBy, "--readby", (place) => this.link(context, place, source));
    this.paintWords(context, "target", readBy, "--readby", target, readBy && full(readBy));
    this.paintWords(context, "source", reads, "--read", source, reads && full(reads));
    this.paintHeads(context);
  }

  paintHeads(context) {
    const { width } = this.room;
    context.fillStyle = style("--paper");
    context.fillRect(0, 0, width, this.margin - 6);
    context.font = `600 12px ${style("--font")}`;
    context.textBaseline = "middle";
    context.fillStyle = style("--quiet");
    context.textAlign = "right";
    context.fillText(cut(context, tagged() ? titleOf("target") : say("whoReads", titleOf("target")), this.leftEdge - this.start - 12), this.leftEdge - 10, 14);
    context.textAlign = "left";
    context.fillText(cut(context, tagged() ? titleOf("source") : say("whatIsRead", titleOf("source")), this.leftEdge - this.start - 12), this.rightEdge + 10, 14);
  }

  paintWords(context, side, values, tone, marked, full) {
    const { height } = this.room;
    const count = side === "target" ? this.rows : this.columns;
    const left = side === "target";
    const wide = this.leftEdge - this.start - 4;
    const gap = this.tall / count;
    const first = clamp(Math.floor(((this.scroller.scrollTop - this.margin) / this.tall) * count) - 1, 0, count);
    const last = clamp(first + Math.ceil(height / gap) + 3, 0, count);
    context.textBaseline = "middle";
    context.textAlign = left ? "right" : "left";
    context.font = `14px ${style("--font")}`;
    for (let index = first; index < last; index++) {
      const y = this.y(side, index);
      const text = cut(context, labelOf(side, index), wide - 16);
      const long = context.measureText(text).width + 14;
      const x = left ? this.leftEdge - 3 - long : this.rightEdge + 3;
      const part = values ? strength(values[index], full) : 0;
      if (part > 0) {
        context.globalAlpha = part;
        context.fillStyle = style(tone);
        context.fillRect(x, y - 10.5, long, 21);
        context.globalAlpha = 1;
      }
      if (marked === index) {
        context.strokeStyle = style("--mark");
        context.lineWidth = state.pinned ? 3 : 2;
        context.strokeRect(x, y - 10.5, long, 21);
      }
      context.fillStyle = part > inverted() ? style("--read-ink") : style("--ink");
      context.fillText(text, left ? this.leftEdge - 10 : this.rightEdge + 10, y + 0.5);
    }
  }

  enter() {
    if (state.target !== null) state.source = null;
    else if (state.source === null) state.target = 0;
  }
}
