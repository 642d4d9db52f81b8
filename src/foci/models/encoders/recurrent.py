"""A recurrent encoder for text, in one direction or in both.

    h_i = [→f(E x_1 … E x_i); ←f(E x_S … E x_i)],   f an LSTM or a GRU

Paper: Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015), section 3.2
    and appendix A.2.1; Sequence to Sequence Learning with Neural Networks (Sutskever, Vinyals, Le, 2014), section 2
Names: h_i = values, E = embedding; the final states are the summary
Complexity: O(S · D · (D + E)) per layer and direction
Differs: LSTM and GRU are torch's. Sutskever reverses the source: do so in the data.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor, nn

from foci.checks import check_ids, check_valid
from foci.errors import check_positive
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.interfaces import EncoderOutput
from foci.layers.recurrent import RecurrentEncoder
from foci.models.options.text_encoders import RecurrentTextEncoderOptions


class RecurrentTextEncoder(nn.Module):
    """An LSTM or GRU over token ids; its summary is the final state of each layer, ``(B, layers, output_dim)``.

    Args:
        vocabulary: number of source tokens; the embedding of token 0, padding, stays 0.
        options: sizes and options.

    Example:
        >>> import torch
        >>> encoder = RecurrentTextEncoder(11, RecurrentTextEncoderOptions(embedding_dim=3, hidden_dim=4, num_layers=2))
        >>> source = torch.tensor([[5, 6, 0]])
        >>> encoded = encoder(source, source > 0)
        >>> encoded.values.shape, [part.shape for part in encoded.summary]
        (torch.Size([1, 3, 4]), [torch.Size([1, 2, 4])])
    """

    def __init__(self, vocabulary: int, options: RecurrentTextEncoderOptions) -> None:
        super().__init__()
        check_positive("RecurrentTextEncoder", vocabulary=vocabulary)
        self.output_dim = options.hidden_dim
        self.dropout = Dropout(options.dropout)
        self.embedding = uniform_table(vocabulary, options.embedding_dim, bound=options.embedding_init_range, padding=0)
        self.layers = RecurrentEncoder(
            options.embedding_dim,
            options.hidden_dim,
            cell=options.cell,
            num_layers=options.num_layers,
            bidirectional=options.bidirectional,
            dropout=options.dropout,
        )

    def forward(self, source: Int[Tensor, "B S"], valid: Bool[Tensor, "B S"]) -> EncoderOutput:
        """Encode a batch of token ids; ``valid`` says which of them exist."""
        check_ids("RecurrentTextEncoder", "source", source, "batch", "position")
        check_valid("RecurrentTextEncoder", "source_valid", valid, source.shape[0], source.shape[1], source.device)
        annotations, summary = self.layers(self.dropout(self.embedding(source)), valid)
        return EncoderOutput(annotations, valid, summary)
