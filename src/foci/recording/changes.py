"""What `foci.edit` changes: the weights of one call of an attention, and how much of what they read is kept.

`knock_out`, `block`, `uniform`, `permute`, `given`, `scale` and `zero_values` each return a change, a function of an
`Attended`. Changes are applied in order, each to what the ones before have left, and none opens a position that may not
be read.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foci.errors import ConfigError, ShapeError
from foci.torch_private import is_transformed
from foci.weights import Weights

Positions = int | slice | Sequence[int] | Tensor | None
"""Numbers of positions, negative ones from the end; a boolean tensor ``(S,)`` or ``(B, S)``; None for all."""

Heads = int | Sequence[int] | None
"""Numbers of heads; None for all."""

Given = Tensor | Weights | Callable[[Tensor], Tensor]
"""Weights, or a function from the weights that there are to others."""


@dataclass(eq=False)
class Attended:
    """One call of an attention, with the changes that were made so far.

    Attributes:
        name: the path of the module and the number of the call.
        shape: of the weights, ``(…, L, S)``; with heads ``(B, H, L, S)``.
        device: of the weights.
        compute: returns the weights without a change.
        find_open: returns which positions may be read, of the rank of the weights; None for all.
        limit: returns the weights where only these positions may be read. None where that cannot be computed: the
            weights of the others are then divided by their sum.
        first: the number of the first row, where the rows of a call are computed one after another.
        length: how many rows the call has altogether; 0 for those of ``shape``.
        has_queries: whether the recorded weights have the axis L, which here is 1 where they have not.
        kept: the share of its value that is read of each position, of the rank of the weights; None for all of it.
    """

    name: str
    shape: torch.Size
    device: torch.device
    compute: Callable[[], Tensor]
    find_open: Callable[[], Tensor | None]
    limit: Callable[[Tensor], Tensor] | None = None
    first: int = 0
    length: int = 0
    has_queries: bool = True
    kept: Tensor | None = None
    _original: Tensor | None = field(default=None, init=False)
    _weights: Tensor | None = field(default=None, init=False)
    _closed: Tensor | None = field(default=None, init=False)

    @property
    def weights(self) -> Tensor:
        """The weights with all changes."""
        if self._weights is None:
            self._weights = self._original = self.compute()
        return self._weights

    @property
    def is_changed(self) -> bool:
        """Whether anything is other than without changes; where nothing is, the model's own result is exact."""
        if self.kept is not None or is_transformed() or self._original is None:
            return True
        return self._weights is not self._original and not torch.equal(self.weights, self._original)

    @property
    def open(self) -> Tensor:
        """Which positions may be read after the changes, of the shape of the weights."""
        with torch.no_grad():
            found = self.find_open()
            if found is None:
                found = torch.ones((), dtype=torch.bool, device=self.device)
            return (found if self._closed is None else found & ~self._closed).expand(self.shape)

    def close(self, closed: Tensor) -> None:
        """Close positions: the weights become those of the model with these positions masked."""
        self._closed = closed if self._closed is None else self._closed | closed
        only_closed = self._weights is None or self._original is None
        if only_closed and self.limit is not None:
            self._weights = self.limit(~self._closed.expand(self.shape))
        else:
            self._weights = self.without(closed)

    def without(self, closed: Tensor) -> Tensor:
        """Return the weights where the others take the share of the closed positions."""
        return _renormalized(self.weights, closed)

    def alike(self) -> Tensor:
        """Return weights with which all that may be read is read alike."""
        open = self.open
        return open.to(self.weights.dtype) / open.sum(dim=-1, keepdim=True).clamp_min(1)

    def in_rows(self, tensor: Tensor) -> Tensor:
        """Return something of the shape of the weights, ``(…, L, S)`` with a row for those that may be exchanged."""
        return tensor

    def zero(self, keys: Tensor) -> None:
        """Let 0 be read in the place of the values of these keys, of the rank of the weights."""
        kept = (~keys).to(self.weights.dtype)
        self.kept = kept if self.kept is None else self.kept * kept

    def put(self, weights: Tensor, heads: Heads) -> None:
        """Put these weights in the place of those of some heads."""
        chosen = self.chosen(heads)
        weights = weights.to(self.weights.dtype)
        self._weights = weights if chosen is None else torch.where(chosen, weights, self.weights)

    def fitted(self, weights: Tensor) -> Tensor:
        """Return weights that were given, with an axis of one query where the recorded ones have none."""
        is_without = not self.has_queries and weights.dim() and weights.dim() < len(self.shape)
        return weights.unsqueeze(-2) if is_without else weights

    def chosen(self, heads: Heads) -> Tensor | None:
        """Return which heads are meant, ``(H, 1, 1)``; None for all."""
        if heads is None:
            return None
        if len(self.shape) < 4:
            raise ShapeError(
                f"edit: head is {heads!r} for {self.name!r}, whose weights are {tuple(self.shape)}, expected (batch, "
                "head, query, key). Leave head out: this attention has none."
            )
        count = self.shape[-3]
        try:
            numbers = [operator.index(head) for head in ([heads] if isinstance(heads, int) else heads)]
        except TypeError as error:
            raise ConfigError(
                f"edit: head is {heads!r} for {self.name!r}, expected a number or several: head=2, head=[0, 2]."
            ) from error
        for number in numbers:
            if not -count <= number < count:
                raise ShapeError(f"edit: head is {number} for {self.name!r}, expected 0 to {count - 1}.")
        chosen = torch.zeros(count, 1, 1, dtype=torch.bool, device=self.device)
        chosen[numbers] = True
        return chosen

    def marked_queries(self, positions: Positions) -> Tensor:
        """Return which queries are meant, of the rank of the weights, with one key."""
        return self.rows(self._marked("queries", positions, self.length or self.shape[-2]).unsqueeze(-1))

    def marked_keys(self, positions: Positions) -> Tensor:
        """Return which keys are meant, of the rank of the weights, with one query."""
        return self._marked("keys", positions, self.shape[-1]).unsqueeze(-2)

    def rows(self, of_all: Tensor) -> Tensor:
        """Return the rows that are computed now of something that has the rows of the whole call, or one for all."""
        if not self.length or of_all.dim() < 2 or of_all.shape[-2] == 1:
            return of_all
        return of_all[..., self.first : self.first + self.shape[-2], :]

    def _marked(self, what: str, positions: Positions, size: int) -> Tensor:
        """Return which positions are meant, ``(…, size)``, with an axis for each but the last of the weights."""
        leading = len(self.shape) - 2
        if isinstance(positions, Tensor) and positions.dtype == torch.bool:
            rows = self.shape[:leading][:1]
            fits = positions.dim() == 1 or (positions.dim() == 2 and positions.shape[:1] in ((1,), rows))
            if not fits or positions.shape[-1] != size:
                raise ShapeError(
                    f"edit: {what} have shape {tuple(positions.shape)} for {self.name!r}, whose weights are "
                    f"{tuple(self.shape)}, expected ({size},) or (batch, {size})."
                )
            batch = positions.shape[:1] if positions.dim() == 2 else ()
            return positions.to(self.device).reshape(*batch, *(1,) * (leading - len(batch)), size)
        marked = torch.zeros(size, dtype=torch.bool, device=self.device)
        if positions is None:
            marked[:] = True
        elif isinstance(positions, slice):
            marked[positions] = True
        else:
            marked[[number for number in numbers_of(positions) if -size <= number < size]] = True
        return marked.reshape((1,) * leading + (size,))


class Writing(Attended):
    """Weights with which something is written."""

    def zero(self, keys: Tensor) -> None:
        """Raise: there are no values that could be zero."""
        raise ConfigError(
            f"edit: zero_values of {self.name!r}, which writes, expected weights that read values. Keep it from "
            "writing to positions with block, or let nothing be written with knock_out."
        )


class Gates(Attended):
    """Factors of the channels and places of a map, ``(B, C, H, W)``: heads, queries and keys are C, H and W.

    They do not share what is read: what one loses the others do not take. All of a map are one row.
    """

    def without(self, closed: Tensor) -> Tensor:
        """Return the gates with these closed."""
        return self.weights.masked_fill(closed, 0.0)

    def alike(self) -> Tensor:
        """Return the mean of the gates of each map."""
        return self.weights.mean(dim=(1, 2, 3), keepdim=True).expand(self.shape)

    def in_rows(self, tensor: Tensor) -> Tensor:
        """Return ``(B, 1, C · H · W)``."""
        return tensor.flatten(1).unsqueeze(1)


Change = Callable[[Attended], None]


def knock_out(head: Heads) -> Change:
    """Return the change by which these heads read nothing."""
    return lambda call: call.put(torch.zeros_like(call.weights), head)


def block(queries: Positions, keys: Positions, head: Heads) -> Change:
    """Return the change by which these queries do not read these keys."""

    def change(call: Attended) -> None:
        closed = call.marked_queries(queries) & call.marked_keys(keys)
        chosen = call.chosen(head)
        call.close(closed if chosen is None else closed & chosen)

    return change


def uniform(head: Heads) -> Change:
    """Return the change by which each query reads all positions that it may read alike."""

    return lambda call: call.put(call.alike(), head)


def permute(seed: int, order: Tensor | Sequence[int] | None, head: Heads) -> Change:
    """Return the change that gives each weight of a row to another position that the row may read.

    Args:
        seed: of the permutations, one for each row.
        order: instead of them, the position that each position's weight is taken from, ``(…, S)``.
        head: the heads.
    """
    places = None if order is None else torch.as_tensor(order)

    def change(call: Attended) -> None:
        weights, open = call.in_rows(call.weights), call.in_rows(call.open)
        *leading, length, size = weights.shape
        if places is not None:
            fits = places.dim() and places.shape[-1] == size and not places.is_floating_point()
            if not fits or not torch.equal(places.sort(dim=-1).values, torch.arange(size).to(places).expand_as(places)):
                raise ShapeError(
                    f"edit: order has shape {tuple(places.shape)} for {call.name!r}, expected (…, {size}), with each "
                    f"of the numbers 0 to {size - 1} once in a row."
                )
            new = weights.gather(-1, call.rows(places.to(call.device)).expand(weights.shape)).reshape(call.shape)
            call.put(_within(call, new, head, "the order moves weight to"), head)
            return
        generator = torch.Generator().manual_seed(seed ^ zlib.crc32(call.name.encode()))
        numbers = call.rows(torch.rand(*leading, call.length or length, size, generator=generator)).to(call.device)
        # Both orders have the positions of a row that may be read first, the one by number, the other at random.
        behind = torch.where(open, 0.0, 2.0)
        by_number = behind.sort(dim=-1, stable=True).indices
        at_random = torch.where(open, numbers, 2.0).sort(dim=-1, stable=True).indices
        new = torch.zeros_like(weights).scatter(-1, by_number, weights.gather(-1, at_random))
        call.put(new.reshape(call.shape), head)

    return change


def given(weights: Given, head: Heads) -> Change:
    """Return the change to weights that were given: a tensor, or a function of the weights that there are."""
    if not (isinstance(weights, Tensor | Weights) or callable(weights)):
        raise ConfigError(
            f"edit: weights is of type {type(weights).__name__}, expected a tensor, a foci.Weights, or a function of "
            "the weights that there are. Write torch.tensor(…)."
        )

    def change(call: Attended) -> None:
        new = weights if isinstance(weights, Tensor | Weights) else weights(call.weights)
        new = new.dense() if isinstance(new, Weights) else new
        if not isinstance(new, Tensor) or new.dtype == torch.bool:
            kind = "boolean" if isinstance(new, Tensor) else f"a {type(new).__name__}"
            raise ConfigError(f"edit: weights for {call.name!r} are {kind}, expected a tensor of numbers.")
        new = call.fitted(new.to(call.device))
        new = call.rows(new) if isinstance(weights, Tensor | Weights) else new
        try:
            new = new.expand(call.shape)
        except RuntimeError as error:
            raise ShapeError(
                f"edit: weights for {call.name!r} have shape {tuple(new.shape)}, expected {tuple(call.shape)}, or what "
                "broadcasts to it."
            ) from error
        call.put(_within(call, new, head, "weights are given to"), head)

    return change


def scale(factor: float, head: Heads) -> Change:
    """Return the change that multiplies weights, and so what is read."""
    if not isinstance(factor, int | float | Tensor):
        raise ConfigError(f"edit: factor is {factor!r}, expected a number.")
    return lambda call: call.put(call.weights * factor, head)


def zero_values(keys: Positions, head: Heads) -> Change:
    """Return the change by which 0 is read in the place of the values of these keys."""

    def change(call: Attended) -> None:
        zeroed, chosen = call.marked_keys(keys), call.chosen(head)
        call.zero(zeroed if chosen is None else zeroed & chosen)

    return change


def numbers_of(positions: Positions) -> list[int]:
    """Return the positions that were given by their numbers."""
    if positions is None or isinstance(positions, slice):
        return []
    if isinstance(positions, Tensor):
        return [] if positions.dtype == torch.bool else [int(number) for number in positions.flatten()]
    return [positions] if isinstance(positions, int) else [int(number) for number in positions]


def _within(call: Attended, weights: Tensor, head: Heads, what: str) -> Tensor:
    """Return the weights, or raise if there are some on positions that may not be read."""
    opened = (weights != 0.0) & ~call.open
    chosen = call.chosen(head)
    if is_transformed():
        return weights.masked_fill(opened, 0.0)
    if bool((opened if chosen is None else opened & chosen).any()):
        raise ConfigError(
            f"edit: {what} masked positions of {call.name!r}, expected 0 there: an edit does not open what the model "
            "may not read."
        )
    return weights


def _renormalized(weights: Tensor, closed: Tensor) -> Tensor:
    """Return the weights of a softmax without the closed positions; a row with nothing left has weights 0."""
    rest = weights.masked_fill(closed, 0.0)
    left = rest.sum(dim=-1, keepdim=True)
    # What a row lacks of 1 belongs to a sink. A smaller number is of rounding.
    lacking = 1.0 - weights.sum(dim=-1, keepdim=True)
    left = left + lacking.where(lacking > 64 * torch.finfo(weights.dtype).eps, 0.0)
    dead = left <= 0.0
    touched = (closed & (weights != 0.0)).any(dim=-1, keepdim=True)
    return torch.where(touched, (rest / left.masked_fill(dead, 1.0)).masked_fill(dead, 0.0), weights)
