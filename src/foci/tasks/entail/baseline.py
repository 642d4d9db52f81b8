"""What an entailer has counted in its training pairs: words and labels, and a baseline that reads hypotheses alone."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foci.data.vocabulary import Vocabulary
from foci.errors import CheckpointError


@dataclass(frozen=True)
class HypothesisBayes:
    """Naive Bayes over the different words of a hypothesis: what a label can be told from without the premise.

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
            for word in {one.lower() for one in hypothesis}:
                words.setdefault(word, Counter())[label] += 1
        return cls(dict(sorted(labels.items())), {word: dict(words[word]) for word in sorted(words)})

    @property
    def majority(self) -> str:
        """The most frequent label; the first by its letters of several."""
        return max(sorted(self.labels), key=lambda label: self.labels[label])

    def predict(self, hypothesis: Sequence[str]) -> str:
        """Return the most probable label of a hypothesis; unknown words say nothing."""
        known = [self.words[word] for word in sorted({one.lower() for one in hypothesis}) if word in self.words]

        def score(label: str) -> float:
            total = self.labels[label]
            likely = sum(math.log((counts.get(label, 0) + 1) / (total + 2)) for counts in known)
            return math.log(total) + likely

        return max(sorted(self.labels), key=score)


@dataclass(frozen=True)
class EntailLexicon:
    """The words and the labels of a run; the order of the labels is that of the model's scores."""

    vocabulary: Vocabulary
    trained: int
    """Ids of words with a learned vector, padding included."""
    vector_dim: int
    """Size of the given word vectors; 0 without any."""
    labels: tuple[str, ...]
    baseline: HypothesisBayes

    def to_files(self) -> dict[str, str]:
        """Return all of it as JSON."""
        labels = {"labels": self.labels, "trained": self.trained, "vector_dim": self.vector_dim}
        counts = {"labels": self.baseline.labels, "words": self.baseline.words}
        return {
            "vocabulary.json": self.vocabulary.to_text(),
            "labels.json": json.dumps(labels, ensure_ascii=False),
            "hypotheses.json": json.dumps(counts, ensure_ascii=False),
        }

    @classmethod
    def from_files(cls, read: Callable[[str], str]) -> EntailLexicon:
        """Read the result of `to_files`."""
        vocabulary = Vocabulary.from_text(read("vocabulary.json"), "vocabulary.json")
        try:
            told = json.loads(read("labels.json"))
            labels = tuple(map(_as_text, told["labels"]))
            if len({*labels}) < 2 or len({*labels}) < len(labels):
                raise ValueError("it has no list of at least two different labels")
            trained, vector_dim = int(told["trained"]), int(told["vector_dim"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"labels.json: the labels of the run cannot be read ({error}).") from error
        try:
            counted = json.loads(read("hypotheses.json"))
            found = {str(label): int(count) for label, count in counted["labels"].items()}
            words = {
                word: {label: int(count) for label, count in some.items()} for word, some in counted["words"].items()
            }
            if found.keys() != {*labels}:
                raise ValueError("its labels are not those of the run")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"hypotheses.json: the counts of the run cannot be read ({error}).") from error
        return cls(vocabulary, trained, vector_dim, labels, HypothesisBayes(found, words))


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("its labels are not all texts")
    return value
