"""Differential tests of training, for every row of TASKS: two ways of training that must learn the same.

Dropout is off where a batch is cut in parts, since every part draws random numbers of its own. Losses are compared, not
weights: a bias of keys has no gradient but rounding, which Adam makes large. That two processes learn what one does is
in tests/training/test_processes.py.
"""

import os
import random
import signal

import pytest
import torch
from halves import in_halves
from safetensors.torch import load_file

import foci
from foci.settings import describe
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find
from foci.training.run_folder import read_metrics


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Flushing is for power cuts, which no test makes, and takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def smallest(task, **changes):
    """The smallest settings of a task without dropout, with some changed by their dotted paths."""
    kind = find(task)
    tables = configs.put(kind.Config.smallest, {name.replace("__", "."): value for name, value in changes.items()})
    dropouts = [one.path for one in describe(configs.configure(kind.Config, tables, "test")) if "dropout" in one.path]
    return configs.put(tables, dict.fromkeys(dropouts, 0.0))


def train(task, out, **changes):
    return foci.train(task, smallest(task, **changes), out=out, log=lambda text: None)


def lines(run, kind):
    return [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == kind]


def losses(run):
    return [line["loss"] for line in lines(run, "train")]


SHORT = {"training__max_steps": 3, "training__eval_every": None}


@pytest.fixture(scope="module", params=TASKS)
def whole(request, tmp_path_factory):
    """The name of a task, and a run of it on whole batches."""
    run = tmp_path_factory.mktemp(request.param) / "whole"
    train(request.param, run, **SHORT)
    return request.param, run


def assert_same_step(one, other):
    assert (one["step"], one["count"]) == (other["step"], other["count"])
    assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert one["gradient_norm"] == pytest.approx(other["gradient_norm"], rel=1e-3)  # Muon works in half precision


def test_accumulated_halves_learn_what_whole_batches_do(whole, tmp_path, monkeypatch):
    task, run = whole
    kind = find(task)
    monkeypatch.setattr(kind, "batches", in_halves(kind))
    train(task, tmp_path / "halves", **SHORT, training__gradient_accumulation_steps=2)
    for one, other in zip(lines(run, "train"), lines(tmp_path / "halves", "train"), strict=True):
        assert_same_step(one, other)


def test_half_precision_learns_nearly_the_same(whole, tmp_path):
    task, run = whole
    train(task, tmp_path / "half", **SHORT, training__precision="bfloat16")
    found = losses(tmp_path / "half")
    assert found == pytest.approx(losses(run), rel=0.05)
    assert found != losses(run)


STOPPED = {
    "training.max_steps": 4,
    "training.eval_every": 3,
    "training.save_every": 2,
    "training.average_last": 2,
    "training.metrics_every": 1,
}


def weights_of(checkpoint):
    return load_file(checkpoint / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_is_stopped_at_every_step_is_one_that_never_was(task, tmp_path, monkeypatch):
    """Weights, average, best checkpoint and metrics are equal to the bit, also after a stop in the last step."""
    kind, tables = find(task), configs.put(find(task).Config.smallest, STOPPED)
    never = foci.train(task, tables, out=tmp_path / "never", log=lambda text: None)
    loss, calls = kind.loss, []

    def stop(self, model, batch):
        calls.append(1)
        if len(calls) == 3:  # two calls try the longest batch
            signal.raise_signal(signal.SIGTERM)
        return loss(self, model, batch)

    monkeypatch.setattr(kind, "loss", stop)
    for step in range(1, 5):
        calls.clear()
        torch.manual_seed(99)
        random.seed(99)
        result = foci.train(task, tables, out=tmp_path / "run", resume=step > 1, log=lambda text: None)
        assert (result.reason, result.step, result.averaged) == ("interrupted", step, None)
    result = foci.train(task, tables, out=tmp_path / "run", resume=True, log=lambda text: None)
    for name in ("last", "best", "averaged"):
        one, other = weights_of(getattr(never, name)), weights_of(getattr(result, name))
        assert all(torch.equal(one[weight], other[weight]) for weight in one), name
    assert (result.metrics, result.averaged_metrics) == (never.metrics, never.averaged_metrics)
    clock = ("seconds", "count_per_second")
    one, other = (
        [{name: value for name, value in line.items() if name not in clock} for line in read_metrics(path)]
        for path in (tmp_path / "never" / "metrics.jsonl", tmp_path / "run" / "metrics.jsonl")
    )
    assert one == other
    assert_best_and_average(kind, tmp_path / "run")


def assert_best_and_average(kind, run):
    """The best checkpoint has the best validation; an average is loaded until training goes on."""
    predictor = foci.load(run)
    assert predictor.checkpoint == "averaged: the mean of 2 checkpoints, of steps 2 to 4"
    metric = predictor.config.training.metric_for_best_model
    of_step = {line["step"]: line[metric] for line in lines(run, "valid")}
    assert list(of_step) == [3, 4]
    best = (max if kind.metrics[metric] == "higher" else min)(of_step, key=of_step.__getitem__)
    assert foci.load(run, checkpoint="best").checkpoint == f"step {best}, the best by validation ({metric})"
    foci.train(
        kind.name, {"training": {"max_steps": 5, "average_last": 0}}, out=run, resume=True, log=lambda text: None
    )
    assert foci.load(run).checkpoint.startswith("step ")
