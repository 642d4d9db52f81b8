"""Real speech, where it lies beside the checkout or in FOCI_DATA: counted as its own description counts it."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from real_data import DATA, real

import foci
from foci.data.audio.features import read_features
from foci.data.audio.files import read_sound
from foci.tasks.frame.task import find
from foci.tasks.transcribe.reader import read_manifest

pytest.importorskip("soundfile")
ROOT = Path(__file__).parents[1]


@pytest.fixture
def speech(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("FOCI_DATA", str(DATA))
    from recipes import speech

    return speech


@pytest.mark.slow
def test_an4(speech, tmp_path):
    real("an4")
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
    real("yesno")
    speech.prepare_yesno(tmp_path)
    parts = {part: read_manifest(tmp_path / "yesno" / f"{part}.jsonl") for part in ("train", "valid", "test")}
    assert [len(some) for some in parts.values()] == [25 + 400, 5, 30]
    joined = parts["train"][25:]
    assert {len(one.text.split()) for one in joined} == set(range(1, 9))
    seconds = [len(read_sound(one.audio).samples) / 8000 / len(one.text.split()) for one in joined[:40]]
    assert min(seconds) > 0.4  # a word, and never more than a word with the silence at either end of a recording
    assert max(seconds) < 3
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
    for text, samples, ends in speech._strings(recordings, ["a"], range(1, 3), 5, (2, 4), random.Random(1)):
        words = text.split()
        assert len(ends) == len(words)
        assert ends == sorted(ends)
        assert ends[-1] == pytest.approx(len(samples) / 8000, abs=1e-3)
        assert 2 <= len(words) <= 4
        said = [int(value) for value in samples[np.flatnonzero(np.diff(samples, prepend=0) > 0)]]
        assert [speech.DIGITS[value % 100] for value in said] == words
        assert {value // 100 for value in said} <= {1, 2}


def test_a_recording_is_cut_between_its_words(speech):
    """Six tones of different length with pauses of noise; and one of them too few."""
    chance = np.random.default_rng(1)
    pieces, middles = [0.001 * chance.normal(size=2400)], []
    for number in range(6):
        pieces.append(np.sin(np.arange(1600 + 400 * number) * 0.3))
        start = sum(map(len, pieces))
        pieces.append(0.001 * chance.normal(size=2400 + 300 * number))
        middles.append(start + len(pieces[-1]) / 2)
    sound = speech.Sound(np.concatenate(pieces).astype(np.float32), 8000)
    found = speech._cut_at_pauses(sound, 6)
    assert sum(map(len, found)) == len(sound.samples)
    assert np.cumsum([len(one) for one in found])[:-1] == pytest.approx(middles[:-1], abs=600)
    assert speech._cut_at_pauses(sound, 7) == []


def test_counting_does_not_tell_the_end_of_a_string(speech):
    """Of the strings that have reached any length but the longest, as many go on."""
    chance = random.Random(1)
    lengths = np.array([speech._forgetful(chance) for _ in range(20_000)])
    goes_on = [(lengths > length).sum() / (lengths >= length).sum() for length in range(1, 5)]
    assert goes_on == pytest.approx([2 / 3] * 4, abs=0.05)
    assert lengths.max() == 8


def test_longer_strings_are_measured(speech, tmp_path):
    from recipes.speech_tables import longer_table, measure_longer

    texts = ["E T", "T E", "T T", "E E"] * 3
    for part in (f"times{factor}" for factor in speech.STRINGS):
        lines = [{"audio": f"morse/{number}:{text}", "text": text} for number, text in enumerate(texts)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    ends = {f"times{factor}": [[0.5, 60.0]] * len(texts) for factor in speech.STRINGS}
    (tmp_path / speech.TIMES).write_text(json.dumps(ends), encoding="utf-8")
    paths = dict.fromkeys(("path", "valid", "test"), str(tmp_path / "times1.jsonl"))
    tables = {**find("transcribe").Config.smallest, "data": paths, "tokenizer": {"kind": "words"}}
    tables["training"] = {**tables["training"], "max_steps": 2, "eval_every": 2}
    foci.train("transcribe", tables, out=tmp_path / "run", log=lambda text: None)
    run = foci.load(tmp_path / "run")
    row = measure_longer(run, run.evaluate(), None)
    factors = {*map(str, speech.STRINGS)}
    assert {*row["wer_by_length"]} == {*row["found_by_length"]} == factors
    assert all(0 <= share <= 1 for share in row["found_by_length"].values())
    assert "| a | " in longer_table([{**row, "name": "a", "minutes": 1.0, "seed": 0}])
