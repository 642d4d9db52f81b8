"""How much memory something takes at most, as the system counts it: torch and C libraries too."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def peak_megabytes(action: Callable[[], object]) -> float:
    """Return by how much the memory of this process rises while an action runs; skip where that cannot be measured."""
    gc.collect()
    try:
        _RESET.write_text("5")  # the peak begins anew
        before = _kilobytes("VmRSS")
    except OSError:
        pytest.skip("the peak of memory can be measured on Linux alone")
    action()
    return (_kilobytes("VmHWM") - before) / 1000


def _kilobytes(name: str) -> int:
    return next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
