"""A document with its words shaded by their weight, and each sentence with its share."""

from __future__ import annotations

from dataclasses import replace

from foci.errors import ConfigError
from foci.viz.documents import shares_of_sentences
from foci.viz.figure import canvas
from foci.viz.figure.shaded_document import ABOVE, ShadedDocument
from foci.viz.selection import Selection
from foci.viz.terminal.sheet import sheet_of, with_notes
from foci.viz.trace import Trace, TracedAttention


def fits(selection: Selection) -> bool:
    """What is read is a document; a terminal shows one row of it."""
    return selection.source.kind == "document" and (selection.form == "figure" or len(selection.target) == 1)


def attention(trace: Trace, name: str | None = None) -> TracedAttention:
    """Return the attention that reads a document, word by word: of this name, or else the first."""
    for one in trace.attentions_to("document", name):
        return one
    raise ConfigError("view 'document' needs an attention whose source is a document: Axis.from_document(…).")


def figure(
    trace: Trace,
    style: canvas.FigureStyle,
    name: str | None = None,
    head: int | None = None,
    row: int = 0,
    sentences: str | None = None,
) -> canvas.Figure:
    """The words in their sentences. ``sentences`` names the attention over whole sentences, where there is one."""
    one = trace.attention(name) if name is not None else attention(trace)
    if not 0 <= row < one.shape[1]:
        raise ConfigError(f"plot: row is {row}, but {one.name!r} has {one.shape[1]} (zero-based).")
    weights = one.dense(head)[row]
    axis = trace.axes[one.source]
    shares = shares_of_sentences(trace, one, weights, sentences, row)
    shaded = ShadedDocument(axis, weights, shares, style)
    drawn = canvas.new_figure(shaded.width, ABOVE + shaded.height)
    shaded.draw(drawn, 0.0)
    return drawn


def terminal(selection: Selection) -> list[str]:
    """The text as paragraphs, its words shaded by the first row."""
    selection = replace(selection, most_rows=1)
    sheet = sheet_of(selection)
    shares = shares_of_sentences(selection.trace, selection.attention, selection.weights[0])
    return with_notes(selection, sheet.document(shares))
