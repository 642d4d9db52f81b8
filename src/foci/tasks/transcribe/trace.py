"""What each token of a transcript listened to, as a trace that can be drawn over the spectrogram and played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from foci.models.recognizer import Recognizer
from foci.tasks.transcribe.alignment import Alignment
from foci.tasks.transcribe.assets import SpeechAssets
from foci.tasks.transcribe.search import Answer
from foci.tasks.transcribe.words import SpokenWord
from foci.viz.axis import Mark
from foci.viz.trace import Axis, Trace
from foci.weights import Weights


def speech_trace(
    model: Recognizer, assets: SpeechAssets, answer: Answer, alignment: Alignment, seconds: float, rate: int
) -> Trace:
    """Return what each token of a piece listened to, by CTC's alignment and by the attention.

    Args:
        model: which transcribed it.
        assets: of the run.
        answer: the piece, with its spectrogram and its sound.
        alignment: of the hypothesis that is shown.
        seconds: duration of a cell.
        rate: samples of the sound per second.
    """
    cells = answer.encoded.values.shape[1]
    labels = assets.tokenizer.labels(alignment.hypothesis.tokens)
    ended = ["<eos>"] if model.decoder is not None else []
    samples = answer.piece.samples
    recording = replace(
        Axis.from_frames(cells, seconds=seconds, spectrogram=answer.piece.spectrogram),
        marks=_marks(alignment.words, seconds, cells),
        sound=None if samples is None else np.rint(np.clip(samples, -1, 1) * 32767).astype(np.int16),
        rate=None if samples is None else rate,
    )
    sides = {"source": recording, "target": Axis("tokens", (*labels, *ended), "transcript")}
    handles: dict[str, Weights] = {} if alignment.weights is None else {"decoder.cross": alignment.weights}
    if alignment.spans is not None:
        spans = torch.zeros(1, len(labels) + len(ended), cells)
        for row, (first, last) in enumerate(alignment.spans):
            spans[0, row, first : last + 1] = 1 / (last + 1 - first)
        handles["ctc"] = Weights.from_tensor(spans)
    axes_of = dict.fromkeys(handles, ("target", "source"))
    for name, weights in (answer.encoded.attentions or {}).items():
        handles[name] = weights
        axes_of[name] = ("source", "source")
    metadata: dict[str, str | float] = {"score": alignment.hypothesis.score}
    return Trace.from_handles(handles, sides, axes_of=axes_of, text=alignment.text, metadata=metadata, derived=("ctc",))


def _marks(words: Sequence[SpokenWord], seconds: float, cells: int) -> tuple[Mark, ...]:
    """Return the words as stretches of cells, none of which overlaps the one before it."""
    marks: list[Mark] = []
    for word in words:
        first, last = (round(word.span[0] / seconds), round(word.span[1] / seconds) - 1)
        first = max(first, marks[-1].last + 1 if marks else 0)
        if first >= cells:
            break
        marks.append(Mark(first, min(max(first, last), cells - 1), word.text, min(word.confidence, 1.0)))
    return tuple(marks)
