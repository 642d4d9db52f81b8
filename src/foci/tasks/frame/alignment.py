"""What encoder-decoders attended to and copied: sources as a search takes them, and traces of what was produced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from foci.data import BOS, EOS, Sequences, Tokenizer
from foci.data.copy_ids import CopyIds, SourceRow, padded_sources
from foci.decoding import Hypothesis
from foci.layers.copying import CopySource, copying_head
from foci.layers.token_loss import TokenLogits
from foci.viz.axis import Mark
from foci.viz.trace import COPIED, P_GEN, Axis, Trace
from foci.weights import Weights

_AXES = {"encoder": ("source", "source"), "self": ("target", "input"), "cross": ("target", "source")}
"""The axes (target, source) of the encoder's attentions, and of the decoder's by the last word of their name."""


def source_rows(
    source: Tokenizer, target: Tokenizer, texts: Iterable[str], *, copies: bool, longest: int | None = None
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
    model: nn.Module, source: Tokenizer, target: Tokenizer, row: SourceRow, hypothesis: Hypothesis, text: str
) -> Trace:
    """Return the attention weights of each generated token, by teacher forcing, which equals those of the search."""
    given, valid = padded(model, [row])
    produced = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
    read = [BOS, *produced[:-1]] if produced else []
    predicted: TokenLogits = model(given, valid, torch.tensor([read], dtype=torch.long, device=valid.device))
    # Self-attention covers the decoder's input, which is one token behind its output.
    inputs = ["<bos>", *target.labels(produced[:-1], row.own)] if produced else []
    axes = {
        "source": Axis("tokens", tuple(_source_labels(source, target, row)), "source"),
        "target": Axis("tokens", tuple(target.labels(produced, row.own)), "target"),
        "input": Axis("tokens", tuple(inputs), "target so far"),
    }
    attentions = dict(predicted.attentions)
    axes_of = {name: _AXES["encoder" if name.startswith("encoder.") else name.split(".")[-1]] for name in attentions}
    if isinstance(given, CopySource) and predicted.generates is not None:
        attentions[COPIED] = Weights.from_tensor(_copied(predicted, given, produced))
        axes_of[COPIED] = ("target", "source")
        p_gen = predicted.generates[0].tolist()
        marks = tuple(Mark(place, place, P_GEN, min(share, 1.0)) for place, share in enumerate(p_gen))
        axes["target"] = replace(axes["target"], marks=marks)
    return Trace.from_handles(
        attentions,
        axes,
        axes_of=axes_of,
        text=text,
        derived=(COPIED,),
        metadata={"score": hypothesis.score, "log-probability": hypothesis.log_prob},
    )


def _copied(predicted: TokenLogits, source: CopySource, produced: Sequence[int]) -> Tensor:
    """Return where each produced token was copied from, ``(1, T, S)``: rows that sum to 1, or 0 of generated tokens.

    A token counts as copied if more of its probability comes from copying than from generating.
    """
    crossing = [weights for name, weights in predicted.attentions.items() if name.endswith("cross")]
    tokens = torch.tensor(produced, device=source.extended.device)
    read = copying_head(crossing[-1]).dense()[0] * (source.extended == tokens.unsqueeze(1))
    mass = read.sum(dim=1, keepdim=True)
    total = predicted.logits[0].gather(1, tokens.unsqueeze(1)).exp()
    generates = 1.0 if predicted.generates is None else predicted.generates[0].unsqueeze(1)
    copied = (1 - generates) * mass > total / 2
    return torch.where(copied, read / mass.clamp_min(torch.finfo(mass.dtype).tiny), 0.0).unsqueeze(0)


def _source_labels(source: Tokenizer, target: Tokenizer, row: SourceRow) -> list[str]:
    """Return a label per source token; a word outside the vocabulary is labeled with its own text."""
    labels = source.labels(row.ids)
    for place, number in enumerate(row.extended):
        if number >= len(target):
            labels[place] = target.labels([number], row.own)[0]
    return labels
