"""Traces in a terminal: exact text, aligned columns, and what the terminal can show."""

import io
import re
import textwrap
from itertools import pairwise

import numpy as np
import pytest

from foci.errors import ConfigError, UnknownNameError
from foci.viz import colors as colors
from foci.viz.labels import width
from foci.viz.terminal import PLAIN, Screen, render
from foci.viz.trace import Axis, Trace, TracedAttention

LTR, FSI, PDI = "\u200e", "\u2068", "\u2069"


def text(block):
    return textwrap.dedent(block).strip("\n")


def test_a_small_map():
    weights = [[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.01, 0.49, 0.5]]
    trace = Trace.from_arrays(weights, ["das", "Haus", "!"], ["the", "house", "!"])
    assert render(trace) == text("""
        attention · target ← source
              das Haus !
        the   ███
        house ░░░ ▓▓▓▓
        !         ▒▒▒▒ ▒▒
        up to: blank 0.02  · 0.2  ░ 0.4  ▒ 0.6  ▓ 0.8  █ 1
        """)


def test_wide_characters_line_up():
    weights = [[1.0, 0.5, 0.25, 0.1], [0.1, 1.0, 0.1, 0.1], [0.1, 0.1, 1.0, 0.1]]
    trace = Trace.from_arrays(weights, ["我们", "e\u0301té", "👍🏽", "한"], ["we", "日本", "❤\ufe0fx"])
    assert render(trace) == text("""
        attention · target ← source
             我们 e\u0301té 👍🏽 한
        we   ████ ▒▒▒ ░░ ··
        日本 ···· ███ ·· ··
        ❤\ufe0fx  ···· ··· ██ ··
        up to: blank 0.02  · 0.2  ░ 0.4  ▒ 0.6  ▓ 0.8  █ 1
        """)
    for line in render(trace).splitlines()[2:5]:
        assert width(line) == 4 + 1 + 4 + 1 + 3 + 1 + 2 + 1 + 2


def test_right_to_left_words_run_from_the_right_and_turn_nothing_around():
    trace = Trace.from_arrays([[1.0, 0.0], [0.0, 1.0]], ["أنا", "أحب"], ["I", "شكرا"])
    arabic = [f"{LTR}{FSI}{word}{PDI}" for word in ("أنا", "أحب", "شكرا")]
    assert render(trace).splitlines()[1:4] == [
        f"     {arabic[1]} {arabic[0]}",
        "I        ███",
        f"{arabic[2]} ███",
    ]
    assert render(trace, view="ranked").splitlines()[2] == f"{arabic[2]} ← {arabic[1]} 100 %"


def test_ranked():
    weights = [[0.5, 0.3, 0.2, 0.0], [0.996, 0.002, 0.002, 0.0], [0.0, 0.0, 0.0, 0.0]]
    trace = Trace.from_arrays(weights, ["a", "中", "", "d"], ["x", "longer", "z"])
    assert render(trace, view="ranked") == text("""
        attention · target ← source
        x      ← a 50 %, 中 30 %, ∅ 20 %
        longer ← a 100 %
        z      ← (nothing)
        """)
    assert render(trace, view="ranked", top=2).splitlines()[1] == "x      ← a 50 %, 中 30 %"


@pytest.mark.parametrize("columns", [16, 20, 24, 40, 80])
@pytest.mark.parametrize("view", [None, "heatmap", "ranked"])
def test_no_line_is_wider_than_the_terminal(columns, view):
    words = [("中文" if number % 2 else "word") * (1 + number % 4) for number in range(17)]
    weights = np.random.default_rng(0).dirichlet(np.ones(17) / 3, size=5)
    shown = render(Trace.from_arrays(weights, words, words[:5]), view=view, screen=Screen(columns))
    assert max(map(width, shown.splitlines())) <= columns


def test_too_wide_it_comes_in_parts_and_far_too_wide_it_is_told():
    words = [f"word{number:02}" for number in range(20)]
    trace = Trace.from_arrays(np.eye(20)[:2], words, ["x", "y"])
    lines = render(trace, screen=Screen(80)).splitlines()
    assert [line.split() for line in lines if "word" in line] == [words[:11], words[11:]]
    assert lines.count("") == 1
    assert [line[0] for line in lines[1:] if line and line[0] in "xy"] == ["x", "y"] * 2
    assert render(trace, screen=Screen(24)).splitlines()[1] == "x ← word00 100 %"


def test_of_many_rows_some_are_shown():
    trace = Trace.from_arrays(np.full((1500, 2), 0.5), ["a", "b"], [str(number) for number in range(1500)])
    lines = render(trace, most_rows=3).splitlines()
    assert lines[-1] == "… and 1,497 rows more"
    assert len(lines) == 1 + 1 + 3 + 1 + 1
    assert len(render(trace, most_rows=None).splitlines()) == 1 + 1 + 1500 + 1


def test_numbered_cells_are_put_together():
    weights = np.zeros((2, 100), dtype=np.float32)
    weights[0, :10], weights[1, 90:] = 0.1, 0.1
    trace = Trace.from_arrays(weights, Axis.from_frames(100, seconds=0.1), ["x", "y"])
    assert render(trace, screen=Screen(22)) == text("""
        attention · target ← …
          0.00 s        9.90 s
        x ██
        y                   ██
        (each column: 5 frames)
        █ 0.5
        """)


def test_heads_and_names():
    weights = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    trace = Trace.from_arrays(weights, ["a", "b"], ["x"], name="decoder.0.cross")
    assert render(trace).splitlines()[0] == "decoder.0.cross · mean of 2 heads · target ← source"
    assert render(trace, head=1).splitlines()[0] == "decoder.0.cross · head 1 · target ← source"
    assert render(trace, "decoder.0.cross", head=1, view="ranked").splitlines()[1] == "x ← b 100 %"


def test_left_out_weights_are_owned_up_to():
    trace = Trace.from_arrays(np.full((1, 9), 1 / 9), list("abcdefghi"), ["x"], budget=4)
    assert render(trace).splitlines()[-1] == "(small weights of long rows were not kept)"


def test_nothing_to_show():
    assert render(Trace.from_arrays(np.zeros((0, 2)), ["a", "b"], [])).splitlines()[1] == "(no cells)"
    assert render(Trace.from_arrays(np.zeros((1, 2)), ["a", "b"], ["x"])).splitlines()[-1] == "(all weights are 0)"


def painted(line):
    """The cells of a line in 24-bit colors: (red, green, blue) behind them, and what is written there."""
    found = re.findall(r"\x1b\[38;2;[\d;]+;48;2;(\d+);(\d+);(\d+)m([^\x1b]*)\x1b\[0m", line)
    return [(tuple(map(int, parts[:3])), parts[3]) for parts in found]


def test_colors_stand_for_weights():
    trace = Trace.from_arrays([[1.0, 0.5, 0.0]], ["aa", "bb", "cc"], ["x"])
    lines = render(trace, screen=Screen(80, 1 << 24)).splitlines()
    gap = ((255, 255, 255), " ")
    assert painted(lines[2]) == [
        *(gap, (colors.rgb(1.0), "  ")),
        *(gap, (colors.rgb(0.5), "  ")),
        *(gap, ((255, 255, 255), "//")),  # exactly 0
    ]
    assert [text for _, text in painted(lines[3])] == ["  "] * 6 + ["//"]
    assert re.sub(r"\x1b\[[0-9;]*m", "", lines[3]).split() == [
        "0",
        "0.2",
        "0.4",
        "0.6",
        "0.8",
        "1",
        "//",
        "exactly",
        "0",
    ]
    assert ";48;5;" in render(trace, screen=Screen(80, 256))


@pytest.mark.parametrize("count", [256, 1 << 24])
def test_on_every_terminal_more_is_darker(count):
    """On a light terminal the largest weight was the palest. The ground is painted now."""
    shares = np.linspace(0.001, 1.0, 40, dtype=np.float32)[None]
    trace = Trace.from_arrays(shares, [f"{number:02}" for number in range(40)], ["x"])
    line = render(trace, view="heatmap", screen=Screen(200, count)).splitlines()[2]
    codes = re.findall(r"48;(?:5;(\d+)|2;(\d+);(\d+);(\d+))m  \x1b", line)
    assert len(codes) == 40
    levels = (0, 95, 135, 175, 215, 255)  # of the cube of 6 × 6 × 6 colors, the same in every terminal
    greys = []
    for number, *parts in codes:
        cube = divmod(int(number) - 16, 36) if number else None
        color = [levels[cube[0]], *(levels[place] for place in divmod(cube[1], 6))] if cube else list(map(int, parts))
        greys.append(np.dot(color, [0.2126, 0.7152, 0.0722]))
    assert all(more <= less for less, more in pairwise(greys))
    assert greys[0] > 250
    assert greys[-1] < 45


def test_of_several_layers_of_which_none_says_anything_the_last_is_shown_and_said():
    weights = np.random.default_rng(1).dirichlet(np.ones(3), size=(2, 4, 1)).repeat(3, axis=2)
    trace = Trace.from_arrays(weights, list("abc"))
    lines = render(trace).splitlines()
    assert lines[0] == "attention.1 · the last of 2 layers · mean of 4 heads · source ← source"
    assert lines[1:] == render(trace, "attention.1").splitlines()[1:]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("settings", "mark"),
    [
        ({"TERM": "xterm-256color"}, "\x1b[38;5;"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "\x1b[38;2;"),
        ({"TERM": "xterm"}, None),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, None),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, None),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "\x1b[38;5;"),
    ],
)
def test_colors_as_the_terminal_has_them(settings, mark, monkeypatch):
    for name in ("TERM", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    trace = Trace.from_arrays([[1.0]], ["a"], ["x"])
    terminal, pipe = Terminal(), io.StringIO()
    trace.print(file=terminal)
    trace.print(file=pipe)
    assert mark in terminal.getvalue() if mark else "\x1b" not in terminal.getvalue()
    assert "\x1b" not in pipe.getvalue()


def test_the_width_is_the_terminals(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    Trace.from_arrays(np.eye(9), [f"word{number}" for number in range(9)]).print()
    assert capsys.readouterr().out.splitlines()[1] == "word0 ← word0 100 %"


def test_without_unicode_there_are_plain_signs():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Trace.from_arrays([[1.0, 0.2]], ["中", "a label too long"], ["x"]).print(file=file)
    file.flush()
    lines = file.buffer.getvalue().decode("ascii").splitlines()
    assert lines[0] == "attention - target <- source"
    assert lines[1].endswith("a label~")
    assert lines[2] == f"x ## {PLAIN[0] * 8}"


def test_a_label_cannot_command_the_terminal():
    trace = Trace.from_arrays([[1.0]], ["\x1b]0;title\x07"], ["\x1b[2J"], name="\x1b[31m")
    assert "\x1b" not in render(trace)
    assert "\x07" not in render(trace)


def test_refuses_unknown_styles():
    trace = Trace.from_arrays([[1.0]], ["a"], ["x"])
    with pytest.raises(UnknownNameError, match="'rank'.*'ranked'"):
        render(trace, view="rank")
    with pytest.raises(ConfigError, match="top is 0"):
        render(trace, view="ranked", top=0)
    with pytest.raises(UnknownNameError, match="'attention'"):
        render(trace, "atention")


def test_several_attentions_of_the_last_layer_are_named():
    axes = {"s": Axis.from_tokens(["a"]), "t": Axis.from_tokens(["x"])}
    ones = np.ones((1, 1, 1), np.float32)
    trace = Trace(axes, {name: TracedAttention(name, "s", "t", ones) for name in ("0.left", "0.right")})
    assert render(trace).splitlines()[0] == "0.left, 0.right · t ← s"


def a_document() -> Trace:
    axis = Axis.from_document([["It", "rains", "."], ["What", "a", "wonderful", "شمس", "."]])
    weights = np.array([[0.02, 0.0, 0.0, 0.1, 0.0, 0.6, 0.28, 0.0]], dtype=np.float32)
    return Trace.from_arrays(weights, axis, ["positive"])


def test_a_document_is_text_with_its_words_marked():
    lines = render(a_document()).splitlines()
    assert lines[1] == "  2 % It· rains ."
    assert lines[2].startswith(" 98 % What· a wonderful█ ")
    assert "شمس" in lines[2]
    assert lines[2].endswith("▒ .")
    assert render(a_document(), view="document") == render(a_document())
    assert "It 2 %" in render(a_document(), view="ranked", top=8)


def test_a_document_is_broken_between_words_and_colored_behind_them():
    lines = render(a_document(), screen=Screen(20, 1 << 24)).splitlines()
    bare = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert bare[1:3] == ["  2 % It rains .", " 98 % What a"]
    assert bare[3].startswith("      wonderful ")
    assert "\x1b[38;2;255;255;255;48;2;8;30;70mwonderful\x1b[0m" in lines[3]


def test_only_a_document_is_shown_as_one():
    with pytest.raises(ConfigError, match="needs an attention whose source is a document"):
        render(Trace.from_arrays([[1.0]], ["a"], ["b"]), view="document")
    with pytest.raises(ConfigError, match="needs an attention whose source is a document"):
        render(Trace.from_arrays([[1.0]], ["a"], ["b"]), "attention", view="document")


def test_a_document_tells_what_it_does_not_show():
    axis = Axis.from_document([["a", "b"], ["c"]])
    trace = Trace.from_arrays([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], axis, ["x", "y"])
    assert render(trace, view="document").splitlines()[-1] == "… and 1 rows more"
    assert render(trace, view="document", most_rows=0) == render(trace, view="document")
