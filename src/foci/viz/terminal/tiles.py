"""Small pictures in a terminal, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foci.viz.labels import width
from foci.viz.regions import smooth

_GAP = 2
"""Columns between two pictures."""


def coarser(shares: NDArray[np.float32], most: int) -> NDArray[Any]:
    """Return the map with at most ``most`` regions across."""
    factor = -(-shares.shape[1] // max(most, 1))
    down, across = (-(-side // factor) for side in shares.shape)
    return shares if factor == 1 else smooth(shares, down, across)


def beside(tiles: Sequence[tuple[str, list[tuple[str, int]], int]], columns: int) -> list[str]:
    """Return pictures below their labels, beside each other as far as there is room.

    Args:
        tiles: each a label, the lines of its picture with their widths, and the columns that it takes.
        columns: of the terminal.
    """
    lines: list[str] = []
    start = 0
    while start < len(tiles):
        used = tiles[start][2]
        end = start + 1
        while end < len(tiles) and used + _GAP + tiles[end][2] <= columns:
            used += _GAP + tiles[end][2]
            end += 1
        some = tiles[start:end]
        heads = [label + " " * (size - width(label)) for label, _, size in some]
        lines += ["", (" " * _GAP).join(heads).rstrip()] if lines else [(" " * _GAP).join(heads).rstrip()]
        for row in range(max(len(picture) for _, picture, _ in some)):
            pieces = [
                picture[row][0] + " " * (size - picture[row][1]) if row < len(picture) else " " * size
                for _, picture, size in some
            ]
            lines.append((" " * _GAP).join(pieces).rstrip())
        start = end
    return lines
