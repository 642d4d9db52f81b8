"""One comparison: check that both sides agree, time them alternately, measure their memory.

A case has inputs and two sides. A side is a function of the inputs that prepares everything (modules, masks,
a prepared memory) and returns the call to be measured, which takes no arguments and returns tensors.

    check    both calls run once; where their results differ the case is refused, and no time is reported
    time     rounds of both calls, in alternating order, so that other work on the machine affects both;
             reported are the median ratio of the rounds with its 95 % interval, and the ratio of the minima. Rounds end
             when the interval is narrow enough: 1 % to either side near the goal, 5 % far from it. One thread is timed
             by the processor time it used, which leaves out the time it waited; several by the clock
    memory   in a fresh process, of one side only: what the preparation keeps, plus the peak of one call above that
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from benchmarks.interference import QUIET, Interference, between, counters

Call = Callable[[], object]
Side = Callable[..., Call]

FORWARD = "forward"
TRAIN = "forward + backward"

SAMPLE_SECONDS = 0.003
"""A sample lasts at least this long; faster calls are repeated, or the clock and the interpreter would be measured."""

LEAST_SECONDS = 0.3
"""A case is measured at least this long, so that `benchmarks.interference` can detect other processes."""

NEAR = 0.1
"""A ratio whose interval is within this distance of its goal, relative to the goal, is measured more precisely."""

PRECISE, ROUGH = 0.01, 0.05
"""Half the width of the interval, relative to the median, at which rounds end: near the goal, and elsewhere."""

LEAST_ROUNDS, LEAST_ROUNDS_NEAR = 3, 6
"""Six rounds are the fewest with a 95 % interval; three show that a ratio is far from its goal."""

MOST_ROUNDS = 400
"""Rounds after which the interval of a fast call's ratio hardly gets narrower."""


def clock() -> float:
    """Seconds: of the processor for one thread, of the wall for several."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison.

    Args:
        name: the computation, with its sizes.
        against: a description of the other side, reported with the name of the peer.
        measure: `FORWARD`, `TRAIN`, or another description of the call.
        inputs: makes the inputs that both sides share.
        ours: from the inputs to our call.
        theirs: from the inputs to the other call, None where only our cost is measured.
        alike: turns our result into the form of theirs, for the check only.
        tolerance: how far the results may differ, relative to the largest number of theirs.
        goal: the ratio of times (theirs / ours) to reach.
        memory_goal: the ratio of memory to reach; memory is measured where this or the limit is given.
        memory_limit: the number of MB that ours may take.
        work: ``(limit, amount)``: the work of ours in units of a machine's limit ("gemm": operations, "cell": cells).
        series: points of one curve share a series; ``length`` is the position of the point.
    """

    name: str
    measure: str
    inputs: Callable[[], Sequence[object]]
    ours: Side
    theirs: Side | None = None
    against: str = ""
    alike: Callable[..., object] | None = None
    tolerance: float = 1e-4
    goal: float | None = None
    memory_goal: float | None = None
    memory_limit: float | None = None
    work: tuple[str, float] | None = None
    series: str | None = None
    length: int | None = None


def call(measure: str, forward: Call, inputs: Sequence[Tensor] = (), parameters: Sequence[Tensor] = ()) -> Call:
    """Return the call for this measure: without autograd, or with the gradients of all inputs and parameters.

    The gradients of the inputs are returned and compared; those of the parameters are computed only, because peers
    keep theirs in other shapes.
    """
    if measure != TRAIN:

        def infer() -> object:
            with torch.no_grad():
                return forward()

        return infer
    leaves = [*inputs, *parameters]
    directions: list[Tensor] = []

    def train() -> object:
        output = forward()
        if not isinstance(output, Tensor):
            raise TypeError("a call that is trained returns one tensor")
        if not directions:  # not ones: the weights of a softmax would have no gradient along them
            directions.append(torch.linspace(-1, 1, output.numel()).reshape(output.shape))
        # An input that the output does not depend on has gradient 0, such as the query of hard attention.
        gradients = torch.autograd.grad(output, leaves, directions[0], materialize_grads=True)
        return output.detach(), *gradients[: len(inputs)]

    return train


def leaf(*shape: int, scale: float = 1.0) -> Tensor:
    """Return normal random numbers that require a gradient."""
    return (torch.randn(*shape) * scale).requires_grad_()


# Agreement


def tensors(result: object) -> Iterator[Tensor]:
    """Return every tensor of a result; a list of whole numbers becomes one tensor."""
    if isinstance(result, Tensor):
        yield result.detach()
    elif isinstance(result, list) and result and isinstance(result[0], int):
        yield torch.tensor(result)
    elif isinstance(result, tuple | list):
        for part in result:
            yield from tensors(part)


def disagreement(ours: object, theirs: object, tolerance: float) -> str | None:
    """Return a description of the difference, or None. Theirs may have fewer parts: the first are compared."""
    mine, others = list(tensors(ours)), list(tensors(theirs))
    if not others or len(others) > len(mine):
        return f"ours has {len(mine)} results, theirs {len(others)}"
    for number, (a, b) in enumerate(zip(mine, others)):
        if a.shape != b.shape:
            return f"result {number} has shape {tuple(a.shape)}, theirs {tuple(b.shape)}"
        if not (a.isfinite().all() and b.isfinite().all()):
            return f"result {number} is not finite"
        error = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
        size = max(b.double().abs().max().item() if b.numel() else 0.0, 1e-30)
        if error > tolerance * size:
            return f"result {number} is off by {error / size:.1e} of its size (allowed: {tolerance:.0e})"
    return None


# Time


@dataclass
class Timing:
    """The samples of a case: seconds per call of both sides, alternately, and the interference of other work."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    interference: Interference = QUIET

    def summary(self) -> dict[str, object]:
        """Return the numbers to keep."""
        kept: dict[str, object] = {
            "ours": {"min": min(self.ours), "median": statistics.median(self.ours)},
            "rounds": len(self.ours),
            "interference": self.interference._asdict(),
        }
        if self.theirs:
            rounds = self.ratios()
            kept["theirs"] = {"min": min(self.theirs), "median": statistics.median(self.theirs)}
            kept["ratio_min"] = min(self.theirs) / min(self.ours)
            kept["ratio_median"] = statistics.median(rounds)
            kept["ratio_low"], kept["ratio_high"] = interval(rounds)
        return kept

    def ratios(self) -> list[float]:
        """theirs / ours of each round: measured close in time, so that a slow drift of the machine cancels."""
        return [b / a for a, b in zip(self.ours, self.theirs)]

    def is_near(self, goal: float | None) -> bool:
        """Return whether the ratio is so near to its goal that it must be measured precisely."""
        if goal is None or not self.theirs:
            return False
        low, high = interval(self.ratios())
        return low <= goal * (1 + NEAR) and high >= goal * (1 - NEAR)

    def is_precise(self, near: bool) -> bool:
        """Return whether the interval is narrow enough."""
        values = self.ratios() if self.theirs else self.ours
        low, high = interval(values)
        return (high - low) / 2 <= (PRECISE if near else ROUGH) * statistics.median(values)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, which needs no assumption on how the values are distributed.

    The median lies below the k-th smallest of n values with the probability that fewer than k of n fair coins show
    heads. Of fewer than 6 values the whole range has less than 95 %: 75 % of 3.
    """
    ordered = sorted(values)
    outside = _outside(len(ordered))
    return ordered[outside], ordered[-1 - outside]


@lru_cache
def _outside(count: int) -> int:
    """Return the number of values on either side of the interval."""
    outside, tail = 0, 2.0**-count
    while (tail := tail + math.comb(count, outside + 1) * 2.0**-count) <= 0.025:
        outside += 1
    return outside


def in_turns(
    ours: Call,
    theirs: Call | None,
    *,
    seconds: float,
    estimates: tuple[float, float],
    goal: float | None = None,
    least_seconds: float = LEAST_SECONDS,
) -> Timing:
    """Time the calls alternately until the ratio is precise, for at most about ``seconds``.

    Args:
        ours: our call.
        theirs: the other call, None where only our cost is measured.
        seconds: no round starts after this, except for the minimum number of them.
        estimates: the durations of one call of each, which determine how often a sample repeats it.
        goal: the ratio to reach; near it more rounds are measured.
        least_seconds: rounds continue for this long even if the ratio is precise.
    """
    sides = [(ours, 0)] if theirs is None else [(ours, 0), (theirs, 1)]
    repeats = [max(1, math.ceil(SAMPLE_SECONDS / max(duration, 1e-6))) for duration in estimates]
    timing = Timing()
    samples = [timing.ours, timing.theirs]
    gc_was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        before = counters()
        while True:
            for work, number in sides:
                samples[number].append(seconds_of(work, repeats[number]) / repeats[number])
            sides.reverse()
            rounds, spent = len(timing.ours), time.perf_counter() - before.wall
            near = timing.is_near(goal)
            if rounds < (LEAST_ROUNDS_NEAR if near else LEAST_ROUNDS):
                continue
            if spent >= seconds or rounds >= MOST_ROUNDS or (spent >= least_seconds and timing.is_precise(near)):
                break
        timing.interference = between(before, counters(), torch.get_num_threads())
    finally:
        if gc_was_on:
            gc.enable()
    return timing


def seconds_of(work: Call, repeats: int = 1) -> float:
    """Return the duration of this many calls."""
    start = clock()
    for _ in range(repeats):
        work()
    return clock() - start


# Memory


def peak_of(case: Case, side: str) -> float:
    """Return the memory of one side beyond the inputs, in MB. To be called once, in a fresh process."""
    prepare = case.ours if side == "ours" else case.theirs
    if prepare is None:
        raise ValueError(f"{case.name} has no side {side!r}")
    inputs = case.inputs()
    before = _resident()
    work = prepare(*inputs)
    ready = _resident()
    if not _reset_peak():  # no /proc: the first call is measured, with all that it loads
        work()
        return (_peak() - before) / 1e6
    work()  # loads libraries, builds kernels, compiles: needed once, so it is not the memory of a call
    warm = _resident()
    _reset_peak()
    work()
    return (max(ready - before, 0) + max(_peak() - warm, 0)) / 1e6


def _resident() -> int:
    gc.collect()
    if not sys.platform.startswith("linux"):
        return _peak()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _reset_peak() -> bool:
    try:
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
    except OSError:
        return False
    return True


def _peak() -> int:
    try:
        with open("/proc/self/status") as status:
            (line,) = (line for line in status if line.startswith("VmHWM"))
            return int(line.split()[1]) * 1024
    except OSError:
        kept = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return kept if sys.platform == "darwin" else kept * 1024


def limit_memory(share: float = 0.5) -> None:
    """Limit this process to this share of the free memory, so that a case that is too large fails alone."""
    try:
        with open("/proc/meminfo") as meminfo:
            (line,) = (line for line in meminfo if line.startswith("MemAvailable"))
    except OSError:
        return
    allowed = int(int(line.split()[1]) * 1024 * share)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, resource.getrlimit(resource.RLIMIT_DATA)[1]))
