"""The detector: an image alone and padded, the weights of every attention, and probabilities."""

import math

import pytest
import torch
from detectors import KINDS, some_detector, some_images

import foci
from foci.models.detector import Detector
from foci.models.options.detection import DetectorOptions, PlainAttentionOptions

by_kind = pytest.mark.parametrize("kind", KINDS)


@by_kind
@pytest.mark.parametrize("training", [False, True])
def test_an_image_has_the_same_answer_alone_and_padded(kind, training):
    model = some_detector(kind).train(training)
    image, canvas = some_images(1, 19, 29), some_images(2, 37, 31)
    canvas[0, :, :19, :29] = image
    alone, together = model(image), model(canvas, torch.tensor([[19, 29], [37, 31]]))
    assert (alone.grids, together.grids) == (((5, 8), (3, 4)), ((10, 8), (5, 4)))
    for one, several in zip([*alone[:2], *alone.earlier[0]], [*together[:2], *together.earlier[0]]):
        torch.testing.assert_close(one[0], several[0], atol=2e-5, rtol=1e-4)
    assert alone.boxes.std() > 0.01
    finest = together.attentions["decoder.1.cross"].dense()[0, ..., : 10 * 8].unflatten(-1, (10, 8))
    read = alone.attentions["decoder.1.cross"].dense()[0, ..., : 5 * 8].unflatten(-1, (5, 8))
    torch.testing.assert_close(finest[..., :5, :], read, atol=2e-5, rtol=1e-4)
    assert not finest[..., 5:, :].any()


@by_kind
def test_the_weights_of_every_attention_come_out(kind):
    found = some_detector(kind, encoder_layers=2)(some_images(2, 16, 24))
    shapes = {name: tuple(weights.shape) for name, weights in found.attentions.items()}
    assert shapes == {
        **{f"encoder.{layer}.self": (2, 3, 6, 6) for layer in (0, 1)},
        **{f"decoder.{layer}.self": (2, 3, 5, 5) for layer in (0, 1)},
        **{f"decoder.{layer}.cross": (2, 3, 5, 4 * 6 + 2 * 3) for layer in (0, 1)},
    }
    if kind != "deformable":  # whose points may lie outside of the picture
        sums = found.attentions["decoder.0.cross"].dense().sum(dim=-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


def test_probabilities_are_sigmoids_or_a_softmax_without_the_last():
    scores = torch.tensor([[[math.log(1.0), math.log(3.0), math.log(4.0), 0.0]]])
    focal, exclusive = some_detector("plain"), some_detector("plain", loss={"kind": "cross_entropy"})
    torch.testing.assert_close(exclusive.probabilities(scores), torch.tensor([[[1.0, 3.0, 4.0]]]) / 9)
    torch.testing.assert_close(focal.probabilities(scores[..., :3]), torch.tensor([[[1 / 2, 3 / 4, 4 / 5]]]))
    assert exclusive(some_images(1, 16, 24)).logits.shape == (1, 5, 4)
    assert focal(some_images(1, 16, 24)).logits.shape == (1, 5, 3)


@by_kind
def test_each_attention_is_recorded_once(kind):
    model = some_detector(kind)
    with foci.record(model) as tape:
        found = model(some_images(1, 16, 24))
    cross = ["decoder.layers.0.cross_attention.attention", "decoder.layers.1.cross_attention.attention"]
    assert [name for name in tape if "cross" in name] == cross
    assert len(tape) == len(found.attentions) == 5
    for number, name in enumerate(cross):
        assert torch.equal(tape[name].dense(), found.attentions[f"decoder.{number}.cross"].dense())


@pytest.mark.slow
@by_kind
def test_it_is_exported_with_sizes(kind):
    model, images = some_detector(kind).eval(), some_images(2, 16, 24)
    sizes = torch.tensor([[16, 24], [9, 11]])
    program = torch.export.export(model, (images, sizes)).module()
    torch.testing.assert_close(program(images, sizes).logits, model(images, sizes).logits, atol=1e-5, rtol=1e-4)


@by_kind
def test_half_precision_has_boxes_in_float32(kind):
    model, images = some_detector(kind), some_images(2, 16, 24)
    whole = model(images)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(images, torch.tensor([[16, 24], [9, 11]]))
    assert (half.logits.dtype, half.boxes.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(half.boxes[0], whole.boxes[0], atol=0.1, rtol=0.1)
    half.boxes.sum().backward()
    assert all(one.grad.isfinite().all() for one in model.parameters() if one.grad is not None)


def test_boxes_of_plain_queries_start_apart():
    options = DetectorOptions(num_queries=5, attention=PlainAttentionOptions())
    boxes = Detector(3, options).eval()(torch.zeros(1, 3, 32, 48, dtype=torch.uint8)).boxes[0]
    assert torch.pdist(boxes).min() > 0
