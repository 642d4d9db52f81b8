"""All steps of word-by-word attention in one call, forward and backward.

    α_t = softmax(vᵀ tanh(q_t + k + W r_{t−1})),   r_t = α_t · y + tanh(C r_{t−1})

``word_by_word.cpp`` computes it for float32 on a CPU. The forward keeps r, q + W r, tanh(C r) and α of every step, and
the backward computes the tanh again. In other dtypes, on other devices, without a compiler, and where something other
than eager autograd watches, `foci.functional.stepwise` runs one step after the other. The accuracy is that of the
kernel ``additive``: tanh has an absolute error of about 1e-7.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.functional.kernels.gradients import differentiate
from foci.functional.kernels.kernel import ADDRESS, COUNT, SIZE, Kernel, run, threads, wants_gradients
from foci.functional.kernels.self_check import agrees, numbers_for
from foci.tracing import is_traced, is_watched

_THREAD_ENTRIES = 1 << 17
"""Entries that make one more thread worth waking."""

Plain = Callable[..., tuple[Tensor, Tensor]]
"""The same arguments, the same results, one step after the other."""


def word_by_word(
    memory: Float[Tensor, "B 1 D"],
    query: Float[Tensor, "B R D"],
    exists: Bool[Tensor, "B R"],
    value: Float[Tensor, "B S D"],
    key: Float[Tensor, "B S D"],
    valid: Bool[Tensor, "B S"],
    vector: Float[Tensor, " D"],
    to_score: Float[Tensor, "D D"],
    carry: Float[Tensor, "D D"],
    *,
    plain: Plain,
) -> tuple[Float[Tensor, "B 1 D"], Float[Tensor, "B R S"]]:
    """Return the memory after the last step and the weights of all steps.

    Args:
        memory: r before the first step.
        query: q of each step.
        exists: which steps there are; the others read nothing and change nothing.
        value: y.
        key: k.
        valid: which positions may be read.
        vector: v.
        to_score: W.
        carry: C.
        plain: computes the same where the kernel does not serve, and the gradients' own gradients.
    """
    arguments = (memory, query, exists, value, key, valid, vector, to_score, carry)
    floats = (memory, query, value, key, vector, to_score, carry)
    library = None if is_traced() or is_watched(*arguments) else _KERNEL.library_for(*floats)
    if library is None:
        return plain(*arguments)
    if wants_gradients(*floats):
        last, weights = _WordByWord.apply(library, plain, *arguments)  # type: ignore[no-untyped-call]
        return last, weights
    last, weights, _ = _forward(library, *arguments, keep=False)
    return last, weights


# --- the compiled path

_FUNCTIONS = {
    "scratch": (SIZE, [SIZE, SIZE, SIZE, COUNT]),
    "forward": (None, [*[ADDRESS] * 9, *[SIZE] * 4, *[ADDRESS] * 6, COUNT]),
    "backward": (None, [*[ADDRESS] * 11, *[SIZE] * 4, *[ADDRESS] * 7, COUNT]),
}


def _forward(library: ctypes.CDLL, *arguments: Tensor, keep: bool = True) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Return the last memory, the weights and what the backward needs: r before, q + W r and tanh(C r) of each step."""
    query, key = arguments[1], arguments[4]
    (batch, steps, size), positions = query.shape, key.shape[1]
    last, weights = query.new_empty(batch, 1, size), query.new_empty(batch, steps, positions)
    kept = tuple(query.new_empty(batch, steps, size) for _ in range(3)) if keep else ()
    given = [one.contiguous() for one in arguments]
    _call(library, "forward", given, (batch, steps, positions, size), (*(kept or (None,) * 3), last, weights))
    return last, weights, kept


def _backward(
    library: ctypes.CDLL,
    grads: tuple[Tensor | None, Tensor | None],
    arguments: tuple[Tensor, ...],
    weights: Tensor,
    kept: tuple[Tensor, ...],
) -> tuple[Tensor | None, ...]:
    """Return a gradient for each argument of `word_by_word`, None for the masks."""
    _, _, exists, value, key, _, vector, to_score, carry = (one.contiguous() for one in arguments)
    memories, asked, carried = kept
    (batch, steps, size), positions = memories.shape, key.shape[1]
    memory_grad, weights_grad = grads
    memory_grad = memories.new_zeros(batch, 1, size) if memory_grad is None else memory_grad.contiguous()
    weights_grad = None if weights_grad is None else weights_grad.contiguous()
    d_query, d_carried, d_memories = (torch.empty_like(memories) for _ in range(3))
    d_start, d_key, d_vectors = torch.empty_like(memory_grad), torch.empty_like(key), memories.new_empty(batch, size)
    given = (weights_grad, memory_grad, exists, value, key, vector, to_score, carry, asked, carried, weights)
    found = (d_query, d_carried, d_memories, d_start, d_key, d_vectors)
    _call(library, "backward", given, (batch, steps, positions, size), found)
    before = memories.flatten(0, 1)
    return (
        d_start,
        d_query,
        None,
        weights.mT @ d_memories,
        d_key,
        None,
        d_vectors.sum(dim=0),
        d_query.flatten(0, 1).mT @ before,
        d_carried.flatten(0, 1).mT @ before,
    )


def _call(library: ctypes.CDLL, name: str, given: Any, sizes: tuple[int, int, int, int], found: Any) -> None:
    """Call ``foci_word_by_word_name``; all tensors are contiguous, ``found`` are written."""
    batch, _, positions, size = sizes
    count = threads(math.prod(sizes), _THREAD_ENTRIES, batch)
    scratch = found[-1].new_empty(library.foci_word_by_word_scratch(batch, positions, size, count))
    run(getattr(library, f"foci_word_by_word_{name}"), *given, *sizes, scratch, *found, count)


def _plain_example(
    memory: Tensor, query: Tensor, value: Tensor, key: Tensor, vector: Tensor, to_score: Tensor, carry: Tensor
) -> tuple[Tensor, Tensor]:
    """The equations for a row of the batch without padding, for the self-check."""
    weights = []
    for t in range(query.shape[1]):
        scores = torch.tanh(query[:, t : t + 1] + memory @ to_score.mT + key) @ vector
        weights.append(torch.softmax(scores, dim=-1))
        memory = weights[-1].unsqueeze(1) @ value + torch.tanh(memory @ carry.mT)
    return memory, torch.stack(weights, dim=1)


def _self_check(library: ctypes.CDLL) -> bool:
    """Compare three steps with the equations; 19 numbers fill vectors and a rest."""
    exists, valid = (torch.ones(1, size, dtype=torch.bool, device="cpu") for size in (3, 5))

    def compiled(floats: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        memory, query, value, key, *rest = floats
        arguments = (memory, query, exists, value, key, valid, *rest)
        last, weights, kept = _forward(library, *arguments)
        found = _backward(library, (grads[0], grads[1]), arguments, weights, kept)
        return [last, weights], [one for one in found if one is not None]

    point = numbers_for((1, 1, 19), (1, 3, 19), (1, 5, 19), (1, 5, 19), (19,), (19, 19), (19, 19))
    return agrees(_plain_example, compiled, [one / 3 for one in point], {torch.float32: 1e-4})


_KERNEL = Kernel("word_by_word", _FUNCTIONS, _self_check)


class _WordByWord(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: ctypes.CDLL, plain: Plain, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        last, weights, kept = _forward(library, *arguments)
        ctx.library, ctx.plain = library, plain
        ctx.save_for_backward(*arguments, weights, *kept)
        ctx.set_materialize_grads(False)  # the weights mostly have none
        return last, weights

    @staticmethod
    def backward(ctx: Any, memory_grad: Tensor | None, weights_grad: Tensor | None) -> tuple[Any, ...]:
        if memory_grad is None and weights_grad is None:
            return (None,) * 11
        saved = ctx.saved_tensors  # once: activation checkpointing frees them with the first access
        arguments, (weights, *kept), grads = saved[:9], saved[9:], (memory_grad, weights_grad)
        if torch.is_grad_enabled():  # create_graph=True: someone wants the gradients' own gradients
            return None, None, *differentiate(ctx.plain, arguments, grads, create_graph=True)
        return None, None, *_backward(ctx.library, grads, arguments, weights, tuple(kept))
