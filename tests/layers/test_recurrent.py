"""Recurrent layers over padded rows."""

import pytest
import torch

from foci.layers.recurrent import Recurrence

LENGTHS = (4, 7, 1)


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_padding_changes_neither_outputs_nor_state(cell, bidirectional, started):
    torch.manual_seed(3)
    layer = Recurrence(3, 5, cell=cell, num_layers=2, bidirectional=bidirectional).double()
    ways, parts = 1 + bidirectional, 1 + (cell == "lstm")
    inputs = torch.randn(len(LENGTHS), max(LENGTHS), 3, dtype=torch.float64)
    start = (
        tuple(torch.randn(len(LENGTHS), 2 * ways, 5, dtype=torch.float64) for _ in range(parts)) if started else None
    )
    padding = torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS).unsqueeze(1)
    output, state = layer.read_padded(inputs.masked_fill(padding.unsqueeze(-1), torch.nan), padding, start)
    for row, length in enumerate(LENGTHS):
        first = None if start is None else tuple(part[row : row + 1] for part in start)
        alone, last = layer(inputs[row : row + 1, :length], first)
        torch.testing.assert_close(output[row, :length], alone[0])
        for part, expected in zip(state, last):
            torch.testing.assert_close(part[row], expected[0])
