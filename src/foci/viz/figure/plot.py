"""Pictures of traces for print."""

from __future__ import annotations

import os
from collections.abc import Iterator
from inspect import signature
from typing import Any

from foci.errors import ConfigError
from foci.viz.figure import canvas
from foci.viz.figure.canvas import FigureStyle
from foci.viz.figure.measured_text import LINE, wrapped
from foci.viz.selection import Selection
from foci.viz.trace import Trace
from foci.viz.views import choose


def plot(
    trace: Trace,
    path: str | os.PathLike[str] | None = None,
    view: str | None = None,
    *,
    title: str = "",
    width: float | None = None,
    scale: str = "all",
    gamma: float = 1.0,
    **options: Any,
) -> canvas.Figure:
    """Draw a trace, and with a path save it as PNG, SVG or PDF by the name's ending.

    Args:
        trace: what to draw.
        path: where the picture goes; the file appears whole or not at all.
        view: "heatmap" (name, head), "heads" (name: small maps of layers × heads), "image" (name, head, words),
            "boxes" (name, head, words: objects in an image, and where their queries looked),
            "spectrogram" (name, head), "document" (name, head, row, sentences), "memory" (slots over steps, each
            attention and head a panel), "marginals" (name: tags of words), "tags" (name: words with their labels),
            "copied" (a summary and what of its text was copied), "bars" (name: weights of channels) or "reading" (a
            document, and both attentions between it and a question). Default: the first that fits.
        title: above everything. Default: what was predicted.
        width: of the figure in inches, for example 3.3 for a column of a paper: it is drawn at that size, with
            letters of 7 points at least. Default: what suits the content.
        scale: "all": the largest weight of all is the darkest; "row": the largest of each row is.
        gamma: the exponent of the scale of colors; below 1 brings out small weights.
        options: those of the view, in brackets above. ``name`` is the attention's and ``head`` the head's (default:
            their mean); ``words`` are the rows to draw, ``row`` is one of them.

    Example:
        >>> trace = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> [label.get_text() for label in trace.plot().axes[0].get_yticklabels()]
        ['the', 'house']
    """
    target = None if path is None else canvas.check_path("plot", path)
    style = FigureStyle(width, scale, gamma)
    selection = Selection(trace, options.get("name"), options.get("head"))
    chosen = choose(selection, view)
    known = list(signature(chosen.figure).parameters)[2:]
    for option in options:
        if option not in known:
            name = chosen.__name__.rpartition(".")[2]
            raise ConfigError(f"plot: view {name!r} has no option {option!r}. It has: {', '.join(known) or 'none'}.")
    title, note = title or trace.text, selection.hidden_note
    with canvas.drawing([title, *_texts(trace)], style) as style:
        figure: canvas.Figure = chosen.figure(trace, style, **options)
        if title or note:
            size = style.size + 2
            above = [style.text(title, canvas.LONGEST_TITLE)] if title else []
            lines_above = [wrapped(text, figure.get_figwidth() - 0.1, size) for text in [*above, *filter(None, [note])]]
            written = "\n".join(lines_above)
            if figure.get_layout_engine() is None:  # it has left room for a title, at the top however tall it is
                figure.suptitle(written, fontsize=size, y=1 - 0.05 / figure.get_figheight(), va="top")
            else:
                figure.suptitle(written, fontsize=size)
                lines = written.count("\n") + 1
                figure.set_figheight(figure.get_figheight() + lines * LINE * size / 72)
        figure.draw_without_rendering()  # labels are made when they are first drawn, in the style of that moment
        figure.set_layout_engine("none")  # it is laid out now
        if target is not None:
            canvas.save(figure, target, keep_width=width is not None)
    return figure


def _texts(trace: Trace) -> Iterator[str]:
    """All that may be written."""
    for axis in trace.axes.values():
        yield axis.title
        yield from axis.labels
    yield from trace.attentions
