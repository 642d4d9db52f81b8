"""The gradients of a source that many steps read, added up where they are computed.

A decoder reads the same keys and values at every step. Autograd would let each step write a gradient as large as the
source and add it to the others: more memory traffic than computation. `share` returns an alias of the keys for the
steps to read. In a backward pass they add their gradients of the keys to one buffer, keep weights and output gradients
(the gradient of the values is one matrix product of those), and return None for both; the alias's node, which autograd
runs after all of them, returns the sums. The buffers belong to one backward pass, so that a pass that failed leaves
nothing behind for the next. Only steps should use the alias: a gradient with respect to it is not the whole one.

The alias serves only as long as its keys and values are what they were. Once one has been changed in place or its
gradients were switched on or off, autograd's path to it is another one, and steps are to pass the keys themselves.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foci.torch_private import backward_pass, runs_in_this_pass


class Sums:
    """What the steps of one backward pass have added up: the keys' gradient, and what the values' is computed from."""

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self._weights: list[Tensor] = []
        self._outputs: list[Tensor] = []

    def add_reading(self, weights: Tensor, output_grad: Tensor) -> None:
        """Note that a step read the values with these weights ``(B, L, S)``."""
        self._weights.append(weights)
        self._outputs.append(output_grad)

    def value(self) -> Tensor | None:
        """Return the gradient of the values, None where no step read them."""
        if not self._weights:
            return None
        return torch.cat(self._weights, dim=1).mT @ torch.cat(self._outputs, dim=1)


class _Given(NamedTuple):
    """A tensor as it was given to `share`; by a weak reference, for a loss that is kept keeps the graph's nodes too."""

    tensor: weakref.ref[Tensor]
    version: int
    requires_grad: bool

    @classmethod
    def of(cls, tensor: Tensor) -> _Given:
        return cls(weakref.ref(tensor), _version(tensor), tensor.requires_grad)

    def is_still(self, tensor: Tensor) -> bool:
        same = self.tensor() is tensor and self.requires_grad == tensor.requires_grad
        return same and self.version == _version(tensor)


def _version(tensor: Tensor) -> int:
    """Return how often the tensor was changed in place, 0 for one of inference mode, which has no count."""
    return 0 if tensor.is_inference() else tensor._version


def share(key: Tensor, value: Tensor) -> Tensor | None:
    """Return the keys as an alias for many steps to read, None where no gradients are recorded."""
    if not torch.is_grad_enabled() or not (key.requires_grad or value.requires_grad):
        return None
    alias: Tensor = _Shared.apply(key, value)  # type: ignore[no-untyped-call]
    return alias


def owns(alias: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether the alias is one of this key and this value, as they are now."""
    node: Any = alias.grad_fn
    if not isinstance(node, _Shared._backward_cls):
        return False
    as_given: tuple[_Given, _Given] = node.source  # type: ignore[attr-defined]
    same_numbers = alias.data_ptr() == key.data_ptr()  # unless someone assigned to key.data
    return same_numbers and as_given[0].is_still(key) and as_given[1].is_still(value)


def sums_of(node: Any) -> Sums | None:
    """Return the sums of the alias with this node in the current backward pass; None where nothing needs them."""
    if not runs_in_this_pass(node):
        return None
    found: Sums = node.sums.setdefault(backward_pass(), Sums())
    return found


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, key: Tensor, value: Tensor) -> Tensor:
        ctx.source = _Given.of(key), _Given.of(value)
        ctx.sums = {}
        ctx.set_materialize_grads(False)
        return key.detach()  # a view would refuse to be used once the keys were changed in place

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        sums = ctx.sums.pop(backward_pass(), None)
        if sums is None:
            return grad, None
        key = sums.key if grad is None else grad if sums.key is None else sums.key + grad
        return key, sums.value() if ctx.needs_input_grad[1] else None
