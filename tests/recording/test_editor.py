"""`foci.edit` on torch's attention and on attention written out, against models that have what was edited."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import foci
from foci.errors import ConfigError
from foci.functional.attend import attend_scores
from foci.recording import edit, record

B, H, L, K = 2, 3, 5, 4


def fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def weights_of(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores = query @ key.mT / K**0.5
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), dim=-1)


def matmul(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return F.dropout(weights_of(query, key, mask), 0.0) @ value


def einsum(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / K**0.5
    scores = (
        scores
        if mask is None
        else scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, torch.finfo(scores.dtype).min)
    )
    return torch.einsum("bhqk,bhkd->bhqd", F.softmax(scores, dim=3), value)


def joined(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Heads and batch are one axis from the start, as in fairseq: only what is read shows which is which."""
    flat = [one.reshape(B * H, L, K) for one in (query, key, value)]
    scores = torch.bmm(flat[0], flat[1].mT) / K**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.expand(B, H, L, L).reshape(B * H, L, L), -torch.inf)
    read = torch.bmm(F.softmax(scores, -1), flat[2]).view(B, H, L, K).transpose(1, 2).reshape(B, L, H * K)
    return read.unflatten(-1, (H, K)).transpose(1, 2)


def one_by_one(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return (weights_of(query, key, mask).unsqueeze(-1) * value.unsqueeze(2)).sum(dim=3)


def points(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """As deformable attention: heads come last, then join the batch."""
    weights = weights_of(query, key, mask).transpose(1, 2).contiguous().unsqueeze(-1)
    flat = weights.transpose(1, 2).reshape(B * H, 1, L, L)
    values = value.reshape(B * H, L, K).mT.unsqueeze(2).expand(-1, -1, L, -1)
    return (values * flat).sum(-1).view(B, H, K, L).mT


STYLES = [fused, matmul, einsum, joined, one_by_one, points]


class Attention(nn.Module):
    def __init__(self, read: Callable[..., Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(H * K, H * K) for _ in range(3))
        self.read = read

    def heads(self, x: Tensor) -> list[Tensor]:
        return [layer(x).unflatten(-1, (H, K)).transpose(1, 2) for layer in self.layers]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.read(*self.heads(x), mask)


class Model(nn.Module):
    def __init__(self, read: Callable[..., Tensor]) -> None:
        super().__init__()
        self.first, self.second = Attention(read), Attention(read)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.second(self.first(x, mask).transpose(1, 2).flatten(2), mask)


@pytest.fixture(params=STYLES)
def model(request) -> Model:
    return Model(request.param).double()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, L, H * K, dtype=torch.float64)


def mask_without(query: int, key: int) -> Tensor:
    mask = torch.ones(1, 1, L, L, dtype=torch.bool)
    mask[..., query, key] = False
    return mask


def test_a_head_that_is_knocked_out_gives_zero(model, x):
    want = model(x)
    want[:, 1] = 0.0
    with edit(model) as e:
        e.knock_out("second", head=1)
        assert torch.allclose(model(x), want, atol=1e-14)
    assert model(x)[:, 1].any()


def test_a_blocked_edge_is_a_masked_position(model, x):
    with edit(model) as e, record(model) as tape:
        e.block("*", 2, 3)
        got = model(x)
    assert torch.allclose(got, model(x, mask_without(2, 3)), atol=1e-14)
    assert tape.paths == ["first", "second"]
    assert tape["second"].shape == (B, H, L, L)
    assert not tape["first"].dense()[..., 2, 3].any()


def test_a_row_with_nothing_left_reads_zero(model, x):
    with edit(model) as e:
        e.block("second", 1)
        got = model(x)
    assert not got[:, :, 1].any()
    assert torch.allclose(got[:, :, [0, 2, 3, 4]], model(x)[:, :, [0, 2, 3, 4]], atol=1e-14)


def test_uniform_weights_read_the_mean_of_what_may_be_read(model, x):
    mask = mask_without(0, 4)
    read = []
    model.second.layers[2].register_forward_hook(lambda *args: read.append(args[-1]))
    with edit(model) as e:
        e.uniform("second")
        got = model(x, mask)
    value = read[0].unflatten(-1, (H, K)).transpose(1, 2)
    want = value.mean(dim=2, keepdim=True).expand(-1, -1, L, -1).clone()
    want[:, :, 0] = value[:, :, :4].mean(dim=2)
    assert torch.allclose(got, want, atol=1e-14)


def test_zeroed_values_are_read_as_zero_with_the_same_weights(model, x):
    read = []
    model.second.layers[2].register_forward_hook(lambda *args: read.append(args[-1]))
    with edit(model) as e, record(model) as tape:
        e.zero_values("second", [1, -1], head=2)
        got = model(x)
    value = read[0].unflatten(-1, (H, K)).transpose(1, 2).clone()
    value[:, 2, [1, -1]] = 0.0
    assert torch.allclose(got, tape["second"].dense().reshape(B, H, L, L) @ value, atol=1e-14)


def test_edits_without_a_change_give_the_same_bits(model, x):
    want = model(x)
    with edit(model) as e:
        e.permute("*", order=torch.arange(L))
        e.scale("first", None, 1.0)
        assert torch.equal(model(x), want)


def test_the_second_half_alone_gives_the_same(model, x):
    """Zeroed values make each call be computed again; of no keys, the result is that of the model."""
    with edit(model) as e:
        e.zero_values("*", [])
        assert torch.allclose(model(x), model(x), atol=1e-14)


def test_gradients_flow_as_through_the_same_computation(model, x):
    x.requires_grad_()
    given = [x, *model.parameters()]
    with edit(model) as e:
        e.block("second", None, 1)
        e.scale("second", 0, 3.0)
        got = torch.autograd.grad(model(x)[..., 2].square().sum(), given)
    query, key, value = model.second.heads(model.first(x).transpose(1, 2).flatten(2))
    weights = (query @ key.mT / K**0.5).index_fill(-1, torch.tensor([1]), -torch.inf).softmax(dim=-1)
    read = weights * torch.tensor([3.0, 1.0, 1.0], dtype=x.dtype)[:, None, None] @ value
    want = torch.autograd.grad(read[..., 2].square().sum(), given)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(got, want))


def test_blocks_nest_and_compose_in_order(model, x):
    with edit(model) as e:
        e.block("second", None, 0)
        e.uniform("second")
        want = model(x)
    with edit(model) as outer:
        outer.block("second", None, 0)
        with edit(model) as inner:
            inner.uniform("second")
            got = model(x)
        only_outer = model(x)
    assert torch.allclose(got, want, atol=1e-14)
    with edit(model) as e:
        e.block("second", None, 0)
        assert torch.equal(model(x), only_outer)


def test_only_the_calls_that_were_named_are_edited(model, x):
    want = model(x)
    with edit(model) as e:
        e.knock_out("second", call=1)
        e.knock_out("second", call=range(3, 5))
        got = [model(x) for _ in range(5)]
    assert [torch.equal(one, want) for one in got] == [True, False, True, False, False]


def test_an_exception_restores_the_model_and_is_not_hidden(model, x):
    want = model(x)

    def fail() -> None:
        with edit(model) as e:
            e.knock_out("*")
            e.knock_out("first", call=7)  # without effect
            model(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(model(x), want)


def test_unedited_paths_give_the_same_bits(x):
    layer = nn.TransformerEncoderLayer(H * K, H, 17, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval().double()
    with torch.no_grad(), record(model) as tape:
        model(x)
    want = tape["layers.0.self_attn"].dense()
    first = model.layers[0](x)
    seen = []
    model.layers[0].register_forward_hook(lambda *args: seen.append(args[-1]))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.layers[1].self_attn.out_proj.weight[:, K : 2 * K] = 0.0
        with edit(model) as e, record(model) as tape:
            e.knock_out("layers.1.self_attn", 1)
            got = model(x)
        assert torch.allclose(got, twin(x), atol=1e-14)
    assert torch.allclose(seen[-2], first, atol=1e-14)
    assert torch.equal(tape["layers.0.self_attn"].dense(), want)
    assert not tape["layers.1.self_attn"].dense()[:, 1].any()
    assert len(tape) == 3


def test_only_edited_layers_leave_the_fused_path(monkeypatch):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 17, batch_first=True), 4).eval()
    fused, calls = torch._transformer_encoder_layer_fwd, []
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *args: calls.append(1) or fused(*args))
    with torch.no_grad(), edit(model) as e:
        e.knock_out("layers.2.self_attn", 1)
        model(torch.randn(B, L, 16))
    assert len(calls) == 3


def test_a_fused_encoder_with_padding_is_edited():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(H * K, H, 17, batch_first=True), 2).eval()
    x, padding = torch.randn(B, L, H * K), torch.zeros(B, L, dtype=torch.bool)
    padding[0, 3:] = True
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.layers[1].self_attn.out_proj.weight[:, :K] = 0.0
        with edit(model) as e:
            e.knock_out("layers.1.*", 0)
            got = model(x, src_key_padding_mask=padding)
        want = twin(x, src_key_padding_mask=padding)
    assert torch.allclose(got[0, :3], want[0, :3], atol=1e-5)
    assert torch.allclose(got[1], want[1], atol=1e-5)


def test_edited_weights_are_part_of_the_graph(model, x):
    x.requires_grad_()
    with edit(model) as e, record(model, gradients=True) as tape:
        e.scale("second", 1, 2.0)
        model(x).square().sum().backward()
    gradient = tape.gradient("second")
    assert gradient is not None
    assert gradient.shape == (B, H, L, L) or gradient.shape == (B * H, L, L)


class Outer(nn.Module):
    def __init__(self, inner: nn.Module, again: bool) -> None:
        super().__init__()
        self.inner, self.again = inner, again

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False) if self.again else self.inner(x)


def test_checkpointing_computes_the_same_edits_again(model, x):
    found = []
    for again in (False, True):
        model.zero_grad()
        outer = Outer(model, again)
        with edit(outer) as e:
            e.permute("inner.first", 3)
            outer(x).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(*found))
    with edit(outer) as e:
        e.permute("inner.first", 3, call=0)
        loss = outer(x).square().sum()
        with pytest.raises(ConfigError, match="Switch activation checkpointing off"):
            loss.backward()


def test_a_module_that_returns_its_own_weights_is_recorded_as_edited(x):
    class Own(nn.Module):
        def forward(self, x: Tensor) -> foci.AttentionOutput:
            weights = (x @ x.mT).softmax(dim=-1)
            return foci.AttentionOutput(weights @ x, foci.Weights.from_tensor(weights))

    model = Own()
    with edit(model) as e, record(model) as tape:
        e.uniform("")
        got = model(x).output
    assert torch.allclose(got, x.mean(dim=1, keepdim=True).expand_as(x))
    assert torch.allclose(tape["."].dense(), torch.full((B, L, L), 1 / L, dtype=x.dtype))


def test_what_a_small_weight_leaves_is_what_a_mask_leaves():
    """In single precision every other weight of these rows is 0: only the scores know how the rest is shared out."""

    class Sharp(nn.Module):
        def forward(self, scores: Tensor, value: Tensor) -> Tensor:
            return torch.softmax(scores, dim=-1) @ value

    scores, value = torch.tensor([[[300.0, 1.0, 0.0]]]).repeat(1, 3, 1), torch.eye(3)[None]
    model = Sharp()
    with edit(model) as e:
        e.block("", keys=0)
        got = model(scores, value)
    assert torch.allclose(got[0, 0], torch.tensor([0.0, 0.7310586, 0.2689414]))
    with edit(model) as e:
        e.uniform("")
        assert torch.allclose(model(scores, value), torch.full((1, 3, 3), 1 / 3))


def test_functions_of_foci_in_a_model_of_others_are_edited_and_recorded_once(x):
    class Scores(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return attend_scores(x @ x.mT, x).output

    model = Scores()
    with edit(model) as e, record(model) as tape:
        e.uniform("")
        got = model(x)
    assert torch.allclose(got, x.mean(dim=1, keepdim=True).expand_as(x))
    assert len(tape) == 1
    assert torch.allclose(tape["."].dense(), torch.full((B, L, L), 1 / L, dtype=x.dtype))


@pytest.mark.slow
def test_compiled_models_run_eagerly_in_the_block(x):
    model = Model(fused).double()
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    with edit(compiled) as e:
        e.knock_out("second", 1)
        got = compiled(x)
    assert not got[:, 1].any()
    assert compiled(x)[:, 1].any()


def test_what_is_no_module_is_an_error():
    with pytest.raises(ConfigError, match="model is a str"), edit("model"):
        pass
