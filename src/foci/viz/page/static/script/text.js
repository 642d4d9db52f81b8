// A side that is text: words that are shaded by what is read.

/** How a panel's cell, pointed at, is told to the state. */
function pointFrom(side, index, how) {
  if (joined()) point(index, index, how);
  else if (side === "target") point(index, null, how);
  else point(null, index, how);
}

function panelHeading(side) {
  const title = titleOf(side);
  if (joined()) return make("h2", { text: tell("among", title) });
  if (among()) return make("h2", { text: side === "target" ? tell("who", title) : tell("whom", title) });
  return make("h2", { text: side === "target" && state.attention.verb !== "tags" ? tell("between", title, titleOf("source")) : title });
}

const CONTINUES = /^##/; // how some tokenizers mark a piece that goes on
const BEGINS = /^[▁Ġ]/; // how others mark one that does not
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

/** What stands between words when they are copied. */
function gaps(labels) {
  const marked = labels.some((label) => BEGINS.test(label));
  return labels.map((label, index) => {
    if (index === 0 || CONTINUES.test(label)) return "";
    if (marked) return BEGINS.test(label) ? " " : "";
    const unspaced = UNSPACED.test(labels[index - 1].slice(-1)) && UNSPACED.test(label.slice(0, 1));
    return unspaced ? "" : " ";
  });
}

const AROUND = 120; // pixels above and below what is seen
const PIECE = 80; // words

/** The sizes of the pieces of a text: one, or of a long one many. */
const pieces = (count) => (count <= LONG ? [count] : Array.from({ length: Math.ceil(count / PIECE) }, (_, k) => Math.min(PIECE, count - k * PIECE)));

class TextPanel {
  /** Of a side, or of a part of it. */
  constructor(side, axis = axisOf(side)) {
    this.side = side;
    this.axis = axis;
    const begin = axis.begin ?? 0;
    this.words = axis.labels.map((_, index) =>
      make("span", { class: "cell", role: "option", tabindex: "-1", dir: "auto", "data-index": index, "aria-selected": "false", text: textOf(axis, index) }),
    );
    this.styles = new Array(this.words.length).fill("");
    this.masses = [];
    const between = gaps(axis.labels);
    const spaced = (from, to) => this.words.slice(from, to).flatMap((word, k) => (between[from + k] && k ? [between[from + k], word] : [word]));
    const many = axis.labels.length > LONG ? " many" : "";
    this.list = make("div", { class: `words${many}`, role: "listbox", "aria-label": named(axis.title), dir: axis.rightToLeft ? "rtl" : "ltr" });
    // A long text is laid out and drawn piece by piece, as far as it is seen.
    const long = axis.labels.length > LONG;
    let start = 0;
    this.pieces = (axis.sentences ?? pieces(axis.labels.length)).map((size, place) => {
      const words = make("div", { class: long ? "piece" : "" }, ...spaced(start, start + size));
      const piece = { element: words, start, end: (start += size) };
      if (!axis.sentences) this.list.append(words);
      else {
        const mass = make("span", { class: "mass", "aria-hidden": "true" });
        this.masses.push({ mass, start: piece.start, end: piece.end });
        this.list.append(make("div", { class: "sentence", role: "group", "aria-label": String(place + 1) }, mass, words));
      }
      return piece;
    });
    this.element = make("section", { class: "panel" }, axis.begin === undefined ? panelHeading(side) : partHeading(axis), this.list);
    const indexOf = (event) => Number(event.target.closest?.(".cell")?.dataset.index ?? NaN);
    const at = (how) => (event) => {
      const index = indexOf(event);
      if (!Number.isNaN(index)) pointFrom(side, begin + index, how);
    };
    this.list.addEventListener("pointerover", at("hover"));
    this.list.addEventListener("click", at("click"));
    this.list.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) at("focus")(event);
    });
    this.element.addEventListener("scroll", framed(() => this.styleOf && this.paint(this.styleOf)), { passive: true });
    this.list.addEventListener("keydown", (event) => this.key(event, indexOf(event)));
    this.reachable = this.words[0] ?? null;
    if (this.reachable) this.reachable.tabIndex = 0;
  }

  key(event, index) {
    if (Number.isNaN(index)) return;
    const last = this.words.length - 1;
    const forwards = this.axis.rightToLeft ? -1 : 1;
    const moves = { ArrowRight: index + forwards, ArrowLeft: index - forwards, Home: 0, End: last };
    let to = moves[event.key];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") to = this.nextLine(index, event.key === "ArrowDown" ? 1 : -1);
    if (event.key === "Enter" || event.key === " ") hold();
    else if (to === undefined) return;
    else {
      letGo();
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

  /** Shade what is read of each word, and how much it reads. Of those that are seen, the words whose shade changes are touched. */
  shade(reads, readBy, byHead, whole = { reads, readBy, byHead }) {
    const level = (value, full) => Math.round(LEVELS * strength(value, full));
    if (byHead) {
      const fulls = whole.byHead.map((values, k) => fullOf(values, several[k].matrix));
      this.paint((index) => stripes(byHead.map((values, k) => level(values[index], fulls[k]))));
    } else {
      const [fullReads, fullReadBy] = [reads && fullOf(whole.reads), readBy && fullOf(whole.readBy)];
      const alone = !reads && Boolean(readBy);
      this.paint((index) => wordStyle(reads ? level(reads[index], fullReads) : 0, readBy ? level(readBy[index], fullReadBy) : 0, alone));
    }
    this.list.classList.toggle("striped", Boolean(byHead));
    const values = reads ?? readBy;
    for (const { mass, start, end } of this.masses) {
      const sum = values ? values.subarray(start, end).reduce((total, value) => total + value, 0) : 0;
      const part = Math.min(1, reads ? sum : sum / Math.max(1e-9, matrix.rows * (readBy ? fullOf(readBy) : 1)));
      mass.style.setProperty("--t", part.toFixed(3));
      mass.style.backgroundColor = css(mixed(reads ? STOPS : READ_BY, part));
      mass.title = values ? number(sum) : "";
    }
  }

  /** The pieces of the text that are seen, or nearly: the others are styled when they are scrolled to. */
  get seen() {
    if (this.pieces.length < 2 || this.complete) return this.pieces;
    const frame = this.element.getBoundingClientRect();
    return this.pieces.filter(({ element }) => {
      const box = element.getBoundingClientRect();
      return box.bottom > frame.top - AROUND && box.top < frame.bottom + AROUND;
    });
  }

  paint(styleOf) {
    this.styleOf = styleOf;
    for (const { start, end } of this.seen) {
      for (let index = start; index < end; index++) {
        const wanted = styleOf(index);
        if (wanted === this.styles[index]) continue;
        this.styles[index] = wanted;
        this.words[index].style.cssText = wanted;
      }
    }
  }

  draw() {
    if (this.styleOf) this.paint(this.styleOf);
  }

  /** On paper every word is seen. */
  print(paper) {
    this.complete = Boolean(paper);
    this.draw();
  }

  mark(index) {
    const word = index === null ? null : this.words[index];
    if (word === this.marked) return;
    if (this.marked) {
      this.marked.classList.remove("current");
      this.marked.setAttribute("aria-selected", "false");
    }
    this.marked = word;
    if (!word) return;
    word.classList.add("current");
    word.setAttribute("aria-selected", "true");
    this.reachable.tabIndex = -1;
    word.tabIndex = 0;
    this.reachable = word;
  }

  /** Scroll to a word, in this panel alone. */
  reveal(index) {
    const [box, frame] = [this.words[index].getBoundingClientRect(), this.element.getBoundingClientRect()];
    if (box.top < frame.top || box.bottom > frame.bottom) this.element.scrollTop += box.top - frame.top - frame.height / 2;
  }
}
