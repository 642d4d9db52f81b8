"""Weights of torch's own modules, fused paths included."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded import L, S, close
from torch import Tensor, nn

from foci.recording import record

CHANCE = torch.Generator().manual_seed(3)


# ---------------------------------------------------------------- nn.MultiheadAttention

PADDING = torch.tensor([[False] * 4 + [True] * 3, [False] * 6 + [True]])
AHEAD = torch.ones(S, S, dtype=torch.bool).triu(1)


def minus_inf(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(mask, -torch.inf)


MHA_CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "self": ({}, {}),
    "odd heads": ({"num_heads": 3}, {}),
    "no bias": ({"bias": False}, {}),
    "batch second": ({"batch_first": False}, {}),
    "sizes of their own": ({"kdim": 5, "vdim": 7}, {}),
    "bias_kv": ({"add_bias_kv": True}, {}),
    "zero_attn": ({"add_zero_attn": True}, {}),
    "bias_kv, zero_attn, masks": (
        {"add_bias_kv": True, "add_zero_attn": True},
        {"key_padding_mask": PADDING, "attn_mask": AHEAD},
    ),
    "padding": ({}, {"key_padding_mask": PADDING}),
    "float padding": ({}, {"key_padding_mask": minus_inf(PADDING) + 0.5}),
    "mask": ({}, {"attn_mask": AHEAD}),
    "float mask": ({}, {"attn_mask": torch.randn(S, S, generator=CHANCE)}),
    "mask by head": ({}, {"attn_mask": torch.randn(2 * 2, S, S, generator=CHANCE) > 1}),
    "expanded mask": ({}, {"attn_mask": AHEAD.expand(2 * 2, S, S)}),
    "both": ({}, {"key_padding_mask": PADDING, "attn_mask": AHEAD}),
    "both float": ({}, {"key_padding_mask": minus_inf(PADDING), "attn_mask": minus_inf(AHEAD)}),
    "both float, finite": ({}, {"key_padding_mask": minus_inf(PADDING) - 0.5, "attn_mask": minus_inf(AHEAD)}),
    "causal hint": ({}, {"attn_mask": AHEAD, "is_causal": True}),
    "causal hint and padding": ({}, {"attn_mask": AHEAD, "is_causal": True, "key_padding_mask": PADDING}),
}


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mode", ["train", "eval", "no_grad"])
@pytest.mark.parametrize("name", MHA_CALLS)
def test_weights_of_multihead_attention(name, mode, need_weights):
    build, options = MHA_CALLS[name]
    build = {"num_heads": 2, "batch_first": True} | build
    module = nn.MultiheadAttention(6, **build)
    if build.get("bias", True):
        nn.init.normal_(module.in_proj_bias)
    query = torch.randn(2, S, 6)
    key = torch.randn(2, S, 5) if "kdim" in build else query
    value = torch.randn(2, S, 7) if "vdim" in build else query
    if not build["batch_first"]:
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    expected = module(query, key, value, **options, average_attn_weights=False)[1]
    module.train(mode == "train")
    with torch.set_grad_enabled(mode != "no_grad"):
        want = module(query, key, value, **options, need_weights=need_weights)
        with record(module) as tape:
            got = module(query, key, value, **options, need_weights=need_weights)
    assert torch.equal(got[0], want[0])
    assert list(tape) == ["."]
    assert close(tape["."].dense(), expected)
    assert tape["."].dense().requires_grad == (mode != "no_grad")


@pytest.mark.parametrize(("need_weights", "padded"), [(False, False), (False, True), (True, False)])
def test_where_torch_prefers_the_causal_hint_to_the_mask(need_weights, padded):
    module, x = nn.MultiheadAttention(S, 1, bias=False, batch_first=True), torch.randn(2, S, S)
    with torch.no_grad():
        module.in_proj_weight[-S:] = torch.eye(S)
        module.out_proj.weight[:] = torch.eye(S)
    options = {"attn_mask": torch.zeros(S, S, dtype=torch.bool), "is_causal": True, "need_weights": need_weights}
    if padded:
        options["key_padding_mask"] = PADDING
    with record(module) as tape:
        output, _ = module(x, x, torch.eye(S).expand(2, -1, -1), **options)
    assert close(tape["."].dense().squeeze(1), output)  # the values are the identity
    assert bool(tape["."].dense().triu(1).any()) == (need_weights or padded)


def test_a_weight_that_changes_when_it_is_looked_at():
    module, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(2, S, 6)
    nn.utils.parametrize.register_parametrization(module, "in_proj_weight", nn.Dropout(0.5))
    torch.manual_seed(1)
    want = [module(x, x, x, average_attn_weights=False) for _ in range(3)]
    torch.manual_seed(1)
    with record(module) as tape:
        got = [module(x, x, x)[0] for _ in range(3)]
    for output, (wanted, weights), recorded in zip(got, want, tape.values()):
        assert torch.equal(output, wanted)
        assert close(recorded.dense(), weights)


@pytest.mark.parametrize("mode", [True, False])
def test_unbatched_multihead_attention(mode):
    module, query, key = nn.MultiheadAttention(6, 2).train(mode), torch.randn(L, 6), torch.randn(S, 6)
    masks = {"key_padding_mask": PADDING[0], "attn_mask": torch.rand(2, L, S) > 0.8}
    want = module(query, key, key, **masks, average_attn_weights=False)
    with record(module) as tape:
        got = module(query, key, key, **masks, need_weights=False)
    assert close(got[0], want[0])
    assert close(tape["."].dense(), want[1].unsqueeze(0))


def test_a_row_of_padding_alone_has_weights_0_where_torch_gives_nan():
    module, x = nn.MultiheadAttention(6, 2, batch_first=True).eval(), torch.randn(2, S, 6)
    with torch.no_grad(), record(module) as tape:
        output, _ = module(x, x, x, key_padding_mask=torch.tensor([[True] * S, [False] * S]))
    assert output[0].isnan().all()
    assert close(tape["."].dense().sum(-1), torch.tensor([0.0, 1.0])[:, None, None].expand(2, 2, S))


def test_multi_head_attention_forward_called_by_hand():
    class Pool(nn.Module):
        """As CLIP's attention pool: the function, with projections that are modules of their own."""

        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(6, 6) for _ in range(4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            bias = torch.cat([self.q.bias, self.k.bias, self.v.bias])
            return F.multi_head_attention_forward(
                x[:1], x, x, 6, 2, torch.empty(0), bias, None, None, False,
                0.0, self.o.weight, self.o.bias, use_separate_proj_weight=True, q_proj_weight=self.q.weight,
                k_proj_weight=self.k.weight, v_proj_weight=self.v.weight, average_attn_weights=False,
            )  # fmt: skip

    model, x = Pool().eval(), torch.randn(S, 2, 6)
    with record(model) as tape:
        _, weights = model(x)
    assert list(tape) == ["."]
    assert close(tape["."].dense(), weights)


def test_multihead_attention_with_a_forward_of_its_own_or_outside_the_tree():
    class Sub(nn.MultiheadAttention):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x, x, x, need_weights=False)[0]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sub = Sub(6, 2, batch_first=True)
            self.patched = nn.MultiheadAttention(6, 2, batch_first=True)
            self.patched.forward = lambda x: F.scaled_dot_product_attention(x, x, x)
            self.hidden = [nn.MultiheadAttention(6, 2, batch_first=True).eval()]

        def forward(self, x: Tensor) -> Tensor:
            return self.sub(x) + self.patched(x) + self.hidden[0](x, x, x)[0]

    model = Model().eval()
    with torch.no_grad(), record(model) as tape:
        model(torch.randn(2, S, 6))
    assert {key: tuple(weights.shape) for key, weights in tape.items()} == {
        "sub": (2, 2, S, S),
        "patched": (2, S, S),
        ".": (2, 2, S, S),
    }


# ---------------------------------------------------------------- nn.Transformer


def weights_of_each_call(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
    """The weights that each nn.MultiheadAttention itself gives, on the same inputs, without any fused path."""
    found: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[..., None]:
        def again(module: nn.MultiheadAttention, args: Any, kwargs: Any, output: Any) -> None:
            kwargs = kwargs | {"need_weights": True, "average_attn_weights": False}
            found[name] = nn.MultiheadAttention.forward(module, *args, **kwargs)[1]

        return again

    handles = [
        module.register_forward_hook(hook(name), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, nn.MultiheadAttention)
    ]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        model(*args, **kwargs)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
        for handle in handles:
            handle.remove()
    return found


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("mode", ["train", "eval", "no_grad"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_every_layer_of_a_transformer(mode, batch_first):
    model = nn.Transformer(6, 2, 2, 3, 11, 0.0, batch_first=batch_first).train(mode == "train")
    source, target = torch.randn(2, S, 6), torch.randn(2, L, 6)
    if not batch_first:
        source, target = source.transpose(0, 1), target.transpose(0, 1)
    masks = {
        "src_key_padding_mask": PADDING,
        "memory_key_padding_mask": PADDING,
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(L),
        "tgt_is_causal": True,
    }
    with warnings.catch_warnings(), torch.set_grad_enabled(mode != "no_grad"):
        warnings.simplefilter("ignore")
        expected = weights_of_each_call(model, source, target, **masks)
        want = model(source, target, **masks)
        with record(model) as tape:
            got = model(source, target, **masks)
    assert torch.equal(got, want)
    assert list(tape) == list(expected)
    assert len(tape) == 2 + 2 * 3
    real = ~PADDING[:, None, :, None]
    for path, weights in tape.items():
        if mode == "no_grad" and path.startswith("encoder") and batch_first:  # nested: padding is no query there
            assert close(weights.dense(), expected[path] * real)
        else:
            assert close(weights.dense(), expected[path])


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masks", [{}, {"mask": AHEAD}, {"src_key_padding_mask": PADDING}])
def test_fused_encoder_stays_fused(norm_first, masks, monkeypatch):
    fused = []
    kernel = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *args: (fused.append(1), kernel(*args))[1])
    layer = nn.TransformerEncoderLayer(6, 2, 11, 0.0, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=not norm_first).eval()
    x = torch.randn(2, S, 6)
    with torch.no_grad():
        expected = weights_of_each_call(model, x, **masks)
        want = model(x, **masks)
        assert len(fused) == 3
        with record(model) as tape:
            got = model(x, **masks)
    assert len(fused) == 6
    assert torch.equal(got, want)
    assert list(tape) == [f"layers.{n}.self_attn" for n in range(3)]
    nested = bool(masks) and "mask" not in masks and not norm_first
    for path, weights in tape.items():
        assert close(weights.dense(), expected[path] * (~PADDING[:, None, :, None] if nested else 1))


def test_attention_of_a_fused_layer_recorded_alone():
    layer = nn.TransformerEncoderLayer(6, 2, 11, batch_first=True).eval()
    x = torch.randn(2, S, 6)
    with torch.no_grad(), record(layer.self_attn) as tape:
        layer(src=x)
    assert close(tape["."].dense(), weights_of_each_call(layer, x)["self_attn"])


def test_encoder_layer_with_another_attention():
    class Own(nn.TransformerEncoderLayer):
        def _sa_block(self, x: Tensor, *masks: Any, **hints: Any) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    model = nn.TransformerEncoder(Own(6, 2, 11, batch_first=True), 2, enable_nested_tensor=False)
    for mode in (True, False):
        with record(model.train(mode)) as tape:
            model(torch.randn(2, S, 6))
        assert list(tape) == ["layers.0", "layers.1"]
