"""The limits of this machine, measured in the same run as the comparisons, and its description."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.interference import Interference, between, counters

# v / (1 + a b) summed over a row: the cell of additive attention (its exponentials are computed once per row, not once
# per cell), on rows that stay in the first-level cache. This is the inner loop only.
_CELL = """
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

constexpr int rows = 8, size = 256;

static double cells_per_second() {
    static thread_local float a[rows][size], b[rows][size], v[size];
    for (int n = 0; n < size; n++) {
        v[n] = 0.001f * n;
        for (int i = 0; i < rows; i++) { a[i][n] = 0.5f + 0.01f * i; b[i][n] = 0.25f + 0.001f * n; }
    }
    volatile float kept = 0;
    double best = 0;
    for (int round = 0; round < 30; round++) {
        auto start = std::chrono::steady_clock::now();
        for (int again = 0; again < 200; again++) {
            a[again % rows][again % size] += 1e-6f;
            for (int j = 0; j < rows; j++)
                for (int i = 0; i < rows; i += 4) {
                    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
                    for (int n = 0; n < size; n++) {
                        s0 += v[n] / (1.0f + a[i][n] * b[j][n]);
                        s1 += v[n] / (1.0f + a[i + 1][n] * b[j][n]);
                        s2 += v[n] / (1.0f + a[i + 2][n] * b[j][n]);
                        s3 += v[n] / (1.0f + a[i + 3][n] * b[j][n]);
                    }
                    kept = kept + s0 + s1 + s2 + s3;
                }
        }
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        double rate = 200.0 * rows * rows * size / taken.count();
        if (rate > best) best = rate;
    }
    return best;
}

int main(int, char** arguments) {
    int count = std::atoi(arguments[1]);
    std::vector<double> rates(count);
    std::vector<std::thread> threads;
    for (int t = 0; t < count; t++) threads.emplace_back([&rates, t] { rates[t] = cells_per_second(); });
    double sum = 0;
    for (int t = 0; t < count; t++) { threads[t].join(); sum += rates[t]; }
    std::printf("%f\\n", sum);
}
"""


def limits(threads: int) -> dict[str, float]:
    """Return operations per second of a large matrix product, bytes per second of memory, additive cells per second."""
    import torch

    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    product = torch.empty(1024, 1024)
    gemm = 2 * 1024**3 / _best(lambda: torch.mm(left, right, out=product), 20)
    source = torch.ones(1 << 26)  # 256 MB: more than any cache holds
    target = torch.zeros(1 << 26)
    bandwidth = 2 * 4 * source.numel() / _best(lambda: target.copy_(source), 6)
    found = {"gemm": gemm, "bandwidth": bandwidth}
    cell = _cell_rate(threads)
    if cell is not None:
        found["cell"] = cell
    return found


def same(seconds: float) -> dict[str, list[float]]:
    """Compare two calls with themselves, as any two sides are compared; return median ratio and interval of each.

    A difference from 1 is the noise of the machine and of the method, for work in the cache and for work in memory.
    """
    import torch

    from benchmarks.harness import in_turns, interval, seconds_of

    left, product = torch.randn(256, 256), torch.empty(256, 256)
    source, target = torch.ones(1 << 23), torch.zeros(1 << 23)
    works: dict[str, Callable[[], object]] = {
        "product": lambda: torch.mm(left, left, out=product),
        "copy": lambda: target.copy_(source),
    }
    found = {}
    for name, work in works.items():
        work()
        rounds = in_turns(work, work, seconds=seconds, estimates=(seconds_of(work),) * 2, goal=1.0).ratios()
        found[name] = [statistics.median(rounds), *interval(rounds)]
    return found


def _best(work: Callable[[], object], rounds: int) -> float:
    from benchmarks.harness import seconds_of

    work()
    return min(seconds_of(work) for _ in range(rounds))


def _cell_rate(threads: int) -> float | None:
    """Return the additive cells per second; None where no C++ compiler is found."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "cell.cpp"), Path(folder, "cell")
        source.write_text(_CELL)
        flags = ["-O3", "-march=native", "-ffast-math", "-std=c++17", "-pthread"]
        try:
            subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True, capture_output=True)
            output = subprocess.run([str(program), str(threads)], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError):
            return None
    return float(output.stdout)


def description() -> dict[str, object]:
    """Return a description of the machine."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{named[0] if named else 'unnamed'} ({platform.machine()})"


def idle(seconds: float = 2.0) -> Interference:
    """Return the interference while only this process of the benchmark keeps one processor busy."""
    before = counters()
    while (now := counters()).wall - before.wall < seconds:
        pass
    return between(before, now, threads=1)
