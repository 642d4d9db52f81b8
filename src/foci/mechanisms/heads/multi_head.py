"""Multi-head attention: several attentions in parallel, each with its own projections.

    head_h = softmax(Q_h K_hᵀ / sqrt(K)) V_h,   Q_h = query W_h^Q,  K_h = key W_h^K,  V_h = value W_h^V
    output = [head_1; …; head_H] W^O

Paper: Attention Is All You Need (Vaswani et al., 2017), section 3.2.2, arXiv:1706.03762; grouped heads: GQA (Ainslie et
    al., 2023), section 2.2, arXiv:2305.13245; rotary: RoFormer (Su et al., 2021), eq. 34, arXiv:2104.09864; ALiBi:
    Train Short, Test Long (Press et al., 2022), section 3, arXiv:2108.12409; norms of query and key: Scaling Vision
    Transformers to 22 Billion Parameters (Dehghani et al., 2023), section 2, arXiv:2302.05442
Names: H = num_heads, K = model_dim / num_heads (d_k in the paper), W_h^Q = query_layer, W_h^K = key_layer,
    W_h^V = value_layer, W^O = output_layer
Complexity: O(L · S · D) and four projections O((L + S) · D²)
Differs: projections have a bias unless bias=False, as in torch; the paper writes none. The norms of
    query and key have no gain.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_mask, check_shape, check_together, expand_query
from foci.errors import ConfigError, check_share, check_sizes
from foci.functional.attend import Window, attend, attend_dots, causal_window, combine, reads_own_key
from foci.functional.mean_square import unit_mean_square
from foci.functional.positions import alibi_bias, alibi_slopes, rotary
from foci.masks import clear_source
from foci.names import DotScoreName, NormalizerName
from foci.outputs import AttentionOutput
from foci.tracing import exportable
from foci.weights.sources import scores_shape


@exportable
class KeyValueCache(NamedTuple):
    """The projected keys and values of all positions so far, ``(B, heads, S, K)``."""

    key: Tensor
    value: Tensor


@exportable
class ProjectedMemory(NamedTuple):
    """A source prepared for many reads: keys and values by head, and the mask."""

    key: Tensor
    value: Tensor
    mask: Tensor | None


class MultiHeadAttention(nn.Module):
    """Self-attention, cross-attention, causal or not, with a key/value cache for decoding.

    Args:
        model_dim: size of the query and of the output.
        num_heads: number of heads; each has model_dim / num_heads features.
        key_dim: size of the key. Default: model_dim.
        value_dim: size of the value. Default: the key's.
        num_key_heads: heads of key and value, when groups of query heads share one (1 is multi-query attention).
        causal: each query attends to the keys up to its own.
        window: attend to at most ``(left, right)`` keys before and after a query's own.
        rotary: rotate query and key by their positions.
        qk_norm: divide the query and the key of each head by their root mean square, which bounds the scores.
        alibi: add the linear bias of the distance to the scores.
        score: "scaled_dot", "dot" or "cosine".
        normalize: "softmax" or any other normalizer of `foci.attend`.
        dropout: share of the weights dropped in training.
        keep_weights: compute all weights along with the output and keep these L×S numbers: less work than computing
            them from the handle afterwards.
        bias: give the projections a bias.

    For self-attention call it as ``attention(x, x)``. To decode step by step pass
    ``state=attention.empty_cache(batch)`` and only the new positions; the cache that comes back is the next state.
    With a cache, a mask covers the cached and the new keys.

    Example:
        >>> import torch
        >>> attention = MultiHeadAttention(6, 2, causal=True)
        >>> x = torch.zeros(2, 5, 6)
        >>> output, weights, _ = attention(x, x)
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 2, 5, 5]))
    """

    remembers = False  # hypotheses share the source's row: their states do not differ

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        num_key_heads: int | None = None,
        causal: bool = False,
        window: Window | None = None,
        rotary: bool = False,
        alibi: bool = False,
        qk_norm: bool = False,
        score: DotScoreName = "scaled_dot",
        normalize: NormalizerName = "softmax",
        dropout: float = 0.0,
        keep_weights: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_sizes("MultiHeadAttention", model_dim=model_dim, num_heads=num_heads, num_key_heads=num_key_heads)
        check_sizes("MultiHeadAttention", key_dim=key_dim, value_dim=value_dim)
        check_share("MultiHeadAttention", dropout=dropout)
        key_heads = num_heads if num_key_heads is None else num_key_heads
        if model_dim % num_heads:
            raise ConfigError(
                f"MultiHeadAttention: model_dim is {model_dim} and num_heads is {num_heads}, expected a model_dim "
                "that num_heads divides."
            )
        if num_heads % key_heads:
            raise ConfigError(
                f"MultiHeadAttention: num_key_heads is {key_heads}, expected a divisor of num_heads={num_heads}."
            )
        head_dim = model_dim // num_heads
        if rotary and head_dim % 2:
            raise ConfigError(
                f"MultiHeadAttention: heads have {head_dim} features, expected an even number for rotary=True. "
                "Change model_dim or num_heads."
            )
        self.model_dim = model_dim
        self.num_heads = num_heads
        self.scale = 1.0 / math.sqrt(head_dim)
        self.num_key_heads = key_heads
        self.key_dim = model_dim if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        self.causal = causal
        self.window = window
        self.rotary = rotary
        self.alibi = alibi
        self.qk_norm = qk_norm
        self.score = score
        self.normalize = normalize
        self.dropout = dropout
        self.keep_weights = keep_weights
        self.query_layer = nn.Linear(model_dim, model_dim, bias=bias)
        self.key_layer = nn.Linear(self.key_dim, key_heads * head_dim, bias=bias)
        self.value_layer = nn.Linear(self.value_dim, key_heads * head_dim, bias=bias)
        self.output_layer = nn.Linear(model_dim, model_dim, bias=bias)
        for layer in (self.query_layer, self.key_layer, self.value_layer):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHeadAttention:
        """Return the same attention with the same parameters; foci's is always batch first.

        Raises ConfigError for ``add_bias_kv`` and ``add_zero_attn``, which foci does not have.
        """
        if module.bias_k is not None or module.add_zero_attn:
            raise ConfigError(
                "MultiHeadAttention.from_torch: add_bias_kv and add_zero_attn are not supported. "
                "Build the torch module without them."
            )
        ours = cls(
            module.embed_dim,
            module.num_heads,
            key_dim=module.kdim,
            value_dim=module.vdim,
            dropout=module.dropout,
            bias=module.in_proj_bias is not None,
        )
        if module._qkv_same_embed_dim:
            weights = module.in_proj_weight.chunk(3)
        else:
            weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        layers = (ours.query_layer, ours.key_layer, ours.value_layer)
        with torch.no_grad():
            for layer, weight in zip(layers, weights):
                layer.weight.copy_(weight)
            if module.in_proj_bias is not None:
                for layer, bias in zip(layers, module.in_proj_bias.chunk(3)):
                    layer.bias.copy_(bias)
                ours.output_layer.bias.copy_(module.out_proj.bias)
            ours.output_layer.weight.copy_(module.out_proj.weight)
        reference = module.out_proj.weight
        return ours.to(device=reference.device, dtype=reference.dtype).train(module.training)

    def empty_cache(self, batch_size: int) -> KeyValueCache:
        """Return the initial state for decoding, without positions."""
        weight = self.key_layer.weight
        empty = weight.new_zeros(batch_size, self.num_key_heads, 0, self.model_dim // self.num_heads)
        return KeyValueCache(empty, empty)

    def forward(
        self,
        query: Float[Tensor, "#B L D"],
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S Dv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        state: KeyValueCache | None = None,
    ) -> AttentionOutput:
        """Attend to ``value`` (default: the key) with every head; weights are ``(B, H, L, S)``."""
        return self.read(query, self.prepare(key, value, mask), state)

    def prepare(
        self,
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S Dv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> ProjectedMemory:
        """Project the source once, for many reads."""
        check_shape("MultiHeadAttention", "key", key, "batch", "key", self.key_dim)
        value = key if value is None else value
        if value is not key or self.value_dim != self.key_dim:
            check_shape("MultiHeadAttention", "value", value, "batch", key.shape[1], self.value_dim)
            check_together("MultiHeadAttention", key=key, value=value)
        if mask is not None:
            key, value = clear_source(key, value, mask)
        projected = self._split(self.key_layer(key), self.num_key_heads)
        return ProjectedMemory(
            unit_mean_square(projected) if self.qk_norm else projected,
            self._split(self.value_layer(value), self.num_key_heads),
            mask,
        )

    def read(
        self, query: Float[Tensor, "#B L D"], memory: ProjectedMemory, state: KeyValueCache | None = None
    ) -> AttentionOutput:
        """Attend to the cache, if any, followed by a prepared source; return the extended cache."""
        check_shape("MultiHeadAttention", "query", query, "batch", "query", self.model_dim)
        check_together("MultiHeadAttention", query=query, value=memory.value)
        query, _ = expand_query("MultiHeadAttention", query, memory.key, memory.value)
        projected = self.project_query(query)
        key, value = memory.key, memory.value
        if self.rotary:
            past = 0 if state is None else state.key.shape[2]
            key = rotary(key, start=past)
        if state is not None:
            key, value = torch.cat([state.key, key], dim=2), torch.cat([state.value, value], dim=2)
            state = KeyValueCache(key, value)
        L, S = projected.shape[2], key.shape[2]
        if self.rotary:
            projected = rotary(projected, start=S - L)
        mask, window = memory.mask, self.window
        if self.causal:
            window = causal_window(window)
        if mask is None and S == 0:
            mask = torch.ones(1, 1, 1, 0, dtype=torch.bool, device=query.device)
        # Only with a mask or a window can a query have nothing to read.
        if mask is not None or (window is not None and not reads_own_key(window, L, S)):
            shape = scores_shape(projected, key)
            if mask is not None:
                mask = check_mask("MultiHeadAttention", mask, shape, query.device)
            mask, window = combine(mask, window, shape, query.device), None
        slopes = alibi_slopes(self.num_heads, device=query.device, dtype=projected.dtype) if self.alibi else None
        dropout = self.dropout if self.training else 0.0
        if self.score == "scaled_dot" and self.normalize == "softmax":
            read = attend_dots(
                projected,
                key,
                value,
                mask,
                scale=self.scale,
                window=window,
                slopes=slopes,
                dropout=dropout,
                keep_weights=self.keep_weights,
                own=True,
            )
        else:
            key, value = (t.repeat_interleave(self.num_heads // self.num_key_heads, dim=1) for t in (key, value))
            read = attend(
                projected,
                key,
                value,
                mask,
                bias=None if slopes is None else alibi_bias(slopes, L, S).to(query.dtype),
                window=window,
                score=self.score,
                normalize=self.normalize,
                dropout=dropout,
            )
        output: Tensor = self.output_layer(read.output.transpose(1, 2).flatten(2))
        if mask is not None:
            # By the mask rule a query that may read nothing gets output 0, not the projection's bias.
            output = output.masked_fill(~mask.any(dim=-1).any(dim=1).unsqueeze(-1), 0.0)
        return AttentionOutput(output, read.weights, state)

    def project_query(self, query: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L K"]:
        """Return the queries of each head, before any rotation."""
        projected = self._split(self.query_layer(query), self.num_heads)
        return unit_mean_square(projected) if self.qk_norm else projected

    def _split(self, projected: Tensor, heads: int) -> Tensor:
        batch, length, _ = projected.shape
        return projected.view(batch, length, heads, self.model_dim // self.num_heads).transpose(1, 2)

    def extra_repr(self) -> str:
        """Return the options that differ from a plain multi-head attention, for printing."""
        shown = [f"model_dim={self.model_dim}", f"num_heads={self.num_heads}"]
        if self.num_key_heads != self.num_heads:
            shown.append(f"num_key_heads={self.num_key_heads}")
        shown += [name for name in ("causal", "rotary", "alibi", "qk_norm") if getattr(self, name)]
        return ", ".join(shown)
