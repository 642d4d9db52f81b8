"""Batches of windows of a long text, for language models.

An epoch cuts the text into windows that follow each other, from a first token that is drawn, and shuffles them: every
token comes once per epoch, and what comes together in a window changes. The position (epoch, batch) is all there is to
save; ``rank`` of ``world_size`` processes gets every world_size-th row of each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import BatchStream, DummyBatch, Indices
from foci.data.text_size import text_size
from foci.data.tokenizer import BOS, EOS, PAD, Tokenizer
from foci.errors import DataError, check_positive
from foci.metrics.likelihood import TextSize
from foci.tasks.generate.reader import TextDocument, TextPiece

Ids = NDArray[np.integer[Any]]
_CHUNK = 100_000
"""Characters that are encoded at a time."""


class TextBatch(NamedTuple):
    """Windows of a text, each BOS and ``context`` tokens, the last ones padding where a text is too short."""

    tokens: Int[Tensor, "B T"]


def encode_text(tokenizer: Tokenizer, text: str) -> Ids:
    """Return the ids of a text of any length; it is encoded in chunks that end with a line where they can."""
    return _flat(tokenizer, tokenizer.encode_many(chunks(text)))


def size_of(tokenizer: Tokenizer, texts: Iterable[str]) -> TextSize:
    """Return the size of texts, with what the spellings of unknown tokens cost."""
    pieces = [chunk for text in texts for chunk in chunks(text)]
    return text_size(tokenizer, pieces, tokenizer.encode_many(pieces))


def encode_documents(tokenizer: Tokenizer, documents: Sequence[TextDocument]) -> Ids:
    """Return the ids of all documents in a row, with EOS after each unless there is only one."""

    def rows() -> Iterator[Sequence[int]]:
        for document in documents:
            yield from tokenizer.encode_many(chunks(document.text))
            if len(documents) > 1:
                yield [EOS]

    return _flat(tokenizer, rows())


def _flat(tokenizer: Tokenizer, rows: Iterable[Sequence[int]]) -> Ids:
    kind = np.uint16 if len(tokenizer) <= 1 << 16 else np.int32
    parts = [np.array(row, dtype=kind) for row in rows]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)


def chunks(text: str) -> Iterator[str]:
    """Yield a text in pieces that can be encoded one at a time; they end with a line where they can."""
    start = 0
    while start < len(text):
        end = start + _CHUNK
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


class WindowExamples:
    """Windows that follow each other in one text, to be batched by `foci.data.StreamBatches`.

    Args:
        ids: the text.
        context: tokens of a window, BOS not counted; the last window may have fewer.
    """

    def __init__(self, ids: Ids, context: int) -> None:
        check_positive("WindowExamples", context=context)
        self.ids, self.context = ids, context
        self.starts = np.arange(0, len(ids), context)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(window, 1)``: the tokens of each, BOS included."""
        return 1 + np.minimum(len(self.ids) - self.starts, self.context).reshape(-1, 1)

    def batch(self, indices: Indices, widths: Sequence[int]) -> TextBatch:
        """These windows, padded."""
        return _windows(self.ids, self.starts[indices], widths[0] - 1)


def _windows(ids: Ids, starts: NDArray[np.int64], size: int) -> TextBatch:
    places = starts[:, None] + np.arange(size)
    inside = places < len(ids)
    tokens = np.full((len(starts), 1 + size), BOS, dtype=np.int64)
    tokens[:, 1:] = np.where(inside, ids[np.minimum(places, len(ids) - 1)], PAD)
    return TextBatch(torch.from_numpy(tokens))


class WindowBatches(BatchStream):
    """An endless stream of batches of windows, epoch after epoch, that can be saved and resumed at any batch.

    Args:
        ids: the text.
        context: tokens of a window, BOS not counted.
        batch_size: windows per batch over all processes.
        seed: of where windows begin and of their order.
        rank, world_size: which rows of each batch this process gets.

    Example:
        >>> batches = WindowBatches(np.arange(4, 24), context=5, batch_size=2, seed=1)
        >>> next(iter(batches)).tokens.shape
        torch.Size([2, 6])
    """

    def __init__(
        self, ids: Ids, *, context: int, batch_size: int, seed: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__(seed, rank, world_size, context=context, batch_size=batch_size)
        if len(ids) < context:
            raise DataError(
                f"the text to train on has {len(ids)} tokens, expected at least one window of data.context = "
                f"{context}. Use more text, or lower data.context."
            )
        self.ids, self.context, self.batch_size = ids, context, batch_size

    @property
    def batches_per_epoch(self) -> int:
        """How many batches an epoch has; one fewer where it begins late in the text."""
        return max(1, len(self.ids) // self.context // self.batch_size)

    def __iter__(self) -> Iterator[TextBatch | DummyBatch[TextBatch]]:
        while True:
            epoch, first = self._position
            plan = self._plan(epoch)
            for position in range(min(first, len(plan)), len(plan)):
                # After the last batch of an epoch the next epoch stands at its beginning.
                self._position = (epoch, position + 1) if position + 1 < len(plan) else (epoch + 1, 0)
                yield self._share(len(plan[position]), partial(self._windows, plan[position]))
            if first >= len(plan):
                self._position = (epoch + 1, 0)

    def largest(self) -> TextBatch:
        """Return the largest share of a batch; all batches have one size."""
        return self._windows(self._plan(0)[0], slice(None, None, self.world_size))

    def _windows(self, starts: NDArray[np.int64], rows: slice) -> TextBatch:
        return _windows(self.ids, starts[rows], self.context)

    def _identity(self) -> dict[str, Any]:
        sizes = {"context": self.context, "batch_size": self.batch_size}
        return {"seed": self.seed, **sizes, "tokens": len(self.ids)}

    def _plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """The first tokens of the windows of each batch; what is left over is in no batch of this epoch."""
        chance = np.random.default_rng([self.seed, epoch])
        first = int(chance.integers(min(self.context, len(self.ids) - self.context + 1)))
        starts = chance.permutation(np.arange(first, len(self.ids) - self.context + 1, self.context))
        whole = len(starts) // self.batch_size
        return np.split(starts[: whole * self.batch_size], whole) if whole else [starts]


class PieceEncoder:
    """Pieces of documents to windows, for `foci.data.StreamBatches`."""

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        self.tokenizer, self.context = tokenizer, context

    def __call__(self, pieces: Sequence[TextPiece]) -> WindowExamples:
        """Return the windows of these pieces in a row, with EOS between documents."""
        rows: list[Sequence[int]] = []
        encoded = self.tokenizer.encode_many(piece.text for piece in pieces)
        for piece, ids in zip(pieces, encoded):
            rows += [ids, [EOS]] if piece.ends else [ids]
        return WindowExamples(_flat(self.tokenizer, rows), self.context)
