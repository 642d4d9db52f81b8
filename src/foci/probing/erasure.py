"""Whether the tokens that were read most are those that the answer hangs on.

    comprehensiveness   mean_k  p(y | x) − p(y | x without the k % of tokens read most)         high: they were needed
    sufficiency         mean_k  p(y | x) − p(y | the k % of tokens read most alone)             low: they are enough
    τ                   Kendall's τ-b between weights and  TV(p(· | x), p(· | x without token j))

y is what the model answers, k is 1, 5, 10, 20 and 50, at least one token. Of a long input τ is over 200 tokens, drawn
at random.

Paper: ERASER: A Benchmark to Evaluate Rationalized NLP Models (DeYoung et al., 2020) for the first two, Attention is
not Explanation (Jain, Wallace, 2019) for the third
Differs: an erased token keeps its place, with a neutral vector; the papers remove it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foci.metrics.ranking import kendall_tau
from foci.probing.subject import Erasing

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Of the tokens that are erased, or kept."""

_ALONE = 200
"""Tokens of a long input that are erased one by one; more than these are drawn at random."""

Scores = NDArray[np.float64]


class Erased(NamedTuple):
    """What became of the answer when tokens were erased in the order of a score."""

    comprehensiveness: float
    sufficiency: float
    tau: float


def erase(erasing: Erasing, scores: Mapping[str, Scores], trials: int, seed: int) -> tuple[dict[str, Erased], Scores]:
    """Erase the tokens of one source in the order of each score, and in random orders.

    Args:
        erasing: the subject, and the source.
        scores: ``(S,)`` each, by name.
        trials: number of random orders.
        seed: of them, and of the order of equal scores.

    Returns:
        What each score reached, and ``(trials, 2)``: comprehensiveness and sufficiency of the random orders.
    """
    places = np.array(erasing.source.erasable)
    generator = np.random.default_rng(seed)
    order = {name: _ordered(values[places], places, generator) for name, values in scores.items()}
    order |= {f"\0{number}": generator.permutation(places) for number in range(trials)}
    alone = generator.permutation(places)[:_ALONE]
    singly = [change.distance for change in erasing.changes([int(place)] for place in alone)]
    before = erasing.compared(erasing.before)[0].probability
    counts = [max(1, math.ceil(share * len(places))) for share in SHARES]
    sets = [part for one in order.values() for count in counts for part in (one[:count], one[count:])]
    after = np.array([change.probability for change in erasing.changes(part.tolist() for part in sets)])
    drops = (before - after.reshape(len(order), len(counts), 2)).mean(axis=1)
    found = {
        name: Erased(float(comprehensive), float(sufficient), kendall_tau(scores[name][alone], singly))
        for name, (comprehensive, sufficient) in zip(order, drops)
        if name in scores
    }
    return found, drops[len(scores) :]


def _ordered(values: Scores, places: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the places from the largest value to the smallest; equal ones in random order."""
    shuffled = generator.permutation(len(places))
    ordered: NDArray[np.int64] = places[shuffled[np.argsort(-values[shuffled], kind="stable")]]
    return ordered
