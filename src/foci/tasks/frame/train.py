"""One training for every task, from settings to a run.

Everything is checked before a folder exists: the settings, the folder, the data, the model, and whether its longest
batch fits in memory.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from foci.data.batching import DummyBatch
from foci.data.lines import text_encoding
from foci.data.reading import logged_reading
from foci.data.word_splitter import trust
from foci.errors import CheckpointError, ConfigError, near_names
from foci.settings import build, merge, to_tables
from foci.tasks.frame import baselines
from foci.tasks.frame import config as configs
from foci.tasks.frame.held_out import FILE, Fingerprint, log_overlap
from foci.tasks.frame.init_from import check_run, take_weights
from foci.tasks.frame.predictor import asset_reader, in_memory, task_of
from foci.tasks.frame.task import Log, Shard, Splits, Suited, Task, find, silent
from foci.training import options as training_options
from foci.training.checkpoint import Checkpoints, building_within, read_state
from foci.training.deferred import Deferred
from foci.training.devices import autocast, distribute, launch_agents, launched, others_waiting, shards
from foci.training.engine import TrainingResult, run_training
from foci.training.objective import Batches, Loss
from foci.training.optim import check_rates
from foci.training.options import TrainingOptions
from foci.training.progress import duration, log_to_stderr
from foci.training.run_folder import RunFolder, begun_by_launch, check_folder, read_config

RESUMABLE = {*(f"training.{name}" for name in training_options.RESUMABLE), "data.workers"}
"""Settings that may change when a run is resumed: limits, learning rate, validation, checkpoints, and where it runs."""

BATCH_SIZES = (
    *("batch_tokens", "batch_frames", "batch_size"),
    *("max_length", "max_words", "max_source", "max_seconds", "context", "image_size"),
)
"""Settings of data that limit how large a batch is: how much it holds, how many examples, and how long they are."""


def train(
    task: str,
    settings: Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    resume: bool = False,
    log: Log | None = None,
    origin: str = "settings",
) -> TrainingResult:
    """Train a model into a folder.

    Args:
        task: the name of the task: translate, classify, memorize, …; see `foci tasks`.
        settings: tables by name, such as ``{"data": {"source": "a.en"}, "training": {"max_steps": 1000}}``; what is
            not given has a default. `foci train TASK --print-config` shows all of them.
        out: the folder of the run, new or empty.
        resume: continue the run in ``out``. Settings that are not given stay unchanged; only those in `RESUMABLE` may
            change.
        log: called with each message; Default: standard error.
        origin: where the settings come from, for error messages.

    Returns:
        How the training ended, and its metrics.

    Raises:
        ConfigError: a setting is wrong, or the folder cannot be used.
        CheckpointError: there is nothing to resume.
        DataError: the data cannot be used; the message names file and line.
        TrainingError: the training cannot continue: too little memory, or a loss that is not finite.

    Example:
        >>> import foci, tempfile
        >>> settings = {"data": {"problem": {"max_length": 2}}, "training": {"max_steps": 2}}
        >>> foci.train("memorize", settings, out=tempfile.mkdtemp(), log=lambda text: None).step
        2
    """
    out = Path(out)
    kind = find(task)
    if resume and not (out / "config.json").exists():
        raise CheckpointError(
            f"{out}: is no run (no config.json), so there is nothing to resume. Start it without resume."
        )
    given = dict(settings or {})
    if given.pop("task", task) != task:
        raise ConfigError(f"{origin}: task is {(settings or {})['task']!r}, expected {task!r}.")
    given = _with_direction(kind, given)
    data = given.get("data")
    words = data.get("words") if isinstance(data, Mapping) else getattr(data, "words", None)
    if isinstance(words, str):
        trust(str(words))
    config = resumed_config(kind, given, out, origin) if resume else configs.configure(kind.Config, given, origin)
    _check_training(kind, config.training)
    with launched(config.training) as fabric:
        launch = launch_agents(fabric)
        restarted = False
        with others_waiting(fabric, config.training):
            if fabric.global_rank == 0:
                restarted = not resume and begun_by_launch(out, launch)
                check_folder(out, resume=resume or restarted)
        if fabric.broadcast(restarted):
            resume, config = True, resumed_config(kind, given, out, origin)
        begun = resume and bool(Checkpoints(out / "checkpoints").all())
        if config.training.init_from is not None and not begun:
            check_run(config.training.init_from, kind)
        log = log if fabric.global_rank == 0 else silent
        return _train(kind(config), None if resume else given, out, resume, launch, fabric, log)


def resumed_config(kind: type[Task], given: Mapping[str, Any], out: Path, origin: str) -> Any:
    """Return the run's configuration with what is given, if all of it may change."""
    before = read_config(out)
    if before.pop("task", None) != kind.name:
        raise CheckpointError(f"{out}: is not a run of {kind.name}. Name the folder of one.")
    old = to_tables(task_of(out).config)
    config = build(kind.Config, merge(kind.Config, old, _without_auto(given, old)), origin)
    for path, was, now in configs.changes(old, to_tables(config)):
        if path not in RESUMABLE | {*kind.resumable}:
            raise ConfigError(
                f"{origin}: {path} is {now!r}, but the run was begun with {was!r}, and its weights or its data depend "
                f"on it. Leave it as it was, or start a new run in another folder. What may change on resuming: "
                f"{', '.join(sorted(RESUMABLE | {*kind.resumable}))}."
            )
    return config


def _without_auto(given: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that are "auto" where the training has chosen a value, which stays."""
    kept = {}
    for name, value in given.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = _without_auto(value, before)
        if not (isinstance(value, str) and value in ("auto", '"auto"') and name in old):
            kept[name] = value
    return kept


def _with_direction(kind: type[Task], given: dict[str, Any]) -> dict[str, Any]:
    """Set the direction of the metric that selects the best checkpoint, where only the metric is given."""
    training = given.get("training")
    if not isinstance(training, Mapping) or "greater_is_better" in training:
        return given
    direction = kind.metrics.get(str(training.get("metric_for_best_model")))
    return given if direction is None else configs.put(given, {"training.greater_is_better": direction == "higher"})


def _check_training(kind: type[Task], options: TrainingOptions) -> None:
    best = options.metric_for_best_model
    if options.eval_every is not None and best is not None:
        if best not in kind.metrics:
            raise ConfigError(
                f"training.metric_for_best_model is {best!r}, which the validation of {kind.name} does not give. "
                f"{near_names(best, kind.metrics)}"
            )
        if options.greater_is_better != (kind.metrics[best] == "higher"):
            raise ConfigError(
                f"training.greater_is_better is {str(options.greater_is_better).lower()}, but {best} is better when it "
                f"is {kind.metrics[best]}. Leave the setting out."
            )
    if options.average_last > 1 and options.save_every is None:
        raise ConfigError(
            f"training.average_last is {options.average_last}, but training.save_every is not set: averaged are the "
            "checkpoints at equal intervals. Set training.save_every."
        )
    if options.tensorboard:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise ConfigError("training.tensorboard needs tensorboard. Install it: pip install tensorboard") from error


def _train(
    task: Task,
    given: Mapping[str, Any] | None,
    out: Path,
    resume: bool,
    launch: Sequence[str],
    fabric: Fabric,
    given_log: Log | None,
) -> TrainingResult:
    log = given_log or log_to_stderr
    main = fabric.global_rank == 0
    with text_encoding(task.encoding), logged_reading("reading the data", log):
        splits = task.read(log)
    if given is not None:
        task.config = _suited(task, splits, given, log)
    options: TrainingOptions = task.config.training
    if options.max_steps is not None and options.warmup > options.max_steps:
        log(
            f"warning: training.warmup is {options.warmup:,}, but training.max_steps {options.max_steps:,}: the rate "
            f"only reaches {options.max_steps / options.warmup:.0%} of training.learning_rate. Lower training.warmup."
        )
    log(preparing := "preparing the data")
    with logged_reading(preparing, log):
        assets = _assets(task, splits, out if resume else None, fabric, log)
    checkpoints = Checkpoints(out / "checkpoints").all() if resume else []
    model = _built(task, assets, checkpoints, fabric, log)
    batches = task.batches(splits, assets, Shard(fabric.global_rank, fabric.world_size), log)
    objective = _Objective(task, task.held_out(splits, assets, log))
    if resume:
        _check_same_data(out, batches)
    with logged_reading("digests of the data", log), others_waiting(fabric, options):
        files = _files(task, splits, assets, out, log) if main else {}
    seconds = _try_longest_batch(task, model, batches, fabric)
    log(_summary(model, options, batches, seconds))
    tables = {"task": task.name, **to_tables(task.config)}
    hint = f"foci train {task.name} --resume --out {shlex.quote(str(out))}"
    with RunFolder(out, tables, files=files, resume=resume, main=main, launch=launch, resume_hint=hint, log=log) as run:
        try:
            fabric.barrier()
            result = run_training(model, objective, batches, options, run, fabric=fabric, unit=task.unit, log=given_log)
            if main and result.reason != "interrupted":
                _log_calibration(result, task.chance(objective.held_out), log)
            return result
        except BaseException:
            run.remove_if_unused()
            raise


def _built(task: Task, assets: Any, checkpoints: Sequence[Path], fabric: Fabric, log: Log) -> nn.Module:
    """Return the model, in shards if it is trained so; with initial weights if it has no checkpoints to go on from."""
    options: TrainingOptions = task.config.training
    torch.manual_seed(options.seed)
    deferred = Deferred() if shards(fabric) else None
    bounded = building_within(checkpoints) if checkpoints else nullcontext()
    with in_memory(lambda: "the model", "Lower the sizes of the model."):
        with deferred or nullcontext():
            with bounded:
                model = task.model(assets)
            check_rates(model, options)
            if not checkpoints:
                task.initialize(model, assets, log)
                if options.init_from is not None:
                    take_weights(task, model, assets, log)
        return model if deferred is None else distribute(fabric, model, deferred)


def _files(task: Task, splits: Splits, assets: Any, out: Path, log: Log) -> dict[str, bytes]:
    """Return the contents of the files of a run beside its configuration."""
    fingerprint = Fingerprint.from_splits(task, splits)
    log_overlap(fingerprint, out, log)
    counted = task.count_baselines(splits)
    texts = {**assets.to_files(), **({baselines.FILE: json.dumps(counted, ensure_ascii=False)} if counted else {})}
    return {FILE: fingerprint.to_bytes(), **{name: text.encode() for name, text in texts.items()}}


def _log_calibration(result: TrainingResult, chance: float | None, log: Log) -> None:
    """Log what the temperature does for the probabilities of the checkpoint that predicts."""
    chosen = result.averaged or result.best
    metrics = {} if chosen is None else read_state(chosen).get("metrics", {})
    if chance is None or not {"loss", "calibrated_loss"} <= metrics.keys():
        return
    temperature, before, after = (
        f"{metrics[name]:.3g}" for name in ("calibration/temperature", "loss", "calibrated_loss")
    )
    worse = f" (worse than the {chance:.3g} of equal probabilities)" if metrics["loss"] > chance else ""
    log(
        f"probabilities of {chosen.name if chosen else ''} are calibrated on the validation data, by temperature "
        f"{temperature}: loss {before}{worse} before, {after} after it"
    )


def _suited(task: Task, splits: Splits, given: Mapping[str, Any], log: Log) -> Any:
    """Return the configuration with what suits the data where nothing was given, and log each such setting."""
    tables = to_tables(task.config)
    given = {name: to_tables(table) if is_dataclass(table) else table for name, table in given.items()}
    for path, (value, reason) in {**_warmup_that_fits(task.config.training), **task.suited(splits)}.items():
        if not configs.has(given, path):
            log(f"{path} = {configs.to_toml(value)}: {reason}")
            tables = configs.put(tables, {path: value})
    return build(task.Config, tables, "settings that suit the data")


def _warmup_that_fits(options: TrainingOptions) -> dict[str, Suited]:
    """Return a shorter warm-up than the usual one if the training would end before it."""
    steps = options.max_steps
    if steps is None or options.warmup <= steps:
        return {}
    reason = f"a tenth of training.max_steps = {steps:,}, which is less than the usual warm-up of {options.warmup:,}"
    return {"training.warmup": Suited(max(1, steps // 10), reason)}


def _assets(task: Task, splits: Splits, run: Path | None, fabric: Fabric, log: Log) -> Any:
    """Return the assets of the run that is resumed; or new ones, made by the first process and sent to the others."""
    if run is not None:
        return task.Assets.from_files(asset_reader(run))
    if fabric.world_size == 1:
        return task.assets(splits, log)
    with others_waiting(fabric, task.config.training):
        files = dict(task.assets(splits, log).to_files()) if fabric.global_rank == 0 else {}
    files = fabric.broadcast(files)
    return task.Assets.from_files(files.__getitem__)


def _check_same_data(out: Path, batches: Batches) -> None:
    """Raise if the data is not that of the newest checkpoint, before anything is written."""
    checkpoints = Checkpoints(out / "checkpoints").all()
    try:
        data = read_state(checkpoints[-1])["data"] if checkpoints else None
    except (CheckpointError, KeyError):  # damaged: `fit` takes an older one, and reports it
        return
    if data is not None:
        beginning = batches.state_dict()
        batches.load_state_dict(data)
        batches.load_state_dict(beginning)


@dataclass(frozen=True)
class _Objective:
    """A task with the interface of the training loop."""

    task: Task
    held_out: Any

    def begin_step(self, step: int) -> None:
        self.task.begin_step(step)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if not isinstance(batch, DummyBatch):
            return self.task.loss(model, batch)
        loss = self.task.loss(model, batch.row)
        return Loss(0 * loss.total, 0 * loss.count, {name: 0 * value for name, value in loss.metrics.items()})

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        return self.task.validate(model, self.held_out)


def _try_longest_batch(task: Task, model: nn.Module, batches: Batches, fabric: Fabric) -> float | None:
    """Run the longest batch forward and backward; return the seconds it took, None where no longest one is known.

    Weights and buffers are unchanged afterwards; random generators are seeded again when the training starts.
    """
    largest = getattr(batches, "largest", None)
    if largest is None:
        return None
    batch = fabric.to_device(largest())
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    model.to(fabric.device).train()
    sizes = (str(tuple(part.shape)) for part in batch if isinstance(part, torch.Tensor))
    remedy = f"Lower {', '.join([*_batch_sizes(task.config), 'or the sizes of the model'])}."
    try:
        with in_memory(lambda: f"the longest batch, of tensors {', '.join(sizes)},", remedy):
            for _ in range(2):  # the first pass also builds kernels
                started = time.perf_counter()
                with autocast(fabric, task.config.training):
                    loss = task.loss(model, batch)
                loss.total.backward()
                seconds = time.perf_counter() - started
    finally:
        model.zero_grad(set_to_none=True)
        for name, value in model.named_buffers():
            value.copy_(buffers[name])
    return seconds


def _batch_sizes(config: Any) -> list[str]:
    """Return the settings of a task that its batches become smaller by."""
    data = getattr(config, "data", None)
    return [f"data.{name}" for name in BATCH_SIZES if getattr(data, name, None) is not None]


def _summary(model: nn.Module, options: TrainingOptions, batches: Batches, seconds: float | None) -> str:
    """Return one line about the model, the steps and the expected time."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    per_epoch: int | None = getattr(batches, "batches_per_epoch", None)
    steps = [options.max_steps] if options.max_steps is not None else []
    if options.max_epochs is not None and per_epoch is not None:
        steps.append(max(1, options.max_epochs * per_epoch // options.gradient_accumulation_steps))
    name = type(model).__name__.removeprefix("FSDP")  # of the class that a model in shards is given
    parts = [f"{name} with {parameters:,} parameters"]
    if steps:
        parts.append(f"at most {min(steps):,} step{'s' * (min(steps) > 1)}")
    if per_epoch is not None:
        parts.append(f"{per_epoch:,} batch{'es' * (per_epoch > 1)} per epoch")
    expected = [] if seconds is None or not steps else [min(steps) * seconds * options.gradient_accumulation_steps]
    expected += [] if options.time_limit is None else [options.time_limit]
    if expected:
        parts.append(f"up to about {duration(min(expected))} on {next(model.parameters()).device}")
    return "; ".join(parts)
