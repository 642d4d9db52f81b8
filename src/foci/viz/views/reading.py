"""What a reader by attention over attention did: what its question's words read, how much each counts, the product.

A trace of such a reader has four attentions: "words" (α, what each word of the question reads of the document),
"to_question" (β(i), what each word of the document reads of the question), "question" (β, the mean of the latter: how
much each word of the question counts) and "document" (their product αᵀ β, which the answer is read off).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.viz.axis import Axis
from foci.viz.colors import ink
from foci.viz.documents import shares_of_sentences
from foci.viz.figure import canvas
from foci.viz.figure.measured_text import LINE, SMALLEST, Fitted, measure, wrapped
from foci.viz.figure.shaded_document import ABOVE, ShadedDocument
from foci.viz.labels import cut, shown, widest
from foci.viz.page.html import mark, safe
from foci.viz.selection import Selection
from foci.viz.shaded_words import HUES
from foci.viz.terminal.sheet import Sheet, row_labels
from foci.viz.trace import Trace, TracedAttention

PRODUCT, IMPORTANCE, ALPHA, BETA = "document", "question", "words", "to_question"
"""The names of the attentions."""
MOST_COLUMNS = 10
"""Words of the document whose attentions are shown."""
MOST_ROWS = 24
"""Words of the question whose attentions are shown."""
_READ_ROWS = 8
"""Words of a question whose attentions a terminal shows."""
_FAINT = 0.02
"""A weight that is so small beside the largest one has no color on the page."""
_ROW = 0.2
"""Height of a row of the maps, in inches."""
_COLUMN = 0.22
"""The least width of a column, which holds a number."""
_FEWEST = 3
"""Columns of the narrowest map."""
_GAP = 0.14
"""Between two panels."""
_MARGIN = 0.1
_IMPORTANCE = 0.85
"""Width of the bars with their numbers."""
_ALPHA, _BETA = "read of the document by each word of the question", "read of the question by each word of the document"
_BARS = "mean: how much it counts"
_PRODUCT = "product"


class Reading(NamedTuple):
    """Both attentions between the words of the question and those of the document that were read most."""

    rows: list[int]
    """The words of the question that count most, in their order."""
    columns: list[int]
    """The words of the document that were read most, in their order."""
    alpha: NDArray[np.float32]
    """``(row, column)``: what each word of the question reads of the document."""
    beta: NDArray[np.float32]
    """``(row, column)``: what each word of the document reads of the question."""
    importance: NDArray[np.float32]
    """``(row)``: how much each word of the question counts."""
    product: NDArray[np.float32]
    """``(column)``: how much of each word of the document was read in the end."""
    document: Axis
    question: Axis


def fits(selection: Selection) -> bool:
    """The trace is of attention over attention, and no single one was asked for."""
    return selection.is_default and has_reading(selection.trace)


def has_reading(trace: Trace) -> bool:
    """Return whether the trace is of attention over attention that read something."""
    names = (PRODUCT, IMPORTANCE, ALPHA, BETA)
    return all(name in trace.attentions for name in names) and bool(trace.attentions[PRODUCT].dense().any())


def attention(trace: Trace, name: str | None = None) -> TracedAttention:
    """Return the product of both attentions."""
    if not has_reading(trace):
        raise ConfigError("view 'reading' needs a trace of attention over attention (model.reader = over_attention).")
    return trace.attentions[PRODUCT]


def reading(trace: Trace, most_columns: int = MOST_COLUMNS, most_rows: int = MOST_ROWS) -> Reading:
    """Return the attentions of the words that matter most.

    Raises:
        ConfigError: the trace is of another model.
    """
    attention(trace)
    product, importance = (trace.attentions[name].dense()[0] for name in (PRODUCT, IMPORTANCE))
    rows, columns = _largest(importance, most_rows), _largest(product, most_columns)
    return Reading(
        rows,
        columns,
        trace.attentions[ALPHA].dense()[np.ix_(rows, columns)],
        trace.attentions[BETA].dense().T[np.ix_(rows, columns)],
        importance[rows],
        product[columns],
        trace.axes[trace.attentions[PRODUCT].source],
        trace.axes[trace.attentions[IMPORTANCE].source],
    )


def _largest(weights: NDArray[np.float32], most: int) -> list[int]:
    """The places of the largest weights above 0, in the order of the text."""
    best = np.argsort(-weights, kind="stable")[:most]
    return sorted(int(place) for place in best if weights[place] > 0)


def figure(trace: Trace, style: canvas.FigureStyle) -> canvas.Figure:
    """The document shaded by what was read, and both attentions of the words that matter most, in per cent."""
    found = reading(trace)
    product = attention(trace)
    weights = product.dense()[0]
    shares = shares_of_sentences(trace, product, weights)
    shaded = ShadedDocument(found.document, weights, shares, style)
    panels = _Panels(found, style, shaded.width)
    if fewer := panels.most_columns(len(found.columns)):
        panels = _Panels(reading(trace, fewer), style, shaded.width)
    drawn = canvas.new_figure(shaded.width, ABOVE + shaded.height + panels.height)
    shaded.draw(drawn, panels.height)
    panels.draw(drawn)
    return drawn


class _Panels:
    """Where the two maps, the bars and the product stand, in inches from the lower edge of the figure."""

    def __init__(self, found: Reading, style: canvas.FigureStyle, width: float) -> None:
        self.found, self.style = found, style
        self.rows = [style.label(found.question.labels[row]) for row in found.rows]
        columns = [style.label(found.document.labels[column]) for column in found.columns]
        named = [*self.rows, _PRODUCT]
        self.left = 2 * _MARGIN + max(measure(named, style.size).values())
        self.map_width = (width - self.left - _IMPORTANCE - 2 * _GAP - _MARGIN) / 2
        longest = max(measure(columns, style.size).values(), default=0.0)
        self.columns = Fitted(columns, 1, 90, style.size, longest)
        titles = (_ALPHA, _BETA, _BARS)
        sizes = (self.map_width, self.map_width, _IMPORTANCE)
        self.titles = [wrapped(title, size, style.size) for title, size in zip(titles, sizes)]
        self.title_height = LINE * style.size / 72 * max(title.count("\n") + 1 for title in self.titles) + 0.08
        self.map_height = _ROW * max(len(self.rows), 1)
        shown = f"{len(columns)} of {len(found.document)} words of the document, {len(self.rows)} of "
        told = f"In per cent; {shown}{len(found.question)} words of the question."
        self.note = wrapped(told, width - self.left - _MARGIN, SMALLEST)
        note_height = LINE * SMALLEST / 72 * (self.note.count("\n") + 1)
        self.map_bottom = self.columns.room + 0.15 + note_height + _ROW + _GAP
        self.height = self.map_bottom + self.map_height + self.title_height

    def most_columns(self, columns: int) -> int | None:
        """Return how many columns have room for their numbers; None where all have."""
        room = max(int(self.map_width / _COLUMN), _FEWEST)
        return room if room < columns else None

    def draw(self, figure: canvas.Figure) -> None:
        """Draw all of them."""
        found = self.found
        right = self.left + self.map_width + _GAP
        alpha = self._axes(figure, self.left, self.map_bottom, self.map_width, self.map_height, self.titles[0])
        beta = self._axes(figure, right, self.map_bottom, self.map_width, self.map_height, self.titles[1])
        product = self._axes(figure, self.left, self.map_bottom - _GAP - _ROW, self.map_width, _ROW)
        for axes, weights in ((alpha, found.alpha), (beta, found.beta), (product, found.product[None])):
            self._map(axes, weights)
        alpha.set_yticks(range(len(self.rows)), self.rows)
        product.set_yticks([0], [_PRODUCT])
        for axes in (product, beta):
            self.columns.write(axes.xaxis)
        for axes in (alpha, product):
            axes.tick_params(length=0)
        across, up = float(figure.get_figwidth()), float(figure.get_figheight())
        figure.text(self.left / across, 0.02 / up, self.note, va="bottom", fontsize=SMALLEST, color="#555555")
        bars = right + self.map_width + _GAP
        self._bars(self._axes(figure, bars, self.map_bottom, _IMPORTANCE, self.map_height, self.titles[2]))

    def _axes(
        self, figure: canvas.Figure, left: float, bottom: float, width: float, height: float, title: str = ""
    ) -> canvas.Axes:
        across, up = float(figure.get_figwidth()), float(figure.get_figheight())
        axes = figure.add_axes((left / across, bottom / up, width / across, height / up))
        canvas.bare(axes)
        axes.set_title(title, fontsize=self.style.size, pad=4)
        return axes

    def _map(self, axes: canvas.Axes, weights: NDArray[np.float32]) -> None:
        largest = float(weights.max(initial=0.0))
        norm = self.style.norm(0.0, largest or 1.0)
        decimals = 0 if largest >= 0.095 else 1
        axes.imshow(weights, cmap=canvas.colors(), norm=norm, aspect="auto", interpolation="nearest")
        for (row, column), weight in np.ndenumerate(weights):
            if weight >= 0.005:
                color = ink(float(norm(float(weight))))
                text = f"{100 * weight:.{decimals}f}"
                axes.text(column, row, text, ha="center", va="center", fontsize=SMALLEST, color=color)
        if self.found.document.right_to_left:
            axes.invert_xaxis()
        axes.spines[:].set(visible=True, color="#c8c8c8", linewidth=0.5)

    def _bars(self, axes: canvas.Axes) -> None:
        importance = self.found.importance
        axes.barh(range(len(importance)), importance, height=0.6, color="#8c8c8c")
        axes.set_ylim(len(importance) - 0.5, -0.5)
        axes.set_xlim(0, 1.9 * (float(importance.max(initial=0.0)) or 1.0))
        for row, share in enumerate(importance):
            axes.text(share, row, f" {100 * share:.0f} %", va="center", fontsize=SMALLEST)


def terminal(selection: Selection) -> list[str]:
    """The document and the question as they were read, and both attentions between the words that matter most."""
    trace, screen = selection.trace, selection.screen
    found = reading(trace, most_rows=_READ_ROWS)
    product = attention(trace)
    whole = Sheet(product.dense(), [""], found.document, screen)
    lines = [cut(shown(f"{PRODUCT} · as it was read"), screen.columns)]
    lines += whole.document(shares_of_sentences(trace, product, whole.weights[0]))
    asked = Sheet(trace.attentions[IMPORTANCE].dense(), [""], found.question, screen)
    lines += ["", "question · how much each word counts", *asked.document(np.ones(1, dtype=np.float32))]
    words = Axis.from_tokens([found.document.labels[column] for column in found.columns])
    labels = row_labels([found.question.labels[row] for row in found.rows], screen)
    for title, weights, rows in (
        ("words · question ← document", found.alpha, labels),
        ("to_question · document ← question, each column", found.beta, labels),
        ("document · their product", found.product[None], [" " * widest(labels)]),
    ):
        lines += ["", cut(title, screen.columns), *Sheet(weights, rows, words, screen).heat()]
    return lines


def page(trace: Trace) -> str:
    """Return the question and the tables of both attentions as HTML; nothing for other traces."""
    if not has_reading(trace):
        return ""
    found = reading(trace)
    words = [safe(found.document.labels[column]) for column in found.columns]
    asked = [safe(found.question.labels[row]) for row in found.rows]
    importance = trace.attentions[IMPORTANCE].dense()[0]
    lines = ['<p class="tagged" dir="auto">']
    for label, share in zip(found.question.labels, importance):
        lines.append(_cell(safe(label), float(share), float(importance.max())))
    lines += ["</p>", '<details class="reading"><summary>αᵀ β</summary>']
    for caption, weights, rows in (
        (f"α: {_named('question')} → {_named('document')}, %", found.alpha, asked),
        (f"β: {_named('document')} → {_named('question')}, %", found.beta, asked),
        ("αᵀ β, %", found.product[None], [""]),
    ):
        lines.append(_table(caption, weights, rows, words))
    return "\n".join([*lines, "</details>"])


def _named(name: str) -> str:
    """A name of foci's own, which the page shows in its language."""
    return f'<span data-name="{name}">{name}</span>'


def _table(caption: str, weights: NDArray[np.float32], rows: list[str], columns: list[str]) -> str:
    """A table of weights in per cent."""
    largest = float(weights.max(initial=0.0))
    lines = [f"<table><caption>{caption}</caption>"]
    lines.append("<tr><td></td>" + "".join(f'<th scope="col">{word}</th>' for word in columns) + "</tr>")
    for label, line in zip(rows, weights):
        cells = "".join(f"<td>{_cell(f'{100 * weight:.1f}', float(weight), largest)}</td>" for weight in line)
        lines.append(f'<tr><th scope="row">{label}</th>{cells}</tr>')
    return "\n".join([*lines, "</table>"])


def _cell(text: str, weight: float, largest: float) -> str:
    """A text on the color of its weight, which is shown on hover."""
    if weight <= _FAINT * largest:
        return text
    return mark(HUES[1], weight / largest, text, f' title="{100 * weight:.1f} %"')
