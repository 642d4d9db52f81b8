// What is pointed at, and what stands beside the view about it: lists, entropies, metadata.

/** Point at a cell that reads, one that is read, or both. Hovering does not move what is held. */
function point(target, source, how = "hover") {
  if (how === "hover" && state.pinned) return;
  const same = state.target === target && state.source === source;
  if (how === "click") state.pinned = !(same && state.pinned);
  else if (same) return;
  state.target = target;
  state.source = source;
  view.point(how);
  showWord();
  if (how === "hover") return;
  announce(aboutWord());
  remember(how === "focus");
}

function hold(pinned = !state.pinned) {
  if (pinned === state.pinned) return;
  state.pinned = pinned;
  view.point();
  showWord();
  remember();
}

const letGo = () => hold(false);

function strongest(values, count) {
  const places = [];
  values.forEach((value, place) => {
    if (value > 0 && value >= state.threshold) places.push(place);
  });
  places.sort((a, b) => values[b] - values[a] || a - b);
  return { places: places.slice(0, count), more: Math.max(0, places.length - count) };
}

function bar(name, part, text, tone, picture = null) {
  const fill = make("div", { class: `fill ${tone}` });
  fill.style.width = `${(100 * clamp(part, 0, 1)).toFixed(1)}%`;
  return [
    make("span", { class: "name", dir: "auto", title: name }, picture, name),
    make("span", { class: "track", "aria-hidden": "true" }, fill),
    make("span", { class: "number", text }),
  ];
}

function listOf(values, side, tone, rest, listed = LISTED) {
  const { places, more } = strongest(values, listed);
  const most = places.length ? Math.max(values[places[0]], rest) : rest;
  const lines = places.map((place) => {
    const picture = thumbnail(side, place);
    const name = picture ? labelOf(side, place) : nameOf(side, place); // beside a picture the short one is enough
    return make("li", {}, ...bar(name, values[place] / most, number(values[place]), tone, picture));
  });
  if (rest > 0.0005) lines.push(make("li", {}, ...bar(say("elsewhere"), rest / most, number(rest), "entropy")));
  if (!lines.length) return make("p", { class: "none", text: say("noneAbove") });
  const list = make("ul", { class: "bars" }, ...lines);
  if (more) list.append(make("li", {}, make("span", { class: "name quiet", text: say("hidden", more) })));
  return list;
}

/** How much all rows read of one column, beside what they read of the mean column. */
function inAll(column) {
  const read = sumOf(matrix.readBy(column));
  const times = read / matrix.ofMeanColumn();
  return tell("inAll", number(read), Number.isFinite(times) ? count(times) : "–", sumOf(matrix.rest) > 0.0005);
}

function wordSection(side, index, asked) {
  const title = make("p", { class: "word", dir: "auto" }, thumbnail(side, index), nameOf(side, index));
  const size = side === "target" ? matrix.rows : matrix.columns;
  const about = [`${titleOf(side)} · ${say("position", index + 1, size)}`];
  if (asked.includes("reads")) {
    const entropy = entropies[slotOf(state.attention, state.head)]?.[index];
    if (matrix.isEmpty(index)) about.push(tell("nothing"));
    else if (Number.isFinite(entropy)) about.push(say("spread", count(Math.exp(entropy))));
    if (matrix.hidden?.[index] > 0) about.push(say("hiddenShare", percent(matrix.hidden[index])));
  }
  if (asked.includes("readBy")) about.push(inAll(index));
  if (state.pinned) about.push(say(touch.matches ? "pinnedTouch" : "pinned"));
  const section = make("section", {}, title, make("p", { class: "about", text: about.join(" · ") }));
  const add = (heading, lines, other, tone, rest) => {
    section.append(make("h2", { text: heading }));
    if (!several.length) section.append(listOf(lines(matrix), other, tone, rest));
    for (const { head, matrix: one, color } of several) {
      section.append(make("p", { class: "of-head" }, swatch(color), headName(state.attention, head)), listOf(lines(one), other, tone, 0, 3));
    }
  };
  if (asked.includes("reads") && !matrix.isEmpty(index)) add(tell("did"), (one) => one.reads(index), "source", "", matrix.rest[index]);
  if (asked.includes("readBy")) add(tell("was"), (one) => one.readBy(index), "target", "readby", 0);
  return section;
}

/** The entropies of all heads; each head can be chosen, and ticked to be shown together with others. */
function headsSection() {
  const { attention } = state;
  const full = Math.log(Math.max(2, attention.columns));
  const lines = entropies.map((rows, slot) => {
    const head = headOf(attention, slot);
    const value = mean(rows);
    const name = headName(attention, head);
    const pressed = slot === slotOf(attention, state.head);
    const known = Number.isFinite(value);
    const button = make(
      "button",
      { type: "button", "aria-pressed": pressed, onclick: () => choose(attention, head) },
      ...bar(name, known ? value / full : 0, known ? value.toFixed(2) : "–", "entropy"),
    );
    return make("li", { class: "holder" }, head < 0 || entropies.length < 2 ? make("span", { class: "tick" }) : tick(head, name), button);
  });
  return make(
    "section", { class: "heads" }, make("h2", { text: `${say("entropy")} (${say("entropyNote")})` }),
    make("ul", { class: "bars" }, ...lines),
    entropies.length > 1 ? make("p", { class: "about", text: say("together") }) : null,
  );
}

function tick(head, name) {
  const place = state.together.indexOf(head);
  const box = make("input", { type: "checkbox", "aria-label": say("togetherWith", name), title: say("togetherWith", name) });
  box.checked = place >= 0;
  box.disabled = place < 0 && state.together.length >= TOGETHER;
  if (place >= 0) box.style.accentColor = HEAD_COLORS[place];
  box.addEventListener("change", () => {
    const together = box.checked ? [...state.together, head] : state.together.filter((other) => other !== head);
    choose(state.attention, state.head, together);
  });
  return make("span", { class: "tick" }, box);
}

function metadataSection() {
  const metadata = make("dl", { class: "metadata" });
  for (const entry of trace.metadata) {
    const [name, value] = entry;
    metadata.append(make("dt", { dir: "auto", text: named(name) }), make("dd", { dir: "auto", text: isOwn(entry) ? named(value) : value }));
  }
  if (state.attention.kept) metadata.append(make("dd", { class: "wide", text: say("kept", state.attention.kept) }));
  return metadata.children.length ? make("section", {}, make("h2", { text: say("metadata") }), metadata) : null;
}

function showWord() {
  const sections = [];
  if (matrix.rows && matrix.columns) {
    if (state.target !== null && state.target === state.source && among()) sections.push(wordSection("target", state.target, ["reads", "readBy"]));
    else {
      if (state.target !== null) sections.push(wordSection("target", state.target, ["reads"]));
      if (state.source !== null) sections.push(wordSection("source", state.source, ["readBy"]));
    }
  }
  byId("of-word").replaceChildren(...sections);
}

/** What is beside the view, after anything was chosen. */
function showSide() {
  showWord();
  const place = byId("of-attention");
  const parts = "button, input";
  const focused = place.contains(document.activeElement) ? [...place.querySelectorAll(parts)].indexOf(document.activeElement) : -1;
  const keys = make("p", { class: "keys" });
  for (const [key, what] of say(touch.matches ? "gestures" : "keys")) keys.append(make("span", {}, make("kbd", { text: key }), ` ${what}`), " ");
  showRoles();
  place.replaceChildren(...[headsSection(), metadataSection(), keys].filter((section) => section));
  if (focused >= 0) place.querySelectorAll(parts)[focused]?.focus();
}

function aboutWord() {
  const parts = [];
  const name = (values, side) => strongest(values, 3).places.map((place) => `${nameOf(side, place)} ${number(values[place])}`).join(", ");
  if (state.target !== null) parts.push(`${tell("didOf", nameOf("target", state.target))}: ${name(matrix.reads(state.target), "source") || tell("nothing")}`);
  if (state.source !== null) parts.push(`${tell("wasOf", nameOf("source", state.source))}: ${name(matrix.readBy(state.source), "target")}`);
  return parts.join(". ");
}
