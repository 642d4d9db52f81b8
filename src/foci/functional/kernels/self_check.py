"""The self-check of a compiled kernel: a small example against the equations, in values and in all gradients.

A compiler, or a call that does not fit the library, may be wrong in ways that no error reveals. Each argument has
numbers of its own, so that exchanged arguments are noticed too. Nothing is drawn: the user's random numbers stay as
they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from foci.functional.kernels.gradients import plain_gradients

Compiled = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Iterable[Tensor], Iterable[Tensor | None]]]
"""The results and the gradients of the kernel, from its arguments and the gradients of its results."""


def fixed_numbers(seed: int, *shape: int) -> Tensor:
    """Return numbers from -1 to 1; each argument of a kernel takes another seed."""
    ramp = torch.arange(math.prod(shape), dtype=torch.float64, device="cpu")
    return ramp.add(seed).square().sin().view(shape)


def numbers_for(*shapes: Sequence[int]) -> list[Tensor]:
    """Return one tensor of fixed numbers per shape."""
    return [fixed_numbers(seed, *shape) for seed, shape in enumerate(shapes, start=1)]


def agrees(
    plain: Callable[..., Any], compiled: Compiled, arguments: Sequence[Tensor], tolerances: Mapping[torch.dtype, float]
) -> bool:
    """Return whether results and gradients of the kernel are those of the plain form, for each dtype.

    Args:
        plain: the equations; it returns one tensor or several.
        compiled: calls the kernel.
        arguments: in float64, each of which gets a gradient.
        tolerances: how far numbers may differ, relative to the largest of their tensor if that is above 1.
    """
    wanted = plain(*arguments)
    wanted = (wanted,) if isinstance(wanted, Tensor) else tuple(wanted)
    grads = [one.cos() for one in wanted]
    gradients = plain_gradients(plain, arguments, grads)
    for dtype, tolerance in tolerances.items():
        results, found = compiled([one.to(dtype) for one in arguments], [one.to(dtype) for one in grads])
        if not (are_near(results, wanted, tolerance) and are_near(found, gradients, tolerance)):
            return False
    return True


def are_near(have: Iterable[Tensor | None], want: Iterable[Tensor], tolerance: float) -> bool:
    """Return whether all numbers are near one another, which NaN is to nothing."""
    return all(
        one is not None and bool(((one - other).abs() <= tolerance * max(1.0, float(other.abs().max()))).all())
        for one, other in zip(have, want, strict=True)
    )
