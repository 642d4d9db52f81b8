"""Drawn scenes: shapes where their boxes say, captions and questions that are true of them."""

import numpy as np
import pytest

from foci.data.images.drawn import COLORS, SHAPES, Scene, Shape, caption, draw, find_scene, questions, scene_name
from foci.errors import ConfigError, DataError

SCENES = [find_scene(scene_name("several", "test", 0, number)) for number in range(200)]


def test_a_name_is_the_whole_scene():
    name = scene_name("several", "train", 3, 11)
    assert find_scene(name) == find_scene(name)
    assert (draw(find_scene(name), 31) == draw(find_scene(name), 31)).all()
    others = {
        find_scene(scene_name("several", *key)).shapes for key in (("test", 3, 11), ("train", 4, 11), ("train", 3, 1))
    }
    assert find_scene(name).shapes not in others
    assert len(others) == 3


@pytest.mark.parametrize("name", ["drawn:one/train/0", "one/train/0/1", "drawn:one/train/x/1", "drawn:two/train/0/1"])
def test_other_names_are_errors(name):
    with pytest.raises(DataError):
        find_scene(name)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_shape_fills_its_box_and_nothing_else(kind):
    shape = Shape(kind, "red", 0.6, 0.4, 0.23)
    size = 61
    with_shape = draw(Scene("", (shape,), 0.5, 7), size).astype(int)
    without = draw(Scene("", (), 0.5, 7), size).astype(int)
    changed = np.abs(with_shape - without).sum(axis=2) > 0
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    box = shape.box
    edges = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / size
    assert np.abs(edges - shape.outline).max() <= 1.5 / size
    assert (edges[:2] >= np.array([box.left, box.top]) - 1 / size).all()
    assert (edges[2:] <= np.array([box.right, box.bottom]) + 1 / size).all()
    assert edges[2] - edges[0] > 0.6 * (box.right - box.left)
    assert edges[3] - edges[1] > 0.6 * (box.bottom - box.top)
    shares = changed.mean() / (0.46**2)
    assert 0.2 < shares < 0.95


def test_shapes_lie_inside_and_apart():
    for scene in SCENES:
        for number, one in enumerate(scene.shapes):
            assert min(one.box) >= -1e-9
            assert max(one.box) <= 1 + 1e-9
            for other in scene.shapes[:number]:
                assert one.box.left >= other.box.right or one.box.top >= other.box.bottom
        assert len(scene.shapes) in (2, 3)
    assert {len(scene.shapes) for scene in SCENES} == {2, 3}


def test_scattered_shapes_lie_inside_and_hardly_overlap():
    scenes = [find_scene(scene_name("scattered", "test", 0, number)) for number in range(200)]
    assert {len(scene.shapes) for scene in scenes} == {1, 2, 3, 4, 5}
    assert {shape.kind for scene in scenes for shape in scene.shapes} == {*SHAPES}
    for scene in scenes:
        for number, one in enumerate(scene.shapes):
            assert min(one.box) >= -1e-9
            assert max(one.box) <= 1 + 1e-9
            for other in scene.shapes[:number]:
                assert np.hypot(one.x - other.x, one.y - other.y) >= 0.9 * (one.radius + other.radius)
    assert all(f"a {one.color} {one.kind}" in caption(scene) for scene in scenes for one in scene.shapes)
    sizes = [shape.radius for scene in scenes for shape in scene.shapes]
    assert max(sizes) > 2 * min(sizes)


def test_captions_are_true_and_the_same_in_both_languages():
    sides = set()
    for scene in SCENES:
        first, second = scene.shapes[:2]
        text, chinese = caption(scene), caption(scene, "zh")
        for shape in scene.shapes:
            assert f"a {shape.color} {shape.kind}" in text
            assert f"{COLORS[shape.color][0]}的{SHAPES[shape.kind]}" in chinese
        if len(scene.shapes) == 2:
            beside = first.x < second.x and abs(first.x - second.x) > abs(first.y - second.y)
            above = first.y < second.y and abs(first.x - second.x) < abs(first.y - second.y)
            assert beside or above
            assert (" left of " if beside else " above ") in text
            assert chinese.endswith("左边" if beside else "上面")
            sides.add(beside)
    assert sides == {True, False}
    with pytest.raises(ConfigError, match="unknown language 'fr'"):
        caption(SCENES[0], "fr")


def test_answers_are_true():
    kinds = set()
    for scene in SCENES:
        asked, chinese = questions(scene), questions(scene, "zh")
        assert [one.about for one in asked] == [one.about for one in chinese]
        assert len({one.question for one in asked}) == len(asked)
        for question, answer, about in asked:
            words = question.rstrip("?").split()
            kinds.add(words[0] + " " + words[1])
            if question.startswith("what colour"):
                assert [one.color for one in scene.shapes if one.kind == words[-1]] == [answer]
            elif question.startswith("what shape"):
                assert [one.kind for one in scene.shapes if one.color == words[-1]] == [answer]
            elif question.startswith("how many"):
                assert ["zero", "one", "two", "three"].index(answer) == len(scene.shapes)
            elif question.startswith("is there"):
                assert (answer == "yes") == any(one.color == words[3] for one in scene.shapes) == bool(about)
            else:
                here = next(one for one in scene.shapes if (one.color, one.kind) == tuple(words[-2:]))
                axis, sign = {"left": ("x", 1), "right": ("x", -1), "above": ("y", 1), "below": ("y", -1)}[words[2]]
                assert any(
                    one.kind == answer and sign * (getattr(here, axis) - getattr(one, axis)) > 0.1
                    for one in scene.shapes
                )
    assert kinds == {"what colour", "what shape", "how many", "is there", "what is"}
