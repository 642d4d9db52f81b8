"""Dropout in bulk: how much it drops, what it keeps, and where it is torch's own."""

import math

import pytest
import torch
from torch import nn

from foci.layers.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
def test_the_share_that_is_dropped_and_the_scale_of_the_rest(p: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(101, 1009, requires_grad=True)
    y = Dropout(p)(x)
    kept = y != 0
    spread = math.sqrt(p * (1 - p) / x.numel())
    assert abs(float((~kept).float().mean()) - p) < 5 * spread
    torch.testing.assert_close(y[kept], x[kept] / (1 - p))
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad, kept.float() / (1 - p))


def test_every_one_of_the_four_that_share_a_draw_is_dropped_as_often_and_by_itself() -> None:
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(40_000, 4)) != 0).float()
    assert ((kept.mean(dim=0) - 0.5).abs() < 0.015).all()
    assert ((torch.corrcoef(kept.T) - torch.eye(4)).abs() < 0.03).all()


def test_a_seed_repeats_it() -> None:
    x, dropout = torch.ones(7, 13), Dropout(0.4)
    first, second = (dropout(x) for _ in [torch.manual_seed(3)] * 2)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)


@pytest.mark.parametrize("p", [0.0, 1.0, 1e-9])
def test_nothing_or_everything(p: float) -> None:
    x = torch.randn(5, 3)
    torch.testing.assert_close(Dropout(p)(x), x if p < 1 else torch.zeros_like(x))


def test_dtypes_empty_tensors_and_evaluation() -> None:
    dropout = Dropout(0.5)
    for dtype in (torch.bfloat16, torch.float64):
        assert dropout(torch.ones(3, 5, dtype=dtype)).dtype == dtype
    assert dropout(torch.ones(0, 5)).shape == (0, 5)
    x = torch.randn(3)
    assert dropout.eval()(x) is x


def test_a_transform_gets_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: (called.append(1), x)[1])
    torch.vmap(Dropout(0.5), randomness="different")(torch.ones(3, 5))
    assert called == [1]
    Dropout(0.5)(torch.ones(3, 5))
    assert called == [1]
