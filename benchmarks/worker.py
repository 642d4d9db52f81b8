"""One process of the benchmark in the peers' environment: all cases of one peer, or the memory of one side of a case.

It writes JSON lines to standard output; the output of the peers goes to standard error. `benchmarks.run`
starts it, reads its output, and restarts it after the last case if it dies.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

from benchmarks import groups, machine
from benchmarks.harness import Call, Case, Side, clock, disagreement, in_turns, limit_memory, peak_of, seconds_of
from benchmarks.peers import PEERS
from benchmarks.run import TIME_OVER
from foci.functional import kernels

SLOW = 1.0
"""Duration of a first call in seconds above which there is no second warm-up call."""

TOO_SLOW = 1.0
"""Duration of a call in seconds above which a curve ends, except for points that have a goal."""


def main() -> None:
    """Run the cases by the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", default="torch")
    parser.add_argument("--groups", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--deadline", type=float, help="time.time() after which no case is begun")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--memory", nargs=3, help="name, measure and rival of the case to measure, with --side")
    parser.add_argument("--side", default="ours")
    asked = parser.parse_args()

    faulthandler.enable()
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def write(**record: object) -> None:
        channel.write(json.dumps(record) + "\n")
        channel.flush()

    torch.set_num_threads(asked.threads)
    limit_memory()
    if asked.limits:
        write(**machine.limits(asked.threads), same=machine.same(asked.seconds))
        return
    cases = [
        (group, case)
        for group in asked.groups.split(",")
        if asked.peer in groups.PEERS[group]
        for case in groups.load(group).cases(asked.peer, asked.quick)
    ]
    if asked.memory is not None:
        (wanted,) = (case for _, case in cases if [case.name, case.measure, case.against] == asked.memory)
        torch.manual_seed(0)
        write(kind="memory", megabytes=peak_of(wanted, asked.side))
        return
    kernels.status()  # builds them, so that no case's first call does
    write(kind="plan", count=len(cases), versions=_versions(asked.peer), peer=asked.peer)
    too_slow: dict[tuple[str, str, str, str], int] = {}
    for number, (group, case) in enumerate(cases):
        if number < asked.skip:
            continue
        about = {
            "group": group,
            "peer": asked.peer,
            "number": number,
            "name": case.name,
            "against": case.against,
            "measure": case.measure,
            "goal": case.goal,
            "memory_goal": case.memory_goal,
            "memory_limit": case.memory_limit,
            "work": case.work,
            "series": case.series,
            "length": case.length,
        }
        if asked.deadline is not None and time.time() > asked.deadline:
            write(kind="case", **about, failed=TIME_OVER)
            continue
        write(kind="start", **about)
        began = time.perf_counter()
        found = _run(group, case, asked.seconds, too_slow)
        write(kind="case", **about, **found, took=time.perf_counter() - began)


def _run(
    group: str,
    case: Case,
    seconds: float,
    too_slow: dict[tuple[str, str, str, str], int],
) -> dict[str, object]:
    """Return the measurements of a case, or why there are none."""
    torch.manual_seed(0)
    curves = {side: (group, case.series or "", case.measure, side) for side in ("ours", "theirs")}
    followed = case.series is None or case.goal is not None
    if not followed and curves["ours"] in too_slow:
        return {"failed": f"left out: length {too_slow[curves['ours']]} took too long"}
    inputs = case.inputs()
    work, ours_result, ours_seconds, failure = _first(case.ours, inputs)
    if work is None:
        return {"failed": f"ours: {failure}"}
    other: Call | None = None
    theirs_seconds = 0.0
    remark = None
    if case.theirs is not None:
        if not followed and curves["theirs"] in too_slow:
            remark = f"theirs left out: length {too_slow[curves['theirs']]} took too long"
        else:
            other, theirs_result, theirs_seconds, failure = _first(case.theirs, inputs)
            if other is None:
                remark = f"theirs: {failure}"
            else:
                seen = ours_result if case.alike is None else case.alike(ours_result)
                refused = disagreement(seen, theirs_result, case.tolerance)
                if refused is not None:
                    return {"failed": f"refused, the results differ: {refused}"}
                del theirs_result, seen
    del ours_result
    if case.series is not None and case.length is not None:
        for side, taken in (("ours", ours_seconds), ("theirs", theirs_seconds)):
            if taken > TOO_SLOW:
                too_slow[curves[side]] = case.length
    timing = in_turns(work, other, seconds=seconds, estimates=(ours_seconds, theirs_seconds), goal=case.goal)
    return {**timing.summary(), "remark": remark}


def _first(prepare: Side, inputs: Sequence[object]) -> tuple[Call | None, object, float, str]:
    """Prepare a side, call it, and time it: the call, its result, its duration; on failure None and the reason."""
    try:
        work = prepare(*inputs)
        start = clock()
        result = work()
        taken = clock() - start
        if taken < SLOW:  # the first call may have filled caches, which is a small part of a slow one
            taken = seconds_of(work)
        if taken < 0.01:
            taken = min(taken, seconds_of(work))
    except Exception as error:  # noqa: BLE001 any error of a peer or a kernel is reported, and the benchmark continues
        return None, None, 0.0, _in_short(error)
    return work, result, taken, ""


def _in_short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory"
    return f"{type(error).__name__}: {lines[-1][:200]}"


def _versions(peer: str) -> dict[str, str]:
    importlib.import_module("foci")
    found: dict[str, str] = {"torch": torch.__version__}
    for name in (package.partition("==")[0] for package in PEERS[peer].packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not found"
    return found


if __name__ == "__main__":
    main()
