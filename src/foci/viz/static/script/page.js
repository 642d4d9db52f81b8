// The frame around the views.

const VIEWS = { words: WordsView, heat: HeatView, links: LinksView, heads: HeadsView };

function clip() {
  const inside = (index, size) => (index === null || size === 0 ? null : clamp(index, 0, size - 1));
  state.target = inside(state.target, matrix.rows);
  state.source = inside(state.source, matrix.columns);
}

function build() {
  const place = byId("view");
  place.replaceChildren();
  place.classList.toggle("framed", state.view === "heat" || state.view === "links");
  view = new VIEWS[state.view](place);
  clip();
  if (matrix.rows && matrix.columns) view.enter();
  view.update();
  tellControls();
  tellSide();
  document.documentElement.dataset.ready = `${state.attention.name}/${state.head}/${state.view}`;
}

function show(name) {
  state.view = name;
  build();
}

let asked = 0;

async function choose(attention, head) {
  const turn = (asked += 1);
  const moved = attention !== state.attention || !matrix;
  const [found, rows] = await Promise.all([matrixOf(attention, head), entropiesOf(attention)]);
  if (turn !== asked) return; // chosen anew while this was unpacked
  const renewed = moved && !(state.view === "heads" && view);
  const sides = [state.attention.source, state.attention.target].join() !== [attention.source, attention.target].join();
  Object.assign(state, { attention, head });
  if (sides) Object.assign(state, { target: 0, source: null, pinned: false, swapped: null });
  matrix = found;
  entropies = rows;
  if (renewed) build();
  else {
    clip();
    view.update();
    tellControls();
    tellSide();
  }
  document.documentElement.dataset.ready = `${attention.name}/${head}/${state.view}`;
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value, text })));
  select.value = String(chosen);
}

/** What the controls say, after anything was chosen. */
function tellControls() {
  const { attention } = state;
  const groups = [...new Set(trace.attentions.map((each) => each.group))];
  const layers = trace.attentions.filter((each) => each.group === attention.group);
  const nameOf = (group) => {
    const members = trace.attentions.filter((each) => each.group === group);
    return members.length === 1 ? members[0].name : group;
  };
  options(byId("group"), groups.map((group) => [group, nameOf(group)]), attention.group);
  options(byId("layer"), layers.map((each) => [each.name, String(each.layer)]), attention.name);
  const heads = Array.from({ length: attention.heads }, (_, head) => [head, say("headNumber", head)]);
  options(byId("head"), attention.heads > 1 ? [[-1, say("mean")], ...heads] : heads, state.head);
  byId("group-field").hidden = groups.length < 2;
  byId("layer-field").hidden = layers.length < 2;
  byId("head-field").hidden = attention.heads < 2;
  byId("threshold-value").textContent = state.threshold ? number(state.threshold) : say("nothingHidden");
  byId("scale").value = state.scale;
  byId("root").checked = state.root;
  byId("heading").textContent = trace.text || (among() ? say("among", titleOf("target")) : say("reads", titleOf("target"), titleOf("source")));
  const head = attention.heads < 2 ? "" : ` · ${state.head < 0 ? say("mean") : say("headNumber", state.head)}`;
  const sizes = `${attention.rows} × ${attention.columns}`;
  byId("attention-name").textContent = `${attention.name}${head} · ${sizes}`;
  for (const tab of byId("views").children) {
    const chosen = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
}

function translate() {
  const root = document.documentElement;
  root.lang = state.language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = say(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", say(element.dataset.label));
  const language = byId("language");
  language.textContent = say("other");
  language.lang = state.language === "zh" ? "en" : "zh";
  language.setAttribute("aria-label", `${say("other")}: ${say("toOther")}`);
  for (const tab of byId("views").children) tab.textContent = say(tab.dataset.view);
  dress();
}

function dress() {
  document.documentElement.dataset.theme = state.theme;
  const other = state.theme === "dark" ? "light" : "dark";
  byId("theme").textContent = say(other);
  byId("theme").setAttribute("aria-label", say(other === "dark" ? "toDark" : "toLight"));
}

function stepHead(way) {
  const { attention } = state;
  const count = attention.matrices.length;
  const slot = (slotOf(attention, state.head) + way + count) % count;
  choose(attention, attention.heads > 1 ? slot - 1 : slot);
}

function wire() {
  byId("views").append(...Object.keys(VIEWS).map((name) =>
    make("button", { type: "button", role: "tab", "data-view": name, "aria-controls": "view", onclick: () => show(name) }),
  ));
  byId("views").addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const names = Object.keys(VIEWS);
    show(names[(names.indexOf(state.view) + way + names.length) % names.length]);
    byId("views").querySelector('[aria-selected="true"]').focus();
    event.preventDefault();
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  const headIn = (attention) => (attention.heads > 1 ? Math.min(state.head, attention.heads - 1) : 0);
  byId("group").addEventListener("change", (event) => {
    const members = trace.attentions.filter((each) => each.group === event.target.value);
    const found = members.find((each) => each.layer === state.attention.layer) ?? members[0];
    choose(found, headIn(found));
  });
  byId("layer").addEventListener("change", (event) => {
    const found = trace.attentions.find((each) => each.name === event.target.value);
    choose(found, headIn(found));
  });
  byId("head").addEventListener("change", (event) => choose(state.attention, Number(event.target.value)));
  const redraw = framed(() => {
    view.update();
    tellSide();
  });
  byId("threshold").addEventListener("input", (event) => {
    // From one in ten thousand up to one, evenly by factors.
    const place = Number(event.target.value);
    state.threshold = place === 0 ? 0 : 10 ** (-4 + place / 25);
    byId("threshold-value").textContent = state.threshold ? number(state.threshold) : say("nothingHidden");
    event.target.setAttribute("aria-valuetext", byId("threshold-value").textContent);
    redraw();
  });
  byId("scale").addEventListener("change", (event) => {
    state.scale = event.target.value;
    redraw();
  });
  byId("root").addEventListener("change", (event) => {
    state.root = event.target.checked;
    redraw();
  });
  byId("language").addEventListener("click", () => {
    state.language = state.language === "zh" ? "en" : "zh";
    translate();
    if (matrix) build();
    else sayEmpty();
  });
  const wear = (theme) => {
    state.theme = theme;
    dress();
    if (matrix) view.update();
  };
  byId("theme").addEventListener("click", () => wear(state.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", (event) => wear(event.matches ? "dark" : "light"));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !matrix) return;
    if (event.key === "Escape") letGo();
    else if (event.key === "[") stepHead(-1);
    else if (event.key === "]") stepHead(1);
  });
  new ResizeObserver(framed(() => matrix && view.resize())).observe(byId("view"));
}

function sayEmpty() {
  byId("heading").textContent = trace.text || "foci";
  byId("controls").hidden = true;
  byId("view").replaceChildren(make("p", { class: "notice", text: say("empty") }));
}

async function start() {
  wire();
  translate();
  if (!state.attention) return sayEmpty();
  if (typeof DecompressionStream === "undefined") {
    byId("view").replaceChildren(make("p", { class: "notice", text: say("badPage") }));
    return undefined;
  }
  // What is between two sides says most; of several layers, the last.
  const across = trace.attentions.filter((attention) => attention.source !== attention.target);
  if (across.length) state.attention = across.reduce((best, each) => ((each.layer ?? -1) >= (best.layer ?? -1) ? each : best));
  const { attention } = state;
  const kinds = [cellsOf("target").kind, cellsOf("source").kind];
  if (kinds.some((kind) => kind === "slots" || kind === "tags")) state.view = "heat";
  const drawn = kinds.includes("regions") || kinds.includes("frames");
  if (attention.columns > 64) Object.assign(state, { scale: "row", root: !drawn });
  await choose(attention, attention.heads > 1 ? -1 : 0);
  return undefined;
}

start();
