"""Whether the attention follows the order of the sounds, and what to try where it does not."""

from __future__ import annotations

from torch import Tensor

from foci.data import PAD
from foci.metrics.attention import diagonality
from foci.tasks.transcribe.config import TranscribeConfig
from foci.weights import Weights

_DIAGONAL = 0.7
"""Below this correlation of tokens and times an attention has not found the order of the sounds."""


def diagonalities(weights: Weights, target: Tensor) -> list[float]:
    """Return how diagonal the attention of each utterance is, EOS aside."""
    dense = weights.dense().float()
    dense = dense.mean(dim=1) if dense.dim() == 4 else dense
    lengths = (target != PAD).sum(dim=1) - 2
    return [diagonality(row[:length].cpu().numpy()) for row, length in zip(dense, lengths.tolist()) if length >= 3]


def alignment_notice(config: TranscribeConfig, step: int, diagonal: float) -> str | None:
    """Return a warning, with what to try, if the attention is not diagonal after ``step`` steps; otherwise None."""
    if step < config.diagonal_after or diagonal >= _DIAGONAL:
        return None
    options = config.model.resolved
    tries = []
    if not options.get("ctc", True):
        tries.append("train with CTC beside it (model.ctc=true)")
    elif config.ctc.weight < 0.5:
        tries.append("raise ctc.weight to 0.5 or more")
    if options.get("score", "location_aware") != "location_aware" or not options.get("content", True):
        tries.append("use content and location (model.score=location_aware, model.content=true)")
    tries += [
        "train on shorter utterances first (data.max_seconds)",
        "lower training.learning_rate or lengthen training.warmup",
        "check that transcripts belong to their recordings",
    ]
    return (
        f"after {step:,} steps the attention does not follow the sound (the correlation of tokens and times is "
        f"{diagonal:.2f}, expected {_DIAGONAL} or more). To try: {'; '.join(tries)}"
    )
