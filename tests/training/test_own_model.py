"""`foci.fit`: a model of the user's own in a run that is resumed bit for bit, loaded and drawn."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from small_training import Fitting, Numbers, Small, make
from torch import nn

import foci
import foci_cli
from foci.errors import CheckpointError, ConfigError
from foci.training.own_model import BatchList

SILENT = {"log": lambda text: None}
OPTIONS = {"max_steps": 6, "eval_every": 2, "save_every": 2, "metrics_every": 1, "device": "cpu"}
BATCHES = [make(seed, rows=13) for seed in range(4)]


class Sized(Small):
    def __init__(self, dropout=0.0):
        super().__init__(dropout)
        self.sizes = dropout


def fit(out, objective=None, batches=BATCHES, **given):
    objective = objective or Fitting(dropout=0.3)
    options = {**OPTIONS, **given.pop("options", {})}
    return foci.fit(
        objective.model, objective, batches, out=out, options=options, arguments={"dropout": 0.3}, **given, **SILENT
    )


@pytest.mark.parametrize("batches", [lambda: BATCHES, Numbers], ids=["list", "stream"])
def test_a_resumed_run_equals_an_uninterrupted_one(batches, tmp_path):
    whole, parts = Fitting(dropout=0.3), Fitting(dropout=0.3)
    assert fit(tmp_path / "whole", whole, batches()).step == 6
    assert fit(tmp_path / "parts", parts, batches(), options={"max_steps": 4}).step == 4
    parts = Fitting(dropout=0.3)
    assert fit(tmp_path / "parts", parts, batches(), resume=True).step == 6
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_a_run_goes_on_after_a_kill(tmp_path):
    """SIGKILL in the middle of step 5, where the newest checkpoint is that of step 4."""
    program = """
        import os, signal, sys
        from small_training import Fitting
        from test_own_model import fit

        class Killed(Fitting):
            seen = 0

            def loss(self, model, batch):
                Killed.seen += 1
                if Killed.seen == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().loss(model, batch)

        fit(sys.argv[1], Killed(dropout=0.3))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "run")]
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support"), *sys.path]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    whole, resumed = Fitting(dropout=0.3), Fitting(dropout=0.3)
    fit(tmp_path / "whole", whole)
    assert fit(tmp_path / "run", resumed, resume=True).step == 6
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert foci_cli.main(["curves", str(tmp_path / "run"), "--html", str(tmp_path / "curves.html")]) == 0


def test_a_run_is_loaded_with_the_class_of_its_model(tmp_path):
    objective = Fitting(dropout=0.3)
    result = fit(tmp_path / "run", objective)
    inputs = make(9, rows=3)[0]
    last = foci.load(tmp_path / "run", model=Small, checkpoint="last")
    assert torch.equal(last.other_call(inputs), objective.model.eval().other_call(inputs))
    assert not last.training
    best = foci.load(tmp_path / "run", model=Small, dtype=torch.float64)
    assert best.first.weight.dtype == torch.float64
    assert objective.validate(best.float())["loss"] == pytest.approx(result.best_value)
    assert foci.load(tmp_path / "run", model=lambda dropout: Sized(dropout)).sizes == 0.3
    with pytest.raises(ConfigError, match=r"cannot be made with the arguments of the run, \{'dropout': 0.3\}"):
        foci.load(tmp_path / "run", model=lambda: Small())
    for dtype in ("float32", torch.int64):
        with pytest.raises(ConfigError, match=r"expected a floating torch\.dtype"):
            foci.load(tmp_path / "run", model=Small, dtype=dtype)
    with pytest.raises(CheckpointError, match="weight"):
        foci.load(tmp_path / "run", model=lambda dropout: nn.Linear(2, 3))
    with pytest.raises(CheckpointError, match=r"is a run of foci.fit, whose model is a small_training.Small\. Load it"):
        foci.load(tmp_path / "run")


def test_its_curves_are_drawn_and_commands_of_tasks_say_what_it_is(tmp_path, capsys):
    fit(tmp_path / "run")
    assert foci_cli.main(["curves", str(tmp_path / "run"), "--html", str(tmp_path / "curves.html")]) == 0
    assert "absolute" in (tmp_path / "curves.html").read_text(encoding="utf-8")
    capsys.readouterr()
    for command in (["predict", str(tmp_path / "run"), "x"], ["evaluate", str(tmp_path / "run")]):
        assert foci_cli.main(command) == 1
        assert "is a run of foci.fit" in capsys.readouterr().err


def test_what_cannot_be_done_is_refused_and_leaves_no_folder(tmp_path):
    for options, message in (({"max_step": 3}, "Did you mean 'max_steps'"), ({"max_steps": "3"}, "not a text")):
        with pytest.raises(ConfigError, match=message):
            fit(tmp_path / "run", options=options)
    with pytest.raises(ConfigError, match="the list of batches is empty"):
        fit(tmp_path / "run", batches=[])
    with pytest.raises(ConfigError, match="kept as JSON"):
        foci.fit(Small(), Fitting(), BATCHES, out=tmp_path / "run", options=OPTIONS, arguments={"x": Small()})
    with pytest.raises(CheckpointError, match="no run"):
        fit(tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()
    fit(tmp_path / "run")
    with pytest.raises(ConfigError, match="holds a run"):
        fit(tmp_path / "run")
    with pytest.raises(ConfigError, match="seed is 3, but the run was begun with 0"):
        fit(tmp_path / "run", options={"seed": 3}, resume=True)
    with pytest.raises(ConfigError, match="there are 3 batches, but the run was begun with 4"):
        fit(tmp_path / "run", batches=BATCHES[:3], options={"max_steps": 9}, resume=True)
    foci.train("memorize", {"training": {"max_steps": 1}}, out=tmp_path / "task", **SILENT)
    with pytest.raises(ConfigError, match="model is given, but .* is no run of foci.fit"):
        foci.load(tmp_path / "task", model=Small)


def test_every_batch_comes_once_per_epoch_in_a_new_order():
    batches = BatchList("abcde", seed=3)
    stream = iter(batches)
    epochs = ["".join(next(stream) for _ in range(5)) for _ in range(3)]
    assert all(sorted(epoch) == list("abcde") for epoch in epochs)
    assert len({*epochs}) == 3
    state = batches.state_dict()
    following = [next(stream) for _ in range(7)]
    again = BatchList("abcde", seed=3)
    again.load_state_dict(state)
    assert [one for one, _ in zip(iter(again), range(7))] == following
