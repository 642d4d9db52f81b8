"""The training loop: one for all tasks, on one device or many.

The gradient of a step is that of

    Σ total / Σ count

over all batches of the step and all processes, whatever their sizes: two processes on half batches, or two
accumulated half batches, learn what one process learns from whole ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed
from jaxtyping import Float
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from foci.errors import CheckpointError, ConfigError, MissingPackageError, TrainingError
from foci.training.checkpoint import Checkpoints, Saved, load, load_weights
from foci.training.devices import gathered, is_sharded, launch, spread, synchronised
from foci.training.interrupts import Interrupts
from foci.training.optim import make_optimiser, rate, set_rate
from foci.training.options import TrainingOptions
from foci.training.progress import Progress, figures_text, make_progress
from foci.training.randomness import random_state, restore_random_state, seed_everything, undisturbed
from foci.training.run_folder import Metrics, RunFolder
from foci.training.tensors import optimiser_tensors, put_optimiser_tensors, put_weights, weights


@dataclass(frozen=True)
class Loss:
    """What a batch says: ``total / count`` is made small. ``figures`` are sums too, and reported divided by ``count``.

    ``count`` is that of the tokens, cells or examples that were summed over.
    """

    total: Float[Tensor, ""]
    count: int | Tensor
    figures: Mapping[str, float | Tensor] = field(default_factory=dict)


@runtime_checkable
class Objective(Protocol):
    """What is trained. While `fit` runs, ``model`` is the model as it is spread over the processes: call it."""

    model: nn.Module

    def loss(self, batch: Any) -> Loss:
        """Run ``self.model`` on a batch. Every batch gives the same figures."""

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Figures of the held-out set, without gradients, the model in evaluation mode.

        Runs on the first process alone; a sharded model runs on all of them, the same data with the same random
        numbers, and must not call other processes itself.
        """


@runtime_checkable
class Batches(Protocol):
    """An endless stream of this process's share of each batch, which knows where it stands.

    A batch is a tensor, a tuple, list or dict of such, or anything with a method ``to(device)``. The state is plain
    JSON and the same on each process. Its ``epoch``, if it has one, counts the epochs that are over: it has moved on
    once the last batch of an epoch has been handed out.
    """

    def __iter__(self) -> Iterator[Any]:
        """The batches from the present position on."""

    def state_dict(self) -> dict[str, Any]:
        """The present position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""


@dataclass
class Standing:
    """How far a run has come; it is saved with every checkpoint.

    ``best`` is the step of the best validation, ``worse`` the number of validations since; ``window`` sums up what
    the next line of the metrics will tell.
    """

    step: int = 0
    epoch: int = 0
    count: int = 0
    seconds: float = 0.0
    best: int | None = None
    best_value: float | None = None
    worse: int = 0
    validated: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    window: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """How a training ended.

    ``reason`` is max_steps, max_epochs, time_limit, patience or interrupted. ``figures`` are those of the last
    validation, ``averaged_figures`` those of the averaged weights.
    """

    reason: str
    step: int
    seconds: float
    count: int
    figures: dict[str, float]
    last: Path
    best: Path | None
    best_value: float | None
    averaged: Path | None
    averaged_figures: dict[str, float]


def fit(
    objective: Objective,
    batches: Batches,
    options: TrainingOptions,
    run: RunFolder,
    *,
    fabric: Fabric | None = None,
    unit: str = "tokens",
) -> Summary:
    """Train until something in ``options`` says stop, going on from the run's newest checkpoint if it has one.

    Arguments:
        objective: the model with its loss and its validation; its model ends with the last weights.
        batches: the data, this process's share of it.
        run: where checkpoints and metrics go.
        fabric: this process's place, from `launch`; one is made if none is given.
        unit: what ``count`` counts, for the user's eyes.
    """
    fabric = fabric or launch(options)
    with ExitStack() as stack:
        progress = make_progress(options, unit, main=run.main)
        stack.callback(progress.close)
        trainer = _Trainer(objective, batches, options, run, fabric, progress)
        standing = trainer.restore()
        interrupts = stack.enter_context(Interrupts())
        if options.compile:
            stack.enter_context(_compiled(trainer.module))
        stack.enter_context(_swapped(objective, trainer.model))
        metrics = stack.enter_context(_metrics(run, options, standing.step))
        trainer.module.train()
        stream = iter(batches)
        reason = _reason(standing, options, interrupted=False)
        started, saved_at = time.monotonic() - standing.seconds, time.monotonic()

        while reason is None:
            sums = trainer.gradient(stream)
            now = time.monotonic()
            due = now - saved_at >= (options.checkpoint_seconds or math.inf)
            sums, asked, due, seconds = trainer.meet(sums, interrupts.asked, due, now - started)
            learning_rate = rate(standing.step + 1, options)
            norm = trainer.update(standing, sums, learning_rate)

            standing.step += 1
            standing.count += round(sums["count"])
            standing.epoch = batches.state_dict().get("epoch", 0)
            for name, value in (sums | {"steps": 1, "seconds": seconds - standing.seconds}).items():
                standing.window[name] = standing.window.get(name, 0.0) + value
            standing.seconds = seconds
            speed = sums["count"] / max(standing.window["seconds"] / standing.window["steps"], 1e-9)
            share, left = _ahead(standing, options)
            progress.show(standing.step, share, sums["total"] / sums["count"], speed, left)
            if standing.step % options.metrics_every == 0:
                metrics(_line(standing, learning_rate, norm))
                standing.window = {}

            reason = _reason(standing, options, interrupted=asked)
            ending = reason is not None and reason != "interrupted"
            better = False
            if options.valid_every is not None and (standing.step % options.valid_every == 0 or ending):
                better = trainer.validate(standing)
                metrics({"kind": "valid", "step": standing.step, **standing.figures})
                reason = reason or _reason(standing, options, interrupted=False)
            at_step = options.checkpoint_every is not None and standing.step % options.checkpoint_every == 0
            if better or due or at_step or reason is not None:
                trainer.save(standing)
                saved_at = time.monotonic()
        return trainer.finish(standing, reason)


class _Trainer:
    """The parts of a step; all of them run on every process, since most of them talk to the others."""

    def __init__(
        self,
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
                "state_dict() tell how many epochs are over."
            )
        seed_everything(options.seed + fabric.global_rank)
        self.module = objective.model
        self.model = spread(fabric, self.module)
        self.optimiser = make_optimiser(self.module, options)
        self.store = Checkpoints(run.checkpoints, keep_last=max(options.keep_last, options.average_last))

    def restore(self) -> Standing:
        """Load the newest good checkpoint, if there is one."""
        path: Path | None = None
        if self.run.main:
            self.store.tidy()
            path = self.store.newest_good(self.progress.say)
        path = self.fabric.broadcast(path)
        if path is None:
            return Standing()
        saved = load(path)
        put_weights(self.module, saved.model, path)
        put_optimiser_tensors(self.module, self.optimiser, saved.optimiser, path)
        try:
            standing = Standing(**saved.state["standing"])
        except TypeError as error:
            raise CheckpointError(f"{path}: is of another version of foci ({error}). Use that one.") from error
        self.batches.load_state_dict(saved.state["data"])
        mine = f"{self.fabric.global_rank}/"
        numbers = {k.removeprefix(mine): v for k, v in saved.random.items() if k.startswith(mine)}
        if numbers:  # none: this process had no counterpart when the checkpoint was written, and keeps its fresh seed
            restore_random_state(numbers)
        self.progress.say(f"going on from {path}, step {standing.step}")
        return standing

    def gradient(self, stream: Iterator[Any]) -> dict[str, float]:
        """Leave the gradient of the summed totals in the parameters; gives what this process summed."""
        options, world = self.options, self.fabric.world_size
        sums: dict[str, float] = {"total": 0.0, "count": 0.0}
        self.optimiser.zero_grad(set_to_none=True)
        for index in range(options.accumulate):
            batch = self.fabric.to_device(next(stream))
            with synchronised(self.model, now=index == options.accumulate - 1):
                with self._autocast():
                    loss = self.objective.loss(batch)
                (loss.total * world).backward()  # the processes' gradients are averaged, but are to be summed
            for name, value in {"total": loss.total.detach(), "count": loss.count, **loss.figures}.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def meet(
        self, sums: dict[str, float], asked: bool, due: bool, seconds: float
    ) -> tuple[dict[str, float], bool, bool, float]:
        """The sums over all processes, each flag if any process has set it, and the first one's clock.

        Each process has its own clock and its own signals, and all must come to the same decisions.
        """
        if self.fabric.world_size == 1:
            return sums, asked, due, seconds
        clock = seconds if self.fabric.global_rank == 0 else 0.0
        together = torch.tensor([*sums.values(), asked, due, clock], dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(together)
        *values, asked_by, due_by, clock = together.tolist()
        return dict(zip(sums, values)), asked_by > 0, due_by > 0, clock

    def update(self, standing: Standing, sums: dict[str, float], learning_rate: float) -> float:
        """Divide the gradient by the count, shorten it, and step. Gives its length before it was shortened."""
        total, count = sums["total"], sums["count"]
        if not math.isfinite(total):
            raise self._diverged(standing, f"the loss is {total}")
        if not count > 0:
            raise TrainingError(f"step {standing.step + 1}: the count of the batch is {count:g}, expected above 0.")
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        length = torch.nn.utils.get_total_norm(gradients)
        norm = float(length.full_tensor() if isinstance(length, DTensor) else length) / count
        if not math.isfinite(norm):
            raise self._diverged(standing, f"the loss is {total / count:.4g}, but its gradient {norm}")
        clip = self.options.clip
        torch._foreach_mul_(gradients, (1.0 if clip is None else min(1.0, clip / (norm + 1e-6))) / count)
        set_rate(self.optimiser, learning_rate)
        self.optimiser.step()
        return norm

    def validate(self, standing: Standing) -> bool:
        """Note the figures of the held-out set; gives whether they are the best so far."""
        options = self.options
        standing.figures, standing.validated = self._figures(), standing.step
        self.progress.say(f"step {standing.step}: validation: {figures_text(standing.figures)}")
        if options.keep_best is None:
            return False
        if options.keep_best not in standing.figures:
            raise ConfigError(
                f"fit: keep_best is {options.keep_best!r}, but the validation gives {', '.join(standing.figures)}."
            )
        value, best = standing.figures[options.keep_best], standing.best_value
        better = not math.isnan(value) and (
            best is None or (value > best if options.higher_is_better else value < best)
        )
        if better:
            standing.best, standing.best_value, standing.worse = standing.step, value, 0
        else:
            standing.worse += 1
        return better

    def save(self, standing: Standing) -> None:
        """Write a checkpoint."""
        model, ties = weights(self.module)
        optimiser = optimiser_tensors(self.module, self.optimiser)
        numbers: list[dict[str, Tensor]] = [random_state()]
        if self.fabric.world_size > 1:
            numbers = [{} for _ in range(self.fabric.world_size)]
            torch.distributed.all_gather_object(numbers, random_state())
        if self.run.main:
            random = {f"{rank}/{name}": value for rank, state in enumerate(numbers) for name, value in state.items()}
            state = {
                "best": standing.best,
                "step": standing.step,
                "standing": asdict(standing),
                "data": self.batches.state_dict(),
            }
            self.store.save(standing.step, Saved(model, ties, optimiser, random, state))
        self.fabric.barrier()

    def finish(self, standing: Standing, reason: str) -> Summary:
        """Average the weights if asked to, and say how it ended."""
        last = self.store.path(standing.step)
        averaged, figures = None, {}
        if reason == "interrupted":
            self.progress.say(
                f"interrupted at step {standing.step}; saved as {last}. To go on: {self.run.resume_hint}."
            )
        elif self.options.average_last > 1:
            if self.run.main:
                newest = self.store.all()[-self.options.average_last :]
                self.store.save_average(newest, {"best": None, "step": standing.step})
            self.fabric.barrier()
            averaged = self.store.folder / "averaged"
            if self.options.valid_every is not None:
                load_weights(self.module, averaged)
                figures = self._figures()
                load_weights(self.module, last)
                self.progress.say(f"averaged weights: {figures_text(figures)}")
        self.progress.say(f"finished ({reason}) at step {standing.step}; checkpoints in {self.store.folder}")
        best = None if standing.best is None else self.store.path(standing.best)
        return Summary(
            reason=reason,
            step=standing.step,
            seconds=standing.seconds,
            count=standing.count,
            figures=standing.figures,
            last=last,
            best=best,
            best_value=standing.best_value,
            averaged=averaged,
            averaged_figures=figures,
        )

    def _figures(self) -> dict[str, float]:
        modes = [(part, part.training) for part in self.module.modules()]
        figures: dict[str, float] = {}
        with gathered(self.module):
            if self.fabric.global_rank == 0 or is_sharded(self.module):
                self.module.eval()
                with torch.no_grad(), undisturbed(), self._autocast():
                    seed_everything(self.options.seed)  # every validation, and every process, draws the same
                    figures = {name: float(value) for name, value in self.objective.validate(self.module).items()}
                for part, training in modes:
                    part.training = training
            figures = self.fabric.broadcast(figures)
        return figures

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.fabric.device.type, dtype=torch.bfloat16, enabled=self.options.precision == "bfloat16"
        )

    def _diverged(self, standing: Standing, what: str) -> TrainingError:
        checkpoints = self.store.all()
        last = f"the last good checkpoint is {checkpoints[-1]}" if checkpoints else "there is no checkpoint yet"
        return TrainingError(
            f"step {standing.step + 1}: {what}; {last}. The weights were not touched. Lower the learning rate, warm up "
            "for longer, clip harder, or look for damaged data."
        )


def _reason(standing: Standing, options: TrainingOptions, *, interrupted: bool) -> str | None:
    if interrupted:
        return "interrupted"
    limits = {
        "max_steps": (standing.step, options.max_steps),
        "max_epochs": (standing.epoch, options.max_epochs),
        "time_limit": (standing.seconds, options.time_limit),
        "patience": (standing.worse, options.patience),
    }
    return next((name for name, (now, limit) in limits.items() if limit is not None and now >= limit), None)


def _ahead(standing: Standing, options: TrainingOptions) -> tuple[float, float | None]:
    """The share of the training that is done, and the seconds left; None where only the data knows."""
    shares = [
        done / limit
        for done, limit in ((standing.step, options.max_steps), (standing.seconds, options.time_limit))
        if limit is not None
    ]
    if not shares:
        return 0.0, None
    share = min(max(shares), 1.0)
    return share, standing.seconds * (1 - share) / max(share, 1e-9)


def _line(standing: Standing, learning_rate: float, norm: float) -> dict[str, Any]:
    """A line of the metrics about the steps of the window."""
    window = dict(standing.window)
    total, count, seconds = window.pop("total"), window.pop("count"), window.pop("seconds")
    window.pop("steps")
    return {
        "kind": "train",
        "step": standing.step,
        "epoch": standing.epoch,
        "loss": total / count,
        **{name: value / count for name, value in window.items()},
        "learning_rate": learning_rate,
        "gradient_norm": norm,
        "count": standing.count,
        "count_per_second": count / max(seconds, 1e-9),
        "seconds": standing.seconds,
    }


@contextmanager
def _swapped(objective: Objective, model: nn.Module) -> Iterator[None]:
    """The objective calls the spread model inside, and has its own back afterwards."""
    own, objective.model = objective.model, model
    try:
        yield
    finally:
        objective.model = own


@contextmanager
def _compiled(module: nn.Module) -> Iterator[None]:
    """Calls of the module are compiled inside; its names and its identity stay as they are."""
    module.compile()
    try:
        yield
    finally:
        module._compiled_call_impl = None


@contextmanager
def _metrics(run: RunFolder, options: TrainingOptions, step: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What to call with each line of metrics: writes it to the run's file, and for TensorBoard if asked to."""
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
