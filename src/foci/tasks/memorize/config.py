"""Settings of the memory problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge
from pydantic import Field

from foci.errors import ConfigError, check_sizes
from foci.models.options.memory import MEMORY_MODEL_PRESETS, NTMOptions, RecurrentBaselineOptions
from foci.settings import Numbers, settings
from foci.tasks.frame.config import Promise, TaskConfig, preset_by_kind
from foci.training.options import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class ProblemOptions:
    """A problem: a range of lengths, of which one is drawn for each batch."""

    kind: str
    """The problem."""
    min_length: int
    """Length of the shortest sequences."""
    max_length: int
    """Length of the longest sequences."""

    def __post_init__(self) -> None:
        sizes = {name: size for name, size in asdict(self).items() if name != "kind"}
        check_sizes(type(self).__name__, **sizes)
        for name, most in sizes.items():
            least = sizes[name.replace("max_", "min_")]
            if most < least:
                raise ConfigError(
                    f"{type(self).__name__}: {name} is {most}, but {name.replace('max_', 'min_')} {least}."
                )
        self.check_length("min_length", self.min_length)

    @property
    def shortest(self) -> int:
        """The smallest possible length."""
        return 1

    def check_length(self, name: str, length: int) -> None:
        """Raise unless there are sequences of this length."""
        if length < self.shortest:
            raise ConfigError(f"{type(self).__name__}: {name} is {length}, expected at least {self.shortest}.")


@dataclass(frozen=True, kw_only=True)
class BitVectorOptions(ProblemOptions):
    """A problem of vectors of random bits."""

    width: int = 8
    """Bits of a vector."""


@dataclass(frozen=True, kw_only=True)
class CopyOptions(BitVectorOptions):
    """Copy vectors."""

    kind: Literal["copy"] = "copy"
    """Copy vectors."""
    min_length: int = 1
    max_length: int = 20


@dataclass(frozen=True, kw_only=True)
class RepeatCopyOptions(BitVectorOptions):
    """Copy vectors several times."""

    kind: Literal["repeat_copy"] = "repeat_copy"
    """Copy vectors several times."""
    min_length: int = 1
    max_length: int = 10
    min_repeats: int = 1
    """Fewest copies."""
    max_repeats: int = 10
    """Most copies."""


@dataclass(frozen=True, kw_only=True)
class RecallOptions(ProblemOptions):
    """Give the item that follows another one."""

    kind: Literal["recall"] = "recall"
    """Give the item that follows another one."""
    min_length: int = 2
    max_length: int = 6
    item_length: int = 3
    """Vectors of an item."""
    width: int = 6
    """Bits of a vector."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.item_length * self.width > 62:
            raise ConfigError(f"Recall: an item has {self.item_length * self.width} bits, expected at most 62.")
        self.check_length("max_length", self.max_length)

    @property
    def shortest(self) -> int:
        """One item as query, and one as answer."""
        return 2

    def check_length(self, name: str, length: int) -> None:
        """Raise unless there are sequences of this length."""
        super().check_length(name, length)
        items = 2 ** (self.item_length * self.width)
        if length > items:
            raise ConfigError(f"Recall: {name} is {length}, but only {items} different items have these bits.")


@dataclass(frozen=True, kw_only=True)
class NGramsOptions(ProblemOptions):
    """Predict the bits of a random n-gram model."""

    kind: Literal["ngrams"] = "ngrams"
    """Predict the bits of a random n-gram model."""
    min_length: int = 200
    max_length: int = 200
    context: int = 5
    """Bits that the next one depends on."""

    @property
    def shortest(self) -> int:
        """A whole context, and a bit to predict."""
        return self.context + 1


@dataclass(frozen=True, kw_only=True)
class SortOptions(BitVectorOptions):
    """Sort vectors by their priorities."""

    kind: Literal["sort"] = "sort"
    """Sort vectors by their priorities."""
    min_length: int = 20
    max_length: int = 20


@settings
class DataConfig:
    """Which problem, and how many of its sequences."""

    problem: Annotated[
        CopyOptions | RepeatCopyOptions | RecallOptions | NGramsOptions | SortOptions, Field(discriminator="kind")
    ] = CopyOptions()
    """The problem."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Sequences per step over all processes; all of one length."""
    curriculum: Annotated[int, Ge(0)] = 0
    """Steps over which the problem grows from its shortest sequences to its full ranges."""
    valid_sequences: Annotated[int, Ge(1)] = 100
    """Held-out sequences of each length that decide which checkpoint is the best one."""


@settings
class NTMModel(NTMOptions):
    """A Neural Turing Machine."""

    preset: Literal["base", "feed_forward", "many_heads", "feed_forward_many_heads", "tiny"] = "base"
    """The sizes of the model by name."""


@settings
class LSTMModel(RecurrentBaselineOptions):
    """An LSTM without a memory."""

    preset: Literal["base", "tiny"] = "base"
    """The sizes of the model by name."""


ModelConfig = Annotated[NTMModel | LSTMModel, Field(discriminator="kind")]


class Recommended(NamedTuple):
    """Settings that worked best for a problem, as far as they were tried (docs/memory.md)."""

    max_steps: int
    curriculum: int
    preset: str = "base"
    """Of a Neural Turing Machine, as are the learning rate and its warm-up."""
    learning_rate: float = 3e-3
    warmup: int = 0
    """Steps of warm-up in a training of ``max_steps``; a training of fewer or more steps has the same share."""


RECOMMENDED = {
    "copy": Recommended(12_000, curriculum=3000, preset="feed_forward", learning_rate=4e-3, warmup=5000),
    "repeat_copy": Recommended(16_000, curriculum=5000),
    "recall": Recommended(8000, curriculum=2000, preset="feed_forward_many_heads", learning_rate=4e-3, warmup=4000),
    "ngrams": Recommended(5500, curriculum=1500),
    "sort": Recommended(8000, curriculum=2500, preset="many_heads"),
}


@settings
class MemorizeConfig(TaskConfig):
    """All settings of a training."""

    flags = {"problem": "data.problem.kind", "model": "model.kind", "preset": "model.preset"}
    demo = {
        "data": {"problem": {"max_length": 8}, "curriculum": 1000, "valid_sequences": 50},
        "model": {"preset": "feed_forward"},
        "training": {"max_steps": 3000, "eval_every": 1000, "learning_rate": 4e-3, "warmup": 1000},
    }
    promise = Promise("wrong_bits", 0.0, 0.05)
    smallest = {
        "data": {"problem": {"max_length": 2, "width": 2}, "batch_size": 16, "valid_sequences": 5, "curriculum": 0},
        "model": {"preset": "tiny", "num_slots": 5, "slot_dim": 3, "hidden_dim": 16},
        "training": {"max_steps": 8, "eval_every": 4, "learning_rate": 0.03, "schedule": "constant", "warmup": 0,
                     "metrics_every": 1},
    }  # fmt: skip

    data: DataConfig = DataConfig()
    model: ModelConfig = NTMModel()
    training: TrainingOptions = TrainingOptions(
        max_steps=10_000, betas=(0.9, 0.99), eps=1e-8, schedule="linear", min_lr_ratio=0.02, eval_every=500
    )

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that are recommended for the problem."""
        data, model, training = (tables.get(name, {}) for name in ("data", "model", "training"))
        problem = data.get("problem", {})
        best = RECOMMENDED.get(str(problem.get("kind", "copy")) if isinstance(problem, Mapping) else "")
        if best is None:  # an unknown problem, which is reported later
            return super().implied(tables)
        implied: dict[str, Any] = {"data": {"curriculum": best.curriculum}, "training": {}}
        steps = training.get("max_steps")
        if steps is None and training.get("time_limit") is None:
            implied["training"]["max_steps"] = best.max_steps
        if model.get("kind", "ntm") == "ntm":
            whole = _as_number(steps, best.max_steps)
            warmup = max(best.warmup * whole // best.max_steps, 0)
            model = {"preset": best.preset, **model}
            implied["training"] |= {"learning_rate": best.learning_rate, "warmup": warmup}
        return {**super().implied({**tables, "model": model}), **implied}

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        return preset_by_kind(model, MEMORY_MODEL_PRESETS, "ntm", "base")


def _as_number(given: Any, default: int) -> int:
    try:
        return default if given is None else int(given)
    except (TypeError, ValueError):  # reported when the setting is read
        return default


@settings
class MemorizeOptions:
    """Which sequences are run."""

    seed: Annotated[int, Ge(0)] = 0
    """Which held-out sequences."""


@settings
class MemorizeEvaluateOptions(MemorizeOptions):
    """Which sequences are run, and how many."""

    lengths: Numbers = ()
    """The lengths to evaluate, such as 10,20,40. Default: the greatest of the training."""
    sequences: Annotated[int, Ge(1)] = 100
    """Sequences of each length."""
