"""`foci compare` and `foci curves`, and the mistakes that can be made with them."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from foci.tasks.frame.train import train
from foci.viz.trace import Trace
from foci_cli import main

BLOCKS = {"model_dim": 8, "hidden_dim": 11, "num_heads": 2, "num_layers": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small translator with two checkpoints."""
    folder = tmp_path_factory.mktemp("compare")
    for name, lines in (("a.en", ["one red house", "two trees"]), ("a.de", ["ein rotes Haus", "zwei Bäume"])):
        (folder / name).write_text("\n".join(lines * 9) + "\n", encoding="utf-8")
    tables = {
        "data": {"path": str(folder / "a.en"), "target": str(folder / "a.de")},
        "tokenizer": {"kind": "words", "size": 40},
        "model": {"kind": "transformer", "encoder": BLOCKS, "decoder": BLOCKS},
        "training": {
            "max_steps": 20,
            "eval_every": 10,
            "save_every": 10,
            "save_total_limit": 3,
            "metrics_every": 5,
            "warmup": 5,
            "learning_rate": 0.02,
        },
    }
    train("translate", tables, out=folder / "run", log=lambda text: None)
    return folder / "run"


def payload(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="trace">')[1].split("</script>")[0])


def failing(arguments, capsys, code=2):
    assert main([*map(str, arguments)]) == code
    return capsys.readouterr().err


def test_two_saved_traces_become_one_page(tmp_path, capsys):
    for name, weights in (("a", [[0.5, 0.5]]), ("b", [[0.25, 0.75]])):
        Trace.from_arrays(weights, ["das", "Haus"], ["house"]).save(tmp_path / name)
    page = tmp_path / "out.html"
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--html", str(page)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    held = payload(page)
    assert held["titles"] == ["a", "b"]
    assert held["pairs"] == [["a · attention", "b · attention"]]


def test_two_checkpoints_and_two_inputs_of_a_run(run, tmp_path):
    page = tmp_path / "out.html"
    checkpoints = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    command = ["compare", str(run), str(run), "one red house", "--html", str(page)]
    assert main([*command, "--checkpoints", ",".join(checkpoints[:2])]) == 0
    held = payload(page)
    assert held["titles"] == checkpoints[:2]
    assert len(held["pairs"]) == len(held["attentions"]) / 2
    assert main([*command[:4], "two trees", *command[4:], "--titles", "house, trees"]) == 0
    held = payload(page)
    assert held["titles"] == ["house", "trees"]
    labels = [axis["labels"] for key, axis in held["axes"].items() if key.endswith("source")]
    assert labels[0] != labels[1]


def test_mistakes_in_comparing_are_told(run, tmp_path, capsys):
    Trace.from_arrays([[1.0]], ["a"]).save(tmp_path / "a")
    saved = tmp_path / "a.json"
    assert "--html is missing" in failing(["compare", saved, saved], capsys)
    page = ["--html", tmp_path / "out.html"]
    assert "there is no file" in failing(["compare", saved, tmp_path / "b.json", *page], capsys, 1)
    assert "expected two" in failing(["compare", saved, saved, *page, "--titles", "one"], capsys)
    assert "0 inputs were given" in failing(["compare", run, run, *page], capsys)
    assert not (tmp_path / "out.html").exists()


def test_curves_are_a_page_and_a_picture(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["curves", str(run)]) == 0
    assert capsys.readouterr().out.strip() == "curves.html"
    metrics = {figure["name"]: figure["lines"] for figure in payload(tmp_path / "curves.html")["figures"]}
    assert [step for step, _ in metrics["loss (training)"][0]] == [5, 10, 15, 20]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = [[line["step"], line["loss"]] for line in lines if line["kind"] == "train"]
    np.testing.assert_allclose(metrics["loss (training)"][0], expected)
    assert [step for step, _ in metrics["loss (validation)"][0]] == [10, 20]
    assert main(["curves", str(run), str(run), "--svg", "a.svg", "--metrics", "loss"]) == 0
    assert len(ElementTree.parse(tmp_path / "a.svg").findall(".//*[@id='axes_2']")) == 1  # training and validation
    assert capsys.readouterr().out.strip() == "a.svg"


def test_mistakes_in_drawing_curves_are_told(run, tmp_path, capsys):
    assert "name at least one run" in failing(["curves"], capsys)
    assert "is no run" in failing(["curves", tmp_path], capsys, 1)
    (tmp_path / "config.json").write_text("{}")
    assert "has not written any metrics yet" in failing(["curves", tmp_path], capsys, 1)
    assert "unknown metric 'los'" in failing(["curves", run, "--metrics", "los", "--html", tmp_path / "a.html"], capsys)


def test_layers_and_heads_are_chosen(run, tmp_path, capsys):
    page = tmp_path / "out.html"
    assert main(["show", str(run), "one red house", "--html", str(page), "--layers", "1", "--heads", "1"]) == 0
    attentions = payload(page)["attentions"]
    assert {attention["layer"] for attention in attentions} == {1}
    assert {tuple(attention["numbers"]) for attention in attentions} == {(1,)}
    capsys.readouterr()
    assert "expected zero-based numbers" in failing(["show", run, "x", "--html", page, "--layers", "a-b"], capsys)
