"""From the scores of a tagger to tag sequences and their probabilities, those of single spans among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from foci.functional import crf
from foci.functional.crf.spans import SpanDistribution, SpanTags, span_distribution
from foci.metrics.spans import Span
from foci.models.tagger import TagScores
from foci.tasks.tag.lexicon import TagLexicon
from foci.tasks.tag.schemes import to_spans


class TagSequence(NamedTuple):
    """A tag sequence and its probability, and its spans and theirs: P(span, label | sentence)."""

    tags: list[str]
    probability: float
    spans: list[Span]
    span_probabilities: list[float]


class Decoded(NamedTuple):
    """What is known of one sentence: its best tag sequences, best first, and the probabilities of tags and intents."""

    sequences: list[TagSequence]
    marginals: Float[NDArray[np.float32], "T K"]
    intents: Float[NDArray[np.float32], " I"]


def chain_of(scores: TagScores) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the functions of `foci.functional.crf` take, in full precision."""
    return scores.emissions.float(), scores.transitions.float(), scores.start.float(), scores.end.float()


def best_intent(decoded: Decoded, assets: TagLexicon) -> str:
    """Return the most probable intent; nothing where the run has none."""
    return assets.intents[int(decoded.intents.argmax())] if assets.intents else ""


def decode(
    scores: TagScores, valid: Bool[Tensor, "B T"], assets: TagLexicon, n_best: int, least: float | None = None
) -> list[Decoded]:
    """Return the ``n_best`` best tag sequences of each sentence with all probabilities.

    Args:
        scores: what the model gives for a batch.
        valid: which words exist; those of a sentence come first in its row.
        assets: names the tags.
        n_best: how many sequences; a short sentence may have fewer.
        least: give the first sequence, instead of its own spans, all that are at least so probable; of those that
            overlap, the most probable one.
    """
    chain = chain_of(scores)
    best, heights = crf.viterbi(*chain, valid, n_best)
    shares = (heights.double() - crf.log_partition(*chain, valid).double().unsqueeze(1)).exp().tolist()
    numbers, lengths = best.tolist(), valid.sum(dim=1).tolist()
    tagged: list[list[tuple[list[str], float, list[Span]]]] = []
    for row, length in enumerate(lengths):
        tagged.append([])
        for rank in range(n_best):
            if heights[row, rank] == -torch.inf:  # there are no more sequences
                break
            tags = [assets.tags[number] for number in numbers[row][rank][:length]]
            tagged[row].append((tags, shares[row][rank], to_spans(tags, assets.scheme).spans))
    label_number = {label: place for place, label in enumerate(assets.labels)}
    queries = [
        (row, span.first, span.last, label_number[span.label])
        for row, sequences in enumerate(tagged)
        for _, _, spans in sequences
        for span in spans
    ]
    tags_of_spans = assets.span_tags(valid.device)
    distribution = span_distribution(*chain, valid, tags_of_spans)
    found = []
    if queries:
        found = distribution.log_probability(*torch.tensor(queries, device=valid.device).T).exp().tolist()
    of_spans = iter(found)
    marginals = crf.marginals(*chain, valid).cpu().numpy()
    intents = scores.intents.float().softmax(dim=-1).cpu().numpy()
    decoded = [
        Decoded(
            [TagSequence(*one, [next(of_spans) for _ in one[2]]) for one in sequences],
            marginals[row, : lengths[row]],
            intents[row],
        )
        for row, sequences in enumerate(tagged)
    ]
    if least is not None:
        for row, one in enumerate(decoded):
            likely = likely_spans(distribution, row, one.marginals, tags_of_spans, assets.labels, least)
            one.sequences[0] = one.sequences[0]._replace(
                spans=[span for span, _ in likely], span_probabilities=[share for _, share in likely]
            )
    return decoded


def likely_spans(
    distribution: SpanDistribution,
    row: int,
    marginals: Float[NDArray[np.float32], "T K"],
    tags: SpanTags,
    labels: Sequence[str],
    least: float,
) -> list[tuple[Span, float]]:
    """Return the spans of a sentence with at least this probability, and it; of overlapping ones the most probable.

    A span is no more probable than any of its tags, so that only spans of tags that are probable enough are looked at.
    """
    enough = marginals >= least - 1e-5  # marginals are rounded
    single, first, inner, last = (enough[:, part.cpu().numpy()] for part in tags[:4])
    queries = [(int(word), int(word), int(label)) for word, label in zip(*single.nonzero())]
    for word, label in zip(*first.nonzero()):
        for end in range(word + 1, len(marginals)):
            if last[end, label]:
                queries.append((int(word), end, int(label)))
            if not inner[end, label]:
                break
    if not queries:
        return []
    at = torch.tensor(queries, device=tags.single.device).T
    shares = distribution.log_probability(torch.full_like(at[0], row), *at).exp().tolist()
    chosen: list[tuple[Span, float]] = []
    for share, (begin, end, label) in sorted(zip(shares, queries), key=lambda one: (-one[0], one[1])):
        if share >= least and all(end < span.first or begin > span.last for span, _ in chosen):
            chosen.append((Span(begin, end, labels[label]), share))
    return sorted(chosen)
