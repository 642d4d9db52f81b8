"""The searches of `foci.decoding` called with a model and its sources."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from foci import decoding
from foci.decoding import Hypothesis, encode_source

EOS = 2
SOURCE = torch.tensor([[3, 4, 5, 6], [4, 3, 3, 0], [5, 5, 0, 0]])
VALID = SOURCE > 0

Search = Callable[..., list[list[Hypothesis]]]


def from_source(search: Search) -> Search:
    """The search, called with a model, sources and which of their positions exist."""

    def run(model: Any, source: Tensor, valid: Tensor, **options: Any) -> list[list[Hypothesis]]:
        return search(model, encode_source(model, source, valid), **options)

    return run


greedy, beam, sample = from_source(decoding.greedy), from_source(decoding.beam), from_source(decoding.sample)


def log_prob_of(model: Any, source: Tensor, tokens: list[int]) -> float:
    """The log-probability of these tokens after a source, by the whole model."""
    target = torch.tensor([[1, *tokens]])
    logs = model(source, source > 0, target).logits[0].log_softmax(-1)
    return sum(float(logs[t, token]) for t, token in enumerate(tokens))


def repeats(tokens: tuple[int, ...], size: int) -> bool:
    """Whether an n-gram of this size occurs twice."""
    ngrams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return len(set(ngrams)) < len(ngrams)
