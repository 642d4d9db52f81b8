"""Each change of `foci.edit` against plain loops over the rows of its weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foci.errors import ConfigError, ShapeError
from foci.recording import changes
from foci.recording.changes import Attended
from foci.weights import Weights

B, H, L, S = 2, 3, 5, 7


def scores() -> Tensor:
    return torch.randn(B, H, L, S, dtype=torch.float64)


def opened() -> Tensor:
    """Some positions masked, in one row all."""
    mask = torch.rand(B, 1, L, S) > 0.3
    mask[0, 0, 2] = False
    mask[0, 0, 3] = False
    mask[0, 0, 3, 4] = True  # a row with one position
    return mask


def softmax(given: Tensor, mask: Tensor) -> Tensor:
    return torch.nan_to_num(given.masked_fill(~mask, -torch.inf).softmax(dim=-1))


def call_of(weights: Tensor, mask: Tensor | None = None, limit=None) -> Attended:
    return Attended("attention", weights.shape, weights.device, lambda: weights, lambda: mask, limit)


def after(call: Attended, *changed: changes.Change) -> Tensor:
    for change in changed:
        change(call)
    return call.weights


def test_a_head_that_is_knocked_out_reads_nothing():
    weights = softmax(scores(), opened())
    got = after(call_of(weights), changes.knock_out([0, -1]))
    assert not got[:, [0, 2]].any()
    assert torch.equal(got[:, 1], weights[:, 1])


@pytest.mark.parametrize("exact", [True, False])
def test_a_blocked_edge_is_a_masked_position(exact):
    given, mask = scores(), opened()
    call = call_of(softmax(given, mask), mask, (lambda open: softmax(given, mask & open)) if exact else None)
    got = after(call, changes.block([1, 3], slice(2, 6), 1), changes.block(None, -1, None))
    closed = torch.zeros(B, H, L, S, dtype=torch.bool)
    closed[:, 1, [1, 3], 2:6] = True
    closed[..., 6] = True
    assert torch.allclose(got, softmax(given, mask & ~closed), atol=1e-15)
    assert not got[0, 1, 3].any()  # nothing is left
    assert not (call.open & closed).any()


def test_the_share_of_a_sink_stays_when_an_edge_is_blocked():
    given = scores()
    sink = torch.randn(H, dtype=torch.float64)[:, None, None].expand(B, H, L, 1)
    weights = torch.cat([given, sink], dim=-1).softmax(dim=-1)[..., :-1]
    got = after(call_of(weights), changes.block(2, 4, None))
    given[..., 2, 4] = -torch.inf
    assert torch.allclose(got, torch.cat([given, sink], dim=-1).softmax(dim=-1)[..., :-1], atol=1e-15)


def test_keys_may_be_another_selection_in_each_entry():
    given, chosen = scores(), torch.rand(B, S) > 0.5
    got = after(call_of(given.softmax(-1)), changes.block(None, chosen, None))
    assert torch.allclose(got, softmax(given, ~chosen[:, None, None]), atol=1e-15)


def test_uniform_is_over_what_may_be_read():
    mask = opened()
    weights = softmax(scores(), mask)
    got = after(call_of(weights, mask), changes.uniform(1))
    for b in range(B):
        for i in range(L):
            count = int(mask[b, 0, i].sum())
            want = [1 / count if bool(open) else 0.0 for open in mask[b, 0, i]]
            assert got[b, 1, i].tolist() == want
    assert torch.equal(got[:, [0, 2]], weights[:, [0, 2]])


def test_a_permutation_stays_among_what_may_be_read_and_comes_again():
    mask = opened()
    weights = softmax(scores(), mask)
    got = after(call_of(weights, mask), changes.permute(5, None, None))
    assert torch.equal(got.sort(dim=-1).values, weights.sort(dim=-1).values)
    assert not got.masked_select(~mask.expand(got.shape)).any()
    assert not torch.equal(got, weights)
    assert torch.equal(got, after(call_of(weights, mask), changes.permute(5, None, None)))
    assert not torch.equal(got, after(call_of(weights, mask), changes.permute(6, None, None)))


def test_an_order_says_where_each_weight_comes_from():
    weights = scores().softmax(-1)
    order = torch.tensor([1, 0, 2, 3, 6, 5, 4])
    assert torch.equal(after(call_of(weights), changes.permute(0, order, None)), weights[..., order])
    with pytest.raises(ShapeError, match=r"order has shape \(2,\)"):
        after(call_of(weights), changes.permute(0, torch.tensor([1, 0]), None))
    mask = torch.ones(1, 1, L, S, dtype=torch.bool)
    mask[..., 1] = False
    with pytest.raises(ConfigError, match="moves weight to masked positions"):
        after(call_of(softmax(scores(), mask), mask), changes.permute(0, order, None))


def test_weights_are_given_as_tensor_handle_or_function():
    weights, new = scores().softmax(-1), torch.rand(L, S, dtype=torch.float64)
    assert torch.equal(after(call_of(weights), changes.given(new, None)), new.expand(B, H, L, S))
    assert torch.equal(after(call_of(weights), changes.given(Weights.from_tensor(new), None))[0, 0], new)
    got = after(call_of(weights), changes.given(lambda there: there.flip(-1), 2))
    assert torch.equal(got, torch.cat([weights[:, :2], weights[:, 2:].flip(-1)], dim=1))
    with pytest.raises(ShapeError, match=r"shape \(3, 7\), expected \(2, 3, 5, 7\)"):
        after(call_of(weights), changes.given(new[:3], None))
    with pytest.raises(ConfigError, match="are given to masked positions"):
        after(call_of(weights, opened()), changes.given(new, None))
    with pytest.raises(ConfigError, match="a list, expected a tensor"):
        after(call_of(weights), changes.given(lambda there: [], None))


def test_values_are_zeroed_with_the_same_weights():
    weights = scores().softmax(-1)
    call = call_of(weights)
    got = after(call, changes.zero_values([0, 2], 1), changes.zero_values(-1, None))
    assert torch.equal(got, weights)
    value = torch.randn(B, H, S, 11, dtype=torch.float64)
    want = value.clone()
    want[:, 1, [0, 2]] = 0.0
    want[:, :, -1] = 0.0
    assert torch.allclose(got * call.kept @ value, weights @ want)


def test_changes_are_applied_in_order():
    given = scores()
    block, uniform = changes.block(None, [0, 1], None), changes.uniform(None)
    first = after(call_of(given.softmax(-1)), block, uniform)
    assert torch.equal(first[..., 2:], torch.full((B, H, L, S - 2), 1 / (S - 2), dtype=torch.float64))
    call = call_of(given.softmax(-1), None, lambda open: softmax(given, open))
    assert torch.allclose(after(call, uniform, block), first)
    doubled = after(call_of(given.softmax(-1)), changes.scale(2.0, None), changes.scale(0.5, 0))
    assert torch.allclose(doubled.sum(-1), torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64)[:, None])


def test_what_changes_nothing_is_known():
    weights = scores().softmax(-1)
    same = [changes.scale(1.0, None), changes.permute(0, torch.arange(S), None), changes.given(weights, None)]
    call = call_of(weights)
    after(call, *same)
    assert not call.is_changed
    changes.scale(2.0, 1)(call)
    assert call.is_changed


@pytest.mark.parametrize("head", [3, -4, [0, 3]])
def test_a_head_out_of_range_is_an_error(head):
    with pytest.raises(ShapeError, match="expected 0 to 2"):
        after(call_of(scores()), changes.knock_out(head))
    with pytest.raises(ShapeError, match="Leave head out"):
        after(call_of(scores()[:, 0]), changes.knock_out(0))


@pytest.mark.parametrize("head", ["a", 1.0, [0, "b"]])
def test_a_head_that_is_no_number_is_an_error(head):
    with pytest.raises(ConfigError, match=r"expected a number or several: head=2, head=\[0, 2\]"):
        after(call_of(scores()), changes.knock_out(head))


def test_weights_and_factors_of_another_kind_are_errors():
    with pytest.raises(ConfigError, match=r"weights is of type list, expected a tensor.*torch\.tensor"):
        changes.given([1.0, 2.0], None)
    with pytest.raises(ConfigError, match="factor is 'x', expected a number"):
        changes.scale("x", None)


def test_an_order_may_be_a_list():
    given, order = scores(), [3, 1, 0, 2, 6, 5, 4]
    found = after(call_of(given), changes.permute(0, order, None))
    assert torch.equal(found, after(call_of(given), changes.permute(0, torch.tensor(order), None)))


def test_a_selection_of_another_size_is_an_error():
    with pytest.raises(ShapeError, match=r"keys have shape \(5,\)"):
        after(call_of(scores()), changes.block(None, torch.ones(5, dtype=torch.bool), None))
