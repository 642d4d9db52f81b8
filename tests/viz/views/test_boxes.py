"""Objects in an image and where their queries looked: the form of the trace, and what each view draws of it."""

from dataclasses import replace

import numpy as np
import pytest

from foci.errors import ConfigError, DataError, ShapeError
from foci.viz.axis import Axis
from foci.viz.regions import reduced, smooth
from foci.viz.selection import Selection
from foci.viz.terminal import PLAIN, Screen, render
from foci.viz.trace import Trace, TracedAttention
from foci.viz.views import choose

GRID = (3, 5)
BOXES = np.array([[0.0, 0.0, 0.4, 0.5], [0.5, 0.25, 1.0, 0.75]], np.float32)


def detected(heads=2, *, points=True, boxes=BOXES, seed=3):
    """A trace of an image of 60 × 100 pixels with two objects, whose weights and points are known."""
    chance = np.random.default_rng(seed)
    regions = GRID[0] * GRID[1]
    picture = chance.integers(60, 200, (60, 100, 3)).astype(np.uint8)
    cross = chance.dirichlet(np.ones(regions), (heads, len(boxes))).astype(np.float32)
    places = chance.random((heads, len(boxes), 4, 2))
    shares = chance.dirichlet(np.ones(4), (heads, len(boxes)))[..., None]
    seen = np.concatenate([places, shares], axis=-1).astype(np.float32) if points else None
    encoder = chance.dirichlet(np.ones(regions), (heads, regions)).astype(np.float32)
    return Trace(
        {
            "image": Axis.from_image(picture, GRID),
            "objects": Axis.from_boxes([f"cell {0.9 - 0.2 * place:.2f}" for place in range(len(boxes))], boxes),
        },
        {
            "encoder.0.self": TracedAttention("encoder.0.self", "image", "image", encoder),
            "decoder.0.cross": TracedAttention("decoder.0.cross", "image", "objects", cross, points=seen),
        },
    )


def test_a_trace_of_objects_is_saved_and_loaded_with_boxes_and_points(tmp_path):
    trace = detected()
    again = Trace.load(trace.save(tmp_path / "cells"))
    assert np.array_equal(again.axes["objects"].boxes, BOXES)
    assert np.array_equal(again.attention("decoder.0.cross").points, trace.attention("decoder.0.cross").points)
    assert again.attention("encoder.0.self").points is None
    assert np.array_equal(
        trace.select(heads=[1]).attention("decoder.0.cross").points, trace.attention("decoder.0.cross").points[1:]
    )


def test_boxes_and_points_that_cannot_be_are_refused():
    with pytest.raises(ShapeError, match=r"boxes has shape \(1, 4\), expected \(2, 4\)"):
        Axis.from_boxes(["a", "b"], [[0, 0, 1, 1]])
    with pytest.raises(DataError, match="left ≤ right"):
        Axis.from_boxes(["a"], [[1, 0, 0, 1]])
    with pytest.raises(ConfigError, match="kind 'tokens' has boxes"):
        replace(Axis.from_tokens(["a"]), boxes=BOXES[:1])
    with pytest.raises(ConfigError, match="kind 'objects' has no boxes"):
        Axis("objects", ("a",))
    cross = detected().attention("decoder.0.cross")
    for wrong in (cross.points[:1], cross.points[:, :1], cross.points[..., :2], cross.points[0]):
        with pytest.raises(ShapeError, match=r"points of 'decoder.0.cross' has shape .*, expected \(2, 2\) and then"):
            replace(cross, points=wrong)


# ---- figures


def box_of(patch):
    left, top = patch.get_xy()
    return [left, top, left + patch.get_width(), top + patch.get_height()]


def test_a_figure_has_all_boxes_and_then_each_object_with_its_map():
    trace = detected(points=False)
    drawn = trace.plot()
    whole, *each, bar = drawn.axes
    assert [box_of(patch) for patch in whole.patches] == pytest.approx(BOXES * [100, 60, 100, 60])
    assert [text.get_text() for text in whole.texts] == ["cell 0.90", "cell 0.70"]
    assert [axes.get_title() for axes in each] == ["cell 0.90", "cell 0.70"]
    weights = trace.attention("decoder.0.cross").dense()
    for row, axes in enumerate(each):
        picture, wash = axes.images
        assert np.array_equal(picture.get_array(), trace.axes["image"].image)  # in its colors
        spread = smooth(weights[row].reshape(GRID), 60, 100)
        np.testing.assert_allclose(wash.get_array(), spread)
        assert wash.get_alpha().max() <= 0.6  # the picture is seen below the largest weight, too
        np.testing.assert_allclose(wash.get_alpha() / wash.get_alpha().max(), spread / spread.max())
        line = axes.collections[0].get_paths()[0].vertices
        inside = [spread[int(y), int(x)] for x, y in np.clip(line, 0, [99, 59])]
        np.testing.assert_allclose(inside, spread.max() / 2, atol=0.15 * spread.max())
        assert box_of(axes.patches[0]) == pytest.approx(BOXES[row] * [100, 60, 100, 60])
    assert bar.get_ylabel() == "weight"
    assert float(bar.get_ylim()[1]) == pytest.approx(weights.max())
    assert drawn.get_supxlabel() == "decoder.0.cross · mean of 2 heads · line: half of the largest weight"


@pytest.mark.parametrize("head", [None, 1])
def test_points_are_dots_whose_areas_are_their_weights(head):
    trace = detected()
    points = trace.attention("decoder.0.cross").points
    drawn = trace.plot(head=head, words=[1])
    dots = drawn.axes[1].collections[0]
    expected = points[:, 1].reshape(-1, 3) * [1, 1, 1 / 2] if head is None else points[1, 1]
    order = np.argsort(-expected[:, 2], kind="stable")
    np.testing.assert_allclose(dots.get_offsets(), expected[order, :2] * [100, 60], rtol=1e-6)
    np.testing.assert_allclose(dots.get_array(), expected[order, 2], rtol=1e-6)
    np.testing.assert_allclose(dots.get_sizes() / dots.get_sizes().max(), expected[order, 2] / expected[:, 2].max())
    said = "mean of 2 heads" if head is None else "head 1"
    assert drawn.get_supxlabel() == f"decoder.0.cross · {said} · areas of dots: weights"


def test_an_encoder_is_drawn_from_the_middles_of_the_boxes():
    trace = detected()
    drawn = trace.plot(name="encoder.0.self", head=0)
    assert [axes.get_title() for axes in drawn.axes[1:-1]] == ["from row 1, column 2", "from row 2, column 4"]
    weights = trace.attention("encoder.0.self").dense(0)
    for axes, row in zip(drawn.axes[1:-1], (1, 8)):
        np.testing.assert_allclose(axes.images[1].get_array(), smooth(weights[row].reshape(GRID), 60, 100))
        left, top = 20 * (row % 5), 20 * (row // 5)
        assert box_of(axes.patches[0]) == pytest.approx([left, top, left + 20, top + 20])


def test_classes_have_hues_and_files_have_what_is_drawn(tmp_path):
    boxes = np.repeat(BOXES, 2, axis=0)
    trace = detected(boxes=boxes)
    labels = ["cat 0.91", "dog 0.80", "cat 0.50", "$x_1$ 三"]
    trace = replace(trace, axes={**trace.axes, "objects": Axis.from_boxes(labels, boxes)})
    drawn = trace.plot(tmp_path / "a.svg", width=3.3)
    hues = [text.get_bbox_patch().get_facecolor()[:3] for text in drawn.axes[0].texts]
    assert hues[0] == hues[2]
    assert len(set(hues)) == 3
    written = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(label in written for label in labels)


def test_what_the_view_cannot_draw_is_refused():
    trace = detected()
    with pytest.raises(ConfigError, match=r"word 2 is not among the 2 of 'objects'"):
        trace.plot(words=[2])
    words = Trace.from_arrays(np.eye(2), ["a", "b"])
    for draw in (lambda: words.plot(view="boxes"), lambda: render(words, view="boxes")):
        with pytest.raises(ConfigError, match="needs an attention of objects to an image, .* of tokens to tokens"):
            draw()


def test_an_image_without_objects():
    trace = detected(boxes=BOXES[:0])
    assert len(trace.plot().axes) == 1
    assert trace.plot(name="encoder.0.self").axes[1].get_title() == "from row 2, column 3"
    assert render(trace).endswith("(no cells)")
    lines = render(trace, "encoder.0.self").splitlines()
    assert lines[1:4] == ["no objects", "", "from row 2, column 3"]


def test_the_view_is_that_of_objects_alone():
    trace = detected()
    for form in ("figure", "terminal"):
        assert choose(Selection(trace, form=form)).__name__.endswith(".boxes")
        assert choose(Selection(trace, "encoder.0.self", form=form)).__name__.endswith(".boxes")
    alone = Trace({"image": trace.axes["image"]}, {"encoder.0.self": trace.attention("encoder.0.self")})
    assert choose(Selection(alone)).__name__.endswith(".image")


def test_a_large_image_is_drawn_with_fewer_pixels():
    image = np.arange(5 * 1000 * 3).reshape(5, 1000, 3).astype(np.uint8)
    small = reduced(image, 300)
    assert small.shape == (1, 250, 3)
    np.testing.assert_array_equal(small[0, 1], np.rint(image[:4, 4:8].mean(axis=(0, 1))))


# ---- the terminal


@pytest.mark.parametrize("screen", [Screen(80), Screen(80, blocks=PLAIN), Screen(80, 1 << 24)])
def test_the_terminal_has_a_table_of_boxes_and_coarse_maps(screen):
    trace = detected(points=False)
    lines = render(trace, screen=screen).splitlines()
    assert lines[0] == "decoder.0.cross · mean of 2 heads · objects ← image"
    assert lines[1].split() == ["left", "top", "right", "bottom", "pixels", "of", "100", "×", "60"]
    assert [line.split() for line in lines[2:4]] == [
        ["cell", "0.90", "0", "0", "40", "30"],
        ["cell", "0.70", "50", "15", "100", "45"],
    ]
    if screen.colors:
        return
    full = screen.blocks[-1]
    weights = trace.attention("decoder.0.cross").dense()
    assert "".join(lines[5].split()) == "cell0.90cell0.70"
    for row, begin in ((0, 1), (1, 15)):
        down, across = divmod(int(weights[row].argmax()), 5)
        maps = [line[begin : begin + 10] for line in lines[7:10]]
        assert maps[down][2 * across : 2 * across + 2] == 2 * full


def test_the_terminal_counts_what_it_does_not_show():
    lines = render(detected(), most_rows=1).splitlines()
    assert lines[-1] == "… and 1 more"
    assert any("cell 0.70" in line for line in lines)  # in the table
