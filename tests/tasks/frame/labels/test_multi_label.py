"""Any number of labels per document: from the files of others to predictions and metrics; and how it is decided."""

import json

import numpy as np
import pytest

import foci
import foci_cli
from foci.errors import ConfigError, DataError
from foci.tasks.classify.reader import Document, read_documents
from foci.tasks.frame import config as configs

WORDS = {"sport": "goal", "money": "bank", "food": "soup"}


def documents(count=240, seed=0):
    """Documents that have a label wherever they have its word; some have none."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        labels = [label for label in WORDS if random.random() < 0.4]
        words = [
            *(WORDS[label] for label in labels),
            *random.choice(["a", "the", "of", "very", "and"], 4),
            f"n{number}",
        ]
        made.append((" ".join(random.permutation(words)), labels))
    return made


def write(path, made):
    lines = [json.dumps({"text": text, "label": labels}) for text, labels in made]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def settings(path, **changes):
    tables = configs.find_config("classify").smallest
    given = {"data.builtin": None, "data.path": str(path), "data.batch_tokens": 16_384, "data.batch_size": 32}
    long = {"training.max_steps": 150, "training.eval_every": 50, "training.warmup": 10}
    return configs.put(tables, {**given, **long, **changes})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    said = []
    foci.train("classify", settings(write(folder / "a.jsonl", documents())), out=folder / "run", log=said.append)
    return foci.load(folder / "run"), said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "__label__a __label__b one text\n__label__a two  texts\n\nthree __label__b\n"),
        ("a.train.txt", "__label__b __label__a one text\n__label__a two  texts\n__label__b three\n"),
        (
            "a.jsonl",
            '{"text": "one text", "label": ["a", "b", "a"]}\n{"text": "two  texts", "label": "a"}\n'
            '{"text": "three", "label": ["b"]}\n',
        ),
        (
            "b.jsonl",
            '{"id": 1, "text": "one text", "labels": ["a", "b"]}\n{"id": 2, "text": "two  texts", "labels": ["a"]}\n'
            '{"id": 3, "text": "three", "labels": ["b"]}\n',
        ),
    ],
)
def test_labels_of_fasttext_hugging_face_and_doccano(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    expected = [Document("one text", ("a", "b")), Document("two  texts", "a"), Document("three", "b")]
    assert read_documents(path) == expected


def test_numbers_are_labels_and_other_values_are_faults(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "label": 3}\n{"text": "y", "label": [0, 2]}\n{"text": "z", "label": []}\n')
    assert [one.label for one in read_documents(path)] == ["3", ("0", "2"), ()]
    path.write_text('{"text": "x", "label": [1.5]}\n{"text": "x", "label": [""]}\n{"text": "x", "label": {"a": 1}}\n')
    with pytest.raises(DataError, match=r"line 1: an entry of field 'label' is a float, .*\n3 faults"):
        read_documents(path)
    path = tmp_path / "a.txt"
    path.write_text("__label__a one\nno label here\n__label__b\n")
    with pytest.raises(DataError, match=r"line 2: no __label__ in the line(.|\n)*1 × no label, 1 × empty text"):
        read_documents(path)


def test_training_finds_several_labels_and_learns_them(trained, capsys):
    run, said = trained
    (line,) = [line for line in said if "have several labels" in line]
    assert "each label gets a probability of its own (data.multi_label = true)" in line
    assert run.config.data.multi_label is True
    evaluation = run.evaluate()
    assert evaluation.metrics["micro_f1"] > 0.95
    assert evaluation.metrics["accuracy"] > 0.85
    both, neither = run.predict(["the goal of a bank", "very and the"])
    assert both.details["labels"] == ["money", "sport"]
    assert both.output == "money, sport"
    assert {*both.details["probabilities"]} == {*WORDS}
    assert neither.details["labels"] == []
    assert "no label has a probability of 0.5 or more" in neither.details["notes"]
    for one in (both, neither):  # the score is that of exactly these labels
        chances = [p if label in one.details["labels"] else 1 - p for label, p in one.details["probabilities"].items()]
        assert one.score == pytest.approx(np.prod(chances), rel=1e-4)
    assert foci_cli.main(["predict", str(run.path), "soup and the bank", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["food", "money"]


def test_metrics_are_those_of_scikit_learn(trained):
    sklearn = pytest.importorskip("sklearn.metrics")
    run, _ = trained
    held = documents(80, seed=3)
    for threshold in (0.1, 0.5, 0.9):
        options = {"threshold": threshold}
        evaluation = run.evaluate([{"text": text, "label": labels} for text, labels in held], options=options)
        found = run.predict([text for text, _ in held], options=options)
        names = run.assets.labels
        right = np.array([[name in labels for name in names] for _, labels in held])
        given = np.array([[name in one.details["labels"] for name in names] for one in found])
        chances = np.array([[one.details["probabilities"][name] for name in names] for one in found])
        expected = {
            "accuracy": sklearn.accuracy_score(right, given),
            "micro_precision": sklearn.precision_score(right, given, average="micro"),
            "micro_recall": sklearn.recall_score(right, given, average="micro"),
            "micro_f1": sklearn.f1_score(right, given, average="micro"),
            "macro_f1": sklearn.f1_score(right, given, average="macro"),
            "loss": -np.log(np.where(right, chances, 1 - chances)).mean(),
        }
        assert {name: evaluation.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
        (row,) = [row for row in evaluation.tables["thresholds"].rows if row[0] == threshold]
        assert dict(zip(evaluation.tables["thresholds"].columns[1:], row[1:]))["micro_f1"] == expected["micro_f1"]


def test_lists_of_one_label_are_classes_and_missing_labels_an_error(tmp_path):
    one_each = [(text, [labels[0]] if labels else ["other"]) for text, labels in documents(60)]
    short = {"training.max_steps": 2, "training.eval_every": 2}
    foci.train("classify", settings(write(tmp_path / "a.jsonl", one_each), **short), out=tmp_path / "a", log=print)
    run = foci.load(tmp_path / "a")
    assert run.config.data.multi_label is False
    assert "confusion" in run.evaluate().tables
    with pytest.raises(DataError, match="a document to evaluate has 2 labels, but this run gives one each"):
        run.evaluate([{"text": "x", "label": ["food", "money"]}])
    with pytest.raises(ConfigError, match="threshold is 0.3, but this run gives one label each"):
        run.predict(["x"], options={"threshold": 0.3})
    missing = write(tmp_path / "b.jsonl", [*one_each, ("nothing", [])])
    with pytest.raises(DataError, match="0 documents have several labels and 1 none, expected one each"):
        foci.train("classify", settings(missing, **short), out=tmp_path / "b", log=print)
    foci.train("classify", settings(missing, **short, **{"data.multi_label": True}), out=tmp_path / "b", log=print)
    assert foci.load(tmp_path / "b").config.data.multi_label is True
    several = write(tmp_path / "c.jsonl", documents(60))
    with pytest.raises(DataError, match=r"documents have several labels and \d+ none, expected one each"):
        foci.train("classify", settings(several, **{"data.multi_label": False}), out=tmp_path / "c", log=print)


def test_what_has_no_meaning_with_several_labels_is_refused(trained, tmp_path):
    run, _ = trained
    with pytest.raises(ConfigError, match="top_k is 2, but this run gives all labels that are likely enough"):
        run.predict(["x"], options={"top_k": 2})
    with pytest.raises(ConfigError, match="has no confusion to draw"):
        run.task.draw(run.evaluate(), tmp_path / "a.png")
    with pytest.raises(DataError, match="has the label 'weather', which the training data does not have"):
        run.evaluate([{"text": "x", "label": ["food", "weather"]}])


def test_the_most_frequent_set_of_labels_is_compared_with(trained):
    predictor, _ = trained
    sets = [tuple(sorted(predictor.task.labels_of(one))) for one in predictor.task.read(lambda text: None).train]
    most = min(set(sets), key=lambda one: (-sets.count(one), str(one)))
    records = predictor.held_out()
    evaluation = predictor.evaluate(records)
    truth = [
        {*record["label"]} if isinstance(record["label"], list | tuple) else {record["label"]} for record in records
    ]
    assert evaluation.metrics["majority"] == pytest.approx(np.mean([{*most} == one for one in truth]))
    both, total = sum(len({*most} & one) for one in truth), sum(len(most) + len(one) for one in truth)
    assert evaluation.metrics["majority_micro_f1"] == pytest.approx(2 * both / total)
    assert evaluation.notes["baselines"].endswith(": " + (", ".join(most) or "none"))
    predictor.task.baselines, kept = {}, predictor.task.baselines  # as in runs of earlier versions
    assert "majority" not in predictor.evaluate(records).metrics
    predictor.task.baselines = kept
