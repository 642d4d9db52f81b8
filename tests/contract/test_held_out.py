"""Held out means held out, for every task that reads files: wherever they lie, in whatever order, and with others."""

import copy
import json
import random
import shutil
import zlib
from pathlib import Path

import pytest
from PIL import Image

import foci
import foci_cli
from foci.data.images.drawn import PREFIX, draw, find_scene
from foci.errors import ConfigError, FociError
from foci.settings import describe
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find

FILES = [name for name in TASKS if "data" in find(name).Config.flags]
COUNT = 120
"""Examples of a file: enough that a share of 0.1 holds some out by its threshold alone."""


def silent(text):
    pass


def as_record(example):
    return dict(example) if isinstance(example, dict) else example._asdict()


def as_file(task, name, value, folder):
    """Write a drawn image or a message in Morse code to a file; return its place beside the folder."""
    if value.startswith(PREFIX):
        path = folder / "drawn.png"
        Image.fromarray(draw(find_scene(value), 24)).save(path)
    else:
        (made,) = task.to_files([{name: value}], folder)
        path = Path(made[name])
    return str(path.relative_to(folder.parent))


@pytest.fixture(scope="module", params=FILES)
def data(request, tmp_path_factory):
    """The name of a task, a folder with images and recordings, and the records of a file in it."""
    kind = find(request.param)
    if kind.name == "generate":  # its built-in chapters are fewer, and stand in each other
        chance = random.Random(1)
        texts = [" ".join(str(chance.randrange(10**6)) for _ in range(90)) for _ in range(COUNT)]
        return "generate", tmp_path_factory.mktemp("generate"), [{"text": text} for text in texts]
    folder = tmp_path_factory.mktemp(request.param) / "data"
    folder.mkdir()
    tables = configs.put(dict(kind.Config.smallest), {})
    if "builtin" in tables["data"]:
        tables["data"]["builtin"] = COUNT
    task = kind(configs.configure(kind.Config, tables, "test"))
    names = [field.name for field in (*kind.inputs, *kind.targets)]
    files = [field.name for field in kind.inputs if field.kind in ("image", "audio")]
    records = []
    for number, example in enumerate(list(task.read(silent).train)[:COUNT]):
        record = {name: as_record(example)[name] for name in names}
        for name in files:
            (folder / str(number)).mkdir()
            record[name] = as_file(task, name, record[name], folder / str(number))
        records.append(record)
    assert len(records) == COUNT
    return request.param, folder, records


def write(folder, records, name="examples.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def settings(kind, path, **changes):
    tables = copy.deepcopy(dict(kind.Config.smallest))
    kept = {key: value for key, value in tables["data"].items() if key.startswith(("max_", "batch_", "context"))}
    shares = {"valid_share": 0.1, "test_share": 0.2}
    shares = {key: share for key, share in shares.items() if f"data.{key.removesuffix('_share')}" not in changes}
    return configs.put({**tables, "data": {**kept, **shares, "path": str(path)}}, changes)


def parts_of(name, path, log=silent, **changes):
    """The part of each example by what it asks; files by their places in the folder."""
    kind = find(name)
    splits = kind(configs.configure(kind.Config, settings(kind, path, **changes), "test")).read(log)
    found = {}
    for part, examples in zip(("train", "valid", "test"), splits):
        for example in examples:
            record = as_record(example)
            asked = [str(record[field.name]).removeprefix(f"{path.parent}/") for field in kind.inputs]
            found[tuple(asked)] = part
    return found


def train(name, out, tables):
    foci.train(name, configs.put(tables, {"training.max_steps": 2, "training.eval_every": 2}), out=out, log=silent)
    return foci.load(out)


def test_evaluation_says_what_was_trained_on(data, tmp_path):
    """A copy of the training file as the test file; and a file of which the run has seen a part."""
    name, folder, records = data
    kind, some = find(name), records[:40]
    path = write(folder, some)
    copied = write(folder, some, "copy.jsonl")
    said = []
    tables = settings(kind, path, **{"data.test": str(copied), "training.max_steps": 2})
    foci.train(name, tables, out=tmp_path / "copied", log=said.append)
    run = foci.load(tmp_path / "copied")
    splits = run.task.read(silent)
    asked = [[key for one in part for key in run.task.contents(one)] for part in splits]
    train, valid, test = map(set, asked)
    shared = f"{len(test & train)} of {len(test)} different examples to evaluate are also among those to train on"
    assert any(shared in text for text in said)
    trained, chose = (sum(key in part for key in asked[2]) for part in (train, valid))
    assert 0 < trained < len(asked[2])
    counted = f"of {len(asked[2])} {run.task.counted}"
    for evaluation in (run.evaluate(), run.evaluate(run.read(str(copied)))):
        assert f"{trained} {counted} were trained on" in evaluation.notes["trained_on"]
        assert f"{chose} {counted} chose the checkpoint" in evaluation.notes["chose_checkpoint"]
        assert evaluation.notes["checkpoint"].startswith(("step 2, the best by validation", "averaged"))


def test_evaluation_says_that_nothing_is_left_to_evaluate_on_and_that_the_data_changed(data, tmp_path, capsys):
    name, folder, records = data
    kind, some = find(name), records[:40]
    path = write(folder, some)
    run = train(name, tmp_path / "none", settings(kind, path, **{"data.test_share": 0}))
    assert run.held_out().part == "valid"
    assert "these examples chose the checkpoint" in run.evaluate().notes["chose_checkpoint"]
    assert foci_cli.main(["evaluate", str(tmp_path / "none")]) == 0
    printed = capsys.readouterr()
    assert "examples that chose the checkpoint; weights: " in printed.err
    assert "chose_checkpoint" in printed.out
    run = train(name, tmp_path / "run", settings(kind, path))
    assert run.held_out().part == "test"
    assert not {*run.evaluate().notes} & {"data_changed", "trained_on", "chose_checkpoint"}
    held = {tuple(run.task.contents(one)) for one in run.held_out()}
    write(folder, records[:20] + records[40:])
    now = run.held_out()
    assert f"of {len(now)} held-out examples" in now.change
    assert run.evaluate().notes["data_changed"] == now.change
    assert "trained_on" not in run.evaluate().notes
    assert {tuple(run.task.contents(one)) for one in now} != held


def test_a_part_depends_on_the_example_alone(data, tmp_path):
    name, folder, records = data
    before = parts_of(name, write(folder, records))
    assert {*before.values()} == {"train", "valid", "test"}
    shuffled = random.Random(1).sample(records, len(records))
    assert parts_of(name, write(folder, shuffled)) == before, "the order of the examples"
    path = write(folder, records)
    assert parts_of(name, path, **{"training.seed": 7}) == before, "the seed of the training"
    shutil.copytree(folder, tmp_path / "moved" / "elsewhere")
    assert parts_of(name, tmp_path / "moved" / "elsewhere" / path.name) == before, "the folder of the data"
    fewer = parts_of(name, write(folder, records[: COUNT * 2 // 3]))
    assert fewer.items() <= before.items(), "what else is in the file"


def test_a_group_is_in_one_part(data):
    name, folder, records = data
    if name == "generate":
        pytest.skip("its documents have no other fields")
    first, said = find(name).inputs[0].name, []

    def speaker_of(value):
        content = (folder / value).read_bytes() if (folder / value[:99]).is_file() else value.encode()
        return f"speaker {zlib.crc32(content) % 25}"

    path = write(folder, [{**one, "speaker": speaker_of(one[first])} for one in records], "groups.jsonl")
    found = parts_of(name, path, **{"data.group": "speaker"}, log=said.append)
    assert any("groups (data.group = 'speaker'), each of which is in one part" in text for text in said)
    assert {*found.values()} == {"train", "valid", "test"}
    parts = {}
    for asked, part in found.items():
        parts.setdefault(speaker_of(asked[0]), set()).add(part)
    assert all(len(some) == 1 for some in parts.values())
    assert parts_of(name, path) != found
    with pytest.raises(FociError, match="speeker"):
        parts_of(name, path, **{"data.group": "speeker"})
    with pytest.raises(ConfigError, match="group is set, but nothing is split"):
        parts_of(name, path, **{"data.group": "speaker", "data.valid": str(path), "data.test": str(path)})


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_no_built_in_example_is_in_two_parts(task):
    """Case, punctuation and spaces aside; of the demo, in each of its languages."""
    kind = find(task)
    demo = configs.copied(kind.Config.demo)
    has_languages = any(one.path == "data.language" for one in describe(configs.configure(kind.Config, demo, "test")))
    for tables in [configs.put(demo, {"data.language": one}) for one in ("en", "zh")] if has_languages else [demo]:
        task = kind(configs.configure(kind.Config, tables, "test"))
        train, valid, test = ({key for one in part for key in task.contents(one)} for part in task.read(silent))
        assert not train & valid | train & test | valid & test
        assert test
