"""What the scores of `foci.Attention` share; see `foci.mechanisms.parts.Score`."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_shape, expand_query
from foci.errors import ConfigError
from foci.functional.kernels.additive import prepare_key
from foci.functional.scores import additive, scaled_dot
from foci.functional.stepwise import StepOptions, over_steps
from foci.mechanisms.normalizers import NamedNormalizer
from foci.mechanisms.parts import Reading, Sizes
from foci.outputs import AttentionOutput
from foci.tracing import known_true
from foci.weights import Weights


class ScoreModule(nn.Module):
    """A score that compares by a dot product; a subclass projects query and key, or compares in another way."""

    scale: float | None = 1.0
    remembers: bool = False

    def __init__(self, query_dim: int | None = None, key_dim: int | None = None) -> None:
        super().__init__()
        self.query_dim = query_dim
        self.key_dim = key_dim

    @classmethod
    def build(cls, sizes: Sizes) -> ScoreModule:
        """Return a new score of these sizes."""
        return cls(sizes.query_dim, sizes.key_dim)

    @property
    def projected_dim(self) -> int | None:
        """The size of a projected key; None where it is that of the key."""
        return None

    def project_query(self, query: Float[Tensor, "#B L Dq"]) -> Float[Tensor, "#B L P"]:
        """Return the projected query."""
        return query

    def project_key(self, key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B S P"]:
        """Return the projected key."""
        return key

    def prepare(self, key: Float[Tensor, "#B S P"], value: Float[Tensor, "#B S V"]) -> Tensor | None:
        """Return what can be computed from the projected keys for all reads; None if there is nothing."""
        return None

    def compare(
        self, query: Float[Tensor, "... L P"], key: Float[Tensor, "... S P"], prepared: Tensor | None = None
    ) -> Float[Tensor, "... L S"]:
        """Compare each projected query with each projected key."""
        return scaled_dot(query, key, self.scale)

    def forward(self, query: Float[Tensor, "#B L Dq"], key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B L S"]:
        """Return the scores ``(B, L, S)``."""
        owner = type(self).__name__
        check_shape(owner, "query", query, "batch", "query", self.query_dim or "feature")
        check_shape(owner, "key", key, "batch", "key", self.key_dim or "feature")
        return self.compare(self.project_query(query), self.project_key(key))

    def read_steps(self, reading: Reading, window: tuple[int, int] | None) -> AttentionOutput:
        """Read query by query, each within a window around the median of the previous weights, if there is one."""
        query, memory, mask = reading.projected, reading.memory, reading.mask
        batch, size = expand_query(reading.owner, query, memory.key, memory.value)[1], memory.key.shape[1]
        previous = query.new_zeros(batch, size) if reading.state is None else reading.state
        check_shape(reading.owner, "state", previous, batch, size, fix="Pass what the previous call returned.")
        if known_true(query.shape[1] == 0):
            nothing = query.new_zeros(batch, 0, size)
            return AttentionOutput(nothing @ memory.value, Weights.from_tensor(nothing), previous)
        options = StepOptions(_step_name(reading), reading.sharpening, window)
        return self._read_steps(reading, previous, () if mask is None else (mask,), options)

    def _read_steps(
        self, reading: Reading, previous: Tensor, mask: tuple[Tensor, ...], options: StepOptions
    ) -> AttentionOutput:
        memory = reading.memory
        scores = self.compare(reading.projected, memory.key, memory.prepared)
        per_query, shared = split_mask(mask)
        steps = over_steps("median_window", previous, (scores, *per_query), shared, options)
        return read_weights(reading, *steps)

    def extra_repr(self) -> str:
        """Return the sizes, for printing."""
        return ", ".join(
            f"{name}={size}" for name in ("query_dim", "key_dim") if (size := getattr(self, name)) is not None
        )


class TanhScore(ScoreModule):
    """Scores that compare by ``vᵀ tanh(query + key)``; what differs is how query and key are projected."""

    scale = None

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__(query_dim, key_dim)
        self.vector = nn.Parameter(torch.empty(hidden_dim))
        nn.init.uniform_(self.vector, -(hidden_dim**-0.5), hidden_dim**-0.5)

    @classmethod
    def build(cls, sizes: Sizes) -> ScoreModule:
        """Return a new score of these sizes."""
        arguments: Any = (*both_sizes(cls, sizes), sizes.hidden_dim)
        return cls(*arguments)

    @property
    def projected_dim(self) -> int | None:
        """The size of the hidden layer."""
        return self.vector.shape[0]

    def prepare(self, key: Float[Tensor, "#B S A"], value: Float[Tensor, "#B S V"]) -> Tensor | None:
        """Return the keys' exponentials, where the kernel uses them."""
        return prepare_key(key)

    def compare(
        self, query: Float[Tensor, "... L A"], key: Float[Tensor, "... S A"], prepared: Tensor | None = None
    ) -> Float[Tensor, "... L S"]:
        """Return ``vᵀ tanh(query + key)`` for each pair."""
        return additive(query, key, self.vector, prepared)


def both_sizes(kind: type[ScoreModule], sizes: Sizes) -> tuple[int, int]:
    """Return the sizes of query and key, for scores that learn parameters of these sizes."""
    if sizes.query_dim is None or sizes.key_dim is None:
        raise ConfigError(f"Attention: the score {kind.__name__} learns parameters and needs query_dim and key_dim.")
    return sizes.query_dim, sizes.key_dim


def same_size(owner: str, query_dim: int | None, key_dim: int | None) -> int | None:
    """Return the common size of query and key, for scores without projections."""
    if query_dim is not None and key_dim is not None and query_dim != key_dim:
        raise ConfigError(
            f"{owner}: query_dim is {query_dim} and key_dim is {key_dim}, expected the same. "
            "Use score 'general' or 'additive' for two sizes."
        )
    return query_dim if key_dim is None else key_dim


def split_mask(mask: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the mask as one that differs between queries, or as one that all of them share."""
    return (mask, ()) if mask and mask[0].shape[1] != 1 else ((), mask)


def read_weights(reading: Reading, state: Tensor, outputs: tuple[Tensor, ...]) -> AttentionOutput:
    """Return what the weights of the steps read.

    ``outputs`` are the weights, and of what was sampled the log-probability ``(B, L)`` and the probabilities, if any.
    """
    weights, *sampled = outputs
    output = F.dropout(weights, reading.dropout) @ reading.memory.value
    log_prob = next((one for one in sampled if one.dim() == 2), None)
    probabilities = next((one for one in sampled if one.dim() == 3), None)
    return AttentionOutput(output, Weights.from_tensor(weights, log_prob, probabilities), state)


def _step_name(reading: Reading) -> str:
    normalizer = reading.normalizer
    if not isinstance(normalizer, NamedNormalizer) or normalizer.name is None:
        raise ConfigError(
            f"{reading.owner}: the normalizer is a {type(normalizer).__name__}, expected one by its name for a "
            "score or focus that depends on the previous weights."
        )
    return normalizer.name if reading.training else normalizer.evaluation_name
