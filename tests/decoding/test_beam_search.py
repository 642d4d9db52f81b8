"""Beam search: against enumeration of every hypothesis, and against plain loops."""

import itertools
import math
from typing import Any

import pytest
import torch
from searches import EOS, SOURCE, VALID, beam, log_prob_of, repeats
from table_model import TableModel

from foci.decoding import GenerationConstraints, Hypothesis
from foci.decoding.beam_search import top
from foci.errors import ConfigError

EVERYTHING = 100_000


def enumerate_all(
    model: TableModel,
    row: int,
    vocabulary: int,
    steps: int,
    alpha: float,
    form: str,
    beta: float,
    constraints: GenerationConstraints,
) -> list[Hypothesis]:
    """Every finished hypothesis of at most this many steps, best first, by plain loops."""
    source = SOURCE[row : row + 1, : int(VALID[row].sum())]
    words = [w for w in range(vocabulary) if w != EOS and w not in constraints.banned]
    found = []
    for length in range(constraints.min_length, steps):
        for tokens in itertools.product(words, repeat=length):
            if constraints.no_repeat_ngram and repeats(tokens, constraints.no_repeat_ngram):
                continue
            if constraints.prefix is not None:
                forced = list(constraints.prefix[row])
                if list(tokens[: len(forced)]) != forced:
                    continue
            log_prob = log_prob_of(model, source, [*tokens, EOS])
            size = length + 1
            score = log_prob / (((5 + size) / 6) ** alpha if form == "gnmt" else size**alpha)
            if beta:
                read = model(source, source > 0, torch.tensor([[1, *tokens]])).attentions["decoder.cross"].dense()[0]
                score += beta * sum(math.log(min(sum(column), 1.0)) for column in read.T.tolist())
            found.append(Hypothesis(list(tokens), score, log_prob, True))
    return sorted(found, key=lambda h: -h.score)


CHOICES: list[tuple[float, str, float, dict[str, Any]]] = [
    (0.0, "gnmt", 0.0, {}),
    (0.9, "gnmt", 0.4, {}),
    (1.0, "average", 0.0, {"min_length": 2}),
    (0.7, "average", 0.3, {"no_repeat_ngram": 2}),
    (0.6, "gnmt", 0.0, {"no_repeat_ngram": 1, "min_length": 1}),
    (0.5, "gnmt", 0.2, {"prefix": [[3], [], [4, 4]]}),
]


@pytest.mark.parametrize(("alpha", "form", "beta", "more"), CHOICES)
def test_a_full_beam_is_enumeration(alpha: float, form: str, beta: float, more: dict[str, Any]) -> None:
    vocabulary, steps = 7, 4
    model = TableModel(vocabulary, seed=3)
    constraints = GenerationConstraints(max_length=steps, banned=(0, 1, 6), **more)
    penalties = {"length_penalty": alpha, "length_form": form, "coverage_penalty": beta}
    found = beam(model, SOURCE, VALID, size=EVERYTHING, n_best=9, constraints=constraints, **penalties)
    for row, ours in enumerate(found):
        expected = enumerate_all(model, row, vocabulary, steps, alpha, form, beta, constraints)[:9]
        assert [h.tokens for h in ours if h.finished] == [h.tokens for h in expected]
        for a, b in zip(ours, expected):
            assert a.score == pytest.approx(b.score, abs=1e-9)
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-9)


def beam_by_loops(
    model: TableModel, row: int, size: int, n_best: int, alpha: float, steps: int, beta: float = 0.0
) -> list[Hypothesis]:
    """The search of the docstring without batches, caches or an early stop."""
    source = SOURCE[row : row + 1, : int(VALID[row].sum())]
    opened, finished = [([], 0.0)], []
    for length in range(1, steps + 1):
        candidates = []
        for tokens, total in opened:
            logs = model(source, source > 0, torch.tensor([[1, *tokens]])).logits[0, -1].log_softmax(-1)
            candidates += [([*tokens, w], total + float(logs[w])) for w in range(2, logs.shape[0])]
        candidates.sort(key=lambda pair: -pair[1])
        for tokens, total in candidates[:size]:
            if tokens[-1] == EOS:
                score = total / ((5 + length) / 6) ** alpha + beta * unread(model, source, tokens[:-1])
                finished.append(Hypothesis(tokens[:-1], score, total, True))
        opened = [pair for pair in candidates if pair[0][-1] != EOS][:size]
    finished = sorted(finished, key=lambda h: -h.score)[:n_best]
    for tokens, total in opened[: n_best - len(finished)]:
        score = total / ((5 + steps) / 6) ** alpha + beta * unread(model, source, tokens[:-1])
        finished.append(Hypothesis(tokens, score, total, False))
    return finished


def unread(model: TableModel, source: torch.Tensor, before: list[int]) -> float:
    """The coverage penalty of all steps, the last of which reads after the tokens ``before``."""
    read = model(source, source > 0, torch.tensor([[1, *before]])).attentions["decoder.cross"].dense()[0]
    return sum(math.log(min(sum(column), 1.0)) for column in read.T.tolist())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("size", "n_best", "alpha"), [(1, 1, 0.0), (2, 2, 0.6), (3, 1, 1.2), (5, 5, 0.0), (2, 1, 3.0)])
def test_the_early_stop_changes_nothing(seed: int, size: int, n_best: int, alpha: float) -> None:
    model = TableModel(7, seed=seed)
    found = beam(
        model,
        SOURCE,
        VALID,
        size=size,
        n_best=n_best,
        length_penalty=alpha,
        constraints=GenerationConstraints(max_length=12),
    )
    for row, ours in enumerate(found):
        expected = beam_by_loops(model, row, size, n_best, alpha, 12)
        assert [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in expected]
        assert [h.score for h in ours] == pytest.approx([h.score for h in expected])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beta", [0.3, 2.0])
@pytest.mark.parametrize("steps", [2, 9])
def test_coverage_follows_its_hypothesis(seed: int, beta: float, steps: int) -> None:
    """Hypotheses are reordered and sources dropped: the coverage of each must follow; few end within two steps."""
    model = TableModel(7, seed=seed)
    options = {"size": 3, "n_best": 3, "length_penalty": 0.5, "coverage_penalty": beta}
    found = beam(model, SOURCE, VALID, constraints=GenerationConstraints(max_length=steps), **options)
    for row, ours in enumerate(found):
        expected = beam_by_loops(model, row, 3, 3, 0.5, steps, beta)
        assert [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in expected]
        assert [h.score for h in ours] == pytest.approx([h.score for h in expected])


def test_top_by_blocks_is_topk() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5003)
    values, indices = top(scores, 7)
    expected = scores.topk(7, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


@pytest.mark.parametrize("size", [5003, 128 * 40, 128 * 40 + 1, 600])
def test_top_finds_the_best_wherever_they_stand(size: int) -> None:
    """Also in the tail that fills no block, at both ends, and all in one block."""
    places = [0, 1, 127, 128, size // 2, size - 2, size - 1]
    scores = torch.randn(2, size)
    scores[0, places] = torch.arange(100.0, 107.0)
    scores[1, size - 7 :] = torch.arange(200.0, 207.0)
    values, indices = top(scores, 7)
    expected = scores.topk(7, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 2, "n_best": 3}, "n_best is 3, expected at most size=2"),
        ({"size": 0}, "size is 0"),
        ({"length_penalty": -1.0}, "length_penalty is -1.0"),
        ({"length_form": "gmnt"}, "'gnmt'"),
        ({"stop": "exat"}, "'exact'"),
        ({"constraints": GenerationConstraints(prefix=[[3]])}, "1 prefixes for 3 sources"),
    ],
)
def test_wrong_options_of_beam(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        beam(TableModel(7), SOURCE, VALID, **options)
