"""Recordings in traces: words with their times in pictures, in the terminal, on the page, and the sound itself."""

import base64
import io
import re
import wave
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from foci.errors import ConfigError, ShapeError
from foci.viz.axis import Axis, Mark
from foci.viz.terminal import render
from foci.viz.trace import Trace
from foci.viz.views import spectrogram


def heard(**changes):
    chance = np.random.default_rng(0)
    fields = {
        "spectrogram": chance.random((40, 7), dtype=np.float32),
        "seconds": 0.25,
        "marks": (Mark(1, 2, "yes", 0.9), Mark(5, 6, "<是>", 0.5)),
        "sound": (1000 * chance.standard_normal(2000)).astype(np.int16),
        "rate": 1000,
    }
    return Axis("frames", tuple(map(str, range(8))), "audio", **(fields | changes))


@pytest.fixture
def trace():
    return Trace.from_arrays(np.eye(8)[:3], heard(), ["a", "b", "c"])


def test_saved_and_loaded_with_its_sound(trace, tmp_path):
    again = Trace.load(trace.save(tmp_path / "a")).axes["source"]
    assert np.array_equal(again.sound, trace.axes["source"].sound)
    assert (again.rate, again.marks) == (1000, trace.axes["source"].marks)


def test_the_page_has_a_wav_and_a_policy_for_it(trace, tmp_path):
    page = trace.save_html(tmp_path / "a.html").read_text(encoding="utf-8")
    (packed,) = re.findall(r'src="data:audio/wav;base64,([^"]*)"', page)
    with wave.open(io.BytesIO(base64.b64decode(packed))) as file:
        assert (file.getframerate(), file.getnframes(), file.getsampwidth()) == (1000, 2000, 2)
        assert np.array_equal(np.frombuffer(file.readframes(2000), "<i2"), trace.axes["source"].sound)
    assert "media-src data:" in page
    assert 'data-start="0.250" title="0.25–0.75 s, 90 %">yes</button>' in page
    assert "&lt;&#26159;&gt;</button>" in page
    silent = Trace.from_arrays(np.eye(3), ["a", "b", "c"])
    assert spectrogram.page(silent) == ""
    assert "media-src" not in silent.save_html(tmp_path / "b.html").read_text(encoding="utf-8")


def test_a_segment_has_the_times_of_its_recording(tmp_path):
    """In the terminal, the picture and the page; the page plays its sound from the beginning of the segment."""
    trace = Trace.from_arrays(np.eye(8)[:3], heard(start=61.5), ["a", "b", "c"])
    assert Trace.load(trace.save(tmp_path / "a")).axes["source"].start == 61.5
    assert "  61.75 to  62.25 s  yes   90 %" in render(trace).splitlines()
    page = trace.save_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert 'data-start="0.250" title="61.75–62.25 s, 90 %">yes</button>' in page
    above, below, _ = trace.plot(view="spectrogram").axes
    for axes in (above, below):
        assert axes.get_xlim() == (61.5, 63.5)
        assert [line.get_xdata()[0] for line in axes.lines] == [61.75, 62.25, 62.75, 63.25]
    assert [text.get_position()[0] for text in above.texts] == [62.0, 63.0]
    assert Axis.from_frames(3, seconds=0.5, start=61.5).labels == ("61.50 s", "62.00 s", "62.50 s")
    with pytest.raises(ConfigError, match="start is nan"):
        heard(start=float("nan"))


def test_the_terminal_lists_words_with_their_times(trace):
    lines = render(trace).splitlines()
    assert "   0.25 to   0.75 s  yes   90 %" in lines
    assert "   1.25 to   1.75 s  <是>  50 %" in lines


def test_the_picture_marks_words(trace, tmp_path):
    figure = trace.plot(tmp_path / "a.svg", "spectrogram")
    above = figure.axes[0]
    assert [text.get_text() for text in above.texts] == ["yes", "<是>"]
    moments = sorted({float(line.get_xdata()[0]) for line in above.lines if line.get_gid() == "word"})
    assert moments == [0.25, 0.75, 1.25, 1.75]


@pytest.mark.parametrize(("words", "letters", "rotation"), [(8, 3, 0), (30, 9, 90), (200, 9, 90)])
def test_words_in_the_picture_do_not_overlap(words, letters, rotation):
    axes = 2 * words
    marks = tuple(Mark(2 * n, 2 * n, f"{n:0{letters}}", 0.9) for n in range(words))
    chance = np.random.default_rng(0)
    source = Axis.from_frames(axes, seconds=0.04, spectrogram=chance.random((4 * axes, 7), dtype=np.float32))
    trace = Trace.from_arrays(chance.random((3, axes)), replace(source, marks=marks), ["a", "b", "c"])
    figure = trace.plot(view="spectrogram")
    figure.canvas.draw()
    texts = figure.axes[0].texts
    assert {text.get_rotation() for text in texts} == {rotation}
    assert texts[0].get_text() == "0" * letters
    assert len(texts) == words or len(texts) > 20
    boxes = [text.get_window_extent() for text in texts]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_sound_of_the_wrong_kind():
    for changes in ({"sound": np.zeros((2, 3), np.int16)}, {"sound": np.zeros(3)}, {"rate": None}):
        with pytest.raises(ShapeError, match="expected samples of int16"):
            heard(**changes)
