"""What a search begins with."""

import pytest
from searches import EOS, SOURCE, VALID, beam, greedy
from table_model import TableModel

from foci.errors import ShapeError


def test_default_length_is_twice_the_source_and_twenty() -> None:
    model = TableModel(7)
    model.table[..., EOS] = -50.0
    assert [len(h[0].tokens) for h in greedy(model, SOURCE, VALID)] == [28, 26, 24]
    found = beam(model, SOURCE, VALID, size=2, n_best=2)
    assert [[(len(h.tokens), h.finished) for h in row] for row in found] == [[(n, False)] * 2 for n in (28, 26, 24)]


def test_wrong_valid() -> None:
    with pytest.raises(ShapeError, match=r"source_valid has shape \(3, 3\), expected \(batch, position\) = \(3, 4\)"):
        greedy(TableModel(7), SOURCE, VALID[:, :3])
