"""The Transformer: sequence to sequence with attention alone.

    memory = encoder(dropout(sqrt(D) E[source] + PE))
    P(y_t | y_<t, source) = softmax(decoder(dropout(sqrt(D) E[y_<t] + PE), memory)_t Eᵀ)

Paper: Attention Is All You Need (Vaswani et al., 2017), sections 3 and 5.4, table 3
Names: N = num_layers, d_model = model_dim, h = num_heads, d_ff = hidden_dim, P_drop = dropout, E = table
Complexity: O(N · (S² + T · S + T²) · D + N · (S + T) · D · (D + d_ff) + T · D · V)
Differs: with norm="pre" each stack ends in one more LayerNorm; dropout of attention weights, GELU, learned positions,
    other scores, normalisers and sliding windows are options. The linear map before the softmax has no bias, as in the
    paper.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from jaxtyping import Bool, Int
from torch import Tensor, nn

from foci import masks
from foci.errors import ConfigError, ShapeError, check_positive, check_valid, unknown_name
from foci.layers.cache import TreeCache
from foci.layers.embedding import TokenEmbedding
from foci.layers.hypotheses import as_rows
from foci.layers.next_token import Wanted, predict_or_learn
from foci.layers.seq2seq import Learned, Predicted, Stepped
from foci.layers.steps import DecoderSteps
from foci.layers.transformer import Block, DecoderLayer, EncoderLayer
from foci.mechanisms.heads.multi_head import ProjectedMemory
from foci.results import Weights

FOCI = ("global", "sliding_window")

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"model_dim": 128, "num_heads": 4, "hidden_dim": 256, "num_layers": 4, "dropout": 0.3},
    "base": {"model_dim": 512, "num_heads": 8, "hidden_dim": 2048, "num_layers": 6, "dropout": 0.1},
}
"""Sizes by name: `base` is the paper's; `tiny` suits some ten thousand sentence pairs."""


class Source(NamedTuple):
    """The encoded source as each decoder layer reads it, and the steps that are taken with it."""

    layers: tuple[ProjectedMemory, ...]
    steps: DecoderSteps | None = None


class Transformer(nn.Module):
    """Encoder and decoder of 2017, trained with `forward`, decoded with `start` and `step`.

    Arguments:
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens.
        model_dim: size of every position.
        num_heads: heads of every attention.
        hidden_dim: inner size of the feed-forward networks.
        num_layers: layers of the encoder, and of the decoder unless ``num_decoder_layers`` says otherwise.
        num_decoder_layers: layers of the decoder.
        norm: "post" (2017) or "pre".
        dropout: of embeddings and of every sublayer's output.
        attention_dropout: of the attention weights.
        feed_forward_dropout: inside the feed-forward networks.
        activation: "relu" or "gelu".
        positions: "sinusoidal" or "learned".
        max_length: the number of learned positions.
        scale_embeddings: multiply embeddings by sqrt(model_dim).
        share_embeddings: one table for source and target; the vocabularies must be one.
        tie_output: the target's table is also the matrix before the softmax.
        score: of every attention: "scaled_dot", "dot" or "cosine".
        normalise: of every attention: "softmax", "sparsemax", "entmax15", …
        focus: what a position reads of its own side: "global", all; or "sliding_window", its neighbours.
        radius: how many neighbours a sliding window has on each side; in the decoder only those before.

    `PRESETS` holds sizes by name: ``Transformer(8000, 8000, **PRESETS["tiny"])``.

    Example:
        >>> import torch
        >>> model = Transformer(11, 13, model_dim=8, num_heads=2, hidden_dim=16, num_layers=2)
        >>> source = torch.tensor([[5, 6, 7]])
        >>> predicted = model(source, source > 0, torch.tensor([[1, 4]]))
        >>> predicted.logits.shape, predicted.attentions["decoder.1.cross"].shape
        (torch.Size([1, 2, 13]), torch.Size([1, 2, 2, 3]))
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        model_dim: int = 512,
        num_heads: int = 8,
        hidden_dim: int = 2048,
        num_layers: int = 6,
        num_decoder_layers: int | None = None,
        norm: str = "post",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str = "relu",
        positions: str = "sinusoidal",
        max_length: int | None = None,
        scale_embeddings: bool = True,
        share_embeddings: bool = False,
        tie_output: bool = True,
        score: str = "scaled_dot",
        normalise: str = "softmax",
        focus: str = "global",
        radius: int | None = None,
    ) -> None:
        super().__init__()
        if focus not in FOCI:
            raise unknown_name("focus of a Transformer", focus, FOCI)
        if (focus == "sliding_window") != (radius is not None):
            raise ConfigError(
                f"Transformer: focus is {focus!r} and radius is {radius}, expected a radius for 'sliding_window' and "
                "for it alone."
            )
        if radius is not None:
            check_positive("Transformer", radius=radius)
        self.radius = radius
        if norm not in ("pre", "post"):
            raise unknown_name("place of the norm", norm, ("pre", "post"))
        if share_embeddings and source_vocabulary != target_vocabulary:
            raise ConfigError(
                f"Transformer: the vocabularies have {source_vocabulary} and {target_vocabulary} tokens, expected one "
                "and the same for share_embeddings=True. Train one tokeniser on both sides."
            )
        block = Block(
            model_dim=model_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            norm=norm,
            dropout=dropout,
            attention_dropout=attention_dropout,
            feed_forward_dropout=feed_forward_dropout,
            activation=activation,
            score=score,
            normalise=normalise,
            window=radius,
        )
        self.max_length = max_length if positions == "learned" else None  # sinusoids have no end
        target_table = _table(target_vocabulary, model_dim)
        source_table = target_table if share_embeddings else _table(source_vocabulary, model_dim)
        self.source_embedding, self.target_embedding = (
            TokenEmbedding(table, positions=positions, max_length=max_length, scale=scale_embeddings, dropout=dropout)
            for table in (source_table, target_table)
        )
        decoder_layers = num_layers if num_decoder_layers is None else num_decoder_layers
        self.encoder = nn.ModuleList(EncoderLayer(block) for _ in range(num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(block) for _ in range(decoder_layers))
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(model_dim) if norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.output_layer = nn.Linear(model_dim, target_vocabulary, bias=False)
        if tie_output:
            self.output_layer.weight = target_table.weight
        else:
            nn.init.xavier_uniform_(self.output_layer.weight)

    @property
    def _decoder_layers(self) -> list[DecoderLayer]:
        return [cast(DecoderLayer, layer) for layer in self.decoder]

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_valid: Bool[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        wanted: Wanted | None = None,
    ) -> Predicted | Learned:
        """Teacher forcing: ``logits[:, t]`` predict what follows ``target[:, : t + 1]``; the loss if that is given."""
        _check_rows(target, source)
        attentions: dict[str, Weights] = {}
        mask = masks.keys(source_valid)
        memory = self._encode(source, source_valid, mask, attentions)
        x = self.target_embedding(target)
        for number, layer in enumerate(self._decoder_layers):
            x, itself, cross = layer(x, memory, mask)
            attentions[f"decoder.{number}.self"] = itself
            attentions[f"decoder.{number}.cross"] = cross
        return predict_or_learn(self.decoder_norm(x), self.output_layer, attentions, wanted)

    def start(self, source: Int[Tensor, "B S"], source_valid: Bool[Tensor, "B S"]) -> tuple[Source, TreeCache]:
        """The encoded source, projected for every decoder layer, and a cache without positions."""
        # Sentences of one length need no mask, and decoding is faster without.
        mask = None if bool(source_valid.all()) else masks.keys(source_valid)
        encoded = self._encode(source, source_valid, mask, {})
        prepared = (layer.cross_attention.prepare(encoded, mask=mask) for layer in self._decoder_layers)
        layers = tuple(ProjectedMemory(one.key.contiguous(), one.value.contiguous(), one.mask) for one in prepared)
        steps = DecoderSteps(self.target_embedding, self._decoder_layers, self.decoder_norm, self.output_layer)
        return Source(layers, steps), TreeCache(len(self.decoder), source.shape[0], source.device, window=self.radius)

    def step(self, token: Int[Tensor, " N"], memory: Source, state: TreeCache) -> Stepped:
        """The logits of what follows ``token`` in each of N hypotheses; K = N / B of one source read it together."""
        sources = memory.layers[0].key.shape[0]
        cache = state.grow(sources)
        if memory.steps is not None and memory.steps.suit(state, memory.layers[0]):
            logits, weights = memory.steps(token, memory.layers, state.steps, cache)
            return Stepped(logits, cache, as_rows(weights))
        # Every hypothesis is as long as the others: they have one position, and the batch axis is theirs.
        x = self.target_embedding(token.unsqueeze(1), start=state.steps)
        x = x.view(sources, max(1, token.shape[0] // max(1, sources)), x.shape[-1])
        cross: Weights | None = None
        for number, (layer, read) in enumerate(zip(self._decoder_layers, memory.layers)):
            x, cross = layer.step(x, read, cache, number)
        logits = self.output_layer(self.decoder_norm(x).flatten(0, 1))
        return Stepped(logits, cache, None if cross is None else as_rows(cross))

    def _encode(
        self, source: Tensor, source_valid: Tensor, mask: Tensor | None, attentions: dict[str, Weights]
    ) -> Tensor:
        check_valid("Transformer", "source_valid", source_valid, source.shape[0], source.shape[1], source.device)
        x = self.source_embedding(source)
        for number, layer in enumerate(self.encoder):
            x, attentions[f"encoder.{number}.self"] = layer(x, mask)
        encoded: Tensor = self.encoder_norm(x)
        return encoded


def _table(vocabulary: int, model_dim: int) -> nn.Embedding:
    table = nn.Embedding(vocabulary, model_dim)
    nn.init.normal_(table.weight, std=model_dim**-0.5)  # with the scaling by sqrt(D), about the size of the positions
    return table


def _check_rows(target: Tensor, source: Tensor) -> None:
    if target.dim() != 2 or target.shape[0] != source.shape[0]:
        raise ShapeError(
            f"Transformer: target has shape {tuple(target.shape)}, expected (batch, position) with the source's "
            f"batch of {source.shape[0]}."
        )
