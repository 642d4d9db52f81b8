"""Any encoder with any decoder.

    memory = encoder(source, valid),   P(y_t | y_<t, source) = decoder(memory, y_<t)

The encoder takes token ids, image regions, sound frames or anything else, as long as it returns
`foci.layers.interfaces.EncoderOutput`; the decoder depends on nothing else of the source.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.layers.copying import CopySource
from foci.layers.interfaces import Decoder, DecoderStep, Encoder, EncoderOutput
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss


class EncoderDecoder(nn.Module):
    """An encoder and a decoder as one model, trained with `forward`, decoded with `start` and `step`.

    Args:
        encoder: returns `EncoderOutput`; its ``output_dim`` is the size of the positions.
        decoder: reads positions of this size, its ``source_dim``.

    Raises:
        ConfigError: the sizes differ, or the decoder reads no source.

    Example:
        >>> import torch
        >>> from foci.models.build import build_decoder, build_text_encoder
        >>> from foci.models.options.decoders import RecurrentDecoderOptions
        >>> from foci.models.options.text_encoders import TransformerTextEncoderOptions
        >>> layers = TransformerTextEncoderOptions(model_dim=6, num_heads=2, hidden_dim=8, num_layers=2)
        >>> decoder = build_decoder(13, 6, RecurrentDecoderOptions(embedding_dim=3, hidden_dim=5))
        >>> model = EncoderDecoder(build_text_encoder(11, layers), decoder)
        >>> source = torch.tensor([[5, 6, 7]])
        >>> predicted = model(source, source > 0, torch.tensor([[1, 4]]))
        >>> predicted.logits.shape, list(predicted.attentions)
        (torch.Size([1, 2, 13]), ['encoder.0.self', 'encoder.1.self', 'decoder.cross'])
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        if decoder.source_dim is None:
            raise ConfigError(
                "EncoderDecoder: the decoder reads no source, expected one that reads the encoder's. "
                f"Build it with source_dim={encoder.output_dim}."
            )
        if encoder.output_dim != decoder.source_dim:
            raise ConfigError(
                f"EncoderDecoder: the encoder's positions have size {encoder.output_dim} and the decoder reads those "
                f"of size {decoder.source_dim}, expected the same. Build the decoder with "
                f"source_dim={encoder.output_dim}."
            )
        self.encoder = encoder
        self.decoder = decoder

    @property
    def max_length(self) -> int | None:
        """The largest number of steps the decoder can take; None without such a limit."""
        return self.decoder.max_length

    def forward(
        self, source: Any, source_valid: Any, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing.

        Args:
            source: what the encoder reads; with its target ids, `foci.layers.copying.CopySource`, for a decoder that
                copies.
            source_valid: which positions of the source exist, as the encoder takes it.
            target: the tokens so far; they start with BOS.
            targets: the tokens to predict, for the loss instead of the logits.

        Returns:
            The logits or the loss, with the attentions of encoder and decoder.
        """
        encoded = self._encode(source, source_valid)
        predicted = self.decoder(encoded, target, targets)
        return predicted._replace(attentions={**(encoded.attentions or {}), **predicted.attentions})

    def start(self, source: Any, source_valid: Any) -> tuple[Any, Any]:
        """Encode the sources; return the decoder's memory and first state, B rows each."""
        return self.decoder.start(self._encode(source, source_valid))

    def step(self, token: Int[Tensor, " N"], memory: Any, state: Any) -> DecoderStep:
        """Return the scores of what follows ``token`` in each of N hypotheses."""
        return self.decoder.step(token, memory, state)

    def _encode(self, source: Any, valid: Any) -> EncoderOutput:
        if isinstance(source, CopySource):
            return self.encoder(source.tokens, valid)._replace(copied=source.extended)
        return self.encoder(source, valid)


def check_one_vocabulary(owner: str, source_vocabulary: int, target_vocabulary: int) -> None:
    """Raise unless source and target can share their embeddings.

    Raises:
        ConfigError: the vocabularies have different sizes.
    """
    if source_vocabulary != target_vocabulary:
        raise ConfigError(
            f"{owner}: share_embeddings with {source_vocabulary} source and {target_vocabulary} target tokens, "
            "expected one vocabulary for both. Train one tokenizer on both sides."
        )
