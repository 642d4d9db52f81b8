"""Pictures changed at random, with their boxes: mirrored, cut, larger or smaller, and of other colors.

A window of the picture is cut out, mirrored, and scaled onto the canvas in one step; boxes are moved along. An object
of which the window shows little is no target any more.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from foci.functional.boxes import from_corners, to_corners
from foci.tasks.detect.batches import DetectionBatch
from foci.tasks.detect.set_loss import Targets

Flips = Literal["none", "horizontal", "both"]
_SHOWN = 0.3
"""The share of an object's area that must be in the window."""


def augmented(
    batch: DetectionBatch, *, flips: Flips = "none", crop: float = 0.0, scale: float = 0.0, color: float = 0.0
) -> DetectionBatch:
    """Return a batch whose pictures are changed at random, each in its own way.

    Args:
        batch: pictures and objects.
        flips: mirror left and right, or also top and bottom, half of the time.
        crop: up to this share of the width, and of the height, is cut off.
        scale: pictures are up to 1 + scale times as large, and as small; what leaves the canvas is cut off.
        color: up to which share contrast, and the brightness of each color, change.
    """
    images, sizes, targets = batch
    if len(images) == 0:
        return batch
    if flips != "none" or crop or scale:
        images, sizes, targets = _moved(batch, flips, crop, scale)
    return DetectionBatch(_colored(images, sizes, color) if color else images, sizes, targets)


def _moved(batch: DetectionBatch, flips: Flips, crop: float, scale: float) -> DetectionBatch:
    images, sizes, targets = batch
    count, device = len(images), images.device
    canvas = torch.tensor(images.shape[2:], device=device)
    zoom = torch.exp((2 * torch.rand(count, 1, device=device) - 1) * math.log1p(scale))
    kept = (1 - crop * torch.rand(count, 2, device=device)).minimum(canvas / (sizes * zoom))  # down and across
    start = torch.rand(count, 2, device=device) * (1 - kept)
    moved = (kept * sizes * zoom).round().long().clamp_min(1).minimum(canvas)
    flipped = torch.rand(count, 2, device=device) < 0.5
    if flips != "both":
        flipped[:, 0] = False
    if flips == "none":
        flipped[:, 1] = False
    places = []
    for axis in range(2):
        steps = (torch.arange(int(canvas[axis]), device=device) + 0.5) / moved[:, axis : axis + 1]
        inside = torch.where(flipped[:, axis : axis + 1], 1 - steps, steps)
        pixels = (start[:, axis : axis + 1] + inside * kept[:, axis : axis + 1]) * sizes[:, axis : axis + 1]
        # What is beyond the picture must not be mixed in at its edges.
        pixels = pixels.clamp_min(0.5).minimum(sizes[:, axis : axis + 1] - 0.5)
        places.append(2 * pixels / canvas[axis] - 1)
    down, across = places
    shape = (count, int(canvas[0]), int(canvas[1]))
    grid = torch.stack([across[:, None, :].expand(shape), down[:, :, None].expand(shape)], dim=-1)
    drawn = F.grid_sample(images.float(), grid.float(), align_corners=False).round().clamp(0, 255)
    drawn = drawn * readable_part(moved, shape[1:])[:, None]
    return DetectionBatch(drawn.to(images.dtype), moved, _targets(targets, start, kept, flipped))


def _targets(
    targets: Targets, start: Float[Tensor, "B 2"], kept: Float[Tensor, "B 2"], flipped: Bool[Tensor, "B 2"]
) -> Targets:
    """Return the objects in the window, with boxes as shares of it."""
    origin, extent, mirrored = (part.flip(1)[:, None] for part in (start, kept, flipped))
    first, last = ((to_corners(targets.boxes).unflatten(-1, (2, 2)) - origin[:, :, None]) / extent[:, :, None]).unbind(
        -2
    )
    first, last = torch.where(mirrored, 1 - last, first), torch.where(mirrored, 1 - first, last)
    whole = (last - first).prod(dim=-1)
    first, last = first.clamp(0, 1), last.clamp(0, 1)
    valid = targets.valid & ((last - first).prod(dim=-1) >= _SHOWN * whole)
    boxes = from_corners(torch.cat([first, last], dim=-1)) * valid[..., None]
    return Targets(boxes, targets.labels, valid)


def readable_part(sizes: Tensor, canvas: tuple[int, ...]) -> Bool[Tensor, "B H W"]:
    """Return which pixels of canvases are pictures."""
    rows, columns = (torch.arange(side, device=sizes.device) for side in canvas)
    return (rows[None, :, None] < sizes[:, :1, None]) & (columns[None, None, :] < sizes[:, 1:, None])


def _colored(images: UInt8[Tensor, "B 3 H W"], sizes: Tensor, color: float) -> UInt8[Tensor, "B 3 H W"]:
    count, device = len(images), images.device
    part = readable_part(sizes, images.shape[2:])[:, None]
    pixels = images.float()
    middle = (pixels.sum(dim=(1, 2, 3)) / (3 * sizes.prod(dim=1))).reshape(-1, 1, 1, 1)
    contrast = 1 + color * (2 * torch.rand(count, 1, 1, 1, device=device) - 1)
    brightness = 1 + color * (2 * torch.rand(count, 3, 1, 1, device=device) - 1)
    changed = ((pixels - middle) * contrast + middle) * brightness
    return (changed.round().clamp(0, 255) * part).to(images.dtype)
