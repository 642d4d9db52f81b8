"""Encoders for speech: fewer and fewer frames, each of which has heard more and more.

    conv          strided convolutions, each halving the frames; then a bidirectional GRU or LSTM
    dilated       strided convolutions; then dilated ones, h^j = h^{j−1} + relu(norm(conv(h^{j−1}))), over more and more
                  cells
    pyramid       bidirectional LSTM layers; between two of them every two frames become one:
                  h_i^j = BLSTM(h_{i−1}^j, [h_{2i}^{j−1}; h_{2i+1}^{j−1}])
    transformer   strided convolutions, sinusoidal positions, then layers of self-attention

Paper: Listen, Attend and Spell (Chan et al., 2016), eq. 5 (pyramid); Attention-Based Models for Speech Recognition
    (Chorowski et al., 2015), section 3 (BiGRU); Speech-Transformer (Dong, Xu, Xu, 2018), section 3 (transformer);
    An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence Modeling (Bai, Kolter, Koltun,
    2018), section 3 (dilated)
Names: x = features, h = values
Complexity: O(T · D²) for recurrent layers and convolutions; O((T / reduction)² · D) for self-attention
Differs: Chorowski's encoder reads all frames, Chan's last three layers reduce them by 8; here ``reduction`` says by how
    many. Convolutions run over time alone, with the features as channels. The dilated ones look to both sides.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_shape, check_valid
from foci.errors import ConfigError, check_positive, unknown_name
from foci.layers.dropout import Dropout
from foci.layers.interfaces import EncoderOutput, source_mask
from foci.layers.positions import SinusoidalPositions
from foci.layers.recurrent import RecurrentEncoder, State
from foci.layers.transformer import Block, EncoderLayer
from foci.weights import Weights

KINDS = ("conv", "dilated", "pyramid", "transformer")


def reduced(valid: Bool[Tensor, "B T"]) -> Bool[Tensor, "B S"]:
    """Return which cells exist after every two frames became one, rounded up."""
    return valid[:, ::2]


class StridedConvolutions(nn.Module):
    """Convolutions over time with stride 2, each followed by LayerNorm and ReLU; padding stays 0.

    Args:
        input_dim: features per frame.
        output_dim: size of the cells.
        reduction: frames per cell, a power of 2.
        dropout: of each layer's output.

    Example:
        >>> import torch
        >>> cells, valid = StridedConvolutions(3, 5, reduction=4)(torch.ones(2, 11, 3), torch.ones(2, 11).bool())
        >>> cells.shape, valid.shape
        (torch.Size([2, 3, 5]), torch.Size([2, 3]))
    """

    def __init__(self, input_dim: int, output_dim: int, *, reduction: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        halvings = _halvings("StridedConvolutions", reduction)
        sizes = [input_dim, *[output_dim] * max(halvings, 1)]
        stride = 2 if halvings else 1
        self.layers = nn.ModuleList(
            nn.Conv1d(before, after, 3, stride=stride, padding=1) for before, after in pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(output_dim) for _ in self.layers)
        self.stride = stride
        self.dropout = Dropout(dropout)

    def forward(
        self, features: Float[Tensor, "B T F"], valid: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "B S"]]:
        """Return the cells, and which of them exist."""
        x = features.masked_fill(~valid.unsqueeze(-1), 0.0)
        for layer, norm in zip(self.layers, self.norms):
            valid = reduced(valid) if self.stride == 2 else valid
            # Normalized: without it the signal is so small after two layers that a recurrent network starts slowly.
            x = torch.relu(norm(layer(x.transpose(1, 2)).transpose(1, 2)))
            # A bias makes padding other than 0, which the next layer would read at the last frames.
            x = self.dropout(x).masked_fill(~valid.unsqueeze(-1), 0.0)
        return x, valid


class ConvolutionalSpeechEncoder(nn.Module):
    """Strided convolutions and a bidirectional recurrent network; the summary is its final state.

    Args:
        input_dim: features per frame.
        output_dim: size of the cells, both directions together.
        num_layers: recurrent layers.
        reduction: frames per cell, a power of 2.
        cell: "lstm" or "gru".
        dropout: of convolutions and between recurrent layers.

    Example:
        >>> import torch
        >>> encoder = ConvolutionalSpeechEncoder(3, output_dim=6)
        >>> encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool()).values.shape
        torch.Size([2, 3, 6])
    """

    def __init__(
        self,
        input_dim: int,
        *,
        output_dim: int = 256,
        num_layers: int = 2,
        reduction: int = 4,
        cell: str = "gru",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive("ConvolutionalSpeechEncoder", input_dim=input_dim, output_dim=output_dim)
        self.input_dim, self.output_dim, self.reduction = input_dim, output_dim, reduction
        self.convolutions = StridedConvolutions(input_dim, output_dim, reduction=reduction, dropout=dropout)
        self.layers = RecurrentEncoder(output_dim, output_dim, cell=cell, num_layers=num_layers, dropout=dropout)

    def forward(self, source: Float[Tensor, "B T F"], valid: Bool[Tensor, "B T"]) -> EncoderOutput:
        """Encode a batch of features; ``valid`` says which frames exist."""
        _check("ConvolutionalSpeechEncoder", source, valid, self.input_dim)
        cells, valid = self.convolutions(source, valid)
        values, summary = self.layers(cells, valid)
        return EncoderOutput(values, valid, summary)


class DilatedSpeechEncoder(nn.Module):
    """Strided convolutions and dilated ones; they learn long sounds in fewer steps than a recurrence.

    Each dilated convolution reads five cells, 1, 2, 4, 8, then again 1, 2, … apart. The first four together read 30
    cells on each side. There is no summary.

    Args:
        input_dim: features per frame.
        output_dim: size of the cells.
        num_layers: dilated convolutions.
        reduction: frames per cell, a power of 2.
        dropout: of each layer's output.

    Example:
        >>> import torch
        >>> encoder = DilatedSpeechEncoder(3, output_dim=6)
        >>> encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool()).values.shape
        torch.Size([2, 3, 6])
    """

    def __init__(
        self,
        input_dim: int,
        *,
        output_dim: int = 256,
        num_layers: int = 4,
        reduction: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive("DilatedSpeechEncoder", input_dim=input_dim, output_dim=output_dim, num_layers=num_layers)
        self.input_dim, self.output_dim, self.reduction = input_dim, output_dim, reduction
        self.convolutions = StridedConvolutions(input_dim, output_dim, reduction=reduction, dropout=dropout)
        dilations = [1 << layer % 4 for layer in range(num_layers)]
        self.layers = nn.ModuleList(
            nn.Conv1d(output_dim, output_dim, 5, dilation=dilation, padding=2 * dilation) for dilation in dilations
        )
        self.norms = nn.ModuleList(nn.LayerNorm(output_dim) for _ in dilations)
        self.dropout = Dropout(dropout)

    def forward(self, source: Float[Tensor, "B T F"], valid: Bool[Tensor, "B T"]) -> EncoderOutput:
        """Encode a batch of features; ``valid`` says which frames exist."""
        _check("DilatedSpeechEncoder", source, valid, self.input_dim)
        cells, valid = self.convolutions(source, valid)
        closed = ~valid.unsqueeze(-1)
        for layer, norm in zip(self.layers, self.norms):
            heard = torch.relu(norm(layer(cells.transpose(1, 2)).transpose(1, 2)))
            cells = (cells + self.dropout(heard)).masked_fill(closed, 0.0)
        return EncoderOutput(cells, valid)


class PyramidalSpeechEncoder(nn.Module):
    """Bidirectional recurrent layers between which every two cells become one; the summary is the last layer's state.

    Args:
        input_dim: features per frame.
        output_dim: size of the cells, both directions together.
        num_layers: all layers; the first reads all frames, and there must be one more for each halving.
        reduction: frames per cell, a power of 2.
        cell: "lstm" or "gru".
        dropout: between layers.

    Example:
        >>> import torch
        >>> encoder = PyramidalSpeechEncoder(3, output_dim=6, num_layers=3)
        >>> encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool()).values.shape
        torch.Size([2, 3, 6])
    """

    def __init__(
        self,
        input_dim: int,
        *,
        output_dim: int = 256,
        num_layers: int = 3,
        reduction: int = 4,
        cell: str = "lstm",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive("PyramidalSpeechEncoder", input_dim=input_dim, output_dim=output_dim)
        self.halvings = _halvings("PyramidalSpeechEncoder", reduction)
        if num_layers <= self.halvings:
            raise ConfigError(
                f"PyramidalSpeechEncoder: num_layers is {num_layers} with a reduction by {reduction}, expected at "
                f"least {self.halvings + 1}: one that reads all frames and one for each halving."
            )
        self.input_dim, self.output_dim, self.reduction = input_dim, output_dim, reduction
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            RecurrentEncoder(
                input_dim if layer == 0 else output_dim * (2 if layer <= self.halvings else 1), output_dim, cell=cell
            )
            for layer in range(num_layers)
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


class TransformerSpeechEncoder(nn.Module):
    """Strided convolutions, positions, and layers of self-attention.

    Args:
        input_dim: features per frame.
        block: the options of all layers.
        num_layers: layers of self-attention.
        reduction: frames per cell, a power of 2.

    Example:
        >>> import torch
        >>> encoder = TransformerSpeechEncoder(3, Block(model_dim=6, num_heads=2, hidden_dim=8), num_layers=2)
        >>> encoded = encoder(torch.ones(2, 11, 3), torch.ones(2, 11).bool())
        >>> encoded.values.shape, list(encoded.attentions)
        (torch.Size([2, 3, 6]), ['encoder.0.self', 'encoder.1.self'])
    """

    def __init__(self, input_dim: int, block: Block, *, num_layers: int = 4, reduction: int = 4) -> None:
        super().__init__()
        check_positive("TransformerSpeechEncoder", input_dim=input_dim, num_layers=num_layers)
        self.input_dim, self.output_dim, self.reduction = input_dim, block.model_dim, reduction
        self.convolutions = StridedConvolutions(input_dim, block.model_dim, reduction=reduction, dropout=block.dropout)
        self.positions = SinusoidalPositions(block.model_dim)
        self.layers = nn.ModuleList(EncoderLayer(block) for _ in range(num_layers))
        self.norm = nn.LayerNorm(block.model_dim) if block.norm == "pre" else nn.Identity()

    def forward(self, source: Float[Tensor, "B T F"], valid: Bool[Tensor, "B T"]) -> EncoderOutput:
        """Encode a batch of features; ``valid`` says which frames exist."""
        _check("TransformerSpeechEncoder", source, valid, self.input_dim)
        x, valid = self.convolutions(source, valid)
        mask = source_mask(valid)
        x = self.positions(x)
        attentions: dict[str, Weights] = {}
        for number, layer in enumerate(self.layers):
            x, attentions[f"encoder.{number}.self"] = layer(x, mask)
        return EncoderOutput(self.norm(x).masked_fill(~valid.unsqueeze(-1), 0.0), valid, attentions=attentions)


SpeechEncoder = ConvolutionalSpeechEncoder | DilatedSpeechEncoder | PyramidalSpeechEncoder | TransformerSpeechEncoder


def speech_encoder(
    kind: str,
    input_dim: int,
    *,
    output_dim: int,
    num_layers: int,
    reduction: int,
    cell: str,
    num_heads: int,
    dropout: float,
) -> SpeechEncoder:
    """Return a new encoder of one of the kinds, see `KINDS`.

    ``num_heads`` is for "transformer", ``cell`` for "conv" and "pyramid".
    """
    if kind == "conv":
        return ConvolutionalSpeechEncoder(
            input_dim, output_dim=output_dim, num_layers=num_layers, reduction=reduction, cell=cell, dropout=dropout
        )
    if kind == "dilated":
        return DilatedSpeechEncoder(
            input_dim, output_dim=output_dim, num_layers=num_layers, reduction=reduction, dropout=dropout
        )
    if kind == "pyramid":
        return PyramidalSpeechEncoder(
            input_dim, output_dim=output_dim, num_layers=num_layers, reduction=reduction, cell=cell, dropout=dropout
        )
    if kind == "transformer":
        block = Block(model_dim=output_dim, num_heads=num_heads, hidden_dim=4 * output_dim, norm="pre", dropout=dropout)
        return TransformerSpeechEncoder(input_dim, block, num_layers=num_layers, reduction=reduction)
    raise unknown_name("speech encoder", kind, KINDS)


def _pairs(cells: Tensor) -> Tensor:
    """Return every two cells side by side; a last one without a partner has zeros beside it."""
    batch, length, size = cells.shape
    if length % 2:
        cells = torch.cat([cells, cells.new_zeros(batch, 1, size)], dim=1)
    return cells.reshape(batch, -1, 2 * size)


def _halvings(owner: str, reduction: int) -> int:
    if reduction < 1 or reduction & (reduction - 1):
        raise ConfigError(f"{owner}: reduction is {reduction}, expected a power of 2: 1, 2, 4, 8.")
    return reduction.bit_length() - 1


def _check(owner: str, source: Tensor, valid: Tensor, input_dim: int) -> None:
    check_shape(owner, "source", source, "batch", "frame", input_dim)
    check_valid(owner, "source_valid", valid, source.shape[0], source.shape[1], source.device)
