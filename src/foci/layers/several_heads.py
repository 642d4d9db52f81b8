"""Options of every attention with several heads; importing them does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from foci.errors import ConfigError, check_positive
from foci.names import GateName, NormName, SinkName
from foci.options import Options


@dataclass(frozen=True, kw_only=True)
class HeadOptions(Options):
    """Options of every attention with several heads."""

    head_dim: int | None = None
    """Features of a head. Default: the size of a position divided by the heads."""
    num_key_heads: int | None = None
    """Heads of keys and values, each shared by a group of heads (GQA); 1 is multi-query attention. Default: as many as
    heads."""
    qk_norm: bool | NormName = False
    """Normalize queries and keys of each head by their root mean square; rms and layer are norms with a learned
    gain."""
    scale: float | None = None
    """Factor of the dot products. Default: 1 / sqrt(features of a head)."""
    score_cap: float | None = None
    """Keep the scores between −score_cap and score_cap by a tanh. Default: no bound."""
    sink: SinkName | None = None
    """One more position that holds nothing, so that a head may attend to nothing: with a learned score per head, or
    with the score zero (softmax off by one)."""
    gate: GateName | None = None
    """Multiply what the heads read by a sigmoid of the query, for each feature or for each head."""
    output_bias: bool | None = None
    """Give the output layer of the attention a bias. Default: as its other layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(type(self).__name__, scale=self.scale)

    def check_heads(self, model_dim: int, num_heads: int) -> int:
        """Return the features of a head, or raise if these sizes do not fit."""
        owner = type(self).__name__
        if self.head_dim is None and model_dim % num_heads:
            raise ConfigError(
                f"{owner}: model_dim is {model_dim} and num_heads is {num_heads}, expected a model_dim "
                "that num_heads divides, or a head_dim."
            )
        if num_heads % (self.num_key_heads or 1):
            raise ConfigError(
                f"{owner}: num_key_heads is {self.num_key_heads}, expected a divisor of num_heads={num_heads}."
            )
        return self.head_dim or model_dim // num_heads

    @property
    def head_arguments(self) -> dict[str, Any]:
        """These options as arguments of `foci.MultiHeadAttention`."""
        return {name: getattr(self, name) for name in HEAD_OPTIONS}


HEAD_OPTIONS = tuple(field.name for field in fields(HeadOptions))
"""The names of the options that only several heads have."""
