"""Spans and their metrics against seqeval, by both conventions, on tags of every kind of disorder."""

import random

import pytest
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, IOBES, Entities

from foci.errors import ShapeError, UnknownNameError
from foci.metrics.calibration import calibration, expected_calibration_error
from foci.metrics.spans import Span, conlleval_spans, count_spans, macro_f1, micro, strict_spans

SCHEMES = {"BIO": IOB2, "BIOES": IOBES}


def random_tags(scheme, seed, count=60):
    """Sentences of tags in any order, so that most spans are malformed."""
    chance = random.Random(seed)
    prefixes = [prefix for prefix in scheme if prefix != "O"]
    names = ["O", *(f"{prefix}-{label}" for prefix in prefixes for label in ("LOC", "PER", "A-B"))]
    return [[chance.choice(names) for _ in range(chance.randint(1, 11))] for _ in range(count)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_are_those_of_seqeval(scheme):
    sentences = random_tags(scheme, seed=1, count=300)
    for tags in sentences:
        assert conlleval_spans(tags) == [Span(first, last, label) for label, first, last in get_entities(tags)]
    for tags, entities in zip(sentences, Entities(sentences, SCHEMES[scheme]).entities):
        want = [Span(one.start, one.end - 1, one.tag) for one in entities]
        assert strict_spans(tags, scheme) == want
    assert any(conlleval_spans(tags) != strict_spans(tags, scheme) for tags in sentences)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("strict", [False, True])
def test_figures_are_those_of_seqeval(scheme, strict):
    gold = random_tags(scheme, seed=2)
    chance = random.Random(3)
    predicted = [[tag if chance.random() < 0.8 else "O" for tag in tags] for tags in gold]
    read = (lambda tags: strict_spans(tags, scheme)) if strict else conlleval_spans
    counts = count_spans([read(tags) for tags in gold], [read(tags) for tags in predicted])
    how = {"mode": "strict", "scheme": SCHEMES[scheme]} if strict else {}
    overall = micro(counts)
    assert overall.f1 == pytest.approx(f1_score(gold, predicted, **how))
    assert overall.precision == pytest.approx(precision_score(gold, predicted, **how))
    assert overall.recall == pytest.approx(recall_score(gold, predicted, **how))
    assert macro_f1(counts) == pytest.approx(f1_score(gold, predicted, average="macro", **how))
    for label, f1 in zip(sorted(counts), f1_score(gold, predicted, average=None, **how)):
        assert counts[label].f1 == pytest.approx(f1)
    assert 0.1 < overall.f1 < 0.99
    assert 0 < accuracy_score(gold, predicted) < 1


def test_nothing_to_count():
    assert (micro({}).f1, macro_f1({}), micro({}).precision, micro({}).recall) == (0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ShapeError, match="2 sentences are gold, 1 predicted"):
        count_spans([[], []], [[]])
    with pytest.raises(UnknownNameError, match="BIO"):
        strict_spans(["O"], "BILOU")


def test_calibration_by_hand():
    shares = [0.05, 0.1, 0.100001, 0.95, 1.0, 0.0]
    right = [False, True, True, True, False, False]
    bins = calibration(shares, right)
    assert [one.size for one in bins] == [3, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bins[0].confidence == pytest.approx(0.05)
    assert bins[0].accuracy == pytest.approx(1 / 3)
    assert (bins[4].confidence, bins[4].accuracy) == (None, None)
    want = (3 * abs(1 / 3 - 0.05) + 1 * abs(1 - 0.100001) + 2 * abs(0.5 - 0.975)) / 6
    assert expected_calibration_error(bins) == pytest.approx(want)
    assert expected_calibration_error(calibration([], [])) == 0.0
    with pytest.raises(ShapeError, match="1 probabilities and 2 outcomes"):
        calibration([0.5], [True, False])
