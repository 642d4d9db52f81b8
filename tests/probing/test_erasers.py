"""Parts of inputs of numbers, erased and differentiated, beside loops over their elements; and models in parts."""

import numpy as np
import pytest
import torch
from torch import nn

import foci
from foci.errors import ShapeError
from foci.probing import Cells, Options, Source, Subject, of_module, probe_subjects
from foci.probing.subject import Attended, Erasing

HEIGHT, WIDTH, GRID = 7, 5, (3, 2)
REGIONS = GRID[0] * GRID[1]


class Looker(nn.Module):
    """Classifies an image by an attention to vectors of its pixels' rows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.attention = foci.build("pool", value_dim=3 * WIDTH, hidden_dim=5)
        self.output = nn.Linear(3 * WIDTH, 4)

    def forward(self, pixels):
        rows = pixels.transpose(1, 2).flatten(2)  # (B, H, C · W)
        return self.output(self.attention(rows).output)


def image():
    return torch.randn(1, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))


def subject(model, pixels, **changes):
    source = Source(0, tuple(map(str, range(REGIONS))), eraser=Cells.of_regions(pixels, GRID), unit="regions")
    weights = np.arange(REGIONS, dtype=float)[None] / 15
    attentions = {"looks": Attended("image", weights, ("attention",))}
    return Subject(model, {0: pixels}, {"image": source._replace(**changes)}, attentions, lambda one: one.softmax(-1))


def region_of(row, column):
    return (row * GRID[0] // HEIGHT) * GRID[1] + column * GRID[1] // WIDTH


def by_hand(model, pixels, gone):
    erased = pixels.clone()
    for channel in range(3):
        for row in range(HEIGHT):
            for column in range(WIDTH):
                if region_of(row, column) in gone:
                    erased[0, channel, row, column] = pixels[0, channel].mean()
    return model(erased).softmax(dim=-1)[0]


@torch.no_grad()
def test_regions_have_the_mean_color_as_in_a_loop():
    model, pixels = Looker().eval(), image()
    erasing = Erasing(subject(model, pixels), "image", batch_size=2)
    before = by_hand(model, pixels, ())
    sets = [(), (0,), (5, 2), tuple(range(REGIONS)), (4,)]
    for gone, change in zip(sets, erasing.changes(sets), strict=True):
        after = by_hand(model, pixels, gone)
        assert change.probability == pytest.approx(float(after[int(before.argmax())]), abs=1e-6)
        assert change.distance == pytest.approx(float((after - before).abs().sum() / 2), abs=1e-6)


def test_gradients_are_multiplied_by_the_difference_from_the_mean():
    model, pixels = Looker().eval(), image().requires_grad_()
    (gradient,) = torch.autograd.grad(model(pixels).log_softmax(dim=-1).max(), pixels)
    expected = np.zeros(REGIONS)
    for channel in range(3):
        for row in range(HEIGHT):
            for column in range(WIDTH):
                at = (0, channel, row, column)
                expected[region_of(row, column)] += float(gradient[at] * (pixels[at] - pixels[0, channel].mean()))
    found = Erasing(subject(model, pixels.detach()), "image", 1).gradient()
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-7)


@torch.no_grad()
def test_what_belongs_to_no_part_is_never_erased():
    value = torch.arange(6.0).reshape(1, 6)
    cells = Cells(torch.tensor([[0, -1, 1, 1, -1, 2]]), neutral=torch.tensor(-9.0))
    assert cells.count(value) == 3
    with cells.erased(nn.Identity(), {"x": value}, "x", [(0, 1, 2), ()], differentiate=False) as reading:
        assert reading.inputs["x"].tolist() == [[-9.0, 1.0, -9.0, -9.0, 4.0, -9.0], value[0].tolist()]


def test_half_precision_stays():
    pixels = image().half()
    with Cells.of_regions(pixels, GRID).erased(nn.Identity(), {0: pixels}, 0, [(1,)], differentiate=False) as reading:
        assert reading.inputs[0].dtype == torch.float16


def test_parts_of_a_model_may_be_called_in_its_place():
    model, pixels = Looker().eval(), image()
    whole = subject(model, pixels)
    rows = pixels.transpose(1, 2).flatten(2)
    cells = Cells(torch.arange(HEIGHT).reshape(1, -1, 1), torch.zeros(1, 1, 3 * WIDTH))
    parts = Subject(
        model,
        {"rows": rows},
        {"rows": Source("rows", tuple(map(str, range(HEIGHT))), eraser=cells)},
        {"attention": Attended("rows", np.ones((1, HEIGHT)), ("attention",))},
        lambda one: one.softmax(-1),
        forward=lambda rows: model.output(model.attention(rows).output),
    )
    with torch.no_grad():
        assert parts.answer() == pytest.approx(whole.answer(), abs=1e-6)
        (change,) = Erasing(parts, "rows", 4).changes([(1, 2)])
        erased = rows.clone()
        erased[0, [1, 2]] = 0
        after = model.output(model.attention(erased).output).softmax(-1)[0]
    assert change.probability == pytest.approx(float(after[int(whole.answer()[0].argmax())]), abs=1e-6)
    found = probe_subjects([parts], Options(steps=0, permutations=1))
    assert found["attention"].measures["uniform"].value > 0


def test_a_source_may_have_an_answer_of_its_own():
    model, pixels = Looker().eval(), image()
    own = Erasing(subject(model, pixels, probabilities=lambda one: (2 * one).softmax(-1)), "image", 4)
    assert own.before == pytest.approx((2 * model(pixels)).softmax(-1).detach().double(), abs=1e-6)
    assert own.whole().detach() == pytest.approx(own.before.float(), abs=1e-6)


def test_regions_that_people_marked_are_pointed_at():
    model, pixels = Looker().eval(), image()
    for gold, expected in (({5}, 1.0), ({2, 3}, 0.0)):  # the largest weight is that of region 5
        row = probe_subjects([subject(model, pixels, gold=frozenset(gold))], Options(steps=0, permutations=0))["looks"]
        assert row.measures["pointing"].value == expected
        assert row.chance["pointing"] == pytest.approx(len(gold) / REGIONS)
        assert "regions it looked at" in row.words("en")
        assert "区域" in row.words("zh")


def test_regions_of_any_module_are_probed():
    model, pixels = Looker().eval(), image()
    cells = Cells.with_mean(pixels, torch.arange(HEIGHT).reshape(1, 1, -1, 1))
    source = Source(0, tuple(map(str, range(HEIGHT))), eraser=cells, unit="regions")
    found = foci.probe(model, [of_module(model, [pixels], source=source)], steps=0)
    assert [row.name for row in found.rows] == ["gradient × input", "attention"]
    assert found["attention"].unit == "regions"


def test_tokens_that_own_no_pixels_are_fixed():
    class Patches(nn.Module):
        """Reads patches after a token of its own, as a ViT does."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(5)
            self.patch, self.first = nn.Conv2d(3, 8, 4, stride=4), nn.Parameter(torch.zeros(1, 1, 8))
            self.layer = nn.TransformerEncoderLayer(8, 2, 11, batch_first=True)

        def forward(self, pixels):
            patches = self.patch(pixels).flatten(2).mT
            return self.layer(torch.cat([self.first.expand(len(pixels), -1, -1), patches], dim=1))[:, 0]

    model, pixels = Patches().eval(), torch.randn(1, 3, 12, 8)
    cells = Cells.of_regions(pixels, grid=(3, 2), first=1)
    source = Source(0, ("[CLS]", *"abcdef"), fixed=frozenset({0}), eraser=cells, unit="regions")
    of_image = of_module(model, [pixels], source=source)
    assert of_image.attentions["layer.self_attn"].weights.shape == (2, 7)
    erasing = Erasing(of_image, "tokens", 4)
    assert erasing.gradient()[0] == 0.0
    erased = pixels.clone()
    erased[0, :, 4:8, 0:4] = pixels[0].mean(dim=(1, 2)).reshape(3, 1, 1)  # the third of the patches
    with torch.no_grad():
        expected = model(erased).softmax(dim=-1)[0, int(erasing.best)]
    assert erasing.changes([(3,)])[0].probability == pytest.approx(float(expected), abs=1e-6)


def test_labels_must_be_as_many_as_parts():
    model, pixels = Looker().eval(), image()
    with pytest.raises(ShapeError, match="'image' has 1 labels, but 0 has 6 regions"):
        Erasing(subject(model, pixels, tokens=("a",)), "image", 1)
    with pytest.raises(ShapeError, match=r"0 has shape \(2, 3, 7, 5\), expected the numbers \(1, …\)"):
        of_module(model, [pixels.repeat(2, 1, 1, 1)], source=subject(model, pixels).sources["image"])
