"""Entailment as a user runs it: labels by name in any order, baselines, traces in both directions, every mistake."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import foci_cli
from foci.errors import CheckpointError, ConfigError, DataError
from foci.tasks.entail.baseline import HypothesisBayes
from foci.tasks.entail.builtin import hypernym_pairs
from foci.tasks.entail.config import EntailConfig
from foci.tasks.entail.reader import SentencePair
from foci.tasks.entail.task import NOTHING, Entail
from foci.tasks.frame import config as configs
from foci.tasks.frame.config import configure
from foci.tasks.frame.predictor import load
from foci.tasks.frame.train import train

SILENT = {"log": lambda text: None}
DECOMPOSABLE = {"kind": "decomposable", "preset": "tiny", "hidden_dim": 16, "exact_match": True}


def write_pairs(path: Path, pairs, *, rename=lambda label: label) -> str:
    lines = [json.dumps({**pair._asdict(), "label": rename(pair.label)}) for pair in pairs]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def settings(data, *, model=None, **training):
    return {
        "data": {"batch_size": 24, **data},
        "vocabulary": {"min_count": 1},
        "model": {"preset": "tiny", "hidden_dim": 16, **({} if model is None else model)},
        "training": {"max_steps": 4, "eval_every": 4, "warmup": 2, "learning_rate": 0.01, **training},
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entail") / "run"
    model = {**DECOMPOSABLE, "hidden_dim": 32, "difference": True, "product": True}
    made = settings({"builtin": 600}, model=model, max_steps=200, eval_every=200, warmup=20, learning_rate=4e-3)
    train("entail", made, out=folder, **SILENT)
    return folder


def test_a_run_learns_and_stands_beside_its_baselines(run):
    evaluation = load(run).evaluate()
    metrics, confusion = evaluation.metrics, np.array([row[1:] for row in evaluation.tables["confusion"].rows])
    assert metrics["pairs"] == confusion.sum() == 600
    assert metrics["accuracy"] == np.trace(confusion) / 600 > 0.8
    assert metrics["majority"] == pytest.approx(1 / 3)
    assert metrics["hypothesis_bayes"] < 0.4
    assert evaluation.notes["majority_label"] == "contradiction"
    assert evaluation.tables["confusion"].columns[1:] == ("contradiction", "entailment", "neutral")


def test_probabilities_carry_the_names_of_their_labels(run):
    predictor = load(run)
    pairs = predictor.held_out()[:60]
    right = 0
    for pair, prediction in zip(pairs, predictor.predict(pairs)):
        probabilities = prediction.details["probabilities"]
        assert list(probabilities) == ["contradiction", "entailment", "neutral"]
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert prediction.output == max(probabilities, key=probabilities.get)
        assert prediction.score == probabilities[prediction.output]
        right += prediction.output == pair["label"]
    assert right > 45


def test_the_order_of_labels_in_the_data_changes_nothing(tmp_path):
    """Neither the order of the rows, nor names that sort differently, move a probability to another label."""
    pairs = hypernym_pairs(60)
    names = {"entailment": "z yes", "neutral": "m maybe", "contradiction": "a no"}
    back = {new: old for old, new in names.items()}
    paths = {
        "plain": write_pairs(tmp_path / "plain.jsonl", sorted(pairs, key=lambda pair: pair.label)),
        "reversed": write_pairs(tmp_path / "r.jsonl", sorted(pairs, key=lambda pair: pair.label, reverse=True)),
        "renamed": write_pairs(tmp_path / "n.jsonl", pairs, rename=names.get),
    }
    found = {}
    for name, path in paths.items():
        train(
            "entail",
            settings({"path": path}, model=DECOMPOSABLE, max_steps=80, learning_rate=5e-3),
            out=tmp_path / name,
            **SILENT,
        )
        predictor = load(tmp_path / name)
        kept = json.loads((tmp_path / name / "labels.json").read_text(encoding="utf-8"))
        assert kept == sorted(names.values() if name == "renamed" else names)
        predictions = predictor.predict([pair._asdict() for pair in pairs])
        answers = [back.get(prediction.output, prediction.output) for prediction in predictions]
        found[name] = sum(answer == pair.label for answer, pair in zip(answers, pairs)) / len(pairs)
        records = [
            {**pair._asdict(), "label": names[pair.label] if name == "renamed" else pair.label} for pair in pairs
        ]
        assert predictor.evaluate(records).metrics["accuracy"] == pytest.approx(found[name])
    assert all(share > 0.5 for share in found.values()), found  # trained on these pairs; a wrong order would be near 0


def test_a_damaged_order_of_labels_is_noticed(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run" / "labels.json"
    file.write_text(json.dumps(["entailment", "neutral", "other"]), encoding="utf-8")
    with pytest.raises(CheckpointError, match="the labels of baseline.json are not those of labels.json"):
        load(tmp_path / "run")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"attention": "none"}, {}),
        ({"attention": "attention"}, {"premise": ("label", "premise")}),
        ({"attention": "word_by_word"}, {"premise": ("hypothesis", "premise")}),
        ({"attention": "two_way"}, {"premise": ("hypothesis", "premise"), "hypothesis": ("premise", "hypothesis")}),
        (DECOMPOSABLE, {"premise": ("hypothesis", "premise"), "hypothesis": ("premise", "hypothesis")}),
    ],
    ids=lambda value: str(value.get("attention", "decomposable")) if isinstance(value, dict) else "",
)
def test_a_trace_of_every_model(model, expected, tmp_path):
    train("entail", settings({"builtin": 24}, model=model, max_steps=1), out=tmp_path / "run", **SILENT)
    given = [{"premise": "The dog eats near the 房子.", "hypothesis": "כלב runs."}]
    (prediction,) = load(tmp_path / "run").predict(given, trace=True)
    trace = prediction.trace
    assert {name: (one.target, one.source) for name, one in trace.attentions.items()} == expected
    null = [NOTHING] if model is DECOMPOSABLE else []
    assert trace.axes["premise"].labels == (*null, "The", "dog", "eats", "near", "the", "房", "子", ".")
    assert trace.axes["hypothesis"].labels == (*null, "כלב", "runs", ".")
    assert trace.text == prediction.output
    for one in trace.attentions.values():
        np.testing.assert_allclose(one.dense(0).sum(-1), 1, atol=1e-5)


def test_the_baseline_reads_no_premise(tmp_path):
    train("entail", settings({"builtin": 24, "hypothesis_only": True}), out=tmp_path / "run", **SILENT)
    predictor = load(tmp_path / "run")
    pairs = [{"premise": premise, "hypothesis": "The dog eats."} for premise in ("The cat eats.", "A poodle eats it.")]
    first, second = predictor.predict(pairs, trace=True)
    assert first.details["probabilities"] == pytest.approx(second.details["probabilities"])
    assert "does not read the premise" in first.details["notes"][0]
    assert first.trace.axes["premise"].labels == (NOTHING,)
    assert "does not read the premise" in predictor.evaluate().notes["hypothesis_only"]


def test_naive_bayes_by_counting():
    rows = [("no dog runs", "c"), ("no cat runs", "c"), ("a dog runs", "e"), ("the dog", "n"), ("the dog", "n")]
    bayes = HypothesisBayes.count((text.split(), label) for text, label in rows)
    assert bayes.majority == "c"
    totals = {"c": 2, "e": 1, "n": 2}
    for text in ("no dog", "the cat", "A dog runs", "unknown words"):
        shares = {}
        for label, total in totals.items():
            share = total / 5
            for word in {word for word in text.lower().split() if any(word in row.split() for row, _ in rows)}:
                have = sum(word in row.split() for row, its in rows if its == label)
                share *= (have + 1) / (total + 2)
            shares[label] = share
        assert shares[bayes.predict(text.split())] == max(shares.values()), text


def test_rows_without_a_label_and_long_sentences_are_counted_and_noted(tmp_path):
    pairs = [*hypernym_pairs(30), SentencePair("One.", "Two.", "-"), SentencePair("word " * 30, "Two.", "neutral")]
    said = []
    made = settings({"path": write_pairs(tmp_path / "a.jsonl", pairs), "max_words": 12, "valid_share": 0.2})
    train("entail", made, out=tmp_path / "run", log=said.append)
    told = "\n".join(said)
    assert "1 pairs of" in told
    assert "have no agreed label" in told
    assert "3 labels: " in told
    assert "to train on" in told
    predictor = load(tmp_path / "run")
    (found,) = predictor.predict([{"premise": "xyz " * 20, "hypothesis": "abc"}])
    assert "only the first 12 of 20 words of the premise were read" in found.details["notes"][0]
    assert "13 of 13 words are unknown to this run" in found.details["notes"][1]
    assert predictor.evaluate([{"premise": "a " * 13, "hypothesis": "b", "label": "neutral"}]).metrics["truncated"] == 1


def test_sick_in_one_file(tmp_path):
    rows = ["pair_ID\tsentence_A\tsentence_B\tentailment_label\tSemEval_set"]
    for number, pair in enumerate(hypernym_pairs(40)):
        split = ["TRAIN", "TRAIN", "TRIAL", "TEST"][number % 4]
        rows.append(f"{number}\t{pair.premise}\t{pair.hypothesis}\t{pair.label.upper()}\t{split}")
    (tmp_path / "SICK.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    task = Entail(configure(EntailConfig, {"data": {"path": str(tmp_path / "SICK.txt")}}, "test"))
    splits = task.read(lambda text: None)
    assert [len(split) for split in splits] == [20, 10, 10]
    assert len(task.read_records([str(tmp_path / "SICK.txt")])) == 10
    assert splits.train[0].label in ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")


def test_mistakes(tmp_path):
    path = write_pairs(tmp_path / "a.jsonl", [SentencePair(f"a {i}", "b", "x") for i in range(20)])
    for data, kind, message in (
        ({"path": path}, DataError, "all .* pairs to train on have the label 'x', expected at least two"),
        ({"path": path, "builtin": 30}, ConfigError, "path and builtin are both set"),
        ({"language": "fr"}, ConfigError, "en, zh"),
    ):
        with pytest.raises(kind, match=message):
            train("entail", settings(data), out=tmp_path / "run", **SILENT)
        assert not (tmp_path / "run").exists()
    good = write_pairs(tmp_path / "b.jsonl", hypernym_pairs(30))
    with pytest.raises(DataError, match=r"a pair to evaluate has the label 'x', which the training data does not have"):
        train("entail", settings({"path": good, "test": path}), out=tmp_path / "run", **SILENT)
    renamed = settings({"path": good, "test": path, "labels": {"x": "neutral"}}, max_steps=1)
    assert train("entail", renamed, out=tmp_path / "run", **SILENT).step == 1


def test_word_vectors_stand_beside_the_learned_ones(tmp_path):
    vectors = "dog 0.5 1 1.5\nzebra 1 2 3\n"
    (tmp_path / "v.txt").write_text(vectors, encoding="utf-8")
    made = configs.put(settings({"builtin": 60}, max_steps=2), {"vocabulary.vectors": str(tmp_path / "v.txt")})
    train("entail", made, out=tmp_path / "run", **SILENT)
    predictor = load(tmp_path / "run")
    ids = predictor.assets.vocabulary.ids(["dog", "zebra", "unheard"])
    found = predictor.model.inputs.vectors.weight[ids]
    assert found.tolist() == [[0.5, 1, 1.5], [1, 2, 3], [0, 0, 0]]
    assert not predictor.model.inputs.vectors.weight.requires_grad or torch.equal(found[0], torch.tensor([0.5, 1, 1.5]))


def test_the_commands(run, tmp_path, capsys):
    pair = hypernym_pairs(1, split="test")[0]
    assert foci_cli.main(["predict", str(run), pair.premise, pair.hypothesis, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {*found["probabilities"]} == {"contradiction", "entailment", "neutral"}
    assert foci_cli.main(["show", str(run), pair.premise, pair.hypothesis, "--html", str(tmp_path / "a.html")]) == 0
    out = capsys.readouterr().out
    assert str(tmp_path / "a.html") in out
    assert foci_cli.main(["show", str(run), pair.premise, pair.hypothesis]) == 0
    assert "hypothesis ← premise" in capsys.readouterr().out
    assert (tmp_path / "a.html").stat().st_size > 10_000
    assert foci_cli.main(["evaluate", str(run), "--plot", str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert "hypothesis_bayes" in out
    assert "majority" in out
    flags = ["--builtin", "24", "--hypothesis-only", "--model", "decomposable", "--preset", "tiny"]
    command = ["train", "entail", *flags, "--set", "training.max_steps=1", "--out", str(tmp_path / "new")]
    assert foci_cli.main(command) == 0
    assert load(tmp_path / "new").config.data.hypothesis_only
