"""Words on colors in a terminal; without colors, in brackets."""

from __future__ import annotations

from collections.abc import Iterable

from foci.viz.colors import code
from foci.viz.labels import shown, width
from foci.viz.screen import Screen
from foci.viz.shaded_words import ShadedWord, shade


def word_lines(words: Iterable[ShadedWord], screen: Screen) -> list[str]:
    """Return the words in lines as wide as the screen, each with its note.

    Example:
        >>> word_lines([ShadedWord("will"), ShadedWord("rain", "#56b4e9", 1.0, "→1")], Screen())
        ['will [rain →1]']
    """
    lines: list[str] = []
    used = 0
    for word in words:
        text, note = shown(word.text), shown(word.note) if word.note else ""
        size = width(text) + bool(note) + width(note) + 2 * (word.hue is not None)
        if word.hue is None:
            text += f" ({note})" if note else ""
        elif screen.colors:
            text = f"\x1b[30;48;{code(shade(word.hue, word.share), screen.colors)}m {text} \x1b[0m{note}"
        else:
            text = f"[{text} {note}]" if note else f"[{text}]"
        if lines and used + 1 + size <= screen.columns:
            lines[-1] += f" {text}"
            used += 1 + size
        else:
            lines.append(text)
            used = size
    return lines
