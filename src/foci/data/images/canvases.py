"""Images on canvases: scaled with their proportions, at the top left, and black where the canvas is larger.

    Canvases.load_canvases(names, (192, 256))    many images of any size, decoded once; unreadable ones are counted
    canvas_for(sizes, 256)                      height and width that the images of some sizes need

A place in an image is a share of its readable part, so that it stays the same when the image is scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices
from foci.data.images.files import Images, Unreadable, read_scaled, readable, room_for
from foci.data.lines import Log
from foci.errors import check_sizes
from foci.files import MAX_PIXELS

_STEP = 16
"""Sides of a canvas are multiples of this where the images have any proportions: networks halve them several times."""


def canvas_for(sizes: Iterable[tuple[int, int]], longest: int) -> tuple[int, int]:
    """Return height and width of a canvas that holds images of these sizes, scaled to a longer side of ``longest``.

    The shorter side is what nearly all of them need, rounded up; an image of other proportions is scaled further down.

    Example:
        >>> canvas_for([(480, 640), (300, 640)], 256), canvas_for([(480, 640), (640, 480)], 256)
        ((192, 256), (256, 256))
    """
    shares = np.array([(height / max(height, width), width / max(height, width)) for height, width in sizes])
    if not len(shares):
        return longest, longest
    needed = np.quantile(shares, 0.98, axis=0) * longest
    height, width = (min(longest, _STEP * int(np.ceil(side / _STEP - 1e-6))) for side in needed)
    return height, width


class Canvases(Images):
    """Decoded images on canvases of one size.

    Args:
        pixels: ``(N, H, W, 3)``, uint8.
        kept: which of the names that were given each of them is.
        unreadable: those that were left out.
        sizes: height and width of the readable part of each canvas.
        originals: height and width of each image itself.
    """

    def __init__(
        self,
        pixels: UInt8[NDArray[np.uint8], "N H W 3"],
        kept: Sequence[int],
        unreadable: Sequence[Unreadable],
        sizes: Sequence[tuple[int, int]],
        originals: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__(pixels, kept, unreadable)
        self.sizes = np.array(sizes, np.int64).reshape(-1, 2)
        self.originals = np.array(originals, np.int64).reshape(-1, 2)

    def readable_sizes(self, indices: Indices) -> Int[Tensor, "B 2"]:
        """Return height and width of the readable parts of these canvases."""
        return torch.from_numpy(self.sizes[indices])

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of the readable part of a canvas."""
        height, width = self.sizes[index]
        return int(height), int(width)

    def picture(self, index: int) -> UInt8[NDArray[np.uint8], "H W 3"]:
        """Return the readable part of a canvas."""
        height, width = self.size(index)
        return np.array(self.pixels[index, :height, :width])

    @classmethod
    def load_canvases(
        cls, names: Sequence[str], canvas: tuple[int, int], *, max_pixels: int = MAX_PIXELS, log: Log | None = None
    ) -> Canvases:
        """Decode images; as `Images.load`, of any proportions.

        Args:
            names: files, or drawn scenes.
            canvas: height and width.
            max_pixels: an image with more pixels is left out.
            log: called with each message.
        """
        check_sizes("Canvases.load_canvases", height=canvas[0], width=canvas[1])
        room = room_for(len(names), canvas)
        unreadable: list[Unreadable] = []
        kept: list[int] = []
        sizes: list[tuple[int, int]] = []
        originals: list[tuple[int, int]] = []
        for number, found in readable(
            names, lambda name: read_scaled(name, canvas, max_pixels=max_pixels), unreadable, log
        ):
            height, width = found.pixels.shape[:2]
            room[len(kept), :height, :width] = found.pixels
            kept.append(number)
            sizes.append((height, width))
            originals.append(found.size)
        return cls(room[: len(kept)], kept, unreadable, sizes, originals)
