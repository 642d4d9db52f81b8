"""Settings of the memory problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from annotated_types import Ge

from foci.errors import ConfigError, unknown_name
from foci.models import ntm
from foci.tasks.frame.config import ModelChoice, Numbers, OpenTable, TaskConfig
from foci.tasks.memorize.problems import PROBLEMS, Problem
from foci.training.options import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class DataConfig(OpenTable):
    """Which problem, and its options, such as max_length."""

    problem: str = "copy"
    """copy, repeat_copy, recall, ngrams or sort."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Sequences per step over all processes; all of one length."""
    curriculum: Annotated[int, Ge(0)] = 0
    """Steps over which the problem grows from its shortest sequences to its full ranges."""
    valid_sequences: Annotated[int, Ge(1)] = 100
    """Held-out sequences of each length that decide which checkpoint is the best one."""

    def maker(self, origin: str, path: str) -> Callable[..., Problem]:
        """Return the class of the problem."""
        if self.problem not in PROBLEMS:
            raise unknown_name(f"problem ({origin}: {path}.problem)", self.problem, PROBLEMS)
        return PROBLEMS[self.problem]

    def check(self, origin: str, path: str) -> None:
        """Make the problem, which checks its ranges."""
        try:
            self.make()
        except ConfigError as error:
            raise ConfigError(f"{origin}: {path}: {error}") from error

    def make(self) -> Problem:
        """Return the problem."""
        return PROBLEMS[self.problem](**self.options)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelChoice):
    """Which model."""

    models = {
        "ntm": (ntm.NeuralTuringMachine, ntm.PRESETS),
        "lstm": (ntm.RecurrentBaseline, ntm.BASELINE_PRESETS),
    }

    kind: str = "ntm"
    """Kind of model."""
    preset: str = "base"
    """The sizes of the model by name."""


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


@dataclass(frozen=True, kw_only=True)
class MemorizeConfig(TaskConfig):
    """All settings of a training."""

    flags = {"problem": "data.problem", "model": "model.kind", "preset": "model.preset"}
    demo = {
        "data": {"problem": "copy", "max_length": 8, "curriculum": 1000, "valid_sequences": 50},
        "model": {"preset": "feed_forward"},
        "training": {"max_steps": 3000, "eval_every": 1000, "learning_rate": 4e-3, "warmup": 1000},
    }
    smallest = {
        "data": {"max_length": 2, "width": 2, "batch_size": 16, "valid_sequences": 5, "curriculum": 0},
        "model": {"preset": "tiny", "num_slots": 5, "slot_dim": 3, "hidden_dim": 16},
        "training": {"max_steps": 8, "eval_every": 4, "learning_rate": 0.03, "schedule": "constant", "warmup": 0,
                     "metrics_every": 1},
    }  # fmt: skip

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            max_steps=10_000, betas=(0.9, 0.99), eps=1e-8, schedule="linear", min_lr_ratio=0.02, eval_every=500
        )
    )

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that are recommended for the problem."""
        data, model, training = (tables.get(name, {}) for name in ("data", "model", "training"))
        best = RECOMMENDED.get(str(data.get("problem", DataConfig.problem)))
        if best is None:  # an unknown problem, which is reported later
            return {}
        implied: dict[str, Any] = {"data": {"curriculum": best.curriculum}, "training": {}}
        steps = training.get("max_steps")
        if steps is None and training.get("time_limit") is not None:
            implied["training"]["schedule"] = "constant"  # the last step of a time limit is not known in advance
        elif steps is None:
            implied["training"]["max_steps"] = best.max_steps
        if model.get("kind", ModelConfig.kind) == "ntm":
            whole = _as_number(steps, best.max_steps)
            warmup = max(best.warmup * whole // best.max_steps, 0)
            implied["model"] = {"preset": best.preset}
            implied["training"] |= {"learning_rate": best.learning_rate, "warmup": warmup}
        return implied


def _as_number(given: Any, default: int) -> int:
    try:
        return default if given is None else int(given)
    except (TypeError, ValueError):  # reported when the setting is read
        return default


@dataclass(frozen=True, kw_only=True)
class MemorizeOptions:
    """Which sequences are run."""

    seed: Annotated[int, Ge(0)] = 0
    """Which held-out sequences."""


@dataclass(frozen=True, kw_only=True)
class MemorizeEvaluateOptions(MemorizeOptions):
    """Which sequences are run, and how many."""

    lengths: Numbers = ()
    """The lengths to evaluate, such as 10,20,40. Default: the greatest of the training."""
    sequences: Annotated[int, Ge(1)] = 100
    """Sequences of each length."""
