"""Texts with summaries from files, docstrings of the standard library, and ids for copying."""

import gzip
import json

import numpy as np
import pytest

from foci.data import TokenBatches, Tokenizer
from foci.data.copy_ids import CopyExamples, CopyIds, padded_sources
from foci.data.tokenizer import BOS, EOS, UNK
from foci.errors import ConfigError, DataError, FociError
from foci.layers.copying import CopySource
from foci.tasks.summarize.builtin import SPLITS, docstrings
from foci.tasks.summarize.reader import SummarizedText, read_summaries

TEXTS = [("the cat sat on the mat, today", "cat on mat"), ("猫坐在垫子上", "猫"), ("שלום עולם טוב", "שלום")]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_every_form_reads_the_same(tmp_path):
    right = [SummarizedText(*pair) for pair in TEXTS]
    lines = [write(tmp_path / name, "\n".join(side) + "\n") for name, side in zip(("a.src", "a.tgt"), zip(*TEXTS))]
    assert read_summaries(*lines) == right
    tsv = write(tmp_path / "a.tsv", "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in TEXTS))
    assert read_summaries(tsv) == right
    csv = write(tmp_path / "a.csv", "id,body,subject\n" + "".join(f'1,"{a}",{b}\n' for a, b in TEXTS))
    assert read_summaries(csv, columns=("body", "subject")) == right
    jsonl = tmp_path / "a.jsonl.gz"
    with gzip.open(jsonl, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"source": a.split(" "), "target": [b]}) + "\n" for a, b in TEXTS)
    assert read_summaries(jsonl) == right
    numbered = write(tmp_path / "b.tsv", "".join(f"{b}\t{a}\n" for a, b in TEXTS))
    assert read_summaries(numbered, columns=(1, 0)) == right


def test_several_references(tmp_path):
    right = [SummarizedText("a text", "one", ("two", "three"))]
    record = {"source": "a text", "target": "one"}
    forms = [
        {"source": "a text", "target": ["one", "two", "three"]},
        {**record, "references": ["two", "three"]},
    ]
    for number, form in enumerate(forms):
        assert read_summaries(write(tmp_path / f"{number}.jsonl", json.dumps(form))) == right
    fields = write(tmp_path / "f.jsonl", json.dumps({**record, "ann0": "two", "ann1": "three"}))
    assert read_summaries(fields, references=("ann0", "ann1")) == right
    table = write(tmp_path / "a.tsv", "source\ttarget\tann0\tann1\na text\tone\ttwo\tthree\n")
    assert read_summaries(table, references=("ann0", "ann1")) == right


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"source": "a", "target": "b"}\n{"source": " ", "target": "b"}\n', "line 2: the source is empty"),
        ("a.jsonl", '{"source": "a", "target": []}\n', "line 1: a summary is empty"),
        ("a.jsonl", '{"source": "a", "target": ["b", ""]}\n', "line 1: a summary is empty"),
        ("a.jsonl", '{"source": "a", "target": 3}\n', "line 1: field 'target' is no text"),
        ("a.jsonl", '{"source": "a", "traget": "b"}\n', "line 1: no field 'target'. Did you mean 'traget'"),
        ("a.jsonl", '{"text": "a", "summary": "b"}\n', "Known: summary, text. Set data.columns \\(--columns\\) to the"),
        ("a.csv", "text,summary\na,b\n", "first line. .* Set data.columns \\(--columns\\) to the names"),
        ("a.tsv", "source\ttarget\na\t\n", "line 2: a summary is empty"),
        ("a.csv", "source,target\na,b,c\n", "line 2: the row has 3 cells"),
        ("a.csv", "", "line 1: no texts, the file is empty"),
        ("a.txt", "a\n", "expected summaries in a .csv, .tsv or .jsonl file .*, or in a second file"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, name, content, message):
    with pytest.raises(FociError, match=message) as caught:
        read_summaries(write(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)


def test_aligned_files_of_different_lengths_and_missing_ones(tmp_path):
    source, target = write(tmp_path / "a", "one\ntwo\n"), write(tmp_path / "b", "1\n")
    with pytest.raises(DataError, match="line 2"):
        read_summaries(source, target)
    with pytest.raises(ConfigError, match="have no columns"):
        read_summaries(source, target, columns=("a", "b"))
    with pytest.raises(DataError, match="cannot be opened"):
        read_summaries(tmp_path / "none.jsonl")


def test_docstrings_are_the_same_every_time_and_no_line_is_in_two_splits():
    splits = {split: docstrings(split) for split in SPLITS}
    assert len(splits["train"]) > 500
    assert min(map(len, splits.values())) > 50
    targets = [{one.target for one in splits[split]} for split in SPLITS]
    assert not targets[0] & targets[1]
    assert not targets[0] & targets[2]
    assert not targets[1] & targets[2]
    assert docstrings("valid", 7) == splits["valid"][:7]
    assert all(one.source.strip() and one.target.strip() and "\n" not in one.target for one in splits["test"])
    with pytest.raises(ConfigError, match="train"):
        docstrings("tarin")


@pytest.fixture
def words():
    return Tokenizer.train([" the cat saw the dog and the cat ran"], kind="words", size=12)


def test_unknown_words_are_numbered_by_source_and_found_in_the_target(words):
    ids = CopyIds(words, words)
    size = len(words)
    text = " Rex saw the cat and Tom saw Rex"
    row = ids.source(text)
    assert row.own == [" Rex", " Tom"]
    assert row.ids[0] == UNK
    assert row.extended[0] == row.extended[-1] == size
    assert all(one == other for one, other in zip(row.ids, row.extended) if one != UNK)
    assert words.decode(row.extended, row.own) == text
    assert ids.target(" Tom the Ann", row)[:1] == [size + 1]
    assert ids.target(" Tom the Ann", row)[-1] == UNK
    assert words.labels([size], row.own) == ["▁Rex"]
    assert list(ids.sources([text])) == [row]
    assert list(ids.targets([" Tom"], [row])) == [[size + 1]]


def test_a_cut_source_counts_what_is_lost_and_numbers_the_rest(words):
    row = CopyIds(words, words).source(" the Rex saw Tom", longest=2)
    assert (len(row.ids), row.own, row.cut) == (2, [" Rex"], 2)


def test_two_vocabularies_share_pieces_by_their_text(words):
    other = Tokenizer.train([" the dog"], kind="words", size=6)
    row = CopyIds(words, other).source(" the cat")
    assert row.extended == [other.id_of(" the"), len(other)]
    assert row.own == [" cat"]


def test_batches_hold_both_ids(words):
    ids = CopyIds(words, words)
    rows = list(ids.sources([" Rex saw the cat", " the Tom"]))
    examples = CopyExamples(rows, list(ids.targets([" Rex", " the Tom ran"], rows)), len(words))
    batch = next(iter(TokenBatches(examples, max_tokens=100)))
    assert isinstance(batch.source, CopySource)
    assert batch.source.tokens.shape == batch.source.extended.shape == batch.source_valid.shape == (2, 4)
    order = np.argsort([-length for length in batch.source_valid.sum(1).tolist()])
    first = batch.target[int(order[0])].tolist()
    assert first[:3] == [BOS, len(words), EOS]
    alone, valid = padded_sources(rows[1:], batch.target.device)
    assert alone.extended.tolist() == [rows[1].extended]
    assert valid.all()
