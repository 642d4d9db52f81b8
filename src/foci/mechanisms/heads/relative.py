"""Relative positions as biases of the scores: T5's buckets, Shaw's vectors and Transformer-XL's.

    T5               bias_ij = b[bucket(j − i)],  one number per head and bucket
    Shaw             bias_ij = q_i · a^K_(j−i) / √K,   output_i also reads Σ_j w_ij a^V_(j−i);  distances clipped to ±k
    Transformer-XL   bias_ij = (u · k_j + (q_i + v) · W R_(i−j)) / √K,   R the sinusoids of the distances

Paper: Exploring the Limits of Transfer Learning (Raffel et al., 2020), section 2.1, arXiv:1910.10683; Self-Attention
    with Relative Position Representations (Shaw et al., 2018), eqs. 3-4, arXiv:1803.02155; Transformer-XL (Dai et al.,
    2019), section 3.3, arXiv:1901.02860
Names: b = table, a^K = key_table, a^V = value_table, u = content_bias, v = position_bias, W = layer
Complexity: O(L · S) for T5; O(L · (S + k) · K) for the others
Differs: features of R alternate between sine and cosine, as in Vaswani et al. (2017). Each layer has its own b, which
    T5 shares among its layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.errors import check_sizes
from foci.functional.positions import sinusoid

Reader = Callable[[Tensor], Tensor]


class Distances(NamedTuple):
    """The position of each key minus that of each query, and numbers between which all of them lie."""

    table: Int[Tensor, "B L S"]
    lowest: int
    highest: int


def distances(L: int, S: int, device: torch.device | None = None) -> Distances:
    """Return the distances where the last query's own key is the last.

    Example:
        >>> distances(2, 3).table
        tensor([[[-1,  0,  1],
                 [-2, -1,  0]]])
    """
    own = torch.arange(L, device=device).unsqueeze(1) + (S - L)
    # Without queries or keys there is no distance, and 0 lies between these bounds.
    return Distances((torch.arange(S, device=device) - own).unsqueeze(0), min(0, 1 - S), max(0, L - 1))


@runtime_checkable
class RelativeBias(Protocol):
    """What a `MultiHeadAttention` takes as ``relative``: a module that adds to its scores by distance."""

    def __call__(
        self, query: Float[Tensor, "B H L K"], key: Float[Tensor, "B G S K"], scale: float, distance: Distances
    ) -> Float[Tensor, "..."]:
        """Return the bias ``(B or 1, H, L, S)``; ``scale`` is the factor of dot products."""

    def reader(self, distance: Distances) -> Reader | None:
        """Return the function from weights ``(B, H, L, S)`` to what they read of the distances; None for nothing."""


class BucketBias(nn.Module):
    """T5's bias: near distances have a bucket each, farther ones share buckets that grow.

    Args:
        num_heads: number of heads.
        num_buckets: their number.
        max_distance: all larger distances share the last bucket.
        both_sides: half of the buckets are for keys after the query. Default: False, for causal attention.

    Example:
        >>> BucketBias(2, num_buckets=4, max_distance=8).bucket(torch.tensor([0, -1, -2, -9, 3])).tolist()
        [0, 1, 2, 3, 0]
    """

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, both_sides: bool = False
    ) -> None:
        super().__init__()
        check_sizes("BucketBias", num_heads=num_heads, num_buckets=num_buckets, max_distance=max_distance)
        self.max_distance = max_distance
        self.both_sides = both_sides
        self.table = nn.Parameter(torch.empty(num_buckets, num_heads))
        nn.init.normal_(self.table, std=0.02)

    def bucket(self, distance: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Return the bucket of each distance."""
        count, first = self.table.shape[0], torch.zeros_like(distance)
        if self.both_sides:
            count //= 2
            first, far = (distance > 0) * count, distance.abs()
        else:
            far = (-distance).clamp_min(0)
        exact = count // 2
        # In single precision, as T5 computes it: a distance on the border of two buckets must fall into the same one.
        logarithm = torch.log(far.clamp_min(1).float() / exact) / math.log(self.max_distance / exact)
        shared = (exact + (logarithm * (count - exact)).long()).clamp_max(count - 1)
        return first + torch.where(far < exact, far, shared)

    def forward(
        self, query: Float[Tensor, "B H L K"], key: Float[Tensor, "B G S K"], scale: float, distance: Distances
    ) -> Float[Tensor, "A H L S"]:
        """Return the bias of each head; queries and keys are not compared."""
        return self._of(distance)

    def bias(self, L: int, S: int) -> Float[Tensor, "1 H L S"]:
        """Return the bias of L queries and S keys, for layers that share it: pass it to them as ``bias``."""
        return self._of(distances(L, S, self.table.device))

    def _of(self, distance: Distances) -> Tensor:
        return self.table[self.bucket(distance.table)].permute(0, 3, 1, 2)

    def reader(self, distance: Distances) -> None:
        """Return None: the weights read values alone."""


class ShawBias(nn.Module):
    """Shaw's vectors, one per distance from −k to k, which queries are compared with and weights read.

    Args:
        head_dim: features of a head.
        max_distance: k; larger distances count as k.
        values: also read vectors by distance. Default: True, as in the paper.
    """

    def __init__(self, head_dim: int, *, max_distance: int = 16, values: bool = True) -> None:
        super().__init__()
        check_sizes("ShawBias", head_dim=head_dim, max_distance=max_distance)
        self.max_distance = max_distance
        self.key_table = nn.Parameter(torch.empty(2 * max_distance + 1, head_dim))
        self.value_table = nn.Parameter(torch.empty(2 * max_distance + 1, head_dim)) if values else None
        for table in self.parameters():
            nn.init.xavier_uniform_(table)

    def forward(
        self, query: Float[Tensor, "B H L K"], key: Float[Tensor, "B G S K"], scale: float, distance: Distances
    ) -> Float[Tensor, "B H L S"]:
        """Return the products of each query with the vector of each distance."""
        products: Tensor = (query * scale) @ self.key_table.mT
        return products.gather(-1, self._row(distance).expand(*products.shape[:2], -1, -1))

    def reader(self, distance: Distances) -> Reader | None:
        """Return the function that reads vectors by distance."""
        table = self.value_table
        if table is None:
            return None

        def read(weights: Tensor) -> Tensor:
            by_distance = weights.new_zeros(*weights.shape[:-1], table.shape[0])
            by_distance = by_distance.scatter_add(-1, self._row(distance).expand_as(weights), weights)
            read_by_distance: Tensor = by_distance @ table
            return read_by_distance

        return read

    def _row(self, distance: Distances) -> Tensor:
        k = self.max_distance
        return (distance.table.clamp(-k, k) + k).unsqueeze(1)


class TransformerXLBias(nn.Module):
    """Transformer-XL's bias: the key's content alone, its distance alone, and the query with its distance.

    Args:
        model_dim: size of the sinusoids.
        num_heads: number of heads.
        head_dim: features of a head.
    """

    def __init__(self, model_dim: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        check_sizes("TransformerXLBias", model_dim=model_dim, num_heads=num_heads, head_dim=head_dim)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.position_bias = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.layer = nn.Linear(model_dim, num_heads * head_dim, bias=False)
        nn.init.xavier_uniform_(self.layer.weight)

    def forward(
        self, query: Float[Tensor, "B H L K"], key: Float[Tensor, "B G S K"], scale: float, distance: Distances
    ) -> Float[Tensor, "B H L S"]:
        """Return the bias of each head."""
        batch, heads, _, size = query.shape
        table, lowest, highest = distance
        # The sinusoids are those of query − key, from −highest on.
        sinusoids = sinusoid(
            highest - lowest + 1, self.layer.in_features, start=-highest, device=query.device, dtype=query.dtype
        )
        places = self.layer(sinusoids).view(-1, heads, size).transpose(0, 1)
        products: Tensor = (query + self.position_bias.unsqueeze(1)) @ places.mT
        by_place = products.gather(-1, (highest - table).unsqueeze(1).expand(batch, heads, -1, -1))
        key = key.repeat_interleave(heads // key.shape[1], dim=1)
        contents: Tensor = self.content_bias.unsqueeze(1) @ key.mT
        bias: Tensor = scale * (by_place + contents)
        return bias

    def reader(self, distance: Distances) -> None:
        """Return None: the weights read values alone."""
