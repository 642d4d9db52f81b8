"""Metrics of attention weights: entropy, coverage, monotonicity, movement, distance, agreement, rollout, alignment,
faithfulness.

Weights are arrays or tensors ``(…, L, S)``: L queries (targets), S positions (sources). Results are float64.

    entropy         H_i = −Σ_j w_ij ln w_ij                   coverage      c_j = Σ_i w_ij
    expected position  p_i = Σ_j j w_ij / Σ_j w_ij               monotonicity  share of i with p_i+1 ≥ p_i
    distance        d_i = Σ_j w_ij |j − i (S−1)/(L−1)| / Σ_j w_ij
    agreement       1 − JS(w_g, w_h) / ln 2                   rollout       R_l = A_l R_l−1,  A = r I + (1−r) mean_h W
    movement        ½ Σ_j |w_i+1,j − w_ij|, the mean over i, and the share of i with another largest position
    AER             1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

Paper: A Systematic Comparison of Various Statistical Alignment Models (Och, Ney, 2003) for the error rate; Quantifying
Attention Flow in Transformers (Abnar, Zuidema, 2020) for the rollout; Is Attention Interpretable? (Serrano, Smith,
2019) for removing what was attended to most
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike
from torch import Tensor

from foci.errors import ConfigError, DataError, ShapeError
from foci.weights.reductions import entropy_of_weights

Array = ArrayLike | Tensor

_LINK = re.compile(r"(\d+)([-p?])(\d+)")


def entropy(weights: Array) -> Float[ndarray, "... L"]:
    """Return ``−Σ_j w_ij ln w_ij`` in nats: 0 for a row with one position of weight 1, ln S for a uniform one.

    Example:
        >>> entropy([[1.0, 0.0], [0.5, 0.5]]).round(3).tolist()
        [0.0, 0.693]
    """
    return row_entropy(as_weights("entropy", weights))


def coverage(weights: Array) -> Float[ndarray, "... S"]:
    """Return ``c_j = Σ_i w_ij``, the total weight of each position over all rows.

    Example:
        >>> coverage([[0.75, 0.25, 0.0], [0.5, 0.5, 0.0]]).tolist()
        [1.25, 0.75, 0.0]
    """
    covered: ndarray = as_weights("coverage", weights).sum(axis=-2)
    return covered


def monotonicity(weights: Array) -> Float[ndarray, "..."]:
    """Return the share of steps at which the expected position ``p_i = Σ_j j w_ij / Σ_j w_ij`` does not go back.

    1 for a monotonic alignment; rows without weight are skipped; with fewer than two others it is 1.

    Example:
        >>> float(monotonicity([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
        0.5
    """
    array = as_weights("monotonicity", weights)
    shares = np.ones(array.shape[:-2])
    for index in np.ndindex(shares.shape):
        shares[index] = _monotone_share(array[index])
    return shares


class Movement(NamedTuple):
    """The result of `movement`."""

    variation: float
    """The mean total-variation distance of each row from the one before: 0 if all are equal, 1 if they are disjoint."""
    changed: float
    """The share of rows whose largest position is not that of the row before."""


def movement(weights: Array) -> Movement:
    """Measure how far attention ``(L, S)`` moves from row to row.

    Rows without weight are skipped; both metrics are 0 with fewer than two others.

    Example:
        >>> movement([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]])
        Movement(variation=0.5, changed=0.5)
    """
    array = as_weights("movement", weights)
    if array.ndim != 2:
        raise ShapeError(
            f"movement: weights has shape {array.shape}, expected (row, column). Take the mean over heads."
        )
    rows = array[array.sum(axis=-1) > 0]
    if len(rows) < 2:
        return Movement(0.0, 0.0)
    largest = rows.argmax(axis=-1)
    variation = np.abs(np.diff(rows, axis=0)).sum(axis=-1).mean() / 2
    return Movement(float(variation), float((np.diff(largest) != 0).mean()))


def diagonality(weights: Array) -> float:
    """Return the correlation of the number of a row with its expected position, of one alignment ``(L, S)``.

    1 is a straight line from the first to the last position, 0 an attention that stays where it is. Rows without
    weight are left out; fewer than three others give 1.

    Example:
        >>> round(diagonality(np.eye(5)), 9), diagonality(np.full((5, 7), 1 / 7))
        (1.0, 0.0)
    """
    array = as_weights("diagonality", weights)
    total = array.sum(axis=-1)
    rows = np.flatnonzero(total > 0)
    if len(rows) < 3:
        return 1.0
    centers = (array[rows] * np.arange(array.shape[-1])).sum(axis=-1) / total[rows]
    if np.ptp(centers) < 1e-6 * max(array.shape[-1], 1):
        return 0.0
    return float(np.corrcoef(rows, centers)[0, 1])


def distance(weights: Array) -> Float[ndarray, "... L"]:
    """Return the mean distance of each row from its own position: ``Σ_j w_ij |j − own_i| / Σ_j w_ij``.

    The own position of row i is ``i (S − 1) / (L − 1)``, on the diagonal; with as many rows as columns it is column i.
    A row without weight has distance 0.

    Example:
        >>> distance([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]).tolist()
        [0.0, 1.0, 2.0]
    """
    array = as_weights("distance", weights)
    rows, columns = array.shape[-2:]
    own = np.arange(rows) * ((columns - 1) / (rows - 1) if rows > 1 else 0.0)
    apart = np.abs(np.arange(columns) - own[:, None])
    total = array.sum(axis=-1)
    far: ndarray = np.divide((array * apart).sum(axis=-1), total, out=np.zeros_like(total), where=total > 0)
    return far


def head_agreement(weights: Array) -> Float[ndarray, "H H"]:
    """Return the agreement of each two heads ``(H, L, S)``: ``1 − JS(w_g, w_h) / ln 2``, the mean over rows.

    JS is the Jensen-Shannon divergence, ``H((p + q) / 2) − (H(p) + H(q)) / 2``. 1 for equal rows, 0 for rows that have
    no position in common. A row without weight in one of the two is skipped.

    Example:
        >>> head_agreement([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    array = as_weights("head_agreement", weights)
    if array.ndim != 3:
        raise ShapeError(f"head_agreement: weights has shape {array.shape}, expected (head, row, column).")
    heads = array.shape[0]
    single, read = row_entropy(array), array.sum(axis=-1) > 0
    agreement = np.ones((heads, heads))
    for one in range(heads):
        for other in range(one):
            both = read[one] & read[other]
            divergence = row_entropy((array[one] + array[other]) / 2) - (single[one] + single[other]) / 2
            if both.any():
                agreement[one, other] = agreement[other, one] = 1.0 - divergence[both].mean() / np.log(2.0)
    return agreement


def rollout(layers: Array, *, residual: float = 0.5) -> Float[ndarray, "N L L"]:
    """Return the share of each input in each position after each layer: ``R_l = A_l R_l−1``, ``A_l = r I + (1−r) W_l``.

    Args:
        layers: self-attention, first layer first, ``(N, L, L)`` or ``(N, H, L, L)``, of which heads the mean is taken.
        residual: r, the share of the residual connection; the paper's is 0.5.

    Example:
        >>> rollout([[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]])[-1].tolist()
        [[0.5, 0.5], [0.25, 0.75]]
    """
    array = as_weights("rollout", layers)
    if array.ndim not in (3, 4) or array.shape[-1] != array.shape[-2]:
        raise ShapeError(f"rollout: layers has shape {array.shape}, expected (layer, L, L) or (layer, head, L, L).")
    if not 0.0 <= residual <= 1.0:
        raise ConfigError(f"rollout: residual is {residual}, expected a number from 0 to 1.")
    if array.ndim == 4:
        array = array.mean(axis=1)
    size = array.shape[-1]
    reached = np.eye(size)
    steps = np.empty_like(array)
    for number, weights in enumerate(array):
        mixed = residual * np.eye(size) + (1.0 - residual) * weights
        total = mixed.sum(axis=-1, keepdims=True)  # below 1 where a row reads nothing
        reached = np.divide(mixed, total, out=np.zeros_like(mixed), where=total > 0) @ reached
        steps[number] = reached
    return steps


class Links(NamedTuple):
    """Aligned words as pairs ``(source, target)`` zero-based. Every sure link is possible too."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]] = frozenset()

    @property
    def all(self) -> frozenset[tuple[int, int]]:
        """The sure and the possible ones."""
        return self.sure | self.possible


def links(weights: Array, *, threshold: float | None = None) -> Links:
    """Return the alignment ``(L, S)`` as links: the source of largest weight per target, or all above a threshold.

    A target without weight has no link; of equal sources the first is taken.

    Example:
        >>> format_pharaoh([links([[0.1, 0.9], [0.6, 0.4]])])
        '0-1 1-0'
    """
    array = as_weights("links", weights)
    if array.ndim != 2:
        raise ShapeError(f"links: weights has shape {array.shape}, expected (row, column). Take the mean over heads.")
    if threshold is None:
        chosen = [(int(row.argmax()), number) for number, row in enumerate(array) if row.size and row.max() > 0]
    else:
        chosen = [(int(source), int(target)) for target, source in np.argwhere(array > threshold)]
    return Links(frozenset(chosen))


def alignment_error_rate(predicted: Iterable[Links], gold: Iterable[Links]) -> float:
    """Return ``1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)`` over all sentences: A predicted, S sure, P possible links.

    0 is best. P contains S; without any link at all the rate is 0.

    Example:
        >>> alignment_error_rate(parse_pharaoh("0-0 1-1 2-1"), parse_pharaoh("0-0 1-1 2-2"))
        0.33333333333333337
    """
    predicted, gold = list(predicted), list(gold)
    if len(predicted) != len(gold):
        raise ShapeError(f"alignment_error_rate: {len(predicted)} predicted sentences, but {len(gold)} gold ones.")
    hits = total = 0
    for ours, theirs in zip(predicted, gold):
        hits += len(ours.all & theirs.sure) + len(ours.all & theirs.all)
        total += len(ours.all) + len(theirs.sure)
    return 1.0 - hits / total if total else 0.0


def parse_pharaoh(text: str, *, first: int = 0) -> list[Links]:
    """Parse alignments in Pharaoh format, one line per sentence: ``0-0 1-2 2p1``, source first; ``p`` is only possible.

    Args:
        text: the lines.
        first: the number of the first word; 1 for corpora that count from 1.
    """
    sentences = []
    for number, line in enumerate(text.splitlines(), start=1):
        sure: set[tuple[int, int]] = set()
        possible: set[tuple[int, int]] = set()
        for entry in line.split():
            found = _LINK.fullmatch(entry)
            if found is None:
                raise DataError(
                    f"parse_pharaoh: line {number} has {entry!r}, expected source-target such as 3-4 or 3p4."
                )
            link = int(found[1]) - first, int(found[3]) - first
            if min(link) < 0:
                raise DataError(f"parse_pharaoh: line {number} has {entry!r}, but words are counted from {first}.")
            (sure if found[2] == "-" else possible).add(link)
        sentences.append(Links(frozenset(sure), frozenset(possible)))
    return sentences


def format_pharaoh(sentences: Iterable[Links], *, first: int = 0) -> str:
    """Return the lines that `parse_pharaoh` reads, links in order."""
    lines = []
    for sentence in sentences:
        marked = [
            (source, target, "-" if (source, target) in sentence.sure else "p") for source, target in sentence.all
        ]
        lines.append(" ".join(f"{source + first}{mark}{target + first}" for source, target, mark in sorted(marked)))
    return "\n".join(lines)


class Faithfulness(NamedTuple):
    """The result of `faithfulness`."""

    attended: float
    """How much the output changes without the most attended positions."""
    random: float
    """How much it changes on average without the same number of random other positions."""
    share: float
    """The share of random sets that change it less, ties counted half. 0.5 is chance, 1 is best."""


def faithfulness(
    output: Callable[[Sequence[int]], Array],
    weights: Array,
    *,
    remove: int = 1,
    trials: int = 20,
    seed: int = 0,
) -> Faithfulness:
    """Measure whether removing the most attended positions changes the output more than removing random others.

    With o = output, T the ``remove`` most attended positions and N the random sets, of as many others each:
    ``attended = |o(T) − o(∅)|₁``, ``random = mean_N |o(N) − o(∅)|₁``, ``share = P(random < attended) + P(equal) / 2``.

    Args:
        output: returns the model's output (preferably probabilities) without the given positions, for example by
            masking or leaving out those words.
        weights: ``(S,)``, the weight of each position; for several rows their mean.
        remove: number of positions removed at once.
        trials: number of random sets; with ``remove=1`` and no more other positions than that, each one once.
        seed: of the random sets.

    Example:
        >>> values = np.array([5.0, 1.0, 2.0])
        >>> faithfulness(lambda gone: np.delete(values, gone).sum(), [0.8, 0.1, 0.1])
        Faithfulness(attended=5.0, random=1.5, share=1.0)
    """
    array = np.atleast_1d(_as_numbers("faithfulness", weights))
    if array.ndim != 1:
        raise ShapeError(f"faithfulness: weights has shape {array.shape}, expected (position,): those of one row.")
    if remove < 1 or 2 * remove > len(array):
        raise ConfigError(
            f"faithfulness: remove is {remove}, expected 1 to {len(array) // 2}: of the {len(array)} positions as many "
            "others must be left to compare with."
        )
    if trials < 1:
        raise ConfigError(f"faithfulness: trials is {trials}, expected a number above 0.")
    order = np.argsort(-array, kind="stable")
    top, others = order[:remove], order[remove:]
    if remove == 1 and len(others) <= trials:
        sets = [[int(position)] for position in np.sort(others)]
    else:
        generator = np.random.default_rng(seed)
        sets = [np.sort(generator.choice(others, remove, replace=False)).tolist() for _ in range(trials)]
    whole = _as_numbers("faithfulness", output([]))

    def change(positions: Sequence[int]) -> float:
        return float(np.abs(_as_numbers("faithfulness", output(positions)) - whole).sum())

    attended = change(np.sort(top).tolist())
    changes = np.array([change(positions) for positions in sets])
    share = float((changes < attended).mean() + (changes == attended).mean() / 2)
    return Faithfulness(attended, float(changes.mean()), share)


def _as_numbers(owner: str, values: Array) -> ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise DataError(f"{owner}: there is NaN or an infinity among the numbers, expected finite ones.")
    return array


def as_weights(owner: str, weights: Array) -> ndarray:
    """Return weights ``(…, L, S)`` as an array of float64; ``owner`` is who says what is wrong with them."""
    array = _as_numbers(owner, weights)
    if array.ndim < 2:
        raise ShapeError(f"{owner}: weights has shape {array.shape}, expected (…, row, column).")
    if array.size and array.min() < 0:
        raise DataError(f"{owner}: weights holds numbers below 0. Take them after the normalizer (softmax).")
    return array


def row_entropy(weights: ndarray) -> ndarray:
    """Return the entropy of each row of an array that is known to hold weights; see `entropy`."""
    total: ndarray = entropy_of_weights(torch.from_numpy(np.require(weights, requirements="W"))).squeeze(-1).numpy()
    return total.clip(min=0.0)  # a weight that rounding left above 1 has a logarithm above 0


def _monotone_share(weights: ndarray) -> float:
    totals = weights.sum(axis=-1)
    read = totals > 0
    centers = (weights[read] @ np.arange(weights.shape[-1])) / totals[read]
    # To rounding: equal expected positions from float32 weights must not count as going back.
    return float((np.diff(centers) >= -1e-6).mean()) if len(centers) > 1 else 1.0
