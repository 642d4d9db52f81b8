import dataclasses
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from foci.errors import ConfigError, UnknownNameError
from foci.training.optim import make_optimizer, rate, set_rate
from foci.training.options import TrainingOptions
from foci.training.randomness import random_state, restore_random_state, seed_everything, undisturbed


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", lambda s: 0.3),
        ("inverse_sqrt", lambda s: 0.3 * math.sqrt(5) / math.sqrt(s)),
        ("linear", lambda s: 0.3 * (1 - 0.9 * (s - 5) / 19)),
        ("cosine", lambda s: 0.3 * (0.1 + 0.9 * (1 + math.cos(math.pi * (s - 5) / 19)) / 2)),
    ],
)
def test_rates(schedule, expected):
    options = TrainingOptions(max_steps=23, learning_rate=0.3, warmup=5, schedule=schedule, min_lr_ratio=0.1)
    for step in range(1, 24):
        wanted = 0.3 * step / 5 if step < 5 else expected(step)
        assert rate(step, options) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 3, 7])
def test_every_step_changes_something(schedule, warmup):
    """Also the last one of rates that end at 0."""
    options = TrainingOptions(max_steps=7, learning_rate=0.3, schedule=schedule, warmup=warmup)
    rates = [rate(step, options) for step in range(1, 8)]
    assert all(value > 0.01 for value in rates)
    assert rate(8, options) == pytest.approx(0.0, abs=1e-12)


def test_noam():
    options = TrainingOptions(max_steps=9, learning_rate=2.0, warmup=7, schedule="noam", model_dim=11)
    for step in range(1, 20):
        assert rate(step, options) == pytest.approx(2 * 11**-0.5 * min(step**-0.5, step * 7**-1.5), rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_rates_end_when_the_time_ends(schedule):
    timed = TrainingOptions(time_limit=100.0, learning_rate=0.3, schedule=schedule, warmup=5, min_lr_ratio=0.1)
    rates = [rate(step, timed, seconds=step) for step in range(5, 101)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.28
    assert rate(100, timed, seconds=100.0) == rate(9999, timed, seconds=101.0) == pytest.approx(0.03)
    assert rate(3, timed, seconds=100.0) == pytest.approx(0.03)  # also inside of the warm-up
    both = dataclasses.replace(timed, max_steps=50)
    steps = dataclasses.replace(both, time_limit=None)
    for step in range(1, 51):  # the steps end first: the same rates, bit for bit
        assert rate(step, both, seconds=step) == rate(step, steps)
    slow = [rate(step, both, seconds=20 * step) for step in range(1, 6)]
    assert slow[-1] == pytest.approx(0.03)  # five of fifty steps, and the time is over


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "nothing ends the training"),
        ({"max_steps": 0}, "max_steps is 0, expected greater than or equal to 1"),
        ({"max_steps": 3, "max_grad_norm": -1.0}, "max_grad_norm is -1.0"),
        ({"max_steps": 3, "warmup": -2}, "warmup is -2, expected greater than or equal to 0"),
        ({"max_steps": 3, "betas": (0.9, 1.0)}, "(0.9, 1.0)"),
        ({"max_epochs": 3, "schedule": "cosine"}, "needs max_steps"),
        ({"max_steps": 3, "schedule": "noam"}, "model_dim=None, warmup=0"),
        ({"patience": 3, "eval_every": None}, "needs eval_every"),
    ],
)
def test_wrong_options(wrong, message):
    with pytest.raises(ConfigError) as error:
        TrainingOptions(**wrong)
    assert message in str(error.value)


def test_unknown_choice_names_the_near_one():
    with pytest.raises(UnknownNameError, match="Did you mean 'cosine'"):
        TrainingOptions(max_steps=3, schedule="cosin")


def test_only_matrices_decay():
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    model[0].weight.requires_grad_(True)
    optimizer = make_optimizer(model, TrainingOptions(max_steps=1, optimizer="adamw", weight_decay=0.1))
    decays = {tuple(p.shape): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays == {(3, 2): 0.1, (3,): 0.0}
    assert type(optimizer) is torch.optim.AdamW


def test_some_parameters_learn_slower():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_optimizer(
        model, TrainingOptions(max_steps=1, eps=1e-30, lr_multipliers={"1.weight": 0.25, "bias": 0.5})
    )
    set_rate(optimizer, 0.5)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()  # the first step of Adam is as long as the rate, whatever the gradient
    steps = {name: (before[name] - parameter).mean().item() for name, parameter in model.named_parameters()}
    expected = {"0.weight": 0.5, "0.bias": 0.25, "1.weight": 0.125, "1.bias": 0.25}
    assert steps == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("ends", [("weight", "1.weight"), ("1.weight", "weight")])
def test_of_several_ends_of_a_name_the_longest_counts(ends):
    """In any order: that of a table of TOML means nothing, and is not that of settings that were merged."""
    shares = {"weight": 0.5, "1.weight": 0.25}
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5))
    optimizer = make_optimizer(model, TrainingOptions(max_steps=1, lr_multipliers={end: shares[end] for end in ends}))
    found = {p: group["share"] for group in optimizer.param_groups for p in group["params"]}
    assert [found[p] for p in model.parameters()] == [0.5, 1.0, 0.25, 1.0]


def test_rates_of_no_parameter():
    with pytest.raises(ConfigError, match=r"no parameter's name ends in 'wieght'.*Did you mean 'weight'"):
        make_optimizer(nn.Linear(2, 3), TrainingOptions(max_steps=1, lr_multipliers={"wieght": 0.5}))


def test_nothing_to_train():
    with pytest.raises(ConfigError, match="Linear has no parameter"):
        make_optimizer(nn.Linear(2, 3).requires_grad_(False), TrainingOptions(max_steps=1))


def draw():
    return torch.rand(2).tolist(), random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.rand()


def test_random_numbers_go_on_where_they_were():
    seed_everything(5)
    draw()  # leaves half of a pair of normal numbers in Python's and numpy's hands
    state = random_state()
    wanted = [draw() for _ in range(3)]
    restore_random_state(state)
    assert [draw() for _ in range(3)] == wanted


def test_undisturbed():
    seed_everything(5)
    wanted = draw()
    seed_everything(5)
    with undisturbed():
        draw()
    assert draw() == wanted
