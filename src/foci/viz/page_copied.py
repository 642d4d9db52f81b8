"""What was copied from where as a piece of the page: the text and its summary, copied words in color.

It is plain HTML without script, in the manner of `foci.viz.page_tags`.
"""

from __future__ import annotations

from collections.abc import Sequence

from foci.viz.copied_words import ShadedWord, copied_words, has_copies
from foci.viz.page_tags import LEVELS, safe
from foci.viz.tagged_words import HUES
from foci.viz.trace import Trace


def copied_html(trace: Trace) -> str:
    """Return the text and its summary as HTML; nothing for a trace of a model that does not copy."""
    if not has_copies(trace):
        return ""
    words = copied_words(trace)
    return "\n".join([_paragraph(words.target, "target"), _paragraph(words.source, "source")])


def _paragraph(words: Sequence[ShadedWord], side: str) -> str:
    number = {hue: place for place, hue in enumerate(HUES)}
    lines = [f'<p class="tagged copied-{side}" dir="auto">']
    for word in words:
        text = safe(word.text)
        told = f'dir="ltr">{safe(word.told)}'  # a label reads from left to right beside any script
        if word.hue is None:
            lines.append(f"{text} <small {told}</small>" if word.told else text)
            continue
        level = min(int(word.share * LEVELS) + 1, LEVELS)
        lines.append(f'<mark class="hue-{number[word.hue]} sure-{level}">{text} <b {told}</b></mark>')
    return "\n".join([*lines, "</p>"])
