"""Softmax attention in a band: each query attends to the keys from ``left`` before its own to ``right`` after it.

Queries are taken in blocks; a block attends to one slice of about ``block + left + right`` keys, so the cost grows with
L · (block + left + right) and not with L · S. A few blocks are computed at a time: their scores stay in the cache,
and are computed again in the backward pass, so that nothing larger is kept.

Plain torch operations inside one custom operator: it needs no compiler, runs on every device, and torch.compile and
torch.export see a single node for all lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foci import masks
from foci.functional.kernels.operators import Grads, Operator
from foci.tracing import is_traced, is_watched

_BLOCK = 64
"""Queries per block: 32 to 64 were fastest for bands of 64 to 512; larger blocks compute more masked scores."""

_SCORES = 1 << 18
"""Scores computed at a time, 1 MB in float32: the fastest size measured, as it stays in a core's own cache."""


def attend_band(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, left: int, right: int, scale: float
) -> Tensor:
    """Read ``value (B, G, S, V)`` with ``query (B, H, L, D)`` and ``key (B, G, S, D)``; H is a multiple of G.

    ``valid (B, S)`` says which keys may be read. The last query's own key is the last key. A query without any key
    to read gets zeros.
    """
    if not is_traced() and is_watched(query, key, value):
        return _plain(query, key, value, valid, left, right, scale)
    output: Tensor = _BAND.traced(query, key, value, valid, left, right, scale)
    return output


def _forward(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
    blocks = _QueryBlocks(query, key, value, *others)
    output = blocks.new_queries(value.shape[-1])
    for at, some in blocks.chunks():
        torch.bmm(blocks.weights(at, some), blocks.values(at, some), out=output[at][some])
    return blocks.cut(output)


def _backward(
    grads: Grads, arguments: Sequence[Any], kept: Sequence[Tensor], wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    blocks, (output,), (grad,) = _QueryBlocks(*arguments), kept, grads
    grad = torch.zeros_like(output) if grad is None else grad.contiguous()
    in_blocks, means = blocks.in_blocks(grad), blocks.in_blocks((grad * output).sum(dim=-1, keepdim=True))
    to_query = torch.empty_like(blocks.query)
    to_key, to_value = torch.zeros_like(blocks.key), torch.zeros_like(blocks.value)
    for at, some in blocks.chunks():
        weights, one = blocks.weights(at, some), in_blocks[at][some]
        slopes = torch.bmm(one, blocks.values(at, some).mT).sub_(means[at][some]).mul_(weights)
        torch.bmm(slopes, blocks.keys(at, some), out=to_query[at][some])
        blocks.add_to_slices(to_key, at, some, torch.bmm(slopes.mT, blocks.query[at][some]))
        blocks.add_to_slices(to_value, at, some, torch.bmm(weights.mT, one))
    return blocks.cut(to_query) * arguments[-1], blocks.unpad(to_key), blocks.unpad(to_value)


class _QueryBlocks:
    """Queries cut into blocks, keys and values padded so that each block's slice of them is a view."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        valid: Tensor | None,
        left: int,
        right: int,
        scale: float,
    ) -> None:
        self.length, self.size = query.shape[-2], key.shape[-2]
        self.left, self.right = left, right
        self.count = -(-self.length // _BLOCK)
        self.parts = -(-(left + _BLOCK + right) // _BLOCK)  # the width of a slice, in blocks
        self.width = self.parts * _BLOCK
        self.before = left - (self.size - self.length)  # positions put before the first key, or cut off when negative
        self.after = (self.count + self.parts - 1) * _BLOCK - self.before - self.size
        self.query = self.in_blocks(query * scale)
        self.key, self.value = self._pad(key), self._pad(value)
        self.group = query.shape[1] // key.shape[1]
        self.valid = None if valid is None else F.pad(valid, (self.before, self.after))
        rows, columns = torch.arange(_BLOCK, device=query.device), torch.arange(self.width, device=query.device)
        self.near = (columns >= rows[:, None]) & (columns <= rows[:, None] + left + right)
        self.bias = torch.zeros_like(self.near, dtype=query.dtype).masked_fill(~self.near, _lowest(query.dtype))

    def _pad(self, sequence: Tensor) -> Tensor:
        return F.pad(sequence, (0, 0, self.before, self.after)).contiguous()

    def unpad(self, sequence: Tensor) -> Tensor:
        """Return them without the padding."""
        return F.pad(sequence, (0, 0, -self.before, -self.after)).contiguous()

    def in_blocks(self, rows: Tensor) -> Tensor:
        """Return ``(B, H, L, D)`` as ``(B, H, blocks, block, D)``."""
        padded = F.pad(rows, (0, 0, 0, self.count * _BLOCK - self.length))
        return padded.view(*rows.shape[:2], self.count, _BLOCK, rows.shape[-1])

    def new_queries(self, features: int) -> Tensor:
        """Return an empty tensor with one row per query, in blocks."""
        return self.query.new_empty(*self.query.shape[:-1], features)

    def cut(self, blocks: Tensor) -> Tensor:
        """Return the blocks concatenated, without the queries that were added to fill the last one."""
        return blocks.flatten(2, 3)[:, :, : self.length].contiguous()

    def chunks(self) -> Iterator[tuple[tuple[int, int], slice]]:
        """Yield batch row and head, and a slice of its blocks: a few blocks at a time."""
        step = max(1, _SCORES // (_BLOCK * self.width))
        for row in range(self.query.shape[0]):
            for head in range(self.query.shape[1]):
                for first in range(0, self.count, step):
                    yield (row, head), slice(first, min(first + step, self.count))

    def keys(self, at: tuple[int, int], some: slice) -> Tensor:
        """Return the slices of keys that these blocks attend to, ``(blocks, width, D)``."""
        return self._slices(self.key[at[0], at[1] // self.group], some)

    def values(self, at: tuple[int, int], some: slice) -> Tensor:
        """Return the slices of values that these blocks attend to."""
        return self._slices(self.value[at[0], at[1] // self.group], some)

    def weights(self, at: tuple[int, int], some: slice) -> Tensor:
        """Return the weights of these blocks, ``(blocks, block, width)``."""
        blocks = some.stop - some.start
        scores = torch.baddbmm(self.bias.expand(blocks, -1, -1), self.query[at][some], self.keys(at, some).mT)
        allowed = self._allowed(at, some)
        if allowed is None:
            return torch.softmax(scores, dim=-1)
        # A finite fill: a row without any position becomes uniform instead of NaN, and is cleared afterwards.
        scores.masked_fill_(~allowed, _lowest(scores.dtype))
        return torch.softmax(scores, dim=-1).masked_fill_(~allowed, 0.0)

    def _allowed(self, at: tuple[int, int], some: slice) -> Tensor | None:
        """Return which positions may be read, where the band alone does not tell: near the ends, and with a mask."""
        inside = some.start * _BLOCK >= self.before and (
            (some.stop - 1) * _BLOCK + self.width <= self.before + self.size
        )
        if self.valid is not None:
            exist = self.valid[at[0]]
        elif inside:
            return None
        else:
            exist = torch.zeros(self.key.shape[2], dtype=torch.bool, device=self.key.device)
            exist[max(self.before, 0) : max(self.before + self.size, 0)] = True
        slices = exist.unfold(0, self.width, _BLOCK)[some]
        return slices.unsqueeze(1) & self.near

    def _slices(self, sequence: Tensor, some: slice) -> Tensor:
        features = sequence.shape[-1]
        first = sequence.storage_offset() + some.start * _BLOCK * features
        shape = (some.stop - some.start, self.width, features)
        return sequence.as_strided(shape, (_BLOCK * features, features, 1), first)

    def add_to_slices(self, sequence: Tensor, at: tuple[int, int], some: slice, new: Tensor) -> None:
        """Add ``new (blocks, width, D)`` to the slices of `keys`, which overlap; their parts of one block do not."""
        target = sequence[at[0], at[1] // self.group].view(-1, _BLOCK, sequence.shape[-1])
        parts = new.view(new.shape[0], self.parts, _BLOCK, new.shape[-1])
        for part in range(self.parts):
            target[some.start + part : some.stop + part] += parts[:, part]


def _plain(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, left: int, right: int, scale: float
) -> Tensor:
    """Compute the same by masking all L×S scores."""
    batch, heads, length, _ = query.shape
    groups, size = key.shape[1:3]
    mask = masks.window(length, size, left, right, device=query.device).unsqueeze(1)
    if valid is not None:
        mask = mask & valid.view(batch, 1, 1, size)
    if groups != heads:
        key, value = (
            one.unsqueeze(2).expand(-1, -1, heads // groups, -1, -1).reshape(batch, heads, size, one.shape[-1])
            for one in (key, value)
        )
    return masks.masked_softmax((query * scale) @ key.mT, mask) @ value


def _output_like(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
    return query.new_empty(*query.shape[:-1], value.shape[-1])


_BAND = Operator(
    "attend_band",
    "Tensor query, Tensor key, Tensor value, Tensor? valid, int left, int right, float scale",
    inputs=3,
    kept=slice(1),
    compute=_forward,
    gradients=_backward,
    plain=_plain,
    like=_output_like,
)


def _lowest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).min / 4
