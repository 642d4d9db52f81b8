"""Memorising: problems that need a memory, learned by a Neural Turing Machine or an LSTM, and the tape it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from foci.data.algorithms import PROBLEMS, EpisodeBatches, Episodes, Problem, cost_bits, wrong_bits
from foci.errors import ConfigError, check_positive, check_shape, unknown_name
from foci.models import ntm
from foci.tasks import config as configs
from foci.tasks.runs import Say, find_checkpoint
from foci.training import (
    Loss,
    RunFolder,
    Summary,
    TrainingOptions,
    check_rates,
    fit,
    launched,
    load_weights,
    read_config,
)
from foci.training.run_folder import say_aside
from foci.viz.trace import Cells, Trace

_TOGETHER = 10
"""Sequences that are judged at once; they share what a problem draws for a whole batch, such as a number of copies."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which problem: its name, and any option of it, such as max_length."""

    problem: str = "copy"
    batch_size: int = 16
    """Sequences a step, over all processes; all of one length."""
    curriculum: int = 0
    """Steps over which the problem grows from its shortest sequences to its full ranges."""
    valid_sequences: int = 100
    """Held-out sequences of each length that decide which checkpoint is the best one."""
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], origin: str, path: str) -> DataConfig:
        """Keys that are not this table's own are options of the problem."""
        least = {"batch_size": 1, "curriculum": 0, "valid_sequences": 1}
        sizes = {name: table.get(name, getattr(cls, name)) for name in least}
        for name, value in sizes.items():
            if not isinstance(value, int) or value < least[name]:
                raise ConfigError(
                    f"{origin}: {path}.{name} is {value!r}, expected a whole number from {least[name]} on."
                )
        problem = table.get("problem", cls.problem)
        if problem not in PROBLEMS:
            raise unknown_name(f"problem ({origin}: {path}.problem)", problem, PROBLEMS)
        options = configs.options_of(table, ("problem", *sizes))
        configs.build(PROBLEMS[problem], options, origin, path)
        return cls(problem=problem, options=options, **sizes)

    def make(self) -> Problem:
        """The problem."""
        return PROBLEMS[self.problem](**self.options)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(configs.ModelChoice):
    """Which model: a kind, a preset of sizes, and any option of the model's class."""

    models = {  # noqa: RUF012 (a ClassVar, as the base has it)
        "ntm": (ntm.NeuralTuringMachine, ntm.PRESETS),
        "lstm": (ntm.RecurrentBaseline, ntm.BASELINE_PRESETS),
    }

    kind: str = "ntm"
    preset: str = "base"


class Settings(NamedTuple):
    """What a problem is best learned with, as far as it was tried (docs/memory.md), where the user says nothing."""

    max_steps: int
    curriculum: int
    preset: str = "base"
    """Of a Neural Turing Machine, as are the rate and its warm-up."""
    learning_rate: float = 3e-3
    warmup: int = 0
    """Of so many steps as above; of a shorter training it takes the same share."""


SETTINGS = {
    "copy": Settings(12_000, curriculum=3000, preset="feed_forward", learning_rate=4e-3, warmup=5000),
    "repeat_copy": Settings(16_000, curriculum=5000),
    "recall": Settings(8000, curriculum=2000, preset="feed_forward_many_heads", learning_rate=4e-3, warmup=4000),
    "ngrams": Settings(5500, curriculum=1500),
    "sort": Settings(8000, curriculum=2500, preset="many_heads"),
}


@dataclass(frozen=True, kw_only=True)
class MemoriseConfig:
    """Everything about a training on one of the problems."""

    task: Literal["memorise"] = "memorise"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            max_steps=10_000,
            betas=(0.9, 0.99),
            epsilon=1e-8,
            schedule="linear",
            final_rate=0.02,
            valid_every=500,
        )
    )

    @classmethod
    def from_table(cls, table: Mapping[str, Any], origin: str, path: str) -> MemoriseConfig:
        """What is not set comes from the problem's `SETTINGS`, and else from the defaults above."""
        configs.check_names(table, ("task", "data", "model", "training"), origin, path)
        configs.check_task(table, "memorise", origin)
        data, model, training = (dict(table.get(name, {})) for name in ("data", "model", "training"))
        settings = SETTINGS.get(data.get("problem", DataConfig.problem))
        defaults = cls().training
        if settings is not None:  # a problem that is not known is told below
            defaults = replace(defaults, max_steps=settings.max_steps)
            data = {"curriculum": settings.curriculum, **data}
            if model.get("kind", ModelConfig.kind) == "ntm":
                model = {"preset": settings.preset, **model}
                steps = training.get("max_steps")
                warmup = settings.warmup * steps // settings.max_steps if isinstance(steps, int) else settings.warmup
                defaults = replace(defaults, learning_rate=settings.learning_rate, warmup=max(warmup, 0))
        if training.get("max_steps") is None and training.get("time_limit") is not None:
            defaults = replace(defaults, schedule="constant")  # nobody knows at which step time will be up
        return cls(
            data=DataConfig.from_table(data, origin, "data"),
            model=ModelConfig.from_table(model, origin, "model"),
            training=configs.training_options(defaults, training, origin),
        )


class Judged(NamedTuple):
    """How a run does on sequences of one length, on the average.

    ``bits`` is the cost (the paper's measure), ``wrong_bits`` how many of ``of_bits`` come out wrong, ``perfect`` the
    share of sequences without a wrong bit, ``optimal_bits`` what the best prediction costs where that is not 0.
    """

    length: int
    sequences: int
    bits: float
    wrong_bits: float
    of_bits: float
    perfect: float
    optimal_bits: float | None


class Prediction(NamedTuple):
    """The chances of a 1 at every step ``(T, output_dim)``; ``trace``, if asked for, is where the heads were."""

    chances: Tensor
    trace: Trace | None


class MemoriseObjective:
    """The cross-entropy of the wanted bits at the scored steps; judged in bits a sequence.

    Arguments:
        model: an `ntm.NeuralTuringMachine` or `ntm.RecurrentBaseline`.
        problem: what is learned.
        sequences: how many are held out of each length, the least, the middle and the greatest of the problem.
        seed: of those.
    """

    def __init__(self, model: nn.Module, problem: Problem, *, sequences: int, seed: int) -> None:
        self.model, self.problem, self.sequences, self.seed = model, problem, sequences, seed

    def loss(self, batch: Episodes) -> Loss:
        """Summed over the scored bits of the batch."""
        recalled: ntm.NTMOutput = self.model(batch.inputs)
        weight = batch.scored.unsqueeze(-1).to(batch.targets.dtype)
        total = F.binary_cross_entropy_with_logits(recalled.logits.float(), batch.targets, weight, reduction="sum")
        return Loss(total, batch.scored.sum() * batch.targets.shape[-1])

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Bits a sequence ("loss"), wrong bits, and of how many, averaged over the lengths."""
        least, most = self.problem.min_length, self.problem.max_length
        rows = [
            judge(model, self.problem, length, sequences=self.sequences, split="valid", seed=self.seed)
            for length in sorted({least, (least + most) // 2, most})
        ]
        return {
            "loss": sum(row.bits for row in rows) / len(rows),
            "wrong_bits": sum(row.wrong_bits for row in rows) / len(rows),
            "of_bits": sum(row.of_bits for row in rows) / len(rows),
        }


@torch.no_grad()
def judge(
    model: nn.Module, problem: Problem, length: int, *, sequences: int, split: str = "test", seed: int = 0
) -> Judged:
    """Run held-out sequences of one length through a model."""
    device = next(model.parameters()).device
    costs, wrong, of, optimal = [], [], [], []
    for part, start in enumerate(range(0, sequences, _TOGETHER)):
        rows = min(_TOGETHER, sequences - start)
        episodes = problem.held_out(rows, length=length, split=split, seed=seed, part=part)
        recalled: ntm.NTMOutput = model(episodes.inputs.to(device))
        logits = recalled.logits.cpu()
        costs.append(cost_bits(logits, episodes))
        wrong.append(wrong_bits(logits, episodes))
        of.append(episodes.scored.sum(dim=1) * problem.output_dim)
        best = problem.optimal_bits(episodes)
        if best is not None:
            optimal.append(best)
    errors = torch.cat(wrong)
    return Judged(
        length=length,
        sequences=sequences,
        bits=float(torch.cat(costs).mean()),
        wrong_bits=float(errors.mean()),
        of_bits=float(torch.cat(of).float().mean()),
        perfect=float((errors == 0).float().mean()),
        optimal_bits=float(torch.cat(optimal).mean()) if optimal else None,
    )


def train(config: MemoriseConfig, out: str | Path, *, resume: bool = False, say: Say | None = None) -> Summary:
    """Train on a problem into the folder ``out``; with ``resume`` go on with the run that lies there."""
    say = say or say_aside
    out = Path(out)
    with launched(config.training) as fabric:
        main = fabric.global_rank == 0
        tell: Say = say if main else (lambda text: None)
        problem, seed = config.data.make(), config.training.seed
        torch.manual_seed(seed)
        model = config.model.build(problem.input_dim, problem.output_dim)
        check_rates(model, config.training)
        hint = f"foci train memorise --resume --out {out}"
        with RunFolder(out, asdict(config), resume=resume, main=main, resume_hint=hint, say=tell) as run:
            tell(f"{problem}; {sum(p.numel() for p in model.parameters()):,} parameters")
            batches = EpisodeBatches(
                problem,
                batch_size=config.data.batch_size,
                curriculum=config.data.curriculum,
                seed=seed,
                rank=fabric.global_rank,
                world_size=fabric.world_size,
            )
            objective = MemoriseObjective(model, problem, sequences=config.data.valid_sequences, seed=seed)
            return fit(objective, batches, config.training, run, fabric=fabric, unit="bits")


class Memoriser:
    """A trained run. Made by `foci.load`.

    Arguments:
        model: in evaluation mode.
        config: the run's configuration.
    """

    def __init__(self, model: nn.Module, config: MemoriseConfig) -> None:
        self.model = model.eval()
        self.config = config
        self.problem = config.data.make()

    @classmethod
    def load(cls, path: Path, *, checkpoint: str = "auto") -> Memoriser:
        """The run that lies there."""
        file = path / "config.json"
        config = MemoriseConfig.from_table(configs.without_none(read_config(path)), str(file), "")
        problem = config.data.make()
        model = config.model.build(problem.input_dim, problem.output_dim)
        load_weights(model, find_checkpoint(path, checkpoint))
        return cls(model, config)

    def evaluate(self, lengths: Sequence[int] = (), *, sequences: int = 100, seed: int = 0) -> list[Judged]:
        """How it does at each length; at the greatest of its training unless given."""
        check_positive("evaluate", sequences=sequences)
        lengths = lengths or (self.problem.max_length,)
        return [judge(self.model, self.problem, length, sequences=sequences, seed=seed) for length in lengths]

    @torch.no_grad()
    def predict(self, inputs: Float[Tensor, "B T I"], *, trace: bool = False) -> list[Prediction]:
        """Run sequences in the problem's coding, such as ``run.problem.held_out(3).inputs``.

        Arguments:
            inputs: a batch of sequences.
            trace: keep where the heads were: "read" and "write", a row for each step, a column for each slot.
        """
        check_shape("predict", "inputs", inputs, "batch", "time", self.problem.input_dim)
        like = next(self.model.parameters())
        recalled: ntm.NTMOutput = self.model(inputs.to(like))
        chances = recalled.logits.sigmoid().cpu()
        return [Prediction(chances[row], self._trace(recalled, row) if trace else None) for row in range(len(chances))]

    def trace(self, *, length: int | None = None, seed: int = 0) -> Trace:
        """The memory tape of one held-out sequence, with the number of its wrong bits."""
        length = self.problem.max_length if length is None else length
        episodes = self.problem.held_out(1, length=length, seed=seed)
        (prediction,) = self.predict(episodes.inputs, trace=True)
        wrong = wrong_bits(prediction.chances.unsqueeze(0) - 0.5, episodes)
        trace = cast("Trace", prediction.trace)
        facts: dict[str, str | float] = {
            "problem": self.config.data.problem,
            "length": float(length),
            "wrong bits": float(wrong),
        }
        return Trace(trace.cells, trace.attentions, f"{self.config.data.problem}, length {length}", facts)

    def _trace(self, recalled: ntm.NTMOutput, row: int) -> Trace:
        if not recalled.attentions:
            raise ConfigError(f"a model of kind {self.config.model.kind!r} attends to nothing, so it has no trace.")
        _, _, steps, slots = recalled.attentions["read"].shape
        cells = {"slots": Cells.numbered("slots", slots), "steps": Cells.numbered("steps", steps)}
        between = dict.fromkeys(recalled.attentions, ("steps", "slots"))
        return Trace.from_handles(recalled.attentions, cells, between, row=row)
