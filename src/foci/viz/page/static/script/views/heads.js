// All heads of all layers as small pictures.

class HeadsView {
  constructor(place) {
    this.place = make("div", { class: "overview" });
    place.append(this.place);
  }

  async update() {
    const layers = layersOf(state.attention);
    const longest = layers.reduce((best, each) => (each.matrices.length > best.matrices.length ? each : best));
    const header = make("tr", {}, make("td"));
    longest.matrices.forEach((_, slot) => header.append(make("th", { scope: "col", text: headName(longest, headOf(longest, slot)) })));
    const colors = ramp();
    const rows = await Promise.all(layers.map(async (attention) => {
      const [pictures, entropy] = await Promise.all([thumbnailsOf(attention), entropiesOf(attention)]);
      const name = layers.length > 1 && attention.layer !== null ? say("layerNumber", attention.layer) : named(attention.name);
      const row = make("tr", {}, make("th", { scope: "row", text: name, title: named(attention.name) }));
      attention.matrices.forEach((_, slot) => row.append(make("td", {}, this.button(attention, slot, pictures, entropy[slot], colors))));
      return row;
    }));
    const focused = this.place.contains(document.activeElement);
    this.place.replaceChildren(
      make("p", { text: tell("overview") }), make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)),
    );
    if (focused) this.place.querySelector('[aria-pressed="true"]')?.focus();
  }

  button(attention, slot, pictures, entropy, colors) {
    const { height, width } = pictures;
    const head = headOf(attention, slot);
    const bytes = pictures.bytes.subarray(slot * height * width, (slot + 1) * height * width);
    const place = (k) => (trace.axes[attention.source].rightToLeft ? k + width - 1 - 2 * (k % width) : k);
    const pixels = Uint32Array.from(bytes, (_, k) => colors[Math.floor((bytes[place(k)] / 255) * (SHADES - 1))]);
    const unread = { "aria-hidden": "true" };
    const canvas = bytes.length ? canvasOf(pixels, width, unread) : make("canvas", unread);
    const value = mean(entropy);
    const known = Number.isFinite(value) ? `${value.toFixed(2)} · ≈ ${count(Math.exp(value))}` : "–";
    const name = headName(attention, head);
    const pressed = attention === state.attention && slot === slotOf(attention, state.head);
    return make(
      "button",
      {
        type: "button", "aria-pressed": pressed, "aria-label": `${named(attention.name)}, ${name}, ${known}`, title: `${named(attention.name)}, ${name}`,
        onclick: () => choose(attention, head),
        ondblclick: () => show("heat"),
      },
      canvas, make("span", { class: "entropy", text: known }),
    );
  }

  point() {}
  resize() {}
  enter() {}
}
