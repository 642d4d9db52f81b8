"""Five problems that need a memory: endless streams of sequences, generated from a seed, without files.

    copy         8-bit vectors, a delimiter; then the same again                          length: vectors, 1-20
    repeat_copy  8-bit vectors, how often; then that many copies and an end marker        length: vectors, 1-10
    recall       items of three 6-bit vectors, one of them again; then the item after it  length: items, 2-6
    ngrams       bits drawn by a table of 2⁵ chances; predict each next one               length: bits, 200
    sort         8-bit vectors with priorities; then the first four fifths by priority    length: vectors, 20

Paper: Neural Turing Machines (Graves, Wayne, Danihelka, 2014), section 4 (the codings), eq. 10 (the best estimator)
Names: N_1, N_0 = ones and zeros seen so far after the same five bits
Complexity: a batch of B sequences of T steps takes O(B T) time
Differs: all sequences of a batch are of one length, so nothing is padded. The number of copies is scaled as the paper's
    range 1-10 has it (mean 0, variance 1) for any range that is drawn from, so that a number always means the same and
    is never 0. Items of one sequence differ, so that every query has one answer; an item's right delimiter is the left
    one of the next, and the query's delimiters have their own channel. n-gram bits without a whole context are not
    scored, since they cannot be learned. Sorting has no delimiter: its priorities end when the answer is due.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from foci.checks import check_shape
from foci.data.batching import BatchStream, DummyBatch
from foci.errors import ConfigError, unknown_name
from foci.tasks.memorize.config import (
    BitVectorOptions,
    CopyOptions,
    NGramsOptions,
    ProblemOptions,
    RecallOptions,
    RepeatCopyOptions,
    SortOptions,
)

_TRAIN = 0
_SPLITS = {"valid": 1, "test": 2}
"""First numbers of the seeds: held-out sequences are drawn separately from training sequences."""

Bits = NDArray[np.float32]


class Episodes(NamedTuple):
    """Sequences of one length: inputs, targets, and the steps at which the targets are scored."""

    inputs: Float[Tensor, "B T I"]
    targets: Float[Tensor, "B T O"]
    scored: Bool[Tensor, "B T"]


@dataclass(frozen=True, kw_only=True)
class Problem(ProblemOptions, ABC):
    """The base of all five: a range of lengths, of which one is drawn for each batch."""

    @property
    @abstractmethod
    def channels(self) -> tuple[int, int]:
        """Channels of the inputs, and of the targets."""

    def draw(self, chance: np.random.Generator, rows: int, length: int | None = None) -> Episodes:
        """Return this many sequences, of this length or of one from the range."""
        if length is None:
            length = int(chance.integers(self.min_length, self.max_length + 1))
        self.check_length("length", length)
        inputs, targets, scored = self._make(chance, rows, length)
        return Episodes(torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(scored).repeat(rows, 1))

    def eased(self, share: float) -> Problem:
        """Return the problem with smaller ranges, ``share`` of the way from the shortest sequences to all of them.

        Ranges grow one after the other: one copy is learned before several.
        """
        sizes = asdict(self)
        ranges = [name.removeprefix("max_") for name in sizes if name.startswith("max_")]
        for number, name in enumerate(ranges):
            least = self.shortest if name == "length" else 1
            grown = min(max(share * len(ranges) - number, 0.0), 1.0)
            sizes[f"max_{name}"] = least + int((sizes[f"max_{name}"] - least) * grown)
            sizes[f"min_{name}"] = min(sizes[f"min_{name}"], sizes[f"max_{name}"])
        return type(self)(**sizes)

    def held_out(
        self, rows: int, *, length: int | None = None, split: str = "test", seed: int = 0, part: int = 0
    ) -> Episodes:
        """Return sequences that `EpisodeBatches` does not draw; each ``part`` of a split has others."""
        if split not in _SPLITS:
            raise unknown_name("split", split, _SPLITS)
        return self.draw(np.random.default_rng([_SPLITS[split], seed, length or 0, part]), rows, length)

    def optimal_bits(self, episodes: Episodes) -> Float[Tensor, " B"] | None:
        """Return the cost of the best possible prediction, where it is not 0."""
        return None

    @abstractmethod
    def _make(self, chance: np.random.Generator, rows: int, length: int) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        """Return inputs, targets, and which steps are scored ``(T,)``."""


@dataclass(frozen=True, kw_only=True)
class _BitVectors(BitVectorOptions, Problem):
    """Vectors of ``width`` random bits, and one more channel: a delimiter, a number of copies or a priority."""

    @property
    def channels(self) -> tuple[int, int]:
        """The bits and the other channel; the bits."""
        return self.width + 1, self.width


@dataclass(frozen=True, kw_only=True)
class Copy(CopyOptions, _BitVectors):
    """Vectors of random bits, then a delimiter on its own channel; the targets are the vectors again.

    Example:
        >>> inputs, targets, scored = Copy(width=2).held_out(1, length=3)
        >>> inputs.shape, targets.shape
        (torch.Size([1, 7, 3]), torch.Size([1, 7, 2]))
        >>> scored.int().tolist()
        [[0, 0, 0, 0, 1, 1, 1]]
        >>> torch.equal(targets[:, 4:], inputs[:, :3, :2])
        True
    """

    def _make(self, chance: np.random.Generator, rows: int, length: int) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        bits = _bits(chance, rows, length, self.width)
        inputs, targets, scored = _blank(rows, 2 * length + 1, *self.channels)
        inputs[:, :length, : self.width] = bits
        inputs[:, length, self.width] = 1
        targets[:, length + 1 :] = bits
        scored[length + 1 :] = True
        return inputs, targets, scored


@dataclass(frozen=True, kw_only=True)
class RepeatCopy(RepeatCopyOptions, _BitVectors):
    """Vectors, then the number of copies on its own channel; the targets are the copies, then an end marker."""

    @property
    def channels(self) -> tuple[int, int]:
        """The bits and the other channel; the bits and the end marker."""
        return self.width + 1, self.width + 1

    def _make(self, chance: np.random.Generator, rows: int, length: int) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        repeats = int(chance.integers(self.min_repeats, self.max_repeats + 1))
        bits = _bits(chance, rows, length, self.width)
        inputs, targets, scored = _blank(rows, length + 1 + length * repeats + 1, *self.channels)
        inputs[:, :length, : self.width] = bits
        # Mean and variance of a number from 1 to 10.
        inputs[:, length, self.width] = (repeats - 5.5) / math.sqrt(8.25)
        targets[:, length + 1 : -1, : self.width] = np.tile(bits, (1, repeats, 1))
        targets[:, -1, self.width] = 1
        scored[length + 1 :] = True
        return inputs, targets, scored


@dataclass(frozen=True, kw_only=True)
class Recall(RecallOptions, Problem):
    """Items, each after a delimiter, then one of them between two delimiters of another kind; the target is the next.

    An item is ``item_length`` vectors of ``width`` bits.
    """

    @property
    def channels(self) -> tuple[int, int]:
        """The bits, the delimiter of items, and that of the query; the bits."""
        return self.width + 2, self.width

    def _make(self, chance: np.random.Generator, rows: int, length: int) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        size, width = self.item_length, self.width
        items = self._items(chance, rows, length)
        cues = chance.integers(0, length - 1, size=rows)
        every = np.arange(rows)
        query = length * (size + 1)
        answer = query + size + 2
        inputs, targets, scored = _blank(rows, answer + size, *self.channels)
        inputs[:, 0 : query : size + 1, width] = 1
        for vector in range(size):
            inputs[:, vector + 1 : query : size + 1, :width] = items[:, :, vector]
        inputs[:, [query, answer - 1], width + 1] = 1
        inputs[:, query + 1 : answer - 1, :width] = items[every, cues]
        targets[:, answer:] = items[every, cues + 1]
        scored[answer:] = True
        return inputs, targets, scored

    def _items(self, chance: np.random.Generator, rows: int, length: int) -> Bits:
        """Return different items in each row, ``(row, item, vector, bit)``."""
        size = self.item_length * self.width
        drawn = [chance.choice(2**size, length, replace=False) for _ in range(rows)]
        bits = (np.array(drawn, np.int64).reshape(rows, length, 1) >> np.arange(size)) & 1
        return bits.reshape(rows, length, self.item_length, self.width).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class NGrams(NGramsOptions, Problem):
    """Bits of a random n-gram model, one per sequence; the target of each step is the next bit.

    The chance of a 1 after each context of ``context`` bits is drawn from Beta(½, ½).
    """

    @property
    def channels(self) -> tuple[int, int]:
        """The bit; the next one."""
        return 1, 1

    def optimal_bits(self, episodes: Episodes) -> Float[Tensor, " B"]:
        """Return the cost of the Bayesian estimator for the tables' prior: P(1) = (N₁ + ½) / (N₁ + N₀ + 1)."""
        bits = torch.cat([episodes.inputs[:, :1, 0], episodes.targets[:, :, 0]], dim=1).long()
        every = torch.arange(len(bits))
        seen = torch.zeros(len(bits), 2**self.context, 2, dtype=torch.float64)
        cost = torch.zeros(len(bits), dtype=torch.float64)
        powers = 2 ** torch.arange(self.context - 1, -1, -1)
        for step in range(self.context, bits.shape[1]):
            before = (bits[:, step - self.context : step] * powers).sum(dim=1)
            counts, bit = seen[every, before], bits[:, step]
            cost -= ((counts[every, bit] + 0.5) / (counts.sum(dim=1) + 1)).log2()
            seen[every, before, bit] += 1
        return cost.float()

    def _make(self, chance: np.random.Generator, rows: int, length: int) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        ones = chance.beta(0.5, 0.5, size=(rows, 2**self.context))
        bits = chance.integers(0, 2, size=(rows, length))
        powers = 2 ** np.arange(self.context - 1, -1, -1)
        every = np.arange(rows)
        for step in range(self.context, length):
            before = bits[:, step - self.context : step] @ powers
            bits[:, step] = chance.random(rows) < ones[every, before]
        sequence = bits[:, :, None].astype(np.float32)
        # The context is complete from its last bit on.
        scored = np.arange(length - 1) >= self.context - 1
        return np.ascontiguousarray(sequence[:, :-1]), np.ascontiguousarray(sequence[:, 1:]), scored


@dataclass(frozen=True, kw_only=True)
class Sort(SortOptions, _BitVectors):
    """Vectors, each with a priority from −1 to 1 on its own channel; the targets are the highest, highest first.

    Of 20 vectors 16 are targets, of other numbers the same share.
    """

    def _make(self, chance: np.random.Generator, rows: int, length: int) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        num_sorted = math.ceil(length * 4 / 5)
        bits = _bits(chance, rows, length, self.width)
        priorities = chance.uniform(-1, 1, size=(rows, length)).astype(np.float32)
        inputs, targets, scored = _blank(rows, length + num_sorted, *self.channels)
        inputs[:, :length, : self.width] = bits
        inputs[:, :length, self.width] = priorities
        order = np.argsort(-priorities, axis=1, kind="stable")[:, :num_sorted]
        targets[:, length:] = np.take_along_axis(bits, order[:, :, None], axis=1)
        scored[length:] = True
        return inputs, targets, scored


PROBLEMS: dict[str, type[Problem]] = {
    "copy": Copy,
    "repeat_copy": RepeatCopy,
    "recall": Recall,
    "ngrams": NGrams,
    "sort": Sort,
}
"""Name -> class of the problem."""


def _rows(batch: Episodes, rows: slice) -> Episodes:
    return Episodes(*(part[rows] for part in batch))


class EpisodeBatches(BatchStream):
    """An endless stream of batches that can be saved and resumed at any batch; each is made from its own number.

    Args:
        problem: the problem.
        batch_size: sequences in a batch, over all processes.
        curriculum: number of batches over which the problem's ranges grow from the smallest ones; see `Problem.eased`.
        seed: of the stream.
        rank, world_size: which rows of each batch this process gets.

    Example:
        >>> batches = EpisodeBatches(Copy(), batch_size=3)
        >>> len(next(iter(batches)).inputs), batches.state_dict()["position"]
        (3, 1)
    """

    position_names: ClassVar[tuple[str, ...]] = ("position",)

    def __init__(
        self,
        problem: Problem,
        *,
        batch_size: int,
        curriculum: int = 0,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(seed, rank, world_size, batch_size=batch_size)
        if curriculum < 0:
            raise ConfigError(f"EpisodeBatches: curriculum is {curriculum}, expected 0 or more.")
        self.problem, self.batch_size, self.curriculum = problem, batch_size, curriculum

    def __iter__(self) -> Iterator[Episodes | DummyBatch[Episodes]]:
        while True:
            (position,) = self._position
            chance = np.random.default_rng([_TRAIN, self.seed, position])
            problem = self.problem if position >= self.curriculum else self.problem.eased(position / self.curriculum)
            batch = problem.draw(chance, self.batch_size)
            self._position = (position + 1,)
            yield self._share(self.batch_size, partial(_rows, batch))

    def largest(self) -> Episodes:
        """Return the largest share of a batch of the greatest length."""
        sizes = asdict(self.problem)
        sizes |= {name: sizes[name.replace("min_", "max_")] for name in sizes if name.startswith("min_")}
        batch = type(self.problem)(**sizes).draw(np.random.default_rng(0), self.batch_size)
        return _rows(batch, slice(None, None, self.world_size))

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "curriculum": self.curriculum,
            "problem": repr(self.problem),
        }


def cost_bits(logits: Float[Tensor, "B T O"], episodes: Episodes) -> Float[Tensor, " B"]:
    """Return bits per sequence, the paper's measure: cross-entropy to base 2, summed over channels and scored steps."""
    check_shape("cost_bits", "logits", logits, *episodes.targets.shape, fix="That is the targets' shape.")
    nats = F.binary_cross_entropy_with_logits(logits.float(), episodes.targets, reduction="none").sum(dim=-1)
    return (nats * episodes.scored).sum(dim=1) / math.log(2)


def wrong_bits(logits: Float[Tensor, "B T O"], episodes: Episodes) -> Float[Tensor, " B"]:
    """Return the number of wrong bits at the scored steps, with a threshold of ½."""
    check_shape("wrong_bits", "logits", logits, *episodes.targets.shape, fix="That is the targets' shape.")
    wrong = ((logits > 0) != (episodes.targets > 0.5)).sum(dim=-1)
    return (wrong * episodes.scored).sum(dim=1).float()


def _bits(chance: np.random.Generator, *shape: int) -> Bits:
    return chance.integers(0, 2, size=shape).astype(np.float32)


def _blank(rows: int, steps: int, input_dim: int, output_dim: int) -> tuple[Bits, Bits, NDArray[np.bool_]]:
    inputs, targets = (np.zeros((rows, steps, size), np.float32) for size in (input_dim, output_dim))
    return inputs, targets, np.zeros(steps, np.bool_)
