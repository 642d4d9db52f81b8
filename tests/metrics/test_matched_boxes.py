"""Which boxes found which objects, against plain loops and against average precision."""

import numpy as np
import pytest
from scattered_boxes import scenes

from foci.metrics.detection import Found, Marked, average_precision, overlaps
from foci.metrics.matched_boxes import confusion, matched, mistakes


def by_loops(found, marked, threshold):
    """Return pairs of a box and its object, None for none, without boxes in crowds."""
    boxes = sorted(
        (place for place in range(len(found.scores)) if found.scores[place] >= threshold),
        key=lambda place: -found.scores[place],
    )
    taken = {}
    for of_class in (True, False):
        for box in boxes:
            best, chosen = 0.5, None
            for place in range(len(marked.labels)):
                share = overlaps(found.boxes[[box]], marked.boxes[[place]], np.array([False]))[0, 0]
                fits = (marked.labels[place] == found.labels[box]) == of_class
                is_better = share > best or (chosen is None and share == best)
                if box not in taken and place not in taken.values() and fits and not marked.crowd[place] and is_better:
                    best, chosen = share, place
            if chosen is not None:
                taken[box] = chosen
            elif of_class and box not in taken and _in_crowd(found, marked, box):
                taken[box] = "crowd"
    return {box: taken.get(box) for box in boxes}


def _in_crowd(found, marked, box):
    shares = overlaps(found.boxes[[box]], marked.boxes, np.ones(len(marked.boxes), dtype=bool))[0]
    return any(
        share >= 0.5 and crowd and label == found.labels[box]
        for share, crowd, label in zip(shares, marked.crowd, marked.labels)
    )


@pytest.mark.parametrize("crowds", [0.0, 0.4])
def test_boxes_take_objects_of_their_class_first(crowds):
    seen = set()
    for found, marked in zip(*scenes(2, images=29, crowds=crowds, num_classes=3)):
        pairs, expected = matched(found, marked, threshold=0.4), by_loops(found, marked, 0.4)
        named = [{-1: None, -2: "crowd"}.get(place, place) for place in pairs.objects.tolist()]
        assert dict(zip(pairs.boxes.tolist(), named)) == expected
        missed = set(np.flatnonzero(~marked.crowd)) - set(expected.values())
        assert pairs.missed(marked).tolist() == sorted(missed)
        seen |= {str(type(place)) for place in expected.values()}
    assert len(seen) == (3 if crowds else 2)


def test_the_diagonal_is_what_ap50_counts_as_right():
    found, marked = scenes(3, images=17)
    counts = confusion(found, marked, 5, threshold=0.0)
    scores = average_precision(found, marked, 5)
    objects = counts[:-1].sum(axis=1)
    np.testing.assert_array_equal(objects, scores.objects[0])
    np.testing.assert_allclose(counts.diagonal()[:4] / objects[:4], scores.recall[0, 0, -1, :4])
    assert counts.sum(axis=0)[:-1].tolist() == np.bincount(np.concatenate([f.labels for f in found])).tolist()
    assert counts[-1, -1] == 0
    assert (counts[:-1, :-1] - np.diag(counts.diagonal()[:-1])).any()


def test_a_confusion_by_hand():
    square = np.array([[0.0, 0.0, 10.0, 10.0]])
    truth = Marked.from_boxes(np.concatenate([square, square + 20, square + 40]), np.array([0, 1, 1]))
    predicted = np.concatenate([square, square + 20, square + 70, square + 40])
    found = Found(predicted, np.array([0, 0, 1, 1]), np.array([0.9, 0.8, 0.7, 0.2]))
    expected = [[1, 0, 0], [1, 0, 1], [0, 1, 0]]  # the box of the third object does not reach the score
    assert confusion([found], [truth], 2, threshold=0.5).tolist() == expected


@pytest.mark.parametrize("crowds", [0.0, 0.4])
def test_mistakes_are_all_that_is_off_the_diagonal(crowds):
    found, marked = scenes(5, images=19, crowds=crowds, scores=1009)
    seen = mistakes(found, marked, threshold=0.3)
    counts = confusion(found, marked, 5, threshold=0.3)
    assert len(seen.missed) == counts[:-1, -1].sum()
    assert len(seen.false) == counts[-1].sum()
    assert len(seen.wrong) == counts[:-1, :-1].sum() - counts.diagonal()[:-1].sum()
    for one in seen.wrong:
        assert found[one.image].labels[one.box] != marked[one.image].labels[one.object]
    for kind in (seen.wrong, seen.false):
        scores = [found[one.image].scores[one.box] for one in kind]
        assert scores == sorted(scores, reverse=True) == [one.score for one in kind]
    for one in seen.missed:
        boxes, objects = found[one.image], marked[one.image]
        shares = overlaps(boxes.boxes, objects.boxes[[one.object]], np.array([False]))[:, 0]
        suspected = (shares >= 0.5) & (boxes.labels == objects.labels[one.object])
        assert one.score == max(boxes.scores[suspected], default=0.0)
        # A box of the class that reaches the score may have taken an object that it covers more.
        assert one.score < 0.3 or suspected.sum() > 0
    assert [one.score for one in seen.missed] == sorted(one.score for one in seen.missed)
    for one in seen.false:
        share = overlaps(found[one.image].boxes[[one.box]], marked[one.image].boxes, marked[one.image].crowd)[0]
        assert (one.object is None) == (share.max(initial=0.0) < 0.5)
