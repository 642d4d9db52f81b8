"""Causal, sliding and local windows against plain loops over the cells they may read."""

import math

import pytest
import torch

import foci
from foci import masks
from foci.functional import windows
from foci.functional.stepwise import near_median
from foci.weights.sources import Windowed

B, L, S, D = 2, 5, 11, 7


def softmax(numbers):
    top = max(numbers, default=0.0)
    exps = [math.exp(n - top) for n in numbers]
    return [e / sum(exps) for e in exps]


def local_by_loops(scores, centers, radius, lengths, sigma=None):
    """Luong 2015, section 3.2: align over the window's cells, then the Gaussian."""
    out = torch.zeros_like(scores)
    for b in range(scores.shape[0]):
        for t in range(scores.shape[1]):
            p = float(centers[b][t])
            cells = [s for s in range(lengths[b]) if p - radius <= s <= p + radius]
            for s, weight in zip(cells, softmax([float(scores[b, t, s]) for s in cells])):
                out[b, t, s] = weight * (math.exp(-((s - p) ** 2) / (2 * sigma**2)) if sigma else 1.0)
    return out


@pytest.mark.parametrize("radius", [1, 2, 4, 13])
def test_local_m(radius):
    attention = foci.Attention(D, D, score="general", focus="local_m", radius=radius).double()
    query, key = torch.randn(B, L, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    lengths = [S, 3]
    read = attention(query, key, mask=masks.keys(masks.lengths(lengths, S)))
    expected = local_by_loops(attention.score(query, key), [range(L)] * B, radius, lengths)
    torch.testing.assert_close(read.weights.dense(), expected)
    torch.testing.assert_close(read.output, expected @ key)
    assert read.state.tolist() == [L, L]
    function = windows.local_m(query, key, key, radius=radius, score=attention.score.compare)
    assert function.weights.shape == (B, L, S)


@pytest.mark.parametrize("radius", [1, 2, 4, 13])
def test_local_p(radius):
    attention = foci.Attention(D, D, 3, score="general", focus="local_p", radius=radius).double()
    query, key = torch.randn(B, L, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    lengths = [S, 3]
    w, v = attention.focus.layer.weight, attention.focus.vector
    centers = [
        [
            lengths[b] / (1 + math.exp(-sum(float(v[a]) * math.tanh(float(w[a] @ query[b, t])) for a in range(3))))
            for t in range(L)
        ]
        for b in range(B)
    ]
    read = attention(query, key, mask=masks.keys(masks.lengths(lengths, S)))
    expected = local_by_loops(attention.score(query, key), centers, radius, lengths, sigma=radius / 2)
    torch.testing.assert_close(read.weights.dense(), expected)
    torch.testing.assert_close(read.output, expected @ key)
    function = windows.local_p(query, key, key, torch.full((B, L), 4.5), radius=radius)
    torch.testing.assert_close(
        function.weights.dense(),
        local_by_loops(foci.functional.scores.scaled_dot(query, key), [[4.5] * L] * B, radius, [S, S], radius / 2),
    )


def test_centers_of_half_precision_are_of_single_precision():
    """bfloat16 rounds 0.7 · 400 = 280 by up to 1, which moves windows and their Gaussians."""
    logits = torch.randn(3, 17).bfloat16()
    lengths = torch.tensor([[400], [317], [5]])
    found = windows.predicted_center(logits, lengths)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, lengths * torch.sigmoid(logits.float()))


def test_the_median_is_the_first_position_that_reaches_one_half():
    previous = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.0, 0.0, 0.5], [0.0, 0.25, 0.5, 0.25], [0.0] * 4])
    found = near_median(previous, 0, 0).squeeze(1)
    for row, weights in zip(found.tolist(), previous.tolist()):
        reached = [place for place in range(4) if sum(weights[: place + 1]) >= sum(weights) / 2]
        assert [place for place, near in enumerate(row) if near] == (reached[:1] if sum(weights) else [0, 1, 2, 3])


def test_local_never_builds_L_by_S():
    attention = foci.Attention(D, D, score="general", focus="local_p", radius=2)
    query, key = torch.randn(1, 3001, D), torch.randn(1, 3001, D)
    read = attention(query, key)
    assert isinstance(read.weights.source, Windowed)
    assert read.weights.source.weights.shape == (1, 3001, 5)


@pytest.mark.parametrize("focus", ["local_m", "local_p"])
@pytest.mark.parametrize("score", ["dot", "additive", "concat", "cosine", "location"])
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "entmax15", "sigmoid", "hard", "sample", "gumbel"])
def test_local_goes_with_every_score_and_normalizer(focus, score, normalize):
    sizes = {"max_length": S} if score == "location" else {}
    attention = foci.Attention(D, D, score=score, normalize=normalize, focus=focus, radius=2, **sizes).eval()
    read = attention(torch.randn(B, L, D), torch.randn(B, S, D), mask=masks.keys(masks.lengths([0, 4], S)))
    assert (read.output[0] == 0).all()
    assert read.output.isfinite().all()
    weights = read.weights.dense()
    assert (weights[1, :, 4:] == 0).all()
    if normalize in ("hard", "sample", "gumbel"):
        assert ((weights > 0).sum(-1) <= 1).all()
    assert (read.weights.log_prob is not None) == (normalize == "sample")


@pytest.mark.parametrize(("left", "right"), [(2, 3), (0, 0), (None, 0), (1, None), (40, 40)])
@pytest.mark.parametrize(("queries", "keys"), [(S, S), (L, S), (S, L)])
def test_sliding_window(left, right, queries, keys):
    attention = foci.Attention(focus=foci.mechanisms.focus.SlidingWindow(left, right))
    query, key = torch.randn(B, queries, D), torch.randn(B, keys, D)
    weights = attention(query, key).weights.dense()
    scores = foci.functional.scores.scaled_dot(query, key)
    for b in range(B):
        for i in range(queries):
            own = i + keys - queries
            near = [j for j in range(keys) if (left is None or j >= own - left) and (right is None or j <= own + right)]
            expected = torch.zeros(keys)
            if near:
                expected[near] = torch.softmax(scores[b, i, near], dim=-1)
            torch.testing.assert_close(weights[b, i], expected)


def test_causal_is_lower_right_aligned_and_equals_torch_when_square():
    x = torch.randn(B, S, D)
    ours = foci.attend(x, x, x, causal=True)
    theirs = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    torch.testing.assert_close(ours.output, theirs)
    last = foci.attend(x[:, -2:], x, x, causal=True)
    torch.testing.assert_close(last.output, ours.output[:, -2:])
    torch.testing.assert_close(last.weights.dense(), ours.weights.dense()[:, -2:])
