"""The picture of a detector's worst mistakes: which are drawn, in which order, beside which truth."""

import numpy as np
import pytest

from foci.errors import ConfigError
from foci.metrics.detection import Found, Marked
from foci.viz.figure.mistakes import Seen, draw_mistakes

LABELS = ["cat", "$dog$", "鸟"]
SIZE = (80.0, 200.0)


def square(x, y):
    return [x, y, x + 20.0, y + 20.0]


def scene():
    """A cat that is found twice, a dog that is a cat, a bird that is missed, and a box where nothing is."""
    marked = Marked.from_boxes(np.array([square(10, 10), square(60, 10), square(160, 50)]), np.array([0, 1, 2]))
    boxes = np.array([square(10, 10), square(11, 10), square(60, 12), square(160, 50), square(110, 50)])
    return Found(boxes, np.array([0, 0, 0, 2, 1]), np.array([0.9, 0.8, 0.7, 0.2, 0.6])), marked


def image(number):
    return Seen(np.full((40, 100, 3), 40 * number, np.uint8), SIZE, f"/a/folder/{number}.jpg")


def edges(patch):
    left, top = patch.get_xy()
    return [left, top, left + patch.get_width(), top + patch.get_height()]


def thick(axes):
    return [edges(patch) for patch in axes.patches if patch.get_linewidth() > 2]


def test_each_mistake_stands_beside_the_truth(tmp_path):
    found, marked = scene()
    drawn = draw_mistakes(tmp_path / "a.svg", [found], [marked], LABELS, image, threshold=0.5)
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles == [
        *("missed (at most 0.20)", "鸟 · 0"),
        *("cat 0.70", "$dog$ · 0"),
        *("cat 0.80", "cat, found already · 0"),
        *("$dog$ 0.60", "nothing · 0"),
    ]
    half = 0.5  # the picture has half of the pixels of the boxes
    expected = [None, square(160, 50), square(60, 12), square(60, 10), square(11, 10), square(10, 10), square(110, 50)]
    for axes, box in zip(drawn.axes, expected):
        assert thick(axes) == ([] if box is None else [pytest.approx(np.array(box) * half)])
    assert len(drawn.axes[0].patches) == 4  # of those that reach the threshold
    assert len(drawn.axes[1].patches) == 3
    texts = [text.get_text() for text in drawn.texts]
    assert texts[:3] == LABELS
    assert [text.split(";")[0] for text in texts[3:]] == [
        "1 missed objects, the least suspected first",
        "1 boxes of a wrong class, the surest first",
        "2 false boxes, the surest first",
    ]
    written = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(title in written for title in titles)


def test_the_part_that_is_shown_lies_in_the_image_and_has_the_box(tmp_path):
    found, marked = scene()
    drawn = draw_mistakes(tmp_path / "a.png", [found], [marked], LABELS, image, threshold=0.5)
    for axes in drawn.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert 0 <= left < right <= 100
        assert 0 <= top < bottom <= 40
        for x, y, v, w in thick(axes):
            assert left <= x < v <= right
            assert top <= y < w <= bottom


def test_the_worst_are_drawn_and_the_others_counted(tmp_path):
    found, marked = scene()
    several = [found._replace(scores=found.scores * share) for share in (0.9, 1.0, 0.95, 0.92)]
    asked = []

    def asked_for(number):
        asked.append(number)
        return image(number)

    drawn = draw_mistakes(tmp_path / "a.png", several, [marked] * 4, LABELS, asked_for, threshold=0.5, most=1)
    assert sorted({*asked}) == [0, 1]
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles == [
        "missed (at most 0.18)",
        "鸟 · 0",
        "cat 0.70",
        "$dog$ · 1",
        "cat 0.80",
        "cat, found already · 1",
    ]
    assert "4 boxes of a wrong class, the surest first (1 of 4 are drawn)" in drawn.texts[4].get_text()


def test_without_mistakes_it_says_so(tmp_path):
    _, marked = scene()
    right = Found(marked.boxes, marked.labels, np.ones(3))
    drawn = draw_mistakes(tmp_path / "a.png", [right], [marked], LABELS, image, threshold=0.5)
    assert drawn.texts[-1].get_text() == "no mistakes in 1 images"
    with pytest.raises(ConfigError, match="mistakes: path is 'a.txt'"):
        draw_mistakes(tmp_path / "a.txt", [right], [marked], LABELS, image, threshold=0.5)
