"""Metrics of language models: how likely a text is.

    nats per token        −Σ_t log p(x_t) / tokens
    perplexity            exp(nats per token)
    bits per byte         −Σ_t log₂ p(x_t) / bytes of the text in UTF-8

Nats and perplexity depend on how the text was cut into tokens; bits per byte do not, so that models with different
vocabularies can be compared by them.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Likelihood(NamedTuple):
    """The log-probability of a text in nats, its number of tokens, and its size.

    Example:
        >>> one = Likelihood(-10 * math.log(2), tokens=5, bytes=20, characters=10)
        >>> round(one.nats, 3), one.perplexity, one.bits_per_byte
        (1.386, 4.0, 0.5)
    """

    log_prob: float
    tokens: int
    bytes: int
    characters: int

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
        """Bits per byte of UTF-8."""
        return -self.log_prob / math.log(2) / max(self.bytes, 1)

    @property
    def bits_per_character(self) -> float:
        """Bits per character."""
        return -self.log_prob / math.log(2) / max(self.characters, 1)
