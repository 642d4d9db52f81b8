"""The decoder of ConvS2S: causal gated convolutions, with attention to the source in every layer, or without a source.

    h⁰_i = g_i = w_i + p_i,   v_i = GLU(W ∗ h^{l−1})_i,   c_i = attention(v_i, g_i; keys, values)
    h^l_i = ((v_i + c_i) · sqrt(0.5) + h^{l−1}_i) · sqrt(0.5),   p(y_{i+1}) = softmax(W_o h^L_i + b_o)
    without a source   h^l_i = (v_i + h^{l−1}_i) · sqrt(0.5)

Paper: Convolutional Sequence to Sequence Learning (Gehring et al., 2017), section 3, eqs. 1-2; without a source:
    Language Modeling with Gated Convolutional Networks (Dauphin et al., 2017), section 3
Names: w = embedding, p = positions, g = embedded, v([A B]) = GatedConvolution, k = kernel size, d = width,
    f = embedding_dim, c_i = context
Complexity: O(T · (k · d² + S · f)) per layer, all positions at once; O(k · d² + S · f) per layer and decoding step
Differs: the paper adds c to the state that the residual is part of already; here, as in the authors' program, the
    residual comes last. Of its scaling by sqrt(0.5), every sum of two in the equations above has one; z + e, the values
    of the encoder, is left as its eq. 2 has it. c goes through a linear layer of its own to the width d. Weights are
    normalized, and start as in its section 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import ConfigError, ShapeError
from foci.layers.conv import (
    HALF_VARIANCE,
    GatedConvolution,
    layer_widths,
    normalized,
    normalized_linear,
)
from foci.layers.copying import CopyHead, CopyingDecoder
from foci.layers.dropout import Dropout
from foci.layers.embedding import normal_table
from foci.layers.incremental.hypotheses import as_queries, as_rows
from foci.layers.interfaces import DecoderStep, EncoderOutput, check_encoded, source_mask
from foci.layers.positions import LearnedPositions
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.mechanisms.heads import MultiStepAttention
from foci.mechanisms.parts import Memory
from foci.models.options.decoders import ConvolutionalDecoderOptions
from foci.outputs import AttentionOutput
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class ConvolutionalState(NamedTuple):
    """The state of each hypothesis between two steps, N rows.

    Attributes:
        position: the number of tokens so far, ``(N,)``.
        caches: the last inputs of each layer, ``(N, C, kernel size − 1)``.
        copied: what each position of the source is as a target token, ``(N, S)``; None without copying.
    """

    position: Tensor
    caches: tuple[Tensor, ...]
    copied: Tensor | None = None


class ConvolutionalDecoder(CopyingDecoder):
    """Causal gated convolutions: computes all positions at once in training, and decodes from small caches.

    Args:
        vocabulary: number of target tokens; the embedding of token 0, padding, stays 0.
        source_dim: size of the source's positions, which is that of the embeddings; None for a language model.
        options: sizes and options.

    Example:
        >>> import torch
        >>> decoder = ConvolutionalDecoder(13, None, ConvolutionalDecoderOptions(layers=((5, 3),) * 2))
        >>> decoder(None, torch.ones(2, 7, dtype=torch.long)).logits.shape
        torch.Size([2, 7, 13])
    """

    def __init__(self, vocabulary: int, source_dim: int | None, options: ConvolutionalDecoderOptions) -> None:
        super().__init__()
        if options.copy and source_dim is None:
            raise ConfigError("ConvolutionalDecoder: copy needs a source to copy from, expected source_dim.")
        size = options.embedding_dim or source_dim or 256
        if source_dim not in (None, size):
            raise ConfigError(
                f"ConvolutionalDecoder: source_dim is {source_dim} and embedding_dim is {size}, expected the same: its "
                "attention adds embeddings to queries of the source. Leave embedding_dim out."
            )
        layers, dropout = options.layers, options.dropout
        self.source_dim = source_dim
        self.max_length = options.max_length
        self.embedding = normal_table(vocabulary, size, std=0.1, padding=0)
        self.positions = LearnedPositions(options.max_length, size, std=0.1)
        self.dropout = Dropout(dropout)
        self.input = normalized_linear(size, layers[0][0], dropout=dropout)
        self.layers = nn.ModuleList(
            ConvolutionalDecoderLayer(before, width, kernel, source_dim, dropout=dropout)
            for before, width, kernel in layer_widths(layers)
        )
        self.features = normalized_linear(layers[-1][0], size)
        if options.tie_output:
            self.output = nn.Linear(size, vocabulary)
            self.output.weight = self.embedding.weight
            nn.init.zeros_(self.output.bias)
        else:
            self.output = normalized_linear(size, vocabulary, dropout=dropout)
        self.copying = CopyHead(size, vocabulary) if options.copy else None

    @property
    def _layers(self) -> Sequence[ConvolutionalDecoderLayer]:
        return cast("Sequence[ConvolutionalDecoderLayer]", self.layers)

    def forward(
        self, encoded: EncoderOutput | None, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing: ``logits[:, t]`` predict ``target[:, t + 1]``; the loss with ``targets``."""
        check_ids("ConvolutionalDecoder", "target", target, "batch" if encoded is None else len(encoded.values), "time")
        memory = self._memory(encoded)
        embedded = self.dropout(self.positions(self.embedding(self._readable(target))))
        hidden = self.input(embedded)
        attentions: dict[str, Weights] = {}
        weights: Weights | None = None
        for number, layer in enumerate(self._layers):
            hidden, weights = layer(hidden, embedded, memory)
            if weights is not None:
                attentions[f"decoder.{number}.cross"] = weights
        features = self.dropout(self.features(hidden))
        return self._predict(features, attentions, targets, weights, self._copied("ConvolutionalDecoder", encoded))

    def start(self, encoded: EncoderOutput | None, rows: int = 1) -> tuple[Memory | None, ConvolutionalState]:
        """Return the memory, None without a source, and the empty caches.

        Args:
            encoded: the sources; None in a language model.
            rows: the number of hypotheses to start without a source.
        """
        memory = self._memory(encoded)
        like = self.embedding.weight if encoded is None else encoded.values
        rows = rows if encoded is None else encoded.values.shape[0]
        position = torch.zeros(rows, dtype=torch.long, device=like.device)
        caches = tuple(layer.empty_cache(like, rows) for layer in self._layers)
        return memory, ConvolutionalState(position, caches, self._copied("ConvolutionalDecoder", encoded))

    def step(self, token: Int[Tensor, " N"], memory: Memory | None, state: ConvolutionalState) -> DecoderStep:
        """Return the scores of what follows ``token`` in each of N hypotheses."""
        check_ids("ConvolutionalDecoder", "token", token, state.position.shape[0])
        embedded = self.dropout(self.embedding(self._readable(token)) + self._positions_at(state.position))
        hidden, caches = self.input(embedded), []
        weights: Weights | None = None
        for layer, cache in zip(self._layers, state.caches):
            hidden, weights, cache = layer.step(hidden, embedded, memory, cache)
            caches.append(cache)
        features = self.dropout(self.features(hidden))
        logits = self._mixed(self.output(features), features, weights, state.copied)
        return DecoderStep(logits, ConvolutionalState(state.position + 1, tuple(caches), state.copied), weights)

    def _memory(self, encoded: EncoderOutput | None) -> Memory | None:
        check_encoded("ConvolutionalDecoder", encoded, self.source_dim)
        if encoded is None:
            return None
        key = encoded.values if encoded.keys is None else encoded.keys
        return Memory(key, encoded.values, source_mask(encoded.valid))

    def _positions_at(self, position: Tensor) -> Tensor:
        table = self.positions.table
        if not torch.compiler.is_compiling() and position.numel() and int(position.max()) >= table.shape[0]:
            raise ShapeError(
                f"ConvolutionalDecoder: the target reaches position {table.shape[0] + 1}, expected at most "
                f"{table.shape[0]}. Build it with a larger max_length, or decode with a smaller maximum length."
            )
        return table[position]


class ConvolutionalDecoderLayer(nn.Module):
    """A causal gated convolution, its attention to the source if there is one, and its residual."""

    def __init__(
        self, input_dim: int, output_dim: int, kernel_size: int, source_dim: int | None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.conv = GatedConvolution(input_dim, output_dim, kernel_size, causal=True, dropout=dropout)
        self.attention: MultiStepAttention | None = None
        self.context: nn.Linear | None = None
        if source_dim is not None:
            self.attention = MultiStepAttention(output_dim, source_dim, scale_by_length=True)
            self.attention.layer = normalized(self.attention.layer, output_dim**-0.5)
            self.context = normalized_linear(source_dim, output_dim)
        self.residual = nn.Identity() if input_dim == output_dim else normalized_linear(input_dim, output_dim)

    def forward(
        self, inputs: Float[Tensor, "B T C"], embedded: Float[Tensor, "B T E"], memory: Memory | None
    ) -> tuple[Float[Tensor, "B T D"], Weights | None]:
        """Compute all positions at once; return them and the attention weights."""
        found = self.conv(inputs)
        if self.attention is None or memory is None:
            return self._join(inputs, found, None), None
        read: AttentionOutput = self.attention.read(found, memory, target=embedded)
        return self._join(inputs, found, read.output), read.weights

    def empty_cache(self, like: Float[Tensor, "..."], rows: int) -> Float[Tensor, "B C W"]:
        """Return the convolution's cache before the first step, on the device and in the dtype of ``like``."""
        return self.conv.empty_cache(like.new_zeros(rows, self.conv.conv.in_channels))

    def step(
        self,
        inputs: Float[Tensor, "N C"],
        embedded: Float[Tensor, "N E"],
        memory: Memory | None,
        cache: Float[Tensor, "N C W"],
    ) -> tuple[Float[Tensor, "N D"], Weights | None, Float[Tensor, "N C W"]]:
        """Compute one position of every hypothesis."""
        found, cache = self.conv.step(inputs, cache)
        if self.attention is None or memory is None:
            return self._join(inputs, found, None), None, cache
        queries, target = (as_queries("ConvolutionalDecoder", rows, memory.key.shape[0]) for rows in (found, embedded))
        read: AttentionOutput = self.attention.read(queries, memory, target=target)
        return self._join(inputs, found, read.output.flatten(0, 1)), as_rows(read.weights), cache

    def _join(self, inputs: Tensor, found: Tensor, context: Tensor | None) -> Tensor:
        if self.context is not None and context is not None:
            found = (found + self.context(context)) * HALF_VARIANCE
        output: Tensor = (found + self.residual(inputs)) * HALF_VARIANCE
        return output
