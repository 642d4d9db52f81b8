"""Gated convolutions over time: one half of the channels gates the other half.

    [a; b] = W ∗ x + bias,   y = a ⊗ σ(b)

Paper: Convolutional Sequence to Sequence Learning (Gehring et al., 2017), sections 3.2, 3.4 and 3.5; Language
    Modeling with Gated Convolutional Networks (Dauphin et al., 2017), eq. 1 (gated linear units)
Names: X = inputs, W = conv, v([A B]) = output, k = kernel_size
Complexity: O(T · k · C · D); a step of decoding O(k · C · D), from a cache of the k − 1 inputs before it
Differs: weights are normalized (Salimans, Kingma, 2016) as in the authors' program: each output's direction and length
    are separate parameters; torch's `remove_parametrizations` joins them again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from foci.checks import check_shape
from foci.errors import ConfigError, check_positive
from foci.layers.dropout import Dropout

HALF_VARIANCE = math.sqrt(0.5)
"""Scales the sum of two independent terms back to the variance of one."""

LayerSizes = Sequence[tuple[int, int]]
"""``(width, kernel size)`` of each layer."""


class GatedConvolution(nn.Module):
    """A convolution over time with a gated linear unit, with as many outputs in time as inputs.

    Args:
        input_dim: channels of the inputs.
        output_dim: channels of the output.
        kernel_size: the number of inputs that an output depends on; odd unless causal.
        causal: depend on the same and the earlier inputs only; otherwise on as many on either side.
        dropout: share of the inputs dropped in training.

    Inputs that do not exist (before the first, after the last) are 0. Step by step, `step` takes the cache that the
    step before returned, and `empty_cache` at first.

    Example:
        >>> import torch
        >>> conv = GatedConvolution(3, 5, 2, causal=True)
        >>> inputs = torch.randn(1, 7, 3)
        >>> cache = conv.empty_cache(inputs[:, 0])
        >>> for t in range(7):
        ...     output, cache = conv.step(inputs[:, t], cache)
        >>> torch.allclose(output, conv(inputs)[:, -1], atol=1e-6)
        True
    """

    def __init__(
        self, input_dim: int, output_dim: int, kernel_size: int, *, causal: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_positive("GatedConvolution", input_dim=input_dim, output_dim=output_dim, kernel_size=kernel_size)
        if not causal and kernel_size % 2 == 0:
            raise ConfigError(
                f"GatedConvolution: kernel_size is {kernel_size}, expected an odd number where it is not causal, "
                "so that it has a center."
            )
        self.kernel_size = kernel_size
        self.causal = causal
        self.dropout = Dropout(dropout)
        conv = nn.Conv1d(input_dim, 2 * output_dim, kernel_size)
        # The gate halves the deviation of a signal, so the weights are initialized with twice the usual one.
        self.conv = normalized(conv, 2.0 * math.sqrt((1.0 - dropout) / (input_dim * kernel_size)))

    def forward(self, inputs: Float[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        """Return all outputs at once."""
        check_shape("GatedConvolution", "inputs", inputs, "batch", "time", self.conv.in_channels)
        before = self.kernel_size - 1 if self.causal else self.kernel_size // 2
        after = self.kernel_size - 1 - before
        if inputs.shape[1] == 0:
            return inputs.new_zeros(inputs.shape[0], 0, self.conv.out_channels // 2)
        padded = F.pad(self.dropout(inputs).mT, (before, after))
        return F.glu(self.conv(padded).mT, dim=-1)

    def empty_cache(self, inputs: Float[Tensor, "N C"]) -> Float[Tensor, "N C W"]:
        """Return the cache before the first input: ``kernel_size − 1`` zeros."""
        return inputs.new_zeros(*inputs.shape, self.kernel_size - 1)

    def step(
        self, inputs: Float[Tensor, "N C"], cache: Float[Tensor, "N C W"]
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N C W"]]:
        """Return the next output of a causal convolution and the next cache."""
        if not self.causal:
            raise ConfigError(
                "GatedConvolution: causal is False, and outputs depend on later inputs, expected True for steps. "
                "Build it with causal=True."
            )
        rows = inputs.shape[0]
        check_shape("GatedConvolution", "cache", cache, rows, self.conv.in_channels, self.kernel_size - 1)
        window = torch.cat([cache, self.dropout(inputs).unsqueeze(-1)], dim=-1)
        found = F.linear(window.flatten(1), self.conv.weight.flatten(1), self.conv.bias)
        return F.glu(found, dim=-1), window[..., 1:]


def normalized(layer: nn.Module, deviation: float) -> Any:
    """Return the layer with weight normalization; initial weights are normal with this deviation, biases 0."""
    nn.init.normal_(layer.weight, std=deviation)  # type: ignore[arg-type]
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return weight_norm(layer)


def normalized_linear(input_dim: int, output_dim: int, *, dropout: float = 0.0) -> nn.Linear:
    """Return a linear layer that keeps the variance of inputs of which this share was dropped before it."""
    layer: nn.Linear = normalized(nn.Linear(input_dim, output_dim), math.sqrt((1.0 - dropout) / input_dim))
    return layer


def layer_widths(layers: LayerSizes) -> list[tuple[int, int, int]]:
    """Return ``(width before, width, kernel size)`` of each layer; the first one's input has its own width."""
    before = [layers[0][0], *(width for width, _ in layers)]
    return [(previous, width, kernel) for previous, (width, kernel) in zip(before, layers)]


def scale_gradient(tensor: Float[Tensor, "..."], factor: float) -> Float[Tensor, "..."]:
    """Return the same tensor, with its gradient multiplied by ``factor``.

    Example:
        >>> import torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> scale_gradient(x, 0.5).sum().backward()
        >>> x.grad
        tensor([0.5000, 0.5000])
    """
    return tensor.detach() + factor * (tensor - tensor.detach())
