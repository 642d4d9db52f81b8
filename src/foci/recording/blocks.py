"""BigBird's attention: blocks of queries read the first and the last block, their neighbors, and some at random.

    block i reads  (0, i − 1, i, i + 1, random blocks, n − 1)        blocks 0 and n − 1 read all

Each kind of block has a softmax of its own, whose columns are read in pieces. A module that has the method
``bigbird_block_sparse_attention`` is known to be one. Which blocks are random is seen in what it gathers; one that
comes twice has the sum of both weights.

Paper: Big Bird: Transformers for Longer Sequences (Zaheer et al., 2020), section 2
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foci.recording.joined import Joined, Pieces
from foci.weights import Weights

_METHOD = "bigbird_block_sparse_attention"


def has_blocks(module: Any) -> bool:
    """Return whether the module attends as BigBird does."""
    return callable(getattr(module, _METHOD, None))


def of_blocks(module: Any, pieces: Pieces) -> Joined | None:
    """Return the attention of a call of the module, None where its softmaxes have another form."""
    given, call = [result for _, result in pieces.softmaxes], pieces.call
    index = next((index for index in pieces.gathered if index.dim() == 5), None)
    if index is None or not pieces.have([4, 4, 5, 4, 4], "from_mask", "to_mask", "hidden_states"):
        return None
    batch, heads, size, length = given[0].shape
    count = length // size
    random = index[..., 0, 0].unflatten(2, (count - 2, -1))
    columns = _columns(random, count)
    from_mask: Tensor = call["from_mask"].bool()  # (B, 1, L, 1)
    to_mask: Tensor = call["to_mask"].bool()  # (B, 1, 1, S)

    def placed(rows: list[Tensor]) -> Tensor:
        """Return the weights of each block of rows, of the columns that it reads, ``(B, H, L, S)``."""
        blocks = []
        for row, places in zip(rows, columns, strict=True):
            parts = row.unflatten(-1, (-1, size))
            dense = row.new_zeros(batch, heads, size, count, size)
            blocks.append(dense.scatter_add(3, places[:, :, None, :, None].expand(parts.shape), parts))
        return torch.stack(blocks, dim=2).reshape(batch, heads, length, length)

    def find_open() -> Tensor:
        ones = given[0].new_ones(())
        sizes = (places.shape[-1] * size for places in columns)
        return (placed([ones.expand(batch, heads, size, width) for width in sizes]) > 0.0) & from_mask & to_mask

    first, second, middle, before_last, last = given
    weights = placed([first, second, *middle.unbind(2), before_last, last])
    pieces.are_read()
    return Joined(
        Weights.from_tensor(weights.masked_fill(~from_mask, 0.0)),
        find_open,
        lambda: [module.value.forward(call["hidden_states"])],  # no call, which would be recorded again
    )


def _columns(random: Tensor, count: int) -> list[Tensor]:
    """Return the blocks that each block reads, ``(B, H, blocks)``, in the order of the columns of its softmax."""

    def of(*blocks: int) -> Tensor:
        return torch.tensor(blocks, device=random.device).expand(*random.shape[:2], -1)

    every, last = of(*range(count)), of(count - 1)
    middle = [torch.cat([of(0, i - 1, i, i + 1), random[:, :, i - 1], last], dim=2) for i in range(2, count - 2)]
    second = torch.cat([of(0, 1, 2, count - 1), random[:, :, 0]], dim=2)
    before_last = torch.cat([of(0, count - 3, count - 2, count - 1), random[:, :, -1]], dim=2)
    return [every, second, *middle, before_last, every]
