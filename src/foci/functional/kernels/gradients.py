"""Gradients of an operator's plain form, where the C++ kernel has none of its own or is inactive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from foci.torch_private import record_inside_operator


def plain_gradients(
    plain: Callable[..., Any], tensors: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """Return the gradients of ``plain(*tensors)``, contiguous; for use inside an operator.

    Args:
        plain: returns one tensor or several.
        tensors: every one gets a gradient.
        grads: one for each result, None for zeros.
    """
    with record_inside_operator(), torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        found = differentiate(plain, leaves, grads, create_graph=False)
    return tuple(one.contiguous() for one in found if one is not None)  # as declared to tracers


def differentiate(
    plain: Callable[..., Any], tensors: Sequence[Tensor], grads: Sequence[Tensor | None], *, create_graph: bool
) -> tuple[Tensor | None, ...]:
    """Return a gradient for each tensor that requires one, None for the others.

    With ``create_graph`` the gradients can be differentiated again. A tensor may depend on another one, as the state of
    a step does on the keys: the gradient of each is taken with the others held fixed, as that of an operator is.
    """
    # Aliases, for no other tensor depends on them.
    tensors = [tensor.view_as(tensor) if tensor.requires_grad else tensor for tensor in tensors]
    results = plain(*tensors)
    results = (results,) if isinstance(results, Tensor) else results
    pairs = [(result, grad) for result, grad in zip(results, grads) if grad is not None and result.requires_grad]
    found = iter(
        torch.autograd.grad(
            [result for result, _ in pairs],
            [tensor for tensor in tensors if tensor.requires_grad],
            [grad for _, grad in pairs],
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )
    )
    return tuple(next(found) if tensor.requires_grad else None for tensor in tensors)
