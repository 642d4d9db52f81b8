"""Conditional attention: what a position holds and where it lies are scored apart, and the query says how far to look.

    score_ij = (c_i · c_j + p_i · p_j) / sqrt(2 K) = [c_i; p_i] · [c_j; p_j] / sqrt(2 K)   for each head
    c_i = W_qc f_i,   p_i = W_qp (λ_i ∘ s_i),   λ_i = FFN(f_i)
    c_j = W_kc x_j,   p_j = W_kp s_j
    output = [head_1; …; head_H] W_o,   head_h = Σ_j softmax_j(score_ij) W_v x_j

Paper: Conditional DETR for Fast Training Convergence (Meng et al., 2021), section 3.3, eqs. 2-8, arXiv:2108.06152
Names: f_i = query, x_j = key (in W_v x_j the value), s_i = query_position, s_j = key_position, λ_i = scale_layer,
    W_qc = query_layer, W_qp = query_position_layer, W_kc = key_layer, W_kp = key_position_layer, W_v = value_layer,
    W_o = output_layer, K = head_dim
Complexity: O(L · S · D) and seven projections O((L + S) · D²)
Differs: codes of positions are given, such as sinusoids of a query's reference point and of the key's place; without
    them s_i = 1 and s_j is the sinusoid of j. λ starts at 1, which the authors' first layer keeps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_shape, check_together, expand_query, refuse_script
from foci.errors import ConfigError, check_sizes
from foci.functional.attend import attend_dots, mask_and_bias
from foci.functional.positions import sinusoid
from foci.masks import clear_source
from foci.mechanisms.heads.readable import for_every_head
from foci.mechanisms.parts import Memory
from foci.outputs import AttentionOutput, called_as
from foci.tracing import known_true


class ConditionalAttention(nn.Module):
    """Cross-attention of several heads that adds a score of places to the score of contents.

    A query with a place, such as the object query of a detector, finds what lies there even before contents are
    learned. Places are codes of which near ones have a large product, such as sinusoids; the scale λ, computed from the
    query, says for each of their features how much it counts: how far to look, and in which direction. Query and key of
    both kinds are joined, so that the fused kernel reads them as one product.

    Args:
        model_dim: size of the query and of the output.
        num_heads: number of heads.
        key_dim: size of key and value. Default: model_dim.
        position_dim: size of the codes of positions. Default: model_dim.

    Without a ``query_position`` the query alone says where it looks, without a ``key_position`` keys are a sequence.

    Example:
        >>> import torch
        >>> attention = ConditionalAttention(6, 2, key_dim=5, position_dim=4)
        >>> objects, cells = torch.zeros(1, 3, 6), torch.zeros(1, 7, 5)
        >>> output, weights, _ = attention(
        ...     objects, cells, query_position=torch.zeros(1, 3, 4), key_position=torch.zeros(1, 7, 4)
        ... )
        >>> output.shape, weights.shape
        (torch.Size([1, 3, 6]), torch.Size([1, 2, 3, 7]))
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self, model_dim: int, num_heads: int, *, key_dim: int | None = None, position_dim: int | None = None
    ) -> None:
        super().__init__()
        key_dim = model_dim if key_dim is None else key_dim
        position_dim = model_dim if position_dim is None else position_dim
        sizes = {"key_dim": key_dim, "position_dim": position_dim}
        check_sizes("ConditionalAttention", model_dim=model_dim, num_heads=num_heads, **sizes)
        if model_dim % num_heads:
            raise ConfigError(
                f"ConditionalAttention: model_dim is {model_dim} with {num_heads} heads, expected a multiple. "
                "Change model_dim or num_heads."
            )
        self.model_dim = model_dim
        self.num_heads = num_heads
        self.head_dim = model_dim // num_heads
        self.key_dim = key_dim
        self.position_dim = position_dim
        self.query_layer = nn.Linear(model_dim, model_dim)
        self.query_position_layer = nn.Linear(position_dim, model_dim)
        self.scale_layer = nn.Sequential(nn.Linear(model_dim, model_dim), nn.ReLU(), nn.Linear(model_dim, position_dim))
        self.key_layer = nn.Linear(key_dim, model_dim)
        self.key_position_layer = nn.Linear(position_dim, model_dim)
        self.value_layer = nn.Linear(key_dim, model_dim)
        self.output_layer = nn.Linear(model_dim, model_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the projections evenly, and the scale λ as 1."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        weight, bias = self.scale_layer[-1].parameters()
        nn.init.zeros_(weight)
        nn.init.ones_(bias)

    def extra_repr(self) -> str:
        """Return the number that the layers do not show, for printing."""
        return f"num_heads={self.num_heads}"

    def forward(
        self,
        query: Float[Tensor, "#B L D"],
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S Dk"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        state: None = None,
        *,
        bias: Float[Tensor, "..."] | None = None,
        query_position: Float[Tensor, "#B L P"] | None = None,
        key_position: Float[Tensor, "#B S P"] | None = None,
    ) -> AttentionOutput:
        """Attend to ``value`` (default: the key) with every head; weights are ``(B, H, L, S)``.

        Args:
            query: the queries.
            key: the keys.
            value: the values.
            mask: which query may attend to which key.
            state: none is kept.
            bias: numbers added to the scores, ``(B, H, L, S)`` or ``(B, L, S)``, each axis of that size or 1.
            query_position: the code of the place of each query.
            key_position: the code of the place of each key.
        """
        memory = self.prepare(key, value, mask, key_position=key_position)
        return self.read(query, memory, state, bias=bias, query_position=query_position)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def prepare(
        self,
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S Dk"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        key_position: Float[Tensor, "#B S P"] | None = None,
    ) -> Memory:
        """Project keys, their places and values once, for many reads."""
        owner = "ConditionalAttention"
        check_shape(owner, "key", key, "batch", "key", self.key_dim)
        rows, size, _ = key.shape
        if value is not None:
            check_shape(owner, "value", value, "batch", size, self.key_dim)
        if key_position is None:
            key_position = sinusoid(size, self.position_dim, device=key.device, dtype=key.dtype).unsqueeze(0)
        else:
            self._check_places("key_position", key_position, rows, size)
        check_together(owner, key=key, value=value, key_position=key_position)
        _, key_position = clear_source(key, key_position, mask)
        key, value = clear_source(key, key if value is None else value, mask)
        joined = self._joined(self.key_layer(key), self.key_position_layer(key_position))
        return Memory(joined, self._split(self.value_layer(value)), mask)

    def read(
        self,
        query: Float[Tensor, "#B L D"],
        memory: Memory,
        state: None = None,
        *,
        bias: Float[Tensor, "..."] | None = None,
        query_position: Float[Tensor, "#B L P"] | None = None,
    ) -> AttentionOutput:
        """Attend to a prepared source."""
        owner = "ConditionalAttention"
        if state is not None:
            raise ConfigError(f"{owner}: it keeps no state, expected state=None.")
        check_shape(owner, "query", query, "batch", "query", self.model_dim)
        check_together(owner, query=query, value=memory.value, query_position=query_position)
        query, batch = expand_query(owner, query, memory.key, memory.value)
        places = self.scale_layer(query)
        if query_position is not None:
            self._check_places("query_position", query_position, batch, query.shape[1])
            places = places * query_position
        joined = self._joined(self.query_layer(query), self.query_position_layer(places))
        shape = torch.Size((batch, *joined.shape[1:3], memory.key.shape[2]))
        mask, bias = mask_and_bias(memory.mask, for_every_head(bias), shape, query.device, owner=owner)
        if mask is None and known_true(shape[-1] == 0):  # there is nothing to read, as where all are masked
            mask = torch.ones(1, 1, 1, 0, dtype=torch.bool, device=query.device)
        scale = 1.0 / math.sqrt(joined.shape[-1])
        read = attend_dots(joined, memory.key, memory.value, mask, scale=scale, bias=bias, own=True)
        output = self.output_layer(read.output.transpose(1, 2).flatten(2))
        if mask is not None:
            # By the mask rule a query that may read nothing gets output 0, not the projection's bias.
            output = output.masked_fill(~mask.any(dim=-1).any(dim=1).unsqueeze(-1), 0.0)
        return read._replace(output=output)

    def _check_places(self, name: str, places: Tensor, rows: int, size: int) -> None:
        fix = "A batch of 1 counts for all rows."
        shared = isinstance(places, Tensor) and places.shape[:1] == (1,)
        check_shape("ConditionalAttention", name, places, 1 if shared else rows, size, self.position_dim, fix=fix)

    def _joined(self, contents: Tensor, places: Tensor) -> Tensor:
        """Return contents and places by head, the features of a head side by side."""
        return torch.cat([self._split(part) for part in torch.broadcast_tensors(contents, places)], dim=-1)

    def _split(self, projected: Tensor) -> Tensor:
        batch, length, _ = projected.shape
        return projected.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
