"""Morse code as sound: deterministic, and readable by its definition."""

import numpy as np
import pytest

from foci.data.builtin import morse
from foci.errors import ConfigError, DataError


def read_by_ear(sound, key):
    """Decode clean sound by the durations of its tones and gaps."""
    window = int(0.01 * sound.rate)
    power = np.sqrt(np.convolve(sound.samples**2, np.ones(window) / window, mode="same"))
    on = power > 0.2
    edges = np.flatnonzero(np.diff(on.astype(int))) + 1
    lengths = np.diff(edges) / sound.rate / (1.2 / key.speed)
    letters, signs = [], ""
    back = {code: letter for letter, code in morse.CODE.items()}
    for number, length in enumerate(lengths):
        if number % 2 == 0:
            signs += "." if length < 2 else "-"
        elif length > 2:
            letters.append(back[signs])
            signs = ""
            if length > 5:
                letters.append(" ")
    return "".join([*letters, back[signs]])


@pytest.mark.parametrize("message", ["CQ DE FOCI", "73 HW?", "PARIS 0123456789/="])
def test_clean_sound_is_the_message(message):
    key = morse.Keying(speed=20.0, pitch=600.0, noise=0.0, fading=(0.0, 0.3), jitter=0.05)
    sound = morse.render(message, key)
    assert read_by_ear(sound, key) == message
    spectrum = np.abs(np.fft.rfft(sound.samples))
    assert abs(np.argmax(spectrum) * sound.rate / len(sound.samples) - 600) < 2


def test_the_word_paris_lasts_fifty_dots():
    key = morse.Keying(speed=24.0, pitch=500.0, noise=0.0, fading=(0.0, 0.3), jitter=0.0)
    one, two = (morse.render(text, key, seed=3) for text in ("PARIS", "PARIS PARIS"))
    edges = [np.flatnonzero(np.abs(sound.samples) > 0.1)[[0, -1]] / sound.rate for sound in (one, two)]
    assert np.diff(edges[1])[0] - np.diff(edges[0])[0] == pytest.approx(50 * 1.2 / 24, abs=0.01)


def test_names_are_deterministic_and_conditions_vary():
    assert np.array_equal(morse.sound_of("morse:SOS").samples, morse.sound_of("morse:sos").samples)
    assert not np.array_equal(morse.sound_of("morse:SOS").samples, morse.sound_of("morse/5:SOS").samples)
    keys = [morse.keying(seed, "SOS") for seed in range(50)]
    for name, low, high in (("speed", 20, 32), ("pitch", 400, 1000), ("noise", 0.02, 0.3), ("jitter", 0, 0.1)):
        values = [getattr(key, name) for key in keys]
        assert low <= min(values) < low + 0.3 * (high - low)
        assert high - 0.3 * (high - low) < max(values) <= high
    noise = morse.sound_of("morse/1:EE").samples[:400].std() * 2
    assert noise == pytest.approx(morse.keying(1, "EE").noise, rel=0.2)


def test_what_has_no_code_is_left_out():
    assert morse.message_of("morse:S\x1bO é!S!") == (0, "SO S", "\x1bÉ!")
    same = (morse.sound_of(f"morse:{text}").samples for text in ("S\x1bO é!S!", "SO S"))
    assert np.array_equal(*same)
    with pytest.raises(DataError, match="0 characters of the message have a code"):
        morse.sound_of("morse:是")
    with pytest.raises(DataError):
        morse.sound_of("morse:" + "E" * 1001)
    with pytest.raises(ConfigError):
        morse.sound_of("SOS")


def test_splits_are_disjoint():
    found = {split: {one.text for one in morse.morse_messages(split, 150)} for split in morse.SPLITS}
    assert all(len(texts) == 150 for texts in found.values())
    assert not found["train"] & found["valid"]
    assert not found["train"] & found["test"]
    assert not found["valid"] & {one.text for one in morse.morse_messages("test", 150, seed=4)}
    assert morse.morse_messages("train", 5, seed=2) == morse.morse_messages("train", 5, seed=2)
    assert morse.morse_messages("train", 5, seed=2)[0].audio.startswith("morse/2:")
    assert all(" " not in one.text for one in morse.morse_messages("test", 50, most_words=1))
