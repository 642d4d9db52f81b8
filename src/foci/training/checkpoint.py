"""Checkpoints: folders of safetensors and JSON, written atomically.

A checkpoint ``step-00001000`` holds

    model.safetensors       weights and buffers; tied weights once
    optimizer.safetensors   the optimizer's state, named ``what/parameter``; with a moving average of the weights, which
                            then is in model.safetensors, also the weights themselves
    random.safetensors      the state of the random generators of each process
    state.json              step, metrics, position in the data, the other names of tied weights, and size and SHA-256
                            of the files above

The processes of a model in shards write model-00001-of-00002.safetensors and so on, and the optimizer's state likewise.
Such files have the same names in them; joined along their first axis, in order, the tensors are whole.

It is written into a temporary folder, flushed to the disk and renamed: a kill at any moment leaves either all of it
or nothing. Files that were damaged or changed are detected by their digest. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from foci.errors import CheckpointError, ConfigError
from foci.files import open_regular, read_text
from foci.training.deferred import at_once
from foci.training.named_tensors import check_weights, put_weights

MODEL, OPTIMIZER, RANDOM, STATE = "model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"
AVERAGED = "averaged"
_ASIDE = ".tmp-aside-"
"""How the name of a checkpoint begins while one of its step takes its place."""
_FORMAT = 2
_NAME = re.compile(r"step-\d+")
_T = TypeVar("_T")
_MAPPED = 2**26
"""Bytes that may be read of files before they are opened anew."""


class Saved(NamedTuple):
    """The contents of a checkpoint; ``state`` is plain JSON. What `load` returns is read when it is asked for."""

    model: Mapping[str, Tensor]
    ties: dict[str, str]
    optimizer: Mapping[str, Tensor]
    random: Mapping[str, Tensor]
    state: dict[str, Any]


class Writers(NamedTuple):
    """The processes that write a checkpoint together: this one's rank, their number, and how they meet.

    ``gather`` returns the values that all of them call it with.
    """

    rank: int = 0
    number: int = 1
    gather: Callable[[Any], list[Any]] = lambda value: [value]

    def file(self, name: str) -> str:
        """Return the name of this process's file of those that are called so."""
        stem, suffix = name.split(".")
        return name if self.number == 1 else f"{stem}-{self.rank + 1:05d}-of-{self.number:05d}.{suffix}"


_ALONE = Writers()


class Checkpoints:
    """The checkpoints of a run: saves them, removes old ones, finds the newest valid one and the best one.

    Of each checkpoint that is kept the best one of its time is kept too.

    Args:
        folder: their folder.
        save_total_limit: number of newest checkpoints to keep.
        average_last: number of newest checkpoints to keep among those of multiples of ``save_every``, for an average
            that does not depend on when else one was saved.
        save_every: steps between those.

    Example:
        >>> import tempfile
        >>> store = Checkpoints(Path(tempfile.mkdtemp()), save_total_limit=1)
        >>> for step in (1, 2):
        ...     _ = store.save(step, Saved({"w": torch.ones(2)}, {}, {}, {}, {"best": None}))
        >>> [path.name for path in store.all()]
        ['step-00000002']
    """

    def __init__(
        self, folder: Path, *, save_total_limit: int = 1, average_last: int = 0, save_every: int | None = None
    ) -> None:
        self.folder = folder
        self.save_total_limit, self.average_last, self.save_every = save_total_limit, average_last, save_every

    def all(self) -> list[Path]:
        """Return the folders of all checkpoints, oldest first."""
        # By number: from step 100,000,000 on names have nine digits.
        return sorted((path for path in self.folder.glob("step-*") if path.name[5:].isdecimal()), key=_step)

    def path(self, step: int) -> Path:
        """Return the folder of the checkpoint of a step."""
        return self.folder / f"step-{step:08d}"

    def save(self, step: int, saved: Saved, writers: Writers = _ALONE) -> Path:
        """Write a checkpoint; remove those that need not be kept, and the average, which is of an earlier step.

        Each of several writers gives its parts of the tensors; all else is the first one's.
        """
        path = self.path(step)
        self._write(path, saved, writers, outdated=path.with_name(AVERAGED))
        if writers.rank > 0:
            return path
        newest = {*self.all()[-self.save_total_limit :], *self.to_average()}
        kept = newest | {self._best_of(one) for one in newest}
        for old in self.all():
            if old not in kept:
                _remove(old)
        return path

    def to_average(self) -> list[Path]:
        """Return the newest ``average_last`` checkpoints of multiples of ``save_every``, oldest first."""
        if self.save_every is None or self.average_last < 1:
            return []
        return [path for path in self.all() if _step(path) % self.save_every == 0][-self.average_last :]

    def _best_of(self, path: Path) -> Path:
        """Return the best checkpoint when this one was written; itself if there was none, or if it is damaged."""
        try:
            best = read_state(path)["best"]
        except CheckpointError:
            return path
        return path if best is None else self.path(best)

    def newest_good(self, log: Callable[[str], None]) -> Path | None:
        """Return the newest checkpoint that is valid, None if there is none at all.

        Damaged ones are reported and renamed to ``….damaged``; if all are damaged, the newest one's error is raised.
        """
        errors: list[tuple[Path, CheckpointError]] = []
        good = None
        for path in reversed(self.all()):
            try:
                verify(path)
            except CheckpointError as error:
                errors.append((path, error))
            else:
                good = path
                break
        if errors and good is None:
            raise errors[0][1]
        for path, why in errors:
            aside = path.with_name(path.name + ".damaged")
            if aside.exists():
                _remove(aside)
            path.rename(aside)
            log(f"warning: {why} Resuming from {good}; the damaged one is now {aside.name}.")
        return good

    def best(self) -> Path:
        """Return the checkpoint with the best validation; the newest one if there is none, or if it was removed."""
        checkpoints = self.all()
        if not checkpoints:
            raise CheckpointError(f"{self.folder}: no checkpoint here. Train the run first.")
        best = read_state(checkpoints[-1])["best"]
        return checkpoints[-1] if best is None or not self.path(best).exists() else self.path(best)

    def save_average(self, paths: Sequence[Path], state: dict[str, Any]) -> Path:
        """Write the average of these checkpoints' weights as ``averaged``, replacing an older one."""
        path = self.folder / AVERAGED
        ties = read_state(paths[-1])["ties"]
        self._write(path, Saved(average(paths), ties, {}, {}, state | {"average_of": [p.name for p in paths]}))
        return path

    def tidy(self) -> None:
        """Remove folders that a killed process left half-written or half-removed; what it had put aside comes back."""
        for left in self.folder.glob(f"{_ASIDE}*"):
            path = left.with_name(left.name.removeprefix(_ASIDE))
            if not path.exists():
                left.rename(path)
        for left in self.folder.glob(".tmp-*"):
            shutil.rmtree(left)

    def _write(self, path: Path, saved: Saved, writers: Writers = _ALONE, outdated: Path | None = None) -> None:
        """Write a folder, instead of one of its name and of what is ``outdated`` by it."""
        temporary = self.folder / f".tmp-{path.name}"
        try:
            _together(writers, path, lambda: _make_empty(temporary), first_alone=True)
            written = _together(writers, path, lambda: _write_tensors(temporary, saved, writers))
            files = {name: facts for part in written for name, facts in part.items()}
            _together(writers, path, lambda: _publish(temporary, path, saved, files, outdated), first_alone=True)
        finally:
            if writers.rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _together(writers: Writers, path: Path, action: Callable[[], _T], *, first_alone: bool = False) -> list[_T]:
    """Return what the action gives each writer; raise for all of them if it fails for one."""
    done, error = None, ""
    try:
        done = None if first_alone and writers.rank > 0 else action()
    except CheckpointError as reason:
        error = str(reason)
    except (OSError, SafetensorError) as reason:
        error = (
            f"{path}: the checkpoint cannot be written ({reason}). Free space on the disk, then resume; older "
            "checkpoints are as they were."
        )
    answers = writers.gather((done, error))
    if errors := [error for _, error in answers if error]:
        raise CheckpointError(errors[0])
    return [done for done, _ in answers]


def _make_empty(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)  # without those above it: a run that was moved is not begun anew
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()


def _write_tensors(folder: Path, saved: Saved, writers: Writers) -> dict[str, dict[str, Any]]:
    """Write this process's tensors; return the size and the digest of each file."""
    # Hugging Face's readers of safetensors need "format". With a second key equal runs would write different bytes:
    # the library writes its metadata in the order of a hash table.
    contents = {writers.file(MODEL): (saved.model, {"format": "pt"}), writers.file(OPTIMIZER): (saved.optimizer, None)}
    if writers.rank == 0:
        contents[RANDOM] = (saved.random, None)
    mode = folder.stat().st_mode & 0o666  # the library makes its files readable by their owner alone
    files = {}
    for name, (tensors, metadata) in contents.items():
        save_file(dict(tensors), folder / name, metadata=metadata)
        (folder / name).chmod(mode)
        _flush(folder / name)
        files[name] = {"size": (folder / name).stat().st_size, "sha256": _digest(folder / name)}
    return files


def _publish(folder: Path, path: Path, saved: Saved, files: Mapping[str, Any], outdated: Path | None) -> None:
    """Write the state, and rename the folder, which now is complete."""
    content = _as_json({"format": _FORMAT, "ties": saved.ties, **saved.state, "files": files}, path)
    content["sha256"] = _digest_of(content)
    (folder / STATE).write_text(json.dumps(content, indent=1), encoding="utf-8")
    _flush(folder / STATE)
    _flush(folder)
    if outdated is not None and outdated.exists():
        _remove(outdated)
    aside = path.with_name(_ASIDE + path.name)
    if path.exists():
        path.rename(aside)
    folder.rename(path)
    shutil.rmtree(aside, ignore_errors=True)
    _flush(path.parent)


def verify(path: Path) -> dict[str, Any]:
    """Return the state of a checkpoint after checking all digests; a CheckpointError names a damaged file."""
    state = read_state(path)
    for name, facts in state["files"].items():
        file = path / name
        if not file.exists():
            raise _damaged(file, "is missing")
        size = file.stat().st_size
        if size != facts["size"]:
            raise _damaged(file, f"has {size} bytes, but {facts['size']} were written")
        if _digest(file) != facts["sha256"]:
            raise _damaged(file, "was changed after it was written (its SHA-256 is another)")
    return state


def read_state(path: Path) -> dict[str, Any]:
    """Return the state of a checkpoint, checked against its own digest."""
    file = path / STATE
    try:
        content = json.loads(read_text(file))
    except FileNotFoundError:
        raise _damaged(file, "is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, f"cannot be read ({type(error).__name__})") from error
    if not isinstance(content, dict) or content.pop("sha256", None) != _digest_of(content):
        raise _damaged(file, "was changed after it was written (its SHA-256 is another)")
    if content.get("format") != _FORMAT:
        raise CheckpointError(
            f"{file}: has format {content.get('format')}, this foci reads {_FORMAT}. Use the version that wrote it."
        )
    if wrong := [name for name, valid in _STATE.items() if not valid(content.get(name))]:
        raise _damaged(file, f"has no valid {' and '.join(wrong)}")
    return content


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_files(value: object) -> bool:
    """Return whether these are names of files in the folder, each with its size and its digest."""
    return isinstance(value, dict) and all(
        isinstance(facts, dict)
        and Path(name).name == name
        and _is_step(facts.get("size"))
        and isinstance(facts.get("sha256"), str)
        for name, facts in value.items()
    )


_STATE: Mapping[str, Callable[[object], bool]] = {
    "best": lambda value: value is None or _is_step(value),
    "best_metric": lambda value: value is None or isinstance(value, str),
    "files": _are_files,
    "ties": lambda value: isinstance(value, dict) and all(isinstance(name, str) for name in value.values()),
    "data": lambda value: value is None or isinstance(value, dict),  # None: an average of several has no such value
    "metrics": lambda value: (
        value is None or (isinstance(value, dict) and all(isinstance(number, int | float) for number in value.values()))
    ),
    "average_of": lambda value: (
        value is None
        or (isinstance(value, list) and bool(value) and all(isinstance(n, str) and _NAME.fullmatch(n) for n in value))
    ),
}
"""Whether the values of a state that is read are what was written: its digest shows damage, not who wrote it."""


def load(path: Path) -> Saved:
    """Read a whole checkpoint, without checking digests; see `verify`."""
    state = read_state(path)
    return Saved(_weights(path), state["ties"], _Tensors(path, OPTIMIZER), _Tensors(path, RANDOM), state)


def load_weights(module: nn.Module, path: Path) -> dict[str, Any]:
    """Check a checkpoint, load its weights into the module, and return its state (step, metrics, …)."""
    state = verify(path)
    put_weights(module, _weights(path), path / MODEL)
    return state


def check_fits(build: Callable[[], nn.Module], path: Path) -> None:
    """Raise unless the weights of a checkpoint, of which only names and shapes are read, fit the module to be built.

    It is built without memory for its weights, and no further than there are weights for it.
    """
    with torch.device("meta"), building_within([path]):
        module = build()
    check_weights(module, _Tensors(path, MODEL).shapes, path / MODEL)


@contextmanager
def building_within(paths: Sequence[Path]) -> Iterator[None]:
    """Raise where a module that is built inside has far more weights than the newest readable of these checkpoints.

    A configuration from elsewhere may ask for any number of layers, and each takes time.
    """
    file, shapes = _newest_shapes(paths)
    left = 4 * len(shapes) + 100  # tied and normalized weights are registered several times
    thread = threading.get_ident()

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal left
        left -= threading.get_ident() == thread
        if left < 0:
            raise CheckpointError(
                f"{file}: has {len(shapes)} weights, but the model of config.json has more layers than that. Restore "
                "config.json."
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _newest_shapes(paths: Sequence[Path]) -> tuple[Path, dict[str, list[int]]]:
    *older, newest = paths
    try:
        return newest / MODEL, _Tensors(newest, MODEL).shapes
    except CheckpointError:
        if not older:
            raise
        return _newest_shapes(older)


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints, summed in float64; whole numbers are the last one's."""
    if not paths:
        raise ConfigError("average: no checkpoint given, expected at least one path.")
    files = [_weights(path) for path in paths]
    for path, file in zip(paths, files):
        if file.keys() != files[-1].keys():
            raise CheckpointError(f"{path / MODEL}: has other weights than {paths[-1] / MODEL}. Average one run only.")
    mean = {}
    for name in files[-1]:
        values = [file[name] for file in files]
        if not values[-1].is_floating_point():
            mean[name] = values[-1]
            continue
        total = torch.zeros(values[-1].shape, dtype=torch.float64)
        for value in values:
            total += value
        mean[name] = (total / len(values)).to(values[-1].dtype)
    return mean


class _Tensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name, whole; each is read from the file or files when it is asked for.

    Args:
        path: the checkpoint.
        name: of the file, where the checkpoint was not written in parts.
    """

    def __init__(self, path: Path, name: str) -> None:
        stem, suffix = name.split(".")
        parts = re.compile(rf"{stem}(-\d+-of-\d+)?\.{suffix}")
        self.shapes: dict[str, list[int]] = {}
        self._files: dict[str, list[Path]] = {}
        self._opened = {
            file: _opened(file)
            for file in sorted(path / one for one in read_state(path)["files"] if parts.fullmatch(one))
        }
        self._mapped = 0
        for file, opened in self._opened.items():
            for one in opened.keys():  # noqa: SIM118 (not a mapping)
                shape = opened.get_slice(one).get_shape()
                if before := self._files.setdefault(one, []):
                    whole = self.shapes[one]
                    if not whole or shape[1:] != whole[1:]:
                        raise _damaged(file, f"has a part of {one!r} that does not fit that of {before[-1].name}")
                    shape[0] += whole[0]
                self.shapes[one] = shape
                before.append(file)

    def __getitem__(self, name: str) -> Tensor:
        with at_once():
            parts = [self._opened[file].get_tensor(name) for file in self._files[name]]
            value = torch.cat(parts) if len(parts) > 1 else parts[0].clone()
        del parts
        self._mapped += value.nbytes
        if self._mapped > _MAPPED:  # what was read of an open file counts as memory of the process
            self._opened = {file: _opened(file) for file in self._opened}
            self._mapped = 0
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _weights(path: Path) -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint, of which foci saves none that is not finite."""
    found = _Tensors(path, MODEL)
    broken = [name for name, value in found.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise _damaged(
            path / MODEL, f"has {len(broken)} weights of {len(found)} that are not finite, first {broken[0]!r}"
        )
    return found


def _opened(file: Path) -> Any:
    try:
        open_regular(file).close()  # safe_open waits for the other end of a pipe
        return safe_open(file, framework="pt")
    except FileNotFoundError:
        raise _damaged(file, "is missing") from None
    except (OSError, SafetensorError) as error:
        raise _damaged(file, f"cannot be read ({error})") from error


def _damaged(file: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{file}: {what}. Restore the file, or remove the folder {file.parent.name} to use the checkpoint before it."
    )


def _digest(file: Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _as_json(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the content as it will be read back, of which the digest is computed."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain
    except TypeError as error:
        raise CheckpointError(
            f"{path}: the state cannot be written as JSON ({error}). state_dict() of the batches must consist of "
            "numbers, text, lists and dicts with text as keys."
        ) from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a folder so that no part of it is ever taken for a checkpoint."""
    doomed = path.with_name(f".tmp-removed-{path.name}-{os.getpid()}")
    path.rename(doomed)
    shutil.rmtree(doomed)
