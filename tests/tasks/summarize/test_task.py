"""Summarization as a user has it: words outside the vocabulary are copied, nothing is cut in silence, views show it."""

import json
import random
import re

import pytest
import torch

import foci
import foci_cli
from foci.data import Tokenizer
from foci.errors import ConfigError
from foci.metrics.rouge import compared_words, rouge
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import Shard
from foci.tasks.summarize.config import SummarizeConfig, SummarizeEvaluateOptions
from foci.tasks.summarize.task import Summarize
from foci.training.run_folder import read_metrics
from foci.viz import terminal
from foci.viz.trace import COPIED, P_GEN, Trace
from foci.viz.views.copied import copied_words

SILENT = {"log": lambda text: None}


def names(seed, count):
    chance = random.Random(seed)
    return ["".join(chance.choices("abdegklmnoprstuvz", k=7)) for _ in range(count)]


def notes(seed, count):
    """What a note is about is its summary: a word that occurs nowhere else."""
    made = names(seed, 3 * count)
    return [
        {"source": f"a note from {made[3 * i]} to {made[3 * i + 1]} about {made[3 * i + 2]} today",
         "target": f"about {made[3 * i + 2]}"}
        for i in range(count)
    ]  # fmt: skip


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


SIZES = {"embedding_dim": 16, "hidden_dim": 32, "dropout": 0.0}
TINY = {
    "tokenizer": {"size": 14},
    "model": {"encoder": SIZES, "decoder": {**SIZES, "input_feeding": False}},
    "training": {"max_steps": 120, "eval_every": 60, "warmup": 10, "learning_rate": 0.02, "metrics_every": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summarize")
    data = {"path": write(folder / "notes.jsonl", notes(1, 300)), "batch_size": 32, "max_target": 6}
    foci.train("summarize", {**TINY, "data": data}, out=folder / "run", **SILENT)
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run):
    return foci.load(run)


def test_words_outside_the_vocabulary_are_copied_by_their_own_text(predictor):
    records = notes(7, 40)
    assert len(predictor.assets.tokenizer) == 14
    for options in ({"beam_size": 1}, {"beam_size": 3}, {"temperature": 0.01}, {"int8": True}):
        found = predictor.predict([record["source"] for record in records], options=options)
        right = [one.output == record["target"] for one, record in zip(found, records)]
        assert sum(right) >= 36, options


def test_the_trace_has_what_was_copied_from_where_and_p_gen(predictor, tmp_path):
    (prediction,) = predictor.predict(["a note from bobobo to dadada about zugzug today"], trace=True)
    trace = prediction.trace
    assert prediction.output == "about zugzug"
    copied = trace.attention(COPIED)
    target, source = trace.axes[copied.target], trace.axes[copied.source]
    weights = copied.dense()
    place = target.labels.index("▁zugzug")
    assert source.labels[weights[place].argmax()] == "▁zugzug"
    assert weights[place].sum() == pytest.approx(1.0, abs=1e-5)
    assert [mark.label for mark in target.marks] == [P_GEN] * len(target)
    assert target.marks[place].share < 0.5
    assert all(not row.any() for row, label in zip(weights, target.labels) if label == "<eos>")
    text = terminal.render(trace)
    assert "[▁zugzug" in text
    assert "p_gen" in text
    assert "48;2;" in terminal.render(trace, screen=terminal.Screen(80, 1 << 24))
    assert trace.plot(tmp_path / "a.svg").axes
    page = trace.save_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert 'class="tagged copied-source"' in page
    assert "&#8594;" in page
    trace.save(tmp_path / "kept")
    again = Trace.load(tmp_path / "kept")
    assert copied_words(again) == copied_words(trace)
    assert terminal.render(trace, "decoder.cross", view="ranked")


def test_a_trace_without_copies_has_no_such_view():
    plain = Trace.from_arrays([[1.0]], ["a"], ["b"])
    with pytest.raises(ConfigError, match="needs a trace of a model that copies"):
        terminal.render(plain, view="copied")


def test_truncation_is_counted_and_noted(tmp_path):
    said = []
    data = {"path": write(tmp_path / "a.jsonl", notes(2, 30)), "max_source": 5, "max_target": 1}
    foci.train("summarize", configs.put({**TINY, "data": data}, {"training.max_steps": 2}), out=tmp_path / "run",
               log=said.append)  # fmt: skip
    text = "\n".join(said)
    assert re.search(r"(\d+) of \1 texts have more than data.max_source = 5 tokens: the \d+ beyond are not read", text)
    assert "are cut to data.max_target = 1 tokens" in text
    loaded = foci.load(tmp_path / "run")
    (prediction,) = loaded.predict(["one two three four five six seven"])
    assert any("the text has 7 tokens; the first 5 were read" in note for note in prediction.details["notes"])
    assert loaded.evaluate(notes(3, 4)).metrics["texts_cut"] == 4


def test_figures_are_those_of_the_predictions(predictor):
    records = [{**record, "references": ["about nothing", "other words"]} for record in notes(5, 12)]
    evaluation = predictor.evaluate(records, options=SummarizeEvaluateOptions(beam_size=2, lead=1))
    produced = [one.output for one in predictor.predict(records, options={"beam_size": 2})]
    one = [rouge(compared_words(text), compared_words(record["target"])) for text, record in zip(produced, records)]
    for kind in ("rouge1", "rouge2", "rougeL"):
        assert evaluation.metrics[kind] == pytest.approx(100 * sum(each[kind].f for each in one) / 12)
    lead = [rouge(compared_words(record["source"]), compared_words(record["target"])) for record in records]
    assert evaluation.metrics["lead_rouge1"] == pytest.approx(100 * sum(each["rouge1"].f for each in lead) / 12)
    assert evaluation.metrics["rouge1_max"] > evaluation.metrics["rouge1_mean"] > 0
    assert evaluation.metrics["oracle_rouge1_max"] > 0
    assert {row[0] for row in evaluation.tables["rouge"].rows} == {"model", "lead-1", "oracle-1"}
    assert evaluation.metrics["novel_1grams"] + evaluation.metrics["copied_1grams"] == pytest.approx(1)


def test_rouge_compares_words_as_the_run_splits_them_in_baselines_too(tmp_path, monkeypatch):
    (tmp_path / "pairs_of_letters.py").write_text(
        "def cut(text):\n    return [text[i:i+2] for i in range(0, len(text), 2)]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    data = {
        "path": write(
            tmp_path / "a.jsonl", [{"source": f"甲乙丙丁{n}。别的话。", "target": f"甲乙丙丁{n}。"} for n in range(40)]
        )
    }
    tables = configs.put({**TINY, "data": data}, {"training.max_steps": 2, "data.words": "pairs_of_letters:cut"})
    foci.train("summarize", tables, out=tmp_path / "run", **SILENT)
    found = foci.load(tmp_path / "run").evaluate([{"source": "甲乙丙丁。别的话。", "target": "甲乙丙丁。"}])
    assert found.metrics["lead_rouge1"] == found.metrics["oracle_rouge1"] == pytest.approx(100)
    assert "pairs_of_letters:cut" in found.notes["rouge_of"]


def test_the_coverage_loss_begins_at_its_step_and_may_change_on_resuming(tmp_path):
    path = write(tmp_path / "a.jsonl", notes(4, 40))
    tables = configs.put(
        {**TINY, "data": {"path": path, "batch_size": 8}},
        {"training.max_steps": 4, "model.decoder.coverage": True, "coverage.weight": 1.0, "coverage.start": 3},
    )
    foci.train("summarize", tables, out=tmp_path / "run", **SILENT)
    lines = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "train"]
    assert [line["coverage"] > 0 for line in lines] == [False, False, True, True]
    changed = {"coverage": {"weight": 0.0}, "training": {"max_steps": 5}}
    foci.train("summarize", changed, out=tmp_path / "run", resume=True, **SILENT)
    last = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))[-2]
    assert last["step"] == 5
    assert "coverage" not in last


@pytest.mark.parametrize("kind", ["rnn", "transformer", "conv", "abs"])
@pytest.mark.parametrize("copy", [True, False])
def test_every_model_learns_with_and_without_copying(kind, copy):
    sizes = {
        "rnn": [{"embedding_dim": 8, "hidden_dim": 16}] * 2,
        "transformer": [{"model_dim": 8, "num_heads": 2, "hidden_dim": 16, "num_layers": 1}] * 2,
        "conv": [{"embedding_dim": 8, "layers": [[8, 3]]}, {"layers": [[8, 3]]}],
        "abs": [{"embedding_dim": 8}, {"embedding_dim": 8, "hidden_dim": 8}],
    }
    encoder, decoder = ({**part, "dropout": 0.0} for part in sizes[kind])
    model = {"kind": kind, "encoder": encoder, "decoder": {**decoder, "copy": copy}}
    tables = {"data": {"builtin": 20}, "model": model}
    task = Summarize(configs.configure(SummarizeConfig, tables, "test"))
    splits = task.read(lambda text: None)
    assets = task.assets(splits, lambda text: None)
    torch.manual_seed(1)
    model = task.model(assets)
    batch = next(iter(task.batches(splits, assets, Shard(), lambda text: None)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(8):
        found = task.loss(model, batch)
        losses.append(found.total.item() / int(found.count))
        optimizer.zero_grad()
        found.total.backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    records = [{"source": "the qqq of zzz"}]
    (made,) = task.predict(model.eval(), assets, records, task.Options(beam_size=1), False, lambda count: None)
    assert "\N{REPLACEMENT CHARACTER}" not in made.output  # <unk> is never produced


@pytest.mark.parametrize("text", ["猫坐在垫子上看鱼", "ולום עולם טוב מאוד"])
def test_other_scripts_come_back_as_they_were(predictor, text):
    plain = predictor.task.plain(text)
    assert plain.strip() == text
    tokenizer = Tokenizer.train([plain], kind="words", size=50)
    assert tokenizer.decode(tokenizer.encode(plain).ids).strip() == text
    (prediction,) = predictor.predict([f"a note from x to y about {text} today"], trace=True)
    assert isinstance(terminal.render(prediction.trace), str)


def test_translation_copies_too(tmp_path):
    records = notes(6, 120)
    path = write(tmp_path / "a.jsonl", records)
    tables = {
        "data": {"path": path, "batch_tokens": 600},
        "tokenizer": {"kind": "words", "size": 14, "shared": True},
        "model": {"kind": "rnn", "encoder": SIZES, "decoder": {**SIZES, "copy": True, "input_feeding": False},
                  "attention": {"score": "additive"}},
        "label_smoothing": 0.0,
        "training": {"max_steps": 60, "eval_every": 30, "warmup": 10, "learning_rate": 0.02},
    }  # fmt: skip
    foci.train("translate", tables, out=tmp_path / "run", **SILENT)
    loaded = foci.load(tmp_path / "run")
    (prediction,) = loaded.predict([notes(9, 1)[0]["source"]], trace=True)
    assert COPIED in prediction.trace.attentions
    assert "\N{REPLACEMENT CHARACTER}" not in prediction.output
    assert loaded.evaluate(records[:3]).metrics["perplexity"] > 0


def test_the_command_line(run, tmp_path, capsys):
    assert foci_cli.main(["predict", str(run), "a note from x to y about zugzug today", "--beam-size", "2"]) == 0
    assert "about" in capsys.readouterr().out
    assert (
        foci_cli.main(["show", str(run), "a note from x to y about zugzug today", "--png", str(tmp_path / "a.png")])
        == 0
    )
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert foci_cli.main(["evaluate", str(run), write(tmp_path / "b.jsonl", notes(8, 3))]) == 0
    assert "lead_rouge1" in capsys.readouterr().out
