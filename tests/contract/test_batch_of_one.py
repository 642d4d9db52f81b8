"""A batch of 1 broadcasts: queries, keys, values and masks of one row are used for every row of the others."""

import itertools

import pytest
import torch
from cases import ALIGNED, ATTEND_CASES, B, L, S, attend_inputs, make

import foci
from foci import masks

VALID = masks.lengths([4, 0, S], S)


def rows(tensor, count):
    return tensor[:1] if count == 1 else tensor


def expanded(tensor):
    return None if tensor is None else tensor.expand(B, *tensor.shape[1:]).contiguous()


MASKS = {
    "none": None,
    "keys": masks.keys(VALID),
    "keys of one row": masks.keys(VALID)[:1],
    "per query": masks.keys(VALID) & (torch.rand(B, L, S, generator=torch.Generator().manual_seed(2)) > 0.3),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("queries", "keys", "values"), [(1, B, B), (B, 1, 1), (1, 1, B)])
@pytest.mark.parametrize("name", ATTEND_CASES)
def test_equals_the_repeated_row(name, queries, keys, values, mask):
    module, (query, key, value), mask = make(name), attend_inputs(name), MASKS[mask]
    query, key, value = rows(query, queries), rows(key, keys), rows(value, values)
    one = module(query, key, value, mask)
    all_rows = module(*(expanded(tensor) for tensor in (query, key, value)), expanded(mask))
    torch.testing.assert_close(one.output, all_rows.output)
    torch.testing.assert_close(one.weights.dense(), all_rows.weights.dense())
    assert one.weights.shape == all_rows.weights.shape
    torch.testing.assert_close(one.weights.entropy(), all_rows.weights.entropy())
    torch.testing.assert_close(one.weights.topk(2)[0], all_rows.weights.topk(2)[0])


@pytest.mark.parametrize("name", [name for name in ATTEND_CASES if name not in ALIGNED])
def test_step_by_step_over_a_source_of_one_row(name):
    module, (query, key, value) = make(name), attend_inputs(name)
    whole = module(query, key[:1], value[:1], MASKS["keys"])
    memory, state, outputs = module.prepare(key[:1], value[:1], MASKS["keys"]), None, []
    for t in range(L):
        output, _, state = module.read(query[:, t : t + 1], memory, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole.output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("keep_weights", [False, True])
def test_grouped_heads(key_heads, keep_weights, masked):
    torch.manual_seed(3)
    module = foci.build("multi_head", model_dim=8, num_heads=4, num_key_heads=key_heads, keep_weights=keep_weights)
    mask = MASKS["keys"] if masked else None
    for queries, sources in itertools.permutations((1, B)):
        query, key = torch.randn(queries, L, 8), torch.randn(sources, S, 8)
        one, all_rows = module(query, key, mask=mask), module(expanded(query), expanded(key), mask=mask)
        torch.testing.assert_close(one.output, all_rows.output)
        torch.testing.assert_close(one.weights.dense(), all_rows.weights.dense())
        torch.testing.assert_close(one.weights.heads(3).dense(), all_rows.weights.dense()[:, 3])
