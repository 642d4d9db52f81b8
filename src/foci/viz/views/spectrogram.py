"""Attention over a recording: its spectrogram, with the weights of each word below it on the same axis of time.

On the page it can be played, from each of its words on. The sound lies in the page as a wav file in base64, so that the
page stays one file and asks no network for anything.
"""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from foci.errors import ConfigError
from foci.viz.axis import Axis
from foci.viz.figure import canvas
from foci.viz.figure.measured_text import beside, measure, wrapped
from foci.viz.page.html import safe
from foci.viz.selection import Selection
from foci.viz.trace import Trace

_BAR = 0.8
"""What the bar of colors takes with its numbers and its name."""
_BETWEEN = 0.06
"""Inches between two spoken words above a spectrogram."""
_ROW = 0.22
"""Height of a word's weights over time, in inches."""


def fits(selection: Selection) -> bool:
    """What is read are frames with a spectrogram."""
    return selection.source.kind == "frames" and selection.source.spectrogram is not None


def figure(trace: Trace, style: canvas.FigureStyle, name: str | None = None, head: int | None = None) -> canvas.Figure:
    """The spectrogram, and below it what each word listened to."""
    selection = Selection(trace, name, head)
    attention, source, target = selection.attention, selection.source, selection.target
    if source.spectrogram is None:
        raise ConfigError(
            f"plot: {attention.source!r} has no spectrogram; make it with Axis.from_frames(count, spectrogram=…)."
        )
    weights = style.scaled(selection.weights)
    rows = [style.label(label) for label in target.labels]
    cell = min(_ROW, 8.0 / max(len(rows), 1))
    below = max(cell * len(rows), 0.5)
    longest = max(measure(rows, style.size).values(), default=0.0)
    width = style.width or 7.5 + longest
    drawn = canvas.new_figure(width, 1.5 + below + 0.9, "constrained")
    above, axes = drawn.subplots(2, 1, sharex=True, height_ratios=(1.5, below))
    ends = (source.moment(0), source.moment(len(source)))
    above.imshow(
        source.spectrogram.T,
        extent=(*ends, 0, source.spectrogram.shape[1]),
        origin="lower",
        aspect="auto",
        cmap="gray_r",
        interpolation="nearest",
    )
    above.set_ylabel("bin")
    above.spines[:].set_visible(False)
    _mark_words(source, style, [above, axes], width - _BAR - longest)
    norm = style.norm(0.0, float(weights.max(initial=0.0)) or 1.0)
    heat = canvas.draw_map(axes, weights, norm, extent=(*ends, len(rows) - 0.5, -0.5), aspect="auto")
    beside(rows, cell, style.size).write(axes.yaxis)
    axes.spines[:].set(color="#c8c8c8", linewidth=0.5)
    axes.set_ylabel(style.text(target.title))
    axes.set_xlabel(f"{style.text(source.title)} (seconds)" if source.seconds else style.text(source.title))
    said = canvas.scale_label(style.title(trace.measure), canvas.meaning_of_zero([attention]), weights)
    if width <= canvas.COLUMN:
        bar = drawn.colorbar(heat, ax=[above, axes], location="bottom", fraction=0.05, aspect=20)
        bar.set_label(wrapped(said, 0.8 * width, style.size))
    else:
        bar = drawn.colorbar(heat, ax=[above, axes], fraction=0.02, aspect=30)
        bar.set_label(wrapped(said, 1.5 + below, style.size))
    bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)
    return drawn


def _mark_words(source: Axis, style: canvas.FigureStyle, axes: Sequence[Any], inches: float) -> None:
    """Write the spoken words above the spectrogram, and mark where each begins and ends.

    Where words would overlap on a time axis of that width, they are turned, and of those that still would the later
    ones are left out.
    """
    marks = source.marks or ()
    labels = [style.text(mark.label) for mark in marks]
    middles = [(mark.first + mark.last + 1) / 2 for mark in marks]
    places = [middle * inches / len(source) for middle in middles]
    widths = measure(labels, style.size)
    turned = any(
        after - before < (widths[left] + widths[right]) / 2 + _BETWEEN
        for (before, left), (after, right) in pairwise(zip(places, labels))
    )
    written = -inches
    for mark, label, place in zip(marks, labels, places):
        for each in axes:
            for moment in (source.moment(mark.first), source.moment(mark.last + 1)):
                each.axvline(moment, color="#c04000", linewidth=0.5, alpha=0.6, gid="word")
        if turned and place - written < 1.25 * style.size / 72:  # a line of letters
            continue
        written = place
        axes[0].text(
            (source.moment(mark.first) + source.moment(mark.last + 1)) / 2,
            1.02,
            label,
            transform=axes[0].get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=style.size,
            rotation=90 if turned else 0,
        )


def page(trace: Trace) -> str:
    """Return the recording and the words of a trace as HTML; nothing where it has no recording.

    Example:
        >>> import numpy as np
        >>> from foci.viz.axis import Mark
        >>> heard = Axis("frames", ("0", "1"), seconds=0.5, marks=(Mark(1, 1, "yes", 0.9),))
        >>> print(page(Trace.from_arrays(np.eye(2), heard, ["a", "b"])))
        <p class="spoken" dir="auto">
        <button type="button" data-start="0.500" title="0.50–1.00 s, 90 %">yes</button>
        </p>
    """
    for attention in trace.attentions_to("frames"):
        axis = trace.axes[attention.source]
        if axis.sound is not None or axis.marks:
            return _recording(axis)
    return ""


def _recording(axis: Axis) -> str:
    lines = ['<p class="spoken" dir="auto">']
    if axis.sound is not None:
        lines.append(f'<audio class="sound" controls src="data:audio/wav;base64,{_wav(axis)}"></audio>')
    for first, last, label, share in axis.marks or ():
        start, end = axis.moment(first), axis.moment(last + 1)
        told = f"{start:.2f}–{end:.2f} s, {100 * share:.0f} %"
        lines.append(
            f'<button type="button" data-start="{start - axis.start:.3f}" title="{told}">{safe(label)}</button>'
        )
    return "\n".join([*lines, "</p>"])


def _wav(axis: Axis) -> str:
    raw = io.BytesIO()
    with wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(int(axis.rate or 1))
        file.writeframes(b"" if axis.sound is None else axis.sound.astype("<i2").tobytes())
    return base64.b64encode(raw.getvalue()).decode("ascii")
