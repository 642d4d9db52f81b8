"""JSON of other programs becomes the same sentences."""

import json

import pytest

import foci
from foci.errors import DataError
from foci.tasks.tag.reader import read_tagged

TEXT = "Ada lives in New York."
FORMS = {
    "foci": {"spans": [{"start": 0, "end": 3, "label": "PER"}, {"start": 13, "end": 21, "label": "LOC"}]},
    "prodigy": {
        "spans": [{"start": 0, "end": 3, "label": "PER"}, {"start": 13, "end": 21, "label": "LOC"}],
        "tokens": [{"text": "Ada", "start": 0, "end": 3}, {"text": "lives", "start": 4, "end": 9},
                   {"text": "in", "start": 10, "end": 12}, {"text": "New", "start": 13, "end": 16},
                   {"text": "York", "start": 17, "end": 21}, {"text": ".", "start": 21, "end": 22}],
    },
    "spacy": {"entities": [[0, 3, "PER"], [13, 21, "LOC"]]},
    "doccano": {"id": 1, "label": [[0, 3, "PER"], [13, 21, "LOC"]]},
    "doccano, relations": {
        "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 3},
                     {"id": 2, "label": "LOC", "start_offset": 13, "end_offset": 21}], "relations": [],
    },
    "cluener": {"label": {"PER": {"Ada": [[0, 2]]}, "LOC": {"New York": [[13, 20]]}}},
}  # fmt: skip


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def spans(sentence):
    return [(sentence.text[start:end], label) for start, end, label in sentence.spans]


@pytest.mark.parametrize("form", FORMS)
def test_spans_of_other_programs(form, tmp_path):
    (found,) = read_tagged(write(tmp_path / "a.jsonl", [{"text": TEXT, **FORMS[form]}])).sentences
    assert spans(found) == [("Ada", "PER"), ("New York", "LOC")]
    assert found.tokens == ["Ada", "lives", "in", "New", "York", "."]


def test_tags_of_hugging_face_by_name_and_number(tmp_path):
    tokens = ["Ada", "lives", "in", "New", "York", "."]
    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    by_name = {"tokens": tokens, "ner_tags": ["B-PER", "O", "O", "B-LOC", "I-LOC", "O"]}
    by_number = {"id": "0", "tokens": tokens, "pos_tags": [1] * 6, "ner_tags": [1, 0, 0, 3, 4, 0]}
    expected = [("Ada", "PER"), ("New York", "LOC")]
    assert spans(read_tagged(write(tmp_path / "a.jsonl", [by_name])).sentences[0]) == expected
    path = write(tmp_path / "b.jsonl", [by_number])
    assert spans(read_tagged(path, names=names).sentences[0]) == expected
    with pytest.raises(DataError, match=r"b.jsonl, line 1: 'ner_tags' has numbers such as 4.*data.tag_names"):
        read_tagged(path)
    with pytest.raises(DataError, match="has the number 4, but data.tag_names has 2 names"):
        read_tagged(path, names=names[:2])
    assert spans(read_tagged(path, names=["X", "Y"], columns=("tokens", "pos_tags")).sentences[0])[0] == ("Ada", "Y")


def test_names_of_tags_are_a_setting(tmp_path):
    rows = [{"tokens": ["Ada", f"is{n}"], "ner_tags": [1, 0]} for n in range(60)]
    data = {"path": str(write(tmp_path / "a.jsonl", rows)), "tag_names": "O,B-PER"}
    tables = {"data": data, "model": {"preset": "tiny"}, "training": {"max_steps": 2}}
    foci.train("tag", tables, out=tmp_path / "run", log=lambda text: None)
    assert foci.load(tmp_path / "run").assets.labels == ("PER",)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"text": "a"}, "no field 'spans'"),
        ({"words": ["a"], "ner": ["O"]}, r"no field 'spans'.* set data.columns \(--columns\) to both fields"),
        ({"text": "a", "label": "positive"}, "a list in 'label'"),
        ({"text": "a", "label": {"X": [[0, 1]]}}, "no table of texts with their places"),
        ({"tokens": ["a"], "ner_tags": ["O", "O"]}, "has 2 tags for 1 words"),
        ({"tokens": [], "ner_tags": ["O"]}, "is no list of words"),
        ({"text": "a b", "words": ["a", "c"], "spans": []}, "'c' does not stand in the text"),
    ],
)
def test_a_mistake_names_its_line(record, said, tmp_path):
    with pytest.raises(DataError, match=rf"a.jsonl, line 1: .*{said}"):
        read_tagged(write(tmp_path / "a.jsonl", [record]))
