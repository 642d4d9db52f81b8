"""CTC by enumerating every path."""

import itertools
import math

import pytest
import torch

from foci.errors import ShapeError
from foci.functional import ctc

T, V = 5, 3


def tokens_of(path):
    merged = [symbol for symbol, _ in itertools.groupby(path)]
    return tuple(symbol for symbol in merged if symbol)


def all_paths(log_probs):
    for path in itertools.product(range(V), repeat=len(log_probs)):
        yield path, sum(float(log_probs[t, symbol]) for t, symbol in enumerate(path))


@pytest.fixture
def log_probs():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, T, V, generator=generator, dtype=torch.float64).mul(2).log_softmax(dim=-1)


@pytest.mark.parametrize("prefix", [(), (1,), (2,), (1, 1), (1, 2), (2, 2, 1), (1, 2, 1, 2)])
def test_prefixes_by_all_paths(log_probs, prefix):
    state = ctc.empty_prefix(log_probs)
    last = torch.full((2,), -1)
    for token in prefix:
        now = torch.full((2,), token)
        state, last = ctc.extend_prefix(log_probs, state, last, now), now
    scores = ctc.prefix_scores(log_probs, state, last)
    whole = ctc.whole_scores(state, torch.tensor([T, T - 2]))
    for row in range(2):
        for token in range(1, V):
            wanted = (*prefix, token)
            total = sum(
                math.exp(value) for path, value in all_paths(log_probs[row]) if tokens_of(path)[: len(wanted)] == wanted
            )
            assert math.exp(float(scores[row, token])) == pytest.approx(total, abs=1e-9)
        frames = log_probs[row, : T if row == 0 else T - 2]
        exactly = sum(math.exp(value) for path, value in all_paths(frames) if tokens_of(path) == prefix)
        assert math.exp(float(whole[row])) == pytest.approx(exactly, abs=1e-9)


def test_the_whole_score_is_torchs_loss(log_probs):
    state = ctc.empty_prefix(log_probs)
    last = torch.full((2,), -1)
    for token in (2, 1):
        now = torch.full((2,), token)
        state, last = ctc.extend_prefix(log_probs, state, last, now), now
    loss = torch.nn.functional.ctc_loss(
        log_probs.transpose(0, 1),
        torch.tensor([[2, 1]] * 2),
        torch.tensor([T, T]),
        torch.tensor([2, 2]),
        reduction="none",
    )
    assert torch.allclose(-ctc.whole_scores(state, torch.tensor([T, T])), loss)


@pytest.mark.parametrize("tokens", [(1,), (1, 2), (1, 1), (2, 1, 2), (2, 2, 1)])
def test_alignment_is_the_best_of_all_paths(log_probs, tokens):
    for row in log_probs:
        fitting = [(value, path) for path, value in all_paths(row) if tokens_of(path) == tokens]
        _, path = max(fitting)
        runs, start = [], 0
        for symbol, run in itertools.groupby(path):
            length = len(list(run))
            if symbol:
                runs.append((start, start + length - 1))
            start += length
        assert ctc.align(row, tokens) == runs


def test_too_few_frames_are_an_error(log_probs):
    assert ctc.align(log_probs[0], []) == []
    assert ctc.shortest_path([1, 1, 1]) == 5
    assert ctc.align(log_probs[0], [1, 1, 1]) == [(0, 0), (2, 2), (4, 4)]
    with pytest.raises(ShapeError, match="3 tokens need 5 frames, got 4"):
        ctc.align(log_probs[0, :4], [1, 1, 1])
