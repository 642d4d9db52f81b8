"""Features of sound: logarithms of mel filter banks, as Kaldi computes them; and features computed elsewhere.

    frames   25 ms every 10 ms, without their mean, with pre-emphasis, under Povey's window
    energy   |FFT|² in triangular filters that overlap by half and are equally wide in mel = 1127 ln(1 + f / 700)
    feature  ln max(energy, ε)

A file of features is a NumPy array ``(frame, feature)``, .npy, or cepstra of Sphinx, .mfc: a count and as many numbers,
13 of them per frame.
"""

from __future__ import annotations

import math
import tokenize
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from foci.data.audio.files import AudioError, file_size
from foci.errors import ConfigError, check_positive

FEATURE_ENDINGS = (".npy", ".mfc")
"""Names of files that hold features, instead of sound, end in one of these."""
SPHINX_DIM = 13
_SCALE = 32768.0
"""Kaldi computes with samples of 16 bits."""
_PRE_EMPHASIS = 0.97
_LEAST = float(np.finfo(np.float32).eps)
_LARGEST_FILE = 1 << 30
_FRAMES = 4096
"""Frames that are computed at a time: more than utterances of training have, some megabytes."""

Normalization = Literal["utterance", "global", "none"]


class FilterBank(NamedTuple):
    """How sound becomes features.

    Attributes:
        rate: samples per second.
        bins: number of mel filters.
        frame: duration of a frame in milliseconds.
        shift: from one frame to the next, in milliseconds.
        lowest, highest: frequencies that the filters cover; a highest one of 0 or less counts from half of the rate.
        dynamic_range: decibels below the loudest feature of a recording at which features are cut off; None keeps all,
            as Kaldi does without dither. Samples of exactly 0 are far below any noise.

    Example:
        >>> FilterBank(rate=8000, bins=23)(np.zeros(8000, np.float32)).shape
        (98, 23)
    """

    rate: int = 16_000
    bins: int = 80
    frame: float = 25.0
    shift: float = 10.0
    lowest: float = 20.0
    highest: float = 0.0
    dynamic_range: float | None = None

    def check(self) -> None:
        """Raise a ConfigError unless the filters can be computed."""
        check_positive("FilterBank", rate=self.rate, bins=self.bins, frame=self.frame, shift=self.shift)
        if self.dynamic_range is not None:
            check_positive("FilterBank", dynamic_range=self.dynamic_range)
        top = self.highest if self.highest > 0 else self.rate / 2 + self.highest
        if not 0 <= self.lowest < top <= self.rate / 2:
            raise ConfigError(
                f"FilterBank: filters from {self.lowest:g} to {top:g} Hz at {self.rate} samples per second, expected "
                f"frequencies between 0 and {self.rate / 2:g} Hz in order."
            )

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of samples of a frame, and from one frame to the next."""
        return int(self.rate * 0.001 * self.frame), int(self.rate * 0.001 * self.shift)

    def __call__(self, samples: Float[ndarray, " N"]) -> Float[ndarray, "T F"]:
        """Return the features of samples from −1 to 1; none where there is no whole frame."""
        return self.from_blocks([samples])

    def from_blocks(self, blocks: Iterable[Float[ndarray, " _"]]) -> Float[ndarray, "T F"]:
        """Return the features of sound that comes in blocks, of which only one is held at a time."""
        size, shift = self.sizes
        found = bytearray()  # it grows in place
        held = np.zeros(0, np.float32)
        first = 0  # sample of the next frame
        for block in blocks:
            held = np.concatenate([held, block], dtype=np.float32)
            count = max(0, (len(held) - first - size) // shift + 1)
            for start in range(0, count, _FRAMES):
                frames = min(_FRAMES, count - start)
                begin = first + start * shift
                found += self._logs(held[begin : begin + (frames - 1) * shift + size]).numpy().tobytes()
            first += count * shift
            held, first = held[first:], max(0, first - len(held))
        features = np.frombuffer(found, np.float32).reshape(-1, self.bins)
        if self.dynamic_range is not None and len(features):
            least = float(features.max()) - self.dynamic_range * math.log(10) / 10
            np.maximum(features, np.float32(least), out=features)
        return features

    def _logs(self, samples: Float[ndarray, " N"]) -> Float[Tensor, "T F"]:
        size, shift = self.sizes
        window, filters = _tables(self)
        frames = torch.from_numpy(samples * np.float32(_SCALE)).unfold(0, size, shift)
        frames = frames - frames.mean(dim=1, keepdim=True)
        before = torch.cat([frames[:, :1], frames[:, :-1]], dim=1)
        frames = (frames - _PRE_EMPHASIS * before) * window
        points = 2 * filters.shape[0]
        power = torch.fft.rfft(frames, n=points).abs().square()[:, :-1]
        energy: Tensor = power @ filters
        return energy.clamp_min(_LEAST).log()


@lru_cache(maxsize=8)
def _tables(bank: FilterBank) -> tuple[Tensor, Tensor]:
    """Return the window, and the filters ``(frequency, filter)``."""
    bank.check()
    size, _ = bank.sizes
    place = torch.arange(size, dtype=torch.float64)
    window = (0.5 - 0.5 * torch.cos(2 * math.pi * place / (size - 1))).pow(0.85)
    points = 1 << (size - 1).bit_length()
    top = bank.highest if bank.highest > 0 else bank.rate / 2 + bank.highest
    edges = torch.linspace(_mel(bank.lowest), _mel(top), bank.bins + 2, dtype=torch.float64)
    frequencies = torch.arange(points // 2, dtype=torch.float64) * bank.rate / points
    mels = 1127.0 * torch.log1p(frequencies / 700.0)
    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (mels.unsqueeze(1) - left) / (center - left)
    falling = (right - mels.unsqueeze(1)) / (right - center)
    return window.float(), torch.minimum(rising, falling).clamp_min(0.0).float()


def _mel(frequency: float) -> float:
    return 1127.0 * math.log1p(frequency / 700.0)


def read_features(path: str | Path) -> Float[ndarray, "T F"]:
    """Read a file of features, .npy or .mfc.

    Raises:
        AudioError: the file is missing, broken or empty.
    """
    path = Path(path)
    size = file_size(path)
    if size > _LARGEST_FILE:
        raise AudioError(str(path), "over-long file", f"has {size:,} bytes, expected at most {_LARGEST_FILE:,}.")
    features = _read_numpy(path) if path.suffix.lower() == ".npy" else _read_sphinx(path)
    if not len(features):
        raise AudioError(str(path), "empty file", "has no frames, expected features.")
    if not np.isfinite(features).all():
        raise AudioError(str(path), "broken file", "has numbers that are not finite.")
    return features


def _read_numpy(path: Path) -> ndarray:
    try:
        # Mapped, so that a header which claims more numbers than the file has takes no memory.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise AudioError(str(path), "broken file", f"is no NumPy array ({error}).") from error
    numbers = isinstance(mapped, np.ndarray) and mapped.dtype.kind in "fiu"
    if not numbers or mapped.ndim != 2 or mapped.shape[1] == 0:
        shape = getattr(mapped, "shape", None)
        raise AudioError(str(path), "broken file", f"has shape {shape}, expected numbers (frame, feature).")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused
        return np.array(mapped, dtype=np.float32)


def _read_sphinx(path: Path) -> ndarray:
    raw = path.read_bytes()
    count = len(raw) // 4 - 1
    for order in (">", "<"):  # Sphinx wrote the order of its machine; the count tells which
        if len(raw) >= 4 and int(np.frombuffer(raw, f"{order}i4", 1)[0]) == count:
            numbers = np.frombuffer(raw, f"{order}f4", count, offset=4)
            if count % SPHINX_DIM == 0:
                return numbers.reshape(-1, SPHINX_DIM).astype(np.float32)
    raise AudioError(
        str(path), "broken file", f"is no file of Sphinx: expected a count and {SPHINX_DIM} numbers per frame."
    )


def with_deltas(features: Float[ndarray, "T F"], orders: int = 2, reach: int = 2) -> Float[ndarray, "T G"]:
    """Return the features with their first ``orders`` derivatives in time beside them.

        Δ_t = Σ_k k (x_{t+k} − x_{t−k}) / (2 Σ_k k²),   k = 1 … reach; the first and the last frame repeat

    Example:
        >>> with_deltas(np.arange(5, dtype=np.float32)[:, None], orders=1)[:, 1].tolist()
        [0.5, 0.800000011920929, 1.0, 0.800000011920929, 0.5]
    """
    found = [features]
    steps = np.arange(1, reach + 1)
    for _ in range(orders):
        padded = np.pad(found[-1], ((reach, reach), (0, 0)), mode="edge")
        count = len(features)
        slopes = [k * (padded[reach + k : reach + k + count] - padded[reach - k : reach - k + count]) for k in steps]
        found.append((np.sum(slopes, axis=0) / (2 * np.sum(steps**2))).astype(np.float32))
    return np.concatenate(found, axis=1)


class Statistics(NamedTuple):
    """Mean and standard deviation of each feature over all training frames."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def fit(cls, utterances: list[ndarray]) -> Statistics:
        """Return those of some utterances."""
        count = sum(len(one) for one in utterances)
        mean = np.sum([one.sum(axis=0, dtype=np.float64) for one in utterances], axis=0) / count
        square = np.sum([np.square(one - mean).sum(axis=0, dtype=np.float64) for one in utterances], axis=0) / count
        return cls(tuple(mean.tolist()), tuple(np.sqrt(square).tolist()))


def normalized(
    features: Float[ndarray, "T F"], how: Normalization, statistics: Statistics | None = None
) -> Float[ndarray, "T F"]:
    """Return the features with mean 0 and deviation 1, in each utterance or over all training data.

    Args:
        features: of one utterance.
        how: "utterance", "global", which needs ``statistics``, or "none".
        statistics: of the training data.
    """
    if how == "none":
        return features
    if how == "utterance":
        mean, deviation = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    elif statistics is None:
        raise ConfigError("normalized: how is 'global' without statistics, expected those of the training data.")
    else:
        mean, deviation = np.array(statistics.mean), np.array(statistics.deviation)
    # A feature that never changes is 0 everywhere, not a division by zero.
    scaled: ndarray = ((features - mean) / np.maximum(deviation, 1e-5)).astype(np.float32)
    return scaled


_QUIETEST = 40 * math.log(10) / 10
"""How far below the loudest moment of a feature its quietest counts, 40 decibels: samples of exactly 0 are no event."""
_SYLLABLE = 150.0
"""Milliseconds over which features are averaged before they are compared: noise differs from frame to frame only."""


def without_silence(features: Float[ndarray, "T F"]) -> Float[ndarray, "T F"]:
    """Return the features, none of them more than 40 decibels below its loudest moment."""
    kept: ndarray = np.maximum(features, features.max(axis=0) - _QUIETEST).astype(np.float64)
    return kept


def activity(features: Float[ndarray, "T F"], hop_ms: float) -> float:
    """Return how much features change in the time of a syllable: near 0 for noise, tones and silence of any loudness.

    It is the deviation in time of means over 150 ms, in the unit of the features.

    Example:
        >>> steady, spoken = np.ones((200, 3)), np.repeat(np.eye(4)[:, :3] * 5, 50, axis=0)
        >>> activity(steady, 10.0), round(activity(spoken, 10.0), 1)
        (0.0, 2.0)
    """
    if not len(features):
        return 0.0
    width = min(len(features), max(1, round(_SYLLABLE / hop_ms)))
    kept = without_silence(features)
    sums = np.concatenate([np.zeros((1, kept.shape[1])), kept.cumsum(axis=0)])
    return float(np.sqrt(((sums[width:] - sums[:-width]) / width).var(axis=0).mean()))
