"""What of a text is held out: whole documents, or passages of a single one, by thresholds on a hash of their content.

A text is cut into passages at places that depend on the characters before them alone, so that text which is added,
removed or moved elsewhere changes neither the other passages nor their parts. Text to train on that stands in held-out
text too, such as a chapter inside another, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from foci.data.splits import digest, part_of, place_of, split, text_key
from foci.errors import DataError
from foci.scripts import folded, sentence_texts
from foci.tasks.frame.data_settings import Shares
from foci.tasks.generate.reader import TextDocument, TextFiles, TextPiece

PASSAGE = 2048
"""Characters of a passage, on average."""
_LONGEST = 1024
"""Lines of more characters are cut at the ends of sentences, such sentences between words, such words anywhere."""
_WINDOW = 64
"""Characters that decide whether a passage ends after them."""
_SHARED = 160
"""Letters and digits in a row that two texts have in common by more than chance."""
_PIECE = 1 << 16
"""Characters of a piece of a stream."""
_WORDS = re.compile(r"\s*\S+\s*|\s+")


def segments(text: str) -> Iterator[str]:
    """Yield the lines of a text, long ones in pieces; together they are the text."""
    for line in text.splitlines(keepends=True):
        if len(line) <= _LONGEST:
            yield line
            continue
        for sentence in sentence_texts(line):
            for word in [sentence] if len(sentence) <= _LONGEST else _WORDS.findall(sentence):
                yield from (word[start : start + _LONGEST] for start in range(0, len(word), _LONGEST))


def passages(parts: Iterable[str], size: int = PASSAGE) -> Iterator[str]:
    """Yield the passages of a text, given its segments: of ``size`` characters on average, at most about eight times.

    Example:
        >>> text = "".join(f"This is line {number}.\\n" for number in range(1000))
        >>> found = list(passages(segments(text)))
        >>> "".join(found) == text, len({*passages(segments("A line before.\\n" + text))} - {*found})
        (True, 1)
    """
    held: list[str] = []
    length, window = 0, ""
    for part in parts:
        held.append(part)
        length += len(part)
        window = (window + part)[-_WINDOW:]
        if length >= 8 * size or place_of(window) * size < len(part):
            yield "".join(held)
            held, length = [], 0
    if held:
        yield "".join(held)


def passage_keys(text: str) -> list[str]:
    """Return the keys of short passages of a text, by which it is known again; of all of it where it is short."""
    keys = map(text_key, passages(segments(text), PASSAGE // 8))
    return [key for key in keys if len(key) >= _SHARED] or [text_key(text)]


class Overlap:
    """What texts have in common with held-out ones: lines with 160 letters or more in a row, whatever their form."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.known = {key for text in texts for _, _, key in _runs(list(segments(text)))}

    def without(self, text: str) -> str:
        """Return a text without the lines that held-out texts have."""
        parts = list(segments(text))
        shared: set[int] = set()
        for start, end, key in _runs(parts) if self.known else ():
            if key in self.known:
                shared.update(range(start, end))
        return "".join(part for number, part in enumerate(parts) if number not in shared) if shared else text


def _runs(parts: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the shortest run of segments with enough letters from each segment on: where it is, and its digest."""
    plain = list(map(folded, parts))
    for start, first in enumerate(plain):
        end, length = start, 0
        while first and end < len(plain) and length < _SHARED:
            length += len(plain[end])
            end += 1
        if length >= _SHARED:
            yield start, end, digest("".join(plain[start:end]))


class HeldOutText(NamedTuple):
    """Text to train on, to validate and to evaluate with; and how many characters of it are used for none of these."""

    train: list[TextDocument]
    valid: list[TextDocument]
    test: list[TextDocument]
    shared: int
    """Characters that are left out since they stand in held-out text, too."""
    unused: int
    """Characters that are held out beyond those that are used."""


def hold_out(documents: Sequence[TextDocument], shares: Shares, most: int, origin: object) -> HeldOutText:
    """Hold out whole documents, or passages of a single one.

    Args:
        documents: not empty.
        shares: of the documents or passages.
        most: characters of each held-out part that are used at most.
        origin: where the documents come from, for messages.
    """
    single = len(documents) == 1
    texts = [one.text for one in documents]
    size = PASSAGE
    while single and len(texts) < 3 and size > 16:  # a short text has shorter passages
        texts, size = list(passages(segments(documents[0].text), size)), size // 4
    units = list(enumerate(texts))
    parts = split(units, lambda unit: text_key(unit[1]), **shares)
    used = [_limited(part, most, shares["seed"]) for part in (parts.valid, parts.test)]
    unused = sum(len(text) for part in parts[1:] for _, text in part) - sum(
        len(text) for part in used for _, text in part
    )
    valid, test = (_joined(part) if single else [TextDocument(text) for _, text in part] for part in used)
    before = sum(len(text) for _, text in parts.train) + sum(len(one.text) for one in valid)
    valid = _without(Overlap(one.text for one in test), valid)
    train = _without(Overlap(one.text for one in (*valid, *test)), [TextDocument(text) for _, text in parts.train])
    shared = before - sum(len(one.text) for one in (*train, *valid))
    if not train or (shares["valid_share"] > 0 and not valid):
        also = f" ({shared:,} of them stand in held-out text and are left out)" if shared else ""
        raise DataError(
            f"{origin}, line 1: {sum(map(len, texts))} characters{also}, expected some to train on and some to hold "
            "out. Use more text, or name data.valid and data.test."
        )
    train = [TextDocument("".join(one.text for one in train))] if single else train
    return HeldOutText(train, valid, test, shared, unused)


def _without(overlap: Overlap, documents: Sequence[TextDocument]) -> list[TextDocument]:
    left = (TextDocument(overlap.without(one.text)) for one in documents)
    return [one for one in left if one.text.strip()]


def _joined(units: Sequence[tuple[int, str]]) -> list[TextDocument]:
    """Return passages that follow each other as one document."""
    runs = groupby(enumerate(units), key=lambda one: one[1][0] - one[0])
    return [TextDocument("".join(text for _, (_, text) in run)) for _, run in runs]


def _limited(units: list[tuple[int, str]], most: int, seed: int) -> list[tuple[int, str]]:
    """Return as many of these as have ``most`` characters together, in their order; one is cut if it is longer."""
    kept: list[tuple[int, str]] = []
    left = most
    for number, text in sorted(units, key=lambda unit: place_of(text_key(unit[1]), seed)):
        if len(text) <= left or not kept:
            kept.append((number, text[:left]))
            left -= len(text)
    return sorted(kept)


class StreamedText:
    """Text that is read from disk in every iteration: the pieces to train on; held-out passages are kept in memory.

    Args:
        files: the text; documents are cut into passages.
        shares: of the passages.
        most: characters of each held-out part that are used at most.
    """

    def __init__(self, files: TextFiles, shares: Shares, most: int) -> None:
        self.files, self.shares, self.overlap = files, shares, Overlap(())
        self.characters, self.unused = 0, 0
        """How many characters are trained on; and how many are held out beyond those that are used."""
        held: dict[str, list[tuple[int, str]]] = {"valid": [], "test": []}
        sizes = dict.fromkeys(held, 0)
        for number, unit in enumerate(self._units()):
            part = self._part(unit.text)
            if part == "train":
                self.characters += len(unit.text)
                continue
            self.unused += len(unit.text)
            held[part].append((number, unit.text))
            sizes[part] += len(unit.text)
            if sizes[part] > 4 * most:
                held[part] = _limited(held[part], most, shares["seed"])
                sizes[part] = sum(len(text) for _, text in held[part])
        used = (_joined(_limited(units, most, shares["seed"])) for units in held.values())
        self.valid, self.test = used
        self.unused -= sum(len(one.text) for one in (*self.valid, *self.test))
        self.overlap = Overlap(one.text for one in (*self.valid, *self.test))

    def _units(self) -> Iterator[TextPiece]:
        for document, pieces in groupby(self.files, key=lambda piece: piece.document):
            for text in passages(part for piece in pieces for part in segments(piece.text)):
                yield TextPiece(document, text)

    def _part(self, text: str) -> str:
        return part_of(text_key(text), **self.shares)

    def __iter__(self) -> Iterator[TextPiece]:
        """Yield pieces of about 64 kB."""
        before: TextPiece | None = None
        for piece in self._pieces():
            if before is not None:
                yield before._replace(ends=piece.document != before.document)
            before = piece
        if before is not None:
            yield before

    def _pieces(self) -> Iterator[TextPiece]:
        for document, units in groupby(self._units(), key=lambda unit: unit.document):
            held: list[str] = []
            for unit in units:
                held += [self.overlap.without(unit.text)] if self._part(unit.text) == "train" else []
                if sum(map(len, held)) >= _PIECE:
                    yield TextPiece(document, "".join(held))
                    held = []
            if any(held):
                yield TextPiece(document, "".join(held))
