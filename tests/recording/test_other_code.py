"""Attention as other packages and tutorials write it: every one recorded, with its weights, and nothing else changed.

timm and torchvision need a torchvision that imports, so that their forms of ViT and Swin are written out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded import close
from torch import Tensor, nn

from foci.recording import Recording, record

B, H, N, D = 2, 3, 7, 15
K = D // H


def recorded(model: nn.Module, *given: Any, **options: Any) -> Recording:
    model.eval()
    with torch.no_grad():
        want = model(*given, **options)
        with record(model) as tape:
            got = model(*given, **options)
    assert torch.equal(got, want)
    return tape


# ---------------------------------------------------------------- images


class ViTAttention(nn.Module):
    """As in timm's vision_transformer: fused, or by hand."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.qkv, self.proj, self.attn_drop = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Dropout(0.1)
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(B, N, 3, H, K).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q * K**-0.5 @ k.transpose(-2, -1)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            x = self.attn_drop(scores.softmax(dim=-1)) @ v
        self.weights = torch.exp(scores - scores.logsumexp(-1, keepdim=True)).clone()
        return self.proj(x.transpose(1, 2).reshape(B, N, D))


@pytest.mark.parametrize("fused", [True, False])
def test_a_vit_in_the_form_of_timm(fused):
    model = nn.Sequential(ViTAttention(fused), nn.LayerNorm(D), ViTAttention(fused))
    tape = recorded(model, torch.randn(B, N, D))
    assert list(tape) == ["0", "2"]
    assert all(close(tape[path].dense(), model.get_submodule(path).weights) for path in tape)


class ShiftedWindows(nn.Module):
    """As in torchvision's swin_transformer: windows joined with the batch, a bias of positions, a mask of the shift."""

    def __init__(self, window: int = 2) -> None:
        super().__init__()
        self.qkv, self.window, self.bias = (
            nn.Linear(D, 3 * D),
            window,
            nn.Parameter(torch.randn(H, window**2, window**2)),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, dim = x.shape
        w, count = self.window, height * width // self.window**2
        x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
        x = (
            x.view(batch, height // w, w, width // w, w, dim)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(batch * count, w * w, dim)
        )
        q, k, v = self.qkv(x).reshape(batch * count, w * w, 3, H, K).permute(2, 0, 3, 1, 4)
        scores = (q * K**-0.5).matmul(k.transpose(-2, -1)) + self.bias.unsqueeze(0)
        region = (torch.arange(height)[:, None] >= height - 1).int() * 2 + (torch.arange(width) >= width - 1).int()
        region = region.view(height // w, w, width // w, w).permute(0, 2, 1, 3).reshape(count, w * w)
        mask = (region.unsqueeze(1) != region.unsqueeze(2)).float() * -100.0
        scores = scores.view(batch, count, H, w * w, w * w) + mask.unsqueeze(1).unsqueeze(0)
        self.weights = F.softmax(scores.view(-1, H, w * w, w * w), dim=-1)
        x = F.dropout(self.weights, p=0.1, training=self.training).matmul(v)
        x = x.transpose(1, 2).reshape(batch, height // w, width // w, w, w, dim).permute(0, 1, 3, 2, 4, 5)
        return torch.roll(x.reshape(batch, height, width, dim), shifts=(1, 1), dims=(1, 2))


def test_a_swin_in_the_form_of_torchvision():
    model = nn.Sequential(ShiftedWindows(), ShiftedWindows())
    tape = recorded(model, torch.randn(B, 6, 4, D))
    assert list(tape) == ["0", "1"]
    assert tape["0"].shape == (B * 6, H, 4, 4)
    assert torch.equal(tape["1"].dense(), model[1].weights)


class ResidualAttentionBlock(nn.Module):
    """As in open_clip: positions first, a mask of numbers, no weights asked for."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.ln_1, self.attn, self.causal = nn.LayerNorm(D), nn.MultiheadAttention(D, H), causal

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.full((N, N), -torch.inf).triu(1) if self.causal else None
        y = self.ln_1(x)
        return x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]


@pytest.mark.parametrize("causal", [True, False])
def test_the_blocks_of_open_clip(causal):
    model, x = nn.Sequential(*(ResidualAttentionBlock(causal) for _ in range(2))), torch.randn(N, B, D)
    tape = recorded(model, x)
    assert list(tape) == ["0.attn", "1.attn"]
    mask = torch.full((N, N), -torch.inf).triu(1) if causal else None
    y = model[0].ln_1(x)
    want = model[0].attn(y, y, y, attn_mask=mask, average_attn_weights=False)[1]
    assert close(tape["0.attn"].dense(), want)


def test_a_transformer_of_torch():
    model = nn.Transformer(D, H, 2, 2, 11, batch_first=True)
    target, mask = torch.randn(B, 5, D), nn.Transformer.generate_square_subsequent_mask(5)
    tape = recorded(model, torch.randn(B, N, D), target, tgt_mask=mask)
    assert {path: tuple(weights.shape[-2:]) for path, weights in tape.items()} == {
        **{f"encoder.layers.{layer}.self_attn": (N, N) for layer in range(2)},
        **{f"decoder.layers.{layer}.self_attn": (5, 5) for layer in range(2)},
        **{f"decoder.layers.{layer}.multihead_attn": (5, N) for layer in range(2)},
    }
    assert not tape.missed
    assert close(tape["decoder.layers.0.self_attn"].dense(), tape["decoder.layers.0.self_attn"].dense().tril())


# ---------------------------------------------------------------- by hand, as in tutorials

PRODUCTS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "matmul": (lambda q, k: torch.matmul(q, k.transpose(-2, -1)), torch.matmul),
    "operator": (lambda q, k: q @ k.mT, lambda w, v: w @ v),
    "einsum": (
        lambda q, k: torch.einsum("bqd,bkd->bqk", q, k),
        lambda w, v: torch.einsum("bqk,bkd->bqd", w, v),
    ),
    "bmm": (lambda q, k: torch.bmm(q, k.transpose(1, 2)), torch.bmm),
    "sum": (
        lambda q, k: (q.unsqueeze(2) * k.unsqueeze(1)).sum(-1),
        lambda w, v: (w.unsqueeze(-1) * v.unsqueeze(1)).sum(2),
    ),
}
SOFTMAXES: dict[str, Callable[[Tensor], Tensor]] = {
    "F.softmax": lambda scores: F.softmax(scores, dim=-1),
    "torch.softmax": lambda scores: torch.softmax(scores, dim=2),
    "nn.Softmax": nn.Softmax(dim=-1),
    "method": lambda scores: scores.softmax(-1),
    "exponentials": lambda scores: scores.exp() / scores.exp().sum(-1, keepdim=True),
}
MASKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "masked_fill": lambda scores, closed: scores.masked_fill(closed, -1e9),
    "add": lambda scores, closed: scores + closed.float() * -1e9,
    "where": lambda scores, closed: torch.where(closed, torch.tensor(-torch.inf), scores),
    "in place": lambda scores, closed: scores.masked_fill_(closed, float("-inf")),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("softmax", SOFTMAXES)
@pytest.mark.parametrize("product", PRODUCTS)
def test_attention_by_hand(product, softmax, mask):
    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(D, K) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            compare, read = PRODUCTS[product]
            scores = compare(self.query(x), self.key(x)) / K**0.5
            self.weights = SOFTMAXES[softmax](MASKS[mask](scores, torch.ones(N, N).triu(1).bool()))
            return read(self.weights, self.value(x))

    model = nn.Sequential(SelfAttention())
    tape = recorded(model, torch.randn(B, N, D))
    assert list(tape) == ["0"]
    assert not tape.missed
    assert torch.equal(tape["0"].dense(), model[0].weights)
    assert close(tape["0"].dense(), tape["0"].dense().tril())


# ---------------------------------------------------------------- packages


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {}, {"attn_flash": True}, {"rotary_pos_emb": True}, {"alibi_pos_bias": True}, {"attn_kv_heads": 2},
        {"attn_num_mem_kv": 3}, {"attn_sparse_topk": 3}, {"attn_qk_norm": True}, {"attn_softclamp_logits": True},
        {"rel_pos_bias": True}, {"attn_add_zero_kv": True},
    ],
    ids=str,
)  # fmt: skip
def test_x_transformers(options):
    x_transformers = pytest.importorskip("x_transformers")
    layers = x_transformers.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    model = x_transformers.TransformerWrapper(num_tokens=31, max_seq_len=16, attn_layers=layers)
    ids = torch.arange(2 * N).reshape(2, N)
    tape = recorded(model, ids)
    assert list(tape) == ["attn_layers.layers.0.1.attend", "attn_layers.layers.2.1.attend"]
    assert not tape.missed
    if "attn_flash" not in options:
        with torch.no_grad():
            _, want = model(ids, return_attn=True)
        assert all(close(weights.dense(), theirs) for weights, theirs in zip(tape.values(), want, strict=True))
