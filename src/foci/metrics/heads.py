"""What heads do: how much of their weight falls where a simple rule would put it, beside what chance would give.

    previous     w_i,i−1
    duplicate    Σ_j w_ij over the other positions of row i's token
    induction    Σ_j w_i,j+1 over the earlier positions j of row i's token: what came next then
    positional   w_i,i+k, for the offset k with the largest mean
    sink         w_ij, for the position j with the largest mean
    chance       the same of equal weights, on earlier positions where nothing above the diagonal is read
    role         that with the largest (score − chance) / (1 − chance), if this is at least 0.5
    selectivity  mean_i KL(w_i ‖ mean_i w_i) in nats: how much what is read depends on who reads; 0 for a sink

Scores are means over rows. Rows that can read one position alone say nothing and are left out, and so is a detector
with fewer than three rows.

Paper: Analyzing Multi-Head Self-Attention (Voita et al., 2019) for positional heads; In-context Learning and Induction
Heads (Olsson et al., 2022) for induction, measured there on repeated random tokens; Interpretability in the Wild (Wang
et al., 2022) for duplicate-token heads; Efficient Streaming Language Models with Attention Sinks (Xiao et al., 2023)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from foci.errors import ShapeError
from foci.metrics.attention import Array, as_weights

ROLES = ("previous", "duplicate", "induction", "positional", "sink")
"""The roles; of equal scores the first counts."""
CLEAR = 0.5
"""How far from chance towards 1 the score of a role must be."""
LEAST_ROWS = 3
"""With fewer rows a detector says nothing."""


class RoleScore(NamedTuple):
    """How far one head has one role.

    Attributes:
        score: the share of its weight that falls where the role reads.
        chance: what equal weights would have.
        place: of a positional head the offset k; of a sink its position.
    """

    score: float
    chance: float
    place: int | None = None

    @property
    def above_chance(self) -> float:
        """Where the score lies between chance, 0, and everything, 1."""
        return (self.score - self.chance) / (1.0 - self.chance) if self.chance < 1.0 else 0.0


def role_scores(
    weights: Array, tokens: Sequence[str] | None = None, *, self_attention: bool = True
) -> list[dict[str, RoleScore]]:
    """Return the scores of each head ``(H, L, S)`` by role; what cannot be measured is left out.

    Args:
        weights: the weights of one attention.
        tokens: what stands at each position: without them there are no duplicates and no induction.
        self_attention: whether rows and columns are the same positions; otherwise there are only sinks.

    Example:
        >>> weights = np.stack([np.eye(6, k=-1), np.full((6, 6), 1 / 6)])
        >>> [round(head["previous"].score, 3) for head in role_scores(weights)]
        [1.0, 0.167]
    """
    array = as_weights("role_scores", weights)
    if array.ndim != 3:
        raise ShapeError(f"role_scores: weights has shape {array.shape}, expected (head, row, column).")
    if self_attention and array.shape[1] != array.shape[2]:
        raise ShapeError(f"role_scores: weights has shape {array.shape}, expected square ones for self-attention.")
    if tokens is not None and len(tokens) != array.shape[2]:
        raise ShapeError(f"role_scores: there are {len(tokens)} tokens, expected {array.shape[2]}, one per column.")
    readable = _readable(array)
    uniform = readable / np.maximum(readable.sum(axis=1, keepdims=True), 1)
    both = np.concatenate([array, uniform[None]])
    found: list[dict[str, RoleScore]] = [{} for _ in array]
    if self_attention:
        for name, reads in _patterns(readable, tokens).items():
            rows = reads.any(axis=1)
            if rows.sum() >= LEAST_ROWS:
                *scores, chance = (both * reads)[:, rows].sum(axis=2).mean(axis=1)
                for head, score in zip(found, scores):
                    head[name] = RoleScore(float(score), float(chance))
        _best(found, "positional", _offsets(both, readable))
    rows = readable.any(axis=1)
    if rows.sum() >= LEAST_ROWS:
        _best(found, "sink", dict(enumerate(both[:, rows].mean(axis=1).T)))
    return found


def role_of(scores: dict[str, RoleScore]) -> str | None:
    """Return the role of a head with these scores, None if none is clear.

    Example:
        >>> role_of({"previous": RoleScore(0.9, 0.1), "sink": RoleScore(0.3, 0.1)})
        'previous'
    """
    best = max((name for name in ROLES if name in scores), key=lambda name: scores[name].above_chance, default=None)
    return best if best is not None and scores[best].above_chance >= CLEAR else None


def selectivity(weights: Array) -> Float[ndarray, "..."]:
    """Return how much what is read depends on who reads, in nats: the mutual information of row and column.

    Example:
        >>> sink, diagonal = [[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]
        >>> selectivity([sink, diagonal]).round(3).tolist()
        [0.0, 0.693]
    """
    return np.asarray(information(weights).sum(axis=-1).mean(axis=-1))


def information(weights: Array, readable: ndarray | None = None) -> Float[ndarray, "... L S"]:
    """Return ``w_ij ln(w_ij / q_ij)``: what is above 0 is read more by this row than by others.

    ``q`` is what a row would read if that did not depend on who reads: the mean of all rows. Where rows can read
    different positions, it is the mean of ``w_ij n_i`` over the rows that can read j, row i having ``n_i`` positions,
    scaled to add up to 1 over these.

    Args:
        weights: the weights of a head, or of several.
        readable: which positions ``(L, S)`` each row can read. Default: all.

    Example:
        >>> causal = np.tril(np.ones((3, 3)))
        >>> equal = causal / causal.sum(axis=-1, keepdims=True)
        >>> [float(information(equal, mask).sum().round(2)) for mask in (None, causal)]
        [0.91, 0.0]
    """
    array = as_weights("information", weights)
    among = np.ones(array.shape[-2:]) if readable is None else np.asarray(readable, dtype=float)
    odds = array * among.sum(axis=-1, keepdims=True)
    apart = among * (odds.sum(axis=-2) / np.maximum(among.sum(axis=-2), 1.0))[..., None, :]
    total = apart.sum(axis=-1, keepdims=True)
    apart = np.divide(apart, total, out=np.zeros_like(apart), where=total > 0)
    ratio = np.divide(array, apart, out=np.ones_like(apart), where=(array > 0) & (apart > 0))
    found: ndarray = array * np.log(ratio)
    return found


def _readable(weights: ndarray) -> ndarray:
    """Return which positions ``(L, S)`` each row can read; none where it is only one, or where no head reads any."""
    _, rows, columns = weights.shape
    readable = np.ones((rows, columns), dtype=bool)
    if rows == columns and not np.triu(weights, k=1).any():
        readable = np.tril(readable)
    readable[(readable.sum(axis=1) < 2) | ~weights.any(axis=(0, 2))] = False
    return readable


def _patterns(readable: ndarray, tokens: Sequence[str] | None) -> dict[str, ndarray]:
    """Return where each role reads, ``(L, S)``, among what can be read."""
    size = len(readable)
    found = {"previous": np.eye(size, k=-1, dtype=bool)}
    if tokens is not None:
        same = np.equal.outer(np.asarray(tokens, dtype=object), np.asarray(tokens, dtype=object)).astype(bool)
        found["duplicate"] = same & ~np.eye(size, dtype=bool)
        after = np.zeros_like(same)
        after[:, 1:] = np.tril(same, k=-1)[:, :-1]
        found["induction"] = after & ~np.eye(size, dtype=bool)  # in "a a" what came next is the row itself
    return {name: reads & readable for name, reads in found.items()}


def _offsets(both: ndarray, readable: ndarray) -> dict[int, ndarray]:
    """Return the mean weight of each head at each offset that at least half of the rows have."""
    found = {}
    rows = readable.any(axis=1).sum()
    for offset in range(1 - len(readable), len(readable)):
        there = np.diagonal(readable, offset)
        if there.sum() >= max(LEAST_ROWS, rows / 2):
            found[offset] = np.diagonal(both, offset, axis1=1, axis2=2)[:, there].mean(axis=1)
    return found


def _best(found: list[dict[str, RoleScore]], name: str, means: dict[int, ndarray]) -> None:
    """Give each head the place where it reads most; the last number of each mean is that of equal weights."""
    for number, head in enumerate(found):
        if means:
            place = max(means, key=lambda place: float(means[place][number]))
            head[name] = RoleScore(float(means[place][number]), float(means[place][-1]), place)
