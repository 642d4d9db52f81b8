"""The parts of torch without a public name that foci's layers rely on, each behind one function.

A new version of torch may change them. tests/test_torch_private.py checks each by its behaviour, so that a failing test
names what has to be replaced here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether a hook is called before or after this module's forward pass; torch has no public question for it."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def has_global_forward_hooks() -> bool:
    """Whether a hook is called before or after the forward pass of every module."""
    return bool(all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks)


def blocked_linear(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor] | None:
    """Return ``x Wᵀ + b`` with the weight reordered into oneDNN's blocks for this number of rows, None without oneDNN.

    torch.compile does the same for frozen weights (inductor's weight prepacking); there is no public function.
    """
    if not torch.backends.mkldnn.is_available():
        return None
    blocks = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    multiply: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: multiply(x, blocks, bias, "none", [], "")


def dynamic_quantised_linear(x: Tensor, packed: Any) -> Tensor:
    """Return the product with a packed weight in 8-bit integers; the range of x is reduced to 7 bits.

    The operator itself is called: torch.ops would look for fake tensors first, for as long as a small product takes.
    """
    output: Tensor = torch.ops.quantized.linear_dynamic.default._op(x, packed, True)
    return output


def quantised_per_row(numbers: Tensor, scales: Tensor) -> Tensor:
    """Return the quantised matrix of these integers with one scale per row and no zero points."""
    quantised: Tensor = torch._make_per_channel_quantized_tensor(numbers, scales, torch.zeros_like(scales).long(), 0)
    return quantised
