"""The loss of a set of boxes: matching against all permutations, losses against loops, no objects, gradients."""

import itertools
import math

import pytest
import torch

from foci.functional.boxes import generalized_iou, to_corners
from foci.models.decoders.objects import Answer
from foci.models.detector import DetectorOutput
from foci.models.options.detection import CrossEntropyLossOptions, FocalLossOptions
from foci.tasks.detect.set_loss import Targets, match, set_loss

CLASSES = 3
KINDS = [
    FocalLossOptions(gamma=1.5, positive_share=0.3, class_weight=1.7, distance_weight=3.1, overlap_weight=2.3),
    CrossEntropyLossOptions(empty_weight=0.2, class_weight=1.3, distance_weight=3.1, overlap_weight=2.3),
]
by_kind = pytest.mark.parametrize("options", KINDS, ids=[one.kind for one in KINDS])


def some_answer(options, batch, queries, seed):
    """Scores and boxes that lie inside of the picture."""
    generator = torch.Generator().manual_seed(seed)
    scores = CLASSES + (options.kind == "cross_entropy")
    return Answer(
        torch.randn(batch, queries, scores, generator=generator),
        0.1 + 0.4 * torch.rand(batch, queries, 4, generator=generator),
    )


def some_targets(counts, seed, size=None):
    size = max(counts) if size is None else size
    generator = torch.Generator().manual_seed(seed)
    valid = torch.arange(size) < torch.tensor(counts).unsqueeze(1)
    return Targets(
        0.1 + 0.4 * torch.rand(len(counts), size, 4, generator=generator),
        torch.randint(0, CLASSES, (len(counts), size), generator=generator),
        valid,
    )


def output_of(*answers):
    *earlier, last = answers
    return DetectorOutput(last.logits, last.boxes, tuple(earlier), {}, ())


def score_loss(logit, there, options):
    """The focal loss of one score."""
    p = 1 / (1 + math.exp(-logit))
    if there:
        return options.positive_share * (1 - p) ** options.gamma * -math.log(p)
    return (1 - options.positive_share) * p**options.gamma * -math.log(1 - p)


def cost(logits, box, label, wanted, options):
    """What it costs that one query is an object."""
    if options.kind == "focal":
        of_class = score_loss(logits[label], True, options) - score_loss(logits[label], False, options)
    else:
        of_class = -math.exp(logits[label]) / sum(math.exp(logit) for logit in logits)
    return options.class_weight * of_class + box_loss(box, wanted, options, apart=0.0)


def box_loss(box, wanted, options, apart=1.0):
    distance = sum(abs(float(a) - float(b)) for a, b in zip(box, wanted))
    overlap = float(generalized_iou(to_corners(box), to_corners(wanted)))
    return options.distance_weight * distance + options.overlap_weight * (apart - overlap)


def best(answer, targets, image, options):
    """The cheapest of all ways to give each object a query of its own."""
    objects = range(int(targets.valid[image].sum()))
    logits = answer.logits[image].tolist()

    def total(queries):
        return sum(
            cost(logits[q], answer.boxes[image, q], int(targets.labels[image, n]), targets.boxes[image, n], options)
            for n, q in zip(objects, queries)
        )

    return min(itertools.permutations(range(answer.logits.shape[1]), len(objects)), key=total)


def loss_of(answer, targets, options):
    """The loss of one layer in loops."""
    total = 0.0
    for image, of_image in enumerate(answer.logits.tolist()):
        queries = best(answer, targets, image, options)
        labels = {q: int(targets.labels[image, n]) for n, q in enumerate(queries)}
        for q, logits in enumerate(of_image):
            if options.kind == "focal":
                of_class = sum(score_loss(x, labels.get(q) == c, options) for c, x in enumerate(logits))
            else:
                right = labels.get(q, CLASSES)
                of_class = math.log(sum(math.exp(x) for x in logits)) - logits[right]
                of_class *= 1.0 if q in labels else options.empty_weight
            total += options.class_weight * of_class
        for n, q in enumerate(queries):
            total += box_loss(answer.boxes[image, q], targets.boxes[image, n], options)
    return total


@by_kind
def test_the_matching_is_the_cheapest_of_all(options):
    answers = [some_answer(options, batch=3, queries=5, seed=seed) for seed in (1, 2)]
    targets = some_targets([3, 0, 4], seed=3, size=5)
    logits = torch.stack([answer.logits for answer in answers])
    found = match(logits, torch.stack([answer.boxes for answer in answers]), targets, options)
    for layer, answer in enumerate(answers):
        for image in range(3):
            expected = best(answer, targets, image, options)
            assert found[layer, image].tolist() == [*expected, *[-1] * (5 - len(expected))]
    assert not torch.equal(found[0], found[1])  # each layer is matched for itself


@by_kind
def test_the_loss_is_that_of_the_loops_summed_over_layers(options):
    answers = [some_answer(options, batch=3, queries=5, seed=seed) for seed in (4, 5)]
    targets = some_targets([2, 0, 3], seed=6)
    loss = set_loss(output_of(*answers), targets, options)
    assert loss.total.item() == pytest.approx(sum(loss_of(answer, targets, options) for answer in answers), rel=1e-5)
    assert loss.count == 2 + 1 + 3
    last = loss.parts
    weighed = options.class_weight * last["class"] + options.distance_weight * last["distance"]
    assert (weighed + options.overlap_weight * last["overlap"]).item() == pytest.approx(
        loss_of(answers[-1], targets, options), rel=1e-5
    )


@by_kind
@pytest.mark.parametrize("size", [0, 2])
def test_images_without_objects_teach_that_nothing_is_there(options, size):
    answer = some_answer(options, batch=2, queries=5, seed=7)
    logits, boxes = (part.clone().requires_grad_() for part in answer)
    loss = set_loss(output_of(Answer(logits, boxes)), some_targets([0, 0], seed=8, size=size), options)
    assert (loss.count, loss.parts["distance"].item(), loss.parts["overlap"].item()) == (2, 0.0, 0.0)
    loss.total.backward()
    assert logits.grad.abs().sum() > 0
    assert torch.equal(boxes.grad, torch.zeros_like(boxes))


@by_kind
def test_parts_of_a_batch_add_up_to_it_and_padding_counts_for_nothing(options):
    answer = some_answer(options, batch=3, queries=5, seed=9)
    targets = some_targets([2, 0, 3], seed=10)
    whole = set_loss(output_of(answer), targets, options)
    totals, counts = [], []
    for image in range(3):
        alone = Targets(*(part[image : image + 1, : int(targets.valid[image].sum())] for part in targets))
        loss = set_loss(output_of(Answer(*(part[image : image + 1] for part in answer))), alone, options)
        totals.append(loss.total)
        counts.append(loss.count)
    torch.testing.assert_close(sum(totals), whole.total)
    assert sum(counts) == whole.count
    broken = targets._replace(boxes=targets.boxes.masked_fill(~targets.valid.unsqueeze(-1), 7.0))
    assert torch.equal(set_loss(output_of(answer), broken, options).total, whole.total)
    padded_first = Targets(*(part.flip(1) for part in targets))
    torch.testing.assert_close(set_loss(output_of(answer), padded_first, options).total, whole.total)


@by_kind
def test_objects_beyond_the_queries_are_left_out(options):
    answer = some_answer(options, batch=1, queries=2, seed=11)
    targets = some_targets([5], seed=12)
    query = match(answer.logits[None], answer.boxes[None], targets, options)[0, 0]
    assert sorted(query.tolist()) == [-1, -1, -1, 0, 1]
    kept = Targets(*(part[:, query >= 0] for part in targets))
    loss, expected = (set_loss(output_of(answer), one, options) for one in (targets, kept))
    torch.testing.assert_close(loss.total, expected.total)
    assert loss.count == 5


@by_kind
def test_gradients_are_those_of_the_total(options):
    answer = some_answer(options, batch=2, queries=3, seed=13)
    targets = some_targets([2, 1], seed=14)
    targets = targets._replace(boxes=targets.boxes.double())

    def total(logits, boxes):
        return set_loss(output_of(Answer(logits, boxes)), targets, options).total

    assert torch.autograd.gradcheck(total, tuple(part.double().requires_grad_() for part in answer))


@by_kind
def test_half_precision_is_summed_in_float32_and_numbers_that_are_not_finite_come_out(options):
    answer = some_answer(options, batch=2, queries=3, seed=13)
    targets = some_targets([2, 1], seed=14)
    half = Answer(answer.logits.bfloat16(), answer.boxes)
    full = set_loss(output_of(Answer(half.logits.float(), half.boxes)), targets, options)
    assert torch.equal(set_loss(output_of(half), targets, options).total, full.total)
    answer.logits[0, 0, 0] = torch.nan  # the training's message names the step; the matching must not be the first
    assert not set_loss(output_of(answer), targets, options).total.isfinite()
