"""Object queries: anchors, and boxes from layer to layer."""

import pytest
import torch
from detectors import KINDS, some_detector, some_images

from foci.models.decoders.objects import anchor_grid


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("refine", [False, True])
def test_a_layer_starts_from_the_boxes_of_the_one_before_it_or_from_the_anchors(kind, refine):
    model = some_detector(kind, attention={"refine": refine})
    last = model.decoder.layers[1].to_boxes[-1]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    found = model(some_images(1, 16, 24))
    expected = found.earlier[0].boxes if refine else anchor_grid(5).unsqueeze(0)
    torch.testing.assert_close(found.boxes, expected)
    assert not torch.allclose(found.earlier[0].boxes, anchor_grid(5).unsqueeze(0), atol=0.01)
    found.boxes.sum().backward()
    assert model.decoder.layers[0].to_boxes[-1].weight.grad is None  # refined boxes are a start, and not trained by it


def test_learned_anchors_start_from_the_grid_and_are_trained():
    model = some_detector("deformable", attention={"anchors": "learned"})
    anchors = model.decoder.queries.anchors
    assert "decoder.queries.anchors" in dict(model.named_parameters())
    model(some_images(1, 16, 24)).earlier[0].boxes.sum().backward()
    assert anchors.grad.abs().min() > 0
    assert "decoder.queries.anchors" not in dict(some_detector("deformable").named_parameters())


@pytest.mark.parametrize("count", [1, 2, 5, 16, 50])
def test_the_anchors_cover_the_picture(count):
    boxes = anchor_grid(count)
    assert len(boxes) == len({tuple(box) for box in boxes[:, :2].tolist()}) == count
    assert (boxes[:, 2] * boxes[:, 3]).sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("auxiliary", [False, True])
def test_all_that_learns_has_a_gradient(kind, auxiliary):
    attention = {} if kind == "plain" else {"refine": auxiliary}
    model = some_detector(kind, attention=attention, loss={"auxiliary": auxiliary}, num_decoder_layers=3)
    found = model(some_images(2, 16, 24))
    assert len(found.earlier) == (2 if auxiliary else 0)
    sum(one.sum() for answer in [*found.earlier, found[:2]] for one in answer).backward()
    assert [name for name, one in model.named_parameters() if one.requires_grad and one.grad is None] == []
