"""A sequence-to-sequence model for tests of decoding: its log-probabilities are in tables."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from foci.layers.interfaces import DecoderStep
from foci.layers.token_loss import TokenLogits
from foci.weights import Weights


class TableState(NamedTuple):
    """The token before last, and the number of steps, of every hypothesis."""

    before: Tensor
    steps: Tensor


class TableModel:
    """The next token depends on the source's first token, the last two tokens and the step; so does the attention."""

    max_length = None

    def __init__(self, vocabulary: int, *, size: int = 7, seed: int = 0, scale: float = 1.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (vocabulary, vocabulary, vocabulary, 11)
        self.table = torch.randn(*shape, vocabulary, generator=generator, dtype=torch.float64) * scale
        self.reads = torch.rand(*shape, size, generator=generator, dtype=torch.float64) ** 4
        self.calls: list[int] = []  # the rows of every step

    def start(self, source: Tensor, source_valid: Tensor) -> tuple[Any, Any]:
        state = TableState(torch.zeros_like(source[:, 0]), torch.zeros_like(source[:, 0]))
        return {"source": source, "valid": source_valid}, [state]

    def step(self, token: Tensor, memory: Any, state: Any) -> DecoderStep:
        (rows,) = state
        source, valid = memory["source"], memory["valid"]
        width = token.shape[0] // source.shape[0]
        self.calls.append(token.shape[0])
        first, valid = (t.repeat_interleave(width, dim=0) for t in (source[:, 0], valid))
        at = (first, rows.before, token, rows.steps.clamp(max=10))
        weights = self.reads[at][:, : valid.shape[1]] * valid
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return DecoderStep(
            self.table[at], [TableState(token, rows.steps + 1)], Weights.from_tensor(weights.unsqueeze(1))
        )

    def __call__(self, source: Tensor, source_valid: Tensor, target: Tensor) -> TokenLogits:
        memory, state = self.start(source, source_valid)
        logits, read = [], []
        for token in target.unbind(1):
            stepped = self.step(token, memory, state)
            state = stepped.state
            logits.append(stepped.logits)
            read.append(stepped.attention.dense() if stepped.attention is not None else None)
        return TokenLogits(torch.stack(logits, dim=1), {"decoder.cross": Weights.from_tensor(torch.cat(read, dim=1))})
