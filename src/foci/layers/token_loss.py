"""The cross-entropy of the next token, without the logits of all tokens at once.

    loss = −Σ_t (1 − ε) log p_t(y_t) + ε/V Σ_v log p_t(v),   p_t = softmax(W x_t + b),   over all t but padding

The logits of 4,096 tokens over 10,000 words take 160 MB, their softmax and its gradients as much again; on a CPU this
memory traffic costs more than the products. Here the logits of some rows at a time are computed, and their gradients
at once, while the logits are still in the cache; rows of padding are left out. Only the gradients of the features and
of the weights are kept.

Paper: Rethinking the Inception Architecture for Computer Vision (Szegedy et al., 2016), section 7 (label smoothing);
    Attention Is All You Need (Vaswani et al., 2017), section 5.4
Names: ε = label_smoothing, W and b = the output layer, x = features, y = tokens, V = vocabulary
Complexity: O(T · D · V) time; O(T · D + V · D) memory
Differs: nothing; but the loss can be differentiated once only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.torch_private import has_forward_hooks
from foci.tracing import exportable, is_traced, is_watched
from foci.weights import Weights

_CELLS = 1 << 21
"""Logits at a time: 8 MB of float32."""


class Targets(NamedTuple):
    """The tokens a model is trained to predict.

    Attributes:
        tokens: ``tokens[:, t]`` follows ``target[:, : t + 1]``.
        label_smoothing: share of the probability that is distributed over all tokens.
        padding: the token that is left out of the loss.
    """

    tokens: Int[Tensor, "B T"]
    label_smoothing: float = 0.0
    padding: int = 0


@exportable
class TokenLogits(NamedTuple):
    """The result of teacher forcing without `Targets`.

    Attributes:
        logits: ``logits[:, t]`` predict ``target[:, t + 1]``.
        attentions: the weights of every attention of the pass by name (``encoder.0.self``, ``decoder.0.self``,
            ``decoder.0.cross``, …); they are computed on request.
        generates: p_gen, the probability with which each token is generated rather than copied; None without copying.
    """

    logits: Float[Tensor, "B T V"]
    attentions: dict[str, Weights]
    generates: Float[Tensor, "B T"] | None = None


class TokenLoss(NamedTuple):
    """The result of teacher forcing with `Targets`, which computes no logits of all tokens at once.

    Attributes:
        loss: the cross-entropy summed over all tokens but padding.
        log_probs: the log-probability of each token, without a gradient, 0 for padding.
        attentions: as in `TokenLogits`.
        terms: what the model adds to its loss by name, each summed over the batch; None where it adds nothing.
    """

    loss: Float[Tensor, ""]
    log_probs: Float[Tensor, "B T"]
    attentions: dict[str, Weights]
    terms: dict[str, Tensor] | None = None


def logits_or_loss(
    features: Float[Tensor, "B T D"], output: nn.Module, attentions: dict[str, Weights], targets: Targets | None
) -> TokenLogits | TokenLoss:
    """Apply the output layer at the end of a forward pass.

    Args:
        features: the inputs of the output layer.
        output: the output layer.
        attentions: the weights of the pass, which are returned as they are.
        targets: the tokens to predict; None for logits.

    Returns:
        The logits without ``targets``, the loss with them.
    """
    if targets is None:
        return TokenLogits(output(features), attentions)
    if _is_plain(output):
        loss, log_probs = cross_entropy(features, output.weight, output.bias, targets)
    else:  # quantized, the user's own, or with a hook: the layer has to be called
        loss, log_probs = _from_logits(output(features), targets)
    return TokenLoss(loss, log_probs, attentions)


def _is_plain(output: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether the layer may be replaced by its product: it computes what nn.Linear does, and has no hooks."""
    computes = isinstance(output, nn.Linear) and type(output).forward is nn.Linear.forward
    return computes and not has_forward_hooks(output)


def cross_entropy(
    features: Float[Tensor, "B T D"], weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None, targets: Targets
) -> tuple[Float[Tensor, ""], Float[Tensor, "B T"]]:
    """Return the loss summed over all tokens but padding, and the log-probability of each token, 0 for padding.

    The log-probabilities have no gradient; they are used as metrics or as a reward.
    """
    tensors = (features, weight) if bias is None else (features, weight, bias)
    if is_traced() or is_watched(*tensors):
        return _from_logits(F.linear(features, weight, bias), targets)
    tokens, rows = targets.tokens.flatten(), features.flatten(0, 1)
    wants = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    exists = tokens != targets.padding
    if bool(exists.all()):  # without padding no row needs to be copied, forward or backward
        loss, log_probs = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            rows, weight, bias, tokens, targets.label_smoothing, wants
        )
        return loss, log_probs.view_as(targets.tokens)
    known = exists.nonzero().squeeze(1)
    loss, found = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        rows[known], weight, bias, tokens[known], targets.label_smoothing, wants
    )
    log_probs = found.new_zeros(tokens.shape).index_copy(0, known, found)
    return loss, log_probs.view_as(targets.tokens)


def _from_logits(logits: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
    logits, tokens = _at_least_single(logits.flatten(0, 1)), targets.tokens.flatten()
    loss = F.cross_entropy(
        logits, tokens, ignore_index=targets.padding, reduction="sum", label_smoothing=targets.label_smoothing
    )
    log_probs = -F.cross_entropy(logits.detach(), tokens, ignore_index=targets.padding, reduction="none")
    return loss, log_probs.view_as(targets.tokens)


def token_log_probs(
    features: Float[Tensor, "N D"], output: nn.Module, tokens: Int[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the log-probability of each token and the mean of those of all tokens, both with gradients.

    The logits of some rows at a time are computed, and computed again for the gradients.
    """
    if not _is_plain(output) or is_traced() or is_watched(features, output.weight):
        logs = torch.log_softmax(_at_least_single(output(features)), dim=-1)
        return logs.gather(1, tokens.unsqueeze(1)).squeeze(1), logs.mean(dim=1)
    chosen, mean = _TokenLogProbs.apply(features, output.weight, output.bias, tokens)  # type: ignore[no-untyped-call]
    return chosen, mean


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        chosen = _at_least_single(features.new_zeros(len(tokens)))
        mean, normalizers = torch.zeros_like(chosen), torch.zeros_like(chosen)
        ctx.dtype = F.linear(features[:0], weight, bias).dtype  # that of autocast inside of it
        for here in _chunks(len(tokens), len(weight)):
            logits = _at_least_single(F.linear(features[here], weight, bias))
            normalizers[here] = logits.logsumexp(dim=1)
            chosen[here] = logits.gather(1, tokens[here].unsqueeze(1)).squeeze(1) - normalizers[here]
            mean[here] = logits.mean(dim=1) - normalizers[here]
        ctx.save_for_backward(features, weight, bias, tokens, normalizers)
        return chosen, mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_chosen: Tensor, of_mean: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, bias, tokens, normalizers = ctx.saved_tensors
        given = (features, weight, bias)
        grads = [
            torch.zeros_like(_at_least_single(each)) if each is not None and needed else None
            for each, needed in zip(given, ctx.needs_input_grad)
        ]
        # The forward pass's logits once more: the backward pass runs outside autocast.
        features, weight = features.to(ctx.dtype), weight.to(ctx.dtype)
        bias = None if bias is None else bias.to(ctx.dtype)
        for here in _chunks(len(tokens), len(weight)):
            logits = _at_least_single(F.linear(features[here], weight, bias))
            slopes = logits.sub_(normalizers[here].unsqueeze(1)).exp_()
            slopes.mul_(-(of_chosen[here] + of_mean[here]).unsqueeze(1)).add_(of_mean[here].unsqueeze(1) / len(weight))
            slopes.scatter_add_(1, tokens[here].unsqueeze(1), of_chosen[here].unsqueeze(1))
            _add_gradients(grads, slopes, features[here], weight, here)
        return *(None if grad is None else grad.to(each.dtype) for grad, each in zip(grads, given)), None


def _chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Yield the rows in parts whose logits fit in the cache."""
    step = max(1, _CELLS // vocabulary)
    return (slice(start, start + step) for start in range(0, rows, step))


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, smoothing: float, wants: bool
    ) -> tuple[Tensor, Tensor]:
        rows, vocabulary = len(tokens), len(weight)
        given = (features, weight, bias)
        # Summed in single precision at least, for parameters of any dtype.
        grads = [torch.zeros_like(_at_least_single(each)) if wants and each is not None else None for each in given]
        log_probs = _at_least_single(features.new_zeros(rows))
        loss = log_probs.new_zeros(())
        for here in _chunks(rows, vocabulary):
            logits = _at_least_single(F.linear(features[here], weight, bias))
            normalizer = logits.logsumexp(dim=1, keepdim=True)
            right = tokens[here].unsqueeze(1)
            log_probs[here] = (logits.gather(1, right) - normalizer).squeeze(1)
            loss -= (1 - smoothing) * log_probs[here].sum()
            if smoothing:
                loss -= smoothing * (logits.mean(dim=1, keepdim=True) - normalizer).sum()
            if wants:  # the gradient of the logits: the probabilities minus the target distribution
                slopes = logits.sub_(normalizer).exp_().sub_(smoothing / vocabulary)
                slopes.scatter_add_(1, right, slopes.new_full(right.shape, smoothing - 1))
                _add_gradients(grads, slopes, features[here], weight, here)
        ctx.save_for_backward(
            *(None if grad is None or each is None else grad.to(each.dtype) for grad, each in zip(grads, given))
        )
        ctx.mark_non_differentiable(log_probs)
        return loss, log_probs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        found = (None if grad is None else grad * outer[0].to(grad.dtype) for grad in ctx.saved_tensors)
        return *found, None, None, None


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _add_gradients(grads: list[Tensor | None], slopes: Tensor, features: Tensor, weight: Tensor, here: slice) -> None:
    of_features, of_weight, of_bias = grads
    slopes = slopes.to(features.dtype)
    if of_features is not None:
        of_features[here] = slopes @ weight.to(features.dtype)
    if of_weight is not None:
        of_weight += slopes.t() @ features
    if of_bias is not None:
        of_bias += slopes.sum(dim=0)
