"""`foci show`: a run, a saved trace, a model of Hugging Face; in the terminal and as files; and every mistake."""

import io
import json
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from foci.tasks.frame.predictor import load
from foci.tasks.frame.train import train
from foci.viz.trace import Trace
from foci_cli import main

SOURCES = ["one red house", "two blue trees", "one tree", "red trees"]
TARGETS = ["ein rotes Haus", "zwei blaue Bäume", "ein Baum", "rote Bäume"]
TEXT = "one red tree"


BLOCKS = {"model_dim": 24, "hidden_dim": 17, "num_heads": 3, "num_layers": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A transformer of two layers, trained on a few sentences."""
    folder = tmp_path_factory.mktemp("show")
    for name, lines in (("a.en", SOURCES * 9), ("a.de", TARGETS * 9)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {"path": str(folder / "a.en"), "target": str(folder / "a.de")}
    tables = {  # validated on the same sentences: of four different ones, none is held out
        "data": {**files, "valid": files["path"], "valid_target": files["target"], "test_share": 0.0},
        "tokenizer": {"kind": "words", "size": 40},
        "model": {"kind": "transformer", "encoder": BLOCKS, "decoder": BLOCKS},
        "label_smoothing": 0.0,
        "training": {"max_steps": 60, "eval_every": 60, "warmup": 5, "learning_rate": 0.02},
    }
    train("translate", tables, out=folder / "run", log=lambda text: None)
    return folder / "run"


@pytest.fixture
def saved(tmp_path):
    weights = np.arange(1, 13, dtype=np.float32).reshape(2, 2, 3)
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(weights, ["das", "grüne", "Haus"], ["green", "house"], title="green house")
    return trace, trace.save(tmp_path / "kept")


def printed(trace, *names, **options):
    stream = io.StringIO()
    trace.print(*names, file=stream, **options)
    return stream.getvalue()


def failed(capsys, *arguments, code=2):
    """The message of a wrong command, which must be one line, with no other output."""
    assert main(["show", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("foci: ")
    assert err.count("\n") == 1
    return err


# ---- runs


def test_a_run_in_the_terminal(run, capsys):
    trace = load(run).predict([TEXT], trace=True)[0].trace
    assert len(trace.axes["target"]) > 2
    assert main(["show", str(run), TEXT]) == 0
    assert capsys.readouterr().out == f"{trace.text}\n{printed(trace)}"
    assert main(["show", str(run), TEXT, "--attention", "encoder.0.self", "--head", "1", "--view", "ranked"]) == 0
    out = capsys.readouterr().out
    assert out == f"{trace.text}\n" + printed(trace, "encoder.0.self", head=1, view="ranked")
    assert "encoder.0.self · head 1" in out


def test_several_texts_are_told_apart(run, tmp_path, capsys):
    traces = [prediction.trace for prediction in load(run).predict([TEXT, "two houses"], trace=True)]
    assert main(["show", str(run), TEXT, "two houses"]) == 0
    want = [f"{trace.text}\n{printed(trace)}" for trace in traces]
    assert capsys.readouterr().out == want[0] + "\n" + want[1]
    assert main(["show", str(run), TEXT, "two houses", "--save", str(tmp_path / "t.json")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f"t-{number}.json") for number in (1, 2)]
    for number, trace in enumerate(traces, start=1):
        again = Trace.load(tmp_path / f"t-{number}.json")
        assert again.axes["source"].labels == trace.axes["source"].labels
        np.testing.assert_array_equal(again.alignment(), trace.alignment())


def test_files_are_what_their_names_say(run, tmp_path, capsys):
    names = {kind: tmp_path / "new" / f"out.{kind}" for kind in ("png", "svg", "pdf", "html")}
    arguments = [part for kind, path in names.items() for part in (f"--{kind}", str(path))]
    assert main(["show", str(run), TEXT, *arguments]) == 0
    assert capsys.readouterr().out.split() == [str(path) for path in names.values()]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["out.html", "out.pdf", "out.png", "out.svg"]
    raw = names["png"].read_bytes()
    assert raw.startswith(b"\x89PNG\r\n\x1a\n")
    assert min(struct.unpack(">II", raw[16:24])) > 100
    assert ElementTree.parse(names["svg"]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    raw = names["pdf"].read_bytes()
    assert raw.startswith(b"%PDF-")
    assert raw.rstrip().endswith(b"%%EOF")
    page = names["html"].read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    described = json.loads(re.search(r'<script type="application/json" id="trace">(.*?)</script>', page)[1])
    assert described["axes"]["source"]["labels"] == ["one", "▁red", "▁tree"]
    assert "decoder.1.cross" in [attention["name"] for attention in described["attentions"]]


@pytest.fixture
def drawn(monkeypatch):
    """The metrics that were drawn, by their texts."""
    metrics = []
    plot = Trace.plot

    def keep(self, *arguments, **options):
        metrics.append(plot(self, *arguments, **options))
        return metrics[-1]

    monkeypatch.setattr(Trace, "plot", keep)
    return metrics


def test_the_heads_are_those_between_source_and_target(run, tmp_path, drawn):
    assert main(["show", str(run), TEXT, "--png", str(tmp_path / "heads.png"), "--view", "heads"]) == 0
    trace = load(run).predict([TEXT], trace=True)[0].trace
    maps = [axes for axes in drawn[0].axes if axes.get_images()]
    assert len(maps) == 2 * 3
    for number, axes in enumerate(maps):
        want = trace.attention(f"decoder.{number // 3}.cross").dense(number % 3)
        np.testing.assert_allclose(np.asarray(axes.get_images()[0].get_array()), want)


def test_a_picture_of_one_head(saved, tmp_path, drawn):
    trace, path = saved
    assert main(["show", str(path), "--svg", str(tmp_path / "one.svg"), "--head", "1"]) == 0
    got = np.asarray(drawn[0].axes[0].get_images()[0].get_array())
    np.testing.assert_allclose(got, trace.attention("attention").dense(1))


def test_unknown_words_are_reported_with_what_the_run_knows(run, capsys):
    assert main(["show", str(run), "one purple house", "one tree"]) == 0
    out, err = capsys.readouterr()
    assert "<unk>" in out
    (line,) = err.splitlines()
    assert line.startswith("foci: input 1: 1 of 3 tokens is unknown to this run: 'purple'. It was trained on ")
    assert "a.en and knows 8 tokens, such as " in line
    for word in ("one", "red", "trees"):
        assert word in line
    assert main(["show", str(run), TEXT]) == 0
    assert capsys.readouterr().err == ""


def test_a_picture_for_a_column(run, tmp_path, drawn):
    look = ["--width", "3.3", "--scale", "row", "--gamma", "0.5"]
    assert main(["show", str(run), TEXT, "--png", str(tmp_path / "x.png"), *look]) == 0
    width, _ = struct.unpack(">II", (tmp_path / "x.png").read_bytes()[16:24])
    assert width == pytest.approx(3.3 * 150, abs=1)
    image = drawn[0].axes[0].get_images()[0]
    assert (image.norm.vmax, image.norm.gamma) == (1.0, 0.5)


# ---- saved traces


@pytest.mark.parametrize("ending", ["", ".json", ".safetensors"])
def test_a_saved_trace_by_any_of_its_names(saved, ending, capsys):
    trace, path = saved
    assert main(["show", str(path.with_suffix(ending))]) == 0
    assert capsys.readouterr().out == f"green house\n{printed(trace)}"


def test_a_trace_of_one_side_shows_the_head_that_says_most(tmp_path, capsys):
    weights = np.random.default_rng(3).dirichlet(np.ones(5), size=(3, 2, 5))
    trace = Trace.from_arrays(weights, list("abcde"))
    trace.save(tmp_path / "among")
    assert main(["show", str(tmp_path / "among")]) == 0
    out = capsys.readouterr().out
    assert out == printed(trace)
    assert out.startswith(f"{trace.opening.attention} · head {trace.opening.head} · says most of 6 heads · ")
    assert main(["show", str(tmp_path / "among"), "--pdf", str(tmp_path / "x.pdf")]) == 0


def test_what_a_trace_says_cannot_steer_the_terminal(tmp_path, capsys):
    Trace.from_arrays([[1.0]], ["\x1b[2J"], ["b"], title="a\x1b[31m b").save(tmp_path / "sly")
    assert main(["show", str(tmp_path / "sly")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "a^[[31m b" in out


def test_words_are_joined_and_positions_hidden(tmp_path, capsys):
    pieces = ["<s>", "▁hou", "ses", "▁red"]
    trace = Trace.from_arrays(np.full((4, 4), 0.25), pieces)
    trace.save(tmp_path / "t")
    assert main(["show", str(tmp_path / "t"), "--hide", "special,red", "--words", "--view", "ranked"]) == 0
    out = capsys.readouterr().out
    assert out == printed(trace.hide("▁red", special=True).join_words(), view="ranked")
    assert out.splitlines() == ["attention · 50% of the weight hidden · source ← source", "houses ← houses 100 %"]
    assert "no sinks in this trace" in failed(capsys, tmp_path / "t", "--hide", "sinks")
    assert "Did you mean 'ses'" in failed(capsys, tmp_path / "t", "--hide", "special,sess")


# ---- mistakes


def test_what_is_not_there(tmp_path, capsys):
    assert f"{tmp_path / 'none'}: there is no such run or saved trace" in failed(
        capsys, tmp_path / "none", TEXT, code=1
    )
    assert "is no run (no config.json)" in failed(capsys, tmp_path, TEXT, code=1)
    (tmp_path / "notes.json").write_text("[1, 2]")
    (tmp_path / "notes.safetensors").write_bytes(b"")
    assert "is JSON, but no trace" in failed(capsys, tmp_path / "notes.json", code=1)
    assert "is no folder of a Hugging Face model" in failed(capsys, TEXT, "--hf", tmp_path, code=1)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert f"Use: foci show --hf {tmp_path}" in failed(capsys, tmp_path, TEXT, code=1)


def test_what_is_asked_for_wrongly(run, saved, tmp_path, capsys):
    _, path = saved
    assert "name a run and a text, or a saved trace" in failed(capsys)
    assert f"the input is missing: foci show {run}" in failed(capsys, run)
    assert "the input is missing: foci show --hf MODEL" in failed(capsys, "--hf", tmp_path)
    assert "is a saved trace and takes no text; 'more'" in failed(capsys, path, "more")
    assert "--png is 'x.jpg', expected a name that ends in .png" in failed(capsys, path, "--png", "x.jpg")
    assert "--save is 'x', expected a name that ends in .json" in failed(capsys, path, "--save", "x")
    assert "Did you mean 'attention'" in failed(capsys, path, "--attention", "atention")
    assert "head is 2, but 'attention' has 2" in failed(capsys, path, "--head", "2")
    assert "Did you mean 'heads'" in failed(capsys, path, "--view", "hads", "--png", tmp_path / "x.png")
    shown = "copied, reading, tags, boxes, image, document, bars, ranked or heatmap"
    assert f"the terminal shows {shown}, not 'heads'. Name a file" in failed(capsys, path, "--view", "heads")
    assert "the page has all views" in failed(capsys, path, "--view", "heads", "--html", tmp_path / "x.html")
    assert "--attention and --head choose" in failed(capsys, path, "--head", "1", "--html", tmp_path / "x.html")
    wrong = failed(capsys, path, "--view", "heads", "--head", "1", "--svg", tmp_path / "x.svg")
    assert "view 'heads' has no option 'head'. It has: name." in wrong
    picture = ("--png", tmp_path / "x.png")
    assert "--width is 'wide', expected a number" in failed(capsys, path, *picture, "--width", "wide")
    assert "width is 0.1, expected at least" in failed(capsys, path, *picture, "--width", "0.1")
    assert "Did you mean 'row'" in failed(capsys, path, *picture, "--scale", "rows")
    assert "--gamma is for pictures: name a file" in failed(capsys, path, "--gamma", "2")
    assert "has no checkpoint 'bets'" in failed(capsys, run, TEXT, "--checkpoint", "bets", code=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json", "kept.safetensors"]


def test_transformers_is_asked_for_by_name(tmp_path, capsys, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer.json").touch()
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "--hf needs transformers. Install it with: pip install" in failed(capsys, TEXT, "--hf", tmp_path, code=1)


# ---- relevance and heads


@pytest.fixture
def of_layers(tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(4), (2, 2, 4))
    return Trace.from_arrays(weights, ["the", "cat", "saw", "the"]).save(tmp_path / "layers")


def test_relevance_is_shown_instead_of_the_weights(of_layers, tmp_path, capsys):
    assert main(["show", str(of_layers), "--relevance", "rollout", "--attention", "attention.1"]) == 0
    assert "attention.1 · rollout ·" in capsys.readouterr().out
    page = tmp_path / "a.html"
    assert main(["show", str(of_layers), "--relevance", "rollout", "--html", str(page)]) == 0
    assert '"opening":{"attention":"attention.1","head":2,"why":["asked",0.0,0]}' in page.read_text(encoding="utf-8")
    capsys.readouterr()
    assert "no chefer in this trace" in failed(capsys, of_layers, "--relevance", "chefer")
    assert "Did you mean 'rollout'" in failed(capsys, of_layers, "--relevance", "rolout")


def test_heads_are_found_by_two_words(of_layers, tmp_path, capsys):
    trace = Trace.load(of_layers)
    best = trace.heads("cat", ("the", 1))[0]
    assert main(["show", str(of_layers), "--find", "cat -> the#1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{best.path}  head {best.head:<3} {best.weight:.2f}  cat (1) → the (3)"
    assert len(lines) == 4
    assert main(["show", str(of_layers), "--find", "#1 → #3"]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    page = tmp_path / "a.html"
    assert main(["show", str(of_layers), "--find", "cat -> the#1", "--html", str(page)]) == 0
    opening = f'"opening":{{"attention":"{best.path}","head":{best.head},"target":1,"source":3,"why":["asked",0.0,0]}}'
    assert opening in page.read_text(encoding="utf-8")
    assert main(["show", str(of_layers), "--find", "cat -> the#1", "--png", str(tmp_path / "a.png")]) == 0
    capsys.readouterr()
    assert "expected who reads and what is read" in failed(capsys, of_layers, "--find", "cat")
    assert "Leave --head out" in failed(capsys, of_layers, "--find", "cat -> the", "--head", "0")
    assert "unknown word" in failed(capsys, of_layers, "--find", "dog -> the")
