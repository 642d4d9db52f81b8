"""The interface of scores in `foci.Attention`, and what they share."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape
from foci.errors import ConfigError
from foci.functional.kernels.additive import prepare_key
from foci.functional.scores import additive, scaled_dot


class Score(nn.Module):
    """A score in two parts, so that a decoder projects its source once and then only its query per step.

    A score projects query and key separately, and then compares them cell by cell. Most compare by a dot
    product; those set ``scale``, and a fused kernel may compute them. The others set it to None and define
    `cells`. ``query_dim`` and ``key_dim`` are the sizes it takes; None takes any.
    """

    scale: float | None = 1.0

    def __init__(self, query_dim: int | None = None, key_dim: int | None = None) -> None:
        super().__init__()
        self.query_dim = query_dim
        self.key_dim = key_dim

    def project_query(self, query: Float[Tensor, "#B L Dq"]) -> Float[Tensor, "#B L P"]:
        """Return the projected query."""
        return query

    def project_key(self, key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B S P"]:
        """Return the projected key."""
        return key

    def prepare_cells(self, key: Float[Tensor, "#B S P"]) -> Tensor | None:
        """Return the part of `cells` that depends on the projected keys only; None if there is none."""
        return None

    def cells(
        self, query: Float[Tensor, "... L P"], key: Float[Tensor, "... S P"], prepared: Tensor | None = None
    ) -> Float[Tensor, "... L S"]:
        """Compare each projected query with each projected key."""
        return scaled_dot(query, key, self.scale)

    def forward(self, query: Float[Tensor, "#B L Dq"], key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B L S"]:
        """Return the scores ``(B, L, S)``."""
        owner = type(self).__name__
        check_shape(owner, "query", query, "batch", "query", self.query_dim or "feature")
        check_shape(owner, "key", key, "batch", "key", self.key_dim or "feature")
        return self.cells(self.project_query(query), self.project_key(key))

    def extra_repr(self) -> str:
        """Return the sizes, for printing."""
        return ", ".join(
            f"{name}={size}" for name in ("query_dim", "key_dim") if (size := getattr(self, name)) is not None
        )


class TanhScore(Score):
    """Scores that compare by ``vᵀ tanh(query + key)``; what differs is how query and key are projected."""

    scale = None

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__(query_dim, key_dim)
        self.vector = nn.Parameter(torch.empty(hidden_dim))
        nn.init.uniform_(self.vector, -(hidden_dim**-0.5), hidden_dim**-0.5)

    def prepare_cells(self, key: Float[Tensor, "#B S A"]) -> Tensor | None:
        """Return the keys' exponentials, where the kernel uses them."""
        return prepare_key(key)

    def cells(
        self, query: Float[Tensor, "... L A"], key: Float[Tensor, "... S A"], prepared: Tensor | None = None
    ) -> Float[Tensor, "... L S"]:
        """Return ``vᵀ tanh(query + key)`` for each pair."""
        return additive(query, key, self.vector, prepared)


def same_size(owner: str, query_dim: int | None, key_dim: int | None) -> int | None:
    """Return the common size of query and key, for scores without projections."""
    if query_dim is not None and key_dim is not None and query_dim != key_dim:
        raise ConfigError(
            f"{owner}: query_dim is {query_dim} and key_dim is {key_dim}, expected the same. "
            "Use score 'general' or 'additive' for two sizes."
        )
    return query_dim if key_dim is None else key_dim
