"""What the scores of `foci.Attention` share: their base class, and the module around a score of one's own."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_shape, expand_query
from foci.errors import ConfigError
from foci.functional.kernels.additive import SMALL, additive_scores, prepare_key
from foci.functional.own_parts import check_takes, name_of, own_scores
from foci.functional.scores import scaled_dot
from foci.functional.stepwise import StepOptions, over_steps
from foci.mechanisms.parts import Reading, Score, Sizes
from foci.outputs import AttentionOutput
from foci.tracing import is_traced, known_true
from foci.weights import Weights


class ScoreModule(nn.Module):
    """The base of scores with projections, which a source goes through once: a dot product of what is projected.

    A subclass projects query and key, or compares in another way; `foci.Attention` calls these methods, not `forward`.

    Attributes:
        scale: the factor of the dot product.
        remembers: whether it depends on the weights of the previous query.
        is_dot_product: whether it compares by that dot product, which a fused kernel then computes.

    Example:
        >>> class Distance(ScoreModule):
        ...     def compare(self, query, key, prepared=None):
        ...         return -torch.cdist(query, key)
        >>> Distance()(torch.zeros(1, 1, 2), torch.tensor([[[3.0, 4.0]]]))
        tensor([[[-5.]]])
    """

    scale: float = 1.0
    remembers: bool = False
    is_dot_product: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.is_dot_product = cls.compare is ScoreModule.compare
        if cls.forward is not ScoreModule.forward:
            raise ConfigError(
                f"{cls.__name__}: it has a forward, which foci.Attention does not call, expected compare(query, key, "
                "prepared=None). Rename it, or derive the score from torch.nn.Module, of which forward is called."
            )

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

    def forward(self, query: Float[Tensor, "... L Dq"], key: Float[Tensor, "... S Dk"]) -> Float[Tensor, "... L S"]:
        """Return the scores ``(B, L, S)``, or with heads ``(B, H, L, S)``."""
        owner = type(self).__name__
        check_shape(owner, "query", query, "…", "query", self.query_dim or "feature")
        check_shape(owner, "key", key, "…", "key", self.key_dim or "feature")
        if query.dim() == key.dim() == 3:
            return self.compare(self.project_query(query), self.project_key(key))
        leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
        query, key = (one.expand(*leading, -1, -1).reshape(math.prod(leading), *one.shape[-2:]) for one in (query, key))
        scores = self.compare(self.project_query(query), self.project_key(key))
        return scores.reshape(*leading, *scores.shape[-2:])

    def read_steps(self, reading: Reading, window: tuple[int, int] | None) -> AttentionOutput:
        """Read query by query, each within a window around the median of the previous weights, if there is one."""
        query, memory, mask = reading.projected, reading.memory, reading.mask
        batch, size = expand_query(reading.owner, query, memory.key, memory.value)[1], memory.key.shape[1]
        previous = query.new_zeros(batch, size) if reading.state is None else reading.state
        check_shape(reading.owner, "state", previous, batch, size, fix="Pass what the previous call returned.")
        if known_true(query.shape[1] == 0):
            nothing = query.new_zeros(batch, 0, size)
            return AttentionOutput(nothing @ memory.value, Weights.from_tensor(nothing), previous)
        options = StepOptions(reading.normalizer.for_steps(reading.training), reading.sharpening, window)
        return self._read_steps(reading, previous, () if mask is None else (mask,), options)

    def _read_steps(
        self, reading: Reading, previous: Tensor, mask: tuple[Tensor, ...], options: StepOptions
    ) -> AttentionOutput:
        memory = reading.memory
        scores = reading.compare(reading.projected, memory.key, memory.prepared)
        if reading.bias is not None:
            scores = scores + reading.bias
        per_query, shared = split_mask(mask)
        options = options._replace(sharpening=1.0)  # the scores are sharpened
        steps = over_steps("median_window", previous, (scores, *per_query), shared, options)
        return read_weights(reading, *steps)

    def extra_repr(self) -> str:
        """Return the sizes, for printing."""
        return ", ".join(
            f"{name}={size}" for name in ("query_dim", "key_dim") if (size := getattr(self, name)) is not None
        )


class TanhScore(ScoreModule):
    """Scores that compare by ``vᵀ tanh(query + key)``; what differs is how query and key are projected."""

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
        """Return the keys' exponentials, where the kernel uses them and they are not computed in no time."""
        return prepare_key(key) if is_traced() or key.numel() >= SMALL else None

    def compare(
        self, query: Float[Tensor, "... L A"], key: Float[Tensor, "... S A"], prepared: Tensor | None = None
    ) -> Float[Tensor, "... L S"]:
        """Return ``vᵀ tanh(query + key)`` for each pair."""
        return additive_scores(query, key, self.vector, prepared)


class ScoreFunction(ScoreModule):
    """A score of one's own, a function or a module, whose parameters are trained: ``(query, key) -> scores``.

    It sees three axes, (batch, position, feature), and one batch size: a local window is a batch of its own.

    Example:
        >>> ScoreFunction(lambda query, key: -torch.cdist(query, key))(torch.zeros(1, 3, 2), torch.ones(1, 5, 2)).shape
        torch.Size([1, 3, 5])
    """

    def __init__(self, function: Score, query_dim: int | None = None, key_dim: int | None = None) -> None:
        super().__init__(query_dim, key_dim)
        check_takes("score", function, "query", "key")
        self.function = function

    def compare(
        self, query: Float[Tensor, "... L D"], key: Float[Tensor, "... S Dk"], prepared: Tensor | None = None
    ) -> Float[Tensor, "... L S"]:
        """Return its scores."""
        batch = query.shape[:-2]
        if batch != key.shape[:-2]:
            batch = torch.broadcast_shapes(batch, key.shape[:-2])
            query, key = (source.expand(*batch, -1, -1) for source in (query, key))
        if len(batch) == 1:
            return own_scores(self.function, query, key)
        scores = own_scores(self.function, query.flatten(0, -3), key.flatten(0, -3))
        return scores.view(*batch, *scores.shape[1:])

    def extra_repr(self) -> str:
        """Return the sizes and, where it is no module, the function, for printing."""
        function = () if isinstance(self.function, nn.Module) else (name_of(self.function),)
        return ", ".join(filter(None, (*function, super().extra_repr())))


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
