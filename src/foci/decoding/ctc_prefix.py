"""CTC's opinion joined to a decoder's, step by step; or CTC's alone.

    score(c | g) = (1 − λ) log p(c | g) + λ (log ψ(g·c) − log ψ(g)),     of EOS: ψ(g·EOS) = p(exactly g)

Neither term is ever above 0, so that a beam search stops as exactly as without CTC.

Paper: Hybrid CTC/Attention Architecture for End-to-End Speech Recognition (Watanabe et al., 2017), section IV-C
Names: λ = weight, ψ = `foci.functional.ctc.prefix_scores`
Complexity: O(N · T · V) per step beside the decoder's
Differs: all tokens are scored, not the decoder's best alone; the sums are those of `foci.functional.ctc`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.decoding.inputs import DecoderInputs
from foci.errors import ConfigError
from foci.functional import ctc
from foci.layers.interfaces import DecoderStep, StepDecoder


class CtcMemory(NamedTuple):
    """The decoder's memory, the log-probabilities of each frame, and the number of frames of each source."""

    inner: Any
    log_probs: Float[Tensor, "B T V"]
    lengths: Int[Tensor, " B"]


class CtcState(NamedTuple):
    """The decoder's state, and of each hypothesis its prefix and last token (−1: none) before the one that follows.

    ``scores (N, V)`` are log ψ of the prefix with each token that may follow.
    """

    inner: Any
    prefix: Tensor
    last: Tensor
    scores: Tensor


class CtcJoinedDecoder:
    """A decoder whose scores are joined with CTC's prefix scores, for the searches of `foci.decoding`.

    Args:
        decoder: gives the other scores; None for CTC alone.
        weight: of CTC, from 0 to 1; 1 without a decoder.
        bos: the token before the first.
        eos: the token that ends a hypothesis.
    """

    def __init__(self, decoder: StepDecoder | None, weight: float, *, bos: int = 1, eos: int = 2) -> None:
        if not 0 <= weight <= 1 or (decoder is None and weight != 1):
            raise ConfigError(f"CtcJoinedDecoder: weight is {weight}, expected 0 to 1, and 1 without a decoder.")
        self.decoder, self.weight, self.bos, self.eos = decoder, weight, bos, eos

    @property
    def max_length(self) -> int | None:
        """The decoder's limit."""
        return None if self.decoder is None else self.decoder.max_length

    def start(
        self,
        inner: tuple[Any, Any] | None,
        log_probs: Float[Tensor, "B T V"],
        valid: Bool[Tensor, "B T"],
    ) -> DecoderInputs:
        """Return what a search begins with.

        Args:
            inner: the decoder's memory and first state; None without a decoder.
            log_probs: CTC's, of each frame.
            valid: which frames exist, the first ones of each source.
        """
        memory, state = (None, None) if inner is None else inner
        # Double precision: the sums over time are differences of large numbers.
        logs = log_probs.double()
        lengths = valid.sum(dim=1)
        # In frames that do not exist there is blank, and nothing else: they change no prefix.
        logs = logs.masked_fill(~valid.unsqueeze(2), -torch.inf)
        logs[:, :, ctc.BLANK] = logs[:, :, ctc.BLANK].masked_fill(~valid, 0.0)
        rows = len(logs)
        none = torch.full((rows,), -1, dtype=torch.long, device=logs.device)
        first = CtcState(state, ctc.empty_prefix(logs), none, logs.new_zeros(rows, logs.shape[2]))
        max_steps = [int(length) + 1 for length in lengths.tolist()]
        return DecoderInputs(
            CtcMemory(memory, logs, lengths), first, rows, logs.device, max_steps, valid, normalized=True
        )

    def step(self, token: Int[Tensor, " N"], memory: CtcMemory, state: CtcState) -> DecoderStep:
        """Return the joined scores of what follows ``token``."""
        each = len(token) // len(memory.log_probs)
        logs = memory.log_probs.repeat_interleave(each, dim=0) if each > 1 else memory.log_probs
        lengths = memory.lengths.repeat_interleave(each, dim=0) if each > 1 else memory.lengths
        begun = token != self.bos
        prefix, last = state.prefix, torch.where(begun, token, state.last)
        if bool(begun.any()):
            prefix = ctc.extend_prefix(logs, prefix, state.last, token)
        scores = ctc.prefix_scores(logs, prefix, last)
        scores[:, self.eos] = ctc.whole_scores(prefix, lengths)
        scores[:, [ctc.BLANK, self.bos]] = -torch.inf
        before = state.scores.gather(1, token.unsqueeze(1))
        gained = (scores - before).clamp_max(0.0).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        inner, attention = state.inner, None
        if self.decoder is not None:
            logits, inner, attention = self.decoder.step(token, memory.inner, state.inner)
            joined = (1 - self.weight) * torch.log_softmax(logits.double(), dim=-1)
            gained = joined + self.weight * gained if self.weight else joined
        return DecoderStep(gained.float(), CtcState(inner, prefix, last, scores), attention)
