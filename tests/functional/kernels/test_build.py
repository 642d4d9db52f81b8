"""Building and loading the kernels: cached, safe among processes, and never an error to the user."""

import ctypes
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from active_kernel import skip_unless_active

from foci.functional.kernels import KERNELS, build, library_cache, status
from foci.functional.kernels.kernel import Kernel

SCORE = """
import torch
from foci.functional.kernels import status
from foci.functional.kernels.additive import additive_scores
query, key, vector = torch.randn(2, 30, 19), torch.randn(2, 40, 19), torch.randn(19)
wanted = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ vector
assert torch.allclose(additive_scores(query, key, vector), wanted, atol=1e-5)
found = next(kernel for kernel in status() if kernel.name == "additive")
assert {kernel.active for kernel in status()} == {found.active}  # each is compared with its equations, or none is there
print(found.active, found.reason)
"""

NUMBER = 'extern "C" int foci_number() { return 1729; }'
"""A library that compiles at once."""

USE_NUMBER = """
import sys
from pathlib import Path
from foci.functional.kernels import build
build._FOLDER = Path(sys.argv[1])
library, reason = build.load_library()
print(library.foci_number(), reason)
"""

BUILD_AND_SPOIL = """
import ctypes, os, sys
from pathlib import Path
from foci.functional.kernels import build
build._FOLDER, cache = Path(sys.argv[1]), Path(os.environ["FOCI_KERNEL_CACHE"])
for _ in range(12):
    library = build.build(cache)
    ctypes.CDLL(str(library)).foci_number()
    rubbish = cache / f"rubbish-{os.getpid()}"
    rubbish.write_bytes(b"rubbish")
    os.replace(rubbish, f"{library}.sha256")
print(ctypes.CDLL(str(build.build(cache))).foci_number())
"""


def in_new_process(*arguments, script=SCORE, **environment):
    """Starts a process; by default it scores, compares with the plain form and prints the kernel's status."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FOCI_", "CXX", "XDG_"))}
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=inherited | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def printed_by(process):
    """What it printed and what it said besides; a process that a signal ended fails."""
    output, besides = process.communicate(timeout=300)
    assert process.returncode == 0, besides
    return output.strip(), besides


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
    return tmp_path / "cache"


@pytest.fixture
def compiler(fresh):
    """Skips where there is no compiler."""
    try:
        return build._find_compiler()
    except build.BuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def unoptimized(compiler, tmp_path):
    """The compiler, four times as fast since it does not optimize: for tests in which a kernel's speed is nothing."""
    return script(tmp_path / "unoptimized", f'exec {compiler[0]} "$@" -O0')


@pytest.fixture
def number(compiler, monkeypatch, tmp_path):
    """Sources that compile at once, in the place of the kernels."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "number.cpp").write_text(NUMBER)
    monkeypatch.setattr(build, "_FOLDER", sources)
    return sources


def stored_in(cache):
    return sorted(path.name for path in cache.iterdir() if path.name != ".lock")


def reason_of(kernel):
    assert not kernel.status.active
    assert kernel.library is None
    return kernel.status.reason


def passes(library):
    return True


def test_every_source_has_its_row():
    sources = sorted(path.stem for path in build._FOLDER.glob("*.cpp"))
    assert sources == sorted(row.name for row in KERNELS if row.kernel is not None)
    assert all(row.kernel is None or row.kernel.name == row.name for row in KERNELS)
    assert all(row.serves and row.plain for row in KERNELS)


def test_status_names_every_kernel_and_its_reason():
    found = {kernel.name: kernel for kernel in status()}
    assert list(found) == [row.name for row in KERNELS if row.kernel is not None]
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
    assert reason_of(Kernel("a", {}, passes)) == "switched off by FOCI_KERNELS"
    assert not fresh.exists()


def test_no_compiler(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "none of g++, clang++, c++ was found" in reason_of(Kernel("a", {}, passes))


def test_a_named_compiler_that_is_not_there(fresh, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O9")
    assert "no-such-compiler of CXX was not found" in reason_of(Kernel("a", {}, passes))


def test_a_compiler_that_complains(fresh, monkeypatch, tmp_path):
    cxx = script(tmp_path / "cxx", 'test "$1" = --version || { echo "fatal error: no luck" >&2; exit 1; }')
    monkeypatch.setenv("CXX", cxx)
    assert "fatal error: no luck" in reason_of(Kernel("a", {}, passes))
    assert stored_in(fresh) == []  # no half-made file stays behind


def test_a_compiler_that_makes_rubbish(fresh, monkeypatch, tmp_path):
    cxx = script(tmp_path / "cxx", 'for last; do :; done; test "$1" = --version || echo rubbish > "$last"')
    monkeypatch.setenv("CXX", cxx)
    assert "kernels-" in reason_of(Kernel("a", {}, passes))


def test_a_cache_that_cannot_be_written(compiler, fresh):
    fresh.write_text("a file where the folder should be")
    assert "cannot be written" in reason_of(Kernel("a", {}, passes))


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
    kernel = Kernel("a", {}, lambda library: bool(asked.append(library)))
    assert "wrong numbers" in reason_of(kernel)
    assert "wrong numbers" in reason_of(kernel)
    assert len(asked) == 1
    assert kernel.status.active is False


def test_what_a_self_check_saves_is_not_for_the_hooks_of_the_caller(fresh, monkeypatch):
    """Activation checkpointing counts saved tensors: it failed where the first use of a kernel was inside."""
    monkeypatch.setattr(build, "_loaded", (ctypes.CDLL(None), "a library"))
    saved = []

    def check(library):
        torch.ones(1, requires_grad=True).exp().backward()
        return True

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), torch.no_grad():
        assert Kernel("a", {}, check).status.active
    assert not saved


def test_a_missing_function_switches_the_kernel_off(fresh, monkeypatch):
    monkeypatch.setattr(build, "_loaded", (ctypes.CDLL(None), "a library"))
    kernel = Kernel("a", {"no_such_function_at_all": (None, [])}, passes)
    assert "foci_a_no_such_function_at_all" in reason_of(kernel)


def test_the_name_depends_on_all_that_matters(number, fresh, monkeypatch):
    names = {build.build(fresh)}
    assert names == {build.build(fresh)}
    with monkeypatch.context() as patch:
        patch.setattr(build, "_processor", lambda: "another")
        names.add(build.build(fresh))
    with monkeypatch.context() as patch:
        patch.setattr(build, "_torch_openmp", list)
        names.add(build.build(fresh))
    with monkeypatch.context() as patch:
        patch.setattr(build, "_FLAGS", (*build._FLAGS, "-O1"))
        names.add(build.build(fresh))
    (number / "number.cpp").write_text(f"{NUMBER}\nint other;")
    names.add(build.build(fresh))
    assert len(names) == 4 + (build._torch_openmp() != [])


def test_the_name_depends_on_the_compiler_and_its_version(number, compiler, fresh, monkeypatch, tmp_path):
    names = {build.build(fresh)}
    for version in ("1", "2"):
        real = f'test "$1" = --version && {{ echo {version}; exit; }}; exec {compiler[0]} "$@"'
        monkeypatch.setenv("CXX", script(tmp_path / "cxx", real))
        names.add(build.build(fresh))
    assert len(names) == 3


# --- a library that is damaged, or was never whole


def truncate(library):
    os.truncate(library, library.stat().st_size // 2)


def flip_a_bit(library):
    data = bytearray(library.read_bytes())
    data[len(data) // 3] ^= 4
    library.write_bytes(data)


def record_of(library):
    return library.with_name(f"{library.name}.sha256")


DAMAGE = {
    "empty": lambda library: os.truncate(library, 0),
    "truncated": truncate,
    "truncated, as its record says": lambda library: (
        truncate(library),
        record_of(library).write_text(f"{library.stat().st_size} {record_of(library).read_text().split()[1]}"),
    ),
    "longer": lambda library: library.write_bytes(library.read_bytes() + b"\0"),
    "one bit flipped": flip_a_bit,
    "rubbish": lambda library: library.write_bytes(b"rubbish" * 1000),
    "gone": lambda library: library.unlink(),
    "record gone": lambda library: record_of(library).unlink(),
    "record empty": lambda library: record_of(library).write_bytes(b""),
    "record rubbish": lambda library: record_of(library).write_bytes(b"\xff\xfe many words in it"),
    "record of another": lambda library: record_of(library).write_text(f"{library.stat().st_size} {'0' * 64}"),
    "writable for others": lambda library: library.chmod(0o666),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_library_is_not_loaded_but_made_anew(number, fresh, damage):
    library = build.build(fresh)
    whole = library.read_bytes()
    DAMAGE[damage](library)
    assert build.build(fresh) == library
    assert library.read_bytes() == whole
    assert not library.stat().st_mode & 0o022
    assert ctypes.CDLL(str(library)).foci_number() == 1729
    assert stored_in(fresh) == [library.name, record_of(library).name]


def test_a_whole_library_is_kept(number, fresh):
    def written():
        found = build.build(fresh).stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    assert written() == written()


def test_contents_reach_the_disk_before_their_names(number, fresh, monkeypatch):
    done = []
    flush, move = os.fsync, os.replace

    def recorded_flush(descriptor):
        done.append(("flushed", os.fstat(descriptor).st_ino))
        flush(descriptor)

    def recorded_move(source, target):
        done.append(("moved", os.stat(source).st_ino))
        move(source, target)

    monkeypatch.setattr(os, "fsync", recorded_flush)
    monkeypatch.setattr(os, "replace", recorded_move)
    library = build.build(fresh)
    file, record, folder = (path.stat().st_ino for path in (library, record_of(library), fresh))
    assert done == [("flushed", file), ("moved", file), ("flushed", record), ("moved", record), ("flushed", folder)]


# --- a compiler that is gone


@pytest.fixture
def gone(monkeypatch, tmp_path):
    """Takes the compiler away."""

    def take_away():
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))

    return take_away


def test_a_stored_library_serves_without_the_compiler(number, fresh, gone, monkeypatch):
    library = build.build(fresh)
    gone()
    assert build.build(fresh) == library
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.build(fresh) == library
    kernel = Kernel("number", {}, lambda library: library.foci_number() == 1729)
    assert kernel.status == ("number", True, f"compiled: {library}")


def test_a_stored_library_serves_when_the_compiler_fails(number, fresh, monkeypatch, tmp_path):
    library = build.build(fresh)
    monkeypatch.setenv("CXX", script(tmp_path / "cxx", "exit 1"))
    assert build.build(fresh) == library


def test_the_newest_of_several_serves(number, compiler, fresh, gone, monkeypatch, tmp_path):
    first = build.build(fresh)
    real = f'test "$1" = --version && {{ echo 2; exit; }}; exec {compiler[0]} "$@"'
    monkeypatch.setenv("CXX", script(tmp_path / "cxx", real))
    second = build.build(fresh)
    os.utime(first, ns=(1, 1))
    gone()
    assert build.build(fresh) == second
    truncate(second)
    assert build.build(fresh) == first


@pytest.mark.parametrize("damage", ["truncated", "record gone", "other sources", "other processor"])
def test_without_the_compiler_nothing_else_serves(number, fresh, gone, monkeypatch, damage):
    library = build.build(fresh)
    gone()
    if damage == "other sources":
        (number / "number.cpp").write_text(f"{NUMBER}\nint other;")
    elif damage == "other processor":
        monkeypatch.setattr(build, "_processor", lambda: "another")
    else:
        DAMAGE[damage](library)
    with pytest.raises(build.BuildError, match="none of g\\+\\+, clang\\+\\+, c\\+\\+ was found"):
        build.build(fresh)


# --- folders that others may write to

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
A_USER = 54321


@needs_owners
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(number, fresh, gone, mode):
    build.build(fresh)
    fresh.chmod(mode)
    for _ in range(2):  # with a compiler and without
        reason = reason_of(Kernel("a", {}, passes))
        assert f"other users may write to the cache folder {fresh}" in reason
        assert f"chmod go-w {fresh}" in reason
        gone()
        build._loaded = None
    fresh.chmod(0o700)
    assert build.build(fresh).parent == fresh


@needs_owners
def test_a_folder_of_another_user_is_not_used(number, fresh, monkeypatch):
    build.build(fresh)
    if os.geteuid() == 0:
        os.chown(fresh, A_USER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: A_USER)
    assert "belongs to user" in reason_of(Kernel("a", {}, passes))


@needs_owners
def test_a_library_of_another_user_is_not_loaded(number, fresh, monkeypatch):
    library = build.build(fresh)
    if os.geteuid() == 0:
        os.chown(library, A_USER, -1)
        assert not library_cache.is_whole(library)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: A_USER)
            assert not library_cache.is_whole(library)
    assert library_cache.is_whole(build.build(fresh))


@needs_owners
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_what_root_stored_serves_every_user(number, fresh, monkeypatch):
    """As in an image that was made by root and is run by another user."""
    library = build.build(fresh)
    assert fresh.stat().st_mode & 0o777 == library.stat().st_mode & 0o777 == 0o755
    monkeypatch.setattr(os, "geteuid", lambda: A_USER)
    assert build.build(fresh) == library


@needs_owners
def test_a_folder_above_that_is_open_to_all(number, fresh, monkeypatch):
    above = fresh / "above"
    above.mkdir(parents=True)
    above.chmod(0o777)
    with pytest.raises(build.BuildError, match=f"every user may write to {above}"):
        build.build(above / "cache")
    above.chmod(0o1777)  # as /tmp: nobody can rename what belongs to another
    assert build.build(above / "cache").parent == above / "cache"


@needs_owners
def test_the_umask_opens_nothing(number, fresh):
    before = os.umask(0)
    try:
        library = build.build(fresh)
    finally:
        os.umask(before)
    assert not any(path.stat().st_mode & 0o022 for path in (fresh, library))
    assert build.build(fresh) == library


def test_a_link_is_followed_to_the_folder(number, fresh, tmp_path):
    fresh.mkdir()
    (tmp_path / "link").symlink_to(fresh)
    assert build.build(tmp_path / "link").parent == fresh
    if hasattr(os, "geteuid"):
        fresh.chmod(0o777)
        with pytest.raises(build.BuildError, match="other users may write"):
            build.build(tmp_path / "link")


def test_where_files_have_no_owners_nothing_is_asked_of_them(number, fresh, monkeypatch):
    monkeypatch.delattr(os, "geteuid", raising=False)
    fresh.mkdir()
    fresh.chmod(0o777)
    assert build.build(fresh).parent == fresh


# --- what is told


def test_building_is_told_and_loading_is_not(number, fresh, caplog):
    build.build(fresh)
    (told,) = caplog.records
    assert told.name == "foci"
    assert told.levelname == "WARNING"  # shown on standard error unless the program says otherwise
    assert str(fresh) in told.getMessage()
    caplog.clear()
    build.build(fresh)
    assert caplog.records == []


# --- whole processes


@pytest.mark.slow
def test_off_in_a_whole_process():
    assert printed_by(in_new_process(FOCI_KERNELS="off")) == ("False switched off by FOCI_KERNELS", "")


@pytest.mark.slow
def test_of_many_processes_one_builds(number, compiler, fresh, tmp_path):
    count = f'test "$1" = --version || {{ echo >> {tmp_path}/builds; sleep 1; }}; exec {compiler[0]} "$@"'
    where = {"FOCI_KERNEL_CACHE": str(fresh), "CXX": script(tmp_path / "cxx", count)}
    processes = [in_new_process(number, script=USE_NUMBER, **where) for _ in range(3)]
    printed, besides = zip(*map(printed_by, processes))
    assert (tmp_path / "builds").read_text() == "\n"
    (library,) = fresh.glob("*.so")
    assert set(printed) == {f"1729 compiled: {library}"}
    assert any("compiling the C++ kernels" in told for told in besides)
    assert stored_in(fresh) == [library.name, record_of(library).name]  # no workplace left over
    assert printed_by(in_new_process(number, script=USE_NUMBER, **where)) == (printed[0], "")


@pytest.mark.slow
def test_a_killed_build_holds_up_nobody_and_leaves_nothing(number, compiler, fresh, monkeypatch, tmp_path):
    begun = tmp_path / "begun"
    hangs = f'test "$1" = --version || {{ echo $$ > {begun}; exec sleep 300; }}; exec {compiler[0]} "$@"'
    where = {"FOCI_KERNEL_CACHE": str(fresh), "CXX": script(tmp_path / "cxx", hangs)}
    process = in_new_process(number, script=USE_NUMBER, **where)
    while not (begun.exists() and begun.read_text().endswith("\n")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert list(fresh.glob("build-*"))
    library = build.build(fresh)  # while the compiler of the killed process still runs
    os.kill(int(begun.read_text()), signal.SIGKILL)
    assert ctypes.CDLL(str(library)).foci_number() == 1729
    assert stored_in(fresh) == [library.name, record_of(library).name]


@pytest.mark.slow
def test_many_processes_build_again_and_again(number, fresh):
    processes = [in_new_process(number, script=BUILD_AND_SPOIL, FOCI_KERNEL_CACHE=str(fresh)) for _ in range(3)]
    assert {printed_by(process)[0] for process in processes} == {"1729"}


@pytest.mark.slow
def test_a_truncated_library_ends_no_process(number, fresh):
    library = build.build(fresh)
    truncate(library)
    printed, _ = printed_by(in_new_process(number, script=USE_NUMBER, FOCI_KERNEL_CACHE=str(fresh)))
    assert printed == f"1729 compiled: {library}"


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["-fopenmp", "-march=native"])
def test_a_compiler_without_openmp_or_native_code_will_do(unoptimized, fresh, tmp_path, unknown):
    refuse = f'for flag; do test "$flag" = {unknown} && {{ echo "error: {unknown}?" >&2; exit 1; }}; done'
    cxx = script(tmp_path / "cxx", f'{refuse}\nexec {unoptimized} "$@"')
    printed, _ = printed_by(in_new_process(FOCI_KERNEL_CACHE=str(fresh), CXX=cxx))
    assert printed.startswith("True compiled")


LOAD = """
import ctypes, sys
from pathlib import Path
from foci.functional.kernels import build
ctypes.CDLL(str(build.build(Path(sys.argv[1]))))
maps = Path("/proc/self/maps").read_text().splitlines()
print(*sorted({line.split()[-1] for line in maps if "libgomp" in line}), sep="\\n")
"""


@pytest.mark.slow
def test_only_one_openmp_library_is_loaded(unoptimized, fresh):
    """In a process of its own: packages that other tests import have libraries of their own."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    environment = os.environ | {"CXX": unoptimized}
    run = subprocess.run([sys.executable, "-c", LOAD, fresh], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.split()) <= 1


def test_a_changed_header_is_compiled_anew(compiler, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "_FOLDER", tmp_path)
    (tmp_path / "a.cpp").write_text('#include "b.h"\nextern "C" int foci_number() { return NUMBER; }\n')
    for number in (2, 3):
        (tmp_path / "b.h").write_text(f"#define NUMBER {number}\n")
        assert ctypes.CDLL(str(build.build(tmp_path / "cache"))).foci_number() == number


# --- a kernel that computes wrongly

WRONG = {
    "additive": ("sum_v - 2.0 * s[c]", "sum_v - 2.1 * s[c]"),
    "crf": ("log_total + shifted", "log_total + shifted + 1"),
    "decoder_step": ("p * t + all(0.186366111f)", "p * t + all(0.286366111f)"),
    "location_aware": ("shared.sum_v - 2.0 * sums[i]", "shared.sum_v - 2.1 * sums[i]"),
    "ntm": ("const VectorOf<Real> power = all(gamma)", "const VectorOf<Real> power = all(gamma + 1)"),
    "softmax_rows": ("- sums.below / sums.z", "+ sums.below / sums.z"),
    "window": ("to[w] *= scale;", "to[w] *= scale + 1;"),
    "word_by_word": ("all(sum_v) - all(2.0f) *", "all(sum_v) - all(2.1f) *"),
}


@pytest.mark.slow
def test_the_tests_of_a_wrong_kernel_fail_and_are_not_skipped(unoptimized, fresh, tmp_path):
    """The self-check switches a wrong kernel off; its tests must not take it for a machine without a compiler."""
    assert sorted(WRONG) == sorted(row.name for row in KERNELS if row.kernel is not None)
    root = Path(__file__).parents[3]
    shutil.copytree(root / "src" / "foci", tmp_path / "foci", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (right, wrong) in WRONG.items():
        source = tmp_path / "foci" / "functional" / "kernels" / "cpp" / f"{name}.cpp"
        text = source.read_text(encoding="utf-8")
        assert right in text, f"{name}.cpp no longer has the line that this breaks: mend the test"
        source.write_text(text.replace(right, wrong), encoding="utf-8")
    files = [str(root / "tests" / "functional" / "kernels" / f"test_{name}.py") for name in WRONG]
    suite = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", *files],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "FOCI_KERNEL_CACHE": str(fresh), "CXX": unoptimized},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert suite.returncode == 1, suite.stdout[-2000:] + suite.stderr[-2000:]
    assert "SKIPPED" not in suite.stdout
    assert "the kernel additive is not active: the compiled kernel gave wrong numbers" in suite.stdout
    for name in WRONG:  # a fixture that fails is an error
        assert re.search(f"^(FAILED|ERROR) tests/functional/kernels/test_{name}.py", suite.stdout, re.MULTILINE), name


def test_a_machine_without_a_compiler_skips(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="no C\\+\\+ compiler"):
        skip_unless_active(SimpleNamespace(_KERNEL=Kernel("a", {}, passes)))
    monkeypatch.setenv("FOCI_KERNELS", "off")
    monkeypatch.setattr(build, "_loaded", None)
    with pytest.raises(pytest.skip.Exception, match="switched off"):
        skip_unless_active(SimpleNamespace(_KERNEL=Kernel("a", {}, passes)))


def test_a_kernel_that_is_not_trusted_fails_with_the_compiler_and_without(number, fresh, gone):
    build.build(fresh)
    for kernel in (Kernel("a", {}, lambda library: False), Kernel("a", {"no_such_function": (None, [])}, passes)):
        with pytest.raises(pytest.fail.Exception, match="the kernel a is not active"):
            skip_unless_active(SimpleNamespace(_KERNEL=kernel))
        gone()
        build._loaded = None


def test_a_compiler_that_cannot_build_fails(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", script(tmp_path / "cxx", 'test "$1" = --version || exit 1'))
    with pytest.raises(pytest.fail.Exception, match="cxx .*failed"):
        skip_unless_active(SimpleNamespace(_KERNEL=Kernel("a", {}, passes)))
