"""Encoders for speech: fewer and fewer frames, each of which has heard more and more.

    convolutional strided convolutions, each halving the frames; then a bidirectional GRU or LSTM
    dilated       strided convolutions; then dilated ones, h^j = h^{j−1} + relu(norm(conv(h^{j−1}))), over more and more
                  positions
    pyramidal     bidirectional LSTM layers; between two of them every two frames become one:
                  h_i^j = BLSTM(h_{i−1}^j, [h_{2i}^{j−1}; h_{2i+1}^{j−1}])
    transformer   strided convolutions, sinusoidal positions, then layers of self-attention

Paper: Listen, Attend and Spell (Chan et al., 2016), eq. 5 (pyramidal); Attention-Based Models for Speech Recognition
    (Chorowski et al., 2015), section 3 (BiGRU); Speech-Transformer (Dong, Xu, Xu, 2018), section 3 (transformer);
    An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence Modeling (Bai, Kolter, Koltun,
    2018), section 3 (dilated)
Names: x = features, h = values
Complexity: O(T · D²) for recurrent layers and convolutions; O((T / subsampling_factor)² · D) for self-attention
Differs: Chorowski's encoder reads all frames, Chan's last three layers reduce them by 8; here ``subsampling_factor``
    says by how many. Convolutions run over time alone, with the features as channels. The dilated ones look to both
    sides.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_shape, check_valid
from foci.errors import check_positive
from foci.layers.dropout import Dropout
from foci.layers.interfaces import EncoderOutput, source_mask
from foci.layers.positions import SinusoidalPositions
from foci.layers.recurrent import RecurrentEncoder, State
from foci.layers.transformer import EncoderLayer, final_norm
from foci.models.options.speech import (
    ConvolutionalSpeechEncoderOptions,
    DilatedSpeechEncoderOptions,
    PyramidalSpeechEncoderOptions,
    SpeechEncoderOptions,
    TransformerSpeechEncoderOptions,
    halvings,
)
from foci.weights import Weights


def reduced(valid: Bool[Tensor, "B T"]) -> Bool[Tensor, "B S"]:
    """Return which positions exist after every two frames became one, rounded up."""
    return valid[:, ::2]


class StridedConvolutions(nn.Module):
    """Convolutions over time with stride 2, each followed by LayerNorm and ReLU; padding stays 0.

    Args:
        input_dim: features per frame.
        output_dim: size of the positions.
        subsampling_factor: frames per position, a power of 2.
        dropout: of each layer's output.

    Example:
        >>> import torch
        >>> convolutions = StridedConvolutions(3, 5, subsampling_factor=4)
        >>> values, valid = convolutions(torch.ones(2, 11, 3), torch.ones(2, 11).bool())
        >>> values.shape, valid.shape
        (torch.Size([2, 3, 5]), torch.Size([2, 3]))
    """

    def __init__(self, input_dim: int, output_dim: int, *, subsampling_factor: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        count = halvings("StridedConvolutions", subsampling_factor)
        sizes = [input_dim, *[output_dim] * max(count, 1)]
        stride = 2 if count else 1
        self.layers = nn.ModuleList(
            nn.Conv1d(before, after, 3, stride=stride, padding=1) for before, after in pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(output_dim) for _ in self.layers)
        self.stride = stride
        self.dropout = Dropout(dropout)

    def forward(
        self, features: Float[Tensor, "B T F"], valid: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "B S"]]:
        """Return the positions, and which of them exist."""
        x = features.masked_fill(~valid.unsqueeze(-1), 0.0)
        for layer, norm in zip(self.layers, self.norms):
            valid = reduced(valid) if self.stride == 2 else valid
            # Normalized: without it the signal is so small after two layers that a recurrent network starts slowly.
            x = torch.relu(norm(layer(x.transpose(1, 2)).transpose(1, 2)))
            # A bias makes padding other than 0, which the next layer would read at the last frames.
            x = self.dropout(x).masked_fill(~valid.unsqueeze(-1), 0.0)
        return x, valid


class StridedSpeechEncoder(nn.Module):
    """The base of the encoders that begin with strided convolutions."""

    def __init__(self, input_dim: int, output_dim: int, options: SpeechEncoderOptions) -> None:
        super().__init__()
        check_positive(type(self).__name__, input_dim=input_dim)
        self.input_dim, self.output_dim, self.subsampling_factor = input_dim, output_dim, options.subsampling_factor
        self.convolutions = StridedConvolutions(
            input_dim, output_dim, subsampling_factor=options.subsampling_factor, dropout=options.dropout
        )

    def forward(self, source: Float[Tensor, "B T F"], valid: Bool[Tensor, "B T"]) -> EncoderOutput:
        """Encode a batch of features; ``valid`` says which frames exist."""
        _check(type(self).__name__, source, valid, self.input_dim)
        return self._encode(*self.convolutions(source, valid))

    def _encode(self, positions: Tensor, valid: Tensor) -> EncoderOutput:
        raise NotImplementedError


class ConvolutionalSpeechEncoder(StridedSpeechEncoder):
    """Strided convolutions and a bidirectional recurrent network; the summary is its final state.

    Args:
        input_dim: features per frame.
        options: sizes and options.

    Example:
        >>> import torch
        >>> encoder = ConvolutionalSpeechEncoder(3, ConvolutionalSpeechEncoderOptions(hidden_dim=6))
        >>> encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool()).values.shape
        torch.Size([2, 3, 6])
    """

    def __init__(self, input_dim: int, options: ConvolutionalSpeechEncoderOptions) -> None:
        size, dropout = options.hidden_dim, options.dropout
        super().__init__(input_dim, size, options)
        self.layers = RecurrentEncoder(size, size, cell=options.cell, num_layers=options.num_layers, dropout=dropout)

    def _encode(self, positions: Tensor, valid: Tensor) -> EncoderOutput:
        values, summary = self.layers(positions, valid)
        return EncoderOutput(values, valid, summary)


class DilatedSpeechEncoder(StridedSpeechEncoder):
    """Strided convolutions and dilated ones; they learn long sounds in fewer steps than a recurrence.

    Each dilated convolution reads five positions, 1, 2, 4, 8, then again 1, 2, … apart. The first four together read 30
    positions on each side. There is no summary.

    Args:
        input_dim: features per frame.
        options: sizes and options.

    Example:
        >>> import torch
        >>> encoder = DilatedSpeechEncoder(3, DilatedSpeechEncoderOptions(hidden_dim=6))
        >>> encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool()).values.shape
        torch.Size([2, 3, 6])
    """

    def __init__(self, input_dim: int, options: DilatedSpeechEncoderOptions) -> None:
        size = options.hidden_dim
        super().__init__(input_dim, size, options)
        dilations = [1 << layer % 4 for layer in range(options.num_layers)]
        self.layers = nn.ModuleList(
            nn.Conv1d(size, size, 5, dilation=dilation, padding=2 * dilation) for dilation in dilations
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in dilations)
        self.dropout = Dropout(options.dropout)

    def _encode(self, values: Tensor, valid: Tensor) -> EncoderOutput:
        closed = ~valid.unsqueeze(-1)
        for layer, norm in zip(self.layers, self.norms):
            added = torch.relu(norm(layer(values.transpose(1, 2)).transpose(1, 2)))
            values = (values + self.dropout(added)).masked_fill(closed, 0.0)
        return EncoderOutput(values, valid)


class PyramidalSpeechEncoder(nn.Module):
    """Bidirectional recurrent layers between which every two positions become one; the summary is the last layer's.

    Args:
        input_dim: features per frame.
        options: sizes and options.

    Example:
        >>> import torch
        >>> encoder = PyramidalSpeechEncoder(3, PyramidalSpeechEncoderOptions(hidden_dim=6))
        >>> encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool()).values.shape
        torch.Size([2, 3, 6])
    """

    def __init__(self, input_dim: int, options: PyramidalSpeechEncoderOptions) -> None:
        super().__init__()
        check_positive("PyramidalSpeechEncoder", input_dim=input_dim)
        size = options.hidden_dim
        self.halvings = halvings("PyramidalSpeechEncoder", options.subsampling_factor)
        self.input_dim, self.output_dim, self.subsampling_factor = input_dim, size, options.subsampling_factor
        self.dropout = Dropout(options.dropout)
        self.layers = nn.ModuleList(
            RecurrentEncoder(
                input_dim if layer == 0 else size * (2 if layer <= self.halvings else 1), size, cell=options.cell
            )
            for layer in range(options.num_layers)
        )

    def forward(self, source: Float[Tensor, "B T F"], valid: Bool[Tensor, "B T"]) -> EncoderOutput:
        """Encode a batch of features; ``valid`` says which frames exist."""
        _check("PyramidalSpeechEncoder", source, valid, self.input_dim)
        x = source.masked_fill(~valid.unsqueeze(-1), 0.0)
        summary: State = ()
        for number, layer in enumerate(self.layers):
            if 0 < number <= self.halvings:
                x, valid = _pairs(x), reduced(valid)
            x, summary = layer(x if number == 0 else self.dropout(x), valid)
        return EncoderOutput(x, valid, summary)


class TransformerSpeechEncoder(StridedSpeechEncoder):
    """Strided convolutions, positions, and layers of self-attention.

    Args:
        input_dim: features per frame.
        options: sizes and options.

    Example:
        >>> import torch
        >>> encoder = TransformerSpeechEncoder(
        ...     3, TransformerSpeechEncoderOptions(model_dim=6, num_heads=2, hidden_dim=8, num_layers=2)
        ... )
        >>> encoded = encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool())
        >>> encoded.values.shape, list(encoded.attentions)
        (torch.Size([2, 3, 6]), ['encoder.0.self', 'encoder.1.self'])
    """

    def __init__(self, input_dim: int, options: TransformerSpeechEncoderOptions) -> None:
        super().__init__(input_dim, options.model_dim, options)
        self.positions = nn.Identity() if options.relative else SinusoidalPositions(options.model_dim)
        self.layers = nn.ModuleList(EncoderLayer(options.of_layer(number)) for number in range(options.num_layers))
        self.norm = final_norm(options)

    def _encode(self, x: Tensor, valid: Tensor) -> EncoderOutput:
        mask = source_mask(valid)
        x = self.positions(x)
        attentions: dict[str, Weights] = {}
        for number, layer in enumerate(self.layers):
            x, attentions[f"encoder.{number}.self"] = layer(x, mask)
        return EncoderOutput(self.norm(x).masked_fill(~valid.unsqueeze(-1), 0.0), valid, attentions=attentions)


SpeechEncoder = StridedSpeechEncoder | PyramidalSpeechEncoder
SPEECH_ENCODERS: dict[str, type[Any]] = {
    "convolutional": ConvolutionalSpeechEncoder,
    "dilated": DilatedSpeechEncoder,
    "pyramidal": PyramidalSpeechEncoder,
    "transformer": TransformerSpeechEncoder,
}


def build_speech_encoder(input_dim: int, options: SpeechEncoderOptions) -> SpeechEncoder:
    """Return a new encoder of the kind that the options name."""
    encoder: SpeechEncoder = SPEECH_ENCODERS[options.kind](input_dim, options)
    return encoder


def _pairs(values: Tensor) -> Tensor:
    """Return every two positions side by side; a last one without a partner has zeros beside it."""
    batch, length, size = values.shape
    if length % 2:
        values = torch.cat([values, values.new_zeros(batch, 1, size)], dim=1)
    return values.reshape(batch, -1, 2 * size)


def _check(owner: str, source: Tensor, valid: Tensor, input_dim: int) -> None:
    check_shape(owner, "source", source, "batch", "frame", input_dim)
    check_valid(owner, "source_valid", valid, source.shape[0], source.shape[1], source.device)
