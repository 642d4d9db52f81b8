"""The table of tasks: unknown names, and tasks of other packages with all commands."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import foci
import foci_cli
from foci.errors import CheckpointError, ConfigError, UnknownNameError
from foci.tasks import CALLED, TASKS, register, row_of
from foci.tasks.frame.task import find

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_task" / "own_task.py"
SETTINGS = {"data": {"builtin": 60}, "training": {"max_steps": 3, "eval_every": 3, "metrics_every": 1}}
SILENT = {"log": lambda text: None}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder with the example as an installed package, which has an entry point; its module is forgotten again."""
    folder = tmp_path / "site"
    (folder / "own_task-1.0.dist-info").mkdir(parents=True)
    shutil.copy(EXAMPLE, folder)
    (folder / "own_task-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: own-task\nVersion: 1.0\n")
    entry_points = (EXAMPLE.parent / "pyproject.toml").read_text().partition('entry-points."foci.tasks"]\n')[2]
    line = entry_points.partition("\n")[0].replace('"', "")
    (folder / "own_task-1.0.dist-info" / "entry_points.txt").write_text(f"[foci.tasks]\n{line}\n")
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("own_task", None)


@pytest.fixture
def table(monkeypatch):
    """The table, as it is restored after the test."""
    monkeypatch.setattr("foci.tasks.TASKS", table := dict(TASKS))
    return table


@pytest.mark.parametrize("name", CALLED)
def test_what_people_call_a_task_is_suggested(name):
    assert name not in TASKS
    assert CALLED[name] in TASKS
    for said in (name, name.upper(), name.replace("_", "-"), name.replace("_", " ")):
        with pytest.raises(UnknownNameError, match=f"unknown task '{said}'. Did you mean '{CALLED[name]}'"):
            row_of(said)


def test_the_names_of_pipelines_of_transformers_are_suggested():
    """Those of tasks that foci has, as `transformers.pipeline` calls them."""
    pipelines = {
        "automatic-speech-recognition": "transcribe",
        "fill-mask": "cloze",
        "image-classification": "classify_images",
        "image-to-text": "caption",
        "question-answering": "cloze",
        "sentiment-analysis": "classify",
        "summarization": "summarize",
        "text-classification": "classify",
        "text-generation": "generate",
        "token-classification": "tag",
        "translation": "translate",
        "visual-question-answering": "vqa",
    }
    for name, meant in pipelines.items():
        with pytest.raises(UnknownNameError, match=f"Did you mean '{meant}'\\?"):
            row_of(name)


def test_every_door_suggests_it(tmp_path, capsys):
    for command in ("train", "demo"):
        assert foci_cli.main([command, "ner"]) == 2
        assert "unknown task 'ner'. Did you mean 'tag'?" in capsys.readouterr().err
    with pytest.raises(UnknownNameError, match="Did you mean 'transcribe'"):
        foci.train("asr", out=tmp_path / "run")


def test_a_task_of_an_installed_package_has_every_command(package, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = tmp_path / "words.csv"
    rows = [f"{a}{b}{c}{'l' * n}y,{'doubled' if n == 2 else 'plain'}" for a in "bdgh" for b in "aeio" for c in "mnrs"
            for n in (1, 2)]  # fmt: skip
    words.write_text("\n".join(["text,label", *rows]) + "\n")
    run, page = str(tmp_path / "run"), tmp_path / "page.html"
    for command, expected in (
        (["tasks"], "Of the package own-task."),
        (["train", "--help"], "doubled"),
        (["train", "doubled", "--help"], "--hidden-dim"),
        (["train", "doubled", "--print-config"], "hidden_dim = 32"),
        (["train", "doubled", "--data", str(words), "--hidden-dim", "8", "--set", "training.max_steps=3",
          "--out", run], "trained (max_steps)"),
        (["train", "doubled", "--set", "training.max_steps=4", "--resume", "--out", run], "trained (max_steps)"),
        (["evaluate", run], "accuracy"),
        (["predict", run, "hammer", "--top-k", "2", "--json"], '"probabilities"'),
        (["predict", run, "--help"], "--top-k"),
        (["show", run, "hammer", "--html", str(page)], "page.html"),
        (["curves", run, "--html", str(tmp_path / "curves.html")], "curves.html"),
        (["demo", "doubled", "--steps", "3", "--builtin", "60"], "Go on with"),
    ):  # fmt: skip
        assert foci_cli.main(command) == 0, command
        assert expected in capsys.readouterr().out, command
    assert '"pool"' in page.read_text(encoding="utf-8")
    loaded = foci.load(run)
    assert loaded.config.model.hidden_dim == 8
    assert loaded("hammer").output in ("doubled", "plain")


@pytest.mark.slow
def test_the_commands_of_the_page_run_as_they_stand(package, tmp_path, monkeypatch):
    page = (EXAMPLE.parents[2] / "docs" / "train-your-own.md").read_text(encoding="utf-8")
    install, *commands = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert install == "pip install ./examples/own_task"  # the fixture has installed it
    assert [command.split()[1] for command in commands] == ["demo", "train", "show"]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert foci_cli.main(command.split()[1:]) == 0, command


def test_a_registered_task_is_trained_and_loaded_like_any_other(package, table, tmp_path):
    (package / "own_task-1.0.dist-info" / "entry_points.txt").unlink()
    with pytest.raises(UnknownNameError, match="unknown task 'doubled'"):
        foci.train("doubled", SETTINGS, out=tmp_path / "run", **SILENT)
    register("doubled", "own_task:Doubled", "Find doubled letters.")
    foci.train("doubled", SETTINGS, out=tmp_path / "run", **SILENT)
    assert len(foci.load(tmp_path / "run")(["hammer", "nail"])) == 2
    del table["doubled"]
    with pytest.raises(CheckpointError, match=r"is a run of the task 'doubled', .* foci.tasks.register\('doubled'"):
        foci.load(tmp_path / "run")


def test_what_is_no_task_is_refused(package, table):
    for name, home, message in (
        ("tag", "own_task:Doubled", "'tag' of 'own_task:Doubled' has the name of one of foci"),
        ("mine", "own_task.Doubled", "expected one as in 'my_package.task:Mine'"),
    ):
        with pytest.raises(ConfigError, match=message):
            register(name, home)
    for name, home, message in (
        ("mine", "own_task:Doubled", "expected a class derived from .*Task with name = 'mine'"),
        ("model", "own_task:Model", "expected a class derived from"),
        ("gone", "own_task:Gone", "cannot be imported: module 'own_task' has no attribute 'Gone'"),
        ("lost", "lost_package:Lost", "cannot be imported: No module named 'lost_package'"),
    ):
        register(name, home)
        with pytest.raises(ConfigError, match=message):
            find(name)


def test_the_help_of_tasks_imports_no_package(package):
    code = "import sys, foci_cli; foci_cli.main(['tasks']); assert not {'torch', 'own_task'} & {*sys.modules}"
    environment = {"PYTHONPATH": f"{package}:{Path(foci.__file__).parents[1]}"}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    assert "doubled" in made.stdout
