"""Batches of about equal size in tokens, in an order that depends on the seed and the epoch only.

An epoch is shuffled, sorted by length, cut into batches whose padded tensors hold at most ``max_tokens`` tokens each,
and the batches are shuffled. So every example occurs once per epoch, there is little padding, and

- the position (epoch, batch) is the whole state: `load_state_dict` continues bit for bit;
- ``rank`` of ``world_size`` processes gets every world_size-th row of each batch, padded to the width of the whole:
  together they hold exactly the batch of one process. A rank that gets no row of a small batch gets a `DummyBatch`;
- worker processes do not influence the order.

`TokenBatches` uses only the lengths of the examples; `Examples.batch` makes the batches. `PairExamples` are sentence
pairs. `StreamBatches` does the same for files larger than memory, one buffer of records after another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from foci.data.pairs import Pair
from foci.data.tokenizer import BOS, EOS, PAD, Tokenizer
from foci.errors import ConfigError, DataError, check_positive
from foci.layers.copying import CopySource

Made = TypeVar("Made")
Given = TypeVar("Given")
B_co = TypeVar("B_co", covariant=True)
Record = TypeVar("Record")
Indices = NDArray[np.int64]


class Batch(NamedTuple):
    """Sentence pairs, padded with 0. A target is BOS … EOS; ``valid`` says which positions are not padding.

    For a model that copies, the source has its target ids beside it.
    """

    source: Int[Tensor, "B S"] | CopySource
    source_valid: Bool[Tensor, "B S"]
    target: Int[Tensor, "B T"]
    target_valid: Bool[Tensor, "B T"]


class DummyBatch(NamedTuple, Generic[Made]):
    """One row of a batch for a process that gets none of its own: it runs the model as all others do, and counts 0.

    Without it this process would miss the communication in the model's forward and backward pass.
    """

    row: Made


def on_device(batch: Made, device: torch.device) -> Made:
    """Return a named tuple of tensors, which may be nested, on this device."""
    if isinstance(batch, Tensor):
        return cast("Made", batch.to(device))
    return type(batch)(*(on_device(part, device) for part in batch))  # type: ignore[attr-defined]


@runtime_checkable
class Examples(Protocol[B_co]):
    """The interface of examples that can be batched."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(example, tensor)``: the number of tokens of each example in each padded tensor of a batch."""

    def batch(self, indices: Indices, widths: Sequence[int]) -> B_co:
        """Return these examples as one batch, each tensor padded to its width."""


class Sequences:
    """Token ids of many sequences in one flat array, two bytes per id where the vocabulary allows.

    Args:
        sequences: the ids of each.
        vocabulary: number of ids.

    Example:

        >>> sequences = Sequences([[5, 6, 7], [8]], vocabulary=9)
        >>> sequences.lengths, sequences.padded(np.array([1, 0]), 3)[0]
        (array([3, 1]), array([[8, 0, 0],
               [5, 6, 7]]))
    """

    def __init__(self, sequences: Iterable[Sequence[int]], vocabulary: int) -> None:
        flat = array("H" if vocabulary <= 1 << 16 else "i")
        lengths = array("i")
        for sequence in sequences:
            flat.extend(sequence)
            lengths.append(len(sequence))
        self.ids = np.frombuffer(flat, dtype=flat.typecode) if flat else np.zeros(0, dtype=flat.typecode)
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> list[int]:
        ids: list[int] = self.ids[self.starts[index] : self.starts[index + 1]].tolist()
        return ids

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each."""
        return np.diff(self.starts)

    def padded(self, indices: Indices, width: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the chosen sequences as rows of ``width`` ids, padded with 0, and which ids are not padding."""
        starts, lengths = self.starts[indices], self.starts[indices + 1] - self.starts[indices]
        columns = np.arange(width)
        valid = columns < lengths[:, None]
        rows = np.full(valid.shape, PAD, dtype=np.int64)
        rows[valid] = self.ids[(starts[:, None] + columns)[valid]]
        return rows, valid


class PaddedExamples:
    """Examples of one or more sequences each, and of values that are not padded, such as labels.

    A batch is a tuple of tensors: the ids of each of the sequences, padded with 0, then each of the values.

    Args:
        sequences: by name, the ids of each example.
        **values: by name, one number per example.

    Example:
        >>> words = Sequences([[5, 6, 7], [8]], vocabulary=9)
        >>> PaddedExamples({"words": words}, labels=[1, 0]).batch(np.array([1]), [2])
        (tensor([[8, 0]]), tensor([0]))
    """

    def __init__(self, sequences: Mapping[str, Sequences], **values: Sequence[int] | NDArray[np.int64]) -> None:
        counts = {name: len(column) for name, column in [*sequences.items(), *values.items()]}
        if len({*counts.values()}) > 1:
            shown = ", ".join(f"{count} {name}" for name, count in counts.items())
            raise DataError(f"PaddedExamples: {shown}, expected as many of each.")
        self.sequences = dict(sequences)
        self.values = {name: np.asarray(column, dtype=np.int64) for name, column in values.items()}

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(example, sequence)``: the length of each sequence."""
        return np.stack([column.lengths for column in self.sequences.values()], axis=1)

    def batch(self, indices: Indices, widths: Sequence[int]) -> tuple[Tensor, ...]:
        """Return these examples, padded."""
        padded = [column.padded(indices, width)[0] for column, width in zip(self.sequences.values(), widths)]
        return tuple(map(torch.from_numpy, (*padded, *(column[indices] for column in self.values.values()))))


class PairExamples:
    """Sentence pairs as token ids.

    Args:
        source, target: the ids of both sides, without BOS and EOS.
    """

    def __init__(self, source: Sequences, target: Sequences) -> None:
        if len(source) != len(target):
            owner = type(self).__name__
            raise DataError(f"{owner}: {len(source)} sources and {len(target)} targets, expected as many of each.")
        self.source, self.target = source, target

    @classmethod
    def encode(cls, pairs: Iterable[Pair], source: Tokenizer, target: Tokenizer) -> PairExamples:
        """Encode sentence pairs with their tokenizers. They are iterated twice; a generator is kept as a list."""
        pairs = list(pairs) if isinstance(pairs, Iterator) else pairs
        return cls(
            Sequences(source.encode_many(pair.source for pair in pairs), len(source)),
            Sequences(target.encode_many(pair.target for pair in pairs), len(target)),
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(pair, 2)``: of the source, and of the target with BOS and EOS."""
        return np.stack([self.source.lengths, self.target.lengths + 2], axis=1)

    def batch(self, indices: Indices, widths: Sequence[int]) -> Batch:
        """Return these pairs, padded."""
        source, source_valid = self.source.padded(indices, widths[0])
        target, target_valid = framed(self.target, indices, widths[1])
        return Batch(*map(torch.from_numpy, (source, source_valid, target, target_valid)))


class GroupedSequences:
    """Sequences in groups, such as the captions of an image: an example is a group, or a part of a large one.

    Args:
        places: for each sequence, the number of its group.
        sequences: token ids.
        together: a group of more sequences is several examples.
    """

    added: ClassVar[int] = 0
    """Tokens that a batch adds to each sequence."""

    def __init__(self, places: Sequence[int], sequences: Sequences, together: int) -> None:
        if len(places) != len(sequences):
            owner = type(self).__name__
            raise DataError(f"{owner}: {len(places)} places and {len(sequences)} sequences, expected as many of each.")
        self.sequences = sequences
        by_place: dict[int, list[int]] = {}
        for number, place in enumerate(places):
            by_place.setdefault(place, []).append(number)
        self.groups = [
            (place, np.array(numbers[start : start + together]))
            for place, numbers in by_place.items()
            for start in range(0, len(numbers), together)
        ]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(example, 2)``: sequences, and tokens of the longest one."""
        tokens = self.sequences.lengths + self.added
        return np.array([(len(numbers), tokens[numbers].max()) for _, numbers in self.groups]).reshape(-1, 2)

    def numbers(self, indices: Indices) -> Indices:
        """Return the numbers of the sequences of these examples, in the order of a batch."""
        return np.concatenate([self.groups[index][1] for index in indices] or [np.zeros(0, np.int64)])

    def owners(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the place of each of these examples, and for each sequence which of the examples it belongs to."""
        places = np.array([self.groups[index][0] for index in indices], dtype=np.int64)
        return places, np.repeat(np.arange(len(indices)), [len(self.groups[index][1]) for index in indices])


def framed(sequences: Sequences, indices: Indices, width: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the chosen sequences between BOS and EOS, padded with 0 to ``width``, and which ids are not padding."""
    inner, inner_valid = sequences.padded(indices, width - 2)
    rows = len(indices)
    made = np.concatenate([np.full((rows, 1), BOS), inner, np.full((rows, 1), PAD)], axis=1)
    lengths = inner_valid.sum(axis=1)
    made[np.arange(rows), lengths + 1] = EOS
    return made, np.arange(width) < (lengths + 2)[:, None]


class BatchStream(ABC):
    """The base of endless streams of batches that can be saved and resumed at any batch.

    Args:
        seed: of what is drawn.
        rank, world_size: which rows of each batch this process gets.
        workers: processes that prepare batches ahead of time; 0 prepares them in this process.
        sizes: further options, None or positive.
    """

    position_names: ClassVar[tuple[str, ...]] = ("epoch", "position")
    """The names of the numbers of a position in the saved state."""

    def __init__(self, seed: int, rank: int, world_size: int, workers: int = 0, **sizes: int | None) -> None:
        owner = type(self).__name__
        check_positive(owner, **sizes, world_size=world_size)
        for name, value in (("seed", seed), ("workers", workers)):
            if value < 0:
                raise ConfigError(f"{owner}: {name} is {value}, expected 0 or more.")
        if not 0 <= rank < world_size:
            raise ConfigError(f"{owner}: rank is {rank}, expected 0 to {world_size - 1} (world_size is {world_size}).")
        self.seed, self.rank, self.world_size, self.workers = seed, rank, world_size, workers
        self._position: tuple[int, ...] = (0,) * len(self.position_names)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that was yielded, and the identity of the stream; plain numbers."""
        return {**dict(zip(self.position_names, self._position)), **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the position of `state_dict`, with any number of ranks and workers."""
        owner = type(self).__name__
        for name, value in self._identity().items():
            if name not in state or state[name] != value:
                raise ConfigError(
                    f"{owner}: the saved position belongs to another stream: its {name} is {state.get(name)}, here it "
                    f"is {value}. Resume with the same data and options, or start anew."
                )
        position = [state.get(name) for name in self.position_names]
        for name, value in zip(self.position_names, position):
            if not isinstance(value, int) or value < 0:
                raise ConfigError(f"{owner}: the saved {name} is {value!r}, expected a whole number.")
        self._position = tuple(cast("list[int]", position))

    def _share(self, rows: int, make: Callable[[slice], Made]) -> Made | DummyBatch[Made]:
        """Return this process's share of a batch with this many rows, given what makes a batch of some of them."""
        if self.rank < rows:
            return make(slice(self.rank, None, self.world_size))
        return DummyBatch(make(slice(1)))

    def _share_of(self, examples: Examples[Made], indices: Indices, widths: Sequence[int]) -> Made | DummyBatch[Made]:
        return self._share(len(indices), lambda rows: examples.batch(indices[rows], widths))

    @abstractmethod
    def _identity(self) -> dict[str, Any]:
        """Return what a position belongs to: options, and the size of the data."""


class Work(NamedTuple):
    """One batch to make, over all processes, and the position after it."""

    after: tuple[int, ...]
    indices: Indices
    widths: list[int]


class TokenBatches(BatchStream, Generic[Made]):
    """An endless stream of batches, epoch after epoch, that can be saved and resumed at any batch.

    Iterating continues from where the last iteration stopped, also in a new ``for``; `load_state_dict` applies to the
    next ``for``. `epoch` yields one epoch and does not change the position.

    Args:
        examples: the examples, such as `PairExamples`.
        max_tokens: largest number of tokens, padding included, of the largest tensor of a batch.
        seed: of the shuffling.
        max_examples: largest number of examples per batch; None for any number.
        rank, world_size: which rows of each batch this process gets.
        workers: processes that prepare batches ahead of time; 0 prepares them in this process.

    Example:

        >>> words = Sequences([[5, 6], [7], [8, 9, 4]], vocabulary=10)
        >>> batches = TokenBatches(PairExamples(words, words), max_tokens=10, seed=1)
        >>> [len(batch.source) for batch in batches.epoch(0)]
        [2, 1]
    """

    def __init__(
        self,
        examples: Examples[Made],
        *,
        max_tokens: int,
        seed: int = 0,
        max_examples: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
    ) -> None:
        super().__init__(seed, rank, world_size, workers, max_tokens=max_tokens, max_examples=max_examples)
        self.examples, self.max_tokens, self.max_examples = examples, max_tokens, max_examples
        self._lengths = examples.lengths
        if len(self._lengths) == 0:
            raise DataError("TokenBatches: there are no examples.")
        _check_lengths("TokenBatches", self._lengths, max_tokens, 0)

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches per epoch."""
        return len(_cut(np.sort(self._lengths.max(axis=1)), self.max_tokens, self.max_examples))

    def __iter__(self) -> Iterator[Made | DummyBatch[Made]]:
        for after, batch in _ordered_map(self._make, self._work(*self._position), self.workers):
            self._position = after
            yield batch

    def epoch(self, number: int) -> Iterator[Made]:
        """Yield the batches of one epoch, over all processes."""
        return (self.examples.batch(work.indices, work.widths) for work in self._work_of(number, 0))

    def largest(self) -> Made:
        """Return the largest share of the batch with the most tokens, padding included, and the longest rows."""
        plan = plan_batches(self._lengths, self.max_tokens, self.max_examples, [self.seed, 0])
        widths = [self._lengths[indices].max(axis=0) for indices in plan]
        most = max(
            range(len(plan)), key=lambda number: (len(plan[number]) * widths[number].max(), widths[number].max())
        )
        return self.examples.batch(plan[most][:: self.world_size], widths[most].tolist())

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "max_examples": self.max_examples,
            "examples": len(self._lengths),
            "tokens": int(self._lengths.sum()),
        }

    def _work(self, epoch: int, first: int) -> Iterator[Work]:
        while True:
            yield from self._work_of(epoch, first)
            epoch, first = epoch + 1, 0

    def _work_of(self, epoch: int, first: int) -> Iterator[Work]:
        plan = plan_batches(self._lengths, self.max_tokens, self.max_examples, [self.seed, epoch])
        for position in range(first, len(plan)):
            widths = self._lengths[plan[position]].max(axis=0).tolist()
            # After the last batch of an epoch the position is the beginning of the next one.
            after = (epoch, position + 1) if position + 1 < len(plan) else (epoch + 1, 0)
            yield Work(after, plan[position], widths)

    def _make(self, work: Work) -> tuple[Any, Made | DummyBatch[Made]]:
        return work.after, self._share_of(self.examples, work.indices, work.widths)


class StreamBatches(BatchStream, Generic[Record, Made]):
    """`TokenBatches` for records that do not fit in memory: one buffer after another is shuffled and batched.

    The start of a buffer in the file changes from epoch to epoch, so that its records are not always the same. Every
    rank reads and encodes the whole file, and resuming reads, without encoding, the used part of its epoch.

    Args:
        records: can be iterated several times, such as the readers of `foci.data.pairs`.
        encode: makes examples of a list of records, such as ``lambda pairs: PairExamples.encode(pairs, a, b)``.
        buffer: number of records in memory.
        max_tokens, seed, max_examples, rank, world_size: as in `TokenBatches`.
        workers: processes that encode buffers ahead of time.
    """

    position_names: ClassVar[tuple[str, ...]] = ("epoch", "block", "position")

    def __init__(
        self,
        records: Iterable[Record],
        encode: Callable[[list[Record]], Examples[Made]],
        *,
        buffer: int = 50_000,
        max_tokens: int,
        seed: int = 0,
        max_examples: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
    ) -> None:
        sizes = {"max_tokens": max_tokens, "max_examples": max_examples, "buffer": buffer}
        super().__init__(seed, rank, world_size, workers, **sizes)
        if isinstance(records, Iterator):
            raise ConfigError("StreamBatches: records can be iterated once only. Give a reader, such as AlignedFiles.")
        self.records, self.encode, self.buffer = records, encode, buffer
        self.max_tokens, self.max_examples = max_tokens, max_examples

    def __iter__(self) -> Iterator[Made | DummyBatch[Made]]:
        epoch, block, first = self._position
        while True:
            # Whether a batch was the last of its epoch is known only after asking for the next one.
            held: Made | DummyBatch[Made] | None = None
            for after, batch in self._numbered(epoch, block, first):
                if held is not None:
                    yield held
                held, self._position = batch, after
            if held is None and (block, first) == (0, 0):
                raise DataError("StreamBatches: of all records no example is left.")
            epoch, block, first = epoch + 1, 0, 0
            if held is not None:
                self._position = (epoch, 0, 0)
                yield held

    def _numbered(
        self, epoch: int, block: int, first: int
    ) -> Iterator[tuple[tuple[int, int, int], Made | DummyBatch[Made]]]:
        """Yield the batches of an epoch from a position on, each with the position after it."""
        for number, batches in self._blocks(epoch, block):
            skipped = first if number == block else 0
            for position, batch in enumerate(islice(batches, skipped, None), start=skipped + 1):
                yield (epoch, number, position), batch

    def epoch(self, number: int) -> Iterator[Made | DummyBatch[Made]]:
        """Yield this process's shares of the batches of one epoch."""
        return (batch for _, batch in self._numbered(number, 0, 0))

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "max_examples": self.max_examples,
            "buffer": self.buffer,
        }

    def _blocks(self, epoch: int, first: int) -> Iterator[tuple[int, Iterator[Made | DummyBatch[Made]]]]:
        for block, start, examples in _ordered_map(self._encode, self._read(epoch, first), self.workers):
            yield block, self._batches(epoch, block, start, examples)

    def _read(self, epoch: int, first: int) -> Iterator[tuple[int, int, list[Record]]]:
        """Yield blocks from number ``first`` on, and the first record of each. The first has a random length."""
        short = int(np.random.default_rng([self.seed, epoch]).integers(1, self.buffer + 1))
        start = 0 if first == 0 else short + (first - 1) * self.buffer
        records = islice(self.records, start, None)
        block = first
        while held := list(islice(records, short if block == 0 else self.buffer)):
            yield block, start, held
            block, start = block + 1, start + len(held)
        if start == 0:
            raise DataError("StreamBatches: there are no records.")

    def _encode(self, read: tuple[int, int, list[Record]]) -> tuple[int, int, Examples[Made]]:
        block, start, held = read
        return block, start, self.encode(held)

    def _batches(
        self, epoch: int, block: int, start: int, examples: Examples[Made]
    ) -> Iterator[Made | DummyBatch[Made]]:
        lengths = examples.lengths
        _check_lengths("StreamBatches", lengths, self.max_tokens, start)
        for indices in plan_batches(lengths, self.max_tokens, self.max_examples, [self.seed, epoch, block]):
            yield self._share_of(examples, indices, lengths[indices].max(axis=0).tolist())


def plan_batches(
    lengths: Indices, max_tokens: int, max_examples: int | None = None, seed: Sequence[int] = (0, 0)
) -> list[Indices]:
    """Return the indices of the examples of each batch, in order: those of one epoch of `TokenBatches`.

    Args:
        lengths: ``(example, tensor)``, as in `Examples`.
        max_tokens, max_examples: as in `TokenBatches`.
        seed: its seed, and the number of the epoch.
    """
    chance = np.random.default_rng(seed)
    shuffled = chance.permutation(len(lengths))
    # By the longest side first, which limits the batch; then by each side, so that both have little padding.
    sides = lengths[shuffled]
    order = shuffled[np.lexsort([*sides.T[::-1], sides.max(axis=1)])]
    pieces = _cut(lengths[order].max(axis=1), max_tokens, max_examples)
    return [order[pieces[number]] for number in chance.permutation(len(pieces))]


def _cut(sizes: Indices, max_tokens: int, max_examples: int | None) -> list[slice]:
    """Cut ascending sizes into batches as large as allowed."""
    pieces = []
    start = 0
    while start < len(sizes):
        most = max(1, max_tokens // max(int(sizes[start]), 1))
        ahead = sizes[start : start + (most if max_examples is None else min(most, max_examples))]
        # Rows times width grows along the sorted sizes: the batch ends before it exceeds the limit.
        rows = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), max_tokens, side="right"))
        pieces.append(slice(start, start + rows))
        start += rows
    return pieces


class _Mapped(Generic[Given, Made]):
    """A function as a dataset: the key is its argument."""

    def __init__(self, function: Callable[[Given], Made]) -> None:
        self.function = function

    def __getitem__(self, key: Given) -> Made:
        return self.function(key)


def _ordered_map(function: Callable[[Given], Made], given: Iterable[Given], workers: int) -> Iterator[Made]:
    """Yield the function's results in the order of its arguments, with any number of workers."""
    if workers == 0:
        return map(function, given)
    loader: Any = DataLoader(
        _Mapped(function),  # type: ignore[arg-type]
        sampler=given,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        # A separate generator: otherwise the loader draws its base seed from the global one, and dropout would depend
        # on the number of workers.
        generator=torch.Generator(),
    )
    return iter(loader)


def _as_it_is(made: Made) -> Made:
    return made


def _check_lengths(owner: str, lengths: Indices, max_tokens: int, start: int) -> None:
    sizes = lengths.max(axis=1)
    too_long = np.flatnonzero(sizes > max_tokens)
    if len(too_long):
        raise DataError(
            f"{owner}: example {start + int(too_long[0])} (from 0) fills {int(sizes[too_long[0]])} tokens, more than "
            f"max_tokens = {max_tokens}; {len(too_long)} of {len(sizes)} do, the longest {int(sizes.max())}. "
            "Raise max_tokens, or leave such examples out."
        )
