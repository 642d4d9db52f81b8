"""Encodings of the user's files: read, or refused by name with the setting that cures it, at every door."""

import io
import json
import sys
from pathlib import Path

import pytest

import foci
import foci_cli
from foci.data.lines import ArrivingLines, Fault, read_lines, text_encoding
from foci.data.pairs import AlignedFiles, read_pairs
from foci.encodings import recognize
from foci.errors import ConfigError, DataError
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.config import read_toml
from foci.tasks.frame.task import find
from foci.tasks.generate.reader import TextFiles

TEXTS = {
    "English": ["The cat sat.", "It was naïve: “really”.", "", "1,000 €"],
    "Chinese": ["今天天气很好。", "我们一起去公园玩，一二三。", "好", "上海市人民政府"],
    "Hindi": ["ਅਆ नमस्ते दुनिया", "ਊ", "एक दो तीन"],  # U+0A05, U+0A0A: their bytes hold that of a line feed
    "Russian": ["Привет, мир!", "Это строка.", "Ещё одна"],
    "emoji": ["🙂 👍🏽", "ok"],
}
UNICODE = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", UNICODE)
@pytest.mark.parametrize("language", TEXTS)
def test_unicode_is_read_with_and_without_a_mark(tmp_path, language, encoding, ends):
    lines = TEXTS[language]
    path = tmp_path / "a.txt"
    path.write_bytes((ends.join(lines) + ends).encode(encoding))
    assert list(read_lines(path)) == lines
    path.write_bytes(ends.join(lines).encode(encoding))
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize(("encoding", "language"), [("gb18030", "Chinese"), ("gbk", "Chinese"), ("cp1251", "Russian")])
def test_other_encodings_have_to_be_named(tmp_path, encoding, language):
    lines = TEXTS[language]
    path = tmp_path / "a.txt"
    path.write_bytes("\r\n".join(lines).encode(encoding))
    fault = next(iter(read_lines(path)))
    assert isinstance(fault, Fault)
    assert "is not UTF-8" in fault.reason
    assert "Set data.encoding to the encoding of the file" in fault.reason
    shown = "gb18030" if encoding == "gbk" else encoding
    assert f"s {shown} it reads {lines[0][:5]!r}"[:-2] in fault.reason  # the user sees which one is right
    with text_encoding(encoding):
        assert list(read_lines(path)) == lines


@pytest.mark.parametrize(
    ("content", "encoding", "reason"),
    [
        ("今天天气很好。\n".encode(), "gb18030", "it is UTF-8, not gb18030"),
        ("naïve façade, élève à côté, ça où\n".encode(), "cp1252", "it is UTF-8, not cp1252"),
        (b"plain text\n", "utf-16", "neither the mark nor the zero bytes of utf-16"),
        (b"plain text\n", "utf-16-le", "it is UTF-8, not utf-16-le"),
        ("plain\n".encode("utf-16"), "cp1252", "the mark at its beginning is that of utf-16-le, not of cp1252"),
        ("plain\n".encode("utf-16-be"), "utf-8", "its zero bytes show that it is utf-16-be, not utf-8"),
    ],
)
def test_an_encoding_that_the_bytes_contradict_is_refused(tmp_path, content, encoding, reason):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with text_encoding(encoding, "--encoding"):
        (fault,) = read_lines(path)
    assert reason in fault.reason
    assert "Correct --encoding, or leave it out." in fault.reason


def test_binary_files_are_no_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10")
    faults = [line for line in read_lines(path) if isinstance(line, Fault)]
    assert any("holds a zero byte, so the file is no text" in fault.reason for fault in faults)
    path.write_bytes(b"good\n" * 20_000 + b"b\0d\n")  # far beyond the bytes that show the encoding
    assert next(line for line in read_lines(path) if isinstance(line, Fault)).line == 20_001


def test_an_over_long_line_of_wide_characters_is_a_fault_and_the_next_is_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(("short\n" + "长" * 500 + "\nnext\n").encode("utf-16"))
    first, second, third = read_lines(path, 100)
    assert (first, third) == ("short", "next")
    assert second.kind == "over-long line"


def test_a_stream_keeps_the_encoding_it_was_opened_with(tmp_path):
    for name, lines in (("a", ["今天天气很好", "一二三"]), ("b", ["fine weather today", "one two three"])):
        (tmp_path / name).write_bytes(("\n".join(lines) + "\n").encode("gb18030"))
    (tmp_path / "c.jsonl").write_bytes((json.dumps({"text": "今天天气很好"}, ensure_ascii=False) + "\n").encode("gbk"))
    with text_encoding("gb18030"):
        corpus = AlignedFiles(tmp_path / "a", tmp_path / "b")
        texts, objects = TextFiles(tmp_path / "a"), TextFiles(tmp_path / "c.jsonl")
    assert [pair.source for pair in corpus] == ["今天天气很好", "一二三"]
    assert len(read_pairs(corpus)) == 2
    assert next(iter(texts)).text == "今天天气很好\n一二三\n"
    assert next(iter(objects)).text == "今天天气很好"
    with pytest.raises(DataError, match=r"line 1: is not UTF-8 .* As gb18030 it reads '今天天气很好'"):
        next(iter(TextFiles(tmp_path / "a")))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "gb18030"])
def test_training_and_evaluation_read_the_encoding_of_the_data(tmp_path, encoding):
    rows = [f"今天天气很好，第{number}天。,{'好' if number % 2 else '坏'}" for number in range(40)]
    path = tmp_path / "a.csv"
    path.write_bytes("\r\n".join(["text,label", *rows]).encode(encoding))
    tables = configs.put(
        configs.find_config("classify").smallest,
        {"data.builtin": None, "data.path": str(path), "training.max_steps": 2, "training.eval_every": 2},
    )
    if encoding == "gb18030":
        with pytest.raises(DataError, match=r"a\.csv, line 2: byte 1 of the line is not UTF-8\. As gb18030 it reads"):
            foci.train("classify", tables, out=tmp_path / "no", log=print)
        tables = configs.put(tables, {"data.encoding": "GB18030"})
    foci.train("classify", tables, out=tmp_path / "run", log=print)
    run = foci.load(tmp_path / "run")
    assert run.assets.labels == ("坏", "好")
    assert len(run.read(str(path))) == 40
    assert run.evaluate().metrics["documents"] > 0


def test_unknown_encodings_and_encodings_without_files_are_errors():
    kind = configs.find_config("classify")
    with pytest.raises(
        ConfigError, match=r"data\.encoding is 'gb1803', expected auto, or an encoding that Python knows"
    ):
        configs.configure(kind, {"data": {"path": "x", "encoding": "gb1803"}}, "test")
    with pytest.raises(ConfigError, match="encoding is .*, but no data is named"):
        configs.configure(kind, {"data": {"encoding": "gbk"}}, "test")


@pytest.mark.parametrize("encoding", ["cp037", "unicode_escape", "utf-7", "raw_unicode_escape"])
def test_encodings_without_line_ends_or_with_halves_of_characters_are_refused(encoding):
    # The line feed of the first two is another byte, or two characters; the others spell what cannot be written.
    kind = configs.find_config("classify")
    with pytest.raises(ConfigError, match=rf"data\.encoding is '{encoding}', expected auto"):
        configs.configure(kind, {"data": {"path": "x", "encoding": encoding}}, "test")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_toml_of_windows_is_read(tmp_path, encoding):
    path = tmp_path / "a.toml"
    path.write_bytes('[data]\r\npath = "数据.csv"\r\n'.encode(encoding))
    assert read_toml(path) == {"data": {"path": "数据.csv"}}


def test_toml_in_another_encoding_is_refused_by_name(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes('[data]\npath = "数据.csv"\n'.encode("gbk"))
    with pytest.raises(ConfigError, match=r"a\.toml: is no TOML: byte 16 is not UTF-8, which TOML is always in"):
        read_toml(path)


def test_an_empty_text_is_utf8():
    assert recognize(b"") == ("utf-8", 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    foci.train("translate", configs.find_config("translate").smallest, out=path, log=lambda text: None)
    return path


def predicted(run, capsys, *flags):
    code = foci_cli.main(["predict", str(run), "--json", *flags])
    out, err = capsys.readouterr()
    return code, [json.loads(line).get("source") for line in out.splitlines()], err


@pytest.mark.parametrize("encoding", [*UNICODE, "gb18030", "shift_jis"])
def test_predict_reads_the_encodings_of_files_and_of_standard_input(run, tmp_path, capsys, monkeypatch, encoding):
    lines = ["今日は", "一二三", "abc"]
    flags = [] if encoding in UNICODE else ["--encoding", encoding]
    path = tmp_path / "a.txt"
    path.write_bytes("\r\n".join(lines).encode(encoding))
    assert predicted(run, capsys, "--file", str(path), *flags)[:2] == (0, lines)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert predicted(run, capsys, *flags)[:2] == (0, lines)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\r".join(lines).encode(encoding))))
    assert predicted(run, capsys, *flags)[1] == lines


def test_predict_names_the_flag_that_cures_an_encoding(run, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes("今天天气很好\n".encode("gb18030"))
    code, _, err = predicted(run, capsys, "--file", str(path))
    assert code == 2
    assert "As gb18030 it reads '今天天气很好'" in err
    assert "Set --encoding to the encoding of the file" in err
    assert foci_cli.main(["predict", str(run), "--file", str(path), "--encoding", "gb1803"]) == 2
    assert "--encoding is 'gb1803', expected auto, or an encoding that Python knows" in capsys.readouterr().err
    assert foci_cli.main(["predict", str(run), "one", "--encoding", "gbk"]) == 2
    assert "--encoding is given beside inputs" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", UNICODE)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_lines_that_arrive_in_pieces_are_the_lines_of_a_file(encoding, size):
    lines = ["x 今天 नमस्ते", "ਊ", "", "ਅਆ", "今天"]
    raw = ("\n".join(lines) + "\nend").encode(encoding)
    arriving = ArrivingLines(Path("-"))
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    found = [line for piece in pieces for line in arriving.add(piece)] + arriving.finish()
    assert found == [*lines, "end"]


FILE_TASKS = [name for name in TASKS if name != "memorize"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "gb18030"])
@pytest.mark.parametrize("name", FILE_TASKS)
def test_every_task_reads_the_same_records_in_every_encoding(tmp_path, name, encoding):
    kind = find(name)
    task = kind(configs.configure(kind.Config, {"data": {"path": str(tmp_path)}}, "test"))
    fields = [*kind.inputs, *kind.targets]
    values = {"audio": "小.wav", "image": "小.png", "list": ["今天 天气"], "choices": "天气|今天"}
    record = {field.name: values.get(field.kind, "今天天气很好。") for field in fields}
    if name == "entail":
        record["label"] = "entailment"
    if name == "detect":
        record["objects"] = [{"label": "今天", "box": [1, 2, 3, 4]}]
    if name == "tag":
        record = {"words": ["今天", "很好"], "tags": ["B-X", "O"]}
    if name == "cloze":
        record |= {"document": "今天 天气 很好", "question": "今天 XXXXX", "answer": "天气"}
    text = json.dumps(record, ensure_ascii=False) + "\n"
    read = []
    for written in ("utf-8", encoding):
        (tmp_path / "a.jsonl").write_bytes(text.encode(written))
        with text_encoding("auto" if written.startswith("utf") else written):
            read.append(task.read_records([str(tmp_path / "a.jsonl")]))
    assert read[0] == read[1]
    assert "天气" in str(read[0]) or "今天" in str(read[0])


@pytest.mark.parametrize("raw", [b"hi", b"hi\nyou\n"])
def test_lines_that_arrive_in_another_encoding_are_one_fault_with_or_without_a_line_end(raw):
    with text_encoding("utf-16", "--encoding"):
        arriving = ArrivingLines(Path("-"))
        (fault,) = [*arriving.add(raw), *arriving.finish()]
    assert isinstance(fault, Fault)
    assert "--encoding does not fit the file" in fault.reason
    with text_encoding("utf-16"):
        assert ArrivingLines(Path("-")).finish() == []
