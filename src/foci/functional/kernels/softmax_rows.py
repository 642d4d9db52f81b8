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

from foci.functional.kernels.build import Kernel
from foci.tracing import exportable, is_traced, is_watched
from foci.weights.sources import DotSoftmax, Rows

_THREAD_CELLS = 1 << 16
"""Cells per additional thread, below which starting it costs more than it saves."""


@exportable
@dataclass(eq=False)
class FusedSoftmax(DotSoftmax):
    """`DotSoftmax` with the reductions of ``softmax_rows.cpp``."""

    def largest(self, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest weights of these rows and their cells."""
        scores, library = self._for_kernel(index)
        if library is None or k == 0:
            return super().largest(index, k)
        return _largest(library, scores, k)

    def entropy(self, index: Rows) -> Tensor:
        """Return the entropy of these rows."""
        scores, library = self._for_kernel(index)
        return super().entropy(index) if library is None else _entropy(library, scores)

    def _for_kernel(self, index: Rows) -> tuple[Tensor, ctypes.CDLL | None]:
        """Return the scores, −inf for masked cells, and the kernel if it supports them."""
        suits = self.query.dtype == self.key.dtype == torch.float32 and self.query.device.type == "cpu"
        if not suits or is_traced() or is_watched(self.query, self.key) or _KERNEL.library is None:
            return self.query, None
        scores, mask = self.scores(index)
        if scores.requires_grad or scores.dtype != torch.float32:
            return scores, None
        return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)), _KERNEL.library


def _largest(library: ctypes.CDLL, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    scores = scores.contiguous()
    weights = scores.new_empty(*scores.shape[:-1], k)
    cells = torch.empty_like(weights, dtype=torch.long)
    library.foci_rows_largest(
        scores.data_ptr(), *_sizes(scores), k, _threads(scores), weights.data_ptr(), cells.data_ptr()
    )
    return weights, cells


def _entropy(library: ctypes.CDLL, scores: Tensor) -> Tensor:
    scores = scores.contiguous()
    entropy = scores.new_empty(*scores.shape[:-1], 1)
    library.foci_rows_entropy(scores.data_ptr(), *_sizes(scores), _threads(scores), entropy.data_ptr())
    return entropy


def _sizes(scores: Tensor) -> tuple[int, int]:
    return scores.shape[:-1].numel(), scores.shape[-1]


def _threads(scores: Tensor) -> int:
    return min(torch.get_num_threads(), 1 + scores.numel() // _THREAD_CELLS)


def _self_check(library: ctypes.CDLL) -> bool:
    """Declare the signatures, and compare a row of 19 cells, two vectors and a rest, with plain arithmetic."""
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.foci_rows_entropy.argtypes = [pointer, size, size, size, pointer]
    library.foci_rows_largest.argtypes = [pointer, size, size, size, size, pointer, pointer]
    library.foci_rows_entropy.restype = library.foci_rows_largest.restype = None
    scores = 7 * torch.arange(2 * 43, dtype=torch.float32, device="cpu").sin().view(2, 43)
    weights = torch.softmax(scores.double(), dim=-1)
    values, cells = torch.topk(weights, 3)
    found, places = _largest(library, scores, 3)
    entropy = -(weights * weights.log()).sum(dim=-1, keepdim=True)
    return (
        bool(torch.equal(places, cells))
        and bool(((found - values).abs() < 1e-5).all())
        and bool(((_entropy(library, scores) - entropy).abs() < 1e-5).all())
    )


_KERNEL = Kernel("softmax_rows", _self_check)
