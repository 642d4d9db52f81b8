"""Sequence labeling as a user has it: train from files of every form, predict spans with probabilities, evaluate."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import torch
from seqeval.metrics import accuracy_score, f1_score

import foci
import foci_cli
from foci.errors import ConfigError, DataError
from foci.functional.crf.spans import span_distribution
from foci.metrics.spans import Span, strict_spans
from foci.tasks.frame.config import configure, put
from foci.tasks.frame.prediction_loop import batch_of
from foci.tasks.frame.task import Splits
from foci.tasks.tag.builtin import carriers
from foci.tasks.tag.config import TagConfig
from foci.tasks.tag.decoding import chain_of, decode
from foci.tasks.tag.json_records import from_record
from foci.tasks.tag.schemes import to_tags
from foci.tasks.tag.task import Tag
from foci.viz.trace import Trace

SILENT = {"log": lambda text: None}
QUICK = {
    "data": {"builtin": 400, "batch_size": 16},
    "vocabulary": {"min_count": 1},
    "model": {"preset": "tiny"},
    "training": {"max_steps": 90, "eval_every": 45, "warmup": 5, "learning_rate": 0.01, "schedule": "constant"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tag") / "run"
    foci.train("tag", QUICK, out=folder, **SILENT)
    return folder


@pytest.fixture(scope="module")
def predictor(run):
    return foci.load(run)


def test_a_validation_weighs_intents_as_the_training_does(predictor):
    task, assets = predictor.task, predictor.assets
    splits = task.read(lambda text: None)
    some = splits._replace(valid=splits.valid[:7])
    found = {}
    for weight in (0.0, 1.0, 3.0):
        tagging = dataclasses.replace(task.config.tagging, intent_weight=weight)
        weighted = Tag(dataclasses.replace(task.config, tagging=tagging))
        with torch.no_grad():
            found[weight] = weighted.validate(predictor.model, weighted.held_out(some, assets, print))["loss"]
            records = [one._asdict() for one in some.valid]
            evaluated = weighted.evaluate(predictor.model, assets, records, Tag.EvaluateOptions(), lambda done: None)
        assert evaluated.metrics["loss"] == pytest.approx(found[weight], rel=1e-5)
    assert found[3.0] - found[0.0] == pytest.approx(3 * (found[1.0] - found[0.0]), rel=1e-4)
    assert found[1.0] > found[0.0]


def test_it_learns_and_its_figures_are_those_of_seqeval(predictor):
    records = predictor.held_out()[:200]
    evaluation = predictor.evaluate(records)
    metrics = evaluation.metrics
    assert metrics["f1"] > 0.7
    assert metrics["intent_accuracy"] > 0.8
    gold, found = [], []
    for record, prediction in zip(records, predictor.predict(records)):
        words = [tuple(one) for one in record["words"]]
        tags = [one["tag"] for one in prediction.details["words"]]
        spans = [Span(words.index(next(w for w in words if w[0] == s["start"])),
                      words.index(next(w for w in words if w[1] == s["end"])), s["label"])
                 for s in record["spans"]]  # fmt: skip
        gold.append(to_tags(spans, len(words), "BIO"))
        found.append(tags)
        assert [(s["start"], s["end"], s["label"]) for s in prediction.details["spans"]] == [
            (words[first][0], words[last][1], label) for first, last, label in strict_spans(tags)
        ]
    assert metrics["f1"] == pytest.approx(f1_score(gold, found))
    assert metrics["macro_f1"] == pytest.approx(f1_score(gold, found, average="macro"))
    assert metrics["strict_f1"] == pytest.approx(f1_score(gold, found))  # constrained tags are never malformed
    assert metrics["accuracy"] == pytest.approx(accuracy_score(gold, found))
    table = evaluation.tables["labels"]
    assert sum(row[1] for row in table.rows) == sum(len(record["spans"]) for record in records)
    bins = evaluation.tables["calibration"].rows
    assert sum(row[1] for row in bins) == sum(row[2] for row in table.rows)


def test_offsets_in_the_text_as_it_was_given(predictor):
    text = "  please   wake me up at 7:45 PM\t"
    (prediction,) = predictor.predict([text])
    for span in (*prediction.details["spans"], *prediction.details["words"]):
        assert text[span["start"] : span["end"]] == span["text"]
    assert [one["text"] for one in prediction.details["words"]][:3] == ["please", "wake", "me"]
    assert text in prediction.output.replace("[time ", "").replace("]", "") or prediction.details["spans"] == []


@pytest.fixture
def uncalibrated(predictor, monkeypatch):
    """The run with probabilities as the CRF gives them."""
    monkeypatch.setattr(predictor.task, "calibration", {})


def test_an_evaluation_without_spans_says_that_its_ece_means_nothing(predictor):
    records = predictor.held_out()[:5]
    assert "ece_convention" not in predictor.evaluate(records).notes
    without = predictor.evaluate(records, options={"select": "probability", "threshold": 1.0})
    assert without.metrics["ece"] == 0
    assert "no span is predicted" in without.notes["ece_convention"]


def test_calibrated_spans_keep_their_order_and_fit_better(predictor, monkeypatch):
    records = predictor.held_out()[:120]
    after = predictor.predict(records)
    metrics = predictor.evaluate(records).metrics
    calibrated = predictor.task.calibration
    monkeypatch.setattr(predictor.task, "calibration", {})
    before = predictor.predict(records)
    spans = [[one for prediction in some for one in prediction.details["spans"]] for some in (before, after)]
    old, new = ([one["probability"] for one in some] for some in spans)
    assert [(one["text"], one["label"]) for one in spans[0]] == [(one["text"], one["label"]) for one in spans[1]]
    assert sorted(range(len(old)), key=lambda i: (old[i], new[i])) == sorted(range(len(old)), key=lambda i: new[i])
    odds = [
        calibrated["span_scale"] * math.log(one / (1 - one)) + calibrated["span_shift"] for one in old if one < 0.99
    ]
    assert [1 / (1 + math.exp(-one)) for one in odds] == pytest.approx(
        [n for n, o in zip(new, old) if o < 0.99], abs=1e-4
    )
    assert metrics["ece_uncalibrated"] == predictor.evaluate(records).metrics["ece"]
    for one in after:
        for word in one.details["words"]:
            assert 0 <= word["probability"] <= 1


def test_span_probabilities_are_sums_over_all_sequences(predictor, uncalibrated):
    """Of three words every tag sequence is written down."""
    assets, model = predictor.assets, predictor.model
    text = "buy 3 kilograms"
    sentence = from_record({"text": text, "spans": []}, predictor.task.splitter)
    batch = batch_of(predictor.task._examples([sentence], assets), [0])
    with torch.no_grad():
        scores = model(batch.words, batch.letters, batch.spelt)
    chain = [part.double() for part in chain_of(scores)]
    emissions, transitions, start, end = (part.tolist() for part in (chain[0][0], *chain[1:]))
    totals, total = {}, 0.0
    for choice in itertools.product(range(len(assets.tags)), repeat=3):
        score = start[choice[0]] + end[choice[-1]] + sum(emissions[step][tag] for step, tag in enumerate(choice))
        score += sum(transitions[one][other] for one, other in itertools.pairwise(choice))
        if score == -math.inf:
            continue
        total += math.exp(score)
        for span in strict_spans([assets.tags[tag] for tag in choice]):
            totals[span] = totals.get(span, 0.0) + math.exp(score)
    (decoded,) = decode(scores, batch.words > 0, assets, 5)
    assert len(decoded.sequences) == 5
    checked = 0
    for sequence in decoded.sequences:
        for span, share in zip(sequence.spans, sequence.span_probabilities):
            assert share == pytest.approx(totals[span] / total, rel=1e-5)
            checked += 1
    assert checked > 3
    (prediction,) = predictor.predict([text], options={"n_best": 5})
    told = [prediction, *prediction.alternatives]
    assert [one.score for one in told] == pytest.approx([one.probability for one in decoded.sequences])
    assert sorted((one.score for one in told), reverse=True) == [one.score for one in told]
    assert sum(one.score for one in told) <= 1.0 + 1e-9


def test_notes_on_what_the_run_does_not_know(predictor, run, capsys):
    plain, strange, long = predictor.predict(["wake me at 7 pm", "☃ at 7 pm in 東京", f"wake {'a' * 31}"])
    assert "notes" not in plain.details
    (note,) = strange.details["notes"]
    assert note.startswith(
        "3 of 7 words are unknown to this run: '☃', '東', '京'. It was trained on built-in sentences (en)"
    )
    assert long.details["notes"][0] == "only the first 30 letters were read of 1 longer word"
    foci_cli.main(["predict", str(run), "☃ at 7 pm"])
    assert "1 of 4 words is unknown to this run: '☃'" in capsys.readouterr().err


def test_a_threshold_leaves_uncertain_spans_out(predictor):
    records = predictor.held_out()[:60]
    every = [span for one in predictor.predict(records) for span in one.details["spans"]]
    middle = float(np.median([span["probability"] for span in every]))
    found = predictor.predict(records, options={"threshold": middle})
    kept = [span for one in found for span in one.details["spans"]]
    assert kept == [span for span in every if span["probability"] >= middle]
    assert 0 < len(kept) < len(every)
    left_out = sum(len(one.details.get("below_threshold", [])) for one in found)
    assert left_out == len(every) - len(kept)
    strict, loose = (predictor.evaluate(records, options={"threshold": value}).metrics for value in (middle, 0.0))
    assert strict["precision"] >= loose["precision"]
    assert strict["recall"] <= loose["recall"]


def test_spans_by_their_probability(predictor, uncalibrated):
    """All spans that reach the threshold, of overlapping ones the most probable: as from the table of every span."""
    records = predictor.held_out()[:40]
    texts = [record["text"] for record in records] + ["seven 7 May at 3", "7 5 2024 km :"]
    for least in (0.05, 0.3):
        found = predictor.predict(texts, options={"select": "probability", "threshold": least})
        more = 0
        for text, prediction in zip(texts, found):
            more += len(prediction.details["spans"])
            want = every_likely_span(predictor, text, least)
            have = [(one["start"], one["end"], one["label"]) for one in prediction.details["spans"]]
            assert have == [one[:3] for one in want], text
            shares = [one["probability"] for one in prediction.details["spans"]]
            assert shares == pytest.approx([one[3] for one in want], abs=1e-6)
        assert more > 40
    best, both = (
        predictor.evaluate(records, options=options).metrics
        for options in (None, {"select": "probability", "threshold": 0.05})
    )
    assert both["recall"] >= best["recall"]
    assert both["strict_f1"] == both["f1"]
    with pytest.raises(ConfigError, match="threshold is 0, expected a probability from which on spans are given"):
        predictor.predict(texts, options={"select": "probability"})


def every_likely_span(predictor, text, least):
    """Spans with at least this probability, from the table of all of them, greedily; with offsets."""
    task, assets = predictor.task, predictor.assets
    sentence = from_record({"text": text, "spans": []}, predictor.task.splitter)
    batch = batch_of(task._examples([sentence], assets), [0])
    with torch.no_grad():
        scores = predictor.model(batch.words, batch.letters, batch.spelt)
    tags = assets.span_tags(torch.device("cpu"))
    table = span_distribution(*chain_of(scores), batch.words > 0, tags).all().exp()[0]
    taken, chosen = set(), []
    for first, longer, label in sorted((table >= least).nonzero().tolist(), key=lambda at: -float(table[tuple(at)])):
        words = {*range(first, first + longer + 1)}
        if not words & taken:
            taken |= words
            start, end = sentence.words[first][0], sentence.words[first + longer][1]
            chosen.append((start, end, assets.labels[label], float(table[first, longer, label])))
    return sorted(chosen)


def test_a_trace_has_marginals_and_marks(predictor, tmp_path, capsys):
    text = "Buy 3 kilograms before May 5."
    (prediction,) = predictor.predict([text], trace=True)
    trace = prediction.trace
    assert {*trace.attentions} == {"tags", "intent"}
    marks = trace.axes["words"].marks
    assert [(mark.label, mark.share) for mark in marks] == [
        (span["label"], span["probability"]) for span in prediction.details["spans"]
    ]
    best = trace.alignment("tags").max(axis=1)
    assert [one["probability"] for one in prediction.details["words"]] == pytest.approx(best.tolist(), abs=0.5)
    trace.print()
    shown = capsys.readouterr().out
    for mark in marks:
        assert f"{mark.label} {100 * mark.share:.0f} %]" in shown
    trace.save(tmp_path / "trace")
    assert Trace.load(tmp_path / "trace").axes["words"].marks == marks
    figure = trace.plot(tmp_path / "tags.png")
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any(mark.label in text for mark in marks for text in texts)
    trace.plot(tmp_path / "marginals.png", "marginals")
    page = trace.save_html(tmp_path / "page.html").read_text(encoding="utf-8")
    for mark in marks:
        assert f"<b>{mark.label}</b>" in page


@pytest.mark.parametrize("options", [{"encoder": "attention", "num_layers": 1}, {"output": "softmax"},
                                     {"spelling": "lstm", "encoder": "gru"}, {"spelling": "none"}])  # fmt: skip
@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_every_kind_of_model_trains_and_predicts(options, scheme, tmp_path):
    settings = put(Tag.Config.smallest, {**{f"model.{name}": value for name, value in options.items()},
                                  "tagging.scheme": scheme})  # fmt: skip
    foci.train("tag", settings, out=tmp_path / "run", **SILENT)
    run = foci.load(tmp_path / "run")
    for prediction in run.predict(run.held_out()[:4], trace=True):
        for share in [span["probability"] for span in prediction.details["spans"]]:
            assert 0 <= share <= 1
        tags = [one["tag"] for one in prediction.details["words"]]
        spans = strict_spans(tags, scheme)  # constrained: nothing is malformed
        assert to_tags(spans, len(tags), scheme) == tags


def test_unconstrained_tags_may_be_malformed(tmp_path):
    changes = {"tagging.constrained": False, "model.output": "softmax", "training.max_steps": 40}
    foci.train("tag", put(QUICK, changes), out=tmp_path / "run", **SILENT)
    run = foci.load(tmp_path / "run")
    metrics = run.evaluate(run.held_out()[:100]).metrics
    assert metrics["strict_f1"] != metrics["f1"]


def columns(sentences):
    lines = []
    for one in sentences:
        tags = to_tags(one.word_spans(), len(one.words), "IOB1")
        lines += [f"{word} {tag}" for word, tag in zip(one.tokens, tags)] + [""]
    return "\n".join(lines) + "\n"


def test_columns_conllu_and_folders_train(tmp_path, capsys):
    sentences = carriers("en", size=60)
    (tmp_path / "a.conll").write_text(columns(sentences), encoding="utf-8")
    said = []
    settings = put({**Tag.Config.smallest, "data": {"path": str(tmp_path / "a.conll")}}, {"training.max_steps": 2})
    foci.train("tag", settings, out=tmp_path / "columns", log=said.append)
    assert any("tags in IOB1" in text for text in said)
    folder = tmp_path / "aligned"
    folder.mkdir()
    (folder / "seq.in").write_text("".join(" ".join(one.tokens) + "\n" for one in sentences), encoding="utf-8")
    tags = [" ".join(to_tags(one.word_spans(), len(one.words), "BIOES")) for one in sentences]
    (folder / "seq.out").write_text("\n".join(tags) + "\n", encoding="utf-8")
    (folder / "label").write_text("".join(f"{one.intent}\n" for one in sentences), encoding="utf-8")
    aligned = put({**Tag.Config.smallest, "data": {}}, {"data.path": str(folder), "training.max_steps": 2})
    foci.train("tag", aligned, out=tmp_path / "folder", **SILENT)
    run = foci.load(tmp_path / "folder")
    assert len(run.assets.intents) == 3
    assert run.evaluate(run.read(str(folder))).metrics["sentences"] == 60
    files = put(aligned, {"data.path": str(folder / "seq.in"), "data.tags": str(folder / "seq.out"),
                          "data.intents": str(folder / "label")})  # fmt: skip
    foci.train("tag", files, out=tmp_path / "files", **SILENT)
    run = foci.load(tmp_path / "files")
    names = [str(folder / name) for name in ("seq.in", "seq.out", "label")]
    assert len(run.read(*names)) == 60
    with pytest.raises(ConfigError, match="2 files are given, expected 3 at a time"):
        run.read(*names[:2])
    conllu = "".join(
        f"1\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n\n" for word, tag in [("go", "VERB"), ("dog", "NOUN")] * 20
    )
    (tmp_path / "a.conllu").write_text(
        conllu + "1\tred\t_\tADJ\t_\t_\t_\t_\t_\t_\n2\tdogs\t_\tNOUN\t_\t_\t_\t_\t_\t_\n", encoding="utf-8"
    )
    speech = put({**Tag.Config.smallest, "data": {"path": str(tmp_path / "a.conllu"), "valid_share": 0.4}}, {})
    foci.train("tag", speech, out=tmp_path / "upos", **SILENT)
    assert foci_cli.main(["predict", str(tmp_path / "upos"), "go dog", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [span["label"] for span in told["spans"]] == [word["tag"] for word in told["words"]]
    for span, word in zip(told["spans"], told["words"]):
        assert span["probability"] == pytest.approx(word["probability"], abs=1e-5)


def test_given_vectors_reach_words_that_were_not_trained(tmp_path):
    vectors = tmp_path / "v.txt"
    vectors.write_text("may 1 0 0\njune 0 1 0\nzebra 0 0 1\n", encoding="utf-8")
    settings = put(Tag.Config.smallest, {"vocabulary.vectors": str(vectors)})
    said = []
    foci.train("tag", settings, out=tmp_path / "run", log=said.append)
    assert any("has vectors for" in text for text in said)
    run = foci.load(tmp_path / "run")
    assert run.assets.vector_dim == 3
    (zebra,) = run.assets.vocabulary.ids(["zebra"])
    assert run.model.vectors.weight[zebra].tolist() == [0.0, 0.0, 1.0]
    before, after = run.predict(["zebra"])[0].score, None
    run.model.vectors.weight.data[zebra] = 9.0
    after = run.predict(["zebra"])[0].score
    assert before != after


def test_mistakes_in_settings_and_data(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"word{number} O\n\n" for number in range(40)), encoding="utf-8")
    with pytest.raises(DataError, match=r"a.txt, line 1: no sentence has a span"):
        foci.train("tag", {"data": {"path": str(path)}}, out=tmp_path / "run", **SILENT)
    with pytest.raises(ConfigError, match="path and builtin are both set"):
        foci.train("tag", {"data": {"path": str(path), "builtin": 5}}, out=tmp_path / "run", **SILENT)
    with pytest.raises(ConfigError, match="model.encoder is 'rnn', which is not known. .*lstm"):
        foci.train("tag", put(Tag.Config.smallest, {"model.encoder": "rnn"}), out=tmp_path / "run", **SILENT)
    with pytest.raises(ConfigError, match="scheme"):
        foci.train("tag", put(Tag.Config.smallest, {"tagging.scheme": "IOB"}), out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


def test_labels_that_were_not_trained_count_as_missed(predictor):
    evaluation = predictor.evaluate([{"text": "wake me at 7:45 PM", "spans": [[11, 15, "never seen"]]}])
    assert evaluation.metrics["recall"] == 0.0
    assert "1 gold spans have labels" in evaluation.notes["unknown_labels"]
    found = {row[0] for row in evaluation.tables["labels"].rows}
    for label in predictor.assets.labels:
        assert (repr(label) in evaluation.notes["macro_f1_convention"]) == (label not in found)


def test_calibration_is_drawn(predictor, tmp_path):
    evaluation = predictor.evaluate(predictor.held_out()[:50])
    predictor.task.draw(evaluation, tmp_path / "calibration.png")
    assert (tmp_path / "calibration.png").stat().st_size > 1000


def test_records_with_mistakes_are_named(predictor):
    with pytest.raises(DataError, match=r"entry 1: the span \(0, 99, 'x'\) is not part of the text"):
        predictor.evaluate([{"text": "a b", "spans": []}, {"text": "a b", "spans": [[0, 99, "x"]]}])
    with pytest.raises(DataError, match=r"entry 0: 'words' is no list of"):
        predictor.predict([{"text": "a b", "words": [[0, 9]]}])


@pytest.mark.parametrize(
    ("given", "count", "chosen"),
    [
        ({}, 100, {"schedule": "cosine", "max_steps": 120, "warmup": 12}),  # 30 epochs of four batches
        ({}, 2000, {"schedule": "cosine", "max_steps": 1500}),
        ({}, 13_000, {"schedule": "cosine", "max_steps": 4070}),  # ten epochs
        ({"max_epochs": 3}, 2000, {"schedule": "cosine", "max_steps": 189, "warmup": 18}),
        ({"max_steps": 2000}, 100, {"schedule": "cosine"}),
        ({"time_limit": 60}, 100, {"schedule": "cosine"}),
    ],
)
def test_the_rate_falls_to_zero_by_the_end_of_a_training_by_default(given, count, chosen):
    task = Tag(configure(TagConfig, {"data": {"path": "x", "batch_size": 32}, "training": given}, "test"))
    found = task.suited(Splits([None] * count, [], []))
    assert {path.removeprefix("training."): one.value for path, one in found.items()} == chosen
    assert found.keys() <= {*TagConfig.suited}
