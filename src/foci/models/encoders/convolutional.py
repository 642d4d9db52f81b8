"""The encoder of ConvS2S: gated convolutions over text.

    z⁰_i = w_i + p_i,   z^l_i = (GLU(W ∗ z^{l−1})_i + z^{l−1}_i) · sqrt(0.5)

Paper: Convolutional Sequence to Sequence Learning (Gehring et al., 2017), sections 3.1, 3.2 and 3.4
Names: w = embedding, p = positions, z^L = encoded.keys, z^L + e = encoded.values with e = w + p
Complexity: O(S · k · d²) per layer
Differs: as in `foci.models.decoders.convolutional`. The gradient of z, not that of e, is divided by the number of
    attentions, as in its section 3.4.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_ids, check_valid
from foci.layers.conv import (
    HALF_VARIANCE,
    GatedConvolution,
    layer_widths,
    normalized_linear,
    scale_gradient,
)
from foci.layers.dropout import Dropout
from foci.layers.embedding import normal_table
from foci.layers.interfaces import EncoderOutput
from foci.layers.positions import LearnedPositions
from foci.models.options.text_encoders import ConvolutionalTextEncoderOptions


class ConvolutionalTextEncoder(nn.Module):
    """Gated convolutions over token ids.

    Args:
        vocabulary: number of source tokens; the embedding of token 0, padding, stays 0.
        options: sizes and options.
        num_readers: the number of decoder layers that attend to the output; their gradient is divided by it,
            as in section 3.4 of the paper.

    Example:
        >>> import torch
        >>> encoder = ConvolutionalTextEncoder(
        ...     11, ConvolutionalTextEncoderOptions(embedding_dim=4, layers=((5, 3), (7, 3)))
        ... )
        >>> source = torch.tensor([[5, 6, 0]])
        >>> encoder(source, source > 0).values.shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, vocabulary: int, options: ConvolutionalTextEncoderOptions, *, num_readers: int = 1) -> None:
        super().__init__()
        size, layers, dropout = options.embedding_dim, options.layers, options.dropout
        self.output_dim = size
        self.num_readers = num_readers
        self.embedding = normal_table(vocabulary, size, std=0.1, padding=0)
        self.positions = LearnedPositions(options.max_length, size, std=0.1)
        self.dropout = Dropout(dropout)
        self.input = normalized_linear(size, layers[0][0], dropout=dropout)
        self.layers = nn.ModuleList(
            ConvolutionalEncoderLayer(before, width, kernel, dropout=dropout)
            for before, width, kernel in layer_widths(layers)
        )
        self.output = normalized_linear(layers[-1][0], size)

    def forward(self, source: Int[Tensor, "B S"], valid: Bool[Tensor, "B S"]) -> EncoderOutput:
        """Encode a batch of token ids; ``valid`` says which of them exist."""
        check_ids("ConvolutionalTextEncoder", "source", source, "batch", "position")
        check_valid("ConvolutionalTextEncoder", "source_valid", valid, source.shape[0], source.shape[1], source.device)
        embedded = self.dropout(self.positions(self.embedding(source)))
        hidden, closed = self.input(embedded), ~valid.unsqueeze(-1)
        for layer in self.layers:
            hidden = layer(hidden.masked_fill(closed, 0.0))  # a convolution must not see padding next to a token
        # The gradients of all decoder layers are summed at the encoder: the sum is scaled to the size of one.
        keys = scale_gradient(self.output(hidden), 1.0 / self.num_readers)
        return EncoderOutput(keys + embedded, valid, keys=keys)


class ConvolutionalEncoderLayer(nn.Module):
    """A gated convolution and its residual, ``(GLU(W ∗ x) + x) · sqrt(0.5)``; x is projected where widths change."""

    def __init__(self, input_dim: int, output_dim: int, kernel_size: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = GatedConvolution(input_dim, output_dim, kernel_size, dropout=dropout)
        self.residual = nn.Identity() if input_dim == output_dim else normalized_linear(input_dim, output_dim)

    def forward(self, inputs: Float[Tensor, "B S C"]) -> Float[Tensor, "B S D"]:
        """Return as many outputs as inputs."""
        output: Tensor = (self.conv(inputs) + self.residual(inputs)) * HALF_VARIANCE
        return output
