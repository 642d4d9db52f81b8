// The frame around the views.

const always = () => true;
const VIEWS = {
  compare: { make: CompareView, fits: () => Boolean(trace.pairs.length && pairOf(state.attention)) },
  boxes: { make: BoxesView, fits: () => ofObjects() !== null },
  words: { make: WordsView, fits: always },
  heat: { make: HeatView, fits: always },
  links: { make: LinksView, fits: always },
  layers: { make: LayersView, fits: () => depths().length > 1 },
  heads: { make: HeadsView, fits: always },
};

function clip() {
  const inside = (index, size) => (index === null || size === 0 ? null : clamp(index, 0, size - 1));
  state.target = inside(state.target, matrix.rows);
  state.source = inside(state.source, matrix.columns);
}

function build() {
  const place = byId("view");
  place.replaceChildren();
  if (!VIEWS[state.view].fits()) state.view = VIEWS[defaults.view].fits() ? defaults.view : "words";
  place.className = `view of-${state.view}`;
  clip();
  view = new VIEWS[state.view].make(place);
  if (matrix.rows && matrix.columns) view.enter();
  view.update();
  showState();
}

function showState() {
  showControls();
  showSide();
  document.documentElement.dataset.ready = `${state.attention.name}/${state.head}/${state.view}`;
  document.documentElement.dataset.lens = Object.keys(state.lens).filter((name) => state.lens[name]).join(" ");
}

function show(name) {
  state.view = name;
  build();
  remember();
}

let asked = 0;

/** Load what was chosen; gives null if something else was chosen meanwhile. */
async function load(attention, head, together) {
  const turn = (asked += 1);
  const wanted = [head, ...together].map((each) => matrixOf(attention, each));
  const [rows, found, ...others] = await Promise.all([entropiesOf(attention), ...wanted]);
  if (turn !== asked) return null;
  const before = state.attention;
  Object.assign(state, { attention, head, together });
  matrix = found;
  several = together.map((each, place) => ({ head: each, matrix: others[place], color: HEAD_COLORS[place] }));
  entropies = rows;
  return before;
}

async function choose(attention, head, together = null) {
  const moved = attention !== state.attention;
  const kept = together ?? state.together.filter((each) => each < attention.matrices.length - (attention.heads > 1 ? 1 : 0));
  const before = await load(attention, head, kept);
  if (!before) return;
  const sides = [before.source, before.target].join() !== [attention.source, attention.target].join();
  if (sides) Object.assign(state, { target: 0, source: null, pinned: false, swapped: null });
  if (moved && !["heads", "layers"].includes(state.view)) build();
  else {
    clip();
    view.update();
    showState();
  }
  announce([named(attention.name), matrixName(), state.together.length ? say("shownTogether", state.together.map((each) => headName(attention, each)).join(", ")) : ""].filter((part) => part).join(", "));
  remember();
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value, text })));
  select.value = String(chosen);
}

/** What the controls say, after anything was chosen. */
function showControls() {
  const { attention } = state;
  const groups = [...new Set(trace.attentions.map((each) => each.group))];
  const layers = layersOf(attention);
  const nameOfGroup = (group) => {
    const members = trace.attentions.filter((each) => each.group === group);
    return named(members.length === 1 ? members[0].name : group);
  };
  options(byId("group"), groups.map((group) => [group, nameOfGroup(group)]), attention.group);
  options(byId("layer"), layers.map((each) => [each.name, String(each.layer)]), attention.name);
  options(byId("head"), attention.matrices.map((_, slot) => [headOf(attention, slot), headName(attention, headOf(attention, slot))]), state.head);
  byId("group-field").hidden = groups.length < 2;
  byId("layer-field").hidden = layers.length < 2;
  byId("head-field").hidden = attention.matrices.length < 2;
  byId("threshold").value = String(hideOf(state.threshold));
  showThreshold();
  byId("scale").value = state.scale;
  byId("root").checked = state.root;
  showLenses();
  byId("heading").textContent = textOfTrace() || (among() ? tell("among", titleOf("target")) : tell("between", titleOf("target"), titleOf("source")));
  const head = matrixName() && ` · ${matrixName()}`;
  const hidden = hiddenShare() === null ? "" : ` · ${say("hiddenShare", percent(hiddenShare()))}`;
  byId("attention-name").textContent = `${named(attention.name)}${head} · ${attention.rows} × ${attention.columns}${hidden}`;
  showWhyOpen();
  for (const tab of byId("views").children) {
    const chosen = tab.dataset.view === state.view;
    tab.hidden = !VIEWS[tab.dataset.view].fits();
    tab.textContent = tab.dataset.view === "words" ? sidesName() : say(tab.dataset.view);
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
}

/** What the first view shows: words, a picture, a recording, a document, a memory. */
function sidesName() {
  const kinds = [axisOf("source").kind, axisOf("target").kind];
  const special = ["regions", "frames", "document", "slots", "channels"].find((kind) => kinds.includes(kind));
  if (["source", "target"].some((side) => axisOf(side).parts?.some((part) => part.grid))) return say("kinds").mixed;
  return say("kinds")[special] ?? say("words");
}

function showThreshold() {
  const text = state.threshold ? number(state.threshold) : say("nothingHidden");
  byId("threshold-value").textContent = text;
  byId("threshold").setAttribute("aria-valuetext", text);
}

/** Name what is written once: the buttons that save, and the names that foci gave in the tables above the views. */
function nameParts() {
  for (const element of document.querySelectorAll("[data-name]")) element.textContent = named(element.dataset.name);
  for (const button of byId("files").querySelectorAll("button")) button.setAttribute("aria-label", say("saveAs", button.dataset.kind.toUpperCase()));
}

function stepHead(way) {
  const { attention } = state;
  const count = attention.matrices.length;
  choose(attention, headOf(attention, (slotOf(attention, state.head) + way + count) % count));
}

function wireTabs() {
  byId("views").append(...Object.keys(VIEWS).map((name) =>
    make("button", { type: "button", role: "tab", "data-view": name, "aria-controls": "view", onclick: () => show(name) }),
  ));
  byId("views").addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const names = Object.keys(VIEWS).filter((name) => VIEWS[name].fits());
    show(names[(names.indexOf(state.view) + way + names.length) % names.length]);
    byId("views").querySelector('[aria-selected="true"]').focus();
    event.preventDefault();
  });
}

function wireChoices() {
  const turn = (attention) => choose(attention, headIn(attention, state.head));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("group").addEventListener("change", (event) => {
    const members = trace.attentions.filter((each) => each.group === event.target.value);
    turn(members.find((each) => each.layer === state.attention.layer) ?? members[0]);
  });
  byId("layer").addEventListener("change", (event) => turn(byName(event.target.value)));
  byId("head").addEventListener("change", (event) => choose(state.attention, Number(event.target.value)));
  const redraw = framed(() => {
    view.update();
    showWord();
  });
  byId("threshold").addEventListener("input", (event) => {
    state.threshold = thresholdOf(Number(event.target.value));
    showThreshold();
    redraw();
  });
  byId("threshold").addEventListener("change", () => remember());
  for (const [id, property] of [["scale", "value"], ["root", "checked"]]) {
    byId(id).addEventListener("change", (event) => {
      state[id] = event.target[property];
      redraw();
      remember();
    });
  }
}

/** The same trace with other positions: what was pointed at still is, if it is there. */
function wirePositions() {
  wireLenses(async (now) => {
    const { attention, head, together, target, source } = state;
    if (!(await load(attention, head, together))) return;
    Object.assign(state, { target: now(attention.target, target), source: now(attention.source, source) });
    build();
    remember();
  });
}

function wirePage() {
  const translated = () => {
    nameParts();
    if (matrix) build();
    else sayEmpty();
  };
  wireSwitches(translated, () => matrix && view.update());
  touch.addEventListener("change", () => matrix && showSide());
  for (const kind of Object.keys(WRITERS)) {
    byId("files").append(make("button", { type: "button", "data-kind": kind, text: kind.toUpperCase(), onclick: () => matrix && saveAs(kind) }));
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !matrix) return;
    if (event.key === "Escape") letGo();
    else if (event.key === "[") stepHead(-1);
    else if (event.key === "]") stepHead(1);
  });
  addEventListener("popstate", () => matrix && followAddress());
  new ResizeObserver(framed(() => matrix && view.resize())).observe(byId("view"));
}

function sayEmpty() {
  byId("heading").textContent = textOfTrace() || "foci";
  for (const id of ["controls", "files", "side"]) byId(id).hidden = true;
  byId("view").replaceChildren(make("p", { class: "notice", text: say("empty") }));
}

/** What a page opens with: the attention and head that say most, which Python has found; of two traces, what both have. */
function opening() {
  const { attention: name, head = null, target = 0, source = null } = trace.opening ?? {};
  if (name) state.attention = byName(name);
  else if (trace.pairs.length) state.attention = byName(trace.pairs[0][0]);
  const { attention } = state;
  const kinds = [axisOf("target").kind, axisOf("source").kind];
  if (trace.pairs.length) state.view = "compare";
  else if (VIEWS.boxes.fits()) state.view = "boxes";
  else if (kinds.some((kind) => kind === "slots" || kind === "tags")) state.view = "heat";
  const drawn = ["regions", "frames", "channels"].some((kind) => kinds.includes(kind));
  if (attention.columns > 64) Object.assign(state, { scale: "row", root: !drawn });
  Object.assign(state, { head: head ?? (attention.heads > 1 ? -1 : 0), target, source, pinned: source !== null });
}

/** Why the page has opened with what it shows; from all else a way back. */
function showWhyOpen() {
  const { attention: name, head, why } = trace.opening ?? {};
  if (!why) return;
  const [reason, nats, among] = why;
  const attention = byName(name);
  const here = attention === state.attention && head === state.head;
  const back = make("button", { type: "button", class: "link", text: say("back", [named(name), headName(attention, head)].join(" · ")), onclick: () => choose(attention, head) });
  byId("why-open").replaceChildren(here ? say("whyOpen")[reason](among, number(nats)) : back);
}

async function start() {
  wireTabs();
  wireChoices();
  wirePositions();
  wirePage();
  translate();
  nameParts();
  if (!state.attention) return sayEmpty();
  if (typeof DecompressionStream === "undefined") {
    byId("view").replaceChildren(make("p", { class: "notice", text: say("badPage") }));
    return undefined;
  }
  opening();
  setLens(state.lens);
  defaults = readState();
  return followAddress();
}

start();
