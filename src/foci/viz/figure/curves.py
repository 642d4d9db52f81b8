"""Lines over a number: an error against the length, a figure against the steps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from foci.viz.figure import canvas

_MARKERS = "osD^v"
"""Of the lines, so that they can also be told apart in gray print."""
_INSIDE = 3
"""Curves whose legend finds room between them."""


def plot_curves(
    curves: Mapping[str, Sequence[tuple[int | float, int | float]]],
    path: str | os.PathLike[str] | None = None,
    *,
    across: str,
    up: str,
    title: str = "",
) -> canvas.Figure:
    """Draw lines through points, and with a path save them as PNG, SVG or PDF by the name's ending.

    Args:
        curves: by name, the points ``(across, up)``; they are joined from left to right.
        path: where the picture goes.
        across, up: what the axes are called.
        title: above everything.

    Example:
        >>> figure = plot_curves({"ntm": [(20, 0.1), (10, 0.0)]}, across="length", up="wrong bits")
        >>> figure.axes[0].lines[0].get_xdata().tolist()
        [10, 20]
    """
    target = None if path is None else canvas.check_path("plot_curves", path)
    with canvas.drawing([*curves, across, up, title]) as style:
        figure = canvas.new_figure(5.0, 3.2, "constrained")
        axes = figure.subplots()
        shades = canvas.colors()
        for number, (name, points) in enumerate(curves.items()):
            xs, ys = zip(*sorted(points)) if points else ((), ())
            axes.plot(
                xs,
                ys,
                marker=_MARKERS[number % len(_MARKERS)],
                color=shades(1.0 - 0.6 * number / max(len(curves) - 1, 1)),
                label=style.text(name),
            )
        axes.set_xlabel(style.text(across))
        axes.set_ylabel(style.text(up))
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="x", integer=True)  # lengths, steps
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves) > 1:
            if len(curves) > _INSIDE:
                figure.legend(loc="outside lower center", frameon=False, ncols=2)
            else:
                axes.legend(frameon=False)
        if title:
            axes.set_title(style.text(title, canvas.LONGEST_TITLE))
        if target is not None:
            canvas.save(figure, target)
    return figure
