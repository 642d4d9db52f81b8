// What is pointed at.

/** Point at a cell that reads, one that is read, or both. Hovering does not move what is held. */
function point(target, source, how = "hover") {
  if (how === "hover" && state.pinned) return;
  const same = state.target === target && state.source === source;
  if (how === "click") state.pinned = !(same && state.pinned);
  else if (same) return;
  state.target = target;
  state.source = source;
  view.point();
  tellSide();
  if (how !== "hover") tellAloud();
}

function letGo() {
  if (!state.pinned) return;
  state.pinned = false;
  view.point();
  tellSide();
}

function hold() {
  state.pinned = !state.pinned;
  view.point();
  tellSide();
}

function strongest(values, count) {
  const places = [];
  values.forEach((value, place) => {
    if (value > 0 && value >= state.threshold) places.push(place);
  });
  places.sort((a, b) => values[b] - values[a] || a - b);
  return { places: places.slice(0, count), more: Math.max(0, places.length - count) };
}

// ---- beside the view: lists, entropies, facts

function bar(name, part, text, tone) {
  const fill = make("div", { class: `fill ${tone}` });
  fill.style.width = `${(100 * clamp(part, 0, 1)).toFixed(1)}%`;
  return [
    make("span", { class: "name", dir: "auto", title: name, text: name }),
    make("span", { class: "track", "aria-hidden": "true" }, fill),
    make("span", { class: "number", text }),
  ];
}

function listOf(values, side, tone, rest) {
  const { places, more } = strongest(values, LISTED);
  const most = places.length ? Math.max(values[places[0]], rest) : rest;
  const lines = places.map((place) => make("li", {}, ...bar(nameOf(side, place), values[place] / most, number(values[place]), tone)));
  if (rest > 0.0005) lines.push(make("li", {}, ...bar(say("elsewhere"), rest / most, number(rest), "entropy")));
  if (!lines.length) return make("p", { class: "none", text: say("noneAbove") });
  const list = make("ul", { class: "bars" }, ...lines);
  if (more) list.append(make("li", {}, make("span", { class: "name quiet", text: say("hidden", more) })));
  return list;
}

function wordSection(side, index, asked) {
  const title = make("p", { class: "word", dir: "auto", text: nameOf(side, index) });
  const size = side === "target" ? matrix.rows : matrix.columns;
  const about = [`${titleOf(side)} · ${say("position", index + 1, size)}`];
  const entropy = entropies[slotOf(state.attention, state.head)]?.[index];
  if (asked.includes("reads") && Number.isFinite(entropy)) about.push(say("spread", count(Math.exp(entropy))));
  if (state.pinned) about.push(say("pinned"));
  const section = make("section", {}, title, make("p", { class: "about", text: about.join(" · ") }));
  if (asked.includes("reads")) {
    const list = listOf(matrix.reads(index), "source", "", matrix.rest[index]);
    section.append(make("h2", { text: say(tagged() ? "itsTags" : "read") }), list);
  }
  if (asked.includes("readBy")) {
    section.append(make("h2", { text: say(tagged() ? "itsWords" : "readBy") }), listOf(matrix.readBy(index), "target", "readby", 0));
  }
  return section;
}

function entropySection() {
  const { attention } = state;
  const full = Math.log(Math.max(2, attention.columns));
  const lines = entropies.map((rows, slot) => {
    const head = attention.heads > 1 ? slot - 1 : slot;
    const value = mean(rows);
    if (!Number.isFinite(value)) return null;
    const pressed = slot === slotOf(attention, state.head);
    const name = head < 0 ? say("mean") : say("headNumber", head);
    const button = make(
      "button",
      { type: "button", "aria-pressed": pressed, onclick: () => choose(attention, head) },
      ...bar(name, value / full, value.toFixed(2), "entropy"),
    );
    return make("li", { class: "holder" }, button);
  });
  return make(
    "section", {}, make("h2", { text: `${say("entropy")} (${say("entropyNote")})` }),
    make("ul", { class: "bars" }, ...lines.filter((line) => line)),
  );
}

function tellSide() {
  const side = byId("side");
  if (!matrix) return side.replaceChildren();
  const focused = side.contains(document.activeElement) ? [...side.querySelectorAll("button")].indexOf(document.activeElement) : -1;
  const sections = [];
  if (matrix.rows && matrix.columns) {
    if (state.target !== null && state.target === state.source && among()) sections.push(wordSection("target", state.target, ["reads", "readBy"]));
    else {
      if (state.target !== null) sections.push(wordSection("target", state.target, ["reads"]));
      if (state.source !== null) sections.push(wordSection("source", state.source, ["readBy"]));
    }
  }
  sections.push(entropySection());
  const facts = make("dl", { class: "facts" });
  for (const [name, value] of trace.facts) facts.append(make("dt", { dir: "auto", text: name }), make("dd", { dir: "auto", text: value }));
  if (state.attention.kept) facts.append(make("dd", { class: "wide", text: say("kept", state.attention.kept) }));
  if (facts.children.length) sections.push(make("section", {}, make("h2", { text: say("facts") }), facts));
  const keys = make("p", { class: "keys" });
  for (const [key, what] of say("keys")) keys.append(make("span", {}, make("kbd", { text: key }), ` ${what}`), " ");
  sections.push(keys);
  side.replaceChildren(...sections);
  if (focused >= 0) side.querySelectorAll("button")[focused]?.focus();
  return undefined;
}

function tellAloud() {
  const parts = [];
  const name = (values, side) => strongest(values, 3).places.map((place) => `${nameOf(side, place)} ${number(values[place])}`).join(", ");
  if (state.target !== null) parts.push(`${say(tagged() ? "plain" : "readOf", nameOf("target", state.target))}: ${name(matrix.reads(state.target), "source")}`);
  if (state.source !== null) parts.push(`${say(tagged() ? "plain" : "readByOf", nameOf("source", state.source))}: ${name(matrix.readBy(state.source), "target")}`);
  byId("live").textContent = parts.join(". ");
}
