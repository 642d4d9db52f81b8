"""The overlap of generated texts with references: BLEU and chrF by sacrebleu, and exact matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from foci.errors import DataError, MissingPackageError, unknown_name


class TextScore(NamedTuple):
    """A metric, and the signature that says how it was computed."""

    score: float
    signature: str


def bleu(produced: Sequence[str], references: Sequence[str], *, tokenize: str, lowercase: bool = False) -> TextScore:
    """Return corpus BLEU.

    Args:
        produced: the texts.
        references: one for each text.
        tokenize: sacrebleu's tokenizer: 13a, zh, char, ja-mecab, …; see `tokenizer_for`.
        lowercase: compare without case.

    Example:
        >>> round(bleu(["the cat sat on the mat"], ["the cat sat on a mat"], tokenize="13a").score, 1)
        53.7
    """
    _check(produced, references)
    check_tokenizer(tokenize)
    metric = _sacrebleu().BLEU(tokenize=tokenize, lowercase=lowercase)
    return TextScore(metric.corpus_score(produced, [references]).score, str(metric.get_signature()))


def check_tokenizer(name: str) -> None:
    """Raise unless sacrebleu has a tokenizer of this name."""
    known = _sacrebleu().BLEU.TOKENIZERS
    if name not in known:
        raise unknown_name("tokenize", name, known)


def chrf(produced: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> TextScore:
    """Return corpus chrF; arguments as in `bleu`.

    Example:
        >>> round(chrf(["the cat"], ["the cat"]).score, 1)
        100.0
    """
    _check(produced, references)
    metric = _sacrebleu().CHRF(lowercase=lowercase)
    return TextScore(metric.corpus_score(produced, [references]).score, str(metric.get_signature()))


def exact_matches(produced: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of the texts that equal their references.

    Example:
        >>> exact_matches(["a", "b"], ["a", "c"])
        0.5
    """
    _check(produced, references)
    return sum(one == other for one, other in zip(produced, references)) / len(produced)


def tokenizer_for(texts: Sequence[str]) -> str:
    """Return sacrebleu's tokenizer for the script of the texts; Chinese, Japanese and Thai do not separate words.

    Example:
        >>> tokenizer_for(["ein Haus"]), tokenizer_for(["你好"]), tokenizer_for(["こんにちは"])
        ('13a', 'zh', 'char')
    """
    letters = [character for text in texts[:500] for character in text if character.isalpha()]
    if not letters:
        return "13a"

    def share(*ranges: tuple[str, str]) -> float:
        return sum(any(a <= letter <= b for a, b in ranges) for letter in letters) / len(letters)

    kana_hangul_thai = share(("\u3040", "\u30ff"), ("\uac00", "\ud7af"), ("\u0e00", "\u0eff"), ("\u1780", "\u17ff"))
    if kana_hangul_thai > 0.1:
        return "char"
    return "zh" if share(("\u3400", "\u9fff")) > 0.3 else "13a"


def _check(produced: Sequence[str], references: Sequence[str]) -> None:
    if not produced or len(produced) != len(references):
        raise DataError(f"{len(produced)} texts and {len(references)} references, expected one for each, at least one.")


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError as error:
        raise MissingPackageError("BLEU needs sacrebleu. Install it with: pip install 'foci[text]'") from error
    return sacrebleu.metrics
