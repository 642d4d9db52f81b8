"""The folder of a run: everything needed to describe it, to resume it, and to use its model.

    config.json         the resolved configuration
    environment.json    versions, machine and command of each session
    metrics.jsonl       metrics of training and validation, one JSON object per line
    checkpoints/        see `foci.training.checkpoint`

Runs of tasks add examples.safetensors (`foci.tasks.frame.held_out`), and files of their own (tokenizers, vocabularies).
config.json is written last: with it the folder is a run that can be resumed, whenever its process is killed; without it
the folder is free, and what a killed process has left there is removed when a run starts in it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import torch

from foci.encodings import has_surrogates
from foci.errors import CheckpointError, ConfigError, TrainingError
from foci.files import open_regular, read_text, regular_descriptor, write_bytes, write_json, write_text
from foci.training.progress import log_to_stderr

try:
    import fcntl
except ImportError:  # Windows: runs are not locked there
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
_LONGEST_LINE = 1 << 20  # bytes of a line of metrics
_LONGEST_HOLDER = 200  # characters of what .lock says
_BEGINNINGS = {_LOCK, "environment.json"}  # of a run that was killed before it had a configuration; see _begun_files
_PACKAGES = ("foci", "torch", "numpy", "lightning-fabric", "safetensors", "tokenizers")
FORMAT = 1
"""Number of the format of config.json; it grows when a version can no longer read the runs of the one before."""
_held: set[Path] = set()
_begun: set[Path] = set()


def check_folder(path: Path | str, *, resume: bool) -> None:
    """Raise unless a run may use this folder; nothing is written.

    A new run needs a folder that is missing or empty, a resumed run the folder of a run.

    Raises:
        ConfigError: the folder holds something, and ``resume`` is not set; or it cannot be a folder.
        CheckpointError: ``resume`` is set, and the folder holds no run.
    """
    path = Path(path)
    _check_path(path)
    inside = _inside(path)
    is_run = "config.json" in inside
    if inside and not resume:
        kind = "holds a run" if is_run else f"is not empty ({', '.join(sorted(inside)[:3])})"
        remedy = "Resume it, or choose" if is_run else "Choose"
        raise ConfigError(f"{path}: {kind}, and nothing is overwritten. {remedy} another folder.")
    if inside and not is_run:
        raise CheckpointError(
            f"{path}: is no run (no config.json; it holds {', '.join(sorted(inside)[:3])}). "
            "Name the folder of a run, or an empty one."
        )


def _check_path(path: Path) -> None:
    if has_surrogates(str(path)):  # the library of safetensors could not read what it has written there
        raise ConfigError(f"{path}: has a name that is not UTF-8. Choose another folder.")
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise ConfigError(f"{path}: {existing} is a file, expected a folder. Choose another folder.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{path}: {existing} cannot be written to. Choose another folder.")


def _inside(path: Path) -> set[str]:
    if not path.exists():
        return set()
    names = {entry.name for entry in path.iterdir() if not entry.name.endswith(".tmp")} - _BEGINNINGS
    return names if "config.json" in names else names - _begun_files(path)


def _begun_files(path: Path) -> set[str]:
    """Return the names of the files that the last session was to write before config.json."""
    try:
        *_, session = _sessions(path)
        return {name for name in session["files"] if isinstance(name, str) and Path(name).name == name}
    except (CheckpointError, ValueError, TypeError, KeyError):
        return set()


def _sessions(path: Path) -> list[dict[str, Any]]:
    """Return what environment.json says of each session; nothing where there is no such file."""
    file = path / "environment.json"
    sessions = _read_json(file) if file.exists() else []
    if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
        raise CheckpointError(f"{file}: is no list of sessions. Restore the file, or remove it.")
    return sessions


def begun_by_launch(path: Path, launch: Sequence[str]) -> bool:
    """Return whether an earlier attempt of a launch started the run in this folder, and torchrun then restarted it.

    A launch is known by the agents of torchrun, one per node (`foci.training.devices.launch_agents`): they stay when
    their workers are restarted, except those of nodes that were replaced. What this very process has begun is no
    earlier attempt: a program that trains twice into one folder is refused.
    """
    if not (path / "config.json").exists() or path.resolve() in _begun:
        return False
    before = [agents for session in _sessions(path) if isinstance(agents := session.get("launch"), list)]
    return any(agent in agents for agents in before for agent in launch)


class RunFolder:
    """A run's folder, locked against a second trainer for as long as it is open.

    The lock is the operating system's: it ends with the process, however that ends.

    Args:
        path: the folder; it is created if necessary.
        config: the resolved configuration, plain JSON.
        files: contents of further files by their names; those that a resumed run has already stay as they are.
        resume: continue the run in the folder. Without it a folder that is not empty is refused; see
            `check_folder`.
        main: whether this process writes; under torchrun only the first one does.
        launch: the agents of torchrun, from `foci.training.devices.launch_agents`: a run that they have begun before
            goes on, as with ``resume``.
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
        files: Mapping[str, bytes] | None = None,
        resume: bool = False,
        main: bool = True,
        launch: Sequence[str] = (),
        resume_hint: str = "start the same run again with resume",
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self.main = main
        self.resume_hint = resume_hint
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.unused = False
        self._lock: TextIO | None = None
        self._folder: int | None = None
        if not main:
            return
        self._launch = list(launch)
        check_folder(self.path, resume=resume or begun_by_launch(self.path, launch))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
            self.unused = not _inside(self.path)
            self._write(config, files or {}, log or log_to_stderr)
        except BaseException as error:
            self.remove_if_unused()
            self.close()
            if not isinstance(error, OSError):
                raise
            raise CheckpointError(
                f"{self.path}: the run cannot be written ({error.strerror}). Free space on the disk, or choose another "
                "folder."
            ) from error

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            _held.discard(self._key)
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def remove_if_unused(self) -> None:
        """Remove the folder of a run that this object started and that has not completed a step (``unused``)."""
        if self.main and self.unused and self._is_in_place():
            self.close()
            shutil.rmtree(self.path)

    def check_in_place(self) -> None:
        """Raise if the folder was moved, removed or emptied since it was opened: nothing can be saved in it.

        Raises:
            TrainingError: also if another folder took its place, which nothing is written into.
        """
        if not self._is_in_place() or not (self.path / "config.json").exists():
            raise TrainingError(
                f"{self.path}: was moved, removed or emptied during the training, so that nothing more can be saved "
                "there. If it was moved, its checkpoints are with it: resume it where it is now."
            )

    def _is_in_place(self) -> bool:
        try:
            return self._folder is None or os.path.samestat(os.stat(self.path), os.fstat(self._folder))
        except FileNotFoundError:
            return False

    def _write(self, config: Mapping[str, Any], files: Mapping[str, bytes], log: Callable[[str], None]) -> None:
        plain = json.loads(json.dumps(config))
        is_run = (self.path / "config.json").exists()
        begun = [] if is_run else [self.path / name for name in _begun_files(self.path)]
        for left in (*begun, *self.path.glob(".*.tmp")):  # of a process that was killed
            left.unlink(missing_ok=True)
        if is_run and (before := read_config(self.path)) != plain:
            log(f"{self.path}: the configuration has changed: {'; '.join(_changes(before, plain))}")
        new = {name: content for name, content in files.items() if not (self.path / name).exists()}
        session = environment() | {"launch": self._launch, "files": sorted(new)}
        write_json(self.path / "environment.json", [*_sessions(self.path), session])
        for name, content in new.items():
            write_bytes(self.path / name, content)
        written = {"format": FORMAT, "foci": _version("foci"), **plain}
        write_json(self.path / "config.json", written)  # last, since it marks the folder as a run
        _begun.add(self.path.resolve())
        self.checkpoints.mkdir(exist_ok=True)

    def _acquire(self) -> None:
        file = self.path / _LOCK
        busy = f"{self.path}: another trainer uses this folder"
        self._key = self.path.resolve()
        if self._key in _held:
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
        self._lock = lock
        _held.add(self._key)
        if fcntl is not None:  # Windows opens no folders
            self._folder = os.open(self.path, os.O_RDONLY)
        with suppress(OSError):  # which a full disk raises; the lock holds without it
            lock.truncate(0)
            os.write(lock.fileno(), f"process {os.getpid()} on {platform.node()}".encode())


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
        self.path = path
        self._file = path.open("ab", buffering=0)

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line."""
        content = json.dumps(line).encode() + b"\n"
        try:
            written = self._file.write(content)
        except OSError as error:
            raise self._unwritten(error.strerror) from error
        if written < len(content):
            raise self._unwritten("the disk is full")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _unwritten(self, reason: str | None) -> TrainingError:
        return TrainingError(f"{self.path}: cannot be written ({reason}). Free space on the disk, then resume.")


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
