"""Text generation as a user has it: train, evaluate, continue, stream, score; and every mistake."""

import gzip
import io
import json
import math
import random
import re

import numpy as np
import pytest
import torch
from streams import drained

import foci
import foci_cli
from foci.data.tokenizer import BOS, UNK
from foci.errors import ConfigError, DataError
from foci.tasks.frame.config import configure, put
from foci.tasks.frame.predictor import load
from foci.tasks.frame.train import train
from foci.tasks.generate.task import Generate, PieceEncoder, log_probs

SILENT = {"log": lambda text: None}
RHYME = "the cat sat on a mat\nand no dog bit its toe\n"
"""Repeated, it is learned in no time."""


def held_out(path):
    """Text to validate and evaluate with, where there is some: of a repeated rhyme nothing can be held out."""
    held = path.parent / "held.txt"
    return {"valid": str(held), "test": str(held)} if held.exists() else {}


def settings(path, **changes):
    tables = {
        "data": {"path": str(path), "context": 16, "batch_size": 8, **held_out(path)},
        "model": {"model_dim": 32, "num_heads": 2, "hidden_dim": 64, "num_layers": 2},
        "training": {"max_steps": 120, "eval_every": 60, "warmup": 10, "learning_rate": 0.02},
    }
    return put(tables, {name.replace("__", "."): value for name, value in changes.items()})


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "rhyme.txt"
    path.write_text(RHYME * 60, encoding="utf-8")
    (path.parent / "held.txt").write_text(RHYME * 6, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, text_file):
    folder = tmp_path_factory.mktemp("generate") / "run"
    train("generate", settings(text_file), out=folder, **SILENT)
    return folder


def test_a_text_is_learned_and_continued(run):
    predictor = load(run)
    evaluation = predictor.evaluate()
    assert evaluation.metrics["characters"] == evaluation.metrics["tokens"] == len(RHYME * 6)
    assert evaluation.metrics["nats"] < 0.35
    assert evaluation.metrics["perplexity"] == pytest.approx(math.exp(evaluation.metrics["nats"]))
    assert evaluation.metrics["bits_per_byte"] == pytest.approx(evaluation.metrics["nats"] / math.log(2))
    (one,) = predictor.predict(["the cat sat on a mat\nand no"], options={"temperature": 0, "max_new_tokens": 40})
    assert one.output == " dog bit its toe\nthe cat sat on a mat\nand no"[: len(one.output)]
    assert len(one.output) == 40  # longer than the context, so the window has slid
    assert one.details["ended_by"] == "max_new_tokens"
    assert "only the end is read" in one.details["notes"][0]


def test_the_log_probability_of_what_is_produced_is_that_of_scoring_it(run):
    predictor = load(run)
    for prompt in ("the ", "", "the cat sat on a mat\nand no dog"):
        (one,) = predictor.predict([prompt], options={"max_new_tokens": 33, "temperature": 1.0, "seed": 5})
        (scored,) = predictor.predict([prompt + one.output], options={"score": True})
        logs = [log for _, log in scored.details["tokens"]]
        assert sum(logs[len(prompt) :]) == pytest.approx(one.details["log_prob"], abs=1e-3)
        assert scored.score == pytest.approx(sum(logs), abs=1e-3)
        assert [label for label, _ in scored.details["tokens"][:3]] == predictor.assets.tokenizer.labels(
            predictor.assets.tokenizer.encode(prompt + one.output).ids[:3]
        )


def test_scores_are_those_of_one_pass_per_token(run):
    predictor = load(run)
    ids = np.array(predictor.assets.tokenizer.encode(RHYME[:29]).ids)
    with torch.no_grad():
        found = log_probs(predictor.model, ids, 16, 5)
        for place in range(len(ids)):
            begin = 0
            while place - begin >= 16:
                begin += 5
            window = torch.tensor([[BOS, *ids[begin:place].tolist()]])
            logs = predictor.model(window).logits[0, -1].log_softmax(-1)
            assert found[place] == pytest.approx(float(logs[ids[place]]), abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.3, "top_k": 4, "seed": 3},
        {"temperature": 1.0, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.2},
        {"stop": ("\nand", "dog b")},
        {"temperature": 2.0, "stop": ("a",), "seed": 9},
    ],
)
def test_pieces_join_to_the_prediction(run, options):
    predictor = load(run)
    options = {"max_new_tokens": 50, **options}
    (whole,) = predictor.predict(["the c"], options=options)
    pieces, prediction = drained(predictor.stream("the c", options=options))
    assert "".join(pieces) == whole.output
    assert prediction.to_json() == whole.to_json()
    assert all(pieces)
    for stop in options.get("stop", ()):
        assert stop not in whole.output
    if "stop" not in options:
        assert len(pieces) > 10  # as they come
    assert predictor.stream("the c", options={"beam_size": 2}) is None


def test_stop_strings_end_the_text_before_them(run):
    predictor = load(run)
    (one,) = predictor.predict(["the cat sat"], options={"temperature": 0, "stop": ["mat\nand", "xyz"]})
    assert one.output == " on a "
    assert one.details["ended_by"] == "stop"


def test_samples_differ_and_one_seed_gives_the_same(run):
    predictor = load(run)
    options = {"n_best": 4, "temperature": 1.5, "max_new_tokens": 30, "seed": 7}
    (one,), (again,) = (predictor.predict(["the"], options=options) for _ in range(2))
    assert one.to_json() == again.to_json()
    texts = {one.output, *(other.output for other in one.alternatives)}
    assert len(texts) > 1
    assert len(one.alternatives) == 3
    (other,) = predictor.predict(["the"], options={**options, "seed": 8})
    assert other.to_json() != one.to_json()


def test_a_beam_finds_a_text_at_least_as_likely_as_greedy(run):
    predictor = load(run)
    (greedy,) = predictor.predict(["the "], options={"temperature": 0, "max_new_tokens": 24})
    (best,) = predictor.predict(["the "], options={"beam_size": 6, "n_best": 3, "max_new_tokens": 24})
    assert best.details["log_prob"] >= greedy.details["log_prob"] - 1e-4
    assert [best.score, *(one.score for one in best.alternatives)] == sorted(
        [best.score, *(one.score for one in best.alternatives)], reverse=True
    )


def test_an_empty_prompt_begins_a_text(run):
    (one,) = load(run).predict([""], options={"max_new_tokens": 12, "temperature": 0})
    assert len(one.output) == 12


def test_a_trace_has_what_each_produced_token_read_and_its_surprise(run):
    predictor = load(run)
    (one,) = predictor.predict(["the cat"], options={"max_new_tokens": 5, "temperature": 0}, trace=True)
    trace = one.trace
    assert trace.attention("decoder.1.self").shape == (2, 5, 12)
    assert list(trace.axes["target"].labels) == predictor.assets.tokenizer.labels(
        predictor.assets.tokenizer.encode(one.output).ids
    )
    assert trace.axes["past"].labels[:4] == ("<bos>", "t", "h", "e")
    weights = trace.attention("decoder.0.self").dense(0)
    assert (np.triu(weights[:, 7:], 2) == 0).all()  # no token reads those after it
    logs = log_probs(predictor.model, np.array(predictor.assets.tokenizer.encode("the cat" + one.output).ids), 16, 8)
    np.testing.assert_allclose(trace.attention("surprise").dense(0)[0], logs / logs.sum(), atol=1e-4)
    (scored,) = predictor.predict(["the cat sat"], options={"score": True}, trace=True)
    assert scored.trace.attention("decoder.1.self").shape == (2, 11, 11)


@pytest.mark.parametrize("kind", ["bpe", "bytes", "words", "unigram"])
def test_other_tokens_are_compared_by_bits_per_byte(kind, text_file, tmp_path):
    size = {"bpe": 280, "unigram": 280, "words": 30, "bytes": 260}[kind]
    changes = {"tokenizer__kind": kind, "tokenizer__size": size, "training__max_steps": 3}
    train("generate", settings(text_file, **changes), out=tmp_path / "run", **SILENT)
    predictor = load(tmp_path / "run")
    record = "the cat — sat"
    evaluation = predictor.evaluate([record])
    scored = predictor.predict([record], options={"score": True})[0]
    bits = -scored.score / math.log(2) / len(record.encode())
    if kind == "words":  # the dash is unknown, and its spelling is added
        assert evaluation.metrics["bits_per_byte"] > bits
        bits = scored.details["bits_per_byte"]
    assert evaluation.metrics["bits_per_byte"] == pytest.approx(bits, rel=1e-5)
    assert evaluation.metrics["characters"] == 13
    assert (evaluation.metrics["unknown_tokens"] > 0) == (kind == "words")
    assert ("unknown" in evaluation.notes) == (kind == "words")


@pytest.mark.parametrize("kind", ["recurrent", "history"])
def test_recurrent_models(kind, text_file, tmp_path):
    model = {"kind": kind, "embedding_dim": 8, "hidden_dim": 48}
    tables = {**settings(text_file, training__max_steps=150, training__optimizer="adam"), "model": model}
    train("generate", tables, out=tmp_path / "run", **SILENT)
    predictor = load(tmp_path / "run")
    assert predictor.evaluate().metrics["nats"] < 1.0
    (one,) = predictor.predict(["the c"], options={"max_new_tokens": 20}, trace=True)
    assert ("decoder.0.self" in one.trace.attentions) == (kind == "history")


def test_learned_positions_keep_their_limit(text_file, tmp_path):
    changes = {"model__positions": "learned", "training__max_steps": 2}
    train("generate", settings(text_file, **changes), out=tmp_path / "run", **SILENT)
    predictor = load(tmp_path / "run")
    with pytest.raises(ConfigError, match="context is 17, expected at most the model's 16 learned positions"):
        predictor.evaluate(options={"context": 17})
    with pytest.raises(ConfigError, match="stride is 8, expected less than the context of 8"):
        predictor.predict(["a"], options={"context": 8, "stride": 8})


# ---- data


def lines_of(count, seed=0):
    """Lines of words, no two of them alike."""
    chance = random.Random(seed)
    return "".join(" ".join(str(chance.randrange(10**6)) for _ in range(8)) + "\n" for _ in range(count))


def read(path, **data):
    return Generate(configure(Generate.Config, {"data": {"path": str(path), **data}}, "test")).read(lambda text: None)


def test_a_stream_holds_out_the_same_passages_and_learns(tmp_path):
    path, said = tmp_path / "a.txt", []
    path.write_text(lines_of(3000), encoding="utf-8")
    tables = settings(path, data__stream=True, data__stream_buffer=2, training__max_steps=20)
    assert foci.train("generate", tables, out=tmp_path / "run", log=said.append).step == 20
    predictor = load(tmp_path / "run")
    streamed, whole = predictor.task.read(lambda text: None), read(path)
    assert streamed.valid == whole.valid
    assert [record["text"] for record in predictor.held_out()] == [one.text for one in whole.test]
    assert "".join(piece.text for piece in streamed.train) == whole.train[0].text
    assert not {*predictor.evaluate().notes} & {"trained_on", "chose_checkpoint", "data_changed"}
    assert predictor.evaluate().metrics["nats"] < 3.0
    note = predictor.evaluate(predictor.read(str(path))).notes["trained_on"]
    trained, total = map(int, re.search(r"(\d+) of (\d+) passages were trained on", note).groups())
    assert 0.8 < trained / total < 1


def test_documents_of_a_stream_are_separated():
    from foci.data.tokenizer import EOS, Tokenizer
    from foci.tasks.generate.reader import TextPiece

    tokenizer = Tokenizer.train(["abc"], "characters", 9)
    examples = PieceEncoder(tokenizer, 4)([TextPiece(0, "ab"), TextPiece(0, "c", ends=True), TextPiece(1, "a")])
    a, b, c = tokenizer.encode("abc").ids
    assert examples.ids.tolist() == [a, b, c, EOS, a]


def test_documents_of_a_stream_are_separated_also_between_two_buffers(tmp_path):
    """What is encoded at a time depends on data.stream_buffer, what is learned does not."""
    from foci.data.tokenizer import EOS

    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(7):
        (folder / f"{number}.txt").write_text(lines_of(130, number), encoding="utf-8")
    task = Generate(configure(Generate.Config, settings(folder, data__stream=True), "test"))
    splits = task.read(lambda text: None)
    pieces = list(splits.train)
    encode = PieceEncoder(task.assets(splits, lambda text: None).tokenizer, 4)
    whole = encode(pieces).ids.tolist()
    assert whole.count(EOS) == len({piece.document for piece in pieces}) - 1 > 3
    assert [id_ for piece in pieces for id_ in encode([piece]).ids.tolist()] == whole


def test_folders_compressed_files_and_a_file_to_validate_with(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(5):
        with gzip.open(folder / f"{number}.txt.gz", "wt", encoding="utf-8") as file:
            file.write(lines_of(100, number))
    (tmp_path / "valid.txt").write_text(RHYME, encoding="utf-8")
    tables = settings(folder, training__max_steps=2)
    train("generate", tables, out=tmp_path / "a", **SILENT)
    assert load(tmp_path / "a").held_out()[0]["text"] in [lines_of(100, number) for number in range(5)]
    train(
        "generate",
        put(tables, {"data.test": str(tmp_path / "valid.txt"), "data.valid": str(tmp_path / "valid.txt")}),
        out=tmp_path / "b",
        **SILENT,
    )
    assert [record["text"] for record in load(tmp_path / "b").held_out()] == [RHYME]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"line 1: there is no text"),
        (b"one line\n", r"line 1: 9 characters, expected some to train on and some to hold out"),
        (b"x", r"line 1: 1 characters"),
        (b"\x89PNG\r\n\x1a\n\0\0", r"line 1: is not UTF-8|line 3: holds a zero byte"),
    ],
)
def test_text_that_cannot_be_used_is_named_and_leaves_no_folder(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        train("generate", settings(path), out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


def test_settings_that_do_not_fit_are_named(tmp_path):
    for changes, message in (
        ({"data.stream": True}, "data.stream is set, but data.path is not"),
        ({"data.valid": "a.txt"}, "data.valid is set, but data.path is not"),
        ({"data.context": 1}, "data.context is 1"),
        ({"model.num_heads": 5}, "model_dim is 16 and num_heads is 5"),
        ({"tokenizer.kind": "byte"}, "tokenizer.kind is 'byte'"),
    ):
        with pytest.raises(ConfigError, match=message):
            train("generate", put(Generate.Config.smallest, changes), out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


def test_options_that_do_not_fit_are_named(run):
    predictor = load(run)
    for options, message in (
        ({"temperature": -1}, "temperature is -1"),
        ({"beam_size": 2, "n_best": 3}, "n_best is 3, expected at most beam_size=2"),
        ({"stop": [""]}, "stop holds an empty text"),
        ({"top_p": 0}, "top_p is 0"),
        ({"min_p": 1.5}, "min_p is 1.5"),
    ):
        with pytest.raises(ConfigError, match=message):
            predictor.predict(["a"], options=options)


def test_unknown_characters_are_noted(run):
    predictor = load(run)
    (one,) = predictor.predict(["the ☃ and ☂"], options={"max_new_tokens": 3})
    assert "2 tokens of the text are not in the vocabulary ('☃☂')" in one.details["notes"][0]
    assert predictor.assets.tokenizer.encode("☃").ids == [UNK]
    assert "\N{REPLACEMENT CHARACTER}" not in one.output


# ---- the command line


def test_the_prompt_comes_from_an_argument_a_file_or_standard_input(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "prompt.txt").write_text("the cat\nsat", encoding="utf-8")
    options = ["--max-new-tokens", "7", "--temperature", "0"]
    outputs = []
    assert foci_cli.main(["predict", str(run), "the cat\nsat", *options]) == 0
    outputs.append(capsys.readouterr().out)
    assert foci_cli.main(["predict", str(run), "--file", str(tmp_path / "prompt.txt"), *options]) == 0
    outputs.append(capsys.readouterr().out)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\nsat\n")))
    assert foci_cli.main(["predict", str(run), *options]) == 0
    outputs.append(capsys.readouterr().out)
    assert outputs == [outputs[0]] * 3
    assert len(outputs[0]) == 8  # with the end of the line
    assert foci_cli.main(["predict", str(run), "the cat\nsat", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] + "\n" == outputs[0]


def test_stop_strings_are_given_one_after_the_other_or_as_a_list(run, capsys):
    options = ["predict", str(run), "the cat sat", "--max-new-tokens", "30", "--temperature", "0", "--json"]
    found = []
    for stop in (["--stop", "xyz", "--stop", "mat\nand"], ["--stop", '["xyz", "mat\\nand"]'], ["--stop", "mat\nand"]):
        assert foci_cli.main([*options, *stop]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["ended_by"] == "stop"
    assert found == [found[0]] * 3


def test_lines_are_printed_as_lines_and_notes_on_standard_error(run, capsys):
    options = ["--max-new-tokens", "30", "--temperature", "0", "--stop", "toe"]
    assert foci_cli.main(["predict", str(run), "the cat sat on the ☃ mat", *options]) == 0
    out, err = capsys.readouterr()
    assert "toe" not in out
    assert "not in the vocabulary" in err
    assert foci_cli.main(["predict", str(run), "the cat", "--score"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7
    assert foci_cli.main(["show", str(run), "the cat", "--attention", "surprise", "--max-new-tokens", "5"]) == 0
    assert "surprise" in capsys.readouterr().out
