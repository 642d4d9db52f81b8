"""Products with large weights of a few rows at a time, as decoding takes them: weights in the order they are read in.

    x [W₁; W₂; …]ᵀ + [b₁; b₂; …]     layers that read the same rows are one product

One row is fastest where the processor can add up whole rows of a weight, which is then kept transposed; a few rows in
the blocks that oneDNN reorders a weight into; many rows as the weight stands. Measured with a weight 512×8000 and one
thread: 1.9 times as fast as `F.linear` for one row, 2.2 times for five, 1.25 times for 32, level at 160.

Complexity: packing O(D_in · D_out) once, a product O(rows · D_in · D_out)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foci.layers.incremental.quantised_linear import QuantisedLinear, side_by_side

Product = Callable[[Tensor], Tensor]
"""From rows ``(N, D_in)`` to rows ``(N, D_out)``."""

_MANY = 64
"""Rows from which oneDNN's blocks gain too little to be worth the reordering."""

_LARGE = 1 << 18
"""Weights from which they gain at all: a call of oneDNN costs 30 µs more, which 256×768 does not win back."""


def pack(layers: Sequence[nn.Linear | QuantisedLinear], rows: int) -> Product:
    """The outputs of these layers side by side, fast for about so many rows. Later changes of the weights are not seen.

    Example:
        >>> import torch
        >>> left, right = nn.Linear(3, 2), nn.Linear(3, 5)
        >>> with torch.no_grad():
        ...     pack([left, right], rows=1)(torch.ones(1, 3)).shape
        torch.Size([1, 7])
    """
    quantised = [layer for layer in layers if isinstance(layer, QuantisedLinear)]
    if len(quantised) == len(layers):
        return side_by_side(quantised)
    if quantised:
        return lambda x: torch.cat([layer(x) for layer in layers], dim=-1)
    plain = [layer for layer in layers if isinstance(layer, nn.Linear)]
    weight, bias = _joined([layer.weight for layer in plain]), _joined_biases(plain)
    if rows == 1 and weight.shape[0] > weight.shape[1]:
        columns = weight.t().contiguous()
        return lambda x: torch.mm(x, columns) if bias is None else torch.addmm(bias, x, columns)
    suits = 1 < rows < _MANY and weight.numel() >= _LARGE and weight.dtype == torch.float32
    if suits and torch.backends.mkldnn.is_available():
        blocks = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        multiply: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
        return lambda x: multiply(x, blocks, bias, "none", [], "")
    return lambda x: F.linear(x, weight, bias)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].detach() if len(parts) == 1 else torch.cat([part.detach() for part in parts])


def _joined_biases(layers: Sequence[nn.Linear]) -> Tensor | None:
    if all(layer.bias is None for layer in layers):
        return None
    return _joined(
        [layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers]
    )
