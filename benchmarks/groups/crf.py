"""Conditional random field

The log-likelihood of tag sequences, its gradients, and the best sequence (Viterbi), sizes (batch, steps, tags), rows
of different lengths. Gradients over 1000 steps are compared with a wider tolerance, 1e-3 instead of 1e-4 of their
size: in float32 those of pytorch-crf are off by 5e-4 from its own in float64, ours by less than 1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import foci
from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci import masks

SHAPES = ((32, 100, 20), (32, 1000, 20))
VITERBI = "Viterbi"
GOALS = {FORWARD: None, TRAIN: 30.0, VITERBI: 10.0}


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Three measures at each shape."""
    for shape in SHAPES[:1] if quick else SHAPES:
        for measure in (FORWARD, TRAIN, VITERBI):
            yield _case(measure, shape)


def _case(measure: str, shape: tuple[int, int, int]) -> Case:
    batch, steps, num_tags = shape

    def inputs() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
        valid = masks.lengths(torch.randint(steps // 2, steps + 1, (batch,)), steps)
        field = foci.build("crf", num_tags=num_tags)
        return field, leaf(*shape), torch.randint(num_tags, (batch, steps)), valid

    def ours(field: Any, emissions: Tensor, tags: Tensor, valid: Tensor) -> Call:
        if measure == VITERBI:
            return call(measure, lambda: field.viterbi(emissions, valid).tags)
        return call(
            measure, lambda: field.log_likelihood(emissions, tags, valid), (emissions,), list(field.parameters())
        )

    def theirs(field: Any, emissions: Tensor, tags: Tensor, valid: Tensor) -> Call:
        from torchcrf import CRF

        peer = CRF(num_tags, batch_first=True)
        with torch.no_grad():
            peer.transitions.copy_(field.transitions)
            peer.start_transitions.copy_(field.start)
            peer.end_transitions.copy_(field.end)
        if measure == VITERBI:
            return call(measure, lambda: peer.decode(emissions, valid))
        return call(
            measure, lambda: peer(emissions, tags, valid, reduction="none"), (emissions,), list(peer.parameters())
        )

    return Case(
        name=f"chain {shape}",
        against="CRF",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        tolerance=1e-3 if measure == TRAIN and steps == 1000 else 1e-4,
        alike=_without_padding if measure == VITERBI else None,
        goal=GOALS[measure],
        memory_goal=5.0 if measure == TRAIN and steps == 1000 else None,
    )


def _without_padding(tags: Tensor) -> list[Tensor]:
    """Return the best sequence of each row, as pytorch-crf gives it."""
    return [row[row >= 0] for row in tags[:, 0]]
