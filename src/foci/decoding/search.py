"""What all searches share: the sentences of a batch that are still open, and how they take a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.decoding.limits import Limits
from foci.decoding.state import select
from foci.errors import ConfigError, check_valid
from foci.layers.seq2seq import Seq2Seq
from foci.results import Weights


class Hypothesis(NamedTuple):
    """A produced sentence: its tokens without BOS and EOS.

    ``log_prob`` is the model's log-probability of the tokens, and of EOS when it is ``finished``; ``score`` is what the
    search ranked it by.
    """

    tokens: list[int]
    score: float
    log_prob: float
    finished: bool


class Search:
    """The open sentences: their hypotheses so far, and the model's memory and state for them.

    Row ``b · width + k`` belongs to hypothesis k of the b-th open source, ``sources[b]``.
    """

    def __init__(
        self, model: Seq2Seq, source: Int[Tensor, "B S"], source_valid: Bool[Tensor, "B S"], limits: Limits
    ) -> None:
        check_valid("decoding", "source_valid", source_valid, source.shape[0], source.shape[1], source.device)
        if limits.prefix is not None and len(limits.prefix) != source.shape[0]:
            raise ConfigError(
                f"Limits: there are {len(limits.prefix)} prefixes for {source.shape[0]} sources, expected one for each."
            )
        self.model = model
        self.limits = limits
        self.most_steps = limits.most_steps(source_valid, getattr(model, "max_length", None))
        self.sources = list(range(source.shape[0]))
        self.tokens = source.new_empty(source.shape[0], 0)
        self.log_probs: Tensor | None = None  # (N,) of each hypothesis; None before the first step: all 0
        self.attention: Weights | None = None
        self._last = source.new_full((source.shape[0],), limits.bos)
        self._memory: Any = None
        self._state: Any = None
        if self.sources:
            self._memory, self._state = model.start(source, source_valid)

    @property
    def steps(self) -> int:
        """How many tokens each hypothesis has."""
        return self.tokens.shape[1]

    @property
    def width(self) -> int:
        """How many hypotheses each source has."""
        return self.tokens.shape[0] // max(1, len(self.sources))

    def next(self) -> Float[Tensor, "N V"]:
        """The log-probabilities of what may come next, −∞ for what may not."""
        logits, self._state, self.attention = self.model.step(self._last, self._memory, self._state)
        # Half precision is too coarse to add up; double stays double.
        logs = torch.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        return self.limits.apply(logs, self.tokens, self.sources)

    def repeat(self, width: int) -> None:
        """Let every source have so many hypotheses, all alike."""
        self._take(torch.arange(len(self.sources), device=self.tokens.device).repeat_interleave(width))

    def extend(self, rows: Int[Tensor, " N"] | None, tokens: Int[Tensor, " N"], log_probs: Float[Tensor, " N"]) -> None:
        """Go on from these rows (None: all, in place), each with its token; the log-probabilities are the new sums."""
        if rows is not None:
            self._take(rows)
        self.tokens = torch.cat([self.tokens, tokens.unsqueeze(1)], dim=1)
        self._last = tokens
        self.log_probs = log_probs

    def keep(self, places: Sequence[int]) -> Int[Tensor, " N"] | None:
        """Drop every source but those at these places; gives the rows that stay, None when all do."""
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


Choose = Callable[[Tensor], Tensor]
"""From log-probabilities ``(N, V)`` to one token for each row."""


@torch.no_grad()
def follow(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_valid: Bool[Tensor, "B S"],
    limits: Limits,
    choose: Choose,
    width: int = 1,
) -> list[list[Hypothesis]]:
    """Choose token after token, ``width`` times for each source; a source is left when all of its are finished."""
    search = Search(model, source, source_valid, limits)
    if width > 1:
        search.repeat(width)
    found: list[list[Hypothesis]] = [[] for _ in search.sources]
    ended = torch.zeros(source.shape[0] * width, dtype=torch.bool, device=source.device)
    closed: list[list[Hypothesis | None]] = [[None] * width for _ in search.sources]
    while search.sources:
        logs = search.next()
        stuck = logs.amax(dim=-1) == -torch.inf  # nothing may follow: the hypothesis ends here, unfinished
        tokens = choose(logs.masked_fill_(stuck.unsqueeze(1), 0.0) if bool(stuck.any()) else logs)
        gained = logs.gather(1, tokens.unsqueeze(1)).squeeze(1)
        sums = gained if search.log_probs is None else search.log_probs + gained
        ends = (tokens == limits.eos) | stuck
        new = (ends & ~ended).nonzero().squeeze(1).tolist()
        for row in new:
            finished = not bool(stuck[row])
            before = 0.0 if search.log_probs is None else float(search.log_probs[row])
            log_prob = float(sums[row]) if finished else before
            one = Hypothesis(search.tokens[row].tolist(), log_prob, log_prob, finished)
            closed[search.sources[row // width]][row % width] = one
        ended = ended | ends
        search.extend(None, tokens, sums)
        late = [search.most_steps[number] <= search.steps for number in search.sources]
        if not (new or any(late)):
            continue
        over_all = ended.view(-1, width).all(dim=1).tolist()
        places = []
        for place, number in enumerate(search.sources):
            if not (late[place] or over_all[place]):
                places.append(place)
                continue
            for row, done in enumerate(closed[number], start=place * width):
                total = float(sums[row])
                found[number].append(done or Hypothesis(search.tokens[row].tolist(), total, total, False))
        rows = search.keep(places)
        if rows is not None:
            ended = ended.index_select(0, rows)
    return found
