"""Images and channels in a terminal: what each row looked at over the image, and weights of channels as bars.

With colors a character shows two pixels of the image, one above the other; what was looked at stays bright, the rest
lies under a veil. Without colors each region is two blocks, darker where its weight is larger; of a fine grid, some
regions together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foci.viz.axis import Axis
from foci.viz.colors import code
from foci.viz.labels import cut, shown, width
from foci.viz.regions import smooth

_WIDEST = 28
"""Columns of an image."""
_LABEL = 24
"""Columns that a label may take above a narrower image."""
_VEIL = 0.2
"""How bright a pixel is that nothing looked at."""
_BARS = "▁▂▃▄▅▆▇█"
_GAP = 2


def image_lines(
    target: Axis,
    source: Axis,
    weights: NDArray[np.float32],
    columns: int,
    colors: int,
    block: Callable[[float], str],
) -> list[str]:
    """Return the maps of all rows, beside each other as far as there is room.

    Args:
        target: who looks, a map each.
        source: the regions; with an image, it is shown below the weights.
        weights: ``(row, region)``.
        columns: of the terminal.
        colors: 0, 256 or 1 << 24.
        block: returns what stands for a share of the highest weight, where there are no colors.

    Example:
        >>> axis = Axis.from_image(np.zeros((4, 4, 3), np.uint8), (2, 2))
        >>> weights = np.array([[0.75, 0.25, 0.0, 0.0]], np.float32)
        >>> for line in image_lines(Axis.from_tokens(["cup"]), axis, weights, 80, 0, lambda share: "▒█"[share > 0.5]):
        ...     print(repr(line))
        'cup'
        '██▒▒'
        ''
    """
    grid = source.grid or (1, len(source))
    tiles = []
    for label, row in zip(target.labels, weights):
        highest = float(row.max())
        shares = (row / highest if highest > 0 else row).reshape(grid)
        room = min(columns, _WIDEST)
        picture = _painted(shares, source, room, colors) if colors else _blocks(_coarser(shares, room // 2), block)
        size = picture[0][1]
        called = cut(shown(label), max(size, min(_LABEL, columns)))
        tiles.append((called, picture, max(size, width(called))))
    return _beside(tiles, columns)


def _coarser(shares: NDArray[np.float32], most: int) -> NDArray[Any]:
    """The map with at most so many regions across."""
    factor = -(-shares.shape[1] // max(most, 1))
    down, across = (-(-side // factor) for side in shares.shape)
    return shares if factor == 1 else smooth(shares, down, across)


def _blocks(shares: NDArray[Any], block: Callable[[float], str]) -> list[tuple[str, int]]:
    lines = ["".join(2 * (block(float(share)) if share > 0 else " ") for share in row) for row in shares]
    return [(line, len(line)) for line in lines]


def _painted(shares: NDArray[np.float32], source: Axis, room: int, colors: int) -> list[tuple[str, int]]:
    """The image below a veil, two pixels a character."""
    height, wide = (1, 1) if source.image is None else source.image.shape[:2]
    ratio = shares.shape[0] / shares.shape[1] if source.image is None else height / wide
    rows = 2 * max(1, round(room * ratio / 2))
    bright = _VEIL + (1 - _VEIL) * np.clip(smooth(shares, rows, room), 0, 1)
    if source.image is None:
        pixels = np.full((rows, room, 3), 255)
    else:
        down, across = (np.arange(count) * size // count for count, size in ((rows, height), (room, wide)))
        pixels = source.image[down][:, across]
    shaded = np.rint(pixels * bright[..., None]).astype(int)
    lines = []
    for upper, lower in zip(shaded[::2], shaded[1::2]):
        cells = [f"\x1b[38;{_code(above, colors)};48;{_code(below, colors)}m▀" for above, below in zip(upper, lower)]
        lines.append(("".join(cells) + "\x1b[0m", room))
    return lines


def _code(pixel: NDArray[np.int_], colors: int) -> str:
    red, green, blue = map(int, pixel)
    return code((red, green, blue), colors)


def _beside(tiles: Sequence[tuple[str, list[tuple[str, int]], int]], columns: int) -> list[str]:
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


def bar_lines(labels: Sequence[str], weights: NDArray[np.float32], columns: int, *, plain: bool) -> list[str]:
    """Return the weights of each row as bars, one character a cell, and which cells have the largest ones.

    Args:
        labels: of the rows.
        weights: ``(row, cell)``.
        columns: of the terminal.
        plain: write digits from 0 to 9 in place of bars, where the terminal has none.

    Example:
        >>> print("\\n".join(bar_lines(["block 0"], np.array([[0.1, 0.8, 0.45]], np.float32), 80, plain=False)))
        block 0  ▁█▅  largest: 1 (0.80), 2 (0.45), 0 (0.10)
    """
    lines = []
    marks = "0123456789" if plain else _BARS
    for label, row in zip(labels, weights):
        highest = float(row.max()) or 1.0
        levels = np.clip(np.ceil(row / highest * len(marks)).astype(int) - 1, 0, len(marks) - 1)
        bars = "".join(marks[level] for level in levels)
        first = np.argsort(-row, kind="stable")[:3]
        told = "largest: " + ", ".join(f"{cell} ({row[cell]:.2f})" for cell in first)
        if width(label) + len(bars) + len(told) + 4 <= columns:
            lines.append(f"{label}  {bars}  {told}")
        else:
            lines += [label, *(bars[start : start + columns] for start in range(0, len(bars), columns)), told]
    return lines
