"""Multi-head attention: several attentions in parallel, each with its own projections, and with the options of models
of today: rotary and relative positions, grouped keys, norms, caps, sinks, gates and windows.

    head_h = softmax(Q_h K_hᵀ / sqrt(K)) V_h,   Q_h = query W_h^Q,  K_h = key W_h^K,  V_h = value W_h^V
    output = [head_1; …; head_H] W^O
    options, with s_ij the score of query i and key j:
      num_key_heads     K_g and V_g of a group of heads instead of K_h and V_h
      qk_norm           γ ∘ q / rms(q) for each q of Q_h, and so for K_h
      rotary            Q_h and K_h turned by position · base^(−2d/K), the features in pairs d
      alibi, relative   s_ij + a bias by the distance j − i
      score_cap         c · tanh(s_ij / c)
      window, causal    s_ij = −∞ out of reach
      focus             s_ij = −∞ where it closes, or s_ij + its bias
      sink              exp(s_ij) / (exp(b_h) + Σ_j exp(s_ij))
      gate              head_h ∘ σ(query W_h^G)
      after             after(query, output) instead of the output

Paper: Attention Is All You Need (Vaswani et al., 2017), section 3.2.2, arXiv:1706.03762; grouped heads: GQA (Ainslie et
    al., 2023), section 2.2, arXiv:2305.13245; rotary: RoFormer (Su et al., 2021), eq. 34, arXiv:2104.09864, and for
    longer texts YaRN (Peng et al., 2024), section 3, arXiv:2309.00071; ALiBi: Train Short, Test Long (Press et al.,
    2022), section 3, arXiv:2108.12409; relative: T5 (Raffel et al., 2020), section 2.1, arXiv:1910.10683, Shaw et al.
    (2018), eqs. 3-4, arXiv:1803.02155, and Transformer-XL (Dai et al., 2019), section 3.3, arXiv:1901.02860; norms of
    query and key: Scaling Vision Transformers to 22 Billion Parameters (Dehghani et al., 2023), section 2,
    arXiv:2302.05442; cap of the scores: Gemma 2 (2024), section 2, arXiv:2408.00118; window: Longformer (Beltagy,
    Peters, Cohan, 2020), section 3.1, arXiv:2004.05150; sink: Efficient Streaming Language Models with Attention Sinks
    (Xiao et al., 2023), section 3.3, arXiv:2309.17453; gate: Gated Attention for Large Language Models (Qiu et al.,
    2025), section 2.2, arXiv:2505.06708
Names: H = num_heads, K = head_dim (d_k in the paper), W_h^Q = query_layer, W_h^K = key_layer,
    W_h^V = value_layer, W^O = output_layer, γ = the gain of query_norm and key_norm, c = score_cap, b_h = sink,
    W_h^G = gate_layer
Complexity: O(L · S · D) and four projections O((L + S) · D²)
Differs: projections have a bias unless bias=False, as in torch; the paper writes none. The norms of
    query and key have a gain only with qk_norm="rms" or "layer".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_shape, check_together, expand_query, refuse_script
from foci.errors import ConfigError, check_counts, check_flags, check_positive, check_share, check_sizes, check_window
from foci.functional import scores as score_functions
from foci.functional.attend import (
    Window,
    attend_dots,
    attend_scores,
    causal_window,
    normalizer,
)
from foci.functional.mean_square import EPSILON, unit_mean_square
from foci.functional.own_parts import own_scores, own_stage
from foci.functional.positions import alibi_bias, alibi_slopes, rotary
from foci.functional.rotary_options import Rotary
from foci.masks import clear_query, clear_source
from foci.mechanisms.heads.cache import AnyCache, KeyValueCache, PreallocatedCache, SlidingCache
from foci.mechanisms.heads.head_options import (
    check_limits_and_stage,
    check_options,
    check_without_effect,
    head_sizes,
    norm_of,
    options_text,
    relative_of,
    rotary_of,
    sink_of,
)
from foci.mechanisms.heads.readable import clear_new, focused, readable, start_of
from foci.mechanisms.heads.relative import (
    Distances,
    RelativeBias,
    distances,
)
from foci.mechanisms.parts import Focus, Normalizer, Score, Stage
from foci.names import (
    NORMALIZER_ALIASES,
    DotScoreName,
    GateName,
    NormalizerName,
    NormName,
    RelativeName,
    SinkName,
    settled,
)
from foci.outputs import AttentionOutput, called_as
from foci.tracing import exportable
from foci.weights.sources import capped, scaled_products, scores_shape


@exportable
class ProjectedMemory(NamedTuple):
    """A source prepared for many reads: keys and values by head, and the mask.

    ``source`` is the key before its projection, for a focus that looks at it.
    """

    key: Tensor
    value: Tensor
    mask: Tensor | None
    source: Tensor | None = None


class MultiHeadAttention(nn.Module):
    """Self-attention, cross-attention, causal or not, with a key/value cache for decoding.

    Args:
        model_dim: size of the query and of the output.
        num_heads: number of heads.
        head_dim: features of a head. Default: model_dim / num_heads.
        key_dim: size of the key. Default: model_dim.
        value_dim: size of the value. Default: the key's.
        num_key_heads: heads of key and value, when groups of query heads share one (1 is multi-query attention).
        causal: each query attends to the keys up to its own.
        window: attend to at most ``(left, right)`` keys before and after a query's own.
        rotary: rotate query and key by their positions; a `Rotary` has base, layout and scaling.
        alibi: add the linear bias of the distance to the scores.
        relative: another bias by distance: "t5", "shaw", "transformer_xl", or a module with other sizes
            (`foci.mechanisms.heads.relative`).
        qk_norm: divide the query and the key of each head by their root mean square, which bounds the scores; "rms" and
            "layer" are norms with a learned gain.
        norm_epsilon: what these two norms add to the mean square.
        score: "scaled_dot", "dot" or "cosine", or a function or module ``(query, key) -> scores``, both with heads.
        scale: the factor of scaled_dot. Default: 1 / sqrt(head_dim).
        score_cap: keep the scores between −score_cap and score_cap by a tanh.
        normalize: "softmax" or any other normalizer of `foci.attend`, also a function or module of your own.
        sink: one more position for the softmax, which holds nothing, so that a head may attend to nothing: "learned"
            has a score per head, "zero" is the softmax off by one, 1 + Σ exp. Rows of weights sum to less than 1.
        gate: multiply what the heads read by a sigmoid of the query, "elementwise" or "headwise".
        dropout: share of the weights dropped in training.
        keep_weights: compute all weights along with the output and keep these L×S numbers: less work than computing
            them from the handle afterwards.
        bias: give the projections a bias.
        output_bias: give the output layer a bias. Default: as ``bias``.
        focus: a function or module ``(query, key) -> mask or bias``, of query and key before their projections; it
            holds for all heads, along with the mask and the bias of the call, and not with a cache.
        after: a stage after reading, such as a gate, a function or module ``(query, attended) -> AttentionOutput``.

    For self-attention call it as ``attention(x, x)``. To decode step by step pass
    ``state=attention.empty_cache(batch)`` and only the new positions; the cache that comes back is the next state.
    With a cache, a mask covers the cached and the new keys. Numbers to add to the scores are a ``bias`` of the call.
    `from_torch` and `from_huggingface` take the weights of other libraries' layers.

    Example:
        >>> import torch
        >>> attention = MultiHeadAttention(6, 2, causal=True)
        >>> x = torch.zeros(2, 5, 6)
        >>> output, weights, _ = attention(x, x)
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 2, 5, 5]))
    """

    remembers = False  # hypotheses share the source's row: their states do not differ
    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        num_key_heads: int | None = None,
        causal: bool = False,
        window: Window | None = None,
        rotary: bool | Rotary = False,
        alibi: bool = False,
        relative: RelativeName | RelativeBias | None = None,
        qk_norm: bool | NormName = False,
        norm_epsilon: float = EPSILON,
        score: DotScoreName | Score = "scaled_dot",
        scale: float | None = None,
        score_cap: float | None = None,
        normalize: NormalizerName | Normalizer = "softmax",
        sink: SinkName | None = None,
        gate: GateName | None = None,
        dropout: float = 0.0,
        keep_weights: bool = False,
        bias: bool = True,
        output_bias: bool | None = None,
        focus: Focus | None = None,
        after: Stage | None = None,
    ) -> None:
        super().__init__()
        check_sizes("MultiHeadAttention", model_dim=model_dim, num_heads=num_heads, num_key_heads=num_key_heads)
        check_sizes("MultiHeadAttention", key_dim=key_dim, value_dim=value_dim, head_dim=head_dim)
        check_positive("MultiHeadAttention", scale=scale, score_cap=score_cap, norm_epsilon=norm_epsilon)
        check_share("MultiHeadAttention", dropout=dropout)
        check_window("MultiHeadAttention", window, lowest=None)
        check_flags("MultiHeadAttention", causal=causal, alibi=alibi, keep_weights=keep_weights, bias=bias)
        check_flags("MultiHeadAttention", output_bias=output_bias)
        normalize = settled(normalize, NORMALIZER_ALIASES)
        check_options(score, scale, normalize, sink, gate)
        check_limits_and_stage(focus, after)
        check_without_effect(score, scale, normalize, qk_norm, score_cap, keep_weights)
        self.model_dim = model_dim
        self.num_heads = num_heads
        self.head_dim, self.num_key_heads = head_sizes(model_dim, num_heads, head_dim, num_key_heads)
        self.key_dim = model_dim if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        self.causal = causal
        self.window = window
        self.rotary = rotary_of(rotary, self.head_dim)
        self.alibi = alibi
        self.qk_norm = qk_norm
        self.norm_epsilon = norm_epsilon
        self.score = score
        self.scale = 1.0 / math.sqrt(self.head_dim) if scale is None else scale
        self.score_cap = score_cap
        self.normalize = normalize
        self.gate = gate
        self.dropout = dropout
        self.keep_weights = keep_weights
        inner, key_inner = num_heads * self.head_dim, self.num_key_heads * self.head_dim
        self.query_layer = nn.Linear(model_dim, inner, bias=bias)
        self.key_layer = nn.Linear(self.key_dim, key_inner, bias=bias)
        self.value_layer = nn.Linear(self.value_dim, key_inner, bias=bias)
        self.output_layer = nn.Linear(inner, model_dim, bias=bias if output_bias is None else output_bias)
        for layer in (self.query_layer, self.key_layer, self.value_layer):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)
        self.query_norm, self.key_norm = (norm_of(qk_norm, self.head_dim, norm_epsilon) for _ in range(2))
        self.gate_layer = None
        if gate is not None:
            self.gate_layer = nn.Linear(model_dim, inner if gate == "elementwise" else num_heads, bias=bias)
        self.sink: Tensor | None = sink_of(sink, num_heads)
        self.relative = relative_of(relative, model_dim, num_heads, self.head_dim, causal=causal)
        self.focus = focus
        self.after = after

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHeadAttention:
        """Return the same attention with the same parameters; foci's is always batch first.

        Raises ConfigError for ``add_bias_kv`` and ``add_zero_attn``, which foci does not have.
        """
        from foci.mechanisms.heads.conversions import from_torch

        return from_torch(module)

    @classmethod
    def from_huggingface(cls, layer: nn.Module) -> MultiHeadAttention:
        """Return the same attention as that of a layer of transformers, with the same parameters.

        Args:
            layer: the attention of a layer, such as ``model.model.layers[0].self_attn``; its class is one of
                `foci.mechanisms.heads.huggingface.FAMILIES`.
        """
        from foci.mechanisms.heads.huggingface import from_huggingface

        return from_huggingface(layer)

    @overload
    def empty_cache(self, batch_size: int) -> KeyValueCache: ...
    @overload
    def empty_cache(self, batch_size: int, max_length: int) -> PreallocatedCache: ...
    @overload
    def empty_cache(self, batch_size: int, *, sliding: Literal[True]) -> SlidingCache: ...
    def empty_cache(
        self, batch_size: int, max_length: int | None = None, *, sliding: bool = False
    ) -> KeyValueCache | PreallocatedCache | SlidingCache:
        """Return the initial state for decoding, without positions.

        Args:
            batch_size: number of rows.
            max_length: the longest text: the cache has this size from the first step on, and so has its mask. Default:
                the cache grows.
            sliding: keep only what the window reaches, and drop older positions; needs a window.
        """
        check_sizes("empty_cache", max_length=max_length)
        check_counts("empty_cache", batch_size=batch_size)
        left = None if self.window is None else self.window[0]
        if sliding and (left is None or max_length is not None):
            raise ConfigError(
                f"empty_cache: sliding with window {self.window} and max_length {max_length}, expected a window with a "
                "left side, whose size is the cache's, and no max_length."
            )
        slots = max_length or (left if sliding and left is not None else 0)
        empty = self.key_layer.weight.new_zeros(batch_size, self.num_key_heads, slots, self.head_dim)
        other = empty.clone()  # a compiled step of one tensor for both would not serve the next state
        if max_length is None and not sliding:
            return KeyValueCache(empty, other)
        length = torch.zeros(batch_size, dtype=torch.long, device=empty.device)
        return SlidingCache(empty, other, length) if sliding else PreallocatedCache(empty, other, length)

    def forward(
        self,
        query: Float[Tensor, "#B L D"],
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S Dv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        state: AnyCache | None = None,
        *,
        bias: Float[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Attend to ``value`` (default: the key) with every head; weights are ``(B, H, L, S)``.

        Args:
            query: the queries.
            key: the keys; with a cache, the new ones.
            value: the values.
            mask: which query may attend to which key.
            state: a cache, from `empty_cache` or the previous call.
            bias: numbers added to the scores, ``(B, H, L, S)`` or ``(B, L, S)``, each axis of that size or 1; with a
                cache, its keys are those of a mask.
        """
        if state is None:
            return self.read(query, self.prepare(key, value, mask), bias=bias)
        key, value = clear_new(state, key, value, mask)
        return self.read(query, self.prepare(key, value)._replace(mask=mask), state, bias=bias)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

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
            self._normed(projected, self.key_norm),
            self._split(self.value_layer(value), self.num_key_heads),
            mask,
            None if self.focus is None else key,
        )

    def read(
        self,
        query: Float[Tensor, "#B L D"],
        memory: ProjectedMemory,
        state: AnyCache | None = None,
        *,
        bias: Float[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Attend to the cache, if any, followed by a prepared source; return the extended cache."""
        check_shape("MultiHeadAttention", "query", query, "batch", "query", self.model_dim)
        check_together("MultiHeadAttention", query=query, value=memory.value)
        query, _ = expand_query("MultiHeadAttention", query, memory.key, memory.value)
        key, value, mask = memory.key, memory.value, memory.mask
        if self.query_norm is not None:
            query = clear_query(query, mask)  # a norm's gradient by a query that overflows in it would be NaN
        projected = self.project_query(query)
        past: int | Tensor = 0 if state is None else start_of(state, key)
        if self.rotary is not None:
            projected = rotary(projected, start=past + (key.shape[2] - projected.shape[2]), how=self.rotary)
            key = rotary(key, start=past, how=self.rotary)
        slots = distance = None
        if self.focus is not None:
            mask, bias = focused(self.focus, query, memory.source, mask, bias, state, scores_shape(projected, key))
        if state is not None:
            if isinstance(state, SlidingCache):
                mask = None if mask is None else state.fit("mask", mask, key.shape[2])
                bias = None if bias is None else state.fit("bias", bias, key.shape[2])
            state, key, value, slots, distance = state.extend(key, value)
        window = causal_window(self.window) if self.causal else self.window
        cached = key.shape[2] - memory.key.shape[2]
        mask, window, bias, reach = readable(
            projected, key, mask, bias, window, slots=slots, distance=distance, cached=cached
        )
        read = self._read_heads(projected, key, value, mask, window, bias, reach)
        if isinstance(state, SlidingCache):
            read = read._replace(weights=replace(read.weights, start=state.length - key.shape[2]))
        return self._join(read, query, mask)._replace(state=state)

    def read_at(
        self,
        query: Float[Tensor, "B L D"],
        key: Float[Tensor, "B G S K"],
        value: Float[Tensor, "B G S K"],
        mask: Bool[Tensor, "B 1 L S"] | None,
        position: int,
        positions: Int[Tensor, "B L S"] | None,
    ) -> Float[Tensor, "B L D"]:
        """Attend to rotated keys whose positions are not a sequence, as those of a tree of hypotheses.

        Args:
            query: the queries, all of them at ``position``.
            key: the keys by head.
            value: the values by head.
            mask: which query may read which key.
            position: the position of the queries.
            positions: the position of each key, which only biases by distance need.
        """
        projected = self.project_query(query)
        if self.rotary is not None:
            projected = rotary(projected.unsqueeze(-2), start=position, how=self.rotary).squeeze(-2)
        reach = None if positions is None else Distances(positions - position, -position, 0)
        if reach is not None and self.window is not None and self.window[0] is not None:
            near = (reach.table >= -self.window[0]).unsqueeze(1)
            mask = near if mask is None else mask & near
        read = self._read_heads(projected, key, value, mask, None, None, reach)
        return self._join(read, query, None).output

    def project_query(self, query: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L K"]:
        """Return the queries of each head, before any rotation."""
        return self._normed(self._split(self.query_layer(query), self.num_heads), self.query_norm)

    def _read_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        window: Window | None,
        bias: Tensor | None,
        reach: Distances | None,
    ) -> AttentionOutput:
        """Read with every head; without ``reach`` the last query's own key is the last."""
        own_score = None if isinstance(self.score, str) else self.score
        if self.score == "cosine":
            query, key = score_functions.unit(query), score_functions.unit(key)
        scale = self.scale if self.score == "scaled_dot" else 1.0
        slopes = alibi_slopes(self.num_heads, device=query.device, dtype=query.dtype) if self.alibi else None
        fused = own_score is None and self.normalize == "softmax"
        if slopes is not None and (bias is not None or reach is not None or not fused):
            if reach is None:
                added = alibi_bias(slopes, query.shape[2], key.shape[2])
            else:
                added = -slopes.view(-1, 1, 1) * reach.table.abs().unsqueeze(1)
            bias, slopes = _sum(bias, added.to(query.dtype)), None
        read_also = None
        if self.relative is not None:
            reach = distances(query.shape[2], key.shape[2], query.device) if reach is None else reach
            bias = _sum(bias, self.relative(query, key, scale, reach).to(query.dtype))
            read_also = self.relative.reader(reach)
        dropout = self.dropout if self.training else 0.0
        if fused:
            return attend_dots(
                query,
                key,
                value,
                mask,
                scale=scale,
                bias=bias,
                window=window,
                slopes=slopes,
                score_cap=self.score_cap,
                sink=self.sink,
                read_also=read_also,
                dropout=dropout,
                keep_weights=self.keep_weights,
                own=True,
            )
        key, value = (t.repeat_interleave(self.num_heads // self.num_key_heads, dim=1) for t in (key, value))
        scores = scaled_products(query, key, scale) if own_score is None else own_scores(own_score, query, key)
        if self.score_cap is not None:
            scores = capped(scores, self.score_cap)
        return attend_scores(
            scores,
            value,
            mask,
            bias=bias,
            window=window,
            normalize=normalizer(self.normalize),
            read_also=read_also,
            dropout=dropout,
        )

    def _join(self, read: AttentionOutput, query: Tensor, mask: Tensor | None) -> AttentionOutput:
        """Return the output of all heads together, after the stage that follows."""
        heads = read.output
        if self.gate_layer is not None:
            opened = torch.sigmoid(self.gate_layer(query)).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            heads = heads * opened
        output: Tensor = self.output_layer(heads.transpose(1, 2).flatten(2))
        dead = None
        if mask is not None:
            # By the mask rule a query that may read nothing gets output 0, not the projection's bias.
            dead = ~mask.any(dim=-1).any(dim=1).unsqueeze(-1)
            output = output.masked_fill(dead, 0.0)
        joined = read._replace(output=output)
        return joined if self.after is None else own_stage("MultiHeadAttention", self.after, query, joined, dead)

    def _normed(self, projected: Tensor, norm: nn.Module | None) -> Tensor:
        if norm is not None:
            normed: Tensor = norm(projected)
            return normed
        return unit_mean_square(projected) if self.qk_norm else projected

    def _split(self, projected: Tensor, heads: int) -> Tensor:
        batch, length, _ = projected.shape
        return projected.view(batch, length, heads, self.head_dim).transpose(1, 2)

    def extra_repr(self) -> str:
        """Return the options that differ from a plain multi-head attention, for printing."""
        return options_text(self)


def _sum(bias: Tensor | None, added: Tensor) -> Tensor:
    return added if bias is None else bias + added
