"""A summary and its text: which words were copied from where, and p_gen of each produced word.

A trace of a model that copies has an attention "copied": the row of a produced word that was copied holds where from,
that of a generated word nothing. The marks of the produced words hold p_gen. Copied words have a number and a hue,
which the words of the text that they come from have too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from foci.errors import ConfigError
from foci.viz.figure import canvas
from foci.viz.figure.shaded_words import draw_words
from foci.viz.page.html import mark, safe
from foci.viz.selection import Selection
from foci.viz.shaded_words import HUES, ShadedWord
from foci.viz.terminal.sheet import heading
from foci.viz.terminal.words import word_lines
from foci.viz.trace import COPIED, P_GEN, Trace, TracedAttention

_LEAST = 0.05
"""A word of the text with a smaller share of a copied word is not marked."""


class CopiedWords(NamedTuple):
    """The words of a text and of its summary."""

    source: list[ShadedWord]
    target: list[ShadedWord]


def fits(selection: Selection) -> bool:
    """The trace is of a model that copies, and no other attention was asked for."""
    return selection.is_default and _has_copies(selection.trace)


def _has_copies(trace: Trace) -> bool:
    return COPIED in trace.attentions and trace.axes[trace.attentions[COPIED].target].marks is not None


def attention(trace: Trace, name: str | None = None) -> TracedAttention:
    """Return the attention that holds what was copied from where."""
    if not _has_copies(trace):
        raise ConfigError("view 'copied' needs a trace of a model that copies (model.decoder.copy = true).")
    return trace.attentions[COPIED]


def copied_words(trace: Trace) -> CopiedWords:
    """Return both sides, with numbers and hues of what was copied.

    Example:
        >>> from foci.viz.axis import Axis, Mark
        >>> marks = (Mark(0, 0, P_GEN, 0.1), Mark(1, 1, P_GEN, 0.9))
        >>> summary = Axis("tokens", ("rain", "soon"), "target", marks=marks)
        >>> trace = Trace.from_arrays([[0.0, 1.0], [0.0, 0.0]], ["will", "rain"], summary, name=COPIED)
        >>> [word.note for word in copied_words(trace).source], [word.note for word in copied_words(trace).target]
        (['', '→1'], ['1: p_gen 10 %', 'p_gen 90 %'])
    """
    one = attention(trace)
    weights = one.dense()
    source, target = trace.axes[one.source], trace.axes[one.target]
    p_gen = {mark.first: mark.share for mark in target.marks or ()}
    copied = [row for row in range(len(target)) if weights[row].any()]
    numbers = {row: place + 1 for place, row in enumerate(copied)}
    hues = {row: HUES[place % len(HUES)] for place, row in enumerate(copied)}
    made = []
    for row, label in enumerate(target.labels):
        number = f"{numbers[row]}: " if row in numbers else ""
        made.append(ShadedWord(label, hues.get(row), 1.0, f"{number}{P_GEN} {100 * p_gen.get(row, 1.0):.0f} %"))
    read = []
    for column, label in enumerate(source.labels):
        rows = [row for row in copied if weights[row, column] >= _LEAST]
        if not rows:
            read.append(ShadedWord(label))
            continue
        most = max(rows, key=lambda row: float(weights[row, column]))
        note = "→" + ",".join(str(numbers[row]) for row in rows)
        read.append(ShadedWord(label, hues[most], float(np.clip(weights[most, column], 0.0, 1.0)), note))
    return CopiedWords(read, made)


def figure(trace: Trace, style: canvas.FigureStyle) -> canvas.Figure:
    """The produced words with p_gen, and below them their text; a copied word has the same hue and number in both."""
    one, words = attention(trace), copied_words(trace)
    right_to_left = [trace.axes[key].right_to_left for key in (one.target, one.source)]
    return draw_words([words.target, words.source], right_to_left, style)


def terminal(selection: Selection) -> list[str]:
    """The summary and its text; copied words have the number of the produced word."""
    words, screen = copied_words(selection.trace), selection.screen
    first = heading(replace(selection, name=COPIED))
    return [first, "target:", *word_lines(words.target, screen), "source:", *word_lines(words.source, screen)]


def page(trace: Trace) -> str:
    """Return the text and its summary as HTML; nothing for a trace of a model that does not copy."""
    if not _has_copies(trace):
        return ""
    words = copied_words(trace)
    return "\n".join([_paragraph(words.target, "target"), _paragraph(words.source, "source")])


def _paragraph(words: Sequence[ShadedWord], side: str) -> str:
    lines = [f'<p class="tagged copied-{side}" dir="auto">']
    for word in words:
        text = safe(word.text)
        note = f'dir="ltr">{safe(word.note)}'  # a label reads from left to right beside any script
        if word.hue is None:
            lines.append(f"{text} <small {note}</small>" if word.note else text)
        else:
            lines.append(mark(word.hue, word.share, f"{text} <b {note}</b>"))
    return "\n".join([*lines, "</p>"])
