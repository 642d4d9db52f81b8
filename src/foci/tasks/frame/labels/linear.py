"""Logistic regression on TF-IDF: the baseline that a text classifier has to beat, and a better one that votes.

    tf-idf  (1 + ln tf) · (1 + ln((1 + n) / (1 + df)))   of words and pairs of words, each document scaled to length 1
    minimize  C · Σ_i −ln p(y_i | x_i) + ½ ‖W − β R‖²,   p = softmax(W x + b)
    R_cv = ln p(v | c) − mean_c' ln p(v | c'),   p(v | c) ∝ 1 + number of documents of class c with term v

n is the number of documents, df in how many of them a word occurs, tf how often it does in this one: the conventions of
scikit-learn (``TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))``, ``LogisticRegression``). That, with β = 0, is
the baseline. The other has character n-grams beside the words, scaled to length 1 by themselves, and weights that are
drawn to those of naive Bayes: a term that is too rare to learn its weight keeps what its counts say.

Paper: Baselines and Bigrams: Simple, Good Sentiment and Topic Classification (Wang and Manning, 2012), sections 2.1-2.3
Differs: naive Bayes and the discriminative weights meet in the penalty; there in the features, and in a mean of both.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from foci.errors import CheckpointError
from foci.scripts import SPACELESS, lowered


class Recipe(NamedTuple):
    """How a classifier is fitted."""

    inverse_penalty: float
    """C: the weight of the examples against that of small weights."""
    least: int
    """Documents that a word or pair must be in."""
    prior: float = 0.0
    """β: how far weights are drawn to those of naive Bayes."""
    characters: bool = False
    """Whether character n-grams are read, of data that is not too large."""


BASELINE = Recipe(inverse_penalty=10.0, least=2)
"""What a user would compute alone."""
VOTER = Recipe(inverse_penalty=1.5, least=1, prior=0.25, characters=True)
"""Chosen by cross-validation within the training documents of the recipe small_documents."""
_MOST = 50_000
"""Words and pairs that are read, and as many character n-grams; those of most documents first."""
_MOST_NGRAM_WEIGHTS = 5_000_000
"""Weights of character n-grams, of all classes: the optimizer has many copies of them."""
_MOST_WORDS = 1_000_000
"""Words of all documents up to which character n-grams are read: there are about ten of them for each word."""
_SIZES = range(2, 6)
"""Lengths of character n-grams."""
_MARK = "\n"
"""Stands before a character n-gram, which else could be taken for a word."""
_SPACELESS_WORD = re.compile(f"[{SPACELESS}]")
_STEPS = 60
_HISTORY = 10
"""Steps that the optimizer remembers, each with two copies of the weights, which are many for many classes."""


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A trained linear classifier of texts.

    Args:
        terms: words and pairs of words, which have a blank between them, then character n-grams; in lower case.
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
    def fit(
        cls, documents: Sequence[Sequence[str]], targets: Sequence[int], classes: int, recipe: Recipe = BASELINE
    ) -> LinearClassifier:
        """Count the terms of documents and fit the weights."""
        kept = _most_frequent(map(_words, documents), recipe.least, _MOST)
        if recipe.characters and sum(map(len, documents)) <= _MOST_WORDS:
            kept += _most_frequent(map(_ngrams, documents), 2, min(_MOST, _MOST_NGRAM_WEIGHTS // classes))
        terms = tuple(term for term, _ in kept)
        idf = 1 + np.log((1 + len(documents)) / (1 + np.array([count for _, count in kept], np.float64)))
        zeros = np.zeros((len(terms) + 1, classes), np.float32)
        empty = cls(terms, idf.astype(np.float32), zeros[:-1], zeros[-1])
        features, labels = empty._features(documents), torch.tensor(targets)
        prior = torch.zeros(len(terms), classes, dtype=torch.float64)
        if recipe.prior:
            prior += recipe.prior * empty._naive_bayes(features, labels)
        beyond = torch.zeros_like(prior, requires_grad=True)
        bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [beyond, bias],
            max_iter=_STEPS,
            history_size=_HISTORY,
            tolerance_grad=1e-3,
            tolerance_change=1e-7,
            line_search_fn="strong_wolfe",
        )

        by_prior = _product(features, prior)

        def loss() -> Tensor:
            optimizer.zero_grad()
            nats = F.cross_entropy(by_prior + _product(features, beyond) + bias, labels, reduction="sum")
            total = recipe.inverse_penalty * nats + beyond.square().sum() / 2
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)
        weights = prior + beyond.detach()
        return cls(terms, empty.idf, weights.float().numpy(), bias.detach().float().numpy())

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
    def characters(self) -> int:
        """How many of the terms are character n-grams."""
        return sum(term.startswith(_MARK) for term in self.terms)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {term: number for number, term in enumerate(self.terms)}

    def _naive_bayes(self, features: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> Tensor:
        """Return the weights of naive Bayes (V, C), from the number of documents of each class that have a term."""
        ids, _, starts = features
        sizes = torch.diff(starts, append=torch.tensor([len(ids)]))
        classes = self.weights.shape[1]
        cells = torch.bincount(ids * classes + labels.repeat_interleave(sizes), minlength=len(self.terms) * classes)
        counts = 1.0 + cells.reshape(len(self.terms), classes).double()
        parts = counts.split([len(self.terms) - self.characters, self.characters])
        logs = torch.cat([(part / part.sum(dim=0)).log() for part in parts])
        return logs - logs.mean(dim=1, keepdim=True)

    def _features(self, documents: Iterable[Sequence[str]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers of the terms of all documents, their values, and where each document begins."""
        ids: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float64]] = []
        kinds = (_words, _ngrams) if self.characters else (_words,)
        for words in documents:
            of_document = []
            for kind in kinds:
                counts = Counter(self._number[term] for term in kind(words) if term in self._number)
                numbers = np.array(sorted(counts), np.int64)
                tf = np.array([counts[number] for number in numbers.tolist()], np.float64)
                found = (1 + np.log(tf)) * self.idf[numbers].astype(np.float64)
                of_document.append((numbers, found / max(float(np.linalg.norm(found)), 1e-12)))
            ids.append(np.concatenate([one for one, _ in of_document]))
            values.append(np.concatenate([one for _, one in of_document]))
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


def _most_frequent(documents: Iterable[Iterable[str]], least: int, most: int) -> list[tuple[str, int]]:
    """Return the terms of ``least`` documents or more and how many have them, those of most documents first."""
    counts = Counter(term for terms in documents for term in {*terms})
    return sorted(((term, count) for term, count in counts.items() if count >= least), key=_by_count)[:most]


def _by_count(term: tuple[str, int]) -> tuple[int, str]:
    return -term[1], term[0]


def _words(words: Sequence[str]) -> Iterable[str]:
    """Return the words and the pairs of words."""
    lower = list(map(lowered, words))
    return chain(lower, (f"{one} {other}" for one, other in pairwise(lower)))


def _ngrams(words: Sequence[str]) -> Iterable[str]:
    """Return the character n-grams of words; those of scripts without spaces count as one with their neighbors."""
    runs: list[str] = []
    joined = False
    for word in words:
        spaceless = _SPACELESS_WORD.match(word) is not None
        if joined and spaceless:
            runs[-1] += word
        else:
            runs.append(word)
        joined = spaceless
    return chain.from_iterable(map(_ngrams_of_run, runs))


@lru_cache(maxsize=100_000)
def _ngrams_of_run(run: str) -> tuple[str, ...]:
    text = f" {lowered(run)} "
    return tuple(_MARK + text[start : start + size] for size in _SIZES for start in range(len(text) - size + 1))


def _product(features: tuple[Tensor, Tensor, Tensor], weights: Tensor) -> Tensor:
    ids, values, starts = features
    return F.embedding_bag(ids, weights, starts, mode="sum", per_sample_weights=values)


def _packed(values: NDArray[np.float32]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, np.dtype("<f4")).tobytes()).decode()


def _unpacked(text: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(text), np.dtype("<f4")).astype(np.float32)
