"""One step of a Neural Turing Machine's memory for all heads: one call in place of some sixty operations.

``ntm.cpp`` computes it for float32 and float64 on a CPU. A backward pass keeps the arguments and the results of the
step, most of which are the next step's arguments, and nothing in between. Without a compiler, in other dtypes, on
other devices, and wherever something other than eager autograd is active (functional transforms, tensor subclasses),
`foci.functional.addressing.step` computes the same in plain torch. Tracers see one operator.

Accuracy: the kernel computes in the dtype of its tensors. Its exponentials and logarithms are within about one unit in
the last place of the exact ones; a share below the smallest normal number (1e-38 in float32) becomes 0.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from foci.errors import ShapeError
from foci.functional import addressing
from foci.functional.kernels.build import Kernel
from foci.functional.kernels.decomposition_table import decompose
from foci.functional.kernels.gradients import differentiate, plain_gradients
from foci.tracing import is_traced, is_watched

_THREAD_CELLS = 1 << 16
"""Numbers of the memory times heads per additional thread, below which starting it costs more than it saves."""

_Four = tuple[Tensor, Tensor, Tensor, Tensor]
"""The arguments commands, memory, read_weights and write_weights; or the results, with reads in the last place."""

_Grads = Sequence[Tensor | None]


def step(
    commands: Float[Tensor, "B C"],
    memory: Float[Tensor, "B N M"],
    read_weights: Float[Tensor, "B R N"],
    write_weights: Float[Tensor, "B W N"],
    shift_width: int,
) -> tuple[Float[Tensor, "B N M"], Float[Tensor, "B R N"], Float[Tensor, "B W N"], Float[Tensor, "B R M"]]:
    """Write, then read; return the new memory, read weights, write weights, and the reads; see `addressing.step`."""
    arguments = (commands, memory, read_weights, write_weights)
    results: _Four
    if not _suits_kernel(*arguments):
        return addressing.step(*arguments, shift_width)
    if is_traced():
        results = _step_op(*arguments, shift_width)
        return results
    library = None if is_watched(*arguments) else _KERNEL.library
    if library is None:
        return addressing.step(*arguments, shift_width)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in arguments):
        results = _Step.apply(*arguments, shift_width)  # type: ignore[no-untyped-call]
        return results
    return _compiled_step(library, arguments, shift_width)


# --- choosing a path


def _suits_kernel(*tensors: Tensor) -> bool:
    dtype = tensors[0].dtype
    if dtype is not torch.float32 and dtype is not torch.float64:
        return False
    return all(tensor.is_cpu and tensor.dtype is dtype for tensor in tensors)


def _plain_step(*arguments: Any) -> _Four:
    m, r, w, reads = (one.contiguous() for one in addressing.step(*arguments))
    return m, r, w, reads


def _plain_gradients(*arguments: Any) -> _Four:
    """Return the gradients of the plain path, from the arguments of `_gradients`."""
    width, grads = arguments[7], arguments[8:]
    c, m, r, w = plain_gradients(lambda c, m, r, w: addressing.step(c, m, r, w, width), arguments[:4], grads)
    return c, m, r, w


# --- the compiled path

_ADDRESS, _SIZE, _COUNT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_SIGNATURES = {
    "forward": [*[_ADDRESS] * 4, *[_SIZE] * 6, *[_ADDRESS] * 4, _COUNT],
    "backward": [*[_ADDRESS] * 4, *[_SIZE] * 6, *[_ADDRESS] * 11, _COUNT],
}


def _call(library: ctypes.CDLL, name: str, arguments: _Four, shift_width: int, *others: Tensor | None) -> None:
    """Call ``foci_ntm_name``. All tensors, also those it writes to, are contiguous."""
    commands, memory, read_weights, write_weights = arguments
    batch, slots, size = memory.shape
    readers, writers = read_weights.shape[1], write_weights.shape[1]
    numbers = (writers + readers) * (size + shift_width + 3) + 2 * writers * size
    if (
        commands.shape != (batch, numbers)
        or read_weights.shape != (batch, readers, slots)
        or write_weights.shape != (batch, writers, slots)
        or not (slots and writers)
    ):  # compiled code would read past the end
        raise ShapeError(
            f"ntm: commands has shape {tuple(commands.shape)}, memory {tuple(memory.shape)}, read_weights "
            f"{tuple(read_weights.shape)} and write_weights {tuple(write_weights.shape)}, expected "
            f"({batch}, {numbers}), (batch, slots, size), (batch, readers, slots) and (batch, writers, slots), "
            "with a slot and a writer."
        )
    cells = batch * slots * size * (readers + writers)
    threads = min(torch.get_num_threads(), 1 + cells // _THREAD_CELLS, max(batch, 1))
    suffix = "float32" if commands.dtype is torch.float32 else "float64"
    enough = getattr(library, f"foci_ntm_{name}_{suffix}")(
        commands.data_ptr(), memory.data_ptr(), read_weights.data_ptr(), write_weights.data_ptr(),
        batch, slots, size, readers, writers, shift_width,
        *[None if tensor is None else tensor.data_ptr() for tensor in others], threads,
    )  # fmt: skip
    if not enough:
        raise MemoryError(f"ntm: no memory for a step with {slots} slots of {size} numbers.")


def _compiled_step(library: ctypes.CDLL, arguments: _Four, shift_width: int) -> _Four:
    c, m, r, w = arguments
    c, m, r, w = c.contiguous(), m.contiguous(), r.contiguous(), w.contiguous()
    memory, read_weights, write_weights = torch.empty_like(m), torch.empty_like(r), torch.empty_like(w)
    reads = m.new_empty(r.shape[:2] + m.shape[2:])
    _call(library, "forward", (c, m, r, w), shift_width, memory, read_weights, write_weights, reads)
    return memory, read_weights, write_weights, reads


def _compiled_gradients(
    library: ctypes.CDLL,
    arguments: _Four,
    results: Sequence[Tensor],
    shift_width: int,
    grads: _Grads,
    wanted: Sequence[bool] = (True, True, True, True),
) -> tuple[Tensor | None, ...]:
    """Return a gradient for each argument, or None for one that is not needed; that of the commands always.

    ``results`` are the new memory, read weights and write weights.
    """
    c, m, r, w = arguments
    c, m, r, w = c.contiguous(), m.contiguous(), r.contiguous(), w.contiguous()
    known = [None if one is None else one.contiguous() for one in (*results, *grads)]
    found = [torch.empty_like(x) if want else None for x, want in zip((m, r, w), wanted[1:])]
    commands_grad = torch.empty_like(c)
    _call(library, "backward", (c, m, r, w), shift_width, *known, commands_grad, *found)
    return commands_grad, *found


def _self_check(library: ctypes.CDLL) -> bool:
    """Declare the signatures, and compare a step with the plain one; 11 slots fill vectors and a rest."""
    for name, types in _SIGNATURES.items():
        for suffix in ("float32", "float64"):
            function = getattr(library, f"foci_ntm_{name}_{suffix}")
            function.argtypes = types
            function.restype = ctypes.c_bool
    arguments, along, width = _example(0), _example(7), 5
    wanted = addressing.step(*arguments, width)
    grads = [result.cos() for result in wanted]

    def moved(distance: float) -> Tensor:
        c, m, r, w = (one + distance * other for one, other in zip(arguments, along))
        return _inner(addressing.step(c, m, r, w, width), grads)

    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5  # autograd may be switched off where this is called
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-8)):
        c, m, r, w = (one.to(dtype) for one in arguments)
        results = _compiled_step(library, (c, m, r, w), width)
        gradients = _compiled_gradients(library, (c, m, r, w), results[:3], width, [grad.to(dtype) for grad in grads])
        gaps = [(have - want).abs().max() for have, want in zip(results, wanted)]
        if not all(bool(gap <= tolerance) for gap in [*gaps, (_inner(gradients, along) - slope).abs()]):
            return False
    return True


def _example(seed: int) -> _Four:
    """Return one row: 11 slots of 3 numbers, 2 reading heads, 2 writing heads, shifts of width 5."""
    # No random numbers: the state of the user's generator stays unchanged.
    shapes = [(1, 4 * (3 + 5 + 3) + 2 * 2 * 3), (1, 11, 3), (1, 2, 11), (1, 2, 11)]
    numbers = iter(math.sin(n * n + seed) for n in range(sum(math.prod(shape) for shape in shapes)))
    c, m, r, w = (
        torch.tensor([next(numbers) for _ in range(math.prod(shape))], dtype=torch.float64, device="cpu").view(shape)
        for shape in shapes
    )
    return c, m, r.abs(), w.abs()


def _inner(left: Sequence[Tensor | None], right: Sequence[Tensor]) -> Tensor:
    return torch.stack([(a * b).sum() for a, b in zip(left, right) if a is not None]).sum()


_KERNEL = Kernel("ntm", _self_check)


# --- autograd in eager mode, and the same as operators for tracers


class _Step(torch.autograd.Function):
    """The operator below with less overhead, which matters for short steps."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> _Four:
        results = _step(*arguments)
        _Step.keep(ctx, arguments, results)
        return results

    # Not setup_context: torch would inspect forward's signature at every call.
    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: _Four) -> None:
        ctx.save_for_backward(*inputs[:4], *output[:3])
        ctx.shift_width = inputs[4]
        ctx.set_materialize_grads(False)  # the last step's memory, for one, has none

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(grad is None for grad in grads):  # zeros, by torch's convention
            return None, None, None, None, None
        saved, width = ctx.saved_tensors, ctx.shift_width
        if torch.is_grad_enabled():  # create_graph=True: the gradients themselves are differentiated
            plain = differentiate(
                lambda c, m, r, w: addressing.step(c, m, r, w, width), saved[:4], grads, create_graph=True
            )
            return *plain, None
        if is_traced():
            return *_gradients_op(*saved, width, *grads), None
        library = _KERNEL.library
        if library is None:  # the operator runs without a compiler too
            return *_plain_gradients(*saved, width, *grads), None
        return *_compiled_gradients(library, saved[:4], saved[4:], width, grads, ctx.needs_input_grad), None


def _step(*arguments: Any) -> _Four:
    # A traced graph may be called with other arguments than it was traced with.
    library = _KERNEL.library
    if library is not None and _suits_kernel(*arguments[:4]):
        return _compiled_step(library, arguments[:4], arguments[4])
    return _plain_step(*arguments)


def _step_like(*arguments: Any) -> _Four:
    m, r, w = (state.new_empty(state.shape) for state in arguments[1:4])
    return m, r, w, m.new_empty(m.shape[0], r.shape[1], m.shape[2])


def _gradients(*arguments: Any) -> tuple[Tensor | None, ...]:
    tensors, results, shift_width, grads = arguments[:4], arguments[4:7], arguments[7], arguments[8:]
    library = _KERNEL.library
    if library is not None and _suits_kernel(*arguments[:7], *(grad for grad in grads if grad is not None)):
        like = _step_like(*tensors)
        for given, wanted in zip((*results, *grads), (*like[:3], *like)):
            if given is not None and given.shape != wanted.shape:  # compiled code would read past the end
                raise ShapeError(
                    f"ntm: a result or gradient has shape {tuple(given.shape)}, expected {tuple(wanted.shape)}."
                )
        return _compiled_gradients(library, tensors, results, shift_width, grads)
    return _plain_gradients(*arguments)


def _gradients_like(*arguments: Any) -> _Four:
    c, m, r, w = (tensor.new_empty(tensor.shape) for tensor in arguments[:4])
    return c, m, r, w


_ARGUMENTS = "Tensor commands, Tensor memory, Tensor read_weights, Tensor write_weights"
_RESULTS = "Tensor new_memory, Tensor new_read_weights, Tensor new_write_weights"
_GRADS = "Tensor? memory_grad, Tensor? read_grad, Tensor? write_grad, Tensor? reads_grad"
_FOUR = "(Tensor, Tensor, Tensor, Tensor)"
_step_op = torch.library.custom_op(
    "foci::ntm_step", _step, mutates_args=(), schema=f"({_ARGUMENTS}, int shift_width) -> {_FOUR}"
)
_gradients_op = torch.library.custom_op(
    "foci::ntm_step_gradients",
    _gradients,
    mutates_args=(),
    schema=f"({_ARGUMENTS}, {_RESULTS}, int shift_width, {_GRADS}) -> {_FOUR}",
)
_step_op.register_fake(_step_like)
_gradients_op.register_fake(_gradients_like)
_step_op.register_autograd(_Step.backward, setup_context=_Step.keep)
decompose("ntm_step", _plain_step)
decompose("ntm_step_gradients", _plain_gradients)
