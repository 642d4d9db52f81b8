"""`foci predict`: answers as lines arrive, inputs that fail, folders, tables, and output in any encoding."""

import io
import json
import os
import subprocess
import sys

import pytest

import foci
from foci.data.images.drawn import draw, find_scene
from foci.tasks.classify.task import Classify
from foci.tasks.classify_images.task import ClassifyImages
from foci_cli import main

SILENT = {"log": lambda text: None}


@pytest.fixture(scope="module")
def images_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "run"
    settings = {**ClassifyImages.Config.smallest, "training": {"max_steps": 2, "eval_every": None}}
    foci.train("classify_images", settings, out=folder, **SILENT)
    return str(folder)


@pytest.fixture(scope="module")
def texts_run(tmp_path_factory):
    """A classifier whose labels an old encoding cannot write."""
    folder = tmp_path_factory.mktemp("texts")
    labels = ["好😀", "坏😡", "é"]
    rows = [f"text {number} {label}\t{label}" for label in labels for number in range(20)]
    (folder / "data.tsv").write_text("\n".join(rows), encoding="utf-8")
    settings = {**Classify.Config.smallest, "data": {"path": str(folder / "data.tsv"), "columns": (0, 1)}}
    foci.train("classify", settings | {"training": {"max_steps": 2, "eval_every": None}}, out=folder / "run", **SILENT)
    return str(folder / "run")


@pytest.fixture
def pictures(tmp_path):
    """Two images, one of them in a folder of its own, a damaged one, and a file that is no image."""
    from PIL import Image

    (tmp_path / "inner").mkdir()
    for name in ("a.png", "inner/b.jpg"):
        Image.fromarray(draw(find_scene("drawn:one/train/0/17"), 32)).save(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no more")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def test_a_failed_input_is_named_and_the_others_go_on(images_run, pictures, capsys):
    names = [str(pictures / name) for name in ("a.png", "broken.png", "none.png", "inner/b.jpg")]
    assert main(["predict", images_run, *names]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.partition(": ")[0].rstrip(":") for line in lines] == names
    assert all("%" in lines[number] for number in (0, 3))
    assert f"foci: {names[1]}: not an image, or a damaged one" in err
    assert f"foci: {names[2]}: there is no such file" in err
    assert err.count(names[2]) == 1
    assert err.endswith("foci: 2 of 4 inputs failed\n")
    assert main(["predict", images_run, *names[1:3]]) == 2
    assert main(["predict", images_run, names[0]]) == 0
    assert names[0] not in capsys.readouterr().out.splitlines()[-1]  # one input needs no name


def test_a_folder_of_images_is_predicted_and_what_is_skipped_is_said(images_run, pictures, capsys):
    assert main(["predict", images_run, str(pictures), "--json"]) == 1
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["file"] for one in found] == [str(pictures / name) for name in ("a.png", "broken.png", "inner/b.jpg")]
    assert [one.get("failed", False) for one in found] == [False, True, False]
    assert "3 images; skipped 1 other files (1 × .txt)" in err


def test_a_table_has_a_row_for_each_answer(images_run, pictures, capsys):
    assert main(["predict", images_run, str(pictures), "--tsv", "--top-k", "2"]) == 1
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["file", "line", "rank", "output", "score", "error"]
    names = [str(pictures / name) for name in ("a.png", "broken.png", "inner/b.jpg")]
    expected = [(names[0], "1"), (names[0], "2"), (names[1], "1"), (names[2], "1"), (names[2], "2")]
    assert [(row[0], row[2]) for row in rows] == expected
    assert all(len(row) == len(header) for row in rows)
    assert [bool(row[5]) for row in rows] == [False, False, True, False, False]


@pytest.mark.parametrize("form", [["--json", "--tsv"], ["--json", "--show"]])
def test_two_forms_of_output_are_a_mistake(texts_run, form, capsys):
    assert main(["predict", texts_run, "x", *form]) == 2
    assert "are given, expected one of them" in capsys.readouterr().err


def test_answers_to_several_files_of_text_name_them(texts_run, tmp_path, capsys):
    files = []
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"text": "x"}\n', encoding="utf-8")
        files += ["--file", str(tmp_path / name)]
    assert main(["predict", texts_run, *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"{tmp_path / name}, line 1" for name in ("a.jsonl", "b.jsonl")]
    assert main(["predict", texts_run, *files, "--file", str(tmp_path / "none.jsonl"), "--json"]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["file"] == str(tmp_path / "none.jsonl")


def test_top_k_gives_the_likeliest_labels(texts_run):
    predictor = foci.load(texts_run)
    for k in (1, 2, 3, 9):
        (answer,) = predictor.predict(["text 3 é"], options={"top_k": k})
        answers = (answer, *answer.alternatives)
        by_probability = sorted(answer.details["probabilities"].items(), key=lambda one: -one[1])
        assert [(one.output, one.score) for one in answers] == by_probability[:k]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "gb18030", "utf-8"])
def test_output_is_complete_in_every_encoding(texts_run, encoding, monkeypatch):
    def printed(*arguments):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            assert main(["predict", texts_run, "née 好😀 \\u597d", *arguments]) == 0
        return stream.buffer.getvalue()

    found = json.loads(printed("--json"))  # of bytes, which are UTF-8 as all JSON is
    assert {*found["probabilities"]} == {"好😀", "坏😡", "é"}
    assert found["text"] == "née 好😀 \\u597d"
    plain = printed("--top-k", "3").decode(encoding)
    escaped = {"ascii": r"\u00e9", "cp1252": "é"}.get(encoding)
    assert "?" not in plain
    assert escaped is None or (escaped in plain and r"\u597d\ud83d\ude00" in plain)


@pytest.mark.slow
def test_lines_of_a_pipe_are_answered_as_they_arrive(texts_run):
    command = [sys.executable, "-m", "foci.cli", "predict", texts_run, "--json"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, env=os.environ) as program:
        for text in ("one", "two"):  # the second is written after the first was answered
            program.stdin.write(json.dumps({"text": text}).encode() + b"\n")
            program.stdin.flush()
            assert json.loads(program.stdout.readline())["text"] == text
        program.stdin.close()
        assert program.wait() == 0


def test_a_folder_of_documents_is_answered_file_by_file(texts_run, tmp_path, capsys):
    (tmp_path / "in" / "more").mkdir(parents=True)
    (tmp_path / "in" / "a.txt").write_text("text 1 é\nand more")
    (tmp_path / "in" / "more" / "b.txt").write_text("text 2")
    assert main(["predict", texts_run, "--file", str(tmp_path / "in")]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path / 'in' / 'a.txt'}: ")
    assert second.startswith(f"{tmp_path / 'in' / 'more' / 'b.txt'}: ")
    (tmp_path / "empty").mkdir()
    assert main(["predict", texts_run, "--file", str(tmp_path / "empty")]) == 2
