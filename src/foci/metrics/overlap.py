"""The overlap of generated texts with references: BLEU and chrF by sacrebleu, and exact matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from foci.errors import DataError, MissingPackageError, unknown_name
from foci.scripts import dominant_script, normalized


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
    return _scored(metric, produced, references)


def check_tokenizer(name: str) -> None:
    """Raise unless sacrebleu has a tokenizer of this name, and what it needs is installed."""
    metrics = _sacrebleu()
    known = metrics.BLEU.TOKENIZERS
    if name not in known:
        raise unknown_name("tokenize", name, known)
    if name in _MECAB and not _is_installed(name):
        raise MissingPackageError(
            f"BLEU's tokenizer {name} needs packages that are missing. Install them with: {_MECAB[name]}"
        )


def chrf(produced: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> TextScore:
    """Return corpus chrF; arguments as in `bleu`.

    Example:
        >>> round(chrf(["the cat"], ["the cat"]).score, 1)
        100.0
    """
    _check(produced, references)
    return _scored(_sacrebleu().CHRF(lowercase=lowercase), produced, references)


def exact_matches(produced: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of the texts that equal their references.

    Example:
        >>> exact_matches(["a", "b"], ["a", "c"])
        0.5
    """
    _check(produced, references)
    return sum(normalized(one) == normalized(other) for one, other in zip(produced, references)) / len(produced)


_BY_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""As sacrebleu maps the language of the references."""
_BY_SCRIPT = {"han": "zh", "kana": "ja-mecab", "hangul": "ko-mecab", "spaceless": "char", "spaced": "13a"}
_MECAB = {"ja-mecab": "pip install 'sacrebleu[ja]'", "ko-mecab": "pip install 'sacrebleu[ko]'"}


class TokenizerChoice(NamedTuple):
    """The name of sacrebleu's tokenizer, and a note on why it was chosen."""

    name: str
    note: str


def tokenizer_for(texts: Sequence[str], language: str | None = None) -> TokenizerChoice:
    """Return sacrebleu's tokenizer for the references: by their language, or by their script where it is not known.

    Args:
        texts: the references.
        language: its code, such as ``zh`` or ``pt_BR``.

    Example:
        >>> tokenizer_for(["ein Haus"], "de")
        TokenizerChoice(name='13a', note='13a, for the language de')
        >>> tokenizer_for(["你好"]).note
        'zh, by the script of the references'
    """
    known = None if language is None else _BY_LANGUAGE.get(language.replace("_", "-").split("-")[0].lower())
    best = known or _BY_SCRIPT[dominant_script(texts)]
    reason = "by the script of the references" if language is None else f"for the language {language}"
    if best in _MECAB and not _is_installed(best):
        missing = f"char, {reason}: {best}, which others report, is not installed ({_MECAB[best]})"
        return TokenizerChoice("char", missing)
    return TokenizerChoice(best, f"{best}, {reason}")


def _is_installed(tokenizer: str) -> bool:
    try:
        _sacrebleu().BLEU(tokenize=tokenizer)
    except RuntimeError:  # sacrebleu's error for a package that is missing
        return False
    return True


def _scored(metric: Any, produced: Sequence[str], references: Sequence[str]) -> TextScore:
    # The same text in another normal form is no error.
    texts, wanted = (list(map(normalized, some)) for some in (produced, references))
    return TextScore(metric.corpus_score(texts, [wanted]).score, str(metric.get_signature()))


def _check(produced: Sequence[str], references: Sequence[str]) -> None:
    if not produced or len(produced) != len(references):
        raise DataError(f"{len(produced)} texts and {len(references)} references, expected one for each, at least one.")


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError as error:
        raise MissingPackageError("BLEU needs sacrebleu. Install it with: pip install 'foci[text]'") from error
    return sacrebleu.metrics
