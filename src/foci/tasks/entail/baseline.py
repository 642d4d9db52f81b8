"""A baseline of entailment that reads hypotheses alone, counted in the training pairs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from foci.scripts import lowered


@dataclass(frozen=True)
class HypothesisBayes:
    """Naive Bayes over the different words of a hypothesis: which label is likely without the premise.

        p(label | words) ∝ n(label) · Π_w (n(w, label) + 1) / (n(label) + 2)

    Args:
        labels: how many hypotheses have each label, by its name.
        words: how many of them have each word, by label.

    Example:
        >>> bayes = HypothesisBayes.count([(["no", "dog"], "contradiction"), (["a", "dog"], "entailment")])
        >>> bayes.predict(["no", "cat"])
        'contradiction'
    """

    labels: Mapping[str, int]
    words: Mapping[str, Mapping[str, int]]

    @classmethod
    def count(cls, hypotheses: Iterable[tuple[Sequence[str], str]]) -> HypothesisBayes:
        """Count the words of hypotheses with their labels."""
        labels: Counter[str] = Counter()
        words: dict[str, Counter[str]] = {}
        for hypothesis, label in hypotheses:
            labels[label] += 1
            for word in {lowered(one) for one in hypothesis}:
                words.setdefault(word, Counter())[label] += 1
        return cls(dict(sorted(labels.items())), {word: dict(words[word]) for word in sorted(words)})

    @property
    def majority(self) -> str:
        """The most frequent label; the first by its letters of several."""
        return max(sorted(self.labels), key=lambda label: self.labels[label])

    def predict(self, hypothesis: Sequence[str]) -> str:
        """Return the most probable label of a hypothesis; unknown words say nothing."""
        known = [self.words[word] for word in sorted({lowered(one) for one in hypothesis}) if word in self.words]

        def score(label: str) -> float:
            total = self.labels[label]
            likely = sum(math.log((counts.get(label, 0) + 1) / (total + 2)) for counts in known)
            return math.log(total) + likely

        return max(sorted(self.labels), key=score)
