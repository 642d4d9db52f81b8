"""The contract of all applications, for every row of TASKS, on its smallest built-in data."""

import copy
import json
import math
import os
import shutil
import sys

import pytest
import torch
from disguises import no_waiting
from safetensors.torch import load_file
from streams import drained

import foci
import foci_cli
from foci.errors import CheckpointError, ConfigError, DataError
from foci.settings import build, describe
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.held_out import SEEN, Fingerprint
from foci.tasks.frame.task import find
from foci.training.run_folder import read_metrics

ESCAPE = "\x1b[31mred\x1b[0m [bold]markup[/bold] \x9b2J"
"""Characters that a terminal, or rich, would interpret."""


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Flushing is for power cuts, which no test makes, and takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def train(task, out, *, resume=False, log=lambda text: None, **changes):
    """Train the smallest run, with some settings changed by their dotted paths."""
    tables = configs.put(
        find(task).Config.smallest, {path.replace("__", "."): value for path, value in changes.items()}
    )
    return foci.train(task, tables, out=out, resume=resume, log=log)


@pytest.fixture(scope="module", params=TASKS)
def trained(request, tmp_path_factory):
    """The name of a task, and a run of it."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    train(request.param, folder)
    return request.param, folder


@pytest.fixture(params=[name for name in TASKS if "data" in find(name).Config.flags])
def with_data(request):
    """The name of a task that reads the user's files."""
    return request.param


def losses(run):
    return [(line["step"], line["loss"]) for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train"]


def last_weights(run):
    checkpoints = sorted((run / "checkpoints").glob("step-*"))
    return load_file(checkpoints[-1] / "model.safetensors")


def assert_equal_weights(one, other):
    one, other = last_weights(one), last_weights(other)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def inputs_of(run, count):
    """Inputs of different lengths that the run was not trained on."""
    fields = run.task.inputs
    if all(field.kind == "number" for field in fields):
        return [{fields[0].name: 1 + number % 3} for number in range(count)]
    return [{field.name: record[field.name] for field in fields} for record in run.held_out()[:count]]


def plain(prediction):
    return prediction.to_json()


# ---- training


def test_probabilities_are_calibrated_on_the_validation_data(trained):
    """Each checkpoint has its temperature, which changes no answer; evaluation has both calibrations."""
    task, run = trained
    predictor, last = foci.load(run), foci.load(run, checkpoint="last")
    if find(task).score != "probability" and task != "transcribe":  # of which words have probabilities
        assert predictor.task.calibration.keys() <= {"length_penalty"}  # of the search, not of probabilities
        return
    assert predictor.task.calibration.keys() == last.task.calibration.keys() != set()
    records = predictor.held_out()[:20]
    evaluation = predictor.evaluate(records)
    assert "calibrated on the validation examples" in evaluation.notes["calibrated"]
    options = {"threshold": 0.0} if task == "detect" else None  # which gives boxes by their calibrated probability
    before = predictor.predict(inputs_of(predictor, 20), options=options)
    predictor.task.calibration = {}  # as in a run of an earlier version
    raw = predictor.evaluate(records)
    assert raw.notes["calibrated"].startswith("none")
    assert raw.metrics["ece"] == raw.metrics["ece_uncalibrated"] == evaluation.metrics["ece_uncalibrated"]
    assert raw.metrics.get("accuracy") == evaluation.metrics.get("accuracy")
    after = predictor.predict(inputs_of(predictor, 20), options=options)
    assert [one.output for one in before] == [one.output for one in after]
    if task != "transcribe":  # whose words have probabilities, but not its transcripts
        assert [one.score for one in before] != [one.score for one in after]


def test_training_lowers_the_loss(trained):
    task, run = trained
    _, values = zip(*losses(run))
    assert len(values) == 8
    assert all(map(math.isfinite, values))
    assert sum(values[-3:]) < sum(values[:3])
    names = {line["kind"]: line for line in read_metrics(run / "metrics.jsonl")}["valid"]
    assert {*find(task).metrics} <= {*names}


def test_two_runs_with_one_seed_are_equal(trained, tmp_path):
    task, run = trained
    train(task, tmp_path / "again")
    assert_equal_weights(run, tmp_path / "again")
    files = [path.relative_to(run) for path in run.rglob("*.safetensors")]
    assert len(files) >= 3
    for file in files:  # to the byte
        assert (run / file).read_bytes() == (tmp_path / "again" / file).read_bytes(), file


def test_resuming_changes_what_may_change_and_refuses_the_rest(trained, tmp_path):
    task, _ = trained
    out = tmp_path / "run"
    train(task, out, training__max_steps=2)
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for change in ({"training__seed": 5}, {"model__preset": "no such"}, {"model__preset": "base"}):
        with pytest.raises(ConfigError):
            train(task, out, resume=True, **change)
    after = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert after == before
    train(task, out, resume=True, training__max_steps=3, training__learning_rate=0.5)
    recorded = json.loads((out / "config.json").read_text(encoding="utf-8"))["training"]
    assert (recorded["max_steps"], recorded["learning_rate"]) == (3, 0.5)
    assert losses(out)[-1][0] == 3
    with pytest.raises(ConfigError, match="holds a run, and nothing is overwritten"):
        train(task, out)


def test_a_run_works_from_any_folder(trained, tmp_path, monkeypatch):
    _, run = trained
    monkeypatch.chdir(tmp_path)
    assert foci.load(os.path.relpath(run)).evaluate(foci.load(run).held_out()[:3]).metrics


# ---- predictions


def test_save_and_load_predict_the_same(trained):
    _, run = trained
    first, second = foci.load(run), foci.load(run)
    inputs = inputs_of(first, 3)
    assert [plain(one) for one in first.predict(inputs)] == [plain(one) for one in second.predict(inputs)]
    assert first.predict([]) == []
    assert plain(first(inputs[0])) == plain(first.predict(inputs[:1])[0])
    assert [plain(one) for one in first(inputs)] == [plain(one) for one in first.predict(inputs)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_run_predicts_in_every_precision(trained, dtype):
    _, folder = trained
    run, other = foci.load(folder), foci.load(folder, dtype=dtype)
    assert {one.dtype for one in other.model.parameters()} == {dtype}
    inputs = inputs_of(run, 2)
    for one, expected in zip(other.predict(inputs), run.predict(inputs)):
        assert (one.score is None) == (expected.score is None)
        assert one.score is None or math.isfinite(one.score)
        if dtype == torch.float64:
            assert close(plain(one), plain(expected))


def test_a_run_says_what_it_is(trained):
    task, folder = trained
    run = foci.load(folder)
    text = repr(run)
    count = sum(one.numel() for one in run.model.parameters())
    assert f"task: {task}" in text
    assert f"{type(run.model).__name__} with {count:,} parameters, float32 on cpu" in text
    assert f"loss {run.metrics['loss']:.4g}" in text
    assert all(label in text for label in getattr(run.assets, "labels", ())[:10])
    assert ("languages: en → de" in text) == (task == "translate")


def close(one, other):
    """Equal, numbers to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == pytest.approx(other, abs=1e-4, rel=1e-4) if isinstance(one, float) else one == other


def test_a_prediction_depends_on_nothing_else_in_the_batch(trained):
    _, run = trained
    predictor = foci.load(run)
    inputs = inputs_of(predictor, 5)
    done = []
    together = [plain(one) for one in predictor.predict(inputs, progress=done.append)]
    assert sum(done) == len(inputs)
    for given, found in zip(inputs, together):
        (alone,) = predictor.predict([given])
        assert close(plain(alone), found)
    order = [3, 0, 4, 1, 2]
    shuffled = [plain(one) for one in predictor.predict([inputs[i] for i in order])]
    assert all(close(shuffled[place], together[i]) for place, i in enumerate(order))


def test_details_are_json_and_inputs_come_back(trained):
    _, run = trained
    predictor = foci.load(run)
    inputs = inputs_of(predictor, 2)
    for record in predictor.held_out()[:2]:
        assert isinstance(predictor.task.expected(record), str)
    for given, prediction in zip(inputs, predictor.predict(inputs, trace=True)):
        assert dict(prediction.inputs) == given
        assert isinstance(prediction.output, str)
        assert json.loads(json.dumps(prediction.to_json())) == prediction.to_json()
        assert math.isfinite(prediction.score)


def test_every_row_of_a_trace_sums_to_one_and_has_a_label(trained):
    _, run = trained
    predictor = foci.load(run)
    for prediction in predictor.predict(inputs_of(predictor, 3), trace=True):
        trace = prediction.trace
        assert trace.attentions
        for attention in trace.attentions.values():
            assert attention.shape[1:] == (len(trace.axes[attention.target]), len(trace.axes[attention.source]))
            for head in range(attention.shape[0]):
                sums = torch.tensor(attention.dense(head)).sum(-1)
                beside = attention.points is not None  # points that lie beside the picture have weight, too
                assert (((sums - 1).abs() < 1e-4) | (sums.abs() < 1e-4) | (beside & (sums < 1))).all()
        for axes in trace.axes.values():
            assert all(isinstance(label, str) for label in axes.labels)
    assert predictor.predict(inputs_of(predictor, 1))[0].trace is None


def test_inputs_of_the_wrong_kind(trained):
    task, run = trained
    predictor = foci.load(run)
    with pytest.raises(ConfigError, match=r"predict: got a single text, expected a list of them"):
        predictor.predict("one text")
    with pytest.raises(ConfigError, match=r"entry 0 has no"):
        predictor.predict([{"nonsense": "x"}])
    with pytest.raises(ConfigError, match=r"evaluate: got a single mapping"):
        predictor.evaluate({"a": "b"})
    if any(field.kind in ("sentence", "document") and field.required for field in find(task).inputs):
        (nothing,) = predictor.predict([{field.name: " \n" for field in find(task).inputs}], trace=True)
        assert (nothing.output, nothing.score, nothing.trace) == ("", None, None)
        assert "empty" in nothing.details["notes"][0]


def test_inputs_without_a_prediction_have_the_details_of_others(trained):
    """Empty ones and files that cannot be read: whoever reads details finds the same names in all of them."""
    task, run = trained
    required = [field for field in find(task).inputs if field.required and field.kind != "number"]
    if required:
        predictor = foci.load(run)
        (answered,) = predictor.predict(inputs_of(predictor, 1))
        (nothing,) = predictor.predict([{field.name: " \n" for field in required}])
        assert nothing.score is None
        assert nothing.details.keys() - {"notes"} == answered.details.keys() - {"notes", "below_threshold"}
        assert not any(value for name, value in nothing.details.items() if name != "notes")
        assert json.loads(json.dumps(nothing.to_json())) == nothing.to_json()


def test_pieces_of_an_answer_join_to_it(trained):
    _, run = trained
    predictor = foci.load(run)
    for given, whole in zip(inputs_of(predictor, 2), predictor.predict(inputs_of(predictor, 2))):
        stream = predictor.stream(given)
        assert (stream is not None) == predictor.streams
        if stream is not None:
            pieces, prediction = drained(stream)
            assert "".join(pieces) == whole.output
            assert plain(prediction) == plain(whole)


def test_examples_are_inputs(trained):
    _, run = trained
    predictor = foci.load(run)
    examples = predictor.task.examples(predictor.held_out(), 3)
    assert 1 <= len(examples) <= 3
    assert all({*one} == {field.name for field in predictor.task.inputs} for one in examples)
    assert len(predictor.predict(examples)) == len(examples)


# ---- evaluation


def test_evaluation_without_data_uses_what_was_held_out(trained):
    _, run = trained
    predictor = foci.load(run)
    held_out = list(predictor.held_out())
    some = held_out[:7]
    assert predictor.evaluate(some).to_json() == predictor.evaluate(some).to_json()
    if len(held_out) > len(some):
        predictor.held_out = lambda: some
    assert predictor.evaluate().metrics == predictor.evaluate(some).metrics
    evaluation = predictor.evaluate(some)
    assert predictor.task.Config.promise.metric in evaluation.metrics  # of the demo
    content = evaluation.to_json()
    assert json.loads(json.dumps(content)) == content
    splits = predictor.task.read(lambda text: None)
    trained_on = {json.dumps(dict(one._asdict()), sort_keys=True) for one in splits.train if hasattr(one, "_asdict")}
    names = [field.name for field in (*predictor.task.inputs, *predictor.task.targets)]
    records = {json.dumps({name: record[name] for name in names}, sort_keys=True) for record in held_out}
    assert not trained_on & records
    if splits.test:
        assert not {*SEEN} & {*predictor.evaluate().notes}
    kept = Fingerprint.read(run)
    assert len(kept.evaluated) == len({json.dumps(record, sort_keys=True) for record in held_out})


# ---- the user's data


def records_of(kind, count=30):
    """Examples of a task, from its built-in data."""
    task = kind(configs.configure(kind.Config, kind.Config.smallest, "test"))
    names = [field.name for field in (*kind.inputs, *kind.targets)]
    splits = task.read(lambda text: None)
    records = [one._asdict() if hasattr(one, "_asdict") else one for one in list(splits.train)[:count]]
    return [{name: record[name] for name in names} for record in records]


def write_jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def own_data(kind, path):
    """The smallest settings, with the user's file in place of the built-in data."""
    tables = copy.deepcopy(dict(kind.Config.smallest))
    path_of_data = kind.Config.flags["data"]
    table, _, name = path_of_data.partition(".")
    kept = {key: value for key, value in tables[table].items() if key.startswith(("max_", "batch_"))}
    return {**tables, table: {**kept, name: str(path)}}


def test_training_on_a_file(with_data, tmp_path):
    kind = find(with_data)
    path = write_jsonl(tmp_path / "a.jsonl", records_of(kind))
    said = []
    assert foci.train(with_data, own_data(kind, path), out=tmp_path / "run", log=said.append).step == 8
    assert any("the first is" in text for text in said)
    run = foci.load(tmp_path / "run")
    assert run.evaluate(run.read(str(path))).metrics
    assert 0 < len(run.held_out()) < 30


MISTAKES = {
    "missing file": None,
    "empty file": b"",
    "wrong column": b'{"nonsense": "x"}\n',
    "undecodable bytes": b'{"a": "\xff"}\n',
    "not JSON": b"nonsense\n",
}


@pytest.mark.parametrize("mistake", [*MISTAKES, "one example", "half a surrogate pair", "pipe"])
def test_data_with_a_mistake_is_named_and_leaves_no_folder(with_data, mistake, tmp_path):
    kind = find(with_data)
    path = tmp_path / "a.jsonl"
    if mistake == "one example":
        write_jsonl(path, records_of(kind, 1))
    elif mistake == "half a surrogate pair":
        records = records_of(kind)
        half = {name: f"{value}\ud83d" if isinstance(value, str) else value for name, value in records[0].items()}
        write_jsonl(path, [half, *records])
    elif mistake == "pipe":
        os.mkfifo(path)
    elif MISTAKES[mistake] is not None:
        path.write_bytes(MISTAKES[mistake])
    with no_waiting(), pytest.raises(DataError) as caught:
        foci.train(with_data, own_data(kind, path), out=tmp_path / "run", log=lambda text: None)
    assert str(path) in str(caught.value)
    assert "line 1" in str(caught.value) or mistake in ("missing file", "pipe")
    assert not (tmp_path / "run").exists()


def with_escape(value):
    """The value with what a terminal would act on in each of its texts; numbers stay as they are."""
    if isinstance(value, dict):
        return {name: with_escape(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_escape(one) for one in value]
    return f"{value} {ESCAPE}" if isinstance(value, str) else value


def escaped(kind, record):
    """The record with escapes in each text; an excerpt is changed alike wherever it is, so that it still is one."""
    fields = (*kind.inputs, *kind.targets)
    changed = dict(record)
    for excerpt in [record[field.name] for field in fields if field.kind == "excerpt"]:
        for name, value in changed.items():
            changed[name] = value.replace(excerpt, with_escape(excerpt))
    named = ("image", "audio")  # names of files
    whole = [field.name for field in fields if field.kind not in ("excerpt", "choices", *named)]
    return changed | {name: with_escape(changed[name]) for name in whole}


def test_labels_and_texts_with_escapes_come_out_as_themselves(with_data, tmp_path, capsys):
    kind = find(with_data)
    records = [escaped(kind, record) for record in records_of(kind)]
    path = write_jsonl(tmp_path / "a.jsonl", records)
    run = tmp_path / "run"
    foci.train(with_data, own_data(kind, path), out=run)
    shown = [record[field.name] for record in records[:1] for field in kind.inputs]
    assert foci_cli.main(["evaluate", str(run)]) == 0
    assert foci_cli.main(["predict", str(run), *shown, "--show"]) == 0
    assert foci_cli.main(["show", str(run), *shown]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x9b" not in out + err
    assert foci_cli.main(["predict", str(run), *shown, "--json"]) == 0
    out, _ = capsys.readouterr()
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert [json.loads(out)[field.name] for field in kind.inputs] == shown
    (prediction,) = foci.load(run).predict([dict(zip([field.name for field in kind.inputs], shown))])
    assert json.loads(out)["output"] == prediction.output
    if any(field.kind == "label" for field in kind.targets):
        assert ESCAPE in prediction.output


# ---- settings and commands


@pytest.mark.parametrize("task", TASKS)
def test_an_unknown_setting_or_option_suggests_the_nearest(task, tmp_path):
    kind = find(task)
    for path, expected in (
        ("training.max_stepz", "'max_steps'"),
        ("model.prest", "'preset'"),
        ("trainig", "'training'"),
    ):
        with pytest.raises(ConfigError, match=f"{path.replace('.', '[.]')} is not known. Did you mean {expected}"):
            foci.train(task, configs.put(kind.Config.smallest, {path: {}}), out=tmp_path / "run")
    for options in (kind.Options, kind.EvaluateOptions):
        name = next(iter(options.__dataclass_fields__))
        with pytest.raises(ConfigError, match=f"{name}z is not known. Did you mean '{name}'"):
            build(options, {f"{name}z": 1}, "predict")
    assert not (tmp_path / "run").exists()


WRONG = [
    {"training.device": "cuda"} if not torch.cuda.is_available() else {"training.device": "no such"},
    {"training.metric_for_best_model": "blue"},
    {"training.tensorboard": True},
    {"training": 5},
    {"model": "rnn"},
    {"model": [{}]},
    {"training.seed": 2**64},
    {"training.learning_rate": "nan"},
    {"training.min_lr_ratio": float("nan")},
    {"data.workers": -1},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_a_wrong_setting_leaves_no_folder(task, change, tmp_path, monkeypatch):
    if "training.tensorboard" in change:
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as where it is not installed
    with pytest.raises(ConfigError):
        foci.train(task, configs.put(find(task).Config.smallest, change), out=tmp_path / "run", log=lambda text: None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", TASKS)
def test_the_printed_configuration_reads_back_and_describes_every_setting(task, tmp_path, capsys):
    kind = find(task)
    assert foci_cli.main(["train", task, "--print-config", "--set", "training.max_steps=7"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    given = configs.configure(kind.Config, configs.apply_changes({}, ["training.max_steps=7"]), "test")
    assert configs.configure(kind.Config, configs.read_toml(tmp_path / "a.toml"), "test") == given
    for setting in describe(given):
        assert setting.doc, setting.path
        assert setting.path.rpartition(".")[2] in text


def test_every_command_answers_help(trained, capsys):
    task, run = trained
    for command in (["train", task], ["demo", task], ["evaluate", str(run)], ["predict", str(run)], ["show", str(run)]):
        assert foci_cli.main([*command, "--help"]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "Usage: foci" in out
        options = {"evaluate": find(task).EvaluateOptions, "predict": find(task).Options}.get(command[0])
        for setting in describe(options()) if options else ():
            assert f"--{setting.path.replace('_', '-')}" in out
        for flag in find(task).Config.flags if command[0] in ("train", "demo") else ():
            assert f"--{flag}" in out


def test_a_damaged_run_is_an_error(trained, tmp_path):
    _, run = trained

    def damaged(name, content):
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        for path in sorted(folder.rglob(name)):
            path.write_text(content, encoding="utf-8")
        return folder

    contents = ("[]", "null", "{}", "", "[" * 100_000, '{"task": "nonsense"}', '{"task": 5}')
    for content in contents:
        with pytest.raises((CheckpointError, ConfigError)):
            foci.load(damaged("config.json", content))
        with pytest.raises(CheckpointError):
            foci.load(damaged("state.json", content))
    for name in foci.load(run).assets.to_files():
        for content in contents:
            with pytest.raises((CheckpointError, DataError)):
                foci.load(damaged(name, content))
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        foci.load(run, checkpoint="../../../etc")
    tables = json.loads((run / "config.json").read_text(encoding="utf-8"))
    part = tables["model"].get("decoder", tables["model"])
    part["model_dim" if "model_dim" in part else "hidden_dim"] = 2**20
    with pytest.raises(CheckpointError, match="has shape .*, but the model's has"):  # and takes no memory for it
        foci.load(damaged("config.json", json.dumps(tables)))


def test_the_table_names_classes_that_name_themselves():
    for name in TASKS:
        kind = find(name)
        assert kind.name == name
        assert kind.__module__ == f"foci.tasks.{name}.task"
        assert kind.inputs
