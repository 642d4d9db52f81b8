"""How wide words are when they are drawn."""

from __future__ import annotations

from collections.abc import Sequence


def word_widths(words: Sequence[str], size: float) -> list[float]:
    """Return the width of each word in inches, in letters of ``size`` points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(dpi=100)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    widths: dict[str, float] = {}
    for word in words:
        if word not in widths:
            text = figure.text(0, 0, word, fontsize=size)
            widths[word] = text.get_window_extent(renderer).width / 100
            text.remove()
    return [widths[word] for word in words]
