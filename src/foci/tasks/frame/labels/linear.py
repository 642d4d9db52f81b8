"""TF-IDF with logistic regression: the baseline that a text classifier has to beat, and the second voice of one.

    tf-idf  (1 + ln tf) · (1 + ln((1 + n) / (1 + df)))   of words and pairs of words, each document scaled to length 1
    minimize  C · Σ_i −ln p(y_i | x_i) + ½ ‖W‖²,   p = softmax(W x + b)

n is the number of documents, df in how many of them a word occurs, tf how often it does in this one: the conventions of
scikit-learn (``TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))``, ``LogisticRegression``).
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from foci.errors import CheckpointError
from foci.scripts import lowered

INVERSE_PENALTY = 10.0
"""C: the weight of the examples against that of small weights."""
_MOST = 50_000
"""Words and pairs that are read, those of most documents first; all are in at least two."""
_STEPS = 60
_HISTORY = 10
"""Steps that the optimizer remembers, each with two copies of the weights, which are many for many classes."""


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A trained linear classifier of texts.

    Args:
        terms: words and pairs of words, which have a blank between them; in lower case.
        idf: of each of them.
        weights: of each of them for each class.
        bias: of each class.

    Example:
        >>> texts = [["good", "film"], ["bad", "film"], ["very", "good"], ["bad", "!"]]
        >>> found = LinearClassifier.fit(texts, [0, 1, 0, 1], 2)
        >>> found.scores([["A", "Good", "one"]]).argmax(axis=1).tolist()
        [0]
    """

    terms: tuple[str, ...]
    idf: Float[NDArray[np.float32], " V"]
    weights: Float[NDArray[np.float32], "V C"]
    bias: Float[NDArray[np.float32], " C"]

    @classmethod
    def fit(cls, documents: Sequence[Sequence[str]], targets: Sequence[int], classes: int) -> LinearClassifier:
        """Count the terms of documents and fit the weights."""
        counts = Counter(term for words in documents for term in {*_terms(words)})
        kept = sorted(((-count, term) for term, count in counts.items() if count > 1))[:_MOST]
        terms = tuple(term for _, term in kept)
        idf = 1 + np.log((1 + len(documents)) / (1 - np.array([count for count, _ in kept], np.float64)))
        zeros = np.zeros((len(terms) + 1, classes), np.float32)
        empty = cls(terms, idf.astype(np.float32), zeros[:-1], zeros[-1])
        features, labels = empty._features(documents), torch.tensor(targets)
        weights = torch.zeros(len(terms), classes, dtype=torch.float64, requires_grad=True)
        bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weights, bias],
            max_iter=_STEPS,
            history_size=_HISTORY,
            tolerance_grad=1e-3,
            tolerance_change=1e-7,
            line_search_fn="strong_wolfe",
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            nats = F.cross_entropy(_product(features, weights) + bias, labels, reduction="sum")
            total = INVERSE_PENALTY * nats + weights.square().sum() / 2
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)
        return cls(terms, empty.idf, weights.detach().float().numpy(), bias.detach().float().numpy())

    @classmethod
    def empty(cls) -> LinearClassifier:
        """Return one without terms, which stands for none."""
        return cls((), np.zeros(0, np.float32), np.zeros((0, 0), np.float32), np.zeros(0, np.float32))

    def __bool__(self) -> bool:
        """Whether it was fitted."""
        return bool(len(self.bias))

    def scores(self, documents: Iterable[Sequence[str]]) -> Float[NDArray[np.float32], "N C"]:
        """Return the scores of the classes of each document, given its words."""
        product = _product(self._features(documents), torch.from_numpy(self.weights).double())
        scores: NDArray[np.float32] = (product.numpy() + self.bias).astype(np.float32)
        return scores

    @cached_property
    def _number(self) -> dict[str, int]:
        return {term: number for number, term in enumerate(self.terms)}

    def _features(self, documents: Iterable[Sequence[str]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers of the terms of all documents, their values, and where each document begins."""
        ids: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float64]] = []
        for words in documents:
            counts = Counter(self._number[term] for term in _terms(words) if term in self._number)
            numbers = np.array(sorted(counts), np.int64)
            tf = np.array([counts[number] for number in numbers.tolist()], np.float64)
            found = (1 + np.log(tf)) * self.idf[numbers].astype(np.float64)
            ids.append(numbers)
            values.append(found / max(float(np.linalg.norm(found)), 1e-12))
        starts = np.cumsum([0, *map(len, ids)])[:-1]
        all_ids, all_values = np.concatenate([np.zeros(0, np.int64), *ids]), np.concatenate([np.zeros(0), *values])
        return torch.from_numpy(all_ids), torch.from_numpy(all_values), torch.from_numpy(starts).long()

    def to_text(self) -> str:
        """Return the classifier as JSON."""
        arrays = {name: _packed(getattr(self, name)) for name in ("idf", "weights", "bias")}
        return json.dumps({"terms": self.terms, **arrays}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str, origin: str) -> LinearClassifier:
        """Return the classifier that `to_text` wrote.

        Raises:
            CheckpointError: the text is damaged.
        """
        try:
            content = json.loads(text)
            terms = tuple(content["terms"])
            idf, weights, bias = (_unpacked(content[name]) for name in ("idf", "weights", "bias"))
            return cls(terms, idf.reshape(len(terms)), weights.reshape(len(terms), len(bias)), bias)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{origin}: is not what foci wrote ({error}). Restore the file.") from error


def _terms(words: Sequence[str]) -> Iterable[str]:
    lower = list(map(lowered, words))
    return chain(lower, (f"{one} {other}" for one, other in pairwise(lower)))


def _product(features: tuple[Tensor, Tensor, Tensor], weights: Tensor) -> Tensor:
    ids, values, starts = features
    return F.embedding_bag(ids, weights, starts, mode="sum", per_sample_weights=values)


def _packed(values: NDArray[np.float32]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, np.dtype("<f4")).tobytes()).decode()


def _unpacked(text: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(text), np.dtype("<f4")).astype(np.float32)
