// The words view: each side as what it is, shaded by what is read.

/** How a panel's cell, pointed at, is told to the state. */
function pointFrom(side, index, how) {
  if (among()) point(index, index, how);
  else if (side === "target") point(index, null, how);
  else point(null, index, how);
}

function panelHeading(side) {
  const title = titleOf(side);
  if (among()) return make("h2", { text: say("among", title) });
  return make("h2", { text: side === "target" && !tagged() ? say("reads", title, titleOf("source")) : title });
}

class TextPanel {
  constructor(side) {
    this.side = side;
    const cells = cellsOf(side);
    this.words = cells.labels.map((label, index) =>
      make("span", { class: "cell", role: "option", tabindex: "-1", dir: "auto", "data-index": index, "aria-selected": "false", text: shown(label) }),
    );
    this.masses = [];
    const many = cells.labels.length > 300 ? " many" : "";
    this.list = make("div", { class: `words${many}`, role: "listbox", "aria-label": titleOf(side), dir: cells.rightToLeft ? "rtl" : "ltr" });
    if (cells.sentences) {
      let start = 0;
      this.list.append(...cells.sentences.map((size, place) => {
        const mass = make("span", { class: "mass", "aria-hidden": "true" });
        this.masses.push({ mass, start, end: (start += size) });
        return make("div", { class: "sentence", role: "group", "aria-label": String(place + 1) }, mass, make("div", {}, ...this.words.slice(start - size, start)));
      }));
    } else this.list.append(...this.words);
    this.element = make("section", { class: "panel" }, panelHeading(side), this.list);
    const indexOf = (event) => Number(event.target.closest?.(".cell")?.dataset.index ?? NaN);
    const at = (how) => (event) => {
      const index = indexOf(event);
      if (!Number.isNaN(index)) pointFrom(side, index, how);
    };
    this.list.addEventListener("pointerover", at("hover"));
    this.list.addEventListener("click", at("click"));
    this.list.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) at("focus")(event);
    });
    this.list.addEventListener("keydown", (event) => this.key(event, indexOf(event)));
    if (this.words.length) this.words[0].tabIndex = 0;
    this.way = 0;
  }

  key(event, index) {
    if (Number.isNaN(index)) return;
    const last = this.words.length - 1;
    const forwards = cellsOf(this.side).rightToLeft ? -1 : 1;
    const moves = { ArrowRight: index + forwards, ArrowLeft: index - forwards, Home: 0, End: last };
    let to = moves[event.key];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") to = this.nextLine(index, event.key === "ArrowDown" ? 1 : -1);
    if (event.key === "Enter" || event.key === " ") hold();
    else if (to === undefined) return;
    else {
      if (state.pinned) letGo();
      this.words[clamp(to, 0, last)].focus();
    }
    event.preventDefault();
  }

  /** The word of the line above or below that stands nearest. */
  nextLine(index, way) {
    const here = this.words[index].getBoundingClientRect();
    const middle = (box) => (box.left + box.right) / 2;
    let [line, best, nearest] = [null, index, Infinity];
    for (let k = index + way; k >= 0 && k < this.words.length; k += way) {
      const box = this.words[k].getBoundingClientRect();
      if (way * (box.top - here.top) < 4) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > 4) break;
      const distance = Math.abs(middle(box) - middle(here));
      if (distance < nearest) [best, nearest] = [k, distance];
    }
    return best;
  }

  shade(reads, readBy) {
    const full = (values) => (values && state.scale === "row" ? largest(values) : matrix.largest);
    const [fullReads, fullReadBy] = [full(reads), full(readBy)];
    const lone = !reads && Boolean(readBy);
    this.words.forEach((word, index) => {
      const t = reads ? strength(reads[index], fullReads) : 0;
      const u = readBy ? strength(readBy[index], fullReadBy) : 0;
      word.style.setProperty("--t", t.toFixed(3));
      word.style.setProperty("--u", u.toFixed(3));
      word.classList.toggle("lone-readby", lone);
      word.classList.toggle("strong", (lone ? u : t) > inverted());
    });
    const values = reads ?? readBy;
    for (const { mass, start, end } of this.masses) {
      const sum = values ? values.subarray(start, end).reduce((total, value) => total + value, 0) : 0;
      mass.style.setProperty("--t", Math.min(1, lone ? sum / Math.max(1e-9, matrix.rows * fullReadBy) : sum).toFixed(3));
      mass.style.setProperty("--tone", lone ? "var(--readby)" : "var(--read)");
      mass.title = values ? number(sum) : "";
    }
  }

  mark(index) {
    const old = this.marked;
    if (old) {
      old.classList.remove("current");
      old.setAttribute("aria-selected", "false");
    }
    this.marked = index === null ? null : this.words[index];
    if (!this.marked) return;
    this.marked.classList.add("current");
    this.marked.setAttribute("aria-selected", "true");
    for (const word of this.list.querySelectorAll('[tabindex="0"]')) word.tabIndex = -1;
    this.marked.tabIndex = 0;
  }
}

/** Panels that are drawn: one canvas that takes the focus, with an arrow for each way. */
class DrawnPanel {
  constructor(side, label) {
    this.side = side;
    this.values = null;
    this.marked = null;
    this.tone = "read";
    this.canvas = make("canvas", { class: "drawing", tabindex: "0", role: "application", "aria-label": label });
    this.element = make("section", { class: "panel" }, panelHeading(side), this.canvas);
    const at = (how) => (event) => {
      const index = this.find(event.offsetX, event.offsetY);
      if (index !== null) pointFrom(side, index, how);
    };
    this.canvas.addEventListener("pointermove", at("hover"));
    this.canvas.addEventListener("click", at("click"));
    this.canvas.addEventListener("keydown", (event) => {
      const count = cellsOf(side).labels.length;
      const here = this.marked ?? 0;
      if (event.key === "Enter" || event.key === " ") hold();
      else {
        const to = this.move(here, event.key);
        if (to === undefined) return;
        letGo();
        pointFrom(side, clamp(to, 0, count - 1), "focus");
      }
      event.preventDefault();
    });
    this.draw = framed(() => this.paint());
  }

  shade(reads, readBy) {
    this.values = reads ?? readBy;
    this.tone = reads ? "read" : "readby";
    this.full = this.values && state.scale === "row" ? largest(this.values) : matrix.largest;
    this.draw();
  }

  mark(index) {
    this.marked = index;
    this.draw();
  }
}

class PicturePanel extends DrawnPanel {
  constructor(side) {
    super(side, say("pictureLabel", titleOf(side)));
    this.cells = cellsOf(side);
    this.picture = null;
    const { image } = this.cells;
    if (!image) return;
    kept(image.block).then((buffer) => {
      const colours = new Uint8Array(buffer);
      const pixels = new ImageData(image.width, image.height);
      for (let k = 0, from = 0; k < pixels.data.length; k += 4, from += 3) {
        pixels.data[k] = colours[from];
        pixels.data[k + 1] = colours[from + 1];
        pixels.data[k + 2] = colours[from + 2];
        pixels.data[k + 3] = 255;
      }
      this.picture = document.createElement("canvas");
      [this.picture.width, this.picture.height] = [image.width, image.height];
      this.picture.getContext("2d").putImageData(pixels, 0, 0);
      this.draw();
    });
  }

  measure() {
    const [down, across] = this.cells.grid;
    const shape = this.cells.image ? this.cells.image.height / this.cells.image.width : down / across;
    const room = Math.max(120, this.element.clientWidth);
    const tall = Math.max(200, Math.min(460, innerHeight - 340));
    const width = Math.min(room, tall / shape);
    return { width, height: width * shape, down, across };
  }

  find(x, y) {
    const { width, height, down, across } = this.measure();
    const [row, column] = [Math.floor((y / height) * down), Math.floor((x / width) * across)];
    return row >= 0 && row < down && column >= 0 && column < across ? row * across + column : null;
  }

  move(here, key) {
    const { across } = this.measure();
    return { ArrowRight: here + 1, ArrowLeft: here - 1, ArrowDown: here + across, ArrowUp: here - across, Home: 0, End: Infinity }[key];
  }

  paint() {
    const { width, height, down, across } = this.measure();
    const context = sized(this.canvas, width, height);
    context.imageSmoothingEnabled = true;
    if (this.picture) context.drawImage(this.picture, 0, 0, width, height);
    else {
      context.fillStyle = style("--read");
      context.fillRect(0, 0, width, height);
    }
    const box = (index) => {
      const [row, column] = [Math.floor(index / across), index % across];
      const [left, top] = [Math.round((column * width) / across), Math.round((row * height) / down)];
      return [left, top, Math.round(((column + 1) * width) / across) - left, Math.round(((row + 1) * height) / down) - top];
    };
    // What is read stays bright, the rest lies under a veil.
    if (this.values) {
      for (let index = 0; index < down * across; index++) {
        context.fillStyle = `rgba(8, 10, 14, ${0.78 * (1 - strength(this.values[index], this.full))})`;
        context.fillRect(...box(index));
      }
    }
    if (this.marked !== null) {
      const [left, top, wide, high] = box(this.marked);
      context.lineWidth = 4;
      context.strokeStyle = "#000000";
      context.strokeRect(left + 2, top + 2, wide - 4, high - 4);
      context.lineWidth = 2;
      context.strokeStyle = "#ffffff";
      context.strokeRect(left + 2, top + 2, wide - 4, high - 4);
    }
  }
}

class SoundPanel extends DrawnPanel {
  constructor(side) {
    super(side, say("soundLabel", titleOf(side)));
    this.cells = cellsOf(side);
    this.picture = null;
    const { spectrogram } = this.cells;
    if (!spectrogram) return;
    kept(spectrogram.block).then((buffer) => {
      this.shades = new Uint8Array(buffer);
      this.draw();
    });
  }

  measure() {
    const width = Math.max(120, Math.min(this.element.clientWidth, 1400));
    const high = this.cells.spectrogram ? 170 : 0;
    return { width, high, curve: 56, axis: 18, count: this.cells.labels.length };
  }

  find(x) {
    const { width, count } = this.measure();
    return count && x >= 0 && x < width ? Math.min(count - 1, Math.floor((x / width) * count)) : null;
  }

  move(here, key) {
    return { ArrowRight: here + 1, ArrowLeft: here - 1, PageDown: here + 10, PageUp: here - 10, Home: 0, End: Infinity }[key];
  }

  paint() {
    const { width, high, curve, axis, count } = this.measure();
    const context = sized(this.canvas, width, high + curve + axis);
    if (this.shades) context.drawImage(this.sound(), 0, 0, width, high);
    context.fillStyle = style(`--${this.tone}`);
    const place = (index) => (index * width) / count;
    if (this.values) {
      for (let index = 0; index < count; index++) {
        const part = strength(this.values[index], this.full);
        if (!part) continue;
        const wide = Math.max(1, place(index + 1) - place(index));
        context.globalAlpha = 0.5 * part;
        context.fillRect(place(index), 0, wide, high);
        context.globalAlpha = 1;
        context.fillRect(place(index), high + curve - part * (curve - 8), wide, part * (curve - 8));
      }
    }
    context.strokeStyle = style("--line");
    context.beginPath();
    context.moveTo(0, high + curve + 0.5);
    context.lineTo(width, high + curve + 0.5);
    context.stroke();
    context.fillStyle = style("--quiet");
    context.font = `11px ${style("--font")}`;
    const ticks = Math.max(1, Math.floor(width / 90));
    for (let tick = 0; tick <= ticks; tick++) {
      const index = (tick / ticks) * count;
      const text = this.cells.seconds ? say("seconds", (index * this.cells.seconds).toFixed(1)) : String(Math.round(index));
      context.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
      context.fillText(text, (tick / ticks) * width, high + curve + 14);
    }
    if (this.marked !== null) {
      context.strokeStyle = style("--mark");
      context.lineWidth = 2;
      context.strokeRect(place(this.marked), 1, Math.max(2, width / count), high + curve - 1);
    }
  }

  /** Time runs to the right, low tones lie below; in the theme's own greys. */
  sound() {
    if (this.picture && this.painted === state.theme) return this.picture;
    const { steps, bins } = this.cells.spectrogram;
    const columns = Math.min(steps, 4096);
    const pixels = new ImageData(columns, bins);
    const [from, to] = state.theme === "dark" ? [24, 235] : [250, 30];
    for (let column = 0; column < columns; column++) {
      const step = Math.floor((column * steps) / columns);
      for (let bin = 0; bin < bins; bin++) {
        const shade = from + ((to - from) * this.shades[step * bins + bin]) / 255;
        const k = 4 * ((bins - 1 - bin) * columns + column);
        pixels.data.fill(shade, k, k + 3);
        pixels.data[k + 3] = 255;
      }
    }
    this.picture = document.createElement("canvas");
    [this.picture.width, this.picture.height] = [columns, bins];
    this.picture.getContext("2d").putImageData(pixels, 0, 0);
    this.painted = state.theme;
    return this.picture;
  }
}

function panelOf(side) {
  const cells = cellsOf(side);
  if (cells.kind === "regions" && cells.grid) return new PicturePanel(side);
  if (cells.kind === "frames") return new SoundPanel(side);
  return new TextPanel(side);
}

class WordsView {
  constructor(place) {
    this.panels = (among() ? ["target"] : ["target", "source"]).map(panelOf);
    place.append(make("div", { class: "panels" }, ...this.panels.map((panel) => panel.element)));
  }

  update() {
    this.point();
  }

  point() {
    const { target, source } = state;
    const reads = target === null ? null : matrix.reads(target);
    const readBy = source === null ? null : matrix.readBy(source);
    if (among()) {
      const [panel] = this.panels;
      panel.shade(reads, readBy);
      panel.mark(target ?? source);
      return;
    }
    const [who, whom] = this.panels;
    who.shade(null, readBy);
    whom.shade(reads, null);
    who.mark(target);
    whom.mark(source);
  }

  resize() {
    for (const panel of this.panels) panel.draw?.();
  }

  enter() {
    if (state.target === null && state.source === null) state.target = 0;
    if (among()) state.source = state.target = state.target ?? state.source;
    else if (state.target !== null) state.source = null;
  }
}
