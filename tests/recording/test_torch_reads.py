"""What torch's own attention reads with edited weights, over its options, against masks and zeroed projections."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from foci.recording import edit

B, H, L, S, D = 2, 3, 5, 7, 12
OPTIONS = [{}, {"kdim": 7, "vdim": 11}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention(options, batch_first, need_weights):
    model = nn.MultiheadAttention(D, H, batch_first=batch_first, **options).double().eval()
    sizes = ((B, L, D), (B, S, options.get("kdim", D)), (B, S, options.get("vdim", D)))
    inputs = [torch.randn(size, dtype=torch.float64) for size in sizes]
    if not batch_first:
        inputs = [one.transpose(0, 1) for one in inputs]
    padding, closed = torch.zeros(B, S, dtype=torch.bool), torch.zeros(L, S, dtype=torch.bool)
    padding[0, -2:] = True
    closed[3, 2] = True
    given = {"key_padding_mask": padding, "need_weights": need_weights, "average_attn_weights": False}
    want = model(*inputs, attn_mask=closed, **given)
    with edit(model) as e:
        e.block("", 3, 2)
        got = model(*inputs, **given)
    assert torch.allclose(got[0], want[0], atol=1e-14)
    assert torch.allclose(got[1], want[1], atol=1e-14) if need_weights else got[1] is None
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.out_proj.weight[:, 8:] = 0.0
    with edit(model) as e:
        e.knock_out(".", 2)
        got = model(*inputs, **given)
    assert torch.allclose(got[0], twin(*inputs, **given)[0], atol=1e-14)


def test_an_unbatched_multi_head_attention():
    model = nn.MultiheadAttention(D, H).double()
    x, closed = torch.randn(L, D, dtype=torch.float64), torch.zeros(L, L, dtype=torch.bool)
    closed[:, 1] = True
    with edit(model) as e:
        e.block("", None, 1)
        got = model(x, x, x)
    want = model(x, x, x, attn_mask=closed)
    assert all(torch.allclose(one, other, atol=1e-14) for one, other in zip(got, want))


class Dots(nn.Module):
    def __init__(self, read=F.scaled_dot_product_attention) -> None:
        super().__init__()
        self.read = read

    def forward(self, *inputs, **options):
        return self.read(*inputs, **options)


def heads(count: int, length: int) -> torch.Tensor:
    return torch.randn(B, count, length, 11, dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}])
def test_dot_products(options):
    model, shared = Dots(), 2 if "enable_gqa" in options else 6
    inputs = heads(6, L), heads(shared, L), heads(shared, L)
    mask = torch.ones(L, L, dtype=torch.bool).tril() if options.pop("is_causal", False) else None
    causal = {"is_causal": True} if mask is not None else {}
    closed = torch.ones(L, L, dtype=torch.bool) if mask is None else mask.clone()
    closed[4, 1] = False
    with edit(model) as e:
        e.block("", 4, 1)
        got = model(*inputs, **options, **causal)
    assert torch.allclose(got, model(*inputs, attn_mask=closed, **options), atol=1e-14)


def test_a_bias_of_large_numbers_is_a_mask():
    model, inputs = Dots(), (heads(H, L), heads(H, S), heads(H, S))
    for least in (-1e4, torch.finfo(torch.float64).min):
        bias = torch.zeros(L, S, dtype=torch.float64)
        bias[:, 4:] = least
        with edit(model) as e:
            e.uniform("")
            got = model(*inputs, attn_mask=bias)
        assert torch.allclose(got, inputs[2][:, :, :4].mean(dim=2, keepdim=True).expand(-1, -1, L, -1))


def test_dropout_falls_on_edited_weights():
    model, inputs = Dots(), (heads(H, L), heads(H, S), torch.ones(B, H, S, S, dtype=torch.float64) * torch.eye(S))
    with edit(model) as e:
        e.uniform("")
        got = model(*inputs, dropout_p=0.5)
    assert {round(one, 6) for one in got.unique().tolist()} == {0.0, round(2 / S, 6)}


def test_flex_attention():
    def earlier(score, batch, head, query, key):
        return torch.where(key <= query, score, -torch.inf)

    model, inputs = Dots(flex_attention), [one.float() for one in (heads(4, L), heads(2, L), heads(2, L))]
    mask = torch.ones(L, L, dtype=torch.bool).tril()
    mask[3, 2] = False
    with edit(model) as e:
        e.block("", 3, 2)
        e.knock_out("", 1)
        got = model(*inputs, score_mod=earlier, enable_gqa=True)
    want = F.scaled_dot_product_attention(*inputs, attn_mask=mask, enable_gqa=True)
    want[:, 1] = 0.0
    assert torch.allclose(got, want, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("layout", "axes"), [(torch.strided, 3), (torch.strided, 4), (torch.jagged, 4)])
def test_nested_tensors_are_read_row_by_row(layout, axes):
    """Each row by itself, as a tensor of its own length; the result is nested as that of torch is."""
    shape = (2, 4) if axes == 4 else (4,)
    rows = [torch.randn(length, *shape, dtype=torch.float64) for length in (3, 5)]
    nested = torch.nested.nested_tensor(rows, layout=layout, requires_grad=layout == torch.jagged)
    if axes == 4:
        nested, rows = nested.transpose(1, 2), [row.transpose(0, 1) for row in rows]
        nested = nested.contiguous() if layout == torch.strided else nested
    model = Dots()
    want = model(nested, nested, nested)
    with edit(model) as e:
        e.scale("", None, 1.0)
        again = model(nested, nested, nested)
    for one, other in zip(again.unbind(), want.unbind(), strict=True):
        assert torch.equal(one, other)
    with edit(model) as e:
        e.block("", 1, [0, 2])
        e.scale("", None, 2.0)
        got = model(nested, nested, nested)
    assert got.layout == want.layout
    assert layout == torch.strided or (got + want).shape == want.shape  # of the same lengths, as torch sees it
    for one, row in zip(got.unbind(), rows, strict=True):
        mask = torch.ones(row.shape[-2], row.shape[-2], dtype=torch.bool)
        mask[1, [0, 2]] = False
        assert torch.allclose(one, 2 * F.scaled_dot_product_attention(row, row, row, mask), atol=1e-12)
    if layout == torch.jagged:
        assert torch.autograd.grad(got.values().square().sum(), nested)[0].values().abs().sum() > 0
