"""Points of feature maps: bags against gathering, grid_sample as a peer, and places on and beyond every border."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from foci.functional import points

B, L, H, P, D = 2, 7, 3, 5, 2
LEVELS = [(3, 5), (1, 2)]
S = 17


def inputs(dtype=torch.float64):
    torch.manual_seed(3)
    sizes = points.level_sizes(LEVELS, torch.zeros(1, dtype=dtype))
    places = (
        torch.rand(B, L, H, 2, P, 2, dtype=dtype) * 1.6 - 0.3
    ) * sizes  # a fifth of them lies outside on each side
    return torch.randn(B, S, H, D, dtype=dtype), torch.rand(B, L, H, 2, P, dtype=dtype), places


def by_gathering(monkeypatch, values, of_points, places):
    with monkeypatch.context() as patch:
        patch.setattr(points, "_fits_bags", lambda *_: False)
        return points.read_points(values, of_points, places, LEVELS)


def test_bags_read_what_gathering_reads(monkeypatch):
    given = [one.requires_grad_() for one in inputs()]
    assert points._fits_bags(*given)
    read, expected = points.read_points(*given, LEVELS), by_gathering(monkeypatch, *given)
    torch.testing.assert_close(read, expected)
    factor = torch.randn_like(read)
    found, gradients = (torch.autograd.grad((one * factor).sum(), given) for one in (read, expected))
    for ours, theirs in zip(found, gradients):
        torch.testing.assert_close(ours, theirs)


def test_the_gradient_of_a_few_reads_of_a_large_map(monkeypatch):
    values, of_points, places = inputs()
    given = [values.repeat(1, 9, 1, 1), of_points[:, :1], places[:, :1] * 3]
    leaves = [one.requires_grad_() for one in given]
    assert of_points[:, :1].numel() * 4 < given[0].shape[:3].numel()
    levels = [(9, 17)]
    read = points.read_points(leaves[0], leaves[1][:, :, :, :1], leaves[2][:, :, :, :1], levels)
    with monkeypatch.context() as patch:
        patch.setattr(points, "_fits_bags", lambda *_: False)
        expected = points.read_points(leaves[0], leaves[1][:, :, :, :1], leaves[2][:, :, :, :1], levels)
    found, gradients = (torch.autograd.grad(one.square().sum(), leaves[0]) for one in (read, expected))
    torch.testing.assert_close(found, gradients)


def test_bags_read_what_grid_sample_reads():
    values, of_points, places = inputs()
    expected = torch.zeros(B, L, H, D, dtype=torch.float64)
    for level, ((height, width), part) in enumerate(zip(LEVELS, values.split([15, 2], dim=1))):
        maps = part.permute(0, 2, 3, 1).reshape(B * H, D, height, width)
        at = places[:, :, :, level] / torch.tensor([width, height]) * 2 - 1
        sampled = F.grid_sample(maps, at.transpose(1, 2).flatten(0, 1), align_corners=False)
        sampled = sampled.view(B, H, D, L, P) * of_points[:, :, :, level].permute(0, 2, 1, 3).unsqueeze(2)
        expected += sampled.sum(-1).permute(0, 3, 1, 2)
    torch.testing.assert_close(points.read_points(values, of_points, places, LEVELS), expected)


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 1, 2)])
def test_gradients_of_bags(needed):
    given = [one[:1, :2].requires_grad_(place in needed) for place, one in enumerate(inputs())]
    given[0] = inputs()[0][:1].requires_grad_(0 in needed)
    run = lambda *tensors: points.read_points(*tensors, LEVELS)  # noqa: E731
    assert gradcheck(run, given, fast_mode=True)
    assert gradgradcheck(run, given, fast_mode=True)


@pytest.mark.parametrize("bags", [True, False])
def test_places_on_and_beyond_a_border(bags, monkeypatch):
    """Of one cell: it is read up to a cell away, and a point that is farther away moves nothing."""
    x = torch.tensor([-9.0, -0.5, -0.25, 0.0, 0.5, 1.25, 1.5, 9.0, torch.inf], dtype=torch.float64)
    places = torch.stack([x, torch.full_like(x, 0.5)], dim=-1).view(1, 9, 1, 1, 1, 2).repeat(4, 1, 1, 1, 1, 1)
    values, of_points = torch.ones(4, 1, 1, 1, dtype=torch.float64), torch.ones(4, 9, 1, 1, 1, dtype=torch.float64)
    assert points._fits_bags(values, of_points, places.requires_grad_())
    monkeypatch.setattr(points, "_fits_bags", lambda *_: bags)
    read = points.read_points(values, of_points, places, [(1, 1)])
    assert read[0].flatten().tolist() == [0, 0, 0.25, 0.5, 1, 0.25, 0, 0, 0]
    (gradient,) = torch.autograd.grad(read.sum(), places)
    assert gradient[0, [0, 2, 3, 5, 7, 8], 0, 0, 0, 0].tolist() == [0, 1, 1, -1, 0, 0]


def test_tracers_and_half_precision_gather():
    values, of_points, places = inputs(torch.float32)
    assert not points._fits_bags(values[:1, :1], of_points[:1], places[:1]), "a table smaller than what a query reads"
    assert not points._fits_bags(values.bfloat16(), of_points.bfloat16(), places)
    read = points.read_points(values.bfloat16(), of_points.bfloat16(), places, LEVELS)
    assert read.dtype == torch.bfloat16
    torch.testing.assert_close(read.float(), points.read_points(values, of_points, places, LEVELS), atol=0.1, rtol=0.05)
    mapped = torch.func.vmap(lambda a: points.read_points(values, a, places, LEVELS))(of_points.unsqueeze(0))
    torch.testing.assert_close(mapped[0], points.read_points(values, of_points, places, LEVELS))
