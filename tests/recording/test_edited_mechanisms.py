"""Edits of all that foci's mechanisms record; of gates and of pairs by their equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import EVERY_CASE, any_inputs, make, tensors
from torch import Tensor, nn

import foci
from foci.errors import ConfigError, ShapeError
from foci.recording import Edits, edit, record

B, C, H, W = 2, 5, 3, 7
ONLY_RECORDED = {("hierarchical", "."): "nothing is read with these weights themselves. Edit word_pool, sentence_pool"}
"""What is on a tape and cannot be edited, with the reason."""


@pytest.mark.parametrize("case", EVERY_CASE)
def test_everything_that_is_recorded_is_edited(case):
    """Whatever a row of the catalog puts on the tape can be knocked out by its path there, and is 0 then."""
    module, inputs = make(case, torch.float64), any_inputs(case, dtype=torch.float64)
    with record(module, detach=True) as tape:
        want = tensors(module(*inputs))
    for path in tape.paths:
        reason = ONLY_RECORDED.get((case.partition("/")[0], path))
        if reason is not None:
            with pytest.raises(ConfigError, match=reason):
                knocked_out(module, path, *inputs)
            continue
        with edit(module) as e:
            e.scale(path, None, 1.0)
            assert all(torch.equal(got, one) for got, one in zip(tensors(module(*inputs)), want, strict=True))
        got, zero = knocked_out(module, path, *inputs)
        assert tape[path].dense().any()
        assert not zero.any()
        assert not all(torch.equal(one, other) for one, other in zip(tensors(got), want, strict=True))
    assert all(torch.equal(got, one) for got, one in zip(tensors(module(*inputs)), want, strict=True))


def knocked_out(module: nn.Module, path: str, *inputs: Tensor) -> tuple[Any, Tensor]:
    """Return what the module returns without this attention, and the weights on the tape."""
    with edit(module) as e, record(module) as tape:
        e.knock_out(path)
        got = module(*inputs)
    return got, tape[path].dense()


# --- gates


def gate(name: str) -> tuple[nn.Module, Tensor]:
    return make(name, torch.float64), torch.randn(B, C if name == "spatial" else 7, H, W, dtype=torch.float64)


def after(module: nn.Module, features: Tensor, change: Any) -> foci.AttentionOutput:
    with edit(module) as e:
        change(e)
        return module(features)


@pytest.mark.parametrize("name", ["squeeze_excitation", "efficient_channel"])
def test_gates_of_channels(name):
    module, features = gate(name)
    gates = module(features).weights.dense()

    def check(change: Any, want: Tensor) -> None:
        got = after(module, features, change)
        assert torch.equal(got.weights.dense(), want.expand(gates.shape))
        assert torch.equal(got.output, features * want)

    closed, second = gates.clone(), torch.arange(7).view(-1, 1, 1) == 1
    closed[:, [1, 3]] = 0.0
    check(lambda e: e.knock_out("", [1, 3]), closed)
    check(lambda e: e.block("", head=[1, -4]), closed)  # the others do not take its share
    check(lambda e: e.uniform(""), gates.mean(dim=1, keepdim=True))
    check(lambda e: e.uniform("", 1), torch.where(second, gates.mean(dim=1, keepdim=True), gates))
    check(lambda e: e.scale("", 1, 3.0), torch.where(second, 3.0 * gates, gates))
    order = [1, 2, 3, 4, 5, 6, 0]
    check(lambda e: e.permute("", order=order), gates[:, order])
    given = torch.rand(7, 1, 1, dtype=torch.float64)
    check(lambda e: e.weights("", given), given)
    check(lambda e: e.weights("", lambda weights: weights.square()), gates.square())
    shuffled = after(module, features, lambda e: e.permute("", 3)).weights.dense()
    assert torch.equal(shuffled.sort(dim=1).values, gates.sort(dim=1).values)
    assert not torch.equal(shuffled, gates)
    zeroed = after(module, features, lambda e: e.zero_values("", None, head=1))
    assert torch.equal(zeroed.weights.dense(), gates)
    assert torch.equal(zeroed.output, features.masked_fill(second, 0.0) * gates)


def test_gates_of_places():
    module, features = gate("spatial")
    gates = module(features).weights.dense()
    place = torch.zeros(H, W, dtype=torch.bool)
    place[2, [1, 4]] = True
    got = after(module, features, lambda e: e.block("", 2, [1, 4]))
    assert torch.equal(got.output, features * gates.masked_fill(place, 0.0))
    got = after(module, features, lambda e: e.uniform(""))
    assert torch.allclose(got.output, features * gates.mean(dim=(2, 3), keepdim=True), atol=1e-15)
    turned = torch.arange(H * W).flip(0)
    got = after(module, features, lambda e: e.permute("", order=turned))
    assert torch.equal(got.output, features * gates.flip(2, 3))
    got = after(module, features, lambda e: e.zero_values("", 6))
    assert torch.equal(got.output[..., :6], (features * gates)[..., :6])
    assert not got.output[..., 6].any()
    with pytest.raises(ShapeError, match="head is 1 for '.', expected 0 to 0"):
        after(module, features, lambda e: e.knock_out("", 1))
    with pytest.raises(ConfigError, match="no call had key 7, expected 0 to 6"):
        after(module, features, lambda e: e.block("", keys=7))


def test_the_maps_of_cbam_and_their_product():
    """The map of places sees what the channels leave; the product is of both, and is edited after them."""
    module, features = gate("cbam")
    whole = module(features)
    closed = module.channel(features).weights.dense().clone()
    closed[:, 4] = 0.0
    want = module.spatial(features * closed)
    got = after(module, features, lambda e: e.knock_out("channel", 4))
    assert torch.allclose(got.output, want.output, atol=1e-15)
    assert torch.allclose(got.weights.dense(), closed * want.weights.dense(), atol=1e-15)
    one = torch.ones(7, H, W, dtype=torch.float64)
    one[4, 1, 2] = 0.0
    got = after(module, features, lambda e: e.block("", 1, 2, head=4))
    assert torch.allclose(got.output, whole.output * one, atol=1e-15)


def test_gradients_flow_through_edited_gates():
    module, features = gate("squeeze_excitation")

    def read(features: Tensor) -> Tensor:
        with edit(module) as e:
            e.uniform("", 2)
            e.scale("", 3, 0.5)
            return module(features).output

    assert torch.autograd.gradcheck(read, features[:1, :, :1, :2].clone().requires_grad_())


def test_a_block_that_fails_leaves_the_gate_as_it_was():
    module, features = gate("efficient_channel")
    want = module(features).output

    def fail() -> None:
        with edit(module) as e:
            e.knock_out("")
            assert not module(features).output.any()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(module(features).output, want)


# --- pairs


def test_each_weight_of_attention_over_attention():
    match = foci.build("attention_over_attention")
    left, right = torch.randn(B, 7, 5, dtype=torch.float64), torch.randn(B, 3, 5, dtype=torch.float64)
    scores = right @ left.mT
    forward, reverse = scores.softmax(dim=-1), scores.mT.softmax(dim=-1)

    def check(change: Any, forward: Tensor, reverse: Tensor, of_right: Any = None, of_left: Any = None) -> None:
        with edit(match) as e:
            change(e)
            got = match(left, right)
        of_right = reverse.mean(dim=1) if of_right is None else of_right
        of_left = (of_right.unsqueeze(1) @ forward).squeeze(1) if of_left is None else of_left
        wants = (forward, of_left, of_right, reverse)
        for weights, want in zip((got.weights, got.left, got.right, got.reverse), wants):
            assert torch.allclose(weights.dense(), want, atol=1e-12)
        assert torch.allclose(got.output, torch.einsum("bs,bsd->bd", of_left, left), atol=1e-12)

    closed = scores.mT.clone()
    closed[:, 2, 1] = -torch.inf
    check(lambda e: e.block(":reverse", 2, 1), forward, closed.softmax(dim=-1))
    unread = reverse.mean(dim=1) * torch.tensor([1.0, 0.0, 1.0])
    check(lambda e: e.zero_values(":reverse", 1), forward, reverse, unread)
    third = torch.full((B, 3), 1 / 3, dtype=torch.float64)
    check(lambda e: e.uniform(":right"), forward, reverse, third)
    check(lambda e: e.weights(":right", third), forward, reverse, third)
    seventh = torch.full((B, 7), 1 / 7, dtype=torch.float64)
    check(lambda e: e.uniform(":left"), forward, reverse, None, seventh)
    check(lambda e: e.uniform("."), torch.full_like(forward, 1 / 7), reverse)


def test_edits_of_blocks_in_blocks_come_one_after_the_other():
    module, features = gate("squeeze_excitation")
    gates = module(features).weights.dense()

    def halve(e: Edits) -> None:
        e.scale("", 1, 0.5)

    with edit(module) as outer, edit(module) as inner:
        halve(inner)
        outer.uniform("")
        got = module(features).weights.dense()
    mean = gates.mean(dim=1)
    assert torch.allclose(got[:, 1], mean / 2)
    assert torch.allclose(got[:, 0], mean)
