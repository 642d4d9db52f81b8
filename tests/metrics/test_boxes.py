"""Boxes on grids by counting fine pixels; the pointing game and the share inside by plain loops."""

import numpy as np
import pytest

from foci.metrics.boxes import Box, area, on_grid, points_at, share_inside

BOX = Box(0.13, 0.41, 0.58, 0.87)


def covered_by_counting(box, down, across, fine=840):
    centers = (np.arange(fine) + 0.5) / fine
    inside = ((centers > box.top) & (centers < box.bottom))[:, None] & ((centers > box.left) & (centers < box.right))
    return inside.reshape(down, fine // down, across, fine // across).mean(axis=(1, 3))


@pytest.mark.parametrize(("down", "across"), [(5, 7), (1, 1), (3, 2)])
def test_boxes_on_a_grid(down, across):
    assert np.abs(on_grid(BOX, (down, across)) - covered_by_counting(BOX, down, across)).max() < 0.01
    assert on_grid(BOX, (down, across)).mean() == pytest.approx(area(BOX))


def test_share_and_pointing_by_loops():
    chance = np.random.default_rng(0)
    for _ in range(20):
        weights = chance.random((5, 7))
        covered = covered_by_counting(BOX, 5, 7)
        inside = sum(weights[i, j] * covered[i, j] for i in range(5) for j in range(7)) / weights.sum()
        assert share_inside(weights, BOX) == pytest.approx(inside, abs=0.01)
        best = max(((i, j) for i in range(5) for j in range(7)), key=lambda place: weights[place])
        assert points_at(weights, BOX) == (covered[best] >= 0.5)
    assert share_inside(np.zeros((5, 7)), BOX) == 0
    assert not points_at(np.zeros((5, 7)), Box(0, 0, 1, 1))
