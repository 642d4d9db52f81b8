"""Guided attention: a loss that leads an attention to the source along links of words.

    loss = −Σ_t Σ_s a_ts log w_ts,   a_ts = 1 / (number of tokens that t is linked with), 0 for all others

t are the target's tokens, w_t the weights of the step that predicts t, or with ``shift`` of the step after it, which
has read t. Links are of words; all tokens of a word have its links. A token without links has no loss.

Paper: Guided Alignment Training for Topic-Aware Neural Machine Translation (Chen, Matusov, Khadivi, Peter, 2016), eqs.
    5-8: the cross-entropy of one attention; Jointly Learning to Align and Translate with Transformer Models (Garg,
    Peitz, Nallasamy, Paulik, 2019), section 4.2: one head of the layer before the last
Names: a = guide, w = weights
Differs: Garg et al. guide a second pass over the target that also sees what comes later; here it is the pass that
    predicts, and ``shift`` shows it the token itself. Links of no file are those of foci's own aligners.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from foci.data import Pair, PairExamples, Sequences
from foci.data.batching import Indices
from foci.data.lines import read_lines, strict
from foci.errors import CheckpointError, ConfigError
from foci.layers.copying import CopySource
from foci.metrics.alignments import parse_gold
from foci.metrics.attention import Links, parse_pharaoh
from foci.tasks.translate.aligning import TokenPair, count_words, guided_reading
from foci.tasks.translate.config import GuidanceConfig
from foci.weights import Weights


class TrainingLinks:
    """The links of the words of each training pair, which a run keeps as lines of Pharaoh's form.

    Args:
        lines: one for each pair; none without guidance.
    """

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self.lines = list(lines)

    def of(self, numbers: Iterable[int]) -> Iterator[Links]:
        """Yield the links of these pairs."""
        for number in numbers:
            (found,) = parse_pharaoh(self.lines[number]) or [Links(frozenset())]
            yield found

    def to_text(self) -> str:
        """Return the lines as a JSON list."""
        return json.dumps(self.lines)

    @classmethod
    def from_text(cls, text: str, origin: str) -> TrainingLinks:
        """Parse the result of `to_text`; ``origin`` is for messages."""
        try:
            lines = json.loads(text)
        except ValueError as error:
            raise CheckpointError(f"{origin}: is not what foci wrote ({error}). Restore the file.") from error
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise CheckpointError(f"{origin}: is no list of texts, expected a line of links for each pair. Restore it.")
        return cls(lines)


def links_of_file(path: str, pairs: Sequence[Pair], trained: Sequence[Pair]) -> list[Links]:
    """Return the links of the pairs to train on from a file with a line for each pair of the data.

    Args:
        path: of the file, in Pharaoh's form.
        pairs: all pairs of the data, in its order.
        trained: those to train on, equal ones in the same order.

    Raises:
        DataError: the links are not those of these pairs; the message names the line.
    """
    sizes = [(count_words(pair.source), count_words(pair.target)) for pair in pairs]
    by_pair: dict[Pair, deque[Links]] = {}
    for pair, one in zip(pairs, parse_gold(list(strict(read_lines(Path(path)))), sizes, path)):
        by_pair.setdefault(pair, deque()).append(one)
    return [by_pair[pair].popleft() for pair in trained]


class GuidedBatch(NamedTuple):
    """A `foci.data.batching.Batch`, and what its attention is led to."""

    source: Int[Tensor, "B S"] | CopySource
    source_valid: Bool[Tensor, "B S"]
    target: Int[Tensor, "B T"]
    target_valid: Bool[Tensor, "B T"]
    guide: Float[Tensor, "B T-1 S"]
    """a: a distribution over the source for each step, or zeros."""


class GuidedExamples:
    """Sentence pairs as token ids, with the links of their tokens.

    Args:
        examples: the pairs.
        pairs: the same, with the words of their tokens.
        links: of the words of each.
        shift: whether the step after a token is led, instead of the one that predicts it.
    """

    def __init__(
        self, examples: PairExamples, pairs: Iterable[TokenPair], links: Iterable[Links], *, shift: bool
    ) -> None:
        self.examples, self.shift = examples, shift
        linked = (linked_tokens(*both) for both in zip(pairs, links, strict=True))
        self._linked = Sequences(([*chain(*one)] for one in linked), 1 + int(examples.lengths.max(initial=0)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(pair, 2)``: of the source, and of the target with BOS and EOS."""
        return self.examples.lengths

    def batch(self, indices: Indices, widths: Sequence[int]) -> GuidedBatch:
        """Return these pairs, padded, with what their attention is led to."""
        guide = np.zeros((len(indices), widths[1] - 1, widths[0]), dtype=np.float32)
        for row, index in enumerate(indices.tolist()):
            targets, sources = np.array(self._linked[index], dtype=int).reshape(-1, 2).T
            guide[row, targets + self.shift, sources] = 1.0
        guide /= guide.sum(axis=2, keepdims=True).clip(min=1.0)
        return GuidedBatch(*self.examples.batch(indices, widths), torch.from_numpy(guide))


def linked_tokens(pair: TokenPair, links: Links) -> list[tuple[int, int]]:
    """Return the numbers of a target's and a source's token for each two whose words are linked."""
    by_word: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for tokens, words in zip(by_word, (pair.source_words, pair.target_words)):
        for token, word in enumerate(words):
            tokens.setdefault(word, []).append(token)
    return [both for j, i in sorted(links.all) for both in product(by_word[1].get(i, []), by_word[0].get(j, []))]


def guidance_loss(weights: Weights, guide: Float[Tensor, "B L S"]) -> Float[Tensor, ""]:
    """Return the cross-entropy between the guide and the weights ``(B, L, S)``, summed over all steps.

    Of sampled attention it is that of the probabilities it is sampled from. A weight of 0 counts as the least number.
    """
    dense = weights.probabilities.dense()
    if torch.is_grad_enabled() and not dense.requires_grad:
        raise ConfigError(
            "guidance: the weights of the attention have no gradient, expected some that can be led. Choose another "
            "model.attention.normalize, or leave guidance out."
        )
    dense = dense if dense.dtype == torch.float64 else dense.float()
    return -(guide * dense.clamp_min(torch.finfo(dense.dtype).tiny).log()).sum()


def guided_weights(guidance: GuidanceConfig, attentions: Mapping[str, Weights]) -> Weights:
    """Return the weights ``(B, L, S)`` that are led, of all attentions of a pass."""
    crossing = {name: weights for name, weights in attentions.items() if name.endswith("cross")}
    heads = {name: one.shape[1] if len(one.shape) == 4 else 1 for name, one in crossing.items()}
    read = guided_reading(guidance, heads)
    weights = crossing[read.attention]
    return weights if len(weights.shape) == 3 else weights.heads(read.head or 0)
