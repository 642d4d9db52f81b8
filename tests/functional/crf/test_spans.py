"""The probability of every span, against the sum over all tag sequences that have it."""

import itertools
import math

import pytest
import torch
from active_kernel import skip_unless_active

from foci.errors import ShapeError
from foci.functional.crf.spans import SpanTags, span_distribution
from foci.functional.kernels import crf as kernel
from foci.mechanisms.structured import constraints
from foci.metrics.spans import Span, strict_spans
from foci.tasks.tag.schemes import tag_names

LABELS = ("x", "y")
T = 4
PATTERNS = [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]]


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def path(request):
    """Every test runs on the C++ kernel and without it."""
    if request.param == "plain":
        request.getfixturevalue("missing")
    else:
        skip_unless_active(kernel)


def chain(names, seed, scale=1.0):
    torch.manual_seed(seed)
    count = len(names)
    emissions = scale * torch.randn(len(PATTERNS), T, count, dtype=torch.float64)
    transitions, start, end = torch.randn(count, count), torch.randn(count), torch.randn(count)
    return emissions, *(scale * part.double() for part in (transitions, start, end))


def span_tags(names, scheme):
    number = {name: place for place, name in enumerate(names)}
    of = lambda prefix: torch.tensor([number[f"{prefix}-{label}"] for label in LABELS])  # noqa: E731
    if scheme == "BIO":
        return SpanTags(of("B"), of("B"), of("I"), of("I"), of("I"))
    return SpanTags(of("S"), of("B"), of("I"), of("E"), torch.tensor([-1, -1]))


def every_span(names, scheme, emissions, transitions, start, end, valid):
    """P of each span (first step, last step, label) of one row, from all sequences."""
    steps = [step for step in range(T) if valid[step]]
    emissions, transitions, start, end = (part.tolist() for part in (emissions, transitions, start, end))
    scored = []
    for choice in itertools.product(range(len(names)), repeat=len(steps)):
        score = sum(emissions[step][tag] for step, tag in zip(steps, choice))
        score += sum(transitions[one][other] for one, other in itertools.pairwise(choice))
        score += start[choice[0]] + end[choice[-1]] if choice else 0.0
        scored.append((score, strict_spans([names[tag] for tag in choice], scheme)))
    highest = max(score for score, _ in scored)
    totals, total = {}, 0.0
    for score, spans in scored:
        weight = math.exp(score - highest)
        total += weight
        for first, last, label in spans:
            key = Span(steps[first], steps[last], label)
            totals[key] = totals.get(key, 0.0) + weight
    return {span: weight / total for span, weight in totals.items()}


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
@pytest.mark.parametrize("kind", ["free", "constrained", "forbidden emission", "far apart"])
def test_every_span_against_all_sequences(scheme, kind):
    names = tag_names(LABELS, scheme)
    emissions, transitions, start, end = chain(names, seed=3, scale=2000.0 if kind == "far apart" else 1.0)
    if kind in ("constrained", "far apart"):
        allowed = constraints(names, scheme)
        transitions = transitions.masked_fill(~allowed.allowed_transitions, -math.inf)
        start = start.masked_fill(~allowed.allowed_start, -math.inf)
        end = end.masked_fill(~allowed.allowed_end, -math.inf)
    if kind == "forbidden emission":
        emissions[:, 0, 2] = emissions[:, 2, 2] = -math.inf
    mask = torch.tensor(PATTERNS, dtype=torch.bool)
    found = span_distribution(emissions, transitions, start, end, mask, span_tags(names, scheme))
    everything = found.all().exp()
    assert everything.shape == (len(PATTERNS), T, T, len(LABELS))
    seen = 0
    for row, valid in enumerate(PATTERNS):
        wanted = every_span(names, scheme, emissions[row], transitions, start, end, valid)
        for first, longer, label in itertools.product(range(T), range(T), range(len(LABELS))):
            span = Span(first, first + longer, LABELS[label])
            have = float(everything[row, first, longer, label])
            assert have == pytest.approx(wanted.get(span, 0.0), abs=1e-10), (row, span)
        seen += len(wanted)
    assert seen > 40


def test_spans_that_share_a_word_exclude_each_other():
    names = tag_names(LABELS, "BIO")
    emissions, *rest = chain(names, seed=5)
    everything = span_distribution(emissions, *rest, None, span_tags(names, "BIO")).all().exp()
    for word in range(T):
        covering = [(first, last - first) for first in range(word + 1) for last in range(word, T)]
        total = sum(everything[:, first, longer].sum(-1) for first, longer in covering)
        assert (total < 1).all()
    torch.testing.assert_close(
        span_distribution(emissions, *rest, None, span_tags(names, "BIO")).all(2), everything[:, :, :2].log()
    )


def test_chosen_spans_equal_those_of_all():
    names = tag_names(LABELS, "BIOES")
    emissions, *rest = chain(names, seed=7)
    found = span_distribution(emissions.float(), *(part.float() for part in rest), None, span_tags(names, "BIOES"))
    row, first, last, label = torch.tensor([[0, 0, 3, 1], [4, 2, 2, 0], [2, 1, 2, 1]]).T
    want = found.all()[row, first, last - first, label]
    torch.testing.assert_close(found.log_probability(row, first, last, label), want)
    assert found.log_probability(row[:1], last[:1], first[:1], label[:1]).exp().item() == 0.0  # ends before it begins


def test_long_rows_stay_exact():
    """Sums over long rows: the spans of 600 words, of which a sliding window has the exact answer at both ends."""
    names = tag_names(LABELS, "BIO")
    torch.manual_seed(1)
    emissions = 5 * torch.randn(1, 600, len(names))
    zeros = torch.zeros(len(names))
    found = span_distribution(
        emissions, torch.zeros(len(names), len(names)), zeros, zeros, None, span_tags(names, "BIO")
    )
    shares = emissions.double().softmax(-1)  # without transitions the words are independent
    for first, last in ((0, 0), (300, 302), (597, 599)):
        want = shares[0, first, 1] * shares[0, first + 1 : last + 1, 2].prod()
        want = want * (1 if last == 599 else 1 - shares[0, last + 1, 2])
        index = [torch.tensor([value]) for value in (0, first, last, 0)]
        assert found.log_probability(*index).exp().item() == pytest.approx(want.item(), rel=1e-9)


def test_tags_that_are_none():
    emissions, zeros = torch.zeros(1, 2, 3), torch.zeros(3)
    one = torch.tensor([1])
    with pytest.raises(ShapeError, match="last lies outside of 0 to 2, expected numbers of tags"):
        span_distribution(emissions, torch.zeros(3, 3), zeros, zeros, None, SpanTags(one, one, one, one + 2, one))
    two = torch.tensor([1, 2])
    with pytest.raises(ShapeError, match=r"first has shape \(2,\).*expected one whole number for each of the 1 labels"):
        span_distribution(emissions, torch.zeros(3, 3), zeros, zeros, None, SpanTags(one, two, one, one, one))


def test_scores_that_are_no_numbers_spoil_their_row_only():
    names = tag_names(LABELS, "BIO")
    emissions, *rest = chain(names, seed=11)
    clean = span_distribution(emissions, *rest, None, span_tags(names, "BIO")).all()
    emissions = emissions.clone()
    emissions[1, 2, 0], emissions[2, 0, 1] = math.nan, math.inf
    found = span_distribution(emissions, *rest, None, span_tags(names, "BIO"))
    everything = found.all()
    possible = clean[1] > -math.inf
    assert everything[1][possible].isnan().all()
    assert everything[2][possible].isnan().all()
    torch.testing.assert_close(everything[[0, 3, 4]], clean[[0, 3, 4]])
    assert found.log_probability(*torch.tensor([[1], [0], [1], [0]])).isnan().all()


def test_a_row_that_allows_no_sequence_has_no_span():
    names = tag_names(LABELS, "BIO")
    emissions, *rest = chain(names, seed=13)
    emissions[2, 1] = -math.inf
    found = span_distribution(emissions, *rest, None, span_tags(names, "BIO"))
    assert (found.all()[2] == -math.inf).all()
    assert (found.all()[0].exp().sum() > 0).all()
    assert found.log_probability(*torch.tensor([[2], [0], [0], [1]])).exp().item() == 0.0


def test_empty_batches_and_rows():
    names = tag_names(LABELS, "BIO")
    count = len(names)
    nothing = torch.zeros(count, count), torch.zeros(count), torch.zeros(count)
    for batch, steps in ((0, 3), (2, 0)):
        found = span_distribution(torch.zeros(batch, steps, count), *nothing, None, span_tags(names, "BIO"))
        assert found.all().shape == (batch, steps, steps, len(LABELS))
