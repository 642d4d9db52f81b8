"""Metrics of captions against several references each: BLEU-1 to BLEU-4, CIDEr-D and ROUGE-L, in any script.

    BLEU-N    = min(1, e^{1 − r/c}) · (Π_{n≤N} p_n)^{1/N},   p_n the share of n-grams that are in a reference, clipped
    CIDEr-D_n = (10/m) Σ_j e^{−(l(c) − l(s_j))² / 2σ²} · min(g^n(c), g^n(s_j)) · g^n(s_j) / (‖g^n(c)‖ ‖g^n(s_j)‖)
    CIDEr-D   = ¼ Σ_{n≤4} CIDEr-D_n,   g^n_k(s) = h_k(s) · log(images / images with k in a reference),   σ = 6
    ROUGE-L   = (1 + β²) P R / (R + β² P),   P and R the largest over the references,   β = 1.2

Words are those of `foci.metrics.rouge.compared_words`: lower case, no punctuation, and single characters in scripts
without spaces. On the same words the metrics are those of the package pycocoevalcap (times 100).

Paper: BLEU (Papineni et al., 2002), eqs. 1-3; CIDEr: Consensus-based Image Description Evaluation (Vedantam, Zitnick,
    Parikh, 2015), eqs. 1-4 and section 6, arXiv:1411.5726; ROUGE (Lin, 2004), section 3
Names: c = candidate, s_j = references[j], m = number of references, h_k = how often the n-gram k occurs, g = tf-idf;
    in BLEU c is the length of all candidates, and r that of the references that are nearest to them in length
Complexity: O(words) per caption and reference; O(words of both, multiplied) for ROUGE-L
Differs: pycocoevalcap splits English words by the Penn Treebank's rules, in Java ("don't" is do and n't, here don and
    t); it adds 1e-15 to counts, so that its BLEU is tiny and not 0 where no n-gram matches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from foci.errors import DataError
from foci.metrics.rouge import Words, compared_words, longest_common, ngrams

LARGEST = 4
"""The longest n-grams of BLEU and CIDEr-D."""
SIGMA = 6.0
"""CIDEr-D: the standard deviation of the penalty for another length."""
BETA = 1.2
"""ROUGE-L: how much more recall counts than precision."""

Tfidf = dict[tuple[str, ...], float]


def caption_scores(
    candidates: Sequence[str], references: Sequence[Sequence[str]], *, words: Words = compared_words
) -> dict[str, float]:
    """Return all metrics of captions, from 0 to 100 (CIDEr-D to 1,000).

    Args:
        candidates: a caption for each image.
        references: at least one for each image.
        words: splits a text into words.

    Returns:
        ``bleu1`` to ``bleu4``; the same without the brevity penalty, ``bleu1_no_penalty`` to ``bleu4_no_penalty``;
        ``cider_d``, ``rouge_l``; and ``length_ratio``, words of the candidates per word of the nearest references.

    Example:
        >>> found = caption_scores(["a dog runs"], [["a brown dog runs", "the dog is running"]])
        >>> {name: round(value, 1) for name, value in found.items() if name in ("bleu1", "bleu1_no_penalty", "rouge_l")}
        {'bleu1': 71.7, 'bleu1_no_penalty': 100.0, 'rouge_l': 83.6}
    """
    if not candidates or len(candidates) != len(references) or not all(references):
        raise DataError(
            f"caption_scores: {len(candidates)} captions and {len(references)} lists of references, expected one list "
            "for each caption, none of them empty, and at least one caption."
        )
    produced = [list(words(text)) for text in candidates]
    targets = [[list(words(text)) for text in some] for some in references]
    return {
        **bleu_by_size(produced, targets),
        "cider_d": 100 * fmean(cider_d(produced, targets)),
        "rouge_l": 100 * fmean(rouge_l(one, some) for one, some in zip(produced, targets)),
    }


def bleu_by_size(produced: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> dict[str, float]:
    """Return BLEU-1 to BLEU-4 of all captions together, with and without the brevity penalty, and the length ratio."""
    matched, counted = [0] * LARGEST, [0] * LARGEST
    length = nearest = 0
    for one, some in zip(produced, references):
        length += len(one)
        nearest += min((abs(len(other) - len(one)), len(other)) for other in some)[1]
        for size in range(1, LARGEST + 1):
            found = ngrams(one, size)
            most: Counter[tuple[str, ...]] = Counter()
            for other in some:
                most |= ngrams(other, size)
            matched[size - 1] += (found & most).total()
            counted[size - 1] += found.total()
    penalty = 1.0 if length >= nearest else math.exp(1 - nearest / length) if length else 0.0
    metrics, precisions = {}, [share / max(whole, 1) for share, whole in zip(matched, counted)]
    for size in range(1, LARGEST + 1):
        bleu = 100 * math.prod(precisions[:size]) ** (1 / size)
        metrics[f"bleu{size}"] = penalty * bleu
        metrics[f"bleu{size}_no_penalty"] = bleu
    return {**metrics, "length_ratio": length / max(nearest, 1)}


def cider_d(produced: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> list[float]:
    """Return CIDEr-D of each caption, from 0 to 10; n-grams are weighted by how few images have them in a reference.

    So it depends on all images that are evaluated together, and is 0 for one alone.
    """
    counts = [[_all_ngrams(other) for other in some] for some in references]
    images: Counter[tuple[str, ...]] = Counter()
    for some in counts:
        images.update({gram for one in some for gram in one})
    rarity = {gram: math.log(len(references) / count) for gram, count in images.items()}
    unseen = math.log(max(len(references), 1))
    found = []
    for one, some, targets in zip(produced, counts, references):
        vectors = _tfidf(_all_ngrams(one), rarity, unseen)
        scores = [
            math.exp(-((len(one) - len(other)) ** 2) / (2 * SIGMA**2))
            * _clipped_cosine(vectors, _tfidf(count, rarity, 0.0))
            for count, other in zip(some, targets)
        ]
        found.append(10 * fmean(scores))
    return found


def rouge_l(produced: Sequence[str], references: Sequence[Sequence[str]], *, beta: float = BETA) -> float:
    """Return ROUGE-L as it is usual for captions: F of the best precision and the best recall, which counts more.

    Example:
        >>> round(rouge_l(["a", "dog"], [["a", "dog", "runs"], ["two", "dog"]]), 3)
        0.772
    """
    common = [longest_common(produced, other) for other in references]
    precision = max(common) / max(len(produced), 1)
    recall = max(shared / max(len(other), 1) for shared, other in zip(common, references))
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision) if precision and recall else 0.0


def _all_ngrams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for size in range(1, LARGEST + 1):
        found.update(ngrams(words, size))
    return found


def _tfidf(counts: Counter[tuple[str, ...]], rarity: Mapping[tuple[str, ...], float], unseen: float) -> list[Tfidf]:
    """One vector for each size of n-grams."""
    vectors: list[Tfidf] = [{} for _ in range(LARGEST)]
    for gram, count in counts.items():
        vectors[len(gram) - 1][gram] = count * rarity.get(gram, unseen)
    return vectors


def _clipped_cosine(one: Sequence[Tfidf], other: Sequence[Tfidf]) -> float:
    """The mean over the sizes of n-grams; what the candidate has more often than the reference does not count."""
    cosines = []
    for left, right in zip(one, other):
        norm = math.sqrt(math.fsum(value**2 for value in left.values())) * math.sqrt(
            math.fsum(value**2 for value in right.values())
        )
        shared = math.fsum(min(value, right[gram]) * right[gram] for gram, value in left.items() if gram in right)
        cosines.append(shared / norm if norm else 0.0)
    return fmean(cosines)
