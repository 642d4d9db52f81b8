// On paper: light colors, everything that is shaded, and all columns of a map.

const PAPER = 1000; // how wide a drawing is made for paper, which shrinks it to its own width
const LONGEST_PAPER = 12000; // a canvas may not be much longer

let screenTheme = null;

addEventListener("beforeprint", () => {
  if (!matrix || screenTheme) return;
  screenTheme = state.theme;
  state.theme = "light";
  dress();
  const tall = view instanceof LinksView ? Math.max(matrix.rows, matrix.columns) * rowHeight() + 60 : PAPER * 0.9;
  view.print?.({ width: PAPER, height: Math.min(LONGEST_PAPER, tall) });
  view.resize();
});

addEventListener("afterprint", () => {
  if (!screenTheme) return;
  state.theme = screenTheme;
  screenTheme = null;
  dress();
  view.print?.(null);
  view.update();
});
