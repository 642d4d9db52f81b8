// Both sides as columns of words, and lines between them.

const rowHeight = () => 24 * enlarged();

class LinksView extends ScrolledView {
  constructor(place) {
    super(place, say("linksLabel", titleOf("target"), titleOf("source")));
    this.note = make("span", {});
    this.strip.append(this.note);
  }

  measure() {
    const { width, height } = this.room;
    this.margin = 34;
    this.row = rowHeight();
    this.rows = matrix.rows;
    this.columns = matrix.columns;
    const tall = Math.max(this.rows, this.columns) * this.row;
    this.stretch(width, tall + this.margin + 12);
    const room = height - this.margin - 12;
    this.scrolled = Math.max(0, tall - room); // how far the drawing can be scrolled
    const widest = this.paper ? width : Math.min(width, 1700);
    const side = clamp(0.3 * widest, 90, 420);
    this.start = (width - widest) / 2;
    this.width = widest;
    this.leftEdge = this.start + side;
    this.rightEdge = this.start + widest - side;
    this.sides = { target: this.spread(this.rows, room), source: this.spread(this.columns, room) };
  }

  /** How the words of a side stand: a side that fits stays in view, a longer one scrolls; both end together. */
  spread(count, room) {
    const gap = Math.max(this.row, Math.min(3 * this.row, room / Math.max(1, count)));
    const long = gap * count;
    return { count, gap, top: this.margin + Math.max(0, (room - long) / 2), over: Math.max(0, long - room) };
  }

  y(side, index) {
    const { gap, top, over } = this.sides[side];
    const { scrollTop } = this.offset;
    const moved = this.scrolled && over ? (Math.min(scrollTop, this.scrolled) * over) / this.scrolled : 0;
    return top + (index + 0.5) * gap - moved;
  }

  place(side, y) {
    const { gap } = this.sides[side];
    return Math.floor((y - this.y(side, 0) + gap / 2) / gap);
  }

  find(x, y) {
    const middle = (this.leftEdge + this.rightEdge) / 2;
    if (x < this.start || x > this.start + this.width) return null;
    const side = x < middle ? "target" : "source";
    const place = this.place(side, y);
    if (place < 0 || place >= this.sides[side].count) return null;
    return side === "target" ? [place, null] : [null, place];
  }

  key(event) {
    if (!this.rows || !this.columns) return;
    const side = state.target !== null ? "target" : "source";
    const other = side === "target" ? "source" : "target";
    const go = (which, index) => {
      letGo();
      const to = clamp(index, 0, this.sides[which].count - 1);
      if (which === "target") point(to, null, "focus");
      else point(null, to, "focus");
      this.see(which, to);
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

  /** Scroll until a word is seen. */
  see(side, index) {
    const { over } = this.sides[side];
    if (!over) return;
    const [y, { height }] = [this.y(side, index), this.room];
    const off = y < this.margin + this.row ? y - this.margin - this.row : Math.max(0, y - height + this.row);
    this.scroller.scrollTop += (off * this.scrolled) / over;
  }

  update() {
    this.measure();
    this.tell();
    this.draw();
  }

  point(how = "hover") {
    this.tell();
    this.drawOver();
    if (how !== "click") return;
    const [side, values] = state.target !== null ? ["source", matrix.reads(state.target)] : ["target", matrix.readBy(state.source)];
    const [strong] = strongest(values, 1).places;
    if (strong !== undefined && this.sides[side].over) this.see(side, strong);
  }

  seen(side) {
    const { count } = this.sides[side];
    return [clamp(this.place(side, this.margin) - 1, 0, count), clamp(this.place(side, this.room.height) + 2, 0, count)];
  }

  get shown() {
    return several.length ? several : [{ matrix, color: null }];
  }

  /** The strongest links that touch a word of the longer side that is seen. */
  visible() {
    const long = this.columns > this.rows ? "source" : "target";
    const [firstRow, lastRow] = long === "target" ? this.seen("target") : [0, this.rows];
    const [firstColumn, lastColumn] = long === "source" ? this.seen("source") : [0, this.columns];
    const links = [];
    for (const { matrix: one, color } of this.shown) {
      for (let row = firstRow; row < lastRow; row++) {
        const scale = one.scales[row];
        const full = state.scale === "row" ? 255 * scale : one.largest;
        const least = Math.max(state.threshold, full * 0.02);
        const line = one.row(row);
        for (let column = firstColumn; column < lastColumn; column++) {
          const weight = line[column] * scale;
          if (weight >= least && weight > 0) links.push([row, column, strength(weight, full), color]);
        }
      }
    }
    this.note.textContent = links.length > MOST_LINKS ? say("few") : "";
    if (links.length > MOST_LINKS) {
      links.sort((a, b) => b[2] - a[2]);
      links.length = MOST_LINKS;
    }
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

  paint(context) {
    if (!this.rows || !this.columns) return;
    const tone = style("--read");
    const fade = context === this.base.getContext("2d") ? 1 : Number(this.base.style.opacity || 1); // in files too
    context.lineWidth = 1.4;
    for (const [row, column, part, color] of this.visible()) {
      context.strokeStyle = color ?? tone;
      context.globalAlpha = 0.55 * part * fade;
      this.link(context, row, column);
    }
    context.globalAlpha = 1;
  }

  paintOver(context) {
    if (!this.rows || !this.columns) return;
    const { target, source } = state;
    this.base.style.opacity = target !== null || source !== null ? "0.28" : "1";
    const reads = target === null ? null : matrix.reads(target);
    const readBy = source === null ? null : matrix.readBy(source);
    const lines = (values, one, tone, draw) => {
      const most = fullOf(values, one);
      context.strokeStyle = tone;
      values.forEach((weight, place) => {
        const part = strength(weight, most);
        if (part < 0.02) return;
        context.globalAlpha = 0.15 + 0.85 * part;
        context.lineWidth = 1 + 3 * part;
        draw(place);
      });
      context.globalAlpha = 1;
    };
    for (const { matrix: one, color } of this.shown) {
      if (reads) lines(one.reads(target), one, color ?? style("--read"), (place) => this.link(context, target, place));
      if (readBy) lines(one.readBy(source), one, color ?? style("--readby"), (place) => this.link(context, place, source));
    }
    this.paintWords(context, "target", readBy, READ_BY, target);
    this.paintWords(context, "source", reads, STOPS, source);
    this.paintHeads(context);
  }

  paintHeads(context) {
    const { width } = this.room;
    context.fillStyle = style("--paper");
    context.fillRect(0, 0, width, this.margin - 6);
    context.font = `600 ${12 * enlarged()}px ${style("--font")}`;
    context.textBaseline = "middle";
    context.fillStyle = style("--quiet");
    context.textAlign = "right";
    context.fillText(cut(context, tell("who", titleOf("target")), this.leftEdge - this.start - 12), this.leftEdge - 10, 14);
    context.textAlign = "left";
    context.fillText(cut(context, tell("whom", titleOf("source")), this.leftEdge - this.start - 12), this.rightEdge + 10, 14);
  }

  paintWords(context, side, values, stops, marked) {
    const left = side === "target";
    const room = this.leftEdge - this.start - 20;
    const full = values && fullOf(values);
    const axis = axisOf(side);
    const [first, last] = this.seen(side);
    const tall = this.row - 3;
    context.textBaseline = "middle";
    context.textAlign = left ? "right" : "left";
    context.font = `${14 * enlarged()}px ${style("--font")}`;
    for (let index = first; index < last; index++) {
      const y = this.y(side, index);
      const thumb = hasThumbnails(axis) ? 24 : 0;
      const text = cut(context, labelOf(side, index), room - thumb);
      const long = context.measureText(text).width + 14 + thumb;
      const x = left ? this.leftEdge - 3 - long : this.rightEdge + 3;
      // White for a weight of 0: also in the dark, weights keep their white ground.
      const ground = values && !several.length ? mixed(stops, strength(values[index], full)) : null;
      if (ground) {
        context.fillStyle = css(ground);
        context.fillRect(x, y - tall / 2, long, tall);
      }
      if (marked === index) {
        context.strokeStyle = style("--mark");
        context.lineWidth = state.pinned ? 3 : 2;
        context.strokeRect(x, y - tall / 2, long, tall);
      }
      if (thumb) paintThumbnail(context, axis, index, left ? x + long - 21 : x + 1, y - 10, 20, this.drawOver);
      context.fillStyle = ground ? inkOn(ground) : style("--ink");
      context.fillText(text, left ? this.leftEdge - 10 - thumb : this.rightEdge + 10 + thumb, y + 0.5);
    }
  }

  enter() {
    if (state.target !== null) state.source = null;
    else if (state.source === null) state.target = 0;
  }
}
