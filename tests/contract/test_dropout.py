"""Dropout of attention weights, on every path: with the identity as value the output shows what was dropped."""

import math

import pytest
import torch
from cases import ATTEND_CASES, FREE_VALUE, L, S, attend_inputs, make, option

import foci
from foci.functional import attend
from foci.mechanisms.heads import MultiHeadAttention

ROWS = 97


def assert_dropped(dropped, weights, p):
    """Of all weights a share of p is 0 (within 5 standard deviations of a binomial), the others grow by 1 / (1 − p)."""
    readable = weights > 0
    share = (dropped[readable] == 0).double().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / readable.sum().item())
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], weights[kept] / (1 - p), atol=1e-5, rtol=1e-4)
    assert (dropped[~readable] == 0).all()


@pytest.fixture(params=["fused", "short"])
def path(request, monkeypatch):
    for limit in ("_SHORT", "_SHORT_ALONE"):
        monkeypatch.setattr(attend, limit, 0 if request.param == "fused" else 1 << 20)


@pytest.mark.parametrize("name", [name for name in ATTEND_CASES if name in FREE_VALUE and option(name, "dropout")])
def test_the_share_of_the_weights_that_is_dropped(name, path):
    module, (query, key, _) = make(name, train=True), attend_inputs(name, batch=ROWS)
    value = torch.eye(S).expand(ROWS, S, S)
    torch.manual_seed(3)
    read = module(query.requires_grad_(), key, value)  # short sequences leave the fused kernel in training only
    weights = read.weights.dense()
    # The handle has the weights before dropout, and the next step of location_aware uses those.
    torch.testing.assert_close(weights, make(name)(query, key, value).weights.dense(), atol=1e-6, rtol=1e-5)
    assert_dropped(read.output, weights, option(name, "dropout"))
    assert torch.equal(module.eval()(query, key, value).output, make(name)(query, key, value).output)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_weights": True},
        {"num_key_heads": 1},
        {"num_key_heads": 2, "keep_weights": True},
        {"normalize": "sparsemax"},
        {"score": "cosine"},
        {"causal": True},
        {"alibi": True},
        {"window": (1, 1)},
    ],
)
def test_heads(options, path):
    """Four heads whose values are the identity and whose outputs are concatenated."""
    heads, p = 4, 0.3
    module = MultiHeadAttention(heads * S, heads, value_dim=S, dropout=p, bias=False, **options).train()
    groups = module.num_key_heads
    with torch.no_grad():
        module.value_layer.weight.copy_(torch.eye(S).repeat(groups, 1))
        module.output_layer.weight.copy_(torch.eye(heads * S))
    query, key = torch.randn(ROWS, L, heads * S), torch.randn(ROWS, S, heads * S)
    read = module(query, key, torch.eye(S).expand(ROWS, S, S))
    assert_dropped(read.output.unflatten(-1, (heads, S)).transpose(1, 2), read.weights.dense(), p)


@pytest.mark.parametrize("options", [{}, {"normalize": "sigmoid"}, {"score": "dot"}, {"causal": True}])
def test_the_function(options, path):
    query, key = torch.randn(ROWS, L, 5, requires_grad=True), torch.randn(ROWS, S, 5)
    read = foci.attend(query, key, torch.eye(S).expand(ROWS, S, S), dropout=0.2, **options)
    assert_dropped(read.output, read.weights.dense(), 0.2)
