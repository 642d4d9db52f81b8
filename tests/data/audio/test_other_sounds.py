"""Sounds that are made at random are sounds, and differ."""

import numpy as np

from foci.data.audio.other_sounds import other_sounds


def test_sounds_are_finite_audible_and_different():
    sounds = list(other_sounds(60, 8000, np.random.default_rng(3)))
    for one in sounds:
        assert one.dtype == np.float32
        assert 0.4 * 8000 - 1 <= len(one) <= 5 * 8000
        assert abs(float(np.abs(one).max()) - 0.3) < 1e-4
    assert len({one.tobytes() for one in sounds}) == 60
    again = list(other_sounds(60, 8000, np.random.default_rng(3)))
    assert all(np.array_equal(one, other) for one, other in zip(sounds, again, strict=True))


def test_there_are_tones_and_noise_among_them():
    """Peaks in the spectrum of the loudest tenth of a second tell a tone from noise."""
    peaks = []
    for one in other_sounds(60, 8000, np.random.default_rng(4)):
        pieces = one[: len(one) // 800 * 800].reshape(-1, 800)
        loudest = pieces[np.square(pieces).sum(axis=1).argmax()]
        spectrum = np.square(np.abs(np.fft.rfft(loudest * np.hanning(800))))
        peaks.append(float(np.sort(spectrum)[-8:].sum() / spectrum.sum()))
    assert sum(one > 0.7 for one in peaks) >= 10
    assert sum(one < 0.3 for one in peaks) >= 5
