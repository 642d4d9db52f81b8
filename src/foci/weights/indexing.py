"""``weights[…]``: what a tensor of all weights would give, computed for these entries, heads and rows only."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any, SupportsIndex

from torch import Tensor

from foci.errors import ShapeError
from foci.weights.sources import Source

Place = SupportsIndex | slice | EllipsisType
"""What each axis of a handle may be indexed by."""


def take(source: Source, index: Place | tuple[Place, ...]) -> Tensor:
    """Return ``dense()[index]``, for whole numbers, slices and an ellipsis."""
    shape = source.shape
    places = _one_per_axis(index, shape)
    rest: list[int | slice] = list(places)
    for axis, place in enumerate(places[:-2]):
        if axis > 1 or shape[axis] == 1 or place == slice(None):  # an axis of size 1 may be broadcast
            continue
        source = (source.heads if axis else source.entries)(_as_slice(place))
        rest[axis] = slice(None) if isinstance(place, slice) else 0
    rest[-2] = slice(None) if isinstance(places[-2], slice) else 0
    return source.rows(_as_slice(places[-2]))[tuple(rest)]


def _one_per_axis(index: Any, shape: tuple[int, ...]) -> list[int | slice]:
    """Return a number that is not negative, or a slice, for every axis."""
    given = list(index) if isinstance(index, tuple) else [index]
    dots = [number for number, place in enumerate(given) if place is Ellipsis] or [len(given)]
    missing = [slice(None)] * (len(shape) - len(given) + (dots[0] < len(given)))
    given[dots[0] : dots[0] + 1] = missing
    if len(given) > len(shape):
        raise IndexError(f"Weights: {len(given)} indices, but the weights have shape {tuple(shape)}.")
    return [_checked(place, axis, size) for axis, (place, size) in enumerate(zip(given, shape))]


def _checked(place: Any, axis: int, size: int) -> int | slice:
    if isinstance(place, slice):
        return place
    whole = hasattr(place, "__index__") and not isinstance(place, bool)
    if not whole or (isinstance(place, Tensor) and place.dim()):
        raise ShapeError(
            f"Weights: the index of axis {axis} is a {type(place).__name__}, expected a whole number, a slice or ... "
            "Use weights.dense()[…], or weights.rows([…]) for some rows."
        )
    number = operator.index(place)
    if not -size <= number < size:
        raise IndexError(f"Weights: index {number} is out of range for axis {axis} of size {size}.")
    return number % size


def _as_slice(place: int | slice) -> slice:
    return place if isinstance(place, slice) else slice(place, place + 1)
