"""Sounds that are no speech, made at random: beeps, melodies, chords, drums, clicks, sweeps and noise.

Each is a sum of trains of events over noise. An event is a note with its harmonics, a chord, a glide or a burst of
noise, which lasts or fades; a train repeats such events at a regular pace, with rests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from numpy.random import Generator

_SECONDS = (0.4, 5.0)
_PERIODS = (0.08, 1.5)
"""Seconds from one event to the next."""
_RAMP = 0.003
"""Seconds in which an event begins and ends."""


def other_sounds(count: int, rate: int, chance: Generator) -> Iterator[Float[ndarray, " _"]]:
    """Yield sounds that are no speech, from −1 to 1.

    Example:
        >>> [sound] = other_sounds(1, 8000, np.random.default_rng(0))
        >>> 0.4 <= len(sound) / 8000 <= 5, round(float(abs(sound).max()), 3)
        (True, 0.3)
    """
    for _ in range(count):
        seconds = chance.uniform(*_SECONDS)
        sound = 10 ** chance.uniform(-4, -1) * chance.standard_normal(int(seconds * rate))
        for _ in range(chance.integers(1, 4)):
            sound += 10 ** chance.uniform(-1, 0) * _train(seconds, rate, chance)
        yield (0.3 * sound / np.abs(sound).max()).astype(np.float32)


def _train(seconds: float, rate: int, chance: Generator) -> Float[ndarray, " _"]:
    """Return events that follow one another at a regular pace; in one of ten trains there is only one."""
    sound = np.zeros(int(seconds * rate))
    period = seconds if chance.random() < 0.1 else min(seconds, _between(*_PERIODS, chance))
    last = period * chance.uniform(0.1, 1.3)
    fading = 0.0 if chance.random() < 0.4 else _between(1.0, 40.0, chance)
    is_noise, smoothing = chance.random() < 0.3, chance.uniform(0, 0.98) * chance.integers(2)
    notes = _between(60.0, 0.3 * rate, chance) * 2 ** (chance.choice(25, size=chance.integers(1, 8)) / 12)
    voices = chance.integers(1, 4)
    harmonics = chance.uniform(0.2, 0.9) ** np.arange(chance.integers(1, 9))
    glide = chance.uniform(-1, 1) if chance.random() < 0.25 else 0.0  # in octaves
    rests = chance.uniform(0, 0.4)
    for number in range(math.ceil(seconds / period)):
        begin = int(number * period * rate)
        times = np.arange(min(int(last * rate), len(sound) - begin)) / rate
        if len(times) == 0 or (number and chance.random() < rests):
            continue
        if is_noise:
            event = np.convolve(chance.standard_normal(len(times) + 63), smoothing ** np.arange(64), mode="valid")
        else:
            bend = 2 ** (glide * times / last)
            event = sum(
                (_note(pitch * bend, harmonics, rate) for pitch in chance.choice(notes, size=voices)),
                np.zeros(len(times)),
            )
        ramp = np.minimum(np.minimum(times, times[::-1]) / _RAMP, 1.0)
        sound[begin : begin + len(times)] += event * ramp * np.exp(-fading * times)
    return sound / max(float(np.abs(sound).max()), 1e-9)


def _note(pitch: Float[ndarray, " _"], harmonics: Float[ndarray, " _"], rate: int) -> Float[ndarray, " _"]:
    """Return a tone of this pitch in Hz with the harmonics that are below half of the rate."""
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    highest = float(pitch.max(initial=0.0))
    audible = [(number, size) for number, size in enumerate(harmonics, start=1) if number * highest < rate / 2]
    return sum((size * np.sin(number * phase) for number, size in audible), np.zeros(len(pitch)))


def _between(low: float, high: float, chance: Generator) -> float:
    """Return a number between two, as often in each octave."""
    return float(np.exp(chance.uniform(np.log(low), np.log(high))))
