"""Spans of tagged words, and the precision, recall and F1 of predicted spans.

A tag is ``O`` (outside of all spans), or a prefix and a label: B-PER begins a span, I-PER continues it; in BIOES also
E-PER ends one of several words and S-PER is one of a single word. Two conventions say what malformed tags mean:

conlleval   the evaluation script of CoNLL-2000: whatever cannot continue a span begins one, so ``O I-PER`` has a span
strict      only what the scheme allows is a span, so ``O I-PER`` has none

    precision = right / predicted,    recall = right / gold,    F1 = 2 · right / (predicted + gold)

where a span is right if first word, last word and label are. micro adds the counts of all labels up, macro is the mean
of the F1 of each label that occurs in either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from foci.errors import ShapeError, unknown_name

OUTSIDE = "O"


class Span(NamedTuple):
    """A labeled span of words, from ``first`` to ``last``, both counted from 0 and both in it."""

    first: int
    last: int
    label: str


class Counts(NamedTuple):
    """How many spans of a label are predicted and gold at once, predicted, and gold."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """The share of the predicted spans that are right; 0 without any."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the gold spans that are predicted; 0 without any."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 where there are no spans at all."""
        return 2 * self.right / (self.predicted + self.gold) if self.predicted + self.gold else 0.0


def split_tag(tag: str) -> tuple[str, str]:
    """Return the prefix and the label of a tag.

    Example:
        >>> split_tag("B-date-time"), split_tag("O"), split_tag("I")
        (('B', 'date-time'), ('O', ''), ('I', ''))
    """
    prefix, _, label = tag.partition("-")
    return prefix, label


def conlleval_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of one sentence by conlleval's convention; BIO, BIOES and IOB1 alike.

    Example:
        >>> conlleval_spans(["I-PER", "I-PER", "I-LOC", "O", "B-LOC"])
        [Span(first=0, last=1, label='PER'), Span(first=2, last=2, label='LOC'), Span(first=4, last=4, label='LOC')]
    """
    spans: list[Span] = []
    before, label_before, first = OUTSIDE, "", 0
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, label = split_tag(tag)
        joined = before in ("B", "I") and prefix in ("I", "E") and label == label_before
        if before != OUTSIDE and not joined:
            spans.append(Span(first, place - 1, label_before))
        if prefix != OUTSIDE and not joined:
            first = place
        before, label_before = prefix, label
    return spans


def strict_spans(tags: Sequence[str], scheme: str = "BIO") -> list[Span]:
    """Return the spans of one sentence that are formed as the scheme, BIO or BIOES, has it.

    Example:
        >>> strict_spans(["I-PER", "O", "B-LOC", "I-LOC", "I-PER"])
        [Span(first=2, last=3, label='LOC')]
        >>> strict_spans(["S-PER", "B-LOC", "I-LOC", "B-LOC", "E-LOC"], "BIOES")
        [Span(first=0, last=0, label='PER'), Span(first=3, last=4, label='LOC')]
    """
    if scheme not in ("BIO", "BIOES"):
        raise unknown_name("scheme", scheme, ("BIO", "BIOES"))
    spans: list[Span] = []
    parts = [split_tag(tag) for tag in tags]
    place = 0
    while place < len(parts):
        first, (prefix, label) = place, parts[place]
        place += 1
        if prefix == "S" and scheme == "BIOES":
            spans.append(Span(first, first, label))
        if prefix != "B":
            continue
        while place < len(parts) and parts[place] == ("I", label):
            place += 1
        if scheme == "BIO":
            spans.append(Span(first, place - 1, label))
        elif place < len(parts) and parts[place] == ("E", label):
            spans.append(Span(first, place, label))
            place += 1
    return spans


def count_spans(gold: Sequence[Iterable[Span]], predicted: Sequence[Iterable[Span]]) -> dict[str, Counts]:
    """Count the spans of each label, given those of each sentence.

    Example:
        >>> found = count_spans([[Span(0, 1, "LOC")]], [[Span(0, 1, "LOC"), Span(3, 3, "PER")]])
        >>> found["LOC"].f1, found["PER"].f1
        (1.0, 0.0)
    """
    if len(gold) != len(predicted):
        raise ShapeError(
            f"count_spans: {len(gold)} sentences are gold, {len(predicted)} predicted, expected as many of each."
        )
    totals: dict[str, list[int]] = {}
    for expected, found in zip(gold, predicted):
        known = set(expected)
        for span in known:
            totals.setdefault(span.label, [0, 0, 0])[2] += 1
        for span in set(found):
            line = totals.setdefault(span.label, [0, 0, 0])
            line[0] += span in known
            line[1] += 1
    return {label: Counts(*totals[label]) for label in sorted(totals)}


def micro(counts: Mapping[str, Counts]) -> Counts:
    """Return the counts of all labels together."""
    return Counts(*(sum(column) for column in zip(*counts.values()))) if counts else Counts(0, 0, 0)


def macro_f1(counts: Mapping[str, Counts]) -> float:
    """Return the mean F1 of the labels."""
    return sum(one.f1 for one in counts.values()) / len(counts) if counts else 0.0
