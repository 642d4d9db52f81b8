"""The plots of the report: cost against length, and all ratios. Costs are relative, never seconds."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

Record = dict[str, Any]
Runs = dict[str, tuple[Record, list[Record]]]

OURS, THEIRS, OTHER, PALE, INK = "#0b6e99", "#c2571a", "#7a5195", "#c9ced3", "#30363c"

plt.rcParams.update(
    {
        "font.size": 9,
        "axes.edgecolor": PALE,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": INK,
        "ytick.color": INK,
        "text.color": INK,
        "savefig.dpi": 110,
    }
)


def draw(runs: Runs, folder: Path, *, overview: bool = True) -> dict[str, str]:
    """Draw the plots that the runs have figures for; return file names by subject.

    Args:
        runs: the runs and their cases by group.
        folder: where the plots are written.
        overview: draw the ratios of all groups too; not where only some of the page's groups were measured.
    """
    drawn = {}
    for name, plot in (("ratios", _ratios), ("window", _window), ("curves", _curves)):
        figure = None if name == "ratios" and not overview else plot(runs)
        if figure is not None:
            drawn[name] = f"bench-{name}.png"
            figure.savefig(folder / drawn[name], bbox_inches="tight", metadata={"Software": None})
            plt.close(figure)
    return drawn


def _ratios(runs: Runs) -> Figure | None:
    """Draw every comparison as a dot: right of the line foci is faster."""
    rows = [
        (name, [case for case in cases if "ratio_median" in case])
        for name, (_, cases) in runs.items()
        if any("ratio_median" in case for case in cases)
    ]
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(7.5, 0.6 + 0.5 * len(rows)))
    for height, (_, cases) in enumerate(reversed(rows)):
        ratios = sorted(case["ratio_median"] for case in cases)
        # Dots of one group are displaced a little, so that equal ones are visible.
        heights = [height + (0, 0.22, -0.22, 0.11, -0.11)[rank % 5] for rank in range(len(ratios))]
        colors = [OURS if ratio >= 1 else THEIRS for ratio in ratios]
        axes.scatter(ratios, heights, s=26, c=colors, alpha=0.85, linewidths=0.5, edgecolors="white", zorder=3)
    axes.axvline(1, color=INK, linewidth=1, zorder=2)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [name for name, _ in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    values = [case["ratio_median"] for _, cases in rows for case in cases]
    low, high = min(0.5, *values) / 1.3, max(2.0, *values) * 1.3
    axes.set_xlim(low, high)
    ticks = [tick for tick in (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if low <= tick <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}×"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color=PALE, linewidth=0.5, zorder=0)
    axes.tick_params(length=0)
    axes.set_title("theirs / ours: each dot is a comparison; right of 1× foci is faster", loc="left", fontsize=9)
    return figure


def _window(runs: Runs) -> Figure | None:
    """Draw the cost of a sliding window against length, ours and theirs."""
    if "window" not in runs:
        return None
    cases = [case for case in runs["window"][1] if case["series"] and "ours" in case]
    measures = [measure for measure in ("forward", "forward + backward") if any(c["measure"] == measure for c in cases)]
    if not measures:
        return None
    figure, panels = plt.subplots(1, len(measures), figsize=(4.0 * len(measures), 3.2), squeeze=False, sharey=True)
    colors = {"dense mask": THEIRS, "LocalAttention": OTHER, "LongformerSelfAttention": "#5c8a3a"}
    for axes, measure in zip(panels[0], measures):
        chosen = [case for case in cases if case["measure"] == measure]
        # Ours is measured with every peer; the line has the best of each length.
        ours: dict[int, float] = {}
        theirs: dict[str, dict[int, float]] = defaultdict(dict)
        for case in chosen:
            if case["series"].startswith("causal"):
                best = min(case["ours"]["min"], ours.get(case["length"], math.inf))
                ours[case["length"]] = best
            if "theirs" in case:
                theirs[case["against"]][case["length"]] = case["theirs"]["min"]
        unit = ours[min(ours)]
        lines = [("foci", ours, OURS), *((name, points, colors.get(name, OTHER)) for name, points in theirs.items())]
        ends = []
        for name, points, color in lines:
            lengths = sorted(points)
            costs = [points[length] / unit for length in lengths]
            axes.plot(lengths, costs, color=color, linewidth=2 if name == "foci" else 1.4, marker="o", markersize=3.5)
            ends.append((name, lengths[-1], costs[-1], color))
        _label_ends(axes, ends)
        _length_axis(axes, sorted({case["length"] for case in cases}), room=3.2)
        axes.set_xlabel("length")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(color=PALE, linewidth=0.5)
        axes.set_title(measure, loc="left", fontsize=9)
    panels[0][0].set_ylabel(f"cost (foci at length {min(ours)} = 1)")
    figure.tight_layout()
    return figure


def _curves(runs: Runs) -> Figure | None:
    """Draw a small panel per mechanism, with scaled_dot in gray."""
    if "curves" not in runs:
        return None
    cases = [case for case in runs["curves"][1] if "ours" in case]
    costs: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for case in cases:
        costs[case["series"], case["measure"]][case["length"]] = case["ours"]["min"]
    names = list(dict.fromkeys(case["series"] for case in cases))
    reference = costs.get(("scaled_dot", "forward"))
    if not names or not reference:
        return None
    unit = reference[min(reference)]
    lengths = sorted({case["length"] for case in cases})
    columns = 6
    rows = math.ceil(len(names) / columns)
    size = (10, 1.45 * rows + 0.5)
    figure, panels = plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, name in zip(panels.flat, names):
        gray = sorted(reference)
        axes.plot(gray, [reference[length] / unit for length in gray], color=PALE, linewidth=3, zorder=1)
        for measure, style in (("forward", "-"), ("forward + backward", "--")):
            points = costs.get((name, measure), {})
            there = sorted(points)
            relative = [points[length] / unit for length in there]
            axes.plot(there, relative, style, color=OURS, linewidth=1.5, marker="o", markersize=2.5)
        axes.set_yscale("log")
        _length_axis(axes, lengths)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_title(name.replace("attention_over_attention", "attention_over_att."), loc="left", fontsize=8, pad=3)
        axes.tick_params(labelsize=7, length=2)
        axes.grid(color=PALE, linewidth=0.4)
    for axes in panels.flat[len(names) :]:
        axes.set_visible(False)
    for axes in panels.flat[max(len(names) - columns, 0) : len(names)]:
        axes.tick_params(labelbottom=True)
    trained = any(measure == "forward + backward" for _, measure in costs)
    lines = " Solid: forward; dashed: forward + backward." if trained else ""
    title = f"Cost against length; scaled_dot at length {min(reference)} is 1, and drawn in gray.{lines}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    figure.tight_layout()
    return figure


def _length_axis(axes: Axes, lengths: list[int], room: float = 1.15) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(lengths if len(lengths) < 5 else lengths[::2]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick / 1024:g}k" if tick >= 1024 else f"{tick:g}"))
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * room)


def _label_ends(axes: Axes, ends: list[tuple[str, int, float, str]]) -> None:
    """Write names at the ends of the lines, moved apart where they would overlap (the axis is logarithmic)."""
    below = 0.0
    for name, length, cost, color in sorted(ends, key=lambda end: end[2]):
        height = max(cost, below * 1.45)
        below = height
        axes.annotate(
            name.replace("SelfAttention", ""),
            (length, height),
            xytext=(5, 0),
            textcoords="offset points",
            color=color,
            fontsize=8,
            va="center",
            fontweight="bold" if name == "foci" else "normal",
        )
