"""The searches of `foci.decoding` called with a model and its sources."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from foci import decoding
from foci.decoding import Hypothesis, encode_source

Search = Callable[..., list[list[Hypothesis]]]


def from_source(search: Search) -> Search:
    """The search, called with a model, sources and which of their positions exist."""

    def run(model: Any, source: Tensor, valid: Tensor, **options: Any) -> list[list[Hypothesis]]:
        return search(model, encode_source(model, source, valid), **options)

    return run


greedy, beam, sample = from_source(decoding.greedy), from_source(decoding.beam), from_source(decoding.sample)
