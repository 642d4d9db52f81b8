"""The detector: an image alone and padded, boxes from layer to layer, weights, and the code of places."""

import math

import pytest
import torch

from foci.errors import ConfigError, ShapeError
from foci.functional.positions import place_code
from foci.models.decoders.objects import anchor_grid
from foci.models.detector import Detector
from foci.models.encoders.image_grid import ImageNorm
from foci.models.options.detection import DetectorOptions, FocalLossOptions, SmallMapOptions
from foci.options import from_tables

KINDS = ("plain", "conditional", "deformable")
by_kind = pytest.mark.parametrize("kind", KINDS)


def some_detector(kind, **tables):
    """A small detector, none of whose layers is 0 as at the start."""
    torch.manual_seed(0)
    sizes = {"model_dim": 12, "num_heads": 3, "hidden_dim": 14, "num_queries": 5, "encoder": {"stages": (5, 6, 7)}}
    attention = {"kind": kind, **tables.pop("attention", {})}
    model = Detector(3, from_tables(DetectorOptions, {**sizes, "attention": attention, **tables}))
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def some_images(batch, height, width):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8, generator=generator)


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


def test_probabilities_are_sigmoids_or_a_softmax_without_the_last():
    scores = torch.tensor([[[math.log(1.0), math.log(3.0), math.log(4.0), 0.0]]])
    focal, exclusive = some_detector("plain"), some_detector("plain", loss={"kind": "cross_entropy"})
    torch.testing.assert_close(exclusive.probabilities(scores), torch.tensor([[[1.0, 3.0, 4.0]]]) / 9)
    torch.testing.assert_close(focal.probabilities(scores[..., :3]), torch.tensor([[[1 / 2, 3 / 4, 4 / 5]]]))
    assert exclusive(some_images(1, 16, 24)).logits.shape == (1, 5, 4)
    assert focal(some_images(1, 16, 24)).logits.shape == (1, 5, 3)


@pytest.mark.parametrize("count", [1, 2, 5, 16, 50])
def test_the_anchors_cover_the_picture(count):
    boxes = anchor_grid(count)
    assert len(boxes) == len({tuple(box) for box in boxes[:, :2].tolist()}) == count
    assert (boxes[:, 2] * boxes[:, 3]).sum().item() == pytest.approx(1.0)


def test_the_code_of_a_place_is_sine_and_cosine_of_each_number():
    place, dim = [0.3, 0.85], 20
    periods = [2 ** (-1 + 5 * k / 4) for k in range(5)]
    expected = [f(2 * math.pi * n * period) for n in place for f in (math.sin, math.cos) for period in periods]
    torch.testing.assert_close(place_code(torch.tensor(place), dim), torch.tensor(expected), atol=1e-5, rtol=0)


def test_a_norm_of_readable_places_is_that_of_the_image_alone():
    norm = ImageNorm(14)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    features, readable = torch.randn(2, 14, 5, 7), torch.zeros(2, 5, 7, dtype=torch.bool)
    readable[0, :3, :2] = readable[1, :, :] = True
    normed = norm(features.masked_fill(~readable.unsqueeze(1), torch.nan), readable)
    torch.testing.assert_close(normed[0, :, :3, :2], norm(features[:1, :, :3, :2])[0])
    torch.testing.assert_close(normed[1], norm(features[1:])[0])
    assert not normed[0, :, 3:].any()
    assert not normed[0, :, :, 2:].any()


@pytest.mark.parametrize("sizes", [[[17, 24]], [[16, 0]]])
def test_sizes_lie_within_the_canvas(sizes):
    with pytest.raises(ShapeError, match="expected heights from 1 to 16 and widths from 1 to 24"):
        some_detector("plain")(some_images(1, 16, 24), torch.tensor(sizes))


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="num_levels is 4, expected at most the 3 stages"):
        SmallMapOptions(num_levels=4)
    with pytest.raises(ConfigError, match="stages has 1 entries, expected 2 to 8"):
        SmallMapOptions(stages=(8,))
    with pytest.raises(ConfigError, match="model_dim is 10 with 2 heads, expected a multiple of both the heads and 4"):
        DetectorOptions(model_dim=10, num_heads=2)
    with pytest.raises(ConfigError, match="encoder_layers is -1, expected a whole number from 0"):
        DetectorOptions(encoder_layers=-1)
    with pytest.raises(ConfigError, match="gamma is -1.0, expected a number from 0"):
        FocalLossOptions(gamma=-1.0)
