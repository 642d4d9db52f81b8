"""Word-by-word attention

A premise and a hypothesis, sizes (batch, premise, hypothesis, model). No package has this mechanism, so the kernel of
all steps is compared with the loop over the steps, whose scores are the additive kernel's: the steps alone, and the
whole mechanism, in which both sides share four projections. The goal in training is ten times the loop's speed. The
whole mechanism cannot reach it at the smaller shape: its matrix products alone, at the processor's peak, take a tenth
of the loop's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import torch
from torch import Tensor

from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci.functional import stepwise
from foci.functional.kernels import word_by_word as kernel
from foci.mechanisms.pair import WordByWord

SHAPES = ((32, 20, 20, 100), (32, 100, 100, 100))
GOALS = {FORWARD: None, TRAIN: 10.0}


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Both measures of the steps and of the mechanism at each shape."""
    for shape in SHAPES[:1] if quick else SHAPES:
        for measure in (FORWARD, TRAIN):
            yield _steps(measure, shape)
            yield _mechanism(measure, shape)


def _plain(*arguments: Tensor, plain: object = None) -> tuple[Tensor, Tensor]:
    return stepwise._plain_word_by_word(*arguments)


def _steps(measure: str, shape: tuple[int, int, int, int]) -> Case:
    batch, premise, hypothesis, size = shape

    def inputs() -> tuple[Tensor, ...]:
        match = WordByWord(size)
        value, right = leaf(batch, premise, size), leaf(batch, hypothesis, size)
        key, query = match.score_left(value).detach(), match.score_right(right).detach()
        exists, valid = torch.ones(batch, hypothesis, dtype=torch.bool), torch.ones(batch, premise, dtype=torch.bool)
        arguments = (torch.zeros(batch, 1, size), query, exists, value, key, valid)
        parameters = (match.vector, match.score_memory.weight, match.carry.weight)
        return *(one.requires_grad_(one.is_floating_point()) for one in arguments), *parameters

    def side(steps: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Call]:
        def prepare(*arguments: Tensor) -> Call:
            leaves = [one for one in arguments if one.requires_grad]
            return call(measure, lambda: steps(*arguments, plain=_plain)[0], leaves)

        return prepare

    return Case(
        name=f"steps {shape}",
        against="the loop over the steps",
        measure=measure,
        inputs=inputs,
        ours=side(kernel.word_by_word),
        theirs=side(_plain),
        goal=GOALS[measure],
    )


def _mechanism(measure: str, shape: tuple[int, int, int, int]) -> Case:
    batch, premise, hypothesis, size = shape

    def inputs() -> tuple[WordByWord, Tensor, Tensor]:
        return WordByWord(size), leaf(batch, premise, size), leaf(batch, hypothesis, size)

    def ours(match: WordByWord, left: Tensor, right: Tensor) -> Call:
        return call(measure, lambda: match(left, right).output, (left, right), list(match.parameters()))

    def theirs(match: WordByWord, left: Tensor, right: Tensor) -> Call:
        def loop() -> Tensor:
            with mock.patch.object(kernel, "word_by_word", _plain):
                output: Tensor = match(left, right).output
                return output

        return call(measure, loop, (left, right), list(match.parameters()))

    return Case(
        name=f"pairs {shape}",
        against="the loop over the steps",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=GOALS[measure],
    )
