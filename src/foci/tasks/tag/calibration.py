"""How probable tags, spans, tag sequences and intents turn out to be right: fitted in validation, then applied.

The best tag sequence, and with it the answer, is never changed; the order of the probabilities of one kind is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from foci.metrics.calibration import Odds, fit_odds
from foci.metrics.spans import Span
from foci.tasks.frame.scores import UNTRAINED, Scores
from foci.tasks.tag.decoding import Decoded, TagSequence
from foci.tasks.tag.lexicon import TagLexicon
from foci.tasks.tag.metrics import Gold
from foci.tasks.tag.schemes import PLAIN


class TagCalibration(NamedTuple):
    """How each kind of probability is calibrated: those of spans and sequences by odds, the others by temperature."""

    span: Odds = Odds()
    sequence: Odds = Odds()
    word: float = 1.0
    intent: float = 1.0

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, float]) -> TagCalibration:
        """Return what `to_metrics` gave; no calibration where it gave nothing."""
        span, sequence = (
            Odds(metrics.get(f"{name}_scale", 1.0), metrics.get(f"{name}_shift", 0.0)) for name in ("span", "sequence")
        )
        word, intent = (metrics.get(f"{name}_temperature", 1.0) for name in ("word", "intent"))
        return cls(span, sequence, word, intent)

    def to_metrics(self) -> dict[str, float]:
        """Return all numbers by name, for the metrics of a checkpoint."""
        odds = {"span": self.span, "sequence": self.sequence}
        found = {f"{kind}_{name}": value for kind, one in odds.items() for name, value in one._asdict().items()}
        return found | {"word_temperature": self.word, "intent_temperature": self.intent}

    def apply(self, decoded: Decoded, assets: TagLexicon) -> Decoded:
        """Return what was decoded with calibrated probabilities; where each span is a word, theirs are the same."""
        marginals, number = _tempered(decoded.marginals, self.word), {tag: i for i, tag in enumerate(assets.tags)}
        sequences = []
        for one in decoded.sequences:
            spans = self.span(one.span_probabilities)
            if assets.scheme == PLAIN:
                spans = [float(marginals[span.first, number[span.label]]) for span in one.spans]
            probability = self.sequence([one.probability])[0]
            sequences.append(one._replace(probability=probability, span_probabilities=spans))
        return Decoded(sequences, marginals, _tempered(decoded.intents, self.intent))


class Outcomes:
    """Counts which probabilities, before calibration, came with right spans, sequences, tags and intents.

    Args:
        assets: numbers tags and intents.
    """

    def __init__(self, assets: TagLexicon) -> None:
        self._tags = {tag: number for number, tag in enumerate(assets.tags)}
        self._intents = {intent: number for number, intent in enumerate(assets.intents)}
        self._plain = assets.scheme == PLAIN
        self.spans: tuple[list[float], list[bool]] = [], []
        self.sequences: tuple[list[float], list[bool]] = [], []
        self.words, self.intents = Scores(), Scores()

    def add(self, decoded: Decoded, gold: Gold) -> None:
        """Count a sentence."""
        best: TagSequence = decoded.sequences[0]
        known: set[Span] = {*gold.spans}
        self.spans[0].extend(best.span_probabilities)
        self.spans[1].extend(span in known for span in best.spans)
        self.sequences[0].append(best.probability)
        self.sequences[1].append(best.tags == gold.tags)
        tags = torch.tensor([self._tags.get(tag, UNTRAINED) for tag in gold.tags])
        self.words.add(_logs(decoded.marginals), tags)
        if self._intents and gold.intent:
            number = self._intents.get(gold.intent, UNTRAINED)
            self.intents.add(_logs(decoded.intents[None]), torch.tensor([number]))

    def fit(self) -> TagCalibration:
        """Return the calibration that fits best."""
        temperatures = [
            one.fit()["calibration/temperature"] if one.known else 1.0 for one in (self.words, self.intents)
        ]
        spans = Odds() if self._plain else fit_odds(*self.spans)
        return TagCalibration(spans, fit_odds(*self.sequences), *temperatures)


def _logs(shares: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.log(np.maximum(shares, np.finfo(np.float32).tiny)))


def _tempered(shares: np.ndarray, temperature: float) -> np.ndarray:
    if temperature == 1.0 or not shares.size:
        return shares
    powers = (shares / shares.max(axis=-1, keepdims=True)) ** (1 / temperature)
    tempered: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return tempered
