"""`foci align`: a line per pair, both directions, gold in both forms, and every mistake."""

import pytest
from aligned_runs import PAIRS, SILENT, train_runs

import foci
from foci.errors import ConfigError
from foci.tasks.classify.task import Classify
from foci_cli import main


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("runs"), "recurrent", "transformer", "back")


def test_the_command_writes_a_line_per_pair_and_scores_gold(runs, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in [PAIRS[0], ("", "leer"), PAIRS[1]]), encoding="utf-8")
    (tmp_path / "gold").write_text("0-0 1-1 2-2\n\n0-0 1p1\n", encoding="utf-8")
    run = str(runs / "recurrent")
    assert main(["align", run, str(pairs), "--gold", str(tmp_path / "gold")]) == 1
    out, err = capsys.readouterr()
    lines = out.split("\n")
    assert (len(lines), lines[1]) == (4, "")
    assert all("-" in lines[number] for number in (0, 2))
    assert f"{pairs}, line 2: column 0 (from 0) is empty" in err
    assert "reading decoder.cross" in err
    assert "gold: 4 sure, 1 possible" in err
    assert "1 of 3 pairs failed" in err
    file = tmp_path / "links"
    for side, texts in zip(("a", "b"), zip(*PAIRS)):
        (tmp_path / side).write_text("\n".join(texts) + "\n", encoding="utf-8")
    both = [str(tmp_path / side) for side in ("a", "b")]
    assert (
        main(
            [
                "align",
                str(runs / "transformer"),
                *both,
                "--reverse",
                str(runs / "back"),
                "--symmetrize",
                "union",
                "--out",
                str(file),
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert len(file.read_text().splitlines()) == 3
    assert err.count("reading decoder.") == 2
    assert "agree in" in err


def test_gold_of_the_other_direction(runs, tmp_path, capsys):
    pairs, gold = tmp_path / "pairs.tsv", tmp_path / "gold"
    pairs.write_text("the red house\tHaus\n", encoding="utf-8")
    gold.write_text("1 1 3 S\n")
    assert main(["align", str(runs / "recurrent"), str(pairs), "--gold", str(gold), "--gold-reversed"]) == 0
    assert main(["align", str(runs / "recurrent"), str(pairs), "--gold", str(gold)]) == 1
    assert "line 1: word 3 of the target, expected one of its 1 words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{recurrent}"], "no files are given"),
        (["{recurrent}", "{pairs}", "--symmetrize", "union"], "given without --reverse"),
        (["{recurrent}", "{pairs}", "--gold-from", "1"], "--gold-from is given without --gold"),
        (["{recurrent}", "{pairs}", "--gold", "{pairs}", "--gold-from", "2"], "expected 0 or 1"),
        (["{recurrent}", "{pairs}", "{pairs}", "{pairs}"], "got 3 files"),
        (["{recurrent}", "{pairs}", "--method", "weight"], "weights"),
        (["{transformer}", "{pairs}", "--reverse", "{back}", "--symmetrize", "grow"], "grow-diag"),
    ],
)
def test_mistakes_on_the_command_line(runs, arguments, message, capsys):
    places = {name: str(runs / name) for name in ("recurrent", "transformer", "back")} | {
        "pairs": str(runs / "pairs.tsv")
    }
    assert main(["align", *(one.format(**places) for one in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_files_of_different_lengths_are_an_error(runs, tmp_path, capsys):
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\n")
    assert main(["align", str(runs / "recurrent"), str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "a, line 2: no such line in" in capsys.readouterr().err


def test_runs_of_other_tasks_are_refused(tmp_path, capsys):
    settings = {**Classify.Config.smallest, "training": {"max_steps": 1, "eval_every": None}}
    foci.train("classify", settings, out=tmp_path / "run", **SILENT)
    (tmp_path / "x.tsv").write_text("a\tb\n")
    assert main(["align", str(tmp_path / "run"), str(tmp_path / "x.tsv")]) == 2
    assert "is a run of classify, expected one of translate" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="one of classify, expected one of translate"):
        foci.load(tmp_path / "run").align([("a", "b")])
