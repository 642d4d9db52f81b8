"""Sequential attention: each step depends on the weights or the output of the previous one.

    location_aware   e_t = vᵀ tanh(q_t + k + U (F ∗ α_{t−1})),   α_t = normalize(e_t)
    median_window    α_t = normalize(e_t) within reach of the median of α_{t−1}
    word_by_word     α_t = softmax(vᵀ tanh(q_t + k + W r_{t−1})),   r_t = α_t · value + tanh(C r_{t−1})

`over_steps` runs one of them over all positions. In eager mode it is a Python loop; ``word_by_word`` and
``location_aware`` have a kernel for all steps at once (for one step, where there is a window around the median).
`torch.compile` sees one operator for every number of steps, so that other lengths need no recompilation; it runs the
same, and its backward computes the steps again. `torch.export` sees torch's own `scan`, which runs without foci.
(`torch.compile` must not see `scan`: in torch 2.13 its default backend gives wrong gradients of what the steps share.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from foci.functional.attend import NORMALIZERS, WITHOUT_CHANCE, Normalizer
from foci.functional.kernels import location_aware as location_aware_kernel
from foci.functional.kernels import source_gradients
from foci.functional.kernels import word_by_word as word_by_word_kernel
from foci.functional.kernels.gradients import differentiate
from foci.functional.kernels.location_aware import LocationInputs, LocationOptions
from foci.functional.kernels.operators import register
from foci.functional.scores import additive
from foci.masks import masked_softmax
from foci.torch_private import record_inside_operator
from foci.tracing import Tensors, is_traced, is_watched, known_true, run_steps


class StepOptions(NamedTuple):
    """How a step turns scores into weights.

    ``normalize`` is a name, or a normalizer of one's own. ``reach`` is the number of positions before and after the
    median of the previous weights; None allows all positions.
    """

    normalize: str | Normalizer = "softmax"
    sharpening: float = 1.0
    reach: Sequence[int] | None = None


Step = Callable[[Tensor, Tensors, Tensors, StepOptions], tuple[Tensor, Tensors]]
"""``(carry, inputs at t, shared, options) -> (carry, outputs at t)``; axis 1 of inputs and outputs has size 1."""

_SOFTMAX = StepOptions()
_NORMALIZERS = {**NORMALIZERS, **WITHOUT_CHANCE}
_FUSED = ("softmax", "sigmoid")
"""Normalizers that the kernel of ``location_aware`` has."""

_RANDOM = ("sample", "gumbel")
"""Normalizers that an operator cannot compute again in its backward pass."""


def location_aware(previous: Tensor, at: Tensors, shared: Tensors, options: StepOptions) -> tuple[Tensor, Tensors]:
    """Score ``at = (query[, mask])`` against ``shared = (key, vector, filters, filter projection[, mask])``."""
    scores, mask = _location_scores(previous, at[0], shared)
    return _weigh(scores, previous, (*at[1:], *mask), options)


def biased_location_aware(
    previous: Tensor, at: Tensors, shared: Tensors, options: StepOptions
) -> tuple[Tensor, Tensors]:
    """Compute `location_aware` for ``at = (query, bias[, mask])``, the bias added to the sharpened scores."""
    scores, mask = _location_scores(previous, at[0], shared)
    scores = scores * options.sharpening + at[1]
    return _weigh(scores, previous, (*at[2:], *mask), options._replace(sharpening=1.0))


def _location_scores(previous: Tensor, query: Tensor, shared: Tensors) -> tuple[Tensor, list[Tensor]]:
    key, vector, filters, projection, *mask = shared
    return additive(query, add_location(key, previous, filters, projection), vector), mask


def median_window(previous: Tensor, at: Tensors, shared: Tensors, options: StepOptions) -> tuple[Tensor, Tensors]:
    """Normalize ``at = (scores[, mask])``; ``shared`` is empty or a mask."""
    return _weigh(at[0], previous, (*at[1:], *shared), options)


def word_by_word(memory: Tensor, at: Tensors, shared: Tensors, options: StepOptions) -> tuple[Tensor, Tensors]:
    """Read ``shared = (value, key, valid, vector, memory to score, carry)`` for ``at = (query, exists)``."""
    (query, exists), (value, key, valid, vector, to_score, carry) = at, shared
    scores = additive(query + F.linear(memory, to_score), key, vector)
    weights = masked_softmax(scores, exists.unsqueeze(2) & valid.unsqueeze(1))
    new = weights @ value + torch.tanh(F.linear(memory, carry))
    return torch.where(exists.unsqueeze(2), new, memory), (weights,)


STEPS: Mapping[str, Step] = {
    "location_aware": location_aware,
    "biased_location_aware": biased_location_aware,
    "median_window": median_window,
    "word_by_word": word_by_word,
}


def over_steps(
    name: str, carry: Tensor, inputs: Tensors, shared: Tensors, options: StepOptions = _SOFTMAX
) -> tuple[Tensor, Tensors]:
    """Run the step ``name`` over axis 1 of the inputs, one position at a time.

    Args:
        name: a key of `STEPS`.
        carry: the initial carry.
        inputs: tensors ``(B, L, …)``, L at least 1; a step sees one position.
        shared: tensors that are passed whole to every step.
        options: how the steps normalize their scores; unused by ``word_by_word``, which has a softmax.

    Returns:
        The final carry, and the outputs of all steps, concatenated along axis 1.
    """
    if known_true(inputs[0].shape[1] == 1) and (name != "location_aware" or torch.compiler.is_compiling()):
        return STEPS[name](carry, inputs, shared, options)
    as_operator = isinstance(options.normalize, str) and options.normalize not in _RANDOM
    if as_operator and torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        carry, *outputs = _steps_op(carry, list(inputs), list(shared), name, *options)
        return carry, tuple(outputs)
    return _run(name, carry, inputs, shared, options)


def read_location_aware(
    previous: Tensor,
    query: Tensor,
    shared: Tensors,
    value: Tensor,
    options: StepOptions,
    alias: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """Return the output and the weights of one step of ``location_aware`` by one kernel; None where it does not serve.

    The arguments are those of `over_steps` for one query, whose mask is among ``shared``. ``alias`` is what
    `share_source` returned for this key and value.
    """
    if torch.compiler.is_compiling() or options.normalize not in _FUSED:
        return None
    key, vector, filters, projection, *mask = shared
    readable = _readable(previous, mask, options)
    inputs = LocationInputs(previous, query, key, vector, filters, projection)
    how, plain = _fused(options)
    found = location_aware_kernel.location_aware(inputs, readable, value, alias=alias, options=how, plain=plain)
    return None if found is None or found[1] is None else (found[1], found[0])


def share_source(key: Tensor, value: Tensor) -> Tensor | None:
    """Return an alias of the key by which calls of `read_location_aware` add up their gradients; None without any."""
    if is_traced() or is_watched(key, value):
        return None
    return source_gradients.share(key, value)


def add_location(key: Tensor, previous: Tensor, filters: Tensor, projection: Tensor) -> Tensor:
    """Return the projected keys with ``U (F ∗ α)`` added, for ``previous`` weights α ``(B, S)``."""
    if known_true(key.shape[1] == 0):
        return key
    features = F.conv1d(previous.unsqueeze(1), filters, padding=filters.shape[-1] // 2)
    return key + F.linear(features.mT, projection)


def near_median(previous: Tensor, left: int, right: int) -> Tensor:
    """Return which positions ``(B, 1, S)`` lie within reach of the weights' median; all where nothing was read."""
    half = previous.sum(dim=-1, keepdim=True) / 2
    median = (previous.cumsum(dim=-1) < half).sum(dim=-1, keepdim=True)
    positions = torch.arange(previous.shape[1], device=previous.device)
    near = (positions >= median - left) & (positions <= median + right)
    return (near | (half == 0)).unsqueeze(1)


def _readable(previous: Tensor, given: Sequence[Tensor], options: StepOptions) -> Tensor | None:
    """Return which positions a step may read: those of the mask, if one is given, within reach of the median."""
    near = () if options.reach is None else (near_median(previous, *options.reach),)
    masks = (*given, *near)
    return masks[0] & masks[1] if len(masks) == 2 else masks[0] if masks else None


def _weigh(scores: Tensor, previous: Tensor, given: Sequence[Tensor], options: StepOptions) -> tuple[Tensor, Tensors]:
    mask = _readable(previous, given, options)
    scores = scores if options.sharpening == 1.0 else scores * options.sharpening
    how = options.normalize
    weights, *sampled = (_NORMALIZERS[how] if isinstance(how, str) else how)(scores, mask)
    return weights.squeeze(1), (weights, *(one for one in sampled if one is not None))


def _run(
    name: str, carry: Tensor, inputs: Sequence[Tensor], shared: Sequence[Tensor], options: StepOptions
) -> tuple[Tensor, Tensors]:
    if name == "word_by_word":
        memory, weights = word_by_word_kernel.word_by_word(carry, *inputs, *shared, plain=_plain_word_by_word)
        return memory, (weights,)
    if name == "location_aware" and options.normalize in _FUSED:
        if options.reach is None:
            return _fused_location_aware(carry, tuple(inputs), tuple(shared), options)
        return run_steps(
            lambda carry, at: _fused_location_aware(carry, at, tuple(shared), options), carry, tuple(inputs)
        )
    return run_steps(lambda carry, at: STEPS[name](carry, at, tuple(shared), options), carry, tuple(inputs))


def _fused_location_aware(
    previous: Tensor, inputs: Tensors, shared: Tensors, options: StepOptions
) -> tuple[Tensor, Tensors]:
    """Run `location_aware` by its kernel: all steps, or with a window around the median one step."""
    (query, *per_query), (key, vector, filters, projection, *mask) = inputs, shared
    readable = _readable(previous, (*per_query, *mask), options)
    inputs = LocationInputs(previous, query, key, vector, filters, projection)
    how, plain = _fused(options)
    found = location_aware_kernel.location_aware(inputs, readable, options=how, plain=plain)
    weights = plain(*inputs, readable) if found is None else found[0]
    return weights[:, -1], (weights,)


def _fused(options: StepOptions) -> tuple[LocationOptions, Callable[..., Tensor]]:
    """Return the options of the kernel, and the loop that computes the same for a mask that has the window in it."""
    without_window = options._replace(reach=None)

    def plain(previous: Tensor, query: Tensor, *rest: Any) -> Tensor:
        *source, mask = rest
        shares = mask is not None and mask.shape[1] == 1
        at = (query,) if mask is None or shares else (query, mask)
        shared = (*source, mask) if shares else tuple(source)
        _, (weights,) = run_steps(lambda carry, at: location_aware(carry, at, shared, without_window), previous, at)
        return weights

    return LocationOptions(options.sharpening, options.normalize == "sigmoid"), plain


def _plain_word_by_word(memory: Tensor, query: Tensor, exists: Tensor, *shared: Tensor) -> tuple[Tensor, Tensor]:
    memory, (weights,) = run_steps(
        lambda memory, at: word_by_word(memory, at, shared, _SOFTMAX), memory, (query, exists)
    )
    return memory, weights


# --- the operator that torch.compile sees


def _forward(carry: Tensor, inputs: list[Tensor], shared: list[Tensor], name: str, *options: Any) -> list[Tensor]:
    carry, outputs = _run(name, carry, inputs, shared, StepOptions(*options))
    return [one.contiguous().clone() for one in (carry, *outputs)]  # an operator's results share no memory


def _forward_like(carry: Tensor, inputs: list[Tensor], shared: list[Tensor], name: str, *options: Any) -> list[Tensor]:
    first = tuple(one[:, :1] for one in inputs)
    last, outputs = STEPS[name](carry, first, tuple(shared), StepOptions(*options))
    sizes = ((one.shape[0], inputs[0].shape[1], *one.shape[2:]) for one in outputs)
    return [last.new_empty(last.shape), *(one.new_empty(size) for one, size in zip(outputs, sizes))]


def _backward(
    grads: list[Tensor], carry: Tensor, inputs: list[Tensor], shared: list[Tensor], name: str, *options: Any
) -> list[Tensor]:
    def run(carry: Tensor, *rest: Tensor) -> Tensors:
        carried, outputs = _run(name, carry, rest[: len(inputs)], rest[len(inputs) :], StepOptions(*options))
        return carried, *outputs

    with record_inside_operator(), torch.enable_grad():
        leaves = [one.detach().requires_grad_(one.is_floating_point()) for one in (carry, *inputs, *shared)]
        found = differentiate(run, leaves, grads, create_graph=False)
    return [one.contiguous().clone() for one in found if one is not None]


def _backward_like(
    grads: list[Tensor], carry: Tensor, inputs: list[Tensor], shared: list[Tensor], *rest: Any
) -> list[Tensor]:
    return [one.new_empty(one.shape) for one in (carry, *inputs, *shared) if one.is_floating_point()]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    carry, at, shared, *ctx.rest = inputs
    ctx.count = len(at)
    ctx.save_for_backward(carry, *at, *shared)


def _differentiate(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    saved, end = ctx.saved_tensors, 1 + ctx.count
    found = iter(_backward_op(list(grads), saved[0], list(saved[1:end]), list(saved[end:]), *ctx.rest))
    carry, *others = (next(found) if one.is_floating_point() else None for one in saved)
    return carry, others[: ctx.count], others[ctx.count :], *(None for _ in ctx.rest)


_ARGUMENTS = "Tensor carry, Tensor[] inputs, Tensor[] shared, str name, str normalize, float sharpening, int[]? reach"
_steps_op = register("steps", f"({_ARGUMENTS}) -> Tensor[]", _forward, _forward_like, _forward)
_backward_op = register(
    "steps_backward", f"(Tensor[] grads, {_ARGUMENTS}) -> Tensor[]", _backward, _backward_like, _backward
)
_steps_op.register_autograd(_differentiate, setup_context=_keep)
