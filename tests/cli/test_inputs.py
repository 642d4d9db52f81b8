"""`foci predict`: arguments, files and standard input; what is printed, where; and every mistake."""

import io
import json
import sys

import pytest

import foci
from foci.cli import inputs
from foci.errors import ConfigError
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


def records(given):
    """The records of inputs; a reason in the place of those that have none."""
    return [one.reason if one.record is None else one.record for one in given]


def arrived(fields):
    return [one for group in inputs.from_standard_input(fields) for one in group]


def test_files_are_read_by_their_endings(tmp_path):
    def read(fields, name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return list(inputs.from_files(fields, [tmp_path / name]))

    found = read(SENTENCE, "a.txt", "x\ny\n")
    assert records(found) == [{"source": "x"}, {"source": "y"}]
    assert [one.where for one in found] == [f"{tmp_path / 'a.txt'}, line 1", f"{tmp_path / 'a.txt'}, line 2"]
    (document,) = read(DOCUMENT, "a.txt", "x\ny\n")
    assert (document.record, document.where) == ({"text": "x\ny"}, str(tmp_path / "a.txt"))
    assert records(read(PAIR, "a.tsv", "x\ty\n")) == [{"premise": "x", "hypothesis": "y"}]
    assert records(read(DOCUMENT, "a.jsonl", '{"text": "x", "id": 3}\n')) == [{"text": "x"}]


def test_a_line_that_cannot_be_used_leaves_the_others(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\nx\n{"source": "y"}\n', encoding="utf-8")
    (tmp_path / "b.tsv").write_text("x\nx\ty\n", encoding="utf-8")
    (tmp_path / "c.txt").write_bytes(b"x\n\xff\ny\n")
    wrong_field, no_object, good = records(inputs.from_files(SENTENCE, [tmp_path / "a.jsonl"]))
    assert wrong_field == "has no 'source' of the right kind. Expected source."
    assert no_object.startswith("not a JSON object")
    assert good == {"source": "y"}
    narrow, pair = records(inputs.from_files(PAIR, [tmp_path / "b.tsv"]))
    assert narrow == "has 1 columns. Expected premise, hypothesis."
    assert pair == {"premise": "x", "hypothesis": "y"}
    missing, first, undecodable, last = inputs.from_files(SENTENCE, [tmp_path / "none.txt", tmp_path / "c.txt"])
    assert "none.txt: cannot be opened" in missing.reason
    assert (first.record, last.record) == ({"source": "x"}, {"source": "y"})
    assert undecodable.reason.startswith("byte 1 of the line is not UTF-8")
    assert undecodable.where == f"{tmp_path / 'c.txt'}, line 2"


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_names_in_a_file_are_looked_for_beside_it(tmp_path, kind):
    fields = (Field("path", kind),)
    (tmp_path / "a.wav").write_bytes(b"\xff")
    (tmp_path / "a.txt").write_text("a.wav\nmorse:SOS\n/none.wav\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"path": "a.wav"}\n', encoding="utf-8")
    expected = {"path": str(tmp_path / "a.wav")}
    assert records(inputs.from_files(fields, [tmp_path / "a.wav"])) == [expected]
    assert records(inputs.from_files(fields, [tmp_path / "a.jsonl"])) == [expected]
    found = inputs.from_files(fields, [tmp_path / "a.txt"])
    assert records(found) == [expected, {"path": "morse:SOS"}, {"path": "/none.wav"}]


@pytest.mark.parametrize(("kind", "ending"), [("image", "PNG"), ("audio", "wav")])
def test_a_folder_becomes_its_files(tmp_path, kind, ending):
    fields = (Field("path", kind), Field("question", "sentence"))
    for name in (f"b/c/z.{ending}", f"a.{ending}", f".hidden.{ending}", "b/notes.txt", "b/LICENSE", "b/more.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "empty").mkdir()
    given = [inputs.Input({"path": str(path), "question": "what?"}) for path in (tmp_path, tmp_path / "b" / "empty")]
    log = []
    *found, nothing = inputs.with_folders(given, fields, log.append)
    names = [str(tmp_path / f"a.{ending}"), str(tmp_path / "b" / "c" / f"z.{ending}")]
    assert records(found) == [{"path": name, "question": "what?"} for name in names]
    assert [one.file for one in found] == names
    noun = {"image": "images", "audio": "recordings"}[kind]
    assert nothing.reason == f"the folder has no {noun}."
    assert log == [f"{tmp_path}: 2 {noun}; skipped 3 other files (2 × .txt, 1 × no ending)"]


def test_standard_input(monkeypatch):
    give(monkeypatch, b"x\n\ny\n")
    found = arrived(SENTENCE)
    assert records(found) == [{"source": "x"}, {"source": ""}, {"source": "y"}]
    assert [one.where for one in found] == [f"standard input, line {number}" for number in (1, 2, 3)]
    give(monkeypatch, b"\xef\xbb\xbfx\r\ny")
    assert records(arrived(SENTENCE)) == [{"source": "x"}, {"source": "y"}]
    give(monkeypatch, b"x\ny\n")
    assert records(arrived(DOCUMENT)) == [{"text": "x\ny"}]
    give(monkeypatch, b"x\n\xff\n")
    (undecodable,) = arrived(DOCUMENT)
    assert undecodable.where == "standard input, line 2"
    assert "is not UTF-8" in undecodable.reason
    give(monkeypatch, b'{"text": "x"}\n{"text": "y\\nz"}\n')
    assert records(arrived(DOCUMENT)) == [{"text": "x"}, {"text": "y\nz"}]
    give(monkeypatch, b'{"premise": "x", "hypothesis": "y"}\nplain\n')
    first, plain = records(arrived(PAIR))
    assert first == {"premise": "x", "hypothesis": "y"}
    assert plain == 'is no JSON object with the inputs, expected {"premise": …, "hypothesis": …} on each line.'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
def test_lines_are_the_same_in_whatever_pieces_they_arrive(size, monkeypatch):
    lines = ["你好", "", "x" * 11, "\N{SMILING FACE WITH OPEN MOUTH} y", "end"]
    give(monkeypatch, "\n".join(lines).encode())
    monkeypatch.setattr(inputs, "_CHUNK", size)
    assert records(arrived(SENTENCE)) == [{"source": line} for line in lines]


def test_lines_that_are_read_as_one_document_are_said(monkeypatch, capsys):
    give(monkeypatch, b"x\ny\n")
    assert records(arrived(DOCUMENT)) == [{"text": "x\ny"}]
    assert '2 lines are read as one document; for several give JSON lines, {"text": …}' in capsys.readouterr().err
    for raw, fields in ((b"x\n", DOCUMENT), (b"x\ny\n", SENTENCE), (b'{"text": "x"}\n{"text": "y"}\n', DOCUMENT)):
        give(monkeypatch, raw)
        arrived(fields)
        assert capsys.readouterr().err == ""


def test_standard_input_that_is_not_utf8(run, monkeypatch, capsys):
    give(monkeypatch, b'{"text": "fine"}\n\xff\xfe\n{"text": "fine too"}\n')
    assert main(["predict", str(run), "--json"]) == 1
    out, err = capsys.readouterr()
    assert "foci: standard input, line 2: byte 1 of the line is not UTF-8" in err
    assert [json.loads(line)["line"] for line in out.splitlines()] == [1, 2, 3]
    assert err.endswith("foci: 1 of 3 inputs failed\n")


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_jsonl_in_and_out(run, monkeypatch, capsys, dash):
    give(monkeypatch, '{"text": "Paka é."}\n{"text": " "}\n'.encode())
    assert main(["predict", str(run), *dash, "--json"]) == 0
    out, err = capsys.readouterr()
    first, second = map(json.loads, out.splitlines())
    assert first["text"] == "Paka é."
    assert first["output"] in ("a", "b")
    assert (second["output"], second["score"]) == ("", None)
    assert err == "foci: standard input, line 2: the input is empty, so nothing was predicted\n"


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
        assert main([command, str(tmp_path / "none"), "x", "--beam-size", "3"]) == 1
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
