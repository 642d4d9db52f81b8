"""Ids for models that copy: words of a source that the target vocabulary does not have get ids of their own.

    source      the cat Fritz saw the dog Rex       (Fritz and Rex are not in the target vocabulary of V pieces)
    extended    5   9   V     12  5   7   V + 1     own = [" Fritz", " Rex"]
    target      Rex saw Fritz  ->  V + 1  12  V     instead of <unk>

The numbers belong to one source; `foci.layers.copying` computes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from foci.data.batching import Batch, Indices, PairExamples, Sequences, on_device
from foci.data.tokenizer import UNK, Encoding, Tokenizer
from foci.errors import DataError
from foci.layers.copying import CopySource


class SourceRow(NamedTuple):
    """A source as ids.

    Attributes:
        ids: what the encoder reads.
        extended: the same as target ids; empty for a model that does not copy.
        own: the pieces behind the extended ids from V on.
        cut: number of tokens that were cut off at the end.
    """

    ids: list[int]
    extended: list[int]
    own: list[str]
    cut: int = 0


class CopyIds:
    """Extended ids of sources and targets.

    Args:
        source, target: the tokenizers of both sides, which may be one.

    Example:
        >>> words = Tokenizer.train([" the cat saw the dog"], kind="words", size=20)
        >>> ids = CopyIds(words, words)
        >>> row = ids.source(" the cat saw Rex")
        >>> row.ids[-1], row.extended[-1] - len(words), row.own
        (3, 0, [' Rex'])
        >>> words.decode(ids.target(" Rex saw Tom", row), row.own)
        ' Rex saw�'
    """

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self._source, self._target = source, target
        self._known: dict[str, int | None] = {}

    def source(self, text: str, longest: int | None = None) -> SourceRow:
        """Return the ids of a source, of its first ``longest`` tokens."""
        return self._row(text, self._source.encode(text), longest)

    def sources(self, texts: Iterable[str], longest: int | None = None) -> Iterator[SourceRow]:
        """Return the ids of many sources."""
        texts = list(texts)
        return (self._row(*both, longest) for both in zip(texts, self._source.encodings(texts)))

    def target(self, text: str, row: SourceRow) -> list[int]:
        """Return the ids of a target of this source; unknown pieces that the source does not have are ``<unk>``."""
        return self._extended(text, self._target.encode(text), row)

    def targets(self, texts: Iterable[str], rows: Iterable[SourceRow]) -> Iterator[list[int]]:
        """Return the ids of the targets of many sources."""
        texts = list(texts)
        return (self._extended(*both) for both in zip(texts, self._target.encodings(texts), rows))

    def _row(self, text: str, encoding: Encoding, longest: int | None) -> SourceRow:
        ids = encoding.ids[:longest]
        own: dict[str, int] = {}
        extended = []
        for number, token, (start, end) in zip(ids, encoding.tokens, encoding.offsets):
            if self._source is self._target and number != UNK:
                extended.append(number)
                continue
            piece = text[start:end] if number == UNK else token
            known = self._id_of(piece)
            extended.append(own.setdefault(piece, len(self._target) + len(own)) if known is None else known)
        return SourceRow(ids, extended, list(own), len(encoding.ids) - len(ids))

    def _id_of(self, piece: str) -> int | None:
        if piece not in self._known:
            self._known[piece] = self._target.id_of(piece)
        return self._known[piece]

    def _extended(self, text: str, encoding: Encoding, row: SourceRow) -> list[int]:
        if UNK not in encoding.ids:
            return encoding.ids
        own = {piece: len(self._target) + place for place, piece in enumerate(row.own)}
        return [
            own.get(text[start:end], UNK) if number == UNK else number
            for number, (start, end) in zip(encoding.ids, encoding.offsets)
        ]


class CopyExamples(PairExamples):
    """Pairs as token ids with the extended ids of their sources, to be batched by `foci.data.TokenBatches`.

    Args:
        rows: the sources.
        targets: the extended ids of the targets, without BOS and EOS.
        vocabulary: number of target tokens.
    """

    def __init__(self, rows: Sequence[SourceRow], targets: Iterable[Sequence[int]], vocabulary: int) -> None:
        highest = vocabulary + max((len(row.own) for row in rows), default=0)
        source_size = 1 + max((max(row.ids, default=0) for row in rows), default=0)
        super().__init__(Sequences((row.ids for row in rows), source_size), Sequences(targets, highest))
        self.extended = Sequences((row.extended for row in rows), highest)

    def batch(self, indices: Indices, widths: Sequence[int]) -> Batch:
        """Return these pairs, padded."""
        batch = super().batch(indices, widths)
        extended, _ = self.extended.padded(indices, widths[0])
        return batch._replace(source=CopySource(cast("Tensor", batch.source), torch.from_numpy(extended)))


def padded_sources(rows: Sequence[SourceRow], device: torch.device) -> tuple[CopySource, Tensor]:
    """Return some sources as one batch, and which positions are not padding."""
    examples = CopyExamples(rows, [[] for _ in rows], 1)
    width = max(1, int(examples.source.lengths.max(initial=0)))
    batch = on_device(examples.batch(np.arange(len(rows)), (width, 2)), device)
    if not isinstance(batch.source, CopySource):
        raise DataError("padded_sources: the batch has no extended ids.")
    return batch.source, batch.source_valid
