"""Boxes, washes and dots over a picture."""

import numpy as np
import pytest
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from foci.viz.figure.boxes import class_of, draw_box, draw_points, draw_wash, hues_of, show_picture
from foci.viz.shaded_words import HUES

SIZE = (30, 50)


@pytest.fixture
def axes():
    axes = Figure().subplots()
    show_picture(axes, np.full((*SIZE, 3), 90, np.uint8))
    return axes


def test_a_class_is_a_label_without_its_probability():
    labels = ["red cell 0.93", "red cell 1", "0.5", "version 2.1.3", "猫 0.5"]
    assert [class_of(label) for label in labels] == ["red cell", "red cell", "0.5", "version 2.1.3", "猫"]


def test_a_ninth_class_has_the_first_hue_again():
    hues = hues_of([f"{letter} 0.{number}" for letter in "abcdefghi" for number in (5, 4)])
    assert hues[::2] == hues[1::2] == [*HUES, HUES[0]]


def test_labels_stand_above_their_boxes_or_at_the_edge_in_them(axes):
    draw_box(axes, [5, 10, 20, 20], "#ff0000", "below the edge")
    draw_box(axes, [-3, -2, 20, 20], "#ff0000", "at the edge", dashed=True)
    draw_box(axes, [40, 10, 60, 20], "#ff0000", "far right")
    above, inside, right = axes.texts
    assert [text.get_ha() for text in axes.texts] == ["left", "left", "right"]
    assert right.xy == (50, 10)
    assert (above.xy, above.get_va()) == ((5, 10), "bottom")
    assert (inside.xy, inside.get_va()) == ((0, 0), "top")
    assert [patch.get_linestyle() != "-" for patch in axes.patches] == [False, True, False]


def test_a_map_without_differences_has_no_line(axes, recwarn):
    draw_wash(axes, np.full((2, 3), 0.2), SIZE, Normalize(0, 0.2))
    assert not axes.collections
    draw_wash(axes, np.array([[0.0, 0.0, 0.2], [0.0, 0.0, 0.0]]), SIZE, Normalize(0, 0.2))
    assert len(axes.collections) == 2  # white on dark
    assert not recwarn.list


def test_points_without_weight_are_no_dots(axes):
    points = np.array([[0.1, 0.2, 0.0], [0.9, 0.8, 0.5], [0.5, 0.5, 0.25]])
    draw_points(axes, points, SIZE, Normalize(0, 0.5))
    dots = axes.collections[0]
    np.testing.assert_allclose(dots.get_offsets(), [[45, 24], [25, 15], [5, 6]])
    np.testing.assert_allclose(dots.get_sizes() / dots.get_sizes()[0], [1, 0.5, 0])
