"""Building and loading the kernels: cached, safe among processes, and never an error to the user."""

import ctypes
import os
import stat
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from foci.functional.kernels import build, status

SCORE = """
import torch
from foci.functional.kernels import additive, status
query, key, vector = torch.randn(2, 30, 19), torch.randn(2, 40, 19), torch.randn(19)
wanted = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ vector
assert torch.allclose(additive(query, key, vector), wanted, atol=1e-5)
found = next(kernel for kernel in status() if kernel.name == "additive")
print(found.active, found.reason)
"""


def in_new_process(**environment):
    """Starts a process that scores, compares with the plain form and prints the kernel's status."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FOCI_", "CXX", "XDG_"))}
    return subprocess.Popen(
        [sys.executable, "-c", SCORE], env=inherited | environment, text=True, stdout=subprocess.PIPE
    )


def printed_by(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return output.strip()


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A state as at the start of a process, and an empty cache."""
    for name in ("CXX", "FOCI_KERNELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FOCI_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_loaded", None)
    monkeypatch.setattr(build, "_KERNELS", [])
    return tmp_path / "cache"


@pytest.fixture
def compiler(fresh):
    """Skips where there is no compiler."""
    try:
        return build._find_compiler()
    except build.BuildError as error:
        pytest.skip(str(error))


def reason_of(kernel):
    assert not kernel.status.active
    assert kernel.library is None
    return kernel.status.reason


def passes(library):
    return True


def test_status_names_every_kernel_and_its_reason():
    found = {kernel.name: kernel for kernel in status()}
    assert "additive" in found
    assert all(isinstance(kernel.active, bool) and kernel.reason for kernel in found.values())


@pytest.mark.skipif(os.environ.get("FOCI_KERNELS") is not None, reason="FOCI_KERNELS is set")
def test_every_kernel_is_active_where_there_is_a_compiler():
    try:
        build._find_compiler()
    except build.BuildError as error:
        pytest.skip(str(error))
    assert [kernel for kernel in status() if not kernel.active] == []


def test_switched_off(fresh, monkeypatch):
    monkeypatch.setenv("FOCI_KERNELS", "off")
    assert reason_of(build.Kernel("a", passes)) == "switched off by FOCI_KERNELS"
    assert not fresh.exists()


def test_no_compiler(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "none of g++, clang++, c++ was found" in reason_of(build.Kernel("a", passes))


def test_a_named_compiler_that_is_not_there(fresh, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O9")
    assert "no-such-compiler of CXX was not found" in reason_of(build.Kernel("a", passes))


def test_a_compiler_that_complains(fresh, monkeypatch, tmp_path):
    cxx = script(tmp_path / "cxx", 'test "$1" = --version || { echo "fatal error: no luck" >&2; exit 1; }')
    monkeypatch.setenv("CXX", cxx)
    assert "fatal error: no luck" in reason_of(build.Kernel("a", passes))
    assert list(fresh.iterdir()) == []  # no half-made file stays behind


def test_a_compiler_that_makes_rubbish(fresh, monkeypatch, tmp_path):
    cxx = script(tmp_path / "cxx", 'for last; do :; done; test "$1" = --version || echo rubbish > "$last"')
    monkeypatch.setenv("CXX", cxx)
    assert "kernels-" in reason_of(build.Kernel("a", passes))


def test_a_cache_that_cannot_be_written(compiler, fresh):
    fresh.write_text("a file where the folder should be")
    assert "cannot be written" in reason_of(build.Kernel("a", passes))


def test_where_the_cache_lies(fresh, monkeypatch, tmp_path):
    assert build.cache_folder() == fresh
    monkeypatch.delenv("FOCI_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert build.cache_folder() == tmp_path / "xdg" / "foci"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / ".cache" / "foci"


def test_a_failed_self_check_switches_the_kernel_off_and_is_asked_once(fresh, monkeypatch):
    monkeypatch.setattr(build, "_loaded", (ctypes.CDLL(None), "a library"))
    asked = []
    kernel = build.Kernel("a", lambda library: bool(asked.append(library)))
    assert "wrong numbers" in reason_of(kernel)
    assert "wrong numbers" in reason_of(kernel)
    assert len(asked) == 1
    assert [found.active for found in build.status()] == [False]


def test_a_missing_function_switches_the_kernel_off(fresh, monkeypatch):
    monkeypatch.setattr(build, "_loaded", (ctypes.CDLL(None), "a library"))
    kernel = build.Kernel("a", lambda library: bool(library.no_such_function_at_all))
    assert "no_such_function_at_all" in reason_of(kernel)


def test_the_name_depends_on_all_that_matters(compiler, tmp_path):
    source = tmp_path / "a.cpp"
    source.write_text("int a;")
    names = {build._fingerprint(compiler, [source], [])}
    assert names == {build._fingerprint(compiler, [source], [])}
    names.add(build._fingerprint(compiler, [source], ["libgomp.so"]))
    with mock.patch.object(build, "_processor", return_value="another"):
        names.add(build._fingerprint(compiler, [source], []))
    with mock.patch.object(build, "_run", return_value="another version"):
        names.add(build._fingerprint(compiler, [source], []))
    with mock.patch.object(build, "_FLAGS", ("-O0",)):
        names.add(build._fingerprint(compiler, [source], []))
    source.write_text("int b;")
    names.add(build._fingerprint(compiler, [source], []))
    assert len(names) == 6


@pytest.mark.slow
def test_off_in_a_whole_process():
    assert printed_by(in_new_process(FOCI_KERNELS="off")) == "False switched off by FOCI_KERNELS"


@pytest.mark.slow
def test_many_processes_build_at_once(compiler, fresh):
    processes = [in_new_process(FOCI_KERNEL_CACHE=str(fresh)) for _ in range(3)]
    printed = {printed_by(process) for process in processes}
    (library,) = fresh.iterdir()  # one library, and no workplace left over
    assert printed == {f"True compiled: {library}"}


@pytest.mark.slow
def test_a_damaged_library_is_made_anew_and_a_whole_one_kept(compiler, fresh):
    library = build.build(fresh)
    library.write_bytes(b"")
    assert build.build(fresh) == library
    made = library.stat()
    assert made.st_size > 0
    assert build.build(fresh) == library
    assert library.stat().st_mtime_ns == made.st_mtime_ns


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["-fopenmp", "-march=native"])
def test_a_compiler_without_openmp_or_native_code_will_do(compiler, fresh, tmp_path, unknown):
    refuse = f'for flag; do test "$flag" = {unknown} && {{ echo "error: {unknown}?" >&2; exit 1; }}; done'
    cxx = script(tmp_path / "cxx", f'{refuse}\nexec {compiler[0]} "$@"')
    assert printed_by(in_new_process(FOCI_KERNEL_CACHE=str(fresh), CXX=cxx)).startswith("True compiled")


@pytest.mark.slow
def test_only_one_openmp_library_is_loaded(compiler, fresh):
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    ctypes.CDLL(str(build.build(fresh)))
    loaded = {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}
    assert len(loaded) <= 1


def test_a_changed_header_is_compiled_anew(compiler, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "_FOLDER", tmp_path)
    (tmp_path / "a.cpp").write_text('#include "b.h"\nextern "C" int foci_number() { return NUMBER; }\n')
    for number in (2, 3):
        (tmp_path / "b.h").write_text(f"#define NUMBER {number}\n")
        assert ctypes.CDLL(str(build.build(tmp_path / "cache"))).foci_number() == number
