// Views that scroll over a drawing: only the part that is seen is drawn.

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
    this.draw = framed(() => {
      if (!this.scroller.isConnected) return;
      this.paint();
      this.paintOver();
    });
    this.drawOver = framed(() => this.scroller.isConnected && this.paintOver());
    this.scroller.addEventListener("scroll", this.draw, { passive: true });
    this.scroller.addEventListener("pointermove", (event) => this.at(event, "hover"));
    this.scroller.addEventListener("click", (event) => this.at(event, "click"));
    this.scroller.addEventListener("keydown", (event) => this.key(event));
  }

  at(event, how) {
    const box = this.base.getBoundingClientRect();
    const found = this.find(event.clientX - box.left, event.clientY - box.top);
    if (found) point(found[0], found[1], how);
  }

  get room() {
    return { width: this.scroller.clientWidth, height: this.scroller.clientHeight };
  }

  stretch(width, height) {
    this.extent.style.width = `${width}px`;
    this.extent.style.height = `${height}px`;
  }

  contexts() {
    const { width, height } = this.room;
    const context = sized(this.base, width, height);
    this.over.style.setProperty("--pull", `${-height}px`);
    return context;
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
    const names = [["target", target], ["source", source]].filter(([, index]) => index !== null);
    const parts = names.map(([side, index]) => make("bdi", { text: nameOf(side, index) }));
    if (parts.length === 2) parts.splice(1, 0, " → ");
    if (names.length === 2) parts.push(" ", make("b", { text: number(matrix.weight(target, source)) }));
    this.readout.replaceChildren(...parts);
  }

  resize() {
    this.draw();
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
