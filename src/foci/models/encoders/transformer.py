"""The encoder of the Transformer, for text.

    x = dropout(sqrt(D) E[source] + PE),   then num_layers times: self-attention, feed-forward

Paper: Attention Is All You Need (Vaswani et al., 2017), sections 3.1, 3.4 and 3.5
Names: N = num_layers, d_model = model_dim, E = embedding.table, PE = embedding.positions
Complexity: O(N · (S² · D + S · D · (D + d_ff)))
Differs: with norm="pre" the stack ends in one more LayerNorm; see also `foci.layers.transformer`.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor, nn

from foci.checks import check_valid
from foci.errors import check_positive
from foci.layers.interfaces import EncoderOutput, source_mask
from foci.layers.transformer import EncoderLayer, final_norm, token_embedding
from foci.models.options.text_encoders import TransformerTextEncoderOptions
from foci.weights import Weights


class TransformerTextEncoder(nn.Module):
    """A stack of self-attention layers over token ids.

    Args:
        vocabulary: number of source tokens.
        options: sizes and options of the layers.

    Example:
        >>> import torch
        >>> encoder = TransformerTextEncoder(
        ...     11, TransformerTextEncoderOptions(model_dim=6, num_heads=2, hidden_dim=8, num_layers=2)
        ... )
        >>> source = torch.tensor([[5, 6, 0]])
        >>> encoded = encoder(source, source > 0)
        >>> encoded.values.shape, list(encoded.attentions)
        (torch.Size([1, 3, 6]), ['encoder.0.self', 'encoder.1.self'])
    """

    def __init__(self, vocabulary: int, options: TransformerTextEncoderOptions) -> None:
        super().__init__()
        check_positive("TransformerTextEncoder", vocabulary=vocabulary)
        self.output_dim = options.model_dim
        self.embedding = token_embedding(
            vocabulary, options, max_length=options.max_length, scale=options.scale_embeddings
        )
        self.layers = nn.ModuleList(EncoderLayer(options.of_layer(number)) for number in range(options.num_layers))
        self.norm = final_norm(options)

    def forward(self, source: Int[Tensor, "B S"], valid: Bool[Tensor, "B S"]) -> EncoderOutput:
        """Encode a batch of token ids; ``valid`` says which of them exist."""
        check_valid("TransformerTextEncoder", "source_valid", valid, source.shape[0], source.shape[1], source.device)
        mask = source_mask(valid)
        attentions: dict[str, Weights] = {}
        x = self.embedding(source)
        for number, layer in enumerate(self.layers):
            x, attentions[f"encoder.{number}.self"] = layer(x, mask)
        return EncoderOutput(self.norm(x), valid, attentions=attentions)
