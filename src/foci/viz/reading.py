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
from foci.viz.trace import Trace

PRODUCT, IMPORTANCE, ALPHA, BETA = "document", "question", "words", "to_question"
"""The names of the attentions."""
MOST_COLUMNS = 10
"""Words of the document whose attentions are shown."""
MOST_ROWS = 24
"""Words of the question whose attentions are shown."""


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


def has_reading(trace: Trace) -> bool:
    """Return whether the trace is of attention over attention that read something."""
    names = (PRODUCT, IMPORTANCE, ALPHA, BETA)
    return all(name in trace.attentions for name in names) and bool(trace.attentions[PRODUCT].dense().any())


def reading(trace: Trace, most_columns: int = MOST_COLUMNS, most_rows: int = MOST_ROWS) -> Reading:
    """Return the attentions of the words that matter most.

    Raises:
        ConfigError: the trace is of another model.
    """
    if not has_reading(trace):
        raise ConfigError("view 'reading' needs a trace of attention over attention (model.reader = over_attention).")
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
