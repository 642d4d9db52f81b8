"""The alignments of the Hansards: parts in both directions, a row of each kind, and the table, on a small corpus."""

import json
import lzma
from pathlib import Path

import pytest

import foci

ROOT = Path(__file__).parents[1]
ENGLISH = ["A B c", "B a", "c a B", "a c"]
FRENCH = ["ax bx cx", "bx ax", "cx ax bx", "ax cx"]


@pytest.fixture
def hansards(monkeypatch, tmp_path):
    """A corpus of 90 pairs, two test pairs with gold links, and the parts that are made of it."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("FOCI_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "hansards-align"
    folder.mkdir(parents=True)
    for letter, lines in (("e", ENGLISH), ("f", FRENCH)):
        (folder / f"train.{letter}.xz").write_bytes(
            lzma.compress("".join(f"{lines[n % 4]} \n" for n in range(90)).encode())
        )
        (folder / f"test.{letter}.xz").write_bytes(lzma.compress("".join(f"{line}\n" for line in lines[:2]).encode()))
    gold = "1 1 1 S\n1 2 2 S\n1 3 3 S\n1 3 2 P\n2 1 1 S\n2 2 2 S\n"
    (folder / "test.wa.nonullalign.xz").write_bytes(lzma.compress(gold.encode()))
    from recipes import aligner, alignments, data, report

    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    out = tmp_path / "runs"
    data.set_variables(out)
    data.prepare_hansards(out)
    return out, aligner, alignments, report


def test_the_parts_of_both_directions(hansards):
    out, _, alignments, _ = hansards
    train = (out / "hansards.fr-en.train.tsv").read_text().splitlines()
    valid = (out / "hansards.fr-en.valid.tsv").read_text().splitlines()
    assert (len(train), len(valid)) == (90 - 1 + 2, 1)
    assert valid == ["cx ax bx\tc a b"]
    assert train[0] == train[-2] == "ax bx cx\ta b c"
    pairs, gold = alignments.read_test(out)
    assert [pair.source for pair in pairs] == ["a b c", "b a"]
    assert gold[0].sure == {(0, 0), (1, 1), (2, 2)}
    assert gold[0].possible == {(2, 1)}


def test_attentions_are_measured_in_every_way_and_joined_with_the_second_run(hansards, monkeypatch):
    out, _, alignments, _ = hansards
    rows = []
    for way in alignments.WAYS:
        settings = {
            "data": {"path": str(out / f"hansards.{way}.train.tsv"), "columns": (0, 1), "batch_tokens": 200},
            "tokenizer": {"kind": "words", "size": 20},
            "model": {
                "kind": "transformer",
                "encoder": {"model_dim": 8, "num_heads": 2, "hidden_dim": 8, "num_layers": 1},
                "decoder": {"model_dim": 8, "num_heads": 2, "hidden_dim": 8, "num_layers": 2},
            },
            "training": {"max_steps": 2, "eval_every": None},
        }
        folder = out / f"hansards-small--{way}-0"
        foci.train("translate", settings, out=folder, log=lambda text: None)
        run = foci.load(folder)
        row = alignments.measure_alignments(run, run.evaluate([{"source": "a", "target": "b"}]), None)
        rows.append({"name": f"small, {way}", "seed": 0, "steps": 2, "bleu": 7.0, "cpu_seconds": 30.0, **row})
    assert "intersection" not in rows[0]
    assert len(rows[0]["readings"]) == len(rows[0]["gradient"]) == 2 * 3 * 2
    assert rows[0]["default"] == "decoder.0.cross"
    assert set(rows[1]["chosen"]) <= {*rows[0]["readings"], *rows[1]["readings"]}
    assert rows[1]["en-fr"] == rows[0]["readings"][rows[1]["chosen"][0]]
    assert rows[1]["fr-en"] == rows[1]["readings"][rows[1]["chosen"][1]]
    assert rows[0]["both_gradient"] == {}
    assert rows[1]["both_gradient"]["agreement"] <= 1
    table = alignments.alignments_table(rows)
    assert "| small | 2 | 1 | 7.0 and 7.0 |" in table
    assert "0.5 + 0.5" in table
    assert f"{rows[1]['intersection']['aer']:.1f} (" in table
    assert "| decoder.1.cross, head 1 |" in alignments.layers_table(rows[0])
    other = [{**row, "seed": 1, "intersection": {"aer": row["intersection"]["aer"] + 2.0, "precision": 50, "recall": 0}}
             for row in rows if "intersection" in row]  # fmt: skip
    mean = rows[1]["intersection"]["aer"] + 1.0
    assert f"| {mean:.1f} ± 1.4 (" in alignments.alignments_table([*rows, *other])


def test_links_to_lead_attention_along_are_written_once_for_both_directions(hansards, monkeypatch):
    out, _, alignments, _ = hansards
    monkeypatch.setattr(alignments, "LINK_STEPS", 60)
    alignments.prepare(out)
    there, back = ((out / f"hansards.{way}.links").read_text().splitlines() for way in alignments.WAYS)
    assert len(there) == len((out / "hansards.en-fr.train.tsv").read_text().splitlines())
    assert there[0] == "0-0 1-1 2-2"
    assert [{tuple(link.split("-")[::-1]) for link in line.split()} for line in there] == [
        {tuple(link.split("-")) for link in line.split()} for line in back
    ]
    monkeypatch.setattr(alignments, "own_links", None)
    alignments.prepare(out)


def test_the_aligner_of_words_gives_a_row(hansards, monkeypatch, capsys):
    out, aligner, _, report = hansards
    monkeypatch.setattr("sys.argv", ["aligner", "--out", str(out)])
    monkeypatch.setattr(aligner, "OPTIONS", {**aligner.OPTIONS, "max_steps": 60, "warmup": 5, "eval_every": 60})
    monkeypatch.setattr(aligner, "HIDDEN_DIM", 8)
    aligner.main()
    rows = report.rows_of("hansards")
    assert [row["name"] for row in rows] == [*aligner.NAMES]
    for row in rows:
        assert row["intersection"]["precision"] > 90
        assert row["others"]["en-fr"]["aer"] <= 100
        assert row["whole"] is True
        assert row["name"] in (report.ROOT / "docs" / "results.md").read_text()
    assert json.loads(capsys.readouterr().out.splitlines()[0])["seed"] == 0
    aligner.main()  # resumed, it has nothing left to train
    assert [row["intersection"] for row in report.rows_of("hansards")] == [row["intersection"] for row in rows]
