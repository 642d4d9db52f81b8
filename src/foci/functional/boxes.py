"""Boxes of objects as tensors: two forms of them, and how far two boxes overlap.

    IoU  = |A ∩ B| / |A ∪ B|                    from 0 to 1
    GIoU = IoU − |C \\ (A ∪ B)| / |C|            from −1 to 1, C the smallest box around A and B

A box has two forms: corners (left, top, right, bottom), and its middle (center x, center y, width, height). The
overlaps take corners; leading axes broadcast: ``iou(a[:, None], b)`` compares each box of ``a`` with each of ``b``.

Paper: Generalized Intersection over Union (Rezatofighi et al., 2019), algorithm 1, arXiv:1902.09630
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from foci.errors import ShapeError
from foci.functional.windows import at_least_float32

Boxes = Float[Tensor, "*#B 4"]


def to_corners(boxes: Boxes) -> Boxes:
    """Return left, top, right and bottom of boxes given by middle, width and height.

    Example:
        >>> to_corners(torch.tensor([0.5, 0.5, 0.5, 1.0]))
        tensor([0.2500, 0.0000, 0.7500, 1.0000])
    """
    _check("to_corners", boxes)
    middle, size = boxes.split(2, dim=-1)
    return torch.cat([middle - size / 2, middle + size / 2], dim=-1)


def from_corners(boxes: Boxes) -> Boxes:
    """Return middle, width and height of boxes given by left, top, right and bottom.

    Example:
        >>> from_corners(torch.tensor([0.25, 0.0, 0.75, 1.0]))
        tensor([0.5000, 0.5000, 0.5000, 1.0000])
    """
    _check("from_corners", boxes)
    first, last = boxes.split(2, dim=-1)
    return torch.cat([(first + last) / 2, last - first], dim=-1)


def iou(boxes: Boxes, others: Boxes) -> Float[Tensor, "*#B"]:
    """Return the intersection over the union of boxes; 0 where both are empty.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [4.0, 4.0, 5.0, 5.0]])
        >>> iou(boxes[:, None], torch.tensor([[1.0, 0.0, 3.0, 2.0]])).tolist()
        [[0.3333333432674408], [0.0]]
    """
    boxes, others = _checked("iou", boxes, others)
    intersection, union = _overlap(boxes, others)
    return _share(intersection, union)


def generalized_iou(boxes: Boxes, others: Boxes) -> Float[Tensor, "*#B"]:
    """Return the generalized intersection over the union, which also tells how far apart two boxes are.

    Example:
        >>> apart = torch.tensor([[3.0, 0.0, 4.0, 1.0], [9.0, 0.0, 10.0, 1.0]])
        >>> generalized_iou(torch.tensor([0.0, 0.0, 1.0, 1.0]), apart)
        tensor([-0.5000, -0.8000])
    """
    boxes, others = _checked("generalized_iou", boxes, others)
    intersection, union = _overlap(boxes, others)
    around = torch.cat([torch.minimum(boxes, others)[..., :2], torch.maximum(boxes, others)[..., 2:]], dim=-1)
    hull = _area(around)
    return _share(intersection, union) - _share(hull - union, hull)


def _overlap(boxes: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return the areas of intersection and union."""
    common = torch.cat([torch.maximum(boxes, others)[..., :2], torch.minimum(boxes, others)[..., 2:]], dim=-1)
    intersection = _area(common)
    return intersection, _area(boxes) + _area(others) - intersection


def _area(boxes: Tensor) -> Tensor:
    width, height = (boxes[..., 2:] - boxes[..., :2]).clamp_min(0).unbind(dim=-1)
    return width * height


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Return the part by the whole; 0, and no gradient, where the whole is 0."""
    empty = whole <= 0
    return (part / whole.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


def _checked(owner: str, boxes: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    _check(owner, boxes)
    _check(owner, others)
    return at_least_float32(boxes), at_least_float32(others)


def _check(owner: str, boxes: Tensor) -> None:
    if boxes.dim() < 1 or boxes.shape[-1] != 4:
        raise ShapeError(f"{owner}: boxes have shape {tuple(boxes.shape)}, expected (…, 4): four numbers per box.")
