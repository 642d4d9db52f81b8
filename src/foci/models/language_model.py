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

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor, nn

from foci.errors import check_positive
from foci.layers.interfaces import Decoder, DecoderStep
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.layers.transformer import Block
from foci.models.decoders.history import HistoryDecoder
from foci.models.decoders.recurrent import RecurrentDecoder
from foci.models.decoders.transformer import TransformerDecoder


@runtime_checkable
class ReadingDecoder(Decoder, Protocol):
    """A decoder without a source that reads many tokens at once before it steps."""

    def read(self, tokens: Int[Tensor, "N P"], memory: Any) -> Any:
        """Return the state after N hypotheses have read P tokens each."""


class LanguageModel(nn.Module):
    """A decoder without a source.

    Args:
        decoder: predicts the next token.
        context: the number of tokens of a window, BOS included.
    """

    def __init__(self, decoder: nn.Module, context: int) -> None:
        super().__init__()
        check_positive("LanguageModel", context=context)
        self.decoder = decoder
        self.context = context

    @property
    def max_length(self) -> int | None:
        """The largest number of tokens of a window; None without such a limit."""
        longest: int | None = self._reading.max_length
        return longest

    @property
    def _reading(self) -> ReadingDecoder:
        return self.decoder  # type: ignore[return-value]

    def forward(self, tokens: Int[Tensor, "B T"], targets: Targets | None = None) -> TokenLogits | TokenLoss:
        """Teacher forcing: ``logits[:, t]`` predict what follows ``tokens[:, : t + 1]``; the loss with ``targets``."""
        return self._reading(None, tokens, targets)

    def start(self, rows: int) -> tuple[Any, Any]:
        """Return the memory and the first state of this number of hypotheses."""
        return self._reading.start(None, rows)

    def read(self, tokens: Int[Tensor, "N P"], memory: Any) -> Any:
        """Return the state after N hypotheses have read P tokens each, BOS included."""
        return self._reading.read(tokens, memory)

    def step(self, token: Int[Tensor, " N"], memory: Any, state: Any) -> DecoderStep:
        """Return the scores of what follows ``token``."""
        return self._reading.step(token, memory, state)


class TransformerLanguageModel(LanguageModel):
    """The decoder of the Transformer alone.

    Args:
        vocabulary: number of tokens.
        context: the number of tokens of a window, and of learned positions.
        model_dim: size of every position.
        num_heads: heads of every attention.
        hidden_dim: inner size of the feed-forward networks.
        num_layers: number of layers.
        positions: "rotary", "alibi", "sinusoidal" or "learned".
        norm: "pre" or "post", where the norms stand.
        rms_norm: RMSNorm in place of LayerNorm.
        qk_norm: normalize queries and keys.
        activation: "relu2" (the square of ReLU), "gelu" or "relu".
        bias: give linear layers a bias.
        zero_residual: start the layers that end a sublayer at 0.
        logit_cap: keep the logits between −logit_cap and logit_cap; no bound unless given.
        tie_output: use the embedding table also as the matrix before the softmax.
        scale_embeddings: multiply embeddings by sqrt(model_dim).
        dropout: of embeddings and of every sublayer's output.
        attention_dropout: of the attention weights.
        window: how many earlier tokens each layer reads; all of the context unless given.
        normalize: of every attention: "softmax", "sparsemax", "entmax15", …

    Example:
        >>> import torch
        >>> model = TransformerLanguageModel(11, 7, model_dim=8, num_heads=2, hidden_dim=16, num_layers=2)
        >>> model(torch.tensor([[1, 4, 5]])).logits.shape
        torch.Size([1, 3, 11])
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        *,
        model_dim: int = 128,
        num_heads: int = 4,
        hidden_dim: int = 512,
        num_layers: int = 4,
        positions: str = "rotary",
        norm: str = "pre",
        rms_norm: bool = False,
        qk_norm: bool = True,
        activation: str = "relu2",
        bias: bool = False,
        zero_residual: bool = True,
        logit_cap: float | None = None,
        tie_output: bool = False,
        scale_embeddings: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        window: int | None = None,
        normalize: str = "softmax",
    ) -> None:
        block = Block(
            model_dim=model_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            norm=norm,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation=activation,
            normalize=normalize,
            window=window,
            bias=bias,
            rms_norm=rms_norm,
            qk_norm=qk_norm,
            zero_residual=zero_residual,
        )
        decoder = TransformerDecoder(
            vocabulary,
            block,
            num_layers=num_layers,
            positions=positions,
            max_length=context if positions == "learned" else None,
            scale_embeddings=scale_embeddings,
            tie_output=tie_output,
            logit_cap=logit_cap,
        )
        super().__init__(decoder, context)


class RecurrentLanguageModel(LanguageModel):
    """An LSTM or GRU.

    Args:
        vocabulary: number of tokens.
        context: the number of tokens of a window.
        embedding_dim: size of the embeddings.
        hidden_dim: size of the recurrent state.
        num_layers: number of recurrent layers.
        cell: "lstm" or "gru".
        tie_output: use the embedding table also as the matrix before the softmax.
        dropout: on embeddings, between layers, and before the output layer.

    Example:
        >>> import torch
        >>> RecurrentLanguageModel(11, 7, embedding_dim=3, hidden_dim=5)(torch.tensor([[1, 4, 5]])).logits.shape
        torch.Size([1, 3, 11])
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        *,
        embedding_dim: int = 64,
        hidden_dim: int = 256,
        num_layers: int = 1,
        cell: str = "lstm",
        tie_output: bool = False,
        dropout: float = 0.0,
    ) -> None:
        decoder = RecurrentDecoder(
            vocabulary,
            embedding_dim=embedding_dim,
            hidden_dim=hidden_dim,
            num_layers=num_layers,
            cell=cell,
            tie_output=tie_output,
            dropout=dropout,
        )
        super().__init__(decoder, context)


class HistoryLanguageModel(LanguageModel):
    """An LSTM with attention over its own history.

    Args:
        vocabulary: number of tokens.
        context: the number of tokens of a window.
        embedding_dim: size of the embeddings.
        hidden_dim: size of the recurrent state.
        num_layers: number of recurrent layers.
        span: number of earlier tokens that are read.
        split: parts of the LSTM's output: 3 for key, value and prediction, 2 for a key and the rest, 1 for one vector.
        dropout: on embeddings, between layers, and before the output layer.

    Example:
        >>> import torch
        >>> model = HistoryLanguageModel(11, 7, embedding_dim=3, hidden_dim=6, span=2)
        >>> model(torch.tensor([[1, 4, 5]])).logits.shape
        torch.Size([1, 3, 11])
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        *,
        embedding_dim: int = 64,
        hidden_dim: int = 255,
        num_layers: int = 1,
        span: int = 15,
        split: int = 3,
        dropout: float = 0.0,
    ) -> None:
        decoder = HistoryDecoder(
            vocabulary,
            embedding_dim=embedding_dim,
            hidden_dim=hidden_dim,
            num_layers=num_layers,
            span=span,
            split=split,
            dropout=dropout,
        )
        super().__init__(decoder, context)


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"model_dim": 128, "num_heads": 4, "hidden_dim": 512, "num_layers": 4},
    "small": {"model_dim": 256, "num_heads": 4, "hidden_dim": 1024, "num_layers": 6},
    "gpt2": {
        "model_dim": 128,
        "num_heads": 4,
        "hidden_dim": 512,
        "num_layers": 4,
        "positions": "learned",
        "activation": "gelu",
        "bias": True,
        "qk_norm": False,
        "zero_residual": False,
        "tie_output": True,
    },
}
"""Sizes of a Transformer by name; `gpt2` has the blocks of GPT-2 (Radford et al., 2019) at the size of `tiny`."""

RECURRENT_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 64, "hidden_dim": 256},
    "small": {"embedding_dim": 128, "hidden_dim": 512, "num_layers": 2},
}

HISTORY_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 64, "hidden_dim": 258},
    "small": {"embedding_dim": 128, "hidden_dim": 516, "num_layers": 2},
}
"""About as large as the LSTMs of these names."""
