"""Attention that a model's own code writes out, in many spellings, against the weights that it computed."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from recorded import close
from torch import Tensor, nn

import foci
from foci.recording import record

B, H, L, S, K = 2, 3, 5, 7, 11
MIXTURE = torch.linspace(0.1, 1, H * H).reshape(H, H)
Written = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""query, key, value and mask -> output, and the weights that it read with"""


def matmul(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax((q @ k.mT / math.sqrt(K)).masked_fill(~mask, -torch.inf), dim=-1)
    return weights @ v, weights


def einsum(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) + torch.where(mask, 0.0, -1e9)
    weights = torch.softmax(scores, 3)
    return torch.einsum("bhqk,bhkd->bqhd", weights, v).transpose(1, 2), weights


def heads_last(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("bhqd,bhkd->bqkh", q, k).masked_fill(~mask.permute(0, 2, 3, 1), -1e9)
    weights = scores.softmax(dim=2)
    return torch.einsum("...qkh,...hkd->...hqd", [weights, v]), weights.permute(0, 3, 1, 2)


def bmm(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    q, k, v = (tensor.reshape(B * H, -1, K) for tensor in (q, k, v))
    bias = torch.where(mask, 0.0, -1e9).expand(B, H, L, S).reshape(B * H, L, S)
    weights = nn.Softmax(dim=-1)(torch.baddbmm(bias, q, k.transpose(1, 2)))
    output = torch.bmm(weights, v)
    joined = output.view(B, H, L, K).transpose(1, 2).reshape(B, L, H * K)  # as every layer goes on
    return joined.unflatten(-1, (H, K)).transpose(1, 2), weights.view(B, H, L, S)


def heads_first(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    q, k, v = (tensor.transpose(0, 1).reshape(H * B, -1, K) for tensor in (q, k, v))
    bias = torch.where(mask, 0.0, -1e9).expand(B, H, L, S).transpose(0, 1).reshape(H * B, L, S)
    weights = (q @ k.mT + bias).softmax(-1)
    joined = (weights @ v).view(H, B, L, K).permute(1, 2, 0, 3).contiguous().view(B, L, -1)
    return joined.unflatten(-1, (H, K)).transpose(1, 2), weights.view(H, B, L, S).transpose(0, 1)


def values_first(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax((k @ q.mT).masked_fill(~mask.mT, -1e9), dim=-2)
    return (v.mT @ weights).mT, weights.mT


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = (q @ k.mT).masked_fill(~mask, -torch.inf)
    exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    weights = exponentials / (exponentials.sum(-1, keepdim=True) + 1e-12)
    return weights @ v, weights


def exponentials_twice(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = (q @ k.mT).masked_fill(~mask, -1e9)
    weights = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)
    return torch.linalg.matmul(weights, v), weights


def by_logsumexp(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = (q @ k.mT).masked_fill(~mask, -1e9)
    weights = torch.exp(scores - torch.logsumexp(scores, -1).unsqueeze(-1))
    return weights @ v, weights


def over_an_axis(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax((k @ q.mT).masked_fill(~mask.mT, -1e9), axis=-2)  # type: ignore[call-overload]
    return torch.einsum("bhkq,bhkd->bhqd", weights, v), weights.mT


def by_logarithms(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.log_softmax((q @ k.mT).masked_fill(~mask, -torch.inf), dim=-1).exp()
    return weights @ v, weights


def summed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT).masked_fill(~mask, -1e9).softmax(-1)
    return (weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(dim=-2), weights


def with_a_sink(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    scores = (q @ k.mT).masked_fill(~mask, -1e9)
    weights = torch.cat([scores, scores.new_zeros(B, H, L, 1)], dim=-1).softmax(-1)[..., :-1]
    return weights @ v, weights


def renormalized(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax(q @ k.mT, dim=-1, dtype=torch.float32).to(q.dtype) * mask
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-9)
    return weights @ v, weights


def talking_heads(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT).masked_fill(~mask, -1e9).softmax(-1)
    mixed = F.linear(weights.permute(0, 2, 3, 1), MIXTURE).permute(0, 3, 1, 2)
    return mixed @ v, mixed


def convolved_heads(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.conv2d((q @ k.mT).masked_fill(~mask, -1e9).softmax(-1), MIXTURE[..., None, None])
    return weights @ v, weights


def difference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    first, second = ((sign * q @ k.mT).masked_fill(~mask, -1e9).softmax(-1) for sign in (1, -1))
    weights = first - 0.3 * second
    return weights @ v, weights


def points(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """As deformable attention: heads come last, then join the batch, and columns are levels times points."""
    scores = torch.einsum("bhqd,bhkd->bqhk", q, k).masked_fill(~mask.permute(0, 2, 1, 3), -1e9)
    weights = scores.softmax(-1).view(B, L, H, S, 1)
    flat = weights.transpose(1, 2).reshape(B * H, 1, L, S)
    values = v.reshape(B * H, S, K).mT.unsqueeze(2).expand(-1, -1, L, -1)
    return (values * flat).sum(-1).view(B, H, K, L).mT, weights.squeeze(-1).transpose(1, 2)


SPELLINGS = [
    matmul, einsum, heads_last, bmm, heads_first, values_first, by_hand, exponentials_twice, by_logsumexp, over_an_axis,
    by_logarithms, summed, with_a_sink, renormalized, talking_heads, convolved_heads, difference,
    points,
]  # fmt: skip


class Own(nn.Module):
    """An attention of somebody else's, whose last weights are kept to compare."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self.written = written

    def forward(self, *inputs: Tensor) -> Tensor:
        output, self.weights = self.written(*inputs)
        return output


class Model(nn.Module):
    def __init__(self, written: Written) -> None:
        super().__init__()
        self.attention = Own(written)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.attention(*inputs).tanh()


def inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, H, L, K), (B, H, S, K), (B, H, S, K)]
    valid = torch.arange(S) < torch.tensor([S, 4]).unsqueeze(-1)
    return [torch.randn(shape, generator=generator) for shape in shapes] + [valid[:, None, None]]


@pytest.mark.parametrize("written", SPELLINGS, ids=lambda written: written.__name__)
def test_every_spelling_has_the_weights_that_the_model_computed(written):
    model, given = Model(written).eval(), inputs()
    want = model(*given)
    with record(model) as tape:
        got = model(*given)
    assert torch.equal(got, want)
    assert list(tape) == ["attention"]
    assert tape["attention"].shape == (B, H, L, S)
    assert close(tape["attention"].dense(), model.attention.weights)
    assert not tape.missed


@pytest.mark.parametrize("written", SPELLINGS, ids=lambda written: written.__name__)
def test_gradients_reach_the_weights(written):
    model, given = Model(written), inputs()
    for tensor in given[:3]:
        tensor.requires_grad_()
    with record(model, gradients=True) as tape:
        model(*given).square().sum().backward()
    weights = model.attention.weights
    if written in (bmm, heads_last, heads_first, values_first):
        assert tape.gradient("attention").shape == (B, H, L, S)
    else:
        weights = weights.detach().requires_grad_()
        (weights @ given[2]).tanh().square().sum().backward()
        assert close(tape.gradient("attention"), weights.grad)


def test_weights_are_those_before_dropout():
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            self.weights = (q @ k.mT).softmax(-1)
            return self.drop(self.weights).transpose(1, 2).transpose(1, 2) @ v

    model = Dropped().train()
    with record(model) as tape:
        model(*inputs())
    assert torch.equal(tape["."].dense(), model.weights)


class Pool(nn.Module):
    """Attention over the words of a document, as tutorials write it."""

    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.score, self.spelling = nn.Linear(K, 1), spelling

    def forward(self, x: Tensor) -> Tensor:
        if self.spelling == "one column":
            self.weights = F.softmax(self.score(x), dim=1)
            pooled = torch.sum(self.weights * x, dim=1)
            self.weights = self.weights.mT
        else:
            self.weights = F.softmax(self.score(x).squeeze(-1), dim=1)
            if self.spelling == "bmm":
                pooled = torch.bmm(self.weights.unsqueeze(1), x).squeeze(1)
            elif self.spelling == "einsum":
                pooled = torch.einsum("bs,bsd->bd", self.weights, x)
            elif self.spelling == "expand":
                pooled = (self.weights.unsqueeze(-1).expand_as(x) * x).sum(1)
            else:
                pooled = (x.mT @ self.weights.unsqueeze(-1)).squeeze(-1)
            self.weights = self.weights.unsqueeze(1)
        return pooled


@pytest.mark.parametrize("spelling", ["one column", "bmm", "einsum", "expand", "values first"])
def test_a_pool_is_one_query(spelling):
    model, x = Pool(spelling), torch.randn(B, S, K)
    with record(model) as tape:
        model(x)
    assert close(tape["."].dense(), model.weights)


def test_scores_and_values_in_modules_of_their_own_belong_to_the_module_that_has_both():
    class Scores(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(x @ x.mT, dim=-1)

    class Product(nn.Module):
        def forward(self, weights: Tensor, x: Tensor) -> Tensor:
            return weights @ x

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores, self.product = Scores(), Product()

        def forward(self, x: Tensor) -> Tensor:
            return self.product(self.scores(x), x)

    model = nn.Sequential(Block(), Block())
    with record(model) as tape:
        model(torch.randn(B, S, K))
    assert list(tape) == ["0", "1"]


def test_what_is_no_attention_is_not_recorded():
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(K, K) for _ in range(3))
            self.router, self.output = nn.Linear(K, 3), nn.Linear(K, 5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            shares, chosen = self.router(x).softmax(-1).topk(1)
            x = sum((chosen == n) * shares * expert(x) for n, expert in enumerate(self.experts))
            return self.output(x).softmax(-1), torch.exp(x) * x

    model = Classifier()
    with pytest.warns(UserWarning, match="takes a softmax in '.', but does not multiply values"), record(model) as tape:
        model(torch.randn(B, S, K))
    assert len(tape) == 0
    assert tape.missed == {}


def test_weights_that_a_module_returns_are_recorded_once():
    class Own(nn.Module):
        def forward(self, x: Tensor) -> foci.AttentionOutput:
            weights = F.softmax(x @ x.mT, dim=-1)
            return foci.AttentionOutput(weights @ x, foci.Weights.from_tensor(weights))

    model = Own()
    with record(model) as tape:
        model(torch.randn(B, S, K))
    assert list(tape) == ["."]


@pytest.mark.parametrize("length", [4, 100])
@pytest.mark.parametrize("gradients", [True, False])
def test_the_mechanisms_of_foci_are_recorded_once(length, gradients):
    model = nn.ModuleList(
        [foci.build("additive", query_dim=K, key_dim=K, hidden_dim=5), foci.build("sparsemax", query_dim=K, key_dim=K)]
    )
    x = torch.randn(B, length, K)
    with torch.set_grad_enabled(gradients), record(model) as tape:
        for attention in model:
            attention(x, x)
    assert list(tape) == ["0", "1"]


def test_what_a_model_gives_up_is_not_kept():
    class Sparing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            given_up = [weakref.ref(torch.exp(x)), weakref.ref(x.softmax(-1) * 2), weakref.ref(x.log_softmax(-1))]
            self.kept = [tensor() for tensor in given_up if tensor() is not None]
            return x

    model = Sparing()
    with pytest.warns(UserWarning, match="No attention was recorded"), record(model):
        model(torch.randn(B, S, K))
    assert model.kept == []


# ---------------------------------------------------------------- ways to call


def test_forward_called_directly_is_seen():
    model, given = Model(matmul), inputs()
    before = Model.forward
    with record(model) as tape:
        model.forward(*given)
        model(*given)
    assert list(tape) == ["attention", "attention#1"]
    with record(model.attention) as tape:
        model.attention.forward(*given)
    assert list(tape) == ["."]
    assert Model.forward is before


def test_a_forward_that_calls_its_base_class_is_one_call():
    class Derived(Own):
        def forward(self, *given: Tensor) -> Tensor:
            return super().forward(*given) + 1

    model = Derived(matmul)
    with record(model) as tape:
        model(*inputs())
    assert list(tape) == ["."]
