"""A text with an image in it: saved, joined, hidden, and what its words read of the image."""

import numpy as np
import pytest
from mixed import text_around_image

from foci.viz.trace import Trace


@pytest.fixture
def trace():
    return text_around_image()


def test_it_is_saved_joined_and_hidden(trace, tmp_path):
    again = Trace.load(trace.save(tmp_path / "t"))
    axis = again.axes["source"]
    assert [part.kind for part in axis.parts] == ["tokens", "regions", "tokens"]
    np.testing.assert_array_equal(axis.parts[1].image, trace.axes["source"].parts[1].image)
    assert again.axes["source"].labels == trace.axes["source"].labels
    small = trace.hide(special=True).join_words()
    assert [len(part) for part in small.axes["source"].parts] == [1, 12, 2]
    assert small.axes["source"].parts[2].labels == ("a", "cat")
    assert small.axes["source"].parts[1].grid == (3, 4)
    whole, less = trace.alignment(), small.attention("attention").weights.mean(0)
    assert less.shape == (15, 15)
    np.testing.assert_allclose(less[12, :13].sum() + less[12, 13:].sum(), 1, rtol=1e-4)
    assert whole.shape == (17, 17)
    sunk = trace.alignment().copy()
    sunk[2:, 3] += 50
    patch = Trace.from_arrays(sunk / sunk.sum(-1, keepdims=True), trace.axes["source"]).hide(sinks=True)
    assert len(patch.axes["source"]) == 17  # a patch keeps its place
    assert patch.alignment()[:, 3].max() == 0


def test_pictures_and_terminal_show_the_image(trace, capsys, tmp_path):
    trace.print()
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"attention · head {trace.opening.head} · sequence ← image"
    shown = trace.attention("attention").dense(trace.opening.head)
    share = shown[15, 2:14].sum()
    assert f"▁ca ({100 * share:.0f} %)" in out
    trace.print(view="ranked")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:7]] == ["<s>", "▁see", "image", "▁a", "▁ca", "t"]
    assert f"image {100 * share:.0f} %" in lines[5]
    drawn = trace.plot(view="heatmap").axes[0].get_images()[0].get_array()
    np.testing.assert_allclose(drawn[4, 2], share, rtol=1e-5)
    np.testing.assert_allclose(drawn[2, 0], shown[2:14, 0].mean(), rtol=1e-5)
    figure = trace.plot(tmp_path / "x.png")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "image"
    assert any(title.startswith("▁ca") for title in titles)
