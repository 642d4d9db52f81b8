"""Calibration: bins by loops, temperatures by trying many of them."""

import numpy as np
import pytest

from foci.errors import ShapeError
from foci.metrics.calibration import (
    HIGHEST,
    Odds,
    calibration,
    expected_calibration_error,
    fit_odds,
    fit_temperature,
    root,
)


def drawn(chance, count, classes, temperature):
    """Scores, and classes drawn from their softmax at a temperature."""
    scores = 3 * chance.normal(size=(count, classes))
    shares = np.exp(scores / temperature - (scores / temperature).max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return scores, np.array([chance.choice(classes, p=row) for row in shares])


def nats(scores, targets, temperature):
    total = 0.0
    for row, target in zip(scores, targets):
        logs = row / temperature
        total += np.log(np.exp(logs[np.isfinite(logs)]).sum()) - logs[target]
    return total


def test_bins_by_loops():
    chance = np.random.default_rng(0)
    shares, right = chance.random(301), chance.random(301) < 0.4
    expected = 0.0
    for low in np.arange(10) / 10:
        inside = [number for number, share in enumerate(shares) if low < share <= low + 0.1]
        expected += abs(sum(shares[number] - right[number] for number in inside)) / 301
    assert expected_calibration_error(calibration(shares.tolist(), right.tolist())) == pytest.approx(expected)
    with pytest.raises(ShapeError, match="1 probabilities and 2 outcomes"):
        calibration([0.5], [True, False])


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_temperature_of_drawn_classes_is_found(temperature):
    scores, targets = drawn(np.random.default_rng(1), 4000, 6, temperature)
    assert fit_temperature(scores, targets) == pytest.approx(temperature, rel=0.1)


def test_no_other_temperature_fits_better():
    chance = np.random.default_rng(2)
    scores, targets = drawn(chance, 70, 5, 2.0)
    absent = chance.random(scores.shape) < 0.3
    absent[np.arange(70), targets] = absent[np.arange(70), (targets + 1) % 5] = False
    scores[absent] = -np.inf
    found = fit_temperature(scores + 100 * chance.normal(size=(70, 1)), targets)

    def loss(temperature):  # with the prior: three times half the square of the logarithm
        return nats(scores, targets, temperature) + 1.5 * np.log(temperature) ** 2

    assert loss(found) <= min(loss(one) for one in np.geomspace(0.02, 50, 400)) + 1e-6
    unknown = np.concatenate([targets, [-1, -1]])
    assert fit_temperature(np.concatenate([scores, scores[:2]]), unknown) == pytest.approx(found, rel=1e-3)


def test_few_examples_hardly_change_the_temperature_and_many_decide():
    scores, all_right, all_wrong = 5 * np.eye(3)[np.arange(300) % 3], np.arange(300) % 3, (np.arange(300) + 1) % 3
    assert 0.8 < fit_temperature(scores[:6], all_right[:6]) < 1
    assert 0.3 < fit_temperature(scores, all_right) < 0.7
    assert fit_temperature(scores, all_wrong) > 20
    assert fit_temperature(np.zeros((0, 3)), np.zeros(0, int)) == pytest.approx(1, abs=1e-4)


def test_odds_of_drawn_events_are_found():
    chance = np.random.default_rng(4)
    scores = 3 * chance.normal(size=20_000)
    right = chance.random(20_000) < 1 / (1 + np.exp(-(0.5 * scores - 1)))
    found = fit_odds((1 / (1 + np.exp(-scores))).tolist(), right.tolist())
    assert found == pytest.approx((0.5, -1.0), abs=0.05)
    shares = [0.001, 0.2, 0.5, 0.9]
    after = found(shares)
    assert after == sorted(after)
    assert [found.before(share) for share in after] == pytest.approx(shares)
    assert Odds()(shares) == shares


def test_few_outcomes_change_probabilities_little():
    assert fit_odds([], []) == Odds(1, 0)
    assert fit_odds([1.0, 0.99], [True, True])([0.9])[0] == pytest.approx(0.9, abs=0.05)
    inverted = fit_odds([0.9] * 50 + [0.1] * 50, [False] * 50 + [True] * 50)
    assert inverted.scale > 0


def test_roots_lie_inside_their_bounds():
    for place in (0.011, 0.5, 3.3, 99.0):
        assert root(lambda beta, place=place: np.tanh(beta - place)) == pytest.approx(place, rel=2e-4)
    assert (root(lambda beta: beta + 1), root(lambda beta: beta - 200)) == (1 / HIGHEST, HIGHEST)


def test_odds_are_left_alone_where_they_are_right_already():
    random = np.random.default_rng(5)
    kept, changed, before, after = 0, 0, 0.0, 0.0
    for _ in range(40):
        shares = random.uniform(0.05, 0.95, 61)
        odds = fit_odds(shares.tolist(), (random.random(61) < shares).tolist())
        kept, changed = kept + (odds == Odds()), changed + (odds != Odds())
        many = random.uniform(0.05, 0.95, 2000)
        right = random.random(2000) < many
        for number, found in enumerate((many, np.array(odds(many.tolist())))):
            nats = -np.where(right, np.log(found), np.log(1 - found)).mean()
            before, after = (before + nats, after) if number == 0 else (before, after + nats)
    assert kept > 2 * changed  # a regression alone changes all of them
    assert (after - before) / 40 < 0.01


def test_probabilities_before_a_flat_calibration_are_finite():
    # The order of few spans may be worse than chance: the scale is then the least one, and all become nearly equal.
    odds = Odds(1 / HIGHEST, 7.0)
    found = [odds.before(share) for share in (1e-6, 0.3, 0.999, 1 - 1e-9)]
    assert all(0 <= share <= 1 for share in found)
    assert found == sorted(found)
