"""The interactive page: what the file holds, that nothing in it can break out, and what a real browser makes of it."""

import base64
import hashlib
import json
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from foci.viz.page.trace_page import write
from foci.viz.trace import Axis, Trace, TracedAttention
from foci.weights import Weights

save_html = Trace.save_html
ATTACK = "</script><img src=x onerror=alert(1)>"
ARABIC = ["هذا", "الكتاب", "مفيد"]
CHINESE = ["这", "本", "书", "很", "有用"]


def softmax(scores):
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (raised / raised.sum(axis=-1, keepdims=True)).astype(np.float32)


def random_weights(*shape, sharp=2.0, seed=7):
    return softmax(sharp * np.random.default_rng(seed).normal(size=shape))


# ---- what the file holds


class Elements(HTMLParser):
    """The elements of a page, as a browser that runs no script sees them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.inside = [], [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data

    def by_id(self, name):
        return next(text for text, found in zip(self.texts, self.attributes) if found.get("id") == name)


class PageParts:
    """A page, read back by plain loops."""

    def __init__(self, path):
        self.text = path.read_text(encoding="utf-8")
        self.elements = Elements(self.text)
        self.payload = json.loads(self.elements.by_id("trace"))

    def block(self, number):
        return zlib.decompress(base64.b64decode(self.elements.by_id(f"block-{number}")))

    def matrix(self, attention, slot):
        """The weights (L, S) and what is left out of each row."""
        rows, columns = attention["rows"], attention["columns"]
        described = attention["matrices"][slot]
        raw = self.block(described["block"])
        scales, rest = struct.unpack(f"<{rows}f", raw[: 4 * rows]), struct.unpack(f"<{rows}f", raw[4 * rows : 8 * rows])
        raw = raw[8 * rows :]
        weights = np.zeros((rows, columns))
        if not described["sparse"]:
            assert len(raw) == rows * columns
            for row in range(rows):
                for column in range(columns):
                    weights[row, column] = raw[row * columns + column] * scales[row]
            return weights, rest
        counts = struct.unpack(f"<{rows}I", raw[: 4 * rows])
        kind, width = ("H", 2) if columns <= 65536 else ("I", 4)
        steps = struct.unpack(f"<{sum(counts)}{kind}", raw[4 * rows : 4 * rows + width * sum(counts)])
        values = raw[4 * rows + width * sum(counts) :]
        assert len(values) == sum(counts)
        place = 0
        for row in range(rows):
            column = 0
            for _ in range(counts[row]):
                column += steps[place]
                weights[row, column] = values[place] * scales[row]
                place += 1
        return weights, rest


def labels(count):
    return [f"w{number}" for number in range(count)]


@pytest.mark.parametrize(("sharp", "sparse"), [(0.5, False), (12.0, True)])
def test_weights_come_back_to_half_a_step(sharp, sparse, tmp_path):
    weights = random_weights(3, 11, 41, sharp=sharp)
    weights[1, 5] = 0.0  # a row that read nothing
    read = PageParts(save_html(Trace.from_arrays(weights, labels(41), labels(11)), tmp_path / "a.html"))
    (attention,) = read.payload["attentions"]
    assert [described["sparse"] for described in attention["matrices"][1:]] == [sparse] * 3
    for slot, exact in enumerate([weights.mean(axis=0), *weights]):
        found, rest = read.matrix(attention, slot)
        allowed = exact.max(axis=1, keepdims=True) / 510
        assert (np.abs(found - exact) <= allowed * 1.001 + 1e-9).all()
        assert (found[exact == 0] == 0).all()
        assert rest == (0.0,) * 11


def test_one_head_has_no_mean_of_its_own(tmp_path):
    read = PageParts(save_html(Trace.from_arrays(random_weights(3, 5), labels(5), labels(3)), tmp_path / "a.html"))
    (attention,) = read.payload["attentions"]
    assert len(attention["matrices"]) == 1
    assert len(read.block(attention["entropy"])) == 4 * 3


def test_what_the_trace_left_out_is_told(tmp_path):
    weights = random_weights(2, 7, 53, sharp=1.0)
    trace = Trace.from_arrays(weights, labels(53), labels(7), budget=2 * 2 * 7 * 5)
    read = PageParts(save_html(trace, tmp_path / "a.html"))
    (attention,) = read.payload["attentions"]
    assert attention["kept"] == 5
    for head in range(2):
        found, rest = read.matrix(attention, head + 1)
        assert ((found > 0).sum(axis=1) <= 5).all()
        np.testing.assert_allclose(found.sum(axis=1) + rest, 1.0, atol=0.01)
    entropy = np.frombuffer(read.block(attention["entropy"]), "<f4").reshape(3, 7)
    assert np.isnan(entropy[0]).all()  # of the mean it cannot be known
    np.testing.assert_allclose(entropy[1:], -(weights * np.log(weights)).sum(-1), rtol=1e-4)


def test_entropy_is_that_of_the_exact_weights(tmp_path):
    weights = random_weights(2, 3, 5)
    read = PageParts(save_html(Trace.from_arrays(weights, labels(5), labels(3)), tmp_path / "a.html"))
    entropy = np.frombuffer(read.block(read.payload["attentions"][0]["entropy"]), "<f4").reshape(3, 3)
    for slot, exact in enumerate([weights.mean(axis=0), *weights]):
        np.testing.assert_allclose(entropy[slot], -(exact * np.log(exact)).sum(-1), rtol=1e-5)


def test_thumbnails_keep_the_largest_weight_of_each_tile(tmp_path):
    weights = np.zeros((83, 97), np.float32)
    weights[82, 3] = 1.0
    weights[0, 96] = 0.5
    read = PageParts(save_html(Trace.from_arrays(weights, labels(97), labels(83)), tmp_path / "a.html"))
    described = read.payload["attentions"][0]["thumbnails"]
    picture = np.frombuffer(read.block(described["block"]), np.uint8).reshape(described["height"], described["width"])
    assert picture.shape == (40, 40)
    assert picture[39, 1] == 255
    assert picture[0, 39] == 128
    assert np.count_nonzero(picture) == 2


def test_layers_of_one_kind_are_grouped(tmp_path):
    axes = {"source": Axis.from_tokens(labels(3)), "target": Axis.from_tokens(labels(2))}
    names = ["decoder.0.cross", "decoder.11.cross", "encoder.0.self", "pool"]
    sides = [("target", 2), ("target", 2), ("source", 3), ("target", 2)]
    attentions = {
        name: TracedAttention(name, "source", target, random_weights(1, size, 3))
        for name, (target, size) in zip(names, sides)
    }
    read = PageParts(save_html(Trace(axes, attentions), tmp_path / "a.html"))
    found = [(each["group"], each["layer"]) for each in read.payload["attentions"]]
    assert found == [("decoder.*.cross", 0), ("decoder.*.cross", 11), ("encoder.*.self", 0), ("pool", None)]


def test_images_and_recordings_are_inside(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (2100, 30, 3)).astype(np.uint8)
    regions = Axis.from_image(image, (2, 3))
    read = PageParts(save_html(Trace.from_arrays(random_weights(4, 6), regions, labels(4)), tmp_path / "a.html"))
    described = read.payload["axes"]["source"]["image"]
    assert (described["height"], described["width"]) == (700, 10)
    pixels = np.frombuffer(read.block(described["block"]), np.uint8).reshape(700, 10, 3)
    np.testing.assert_allclose(pixels[1, 2], image[3:6, 6:9].reshape(-1, 3).mean(axis=0), atol=0.51)

    frames = Axis.from_frames(3, seconds=0.5, spectrogram=[[-1.0, 0.0], [1.0, 0.5], [0.0, 1.0], [-1.0, 1.0]])
    read = PageParts(save_html(Trace.from_arrays(random_weights(4, 3), frames, labels(4)), tmp_path / "b.html"))
    described = read.payload["axes"]["source"]["spectrogram"]
    assert (described["steps"], described["bins"]) == (4, 2)
    assert list(read.block(described["block"])) == [0, 128, 255, 191, 128, 255, 0, 255]


def test_labels_cannot_break_out(tmp_path):
    words = [ATTACK, "<!--<script>", "\u2028", "{{script}}", "\ud800", '"', "&lt;"]
    trace = Trace.from_arrays(random_weights(7, 7), words, words, name=f"0{ATTACK}", title=ATTACK)
    trace.metadata[ATTACK] = ATTACK
    read = PageParts(save_html(trace, tmp_path / "a.html"))
    assert read.payload["axes"]["source"]["labels"] == words
    assert read.payload["text"] == ATTACK
    assert "img" not in read.elements.tags
    harmless = PageParts(save_html(Trace.from_arrays(random_weights(7, 7), labels(7), labels(7)), tmp_path / "b.html"))
    assert read.elements.tags == harmless.elements.tags
    assert read.text.count("</script") == harmless.text.count("</script")


def test_the_page_needs_no_network_and_runs_no_script_but_its_own(tmp_path):
    read = PageParts(save_html(Trace.from_arrays(random_weights(2, 3), labels(3), labels(2)), tmp_path / "a.html"))
    assert not re.search(
        r"https?:|//[a-z]+\.|url\(|@import|\bsrc=|\bhref=|\beval\(|innerHTML|insertAdjacent", read.text
    )
    policy = next(found["content"] for found in read.elements.attributes if "http-equiv" in found)
    script = next(
        text for tag, text, found in zip(read.elements.tags, read.elements.texts, read.elements.attributes)
        if tag == "script" and not found
    )  # fmt: skip
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{fingerprint}'" in policy
    assert "unsafe" not in policy


def test_the_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    trace = Trace.from_arrays(random_weights(2, 3), labels(3), labels(2))
    path = save_html(trace, tmp_path / "new" / "a.html")
    before = path.read_bytes()
    monkeypatch.setattr("foci.viz.page.trace_page._page", lambda *_: "half of it \ud800")
    with pytest.raises(UnicodeEncodeError):
        save_html(trace, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["a.html"]


def test_the_same_trace_gives_the_same_file(tmp_path):
    trace = Trace.from_arrays(random_weights(2, 5, 7), labels(7), labels(5))
    assert save_html(trace, tmp_path / "a.html").read_bytes() == save_html(trace, tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_sides_without_cells_can_be_saved(shape, tmp_path):
    rows, columns = shape
    axes = {"source": Axis.from_tokens(labels(columns)), "target": Axis.from_tokens(labels(rows))}
    attention = TracedAttention("cross", "source", "target", np.zeros((2, rows, columns), np.float32))
    trace = Trace(axes, {"cross": attention})
    read = PageParts(save_html(trace, tmp_path / "a.html"))
    assert read.matrix(read.payload["attentions"][0], 0)[0].shape == shape


def test_the_page_says_everything_in_both_languages(tmp_path):
    text = PageParts(write(tmp_path / "a.html", [Trace({}, {})])).text
    table = re.search(r"const LANGUAGES = \{(.*?)\n\};", text, re.DOTALL)[1]
    without_texts = re.sub(r'"[^"]*"|`[^`]*`', "0", table)
    english, chinese = (set(re.findall(r"[{,]\s*(\w+): ", part)) for part in without_texts.split("\n  zh: "))
    said = set(re.findall(r'(?:say\(|tell\(|data-text=|data-label=|\? |: )"(\w+)"', text.replace(table, "")))
    assert english - {"en"} <= chinese
    assert len(english & said) > 40


# ---- what a browser makes of it


WEIGHTS = np.array(
    [
        [[0.7, 0.2, 0.1, 0.0], [0.0, 1.0, 0.0, 0.0], [0.1, 0.1, 0.4, 0.4]],
        [[0.1, 0.1, 0.1, 0.7], [0.5, 0.0, 0.5, 0.0], [0.9, 0.1, 0.0, 0.0]],
    ]
)
SOURCE, TARGET = ["das", "alte", "Haus", "brennt"], ["the", "old", "house"]


MEAN = "#head=mean&target=0"
"""Of the address: the mean of all heads instead of the one that says most, and the first word."""


def translation():
    return Trace.from_arrays(WEIGHTS, SOURCE, TARGET, name="cross", title="the old house")


@pytest.mark.slow
def test_hovering_shows_what_a_word_read_and_what_read_it(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    one.page.select_option("#head", "0")
    one.ready("cross/0/words")
    one.word(0, 2).hover()
    np.testing.assert_allclose(one.shades(1), [0.1, 0.1, 0.4, 0.4], atol=0.01)
    assert "current" in one.word(0, 2).get_attribute("class")
    assert re.search(r"house.*It read.*Haus.*0\.4.*brennt.*0\.4.*das.*0\.1", one.side(), re.DOTALL)
    one.word(1, 1).hover()
    np.testing.assert_allclose(one.shades(0, "--u"), [0.2, 1.0, 0.1], atol=0.01)
    assert re.search(r"alte.*It was read by.*old.*1\.00.*the.*0\.2.*house.*0\.1", one.side(), re.DOTALL)
    assert "read about 1.30 in all, 1.7 times the mean position" in one.side()  # 0.2 + 1 + 0.1, of 3 in 4 columns


@pytest.mark.slow
def test_self_attention_shows_both_at_once(open_page):
    weights = np.array([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.0, 0.4, 0.6]])
    one = open_page(Trace.from_arrays(weights, ["a", "b", "c"]))
    one.ready("attention/0/words")
    one.word(0, 1).hover()
    np.testing.assert_allclose(one.shades(0), [0.3, 0.7, 0.0], atol=0.01)
    np.testing.assert_allclose(one.shades(0, "--u"), [0.0, 0.7, 0.4], atol=0.01)


@pytest.mark.slow
def test_switching_heads_changes_every_view(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    np.testing.assert_allclose(one.shades(1), np.array([0.4, 0.15, 0.1, 0.35]) / 0.5, atol=0.01)
    for view in ("heat", "links"):
        one.show(view)
        pictures = {}
        for head in ("-1", "0", "1"):
            one.page.select_option("#head", head)
            one.ready(f"cross/{head}/{view}")
            pictures[head] = one.picture()
        assert (pictures["0"] != pictures["1"]).any()
        assert (pictures["0"] != pictures["-1"]).any()
    one.show("heads")
    one.page.locator(".overview").get_by_role("button", name="cross, head 0").click()
    one.ready("cross/0/heads")
    one.show("words")
    np.testing.assert_allclose(one.shades(1), [0.7, 0.2, 0.1, 0.0], atol=0.01)
    one.page.keyboard.press("]")
    one.ready("cross/1/words")
    np.testing.assert_allclose(one.shades(1), np.array([0.1, 0.1, 0.1, 0.7]) / 0.9, atol=0.01)


@pytest.mark.slow
def test_the_heat_map_is_the_matrix(open_page):
    weights = np.zeros((3, 4))
    weights[2, 0] = weights[0, 3] = 1.0
    one = open_page(Trace.from_arrays(weights, SOURCE, TARGET))
    one.ready("attention/0/words")
    one.show("heat")
    rows, columns = one.darkest()
    first, last = rows < rows.mean(), rows > rows.mean()
    assert columns[first].min() > columns[last].max()  # row 0 reads the last column, row 2 the first
    assert rows.max() - rows.min() >= 2 * 40
    assert columns.max() - columns.min() >= 3 * 40
    assert one.hover_heat(columns[last].mean(), rows[last].mean()) == ["house", "→", "das", "1.00"]


@pytest.mark.slow
def test_the_threshold_hides_smaller_weights(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    one.page.select_option("#head", "0")
    one.ready("cross/0/words")
    one.page.locator("#threshold").fill("80")  # 10 ** -0.8 = 0.16
    one.settle()
    np.testing.assert_allclose(one.shades(1), [0.7, 0.2, 0.0, 0.0], atol=0.01)
    assert "Haus" not in one.side()


@pytest.mark.slow
def test_everything_is_reached_by_keys(open_page):
    one = open_page(translation(), fragment=MEAN)
    one.ready("cross/-1/words")
    keys = one.page.keyboard
    one.page.focus("#root")
    keys.press("Tab")
    assert one.page.evaluate("document.activeElement.textContent") == "the"
    keys.press("ArrowRight")
    assert one.page.evaluate("document.activeElement.textContent") == "old"
    assert one.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert "“old” read: alte 0.5" in one.page.inner_text("#live")
    keys.press("Enter")
    one.word(0, 0).hover()
    assert "current" in one.word(0, 1).get_attribute("class")  # it is held
    keys.press("Escape")
    one.word(0, 2).hover()
    one.word(0, 0).hover()
    assert "current" in one.word(0, 0).get_attribute("class")
    keys.press("End")
    assert one.page.evaluate("document.activeElement.textContent") == "house"
    one.show("heat")
    one.page.focus(".scroller")
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):
        keys.press(key)
    assert one.page.evaluate("getComputedStyle(document.getElementById('view'), '::after').borderStyle") == "solid"
    assert one.page.inner_text(".readout").split()[:3] == ["the", "→", "alte"]
    one.show("links")
    one.page.focus(".scroller")
    keys.press("ArrowDown")
    assert one.page.inner_text(".readout") == "old"
    keys.press("ArrowRight")
    assert one.page.inner_text(".readout") == "alte"
    one.page.focus("[data-view=links]")
    keys.press("ArrowRight")
    assert one.page.get_attribute("[data-view=layers]", "aria-selected") == "true"


@pytest.mark.slow
def test_arabic_runs_from_the_right_and_chinese_is_drawn(open_page):
    one = open_page(Trace.from_arrays(np.eye(5, 3) + 0.1, ARABIC, CHINESE))
    one.ready("attention/0/words")
    assert [one.word(1, index).inner_text() for index in range(3)] == ARABIC
    assert [one.word(0, index).inner_text() for index in range(5)] == CHINESE
    lefts = [one.word(1, index).bounding_box()["x"] for index in range(3)]
    assert lefts == sorted(lefts, reverse=True)
    lefts = [one.word(0, index).bounding_box()["x"] for index in range(5)]
    assert lefts == sorted(lefts)
    widths = [one.word(1, index).bounding_box()["width"] for index in range(3)]
    assert len(set(widths)) > 1  # letters, not nothing
    one.page.focus("#root")
    one.page.keyboard.press("Tab")
    one.page.keyboard.press("Tab")
    one.page.keyboard.press("ArrowLeft")  # onwards, in Arabic
    assert one.page.evaluate("document.activeElement.textContent") == ARABIC[1]
    one.show("heat")
    one.page.focus(".scroller")
    for key in ["ArrowUp"] * 5 + ["ArrowRight"] * 3:
        one.page.keyboard.press(key)
    assert one.page.inner_text(".readout").split()[:3] == [CHINESE[0], "→", ARABIC[0]]
    rows, columns = one.darkest()
    first, last = rows < rows.min() + 20, rows > rows.max() - 20
    assert columns[first].min() > columns[last].max()  # the first Arabic word stands rightmost
    assert one.hover_heat(columns[first].mean(), rows[first].mean())[:3] == [CHINESE[0], "→", ARABIC[0]]


@pytest.mark.slow
def test_markup_stays_text(open_page):
    words = [ATTACK, "<b>bold</b>", "&amp;"]
    trace = Trace.from_arrays(random_weights(2, 3, 3), words, words, name=f"x {ATTACK}", title=ATTACK)
    trace.metadata[ATTACK] = ATTACK
    one = open_page(trace)
    for view in ("words", "heat", "links", "heads"):
        one.show(view)
        assert one.page.locator("img, #view b, #side b").count() <= (view == "heat")  # the heat map's number is bold
    one.show("words")
    assert [one.word(0, index).inner_text() for index in range(3)] == words
    assert one.page.inner_text("#heading") == ATTACK
    assert ATTACK in one.side()
    assert one.page.title() == ATTACK


@pytest.mark.slow
def test_the_page_speaks_chinese_and_wears_dark(open_page):
    one = open_page(translation(), scheme="dark", locale="zh-CN", fragment=MEAN)
    one.ready("cross/-1/words")
    assert one.page.inner_text("[data-view=heat]") == "热图"
    assert one.page.get_attribute("html", "lang") == "zh-CN"
    background = "getComputedStyle(document.body).backgroundColor"
    assert one.page.evaluate(background) == "rgb(21, 23, 27)"
    one.page.click("#theme")
    assert one.page.evaluate(background) == "rgb(251, 250, 248)"
    one.page.click("#language")
    assert one.page.inner_text("[data-view=heat]") == "Heat map"
    assert "It read" in one.side()


@pytest.mark.slow
def test_the_page_opens_with_what_the_terminal_shows(open_page):
    sizes = {"read": (1, 5), "asked": (1, 3), "both": (3, 5)}
    labels = {1: ["answer"], 3: ["a", "b", "c"], 5: ["d", "e", "f", "g", "h"]}
    handles = {name: Weights.from_tensor(torch.full((1, *size), 1 / size[1])) for name, size in sizes.items()}
    between = {name: (f"{rows}", f"{columns}") for name, (rows, columns) in sizes.items()}
    trace = Trace.from_handles(handles, {f"{size}": words for size, words in labels.items()}, between)
    assert trace.cross_attentions()[0].name == "read"
    open_page(trace).ready("read/0/words")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_pictures_recordings_documents_and_tapes(width, open_page):
    image = np.full((60, 80, 3), 200, np.uint8)
    weights = np.array([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
    one = open_page(Trace.from_arrays(weights, Axis.from_image(image, (2, 3)), ["cup"]), width=width)
    one.ready("attention/0/words")
    picture = one.picture(".drawing")
    height, wide = picture.shape[:2]
    tiles = picture[: height // 2 * 2, : wide // 3 * 3, 0].reshape(2, height // 2, 3, wide // 3).mean(axis=(1, 3))
    assert tiles[0, 2] > 190
    assert (np.delete(tiles.ravel(), 2) < 80).all()
    one.page.hover(".drawing", position={"x": 5, "y": 5})
    assert "row 1, column 1" in one.side()

    frames = Axis.from_frames(4, seconds=0.5, spectrogram=np.random.default_rng(0).random((40, 8)))
    one = open_page(Trace.from_arrays(np.eye(2, 4), frames, ["a", "b"]), width=width)
    one.ready("attention/0/words")
    assert "0.00 s" in one.side()
    one.word(0, 1).hover()
    assert "0.50 s" in one.side()

    document = Axis.from_document([["It", "rains", "."], ["Again", "."]])
    one = open_page(Trace.from_arrays([[0.1, 0.1, 0.0, 0.8, 0.0]], document, ["sad"]), width=width)
    one.ready("attention/0/words")
    masses = one.page.locator(".mass").evaluate_all(
        "(all) => all.map((one) => Number(one.style.getPropertyValue('--t')))"
    )
    np.testing.assert_allclose(masses, [0.2, 0.8], atol=0.01)

    tape = Trace.from_arrays(np.eye(5, 3), Axis.numbered("slots", 3), Axis.numbered("steps", 5))
    one = open_page(tape, width=width)
    one.ready("attention/0/heat")
    one.page.focus(".scroller")
    one.page.keyboard.press("ArrowRight")  # a step on: time runs to the right
    one.page.keyboard.press("ArrowDown")
    assert one.page.inner_text(".readout").replace("\n", "").startswith("step 1 → slot 1")
    assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_an_attention_without_rows_opens(open_page):
    one = open_page(Trace.from_arrays(np.zeros((0, 3)), ["a", "b", "c"], []))
    one.settle()
    for view in ("heat", "links", "heads", "words"):
        one.show(view)


@pytest.mark.slow
def test_two_thousand_words_are_drawn_by_the_part_that_is_seen(open_page):
    size = 2000
    weights = np.zeros((2, size, size), np.float32)
    weights[:, np.arange(size), np.arange(size)] = 0.9
    weights[:, :, 0] += 0.1
    one = open_page(Trace.from_arrays(weights, labels(size)))
    one.ready("attention/-1/words")
    one.show("heat")
    height, width = one.picture().shape[:2]
    assert height <= 800
    assert width <= 1280
    for _ in range(9):
        one.page.get_by_role("button", name="Zoom in").click()
    one.page.focus(".scroller")
    for _ in range(3):
        one.page.keyboard.press("PageDown")
    one.settle()
    assert one.picture().shape[:2] == (height, width)
    assert one.page.inner_text(".readout").split()[0] == "w60"
    one.show("links")
    assert one.picture().shape[1] <= 1280
