"""The frame of an application: the base class of all tasks, and the types of its inputs and results.

A task is one class, instantiated with its configuration. Its file has this order: settings, data, model, loss,
metrics, predictions. Everything else (commands, training, loading, the demo) is written once for all tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from torch import nn

from foci.data.lines import Fault
from foci.data.splits import file_key, text_key
from foci.encodings import AUTO
from foci.errors import ConfigError
from foci.scripts import NormalForm, normalized
from foci.tasks import row_of
from foci.tasks.frame.probing.traces import TracedPass
from foci.training.objective import Batches, Loss
from foci.viz.trace import Trace

Log = Callable[[str], None]
"""Called with each message for the user."""
Progress = Callable[[int], None]
"""Called with the number of inputs that were just done."""
Record = Mapping[str, Any]
"""One example by the names of its fields."""
NamedAxes = Mapping[str, tuple[Sequence[str] | None, ...]]
"""Of a weight by its name: what the rows of each of its axes stand for (words, labels), None where they have no names.
"""
FILES = ("image", "audio")
"""The kinds of fields that name a file."""
Kind = Literal["sentence", "document", "label", "labels", "excerpt", "choices", "image", "audio", "number", "list"]


class Field(NamedTuple):
    """One field of an example: an argument of `foci predict`, a key of a JSON object, a column of a table.

    ``kind`` is its form: a sentence is one line of a file, a document a whole file, an image or audio a path,
    labels are a text or a list of texts, an excerpt occurs in another field, choices have ``|`` between them (or are a
    list); these and a label are text. A field that is not ``required`` may be empty.
    """

    name: str
    kind: Kind
    required: bool = True


class Splits(NamedTuple):
    """Examples to train on, to choose the best checkpoint by, and to evaluate on; ``test`` may be empty."""

    train: Iterable[Any]
    """A sequence, or a reader that can be iterated several times."""
    valid: Sequence[Any]
    test: Sequence[Any]


class Suited(NamedTuple):
    """A setting that was chosen by the training data, and the reason in words."""

    value: Any
    reason: str


class Shard(NamedTuple):
    """Which rows of each batch a process gets."""

    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True)
class Prediction:
    """The prediction of a run for one input."""

    inputs: Mapping[str, Any]
    """The input, by the names of its fields."""
    output: str
    """The answer in words."""
    score: float | None
    """A log-probability or a probability, depending on the task. None for an empty input."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Everything else, as plain JSON. ``notes`` are messages for the user, such as that the input was cut."""
    trace: Trace | None = None
    """The attention weights, if requested."""
    alternatives: tuple[Prediction, ...] = ()
    """Further answers, best first."""
    failed: bool = False
    """Whether the input cannot be used; a note says why."""

    @classmethod
    def failure(cls, inputs: Mapping[str, Any], reason: str) -> Prediction:
        """Return the prediction for an input that cannot be used."""
        return cls(inputs, "", None, {"notes": [reason]}, failed=True)

    def to_json(self) -> dict[str, Any]:
        """Return inputs, output, score and details as one JSON object."""
        answer = {**self.inputs, "output": self.output, "score": self.score, **self.details}
        answer |= {"failed": True} if self.failed else {}
        others = [{"output": one.output, "score": one.score, **one.details} for one in self.alternatives]
        return answer | ({"alternatives": others} if others else {})


class Document(Protocol):
    """Predictions as one document, which is written while they are made; made with the assets of a run."""

    def __init__(self, assets: Any) -> None: ...

    def add(self, prediction: Prediction) -> Iterable[str]:
        """Return the lines of a prediction."""

    def end(self) -> Iterable[str]:
        """Return the lines after the last prediction."""


class Table(NamedTuple):
    """Metrics with rows: the confusion of classes, one line for each length."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the columns and the rows."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


@dataclass(frozen=True)
class Evaluation:
    """How well a run does on some data.

    ``metrics`` are numbers by name; counts are whole numbers. ``notes`` say how they were measured (sacrebleu's
    signature, the convention of an F1, which data). ``tables`` have more rows: confusion, metrics of each class.
    """

    metrics: dict[str, float | int]
    notes: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as one JSON object."""
        return {**self.metrics, **self.notes, **{name: table.to_json() for name, table in self.tables.items()}}


class Task(ABC):
    """One application, instantiated with its configuration.

    A new one needs a subclass and a row of `foci.tasks.TASKS`; one of another package is registered there.
    """

    name: ClassVar[str]
    """As in `foci.tasks.TASKS`."""
    Config: ClassVar[type[Any]]
    """A frozen dataclass with the tables data, model, training and others; see `foci.tasks.frame.config.TaskConfig`."""
    Options: ClassVar[type[Any]]
    """A frozen dataclass: the options of `predict`, each with a default."""
    EvaluateOptions: ClassVar[type[Any]]
    """The same for `evaluate`."""
    AlignOptions: ClassVar[type[Any] | None] = None
    """The same for `align`; None of a task without two texts whose words could be aligned."""
    Assets: ClassVar[type[Any]]
    """What a run keeps of its training data: a subclass of `foci.tasks.frame.assets.Assets`."""
    inputs: ClassVar[tuple[Field, ...]]
    """The input fields of a prediction."""
    further: ClassVar[tuple[str, ...]] = ()
    """Names of what an input may have beside its fields."""
    targets: ClassVar[tuple[Field, ...]]
    """The further fields of an example, for training and evaluation."""
    score: ClassVar[Literal["probability", "log-probability"]]
    """What the score of a prediction is."""
    unit: ClassVar[str]
    """What the loss counts: tokens, documents, …"""
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]]
    """The metrics of `validate`, and which values are better; one of them decides which checkpoint is the best."""
    baseline_types: ClassVar[Mapping[str, Any]] = {}
    """The types of what `count_baselines` gives, by name."""
    counted: ClassVar[str] = "examples"
    """What `contents` has one key of each, in the plural."""
    documents: ClassVar[Mapping[str, type[Document]]] = {}
    """What several predictions can be written as, by the names that `foci predict --form` has for them."""
    lines: ClassVar[bool] = False
    """Whether outputs are texts of several lines, which are printed as such."""
    as_given: ClassVar[tuple[str, ...]] = ()
    """Fields whose text is not normalized, since offsets refer to it; the task normalizes their words."""
    resumable: ClassVar[tuple[str, ...]] = ()
    """Settings of this task that may change when a run is resumed, beside `foci.tasks.frame.train.RESUMABLE`."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.calibration: Mapping[str, float] = {}
        """How scores become probabilities: what `validate` gives as "calibration/…", without that prefix. It is fitted
        to the validation examples for each checkpoint, and set by `foci.load`."""
        self.baselines: Mapping[str, Any] = {}
        """What `count_baselines` gave in training, set by `foci.load`; nothing in runs of earlier versions."""
        self.mixture: Mapping[str, float] = {}
        """The shares of further classifiers in the scores: "mixture/…" of `validate`, set by `foci.load`."""

    def temperature(self, name: str = "temperature") -> float:
        """Return what scores are divided by before they become probabilities; 1 where nothing was fitted."""
        return self.calibration.get(name, 1.0)

    def calibration_note(self) -> dict[str, str]:
        """Return the note of an evaluation on how probabilities were calibrated."""
        if self.calibration:
            how = "probabilities are calibrated on the validation examples; …_uncalibrated: as the model gives them"
        else:
            how = "none: the checkpoint was not validated, or is of an earlier version"
        return {"calibrated": how}

    @property
    def encoding(self) -> str:
        """The encoding of the files of the data; "auto" for a task without files."""
        return getattr(self.config.data, "encoding", AUTO)

    def normal(self, record: Record) -> dict[str, Any]:
        """Return a record with its texts in the normal form of the run, except paths and what offsets refer to."""
        form: NormalForm = getattr(self.config.data, "normalize", "none")
        paths = {one.name for one in (*self.inputs, *self.targets) if one.kind in FILES}
        kept = paths | {*self.as_given}
        return {name: value if name in kept else _normal(value, form) for name, value in record.items()}

    @abstractmethod
    def read(self, log: Log) -> Splits:
        """Read and check all data. Every mistake in it is a DataError that names file and line."""

    @abstractmethod
    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read examples from other files, in the form of the training data."""

    def contents(self, example: Any) -> Sequence[str]:
        """Return the key of what an example asks, by which a run knows it again; of a text one for each passage."""
        record = example if isinstance(example, Mapping) else example._asdict()
        asked = ((one.kind, record[one.name]) for one in self.inputs if one.required)
        return ["\n".join(file_key(str(value)) if kind in FILES else text_key(str(value)) for kind, value in asked)]

    def suited(self, splits: Splits) -> Mapping[str, Suited]:
        """Return settings that suit the training data and the limits of the training, by their dotted paths.

        They are among ``Config.suited``. Those that were given stay as they are; the others are logged with their
        reasons and stored in the run, so that a resumed run has the same.
        """
        return {}

    @abstractmethod
    def assets(self, splits: Splits, log: Log) -> Any:
        """Make the assets from the training data: an instance of ``Assets``."""

    def count_baselines(self, splits: Splits) -> Mapping[str, Any]:
        """Return what evaluations compare with, counted in the training data, as plain JSON."""
        return {}

    @abstractmethod
    def model(self, assets: Any) -> nn.Module:
        """Build the model with fresh weights."""

    def initialize(self, model: nn.Module, assets: Any, log: Log) -> None:  # noqa: B027 (most tasks need none)
        """Initialize weights of a new run, for example with the word vectors of a file."""

    def describe(self, assets: Any) -> dict[str, str]:
        """Return what a run is about in words, by name: its languages, labels and vocabularies."""
        described: dict[str, str] = assets.describe()
        return described

    def named_axes(self, assets: Any) -> NamedAxes | None:
        """Return which axes of which weights have names, by which `foci.tasks.frame.init_from` matches two runs.

        The names of an axis must differ from each other. Names of weights that the chosen model does not have are
        ignored. With None, weights are only taken from runs with the same assets.
        """
        return None

    @abstractmethod
    def batches(self, splits: Splits, assets: Any, shard: Shard, log: Log) -> Batches:
        """Return the training examples as batches, one process's share of them."""

    @abstractmethod
    def held_out(self, splits: Splits, assets: Any, log: Log) -> Any:
        """Return the validation examples in the form that `validate` takes."""

    def begin_step(self, step: int) -> None:  # noqa: B027 (most losses are the same at every step)
        """Called before the losses of a training step, which is counted from 1."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Return the loss of a batch, summed over what ``unit`` counts."""

    @abstractmethod
    def validate(self, model: nn.Module, held_out: Any) -> Mapping[str, float]:
        """Return the metrics of the validation examples, and as "calibration/…" what `calibration` then has."""

    def chance(self, held_out: Any) -> float | None:
        """Return the loss of equal probabilities for the validation examples, None where it has no meaning."""
        return None

    def empty_details(self, assets: Any) -> dict[str, Any]:
        """Return the details of an input without a prediction: the names that those of all others have, without values.

        Names that only some of the others have are left out.
        """
        return {}

    @abstractmethod
    def predict(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, trace: bool, progress: Progress
    ) -> list[Prediction]:
        """Return one prediction for each record, in order; no record is empty."""

    @abstractmethod
    def evaluate(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, progress: Progress
    ) -> Evaluation:
        """Return the metrics of records that have targets."""

    def align(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, progress: Progress
    ) -> list[Any]:
        """Return the alignment of the words of each record; of a task that has ``AlignOptions``."""
        raise NotImplementedError

    def traced_pass(self, model: nn.Module, assets: Any, record: Record) -> TracedPass:
        """Return one pass of the model over an input, for `foci.probe` and relevance."""
        raise self.not_erasable()

    def not_erasable(self) -> ConfigError:
        """Return the error of a task of whose inputs no part can be erased."""
        return ConfigError(
            f"{self.name} does not say which parts of its inputs can be erased (Task.traced_pass). Probe the model "
            "itself: foci.probe(run.model, …)."
        )

    def stream(
        self, model: nn.Module, assets: Any, record: Record, options: Any
    ) -> Generator[str, None, Prediction] | None:
        """Return the pieces of an answer as they are made, and at last the prediction; None where it comes at once."""
        return None

    def examples(self, records: Sequence[Record], count: int) -> list[Record]:
        """Return at most ``count`` inputs that show what a run does, from held-out records."""
        return [{field.name: record[field.name] for field in self.inputs} for record in records[:count]]

    def to_files(self, inputs: Sequence[Record], folder: Path) -> Sequence[Record]:
        """Return the inputs as a user would give them: those that name built-in sounds or images, as files."""
        return inputs

    def as_input(self, value: Any) -> Any:
        """Return an input that has another form as a record or a value of the task's field."""
        return value

    def read_inputs(self, path: Path) -> Iterator[tuple[Any, int] | Fault] | None:
        """Return inputs of a file that has a form of its own, with the line of each; None for all other files."""
        return None

    def names_inputs(self, options: Any) -> bool:
        """Return whether the outputs have a form of their own, so that the command line adds no names of files."""
        return False

    def expected(self, record: Record) -> str:
        """Return what the output of a prediction should be, given the targets of a record."""
        return ", ".join(str(record[one.name]) for one in self.targets)

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw an evaluation to a .png, .svg or .pdf file, if the task has a picture for it."""
        raise ConfigError(f"an evaluation of {self.name} has nothing to draw. `foci show` draws what was attended to.")


def find(name: str) -> type[Task]:
    """Return the class of a task by its name; the error for an unknown name suggests similar ones."""
    row = row_of(name)
    module, _, title = (row.home or f"foci.tasks.{name}.task:{row.title}").partition(":")
    try:
        task = getattr(import_module(module), title)
    except (ImportError, AttributeError) as error:
        if not row.home:
            raise
        raise ConfigError(f"the task {name!r} is to be {row.home}, which cannot be imported: {error}.") from error
    if not (isinstance(task, type) and issubclass(task, Task) and getattr(task, "name", None) == name):
        raise ConfigError(
            f"the task {name!r} is to be {row.home}, expected a class derived from foci.tasks.frame.task.Task with "
            f"name = {name!r}."
        )
    return task


def silent(text: str) -> None:
    """Log nothing."""


_TYPES: dict[Kind, tuple[Any, str]] = {
    "labels": (str | list | tuple, "a text or a list of texts"),
    "number": (int, "a whole number"),
    "list": (list | tuple, "a list"),
}
"""What the values of a field are; all others are text."""


def as_records(owner: str, values: Any, fields: Sequence[Field]) -> list[dict[str, Any]]:
    """Return the values passed by a caller as records with these fields.

    Args:
        owner: the name of the function that was called, for messages.
        values: a list of mappings or named tuples; where there is one field, of its values alone.
        fields: the fields that each record must have; further ones are kept.

    Raises:
        ConfigError: a single text where a list is expected, or a record without one of its fields.
    """
    if isinstance(values, str | bytes | Mapping):
        kind = "mapping" if isinstance(values, Mapping) else "text"
        raise ConfigError(f"{owner}: got a single {kind}, expected a list of them. Write {owner}([…]).")
    names = [one.name for one in fields]
    records = []
    for number, value in enumerate(values):
        if hasattr(value, "_asdict"):
            value = value._asdict()
        if not isinstance(value, Mapping):
            if len(names) != 1:
                raise ConfigError(
                    f"{owner}: entry {number} is a {type(value).__name__}, expected a mapping with {', '.join(names)}."
                )
            value = {names[0]: value}
        if any(name in value for name in names):  # what may be empty may be left out, but not everything
            value = {**value, **{one.name: "" for one in fields if not one.required and one.name not in value}}
        for one in fields:
            if one.name not in value:
                raise ConfigError(
                    f"{owner}: entry {number} has no {one.name!r}, expected {', '.join(names)}; it has "
                    f"{', '.join(map(str, value)) or 'nothing'}."
                )
            if one.kind == "choices" and isinstance(value[one.name], list | tuple):
                value = {**value, one.name: "|".join(map(str, value[one.name]))}
            kind, expected = _TYPES.get(one.kind, (str, "a text"))
            if not isinstance(value[one.name], kind):
                have = type(value[one.name]).__name__
                raise ConfigError(f"{owner}: {one.name!r} of entry {number} is a {have}, expected {expected}.")
        records.append(dict(value))
    return records


def _normal(value: Any, form: NormalForm) -> Any:
    if isinstance(value, str):
        return normalized(value, form)
    if isinstance(value, Mapping):
        return {name: _normal(one, form) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_normal(one, form) for one in value))
    return type(value)(_normal(one, form) for one in value) if isinstance(value, list | tuple) else value


def is_empty(record: Record, fields: Sequence[Field]) -> bool:
    """Return whether a required text field of a record has nothing in it."""
    texts = [record[one.name] for one in fields if one.required]
    return any(isinstance(text, str) and not text.strip() for text in texts)


def token_axes(part: str, tokens: Sequence[str]) -> dict[str, tuple[Sequence[str], ...]]:
    """Return the axes of an encoder's or decoder's weights that stand for tokens; see `Task.named_axes`.

    Args:
        part: "encoder" or "decoder".
        tokens: a different name for each id.
    """
    inputs = (f"{part}.embedding.weight", f"{part}.embedding.table.weight")
    outputs = ("weight", "bias", "parametrizations.weight.original0", "parametrizations.weight.original1")
    return dict.fromkeys((*inputs, *(f"{part}.output.{name}" for name in outputs)), (tokens,))
