"""The moving average of the weights: the equation step by step, in validation, checkpoints and the model."""

import os

import pytest
import torch
from small_training import Fitting, Numbers, weights_digest

from foci.errors import CheckpointError, ConfigError
from foci.training.checkpoint import load, load_weights
from foci.training.engine import run_training
from foci.training.options import TrainingOptions
from foci.training.run_folder import RunFolder


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def train(path, *, resume=False, at_loss=None, **options):
    options = {"max_steps": 7, "eval_every": 7, "learning_rate": 0.05, "device": "cpu", **options}
    objective = Fitting(at_loss=at_loss)
    with RunFolder(path, {}, resume=resume) as run:
        summary = run_training(objective.model, objective, Numbers(), TrainingOptions(**options), run)
    return objective, summary


def copied(model):
    return {name: one.detach().clone() for name, one in model.named_parameters()}


def test_it_is_that_of_the_equation(tmp_path):
    steps = []

    def keep(calls, loss):  # before the step: the weights after the one before it
        steps.append(copied(fitting.model))
        return loss

    fitting = Fitting(at_loss=keep)
    with RunFolder(tmp_path, {}) as run:
        options = TrainingOptions(max_steps=7, eval_every=7, learning_rate=0.05, device="cpu", moving_average=0.4)
        summary = run_training(fitting.model, fitting, Numbers(), options, run)
    saved = load(summary.last)
    last = {name: saved.optimizer[f"trained/{name}"] for name in steps[0]}
    wanted = {name: one.double() for name, one in steps[0].items()}
    for step, weights in enumerate([*steps[1:], last], start=1):
        decay = min(0.4, (1 + step) / (10 + step))
        wanted = {name: decay * one + (1 - decay) * weights[name] for name, one in wanted.items()}
    for name, one in wanted.items():
        torch.testing.assert_close(saved.model[name], one.float())
        assert not torch.allclose(saved.model[name], last[name], atol=1e-4)
    evaluated = Fitting()
    load_weights(evaluated.model, summary.last)
    assert weights_digest(evaluated.model) == weights_digest(fitting.model)  # the model has it at the end
    assert summary.metrics["loss"] == pytest.approx(evaluated.validate(evaluated.model.eval())["loss"])


def test_the_weights_that_are_trained_are_those_without_it(tmp_path):
    plain, _ = train(tmp_path / "plain")
    _, summary = train(tmp_path / "averaged", moving_average=0.9)
    trained = load(summary.last).optimizer
    for name, one in plain.model.named_parameters():
        assert torch.equal(trained[f"trained/{name}"], one)
    assert not any(name.startswith("trained/") for name in load(tmp_path / "plain/checkpoints/step-00000007").optimizer)


def test_a_run_without_one_cannot_go_on_with_one(tmp_path):
    train(tmp_path)
    with pytest.raises(CheckpointError, match=r"has no moving average of \d+ weights, first 'first.weight'"):
        train(tmp_path, resume=True, max_steps=8, moving_average=0.5)


def test_two_averages_are_refused():
    with pytest.raises(ConfigError, match="moving_average is 0.5 with average_last = 3, expected one of them"):
        TrainingOptions(max_steps=1, moving_average=0.5, average_last=3)
