"""Exploring a page in a real browser: long texts, wide maps, paper, phones, addresses, files, heads and layers."""

import csv
import html
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from foci.viz import colors as colors
from foci.viz.trace import Axis, Trace, TracedAttention

pytestmark = pytest.mark.slow

WEIGHTS = np.array(
    [
        [[0.7, 0.2, 0.1, 0.0], [0.0, 1.0, 0.0, 0.0], [0.1, 0.1, 0.4, 0.4]],
        [[0.1, 0.1, 0.1, 0.7], [0.5, 0.0, 0.5, 0.0], [0.9, 0.1, 0.0, 0.0]],
    ]
)
SOURCE, TARGET = ["das", "alte", "Haus", "brennt"], ["the", "old", "house"]
ATTACK = "</script><img src=x onerror=alert(1)>"
MEAN = "#head=mean&target=0"
"""Of the address: the mean of all heads instead of the one that says most, and the first word."""


def translation():
    return Trace.from_arrays(WEIGHTS, SOURCE, TARGET, name="cross", title="the old house")


def labels(count, letter="w"):
    return [f"{letter}{number}" for number in range(count)]


def near_diagonal(rows, columns):
    """Each row reads five cells around its own place."""
    weights = np.zeros((rows, columns), np.float32)
    for row in range(rows):
        middle = row * (columns - 1) // max(rows - 1, 1)
        for step, weight in enumerate((0.1, 0.2, 0.4, 0.2, 0.1)):
            weights[row, min(max(middle + step - 2, 0), columns - 1)] += weight
    return weights


def self_attention(layers=3, heads=2, size=5):
    scores = np.random.default_rng(3).normal(size=(layers, heads, size, size))
    weights = np.exp(2 * scores)
    return weights / weights.sum(-1, keepdims=True)


def to_mean(one, name):
    """Go to the mean of all heads of an attention: a page opens with one head."""
    one.page.wait_for_selector("html[data-ready]")
    if one.page.locator("#layer").is_visible():
        one.page.select_option("#layer", name)
    one.page.select_option("#head", "-1")
    one.ready(f"{name}/-1/words")


def with_gradient(trace):
    """The trace with a map of attention × gradient, which a model may give."""
    (attention,) = trace.attentions.values()
    gradient = np.zeros(attention.shape[1:], np.float32)
    gradient[0, 2] = 3.0
    more = TracedAttention(
        attention.name, attention.source, attention.target, attention.weights, extras={"gradient": gradient}
    )
    return Trace(trace.axes, {attention.name: more})


# ---- long texts


def test_long_texts_stand_side_by_side_and_scroll_on_their_own(open_page):
    one = open_page(Trace.from_arrays(near_diagonal(700, 800), labels(800, "s"), labels(700, "t")))
    one.ready("attention/0/words")
    boxes = [one.page.locator(".panel").nth(panel).bounding_box() for panel in range(2)]
    for box in boxes:
        assert box["y"] + box["height"] <= 800
        assert box["height"] > 400
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] + 1
    sizes = one.page.locator(".panel").evaluate_all("(all) => all.map((one) => [one.scrollHeight, one.clientHeight])")
    assert all(inside > outside for inside, outside in sizes)
    assert one.page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    one.page.locator(".panel").nth(0).evaluate("(panel) => panel.scrollTop = panel.scrollHeight")
    assert one.page.locator(".panel").nth(1).evaluate("(panel) => panel.scrollTop") == 0
    one.word(0, 699).click()  # it is held, and the other panel goes to what it read
    box = one.word(1, 799).bounding_box()
    assert 0 < box["y"] < 800


def test_a_short_side_stays_in_view_above_a_long_one(open_page):
    document = Axis.from_document([labels(40, f"s{number}_") for number in range(40)])
    one = open_page(Trace.from_arrays(np.full((2, 1600), 1 / 1600), document, ["bad", "good"]))
    one.ready("attention/0/words")
    one.page.locator(".panel").nth(1).evaluate("(panel) => panel.scrollTop = panel.scrollHeight")
    assert one.word(0, 1).bounding_box()["y"] < 300
    assert one.word(1, 1599).bounding_box()["y"] < 800


def test_a_long_text_that_reads_itself_is_shown_twice(open_page):
    one = open_page(Trace.from_arrays(near_diagonal(400, 400), labels(400)))
    one.ready("attention/0/words")
    assert one.page.locator(".panel").count() == 2
    one.word(0, 9).hover()
    np.testing.assert_allclose(one.shades(1)[7:12], np.sqrt([0.25, 0.5, 1, 0.5, 0.25]), atol=0.011)
    one.word(1, 9).hover()
    assert np.count_nonzero(one.shades(0, "--u")) == 5
    assert np.count_nonzero(one.shades(1)) == 0


COUNT_STYLED = """() => {
  window.styled = new Set();
  new MutationObserver((changes) => changes.forEach((change) => window.styled.add(change.target)))
    .observe(document.getElementById("view"), { attributes: true, attributeFilter: ["style"], subtree: true });
}"""


def test_hovering_restyles_only_the_words_whose_shade_changes(open_page):
    weights = near_diagonal(400, 500)
    one = open_page(Trace.from_arrays(weights, labels(500, "s"), labels(400, "t")))
    one.ready("attention/0/words")
    one.word(0, 20).hover()
    one.page.evaluate(COUNT_STYLED)
    one.word(0, 21).hover()
    changed = np.count_nonzero(np.round(weights[20], 3) != np.round(weights[21], 3))
    assert 0 < one.page.evaluate("window.styled.size") == changed


# ---- few rows, many columns


def test_links_keep_the_short_side_in_view(open_page):
    weights = near_diagonal(5, 900)
    one = open_page(Trace.from_arrays(weights, labels(900, "s"), labels(5, "t")))
    one.ready("attention/0/words")
    one.show("links")
    box = one.page.locator(".scroller").bounding_box()
    one.page.locator(".scroller").evaluate("(scroller) => scroller.scrollTop = scroller.scrollHeight")
    one.settle()
    found = set()
    for step in range(30):
        one.page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 40 + step * (box["height"] - 50) / 30)
        one.settle()
        found.add(one.page.inner_text(".readout"))
    assert {f"t{number}" for number in range(5)} <= found
    one.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] - 30)
    one.settle()
    assert one.page.inner_text(".readout").startswith("s89")  # the end of the long side, beside it


def test_the_heat_map_of_few_rows_fills_the_height(open_page):
    weights = np.zeros((3, 700))
    weights[[0, 1, 2], [100, 300, 699]] = 1.0
    one = open_page(Trace.from_arrays(weights, labels(700), labels(3, "t")))
    one.ready("attention/0/words")
    one.show("heat")
    height, width = one.picture().shape[:2]
    rows, columns = one.darkest()
    assert rows.max() - rows.min() > 0.6 * height
    assert columns.max() < width


@pytest.mark.parametrize(("rows", "columns"), [(60, 70), (3, 4), (110, 20)])
def test_the_heat_map_opens_fitted(rows, columns, open_page):
    weights = np.zeros((rows, columns))
    weights[np.arange(rows), np.arange(rows) % columns] = 1.0
    one = open_page(Trace.from_arrays(weights, labels(columns, "s"), labels(rows, "t")))
    one.ready("attention/0/words")
    one.show("heat")
    extent = (
        "(scroller) => [scroller.scrollHeight - scroller.clientHeight, scroller.scrollWidth - scroller.clientWidth]"
    )
    assert one.page.locator(".scroller").evaluate(extent) == [0, 0]
    lowest, at = one.darkest()
    bottom = lowest.max()
    assert one.hover_heat(at[lowest == bottom].mean(), bottom)[0] == f"t{rows - 1}"


def test_regions_have_thumbnails_and_frames_their_time(open_page):
    image = np.zeros((40, 60, 3), np.uint8)
    image[20:, 40:] = [250, 10, 20]
    weights = np.array([[0.1, 0.1, 0.0, 0.0, 0.0, 0.8]])
    one = open_page(Trace.from_arrays(weights, Axis.from_image(image, (2, 3)), ["cup"]))
    one.ready("attention/0/words")
    one.settle()
    first = one.page.locator("#of-word .bars li").first
    assert "2, 3" in first.inner_text()
    assert tuple(one.picture("#of-word .bars .thumb")[10, 10, :3]) == (250, 10, 20)
    for view in ("heat", "links"):
        one.show(view)
        one.settle()
        canvas = "#view canvas" if view == "heat" else "#view canvas + canvas"
        assert (one.picture(canvas)[..., :3] == [250, 10, 20]).all(axis=-1).sum() > 60
    frames = Axis.from_frames(4, seconds=0.5)
    one = open_page(Trace.from_arrays(np.eye(2, 4), frames, ["a", "b"]))
    one.ready("attention/0/words")
    one.show("heat")
    one.page.focus(".scroller")
    one.page.keyboard.press("ArrowRight")
    assert "0.50 s" in one.page.inner_text(".readout")


# ---- names and words


@pytest.mark.parametrize(
    ("source", "name", "chinese"),
    [
        (Axis.from_tokens(labels(6)), "Words", "文字"),
        (Axis.from_image(np.zeros((4, 6, 3), np.uint8), (2, 3)), "Picture", "图像"),
        (Axis.from_frames(6), "Sound", "声音"),
        (Axis.from_document([["a", "b", "c"], ["d", "e", "f"]]), "Document", "文档"),
        (Axis.numbered("slots", 6), "Memory", "存储"),
        (Axis.numbered("channels", 6), "Channels", "通道"),
    ],
)
def test_tabs_are_named_for_what_they_show(source, name, chinese, open_page):
    one = open_page(Trace.from_arrays(np.full((2, 6), 1 / 6), source, ["x", "y"]))
    assert one.page.inner_text("[data-view=words]") == name
    one.page.click("#language")
    assert one.page.inner_text("[data-view=words]") == chinese


def test_a_memory_is_written_to_and_not_said_to_be_read(open_page):
    axes = {"slots": Axis.numbered("slots", 3), "steps": Axis.numbered("steps", 5)}
    weights = np.eye(5, 3, dtype=np.float32)[None]
    attentions = {
        name: TracedAttention(name, "slots", "steps", weights) for name in ("memory.read", "memory.write", "cell:write")
    }
    one = open_page(Trace(axes, attentions))
    for name, verb, other in (("memory.read", "read", "wr[io]t"), ("cell:write", "wr[io]te", r"\bread")):
        one.page.select_option("#group", name)
        for view in ("words", "heat", "links", "heads"):
            one.show(view)
            told = one.page.inner_text("#view") + one.side() + one.page.inner_text("#heading")
            assert re.search(verb, told)
            assert not re.search(other, told)


def test_a_row_without_weight_reads_nothing(open_page):
    one = open_page(Trace.from_arrays([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0]], ["a", "b", "c"], ["x", "y"]))
    one.ready("attention/0/words")
    assert "reads nothing" in one.side()
    assert "spread" not in one.side()
    one.word(0, 1).hover()
    assert "spread over about 2.0 positions" in one.side()
    one.show("heads")
    assert "≈ 2.0" in one.page.inner_text(".overview")  # of the one row that reads


def test_chinese_names_no_darkest_color_and_the_scale_is_the_same_in_the_dark(open_page):
    one = open_page(translation(), scheme="dark", locale="zh-CN", fragment=MEAN)
    one.ready("cross/-1/words")
    assert "深颜色" not in one.page.inner_text("#controls")
    assert "色标上限" in one.page.inner_text("#controls")
    ground = "(word) => getComputedStyle(word).backgroundColor"
    assert one.word(1, 0).evaluate(ground) == f"rgb{colors.rgb(0.8)}"
    assert one.page.locator(".words").first.evaluate(ground) == "rgb(255, 255, 255)"
    one.page.click("#theme")
    assert one.word(1, 0).evaluate(ground) == f"rgb{colors.rgb(0.8)}"


def test_a_phone_is_told_to_tap(open_page):
    one = open_page(translation(), width=390, height=800, touch=True, fragment=MEAN)
    one.ready("cross/-1/words")
    assert "tap" in one.page.inner_text(".keys")
    assert "Esc" not in one.side()
    one.word(0, 1).tap()
    assert "tap again to let go" in one.side()
    assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_copied_words_keep_their_spaces(open_page):
    trace = Trace.from_arrays(np.eye(6), ["the", "old", "##er", "房", "子", "burns"])
    one = open_page(trace)
    one.ready("attention/0/words")
    one.page.locator(".words").evaluate("(words) => getSelection().selectAllChildren(words)")
    assert one.page.evaluate("getSelection().toString()").strip() == "the old##er 房子 burns"
    one = open_page(Trace.from_arrays(np.eye(4), ["▁the", "▁old", "er", "."]))
    one.ready("attention/0/words")
    one.page.locator(".words").evaluate("(words) => getSelection().selectAllChildren(words)")
    assert one.page.evaluate("getSelection().toString()").strip() == "▁the ▁older."


def test_characters_that_cannot_be_seen_are_marked_as_in_figures(open_page):
    from foci.viz.labels import shown

    words = ["a\u202eb", "nul\0", "\u200b", "", " ", "two\nlines", "tab\t"]
    one = open_page(Trace.from_arrays(np.eye(7), words))
    one.ready("attention/0/words")
    for index, word in enumerate(words):
        assert one.word(0, index).inner_text().strip() == shown(word).strip()
        assert shown(word) != word
        assert one.word(0, index).bounding_box()["width"] > 8


# ---- screen readers, address


NAMELESS = """() => [...document.querySelectorAll("button, input, select, [role=application], [role=listbox]")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length))
  .map((one) => one.outerHTML)"""


def test_heads_and_layers_are_announced_and_everything_has_a_name(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    one.page.keyboard.press("]")
    one.ready("cross/0/words")
    assert "head 0" in one.page.inner_text("#live")
    one.page.select_option("#head", "1")
    one.ready("cross/1/words")
    assert "head 1" in one.page.inner_text("#live")
    for view in ("words", "heat", "links", "layers", "heads"):
        one.show(view)
        nameless = one.page.evaluate(NAMELESS)
        assert nameless == []


def test_the_address_keeps_the_state(open_page):
    trace = Trace.from_arrays(self_attention(), ["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "e"])
    one = open_page(trace)
    opened = f"{trace.opening.attention}/{trace.opening.head}/words"
    one.ready(opened)
    to_mean(one, "attention.2")
    one.page.select_option("#layer", "attention.1")
    one.ready("attention.1/-1/words")
    one.page.select_option("#head", "1")
    one.ready("attention.1/1/words")
    one.word(0, 3).click()
    one.page.locator("#threshold").fill("60")
    one.show("links")
    one.ready("attention.1/1/links")

    def state():
        threshold = one.page.input_value("#threshold")
        return one.page.get_attribute("html", "data-ready"), threshold, one.page.inner_text("#of-word .word")

    expected = ("attention.1/1/links", "60", "d")
    assert state() == expected
    one.page.reload()
    one.ready("attention.1/1/links")
    assert state() == expected
    shared = one.page.url
    one.page.go_back()
    one.ready("attention.1/1/words")
    assert one.page.inner_text("#of-word .word") == "d"
    while "#" in one.page.url:
        one.page.go_back()
    one.ready(opened)
    assert "#" not in one.page.url
    one.page.goto(shared)
    one.ready("attention.1/1/links")
    assert state() == expected


@pytest.mark.parametrize(
    "fragment",
    [
        "#",
        "#view=constructor&attention=__proto__&head=-9&target=99999999999&source=x&hide=1e9&together=1+9+1&scale=no",
        "#view=%3Cimg%20src=x%20onerror=alert(1)%3E&attention=%00&small=7&held=1",
        "#%%%",
    ],
)
def test_an_address_that_makes_no_sense_does_no_harm(fragment, open_page):
    one = open_page(translation(), fragment=fragment)
    one.ready("cross/-1/words" if "head=" in fragment else "cross/0/words")
    assert one.page.locator("img").count() == 0


# ---- paper, large screens


def test_paper_is_light_and_shows_everything(open_page):
    one = open_page(Trace.from_arrays(near_diagonal(400, 500), labels(500, "s"), labels(400, "t")), scheme="dark")
    one.ready("attention/0/words")
    one.show("heat")
    for _ in range(6):
        one.page.get_by_role("button", name="Zoom in").click()
    one.settle()
    one.page.emulate_media(media="print")
    one.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert one.page.get_attribute("html", "data-theme") == "light"
    picture = one.picture()
    height, width = picture.shape[:2]
    filled = (picture[..., 2] - picture[..., 0].astype(int) > 30).nonzero()
    assert filled[0].max() - filled[0].min() > 0.7 * height  # the diagonal from its first row to its last
    assert filled[1].max() - filled[1].min() > 0.7 * width
    assert one.page.evaluate("getComputedStyle(document.body).printColorAdjust") == "exact"
    box = one.page.locator(".scroller canvas").first.bounding_box()
    assert box["width"] <= 1280
    one.page.evaluate("dispatchEvent(new Event('afterprint'))")
    one.page.emulate_media(media="screen")
    assert one.page.get_attribute("html", "data-theme") == "dark"
    one.show("words")
    one.page.emulate_media(media="print")
    one.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert one.page.locator(".controls").is_hidden()
    inside = "(all) => all.map((one) => one.scrollHeight - one.clientHeight)"
    for width in (1280, 794):  # 794 pixels: the width of A4
        one.page.set_viewport_size({"width": width, "height": 1100})
        assert max(one.page.locator(".panel").evaluate_all(inside)) <= 1  # nothing is left to be scrolled
        last = one.page.locator(".panel").nth(1).bounding_box()
        assert last["y"] + last["height"] <= one.page.locator("#side").bounding_box()["y"] + 1
    one.page.evaluate("dispatchEvent(new Event('afterprint'))")
    one.page.emulate_media(media="screen")
    assert one.page.pdf().startswith(b"%PDF")


def test_a_large_screen_is_used(open_page):
    one = open_page(Trace.from_arrays(near_diagonal(30, 40), labels(40, "s"), labels(30, "t")), width=2560, height=1300)
    one.ready("attention/0/words")
    one.show("heat")
    picture = one.picture()
    rows, columns = (picture[..., 2] - picture[..., 0].astype(int) > 30).nonzero()
    assert rows.max() - rows.min() > 0.7 * picture.shape[0]
    assert columns.max() - columns.min() > 0.7 * picture.shape[1]
    one.show("words")
    box = one.page.locator(".words").first.bounding_box()
    assert box["width"] > 1800
    assert one.page.evaluate("parseFloat(getComputedStyle(document.querySelector('.cell')).fontSize)") >= 18


# ---- files


def test_what_is_seen_is_saved_as_png_svg_and_csv(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    one.page.select_option("#head", "0")
    one.ready("cross/0/words")
    for view in ("words", "heat", "links", "layers", "heads"):
        one.show(view)
        if view in ("words", "heat"):  # Chromium may ask its user before the eleventh file of a page
            assert one.saved("png").startswith(b"\x89PNG")
        drawn = ElementTree.fromstring(one.saved("svg"))
        texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
        if view != "heads":
            assert {"das", "alte", "Haus", "brennt"} <= set(texts)
        assert not [element for element in drawn.iter() if "script" in element.tag]
    rows = list(csv.reader(io.StringIO(one.saved("csv").decode("utf-8-sig"))))
    assert rows[0] == ["", *SOURCE]
    assert [row[0] for row in rows[1:]] == TARGET
    np.testing.assert_allclose(np.array([row[1:] for row in rows[1:]], float), WEIGHTS[0], atol=0.003)


def test_saved_shades_are_those_of_the_page(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    one.page.select_option("#head", "0")
    one.ready("cross/0/words")
    one.word(0, 1).hover()
    drawn = ElementTree.fromstring(one.saved("svg"))
    fills = [element.get("fill") for element in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert f"rgb{colors.rgb(1.0)}" in fills


def test_hostile_labels_stay_text_in_files(open_page):
    words = [ATTACK, "=1+1", 'say "hi", twice']
    one = open_page(Trace.from_arrays(np.eye(3), words))
    one.ready("attention/0/words")
    svg = one.saved("svg").decode()
    assert "<img" not in svg
    assert ATTACK in [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    rows = list(csv.reader(io.StringIO(one.saved("csv").decode("utf-8-sig"))))
    assert rows[0] == ["", ATTACK, "'=1+1", 'say "hi", twice']  # no spreadsheet takes it for a formula


# ---- heads, layers, further maps


def test_several_heads_are_shown_at_once_in_colors(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    for name in ("head 0", "head 1"):
        one.page.get_by_label(f"Show {name} together with others").check()
        one.settle()
    one.word(0, 0).hover()
    levels = (
        one.page.locator(".panel")
        .nth(1)
        .locator(".cell")
        .evaluate_all("(words) => words.map((word) => word.style.getPropertyValue('--heads'))")
    )
    shares = [[float(level) for level in json.loads(text).split()] if text else [0, 0] for text in levels]
    np.testing.assert_allclose(np.array(shares).T, [[70, 20, 10, 0], [11, 11, 11, 78]], atol=1.1)
    assert re.search(r"head 0.*das.*0\.7.*head 1.*brennt.*0\.7", one.side(), re.DOTALL)
    assert "head 0, head 1" in one.page.inner_text("#live")
    one.page.reload()
    one.ready("cross/-1/words")
    assert one.page.locator(".tick input:checked").count() == 2
    one.show("links")
    tones = {tuple(color) for color in one.picture("#view canvas + canvas")[..., :3].reshape(-1, 3)}
    assert {(0, 114, 178), (213, 94, 0)} <= tones
    one.show("heat")
    picture = one.picture()[..., :3].reshape(-1, 3).astype(int)
    for color in ((0, 114, 178), (213, 94, 0)):
        assert (np.abs(picture - color).max(axis=1) < 40).any()


def test_all_layers_of_a_word_at_a_glance(open_page):
    weights = self_attention(layers=3)
    one = open_page(Trace.from_arrays(weights, ["a", "b", "c", "d", "e"]))
    to_mean(one, "attention.0")
    one.show("layers")
    one.ready("attention.0/-1/layers")
    one.word(0, 2).click()
    one.settle()
    one.page.focus(".scroller")
    for key in ["ArrowDown"] * 2 + ["ArrowLeft"] * 5:
        one.page.keyboard.press(key)
        one.settle()
    one.ready("attention.2/-1/layers")
    assert one.page.inner_text(".readout").split()[:4] == ["layer", "2", "→", "a"]
    weight = float(one.page.inner_text(".readout").split()[-1])
    assert weight == pytest.approx(weights[2, :, 2, 0].mean(), abs=0.01)


def test_rollout_and_gradient_are_further_heads(open_page):
    one = open_page(Trace.from_arrays(self_attention(layers=2, size=3), ["a", "b", "c"]))
    to_mean(one, "attention.0")
    one.page.select_option("#layer", "attention.1")
    one.ready("attention.1/-1/words")
    one.page.select_option("#head", label="rollout")
    one.ready("attention.1/2/words")
    one.page.select_option("#scale", "row")
    one.word(0, 1).hover()
    means = 0.5 * np.eye(3) + 0.5 * self_attention(layers=2, size=3).mean(axis=1)
    rolled = (means[1] @ means[0])[1]
    np.testing.assert_allclose(one.shades(0), rolled / rolled.max(), atol=0.011)
    one = open_page(with_gradient(Trace.from_arrays(WEIGHTS[0], SOURCE, TARGET)))
    one.ready("attention/0/words")
    one.page.select_option("#head", label="attention × gradient")
    one.ready("attention/1/words")
    one.word(0, 0).hover()
    np.testing.assert_allclose(one.shades(1), [0, 0, 1, 0], atol=0.011)


def test_selected_heads_keep_their_numbers(open_page):
    trace = Trace.from_arrays(self_attention(layers=3, heads=4), ["a", "b", "c", "d", "e"])
    one = open_page(trace.select(layers=[2], heads=[1, 3]))
    to_mean(one, "attention.2")
    assert one.page.locator("#head option").all_inner_texts() == ["mean of all", "head 1", "head 3"]


# ---- two traces


def test_two_traces_stand_side_by_side_with_their_difference(open_file, tmp_path):
    from foci.viz import compare

    other = WEIGHTS.copy()
    other[:, 0] = [0.0, 0.2, 0.1, 0.7]
    second = Trace.from_arrays(other, SOURCE, TARGET, name="cross", title="the old house")
    one = open_file(compare(translation(), second, ("before", "after")).save_html(tmp_path / "a.html"))
    one.ready("before · cross/0/compare")
    one.page.select_option("#head", "-1")
    one.ready("before · cross/-1/compare")
    one.settle()
    assert one.page.locator(".map").count() == 3
    one.page.focus(".scroller >> nth=0")
    for key in ["ArrowUp"] * 3 + ["ArrowLeft"] * 4:
        one.page.keyboard.press(key)
    one.settle()
    told = [text.split() for text in one.page.locator(".readout").all_inner_texts()]
    assert [text[:3] for text in told] == [["the", "→", "das"]] * 3
    assert [text[3].replace("−", "-") for text in told] == ["0.4", "0", "-0.4"]
    captions = one.page.locator(".caption").all_inner_texts()
    assert captions[:2] == ["before", "after"]
    assert "after − before" in captions[2]
    one.page.select_option("#group", "after · cross")
    one.ready("after · cross/-1/compare")
    one.show("words")
    np.testing.assert_allclose(one.shades(1), [0, 0.2 / 0.7, 0.1 / 0.7, 1.0], atol=0.02)


def test_two_sentences_are_compared_without_a_difference(open_file, tmp_path):
    from foci.viz import compare

    second = Trace.from_arrays(np.full((5, 6), 1 / 6), labels(6, "s"), labels(5, "t"), name="cross", title=ATTACK)
    one = open_file(compare(translation(), second, (ATTACK, "other")).save_html(tmp_path / "a.html"))
    one.settle()
    one.page.wait_for_selector(".map >> nth=1")
    assert one.page.locator(".map").count() == 2
    box = one.page.locator(".scroller").nth(1).bounding_box()
    one.page.mouse.move(box["x"] + 120, box["y"] + 120)
    one.page.wait_for_selector("html[data-ready^='other · cross']")
    assert one.page.locator("img").count() == 0


# ---- in a notebook's frame


def test_a_sandboxed_frame_leaves_the_history_of_its_host_alone(open_file, tmp_path):
    page = translation().save_html(tmp_path / "a.html").read_text(encoding="utf-8")
    host = tmp_path / "host.html"
    frame = f'<iframe sandbox="allow-scripts" width="1000" height="700" srcdoc="{html.escape(page)}"></iframe>'
    host.write_text(f"<!doctype html><meta charset=utf-8>{frame}", encoding="utf-8")
    one = open_file(host)
    before = one.page.evaluate("history.length")
    inside = one.page.frame_locator("iframe")
    inside.locator("html[data-ready='cross/0/words']").wait_for()
    inside.locator(".panel").first.locator(".cell").nth(1).click()
    inside.locator("[data-view=heat]").click()
    inside.locator("html[data-ready='cross/0/heat']").wait_for()
    assert one.page.evaluate("history.length") == before
    assert "view=heat" in inside.locator("html").evaluate("() => location.hash")


# ---- what heads do


def made_heads():
    """Two layers of two heads: an even one, the word before; the same word elsewhere, a sink."""
    words = ["the", "cat", "saw", "the", "dog", "and", "the", "cat"]
    same = np.array([[float(one == two and i != j) for j, two in enumerate(words)] for i, one in enumerate(words)])
    sink = np.eye(8)[[0] * 8]
    parts = [np.zeros((8, 8)), np.eye(8, k=-1), same / np.maximum(same.sum(1, keepdims=True), 1), sink]
    weights = np.stack([0.9 * part + (1 - 0.9 * part.sum(1, keepdims=True)) / 8 for part in parts])
    return Trace.from_arrays(weights.reshape(2, 2, 8, 8), words)


def test_the_map_of_heads_says_what_they_do_and_chooses_one(open_page):
    one = open_page(made_heads())
    one.ready("attention.1/0/words")  # the head that says most
    assert one.page.inner_text("#of-word .word") == "cat"
    squares = one.page.locator(".roles .role")
    assert squares.all_inner_texts() == ["", "P", "D", "S"]
    assert "attention 0, head 1: previous token, 0.91 (by chance 0.13)" in squares.nth(1).get_attribute(
        "title"
    ).replace(".0", " 0")
    assert one.page.locator('.roles [aria-pressed="true"]').count() == 1
    squares.nth(1).click()
    one.ready("attention.0/1/words")
    assert squares.nth(1).get_attribute("aria-pressed") == "true"
    assert squares.nth(1).evaluate("(square) => square === document.activeElement")
    assert "previous token" in one.page.inner_text(".legend-of-roles")
    assert "what followed" not in one.page.inner_text(".legend-of-roles")
    one.page.click("#language")
    assert squares.all_inner_texts() == ["", "前", "同", "集"]
    assert "前一个词元" in one.page.inner_text(".legend-of-roles")


def test_a_page_opens_with_what_was_asked_for(open_file, tmp_path):
    trace = made_heads()
    one = open_file(trace.save_html(tmp_path / "a.html", opening=trace.heads(("cat", 1), "saw")[0]))
    one.page.wait_for_selector("html[data-ready]")
    assert one.page.inner_text("#of-word .word") == "cat"
    assert "held" in one.side()
    assert one.page.inner_text("#why-open") == "Open first, as it was asked for."
    one = open_file(trace.save_html(tmp_path / "b.html", opening="rollout"))
    one.ready("attention.1/2/words")


def test_a_page_says_why_it_is_open_where_it_is_and_only_there(open_page):
    one = open_page(translation())
    one.ready("cross/0/words")
    assert one.page.inner_text("#why-open").startswith(
        "Open first: of 2 heads, what this one reads depends most on who"
    )
    one.page.select_option("#head", "1")
    one.ready("cross/1/words")
    one.page.get_by_role("button", name="Back to what was open first: cross · head 0").click()
    one.ready("cross/0/words")
    one.page.click("#language")
    assert one.page.inner_text("#why-open").startswith("首先显示此头：在 2 个头中")
    assert one.page.locator(".roles .role").count() == 2
    assert "作用" in one.side()
    slots = Trace.from_arrays(np.full((2, 5, 3), 1 / 3), Axis.numbered("slots", 3), Axis.numbered("steps", 5))
    one = open_page(slots)
    one.ready("attention/-1/heat")
    assert one.page.locator(".roles").count() == 0
    assert "In none of 2 heads does what is read depend on who reads" in one.page.inner_text("#why-open")


def test_the_map_shows_the_head_that_is_open_however_many_there_are(open_page):
    weights = self_attention(layers=24, heads=2, size=7)
    weights[:21] = 0.2 * weights[:21] + 0.8 / 7
    one = open_page(Trace.from_arrays(weights, labels(7)))
    one.page.wait_for_selector("html[data-ready]")
    map_, square = (one.page.locator(name).bounding_box() for name in (".roles", '.roles [aria-pressed="true"]'))
    assert map_["y"] <= square["y"] <= map_["y"] + map_["height"] - square["height"]
    assert one.page.locator(".roles").evaluate("(map) => map.scrollTop") > 0
