"""Word-by-word attention

A premise and a hypothesis, sizes (batch, premise, hypothesis, model). No package has this mechanism, so the kernel of
all steps is compared with the loop over the steps, whose scores are the additive kernel's. The goal in training is
ten times the loop's speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

from torch import Tensor

from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci.functional import stepwise
from foci.functional.kernels import word_by_word as kernel
from foci.mechanisms.pair import WordByWord

SHAPES = ((32, 20, 20, 100), (32, 100, 100, 100))
GOALS = {FORWARD: None, TRAIN: 10.0}


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Both measures at each shape."""
    for shape in SHAPES[:1] if quick else SHAPES:
        for measure in (FORWARD, TRAIN):
            yield _case(measure, shape)


def _case(measure: str, shape: tuple[int, int, int, int]) -> Case:
    batch, premise, hypothesis, size = shape

    def inputs() -> tuple[WordByWord, Tensor, Tensor]:
        return WordByWord(size), leaf(batch, premise, size), leaf(batch, hypothesis, size)

    def ours(match: WordByWord, left: Tensor, right: Tensor) -> Call:
        return call(measure, lambda: match(left, right).output, (left, right), list(match.parameters()))

    def theirs(match: WordByWord, left: Tensor, right: Tensor) -> Call:
        def loop() -> Tensor:
            def plain(*arguments: Tensor, plain: object) -> tuple[Tensor, Tensor]:
                return stepwise._plain_word_by_word(*arguments)

            with mock.patch.object(kernel, "word_by_word", plain):
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
