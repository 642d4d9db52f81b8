"""The recipes: every row is kept and shown, a run that does not learn gives way to another seed, soaks notice NaN."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foci.models import ntm
from foci.tasks.memorise import DataConfig

ROOT = Path(__file__).parents[1]


@pytest.fixture
def recipes(monkeypatch, tmp_path):
    """The recipes' modules, which write into a folder of the test's."""
    monkeypatch.syspath_prepend(str(ROOT))
    from recipes import __main__ as program
    from recipes import memory, report, soak

    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    monkeypatch.setattr(memory, "RUNS", [("copy", "ntm"), ("copy", "lstm")])
    return program, memory, report, soak


@pytest.fixture
def quick(recipes, monkeypatch):
    """A problem that takes no time."""
    _, memory, *_ = recipes
    monkeypatch.setitem(memory.SETTINGS, "copy", memory.SETTINGS["copy"]._replace(max_steps=3, preset="tiny"))
    monkeypatch.setitem(memory.LENGTHS, "copy", (2, 30))
    monkeypatch.setattr(memory, "JUDGED", 3)
    monkeypatch.setattr(memory, "SHOWN", 3)
    monkeypatch.setattr(DataConfig, "valid_sequences", 3)
    monkeypatch.setitem(ntm.BASELINE_PRESETS, "base", ntm.BASELINE_PRESETS["tiny"])
    return recipes


def run(program, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["recipes", *map(str, arguments)])
    program.main()


def test_a_row_for_each_model_and_every_length(quick, monkeypatch, tmp_path, capsys):
    program, memory, report, _ = quick
    monkeypatch.setattr(memory, "_has_begun", lambda problem, summary: True)
    for _ in range(2):  # the second time there is nothing left to train, and rows take the place of older ones
        run(program, monkeypatch, "memorise", "--out", tmp_path / "runs", "--seed", 5)
    rows = [json.loads(line) for line in (report.RESULTS / "memorise.jsonl").read_text().splitlines()]
    assert [(row["name"], row["seed"], row["steps"]) for row in rows] == [("copy, ntm", 5, 3), ("copy, lstm", 5, 3)]
    assert [at["length"] for at in rows[0]["lengths"]] == [2, 30]
    assert [at["sequences"] for at in rows[0]["lengths"]] == [3, 3]
    assert rows[0]["seeds_tried"] == 1
    text = (tmp_path / "docs" / "results.md").read_text()
    assert "30 (beyond training)" in text
    assert "python -m recipes memorise --minutes" in text
    assert "| 48 | 5 | 1 |" in text  # sequences, seed, seeds tried
    wrong = rows[1]["lengths"][1]["wrong_bits"]
    assert f"|  |  | 30 (beyond training) | {wrong:.2f} | 240 |" in text


def test_under_torchrun_the_first_process_alone_notes_rows(recipes, monkeypatch, tmp_path):
    program, _, report, _ = recipes
    jobs = [report.Job("a", dict)]
    recipe = report.Recipe(lambda out, minutes, seed: iter(jobs), 2.0, "A", "", lambda rows: "a table")
    monkeypatch.setitem(program.RECIPES, "memorise", recipe)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    run(program, monkeypatch, "memorise")
    assert not report.RESULTS.exists()
    assert not (tmp_path / "docs" / "results.md").exists()
    monkeypatch.setenv("RANK", "0")
    run(program, monkeypatch, "memorise")
    assert "`torchrun --nproc-per-node 2 -m recipes memorise --minutes 2" in (tmp_path / "docs/results.md").read_text()


def test_some_rows_only(recipes, monkeypatch, capsys):
    program, _, report, _ = recipes
    jobs = [report.Job(name, dict) for name in "abc"]
    recipe = report.Recipe(lambda out, minutes, seed: iter(jobs), 2.0, "A", "", lambda rows: "a table")
    monkeypatch.setitem(program.RECIPES, "memorise", recipe)
    run(program, monkeypatch, "memorise", "--only", "c", "--only", "a")
    assert [row["name"] for row in report.rows_of("memorise")] == ["a", "c"]
    with pytest.raises(SystemExit):
        run(program, monkeypatch, "memorise", "--only", "d")
    assert "memorise has no row 'd'; it has 'a', 'b', 'c'" in capsys.readouterr().err


def test_a_seed_that_does_not_learn_gives_way_to_another(quick, monkeypatch, tmp_path):
    _, memory, *_ = quick
    row = memory._run("copy", "ntm", tmp_path, 5.0, 2)
    assert row["seeds_tried"] == memory.SEEDS
    assert row["minutes_of_other_seeds"] > 0
    assert sorted(folder.name for folder in tmp_path.glob("memorise-*")) == [
        f"memorise-copy-ntm-{s}" for s in (2, 3, 4)
    ]


def test_who_stops_one_training_stops_the_recipe(quick, monkeypatch, tmp_path):
    _, memory, *_ = quick
    whole = memory.train
    monkeypatch.setattr(
        memory, "train", lambda *given, **options: replace(whole(*given, **options), reason="interrupted")
    )
    with pytest.raises(SystemExit):
        memory._run("copy", "ntm", tmp_path, 5.0, 0)
    assert len(list(tmp_path.glob("memorise-*"))) == 1


def test_a_soak_tells_of_every_step(recipes, quick, monkeypatch, tmp_path, capsys):
    *_, report, soak = recipes
    monkeypatch.setattr(soak, "BATCH", 4)
    run(soak, monkeypatch, "--sequences", 12, "--seeds", 1, "--problem", "copy", "--out", tmp_path)
    (row,) = [json.loads(line) for line in (report.RESULTS / "soak.jsonl").read_text().splitlines()]
    assert (row["name"], row["seed"], row["sequences"], row["finite"]) == ("copy", 0, 12, True)
    assert row["first_loss"] == pytest.approx(math.log(2), abs=0.05)
    assert "| copy | 0 | 12 | yes |" in capsys.readouterr().out


def test_a_soak_that_is_stopped_notes_nothing_and_does_not_go_on(recipes, quick, monkeypatch, tmp_path):
    *_, report, soak = recipes
    whole = soak.train
    monkeypatch.setattr(
        soak, "train", lambda *given, **options: replace(whole(*given, **options), reason="interrupted")
    )
    with pytest.raises(SystemExit):
        run(soak, monkeypatch, "--sequences", 100, "--seeds", 2, "--problem", "copy", "--out", tmp_path / "runs")
    assert not (report.RESULTS / "soak.jsonl").exists()
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_soak_notices_what_is_not_a_number(recipes, quick, monkeypatch, tmp_path):
    *_, soak = recipes
    broken = torch.nn.functional.binary_cross_entropy_with_logits
    calls = []

    def loss(*arguments, **options):
        calls.append(1)
        return broken(*arguments, **options) * (math.nan if len(calls) == 2 else 1.0)

    monkeypatch.setattr("foci.tasks.memorise.F.binary_cross_entropy_with_logits", loss)
    monkeypatch.setattr(soak, "BATCH", 4)
    row = soak.soak("copy", 12, 0, tmp_path)
    assert row["finite"] is False
    assert "the loss is nan" in row["stopped"]
    assert row["sequences"] == 4


def test_other_recipes_stay_in_the_report(recipes):
    program, *_ = recipes
    assert {"multi30k", "compare", "tatoeba", "reviews", "bbc", "planted", "memorise"} == {*program.RECIPES}
    assert all(recipe.title and recipe.note and recipe.minutes > 0 for recipe in program.RECIPES.values())


def test_the_comparison_stands_in_the_order_of_its_models(recipes):
    from recipes import translation

    (row, *_) = (json.loads(line) for line in (ROOT / "recipes/results/compare.jsonl").read_text().splitlines())
    wanted = [*translation.COMPARED]
    table = translation.RECIPES["compare"].table([{**row, "name": name} for name in reversed(wanted)])
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:12]] == wanted


def test_a_row_about_documents_knows_its_seed(recipes, monkeypatch, tmp_path):
    from recipes import documents

    small = {"data": {"planted": 60}, "training": {**documents.PLANTED["training"], "max_steps": 2, "warmup": 1}}
    monkeypatch.setattr(documents, "PLANTED", {**documents.PLANTED, **small})
    jobs = list(documents.planted(tmp_path, 5.0, 7))
    assert [job.name for job in jobs] == ["hierarchical", "attention"]
    row = jobs[0].run()
    assert (row["seed"], row["steps"]) == (7, 2)
    assert 0 <= row["on_word"] <= row["on_sentence"] <= 1
