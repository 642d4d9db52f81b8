"""A trained run, loaded to predict and evaluate."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import nn

from foci.data.lines import text_encoding
from foci.errors import CheckpointError, ConfigError, DataError, FociError, TrainingError, UnknownNameError, near_names
from foci.files import read_text
from foci.printable import printable
from foci.settings import build
from foci.tasks.frame import baselines, held_out
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.task import (
    Evaluation,
    Log,
    Prediction,
    Progress,
    Record,
    Task,
    as_records,
    find,
    is_empty,
    silent,
)
from foci.training.checkpoint import AVERAGED, Checkpoints, check_fits, load_weights, read_state
from foci.training.progress import metrics_text
from foci.training.run_folder import read_config

Own = TypeVar("Own", bound=nn.Module)

EMPTY = "the input is empty, so nothing was predicted"


class Predictor:
    """A trained run, returned by `foci.load`.

    Args:
        path: the folder of the run.
        task: the task with the run's configuration.
        assets: derived from the training data.
        model: the trained model; it is put into evaluation mode.
        checkpoint: which of its weights these are, for messages.
        metrics: those of their validation.

    Call it with one input for one prediction, or with several for a list; options of the task are keywords:
    ``run("one text")``, ``run(["a", "b"], beam_size=5)``. `predict` is the same for lists.
    """

    def __init__(
        self,
        path: Path,
        task: Task,
        assets: Assets,
        model: nn.Module,
        checkpoint: str,
        metrics: Mapping[str, float],
    ) -> None:
        self.path, self.task, self.assets, self.checkpoint = path, task, assets, checkpoint
        self.model, self.metrics = model.eval(), metrics

    def __repr__(self) -> str:
        weights = [*self.model.parameters()]
        kinds = ", ".join(sorted({f"{one.dtype} on {one.device}".removeprefix("torch.") for one in weights}))
        validated = {name: value for name, value in self.metrics.items() if "/" not in name}
        facts = {
            "task": f"{self.task.name}, from {', '.join(one.name for one in self.task.inputs)}",
            "model": f"{type(self.model).__name__} with {sum(one.numel() for one in weights):,} parameters, {kinds}",
            "checkpoint": self.checkpoint,
            **self.task.describe(self.assets),
            "validation": metrics_text(validated) or "none",
        }
        return "\n".join(
            [f"Predictor of {printable(self.path)}", *(f"  {k}: {printable(v)}" for k, v in facts.items())]
        )

    @overload
    def __call__(self, inputs: str | int | Mapping[str, Any], *, trace: bool = False, **options: Any) -> Prediction: ...
    @overload
    def __call__(self, inputs: Iterable[Any], *, trace: bool = False, **options: Any) -> list[Prediction]: ...
    def __call__(
        self, inputs: str | int | Mapping[str, Any] | Iterable[Any], *, trace: bool = False, **options: Any
    ) -> Prediction | list[Prediction]:
        """Predict one input, or each of several.

        Args:
            inputs: a mapping with the task's input fields, or where there is one field its value; or several of these.
            trace: keep the attention weights.
            options: those of the task, as in `predict`.
        """
        if isinstance(inputs, str | Mapping) or not isinstance(inputs, Iterable):
            return self.predict([inputs], options=options, trace=trace)[0]
        return self.predict(inputs, options=options, trace=trace)

    @property
    def config(self) -> Any:
        """The configuration of the run."""
        return self.task.config

    @torch.no_grad()
    def predict(
        self,
        inputs: Iterable[Any],
        *,
        options: Any = None,
        trace: bool = False,
        progress: Progress | None = None,
    ) -> list[Prediction]:
        """Predict; the predictions have the order of the inputs, and do not depend on each other.

        Args:
            inputs: a list of mappings with the task's input fields; where there is one field, of its values alone.
            options: the task's ``Options``, or a mapping with some of their names; an unknown name is an error that
                suggests similar ones.
            trace: keep the attention weights.
            progress: called with the number of inputs that were just done.
        """
        fields = self.task.inputs
        single = isinstance(inputs, str | bytes | Mapping)  # which is an error
        records = as_records("predict", inputs if single else map(self.task.as_input, inputs), fields)
        chosen = as_options(self.task.Options, options, "predict")
        advance = progress or (lambda done: None)
        filled = [i for i, record in enumerate(records) if not is_empty(record, fields)]
        normal = [self.task.normal(records[i]) for i in filled]
        answers = self.task.predict(self.model, self.assets, normal, chosen, trace, advance)
        by_number = {
            i: replace(answer, inputs=records[i]) if answer.inputs == given else answer
            for i, given, answer in zip(filled, normal, answers, strict=True)
        }
        advance(len(records) - len(filled))
        nothing = self.task.empty_details(self.assets)
        found = [
            by_number.get(i) or Prediction(record, "", None, {"notes": [EMPTY]}) for i, record in enumerate(records)
        ]
        return [replace(one, details={**nothing, **one.details}) if one.score is None else one for one in found]

    @property
    def streams(self) -> bool:
        """Whether the task gives some answers piece by piece."""
        return type(self.task).stream is not Task.stream

    def stream(self, value: Any, *, options: Any = None) -> Generator[str, None, Prediction] | None:
        """Predict one input, piece by piece.

        Args:
            value: a mapping with the task's input fields; where there is one field, its value.
            options: as in `predict`.

        Returns:
            A generator of the pieces of the answer as they are made, whose return value is the prediction; None where
            the answer comes at once.
        """
        (record,) = as_records("stream", [self.task.as_input(value)], self.task.inputs)
        if is_empty(record, self.task.inputs):
            return None
        chosen = as_options(self.task.Options, options, "stream")
        return self.task.stream(self.model, self.assets, self.task.normal(record), chosen)

    @torch.no_grad()
    def evaluate(
        self,
        records: Iterable[Any] | None = None,
        *,
        options: Any = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Compute the metrics of the run on some data.

        Args:
            records: a list of mappings with the task's input and target fields; without it, what training held out.
            options: the task's ``EvaluateOptions``, or a mapping with some of their names.
            progress: called with the number of records that were just done.
        """
        task = self.task
        fields = (*task.inputs, *task.targets)
        records = self.held_out() if records is None else records
        examples = [task.normal(record) for record in as_records("evaluate", records, fields)]
        if not examples:
            raise DataError("evaluate: there are no examples, expected at least one.")
        for number, record in enumerate(examples):
            if is_empty(record, fields):
                raise DataError(f"evaluate: entry {number} has an empty field, expected text in each of them.")
        chosen = as_options(task.EvaluateOptions, options, "evaluate")
        seen = held_out.notes(self.path, task, examples, records)
        evaluation = task.evaluate(self.model, self.assets, examples, chosen, progress or (lambda done: None))
        return replace(evaluation, notes={**evaluation.notes, "checkpoint": self.checkpoint, **seen})

    def align(self, pairs: Iterable[Any], *, options: Any = None, progress: Progress | None = None) -> list[Any]:
        """Align the words of sentence pairs by attention, the target given; for runs of translation.

        Args:
            pairs: a list of ``(source, target)``, or of mappings with these fields.
            options: `foci.tasks.translate.config.AlignOptions`, or a mapping with some of their names.
            progress: called with the number of pairs that were just done.

        Returns:
            A `foci.tasks.translate.aligning.WordAlignment` for each pair: links and weights from word to word. For both
            directions see `foci.tasks.translate.aligning.align_both`.
        """
        kind, fields = self.task.AlignOptions, (*self.task.inputs, *self.task.targets)
        if kind is None:
            raise ConfigError(f"align: the run is one of {self.task.name}, expected one of translate.")
        names = [field.name for field in fields]
        single = isinstance(pairs, str | Mapping)  # which is an error
        given = pairs if single else (dict(zip(names, one)) if type(one) in (tuple, list) else one for one in pairs)
        records = [self.task.normal(record) for record in as_records("align", given, fields)]
        chosen = as_options(kind, options, "align")
        return self.task.align(self.model, self.assets, records, chosen, progress or (lambda done: None))

    def held_out(self, log: Log = silent) -> held_out.HeldOut:
        """Return the examples that training held out: those to evaluate on, or else those it validated with.

        They are read again from the data. Of what is returned, ``part`` says which of them they are, and ``change`` how
        they differ from those of the run; the notes of an evaluation on them say both.
        """
        with text_encoding(self.task.encoding):
            splits = self.task.read(log)
        fields = (*self.task.inputs, *self.task.targets)
        examples = held_out.HeldOut(as_records("held_out", splits.test or splits.valid, fields))
        examples.part = "test" if splits.test else "valid"
        examples.change = held_out.change(self.path, self.task, splits)
        return examples

    def read(self, *paths: str) -> Sequence[Record]:
        """Return the examples of files that have the form of the training data."""
        with text_encoding(self.task.encoding):
            records = self.task.read_records(paths)
        return as_records("read", records, (*self.task.inputs, *self.task.targets))


@overload
def load(
    path: str | Path,
    *,
    checkpoint: str = "auto",
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> Predictor: ...
@overload
def load(
    path: str | Path,
    *,
    model: Callable[..., Own],
    checkpoint: str = "auto",
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> Own: ...
def load(
    path: str | Path,
    *,
    model: Callable[..., Own] | None = None,
    checkpoint: str = "auto",
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> Predictor | Own:
    """Load a trained run.

    Args:
        path: the folder that training wrote.
        model: of a run of `foci.fit`, the class of the model, or a function that makes it; it is called with the
            arguments that are kept in the run.
        checkpoint: "best", "last", "averaged" or the name of one; "auto" is the averaged one if there is one, else
            the best.
        device: where it predicts.
        dtype: the type of its weights. Default: float32, in which they were trained.

    Returns:
        What predicts with the run; with ``model`` the model itself, in evaluation mode.
    """
    path = Path(path)
    place = _usable(device, dtype)
    if model is not None:
        return _own_model(path, model, find_checkpoint(path, checkpoint), place, dtype)
    task = task_of(path)
    assets = task.Assets.from_files(asset_reader(path))
    chosen = find_checkpoint(path, checkpoint)
    with in_memory(lambda: f"{path}: the model", "Use a machine with more.", CheckpointError):
        check_fits(lambda: task.model(assets), chosen)  # sizes that do not match the weights must not allocate memory
        trained = task.model(assets)
        metrics = load_weights(trained, chosen).get("metrics") or {}
        trained.to(device=place, dtype=dtype)
    used = {name: value for name, value in metrics.items() if name.startswith(("calibration/", "mixture/"))}
    if broken := [name for name, value in used.items() if not math.isfinite(value)]:
        raise CheckpointError(f"{chosen}: {broken[0]} is {used[broken[0]]}, expected a number. Use another checkpoint.")
    task.calibration, task.mixture = (
        {name.removeprefix(group): value for name, value in used.items() if name.startswith(group)}
        for group in ("calibration/", "mixture/")
    )
    task.baselines = baselines.read(path, task.baseline_types)
    used_weights = describe_checkpoint(path, chosen, task.config.training.moving_average)
    return Predictor(path, task, assets, trained, used_weights, metrics)


def _own_model(
    path: Path, make: Callable[..., Own], chosen: Path, place: torch.device, dtype: torch.dtype | None
) -> Own:
    """Return the model of a run of `foci.fit` with its weights."""
    tables = read_config(path)
    arguments = tables.get("arguments")
    if "task" in tables or not isinstance(arguments, dict):
        raise ConfigError(f"load: model is given, but {path} is no run of foci.fit. Leave it out.")
    try:
        model = make(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"load: the model cannot be made with the arguments of the run, {arguments} ({error}). Pass them to "
            "foci.fit(…, arguments={…}), or a function that makes the model: foci.load(path, model=lambda: …)."
        ) from error
    load_weights(model, chosen)
    model.to(device=place, dtype=dtype)
    return model.eval()


def _usable(device: str | torch.device, dtype: torch.dtype | None) -> torch.device:
    """Return the device, or raise before anything is read if it or the type of the weights cannot be used."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ConfigError(f"load: dtype is {dtype!r}, expected a floating torch.dtype, such as torch.bfloat16.")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"load: device is {device!r}, expected one of this machine: {reason}.") from error
    return place


@contextmanager
def in_memory(what: Callable[[], str], remedy: str, kind: type[FociError] = TrainingError) -> Iterator[None]:
    """Raise an error of this kind if the memory does not suffice for ``what`` happens inside; ``remedy`` helps."""
    try:
        yield
    except FociError:  # some of them are RuntimeErrors
        raise
    except (MemoryError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        sizes = ("alloc", "Storage size", "Overflow")  # of a size beyond 64 bits
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(word in reason for word in sizes):
            raise
        raise kind(f"{what()} does not fit in memory ({reason}). {remedy}") from error


def describe_checkpoint(run: Path, chosen: Path, moving_average: float) -> str:
    """Return which weights of a run these are; ``moving_average`` is that of its training."""
    if chosen.name == AVERAGED:
        steps = [int(name.removeprefix("step-")) for name in read_state(chosen)["average_of"]]
        return f"averaged: the mean of {len(steps)} checkpoints, of steps {steps[0]:,} to {steps[-1]:,}"
    last = Checkpoints(run / "checkpoints").all()[-1]
    step = f"step {int(chosen.name.removeprefix('step-')):,}"
    if moving_average > 0:
        step += f", moving average of the weights ({moving_average:g})"
    state = read_state(last)
    if state["best"] is not None and Checkpoints(run / "checkpoints").path(state["best"]) == chosen:
        return f"{step}, the best by validation ({state.get('best_metric')})"
    return f"{step}, the last" if chosen == last else step


def task_of(path: Path) -> Task:
    """Return the task of a run, with the run's configuration."""
    tables = read_config(path)
    name = tables.pop("task", None)
    if name is None and "arguments" in tables:
        raise CheckpointError(
            f"{path}: is a run of foci.fit, whose model is a {tables.get('model')}. Load it with its class: "
            "foci.load(path, model=…)."
        )
    if not isinstance(name, str):
        raise CheckpointError(f"{path / 'config.json'}: names no task. Name the folder that training wrote.")
    try:
        kind = find(name)
    except UnknownNameError as error:
        raise CheckpointError(
            f"{path}: is a run of the task {name!r}, which is not known. Install its package, or name its class "
            f"first: foci.tasks.register({name!r}, 'package.module:Class')."
        ) from error
    return kind(build(kind.Config, tables, str(path / "config.json")))


def asset_reader(path: Path) -> Any:
    """Return a function that returns the text of a file of the run by its name."""

    def read(name: str) -> str:
        try:
            return read_text(path / name)
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path / name}: cannot be read ({error}). Restore the file.") from error

    return read


def as_options(kind: type[Any], options: Any, owner: str) -> Any:
    """Return the options of a call: defaults, an instance, or a mapping with some of the names."""
    if options is None:
        return kind()
    if isinstance(options, kind):
        return options
    if not isinstance(options, Mapping):
        raise ConfigError(f"{owner}: options is a {type(options).__name__}, expected {kind.__name__} or a mapping.")
    return build(kind, options, owner)


def find_checkpoint(run: Path, name: str) -> Path:
    """Return the folder of a checkpoint: "best", "last", "averaged", the name of one, or "auto"."""
    store = Checkpoints(run / "checkpoints")
    averaged = store.folder / AVERAGED
    if name == "best" or (name == "auto" and not averaged.exists()):
        return store.best()
    if name == "last" and store.all():
        return store.all()[-1]
    known = {path.name: path for path in (*store.all(), averaged) if path.exists()}
    chosen = AVERAGED if name == "auto" else name
    if chosen not in known:
        raise CheckpointError(
            f"{run}: has no checkpoint {name!r}. {near_names(name, ['auto', 'best', 'last', *known])}"
        )
    return known[chosen]
