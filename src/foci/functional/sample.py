"""Hard attention: read one position, the best or a sampled one, and train by REINFORCE or straight-through gradients.

Paper: Show, Attend and Tell (Xu et al., 2015), section 4.1
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.errors import ShapeError, check_positive
from foci.functional.normalize import unreadable
from foci.masks import masked_softmax


def hard(scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... L S"]:
    """Return the one-hot of the best position; no gradient reaches the scores."""
    closed = unreadable("hard", scores, mask)
    if scores.shape[-1] == 0:
        return scores
    open_scores = scores if closed is None else scores.masked_fill(closed, -torch.inf)
    chosen = _one_hot(open_scores.argmax(dim=-1), scores)
    return chosen if closed is None else chosen.masked_fill(closed, 0.0)


def categorical(
    scores: Float[Tensor, "... L S"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "... L S"], Float[Tensor, "... L"]]:
    """Sample one position per row from the softmax; return its one-hot and its log-probability.

        s_t ~ softmax(scores),   ∇ E[reward] = E[(reward − b) ∇ log p(s_t)] + λ ∇ H

    The gradient of the reward reaches the scores through the log-probability (see `reinforce`).
    A row that may read nothing gets zeros, and log-probability 0.

    Paper: Show, Attend and Tell (Xu et al., 2015), section 4.1, arXiv:1502.03044
    Names: s_t = one-hot sample, p = softmax of the scores (α in the paper), b = baseline, λ = entropy_weight (λ_e),
        H = entropy of p
    Complexity: O(S) per row
    Differs: several samples are drawn by repeating the batch; in `eval()` the best position is read.
    """
    # The Gumbel-max trick samples from the softmax and, unlike torch.multinomial, takes any batch shape.
    chosen = hard(_with_noise(scores.detach(), generator), mask).to(scores.dtype)
    return chosen, log_probability(scores, chosen, mask)


def best(
    scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None
) -> tuple[Float[Tensor, "... L S"], Float[Tensor, "... L"]]:
    """Return the one-hot of the best position and its log-probability: what `categorical` is in evaluation."""
    chosen = hard(scores, mask)
    return chosen, log_probability(scores, chosen, mask)


def log_probability(
    scores: Float[Tensor, "... L S"],
    chosen: Float[Tensor, "... L S"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "... L"]:
    """Return the log-probability under the softmax of the position that each row of the one-hot ``chosen`` marks."""
    closed = unreadable("log_probability", scores, mask)
    if closed is not None:
        dead = closed.all(dim=-1, keepdim=True)
        scores = scores.masked_fill(closed, -torch.inf).masked_fill(dead, 0.0)
    logs = torch.log_softmax(scores, dim=-1)
    return logs.masked_fill(chosen == 0, 0.0).sum(dim=-1)


def gumbel(
    scores: Float[Tensor, "... L S"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "... L S"]:
    """Straight-through Gumbel-softmax: a sampled one-hot whose gradient is that of the soft sample.

        y = softmax((s + g) / τ),  g ~ Gumbel(0, 1);  forward: one-hot(argmax y);  backward: ∂y

    Paper: Categorical Reparameterization with Gumbel-Softmax (Jang, Gu, Poole, 2017), section 2, arXiv:1611.01144
    Names: s = scores (log π in the paper), g = noise, τ = temperature, y = soft sample
    Complexity: O(S) per row
    Differs: nothing; masked positions are never sampled.
    """
    check_positive("gumbel", temperature=temperature)
    noisy = _with_noise(scores, generator) / temperature
    soft = masked_softmax(noisy, mask)
    return (hard(noisy.detach(), mask) + (soft - soft.detach())).to(scores.dtype)


class Drawn(NamedTuple):
    """What a normalizer returns that samples: what is read, its log-probability if any, and what it was drawn from."""

    weights: Tensor
    log_prob: Tensor | None
    probabilities: Tensor


class Surrogate(NamedTuple):
    """The ``loss`` to minimize, and the ``baseline`` to pass to the next call."""

    loss: Tensor
    baseline: Tensor


def reinforce(
    log_prob: Float[Tensor, "B ..."],
    reward: Float[Tensor, "B ..."],
    baseline: Float[Tensor, ""] | float = 0.0,
    *,
    decay: float = 0.9,
    entropy: Float[Tensor, "B ..."] | None = None,
    entropy_weight: float = 0.0,
) -> Surrogate:
    """Return a loss whose gradient is the REINFORCE estimate of −∇E[reward], with its variance reduced.

        loss = −mean_b[(reward − b) · Σ_t log p(s_t)] − λ · mean_b[Σ_t H_t]
        b' = decay · b + (1 − decay) · mean(reward)

    Args:
        log_prob: log-probabilities of what was sampled (``weights.log_prob``), ``(B,)`` or with an axis of steps
            ``(B, L)``.
        reward: higher is better; one per row ``(B,)``, or one per entry of ``log_prob``. No gradient passes.
        baseline: the moving average so far; it comes back updated and must not depend on this batch's samples.
        decay: how much of the old baseline is kept.
        entropy: entropies of the probabilities, shaped like ``log_prob`` (``weights.entropy()``).
        entropy_weight: the weight of the entropy bonus.
    """
    if reward.dim() > log_prob.dim() or reward.shape != log_prob.shape[: reward.dim()]:
        raise ShapeError(
            f"reinforce: reward has shape {tuple(reward.shape)}, expected (batch,) or the shape of log_prob "
            f"{tuple(log_prob.shape)}. Sum or average the reward over what log_prob does not have."
        )
    previous = torch.as_tensor(baseline, dtype=reward.dtype, device=reward.device)
    advantage = (reward - previous).detach()
    advantage = advantage.reshape(advantage.shape + (1,) * (log_prob.dim() - advantage.dim()))
    rows = max(log_prob.shape[0], 1)
    loss = -(advantage * log_prob).sum() / rows
    if entropy is not None:
        loss = loss - entropy_weight * entropy.sum() / rows
    average = reward.detach().mean() if reward.numel() else previous
    return Surrogate(loss, decay * previous + (1.0 - decay) * average)


def _one_hot(positions: Tensor, scores: Tensor) -> Tensor:
    return torch.zeros_like(scores).scatter(-1, positions.unsqueeze(-1), 1.0)


def _with_noise(scores: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return the scores plus standard Gumbel noise, in float32 at least.

    Half precision rounds different sums to equal ones, of which the argmax takes the first: a biased sample.
    """
    uniform = torch.rand(scores.shape, generator=generator, device=scores.device, dtype=torch.float32)
    tiny = torch.finfo(torch.float32).tiny
    return scores - (-uniform.clamp_min(tiny).log()).clamp_min(tiny).log()
