"""Tagged and copied words in a terminal: labels as colored stretches, and the probabilities of unsure tags."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foci.viz.axis import Axis
from foci.viz.colors import code
from foci.viz.copied_words import CopiedWords
from foci.viz.labels import shown, width
from foci.viz.tagged_words import hues, pieces, shade

_SURE = 0.95
"""The tags of a word are told unless one of them has at least this probability."""
_TOLD = 3
"""How many tags of such a word are told."""
_TELLING = 0.005


def tagged_lines(words: Axis, tags: Axis, shares: NDArray[np.float32], columns: int, colors: int) -> list[str]:
    """Return a sentence with its labels, and the tags of words that are not sure.

    Args:
        words: the words, with their marks.
        tags: the names of the tags.
        shares: ``(word, tag)``, the probability of each tag of each word.
        columns: of the terminal.
        colors: 0, 256 or 1 << 24.

    Example:
        >>> from foci.viz.axis import Mark
        >>> words = Axis("tokens", ("at", "7"), marks=(Mark(1, 1, "time", 0.875),))
        >>> tags, shares = Axis("tags", ("O", "B-time")), np.array([[1.0, 0.0], [0.125, 0.875]], dtype=np.float32)
        >>> print("\\n".join(tagged_lines(words, tags, shares, 80, 0)))
        at [7 time 88 %]
        7: B-time 88 %, O 12 %
    """
    by_label = hues(words)
    texts, sizes = [], []
    for some, mark in pieces(words):
        text = " ".join(shown(words.labels[word]) for word in some)
        if mark is None:
            texts.append(text)
            sizes.append(width(text))
            continue
        told = f"{shown(mark.label)} {100 * mark.share:.0f} %"
        sizes.append(width(text) + width(told) + 3)
        color = code(shade(by_label[mark.label], mark.share), colors)
        texts.append(f"\x1b[30;48;{color}m {text} \x1b[0m{told}" if colors else f"[{text} {told}]")
    lines = _wrapped(texts, sizes, columns)
    for word, row in enumerate(shares):
        if row.size and row.max() < _SURE:
            order = [tag for tag in np.argsort(-row, kind="stable")[:_TOLD] if row[tag] >= _TELLING]
            entries = ", ".join(f"{shown(tags.labels[tag])} {100 * row[tag]:.0f} %" for tag in order)
            lines.append(f"{shown(words.labels[word])}: {entries}")
    return lines


def copied_lines(words: CopiedWords, columns: int, colors: int) -> list[str]:
    """Return the summary and its text; copied words have the number of the produced word.

    Example:
        >>> from foci.viz.copied_words import ShadedWord
        >>> words = CopiedWords([ShadedWord("will"), ShadedWord("rain", "#56b4e9", 1.0, "→1")],
        ...                     [ShadedWord("rain", "#56b4e9", 1.0, "1: p_gen 10 %")])
        >>> print("\\n".join(copied_lines(words, 80, 0)))
        target:
        [rain 1: p_gen 10 %]
        source:
        will [rain →1]
    """
    lines = []
    for title, side in (("target:", words.target), ("source:", words.source)):
        texts, sizes = [], []
        for word in side:
            text, told = shown(word.text), f" {shown(word.told)}" if word.told else ""
            sizes.append(width(text) + width(told) + 2 * (word.hue is not None))
            if word.hue is None:
                texts.append(f"{text}{f' ({told.strip()})' if told else ''}")
            elif colors:
                color = code(shade(word.hue, word.share), colors)
                texts.append(f"\x1b[30;48;{color}m {text} \x1b[0m{told.strip()}")
            else:
                texts.append(f"[{text}{told}]")
        lines += [title, *_wrapped(texts, sizes, columns)]
    return lines


def _wrapped(texts: Sequence[str], sizes: Sequence[int], columns: int) -> list[str]:
    lines: list[str] = []
    used = columns
    for text, size in zip(texts, sizes):
        if not lines or used + 1 + size > columns:
            lines.append(text)
            used = size
        else:
            lines[-1] += f" {text}"
            used += 1 + size
    return lines
