"""Connectionist temporal classification: what a frame-by-frame model says of a token sequence, and when.

A path has one symbol per frame, a token or blank; it stands for the tokens that are left when repeated symbols are
merged and blanks removed. `prefix_scores` sums over all paths that begin with some tokens, `align` finds the best path
of given tokens.

    r_t^n(g·c) = (r_{t−1}^n(g·c) + φ_{t−1}) p_t(c),    r_t^b(g) = (r_{t−1}^b(g) + r_{t−1}^n(g)) p_t(blank)
    φ_t = r_t^b(g) + [c ≠ last(g)] r_t^n(g),           ψ(g·c) = Σ_t φ_{t−1} p_t(c)

Paper: Connectionist Temporal Classification (Graves et al., 2006), section 4; Hybrid CTC/Attention Architecture for
    End-to-End Speech Recognition (Watanabe et al., 2017), algorithm 2
Names: g = prefix, c = token, r^n and r^b = the rows of a prefix state, ψ = prefix_scores, p_t = log_probs
Complexity: O(T · V) per prefix; `align` O(T · U)
Differs: both recurrences are sums over time, so that they are computed with one cumulative sum each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.errors import ShapeError

BLANK = 0


def empty_prefix(log_probs: Float[Tensor, "N T V"]) -> Float[Tensor, "N 2 positions"]:
    """Return the state of the prefix without tokens: blanks alone.

    A state has two rows: the log-probability of all paths of the first t frames that give the prefix and end in its
    last token, and that of those that end in blank; t is zero-based.
    """
    blanks = torch.nn.functional.pad(log_probs[:, :, BLANK].cumsum(dim=1), (1, 0))
    return torch.stack([torch.full_like(blanks, -torch.inf), blanks], dim=1)


def extend_prefix(
    log_probs: Float[Tensor, "N T V"],
    state: Float[Tensor, "N 2 positions"],
    last: Int[Tensor, " N"],
    token: Int[Tensor, " N"],
) -> Float[Tensor, "N 2 positions"]:
    """Return the state of each prefix extended by a token.

    Args:
        log_probs: of each frame.
        state: of the prefixes.
        last: the last token of each; −1 where there is none.
        token: the next one.
    """
    entered = _entered(state, (token == last).unsqueeze(1))[:, :-1]  # before frame t
    spoken = log_probs.gather(2, token.reshape(-1, 1, 1).expand(-1, log_probs.shape[1], 1)).squeeze(2)
    in_token = _decaying_sum(entered, spoken)
    silent = log_probs[:, :, BLANK]
    before = torch.nn.functional.pad(in_token, (1, 0), value=-torch.inf)
    in_blank = _decaying_sum(before[:, :-1], silent)
    return torch.stack([before, torch.nn.functional.pad(in_blank, (1, 0), value=-torch.inf)], dim=1)


def prefix_scores(
    log_probs: Float[Tensor, "N T V"], state: Float[Tensor, "N 2 positions"], last: Int[Tensor, " N"]
) -> Float[Tensor, "N V"]:
    """Return ψ of each prefix extended by each token: the log-probability that the tokens begin with it."""
    different = _entered(state, torch.zeros_like(last, dtype=torch.bool).unsqueeze(1))[:, :-1]
    scores = torch.logsumexp(different.unsqueeze(2) + log_probs, dim=1)
    repeats = last >= 0
    if bool(repeats.any()):
        again = last.clamp_min(0)
        spoken = log_probs.gather(2, again.reshape(-1, 1, 1).expand(-1, log_probs.shape[1], 1)).squeeze(2)
        same = torch.logsumexp(state[:, 1, :-1] + spoken, dim=1, keepdim=True)
        kept = scores.gather(1, again.unsqueeze(1))
        scores = scores.scatter(1, again.unsqueeze(1), torch.where(repeats.unsqueeze(1), same, kept))
    return scores


def whole_scores(state: Float[Tensor, "N 2 positions"], lengths: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the log-probability that the tokens are exactly each prefix, of recordings of these lengths."""
    at_end = state.gather(2, lengths.reshape(-1, 1, 1).expand(-1, 2, 1)).squeeze(2)
    return torch.logsumexp(at_end, dim=1)


def _entered(state: Tensor, same: Tensor) -> Tensor:
    """Return φ: the paths after which a new token may begin; after itself only where a blank lies between."""
    return torch.where(same, state[:, 1], torch.logaddexp(state[:, 0], state[:, 1]))


def _decaying_sum(entered: Tensor, stay: Tensor) -> Tensor:
    """Return r with r_t = (r_{t−1} + entered_t) · stay_t, all as logarithms."""
    stay = stay.clamp_min(-1e4)  # a difference of infinities would be no number
    total = stay.cumsum(dim=1)
    return total + torch.logcumsumexp(entered - (total - stay), dim=1)


def align(log_probs: Float[Tensor, "T V"], tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last frame of each token on the best path that gives these tokens.

    Raises:
        ShapeError: there are too few frames for the tokens.

    Example:
        >>> frames = torch.tensor([[0.1, 0.9, 0.0], [0.1, 0.8, 0.1], [0.9, 0.0, 0.1], [0.1, 0.0, 0.9]]).log()
        >>> align(frames, [1, 2])
        [(0, 1), (3, 3)]
    """
    frames = log_probs.shape[0]
    needed = shortest_path(tokens)
    if frames < needed:
        raise ShapeError(f"align: {len(tokens)} tokens need {needed} frames, got {frames}. Use a lower reduction.")
    if not tokens:
        return []
    symbols = torch.full((2 * len(tokens) + 1,), BLANK, device=log_probs.device)
    symbols[1::2] = torch.tensor(list(tokens), device=log_probs.device)
    emitted = log_probs.double()[:, symbols].cpu()
    symbols = symbols.cpu()
    # From a token to the next without a blank between them, unless they are the same.
    skips = torch.zeros(len(symbols), dtype=torch.bool)
    skips[3::2] = symbols[3::2] != symbols[1:-2:2]
    best = torch.full((len(symbols),), -torch.inf, dtype=torch.float64)
    best[:2] = emitted[0, :2]
    moves = torch.zeros(frames, len(symbols), dtype=torch.long)
    for t in range(1, frames):
        stay = best
        step = torch.cat([best.new_full((1,), -torch.inf), best[:-1]])
        skip = torch.cat([best.new_full((2,), -torch.inf), best[:-2]]).masked_fill(~skips, -torch.inf)
        best, moves[t] = torch.stack([stay, step, skip]).max(dim=0)
        best = best + emitted[t]
    place = len(symbols) - 1 if best[-1] >= best[-2] else len(symbols) - 2
    spans: list[tuple[int, int]] = [(-1, -1)] * len(tokens)
    for t in range(frames - 1, -1, -1):
        if place % 2:
            spans[place // 2] = (t, spans[place // 2][1] if spans[place // 2][1] >= 0 else t)
        place -= int(moves[t, place])
    return spans


def shortest_path(tokens: Sequence[int]) -> int:
    """Return the least number of frames that can give these tokens: one each, and a blank between equal ones.

    Example:
        >>> shortest_path([5, 5, 7])
        4
    """
    return len(tokens) + sum(one == other for one, other in pairwise(tokens))
