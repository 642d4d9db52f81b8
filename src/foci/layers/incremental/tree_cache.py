"""The keys and values of a decoder's past for several hypotheses per source, each token's stored once.

    position t, source b:   entries  | a | b c | d e | …        hypotheses:  a-b-d,  a-b-e
                            path of a-b-e   1   1 0   0 1

Without sharing, a beam search copies the keys and values of a hypothesis whenever it is continued in two ways. Here
all hypotheses of a source share its entries, and each has a ``path``: the entries of its own past. Reordering the
hypotheses reorders paths, one byte per entry, and attention reads the shared entries with the paths as a mask. Entries
that are on no path any more are removed whenever a larger store is made.

Complexity: per step and source O(K · entries · D); reordering O(K · entries) bytes instead of O(K · length · D) numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.errors import ShapeError

_ROOM = 16
"""Number of steps for which memory is allocated at a time."""


class LayerEntries(NamedTuple):
    """The keys and values ``(B, H, entries, K)`` of one layer, the new ones last."""

    key: Float[Tensor, "B H entries K"]
    value: Float[Tensor, "B H entries K"]


class _Store:
    """Memory for the entries of one layer; ``written`` keeps a second writer from overwriting those of the first."""

    def __init__(self, key: Tensor, value: Tensor, written: int) -> None:
        self.key = key
        self.value = value
        self.written = written


class TreeCache:
    """The keys and values of all hypotheses, for every layer of a decoder.

    It is immutable: `grow` returns the cache of the next step, into which `append` writes each layer's entries; the old
    one can still be grown in another way. `select` chooses hypotheses.

    Args:
        layers: number of layers.
        rows: number of hypotheses.
        device: of the masks.
        window: the number of tokens before the new one that a hypothesis attends to; older entries are removed.
            Default: all.
        keep_positions: keep the position of each entry, for ALiBi.

    Example:
        >>> import torch
        >>> cache = TreeCache(layers=1, rows=2).grow(sources=2)     # two sources, one hypothesis each
        >>> key = torch.zeros(2, 3, 1, 5)                           # (source, head, hypothesis, feature)
        >>> cache.append(0, key, key).key.shape
        torch.Size([2, 3, 1, 5])
        >>> cache = cache.select(torch.tensor([0, 0, 1, 1])).grow(sources=2)        # two hypotheses each
        >>> key = torch.zeros(2, 3, 2, 5)
        >>> cache.append(0, key, key).key.shape, cache.mask.int().tolist()[0]
        (torch.Size([2, 3, 3, 5]), [[1, 1, 0], [1, 0, 1]])
    """

    def __init__(
        self,
        layers: int,
        rows: int,
        device: torch.device | None = None,
        *,
        window: int | None = None,
        keep_positions: bool = False,
    ) -> None:
        self.steps = 0
        self._window = window
        self.rows = rows
        self._born: Tensor | None = None  # (rows, entries), the step each entry was written at
        if keep_positions or window is not None:
            self._born = torch.zeros(rows, 0, dtype=torch.long, device=device)
        self._device = device
        self._stores: list[_Store | None] = [None] * layers
        self._entries = 0  # of each source, in use
        self._path: Tensor | None = None  # (rows, entries), None while every entry is on every path
        self._source: Tensor | None = None  # the stores' row of each hypothesis; None: hypothesis n has row n // width
        self._width = 1  # hypotheses per source, as of the last step

    @classmethod
    def filled(
        cls,
        entries: Sequence[LayerEntries],
        sources: int,
        *,
        window: int | None = None,
        keep_positions: bool = False,
    ) -> TreeCache:
        """Return the cache of hypotheses that have read P tokens each, and share none of them.

        Args:
            entries: keys and values ``(N, H, P, K)`` of each layer; row b · width + k is hypothesis k of source b.
            sources: their number, which divides N.
            window: as in the class.
            keep_positions: as in the class.
        """
        rows, heads, length, size = entries[0].key.shape
        cache = cls(len(entries), rows, entries[0].key.device, window=window, keep_positions=keep_positions)
        cache._width = width = max(1, rows // max(1, sources))
        cache._entries, cache.steps = width * length, length
        if cache._born is not None:
            cache._born = torch.arange(length, device=cache._device).repeat(width).expand(rows, -1)
        if width > 1:
            own = torch.eye(width, dtype=torch.bool, device=cache._device).repeat_interleave(length, dim=1)
            cache._path = own.repeat(sources, 1)

        def stored(part: Tensor) -> Tensor:
            by_source = part.reshape(sources, width, heads, length, size).transpose(1, 2).flatten(2, 3)
            room = cache._room(by_source, cache._entries)
            room[:, :, : cache._entries] = by_source
            return room

        cache._stores = [_Store(stored(layer.key), stored(layer.value), cache._entries) for layer in entries]
        return cache

    @property
    def mask(self) -> Bool[Tensor, "B K entries"] | None:
        """Which entries each hypothesis may read; None when it may read all entries of its source."""
        return None if self._path is None else self._path.view(-1, self._width, self._entries)

    @property
    def entries(self) -> int:
        """The number of entries of each source."""
        return self._entries

    @property
    def positions(self) -> Int[Tensor, "B K entries"] | None:
        """The position of each entry; None unless they are kept."""
        return None if self._born is None else self._born.view(-1, self._width, self._entries)

    def select(self, index: Int[Tensor, " N"]) -> TreeCache:
        """Return the cache of these hypotheses, in this order; a hypothesis may be repeated."""
        chosen = self._copy()
        chosen.rows = index.shape[0]
        chosen._path = None if self._path is None else self._path.index_select(0, index)
        chosen._born = None if self._born is None else self._born.index_select(0, index)
        if self._source is None:
            chosen._source = torch.div(index, self._width, rounding_mode="floor")
        else:
            chosen._source = self._source.index_select(0, index)
        return chosen

    def grow(self, sources: int) -> TreeCache:
        """Return the cache of the next step, with one new entry for each hypothesis of this number of sources."""
        width = max(1, self.rows // max(1, sources))
        if self.rows != sources * width:
            raise ShapeError(
                f"TreeCache: there are {self.rows} hypotheses of {sources} sources, expected equally many of each. "
                "Row b · K + k is hypothesis k of source b."
            )
        grown = self._copy()
        grown._width = width
        if grown._path is None and (width > 1 or self._window is not None):
            grown._path = torch.ones(grown.rows, grown._entries, dtype=torch.bool, device=self._device)
        if self._window is not None and grown._path is not None and grown._born is not None:
            grown._path = grown._path & (grown._born >= self.steps - self._window)
        left = grown._sources_left(sources)
        if left is not None or any(
            store is not None and store.key.shape[2] < grown._entries + width for store in grown._stores
        ):
            grown._make_room(left)
        if grown._path is not None:
            own = torch.eye(width, dtype=torch.bool, device=self._device).repeat(sources, 1)
            grown._path = torch.cat([grown._path, own], dim=1)
        if grown._born is not None:
            grown._born = torch.cat([grown._born, grown._born.new_full((grown.rows, width), self.steps)], dim=1)
        grown._entries += width
        grown.steps += 1
        return grown

    def append(
        self, layer: int, key: Float[Tensor, "B H width K"], value: Float[Tensor, "B H width K"]
    ) -> LayerEntries:
        """Write a layer's new entries; return all its entries, the earlier ones included."""
        begin, end = self._entries - self._width, self._entries
        if self._stores[layer] is None:
            self._stores[layer] = _Store(self._room(key, begin), self._room(value, begin), begin)
        room = self.reserve(layer)
        room.key[:, :, begin:end] = key
        room.value[:, :, begin:end] = value
        return LayerEntries(room.key[:, :, :end], room.value[:, :, :end])

    def reserve(self, layer: int) -> LayerEntries:
        """Return the memory ``(B, H, room, K)`` of a layer that has entries; the caller writes its new ones there."""
        begin = self._entries - self._width
        store = self._stores[layer]
        if store is None:
            raise ShapeError(f"TreeCache: layer {layer} has no entries, expected those of earlier steps. Use append.")
        if store.written > begin or torch.is_grad_enabled():
            # The same cache was grown before, or autograd has saved what was read: write into a new store.
            store = self._stores[layer] = self._moved(store, None, None, begin)
        store.written = self._entries
        return LayerEntries(store.key, store.value)

    def _copy(self) -> TreeCache:
        copy = TreeCache(0, self.rows, self._device)
        copy.__dict__.update(self.__dict__)
        copy._stores = list(self._stores)
        return copy

    def _sources_left(self, sources: int) -> Tensor | None:
        """Return the stores' rows of the remaining sources, None when no source was dropped or moved."""
        if self._source is None:
            return None
        rows = self._source.view(sources, self._width)[:, 0]
        self._source = None
        stored = next((store.key.shape[0] for store in self._stores if store is not None), sources)
        if stored == sources and torch.equal(rows, torch.arange(sources, device=rows.device)):
            return None
        return rows

    def _make_room(self, left: Tensor | None) -> None:
        """Allocate larger stores of the remaining sources, without the entries that are on no path."""
        kept: Tensor | None = None
        if self._path is not None:
            paths = self._path.view(-1, self._width, self._entries)
            alive = paths.any(dim=1)
            self._entries = int(alive.sum(dim=1).amax()) if alive.numel() else 0
            kept = alive.int().argsort(dim=1, descending=True, stable=True)[:, : self._entries]
            of_each = kept.unsqueeze(1).expand(-1, self._width, -1)
            self._path = paths.gather(2, of_each).flatten(0, 1)
            if self._born is not None:
                self._born = self._born.gather(1, of_each.flatten(0, 1))
        self._stores = [
            None if store is None else self._moved(store, left, kept, self._entries) for store in self._stores
        ]

    def _moved(self, store: _Store, left: Tensor | None, kept: Tensor | None, count: int) -> _Store:
        """Return a larger store with the first ``count`` entries, or those kept, of the remaining sources."""

        def move(entries: Tensor) -> Tensor:
            if left is not None:
                entries = entries.index_select(0, left)
            room = self._room(entries, count)
            if kept is None:
                room[:, :, :count] = entries[:, :, :count]
            else:  # index_select copies whole entries, torch.gather single numbers
                batch, heads, stored, size = entries.shape
                first = torch.arange(0, batch * heads * stored, stored, device=entries.device).view(batch, heads, 1)
                index = (first + kept.unsqueeze(1)).flatten()
                room[:, :, :count] = entries.flatten(0, 2).index_select(0, index).view(batch, heads, count, size)
            return room

        return _Store(move(store.key), move(store.value), count)

    def _room(self, like: Tensor, count: int) -> Tensor:
        return like.new_empty(*like.shape[:2], count + self._width * _ROOM, like.shape[3])
