"""`foci doctor` and `foci build-kernels`: which fast paths this machine uses, and why."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version


def doctor() -> None:
    """Show versions, threads, and which fast paths are active on this machine and why."""
    import torch

    from foci.functional.kernels import KERNELS

    device = f"GPU {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "CPU only"
    print(f"foci      {version('foci')}")
    print(f"python    {platform.python_version()} on {platform.platform()}")
    print(f"torch     {torch.__version__}, {torch.get_num_threads()} threads, {device}")
    print(f"waiting   OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY', 'not set: threads may spin')}")
    for extra, package in (("cli", "cyclopts"), ("viz", "matplotlib")):
        print(f"{extra:<9} {package} {_installed(package)}")
    print("\nC++ kernels (built on first use; FOCI_KERNELS=off disables them)")
    for row in KERNELS:
        if row.kernel is not None:
            found = row.kernel.status
            print(f"  {row.name:<15} {'active' if found.active else 'not active'}: {found.reason}")
            print(f"  {'':<15} for {row.serves}")
    print("\nFast paths that need no compiler")
    for row in KERNELS:
        if row.kernel is None:
            print(f"  {row.name:<15} active: {row.serves}")


def build_kernels() -> None:
    """Build the C++ kernels now rather than on first use. Without a compiler foci uses slower torch operations."""
    from foci.errors import FociError
    from foci.functional.kernels import status

    inactive = []
    for kernel in status():
        print(f"{kernel.name}: {kernel.reason}")
        if not kernel.active:
            inactive.append(kernel.name)
    if inactive:
        raise FociError(f"not active: {', '.join(inactive)}. The torch paths are used instead.")


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
