"""Objects in an image and where their queries looked: the form of the trace, and what each view draws of it."""

import base64
import json
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from foci.errors import ConfigError, DataError, ShapeError
from foci.viz import colors
from foci.viz.axis import Axis
from foci.viz.regions import smooth
from foci.viz.selection import Selection
from foci.viz.terminal import PLAIN, Screen, render
from foci.viz.trace import Trace, TracedAttention
from foci.viz.views import choose

GRID = (3, 5)
CROSS = "decoder.0.cross"
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
    drawn = trace.plot(name=CROSS)
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
    drawn = trace.plot(name=CROSS, head=head, words=[1])
    dots = drawn.axes[1].collections[0]
    expected = points[:, 1].reshape(-1, 3) * [1, 1, 1 / 2] if head is None else points[1, 1]
    order = np.argsort(-expected[:, 2], kind="stable")
    np.testing.assert_allclose(dots.get_offsets(), expected[order, :2] * [100, 60], rtol=1e-6)
    np.testing.assert_allclose(dots.get_array(), expected[order, 2], rtol=1e-6)
    np.testing.assert_allclose(dots.get_sizes() / dots.get_sizes().max(), expected[order, 2] / expected[:, 2].max())
    said = "mean of 2 heads" if head is None else "head 1"
    assert drawn.get_supxlabel() == f"decoder.0.cross · {said} · areas of dots: weights"


def test_without_a_name_it_is_the_mean_of_the_last_layer():
    trace = detected(heads=3)
    dots = trace.plot(words=[1]).axes[1].collections[0]
    expected = trace.attention(CROSS).points[:, 1, :, 2] / 3
    np.testing.assert_allclose(np.sort(dots.get_array()), np.sort(expected.ravel()))
    assert trace.opening[:3] == (CROSS, None, None)


def test_an_encoder_is_drawn_from_the_middles_of_the_boxes():
    trace = detected()
    drawn = trace.plot(name="encoder.0.self", head=0)
    assert [axes.get_title() for axes in drawn.axes[1:-1]] == ["from row 1, column 2", "from row 2, column 4"]
    weights = trace.attention("encoder.0.self").dense(0)
    for axes, row in zip(drawn.axes[1:-1], (1, 8)):
        np.testing.assert_allclose(axes.images[1].get_array(), smooth(weights[row].reshape(GRID), 60, 100))
        left, top = 20 * (row % 5), 20 * (row // 5)
        assert box_of(axes.patches[0]) == pytest.approx([left, top, left + 20, top + 20])


def test_an_encoder_with_other_regions_of_the_same_image_has_the_boxes():
    trace = detected()
    coarse = np.full((1, 2, 2), 0.5, np.float32)
    axes = {**trace.axes, "coarse": Axis.from_image(trace.axes["image"].image.copy(), (1, 2))}
    encoder = TracedAttention("encoder.0.self", "coarse", "coarse", coarse)
    trace = Trace(axes, {"encoder.0.self": encoder, CROSS: trace.attention(CROSS)})
    drawn = trace.plot(name="encoder.0.self")
    assert [axes.get_title() for axes in drawn.axes[1:-1]] == ["from row 1, column 1", "from row 1, column 2"]
    assert len(drawn.axes[0].patches) == 2
    other = replace(trace, axes={**axes, "coarse": Axis.from_image(np.zeros((60, 100, 3), np.uint8), (1, 2))})
    assert choose(Selection(other, "encoder.0.self")).__name__.endswith(".image")


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


def test_of_many_objects_the_classes_are_named():
    boxes = np.tile(BOXES, (7, 1))
    trace = detected(boxes=boxes, heads=1)
    labels = [f"{'cat' if place % 3 else 'dog'} 0.5" for place in range(14)]
    drawn = replace(trace, axes={**trace.axes, "objects": Axis.from_boxes(labels, boxes)}).plot(words=[0])
    assert not drawn.axes[0].texts
    assert len(drawn.axes[0].patches) == 14
    legend = drawn.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["dog", "cat"]
    assert legend.get_patches()[1].get_facecolor() == drawn.axes[0].patches[1].get_edgecolor()


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


def test_a_notebook_shows_the_page_the_figure_and_the_terminal():
    shown = detected()._repr_mimebundle_()
    assert "decoder.0.cross" in shown["text/html"]
    assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")
    assert "pixels of 100 × 60" in shown["text/plain"]


# ---- the terminal


@pytest.mark.parametrize("screen", [Screen(80), Screen(80, blocks=PLAIN), Screen(80, 1 << 24)])
def test_the_terminal_has_a_table_of_boxes_and_coarse_maps(screen):
    trace = detected(points=False)
    lines = render(trace, CROSS, screen=screen).splitlines()
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


# ---- the page


def test_the_page_holds_boxes_and_points(tmp_path):
    trace = detected()
    page = trace.save_html(tmp_path / "a.html").read_text(encoding="utf-8")
    payload = json.loads(re.search(r'id="trace">(.*?)</script>', page, re.DOTALL)[1])
    np.testing.assert_allclose(payload["axes"]["objects"]["boxes"], BOXES, atol=1e-5)
    assert payload["axes"]["image"]["image"]["whole"] == [60, 100]
    assert "boxes" not in payload["axes"]["image"]
    encoder, decoder = payload["attentions"]
    assert encoder["points"] is None
    packed = re.search(rf'id="block-{decoder["points"]["block"]}"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
    points = np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<f4").reshape(
        2, 2, decoder["points"]["count"], 3
    )
    np.testing.assert_array_equal(points, trace.attention("decoder.0.cross").points)


@pytest.fixture
def clear():
    """One object that looks at the region in row 2, column 5 alone, in a gray image."""
    weights = np.zeros((1, 1, 15), np.float32)
    weights[0, 0, 9] = 1.0
    axes = {
        "image": Axis.from_image(np.full((60, 100, 3), 180, np.uint8), GRID),
        "objects": Axis.from_boxes(["cat 0.9"], BOXES[:1]),
    }
    encoder = np.full((1, 15, 15), 1 / 15, np.float32)
    return Trace(
        axes,
        {
            "encoder.0.self": TracedAttention("encoder.0.self", "image", "image", encoder),
            "decoder.0.cross": TracedAttention("decoder.0.cross", "image", "objects", weights),
        },
    )


@pytest.mark.slow
def test_the_page_washes_what_was_read_and_leaves_the_rest(clear, open_page):
    one = open_page(clear)
    one.ready("decoder.0.cross/0/boxes")
    drawn = one.picture()[..., :3].astype(int)
    width = drawn.shape[1]
    height = round(0.6 * width)
    at = lambda y, x: drawn[int(y * height), int(x * width)]  # noqa: E731
    assert (at(0.9, 0.3) == 180).all()  # nothing was read: the picture as it is, under no veil
    red, _, blue = at(0.5, 0.9)
    assert blue - red > 20
    assert red > 80  # still seen
    assert (at(0.5, 0.7) == 180).all()  # the middle of the region beside it
    assert one.page.inner_text(".boxed .caption") == "decoder.0.cross"
    assert one.page.inner_text(".boxed .readout") == "cat 0.9 · left 0, top 0, right 40, bottom 30"


@pytest.mark.slow
def test_dots_on_the_page_are_the_points_that_were_read(clear, open_page):
    points = np.array([[0.1, 0.8, 0.1], [0.3, 0.8, 0.2], [0.6, 0.9, 0.3], [0.9, 0.1, 0.4]], np.float32)
    cross = replace(clear.attention(CROSS), points=points[None, None])
    one = open_page(replace(clear, attentions={**clear.attentions, CROSS: cross}))
    one.ready("decoder.0.cross/0/boxes")
    one.settle()
    drawn = one.picture()[..., :3].astype(int)
    width = drawn.shape[1]
    for x, y, weight in points.astype(float):
        at = int(y * 0.6 * width), int(x * width)
        np.testing.assert_allclose(drawn[at], colors.rgb(weight / 0.4), atol=3)
        line = (drawn[at[0], at[1] - 30 : at[1] + 30] != 180).any(axis=-1)
        assert line.sum() == pytest.approx(18 * np.sqrt(weight / 0.4) + 1, abs=2)  # its width, with its edge


@pytest.mark.slow
def test_places_of_a_coarser_encoder_on_the_page(clear, open_page):
    coarse = np.array([[[0.0, 1.0], [0.0, 1.0]]], np.float32)
    axes = {**clear.axes, "coarse": Axis.from_image(clear.axes["image"].image.copy(), (1, 2))}
    encoder = TracedAttention("encoder.0.self", "coarse", "coarse", coarse)
    one = open_page(Trace(axes, {"encoder.0.self": encoder, CROSS: clear.attention(CROSS)}))
    one.ready("decoder.0.cross/0/boxes")
    one.page.locator(".ways button").nth(1).click()
    one.ready("encoder.0.self/0/boxes")
    one.page.wait_for_function("document.querySelector('.boxed .readout').textContent === 'row 1, column 1'")
    one.page.locator(".chips button").click()
    one.ready("decoder.0.cross/0/boxes")
    box = one.page.locator(".boxed canvas").bounding_box()
    one.page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.5 * box["height"])
    one.ready("encoder.0.self/0/boxes")
    one.page.wait_for_function("document.querySelector('.boxed .readout').textContent === 'row 1, column 2'")
    one.settle()
    drawn = one.picture()[..., :3].astype(int)
    height, width = round(0.6 * drawn.shape[1]), drawn.shape[1]
    assert (drawn[int(0.9 * height), int(0.2 * width)] == 180).all()
    red, _, blue = drawn[height // 2, int(0.75 * width)]
    assert blue - red > 20


@pytest.mark.slow
def test_choosing_boxes_and_places_on_the_page(open_page):
    trace = detected()
    one = open_page(trace)
    one.page.wait_for_selector("html[data-ready$='/boxes']")
    chosen = "[...document.querySelectorAll('.chips button')].map((chip) => chip.getAttribute('aria-selected'))"
    canvas = one.page.locator(".boxed canvas")

    def click(x, y):
        box = canvas.bounding_box()
        canvas.click(position={"x": x * box["width"], "y": y * (box["height"] - 40)})
        one.settle()

    click(0.75, 0.5)
    assert one.page.evaluate(chosen) == ["false", "true"]
    assert "cell 0.70" in one.side()
    one.page.keyboard.press("Escape")
    canvas.focus()
    one.page.keyboard.press("ArrowLeft")
    one.settle()
    assert one.page.evaluate(chosen) == ["true", "false"]
    click(0.5, 0.95)  # no box is there: where the encoder looks from row 3, column 3
    one.page.wait_for_selector("html[data-ready^='encoder.0.self/'][data-ready$='/boxes']")
    one.settle()
    assert one.page.inner_text(".boxed .readout") == "row 3, column 3"
    one.page.keyboard.press("Escape")
    canvas.focus()
    one.page.keyboard.press("ArrowUp")
    one.settle()
    assert one.page.inner_text(".boxed .readout") == "row 2, column 3"
    one.page.locator(".chips button").nth(1).click()
    one.page.wait_for_function("document.querySelector('.boxed .readout').textContent.startsWith('cell 0.70')")
    one.page.reload()
    one.page.wait_for_selector("html[data-ready$='/boxes']")
    assert one.page.evaluate(chosen) == ["false", "true"]
    assert one.saved("png").startswith(b"\x89PNG")
    assert "decoder.0.cross · mean of all" in one.saved("svg").decode()
    assert one.saved("csv").decode("utf-8-sig").splitlines()[2].startswith('"cell 0.70",')


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["en", "zh-CN"])
def test_the_page_fits_a_narrow_screen(locale, open_page):
    one = open_page(detected(), width=390, locale=locale)
    one.page.wait_for_selector("html[data-ready$='/boxes']")
    assert one.page.evaluate("document.documentElement.scrollWidth") <= 390
    seen = one.page.inner_text(".boxed")
    assert bool(re.search(r"Choose|object", seen)) == (locale == "en")
    assert ("检测框" in one.page.inner_text("body")) == (locale == "zh-CN")


def test_the_same_image_on_two_axes_is_in_the_page_once(tmp_path):
    trace = detected()
    image = Axis.from_image(trace.axes["image"].image.copy(), (1, 2))
    coarse = TracedAttention("encoder.1.self", "coarse", "coarse", np.full((1, 2, 2), 0.5, np.float32))
    both = Trace({**trace.axes, "coarse": image}, {**trace.attentions, "encoder.1.self": coarse})
    page = both.save_html(tmp_path / "a.html").read_text(encoding="utf-8")
    axes = json.loads(re.search(r'id="trace">(.*?)</script>', page, re.DOTALL)[1])["axes"]
    assert axes["image"]["image"]["block"] == axes["coarse"]["image"]["block"]
