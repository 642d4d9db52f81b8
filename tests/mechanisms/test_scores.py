"""Each score as plain loops over the paper's equation, alone and inside Attention."""

import math

import pytest
import torch

import foci
from foci.errors import ConfigError, ShapeError
from foci.functional import scores
from foci.mechanisms.scores import Additive, Concat, Cosine, Dot, General, Location, LocationAware, ScaledDot

B, L, S, DQ, DK, A = 2, 3, 5, 7, 11, 13


def by_loops(query, key, cell):
    out = torch.zeros(query.shape[0], query.shape[1], key.shape[1], dtype=query.dtype)
    for b in range(query.shape[0]):
        for i in range(query.shape[1]):
            for j in range(key.shape[1]):
                out[b, i, j] = cell(query[b, i], key[b, j], j)
    return out


def total(numbers):
    return sum(float(n) for n in numbers)


@pytest.fixture
def pair():
    return torch.randn(B, L, DQ, dtype=torch.float64), torch.randn(B, S, DK, dtype=torch.float64)


@pytest.fixture
def same():
    return torch.randn(B, L, DQ, dtype=torch.float64), torch.randn(B, S, DQ, dtype=torch.float64)


def test_dot(same):
    expected = by_loops(*same, lambda q, k, j: total(q[d] * k[d] for d in range(DQ)))
    torch.testing.assert_close(Dot()(*same), expected)
    torch.testing.assert_close(scores.dot(*same), expected)


def test_scaled_dot(same):
    expected = by_loops(*same, lambda q, k, j: total(q[d] * k[d] for d in range(DQ)) / math.sqrt(DQ))
    torch.testing.assert_close(ScaledDot()(*same), expected)
    torch.testing.assert_close(scores.scaled_dot(*same), expected)
    torch.testing.assert_close(scores.scaled_dot(*same, scale=2.0), expected * math.sqrt(DQ) * 2)


def test_general(pair):
    score = General(DQ, DK).double()
    w = score.weight
    expected = by_loops(*pair, lambda q, k, j: total(q[a] * w[a, c] * k[c] for a in range(DQ) for c in range(DK)))
    torch.testing.assert_close(score(*pair), expected)
    torch.testing.assert_close(scores.general(*pair, w), expected)


def test_additive(pair):
    score = Additive(DQ, DK, A).double()
    w, u, v = score.query_layer.weight, score.key_layer.weight, score.vector

    def cell(s, h, j):
        hidden = [total(w[a, d] * s[d] for d in range(DQ)) + total(u[a, d] * h[d] for d in range(DK)) for a in range(A)]
        return total(v[a] * math.tanh(hidden[a]) for a in range(A))

    torch.testing.assert_close(score(*pair), by_loops(*pair, cell))


def test_concat(pair):
    score = Concat(DQ, DK, A).double()
    w, v = score.weight, score.vector

    def cell(q, k, j):
        both = torch.cat([q, k])
        return total(v[a] * math.tanh(total(w[a, d] * both[d] for d in range(DQ + DK))) for a in range(A))

    expected = by_loops(*pair, cell)
    torch.testing.assert_close(score(*pair), expected)
    torch.testing.assert_close(scores.concat(*pair, w, v), expected)


def test_cosine(same):
    score = Cosine(strength=3.0).double()

    def cell(q, k, j):
        lengths = math.sqrt(total(x * x for x in q)) * math.sqrt(total(x * x for x in k))
        return total(q[d] * k[d] for d in range(DQ)) / lengths

    expected = by_loops(*same, cell)
    torch.testing.assert_close(scores.cosine(*same), expected)
    torch.testing.assert_close(score(*same), 3 * expected)


def test_cosine_of_zeros_is_zero_with_finite_gradient():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        zeros = torch.zeros(1, 2, 3, dtype=dtype, requires_grad=True)
        out = scores.cosine(zeros, zeros)
        assert (out == 0).all()
        out.sum().backward()
        assert zeros.grad.isfinite().all()


def test_location(pair):
    score = Location(DQ, max_length=17).double()
    w = score.weight
    expected = by_loops(*pair, lambda q, k, j: total(w[j, d] * q[d] for d in range(DQ)))
    torch.testing.assert_close(score(*pair), expected)
    with pytest.raises(ShapeError, match=r"key ≤ 17.*max_length=18"):
        score(pair[0], torch.zeros(B, 18, DK, dtype=torch.float64))


def test_scores_broadcast_over_leading_axes():
    query, key = torch.randn(3, 1, 2, L, A), torch.randn(5, 1, S, A)
    vector = torch.randn(A)
    for score in (scores.dot, scores.scaled_dot, scores.cosine, lambda q, k: scores.additive(q, k, vector)):
        assert score(query, key).shape == (3, 5, 2, L, S)
        torch.testing.assert_close(score(query, key)[1, 2, 1], score(query[1, 0, 1], key[2, 0]))


def test_location_aware_by_loops():
    """Chorowski 2015, sections 2.2 and 2.3, cell by cell, over several steps."""
    width, filters = 3, 2
    attention = foci.Attention(
        DQ, DK, score=LocationAware(DQ, DK, A, num_filters=filters, kernel_size=width), sharpening=1.7
    )
    attention.double()
    query, key = torch.randn(B, L, DQ, dtype=torch.float64), torch.randn(B, S, DK, dtype=torch.float64)
    score = attention.score
    w, v, bias = score.query_layer.weight, score.key_layer.weight, score.key_layer.bias
    u, f = score.filter_layer.weight, score.filters.weight
    expected = torch.zeros(B, L, S, dtype=torch.float64)
    for b in range(B):
        previous = [0.0] * S
        for i in range(L):
            energy = []
            for j in range(S):
                location = []
                for c in range(filters):
                    cells = [(j + n - width // 2, n) for n in range(width)]
                    location.append(total(f[c, 0, n] * previous[cell] for cell, n in cells if 0 <= cell < S))
                hidden = [
                    total(w[a, d] * query[b, i, d] for d in range(DQ))
                    + total(v[a, d] * key[b, j, d] for d in range(DK))
                    + total(u[a, c] * location[c] for c in range(filters))
                    + float(bias[a])
                    for a in range(A)
                ]
                energy.append(1.7 * total(score.vector[a] * math.tanh(hidden[a]) for a in range(A)))
            top = [math.exp(e) for e in energy]
            previous = [e / sum(top) for e in top]
            expected[b, i] = torch.tensor(previous, dtype=torch.float64)
    read = attention(query, key)
    torch.testing.assert_close(read.weights.dense(), expected)
    torch.testing.assert_close(read.state, expected[:, -1])


def test_smoothing_and_windowing_are_batched():
    score = LocationAware(DQ, DK, A, num_filters=2, kernel_size=3)
    attention = foci.Attention(score=score, normalize="sigmoid", focus="median_window", window=(1, 2))
    query, key = torch.randn(B, L, DQ), torch.randn(B, S, DK)
    read = attention(query, key)
    weights = read.weights.dense()
    for b in range(B):
        for t in range(1, L):
            running, median = 0.0, 0
            while running + float(weights[b, t - 1, median]) < 0.5:
                running += float(weights[b, t - 1, median])
                median += 1
            for j in range(S):
                assert (weights[b, t, j] > 0) == (median - 1 <= j <= median + 2)
        torch.testing.assert_close(attention(query[b : b + 1], key[b : b + 1]).weights.dense()[0], weights[b])


def test_choices_that_do_not_fit():
    with pytest.raises(ConfigError, match="depends on the previous weights"):
        foci.Attention(3, 5, score="location_aware", focus="causal")
    with pytest.raises(ConfigError, match="odd"):
        LocationAware(3, 5, kernel_size=4)
    with pytest.raises(ConfigError, match="num_filters is 0, expected a whole number above 0"):
        LocationAware(3, 5, num_filters=0)
    with pytest.raises(ConfigError, match="needs query_dim and key_dim"):
        foci.Attention(score="general")
    with pytest.raises(ConfigError, match="expected the same"):
        foci.Attention(3, 5, score="dot")
    with pytest.raises(ConfigError, match="max_length"):
        foci.Attention(3, 5, score="location")
    with pytest.raises(ConfigError, match="needs window"):
        foci.Attention(focus="sliding_window")
    with pytest.raises(ConfigError, match="radius"):
        foci.Attention(focus="local_m")
    with pytest.raises(ConfigError, match="'local_p' predicts from the query"):
        foci.Attention(focus="local_p", radius=2)
    for key, value in (("score", "scaleddot"), ("normalize", "softmx"), ("focus", "locl_m")):
        with pytest.raises(ConfigError, match="Did you mean"):
            foci.Attention(**{key: value})
    with pytest.raises(ConfigError, match="learned parameters"):
        foci.attend(torch.ones(1, 1, 1), torch.ones(1, 1, 1), torch.ones(1, 1, 1), score="general")
