"""Weights of `scaled_dot_product_attention`, with all of its arguments."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded import Caller, D, L, Layers, S, close, randn
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as early_bound

from foci.recording import record
from foci.recording.torch_calls import Copies, of_dot_products

CHANCE = torch.Generator().manual_seed(3)
BOOL = torch.rand(L, S, generator=CHANCE) > 0.4
BOOL[1] = False  # a query that may read nothing
FLOAT = torch.where(BOOL, 0.3, -torch.inf).double()
SDPA_CALLS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 11, L, D), (2, 11, S, D), {}),
    "two axes": ((L, D), (S, D), {}),
    "three axes": ((2, L, D), (2, S, D), {}),
    "five axes": ((2, 3, 11, L, D), (2, 3, 11, S, D), {}),
    "scale": ((2, 11, L, D), (2, 11, S, D), {"scale": 0.7}),
    "boolean mask": ((2, 11, L, D), (2, 11, S, D), {"attn_mask": BOOL}),
    "boolean mask by head": (
        (2, 11, L, D),
        (2, 11, S, D),
        {"attn_mask": BOOL & (torch.rand(11, L, S, generator=CHANCE) > 0.2)},
    ),
    "boolean mask of keys": (
        (2, 11, L, D),
        (2, 11, S, D),
        {"attn_mask": torch.rand(2, 1, 1, S, generator=CHANCE) > 0.3},
    ),
    "expanded mask": ((2, 11, L, D), (2, 11, S, D), {"attn_mask": BOOL[None, None].expand(2, 11, L, S)}),
    "float mask": ((2, 11, L, D), (2, 11, S, D), {"attn_mask": torch.rand(2, 1, L, S, generator=CHANCE).double()}),
    "float mask with -inf": ((2, L, D), (2, S, D), {"attn_mask": FLOAT}),
    "causal, more keys": ((2, 11, L, D), (2, 11, S, D), {"is_causal": True}),
    "causal, more queries": ((2, 11, S, D), (2, 11, L, D), {"is_causal": True}),
    "upper left": ((2, 11, L, D), (2, 11, S, D), {"attn_mask": causal_upper_left(L, S)}),
    "lower right": ((2, 11, L, D), (2, 11, S, D), {"attn_mask": causal_lower_right(L, S)}),
    "query without heads": ((2, 1, L, D), (2, 11, S, D), {}),
    "key without batch": ((2, 11, L, D), (11, S, D), {"attn_mask": BOOL}),
    "grouped": ((2, 6, L, D), (2, 3, S, D), {"enable_gqa": True, "attn_mask": BOOL}),
    "grouped, three axes": ((6, L, D), (3, S, D), {"enable_gqa": True}),
    "grouped, five axes": ((2, 5, 6, L, D), (2, 5, 3, S, D), {"enable_gqa": True}),
    "grouped, one key head": ((2, 6, L, D), (2, 1, S, D), {"enable_gqa": True}),
    "grouped, one batch of keys": ((2, 6, L, D), (1, 3, S, D), {"enable_gqa": True}),
    "grouped, one batch of queries": ((1, 6, L, D), (2, 3, S, D), {"enable_gqa": True}),
}


@pytest.mark.parametrize("name", SDPA_CALLS)
def test_weights_of_scaled_dot_product_attention(name):
    query_shape, key_shape, options = SDPA_CALLS[name]
    query, key = randn(*query_shape), randn(*key_shape)
    # The value is the identity: torch's own output is the weights.
    value = torch.eye(key.shape[-2], dtype=torch.float64).expand(*key.shape[:-1], -1)
    model = Caller()
    want = model(query, key, value, **options)
    with record(model) as tape:
        got = model(query, key, value, **options)
    assert torch.equal(got, want)
    assert list(tape) == ["."]
    assert tape["."].shape == want.shape
    assert close(tape["."].dense(), want)
    assert close(tape["."].rows([2, 0]), want[..., [2, 0], :])
    if want.dim() == 4:
        assert close(tape["."].heads(1 % want.shape[1]).dense(), want[:, 1 % want.shape[1]])
        assert close(tape["."].mean_heads().dense(), want.mean(1))


def test_positional_arguments_and_an_early_bound_name():
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return early_bound(x, x, torch.eye(S, dtype=x.dtype), None, 0.0, True)

    model, x = Model(), randn(2, S, D)
    with record(model) as tape:
        output = model(x)
    assert close(tape["."].dense(), output)


def test_dropout_shows_the_weights_before_it_and_draws_the_same_numbers():
    model, x = Caller(), randn(2, S, D)
    torch.manual_seed(1)
    want = model(x, x, x, dropout_p=0.5)
    torch.manual_seed(1)
    with record(model) as tape:
        got = model(x, x, x, dropout_p=0.5)
    assert torch.equal(got, want)
    assert close(tape["."].dense(), torch.softmax(x @ x.mT / D**0.5, -1))


def test_handle_stays_right_when_buffers_are_written_to():
    model, query, key, mask = Caller(), randn(2, L, D), randn(2, S, D), BOOL.clone()
    want = torch.softmax((query @ key.mT / D**0.5).masked_fill(~mask, -torch.inf), -1).nan_to_num()
    with record(model) as tape:
        model(query, key, key, mask)
        mask.fill_(True)
        model(query, key, key, mask)
        query.zero_(), key.zero_()
    assert close(tape["."].dense(), want)
    assert close(tape[".#1"].rows(1).sum(-1), torch.ones(2))


def test_a_mask_written_to_between_two_layers():
    class Model(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            for row in range(S):
                mask[row:, row] = True  # the layer may read one cell more
                F.scaled_dot_product_attention(x, x, x, mask)
            return x

    model = Model()
    with record(model) as tape:
        model(randn(2, S, D), torch.zeros(S, S, dtype=torch.bool))
    assert [int((weights.dense()[0, -1] > 0).sum()) for weights in tape.values()] == list(range(1, S + 1))


def test_a_parameter_as_query_without_gradients_is_copied():
    model, query, key = Caller(), nn.Parameter(randn(2, L, D)), randn(2, S, D)
    want = torch.softmax(query @ key.mT / D**0.5, -1).detach()
    with torch.no_grad(), record(model) as tape:
        model(query, key, key)
        query.zero_()
    assert close(tape["."].dense(), want)


def test_layers_share_one_copy_of_their_mask():
    model, x, mask = Layers(), torch.randn(2, S, 5), torch.ones(1, 1, S, dtype=torch.bool).expand(2, S, S)
    with record(model) as tape:
        model(x, mask)
    copies = [weights.source.mask for weights in tape.values()]
    assert {mask.data_ptr() for mask in copies} == {copies[0].data_ptr()}
    assert copies[0].shape == (1, 1, S)


def test_masks_are_let_go_when_the_call_is_over():
    model, mask = Layers(), torch.ones(S, S, dtype=torch.bool)
    alive = weakref.ref(mask)
    with record(model):
        model(torch.randn(2, S, 5), mask)
        del mask
        assert alive() is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_padded(layout):
    rows = [randn(3, 2, D), randn(5, 2, D)]
    model, nested = Caller(), torch.nested.nested_tensor(rows, layout=layout).transpose(1, 2)
    nested = nested.contiguous() if layout == torch.strided else nested
    want = model(nested, nested, nested)
    with record(model) as tape:
        model(nested, nested, nested)
    # No kernel for processors takes nested tensors with is_causal, so that is read without a call.
    causal = of_dot_products(Copies(), nested, nested, nested, is_causal=True).dense()
    weights = tape["."].dense()
    assert weights.shape == causal.shape == (2, 2, 5, 5)
    for row, length, output in zip(range(2), (3, 5), want.unbind()):
        assert close(weights[row, :, :length, :length] @ rows[row].transpose(0, 1), output)
        alone = rows[row].transpose(0, 1)
        eye = torch.eye(length, dtype=torch.float64).expand(2, -1, -1)
        assert close(causal[row, :, :length, :length], model(alone, alone, eye, is_causal=True))
        for padded in (weights, causal):
            assert not padded[row, :, length:].any()
            assert not padded[row, :, :, length:].any()


def test_autocast_gives_the_dtype_the_kernel_saw():
    model, query, key = Caller(), torch.randn(2, L, D), torch.randn(2, S, D).bfloat16()
    with torch.autocast("cpu", torch.bfloat16), record(model) as tape:
        model(query, key, key)
    weights = tape["."].dense()
    assert weights.dtype == torch.bfloat16
    assert torch.allclose(weights.float(), torch.softmax(query @ key.float().mT / D**0.5, -1), atol=0.02)


def test_inference_mode():
    model, x = Layers(), torch.randn(2, S, 5)
    with torch.inference_mode(), record(model) as tape:
        model(x, torch.ones(S, S, dtype=torch.bool).tril())
    assert torch.equal(tape["calls.1"].dense().triu(1), torch.zeros(2, S, S))
    assert tape["calls.1"].entropy().shape == (2, S)
