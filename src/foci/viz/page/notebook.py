"""A trace in a notebook: its page in a frame, and a picture and text for where no frame is shown. A handle: a picture.

The frame is sandboxed: it may run the page's own script and save what a person exports. It has no access to the
notebook, cannot navigate, open windows or send forms, and the page's policy blocks the network.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from foci.errors import MissingPackageError
from foci.viz.terminal import show

if TYPE_CHECKING:
    from foci.viz.trace import Trace
    from foci.weights import Weights

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
    return _wanted({"text/html": _frame, "image/png": _picture, "text/plain": _text}, trace, include, exclude)


def of_handle(weights: Weights, include: Collection[str] | None, exclude: Collection[str] | None) -> dict[str, Any]:
    """Return what a notebook can show of a handle: the heat map of its first entry; arguments as in `mimebundle`."""
    return _wanted({"image/png": _map, "text/plain": repr}, weights, include, exclude)


def _wanted(
    makers: Mapping[str, Callable[[Any], str | None]],
    shown: object,
    include: Collection[str] | None,
    exclude: Collection[str] | None,
) -> dict[str, Any]:
    chosen = {kind for kind in makers if (not include or kind in include) and kind not in (exclude or ())}
    made = {kind: make(shown) for kind, make in makers.items() if kind in chosen}
    return {kind: form for kind, form in made.items() if form is not None}


def _map(weights: Weights) -> str | None:
    from foci.viz.trace import BUDGET, Axis, Trace

    if 0 in weights.shape or not 1 < len(weights.shape) < 5 or weights.shape[1:].numel() > BUDGET:
        return None  # the text alone: the picture would take a minute
    rows, columns = (1, *weights.shape[1:])[-2:]
    axes = {"query": Axis.numbered("steps", rows, "query"), "key": Axis.numbered("steps", columns, "key")}
    return _picture(Trace.from_handles({"weights": weights}, axes, {"weights": ("query", "key")}))


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
