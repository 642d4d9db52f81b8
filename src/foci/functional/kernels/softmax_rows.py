"""Weights of dot products whose k largest and whose entropy are computed in one pass over each row of scores.

`attend_dots` returns a `FusedSoftmax` as the source of its weights. Its scores come from one matrix product, some
rows at a time; ``softmax_rows.cpp`` then needs no softmax of the whole row, no sorting and one logarithm. Where the
kernel is inactive, in other dtypes and devices, and where gradients are wanted, it is the plain `DotSoftmax`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from foci.functional.kernels.kernel import ADDRESS, SIZE, Kernel, run, threads
from foci.functional.kernels.self_check import are_near, fixed_numbers
from foci.tracing import exportable, is_traced, is_watched
from foci.weights.sources import DotSoftmax, Rows

_THREAD_ENTRIES = 1 << 16
"""Scores per additional thread, below which starting it costs more than it saves."""


@exportable
@dataclass(eq=False)
class FusedSoftmax(DotSoftmax):
    """`DotSoftmax` with the reductions of ``softmax_rows.cpp``."""

    def largest(self, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest weights of these rows and their positions."""
        scores, library = self._for_kernel(index)
        if library is None or k == 0:
            return super().largest(index, k)
        return _largest(library, scores, k)

    def entropy(self, index: Rows) -> Tensor:
        """Return the entropy of these rows."""
        scores, library = self._for_kernel(index)
        return super().entropy(index) if library is None else _entropy(library, scores)

    def _for_kernel(self, index: Rows) -> tuple[Tensor, ctypes.CDLL | None]:
        """Return the scores, −inf for masked positions, and the kernel if it supports them."""
        plain = self.sink is not None or is_traced() or is_watched(self.query, self.key)
        library = None if plain else _KERNEL.library_for(self.query, self.key)
        if library is None:
            return self.query, None
        scores, mask = self.scores(index)
        if scores.requires_grad or scores.dtype != torch.float32:
            return scores, None
        return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)), library


def _largest(library: ctypes.CDLL, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    weights = scores.new_empty(*scores.shape[:-1], k)
    positions = torch.empty_like(weights, dtype=torch.long)
    run(
        library.foci_softmax_rows_largest, scores.contiguous(), *_sizes(scores), k, _threads(scores), weights, positions
    )
    return weights, positions


def _entropy(library: ctypes.CDLL, scores: Tensor) -> Tensor:
    entropy = scores.new_empty(*scores.shape[:-1], 1)
    run(library.foci_softmax_rows_entropy, scores.contiguous(), *_sizes(scores), _threads(scores), entropy)
    return entropy


def _sizes(scores: Tensor) -> tuple[int, int]:
    return scores.shape[:-1].numel(), scores.shape[-1]


def _threads(scores: Tensor) -> int:
    return threads(scores.numel(), _THREAD_ENTRIES)


_FUNCTIONS = {
    "entropy": (None, [ADDRESS, SIZE, SIZE, SIZE, ADDRESS]),
    "largest": (None, [ADDRESS, SIZE, SIZE, SIZE, SIZE, ADDRESS, ADDRESS]),
}


def _self_check(library: ctypes.CDLL) -> bool:
    """Compare two rows of 43 scores, whole vectors and a rest, with plain arithmetic."""
    scores = 7 * fixed_numbers(1, 2, 43)
    weights = torch.softmax(scores, dim=-1)
    wanted = (*torch.topk(weights, 3), torch.special.entr(weights).sum(dim=-1, keepdim=True))
    return are_near((*_largest(library, scores.float(), 3), _entropy(library, scores.float())), wanted, 1e-5)


_KERNEL = Kernel("softmax_rows", _FUNCTIONS, _self_check)
