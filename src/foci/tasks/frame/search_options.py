"""The options of a search for outputs, which `predict` and `evaluate` of several tasks take."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le

from foci.errors import ConfigError
from foci.settings import settings


@settings
class SearchOptions:
    """How outputs are searched for."""

    beam_size: Annotated[int, Ge(1)] = 5
    """Number of hypotheses of the beam search; 1 is greedy search."""
    n_best: Annotated[int, Ge(1)] = 1
    """Number of outputs per input, each with its score."""
    length_penalty: Annotated[float, Ge(-100), Le(100)] | None = None
    """Above 0 favors longer outputs, below 0 shorter ones. Default: 0.6; of captions what fits validation images."""
    coverage_penalty: Annotated[float, Ge(0), Le(100)] = 0.0
    """Above 0 favors outputs that have attended to all of the source."""
    no_repeat_ngram: Annotated[int, Ge(0)] = 0
    """No sequence of this many tokens occurs twice; 0 sets no limit."""
    min_length: Annotated[int, Ge(0)] = 0
    """Shortest output in tokens."""
    max_length: Annotated[int, Ge(1)] | None = None
    """Longest output in tokens. Default: twice the source and 20 more."""
    temperature: Annotated[float, Gt(0), Le(1000)] | None = None
    """Sample instead of searching: 1 draws from the model's distribution, lower values prefer likely tokens."""
    top_k: Annotated[int, Ge(1)] | None = None
    """Sample among this many likeliest tokens; needs a temperature."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Sample among the fewest tokens whose probabilities add up to this; needs a temperature."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the sampling."""
    prefix: str | None = None
    """Text that every output begins with."""
    int8: bool = False
    """Use 8-bit integers in large layers: faster on a CPU, slightly less exact."""
    batch_tokens: Annotated[int, Ge(1)] = 2048
    """Tokens per batch, padding included."""

    def __post_init__(self) -> None:
        if self.temperature is None and self.n_best > self.beam_size:
            raise ConfigError(f"n_best is {self.n_best}, expected at most beam_size={self.beam_size}. Raise beam_size.")
        if self.temperature is None and (self.top_k is not None or self.top_p != 1.0):
            raise ConfigError("top_k and top_p choose what is sampled, so they need a temperature, such as 1.0.")
