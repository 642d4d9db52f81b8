"""Weights over the levels of a map, on the finest one: by plain loops over cells."""

import numpy as np
import pytest
import torch

from foci.tasks.detect.looks import Shown

CASES = [
    ((64, 64), [(16, 16), (8, 8)], (41, 64)),
    ((61, 83), [(31, 42), (16, 21), (8, 11)], (61, 83)),  # the canvas is no multiple of the strides
    ((48, 80), [(12, 20)], (5, 79)),
]


@pytest.mark.parametrize(("canvas", "grids", "size"), CASES)
def test_a_coarse_cell_shares_its_weight_among_the_fine_cells_in_it(canvas, grids, size):
    shown = Shown.of(canvas, grids, size)
    assert all(
        -(-side // stride) == cells for stride, grid in zip(shown.strides, grids) for side, cells in zip(canvas, grid)
    )
    rows, columns = shown.cells(0)
    assert shown.region == (rows * shown.strides[0], columns * shown.strides[0])
    assert all(0 <= region - side < shown.strides[-1] for region, side in zip(shown.region, size))
    weights = torch.zeros(2, sum(height * width for height, width in grids))
    wanted = np.zeros((2, rows, columns))
    start, chance = 0, np.random.default_rng(3)
    for (height, width), stride in zip(grids, shown.strides):
        factor = stride // shown.strides[0]
        for down in range(-(-size[0] // stride)):  # what the picture does not reach has no weight
            for across in range(-(-size[1] // stride)):
                values = chance.random(2)
                weights[:, start + down * width + across] = torch.from_numpy(values)
                inside = [(down * factor + i, across * factor + j) for i in range(factor) for j in range(factor)]
                for i, j in inside:
                    wanted[:, i, j] += values / len(inside)
        start += height * width
    found = shown.on_finest(weights)
    assert torch.allclose(found.sum(dim=-1), weights.sum(dim=-1), rtol=1e-5)
    assert np.allclose(found.reshape(2, rows, columns), wanted, atol=1e-5)


def test_boxes_and_pictures_are_over_the_same_region():
    shown = Shown.of((64, 64), [(16, 16), (8, 8)], (41, 64))  # the region is 48 pixels high
    assert shown.box((0.0, 0.0, 1.0, 1.0)) == pytest.approx((0.0, 0.0, 1.0, 41 / 48))
    picture = np.full((410, 640, 3), 7, np.uint8)
    whole = shown.picture(picture)
    assert whole.shape == (480, 640, 3)
    assert (whole[:410] == 7).all()
    assert not whole[410:].any()
