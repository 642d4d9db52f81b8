"""Caches of projected keys and values, for decoding step by step: growing, preallocated, and sliding.

    growing        | k_0 … k_t |                 every step makes longer tensors
    preallocated   | k_0 … k_t |   free   |      one memory for the longest text; the sizes of a step never change
    sliding        | k_t−w+1 … k_t |             only the w positions that a window still reaches

Paper: Fast Transformer Decoding (Shazeer, 2019), section 2.3, arXiv:1911.02150; the size of a window: Mistral 7B (Jiang
    et al., 2023), section 2, arXiv:2310.06825
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.errors import ShapeError
from foci.tracing import exportable, is_traced

Cache = TypeVar("Cache", bound="AnyCache")


@runtime_checkable  # by the checker of shapes in the tests
class AnyCache(Protocol):
    """What all caches have; each is a NamedTuple of tensors, whose first axis is the batch."""

    @property
    def key(self) -> Tensor:
        """The keys ``(B, heads, slots, K)``."""

    @property
    def value(self) -> Tensor:
        """The values ``(B, heads, slots, V)``."""

    @property
    def start(self) -> int | Tensor:
        """The position of the next key: a number, or one per row ``(B, 1)``."""

    def select(self: Cache, index: Int[Tensor, " N"]) -> Cache:
        """Return the cache of these rows, in this order; a row may be repeated."""

    def extend(self, key: Tensor, value: Tensor) -> Extended:
        """Append the keys and values of the next positions."""

    def covering(self, mask: Tensor, length: int) -> Tensor:
        """Return the columns of the mask that are the new positions."""


class Extended(NamedTuple):
    """A cache with L more positions, and what their queries read.

    Attributes:
        cache: the next state.
        key: cached and new keys.
        value: cached and new values.
        slots: which slots hold a position ``(B, 1, 1, S)``; None for all.
        distance: position of a slot minus a query's own ``(B, L, S)``; None where the last query's own slot is the
            last.
    """

    cache: AnyCache
    key: Float[Tensor, "B H S K"]
    value: Float[Tensor, "B H S V"]
    slots: Bool[Tensor, "B 1 1 S"] | None = None
    distance: Int[Tensor, "B L S"] | None = None


@exportable
class KeyValueCache(NamedTuple):
    """The projected keys and values of all positions so far, ``(B, heads, S, K)``."""

    key: Tensor
    value: Tensor

    @property
    def start(self) -> int:
        """The position of the next key."""
        return self.key.shape[2]

    def select(self, index: Int[Tensor, " N"]) -> KeyValueCache:
        """Return the cache of these rows, in this order; a row may be repeated."""
        return KeyValueCache(self.key.index_select(0, index), self.value.index_select(0, index))

    def extend(self, key: Float[Tensor, "B H L K"], value: Float[Tensor, "B H L V"]) -> Extended:
        """Append the keys and values of the next positions."""
        key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        return Extended(KeyValueCache(key, value), key, value)

    def covering(self, mask: Tensor, length: int) -> Tensor:
        """Return the mask: its last columns are the new positions."""
        return mask


@exportable
class PreallocatedCache(NamedTuple):
    """Memory for keys and values ``(B, heads, slots, K)`` of which each row uses the first ``length (B,)``.

    Outside of autograd a step writes into this memory, and the state it was given is spent: continue with the one that
    comes back. `select` and any copy of the rows have a memory of their own.
    """

    key: Tensor
    value: Tensor
    length: Tensor

    @property
    def start(self) -> Tensor:
        """The position of the next key in each row, ``(B, 1)``."""
        return self.length.unsqueeze(1)

    def select(self, index: Int[Tensor, " N"]) -> PreallocatedCache:
        """Return the cache of these rows, in this order; a row may be repeated."""
        return PreallocatedCache(*(part.index_select(0, index) for part in self))

    def extend(self, key: Float[Tensor, "B H L K"], value: Float[Tensor, "B H L V"]) -> Extended:
        """Write the keys and values of the next positions."""
        L, slots = key.shape[2], torch.arange(self.key.shape[2], device=key.device)
        own = self.start + torch.arange(L, device=key.device)
        after = self.length + L
        self._check_room(L)
        key, value = key.to(self.key.dtype), value.to(self.value.dtype)  # under autocast they are in half precision
        place = own.view(own.shape[0], 1, L, 1)
        if torch.is_grad_enabled() or is_traced():
            keys = self.key.scatter(2, place.expand_as(key), key)
            values = self.value.scatter(2, place.expand_as(value), value)
        else:
            self.key.scatter_(2, place.expand_as(key), key)
            self.value.scatter_(2, place.expand_as(value), value)
            self.length.fill_(-1)
            # Later steps write to slots that this step may not read, which leaves its weights as they are: .data has a
            # counter of in-place changes of its own.
            keys, values = self.key.data, self.value.data
        state = PreallocatedCache(keys, values, after)
        filled = slots < after.unsqueeze(1)
        return Extended(state, keys, values, filled[:, None, None], slots - own.unsqueeze(2))

    def covering(self, mask: Tensor, length: int) -> Tensor:
        """Return the columns of the new positions."""
        if mask.shape[-1] == 1:
            return mask
        own = (self.start + torch.arange(length, device=mask.device)).clamp(0, mask.shape[-1] - 1)
        own = own.view(own.shape[0], *(1,) * (mask.dim() - 2), length)
        rows = max(mask.shape[0], own.shape[0])
        return mask.expand(rows, *mask.shape[1:]).gather(-1, own.expand(rows, *mask.shape[1:-1], length))

    def _check_room(self, new: int) -> None:
        # On another device the check would synchronize with it, and inside a trace there are no values to check.
        if self.length.device.type != "cpu" or is_traced() or not self.length.numel():
            return
        if int(self.length.min()) < 0:
            raise ShapeError(
                "PreallocatedCache: this state was continued before, expected the state that came back. To continue it "
                "in two ways, copy it first: state.select(torch.arange(batch))."
            )
        used = int(self.length.max())
        if used + new > self.key.shape[2]:
            raise ShapeError(
                f"PreallocatedCache: {used} of {self.key.shape[2]} slots are in use, expected room for {new} more. Use "
                "empty_cache(batch, max_length=…) with a larger length, or a growing cache: empty_cache(batch)."
            )


@exportable
class SlidingCache(NamedTuple):
    """The keys and values ``(B, heads, w, K)`` of the last w positions of ``length (B,)``; older ones are dropped."""

    key: Tensor
    value: Tensor
    length: Tensor

    @property
    def start(self) -> Tensor:
        """The position of the next key in each row, ``(B, 1)``."""
        return self.length.unsqueeze(1)

    def select(self, index: Int[Tensor, " N"]) -> SlidingCache:
        """Return the cache of these rows, in this order; a row may be repeated."""
        return SlidingCache(*(part.index_select(0, index) for part in self))

    def extend(self, key: Float[Tensor, "B H L K"], value: Float[Tensor, "B H L V"]) -> Extended:
        """Append the keys and values of the next positions, and drop as many of the oldest ones."""
        L, width = key.shape[2], self.key.shape[2]
        key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        # In memory of their own: a view would keep what is dropped, and its strides would compile once more.
        state = SlidingCache(key[:, :, L:].contiguous(), value[:, :, L:].contiguous(), self.length + L)
        filled = torch.arange(width + L, device=key.device) >= width - self.start
        return Extended(state, key, value, filled[:, None, None])

    def covering(self, mask: Tensor, length: int) -> Tensor:
        """Return the mask: its last columns are the new positions."""
        return mask

    def fit(self, name: str, table: Tensor, new: int) -> Tensor:
        """Return the slots' columns of a mask or a bias over all positions so far."""
        slots, columns = self.key.shape[2] + new, table.shape[-1]
        if columns == 1 and slots != 1:
            return table
        if self.length.device.type == "cpu" and not is_traced() and self.length.numel():
            longest = int(self.length.max()) + new
            if columns != longest:
                raise ShapeError(
                    f"MultiHeadAttention: {name} has {columns} keys, expected {longest}: the {longest - new} positions "
                    f"so far, dropped ones included, and {new} new ones."
                )
        # Slots before the first position are closed, so that they may have any column. There is no branch on a length.
        return table.index_select(-1, torch.arange(columns - slots, columns, device=table.device).clamp(min=0))
