"""Which calls an edit changes, and that nothing is silent: an edit without effect says why."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import foci
from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.recording import Edits, edit


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.unused = nn.MultiheadAttention(6, 2, batch_first=True)
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.attention(x, x, x)[0])


def model() -> nn.Module:
    return nn.Sequential(Block(), Block()).eval()


def run(path: str, method: str = "knock_out", calls: int = 1, **options) -> None:
    built = model()
    with edit(built) as e:
        getattr(e, method)(path, **options)
        for _ in range(calls):
            built(torch.randn(2, 5, 6))


def uniform(built: nn.Module, path: str, *inputs: Tensor) -> None:
    with edit(built) as e:
        e.uniform(path)
        built(*inputs)


@pytest.mark.parametrize("path", ["0.attention", "*.attention", "*attention", "1.*", "*"])
def test_patterns_find_attentions(path):
    run(path)


def test_an_unknown_path_names_the_near_ones():
    with pytest.raises(UnknownNameError, match=r"Did you mean '0.attention'"):
        run("0.atention")
    with pytest.raises(UnknownNameError, match=r"'layers.\*'\. Known: 0.attention, 0.unused, 1.attention, 1.unused\."):
        run("layers.*")


def test_an_edit_that_comes_too_late_is_an_error():
    built, x = model(), torch.randn(2, 5, 6)

    def late(first: bool) -> None:
        with edit(built) as e:
            if first:
                e.scale("*", None, 2.0)
            built(x)
            e.uniform("0.attention")

    for first in (False, True):
        with pytest.raises(ConfigError, match=r"'0.attention' had no effect: it was made after the model had been"):
            late(first)
    with edit(built) as ended:
        built(x)
    with pytest.raises(ConfigError, match="uniform of '0.attention' came after the end of the block"):
        ended.uniform("0.attention")


@pytest.mark.parametrize(
    ("path", "options", "reason"),
    [
        ("0.linear", {}, r"no attention was seen in it itself. Attentions were seen in: 0.attention, 1.attention"),
        ("0", {}, r"no attention was seen in it itself"),
        ("0.unused", {}, r"it was not called in the block"),
        ("0.attention", {"calls": 0}, r"the model was not called in the block"),
        ("0.attention", {"call": 3, "calls": 2}, r"call is 3, and '0.attention' had calls 0 to 1"),
        ("0.attention", {"method": "block", "keys": [1, 5]}, r"no call had key 5, expected 0 to 4"),
        ("0.attention", {"method": "block", "queries": -6}, r"no call had query -6"),
        ("0.attention", {"method": "zero_values", "keys": 5}, r"no call had key 5"),
    ],
)
def test_an_edit_without_effect_says_why(path, options, reason):
    with pytest.raises(ConfigError, match=reason):
        run(path, **options)


def test_a_head_out_of_range_is_an_error_at_the_call():
    with pytest.raises(ShapeError, match=r"head is 2 for '0.attention', expected 0 to 1"):
        run("0.attention", head=2)


def test_positions_that_a_call_has_not_yet_are_edited_in_those_that_have_them():
    built = model()
    with edit(built) as e:
        e.block("0.attention", keys=6)
        want = built(torch.ones(1, 5, 6))
        got = built(torch.randn(1, 7, 6))
    assert torch.equal(want, built(torch.ones(1, 5, 6)))
    assert torch.isfinite(got).all()


class Own(nn.Module):
    """A module of one's own that says what it attends to, with operations that nobody sees."""

    def forward(self, x: Tensor) -> foci.AttentionOutput:
        weights = x.sigmoid()
        return foci.AttentionOutput(x * weights, foci.Weights.from_tensor(weights))


def test_what_is_only_recorded_says_so():
    with pytest.raises(ConfigError, match="cannot be edited, only recorded"):
        uniform(Own(), ".", torch.randn(2, 7, 3, 3))


def test_recurrent_states_say_so():
    class MambaMixer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.cumsum(dim=1)

    with pytest.raises(ConfigError, match="no attention weights: recurrent state"):
        uniform(nn.Sequential(MambaMixer()), "0", torch.randn(2, 5, 6))


def test_the_door_is_public():
    assert foci.edit is edit
    assert foci.Edits is Edits
    assert {"edit", "Edits"} <= {*dir(foci)}
