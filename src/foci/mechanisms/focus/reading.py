"""Reading with a focus, in a way that `foci.edit` can change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from foci.mechanisms.focus.focus import FocusModule
from foci.mechanisms.normalizers import NormalizerFunction
from foci.mechanisms.parts import Reading
from foci.outputs import AttentionOutput
from foci.recording.rereading import Reread
from foci.recording.watching import editable


def _open(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Give each position that may be read the weight 1."""
    return torch.ones_like(scores) if mask is None else mask.expand(scores.shape).to(scores.dtype)


def _reread(focus: FocusModule, reading: Reading) -> Reread:
    """Return how a focus reads."""

    def find_open() -> Tensor:
        opened = focus.read(reading._replace(normalizer=NormalizerFunction(_open), dropout=0.0)).weights.dense() != 0.0
        return opened if reading.mask is None else opened & reading.mask

    def step(row: int, previous: Any) -> tuple[FocusModule, Reading]:
        at = slice(row, row + 1)
        limits = (one if one is None or one.shape[1] == 1 else one[:, at] for one in (reading.mask, reading.bias))
        of_row = reading._replace(query=reading.query[:, at], projected=reading.projected[:, at])
        mask, bias = limits
        return focus, of_row._replace(mask=mask, bias=bias, state=previous if row else reading.state)

    in_steps = reading.score.remembers or (focus.remembers and focus.takes_steps)
    return Reread(
        lambda weights: F.dropout(weights, reading.dropout) @ reading.memory.value,
        find_open,
        lambda open: focus.read(reading.limited(open)),
        next_state=(lambda weights, output: weights.squeeze(1)) if in_steps else None,
        step=step if in_steps else None,
    )


@editable(_reread)
def read_focus(focus: FocusModule, reading: Reading) -> AttentionOutput:
    """Return what the focus reads."""
    return focus.read(reading)
