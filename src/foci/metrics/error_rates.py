"""Error rates of transcripts: of words, of characters and of whole sentences, counted by jiwer.

    rate = (substitutions + deletions + insertions) / length of the reference

The fewest such changes turn the transcript into the reference (Levenshtein, 1966). All utterances are counted together,
so that long ones weigh more. Texts are compared in Unicode's normal form C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from foci.errors import ConfigError, MissingPackageError
from foci.scripts import dominant_script, normalized, without_spaces


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
    """Return the errors in characters, spaces included, except next to scripts that have none.

    Example:
        >>> character_errors(["四十四"], ["四是 四"]).rate
        0.3333333333333333
    """
    said, got = (list(map(without_spaces, texts)) for texts in (references, hypotheses))
    return _counts(_processed("process_characters", said, got))


def sentence_errors(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Return the share of utterances with any error, white space aside.

    Example:
        >>> sentence_errors(["a b", "今 天", "c"], ["a  b", "今天", "d"])
        0.3333333333333333
    """
    _check(references, hypotheses)
    said, got = ([without_spaces(_plain(text)) for text in texts] for texts in (references, hypotheses))
    wrong = sum(one != other for one, other in zip(said, got))
    return wrong / max(len(references), 1)


def words_note(references: Sequence[str]) -> str | None:
    """Return a note that errors in words say little, where the references have no spaces between words; else None.

    Example:
        >>> words_note(["今天天气"]), words_note(["fine weather"])
        ('the references are of a script without spaces between words: wer counts what spaces separate; use cer', None)
    """
    if dominant_script(references) in ("spaced", "hangul"):
        return None
    return "the references are of a script without spaces between words: wer counts what spaces separate; use cer"


def right_words(reference: Sequence[str], hypothesis: Sequence[str]) -> list[bool]:
    """Return which words of a hypothesis stand in the reference too, by the fewest errors.

    Example:
        >>> right_words(["yes", "no", "yes"], ["no", "yes", "yes"])
        [False, True, True]
    """
    right = [False] * len(hypothesis)
    if reference and hypothesis:
        for chunk in _processed("process_words", [" ".join(reference)], [" ".join(hypothesis)]).alignments[0]:
            places = range(chunk.hyp_start_idx, chunk.hyp_end_idx)
            right[places.start : places.stop] = [chunk.type == "equal"] * len(places)
    return right


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
    said, got = (list(map(_plain, texts)) for texts in (references, hypotheses))
    return getattr(jiwer, name)(said, got)


def _plain(text: str) -> str:
    # jiwer strips and splits, but leaves white space of other kinds in characters.
    return " ".join(normalized(text).split())


def _check(references: Sequence[str], hypotheses: Sequence[str]) -> None:
    if len(references) != len(hypotheses) or not references:
        raise ConfigError(
            f"error rates: {len(references)} references, {len(hypotheses)} transcripts, expected as many, at least 1."
        )
    for number, text in enumerate(references):
        if not text.strip():
            raise ConfigError(f"error rates: reference {number} is empty, expected text.")
