"""Metrics of attention weights: each formula as plain loops, and cases worked by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from foci.errors import ConfigError, DataError, ShapeError
from foci.metrics import attention as metrics
from foci.metrics.attention import Links


def weights_of(*shape, seed=0):
    weights = np.exp(np.random.default_rng(seed).normal(size=shape))
    return weights / weights.sum(-1, keepdims=True)


def test_entropy_by_loops():
    weights = weights_of(2, 3, 5)
    for head in range(2):
        for row in range(3):
            expected = -sum(weight * math.log(weight) for weight in weights[head, row])
            assert math.isclose(metrics.entropy(weights)[head, row], expected)
    assert metrics.entropy([[0.0, 0.0], [0.0, 1.0]]).tolist() == [0.0, 0.0]
    assert metrics.entropy(np.full((1, 7), 1 / 7))[0] == pytest.approx(math.log(7))


def test_coverage_by_loops():
    weights = weights_of(3, 5)
    expected = [sum(weights[row, column] for row in range(3)) for column in range(5)]
    assert np.allclose(metrics.coverage(weights), expected)
    assert metrics.coverage(weights_of(2, 3, 5)).shape == (2, 5)


def test_monotonicity_by_loops():
    weights = weights_of(4, 7, 5)
    for head in range(4):
        places = [sum(place * weights[head, row, place] for place in range(5)) for row in range(7)]
        onward = sum(after >= before for before, after in pairwise(places))
        assert math.isclose(metrics.monotonicity(weights)[head], onward / 6)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [([0, 1, 2], 1.0), ([2, 1, 0], 0.0), ([0, 0, 2, 1, 1], 0.75), ([1], 1.0), ([], 1.0), ([0, None, 2, None, 1], 0.5)],
)
def test_monotonicity_by_hand(cells, expected):
    weights = np.zeros((len(cells), 3))
    for row, cell in enumerate(cells):
        if cell is not None:
            weights[row, cell] = 1.0
    assert metrics.monotonicity(weights) == expected


def test_rounding_does_not_go_back():
    weights = weights_of(1, 50).astype(np.float32).repeat(2, axis=0)
    weights[1] *= np.float32(1 - 1e-7)
    assert metrics.monotonicity(weights) == 1.0


def test_distance_by_loops():
    weights = weights_of(3, 5)
    for row in range(3):
        expected = sum(weights[row, column] * abs(column - row * 4 / 2) for column in range(5))
        assert math.isclose(metrics.distance(weights)[row], expected)
    assert metrics.distance(np.eye(4)).tolist() == [0.0] * 4
    assert metrics.distance([[0.0, 0.0], [2.0, 0.0]]).tolist() == [0.0, 1.0]
    assert metrics.distance([[0.0, 0.0, 1.0]]).tolist() == [2.0]


def test_head_agreement_by_loops():
    weights = weights_of(3, 4, 5)
    agreement = metrics.head_agreement(weights)
    for one in range(3):
        for other in range(3):
            divergence = 0.0
            for row in range(4):
                for p, q in zip(weights[one, row], weights[other, row], strict=True):
                    mean = (p + q) / 2
                    divergence += (p * math.log(p / mean) + q * math.log(q / mean)) / 2 / 4
            assert math.isclose(agreement[one, other], 1 - divergence / math.log(2))
    dead = [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
    assert metrics.head_agreement(dead)[0, 1] == 0.0


def test_rollout_by_loops():
    layers = weights_of(3, 2, 4, 4)
    steps = metrics.rollout(layers, residual=0.3)
    before = [[float(row == column) for column in range(4)] for row in range(4)]
    for layer in range(3):
        after = [[0.0] * 4 for _ in range(4)]
        for row in range(4):
            for column in range(4):
                for through in range(4):
                    weight = 0.7 * (layers[layer, 0, row, through] + layers[layer, 1, row, through]) / 2
                    after[row][column] += (weight + 0.3 * (row == through)) * before[through][column]
        assert np.allclose(steps[layer], after)
        before = after
    assert np.allclose(steps.sum(-1), 1.0)


def test_rollout_by_hand():
    swap = [[0.0, 1.0], [1.0, 0.0]]
    assert metrics.rollout([swap, swap])[-1].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert metrics.rollout([swap, swap], residual=0.0)[-1].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert metrics.rollout([[[0.0, 0.0], [1.0, 0.0]]])[0].tolist() == [
        [1.0, 0.0],
        [0.5, 0.5],
    ]  # a row that reads nothing


def test_links_from_weights():
    weights = [[0.1, 0.9, 0.0], [0.5, 0.1, 0.4], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
    assert metrics.links(weights).sure == {(1, 0), (0, 1), (0, 3)}
    assert metrics.links(weights, threshold=0.35).sure == {(1, 0), (0, 1), (2, 1), (0, 3), (1, 3)}
    assert metrics.links(np.zeros((2, 0))).sure == set()


def test_alignment_error_rate_by_hand():
    """A = 4 links, S = 3; A ∩ S = 2, A ∩ P = 3 with P containing S: 1 − (2 + 3) / (4 + 3)."""
    gold = metrics.parse_pharaoh("0-0 1-1 2-2 2p3")
    predicted = metrics.parse_pharaoh("0-0 1-1 2-3 3-3")
    assert metrics.alignment_error_rate(predicted, gold) == pytest.approx(1 - 5 / 7)
    assert metrics.alignment_error_rate(gold[:1], [Links(gold[0].all)]) == 0.0
    assert metrics.alignment_error_rate([Links(frozenset({(5, 5)}))], gold) == 1.0
    assert metrics.alignment_error_rate([Links(frozenset())], [Links(frozenset())]) == 0.0
    # Over a corpus the counts are added, not the rates.
    both = metrics.alignment_error_rate([*predicted, gold[0]], [*gold, gold[0]])
    assert both == pytest.approx(1 - (5 + 3 + 4) / (7 + 4 + 3))


def test_pharaoh_in_and_out():
    text = "0-0 1-2 2p1 10-3\n\n3?4"
    sentences = metrics.parse_pharaoh(text)
    assert sentences[0] == Links(frozenset({(0, 0), (1, 2), (10, 3)}), frozenset({(2, 1)}))
    assert sentences[1] == Links(frozenset(), frozenset())
    assert metrics.format_pharaoh(sentences) == "0-0 1-2 2p1 10-3\n\n3p4"
    assert metrics.parse_pharaoh(metrics.format_pharaoh(sentences)) == sentences
    assert metrics.parse_pharaoh("1-2", first=1)[0].sure == {(0, 1)}
    assert metrics.format_pharaoh(metrics.parse_pharaoh("1-2", first=1), first=1) == "1-2"


def test_faithfulness_by_hand():
    """The output is a sum of values: removing a cell changes it by exactly its value."""
    values = [1.0, 4.0, 2.0, 2.0]

    def output(gone):
        return [sum(value for cell, value in enumerate(values) if cell not in gone)]

    asked = []
    found = metrics.faithfulness(lambda gone: asked.append(list(gone)) or output(gone), [0.1, 0.6, 0.2, 0.1])
    assert found == (4.0, pytest.approx(5 / 3), 1.0)
    assert asked == [[], [1], [0], [2], [3]]
    assert metrics.faithfulness(output, [0.7, 0.1, 0.1, 0.1]) == (1.0, pytest.approx(8 / 3), 0.0)
    assert metrics.faithfulness(output, [0.1, 0.1, 0.7, 0.1]) == (2.0, pytest.approx(7 / 3), pytest.approx(1.5 / 3))
    two = metrics.faithfulness(output, [0.1, 0.5, 0.3, 0.1], remove=2)
    assert two == (6.0, 3.0, 1.0)  # of the others only one set of two is left


def test_faithfulness_of_many_cells_samples_by_its_seed():
    values = torch.randn(200, generator=torch.Generator().manual_seed(1)).abs()
    weights = (values * 3).softmax(-1)

    def output(gone):
        kept = torch.ones(200)
        kept[list(gone)] = 0.0
        return (values * kept).sum()

    asked = []
    found = metrics.faithfulness(lambda gone: asked.append(tuple(gone)) or output(gone), weights, remove=3, trials=7)
    assert len(asked) == 1 + 1 + 7
    assert set(asked[1]) == set(weights.topk(3).indices.tolist())
    assert not any(set(cells) & set(asked[1]) for cells in asked[2:])
    assert found.share == 1.0
    assert found.attended > found.random
    assert metrics.faithfulness(output, weights, remove=3, trials=7) == found
    assert metrics.faithfulness(output, weights, remove=3, trials=7, seed=1).random != found.random


@pytest.mark.parametrize("name", ["entropy", "coverage", "monotonicity", "distance", "head_agreement"])
def test_tensors_with_gradients_and_half_precision(name):
    weights = torch.rand(2, 3, 4, requires_grad=True).softmax(-1)
    measure = getattr(metrics, name)
    assert np.allclose(measure(weights), measure(weights.detach().numpy()))
    assert measure(weights.bfloat16()).dtype == np.float64


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: metrics.entropy([0.5, 0.5]), ShapeError, r"entropy: weights has shape \(2,\)"),
        (lambda: metrics.coverage([[0.5, math.nan]]), DataError, "coverage: there is NaN"),
        (lambda: metrics.distance([[0.5, -0.5]]), DataError, "distance: .*below 0"),
        (lambda: metrics.head_agreement(weights_of(2, 3)), ShapeError, r"\(2, 3\), expected \(head"),
        (lambda: metrics.rollout(weights_of(2, 3, 4)), ShapeError, r"\(2, 3, 4\), expected \(layer, L, L\)"),
        (lambda: metrics.rollout(weights_of(2, 3, 3), residual=1.5), ConfigError, "residual is 1.5"),
        (lambda: metrics.links(weights_of(2, 3, 4)), ShapeError, r"\(2, 3, 4\)"),
        (lambda: metrics.alignment_error_rate([], [Links(frozenset())]), ShapeError, "0 predicted .* 1 gold"),
        (lambda: metrics.parse_pharaoh("0-0\n1-2 x-3"), DataError, "line 2 has 'x-3'"),
        (lambda: metrics.parse_pharaoh("0-1", first=1), DataError, "line 1 has '0-1', but words are counted from 1"),
        (lambda: metrics.faithfulness(lambda gone: 0.0, [1.0]), ConfigError, "remove is 1, expected 1 to 0"),
        (lambda: metrics.faithfulness(lambda gone: 0.0, [0.5, 0.5], remove=0), ConfigError, "remove is 0"),
        (lambda: metrics.faithfulness(lambda gone: 0.0, [0.5, 0.5], trials=0), ConfigError, "trials is 0"),
        (lambda: metrics.faithfulness(lambda gone: 0.0, [[0.5, 0.5]]), ShapeError, r"\(1, 2\)"),
        (lambda: metrics.faithfulness(lambda gone: math.nan, [0.5, 0.5]), DataError, "NaN"),
    ],
)
def test_refuses_what_it_cannot_measure(call, error, message):
    with pytest.raises(error, match=message):
        call()
