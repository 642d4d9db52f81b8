"""Assets of a run: what is written is read again, and every damage is an error that names the file."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from foci.data.vocabulary import Vocabulary
from foci.errors import CheckpointError, DataError
from foci.tasks.frame.assets import Assets, Labels


class Sizes(NamedTuple):
    mean: tuple[float, ...]
    longest: int


@dataclass(frozen=True)
class Example(Assets):
    vocabulary: Vocabulary
    labels: Labels
    sizes: Sizes
    encoder: Sizes | None

    def check(self):
        if self.sizes.longest < len(self.labels):
            raise ValueError("too short for the labels")


MADE = Example(Vocabulary(("a", "新"), 3), ("x", "ü"), Sizes((0.1, 1e-300), 7), None)


def test_what_is_written_is_read():
    files = MADE.to_files()
    assert list(files) == ["vocabulary.json", "labels.json", "sizes.json", "encoder.json"]
    assert files["labels.json"] == '["x","ü"]'
    assert files["vocabulary.json"] == MADE.vocabulary.to_text()
    assert Example.from_files(files.__getitem__) == MADE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vocabulary.json", "[]"),
        ("labels.json", '["x"]'),
        ("labels.json", '["x", "x"]'),
        ("labels.json", '["x", 5]'),
        ("labels.json", "["),
        ("labels.json", "[" * 100_000),
        ("sizes.json", "{}"),
        ("sizes.json", '{"mean": [1, "a"], "longest": 9}'),
        ("encoder.json", ""),
    ],
)
def test_damaged_files_are_named(name, text):
    files = MADE.to_files() | {name: text}
    with pytest.raises((CheckpointError, DataError), match=f"^{name}: is not "):
        Example.from_files(files.__getitem__)


def test_files_of_two_runs():
    files = MADE.to_files() | {"sizes.json": "[[1.0], 1]"}
    with pytest.raises(CheckpointError, match=r"labels.json, .*do not belong to one run \(too short for the labels\)"):
        Example.from_files(files.__getitem__)
