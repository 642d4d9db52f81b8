// Two traces side by side: both maps of one attention, and where they have the same axes, the difference.

const pairOf = (attention) => trace.pairs.find((names) => names.includes(attention.name)) ?? null;
const byName = (name) => trace.attentions.find((each) => each.name === name);

function sameAxes(first, second) {
  return ["source", "target"].every((side) => {
    const [one, other] = [axisOf(side, first).labels, axisOf(side, second).labels];
    return one.length === other.length && one.every((label, index) => label === other[index]);
  });
}

/** One of the maps; all of them point at the same cell. */
class ComparedMap extends HeatView {
  constructor(place, subject, shared) {
    super(place, say("heatLabel", subject.target.title, subject.source.title));
    this.made = subject;
    this.shared = shared;
    this.strip.classList.add("plain");
  }

  choose() {
    return { ...this.made, swapped: state.swapped ?? this.made.swapped };
  }

  pick(target, source, how) {
    this.shared(target, source, how, this);
  }

  tell() {
    const [target, source] = this.subject.current();
    if (target === null || source === null) return this.readout.replaceChildren();
    const weight = this.subject.matrix.weight(target, source);
    const names = [this.subject.target.label(target), this.subject.source.label(source)];
    return this.write(names, (this.made.signed && weight > 0 ? "+" : "") + number(weight));
  }
}

class CompareView {
  enter = enterCell;

  constructor(place) {
    this.place = make("div", { class: "compared" });
    place.append(this.place);
    this.maps = [];
  }

  async update() {
    const [first, second] = pairOf(state.attention).map(byName);
    const [one, other] = await Promise.all([first, second].map((each) => matrixOf(each, headIn(each, state.head))));
    if (!this.place.isConnected) return;
    const equal = sameAxes(first, second);
    const subject = (attention, shown, title, signed) => {
      const within = (index, size) => (index === null || index >= size ? null : index);
      return {
        matrix: shown, signed, layers: [{ matrix: shown, stops: STOPS }], target: mapSide("target", attention), source: mapSide("source", attention),
        swapped: axisOf("target", attention).kind === "steps", caption: () => title,
        current: () => (equal || attention === state.attention ? [within(state.target, shown.rows), within(state.source, shown.columns)] : [null, null]),
      };
    };
    const subjects = [subject(first, one, trace.titles[0]), subject(second, other, trace.titles[1])];
    if (equal) subjects.push(subject(second, difference(one, other), say("difference", ...trace.titles), true));
    const shared = (target, source, how, map) => {
      const { attention } = state;
      const wanted = map === this.maps[0] ? first : second;
      if (!equal && attention !== wanted) return this.turnTo(wanted, target, source, how);
      return point(target, source, how);
    };
    this.place.replaceChildren();
    this.maps = subjects.map((each) => {
      const part = make("div", { class: "map" });
      this.place.append(part);
      return new ComparedMap(part, each, shared);
    });
    for (const map of this.maps) map.update();
  }

  /** Point into the trace that was not the chosen one. */
  async turnTo(attention, target, source, how) {
    if (!(await load(attention, headIn(attention, state.head), []))) return;
    Object.assign(state, { target, source });
    build();
    if (how !== "hover") point(target, source, how);
  }

  point() {
    for (const map of this.maps) map.point();
  }

  resize() {
    for (const map of this.maps) if (map.subject) map.resize();
  }

  print(paper) {
    for (const map of this.maps) map.print(paper && { ...paper, width: paper.width / this.maps.length });
  }
}
