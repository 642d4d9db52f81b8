"""What a search begins with: the decoder's memory and state. Searches do not depend on the kind of source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from foci.checks import check_valid
from foci.errors import ConfigError
from foci.layers.copying import CopySource


class DecoderInputs(NamedTuple):
    """What a search needs beside the decoder.

    Attributes:
        memory: the decoder's memory, B rows; whatever its ``start`` returned.
        state: the decoder's first state, B rows.
        rows: B, the number of sources, or of hypotheses to start without a source.
        device: the device of the tokens.
        max_steps: the largest number of steps, one for all rows or one per row; `GenerationConstraints.max_length`
            overrides it.
        valid: which positions of each source exist, ``(B, S)``; the coverage penalty of a beam search needs it.
        last: the token before the first, ``(B,)``. Default: `GenerationConstraints.bos`.
        normalized: whether the decoder's scores are log-probabilities, or sums of several, which a search does not
            normalize again.

    Example:
        >>> import torch
        >>> from foci.models.decoders.transformer import TransformerDecoder
        >>> from foci.models.options.decoders import TransformerDecoderOptions
        >>> options = TransformerDecoderOptions(model_dim=6, num_heads=2, hidden_dim=8, num_layers=2)
        >>> decoder = TransformerDecoder(13, None, options).eval()
        >>> inputs = DecoderInputs(*decoder.start(None, rows=3), rows=3, device=torch.device("cpu"), max_steps=5)
        >>> from foci.decoding import greedy
        >>> [len(row) for row in greedy(decoder, inputs)]
        [1, 1, 1]
    """

    memory: Any
    state: Any
    rows: int
    device: torch.device
    max_steps: int | Sequence[int]
    valid: Bool[Tensor, "B S"] | None = None
    last: Int[Tensor, " B"] | None = None
    normalized: bool = False

    def steps_per_row(self, max_length: int | None, longest: int | None) -> list[int]:
        """Return the largest number of steps of each row.

        Args:
            max_length: overrides ``max_steps``.
            longest: the decoder's own limit, which is never exceeded.
        """
        steps = self.max_steps if max_length is None else max_length
        per_row = [steps] * self.rows if isinstance(steps, int) else list(steps)
        if len(per_row) != self.rows or any(count < 1 for count in per_row):
            raise ConfigError(
                f"DecoderInputs: max_steps has {len(per_row)} entries, the least of them {min(per_row, default=0)}, "
                f"expected {self.rows} of at least 1, or one number."
            )
        return per_row if longest is None else [min(count, longest) for count in per_row]


@runtime_checkable
class SourceModel(Protocol):
    """A model that encodes its sources itself, such as `foci.models.encoder_decoder.EncoderDecoder`."""

    def start(self, source: Any, source_valid: Any) -> tuple[Any, Any]:
        """Return the decoder's memory and first state."""


@torch.no_grad()
def encode_source(model: SourceModel, source: Tensor | CopySource, valid: Bool[Tensor, "B S"]) -> DecoderInputs:
    """Encode a batch of sources of S positions; at most 2 · S + 20 steps, S of each source by itself.

    Args:
        model: encodes the sources.
        source: token ids ``(B, S)`` or anything else with these axes; `CopySource` for a decoder that copies.
        valid: which positions exist.

    Raises:
        ShapeError: ``valid`` does not fit the source.
    """
    tokens = source.tokens if isinstance(source, CopySource) else source
    check_valid("decoding", "source_valid", valid, tokens.shape[0], tokens.shape[1], tokens.device)
    memory, state = model.start(source, valid)
    max_steps = [2 * count + 20 for count in valid.sum(dim=1).tolist()]
    return DecoderInputs(memory, state, tokens.shape[0], tokens.device, max_steps, valid)
