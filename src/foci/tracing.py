"""Code that is traced by `torch.compile` and `torch.export` without fixing the sizes of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.export import register_dataclass
from torch.nn import Parameter

from foci import torch_private

Kind = TypeVar("Kind")
Tensors = tuple[Tensor, ...]


def known_true(condition: bool) -> bool:
    """Return whether ``condition``, a comparison of sizes, holds; inside a trace, whether it holds for every size.

    A branch on a symbolic size makes the traced program valid on one side of the branch only: `torch.compile` compiles
    again for the other side, and `torch.export` refuses. Code that is correct on both sides calls this instead.
    """
    if not torch.compiler.is_compiling():
        return condition
    return torch_private.statically_true(condition)


def is_traced() -> bool:
    """Return whether operations are traced or faked, so that a call outside of torch would be lost."""
    return torch.compiler.is_compiling() or torch_private.has_dispatch_modes()


def is_watched(*tensors: Tensor) -> bool:
    """Return whether something needs plain torch operations: a transform, a tensor subclass, forward mode, a trace."""
    for tensor in tensors:  # a loop: this runs at every attention
        if type(tensor) is not Tensor and type(tensor) is not Parameter:
            return True
    return torch_private.is_transformed()


def run_steps(
    step: Callable[[Tensor, Tensors], tuple[Tensor, Tensors]], carry: Tensor, inputs: Tensors
) -> tuple[Tensor, Tensors]:
    """Run ``step(carry, inputs at t) -> (carry, outputs at t)`` over axis 1 of the inputs, one position at a time.

    Axis 1 of the inputs and outputs of a step has size 1; the outputs are concatenated along it. It is a Python loop
    and, in `torch.export`, one `scan` operator, so that the number of steps stays dynamic.

    Args:
        step: the function to run at each position.
        carry: the initial carry.
        inputs: tensors ``(B, L, …)``, L at least 1.

    Returns:
        The final carry, and the outputs of all steps.
    """
    if torch.compiler.is_exporting():
        return _scan(step, carry, inputs)
    collected = []
    # The gradient of a split is one cat; that of a slice is as large as the whole input, at every step.
    for at in zip(*(one.split(1, dim=1) for one in inputs)):
        carry, outputs = step(carry, at)
        collected.append(outputs)
    return carry, tuple(torch.cat(one, dim=1) for one in zip(*collected))


def _scan(
    step: Callable[[Tensor, Tensors], tuple[Tensor, Tensors]], carry: Tensor, inputs: Tensors
) -> tuple[Tensor, Tensors]:
    def scan_step(carry: Tensor, at: Tensors) -> tuple[Tensor, Tensors]:
        carry, outputs = step(carry, tuple(one.unsqueeze(1) for one in at))
        # Results of scan must share no memory with each other.
        return carry.clone(), tuple(output.squeeze(1).clone() for output in outputs)

    carry, stacked = torch_private.scan(scan_step, carry, tuple(one.movedim(1, 0) for one in inputs))
    return carry, tuple(one.movedim(0, 1) for one in stacked)


def exportable(kind: type[Kind]) -> type[Kind]:
    """Let `torch.export` take, return and save a dataclass or NamedTuple of tensors, and `torch.load` read it."""
    name = f"foci.{kind.__name__}"
    torch.serialization.add_safe_globals([kind])
    if issubclass(kind, tuple):
        torch_private.export_namedtuple(kind, name)
    else:
        register_dataclass(kind, serialized_type_name=name)
    return kind
