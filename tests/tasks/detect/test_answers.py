"""Which boxes are right."""

import numpy as np

from foci.metrics.detection import Marked
from foci.tasks.detect.answers import Answer, Outcomes


def test_second_boxes_for_an_object_are_wrong_and_crowds_count_nothing():
    marked = Marked(
        np.array([[0.0, 0, 10, 10], [20, 20, 30, 30]]),
        np.array([0, 1]),
        np.array([False, True]),
        np.array([100.0, 100]),
    )
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 25, 25], [50, 50, 60, 60]])
    scores = np.array([[0.9, 0.0], [0.8, 0.0], [0.0, 0.7], [0.6, 0.0]])
    outcomes = Outcomes()
    outcomes.add(Answer(boxes, scores), marked)
    assert outcomes.scores == [0.9, 0.8, 0.6]
    assert outcomes.right == [True, False, False]
