"""What the answer would be with other weights.

    uniform       TV(p, p with weights 1/S over what may be read)
    permuted      TV(p, p with the weights of each row in random order), the mean over orders
    adversarial   the largest JS divergence of the weights from the model's with  TV(p, p') ≤ ε

Paper: Attention is not Explanation (Jain, Wallace, 2019), sections 4.2.1 and 4.2.2
Differs: adversarial weights are searched by gradient on their logits, from permuted weights on, for a number of steps;
    what is found is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foci.probing.subject import Erasing
from foci.recording import edit, record

EPSILON = 0.05
"""How far the answer may move under adversarial weights."""
_PENALTY = 100.0


class Replaced(NamedTuple):
    """How the answer moves with other weights of an attention, and how different ones leave it where it is."""

    uniform: float
    permuted: float
    adversarial: float | None


def replace_weights(
    erasing: Erasing, paths: Sequence[str], head: int | None, *, permutations: int, steps: int, seed: int
) -> Replaced:
    """Replace the weights of one attention, or of one of its heads.

    Args:
        erasing: the subject, with its answer.
        paths: the modules that compute it.
        head: one of its heads; None for all of them.
        permutations: number of random orders.
        steps: of the search for adversarial weights of all heads; 0 for none.
        seed: of the random orders.
    """
    subject = erasing.subject

    def distance(change: str, *args: Any) -> float:
        with torch.no_grad(), edit(subject.model) as edits:
            for path in paths:
                getattr(edits, change)(path, *args, head=head)
            after = erasing.whole()
        return erasing.compared(after)[0].distance

    uniform = distance("uniform")
    permuted = [distance("permute", seed + number) for number in range(permutations)]
    adversarial = None if head is not None or not steps else _adversarial(erasing, paths, steps, seed)
    return Replaced(uniform, sum(permuted) / len(permuted), adversarial)


def _adversarial(erasing: Erasing, paths: Sequence[str], steps: int, seed: int) -> float:
    """Return the divergence of the most different weights that were found to leave the answer where it is."""
    subject = erasing.subject
    with torch.no_grad(), record(subject.model, detach=True) as tape:
        erasing.whole()
    places = [(path, number) for path in paths for number in range(len(tape.calls(path)))]
    calls = [tape[place].dense() for place in places]
    open_to = [weights > 0 for weights in calls]
    generator = torch.Generator().manual_seed(seed)
    logits = [_shuffled(weights, where, generator).clamp_min(1e-6).log() for weights, where in zip(calls, open_to)]
    logits = [one.requires_grad_() for one in logits]
    optimizer = torch.optim.Adam(logits, lr=0.3)
    best = 0.0
    for _ in range(steps):
        found = [one.masked_fill(~where, -torch.inf).softmax(dim=-1) for one, where in zip(logits, open_to)]
        found = [one.nan_to_num(0.0) for one in found]
        with torch.enable_grad(), edit(subject.model) as edits:
            for (path, number), one in zip(places, found):
                edits.weights(path, one.unsqueeze(-2) if one.dim() == 2 else one, call=number)
            after = erasing.whole()
        moved = (after - erasing.before.to(after.dtype)).abs().sum(dim=-1).div(2).mean()
        apart = torch.cat([_divergence(one, old).flatten() for one, old in zip(found, calls)]).mean()
        if float(moved.detach()) <= EPSILON:
            best = max(best, float(apart.detach()))
        optimizer.zero_grad()
        (_PENALTY * (moved - EPSILON).clamp_min(0.0) - apart).backward()
        optimizer.step()
    return best


def _shuffled(weights: Tensor, where: Tensor, generator: torch.Generator) -> Tensor:
    """Return the weights of each row in random order, among those above 0."""
    keys = torch.rand(weights.shape, generator=generator).masked_fill(~where.cpu(), math.inf)
    order = keys.argsort(dim=-1).to(weights.device)
    kept = where.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(weights).scatter(-1, kept, weights.gather(-1, order)).masked_fill(~where, 0.0)


def _divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of rows of weights, in nats."""
    middle = (first + second) / 2
    return (_relative(first, middle) + _relative(second, middle)) / 2


def _relative(first: Tensor, second: Tensor) -> Tensor:
    return torch.where(first > 0, first * (first.clamp_min(1e-30) / second.clamp_min(1e-30)).log(), 0.0).sum(dim=-1)
