"""Speech is told from other sounds by how fast it changes, and no speech is lost for it."""

import math

import numpy as np
import pytest

from foci.data.audio import speech_detector
from foci.data.audio.features import FilterBank
from foci.data.audio.speech_detector import SpeechDetector, modulations

BANK = FilterBank(rate=8000, bins=11)
TIMES = np.arange(16_000) / 8000


def babble(chance, seconds):
    """Syllables of one voice: a pitch that glides, formants that move, hisses between them, and pauses."""
    times = np.arange(int(seconds * 8000)) / 8000
    knots = np.arange(0, seconds + 0.2, 0.1)
    pitch = np.interp(times, knots, chance.uniform(90, 200) * 2 ** chance.normal(0, 0.1, len(knots)))
    formants = [np.interp(times, knots, chance.uniform(*between, len(knots))) for between in ((300, 800), (900, 2300))]
    loudness = np.interp(times, knots, chance.choice([0.0, 0.1, 0.6, 1.0], len(knots)))
    hiss = np.interp(times, knots, chance.choice([0.0, 0.0, 0.3], len(knots)))
    phase = 2 * np.pi * np.cumsum(pitch) / 8000
    voice = np.zeros(len(times))
    for number in range(1, 16):
        size = sum(np.exp(-(((number * pitch - formant) / 150) ** 2)) for formant in formants)
        voice += (size + 0.02) * np.sin(number * phase)
    sound = (
        loudness * voice
        + hiss * np.diff(chance.standard_normal(len(times) + 1))
        + 1e-3 * chance.standard_normal(len(times))
    )
    return (0.2 * sound / np.abs(sound).max()).astype(np.float32)


def features(sounds):
    return [BANK(np.asarray(sound, np.float32)) for sound in sounds]


def talk(seed, count):
    chance = np.random.default_rng(seed)
    return [babble(chance, chance.uniform(0.8, 1.6)) for _ in range(count)]


@pytest.fixture(scope="module")
def detector():
    return SpeechDetector.fit(features(talk(0, 200)), BANK)


def beeps(pitch, period, share):
    return 0.3 * np.sin(2 * np.pi * pitch * TIMES) * (TIMES % period < share * period)


def melody(step):
    pitches = 262 * 2 ** (np.array([0, 4, 7, 12, 7, 4, 2, 5])[(TIMES / step).astype(int) % 8] / 12)
    return 0.3 * np.sin(2 * np.pi * np.cumsum(pitches) / 8000) * np.exp(-3 * (TIMES % step))


def test_beeps_and_melodies_are_no_speech_and_other_speech_is(detector):
    others = [beeps(pitch, period, 0.5) for pitch in (500, 1000, 1700) for period in (0.4, 0.8, 1.2)]
    others += [melody(step) for step in (0.2, 0.3, 0.4, 0.6)]
    assert min(detector(one) for one in features(others)) > 0.5
    chance = np.random.default_rng(2)
    spoken = talk(1, 25)
    noisy = [one + 0.1 * np.sqrt(np.square(one).mean()) * chance.standard_normal(len(one)) for one in spoken]
    assert max(detector(one) for one in features(spoken)) < 0.4
    assert max(detector(one) for one in features(noisy)) < 0.4


def test_loudness_does_not_matter(detector):
    one = features([beeps(1000, 0.8, 0.5) + 1e-3 * np.random.default_rng(0).standard_normal(16_000)])[0]
    assert detector(one + math.log(100)) == pytest.approx(detector(one), abs=1e-6)


def test_of_few_utterances_nothing_is_called_other_than_speech():
    few = SpeechDetector.fit(features(talk(0, 3)), BANK)
    assert max(few(one) for one in features([beeps(1000, 0.4, 0.5), *talk(1, 10)])) < 0.5


def test_derived_features_are_not_read(detector):
    (one,) = features([melody(0.3)])
    more = np.concatenate([one, np.random.default_rng(0).normal(size=one.shape)], axis=1)
    assert detector(more) == pytest.approx(detector(one), abs=1e-6)


def test_without_weights_all_is_speech_and_so_is_nothing_at_all(detector):
    assert SpeechDetector.empty()(np.ones((5, 3))) == 0.0
    assert detector(np.zeros((0, 11))) == 0.0


@pytest.mark.parametrize("damage", [{"mean": (0.0,)}, {"weights": ()}, {"deviation": (math.nan,) * 12}])
def test_numbers_that_do_not_belong_together_are_refused(detector, damage):
    detector.check()
    SpeechDetector.empty().check()
    with pytest.raises(ValueError, match="not complete"):
        detector._replace(**damage).check()


def test_modulations_are_those_of_the_definition():
    """Plain loops; the last frame is followed by the first."""
    found = np.random.default_rng(0).normal(size=(37, 3))
    expected = []
    for columns in (found, found.mean(axis=1, keepdims=True)):
        smooth = columns
        for octave in range(6):
            count, reach = len(smooth), 2**octave
            squares = []
            following = np.zeros_like(smooth)
            for t in range(count):
                for f in range(smooth.shape[1]):
                    here, there = smooth[t, f], smooth[(t + reach) % count, f]
                    squares.append(((here - there) / 2) ** 2)
                    following[t, f] = (here + there) / 2
            expected.append(0.5 * math.log(sum(squares) / len(squares) + 0.02**2))
            smooth = following
    assert modulations(found) == pytest.approx(np.array(expected))


def test_the_regression_is_at_its_minimum():
    chance = np.random.default_rng(0)
    inputs, targets = chance.normal(size=(50, 3)), (chance.random(50) < 0.3).astype(float)
    counts = chance.uniform(0.5, 2, 50)

    def loss(weights):
        odds = inputs @ weights[:-1] + weights[-1]
        nats = counts * (np.logaddexp(0, odds) - targets * odds)
        return nats.sum() + speech_detector._PENALTY * np.square(weights[:-1]).sum() / 2

    found = speech_detector._logistic(inputs, targets, counts)
    for change in np.eye(4) * 1e-2:
        assert loss(found) < min(loss(found + change), loss(found - change))
