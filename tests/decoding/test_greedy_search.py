"""Greedy search."""

import pytest
from searches import SOURCE, VALID, beam, greedy
from table_model import TableModel


def test_greedy_is_a_beam_of_one() -> None:
    for seed in range(5):
        model = TableModel(7, seed=seed)
        one = greedy(model, SOURCE, VALID)
        for found in (
            beam(model, SOURCE, VALID, size=1, length_penalty=0.0),
            beam(model, SOURCE, VALID, size=1, length_penalty=1.0, stop="full"),
        ):
            assert [h[0].tokens for h in one] == [h[0].tokens for h in found]
            assert [h[0].log_prob for h in one] == pytest.approx([h[0].log_prob for h in found])
