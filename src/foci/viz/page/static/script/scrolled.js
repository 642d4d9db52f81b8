// Views that scroll over a drawing: only the part that is seen is drawn.

/** How the picture of a canvas is drawn again, for files: canvas -> function of a context. */
const drawings = new WeakMap();

class ScrolledView {
  constructor(place, label) {
    this.base = make("canvas", { "aria-hidden": "true" });
    this.over = make("canvas", { "aria-hidden": "true" });
    this.extent = make("div", { class: "extent" }, this.base, this.over);
    this.scroller = make("div", { class: "scroller", tabindex: "0", role: "application", "aria-label": label }, this.extent);
    this.readout = make("span", { class: "readout" });
    this.strip = make("div", { class: "strip" }, this.readout);
    this.caption = make("p", { class: "caption" });
    place.append(this.caption, this.scroller, this.strip);
    this.draw = framed(() => this.scroller.isConnected && this.drawNow());
    this.drawOver = framed(() => this.scroller.isConnected && this.paintOver(sized(this.over, this.room.width, this.room.height)));
    this.scroller.addEventListener("scroll", this.draw, { passive: true });
    this.scroller.addEventListener("pointermove", (event) => this.at(event, "hover"));
    this.scroller.addEventListener("click", (event) => this.at(event, "click"));
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    drawings.set(this.base, (context) => this.paint(context));
    drawings.set(this.over, (context) => this.paintOver(context));
  }

  drawNow() {
    const { width, height } = this.room;
    this.over.style.setProperty("--pull", `${-height}px`);
    this.paint(sized(this.base, width, height));
    this.paintOver(sized(this.over, width, height));
  }

  at(event, how) {
    const box = this.base.getBoundingClientRect();
    const found = this.find(event.clientX - box.left, event.clientY - box.top);
    if (found) this.pick(found[0], found[1], how);
  }

  pick(target, source, how) {
    point(target, source, how);
  }

  get room() {
    return this.paper ?? { width: this.scroller.clientWidth, height: this.scroller.clientHeight };
  }

  /** How far the drawing is scrolled; on paper it is not. */
  get offset() {
    const { scrollLeft, scrollTop } = this.scroller;
    return this.paper ? { scrollLeft: 0, scrollTop: 0 } : { scrollLeft, scrollTop };
  }

  stretch(width, height) {
    this.extent.style.width = `${width}px`;
    this.extent.style.height = `${height}px`;
  }

  /** Scroll so that a stretch of the drawing is seen. */
  reveal(left, top, width, height, marginX, marginY) {
    const { scroller, room } = this;
    if (left - marginX < scroller.scrollLeft) scroller.scrollLeft = left - marginX;
    else if (left + width > scroller.scrollLeft + room.width) scroller.scrollLeft = left + width - room.width + 8;
    if (top - marginY < scroller.scrollTop) scroller.scrollTop = top - marginY;
    else if (top + height > scroller.scrollTop + room.height) scroller.scrollTop = top + height - room.height + 8;
  }

  tell() {
    const { target, source } = state;
    const sides = ["target", "source"].filter((side) => state[side] !== null);
    this.write(sides.map((side) => nameOf(side, state[side])), sides.length === 2 ? number(matrix.weight(target, source)) : "");
  }

  /** Name the cells that are pointed at; of two also the weight between them. */
  write(names, weight) {
    const [first, second] = names.map((text) => make("bdi", { text }));
    this.readout.replaceChildren(...(second ? [first, " → ", second, " ", make("b", { text: weight })] : names.length ? [first] : []));
  }

  resize() {
    this.measure();
    this.draw();
  }

  /** Draw all of it for paper of this size; null: for the screen again. */
  print(paper) {
    this.paper = paper;
    this.measure();
    this.drawNow();
  }
}

function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  let [low, high] = [0, letters.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(letters.slice(0, middle).join("") + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return letters.slice(0, low).join("") + "…";
}
