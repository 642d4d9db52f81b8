"""Rankings beside scipy, loops over pairs, and what random rankings reach."""

import itertools

import numpy as np
import pytest

from foci.errors import ConfigError, ShapeError
from foci.metrics.ranking import average_precision, estimate, kendall_tau, marked_share


@pytest.mark.parametrize("levels", [3, 100])
def test_tau_is_that_of_scipy(levels):
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(3)
    for size in (2, 5, 23):
        first, second = generator.integers(levels, size=(2, size))
        expected = stats.kendalltau(first, second).statistic
        assert kendall_tau(first, second) == pytest.approx(0.0 if np.isnan(expected) else expected)


def test_tau_without_an_order_is_zero():
    assert kendall_tau([1, 1, 1], [1, 2, 3]) == 0.0
    assert kendall_tau([4], [2]) == 0.0
    with pytest.raises(ShapeError, match=r"\(2,\) and \(3,\)"):
        kendall_tau([1, 2], [1, 2, 3])


def precision_by_loops(scores, marked):
    total, before = 0.0, 0
    for border in sorted(set(scores), reverse=True):
        chosen = {place for place, score in enumerate(scores) if score >= border}
        hits = len(chosen & marked)
        total += (hits - before) * hits / len(chosen)
        before = hits
    return total / len(marked)


def test_average_precision_is_the_sum_over_thresholds():
    generator = np.random.default_rng(5)
    for size, marks, levels in itertools.product((3, 7, 13), (1, 3), (2, 50)):
        scores = generator.integers(levels, size=size).tolist()
        marked = set(generator.choice(size, marks, replace=False).tolist())
        assert average_precision(scores, marked) == pytest.approx(precision_by_loops(scores, marked))


def test_ties_have_the_mean_of_all_their_orders():
    scores, marked = [2.0, 1.0, 1.0, 1.0, 0.0], {0, 2, 4}
    found = []
    for order in itertools.permutations([1, 2, 3]):
        best = [0, *order][: len(marked)]
        found.append(len(marked & {*best}) / len(marked))
    assert marked_share(scores, marked) == pytest.approx(np.mean(found))


def test_random_scores_reach_the_share_of_what_is_marked():
    generator = np.random.default_rng(7)
    found = [(average_precision(s, range(30)), marked_share(s, range(30))) for s in generator.random((300, 100))]
    assert np.mean(found, axis=0) == pytest.approx([0.3, 0.3], abs=0.03)


def test_marks_beyond_the_scores_are_refused():
    for marked in ((), (3,), (-1,)):
        with pytest.raises(ConfigError, match="expected at least one of 0 to 2"):
            average_precision([1, 2, 3], marked)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    generator = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        found = estimate(generator.normal(2.0, 1.0, size=40).tolist())
        hits += found.low <= 2.0 <= found.high
    assert 180 <= hits <= 198
    assert estimate([0.5]).low is None
