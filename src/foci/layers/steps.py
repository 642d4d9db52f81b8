"""The steps of a Transformer's decoder without the modules around them: the same numbers, sooner.

A step works on a few rows only. What its modules do around the products (checks, handles, views) would take as long as
the products themselves, so that decoding makes the layers ready once: query, key and value of a layer's past are one
product, weights are packed (`foci.layers.packed`), and what all layers share (the masks, the position) is worked out
once a step. `DecoderLayer.step` is the plain form; it serves training, gradients, other scores and normalisers, other
devices, and whoever looks on with `foci.record` or, from the first steps on, with a hook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as all_modules

from foci.functional.kernels.rows import FusedSoftmax
from foci.functional.kernels.watched import is_traced, is_watched
from foci.layers.cache import TreeCache
from foci.layers.dropout import Dropout
from foci.layers.embedding import TokenEmbedding
from foci.layers.feed_forward import ACTIVATIONS, FeedForward
from foci.layers.packed import Product, pack
from foci.layers.positions import LearnedPositions, SinusoidalPositions
from foci.layers.quantise import QuantisedLinear
from foci.layers.transformer import DecoderLayer, Sublayer
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.heads.multi_head import ProjectedMemory
from foci.results import Weights

_KNOWN = {
    *(TokenEmbedding, SinusoidalPositions, LearnedPositions, DecoderLayer, Sublayer, MultiHeadAttention, FeedForward),
    *(QuantisedLinear, nn.Linear, nn.Embedding, nn.LayerNorm, Dropout, nn.Identity),
}
"""The modules whose work is done here; a decoder with any other steps through its modules."""

_MANY_SOURCES = 16
"""Sources from which plain products are faster than the fused kernel, which multiplies head by head."""

_POSITIONS = 64
"""How many positions are worked out at a time."""


class _Seen(NamedTuple):
    """Who may read what, in every layer alike."""

    mask: Tensor | None  # (B, 1, K or 1, S)
    bias: Tensor | None  # the same as numbers: −∞ where nothing may be read, but 0 for those who may read nothing
    nothing: Tensor | None  # (B · K, 1), who they are


class DecoderSteps:
    """Makes the layers ready when the second step is taken: only then is it known how many rows the steps have.

    It belongs to the model and to no row: whoever reorders a state passes it on as it is.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[DecoderLayer],
        norm: nn.Module,
        output: nn.Linear | QuantisedLinear,
    ) -> None:
        self._embedding = embedding
        self._decoder = layers
        self._norm = norm
        self._output = output
        self._layers: list[_Layer] = []
        self._logits: Product | None = None
        self._places: Tensor | None = None  # (positions, D)

    def suit(self, cache: TreeCache, source: ProjectedMemory) -> bool:
        """Whether to take the next step here; the first is left to the modules."""
        if cache.steps == 0 or source.key.shape[0] == 0 or self._embedding.training:
            return False
        if torch.is_grad_enabled() or is_traced():
            return False
        if source.key.device.type != "cpu" or source.key.dtype not in (torch.float32, torch.float64):
            return False
        if torch.is_autocast_enabled("cpu") or is_watched(source.key):
            return False
        if all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks:
            return False
        return bool(self._layers) or self._know_all_parts()

    def _know_all_parts(self) -> bool:
        for root in (self._embedding, *self._decoder, self._norm, self._output):
            for part in root.modules():
                if type(part) not in _KNOWN or part.training or part._forward_hooks or part._forward_pre_hooks:
                    return False
                if isinstance(part, MultiHeadAttention) and not _is_of_2017(part):
                    return False
        return True

    def __call__(
        self, token: Int[Tensor, " N"], sources: Sequence[ProjectedMemory], position: int, cache: TreeCache
    ) -> tuple[Float[Tensor, "N V"], Weights]:
        """The logits, and the handle ``(B, H, K, S)`` on what the last layer read of the source."""
        if self._logits is None:
            self._layers = [_Layer(layer, token.shape[0]) for layer in self._decoder]
            self._logits = pack([self._output], token.shape[0])
        x = self._embed(token, position)
        batch, heads = sources[0].key.shape[:2]
        sizes = (batch, x.shape[0] // batch, heads, x.shape[1] // heads)
        past = _seen(cache.mask, sizes[1], x.dtype)
        seen = _seen(sources[0].mask, sizes[1], x.dtype)
        for number, (layer, source) in enumerate(zip(self._layers, sources)):
            x = layer.attend_to_past(x, sizes, cache, number, past)
            x, query = layer.attend_to_source(x, sizes, source, seen)
            x = layer.think(x)
        weights = Weights(FusedSoftmax(query, source.key, layer.scale, mask=seen.mask))
        return self._logits(self._norm(x)), weights

    def _embed(self, token: Tensor, position: int) -> Tensor:
        positions = self._embedding.positions
        if not isinstance(positions, SinusoidalPositions):
            embedded: Tensor = self._embedding(token.unsqueeze(1), start=position)
            return embedded.squeeze(1)
        looked_up: Tensor = self._embedding.table(token)
        if self._places is None or position >= self._places.shape[0]:
            self._places = positions(looked_up.new_zeros(1, position + _POSITIONS, looked_up.shape[1]))[0]
        return looked_up.mul_(self._embedding.scale).add_(self._places[position])


class _Layer:
    """The products of one layer, ready for so many rows."""

    def __init__(self, layer: DecoderLayer, rows: int) -> None:
        itself, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.scale = (itself.model_dim // itself.num_heads) ** -0.5
        self.norm_first = layer.around_self.first
        self.norms = layer.around_self.norm, layer.around_cross.norm, layer.around_feed_forward.norm
        self.project = pack([itself.query_layer, itself.key_layer, itself.value_layer], rows)
        self.join_past = pack([itself.output_layer], rows)
        self.query = pack([cross.query_layer], rows)
        self.join_source = pack([cross.output_layer], rows)
        self.inner = pack([feed_forward.inner_layer], rows)
        self.activation = torch.relu_ if feed_forward.activation == "relu" else ACTIVATIONS[feed_forward.activation]
        self.outer = pack([feed_forward.outer_layer], rows)

    def attend_to_past(self, x: Tensor, sizes: _Sizes, cache: TreeCache, number: int, past: _Seen) -> Tensor:
        """Self-attention, over the cells of the cache."""
        batch, queries, heads, size = sizes
        projected = self.project(self._before(0, x)).view(batch, queries, 3, heads, size)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        cells = cache.append(number, key, value)
        return self._after(0, x, self.join_past(_read(query, cells.key, cells.value, self.scale, past)))

    def attend_to_source(self, x: Tensor, sizes: _Sizes, source: ProjectedMemory, seen: _Seen) -> tuple[Tensor, Tensor]:
        """Cross-attention; its query by head as well."""
        batch, queries, heads, size = sizes
        query = self.query(self._before(1, x)).view(batch, queries, heads, size).transpose(1, 2)
        read = _read(query, source.key, source.value, self.scale, seen)
        if seen.nothing is not None:
            read.masked_fill_(seen.nothing, 0.0)  # or 8-bit integers would share their range with it
        found = self.join_source(read)
        if seen.nothing is not None:
            found.masked_fill_(seen.nothing, 0.0)
        return self._after(1, x, found), query

    def think(self, x: Tensor) -> Tensor:
        """The feed-forward network."""
        return self._after(2, x, self.outer(self.activation(self.inner(self._before(2, x)))))

    def _before(self, number: int, x: Tensor) -> Tensor:
        return _norm(self.norms[number], x) if self.norm_first else x

    def _after(self, number: int, x: Tensor, found: Tensor) -> Tensor:
        added = found.add_(x)
        return added if self.norm_first else _norm(self.norms[number], added)


_Sizes = tuple[int, int, int, int]
"""Sources, hypotheses of each, heads, features of a head."""


def _is_of_2017(attention: MultiHeadAttention) -> bool:
    plain = (attention.score, attention.normalise) == ("scaled_dot", "softmax")  # a window is the cache's affair
    return plain and attention.num_key_heads == attention.num_heads and not (attention.rotary or attention.alibi)


def _norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _seen(mask: Tensor | None, queries: int, dtype: torch.dtype) -> _Seen:
    """A mask ``(B, K or 1, S)`` as the layers need it."""
    if mask is None:
        return _Seen(None, None, None)
    some = mask.any(dim=-1, keepdim=True)
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(some & ~mask, -torch.inf)
    return _Seen(mask.unsqueeze(1), bias.unsqueeze(1), ~some.expand(-1, queries, -1).reshape(-1, 1))


def _read(query: Tensor, key: Tensor, value: Tensor, scale: float, seen: _Seen) -> Tensor:
    """What queries ``(B, H, K, D)`` read, ``(B · K, H · D)``."""
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
