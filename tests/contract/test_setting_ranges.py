"""Every number among the settings and options of all tasks has a range: nonsense is refused before anything is read."""

import dataclasses
import math
from typing import get_args, get_type_hints

import pytest

from foci.errors import ConfigError
from foci.settings import build, to_tables
from foci.tasks import TASKS
from foci.tasks.frame.config import configure, find_config
from foci.tasks.frame.task import find
from foci.training.options import TrainingOptions
from foci_cli import main

NONSENSE = (math.nan, math.inf, -math.inf, -1, 1e308, True)
ALLOWED = {
    ("length_penalty", -1): "favors shorter outputs",
    ("highest", -1): "frequencies below half of the rate, as Kaldi counts them",
    ("columns", -1): "the last column of a tagged file; other readers refuse it with the name of the file",
    ("references", -1): "as columns",
}
"""(setting, value): what such a value means."""


def tables_in(hint):
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [table for part in get_args(hint) for table in tables_in(part)]


def types_in(hint):
    return {one for part in get_args(hint) for one in types_in(part)} if get_args(hint) else {hint}


def all_tables():
    """Every dataclass of settings, the tables inside and the alternatives of unions included."""
    found = {}
    waiting = [kind for task in map(find, TASKS) for kind in (task.Config, task.Options, task.EvaluateOptions)]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found[kind] = get_type_hints(kind, include_extras=True)
            waiting += [table for name in found[kind] for table in tables_in(found[kind][name])]
    return found


NUMBERS = [
    (kind, name, hint)
    for kind, hints in all_tables().items()
    for name, hint in hints.items()
    if name in {one.name for one in dataclasses.fields(kind)} and not tables_in(hint) and types_in(hint) & {int, float}
]


def defaults(kind):
    return to_tables(TrainingOptions(max_steps=1) if kind is TrainingOptions else kind())


def test_all_tasks_are_covered():
    assert len(NUMBERS) > 400
    assert {"reward_weight", "kernel_size", "average_last", "min_lr_ratio"} <= {name for _, name, _ in NUMBERS}


@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_is_refused(value):
    accepted = []
    for kind, name, hint in NUMBERS:
        tables = defaults(kind)
        default = tables[name]
        if (name, value) in ALLOWED or bool in types_in(hint):
            continue
        if isinstance(default, list):
            given = [value] * max(len(default), 1)
        else:
            given = {"name": value} if isinstance(default, dict) else value
        try:
            build(kind, {**tables, name: given}, "test")
        except ConfigError:
            continue
        accepted.append(f"{kind.__module__}.{kind.__name__}.{name}")
    assert not accepted


@pytest.mark.parametrize(
    ("task", "setting"),
    [
        ("translate", "training.min_lr_ratio=1e308"),
        ("translate", "training.average_last=true"),
        ("caption", "model.reward_weight=-0.5"),
        ("classify_images", "model.kernel_size=0"),
        ("transcribe", "model.attention.kernel_size=0"),
    ],
)
def test_nonsense_on_the_command_line(task, setting, tmp_path, capsys):
    assert main(["train", task, "--out", str(tmp_path / "run"), "--set", setting]) == 2
    assert setting.partition("=")[0].rpartition(".")[2] in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", TASKS)
def test_a_time_limit_is_enough_to_end_a_training(task):
    training = configure(find_config(task), {"training": {"time_limit": 5}}, "test").training
    assert (training.time_limit, training.max_steps, training.max_epochs) == (5, None, None)
