// What is seen as a file: PNG, SVG, and the weights as CSV.

/** Draw what stands in the view, as it stands there: texts, shades, pictures. */
function drawView(context, frame) {
  const { width, height } = frame;
  context.fillStyle = style("--paper");
  context.fillRect(0, 0, width, height);
  const parts = byId("view").querySelectorAll(".words, .cell, .mass, .swatch, h2, .caption, .overview th, .entropy, canvas");
  for (const element of parts) {
    const clips = element.closest(".panel, .scroller, .overview, .map")?.getBoundingClientRect() ?? frame;
    const box = element.getBoundingClientRect();
    if (!box.width || box.bottom <= clips.top || box.top >= clips.bottom || box.right <= clips.left || box.left >= clips.right) continue;
    context.save();
    context.beginPath();
    context.rect(clips.left - frame.left, clips.top - frame.top, clips.width, clips.height);
    context.clip();
    drawElement(context, element, box.left - frame.left, box.top - frame.top, box);
    context.restore();
  }
}

function drawElement(context, element, x, y, { width, height }) {
  const look = getComputedStyle(element);
  if (element instanceof HTMLCanvasElement) {
    context.globalAlpha = Number(look.opacity);
    if (drawings.has(element)) {
      context.translate(x, y);
      drawings.get(element)(context);
    } else context.drawImage(element, x, y, width, height);
    return;
  }
  const filled = look.backgroundColor !== "rgba(0, 0, 0, 0)" && look.backgroundColor !== "transparent";
  if (filled) {
    context.fillStyle = look.backgroundColor;
    context.fillRect(x, y, width, height);
  }
  const levels = look.getPropertyValue("--heads");
  if (levels) {
    const shades = levels.replaceAll('"', "").split(" ").map(Number);
    shades.forEach((level, k) => {
      context.fillStyle = css(mixed(toward(several[k].color), level / LEVELS));
      context.fillRect(x + (k * width) / shades.length, y + height - 8, width / shades.length, 8);
    });
  } else if (Number(look.getPropertyValue("--u")) && element.matches(".cell")) {
    context.fillStyle = look.borderBottomColor;
    context.fillRect(x, y + height - 3, width, 3);
  }
  if (element.matches(".words, .mass, .swatch")) return;
  if (element.matches(".current")) {
    context.strokeStyle = style("--mark");
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, width + 2, height + 2);
  }
  context.fillStyle = look.color;
  context.font = `${look.fontWeight} ${look.fontSize} ${look.fontFamily}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(element.textContent, x + parseFloat(look.paddingLeft), y + height / 2 - (levels ? 4 : 0));
}

/** The weights of the head that was chosen: a row for each cell that reads, a column for each that is read. */
function csv() {
  // A label that a spreadsheet would compute as a formula is marked as text.
  const quoted = (text) => `"${(/^[=+\-@\t\r]./.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const labels = (side) => axisOf(side).labels.map((_, index) => quoted(nameOf(side, index)));
  const shown = (weight) => (weight < state.threshold ? "0" : String(Number(weight.toPrecision(4))));
  const names = labels("target");
  const lines = [["", ...labels("source")].join(",")];
  for (let row = 0; row < matrix.rows; row++) lines.push([names[row], ...Array.from(matrix.reads(row), shown)].join(","));
  return `\ufeff${lines.join("\r\n")}\r\n`;
}

const WRITERS = {
  png: async (frame) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(2 * frame.width), Math.round(2 * frame.height)];
    const context = canvas.getContext("2d");
    context.scale(2, 2);
    context.imageSmoothingEnabled = false;
    drawView(context, frame);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  },
  svg: async (frame) => {
    const context = new SvgContext(frame.width, frame.height);
    drawView(context, frame);
    return new Blob([context.text()], { type: "image/svg+xml" });
  },
  csv: async () => new Blob([csv()], { type: "text/csv" }),
};

async function saveAs(kind) {
  const blob = await WRITERS[kind](byId("view").getBoundingClientRect());
  const address = URL.createObjectURL(blob);
  const words = [trace.attentions.length > 1 ? state.attention.name : "attention", matrixName(), state.view];
  const link = make("a", { download: `${words.filter((word) => word).join("-").replace(/[^\p{L}\p{N}.-]+/gu, "_")}.${kind}` });
  link["href"] = address; // nothing is loaded: it is what was just made
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const matrixName = () => (state.attention.matrices.length > 1 ? headName(state.attention, state.head) : "");
