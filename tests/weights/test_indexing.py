"""Handles are indexed as the tensor of all weights is; what they cannot do says how to get that."""

import numpy as np
import pytest
import torch

from foci.errors import ConfigError, ShapeError
from foci.weights import Weights
from foci.weights.sources import DotSoftmax

H, L, S, K = 3, 5, 7, 4


def indices(shape: torch.Size) -> list[object]:
    last = tuple(size - 1 for size in shape)
    lead = (slice(None),) * (len(shape) - 2)
    every = [
        0,
        -1,
        slice(1, None),
        slice(0, 0),
        slice(None, None, 2),
        ...,
        last,
        (..., 2),
        (*lead, -1),
        (*lead, slice(0, 3), slice(2, 5)),
        (slice(None), 0),
        (0, ..., slice(None, 3)),
        (slice(0, 1), ..., 0, slice(1, -1)),
        (np.int64(0), torch.tensor(0)),
    ]
    return [index for index in every if not isinstance(index, tuple) or len(index) - (... in index) <= len(shape)]


def test_it_is_indexed_as_its_dense_weights_are(held):
    weights = held
    dense = weights.dense()
    assert len(weights) == len(dense)
    for index in indices(dense.shape):
        torch.testing.assert_close(weights[index], dense[index], msg=lambda text, index=index: f"{index}: {text}")
    assert len(list(weights)) == len(dense)
    for ours, theirs in zip(weights, dense):
        torch.testing.assert_close(ours, theirs)
    corner = (0,) * dense.dim()
    assert float(weights[corner]) == pytest.approx(float(dense[corner]), abs=1e-6)
    assert weights[corner].requires_grad == dense.requires_grad


def test_an_entry_is_computed_alone(monkeypatch):
    """Of 4 entries, 3 heads and 5 queries, the rows of one each."""
    sizes = []
    scores = DotSoftmax.scores
    monkeypatch.setattr(
        DotSoftmax, "scores", lambda self, rows: sizes.append(scores(self, rows)[0].numel()) or scores(self, rows)
    )
    weights = Weights(DotSoftmax(torch.randn(4, H, L, K), torch.randn(4, H, S, K), 1.0))
    assert weights[2, 1, 3].shape == (S,)
    assert weights[1].shape == (H, L, S)
    assert sizes == [S, H * L * S]


def test_what_a_handle_is_not_says_dense(handles):
    weights = handles["dots"]
    for index in ([0, 1], torch.tensor([0, 1]), None, True, (0, [1]), weights.dense() > 0.5, 1.0):
        with pytest.raises(ShapeError, match=r"Use weights\.dense\(\)"):
            weights[index]
    for index in (2, -3, (0, H), (0, 0, L), (0, 0, 0, S), (0, 0, 0, 0, 0)):
        with pytest.raises(IndexError):
            weights[index]
    for name in ("mean", "numpy", "T", "view", "item"):
        with pytest.raises(AttributeError, match=rf"weights\.dense\(\)\.{name}"):
            getattr(weights, name)
    with pytest.raises(AttributeError, match=r"no attribute 'entropi'$"):
        weights.entropi  # noqa: B018
    with pytest.raises(ShapeError, match="expected 1"):
        float(weights)
    with pytest.raises(ConfigError, match=r"dense\(\)"):
        weights.to(torch.float64)
    for use in (
        lambda one: one + 1.0,
        lambda one: 1.0 - one,
        lambda one: -one,
        lambda one: one > 0.5,
        lambda one: one @ torch.ones(S, 1),
        lambda one: torch.ones(L, L) @ one,
        torch.sum,
        lambda one: torch.cat([one, one]),
        torch.nn.functional.softmax,
    ):
        with pytest.raises(ShapeError, match=r"a handle on weights, expected a tensor\. .*weights\.dense\(\)"):
            use(weights)
    with pytest.raises(ValueError, match="always a copy"):
        np.array(weights, copy=False)
