"""What a run of `transcribe` keeps of its training data: the tokeniser, and the statistics of the features."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import NamedTuple

from foci.data.audio_features import Statistics
from foci.data.tokenise import Tokeniser
from foci.errors import CheckpointError


class SpeechAssets(NamedTuple):
    """Tokens of the transcripts, and mean and deviation of each feature."""

    tokeniser: Tokeniser
    statistics: Statistics

    @property
    def input_dim(self) -> int:
        """Features per frame."""
        return len(self.statistics.mean)

    def to_files(self) -> dict[str, str]:
        """Return both as JSON."""
        return {"tokeniser.json": self.tokeniser.to_text(), "features.json": json.dumps(self.statistics._asdict())}

    @classmethod
    def from_files(cls, read: Callable[[str], str]) -> SpeechAssets:
        """Read what `to_files` gave."""
        tokeniser = Tokeniser.from_text(read("tokeniser.json"), "tokeniser.json")
        try:
            told = json.loads(read("features.json"))
            mean, deviation = (tuple(map(float, told[name])) for name in Statistics._fields)
            if not mean or len(mean) != len(deviation) or not all(map(math.isfinite, (*mean, *deviation))):
                raise ValueError("it has no numbers, or not as many means as deviations")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"features.json: the statistics of the run cannot be read ({error}).") from error
        return cls(tokeniser, Statistics(mean, deviation))
