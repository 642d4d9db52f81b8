"""Held out means held out, for every task that reads files: wherever they lie, in whatever order, and with others."""

import copy
import json
import random
import shutil
from pathlib import Path

import pytest
from PIL import Image

from foci.data.images.drawn import PREFIX, draw, find_scene
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find

FILES = [name for name in TASKS if "data" in find(name).Config.flags and name != "generate"]
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
    return configs.put({**tables, "data": {**kept, **shares, "path": str(path)}}, changes)


def parts_of(name, path, **changes):
    """The part of each example by what it asks; files by their places in the folder."""
    kind = find(name)
    splits = kind(configs.configure(kind.Config, settings(kind, path, **changes), "test")).read(silent)
    found = {}
    for part, examples in zip(("train", "valid", "test"), splits):
        for example in examples:
            record = as_record(example)
            asked = [str(record[field.name]).removeprefix(f"{path.parent}/") for field in kind.inputs]
            found[tuple(asked)] = part
    return found


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
