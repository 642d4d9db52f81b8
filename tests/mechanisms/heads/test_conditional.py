"""Conditional attention: given places against the paper as loops and against transformers, and what the scale does."""

from types import SimpleNamespace

import pytest
import torch
from definitions import conditional
from torch import nn
from torch.autograd import gradcheck

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.mechanisms.heads import ConditionalAttention

B, L, S, D, H, K, P = 2, 5, 7, 6, 3, 11, 13


def built(dtype=torch.float64):
    torch.manual_seed(5)
    module = ConditionalAttention(D, H, key_dim=K, position_dim=P)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    inputs = (torch.randn(B, *sizes, dtype=dtype) for sizes in ((L, D), (S, K), (S, K), (L, P), (S, P)))
    return module.to(dtype), *inputs


MASKS = {
    "none": lambda: None,
    "keys": lambda: masks.keys(masks.lengths([4, 0], S)),
    "per query": lambda: torch.rand(B, L, S, generator=torch.Generator().manual_seed(2)) > 0.6,
}


@pytest.mark.parametrize("kind", MASKS)
def test_given_places_by_loops(kind):
    module, query, key, value, query_position, key_position = built()
    mask = MASKS[kind]()
    readable = torch.ones(B, L, S, dtype=torch.bool) if mask is None else mask.expand(B, L, S)
    with torch.no_grad():
        output, weights = conditional(module, query, key, value, readable, query_position, key_position)
        read = module(query, key, value, mask, query_position=query_position, key_position=key_position)
    torch.testing.assert_close(read.output, output, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(read.weights.dense(), weights, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", MASKS)
def test_gradients_with_given_places(kind):
    module, *inputs = built()
    mask = MASKS[kind]()

    def run(query, key, value, query_position, key_position, *_):
        read = module(query, key, value, mask, query_position=query_position, key_position=key_position)
        return read.output, read.weights.dense()

    assert gradcheck(run, [t.requires_grad_() for t in (*inputs, *module.parameters())], fast_mode=True)


def test_places_of_padding_may_hold_anything():
    module, query, key, value, query_position, key_position = built()
    valid = masks.lengths([4, 0], S)
    places = key_position.masked_fill(~valid.unsqueeze(-1), torch.nan).requires_grad_()
    read = module(query, key, value, masks.keys(valid), query_position=query_position, key_position=places)
    alone = module(
        query[:1], key[:1, :4], value[:1, :4], query_position=query_position[:1], key_position=places[:1, :4]
    )
    torch.testing.assert_close(read.output[:1], alone.output)
    assert (read.output[1] == 0).all()
    read.output.sum().backward()
    assert (places.grad[~valid] == 0).all()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


def test_a_place_for_all_rows_is_that_of_each():
    module, query, key, value, query_position, key_position = built()
    shared = module(query, key, value, query_position=query_position[:1], key_position=key_position[:1])
    places = {
        "query_position": query_position[:1].expand(B, -1, -1),
        "key_position": key_position[:1].expand(B, -1, -1),
    }
    torch.testing.assert_close(shared.output, module(query, key, value, **places).output)
    one_query = module(query[:1], key, value, query_position=query_position, key_position=key_position)
    places = {"query_position": query_position, "key_position": key_position}
    torch.testing.assert_close(one_query.output, module(query[:1].expand(B, -1, -1), key, value, **places).output)


def test_at_the_start_places_are_compared_as_they_are():
    """The scale is 1: what the query holds changes the product of contents only."""
    module, query, key, _, query_position, key_position = built()
    module.reset_parameters()
    nn.init.zeros_(module.query_layer.weight)
    places = {"query_position": query_position, "key_position": key_position}
    one, other = (module(given, key, **places).weights.dense() for given in (query, -query))
    torch.testing.assert_close(one, other)
    assert not torch.allclose(one, module(query, key, key_position=key_position).weights.dense())


def test_what_does_not_fit_is_named():
    module, query, key, value, _, key_position = built()
    with pytest.raises(ShapeError, match=r"key_position has shape \(2, 7, 12\), expected \(2, 7, 13\)\. A batch of 1"):
        module(query, key, value, key_position=key_position[..., 1:])
    with pytest.raises(ShapeError, match=r"query_position has shape \(3, 5, 13\), expected \(2, 5, 13\)"):
        module(query, key, value, query_position=torch.zeros(3, L, P, dtype=query.dtype))
    with pytest.raises(ShapeError, match=r"key_position has dtype torch.float32, but key has torch.float64"):
        module(query, key, value, key_position=key_position.float())
    with pytest.raises(ConfigError, match="model_dim is 7 with 3 heads, expected a multiple"):
        ConditionalAttention(7, 3)
    with pytest.raises(ConfigError, match="keeps no state"):
        module(query, key, None, None, torch.zeros(1))


def test_it_is_recorded_and_edited():
    module, query, key, value, query_position, key_position = built()
    places = {"query_position": query_position, "key_position": key_position}
    with foci.record(module) as tape:
        read = module(query, key, value, **places)
    assert torch.equal(tape["."].dense(), read.weights.dense())
    with foci.edit(module) as edits:
        edits.knock_out(".")
        output, weights, _ = module(query, key, value, **places)
    assert (weights.dense() == 0).all()
    torch.testing.assert_close(output, module.output_layer.bias.expand_as(output))


@pytest.mark.slow
def test_given_places_compile_and_export():
    module, *inputs = built(torch.float32)
    mask = MASKS["keys"]()

    class WithPlaces(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, query, key, value, query_position, key_position, mask):
            read = self.module(query, key, value, mask, query_position=query_position, key_position=key_position)
            return read.output, read.weights.dense()

    model, inputs = WithPlaces(), (*inputs, mask)
    batch, queries, keys = (torch.export.Dim(name, max=31) for name in ("batch", "queries", "keys"))
    of_query, of_key = {0: batch, 1: queries}, {0: batch, 1: keys}
    shapes = (of_query, of_key, of_key, of_query, of_key, {0: batch, 2: keys})
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), model(*inputs))
    others = [one.repeat(2, 1, 1) for one in inputs]
    others[0], others[3] = others[0][:, :3], others[3][:, :3]
    torch.testing.assert_close(program.module()(*others), model(*others))


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
def test_as_in_transformers(padded):
    modeling = pytest.importorskip("transformers.models.conditional_detr.modeling_conditional_detr")
    torch.manual_seed(3)
    config = SimpleNamespace(_attn_implementation="eager")
    theirs = modeling.ConditionalDetrDecoderCrossAttention(config, 12, 3).double().eval()
    ours = ConditionalAttention(12, 3).double()
    names = {
        "query": "q_content_proj",
        "query_position": "q_pos_sine_proj",
        "key": "k_content_proj",
        "key_position": "k_pos_proj",
        "value": "v_proj",
        "output": "o_proj",
    }
    for name, other in names.items():
        for parameter in getattr(theirs, other).parameters():
            nn.init.normal_(parameter, std=0.3)
        getattr(ours, f"{name}_layer").load_state_dict(getattr(theirs, other).state_dict())
    for parameter in ours.scale_layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    query, key, places = (torch.randn(B, size, 12).double() for size in (L, S, L))
    key_places, valid = torch.randn(B, S, 12).double(), masks.lengths([S, 4], S)
    closed = torch.zeros(B, 1, L, S).double().masked_fill(~valid.view(B, 1, 1, S), -torch.inf)
    # Their model multiplies the code by the scale before it calls the attention.
    expected, weights = theirs(
        query, key, ours.scale_layer(query) * places, key_places, attention_mask=closed if padded else None
    )
    mask = masks.keys(valid) if padded else None
    read = ours(query, key, mask=mask, query_position=places, key_position=key_places)
    torch.testing.assert_close(read.output, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(read.weights.dense(), weights, atol=1e-6, rtol=1e-6)


def test_a_bias_without_heads_is_that_of_each_head():
    module = ConditionalAttention(6, 2).eval()
    query, key, bias = torch.randn(3, 5, 6), torch.randn(3, 7, 6), torch.randn(3, 5, 7)
    given = module(query, key, bias=bias)
    torch.testing.assert_close(given.output, module(query, key, bias=bias.unsqueeze(1)).output)
    assert not torch.allclose(given.output, module(query, key).output)
