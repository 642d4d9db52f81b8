"""Models built without memory for their weights, which are initialized part by part afterwards.

Inside of `Deferred` new memory is on the device "meta", and every operation that would write to it is recorded, with
the state of the random generator before it. `Deferred.fill` repeats those operations for the weights of one module. The
values are those of the same model built at once, to the bit: every operation draws the numbers it would have drawn.

What depends on the values of weights cannot be recorded: torch raises an error, but `nn.init.trunc_normal_`,
`orthogonal_`, `sparse_` and `dirac_` silently do nothing on "meta". tests/training/test_deferred.py has all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from foci.errors import TrainingError


class _Call(NamedTuple):
    """An operation that makes ``results``, or else changes its arguments, and the generator's state before it."""

    operation: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    results: list[Tensor]
    generator: torch.Generator | None
    state: Tensor | None


class Deferred(TorchDispatchMode):
    """A block in which models are built without memory for their weights.

    Example:
        >>> with Deferred() as deferred:
        ...     _ = torch.manual_seed(1)
        ...     model = nn.Linear(2, 3)
        >>> model.weight.device.type
        'meta'
        >>> deferred.fill(model)
        >>> _ = torch.manual_seed(1)
        >>> torch.equal(model.weight, nn.Linear(2, 3).weight)
        True
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[_Call] = []
        self._writes: dict[int, list[int]] = {}  # the numbers of the calls that write to a memory

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation at once where its values are known, and record it where they are not."""
        options = dict(kwargs or {})
        if func is torch.ops.aten.empty.memory_format:
            return func(*args, **options | {"device": "meta"})
        given = [one for one in tree_leaves((args, options)) if isinstance(one, Tensor)]
        to_meta = torch.device(options.get("device") or "cpu").type == "meta"  # a known value becomes like the others
        if not to_meta and not any(one.is_meta for one in given):
            return func(*args, **options)
        generator = state = None
        if torch.Tag.nondeterministic_seeded in func.tags:
            generator = options.get("generator") or torch.default_generator
            state = generator.get_state()
            func(*tree_map_only(Tensor, _scratch, args), **options)  # so that the next operation draws the next numbers
        results: list[Tensor] = []
        changed = _changed(func, args, options)
        if changed:
            result = changed[0] if func._schema.returns else None
        else:
            meta_args, meta_options = tree_map_only(Tensor, lambda one: one.to("meta"), (args, options))
            result = func(*meta_args, **meta_options)
            results = tree_leaves(result)
        known = {*map(_memory, given)}
        written = {*map(_memory, changed)} or {*map(_memory, results)} - known  # without views
        for memory in written:
            self._writes.setdefault(memory, []).append(len(self._calls))
        if written:
            self._calls.append(_Call(func, args, options, results, generator, state))
        return result

    def fill(self, module: nn.Module) -> None:
        """Give the parameters and buffers of a module and its children their initial values."""
        filled: dict[int, Tensor] = {}  # tied ones stay tied
        for part in module.modules():
            for own in (part._parameters, part._buffers):
                for name, tensor in own.items():
                    if tensor is None or not tensor.is_meta:
                        continue
                    if id(tensor) not in filled:
                        value = self._value(tensor, len(self._calls))
                        is_parameter = isinstance(tensor, nn.Parameter)
                        filled[id(tensor)] = nn.Parameter(value, tensor.requires_grad) if is_parameter else value
                    own[name] = filled[id(tensor)]  # type: ignore[assignment]

    def _value(self, tensor: Tensor, end: int) -> Tensor:
        """Return the value of a tensor as it was before the call of this number."""
        memory = _memory(tensor)
        if memory not in self._writes:
            raise TrainingError(
                f"Deferred: a tensor of shape {tuple(tensor.shape)} has no initial values, expected an operation that "
                'gives it some. Some of torch.nn.init do nothing on the device "meta": use another, or strategy ddp.'
            )
        storage = torch.UntypedStorage(tensor.untyped_storage().nbytes())

        def known(one: Tensor, before: int) -> Tensor:
            if not one.is_meta:
                return one
            if _memory(one) != memory:
                return self._value(one, before)
            return torch.empty(0, dtype=one.dtype).set_(storage, one.storage_offset(), one.shape, one.stride())

        for number in self._writes[memory]:
            if number < end:
                call = self._calls[number]
                results = _repeated(call, tree_map_only(Tensor, partial(known, before=number), call[1:3]))
                if call.results:
                    storage = results[[*map(_memory, call.results)].index(memory)].untyped_storage()
        return known(tensor, end)


def at_once() -> AbstractContextManager[Any]:
    """Return a block inside of one of `Deferred` where tensors have memory, as those that are read from files must."""
    return _disable_current_modes()


def _changed(func: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> list[Tensor]:
    """Return the arguments that an operation changes in place."""
    given = {argument.name: value for argument, value in zip(func._schema.arguments, args)} | {**options}
    named = {argument.name: argument.alias_info for argument in func._schema.arguments}
    return tree_leaves([value for name, value in given.items() if named[name] is not None and named[name].is_write])


@torch.no_grad()
def _repeated(call: _Call, values: tuple[tuple[Any, ...], dict[str, Any]]) -> list[Tensor]:
    """Return the results of a call with these values of its arguments and options."""
    arguments, options = values
    if "device" in options:
        options = options | {"device": "cpu"}
    if call.generator is None or call.state is None:
        return tree_leaves(call.operation(*arguments, **options))
    now = call.generator.get_state()
    call.generator.set_state(call.state)
    results = tree_leaves(call.operation(*arguments, **options))
    call.generator.set_state(now)
    return results


def _scratch(tensor: Tensor) -> Tensor:
    """Return memory of the same form, for values that are not needed."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype) if tensor.is_meta else tensor


def _memory(tensor: Tensor) -> int:
    """Return a number that views of the same memory have in common."""
    return int(tensor.untyped_storage()._cdata)
