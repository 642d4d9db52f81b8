"""Language models: decoders without a source, each built from options of its own.

    P(x_1 … x_T) = Π_t P(x_t | BOS, x_1 … x_{t−1})

A text is cut into windows of at most ``context`` tokens. BOS comes first in each of them, so that every token has
something to be predicted from and the model learns to begin anywhere.

Paper: Generating Wikipedia by Summarizing Long Sequences (Liu et al., 2018), section 4.2.3 (Transformer); Frustratingly
    Short Attention Spans in Neural Language Modeling (Daniluk et al., 2017) (LSTM, with attention or without)
Names: T = context
Complexity: that of the decoder
Differs: see the decoders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from jaxtyping import Int
from torch import Tensor, nn

from foci.errors import check_positive
from foci.layers.interfaces import Decoder, DecoderStep
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.models.build import build_decoder
from foci.models.options.decoders import LanguageModelOptions, TransformerDecoderOptions


class LanguageModel(nn.Module):
    """A decoder without a source.

    Args:
        decoder: predicts the next token.
        context: the number of tokens of a window, BOS included.
    """

    def __init__(self, decoder: Decoder, context: int) -> None:
        super().__init__()
        check_positive("LanguageModel", context=context)
        self.decoder = decoder
        self.context = context

    @property
    def max_length(self) -> int | None:
        """The largest number of tokens of a window; None without such a limit."""
        return self.decoder.max_length

    def forward(self, tokens: Int[Tensor, "B T"], targets: Targets | None = None) -> TokenLogits | TokenLoss:
        """Teacher forcing: ``logits[:, t]`` predict what follows ``tokens[:, : t + 1]``; the loss with ``targets``."""
        return self.decoder(None, tokens, targets)

    def start(self, rows: int) -> tuple[Any, Any]:
        """Return the memory and the first state of this number of hypotheses."""
        return self.decoder.start(None, rows)

    def read(self, tokens: Int[Tensor, "N P"], memory: Any) -> Any:
        """Return the state after N hypotheses have read P tokens each, BOS included."""
        return cast("Any", self.decoder).read(tokens, memory)  # every decoder without a source has it

    def step(self, token: Int[Tensor, " N"], memory: Any, state: Any) -> DecoderStep:
        """Return the scores of what follows ``token``."""
        return self.decoder.step(token, memory, state)


def build_language_model(vocabulary: int, context: int, options: LanguageModelOptions) -> LanguageModel:
    """Return a new language model with a decoder of the kind that the options name.

    Args:
        vocabulary: number of tokens.
        context: the number of tokens of a window, and of learned positions.
        options: sizes and options of the decoder.

    Example:
        >>> import torch
        >>> model = build_language_model(11, 7, TransformerDecoderOptions(model_dim=8, num_heads=2, num_layers=2))
        >>> model(torch.tensor([[1, 4, 5]])).logits.shape
        torch.Size([1, 3, 11])
    """
    if isinstance(options, TransformerDecoderOptions) and options.positions == "learned":
        options = replace(options, max_length=context)
    return LanguageModel(build_decoder(vocabulary, None, options), context)
