"""Links of words without gold: two `WordAligner`s, one of each direction, trained on the sentence pairs themselves.

    links = {(j, i): w_ij > ½ from source to target, and w_ji > ½ from target to source}

Each direction also multiplies the words' probabilities of the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from foci.data import Pair, Sequences, TokenBatches, Tokenizer
from foci.data.batching import PaddedExamples
from foci.errors import DataError
from foci.metrics.alignments import agreement, symmetrize, transposed
from foci.metrics.attention import Links, links
from foci.models.word_aligner import WordAligner
from foci.tasks.frame.prediction_loop import by_length
from foci.tasks.frame.task import Log
from foci.tasks.translate.aligning import TokenPair, join_words, token_pairs
from foci.training.optim import make_optimizer, rate, set_rate
from foci.training.options import TrainingOptions
from foci.training.randomness import undisturbed

WORDS, HIDDEN_DIM = 8000, 64
"""Of an aligner: words on each side, and sizes of their embeddings."""
BATCH_TOKENS, LONGEST = 1500, 40
"""What an aligner is trained on: tokens per batch, and words of a sentence."""
THRESHOLD = 0.5
"""A link is more likely than not."""
_READ_TOKENS = 3000

Batches = TokenBatches[tuple[Tensor, ...]]
"""Sources and targets as ids of words, 0 where there is none."""


class Direction(NamedTuple):
    """An aligner, and the tokenizers of the words that it reads and of those that it explains."""

    model: WordAligner
    tokenizers: tuple[Tokenizer, Tokenizer]


def own_links(pairs: Sequence[Pair], *, steps: int, longest: int, seed: int, log: Log) -> list[Links]:
    """Return the links of each pair that both directions find, by aligners trained on these pairs alone.

    Args:
        pairs: to train on, and to align.
        steps: of the training of each direction.
        longest: pairs with a side of more words have no links.
        seed: of the initial weights and of the batches.
        log: told what is done, and how much the directions agree.
    """
    log(f"aligning the words of {len(pairs):,} pairs by themselves: {steps:,} steps in each direction")
    turned = [Pair(pair.target, pair.source) for pair in pairs]
    there, back = (_trained(some, steps, seed) for some in (pairs, turned))
    forward = read_links(there, pairs, back.model, longest)
    backward = [transposed(one) for one in read_links(back, turned, there.model, longest)]
    log(f"the directions agree in {agreement(forward, backward):.1%} of their links; those of both are taken")
    return [symmetrize(one, other, "intersection") for one, other in zip(forward, backward)]


def _trained(pairs: Sequence[Pair], steps: int, seed: int) -> Direction:
    tokenizers = word_tokenizers(pairs)
    batches = aligner_batches(pairs, tokenizers, seed)
    with undisturbed():
        torch.manual_seed(seed)
        model = WordAligner(len(tokenizers[0]), len(tokenizers[1]), HIDDEN_DIM)
    options = TrainingOptions(max_steps=steps, learning_rate=1e-2, schedule="cosine", warmup=min(50, steps // 10))
    optimizer = make_optimizer(model, options)
    endless = (batch for epoch in count() for batch in batches.epoch(epoch))
    for step, batch in enumerate(islice(endless, steps), start=1):
        optimizer.zero_grad()
        (word_nats(model, batch) / (batch[1] > 0).sum()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        set_rate(optimizer, rate(step, options))
        optimizer.step()
    return Direction(model, tokenizers)


def word_tokenizers(pairs: Sequence[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """Return tokenizers to words, of both sides."""
    source, target = (Tokenizer.train([pair[side] for pair in pairs], "words", WORDS) for side in (0, 1))
    return source, target


def aligner_batches(pairs: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer], seed: int) -> Batches:
    """Return batches of pairs to train an aligner on, those of at most `LONGEST` words on each side."""
    sides = [list(tokenizer.encode_many(pair[side] for pair in pairs)) for side, tokenizer in enumerate(tokenizers)]
    kept = [rows for rows in zip(*sides) if min(map(len, rows)) > 0 and max(map(len, rows)) <= LONGEST]
    if not kept:
        raise DataError(
            f"guidance: none of {len(pairs):,} pairs has at most {LONGEST} words on both sides, which aligners are "
            "trained on. Name links of another program in data.links."
        )
    columns = {
        name: Sequences((rows[side] for rows in kept), len(tokenizer))
        for side, (name, tokenizer) in enumerate(zip(("source", "target"), tokenizers))
    }
    return TokenBatches(PaddedExamples(columns), max_tokens=BATCH_TOKENS, seed=seed)


def word_nats(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return minus the log-likelihood of a batch's targets."""
    source, target = batch
    found: Tensor = model(source, source > 0, target, target > 0)
    return -found.sum()


def read_links(
    direction: Direction, pairs: Sequence[Pair], reverse: WordAligner | None, longest: int | None = None
) -> list[Links]:
    """Return the links of each pair whose weight is above `THRESHOLD`.

    Args:
        direction: the aligner from source to target.
        pairs: to align.
        reverse: the aligner from target to source, for the words' probabilities of both directions.
        longest: pairs with a side of more words have no links.
    """
    read = list(token_pairs(pairs, direction.tokenizers))
    found = [Links(frozenset())] * len(pairs)
    sizes = [max(len(pair.source.ids), len(pair.target)) for pair in read]
    usable = [
        number
        for number, pair in enumerate(read)
        if pair.source.ids and pair.target and (longest is None or sizes[number] <= longest)
    ]
    for places in by_length([sizes[number] for number in usable], _READ_TOKENS):
        numbers = [usable[place] for place in places]
        for number, weights in zip(numbers, _weights(direction, [read[number] for number in numbers], reverse)):
            found[number] = links(join_words(weights, read[number]), threshold=THRESHOLD)
    return found


def _weights(direction: Direction, pairs: Sequence[TokenPair], reverse: WordAligner | None) -> np.ndarray:
    rows = {"source": [pair.source.ids for pair in pairs], "target": [pair.target for pair in pairs]}
    columns = {name: Sequences(ids, len(one)) for (name, ids), one in zip(rows.items(), direction.tokenizers)}
    widths = [int(column.lengths.max()) for column in columns.values()]
    source, target = PaddedExamples(columns).batch(np.arange(len(pairs)), widths)
    return direction.model.align(source, source > 0, target, target > 0, reverse).dense().double().numpy()
