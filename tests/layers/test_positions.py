"""Positions as layers: tables added to embeddings, at once or step by step."""

import pytest
import torch

from foci.errors import ShapeError
from foci.functional.positions import sinusoid
from foci.layers.positions import LearnedPositions, SinusoidalPositions


@pytest.mark.parametrize("layer", [SinusoidalPositions(7), LearnedPositions(11, 7)])
def test_positions_are_added_the_same_at_once_and_step_by_step(layer):
    embedded = torch.randn(2, 5, 7)
    whole = layer(embedded)
    table = layer.table[:5] if isinstance(layer, LearnedPositions) else sinusoid(5, 7)
    torch.testing.assert_close(whole - embedded, table.expand(2, 5, 7))
    steps = [layer(embedded[:, t : t + 1], start=t) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_wrong_sizes_and_too_long():
    with pytest.raises(ShapeError, match=r"position 12, expected at most 11.*max_length=12"):
        LearnedPositions(11, 7)(torch.zeros(2, 3, 7), start=9)
    with pytest.raises(ShapeError, match=r"\(2, 3, 5\), expected \(batch, position, 7\)"):
        SinusoidalPositions(7)(torch.zeros(2, 3, 5))
