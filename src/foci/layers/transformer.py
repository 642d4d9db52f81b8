"""The two kinds of layers of a Transformer: encoder and decoder.

    post-norm (2017)    x ← LayerNorm(x + dropout(sublayer(x)))
    pre-norm            x ← x + dropout(sublayer(LayerNorm(x)))

    encoder: self-attention, feed-forward      decoder: causal self-attention, cross-attention, feed-forward

Paper: Attention Is All You Need (Vaswani et al., 2017), sections 3.1 and 5.4; pre-norm: On Layer Normalization in the
    Transformer Architecture (Xiong et al., 2020), table 1
Names: d_model = model_dim, h = num_heads, d_ff = hidden_dim, P_drop = dropout
Complexity: O(L · S · D + L · D · (D + d_ff)) per layer
Differs: dropout of the attention weights and inside the feed-forward network are options; both are 0 in the paper. So
    are RMSNorm (Root Mean Square Layer Normalization, Zhang and Sennrich, 2019) and layers without a bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.functional.own_parts import own_copy
from foci.functional.positions import rotary
from foci.layers.block_options import BlockOptions
from foci.layers.dropout import Dropout
from foci.layers.embedding import TokenEmbedding, normal_table
from foci.layers.feed_forward import FeedForward
from foci.layers.incremental.tree_cache import LayerEntries, TreeCache
from foci.layers.several_heads import HeadOptions
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.heads.cache import KeyValueCache
from foci.mechanisms.heads.multi_head import ProjectedMemory
from foci.mechanisms.parts import Focus, Normalizer, Score, Stage
from foci.names import DotScoreName, NormalizerName, RelativeName
from foci.outputs import AttentionOutput
from foci.weights import Weights


def self_attention(block: BlockOptions, *, causal: bool = False) -> MultiHeadAttention:
    """Return a new attention to the positions of the same side."""
    return _attention(
        block,
        block.score,
        block.normalize,
        block,
        causal=causal,
        window=block.window,
        rotary=block.rotary if block.positions == "rotary" else False,
        alibi=block.positions == "alibi",
        focus=own_copy(block.focus),
        after=own_copy(block.after),
        relative=block.positions if block.positions in get_args(RelativeName) else None,
    )


def _attention(
    block: BlockOptions,
    score: DotScoreName | Score,
    normalize: NormalizerName | Normalizer,
    heads: HeadOptions,
    **options: Any,
) -> MultiHeadAttention:
    attention = MultiHeadAttention(
        block.model_dim,
        block.num_heads,
        score=own_copy(score),
        normalize=own_copy(normalize),
        dropout=block.attention_dropout,
        bias=block.bias,
        **heads.head_arguments,
        **options,
    )
    nn.init.xavier_uniform_(attention.output_layer.weight)
    _end_sublayer(block, attention.output_layer)
    if attention.output_layer.bias is not None:
        nn.init.zeros_(attention.output_layer.bias)
    return attention


def _feed_forward(block: BlockOptions) -> FeedForward:
    network = FeedForward(
        block.model_dim,
        block.hidden_dim,
        activation=block.activation,
        dropout=block.feed_forward_dropout,
        bias=block.bias,
    )
    _end_sublayer(block, network.outer_layer)
    return network


def _end_sublayer(block: BlockOptions, layer: nn.Linear) -> None:
    if block.zero_residual:
        nn.init.zeros_(layer.weight)


def position_norm(block: BlockOptions) -> nn.LayerNorm | nn.RMSNorm:
    """Return a new norm of positions."""
    return nn.RMSNorm(block.model_dim, eps=1e-6) if block.rms_norm else nn.LayerNorm(block.model_dim)


def final_norm(block: BlockOptions) -> nn.Module:
    """Return the norm that ends a stack of layers: one with norm="pre", none with "post"."""
    return position_norm(block) if block.norm == "pre" else nn.Identity()


def token_embedding(vocabulary: int, block: BlockOptions, *, max_length: int | None, scale: bool) -> TokenEmbedding:
    """Return the embedding of a stack of layers.

    Args:
        vocabulary: number of tokens.
        block: the options of the layers; relative positions belong to them and not to the embedding.
        max_length: the number of learned positions.
        scale: multiply the embeddings by sqrt(model_dim).
    """
    # Scaled by sqrt(model_dim), embeddings have about the size of the sinusoidal positions.
    table = normal_table(vocabulary, block.model_dim, std=block.model_dim**-0.5)
    positions = "none" if block.relative else block.positions
    return TokenEmbedding(table, positions=positions, max_length=max_length, scale=scale, dropout=block.dropout)


class Sublayer(nn.Module):
    """The residual connection, dropout and LayerNorm around one computation of a layer."""

    def __init__(self, block: BlockOptions) -> None:
        super().__init__()
        self.norm = position_norm(block)
        self.dropout = Dropout(block.dropout)
        self.first = block.norm == "pre"

    def forward(self, x: Float[Tensor, "B L D"], compute: Callable[[Tensor], Tensor]) -> Float[Tensor, "B L D"]:
        """Return x plus ``compute`` of x."""
        if self.first:
            added: Tensor = x + self.dropout(compute(self.norm(x)))
            return added
        normalized: Tensor = self.norm(x + self.dropout(compute(x)))
        return normalized


class EncoderLayer(nn.Module):
    """Self-attention over all positions, then the feed-forward network.

    Example:
        >>> import torch
        >>> layer = EncoderLayer(BlockOptions(model_dim=6, num_heads=2, hidden_dim=8))
        >>> output, weights = layer(torch.zeros(2, 5, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 2, 5, 5]))
    """

    def __init__(self, block: BlockOptions) -> None:
        super().__init__()
        self.self_attention = self_attention(block)
        self.feed_forward = _feed_forward(block)
        self.around_self = Sublayer(block)
        self.around_feed_forward = Sublayer(block)

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 S"] | None = None
    ) -> tuple[Float[Tensor, "B S D"], Weights]:
        """Return the new positions and the handle on the weights."""
        read: list[Weights] = []

        def attend_to_all(x: Tensor) -> Tensor:
            attended: AttentionOutput = self.self_attention(x, x, mask=mask)
            read.append(attended.weights)
            return attended.output

        x = self.around_self(x, attend_to_all)
        return self.around_feed_forward(x, self.feed_forward), read[0]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source if there is one, then the feed-forward network.

    Args:
        block: the options of all layers.
        source_dim: size of the source's positions; None for a layer without a source.
        score: score of the attention to the source.
        normalize: normalizer of the attention to the source.
        heads: further options of the attention to the source.
        focus: focus of the attention to the source, of one's own.
        after: stage after reading of the attention to the source.

    Example:
        >>> import torch
        >>> layer = DecoderLayer(BlockOptions(model_dim=6, num_heads=2, hidden_dim=8), source_dim=3)
        >>> output, itself, cross = layer(torch.zeros(2, 5, 6), torch.zeros(2, 7, 3))
        >>> output.shape, itself.shape, cross.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 2, 5, 5]), torch.Size([2, 2, 5, 7]))
    """

    def __init__(
        self,
        block: BlockOptions,
        source_dim: int | None = None,
        *,
        score: DotScoreName | Score = "scaled_dot",
        normalize: NormalizerName | Normalizer = "softmax",
        heads: HeadOptions | None = None,
        focus: Focus | None = None,
        after: Stage | None = None,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention(block, causal=True)
        self.around_self = Sublayer(block)
        self.cross_attention = None
        if source_dim is not None:
            own = {"focus": own_copy(focus), "after": own_copy(after)}
            heads = HeadOptions() if heads is None else heads
            self.cross_attention = _attention(block, score, normalize, heads, key_dim=source_dim, **own)
        self.around_cross = None if source_dim is None else Sublayer(block)
        self.feed_forward = _feed_forward(block)
        self.around_feed_forward = Sublayer(block)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S E"] | None = None,
        value: Float[Tensor, "B S E"] | None = None,
        mask: Bool[Tensor, "B 1 S"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Weights, Weights | None]:
        """Compute all positions of the target at once.

        Args:
            x: the positions.
            key: the source's positions; None in a layer without a source.
            value: the value of each position. Default: the key.
            mask: which positions may be read.

        Returns:
            The new positions and the handles on the weights over the target and over the source.
        """
        # All parameters are used inside of the layer's own forward pass: FSDP gathers them only for its duration.
        memory = None
        if self.cross_attention is not None and key is not None:
            memory = self.cross_attention.prepare(key, value, mask)
        read: list[Weights] = []

        def attend_to_past(x: Tensor) -> Tensor:
            attended: AttentionOutput = self.self_attention(x, x)
            read.append(attended.weights)
            return attended.output

        x = self.around_self(x, attend_to_past)
        x, cross = self._finish(x, memory)
        return x, read[0], cross

    def read(self, x: Float[Tensor, "N T D"]) -> tuple[Float[Tensor, "N T D"], KeyValueCache]:
        """Compute all positions of a layer without a source; also return the keys and values of its self-attention."""
        kept: list[KeyValueCache] = []

        def attend_to_past(x: Tensor) -> Tensor:
            attended: AttentionOutput = self.self_attention(x, x, state=self.self_attention.empty_cache(x.shape[0]))
            kept.append(attended.state)
            return attended.output

        x = self.around_self(x, attend_to_past)
        x, _ = self._finish(x, None)
        return x, kept[0]

    def step(
        self, x: Float[Tensor, "B K D"], source: ProjectedMemory | None, cache: TreeCache, layer: int
    ) -> tuple[Float[Tensor, "B K D"], Weights | None]:
        """Compute the next position of K hypotheses per source. ``layer`` is this layer's index in the cache."""
        x = self.around_self(x, lambda x: self._attend_to_cache(x, cache, layer))
        return self._finish(x, source)

    def _finish(self, x: Tensor, source: ProjectedMemory | None) -> tuple[Tensor, Weights | None]:
        read: list[Weights] = []
        if self.cross_attention is not None and self.around_cross is not None and source is not None:
            attention, memory = self.cross_attention, source

            def attend_to_source(x: Tensor) -> Tensor:
                output, weights, _ = attention.read(x, memory)
                read.append(weights)
                return output

            x = self.around_cross(x, attend_to_source)
        return self.around_feed_forward(x, self.feed_forward), read[0] if read else None

    def _attend_to_cache(self, x: Tensor, cache: TreeCache, layer: int) -> Tensor:
        attention = self.self_attention
        new = attention.prepare(x)
        key = new.key
        # Not attention.read: it is causal over a sequence of positions, and these hypotheses form a tree.
        position = cache.steps - 1  # of all new entries
        if attention.rotary is not None:
            key = rotary(key.unsqueeze(-2), start=position, how=attention.rotary).squeeze(-2)
        entries: LayerEntries = cache.append(layer, key, new.value)
        mask = None if cache.mask is None else cache.mask.unsqueeze(1)
        return attention.read_at(x, entries.key, entries.value, mask, position, cache.positions)
