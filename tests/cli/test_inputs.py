"""`foci predict`: arguments, files and standard input; what is printed, where; and every mistake."""

import io
import json
import sys

import pytest

import foci
from foci.cli import inputs
from foci.errors import ConfigError, DataError
from foci.tasks.classify.task import Classify
from foci.tasks.frame.task import Field
from foci_cli import main

SENTENCE = (Field("source", "sentence"),)
DOCUMENT = (Field("text", "document"),)
PAIR = (Field("premise", "sentence"), Field("hypothesis", "sentence"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classify run") / "run"  # with a space in its path
    foci.train("classify", Classify.Config.smallest, out=folder, log=lambda text: None)
    return folder


def give(monkeypatch, raw):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_arguments_are_taken_field_by_field():
    assert list(inputs.from_arguments(SENTENCE, ["a", "b"])) == [{"source": "a"}, {"source": "b"}]
    assert list(inputs.from_arguments(PAIR, ["a", "b"])) == [{"premise": "a", "hypothesis": "b"}]
    with pytest.raises(ConfigError, match="3 inputs are given, expected 2 for each prediction: PREMISE HYPOTHESIS"):
        list(inputs.from_arguments(PAIR, ["a", "b", "c"]))


def test_files_are_read_by_their_endings(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return [tmp_path / name]

    assert list(inputs.from_files(SENTENCE, write("a.txt", "x\ny\n"))) == [{"source": "x"}, {"source": "y"}]
    assert list(inputs.from_files(DOCUMENT, write("a.txt", "x\ny\n"))) == [{"text": "x\ny"}]
    assert list(inputs.from_files(PAIR, write("a.tsv", "x\ty\n"))) == [{"premise": "x", "hypothesis": "y"}]
    rows = write("a.jsonl", '{"text": "x", "id": 3}\n')
    assert list(inputs.from_files(DOCUMENT, rows)) == [{"text": "x"}]
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: has no 'source' of the right kind. Expected source"):
        list(inputs.from_files(SENTENCE, rows))
    with pytest.raises(DataError, match=r"b\.jsonl, line 2: not a JSON object"):
        list(inputs.from_files(SENTENCE, write("b.jsonl", '{"source": "x"}\nx\n')))
    with pytest.raises(DataError, match=r"c\.tsv, line 1: has 1 columns. Expected premise, hypothesis"):
        list(inputs.from_files(PAIR, write("c.tsv", "x\n")))


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_names_in_a_file_are_looked_for_beside_it(tmp_path, kind):
    fields = (Field("path", kind),)
    (tmp_path / "a.wav").write_bytes(b"\xff")
    (tmp_path / "a.txt").write_text("a.wav\nmorse:SOS\n/none.wav\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"path": "a.wav"}\n', encoding="utf-8")
    expected = {"path": str(tmp_path / "a.wav")}
    assert list(inputs.from_files(fields, [tmp_path / "a.wav"])) == [expected]
    assert list(inputs.from_files(fields, [tmp_path / "a.jsonl"])) == [expected]
    found = list(inputs.from_files(fields, [tmp_path / "a.txt"]))
    assert found == [expected, {"path": "morse:SOS"}, {"path": "/none.wav"}]


def test_standard_input(monkeypatch):
    give(monkeypatch, b"x\n\ny\n")
    assert list(inputs.from_standard_input(SENTENCE)) == [{"source": "x"}, {"source": ""}, {"source": "y"}]
    give(monkeypatch, b"x\ny\n")
    assert list(inputs.from_standard_input(DOCUMENT)) == [{"text": "x\ny"}]
    give(monkeypatch, b'{"text": "x"}\n{"text": "y\\nz"}\n')
    assert list(inputs.from_standard_input(DOCUMENT)) == [{"text": "x"}, {"text": "y\nz"}]
    give(monkeypatch, b'{"premise": "x", "hypothesis": "y"}\nplain\n')
    records = inputs.from_standard_input(PAIR)
    assert next(records) == {"premise": "x", "hypothesis": "y"}
    with pytest.raises(DataError, match="standard input, line 2: is no such object. Expected premise, hypothesis"):
        next(records)


def test_standard_input_that_is_not_utf8(run, monkeypatch, capsys):
    give(monkeypatch, b"fine\n\xff\xfe\n")
    assert main(["predict", str(run)]) == 1
    assert "foci: standard input, line 2: byte 1 of the line is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_jsonl_in_and_out(run, monkeypatch, capsys, dash):
    give(monkeypatch, '{"text": "Paka é."}\n{"text": " "}\n'.encode())
    assert main(["predict", str(run), *dash, "--json"]) == 0
    out, err = capsys.readouterr()
    first, second = map(json.loads, out.splitlines())
    assert first["text"] == "Paka é."
    assert first["output"] in ("a", "b")
    assert (second["output"], second["score"]) == ("", None)
    assert err == "foci: input 2: the input is empty, so nothing was predicted\n"


def test_a_dash_beside_other_inputs_is_a_mistake_and_a_text_after_two_dashes(run, monkeypatch, capsys):
    assert main(["predict", str(run), "-", "x"]) == 2
    assert "- is given beside inputs or --file" in capsys.readouterr().err
    give(monkeypatch, b"")
    assert main(["predict", str(run), "--json", "--", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "-"


def test_hints_can_be_typed_into_a_shell(run, capsys):
    out = run.parent / "new one"
    arguments = ["--builtin", "40", "--preset", "tiny", "--set", "training.max_steps=1"]
    assert main(["train", "classify", *arguments, "--out", str(out)]) == 0
    assert f"foci evaluate '{out}'" in capsys.readouterr().out


def test_a_run_that_is_not_there(tmp_path, capsys):
    for command in ("predict", "evaluate"):
        assert main([command, str(tmp_path / "none"), "x", "--beam", "3"]) == 1
        assert "none: is no run (no config.json). Name the folder that training wrote" in capsys.readouterr().err
        assert main([command, "--help"]) == 0
        assert f"foci {command} RUN --help" in " ".join(capsys.readouterr().out.split())


def test_escapes_in_paths_reach_no_terminal(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "\x1b[31mred")]) == 1
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "^[[31mred" in err


@pytest.mark.parametrize("command", ["predict", "train", "list"])
def test_escapes_in_unknown_flags_reach_no_terminal(command, capsys):
    assert main([command, "--\x1b[31mred"]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "[31mred" in out + err
