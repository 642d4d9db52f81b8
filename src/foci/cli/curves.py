"""`foci curves`: the training curves of one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foci.printable import printable

_UNSHOWN = {"kind", "step", "epoch", "count", "seconds"}
"""Keys of a line of metrics that are not metrics."""
_KINDS = {"train": "training", "valid": "validation"}


def curves(
    *runs: Path,
    html: Path | None = None,
    png: Path | None = None,
    svg: Path | None = None,
    pdf: Path | None = None,
    metrics: list[str] | None = None,
) -> None:
    """Draw the training curves of one or more runs: as one page that needs no network, or as a picture.

    Parameters
    ----------
    runs
        The folders that training wrote.
    html
        Write a page; curves.html if no file is named.
    png
        Write a picture.
    svg
        Write a picture.
    pdf
        Write a picture.
    metrics
        Only these metrics, such as loss or bleu. Default: all. May be given several times.
    """
    from foci.errors import ConfigError
    from foci.viz.figure.run_curves import plot_run_curves, save_curves_html

    if not runs:
        raise ConfigError("name at least one run: foci curves RUN.")
    runs = tuple(dict.fromkeys(runs))
    pictures = [path for path in (png, svg, pdf) if path is not None]
    lines = read_curves(runs, metrics)
    page = html or (None if pictures else Path("curves.html"))
    if page is not None:
        title = ", ".join(names_of(runs))
        print(printable(save_curves_html(lines, page, title)))
    for path in pictures:
        plot_run_curves(lines, path)
        print(printable(path))


def names_of(runs: tuple[Path, ...]) -> list[str]:
    """What the runs are called: the names of their folders, or where two are the same, their paths."""
    names = [run.resolve().name for run in runs]
    return names if len({*names}) == len(names) else [str(run) for run in runs]


def read_curves(runs: tuple[Path, ...], metrics: list[str] | None) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return the points ``(step, value)`` by metric and run, validation first."""
    from foci.errors import CheckpointError, unknown_name
    from foci.training.run_folder import read_config, read_metrics

    found: dict[str, dict[str, dict[str, list[tuple[int, float]]]]] = {"valid": {}, "train": {}}
    known: set[str] = set()
    for run, name in zip(runs, names_of(runs)):
        read_config(run)
        path = run / "metrics.jsonl"
        if not path.exists():
            raise CheckpointError(f"{run}: has no metrics.jsonl. The run has not written any metrics yet.")
        for line in read_metrics(path):
            for metric, value in _metrics(line):
                known.add(metric)
                if metrics is None or metric in metrics:
                    points = found.setdefault(line["kind"], {}).setdefault(metric, {}).setdefault(name, [])
                    points.append((line["step"], value))
    for metric in metrics or ():
        if metric not in known:
            raise unknown_name("metric", metric, known)
    return {
        f"{metric} ({_KINDS.get(kind, kind)})": lines
        for kind, by_name in found.items()
        for metric, lines in by_name.items()
    }


def _metrics(line: dict[str, Any]) -> list[tuple[str, float]]:
    return [
        (name, float(value))
        for name, value in line.items()
        if name not in _UNSHOWN and isinstance(value, int | float) and not isinstance(value, bool)
    ]
