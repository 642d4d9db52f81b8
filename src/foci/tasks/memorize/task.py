"""Problems that need a memory, solved by a Neural Turing Machine or an LSTM; a trace has the weights of the heads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from foci.errors import ConfigError
from foci.models import ntm
from foci.models.ntm import NeuralTuringMachine, RecurrentBaseline
from foci.models.options.memory import NTMOptions
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.task import Evaluation, Field, Log, Prediction, Progress, Record, Shard, Splits, Table, Task
from foci.tasks.memorize.config import (
    MemorizeConfig,
    MemorizeEvaluateOptions,
    MemorizeOptions,
)
from foci.tasks.memorize.problems import PROBLEMS, EpisodeBatches, Episodes, cost_bits, wrong_bits
from foci.training.objective import Batches, Loss
from foci.viz.trace import Axis, Trace

_TOGETHER = 10
"""Sequences per batch; they share what a problem draws once per batch, such as the number of copies."""


class AtLength(NamedTuple):
    """Metrics of sequences of one length, averaged.

    ``bits`` is the cost (the paper's measure), ``wrong_bits`` how many of ``of_bits`` are wrong, ``perfect`` the share
    of sequences without a wrong bit, ``optimal_bits`` what the best possible prediction costs where that is not 0.
    """

    length: int
    sequences: int
    bits: float
    wrong_bits: float
    of_bits: float
    perfect: float
    optimal_bits: float | None


class NoAssets(Assets):
    """Nothing is kept of the data: the problem is known from the configuration."""


class Memorize(Task):
    """The memory task."""

    name: ClassVar[str] = "memorize"
    Config: ClassVar[type[Any]] = MemorizeConfig
    Options: ClassVar[type[Any]] = MemorizeOptions
    EvaluateOptions: ClassVar[type[Any]] = MemorizeEvaluateOptions
    Assets: ClassVar[type[Any]] = NoAssets
    inputs: ClassVar[tuple[Field, ...]] = (Field("length", "number"),)
    targets: ClassVar[tuple[Field, ...]] = ()
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "bits"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "wrong_bits": "lower",
        "of_bits": "lower",
    }

    config: MemorizeConfig

    def __init__(self, config: MemorizeConfig) -> None:
        super().__init__(config)
        self.problem = PROBLEMS[config.data.problem.kind](**asdict(config.data.problem))

    # ---- data

    def read(self, log: Log) -> Splits:
        """Return the greatest length to evaluate with; the sequences are generated on the fly."""
        log(f"sequences are generated on the fly: {self.problem}")
        return Splits((), [], [{"length": self.problem.max_length}])

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Raise: there are no files of sequences."""
        raise ConfigError("memorize makes its own sequences and reads no files. Choose them with --lengths 10,20,40.")

    def assets(self, splits: Splits, log: Log) -> NoAssets:
        """Return nothing: the problem is known from the configuration."""
        return NoAssets()

    def model(self, assets: NoAssets) -> nn.Module:
        """Build the model for the channels of the problem."""
        sizes, options = self.problem.channels, self.config.model
        if isinstance(options, NTMOptions):
            return NeuralTuringMachine(*sizes, options)
        return RecurrentBaseline(*sizes, options)

    def batches(self, splits: Splits, assets: NoAssets, shard: Shard, log: Log) -> Batches:
        """Return an endless stream of sequences."""
        data = self.config.data
        return EpisodeBatches(
            self.problem,
            batch_size=data.batch_size,
            curriculum=data.curriculum * self.config.training.gradient_accumulation_steps,
            seed=self.config.training.seed,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: NoAssets, log: Log) -> tuple[int, ...]:
        """Return the lengths to validate with: the least, the middle and the greatest."""
        least, most = self.problem.min_length, self.problem.max_length
        return tuple(sorted({least, (least + most) // 2, most}))

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: Episodes) -> Loss:
        """Return the cross-entropy of the target bits at the scored steps, summed over those bits."""
        logits = model(batch.inputs).logits
        weight = batch.scored.unsqueeze(-1).to(batch.targets.dtype)
        total = F.binary_cross_entropy_with_logits(logits.float(), batch.targets, weight, reduction="sum")
        return Loss(total, batch.scored.sum() * batch.targets.shape[-1])

    def validate(self, model: nn.Module, held_out: tuple[int, ...]) -> dict[str, float]:
        """Return bits per sequence ("loss"), wrong bits, and of how many, averaged over the lengths."""
        sequences, seed = self.config.data.valid_sequences, self.config.training.seed
        rows = [self._at_length(model, length, sequences, seed, split="valid") for length in held_out]
        return {
            "loss": sum(row.bits for row in rows) / len(rows),
            "wrong_bits": sum(row.wrong_bits for row in rows) / len(rows),
            "of_bits": sum(row.of_bits for row in rows) / len(rows),
        }

    def _at_length(self, model: nn.Module, length: int, sequences: int, seed: int, *, split: str) -> AtLength:
        device = next(model.parameters()).device
        costs, wrong, of, optimal = [], [], [], []
        for part, start in enumerate(range(0, sequences, _TOGETHER)):
            rows = min(_TOGETHER, sequences - start)
            episodes = self.problem.held_out(rows, length=length, split=split, seed=seed, part=part)
            logits = model(episodes.inputs.to(device)).logits.cpu()
            costs.append(cost_bits(logits, episodes))
            wrong.append(wrong_bits(logits, episodes))
            of.append(episodes.scored.sum(dim=1) * self.problem.channels[1])
            best = self.problem.optimal_bits(episodes)
            if best is not None:
                optimal.append(best)
        errors = torch.cat(wrong)
        return AtLength(
            length=length,
            sequences=sequences,
            bits=float(torch.cat(costs).mean()),
            wrong_bits=float(errors.mean()),
            of_bits=float(torch.cat(of).float().mean()),
            perfect=float((errors == 0).float().mean()),
            optimal_bits=float(torch.cat(optimal).mean()) if optimal else None,
        )

    # ---- predictions

    def predict(
        self,
        model: nn.Module,
        assets: NoAssets,
        records: Sequence[Record],
        options: MemorizeOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Run one held-out sequence of each length; a trace has the weights of the heads at each step."""
        found = []
        like = next(model.parameters())
        for record in records:
            episodes = self.problem.held_out(1, length=record["length"], seed=options.seed)
            result: ntm.NTMOutput = model(episodes.inputs.to(like))
            logits = result.logits.cpu()
            wrong, of = int(wrong_bits(logits, episodes)), int(episodes.scored.sum()) * self.problem.channels[1]
            cost = float(cost_bits(logits, episodes))
            details = {"wrong_bits": wrong, "of_bits": of, "bits": cost, "seed": options.seed}
            text = f"{wrong} of {of} bits wrong"
            traced = self._trace(result, record["length"], text) if trace else None
            found.append(Prediction(record, text, -cost * math.log(2), details, traced))
            progress(1)
        return found

    def not_erasable(self) -> ConfigError:
        """Return why nothing is erased: what is read was written by the network itself."""
        return ConfigError(
            "memorize reads slots of a memory that the network itself wrote, so that no part of an input is erased "
            "with one. Look at what it reads and writes with foci show RUN 20, or measure how it copes with longer "
            "sequences with foci evaluate RUN --lengths 10,20,40."
        )

    def _trace(self, result: ntm.NTMOutput, length: int, text: str) -> Trace:
        if not result.attentions:
            raise ConfigError(f"a model of kind {self.config.model.kind!r} attends to nothing, so it has no trace.")
        _, _, steps, slots = result.attentions["read"].shape
        axes = {"slots": Axis.numbered("slots", slots), "steps": Axis.numbered("steps", steps)}
        title = f"{self.config.data.problem.kind}, length {length}"
        return Trace.from_handles(
            result.attentions,
            axes,
            dict.fromkeys(result.attentions, ("steps", "slots")),
            text=title,
            metadata={"problem": self.config.data.problem.kind, "length": float(length), "result": text},
        )

    def evaluate(
        self,
        model: nn.Module,
        assets: NoAssets,
        records: Sequence[Record],
        options: MemorizeEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return the metrics of each length, and their means."""
        rows = []
        for length in options.lengths or [record["length"] for record in records]:
            rows.append(self._at_length(model, length, options.sequences, options.seed, split="test"))
            progress(1)
        metrics: dict[str, float | int] = {"sequences": sum(row.sequences for row in rows)}
        for name in ("bits", "wrong_bits", "of_bits", "perfect"):
            metrics[name] = sum(getattr(row, name) for row in rows) / len(rows)
        return Evaluation(metrics, {}, {"lengths": Table(AtLength._fields, tuple(map(tuple, rows)))})

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the error against the length."""
        from foci.viz.figure.curves import plot_curves

        rows = [AtLength(*row) for row in evaluation.tables["lengths"].rows]
        curves: dict[str, list[tuple[int | float, int | float]]] = {
            "bits (cost)": [(row.length, row.bits) for row in rows],
            "wrong bits": [(row.length, row.wrong_bits) for row in rows],
        }
        if all(row.optimal_bits is not None for row in rows):
            curves["bits of the best estimator"] = [(row.length, row.optimal_bits or 0.0) for row in rows]
        plot_curves(curves, path, across="length", up="per sequence", title=self.config.data.problem.kind)
