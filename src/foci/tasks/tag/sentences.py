"""Tagged sentences: a text with its words, its labeled spans and its intent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from foci.data.word_splitter import Offsets
from foci.metrics.spans import Span


class LabeledSpan(NamedTuple):
    """A labeled piece of a text, by its characters; ``end`` is not in it."""

    start: int
    end: int
    label: str


class TaggedSentence(NamedTuple):
    """A text, the pieces of it that have a label, and the label of the whole ("" for none)."""

    text: str
    spans: tuple[LabeledSpan, ...]
    intent: str
    words: tuple[Offsets, ...]
    given: bool = True
    """Whether the words came with the text, and were not found in it by a rule."""

    @property
    def tokens(self) -> list[str]:
        """The words."""
        return [self.text[start:end] for start, end in self.words]

    def word_spans(self) -> list[Span]:
        """The spans by the numbers of their words."""
        return to_words(self.spans, self.words)[0]

    def to_record(self) -> dict[str, Any]:
        """Return the sentence as plain JSON."""
        return {
            "text": self.text,
            "spans": [span._asdict() for span in self.spans],
            "intent": self.intent,
            "words": [list(offsets) for offsets in self.words],
        }


def from_words(words: Sequence[str]) -> TaggedSentence:
    """Return a sentence of these words, with spaces between them, and without spans.

    Example:
        >>> from_words(["EU", "rejects"])
        TaggedSentence(text='EU rejects', spans=(), intent='', words=((0, 2), (3, 10)), given=True)
    """
    offsets, end = [], 0
    for word in words:
        offsets.append((end, end + len(word)))
        end += len(word) + 1
    return TaggedSentence(" ".join(words), (), "", tuple(offsets))


def to_words(spans: Iterable[LabeledSpan], words: Sequence[Offsets]) -> tuple[list[Span], int]:
    """Return spans by the numbers of their words, and how many begin or end inside a word: these are widened.

    A span that touches no word, or words of another span, is left out and counted too.
    """
    found: list[Span] = []
    changed = 0
    taken = -1
    for start, end, label in sorted(spans):
        inside = [number for number, (begin, stop) in enumerate(words) if begin < end and stop > start]
        if not inside or inside[0] <= taken:
            changed += 1
            continue
        taken = inside[-1]
        changed += words[inside[0]][0] != start or words[taken][1] != end
        found.append(Span(inside[0], taken, label))
    return found, changed


def to_characters(spans: Iterable[Span], words: Sequence[Offsets]) -> tuple[LabeledSpan, ...]:
    """Return spans of words by their characters.

    Example:
        >>> to_characters([Span(1, 2, "time")], [(0, 2), (3, 4), (5, 7)])
        (LabeledSpan(start=3, end=7, label='time'),)
    """
    return tuple(LabeledSpan(words[first][0], words[last][1], label) for first, last, label in spans)
