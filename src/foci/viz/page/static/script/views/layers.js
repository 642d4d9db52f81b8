// One word in all layers: what it reads in each of them; of a single layer, in each of its heads.

const layersOf = (attention) => trace.attentions.filter((each) => each.group === attention.group);

/** The attentions and heads that are compared: [{attention, head, name}]. */
function depths() {
  const { attention, head } = state;
  const same = layersOf(attention).filter((each) => each.source === attention.source && each.target === attention.target);
  if (same.length > 1) {
    return same.map((each) => ({ attention: each, head: headIn(each, head), name: say("layerNumber", each.layer) }));
  }
  return attention.matrices.map((_, slot) => ({ attention, head: headOf(attention, slot), name: headName(attention, headOf(attention, slot)) }));
}

const headIn = (attention, head) => (attention.heads > 1 ? Math.min(head, attention.matrices.length - 2) : Math.max(0, Math.min(head, attention.matrices.length - 1)));

/** The heat map below: a row for each layer. */
class LayersMap extends HeatView {
  constructor(place) {
    super(place, say("layersLabel"));
    this.lines = [];
    this.matrices = [];
    this.row = 0;
  }

  async load() {
    this.lines = depths();
    this.matrices = await Promise.all(this.lines.map(({ attention, head }) => matrixOf(attention, head)));
  }

  choose() {
    const target = state.target ?? 0;
    const lines = this.matrices.map((one) => Uint8Array.from(one.row(target)));
    const scales = Float32Array.from(this.matrices, (one) => one.scales[target]);
    const made = new MadeMatrix(lines, scales, matrix.columns);
    const { attention, head } = state;
    this.row = Math.max(0, this.lines.findIndex((line) => line.attention === attention && (line.head === head || this.lines[0].attention !== attention)));
    return {
      ...chosenSubject(),
      matrix: made,
      layers: [{ matrix: made, stops: STOPS }],
      target: { title: say("layers"), axis: {}, label: (index) => this.lines[index].name, mirrored: false },
      swapped: false,
      caption: () => tell("everywhere", nameOf("target", target)),
      current: () => [this.row, state.source],
    };
  }

  /** Pointing keeps the word; a click chooses the layer. */
  pick(row, source, how) {
    this.row = row;
    point(state.target, source, how === "click" ? "focus" : how);
    const { attention, head } = this.lines[row];
    if (how !== "hover") choose(attention, head);
  }

  tell() {
    const { source } = state;
    if (source === null || !this.matrices.length) return;
    this.write([this.lines[this.row].name, nameOf("source", source)], number(this.subject.matrix.weight(this.row, source)));
  }
}

class LayersView {
  enter = enterCell;

  constructor(place) {
    this.panel = panelOf("target");
    this.panel.element.classList.add("short");
    const map = make("div", { class: "map" });
    place.append(make("div", { class: "panels layers" }, this.panel.element), map);
    this.map = new LayersMap(map);
  }

  async update() {
    await this.map.load();
    if (!this.map.scroller.isConnected) return;
    this.map.update();
    this.panel.mark(state.target);
    this.panel.draw();
  }

  point() {
    if (!this.map.matrices.length) return;
    if (state.target === null) state.target = 0;
    if (this.shown === state.target) this.map.point();
    else this.map.update();
    this.shown = state.target;
    this.panel.mark(state.target);
  }

  resize() {
    this.panel.draw();
    if (this.map.matrices.length && this.map.subject) this.map.resize();
  }

  print(paper) {
    this.map.print(paper);
  }
}
