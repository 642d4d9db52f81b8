"""Where queries looked: the weights of all levels of a map on its finest one, in the part that is picture.

The map covers the whole canvas; a trace shows the cells of the coarsest level that have some of the picture in them,
and those of the finest level inside of these, so that both are over the same region. A coarser cell shares its weight
equally among the finest cells in it, so that rows keep their sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from foci.mechanisms.heads.deformable import DeformableWeights
from foci.metrics.boxes import Box
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

IMAGE, COARSE, OBJECTS = "image", "coarse image", "objects"
"""The axes of a trace: places of the finest and of the coarsest level, and the objects that were found."""


class Shown(NamedTuple):
    """What a trace shows of the map of an image.

    Attributes:
        size: height and width of the picture on its canvas.
        strides: the sides of a cell of each level in pixels of the canvas, the finest first.
        grids: rows and columns of each level.
    """

    size: tuple[int, int]
    strides: tuple[int, ...]
    grids: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, canvas: tuple[int, int], grids: Sequence[tuple[int, int]], size: tuple[int, int]) -> Shown:
        """Return what is shown of a map of a canvas; each level halves the sides of the one before it.

        Example:
            >>> shown = Shown.of((64, 64), [(16, 16), (8, 8)], (41, 64))
            >>> shown.strides, shown.cells(0), shown.cells(1), shown.region
            ((4, 8), (12, 16), (6, 8), (48, 64))
        """
        strides = []
        for grid in grids:
            stride = 1
            while any(-(-side // stride) > cells for side, cells in zip(canvas, grid)):
                stride *= 2
            strides.append(stride)
        return cls(size, tuple(strides), tuple(grids))

    def cells(self, level: int) -> tuple[int, int]:
        """Return the rows and columns of a level that are shown."""
        factor = self.strides[-1] // self.strides[level]
        rows, columns = (factor * -(-side // self.strides[-1]) for side in self.size)
        return rows, columns

    @property
    def region(self) -> tuple[int, int]:
        """Height and width of what is shown, in pixels of the canvas."""
        rows, columns = self.cells(-1)
        return rows * self.strides[-1], columns * self.strides[-1]

    def places(self, level: int) -> Int[NDArray[np.int64], " S"]:
        """Return the places of the shown cells of the finest level among those of a level; −1 beyond its grid."""
        factor = self.strides[level] // self.strides[0]
        rows, columns = (np.arange(count) // factor for count in self.cells(0))
        height, width = self.grids[level]
        found = rows[:, None] * width + columns
        inside = (rows[:, None] < height) & (columns < width)
        places: Int[NDArray[np.int64], " S"] = np.where(inside, found, -1).reshape(-1)
        return places

    def on_finest(self, weights: Float[Tensor, "*B S"]) -> Float[Tensor, "*B F"]:
        """Return weights over the places of all levels on the shown cells of the finest one."""
        rows, columns = self.cells(0)
        spread = torch.zeros(*weights.shape[:-1], rows * columns)
        start = 0
        for level, (height, width) in enumerate(self.grids):
            above = self.places(level)
            counts = np.bincount(above[above >= 0], minlength=height * width)
            shares = np.where(above >= 0, 1 / np.maximum(counts[above], 1), 0.0).astype(np.float32)
            spread += weights[..., start + torch.from_numpy(np.maximum(above, 0))] * torch.from_numpy(shares)
            start += height * width
        return spread

    def box(self, shares: Sequence[float]) -> Box:
        """Return a box given as shares of the picture as shares of the region."""
        down, across = (side / whole for side, whole in zip(self.size, self.region))
        left, top, right, bottom = shares
        return Box(left * across, top * down, right * across, bottom * down)

    def map(self, weights: Float[Tensor, "H S"]) -> Float[NDArray[np.float32], "R C"]:
        """Return where one query looked, the mean over the heads, on the finest grid."""
        found: Float[NDArray[np.float32], "R C"] = self.on_finest(weights.float().cpu().mean(dim=0)).numpy()
        return found.reshape(self.cells(0))

    def points(self, handle: DeformableWeights, row: int, queries: Sequence[int]) -> NDArray[np.float32]:
        """Return the points of these queries on all levels, ``(H, L, P, 3)``: x and y in the region, and weight."""
        where = handle.points[row][:, queries].float().cpu()  # (H, L, levels, points, 2)
        down, across = self.region
        sides = [
            [width * stride / across, height * stride / down]
            for (height, width), stride in zip(self.grids, self.strides)
        ]
        weights = handle.of_points[row][:, queries].float().cpu().unsqueeze(-1)
        found: NDArray[np.float32] = (
            torch.cat([where * torch.tensor(sides)[:, None], weights], dim=-1).flatten(2, 3).numpy()
        )
        return found

    def picture(self, whole: UInt8[NDArray[np.uint8], "H W 3"]) -> UInt8[NDArray[np.uint8], "R C 3"]:
        """Return a picture of any size with what the region has beside it, which is black."""
        missing = [round(side * (region / size - 1)) for side, region, size in zip(whole.shape, self.region, self.size)]
        return np.pad(whole, ((0, missing[0]), (0, missing[1]), (0, 0)))


class Objects(NamedTuple):
    """Objects that a trace shows: their queries, what is said of each, and their boxes as shares of the picture."""

    queries: list[int]
    labels: list[str]
    boxes: list[list[float]]


def trace_of(
    shown: Shown,
    attentions: Mapping[str, Weights],
    row: int,
    objects: Objects,
    picture: UInt8[NDArray[np.uint8], "H W 3"],
    text: str,
) -> Trace:
    """Return what the queries of these objects looked at, and what the encoder did.

    Args:
        shown: what is shown of the map.
        attentions: those of the model.
        row: the number of the image in its batch.
        objects: what was found; without any there are only the attentions of the encoder.
        picture: of any size.
        text: the answer in words.
    """
    region = shown.picture(picture)
    axes = {IMAGE: Axis.from_image(region, shown.cells(0))}
    made: dict[str, Weights] = {}
    axes_of: dict[str, tuple[str, str]] = {}
    points: dict[str, NDArray[np.float32]] = {}
    for name, handle in attentions.items():
        if name.endswith("cross") and objects.queries:
            dense = handle.dense()[row][:, objects.queries].float().cpu()
            made[name], axes_of[name] = Weights.from_tensor(shown.on_finest(dense)[None]), (OBJECTS, IMAGE)
            if isinstance(handle, DeformableWeights):
                points[name] = shown.points(handle, row, objects.queries)
        elif name.startswith("encoder"):
            alone = Shown(shown.size, shown.strides[-1:], shown.grids[-1:])
            dense = alone.on_finest(handle.dense()[row].float().cpu())
            kept = torch.from_numpy(alone.places(0))
            rows = torch.where((kept >= 0)[:, None], dense[:, kept.clamp_min(0)], 0.0)
            made[name], axes_of[name] = Weights.from_tensor(rows[None]), (COARSE, COARSE)
            axes[COARSE] = Axis.from_image(region, alone.cells(0))
    if objects.queries:
        axes[OBJECTS] = Axis.from_boxes(objects.labels, [shown.box(box) for box in objects.boxes], "objects")
    traced = Trace.from_handles(made, axes, axes_of=axes_of, text=text)
    found = {
        name: replace(attention, points=points[name]) if name in points else attention
        for name, attention in traced.attentions.items()
    }
    return replace(traced, attentions=found)
