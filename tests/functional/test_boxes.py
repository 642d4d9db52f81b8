"""Boxes against plain loops over the cells that they cover, and what holds for any two boxes."""

import pytest
import torch

from foci.errors import ShapeError
from foci.functional.boxes import from_corners, generalized_iou, iou, to_corners


def some_boxes(count: int, seed: int, side: int = 7) -> torch.Tensor:
    """Corners of boxes whose edges are whole numbers, some of them empty."""
    first = torch.randint(0, side, (count, 2), generator=torch.Generator().manual_seed(seed))
    size = torch.randint(0, side, (count, 2), generator=torch.Generator().manual_seed(seed + 1))
    return torch.cat([first, first + size], dim=-1).float()


def cells(box: torch.Tensor) -> set[tuple[int, int]]:
    left, top, right, bottom = (int(edge) for edge in box)
    return {(x, y) for x in range(left, right) for y in range(top, bottom)}


def by_counting(box: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """Return IoU and GIoU by counting cells."""
    union, common = cells(box) | cells(other), cells(box) & cells(other)
    shared = len(common) / len(union) if union else 0.0
    corners = [
        min(float(box[0]), float(other[0])), min(float(box[1]), float(other[1])),
        max(float(box[2]), float(other[2])), max(float(box[3]), float(other[3])),
    ]  # fmt: skip
    hull = len(cells(torch.tensor(corners)))
    return shared, shared - ((hull - len(union)) / hull if hull else 0.0)


def test_overlaps_are_those_of_counted_cells():
    boxes, others = some_boxes(11, seed=0), some_boxes(13, seed=7)
    found, generalized = iou(boxes[:, None], others), generalized_iou(boxes[:, None], others)
    for row, box in enumerate(boxes):
        for column, other in enumerate(others):
            expected = by_counting(box, other)
            assert found[row, column].item() == pytest.approx(expected[0], abs=1e-6)
            assert generalized[row, column].item() == pytest.approx(expected[1], abs=1e-6)
    assert (found > 0).any()
    assert (found == 0).any()
    assert (generalized < 0).any()


def test_the_two_forms_are_inverse():
    boxes = some_boxes(5, seed=3)
    middle = from_corners(boxes)
    for box, (x, y, width, height) in zip(boxes, middle):
        assert [x - width / 2, y - height / 2, x + width / 2, y + height / 2] == box.tolist()
    assert torch.equal(to_corners(middle), boxes)


def test_overlaps_are_symmetric_and_do_not_change_with_scale():
    boxes, others = some_boxes(11, seed=1), some_boxes(11, seed=5)
    for overlap in (iou, generalized_iou):
        assert torch.equal(overlap(boxes, others), overlap(others, boxes))
        torch.testing.assert_close(overlap(boxes * 3.7, others * 3.7), overlap(boxes, others))
    whole = boxes[(boxes[:, 2:] > boxes[:, :2]).all(dim=-1)]
    assert len(whole) > 3
    assert torch.equal(iou(whole, whole), torch.ones(len(whole)))


def test_half_precision_is_computed_in_float32():
    boxes, others = some_boxes(11, seed=1).bfloat16(), some_boxes(11, seed=5).bfloat16()
    assert torch.equal(generalized_iou(boxes, others), generalized_iou(boxes.float(), others.float()))


def test_gradients_are_finite_for_empty_and_for_distant_boxes():
    others = some_boxes(13, seed=2).double() + 0.25
    boxes = some_boxes(13, seed=9).double() + 0.1  # no edge lies on another one
    boxes[:, 2:] += 0.07  # and none is empty: there the area has a kink
    boxes.requires_grad_()
    assert torch.autograd.gradcheck(lambda boxes: generalized_iou(boxes[:, None], others), (boxes,))
    point = torch.ones(1, 4, requires_grad=True)
    (generalized_iou(point, point.detach()) + iou(point, point.detach())).sum().backward()
    assert torch.equal(point.grad, torch.zeros(1, 4))


@pytest.mark.parametrize("call", [iou, generalized_iou, lambda a, b: to_corners(a), lambda a, b: from_corners(a)])
def test_boxes_have_four_numbers(call):
    with pytest.raises(ShapeError, match=r"boxes have shape \(2, 5\), expected \(…, 4\)"):
        call(torch.zeros(2, 5), torch.zeros(2, 5))
