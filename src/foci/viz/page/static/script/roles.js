// A small map of all heads by what they do: a square for each, layers down, heads across.

const MOST_LETTERS = 16; // with more heads the squares are too small for a letter

function roleText(attention, head) {
  const found = trace.roles[attention.name]?.[head];
  const name = `${named(attention.name)}, ${headName(attention, head)}`;
  if (!found) return `${name}: ${say("noRole")}`;
  const [role, score, chance, place] = found;
  const where = role === "positional" ? ` (${place > 0 ? "+" : ""}${place})` : role === "sink" ? ` (${textOf(wholeAxes[attention.source], place)})` : "";
  return `${name}: ${say("roles")[role]}${where}, ${say("roleScore", number(score), number(chance))}`;
}

function roleSquare(attention, head) {
  const role = trace.roles[attention.name][head]?.[0] ?? "none";
  const pressed = attention === state.attention && head === state.head;
  const text = roleText(attention, head);
  return make(
    "button",
    { type: "button", class: `role of-${role}`, title: text, "aria-label": text, "aria-pressed": pressed, onclick: () => choose(attention, head) },
    attention.heads <= MOST_LETTERS && role !== "none" ? say("roleLetters")[role] : "",
  );
}

/** Draw the map again: the focus stays, and the head that is shown can be seen. */
function showRoles() {
  const place = byId("of-heads");
  const focused = [...place.querySelectorAll("button")].indexOf(document.activeElement);
  place.replaceChildren(...[rolesSection()].filter((section) => section));
  const [map, chosen] = [place.querySelector(".roles"), place.querySelector('[aria-pressed="true"]')];
  if (chosen) map.scrollTop = chosen.offsetTop - map.offsetTop - (map.clientHeight - chosen.offsetHeight) / 2;
  place.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
}

/** The map, and below it what its letters mean; null where there is one head alone. */
function rolesSection() {
  const shown = trace.attentions.filter((each) => trace.roles[each.name]);
  if (!shown.length) return null;
  const attentions = [...new Set(shown.map((each) => each.group))].flatMap((group) => shown.filter((each) => each.group === group));
  const most = Math.max(...attentions.map((each) => each.heads));
  const table = make("div", { class: most > MOST_LETTERS ? "roles many" : "roles" });
  table.style.setProperty("--heads", most);
  const several = new Set(attentions.map((each) => each.group)).size > 1;
  attentions.forEach((attention, place) => {
    const first = several && attention.group !== attentions[place - 1]?.group;
    if (first) table.append(make("p", { class: "stack", text: named(attention.layer === null ? attention.name : attention.group) }));
    const squares = Array.from({ length: attention.heads }, (_, head) => roleSquare(attention, head));
    table.append(make("span", { class: "layer", title: named(attention.name), text: String(attention.layer ?? "") }), make("div", { class: "line" }, ...squares));
  });
  const found = Object.keys(say("roles")).filter((role) => attentions.some((each) => trace.roles[each.name].some((one) => one?.[0] === role)));
  const legend = found.map((role) => make("span", {}, make("i", { class: `role of-${role}`, "aria-hidden": "true", text: say("roleLetters")[role] }), say("roles")[role]));
  const note = make("p", { class: "about legend-of-roles" }, ...(legend.length ? legend : [say("noRoles")]));
  return make("section", { class: "what-heads-do" }, make("h2", { text: say("whatHeadsDo") }), table, note);
}
