"""The folder of a run: everything needed to describe it, to resume it, and to use its model.

    config.json         the resolved configuration
    environment.json    versions, machine and command of each session
    metrics.jsonl       metrics of training and validation, one JSON object per line
    checkpoints/        see `foci.training.checkpoint`

Runs of tasks add examples.safetensors (`foci.tasks.frame.held_out`), and files of their own (tokenizers, vocabularies).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import torch

from foci.errors import CheckpointError, ConfigError
from foci.files import open_regular, read_text, regular_descriptor, write_json, write_text
from foci.training.progress import log_to_stderr

try:
    import fcntl
except ImportError:  # Windows: runs are not locked there
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
_LONGEST_LINE = 1 << 20  # bytes of a line of metrics
_LONGEST_HOLDER = 200  # characters of what .lock says
_BEGINNINGS = {_LOCK, "environment.json"}  # of a run that was killed before it had a configuration
_PACKAGES = ("foci", "torch", "numpy", "lightning-fabric", "safetensors", "tokenizers")
FORMAT = 1
"""Number of the format of config.json; it grows when a version can no longer read the runs of the one before."""
_held: set[Path] = set()


def check_folder(path: Path | str, *, resume: bool) -> None:
    """Raise unless a run may use this folder; nothing is written.

    A new run needs a folder that is missing or empty, a resumed run the folder of a run. Workers that torchrun has
    restarted resume only a run that their own launch has started.

    Raises:
        ConfigError: the folder holds something, and ``resume`` is not set; or it cannot be a folder.
        CheckpointError: ``resume`` is set, and the folder holds no run.
    """
    path = Path(path)
    _check_path(path)
    inside = _inside(path)
    is_run = "config.json" in inside
    if inside and not (resume or begun_by_this_launch(path)):
        kind = "holds a run" if is_run else f"is not empty ({', '.join(sorted(inside)[:3])})"
        remedy = "Resume it, or choose" if is_run else "Choose"
        raise ConfigError(f"{path}: {kind}, and nothing is overwritten. {remedy} another folder.")
    if inside and not is_run:
        raise CheckpointError(
            f"{path}: is no run (no config.json; it holds {', '.join(sorted(inside)[:3])}). "
            "Name the folder of a run, or an empty one."
        )


def _check_path(path: Path) -> None:
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise ConfigError(f"{path}: {existing} is a file, expected a folder. Choose another folder.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{path}: {existing} cannot be written to. Choose another folder.")


def _inside(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {entry.name for entry in path.iterdir() if not entry.name.endswith(".tmp")} - _BEGINNINGS


def _launch_id() -> str | None:
    """Return an id that all attempts of one torchrun share: its run id, and the agent's process id and start time."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    try:
        stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
        since = stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # not Linux
        since = ""
    return f"{os.environ['TORCHELASTIC_RUN_ID']}/{platform.node()}/{os.getppid()}/{since}"


def begun_by_this_launch(path: Path) -> bool:
    """Return whether torchrun restarted this worker after an earlier attempt of the same launch started the run."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0 or not (path / "environment.json").exists():
        return False
    sessions = _read_json(path / "environment.json")
    launches = [session.get("launch") for session in sessions if isinstance(session, dict)]
    launch = _launch_id()
    return launch is not None and launch in launches


class RunFolder:
    """A run's folder, locked against a second trainer for as long as it is open.

    The lock is the operating system's: it ends with the process, however that ends.

    Args:
        path: the folder; it is created if necessary.
        config: the resolved configuration, plain JSON.
        resume: continue the run in the folder. Without it a folder that is not empty is refused; see
            `check_folder`.
        main: whether this process writes; under torchrun only the first one does.
        resume_hint: the command that resumes an interrupted run, for messages.
        log: called with each message.

    Example:
        >>> import tempfile
        >>> with RunFolder(Path(tempfile.mkdtemp()) / "run", {"model": {"size": 3}}) as run:
        ...     sorted(path.name for path in run.path.iterdir())
        ['.lock', 'checkpoints', 'config.json', 'environment.json']
        >>> read_config(run.path)
        {'model': {'size': 3}}
    """

    def __init__(
        self,
        path: Path | str,
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        main: bool = True,
        resume_hint: str = "start the same run again with resume",
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self.main = main
        self.resume_hint = resume_hint
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self._lock: TextIO | None = None
        if not main:
            return
        check_folder(self.path, resume=resume)
        self.is_new = not _inside(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._acquire()
        try:
            self._write(config, log or log_to_stderr)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            _held.discard(self.path.resolve())

    def remove_if_unused(self) -> None:
        """Remove the folder of a run that this object started and that has not completed a step."""
        used = self.metrics.exists() and self.metrics.stat().st_size > 0
        if self.main and self.is_new and not used and not any(self.checkpoints.glob("step-*")):
            self.close()
            shutil.rmtree(self.path)

    def _write(self, config: Mapping[str, Any], log: Callable[[str], None]) -> None:
        plain = json.loads(json.dumps(config))
        if (self.path / "config.json").exists() and (before := read_config(self.path)) != plain:
            log(f"{self.path}: the configuration has changed: {'; '.join(_changes(before, plain))}")
        sessions = _read_json(self.path / "environment.json") if (self.path / "environment.json").exists() else []
        write_json(self.path / "environment.json", [*sessions, environment()])
        written = {"format": FORMAT, "foci": _version("foci"), **plain}
        write_json(self.path / "config.json", written)  # last, since it marks the folder as a run
        self.checkpoints.mkdir(exist_ok=True)

    def _acquire(self) -> None:
        file = self.path / _LOCK
        busy = f"{self.path}: another trainer uses this folder"
        if self.path.resolve() in _held:
            raise ConfigError(f"{busy}, in this very process. Close its RunFolder first.")
        try:
            lock = _open_lock(file)
        except OSError as error:
            raise ConfigError(f"{file}: cannot be locked ({error.strerror}). Remove it.") from error
        if fcntl is not None:
            try:
                # lockf, not flock: a forked data worker that outlives its trainer must not keep the lock
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                holder = lock.read(_LONGEST_HOLDER).strip() or "unknown"
                lock.close()
                raise ConfigError(f"{busy} ({holder}). Wait for it, stop it, or choose another folder.") from error
        lock.seek(0)
        lock.truncate()
        lock.write(f"process {os.getpid()} on {platform.node()}")
        lock.flush()
        self._lock = lock
        _held.add(self.path.resolve())


def _open_lock(path: Path) -> TextIO:
    """Open .lock, but no file elsewhere that it links to: its content is replaced."""
    follow = getattr(os, "O_NOFOLLOW", 0)
    return open(path, "a+", encoding="utf-8", opener=lambda name, flags: regular_descriptor(name, flags | follow))


class Metrics:
    """metrics.jsonl, open for appending. Each line is flushed at once: a kill damages at most the last one.

    Args:
        path: the file.
        step: lines of later steps are from a session that was killed, and will be written again: they are removed, and
            so is an incomplete last line.
    """

    def __init__(self, path: Path, step: int) -> None:
        kept = [line for line in read_metrics(path) if line["step"] <= step] if path.exists() else []
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line."""
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file; an incomplete last line is left out."""
    try:
        file = open_regular(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}). Restore the file, or remove it.") from error
    with file:
        for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), start=1):
            if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                return
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                content = None
            if not isinstance(content, dict) or not isinstance(content.get("step"), int):
                raise CheckpointError(f"{path}:{number}: is no line of metrics. Remove it, or the file.")
            yield content


def read_config(path: Path) -> dict[str, Any]:
    """Return the configuration of a run."""
    if not (path / "config.json").exists():
        raise CheckpointError(f"{path}: is no run (no config.json). Name the folder that training wrote.")
    config = _read_json(path / "config.json")
    if not isinstance(config, dict):
        raise CheckpointError(f"{path / 'config.json'}: holds a {type(config).__name__}, expected an object.")
    written, version = config.pop("format", None), config.pop("foci", None)
    if written != FORMAT and (written is not None or "task" in config):
        writer = f"by foci {version} in format {written}" if version else "before foci 0.1.0, without a format number"
        raise CheckpointError(
            f"{path / 'config.json'}: the run was written {writer}, expected format {FORMAT}: foci {_version('foci')} "
            "cannot read it. Train it again, or use the version that wrote it."
        )
    return config


def environment() -> dict[str, Any]:
    """Return versions, machine and command of this session."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.node(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "launch": _launch_id(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout foci runs from, if it runs from one."""
    folder = Path(__file__).parents[3]
    if not (folder / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error}). Restore the file.") from error


def _changes(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _changes(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif before != after:
        yield f"{path} was {json.dumps(before)}, is {json.dumps(after)}"
