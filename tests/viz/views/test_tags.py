"""Tagged words in the terminal, as a picture and on the page: every label, its shade, and the tags under each word."""

import re

import numpy as np
import pytest

from foci.errors import ConfigError, ShapeError
from foci.viz import terminal
from foci.viz.axis import Axis, Mark
from foci.viz.page import html
from foci.viz.shaded_words import HUES, shade
from foci.viz.trace import Trace
from foci.viz.views import tags
from foci.viz.views.tags import hues, pieces

WORDS = ("wake", "me", "at", "7", "pm")
TAGS = ("O", "B-time", "I-time")
SHARES = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.98, 0.02, 0.0], [0.1, 0.9, 0.0], [0.4, 0.0, 0.6]]


MARKS = (Mark(3, 4, "time", 0.6),)


def tagged(marks=MARKS, words=WORDS):
    return Trace.from_arrays(SHARES, Axis("tags", TAGS, "tags"), Axis("tokens", words, "words", marks=marks))


def test_the_terminal_shows_labels_and_uncertain_words():
    text = terminal.render(tagged())
    assert "wake me at [7 pm time 60 %]" in text
    assert "7: B-time 90 %, O 10 %" in text
    assert "pm: I-time 60 %, O 40 %" in text
    assert "wake:" not in text
    colored = terminal.render(tagged(), screen=terminal.Screen(80, 1 << 24))
    red, green, blue = shade(HUES[0], 0.6)
    assert f"48;2;{red};{green};{blue}m 7 pm \x1b[0mtime 60 %" in colored
    assert "48;5;" in terminal.render(tagged(), screen=terminal.Screen(80, 256))


def test_long_sentences_are_broken_into_lines():
    for line in terminal.render(tagged(), screen=terminal.Screen(18)).splitlines():
        assert len(line) <= 25  # a labeled stretch alone may be longer
    marks = terminal.render(tagged(marks=()))
    assert "wake me at 7 pm" in marks


def test_labels_cannot_command_a_terminal_or_a_page():
    trace = tagged((Mark(3, 4, "<b>\x1b[31m", 0.6),), ("wake", "<script>", "at", "7", "pm"))
    assert "\x1b" not in terminal.render(trace)
    page = tags.page(trace)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page


def test_the_page_has_words_labels_and_probabilities(tmp_path):
    page = tagged().save_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<span title="B-time 90.0 %, O 10.0 %">7</span>' in page
    assert re.search(r'<mark class="hue-0 sure-4">.*<b>time</b> 60 %</mark>', page)
    plain = Trace.from_arrays([[1.0]], ["a"], ["b"]).save_html(tmp_path / "plain.html").read_text(encoding="utf-8")
    assert '<p class="tagged"' not in plain
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    for number, hue in enumerate(HUES):
        assert f".hue-{number} {{ --hue: {hue}; }}" in style
    for level in range(1, html._LEVELS + 1):
        assert f".sure-{level} " in style


def test_the_picture_shades_by_confidence(tmp_path):
    marks = (Mark(0, 0, "a", 1.0), Mark(3, 4, "a", 0.2), Mark(2, 2, "b", 0.5))
    figure = tagged(tuple(sorted(marks))).plot(tmp_path / "tags.png")
    boxes = [patch for patch in figure.axes[0].patches if patch.get_gid() == "mark"]
    assert len(boxes) == 3
    want = [shade(HUES[0], 1.0), shade(HUES[1], 0.5), shade(HUES[0], 0.2)]
    for box, color in zip(boxes, want):
        assert np.allclose(box.get_facecolor()[:3], np.array(color) / 255)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {"7 pm", "a 20 %", "b 50 %"} <= {*texts}


def test_pieces_hues_and_shades():
    axis = Axis("tokens", WORDS, marks=(Mark(1, 2, "b", 0.5), Mark(4, 4, "a", 1.0)))
    assert [(list(words), mark and mark.label) for words, mark in pieces(axis)] == [
        ([0], None), ([1, 2], "b"), ([3], None), ([4], "a")]  # fmt: skip
    assert hues(axis) == {"a": HUES[0], "b": HUES[1]}
    lightness = [sum(shade(HUES[0], share)) for share in (0.0, 0.3, 0.6, 1.0)]
    assert lightness == sorted(lightness, reverse=True)


@pytest.mark.parametrize("marks", [[(0, 9, "x", 0.5)], [(2, 1, "x", 0.5)], [(0, 1, "x", 0.5), (1, 2, "y", 0.5)],
                                   [(0, 0, "x", 1.5)]])  # fmt: skip
def test_marks_that_do_not_fit(marks):
    with pytest.raises(ShapeError, match="does not fit 5 positions"):
        Axis("tokens", WORDS, marks=tuple(marks))


def test_a_trace_without_tags_has_no_such_view(tmp_path):
    trace = Trace.from_arrays([[1.0]], ["a"], ["b"])
    with pytest.raises(ConfigError, match="view 'tags' needs words with marks"):
        terminal.render(trace, view="tags")
    with pytest.raises(ConfigError, match="view 'tags' needs words with marks"):
        trace.plot(tmp_path / "a.png", "tags")
