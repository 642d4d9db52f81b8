// A drawing context that writes SVG: as much of a canvas's context as the views use.

/** Elements of a document that is never shown, and so loads nothing; the page holds the name of SVG's elements as one of them. */
const sheet = document.implementation.createHTMLDocument("");

const svgElement = (tag, properties) => set(sheet.createElementNS(byId("svg").namespaceURI, tag), properties);
const short = (value) => String(Math.round(value * 100) / 100);

class SvgContext {
  constructor(width, height) {
    this.root = svgElement("svg", { width: short(width), height: short(height), viewBox: `0 0 ${short(width)} ${short(height)}` });
    this.into = this.root;
    this.kept = [];
    this.path = "";
    this.clipped = null;
    this.measuring = document.createElement("canvas").getContext("2d");
    Object.assign(this, { fillStyle: "#000000", strokeStyle: "#000000", lineWidth: 1, globalAlpha: 1, font: "10px sans-serif", textAlign: "left", textBaseline: "alphabetic" });
  }

  add(tag, properties) {
    if (this.globalAlpha < 1) properties.opacity = short(this.globalAlpha);
    return this.into.appendChild(svgElement(tag, properties));
  }

  group(tag, properties) {
    this.into = this.into.appendChild(svgElement(tag, properties));
  }

  save() {
    const { into, fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline } = this;
    this.kept.push({ into, fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline });
  }

  restore() {
    Object.assign(this, this.kept.pop());
  }

  translate(x, y) {
    this.group("g", { transform: `translate(${short(x)} ${short(y)})` });
  }

  rotate(angle) {
    this.group("g", { transform: `rotate(${short((angle * 180) / Math.PI)})` });
  }

  beginPath() {
    this.path = "";
    this.clipped = null;
  }

  rect(...box) {
    this.clipped = box;
  }

  /** Rectangles alone are cut out: a nested picture shows nothing outside of itself. */
  clip() {
    const [x, y, width, height] = this.clipped.map(short);
    this.group("svg", { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}`, overflow: "hidden" });
  }

  moveTo(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  lineTo(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }

  bezierCurveTo(...places) {
    this.path += `C${places.map(short).join(" ")}`;
  }

  stroke() {
    this.add("path", { d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": short(this.lineWidth) });
  }

  fillRect(x, y, width, height) {
    this.add("rect", { x: short(x), y: short(y), width: short(width), height: short(height), fill: this.fillStyle });
  }

  strokeRect(x, y, width, height) {
    const box = { x: short(x), y: short(y), width: short(width), height: short(height) };
    this.add("rect", { ...box, fill: "none", stroke: this.strokeStyle, "stroke-width": short(this.lineWidth) });
  }

  measureText(text) {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }

  fillText(text, x, y) {
    const [, weight, size, family] = /^(?:(\d+) )?([\d.]+)px (.*)$/s.exec(this.font);
    const anchor = { right: "end", center: "middle" }[this.textAlign] ?? "start";
    const place = { x: short(x), y: short(this.textBaseline === "middle" ? y + 0.35 * Number(size) : y) };
    this.add("text", { ...place, fill: this.fillStyle, "font-size": size, "font-weight": weight ?? "400", "font-family": family.replace(/\s+/g, " "), "text-anchor": anchor }).textContent = text.toWellFormed();
  }

  /** The picture is put in as it is; cells stay sharp however large it is drawn. */
  drawImage(canvas, ...places) {
    let [source, box] = [canvas, places];
    if (places.length === 8) {
      const [x, y, width, height] = places;
      source = document.createElement("canvas");
      [source.width, source.height] = [Math.max(1, Math.round(width)), Math.max(1, Math.round(height))];
      source.getContext("2d").drawImage(canvas, x, y, width, height, 0, 0, source.width, source.height);
      box = places.slice(4);
    }
    const [x, y, width, height] = box.map(short);
    this.add("image", { x, y, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated", href: source.toDataURL() });
  }

  text() {
    return new XMLSerializer().serializeToString(this.root);
  }
}
