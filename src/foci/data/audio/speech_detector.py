"""Whether a sound is speech as in training, or one of other sounds: beeps, melodies, drums, noise.

    m_k   ln of the deviation of features from those 2^k frames later, k = 0 … 5, each smoothed over 2^k frames
    p     σ(w · (m − mean) / deviation + b), m of each feature for itself, and of their mean

What differs between speech and most other sounds is how fast it changes, which neither loudness nor pitch nor the
channel moves. The training utterances, with white noise and without, are compared with sounds that are made at random;
one sound of eleven is taken to be no speech. Few training utterances give small weights: where little is known, sounds
count as speech.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from foci.data.audio.features import FilterBank, without_silence
from foci.data.audio.other_sounds import other_sounds

_OCTAVES = 6
_UTTERANCES = 1000
"""How many utterances are read, at most."""
_FEWEST, _MOST = 30, 300
"""How many sounds are made: as many as there are utterances, within these limits."""
_OTHERS = 0.1
"""How many other sounds there are for each of speech."""
_NOISE = (-12.0, 30.0)
"""Decibels of an utterance above the white noise that is added to it, summed over the features."""
_PENALTY = 30.0
"""Of the squares of the weights."""
_FARTHEST = 3.0
"""Deviations from the mean beyond which an unknown sound counts no further."""
_LEAST_DEVIATION = 0.02
"""Of features: smaller ones are no change."""
_STEPS = 30


class SpeechDetector(NamedTuple):
    """A logistic regression on the modulations of a sound; without weights it takes all for speech.

    Attributes:
        bins: features of a frame that are read; what follows them is derived from them.
        mean, deviation: of each modulation over the training utterances.
        weights, bias: of the log-odds.
    """

    bins: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    @classmethod
    def empty(cls) -> SpeechDetector:
        """Return one without weights."""
        return cls(0, (), (), (), 0.0)

    @classmethod
    def fit(cls, utterances: Sequence[Float[ndarray, "_ _"]], bank: FilterBank) -> SpeechDetector:
        """Compare the features of utterances, computed by ``bank``, with those of other sounds."""
        chance = np.random.default_rng(0)
        some = [one[:, : bank.bins] for one in utterances[:: math.ceil(len(utterances) / _UTTERANCES)]]
        white = bank(chance.standard_normal(5 * bank.rate).astype(np.float32))
        noisy = (_with_noise(one, white[chance.integers(len(white), size=len(one))], chance) for one in some)
        made = other_sounds(min(max(len(some), _FEWEST), _MOST), bank.rate, chance)
        speech = np.array([modulations(one) for one in (*some, *noisy)])
        others = np.array([modulations(bank(one)) for one in made])
        mean, deviation = speech.mean(axis=0), np.maximum(speech.std(axis=0), 1e-3)
        fresh = cls(bank.bins, tuple(mean.tolist()), tuple(deviation.tolist()), (), 0.0)
        inputs = np.concatenate([fresh._scaled(speech), fresh._scaled(others)])
        targets = np.repeat([0.0, 1.0], [len(speech), len(others)])
        counts = np.where(targets == 0, 1.0, _OTHERS * len(speech) / len(others))
        *weights, bias = _logistic(inputs, targets, counts).tolist()
        return fresh._replace(weights=tuple(weights), bias=bias)

    def __call__(self, features: Float[ndarray, "T F"]) -> float:
        """Return the probability that a sound with these features is no speech."""
        if not self.weights or not len(features):
            return 0.0
        scaled = self._scaled(modulations(features[:, : self.bins])[None])[0]
        return float(1 / (1 + np.exp(-(scaled @ np.array(self.weights) + self.bias))))

    def check(self) -> None:
        """Raise a ValueError unless the numbers belong together."""
        numbers = (*self.mean, *self.deviation, *self.weights, self.bias)
        sizes = {len(self.mean), len(self.deviation), len(self.weights)}
        if (not sizes <= {2 * _OCTAVES} and any(sizes)) or not all(map(math.isfinite, numbers)):
            raise ValueError("the numbers that tell speech from other sounds are not complete")

    def _scaled(self, found: Float[ndarray, "N _"]) -> Float[ndarray, "N _"]:
        scaled: ndarray = ((found - np.array(self.mean)) / np.array(self.deviation)).clip(-_FARTHEST, _FARTHEST)
        return scaled


def modulations(features: Float[ndarray, "T F"]) -> Float[ndarray, " _"]:
    """Return how much features change within 1, 2, 4, … 32 frames: each for itself, then their mean; logarithms.

    Example:
        >>> slow, fast = (np.sin(2 * np.pi * np.arange(640)[:, None] / period) for period in (128, 2))
        >>> int(modulations(slow)[:6].argmax()), int(modulations(fast)[:6].argmax())
        (5, 0)
    """
    kept = without_silence(features)
    found = []
    for smooth in (kept, kept.mean(axis=1, keepdims=True)):
        for octave in range(_OCTAVES):
            later = np.roll(smooth, -(2**octave), axis=0)
            found.append(math.log(np.square(smooth - later).mean() / 4 + _LEAST_DEVIATION**2) / 2)
            smooth = (smooth + later) / 2
    return np.array(found)


def _with_noise(
    features: Float[ndarray, "T F"], noise: Float[ndarray, "T F"], chance: np.random.Generator
) -> Float[ndarray, "T F"]:
    """Return the features of an utterance with the noise of these features, at a random loudness."""
    louder = np.log(np.exp(features.astype(np.float64)).sum() / np.exp(noise.astype(np.float64)).sum())
    mixed: ndarray = np.logaddexp(features, noise + louder - chance.uniform(*_NOISE) * math.log(10) / 10)
    return mixed


def _logistic(
    inputs: Float[ndarray, "N D"], targets: Float[ndarray, " N"], counts: Float[ndarray, " N"]
) -> Float[ndarray, " _"]:
    """Return the weights and the bias of a logistic regression with a penalty, by Newton's method."""
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    penalty = np.full(inputs.shape[1], _PENALTY)
    penalty[-1] = 1e-6  # none of the bias
    weights = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (counts * (p - targets)) + penalty * weights
        curve = (inputs * (counts * p * (1 - p))[:, None]).T @ inputs + np.diag(penalty)
        weights = weights - np.linalg.solve(curve, slope)
    return weights
