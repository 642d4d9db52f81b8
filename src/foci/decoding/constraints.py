"""GenerationConstraints of what a search may produce, for every kind of search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class GenerationConstraints:
    """Lengths and tokens that a search allows.

    Args:
        max_length: the largest number of steps; a hypothesis without EOS by then is not finished. Default:
            `DecoderInputs.max_steps`. The decoder's own limit is never exceeded.
        min_length: the least number of tokens before EOS.
        no_repeat_ngram: no n-gram of this size occurs twice in a hypothesis; 0 sets no such limit.
        prefix: for each source, the tokens every hypothesis of it begins with; they count for its log-probability.
        bos: the token before the first.
        eos: the token that ends a hypothesis.
        banned: tokens that are never produced. Default: padding and BOS.
    """

    max_length: int | None = None
    min_length: int = 0
    no_repeat_ngram: int = 0
    prefix: Sequence[Sequence[int]] | None = None
    bos: int = 1
    eos: int = 2
    banned: Sequence[int] = (0, 1)

    def __post_init__(self) -> None:
        owner = "GenerationConstraints"
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError(f"{owner}: max_length is {self.max_length}, expected at least 1.")
        if self.min_length < 0 or self.no_repeat_ngram < 0:
            raise ConfigError(
                f"{owner}: min_length is {self.min_length} and no_repeat_ngram is {self.no_repeat_ngram}, expected "
                "neither below 0."
            )
        if self.eos in self.banned:
            raise ConfigError(f"{owner}: EOS is {self.eos} and banned, expected an EOS that can be produced.")
        if any(self.eos in tokens for tokens in self.prefix or ()):
            raise ConfigError(f"{owner}: a prefix holds EOS, token {self.eos}, expected tokens before the end only.")

    def may_allow_nothing(self, vocabulary: int) -> bool:
        """Whether `apply` may leave a row without any token, for this number of tokens."""
        return bool(self.no_repeat_ngram) or len(set(self.banned)) + 1 >= vocabulary

    def apply(
        self, logs: Float[Tensor, "N V"], tokens: Int[Tensor, "N t"], sources: Sequence[int]
    ) -> Float[Tensor, "N V"]:
        """Write −∞ over the log-probabilities of the tokens that may not follow ``tokens``.

        ``sources`` are the indices of the sources, each with equally many hypotheses in adjacent rows.
        """
        length = tokens.shape[1]
        forced = list(self._forced(logs, length, sources))
        if self.banned:
            logs[:, list(self.banned)] = -torch.inf
        if length < self.min_length:
            logs[:, self.eos] = -torch.inf
        if self.no_repeat_ngram and length >= self.no_repeat_ngram:
            _ban_repeats(logs, tokens, self.no_repeat_ngram)
        for rows, token, values in forced:  # a prefix may contain tokens that are banned
            logs[rows] = -torch.inf
            logs[rows, token] = values
        return logs

    def _forced(self, logs: Tensor, length: int, sources: Sequence[int]) -> Iterator[tuple[slice, int, Tensor]]:
        if self.prefix is None:
            return
        width = logs.shape[0] // max(1, len(sources))
        for place, source in enumerate(sources):
            if length < len(self.prefix[source]):
                rows, token = slice(place * width, (place + 1) * width), self.prefix[source][length]
                yield rows, token, logs[rows, token].clone()


def _ban_repeats(logs: Tensor, tokens: Tensor, size: int) -> None:
    ngrams = tokens.unfold(1, size, 1)  # (N, t − size + 1, size)
    begun = tokens[:, tokens.shape[1] - size + 1 :]
    repeated = (ngrams[:, :, :-1] == begun.unsqueeze(1)).all(dim=2)
    rows, places = repeated.nonzero(as_tuple=True)
    logs[rows, ngrams[rows, places, -1]] = -torch.inf
