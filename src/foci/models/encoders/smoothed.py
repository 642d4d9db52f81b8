"""The encoder of ABS: embeddings as keys, and their averages over a window as values.

    x̃_i = F x_i,   x̄_i = mean of x̃_q over |q − i| ≤ Q

Paper: A Neural Attention Model for Abstractive Sentence Summarization (Rush, Chopra, Weston, 2015), section 3.2
Names: F = embedding, Q = smoothing, x̃ = keys, x̄ = values
Complexity: O(S · Q · H)
Differs: the paper divides the sum of up to 2 Q + 1 embeddings by Q; here it is divided by their number, so that the
    ends of a text and padding change nothing.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_ids, check_valid
from foci.errors import check_positive
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.interfaces import EncoderOutput
from foci.models.options.text_encoders import SmoothedTextEncoderOptions


class SmoothedTextEncoder(nn.Module):
    """Embeddings of token ids, and their averages over neighboring positions.

    Args:
        vocabulary: number of source tokens; the embedding of token 0, padding, stays 0.
        options: sizes and options.

    Example:
        >>> import torch
        >>> encoder = SmoothedTextEncoder(11, SmoothedTextEncoderOptions(embedding_dim=3, smoothing=1))
        >>> encoded = encoder(torch.tensor([[5, 6, 0]]), torch.tensor([[True, True, False]]))
        >>> encoded.values.shape, torch.allclose(encoded.values[0, 0], encoded.keys[0, :2].mean(0))
        (torch.Size([1, 3, 3]), True)
    """

    def __init__(self, vocabulary: int, options: SmoothedTextEncoderOptions) -> None:
        super().__init__()
        check_positive("SmoothedTextEncoder", vocabulary=vocabulary)
        self.output_dim, self.smoothing = options.embedding_dim, options.smoothing
        self.dropout = Dropout(options.dropout)
        self.embedding = uniform_table(vocabulary, options.embedding_dim, bound=options.embedding_init_range, padding=0)

    def forward(self, source: Int[Tensor, "B S"], valid: Bool[Tensor, "B S"]) -> EncoderOutput:
        """Encode a batch of token ids; ``valid`` says which of them exist."""
        check_ids("SmoothedTextEncoder", "source", source, "batch", "position")
        check_valid("SmoothedTextEncoder", "source_valid", valid, source.shape[0], source.shape[1], source.device)
        keys = self.dropout(self.embedding(source)).masked_fill(~valid.unsqueeze(-1), 0.0)
        counts = _window_sums(valid.unsqueeze(-1).to(keys.dtype), self.smoothing)
        values = _window_sums(keys, self.smoothing) / counts.clamp_min(1.0)
        return EncoderOutput(values, valid, keys=keys)


def _window_sums(values: Tensor, each: int) -> Tensor:
    """Return the sums over ``each`` positions on each side."""
    return F.pad(values, (0, 0, each, each)).unfold(1, 2 * each + 1, 1).sum(dim=-1)
