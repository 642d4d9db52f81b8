import io
import os
import shutil
import signal
import sys
import warnings

import pytest
import torch
from small_training import Fitting, Numbers, make, weights_digest

from foci.errors import ConfigError, MissingPackageError, TrainingError
from foci.training.checkpoint import Checkpoints, load, load_weights
from foci.training.engine import run_training
from foci.training.objective import Loss
from foci.training.options import TrainingOptions
from foci.training.progress import Bar, Lines, make_progress
from foci.training.run_folder import RunFolder, read_metrics

BASE = {"metrics_every": 2, "eval_every": 4, "learning_rate": 0.01, "device": "cpu", "save_every": 3}


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Flushing is for power cuts, which no test makes, and takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def train(path, *, dropout=0.0, at_loss=None, parts=1, resume=False, batches=None, **options):
    objective = Fitting(dropout, at_loss)
    with RunFolder(path, {}, resume=resume) as run:
        summary = run_training(
            objective.model, objective, batches or Numbers(parts=parts), TrainingOptions(**{**BASE, **options}), run
        )
    return objective, summary


def curve(path):
    """The metrics without times."""
    clock = ("seconds", "count_per_second")
    lines = read_metrics(path / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in clock} for line in lines]


def test_a_plain_loop_learns_the_same(tmp_path):
    objective, summary = train(
        tmp_path, max_steps=9, max_grad_norm=0.2, schedule="inverse_sqrt", warmup=3, lr_multipliers={"bias": 0.5}
    )
    plain = Fitting()
    weights, biases = ([p for p in plain.model.parameters() if p.dim() == axes] for axes in (2, 1))
    groups = [{"params": weights, "share": 1.0}, {"params": biases, "share": 0.5}]
    optimizer = torch.optim.Adam(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    stream = iter(Numbers())
    for step in range(1, 10):
        optimizer.zero_grad()
        loss = plain.loss(plain.model, next(stream))
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 0.2)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (step / 3 if step < 3 else (3 / step) ** 0.5) * group["share"]
        optimizer.step()
    for one, other in zip(objective.model.parameters(), plain.model.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert (summary.reason, summary.step) == ("max_steps", 9)
    assert summary.metrics["loss"] < 1
    assert summary.metrics["training"] == 0
    assert objective.model.training
    assert summary.count == sum(int(make(i, 13)[2].sum()) for i in range(9))


def test_accumulated_parts_equal_whole_batches(tmp_path):
    whole, _ = train(tmp_path / "whole", max_steps=12)
    parts, _ = train(tmp_path / "parts", max_steps=12, gradient_accumulation_steps=3, parts=3)
    for one, other in zip(whole.model.parameters(), parts.model.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    for one, other in zip(curve(tmp_path / "whole"), curve(tmp_path / "parts"), strict=True):
        assert one.pop("kind") == other.pop("kind")
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("moving_average", [0.0, 0.8])
@pytest.mark.parametrize("cut", [1, 4, 7, 11])  # 11: the last step, before its validation
def test_resuming_is_bit_for_bit(tmp_path, cut, moving_average):
    options = {"dropout": 0.3, "gradient_accumulation_steps": 2, "schedule": "inverse_sqrt", "warmup": 5}
    options["moving_average"] = moving_average
    whole, summary = train(tmp_path / "whole", max_steps=11, **options)

    def stop(calls, loss):
        if calls == 2 * cut:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss

    _, first = train(tmp_path / "cut", max_steps=11, at_loss=stop, **options)
    assert (first.reason, first.step) == ("interrupted", cut)
    torch.manual_seed(99)
    assert not (cut == 11 and first.metrics == summary.metrics)
    resumed, second = train(tmp_path / "cut", max_steps=11, resume=True, **options)
    assert weights_digest(whole.model) == weights_digest(resumed.model)
    assert curve(tmp_path / "whole") == curve(tmp_path / "cut")
    assert (second.metrics, second.count, second.best_value) == (summary.metrics, summary.count, summary.best_value)
    assert second.best.name == summary.best.name
    assert load(second.last).state["metrics"] == summary.metrics


@pytest.mark.parametrize("moving_average", [0.0, 0.8])
def test_validating_and_saving_change_nothing(tmp_path, moving_average):
    options = {"max_steps": 9, "dropout": 0.3, "moving_average": moving_average}
    often, _ = train(tmp_path / "often", **options, eval_every=1, save_every=1)
    never, summary = train(tmp_path / "never", **options, eval_every=None, save_every=None)
    assert weights_digest(often.model) == weights_digest(never.model)
    assert summary.metrics == {}
    assert summary.best is None


def test_interrupt_says_how_to_go_on(tmp_path, capsys):
    def stop(calls, loss):
        if calls == 5:
            signal.raise_signal(signal.SIGINT)
        return loss

    before = signal.getsignal(signal.SIGINT)
    _, summary = train(tmp_path, max_steps=50, at_loss=stop)
    assert summary.step == 5
    assert summary.last.name == "step-00000005"
    assert "interrupted at step 5; saved as" in (said := capsys.readouterr().err)
    assert "To go on: start the same run again with resume" in said
    assert signal.getsignal(signal.SIGINT) is before


def test_second_interrupt_is_at_once(tmp_path):
    def insist(calls, loss):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return loss

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, max_steps=50, at_loss=insist)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_divergence_stops_before_the_weights_are_touched(tmp_path, wrong):
    def diverge(calls, loss):
        return Loss(loss.total * wrong, loss.count, loss.metrics) if calls == 6 else loss

    with pytest.raises(TrainingError) as error:
        train(tmp_path, max_steps=50, at_loss=diverge)
    message = str(error.value)
    assert f"step 6: the loss is {wrong};" in message
    assert str(tmp_path / "checkpoints" / "step-00000004") in message  # the best validation so far
    assert "Lower the learning rate" in message
    resumed, _ = train(tmp_path, max_steps=6, resume=True)
    whole, _ = train(tmp_path / "whole", max_steps=6)
    assert weights_digest(whole.model) == weights_digest(resumed.model)


@pytest.mark.parametrize("step", [1, 3])
def test_divergence_before_the_first_line_of_metrics_keeps_completed_steps(tmp_path, step):
    def diverge(calls, loss):
        return Loss(loss.total * float("nan"), loss.count, loss.metrics) if calls == step else loss

    objective = Fitting(at_loss=diverge)
    with RunFolder(tmp_path / "run", {}) as run:
        with pytest.raises(TrainingError, match=f"step {step}: the loss is nan"):
            run_training(objective.model, objective, Numbers(), TrainingOptions(max_steps=9, device="cpu"), run)
        run.remove_if_unused()
    assert (tmp_path / "run").exists() == (step > 1)


def test_gradient_that_is_no_number(tmp_path):
    def diverge(calls, loss):
        bad = torch.sqrt(loss.total * 0) if calls == 2 else 0  # 0, with an infinite slope
        return Loss(loss.total + bad, loss.count, loss.metrics)

    with pytest.raises(TrainingError, match="step 2: the loss is .*, but its gradient nan; there is no checkpoint yet"):
        train(tmp_path, max_steps=50, at_loss=diverge)


def test_empty_batch_of_targets(tmp_path):
    with pytest.raises(TrainingError, match="step 1: the count of the batch is 0"):
        train(tmp_path, max_steps=5, at_loss=lambda calls, loss: Loss(loss.total, 0))


def with_validations(objective, values):
    values = iter(values)
    objective.validate = lambda model: {"score": next(values)}
    return objective


def test_patience_and_best(tmp_path):
    objective = with_validations(Fitting(), [float("nan"), 3.0, 2.0, 1.0, 2.5])
    options = TrainingOptions(
        **BASE | {"eval_every": 2, "save_every": None},
        patience=3,
        metric_for_best_model="score",
        greater_is_better=True,
    )
    with RunFolder(tmp_path, {}) as run:
        summary = run_training(objective.model, objective, Numbers(), options, run)
    assert (summary.reason, summary.step, summary.best_value) == ("patience", 10, 3.0)
    assert summary.best == tmp_path / "checkpoints" / "step-00000004"
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["step-00000004", "step-00000010"]
    with RunFolder(tmp_path, {}, resume=True) as run:  # it is over, and stays so
        assert run_training(objective.model, objective, Numbers(), options, run).step == 10


def test_best_by_an_unknown_figure(tmp_path):
    with pytest.raises(ConfigError, match="metric_for_best_model is 'bleu', but the validation gives loss, training"):
        train(tmp_path, max_steps=4, metric_for_best_model="bleu")


def test_epochs(tmp_path):
    _, summary = train(tmp_path, max_epochs=2)
    assert (summary.reason, summary.step) == ("max_epochs", 14)


def test_epochs_of_batches_that_count_none(tmp_path):
    batches = Numbers()
    batches.state_dict = lambda: {"position": batches.position}
    with pytest.raises(ConfigError, match="has no 'epoch'"):
        train(tmp_path, max_epochs=2, batches=batches)


def test_time_limit_counts_all_sittings(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("foci.training.engine.time.monotonic", lambda: now[0])

    def tick(calls, loss):
        now[0] += 10
        return loss

    _, summary = train(tmp_path, time_limit=55.0, at_loss=tick)
    assert (summary.reason, summary.step, summary.seconds) == ("time_limit", 6, 60.0)
    _, summary = train(tmp_path, time_limit=85.0, at_loss=tick, resume=True)
    assert (summary.step, summary.seconds) == (9, 90.0)


def test_the_last_validation_is_within_the_time(tmp_path, monkeypatch):
    """Steps take 10 seconds and validations 15, which are left for the last one."""
    now = [0.0]
    monkeypatch.setattr("foci.training.engine.time.monotonic", lambda: now[0])

    def tick(calls, loss):
        now[0] += 10
        return loss

    objective = Fitting(at_loss=tick)

    def validate(model):
        now[0] += 15
        return {"loss": 1.0}

    objective.validate = validate
    options = TrainingOptions(**{**BASE, "eval_every": 3, "save_every": None}, time_limit=102.0)
    with RunFolder(tmp_path, {}) as run:
        summary = run_training(objective.model, objective, Numbers(), options, run)
    assert (summary.reason, summary.step, summary.seconds) == ("time_limit", 6, 90.0)
    assert load(summary.last).state["train_state"]["seconds"] == 90.0
    with RunFolder(tmp_path, {}, resume=True) as run:  # it is over, and stays so
        assert run_training(objective.model, objective, Numbers(), options, run).step == 6


def test_a_schedule_ends_when_the_time_ends_also_in_a_second_sitting(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("foci.training.engine.time.monotonic", lambda: now[0])

    def tick(calls, loss):
        now[0] += 10
        return loss if now[0] != 40 else interrupt(loss)

    def interrupt(loss):
        os.kill(os.getpid(), signal.SIGINT)
        return loss

    limits = {"time_limit": 100.0, "schedule": "linear", "learning_rate": 0.01, "metrics_every": 1}
    _, summary = train(tmp_path, **limits, at_loss=tick)
    assert summary.reason == "interrupted"
    _, summary = train(tmp_path, **limits, at_loss=tick, resume=True)
    assert (summary.reason, summary.step) == ("time_limit", 10)
    rates = [line["learning_rate"] for line in curve(tmp_path) if line["kind"] == "train"]
    assert rates == pytest.approx([0.01 * (1 - step / 10) for step in range(10)])


def test_checkpoints_by_the_clock(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("foci.training.engine.time.monotonic", lambda: now[0])

    def tick(calls, loss):
        now[0] += 10
        return loss

    clock = {"save_every": None, "save_seconds": 25.0, "eval_every": None}
    train(tmp_path, max_steps=8, save_total_limit=9, at_loss=tick, **clock)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["step-00000003", "step-00000006", "step-00000008"]


def test_average_of_the_last(tmp_path):
    objective, summary = train(tmp_path, max_steps=9, average_last=3)
    assert summary.averaged == tmp_path / "checkpoints" / "averaged"
    assert load_weights(Fitting().model, summary.averaged)["average_of"] == [f"step-0000000{n}" for n in (3, 6, 9)]
    averaged = Fitting()
    load_weights(averaged.model, summary.averaged)
    averaged.model.eval()
    assert summary.averaged_metrics["loss"] == pytest.approx(averaged.validate(averaged.model)["loss"])
    last = Fitting()
    load_weights(last.model, summary.last)
    assert weights_digest(last.model) == weights_digest(objective.model)


def test_average_of_the_last_though_more_are_kept(tmp_path):
    _, summary = train(tmp_path, max_steps=9, save_total_limit=4, average_last=2)
    assert len(Checkpoints(tmp_path / "checkpoints").all()) >= 4
    averaged, *two = (Fitting().model for _ in range(3))
    load_weights(averaged, summary.averaged)
    for model, name in zip(two, ("step-00000006", "step-00000009")):
        load_weights(model, tmp_path / "checkpoints" / name)
    for mean, one, other in zip(averaged.parameters(), *(model.parameters() for model in two)):
        assert not torch.equal(one, other)
        torch.testing.assert_close(mean, (one + other) / 2)


@pytest.mark.parametrize("saved", ["by the clock", "as the best", "at a stop", "in numbers"])
def test_the_average_is_of_the_same_steps_whatever_else_is_saved(tmp_path, saved, monkeypatch):
    """Equal seeds give equal averages, on any machine."""
    now = [0.0]
    monkeypatch.setattr("foci.training.engine.time.monotonic", lambda: now[0])

    def tick(calls, loss):
        now[0] += 10
        if saved == "at a stop" and calls == 7:
            signal.raise_signal(signal.SIGTERM)
        return loss

    plain = {"max_steps": 9, "save_every": 2, "average_last": 2, "save_seconds": None, "eval_every": None}
    wanted, whole = train(tmp_path / "plain", **plain)
    changes = {"by the clock": {"save_seconds": 25.0}, "as the best": {"eval_every": 1}, "in numbers": {}}
    changes = changes.get(saved, {}) | {"save_total_limit": 5 if saved == "in numbers" else 1}
    found, summary = train(tmp_path / "run", **{**plain, **changes}, at_loss=tick)
    if saved == "at a stop":
        assert summary.reason == "interrupted"
        assert not summary.averaged
        found, summary = train(tmp_path / "run", **plain, resume=True)
    for result in (whole, summary):
        assert load(result.averaged).state["average_of"] == ["step-00000006", "step-00000008"]
    assert weights_digest(found.model) == weights_digest(wanted.model)


def test_too_few_to_average(tmp_path, capsys):
    _, summary = train(tmp_path, max_steps=5, save_every=4, average_last=2)
    assert summary.averaged is None
    assert (
        "no average: 1 checkpoints of multiples of save_every = 4 steps, expected 2 or more" in capsys.readouterr().err
    )


def test_an_average_is_not_that_of_a_run_that_has_gone_on(tmp_path):
    _, summary = train(tmp_path, max_steps=6, average_last=2)
    assert summary.averaged.exists()
    train(tmp_path, max_steps=6, average_last=0, resume=True)  # no further step: it is still right
    assert summary.averaged.exists()
    train(tmp_path, max_steps=7, average_last=0, resume=True)
    assert not summary.averaged.exists()


def test_the_best_by_another_metric_begins_anew(tmp_path, capsys):
    """Losses and accuracies are not compared, and validations that did not improve are counted from there."""
    options = {**BASE, "eval_every": 1, "save_every": None, "patience": 3}
    losses = iter([0.2, 0.3, 0.4])
    first = Fitting()
    first.validate = lambda model: {"loss": next(losses), "accuracy": 0.9}
    with RunFolder(tmp_path, {}) as run:
        summary = run_training(first.model, first, Numbers(), TrainingOptions(**options, max_steps=3), run)
    assert (summary.best.name, summary.best_value) == ("step-00000001", 0.2)
    accuracies = iter([0.5, 0.6, 0.55])
    second = Fitting()
    second.validate = lambda model: {"loss": 0.01, "accuracy": next(accuracies)}
    by_accuracy = {"metric_for_best_model": "accuracy", "greater_is_better": True}
    with RunFolder(tmp_path, {}, resume=True) as run:
        summary = run_training(
            second.model, second, Numbers(), TrainingOptions(**options, **by_accuracy, max_steps=6), run
        )
    assert (summary.reason, summary.best.name, summary.best_value) == ("max_steps", "step-00000005", 0.6)
    assert "is forgotten: it was chosen by loss, and metric_for_best_model is now accuracy" in capsys.readouterr().err


def test_a_best_checkpoint_that_was_removed_is_forgotten(tmp_path, capsys):
    objective = with_validations(Fitting(), [1.0, 2.0, 3.0])
    options = {**BASE, "eval_every": 2, "metric_for_best_model": "score"}
    with RunFolder(tmp_path, {}) as run:
        summary = run_training(objective.model, objective, Numbers(), TrainingOptions(**options, max_steps=4), run)
    assert (summary.best.name, summary.last.name) == ("step-00000002", "step-00000004")
    shutil.rmtree(summary.best)
    with RunFolder(tmp_path, {}, resume=True) as run:
        summary = run_training(objective.model, objective, Numbers(), TrainingOptions(**options, max_steps=6), run)
    assert (summary.best.name, summary.best_value) == ("step-00000006", 3.0)
    assert "step-00000002 is missing" in capsys.readouterr().err


def test_torn_checkpoint_is_passed_over(tmp_path, capsys):
    train(tmp_path, max_steps=7, save_total_limit=3)
    torn = tmp_path / "checkpoints" / "step-00000007" / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])
    resumed, _ = train(tmp_path, max_steps=12, resume=True)
    assert "step-00000007/model.safetensors: has" in (said := capsys.readouterr().err)
    assert "step 6" in said
    whole, _ = train(tmp_path / "whole", max_steps=12)
    assert weights_digest(whole.model) == weights_digest(resumed.model)
    steps = [line["step"] for line in curve(tmp_path) if line["kind"] == "train"]
    assert steps == [2, 4, 6, 8, 10, 12]


def test_metrics(tmp_path):
    seen = []

    def note(calls, loss):
        seen.append((float(loss.total.detach()), int(loss.count), float(loss.metrics["absolute"])))
        return loss

    train(tmp_path, max_steps=5, metrics_every=2, eval_every=3, at_loss=note)
    lines = list(read_metrics(tmp_path / "metrics.jsonl"))
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("train", 2), ("valid", 3), ("train", 4), ("valid", 5)
    ]  # fmt: skip
    names = "kind step epoch loss absolute learning_rate gradient_norm count count_per_second seconds"
    assert list(lines[0]) == names.split()
    for line in (lines[0], lines[2]):
        total, count, absolute = (sum(part) for part in zip(*seen[line["step"] - 2 : line["step"]]))
        assert line["loss"] == pytest.approx(total / count)
        assert line["absolute"] == pytest.approx(absolute / count)


def test_bfloat16(tmp_path):
    seen = []

    def look(calls, loss):
        seen.append(torch.is_autocast_enabled("cpu"))
        return loss

    objective, _ = train(tmp_path, max_steps=3, precision="bfloat16", at_loss=look)
    assert seen == [True] * 3
    assert objective.model.first.weight.dtype == torch.float32
    exact, _ = train(tmp_path / "exact", max_steps=3)
    assert weights_digest(objective.model) != weights_digest(exact.model)


@pytest.mark.slow
def test_compiled(tmp_path):
    objective, _ = train(tmp_path / "compiled", max_steps=4, compile=True)
    plain, _ = train(tmp_path / "plain", max_steps=4)
    for one, other in zip(objective.model.parameters(), plain.model.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert objective.model._compiled_call_impl is None


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tensorboard's own
        train(tmp_path, max_steps=2, tensorboard=True)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
    (line, _) = read_metrics(tmp_path / "metrics.jsonl")
    assert events.Scalars("train/loss")[0].value == pytest.approx(line["loss"])


def test_tensorboard_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPackageError, match="pip install tensorboard"):
        train(tmp_path, max_steps=2, tensorboard=True)


def test_log_lines(tmp_path, capsys):
    train(tmp_path, max_steps=4, log_seconds=1e-9)
    said = capsys.readouterr().err
    assert "step 1: loss 0." in said
    assert "tokens/s, " in said
    assert "step 4: validation: loss 0." in said
    assert "finished (max_steps) at step 4" in said


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bar_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    progress = make_progress(TrainingOptions(max_steps=9), "tokens", main=True)
    assert isinstance(progress, Bar)
    progress.show(7, 7 / 9, 0.625, 12345.0, 61.0)
    progress.log("validation [good]")
    progress.close()
    shown = terminal.getvalue()
    for text in ("step 7", "loss 0.6250", "12,345 tokens/s", "1 min 01 s left", "validation [good]"):
        assert text in shown


def test_lines_without_rich(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(make_progress(TrainingOptions(max_steps=9), "tokens", main=True), Lines)


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    train(tmp_path, max_steps=2, save_every=1, save_total_limit=9)
    monkeypatch.setattr("foci.training.engine.rate", lambda *now: 1e38)
    with pytest.raises(TrainingError) as error:  # a rate that is finite, and a step that is not
        train(
            tmp_path,
            max_steps=9,
            save_every=1,
            save_total_limit=9,
            lr_multipliers={"last.weight": 100.0},
            resume=True,
        )
    assert "step 3: 11 of 12 weights are not finite, the first is 'first.weight'" in str(error.value)
    saved = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert [path.name for path in saved] == ["step-00000001", "step-00000002"]
    assert f"the last good checkpoint is {saved[-1]}" in str(error.value)


def test_the_speed_does_not_count_validations(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("foci.training.engine.time.monotonic", lambda: clock[0])

    class Slow(Fitting):
        def loss(self, model, batch):
            clock[0] += 1.0
            return super().loss(model, batch)

        def validate(self, model):
            clock[0] += 1000.0
            return super().validate(model)

    objective = Slow()
    options = TrainingOptions(**{**BASE, "max_steps": 4, "eval_every": 1, "metrics_every": 2})
    with RunFolder(tmp_path, {}) as run:
        run_training(objective.model, objective, Numbers(), options, run)
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["kind"] == "train"]
    counts = [int(make(number, 13)[2].sum()) for number in range(4)]
    assert [line["count_per_second"] for line in lines] == [sum(counts[:2]) / 2, sum(counts[2:]) / 2]
    assert lines[-1]["seconds"] > 3000
