"""The loss without logits: against torch's own, in parts that do not divide evenly, and in its gradients."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foci.layers import token_loss
from foci.layers.token_loss import Targets, TokenLoss, cross_entropy, logits_or_loss

ROWS, TIME, SIZE, VOCABULARY = 3, 7, 5, 11


def case(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in ((ROWS, TIME, SIZE), (VOCABULARY, SIZE), (VOCABULARY,))
    )
    tokens = torch.randint(0, VOCABULARY, (ROWS, TIME), generator=generator)
    tokens[1, 4:] = 0  # padding
    return features, weight, bias, tokens


def by_torch(features: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(features, weight, bias).flatten(0, 1)
    return F.cross_entropy(logits, tokens.flatten(), ignore_index=0, reduction="sum", label_smoothing=smoothing)


@pytest.fixture(autouse=True)
def parts_of_four_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_loss, "_CELLS", 4 * VOCABULARY)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [True, False])
def test_it_is_torchs_cross_entropy(smoothing: float, with_bias: bool) -> None:
    features, weight, bias, tokens = case()
    given = (features, weight, bias) if with_bias else (features, weight)
    ours, log_probs = cross_entropy(features, weight, bias if with_bias else None, Targets(tokens, smoothing))
    theirs = by_torch(features, weight, bias if with_bias else None, tokens, smoothing)
    torch.testing.assert_close(ours, theirs)
    for mine, wanted in zip(torch.autograd.grad(3 * ours, given), torch.autograd.grad(3 * theirs, given)):
        torch.testing.assert_close(mine, wanted)
    every = F.log_softmax(F.linear(features, weight, bias if with_bias else None), dim=-1)
    wanted_probs = every.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).masked_fill(tokens == 0, 0.0)
    torch.testing.assert_close(log_probs, wanted_probs.detach())
    assert not log_probs.requires_grad


def test_a_frozen_output_layer_and_a_pass_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight, bias, tokens = case()
    loss, _ = cross_entropy(features, weight.detach(), bias.detach(), Targets(tokens))
    (grad,) = torch.autograd.grad(loss, features)
    (wanted,) = torch.autograd.grad(by_torch(features, weight, bias, tokens, 0.0), features)
    torch.testing.assert_close(grad, wanted)
    monkeypatch.setattr(token_loss, "_add_gradients", None)  # not needed, so it must not be called
    with torch.no_grad():
        assert cross_entropy(features, weight, bias, Targets(tokens))[0] == loss


def test_nothing_but_padding_costs_nothing() -> None:
    features, weight, bias, tokens = case()
    loss, log_probs = cross_entropy(features, weight, bias, Targets(torch.zeros_like(tokens)))
    loss.backward()
    assert loss == 0
    assert log_probs.abs().sum() == 0
    assert torch.equal(features.grad, torch.zeros_like(features))


def test_under_autocast_the_logarithms_stay_in_single_precision() -> None:
    features, weight, bias, tokens = case(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = cross_entropy(features, weight, bias, Targets(tokens, 0.1))
    (grad,) = torch.autograd.grad(loss, weight)
    assert loss.dtype == grad.dtype == torch.float32
    torch.testing.assert_close(loss, by_torch(features, weight, bias, tokens, 0.1), rtol=0.02, atol=0.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_transform_sees_plain_operations(smoothing: float) -> None:
    features, weight, bias, tokens = case()
    slopes = torch.func.grad(
        lambda weight: cross_entropy(features.detach(), weight, bias, Targets(tokens, smoothing))[0]
    )(weight)
    (wanted,) = torch.autograd.grad(by_torch(features, weight, bias, tokens, smoothing), weight)
    torch.testing.assert_close(slopes, wanted)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_output_layer_of_the_users_own_is_called(smoothing: float) -> None:
    features, _, _, tokens = case()
    own, watched = Doubled(SIZE, VOCABULARY).double(), nn.Linear(SIZE, VOCABULARY).double()
    calls: list[int] = []
    watched.register_forward_hook(lambda *_: calls.append(1))
    for layer in (own, watched):
        learned = logits_or_loss(features, layer, {}, Targets(tokens, smoothing))
        logits = layer(features).flatten(0, 1)
        wanted = F.cross_entropy(logits, tokens.flatten(), ignore_index=0, reduction="sum", label_smoothing=smoothing)
        assert isinstance(learned, TokenLoss)
        torch.testing.assert_close(learned.loss, wanted)
    assert len(calls) == 2


def test_gradients_of_bfloat16_parameters_are_summed_up_in_single_precision() -> None:
    features, weight, bias, tokens = (one.detach() for one in case())
    small = [one.bfloat16().requires_grad_() for one in (features, weight, bias)]
    loss, _ = cross_entropy(*small, Targets(tokens))
    exact = [one.detach().float().requires_grad_() for one in small]
    found = torch.autograd.grad(loss, small)
    wanted = torch.autograd.grad(by_torch(*exact, tokens, 0.0), exact)
    for mine, theirs in zip(found, wanted):
        assert mine.dtype == torch.bfloat16
        assert (mine.float() - theirs).norm() < 0.01 * theirs.norm()
