"""Chunking schemes: which one tags are written in, from tags to spans, and from spans to tags.

BIO     B begins a span, I continues it (also called IOB2)
BIOES   in addition E ends a span of several words and S is a span of one word; L and U of BILOU are read as E and S,
        M and W of Chinese corpora (BMES, BMEWO) as I and S
IOB1    I begins and continues a span; B begins one only where a span of the same label ends right before it
plain   no prefixes: the tag is the label of its word, as parts of speech are

Tags may also be written B_LOC or LOC-B (`in_standard_form`).

Malformed tags (I after O, E without a beginning, …) are read by conlleval's convention: what cannot continue a span
begins one. They are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from foci.errors import unknown_name
from foci.metrics.spans import OUTSIDE, Span, conlleval_spans, split_tag

PLAIN = "plain"
SCHEMES = ("BIO", "BIOES", "IOB1", PLAIN)
NAMELESS = "span"
"""The label of spans whose tags have none: B, I and O alone."""

_PREFIXED = re.compile(r"[BIESLUMW]-.")
_NAMELESS = frozenset("BIOESLUMW")
_OTHER_LETTERS = {"L": "E", "U": "S", "M": "I", "W": "S"}
_OTHER_FORMS = (
    re.compile(r"(?P<prefix>[BIESLUMW])_(?P<label>.+)"),
    re.compile(r"(?P<label>.+)[-_](?P<prefix>[BIESLUMW])"),
)
"""How tags are written beside B-LOC: B_LOC, and LOC-B or LOC_B."""


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


def in_standard_form(tags: Iterable[str]) -> Callable[[str], str] | None:
    """Return the function that writes tags such as B_LOC or LOC-B as B-LOC; None where they are not written so.

    Example:
        >>> [in_standard_form(tags)(tags[0]) for tags in (["B_LOC", "I_LOC", "O"], ["LOC-B", "PER-S", "O"])]
        ['B-LOC', 'B-LOC']
        >>> in_standard_form(["B-LOC", "O"]), in_standard_form(["NOUN", "PART_S"])
        (None, None)
    """
    tags = {*tags}
    different = tags - {OUTSIDE}
    for form in _OTHER_FORMS:
        found = [form.fullmatch(tag) for tag in different]
        prefixes = {one["prefix"] for one in found if one is not None}
        # Without a beginning and something else the letter may belong to a label.
        several = len(prefixes) > 1 or len(tags) > len(different)
        standard = all(_PREFIXED.match(tag) for tag in different)
        if None not in found and prefixes & {"B", "S"} and several and not standard:
            return lambda tag: form.sub(r"\g<prefix>-\g<label>", tag) if tag != OUTSIDE else tag
    return None


def normalized(tag: str) -> str:
    """Return the tag with the letters of BIOES for those of BILOU, BMES and BMEWO.

    Example:
        >>> normalized("U-PER"), normalized("M-PER"), normalized("B-LOC")
        ('S-PER', 'I-PER', 'B-LOC')
    """
    prefix, label = split_tag(tag)
    prefix = _OTHER_LETTERS.get(prefix, prefix)
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
