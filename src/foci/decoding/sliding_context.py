"""Decoding without end: a language model reads windows of its past, and the window slides.

    window at first       BOS x_1 … x_n,   n < context
    when it is full       the first ``stride`` tokens are left, the rest is read again, and decoding goes on

A cache holds what was computed with the tokens that have left the window, at positions that count from its beginning.
So the state is computed anew from the tokens that stay, with BOS before them: a cached step gives what a pass over the
window gives, for every kind of positions. Every token is predicted from ``context − stride`` tokens at least, and each
is read ``context / stride`` times.

Complexity: O(context / stride) times the cost of reading each token once
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from foci.decoding.inputs import DecoderInputs
from foci.errors import ConfigError
from foci.layers.interfaces import DecoderStep, StepDecoder


@runtime_checkable
class ReadingModel(StepDecoder, Protocol):
    """A language model that reads many tokens at once, such as `foci.models.language_model.LanguageModel`."""

    def start(self, rows: int) -> tuple[Any, Any]:
        """Return the memory and the first state of this number of hypotheses."""

    def read(self, tokens: Int[Tensor, "N P"], memory: Any) -> Any:
        """Return the state after N hypotheses have read P tokens each."""


class WindowState(NamedTuple):
    """The window of each hypothesis, N rows.

    Attributes:
        tokens: what has been read of the window, BOS included.
        inner: the state of the model.
    """

    tokens: Int[Tensor, "N P"]
    inner: Any


class SlidingContext:
    """A language model whose window slides.

    Args:
        model: predicts the next token; in ``eval()``.
        context: the largest number of tokens of a window, BOS included.
        stride: how many tokens leave the window when it is full.
        bos: the token every window begins with.
    """

    max_length: int | None = None

    def __init__(self, model: ReadingModel, *, context: int, stride: int, bos: int = 1) -> None:
        longest = model.max_length
        if context < 2 or (longest is not None and context > longest):
            at_most = "" if longest is None else f" and at most the model's {longest} learned positions"
            raise ConfigError(f"context is {context}, expected at least 2{at_most}.")
        if not 1 <= stride < context:
            raise ConfigError(f"stride is {stride}, expected from 1 to {context - 1}, below the context of {context}.")
        self.model, self.context, self.stride, self.bos = model, context, stride, bos

    @torch.no_grad()
    def start(self, prompts: Int[Tensor, "N P"], max_steps: int) -> DecoderInputs:
        """Return what a search begins with that continues these prompts, all of one length, which may be 0."""
        rows, length = prompts.shape
        left = 0
        while length - left >= self.context:
            left += self.stride
        begin = prompts.new_full((rows, 1), self.bos)
        window = torch.cat([begin, prompts[:, left:]], dim=1)
        memory, inner = self.model.start(rows)
        if window.shape[1] > 1:
            inner = self.model.read(window[:, :-1], memory)
        state = WindowState(window[:, :-1], inner)
        return DecoderInputs(memory, state, rows, prompts.device, max_steps, last=window[:, -1])

    def step(self, token: Int[Tensor, " N"], memory: Any, state: WindowState) -> DecoderStep:
        """Return the scores of what follows ``token``."""
        window, inner = torch.cat([state.tokens, token.unsqueeze(1)], dim=1), state.inner
        if window.shape[1] > self.context:
            window = torch.cat([window[:, :1], window[:, 1 + self.stride :]], dim=1)
            inner = self.model.read(window[:, :-1], memory)
        logits, inner, attention = self.model.step(token, memory, inner)
        return DecoderStep(logits, WindowState(window, inner), attention)


class Window(NamedTuple):
    """Tokens ``begin`` to ``end`` of a text, of which those from ``new`` on are predicted here for the first time."""

    begin: int
    end: int
    new: int


def windows(length: int, context: int, stride: int) -> list[Window]:
    """Return the windows in which each token of a text is predicted once, from the same past as in `SlidingContext`.

    Args:
        length: number of tokens of the text.
        context: number of tokens of a window, which predicts as many: BOS takes the place of the last.
        stride: how far apart windows begin, from 1 to ``context``.

    Example:
        >>> windows(7, context=4, stride=2)
        [Window(begin=0, end=4, new=0), Window(begin=2, end=6, new=4), Window(begin=4, end=7, new=6)]
    """
    if not 1 <= stride <= context:
        raise ConfigError(f"stride is {stride}, expected from 1 to the context of {context}.")
    found = [Window(0, min(context, length), 0)] if length else []
    while found and found[-1].end < length:
        begin = found[-1].begin + stride
        found.append(Window(begin, min(begin + context, length), found[-1].end))
    return found
