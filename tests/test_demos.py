"""What the demos promise: `make demos` measures it, the docs state it, and the demo says whether it holds."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import foci
import foci_cli
from foci.tasks import TASKS
from foci.tasks.frame.config import Promise, find_config, put

ROOT = Path(__file__).parents[1]


@pytest.fixture
def demos(monkeypatch, tmp_path):
    """The program, which stores its rows in a folder of the test's, with the demo of memorize made small."""
    monkeypatch.syspath_prepend(str(ROOT))
    from recipes import demos, report

    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    kind = find_config("memorize")
    monkeypatch.setattr(kind, "demo", kind.smallest)

    def run(low, high, *arguments):
        monkeypatch.setattr(kind, "promise", Promise("wrong_bits", (low + high) / 2, (high - low) / 2))
        out = str(tmp_path / "out")
        monkeypatch.setattr(sys, "argv", ["demos", "--only", "memorize", "--seeds", "2", "--out", out, *arguments])
        demos.main()

    return run


def test_a_promise_out_of_tolerance_is_named_and_ends_with_an_error(demos, capsys):
    with pytest.raises(SystemExit) as ended:
        demos(-2, -1)
    assert ended.value.code == "out of tolerance: memorize with seed 0, memorize with seed 1"
    assert capsys.readouterr().out.count("OUT OF TOLERANCE") == 2


def test_what_was_measured_is_kept_and_not_measured_again(demos, tmp_path, capsys, monkeypatch):
    demos(0, 64)
    first = capsys.readouterr().out
    assert first.count("holds") == 2
    assert "promised wrong_bits 32 ± 32" in first
    rows = [json.loads(line) for line in (tmp_path / "results" / "demos.jsonl").read_text().splitlines()]
    assert [(row["name"], row["seed"]) for row in rows] == [("memorize", 0), ("memorize", 1)]
    monkeypatch.setattr(foci, "train", None)  # which would fail
    demos(0, 64)
    assert capsys.readouterr().out == first
    with pytest.raises(SystemExit):  # kept values are compared with today's promise
        demos(-2, -1)


def test_an_interrupted_demo_is_not_stored(demos, tmp_path, monkeypatch):
    train = foci.train
    monkeypatch.setattr(
        foci, "train", lambda *given, **options: replace(train(*given, **options), reason="interrupted")
    )
    with pytest.raises(SystemExit, match="interrupted in memorize with seed 0"):
        demos(0, 64)
    assert not (tmp_path / "results").exists()
    monkeypatch.setattr(foci, "train", train)
    demos(0, 64)


def test_a_demo_with_other_settings_is_measured_again(demos, tmp_path, monkeypatch):
    demos(0, 64)
    kind = find_config("memorize")
    monkeypatch.setattr(kind, "demo", put(kind.smallest, {"training.max_steps": 9}))
    demos(0, 64)
    assert json.loads((tmp_path / "out" / "memorize-0.json").read_text())["config"]["training"]["max_steps"] == 9


@pytest.mark.parametrize(("low", "says"), [(0, "it holds"), (-200, "IT DOES NOT HOLD")])
def test_a_demo_says_whether_its_promise_holds(low, says, monkeypatch, tmp_path, capsys):
    kind = find_config("memorize")
    monkeypatch.setattr(kind, "demo", kind.smallest)
    monkeypatch.setattr(kind, "promise", Promise("wrong_bits", low + 50, 50))
    assert foci_cli.main(["demo", "memorize", "--out", str(tmp_path), "--set", "training.seed=3"]) == 0
    assert f"promised with any seed: wrong_bits {low + 50} ± 50; {says}" in capsys.readouterr().out


def test_a_demo_with_settings_of_its_own_promises_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(find_config("memorize"), "demo", find_config("memorize").smallest)
    assert foci_cli.main(["demo", "memorize", "--out", str(tmp_path), "--steps", "2"]) == 0
    assert "promised" not in capsys.readouterr().out


@pytest.mark.parametrize("task", TASKS)
def test_what_was_measured_of_each_demo_is_within_tolerance(task):
    promise = find_config(task).promise
    # A promise that tolerates everything promises nothing: at most 5 points of a share, or a tenth of the value.
    assert 0 < promise.tolerance <= max(0.05, promise.value / 10)
    lines = (ROOT / "recipes" / "results" / "demos.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {row["seed"]: row["metrics"][promise.metric] for row in map(json.loads, lines) if row["name"] == task}
    assert {0, 1, 2} <= rows.keys(), f"{task}: measure it, make demos ONLY={task}"
    assert all(map(promise.holds, rows.values())), f"{promise}: {rows}"


@pytest.mark.slow
def test_the_shortest_demo_keeps_its_promise_with_another_seed(tmp_path):
    task = "tag"  # the others by `make demos`
    foci.train(task, put(find_config(task).demo, {"training.seed": 7}), out=tmp_path / "run", log=lambda text: None)
    predictor = foci.load(tmp_path / "run")
    promise = find_config(task).promise
    assert promise.holds(predictor.evaluate(predictor.held_out()).metrics[promise.metric])
