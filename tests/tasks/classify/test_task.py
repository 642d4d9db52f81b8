"""Classification as a user runs it: train from files, resume, load, predict with a trace, evaluate; every mistake."""

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import foci_cli
from foci.data.batching import TokenBatches
from foci.data.vocabulary import Vocabulary
from foci.errors import ConfigError, DataError, UnknownNameError
from foci.tasks.classify.builtin import planted
from foci.tasks.classify.config import ClassifyConfig
from foci.tasks.classify.reader import Document
from foci.tasks.classify.task import Classify, ClassifyAssets
from foci.tasks.frame.config import configure
from foci.tasks.frame.predictor import load
from foci.tasks.frame.train import train

SILENT = {"log": lambda text: None}


def write_corpus(folder: Path, size: int = 80) -> str:
    lines = [json.dumps({"text": entry.document.text, "label": entry.document.label}) for entry in planted(size)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "a.jsonl")


def settings(data, *, model=None, vocabulary=None, **training):
    return {
        "data": {"batch_tokens": 600, **data},
        "vocabulary": {"min_count": 1, "buckets": 50, **(vocabulary or {})},
        "model": {"preset": "tiny", "embedding_dim": 16, "hidden_dim": 16, **(model or {})},
        "training": {"max_steps": 6, "eval_every": 3, "warmup": 2, "learning_rate": 0.01, **training},
    }


def confusion(evaluation):
    return np.array([row[1:] for row in evaluation.tables["confusion"].rows])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classify") / "run"
    data = {"builtin": 800, "batch_tokens": 2000}
    vocabulary = {"min_count": 10}
    made = settings(data, vocabulary=vocabulary, max_steps=80, eval_every=80, learning_rate=0.02)
    train("classify", made, out=folder, **SILENT)
    return folder


def test_a_run_holds_everything_and_learns(run):
    names = {path.name for path in run.iterdir()}
    assert {"config.json", "environment.json", "metrics.jsonl", "checkpoints"} <= names
    assert {"vocabulary.json", "labels.json"} <= names
    classifier = load(run)
    evaluation = classifier.evaluate()
    metrics, counts = evaluation.metrics, confusion(evaluation)
    assert metrics["documents"] == 500
    assert metrics["accuracy"] > 0.95
    assert np.sum(counts) == 500
    assert metrics["accuracy"] == np.trace(counts) / 500
    assert evaluation.tables["confusion"].columns[1:] == ("a", "b")
    # One of 39 words, one of 5.5 sentences.
    assert 0.3 < metrics["attention_on_word"] <= metrics["attention_on_sentence"] <= 1


def test_predictions_come_in_order_and_do_not_depend_on_the_batch(run):
    classifier = load(run)
    texts = [entry.document.text for entry in planted(9, seed=5)] + ["Paka."]
    done = []
    together = classifier.predict(texts, options={"batch_tokens": 100}, progress=done.append)
    assert sum(done) == len(texts)
    for text, prediction in zip(texts, together):
        (alone,) = classifier.predict([text])
        assert prediction.inputs == {"text": text}
        assert prediction.output == alone.output
        probabilities = prediction.details["probabilities"]
        assert probabilities == pytest.approx(alone.details["probabilities"], abs=1e-5)
        assert sum(probabilities.values()) == pytest.approx(1)
        assert prediction.score == max(probabilities.values())
    assert classifier.predict([]) == []


def test_a_trace_has_every_word_and_sentence(run):
    texts = ["Paka lala. Bobo zizi lala! Third.", "One."]
    for text, prediction in zip(texts, load(run).predict(texts, trace=True)):
        trace = prediction.trace
        assert trace.axes["document"].labels == tuple(text.replace(".", " .").replace("!", " !").split())
        words, sentences = trace.alignment("words")[0], trace.alignment("sentences")[0]
        ends = np.cumsum(trace.axes["document"].sentences)[:-1]
        np.testing.assert_allclose([part.sum() for part in np.split(words, ends)], sentences, atol=1e-6)
        assert words.sum() == pytest.approx(1, abs=1e-5)
        assert trace.text == prediction.output
        assert trace.metadata["probability"] == pytest.approx(prediction.score)
    assert load(run).predict(["One."])[0].trace is None


def test_the_confusion_is_that_of_the_predictions(run):
    classifier = load(run)
    # Labels that have nothing to do with the texts, so that every cell is filled.
    documents = [Document(entry.document.text, "aab"[i % 3]) for i, entry in enumerate(planted(40, seed=6))]
    expected = np.zeros((2, 2))
    for document, prediction in zip(documents, classifier.predict([document.text for document in documents])):
        expected["ab".index(document.label), "ab".index(prediction.output)] += 1
    evaluation = classifier.evaluate(documents, options={"batch_tokens": 200})
    assert confusion(evaluation).tolist() == expected.tolist()
    assert (expected > 0).all()


def test_a_linear_classifier_votes_and_stands_beside_the_network(tmp_path):
    """After two steps the network knows nothing, so that the answers are those of the linear classifier that votes."""
    data, said = {"path": write_corpus(tmp_path, 400), "valid_share": 0.2, "test_share": 0.2}, []
    train("classify", settings(data, max_steps=2), out=tmp_path / "vote", log=said.append)
    for fitted in ("TF-IDF with logistic regression to", "TF-IDF with logistic regression by naive Bayes to"):
        assert any(line.startswith(f"fitted {fitted} ") for line in said)
    classifier = load(tmp_path / "vote")
    evaluation = classifier.evaluate()
    metrics = evaluation.metrics
    assert metrics["accuracy"] == pytest.approx(metrics["ngram_accuracy"], abs=0.1)
    assert metrics["linear_accuracy"] > metrics["network_accuracy"] + 0.1
    assert "its share in the scores is" in evaluation.notes["linear"]
    predictions = classifier.predict([one["text"] for one in classifier.held_out()])
    assert any("outvotes it (model.linear)" in note for one in predictions for note in one.details.get("notes", []))
    train("classify", settings(data, model={"linear": "baseline"}, max_steps=2), out=tmp_path / "baseline", **SILENT)
    alone = load(tmp_path / "baseline").evaluate().metrics
    assert alone["accuracy"] == alone["network_accuracy"] == metrics["network_accuracy"]
    assert alone["linear_accuracy"] == metrics["linear_accuracy"]
    assert "ngram_accuracy" not in alone
    (tmp_path / "vote" / "ngram.json").unlink()  # as in a run of an earlier version
    before = load(tmp_path / "vote").evaluate().metrics
    assert "ngram_accuracy" not in before
    assert before["linear_accuracy"] == metrics["linear_accuracy"]
    train("classify", settings(data, model={"linear": "none"}, max_steps=2), out=tmp_path / "none", **SILENT)
    (tmp_path / "none" / "linear.json").unlink()  # as in a run of an earlier version
    assert "linear_accuracy" not in load(tmp_path / "none").evaluate().metrics


def test_the_default_is_better_than_the_baseline_where_parts_of_words_decide(tmp_path):
    """Each document has an ending that tells its class, on a word that no other document has."""
    chance = np.random.default_rng(3)
    stems = iter({"".join(chance.choice([*"aeioubdfgk"], 7)) for _ in range(900)})
    rows = [
        {"text": f"the {next(stems)}{ending} and {next(stems)}", "label": ending} for ending in ("zor", "mip") * 200
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    data = {"path": str(tmp_path / "a.jsonl"), "valid_share": 0.2, "test_share": 0.2}
    train("classify", settings(data), out=tmp_path / "run", **SILENT)
    metrics = load(tmp_path / "run").evaluate().metrics
    assert metrics["linear_accuracy"] < 0.7
    assert metrics["accuracy"] > 0.95


def test_worthless_probabilities_are_said_and_calibrated(tmp_path):
    """Labels by chance: the network is sure of its training data, and wrong as often as not elsewhere."""
    documents = [entry.document.text for entry in planted(300, seed=8)]
    rows = [{"text": text, "label": "ab"[number * 7 % 11 % 2]} for number, text in enumerate(documents)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    data = {"path": str(tmp_path / "a.jsonl"), "valid_share": 0.4, "test_share": 0.2}
    made = settings(data, model={"linear": "none"}, max_steps=60, eval_every=20, learning_rate=0.02)
    logged = []
    result = train("classify", made, out=tmp_path / "run", log=logged.append)
    last = load(tmp_path / "run", checkpoint="last").evaluate()
    assert last.metrics["loss_uncalibrated"] > 0.8
    assert "worse than equal probabilities, 0.693" in last.notes["chance"]
    assert last.metrics["loss"] < 0.75
    assert last.metrics["ece"] < last.metrics["ece_uncalibrated"]
    chosen = load(tmp_path / "run").evaluate()
    assert chosen.metrics["loss"] < 0.72
    assert result.best_value < 0.7
    assert any("are calibrated on the validation data, by temperature" in line for line in logged)


def test_few_validation_documents_hardly_change_the_probabilities(tmp_path):
    lines = [f'{{"text": "{word} {number}", "label": "{word}"}}' for word in ("good", "bad") for number in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    made = settings({"path": str(tmp_path / "a.jsonl")}, max_steps=60, eval_every=60, learning_rate=0.02)
    logged = []
    train("classify", made, out=tmp_path / "run", log=logged.append)
    (told,) = [line for line in logged if "by temperature" in line]
    temperature, before, after = map(
        float, re.search(r"temperature (\S+): loss (\S+) before, (\S+) after", told).groups()
    )
    assert 0.5 < temperature < 2
    assert after <= before


def test_macro_f1_says_which_classes_it_leaves_out(run):
    classifier = load(run)
    given = [Document(entry.document.text, "") for entry in planted(20, seed=6)]
    right = [
        one._replace(label=found.output) for one, found in zip(given, classifier.predict(one.text for one in given))
    ]
    assert {one.label for one in right} == {"a", "b"}
    assert "macro_f1_convention" not in classifier.evaluate(right).notes
    only_a = classifier.evaluate([one for one in right if one.label == "a"])
    assert only_a.metrics["macro_f1"] == 1
    note = only_a.notes["macro_f1_convention"]
    assert note == "mean over 1 of 2 classes; the others neither occur nor are predicted: 'b'"


def test_examples_are_batched_with_their_sentences():
    task = Classify(configure(ClassifyConfig, {"data": {"max_words": 3}}, "test"))
    assets = ClassifyAssets(Vocabulary(("a", "b", "c"), buckets=1), ("x", "y"))
    documents = [Document("a b\n\nc", "y"), Document("c c c c", "x"), Document("b", "y")]
    encoded = task.encode(documents, [1, 0, 1], assets, None)
    assert encoded.truncated == 1
    examples = encoded.examples
    assert examples.lengths.tolist() == [[3, 2], [3, 1], [1, 1]]
    words, sentences, labels = examples.batch(np.array([2, 0]), [4, 3])
    assert words.tolist() == [[2, 0, 0, 0], [1, 2, 3, 0]]
    assert sentences.tolist() == [[1, 0, 0], [2, 1, 0]]
    assert labels.tolist() == [1, 1]
    seen = list(TokenBatches(examples, max_tokens=6).epoch(0))
    assert sorted(label for batch in seen for label in batch[-1].tolist()) == [0, 1, 1]


def test_resuming_gives_the_same_weights_as_one_sitting(tmp_path):
    data = {"path": write_corpus(tmp_path)}
    train("classify", settings(data, max_steps=7), out=tmp_path / "whole", **SILENT)
    train("classify", settings(data, max_steps=4), out=tmp_path / "parts", **SILENT)
    train("classify", settings(data, max_steps=7), out=tmp_path / "parts", resume=True, **SILENT)
    whole, parts = (load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    write_corpus(tmp_path, 90)
    with pytest.raises(ConfigError, match=r"the saved position belongs to another stream: its examples is"):
        train("classify", settings(data, max_steps=9), out=tmp_path / "parts", resume=True, **SILENT)


@pytest.mark.parametrize("pooling", ["attention", "mean", "last"])
def test_what_replaces_the_hierarchy_trains_and_predicts(pooling, tmp_path):
    data = {"builtin": 40}
    train("classify", settings(data, model={"pooling": pooling}, max_steps=2), out=tmp_path / "run", **SILENT)
    classifier = load(tmp_path / "run")
    (prediction,) = classifier.predict(["Paka lala. Bobo."], trace=True)
    assert set(prediction.trace.attentions) == ({"words"} if pooling == "attention" else set())
    assert ("attention_on_word" in classifier.evaluate().metrics) == (pooling == "attention")


def test_vectors_of_any_size_are_begun_with(tmp_path):
    """As in the other tasks: the size of the embeddings is that of the file, unless it is given."""
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("v.txt", ". 0.5 0.5 0.5 0.5 0.5 0.5 0.5\n")
    said = []
    made = settings({"path": write_corpus(tmp_path)}, vocabulary={"vectors": str(tmp_path / "v.zip")}, max_steps=1)
    with pytest.raises(ConfigError, match=r"vectors of 7 numbers, but the model's have 16. Set model.embedding_dim=7"):
        train("classify", made, out=tmp_path / "none", log=said.append)
    del made["model"]["embedding_dim"]
    train("classify", made, out=tmp_path / "run", log=said.append)
    assert f"model.embedding_dim = 7: the size of the vectors of {tmp_path / 'v.zip'}" in said
    assert load(tmp_path / "run").model.embedding.weight.shape[1] == 7


def test_what_is_left_out_is_counted_and_vectors_are_begun_with(tmp_path):
    path = write_corpus(tmp_path)
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(Path(path).read_text(encoding="utf-8").splitlines()[0] + "\n")
    (tmp_path / "v.txt").write_text(". " + " ".join(["0.5"] * 16) + "\n", encoding="utf-8")
    said = []
    made = settings({"path": path, "max_words": 20}, vocabulary={"vectors": str(tmp_path / "v.txt")}, max_steps=1)
    train("classify", made, out=tmp_path / "run", log=said.append)
    told = "\n".join(said)
    assert "1 of 81 documents are duplicates and are left out" in told
    assert "documents have a text of more than 20 words; the rest of it is not read (data.max_words)" in told
    assert "has vectors for 1 of" in told
    classifier = load(tmp_path / "run")
    (full_stop,) = classifier.assets.vocabulary.ids(["."])
    vectors = classifier.model.embedding.weight
    torch.testing.assert_close(vectors[full_stop], torch.full((16,), 0.5), atol=0.02, rtol=0)
    assert vectors[full_stop + 1].abs().max() < 0.13
    kept = classifier.task.read(print)
    assert not {document.text for document in kept.test} & {document.text for document in kept.train}
    assert classifier.held_out() == [document._asdict() for document in kept.test]
    (prediction,) = classifier.predict(["Word " * 33])
    cut, unknown = prediction.details["notes"]
    assert cut == "only the first 20 of 33 words were read (data.max_words)"
    assert unknown.startswith(f"20 of 20 words are unknown to this run: 'Word'. It was trained on {path} and knows ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"pth": "x"}}, r"test: data\.pth is not known\. Did you mean 'path'"),
        ({"model": {"poling": "mean"}}, r"test: model\.poling is not known\. Did you mean 'pooling'"),
        ({"vocabulary": {"size": "many"}}, r"test: vocabulary\.size is 'many', expected a number, not a text"),
        ({"tokenizer": {}}, r"test: tokenizer is not known"),
        ({"data": {"test_share": 1.5}}, r"test: data\.test_share is 1.5"),
    ],
)
def test_wrong_configurations_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        configure(ClassifyConfig, change, "test")


def test_bad_data_is_told_before_a_folder_is_made(tmp_path):
    out = tmp_path / "run"

    def error(kind, documents=None, **data):
        path = tmp_path / "b.jsonl"
        if documents is not None:
            path.write_text("".join(json.dumps({"text": t, "label": c}) + "\n" for t, c in documents))
            data["path"] = str(path)
        with pytest.raises(kind) as caught:
            train("classify", settings(data), out=out, **SILENT)
        assert not out.exists()
        return str(caught.value)

    assert "all 3 documents to train on have the class 'x'" in error(
        DataError, [("a", "x"), ("b", "x"), ("c", "x")], valid=write_corpus(tmp_path), test_share=0.0
    )
    assert "all 2 documents to train on have the class 'x'" in error(
        DataError, [("a", "x"), ("a", "y"), ("b", "x")], valid=write_corpus(tmp_path), test_share=0.0
    )
    two = [("a", "x"), ("b", "y")]
    assert "none is left to validate" in error(DataError, two, valid_share=0.0, test_share=0.0)
    assert "a document to validate has the label 'b', which the training data does not have: x, y." in error(
        DataError, [("a", "x"), ("b", "y")], valid=write_corpus(tmp_path), test_share=0.0
    )
    assert "path and builtin are both set" in error(ConfigError, path="x", builtin=3)
    with pytest.raises(UnknownNameError, match=r"test: model: unknown preset of the model 'yong'. Did you mean 'yang'"):
        configure(ClassifyConfig, settings({}, model={"preset": "yong"}), "test")
    with pytest.raises(ConfigError, match=r"model.pooling is 'max', which is not known. .*hierarchical"):
        train("classify", settings({"builtin": 5}, model={"pooling": "max"}), out=out, **SILENT)
    assert not out.exists()


def test_evaluation_refuses_what_it_cannot_judge(run):
    classifier = load(run)
    with pytest.raises(DataError, match=r"there are no examples"):
        classifier.evaluate([])
    with pytest.raises(DataError, match=r"a document to evaluate has the label 'z'"):
        classifier.evaluate([Document("a", "z")])


def test_command_line(run, tmp_path, capsys):
    text = planted(1, seed=8)[0].document
    assert foci_cli.main(["predict", str(run), text.text, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["output"] == text.label
    assert set(found["probabilities"]) == {"a", "b"}
    (tmp_path / "d.txt").write_text(text.text, encoding="utf-8")
    assert foci_cli.main(["predict", str(run), "--file", str(tmp_path / "d.txt"), "--show"]) == 0
    shown = capsys.readouterr().out
    assert f"%  {text.label}\n" in shown
    assert "words" in shown
    assert foci_cli.main(["predict", str(run), "x", "--file", str(tmp_path / "d.txt")]) == 2
    assert "both given" in capsys.readouterr().err
    assert foci_cli.main(["predict", str(run), "--file", str(tmp_path / "none.txt")]) == 2
    assert "none.txt: cannot be opened" in capsys.readouterr().err

    data = write_corpus(tmp_path)
    assert foci_cli.main(["evaluate", str(run), data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9
    assert foci_cli.main(["evaluate", str(run), "--plot", str(tmp_path / "c.png")]) == 0
    shown = capsys.readouterr().out
    assert "macro_f1" in shown
    assert "attention_on_word" in shown
    assert "predicted" in shown
    assert (tmp_path / "c.png").stat().st_size > 1000

    flags = ["--preset", "tiny", "--pooling", "mean", "--set", "training.max_steps=1"]
    assert foci_cli.main(["train", "classify", "--data", data, *flags, "--out", str(tmp_path / "new")]) == 0
    assert "foci evaluate" in capsys.readouterr().out
    assert load(tmp_path / "new").model.pooling == "mean"
    changes = ["--resume", "--set", "training.max_steps=2", "--out", str(tmp_path / "new")]
    assert foci_cli.main(["train", "classify", *changes]) == 0
    assert foci_cli.main(["train", "classify", "--data", data]) == 2
    assert "--out is missing" in capsys.readouterr().err


def test_classes_are_logged_with_counts_and_variants(tmp_path):
    rows = [f"{word} day {number},{label}" for number in range(30) for word, label in (("good", "Pos"), ("bad", "neg"))]
    rows += [f"fine day {number},pos" for number in range(3)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    said = []
    Classify(configure(ClassifyConfig, {"data": {"path": str(tmp_path / "a.csv")}}, "test")).read(said.append)
    told = "\n".join(said)
    assert "3 classes: " in told
    assert "Pos (2" in told
    assert "pos (3)" in told
    assert "the classes 'Pos', 'pos' differ in case or spaces alone" in told
    assert "the first is 'good day 0' → 'Pos'" in told
