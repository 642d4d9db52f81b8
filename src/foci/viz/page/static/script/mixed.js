// A side that has parts: the words of a text, and beside them the images that stand in it.

/** The heading of a part; below it stands how much of the weight is on it. */
const partHeading = (part) => make("h2", {}, named(part.title), " ", make("span", { class: "share" }));

class MixedPanel {
  constructor(side) {
    const { parts } = axisOf(side);
    this.parts = parts.map((axis) => ({ axis, panel: axis.grid ? new PicturePanel(side, axis) : new TextPanel(side, axis) }));
    const column = (isPicture) => this.parts.filter(({ panel }) => panel instanceof PicturePanel === isPicture).map(({ panel }) => panel.element);
    const [texts, pictures] = [column(false), column(true)].map((elements) => make("div", { class: "column" }, ...elements));
    const both = pictures.children.length && texts.children.length;
    this.element = make("section", { class: "panel mixed" }, panelHeading(side), make("div", { class: both ? "parts" : "" }, texts, pictures));
  }

  /** Words are compared with words, and the regions of an image with each other; how much each part has is said. */
  shade(reads, readBy, byHead) {
    const ofWords = (values) => {
      const kept = values?.slice() ?? null;
      for (const { axis } of kept ? this.parts : []) if (axis.grid) kept.fill(0, axis.begin, axis.end);
      return kept;
    };
    const whole = { reads: ofWords(reads), readBy: ofWords(readBy), byHead: byHead?.map(ofWords) };
    for (const { axis, panel } of this.parts) {
      const part = (values) => values?.subarray(axis.begin, axis.end) ?? null;
      panel.shade(part(reads), part(readBy), byHead ? byHead.map(part) : null, whole);
      const share = reads && !byHead ? part(reads).reduce((sum, value) => sum + value, 0) : null;
      panel.element.querySelector(".share").textContent = share === null ? "" : tell("shareOfPart", percent(share));
    }
  }

  mark(index) {
    for (const { axis, panel } of this.parts) panel.mark(index !== null && index >= axis.begin && index < axis.end ? index - axis.begin : null);
  }

  reveal(index) {
    const { axis, panel } = this.parts.find((part) => index < part.axis.end);
    panel.reveal(index - axis.begin);
  }

  draw() {
    for (const { panel } of this.parts) panel.draw();
  }

  print(paper) {
    for (const { panel } of this.parts) panel.print?.(paper);
  }
}
