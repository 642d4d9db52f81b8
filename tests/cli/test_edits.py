"""Edits on the command line: how they are written, and what `foci show` says of a run with them."""

import json
import re

import pytest

from foci.cli import edits
from foci.errors import ConfigError
from foci.tasks.frame.train import train
from foci.viz.heads.answers import answers_of
from foci.viz.trace import Trace
from foci_cli import main


class Written:
    """Takes note of the calls of its methods."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *args, **options: self.calls.append((name, args, options))


@pytest.mark.parametrize(
    ("flag", "text", "want"),
    [
        ("knock_out", "layers.3.self_attn:2", ("knock_out", ("layers.3.self_attn", [2]), {})),
        ("knock_out", "*", ("knock_out", ("*", None), {})),
        ("knock_out", "memory:read", ("knock_out", ("memory:read", None), {})),
        ("knock_out", "memory:read:1", ("knock_out", ("memory:read", [1]), {})),
        ("uniform", "a.b:0,2-3", ("uniform", ("a.b", [0, 2, 3]), {})),
        ("permute", "a.b", ("permute", ("a.b",), {"head": None})),
        ("block", "a:1/4/0-2", ("block", ("a", [4], [0, 1, 2]), {"head": [1]})),
        ("block", "a/*/3", ("block", ("a", None, [3]), {"head": None})),
        ("zero_values", "a:1/0", ("zero_values", ("a", [0]), {"head": [1]})),
    ],
)
def test_how_edits_are_written(flag, text, want):
    written = Written()
    change = edits.edits_from({flag: [text]})
    change(written)
    assert written.calls == [want]
    assert edits.edits_from({}) is None


@pytest.mark.parametrize(
    ("flag", "text", "reason"),
    [
        ("block", "a:1/4", r"--block is 'a:1/4', expected PATH:HEAD/QUERIES/KEYS"),
        ("knock_out", "a/1", r"expected PATH:HEAD, where :HEAD may be left out"),
        ("knock_out", "a:one", r"the head is 'one', expected zero-based numbers"),
        ("zero_values", "a/x", r"a position is 'x'"),
    ],
)
def test_how_edits_are_not_written(flag, text, reason):
    with pytest.raises(ConfigError, match=reason):
        edits.edits_from({flag: [text]})


def test_each_is_alone():
    assert edits.wants_each({"knock_out": ["each"]})
    assert not edits.wants_each({"knock_out": ["a:1"]})
    with pytest.raises(ConfigError, match="expected no other edit"):
        edits.wants_each({"knock_out": ["each"], "uniform": ["a"]})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A transformer of one layer, trained on a few sentences."""
    folder = tmp_path_factory.mktemp("edits")
    sources, targets = ["one red house", "two trees", "one tree"], ["ein rotes Haus", "zwei Bäume", "ein Baum"]
    for name, lines in (("a.en", sources * 9), ("a.de", targets * 9)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {"path": str(folder / "a.en"), "target": str(folder / "a.de")}
    blocks = {"model_dim": 12, "hidden_dim": 17, "num_heads": 3, "num_layers": 1}
    tables = {
        "data": {**files, "valid": files["path"], "valid_target": files["target"], "test_share": 0.0},
        "tokenizer": {"kind": "words", "size": 40},
        "model": {"kind": "transformer", "encoder": blocks, "decoder": blocks},
        "training": {"max_steps": 40, "eval_every": 40, "warmup": 5, "learning_rate": 0.02},
    }
    train("translate", tables, out=folder / "run", log=lambda text: None)
    return folder / "run"


def test_a_run_is_shown_with_edits(run, capsys, tmp_path):
    kept = tmp_path / "kept.json"
    command = ["show", str(run), "one tree", "--knock-out", "*cross*:1", "--uniform", "*cross*:0", "--save", str(kept)]
    assert main(command) == 0
    trace = Trace.load(kept)
    cross = trace.cross_attentions()[0]
    weights = cross.dense(0)
    assert not cross.dense(1).any()
    assert weights == pytest.approx(1 / weights.shape[1])
    assert {"answer", "answer without edits"} <= {*trace.metadata}
    capsys.readouterr()
    assert main(command[:-2]) == 0
    assert "answer without edits: " in capsys.readouterr().out


def test_the_answers_without_each_head_are_on_the_page(run, capsys, tmp_path):
    page, kept = tmp_path / "page.html", tmp_path / "kept.json"
    command = ["show", str(run), "one tree", "--knock-out", "each"]
    assert main([*command, "--html", str(page), "--save", str(kept)]) == 0
    found = answers_of(Trace.load(kept))
    assert len(found) == 9
    assert len({head.partition(":")[0] for head, *_ in found}) == 3
    others = [other for *_, other in found]
    assert others == sorted(others, reverse=True)
    html = page.read_text(encoding="utf-8")
    assert html.count('<th scope="row">') == 10
    metadata = json.loads(re.search(r'"metadata":\s*(\[.*?\]\])', html).group(1))
    assert not any("without " in name for name, _ in metadata)
    capsys.readouterr()
    assert main(command) == 0
    assert len(re.findall(r"^[! ] without ", capsys.readouterr().out, re.MULTILINE)) == 9


def test_mistakes_are_one_line(run, capsys, tmp_path):
    assert main(["show", str(run), "one tree", "--knock-out", "decoder.nothing:0"]) == 2
    assert "unknown path of an attention 'decoder.nothing'" in capsys.readouterr().err
    Trace.from_arrays([[1.0]], ["a"], ["b"]).save(tmp_path / "kept")
    assert main(["show", str(tmp_path / "kept.json"), "--uniform", "*"]) == 2
    assert "a saved trace has no model" in capsys.readouterr().err
