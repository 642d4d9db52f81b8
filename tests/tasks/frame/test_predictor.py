"""Runs from elsewhere: whatever their files are, they are refused with an error, at once and within little memory."""

import hashlib
import json
import math
import os
import shutil

import pytest
import torch
from disguises import DISGUISES, no_waiting
from safetensors.torch import load_file, save_file

import foci
from foci.errors import CheckpointError, ConfigError, FociError
from foci.tasks.frame import config as configs
from foci.tasks.memorize.task import Memorize
from foci.tasks.tag.task import Tag

SILENT = {"log": lambda text: None}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    run = tmp_path_factory.mktemp("original") / "run"
    foci.train("tag", configs.put(Tag.Config.smallest, {"training.max_steps": 2}), out=run, **SILENT)
    return run


@pytest.fixture
def run(original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def checkpoint_of(run):
    return max((run / "checkpoints").glob("step-*"))


def sign(state):
    """Write a state with the digests that belong to it, as whoever makes a run can."""
    path, content = state
    for name, facts in content["files"].items() if isinstance(content["files"], dict) else ():
        if isinstance(facts, dict) and (path.parent / name).exists():
            with (path.parent / name).open("rb") as file:
                facts["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
            if isinstance(facts.get("size"), int):
                facts["size"] = (path.parent / name).stat().st_size
    content.pop("sha256", None)
    content["sha256"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content), encoding="utf-8")


def state_of(run):
    path = checkpoint_of(run) / "state.json"
    return path, json.loads(path.read_text(encoding="utf-8"))


def use(run):
    """Load a run, predict and go on training: what is wrong with it is an error of foci, whoever meets it first."""
    with no_waiting():
        foci.load(run).predict(["a b"])
        foci.train("tag", {"training": {"max_steps": 3}}, out=run, resume=True, **SILENT)


FILES = (
    *("config.json", "environment.json", "metrics.jsonl", "tokenizer.json", "labels.json", "examples.safetensors"),
    *("baselines.json", ".lock", "state.json", "model.safetensors", "optimizer.safetensors", "random.safetensors"),
)


@pytest.mark.parametrize("disguise", DISGUISES)
def test_every_file_of_a_run_is_a_regular_one(original, tmp_path, disguise):
    names = {path.relative_to(original) for path in original.rglob("*") if path.is_file()}
    for number, name in enumerate(sorted(names)):
        run = tmp_path / str(number)
        shutil.copytree(original, run)
        (run / name).unlink()
        disguise(run / name)
        with pytest.raises(FociError, match=name.name.replace(".", r"\.")):
            use(run)


def test_a_lock_that_links_elsewhere_changes_nothing_there(run, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    (run / ".lock").unlink()
    (run / ".lock").symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(ConfigError, match=r"\.lock: cannot be locked"):
        foci.train("tag", {"training": {"max_steps": 3}}, out=run, resume=True, **SILENT)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("best", value) for value in ("2", [2], {"step": 2}, -1, True, 2.5)),
        *(("files", value) for value in (None, [], {"model.safetensors": {}}, {"model.safetensors": {"size": "9"}})),
        ("files", {"../../../config.json": {"size": 3, "sha256": ""}}),
        *(("ties", value) for value in (None, [], {"a": 3})),
        *(("metrics", value) for value in ([], "", {"calibration/temperature": "warm"})),
        *(("metrics", {"calibration/temperature": value}) for value in (math.nan, math.inf)),
        *(("average_of", value) for value in ("step-2", [], [3], ["newest"])),
        *(("train_state", value) for value in (None, [], "", {"step": "two"}, {"step": 2, "window": []})),
        *(("data", value) for value in (None, [], {})),
    ],
)
def test_states_are_what_was_written(run, name, value):
    path, content = state_of(run)
    content[name] = value
    sign((path, content))
    with pytest.raises(FociError, match="state.json|step-|saved"):
        use(run)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_are_finite(run, value):
    file = checkpoint_of(run) / "model.safetensors"
    weights = load_file(file)
    name = next(name for name, value in weights.items() if value.is_floating_point() and value.numel() > 3)
    weights[name].view(-1)[3] = value
    save_file(weights, file, metadata={"format": "pt"})
    sign(state_of(run))
    with pytest.raises(CheckpointError, match=f"has 1 weights of {len(weights)} that are not finite, first {name!r}"):
        use(run)
    settings = configs.put(Tag.Config.smallest, {"training.max_steps": 1, "training.init_from": str(run)})
    with pytest.raises(CheckpointError, match="not finite"):
        foci.train("tag", settings, out=run.parent / "new", **SILENT)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64, torch.float64, torch.float16])
def test_weights_have_the_type_of_the_model(run, dtype):
    file = checkpoint_of(run) / "model.safetensors"
    weights = load_file(file)
    name = next(name for name, value in sorted(weights.items()) if value.is_floating_point())
    weights[name] = weights[name].to(dtype)
    save_file(weights, file, metadata={"format": "pt"})
    sign(state_of(run))
    told = f"{name} has type {str(dtype).removeprefix('torch.')}, but the model's has float32"
    with pytest.raises(CheckpointError, match=told):
        foci.load(run)
    settings = configs.put(Tag.Config.smallest, {"training.max_steps": 1, "training.init_from": str(run)})
    said = []
    foci.train("tag", settings, out=run.parent / "new", log=said.append)
    (line,) = [line for line in said if f"not taken from {run}" in line]
    assert f"{name} (is {str(dtype).removeprefix('torch.')} (" in line


def test_more_layers_than_the_weights_have_are_not_built(run):
    """However many: what is built is bounded by the weights that are there."""
    path = run / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model"]["num_layers"] = 10**9
    path.write_text(json.dumps(config), encoding="utf-8")
    with no_waiting(), pytest.raises(CheckpointError, match="has .* weights, but the model of config.json has more"):
        foci.load(run)
    with no_waiting(), pytest.raises(CheckpointError, match="has .* weights, but the model of config.json has more"):
        foci.train("tag", {"training": {"max_steps": 3}}, out=run, resume=True, **SILENT)


def test_sizes_beyond_all_memory(run):
    path = run / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model"]["hidden_dim"] = 10**10
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(CheckpointError, match="the model does not fit in memory"):
        foci.load(run)


def test_a_model_that_does_not_fit_in_memory_is_an_error_before_a_folder_is_made(tmp_path):
    settings = configs.put(Memorize.Config.smallest, {"model.hidden_dim": 1 << 20})
    with pytest.raises(FociError, match="does not fit in memory .*Lower the sizes of the model"):
        foci.train("memorize", settings, out=tmp_path / "run", **SILENT)
    assert os.listdir(tmp_path) == []
