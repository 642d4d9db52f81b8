"""Steps of a Transformer's decoder without calling its modules: the same results in less time.

A step works on a few rows only. The checks, handles and views of the modules would take as long as the products
themselves, so the layers are prepared once per search: query, key and value of a layer's self-attention are one
product, weights are packed (`foci.layers.incremental.packed_linear`), and what all layers share (masks, position) is
computed once per step. In float32 the C++ kernel ``decoder_step`` takes the whole step, where it is active
(`foci.layers.incremental.compiled_steps`). `DecoderLayer.step` is the plain form, used for training, gradients, other
scores and normalizers, other devices, `foci.record`, and modules with hooks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.functional.kernels.softmax_rows import FusedSoftmax
from foci.functional.mean_square import unit_mean_square
from foci.functional.positions import PLAIN, alibi_slopes, rotary
from foci.layers.capped_linear import CappedLinear
from foci.layers.dropout import Dropout
from foci.layers.embedding import TokenEmbedding
from foci.layers.feed_forward import ACTIVATIONS, FeedForward
from foci.layers.incremental.compiled_steps import CompiledSteps, can_compile
from foci.layers.incremental.packed_linear import Product, pack
from foci.layers.incremental.quantized_linear import QuantizedLinear
from foci.layers.incremental.tree_cache import TreeCache
from foci.layers.positions import LearnedPositions, SinusoidalPositions
from foci.layers.transformer import DecoderLayer, Sublayer
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.heads.multi_head import ProjectedMemory
from foci.torch_private import has_forward_hooks, has_global_forward_hooks
from foci.tracing import is_traced, is_watched
from foci.weights import Weights

_KNOWN = {
    *(TokenEmbedding, SinusoidalPositions, LearnedPositions, DecoderLayer, Sublayer, MultiHeadAttention, FeedForward),
    *(QuantizedLinear, CappedLinear, nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, Dropout, nn.Identity),
}
"""The modules that are replaced here; a decoder with any other module steps through its modules."""

_MANY_SOURCES = 16
"""Number of sources from which plain products are faster than the fused kernel, which multiplies head by head."""

_POSITIONS = 64
"""Number of positions computed at a time."""


class _Seen(NamedTuple):
    """Which entries each query may read, the same in every layer."""

    mask: Tensor | None  # (B, 1, K or 1, S)
    bias: Tensor | None  # the same as numbers: −∞ for closed entries, but 0 in rows in which all entries are closed
    dead: Tensor | None  # (B · K, 1), the rows in which all entries are closed


class FastDecoderSteps:
    """Prepares the layers at the second step, when the number of rows is known, and then takes the steps.

    It belongs to the decoder and not to a row: reordering a state leaves it as it is.

    Args:
        embedding: the decoder's token embedding.
        layers: the decoder's layers.
        norm: the norm after the last layer, or an identity.
        output: the output layer.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[DecoderLayer],
        norm: nn.Module,
        output: nn.Linear | QuantizedLinear,
    ) -> None:
        self._embedding = embedding
        self._decoder = layers
        self._norm = norm
        self._output = output
        self._layers: list[_Layer] = []
        self._logits: Product = nn.Identity()
        self._compiled: CompiledSteps | None = None
        self._places: Tensor | None = None  # (positions, D)
        self._turns: Tensor | None = None  # (positions, head size / 2), complex

    @property
    def form(self) -> str | None:
        """How the steps are computed: "compiled" or "torch"; None as long as all were the modules'."""
        if self._compiled is not None:
            return "compiled"
        return "torch" if self._layers else None

    def can_run(self, cache: TreeCache) -> bool:
        """Return whether the next step can be computed here; the first one is computed by the modules."""
        if cache.steps == 0 or cache.rows == 0 or self._embedding.training:
            return False
        if torch.is_grad_enabled() or is_traced():
            return False
        weight = self._embedding.table.weight
        if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
            return False
        if torch.is_autocast_enabled("cpu") or is_watched(weight) or has_global_forward_hooks():
            return False
        return self.form is not None or self._know_all_parts()

    def _know_all_parts(self) -> bool:
        if len({layer.self_attention.window for layer in self._decoder}) > 1:  # the cache has the window of all layers
            return False
        for root in (self._embedding, *self._decoder, self._norm, self._output):
            for part in root.modules():
                if type(part) not in _KNOWN or part.training or has_forward_hooks(part):
                    return False
                if isinstance(part, MultiHeadAttention) and not _is_plain_attention(part):
                    return False
        return True

    def __call__(
        self, token: Int[Tensor, " N"], sources: Sequence[ProjectedMemory], batch: int, cache: TreeCache
    ) -> tuple[Float[Tensor, "N V"], Weights | None, Float[Tensor, "N D"]]:
        """Take one step.

        Args:
            token: the last token of each hypothesis.
            sources: the source as each layer reads it; empty without a source.
            batch: number of sources, or of first hypotheses without a source.
            cache: the cache of this step, grown already.

        Returns:
            The logits, the handle ``(B, H, K, S)`` on the last layer's weights over the source, and the input of the
            output layer.
        """
        self._prepare(token.shape[0])
        x = self._embed(token, cache.steps - 1)
        itself = self._decoder[0].self_attention
        sizes = (batch, x.shape[0] // batch, itself.num_heads, x.shape[1] // itself.num_heads)
        turn = self._turn(cache.steps - 1, sizes[3], x.dtype) if itself.rotary else None
        if self._compiled is not None:
            logits, query = self._compiled(x, sources, batch, cache, turn)  # overwrites x with the output's input
            return logits, _weights(query, sources) if sources else None, x
        past = _seen(cache.mask, sizes[1], x.dtype)
        if itself.alibi and cache.positions is not None:
            past = _with_distances(past, cache.positions - (cache.steps - 1), itself.num_heads, x.dtype)
        seen = _seen(sources[0].mask if sources else None, sizes[1], x.dtype)
        for number, layer in enumerate(self._layers):
            x = layer.attend_to_past(x, sizes, cache, number, past, turn)
            if sources:
                x, query = layer.attend_to_source(x, sizes, sources[number], seen)
            x = layer.feed_forward(x)
        features = self._norm(x)
        logits = self._logits(features)
        if isinstance(self._output, CappedLinear):
            logits = logits.div_(self._output.cap).tanh_().mul_(self._output.cap)
        return logits, _weights(query, sources) if sources else None, features

    def _prepare(self, rows: int) -> None:
        """Pack the weights, once."""
        if self.form is not None:
            return
        if isinstance(self._output, nn.Linear) and can_compile(self._decoder, self._output, rows):
            self._compiled = CompiledSteps(self._decoder, self._norm, self._output)
        else:
            self._layers = [_Layer(layer, rows) for layer in self._decoder]
            self._logits = pack([self._output], rows)

    def _embed(self, token: Tensor, position: int) -> Tensor:
        positions = self._embedding.positions
        looked_up: Tensor = self._embedding.table(token)
        if positions is None:
            return looked_up.mul_(self._embedding.scale)
        if isinstance(positions, LearnedPositions):
            if position < positions.table.shape[0]:
                return looked_up.mul_(self._embedding.scale).add_(positions.table[position])
            embedded: Tensor = self._embedding(token.unsqueeze(1), start=position)  # says what is wrong
            return embedded.squeeze(1)
        if self._places is None or position >= self._places.shape[0]:
            self._places = positions(looked_up.new_zeros(1, position + _POSITIONS, looked_up.shape[1]))[0]
        return looked_up.mul_(self._embedding.scale).add_(self._places[position])

    def _turn(self, position: int, size: int, dtype: torch.dtype) -> Tensor:
        """The rotation of each pair of features at a position, as complex numbers."""
        if self._turns is None or position >= self._turns.shape[0]:
            ones = torch.ones(position + _POSITIONS, size // 2, 2, dtype=dtype)
            ones[..., 1] = 0.0  # turned, the pair (1, 0) is (cos, sin)
            self._turns = torch.view_as_complex(rotary(ones.flatten(1)).unflatten(-1, (-1, 2)))
        return self._turns[position]


class _Layer:
    """The products of one layer, packed for this number of rows."""

    def __init__(self, layer: DecoderLayer, rows: int) -> None:
        itself, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.heads, self.qk_norm = itself.num_heads, itself.qk_norm
        self.scale = (itself.model_dim // itself.num_heads) ** -0.5
        self.norm_first = layer.around_self.first
        self.self_norm, self.feed_forward_norm = layer.around_self.norm, layer.around_feed_forward.norm
        self.project = pack([itself.query_layer, itself.key_layer, itself.value_layer], rows)
        self.join_past = pack([itself.output_layer], rows)
        if cross is not None and layer.around_cross is not None:
            self.cross_norm = layer.around_cross.norm
            self.query = pack([cross.query_layer], rows)
            self.join_source = pack([cross.output_layer], rows)
        self.inner = pack([feed_forward.inner_layer], rows)
        self.activation = torch.relu_ if feed_forward.activation == "relu" else ACTIVATIONS[feed_forward.activation]
        self.outer = pack([feed_forward.outer_layer], rows)

    def attend_to_past(
        self, x: Tensor, sizes: _Sizes, cache: TreeCache, number: int, past: _Seen, turn: Tensor | None
    ) -> Tensor:
        """Self-attention over the entries of the cache."""
        batch, queries, heads, size = sizes
        projected = self.project(self._before(self.self_norm, x)).view(batch, queries, 3, heads, size)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        if self.qk_norm or turn is not None:
            both = projected[:, :, :2]
            if self.qk_norm:
                both = unit_mean_square(both)
            if turn is not None:
                both = torch.view_as_real(torch.view_as_complex(both.unflatten(-1, (-1, 2))) * turn).flatten(-2)
            query, key = both.permute(2, 0, 3, 1, 4)
        entries = cache.append(number, key, value)
        found = self.join_past(_read(query, entries.key, entries.value, self.scale, past))
        return self._after(self.self_norm, x, found)

    def attend_to_source(self, x: Tensor, sizes: _Sizes, source: ProjectedMemory, seen: _Seen) -> tuple[Tensor, Tensor]:
        """Cross-attention; also returns its query by head."""
        batch, queries, heads, size = sizes
        query = self.query(self._before(self.cross_norm, x)).view(batch, queries, heads, size).transpose(1, 2)
        read = _read(query, source.key, source.value, self.scale, seen)
        if seen.dead is not None:
            read.masked_fill_(seen.dead, 0.0)  # otherwise it would widen the range of the 8-bit integers
        found = self.join_source(read)
        if seen.dead is not None:
            found.masked_fill_(seen.dead, 0.0)
        return self._after(self.cross_norm, x, found), query

    def feed_forward(self, x: Tensor) -> Tensor:
        """Compute the feed-forward network."""
        found = self.outer(self.activation(self.inner(self._before(self.feed_forward_norm, x))))
        return self._after(self.feed_forward_norm, x, found)

    def _before(self, norm: nn.LayerNorm | nn.RMSNorm, x: Tensor) -> Tensor:
        return _norm(norm, x) if self.norm_first else x

    def _after(self, norm: nn.LayerNorm | nn.RMSNorm, x: Tensor, found: Tensor) -> Tensor:
        added = found.add_(x)
        return added if self.norm_first else _norm(norm, added)


_Sizes = tuple[int, int, int, int]
"""Sources, hypotheses of each, heads, features of a head."""


def _is_plain_attention(attention: MultiHeadAttention) -> bool:
    """Return whether the attention has scaled dot products and a softmax; a window is handled by the cache."""
    plain = (attention.score, attention.normalize) == ("scaled_dot", "softmax")
    options = (
        attention.score_cap,
        attention.sink,
        attention.gate,
        attention.relative,
        attention.focus,
        attention.after,
    )
    return (
        plain
        and all(option is None for option in options)
        and attention.num_key_heads == attention.num_heads
        and attention.num_heads * attention.head_dim == attention.model_dim
        and attention.scale == 1.0 / math.sqrt(attention.head_dim)
        and attention.rotary in (None, PLAIN)
        and attention.qk_norm in (False, True)
    )


def _weights(query: Tensor, sources: Sequence[ProjectedMemory]) -> Weights:
    """The handle on the last layer's weights over the source, of queries ``(B, H, K, D)``."""
    key, mask = sources[-1].key, sources[-1].mask
    return Weights(FusedSoftmax(query, key, query.shape[-1] ** -0.5, mask=None if mask is None else mask.unsqueeze(1)))


def _norm(norm: nn.LayerNorm | nn.RMSNorm, x: Tensor) -> Tensor:
    if isinstance(norm, nn.RMSNorm):
        return F.rms_norm(x, norm.normalized_shape, norm.weight, norm.eps)
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _seen(mask: Tensor | None, queries: int, dtype: torch.dtype) -> _Seen:
    """Return a mask ``(B, K or 1, S)`` in the forms the layers need."""
    if mask is None:
        return _Seen(None, None, None)
    some = mask.any(dim=-1, keepdim=True)
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(some & ~mask, -torch.inf)
    return _Seen(mask.unsqueeze(1), bias.unsqueeze(1), ~some.expand(-1, queries, -1).reshape(-1, 1))


def _with_distances(past: _Seen, distances: Tensor, heads: int, dtype: torch.dtype) -> _Seen:
    """Add the biases of ALiBi: ``distances (B, K, S)`` are 0 or below."""
    slopes = alibi_slopes(heads).view(-1, 1, 1)
    bias = (slopes * distances.unsqueeze(1)).to(dtype)
    return past._replace(bias=bias if past.bias is None else bias + past.bias)


def _read(query: Tensor, key: Tensor, value: Tensor, scale: float, seen: _Seen) -> Tensor:
    """Return the output of the attention for queries ``(B, H, K, D)``, as ``(B · K, H · D)``."""
    batch, heads, queries, size = query.shape
    if batch < _MANY_SOURCES:
        output = F.scaled_dot_product_attention(query, key, value, seen.bias, scale=scale)
    else:
        query, keys = query.reshape(-1, queries, size), key.flatten(0, 1).transpose(1, 2)
        if seen.bias is None:
            scores = torch.baddbmm(query.new_empty(1, 1, 1), query, keys, beta=0, alpha=scale)
        else:
            scores = torch.baddbmm(seen.bias.expand(-1, heads, -1, -1).flatten(0, 1), query, keys, alpha=scale)
        output = torch.bmm(scores.softmax(dim=-1), value.flatten(0, 1)).view(batch, heads, queries, size)
    return output.transpose(1, 2).reshape(batch * queries, heads * size)
