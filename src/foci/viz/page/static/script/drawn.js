// Sides that are drawn: an image with its regions, a recording with its frames, channels as bars.

/** One canvas that takes the focus, with an arrow for each way. */
class DrawnPanel {
  constructor(side, label, axis = axisOf(side)) {
    this.side = side;
    this.axis = axis;
    const begin = axis.begin ?? 0;
    this.values = null;
    this.marked = null;
    this.tone = "read";
    this.canvas = make("canvas", { class: "drawing", tabindex: "0", role: "application", "aria-label": label });
    this.element = make("section", { class: "panel" }, axis.begin === undefined ? panelHeading(side) : partHeading(axis), this.canvas);
    const at = (how) => (event) => {
      const index = this.find(event.offsetX, event.offsetY);
      if (index !== null) pointFrom(side, begin + index, how);
    };
    this.canvas.addEventListener("pointermove", at("hover"));
    this.canvas.addEventListener("click", at("click"));
    this.canvas.addEventListener("keydown", (event) => {
      const to = this.move(this.marked ?? 0, event.key);
      if (event.key === "Enter" || event.key === " ") hold();
      else if (to === undefined) return;
      else {
        letGo();
        pointFrom(side, begin + clamp(to, 0, this.axis.labels.length - 1), "focus");
      }
      event.preventDefault();
    });
    this.draw = framed(() => this.canvas.isConnected && this.paint());
  }

  shade(reads, readBy, byHead) {
    const most = (lines) => lines[0].map((_, index) => Math.max(...lines.map((line) => line[index])));
    this.values = byHead ? most(byHead) : (reads ?? readBy);
    this.tone = reads || byHead ? "read" : "readby";
    this.full = this.values && (this.axis.begin === undefined ? fullOf(this.values) : largest(this.values));
    this.draw();
  }

  mark(index) {
    this.marked = index;
    this.draw();
  }

  reveal() {}
}

class PicturePanel extends DrawnPanel {
  constructor(side, axis = axisOf(side)) {
    super(side, say("pictureLabel", named(axis.title)), axis);
  }

  measure() {
    const [down, across] = this.axis.grid;
    const shape = this.axis.image ? this.axis.image.height / this.axis.image.width : down / across;
    const room = Math.max(120, this.element.clientWidth - 8);
    const tall = Math.max(200, innerHeight - 340);
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
    const picture = pictureOf(this.axis, this.draw);
    if (picture) context.drawImage(picture, 0, 0, width, height);
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
      for (const [thick, color] of [[4, "#000000"], [2, "#ffffff"]]) {
        [context.lineWidth, context.strokeStyle] = [thick, color];
        context.strokeRect(left + 2, top + 2, wide - 4, high - 4);
      }
    }
  }
}

class SoundPanel extends DrawnPanel {
  constructor(side) {
    super(side, say(axisOf(side).kind === "channels" ? "channelsLabel" : "soundLabel", titleOf(side)));
    this.picture = null;
    const { spectrogram } = this.axis;
    if (!spectrogram) return;
    kept(spectrogram.block).then((buffer) => {
      this.shades = new Uint8Array(buffer);
      this.draw();
    });
  }

  measure() {
    const width = Math.max(120, this.element.clientWidth - 8);
    const high = this.axis.spectrogram ? clamp(innerHeight - 460, 170, 420) : 0;
    return { width, high, curve: 56, axis: 18, count: this.axis.labels.length };
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
      const { start, seconds } = this.axis;
      const text = seconds ? say("seconds", (start + index * seconds).toFixed(1)) : String(Math.round(index));
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
    const { steps, bins } = this.axis.spectrogram;
    const columns = Math.min(steps, 4096);
    const pixels = new Uint32Array(columns * bins);
    const [from, to] = state.theme === "dark" ? [24, 235] : [250, 30];
    for (let column = 0; column < columns; column++) {
      const step = Math.floor((column * steps) / columns);
      for (let bin = 0; bin < bins; bin++) {
        const shade = Math.round(from + ((to - from) * this.shades[step * bins + bin]) / 255);
        pixels[(bins - 1 - bin) * columns + column] = pixel(shade, shade, shade);
      }
    }
    this.picture = canvasOf(pixels, columns);
    this.painted = state.theme;
    return this.picture;
  }
}

function panelOf(side) {
  const axis = axisOf(side);
  if (axis.parts) return new MixedPanel(side);
  if (axis.kind === "regions" && axis.grid) return new PicturePanel(side);
  if (axis.kind === "frames" || axis.kind === "channels") return new SoundPanel(side);
  return new TextPanel(side);
}
