"""The state of every search: the open hypotheses of a batch, and how they are extended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.decoding.limits import Limits
from foci.decoding.selection import select
from foci.decoding.start import SearchStart
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

    def __init__(self, decoder: StepDecoder, start: SearchStart, limits: Limits) -> None:
        if limits.prefix is not None and len(limits.prefix) != start.rows:
            raise ConfigError(
                f"Limits: there are {len(limits.prefix)} prefixes for {start.rows} sources, expected one for each."
            )
        self.decoder = decoder
        self.limits = limits
        self.max_steps = start.steps_per_row(limits.max_length, decoder.max_length)
        self.sources = list(range(start.rows))
        self.tokens = torch.empty(start.rows, 0, dtype=torch.long, device=start.device)
        self.log_probs: Tensor | None = None  # (N,) of each hypothesis; None before the first step: all 0
        self.attention: Weights | None = None
        bos = torch.full((start.rows,), limits.bos, dtype=torch.long, device=start.device)
        self._last = bos if start.last is None else start.last
        self._memory, self._state = start.memory, start.state

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
        logits, self._state, self.attention = self.decoder.step(self._last, self._memory, self._state)
        if getattr(self.decoder, "gives_log_probs", False):  # sums of several: normalized again they would not be
            return self.limits.apply(logits, self.tokens, self.sources)
        # Sums of log-probabilities need single precision at least.
        logs = torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        return self.limits.apply(logs, self.tokens, self.sources)

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


def follow(
    decoder: StepDecoder,
    start: SearchStart,
    limits: Limits,
    choose: Choose,
    width: int = 1,
    ends_here: Ends | None = None,
) -> list[list[Hypothesis]]:
    """Take all steps of `following`; return the hypotheses of each source."""
    steps = following(decoder, start, limits, choose, width, ends_here)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: list[list[Hypothesis]] = end.value
        return found


@torch.no_grad()
def following(
    decoder: StepDecoder,
    start: SearchStart,
    limits: Limits,
    choose: Choose,
    width: int = 1,
    ends_here: Ends | None = None,
) -> Generator[SearchState, None, list[list[Hypothesis]]]:
    """Choose token after token for ``width`` hypotheses per source; drop a source when all of its are finished.

    Args:
        decoder: in ``eval()``.
        start: the decoder's memory and first state.
        limits: allowed lengths and tokens.
        choose: the next token of each row.
        width: the number of hypotheses per source.
        ends_here: ends further rows, as EOS does, after the token they have just got.

    Yields:
        The state of the search after each token, the new one included.

    Returns:
        The hypotheses of each source.
    """
    search = SearchState(decoder, start, limits)
    if width > 1:
        search.repeat(width)
    found: list[list[Hypothesis]] = [[] for _ in search.sources]
    ended = [False] * (start.rows * width)
    closed: list[list[Hypothesis | None]] = [[None] * width for _ in search.sources]
    while search.sources:
        logs = search.next()
        stuck: set[int] = set()  # rows for which no token is allowed: the hypothesis ends here, unfinished
        if limits.may_allow_nothing(logs.shape[1]):
            none = logs.amax(dim=-1) == -torch.inf
            stuck = set(none.nonzero().squeeze(1).tolist())
            logs = logs.masked_fill_(none.unsqueeze(1), 0.0) if stuck else logs
        tokens = choose(logs, search.tokens, search.sources)
        gained = logs.gather(1, tokens.unsqueeze(1)).squeeze(1)
        sums = gained if search.log_probs is None else search.log_probs + gained
        new = [
            row for row, token in enumerate(tokens.tolist()) if not ended[row] and (token == limits.eos or row in stuck)
        ]
        for row in new:
            finished = row not in stuck
            before = 0.0 if search.log_probs is None else float(search.log_probs[row])
            log_prob = float(sums[row]) if finished else before
            one = Hypothesis(search.tokens[row].tolist(), log_prob, log_prob, finished)
            closed[search.sources[row // width]][row % width] = one
            ended[row] = True
        search.extend(None, tokens, sums)
        yield search
        if ends_here is not None:
            for row in ends_here(search.tokens, search.sources).nonzero().squeeze(1).tolist():
                if not ended[row]:
                    total = float(sums[row])
                    one = Hypothesis(search.tokens[row].tolist(), total, total, True)
                    closed[search.sources[row // width]][row % width] = one
                    ended[row] = True
                    new.append(row)
        late = [search.max_steps[number] <= search.steps for number in search.sources]
        if not (new or any(late)):
            continue
        places = []
        for place, number in enumerate(search.sources):
            if not (late[place] or all(ended[place * width : (place + 1) * width])):
                places.append(place)
                continue
            for row, done in enumerate(closed[number], start=place * width):
                total = float(sums[row])
                found[number].append(done or Hypothesis(search.tokens[row].tolist(), total, total, False))
        rows = search.keep(places)
        if rows is not None:
            ended = [ended[row] for row in rows.tolist()]
    return found
