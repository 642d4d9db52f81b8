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
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.errors import check_positive, unknown_name
from foci.functional.attend import attend
from foci.functional.positions import alibi_slopes, rotary
from foci.layers.dropout import Dropout
from foci.layers.embedding import TokenEmbedding, normal_table
from foci.layers.feed_forward import FeedForward
from foci.layers.incremental.tree_cache import LayerCells, TreeCache
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.heads.multi_head import KeyValueCache, ProjectedMemory
from foci.outputs import AttentionOutput
from foci.weights import Weights

RELATIVE = ("rotary", "alibi")
"""Positions that belong to the attention and not to the embeddings."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """The options that all layers of a Transformer share.

    Args:
        model_dim: size of every position.
        num_heads: heads of every attention.
        hidden_dim: inner size of the feed-forward network.
        norm: "post" (2017) or "pre", the position of LayerNorm.
        dropout: of every sublayer's output.
        attention_dropout: of the attention weights.
        feed_forward_dropout: between the two layers of the feed-forward network.
        activation: of the feed-forward network, "relu", "gelu" or "relu2".
        score: of every attention, as in `MultiHeadAttention`.
        normalize: of every attention.
        window: number of positions before and after its own that self-attention covers; all unless given.
        relative: positions that self-attention adds itself, "rotary" or "alibi"; none unless given.
        bias: give the projections of the attentions and the layers of the feed-forward network a bias.
        rms_norm: normalize by the root mean square alone (RMSNorm) where LayerNorm would stand.
        qk_norm: normalize the queries and keys of self-attention; see `MultiHeadAttention`.
        zero_residual: start the layers that end a sublayer at 0, so that a new stack with norm="pre" is the identity.
    """

    model_dim: int
    num_heads: int
    hidden_dim: int
    norm: str = "post"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    feed_forward_dropout: float = 0.0
    activation: str = "relu"
    score: str = "scaled_dot"
    normalize: str = "softmax"
    window: int | None = None
    relative: str | None = None
    bias: bool = True
    rms_norm: bool = False
    qk_norm: bool = False
    zero_residual: bool = False

    def __post_init__(self) -> None:
        if self.relative not in (None, *RELATIVE):
            raise unknown_name("kind of relative positions", self.relative, RELATIVE)
        if self.norm not in ("pre", "post"):
            raise unknown_name("place of the norm", self.norm, ("pre", "post"))
        if self.window is not None:
            check_positive("Block", window=self.window)

    def self_attention(self, *, causal: bool = False) -> MultiHeadAttention:
        """Return a new attention to the positions of the same side."""
        after = 0 if causal else self.window
        window = None if self.window is None else (self.window, after)
        return self._attention(
            causal=causal,
            window=window,
            rotary=self.relative == "rotary",
            alibi=self.relative == "alibi",
            qk_norm=self.qk_norm,
        )

    def cross_attention(self, source_dim: int) -> MultiHeadAttention:
        """Return a new attention to a source whose cells have this size."""
        return self._attention(key_dim=source_dim)

    def _attention(self, **options: Any) -> MultiHeadAttention:
        attention = MultiHeadAttention(
            self.model_dim,
            self.num_heads,
            score=self.score,
            normalize=self.normalize,
            dropout=self.attention_dropout,
            bias=self.bias,
            **options,
        )
        nn.init.xavier_uniform_(attention.output_layer.weight)
        self._end_sublayer(attention.output_layer)
        if self.bias:
            nn.init.zeros_(attention.output_layer.bias)
        return attention

    def feed_forward(self) -> FeedForward:
        """Return a new feed-forward network."""
        network = FeedForward(
            self.model_dim,
            self.hidden_dim,
            activation=self.activation,
            dropout=self.feed_forward_dropout,
            bias=self.bias,
        )
        self._end_sublayer(network.outer_layer)
        return network

    def make_norm(self) -> nn.LayerNorm | nn.RMSNorm:
        """Return a new norm of positions."""
        return nn.RMSNorm(self.model_dim, eps=1e-6) if self.rms_norm else nn.LayerNorm(self.model_dim)

    def _end_sublayer(self, layer: nn.Linear) -> None:
        if self.zero_residual:
            nn.init.zeros_(layer.weight)


def embedding_and_block(
    vocabulary: int, block: Block, *, positions: str, max_length: int | None, scale: bool
) -> tuple[TokenEmbedding, Block]:
    """Return the embedding of a stack of layers, and the options of the layers, for one of four kinds of positions.

    Args:
        vocabulary: number of tokens.
        block: the options of the layers.
        positions: "sinusoidal" or "learned", added to the embeddings; "rotary" or "alibi", in self-attention.
        max_length: the number of learned positions.
        scale: multiply the embeddings by sqrt(model_dim).
    """
    known = ("sinusoidal", "learned", *RELATIVE)
    if positions not in known:
        raise unknown_name("kind of positions", positions, known)
    relative = positions in RELATIVE
    # Scaled by sqrt(model_dim), embeddings have about the size of the sinusoidal positions.
    table = normal_table(vocabulary, block.model_dim, std=block.model_dim**-0.5)
    embedding = TokenEmbedding(
        table,
        positions="none" if relative else positions,
        max_length=max_length,
        scale=scale,
        dropout=block.dropout,
    )
    return embedding, replace(block, relative=positions) if relative else block


class Sublayer(nn.Module):
    """The residual connection, dropout and LayerNorm around one computation of a layer."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.norm = block.make_norm()
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
        >>> layer = EncoderLayer(Block(model_dim=6, num_heads=2, hidden_dim=8))
        >>> output, weights = layer(torch.zeros(2, 5, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 2, 5, 5]))
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.self_attention = block.self_attention()
        self.feed_forward = block.feed_forward()
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
        source_dim: size of the source's cells; None for a layer without a source.

    Example:
        >>> import torch
        >>> layer = DecoderLayer(Block(model_dim=6, num_heads=2, hidden_dim=8), source_dim=3)
        >>> output, itself, cross = layer(torch.zeros(2, 5, 6), torch.zeros(2, 7, 3))
        >>> output.shape, itself.shape, cross.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 2, 5, 5]), torch.Size([2, 2, 5, 7]))
    """

    def __init__(self, block: Block, source_dim: int | None = None) -> None:
        super().__init__()
        self.self_attention = block.self_attention(causal=True)
        self.around_self = Sublayer(block)
        self.cross_attention = None if source_dim is None else block.cross_attention(source_dim)
        self.around_cross = None if source_dim is None else Sublayer(block)
        self.feed_forward = block.feed_forward()
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
            key: the source's cells; None in a layer without a source.
            value: the value of each cell; the key unless given.
            mask: which cells may be read.

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
        x = self.around_self(x, lambda x: self._attend_to_cells(x, cache, layer))
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

    def _attend_to_cells(self, x: Tensor, cache: TreeCache, layer: int) -> Tensor:
        attention = self.self_attention
        new = attention.prepare(x)
        key = new.key
        query = attention.project_query(x)
        # Not attention.read: it is causal over a sequence of positions, and these hypotheses form a tree.
        position = cache.steps - 1  # of all new cells
        if attention.rotary:
            query, key = (rotary(part.unsqueeze(-2), start=position).squeeze(-2) for part in (query, key))
        cells: LayerCells = cache.append(layer, key, new.value)
        mask = None if cache.mask is None else cache.mask.unsqueeze(1)
        bias = None
        if attention.alibi and cache.positions is not None:
            slopes = alibi_slopes(attention.num_heads, device=x.device).view(-1, 1, 1)
            bias = (slopes * (cache.positions - position).unsqueeze(1)).to(query.dtype)
        read = attend(
            query, cells.key, cells.value, mask, bias=bias, score=attention.score, normalize=attention.normalize
        )
        output: Tensor = attention.output_layer(read.output.transpose(1, 2).flatten(2))
        return output
