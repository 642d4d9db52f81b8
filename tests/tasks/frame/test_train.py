"""The training skeleton: what is checked, in which order, and what is reported."""

import os
import re
import resource
import shutil
import signal
import time

import pytest
import torch
from torch import nn

import foci
from foci.data.lines import counted
from foci.errors import CheckpointError, ConfigError, DataError, TrainingError
from foci.tasks import TASKS
from foci.tasks.classify.task import Classify
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import Field, Shard, as_records, find, is_empty
from foci.tasks.frame.train import train
from foci.tasks.memorize.task import Memorize
from foci.tasks.tag.task import Tag
from foci.tasks.translate.task import Translate
from foci.training.run_folder import read_metrics

SILENT = {"log": lambda text: None}


def weights(run):
    return foci.load(run, checkpoint="last").model.state_dict()


def test_workers_change_nothing(tmp_path):
    """Also with dropout, and also when a run with workers is resumed."""
    settings = configs.put(
        Translate.Config.smallest, {"model.encoder.dropout": 0.3, "model.decoder.dropout": 0.3, "training.max_steps": 5}
    )
    train("translate", settings, out=tmp_path / "none", **SILENT)
    for name, workers, steps in (("two", 2, 5), ("parts", 2, 3)):
        changed = configs.put(settings, {"data.workers": workers, "training.max_steps": steps})
        train("translate", changed, out=tmp_path / name, **SILENT)
    train("translate", {"training": {"max_steps": 5}}, out=tmp_path / "parts", resume=True, **SILENT)
    expected = weights(tmp_path / "none")
    for name in ("two", "parts"):
        found = weights(tmp_path / name)
        assert all(torch.equal(expected[key], found[key]) for key in expected), name


def test_the_folder_is_checked_before_the_data_is_read(tmp_path, monkeypatch):
    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(Classify, "read", lambda self, log: pytest.fail("the data was read"))
    with pytest.raises(ConfigError, match="is not empty"):
        train("classify", Classify.Config.smallest, out=tmp_path)
    with pytest.raises(ConfigError, match="is a file, expected a folder"):
        train("classify", Classify.Config.smallest, out=tmp_path / "thesis.txt")


def test_too_little_memory_is_reported_before_a_folder_is_made(tmp_path, monkeypatch):
    def loss(self, model, batch):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(Memorize, "loss", loss)
    with pytest.raises(TrainingError, match=r"the longest batch, of tensors \(16, 5, 3\), .*does not fit in memory"):
        train("memorize", Memorize.Config.smallest, out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", TASKS)
def test_too_little_memory_names_settings_that_the_task_has(name, tmp_path, monkeypatch):
    def loss(self, model, batch):
        raise MemoryError("no memory")

    kind = find(name)
    monkeypatch.setattr(kind, "loss", loss)
    with pytest.raises(TrainingError, match="does not fit in memory") as caught:
        train(name, kind.Config.smallest, out=tmp_path / "run", **SILENT)
    named = re.findall(r"data\.(\w+)", str(caught.value))
    data = configs.configure(kind.Config, kind.Config.smallest, "test").data
    assert {*named} & {"batch_tokens", "batch_frames", "batch_size", "max_tokens"}
    assert all(hasattr(data, one) for one in named)


def test_the_trial_of_the_longest_batch_changes_nothing(tmp_path, monkeypatch):
    class Normalized(nn.Module):
        """With dropout and running statistics."""

        def __init__(self, model):
            super().__init__()
            self.model, self.norm, self.dropout = model, nn.BatchNorm1d(model.input_dim), nn.Dropout(0.5)

        def forward(self, inputs):
            return self.model(self.dropout(self.norm(inputs.transpose(1, 2)).transpose(1, 2)))

    build = Memorize.model
    monkeypatch.setattr(Memorize, "model", lambda self, assets: Normalized(build(self, assets)))
    train("memorize", Memorize.Config.smallest, out=tmp_path / "tried", **SILENT)
    monkeypatch.setattr("foci.tasks.frame.train._try_longest_batch", lambda *given: None)
    train("memorize", Memorize.Config.smallest, out=tmp_path / "plain", **SILENT)
    one, other = weights(tmp_path / "tried"), weights(tmp_path / "plain")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_longest_batch_is_tried_in_the_precision_of_the_training(tmp_path, monkeypatch):
    whole, seen = Memorize.loss, []

    def loss(self, model, batch):
        seen.append(torch.is_autocast_enabled("cpu"))
        return whole(self, model, batch)

    monkeypatch.setattr(Memorize, "loss", loss)
    for precision in ("bfloat16", "float32"):
        changes = {"training.precision": precision, "training.max_steps": 1}
        train("memorize", configs.put(Memorize.Config.smallest, changes), out=tmp_path / precision, **SILENT)
    assert seen == [True] * 3 + [False] * 3


def test_a_usual_warm_up_fits_into_the_steps_and_one_that_is_given_is_doubted(tmp_path):
    said = []
    tables = {**Classify.Config.smallest, "training": {"max_steps": 3, "eval_every": 3}}
    train("classify", tables, out=tmp_path / "fits", log=said.append)
    assert foci.load(tmp_path / "fits").config.training.warmup == 1
    assert "training.warmup = 1: a tenth of training.max_steps = 3, which is less than the usual warm-up of 50" in said
    train("classify", configs.put(tables, {"training.warmup": 5}), out=tmp_path / "given", log=said.append)
    assert foci.load(tmp_path / "given").config.training.warmup == 5
    assert any("the rate only reaches 60% of training.learning_rate" in text for text in said)


def test_an_average_without_an_interval_is_refused(tmp_path):
    tables = configs.put(Memorize.Config.smallest, {"training.average_last": 2})
    with pytest.raises(ConfigError, match="average_last is 2, but training.save_every is not set"):
        train("memorize", tables, out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


def test_the_summary_names_model_steps_and_time(tmp_path):
    said = []
    train("classify", Classify.Config.smallest, out=tmp_path / "run", log=said.append)
    (line,) = [text for text in said if "parameters" in text]
    assert line.startswith("HierarchicalClassifier with 32,162 parameters; at most 8 steps; ")
    assert "batches per epoch; up to about " in line


def test_a_failure_in_the_first_step_leaves_no_folder(tmp_path, monkeypatch):
    whole = Memorize.loss
    calls = []

    def loss(self, model, batch):
        calls.append(1)
        found = whole(self, model, batch)
        return type(found)(found.total * (float("nan") if len(calls) > 2 else 1.0), found.count)

    monkeypatch.setattr(Memorize, "loss", loss)
    with pytest.raises(TrainingError, match="step 1: the loss is nan"):
        train("memorize", Memorize.Config.smallest, out=tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


def test_a_run_may_be_killed_before_each_of_its_renames(tmp_path, monkeypatch):
    """What is there before a rename is what a kill leaves: with a config.json it is resumed, else begun again."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    kept = []

    def copying(rename):
        def call(*paths):
            kept.append(tmp_path / str(len(kept)))
            shutil.copytree(tmp_path / "whole", kept[-1])
            return rename(*paths)

        return call

    settings = configs.put(Memorize.Config.smallest, {"training.max_steps": 2, "training.save_every": 1})
    settings = configs.put(settings, {"training.average_last": 2})
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", copying(os.rename))
        patch.setattr(os, "replace", copying(os.replace))
        train("memorize", settings, out=tmp_path / "whole", **SILENT)
    expected = weights(tmp_path / "whole")
    resumable = [(out / "config.json").exists() for out in kept]
    assert resumable == sorted(resumable)
    assert {False, True} == {*resumable}
    for out in kept:
        if (out / "config.json").exists():
            train("memorize", {}, out=out, resume=True, **SILENT)
        else:
            with pytest.raises(CheckpointError, match="nothing to resume. Start it without resume"):
                train("memorize", {}, out=out, resume=True, **SILENT)
            train("memorize", settings, out=out, **SILENT)
        found = weights(out)
        assert all(torch.equal(expected[name], found[name]) for name in expected), out
        assert names(out) == names(tmp_path / "whole"), out


def names(run):
    return sorted(path.relative_to(run).as_posix() for path in run.rglob("*"))


def test_names_that_are_not_utf8(tmp_path, monkeypatch):
    """A run cannot lie under one, since it could not be loaded; its data can."""
    folder = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(ConfigError, match="has a name that is not UTF-8. Choose another folder"):
        train("memorize", Memorize.Config.smallest, out=folder / "run", **SILENT)
    assert not folder.exists()
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(f'{{"text": "{n} b", "label": "{"xy"[n % 2]}"}}\n' for n in range(60)))
    settings = {"data": {"path": str(folder / "a.jsonl")}, "training": {"max_steps": 1}}
    train("classify", settings, out=tmp_path / "run", **SILENT)
    assert foci.load(tmp_path / "run").config.data.path == str(folder / "a.jsonl")
    train("classify", {"training": {"max_steps": 2}}, out=tmp_path / "run", resume=True, **SILENT)
    monkeypatch.chdir(folder)
    train("memorize", Memorize.Config.smallest, out="run", **SILENT)
    assert foci.load("run").held_out()


def test_what_a_killed_start_has_left_is_removed_by_the_next(tmp_path, monkeypatch):
    """Also where the next one is of another task; what somebody else has put there is not overwritten."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    replace = os.replace

    def killing(old, new):
        if new.name == "config.json":
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(old, new)

    process = os.fork()
    if process == 0:
        try:
            os.replace = killing
            train("tag", Tag.Config.smallest, out=tmp_path / "run", **SILENT)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert len(names(tmp_path / "run")) > 3
    assert not (tmp_path / "run" / "config.json").exists()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    settings = configs.put(Memorize.Config.smallest, {"training.max_steps": 1})
    with pytest.raises(ConfigError, match=r"is not empty \(thesis.txt\)"):
        train("memorize", settings, out=tmp_path / "run", **SILENT)
    (tmp_path / "run" / "thesis.txt").unlink()
    train("memorize", settings, out=tmp_path / "run", **SILENT)
    train("memorize", settings, out=tmp_path / "other", **SILENT)
    assert names(tmp_path / "run") == names(tmp_path / "other")


def full_above(size):
    """Let this process write no more than this many bytes into a file: the real write fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize("size", [0, 100, 2000, 20_000])
def test_a_disk_that_is_full_from_the_start_leaves_no_folder(tmp_path, size):
    """Unless its metrics show steps that were made; then it is resumed."""
    settings = configs.put(Tag.Config.smallest, {"training.max_steps": 2, "training.metrics_every": 2})
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    full_above(size)
    try:
        with pytest.raises((CheckpointError, TrainingError), match=r"cannot be written \(.*Free space on the disk"):
            train("tag", settings, out=tmp_path / "run", **SILENT)
    finally:
        full_above(unlimited)
    if size < 20_000:
        assert list(tmp_path.iterdir()) == []
    else:
        train("tag", {}, out=tmp_path / "run", resume=True, **SILENT)


@pytest.mark.parametrize("harm", ["moved", "removed", "replaced", "emptied"])
def test_a_run_whose_folder_disappears_ends_with_an_error(tmp_path, monkeypatch, harm):
    out = tmp_path / "run"
    loss = Memorize.loss

    def harming(self, model, batch):
        if (out / "metrics.jsonl").exists():  # the trial of the longest batch is over
            monkeypatch.setattr(Memorize, "loss", loss)
            if harm == "emptied":
                (out / "config.json").unlink()
            else:
                out.rename(tmp_path / "elsewhere")
            if harm == "removed":
                shutil.rmtree(tmp_path / "elsewhere")
            if harm == "replaced":
                out.mkdir()
                (out / "thesis.txt").write_text("years of work")
        return loss(self, model, batch)

    monkeypatch.setattr(Memorize, "loss", harming)
    settings = configs.put(Memorize.Config.smallest, {"training.max_steps": 3})
    with pytest.raises(TrainingError, match="run: was moved, removed or emptied during the training"):
        train("memorize", settings, out=out, **SILENT)
    assert not (out / "checkpoints").exists() or harm == "emptied"
    if harm == "replaced":
        assert names(out) == ["thesis.txt"]
    if harm == "moved":
        train("memorize", {}, out=tmp_path / "elsewhere", resume=True, **SILENT)


def test_the_longest_batch_is_the_one_with_most_tokens():
    task = Classify(configs.configure(Classify.Config, Classify.Config.smallest, "test"))
    splits = task.read(lambda text: None)
    batches = task.batches(splits, task.assets(splits, lambda text: None), Shard(), lambda text: None)
    largest = batches.largest()
    assert largest[0].numel() == max(batch[0].numel() for batch in batches.epoch(0))


def test_reading_is_logged_every_few_seconds(monkeypatch):
    clock = [0.0]

    def now():
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr(time, "monotonic", now)
    said = []
    assert sum(1 for _ in counted(range(10_000), "pairs", said.append, seconds=3.0)) == 10_000
    assert said[0] == "read 3,000 pairs"
    assert len(said) == 3


def test_paths_in_a_run_are_absolute(tmp_path, monkeypatch):
    lines = [f"word{number % 7} day {number}\t{'ab'[number % 2]}" for number in range(60)]
    (tmp_path / "a.tsv").write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    settings = {**Classify.Config.smallest, "data": {"path": "a.tsv"}}
    train("classify", settings, out="run", **SILENT)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert foci.load("../run").evaluate().metrics["documents"] == 6
    assert train("classify", {"training": {"max_steps": 9}}, out="../run", resume=True, **SILENT).step == 9
    monkeypatch.setenv("WHERE", str(tmp_path))
    again = configs.configure(Classify.Config, {"data": {"path": "$WHERE/a.tsv"}}, "test")
    assert again.data.path == str(tmp_path / "a.tsv")


def test_changed_data_is_refused_on_resuming_and_nothing_is_written(tmp_path):
    def write(count):
        lines = [f"word{number % 7} day {number}\t{'ab'[number % 2]}" for number in range(count)]
        (tmp_path / "a.tsv").write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")

    write(60)
    settings = {**Classify.Config.smallest, "data": {"path": str(tmp_path / "a.tsv")}}
    out = tmp_path / "run"
    train("classify", settings, out=out, **SILENT)
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    write(90)
    with pytest.raises((ConfigError, DataError), match="another stream"):
        train("classify", {"training": {"max_steps": 9}}, out=out, resume=True, **SILENT)
    assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_the_direction_of_the_chosen_figure_is_known(tmp_path):
    """Accuracy is better when it is higher; selection by the loss must not take the worst one."""
    chosen = configs.put(Classify.Config.smallest, {"training.metric_for_best_model": "loss"})
    summary = train("classify", chosen, out=tmp_path / "loss", **SILENT)
    assert foci.load(tmp_path / "loss").config.training.greater_is_better is False
    assert summary.best_value == min(line["loss"] for line in validations(tmp_path / "loss"))
    accuracy = configs.put(chosen, {"training.metric_for_best_model": "accuracy"})
    train("classify", accuracy, out=tmp_path / "accuracy", **SILENT)
    assert foci.load(tmp_path / "accuracy").config.training.greater_is_better is True
    wrong = configs.put(chosen, {"training.greater_is_better": True})
    with pytest.raises(ConfigError, match="greater_is_better is true, but loss is better when it is lower"):
        train("classify", wrong, out=tmp_path / "wrong", **SILENT)
    train(
        "classify",
        {"training": {"metric_for_best_model": "macro_f1", "max_steps": 9}},
        out=tmp_path / "loss",
        resume=True,
        **SILENT,
    )
    assert foci.load(tmp_path / "loss").config.training.greater_is_better is True


def validations(run):
    return [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "valid"]


def test_a_task_may_name_further_settings_that_change_on_resuming(tmp_path, monkeypatch):
    train("classify", Classify.Config.smallest, out=tmp_path / "run", **SILENT)
    change = {"data": {"max_words": 7}, "training": {"max_steps": 9}}
    with pytest.raises(ConfigError, match="data.max_words is 7, but the run was begun with 1000"):
        train("classify", change, out=tmp_path / "run", resume=True, **SILENT)
    monkeypatch.setattr(Classify, "resumable", ("data.max_words",))
    with pytest.raises(ConfigError, match="another stream: its tokens"):  # allowed, but the data is now shorter
        train("classify", change, out=tmp_path / "run", resume=True, **SILENT)


def test_optional_fields_may_be_empty_and_lists_are_values():
    fields = (Field("prompt", "document", required=False), Field("tags", "list"))
    assert as_records("predict", [{"tags": ["a"]}], fields) == [{"prompt": "", "tags": ["a"]}]
    assert not is_empty({"prompt": "", "tags": ["a"]}, fields)
    with pytest.raises(ConfigError, match="'tags' of entry 0 is a str, expected a list"):
        as_records("predict", [{"tags": "a"}], fields)
    with pytest.raises(ConfigError, match="entry 0 has no 'tags', expected prompt, tags; it has prompt"):
        as_records("predict", [{"prompt": "x"}], fields)


def test_settings_of_another_task_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="task is 'translate', expected 'classify'"):
        train("classify", {"task": "translate"}, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="unknown task 'clasify'. Did you mean 'classify'"):
        train("clasify", {}, out=tmp_path / "run")


def test_predictions_say_that_the_weights_are_a_moving_average(tmp_path):
    tables = configs.put(Memorize.Config.smallest, {"training.moving_average": 0.5})
    foci.train("memorize", tables, out=tmp_path / "run", log=lambda text: None)
    assert ", moving average of the weights (0.5), the " in foci.load(tmp_path / "run").checkpoint
