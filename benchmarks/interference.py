"""The interference of other work on the machine while a case was measured, from the kernel's own counters.

A timed loop cannot distinguish other work from a jittering clock, as that of a virtual machine: its median lies above
its minimum on an idle machine, and hardly moves when another process is busy (tests/test_bench.py has recordings of
both). The counters can: they are sums of processor time, and do not depend on the clock of one loop.

    others   what other processes used of the processors that we left free, 1.0 for all of it. They empty shared caches
             and take memory bandwidth, which slows the two sides of a comparison by different amounts
    waited   the share of our time in which a thread of ours was ready and another process had its processor
    stolen   the share of our time in which the hypervisor had given our processor to another guest

The limits are calibrated: `benchmarks.run` measures the same three before it starts anything, and a case is disturbed
by what lies clearly above that. This file needs the standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_TICK = 0.01
"""The unit of /proc/stat in seconds. Its sums of idle and stolen time are truncated to whole ticks."""


class Counters(NamedTuple):
    """The counters at one moment, in seconds. None where the system has no such counter."""

    wall: float
    own: float
    waited: float | None
    idle: float | None
    stolen: float | None


class Interference(NamedTuple):
    """The shares taken by other work, 0 on an idle machine."""

    others: float
    waited: float
    stolen: float


QUIET = Interference(0.0, 0.0, 0.0)
"""No other work."""

MARGIN = Interference(others=0.10, waited=0.03, stolen=0.03)
"""How far above its idle value a share may be. A second process that is always busy has a share of 1.0 of one free
processor, so it is detected where it runs a tenth of the time."""

MOST = Interference(others=0.25, waited=0.06, stolen=0.06)
"""A share that counts as disturbance for any idle value: a machine that is always busy is not idle."""

_WORDS = (
    "other processes used {:.0%} of the free processors",
    "a thread of ours waited for {:.0%} of the time",
    "the hypervisor took {:.0%} of the time",
)


def counters() -> Counters:
    """Return the current counters of this process, its threads and the machine."""
    waited = idle = stolen = None
    try:
        # The second number: nanoseconds in which the thread was ready and did not run.
        waited = sum(int(task.read_text().split()[1]) for task in Path("/proc/self/task").glob("*/schedstat")) / 1e9
        total = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu "))
        ticks = [int(number) for number in total.split()[1:]]
        idle, stolen = (ticks[3] + ticks[4]) * _TICK, ticks[7] * _TICK  # idle and waiting for a disk; steal
    except (OSError, StopIteration, IndexError, ValueError):
        pass
    return Counters(time.perf_counter(), time.process_time(), waited, idle, stolen)


def between(before: Counters, after: Counters, threads: int, processors: int | None = None) -> Interference:
    """Return the interference between two moments, for a process that runs ``threads`` threads.

    A system without the counters only shows whether a single thread got a whole processor.
    """
    processors = processors or os.cpu_count() or 1
    wall, own = after.wall - before.wall, after.own - before.own
    if before.waited is None or after.waited is None:
        return Interference(0.0, max(0.0, 1 - own / wall) if threads == 1 else 0.0, 0.0)
    waited = (after.waited - before.waited) / (wall * max(threads, 1))
    if before.idle is None or after.idle is None or before.stolen is None or after.stolen is None:
        return Interference(0.0, waited, 0.0)
    idle, stolen = after.idle - before.idle, after.stolen - before.stolen
    used = processors * wall - idle - stolen - own - 2 * _TICK  # both sums may be a tick too small
    return Interference(max(0.0, used) / (wall * max(processors - threads, 1)), waited, stolen / (wall * processors))


def limits(idle: Interference) -> Interference:
    """Return the largest shares that do not disturb, from those of the idle machine."""
    return Interference(*(min(most, share + margin) for most, share, margin in zip(MOST, idle, MARGIN)))


def disturbance(found: Mapping[str, float], idle: Mapping[str, float]) -> str:
    """Return a description of what disturbed a case; an empty text where it was not disturbed.

    Args:
        found: the shares of `Interference` while the case was measured, by name.
        idle: the same before the run.
    """
    allowed = limits(Interference(**idle))
    shares = zip(Interference(**found), allowed, _WORDS)
    return ", ".join(words.format(share) for share, most, words in shares if share > most)
