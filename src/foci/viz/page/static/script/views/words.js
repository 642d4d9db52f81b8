// Each side as what it is: words, an image, a recording, shaded by what is read.

const BESIDE = 60; // from so many words on, two texts stand side by side

class WordsView {
  constructor(place) {
    const sides = joined() ? ["target"] : ["target", "source"];
    this.panels = sides.map(panelOf);
    const sizes = sides.map((side) => axisOf(side).labels.length);
    const texts = this.panels.every((panel) => panel instanceof TextPanel);
    const beside = sides.length === 2 && (texts ? Math.min(...sizes) > BESIDE : among());
    // Stacked, the shorter side stays in view as a whole, and the longer one scrolls in the room that is left.
    if (sides.length === 2 && !beside) this.panels[sizes[0] <= sizes[1] ? 0 : 1].element.classList.add("short");
    place.append(make("div", { class: beside ? "panels beside" : "panels" }, ...this.panels.map((panel) => panel.element)));
  }

  update() {
    this.point();
  }

  point(how = "hover") {
    const { target, source } = state;
    const reads = target === null ? null : matrix.reads(target);
    const readBy = source === null ? null : matrix.readBy(source);
    const byHead = (lines) => (several.length ? several.map(lines) : null);
    const readsByHead = reads && byHead((one) => one.matrix.reads(target));
    const readByByHead = readBy && byHead((one) => one.matrix.readBy(source));
    if (this.panels.length === 1) {
      const [panel] = this.panels;
      panel.shade(reads, readBy, readsByHead ?? readByByHead);
      panel.mark(target ?? source);
      return;
    }
    const [who, whom] = this.panels;
    who.shade(null, readBy, readByByHead);
    whom.shade(reads, null, readsByHead);
    who.mark(target);
    whom.mark(source);
    if (how === "hover") return;
    const [panel, values] = reads ? [whom, reads] : [who, readBy];
    const strong = values && strongest(values, 1).places[0];
    if (strong !== undefined && strong !== null) panel.reveal(strong);
  }

  resize() {
    for (const panel of this.panels) panel.draw();
  }

  print(paper) {
    for (const panel of this.panels) panel.print?.(paper);
  }

  enter() {
    if (state.target === null && state.source === null) state.target = 0;
    if (joined()) state.source = state.target = state.target ?? state.source;
    else if (state.target !== null) state.source = null;
  }
}
