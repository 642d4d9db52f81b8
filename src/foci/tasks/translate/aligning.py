"""Word alignments from attention: the target is given, and what its tokens read is joined to words.

    W_ij = mean over the tokens t of target word i of Σ over the tokens s of source word j of w_ts

The row of a token is the step that predicts it. With ``shift`` it is the step after, whose state has read the token.
With the method "gradient" w_ts is max(0, w_ts · ∂ log P(target | source) / ∂w_ts) of each head.

Paper: Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015), section
    5.2.1; Jointly Learning to Align and Translate with Transformer Models (Garg et al., 2019): the mean over the heads
    of the layer before the last; Accurate Word Alignment Induction from Neural Machine Translation (Chen et al., 2020):
    the shift, and choosing the layer by the agreement of both directions
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foci.data import BOS, PAD, Pair, Tokenizer
from foci.data.copy_ids import SourceRow
from foci.data.tokenizer import Encoding
from foci.errors import ConfigError, unknown_name
from foci.metrics.alignments import agreement, transposed
from foci.metrics.attention import Links, links
from foci.recording import Recording, record
from foci.tasks.frame.prediction_loop import by_length
from foci.tasks.frame.seq2seq_task import Seq2SeqTask, padded
from foci.tasks.frame.task import Progress, Record
from foci.tasks.translate.config import AlignOptions, GuidanceConfig

if TYPE_CHECKING:
    from foci.tasks.frame.predictor import Predictor

CHOSEN_ON = 500
"""Pairs that a reading is chosen on, at most."""
_WORDS = re.compile(r"\S+")
_Weights = NDArray[np.float64]


class Reading(NamedTuple):
    """Which weights are read: of an attention, of one head or of the mean of all, at the step itself or after it."""

    attention: str
    head: int | None = None
    shift: bool = False

    def __str__(self) -> str:
        head = "" if self.head is None else f", head {self.head}"
        return f"{self.attention}{head}{', one step later' if self.shift else ''}"


class WordAlignment(NamedTuple):
    """The alignment of a sentence pair."""

    links: Links
    """As ``(source word, target word)``, zero-based."""
    weights: _Weights
    """``(target word, source word)``."""
    read: Reading | None = None
    """What was read."""
    note: str = ""
    """Why there is no alignment, if there is none."""


class TokenPair(NamedTuple):
    """A sentence pair as the model reads it, with the word of each token (-1: none), and the numbers of words."""

    source: SourceRow
    target: list[int]
    source_words: list[int]
    target_words: list[int]
    sizes: tuple[int, int]


def default_attention(names: Iterable[str]) -> str:
    """Return the attention to the source that is read where none is named: of several that of the layer before last."""
    known = list(names)
    return known[max(len(known) - 2, 0)]


def guided_reading(guidance: GuidanceConfig, heads: Mapping[str, int]) -> Reading:
    """Return what guidance leads, given the number of heads of each attention to the source."""
    name = guidance.attention or default_attention(heads)
    if name not in heads:
        raise unknown_name("attention to the source", name, heads)
    if guidance.head >= heads[name]:
        raise ConfigError(
            f"guidance.head is {guidance.head}, but {name!r} has {heads[name]} (zero-based). Name one of them, or "
            "leave it out."
        )
    return Reading(name, guidance.head if heads[name] > 1 else None, guidance.shift)


class AlignmentReader:
    """Reads the alignments of a translation run.

    Args:
        task: of the run.
        model, assets: of the run.
        options: which weights, and how.
    """

    def __init__(self, task: Seq2SeqTask, model: Any, assets: Any, options: AlignOptions) -> None:
        self.task, self.model, self.assets, self.options = task, model, assets, options

    def align(
        self, records: Sequence[Record], progress: Progress, reading: Reading | None = None
    ) -> list[WordAlignment]:
        """Return the alignment of each pair by one reading; a pair that cannot be read has none, with the reason."""
        found: dict[int, WordAlignment] = {}
        pairs = dict(enumerate(self._token_pairs(records)))
        for number, pair in pairs.items():
            if isinstance(pair, str):
                found[number] = WordAlignment(Links(frozenset()), np.zeros((0, 0)), None, pair)
        progress(len(found))
        usable = {number: pair for number, pair in pairs.items() if isinstance(pair, TokenPair)}
        for number, weights in self._read(usable, reading):
            read = reading or self.default(weights)
            joined = _join(weights, usable[number], read)
            found[number] = WordAlignment(links(joined, threshold=self.options.threshold), joined, read)
            progress(1)
        return [found[number] for number in range(len(records))]

    def default(self, weights: Mapping[str, Any]) -> Reading:
        """Return what is read where it is not chosen: what was guided, else the layer before the last, all heads."""
        return self._guided(weights) or self._named(self.options.attention or default_attention(weights), weights)

    def _named(self, attention: str, weights: Mapping[str, Any]) -> Reading:
        reading = Reading(attention, self.options.head, self.options.shift)
        self._check(reading, weights)
        return reading

    def _guided(self, weights: Mapping[str, Any]) -> Reading | None:
        """Return what training has led along links, if the options leave everything open."""
        options, guidance = self.options, self.task.config.guidance
        if not guidance.weight or options.attention is not None or options.head is not None or options.shift:
            return None
        return guided_reading(guidance, {name: len(one) for name, one in weights.items()})

    def every(self, records: Sequence[Record]) -> list[dict[Reading, Links]]:
        """Return the links of every reading that the options leave open, of each pair that can be read.

        A pair that cannot has no links in any of them.
        """
        pairs = {number: one for number, one in enumerate(self._token_pairs(records)) if isinstance(one, TokenPair)}
        found = {}
        for number, weights in self._read(pairs, None):
            joined = {one: _join(weights, pairs[number], one) for one in self._open(weights)}
            found[number] = {one: links(words, threshold=self.options.threshold) for one, words in joined.items()}
        if not found:
            return []
        none = dict.fromkeys(next(iter(found.values())), Links(frozenset()))
        return [found.get(number, none) for number in range(len(records))]

    def _open(self, weights: Mapping[str, Any]) -> list[Reading]:
        if guided := self._guided(weights):
            return [guided]
        options, found = self.options, []
        for name in [options.attention] if options.attention else weights:
            count = weights[name].shape[0] if name in weights else 1
            heads = [options.head] if options.head is not None else [None, *(range(count) if count > 1 else ())]
            shifts = (True,) if options.shift else (False, True)
            found += [Reading(name, head, shift) for head, shift in product(heads, shifts)]
        for reading in found:
            self._check(reading, weights)
        return found

    @staticmethod
    def _check(reading: Reading, weights: Mapping[str, Any]) -> None:
        if reading.attention not in weights:
            raise unknown_name("attention to the source", reading.attention, weights)
        count = weights[reading.attention].shape[0]
        if reading.head is not None and reading.head >= count:
            raise ConfigError(
                f"align: head is {reading.head}, but {reading.attention!r} has {count} (zero-based). Name one of them, "
                "or leave it out."
            )

    def _token_pairs(self, records: Sequence[Record]) -> Iterator[TokenPair | str]:
        """Yield the tokens of each pair, or why it cannot be read."""
        tokenizers = self.task.tokenizers(self.assets)
        rows = self.task.source_rows(self.assets, [record["source"] for record in records])
        encoder = getattr(self.model, "encoder", None)
        limits = [getattr(part, "max_length", None) for part in (encoder, self.model)]
        for row, one in zip(rows, records, strict=True):
            pair = token_pair(row, one["source"], one["target"], tokenizers)
            if not all(pair.sizes):
                yield "a side is empty"
                continue
            lengths = (len(row.ids), len(pair.target) + 1)
            if over := [length for length, limit in zip(lengths, limits) if limit is not None and length > limit]:
                yield f"{over[0]:,} tokens, more than the positions that the model has"
                continue
            yield pair

    def _read(
        self, pairs: Mapping[int, TokenPair], reading: Reading | None
    ) -> Iterator[tuple[int, dict[str, _Weights]]]:
        """Yield the number of each pair with its attentions ``(H, L, S)``, pairs of about equal length together."""
        numbers = list(pairs)
        sizes = [max(len(pair.source.ids), len(pair.target) + 1) for pair in pairs.values()]
        for places in by_length(sizes, self.options.batch_tokens):
            some = [numbers[place] for place in places]
            weights = forced_weights(self.model, [pairs[number] for number in some], self.options.method)
            for place, number in enumerate(some):
                yield number, {name: one[place] for name, one in weights.items()}


def align_both(
    forward: Predictor,
    backward: Predictor,
    pairs: Sequence[Record],
    options: AlignOptions,
    progress: Progress,
) -> tuple[list[WordAlignment], list[WordAlignment], float]:
    """Return the alignments by two runs of opposite directions, both source-target, and the agreement of their links.

    What the options leave open is chosen by the agreement of both directions on the first `CHOSEN_ON` pairs, which
    needs no gold alignments.

    Args:
        forward: translates from source to target.
        backward: translates from target to source.
        pairs: records with source and target.
        options: of both; a named attention or head counts for both.
        progress: called with the number of pairs that were just done, of one direction and of the other.
    """
    turned = [{"source": pair["target"], "target": pair["source"]} for pair in pairs]
    readers = [AlignmentReader(run.task, run.model, run.assets, options) for run in (forward, backward)]  # type: ignore[arg-type]
    normal = [[run.task.normal(pair) for pair in some] for run, some in ((forward, pairs), (backward, turned))]
    *chosen, _ = most_agreeing(*(reader.every(some[:CHOSEN_ON]) for reader, some in zip(readers, normal)))
    there, back = (reader.align(some, progress, reading) for reader, some, reading in zip(readers, normal, chosen))
    back = [one._replace(links=transposed(one.links), weights=one.weights.T) for one in back]
    return there, back, agreement((one.links for one in there), (one.links for one in back))


def most_agreeing(
    forward: Sequence[Mapping[Reading, Links]], backward: Sequence[Mapping[Reading, Links]]
) -> tuple[Reading, Reading, float]:
    """Return the readings of two directions whose links agree most, and by how much; of equal ones the first.

    Args:
        forward: of each pair, the links of every reading of the model from source to target.
        backward: the same of the model from target to source, whose links have the other order.
    """
    if not forward or not backward:
        raise ConfigError("align: no pair can be read, expected one at least to choose the attention on.")
    turned = [{reading: transposed(found) for reading, found in one.items()} for one in backward]
    scored = [
        (agreement([at[one] for at in forward], [at[other] for at in turned]), one, other)
        for one, other in product(forward[0], turned[0])
    ]
    best, one, other = max(scored, key=lambda row: row[0])
    return one, other, best


def forced_weights(model: Any, pairs: Sequence[TokenPair], method: str) -> dict[str, _Weights]:
    """Return the attentions to the source ``(B, H, L, S)`` by name, L of the target's tokens and its end."""
    source, valid = padded(model, [pair.source for pair in pairs])
    longest = max(len(pair.target) for pair in pairs)
    read = torch.full((len(pairs), longest + 1), PAD, device=valid.device)
    for row, pair in zip(read, pairs):
        row[: len(pair.target) + 1] = torch.tensor([BOS, *pair.target])
    if method == "weights":
        with torch.no_grad():
            attentions = model(source, valid, read).attentions
        found = {name: weights.dense() for name, weights in attentions.items() if name.endswith("cross")}
    else:
        found = _times_gradient(model, source, valid, read)
    if not found:
        raise ConfigError("align: the model has no attention to the source. Train one that has.")
    shaped = {name: one.unsqueeze(1) if one.dim() == 3 else one for name, one in found.items()}
    return {name: one.detach().cpu().double().numpy() for name, one in shaped.items()}


def _times_gradient(model: Any, source: Any, valid: Tensor, read: Tensor) -> dict[str, Tensor]:
    """Return the weights times the gradient of the log-probability of the whole target, where that is above 0."""
    with torch.enable_grad(), record(model, gradients=True) as tape:
        predicted = model(source, valid, read)
        chosen = predicted.logits.log_softmax(dim=-1)[:, :-1].gather(2, read[:, 1:, None]).squeeze(2)
        (chosen * (read[:, 1:] != PAD)).sum().backward()
    model.zero_grad(set_to_none=True)
    names = [name for name in predicted.attentions if name.endswith("cross")]
    # The tape has the names of modules, in the same order.
    paths = [path for path in tape.paths if path.startswith("decoder.") and not path.endswith("self_attention")]
    return {name: _product(tape, path, name) for name, path in zip(names, paths, strict=True)}


def _product(tape: Recording, path: str, name: str) -> Tensor:
    """Return the products of all calls, one below the other: a recurrent decoder may read at every step."""
    calls = [(weights.dense().detach(), tape.gradient(path, number)) for number, weights in enumerate(tape.calls(path))]
    products = [(one * slope).clamp_min(0.0) for one, slope in calls if slope is not None]
    if len(products) < len(calls):
        raise ConfigError(
            f"align: method is 'gradient', but the weights of {name!r} have no gradient: it reads a part of the source "
            "at a time. Use the method weights."
        )
    return torch.cat(products, dim=-2)


def _join(weights: Mapping[str, _Weights], pair: TokenPair, reading: Reading) -> _Weights:
    """Return the weights between words of one reading."""
    heads = weights[reading.attention]
    rows = heads.mean(axis=0) if reading.head is None else heads[reading.head]
    return join_words(rows[int(reading.shift) :], pair)


def join_words(weights: _Weights, pair: TokenPair) -> _Weights:
    """Return the weights between words, averaged over the target's tokens and summed over the source's.

    Args:
        weights: of the target's tokens over the source's, as many as the pair has or more, which are left out.
        pair: which token belongs to which word; a token of white space belongs to none, and is left out.
    """
    targets, sources = np.array(pair.target_words, dtype=int), np.array(pair.source_words, dtype=int)
    average, total = np.zeros((pair.sizes[1], len(targets))), np.zeros((len(sources), pair.sizes[0]))
    average[targets[targets >= 0], np.flatnonzero(targets >= 0)] = 1.0
    average /= average.sum(axis=1, keepdims=True).clip(min=1.0)
    total[np.flatnonzero(sources >= 0), sources[sources >= 0]] = 1.0
    joined: _Weights = average @ weights[: len(targets), : len(sources)] @ total
    return joined


def token_pair(row: SourceRow, source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer]) -> TokenPair:
    """Return a sentence pair as tokens, with the words that they belong to: what stands between spaces."""
    read, produced = (tokenizer.encode(text) for tokenizer, text in zip(tokenizers, (source, target)))
    return _with_words(row, produced.ids, (read, produced), (source, target))


def token_pairs(pairs: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer]) -> Iterator[TokenPair]:
    """Return what `token_pair` does of many sentence pairs, in order."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    sides = (tokenizers[0].encodings(sources), tokenizers[1].encodings(targets))
    for pair, read, produced in zip(pairs, *sides):
        yield _with_words(SourceRow(read.ids, [], []), produced.ids, (read, produced), pair)


def _with_words(row: SourceRow, target: list[int], sides: Sequence[Encoding], texts: Sequence[str]) -> TokenPair:
    spans = [[found.span() for found in _WORDS.finditer(text)] for text in texts]
    read, produced = (_owners(side.offsets, text, words) for side, text, words in zip(sides, texts, spans))
    return TokenPair(row, target, read, produced, (len(spans[0]), len(spans[1])))


def count_words(text: str) -> int:
    """Return how many words a text has."""
    return len(_WORDS.findall(text))


def _owners(offsets: Sequence[tuple[int, int]], text: str, words: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of the word in which each token begins, white space aside; -1 for white space alone."""
    begins, found = [first for first, _ in words], []
    for begin, end in offsets:
        begin += len(text[begin:end]) - len(text[begin:end].lstrip())
        word = bisect_right(begins, begin) - 1
        found.append(word if word >= 0 and begin < min(words[word][1], end) else -1)
    return found
