"""The training loop: one for all tasks, on one device or many.

The gradient of a step is that of

    Σ total / Σ count

over all batches of the step and all processes, for any sizes: two processes on half batches, or two accumulated half
batches, have the same gradient as one process on whole ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed
from lightning_fabric import Fabric
from pydantic import TypeAdapter, ValidationError
from torch import nn
from torch.distributed.tensor import DTensor

from foci.errors import CheckpointError, ConfigError, MissingPackageError, TrainingError
from foci.training.checkpoint import AVERAGED, Checkpoints, Saved, Writers, load, load_weights
from foci.training.devices import autocast, distribute, gathered, is_sharded, launch, others_waiting, synchronized
from foci.training.interrupts import Interrupts
from foci.training.moving_average import MovingAverage
from foci.training.named_tensors import optimizer_tensors, put_optimizer_tensors, put_weights, weights
from foci.training.objective import Batches, Objective, StepObjective
from foci.training.optim import make_optimizer, rate, set_rate
from foci.training.options import TrainingOptions
from foci.training.progress import Progress, make_progress, metrics_text
from foci.training.randomness import random_state, restore_random_state, seed_everything, undisturbed
from foci.training.run_folder import Metrics, RunFolder

_REMEDY = "Lower the learning rate, use a longer warm-up, clip harder, or look for damaged data."


@dataclass
class TrainState:
    """The progress of a run, saved with every checkpoint.

    ``best`` is the step of the best validation by ``best_metric``, ``worse`` the number of validations since;
    ``window`` holds the sums for the next line of the metrics, ``took`` the seconds of the latest validation and of
    the latest checkpoint.
    """

    step: int = 0
    epoch: int = 0
    count: int = 0
    seconds: float = 0.0
    best: int | None = None
    best_metric: str | None = None
    best_value: float | None = None
    worse: int = 0
    validated: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    window: dict[str, float] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)

    def ending(self, options: TrainingOptions) -> float:
        """Return the seconds that the end of the training will take, with an average that is validated too."""
        return sum(self.took.values(), 0.0) * (2 if options.average_last > 1 else 1)


_saved_state = TypeAdapter(TrainState)


class StepFlags(NamedTuple):
    """What a process has noticed during a step: a signal to stop, or that the time for a checkpoint has come."""

    interrupted: bool
    save_due: bool


class StepTimes(NamedTuple):
    """Seconds of training at the beginning of a step, and when its gradient is known."""

    began: float
    now: float


@dataclass(frozen=True)
class TrainingResult:
    """How a training run ended.

    ``reason`` is max_steps, max_epochs, time_limit, patience or interrupted. ``metrics`` are those of the last
    validation, ``averaged_metrics`` those of the averaged weights.
    """

    reason: str
    step: int
    seconds: float
    count: int
    metrics: dict[str, float]
    last: Path
    best: Path | None
    best_value: float | None
    averaged: Path | None
    averaged_metrics: dict[str, float]


def run_training(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    options: TrainingOptions,
    run: RunFolder,
    *,
    fabric: Fabric | None = None,
    unit: str = "tokens",
    log: Callable[[str], None] | None = None,
) -> TrainingResult:
    """Train until a limit of ``options`` is reached, starting from the run's newest checkpoint if it has one.

    Args:
        model: the model to train; at the end it has the last weights, or their moving average if there is one.
        objective: the loss and the validation.
        batches: the data, this process's share of it.
        options: the options of the loop.
        run: the folder of checkpoints and metrics.
        fabric: this process's device and rank, from `launch`. Default: a new one.
        unit: what ``count`` counts, for the progress display.
        log: called with each message. Default: a bar or lines on standard error.
    """
    fabric = fabric or launch(options)
    with ExitStack() as stack:
        progress = make_progress(options, unit, main=run.main, log=log)
        stack.callback(progress.close)
        trainer = _Trainer(model, objective, batches, options, run, fabric, progress)
        train_state = trainer.restore()
        interrupts = stack.enter_context(Interrupts())
        if options.compile:
            stack.enter_context(_compiled(trainer.module))
        trainer.metrics = stack.enter_context(_metrics(run, options, train_state.step))
        trainer.module.train()
        return trainer.finish(train_state, trainer.train(train_state, interrupts))


class _Trainer:
    """The parts of a step; all of them run on every process, since most of them communicate."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        batches: Batches,
        options: TrainingOptions,
        run: RunFolder,
        fabric: Fabric,
        progress: Progress,
    ) -> None:
        self.objective, self.batches, self.options, self.run = objective, batches, options, run
        self.fabric, self.progress = fabric, progress
        if options.max_epochs is not None and "epoch" not in batches.state_dict():
            raise ConfigError(
                "fit: max_epochs is set, but the state of the batches has no 'epoch'. Use max_steps, or let "
                "state_dict() return the number of completed epochs as 'epoch'."
            )
        seed_everything(options.seed + fabric.global_rank)
        self.module = model
        self.model = distribute(fabric, self.module)
        self.optimizer = make_optimizer(self.module, options)
        self.optimizer.zero_grad(set_to_none=True)
        self.average = MovingAverage(self.module, options.moving_average)
        self.store = Checkpoints(
            run.checkpoints,
            save_total_limit=options.save_total_limit,
            average_last=options.average_last,
            save_every=options.save_every,
        )
        self.metrics: Callable[[dict[str, Any]], None] = lambda line: None

    def restore(self) -> TrainState:
        """Load the newest good checkpoint, if there is one."""
        path: Path | None = None
        with others_waiting(self.fabric, self.options):
            if self.run.main:
                self.store.tidy()
                path = self.store.newest_good(self.progress.log)
        path = self.fabric.broadcast(path)
        if path is None:
            return TrainState()
        saved = load(path)
        put_weights(self.module, saved.model, path)
        put_optimizer_tensors(self.module, self.optimizer, saved.optimizer, path)
        self.average.restore(saved.optimizer, path)
        try:
            train_state = _saved_state.validate_python(saved.state["train_state"])
            self.batches.load_state_dict(saved.state["data"])
        except (KeyError, TypeError, ValidationError) as error:
            raise CheckpointError(f"{path}: was written by another version of foci ({error}). Use that one.") from error
        mine = f"{self.fabric.global_rank}/"
        numbers = {k.removeprefix(mine): v for k, v in saved.random.items() if k.startswith(mine)}
        if numbers:  # none: there was no process of this rank when the checkpoint was written; it keeps its new seed
            restore_random_state(numbers)
        self.progress.log(f"resuming from {path}, step {train_state.step}")
        self._check_best(train_state)
        return train_state

    def _check_best(self, train_state: TrainState) -> None:
        """Forget the best checkpoint if it is no longer there, or was chosen by another metric."""
        if train_state.best is None:
            return
        metric, best = self.options.metric_for_best_model, self.store.path(train_state.best)
        if train_state.best_metric != metric:
            why = f"it was chosen by {train_state.best_metric}, and metric_for_best_model is now {metric}"
        elif not best.exists():
            why = f"{best} is missing"
        else:
            return
        self.progress.log(f"the best checkpoint of step {train_state.best} is forgotten: {why}")
        train_state.best = train_state.best_metric = train_state.best_value = None
        train_state.worse = 0

    def train(self, train_state: TrainState, interrupts: Interrupts) -> str:
        """Take steps until the training ends, and return the reason."""
        options, stream = self.options, iter(self.batches)
        reason = _reason(train_state, options)
        if reason is not None and options.eval_every is not None and train_state.validated < train_state.step:
            self.validate(train_state)  # the last step was interrupted before it was validated
            self.save(train_state)
        started, saved_at = time.monotonic() - train_state.seconds, time.monotonic()
        while reason is None:
            began = time.monotonic()
            if isinstance(self.objective, StepObjective):
                self.objective.begin_step(train_state.step + 1)
            sums = self.gradient(stream)
            now = time.monotonic()
            flags = StepFlags(interrupts.requested, now - saved_at >= (options.save_seconds or math.inf))
            times = StepTimes(began - started, now - started)
            sums, flags, times = self.reduce_over_processes(sums, flags, times)
            learning_rate = rate(train_state.step + 1, options, times.began + train_state.ending(options))
            norm = self.update(train_state, sums, learning_rate)

            train_state.step += 1
            self.average.update(train_state.step)
            self.run.unused = False
            train_state.count += round(sums["count"])
            train_state.epoch = self.batches.state_dict().get("epoch", 0)
            # The step alone: validations and checkpoints do not count for the speed.
            for name, value in (sums | {"steps": 1, "seconds": time.monotonic() - began}).items():
                train_state.window[name] = train_state.window.get(name, 0.0) + value
            train_state.seconds = times.now
            self._show(train_state, sums)
            if train_state.step % options.metrics_every == 0:
                self.metrics(_line(train_state, learning_rate, norm))
                train_state.window = {}

            reason = "interrupted" if flags.interrupted else _reason(train_state, options)
            ending = reason is not None and reason != "interrupted"
            better = False
            if options.eval_every is not None and (train_state.step % options.eval_every == 0 or ending):
                better = self.validate(train_state)
                reason = reason or _reason(train_state, options)
            at_step = options.save_every is not None and train_state.step % options.save_every == 0
            if better or flags.save_due or at_step or reason is not None:
                self.save(train_state)
                saved_at = time.monotonic()
        return reason

    def _show(self, train_state: TrainState, sums: Mapping[str, float]) -> None:
        speed = sums["count"] / max(train_state.window["seconds"] / train_state.window["steps"], 1e-9)
        share, left = _ahead(train_state, self.options)
        self.progress.show(train_state.step, share, sums["total"] / sums["count"], speed, left)

    def gradient(self, stream: Iterator[Any]) -> dict[str, float]:
        """Accumulate the gradient of the summed totals in the parameters; return the sums of this process."""
        options = self.options
        sums: dict[str, float] = {"total": 0.0, "count": 0.0}
        for index in range(options.gradient_accumulation_steps):
            batch = self.fabric.to_device(next(stream))
            with synchronized(self.model, now=index == options.gradient_accumulation_steps - 1):
                with autocast(self.fabric, options):
                    loss = self.objective.loss(self.model, batch)
                loss.total.backward()
            for name, value in {"total": loss.total.detach(), "count": loss.count, **loss.metrics}.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def reduce_over_processes(
        self, sums: dict[str, float], flags: StepFlags, times: StepTimes
    ) -> tuple[dict[str, float], StepFlags, StepTimes]:
        """Return the sums over all processes, each flag if any process has set it, and the first one's clock.

        Each process has its own clock and its own signals, and all must come to the same decisions.
        """
        if self.fabric.world_size == 1:
            return sums, flags, times
        clock = times if self.fabric.global_rank == 0 else (0.0, 0.0)
        together = torch.tensor([*sums.values(), *flags, *clock], dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(together)
        values = together.tolist()
        flagged = StepFlags(*(value > 0 for value in values[len(sums) : -len(times)]))
        return dict(zip(sums, values)), flagged, StepTimes(*values[-len(times) :])

    def update(self, train_state: TrainState, sums: dict[str, float], learning_rate: float) -> float:
        """Divide the gradient by the count, clip it, and step. Return its norm before clipping."""
        total, count = sums["total"], sums["count"]
        if not math.isfinite(total):
            raise self._diverged(train_state, f"the loss is {total}")
        if not count > 0:
            raise TrainingError(f"step {train_state.step + 1}: the count of the batch is {count:g}, expected above 0.")
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        # The processes' gradients were averaged, but are to be summed. Scaled losses would change what clips inside of
        # a backward pass.
        share = self.fabric.world_size / count
        length = torch.nn.utils.get_total_norm(gradients)
        norm = float(length.full_tensor() if isinstance(length, DTensor) else length) * share
        if not math.isfinite(norm):
            raise self._diverged(train_state, f"the loss is {total / count:.4g}, but its gradient {norm}")
        clip = self.options.max_grad_norm
        torch._foreach_mul_(gradients, (1.0 if clip is None else min(1.0, clip / (norm + 1e-6))) * share)
        set_rate(self.optimizer, learning_rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)  # now, so that validation and checkpoint have its memory
        return norm

    def validate(self, train_state: TrainState) -> bool:
        """Record the metrics of the held-out set; return whether they are the best so far."""
        options, began = self.options, time.monotonic()
        train_state.metrics, train_state.validated = self._metrics(), train_state.step
        self._took(train_state, "validation", began)
        self.progress.log(f"step {train_state.step}: validation: {metrics_text(train_state.metrics)}")
        self.metrics({"kind": "valid", "step": train_state.step, **train_state.metrics})
        if options.metric_for_best_model is None:
            return False
        if options.metric_for_best_model not in train_state.metrics:
            raise ConfigError(
                f"fit: metric_for_best_model is {options.metric_for_best_model!r}, but the validation gives "
                f"{', '.join(train_state.metrics)}."
            )
        value, best = train_state.metrics[options.metric_for_best_model], train_state.best_value
        better = not math.isnan(value) and (
            best is None or (value > best if options.greater_is_better else value < best)
        )
        if better:
            train_state.best, train_state.best_value, train_state.worse = train_state.step, value, 0
            train_state.best_metric = options.metric_for_best_model
        else:
            train_state.worse += 1
        return better

    def _took(self, train_state: TrainState, what: str, began: float) -> None:
        """Record how long something took on the first process; the others wait for it."""
        train_state.took[what] = self.fabric.broadcast(time.monotonic() - began)
        train_state.seconds += train_state.took[what]

    def save(self, train_state: TrainState) -> None:
        """Write a checkpoint; raise if a weight is not finite, so that the last good one stays the newest."""
        began = time.monotonic()
        with self.average.in_place():
            self._write(train_state)
        self._took(train_state, "checkpoint", began)

    def _write(self, train_state: TrainState) -> None:
        rank = self.fabric.global_rank
        model, ties = weights(self.module, rank)
        broken = [name for name, value in model.items() if value.is_floating_point() and not value.isfinite().all()]
        answers = self._gather((random_state(), broken, len(model)))  # the first process has weights of every name
        if broken := [*dict.fromkeys(name for _, names, _ in answers for name in names)]:
            raise TrainingError(
                f"step {train_state.step}: {len(broken)} of {answers[0][2]} weights are not finite, the first is "
                f"{broken[0]!r}; {self._last_good()}. They were not saved. {_REMEDY}"
            )
        together = is_sharded(self.module)
        with self._one_or_all():
            if self.run.main:
                self.run.check_in_place()
            if self.run.main or together:
                state = {
                    "best": train_state.best,
                    "best_metric": train_state.best_metric,
                    "step": train_state.step,
                    "metrics": train_state.metrics if train_state.validated == train_state.step else {},
                    "train_state": asdict(train_state),
                    "data": self.batches.state_dict(),
                }
                optimizer = optimizer_tensors(self.module, self.optimizer, rank) | self.average.tensors(rank)
                random = {f"{of}/{name}": value for of, (one, *_) in enumerate(answers) for name, value in one.items()}
                writers = Writers(rank, self.fabric.world_size, self._gather) if together else Writers()
                self.store.save(train_state.step, Saved(model, ties, optimizer, random, state), writers)

    def _one_or_all(self) -> AbstractContextManager[None]:
        """Return the context in which the first process works while the others wait; with shards all of them work."""
        return nullcontext() if is_sharded(self.module) else others_waiting(self.fabric, self.options)

    def _gather(self, value: Any) -> list[Any]:
        """Return the values of all processes."""
        values = [value] * self.fabric.world_size
        if self.fabric.world_size > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def finish(self, train_state: TrainState, reason: str) -> TrainingResult:
        """Average the weights if configured, and return how the run ended."""
        last = self.store.path(train_state.step)
        averaged, metrics = None, {}
        if reason == "interrupted":
            self.progress.log(
                f"interrupted at step {train_state.step}; saved as {last}. To go on: {self.run.resume_hint}."
            )
        elif self.options.average_last > 1 and len(newest := self.store.to_average()) < 2:
            self.progress.log(
                f"no average: {len(newest)} checkpoints of multiples of save_every = {self.options.save_every} steps, "
                "expected 2 or more. Lower save_every."
            )
        elif self.options.average_last > 1:
            began = time.monotonic()
            averaged = self._save_average(newest, train_state.step, {})
            if self.options.eval_every is not None:
                load_weights(self.module, averaged)
                metrics = self._metrics()
                load_weights(self.module, last)
                self._save_average(newest, train_state.step, metrics)
                self.progress.log(f"averaged weights: {metrics_text(metrics)}")
            self._took(train_state, "average", began)
        self.average.exchange()
        self.progress.log(f"finished ({reason}) at step {train_state.step}; checkpoints in {self.store.folder}")
        best = None if train_state.best is None else self.store.path(train_state.best)
        return TrainingResult(
            reason=reason,
            step=train_state.step,
            seconds=train_state.seconds,
            count=train_state.count,
            metrics=train_state.metrics,
            last=last,
            best=best,
            best_value=train_state.best_value,
            averaged=averaged,
            averaged_metrics=metrics,
        )

    def _save_average(self, paths: list[Path], step: int, metrics: dict[str, float]) -> Path:
        with others_waiting(self.fabric, self.options):
            if self.run.main:
                self.store.save_average(paths, {"best": None, "step": step, "metrics": metrics})
        return self.store.folder / AVERAGED

    def _metrics(self) -> dict[str, float]:
        modes = [(part, part.training) for part in self.module.modules()]
        metrics: dict[str, float] = {}
        with self.average.in_place(), gathered(self.module), self._one_or_all():
            if self.fabric.global_rank == 0 or is_sharded(self.module):
                self.module.eval()
                with torch.no_grad(), undisturbed(), autocast(self.fabric, self.options):
                    seed_everything(self.options.seed)  # the same random numbers in every validation and process
                    metrics = {name: float(value) for name, value in self.objective.validate(self.module).items()}
                for part, training in modes:
                    part.training = training
        return self.fabric.broadcast(metrics)

    def _diverged(self, train_state: TrainState, what: str) -> TrainingError:
        return TrainingError(
            f"step {train_state.step + 1}: {what}; {self._last_good()}. The weights were not changed. {_REMEDY}"
        )

    def _last_good(self) -> str:
        checkpoints = self.store.all()
        return f"the last good checkpoint is {checkpoints[-1]}" if checkpoints else "there is no checkpoint yet"


def _reason(train_state: TrainState, options: TrainingOptions) -> str | None:
    limits = {
        "max_steps": (train_state.step, options.max_steps),
        "max_epochs": (train_state.epoch, options.max_epochs),
        "time_limit": (train_state.seconds + train_state.ending(options), options.time_limit),
        "patience": (train_state.worse, options.patience),
    }
    return next((name for name, (now, limit) in limits.items() if limit is not None and now >= limit), None)


def _ahead(train_state: TrainState, options: TrainingOptions) -> tuple[float, float | None]:
    """Return the completed share of the training and the seconds left; None where they depend on the data."""
    spent = train_state.seconds + train_state.ending(options)
    shares = [
        done / limit
        for done, limit in ((train_state.step, options.max_steps), (spent, options.time_limit))
        if limit is not None
    ]
    if not shares:
        return 0.0, None
    share = min(max(shares), 1.0)
    return share, train_state.seconds * (1 - share) / max(share, 1e-9)


def _line(train_state: TrainState, learning_rate: float, norm: float) -> dict[str, Any]:
    """Return a line of the metrics about the steps of the window."""
    window = dict(train_state.window)
    total, count, seconds = window.pop("total"), window.pop("count"), window.pop("seconds")
    window.pop("steps")
    return {
        "kind": "train",
        "step": train_state.step,
        "epoch": train_state.epoch,
        "loss": total / count,
        **{name: value / count for name, value in window.items()},
        "learning_rate": learning_rate,
        "gradient_norm": norm,
        "count": train_state.count,
        "count_per_second": count / max(seconds, 1e-9),
        "seconds": train_state.seconds,
    }


@contextmanager
def _compiled(module: nn.Module) -> Iterator[None]:
    """Compile the calls of the module inside; its names and its identity stay unchanged."""
    module.compile()
    try:
        yield
    finally:
        module._compiled_call_impl = None


@contextmanager
def _metrics(run: RunFolder, options: TrainingOptions, step: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Return a function that writes a line of metrics to the run's file, and to TensorBoard if configured."""
    if not run.main:
        yield lambda line: None
        return
    board: Any = None
    if options.tensorboard:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingPackageError(
                "tensorboard is not installed. Install it with: pip install tensorboard"
            ) from error
        board = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)
    file = Metrics(run.metrics, step)

    def add(line: dict[str, Any]) -> None:
        file.add(line)
        if board is not None:
            for name, value in line.items():
                if name not in ("kind", "step"):
                    board.add_scalar(f"{line['kind']}/{name}", value, line["step"])

    try:
        yield add
    finally:
        file.close()
        if board is not None:
            board.close()
