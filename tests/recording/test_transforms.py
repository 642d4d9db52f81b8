"""Recording inside of the transforms of `torch.func`: the tape has the weights that a loop over the entries records."""

from __future__ import annotations

import pytest
import torch
from recorded import Layers, close
from torch import nn
from torch.func import functional_call, grad, jvp, vmap

import foci
from foci.recording import record

N, B, L, S = 3, 2, 5, 7


def additive() -> nn.Module:
    return foci.build("additive", query_dim=3, key_dim=11, hidden_dim=13).double()


def looped(model: nn.Module, *entries: torch.Tensor) -> torch.Tensor:
    """The weights of each entry, recorded alone."""
    rows = []
    for one in zip(*entries):
        with record(model, detach=True) as tape:
            model(*one)
        rows.append(torch.stack([weights.dense() for weights in tape.values()]))
    return torch.stack(rows, dim=1)  # calls first


def test_vmap():
    attention, query, key = additive(), torch.randn(N, B, L, 3).double(), torch.randn(N, B, S, 11).double()
    with record(attention) as tape:
        output = vmap(lambda q, k: attention(q, k).output)(query, key)
    assert torch.equal(output, vmap(lambda q, k: attention(q, k).output)(query, key))
    assert repr(tape) == f"Recording of 1 attention\n  .  {(N, B, L, S)}"
    assert close(tape["."].dense(), looped(attention, query, key)[0])
    assert tape["."] is tape["."]
    assert tape["."].rows(0).shape == (N, B, S)


@pytest.mark.parametrize("name", ["multi_head", "sliding_window", "general"])
def test_vmap_of_handles_that_keep_queries_and_keys(name):
    options = {"multi_head": {"model_dim": 6, "num_heads": 2}, "sliding_window": {"window": (1, 2)}}
    attention = foci.build(name, **options.get(name, {"query_dim": 6, "key_dim": 6})).eval()
    x = torch.randn(N, B, L, 6)
    with torch.no_grad(), record(attention) as tape:
        vmap(lambda one: attention(one, one).output)(x)
    assert close(tape["."].dense(), looped(attention, x, x)[0])


def test_nested_vmap_over_different_axes_and_one_source_for_all():
    attention, query, key = additive(), torch.randn(N, B, L, 3, 2).double(), torch.randn(B, S, 11).double()
    inner = vmap(lambda q, k: attention(q, k).output, in_dims=(0, None))
    with record(attention) as tape:
        vmap(inner, in_dims=(4, None))(query, key)
    want = torch.stack([torch.stack([attention(q, key).weights.dense() for q in half]) for half in query.unbind(4)])
    assert want.shape == (2, N, B, L, S)
    assert close(tape["."].dense(), want)


def test_inside_the_weights_are_those_of_one_entry_and_part_of_the_graph():
    attention, query, key = additive(), torch.randn(N, B, L, 3).double(), torch.randn(N, B, S, 11).double()

    def penalty(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        with record(attention) as tape:
            attention(q, k)
        return tape["."].entropy().sum()

    def direct(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return attention(q, k).weights.entropy().sum()

    assert close(vmap(grad(penalty))(query, key), vmap(grad(direct))(query, key))
    assert close(vmap(penalty)(query, key), torch.stack([direct(*one) for one in zip(query, key)]))


def test_gradients_per_sample_of_a_functional_call():
    model, x = Layers().double(), torch.randn(N, S, 5).double()
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], one: torch.Tensor) -> torch.Tensor:
        return functional_call(model, values, (one.unsqueeze(0),)).square().mean()

    per_sample = vmap(grad(loss), in_dims=(None, 0))
    want = per_sample(parameters, x)
    with record(model, gradients=True) as tape:
        found = per_sample(parameters, x)
    assert all(torch.equal(found[name], want[name]) for name in want)
    assert len(tape) == 3
    assert close(torch.stack([weights.dense() for weights in tape.values()]), looped(model, x.unsqueeze(1)))
    assert tape.gradient("calls.0") is None


def test_grad_and_jvp():
    model, x = Layers().double(), torch.randn(1, S, 5).double()
    want = looped(model, x.unsqueeze(0))[:, 0]
    with record(model) as tape:
        grad(lambda one: model(one).sum())(x)
    assert close(torch.stack([weights.dense() for weights in tape.values()]), want)
    with record(model) as tape:
        jvp(model, (x,), (x,))
    assert close(torch.stack([weights.dense() for weights in tape.values()]), want)


def test_torch_modules_and_masks_under_vmap():
    model = nn.TransformerEncoderLayer(8, 2, 11, 0.0, batch_first=True).double().eval()
    x, padding = torch.randn(N, B, L, 8).double(), torch.rand(N, B, L) > 0.7
    padding[..., 0] = False
    for mode in (False, True):
        model.train(mode)
        with record(model) as tape:
            vmap(lambda one, pad: model(one, src_key_padding_mask=pad))(x, padding)
        rows = []
        for one, pad in zip(x, padding):
            with record(model) as alone:
                model(one, src_key_padding_mask=pad)
            rows.append(alone["self_attn"].dense())
        assert close(tape["self_attn"].dense(), torch.stack(rows))


def test_what_was_sampled():
    torch.manual_seed(2)
    sampled = foci.build("hard", query_dim=3, key_dim=5)
    query, key = torch.randn(N, B, L, 3), torch.randn(N, B, S, 5)
    with record(sampled) as tape:
        vmap(lambda q, k: sampled(q, k).output, randomness="different")(query, key)
    weights = tape["."]
    assert weights.dense().sum(-1).eq(1).all()
    assert weights.log_prob.shape == (N, B, L)
