"""A recording as a piece of the page: it can be played, from each of its words on.

The sound lies in the page as a wav file in base64, so that the page stays one file and asks no network for anything.
"""

from __future__ import annotations

import base64
import html
import io
import wave

from foci.printable import printable
from foci.viz.axis import Axis
from foci.viz.trace import Trace


def spoken_html(trace: Trace) -> str:
    """Return the recording and the words of a trace as HTML; nothing where it has no recording.

    Example:
        >>> import numpy as np
        >>> from foci.viz.axis import Mark
        >>> heard = Axis("frames", ("0", "1"), seconds=0.5, marks=(Mark(1, 1, "yes", 0.9),))
        >>> print(spoken_html(Trace.from_arrays(np.eye(2), heard, ["a", "b"])))
        <p class="spoken" dir="auto">
        <button type="button" data-start="0.500" title="0.50 to 1.00 s, 90 %">yes</button>
        </p>
    """
    for attention in trace.attentions.values():
        axis = trace.axes[attention.source]
        if axis.kind == "frames" and (axis.sound is not None or axis.marks):
            return _recording(axis)
    return ""


def _recording(axis: Axis) -> str:
    lines = ['<p class="spoken" dir="auto">']
    if axis.sound is not None:
        lines.append(f'<audio class="sound" controls src="data:audio/wav;base64,{_wav(axis)}"></audio>')
    long = axis.seconds or 1.0
    for first, last, label, share in axis.marks or ():
        start, end = first * long, (last + 1) * long
        told = f"{start:.2f} to {end:.2f} s, {100 * share:.0f} %"
        lines.append(f'<button type="button" data-start="{start:.3f}" title="{told}">{_safe(label)}</button>')
    return "\n".join([*lines, "</p>"])


def _wav(axis: Axis) -> str:
    raw = io.BytesIO()
    with wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(int(axis.rate or 1))
        file.writeframes(b"" if axis.sound is None else axis.sound.astype("<i2").tobytes())
    return base64.b64encode(raw.getvalue()).decode("ascii")


def _safe(text: str) -> str:
    return html.escape(printable(text)).encode("ascii", "xmlcharrefreplace").decode("ascii")
