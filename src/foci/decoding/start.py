"""The start of a search: the decoder's memory and state. Searches do not depend on the kind of source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from foci.checks import check_valid
from foci.errors import ConfigError
from foci.layers.copying import CopySource


class SearchStart(NamedTuple):
    """What a search needs beside the decoder.

    Attributes:
        memory: the decoder's memory, B rows; whatever its ``start`` returned.
        state: the decoder's first state, B rows.
        rows: B, the number of sources, or of hypotheses to start without a source.
        device: the device of the tokens.
        max_steps: the largest number of steps, one for all rows or one per row; `Limits.max_length` replaces it
            where it is given.
        valid: which cells of each source exist, ``(B, S)``; the coverage penalty of a beam search needs it.
        last: the token before the first, ``(B,)``; `Limits.bos` unless given.

    Example:
        >>> import torch
        >>> from foci.layers.transformer import Block
        >>> from foci.models.decoders.transformer import TransformerDecoder
        >>> decoder = TransformerDecoder(13, Block(model_dim=6, num_heads=2, hidden_dim=8), num_layers=2).eval()
        >>> start = SearchStart(*decoder.start(None, rows=3), rows=3, device=torch.device("cpu"), max_steps=5)
        >>> from foci.decoding import greedy
        >>> [len(row) for row in greedy(decoder, start)]
        [1, 1, 1]
    """

    memory: Any
    state: Any
    rows: int
    device: torch.device
    max_steps: int | Sequence[int]
    valid: Bool[Tensor, "B S"] | None = None
    last: Int[Tensor, " B"] | None = None

    def steps_per_row(self, max_length: int | None, longest: int | None) -> list[int]:
        """Return the largest number of steps of each row.

        Args:
            max_length: replaces ``max_steps`` where it is given.
            longest: the decoder's own limit, which is never exceeded.
        """
        steps = self.max_steps if max_length is None else max_length
        per_row = [steps] * self.rows if isinstance(steps, int) else list(steps)
        if len(per_row) != self.rows or any(count < 1 for count in per_row):
            raise ConfigError(
                f"SearchStart: max_steps has {len(per_row)} entries, the least of them {min(per_row, default=0)}, "
                f"expected {self.rows} of at least 1, or one number."
            )
        return per_row if longest is None else [min(count, longest) for count in per_row]


@runtime_checkable
class SourceModel(Protocol):
    """A model that encodes its sources itself, such as `foci.models.encoder_decoder.EncoderDecoder`."""

    def start(self, source: Any, source_valid: Any) -> tuple[Any, Any]:
        """Return the decoder's memory and first state."""


@torch.no_grad()
def start_from_source(model: SourceModel, source: Tensor | CopySource, valid: Bool[Tensor, "B S"]) -> SearchStart:
    """Encode a batch of sources of S positions; at most 2 · S + 20 steps, S of each source by itself.

    Args:
        model: encodes the sources.
        source: token ids ``(B, S)`` or anything else with these axes; `CopySource` for a decoder that copies.
        valid: which positions exist.

    Raises:
        ShapeError: ``valid`` does not fit the source.
    """
    cells = source.tokens if isinstance(source, CopySource) else source
    check_valid("decoding", "source_valid", valid, cells.shape[0], cells.shape[1], cells.device)
    memory, state = model.start(source, valid)
    max_steps = [2 * count + 20 for count in valid.sum(dim=1).tolist()]
    return SearchStart(memory, state, cells.shape[0], cells.device, max_steps, valid)
