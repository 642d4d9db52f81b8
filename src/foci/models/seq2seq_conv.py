"""ConvS2S: convolutions instead of recurrence, and attention in every decoder layer.

    h⁰_i = w_i + p_i,   v_i = GLU(W ∗ h^{l−1})_i
    encoder   z^l_i = (v_i + z^{l−1}_i) · sqrt(0.5)
    decoder   c_i = attention(v_i, g_i; z, z + e),   h^l_i = ((v_i + c_i) · sqrt(0.5) + h^{l−1}_i) · sqrt(0.5)
    p(y_{i+1}) = softmax(W_o h^L_i + b_o)

Paper: Convolutional Sequence to Sequence Learning (Gehring et al., 2017), section 3, eqs. 1-2
Names: w = embedding, p = positions, e = source embedded, g = target embedded, z = key, v([A B]) = GatedConvolution,
    k = kernel size, d = width, f = embedding_dim, c_i = context
Complexity: O((S + T) · k · d²) a layer, all positions at once; O(k · d²) a layer and step of decoding
Differs: the paper adds c to the state that the residual is part of already; here, as in the authors' program, the
    residual comes last. Of its scaling by sqrt(0.5), every sum of two in the equations above has one; z + e is left as
    its eq. 2 has it. c goes through a linear layer of its own to the width d. Weights are normalised, and start as in
    its section 3.5. The gradient of z, not that of e, is divided by the number of attentions, as in its section 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci import masks
from foci.errors import ConfigError, ShapeError, check_ids, check_valid
from foci.layers.conv import GatedConvolution, normalised, normalised_linear, scale_gradient
from foci.layers.dropout import Dropout
from foci.layers.hypotheses import as_queries, as_rows
from foci.layers.next_token import Wanted, predict_or_learn
from foci.layers.positions import LearnedPositions
from foci.layers.seq2seq import Learned, Predicted, Stepped
from foci.mechanisms.attention import Memory
from foci.mechanisms.heads import MultiStepAttention
from foci.results import Attended, Weights, exportable

Layers = Sequence[tuple[int, int]]
"""``(width, kernel size)`` of each layer."""

_HALF = math.sqrt(0.5)

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 128, "encoder_layers": [(128, 3)] * 4, "decoder_layers": [(128, 3)] * 3, "dropout": 0.2},
    "small": {"embedding_dim": 256, "encoder_layers": [(256, 3)] * 4, "decoder_layers": [(256, 3)] * 3, "dropout": 0.2},
    "base": {
        "embedding_dim": 512,
        "encoder_layers": [(512, 3)] * 20,
        "decoder_layers": [(512, 3)] * 20,
        "dropout": 0.2,
    },
    "wmt_en_de": {
        "embedding_dim": 768,
        "encoder_layers": [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2,
        "decoder_layers": [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2,
        "dropout": 0.2,
    },
}
"""Sizes by name: `base` is of the paper's model for English-Romanian, `wmt_en_de` of the authors' program."""


@exportable
class ConvState(NamedTuple):
    """How many tokens a hypothesis has ``(N,)``, and of each layer the last inputs ``(N, C, kernel size − 1)``."""

    position: Tensor
    caches: tuple[Tensor, ...]


class ConvSeq2Seq(nn.Module):
    """Convolutional sequence to sequence: trains all positions at once, decodes from small caches.

    Arguments:
        source_vocabulary: how many source tokens there are.
        target_vocabulary: how many target tokens.
        embedding_dim: size of the embeddings, and of what attention compares and reads.
        encoder_layers: ``(width, kernel size)`` of each encoder layer; the kernel sizes are odd.
        decoder_layers: the same of each decoder layer; any kernel size.
        max_length: the longest source or target.
        dropout: on embeddings, on the inputs of convolutions, and before the output layer.
        share_embeddings: one table for source, target and output layer; needs one vocabulary.
        padding: the id whose embedding stays 0.

    Weight normalisation is part of the model while it learns; before decoding much, fold it with
    `foci.layers.conv.fold_weight_norm`.

    Example:
        >>> import torch
        >>> model = ConvSeq2Seq(11, 13, embedding_dim=3, encoder_layers=[(5, 3)], decoder_layers=[(5, 3)] * 2)
        >>> source, valid = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
        >>> predicted = model(source, valid, torch.ones(2, 7, dtype=torch.long))
        >>> predicted.logits.shape, list(predicted.attentions)
        (torch.Size([2, 7, 13]), ['decoder.0.cross', 'decoder.1.cross'])
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        embedding_dim: int = 256,
        encoder_layers: Layers = ((256, 3),) * 4,
        decoder_layers: Layers = ((256, 3),) * 3,
        max_length: int = 1024,
        dropout: float = 0.0,
        share_embeddings: bool = False,
        padding: int = 0,
    ) -> None:
        super().__init__()
        if not encoder_layers or not decoder_layers:
            raise ConfigError("ConvSeq2Seq: encoder_layers and decoder_layers need one (width, kernel size) at least.")
        if share_embeddings and source_vocabulary != target_vocabulary:
            raise ConfigError(
                f"ConvSeq2Seq: share_embeddings with {source_vocabulary} source and {target_vocabulary} target tokens, "
                "expected one vocabulary for both."
            )
        self.max_length = max_length
        self.target_embedding = _embedding(target_vocabulary, embedding_dim, padding)
        self.source_embedding = (
            self.target_embedding if share_embeddings else _embedding(source_vocabulary, embedding_dim, padding)
        )
        self.source_positions = _positions(max_length, embedding_dim)
        self.target_positions = _positions(max_length, embedding_dim)
        self.dropout = Dropout(dropout)
        self.encoder_input = normalised_linear(embedding_dim, encoder_layers[0][0], dropout=dropout)
        self.encoder = nn.ModuleList(
            EncoderLayer(before, width, kernel, dropout=dropout) for before, width, kernel in _widths(encoder_layers)
        )
        self.encoder_output = normalised_linear(encoder_layers[-1][0], embedding_dim)
        self.decoder_input = normalised_linear(embedding_dim, decoder_layers[0][0], dropout=dropout)
        self.decoder = nn.ModuleList(
            DecoderLayer(before, width, kernel, embedding_dim, dropout=dropout)
            for before, width, kernel in _widths(decoder_layers)
        )
        self.decoder_output = normalised_linear(decoder_layers[-1][0], embedding_dim)
        if share_embeddings:
            self.output = nn.Linear(embedding_dim, target_vocabulary)
            self.output.weight = self.target_embedding.weight
            nn.init.zeros_(self.output.bias)
        else:
            self.output = normalised_linear(embedding_dim, target_vocabulary, dropout=dropout)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_valid: Bool[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        wanted: Wanted | None = None,
    ) -> Predicted | Learned:
        """Teacher forcing: ``logits[:, t]`` predict ``target[:, t + 1]``; the loss if what is ``wanted`` is given."""
        memory = self._encode(source, source_valid)
        check_ids("ConvSeq2Seq", "target", target, source.shape[0], "time")
        embedded = self.dropout(self.target_positions(self.target_embedding(target)))
        hidden = self.decoder_input(embedded)
        attentions = {}
        for number, layer in enumerate(self._decoder_layers):
            hidden, attentions[f"decoder.{number}.cross"] = layer(hidden, embedded, memory)
        return predict_or_learn(self._features(hidden), self.output, attentions, wanted)

    def start(self, source: Int[Tensor, "B S"], source_valid: Bool[Tensor, "B S"]) -> tuple[Memory, ConvState]:
        """Encode the sources; the memory and the empty caches, B rows each."""
        memory = self._encode(source, source_valid)
        position = torch.zeros(source.shape[0], dtype=torch.long, device=source.device)
        return memory, ConvState(position, tuple(layer.empty_cache(memory.key) for layer in self._decoder_layers))

    def step(self, token: Int[Tensor, " N"], memory: Memory, state: ConvState) -> Stepped:
        """The scores of what follows ``token`` in each of N hypotheses."""
        check_ids("ConvSeq2Seq", "token", token, state.position.shape[0])
        embedded = self.dropout(self.target_embedding(token) + self._positions_at(state.position))
        hidden, caches = self.decoder_input(embedded), []
        for layer, cache in zip(self._decoder_layers, state.caches):
            hidden, weights, cache = layer.step(hidden, embedded, memory, cache)
            caches.append(cache)
        return Stepped(self.output(self._features(hidden)), ConvState(state.position + 1, tuple(caches)), weights)

    def _encode(self, source: Tensor, source_valid: Tensor) -> Memory:
        check_ids("ConvSeq2Seq", "source", source, "batch", "position")
        check_valid("ConvSeq2Seq", "source_valid", source_valid, source.shape[0], source.shape[1], source.device)
        embedded = self.dropout(self.source_positions(self.source_embedding(source)))
        hidden, closed = self.encoder_input(embedded), ~source_valid.unsqueeze(-1)
        for layer in self.encoder:
            hidden = layer(hidden.masked_fill(closed, 0.0))  # a convolution must not see its neighbours' padding
        # Every decoder layer sends a gradient back to the encoder: their sum is brought to the size of one.
        key = scale_gradient(self.encoder_output(hidden), 1.0 / len(self.decoder))
        # Without parameters, the first layer's preparation is that of all.
        return self._decoder_layers[0].attention.prepare(key, embedded, masks.keys(source_valid))

    @property
    def _decoder_layers(self) -> Sequence[DecoderLayer]:
        return cast("Sequence[DecoderLayer]", self.decoder)

    def _features(self, hidden: Tensor) -> Tensor:
        features: Tensor = self.dropout(self.decoder_output(hidden))
        return features

    def _positions_at(self, position: Tensor) -> Tensor:
        table = self.target_positions.table
        if not torch.compiler.is_compiling() and position.numel() and int(position.max()) >= table.shape[0]:
            raise ShapeError(
                f"ConvSeq2Seq: the target reaches position {table.shape[0] + 1}, expected at most {table.shape[0]}. "
                "Build it with a larger max_length, or decode with a smaller maximum length."
            )
        return table[position]


class EncoderLayer(nn.Module):
    """A gated convolution and its residual, ``(GLU(W ∗ x) + x) · sqrt(0.5)``; x is projected where widths change."""

    def __init__(self, input_dim: int, output_dim: int, kernel_size: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = GatedConvolution(input_dim, output_dim, kernel_size, dropout=dropout)
        self.residual = nn.Identity() if input_dim == output_dim else normalised_linear(input_dim, output_dim)

    def forward(self, inputs: Float[Tensor, "B S C"]) -> Float[Tensor, "B S D"]:
        """As many outputs as inputs."""
        output: Tensor = (self.conv(inputs) + self.residual(inputs)) * _HALF
        return output


class DecoderLayer(nn.Module):
    """A causal gated convolution, its read of the source, and its residual."""

    def __init__(
        self, input_dim: int, output_dim: int, kernel_size: int, embedding_dim: int, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.conv = GatedConvolution(input_dim, output_dim, kernel_size, causal=True, dropout=dropout)
        self.attention = MultiStepAttention(output_dim, embedding_dim, scale_by_length=True)
        self.attention.layer = normalised(self.attention.layer, output_dim**-0.5)
        self.context = normalised_linear(embedding_dim, output_dim)
        self.residual = nn.Identity() if input_dim == output_dim else normalised_linear(input_dim, output_dim)

    def forward(
        self, inputs: Float[Tensor, "B T C"], embedded: Float[Tensor, "B T E"], memory: Memory
    ) -> tuple[Float[Tensor, "B T D"], Weights]:
        """All steps at once, and what they read."""
        found = self.conv(inputs)
        read: Attended = self.attention.read(found, memory, target=embedded)
        return self._join(inputs, found, read.output), read.weights

    def empty_cache(self, like: Float[Tensor, "B ..."]) -> Float[Tensor, "B C W"]:
        """The convolution's cache before the first step, on the device and in the dtype of ``like``."""
        return self.conv.empty_cache(like.new_zeros(like.shape[0], self.conv.conv.in_channels))

    def step(
        self,
        inputs: Float[Tensor, "N C"],
        embedded: Float[Tensor, "N E"],
        memory: Memory,
        cache: Float[Tensor, "N C W"],
    ) -> tuple[Float[Tensor, "N D"], Weights, Float[Tensor, "N C W"]]:
        """One step of every hypothesis; those of one source read it together."""
        found, cache = self.conv.step(inputs, cache)
        queries, target = (as_queries("ConvSeq2Seq", rows, memory.key.shape[0]) for rows in (found, embedded))
        read: Attended = self.attention.read(queries, memory, target=target)
        return self._join(inputs, found, read.output.flatten(0, 1)), as_rows(read.weights), cache

    def _join(self, inputs: Tensor, found: Tensor, context: Tensor) -> Tensor:
        output: Tensor = ((found + self.context(context)) * _HALF + self.residual(inputs)) * _HALF
        return output


def _embedding(vocabulary: int, size: int, padding: int) -> nn.Embedding:
    table = nn.Embedding(vocabulary, size, padding)
    nn.init.normal_(table.weight, std=0.1)
    with torch.no_grad():
        table.weight[padding] = 0.0
    return table


def _positions(max_length: int, size: int) -> LearnedPositions:
    positions = LearnedPositions(max_length, size)
    nn.init.normal_(positions.table, std=0.1)
    return positions


def _widths(layers: Layers) -> list[tuple[int, int, int]]:
    """``(width before, width, kernel size)`` of each layer."""
    before = [layers[0][0], *(width for width, _ in layers)]
    return [(previous, width, kernel) for previous, (width, kernel) in zip(before, layers)]
