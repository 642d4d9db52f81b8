"""The size of texts whose tokens are scored, with the spellings of those that are unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foci.data.tokenizer import UNK, Tokenizer
from foci.metrics.likelihood import TextSize, spelling_nats


def text_size(tokenizer: Tokenizer, texts: Iterable[str], rows: Iterable[Sequence[int]]) -> TextSize:
    """Return the size of texts as far as they are scored.

    Args:
        tokenizer: of the texts.
        texts: as they were tokenized.
        rows: the ids of each that are scored, which may be cut: unknown words that a model can copy from its source
            have ids of their own instead of ``<unk>``, and cost nothing beside their probability.

    Example:
        >>> words = Tokenizer.train([" a b a"], kind="words", size=20)
        >>> size = text_size(words, [" a cc a"], [words.encode(" a cc a").ids])
        >>> size.characters, size.unknown, round(size.spelling, 2)  # " cc" and its end; c is in no known word
        (7, 1, 34.28)
    """
    total, characters = 0, 0
    unknown: list[str] = []
    texts = list(texts)
    for text, encoding, ids in zip(texts, tokenizer.encodings(texts), rows, strict=True):
        scored = text if len(ids) == len(encoding.ids) else text[: encoding.offsets[len(ids) - 1][1] if ids else 0]
        characters += len(scored)
        total += len(scored.encode())
        if UNK in ids:
            unknown += [text[start:end] for number, (start, end) in zip(ids, encoding.offsets) if number == UNK]
    alphabet = frozenset("".join(tokenizer.pieces))
    return TextSize(total, characters, len(unknown), spelling_nats(unknown, alphabet))
