"""The state of every search: the open hypotheses of a batch, and how they are extended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.decoding.constraints import GenerationConstraints
from foci.decoding.inputs import DecoderInputs
from foci.decoding.selection import select
from foci.errors import ConfigError
from foci.layers.interfaces import StepDecoder
from foci.weights import Weights


class Hypothesis(NamedTuple):
    """A produced sequence.

    Attributes:
        tokens: its tokens without BOS and EOS.
        score: what the search ranked it by.
        log_prob: the model's log-probability of the tokens, and of EOS when it is finished.
        finished: whether it ended in EOS.
    """

    tokens: list[int]
    score: float
    log_prob: float
    finished: bool


class SearchState:
    """The open hypotheses of a search, and the decoder's memory and state for them.

    Row ``b · width + k`` belongs to hypothesis k of the b-th open source, ``sources[b]``. Without a source, each row
    the search started from counts as one.
    """

    def __init__(self, decoder: StepDecoder, inputs: DecoderInputs, constraints: GenerationConstraints) -> None:
        if constraints.prefix is not None and len(constraints.prefix) != inputs.rows:
            raise ConfigError(
                f"GenerationConstraints: there are {len(constraints.prefix)} prefixes for {inputs.rows} sources, "
                "expected one for each."
            )
        self.decoder = decoder
        self.constraints = constraints
        self.max_steps = inputs.steps_per_row(constraints.max_length, decoder.max_length)
        self.sources = list(range(inputs.rows))
        self.tokens = torch.empty(inputs.rows, 0, dtype=torch.long, device=inputs.device)
        self.log_probs: Tensor | None = None  # (N,) of each hypothesis; None before the first step: all 0
        self.attention: Weights | None = None
        bos = torch.full((inputs.rows,), constraints.bos, dtype=torch.long, device=inputs.device)
        self._last = bos if inputs.last is None else inputs.last
        self._memory, self._state = inputs.memory, inputs.state
        self.normalized = inputs.normalized  # then the decoder itself may allow no token, as CTC does after EOS

    @property
    def steps(self) -> int:
        """The number of tokens of each hypothesis."""
        return self.tokens.shape[1]

    @property
    def width(self) -> int:
        """The number of hypotheses per source."""
        return self.tokens.shape[0] // max(1, len(self.sources))

    def next(self) -> Float[Tensor, "N V"]:
        """Take a step; return the log-probabilities of the next token, −∞ where it is not allowed."""
        logs, self._state, self.attention = self.decoder.step(self._last, self._memory, self._state)
        if not self.normalized:  # sums of log-probabilities need single precision at least
            logs = torch.log_softmax(logs, dim=-1, dtype=torch.promote_types(logs.dtype, torch.float32))
        return self.constraints.apply(logs, self.tokens, self.sources)

    def repeat(self, width: int) -> None:
        """Repeat the one hypothesis of every source ``width`` times."""
        self._take(torch.arange(len(self.sources), device=self.tokens.device).repeat_interleave(width))

    def extend(self, rows: Int[Tensor, " N"] | None, tokens: Int[Tensor, " N"], log_probs: Float[Tensor, " N"]) -> None:
        """Extend these rows (None: all of them, in order) by one token each.

        Args:
            rows: the rows to extend.
            tokens: their next tokens.
            log_probs: the log-probabilities of the extended hypotheses.
        """
        if rows is not None:
            self._take(rows)
        self.tokens = torch.cat([self.tokens, tokens.unsqueeze(1)], dim=1)
        self._last = tokens
        self.log_probs = log_probs

    def keep(self, places: Sequence[int]) -> Int[Tensor, " N"] | None:
        """Keep only the sources with these indices; return the rows that stay, None when all do."""
        if len(places) == len(self.sources):
            return None
        width = self.width
        kept = torch.tensor(places, dtype=torch.long, device=self.tokens.device)
        rows = (kept.unsqueeze(1) * width + torch.arange(width, device=kept.device)).flatten()
        self.sources = [self.sources[place] for place in places]
        if places:
            self._memory = select(self._memory, kept)
        self._take(rows)
        return rows

    def _take(self, rows: Tensor) -> None:
        if rows.shape[0]:
            self._state = select(self._state, rows)
        self.tokens = self.tokens.index_select(0, rows)
        self._last = self._last.index_select(0, rows)
        if self.log_probs is not None:
            self.log_probs = self.log_probs.index_select(0, rows)


Choose = Callable[[Tensor, Tensor, Sequence[int]], Tensor]
"""From log-probabilities ``(N, V)``, the tokens so far ``(N, t)`` and the numbers of the sources to a token per row."""
Ends = Callable[[Tensor, Sequence[int]], Tensor]
"""From the tokens so far ``(N, t)`` and the numbers of the sources to whether each row ends here, ``(N,)``."""


def generate(
    decoder: StepDecoder,
    inputs: DecoderInputs,
    constraints: GenerationConstraints,
    choose: Choose,
    width: int = 1,
    ends_here: Ends | None = None,
) -> list[list[Hypothesis]]:
    """Take all steps of `iterate`; return the hypotheses of each source."""
    steps = iterate(decoder, inputs, constraints, choose, width, ends_here)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: list[list[Hypothesis]] = end.value
        return found


@torch.no_grad()
def iterate(
    decoder: StepDecoder,
    inputs: DecoderInputs,
    constraints: GenerationConstraints,
    choose: Choose,
    width: int = 1,
    ends_here: Ends | None = None,
) -> Generator[SearchState, None, list[list[Hypothesis]]]:
    """Choose token after token for ``width`` hypotheses per source; drop a source when all of its are finished.

    Args:
        decoder: in ``eval()``.
        inputs: the decoder's memory and first state.
        constraints: allowed lengths and tokens.
        choose: the next token of each row.
        width: the number of hypotheses per source.
        ends_here: ends further rows, as EOS does, after the token they have just got.

    Yields:
        The state of the search after each token, the new one included.

    Returns:
        The hypotheses of each source.
    """
    search = SearchState(decoder, inputs, constraints)
    if width > 1:
        search.repeat(width)
    found: list[list[Hypothesis]] = [[] for _ in search.sources]
    closed: list[list[Hypothesis | None]] = [[None] * width for _ in search.sources]

    def is_open(row: int) -> bool:
        return closed[search.sources[row // width]][row % width] is None

    def hypothesis(row: int, log_prob: Tensor | None, *, finished: bool) -> Hypothesis:
        total = 0.0 if log_prob is None else float(log_prob[row])
        return Hypothesis(search.tokens[row].tolist(), total, total, finished)

    while search.sources:
        logs = search.next()
        stuck: set[int] = set()  # rows for which no token is allowed: the hypothesis ends here, unfinished
        if search.normalized or constraints.may_allow_nothing(logs.shape[1]):
            none = logs.amax(dim=-1) == -torch.inf
            stuck = set(none.nonzero().squeeze(1).tolist())
            logs = logs.masked_fill_(none.unsqueeze(1), 0.0) if stuck else logs
        tokens = choose(logs, search.tokens, search.sources)
        gained = logs.gather(1, tokens.unsqueeze(1)).squeeze(1)
        sums = gained if search.log_probs is None else search.log_probs + gained
        for row, token in enumerate(tokens.tolist()):
            if (token == constraints.eos or row in stuck) and is_open(row):
                one = hypothesis(row, search.log_probs if row in stuck else sums, finished=row not in stuck)
                closed[search.sources[row // width]][row % width] = one
        search.extend(None, tokens, sums)
        yield search
        if ends_here is not None:
            for row in ends_here(search.tokens, search.sources).nonzero().squeeze(1).tolist():
                if is_open(row):
                    closed[search.sources[row // width]][row % width] = hypothesis(row, sums, finished=True)
        places = []
        for place, number in enumerate(search.sources):
            if search.steps < search.max_steps[number] and None in closed[number]:
                places.append(place)
                continue
            for row, done in enumerate(closed[number], start=place * width):
                found[number].append(done or hypothesis(row, sums, finished=False))
        search.keep(places)
    return found
