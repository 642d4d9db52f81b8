"""`foci.record`: what any model attended to, and nothing changed by looking."""

from __future__ import annotations

import copy
import io
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from cases import any_inputs, make, tensors
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as early_bound
from torch.nn.modules import module as all_modules
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from foci.catalog import MECHANISMS
from foci.errors import ConfigError, FociError
from foci.functional.attend import attend
from foci.mechanisms.attention import Attention
from foci.mechanisms.heads.multi_head import MultiHeadAttention
from foci.record_torch import Copies, of_dot_products
from foci.recording import Tape, record
from foci.results import Attended, Matched, Weights


class Caller(nn.Module):
    """Calls `scaled_dot_product_attention` with what it is given."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return F.scaled_dot_product_attention(*args, **kwargs)


class Layers(nn.Module):
    """Three layers of self-attention on one mask."""

    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, 3 * size) for _ in range(3))
        self.calls = nn.ModuleList(Caller() for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer, call in zip(self.layers, self.calls):
            query, key, value = layer(x).chunk(3, dim=-1)
            x = x + call(query, key, value, mask)
        return x


@pytest.fixture(autouse=True)
def _seed_and_check_that_nothing_is_left():
    torch.manual_seed(0)
    read = MultiHeadAttention.read
    yield
    assert not all_modules._global_forward_hooks
    assert not all_modules._global_forward_pre_hooks
    assert not all_modules._global_forward_hooks_with_kwargs
    assert not all_modules._global_forward_hooks_always_called
    assert torch.overrides._get_current_function_mode_stack() == []
    assert MultiHeadAttention.read is read


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def close(got: Tensor, want: Tensor) -> bool:
    return got.shape == want.shape and torch.allclose(got, want.to(got.dtype), atol=1e-6)


# ---------------------------------------------------------------- scaled_dot_product_attention

L, S, D = 3, 7, 5
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


# ---------------------------------------------------------------- foci's own mechanisms


class Reader(nn.Module):
    """A mechanism as foci writes them: forward is read(prepare(…)), by the fused kernel."""

    def prepare(self, key: Tensor) -> Tensor:
        return key

    def read(self, query: Tensor, memory: Tensor, state: Tensor | None = None) -> Attended:
        return attend(query, memory, memory)

    def forward(self, query: Tensor, key: Tensor) -> Attended:
        return self.read(query, self.prepare(key))


class TwiceReader(Reader):
    def read(self, query: Tensor, memory: Tensor, state: Tensor | None = None) -> Attended:
        output, weights, state = super().read(2 * query, memory, state)
        return Attended(output, Weights.of(weights.dense()), state)


class Decoder(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, queries: Tensor, key: Tensor) -> Tensor:
        memory = self.attention.prepare(key)
        return torch.cat([self.attention.read(query, memory).output for query in queries.split(1, dim=1)], dim=1)


def test_a_read_that_calls_the_read_it_overrides_is_recorded_once():
    model = nn.ModuleList([Reader(), TwiceReader(), Reader()])
    with record(model) as tape:
        assert not hasattr(Reader.read.__wrapped__, "__wrapped__")
        output = model[1](randn(2, L, D), randn(2, S, D))
    assert list(tape) == ["1"]
    assert tape["1"] is output.weights


@pytest.mark.parametrize("mechanism", [Reader, TwiceReader])
def test_a_mechanism_is_recorded_once_whether_called_or_read(mechanism):
    model, query, key = mechanism(), randn(2, L, D), randn(2, S, D)
    with record(model) as tape:
        called = model(query, key)
        read = model.read(query, model.prepare(key))
    assert list(tape) == [".", ".#1"]
    assert torch.equal(tape["."].dense(), called.weights.dense())
    assert torch.equal(tape[".#1"].dense(), read.weights.dense())
    with record(model) as tape:
        pass
    assert model(query, key).weights not in tape.values()


def test_reads_of_a_decoder_are_numbered():
    for attention in (Reader(), Attention(5, 5, score="additive").double(), MultiHeadAttention(5, 5).double()):
        model, query, key = Decoder(attention), randn(2, L, D), randn(2, S, D)
        want = model(query, key)
        with record(model) as tape:
            got = model(query, key)
        assert torch.equal(got, want)
        assert list(tape) == ["attention", "attention#1", "attention#2"]
        for step, weights in enumerate(tape.calls("attention")):
            whole = attention(query, key).weights.dense()
            assert close(weights.dense(), whole[..., step : step + 1, :])


WITHIN = {"hierarchical": ["word_pool", "sentence_pool", "."], "cbam": ["channel", "spatial", "."]}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_row_of_the_catalogue(name):
    module, inputs = make(name), any_inputs(name)
    want = tensors(module(*inputs))
    with record(module) as tape:
        result = module(*inputs)
    assert all(torch.equal(got, wanted) for got, wanted in zip(tensors(result), want))
    if MECHANISMS[name].family == "memory":
        assert list(tape) == [".:read", ".:write"]
        assert torch.equal(tape[":read"].dense(), result[1].read_weights)
        assert torch.equal(tape[":write"].dense(), result[1].write_weights)
    else:
        further = [f".:{side}" for side in ("left", "right") if getattr(result, side, None) is not None]
        assert list(tape) == WITHIN.get(name, ["."]) + further
        assert torch.equal(tape["."].dense(), result.weights.dense())


def test_mechanisms_within_a_mechanism_are_all_recorded():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.sentences = Reader(), Reader()

        def forward(self, x: Tensor) -> Attended:
            words = self.words(x, x).output
            F.scaled_dot_product_attention(x, x, x)
            return self.sentences(words, words)

    model = Two()
    with record(model) as tape:
        output = model(randn(2, S, D))
    assert list(tape) == ["words", "sentences", "."]
    assert tape["."] is output.weights


def test_a_model_that_returns_a_mechanisms_result_keeps_the_layers_below():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Layers()
            self.pool = Reader()

        def forward(self, x: Tensor) -> Attended:
            x = self.encoder(x)
            return self.pool(x[:, :1], x)

    model = Model()
    with record(model) as tape:
        model(torch.randn(2, S, 5))
    assert list(tape) == [f"encoder.calls.{n}" for n in range(3)] + ["pool", "."]


def test_pairs_and_memories():
    class State(NamedTuple):
        memory: Tensor
        read_weights: Tensor
        write_weights: Tensor

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> Matched:
            return Matched(x, Weights.of(x), left=Weights.of(x[0]))

    class Memory(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, State]:
            return x, State(x, x + 1, x + 2)

    model = nn.ModuleDict({"pair": Pair(), "memory": Memory()})
    x = randn(2, 3)
    with record(model) as tape:
        model["pair"](x)
        model["memory"](x)
        model["memory"](x + 5)
    assert list(tape) == [
        "pair", "pair:left", "memory:read", "memory:write", "memory:read#1", "memory:write#1",
    ]  # fmt: skip
    assert torch.equal(tape["memory:read", 1].dense(), x + 6)
    assert torch.equal(tape["memory:write"].dense(), x + 2)
    with record(model["memory"]) as tape:
        model["memory"](x)
    assert list(tape) == [".:read", ".:write"]
    assert tape[":read"] is tape[".:read"]


# ---------------------------------------------------------------- the tape


def test_tape_is_a_mapping_in_order_of_execution():
    model, x = Layers(), torch.randn(2, S, 5)
    with record(model) as tape:
        assert tape.paths == []
        for length in range(1, 4):
            model(x[:, :length])
            assert len(tape.calls("calls.2")) == length
    assert list(tape)[:5] == ["calls.0", "calls.1", "calls.2", "calls.0#1", "calls.1#1"]
    assert len(tape) == len(tape.items()) == 9
    assert tape.paths == ["calls.0", "calls.1", "calls.2"]
    assert tape["calls.1#2"] is tape["calls.1", 2] is tape["calls.1", -1] is tape.calls("calls.1")[2]
    assert tape["calls.1", 0] is tape["calls.1"]
    assert [tuple(weights.shape) for weights in tape.calls("calls.0")] == [(2, n, n) for n in (1, 2, 3)]
    assert "calls.1#2" in tape
    assert "calls.1#3" not in tape
    assert "calls.1#0" not in tape
    assert "elsewhere" not in tape
    assert tape.get("elsewhere") is None
    assert repr(tape) == (
        "Tape of 9 attentions\n"
        "  calls.0  (2, 1, 1) … (2, 3, 3), 3 calls\n"
        "  calls.1  (2, 1, 1) … (2, 3, 3), 3 calls\n"
        "  calls.2  (2, 1, 1) … (2, 3, 3), 3 calls"
    )


def test_errors_of_the_tape():
    model = Layers()
    with record(model) as tape:
        pass
    with pytest.raises(KeyError, match=r"unknown path 'calls.0'\. No attention was recorded"):
        tape["calls.0"]
    assert "No attention was recorded" in repr(tape)
    with record(model) as tape:
        model(torch.randn(2, S, 5))
    with pytest.raises(FociError, match=r"^unknown path 'call.1'. Did you mean 'calls.\d'"):
        tape["call.1"]
    with pytest.raises(KeyError, match=r"unknown path 'call.1'"):
        tape.calls("call.1")
    with pytest.raises(KeyError, match=r"unknown call 4 of 'calls.1'. Its calls are 0 to 0"):
        tape["calls.1", 4]


def test_what_is_no_module_is_refused():
    with pytest.raises(ConfigError, match=r"model is a list, expected a torch\.nn\.Module"), record([Caller()]):
        pass


def test_the_model_itself_and_a_module_in_two_places():
    shared = Caller()
    model = nn.ModuleDict({"first": shared, "second": shared})
    x = randn(2, S, D)
    with record(model) as tape:
        model["second"](x, x, x)
    assert list(tape) == ["first"]
    with record(shared) as tape:
        shared(x, x, x)
    assert tape[""] is tape["."] is tape.calls("")[0]


# ---------------------------------------------------------------- gradients


def test_weights_belong_to_the_graph_unless_detached():
    model, x = Layers(), torch.randn(2, S, 5)
    with record(model) as tape, record(model, detach=True) as detached:
        loss = model(x).square().mean()
    (loss + sum(weights.entropy().mean() for weights in tape.values())).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.layers.parameters())
    assert tape["calls.2"].dense().requires_grad
    assert not detached["calls.2"].dense().requires_grad
    assert torch.equal(tape["calls.2"].dense(), detached["calls.2"].dense())


@pytest.mark.parametrize("build", [Layers, lambda: nn.TransformerEncoderLayer(5, 1, 7, 0.0, batch_first=True)])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_records_once_and_gives_the_same_gradients(build, reentrant):
    model, x = build(), torch.randn(2, S, 5, requires_grad=True)
    for mode in (True, False):
        model.train(mode)
        model(x).sum().backward()
        want = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        with record(model) as tape:
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(model.parameters(), want))
        assert all(len(tape.calls(path)) == 1 for path in tape.paths)
        assert len(tape) == (3 if isinstance(model, Layers) else 1)
        model.zero_grad()


# ---------------------------------------------------------------- nothing changes, nothing stays


class Fails(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.inner = Layers()
        self.error: BaseException | None = error

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        if self.error is not None:
            raise self.error
        return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_an_exception_leaves_nothing_behind(error):
    model, x = nn.Sequential(nn.Identity(), Fails(error)), torch.randn(2, S, 5)
    with pytest.raises(type(error)), record(model) as tape:
        model(x)
    assert len(tape) == 3
    assert torch.overrides._get_current_function_mode_stack() == []
    model[1].error = error
    with record(model) as tape:
        with pytest.raises(type(error)):
            model(x)
        model[1].error = None
        model(x)
    assert tape.paths == [f"1.inner.calls.{n}" for n in range(3)] + ["1"]
    assert len(tape.calls("1.inner.calls.0")) == 2
    assert len(tape.calls("1")) == 1


def test_a_failing_read_leaves_nothing_behind():
    model = Decoder(Reader())
    with record(model) as tape:
        with pytest.raises(RuntimeError):
            model.attention.read(randn(2, L, D), randn(2, S, D + 1))
        model.attention.read(randn(2, L, D), randn(2, S, D))
    assert list(tape) == ["attention"]


def test_a_model_copied_or_saved_in_the_block_is_clean():
    model, query, key = Decoder(MultiHeadAttention(6, 2)), torch.randn(2, L, 6), torch.randn(2, S, 6)
    with record(model) as tape:
        twin = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
        twin(query, key)
    assert len(tape) == 0
    assert vars(twin.attention).keys() == vars(model.attention).keys()
    with torch.no_grad():
        twin.attention.query_layer.weight.zero_()
    assert not torch.equal(twin(query, key), model(query, key))


def test_hooks_of_the_user_run_once_and_are_seen():
    model = nn.ModuleDict({"mha": nn.MultiheadAttention(6, 2, batch_first=True).eval()})
    calls = []
    x = torch.randn(2, S, 6)

    def double_the_query(module: nn.Module, args: Any, kwargs: Any) -> Any:
        calls.append(module)
        return (2 * args[0], *args[1:]), kwargs

    model["mha"].register_forward_pre_hook(double_the_query, with_kwargs=True)
    with record(model) as tape:
        _, want = model["mha"](x, x, x, average_attn_weights=False)
    assert len(calls) == 1
    assert close(tape["mha"].dense(), want)


def test_two_tapes_at_once():
    model, x = nn.Sequential(Layers(), Layers()), torch.randn(2, S, 5)
    with record(model) as whole, record(model[1]) as part:
        model(x)
    assert len(whole) == 6
    assert list(part) == ["calls.0", "calls.1", "calls.2"]
    assert part["calls.1"] is whole["1.calls.1"]
    first, second = record(model), record(model)
    one = first.__enter__()
    two = second.__enter__()
    model(x)
    first.__exit__(None, None, None)  # not the last to come
    model(x)
    second.__exit__(None, None, None)
    model(x)
    assert (len(one), len(two)) == (6, 12)


def test_a_block_inside_forward():
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Layers()

        def forward(self, x: Tensor) -> Tape:
            with record(self) as tape:
                self.inner(x)
            return tape

    model = Looks()
    with record(model) as outer:
        inner = model(torch.randn(2, S, 5))
    assert list(inner) == list(outer) == [f"inner.calls.{n}" for n in range(3)]
    assert list(Looks()(torch.randn(2, S, 5))) == list(inner)


def test_attention_outside_the_model_is_not_recorded():
    model, other, x = Layers(), Layers(), torch.randn(2, S, 5)
    with record(model) as tape:
        F.scaled_dot_product_attention(x, x, x)
        other(x)
    assert len(tape) == 0


def test_threads_have_tapes_of_their_own():
    model, x = Layers(), torch.randn(2, S, 5)
    tapes: dict[int, Tape] = {}
    together = threading.Barrier(3)

    def work(number: int) -> None:
        together.wait()
        if number == 0:
            model(x)
        else:
            with record(model) as tapes[number]:
                for _ in range(number):
                    model(x)
        together.wait()

    with record(model) as tape:
        workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert [len(each) for each in (tape, tapes[1], tapes[2])] == [0, 3, 6]


def test_a_mode_of_the_user():
    class Count(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += func is F.scaled_dot_product_attention
            return func(*args, **(kwargs or {}))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = Layers(6)
            self.mha = nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers(x)
            with Count() as self.count:
                return self.layers(self.mha(x, x, x)[0])

    model, x = Model().eval(), torch.randn(2, S, 6)
    with torch.no_grad(), Count() as outer:
        want = model(x)
        with record(model) as tape:
            got = model(x)
    assert torch.equal(got, want)
    assert model.count.seen == 3
    assert outer.seen == 12
    assert tape.paths == [f"layers.calls.{n}" for n in range(3)] + ["mha"]
    assert len(tape.calls("mha")) == 1
    assert len(tape.calls("layers.calls.1")) == 2


# ---------------------------------------------------------------- torch.compile


@pytest.mark.slow
def test_compiled_models_run_eagerly_and_keep_their_paths():
    x = torch.randn(2, S, 5)
    plain = Layers()
    compiled = torch.compile(plain, backend="eager", fullgraph=True)
    want = compiled(x)
    inside = nn.Sequential(torch.compile(plain, backend="eager"), nn.Identity())
    in_place = copy.deepcopy(plain)
    in_place.compile(backend="eager")
    with (
        warnings.catch_warnings(action="error"),
        record(compiled) as tape,
        record(inside) as nested,
        record(in_place) as third,
    ):
        assert torch.allclose(compiled(x), want)
        assert torch.allclose(inside(x), want)
        assert torch.allclose(in_place(x), want)
    assert list(tape)[:3] == list(third) == ["calls.0", "calls.1", "calls.2"]
    assert nested.paths == ["0.calls.0", "0.calls.1", "0.calls.2"]
    assert torch._dynamo.eval_frame._stance.stance == "default"
    mechanism = torch.compile(Reader(), backend="eager")
    with record(mechanism) as tape:
        mechanism(x, x)
    assert list(tape) == ["."]
    assert torch.allclose(compiled(x), want)


@pytest.mark.slow
def test_a_model_compiled_inside_the_block_still_runs(tmp_path):
    import subprocess
    import sys

    program = tmp_path / "late.py"
    program.write_text(
        "import sys, torch\n"
        "from foci.recording import record\n"
        "model = torch.nn.TransformerEncoderLayer(6, 2, 11, batch_first=True, dropout=0.0)\n"
        "x = torch.randn(2, 7, 6)\n"
        "with record(model) as tape:\n"
        "    assert 'torch._dynamo' not in sys.modules\n"
        "    compiled = torch.compile(model, backend='eager', fullgraph=True)\n"
        "    assert torch.allclose(compiled(x), model(x))\n"
        "assert list(tape) == ['self_attn'], tape\n"
    )
    subprocess.run([sys.executable, str(program)], check=True)
