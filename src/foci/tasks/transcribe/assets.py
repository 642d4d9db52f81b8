"""What a run of `transcribe` keeps of its training data: the tokenizer, and metrics of the features."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from foci.data.audio.features import Statistics
from foci.data.tokenizer import Tokenizer
from foci.errors import CheckpointError


class SpeechAssets(NamedTuple):
    """Tokens of the transcripts, mean and deviation of each feature, and the durations of the utterances in frames.

    ``longest`` is that of the longest utterance, ``usual`` one that nine of ten do not exceed.
    """

    tokenizer: Tokenizer
    statistics: Statistics
    longest: int
    usual: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, features: list[ndarray]) -> SpeechAssets:
        """Return what is kept of utterances with these features, ``(frame, feature)`` each."""
        frames = [len(one) for one in features]
        return cls(tokenizer, Statistics.of(features), max(frames), int(np.quantile(frames, 0.9)))

    @property
    def input_dim(self) -> int:
        """Features per frame."""
        return len(self.statistics.mean)

    def to_files(self) -> dict[str, str]:
        """Return all as JSON."""
        features = json.dumps({**self.statistics._asdict(), "longest": self.longest, "usual": self.usual})
        return {"tokenizer.json": self.tokenizer.to_text(), "features.json": features}

    @classmethod
    def from_files(cls, read: Callable[[str], str]) -> SpeechAssets:
        """Read what `to_files` gave."""
        tokenizer = Tokenizer.from_text(read("tokenizer.json"), "tokenizer.json")
        try:
            told = json.loads(read("features.json"))
            mean, deviation = (tuple(map(float, told[name])) for name in Statistics._fields)
            if not mean or len(mean) != len(deviation) or not all(map(math.isfinite, (*mean, *deviation))):
                raise ValueError("it has no numbers, or not as many means as deviations")
            longest, usual = int(told["longest"]), int(told["usual"])
            if not 0 < usual <= longest:
                raise ValueError("its durations are not in order")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"features.json: the statistics of the run cannot be read ({error}).") from error
        return cls(tokenizer, Statistics(mean, deviation), longest, usual)
