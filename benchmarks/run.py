"""Runs the benchmark: peers one after the other, each in its own process, then memory, then the report.

    python -m benchmarks [GROUP …] [--quick] [--threads N] [--report-only] [--reinstall] [--output FILE]

Needs the standard library only; code that needs torch runs in the peers' environment (`benchmarks.peers`). Results are
stored as JSON lines, one file per group, so that a group can be measured again and the report rebuilt from results.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import groups, machine, peers
from benchmarks.interference import QUIET, disturbance

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"

Record = dict[str, Any]

QUICK_SECONDS = 100.0
"""No case starts after this in a quick run: the rest of two minutes is for the last case and the report."""

TIME_OVER = "left out: the time was over"

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""The state that glibc's allocator reaches by itself in a process that has freed a block of 32 MB: smaller blocks are
kept, larger ones come from the system at each call. Before that it depends on where blocks happen to lie whether a call
needs fresh pages: the same call took 57 ms, or 57 ms and 18 ms more for 6112 page faults."""


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    groups: tuple[str, ...]
    quick: bool
    threads: int | None
    output: Path
    results: Path
    command: str

    @property
    def seconds(self) -> float:
        """Seconds for the rounds of one case."""
        return 0.2 if self.quick else 2.0

    @property
    def silence(self) -> float:
        """Seconds without output after which a worker is considered hung."""
        return 60.0 if self.quick else 240.0

    def threads_of(self, group: str) -> int:
        """Return the number of threads of both sides of a group's cases."""
        return groups.threads(group) if self.threads is None else self.threads


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark by the arguments; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    known = ", ".join(groups.PEERS)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"one of {known}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases, in two minutes")
    parser.add_argument("--threads", type=int, help="number of threads of both sides; 1, and 2 for decode")
    parser.add_argument("--report-only", action="store_true", help="rebuild the report from kept results")
    parser.add_argument("--reinstall", action="store_true", help="install the peers anew")
    parser.add_argument("--output", type=Path, help="the report; docs/benchmarks.md, or beside the quick results")
    asked = parser.parse_args(arguments)
    unknown = [group for group in asked.groups if group not in groups.PEERS]
    if unknown:
        parser.error(f"no group {unknown[0]!r}, expected one of {known}")
    if asked.threads is not None and asked.threads < 1:
        parser.error(f"--threads is {asked.threads}, expected 1 or more")
    results = RESULTS / "quick" if asked.quick else RESULTS
    options = Options(
        groups=tuple(asked.groups) or tuple(groups.PEERS),
        quick=asked.quick,
        threads=asked.threads,
        output=(asked.output or (results / "benchmarks.md" if asked.quick else ROOT / "docs/benchmarks.md")).resolve(),
        results=results,
        command=_command(asked),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worker ends too
    show = Display()
    failed = peers.install(show.line, again=asked.reinstall)
    if not asked.report_only:
        results.mkdir(parents=True, exist_ok=True)
        _measure(options, failed, show)
    show.close()
    return _report(options)


def _command(asked: argparse.Namespace) -> str:
    words = ["python -m benchmarks", *asked.groups, *(["--quick"] if asked.quick else [])]
    return " ".join([*words, *([f"--threads {asked.threads}"] if asked.threads is not None else [])])


def _measure(options: Options, failed: dict[str, str], show: Display) -> None:
    began = time.time()
    deadline = began + QUICK_SECONDS if options.quick else None
    idle = show.idle = machine.idle()._asdict()
    show.line(f"{options.command}: {', '.join(options.groups)}")
    busy = disturbance(idle, QUIET._asdict())
    if busy:
        show.line(f"the machine is not idle, which the report will note: {busy}")
    threads = options.threads or 1
    limits = _limits(options, threads, show)
    versions: dict[str, str] = {}
    cases: list[Record] = []
    run: Record = {
        "kind": "run",
        "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(began)),
        "command": options.command,
        "quick": options.quick,
        "machine": machine.description(),
        "idle": idle,
        "same": limits.pop("same", {}),
        "limits": limits,
        "limits_threads": threads,
        "versions": versions,
        "foci": _own_version(),
        "failed": failed,
    }
    waiting = [job for job in jobs(options.groups, options.quick, options.threads_of) if job[0] not in failed]
    while waiting:
        # A quick run gives each process a share of the remaining time; there are many curves.
        weights = [4 if "curves" in wanted else 1 + len(wanted) for _, wanted, _ in waiting]
        peer, wanted, threads = waiting.pop(0)
        until = None if deadline is None else time.time() + (deadline - time.time()) * weights[0] / sum(weights)
        found, heard = _run_peer(options, peer, wanted, threads, until, show)
        late = sum(case.get("failed") == TIME_OVER for case in heard)
        if late:
            show.line(f"  {late} cases {TIME_OVER}")
        versions |= found
        cases += heard
        _keep(options, run | {"took": round(time.time() - began)}, cases)  # a run that is stopped keeps its results
    if deadline is None or time.time() < deadline:
        _weigh(options, cases, deadline, show)
    _keep(options, run | {"took": round(time.time() - began)}, cases)


def _keep(options: Options, run: Record, cases: list[Record]) -> None:
    """Write the results, one file per group; a group without cases keeps its older ones."""
    for group in options.groups:
        measured = [case for case in cases if case["group"] == group]
        if measured:
            about = run | {"threads": options.threads_of(group)}
            lines = "".join(json.dumps(record) + "\n" for record in [about, *measured])
            (options.results / f"{group}.jsonl").write_text(lines)


def jobs(
    wanted: Sequence[str], quick: bool, threads_of: Callable[[str], int] = groups.threads
) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Return the processes to start: every peer with all groups that need it and have the same number of threads.

    The curves, which have no peer, come last.
    """
    # If all given groups have only peers that a quick run leaves out, these peers are measured.
    left_out = groups.FULL_RUN_ONLY if quick else ()
    if all(peer in left_out for group in wanted for peer in groups.PEERS[group]):
        left_out = ()
    for peer in peers.PEERS:
        shared = [group for group in wanted if peer in groups.PEERS[group] and group != "curves"]
        if peer not in left_out:
            for threads in sorted({threads_of(group) for group in shared}):
                yield peer, tuple(group for group in shared if threads_of(group) == threads), threads
    if "curves" in wanted:
        yield "torch", ("curves",), threads_of("curves")


def _run_peer(
    options: Options, peer: str, wanted: Sequence[str], threads: int, deadline: float | None, show: Display
) -> tuple[dict[str, str], list[Record]]:
    """Return the versions and cases of one peer. A worker that dies is restarted after the case it died in."""
    versions: dict[str, str] = {}
    cases: list[Record] = []
    skip, count = 0, 1
    while skip < count:
        asked = ["--peer", peer, "--groups", ",".join(wanted), "--seconds", str(options.seconds), "--skip", str(skip)]
        if deadline is not None:
            asked += ["--deadline", str(deadline)]
        begun: Record | None = None
        for record in _listen(options, asked, threads, show, name=peer):
            if record["kind"] == "plan":
                versions, count = record["versions"], record["count"]
                show.peer(peer, count, skip)
            elif record["kind"] == "start":
                begun = record
                show.case(record)
            elif record["kind"] == "case":
                begun, skip = None, record["number"] + 1
                cases.append(record)
                show.done(record)
        if begun is not None:
            skip = begun["number"] + 1
            cases.append({**begun, "kind": "case", "failed": "the process died or hung"})
            show.done(cases[-1])
        elif skip < count:  # it died before its first case, and would do so again
            break
    return versions, cases


def _weigh(options: Options, cases: list[Record], deadline: float | None, show: Display) -> None:
    """Add the memory of both sides to the cases that ask for it, each side in a fresh process."""
    aimed = [case for case in cases if case["memory_goal"] is not None or case["memory_limit"] is not None]
    wanted = [(case, side) for case in aimed for side in ("ours", "theirs") if side in case]
    if wanted:
        show.line(f"memory: {len(wanted)} fresh processes")

    def weigh(case: Record, side: str) -> None:
        if deadline is not None and time.time() > deadline:
            return
        asked = ["--peer", case["peer"], "--groups", case["group"], "--side", side]
        asked += ["--memory", case["name"], case["measure"], case["against"]]
        for heard in _listen(options, asked, options.threads_of(case["group"]), show, name="memory"):
            case[f"{side}_megabytes"] = heard["megabytes"]

    # Memory does not depend on who else is running, so that all processors may be used.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda pair: weigh(*pair), wanted))


def _limits(options: Options, threads: int, show: Display) -> Record:
    """Return the limits of the machine, and the comparison of a call with itself."""
    asked = ["--limits", "--seconds", str(options.seconds)]
    return {
        key: value for record in _listen(options, asked, threads, show, name="limits") for key, value in record.items()
    }


def _listen(options: Options, asked: Sequence[str], threads: int, show: Display, name: str) -> Iterator[Record]:
    """Start a worker in the peers' environment and yield its records, until it ends or hangs."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",  # otherwise waiting threads of torch spin
        "KERAS_BACKEND": "torch",
        "HF_HUB_OFFLINE": "1",
        # To measure memory, freed memory is returned to the system at once.
        **({"MALLOC_MMAP_THRESHOLD_": "65536"} if "--memory" in asked else ALLOCATOR),
    }
    command = [peers.python(), "-m", "benchmarks.worker", "--threads", str(threads), *asked]
    if options.quick:
        command.append("--quick")
    with _log(options, name).open("a") as log:
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_pump, args=(worker, lines.put), daemon=True).start()
        try:
            while (line := lines.get(timeout=options.silence)) is not None:
                yield json.loads(line)
            if worker.wait():
                show.line(f"{name}: the process ended with code {worker.returncode}; see {_log(options, name)}")
        except queue.Empty:
            show.line(f"{name}: silent for {options.silence:.0f} s, given up")
        finally:
            worker.kill()
            worker.wait()


def _pump(worker: subprocess.Popen[str], put: Callable[[str | None], None]) -> None:
    if worker.stdout is not None:
        for line in worker.stdout:
            put(line)
    put(None)


def _log(options: Options, name: str) -> Path:
    folder = options.results / "log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.txt"


def _own_version() -> str:
    """Return the commit, and whether the checkout has changes."""
    asked = ["git", "describe", "--always", "--dirty=, with changes", "--abbrev=9"]
    try:
        return subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit known"


def _report(options: Options) -> int:
    command = [peers.python(), "-m", "benchmarks.report", str(options.results), str(options.output)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


class Display:
    """Displays progress: with a bar on a terminal that has rich, in plain lines elsewhere."""

    def __init__(self) -> None:
        self.idle = QUIET._asdict()
        self._bar: Any = None
        if sys.stderr.isatty():
            try:
                from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
                from rich.progress import Progress as Bars
            except ImportError:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bars(*columns, transient=True)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()

    def line(self, text: str) -> None:
        """Print one line."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the display."""
        if self._bar is not None:
            self._bar.stop()

    def peer(self, name: str, count: int, done: int) -> None:
        """Display the start of a peer's process."""
        if self._bar is not None:
            self._bar.reset(self._task, total=count, completed=done, description=name)
        elif count:
            self.line(f"{name}: {count} cases")

    def case(self, record: Record) -> None:
        """Display the start of a case."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"{record['peer']} · {record['group']} · {record['name']}")

    def done(self, record: Record) -> None:
        """Display the end of a case."""
        if self._bar is not None:
            self._bar.advance(self._task)
        if "ratio_min" in record or record.get("failed") not in (None, TIME_OVER):
            self.line("  " + in_one_line(record, self.idle))


def in_one_line(record: Record, idle: Mapping[str, float]) -> str:
    """Format a finished case: the ratio and its interval (above 1: foci is faster), or why there is none."""
    against = f" vs {record['against']}" if record["against"] else ""
    head = f"{record['group']}: {record['name']}{against}, {record['measure']}"
    if "failed" in record:
        return f"{head}: {record['failed']}"
    found = f"{record['ratio_median']:.2f}× ({record['ratio_low']:.2f} to {record['ratio_high']:.2f})"
    remark = f" ({record['remark']})" if record.get("remark") else ""
    disturbed = disturbance(record["interference"], idle)
    return f"{head}: {found}{remark}{f' [{disturbed}]' if disturbed else ''}"
