"""The open hypotheses of a batch: the same for every search."""

import math

import pytest
from searches import EOS, SOURCE, VALID, beam, greedy, log_prob_of, sample
from table_model import TableModel

from foci.decoding import GenerationConstraints


def test_log_prob_is_the_models() -> None:
    model = TableModel(7)
    for row, (best,) in enumerate(greedy(model, SOURCE, VALID)):
        tokens = [*best.tokens, EOS] if best.finished else best.tokens
        assert best.log_prob == pytest.approx(log_prob_of(model, SOURCE[row : row + 1], tokens))


def test_log_prob_of_a_model_in_half_precision_has_single_precision() -> None:
    model, exact = TableModel(7, seed=2), TableModel(7, seed=2)
    model.table = model.table.bfloat16()
    exact.table = model.table.double()
    constraints = GenerationConstraints(min_length=9, max_length=9)
    for search in (greedy, beam):
        for row, (best,) in enumerate(search(model, SOURCE, VALID, constraints=constraints)):
            expected = log_prob_of(exact, SOURCE[row : row + 1], best.tokens)
            assert best.log_prob == pytest.approx(expected, rel=1e-5)


def test_a_batch_is_its_sentences_one_by_one() -> None:
    model = TableModel(7, seed=5)
    for search in (greedy, lambda *a: beam(*a, size=3, n_best=3, coverage_penalty=0.2)):
        together = search(model, SOURCE, VALID)
        for row in range(3):
            size = int(VALID[row].sum())
            (alone,) = search(model, SOURCE[row : row + 1, :size], VALID[row : row + 1, :size])
            assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
            assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]])


def test_finished_sentences_are_dropped() -> None:
    model = TableModel(7, seed=1)
    found = greedy(model, SOURCE, VALID)
    lengths = [len(h[0].tokens) + h[0].finished for h in found]
    assert len(set(lengths)) > 1
    assert model.calls == [sum(length > t for length in lengths) for t in range(max(lengths))]


def test_a_hypothesis_nothing_may_follow_comes_back_unfinished() -> None:
    model = TableModel(5)
    constraints = GenerationConstraints(min_length=9, no_repeat_ngram=1)
    for found in (
        greedy(model, SOURCE[1:2], VALID[1:2], constraints=constraints),
        beam(model, SOURCE[1:2], VALID[1:2], constraints=constraints),
    ):
        ((best,),) = found
        assert sorted(best.tokens) == [3, 4]
        assert not best.finished
        assert math.isfinite(best.log_prob)


def test_no_source_gives_nothing() -> None:
    model = TableModel(7)
    for search in (greedy, beam, sample):
        assert search(model, SOURCE[:0], VALID[:0]) == []
