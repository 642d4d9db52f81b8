"""Linear layers in 8-bit integers, for faster decoding on a CPU.

    W ≈ s_o · Q,  Q ∈ [−127, 127],  s_o = max|W_o| / 127 of each output;   x ≈ s_x · (q − z), s_x and z of each call
    y = s_o s_x · (q − z) Qᵀ + b

Weights are rounded once, inputs in every call; sums are exact integers. Only layers with large weights are faster: for
small ones rounding the input costs more than the integers save, and they stay in floating point.

Paper: Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference (Jacob et al.,
    2018), eqs. 1-4
Names: S = scale, Z = zero point
Complexity: O(B · D_in · D_out), in integers
Differs: weights have one scale per output and no zero point; the range of inputs is taken in each call (dynamic), to 7
    bits, since processors without VNNI add two products in 16 bits.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape
from foci.errors import ConfigError
from foci.torch_private import dynamic_quantized_linear, quantized_per_row

Module = TypeVar("Module", bound=nn.Module)

LEAST_WEIGHTS = 1 << 17
"""Layers with fewer weights stay in floating point: 128×256 is slower in integers, 512×512 faster (measured)."""


class QuantizedLinear(nn.Module):
    """An `nn.Linear` whose weights are 8-bit integers, for inference only: it has no parameters and no gradients.

    Example:
        >>> import torch
        >>> layer = nn.Linear(3, 2)
        >>> QuantizedLinear(layer)(torch.zeros(1, 3)).equal(layer(torch.zeros(1, 3)))
        True
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach()
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            raise ConfigError(
                f"QuantizedLinear: the weight is {weight.dtype} on {weight.device}, expected torch.float32 on cpu."
            )
        self.in_features = layer.in_features
        self.out_features = layer.out_features
        scales = weight.abs().amax(dim=1).clamp_min(1e-12).double() / 127
        with warnings.catch_warnings():  # torch plans to move these functions elsewhere; nothing else is as fast yet
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(weight, scales, torch.zeros_like(scales).long(), 0, torch.qint8)
            bias = None if layer.bias is None else layer.bias.detach()
            self._packed: Any = torch.ops.quantized.linear_prepack(rounded, bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... O"]:
        """Return ``x Wᵀ + b``, to 8 bits."""
        check_shape("QuantizedLinear", "x", x, "…", self.in_features)
        return dynamic_quantized_linear(x, self._packed)

    def extra_repr(self) -> str:
        """Return the sizes, for printing."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def side_by_side(layers: Sequence[QuantizedLinear]) -> Callable[[Tensor], Tensor]:
    """Return a function that computes the concatenated outputs of layers with the same input, bit for bit."""
    first, *others = layers
    packed = first._packed
    if others:
        if first not in _JOINED or _JOINED[first][0] != others:
            _JOINED[first] = (others, _joined(layers))
        packed = _JOINED[first][1]
    return lambda x: dynamic_quantized_linear(x, packed)


_JOINED: WeakKeyDictionary[QuantizedLinear, tuple[list[QuantizedLinear], Any]] = WeakKeyDictionary()
"""The joined weights by the first of the layers; joining takes longer than a short search."""


def _joined(layers: Sequence[QuantizedLinear]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights, biases = zip(*(torch.ops.quantized.linear_unpack(layer._packed) for layer in layers))
        numbers = torch.cat([weight.int_repr() for weight in weights])
        scales = torch.cat([weight.q_per_channel_scales() for weight in weights])
        weight = quantized_per_row(numbers, scales)
        if all(bias is None for bias in biases):
            return torch.ops.quantized.linear_prepack(weight, None)
        sizes = [layer.out_features for layer in layers]
        filled = [torch.zeros(size) if bias is None else bias for bias, size in zip(biases, sizes)]
        return torch.ops.quantized.linear_prepack(weight, torch.cat(filled))


def quantize(model: Module, *, least_weights: int = LEAST_WEIGHTS) -> Module:
    """Return a copy of the model for decoding on a CPU, in ``eval()``, its large linear layers in 8-bit integers.

    The copy shares all other parameters with the model. Save the model, not the copy: packed integers have no
    state_dict.
    """
    if torch.backends.quantized.engine == "none":
        raise ConfigError("quantize: this build of torch has no 8-bit kernels, expected one for a CPU.")
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    made = copy.deepcopy(model, shared)
    layers: dict[int, nn.Module] = {}
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.numel() >= least_weights:
                setattr(parent, name, layers.setdefault(id(child), QuantizedLinear(child)))
    return made.eval()
