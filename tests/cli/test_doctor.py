"""`foci doctor` and `foci build-kernels` say what is used and why, with kernels and without."""

import os
import subprocess
import sys

import pytest

from foci.functional.kernels import KERNELS


def run(command, **environment):
    return subprocess.run(
        [sys.executable, "-m", "foci_cli", command], capture_output=True, text=True, env={**os.environ, **environment}
    )


@pytest.mark.slow
def test_kernels_switched_off_are_named_with_the_reason():
    told = run("doctor", FOCI_KERNELS="off")
    assert told.returncode == 0, told.stderr
    for row in KERNELS:
        state = ["active:"] if row.kernel is None else ["not", "active:"]
        assert any(line.split()[: 1 + len(state)] == [row.name, *state] for line in told.stdout.splitlines())
    assert "FOCI_KERNELS" in told.stdout
    built = run("build-kernels", FOCI_KERNELS="off")
    assert built.returncode == 1
    assert all(row.name in built.stderr for row in KERNELS if row.kernel is not None)


@pytest.mark.slow
def test_without_a_compiler_the_reason_is_told(tmp_path):
    told = run("doctor", FOCI_KERNEL_CACHE=str(tmp_path / "empty"), CXX="/nowhere/c++", PATH=str(tmp_path))
    assert told.returncode == 0, told.stderr
    assert "not active" in told.stdout
