"""Images of a run as what can be erased: their regions, and the boxes that people drew around the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from foci.data.images.drawn import PREFIX, Scene, find_scene
from foci.data.images.files import sizes_of
from foci.errors import ConfigError, DataError
from foci.metrics.boxes import Box, regions_inside
from foci.probing.erasers import Cells
from foci.probing.subject import Source
from foci.viz.axis import Axis

BOXES = "boxes"
"""The field of what people marked in an image: ``[left, top, right, bottom]`` of each box, in pixels of its file."""


def erasable_image(
    images: Tensor, axis: Axis, record: Mapping[str, Any], drawn: Callable[[Scene], Sequence[Box]]
) -> tuple[Tensor, Source]:
    """Return an image as numbers, and its regions as the first argument of a model.

    Args:
        images: the image ``(1, 3, H, W)``, bytes, which become numbers from −1 to 1, as the networks compute them; or
            features ``(1, h, w, D)``.
        axis: of the trace.
        record: the input, with its boxes if people drew any.
        drawn: the boxes of a drawn scene, which are known.
    """
    down, across = grid = axis.grid or (1, len(axis))
    if images.dtype == torch.uint8:
        values = images.float() / 127.5 - 1
        cells = Cells.of_regions(values, grid)
    else:
        values = images.float()
        owner = torch.arange(down * across, device=values.device).reshape(1, down, across, 1)
        cells = Cells.with_mean(values, owner)
    boxes = boxes_of(record, drawn)
    gold = regions_inside(boxes, grid) if boxes else None
    return values, Source(0, axis.labels, gold=gold, eraser=cells, unit="regions")


def boxes_of(record: Mapping[str, Any], drawn: Callable[[Scene], Sequence[Box]]) -> list[Box]:
    """Return the boxes of an image, as shares of the square that it is fitted into; none where nobody drew any."""
    name, boxes = str(record["image"]), record.get(BOXES)
    if name.startswith(PREFIX):
        if boxes is not None:
            raise ConfigError(f"probe: {BOXES} are given for {name}, whose shapes are known. Leave them out.")
        return [*drawn(find_scene(name))]
    if boxes is None:
        return []
    if (sizes := sizes_of(name)) is None:
        raise DataError(f"{name}: not an image, or a damaged one, so its {BOXES} cannot be placed.")
    height, width = sizes.upright
    if not (isinstance(boxes, list | tuple) and all(_is_box(one, width, height) for one in boxes)):
        raise ConfigError(
            f"probe: {BOXES} are {boxes!r}, expected [[left, top, right, bottom], …] in pixels of the image, which is "
            f"{width} × {height}."
        )
    side = max(width, height)
    left, top = (side - width) / 2, (side - height) / 2
    return [Box(*((edge + begin) / side for edge, begin in zip(one, (left, top, left, top)))) for one in boxes]


def _is_box(box: object, width: int, height: int) -> bool:
    if not (isinstance(box, list | tuple) and len(box) == 4 and all(isinstance(edge, int | float) for edge in box)):
        return False
    left, top, right, bottom = box
    return bool(0 <= left < right <= width and 0 <= top < bottom <= height)
