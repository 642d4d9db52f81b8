"""Where queries looked: the weights of all levels of a map on its finest one, in the part that is picture.

The map covers the whole canvas; what a trace shows are the cells that have some of the picture in them. A coarser cell
shares its weight equally among the finest cells in it, so that rows keep their sums.
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


class Cells(NamedTuple):
    """The cells of one level that have some of the picture in them.

    ``grid`` has the level's rows and columns, ``shown`` those that are kept, and ``stride`` is the side of a cell in
    pixels of the canvas.
    """

    grid: tuple[int, int]
    shown: tuple[int, int]
    stride: int

    @classmethod
    def of(cls, canvas: tuple[int, int], grid: tuple[int, int], size: tuple[int, int]) -> Cells:
        """Return those of a level; each level halves the sides of the one before it.

        Example:
            >>> Cells.of((64, 64), (16, 16), (41, 64))
            Cells(grid=(16, 16), shown=(11, 16), stride=4)
        """
        stride = 1
        while any(-(-side // stride) > cells for side, cells in zip(canvas, grid)):
            stride *= 2
        rows, columns = (min(cells, -(-side // stride)) for side, cells in zip(size, grid))
        return cls(grid, (rows, columns), stride)

    @property
    def region(self) -> tuple[int, int]:
        """Height and width of the kept cells in pixels of the canvas."""
        return self.shown[0] * self.stride, self.shown[1] * self.stride

    @property
    def places(self) -> Int[NDArray[np.int64], " S"]:
        """The places of the kept cells among those of the level."""
        rows, columns = (np.arange(count) for count in self.shown)
        places: Int[NDArray[np.int64], " S"] = (rows[:, None] * self.grid[1] + columns).reshape(-1)
        return places

    def axis(self, picture: UInt8[NDArray[np.uint8], "H W 3"]) -> Axis:
        """Return the axis of the kept cells over the picture."""
        missing = [max(0, side - have) for side, have in zip(self.region, picture.shape)]
        whole = np.pad(picture, ((0, missing[0]), (0, missing[1]), (0, 0)))
        return Axis.from_image(whole, self.shown, "image")


def on_finest(weights: Float[Tensor, "*B S"], levels: Sequence[Cells]) -> Float[Tensor, "*B F"]:
    """Return weights over the places of all levels on the kept cells of the finest one."""
    finest = levels[0]
    rows, columns = (np.arange(count) for count in finest.shown)
    spread = torch.zeros(*weights.shape[:-1], finest.shown[0] * finest.shown[1])
    start = 0
    for level in levels:
        factor = level.stride // finest.stride
        above = ((rows // factor)[:, None] * level.grid[1] + (columns // factor)).reshape(-1)
        counts = np.bincount(above, minlength=level.grid[0] * level.grid[1])
        part = weights[..., start : start + len(counts)]
        spread += part[..., torch.from_numpy(above)] / torch.from_numpy(counts[above])
        start += len(counts)
    return spread


class Look(NamedTuple):
    """What one image of a batch was looked at by: the picture on its canvas, its size, and the levels of the map."""

    picture: UInt8[NDArray[np.uint8], "H W 3"]
    levels: tuple[Cells, ...]

    @classmethod
    def at(
        cls,
        picture: UInt8[NDArray[np.uint8], "H W 3"],
        canvas: tuple[int, int],
        grids: Sequence[tuple[int, int]],
    ) -> Look:
        """Return the look at a picture on a canvas."""
        size = picture.shape[0], picture.shape[1]
        return cls(picture, tuple(Cells.of(canvas, grid, size) for grid in grids))

    def box(self, shares: Sequence[float]) -> Box:
        """Return a box given as shares of the picture as shares of what the axis of the image shows."""
        height, width = self.picture.shape[:2]
        down, across = self.levels[0].region
        left, top, right, bottom = shares
        return Box(left * width / across, top * height / down, right * width / across, bottom * height / down)

    def map(self, weights: Float[Tensor, "H S"]) -> Float[NDArray[np.float32], "R C"]:
        """Return where one query looked, the mean over the heads, on the finest grid."""
        found: Float[NDArray[np.float32], "R C"] = on_finest(weights.float().mean(dim=0), self.levels).numpy()
        return found.reshape(self.levels[0].shown)

    def trace(
        self,
        attentions: Mapping[str, Weights],
        row: int,
        queries: Sequence[int],
        labels: Sequence[str],
        boxes: Sequence[Sequence[float]],
        text: str,
    ) -> Trace:
        """Return what these queries looked at, and what the encoder did.

        Args:
            attentions: those of the model.
            row: the number of the image in its batch.
            queries: which of the queries are shown.
            labels: what each has found.
            boxes: as shares of the picture.
            text: the answer in words.
        """
        coarsest = self.levels[-1]
        axes = {IMAGE: self.levels[0].axis(self.picture)}
        made: dict[str, Weights] = {}
        axes_of: dict[str, tuple[str, str]] = {}
        points: dict[str, NDArray[np.float32]] = {}
        for name, handle in attentions.items():
            if name.endswith("cross") and queries:
                dense = handle.dense()[row, :, queries].float().cpu()
                made[name] = Weights.from_tensor(on_finest(dense, self.levels)[None])
                axes_of[name] = (OBJECTS, IMAGE)
                if isinstance(handle, DeformableWeights):
                    points[name] = self._points(handle, row, queries)
            elif name.startswith("encoder"):
                places = torch.from_numpy(coarsest.places)
                dense = handle.dense()[row].float().cpu()
                made[name] = Weights.from_tensor(dense[:, places][:, :, places][None])
                axes_of[name] = (COARSE, COARSE)
        if queries:
            axes[OBJECTS] = Axis.from_boxes(labels, [self.box(box) for box in boxes], "objects")
        if any(pair[0] == COARSE for pair in axes_of.values()):
            axes[COARSE] = coarsest.axis(self.picture)
        traced = Trace.from_handles(made, axes, axes_of=axes_of, text=text)
        found = {
            name: replace(attention, points=points[name]) if name in points else attention
            for name, attention in traced.attentions.items()
        }
        return replace(traced, attentions=found)

    def _points(
        self, handle: DeformableWeights, row: int, queries: Sequence[int]
    ) -> Float[NDArray[np.float32], "H L P 3"]:
        """Return the points of these queries on all levels: x, y and weight."""
        where = handle.points[row][:, queries].float().cpu()  # (H, L, levels, points, 2)
        sides = torch.tensor(
            [
                [cells.grid[1] * cells.stride / region[1], cells.grid[0] * cells.stride / region[0]]
                for cells in self.levels
                for region in (self.levels[0].region,)
            ]
        )
        shares = where * sides[:, None]
        weights = handle.of_points[row][:, queries].float().cpu().unsqueeze(-1)
        found: Float[NDArray[np.float32], "H L P 3"] = torch.cat([shares, weights], dim=-1).flatten(2, 3).numpy()
        return found
