"""An LSTM language model with attention over its own history: key-value-predict.

    [k_t; v_t; p_t] = h_t = LSTM(x_t, h_{t−1})
    a_t = softmax_j(wᵀ tanh(W^Y k_{t−j} + W^h k_t)),   j = 1, …, L
    r_t = Σ_j a_tj v_{t−j},   h*_t = tanh(W^r r_t + W^x p_t),   P(x_{t+1}) = softmax(W* h*_t + b)

Each output of the LSTM has three parts of one size: a key to be found by, a value to be read, and what predicts the
next token. With ``split=1`` one vector serves as all three, which is the attention the paper starts from; ``split=2``
separates the key, and value and prediction share the rest.

Paper: Frustratingly Short Attention Spans in Neural Language Modeling (Daniluk, Rocktäschel, Welbl, Riedel, 2017),
    eqs. 2-10
Names: L = span, W^Y and W^h and w = attention.score, W^r = read_layer, W^x = predict_layer, W* = output
Complexity: O(T) recurrent steps of O(D²), and the attention's O(T² · A) in training, O(L · A) per decoding step
Differs: nothing; the first token, which has no history, reads 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci import masks
from foci.checks import check_ids
from foci.errors import check_positive
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.interfaces import DecoderStep, EncoderOutput, check_encoded
from foci.layers.recurrent import Recurrence, State
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss, logits_or_loss
from foci.mechanisms.attention import Attention
from foci.models.options.decoders import HistoryDecoderOptions
from foci.weights import Weights

_GAIN = 3.0
"""Of the two layers before the tanh. The outputs of a new LSTM are small; with torch's own initial weights h* is
smaller still, and so are the gradients of all that lies before it: trained by characters, an LSTM of 192 features with
attention has 2.93 nats after 200 steps, with this gain 2.23, and the LSTM alone 2.33."""


class HistoryState(NamedTuple):
    """What each hypothesis carries from step to step, N rows.

    Attributes:
        recurrent: the state of the recurrent layers.
        keys: of the last ``span`` tokens at most, the newest last, ``(N, span, A)``.
        values: the same of what is read of them.
        valid: which of them exist, ``(N, span)``.
    """

    recurrent: State
    keys: Float[Tensor, "N span A"]
    values: Float[Tensor, "N span V"]
    valid: Bool[Tensor, "N span"]


class HistoryDecoder(nn.Module):
    """An LSTM that also reads what it was at the last ``span`` tokens.

    Args:
        vocabulary: number of tokens; the embedding of token 0, padding, stays 0.
        options: sizes and options.

    Example:
        >>> decoder = HistoryDecoder(13, HistoryDecoderOptions(embedding_dim=4, hidden_dim=6, span=5))
        >>> predicted = decoder(None, torch.tensor([[1, 4, 7]]))
        >>> predicted.logits.shape, predicted.attentions["decoder.0.self"].shape
        (torch.Size([1, 3, 13]), torch.Size([1, 3, 3]))
    """

    max_length: int | None = None  # a recurrence has no longest target
    source_dim: int | None = None

    def __init__(self, vocabulary: int, options: HistoryDecoderOptions) -> None:
        super().__init__()
        check_positive("HistoryDecoder", vocabulary=vocabulary)
        self.span, self.split = options.span, options.split
        part = options.hidden_dim // options.split
        self.embedding = uniform_table(vocabulary, options.embedding_dim, padding=0)
        self.recurrence = Recurrence(
            options.embedding_dim,
            options.hidden_dim,
            cell="lstm",
            num_layers=options.num_layers,
            dropout=options.dropout,
        )
        self.attention = Attention(part, part, part, score="additive")
        self.read_layer = nn.Linear(part, part, bias=False)
        self.predict_layer = nn.Linear(part, part, bias=False)
        self.dropout = Dropout(options.dropout)
        self.output = nn.Linear(part, vocabulary)
        for layer in (self.read_layer, self.predict_layer):
            nn.init.xavier_uniform_(layer.weight, gain=_GAIN)
        nn.init.xavier_uniform_(self.output.weight)

    def forward(
        self, encoded: EncoderOutput | None, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Teacher forcing: ``logits[:, t]`` predict ``target[:, t + 1]``; the loss with ``targets``."""
        check_encoded("HistoryDecoder", encoded, None)
        check_ids("HistoryDecoder", "target", target, "batch", "time")
        length = target.shape[1]
        if length == 0:
            features = self.embedding.weight.new_zeros(len(target), 0, self.output.in_features)
            nothing = Weights.from_tensor(features.new_zeros(len(target), 0, 0))
            return logits_or_loss(features, self.output, {"decoder.0.self": nothing}, targets)
        hidden, _ = self.recurrence(self.dropout(self.embedding(target)))
        key, value, predict = self._parts(hidden)
        # A token reads those before it and not itself.
        past = masks.window(length, length, self.span, -1, device=target.device)
        read, weights, _ = self.attention(key, key, value, past)
        return logits_or_loss(self._joined(read, predict), self.output, {"decoder.0.self": weights}, targets)

    def start(self, encoded: EncoderOutput | None, rows: int = 1) -> tuple[None, HistoryState]:
        """Return no memory and the first state of ``rows`` hypotheses."""
        check_encoded("HistoryDecoder", encoded, None)
        weight = self.embedding.weight
        layers, part = self.recurrence.layers, self.read_layer.in_features
        zeros = weight.new_zeros(rows, layers.num_layers, layers.hidden_size)
        nothing = weight.new_zeros(rows, self.span, part)
        valid = torch.zeros(rows, self.span, dtype=torch.bool, device=weight.device)
        return None, HistoryState((zeros, zeros), nothing, nothing, valid)

    def read(self, tokens: Int[Tensor, "N P"], memory: None) -> HistoryState:
        """Return the state after N hypotheses have read P tokens each, at least 1."""
        check_ids("HistoryDecoder", "tokens", tokens, "row", "time")
        _, first = self.start(None, tokens.shape[0])
        hidden, recurrent = self.recurrence(self.dropout(self.embedding(tokens)))
        key, value, _ = self._parts(hidden)
        keys, values = torch.cat([first.keys, key], dim=1), torch.cat([first.values, value], dim=1)
        valid = torch.cat([first.valid, first.valid.new_ones(tokens.shape)], dim=1)
        return HistoryState(recurrent, keys[:, -self.span :], values[:, -self.span :], valid[:, -self.span :])

    def step(self, token: Int[Tensor, " N"], memory: None, state: HistoryState) -> DecoderStep:
        """Return the scores of what follows ``token`` in each of N hypotheses."""
        check_ids("HistoryDecoder", "token", token, "row")
        embedded = self.dropout(self.embedding(token)).unsqueeze(1)
        hidden, recurrent = self.recurrence(embedded, state.recurrent)
        key, value, predict = self._parts(hidden)
        read, _, _ = self.attention(key, state.keys, state.values, masks.keys(state.valid))
        logits = self.output(self._joined(read, predict).squeeze(1))
        keys, values = (torch.cat([old[:, 1:], new], dim=1) for old, new in ((state.keys, key), (state.values, value)))
        valid = torch.cat([state.valid[:, 1:], state.valid.new_ones(token.shape[0], 1)], dim=1)
        return DecoderStep(logits, HistoryState(recurrent, keys, values, valid), None)

    def _parts(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Key, value and prediction."""
        parts = hidden.chunk(self.split, dim=-1)
        return parts[0], parts[min(1, self.split - 1)], parts[-1]

    def _joined(self, read: Tensor, predict: Tensor) -> Tensor:
        joined: Tensor = self.dropout(torch.tanh(self.read_layer(read) + self.predict_layer(predict)))
        return joined
