"""Attention over attention as a piece of the page: the question's words and what they count, and both attentions.

It is plain HTML without script, in the manner of `foci.viz.page_tags`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foci.viz.page_tags import LEVELS, safe
from foci.viz.reading import IMPORTANCE, has_reading, reading
from foci.viz.trace import Trace

_FAINT = 0.02
"""A weight that is so small beside the largest one has no color."""


def reading_html(trace: Trace) -> str:
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
        ("α: question → document, %", found.alpha, asked),
        ("β: document → question, %", found.beta, asked),
        ("αᵀ β, %", found.product[None], [""]),
    ):
        lines.append(_table(caption, weights, rows, words))
    return "\n".join([*lines, "</details>"])


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
    """A text on the color of its weight, which is told on hover."""
    if weight <= _FAINT * largest:
        return text
    level = min(int(weight / largest * LEVELS) + 1, LEVELS)
    return f'<mark class="hue-1 sure-{level}" title="{100 * weight:.1f} %">{text}</mark>'
