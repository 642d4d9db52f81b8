"""From stored results to a page in Markdown, with plots.

    python -m benchmarks.report RESULTS PAGE

Speeds are reported as ratios, theirs / ours: above 1 foci is faster. The only absolute metrics are the limits of
the machine, and memory. Groups that have no results but a section in the page keep that section.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import groups
from benchmarks.interference import MOST, disturbance
from benchmarks.peers import PEERS

Record = dict[str, Any]

BUSY_CASES = 0.25
"""A run in which more than this share of the cases was disturbed is not to be trusted."""

LIMITS = {
    "gemm": ("matrix product, float32, 1024³", 1e9, "GFLOP/s"),
    "bandwidth": ("memory, reading and writing", 1e9, "GB/s"),
    "cell": ("additive cell, v / (1 + a·b), in the first-level cache", 1e9, "Gcells/s"),
}


def main(arguments: Sequence[str]) -> int:
    """Write the page and its plots."""
    results, page = Path(arguments[0]), Path(arguments[1])
    runs = load(results)
    if not runs:
        print(f"no results in {results}", file=sys.stderr)
        return 1
    from benchmarks import plots

    images = page.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    older = older_page(page.read_text(), runs) if page.exists() else None
    drawn = plots.draw(runs, images, overview=older is None)
    page.write_text(markdown(runs, drawn, older))
    print(f"wrote {page} and {len(drawn)} plots in {images}")
    busy = trust(runs)
    if busy:
        print(busy)
    return 0


def load(results: Path) -> dict[str, tuple[Record, list[Record]]]:
    """Return the run and its cases by group, in the order of the report."""
    found = {}
    for name in groups.PEERS:
        kept = results / f"{name}.jsonl"
        if kept.exists():
            run, *cases = (json.loads(line) for line in kept.read_text().splitlines())
            found[name] = (run, cases)
    return found


class OlderPage(NamedTuple):
    """What a page keeps of an earlier run: all that comes before the groups, and the sections of other groups."""

    head: str
    sections: dict[str, str]


def older_page(text: str, runs: dict[str, tuple[Record, list[Record]]]) -> OlderPage | None:
    """Return what the page has of groups that are not among the runs; None if there is nothing."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    names = {f"## {_title(name)[0]}": name for name in groups.PEERS}
    by_name = {names[part.partition("\n")[0]]: part.strip() for part in parts if part.partition("\n")[0] in names}
    sections = {name: part for name, part in by_name.items() if name not in runs}
    head = "".join(part for part in parts if part.partition("\n")[0] not in names).strip()
    return OlderPage(head, sections) if sections else None


def markdown(
    runs: dict[str, tuple[Record, list[Record]]], images: dict[str, str], older: OlderPage | None = None
) -> str:
    """Return the page.

    Args:
        runs: the runs and their cases by group.
        images: file names beside the page, by their subject: a group, or "ratios".
        older: what is kept of the page; its head describes the machine, and the sections of the runs say what differs.
    """
    if older is not None:
        sections = dict(older.sections)
        for name, (run, cases) in runs.items():
            sections[name] = "\n\n".join([*_section(name, run, cases, images.get(name)), _apart(name, run, cases)])
        return "\n\n".join([older.head, *(sections[name] for name in groups.PEERS if name in sections)]) + "\n"
    text = [
        "# Benchmarks",
        "foci and its peers side by side: the same inputs, the same parameters, in the same process, in turns. Before "
        "anything is timed both results are compared, gradients too; where they differ, no figure is given. **×** is "
        "theirs / ours: above 1, foci is faster (or smaller). *median* is the median of the rounds' own ratios, with "
        "its 95 % interval (of fewer than 6 rounds, where the ratio is far from its goal: their range); *min* compares "
        "the fastest of all rounds. Memory is the peak of a call beyond its inputs, each in a new process. A goal in "
        "brackets was not reached by the median; a goal with a question mark lies within the interval, so that the "
        "measurement cannot tell. ~ marks a case that other work on the machine disturbed.",
        "Make it again with `make bench`, or with the command under each heading; `python -m benchmarks --quick` takes "
        "two minutes and writes beside its results, in `benchmarks/results/quick`. `benchmarks/README.md` says how far "
        "to trust a figure.",
    ]
    busy = trust(runs)
    if busy:
        text.append(f"> **{busy}**")
    if "ratios" in images:
        text.append(f"![Ratios by group](images/{images['ratios']})")
    text += _machine(runs)
    for name, (run, cases) in runs.items():
        text += _section(name, run, cases, images.get(name))
    return "\n\n".join(text) + "\n"


def trust(runs: dict[str, tuple[Record, list[Record]]]) -> str:
    """Return a warning that the machine was too busy, or an empty text."""
    timed = [
        disturbance(case["interference"], run["idle"])
        for run, cases in runs.values()
        for case in cases
        if "ours" in case
    ]
    disturbed = sum(map(bool, timed))
    before = max((run["idle"]["others"] for run, _ in runs.values()), default=0.0)
    if not timed or (disturbed <= BUSY_CASES * len(timed) and before <= MOST.others):
        return ""
    return (
        f"The machine was too busy to trust these metrics: other work disturbed {disturbed} of {len(timed)} cases, and "
        f"used {before:.0%} of the free processors before the run began. Run it again on a quiet machine."
    )


def _machine(runs: dict[str, tuple[Record, list[Record]]]) -> list[str]:
    records = [run for run, _ in runs.values()]
    latest = max(records, key=lambda run: run["when"])
    about = latest["machine"]
    versions = {name: version for run in records for name, version in run["versions"].items()}
    failed = {name: why for run in records for name, why in run["failed"].items()}
    lines = []
    for key, (title, unit, name) in LIMITS.items():
        limit = latest["limits"].get(key)
        lines.append(f"| {title} | {'not measured' if limit is None else f'{limit / unit:.3g} {name}'} |")
    text = [
        "## The machine",
        f"{about['processor']}, {about['cores']} processors, {about['memory_gb']} GB, {about['system']}, Python "
        f"{about['python']}. Its limits, measured in the same run, {_threads(latest['limits_threads'])}:",
        "\n".join(["| limit | |", "|---|---|", *lines]),
        *_noise(latest),
        f"Versions: foci {latest['foci']}; {', '.join(sorted(map(' '.join, versions.items())))}.",
    ]
    notes = [f"- {name}: {peer.note}." for name, peer in PEERS.items() if peer.note and name in versions]
    notes += [f"- {name} could not be installed and is left out: {why}" for name, why in sorted(failed.items())]
    text.append("\n".join(notes))
    return text


def _apart(name: str, run: Record, cases: list[Record]) -> str:
    """Return the versions and the state of the machine in a run that the head of the page does not describe."""
    versions = ", ".join(sorted(map(" ".join, run["versions"].items())))
    text = f"Measured in a run of its own: foci {run['foci']}; {versions}. {' '.join(_noise(run))}"
    busy = trust({name: (run, cases)})
    return f"{text}\n\n> **{busy}**" if busy else text


def _noise(run: Record) -> list[str]:
    """Return the results for two identical calls, and the interference before the run."""
    text = []
    if run["same"]:
        found = (
            f"{times(ratio)} ({times(low)} to {times(high)}) for a {name}"
            for name, (ratio, low, high) in run["same"].items()
        )
        text.append(f"A call compared with itself came out as {' and '.join(found)}: smaller differences mean nothing.")
    text.append(f"Before the run began, other processes used {run['idle']['others']:.1%} of a processor.")
    return [" ".join(text)]


def _threads(count: int) -> str:
    return "one thread, timed by the processor time it used" if count == 1 else f"{count} threads, timed by the clock"


def _title(name: str) -> tuple[str, str]:
    """Return the title of a group and its text."""
    title, _, about = (groups.load(name).__doc__ or name).partition("\n\n")
    return title.strip(), about


def _section(name: str, run: Record, cases: list[Record], image: str | None) -> list[str]:
    title, about = _title(name)
    took = f"{run['took'] // 60} min {run['took'] % 60} s" if run["took"] >= 60 else f"{run['took']} s"
    text = [f"## {title}", about.strip()]
    text.append(f"`{run['command']}`, {run['when']}, {_threads(run['threads'])}; the whole run took {took}.")
    if image is not None:
        text.append(f"![{title}](images/{image})")
    if any("theirs" in case for case in cases):
        columns = getattr(groups.load(name), "COLUMNS", None)
        text.append(_table(cases, run) if columns is None else _side_by_side(cases, run, columns))
    lost = _not_measured(cases)
    if lost:
        text.append("Not measured:\n\n" + "\n".join(lost))
    return text


def _not_measured(cases: list[Record]) -> list[str]:
    """Return the missing cases and why; cases with the same reason share a line."""
    by_reason: dict[str, list[str]] = {}
    for case in cases:
        reason = case.get("failed") or case.get("remark")
        if reason:
            against = f" against {case['peer']}" if case["against"] else ""
            by_reason.setdefault(reason, []).append(f"{case['name']} ({case['measure']}{against})")
    return [f"- {reason}: {'; '.join(names)}" for reason, names in by_reason.items()]


def _table(cases: list[Record], run: Record) -> str:
    limits = run["limits"]
    shown = [case for case in cases if "theirs" in case]
    weighed = any("ours_megabytes" in case for case in shown)
    limited = any(case["work"] and case["work"][0] in limits for case in shown)
    head = ["what", "against", "measure", "median", "interval", "min", "goal"]
    head += ["memory, ours / theirs"] * weighed + ["of the machine's limit"] * limited
    rows = []
    for case in shown:
        row = [case["name"], f"{case['peer']}: {case['against']}", case["measure"]]
        row.append(times(case["ratio_median"]) + (" ~" if disturbance(case["interference"], run["idle"]) else ""))
        row.append(f"{times(case['ratio_low'])} to {times(case['ratio_high'])}")
        row += [times(case["ratio_min"]), _goal(case)]
        if weighed:
            row.append(_memory(case))
        if limited:
            row.append(_share(case, limits))
        rows.append(row)
    return table([head, *rows])


def _side_by_side(cases: list[Record], run: Record, measures: Sequence[str]) -> str:
    """Return a table with a column per measure: the median and its interval."""
    rows: dict[str, dict[str, str]] = {}
    for case in cases:
        if "theirs" in case:
            mark = " ~" if disturbance(case["interference"], run["idle"]) else ""
            interval = f"{times(case['ratio_low'])} to {times(case['ratio_high'])}"
            found = f"{times(case['ratio_median'])}{mark} ({interval})"
            rows.setdefault(case["name"], {})[case["measure"]] = found
    return table(
        [["what", *measures], *([name, *(row.get(one, "–") for one in measures)] for name, row in rows.items())]
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is the head."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def times(ratio: float) -> str:
    """Return a ratio with its significant digits."""
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.0f}×"


def _goal(case: Record) -> str:
    if case["goal"] is None:
        return ""
    text = f"≥ {case['goal']:g}×"
    if case["ratio_low"] < case["goal"] <= case["ratio_high"]:
        text += "?"
    return text if case["ratio_median"] >= case["goal"] else f"({text})"


def _memory(case: Record) -> str:
    if "ours_megabytes" not in case or "theirs_megabytes" not in case:
        return ""
    ours, theirs = case["ours_megabytes"], case["theirs_megabytes"]
    text = f"{ours:.0f} / {theirs:.0f} MB"
    if ours >= 1:
        text += f" ({times(theirs / ours)})"
    if case["memory_goal"] is not None:
        reached = theirs >= case["memory_goal"] * ours
        text += f", ≥ {case['memory_goal']:g}×" if reached else f", (≥ {case['memory_goal']:g}×)"
    if case["memory_limit"] is not None:
        reached = ours <= case["memory_limit"]
        text += f", ≤ {case['memory_limit']:g} MB" if reached else f", (≤ {case['memory_limit']:g} MB)"
    return text


def _share(case: Record, limits: Record) -> str:
    if not case["work"] or case["work"][0] not in limits:
        return ""
    limit, amount = case["work"]
    return f"{amount / case['ours']['min'] / limits[limit]:.0%} of {limit}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
