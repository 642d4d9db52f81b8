"""A summary and its text: which words were copied from where, and p_gen of each produced word.

A trace of a model that copies has an attention "copied": the row of a produced word that was copied holds where from,
that of a generated word nothing. The marks of the produced words hold p_gen. Copied words have a number and a hue,
which the words of the text that they come from have too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foci.errors import ConfigError
from foci.viz.tagged_words import HUES
from foci.viz.trace import Trace, TracedAttention

COPIED = "copied"
"""The name of the attention."""
P_GEN = "p_gen"
"""The label of the produced words' marks."""
_LEAST = 0.05
"""A word of the text with a smaller share of a copied word is not marked."""


class ShadedWord(NamedTuple):
    """A word with a hue, or none, how strong it is from 0 to 1, and what is written beside it."""

    text: str
    hue: str | None = None
    share: float = 1.0
    told: str = ""


class CopiedWords(NamedTuple):
    """The words of a text and of its summary."""

    source: list[ShadedWord]
    target: list[ShadedWord]


def has_copies(trace: Trace) -> bool:
    """Return whether the trace is of a model that copies."""
    attention = trace.attentions.get(COPIED)
    return attention is not None and trace.axes[attention.target].marks is not None


def copied_attention(trace: Trace) -> TracedAttention:
    """Return the attention that holds what was copied from where."""
    if not has_copies(trace):
        raise ConfigError("view 'copied' needs a trace of a model that copies (model.copy = true).")
    return trace.attentions[COPIED]


def copied_words(trace: Trace) -> CopiedWords:
    """Return both sides, with numbers and hues of what was copied.

    Example:
        >>> from foci.viz.axis import Axis, Mark
        >>> marks = (Mark(0, 0, P_GEN, 0.1), Mark(1, 1, P_GEN, 0.9))
        >>> summary = Axis("tokens", ("rain", "soon"), "target", marks=marks)
        >>> trace = Trace.from_arrays([[0.0, 1.0], [0.0, 0.0]], ["will", "rain"], summary, name=COPIED)
        >>> [word.told for word in copied_words(trace).source], [word.told for word in copied_words(trace).target]
        (['', '→1'], ['1: p_gen 10 %', 'p_gen 90 %'])
    """
    attention = copied_attention(trace)
    weights = attention.dense()
    source, target = trace.axes[attention.source], trace.axes[attention.target]
    p_gen = {mark.first: mark.share for mark in target.marks or ()}
    copied = [row for row in range(len(target)) if weights[row].any()]
    hues = {row: HUES[place % len(HUES)] for place, row in enumerate(copied)}
    made = []
    for row, label in enumerate(target.labels):
        told = f"{P_GEN} {100 * p_gen.get(row, 1.0):.0f} %"
        number = f"{copied.index(row) + 1}: " if row in hues else ""
        made.append(ShadedWord(label, hues.get(row), 1.0, number + told))
    read = []
    for column, label in enumerate(source.labels):
        rows = [row for row in copied if weights[row, column] >= _LEAST]
        if not rows:
            read.append(ShadedWord(label))
            continue
        most = max(rows, key=lambda row: float(weights[row, column]))
        told = "→" + ",".join(str(copied.index(row) + 1) for row in rows)
        read.append(ShadedWord(label, hues[most], float(np.clip(weights[most, column], 0.0, 1.0)), told))
    return CopiedWords(read, made)
