"""Chunking schemes: which one tags are written in, from tags to spans, and from spans to tags.

BIO     B begins a span, I continues it (also called IOB2)
BIOES   in addition E ends a span of several words and S is a span of one word; L and U of BILOU are read as E and S
IOB1    I begins and continues a span; B begins one only where a span of the same label ends right before it
plain   no prefixes: the tag is the label of its word, as parts of speech are

Malformed tags (I after O, E without a beginning, …) are read by conlleval's convention: what cannot continue a span
begins one. They are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from foci.errors import unknown_name
from foci.metrics.spans import OUTSIDE, Span, conlleval_spans, split_tag

PLAIN = "plain"
SCHEMES = ("BIO", "BIOES", "IOB1", PLAIN)
NAMELESS = "span"
"""The label of spans whose tags have none: B, I and O alone."""

_PREFIXED = re.compile(r"[BIESLU]-.")
_NAMELESS = frozenset("BIOESLU")
_BILOU = {"L": "E", "U": "S"}


class Recognized(NamedTuple):
    """The scheme of some tags, and the tags that do not belong to it."""

    scheme: str
    foreign: tuple[str, ...]


class Converted(NamedTuple):
    """The spans of a sentence, and how many of its tags had to be repaired."""

    spans: list[Span]
    repairs: int


def recognize(sentences: Iterable[Sequence[str]]) -> Recognized:
    """Return which scheme the tags are written in.

    Example:
        >>> recognize([["B-PER", "I-PER", "O"]]).scheme, recognize([["I-PER", "B-PER", "O"]]).scheme
        ('BIO', 'IOB1')
        >>> recognize([["DET", "NOUN"]]).scheme, recognize([["O", "S-PER"]]).scheme
        ('plain', 'BIOES')
        >>> recognize([["B-PER", "X-LOC"]]).foreign
        ('X-LOC',)
    """
    moves = {pair for tags in sentences for pair in pairwise([OUTSIDE, *tags])}
    tags = {tag for _, tag in moves}
    nameless = tags <= _NAMELESS and bool(tags & {"B", "S", "U"})
    if not nameless and not any(_PREFIXED.match(tag) for tag in tags):
        # Tags without any span, such as a file of O alone, are BIO; any other words are labels themselves.
        return Recognized("BIO" if tags <= {OUTSIDE} else PLAIN, ())
    foreign = sorted(tag for tag in tags if tag != OUTSIDE and not (nameless or _PREFIXED.match(tag)))
    moves = {(normalized(before), normalized(tag)) for before, tag in moves}
    prefixes = {split_tag(tag)[0] for _, tag in moves}
    if prefixes & {"E", "S"}:
        return Recognized("BIOES", tuple(foreign))
    begun_by_i = any(
        split_tag(tag)[0] == "I" and (before == OUTSIDE or split_tag(before)[1] != split_tag(tag)[1])
        for before, tag in moves
    )
    needed = all(
        before != OUTSIDE and split_tag(before)[1] == split_tag(tag)[1]
        for before, tag in moves
        if split_tag(tag)[0] == "B"
    )
    return Recognized("IOB1" if begun_by_i and needed else "BIO", tuple(foreign))


def normalized(tag: str) -> str:
    """Return the tag with E and S for BILOU's L and U.

    Example:
        >>> normalized("U-PER"), normalized("B-LOC")
        ('S-PER', 'B-LOC')
    """
    prefix, label = split_tag(tag)
    prefix = _BILOU.get(prefix, prefix)
    return f"{prefix}-{label}" if label else prefix


def to_spans(tags: Sequence[str], scheme: str) -> Converted:
    """Return the spans that tags of a scheme mean, and how many tags are malformed.

    Example:
        >>> to_spans(["I-PER", "I-PER", "O"], "BIO")
        Converted(spans=[Span(first=0, last=1, label='PER')], repairs=1)
        >>> to_spans(["I-PER", "I-PER", "O"], "IOB1").repairs
        0
    """
    if scheme not in SCHEMES:
        raise unknown_name("scheme", scheme, SCHEMES)
    if scheme == PLAIN:
        return Converted([Span(place, place, tag) for place, tag in enumerate(tags)], 0)
    tags = [normalized(tag) for tag in tags]
    spans = conlleval_spans(tags)
    expected = to_tags(spans, len(tags), scheme)
    repairs = sum(have != want for have, want in zip(tags, expected))
    return Converted([span._replace(label=span.label or NAMELESS) for span in spans], repairs)


def to_tags(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Return the tags of a sentence of ``length`` words with these spans, which must not overlap.

    Example:
        >>> to_tags([Span(0, 1, "PER"), Span(2, 2, "LOC")], 4, "BIOES")
        ['B-PER', 'E-PER', 'S-LOC', 'O']
    """
    if scheme not in SCHEMES:
        raise unknown_name("scheme", scheme, SCHEMES)
    tags = [OUTSIDE] * length
    if scheme == PLAIN:
        for first, last, label in spans:
            tags[first : last + 1] = [label] * (last + 1 - first)
        return tags
    ended: tuple[int, str] | None = None
    for first, last, label in sorted(spans):
        prefixes = ["B", *["I"] * (last - first)]
        if scheme == "BIOES":
            prefixes = ["S"] if first == last else [*prefixes[:-1], "E"]
        elif scheme == "IOB1" and ended != (first - 1, label):
            prefixes[0] = "I"
        tags[first : last + 1] = [f"{prefix}-{label}" if label else prefix for prefix in prefixes]
        ended = (last, label)
    return tags


def tag_names(labels: Sequence[str], scheme: str) -> list[str]:
    """Return all tags of a scheme, BIO, BIOES or plain, for these labels; O comes first.

    Example:
        >>> tag_names(["LOC", "PER"], "BIO")
        ['O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER']
    """
    prefixes = {"BIO": "BI", "BIOES": "BIES"}.get(scheme)
    if scheme == PLAIN:
        return list(labels)
    if prefixes is None:
        raise unknown_name("scheme to predict in", scheme, ("BIO", "BIOES", PLAIN))
    return [OUTSIDE, *(f"{prefix}-{label}" for label in labels for prefix in prefixes)]
