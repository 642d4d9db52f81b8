"""Real speech, where it lies beside the checkout or in FOCI_DATA: counted as its own description counts it."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

from foci.data.audio import read_sound
from foci.data.audio_features import read_features
from foci.data.audio_manifest import read_manifest

pytest.importorskip("soundfile")
ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FOCI_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture
def speech(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("FOCI_DATA", str(DATA))
    from recipes import speech

    return speech


def needs(name):
    if not (DATA / name).is_dir():
        pytest.skip(f"{DATA / name} is not there; set FOCI_DATA")


@pytest.mark.slow
def test_an4(speech, tmp_path):
    needs("an4")
    speech.prepare_an4(tmp_path)
    parts = {part: read_manifest(tmp_path / "an4" / f"{part}.jsonl") for part in ("train", "valid", "test")}
    assert len(parts["train"]) + len(parts["valid"]) == 948
    assert len(parts["test"]) == 130
    assert sum(len(one.text.split()) for one in parts["test"]) == 773
    speakers = {part: {Path(one.audio).stem.split("-")[1] for one in some} for part, some in parts.items()}
    assert not speakers["train"] & speakers["valid"]
    assert not (speakers["train"] | speakers["valid"]) & speakers["test"]
    assert {letter for one in parts["train"] for letter in one.text} <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    frames = sum(len(read_features(one.audio)) for some in parts.values() for one in some)
    assert frames == 289_252


def test_yesno(speech, tmp_path):
    needs("yesno")
    speech.prepare_yesno(tmp_path)
    parts = {part: read_manifest(tmp_path / "yesno" / f"{part}.jsonl") for part in ("train", "valid", "test")}
    assert [len(some) for some in parts.values()] == [25, 5, 30]
    one = parts["test"][0]
    signs = ["1" if word == "yes" else "0" for word in one.text.split()]
    assert "_".join(signs) == Path(one.audio).stem
    assert read_sound(one.audio).rate == 8000


def test_strings_are_joined_from_the_recordings_of_one_speaker(speech):
    recordings = {
        (speaker, digit): [np.full(10, 100 * place + digit, np.float32) for place in range(3)]
        for speaker in ("a", "b")
        for digit in range(10)
    }
    for text, samples in speech._strings(recordings, ["a"], range(1, 3), 5, (2, 4), random.Random(1)):
        words = text.split()
        assert 2 <= len(words) <= 4
        said = [int(value) for value in samples[np.flatnonzero(np.diff(samples, prepend=0) > 0)]]
        assert [speech.DIGITS[value % 100] for value in said] == words
        assert {value // 100 for value in said} <= {1, 2}
