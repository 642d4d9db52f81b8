"""The demos: they complete and write the files they name; here with a few steps, so their predictions are poor."""

import random

import pytest

import foci
import foci_cli
from foci.printable import printable
from foci.tasks import TASKS
from foci.tasks.frame.predictor import Predictor

SMALL = {
    "translate": ["--languages", "en-de", "--builtin", "60"],
    "summarize": ["--builtin", "60"],
    "classify": ["--builtin", "60"],
    "tag": ["--builtin", "60"],
    "entail": ["--builtin", "60"],
    "cloze": ["--builtin", "60"],
    "caption": ["--builtin", "60"],
    "classify_images": ["--builtin", "60"],
    "detect": ["--builtin", "60"],
    "vqa": ["--builtin", "60"],
    "transcribe": ["--builtin", "24", "--set", "data.morse_words=1"],
    "memorize": ["--set", "data.problem.max_length=2", "--set", "data.valid_sequences=2"],
}
EVALUATED = 23
"""How many held-out examples are evaluated: a few more than a demo predicts."""


@pytest.fixture
def few_held_out(monkeypatch):
    """Hundreds of examples would take most of the time, each the same way."""
    held_out = Predictor.held_out
    monkeypatch.setattr(Predictor, "held_out", lambda self, *log: held_out(self, *log)[:EVALUATED])


def earlier_demo(task, folder):
    """What an earlier demo of the task left, as far as another one could stumble over it."""
    (folder / task / "checkpoints" / "step-9").mkdir(parents=True)
    for name in ("attention.png", "attention.html", "config.json", "checkpoints/step-9/state.json"):
        (folder / task / name).write_text("earlier")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_demo_leaves_a_picture_and_a_page_and_replaces_an_earlier_one(task, few_held_out, tmp_path, capsys):
    earlier_demo(task, tmp_path)
    assert foci_cli.main(["demo", task, *SMALL.get(task, []), "--steps", "2", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    folder = tmp_path / task
    assert {one.name for one in tmp_path.iterdir()} == {task}  # nothing that the demo of another task would replace
    assert (folder / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert "<!doctype html>" in (folder / "attention.html").read_text(encoding="utf-8").lower()
    assert str(folder / "attention.html") in told
    assert f"Go on with: foci show {tmp_path / task}" in told
    assert not (tmp_path / task / "checkpoints" / "step-9").exists()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["translate", "transcribe"])  # the latter also leaves sounds
def test_a_demo_runs_twice_in_one_folder(task, few_held_out, tmp_path):
    for _ in range(2):
        assert foci_cli.main(["demo", task, *SMALL[task], "--steps", "2", "--out", str(tmp_path)]) == 0


@pytest.mark.slow
def test_the_predictions_shown_are_drawn_without_regard_to_how_good_they_are(tmp_path, capsys):
    shown = []
    for seed in ("1", "2"):
        arguments = ["demo", "classify", *SMALL["classify"], "--steps", "2", "--out", str(tmp_path)]
        assert foci_cli.main([*arguments, "--set", f"training.seed={seed}"]) == 0
        told = capsys.readouterr().out
        assert "Predictions for 3 of them, drawn at random (seed 0)" in told
        shown.append([line.partition("  →  ")[0] for line in told.splitlines() if "  →  " in line])
    assert shown[0] == shown[1]
    records = [record["text"] for record in foci.load(tmp_path / "classify").held_out()]
    drawn = random.Random(0).sample(records, 3)
    assert [printable(text) for text in drawn] == shown[0]


def test_a_mistake_leaves_an_earlier_demo_alone(tmp_path, capsys):
    (tmp_path / "translate").mkdir()
    (tmp_path / "translate" / "config.json").write_text("{}")
    assert foci_cli.main(["demo", "translate", "--set", "model.kind=xx", "--out", str(tmp_path)]) != 0
    assert "'xx'" in capsys.readouterr().err
    assert (tmp_path / "translate" / "config.json").exists()
