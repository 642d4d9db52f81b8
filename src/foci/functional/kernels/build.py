"""Builds and loads the C++ kernels: on first use, by one process for all; a failure is logged and raises no error.

All ``.cpp`` files of the folder ``cpp`` become one shared library with a plain C interface, kept in a cache folder
under a name that is the hash of the sources, the flags and the processor, and a hash of the compiler. Without a
compiler, a library that another one made is used. Where anything fails (no compiler, a folder that cannot be written,
or that others may write to, a library that does not load or computes wrongly) the kernels are inactive, the pure torch
paths run, and `status` says why. A build takes some ten seconds; the logger ``foci`` announces it.

    FOCI_KERNELS=off          use no kernel
    FOCI_KERNEL_CACHE=folder  where the library is kept; else $XDG_CACHE_HOME/foci, else ~/.cache/foci
    CXX=compiler              what to compile with; else g++, clang++ or c++
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from foci import files
from foci.functional.kernels.library_cache import BuildError, check_private, is_whole, newest_whole, store

_FOLDER = Path(__file__).parent / "cpp"
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
_TUNINGS = (("-march=native", "-fopenmp"), ("-march=native",), ("-fopenmp",), ())
"""Tried in turn, since not every compiler supports every processor or OpenMP; without it kernels use one thread."""
_COMPILE_SECONDS = 300
_WORKPLACE = "build-"
LOCK = threading.RLock()
"""Held while the library is built, loaded and checked."""
_LOG = logging.getLogger("foci")


_loaded: tuple[ctypes.CDLL | None, str] | None = None


def load_library() -> tuple[ctypes.CDLL | None, str]:
    """Return the library and its path, or None and the reason; loaded once."""
    global _loaded
    with LOCK:
        if _loaded is None:
            try:
                path = build(cache_folder())
                _loaded = ctypes.CDLL(str(path)), f"compiled: {path}"
            except (BuildError, OSError) as error:  # an OSError of the loader names the library
                _loaded = None, str(error)
        return _loaded


def cache_folder() -> Path:
    """Return the folder of the library, or raise a `BuildError` where kernels are switched off."""
    if os.environ.get("FOCI_KERNELS", "").lower() in ("off", "0", "no", "false"):
        raise BuildError("switched off by FOCI_KERNELS")
    chosen = os.environ.get("FOCI_KERNEL_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return files.cache_folder()
    except RuntimeError as error:  # no home folder
        raise BuildError(f"no cache folder: {error}. Set FOCI_KERNEL_CACHE.") from error


def build(cache: Path) -> Path:
    """Return the path of the library in ``cache``; compile it unless it is there already.

    Raises:
        BuildError: there is none and it cannot be built, with the reason.
    """
    cache = cache.expanduser().resolve()
    if cache.exists():
        check_private(cache)
    sources, openmp = sorted(_FOLDER.glob("*.cpp")), _torch_openmp()
    name = f"kernels-{_fingerprint([*sources, *sorted(_FOLDER.glob('*.h'))], openmp)}"
    try:
        compiler = _find_compiler()
        target = cache / f"{name}-{_hash([*compiler, _run([*compiler, '--version'])])}.so"
        if not is_whole(target):
            _make(compiler, sources, openmp, target)
    except BuildError:
        made_by_another = newest_whole(cache, f"{name}-*.so")
        if made_by_another is None:
            raise
        return made_by_another
    return target


def _make(compiler: Sequence[str], sources: Sequence[Path], openmp: Sequence[str], target: Path) -> None:
    """Compile the library in a temporary folder, and store it; or wait until another process has."""
    cache = target.parent
    try:
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        check_private(cache)
        told = "foci: compiling the C++ kernels with %s into %s, once; it can take half a minute"
        _LOG.warning(told, compiler[0], cache)
        with files.locked(cache):
            if is_whole(target):
                return
            for left in cache.glob(f"{_WORKPLACE}*"):  # by a process that was killed: whoever builds has the lock
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=_WORKPLACE, dir=cache) as folder:
                fresh = Path(folder) / target.name
                _compile(compiler, sources, openmp, fresh)
                store(fresh, target)
    except OSError as error:
        raise BuildError(f"the cache folder {cache} cannot be written: {error}. Set FOCI_KERNEL_CACHE.") from error


def _find_compiler() -> list[str]:
    """Return the command of a C++ compiler. ``CXX`` may carry arguments, as in ``ccache g++``."""
    wanted = os.environ.get("CXX", "").split()
    for command in [wanted] if wanted else [["g++"], ["clang++"], ["c++"]]:
        program = shutil.which(command[0])
        if program:
            return [program, *command[1:]]
    raise BuildError(
        f"no C++ compiler: {wanted[0]} of CXX was not found"
        if wanted
        else "no C++ compiler: none of g++, clang++, c++ was found; install one or set CXX"
    )


def _torch_openmp() -> list[str]:
    """Return the OpenMP library inside torch's wheel, if it has one.

    Two OpenMP libraries in a process have two pools of threads that compete for the same cores, so the kernels
    are linked with torch's own.
    """
    packages = Path(torch.__file__).parent
    found = [*packages.glob("lib/libgomp*.so*"), *packages.parent.glob("torch.libs/libgomp*.so*")]
    return [str(path) for path in sorted(found)[:1]]


def _fingerprint(sources: Sequence[Path], openmp: Sequence[str]) -> str:
    """Return a hash of all that the compiled code depends on except the compiler, which may be missing on use."""
    flags = [flag for flags in (_FLAGS, *_TUNINGS) for flag in flags]
    return _hash([_processor(), *openmp, *flags, *(source.read_bytes() for source in sources)])


def _hash(parts: Sequence[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:20]


def _processor() -> str:
    """Return what -march=native depends on. A home folder may be shared by different machines."""
    known = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features", "isa")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.version()}"
    return "\n".join(sorted({line for line in lines if line.startswith(known)}))


def _compile(compiler: Sequence[str], sources: Sequence[Path], openmp: Sequence[str], target: Path) -> None:
    names = [str(source) for source in sources]
    for tuning in _TUNINGS:
        # --as-needed drops the compiler's own OpenMP library where torch's has all symbols.
        linked = ["-Wl,--as-needed", *openmp] if openmp and "-fopenmp" in tuning else []
        try:
            _run([*compiler, *_FLAGS, *tuning, *names, *linked, "-o", str(target)])
        except BuildError as error:
            failure = error
        else:
            return
    raise failure


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} did not run: {error}") from error
    if done.returncode != 0:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line.lower()), done.stderr[:200])
        raise BuildError(f"{' '.join(command[:2])} failed: {complaint.strip()}")
    return done.stdout
