"""The gradient of a score with respect to recorded weights, and the map that a trace makes of it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import foci
from foci.viz.trace import Axis, Trace


class Attends(nn.Module):
    """Self-attention of H heads, fused; or with its weights as a tensor that keeps its gradient."""

    def __init__(self, heads=3, value_heads=3, dropout=0.0):
        super().__init__()
        self.heads, self.value_heads, self.dropout = heads, value_heads, dropout
        self.query = nn.Linear(12, heads * 5)
        self.key, self.value = nn.Linear(12, value_heads * 5), nn.Linear(12, value_heads * 7)
        self.last = nn.Linear(heads * 7, 1)
        self.weights = None

    def split(self, x, heads):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def forward(self, x, mask=None, by_hand=False):
        query = self.split(self.query(x), self.heads)
        key, value = (self.split(part(x), self.value_heads) for part in (self.key, self.value))
        if by_hand:
            key, value = (part.repeat_interleave(self.heads // self.value_heads, dim=1) for part in (key, value))
            scores = query @ key.transpose(-1, -2) / 5**0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            self.weights = scores.softmax(-1)
            self.weights.retain_grad()
            output = self.weights @ value
        else:
            shared = self.heads != self.value_heads
            output = F.scaled_dot_product_attention(query, key, value, mask, self.dropout, enable_gqa=shared)
        return self.last(output.transpose(1, 2).flatten(2)).tanh().sum()


@pytest.mark.parametrize("value_heads", [4, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_is_that_of_weights_written_out(value_heads, masked):
    torch.manual_seed(0)
    model, x = Attends(4, value_heads), torch.randn(2, 6, 12)
    mask = torch.ones(6, 6, dtype=torch.bool).tril() if masked else None
    with foci.record(model, gradients=True) as tape:
        score = model(x, mask)
    assert tape.gradient("") is None  # nothing has been called backward on
    score.backward()
    model(x, mask, by_hand=True).backward()
    torch.testing.assert_close(tape.gradient(""), model.weights.grad, rtol=1e-4, atol=1e-5)
    product = (model.weights * model.weights.grad)[1].clamp_min(0).mean(0)
    trace = Trace.from_tape(tape, {"text": Axis.from_tokens(list("abcdef"))}, row=1)
    (attention,) = trace.attentions.values()
    torch.testing.assert_close(torch.from_numpy(attention.extras["gradient"]), product.detach(), rtol=1e-4, atol=1e-5)


def test_results_and_gradients_of_the_model_stay_the_same():
    torch.manual_seed(0)
    model, x = Attends(), torch.randn(2, 6, 12)
    grads = []
    for options in ({}, {"gradients": True}):
        model.zero_grad()
        with foci.record(model, **options):
            model(x).backward()
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    for before, after in zip(*grads):
        assert torch.equal(before, after)


def test_there_is_no_gradient_where_it_cannot_be_known():
    model, x = Attends(dropout=0.5), torch.randn(1, 6, 12)
    with foci.record(model, gradients=True) as tape:
        model(x).backward()
    assert tape.gradient(".") is None  # dropped out
    model.dropout = 0.0
    with foci.record(model) as tape:
        model(x).backward()
    assert tape.gradient(".") is None  # not asked for
    with foci.record(model, gradients=True) as tape, torch.no_grad():
        model(x)
    assert tape.gradient(".") is None
    trace = Trace.from_tape(tape, {"text": Axis.from_tokens(list("abcdef"))})
    assert trace.attention(".").extras == {}
    with pytest.raises(foci.errors.UnknownNameError, match="unknown path 'x'"):
        tape.gradient("x")


@pytest.mark.parametrize("length", [5, 90])  # weights that are computed, and a fused call
def test_a_multi_head_attention_of_foci_has_one_too(length):
    torch.manual_seed(0)
    attention = foci.build("multi_head", model_dim=12, num_heads=3)
    x = torch.randn(2, length, 12)
    with foci.record(attention, gradients=True) as tape:
        output = attention(x, x, x).output
    (output * torch.randn(2, length, 12)).sum().backward()
    weights, gradient = tape["."].dense().detach(), tape.gradient(".")
    assert gradient.shape == (2, 3, length, length)
    # Through the softmax: a score's gradient is w (g − Σ w g), and the queries' bias has its sum times the keys.
    scores = weights * (gradient - (weights * gradient).sum(-1, keepdim=True))
    key = attention.key_layer(x).unflatten(-1, (3, 4)).transpose(1, 2)
    expected = (scores @ key * 4**-0.5).sum(dim=(0, 2)).flatten()
    torch.testing.assert_close(attention.query_layer.bias.grad, expected.detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["additive", "general", "pool"])
def test_mechanisms_that_compute_their_weights_have_one(name):
    torch.manual_seed(0)
    sizes = {"additive": {"query_dim": 6, "key_dim": 6, "hidden_dim": 7}, "general": {"query_dim": 6, "key_dim": 6}}
    attention = foci.build(name, **sizes.get(name, {"value_dim": 6, "hidden_dim": 7}))
    query, key = torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    with foci.record(attention, gradients=True) as tape:
        output = (attention(key) if name == "pool" else attention(query, key)).output
    factor = torch.randn_like(output)
    (output * factor).sum().backward()
    expected = torch.einsum("bd,bsd->bs", factor, key) if name == "pool" else factor @ key.transpose(1, 2)
    torch.testing.assert_close(tape.gradient("."), expected, rtol=1e-4, atol=1e-5)
    axes = {
        "target": Axis.from_tokens(list("abc")[: 1 if name == "pool" else 3]),
        "source": Axis.from_tokens(list("vwxyz")),
    }
    trace = Trace.from_tape(tape, axes, {".": ("target", "source")})
    assert trace.attention(".").extras["gradient"].shape == trace.attention(".").shape[1:]


@pytest.mark.parametrize(
    "options", [{"batch_first": True}, {}, {"add_bias_kv": True, "add_zero_attn": True}, {"vdim": 5}]
)
@pytest.mark.parametrize("training", [True, False])
def test_attention_of_torch_has_one_too(options, training):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(12, 3, **options).train(training)
    query, key, value = torch.randn(4, 5, 12), torch.randn(4, 5, 12), torch.randn(4, 5, options.get("vdim", 12))
    with foci.record(module, gradients=True) as tape:
        output, _ = module(query, key, value)
    factor = torch.randn_like(output)
    (output * factor).sum().backward()
    # Each weight moved by a little, the change of the score is the gradient.
    module.requires_grad_(False)
    weights = tape["."].dense().detach()
    weight = module.v_proj_weight if "vdim" in options else module.in_proj_weight[24:]
    values = value @ weight.T + module.in_proj_bias[24:]
    values, factor = (one if module.batch_first else one.transpose(0, 1) for one in (values, factor))
    if "add_bias_kv" in options:
        values = torch.cat([values, module.bias_v.expand(5, 1, 12), torch.zeros(5, 1, 12)], dim=1)
    values = values.unflatten(-1, (3, 4))

    def score(weights):
        read = torch.einsum("bhls,bshk->blhk", weights, values).flatten(2)
        return float(((read @ module.out_proj.weight.T + module.out_proj.bias) * factor).sum())

    for place in ((0, 0, 0, 0), (3, 2, 3, 1), (1, 1, 2, weights.shape[-1] - 1)):
        moved = weights.clone()
        moved[place] += 1.0
        assert float(tape.gradient(".")[place]) == pytest.approx(score(moved) - score(weights), abs=1e-3)


@pytest.mark.parametrize("length", [3, 24])
def test_one_head_of_a_large_batch_has_a_gradient_in_the_shape_of_its_weights(length):
    """From a size on a fused kernel reads, with an axis of heads; each row is as it is alone."""
    torch.manual_seed(0)
    attention, x = foci.build("multi_step", query_dim=5, key_dim=4), torch.randn(3, length, 5)
    target, key = torch.randn(3, length, 4), torch.randn(3, 20, 4)

    def read(rows):
        with foci.record(attention, gradients=True) as tape:
            attention(x[rows], key[rows], target=target[rows]).output.tanh().sum().backward()
        assert tape.gradient("").shape == tape[""].shape
        return tape.gradient("")

    torch.testing.assert_close(read(slice(None))[1:2], read(slice(1, 2)), rtol=1e-4, atol=1e-5)
