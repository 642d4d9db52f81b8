"""Images and channels: in the terminal, as bars in a figure, and what is said where they do not fit."""

import re
from dataclasses import replace

import numpy as np
import pytest

from foci.errors import ConfigError
from foci.viz.terminal import PLAIN, Screen, render
from foci.viz.trace import Axis, Trace

IMAGE = np.zeros((6, 6, 3), np.uint8)
IMAGE[:, :3], IMAGE[:, 3:] = (200, 100, 0), (0, 100, 200)
WEIGHTS = np.array([[0.7, 0.1, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]], np.float32)
TRACE = Trace.from_arrays(WEIGHTS, Axis.from_image(IMAGE, (2, 2)), ["left", "圆形"])


def test_without_colors_each_region_is_two_blocks():
    lines = render(TRACE).splitlines()
    assert lines[0] == "attention · target ← image"
    assert lines[1:] == ["left  圆形", "██··", "····    ██"]
    plain = render(TRACE, screen=Screen(80, 0, PLAIN)).splitlines()
    assert plain[2].startswith("##")
    fine = Trace.from_arrays(
        np.eye(1, 40 * 40, 1, dtype=np.float32), Axis("regions", ("",) * 1600, grid=(40, 40)), ["x"]
    )
    lines = render(fine).split("\n")
    assert [len(lines), max(map(len, lines[2:]))] == [16, 2]
    narrow = render(TRACE, screen=Screen(9, 0)).splitlines()
    assert [line for line in narrow if "left" in line or "圆形" in line] == ["left", "圆形"]


@pytest.mark.parametrize(("colors", "code"), [(1 << 24, r"38;2;(\d+);(\d+);(\d+)"), (256, r"38;5;(\d+)")])
def test_with_colors_what_was_looked_at_is_bright(colors, code):
    lines = render(TRACE, screen=Screen(80, colors)).splitlines()
    assert lines[1].startswith("left")
    assert all(line.count("▀") == 2 * 28 for line in lines[2:])
    assert len(lines) == 2 + 14
    if colors > 256:
        first, last = (re.findall(code, lines[at]) for at in (2, -1))
        assert first[0] == ("200", "100", "0")  # the corner of the first map, in full
        assert int(last[0][0]) < 80  # below a veil
        assert last[-1] == ("0", "100", "200")


def test_regions_without_an_image_and_rows_without_weight():
    axis = Axis("regions", tuple("abcdef"), grid=(2, 3))
    trace = Trace.from_arrays(np.zeros((1, 6), np.float32), axis, ["nothing"])
    assert "▀" in render(trace, screen=Screen(80, 256))
    assert "nothing" in render(trace)
    with pytest.raises(ConfigError, match="needs regions of an image"):
        render(Trace.from_arrays([[1.0]], ["a"], ["b"]), view="image")


def channels(count=5, raw=None):
    weights = np.arange(1, count + 1, dtype=np.float32)[None]
    trace = Trace.from_arrays(weights / weights.sum(), Axis.numbered("channels", count), ["class"], name="channels 0")
    if raw is None:
        return trace
    return replace(trace, attentions={"channels 0": replace(trace.attentions["channels 0"], extras={"weight": raw})})


def test_channels_are_bars_in_the_terminal():
    assert render(channels()).splitlines()[1] == "class  ▂▄▅▇█  largest: 4 (0.33), 3 (0.27), 2 (0.20)"
    raw = np.array([[0.9, 0.1, 0.2, 0.3, 0.45]], np.float32)
    assert render(channels(raw=raw)).splitlines()[1] == "class  █▁▂▃▄  largest: 0 (0.90), 4 (0.45), 3 (0.30)"
    assert render(channels(raw=raw), screen=Screen(80, 0, PLAIN)).splitlines()[1].startswith("class  91234")
    narrow = render(channels(70), screen=Screen(40)).splitlines()
    assert [len(line) for line in narrow[2:4]] == [40, 30]


def test_channels_are_bars_in_a_figure(tmp_path):
    raw = np.array([[0.9, 0.1, 0.2, 0.3, 0.45]], np.float32)
    figure = channels(raw=raw).plot(tmp_path / "x.png")
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert np.allclose(heights, raw[0])
    shares = [bar.get_height() for bar in channels().plot().axes[0].patches]
    assert np.allclose(shares, np.arange(1, 6) / 15)
    with pytest.raises(ConfigError, match="view 'bars' needs an attention to channels"):
        TRACE.plot(view="bars")


def test_maps_as_applied_survive_saving(tmp_path):
    raw = np.array([[0.9, 0.1, 0.2, 0.3, 0.45]], np.float32)
    channels(raw=raw).save(tmp_path / "a")
    found = Trace.load(tmp_path / "a.json")
    assert found.axes["source"].kind == "channels"
    assert np.array_equal(found.attentions["channels 0"].extras["weight"], raw)
