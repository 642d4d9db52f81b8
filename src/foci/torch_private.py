"""The parts of torch without a public name that foci relies on, each behind one function.

A new version of torch may change them. tests/test_torch_private.py checks each by its behavior, so that a failing test
names what has to be replaced here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.autograd import forward_ad
from torch.nn.modules import module as all_modules
from torch.overrides import _get_current_function_mode
from torch.utils._pytree import _register_namedtuple


def has_forward_hooks(module: nn.Module) -> bool:
    """Return whether a hook is called before or after this module's forward pass."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def has_global_forward_hooks() -> bool:
    """Return whether a hook is called before or after the forward pass of every module."""
    return bool(all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks)


def submodules(module: nn.Module) -> dict[str, Any]:
    """Return the modules of a module by name; as an attribute each takes ten times as long, half a microsecond."""
    return module._modules


def blocked_linear(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor] | None:
    """Return ``x Wᵀ + b`` with the weight reordered into oneDNN's blocks for this number of rows, None without oneDNN.

    torch.compile does the same for frozen weights (inductor's weight prepacking); there is no public function.
    """
    if not torch.backends.mkldnn.is_available():
        return None
    blocks = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    multiply: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: multiply(x, blocks, bias, "none", [], "")


def dynamic_quantized_linear(x: Tensor, packed: Any) -> Tensor:
    """Return the product with a packed weight in 8-bit integers; the range of x is reduced to 7 bits.

    The operator is called directly: torch.ops looks for fake tensors first, which takes as long as a small product.
    """
    output: Tensor = torch.ops.quantized.linear_dynamic.default._op(x, packed, True)
    return output


def quantized_per_row(numbers: Tensor, scales: Tensor) -> Tensor:
    """Return the quantized matrix of these integers with one scale per row and no zero points."""
    quantized: Tensor = torch._make_per_channel_quantized_tensor(numbers, scales, torch.zeros_like(scales).long(), 0)
    return quantized


def forget_hook_with_kwargs(number: int) -> None:
    """Take a hook for all modules out of torch's table of hooks with keyword arguments, which its handle leaves in."""
    all_modules._global_forward_hooks_with_kwargs.pop(number, None)


def current_function_mode() -> Any:
    """Return the innermost `TorchFunctionMode` that is on, None without any."""
    return _get_current_function_mode()


def backward_pass() -> int:
    """Return the number of the backward pass that autograd runs in this thread, -1 outside of one."""
    number: int = torch._C._current_graph_task_id()
    return number


def is_backward_running() -> bool:
    """Return whether autograd runs a backward pass in this thread."""
    return backward_pass() != -1


def runs_in_this_pass(node: Any) -> bool:
    """Return whether the current backward pass runs this node of the graph; others have nothing that is asked for."""
    return bool(torch._C._will_engine_execute_node(node))


def has_dispatch_modes() -> bool:
    """Return whether a `TorchDispatchMode` is on, such as the one that makes fake tensors."""
    return torch._C._len_torch_dispatch_stack() > 0


def is_transformed() -> bool:
    """Return whether `torch.func`, forward-mode differentiation or `torch.jit.trace` is active."""
    return bool(
        torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0 or torch._C._get_tracing_state()
    )


def transform_level() -> int:
    """Return the level of the innermost transform of `torch.func` that runs, 0 outside of all."""
    return torch._C._functorch.maybe_current_level() or 0


def outside_transforms() -> AbstractContextManager[Any]:
    """Compute as outside of all transforms of `torch.func`, whichever run; nothing of theirs may be used within."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    guard: AbstractContextManager[Any] = temporarily_clear_interpreter_stack()
    return guard


def by_position(
    function: Callable[..., Tensor], given: tuple[Tensor, ...], places: tuple[Tensor, ...], more: tuple[Any, ...]
) -> Tensor:
    """Return a function of `flex_attention` of every entry, head, query and key, whose numbers are ``places``.

    Args:
        function: called as ``function(*given, batch, head, query, key, *more)`` for one position.
        given: tensors ``(B, H, L, S)``.
        places: the numbers of the entries, heads, queries and keys.
        more: what the function is called with besides.
    """
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    for axis in reversed(range(len(places))):
        mapped = tuple(0 if axis == number else None for number in range(len(places)))
        function = torch.vmap(function, in_dims=(*(0 for _ in given), *mapped, *(None for _ in more)))
    with TransformGetItemToIndex():  # a function may look up its numbers in a table
        found: Tensor = function(*given, *places, *more)
    return found


def is_flex_attention(function: Any) -> bool:
    """Return whether this is the operator behind `flex_attention`, which alone is visible to modes."""
    return isinstance(function, HigherOrderOperator) and function.name() == "flex_attention"


def level_of(tensor: Tensor) -> int | None:
    """Return the level of the transform of `torch.func` that the tensor belongs to, None if to none.

    Below 0 it is a transform for derivatives that is over.
    """
    level = torch._C._functorch.maybe_get_level(tensor)
    return None if level == -1 else level


def without_transform(tensor: Tensor) -> tuple[Tensor, int | None]:
    """Return what the tensor's transform sees as this tensor, and which axis of it `vmap` maps over, None for none."""
    functorch = torch._C._functorch
    axis = functorch.maybe_get_bdim(tensor) if functorch.is_batchedtensor(tensor) else None
    return functorch.get_unwrapped(tensor), axis


def record_inside_operator() -> AbstractContextManager[Any]:
    """Let autograd record inside a custom operator, where it does not otherwise."""
    guard: AbstractContextManager[Any] = torch._C._SetExcludeDispatchKeyGuard(
        torch._C.DispatchKey.AutogradFunctionality, False
    )
    return guard


def statically_true(condition: bool) -> bool:
    """Return whether a comparison of symbolic sizes holds for all of them."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def scan(step: Callable[..., Any], carry: Any, inputs: Any) -> Any:
    """Run ``step(carry, inputs at t)`` over axis 0 of the inputs as one operator of an exported program."""
    from torch._higher_order_ops.scan import scan as scan_operator

    if torch.compiler.is_dynamo_compiling():
        return scan_operator(step, carry, inputs)
    # scan compiles the step. When a later scan has another number of inputs, torch would take that number for a
    # dynamic size, and the exported program would not pass torch's own checks.
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        return scan_operator(step, carry, inputs)


def export_namedtuple(kind: type[Any], name: str) -> None:
    """Let exported programs take and return this NamedTuple, saved under ``name``."""
    _register_namedtuple(kind, serialized_type_name=name)
