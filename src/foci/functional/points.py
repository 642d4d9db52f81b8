"""Bilinear reading of a few points of feature maps: each point reads the four cells around it.

    Σ_k A_k x(p_k),   x(p) = Σ_s max(0, 1 − |p_x − s_x|) · max(0, 1 − |p_y − s_y|) · x_s

The positions of all levels are one sequence, row by row and level after level. On a CPU the sums are those of
`torch.nn.functional.embedding_bag`, forward and backward, which build no tensor of queries · points · features.

Paper: Deformable DETR (Zhu et al., 2021), eq. 2 and appendix A.2, arXiv:2010.04159
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from foci.functional.kernels.gradients import differentiate
from foci.tracing import is_traced, is_watched

Levels = Sequence[tuple[int, int]]
"""Height and width of each level of a feature map."""

_EXACT = 1 << 24
"""Cells and heads of a picture up to which float32 numbers them."""


def level_sizes(levels: Levels, like: Float[Tensor, "..."]) -> Float[Tensor, "N 1 2"]:
    """Return width and height of each level."""
    return _table([(width, height) for height, width in levels], like).unsqueeze(1)


def cells_of_points(
    of_points: Float[Tensor, "... N P"], places: Float[Tensor, "... N P 2"], levels: Levels
) -> tuple[Float[Tensor, "... C"], Int[Tensor, "... C"]]:
    """Return the weights and the numbers of the cells that points read, four for each; 0 outside of the map.

    Args:
        of_points: the weight of each point, P of them on each of N levels.
        places: x and y of each point, in cells from the upper left corner of its level.
        levels: their sizes.
    """
    sizes = level_sizes(levels, places)
    places = torch.minimum((places - 0.5).clamp(min=-1), sizes)  # the middle of cell 0 is at 0; farther away is as far
    first = places.detach().floor()
    cells = torch.stack([first, first + 1], dim=-1)
    shares = torch.stack([first + 1 - places, places - first], dim=-1)
    shares = shares.masked_fill((cells < 0) | (cells >= sizes.unsqueeze(-1)), 0.0)
    last = (sizes - 1).clamp(min=0).unsqueeze(-1)
    columns, rows = torch.minimum(cells.clamp(min=0), last).long().unbind(dim=-2)
    starts, widths = (one[:, None, None] for one in _table(_starts(levels), columns).unbind(dim=-1))
    along, down = shares.unbind(dim=-2)
    shares = of_points[..., None, None] * (down.unsqueeze(-1) * along.unsqueeze(-2))
    numbers = (rows * widths + starts).unsqueeze(-1) + columns.unsqueeze(-2)
    return shares.flatten(-4).to(of_points.dtype), numbers.flatten(-4)


def read_points(
    values: Float[Tensor, "B S H D"],
    of_points: Float[Tensor, "B L H N P"],
    places: Float[Tensor, "B L H N P 2"],
    levels: Levels,
) -> Float[Tensor, "B L H D"]:
    """Return the sum of what points read, by their weights, for each query and head."""
    if is_traced() or is_watched(values, of_points, places) or not _fits_bags(values, of_points, places):
        return _gathered(values, of_points, places, levels)
    read: Tensor = _Bags.apply(values, of_points, places, levels)  # type: ignore[no-untyped-call]
    return read


def _fits_bags(values: Tensor, of_points: Tensor, places: Tensor) -> bool:
    batch, size, heads, _ = values.shape
    same = values.dtype == of_points.dtype == places.dtype and values.dtype in (torch.float32, torch.float64)
    if not same or values.device.type != "cpu" or places.numel() == 0 or size * heads > _EXACT:
        return False
    # Torch refuses rows of a sparse tensor that are longer than the table.
    return 4 * of_points.shape[3:].numel() <= batch * size * heads < 1 << 31


def _gathered(values: Tensor, of_points: Tensor, places: Tensor, levels: Levels) -> Tensor:
    """Return the sums by gathering every cell, in operations that can be traced, on any device."""
    shares, cells = cells_of_points(of_points, places, levels)
    return gather_cells(values, shares, cells)


def gather_cells(
    values: Float[Tensor, "B S H D"], shares: Float[Tensor, "B L H C"], cells: Int[Tensor, "B L H C"]
) -> Float[Tensor, "B L H D"]:
    """Return the sum of C cells by their weights."""
    batch, size, heads, features = values.shape
    # One row of a table per cell and head: nothing is transposed, and each row is read in one piece.
    rows = cells * heads + _first_rows(batch, size, heads, cells.device)
    gathered = F.embedding(rows, values.reshape(-1, features))
    return (shares.unsqueeze(-2) @ gathered).squeeze(-2)


class _Bags(torch.autograd.Function):
    """`_gathered` with sums that are computed in place, and its gradients written out.

    Numbers of points have the axes (x or y, level, batch, query, head, point), so that what differs by axis and level
    is one number for a long row. Of both neighbors of a point on an axis the axis comes first.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, of_points: Tensor, places: Tensor, levels: Levels) -> Tensor:
        batch, size, heads, features = values.shape
        around = _neighbors(places, levels)
        starts, widths = (heads * one.view(-1, 1, 1, 1, 1) for one in _table(_starts(levels), places).unbind(dim=-1))
        columns, rows = around.cells.unbind(dim=1)
        numbers = _by_query((rows * widths + starts).unsqueeze(1) + columns * heads, torch.long)
        numbers += _first_rows(batch, size, heads, places.device)[..., None, None, None]
        along, down = around.shares.unbind(dim=1)
        shares = _by_query((down * of_points.permute(3, 0, 1, 2, 4)).unsqueeze(1) * along, values.dtype)
        ctx.save_for_backward(values, of_points, places, shares, numbers)
        ctx.levels = levels
        return _bags(values, shares, numbers).view(*of_points.shape[:3], features)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, of_points, places, shares, numbers = ctx.saved_tensors
        levels: Levels = ctx.levels
        if torch.is_grad_enabled():  # the gradient is differentiated as well

            def plain(values: Tensor, of_points: Tensor, places: Tensor) -> Tensor:
                return _gathered(values, of_points, places, levels)

            return *differentiate(plain, (values, of_points, places), (gradient,), create_graph=True), None
        gradient = gradient.flatten(0, 2).contiguous()
        of_values = None
        if ctx.needs_input_grad[0]:
            of_values = _gradient_of_values(gradient, shares, numbers, math.prod(values.shape[:3])).view(values.shape)
        if not (ctx.needs_input_grad[1] or ctx.needs_input_grad[2]):
            return of_values, None, None, None
        around = _neighbors(places, levels)
        of_corners = _gradient_of_shares(gradient, values, numbers).permute(3, 4, 5, 0, 1, 2, 6).contiguous()
        along, down = around.shares.unbind(dim=1)
        of_columns, of_rows = (of_corners * down.unsqueeze(1)).sum(0), (of_corners * along).sum(1)
        weights = of_points.permute(3, 0, 1, 2, 4)
        of_weights = (of_columns * along).sum(0).permute(1, 2, 3, 0, 4)
        left, right = (torch.stack([of_columns, of_rows], dim=1) * around.inside).unbind()
        of_places = (right - left).mul_(weights).permute(2, 3, 4, 1, 5, 0)
        return of_values, of_weights, of_places, None


class _Neighbors(NamedTuple):
    """The two cells beside each point on both axes.

    Attributes:
        cells: the numbers of both; outside of the map, those of cells at its border.
        shares: how much of the point falls on each; 0 outside.
        inside: 1 where a cell is inside and the point can be moved, else 0.
    """

    cells: Float[Tensor, "2 2 N B L H P"]
    shares: Float[Tensor, "2 2 N B L H P"]
    inside: Float[Tensor, "2 2 N B L H P"]


def _neighbors(places: Tensor, levels: Levels) -> _Neighbors:
    last = level_sizes(levels, places).sub_(1).permute(2, 0, 1)[..., None, None, None]
    places = places.permute(5, 3, 0, 1, 2, 4).contiguous().sub_(0.5)
    near = (places > -1) & (places < last + 1)
    places = torch.minimum(places.clamp_(min=-1), last + 1)
    first = torch.minimum(places.floor(), last)
    shares = torch.stack([1 + first - places, places - first])
    inside = torch.stack([first >= 0, first < last])
    cells = torch.stack([first.clamp(min=0), torch.minimum(first + 1, last)])
    return _Neighbors(cells, shares.mul_(inside), inside.logical_and_(near).to(places.dtype))


def _by_query(corners: Float[Tensor, "2 2 N B L H P"], dtype: torch.dtype) -> Shaped[Tensor, "B L H 2 2 N P"]:
    """Return numbers of corners, those of a query and head side by side."""
    sides = corners.permute(3, 4, 5, 0, 1, 2, 6)
    return torch.empty(sides.shape, dtype=dtype).copy_(sides)


def _bags(values: Tensor, shares: Tensor, numbers: Tensor) -> Tensor:
    """Return the sums of rows of values for each query and head, ``(B · L · H, D)``."""
    count = math.prod(numbers.shape[3:])
    # Detached: of a table that requires a gradient torch would keep what its own backward pass needs.
    table, rows = values.detach().reshape(-1, values.shape[-1]), numbers.view(-1, count)
    return F.embedding_bag(rows, table, mode="sum", per_sample_weights=shares.view(-1, count))


def _gradient_of_values(gradient: Float[Tensor, "BLH D"], shares: Tensor, numbers: Tensor, size: int) -> Tensor:
    """Return for each row of the table the sum of the gradients of those who read it, by their shares."""
    count = math.prod(numbers.shape[3:])
    if numbers.numel() < size:  # few are read: to sort them would not pay
        parts = (shares.view(-1, count, 1) * gradient.unsqueeze(1)).flatten(0, 1)
        return gradient.new_zeros(size, gradient.shape[-1]).index_add_(0, numbers.flatten(), parts)
    ordered, order = torch.sort(numbers.flatten().int())  # in a third of the time of longer integers
    readers = torch.bincount(ordered, minlength=size)
    first = readers.cumsum(0) - readers
    return F.embedding_bag(order // count, gradient, first, mode="sum", per_sample_weights=shares.take(order))


def _gradient_of_shares(gradient: Float[Tensor, "BLH D"], values: Tensor, numbers: Tensor) -> Tensor:
    """Return the product of each reader's gradient with each row that it reads: a sampled product of matrices."""
    _silence_beta()
    rows, table = numbers.flatten(), values.reshape(-1, values.shape[-1])
    starts = torch.arange(0, rows.numel() + 1, math.prod(numbers.shape[3:]))
    zeros = torch.zeros(rows.shape, dtype=values.dtype)
    sampled = torch.sparse_csr_tensor(starts, rows, zeros, (len(gradient), len(table)), check_invariants=False)
    products: Tensor = torch.sparse.sampled_addmm(sampled, gradient, table.T, beta=0).values()
    return products.view(numbers.shape)


@cache
def _silence_beta() -> None:
    """Let torch say where nobody sees it, once, that its sparse tensors are in beta state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.sparse_csr_tensor([0], [], [], (0, 0), check_invariants=False)


def _first_rows(batch: int, size: int, heads: int, device: torch.device) -> Int[Tensor, "B 1 H 1"]:
    """Return the first row of each row of a batch and head in a table of all cells and heads."""
    rows = torch.arange(batch, device=device) * (size * heads)
    return rows.view(-1, 1, 1, 1) + torch.arange(heads, device=device).view(-1, 1)


def _starts(levels: Levels) -> list[tuple[int, int]]:
    """Return the number of the first cell of each level, and its width."""
    starts, start = [], 0
    for height, width in levels:
        starts.append((start, width))
        start += height * width
    return starts


def _table(rows: Sequence[tuple[int, int]], like: Tensor) -> Tensor:
    """Return numbers as a tensor of two columns."""
    if not is_traced():
        return torch.tensor(rows, dtype=like.dtype, device=like.device)
    return torch.stack([like.new_full((), number) for row in rows for number in row]).view(-1, 2)  # sizes of the trace
