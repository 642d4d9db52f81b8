"""One step of a Neural Turing Machine's memory for all heads: one call instead of some sixty operations.

``ntm.cpp`` computes it for float32 and float64 on a CPU. A backward pass keeps the arguments and the results of the
step, most of which are the next step's arguments, and nothing in between. Without a compiler, in other dtypes, on
other devices, and wherever something other than eager autograd is active (functional transforms, tensor subclasses),
`foci.functional.addressing.step` computes the same in plain torch. Tracers see one operator.

Accuracy: the kernel computes in the dtype of its tensors. Its exponentials and logarithms are within about one unit in
the last place of the exact ones; a share below the smallest normal number (1e-38 in float32) becomes 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from foci.errors import ShapeError
from foci.functional import addressing
from foci.functional.kernels.kernel import ADDRESS, COUNT, SIZE, Kernel, in_both_precisions, run, threads
from foci.functional.kernels.operators import Grads, Operator
from foci.functional.kernels.self_check import agrees, numbers_for
from foci.tracing import is_traced, is_watched

_THREAD_NUMBERS = 1 << 16
"""Numbers of the memory times heads per additional thread, below which starting it costs more than it saves."""

_Four = tuple[Tensor, Tensor, Tensor, Tensor]
"""The arguments commands, memory, read_weights and write_weights; or the results, with reads in the last place."""


def step(
    commands: Float[Tensor, "B C"],
    memory: Float[Tensor, "B N M"],
    read_weights: Float[Tensor, "B R N"],
    write_weights: Float[Tensor, "B W N"],
    shift_width: int,
) -> tuple[Float[Tensor, "B N M"], Float[Tensor, "B R N"], Float[Tensor, "B W N"], Float[Tensor, "B R M"]]:
    """Write, then read; return the new memory, read weights, write weights, and the reads; see `addressing.step`."""
    arguments = (commands, memory, read_weights, write_weights)
    inactive = not is_traced() and (is_watched(*arguments) or _KERNEL.library is None)
    if inactive or not _suits_kernel(*arguments):
        return addressing.step(*arguments, shift_width)
    results: _Four = _STEP(*arguments, shift_width)
    return results


def _suits_kernel(*tensors: Tensor) -> bool:
    return _KERNEL.suits(*tensors) and len({tensor.dtype for tensor in tensors}) == 1


# --- the compiled path

_FUNCTIONS = in_both_precisions(
    {
        "forward": (ctypes.c_bool, [*[ADDRESS] * 4, *[SIZE] * 6, *[ADDRESS] * 4, COUNT]),
        "backward": (ctypes.c_bool, [*[ADDRESS] * 4, *[SIZE] * 6, *[ADDRESS] * 11, COUNT]),
    }
)


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
    count = threads(batch * slots * size * (readers + writers), _THREAD_NUMBERS, batch)
    suffix = "float32" if commands.dtype is torch.float32 else "float64"
    function = getattr(library, f"foci_ntm_{name}_{suffix}")
    enough = run(function, *arguments, batch, slots, size, readers, writers, shift_width, *others, count)
    if not enough:
        raise MemoryError(f"ntm: no memory for a step with {slots} slots of {size} numbers.")


def _compiled_step(library: ctypes.CDLL, arguments: Sequence[Tensor], shift_width: int) -> _Four:
    c, m, r, w = (one.contiguous() for one in arguments)
    memory, read_weights, write_weights = torch.empty_like(m), torch.empty_like(r), torch.empty_like(w)
    reads = m.new_empty(r.shape[:2] + m.shape[2:])
    _call(library, "forward", (c, m, r, w), shift_width, memory, read_weights, write_weights, reads)
    return memory, read_weights, write_weights, reads


def _compiled_gradients(
    library: ctypes.CDLL,
    grads: Grads,
    arguments: Sequence[Tensor],
    shift_width: int,
    results: Sequence[Tensor],
    wanted: Sequence[bool] = (True, True, True, True),
) -> tuple[Tensor | None, ...]:
    """Return a gradient for each argument, or None for one that is not needed; that of the commands always.

    ``results`` are the new memory, read weights and write weights.
    """
    c, m, r, w = (one.contiguous() for one in arguments)
    known = [None if one is None else one.contiguous() for one in (*results, *grads)]
    found = [torch.empty_like(x) if want else None for x, want in zip((m, r, w), wanted[1:])]
    commands_grad = torch.empty_like(c)
    _call(library, "backward", (c, m, r, w), shift_width, *known, commands_grad, *found)
    return commands_grad, *found


def _self_check(library: ctypes.CDLL) -> bool:
    """Compare a step of 2 reading and 2 writing heads with the plain one; 11 slots fill vectors and a rest."""
    width = 5
    commands, memory, reading, writing = numbers_for(
        (1, 4 * (3 + width + 3) + 2 * 2 * 3), (1, 11, 3), (1, 2, 11), (1, 2, 11)
    )

    def compiled(arguments: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[_Four, tuple[Tensor | None, ...]]:
        results = _compiled_step(library, arguments, width)
        return results, _compiled_gradients(library, grads, arguments, width, results[:3])

    return agrees(
        lambda c, m, r, w: addressing.step(c, m, r, w, width),
        compiled,
        (commands, memory, reading.abs(), writing.abs()),
        {torch.float32: 1e-4, torch.float64: 1e-8},
    )


_KERNEL = Kernel("ntm", _FUNCTIONS, _self_check, (torch.float32, torch.float64))


# --- the operator


def _step(*arguments: Any) -> _Four:
    # A traced graph may be called with other arguments than it was traced with.
    library = _KERNEL.library
    if library is not None and _suits_kernel(*arguments[:4]):
        return _compiled_step(library, arguments[:4], arguments[4])
    return _plain_step(*arguments)


def _plain_step(*arguments: Any) -> _Four:
    m, r, w, reads = (one.contiguous() for one in addressing.step(*arguments))
    return m, r, w, reads


def _step_like(*arguments: Any) -> _Four:
    m, r, w = (state.new_empty(state.shape) for state in arguments[1:4])
    return m, r, w, m.new_empty(m.shape[0], r.shape[1], m.shape[2])


def _gradients(
    grads: Grads, arguments: Sequence[Any], results: Sequence[Tensor], wanted: Sequence[bool]
) -> Grads | None:
    library = _KERNEL.library
    if library is None:
        return None
    return _compiled_gradients(library, grads, arguments[:4], arguments[4], results, wanted)


def _accepts(grads: Grads, arguments: Sequence[Any], results: Sequence[Tensor]) -> bool:
    like = _step_like(*arguments)
    for given, right in zip((*results, *grads), (*like[:3], *like)):
        if given is not None and given.shape != right.shape:  # compiled code would read past the end
            raise ShapeError(
                f"ntm: a result or gradient has shape {tuple(given.shape)}, expected {tuple(right.shape)}."
            )
    return _suits_kernel(*arguments[:4], *results, *(grad for grad in grads if grad is not None))


_STEP = Operator(
    "ntm_step",
    "Tensor commands, Tensor memory, Tensor read_weights, Tensor write_weights, int shift_width",
    inputs=4,
    results=4,
    kept=slice(3),
    compute=_step,
    gradients=_gradients,
    accepts=_accepts,
    plain=_plain_step,
    like=_step_like,
)
