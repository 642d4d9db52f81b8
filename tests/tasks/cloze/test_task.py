"""Cloze reading as a user has it: train on stories or files, answer questions about any document, evaluate."""

import json

import numpy as np
import pytest
import torch

import foci
import foci_cli
from foci.data.word_splitter import WordSplitter
from foci.errors import ConfigError, DataError
from foci.tasks.cloze.batches import split_text
from foci.tasks.cloze.builtin import stories
from foci.tasks.cloze.reader import ClozeQuestion
from foci.tasks.frame.config import configure, put
from foci.tasks.frame.task import Splits, find
from foci.viz.documents import shares_of_sentences

SILENT = {"log": lambda text: None}
QUICK = {
    "data": {"builtin": 1500, "batch_size": 32},
    "vocabulary": {"min_count": 1, "buckets": 20},
    "model": {"preset": "tiny", "reader": "over_attention"},
    "training": {"max_steps": 130, "eval_every": 65, "warmup": 10, "learning_rate": 0.01},
}
FEW = put(QUICK, {"training.max_steps": 2, "training.eval_every": 2, "data.builtin": 60})
STORY = "Mary went to the garden. John took the ball to the kitchen. Mary went to the office. Ada went to the barn."


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cloze") / "run"
    foci.train("cloze", QUICK, out=folder, **SILENT)
    return folder


@pytest.fixture(scope="module")
def predictor(run):
    return foci.load(run)


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.slow
def test_it_learns_and_its_figures_are_those_of_its_predictions(predictor):
    records = predictor.held_out()
    evaluation = predictor.evaluate(records)
    metrics = evaluation.metrics
    assert metrics["accuracy"] > 0.6
    assert metrics["most_frequent"] < 0.4
    predictions = predictor.predict(records, options={"n_best": 9})
    ranks = []
    for record, prediction in zip(records, predictions):
        answers = [prediction.output, *(one.output for one in prediction.alternatives)]
        assert sorted(answers) == sorted(record["candidates"].split("|"))
        assert prediction.score + sum(one.score for one in prediction.alternatives) == pytest.approx(1, abs=1e-4)
        ranks.append(answers.index(record["answer"]) + 1)
    assert metrics["accuracy"] == np.mean([rank == 1 for rank in ranks])
    for k in (2, 3, 5):
        assert metrics[f"accuracy_at_{k}"] == np.mean([rank <= k for rank in ranks])
    often = [max(r["candidates"].split("|"), key=r["document"].count) == r["answer"] for r in records]
    assert metrics["most_frequent"] == np.mean(often)
    of_kind = {kind: (count, share) for kind, count, share, _ in evaluation.tables["kinds"].rows}
    for kind, (count, share) in of_kind.items():
        some = [rank == 1 for rank, record in zip(ranks, records) if record["kind"] == kind]
        assert (count, share) == (len(some), np.mean(some))


def test_the_loss_is_that_of_the_answers(predictor):
    records = predictor.held_out()[:20]
    shares = []
    for record, prediction in zip(records, predictor.predict(records)):
        ranked = {one["answer"]: one["probability"] for one in prediction.details["candidates_ranked"]}
        shares.append(ranked[record["answer"]])
    assert predictor.evaluate(records).metrics["loss"] == pytest.approx(-np.log(shares).mean(), rel=1e-4)


def test_validation_and_evaluation_divide_the_loss_by_the_same_questions(predictor):
    """An answer that is a candidate but not in the document is wrong, and has no share in the loss."""
    absent = {"document": STORY, "question": "Ada is in the XXXXX.", "candidates": "garden|moon|barn", "answer": "moon"}
    given = [*predictor.held_out()[:20], absent, absent]
    metrics = predictor.evaluate(given).metrics
    questions = [ClozeQuestion(**{name: one.get(name, "") for name in ClozeQuestion._fields}) for one in given]
    held_out = predictor.task.held_out(Splits([], questions, []), predictor.assets, lambda text: None)
    with torch.no_grad():
        validated = predictor.task.validate(predictor.model, held_out)
    assert metrics["unanswerable"] == 2
    assert metrics["accuracy"] == pytest.approx(validated["accuracy"])
    assert metrics["loss_uncalibrated"] == pytest.approx(validated["loss"], rel=1e-5)
    assert metrics["loss"] == pytest.approx(predictor.evaluate(given[:20]).metrics["loss"], rel=1e-5)


def test_a_trace_has_both_attentions_and_their_product(predictor):
    given = {"document": STORY, "question": "Mary is in the XXXXX now.", "candidates": "garden|kitchen|office|barn"}
    (prediction,) = predictor.predict([given], trace=True)
    trace = prediction.trace
    assert trace.axes["document"].kind == "document"
    assert len(trace.axes["document"].sentences) == 4
    assert trace.cross_attentions()[0].name == "document"
    of_words, importance = trace.alignment("words"), trace.alignment("question")[0]
    np.testing.assert_allclose(importance @ of_words, trace.alignment("document")[0], atol=1e-5)
    words = trace.axes["document"].labels
    on = {name: sum(w for w, word in zip(trace.alignment("document")[0], words) if word == name) for name in words}
    shares = np.array([on[name] for name in trace.axes["candidates"].labels]) ** (1 / predictor.task.temperature())
    assert shares.max() / shares.sum() == pytest.approx(prediction.score, abs=1e-5)
    assert trace.alignment("candidates")[0].max() == pytest.approx(prediction.score, abs=1e-5)


def test_the_share_of_a_sentence_is_that_of_its_words(predictor):
    """Also where the question has as many words as the document has sentences."""
    (prediction,) = predictor.predict([{"document": STORY, "question": "Mary in XXXXX now"}], trace=True)
    trace = prediction.trace
    weights, lengths = trace.alignment("document")[0], trace.axes["document"].sentences
    assert len(lengths) == len(trace.axes["question"]) == 4
    shares = shares_of_sentences(trace, trace.attention("document"), weights)
    np.testing.assert_allclose(shares, [part.sum() for part in np.split(weights, np.cumsum(lengths)[:-1])], atol=1e-6)


def test_candidates_as_a_list_as_a_text_and_none(predictor):
    given = {"document": STORY, "question": "Mary is in the XXXXX now."}
    names = ["garden", "kitchen", "office", "barn"]
    one, two, free = predictor.predict(
        [{**given, "candidates": names}, {**given, "candidates": "|".join(names)}, given], options={"n_best": 50}
    )
    assert one.to_json() == two.to_json()
    assert {free.output, *(other.output for other in free.alternatives)} == {*STORY.replace(".", "").split()}
    assert len(one.alternatives) == 3


def test_notes_say_what_is_missing_cut_or_unknown(predictor, tmp_path):
    asked = {"document": STORY, "question": "Mary is where?", "candidates": "garden|office"}
    (no_blank,) = predictor.predict([asked])
    assert "no blank 'XXXXX'" in no_blank.details["notes"][0]
    (absent,) = predictor.predict([{**asked, "candidates": "moon|sun"}], trace=True)
    assert (absent.output, absent.score, absent.trace) == ("", 0.0, None)
    assert "no candidate is in the document" in absent.details["notes"][-1]
    (strange,) = predictor.predict([{**asked, "document": "Quidquid agis, prudenter agas et respice garden."}])
    assert "unknown to this run" in strange.details["notes"][-1]
    foci.train("cloze", put(FEW, {"data.max_words": 9}), out=tmp_path / "short", **SILENT)
    (cut,) = foci.load(tmp_path / "short").predict(
        [{**asked, "question": "Ada is in the XXXXX.", "candidates": "barn"}]
    )
    assert cut.details["notes"] == ["the first 17 words of the document were not read (data.max_words)"]


def test_training_on_a_file_of_the_childrens_book_test(tmp_path):
    text = ""
    for story in stories(size=40):
        lines = [
            f"{n} {' '.join(words)}"
            for n, words in enumerate(split_text(story.document, WordSplitter("unicode")), start=1)
        ]
        asked = story.question.replace(".", " .")
        text += "\n".join([*lines, f"{len(lines) + 1} {asked}\t{story.answer}\t\t{story.candidates}"]) + "\n\n"
    path = tmp_path / "cbt.txt"
    path.write_text(text, encoding="utf-8")
    own = put(FEW, {"data": {"path": str(path), "words": "spaces"}})
    said = []
    foci.train("cloze", own, out=tmp_path / "run", log=said.append)
    run = foci.load(tmp_path / "run")
    parts = tuple(map(len, run.task.read(lambda text: None)))
    assert sum(parts) == 40
    assert len(run.held_out()) == parts[2] > 0
    counts = "{} questions to train on, {} to validate, {} to evaluate".format(*parts)
    assert any(counts in line for line in said)
    assert any("the most frequent candidate is the answer of" in line for line in said)
    assert run.evaluate(run.read(str(path))).metrics["questions"] == 40


def test_what_cannot_be_answered_is_not_trained_on_and_counts_as_wrong(predictor, tmp_path):
    records = [{**one._asdict(), "candidates": ""} for one in stories(size=30)]
    for record in records[:7]:
        record["answer"] = "moon"
    path = write_jsonl(tmp_path / "a.jsonl", records)
    said = []
    foci.train(
        "cloze", put(FEW, {"data": {"path": str(path), "valid": str(path)}}), out=tmp_path / "run", log=said.append
    )
    assert any("questions are not trained on: the answer is not in the document" in line for line in said)
    metrics = predictor.evaluate(records).metrics
    assert metrics["unanswerable"] == 7
    assert metrics["accuracy_at_5"] <= 23 / 30
    assert metrics["accuracy"] <= 23 / 30
    for record in records:
        record["answer"] = "moon"
    path = write_jsonl(tmp_path / "b.jsonl", records)
    with pytest.raises(
        DataError, match=r"b.jsonl, line 1: of 30 questions none is left to train on.*data.words = 'unicode'"
    ):
        foci.train("cloze", put(FEW, {"data": {"path": str(path)}}), out=tmp_path / "none", **SILENT)


def test_more_questions_of_another_file_are_trained_on_too(tmp_path):
    some, others = stories(size=20), stories(size=30, seed=4)
    one = write_jsonl(tmp_path / "a.jsonl", [story._asdict() for story in some])
    two = write_jsonl(tmp_path / "b.jsonl", [story._asdict() for story in others])
    said = []
    foci.train("cloze", put(FEW, {"data": {"path": str(one), "more": str(two)}}), out=tmp_path / "run", log=said.append)
    alone, *held = map(len, load_parts({"path": str(one)}))
    assert alone + sum(held) == 20
    both = "{} questions to train on, {} to validate, {} to evaluate".format(alone + 30, *held)
    assert any(both in line for line in said)


def load_parts(data):
    task = find("cloze")(configure(find("cloze").Config, put(FEW, {"data": data}), "test"))
    return task.read(lambda text: None)


def test_what_is_trained_on_too_is_not_held_out(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [story._asdict() for story in stories(size=60)])
    data = {"path": str(path), "valid_share": 0.2, "test_share": 0.2}
    train, *held = load_parts(data)
    copied = load_parts({**data, "more": str(path)})
    assert copied[1:] == tuple(held)
    assert [one.document for one in copied.train] == 2 * [one.document for one in train]


def test_questions_about_one_document_are_in_one_split(tmp_path):
    records = [{**one._asdict(), "question": f"{one.question} {n}"} for one in stories(size=20) for n in range(3)]
    path = write_jsonl(tmp_path / "a.jsonl", records)
    foci.train("cloze", put(FEW, {"data": {"path": str(path)}}), out=tmp_path / "run", **SILENT)
    run = foci.load(tmp_path / "run")
    splits = run.task.read(lambda text: None)
    held = {one.document for one in splits.valid} | {one.document for one in splits.test}
    assert len(held) > 1
    assert not held & {one.document for one in splits.train}
    assert len(splits.train) % 3 == len(splits.test) % 3 == 0


@pytest.mark.parametrize(
    "settings", [{"data.language": "zh"}, {"model.hops": 1, "model.reader": "sum"}, {"model.anonymize": 0.5}]
)
def test_other_languages_and_readers(settings, tmp_path):
    foci.train("cloze", put(FEW, settings), out=tmp_path / "run", **SILENT)
    run = foci.load(tmp_path / "run")
    record = run.held_out()[0]
    (prediction,) = run.predict([record], trace=True)
    assert prediction.output in record["candidates"].split("|")
    assert prediction.trace.cross_attentions()[0].name == "document"


def test_given_vectors_are_used(tmp_path):
    lines = [f"{word} {number}.5 0 1\n" for number, word in enumerate(["garden", "mary", "kitchen"])]
    (tmp_path / "v.txt").write_text("".join(lines), encoding="utf-8")
    said = []
    tables = put(FEW, {"vocabulary.vectors": str(tmp_path / "v.txt")})
    foci.train("cloze", tables, out=tmp_path / "run", log=said.append)
    run = foci.load(tmp_path / "run")
    number = run.assets.vocabulary.ids(["Mary"])[0]
    assert run.model.vectors.weight[number].tolist() == [1.5, 0, 1]
    assert any("has vectors for 3 of" in line for line in said)


def test_commands(run, tmp_path, capsys):
    asked = [STORY, "Mary is in the XXXXX now."]
    assert foci_cli.main(["predict", str(run), *asked, "garden|office", "--n-best", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {found["output"], found["alternatives"][0]["output"]} == {"garden", "office"}
    assert foci_cli.main(["predict", str(run), *asked]) == 0
    path = write_jsonl(
        tmp_path / "a.jsonl", [{"document": STORY, "question": asked[1], "candidates": ["barn", "office"]}]
    )
    capsys.readouterr()
    assert foci_cli.main(["predict", str(run), "--file", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] in ("barn", "office")
    assert foci_cli.main(["show", str(run), *asked, "--png", str(tmp_path / "a.png")]) == 0
    assert foci_cli.main(["evaluate", str(run), "--plot", str(tmp_path / "b.png")]) == 0
    assert (tmp_path / "b.png").stat().st_size > 1000


def test_mistakes_in_settings_and_records(predictor, tmp_path):
    with pytest.raises(ConfigError, match="path and builtin are both set"):
        foci.train("cloze", put(FEW, {"data.path": "a.jsonl"}), out=tmp_path / "run", **SILENT)
    record = {"document": STORY, "question": "XXXXX", "candidates": "garden|barn", "answer": "office"}
    with pytest.raises(DataError, match="entry 0: the answer 'office' is not among the candidates"):
        predictor.evaluate([record])
