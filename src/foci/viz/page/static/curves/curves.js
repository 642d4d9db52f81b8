// Training curves: a chart for each figure, a line for each run.

Object.assign(state, { hidden: new Set(), logarithm: false, smooth: 0 });
const SIZE = { width: 560, height: 300, left: 62, right: 14, top: 12, bottom: 34 };
const DASHES = ["", "7 4", "2 3", "8 3 2 3"];

const draw = (tag, properties = {}) => set(document.createElementNS(byId("svg").namespaceURI, tag), properties);

const shown = (value) => (value !== 0 && (Math.abs(value) < 0.001 || Math.abs(value) >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4))));

/** The line as it is drawn: a running mean where that was asked for. */
function smoothed(points) {
  let mean = null;
  return points.map(([step, value]) => [step, (mean = mean === null ? value : state.smooth * mean + (1 - state.smooth) * value)]);
}

/** Round places for ticks between two values. */
function ticks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of [1, 2, 5]) if (factor * 10 ** power >= low && factor * 10 ** power <= high) found.push(factor * 10 ** power);
  }
  return found;
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.svg = draw("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, tabindex: "0", role: "application", class: "chart" });
    this.readout = make("p", { class: "readout" });
    this.element = make("section", { class: "figure" }, make("h2", { dir: "auto", text: figure.name }), this.svg, this.readout);
    this.step = null;
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.point(this.nearest(((event.clientX - box.left) / box.width) * SIZE.width));
    });
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!way || !this.steps.length) return;
      const here = this.steps.indexOf(this.step);
      this.point(this.steps[clamp(here < 0 ? (way > 0 ? 0 : this.steps.length - 1) : here + way, 0, this.steps.length - 1)]);
      byId("live").textContent = this.readout.textContent;
      event.preventDefault();
    });
  }

  get lines() {
    return this.figure.lines.map((points, run) => ({ run, points: smoothed(points) })).filter(({ run, points }) => points.length && !state.hidden.has(run));
  }

  x(step) {
    const { width, left, right } = SIZE;
    return left + ((step - this.from) / (this.to - this.from || 1)) * (width - left - right);
  }

  y(value) {
    const { height, top, bottom } = SIZE;
    const place = state.logarithm && this.low > 0 ? Math.log(value / this.low) / (Math.log(this.high / this.low) || 1) : (value - this.low) / (this.high - this.low || 1);
    return height - bottom - place * (height - top - bottom);
  }

  update() {
    const { width, height, left, right, top, bottom } = SIZE;
    const { lines } = this;
    const all = lines.flatMap(({ points }) => points);
    this.steps = [...new Set(all.map(([step]) => step))].sort((a, b) => a - b);
    const summary = lines.map(({ run, points }) => say("last", page.runs[run].name, shown(points.at(-1)[1]), points.at(-1)[0]));
    this.svg.setAttribute("aria-label", [say("chart", this.figure.name), ...summary].join(" "));
    this.svg.replaceChildren();
    this.marks = draw("g");
    if (!all.length) return this.point(null);
    const extreme = (place, best) => all.reduce((found, point) => best(found, point[place]), all[0][place]);
    [this.from, this.to] = [extreme(0, Math.min), extreme(0, Math.max)];
    [this.low, this.high] = [extreme(1, Math.min), extreme(1, Math.max)];
    const text = (x, y, content, anchor) => {
      const label = draw("text", { x, y, "text-anchor": anchor, class: "tick-label" });
      label.textContent = content;
      this.svg.append(label);
    };
    for (const value of state.logarithm && this.low > 0 ? logTicks(this.low, this.high) : ticks(this.low, this.high, 5)) {
      this.svg.append(draw("line", { x1: left, x2: width - right, y1: this.y(value), y2: this.y(value), class: "grid" }));
      text(left - 6, this.y(value) + 4, shown(value), "end");
    }
    for (const step of ticks(this.from, this.to, 6)) text(this.x(step), height - bottom + 16, shown(step), "middle");
    text((left + width - right) / 2, height - 4, say("step"), "middle");
    this.svg.append(draw("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }));
    for (const { run, points } of lines) {
      const path = points.map(([step, value], k) => `${k ? "L" : "M"}${this.x(step).toFixed(1)} ${this.y(value).toFixed(1)}`).join("");
      const { color } = page.runs[run];
      this.svg.append(draw("path", { d: path, fill: "none", stroke: color, "stroke-width": "1.8", "stroke-dasharray": DASHES[run % DASHES.length] }));
      if (points.length === 1) this.svg.append(draw("circle", { cx: this.x(points[0][0]), cy: this.y(points[0][1]), r: "3", fill: color }));
    }
    this.svg.append(this.marks);
    return this.point(this.step);
  }

  nearest(x) {
    return this.steps.reduce((best, step) => (best === null || Math.abs(this.x(step) - x) < Math.abs(this.x(best) - x) ? step : best), null);
  }

  /** Mark a step, and tell the values of all runs there. */
  point(step) {
    this.step = step;
    this.marks.replaceChildren();
    this.readout.replaceChildren();
    if (step === null) {
      this.readout.append(...this.lines.map(({ run, points }) => this.value(run, points.at(-1)[1])));
      return;
    }
    const { height, top, bottom } = SIZE;
    this.marks.append(draw("line", { x1: this.x(step), x2: this.x(step), y1: top, y2: height - bottom, class: "mark" }));
    this.readout.append(make("span", { text: say("atStep", step) }));
    for (const { run, points } of this.lines) {
      const found = points.find((point) => point[0] === step);
      if (!found) continue;
      this.marks.append(draw("circle", { cx: this.x(step), cy: this.y(found[1]), r: "3.5", fill: page.runs[run].color }));
      this.readout.append(this.value(run, found[1]));
    }
  }

  value(run, value) {
    return make("span", {}, swatch(page.runs[run].color), make("bdi", { text: page.runs[run].name }), " ", make("b", { text: shown(value) }));
  }
}

const charts = page.figures.map((figure) => new Chart(figure));
const update = () => charts.forEach((chart) => chart.update());

const showSmooth = () => (byId("smooth-value").textContent = state.smooth ? String(state.smooth) : say("notSmooth"));

function start() {
  byId("names").textContent = page.title;
  page.runs.forEach(({ name, color }, run) => {
    const box = make("input", { type: "checkbox", onchange: () => {
      if (box.checked) state.hidden.delete(run);
      else state.hidden.add(run);
      update();
    } });
    box.checked = true;
    box.style.accentColor = color;
    byId("runs").append(make("label", { class: "field" }, box, make("bdi", { text: name })));
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("logarithm").addEventListener("change", (event) => {
    state.logarithm = event.target.checked;
    update();
  });
  byId("smooth").addEventListener("input", (event) => {
    state.smooth = Number(event.target.value) / 100;
    showSmooth();
    update();
  });
  const translated = () => {
    showSmooth();
    update();
  };
  wireSwitches(translated, () => {});
  addEventListener("beforeprint", () => (document.documentElement.dataset.theme = "light"));
  addEventListener("afterprint", dress);
  translate();
  showSmooth();
  byId("charts").append(...(charts.length ? charts.map((chart) => chart.element) : [make("p", { class: "notice", "data-text": "none", text: say("none") })]));
  update();
  document.documentElement.dataset.ready = "curves";
}

start();
