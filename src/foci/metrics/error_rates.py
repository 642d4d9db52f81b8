"""Error rates of transcripts: of words, of characters and of whole sentences, counted by jiwer.

    rate = (substitutions + deletions + insertions) / length of the reference

The fewest such changes turn the transcript into the reference (Levenshtein, 1966). All utterances are counted together,
so that long ones weigh more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from foci.errors import ConfigError, MissingPackageError


class ErrorCounts(NamedTuple):
    """How many words or characters of the references are right, replaced or missing, and how many are too many."""

    hits: int
    substitutions: int
    deletions: int
    insertions: int

    @property
    def errors(self) -> int:
        """All changes."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Changes per word or character of the references; it may exceed 1."""
        return self.errors / max(self.hits + self.substitutions + self.deletions, 1)


class Difference(NamedTuple):
    """One utterance: its number, its errors in words, and both texts as one, see `differences`."""

    number: int
    counts: ErrorCounts
    alignment: str


def word_errors(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorCounts:
    """Return the errors in words, which white space separates.

    Example:
        >>> word_errors(["yes no yes"], ["yes yes no"])
        ErrorCounts(hits=2, substitutions=0, deletions=1, insertions=1)
    """
    return _counts(_processed("process_words", references, hypotheses))


def character_errors(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorCounts:
    """Return the errors in characters, spaces included.

    Example:
        >>> character_errors(["四十四"], ["四是四"]).rate
        0.3333333333333333
    """
    return _counts(_processed("process_characters", references, hypotheses))


def sentence_errors(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Return the share of utterances with any error, white space aside.

    Example:
        >>> sentence_errors(["a b", "c"], ["a  b", "d"])
        0.5
    """
    _check(references, hypotheses)
    wrong = sum(one.split() != other.split() for one, other in zip(references, hypotheses))
    return wrong / max(len(references), 1)


def differences(references: Sequence[str], hypotheses: Sequence[str], most: int) -> list[Difference]:
    """Return the utterances with the most errors in words, each aligned with its reference in one line.

    In an alignment ``[a→b]`` was replaced, ``[a→]`` is missing and ``[→b]`` is too much.

    Example:
        >>> differences(["yes no yes"], ["yes yes"], 1)[0].alignment
        'yes [no→] yes'
    """
    found = _processed("process_words", references, hypotheses)
    each = []
    for number, chunks in enumerate(found.alignments):
        said, got = found.references[number], found.hypotheses[number]
        counts, pieces = [0, 0, 0, 0], []
        for chunk in chunks:
            before = " ".join(said[chunk.ref_start_idx : chunk.ref_end_idx])
            after = " ".join(got[chunk.hyp_start_idx : chunk.hyp_end_idx])
            kind = ("equal", "substitute", "delete", "insert").index(chunk.type)
            length = max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
            counts[kind] += length
            pieces.append(before if kind == 0 else f"[{before}→{after}]")
        each.append(Difference(number, ErrorCounts(*counts), " ".join(pieces)))
    wrong = [one for one in each if one.counts.errors]
    return sorted(wrong, key=lambda one: (-one.counts.errors, one.number))[:most]


def _counts(found: Any) -> ErrorCounts:
    return ErrorCounts(found.hits, found.substitutions, found.deletions, found.insertions)


def _processed(name: str, references: Sequence[str], hypotheses: Sequence[str]) -> Any:
    _check(references, hypotheses)
    try:
        import jiwer
    except ImportError as error:
        raise MissingPackageError("error rates need jiwer. Install it with: pip install 'foci[audio]'") from error
    # jiwer strips and splits, but leaves white space of other kinds in characters.
    said, got = ([" ".join(text.split()) for text in texts] for texts in (references, hypotheses))
    return getattr(jiwer, name)(said, got)


def _check(references: Sequence[str], hypotheses: Sequence[str]) -> None:
    if len(references) != len(hypotheses) or not references:
        raise ConfigError(
            f"error rates: {len(references)} references, {len(hypotheses)} transcripts, expected as many, at least 1."
        )
    for number, text in enumerate(references):
        if not text.strip():
            raise ConfigError(f"error rates: reference {number} is empty, expected text.")
