"""Traces in a terminal, as wide and as colored as it is (``NO_COLOR``, ``TERM`` and a pipe are respected)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, TextIO

from foci.errors import ConfigError
from foci.viz.screen import BLOCKS, PLAIN, Screen
from foci.viz.selection import Selection
from foci.viz.terminal.sheet import heading
from foci.viz.trace import Trace
from foci.viz.views import choose

__all__ = ["BLOCKS", "PLAIN", "Screen", "render", "show"]

_PLAIN_SIGNS = str.maketrans({"·": "-", "←": "<-", "…": "~", "␣": "_", "∅": "0", "⟨": "<", "⟩": ">", "◌": "o"})


def show(trace: Trace, name: str | None = None, *, file: TextIO | None = None, **options: Any) -> None:
    """Write `render`'s text to a stream, by default the standard output, as that stream can show it."""
    file = sys.stdout if file is None else file
    screen = options.setdefault("screen", Screen.from_stream(file))
    text = render(trace, name, **options)
    encoding = getattr(file, "encoding", None) or "utf-8"
    if screen.blocks == PLAIN:
        text = text.translate(_PLAIN_SIGNS)
    file.write(text.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")


def render(
    trace: Trace,
    name: str | None = None,
    *,
    head: int | None = None,
    view: str | None = None,
    top: int = 3,
    most_rows: int | None = 60,
    screen: Screen | None = None,
) -> str:
    """Return the trace as text.

    Args:
        trace: what to show.
        name: of the attention. Default: the trace's cross-attentions.
        head: number of the head. Default: their mean.
        view: one of `foci.viz.views` that a terminal has. Default: the first that fits.
        top: how many positions each row of a ranked list names.
        most_rows: how many rows are shown; None shows all.
        screen: what the terminal can show. Default: 80 columns without colors.

    Example:
        >>> trace = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> print(render(trace, view="ranked"))
        attention · target ← source
        the   ← das 90 %, Haus 10 %
        house ← Haus 80 %, das 20 %
    """
    if top < 1:
        raise ConfigError(f"render: top is {top}, expected a number above 0.")
    selection = Selection(trace, name, head, "terminal", screen or Screen(), top, most_rows)
    chosen = choose(selection, view)
    if view is not None and hasattr(chosen, "attention"):
        selection = replace(selection, name=chosen.attention(trace, name).name)
    if selection.weights.size == 0:
        return "\n".join([heading(selection), "(no cells)"])
    return "\n".join(chosen.terminal(selection))
