"""The note on an input that a run cannot read: which tokens it does not know, and what it does know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from foci.data.vocabulary import Vocabulary
from foci.printable import printable

_NAMED = 5
_EXAMPLES = 8


def unknown_note(what: str, unknown: Sequence[str], total: int, known: Sequence[str], data: str) -> str:
    r"""Return a message for the user.

    Args:
        what: "tokens" or "words".
        unknown: those of the input that the run does not know.
        total: how many the input has.
        known: all that the run knows, the most frequent first.
        data: what the run was trained on.

    Example:
        >>> note = unknown_note("words", ["red", "house"], 3, ["days", ",", "ago"], "phrases")
        >>> print(note.replace(". ", ".\n"))
        2 of 3 words are unknown to this run: 'red', 'house'.
        It was trained on phrases and knows 3 words, such as days, ago.
    """
    different = list(dict.fromkeys(unknown))
    named = ", ".join(repr(printable(token)) for token in different[:_NAMED])
    more = ", …" if len(different) > _NAMED else ""
    examples = ", ".join(_examples(known))
    return (
        f"{len(unknown)} of {total} {what} {'is' if len(unknown) == 1 else 'are'} unknown to this run: {named}{more}. "
        f"It was trained on {data} and knows {len(known):,} {what}" + (f", such as {examples}." if examples else ".")
    )


def unknown_words(words: Sequence[str], vocabulary: Vocabulary, data: str) -> list[str]:
    """Return a note where most words of an input are unknown, so that the prediction is unreliable."""
    unknown = [word for word in words if word not in vocabulary]
    if 2 * len(unknown) <= len(words):
        return []
    return [unknown_note("words", unknown, len(words), vocabulary.words, data)]


def truncated(read: int, total: int, of: str = "") -> list[str]:
    """Return a note where only the first words of an input, or of a part of it, were read."""
    return [f"only the first {read} of {total} words{of} were read (data.max_words)"] if read < total else []


def left_out(labels: Sequence[str], counts: Iterable[int], kind: str) -> dict[str, str]:
    """Return the note on labels that a macro F1 is no mean over, since they neither occur nor are predicted.

    Args:
        labels: all that were trained.
        counts: how often each of them occurs or is predicted.
        kind: what a label is called: "class".

    Example:
        >>> left_out(["a", "b", "c"], [3, 0, 1], "label")
        {'macro_f1_convention': "mean over 2 of 3 labels; the others neither occur nor are predicted: 'b'"}
    """
    missing = [label for label, count in zip(labels, counts) if not count]
    if not missing:
        return {}
    named = ", ".join(repr(printable(label)) for label in missing[:_EXAMPLES])
    more = f" and {len(missing) - _EXAMPLES} more" if len(missing) > _EXAMPLES else ""
    kinds = kind + ("es" if kind.endswith("s") else "s")
    over = f"{len(labels) - len(missing)} of {len(labels)} {kinds}"
    return {"macro_f1_convention": f"mean over {over}; the others neither occur nor are predicted: {named}{more}"}


def _examples(known: Iterable[str]) -> list[str]:
    """Some of them that are words, of more than one letter in scripts that have letters."""
    words = (token.strip() for token in known)
    fitting = (word for word in words if word.isalpha() and (len(word) > 1 or not word.isascii()))
    return list(islice(dict.fromkeys(fitting), _EXAMPLES))
