"""Memorizing as a user runs it: train, resume, load, evaluate by length, traces; and every mistake."""

import json
import math

import pytest
import torch

import foci_cli
from foci.errors import ConfigError, UnknownNameError
from foci.tasks.frame.config import configure, put
from foci.tasks.frame.predictor import load
from foci.tasks.frame.task import Shard
from foci.tasks.frame.train import train
from foci.tasks.memorize.config import RECOMMENDED, MemorizeConfig
from foci.tasks.memorize.problems import PROBLEMS, Copy, cost_bits, wrong_bits
from foci.tasks.memorize.task import AtLength, Memorize
from foci.training.run_folder import read_metrics

SILENT = {"log": lambda text: None}


def settings(problem="copy", kind="ntm", sizes=None, model=None, **training):
    return {
        "data": {
            "problem": {"kind": problem, **(sizes or {})},
            "batch_size": 4,
            "valid_sequences": 3,
        },
        "model": {"kind": kind, "preset": "tiny", **(model or {})},
        "training": {"max_steps": 4, "eval_every": 2, "schedule": "constant", "warmup": 0, **training},
    }


def read(tables):
    return configure(MemorizeConfig, tables, "test")


def rows_of(run, lengths=(), **options):
    evaluation = run.evaluate(options={"lengths": tuple(lengths), **options})
    return [AtLength(*row) for row in evaluation.tables["lengths"].rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Copying one vector of two bits, which is learned in a few steps."""
    folder = tmp_path_factory.mktemp("memorize") / "run"
    model = {"num_slots": 5, "slot_dim": 3, "hidden_dim": 16, "num_read_heads": 2}
    made = settings(sizes={"max_length": 1, "width": 2}, model=model, max_steps=150, eval_every=150, learning_rate=0.03)
    train("memorize", put(made, {"data.batch_size": 16}), out=folder, **SILENT)
    return folder


def test_a_run_learns_and_is_evaluated_by_length(run):
    memorizer = load(run)
    one, three = rows_of(memorizer, [1, 3], sequences=23)
    assert (one.length, one.sequences, one.of_bits) == (1, 23, 2)
    assert (three.length, three.of_bits) == (3, 6)
    assert one.bits < 0.2
    assert one.wrong_bits == 0
    assert one.perfect == 1
    assert one.optimal_bits is None
    assert three.wrong_bits > 0  # longer than anything it was trained on
    assert rows_of(memorizer, sequences=23) == [one]
    assert any(line["kind"] == "valid" and "wrong_bits" in line for line in read_metrics(run / "metrics.jsonl"))


def test_the_loss_counts_the_scored_bits_alone(run):
    memorizer = load(run)
    episodes = memorizer.task.problem.held_out(5, length=2)
    loss = memorizer.task.loss(memorizer.model, episodes)
    assert int(loss.count) == 5 * 2 * 2
    bits = cost_bits(memorizer.model(episodes.inputs).logits.detach(), episodes).sum()
    assert float(loss.total.detach()) == pytest.approx(float(bits) * math.log(2), rel=1e-5)


def test_evaluation_averages_over_parts_by_loops(run):
    memorizer = load(run)
    (row,) = rows_of(memorizer, [2], sequences=13)
    costs, wrong = [], []
    for part, count in enumerate((10, 3)):
        episodes = memorizer.task.problem.held_out(count, length=2, part=part)
        logits = memorizer.model(episodes.inputs).logits.detach()
        costs += cost_bits(logits, episodes).tolist()
        wrong += wrong_bits(logits, episodes).tolist()
    assert row.bits == pytest.approx(sum(costs) / 13, rel=1e-5)
    assert row.wrong_bits == pytest.approx(sum(wrong) / 13)
    assert row.perfect == pytest.approx(sum(errors == 0 for errors in wrong) / 13)


def test_predictions_count_the_wrong_bits_and_have_the_tape(run):
    memorizer = load(run)
    for prediction, length in zip(memorizer.predict([1, 2], trace=True, options={"seed": 3}), (1, 2)):
        episodes = memorizer.task.problem.held_out(1, length=length, seed=3)
        result = memorizer.model(episodes.inputs)
        logits = result.logits.detach()
        assert prediction.inputs == {"length": length}
        assert prediction.details["wrong_bits"] == int(wrong_bits(logits, episodes))
        assert prediction.details["of_bits"] == 2 * length
        assert prediction.details["bits"] == pytest.approx(float(cost_bits(logits, episodes)))
        assert prediction.output == f"{prediction.details['wrong_bits']} of {2 * length} bits wrong"
        trace = prediction.trace
        assert trace.text == f"copy, length {length}"
        assert {key: (axes.kind, len(axes)) for key, axes in trace.axes.items()} == {
            "slots": ("slots", 5),
            "steps": ("steps", 2 * length + 1),
        }
        for name, heads in (("read", 2), ("write", 1)):
            attention = trace.attention(name)
            assert attention.shape == (heads, 2 * length + 1, 5)
            for head in range(heads):
                found = torch.tensor(attention.dense(head))
                torch.testing.assert_close(found, result.attentions[name].dense()[0, head].detach())
    assert memorizer.predict([1])[0].trace is None
    assert memorizer.predict([], trace=True) == []


@pytest.mark.parametrize("kind", ["ntm", "lstm"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_trains_with_every_model(problem, kind, tmp_path):
    data = {"min_length": 20, "max_length": 20} if problem == "ngrams" else {}
    assert train("memorize", settings(problem, kind, data), out=tmp_path / "run", **SILENT).step == 4
    (row,) = rows_of(load(tmp_path / "run"), [7], sequences=12)
    assert 0 < row.wrong_bits <= row.of_bits
    assert 0 < row.bits < 2 * row.of_bits
    assert (row.optimal_bits is not None) == (problem == "ngrams")


def test_copies_are_evaluated_at_several_numbers(tmp_path):
    train("memorize", settings("repeat_copy", max_steps=1, eval_every=1), out=tmp_path / "run", **SILENT)
    memorizer = load(tmp_path / "run")
    (row,) = rows_of(memorizer, [3], sequences=40)
    of_bits = [9 * int(memorizer.task.problem.held_out(10, length=3, part=part).scored[0].sum()) for part in range(4)]
    assert len(set(of_bits)) > 1
    assert row.of_bits == pytest.approx(sum(of_bits) / 4)


@pytest.mark.parametrize("model", [{}, {"controller": "feed_forward", "initial_memory": "learned"}])
def test_resuming_gives_the_same_weights_as_one_sitting(model, tmp_path):
    train("memorize", settings(model=model, max_steps=6), out=tmp_path / "whole", **SILENT)
    train("memorize", settings(model=model, max_steps=4), out=tmp_path / "parts", **SILENT)
    train("memorize", settings(model=model, max_steps=6), out=tmp_path / "parts", resume=True, **SILENT)
    whole, parts = (load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data": {"problem": {"max_lenght": 3}}},
            r"test: data\.problem\.max_lenght is not known\. Did you mean 'max_length'",
        ),
        (
            {"data": {"problem": {"max_length": "long"}}},
            r"test: data\.problem\.max_length is 'long', expected a number, not a text",
        ),
        ({"data": {"batch_size": 0}}, r"test: data\.batch_size is 0, expected greater than or equal to 1"),
        ({"data": {"curriculum": -1}}, r"test: data\.curriculum is -1, expected greater than or equal to 0"),
        ({"data": {"problem": {"kind": "sort", "max_repeats": 3}}}, r"data\.problem\.max_repeats is not known"),
        (
            {"data": {"problem": {"max_length": 1, "min_length": 2}}},
            r"problem\.max_length is 1, but min_length 2",
        ),
        ({"model": {"num_slot": 3}}, r"test: model\.num_slot is not known\. Did you mean 'num_slots'"),
        ({"tokenizer": {}}, r"test: tokenizer is not known"),
    ],
)
def test_wrong_configurations_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        read(change)


def test_unknown_problems_models_and_presets():
    with pytest.raises(UnknownNameError, match="Did you mean 'repeat_copy'"):
        read(settings("repeat-copy"))
    with pytest.raises(UnknownNameError, match="'mtn'"):
        read(settings(kind="mtn"))
    with pytest.raises(UnknownNameError, match="tiny"):
        read(settings(model={"preset": "tyni"}))


def test_who_says_when_to_stop_is_taken_at_their_word():
    assert read({}).training.max_steps == RECOMMENDED["copy"].max_steps
    timed = read({"training": {"time_limit": 5}}).training
    assert (timed.time_limit, timed.max_steps, timed.schedule) == (5, None, "linear")


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_has_settings_of_its_own_and_the_user_the_last_word(problem):
    plain = read({"data": {"problem": {"kind": problem}}})
    chosen = (plain.training.max_steps, plain.data.curriculum, plain.model.preset)
    assert chosen == (RECOMMENDED[problem].max_steps, RECOMMENDED[problem].curriculum, RECOMMENDED[problem].preset)
    rates = (plain.training.learning_rate, plain.training.warmup)
    assert rates == (RECOMMENDED[problem].learning_rate, RECOMMENDED[problem].warmup)
    lstm = read({"data": {"problem": {"kind": problem}}, "model": {"kind": "lstm"}})
    assert (lstm.model.preset, lstm.training.learning_rate, lstm.training.warmup) == ("base", 1e-3, 0)
    tables = {
        "data": {"problem": {"kind": problem}, "curriculum": 7},
        "model": {"preset": "tiny"},
        "training": {"max_steps": 11, "schedule": "cosine"},
    }
    said = read(tables)
    assert (said.data.curriculum, said.model.preset) == (7, "tiny")
    assert (said.training.max_steps, said.training.schedule) == (11, "cosine")


def test_a_shorter_training_warms_up_as_much_sooner():
    steps, warmup = RECOMMENDED["copy"].max_steps, RECOMMENDED["copy"].warmup
    half = read({"training": {"max_steps": steps // 2}})
    assert half.training.warmup == warmup // 2 > 0
    said = read({"training": {"max_steps": steps // 2, "warmup": 3}})
    assert said.training.warmup == 3


def test_mistakes_with_a_run(run, tmp_path):
    memorizer = load(run)
    with pytest.raises(ConfigError, match="'length' of entry 0 is a str, expected a whole number"):
        memorizer.predict(["three"])
    with pytest.raises(ConfigError, match=r"evaluate: lengths is \(0,\), expected greater than or equal to 1"):
        rows_of(memorizer, [0])
    with pytest.raises(ConfigError, match="evaluate: sequences is 0, expected greater than or equal to 1"):
        rows_of(memorizer, [1], sequences=0)
    train("memorize", settings(kind="lstm", max_steps=1), out=tmp_path / "lstm", **SILENT)
    with pytest.raises(ConfigError, match="'lstm' attends to nothing"):
        load(tmp_path / "lstm").predict([3], trace=True)


def test_the_tape_from_the_command_line(run, tmp_path, capsys):
    assert foci_cli.main(["show", str(run), "1"]) == 0
    assert "copy, length 1" in capsys.readouterr().out
    assert foci_cli.main(["show", str(run), "2", "3", "--png", str(tmp_path / "tape.png")]) == 0
    assert all((tmp_path / f"tape-{number}.png").read_bytes().startswith(b"\x89PNG") for number in (1, 2))
    capsys.readouterr()
    assert foci_cli.main(["show", str(run), "a text"]) == 2
    assert "length is 'a text', expected a whole number" in capsys.readouterr().err


def test_command_line(run, tmp_path, capsys):
    assert foci_cli.main(["evaluate", str(run), "--lengths", "1,3", "--sequences", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["lengths"]
    rows = [dict(zip(found["columns"], row)) for row in found["rows"]]
    assert [row["length"] for row in rows] == [1, 3]
    assert rows[0]["wrong_bits"] == 0
    picture = tmp_path / "curve.png"
    assert foci_cli.main(["evaluate", str(run), "--lengths", "1,2", "--sequences", "5", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert foci_cli.main(["evaluate", str(run), "--plot", "curve.txt"]) == 2
    assert "'curve.txt', expected a name that ends in .png" in capsys.readouterr().err
    assert foci_cli.main(["evaluate", str(run), "--sequences", "5"]) == 0
    out = capsys.readouterr().out
    assert "wrong_bits" in out
    assert "sequences   5\n" in out
    assert foci_cli.main(["evaluate", str(run), "--lengths", "1,x"]) == 2
    assert "lengths is '1,x'" in capsys.readouterr().err
    assert foci_cli.main(["evaluate", str(run), "a.txt"]) == 2
    assert "memorize makes its own sequences and reads no files" in capsys.readouterr().err
    assert foci_cli.main(["evaluate", str(run), "--int8"]) == 2
    assert "Unknown option" in capsys.readouterr().err
    steps = ["--set", "training.max_steps=1", "--set", "data.problem.max_length=3", "--preset", "tiny"]
    out = ["--out", str(tmp_path / "new")]
    assert foci_cli.main(["train", "memorize", "--problem", "recall", *steps, *out]) == 0
    assert "foci evaluate" in capsys.readouterr().out
    assert foci_cli.main(["train", "memorize", "--resume", "--set", "training.max_steps=2", *out]) == 0
    assert load(tmp_path / "new").task.problem.max_length == 3
    assert foci_cli.main(["train", "memorize", "--problem", "copy"]) == 2
    assert "--out is missing" in capsys.readouterr().err


def test_a_curriculum_counts_steps_not_batches(monkeypatch):
    """Four batches per step: a curriculum of two steps has eight."""
    shares, eased = [], Copy.eased
    monkeypatch.setattr(Copy, "eased", lambda self, share: shares.append(share) or eased(self, share))
    tables = put(settings(gradient_accumulation_steps=4), {"data.curriculum": 2})
    task = Memorize(configure(Memorize.Config, tables, "test"))
    splits = task.read(lambda text: None)
    batches = iter(task.batches(splits, task.assets(splits, print), Shard(), print))
    for _ in range(11):
        next(batches)
    assert shares == [number / 8 for number in range(8)]
