import json
import multiprocessing
import os
import signal
import sys
import time
from importlib.metadata import version

import pytest

from foci.errors import CheckpointError, ConfigError
from foci.training import run_folder
from foci.training.run_folder import FORMAT, Metrics, RunFolder, check_folder, read_config, read_metrics


def test_what_a_run_holds(tmp_path):
    with RunFolder(tmp_path / "run", {"model": {"size": 3}}) as run:
        assert run.checkpoints.is_dir()
    assert read_config(run.path) == {"model": {"size": 3}}
    (sitting,) = json.loads((run.path / "environment.json").read_text())
    assert sitting["packages"]["torch"]
    assert sitting["command"] == sys.argv


def test_nothing_is_overwritten(tmp_path):
    RunFolder(tmp_path, {}).close()
    with pytest.raises(ConfigError, match="holds a run, and nothing is overwritten. Resume it, or choose"):
        RunFolder(tmp_path, {})
    (tmp_path / "config.json").unlink()
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="is not empty .*thesis.txt.*Choose another"):
        RunFolder(tmp_path, {})
    with pytest.raises(CheckpointError, match="is no run .no config.json; it holds checkpoints, thesis.txt"):
        RunFolder(tmp_path, {}, resume=True)


def test_resuming_tells_what_changed(tmp_path):
    RunFolder(tmp_path, {"training": {"steps": 3, "seed": 1}}).close()
    said = []
    RunFolder(tmp_path, {"training": {"steps": 5, "seed": 1}, "new": "x"}, resume=True, log=said.append).close()
    assert said == [f'{tmp_path}: the configuration has changed: new was null, is "x"; training.steps was 3, is 5']
    assert read_config(tmp_path)["training"]["steps"] == 5
    assert len(json.loads((tmp_path / "environment.json").read_text())) == 2


def test_a_run_killed_at_birth_is_empty(tmp_path):
    for name in (".lock", "environment.json", ".config.json.tmp"):
        (tmp_path / name).write_text("[]")
    RunFolder(tmp_path, {}).close()


def test_a_restarted_worker_goes_on_with_what_its_launch_has_begun(tmp_path, monkeypatch):
    """The launch is that of the agents of all nodes, of which one may be replaced."""
    RunFolder(tmp_path / "before", {}).close()
    RunFolder(tmp_path / "own", {}, launch=["first", "second"]).close()
    with pytest.raises(ConfigError, match="holds a run, and nothing is overwritten"):
        RunFolder(tmp_path / "own", {}, launch=["first", "second"])  # in one process: not a restarted worker
    monkeypatch.setattr(run_folder, "_begun", set())  # as in the process of a restarted worker
    RunFolder(tmp_path / "own", {}, launch=["second", "third"]).close()
    monkeypatch.setattr(run_folder, "_begun", set())
    for name, launch in (("before", ["first"]), ("own", ["fourth"]), ("own", [])):
        with pytest.raises(ConfigError, match="holds a run, and nothing is overwritten"):
            RunFolder(tmp_path / name, {}, launch=launch)


def test_a_folder_that_cannot_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is a file, expected a folder"):
        check_folder(tmp_path / "file" / "run", resume=False)
    check_folder(tmp_path / "new" / "run", resume=False)
    assert not (tmp_path / "new").exists()


def test_only_a_new_run_without_a_step_is_removed(tmp_path):
    with RunFolder(tmp_path / "run", {}) as run:
        run.remove_if_unused()
    assert not (tmp_path / "run").exists()
    with RunFolder(tmp_path / "run", {}) as run:
        run.unused = False  # set by the training after a step
        run.remove_if_unused()
    assert (tmp_path / "run").exists()
    with RunFolder(tmp_path / "run", {}, resume=True) as run:
        run.remove_if_unused()
    assert (tmp_path / "run").exists()


def test_other_processes_write_nothing(tmp_path):
    RunFolder(tmp_path / "run", {}, main=False).close()
    assert not (tmp_path / "run").exists()


def hold(path, held):
    with RunFolder(path, {}):
        held.set()
        time.sleep(60)


def test_lock(tmp_path):
    fork = multiprocessing.get_context("fork")
    held = fork.Event()
    holder = fork.Process(target=hold, args=(tmp_path, held))
    holder.start()
    try:
        assert held.wait(30)
        with pytest.raises(ConfigError, match=f"another trainer uses this folder .process {holder.pid} on"):
            RunFolder(tmp_path, {}, resume=True)
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.join()
    with RunFolder(tmp_path, {}, resume=True):
        with pytest.raises(ConfigError, match="in this very process"):
            RunFolder(tmp_path, {}, resume=True)
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()
    RunFolder(tmp_path, {}, resume=True).close()


def test_no_run(tmp_path):
    with pytest.raises(CheckpointError, match="is no run"):
        read_config(tmp_path)


def test_metrics_after_a_kill(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "loss": 1 / step}) for step in (1, 2, 3, 4)]
    path.write_text("\n".join(lines)[:-4])
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3]
    metrics = Metrics(path, step=2)
    metrics.add({"step": 3, "loss": 0.5})
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3]  # on the disk before it is closed
    metrics.close()
    assert list(read_metrics(path))[-1] == {"step": 3, "loss": 0.5}


def test_damaged_line_in_the_middle(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(CheckpointError, match="metrics.jsonl:2: is no line of metrics"):
        list(read_metrics(path))


def test_a_run_of_another_version_names_it(tmp_path):
    with RunFolder(tmp_path / "run", {"task": "tag", "model": {"size": 3}}):
        pass
    written = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert (written["format"], written["foci"]) == (FORMAT, version("foci"))
    assert read_config(tmp_path / "run") == {"task": "tag", "model": {"size": 3}}
    for change, told in (
        ({"format": 99, "foci": "7.8.9"}, "foci 7.8.9 in format 99"),
        ({"format": None}, "before foci 0.1.0, without a format number"),
    ):
        changed = {**written, **change} if change["format"] else {"task": "tag"}
        (tmp_path / "run" / "config.json").write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(CheckpointError, match=f"{told}, expected format {FORMAT}: .* cannot read it"):
            read_config(tmp_path / "run")
