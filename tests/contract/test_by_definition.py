"""Every row that reads keys and values, and every variant, on each of its paths, against its definition."""

import pytest
import torch
from cases import ATTEND_CASES, B, L, S, attend_inputs, make
from definitions import by_definition

from foci import masks
from foci.functional import attend

LONG, SHORT = 0, 1 << 20


def per_query():
    """At random; but the first query may not read the last cells, which others may."""
    mask = torch.rand(B, L, S, generator=torch.Generator().manual_seed(3)) > 0.4
    mask[:, 0, 4:] = False
    mask[:, 1, 6] = True
    return mask


MASKS = {
    "none": lambda: None,
    "keys": lambda: masks.keys(masks.lengths([4, 0, S], S)),
    "holes": lambda: masks.keys(torch.rand(B, S, generator=torch.Generator().manual_seed(2)) > 0.4),
    "per query": per_query,
}


@pytest.mark.parametrize("path", ["fused", "short"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ATTEND_CASES)
def test_output_and_weights_by_definition(name, kind, path, monkeypatch):
    for limit in ("_SHORT", "_SHORT_ALONE"):
        monkeypatch.setattr(attend, limit, LONG if path == "fused" else SHORT)
    module, inputs, mask = make(name, torch.float64), attend_inputs(name, dtype=torch.float64), MASKS[kind]()
    with torch.no_grad():
        output, weights = by_definition(name, module, *inputs, mask)
    with torch.set_grad_enabled(path == "short"):  # short sequences leave the fused kernel in training only
        read = module(*(t.requires_grad_(path == "short") for t in inputs), mask)
    torch.testing.assert_close(read.weights.dense(), weights, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(read.output, output, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("path", ["fused", "short"])
@pytest.mark.parametrize("name", [name for name in ATTEND_CASES if name.startswith("multi_head")])
def test_masks_of_each_head(name, path, monkeypatch):
    """One query may read nothing with its first head, another nothing with any."""
    for limit in ("_SHORT", "_SHORT_ALONE"):
        monkeypatch.setattr(attend, limit, LONG if path == "fused" else SHORT)
    module, inputs = make(name, torch.float64), attend_inputs(name, dtype=torch.float64)
    mask = torch.rand(B, module.num_heads, L, S, generator=torch.Generator().manual_seed(5)) > 0.3
    mask[0, 0, 1] = mask[1, :, 2] = False
    with torch.no_grad():
        output, weights = by_definition(name, module, *inputs, mask)
    assert not (output[0, 1] == 0).any()
    with torch.set_grad_enabled(path == "short"):
        read = module(*(t.requires_grad_(path == "short") for t in inputs), mask)
    torch.testing.assert_close(read.weights.dense(), weights, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(read.output, output, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", ATTEND_CASES)
def test_in_single_precision(name):
    """The compiled kernels, some of which support float32 only."""
    module, inputs, mask = make(name), attend_inputs(name), MASKS["keys"]()
    with torch.no_grad():
        output, weights = by_definition(name, make(name, torch.float64), *(t.double() for t in inputs), mask)
        read = module(*inputs, mask)
    torch.testing.assert_close(read.weights.dense().double(), weights, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(read.output.double(), output, atol=1e-4, rtol=1e-4)
