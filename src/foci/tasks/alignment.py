"""What encoder-decoders attended to and copied: sources as a search takes them, and traces of what was produced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from foci.data import BOS, EOS, Sequences, Tokeniser
from foci.data.copy_ids import CopyIds, SourceRow, padded_sources
from foci.decoding import Hypothesis
from foci.layers.copying import CopySource
from foci.layers.token_loss import TokenLogits
from foci.viz.trace import Cells, Trace


def source_rows(
    source: Tokeniser, target: Tokeniser, texts: Iterable[str], *, copies: bool, longest: int | None = None
) -> list[SourceRow]:
    """Return the ids of sources, with extended ones for a model that copies; of their first ``longest`` tokens."""
    if copies:
        return list(CopyIds(source, target).sources(texts, longest))
    encoded = source.encode_many(texts)
    return [SourceRow(ids[:longest], [], [], 0 if longest is None else max(0, len(ids) - longest)) for ids in encoded]


def padded(model: nn.Module, rows: Sequence[SourceRow]) -> tuple[Tensor | CopySource, Bool[Tensor, "B S"]]:
    """Return sources as one batch on the model's device, and which positions are not padding."""
    device = next(model.parameters()).device
    if any(row.extended for row in rows):
        return padded_sources(rows, device)
    width = max(1, *(len(row.ids) for row in rows))
    highest = 1 + max((max(row.ids, default=0) for row in rows), default=0)
    source, valid = Sequences((row.ids for row in rows), highest).padded(np.arange(len(rows)), width)
    return torch.from_numpy(source).to(device), torch.from_numpy(valid).to(device)


def trace_of(
    model: nn.Module, source: Tokeniser, target: Tokeniser, row: SourceRow, hypothesis: Hypothesis, text: str
) -> Trace:
    """Return the attention weights of each generated token, by teacher forcing, which equals those of the search."""
    given, valid = padded(model, [row])
    produced = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
    read = [BOS, *produced[:-1]] if produced else []
    predicted: TokenLogits = model(given, valid, torch.tensor([read], dtype=torch.long, device=valid.device))
    # Self-attention covers the decoder's input, which is one token behind its output.
    inputs = ["<bos>", *target.labels(produced[:-1], row.own)] if produced else []
    cells = {
        "source": Cells("tokens", tuple(_source_labels(source, target, row)), "source"),
        "target": Cells("tokens", tuple(target.labels(produced, row.own)), "target"),
        "input": Cells("tokens", tuple(inputs), "target so far"),
    }
    own = [name for name in predicted.attentions if name.startswith("decoder.") and name.endswith(".self")]
    return Trace.from_handles(
        predicted.attentions,
        cells,
        between=dict.fromkeys(own, ("target", "input")),
        text=text,
        facts={"score": hypothesis.score, "log-probability": hypothesis.log_prob},
    )


def _source_labels(source: Tokeniser, target: Tokeniser, row: SourceRow) -> list[str]:
    """Return a label per source token; a word outside the vocabulary is labelled with its own text."""
    labels = source.labels(row.ids)
    for place, number in enumerate(row.extended):
        if number >= len(target):
            labels[place] = target.labels([number], row.own)[0]
    return labels
