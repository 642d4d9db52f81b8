"""The contents of padding have no effect on outputs, weights and gradients; nor has a bias of minus infinity."""

import pytest
import torch
from cases import B, L, R, S, attend_inputs, cases, make, names, pair_inputs, pool_input

import foci
from foci import masks
from foci.functional.attend import NORMALIZERS
from foci.functional.scores import dot

ATTEND, POOL, PAIR = cases("attend"), cases("pool"), names("pair")
LENGTHS = [4, 0, S]
VALID = masks.lengths(LENGTHS, S)
PADDING = {
    "large": 1e30,
    "near the end of float32": -3e38,
    "infinity": torch.inf,
    "NaN": torch.nan,
}


def mask_of(kind):
    mask = masks.keys(VALID)
    if kind == "per query":
        torch.manual_seed(29)
        mask = mask & (torch.rand(B, L, S) > 0.3)
    return mask


def gradients(module, inputs, read):
    """The result and the gradients of every input and parameter for a loss over outputs and weights."""
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    module.zero_grad()
    result = read(*inputs)
    weights = result.weights.dense()
    (result.output.square().sum() + weights.square().sum()).backward()
    found = [tensor.grad for tensor in (*inputs, *module.parameters())]
    return [result.output, weights, *(one for one in found if one is not None)]


def assert_same(module, clean, filled, read, skip=()):
    for before, after in zip(gradients(module, clean, read), gradients(module, filled, read)):
        assert after.isfinite().all()
        torch.testing.assert_close(before, after)


@pytest.mark.parametrize("kind", ["keys", "per query"])
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", ATTEND)
def test_attend(name, padding, kind):
    module, (query, key, value), mask = make(name), attend_inputs(name), mask_of(kind)
    hidden = ~mask.any(dim=1).unsqueeze(-1)
    filled = [query, *(one.masked_fill(hidden, PADDING[padding]) for one in (key, value))]
    assert_same(module, [query, key, value], filled, lambda q, k, v: module(q, k, v, mask))


@pytest.mark.parametrize("name", ATTEND)
def test_attend_queries_that_read_nothing_may_be_large(name):
    module, (query, key, value), mask = make(name), attend_inputs(name), mask_of("per query")
    mask[0, 2] = False
    filled = [query.masked_fill(~mask.any(dim=-1).unsqueeze(-1), 1e30), key, value]
    result = gradients(module, filled, lambda q, k, v: module(q, k, v, mask))
    assert all(one.isfinite().all() for one in result)
    assert (result[0][0, 2] == 0).all()


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", POOL)
def test_pool(name, padding):
    module, value = make(name), pool_input(name)
    filled = value.masked_fill(~VALID.unsqueeze(-1), PADDING[padding])
    assert_same(module, [value], [filled], lambda value: module(value, VALID))


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", PAIR)
def test_pair(name, padding):
    module, (left, right) = make(name), pair_inputs(name)
    right_valid = masks.lengths([R, 5, 0], R)
    filled = [
        left.masked_fill(~VALID.unsqueeze(-1), PADDING[padding]),
        right.masked_fill(~right_valid.unsqueeze(-1), PADDING[padding]),
    ]
    assert_same(module, [left, right], filled, lambda left, right: module(left, right, VALID, right_valid))


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_the_function_attend(normalize, padding, heads):
    torch.manual_seed(3)
    leading = (B,) if heads is None else (B, heads)
    inputs = [torch.randn(*leading, size, 5) for size in (L, S, S)]
    mask = masks.keys(VALID)
    hidden = ~(VALID if heads is None else VALID.unsqueeze(1)).unsqueeze(-1)
    results = []
    for fill in (0.0, PADDING[padding]):
        query, key, value = (one.clone().requires_grad_() for one in inputs)
        torch.manual_seed(5)  # the same samples
        read = foci.attend(
            query, key.masked_fill(hidden, fill), value.masked_fill(hidden, fill), mask, normalize=normalize
        )
        read.output.square().sum().backward()
        results.append([read.output, read.weights.dense(), *(one.grad for one in (query, key, value))])
    for before, after in zip(*results):
        if before is not None:
            assert after.isfinite().all()
            torch.testing.assert_close(before, after)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine", dot])
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_a_bias_of_minus_infinity_is_a_mask(normalize, score, train):
    torch.manual_seed(3)
    query, key, value = (torch.randn(B, size, 5, requires_grad=train) for size in (L, S, S))
    mask, shift = mask_of("per query"), torch.randn(B, L, S)
    mask[0, 2] = False
    finite = foci.attend  # the same call with the cells closed by the mask
    results = []
    for given, bias in ((mask, shift), (None, shift.masked_fill(~mask, -torch.inf))):
        torch.manual_seed(5)
        read = finite(query, key, value, given, bias=bias, score=score, normalize=normalize)
        parts = [read.output, read.weights.dense(), read.weights.entropy()]
        if train:
            loss = sum(part.square().sum() for part in parts)
            parts += torch.autograd.grad(loss, (query, key, value), materialize_grads=True)
        results.append(parts)
    for masked, biased in zip(*results):
        assert biased.isfinite().all()
        torch.testing.assert_close(masked, biased)
    assert (results[1][1][~mask] == 0).all()


def test_mask_and_bias_close_together():
    """The mask leaves one cell, which the bias masks: nothing is read."""
    query, key = torch.randn(1, 2, 5), torch.randn(1, S, 5)
    mask = torch.zeros(1, 2, S, dtype=torch.bool)
    mask[0, :, 0] = True
    bias = torch.zeros(1, 2, S)
    bias[0, 0, 0] = -torch.inf
    for normalize in NORMALIZERS:
        read = foci.attend(query, key, key, mask, bias=bias, normalize=normalize)
        assert (read.output[0, 0] == 0).all(), normalize
        assert read.weights.dense()[0].sum(dim=-1).tolist() == [0.0, 1.0], normalize


def test_multi_head_without_cells_gives_zeros():
    module = foci.build("multi_head", model_dim=6, num_heads=2)
    torch.nn.init.ones_(module.output_layer.bias)
    query, none = torch.randn(2, L, 6), torch.randn(2, 0, 6)
    for mask in (None, torch.ones(2, 1, 0, dtype=torch.bool)):
        assert (module(query, none, mask=mask).output == 0).all()


@pytest.mark.parametrize("options", [{"window": (3, -1)}, {"window": (3, -1), "causal": True}, {"causal": True}])
def test_multi_head_windows_without_their_own_key_give_zeros(options):
    """A window may end before a query's own key: the first queries then read nothing, and get no output bias."""
    module = foci.build("multi_head", model_dim=6, num_heads=2, **options)
    torch.nn.init.ones_(module.output_layer.bias)
    for queries in (L, L + 2):
        read = module(torch.randn(1, queries, 6), torch.randn(1, L, 6))
        reads_nothing = read.weights.dense().sum(dim=(1, 3))[0] == 0
        assert reads_nothing.any() == (queries > L or "window" in options)
        assert (read.output[0, reads_nothing] == 0).all()
        assert (read.output[0, ~reads_nothing] != 0).any(dim=-1).all()
