"""Recurrent layers, batch first: LSTM and GRU, an encoder in one or two directions, maxout.

    h_t = f(x_t, h_{t−1}),   forward and backward:  h_t = [→h_t; ←h_t]

Paper: Long Short-Term Memory (Hochreiter, Schmidhuber, 1997); Learning Phrase Representations using RNN
    Encoder-Decoder for Statistical Machine Translation (Cho et al., 2014), eqs. 5-8; Bidirectional Recurrent Neural
    Networks (Schuster, Paliwal, 1997)
Names: h_t = output, x_t = inputs
Complexity: O(T · D · (D + input)) per layer and direction
Differs: the gates are those of torch.nn.LSTM (with a forget gate) and torch.nn.GRU (reset after the product).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_shape, check_valid
from foci.errors import ConfigError, check_positive, unknown_name

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}

_CLOSED = 1e4
"""Added to the input of a gate's sigmoid, it makes the gate exactly 0 or 1 in every dtype."""

State = tuple[Tensor, ...]
"""``(hidden,)`` of a GRU, ``(hidden, cell)`` of an LSTM, each ``(N, layers, D)``, rows first for reordering."""


class Recurrence(nn.Module):
    """A stack of LSTM or GRU layers whose state has its rows first.

    Args:
        input_dim: size of the inputs.
        hidden_dim: size of the state, in each direction.
        cell: "lstm" or "gru".
        num_layers: number of layers.
        bidirectional: run in both directions and concatenate the outputs.
        dropout: share of the outputs dropped between layers in training.

    `torch.compile` leaves torch's LSTM and GRU out of its graph unless ``torch._dynamo.config.allow_rnn`` is set.

    Example:
        >>> import torch
        >>> output, state = Recurrence(3, 5, cell="gru", num_layers=2)(torch.zeros(7, 11, 3))
        >>> output.shape, [part.shape for part in state]
        (torch.Size([7, 11, 5]), [torch.Size([7, 2, 5])])
    """

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        *,
        cell: str = "lstm",
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise unknown_name("recurrent cell", cell, CELLS)
        check_positive("Recurrence", input_dim=input_dim, hidden_dim=hidden_dim, num_layers=num_layers)
        self.layers = CELLS[cell](
            input_dim,
            hidden_dim,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,  # torch warns of dropout with a single layer
        )

    def forward(
        self, inputs: Float[Tensor, "N T D"], state: State | None = None
    ) -> tuple[Float[Tensor, "N T E"], State]:
        """Return the top layer's outputs and the state after the last input."""
        check_shape("Recurrence", "inputs", inputs, "row", "time", self.layers.input_size)
        if self._wants_full_precision(inputs):
            dtype = next(self.parameters()).dtype
            with torch.autocast("cpu", enabled=False):
                return self.forward(
                    inputs.to(dtype), None if state is None else tuple(part.to(dtype) for part in state)
                )
        given = None if state is None else tuple(part.transpose(0, 1).contiguous() for part in state)
        if given is not None and len(given) == 1:
            output, last = self.layers(inputs, given[0])
        else:
            output, last = self.layers(inputs, given)
        return output, tuple(part.transpose(0, 1) for part in ((last,) if isinstance(last, Tensor) else last))

    def read_padded(
        self, inputs: Float[Tensor, "N T D"], padding: Bool[Tensor, "N T"], start: State | None = None
    ) -> tuple[Float[Tensor, "N T E"], State]:
        """Compute `forward` for padded rows; padding changes neither the outputs before it nor the final state.

        Padding comes after the inputs of a row. ``start`` is the state before the first input, by default zeros. The
        final hidden state of a row without any input is not defined for an LSTM with a ``start``.

        One more input closes the gates at a padded step, so that the state stays as it is; in the backward direction it
        stays zero until the last word. torch's packed sequences compute the same with fewer steps, but on a CPU every
        step of their backward pass reads the whole sequence, which is many times slower.
        """
        if self._wants_full_precision(inputs):
            with torch.autocast("cpu", enabled=False):
                dtype = next(self.parameters()).dtype
                first = None if start is None else tuple(part.to(dtype) for part in start)
                return self.read_padded(inputs.to(dtype), padding, first)
        inputs = inputs.masked_fill(padding.unsqueeze(-1), 0.0)  # NaN in padding must not reach the gates
        state: list[Tensor] = []
        for layer in range(self.layers.num_layers):
            weights = [self._with_closing_gates(*direction) for direction in self._weights(layer)]
            begin = self._begin(start, layer, inputs.new_zeros(len(weights), len(inputs), self.layers.hidden_size))
            if self.is_lstm and start is not None and len(weights) == 2:
                # Padding keeps the cells, but hidden states would become o · tanh(c): backward begins at the last word.
                turned = _reversed(padding)
                ways = [
                    self._read_layer(one, padding, tuple(part[way : way + 1] for part in begin), weights[way : way + 1])
                    for way, one in enumerate((inputs, _take(inputs, turned)))
                ]
                inputs = torch.cat([ways[0][0], _take(ways[1][0], turned)], dim=-1)
                state.append(torch.cat([last for _, last in ways], dim=1))
            else:
                inputs, last = self._read_layer(inputs, padding, begin, weights)
                state.append(last)
            if layer < self.layers.num_layers - 1:
                inputs = F.dropout(inputs, self.layers.dropout, self.training)
        return inputs, torch.cat(state, dim=1).transpose(1, 2).unbind()

    def _read_layer(
        self, inputs: Tensor, padding: Tensor, begin: State, weights: list[list[Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs and the final state ``(parts, directions, N, D)`` of one layer."""
        rows, size = len(inputs), self.layers.hidden_size
        flat = [weight for direction in weights for weight in direction]
        flagged = torch.cat([inputs, padding.unsqueeze(-1).to(inputs.dtype)], dim=-1)
        how = (True, 1, 0.0, self.training, len(weights) > 1, True)  # biases, layers, dropout, …, batch first
        if not self.is_lstm:
            output, hidden = torch.gru(flagged, begin[0], flat, *how)
            return output, hidden.unsqueeze(0)
        output, hidden, cell = torch.lstm(flagged, begin, flat, *how)
        # The output gate stays open: the final state is the one at the last word.
        at_last = (~padding).sum(dim=1).clamp_min(1).sub(1).reshape(rows, 1, 1).expand(-1, -1, size)
        forward = output[..., :size].gather(1, at_last).transpose(0, 1)
        return output, torch.stack([torch.cat([forward, hidden[1:]]), cell])

    def _begin(self, start: State | None, layer: int, zeros: Tensor) -> State:
        """Return the first state of one layer, ``(directions, N, D)`` for each part."""
        if start is None:
            return (zeros, zeros) if self.is_lstm else (zeros,)
        ways = len(zeros)
        return tuple(part[:, layer * ways : (layer + 1) * ways].transpose(0, 1).contiguous() for part in start)

    @property
    def is_lstm(self) -> bool:
        """Whether the state has cells beside the hidden states."""
        return isinstance(self.layers, nn.LSTM)

    def _wants_full_precision(self, inputs: Tensor) -> bool:
        """Return whether to leave autocast: oneDNN lacks a bfloat16 LSTM on most processors; torch does not check."""
        return self.is_lstm and inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu")

    def _weights(self, layer: int) -> list[list[Tensor]]:
        """Return input weights, state weights and their biases of each direction."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ends = ["", "_reverse"] if self.layers.bidirectional else [""]
        return [[getattr(self.layers, f"{name}_l{layer}{end}") for name in names] for end in ends]

    def _with_closing_gates(self, of_inputs: Tensor, *others: Tensor) -> list[Tensor]:
        """Add a column to the input weights that opens the gate that keeps the state and closes the one that writes."""
        size = self.layers.hidden_size
        signs = of_inputs.new_tensor([-1.0, 1.0, 0.0, 0.0] if self.is_lstm else [0.0, 1.0, 0.0])  # i f g o; r z n
        return [torch.cat([of_inputs, (_CLOSED * signs).repeat_interleave(size).unsqueeze(1)], dim=1), *others]


class RecurrentEncoder(nn.Module):
    """Encodes padded sequences: positions that are not valid are skipped, also between valid ones.

    Args:
        input_dim: size of the embeddings.
        output_dim: size of the annotations; both directions together.
        cell, num_layers, bidirectional, dropout: as in `Recurrence`.

    Returns the annotations ``(B, S, output_dim)``, zero where not valid, and the final state
    ``(B, layers, output_dim)`` (the backward direction's final state is the one at the first word), zero for an empty
    source.

    Example:
        >>> import torch
        >>> valid = torch.tensor([[True, True, False], [False, False, False]])
        >>> output, (hidden, cell) = RecurrentEncoder(5, 4)(torch.ones(2, 3, 5), valid)
        >>> output.shape, hidden.shape, output[1].abs().sum().item()
        (torch.Size([2, 3, 4]), torch.Size([2, 1, 4]), 0.0)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        cell: str = "lstm",
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        if output_dim % directions:
            raise ConfigError(
                f"RecurrentEncoder: output_dim is {output_dim}, expected an even number: half for each direction."
            )
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.num_layers = num_layers
        self.recurrence = Recurrence(
            input_dim,
            output_dim // directions,
            cell=cell,
            num_layers=num_layers,
            bidirectional=bidirectional,
            dropout=dropout,
        )

    def forward(
        self, embedded: Float[Tensor, "B S D"], valid: Bool[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "B S E"], State]:
        """Return the annotations and the final state."""
        check_shape("RecurrentEncoder", "embedded", embedded, "batch", "position", self.input_dim)
        batch, size = embedded.shape[:2]
        check_valid("RecurrentEncoder", "valid", valid, batch, size, embedded.device)
        if batch == 0 or size == 0:
            parts = 2 if self.recurrence.is_lstm else 1
            nothing = embedded.new_zeros(batch, self.num_layers, self.output_dim)
            return embedded.new_zeros(batch, size, self.output_dim), (nothing,) * parts
        order = (~valid).argsort(dim=1, stable=True)  # valid positions first, in their order
        output, state = self.recurrence.read_padded(_take(embedded, order), ~valid.gather(1, order))
        annotations = _take(output, order.argsort(dim=1)).masked_fill(~valid.unsqueeze(-1), 0.0)
        return annotations, tuple(self._join(part) for part in state)

    def _join(self, part: Tensor) -> Tensor:
        """Concatenate the directions of each layer of ``(B, layers · directions, D)``."""
        return part.reshape(part.shape[0], self.num_layers, self.output_dim)


class Bridge(nn.Module):
    """Maps a source's summary to a decoder's first state: ``tanh(W h)`` for hidden states, ``W c`` for LSTM cells.

    A summary without cells gives its hidden states in their place. Where the numbers of layers differ, every layer
    starts from the summary's top layer.

    Args:
        source_dim: size of the summary.
        hidden_dim: size of the decoder's state.
        cell: the decoder's, "lstm" or "gru".
        num_layers: the decoder's number of layers.

    Example:
        >>> import torch
        >>> [part.shape for part in Bridge(3, 5, cell="lstm", num_layers=2)((torch.zeros(2, 1, 3),))]
        [torch.Size([2, 2, 5]), torch.Size([2, 2, 5])]
    """

    def __init__(self, source_dim: int, hidden_dim: int, *, cell: str, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden = nn.Linear(source_dim, hidden_dim)
        self.cell = nn.Linear(source_dim, hidden_dim) if cell == "lstm" else None

    def forward(self, summary: State) -> State:
        """Return the first state; all layers share the same weights."""
        parts = tuple(self._fit_layers(part) for part in summary)
        hidden = torch.tanh(self.hidden(parts[0]))
        return (hidden,) if self.cell is None else (hidden, self.cell(parts[-1]))

    def _fit_layers(self, part: Tensor) -> Tensor:
        return part if part.shape[1] == self.num_layers else part[:, -1:].expand(-1, self.num_layers, -1)


class Maxout(nn.Module):
    """The unit-wise maximum of two linear maps (Goodfellow et al., 2013).

    Example:
        >>> import torch
        >>> Maxout(3, 5)(torch.zeros(2, 3)).shape
        torch.Size([2, 5])
    """

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(input_dim, 2 * output_dim)

    def forward(self, inputs: Float[Tensor, "... D"]) -> Float[Tensor, "... E"]:
        """Return ``max(W x + b, W' x + b')``; units 2i and 2i + 1 are compared."""
        units: Tensor = self.layer(inputs)
        return torch.maximum(units[..., ::2], units[..., 1::2])


class DeepOutput(nn.Module):
    """The deep output layer of Xu et al. (2015), eq. 7, before its last map: the embedding plus ``L_h h + L_z z``.

    Args:
        hidden_dim: size of the state h.
        embedding_dim: size of the embedding, and of the output.
        context_dim: size of the context z.

    Example:
        >>> import torch
        >>> DeepOutput(3, 5, 7)(torch.zeros(2, 15)).shape
        torch.Size([2, 5])
    """

    def __init__(self, hidden_dim: int, embedding_dim: int, context_dim: int) -> None:
        super().__init__()
        self.sizes = (hidden_dim, embedding_dim, context_dim)
        self.layer = nn.Linear(hidden_dim + context_dim, embedding_dim)

    def forward(self, inputs: Float[Tensor, "... D"]) -> Float[Tensor, "... E"]:
        """Return the sum for inputs ``[h; embedding; z]``."""
        hidden, embedded, context = inputs.split(self.sizes, dim=-1)
        readout: Tensor = embedded + self.layer(torch.cat([hidden, context], dim=-1))
        return readout


def _reversed(padding: Bool[Tensor, "N T"]) -> Int[Tensor, "N T"]:
    """Return the order that reverses the inputs of each row; padding stays behind them."""
    places = torch.arange(padding.shape[1], device=padding.device)
    return torch.where(padding, places, (~padding).sum(dim=1, keepdim=True) - 1 - places)


def _take(values: Tensor, order: Tensor) -> Tensor:
    return values.gather(1, order.unsqueeze(-1).expand(-1, -1, values.shape[-1]))
