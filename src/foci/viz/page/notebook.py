"""A trace in a notebook: its page in a frame, and a picture and text for where no frame is shown.

The frame is sandboxed: it may run the page's own script and save what a person exports. It has no access to the
notebook, cannot navigate, open windows or send forms, and the page's policy blocks the network.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from foci.errors import MissingPackageError
from foci.viz.terminal import show

if TYPE_CHECKING:
    from foci.viz.trace import Trace

LARGEST = 8_000_000
"""Bytes of a page that is put into a notebook; a larger one makes it slow to open and to save."""
HEIGHT = 620
"""Of the frame in pixels."""


def mimebundle(trace: Trace, include: Collection[str] | None, exclude: Collection[str] | None) -> dict[str, Any]:
    """Return what a notebook can show, by media type; it takes the richest it knows.

    Args:
        trace: what to show.
        include: the only types wanted, if given.
        exclude: types that are not wanted.
    """
    makers = {"text/html": _frame, "image/png": _picture, "text/plain": _text}
    bundle = {}
    for kind, make in makers.items():
        if (include and kind not in include) or kind in (exclude or ()):
            continue
        made = make(trace)
        if made is not None:
            bundle[kind] = made
    return bundle


def _frame(trace: Trace) -> str:
    with TemporaryDirectory() as folder:
        document = trace.save_html(Path(folder) / "page.html").read_text(encoding="utf-8")
    size = len(document.encode("utf-8"))
    if size > LARGEST:
        return (
            f"<p>The page of this trace has {size / 1e6:.0f} MB, too much for a notebook. Write it beside: "
            '<code>trace.save_html("trace.html")</code></p>'
        )
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{html.escape(document)}" title="foci trace" '
        f'style="width: 100%; height: {HEIGHT}px; border: 1px solid #cccccc; border-radius: 6px"></iframe>'
    )


def _picture(trace: Trace) -> str | None:
    try:
        figure: Any = trace.plot()
    except MissingPackageError:
        return None
    raw, _ = figure._repr_png_()
    return base64.b64encode(raw).decode("ascii")


def _text(trace: Trace) -> str:
    stream = io.StringIO()
    show(trace, file=stream)
    return "\n".join([repr(trace), "", stream.getvalue()])
