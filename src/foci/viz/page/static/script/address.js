// The state in the page's address, after the #: reloading, going back and a link that is passed on keep it.

let defaults = null; // the state that a page without a # has

const readState = () => {
  const { language, theme, swapped, ...kept } = state;
  return kept;
};

const hideOf = (threshold) => (threshold ? Math.round(25 * (Math.log10(threshold) + 4)) : 0);
const thresholdOf = (place) => (place ? 10 ** (-4 + place / 25) : 0); // from one in ten thousand up to one, evenly by factors

function addressText() {
  const fields = new URLSearchParams({ view: state.view, attention: state.attention.name });
  const mean = state.attention.heads > 1 && state.head < 0;
  fields.set("head", mean ? "mean" : String(state.head));
  if (state.together.length) fields.set("together", state.together.join(" "));
  if (state.target !== null) fields.set("target", String(state.target));
  if (state.source !== null) fields.set("source", String(state.source));
  if (state.pinned) fields.set("held", "1");
  if (state.threshold) fields.set("hide", String(hideOf(state.threshold)));
  if (state.scale !== defaults.scale) fields.set("scale", state.scale);
  const lens = Object.keys(state.lens).filter((name) => state.lens[name]);
  if (lens.length) fields.set("lens", lens.join(" "));
  if (state.root !== defaults.root) fields.set("small", state.root ? "1" : "0");
  return fields.toString();
}

/** Write the state into the address: as a new step of the history, or in the place of the last; in a frame, whose history is its host's, always so. */
function remember(replace = false) {
  if (!defaults || document.documentElement.dataset.ready === undefined) return;
  const address = `${location.href.split("#")[0]}#${addressText()}`;
  if (address === location.href) return;
  if (replace || window !== window.top) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}

/** The state that the address tells; what is missing or unknown is as in a page without it. */
function fromAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const found = { ...defaults, lens: state.lens };
  if (!fields.size) return found;
  const whole = (text, low, high) => (/^\d{1,9}$/.test(text ?? "") && Number(text) >= low && Number(text) <= high ? Number(text) : null);
  if (Object.hasOwn(VIEWS, fields.get("view") ?? "")) found.view = fields.get("view");
  found.attention = trace.attentions.find((each) => each.name === fields.get("attention")) ?? found.attention;
  const { attention } = found;
  const last = headOf(attention, attention.matrices.length - 1);
  if (fields.has("head") || attention !== defaults.attention) found.head = whole(fields.get("head"), 0, last) ?? (attention.heads > 1 ? -1 : 0);
  const together = (fields.get("together") ?? "").split(" ").map((text) => whole(text, 0, last));
  found.together = [...new Set(together)].filter((head) => head !== null).slice(0, TOGETHER);
  found.target = whole(fields.get("target"), 0, attention.rows - 1);
  found.source = whole(fields.get("source"), 0, attention.columns - 1);
  found.pinned = fields.get("held") === "1";
  found.threshold = thresholdOf(whole(fields.get("hide"), 0, 100) ?? 0);
  if (["matrix", "row"].includes(fields.get("scale"))) found.scale = fields.get("scale");
  if (fields.has("small")) found.root = fields.get("small") === "1";
  return found;
}

async function followAddress() {
  const lens = (new URLSearchParams(location.hash.slice(1)).get("lens") ?? "").split(" ");
  setLens(Object.fromEntries(Object.keys(LENSES).map((name) => [name, lens.includes(name) && lensMatters(name)])));
  const { attention, head, together, ...rest } = fromAddress();
  if (!(await load(attention, head, together))) return;
  Object.assign(state, rest);
  build();
}
