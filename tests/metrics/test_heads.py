"""Roles of heads: the definitions as loops, and heads that are made to have a role."""

import math

import numpy as np
import pytest
import torch

from foci.errors import DataError, ShapeError
from foci.metrics.heads import ROLES, role_of, role_scores, selectivity

TOKENS = ["the", "cat", "saw", "the", "cat", "and", "the", "dog", "saw"]
SIZE = len(TOKENS)


def softmaxed(heads, causal, seed=0, rows=SIZE, columns=SIZE):
    torch.manual_seed(seed)
    scores = 2 * torch.randn(heads, rows, columns)
    if causal:
        scores = scores.masked_fill(torch.ones(rows, columns).triu(1).bool(), -torch.inf)
    return scores.softmax(-1).double().numpy()


def reads(role, i, tokens, limit, place=None):
    """The positions that a head of this role reads in row i, of which the first ``limit`` can be read."""
    if role == "previous":
        found = [i - 1]
    elif role == "duplicate":
        found = [j for j in range(len(tokens)) if j != i and tokens[j] == tokens[i]]
    elif role == "induction":
        found = [j + 1 for j in range(i) if tokens[j] == tokens[i] and j + 1 != i]
    else:
        found = [i + place] if role == "positional" else [place]
    return [j for j in found if 0 <= j < limit]


def by_loops(weights, role, causal, place=None):
    """The score of one head and its chance."""
    shares, chances = [], []
    for i in range(SIZE):
        limit = i + 1 if causal else SIZE
        there = reads(role, i, TOKENS, limit, place)
        if limit < 2 or (not there and role != "sink"):
            continue
        shares.append(sum(weights[i][j] for j in there))
        chances.append(len(there) / limit)
    return sum(shares) / len(shares), sum(chances) / len(chances), len(shares)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_and_chances_are_those_of_the_definitions(causal):
    weights = softmaxed(5, causal)
    for head, scores in zip(weights, role_scores(weights, TOKENS)):
        assert set(scores) == set(ROLES)
        for role, (score, chance, place) in scores.items():
            assert (score, chance) == pytest.approx(by_loops(head, role, causal, place)[:2])
        rows = SIZE - 1 if causal else SIZE
        offsets = [
            k
            for k in range(1 - SIZE, SIZE)
            if sum(0 <= i + k < (i + 1 if causal else SIZE) for i in range(causal, SIZE)) >= max(3, rows / 2)
        ]
        best = max(by_loops(head, "positional", causal, k)[0] for k in offsets)
        assert scores["positional"].score == pytest.approx(best)
        assert scores["sink"].score == pytest.approx(max(by_loops(head, "sink", causal, j)[0] for j in range(SIZE)))


def made(role, causal, sharp=8.0):
    """A head that reads where its role does, and equally where that is nowhere."""
    place = {"positional": -2, "sink": 0}.get(role)
    scores = torch.zeros(SIZE, SIZE)
    for i in range(SIZE):
        for j in reads(role, i, TOKENS, i + 1 if causal else SIZE, place):
            scores[i, j] = sharp
    if causal:
        scores = scores.masked_fill(torch.ones(SIZE, SIZE).triu(1).bool(), -torch.inf)
    return scores.softmax(-1).numpy()


@pytest.mark.parametrize("causal", [False, True])
def test_heads_that_are_made_to_have_a_role_have_it(causal):
    weights = np.stack([made(role, causal) for role in ROLES])
    found = role_scores(weights, TOKENS)
    assert [role_of(scores) for scores in found] == list(ROLES)
    for role, scores in zip(ROLES, found):
        assert scores[role].above_chance > 0.95
    assert (found[3]["positional"].place, found[4]["sink"].place) == (-2, 0)
    assert found[0]["positional"].place == -1
    uniform = made("sink", causal, sharp=0.0)[None]
    assert role_of(role_scores(uniform, TOKENS)[0]) is None
    assert all(score.above_chance == pytest.approx(0, abs=1e-6) for score in role_scores(uniform, TOKENS)[0].values())


def test_what_cannot_be_measured_is_left_out():
    weights = softmaxed(2, False)
    assert set(role_scores(weights)[0]) == {"previous", "positional", "sink"}
    assert set(role_scores(weights, list("abcdefghi"))[0]) == {"previous", "positional", "sink"}
    assert set(role_scores(softmaxed(2, False, rows=4, columns=7), self_attention=False)[0]) == {"sink"}
    assert role_scores(softmaxed(1, False, rows=2, columns=2)) == [{}]
    assert role_of({}) is None
    weights[:, 3] = 0.0  # a row that is padding counts for nothing
    shares = [weights[0, i, i - 1] for i in range(1, SIZE) if i != 3]
    assert role_scores(weights)[0]["previous"].score == pytest.approx(np.mean(shares))


def test_selectivity_is_the_mutual_information():
    weights = softmaxed(3, False, rows=4, columns=7)
    for head, found in zip(weights, selectivity(weights)):
        mean = head.mean(axis=0)
        expected = sum(w * math.log(w / m) for row in head for w, m in zip(row, mean)) / 4
        assert found == pytest.approx(expected)
    assert selectivity(np.eye(5)) == pytest.approx(math.log(5))
    assert selectivity(np.full((5, 5), 0.2)) == pytest.approx(0)


def test_mistakes_are_named():
    with pytest.raises(ShapeError, match=r"\(heads, rows, columns\)|head, row, column"):
        role_scores(np.eye(3))
    with pytest.raises(ShapeError, match="2 tokens"):
        role_scores(softmaxed(1, False), ["a", "b"])
    with pytest.raises(ShapeError, match="square"):
        role_scores(softmaxed(1, False, rows=4, columns=7))
    with pytest.raises(DataError, match="below 0"):
        selectivity(-np.eye(3))
