"""Translation as a user runs it: train from files, resume, load, predict with a trace, evaluate; and every mistake."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import foci_cli
from foci.data import BOS, PAD, Pair, PairExamples, TokenBatches
from foci.errors import CheckpointError, ConfigError, DataError, UnknownNameError
from foci.models.build import build_seq2seq
from foci.tasks.frame.config import configure, put
from foci.tasks.frame.predictor import load
from foci.tasks.frame.search_options import SearchOptions
from foci.tasks.frame.task import Splits
from foci.tasks.frame.train import train
from foci.tasks.translate.config import TranslateConfig
from foci.tasks.translate.task import Translate
from foci.training.optim import make_optimizer

WORDS = ["red", "blue", "green", "one", "two", "three", "four", "five", "house", "tree"]
FOREIGN = ["rot", "blau", "grün", "eins", "zwei", "drei", "vier", "fünf", "Haus", "Baum"]


def write_corpus(folder: Path, pairs: int = 60) -> dict[str, str]:
    """Sentences of two or three words, translated word by word in reverse order."""
    generator = torch.Generator().manual_seed(1)
    sources, targets = [], []
    for _ in range(pairs):
        size = int(torch.randint(2, 4, (1,), generator=generator))
        chosen = torch.randint(len(WORDS), (size,), generator=generator).tolist()
        sources.append(" ".join(WORDS[i] for i in chosen))
        targets.append(" ".join(FOREIGN[i] for i in reversed(chosen)))
    (folder / "a.en").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (folder / "a.de").write_text("\n".join(targets) + "\n", encoding="utf-8")
    return {"path": str(folder / "a.en"), "target": str(folder / "a.de"), "batch_tokens": 800}


SILENT = {"log": lambda text: None}


def settings(data, **training):
    return {
        "data": data,
        "tokenizer": {"kind": "words", "size": 60},
        "model": {
            "kind": "rnn",
            "preset": "tiny",
            "encoder": {"embedding_dim": 24, "hidden_dim": 48},
            "decoder": {"embedding_dim": 24, "hidden_dim": 48, "input_feeding": False},
        },
        "label_smoothing": 0.0,
        "training": {"max_steps": 6, "eval_every": 3, "warmup": 2, "learning_rate": 0.03, **training},
    }


def read(tables):
    return configure(TranslateConfig, tables, "test")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translate")
    data = write_corpus(folder, 400)
    train("translate", settings(data, max_steps=160, eval_every=160, schedule="cosine"), out=folder / "run", **SILENT)
    return folder / "run"


def test_a_run_holds_everything_and_learns(run):
    names = {path.name for path in run.iterdir()}
    assert {"config.json", "environment.json", "metrics.jsonl", "checkpoints"} <= names
    assert {"source_tokenizer.json", "target_tokenizer.json"} <= names
    translator = load(run)
    predictions = translator.predict(["one red house", "five trees", "blue tree"], options=SearchOptions(beam_size=3))
    assert predictions[0].output == "Haus rot eins"
    assert predictions[2].output == "Baum blau"
    assert all(math.isfinite(prediction.score) for prediction in predictions)


def test_predictions_come_in_order_and_do_not_depend_on_the_batch(run):
    translator = load(run)
    texts = ["one red house", "two", "blue tree", "four green tree"]
    together = [prediction.output for prediction in translator.predict(texts)]
    alone = [translator.predict([text])[0].output for text in texts]
    assert together == alone
    assert translator.predict([]) == []


def test_a_trace_has_the_weights_of_every_produced_token(run):
    (prediction,) = load(run).predict(["one red house"], trace=True, options=SearchOptions(beam_size=3, n_best=2))
    assert len(prediction.alternatives) == 1
    for translation in (prediction, *prediction.alternatives):
        trace = translation.trace
        assert list(trace.axes["source"].labels) == ["one", "▁red", "▁house"]
        alignment = trace.alignment()
        assert alignment.shape == (len(trace.axes["target"].labels), 3)
        torch.testing.assert_close(torch.tensor(alignment).sum(-1), torch.ones(len(alignment)))
        assert trace.text == translation.output
    assert load(run).predict(["one"])[0].trace is None


def test_evaluation_names_its_signatures(run):
    pairs = [Pair("one red house", "Haus rot eins"), {"source": "blue tree", "target": "falsch"}]
    evaluation = load(run).evaluate(pairs)
    metrics = evaluation.metrics
    assert metrics["exact"] == 0.5
    assert metrics["sentences"] == 2
    assert isinstance(metrics["sentences"], int)
    assert "tok:13a" in evaluation.notes["bleu_signature"]
    assert evaluation.notes["bleu_tokenizer"] == "13a, by the script of the references"
    assert "version:" in evaluation.notes["chrf_signature"]
    assert 0 < metrics["chrf"] < 100
    assert metrics["perplexity"] > 1
    assert load(run).evaluate(pairs, options={"lowercase": True}).notes["bleu_signature"].count("case:lc") == 1
    asked = load(run).evaluate(pairs, options={"tokenize": "char"})
    assert asked.notes["bleu_tokenizer"] == "char, as asked (tokenize)"
    assert "tok:char" in asked.notes["bleu_signature"]


def test_the_language_of_the_translations_chooses_the_tokenizer(tmp_path):
    data = write_corpus(tmp_path)
    named = settings(data, max_steps=1)
    named["data"]["languages"] = "en-zh"
    train("translate", named, out=tmp_path / "run", **SILENT)
    evaluation = load(tmp_path / "run").evaluate([Pair("one red house", "Haus rot eins")])
    assert evaluation.notes["bleu_tokenizer"] == "zh, for the language zh"
    named["data"]["languages"] = "english"
    with pytest.raises(ConfigError, match=r"data\.languages is 'english', expected two locales, as in en-zh"):
        train("translate", named, out=tmp_path / "other", **SILENT)


def test_resuming_gives_the_same_weights_as_one_sitting(tmp_path):
    data = write_corpus(tmp_path)
    train("translate", settings(data, max_steps=8), out=tmp_path / "whole", **SILENT)
    train("translate", settings(data, max_steps=5), out=tmp_path / "parts", **SILENT)
    train("translate", settings(data, max_steps=8), out=tmp_path / "parts", resume=True, **SILENT)
    whole, parts = (load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def by_default(folder, pairs, **tables):
    """Train without settings of batches, vocabulary, warm-up and norm; return the log, and the run's settings."""
    data = write_corpus(folder, pairs)
    del data["batch_tokens"]
    sizes = {"model_dim": 8, "num_heads": 2, "hidden_dim": 8, "num_layers": 1}
    whole = {"data": data, "model": {"encoder": sizes, "decoder": sizes}, "training": {"max_steps": 2}, **tables}
    logged = []
    train("translate", whole, out=folder / "run", log=logged.append)
    return logged, json.loads((folder / "run" / "config.json").read_text())


def test_what_is_not_given_is_chosen_by_the_size_of_the_data_and_stored(tmp_path):
    logged, config = by_default(tmp_path, 400)
    chosen = {line.partition(" = ")[0]: line for line in logged if line.partition(" = ")[0] in TranslateConfig.suited}
    assert chosen.keys() == {*TranslateConfig.suited}
    assert all("; " in line or ": " in line for line in chosen.values())  # each has a reason
    assert all("the least that is chosen" in chosen[name] for name in ("data.batch_tokens", "tokenizer.size"))
    assert config["data"]["batch_tokens"] == 512  # the least: there are about 1,000 tokens
    assert config["tokenizer"]["size"] == 1000
    assert config["model"]["encoder"]["norm"] == config["model"]["decoder"]["norm"] == "pre"
    assert config["training"]["warmup"] == 0  # a tenth of two steps
    logged.clear()
    train("translate", {"training": {"max_steps": 4}}, out=tmp_path / "run", resume=True, log=logged.append)
    assert not [line for line in logged if line.startswith(TranslateConfig.suited)]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"] == config["data"]


def test_what_is_given_is_not_chosen_by_the_data(tmp_path):
    logged, config = by_default(tmp_path, 60, tokenizer={"size": 900}, training={"max_steps": 2, "warmup": 1})
    assert (config["tokenizer"]["size"], config["training"]["warmup"]) == (900, 1)
    assert not [line for line in logged if line.startswith(("tokenizer.size =", "training.warmup ="))]


@pytest.mark.parametrize(
    ("pairs", "batch", "size", "warmup"),
    [(100, 512, 1000, 100), (30_000, 1024, 6000, 292), (60_000, 2048, 8000, 292), (200_000, None, None, None)],
)
def test_batches_and_vocabulary_grow_with_the_data(pairs, batch, size, warmup):
    task = Translate(read({"data": {"path": "x"}, "training": {"time_limit": 60}}))
    chosen = task.suited(Splits([Pair("a" * 80, "b" * 60)] * pairs, [], []))
    assert {path: chosen[path].value for path in chosen} == (
        {}
        if batch is None
        else {
            "data.batch_tokens": batch,
            "tokenizer.size": size,
            "model.encoder.norm": "pre",
            "model.decoder.norm": "pre",
            "training.warmup": warmup,
        }
    )


def test_a_printed_file_leaves_to_the_data_what_it_chooses(capsys):
    assert foci_cli.main(["train", "translate", "--print-config", "--set", "tokenizer.size=700"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "# batch_tokens = 4096    (unless the training data decides)" in printed
    assert "size = 700" in printed


@pytest.mark.parametrize("kind", ["rnn", "conv", "transformer"])
def test_every_model_trains_and_predicts(kind, tmp_path):
    tables = {
        "data": write_corpus(tmp_path),
        "tokenizer": {"size": 300},
        "model": {"kind": kind},
        "training": {"max_steps": 2, "eval_every": 2},
    }
    train("translate", tables, out=tmp_path / "run", **SILENT)
    (prediction,) = load(tmp_path / "run").predict(
        ["one red house"], trace=True, options=SearchOptions(beam_size=2, max_length=5)
    )
    assert prediction.trace.alignment().shape[1] == len(prediction.trace.axes["source"].labels)


def test_any_encoder_with_any_decoder_with_any_attention_from_the_command_line(tmp_path):
    write_corpus(tmp_path)
    sizes = ["model.encoder.layers=[[8,3]]", "model.encoder.embedding_dim=8", "model.decoder.hidden_dim=8"]
    parts = ["model.encoder.kind=convolutional", "model.decoder.kind=recurrent", "model.attention.focus=local_p"]
    steps = ["training.max_steps=2", "training.warmup=1", "tokenizer.kind=words"]
    changes = [part for change in (*parts, *sizes, *steps) for part in ("--set", change)]
    files = ["--data", str(tmp_path / "a.en"), "--target", str(tmp_path / "a.de"), "--out", str(tmp_path / "run")]
    assert foci_cli.main(["train", "translate", *files, *changes]) == 0
    model = load(tmp_path / "run").model
    assert type(model.encoder).__name__ == "ConvolutionalTextEncoder"
    assert type(model.decoder.attention.focus).__name__ == "LocalP"


def test_settings_without_effect_are_refused():
    with pytest.raises(ConfigError, match="has no attention"):
        read({"model": {"kind": "rnn", "decoder": {"variant": "cho"}, "attention": {"score": "dot"}}})


def test_sampled_attention_trains_by_reinforce(tmp_path):
    tables = settings(write_corpus(tmp_path))
    sizes = {"embedding_dim": 8, "hidden_dim": 8}
    tables["model"] = {"kind": "rnn", "encoder": sizes, "decoder": sizes, "attention": {"normalize": "sample"}}
    assert train("translate", tables, out=tmp_path / "run", **SILENT).step == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"pth": "x"}}, r"test: data\.pth is not known\. Did you mean 'path'"),
        (
            {"model": {"encoder": {"num_haeds": 3}}},
            r"test: model\.encoder\.num_haeds is not known\. Did you mean 'num_heads'",
        ),
        ({"training": {"max_steps": "many"}}, r"test: training\.max_steps is 'many', expected a number, not a text"),
        ({"modle": {}}, r"test: modle is not known\. Did you mean 'model'"),
        ({"label_smoothing": 2}, r"label_smoothing is 2, expected less than 1"),
        ({"data": {"valid_share": -1}}, r"data.valid_share is -1, expected greater than 0"),
        ({"data": {"workers": -1}}, r"data.workers is -1, expected greater than or equal to 0"),
        ({"tokenizer": {"size": 10**12}}, r"tokenizer.size is 1000000000000, expected less than"),
        ({"model": "rnn"}, r"test: model is 'rnn', expected a table"),
        ({"model": [{}]}, r"test: model is \[\{\}\], expected a table"),
        ({"training": 5}, r"test: training is 5, expected a table"),
        ({"model": {"encoder": {"dropout": 2}}}, r"test: model.encoder.dropout is 2\.0, expected a number from 0 to"),
        ({"model": {"decoder": {"dropout": math.nan}}}, r"test: model.decoder.dropout is nan"),
        (
            {"model": {"encoder": {"model_dim": 0}}},
            r"test: model.encoder.model_dim is 0, expected a whole number above",
        ),
        (
            {"model": {"encoder": {"model_dim": "abc"}}},
            r"test: model.encoder.model_dim is 'abc', expected a number, not a text",
        ),
        ({"model": {"decoder": {"num_layers": 0}}}, r"test: model.decoder.num_layers is 0, expected a whole number"),
        ({"model": {"options": {"model_dim": 5}}}, r"test: model.options is not known"),
        ({"training": {"seed": 2**64}}, r"seed is 18446744073709551616, expected less than 9223372036854775808"),
        ({"training": {"learning_rate": math.inf}}, r"training.learning_rate is inf"),
    ],
)
def test_wrong_configurations_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        read(change)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"kind": "rnn"}, {"score.weight": 1 / 16}),
        ({"kind": "rnn", "decoder": {"variant": "bahdanau"}}, {"score.weight": 1 / 16}),
        ({"kind": "rnn", "attention": {"score": "dot"}}, {}),
        (
            {"kind": "rnn", "attention": {"score": "dot", "focus": "local_p", "radius": 2}},
            {"focus.layer.weight": 1 / 16, "focus.vector": 1 / 16},
        ),
        ({"kind": "rnn", "preset": "rnnsearch"}, {}),
        ({"kind": "rnn", "decoder": {"variant": "cho"}}, {}),
        ({"kind": "transformer"}, {}),
    ],
)
def test_what_sticks_at_the_full_rate_learns_slower(model, expected):
    config = read({"model": model})
    assert config.training.lr_multipliers == expected
    make_optimizer(
        build_seq2seq(7, 11, config.model), config.training
    )  # which refuses names that the model does not have
    given = {"model": model, "training": {"lr_multipliers": {"bias": 0.5}}}
    assert read(given).training.lr_multipliers == {"bias": 0.5}


@pytest.mark.parametrize("task", ["translate", "memorize", "classify"])
def test_rates_of_no_parameter_are_told_before_a_folder_is_made(task, tmp_path, capsys):
    write_corpus(tmp_path)
    documents = [f"{word} day {number}\t{word}" for number in range(40) for word in ("good", "bad")]
    (tmp_path / "a.tsv").write_text("\n".join(["text\tlabel", *documents]), encoding="utf-8")
    files = {
        "translate": ["--data", tmp_path / "a.en", "--target", tmp_path / "a.de"],
        "memorize": [],
        "classify": ["--data", tmp_path / "a.tsv"],
    }
    out = tmp_path / "run"
    command = ["train", task, *files[task], "--set", "training.lr_multipliers={wieght=0.5}", "--out", out]
    assert foci_cli.main([str(part) for part in command]) != 0
    assert "no parameter's name ends in 'wieght'" in capsys.readouterr().err
    assert not out.exists()


def test_unknown_models_and_presets():
    with pytest.raises(
        UnknownNameError, match="test: model: unknown kind of model 'transformr'. Did you mean 'transformer'"
    ):
        read({"model": {"kind": "transformr"}})
    with pytest.raises(UnknownNameError, match="tiny"):
        read({"model": {"preset": "tyni"}})


def test_bad_data_is_told_before_a_folder_is_made(tmp_path):
    data = write_corpus(tmp_path)
    (tmp_path / "a.de").write_text("nur eins\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.(en|de)"):
        train("translate", settings(data), out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"data\.target is .*, but no data is named"):
        train("translate", settings({"target": "x"}), out=tmp_path / "run", **SILENT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.kind": "bpe", "tokenizer.size": 100}, "size is 100, expected at least 261"),
        ({"data.batch_tokens": 1}, "more than max_tokens = 1"),
        ({"data.max_length": 1}, "no sentence pair has at most data.max_length = 1"),
        ({"model.kind": "transformer", "model.share_embeddings": True}, "each side has a vocabulary of its own"),
        ({"data.columns": ["en", "de"]}, "two aligned files have no columns"),
        ({"training.lr_multipliers": {"nothing": 0.5}}, "no parameter's name ends in"),
    ],
)
def test_what_is_found_out_late_leaves_no_folder_either(tmp_path, change, message):
    tables = settings(write_corpus(tmp_path))
    if "model.kind" in change:
        tables["model"] = {}
    with pytest.raises((ConfigError, DataError), match=message):
        train("translate", put(tables, change), out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


def test_a_folder_is_never_overwritten(run, tmp_path):
    with pytest.raises(ConfigError, match="holds a run, and nothing is overwritten"):
        train("translate", settings(write_corpus(tmp_path)), out=run, **SILENT)
    with pytest.raises(CheckpointError, match="is no run"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="has no checkpoint 'bets'. Did you mean 'best'"):
        load(run, checkpoint="bets")


def test_command_line(run, tmp_path, capsys, monkeypatch):
    assert foci_cli.main(["predict", str(run), "one red house", "--set", "beam_size=2"]) == 0
    assert capsys.readouterr().out == "Haus rot eins\n"
    assert foci_cli.main(["predict", str(run), "blue tree", "--n-best", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["output"]) == ("blue tree", "Baum blau")
    assert len(found["alternatives"]) == 1
    assert foci_cli.main(["predict", str(run), "blue tree", "--n-best", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    data = write_corpus(tmp_path)
    assert foci_cli.main(["evaluate", str(run), data["path"], data["target"], "--json", "--set", "beam_size=1"]) == 0
    assert json.loads(capsys.readouterr().out)["exact"] > 0.8
    flags = ["--model", "rnn", "--set", "training.max_steps=1", "--set", "tokenizer.size=300"]
    files = ["--data", data["path"], "--target", data["target"]]
    assert foci_cli.main(["train", "translate", *files, *flags, "--out", str(tmp_path / "new")]) == 0
    assert "foci evaluate" in capsys.readouterr().out
    assert foci_cli.main(["train", "translate", *files, *flags]) == 2
    assert "--out is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--beam-size", "0"], "beam_size is 0"),
        (["--set", "beam_szie=2"], "beam_szie is not known. Did you mean 'beam_size'"),
        (["--top-k", "3"], "they need a temperature"),
        (["--coverage-penalty", "nan"], "coverage_penalty is nan"),
        (["--n-best", "6"], "n_best is 6, expected at most beam_size=5"),
        (["--beam-szie", "2"], "--beam-size"),
    ],
)
def test_options_that_mean_nothing_are_refused(run, flags, message, capsys):
    assert foci_cli.main(["predict", str(run), "one", *flags]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert message in err
    assert "Traceback" not in err


def test_unknown_tokenize_is_an_error(run):
    with pytest.raises(UnknownNameError, match="unknown tokenize '14a'. Did you mean '13a'"):
        load(run).evaluate([Pair("one", "eins")], options={"tokenize": "14a"})


def test_a_trace_is_what_the_steps_of_decoding_read(run):
    translator = load(run)
    (prediction,) = translator.predict(["one red house"], trace=True, options=SearchOptions(beam_size=3))
    ids = torch.tensor([translator.assets.source_tokenizer.encode("one red house").ids])
    produced = translator.assets.target_tokenizer.encode(prediction.output).ids
    read = []
    with torch.no_grad():
        memory, state = translator.model.start(ids, torch.ones_like(ids, dtype=torch.bool))
        for token in [BOS, *produced]:
            _, state, attention = translator.model.step(torch.tensor([token]), memory, state)
            read.append(attention.dense()[0, 0])
    torch.testing.assert_close(torch.tensor(prediction.trace.alignment()), torch.stack(read))


def test_a_stream_is_read_from_disk_epoch_after_epoch_and_resumed_where_it_was(tmp_path):
    held_out = tmp_path / "valid"
    held_out.mkdir()
    valid = write_corpus(held_out, 11)
    data = {
        **write_corpus(tmp_path, 30),
        "valid": valid["path"],
        "valid_target": valid["target"],
        "stream": True,
        "stream_buffer": 7,
        "batch_tokens": 60,
        "max_length": 30,
    }
    train("translate", settings(data, max_steps=9, eval_every=9), out=tmp_path / "whole", **SILENT)
    train("translate", settings(data, max_steps=4, eval_every=9), out=tmp_path / "parts", **SILENT)
    train("translate", settings(data, max_steps=9, eval_every=9), out=tmp_path / "parts", resume=True, **SILENT)
    whole, parts = (load(tmp_path / name).model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    summary = train("translate", settings(data, max_steps=None, max_epochs=2), out=tmp_path / "epochs", **SILENT)
    assert summary.reason == "max_epochs"

    without = {name: value for name, value in data.items() if not name.startswith("valid")}
    with pytest.raises(ConfigError, match=r"data.stream is set, but data.valid is not"):
        train("translate", settings(without), out=tmp_path / "no", **SILENT)
    with pytest.raises(ConfigError, match=r"data.max_length is 200, more than data.batch_tokens = 60"):
        train("translate", settings({**data, "max_length": 200}), out=tmp_path / "no", **SILENT)
    with pytest.raises(DataError, match="no sentence pair has at most"):
        train("translate", settings({**data, "max_length": 3}), out=tmp_path / "no", **SILENT)


def splits_of(data, seed=0):
    return Translate(read(settings(data, seed=seed))).read(lambda text: None)


def test_a_pair_is_held_out_by_its_own_content(tmp_path):
    lines = [f"wort {number}\tword {number}" for number in range(400)]

    def parts(lines, seed=0, **data):
        (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        splits = splits_of({"path": str(tmp_path / "a.tsv"), "valid_share": 0.1, "test_share": 0.1, **data}, seed)
        return {pair: name for name, part in splits._asdict().items() for pair in part}, splits

    before, splits = parts(lines)
    assert len(before) == len(splits.train) + len(splits.valid) + len(splits.test) == 400
    assert {*before.values()} == {"train", "valid", "test"}
    for changed in ([*lines, "neu\tnew"], ["neu\tnew", *lines], lines[::-1], lines[7:]):
        after, _ = parts(changed)
        assert all(before.get(pair, part) == part for pair, part in after.items())
    assert parts(lines, seed=5)[0] == before  # the seed of the training is another one
    assert parts(lines, split_seed=5)[0] != before
    _, twice = parts([*lines, *lines, *(line.replace("word", "Word") for line in lines)])
    sources = [{pair.source for pair in part} for part in twice]
    assert not sources[0] & sources[1]
    assert not (sources[0] | sources[1]) & sources[2]
    with pytest.raises(DataError, match=r"a.tsv, line 1: of 3 sentence pairs none is left to (validate|train on)"):
        parts(lines[:1] * 3)
    with pytest.raises(ConfigError, match=r"data.valid_share is 0.1 and data.test_share is 0.9, expected less than 1"):
        parts(lines, test_share=0.9)


def test_evaluation_says_when_the_data_holds_out_others(tmp_path, capsys):
    data, out = write_corpus(tmp_path), tmp_path / "run"
    data |= {"valid_share": 0.2, "test_share": 0.3}
    train("translate", settings(data, max_steps=2), out=out, **SILENT)
    kept = (out / "examples.safetensors").read_bytes()
    held_out = load(out).held_out()
    assert held_out.change is None
    assert "data_changed" not in load(out).evaluate().notes
    sources = Path(data["path"]).read_text(encoding="utf-8").splitlines()
    targets = Path(data["target"]).read_text(encoding="utf-8").splitlines()
    wanted = {"path": sources, "target": targets}
    at = sources.index(held_out[0]["source"])
    copies = sources.count(sources[at])
    targets[at] += " neu"  # its pair is another one now
    for name, lines in wanted.items():
        Path(data[name]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    missing = int(copies == 1)
    note = load(out).evaluate().notes["data_changed"]
    assert "the data has changed since the training" in note
    assert " 1 are new" in note
    assert f"{missing} of the" in note
    assert foci_cli.main(["evaluate", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert f"warning: {note}" in printed.err
    assert "are new" in printed.out
    assert "data_changed" not in load(out).evaluate(held_out[:2]).notes  # other examples than those
    assert (out / "examples.safetensors").read_bytes() == kept

    (out / "examples.safetensors").write_bytes(b"{")
    with pytest.raises(CheckpointError, match=r"examples.safetensors: cannot be read"):
        load(out).evaluate()
    (out / "examples.safetensors").unlink()  # a run of an earlier version
    assert "data_changed" not in load(out).evaluate().notes


def test_files_of_held_out_pairs_take_the_place_of_shares(tmp_path):
    for name, count in (("train", 50), ("valid", 5), ("test", 4)):
        lines = [f"{name} {number}\t{number}" for number in range(count)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train_file, valid, test = (str(tmp_path / f"{name}.tsv") for name in ("train", "valid", "test"))
    sizes = [len(part) for part in splits_of({"path": train_file, "valid": valid, "test": test})]
    assert sizes == [50, 5, 4]
    assert splits_of({"path": train_file, "test": test}).test[0].source == "test 0"
    assert len(splits_of({"path": train_file, "valid": valid}).test) >= 1
    assert len(splits_of({"path": train_file, "valid": valid, "test_share": 0}).train) == 50
    streamed = splits_of({"path": train_file, "valid": valid, "test": test, "stream": True})
    assert [len(list(part)) for part in streamed] == [50, 5, 4]
    with pytest.raises(ConfigError, match=r"data.test is .*, but no data is named"):
        splits_of({"test": test})


def test_at_most_2000_of_the_held_out_pairs_are_validated_with(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"{number}\t{number}\n" for number in range(6000)), encoding="utf-8")
    data = {"path": str(tmp_path / "a.tsv"), "valid_share": 0.5}
    task = Translate(read(settings(data)))
    splits = task.read(lambda text: None)
    assert len(splits.valid) > 2500
    assets = task.assets(splits, lambda text: None)
    assert len(task.held_out(splits, assets, lambda text: None).examples.source) == 2000


def test_the_loss_is_label_smoothed_and_the_validation_is_not(run):
    translator = load(run)
    task = Translate(read({"label_smoothing": 0.2}))
    pairs = [Pair("one red house", "Haus rot eins"), Pair("two", "zwei")]
    batches = TokenBatches(PairExamples.encode(pairs, *translator.task.tokenizers(translator.assets)), max_tokens=99)
    (batch,) = batches.epoch(0)
    logits = translator.model(batch.source, batch.source_valid, batch.target[:, :-1]).logits.transpose(1, 2)
    smoothed, plain = (
        F.cross_entropy(logits, batch.target[:, 1:], ignore_index=PAD, reduction="sum", label_smoothing=share)
        for share in (0.2, 0.0)
    )
    found = task.loss(translator.model, batch)
    assert int(found.count) == 6  # four words and two ends
    torch.testing.assert_close(found.total, smoothed)
    with torch.no_grad():
        assert task.validate(translator.model, batches)["loss"] == pytest.approx(plain.item() / 6, rel=1e-4)
    assert smoothed.item() > 1.1 * plain.item()


@pytest.mark.parametrize("kind", ["transformer", "rnn", "conv"])
def test_a_wrong_option_of_the_model_leaves_no_folder(tmp_path, kind, capsys):
    data = write_corpus(tmp_path)
    wrong = {"transformer": "focus=sliding_window", "rnn": "score=dott", "conv": "encoder_layers=[]"}[kind]
    given = ["--data", data["path"], "--target", data["target"], "--model", kind, "--set", f"model.{wrong}"]
    assert foci_cli.main(["train", "translate", *given, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("foci: ")
    assert not (tmp_path / "run").exists()
