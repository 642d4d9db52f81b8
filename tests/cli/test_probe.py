"""`foci probe`: a run, its held-out examples, files and texts; what is printed, and every mistake."""

import json

import pytest

import foci
from foci.tasks.classify.task import Classify
from foci.tasks.frame import config as configs
from foci_cli import main

FEW = ["--trials", "3", "--set", "steps=0", "--set", "permutations=0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe") / "run"
    tables = configs.put(Classify.Config.smallest, {"training.max_steps": 3, "training.eval_every": 3})
    foci.train("classify", tables, out=folder, log=lambda text: None)
    return folder


def failed(capsys, *arguments, code=2):
    assert main(["probe", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_held_out_examples_are_probed(run, capsys):
    capsys.readouterr()
    assert main(["probe", str(run), "--limit", "2", *FEW]) == 0
    out, err = capsys.readouterr()
    assert "probing 2 of" in err
    assert "words, of document\n" in out
    assert "gradient × input, of document\n" in out
    assert "(chance " in out
    assert "95 % intervals over 2 inputs" in out
    assert max(map(len, out.splitlines())) <= 120


def test_texts_and_files_are_probed_as_json(run, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "one two three", "rationales": [[4, 7]]}\n', encoding="utf-8")
    (tmp_path / "a.txt").write_text("four five six\n\nseven eight nine\n", encoding="utf-8")
    assert main(["probe", str(run), "--file", str(tmp_path / "a.jsonl"), *FEW, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == 1
    assert "auprc" in found["rows"][0]["measures"]
    assert main(["probe", str(run), "ten eleven twelve", "--file", str(tmp_path / "a.txt"), *FEW, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["inputs"] == 3
    assert "input 1: 3 of 3 words are unknown to this run: 'ten', 'eleven', 'twelve'" in err


def test_mistakes_are_named(run, tmp_path, capsys):
    capsys.readouterr()
    assert "name a run: foci probe RUN" in failed(capsys)
    assert "--limit is '0', expected a number above 0" in failed(capsys, run, "--limit", "0")
    assert "trials" in failed(capsys, run, "a b", "--trials", "0")
    assert "--checkpoint is about runs" in failed(capsys, "--hf", tmp_path, "--checkpoint", "best", "a b")
    (tmp_path / "a.jsonl").write_text('{"txt": "one"}\n', encoding="utf-8")
    file = ("--file", tmp_path / "a.jsonl")
    assert "input 1: has txt, expected a text in the field text" in failed(capsys, "--hf", tmp_path, *file, code=1)
    (tmp_path / "a.jsonl").write_text('{"text": "one", "boxes": []}\n', encoding="utf-8")
    assert "input 1: boxes are of images" in failed(capsys, "--hf", tmp_path, *file)
    assert "the input is missing: foci probe --hf" in failed(capsys, "--hf", tmp_path)
