"""The mean boxes."""

import numpy as np

from foci.tasks.detect.baseline import mean_boxes


def test_mean_boxes_are_the_means_of_groups():
    left, right = [0.0, 0.0, 0.2, 0.2], [0.7, 0.0, 0.9, 0.2]
    near = [[edge + 0.02 for edge in box] for box in (left, right)]
    found = mean_boxes([[left, right, left], near, []], [["a", "a", "b"], ["a", "a"], []])
    assert found["label"] == "a"
    assert found["boxes"] == [[0.36, 0.01, 0.56, 0.21]]  # one per image on average: the mean of all
    found = mean_boxes([[left, right], near], [["a", "a"], ["a", "a"]])
    assert np.allclose(found["boxes"], [[0.01, 0.01, 0.21, 0.21], [0.71, 0.01, 0.91, 0.21]])
