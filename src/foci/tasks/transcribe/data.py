"""Recordings as features, and utterances as batches of features and token ids.

The features of all utterances are computed once and held in memory (80 of them take 115 MB per hour of sound), so that
every recording has been read before training starts, and those that cannot be used are known by then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import NDArray
from torch import Tensor

from foci.data.audio.augment import at_speed, frames_at_speed
from foci.data.audio.features import FEATURE_ENDINGS, FilterBank, Statistics, activity, read_features, with_deltas
from foci.data.audio.files import AudioError, Sound, Utterance, check_audible, file_size, read_header, stream_sound
from foci.data.audio.resample import resample_blocks
from foci.data.audio.speech_detector import SpeechDetector
from foci.data.batching import Indices, Sequences, TokenBatches, Work
from foci.data.builtin import morse
from foci.data.tokenizer import BOS, EOS, Tokenizer
from foci.errors import DataError
from foci.printable import printable
from foci.tasks.frame.assets import Assets
from foci.tasks.transcribe.config import FeatureConfig

_NAMED = 20
"""How many unusable recordings are named; all are counted."""
_PRESENT = 0.99
"""Share of the claimed samples below which a recording is cut off, so that its transcript says more than is heard."""


def filter_bank(features: FeatureConfig) -> FilterBank:
    """Return the filters that the settings describe; raise a ConfigError unless they can be computed."""
    bank = FilterBank(
        features.sample_rate,
        features.bins,
        features.window_ms,
        features.hop_ms,
        features.lowest,
        features.highest,
        features.dynamic_range,
    )
    bank.check()
    return bank


@dataclass(frozen=True)
class SpeechReader:
    """Turns the name of a recording into features.

    Args:
        bank: how sound becomes features.
        deltas: how many derivatives in time stand beside the features.
        upsample: take recordings of a lower rate than the bank's too; their upper bands are empty.
        max_seconds: longer recordings are not read.
        min_seconds: nor are shorter ones.
    """

    bank: FilterBank
    deltas: int = 0
    upsample: bool = False
    max_seconds: float = 30.0
    min_seconds: float = 0.05

    def sound(self, address: str) -> Sound:
        """Return a recording at the bank's rate; arguments and errors are those of `blocks`."""
        return Sound(np.concatenate(list(self.blocks(address))), self.bank.rate)

    def samples(self, address: str, first: int, last: int) -> Float[ndarray, " N"]:
        """Return a stretch of a recording at the bank's rate, from sample ``first`` to the one before ``last``."""
        kept, place = [], 0
        for block in self.blocks(address):
            kept.append(block[max(first - place, 0) : max(last - place, 0)].copy())
            place += len(block)
            if place >= last:
                break
        return np.concatenate(kept)

    def blocks(self, address: str) -> Iterator[Float[ndarray, " N"]]:
        """Yield the samples of a recording at the bank's rate: hours of sound are never held whole.

        Raises:
            AudioError: it cannot be used.
        """
        coded = morse.is_morse(address)
        sounds = iter([morse.sound_of(address)]) if coded else stream_sound(address, max_seconds=self.max_seconds)
        first = next(sounds)  # there is one, or an error
        self._check_rate(address, first.rate)
        yield from resample_blocks(self._checked(address, chain([first], sounds)), first.rate, self.bank.rate)

    def _checked(self, address: str, sounds: Iterable[Sound]) -> Iterator[Float[ndarray, " N"]]:
        """Yield the samples; raise an AudioError where they are too many, or at the end if they are few or silent."""
        count, seconds, loudest = 0, 0.0, 0.0
        for samples, rate in sounds:
            count += len(samples)
            seconds = count / rate
            loudest = max(loudest, float(np.abs(samples).max(initial=0.0)))
            if seconds > self.max_seconds:
                raise self._too_long(address, seconds)
            yield samples
        if seconds < self.min_seconds:
            reason = f"lasts {seconds:.3f} s, expected at least {self.min_seconds:g} s."
            raise AudioError(address, "too short", reason)
        check_audible(address, loudest)

    def features(self, address: str, speed: float = 1.0) -> Float[ndarray, "T F"]:
        """Return the features of a recording, played at some speed.

        Raises:
            AudioError: it cannot be used.
        """
        if is_feature_file(address):
            features = read_features(address)
            if len(features) * self.bank.shift / 1000 > self.max_seconds:
                raise self._too_long(address, len(features) * self.bank.shift / 1000)
            features = features if speed == 1.0 else frames_at_speed(features, speed)
        elif speed == 1.0:
            features = self.bank.from_blocks(self.blocks(address))
        else:
            features = self.bank(at_speed(self.sound(address).samples, speed))
        return self.finished(address, features)

    def finished(self, address: str, features: Float[ndarray, "T F"]) -> Float[ndarray, "T G"]:
        """Return features with what the reader adds to them."""
        if not len(features):
            raise AudioError(address, "too short", "is shorter than a frame, expected a recording.")
        return with_deltas(features, self.deltas) if self.deltas else features

    def check(self, address: str) -> None:
        """Raise an AudioError for a recording that cannot be used, as far as its header tells."""
        if morse.is_morse(address):
            return
        if is_feature_file(address):
            file_size(address)
            return
        header = read_header(address)
        self._check_rate(address, header.rate)
        if self.max_seconds < header.seconds < float("inf"):
            raise self._too_long(address, header.seconds)
        if header.present < _PRESENT:
            reason = f"is cut off: has {header.present:.0%} of the samples that its header claims. Copy it again."
            raise AudioError(address, "cut-off file", reason)

    def _check_rate(self, address: str, rate: int) -> None:
        if rate < self.bank.rate and not self.upsample:
            raise AudioError(
                address,
                "low rate",
                f"has {rate:,} samples per second, expected at least {self.bank.rate:,}. Set "
                f"features.sample_rate={rate} (--rate), or features.upsample=true to use it with empty upper bands.",
            )

    def _too_long(self, address: str, seconds: float) -> AudioError:
        reason = f"lasts {seconds:,.1f} s, expected at most {self.max_seconds:g} s."
        return AudioError(address, "over-long file", reason)


def is_feature_file(address: str) -> bool:
    """Return whether a name is that of a file of features instead of sound."""
    return not morse.is_morse(address) and Path(address).suffix.lower() in FEATURE_ENDINGS


def _report(left_out: Sequence[AudioError], total: int, log: Callable[[str], None], origin: str) -> None:
    """Log the number of each kind, and name the first ones; raise a DataError if nothing else is left."""
    if left_out:
        kinds = Counter(fault.kind for fault in left_out)
        kinds_text = ", ".join(f"{count:,} × {kind}" for kind, count in kinds.most_common())
        log(f"{len(left_out):,} of {total:,} recordings are left out: {kinds_text}")
        for fault in left_out[:_NAMED]:
            log(f"left out: {printable(str(fault))}")
        if len(left_out) > _NAMED:
            log(f"left out: {len(left_out) - _NAMED:,} more")
        if len(left_out) == total:
            raise DataError(f"{origin}, line 1: none of {total:,} recordings can be used; {left_out[0]}")


def usable_utterances(
    utterances: Sequence[Utterance], reader: SpeechReader, log: Callable[[str], None], origin: str
) -> list[Utterance]:
    """Return the utterances whose recordings can be used, as far as their headers tell; report the others.

    Raises:
        DataError: none is left; the message has ``origin`` and the first reason.
    """
    left_out: list[AudioError] = []
    kept = []
    for utterance in utterances:
        try:
            reader.check(utterance.audio)
        except AudioError as error:
            left_out.append(error)
        else:
            kept.append(utterance)
    _report(left_out, len(utterances), log, origin)
    return kept


class FeatureSet(NamedTuple):
    """Utterances whose recordings were read, and the features of each at each speed."""

    utterances: list[Utterance]
    features: list[ndarray]


def compute_features(
    utterances: Iterable[Utterance],
    reader: SpeechReader,
    log: Callable[[str], None],
    origin: str,
    speeds: Sequence[float] = (1.0,),
) -> FeatureSet:
    """Read all recordings; those that cannot be used are reported and left out.

    Args:
        utterances: what is read.
        reader: how.
        log: called with what is left out.
        origin: where the utterances come from, for messages.
        speeds: each utterance is kept once for each of them.

    Raises:
        DataError: none is left, or the numbers of features differ.
    """
    left_out: list[AudioError] = []
    kept: list[Utterance] = []
    found: list[ndarray] = []
    total = 0
    for utterance in utterances:
        total += 1
        try:
            features = [reader.features(utterance.audio, speed) for speed in speeds]
        except AudioError as error:
            left_out.append(error)
            continue
        if found and features[0].shape[1] != found[0].shape[1]:
            raise DataError(
                f"{utterance.audio}: has {features[0].shape[1]} features per frame, expected {found[0].shape[1]} as in "
                f"{kept[0].audio}. Compute all of them in the same way."
            )
        kept += [utterance] * len(features)
        found += features
    _report(left_out, total, log, origin)
    return FeatureSet(kept, found)


class SpeechBatch(NamedTuple):
    """Utterances, padded with 0; a target is BOS … EOS."""

    features: Float[Tensor, "B T F"]
    lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B U"]


class SpeechExamples:
    """Features and token ids of utterances, to be batched by `foci.data.TokenBatches`.

    Args:
        features: of each utterance, normalized.
        targets: token ids of each, without BOS and EOS.
        vocabulary: number of token ids.
    """

    def __init__(self, features: Sequence[ndarray], targets: Sequence[Sequence[int]], vocabulary: int) -> None:
        if len(features) != len(targets):
            raise DataError(f"SpeechExamples: {len(features)} features, {len(targets)} targets, expected as many.")
        self.features = features
        self.targets = Sequences(([BOS, *target, EOS] for target in targets), vocabulary)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(utterance, 2)``: frames and tokens."""
        frames = np.array([len(one) for one in self.features], dtype=np.int64)
        return np.stack([frames, self.targets.lengths], axis=1)

    def batch(self, indices: Indices, widths: Sequence[int]) -> SpeechBatch:
        """Return these utterances, padded."""
        chosen = [self.features[int(i)] for i in indices]
        features = np.zeros((len(chosen), widths[0], self.features[0].shape[1]), np.float32)
        for row, one in enumerate(chosen):
            features[row, : len(one)] = one
        target, _ = self.targets.padded(indices, widths[1])
        lengths = np.array([len(one) for one in chosen], dtype=np.int64)
        return SpeechBatch(*map(torch.from_numpy, (features, lengths, target)))


class ShortFirstBatches(TokenBatches[SpeechBatch]):
    """`TokenBatches` whose first epochs go from short utterances to long ones, in which an alignment is found sooner.

    Args:
        examples: the utterances.
        short_first: number of such epochs.
        options: as in `TokenBatches`.
    """

    def __init__(self, examples: SpeechExamples, *, short_first: int, **options: Any) -> None:
        super().__init__(examples, **options)
        self.short_first = short_first

    def _identity(self) -> dict[str, int | None]:
        return {**super()._identity(), "short_first": self.short_first}

    def _work_of(self, epoch: int, first: int) -> Iterator[Work]:
        if epoch >= self.short_first:
            yield from super()._work_of(epoch, first)
            return
        planned = list(super()._work_of(epoch, 0))
        ends = [work.after for work in planned]
        planned.sort(key=lambda work: work.widths)
        yield from (work._replace(after=after) for work, after in list(zip(planned, ends))[first:])


@dataclass(frozen=True)
class SpeechAssets(Assets):
    """Tokens of the transcripts, statistics of the features, and the durations of the utterances in frames."""

    tokenizer: Tokenizer
    features: Statistics
    longest: int
    """Frames of the longest utterance."""
    usual: int
    """Frames that nine of ten utterances do not exceed."""
    least_activity: float
    """What 99 of 100 utterances exceed in activity (`foci.data.audio.features.activity`)."""
    detector: SpeechDetector = field(default_factory=SpeechDetector.empty)
    """Tells the utterances from other sounds; has no weights where features were read from files."""

    @classmethod
    def from_features(
        cls, tokenizer: Tokenizer, features: list[ndarray], hop_ms: float, bank: FilterBank | None = None
    ) -> SpeechAssets:
        """Return what is kept of utterances with these features, ``(frame, feature)`` each, computed by ``bank``."""
        frames = [len(one) for one in features]
        least = float(np.quantile([activity(one, hop_ms) for one in features], 0.01))
        detector = SpeechDetector.empty() if bank is None else SpeechDetector.fit(features, bank)
        return cls(tokenizer, Statistics.fit(features), max(frames), int(np.quantile(frames, 0.9)), least, detector)

    def no_speech(self, features: Float[ndarray, "T F"], hop_ms: float) -> float:
        """Return from 0 to 1 how sure it is that a sound is none of speech.

        It is how much steadier than the steadiest hundredth of the training utterances the sound is, or the probability
        of the detector, whichever is larger.
        """
        steady = 1 - min(activity(features, hop_ms) / self.least_activity, 1.0) if self.least_activity > 0 else 0.0
        return max(steady, self.detector(features))

    @property
    def input_dim(self) -> int:
        """Features per frame."""
        return len(self.features.mean)

    def check(self) -> None:
        """Raise a ValueError if the statistics or the durations are not those of utterances."""
        mean, deviation = self.features
        if not mean or len(mean) != len(deviation) or not all(map(math.isfinite, (*mean, *deviation))):
            raise ValueError("it has no numbers, or not as many means as deviations")
        if not 0 < self.usual <= self.longest:
            raise ValueError("its durations are not in order")
        if not 0 <= self.least_activity < math.inf:
            raise ValueError("its least activity is negative or not finite")
        self.detector.check()
