"""Pictures of traces: axes, labels and orientation, read back from what matplotlib will draw."""

import math
import re
import warnings
from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.viz import colors as colors
from foci.viz.figure import canvas, fonts
from foci.viz.trace import Axis, Trace, TracedAttention


def weights_of(*shape, seed=0):
    weights = np.exp(2 * np.random.default_rng(seed).normal(size=shape))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def ticks(axis):
    return {position: label.get_text() for position, label in zip(axis.get_ticklocs(), axis.get_ticklabels())}


def panels(figure):
    """The axes with a picture, the bar of colors left out."""
    return [axes for axes in figure.axes if axes.images]


def shown(axes, number=0):
    return np.ma.filled(axes.images[number].get_array(), 0.0)


def runs_down(axes):
    bottom, top = axes.get_ylim()
    return bottom > top


def runs_right(axes):
    left, right = axes.get_xlim()
    return left < right


def test_heat_map_has_the_weights_and_their_labels():
    weights = weights_of(2, 3, 5)
    figure = Trace.from_arrays(weights, list("abcde"), list("xyz"), title="what was said").plot(name="attention")
    (axes,) = panels(figure)
    assert np.allclose(shown(axes), weights.mean(0))
    assert ticks(axes.xaxis) == dict(enumerate("abcde"))
    assert ticks(axes.yaxis) == dict(enumerate("xyz"))
    assert (axes.get_xlabel(), axes.get_ylabel(), figure.get_suptitle()) == ("source", "target", "what was said")
    assert runs_down(axes)
    assert runs_right(axes)
    head = Trace.from_arrays(weights, list("abcde"), list("xyz")).plot(head=1)
    assert np.allclose(shown(panels(head)[0]), weights[1])


@pytest.mark.parametrize(("budget", "hatched"), [(100, "exactly 0"), (12, "0 or too small to be kept")])
def test_the_bar_says_what_hatching_means(budget, hatched):
    weights = weights_of(2, 3, 4)
    weights[:, 0, 0] = 0.0
    trace = Trace.from_arrays(weights, list("abcd"), list("xyz"), budget=budget)
    for view in ("heatmap", "heads"):
        bar = trace.plot(view=view).axes[-1]
        assert (bar.get_xlabel() + bar.get_ylabel()).replace("\n", " ").replace(
            "weight (", "weight  ("
        ) == f"weight  (hatched: {hatched})"


def test_right_to_left_sources_start_at_the_right():
    trace = Trace.from_arrays(weights_of(2, 3), ["أنا", "أحب", "القطط"], ["I", "شكرا"])
    (axes,) = panels(trace.plot())
    assert not runs_right(axes)
    assert runs_down(axes)
    assert ticks(axes.xaxis) == {0: "أنا", 1: "أحب", 2: "القطط"}


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_files_of_every_kind_are_whole_and_equal(kind, start, tmp_path):
    trace = Trace.from_arrays(weights_of(3, 5), list("abcde"), list("xyz"))
    for number in range(2):
        trace.plot(tmp_path / "new" / f"{number}.{kind}")
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == [f"0.{kind}", f"1.{kind}"]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().startswith(start)


def test_heads_and_layers_make_a_grid():
    weights = weights_of(2, 3, 4, 5)
    figure = Trace.from_arrays(weights, list("abcde"), list("wxyz")).plot(view="heads")
    grid = panels(figure)
    assert len(grid) == 6
    for number, axes in enumerate(grid):
        layer, head = divmod(number, 3)
        assert np.allclose(shown(axes), weights[layer, head])
        assert axes.get_title() == ("" if layer else f"head {head}")
        assert axes.get_ylabel() == ("" if head else f"layer {layer}")
        assert axes.images[0].norm.vmax == pytest.approx(weights.max())
        assert list(ticks(axes.yaxis).values()) == ([] if head else list("wxyz"))
        assert list(ticks(axes.xaxis).values()) == (list("abcde") if layer else [])
    columns = [axes.get_position().x0 for axes in grid]
    rows = [axes.get_position().y0 for axes in grid]
    assert columns[0] < columns[1] < columns[2]
    assert columns[0] == pytest.approx(columns[3])
    assert rows[0] == pytest.approx(rows[2])
    assert rows[0] > rows[3]


def test_one_layer_shows_its_heads_and_many_words_have_no_labels():
    figure = Trace.from_arrays(weights_of(3, 4, 5), list("abcde"), list("wxyz")).plot(view="heads")
    assert [axes.get_title() for axes in panels(figure)] == ["head 0", "head 1", "head 2"]
    words = [str(number) for number in range(60)]
    figure = Trace.from_arrays(weights_of(2, 2, 60, 60), words).plot(view="heads")
    assert not any(ticks(axes.xaxis) or ticks(axes.yaxis) for axes in panels(figure))


def outlines(figure, labels):
    """The corners of each text, turned as it is drawn, in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    found = []
    for label in labels:
        width, height, _ = renderer.get_text_width_height_descent(label.get_text(), label.get_fontproperties(), False)
        angle = math.radians(label.get_rotation())
        end = np.array(label.get_transform().transform(label.get_position()))
        along, up = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
        start = end - {"right": width, "center": width / 2, "left": 0.0}[label.get_ha()] * along
        found.append((start, along, up, width, height))
    return found


def touch(one, other):
    """Whether two texts of the same angle overlap."""
    (start, along, up, width, height), (there, *_, wide, high) = one, other
    by, over = (there - start) @ along, (there - start) @ up
    return -wide < by < width and abs(over) < min(height, high)


WORDS = ["Der", "Ausschuss", "hat", "nach", "langer", "Debatte", "die", "neuen", "Regeln", "beschlossen", "."]


def tape_of(slots, steps):
    return Trace.from_arrays(weights_of(steps, slots), Axis.numbered("slots", slots), Axis.numbered("steps", steps))


@pytest.mark.parametrize("width", [None, 3.3, 6.5])
@pytest.mark.parametrize(
    ("trace", "view"),
    [
        (tape_of(10, 20), None),
        (tape_of(128, 121), None),
        (tape_of(64, 31), None),
        (Trace.from_arrays(weights_of(2, 4, 11, 11), WORDS), "heads"),
        (Trace.from_arrays(weights_of(11, 11), WORDS), None),
        (Trace.from_arrays(weights_of(70, 70), [f"word{number}" for number in range(70)]), None),
    ],
)
def test_labels_do_not_touch(trace, view, width):
    figure = trace.plot(view=view, width=width)
    for axes in panels(figure):
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label for label in axis.get_ticklabels() if label.get_text()]
            assert all(label.get_fontsize() >= 7 for label in labels)
            for one, other in pairwise(outlines(figure, labels)):
                assert not touch(one, other), [label.get_text() for label in labels]


def test_the_heads_view_keeps_every_word():
    figure = Trace.from_arrays(weights_of(2, 4, 11, 11), WORDS).plot(view="heads")
    first, last = panels(figure)[0], panels(figure)[-1]
    assert list(ticks(first.yaxis).values()) == WORDS
    assert list(ticks(last.xaxis).values()) == WORDS


def test_numbers_stand_upright_in_round_steps():
    (axes,) = panels(tape_of(128, 121).plot())
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {0.0}
    assert list(ticks(axes.xaxis).values())[:3] in (["0", "5", "10"], ["0", "10", "20"])


@pytest.mark.parametrize("width", [2.5, 3.3, 6.9])
@pytest.mark.parametrize(
    "view", ["heatmap", "heads", "marginals", "spectrogram", "document", "image", "memory", "bars"]
)
def test_a_given_width_is_kept_and_holds_everything(view, width, tmp_path):
    trace = {
        "heatmap": Trace.from_arrays(weights_of(11, 11), WORDS, title=" ".join(WORDS)),
        "heads": Trace.from_arrays(weights_of(2, 4, 11, 11), WORDS),
        "marginals": Trace.from_arrays(weights_of(3, 4), Axis("tags", ("B-PER", "I-PER", "B-LOC", "O")), list("abc")),
        "spectrogram": Trace.from_arrays(
            weights_of(3, 7), Axis.from_frames(7, seconds=0.5, spectrogram=np.ones((28, 5))), ["she", "had", "a"]
        ),
        "document": document(),
        "image": Trace.from_arrays(weights_of(4, 6), Axis.from_image(IMAGE, (3, 2)), ["one", "two", "three", "four"]),
        "memory": tape_of(10, 20),
        "bars": Trace.from_arrays(weights_of(1, 40), Axis.numbered("channels", 40), ["class"]),
    }[view]
    figure = trace.plot(tmp_path / "x.svg", view, width=width)
    assert figure.get_figwidth() == width
    text = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert float(re.search(r'width="([\d.]+)pt"', text)[1]) == pytest.approx(72 * width, abs=0.1)
    for axes in figure.axes:
        extent = axes.get_tightbbox()
        assert extent.x0 >= -1, view
        assert extent.x1 <= figure.bbox.x1 + 1, view
    sizes = [text.get_fontsize() for axes in figure.axes for text in axes.findobj(match=Text) if text.get_text()]
    assert min(sizes) >= 7


def test_text_stays_text_in_svg(tmp_path):
    Trace.from_arrays([[0.9, 0.1]], ["das <b>", "grüne"], ["the"]).plot(tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert ">das &lt;b&gt;</text>" in text
    assert ">grüne</text>" in text


def test_by_row_the_largest_of_each_row_is_the_darkest():
    weights = np.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]], np.float32)
    trace = Trace.from_arrays(weights, list("abc"), list("xy"))
    figure = trace.plot(scale="row")
    (axes,) = panels(figure)
    assert np.allclose(shown(axes), [[1.0, 0.5, 0.5], [1 / 6, 1 / 6, 1.0]])
    assert axes.images[0].norm.vmax == 1.0
    bar = figure.axes[-1]
    assert "largest in its row" in (bar.get_xlabel() + bar.get_ylabel()).replace("\n", " ")
    with pytest.raises(UnknownNameError, match="'rows'.*'row'"):
        trace.plot(scale="rows")


def test_gamma_brings_out_small_weights():
    trace = Trace.from_arrays([[0.8, 0.2]], ["a", "b"], ["x"])
    plain, raised = (panels(trace.plot(gamma=gamma))[0].images[0] for gamma in (1.0, 0.5))
    assert plain.norm(0.2) == pytest.approx(0.25)
    assert raised.norm(0.2) == pytest.approx(0.5)
    for gamma in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="gamma is .*above 0"):
            trace.plot(gamma=gamma)


def test_of_several_layers_of_one_text_the_head_that_says_most_is_shown_and_named():
    weights = weights_of(3, 2, 4, 4)
    trace = Trace.from_arrays(weights, list("abcd"))
    figure = trace.plot()
    (axes,) = panels(figure)
    layer, head = int(trace.opening.attention[-1]), trace.opening.head
    assert np.allclose(shown(axes), weights[layer, head])
    assert axes.get_title().replace("\n", " ") == f"attention.{layer}, head {head}, says most of 6 heads"
    (axes,) = panels(Trace.from_arrays(np.full((3, 2, 4, 4), 0.25), list("abcd")).plot())  # none says anything
    assert axes.get_title().replace("\n", " ") == "attention.2, the last of 3 layers, mean of 2 heads"
    (axes,) = panels(Trace.from_arrays(weights, list("abcd")).plot(name="attention.0", head=1))
    assert axes.get_title() == "attention.0, head 1"
    (axes,) = panels(Trace.from_arrays(weights[0, 0], list("abcd")).plot())
    assert axes.get_title() == ""


def test_long_labels_have_room():
    """Nothing lies outside of the figure or on something else, the bar of colors included."""
    labels = ["a label that is long", "another long label", "a label far too long to be shown whole"]
    figure = Trace.from_arrays(weights_of(2, 2, 3, 3), labels, title="long labels").plot(view="heads")
    extents = [axes.get_tightbbox() for axes in figure.axes]
    for one, other in combinations(extents, 2):
        assert not one.overlaps(other)
    for extent in extents:
        assert extent.x0 >= 0
        assert extent.y0 >= 0
        assert extent.x1 <= figure.bbox.x1
        assert extent.y1 <= figure.bbox.y1


def test_heads_are_those_of_one_kind():
    axes = {"source": Axis.from_tokens(list("abc")), "target": Axis.from_tokens(list("xy"))}
    several = [
        TracedAttention("decoder.1.cross", "source", "target", weights_of(2, 2, 3, seed=1)),
        TracedAttention("decoder.0.self", "target", "target", weights_of(2, 2, 2, seed=2)),
        TracedAttention("decoder.0.cross", "source", "target", weights_of(2, 2, 3, seed=3)),
    ]
    trace = Trace(axes, {attention.name: attention for attention in several})
    stack = [shown(axes) for axes in panels(trace.plot(view="heads"))]
    assert np.allclose(stack, np.concatenate([several[2].weights, several[0].weights]))
    stack = [shown(axes) for axes in panels(trace.plot(view="heads", name="decoder.0.self"))]
    assert np.allclose(stack, several[1].weights)


IMAGE = np.random.default_rng(2).integers(0, 255, (30, 20, 3), dtype=np.uint8)


def test_an_image_is_shown_and_then_looked_at_word_by_word():
    weights = np.zeros((3, 6), dtype=np.float32)
    weights[0, 0], weights[1, 5], weights[2] = 1.0, 0.5, 1 / 6  # top left, bottom right, everywhere
    trace = Trace.from_arrays(weights, Axis.from_image(IMAGE, (3, 2)), ["left", "right", "all"])
    axes = panels(trace.plot())
    assert [each.get_title() for each in axes] == ["image", "left", "right", "all"]
    assert np.array_equal(axes[0].images[0].get_array(), IMAGE)
    assert all(each.images[0].get_extent() == each.images[-1].get_extent() for each in axes)
    assert runs_down(axes[1])
    top, bottom, everywhere = (shown(each, 1) for each in axes[1:])
    assert top.shape == (30, 20)
    assert np.unravel_index(top.argmax(), top.shape) == (0, 0)
    assert bottom[-1, -1] == bottom.max() == pytest.approx(0.5)
    assert bottom[:10].max() == 0.0
    assert np.allclose(everywhere, 1 / 6)
    chosen = panels(trace.plot(words=[2, 0]))
    assert [each.get_title() for each in chosen] == ["image", "all", "left"]


@pytest.mark.parametrize(("shape", "grid"), [((1, 8, 3), (1, 2)), ((8, 1, 3), (2, 1))])
def test_weights_between_the_middles_of_regions_are_linear(shape, grid):
    trace = Trace.from_arrays([[0.0, 1.0]], Axis.from_image(np.zeros(shape, np.uint8), grid), ["x"])
    line = shown(panels(trace.plot())[1], 1).ravel()
    # The middles lie at 2 and 6 of 8; pixel n's own middle is n + 0.5.
    assert np.allclose(line, [min(max((pixel + 0.5 - 2) / 4, 0), 1) for pixel in range(8)])


def test_a_spectrogram_and_the_words_share_the_axis_of_time():
    spectrogram = np.random.default_rng(3).random((28, 5)).astype(np.float32)
    weights = weights_of(3, 7)
    axis = Axis.from_frames(7, seconds=0.5, spectrogram=spectrogram)
    above, below = panels(Trace.from_arrays(weights, axis, ["she", "had", "a"]).plot(view="spectrogram"))
    assert np.array_equal(shown(above), spectrogram.T)
    assert not runs_down(above)  # low bins at the bottom
    assert above.images[0].get_extent() == [0, 3.5, 0, 5]
    assert np.allclose(shown(below), weights)
    assert below.images[0].get_extent() == [0, 3.5, 2.5, -0.5]
    assert above.get_xlim() == below.get_xlim() == (0, 3.5)
    assert list(ticks(below.yaxis)) == [0, 1, 2]
    assert below.get_xlabel() == "audio (seconds)"


def boxes(figure, gid):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_gid() == gid]


SENTENCES = [["It", "rains", "again", "."], ["word"] * 40, ["Fine", "."]]


def document(**changes):
    axes = {"document": Axis.from_document(SENTENCES), "label": Axis("tags", ("sad",))}
    axes |= {"sentences": Axis.numbered("steps", 3)}
    words = TracedAttention("words", "document", "label", weights_of(1, 1, 46))
    shares = np.array([[[0.6, 0.3, 0.1]]], np.float32)
    shown = {"sentences": TracedAttention("sentences", "sentences", "label", shares)}
    attentions = {"words": words} | shown | changes
    return Trace(axes, {name: attention for name, attention in attentions.items() if attention is not None}, "sad")


def test_a_document_shades_words_and_sentences():
    trace = document()
    figure = trace.plot()
    words, marks = boxes(figure, "word"), boxes(figure, "sentence")
    weights = trace.attention("words").dense()[0]
    assert len(words) == 46
    for box, weight in zip(words, weights):
        expected = [part / 255 for part in colors.rgb(float(weight) / float(weights.max()))]
        assert np.allclose(box.get_facecolor()[:3], expected, atol=0.01)
    full = marks[0].get_width() / 0.6
    assert [mark.get_width() / full for mark in marks] == pytest.approx([0.6, 0.3, 0.1])
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written == ["60 %", "30 %", "10 %", *(word for sentence in SENTENCES for word in sentence)]
    assert runs_down(figure.axes[0])
    lines = [round(box.get_y(), 3) for box in words]
    assert len(set(lines[:4])) == 1
    assert len(set(lines[4:44])) > 1  # a long sentence is broken
    assert lines[44] > max(lines[4:44])  # a new one begins a line
    assert marks[1].get_y() > marks[0].get_y()
    bar = figure.axes[1]
    assert bar.get_xlabel() == "weight of a word"
    assert all(label.get_text().endswith(" %") for label in bar.get_xticklabels())
    for box, after in pairwise(words):  # no word lies on the next
        assert box.get_y() < after.get_y() or box.get_x() + box.get_width() <= after.get_x() + 1e-6
    assert max(box.get_x() + box.get_width() for box in words) <= figure.axes[0].get_xlim()[1]


def test_without_an_attention_over_sentences_their_words_are_added_up():
    trace = document(sentences=None)
    weights = trace.attention("words").dense()[0]
    sums = [weights[:4].sum(), weights[4:44].sum(), weights[44:].sum()]
    assert [text.get_text() for text in trace.plot().axes[0].texts[:3]] == [f"{100 * share:.0f} %" for share in sums]


def test_a_document_from_right_to_left():
    axes = {"d": Axis.from_document([["كان", "الطعام"]]), "label": Axis("tags", ("a",))}
    trace = Trace(axes, {"words": TracedAttention("words", "d", "label", weights_of(1, 1, 2))})
    figure = trace.plot()
    assert not runs_right(figure.axes[0])
    first, second = boxes(figure, "word")
    assert first.get_x() < second.get_x()  # that is: further right


def test_a_memory_is_slots_over_steps():
    write, read = weights_of(1, 4, 3, seed=1), weights_of(2, 4, 3, seed=2)
    axes = {"slots": Axis.numbered("slots", 3), "steps": Axis.numbered("steps", 4)}
    tapes = [TracedAttention("ntm:write", "slots", "steps", write), TracedAttention("ntm:read", "slots", "steps", read)]
    axes = panels(Trace(axes, {tape.name: tape for tape in tapes}).plot())
    assert [each.get_title() for each in axes] == ["write", "read, head 0", "read, head 1"]
    for each, expected in zip(axes, [*write, *read]):
        assert np.allclose(shown(each), expected.T)
    assert (axes[0].get_ylabel(), axes[0].get_xlabel()) == ("slots", "steps")


def test_a_share_of_a_memory_that_was_rounded_to_zero_is_not_drawn_as_masked():
    weights = np.array([[[1.0, 0.0], [0.5, 0.5]]], np.float32)
    axes = {"slots": Axis.numbered("slots", 2), "steps": Axis.numbered("steps", 2)}
    figure = Trace(axes, {"ntm:read": TracedAttention("ntm:read", "slots", "steps", weights)}).plot()
    assert not np.ma.getmaskarray(panels(figure)[0].images[0].get_array()).any()
    assert "hatched" not in " ".join(axes.get_ylabel() for axes in figure.axes)


def test_marginals_are_tags_of_words_with_their_numbers_as_on_the_page():
    shares = np.array([[0.9, 0.1], [0.25, 0.75], [0.0, 1.0]], np.float32)
    trace = Trace.from_arrays(shares, Axis("tags", ("NOUN", "VERB"), "tag"), ["a", "b", "c"])
    (axes,) = panels(trace.plot())
    assert np.allclose(shown(axes), shares)
    assert list(ticks(axes.xaxis).values()) == ["NOUN", "VERB"]
    assert list(ticks(axes.yaxis).values()) == ["a", "b", "c"]
    assert [text.get_text() for text in axes.texts] == ["90 %", "10 %", "25 %", "75 %", "0 %", "100 %"]


def test_labels_are_text_cut_and_visible():
    labels = ["$5 to $6", "x" * 40, "\x1b[0m\n", "", " ", "\u200b", "a\u202eb"]
    (axes,) = panels(Trace.from_arrays(weights_of(1, 7), labels, ["x"]).plot())
    assert list(ticks(axes.xaxis).values()) == [
        "$5 to $6", "x" * 27 + "…", "^[[0m↵", "∅", "␣", "⟨U+200B⟩", "a⟨U+202E⟩b",
    ]  # fmt: skip
    assert not axes.get_xticklabels()[0].get_parse_math()


@pytest.fixture
def only_ships_with_matplotlib(monkeypatch):
    own = [font for font in font_manager.fontManager.ttflist if "matplotlib" in font.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)


def test_characters_that_no_font_has_are_spelt_and_the_package_is_named(only_ships_with_matplotlib, tmp_path):
    trace = Trace.from_arrays([[1.0, 0.0]], ["龘a", "靐"], ["x"])
    with pytest.warns(UserWarning, match=r"no font has 靐, 龘: .*apt install fonts-noto-cjk\)") as caught:
        figure = trace.plot(tmp_path / "x.png")
    assert len(caught) == 1
    assert list(ticks(panels(figure)[0].xaxis).values()) == ["U+9F98a", "U+9750"]


@pytest.mark.parametrize(
    ("character", "package"),
    [("龘", "fonts-noto-cjk"), ("ひ", "fonts-noto-cjk"), ("한", "fonts-noto-cjk"), ("ក", "fonts-noto-core"),
     ("🦊", "fonts-symbola")],
)  # fmt: skip
def test_each_script_has_its_package(character, package, only_ships_with_matplotlib):
    with pytest.warns(UserWarning, match=rf"apt install {package}\)"):
        assert fonts.choose(character) == (["DejaVu Sans"], {character})


def test_joiners_marks_and_tones_need_no_glyph(only_ships_with_matplotlib):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trace.from_arrays([[1.0, 0.0]], ["❤\ufe0f", "☺🏽"], ["a\u200db"]).plot()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"view": "heatmaps"}, UnknownNameError, "'heatmaps'.*'heatmap'"),
        ({"path": "x.jpg"}, ConfigError, r"x\.jpg.*\.png, \.svg, \.pdf"),
        ({"name": "atention"}, UnknownNameError, "'attention'"),
        ({"view": "image"}, ConfigError, "'source' has no image and grid; make it with Axis.from_image"),
        ({"view": "spectrogram"}, ConfigError, "'source' has no spectrogram"),
        ({"view": "memory"}, ConfigError, "slots"),
        ({"view": "document"}, ConfigError, "Axis.from_document"),
        ({"head": 3}, ConfigError, "head is 3, but 'attention' has 2"),
    ],
)
def test_refuses_what_it_cannot_draw(options, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        Trace.from_arrays(weights_of(2, 3, 5), list("abcde"), list("xyz")).plot(**options)
    assert not list(tmp_path.iterdir())


def test_refuses_rows_and_words_that_are_not_there():
    with pytest.raises(ConfigError, match="row is 1, but 'words' has 1"):
        document().plot(row=1)
    with pytest.raises(ShapeError, match="'words' has 46 columns, but the document has 3 sentences"):
        document().plot(sentences="words")
    trace = Trace.from_arrays(weights_of(2, 6), Axis.from_image(IMAGE, (3, 2)), ["a", "b"])
    with pytest.raises(ConfigError, match="word 2 is not among the 2 of 'target'"):
        trace.plot(words=[2])


def test_hatching_is_for_zeros_on_purpose_not_for_those_of_a_softmax_that_ran_out_of_numbers():
    weights = np.array([[0.7, 0.3, 0.0], [1.0, 1e-38, 0.0], [0.0, 0.0, 0.0]], dtype=np.float32)
    axes = canvas.new_figure(1.0, 1.0).subplots()
    masked = canvas.draw_map(axes, weights, canvas.FigureStyle().norm(0.0, 1.0)).get_array()
    assert masked.mask.tolist() == [[False, False, True], [False] * 3, [True] * 3]
    assert "hatched" in canvas.scale_label("weight", "exactly 0", weights)
    assert "hatched" not in canvas.scale_label("weight", "exactly 0", weights[1:2])


def test_cells_are_widened_a_little_so_that_short_labels_stand_upright():
    short, long = ["1", "1", ":", "2", "9", "▁AM"], ["Ausschuss", "beschlossen"]
    (axes,) = panels(Trace.from_arrays(weights_of(6, 6), short).plot())
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {0.0}
    (axes,) = panels(Trace.from_arrays(weights_of(2, 2), long).plot())
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {45.0}
