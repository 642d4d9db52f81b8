"""Metrics of language models: how likely a text is.

    nats per token        −Σ_t log p(x_t) / tokens
    perplexity            exp(nats per token)
    bits per byte         −(Σ_t log₂ p(x_t) + Σ_u log₂ q(u)) / bytes of the text in UTF-8

Nats and perplexity depend on how the text was cut into tokens, and a word outside the vocabulary is one symbol,
``<unk>``, which is easier to predict than the word. Bits per byte and per character are of the text itself: the
spelling u of each unknown word is added, with q(u) = Π 1 / (A + 2) over its characters and its end, where A is the
number of characters of the vocabulary; a character that the vocabulary does not have is announced by a symbol of its
own and then costs as much as any of Unicode's. So models with different vocabularies can be compared by them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

_UNICODE = 0x110000


def spelling_nats(unknown: Iterable[str], alphabet: Collection[str]) -> float:
    """Return −log q of the spellings of unknown words, given the characters of the vocabulary.

    Example:
        >>> round(spelling_nats(["ab"], "abcdef") / math.log(8), 6)  # a, b and the end, each one of 8
        3.0
    """
    one = math.log(len(alphabet) + 2)
    strange = math.log(_UNICODE)
    costs = (one * (len(word) + 1) + strange * sum(letter not in alphabet for letter in word) for word in unknown)
    return sum(costs, 0.0)


class TextSize(NamedTuple):
    """The size of texts: in UTF-8, in characters, and what their unknown tokens add to the nats of the others."""

    bytes: int
    characters: int
    unknown: int = 0
    """Tokens that are ``<unk>``."""
    spelling: float = 0.0
    """Nats of the spellings of these."""


class Likelihood(NamedTuple):
    """The log-probability of the tokens of some texts in nats, their number, and the size of the texts.

    Example:
        >>> one = Likelihood(-10 * math.log(2), 5, TextSize(bytes=20, characters=10))
        >>> round(one.nats, 3), one.perplexity, one.bits_per_byte
        (1.386, 4.0, 0.5)
    """

    log_prob: float
    tokens: int
    text: TextSize

    @property
    def nats(self) -> float:
        """Nats per token."""
        return -self.log_prob / max(self.tokens, 1)

    @property
    def perplexity(self) -> float:
        """The exponential of the nats per token."""
        return math.exp(min(self.nats, 700.0))

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of UTF-8, with the spellings of unknown words."""
        return self._bits / max(self.text.bytes, 1)

    @property
    def bits_per_character(self) -> float:
        """Bits per character, with the spellings of unknown words."""
        return self._bits / max(self.text.characters, 1)

    @property
    def _bits(self) -> float:
        return (self.text.spelling - self.log_prob) / math.log(2)

    def to_metrics(self) -> dict[str, float | int]:
        """Return perplexity with what makes it comparable beside it."""
        return {
            "perplexity": self.perplexity,
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
            "unknown_tokens": self.text.unknown,
        }

    def notes(self) -> dict[str, str]:
        """Return what perplexity does not say of unknown tokens; nothing where there are none."""
        if not self.text.unknown:
            return {}
        share = self.text.unknown / max(self.tokens, 1)
        return {
            "unknown": f"{self.text.unknown:,} of {self.tokens:,} tokens ({share:.1%}) are not in the vocabulary and "
            "count in the perplexity as one symbol, <unk>, which is easier to predict than they are. The bits per "
            "character and per byte add their spelling, every character of the vocabulary as likely as the others: "
            "compare runs with different vocabularies by these. tokenizer.kind=bpe spells every text."
        }
