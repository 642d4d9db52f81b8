"""Training curves of one or more runs: one offline page, or one figure.

Curves are figures by name, and of each the points ``(step, value)`` by the name of the run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from foci.files import whole
from foci.viz.figure import canvas
from foci.viz.page.offline import offline_page

Points = Sequence[tuple[int, float]]
Curves = Mapping[str, Mapping[str, Points]]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#b3478f", "#c98a00", "#3aa0dc", "#6b4fbb", "#7a7a00")
"""Of the runs, one after the other; told apart by color-blind eyes, and once more by their dashes."""
_DASHES = ("-", "--", ":", "-.")
_SCRIPTS = ("curves/languages", "shared", "curves/curves")


def save_curves_html(curves: Curves, path: str | os.PathLike[str], title: str = "Training curves") -> Path:
    """Write one page with a chart for each figure; it needs no network.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     save_curves_html({"loss": {"run": [(1, 0.5), (2, 0.25)]}}, f"{folder}/curves.html").name
        'curves.html'
    """
    runs = _runs(curves)
    payload = {
        "title": title,
        "runs": [{"name": name, "color": COLORS[number % len(COLORS)]} for number, name in enumerate(runs)],
        "figures": [
            {"name": name, "lines": [_known(lines.get(run, ())) for run in runs]} for name, lines in curves.items()
        ],
    }
    with whole(path) as unfinished:
        unfinished.write_text(offline_page("curves", _SCRIPTS, title, payload), encoding="utf-8", newline="\n")
    return Path(path)


def plot_run_curves(curves: Curves, path: str | os.PathLike[str] | None = None) -> canvas.Figure:
    """Draw a panel for each figure, and with a path save them as PNG, SVG or PDF by the name's ending.

    Example:
        >>> figure = plot_run_curves({"loss": {"a": [(1, 0.5), (2, 0.25)], "b": [(1, 0.4)]}})
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['a', 'b']
    """
    target = None if path is None else canvas.check_path("plot_run_curves", path)
    runs = _runs(curves)
    with canvas.drawing([*curves, *runs]) as style:
        across = min(3, max(1, len(curves)))
        down = -(-len(curves) // across) or 1
        figure = canvas.new_figure(3.6 * across, 2.5 * down, "constrained")
        panels = figure.subplots(down, across, squeeze=False).flat
        for (name, lines), axes in zip(curves.items(), panels):
            for number, run in enumerate(runs):
                points = _known(lines.get(run, ()))
                if points:
                    steps, values = zip(*points)
                    dash = _DASHES[number % len(_DASHES)]
                    marker = "o" if len(points) == 1 else None
                    color = COLORS[number % len(COLORS)]
                    axes.plot(steps, values, dash, marker=marker, color=color, label=style.text(run), linewidth=1.3)
            axes.set_title(style.text(name))
            axes.set_xlabel("step")
            axes.spines[["top", "right"]].set_visible(False)
        for axes in list(panels):
            axes.set_visible(False)
        if len(runs) > 1 and curves:
            drawn = {str(line.get_label()): line for axes in figure.axes for line in axes.lines}
            figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", frameon=False, ncols=4)
        if target is not None:
            canvas.save(figure, target)
    return figure


def _runs(curves: Curves) -> list[str]:
    return list(dict.fromkeys(run for lines in curves.values() for run in lines))


def _known(points: Points) -> list[tuple[int, float]]:
    """The points in order, without those that have no finite value."""
    return sorted((step, value) for step, value in points if math.isfinite(value))
