"""Pictures of traces for print: `plot` and its heat maps. Images, recordings and documents have views of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from foci.errors import ConfigError, unknown_name
from foci.viz import canvas, plot_channels, plot_document, plot_media, plot_reading, plot_tags
from foci.viz.canvas import FigureStyle
from foci.viz.copied_words import has_copies
from foci.viz.heatmap import Labels, draw
from foci.viz.measured_text import LINE, wrapped
from foci.viz.reading import has_reading
from foci.viz.trace import Trace, TracedAttention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_READABLE = 24
"""With more columns than this, numbers in the cells are left out."""


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
) -> Figure:
    """Draw a trace, and with a path save it as PNG, SVG or PDF by the name's ending.

    Args:
        trace: what to draw.
        path: where the picture goes; the file appears whole or not at all.
        view: "heatmap" (name, head), "heads" (name: small maps of layers × heads), "image" (name, head, words),
            "spectrogram" (name, head), "document" (name, head, row, sentences), "memory" (slots over steps, each
            attention and head a panel), "marginals" (name: tags of words), "tags" (name: words with their labels),
            "bars" (name: weights of channels) or "reading" (a document, and both attentions between it and a question);
            what fits the source unless given.
        title: above everything; what was predicted unless given.
        width: of the figure in inches, for example 3.3 for a column of a paper: it is drawn at that size, with
            letters of 7 points at least. What suits the content unless given.
        scale: "all": the largest weight of all is the darkest; "row": the largest of each row is.
        gamma: the exponent of the scale of colors; below 1 brings out small weights.
        options: those of the view, in brackets above. ``name`` is the attention's and ``head`` the head's, their
            mean unless given; ``words`` are the rows to draw, ``row`` is one of them.

    Example:
        >>> trace = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> [label.get_text() for label in trace.plot().axes[0].get_yticklabels()]
        ['the', 'house']
    """
    target = None if path is None else canvas.check_path("plot", path)
    style = FigureStyle(width, scale, gamma)
    if view is None:
        view = _fitting(trace, options.get("name"))
    if view not in VIEWS:
        raise unknown_name("view", view, VIEWS)
    for option in options:
        if option not in (known := list(signature(VIEWS[view]).parameters)[3:]):
            raise ConfigError(f"plot: view {view!r} has no option {option!r}. It has: {', '.join(known) or 'none'}.")
    title = title or trace.text
    with canvas.drawing([title, *_texts(trace)], style.size) as formatter:
        figure = VIEWS[view](trace, formatter, style, **options)
        if title:
            size = style.size + 2
            written = wrapped(formatter(title, canvas.LONGEST_TITLE), figure.get_figwidth() - 0.1, size)
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


def _heatmap(
    trace: Trace, formatter: canvas.TextFormatter, style: FigureStyle, name: str | None = None, head: int | None = None
) -> Figure:
    attention = trace.attention(name) if name is not None else trace.cross_attentions()[0]
    weights = trace.alignment(name) if head is None else attention.dense(head)
    rows, columns = trace.axes[attention.target], trace.axes[attention.source]
    about = _about(trace, attention, name, head)
    labels = Labels(
        rows.labels,
        columns.labels,
        [about] if about else None,
        row_axis=rows.title,
        column_axis=columns.title,
        scale=style.title("weight"),
        hatched=canvas.meaning_of_zero([attention]),
    )
    return draw(style.scaled(weights), labels.formatted(formatter), style, right_to_left=columns.right_to_left)


def _about(trace: Trace, attention: TracedAttention, name: str | None, head: int | None) -> str:
    """What else could have been drawn: other layers, single heads."""
    remarks = [trace.default_note] if name is None else []
    if attention.heads > 1:
        remarks.append(f"mean of {attention.heads} heads" if head is None else f"head {head}")
    return ", ".join([attention.name, *filter(None, remarks)]) if any(remarks) else ""


def _heads(trace: Trace, formatter: canvas.TextFormatter, style: FigureStyle, name: str | None = None) -> Figure:
    one = trace.attention(name) if name is not None else _first_of_several(trace)
    same = [
        attention
        for attention in trace.attentions.values()
        if (attention.kind, attention.source, attention.target) == (one.kind, one.source, one.target)
    ]
    layers = sorted(same, key=lambda attention: -1 if attention.layer is None else attention.layer)
    if len({attention.heads for attention in layers}) > 1:
        raise ConfigError(f"plot: the layers of {one.kind!r} differ in their number of heads; draw one with 'heatmap'.")
    stack = np.stack([attention.dense(head) for attention in layers for head in range(attention.heads)])
    rows, columns = trace.axes[one.target], trace.axes[one.source]
    panels = [f"head {head}" for head in range(one.heads)]
    several = len(layers) > 1
    labels = Labels(
        rows.labels,
        columns.labels,
        panels + [""] * (len(stack) - len(panels)),
        row_axis="" if several else rows.title,
        column_axis="" if several else columns.title,
        scale=style.title("weight"),
        lines=[_called(attention) for attention in layers] if several else None,
        hatched=canvas.meaning_of_zero(layers),
        all_or_none=True,
    )
    return draw(
        style.scaled(stack),
        labels.formatted(formatter),
        style,
        across=one.heads if several else None,
        right_to_left=columns.right_to_left,
    )


def _called(attention: TracedAttention) -> str:
    return attention.name if attention.layer is None else f"layer {attention.layer}"


def _memory(trace: Trace, formatter: canvas.TextFormatter, style: FigureStyle) -> Figure:
    tapes = [attention for attention in trace.attentions.values() if trace.axes[attention.source].kind == "slots"]
    if not tapes:
        raise ConfigError("plot: view 'memory' needs an attention whose source are slots.")
    one = tapes[0]
    if len({(tape.source, tape.target) for tape in tapes}) > 1:
        raise ConfigError("plot: view 'memory' needs attentions of one memory over the same steps.")
    panels = [tape.kind + (f", head {head}" if tape.heads > 1 else "") for tape in tapes for head in range(tape.heads)]
    stack = np.stack([style.scaled(tape.dense(head)).T for tape in tapes for head in range(tape.heads)])
    # No slot is ever out of reach: a share of exactly 0 is a tiny one that was rounded, and is not drawn as masked.
    stack = np.maximum(stack, np.finfo(stack.dtype).tiny)
    steps, slots = trace.axes[one.target], trace.axes[one.source]
    labels = Labels(
        slots.labels,
        steps.labels,
        panels,
        row_axis=slots.title,
        column_axis=steps.title,
        scale=style.title("weight").replace("row", "step"),
    )
    return draw(stack, labels.formatted(formatter), style, right_to_left=steps.right_to_left)


def _marginals(trace: Trace, formatter: canvas.TextFormatter, style: FigureStyle, name: str | None = None) -> Figure:
    attention = trace.attention(name) if name is not None else trace.cross_attentions()[0]
    steps, tags = trace.axes[attention.target], trace.axes[attention.source]
    shares = attention.dense()
    texts = [[f"{100 * share:.0f} %" for share in line] for line in shares] if shares.shape[1] <= _READABLE else None
    labels = Labels(
        steps.labels,
        tags.labels,
        None,
        texts,
        row_axis=steps.title,
        column_axis=tags.title,
        scale=style.title("probability"),
    )
    return draw(style.scaled(shares), labels.formatted(formatter), style, right_to_left=tags.right_to_left)


VIEWS: dict[str, Callable[..., Figure]] = {
    "heatmap": _heatmap,
    "heads": _heads,
    "image": plot_media.image,
    "spectrogram": plot_media.spectrogram,
    "document": plot_document.document,
    "memory": _memory,
    "marginals": _marginals,
    "tags": plot_tags.tags,
    "copied": plot_tags.copied,
    "bars": plot_channels.bars,
    "reading": plot_reading.reading_plot,
}


def _fitting(trace: Trace, name: str | None) -> str:
    """The view for what is read."""
    if name is None and has_copies(trace):
        return "copied"
    if name is None and has_reading(trace):
        return "reading"
    attention = trace.attention(name) if name is not None else trace.cross_attentions()[0]
    source = trace.axes[attention.source]
    if source.kind == "tags" and trace.axes[attention.target].marks is not None:
        return "tags"
    if source.kind == "regions" and source.image is not None:
        return "image"
    if source.kind == "frames" and source.spectrogram is not None:
        return "spectrogram"
    return {"document": "document", "slots": "memory", "tags": "marginals", "channels": "bars"}.get(
        source.kind, "heatmap"
    )


def _first_of_several(trace: Trace) -> TracedAttention:
    """An attention between two sides, or else the first."""
    across = [attention for attention in trace.attentions.values() if attention.source != attention.target]
    crossing = [one for one in across if (one.target, one.source) == ("target", "source") and not one.derived]
    several = crossing or across or list(trace.attentions.values())
    if not several:
        raise ConfigError("plot: the trace has no attention.")
    return several[0]


def _texts(trace: Trace) -> Iterator[str]:
    """All that may be written."""
    for axis in trace.axes.values():
        yield axis.title
        yield from axis.labels
    yield from trace.attentions
